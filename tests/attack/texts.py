"""D1 to D3, F1 to F5: every line is accounted for, and every decode ends, says how, and is independent of its batch."""

from pathlib import Path
from random import Random

import trained
from promises import check, refused

from regard.api.flags import wrong_with
from regard.data.corpus import tab_separated
from regard.data.pairs import PairEncoding
from regard.data.prepare import prepare
from regard.data.settings import DataConfig
from regard.serve.layout import Layout, read_plain
from regard.serve.queue import TranslatedText
from regard.text.lines import read_lines

CHARACTERS = list("ab \"',.;:\u0085\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x00\u00a0\u3000\u200d\u202e\ufeffé中😀\r")
WORDS = ["the", "black", "cat", "sees", "a", "red", "apple", "we", "have", "dog", "my", "does", "not", "read", "book"]


def line(draw: Random) -> str:
    return "".join(draw.choices(CHARACTERS, k=draw.randint(0, 30)))


@check("D1", "line n of a file is line n of the corpus, whatever the lines contain", 60, 50_000)
def lines(draw: Random, folder: Path) -> None:
    given = [line(draw).rstrip("\r") for _ in range(draw.randint(1, 30))]
    end = draw.choice(["\n", "\r\n"])
    (folder / "text").write_bytes((end.join(given) + end).encode("utf-8"))
    found = list(read_lines(folder / "text"))
    assert found == [given[0].removeprefix("\ufeff"), *given[1:]]


@check("D2", "quotes and odd characters in a row of TSV stay in it", 40, 50_000)
def rows(draw: Random, folder: Path) -> None:
    given = [(line(draw).lstrip("\ufeff"), line(draw).rstrip("\r")) for _ in range(draw.randint(1, 30))]
    (folder / "x.tsv").write_bytes("".join(f"{a}\t{b}\n" for a, b in given).encode("utf-8"))
    assert [(pair.source, pair.target) for pair in tab_separated([str(folder / "x.tsv")])] == given


@check("D3", "every pair is kept, held out, or dropped for a reason; files of unequal length are refused", 3, 200)
def accounts(draw: Random, folder: Path) -> None:
    count = draw.randint(20, 60)
    text = [" ".join(draw.choices(WORDS, k=draw.choice([0, 1, 3, 5, 300]))) for _ in range(count)]
    text[:5] = [" ".join(draw.choices(WORDS, k=4)) for _ in range(5)]
    other = [draw.choice([one, line(draw)]) for one in text]
    missing = draw.choice([0, 0, 1])
    (folder / "a").write_bytes(("\n".join(text) + "\n").encode("utf-8"))
    (folder / "b").write_bytes(("\n".join(other[missing:]) + "\n").encode("utf-8"))
    config = DataConfig(source=(str(folder / "a"),), target=(str(folder / "b"),), subwords="word", held_out=2)
    if missing:
        refused(lambda: prepare(PairEncoding(config), folder), "files of unequal length")
    else:
        assert sum(tally.total for tally in prepare(PairEncoding(config), folder).tallies) == count


@check("F1", "every decode ends within its limit and says how", 6, 5000)
def ends(draw: Random, folder: Path) -> None:
    translator = trained.translator(draw.choice(["heads", "bahdanau", "local", "fixed", "lstmn"]))
    text = " ".join(draw.choices(WORDS, k=draw.choice([1, 2, 5, 30])))
    found = translator.translate(text, beam=draw.choice([1, 2, 5]))
    assert found.finished in ("end", "length"), found.finished
    config = translator.experiment.decode
    assert len(found.tokens) <= config.max_ratio * (len(translator.encode(text).ids) + 1) + config.max_extra + 1


@check("F2", "a translation does not depend on the sentences it is batched with", 4, 1000)
def neighbours(draw: Random, folder: Path) -> None:
    translator, beam = trained.translator(draw.choice(["heads", "bahdanau", "copy"])), draw.choice([1, 4])
    texts = [" ".join(draw.choices(WORDS, k=draw.choice([1, 2, 5, 9, 20]))) for _ in range(draw.randint(2, 24))]
    together = [one.text for one in translator.translate(texts, beam=beam)]
    chosen = draw.sample(range(len(texts)), min(4, len(texts)))
    assert [translator.translate(texts[at], beam=beam).text for at in chosen] == [together[at] for at in chosen]


@check("F3", "padding does not change scores beyond rounding", 2, 1000)
def padding(draw: Random, folder: Path) -> None:
    translator = trained.translator(draw.choice(["heads", "bahdanau"]))
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))
    alone = translator.translate(text, beam=2)
    longer = " ".join(draw.choices(WORDS, k=draw.randint(20, 60)))
    padded, _ = translator.translate([text, longer], beam=2)
    assert padded.text == alone.text
    assert abs(padded.score - alone.score) < 1e-4


@check("F4", "a text of any length is split into pieces that fit, without loss", 10, 1000)
def huge(draw: Random, folder: Path) -> None:
    text = draw.choice(["", " ", "\n", ". "]).join(draw.choices([*WORDS, "x" * 2000, ".", "中" * 700], k=200))
    layout = Layout(read_plain(text))
    assert all(len(sentence) <= 500 for sentence in layout.sentences)
    assert layout.write([TranslatedText(sentence) for sentence in layout.sentences]) == text


@check("F5", "loops, copies and empty outputs are flagged, and proper ones are not", 60, 20_000)
def degenerate(draw: Random, folder: Path) -> None:
    source, kind = draw.sample(WORDS, 6), draw.choice(["loop", "copy", "empty", ""])
    proper = [f"{word}e" for word in draw.sample(WORDS, 6)]
    phrase = draw.sample(proper, draw.randint(1, 3))
    output = {"loop": [*proper, *phrase * 6], "copy": source, "empty": [], "": proper}[kind]
    found = wrong_with(" ".join(source), " ".join(output), "end", same_language=False)
    assert (kind in found) if kind else not found
