"""Looking at documents: the weights of both levels in their places, the trace, and the drawings of it."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from weights_of import spread

from regard.data.documents import make_set, split_document
from regard.errors import ConfigError, DataError
from regard.look.documents import DocumentTrace, DocumentWeights, SeenSentence, look_at
from regard.look.palette import mix, paint, palette
from regard.models.document import DocumentClassifier, DocumentConfig

CONFIG = DocumentConfig(vocabulary=23, classes=3, embedding=5, width=4, attention=6)
DOCUMENTS = [[[5, 7, 4], [9, 6, 8, 11, 4, 5, 21, 3, 17], [12]], [], [[4, 4]], [[20, 19], [], [3, 5, 7, 9, 11]]]
TEXT = "A dull start. But the end, the end was good!"


def make(pooling: str = "attention") -> DocumentClassifier:
    torch.manual_seed(2)
    return spread(DocumentClassifier(replace(CONFIG, pooling=pooling)))  # type: ignore[return-value]


def trace(text: str = TEXT) -> DocumentTrace:
    spans = split_document(text, 100)
    words = [[(k + 1) / (len(row) * (len(row) + 1) / 2) for k in range(len(row))] for row in spans]
    weights = DocumentWeights([0.25, 0.75] if len(spans) == 2 else [1 / len(spans)] * len(spans), words)
    return DocumentTrace.of(text, spans, weights, {"bad": 0.2, "good": 0.8})


def test_the_weights_of_many_documents_are_those_of_each_alone():
    model = make()
    documents = make_set(DOCUMENTS, [0] * 4)
    logits, weights = look_at(model, *documents.batch(range(4))[:3])
    assert torch.equal(logits, model(*documents.batch(range(4))[:3]))
    for k, document in enumerate(DOCUMENTS):
        seen = weights[k]
        assert [len(words) for words in seen.words] == [len(sentence) for sentence in document]
        assert all(sum(words) == pytest.approx(1) for words in seen.words if words)
        assert sum(seen.sentences) == pytest.approx(1 if document else 0)
        alone = look_at(model, *documents.batch([k])[:3])[1][0]
        assert alone.sentences == pytest.approx(seen.sentences)
    assert weights[3].sentences[1] == 0
    assert weights[3].words[1] == []


def test_the_average_attends_uniformly_and_the_maximum_not_at_all():
    batch = make_set(DOCUMENTS, [0] * 4).batch([0])[:3]
    assert look_at(make("average"), *batch)[1][0].sentences == pytest.approx([1 / 3] * 3)
    for act in (trace().to_html, trace().to_terminal):
        with pytest.raises(ConfigError, match="'widht'"):
            act(widht=50)
    with pytest.raises(ConfigError, match="'maximum' has no attention"):
        look_at(make("maximum"), *batch)


def test_a_trace_holds_spans_of_its_text_and_comes_back_from_json():
    seen = trace()
    assert [TEXT[s.start : s.end] for s in seen.sentences] == ["A dull start.", "But the end, the end was good!"]
    assert [TEXT[a:b] for a, b, _ in seen.sentences[0].words] == ["A", "dull", "start", "."]
    assert DocumentTrace.from_json(seen.to_json()) == seen
    assert seen.sentences[1].shades()[0] == pytest.approx(seen.sentences[1].words[0][2] * math.sqrt(0.75))
    for text in ("{}", "[]", "nothing", '{"document_trace": 2}'):
        with pytest.raises(DataError):
            DocumentTrace.from_json(text)
    with pytest.raises(DataError, match="outside its text"):
        DocumentTrace("ab", (SeenSentence(0, 5, 1.0, ()),), {})


def test_the_page_shows_every_word_once_and_the_darkest_is_the_largest(tmp_path):
    page = trace().to_html()
    words = re.findall(r'<span class="w(\d+)" title="[\d.]+">([^<]*)</span>', page)
    assert [word for _, word in words] == [
        "A",
        "dull",
        "start",
        ".",
        "But",
        "the",
        "end",
        ",",
        "the",
        "end",
        "was",
        "good",
        "!",
    ]
    levels = [int(level) for level, _ in words]
    shades = [shade for sentence in trace().sentences for shade in sentence.shades()]
    assert max(levels) == 15
    assert levels.index(15) == shades.index(max(shades))
    assert "75</td>" in page
    assert trace().draw(tmp_path / "d.html").read_text(encoding="utf-8") == page
    with pytest.raises(ConfigError, match=r"end in \.png, \.svg, \.pdf or \.html; got 'd\.txt'"):
        trace().draw(tmp_path / "d.txt")


def test_a_terminal_marks_words_by_their_share_of_the_largest_shade():
    words = tuple((2 * at, 2 * at + 1, weight) for at, weight in enumerate((1.0, 0.5, 0.25, 0.2, 0.0)))
    seen = DocumentTrace("a b c d e", (SeenSentence(0, 9, 1.0, words),), {"good": 1.0})
    assert "100  **a** **b** *c* d e\n" in seen.to_terminal(colour=False)
    coloured = seen.to_terminal(colour=True)
    for word, level in {"a": 15, "b": 8, "c": 4, "d": 3, "e": 0}.items():
        assert paint(word, palette("blue"), level / 15) in coloured


def test_a_still_picture_has_every_word_on_its_shade_and_the_weight_of_each_sentence(tmp_path):
    drawn = ElementTree.parse(trace().draw(tmp_path / "d.svg", title="Two sentences"))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    words = [TEXT[start:end] for one in trace().sentences for start, end, _ in one.words]
    assert [text for text in texts if text in words] == words
    assert texts[0] == "Two sentences: good 0.800   bad 0.200"
    assert [text for text in texts if text in ("25", "75")] == ["25", "75"]
    svg = (tmp_path / "d.svg").read_text(encoding="utf-8")
    assert svg.count(f"#{bytes(mix(palette('blue'), 1.0)).hex()}") == 1, "one darkest word"
    assert trace().draw(tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    long = trace("word " * 300 + ".")
    right = max(float(one.get("x", 0)) for one in ElementTree.parse(long.draw(tmp_path / "l.svg")).iter())
    assert right < 600, "a long sentence is wrapped"


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>. </style></title>! \"'><img src=x onerror=alert(1)>?",
        "A\x00B \u202eabc. \ud800 \ufdd0! ‮ x",
        "<!--. ]]>. &lt;b&gt;. javascript:alert(1).",
    ],
)
def test_no_text_breaks_out_of_the_page(text: str):
    spans = split_document(text, 100)
    weights = DocumentWeights([1 / len(spans)] * len(spans), [[1 / len(row)] * len(row) for row in spans])
    seen = DocumentTrace.of(text, spans, weights, {"<b>": 1.0})
    page = seen.to_html(title=text)
    page.encode("utf-8")
    tags = set(re.findall(r"<\s*(/?\w+)", page))
    assert {tag.lstrip("/") for tag in tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "ul", "li", "b", "bdi", "table", "tr", "td", "span",
        "p",
    }  # fmt: skip
    assert "<b>" not in page.replace("<b><bdi>", "")
    assert not re.search("[\x00\u202e]", page)
    assert "default-src 'none'" in page
    seen.to_terminal().encode("utf-8")
    assert "\x1b[" not in seen.to_terminal(colour=False)


def test_the_style_is_the_one_that_is_allowed():
    import base64
    import hashlib

    page = trace().to_html()
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page
    assert "style=" not in page


def test_a_terminal_shows_the_words_in_lines_that_fit():
    plain = trace().to_terminal(width=80, colour=False)
    assert plain.startswith("good 0.800  bad 0.200\n")
    assert " 75  " in plain
    assert "**!**" in plain
    assert plain.endswith("**word** has at least half of the largest, *word* a quarter.\n")
    coloured = trace().to_terminal(width=40, colour=True)
    assert coloured.split("\n\n")[2].startswith("The number beside a sentence")
    shown, expected = (one.split("\n\n")[1] for one in (coloured, plain))
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).split() == expected.replace("*", "").split()
    long = trace("Word " * 200 + ".")
    assert (
        max(len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", long.to_terminal(width=60, colour=True)).split("\n"))
        <= 60
    )
    with pytest.raises(ConfigError, match="at least 40 columns"):
        trace().to_terminal(width=10)


def test_a_document_without_words_can_be_drawn():
    empty = DocumentTrace("", (), {"a": 0.5, "b": 0.5})
    assert "<table>" in empty.to_html()
    assert empty.to_terminal()


def test_a_page_of_a_long_document_takes_linear_time():
    text = "One two three. " * 5_000
    spans = split_document(text, 100)
    weights = DocumentWeights([1 / len(spans)] * len(spans), [[1 / len(row)] * len(row) for row in spans])
    page = DocumentTrace.of(text, spans, weights, {"a": 1.0}).to_html()
    assert page.count("<tr") == 5_000
