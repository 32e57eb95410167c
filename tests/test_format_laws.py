"""What is written parses again with an independent parser: the same units, ids and attributes; only targets differ."""

import io
import itertools
import random
import re
import shutil
import subprocess
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lxml.html
import markdown_it
import polib
import pytest
import sphinx
from lxml import etree
from test_formats import aligned, shuffled

from regard.errors import DataError
from regard.files import archives
from regard.files.document import Document, read_document
from regard.files.place import place_tags
from regard.files.segment import Aligned, Link, Review, Segment, Sentence, Sentences

SIZES = [100, pytest.param(4000, marks=pytest.mark.slow)]
WORDS = ["Open", "the file", "now.", "It is", "100%", "été", "a < b", "x & y", "“q”", "I", "two words", "Done!"]
PARSER = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)


def translate(document: Document, draw: random.Random, fuzzy: bool = True) -> bytes:
    """The file with drawn translations: words in another order, some twice and some missing."""
    inner = [place_tags(segment, shuffled(segment, draw)) for segment in document.segments]
    return document.write(inner, "fr", Review(fuzzy))


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


# --- XLIFF


def inline(draw: random.Random, version: str, depth: int = 0) -> str:
    parts = []
    for number in range(draw.randint(1, 4)):
        name = f"{depth}{number}{draw.randint(0, 99)}"
        word = escaped(draw.choice(WORDS))
        kinds = [word, word, f"<![CDATA[<b>{draw.choice(WORDS)}</b>]]>", f"&lt;i&gt;{word}&lt;/i&gt;", "%s", "{name}"]
        if version == "1.2":
            kinds += [f'<x id="{name}"/>', f'<bpt id="{name}">[b</bpt>{word}<ept id="{name}">b]</ept>']
        else:
            kinds += [f'<ph id="{name}"/>', f'<sc id="{name}"/>{word}<ec startRef="{name}"/>']
        if depth < 2:
            tag = "g" if version == "1.2" else "pc"
            kinds.append(f'<{tag} id="{name}">{inline(draw, version, depth + 1)}</{tag}>')
        parts.append(draw.choice(kinds))
    return " ".join(parts)


def xliff(draw: random.Random, version: str) -> str:
    units = []
    for number in range(draw.randint(1, 4)):
        source = f"<source>{inline(draw, version)}</source>"
        target = draw.choice(("", "<target/>", "<target></target>", "<target >\n</target>", "<target>Fait</target>"))
        space = draw.choice(("", "\n  "))
        if version == "1.2":
            target = target.replace("<target", "<target" + draw.choice(("", " xml:lang='fr'", ' state="new"')), 1)
            units.append(
                f'<trans-unit id="u{number}" a:x="&gt;">{space}{source}{space}{target}<note>n</note></trans-unit>'
            )
        else:
            state = draw.choice(("", ' state="initial"', ' state="translated"'))
            units.append(f'<unit id="u{number}"><segment{state}>{space}{source}{space}{target}</segment></unit>')
    if version == "1.2":
        head = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:a="urn:a">'
        return (
            f'{head}<file original="f" source-language="en" datatype="x"><body>{"".join(units)}</body></file></xliff>'
        )
    head = '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en">'
    return f'{head}<file id="f">{"".join(units)}</file></xliff>'


CHANGED = {"state", "state-qualifier", "subState", "target-language", "trgLang"}


def outline(tree: etree._Element) -> list[object]:
    """Everything but targets and what says their state and language."""
    return [
        (one.tag, {key: value for key, value in one.attrib.items() if key not in CHANGED}, (one.text or "").strip())
        for one in tree.iter()
        if not any(str(up.tag).endswith("}target") for up in [one, *one.iterancestors()])
    ]


def codes(element: etree._Element) -> Counter[str]:
    """The inline elements, and the tags and placeholders in the text."""
    text = "".join(element.itertext())
    found = Counter(f"{one.tag} {sorted(one.attrib.items())}" for one in element.iterdescendants())
    return found + Counter(re.findall(r"</?[bi]>|%s|\{name\}|\[b|b\]", text))


@pytest.mark.parametrize("version", ["1.2", "2.0"])
@pytest.mark.parametrize("count", SIZES)
def test_xliff(version: str, count: int) -> None:
    draw = random.Random(version)
    filled = 0
    for number in range(count):
        data = xliff(draw, version).encode()
        fuzzy = number % 4 > 0
        before = etree.fromstring(data, PARSER)
        after = etree.fromstring(translate(read_document(data, "x.xlf"), draw, fuzzy), PARSER)
        assert outline(before) == outline(after)
        for old, new in zip(before.iter("{*}source"), after.iter("{*}source"), strict=True):
            was, now = (one.getparent().find("{*}target") for one in (old, new))
            if was is not None and was.text == "Fait":
                assert (
                    now.text == "Fait" or "new" in was.attrib.values() or "initial" in old.getparent().attrib.values()
                )
            if now is None or not "".join(now.itertext()).strip() or now.text == "Fait":
                continue
            assert codes(now) == codes(new)
            filled += 1
            if version == "1.2":
                state = ("needs-review-translation", "mt-suggestion") if fuzzy else ("translated", None)
                assert (now.get("state"), now.get("state-qualifier")) == state
            else:
                assert new.getparent().get("state") == "translated"
                assert new.getparent().get("subState") == ("mt:review" if fuzzy else None)
        languages = [one.get("target-language") or one.get("trgLang") for one in after.iter("{*}xliff", "{*}file")]
        assert "fr" in languages
    assert filled > count


# --- PO


PLACEHOLDERS = {
    "c-format": [
        "%s",
        "%d",
        "<%s>",
        '"%s"',
        "%<PRIuMAX>",
        "%5<PRId64>",
        "%.3fs",
        "%d%%",
        "% d",
        "%5.2lf",
        "100%%",
        "%1$s",
    ],
    "python-format": ["%s", "%(name)s", "<%(x)s>", "%r", "%.3fs", "%(n)d%%", "100%%"],
    "python-brace-format": ["{0}", "{name!r}", "{x:>10}", "<{y}>"],
    "": ["{count, plural, one {# file} other {# files}}", "%s", "%.3fs", "{x}", "&amp;", "<b>bold</b>", "%s.%s"],
}


def po(draw: random.Random) -> str:
    header = 'msgid ""\nmsgstr ""\n"Project-Id-Version: x\\n"\n"MIME-Version: 1.0\\n"\n'
    header += '"Content-Type: text/plain; charset=UTF-8\\n"\n"Content-Transfer-Encoding: 8bit\\n"\n'
    parts = [draw.choice((header, header + '"Language: de\\n"\n'))]
    for number in range(draw.randint(1, 5)):
        flag = draw.choice(list(PLACEHOLDERS))
        marks = PLACEHOLDERS[flag]
        if flag == "c-format":  # numbered and other arguments cannot meet
            marks = ["%1$s"] if draw.random() < 0.1 else marks[:-1]
        if flag == "python-format":  # neither can named ones
            marks = draw.choice((["%s", "%r", "%.3fs", "100%%"], ["%(name)s", "<%(x)s>", "%(n)d%%", "100%%"]))
        words = [word.replace("%", "" if "format" in flag else "%").replace('"', "") for word in WORDS]
        text = " ".join(
            draw.choice((*words, *marks)) + draw.choice(("", "\n", "\n\n")) for _ in range(draw.randint(1, 6))
        )
        text = f"{number} {draw.choice(('', chr(10)))}{text}"
        text = draw.choice(("", "\n", " ")) + text
        quoted = polib.escape(text)
        flags = [one for one in (flag, draw.choice(("", "fuzzy"))) if one]
        comment = f"#. note\n#: a.c:{number}\n" + (f"#, {', '.join(flags)}\n" if flags else "")
        if draw.random() < 0.2:
            forms = f'msgid_plural "{quoted}"\nmsgstr[0] ""\nmsgstr[1] ""\n'
        else:
            forms = f'msgstr "{draw.choice(("", "", quoted))}"\n'
        parts.append(f'{comment}msgctxt "c{number}"\nmsgid "{quoted}"\n{forms}')
    return "\n".join(parts)


def check_po(data: bytes, folder: Path) -> str:
    """What `msgfmt -c` says of a file, if it is installed and refuses it."""
    (folder / "x.po").write_bytes(data)
    if not shutil.which("msgfmt"):
        return ""
    done = subprocess.run(["msgfmt", "-c", "-o", "/dev/null", "x.po"], cwd=folder, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.slow)])
def test_po(count: int, tmp_path: Path) -> None:
    draw = random.Random(3)
    each = {one for some in PLACEHOLDERS.values() for one in some} - {"<b>bold</b>"} | {"<b>", "</b>"}
    marks = re.compile("|".join(sorted(map(re.escape, each), key=len, reverse=True)))
    filled = 0
    for number in range(count):
        data = po(draw).encode()
        fuzzy = number % 3 > 0
        if check_po(data, tmp_path):
            continue  # drawn placeholders that gettext does not take together
        before = polib.pofile(data.decode())
        written = translate(read_document(data, "x.po"), draw, fuzzy)
        assert check_po(written, tmp_path) == ""
        after = polib.pofile(written.decode())
        assert after.metadata["Language"] == "fr"
        assert after.metadata["Plural-Forms"] == "nplurals=2; plural=(n > 1);"
        for old, new in zip(before, after, strict=True):
            assert (old.msgid, old.msgctxt, old.occurrences, old.comment) == (
                new.msgid, new.msgctxt, new.occurrences, new.comment,
            )  # fmt: skip
            assert set(old.flags) - {"fuzzy"} == set(new.flags) - {"fuzzy"}
            texts = [new.msgstr, *new.msgstr_plural.values()]
            if old.msgstr and "fuzzy" not in old.flags:
                assert (new.msgstr, new.flags) == (old.msgstr, old.flags)
                continue
            for text in filter(None, texts):
                filled += 1
                assert fuzzy == ("fuzzy" in new.flags)
                assert Counter(marks.findall(text)) == Counter(marks.findall(new.msgid))
                assert text.count("\n") == new.msgid.count("\n")
                assert all(text[at] == "\n" for at in (0, -1) if new.msgid[at] == "\n")
    assert filled > count / 2


def test_sphinx_own_messages(tmp_path: Path) -> None:
    data = (Path(sphinx.__file__).parent / "locale" / "sphinx.pot").read_bytes()
    for fuzzy in (True, False):
        written = translate(read_document(data, "sphinx.pot"), random.Random(5), fuzzy)
        assert check_po(written, tmp_path) == ""
        found = polib.pofile(written.decode())
        before = polib.pofile(data.decode())
        assert [one.msgid for one in found] == [one.msgid for one in before]
        assert len(found.fuzzy_entries() if fuzzy else found.translated_entries()) > 800
    hints = next(one for one in found if "Possible hints:\n%s" in one.msgid)
    assert [line.endswith("%s") for line in hints.msgstr.split("\n")] == [
        line.endswith("%s") for line in hints.msgid.split("\n")
    ]


# --- HTML, Markdown, subtitles


def elements(page: bytes) -> Counter[str]:
    tree = lxml.html.fromstring(page)
    return Counter(
        f"{one.tag} {sorted((k, v) for k, v in one.attrib.items() if k not in ('alt', 'title'))}" for one in tree.iter()
    )


@pytest.mark.parametrize("count", SIZES)
def test_html(count: int) -> None:
    draw = random.Random(4)
    kept = "<script>a<b</script>", "<!-- <b> -->", "<pre>x\n\ny</pre>", "<code>ls</code>", "<img src=y alt='a'>", "<br>"

    def content(depth: int = 0) -> str:
        parts = [escaped(draw.choice(WORDS)) for _ in range(draw.randint(1, 3))] + [draw.choice(kept)]
        if depth < 3:
            name = draw.choice(("b", "i", "span", "em"))
            parts.append(f'<{name} class="c{draw.randint(0, 9)}">{content(depth + 1)}</{name}>')
        draw.shuffle(parts)
        return " ".join(parts)

    for _ in range(count):
        blocks = "".join(f"<{name}>{content()}</{name}>" for name in draw.choices(("p", "div", "h1", "li"), k=3))
        data = f"<!doctype html><html lang=en><body>{blocks}</body></html>".encode()
        written = translate(read_document(data, "x.html"), draw)
        assert elements(written) == elements(data.replace(b"lang=en", b"lang=fr"))
        for raw in kept:
            assert written.count(raw.encode()) == data.count(raw.encode())


MARKDOWN = [
    "# A title\n", "The *black* cat\n", "and `x = 1` too.\n", "\n", "- an item\n", "  more of it\n", "> a quotation\n",
    "<pre>\ncode one\n\ncode two\n</pre>\n\n", "<!-- a\n\nremark -->\n\n",
    "<script>\nconst dog = 2;\n\nlet x;\n</script>\n\n",
    "```\nfenced\n\ncode\n```\n", "two spaces  \n", "a backslash\\\n", "the end\n\n", "<?php\n\necho 1;\n?>\n\n",
    "\n# A title\n\n    $ code --one\n\n", "- an item:\n\n      $ code\n\n", "> a quotation:\n>\n>     $ code\n\n",
    "> a quotation\n> of two lines\n\n", ">  > * an item,\n>  >   and  \n> >   so on\n> > * another\n\n",
    "> one\n> > two\n\n",
    "* <https://a.org/b>\n", "-\n", "1. one:\n\n   text of it\n\n       $ code\n\n",
    "<style>\np {}\n\nb {}\n</style>\n\n", "| a | b |\n|---|---|\n| cat | dog |\n\n", "---\n\n", "1. one\n",
]  # fmt: skip


@pytest.mark.parametrize("count", SIZES)
def test_markdown(count: int) -> None:
    draw = random.Random(6)
    parser = markdown_it.MarkdownIt("commonmark").enable("table")

    def shape(text: str) -> list[object]:
        tokens = [one for one in parser.parse(text) if one.type != "inline"]
        return [(one.type, one.content if one.type in ("html_block", "fence", "code_block") else "") for one in tokens]

    for _ in range(count):
        text = "First line\n\n" + "".join(draw.choices(MARKDOWN, k=draw.randint(1, 8)))
        document = read_document(text.encode(), "x.md")
        inner = []
        for segment in document.segments:
            found = shuffled(segment, draw)
            # Marks of Markdown at the beginning of a line are another matter; the words are plain ones.
            inner.append(place_tags(segment, found._replace(text=re.sub(r"[^\w\s]", "x", found.text))))
        written = document.write(inner).decode()
        assert shape(written) == shape(text)
        assert written.count("\n\n") == text.count("\n\n")  # no line comes back empty


def test_hard_line_breaks_do_not_cut_a_sentence() -> None:
    for mark, quote in itertools.product(("  ", "\\"), ("", "> ", " > >")):
        lines = f"{quote}The cat sees{mark}\n{quote}the dog and{mark}\n{quote}sleeps.\n"
        document = read_document(lines.encode(), "x.md")
        (segment,) = document.segments
        assert segment.text == "The cat sees the dog and sleeps."
        found = shuffled(segment, random.Random(1))
        placed = place_tags(segment, found._replace(text="un deux trois", links=[], sentences=[]))
        assert placed.split(f"{mark}\n{quote}") == ["un", "deux", "trois"]
        assert place_tags(segment, found._replace(text="un", links=[], sentences=[])) == "un"


def cues(text: str) -> Iterator[tuple[str, str]]:
    """An independent reader, as players read: the line before the times, the times, and the lines up to an empty one.

    Lines after that, up to the next cue, would be lost; there are none.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    times = [number for number, line in enumerate(lines) if "-->" in line]
    for number, after in zip(times, [*times[1:], len(lines) + 1], strict=True):
        body = "\n".join(lines[number + 1 : after - 1]).rstrip()
        assert all(line.strip() for line in body.split("\n")) or not body, "an empty line inside a cue"
        yield f"{lines[number - 1]}\n{lines[number]}", body


@pytest.mark.parametrize("kind", ["srt", "vtt"])
@pytest.mark.parametrize("count", SIZES)
def test_subtitles(kind: str, count: int) -> None:
    """The same cues in the same order, however few words their translations have."""
    draw = random.Random(kind)
    lines = [
        "the cat sees", "<i>the dog</i>", "that runs.", "- Yes.", "- No, never", "and goes home", "Where?", "{\\an8}up",
        "<i>and then", "it ends</i>", "42", "...",
    ]  # fmt: skip
    joined = 0
    for _ in range(count):
        gap = "\n" if kind == "srt" and draw.random() < 0.2 else "\n\n"
        blocks = ["WEBVTT", "NOTE a remark", "STYLE\n::cue {}"] if kind == "vtt" else []
        for number in range(draw.randint(1, 5)):
            text = "\n".join(draw.choices(lines, k=draw.randint(1, 3)))
            stamp = f"00:00:0{number},000 --> 00:00:0{number},900"
            blocks.append(f"{number}\n{stamp.replace(',', '.') if kind == 'vtt' else stamp}\n{text}")
        text = (gap.join(blocks) + "\n").replace("\n", draw.choice(("\n", "\r\n")))
        document = read_document(text.encode(), f"x.{kind}")
        found = [shuffled(segment, draw) for segment in document.segments]
        found = [one._replace(text="", links=[], sentences=[]) if draw.random() < 0.2 else one for one in found]
        inner = [place_tags(*pair) for pair in zip(document.segments, found, strict=True)]
        written = document.write(inner).decode()
        assert [times for times, _ in cues(written)] == [times for times, _ in cues(text)]
        assert re.findall("NOTE a remark|::cue {}", written) == re.findall("NOTE a remark|::cue {}", text)
        assert Counter(re.findall("</?i>", written)) == Counter(re.findall("</?i>", text))
        joined += any("-->" in tag.raw for segment in document.segments for tag in segment.tags)
    assert joined > count / 10


def test_a_sentence_of_two_cues_is_translated_whole() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\nthe cat that\n\n2\n00:00:03,000 --> 00:00:04,000\nsleeps here.\n"
    document = read_document(text.encode(), "x.srt")
    (segment,) = document.segments
    assert segment.text == "the cat that sleeps here."
    found = shuffled(segment, random.Random(1))._replace(text="un deux", links=[], sentences=[])
    times = text[text.index("\n\n2") : text.index("sleeps")]
    assert place_tags(segment, found) == f"un{times}deux"


@pytest.mark.parametrize(
    ("source", "target", "words", "expected"),
    [
        (
            "Drink H<sub>2</sub>O, the <b>un</b>known C<i>6</i>H<wbr>12.",
            "Bois H2O, C6H12 inconnu.",
            "Drink=Bois H2O=H2O unknown=inconnu C6H12=C6H12",
            "Bois H<sub>2</sub>O, C<i>6</i>H<wbr>12 <b>inconnu</b>.",
        ),
        # Other tags do not get into the word, and an article that is linked to it is not a part of it.
        (
            "The Ber<wbr>lin problem<sup>1</sup> is here.",
            "Le problème Berlin est ici.",
            "The=Le Berlin=Berlin problem=problème is=est here=ici",
            "Le problème Ber<wbr>lin<sup>1</sup> est ici.",
        ),
        ("CO<wbr><!-- -->2 <img>tax", "taxe CO2", "CO2=CO2 tax=taxe", "taxe CO<wbr><!-- -->2 <img>"),
        ("We like Eu<b>rop</b>e.", "Nous aimons l'Europe.", "We=Nous like=aimons Europe=l' Europe=Europe",
         "Nous aimons l'Eu<b>rop</b>e."),
        ("<b>E</b>urope is large", "L'Europe est grande", "Europe=L' Europe=Europe is=est large=grande",
         "L'<b>E</b>urope est grande"),
    ],
)  # fmt: skip
def test_tags_within_a_copied_word_stay_there(source: str, target: str, words: str, expected: str) -> None:
    (segment,) = read_document(f"<p>{source}</p>".encode(), "x.html").segments

    def span(text: str, word: str) -> tuple[int, int]:
        return text.index(word), text.index(word) + len(word)

    pairs = (pair.split("=") for pair in words.split(" "))
    links = [Link(span(segment.text, one), span(target, other), 1.0) for one, other in pairs]
    found = Aligned(target, [((0, len(segment.text)), (0, len(target)))], links)
    assert place_tags(segment, found) == expected


def test_words_with_tags_within_them_are_written_once() -> None:
    draw = random.Random(11)
    for _ in range(800):
        words = draw.choices(["H2O", "Berlin", "the", "x1", "l'", "été"], k=draw.randint(1, 6))
        source, opened, number = "", 0, itertools.count()
        for letter in " ".join(words) + " ":
            kind = draw.choices(["<b i='{}'>", "</b>", "<img i='{}'/>", ""], [8, 4, 12, 60])[0]
            if kind == "</b>":
                kind = kind if opened else ""
                opened -= bool(kind)
            opened += kind.startswith("<b ")
            source += kind.format(next(number)) + letter
        (segment,) = read_document(f"<p>{source.rstrip()}{'</b>' * opened}</p>".encode(), "x.html").segments
        spans = [match.span() for match in re.finditer(r"\S+", segment.text)]
        target = " ".join(draw.sample([draw.choice([segment.text[a:b]] * 3 + ["un"]) for a, b in spans], len(spans)))
        links = [Link(draw.choice(spans), match.span(), 1.0) for match in re.finditer(r"\S+", target)]
        links += [
            Link(one, match.span(), 1.0)
            for one in spans
            for match in [re.search(re.escape(segment.text[slice(*one)]), target)]
            if match
        ]
        found = Aligned(target, [((0, len(segment.text)), (0, len(target)))], draw.sample(links, len(links)))
        written = etree.fromstring(f"<p>{place_tags(segment, found)}</p>", PARSER)
        assert "".join("".join(written.itertext()).split()) == target.replace(" ", "")
        numbers = sorted(int(tag.get("i")) for tag in written.iterdescendants())
        assert numbers == sorted(map(int, re.findall(r"i='(\d+)'", segment.inner)))


def test_words_between_sentences_are_linked_to_themselves() -> None:
    """So that tags around a label stay there."""
    (segment,) = read_document(b"<p><b>1.</b> We <i>agree</i>. <u>***</u></p>", "x.html").segments
    sentences = Sentences([segment], 500)
    assert sentences.texts == ["We agree."]
    (found,) = sentences.join([Sentence("On accepte.", [Link((3, 8), (3, 10), 1.0)])])
    assert place_tags(segment, found) == "<b>1.</b> On <i>accepte</i>. <u>***</u>"


def test_one_tilde_of_markdown_strikes_too() -> None:
    (segment,) = read_document(b"a ~small~ house, H~2~O, ~5 to ~6", "x.md").segments
    assert (segment.text, len(segment.tags)) == ("a small house, H2O, ~5 to ~6", 4)


def test_a_subscript_belongs_to_its_word() -> None:
    text = '<p>CO<sub>2</sub>-free "CO<sub>2</sub>" and a note<sup>1</sup>.</p>'
    (segment,) = read_document(text.encode(), "x.html").segments
    assert segment.text == 'CO2-free "CO2" and a note.'


@pytest.mark.parametrize("run", ["{}", "</w:t></w:r><w:r>{}</w:r><w:r><w:t>"])
def test_hyphens_of_word_are_characters(run: str) -> None:
    hard, soft = run.format("<w:noBreakHyphen></w:noBreakHyphen>"), run.format("<w:softHyphen />")
    text = f"<w:p><w:r><w:t>An e{hard}mail ad{soft}dress</w:t></w:r></w:p>"
    (segment,) = [part for part in archives.read_docx(f"x\0{text}") if isinstance(part, Segment)]
    assert (segment.text, segment.tags) == ("An e-mail address", ())


@pytest.mark.parametrize(
    ("one", "other", "whole"),
    [
        ("<v Anna>a b", "<v Anna>c <c.red.big>d</c> e", True),
        ("a b", "{\\an8}c <i>d</i> e", True),
        ("<v Anna>a b</v>", "<v Anna>c d e</v>", True),
        ("<v Anna>a b", "<v Bob>c d e", False),  # somebody else speaks
    ],
)
def test_what_applies_to_a_cue_stays_in_it(one: str, other: str, whole: bool) -> None:
    time = "00:0{}.000 --> 00:0{}.000\n"
    text = f"WEBVTT\n\n{time.format(1, 2)}{one}\n\n{time.format(3, 4)}{other}\n"
    document = read_document(text.encode(), "x.vtt")
    assert [segment.text for segment in document.segments] == (["a b c d e"] if whole else ["a b", "c d e"])
    links = " ".join(f"{at}-{at}" for at in range(5)) if whole else ""
    found = [aligned(segment, segment.text.upper(), links) for segment in document.segments]
    written = re.sub(r"(?<![<{/\w.\\])\b[a-e]\b", lambda word: word[0].upper(), text)
    assert document.write(found).decode() == written


# --- archives


def archive(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in files.items():
            made.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return out.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        assert found.testzip() is None
        return {info.filename: found.read(info) for info in found.infolist()}


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="urn:r"'


def runs(draw: random.Random, p: str) -> str:
    parts = []
    for number in range(draw.randint(0, 5)):
        style = draw.choice(("", f"<{p}:rPr><{p}:b/></{p}:rPr>", f"<{p}:rPr><{p}:i/></{p}:rPr>"))
        run = f"<{p}:r>{style}<{p}:t>{escaped(draw.choice(WORDS))} </{p}:t></{p}:r>"
        if p == "w":
            kinds = [
                run,
                run,
                run.replace("</w:r>", "<w:br/><w:t>more</w:t></w:r>"),
                '<w:proofErr w:type="x"/>',
                f'<w:hyperlink r:id="r{number}">{run}</w:hyperlink>',
                f'<w:sdt><w:sdtPr><w:id w:val="{number}"/><w:rPr/></w:sdtPr><w:sdtContent>{run}</w:sdtContent></w:sdt>',
                f'<w:bookmarkStart w:id="{number}"/>',
                '<w:r><w:fldChar w:fldCharType="begin"/></w:r>',
                "<w:r><w:drawing><w:p/></w:drawing></w:r>",
            ]
        else:
            kinds = [run, run, "<a:br><a:rPr/></a:br>"]
        parts.append(draw.choice(kinds))
    return "".join(parts)


def document_of(kind: str, draw: random.Random) -> dict[str, str]:
    if kind == "docx":
        body = "".join(f"<w:p><w:pPr><w:jc/></w:pPr>{runs(draw, 'w')}</w:p>" for _ in range(2))
        body += f"<w:sdt><w:sdtPr/><w:sdtContent><w:p>{runs(draw, 'w')}</w:p></w:sdtContent></w:sdt>"
        return {
            "[Content_Types].xml": "<x/>",
            "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
        }
    if kind == "pptx":
        body = "".join(f'<a:p>{runs(draw, "a")}<a:endParaRPr lang="en"/></a:p>' for _ in range(3))
        return {"ppt/slides/slide1.xml": f'<p:sld xmlns:p="urn:p" xmlns:a="urn:a">{body}</p:sld>', "ppt/x.bin": "\0\1"}
    words = [escaped(draw.choice(WORDS)) for _ in range(4)]
    if kind == "odt":
        body = f'<text:h>{words[0]}</text:h><text:p>{words[1]} <text:span text:style-name="T1">{words[2]}</text:span>'
        space = draw.choice(("<text:s/>", "<text:line-break/>", "<text:tab/>"))
        body += f"{space}{words[3]}<text:note><text:p>n</text:p></text:note></text:p>"
        names = 'xmlns:text="urn:t" xmlns:office="urn:o"'
        styles = "<office:automatic-styles>Words here</office:automatic-styles>"
        return {"mimetype": "application/vnd.oasis.opendocument.text",
                "content.xml": f"<office:body {names}>{styles}{body}</office:body>"}  # fmt: skip
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p id="a">{words[0]} <b>{words[1]}</b></p></body></html>'
    return {"mimetype": "application/epub+zip", "META-INF/container.xml": "<x/>", "a/b.xhtml": page, "a/c.css": "p {}"}


def texts(tree: etree._Element) -> str:
    return "".join("".join(tree.itertext()).split())


@pytest.mark.parametrize("kind", ["docx", "pptx", "odt", "epub"])
@pytest.mark.parametrize("count", SIZES)
def test_archives(kind: str, count: int) -> None:
    draw = random.Random(kind)
    segments = 0
    for _ in range(count):
        data = archive(document_of(kind, draw))
        document = read_document(data, f"x.{kind}")
        same = unpacked(document.write([segment.inner for segment in document.segments]))
        assert same == unpacked(data)
        for segment in document.segments:
            assert all(0 <= tag.at <= len(segment.text) for tag in segment.tags)
        found = [shuffled(segment, draw) for segment in document.segments]
        pairs = zip(document.segments, found, strict=True)
        written = unpacked(document.write([place_tags(*pair) for pair in pairs], "fr"))
        assert list(written) == list(same)
        changed = [name for name in written if written[name] != same[name]]
        assert set(changed) <= {"word/document.xml", "ppt/slides/slide1.xml", "content.xml", "a/b.xhtml"}
        for name in changed:
            before, after = (etree.fromstring(one[name], PARSER) for one in (same, written))
            counted = [
                Counter(str(one.tag) for one in tree.iter() if not re.search(r"}(r|t|rPr|b|i|proofErr)$", str(one.tag)))
                for tree in (before, after)
            ]
            assert counted[0] == counted[1]
            for control in after.iter("{*}sdt"):
                assert [one.tag.rpartition("}")[2] for one in control] == ["sdtPr", "sdtContent"]
            for paragraph in after.iter("{*}p"):
                if kind in ("docx", "pptx"):
                    assert all(one.getparent().tag.endswith("}r") for one in paragraph.iter("{*}t"))
                    assert not (paragraph.text or "").strip()
                    assert not any((one.tail or "").strip() for one in paragraph.iter())
            words = "".join("".join(one.text.split()) for one in found)
            assert Counter(words) - Counter(texts(after)) == Counter()
        segments += len(found)
    assert segments > count / 2


BREAKS = {  # an indent, a line break, a member, and a paragraph with them
    "odt": ("<text:tab/>", "<text:line-break/>", "content.xml", "<text:p>{0}One ends.{1}Two ends.{1}</text:p>"),
    "docx": ("<w:tab/>", "<w:br/>", "word/document.xml",
             "<w:p><w:r>{0}<w:t>One ends.</w:t>{1}<w:t>Two ends.</w:t>{1}</w:r></w:p>"),
    "pptx": ("<a:fld><a:t>1</a:t></a:fld>", "<a:br><a:rPr/></a:br>", "ppt/slides/s.xml",
             "<a:p>{0}<a:r><a:t>One ends.</a:t></a:r>{1}<a:r><a:t>Two ends.</a:t></a:r>{1}</a:p>"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BREAKS)
def test_a_line_break_ends_a_word_and_an_indent_stays(kind: str) -> None:
    tab, line, member, text = BREAKS[kind]
    written = text.format(tab, line)
    data = archive({member: f'<x xmlns:a="urn:a" xmlns:text="urn:t" xmlns:w="urn:w">{written}</x>'})
    document = read_document(data, f"x.{kind}")
    (segment,) = document.segments
    assert segment.text == "One ends. Two ends."
    found = shuffled(segment, random.Random(1))._replace(text="un deux trois", links=[], sentences=[])
    after = unpacked(document.write([place_tags(segment, found)]))[member].decode()
    order = re.findall(f"{tab}|{line}|un|deux|trois", after)
    assert [one for one in order if "<" not in one] == ["un", "deux", "trois"]
    assert (order[0], order[-1], order.count(line)) == (tab, line, 2)


@pytest.mark.parametrize("styles", ["b i", "b", "i b", " b", "i"])
def test_every_slide_is_translated_and_words_keep_their_style(styles: str) -> None:
    """`styles`: of the two words."""
    names = (*styles.split(" "), "")[:2]
    runs = [
        f"<a:r>{f'<a:rPr><a:{name}/></a:rPr>' if name else ''}<a:t>{word}</a:t></a:r>"
        for name, word in zip(names, ("Two ", "words"), strict=True)
    ]
    slide = f'<x xmlns:a="urn:a"><a:p>{"".join(runs)}</a:p></x>'
    document = read_document(archive({f"ppt/slides/slide{number}.xml": slide for number in (1, 2, 3)}), "x.pptx")
    assert [segment.text for segment in document.segments] == ["Two words"] * 3
    inner = aligned(document.segments[0], "Deux mots", "0-0 1-1")
    written = unpacked(document.write([inner] * 3))
    assert len(written) == 3
    for data in written.values():
        found = [
            (one.findtext("{*}t"), *(style.tag[-1] for style in one.iterfind("{*}rPr/*")))
            for one in etree.fromstring(data).iter("{*}r")
            if one.findtext("{*}t").strip()
        ]
        assert [(text.strip(), *style) for text, *style in found] == [
            (word, *filter(None, [name])) for word, name in zip(("Deux", "mots"), names, strict=True)
        ]


def test_words_around_a_link_keep_the_properties_of_the_paragraph() -> None:
    run = "<w:r><w:rPr><w:b/></w:rPr><w:t>{0}</w:t></w:r>"
    link = f"<w:hyperlink>{run.format('this')}</w:hyperlink>"
    text = f'<x xmlns:w="urn:w"><w:p>{run.format("See ")}{link}{run.format(" now.")}</w:p></x>'
    document = read_document(archive({"word/document.xml": text}), "x.docx")
    inner = aligned(document.segments[0], "Voyez ceci maintenant.", "0-0 1-1 2-2")
    after = etree.fromstring(unpacked(document.write([inner]))["word/document.xml"])
    found = [
        (one.getparent().tag.rpartition("}")[2], one.findtext("{*}t"), one.find("{*}rPr/{*}b") is not None)
        for one in after.iter("{*}r")
    ]
    assert [(tag, text.strip(), bold) for tag, text, bold in found] == [
        ("p", "Voyez", True), ("hyperlink", "ceci", True), ("p", "maintenant.", True),
    ]  # fmt: skip


CONTROL = (
    "<w:p><w:r><w:t>It is </w:t></w:r>"
    "<w:sdt><w:sdtPr><w:id/></w:sdtPr> <w:sdtContent><w:r><w:t>very old</w:t></w:r></w:sdtContent></w:sdt>"
    "<w:r><w:t>.</w:t></w:r></w:p>"
)


def test_the_text_of_content_controls_is_translated() -> None:
    block = f"<w:sdt><w:sdtPr><w:docPartObj/></w:sdtPr><w:sdtContent>{CONTROL}</w:sdtContent></w:sdt>"
    empty = "<w:p><w:sdt><w:sdtPr/></w:sdt><w:sdt><w:sdtContent/></w:sdt></w:p>"
    text = f'<x xmlns:w="urn:w">{CONTROL}{block}{empty}</x>'
    document = read_document(archive({"word/document.xml": text}), "x.docx")
    assert [segment.text for segment in document.segments] == ["It is very old."] * 2
    inner = aligned(document.segments[0], "Il est très vieux.", "0-0 1-1 2-2 3-3")
    after = unpacked(document.write([inner, inner]))["word/document.xml"].decode()
    assert (
        len(re.findall(r"</w:sdtPr> <w:sdtContent><w:r><w:t[^>]*>très vieux</w:t></w:r></w:sdtContent></w:sdt>", after))
        == 2
    )
    assert empty in after


def control_of(draw: random.Random, depth: int = 0) -> str:
    """Controls within each other, as they should be and as nobody writes them."""
    inner = "".join(control_of(draw, depth + 1) for _ in range(draw.randint(0, 2))) if depth < 4 else ""
    return draw.choice((
        "<w:r><w:t>some words</w:t></w:r>",
        f"<w:sdt><w:sdtPr/> <w:sdtContent>{inner}</w:sdtContent></w:sdt>",
        f"<w:sdt><w:sdtContent>{inner}</w:sdtContent>x<w:sdtContent/></w:sdt>",
        f"<w:sdt>{inner}</w:sdt>",
        f"<w:sdtContent>{inner}</w:sdtContent>",
        f"<w:hyperlink>{inner}</w:hyperlink>",
    ))  # fmt: skip


def test_a_break_in_a_run_of_its_own_and_a_note_part_words_as_they_should() -> None:
    def run(text: str) -> str:
        return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'

    between = "<w:r><w:rPr><w:b/></w:rPr><w:br/></w:r>", "<w:r><w:tab/></w:r>"
    line = run("one") + between[0] + run("two") + between[1] + run("soft\u00adly \u200fthree")
    body = f"<w:document {W}><w:body><w:p>{line}</w:p></w:body></w:document>"
    (segment,) = read_document(archive({"word/document.xml": body}), "x.docx").segments
    assert segment.text == "one two softly three"
    assert [tag.kind for tag in segment.tags] == ["break", "break"]
    page = '<x xmlns:text="t"><text:p>one<text:note>1</text:note> two</text:p></x>'
    (segment,) = read_document(archive({"content.xml": page}), "x.odt").segments
    assert aligned(segment, "UN DEUX", "0-0 1-1") == "UN<text:note>1</text:note> DEUX"


def test_controls_of_any_form_leave_a_document_that_can_be_read() -> None:
    draw = random.Random(3)
    for _ in range(300):
        text = f'<x xmlns:w="urn:w"><w:p>{"".join(control_of(draw) for _ in range(4))}</w:p></x>'
        data = archive({"word/document.xml": text})
        document = read_document(data, "x.docx")
        assert unpacked(document.write([one.inner for one in document.segments])) == unpacked(data)
        after = document.write([place_tags(one, shuffled(one, draw)) for one in document.segments])
        etree.fromstring(unpacked(after)["word/document.xml"])


def test_real_text_of_an_installed_package() -> None:
    import docutils

    path = Path(docutils.__file__).parent / "writers" / "odf_odt" / "styles.odt"
    data = path.read_bytes()
    document = read_document(data, "styles.odt")
    written = unpacked(translate(document, random.Random(2)))
    assert list(written) == list(unpacked(data))
    etree.fromstring(written["content.xml"], PARSER)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"../word/document.xml": "<x/>"}, "names of places outside it"),
        ({"/etc/passwd": "x"}, "names of places outside it"),
        ({"word/document.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'}, "document type"),
        ({"word/document.xml": "<x>"}, "is damaged"),
        ({"word/document.xml": "<x>" + " " * (1 << 21) + "</x>"}, "more than 10000 members or 1 MiB"),
    ],
)
def test_archives_of_strangers(files: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST", 1 << 20)
    with pytest.raises(DataError) as error:
        read_document(archive(files), "x.docx")
    assert expected in str(error.value)
    assert str(error.value).startswith("x.docx: ")


def test_an_encrypted_archive_is_refused() -> None:
    data = bytearray(archive({"word/document.xml": "<x/>"}))
    for head, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flags of the member, in both of its heads
        data[data.index(head) + flags] |= 1
    with pytest.raises(DataError, match=r"x\.docx: the archive is encrypted; save it without a password"):
        read_document(bytes(data), "x.docx")


def test_a_document_with_a_password_is_named() -> None:
    with pytest.raises(DataError, match="has a password"):
        read_document(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), "x.docx")


def test_members_that_are_not_translated_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"word/document.xml": "<w:document/>", "word/media/picture": "x" * (1 << 22)}
    data = archive(files)
    monkeypatch.setattr(archives, "LARGEST_TEXT", 1 << 10)
    tracemalloc.start()
    text = archives.unpack(data, archives.DOCX)
    copied = archives.pack(data, text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert unpacked(copied) == unpacked(data)
    assert peak < 1 << 21
