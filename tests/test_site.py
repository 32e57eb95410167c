"""The page without a server, without a browser: its engine computes what Python computes."""

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from npm_parts import packages
from serve_parts import one_vector, trained
from site_parts import (
    CALIBRATION,
    Engine,
    EngineError,
    built,
    differences,
    engine,
    in_python,
    served,
    small_runs,
    without_noise,
)

from regard.api.drafts import end_alike
from regard.api.flags import wrong_with
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, RunError
from regard.evaluate.confidence import Decoded
from regard.files.segment import take_sentences
from regard.look.table import Show, labels
from regard.look.tokens import Token
from regard.runs.included import shipped
from regard.serve.models import TranslationModel
from regard.serve.site import FILES, METHODS, build_site, describe_model, read_runtime
from regard.text.languages import other_language
from regard.text.sentences import split_sentences
from regard.text.visible import label

TEXTS = [
    "Mr. Smith paid 3.5 million. He left at 5 p.m. on Monday.",
    "« Il dort. » Puis il part. «Oui.» Non ! Quoi ?",
    "1. The first item. 2. The second. See p. 12. Then art. 3 applies. No. 5 is alive. No. I am not.",
    "Am 3. Oktober 1990 kam er. Dann ging er. U.S. troops. e.g. this",
    "今日は。元気？はい！「いいよ。」と言った。Yes. No",
    "a line\nthat goes on. New\n \nparagraph<br/>more… and on",
    "Don't stop!!! It's 3.5 km, naïve — 東京 100% at 10:30, $5 and 1,234.50",
    "‘new’ and «old» ‘tis o’clock – l’accord “quoted” 'it' rock 'n' roll",
    "İstanbul ǅ ﬁn e\u0301 \u0301 \U0001f600 \x1c\x85\u2028 z",
    "WHERE IS THE STATION? NATO AND I",
    "www.example.org, me@here.org and %s {name} ™",
    "See /home/me/a.txt and ~/b/c, not 1/2/3 or </b></i>: @some_name, #été, C#, #1 and @9",
    "",
    "  \u00a0 ",
    "שלום עולם and العربية",
]
SIGNS = list("ab.!?…。\"'’)] \n\t\u00a0\u2028\x85<br />Mr1250:%€,-–—«»É\u0301ßİ東🏴한\u200d\u202e")


def texts(count: int, seed: int = 1) -> list[str]:
    """Sentences, and random signs."""
    draw = random.Random(seed)
    return [*TEXTS, *("".join(draw.choices(SIGNS, k=draw.randrange(40))) for _ in range(count))]


@pytest.fixture(scope="module")
def runs() -> dict[str, Path]:
    return {one.name: one for one in small_runs()}


@pytest.fixture(scope="module")
def site(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(list(runs.values()), tmp_path_factory.mktemp("built") / "site")


@pytest.fixture(scope="module")
def js(site: Path) -> Iterator[Engine]:
    with engine(site) as running:
        yield running


@pytest.fixture(scope="module")
def models(runs: dict[str, Path]) -> dict[str, TranslationModel]:
    return {name: served(run) for name, run in runs.items()}


# --- text


def test_sentences_end_at_the_same_places(js: Engine) -> None:
    given = texts(400)
    found = js.each("text", "splitSentences", [[text] for text in given])
    assert found == [[list(span) for span in split_sentences(text)] for text in given]
    found = js.each("text", "takeSentences", [[text, 17] for text in given])
    assert found == [[list(span) for span in take_sentences(text, 17)] for text in given]


def test_the_same_is_wrong_with_a_translation(js: Engine) -> None:
    given = texts(60)
    draw = random.Random(2)
    pairs = [(text, draw.choice((text, draw.choice(given), text + " x", "a a a a a", ""))) for text in given * 3]
    flags = js.each("text", "wrongWith", [[*pair, "end", False] for pair in pairs])
    assert flags == [wrong_with(*pair, "end", False) for pair in pairs]
    ends = js.each("text", "endAlike", [list(pair) for pair in pairs])
    assert ends == [end_alike(*pair) for pair in pairs]
    spoken = ["Ich weiß nicht, was das ist.", "Je ne sais pas où est la gare.", "the cat is not here", *given]
    assert js.each("text", "otherLanguage", [[text, "en"] for text in spoken]) == [
        other_language(text, "en") for text in spoken
    ]


def plain(vocabulary: Vocabulary) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": vocabulary.kind, "form": vocabulary.form, "lowercase": vocabulary.lowercase}
    if vocabulary.kind == "bpe":
        found["scores"] = [vocabulary.tokens.processor.get_score(at) for at in range(len(vocabulary))]  # type: ignore[union-attr]
    return {**found, "pieces": vocabulary.tokens.pieces}


@pytest.mark.parametrize(
    ("kind", "form", "lowercase", "fallback"),
    [
        ("bpe", "none", False, True),
        ("bpe", "punctuation", False, True),
        ("bpe", "quotes", False, True),
        ("bpe", "nfkc", True, False),
        ("word", "nfc", True, True),
        ("char", "none", False, True),
    ],
)
def test_vocabularies_split_and_join_alike(js: Engine, kind: str, form: str, lowercase: bool, fallback: bool) -> None:
    lines = [text for text in texts(60, seed=3) if text.strip()]
    vocabulary = Vocabulary.train(lines, kind, 420, fallback, form=form, lowercase=lowercase)
    given = [text.replace("\ud800", "") for text in texts(150, seed=4)]
    found = js.ask(vocabulary=plain(vocabulary), name="encode", each=[[text] for text in given])
    for text, ours in zip(given, found, strict=True):
        theirs = vocabulary.encode(text)._asdict()
        assert ours == json.loads(json.dumps(theirs)), (text, theirs)
    draw = random.Random(5)
    rows = [[draw.randrange(3, len(vocabulary)) for _ in range(draw.randrange(12))] for _ in range(150)]
    rows += [vocabulary.encode(text).ids for text in given]
    found = js.ask(vocabulary=plain(vocabulary), name="wordIndices", each=[[row] for row in rows])
    assert found == [vocabulary.words_of(row) for row in rows]
    found = js.ask(vocabulary=plain(vocabulary), name="tokenised", each=[[row] for row in rows])
    for row, ours in zip(rows, found, strict=True):
        assert ours == json.loads(json.dumps(vocabulary.tokenised(row)._asdict())), row


def test_pieces_become_the_same_cells(js: Engine) -> None:
    draw, calls, expected = random.Random(6), [], []
    for text in texts(300, seed=7):
        ends = sorted({*draw.choices(range(len(text) + 1), k=6), len(text)})
        words = [len(text[:start].split()) for start in (0, *ends[:-1])]
        spans = list(zip((0, *ends[:-1]), ends, strict=True))
        tokens = [
            Token(text[a:b].strip(" ") or "_", text[a:b], a, b, word=word)
            for (a, b), word in zip(spans, words, strict=True)
        ]
        tokens.append(Token("</s>", "</s>", len(text), len(text), special=True))
        calls.append([text, [vars(token) for token in tokens], True])
        expected.append([dataclasses.asdict(cell) for cell in labels(text, tokens, Show())])
    assert js.each("drawn", "labels", calls) == json.loads(json.dumps(expected))
    shown = ["a" * 61, "a" * 60, *(text for text in texts(200, seed=8) if len(label(text, 60)) <= 30)]
    assert js.each("drawn", "label", [[text, 60] for text in shown]) == [label(text, 60) for text in shown]


def test_words_are_rated_alike(js: Engine) -> None:
    draw, found = random.Random(10), []
    given = texts(150, seed=11)
    for text in given:
        count = len(text.split())
        words = sorted([*range(count), *draw.choices(range(count), k=count)]) if count else []
        logprobs = [-draw.choice((1e-6, 0.01, 1.0, 9.0)) * draw.random() for _ in range(len(words) + 1)]
        found.append(Decoded(draw.choice((text, draw.choice(given))), "en", 3, text, words, logprobs))
    names = ("source", "text", "words", "logprobs")
    calls = [[CALIBRATION.as_data()["word"], {name: getattr(one, name) for name in names}] for one in found]
    for one, ours in zip(found, js.each("confidence", "rateWords", calls), strict=True):
        theirs = [chance for _, chance in CALIBRATION.rate(one).words]
        assert ours == pytest.approx(theirs, abs=1e-9), one


# --- numbers


def requests(model: TranslationModel, count: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Random requests for traces, steps and what-ifs: hidden words, set rows, silenced heads, other words chosen."""
    draw = random.Random(seed)
    modules = [(row.name, row.weights.shape[0]) for row in model.translator.look("ba da").attention.values()]
    words = [piece for piece in model.translator.target_vocabulary.tokens.pieces[4:] if not piece.startswith("<")]
    examples = [one.source for one in model._examples] or SENTENCES
    fixed = model.describe()["fixed"]
    for number in range(count):
        text = draw.choice(examples)
        slots = len(model.translator.encode(text).ids) + 1
        name, heads = draw.choice(modules)
        row = [draw.random() for _ in range(slots)]
        changes = [
            [{"kind": "mask", "position": draw.randrange(slots)}],
            [{"kind": "set-row", "t": draw.randrange(3), "position": draw.randrange(slots)}],
            [{"kind": "set-row", "t": draw.randrange(3), "weights": [round(one / sum(row), 4) for one in row]}],
            [{"kind": "silence", "name": name, "head": draw.randrange(heads)}],
            [{"kind": "temperature", "value": draw.choice((0.3, 2.5))}, {"kind": "mask", "position": 0}],
            [],
        ][number % 6]
        changes = [] if fixed else changes
        look = {"text": text, "beam": draw.choice((1, 3, 5)), "changes": changes}
        prefix = draw.choices(words, k=draw.randrange(3))
        yield "look", {**look, "prefix": prefix} if number % 3 else {**look, "tree": True}
        yield "explain", {**look, "t": 0, "name": name, "head": draw.randrange(heads)}
        yield "alternatives", {"text": text, "prefix": prefix, "most": 5}
        for method in METHODS:
            if number in (0, 3) and method in model.describe()["methods"]:
                against = {"against": draw.choice(words)} if "occlusion" in method and number % 2 else {}
                yield "look", {"text": text, "beam": 1, "by": method, **against}
        if number % 6 == 0:
            yield "worth", look
            if model.translator.experiment.name == "transformer":
                yield "path", {**look, "t": 0}
                yield "path", {**look, "t": 1, "name": "encoder.0"}


def check_requests(js: Engine, model: TranslationModel, count: int, seed: int) -> None:
    for method, body in requests(model, count, seed):
        ours, theirs = js.ask(model=model.id, method=method, body=body), in_python(model, method, body)
        if method == "explain" and body["name"].startswith("decoder") and "self" in body["name"]:
            # Python's forward pass also has what comes after step t, which the page does not show.
            ours, theirs = ({key: one[key] for key in ("query", "context", "output")} for one in (ours, theirs))
        if "occlusion" in body.get("by", ""):
            name = f"{body['by']} against {body['against']}" if "against" in body else body["by"]
            scores = theirs["attention"][name]["scores"]
            ours, theirs = (without_noise(one, name, scores) for one in (ours, theirs))
        assert differences(theirs, ours) == [], (method, body)


def test_traces_steps_and_what_ifs_are_those_of_python(js: Engine, models: dict[str, TranslationModel]) -> None:
    for model in models.values():
        check_requests(js, model, 6, seed=1)


def test_translations_are_those_of_python(js: Engine, models: dict[str, TranslationModel]) -> None:
    given = ["ba da fo", "lu me ko. ba", "ba " * 60 + "da", "qq ba", "BA DA", "ba\nda"]
    for model in models.values():
        for text in given:
            for beam in (1, 5):
                ours = js.ask(model=model.id, method="translate", body={"text": text, "beam": beam})
                theirs = model.translator.translate(text, beam=beam)
                assert ours["text"] == theirs.text
                assert ours["flags"] == theirs.flags, text
                assert ours["unknown"] == theirs.unknown


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"changes": [{"kind": "mask", "position": 99}]}, "There is no source position 99"),
        ({"changes": [{"kind": "silence", "name": "nowhere"}]}, "There is no attention module nowhere"),
        ({"changes": [{"kind": "silence", "name": "decoder", "head": 7}]}, "There is no head 7"),
        ({"changes": [{"kind": "shift-row", "t": 0, "by": 1}]}, "needs regard serve"),
        ({"changes": [{"kind": "mask", "position": 0}] * 33}, "At most 32 changes"),
        ({"prefix": ["nothing"]}, "There is no piece 'nothing'"),
        ({"by": "gradient"}, "The method gradient needs regard serve; here there are: attention, occlusion-masked"),
        ({"by": "attention:9.0"}, "There is no layer 9 of attention over the source"),
        ({"by": "attention:0.9"}, "There is no head 9"),
        ({"by": "occlusion-masked:1"}, "A layer and a head are for the method attention"),
        ({"by": "attention", "against": "ba"}, "does not depend on the word that is written"),
        ({"by": "occlusion-removed", "against": "nothing"}, "There is no word 'nothing' in the target vocabulary"),
        ({"against": "ba"}, "A word to compare with needs a method"),
        ({"by": "attention", "changes": [{"kind": "temperature", "value": 2}]}, "leave out the what-ifs"),
        ({"text": "ba " * 1200}, "send at most 1000"),
        ({"beam": 5000, "tree": True}, "send a shorter text or a smaller beam"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_a_sentence(js: Engine, body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        js.ask(model="bahdanau-reverse", method="look", body={"text": "ba da", **body})


# --- the command


def test_what_cannot_be_built_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="npm install onnxruntime-web@"):
        read_runtime(None)
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(RunError, match="is not that of onnxruntime-web"):
        read_runtime(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "here").touch()
    with pytest.raises(RunError, match="is not an empty folder"):
        build_site([], tmp_path / "full")


def test_a_run_that_the_page_cannot_read_is_refused(tmp_path: Path) -> None:
    run = trained("bahdanau", "model.attention=24", "model.readout=24", "data.subwords=unigram", steps=4)
    with pytest.raises(ConfigError, match="unigram"):
        describe_model(run, tmp_path)


# --- the included models and other kinds, which take minutes

SENTENCES = [
    "The white house does not have a red door.",
    "Where is the station?",
    "She did not sign the agreement on the European Economic Area.",
]
NOUNS = ["man", "woman", "child", "house", "cat", "book", "car", "door", "station", "minister", "committee", "report"]
VERBS = ["sees", "likes", "does not want", "has never had", "will open", "cannot find", "has lost", "wants to sell"]
PLACES = ["in the old town", "near the sea", "on Monday", "at 10:30", "in 1992", "with 25 others", "for $100", "today"]


def sentences(count: int) -> list[str]:
    """Sentences of three to forty words."""
    draw, found = random.Random(9), []
    for number in range(count):
        parts = [
            f"the {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} {draw.choice(PLACES)}"
            for _ in range(1 + number % 4)
        ]
        text = draw.choice((" and ", ", but ", " because ")).join(parts)
        text = text[0].upper() + text[1:]
        found.append(text + draw.choice((".", "?", "!", "")) if number % 9 else text.upper() + ".")
    return found


FRENCH = {
    "the": "le",
    "sees": "voit",
    "likes": "aime",
    "house": "maison",
    "man": "homme",
    "woman": "femme",
    "today": "aujourd'hui",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en-fr-transformer", "en-fr-bahdanau", "en-fr-cho", "fr-en"])
def test_every_included_model_translates_200_sentences_as_in_python(name: str, tmp_path: Path) -> None:
    run = next(folder for folder in shipped().values() if folder.name == name)
    model = served(run)
    given = sentences(200)
    if name == "fr-en":
        given = [" ".join(FRENCH.get(word, word) for word in text.split(" ")) for text in given]
    with engine(built([run], tmp_path / "site")) as js:
        for beam in (1, None):
            theirs = model.translator.translate(given, beam=beam)
            for text, one in zip(given, theirs, strict=True):
                ours = js.ask(model=name, method="translate", body={"text": text, "beam": beam})
                assert ours["text"] == one.text, text
                assert ours["flags"] == one.flags, text
        for text in given:
            body = {"text": text, "tree": True, "beam": 5}
            assert differences(in_python(model, "look", body), js.ask(model=name, method="look", body=body)) == [], text
        check_requests(js, model, 50, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("rnnencdec", ["model.readout=24"]),
        ("luong", ["model.score=general"]),
        ("luong", ["model.window=local-p", "model.half_width=2"]),
        ("coverage", ["model.attention=24"]),
        ("pointer", ["model.attention=24", "data.joint=true"]),
        ("britz", ["data.subwords=word"]),
        ("sutskever", ["model.width=24"]),
        ("transformer", ["model.positions=relative", "model.norm=pre", "data.subwords=char"]),
    ],
)
def test_other_kinds_of_models_compute_what_python_computes(model: str, more: list[str], tmp_path: Path) -> None:
    run = trained(model, *more, steps=30)
    with engine(built([run], tmp_path / "site")) as js:
        check_requests(js, served(run), 12, seed=3)


def test_the_runtime_is_the_one_that_is_tested_here() -> None:
    found = read_runtime(packages() / "node_modules" / "onnxruntime-web")
    assert set(found) == {name for name, _ in FILES.values()}
    assert one_vector().is_dir()
