"""Commands that use a run: line for line in and out, scores with signatures, pictures that are pictures, wrong runs."""

import gzip
import io
import json
import os
import re
import resource
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import small
from commands import Command, regard, run_here
from test_cli_train import refused

import regard as library
from regard.api.training import gather
from regard.cli.text import CHUNK, batches
from regard.data.captions import open_captions
from regard.runs.experiment import resolve
from regard.runs.folder import checkpoints
from regard.text.lines import Reading
from regard.training.start import train as begin

LONG = ("train.rate=0.02", "train.batch_tokens=300", "data.size=120", "data.max_words=5", "train.epochs=4")
NAMES = ("matrix", "ribbons", "heads", "beam", "steps")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trained runs by their names; two and three share the vocabularies of one."""
    folder = tmp_path_factory.mktemp("use")
    small.train("bahdanau", folder / "one", *LONG)
    small.train("bahdanau", folder / "two", *LONG, "train.seed=2")
    small.train("luong", folder / "three", *LONG)
    small.train("transformer", folder / "head", *LONG, "model.layers=2")
    small.train("bahdanau", folder / "letters", *LONG[:-1], "train.steps=1", "data.subwords=char")
    return folder


@pytest.fixture(scope="module")
def translator(runs):
    return library.load(runs / "one")


@pytest.fixture(scope="module")
def corpus(runs, translator):
    """A test set of two files."""
    words = translator.source_vocabulary.pieces(range(4, 24))
    lines = [" ".join(words[number : number + 2 + number % 4]) for number in range(12)]
    for name, text in (("test.en", lines), ("test.fr", [" ".join(reversed(line.split(" "))) for line in lines])):
        (runs / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return ["--source", runs / "test.en", "--target", runs / "test.fr"]


def run(*arguments: object, folder: Path, stdin: bytes | None = None) -> Any:
    """A command that must succeed: a process where it reads standard input, else here."""
    command = run_here(*arguments) if stdin is None else regard(*arguments, folder=folder / "log", stdin=stdin)
    assert command.code == 0, command.err
    assert "Traceback" not in command.err
    return command


def lines_of(command: Any) -> list[str]:
    data = command.files["out"].read_bytes() if isinstance(command, Command) else command.out.encode("utf-8")
    assert data == b"" or data.endswith(b"\n")
    return data.decode("utf-8").split("\n")[:-1]


def test_line_n_of_the_output_is_line_n_of_the_input(runs, translator, tmp_path):
    word = translator.source_vocabulary.pieces([7])[0]
    odd = [
        b"",
        b" ",
        b"\xe2\x80\xa8",
        b"\x0b\x0c\x1c\x1d\x1e\xc2\x85",
        b"a\rb",
        b"\xff\xfe",
        b"\x00",
        b"\t",
        "😀".encode(),
        b"x" * 5000,
    ]
    given = [word.encode(), *odd, b"", b"", word.encode()]
    for name, ending, last in (("lf", b"\n", b"\n"), ("crlf", b"\r\n", b"\r\n"), ("no newline at the end", b"\n", b"")):
        options = ["--beam", 1, "data.invalid=replace"]
        command = run("translate", runs / "one", *options, folder=tmp_path, stdin=ending.join(given) + last)
        found = lines_of(command)
        assert len(found) == len(given), name
        expected = translator.translate(word, beam=1).text
        assert found[0] == found[-1] == expected
        assert found[1] == found[11] == found[12] == ""
        assert command.err.count("1 line with U+FFFD in place of bytes that were not UTF-8\n") == 1
    assert "U+FFFD" not in run("translate", runs / "one", folder=tmp_path, stdin="\ufffd\n".encode()).err
    assert lines_of(run("translate", runs / "one", folder=tmp_path, stdin=b"")) == []
    assert lines_of(run("translate", runs / "one", folder=tmp_path, stdin=b"\n")) == [""]


def test_bytes_that_are_not_utf_8_are_refused_in_a_file_and_on_standard_input(runs, tmp_path):
    says = r"line 2: byte 4 \(0xE9\) is not UTF-8; convert it, as in iconv .*: add data\.invalid=replace\.$"
    text, path = b"ko\ncaf\xe9\n", tmp_path / "latin.txt"
    path.write_bytes(text)
    refused("translate", runs / "one", path, folder=tmp_path, says=f"{path}, {says}")
    done = regard("translate", runs / "one", folder=tmp_path / "log", stdin=text)
    assert (done.code, done.out) == (2, "")
    assert re.search(f"regard: standard input, {says}", done.err)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_bytes(b"a\tb\ncaf\xe9\tb\n")
    for more in (["--on", "local", "--out", tmp_path / "out"], ["--terms", pairs]):
        refused("translate", runs / "one", path, *more, folder=tmp_path, says=says)
    refused("score", runs / "one", "--tsv", pairs, folder=tmp_path, says=says)


def test_a_file_of_more_lines_than_are_read_at_once(runs, translator, tmp_path):
    words = translator.source_vocabulary.pieces(range(4, 44))
    lines = [words[number % 40] if number % 7 else "" for number in range(CHUNK + 30)]
    path = tmp_path / "long.txt"
    path.write_text("\ufeff" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = lines_of(run("translate", runs / "one", path, "--beam", 1, folder=tmp_path))
    known = {word: one.text for word, one in zip(words, translator.translate(words, beam=1), strict=True)} | {"": ""}
    assert found == [known[line] for line in lines]
    packed = tmp_path / "long.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert lines_of(run("translate", runs / "one", packed, "--beam", 1, folder=tmp_path)) == found


@pytest.mark.parametrize("several", [("--nbest", 2), ("decode.nbest=2",)], ids=str)
def test_a_file_is_written_with_one_translation_a_line(several, runs, tmp_path):
    (tmp_path / "in.txt").write_text("x\n", encoding="utf-8")
    files = tmp_path / "in.txt", "--out", tmp_path / "out.txt"
    done = regard("translate", runs / "one", *files, *several, folder=tmp_path)
    assert done.code == 2
    assert "--out is for the translation of a file, without --json and --nbest" in done.err
    assert not (tmp_path / "out.txt").exists()


def test_nbest_and_json(runs, translator, tmp_path):
    word = " ".join(translator.source_vocabulary.pieces([7, 8]))
    given = f"{word}\n\n".encode()
    first, second = lines_of(run("translate", runs / "one", "--nbest", 3, folder=tmp_path, stdin=given))
    parts = first.split("\t")
    expected = translator.translate(word, nbest=3)
    assert parts[1::2] == [one.text for one in expected.nbest]
    assert [float(score) for score in parts[::2]] == pytest.approx([one.score for one in expected.nbest], abs=1e-3)
    assert second == "0.0000\t"
    plain, empty = map(json.loads, lines_of(run("translate", runs / "one", "--json", folder=tmp_path, stdin=given)))
    best = translator.translate(word)
    assert (plain["source"], plain["translation"], plain["finished"]) == (word, best.text, best.finished)
    assert plain["tokens"] == best.tokens
    assert plain["score"] == pytest.approx(best.score, abs=1e-5)
    assert empty["translation"] == ""
    assert empty["finished"] == "empty"
    drawn = [run("translate", runs / "one", "--temperature", 1, folder=tmp_path, stdin=given).out for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_fewer_candidates_than_requested_are_noted(runs, translator, tmp_path):
    """There are fewer texts of one word than hypotheses in the beam."""
    words = translator.source_vocabulary.pieces([7, 8])
    given = "\n".join([*words, "", ""]).encode()
    command = run("translate", runs / "one", "--nbest", 3, "--beam", 3, folder=tmp_path, stdin=given)
    assert "fewer" not in command.err
    short = ["decode.max_ratio=0", "decode.max_extra=0", "--nbest", 400, "--beam", 400]
    command = run("translate", runs / "one", *short, folder=tmp_path, stdin=given)
    assert all(len(set(line.split("\t")[1::2])) == len(line.split("\t")) // 2 < 400 for line in lines_of(command))
    says = "fewer than 400 candidates, as equal texts count once: 2 of 3 lines; a wider --beam may find more\n"
    assert command.err.endswith(says)
    drawn = run("translate", runs / "one", *short, "--temperature", 1, folder=tmp_path, stdin=given)
    assert "fewer" not in drawn.err  # samples may be alike


def test_a_run_that_has_not_finished_is_used_with_a_note(runs, translator, corpus, tmp_path):
    stopped = tmp_path / "stopped"
    small.train("bahdanau", stopped, *LONG, "train.save_every=2", observe=lambda event: getattr(event, "step", 0) >= 3)
    step = int(checkpoints(stopped)[-1].name)
    word = translator.source_vocabulary.pieces([7])[0]
    says = f"{stopped} has not finished training; its newest checkpoint is of step {step}. To resume: regard train "
    says += f"--out {stopped}\n"
    exported = ["export", "--out", tmp_path / "small"]
    for command in (["translate", f"{word} {word}"], ["look", word], ["score", *corpus, "--beam", 1], exported):
        name, *rest = command
        assert run(name, stopped, *rest, folder=tmp_path).err.count(says) == 1
        shutil.rmtree(tmp_path / "small", ignore_errors=True)
        assert "finished" not in run(name, runs / "one", *rest, folder=tmp_path).err
    assert run("translate", runs / "one", f"{word} {word}", "--with", stopped, folder=tmp_path).err.count(says) == 1


def test_words_outside_the_vocabulary_are_reported_once_with_their_lines(runs, translator, tmp_path):
    known = " ".join(translator.source_vocabulary.pieces([7, 8]))
    given = [known, f"zebra {known} quagga", "", f"zebra\x1b {known}", f"quagga {known} quagga"]
    stdin = "".join(f"{line}\n" for line in given).encode()
    command = run("translate", runs / "one", "--beam", 1, folder=tmp_path, stdin=stdin)
    assert command.err.split("\n")[-2] == (
        "5 words of the input are not in the vocabulary: zebra (line 2), quagga (line 2), zebra\u241b (line 4)"
    )
    assert command.err.count("vocabulary") == 1
    many = [f"zebra{number}" for number in range(CHUNK + 2)]
    command = run("translate", runs / "one", "--beam", 1, folder=tmp_path, stdin="\n".join([known, *many]).encode())
    assert f"\n{CHUNK + 2} words of the input are not in the vocabulary" in f"\n{command.err}"
    assert command.err.endswith("zebra3 (line 5), zebra4 (line 6), ...\n")
    command = run("translate", runs / "one", "--beam", 1, folder=tmp_path, stdin=known.encode())
    assert "vocabulary" not in command.err
    command = run("translate", runs / "letters", "--beam", 1, folder=tmp_path, stdin="e\u6f22".encode())
    assert "1 character of the input is not in the vocabulary: \u6f22 (line 1)\n" in command.err
    found = [
        json.loads(line) for line in lines_of(run("translate", runs / "one", "--json", folder=tmp_path, stdin=stdin))
    ]
    assert [one["unknown"] for one in found] == [
        [],
        ["zebra", "quagga"],
        [],
        ["zebra\x1b"],
        ["quagga", "quagga"],
    ]


def test_ensembles(runs, translator, tmp_path):
    word = " ".join(translator.source_vocabulary.pieces([7, 8])).encode()
    found = run(
        "translate", runs / "one", "--with", runs / "two", "--with", runs / "three", folder=tmp_path, stdin=word
    )
    expected = library.load([runs / "one", runs / "two", runs / "three"]).translate(word.decode())
    assert lines_of(found) == [expected.text]
    says = "An ensemble needs runs with the same vocabularies; the source vocabulary of letters is not that of one"
    refused("translate", runs / "one", "--with", runs / "letters", folder=tmp_path, says=says)


def test_a_sentence_with_an_equals_sign_is_no_setting(runs, tmp_path):
    assert run("translate", runs / "one", "x=3 is a number.", folder=tmp_path).out.count("\n") == 1
    refused("translate", runs / "one", "x=3", folder=tmp_path, says="section.key=value")


def test_wrong_runs_and_files(runs, corpus, tmp_path):
    missing = tmp_path / "missing"
    refused("translate", missing, folder=tmp_path, says=f"There is no run folder {missing}")
    refused("translate", tmp_path, folder=tmp_path, says="holds no finished model and no checkpoint")
    refused("translate", runs / "one", missing, folder=tmp_path, says=f"There is no file {missing}")
    refused("translate", runs / "one", "a", "b", folder=tmp_path, says="a run and at most one file or sentence")
    refused(
        "translate",
        runs / "one",
        "--beam",
        0,
        folder=tmp_path,
        says="--beam must be at least 1 and at",
    )
    refused("translate", runs / "one", "decode.beam=0", folder=tmp_path, says="decode.beam must be at least 1 and")
    says = "--beam and decode.beam are the same setting"
    refused("translate", runs / "one", "--beam", 2, "decode.beam=3", folder=tmp_path, says=says)
    for huge in (1001, 10**18):
        refused(
            "translate",
            runs / "one",
            "--beam",
            huge,
            folder=tmp_path,
            says=f"beam must be .*1,000; got {huge}",
        )
        refused(
            "translate",
            runs / "one",
            "--nbest",
            huge,
            folder=tmp_path,
            says=f"nbest must be .*at most .*got .*{huge}",
        )
    many = "--beam", 2, "--nbest", 3
    refused("translate", runs / "one", *many, folder=tmp_path, says="--nbest must be at most --beam; got")
    refused("translate", runs / "one", "--device", "x", folder=tmp_path, says="must be auto, cpu or cuda")
    short = tmp_path / "short"
    short.write_text("one\n", encoding="utf-8")
    for command in (["score", runs / "one"], ["compare", runs / "one", runs / "two"]):
        refused(*command, "--source", short, "--target", corpus[3], folder=tmp_path, says="1 .* 12")
        refused(*command, "--source", missing, "--target", short, folder=tmp_path, says="There is no file")
    refused("compare", runs / "one", *corpus, folder=tmp_path, says="at least two different runs")
    refused("look", missing, "ko", folder=tmp_path, says="There is no run folder")
    refused("look", runs / "one", "", folder=tmp_path, says="nothing to look at in an empty sentence")
    refused("look", runs / "one", "ko", "--out", tmp_path / "a.xyz", folder=tmp_path, says="xyz")
    refused("look", runs / "one", "ko", "--view", "matrx", folder=tmp_path, says="Did you mean 'matrix'")
    refused("look", runs / "one", "ko", "--view", "beam", folder=tmp_path, says="--view beam needs a file to draw to")
    refused("look", runs / "one", "ko", "--layer", 7, "--out", tmp_path / "a.png", folder=tmp_path, says="layer")
    refused("look", runs / "one", "ko", "--out", tmp_path / "no" / "a.png", folder=tmp_path, says="no")
    refused("models", "bahdanu", folder=tmp_path, says="Did you mean 'bahdanau'")
    near = f"Did you mean '{runs / 'one'}'"
    for command in (["models"], ["train", "--out"], ["translate"]):
        refused(*command, runs / "onne", folder=tmp_path, says=near)
    refused("serve", missing, folder=tmp_path, says="There is no run folder")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run of another task: a language model."""
    out = tmp_path_factory.mktemp("other") / "tales"
    small_text = ["model.width=5", "data.size=60", "data.subwords=word", "train.steps=2"]
    begin(resolve(gather(None, "lstm-lm", "tiny", small_text, corpus="tales")), out)
    return out


@pytest.mark.parametrize("command", ["translate", "score", "compare", "flow", "heads", "align"])
def test_a_run_of_another_task_is_refused(command, runs, other, corpus, tmp_path):
    more = {"translate": [runs / "test.en"], "flow": ["ko"], "compare": [runs / "one", *corpus]}
    says = "tales is a run for the task 'language'; this needs one for 'translate'"
    refused(command, other, *more.get(command, corpus), folder=tmp_path, says=says)
    refused("generate", runs / "one", folder=tmp_path, says="is a run for the task 'translate'; this needs one for")


def test_what_is_written_last_is_refused_first(runs, corpus, tmp_path):
    """A name that cannot be written to costs no work: nothing has been translated or printed."""
    there, one = tmp_path / "no" / "x.svg", runs / "one"
    for command in (
        ["score", one, *corpus, "--plot", there],
        ["compare", one, runs / "two", *corpus, "--plot", there],
        ["look", one, "ko", "--out", there],
        ["flow", one, "ko", "--out", there],
        ["align", one, *corpus, "--out", there],
        ["corpora", "copy", "--out", there],
    ):
        refused(*command, folder=tmp_path, says=f"There is no folder {there.parent} to write x.svg")
    refused("align", one, *corpus, "--out", tmp_path, folder=tmp_path, says="is a folder; pass the name of a file")
    refused("score", one, *corpus, "--plot", tmp_path / "x.xyz", folder=tmp_path, says="ends with none of")
    refused("score", one, *corpus, "--tokenize", "13b", folder=tmp_path, says="Did you mean '13a'")
    refused("compare", one, one, *corpus, folder=tmp_path, says="at least two different runs")


def test_numbers_that_cannot_be_are_refused(runs, other, corpus, tmp_path):
    for option in ("--count", "--longest"):
        refused("generate", other, option, 0, folder=tmp_path, says=f"{option[2:]} must be at least 1; got 0")
    refused("corpora", "copy", "--size", 0, "--out", "x", folder=tmp_path, says="data.size must be at least 1")
    refused("corpora", "copy", "--size", 7, folder=tmp_path, says="--size is for files; add --out PREFIX")
    refused("corpora", "copy", "--out", "", folder=tmp_path, says="--out must not be empty")
    refused("export", runs / "one", "--numbers", "int8", "--out", "x", folder=tmp_path, says="is for --to ctranslate2")
    both = ["--target", "ba", "--beam", 3]
    refused("look", runs / "one", "ba", *both, folder=tmp_path, says="--beam searches for a translation, and --target")
    refused("heads", runs / "one", *corpus, "--by", "aer", folder=tmp_path, says="no --by 'aer' without --gold")
    refused("corpora", "copy", "--min-words", 0, folder=tmp_path, says="data.min_words must be at least 1")
    threshold = ["--method", "threshold", "--threshold", "nan"]
    refused("align", runs / "one", *corpus, *threshold, folder=tmp_path, says="between 0 and 1; got nan")
    gold = tmp_path / "gold"
    gold.write_text("1-1\n2-9\n" + "1-1\n" * 10, encoding="utf-8")
    for command in ("align", "heads"):
        says = "gold links of pair 2 name words 2-9, but it has 3 source words and 3 target words"
        refused(command, runs / "one", *corpus, "--gold", gold, folder=tmp_path, says=says)
    refused("demo", "--minutes", -1, folder=tmp_path, says="--minutes must be above 0 and below a million; got -1")
    refused("demo", "--model", "document", folder=tmp_path, says="needs a model of the same task as bahdanau")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("score", "Missing argument 'RUN'"),
        ("look", "Missing argument '\\[RUN\\] TEXT'"),
        ("export en-fr", "Missing option '--out'"),
        ("flow en-fr where is it", r"unexpected extra argument.*\(is it\)"),
        ("translate en-fr hi --beam", "Option '--beam' requires an argument"),
        ("translate x --baem 3", "No such option: --baem"),
        ("--beam 3 translate en-fr hi", "No such option: --beam"),
        ("transalte x", "No such command 'transalte'"),
        ("models en-fr bahdanau", r"unexpected extra argument.*\(bahdanau\)"),
        ("translate x --beam 3 --beam abc", "Invalid value for '--beam': "),
        ("translate x --max-tokens 0", "Invalid value for '--max-tokens': "),
        ("train --minutes five", "Invalid value for '--minutes': "),
    ],
)
def test_wrong_usage_is_an_error_of_the_parser(arguments, says, tmp_path):
    command = regard(*arguments.split(), folder=tmp_path / "log")
    assert (command.code, command.out) == (2, "")
    assert re.search(f"^Error: .*{says}", command.err, re.MULTILINE), command.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("heads en-fr --by confidnce", "There is no --by 'confidnce'. Did you mean 'confidence'?"),
        ("score en-fr README.md", "got 'README.md'. Files are given by options, such as --source and --target."),
        ("translate README.md hi", "README.md is a file; name the folder of a run, or a model such as en-fr."),
        ("translate en-fr beam=3 hi", "section.key=value, as in train.steps=200; got 'beam=3'"),
        ("train --corpus copy --out x steps=3", "section.key=value, as in train.steps=200; got 'steps=3'"),
        ("train x --corpus copy = 3", "got '='. Write it without spaces."),
        ("models en-fr --preset tiny", "--preset is for the settings of a model, such as"),
        ("train --corpus copy --model bahdanu --out x", "There is no model 'bahdanu'. Did you mean 'bahdanau'?"),
        (
            "look en-fr hi --force xx=word",
            "--force takes STEP=WORD, where STEP is a number from 0, or .*got 'xx=word'.",
        ),
        ("serve en-fr --source-language jp", "must be a language code such as en or pt-BR; got 'jp'. Did you"),
        (
            "perplexity en-fr Hello",
            "There is no file 'Hello'. A text is passed on standard input: echo 'Hello' | regard",
        ),
        ("reach en-fr Hello", "There is no file 'Hello'. A text is passed on standard input: echo 'Hello' | regard"),
    ],
)
def test_a_wrong_name_is_one_sentence_with_what_to_do(arguments, says, tmp_path):
    refused(*arguments.split(), folder=tmp_path, says=says)


def test_score(runs, corpus, tmp_path):
    said = run("score", runs / "one", *corpus, "--beam", 1, "--perplexity", "--by-length", folder=tmp_path).out
    for name in ("BLEU", "chrF", "TER"):
        assert re.search(rf"^{name} [\d.]+ .*version:", said, re.MULTILINE), said
    value = float(re.search(r"perplexity ([\d.]+) per token", said)[1])
    sources, targets = (Path(corpus[place]).read_text(encoding="utf-8").split("\n")[:-1] for place in (1, 3))
    assert value == pytest.approx(library.load(runs / "one").perplexity(sources, targets), rel=1e-3)
    plot = tmp_path / "plot.svg"
    said = run("score", runs / "one", *corpus, "--beam", 1, "--plot", plot, "--lowercase", folder=tmp_path).out
    assert "case:lc" in said
    assert str(plot) in said
    assert plot.read_text(encoding="utf-8").count("<path") > 5


def test_empty_translations_of_a_test_set_are_noted(runs, corpus, tmp_path):
    short = run("score", runs / "one", *corpus, "decode.max_ratio=0", "decode.max_extra=0", folder=tmp_path)
    assert "empty translations of one: 12 of 12" in short.err


def test_blank_lines_of_a_test_set_are_counted(runs, corpus, tmp_path):
    for name, text in (("a.en", "ko\n\nko\n \nko\n"), ("a.fr", "ko\nko\n\n\nko\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = ["--source", tmp_path / "a.en", "--target", tmp_path / "a.fr", "--beam", 1]
    for command in (["score", runs / "one"], ["compare", runs / "one", runs / "two"]):
        said = run(*command, *files, folder=tmp_path).err
        assert said.count("pairs with a blank source or reference: 3 of 5; they are scored like the others\n") == 1
    assert "blank" not in run("score", runs / "one", *corpus, "--beam", 1, folder=tmp_path).err


def test_score_leaves_out_ter_where_it_takes_minutes_and_says_so(runs, corpus, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text(("a b c " * 60 + "\n") * 12, encoding="utf-8")
    arguments = ["score", runs / "one", "--source", corpus[1], "--target", long, "--beam", 1]
    left = run(*arguments, folder=tmp_path)
    assert "TER is left out" in left.err
    assert not re.search("^TER", left.out, re.MULTILINE)
    wanted = run(*arguments, "--ter", folder=tmp_path)
    assert "TER is left out" not in wanted.err
    assert re.search(r"^TER [\d.]+", wanted.out, re.MULTILINE)
    assert "TER" not in run("score", runs / "one", *corpus, "--beam", 1, "--no-ter", folder=tmp_path).out


def test_score_takes_settings_of_decoding(runs, corpus, tmp_path):
    greedy = run("score", runs / "one", *corpus, "--beam", 1, folder=tmp_path).out
    assert run("score", runs / "one", "decode.beam=1", *corpus, folder=tmp_path).out == greedy
    short = run("score", runs / "one", "decode.max_ratio=0", "decode.max_extra=2", *corpus, folder=tmp_path).out
    assert float(re.search(r"BP ([\d.]+)", short)[1]) < float(re.search(r"BP ([\d.]+)", greedy)[1])
    refused(
        "score",
        runs / "one",
        "train.rate=1",
        *corpus,
        folder=tmp_path,
        says="Settings here are decode.key=value; leave train.rate out",
    )
    both = ["--beam", 1, "decode.beam=2"]
    refused("score", runs / "one", *both, *corpus, folder=tmp_path, says="--beam and decode.beam are the same setting")
    refused("score", runs / "one", "decode.bean=1", *corpus, folder=tmp_path, says="Did you mean 'beam'")


def test_compare(runs, corpus, tmp_path):
    plot = tmp_path / "plot.png"
    said = run("compare", runs / "one", runs / "two", *corpus, "--beam", 1, "--plot", plot, folder=tmp_path).out
    assert "one\nBLEU" in said
    assert "two\nBLEU" in said
    assert re.search(r"two against one: .*p", said)
    assert is_picture(plot)
    assert said.count("words sentences") == 2
    both = runs / "one", runs / "two", *corpus, "--beam", 1
    assert run("compare", *both, "--by-length", folder=tmp_path).out.count("words sentences") == 2
    assert "words sentences" not in run("compare", *both, folder=tmp_path).out
    refused("compare", *both, "--by-seed", "--by-length", folder=tmp_path, says="leave --by-length out")


def one_object(command: Command) -> dict:
    (line,) = lines_of(command)
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_score_as_json_has_the_numbers_as_they_are_and_their_signatures(runs, corpus, tmp_path):
    more = ["--beam", 1, "--perplexity", "--by-length", "--plot", tmp_path / "plot.svg", "--json"]
    command = run("score", runs / "one", *corpus, *more, folder=tmp_path)
    found = one_object(command)
    assert "drawn: " in command.err
    sources, targets = (Path(corpus[place]).read_text(encoding="utf-8").split("\n")[:-1] for place in (1, 3))
    translator = library.load(runs / "one")
    expected = translator.score(sources, targets, beam=1)
    assert [(one["name"], one["value"], one["signature"]) for one in found["scores"]] == [
        (one.name, one.value, one.signature) for one in expected.scores
    ]
    assert len(found["scores"][0]["parts"]["precisions"]) == 4
    assert (found["run"], found["sentences"]) == ("one", 12)
    assert found["perplexity"] == pytest.approx(translator.perplexity(sources, targets), rel=1e-6)
    assert sum(each["sentences"] for each in found["by_length"]["bins"]) == 12
    assert "version:" in found["by_length"]["signature"]


def test_compare_as_json(runs, corpus, tmp_path):
    more = ["--beam", 1, "--plot", tmp_path / "plot.svg", "--json"]
    found = one_object(run("compare", runs / "one", runs / "two", *corpus, *more, folder=tmp_path))
    first, second = found["systems"]
    (against,) = found["comparisons"]
    assert (first["run"], second["run"], against["run"], against["against"]) == ("one", "two", "two", "one")
    assert against["a"] == pytest.approx(second["scores"][0]["value"])
    assert against["delta"] == pytest.approx(against["a"] - against["b"])
    assert 0 < against["p"] <= 1
    assert "version:" in against["signature"]
    assert first["by_length"]["bins"][0]["sentences"] == 12


def test_compare_by_seed(runs, corpus, tmp_path):
    """Seeds of one model are one group and no rivals; its groups are named by what differs."""
    three = [runs / name for name in ("one", "two", "three")]
    plot = tmp_path / "plot.png"
    found = one_object(
        run("compare", *three, *corpus, "--beam", 1, "--by-seed", "--json", "--plot", plot, folder=tmp_path)
    )
    groups = {tuple(group["seeds"]): group for group in found["groups"]}
    assert set(groups) == {(1, 2), (1,)}
    assert (groups[1, 2]["name"], groups[1,]["name"]) == ("name=bahdanau", "name=luong")
    assert groups[1, 2]["mean"] == pytest.approx(sum(groups[1, 2]["bleu"]) / 2)
    assert groups[1,]["spread"] is None
    assert found["groups"][0]["best_against"] is None
    assert 0 < found["groups"][1]["best_against"]["p"] <= 1
    assert is_picture(plot)
    said = run("compare", runs / "one", runs / "two", *corpus, "--beam", 1, "--by-seed", folder=tmp_path).out
    assert str(runs / "one") in said.split("\n")[1]


def is_picture(path: Path) -> bool:
    """A PNG whose pixels are not all the same."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    body, place = b"", 8
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        if data[place + 4 : place + 8] == b"IDAT":
            body += data[place + 8 : place + 8 + size]
        place += 12 + size
    return len(set(zlib.decompress(body))) > 20


def test_look_draws_into_every_kind_of_file(runs, tmp_path):
    translator = library.load(runs / "one")
    text = " ".join(translator.source_vocabulary.pieces([7, 8, 9]))
    expected = translator.translate(text).text
    said = run("look", runs / "one", text, folder=tmp_path).out
    assert said.startswith(expected + "\n")
    assert len(said.split("\n")) > 3
    files = {".png": is_picture}
    files[".svg"] = lambda path: path.read_text(encoding="utf-8").count("<") > 30
    files[".html"] = lambda path: "<script" in path.read_text(encoding="utf-8") and path.stat().st_size > 3000
    files[".json"] = lambda path: text in json.loads(path.read_text(encoding="utf-8"))["source"]["text"]
    for suffix, check in files.items():
        out = tmp_path / f"look{suffix}"
        said = run("look", runs / "one", text, "--out", out, folder=tmp_path).out
        assert str(out) in said
        assert expected in said
        assert check(out), suffix


def test_look_draws_the_head_that_a_run_names(runs, tmp_path):
    text = " ".join(library.load(runs / "head").source_vocabulary.pieces([7, 8]))
    shutil.copytree(runs / "head", tmp_path / "named")
    (tmp_path / "named" / "alignment.json").write_text('{"layer": 1, "head": 1, "shift": 0}')
    assert "layer 1, head 1," in run("look", tmp_path / "named", text, folder=tmp_path).out
    assert "layer 0, mean of" in run("look", tmp_path / "named", text, "--layer", 0, folder=tmp_path).out


def test_look_has_views_heads_and_a_forced_target(runs, tmp_path):
    translator = library.load(runs / "head")
    text, other = (" ".join(translator.source_vocabulary.pieces(ids)) for ids in ([7, 8], [9, 10, 11]))
    for view in NAMES:
        out = tmp_path / f"{view}.svg"
        run("look", runs / "head", text, "--view", view, "--out", out, folder=tmp_path)
        assert out.stat().st_size > 1000
    sizes = set()
    for more in ([], ["--layer", 0], ["--layer", 1, "--head", 1], ["--special"], ["--pieces"]):
        sizes.add(run("look", runs / "head", text, "--target", other, *more, folder=tmp_path).out)
    assert len(sizes) >= 3
    assert all(said.startswith(other + "\n") for said in sizes)


def test_models_and_corpora(tmp_path):
    said = run("models", folder=tmp_path).out
    assert all(name in said for name in small.MODELS)
    said = run("models", "transformer", "--preset", "base", folder=tmp_path).out
    for section in ("[model (preset base)]", "[train]", "[data]", "[decode]"):
        assert section in said
    assert re.search(r"heads = 8 +number of attention heads", said)
    assert "schedule = noam" in said
    assert "joint = True" in said  # as it is trained: one matrix for both languages needs one vocabulary
    for setting, papers in {
        "positions": ("relative: Shaw et al. 2018", "alibi: Press et al. 2022"),
        "activation": ("swiglu: Shazeer 2020",),
        "layer_norm": ("Zhang and Sennrich 2019",),
        "key_heads": ("Ainslie et al. 2023",),
    }.items():
        (line,) = re.findall(rf"^  {setting} = .+", said, re.M)
        assert all(paper in line for paper in papers)
    for variant, settings in {
        "relative": "model.positions=relative",
        "alibi": "model.positions=alibi",
        "rms": "model.layer_norm=rms",
        "swiglu": "model.inner=170 model.activation=swiglu",
        "grouped": "model.key_heads=2",
    }.items():
        assert re.search(rf"^  {variant} +{settings}$", said, re.M)
    said = run("models", "luong", folder=tmp_path).out
    assert "joint = False" in said
    assert "training makes them from the corpus, with at most data.vocabulary tokens" in said
    said = run("corpora", folder=tmp_path).out
    names = ("phrasebook", "dates", "copy", "reverse", "shapes", "reviews", "tales")
    assert all(name in said for name in names)
    for name in names:  # a few examples; nothing is written
        said = regard("corpora", name, folder=tmp_path / "log").out
        assert said.startswith(f"{name}: ")
        assert f"To write it to files: regard corpora {name} --out {name}\n" in said
    assert not list(Path().glob("phrasebook.*"))


def test_lists_are_wrapped_for_a_narrow_terminal(runs, corpus, monkeypatch):
    commands = [
        ["models"],
        ["corpora"],
        ["heads", runs / "head", *corpus],
        ["heads", runs / "one", *corpus, "--silence"],
    ]
    wide = [run_here(*command).out for command in commands]
    assert max(map(len, "".join(wide).split("\n"))) > 100
    monkeypatch.setenv("COLUMNS", "40")
    narrow = [run_here(*command).out for command in commands]
    assert all(len(line) <= 40 or " " not in line or "`" in line or ": regard" in line
               for line in "".join(narrow).split("\n")), narrow  # fmt: skip
    assert [sorted(set(re.findall(r"\d+\.\d{2,3}", text))) for text in narrow] == [
        sorted(set(re.findall(r"\d+\.\d{2,3}", text))) for text in wide
    ], "all numbers are there"
    (command,) = re.findall(r"^  command .+", run_here("models", "en-fr/cho").out, re.M)[:1]
    assert len(command) > 40, "a command can be copied"


def test_a_run_is_described(runs, tmp_path):
    said = run("models", runs / "one", folder=tmp_path).out
    assert "  validation  below 1 (bleu)\n" in said
    _, *rows = run("models", "en-fr", folder=tmp_path).out.splitlines()
    wide = len("  newstest2014  ")
    assert all(row[wide - 2 : wide] == "  " and row[wide] != " " for row in rows)


def test_the_other_corpora_are_written_as_their_tasks_read_them(tmp_path):
    for name in ("tales", "reviews", "shapes"):
        said = run("corpora", name, "--out", tmp_path / name, "--size", 3, folder=tmp_path).out
        assert said.startswith({"tales": "3 lines: ", "reviews": "3 documents: ", "shapes": "3 pictures: "}[name])
    assert (tmp_path / "tales.txt").read_text(encoding="utf-8").count("\n") == 3
    labels = [
        line.partition("\t")[0] for line in (tmp_path / "reviews.tsv").read_text(encoding="utf-8").split("\n")[:3]
    ]
    assert set(labels) <= {"positive", "negative"}
    files, corpus = open_captions(str(tmp_path / "shapes"), "")
    entries = list(corpus)
    assert len(entries) == 3
    assert files.read(entries[0].image).startswith(b"\x89PNG")
    refused("corpora", "shapes", "--out", tmp_path / "shapes", folder=tmp_path, says="exists already")
    for name, file in (("tales", "tales.txt"), ("copy", "new.gold")):
        mine = tmp_path / file
        mine.write_text("mine", encoding="utf-8")
        says = f"{mine} exists; write to another file, or add --overwrite to replace it"
        refused("corpora", name, "--out", mine.with_suffix(""), folder=tmp_path, says=says)
        assert mine.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "new.source").exists()
    (tmp_path / "new.gold").unlink()
    for name in ("copy", "shapes"):  # the same command again makes the same files
        for _ in range(2):
            run("corpora", name, "--out", tmp_path / f"new-{name}", "--size", 3, folder=tmp_path)
    (tmp_path / "new-shapes" / "000001.txt").write_text("mine", encoding="utf-8")
    again = ["shapes", "--out", tmp_path / "new-shapes", "--size", 3]
    refused("corpora", *again, folder=tmp_path, says="exists already and holds something else")
    refused("corpora", "talse", folder=tmp_path, says="Did you mean 'tales'?")


def test_an_argument_is_a_file_a_setting_or_a_sentence(runs, translator, tmp_path):
    word, other = (" ".join(translator.source_vocabulary.pieces(ids)) for ids in ([7, 8], [9, 10, 11]))
    expected = [translator.translate(one, beam=1).text for one in (word, other)]
    assert lines_of(run("translate", runs / "one", word, "decode.beam=1", folder=tmp_path)) == expected[:1]
    for name in ("decode.en", "decode.beam=5", "two words"):  # a file that exists is a file, whatever its name
        path = tmp_path / name
        path.write_text(f"{other}\n", encoding="utf-8")
        assert lines_of(run("translate", runs / "one", path, "--beam", 1, folder=tmp_path)) == expected[1:], name
    refused("translate", runs / "one", "test.em", folder=tmp_path, says="There is no file test.em")
    refused("translate", runs / "one", "decode.en", folder=tmp_path, says="There is no file decode.en")
    for name in ("a/b", "missing.txt"):  # a path, and the name of a file
        refused("translate", runs / "one", name, folder=tmp_path, says=f"There is no file {name}; check the path")
    (tmp_path / "notes.txt").touch()
    near = f"There is no file {tmp_path}/nots.txt; check the path. Did you mean '{tmp_path}/notes.txt'"
    refused("translate", runs / "one", tmp_path / "nots.txt", folder=tmp_path, says=near)
    for text in ("Hello", "hello.", "3.5", "e.g.", "你好"):
        assert lines_of(run("translate", runs / "one", text, folder=tmp_path)) == [translator.translate(text).text]
    page = tmp_path / "page.html"
    page.write_text("<p>a b</p>", encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text('{"text": "a b"}\n', encoding="utf-8")
    for shards, how in (
        ([], "--out, as in"),
        (["--on", "local", "--out", tmp_path / "out"], "--out and without --on,"),
    ):
        says = f"page.html is HTML, whose markup is not text: write the translated file with {how}"
        refused("translate", runs / "one", page, *shards, folder=tmp_path, says=says)
        says = "rows.jsonl has JSON objects, not lines of text;"
        refused("translate", runs / "one", tmp_path / "rows.jsonl", *shards, folder=tmp_path, says=says)
    for name in ("beam", "nbest", "temperature"):
        both = [f"--{name}", 1, f"decode.{name}=1"]
        refused("translate", runs / "one", *both, folder=tmp_path, says=f"--{name} and decode.{name} are the same")
    refused("translate", runs / "one", "decode.bem=5", folder=tmp_path, says="Did you mean 'beam'")
    refused(
        "translate",
        runs / "one",
        "train.steps=5",
        folder=tmp_path,
        says="Settings here are decode.key=value or data.key=value; leave train.steps out",
    )


def test_a_line_beyond_the_limit_is_left_empty_with_a_message(runs, translator, tmp_path):
    word = translator.source_vocabulary.pieces([7])[0]
    given = "\n".join([word, " ".join([word] * 9), "x" * 1000, word]).encode()
    options = ["--max-tokens", 8, "--beam", 1]
    done = regard("translate", runs / "one", *options, folder=tmp_path / "log", stdin=given)
    expected = translator.translate(word, beam=1).text
    assert lines_of(done) == [expected, "", "", expected]
    assert done.code == 2
    assert "line 2: not translated; 9 tokens exceed the limit of 8 tokens\n" in done.err
    assert "line 3: not translated; 1000 characters exceed the limit of 8 tokens\n" in done.err
    assert "regard: Lines of more than 8 tokens were left empty, 2 of 4; split" in done.err
    done = regard("translate", runs / "one", *options, "--json", folder=tmp_path / "log", stdin=given)
    assert [json.loads(line)["finished"] == "too long" for line in lines_of(done)] == [False, True, True, False]


class Pipes:
    """A plant: standard input and output are named pipes."""

    def __init__(self, given: Path, taken: Path) -> None:
        self.given, self.taken = given, taken

    def __call__(self) -> None:
        os.dup2(os.open(self.given, os.O_RDONLY), 0)
        os.dup2(os.open(self.taken, os.O_WRONLY), 1)


def test_standard_input_is_answered_line_by_line(runs, translator, tmp_path):
    """Each line is sent only after the answer to the one before it has arrived."""
    words = translator.source_vocabulary.pieces(range(5, 9))
    plant = Pipes(tmp_path / "given", tmp_path / "taken")
    for pipe in (plant.given, plant.taken):
        os.mkfifo(pipe)
    command = Command(["translate", runs / "one", "--beam", 1], tmp_path / "log", plant)
    with open(plant.given, "wb", buffering=0) as given, open(plant.taken, "rb") as taken:
        for word in words:
            given.write(f"{word}\n".encode())
            assert taken.readline().decode() == translator.translate(word, beam=1).text + "\n"
        given.close()
        assert taken.read() == b""
    assert command.wait() == 0


def test_batches_of_standard_input_keep_every_line(monkeypatch):
    lines = [b"\xef\xbb\xbfone", b"", b"\xff", "\u2028".encode(), *(b"x" * n for n in range(0, 9000, 1000)), b"last"]
    for end in (b"", b"\n"):
        stream = io.BufferedReader(Trickle(b"\n".join(lines) + end))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream, encoding="utf-8"))
        found = [line for some in batches(None, Reading(invalid="replace")) for line in some]
        assert found == ["one", "", "\ufffd", "\u2028", *("x" * n for n in range(0, 9000, 1000)), "last"]
    for data, expected in ((b"", []), (b"\n", [""]), (b"\xef\xbb\xbf", []), (b"\xef\xbb\xbf\n", [""])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Trickle(data)), encoding="utf-8"))
        assert [line for some in batches(None) for line in some] == expected


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_gets_a_prompt_before_each_line(terminal, monkeypatch, capsys):
    stream = io.BufferedReader(Trickle(b"x" * 700 + b"\n" + b"y" * 700 + b"\n", terminal))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream, encoding="utf-8"))
    prompts = [capsys.readouterr().err for _ in batches(None)]
    assert prompts == ["> " * terminal] * 2


class Trickle(io.RawIOBase):
    """A stream that brings a few bytes with each read."""

    def __init__(self, data: bytes, terminal: bool = False) -> None:
        self.data, self.terminal = data, terminal

    def isatty(self) -> bool:
        return self.terminal

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part, self.data = self.data[:701], self.data[701:]
        buffer[: len(part)] = part
        return len(part)


class NoMemory:
    """A fault: hardly more memory than the process has already."""

    def __call__(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGESIZE") + (1 << 24), -1))


class BrokenImport:
    """A fault: a library that met the end of memory halfway through its import."""

    def __call__(self) -> None:
        import regard.__main__ as entrance

        sys.modules["regard.cli"] = None  # importing it raises an ImportError
        entrance.little_memory = lambda: True


def test_an_import_that_memory_broke_is_one_sentence(tmp_path):
    command = regard("models", folder=tmp_path, plant=BrokenImport())
    assert (command.code, command.err.count("\n")) == (2, 1)
    assert command.err.startswith("regard: There is not enough memory")


def test_too_little_memory_is_one_sentence(tmp_path):
    command = regard("translate", "en-fr", folder=tmp_path, plant=NoMemory(), stdin=b"the cat .\n")
    assert command.code == 2
    assert command.err.startswith("regard: There is not enough memory")
    assert command.err.count("\n") == 1
