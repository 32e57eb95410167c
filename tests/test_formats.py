"""Files come back byte for byte where nothing was translated, and every tag once and around the right words."""

import random
import re
from collections.abc import Callable

import polib
import pytest
from lxml import etree

from regard.errors import DataError
from regard.files.document import Document, find_format, read_document
from regard.files.html import read as read_html
from regard.files.place import Fragment, place_tags, space_breaks, spell
from regard.files.segment import (
    Aligned,
    Link,
    Review,
    Segment,
    Sentence,
    Tag,
    find_placeholders,
    join_sentences,
    protect,
    take_sentences,
)
from regard.text.sentences import split_words

WORDS = ["ba", "da fo", "lu.", "Me ko!", "été", "漢字。", "I", "%s", "%d", "{name}", "{{ x }}", "it's",
         "{n, plural, one {# a} other {# b}}", "&amp;", "3 < 4", "\u00a0", "x_y", "a*b", "100 %", "\\*",
         "“q”"]  # fmt: skip
PIECES = {
    "html": ["<p>", "</P>", "<b class='a>b'>", "</b>", "<i>", "</i>", "<br/>", "<!-- <b> -->", "<script>a<b</script>",
             "<pre>x <b>", "</pre>", "<code>ls</code>", "<a href=x>", "</a>", "<img src=y>", "</", "<", "=", '"', "\n",
             "<span translate=no>no</span>", "<![CDATA[ x ]]>", "&lt;", "&#233;", "  "],
    "md": ["\n", "\n\n", "# ", "- ", "* ", "1. ", "> ", "```\n", "**", "*", "_", "__", "`", "[", "](u)", "![", "]",
           "<b>", "</b>", "<div>\n", "| ", "|---|\n", "  \n", "    ", "\\", "---\n", "https://a.b/c", "~~",
           "[x]: y\n", "\t"],
    "srt": ["1\n", "00:00:01,000 --> 00:00:02,000\n", "\n", "\r\n", "<i>", "</i>", "{\\an8}", "- ", " "],
    "vtt": ["WEBVTT\n", "00:01.000 --> 00:02.000\n", "\n", "\r\n", "<v Al>", "</v>", "<c.x>", "</c>", "- ", " ",
            "NOTE x\n\n", "ba\n\n2\n00:00:01.000 --> 00:00:02.000\nda"],
    "txt": ["\n", "\r\n", " ", "\t", "\n\n", "\x85", "\u2028"],
}  # fmt: skip


def unchanged(document: Document) -> bytes:
    """The original file, from the parts of a document."""
    return document.encode("".join(one if isinstance(one, str) else one.wrap(one.inner) for one in document.parts))


def drawn(kind: str, number: int) -> str:
    draw = random.Random(f"{kind}{number}")
    return "".join(
        draw.choice(draw.choice((WORDS, PIECES[kind]))) + draw.choice(("", " ")) for _ in range(draw.randint(0, 30))
    )


@pytest.mark.parametrize("kind", PIECES)
def test_the_identity_gives_back_every_byte(kind: str) -> None:
    translated = 0
    for number in range(150):
        data = drawn(kind, number).encode()
        document = read_document(data, f"x.{kind}")
        assert unchanged(document) == data
        found = [place_tags(one, identity(one)) for one in document.segments]
        assert document.write(found) == data
        translated += len(found)
    assert translated > (20 if kind in ("srt", "vtt") else 150)


def identity(segment: Segment) -> Aligned:
    spans = take_sentences(segment.text, 50)
    return join_sentences(segment.text, spans, [Sentence(segment.text[slice(*span)]) for span in spans])


def shuffled(segment: Segment, draw: random.Random) -> Aligned:
    """A translation with its words in another order, some twice and some missing, each linked with its source."""
    spans = take_sentences(segment.text, 80)
    written = []
    for start, end in spans:
        words = split_words(segment.text, (start, end))
        chosen = draw.choices(words, k=draw.randint(0, len(words) + 1)) if words else []
        text, links = "", []
        for a, b in chosen:
            text += " " if text else ""
            at = len(text)
            text += segment.text[a:b].upper()
            if draw.random() < 0.8:
                links.append(Link((a - start, b - start), (at, len(text))))
        written.append(Sentence(text + "~", tuple(links)))
    return join_sentences(segment.text, spans, written)


@pytest.mark.parametrize("kind", PIECES)
def test_every_tag_comes_back_once_and_well_nested(kind: str) -> None:
    draw = random.Random(kind)
    tags = 0
    for number in range(150):
        for segment in read_document(drawn(kind, number).encode(), f"x.{kind}").segments:
            numbered = (t._replace(raw=f"\x00{n}\x01") for n, t in enumerate(segment.tags))
            marked = segment._replace(escape=lambda text: text, inner="", tags=tuple(numbered))
            translation = shuffled(segment, draw)
            written = place_tags(marked, translation)
            found = [int(n) for n in re.findall("\x00(\\d+)\x01", written)]
            # Words in are words out, whatever the tags do.
            assert "".join(re.sub("\x00\\d+\x01", "", written).split()) == "".join(translation.text.split())
            assert sorted(found) == list(range(len(segment.tags)))
            stack = []
            for n in found:
                if segment.tags[n].kind == "open":
                    stack.append(segment.tags[n].partner)
                elif segment.tags[n].kind == "close":
                    assert stack.pop() == n
                    assert segment.tags[segment.tags[n].partner].partner == n
            for kind_of in ("argument",):
                ordered = [n for n in found if segment.tags[n].kind == kind_of]
                assert ordered == sorted(ordered)
            tags += len(found)
    assert tags > 40


def one(text: str, kind: str = "html") -> Segment:
    (segment,) = read_document(text.encode(), f"x.{kind}").segments
    return segment


def aligned(segment: Segment, target: str, links: str, put: Callable[[Segment, Aligned], str] = place_tags) -> str:
    """`links` are source-target pairs of words, from 0."""
    read, wrote = (split_words(text, (0, len(text))) for text in (segment.text, target))
    pairs = [pair.split("-") for pair in links.split()]
    spans = tuple(Link(read[int(a)], wrote[int(b)]) for a, b in pairs)
    return put(segment, join_sentences(segment.text, [(0, len(segment.text))], [Sentence(target, spans)]))


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("the <b>black</b> cat .", "le chat noir .", "0-0 2-1 1-2 3-3", "le chat <b>noir</b> ."),
        ("the <b>black cat</b> .", "le chat noir .", "0-0 2-1 1-2 3-3", "le <b>chat noir</b> ."),
        ("<i>the <b>black</b> cat</i> .", "le chat noir .", "0-0 2-1 1-2 3-3", "<i>le chat <b>noir</b></i> ."),
        ("<b>it is so .</b>", "c' est ainsi !", "", "<b>c' est ainsi !</b>"),
        ("I do <b>not</b> know", "je ne sais pas", "0-0 2-1 3-2 2-3", "je <b>ne sais pas</b>"),
        ("you have %d new files in %s.", "vous avez nouveaux fichiers dans.", "0-0 1-1 2-2 3-3 4-4 5-5",
         "vous avez %d nouveaux fichiers dans %s."),
        ("write to a.b+c@d-e.org (or www.f.org/g?h=%20i).", "écrivez à (ou).", "0-0 1-1 2-2 3-3 4-4 5-5",
         "écrivez à a.b+c@d-e.org (ou www.f.org/g?h=%20i)."),
        ("{a} of {b} x", "x de", "0-1 1-0", "{a} {b} x de"),
        ("press <kbd>x</kbd> now", "maintenant appuyez", "0-1 1-0", "<kbd>x</kbd> maintenant appuyez"),
        ("a<b></b> c", "A C", "0-0 1-1", "A <b></b>C"),
        # A pair whose words are lost stays outside of another pair.
        ("a <b>lost words</b> c <i>d</i>", "d d a d d", "4-0 4-1 0-2 4-3 4-4", "<b></b><i>d d a d d</i>"),
        ("<b>%s cats</b> and %d dogs", "dogs and cats", "0-2 1-1 2-0", "%s dogs and <b>%d cats</b>"),
        ("Usage: %prog and %default", "Emploi : et", "0-0 1-1 2-2", "Emploi : %prog et %default"),
        # Around a word even if it is only punctuation.
        ("<b>stop</b> now", "! maintenant", "0-0 1-1", "<b>!</b> maintenant"),
        # Before the punctuation that closes the sentence, and not behind it.
        ("go on <img>.", "allez-y !", "0-0", "allez-y <img> !"),
        ("3 &lt; 4 <b>x</b>", "3 < 4 y", "0-0 1-1 2-2 3-3", "3 &lt; 4 <b>y</b>"),
    ],
)  # fmt: skip
def test_tags_go_around_the_words_that_belong_together(source: str, target: str, links: str, expected: str) -> None:
    assert aligned(one(source), target, links) == expected


def spanned(source: str, target: str, *pairs: tuple[str, str]) -> str:
    """As `aligned`; the links are parts of the texts."""
    segment = one(source)
    links = tuple(
        Link((segment.text.index(a), segment.text.index(a) + len(a)), (target.index(b), target.index(b) + len(b)))
        for a, b in pairs
    )
    return place_tags(segment, join_sentences(segment.text, [(0, len(segment.text))], [Sentence(target, links)]))


def test_words_in_between_that_belong_elsewhere_stay_outside() -> None:
    assert aligned(one("<b>not</b> w x y"), "ne W X Y pas", "0-0 1-1 2-2 3-3 0-4") == "<b>ne</b> W X Y pas"


def test_an_elided_word_belongs_to_the_next_one() -> None:
    links = ("really", "vraiment"), ("not", "n'"), ("have", "ai")
    assert spanned("<b>really not</b> have", "vraiment n'ai", *links) == "<b>vraiment</b> n'ai"
    assert spanned("<b>really not</b> have", "vraiment n' ai", *links) == "<b>vraiment n'</b> ai"
    assert (
        spanned("<b>the</b> friend", "l'ami", ("the", "l'"), ("friend", "ami")) == "<b>l'</b>ami"
    )  # nothing else is left
    assert spanned("really not {x} have", "vraiment n'ai", *links) == "vraiment {x} n'ai"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("abc<b>de</b>fghi xyz", "<b>UN</b> DEUX"),  # a part of a word
        ("abcdefg<b>hi xyz</b>", "UN <b>DEUX</b>"),  # less than half of the first word
        ("abcd<b>efgh xyz</b>", "<b>UN DEUX</b>"),  # half of it
    ],
)
def test_tags_within_words_go_around_whole_words(source: str, expected: str) -> None:
    first = re.sub("</?b>", "", source).split()[0]
    assert spanned(source, "UN DEUX", (first, "UN"), ("xyz", "DEUX")) == expected


def test_a_single_tag_stays_on_its_side_of_a_pair() -> None:
    pair = (("a", "A"), ("c", "C"), ("b", "B"))
    assert spanned("<b>a b</b> <img>c", "A C B", *pair) == "<b>A C B</b> <img>"
    assert spanned("d <img>c <b>a b</b>", "D A C B", ("d", "D"), *pair) == "D <img> <b>A C B</b>"


def test_a_page_and_its_translation_memory_have_a_placeholder_in_the_same_place() -> None:
    answer = (one("<b>see {name}</b> now"), "maintenant voyez", "0-1 1-0")
    assert aligned(*answer) == "maintenant <b>{name} voyez</b>"
    assert aligned(*answer, spell) == "maintenant {name} voyez"


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("Hello, %s!", "Bonjour~!", "0-0 2-1", "Bonjour %s~!"),
        ("Do you want %s?", "Veux-tu\u202f?", "2-0 2-2 3-3", "Veux-tu %s\u202f?"),
        ("Visit https://example.org/?a=b!", "Visitez~!", "0-0 1-1", "Visitez https://example.org/?a=b~!"),
        ("Hello, <code>{name}</code>!", "Bonjour~!", "0-0 2-1", "Bonjour <code>{name}</code>~!"),
        ("Call {name} <b>now</b>!", "Appelez maintenant~!", "0-0 1-1 2-2", "Appelez {name} <b>maintenant</b>~!"),
        ("The station<img>?", "La gare~?", "0-0 1-1 2-2", "La gare<img>~?"),
        ("<b>%s: none</b>", ": rien", "0-0 1-1", "<b>%s: rien</b>"),
        ("Wait <b>%s!</b>", "Attends~!", "0-0 1-1", "Attends <b>%s~!</b>"),
        ("Wait <i><b>{n}!</b></i>", "Attends~!", "0-0 1-1", "Attends~<i><b>{n}!</b></i>"),
        # No space where the translation has none, and that of a word stays before it.
        ("Hello, %s!", "Hallo!", "0-0 2-1", "Hallo %s!"),
        ("Bonjour, %s~!", "Hello!", "0-0 2-1", "Hello %s!"),
        ("Voulez-vous %s ?", "Do you want?", "0-0 1-1 2-2 3-3", "Do you want %s?"),
        ("Wait for {n} seconds!", "Attendez~deux~secondes~!", "0-0 2-2", "Attendez~deux~{n} secondes~!"),
        ("He said “%s yes”.", "Il a dit «~oui~».", "0-0 1-1 1-2 3-4 4-5", "Il a dit «~%s oui~»."),
    ],
)  # fmt: skip
def test_the_space_before_a_mark_stays_at_the_mark(source: str, target: str, links: str, expected: str) -> None:
    """As written by the model: French has a no-break space (~ here) before some marks."""
    segment = one(source.replace("~", "\u00a0"))
    placed = aligned(segment, target.replace("~", "\u00a0"), links)
    assert placed == expected.replace("~", "\u00a0")


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("See <b>{name}</b> now", "Voir maintenant", "0-0 1-1", "Voir <b>{name}</b> maintenant"),
        ("Is it <i>the <b>%s</b></i>?", "Ist das?", "0-0 1-1 3-2", "Ist das <i><b>%s</b></i>?"),
        ("See <b>{a}</b> and {b}.", "Voir et.", "0-0 1-1 2-2", "Voir <b>{a}</b> et {b}."),
        ("Visit <a>https://e.org</a>, and go", "Visitez, et allez", "0-0 1-1 2-2 3-3",
         "Visitez <a>https://e.org</a>, et allez"),
    ],
)  # fmt: skip
def test_a_pair_around_a_placeholder_is_where_the_placeholder_was(
    source: str, target: str, links: str, expected: str
) -> None:
    """Before the mark that follows it, and between the spaces."""
    assert aligned(one(source), target, links) == expected


def test_arguments_without_a_name_keep_their_order() -> None:
    segment = one("%s gives %d x to <b>%i y</b>")
    assert [tag.kind for tag in segment.tags] == ["argument", "argument", "open", "argument", "close"]
    found = aligned(segment, "y to x gives", "0-3 1-2 2-1 3-0")
    assert re.findall("%.", found) == ["%s", "%d", "%i"]


PO = r"""# A comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: fr\n"

#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open \"%s\" now"
msgstr ""

msgid ""
"One line\n"
"and another."
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "Old words"
msgstr "Vieux"

msgid "Done"
msgstr "Fait"

#~ msgid "Gone"
#~ msgstr ""
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_po_is_filled_and_nothing_else_changes(ending: str, tmp_path) -> None:
    data = PO.replace("\n", ending).encode()
    document = read_document(data, "app.po")
    assert [segment.text for segment in document.segments] == [
        "Open now", "One line", "and another.", "file", "files", "Old words",
    ]  # fmt: skip
    written = document.write(
        [segment.inner.upper().replace("%D", "%d").replace("%S", "%s") for segment in document.segments]
    )
    (tmp_path / "app.po").write_bytes(written)
    found = polib.pofile(str(tmp_path / "app.po"))
    by_text = {entry.msgid: entry for entry in found}
    assert by_text['Open "%s" now'].msgstr == 'OPEN "%s" NOW'
    assert by_text["One line\nand another."].msgstr == "ONE LINE\nAND ANOTHER."
    assert by_text["%d file"].msgstr_plural == {0: "%d FILE", 1: "%d FILES"}
    assert by_text["Old words"].msgstr == "OLD WORDS"
    assert by_text["Done"].msgstr == "Fait"
    assert by_text["Gone"].obsolete
    assert not read_document(written.replace(b"#, fuzzy" + ending.encode(), b""), "app.po").segments
    kept = [line for line in data.split(b"\n") if not line.startswith((b"msgstr", b'"'))]
    assert [line for line in written.split(b"\n") if not line.startswith((b"msgstr", b'"'))] == kept


XLIFF = """<?xml version='1.0' encoding="UTF-8"?>
<!-- <source>no</source> -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" target-language="fr">
 <body>
  <trans-unit id="1">
    <source>The <g id="1">black</g> cat &amp; <x id="2"/>.</source>
  </trans-unit>
  <trans-unit id="2"><source>Done</source><target>Fait</target></trans-unit>
  <trans-unit id='3'><source>New</source><target state = 'new' /></trans-unit>
  <trans-unit id="4" translate="no"><source>Brand</source></trans-unit>
  <trans-unit id="5"><source> <bpt id="1">&lt;b></bpt>Bold<ept id="1">&lt;/b></ept> </source>
   <alt-trans><source>q</source><target/></alt-trans></trans-unit>
  <trans-unit id="6"><source><![CDATA[x]]></source></trans-unit>
 </body></file></xliff>
"""
XLIFF2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="fr"><file id="f">
<unit id="u"><segment>
<source>Press <pc id="1">the <ph id="2"/> key</pc> <sc id="3"/>now<ec startRef="3"/></source></segment>
<segment state="translated"><source>Done</source><target>Fait</target></segment>
<ignorable><source> </source></ignorable></unit>
<unit id="v" translate="no"><segment><source>Brand</source></segment></unit></file></xliff>"""


@pytest.mark.parametrize(("text", "count"), [(XLIFF, 4), (XLIFF2, 1)])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_xliff_is_filled_and_nothing_else_changes(text: str, count: int, encoding: str) -> None:
    data = text.replace("UTF-8", encoding).encode(encoding)
    document = read_document(data, "x.xlf")
    assert len(document.segments) == count
    written = document.write(
        [place_tags(segment, shuffled(segment, random.Random(1))) for segment in document.segments]
    )
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    before, after = (etree.fromstring(part, parser) for part in (data, written))

    def inline(element) -> list[str]:
        return sorted(
            f"{part.tag} {dict(part.attrib)} {part.text if 'pt' in part.tag else ''}"
            for part in element.iterdescendants()
        )

    checked = 0
    for source in after.iter("{*}source"):
        target = source.getparent().find("{*}target")
        if target is not None and target.text != "Fait" and len(target):
            assert inline(target) == inline(source)
            checked += 1
    assert checked
    assert not read_document(written.replace(b"state = 'new'", b""), "x.xlf").segments or encoding == "utf-16"
    for target in [t for t in after.iter("{*}target") if t.text != "Fait" and t.getparent().tag[-5:] != "trans"]:
        target.getparent().remove(target)
    for target in [t for t in before.iter("{*}target") if t.text != "Fait" and t.getparent().tag[-5:] != "trans"]:
        target.getparent().remove(target)
    squeezed = [re.sub(rb"\s+", b"", etree.tostring(tree, method="c14n")) for tree in (before, after)]
    assert squeezed[0] == squeezed[1]


def test_a_target_of_empty_segments_is_no_translation() -> None:
    text = XLIFF.replace("<target>Fait</target>", '<target><mrk mtype="seg" mid="0"/><mrk mid="1"></mrk></target>')
    more = len(read_document(text.encode(), "x.xlf").segments) - len(read_document(XLIFF.encode(), "x.xlf").segments)
    assert more == XLIFF.count("<target>Fait</target>") == 1


def test_what_an_xliff_file_protects_or_segments_stays_so() -> None:
    marked = '<mrk mtype="seg" mid="1">a cat.</mrk> <mrk mtype="protected">Big Ben</mrk> x\n  b.'
    text = (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en">'
        '<trans-unit id="1" approved="yes" xml:space="preserve"><source>a cat. Big Ben x\n  b.</source>'
        f"<seg-source>{marked}</seg-source></trans-unit></file></xliff>"
    )
    document = read_document(text.encode(), "x.xlf")
    (segment,) = document.segments
    assert segment.text == "a cat. x b."
    found = aligned(segment, "A CAT. X B.", "0-0 1-1 2-2 3-3 4-4 5-5")
    assert found == marked.replace("a cat.", "A CAT.").replace(" x", " X").replace("b.", "B.")
    reviewed, finished = (document.write([found], "fr", Review(fuzzy)).decode() for fuzzy in (True, False))
    assert "approved" not in reviewed
    assert 'approved="yes"' in finished


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("md", "A WORD[^1] B.[^n] C\n"),  # a footnote stays at its word
        ("vtt", "WEBVTT\n\n00:08.000 --> 00:09.000\nA <00:08.500>B <00:08.700>C\n"),
        ("html", "<p>A WORD<sup id=x><a href=#y>1</a></sup> B.<sup>[2]</sup> CO<sub>2</sub>, X<br> Y</p>"),
        ("md", "1986\\. A B\n"),  # words are no marker of a list
        ("md", "- \\- A\\\n\\# B\n"),
        ("md", "\\+ A > B\n"),
        ("md", "- 1. A\n"),
        ("md", "| A \\| B | `x\\|y` C |\n|---|---|\n"),
        ("md", "A ISSUE #12 B (#3).\n"),
        ("md", "A :smile: B :+1: AT 12:30:45, $x^2 + y$ IS $5 OR $6\n"),
        ("md", "A\n$$\nx = y\n$$\nB\n"),
        ("md", "TERM\n: WHAT IT IS\n"),
        ("md", "> [!NOTE]\n> A B\n\n::: warning c\nA B\n:::\n\n# A\n{: .c}\n\n[TOC]\n"),
        ("md", '!!! note "c"\n    A B\n\n    C D\n\n        x = y\n'),
    ],
)
def test_marks_of_a_dialect_stay_where_they_are(kind: str, text: str) -> None:
    document = read_document(text.encode(), f"x.{kind}")
    words = [split_words(segment.text, (0, len(segment.text))) for segment in document.segments]
    links = [" ".join(f"{at}-{at}" for at in range(len(some))) for some in words]
    # Another text with the same words, so that nothing is copied from the source.
    found = [
        aligned(segment._replace(inner="", text=segment.text.lower()), segment.text, some)
        for segment, some in zip(document.segments, links, strict=True)
    ]
    assert document.write(found).decode() == text


@pytest.mark.parametrize(
    "around",
    [
        "---\ntitle: one\n---\n{}\n",
        "---\na: 1\nb: 2\n...\n{}\n",
        "```\ncode\n```\n{}\n",
        "````\n```\ncode\n````\n{}\n",
        "> ```\n> code\n> ```\n\n{}\n",
        "{}\n\n```\ncode without an end\nin the last line",
        "<div>\n<script>\nlet a;\n\nlet b;\n</script>\n</div>\n\n{}\n",
    ],
)
def test_code_in_markdown_begins_and_ends(around: str) -> None:
    document = read_document(around.format("The text.").encode(), "x.md")
    assert [segment.text for segment in document.segments] == ["The text."]
    assert document.write(["Le texte."]).decode() == around.format("Le texte.")


@pytest.mark.parametrize("head", ["", 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n'])
def test_po_without_a_header_or_its_charset_gets_them(head: str) -> None:
    written = read_document(f'{head}msgid "Open"\nmsgstr ""'.encode(), "x.po").write(["Été"], "fr").decode()
    (entry,) = found = polib.pofile(written)
    assert (entry.msgid, entry.msgstr) == ("Open", "Été")
    assert found.metadata["Content-Type"] == "text/plain; charset=UTF-8"
    assert found.metadata["Language"] == "fr"


@pytest.mark.parametrize(
    ("message", "words", "expected"),
    [
        ("&Open", "Open", "&OPEN"),
        ("Save &as...", "Save as...", "&SAVE AS..."),
        ("Sa&ve", "Save", "&SAVE"),
        ("_Print\\tCtrl+P", "Print", "_PRINT\\tCtrl+P"),
        ("(_Help)", "(Help)", "(_HELP)"),
        ("a) &Open", "a) Open", "A) &OPEN"),
        # No such sign:
        ("R&D here", "R&D here", "R&D HERE"),
        ("you & me", "you & me", "YOU & ME"),
        ("the _id and &nbsp; x", "the _id and x", "THE _ID AND &nbsp; X"),
        ("&One &two", "&One &two", "&ONE &TWO"),
    ],
)
def test_the_keys_of_a_menu_stay(message: str, words: str, expected: str) -> None:
    document = read_document(f'msgid ""\nmsgstr ""\n\nmsgid "{message}"\nmsgstr ""\n'.encode(), "x.po")
    (segment,) = document.segments
    assert segment.text == words
    links = " ".join(f"{at}-{at}" for at in range(len(split_words(words, (0, len(words))))))
    written = document.write([aligned(segment, words.upper(), links)]).decode()
    assert written.endswith(f'msgstr "{expected}"\n')
    assert document.write([segment.inner]).decode().endswith(f'msgstr "{message}"\n')  # as the source


def test_placeholders_with_only_punctuation_between_them_are_one() -> None:
    found = [
        [((0, 5), "argument")], [((0, 7), "argument")], [((0, 2), "argument"), ((6, 8), "argument")],
        [((0, 6), "argument")], [((0, 7), "word")],
    ]  # fmt: skip
    for text, expected in zip(("%s.%s", "%s...%s", "%s....%s", "{a}.%s", "{a}.{b}"), found, strict=True):
        assert list(find_placeholders(text)) == expected
    assert list(find_placeholders("<%= a %> b <% c")) == [((0, 8), "word")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("||a b c d", "a |b |c d"),
        ("a b c d||", "a b |c |d"),
        ("a b ||c d", "a b |c |d"),
        ("a |b c ||d e f", "a |b c |d |e f"),
        ("||a b", "a b"),  # fewer words than lines
    ],
)
def test_breaks_move_by_as_few_words_as_leave_no_line_empty(text: str, expected: str) -> None:
    soft = Fragment("\n", Tag("\n", 0, "break"))
    found = space_breaks([soft if part == "|" else Fragment(part) for part in re.findall(r"\||[^|]+", text)])
    assert "".join(one.text for one in found).replace("\n", "|") == expected


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n2\n00:00:03,000 --> 00:00:04,000\n\n"])
def test_no_word_of_the_last_cue_goes_behind_its_end(end: str) -> None:
    head = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read_document(f"{head}Hello you.{end}".encode(), "x.srt")
    (segment,) = document.segments
    written = place_tags(segment, join_sentences(segment.text, [(0, 10)], [Sentence("Bonjour à vous.", ())]))
    assert document.write([written]).decode() == f"{head}Bonjour à vous.{end}"


def test_kept_elements_of_a_page_are_words_and_comments_are_not() -> None:
    segment = one("see <code>x</code> and <!-- no --> <img> <kbd>q</kbd> now")
    assert [tag.kind for tag in segment.tags] == ["word", "void", "void", "word"]
    assert aligned(segment, "voyez", "0-0", spell) == "voyez <code>x</code> <kbd>q</kbd>"


def test_lines_of_a_paragraph_in_markdown_are_words_apart() -> None:
    for text in (
        "One line\nand another.",
        "> One line\nand another.",
        "> One line\n> and another.",
        "* One line\n  and another.",
    ):
        assert [segment.text for segment in read_document(text.encode(), "x.md").segments] == ["One line and another."]


@pytest.mark.parametrize(("flag", "expected"), [("c-format", "50 %% de %d"), ("no-c-format", "50 % de %d")])
def test_a_percent_sign_of_a_translation_is_no_placeholder_in_po(flag: str, expected: str) -> None:
    segment = one(f'#, {flag}\nmsgid "half of %d"\nmsgstr ""\n', "po")
    assert aligned(segment, "50 % de", "0-0 1-2") == expected


def test_escapes_of_c_in_po_are_characters() -> None:
    segment = one(r'msgid "\101b \x43d \"e\" \\f \q"' + '\nmsgstr ""\n', "po")
    assert segment.text == r'Ab Cd "e" \f \q'


def test_only_sentences_with_words_are_translated() -> None:
    text = "... Hello there. (?) * * * Go on! —\n- 7 -"
    assert [text[slice(*span)] for span in take_sentences(text, 100)] == ["Hello there.", "* * * Go on!", "7 -"]


def test_footnotes_of_markdown_keep_their_marks() -> None:
    text = "The cat[^1] sees the dog.[^note]\n\n[^1]: The note is here.\n\n[a]: http://x.y\n"
    document = read_document(text.encode(), "x.md")
    assert [segment.text for segment in document.segments] == ["The cat sees the dog.", "The note is here."]
    assert [tag.raw for segment in document.segments for tag in segment.tags] == ["[^1]", "[^note]"]
    assert unchanged(document) == text.encode()


def test_a_number_that_no_sentence_has_is_copied() -> None:
    digits = "0" * 60_000
    segment = protect(f"a %{digits}z")
    assert segment is not None
    assert (segment.text, [tag.raw for tag in segment.tags]) == ("a %z", [digits])
    assert protect("1" * 49) is None


def test_backticks_that_close_nothing_hide_no_marks() -> None:
    (segment,) = read_document(b"One ` two **three``` four** and ``five`` <i t='_'>six_</i>.", "x.md").segments
    assert segment.text == "One ` two three``` four and six_."
    assert [tag.raw for tag in segment.tags] == ["**", "**", "``five``", "<i t='_'>", "</i>"]
    (segment,) = read_document(rb"Type \``rm -rf` here.", "x.md").segments  # an escaped one opens nothing
    assert [tag.raw for tag in segment.tags] == ["`rm -rf`"]


LAUGHS = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><xliff><file>&b;</file></xliff>'


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x.xlf", LAUGHS.encode(), "entity"),
        ("x.xlf", b"<xliff>" + b"<a>" * 200 + b"</a>" * 200 + b"</xliff>", "levels deep"),
        ("x.xlf", b"<html/>", "root element"),
        ("x.xlf", b"<xliff><file></xliff>", "The XML is not valid"),
        ("x.xlf", b"<?xml version='1.0' encoding='zip'?><xliff/>", "encoding"),
        ("x.po", b"msgid 'x'\n", "must be a comment or a string"),
        ("x.po", b'msgid "x"\n', "no msgstr"),
        ("x.po", b'"x"\n', "a string without a keyword"),
        ("x.html", b"<p>caf\xe9</p>", "not valid utf-8 (byte 6)"),
        ("x.docx", b"PK", "x.docx: the archive cannot be read"),
        ("x.doc", b"", "not supported; save it as DOCX or HTML"),
        ("x.zip", b"", "file ending 'zip'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_sentence(name: str, data: bytes, expected: str) -> None:
    with pytest.raises(DataError) as error:
        read_document(data, name)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


SIZE = 1 << 15


@pytest.mark.parametrize(
    ("kind", "piece"),
    [("html", piece) for piece in ("<!--", "<a b='", "<b>", "<b>a </b>", "a <i>", "<code>a", "</i>", "{")]
    + [("html", piece) for piece in ("%", "&", "<", "a {", "a@", "a.", "http://")]
    + [("md", piece) for piece in ("*a ", "**", "`", "[", "![a", "](", "[a](", "_a", "<b>a", "\\", "|")]
    + [("md", piece) for piece in ("> ", "a\n", "~~~\n", "\n" + "> " * 40, "$a", "$$\n", ":a", ":::\n", "!!! a\n")]
    + [("html", piece) for piece in ("<sup>", "<sup>1", "<sup>1</sup>")]
    + [("srt", piece) for piece in ("{a}", "<v a>", "a\n\n00:00:01,000 --> 00:00:02,000\n{a} <v b>")]
    + [("srt", "<i>a "), ("txt", "{a "), ("txt", "<%"), ("txt", "a"), ("po", '"'), ("po", "#, fuzzy\n")],
)  # fmt: skip
def test_time_grows_with_the_text_and_no_faster(kind: str, piece: str) -> None:
    """Each takes well under a second; if the time grew with the square it would take many minutes."""
    head = "00:00:01,000 --> 00:00:02,000\n" if kind == "srt" else "x "
    data = (head + piece * (SIZE // len(piece))).encode()
    try:
        document = read_document(data, f"x.{kind}")
    except DataError:
        assert kind == "po"
        return
    assert kind == "po" or unchanged(document) == data
    for segment in document.segments[:3]:
        place_tags(segment, Aligned(segment.text.upper() + "~", [((0, len(segment.text)), (0, len(segment.text)))], []))


def test_the_encoding_of_a_file_is_kept() -> None:
    latin = '<meta charset="latin-1"><p>café</p>'.encode("latin-1")
    document = read_document(latin, "x.html")
    assert document.segments[0].text == "café"
    assert document.write(["漢"]) == b'<meta charset="latin-1"><p>&#28450;</p>'
    marked = b"\xef\xbb\xbfba da\n"
    assert read_document(marked, "x.txt").write(["lu"]) == b"\xef\xbb\xbflu\n"
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "é"\nmsgstr ""\n'.encode(
        "latin-1"
    )
    with pytest.raises(DataError, match="'漢', which its encoding iso8859-1 cannot write"):
        read_document(header, "x.po").write(["漢"])


def test_alt_and_title_attributes_are_segments_of_a_second_reading() -> None:
    """Those of code and of what is not to be translated stay, as do names inside the values of other attributes."""
    page = (
        '<p TITLE = \'a "big" cat\' data-x=" title=\'no\'">x <img src=a.png alt="the cat &amp; me, %s" alt>'
        '<code title="no">y</code><i translate="no" title="no">z</i><b title=bare title="">w</b></p>'
    )
    text, attributes = find_format("x.html").reads
    document = read_document(page.encode(), "x.html", attributes)
    assert [one.text for one in document.segments] == ['a "big" cat', "the cat & me,"]
    assert unchanged(document) == page.encode()
    written = document.write(["un &quot;gros&quot; chat", "le chat &amp; moi, %s"]).decode()
    assert written == page.replace('a "big" cat', "un &quot;gros&quot; chat").replace(
        "the cat &amp; me", "le chat &amp; moi"
    )
    assert document.segments[0].escape('l\'"a"') == "l&#x27;&quot;a&quot;"
    assert not [one for one in read_document(page.encode(), "x.html", text).segments if "big" in one.text]


def test_xml_fragments_keep_every_element_inline() -> None:
    from regard.files.html import xml_rules

    parts = list(read_html("<p>The <Term>black</Term> <x>cat</x>.</p>", xml_rules(ignored=("x",))))
    (segment,) = [part for part in parts if isinstance(part, Segment)]
    assert segment.text == "The black."
    assert [tag.raw for tag in segment.tags] == ["<p>", "<Term>", "</Term>", "<x>cat</x>", "</p>"]
    assert find_format("A.HTML").name == "HTML"


def test_po_and_xliff_are_memories_to_train_on(tmp_path) -> None:
    from regard.data.corpus import find_corpus, open_corpus
    from regard.data.settings import DataConfig
    from regard.errors import ConfigError

    po, xlf = tmp_path / "app.po", tmp_path / "app.xlf"
    filled = PO.replace('now"\nmsgstr ""', 'now"\nmsgstr "Ouvrir <b>%s</b> ici"').replace(
        'msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "%d fichier"\nmsgstr[1] "%d fichiers"'
    )
    po.write_text(filled, encoding="utf-8")
    xlf.write_text(XLIFF2.replace("<target>Fait", '<target>Fait <ph id="1"/>'), encoding="utf-8")
    found = {}
    for path in (po, xlf):
        corpus = open_corpus(DataConfig(tmx=str(path)))
        assert corpus is not None
        found[path.name] = [(pair.source, pair.target) for pair in corpus if not pair.unfit]
    assert found["app.po"] == [
        ('Open "%s" now', "Ouvrir %s ici"), ("%d file", "%d fichier"), ("%d files", "%d fichiers"), ("Done", "Fait"),
    ]  # fmt: skip
    assert found["app.xlf"] == [("Done", "Fait")]
    for files in ({"source": str(po), "target": str(po)}, {"tsv": str(xlf)}):
        with pytest.raises(ConfigError, match=r"with markup: set only data\.tmx"):
            find_corpus(DataConfig(**files))
    for name in ("a.html", "a.md.gz", "a.srt"):
        with pytest.raises(ConfigError, match="with markup: use plain text, one sentence per line"):
            find_corpus(DataConfig(source=name, target="a.fr"))
    po.write_text(filled.replace('"Language: fr\\n"\n', ""), encoding="utf-8")
    with pytest.raises(DataError, match="the header does not name the target language"):
        open_corpus(DataConfig(tmx=str(po)))


PLAIN = {
    "txt": "a cat\n",
    "html": "<p>a cat</p>",
    "md": "# a cat\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\na cat\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\na cat\n",
    "po": 'msgid "a cat"\nmsgstr ""\n',
    "xlf": "<xliff version='1.2'><file><body><trans-unit><source>a cat</source></trans-unit></body></file></xliff>",
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_characters_need_a_mark(kind: str, encoding: str) -> None:
    """With one, a file is what it is in UTF-8; without, its bytes are valid UTF-8 but not its text."""
    data = f"\ufeff{PLAIN[kind]}".encode(encoding)
    document, plain = read_document(data, f"x.{kind}"), read_document(PLAIN[kind].encode(), f"x.{kind}")
    assert [segment.text for segment in document.segments] == ["a cat"]
    written = document.write(["un chat"], "fr").decode(encoding)
    assert written == "\ufeff" + plain.write(["un chat"], "fr").decode()
    with pytest.raises(DataError, match=r"^x\.\w+ has NUL characters, as UTF-16 .*; save the file as UTF-8"):
        read_document(PLAIN[kind].encode(encoding), f"x.{kind}")
