"""The page without a server, without a browser: its engine computes what Python computes."""

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npm_parts import packages
from serve_parts import one_vector, trained
from site_parts import (
    CALIBRATION,
    CLOSE,
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

from regard.api.drafts import copy_unknown, end_alike, respell, restore, split, whole, with_small_numbers, write_numbers
from regard.api.flags import language_note, wrong_with
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, RunError
from regard.evaluate.confidence import Decoded
from regard.files.segment import protect, take_sentences
from regard.look.table import Show, first_best, labels
from regard.look.tokens import Token
from regard.look.trace_file import write
from regard.runs.included import shipped
from regard.serve.limits import RefusedError
from regard.serve.models import TranslationModel
from regard.serve.site import FILES, METHODS, build_site, describe_model, read_runtime
from regard.symbols import UNKNOWN
from regard.text.languages import other_language
from regard.text.sentences import split_sentences
from regard.text.visible import BLANKS, label

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
# Quotation marks, apostrophes and no-break spaces as English and French set them, and words that elide.
TYPESET = [
    *("'", "’", "‘", "‚", "´", '"', "“", "”", "„", "« ", " »", "«\u00a0", "\u00a0»", "«\u202f", "\u202f»", "«", "»"),
    *(
        " ",
        " ",
        "\u00a0?",
        "\u202f!",
        "\u00a0:",
        "\u00a0; ",
        ", ",
        ". ",
        ": ",
        "10\u00a0000",
        "\u2009",
        "-",
        " – ",
        "—",
    ),
    *(
        "l",
        "aujourd",
        "hui",
        "d",
        "Elle",
        "dit",
        "OUI",
        "École",
        "n",
        "'s ",
        "'TIS",
        "'til ",
        "'tİl",
        "'ſ ",
        "ıt",
        "x",
        "\n",
    ),
]


def texts(count: int, seed: int = 1) -> list[str]:
    """Sentences, random signs, and typeset words."""
    draw = random.Random(seed)
    return [*TEXTS, *("".join(draw.choices(draw.choice((SIGNS, TYPESET)), k=draw.randrange(40))) for _ in range(count))]


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

EN_FR, FR_EN = ("en", "fr"), ("fr", "en")


LABELS = ("1. ", "12)  ", "(3) ", "a)\t", "(iv) ", "B. ", "IV) ", "–\u00a0", "•\u2003", "> ", "1990. ", "the) ", "M. ")
LABELLED = ("the cat. 2. my house", "« house »", "3. Mai", "März", "D. H. the", "H the", "* * *", "...", "")


def test_sentences_end_at_the_same_places(js: Engine) -> None:
    given = [*texts(400), *(f"{label}{rest}" for label in LABELS for rest in LABELLED)]
    found = js.each("text", "splitSentences", [[text] for text in given])
    assert found == [[list(span) for span in split_sentences(text)] for text in given]
    found = js.each("text", "takeSentences", [[text, 17] for text in given])
    assert found == [[list(span) for span in take_sentences(text, 17)] for text in given]


def test_the_same_is_wrong_with_a_translation(js: Engine) -> None:
    given = texts(60)
    draw = random.Random(2)
    pairs = [(text, draw.choice((text, draw.choice(given), text + " x", "a a a a a", ""))) for text in given * 3]
    sums = [
        "10 and 20",
        "dix, vingt-deux, vingt et un",
        "ten, 20th",
        "Ça coûte5 dollars, 10%",
        "It costs $5 or 3.4 km.",
        "5% of 34 kg",
        "3,4 km, 10 dollars",
        "€ 5, 1.500 and 1,234.50",
        "1500 or 1 234,5",
        "$5 dollars, \ufffd5 euros",
        "$99,99 dollars",
        "€99.99 and 1 euro",
    ]
    pairs += [(one, other) for one in sums for other in sums]
    flags = js.each("text", "wrongWith", [[*pair, "end", False] for pair in pairs])
    assert flags == [wrong_with(*pair, "end", False) for pair in pairs]
    ends = js.each("text", "endAlike", [list(pair) for pair in pairs])
    assert ends == [end_alike(*pair) for pair in pairs]
    numbers = [
        "1,200",
        "1 200",
        "1\u202f234\u00a0567,50",
        "1,234,567.5",
        "11,200",
        "1,200 000",
        "1,200,000 and 1,200",
        "1.2",
    ]
    copied = [[f"In 10 {one}.", f"{other} dix", *way] for one in numbers for other in numbers for way in (EN_FR, FR_EN)]
    assert js.each("text", "writeNumbers", copied) == [write_numbers(*each) for each in copied]
    assert js.each("text", "respell", [[one, *way] for one in numbers for way in (EN_FR, FR_EN)]) == [
        respell(one, *way) for one in numbers for way in (EN_FR, FR_EN)
    ]
    spoken = ["Ich weiß nicht, was das ist.", "Je ne sais pas où est la gare.", "the cat is not here", *given]
    for own in ("en", "fr-CA"):
        for name, ours in (("otherLanguage", other_language), ("languageNote", language_note)):
            assert js.each("text", name, [[text, own] for text in spoken]) == [ours(text, own) for text in spoken]


def test_small_numbers_stand_for_the_same(js: Engine) -> None:
    encode = Vocabulary.train(["a b c d e f"] * 9, "char", 12).encode
    texts = [
        "$1,299.99",
        "£5 and €1.",
        "5 € or 30,500 $",
        "4.75% of 25",
        "a {x} of $9.5",
        "v1.2.3a 12/05/2024",
        "$25 1.2.3",
    ]
    for way in (EN_FR, FR_EN):
        lost = [(text, other) for text in texts for other in ("", *texts)]
        calls = [[{"source": text, "words": text.lower()}, other, *way] for text, other in lost]
        for (text, other), ours in zip(lost, js.each("text", "withSmallNumbers", calls), strict=True):
            (draft,) = whole(text, encode).drafts
            draft.protected, draft.words, draft.texts = protect(text), text.lower(), [other]
            small = with_small_numbers(draft, *way, encode)
            assert (ours is None) == (small is None)
            if small:
                stand_ins = [list(pair) for pair in small.stand_ins.items()]
                assert (ours["words"], ours["standIns"]) == (small.words, stand_ins)
                written = [
                    *small.stand_ins,
                    " ".join(small.stand_ins),
                    "25, 48.",
                    "25,48 36",
                    *small.stand_ins.values(),
                ]
                found = js.each("text", "restore", [[stand_ins, one] for one in written])
                assert found == [restore(small, one) for one in written]


def plain(vocabulary: Vocabulary) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": vocabulary.kind, "form": vocabulary.form, "lowercase": vocabulary.lowercase}
    if vocabulary.kind in ("bpe", "unigram"):
        found["scores"] = [vocabulary.tokens.processor.get_score(at) for at in range(len(vocabulary))]  # type: ignore[union-attr]
    return {**found, "pieces": vocabulary.tokens.pieces}


@pytest.mark.parametrize(
    ("kind", "form", "lowercase", "fallback"),
    [
        ("bpe", "none", False, True),
        ("bpe", "punctuation", False, True),
        ("bpe", "quotes", False, True),
        ("bpe", "nfkc", True, False),
        ("unigram", "none", False, True),
        ("unigram", "punctuation", True, False),
        ("word", "nfc", True, True),
        ("char", "none", False, True),
    ],
)
def test_vocabularies_split_and_join_alike(js: Engine, kind: str, form: str, lowercase: bool, fallback: bool) -> None:
    lines = [text for text in texts(60, seed=3) if text.strip()]
    vocabulary = Vocabulary.train(lines, kind, 420, fallback, form=form, lowercase=lowercase)
    given = [text.replace("\ud800", "") for text in texts(80, seed=4)]
    found = js.ask(vocabulary=plain(vocabulary), name="encode", each=[[text] for text in given])
    for text, ours in zip(given, found, strict=True):
        theirs = vocabulary.encode(text)
        assert ours == json.loads(json.dumps({**theirs._asdict(), "words": theirs.words})), (text, theirs)
    draw = random.Random(5)
    rows = [[draw.randrange(3, len(vocabulary)) for _ in range(draw.randrange(12))] for _ in range(80)]
    rows += [vocabulary.encode(text).ids for text in given]
    found = js.ask(vocabulary=plain(vocabulary), name="wordIndices", each=[[row] for row in rows])
    assert found == [vocabulary.words_of(row) for row in rows]
    found = js.ask(vocabulary=plain(vocabulary), name="tokenised", each=[[row] for row in rows])
    for row, ours in zip(rows, found, strict=True):
        theirs = vocabulary.tokenised(row)
        assert ours == json.loads(json.dumps({**theirs._asdict(), "words": theirs.words})), row


def test_unknown_words_are_copied_alike(js: Engine) -> None:
    """Without the blanks at their ends, which JavaScript's trim has other ones of."""
    draw, vocabulary = random.Random(13), Vocabulary.train(["a b c d e f"] * 9, "char", 12)
    blanks = ["\x1c", "\x85", "\ufeff", "\u2028", " ", "\u00a0", "\u200b", "x", "東"]
    calls, expected = [], []
    for _ in range(60):
        encoded = vocabulary.encode("".join(draw.choices(blanks, k=draw.randrange(1, 9))))
        ends = [sorted(draw.choices(range(len(encoded.text) + 1), k=2)) for _ in encoded.ids]
        encoded = encoded._replace(spans=[(start, end) for start, end in ends])
        ids = draw.choices((UNKNOWN, UNKNOWN, 5), k=3)
        weights = [[draw.choice((0.0, 0.25, 0.5)) for _ in encoded.ids] for _ in ids]
        calls.append([encoded._asdict(), ids, weights])
        expected.append(copy_unknown(encoded, ids, np.asarray(weights, np.float32), vocabulary, {}))
    assert js.ask(vocabulary=plain(vocabulary), name="copyUnknown", each=calls) == expected
    given = [f"a{blank * 2}" for blank in blanks]
    assert js.each("text", "stripEnd", [[text] for text in given]) == [text.rstrip() for text in given]


def test_texts_are_cut_at_the_same_places(js: Engine) -> None:
    draw = random.Random(12)
    words = ["the", "old", "cat", "sees,", "my", "house:", "NATO", "and", "I", "at", "noon"]
    lines = [" ".join(draw.choices(words, k=draw.randrange(1, 30))) + draw.choice((".", "")) for _ in range(40)]
    vocabulary = Vocabulary.train(lines, "bpe", 300)
    given = [text for line in lines for text in (line, line.upper(), f"{line}\n{line.upper()} {line}")]
    given += [f"{label}{rest}" for label in LABELS for rest in LABELLED]
    found = js.ask(vocabulary=plain(vocabulary), name="drafts", each=[[text, 12] for text in given])
    for text, ours in zip(given, found, strict=True):
        theirs = split(text, vocabulary.encode, 12)
        assert ours["cut"] == theirs.cut, text
        assert [
            (tuple(one["span"]), one["words"], one["recased"], one["encoded"]["ids"]) for one in ours["drafts"]
        ] == [(one.span, one.words, one.capitals, one.encoded.ids) for one in theirs.drafts if one.words], text


def test_pieces_become_the_same_cells(js: Engine) -> None:
    draw, calls, expected = random.Random(6), [], []
    for text in texts(300, seed=7):
        ends = sorted({*draw.choices(range(len(text) + 1), k=6), len(text)})
        words = [len(text[:start].split()) for start in (0, *ends[:-1])]
        spans = list(zip((0, *ends[:-1]), ends, strict=True))
        tokens = [
            Token(text[a:b].strip(BLANKS) or "_", text[a:b], a, b, word=word)
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
        if number % 25 == 0:
            yield "worth", look
            if model.translator.experiment.name == "transformer":
                yield "path", {**look, "t": 0}
                yield "path", {**look, "t": 1, "name": "encoder.0"}


def check_requests(js: Engine, model: TranslationModel, count: int, seed: int) -> None:
    wrong = []
    for method, body in requests(model, count, seed):
        ours, theirs = js.ask(model=model.id, method=method, body=body), in_python(model, method, body)
        if method == "explain" and body["name"].startswith("decoder") and "self" in body["name"]:
            # Python's forward pass also has what comes after step t, which the page does not show.
            ours, theirs = ({key: one[key] for key in ("query", "context", "output")} for one in (ours, theirs))
        if "occlusion" in body.get("by", ""):
            name = f"{body['by']} against {body['against']}" if "against" in body else body["by"]
            scores = theirs["attention"][name]["scores"]
            ours, theirs = (without_noise(one, name, scores) for one in (ours, theirs))
        # A temperature divides the scores, and the rounding in them.
        sharpest = min([1.0, *(one["value"] for one in body.get("changes", ()) if one["kind"] == "temperature")])
        found = differences(theirs, ours, close=CLOSE / sharpest)
        wrong += [(method, body, found)] if found else []
        print(method, body, found, flush=True)
    assert wrong == []


def test_traces_steps_and_what_ifs_are_those_of_python(js: Engine, models: dict[str, TranslationModel]) -> None:
    for model in models.values():
        check_requests(js, model, 6, seed=1)


def test_an_attribution_never_has_the_name_of_a_module(js: Engine) -> None:
    calls = [[own, "attention", None, [[1.0]], [[0]]] for own in ({"attention": {}}, {"decoder.attention": {}})]
    found = js.each("attribution", "asModule", calls)
    assert [(one["name"], one["method"]) for one in found] == [
        ("by attention", "attention"),
        ("attention", "attention"),
    ]


def test_of_equal_heads_the_first_is_chosen(js: Engine) -> None:
    cases = {
        ((0, 0.5), (0, 0.5)): 0,
        ((0, 0.5), (0, 0.5 + 1e-6)): 0,  # as on another machine
        ((0, 0.5 - 1e-6), (0, 0.5)): 0,
        ((0, 0.5), (0, 0.51)): 1,
        ((1, 0.9), (0, 0.1), (0, 0.2)): 2,  # a shifted head only if all are
        ((1, 0.3), (1, 0.3 + 1e-5)): 0,
    }
    given = [[[{"shift": shift, "weight": weight} for shift, weight in rated]] for rated in cases]
    assert js.each("drawn", "firstBest", given) == list(cases.values())
    assert [first_best(rated) for rated in cases] == list(cases.values())


def tree(*nodes: tuple[int | None, str, float, str]) -> dict[str, Any]:
    """A search tree of (parent, token, total, "kept", "pruned" or "finished")."""
    listed = [
        {"id": at, "parent": parent, "token": token, "logprob": total, "total": total, "score": total}
        | {"finished": fate == "finished", "pruned": fate == "pruned"}
        for at, (parent, token, total, fate) in enumerate(nodes)
    ]
    return {"beam": {"size": 1, "nodes": listed}, "translations": []}


def test_the_comparison_sees_what_differs() -> None:
    def scores(*values: float) -> dict[str, Any]:
        return dict(json.loads(write({"scores": np.asarray(values, np.float32)})))

    assert differences(scores(0.3, 300), scores(0.3, 300.002)), "1e-4 and four millionths of 300"
    assert not differences(scores(0.3, 300), scores(0.3, 300.001))
    assert differences(scores(0.3, 0.7), scores(0.3, 0.7002))
    assert differences({"logprob": -3.0}, {"logprob": -3.001})
    ranked = [{"text": "a", "logprob": -1.0}, {"text": "b", "logprob": -1.00001}, {"text": "c", "logprob": -2.0}]
    assert not differences({"topk": ranked}, {"topk": [ranked[1], ranked[0], ranked[2]]}), "equal up to rounding"
    assert differences({"topk": ranked}, {"topk": [ranked[0], ranked[2], ranked[1]]})
    assert differences({"topk": ranked}, {"topk": [*ranked[:2], {"text": "d", "logprob": -2.1}]})
    close = tree((None, "a", -1.0, "kept"), (None, "b", -1.00001, "pruned"), (0, "c", -2.0, "finished"))
    assert not differences(
        close, tree((None, "b", -1.0, "kept"), (None, "a", -1.00001, "pruned"), (0, "d", -3.0, "kept"))
    )
    assert differences(
        close, tree((None, "a", -1.0, "kept"), (None, "b", -1.00001, "pruned"), (0, "c", -2.1, "finished"))
    )
    far = tree((None, "a", -1.0, "kept"), (None, "b", -1.5, "pruned"))
    assert differences(far, tree((None, "b", -1.5, "kept"), (None, "a", -1.0, "pruned")))


def test_translations_are_those_of_python(js: Engine, models: dict[str, TranslationModel]) -> None:
    given = ["ba da fo", "lu me ko. ba", "ba " * 60 + "da", "qq ba", "BA DA", "ba\nda", "Je ne sais pas. Wo ist das?"]
    for model in models.values():
        for text in given:
            for beam in (1, 5):
                ours = js.ask(model=model.id, method="translate", body={"text": text, "beam": beam})
                theirs = model.translator.translate(text, beam=beam)
                assert ours["text"] == theirs.text
                assert (ours["flags"], ours["notes"]) == (theirs.flags, theirs.notes), text
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


def test_a_trace_that_is_too_large_is_refused_as_by_the_server(js: Engine, models: dict[str, TranslationModel]) -> None:
    body = {"text": "ba " * 900, "target": "ba " * 900}
    sentence = r"The attention of this trace has \d+ numbers, more than 4194304; "
    with pytest.raises(EngineError, match=sentence):
        js.ask(model="transformer-reverse", method="look", body=body)
    with pytest.raises(RefusedError, match=sentence):
        in_python(models["transformer-reverse"], "look", body)


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


def test_a_run_that_the_page_cannot_search_is_refused(tmp_path: Path) -> None:
    run = trained("bahdanau", "model.attention=24", "model.readout=24", "decode.coverage_penalty=0.2", steps=4)
    with pytest.raises(ConfigError, match=r"decode\.coverage_penalty = 0\.2, which the page without a server does not"):
        describe_model(run, tmp_path)


def test_a_model_that_attends_while_it_reads_is_refused(tmp_path: Path) -> None:
    run = trained("lstmn", "model.spread=0.1", steps=2)
    with pytest.raises(ConfigError, match="LSTMN cannot be shown on the page without a server"):
        describe_model(run, tmp_path)


# --- the included models and other kinds, which take minutes

SENTENCES = [
    "The red door of the white house is not open.",
    "Where is the station?",
    "She did not sign the agreement on the European Economic Area.",
]
ENGLISH = {
    "nouns": ["the man", "the woman", "a child", "my house", "the old cat", "this book", "our car", "the report"],
    "verbs": ["sees", "likes", "does not want", "has never had", "will open", "cannot find", "has lost", "sells"],
    "places": ["in the old town", "near the sea", "on Monday", "at 10:30", "in 1992", "with 25 others", "for $100"],
    "joins": [" and ", ", but ", " because "],
}
FRENCH = {
    "nouns": ["l'homme", "la femme", "un enfant", "ma maison", "le vieux chat", "ce livre", "la voiture", "le rapport"],
    "verbs": ["voit", "aime", "ne veut pas", "n'a jamais eu", "ouvrira", "ne trouve pas", "a perdu", "vend"],
    "places": [
        "dans la vieille ville",
        "près de la mer",
        "lundi",
        "à 10 h 30",
        "en 1992",
        "avec 25 autres",
        "pour 100 €",
    ],
    "joins": [" et ", ", mais ", " parce que "],
}


def sentences(count: int, words: dict[str, list[str]]) -> list[str]:
    """Sentences of four to forty words, most of them short, some of them in capitals."""
    draw, found = random.Random(9), []
    for number in range(count):
        clauses = [
            " ".join(draw.choice(words[kind]) for kind in ("nouns", "verbs", "nouns", "places"))
            for _ in range(4 if number % 50 == 49 else 2 if number % 6 == 5 else 1)
        ]
        text = draw.choice(words["joins"]).join(clauses)
        text = text[0].upper() + text[1:]
        found.append(text.upper() + "." if number % 9 == 0 else text + draw.choice((".", "?", "!", "")))
    return found


INCLUDED = ["en-fr-transformer", "en-fr-bahdanau", "en-fr-cho", "fr-en"]


def included(name: str) -> Path:
    return next(folder for folder in shipped().values() if folder.name == name)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))  # a minute or two each
@pytest.mark.parametrize("name", INCLUDED)
def test_every_included_model_translates_200_sentences_as_in_python(name: str, part: int, tmp_path: Path) -> None:
    model, wrong = served(included(name)), list[str]()
    given = sentences(200, FRENCH if name == "fr-en" else ENGLISH)[50 * part : 50 * part + 50]
    best, greedy = model.translator.translate(given), model.translator.translate(given[::4], beam=1)
    with engine(built([included(name)], tmp_path / "site")) as js:
        for number, text in enumerate(given):
            print(number, text, wrong[-1:], flush=True)  # pytest -s shows how far it is
            pairs = [(best[number], None), *([(greedy[number // 4], 1)] if number % 4 == 0 else [])]
            for theirs, beam in pairs:
                ours = js.ask(model=name, method="translate", body={"text": text, "beam": beam})
                if (ours["text"], ours["notes"]) != (theirs.text, theirs.notes):
                    wrong.append(f"{text}: {theirs.text} {theirs.notes}, not {ours['text']} {ours['notes']}")
            body = {"text": text, "tree": True}
            found = differences(in_python(model, "look", body), js.ask(model=name, method="look", body=body))
            wrong += [f"{text}{line}" for line in found]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("name", INCLUDED)
def test_fifty_what_ifs_of_every_included_model_are_those_of_python(name: str, part: int, tmp_path: Path) -> None:
    with engine(built([included(name)], tmp_path / "site")) as js:
        check_requests(js, served(included(name)), 25, seed=part)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("rnnencdec", ["model.readout=24"]),
        ("luong", ["model.score=general"]),
        ("luong", ["model.window=local-p", "model.half_width=2"]),
        ("coverage", ["model.attention=24"]),
        ("pointer", ["model.attention=24", "data.joint=true"]),
        ("pointer", ["model.attention=24", "data.joint=true", "model.shortlist=8"]),
        ("britz", ["model.attention=24", "data.subwords=unigram"]),
        ("sutskever", ["model.layers=2"]),
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
