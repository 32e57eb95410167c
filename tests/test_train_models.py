"""The text of the included models, and the script that trains them, from end to end with tiny sizes."""

import bz2
import importlib.util
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

import regard
from regard.corpora.registry import find_builtin

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SIZES = [
    *(f"{who}:model.{size}" for who in ("teacher", "transformer") for size in ("width=16", "heads=2", "inner=32")),
    *(f"{who}:model.{size}" for who in ("teacher", "transformer") for size in ("layers=1", "decoder_layers=1")),
    *(f"{who}:{size}" for who in ("teacher", "student") for size in ("data.vocabulary=400", "train.minutes=0.05")),
    *(f"{who}:train.precision=float32" for who in ("teacher", "student")),
    *("bahdanau:model.width=16", "bahdanau:model.attention=16", "cho:model.width=16", "translate:--workers=1"),
]


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def models_data():
    return script("models_data")


def pack(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bz2.compress("".join(line + "\n" for line in lines).encode()))


@pytest.fixture
def data(tmp_path) -> Path:
    """Corpora of the names that the text is made of. A sentence of newstest2014 is also in the training text."""
    pairs = [(pair.source, pair.target) for pair in find_builtin("phrasebook").generate(1520, 7, 3, 8)]
    parts = [f"europarl.en-fr/train.{part}" for part in range(4)] + [f"europarl-more.en-fr/train.{k}" for k in range(6)]
    parts += ["catalogues.en-fr/train", *(f"europarl.en-fr/{part}" for part in ("dev", "test", "lentest"))]
    parts += ["newstest.en-fr/newstest2013", "newstest.en-fr/newstest2014"]
    for number, part in enumerate(parts):
        rows = pairs[80 * number : 80 * number + 80]
        if part == "catalogues.en-fr/train":
            rows = [*rows, ("THE hidden, sentence!", "autre chose"), ("said", 'dit "oui" ?')]
        if part.endswith("2014"):
            rows = [*rows, ("The hidden sentence.", "La phrase cachée.")]
        for side, language in enumerate(("en", "fr")):
            pack(tmp_path / f"data/{part}.{language}.bz2", [row[side] for row in rows])
    everyday = [
        *pairs[1280:],
        ("Is Tom here?", "Tom est-il là ?"),
        ("The cat saw the hidden house.", "La phrase cachée."),
        ("He says yes.", 'Il dit "oui".'),
    ]
    pack(tmp_path / "data/tatoeba/eng-fra.tsv.bz2", ["\t".join(pair) for pair in everyday])
    english = ["Hello, Tom.", "He says yes", "A red house!", "THE hidden, sentence!"]
    pack(tmp_path / "data/tatoeba-more/sentences.en.bz2", english)
    pack(tmp_path / "data/tatoeba-more/sentences.fr.bz2", ["Tom est-il là?", "Qui est là?", "La PHRASE cachée"])
    pack(tmp_path / "data/hansards.en-fr/dev.text.bz2", [" ||| ".join(pair) for pair in pairs[:9]])
    pack(tmp_path / "data/hansards.en-fr/dev.gold.bz2", ["1-1 2p2"] * 9)
    return tmp_path / "data"


def test_the_text_has_no_sentence_of_a_test_set_and_french_as_it_is_printed(models_data, data, tmp_path, capsys):
    models_data.main(data, tmp_path / "text")
    held = models_data.held_out(data)
    found = {path.name: models_data.read(path) for path in (tmp_path / "text").iterdir()}
    names = ("parliament.0", "parliament.3", "more.1", "catalogues", "tatoeba.train", "greetings", "idioms")
    for name in names:
        english, french = (found[f"{name}.{side}.bz2"] for side in ("en", "fr"))
        assert len(english) == len(french) > 0
        assert not {models_data.key(line) for line in english + french} & held
    typed, clean = found["tatoeba.typed.en.bz2"], found["tatoeba.train.en.bz2"] * 2
    assert found["tatoeba.typed.fr.bz2"] == found["tatoeba.train.fr.bz2"] * 2
    assert 0.5 < sum(one != other for one, other in zip(typed, clean, strict=True)) / len(clean) < 1
    typed, clean = found["tatoeba.typed-back.fr.bz2"], found["tatoeba.train.fr.bz2"] * 2
    assert found["tatoeba.typed-back.en.bz2"] == found["tatoeba.train.en.bz2"] * 2
    assert 0.5 < sum(one != other for one, other in zip(typed, clean, strict=True)) / len(clean) < 1
    assert "«" in "".join(clean)
    assert "«" not in "".join(typed), "as it is typed, not as it is printed"
    assert found["tatoeba.other.en.bz2"] == ["Hello, Tom.", "A red house!"], "neither with French nor held out"
    assert found["tatoeba.other.fr.bz2"] == ["Qui est là\u00a0?"], "neither with English nor held out"
    assert "the hidden sentence" in found["held-out.bz2"]
    named = list(zip(found["tatoeba.named.en.bz2"], found["tatoeba.named.fr.bz2"], strict=True))
    names = [english.removeprefix("Is ").removesuffix(" here?") for english, _ in named]
    assert [french for _, french in named] == [f"{name.replace('Mr.', 'M.')} est-il là\u00a0?" for name in names]
    assert len(set(names) - {"Tom"}) == 2
    assert "catalogues: 81 of 82 pairs" in capsys.readouterr().out
    assert "dit «\u00a0oui\u00a0»\u00a0?" in found["catalogues.fr.bz2"]


def test_a_corpus_that_is_missing_is_named(models_data, tmp_path):
    with pytest.raises(
        SystemExit, match=r"There is no file .*eng-fra\.tsv\.bz2; docs/models-data\.md has the commands"
    ):
        models_data.main(tmp_path, tmp_path / "text")


def test_french_as_it_is_printed(models_data):
    printed = models_data.french('Quoi? "Rien" dit-il : l’heure est 12:30!')
    assert printed.replace("\u00a0", "_") == "Quoi_? «_Rien_» dit-il_: l'heure est 12:30_!"


def test_typing_errors_stay_in_their_words(models_data):
    """One slip changes, adds or removes one letter, or swaps two, and the first letter stays. Short words, words in
    capitals and numbers are left as they are."""
    for seed in range(300):
        slipped = models_data.slip("umbrella", random.Random(seed))
        assert slipped[0] == "u"
        assert abs(len(slipped) - 8) <= 1
        text = models_data.typed("Tom saw NASA at 8:30 in 1999.", random.Random(seed))
        assert re.fullmatch("(?i)tom saw nasa at 8:30 in 1999[.]?", text), "no word is long and in small letters"
    plain = {models_data.typed("Où ça ?", random.Random(seed), accents=True) for seed in range(300)}
    assert {"Où ça ?", "Ou ca ?", "ou ca"} <= plain | {one.strip() for one in plain}
    written = {models_data.typed("The umbrella is here!", random.Random(seed)) for seed in range(300)}
    assert len(written) > 50


def test_the_translation_that_is_most_like_the_reference(monkeypatch):
    """Likeness is the smoothed BLEU of sacreBLEU, on tokens."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    distil, chance = script("distil"), random.Random(5)
    metric = BLEU(smooth_method="add-k", smooth_value=1, tokenize="none", effective_order=False)
    for _ in range(200):
        written, reference = ([chance.randrange(6) for _ in range(chance.randrange(1, 12))] for _ in range(2))
        expected = metric.sentence_score(" ".join(map(str, written)), [" ".join(map(str, reference))]).score
        assert distil.likeness(written, reference) == pytest.approx(expected / 100, abs=1e-9)
    assert distil.likeness([], [1]) == 0


def test_other_names_are_the_same_on_both_sides(models_data):
    """A French word that elides fits the name after it, and only sentences with the same names on both sides change."""
    pair, drawn = ("Mary knows Tom's car.", "Mary connaît la voiture de Tom."), set()
    for seed in range(300):
        english, french = models_data.renamed(pair, random.Random(seed))
        woman, man = re.fullmatch("(.+) knows (.+)'s car[.]", english).groups()
        titles = {"Mr.": "M.", "Mrs.": "Mme"}
        printed = [" ".join(titles.get(word, word) for word in name.split()) for name in (woman, man)]
        assert french == f"{printed[0]} connaît la voiture de {printed[1]}."
        assert not models_data._VOWEL.match(printed[1])
        drawn |= {woman, man}
    assert len(drawn) > 300
    assert {"Omar", "Ali"} & {
        models_data.renamed(("I saw Tom.", "J'ai vu Tom."), random.Random(seed))[0][6:-1] for seed in range(300)
    }
    pair, towns = ("Alice's car is in Boston.", "La voiture d'Alice est à Boston."), set()
    for seed in range(100):
        english, french = models_data.renamed(pair, random.Random(seed))
        woman, town = re.fullmatch("(.+)'s car is in (.+)[.]", english).groups()
        assert french == f"La voiture d'{woman} est à {town}."
        assert models_data._VOWEL.match(woman)
        towns.add(town)
    assert towns <= set(models_data.TOWNS.split())
    assert len(towns) > 30
    assert models_data.renamed(("I met Tom Jackson.", "J'ai rencontré Tom Jackson."), random.Random(1)) is None
    assert models_data.renamed(("Tom and Mary", "Tom et Marie"), random.Random(1)) is None
    sheet = set(re.findall(r"\w+", (BENCHMARKS.parent / "tests/everyday.toml").read_text(encoding="utf-8")))
    names = " ".join((models_data.MEN, models_data.WOMEN, models_data.FAMILIES, models_data.TOWNS)).split()
    assert not sheet & set(names), "the sheet tests names that no model was trained on"
    assert models_data.renamed(("Who is it?", "Qui est-ce ?"), random.Random(1)) is None


@pytest.mark.slow
def test_the_whole_script_with_tiny_sizes(models_data, data, tmp_path):
    models_data.main(data, tmp_path / "runs/text")
    command = [sys.executable, BENCHMARKS / "train_models.py", "--device", "cpu", "--lines", "70"]
    steps = ["--steps", "teachers", "translations", "students", "ship", "finish"]
    done = subprocess.run([*command, *steps, "--set", *SIZES], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in ("en-fr-transformer", "fr-en", "en-fr-bahdanau", "en-fr-cho"):
        files = {path.name for path in (tmp_path / "runs/models-new" / folder).iterdir()}
        assert {"CARD.md", "card.json", "confidence.json", "weights.safetensors"} <= files
        assert ("alignment.json" in files) == (folder in ("en-fr-transformer", "fr-en"))
        card = json.loads((tmp_path / "runs/models-new" / folder / "card.json").read_bytes())
        assert [one["sentences"] for one in card["scores"]] == [70, 70, len(models_data.tatoeba(data)["test"])]
        begun = [" ".join(one.split()[:2]) for one in card["commands"]]
        assert begun == ["regard train", "regard train", "python benchmarks/distil.py", "regard train"]
    again = subprocess.run([*command, *steps, "--set", *SIZES], cwd=tmp_path, capture_output=True, text=True)
    assert re.findall(r" begins", again.stdout) == []
    assert again.returncode == 0
    more = ["--further", "runs/models-new"]  # into runs/models-further
    further = subprocess.run([*command, *more, "--set", *SIZES], cwd=tmp_path, capture_output=True, text=True)
    assert further.returncode == 0, further.stdout + further.stderr
    for folder in ("en-fr-transformer", "fr-en", "en-fr-bahdanau", "en-fr-cho"):
        cards = [
            json.loads((tmp_path / f"runs/{at}/{folder}/card.json").read_bytes())
            for at in ("models-new", "models-further")
        ]
        assert cards[1]["commands"][:4] == cards[0]["commands"]
        distilled = ["benchmarks/distil.py"] * (2 if folder in ("en-fr-transformer", "fr-en") else 3)
        assert [one.split()[1] for one in cards[1]["commands"][4:]] == [*distilled, "train"]
        assert cards[1]["seconds"] > cards[0]["seconds"]
        assert cards[1]["weights"] != cards[0]["weights"]
    pair = [f"runs/{at}/en-fr-bahdanau" for at in ("models-new", "models-further")]
    average = [sys.executable, BENCHMARKS / "average.py", *pair, "--part", "0.75", "--out", "runs/averaged"]
    assert subprocess.run(average, cwd=tmp_path, capture_output=True, text=True).returncode == 0
    before, after, mixed = (regard.load(tmp_path / run).model.state_dict() for run in (*pair, "runs/averaged"))
    for name, weights in mixed.items():  # up to int8
        assert (weights - before[name].lerp(after[name], 0.75)).abs().max() <= weights.abs().max() / 100
    pack(tmp_path / "held.bz2", (tmp_path / "runs/distilled/tatoeba.train.en").read_text(encoding="utf-8").split("\n"))
    distil = [sys.executable, BENCHMARKS / "distil.py", "runs/teacher", "runs/text/tatoeba.train.en.bz2"]
    distil += ["--out", "held", "--held-out", "held.bz2", "--workers", "1", "--device", "cpu"]
    assert subprocess.run(distil, cwd=tmp_path, capture_output=True, text=True).returncode == 0
    assert not (tmp_path / "held/tatoeba.train.en").read_text(encoding="utf-8").strip(), "all are held out"
    refused = subprocess.run([*command, "--further", "nowhere"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "nowhere has no folder en-fr-transformer" in refused.stderr
