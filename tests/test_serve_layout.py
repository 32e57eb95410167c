"""Texts into sentences and back: nothing is lost, tags stay as they are, and time grows with the text and no faster."""

import random
from collections.abc import Iterator

import pytest

from regard.files.html import read
from regard.files.segment import Link, Part, Segment
from regard.serve.layout import Layout, read_plain, split_file, split_texts
from regard.serve.limits import RefusedError
from regard.serve.queue import TranslatedText

PIECES = [
    "<p>", "</P>", "<Term id='a>b'>", "</term>", "<br/>", "<!-- <b> -->", "<![CDATA[ x < y ]]>", "<script>a<b</script>",
    "<STYLE>p {}</STYLE>", "<?xml v?>", "<!DOCTYPE html>", "ba da", " lu\n", "\u00a0", "3 < 4", "it's", '"', "'", "=",
    ">", "&lt;", "&amp;", "<![%x;", "<a b=", "</", "<", "<1", "\u3000fo. Me ko! ", "。", "x='",
]  # fmt: skip


def plain(text: str, line: int = 500) -> Layout:
    return Layout(read_plain(text), line)


def marked(text: str, line: int = 500) -> Layout:
    return Layout(read(text), line)


def again(layout: Layout) -> str:
    return layout.write([TranslatedText(sentence) for sentence in layout.sentences])


def test_what_is_taken_apart_is_put_together_again() -> None:
    draw = random.Random(1)
    for _ in range(2000):
        text = "".join(draw.choices(PIECES, k=draw.randint(0, 12)))
        assert again(plain(text, 7)) == text
        assert again(marked(text, 7)) == text
        for layout in (plain(text, 7), marked(text, 7)):
            assert all(0 < len(one) <= 7 and one == one.strip(" ") for one in layout.sentences)


def test_tags_keep_their_case_and_their_attributes() -> None:
    text = "<Term Id='A > B'>ba</Term> <br/><SCRIPT>ba</SCRIPT><i>da</I> <![CDATA[fo]]><!-- lu -->&lt;me"
    layout = marked(text)
    assert layout.sentences == ["ba", "da <me"]
    links = (Link((0, 2), (0, 2)), Link((3, 6), (3, 6)))
    written = layout.write([TranslatedText("BA"), TranslatedText("DA <ME", links=links)])
    assert written == text.replace(">ba</T", ">BA</T").replace("da", "DA").replace("me", "ME")


@pytest.mark.parametrize("text", ["<![%x;", "<![", "<!", "<?", "<!--", "<script>x", "<a b='x", "&#" + "9" * 5000 + ";"])
def test_what_is_never_closed_is_kept(text: str) -> None:
    assert again(marked(text)) == text


def test_spans_and_links_are_code_points() -> None:
    text = " ba da\nfo. " + "lu me. " * 5
    layout = plain(text, 20)
    assert [text[slice(*span)] for span in layout.spans] == layout.sentences
    longer = [
        TranslatedText(f"{one}!", links=(Link((0, 2), (0, 2), 0.5), Link((0, 1), (0, 1)))) for one in layout.sentences
    ]
    joined, links = layout.write(longer), layout.links(longer)
    assert len(links) == len(longer), "one without a weight is not by attention"
    assert all(joined[slice(*link.target)] == text[slice(*link.source)] for link in links)


def test_a_long_line_is_cut_after_sentences_else_between_words_else_anywhere() -> None:
    assert plain("ba da. fo lu me", 12).sentences == ["ba da.", "fo lu me"]
    assert plain("ba da fo lu me", 12).sentences == ["ba da", "fo lu me"], "in parts of about equal size"
    assert plain("badafolume", 4).sentences == ["bada", "folu", "me"]
    assert plain("你好。我们走吧。", 5).sentences == ["你好。", "我们走吧。"]


SIZE = 1 << 15


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<a", "<a b=", "<a b='", "</", "<![", "<![CDATA[", "<?", "<!", "<script>", "&", "&#", " x='", "<a x='>",
     "<b>", " ", "a ", "a\n", ". ", "\u00a0", "=\"'>", "<a x=\">\"'"],
)  # fmt: skip
def test_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    """It takes a second or so; if the time grew with the square it would take many minutes."""
    text = "a" + piece * (SIZE // len(piece)) + "a"
    assert again(plain(text)) == text
    marked(text)
    marked("<script>" + text)
    marked("<b x='" + text + ">")


def test_a_text_or_file_is_read_no_further_than_its_limit() -> None:
    taken = []

    def parts(text: str) -> Iterator[Part]:
        for number in range(99):
            taken.append(number)
            yield Segment("...", (), "...") if number % 2 else Segment("ba", (), "ba")  # only every second has words

    with pytest.raises(RefusedError, match="too many lines or sentences"):
        split_texts(["x"], parts, 500, 7)
    assert len(taken) == 15
    taken.clear()
    with pytest.raises(RefusedError, match="too many lines or sentences"):
        split_texts(["Ba da.\nDa ba.", "x"], lambda text: read_plain(text) if text != "x" else parts(text), 500, 7)
    assert len(taken) == 11, "the sentences of all texts"
    for name in ("x.md", "x.html", "x.srt", "x.po", "x.xlf"):
        unit = {"po": 'msgid "ba{}"\nmsgstr ""\n\n', "srt": "{}\n00:00:01,000 --> 00:00:02,000\nBa.\n\n"}
        unit |= {
            "md": "ba {}\n\n",
            "html": "<p>ba {}</p>",
            "xlf": "<trans-unit id='{}'><source>ba</source></trans-unit>",
        }
        text = "".join(unit[name[2:]].format(number) for number in range(9))
        text = f"<xliff version='1.2'><file><body>{text}</body></file></xliff>" if name == "x.xlf" else text
        assert len(split_file(text.encode(), name, 0, 500, 9).sentences) == 9, name
        with pytest.raises(RefusedError, match="too many lines or sentences") as refused:
            split_file(text.encode(), name, 0, 500, 8)
        assert refused.value.status == 413
