"""Line n stays line n, whatever is in it; every pair is accounted for."""

import bz2
import gzip
import io
import lzma
import os
import random
import threading
import tracemalloc
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import until

from regard.cli.text import batches
from regard.corpora import Example
from regard.data.corpus import open_corpus, pairs_in_memory, parallel_files, tab_separated
from regard.data.documents import document_files
from regard.data.encoding import Tally
from regard.data.prepare import choose_held_out, sentence_key
from regard.data.settings import DataConfig, DocumentDataConfig
from regard.data.tmx import read_units
from regard.errors import DataError
from regard.sealed import digest, read_small, write_atomically
from regard.text import lines as files
from regard.text.lines import READING, Reading, is_blank, read_files, read_lines, read_whole
from regard.text.normalise import FORMS, rewrite, rewrite_all

SPLITTERS = [
    "\x0b",
    "\x0c",
    "\r",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
]  # and "\n", the only one that counts
STRANGE = [*SPLITTERS, "\0", "\u200d", "\u202e", "\ufeff", "\u00a0", "\u3000", "\t", '"', "😀", "e\u0301"]


def test_line_n_stays_line_n(tmp_path):
    lines = [f"{index} {mark}x{mark}y" for index, mark in enumerate(STRANGE * 20)]
    path = tmp_path / "text"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert list(read_lines(path)) == lines
    assert len(lines) == path.read_bytes().count(b"\n")  # what wc -l says


@given(lines=st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=20))
@settings(max_examples=60, deadline=None)
def test_any_lines_come_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("any") / "text"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(line + "\r\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\rc\r\n", ["a", "b\rc"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\r", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"a\0b\n", ["a\0b"]),
        (b" \xc2\xa0a\xe3\x80\x80 \n", [" \u00a0a\u3000 "]),
    ],
)
def test_endings_marks_and_spaces(tmp_path, content, lines):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert list(read_lines(path)) == lines


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": files.zstd.compress}


@pytest.mark.parametrize("pack", [*PACKERS.values(), bytes])
def test_packed_files_are_read_by_content_not_by_name(tmp_path, pack):
    path = tmp_path / "text.en"
    path.write_bytes(pack("un\u2028deux\ntrois\n".encode()))
    assert list(read_lines(path)) == ["un\u2028deux", "trois"]


def test_a_zst_file_without_the_library_for_it_is_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_bytes(files.zstd.compress(b"word\n"))
    monkeypatch.setattr(files, "zstd", None)
    with pytest.raises(DataError, match=r"pip install 'regard\[zst\]', or compress them as gz"):
        list(read_lines(path))


@pytest.mark.parametrize("pack", PACKERS.values())
def test_a_damaged_packed_file_is_refused_in_one_sentence(tmp_path, pack):
    path = tmp_path / "text"
    packed = pack(b"".join(b"%d line\n" % number for number in range(5000)))
    path.write_bytes(packed[:-300])
    with pytest.raises(DataError, match=r"incomplete or damaged \(.+\); copy or download it again\.$"):
        list(read_lines(path))
    path.write_bytes(packed[:40])  # not one line of it can be read
    with pytest.raises(DataError, match=r"incomplete or damaged \((?!only 0).+\); copy or"):
        list(read_lines(path))


def test_a_long_file_that_is_cut_off_says_how_much_of_it_there_is(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"".join(b"%d line\n" % number for number in range(300_000)), 1)[:-300])
    with pytest.raises(DataError, match=r"incomplete or damaged \(only \d+ lines could be read: "):
        list(read_lines(path))


def test_invalid_bytes_are_refused_with_file_and_line_or_replaced(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"good\nba\xffd\ngood\n")
    with pytest.raises(DataError, match=r"text, line 2: byte 3 \(0xFF\) is not UTF-8.*data.invalid"):
        list(read_lines(path))
    assert list(read_lines(path, Reading(invalid="replace"))) == ["good", "ba\ufffdd", "good"]
    path.write_bytes(b"lone \\ud800 surrogate\n".replace(b"\\ud800", b"\xed\xa0\x80"))
    with pytest.raises(DataError, match="line 1"):
        list(read_lines(path))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_recognised(tmp_path, encoding):
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\nb\n".encode(encoding))
    with pytest.raises(DataError, match=r"text looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8 IN > OUT\.$"):
        list(read_lines(path))


@pytest.mark.parametrize("packed", ["plain", *PACKERS])
def test_a_line_has_a_limit_and_one_byte_less_is_read(tmp_path, packed):
    for ending in (b"", b"\n", b"\r\n"):
        content = b"ok\n" + b"a" * (200_001 - len(ending.strip(b"\n"))) + ending
        path = tmp_path / "text"
        path.write_bytes(PACKERS.get(packed, bytes)(content))
        assert len(list(read_lines(path, Reading(max_line=200_001)))) == 2
        with pytest.raises(DataError, match=r"text, line 2 has more than 200000 bytes \(data\.max_line\); break"):
            list(read_lines(path, Reading(max_line=200_000)))


@pytest.mark.parametrize("packed", PACKERS)
def test_a_packed_file_has_a_limit(tmp_path, packed):
    path = tmp_path / "text"
    path.write_bytes(PACKERS[packed](b"abc\n" * 50_000))
    assert sum(1 for _ in read_lines(path, Reading(max_unpacked=200_000))) == 50_000
    for read in (lambda reading: list(read_lines(path, reading)), lambda reading: list(read_units(str(path), reading))):
        with pytest.raises(DataError, match=r"text expands to more than 1000 bytes \(data\.max_unpacked\)"):
            read(Reading(max_unpacked=1000))
    assert len(read_whole(path, 200_000)) == 200_000
    with pytest.raises(DataError, match="has more than 0 MiB"):
        read_whole(path, 199_999)


def test_a_monstrous_line_is_refused_before_it_fills_the_memory(tmp_path):
    """A quarter of a gigabyte in a quarter of a megabyte: refused after `max_line` bytes, whatever reads it."""
    path = tmp_path / "bomb.gz"
    member = gzip.compress(b"a" * (1 << 22), 1)
    path.write_bytes(member * 64)
    readers = {
        "lines": lambda: list(read_lines(path)),
        "pairs": lambda: list(parallel_files((str(path),), (str(path),))),
        "tsv": lambda: list(tab_separated((str(path),))),
        "documents": lambda: list(document_files(DocumentDataConfig(), (str(path.rename(tmp_path / "b.tsv.gz")),))),
    }
    for read in readers.values():
        tracemalloc.start()
        with pytest.raises(DataError, match="line 1 has more than 4194304 bytes"):
            read()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 8 * READING.max_line


def test_standard_input_has_the_same_limit(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfok\r\n" + b"a" * 21)))
    arriving = batches(None, Reading(max_line=20))
    with pytest.raises(DataError, match="standard input, line 2 has more than 20 bytes"):
        list(arriving)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfok\r\n" + b"a" * 20 + b"\r")))
    assert list(batches(None, Reading(max_line=21))) == [["ok"], ["a" * 20 + "\r"]]


def test_missing_file_and_folder(tmp_path):
    for act in (
        lambda path: list(read_lines(path)),
        digest,
        lambda path: open_corpus(DataConfig(source=str(path), target=str(path))),
    ):
        with pytest.raises(DataError, match=r"There is no file .*nowhere; check the path"):
            act(tmp_path / "nowhere")
        with pytest.raises(DataError, match="is a folder; give a text file"):
            act(tmp_path)


def write(path, lines):
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


def test_unequal_counts_are_refused_with_both(tmp_path):
    long, short = write(tmp_path / "long", "abcde"), write(tmp_path / "short", "abc")
    with pytest.raises(DataError, match=r"long has 5 lines and .*short has 3; parallel files need the same"):
        list(parallel_files((long,), (short,)))
    with pytest.raises(DataError, match=r"short has 3 lines and .*long has 5;"):
        list(parallel_files((short,), (long,)))
    with pytest.raises(DataError, match="Each source file needs one target file; got 2 and 1"):
        list(parallel_files((long, short), (long,)))


def test_several_files_follow_one_another(tmp_path):
    one, two = write(tmp_path / "one", ["a", "b"]), write(tmp_path / "two", ["c"])
    assert [(pair.line, pair.source) for pair in parallel_files((one, two), (one, two))] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_files_that_are_unpacked_together_are_read_in_turn(tmp_path, pack):
    paths, lines = [], [f"{file} {line}" for file in range(9) for line in range(50)]
    ending = {bytes: "txt", gzip.compress: "gz", bz2.compress: "bz2"}[pack]
    for file in range(9):  # more than are unpacked at the same time
        paths.append(str(tmp_path / f"part.{file}.{ending}"))
        Path(paths[-1]).write_bytes(pack("".join(f"{file} {line}\n" for line in range(50)).encode()))
    digests: dict[str, str] = {}
    assert [line for one in read_files(paths, digests=digests) for line in one] == lines
    assert digests == {path: digest(path) for path in paths}
    Path(paths[2]).write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"part\.2\.\w+, line 1: byte 1 \(0xFF\) is not UTF-8"):
        [list(one) for one in read_files(paths)]
    before, begun = threading.active_count(), dict[str, str]()
    reading = read_files(paths, digests=begun)
    assert next(next(reading)) == "0 0"
    if pack is bytes:
        assert paths[1] not in begun, "a plain file is not read ahead"
    else:
        assert threading.active_count() > before + 1, "the next files are unpacked meanwhile, each in its thread"
        until(lambda: paths[1] in begun)
    reading.close()
    assert threading.active_count() == before, "a reader that is closed leaves no thread behind"


def test_a_silent_pipe_does_not_hide_the_error_of_the_file_before_it(tmp_path):
    bad, pipe = tmp_path / "bad", tmp_path / "pipe.gz"
    bad.write_bytes(b"\xff\n")
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="is not UTF-8"):
        [list(one) for one in read_files([str(bad), str(pipe)])]


def test_tsv_keeps_quotes_and_refuses_a_line_without_tab(tmp_path):
    rows = [('"open', 'never "closed'), ('""', "'"), ('a "b" c', '"""'), ("x\ry", "z\u2028\u0085")]
    path = write(tmp_path / "rows", ["\t".join([*row, "third", '"']) for row in rows * 50])
    pairs = list(tab_separated((path,)))
    assert [(pair.source, pair.target) for pair in pairs] == rows * 50
    assert [pair.line for pair in pairs] == list(range(1, 201))
    with pytest.raises(DataError, match="line 2: expected source, tab and target"):
        list(tab_separated((write(tmp_path / "bad", ["a\tb", "no tab"]),)))
    big = '"' * 100_000
    assert [(pair.source, pair.target) for pair in tab_separated((write(tmp_path / "big", [f"{big}\t{big}"]),))] == [
        (big, big)
    ]


@pytest.mark.slow
def test_a_hundred_thousand_strange_pairs_stay_side_by_side(tmp_path):
    draw = random.Random(8)

    def side(name, number):
        return f"{name}{number} {draw.choice(STRANGE[:-1]).replace(chr(9), ' ')}x{draw.choice(STRANGE[:9])}y"

    with (
        open(tmp_path / "a", "w", encoding="utf-8", newline="") as first,
        open(tmp_path / "b", "w", encoding="utf-8", newline="") as second,
        open(tmp_path / "ab", "w", encoding="utf-8", newline="") as table,
    ):
        for number in range(100_000):
            left, right = side("a", number), side("b", number)
            first.write(left + ("\r\n" if number % 3 else "\n"))
            second.write(right + "\n")
            table.write(f"{left}\t{right}\n")
    names = (str(tmp_path / "a"),), (str(tmp_path / "b"),)
    for corpus in (parallel_files(*names), tab_separated((str(tmp_path / "ab"),))):
        count = 0
        for number, pair in enumerate(corpus):
            assert pair.source.startswith(f"a{number} ")
            assert pair.target.startswith(f"b{number} ")
            count += 1
        assert count == 100_000


def test_one_side_only_or_two_kinds_are_refused(tmp_path):
    path = write(tmp_path / "a", ["a\tb"])
    with pytest.raises(DataError, match=r"Only data\.source is set"):
        open_corpus(DataConfig(source=path))
    with pytest.raises(DataError, match="Both tsv and source/target"):
        open_corpus(DataConfig(source=path, target=path, tsv=path))


def test_fingerprints_follow_the_content(tmp_path):
    one, two = write(tmp_path / "one", ["a", "b"]), write(tmp_path / "two", ["a", "c"])
    prints = [parallel_files((one,), (two,)).fingerprint(), parallel_files((two,), (one,)).fingerprint()]
    prints += [parallel_files((one,), (one,)).fingerprint(), tab_separated((one,)).fingerprint()]
    prints += [
        pairs_in_memory([Example("a", "b", ())]).fingerprint(),
        pairs_in_memory([Example("ab", "", ())]).fingerprint(),
    ]
    assert len(set(prints)) == len(prints)
    write(tmp_path / "copy", ["a", "b"])
    assert parallel_files((str(tmp_path / "copy"),), (two,)).fingerprint() == prints[0]


def test_report_counts_and_remembers_the_first_lines():
    report = Tally(kept=3, held_out=2)
    for line in range(10, 20):
        report.drop("too long", line)
    report.drop("empty", 4)
    assert report.total == 16
    assert "3 of 16 pairs kept, 2 held out; 10 dropped: too long (line 10, 11, 12, 13, 14, ...)" in str(report)
    assert "1 dropped: empty (line 4)" in str(report)


@given(
    sources=st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), min_size=2, max_size=300), count=st.integers(1, 40)
)
@settings(deadline=None)
def test_held_out_sentences_are_whole_and_few(sources, count):
    keys = [sentence_key(source, 7) for source in sources]
    if len(set(sources)) < 2:
        with pytest.raises(DataError, match="all with the same text, so none can be held out"):
            choose_held_out(keys, count)
        return
    chosen = choose_held_out(keys, count)
    assert choose_held_out(reversed(keys), count) == chosen  # the order of the file does not matter
    held = [source for source, key in zip(sources, keys, strict=True) if key in chosen]
    counts = Counter(sources)
    assert 1 <= len(held) < len(sources)
    assert len(held) - max(counts[source] for source in held) < max(1, min(count, len(sources) // 10))
    assert all(counts[source] == Counter(held)[source] for source in held)


def test_blank_is_white_space_alone():
    assert all(is_blank(text) for text in ("", " ", "\t \u00a0\u3000\u2028\r"))
    assert not any(is_blank(text) for text in ("\0", "\u200d", "."))


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    form=st.sampled_from(["none", "nfc", "nfkc"]),
    lowercase=st.booleans(),
)
def test_rewriting_knows_where_each_character_came_from(text, form, lowercase):
    written = rewrite(text, form, lowercase)
    expected = text if form == "none" else unicodedata.normalize(form.upper(), text)
    assert written.text == ("".join(map(str.lower, expected)) if lowercase else expected)
    if written.starts is not None and written.ends is not None:
        assert len(written.starts) == len(written.ends) == len(written.text)
        assert written.starts == sorted(written.starts)
        for place, (start, end) in enumerate(zip(written.starts, written.ends, strict=True)):
            assert 0 <= start < end <= len(text)
            assert written.text[place] in rewrite(text[start:end], form, lowercase).text
    else:
        assert len(written.text) == len(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "The ‘new’ Treaty, the 'new' one, “new”, ‚new‘ and „new“",
            'The "new" Treaty, the "new" one, "new", "new" and "new"',
        ),
        ("« L’accord », dit-il – «oui»", '" L\'accord ", dit-il - "oui"'),
        ("Er sagte »ja« und ging.", 'Er sagte "ja" und ging.'),
        ("'I don't know', the Members' debate isn't over", "\"I don't know\", the Members' debate isn't over"),
        ("'In the past, it was so.", '"In the past, it was so.'),
        ("It would be nice to have friends!'", 'It would be nice to have friends!"'),
        ("She said: 'You must", 'She said: "You must'),
        ("the dogs' years in the '90s and the cats' years", "the dogs' years in the '90s and the cats' years"),
        (
            "'Tis the boys' turn, 't is Hans' huis, rock 'n' roll",
            "'Tis the boys' turn, 't is Hans' huis, rock 'n' roll",
        ),
        ("l' ensemble, aujourd’hui, l'été", "l' ensemble, aujourd'hui, l'été"),
        ("the man—who was old—left – for good —", "the man—who was old—left - for good -"),
    ],
)
def test_punctuation_becomes_ascii_in_its_place(text, wanted):
    assert rewrite(text, "punctuation") == (wanted, None, None)
    assert rewrite(wanted, "punctuation").text == wanted
    assert rewrite(text, "punctuation", lowercase=True).text == wanted.lower()


@given(st.text(st.sampled_from("ab A.,:'’‘“”«» é1-–—\u00a0")))
def test_punctuation_keeps_the_number_of_characters_and_words(text):
    written = rewrite(text, "punctuation").text
    assert len(written) == len(text)
    assert [len(word) for word in written.split()] == [len(word) for word in text.split()]
    assert not set(written) & set("’‘“”«»–\u00a0")


@given(st.text(st.sampled_from("ab A.,:'’‘“”«» é1-–—\u00a0")))
def test_quotes_leaves_what_a_french_text_needs(text):
    written = rewrite(text, "quotes").text
    assert not set(written) & set("’‘“”")
    kept = "«»–—\u00a0"
    assert [(at, mark) for at, mark in enumerate(written) if mark in kept] == [
        (at, mark) for at, mark in enumerate(text) if mark in kept
    ]


def test_quotes_differs_from_punctuation_in_these_marks_alone():
    assert rewrite("‘new’ – l’«\u00a0heure\u00a0» “x”", "quotes").text == '"new" – l\'«\u00a0heure\u00a0» "x"'


def test_lone_surrogates_become_the_replacement_character():
    assert rewrite("a\ud800b\udfff") == ("a\ufffdb\ufffd", None, None)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_many_texts_are_rewritten_as_each(form, lowercase):
    texts = ["", "It’s «new»", "plain", "ﬁne É e\u0301", "'quoted' text — so"]
    for some in (texts, [*texts, "a\ud800b"]):
        assert rewrite_all(some, form, lowercase) == [rewrite(text, form, lowercase).text for text in some]


def test_a_system_that_cannot_open_folders_needs_no_sync_of_them(tmp_path, monkeypatch):
    """As Windows: there os.open of a folder is refused, and os has no O_DIRECTORY."""

    def refuse(path, *flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.delattr(os, "O_DIRECTORY")
    monkeypatch.setattr(os, "open", refuse)
    write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_small_file_takes_little_memory_whatever_may_be_read(tmp_path, monkeypatch):
    (tmp_path / "small").write_bytes(b"x" * 100)
    tracemalloc.start()
    assert read_small(tmp_path / "small") == b"x" * 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    monkeypatch.setattr("regard.sealed.SMALL", 99)
    with pytest.raises(OSError, match="more than 0 MiB"):
        read_small(tmp_path / "small")
