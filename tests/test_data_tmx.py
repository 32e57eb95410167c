"""Translation memories: unit n is line n, codes are no words, languages are found, and hostile XML does nothing."""

import bz2
import gzip
import lzma
import os
import socket
import tracemalloc
from contextlib import suppress
from itertools import islice
from xml.sax.saxutils import escape

import pytest
import small
from commands import regard as command
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.api.training import gather
from regard.config import load_toml
from regard.data.corpus import Pair, find_corpus, open_corpus, translation_memory
from regard.data.pairs import PairEncoding
from regard.data.prepare import prepare
from regard.data.settings import DataConfig
from regard.data.tmx import choose_languages, read_units
from regard.errors import ConfigError, DataError
from regard.text.lines import READING

DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'


def unit(**texts):
    """A unit; the text in each language is XML, and en_GB stands for en-GB."""
    variants = (f'<tuv xml:lang="{tag.replace("_", "-")}"><seg>{text}</seg></tuv>' for tag, text in texts.items())
    return f"<tu><prop>not text</prop>\n  {' '.join(variants)}</tu>"


def memory(*units, srclang="en", doctype=DOCTYPE, encoding="UTF-8"):
    header = f'<header srclang="{srclang}" segtype="sentence"><note>not text</note></header>'
    body = "\n".join(units)
    return f'<?xml version="1.0" encoding="{encoding}"?>\n{doctype}<tmx version="1.4">{header}<body>{body}</body></tmx>'


@pytest.fixture
def write(tmp_path):
    """Write a memory and say where it is."""

    def write(content, name="memory.tmx"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def texts(path):
    return [unit.texts for unit in read_units(path)]


def refused(sentence):
    return pytest.raises(DataError, match=f"(?s)^[^\n]*(?:{sentence})[^\n]*[.]$")


# What a segment says.


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("plain &amp; &lt;simple&gt; &#233;", "plain & <simple> é"),
        ("", ""),
        ("<hi>all <hi>of</hi> it</hi> stays", "all of it stays"),
        ('a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> word', "a bold word"),
        ("<it>x</it>one<ph>y</ph> two<ut>z</ut>", "one two"),
        ("see <ph>&lt;img alt='<sub>a <hi>cat</hi></sub>'&gt;</ph>here", "see here"),
        ("<bpt>a<sub>b<ph>c</ph>d</sub>e</bpt>word", "word"),
        ("<unheard-of>kept</unheard-of>", "kept"),
        ("<![CDATA[a < b]]><!-- not text --> c", "a < b c"),
        ("one\ntwo\tthree&#10;four&#13;&#9;five", "one two three four five"),
        ("  spaces \u00a0 stay\u2028here  ", "  spaces \u00a0 stay\u2028here  "),
    ],
)
def test_text_is_kept_and_codes_are_dropped(write, segment, text):
    assert texts(write(memory(unit(en=segment, fr="x")))) == [{"en": text, "fr": "x"}]


XML = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\x7f\ufffe\uffff"))


@given(pairs=st.lists(st.tuples(XML, XML), min_size=1, max_size=20))
@example(pairs=[("a", "b")] * 3_000)  # more than expat is given at once
@settings(max_examples=60)
def test_unit_n_is_line_n_whatever_is_in_it(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("any") / "memory.tmx"
    path.write_bytes(memory(*(unit(en=escape(left), fr=escape(right)) for left, right in pairs)).encode())
    expected = [Pair(line, *pair) for line, pair in enumerate(pairs, start=1)]
    assert list(translation_memory((str(path),), "en", "fr")) == expected


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1", "windows-1252"])
def test_every_encoding_plain_or_packed(write, encoding, pack):
    named = {"utf-8-sig": "utf-8", "utf-16-le": "utf-16"}.get(encoding, encoding)
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    content = (mark + memory(unit(en="a coffee", fr="un café"), encoding=named)).encode(encoding)
    assert texts(write(pack(content))) == [{"en": "a coffee", "fr": "un café"}]


def test_old_and_odd_memories(write):
    old = '<tu><tuv lang="EN_us"><seg>a</seg></tuv><tuv lang="fr"><seg>b</seg></tuv></tu>'
    assert texts(write(f"<tmx><header/><body>{old}</body></tmx>")) == [{"en-us": "a", "fr": "b"}]
    twice = '<tu><tuv xml:lang="en"><seg>first</seg></tuv><tuv xml:lang="en"><seg>second</seg></tuv><tuv/></tu>'
    assert texts(write(memory(twice, "<tu/>"))) == [{"en": "first"}, {}]


# Languages.


@pytest.mark.parametrize(
    ("languages", "pairs"),
    [
        (("en", "fr"), [("general", "fr"), ("British", "fr"), ("American", "fr")]),
        (("EN", "FR"), [("general", "fr"), ("British", "fr"), ("American", "fr")]),
        (("en-GB", "fr"), [("British", "fr"), ("British", "fr"), None]),
        (("fr-CA", "en_us"), [("fr", "general"), None, ("fr", "American")]),
        (("en-US", "en-GB"), [("general", "British"), None, None]),
        (("en", "en-GB"), [("general", "British"), None, None]),  # a text is not its own translation
    ],
)
def test_an_exact_language_goes_before_its_kin(write, languages, pairs):
    path = write(
        memory(
            unit(en_GB="British", en="general", fr="fr"),
            unit(en_GB="British", fr="fr"),
            unit(en_US="American", fr="fr"),
        )
    )
    found = list(translation_memory((path,), *languages))
    assert [None if pair.unfit else (pair.source, pair.target) for pair in found] == pairs
    assert [pair.line for pair in found] == [1, 2, 3]


def test_two_languages_need_no_names(write):
    there = write(memory(unit(fr="b", en="a"), unit(en_GB="c", fr_FR="d"), srclang="EN-us"), "there.tmx")
    back = write(memory(unit(en="a", fr="b"), srclang="fr"), "back.tmx")
    kin = write(memory(unit(en_GB="a", en_US="b"), srclang="en-US"), "kin.tmx")
    every = write(memory(unit(en="a", fr="b"), srclang="*all*"), "every.tmx")
    assert choose_languages([there], "", "") == ("en", "fr")
    assert choose_languages([back], "", "") == ("fr", "en")
    assert choose_languages([kin], "", "") == ("en-us", "en-gb")
    assert choose_languages([every], "", "en-GB") == ("fr", "en-GB")
    assert choose_languages([every], "fr", "") == ("fr", "en")
    assert choose_languages(["not read"], "de", "en") == ("de", "en")
    for files in ([every], [there, back]):
        with refused(r"are ambiguous; .*holds en, .*fr.*: set data.source_language and data.target_language to two"):
            choose_languages(files, "", "")


def test_a_wrong_language_is_refused_and_those_of_the_memory_are_listed(write):
    path = write(memory(unit(en="a", fr="b"), unit(de="c")))
    for names in (("", ""), ("en", ""), ("", "it")):
        with refused("holds de, en, fr: set data.source_language"):
            choose_languages([path], *names)
    with refused("No unit has texts in both en and it; .*memory.tmx holds de, en, fr: set data.source_language"):
        list(translation_memory((path,), "en", "it"))
    with refused("No unit has texts in both de and en"):
        list(translation_memory((path,), "de", "en"))


def test_the_run_knows_the_languages_of_its_memory(write):
    path = write(memory(unit(en_GB="a", fr="b")))
    assert {"tmx": [path], "source_language": "en", "target_language": "fr"}.items() <= gather(
        None, "cho", None, [], tmx=[path]
    )["data"].items()
    named = gather(None, "cho", None, [f"data.tmx={path}", "data.source_language=fr"])["data"]
    assert (named["source_language"], named["target_language"]) == ("fr", "en")
    with refused("more than 150 characters, which is not a translation unit"):
        gather(None, "cho", None, ["data.max_line=150"], tmx=[path])  # languages are read as the corpus is


# A corpus like any other.


def test_a_memory_is_prepared_as_the_same_pairs_in_a_table_are(write, tmp_path):
    rows = [(f"a cat {number}", f"un chat {number}") for number in range(40)]
    halves = [
        write(memory(*(unit(en=source, fr=target) for source, target in half)), f"{name}.tmx")
        for name, half in (("one", rows[:23]), ("two", rows[23:]))
    ]
    table = write("".join(f"{source}\t{target}\n" for source, target in rows), "rows.tsv")
    made = [
        prepare(PairEncoding(DataConfig(**given, subwords="word", held_out=3)), tmp_path / name)
        for name, given in (("memory", {"tmx": tuple(halves)}), ("table", {"tsv": table}))
    ]
    assert made[0].train.lines.tolist() == made[1].train.lines.tolist()
    assert made[0].shown == made[1].shown
    assert made[0].vocabulary.fingerprint == made[1].vocabulary.fingerprint
    assert made[0].fingerprint != made[1].fingerprint


def test_units_without_a_language_are_counted(write, tmp_path):
    units = [unit(en=f"a cat {number}", fr=f"un chat {number}") for number in range(20)]
    units[4] = units[9] = unit(en="only")
    units[6] = unit(de="nur", fr="seul")
    units[7] = "<tu/>"
    units[8] = unit(en="a", fr=" ")
    path = write(memory(*units))
    config = DataConfig(tmx=path, dev_tmx=path, source_language="en", target_language="fr", subwords="word")
    made = prepare(PairEncoding(config), tmp_path / "run")
    assert made.tallies[0].total == 20
    assert made.tallies[0].lines == {"no fr": [5, 10], "no en": [7, 8], "empty": [9]}
    assert "15 of 20 pairs kept; 2 dropped: no fr (unit 5, 10); 2 dropped: no en (unit 7, 8)" in str(made.tallies[0])
    assert str(made.tallies[1]) == str(made.tallies[0])
    assert str(prepare(PairEncoding(config), tmp_path / "run").tallies[0]) == str(made.tallies[0])


def test_the_fingerprint_follows_content_and_languages(write):
    one, two = write(memory(unit(en="a", fr="b")), "one.tmx"), write(memory(unit(en="a", fr="c")), "two.tmx")
    given = [((one,), "en", "fr"), ((one,), "fr", "en"), ((two,), "en", "fr"), ((one, two), "en", "fr")]
    assert len({translation_memory(*each).fingerprint() for each in given}) == 4


def test_a_memory_is_read_a_piece_at_a_time(write):
    path = write(memory(*(unit(en=f"sentence {number} " * 20, fr="x") for number in range(8_000))))
    assert os.path.getsize(path) > 2_800_000
    tracemalloc.start()
    assert sum(1 for _ in translation_memory((path,), "en", "fr")) == 8_000
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert len(list(islice(read_units(path), 3))) == 3  # and may be left in the middle


# What is refused.


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "cannot be read as TMX, .* <tmx>: no element found in line 1; export"),
        ("just\ttext", "cannot be read as TMX"),
        ("<html><body/></html>", "root element must be <tmx>; got <html>"),
        (
            memory(unit(en="a"), unit(en="b"))[:-30],
            "is broken in or after unit 2: .* in line 6; it must be complete XML",
        ),
        (memory(unit(en="a"), unit(en="<b>"), unit(en="c")), "is broken in or after unit 2: mismatched tag in line 6"),
        (memory(unit(en="\xff")).encode("latin-1"), "unit 1: not well-formed .*encoding that its first line names"),
        (memory(encoding="klingon"), "unknown encoding: klingon; export the memory again, as TMX in UTF-8"),
        (memory(encoding="shift_jis"), "multi-byte encodings are not supported; export"),
        (
            gzip.compress(memory(unit(en="a" * 99)).encode())[:-20],
            "is incomplete or damaged \\(Compressed file ended",
        ),
        (memory(), "has no sentence in any language; a memory needs units"),
        (memory("<tu/>"), "has no sentence in any language"),
        (memory(unit(en="a&nbsp;b")), "unit 1: &nbsp; is not defined, since no DTD is fetched; write the character"),
        (memory(unit(en="a&nbsp;b"), doctype=""), "unit 1: undefined entity"),
        (memory(unit(en="a <seg>b</seg> c")), "unit 1: a <seg> inside a <seg>, which is not a translation unit"),
    ],
)
def test_bad_memories_are_refused_in_one_sentence(write, content, sentence):
    path = write(content)
    with refused(sentence):
        list(translation_memory((path,), "en", "fr"))
    with refused(sentence):
        choose_languages([path], "", "")


def declaring(declared, used="a"):
    return memory(unit(en=used, fr="b"), doctype=f"<!DOCTYPE tmx [{declared}]>")


LAUGHS = '<!ENTITY l0 "ha">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
HOSTILE = {
    "a billion laughs": declaring(LAUGHS, "&l9;"),
    "one long entity": declaring(f'<!ENTITY a "{"a" * 100_000}">', "&a;" * 1_000),
    "an unused entity": declaring('<!ENTITY a "b">'),
    "a file": declaring('<!ENTITY a SYSTEM "file:///etc/passwd">', "&a;"),
    "an address": declaring('<!ENTITY a SYSTEM "http://localhost:9/">', "&a;"),
    "a parameter entity": declaring('<!ENTITY % a SYSTEM "http://localhost:9/"> %a;'),
    "long defaults": declaring(f'<!ATTLIST a b CDATA "{"a" * 100_000}">', "<a/>" * 1_000),
    "depth": "<tmx>" + "<a>" * 1_000_000,
    "a long attribute": f'<tmx a="{"a" * 2 * READING.max_line}"/>',
    "a long comment": f"<tmx><!--{'a' * 2 * READING.max_line}--></tmx>",
    "a long segment": memory(unit(en="a" * 2 * READING.max_line)),
    "many texts": memory("<tu>" + "".join(f'<tuv xml:lang="l{n}"><seg/></tuv>' for n in range(100_000)) + "</tu>"),
    "many names": "<tmx>" + "".join(f"<a{n}/>" for n in range(100_000)),
}


@pytest.mark.parametrize(
    ("name", "pack"),
    [*((name, bytes) for name in HOSTILE), ("a billion laughs", gzip.compress), ("a long segment", gzip.compress)],
)
def test_hostile_xml_is_refused_before_it_does_anything(write, monkeypatch, name, pack):
    path = write(pack(HOSTILE[name].encode()))
    monkeypatch.setattr(socket, "socket", None)
    tracemalloc.start()
    wanted = r"the DOCTYPE declares .* write the characters themselves|.* remove (?:it|them) from the file"
    with pytest.raises(DataError, match=rf"memory.tmx, unit [01]: (?:{wanted})\.$"):
        list(read_units(path))
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("address", ["tmx14.dtd", "/etc/passwd", "http://localhost:9/tmx14.dtd"])
def test_a_dtd_is_accepted_and_never_fetched(write, monkeypatch, address):
    path = write(memory(unit(en="a", fr="b"), doctype=f'<!DOCTYPE tmx SYSTEM "{address}">'))
    write('<!ENTITY nbsp " ">', "tmx14.dtd")  # beside the memory
    monkeypatch.chdir(os.path.dirname(path))
    monkeypatch.setattr(socket, "socket", None)
    assert texts(path) == [{"en": "a", "fr": "b"}]


@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_memories_raise_typed_errors_only(tmp_path_factory, junk, place):
    whole = memory(unit(en="a <ph>x</ph> cat", fr="un chat")).encode()
    path = tmp_path_factory.mktemp("junk") / "memory.tmx"
    path.write_bytes(whole[:place] + junk + whole[place + len(junk) :])
    with suppress(DataError):
        list(read_units(str(path)))


def test_a_memory_is_given_alone_and_under_its_own_name(write, tmp_path):
    path = write(memory(unit(en="a", fr="b")))
    with refused("Both tsv and tmx are set"):
        open_corpus(DataConfig(tsv=path, tmx=path, source_language="en", target_language="fr"))
    with refused("There is no file .*nowhere.tmx; check the path"):
        open_corpus(DataConfig(tmx=str(tmp_path / "nowhere.tmx")))
    for wrong in ({"source": "m.tmx", "target": "m.tmx"}, {"tsv": ("m.tmx.gz",)}):
        with pytest.raises(ConfigError, match=r"A TMX file holds both sides of a corpus: set only data\.tmx"):
            find_corpus(DataConfig(**wrong))


# The command.


def test_from_a_memory_to_a_translator(write, tmp_path):
    units = [*(unit(en=f"cat {number}", fr=f"chat {number}") for number in range(30)), unit(en="x")]
    path = write(memory(*units, encoding="UTF-16").encode("utf-16"))
    model = ["--model", "bahdanau", "--preset", "tiny", *small.MODELS["bahdanau"]]
    given = ["--tmx", path, *model, "data.subwords=word", "train.steps=2"]
    done = command("train", "--out", tmp_path / "run", *given, folder=tmp_path / "log")
    assert done.code == 0, done.err
    assert "27 of 31 pairs kept, 3 held out; 1 dropped: no fr (unit 31)" in done.err
    data = load_toml(tmp_path / "run" / "config.toml")["data"]
    assert (data["source_language"], data["target_language"]) == ("en", "fr")
    again = command("train", "--out", tmp_path / "run", *given, "train.steps=3", folder=tmp_path / "log")
    assert "resumed at step 2" in again.err
    wrong = [*given, "data.source_language=en", "data.target_language=it"]
    bad = command("train", "--out", tmp_path / "bad", *wrong, folder=tmp_path / "log")
    assert bad.code == 2
    assert "regard: No unit has texts in both en and it;" in bad.err
    assert not (tmp_path / "bad").exists()
