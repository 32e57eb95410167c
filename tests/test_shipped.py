"""The models that ship, as they are in the repository: small, whole, and able to translate."""

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.look.table import arrange, step_head, step_module
from regard.runs.included import find_run

NAMES = {"en-fr": "transformer", "en-fr/bahdanau": "bahdanau", "en-fr/cho": "cho", "fr-en": "transformer"}
AREA = "The agreement on the European Economic Area was signed in August 1992."


def test_all_models_are_there_and_small():
    sizes = [sum(part.stat().st_size for part in Path(find_run(name)).iterdir()) for name in NAMES]
    assert all(size <= 16 * 2**20 for size in sizes)
    assert sum(sizes) <= 56 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_a_card_describes_its_model(name: str):
    card = json.loads((Path(find_run(name)) / "card.json").read_text(encoding="utf-8"))
    model = regard.load(name, device="cpu")
    assert model.experiment.name == card["model"] == NAMES[name]
    assert sum(part.numel() for part in model.model.parameters()) == card["parameters"]
    assert "Tatoeba" in card["licence"]
    source, expected, _ = next(
        row for row in card["sentences"] if row[0] in ("Where is the station?", "Où est la gare ?")
    )
    assert model.translate(source, beam=4).text == expected


def test_european_economic_area_crosses():
    """The figure on the front page."""
    table = arrange(regard.load("en-fr/bahdanau", device="cpu").look(AREA))
    columns, rows = ([label.text for label in side] for side in (table.columns, table.rows))
    rows = [row.lower() for row in rows]
    seen = dict(zip(rows, table.weights @ np.arange(len(columns)), strict=True))  # the mean position of each row
    assert seen["espace"] > seen["économique"] > seen["européen"]
    for word, meant in (("économique", "Economic"), ("européen", "European")):
        assert columns[int(np.argmax(table.weights[rows.index(word)]))] == meant


STEPS = {
    "en-fr": {
        "The old house is empty.": {"vieille": "old", "maison": "house", "vide": "empty"},
        "The cat sleeps in the house.": {"chat": "cat", "dort": "sleeps", "maison": "house"},
        "The dog sees a small house.": {"chien": "dog", "petite": "small", "maison": "house"},
        "The black cat sleeps.": {"chat": "cat", "noir": "black", "dort": "sleeps"},
        "The white dog sleeps.": {"chien": "dog", "blanc": "white", "dort": "sleeps"},
        "My sister reads a long letter.": {"sœur": "sister", "longue": "long", "lettre": "letter"},
        "The children eat red apples.": {"enfants": "children", "pommes": "apples", "rouges": "red"},
    },
    "en-fr/bahdanau": {"The dog sees a small house.": {"petite": "small", "maison": "house"}},
    "fr-en": {"La petite maison est blanche.": {"small": "petite", "house": "maison", "white": "blanche"}},
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_opens_on_the_word_that_is_written_from(name: str):
    """The view of steps shows one head, which sees the source word of nine in ten words."""
    model, seen = regard.load(name, device="cpu"), {}
    for source, links in STEPS[name].items():
        trace = model.look(source)
        module = step_module(trace)
        rows = module.weights[step_head(trace, module)]  # [T, S], not moved by a shift
        assert not module.shift_of(step_head(trace, module))
        for word, meant in links.items():
            begins = trace.target.text.index(word)
            t = next(t for t, token in enumerate(trace.target.tokens) if token.end > begins)
            first, tokens = trace.source.text.index(meant), trace.source.tokens
            inside = [first <= token.start < first + len(meant) and not token.special for token in tokens]
            seen[source, word] = float(rows[t][inside].sum())
    missed = {where: weight for where, weight in seen.items() if weight < 0.3}
    assert 10 * len(missed) <= len(seen), missed
