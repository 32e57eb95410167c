"""A corpus through a model in shards: alignments, measures and reach are those of the whole, and options are kept."""

import json
import shutil
import sys

import pytest
import trained
from commands import regard as command

from regard.api.aligning import Linking, align, link, traces, weigh
from regard.api.corpus import (
    Where,
    align_corpus,
    find_inputs,
    reach_corpus,
    read_reach,
    read_report,
    report_corpus,
    translate_corpus,
)
from regard.api.heads import Heads
from regard.api.measuring import report_heads
from regard.api.tracing import LONGEST_LOOK
from regard.cluster.shards import ShardReader, make_plan, missing, write_results
from regard.corpora.registry import generate_copy
from regard.errors import ConfigError, DataError, RunError
from regard.text.pharaoh import format_pharaoh

TEXT = [example.source for example in generate_copy(13, 97, 2, 6)]


@pytest.fixture
def pairs(tmp_path):
    """Two files of pairs: the same on both sides, but for one that is empty, one with a tab and one that is long."""
    source = [*TEXT[:4], "", TEXT[4].replace(" ", "\t"), " ".join(["a"] * (LONGEST_LOOK + 1)), *TEXT[5:]]
    target = [*TEXT[:4], "a", TEXT[4], "a", *TEXT[5:]]
    for name, lines in (("a.source", source), ("a.target", target)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return [tmp_path / "a.source", tmp_path / "a.target"]


class Done(list):
    """Numbers of shards."""

    killed: BaseException | None = None


@pytest.fixture
def here(monkeypatch):
    """Shards are worked on in this process, the last ones first, up to shard 0 if `killed`; lists those that were."""
    done = Done()

    def run(self, start, plan, out, workers, progress):
        work, read = start(), ShardReader(plan)
        for shard in reversed(missing(plan, out)):
            if done.killed and shard.number == 0:
                raise done.killed
            write_results(out, shard, work(read(shard), lambda rows: None))
            done.append(shard.number)
        return 0

    monkeypatch.setattr(Where, "run", run)
    return done


def test_links_in_shards_are_those_of_the_whole_and_what_has_none_is_an_empty_line(pairs, here, tmp_path):
    translator = trained.translator("copy")
    expected = [format_pharaoh(links) for links in align(traces(translator, TEXT, TEXT), translator.heads)]
    expected[4:4] = [""]
    expected[6:6] = [""]
    made = []
    for shard in (4, 100):
        out = tmp_path / str(shard)
        found = align_corpus(trained.run("copy"), pairs, out, where=Where(shard=shard))
        assert (found.outputs, found.lines, found.failed) == ([out / "a.links"], 15, 0)
        made.append((out / "a.links").read_bytes())
    assert made[0].decode().split("\n")[:-1] == expected
    assert made[0] == made[1]
    assert here == [3, 2, 1, 0, 0]


def test_both_directions_are_joined_and_a_tsv_file_is_as_good_as_two(pairs, here, tmp_path):
    run, table = trained.run("copy"), tmp_path / "a.tsv"
    table.write_text("".join(f"{line}\t{line}\n" for line in TEXT), encoding="utf-8")
    align_corpus(run, [table], tmp_path / "both", back=run, how=Linking(join="intersection"), where=Where())
    identity = [" ".join(f"{at}-{at}" for at in range(len(line.split()))) for line in TEXT]
    assert (tmp_path / "both" / "a.links").read_text(encoding="utf-8").split("\n")[:-1] == identity
    table.write_text("one\tone\nwithout a tab\n", encoding="utf-8")
    with pytest.raises(DataError, match="row 2 of the shard has 0 tabs"):
        align_corpus(run, [table], tmp_path / "wrong", where=Where())


@pytest.mark.parametrize(("least", "unlike"), [(0.3, "intersection"), (0.6, "union")])
def test_the_mean_of_both_directions_in_shards_is_that_of_the_whole(least, unlike, pairs, here, tmp_path):
    run, translator, shifted = trained.run("copy"), trained.translator("copy"), Heads(shift=1)
    ahead, behind = (weigh(traces(translator, TEXT, TEXT), heads) for heads in (shifted, translator.heads))
    whole = link(ahead, behind, Linking("threshold", least, "mean"))
    assert whole != link(ahead, behind, Linking("threshold", least, unlike))  # one direction is shifted, so they differ
    expected = [format_pharaoh(links) for links in whole]
    expected[4:4] = [""]
    expected[6:6] = [""]
    for shard in (4, 100):
        out, how = tmp_path / str(shard), Linking("threshold", least, "mean")
        align_corpus(run, pairs, out, back=run, how=how, heads=shifted, where=Where(shard=shard))
        assert (out / "a.links").read_text(encoding="utf-8").split("\n")[:-1] == expected
    out, files = tmp_path / "command", ["--source", pairs[0], "--target", pairs[1], "--back", run, "--shift", 1]
    done = command("align", run, *files, "--join", "mean", "--method", "threshold", "--threshold", least,
                   "--on", "local", "--workers", 1, "--out", out, folder=tmp_path / "log")  # fmt: skip
    assert done.code == 0, done.err
    assert (out / "a.links").read_text(encoding="utf-8").split("\n")[:-1] == expected


def test_a_killed_alignment_makes_only_what_is_missing(pairs, here, tmp_path):
    run, out = trained.run("copy"), tmp_path / "out"
    align_corpus(run, pairs, tmp_path / "whole", where=Where(shard=4))
    here.clear()
    here.killed = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        align_corpus(run, pairs, out, where=Where(shard=4))
    assert here == [3, 2, 1]
    (out / "shards" / "000002.jsonl").write_bytes(b"{}")
    here.killed = None
    align_corpus(run, pairs, out, where=Where(shard=4))
    assert here == [3, 2, 1, 2, 0]
    assert (out / "a.links").read_bytes() == (tmp_path / "whole" / "a.links").read_bytes()
    assert align_corpus(run, pairs, out, where=Where(shard=4)).outputs == [out / "a.links"]
    assert here == [3, 2, 1, 2, 0]


def test_measures_of_shards_add_up_to_those_of_the_whole(pairs, here, tmp_path):
    translator = trained.translator("copy")
    whole = report_heads(translator, TEXT, TEXT)
    for shard in (4, 100):
        [sums] = report_corpus(trained.run("copy"), pairs, tmp_path / str(shard), where=Where(shard=shard)).outputs
        found = read_report(sums)
        assert found.sentences == whole.sentences == len(TEXT)
        for mine, theirs in zip(found.rows, whole.rows, strict=True):
            assert (mine.name, mine.layer, mine.head) == (theirs.name, theirs.layer, theirs.head)
            assert mine.values == pytest.approx(theirs.values, rel=1e-6)


def test_the_reach_of_shards_adds_up_to_that_of_the_text(here, tmp_path):
    text = tmp_path / "a.txt"
    lines = ["the cat sees the dog .", "", "a bird sings .", "the dog sleeps and the cat sings ."]
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run = trained.run("language")
    whole = trained.translator("language").reach(lines, 3)
    for shard in (1, 3, 9):
        [sums] = reach_corpus(run, [text], tmp_path / str(shard), farthest=3, where=Where(shard=shard)).outputs
        found = read_reach(sums)
        assert [one.name for one in found] == [one.name for one in whole]
        for mine, theirs in zip(found, whole, strict=True):
            assert mine.shares == pytest.approx(theirs.shares, rel=1e-6)
            assert mine.mean == pytest.approx(theirs.mean, rel=1e-6)
            assert mine.words == pytest.approx(theirs.words, rel=1e-6)
            assert mine.times == theirs.times


def test_files_of_pairs_must_have_the_same_number_of_lines(pairs, tmp_path):
    pairs[1].write_text("one\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"same number of lines; .*a\.source has 15 and .*a\.target 1"):
        align_corpus(trained.run("copy"), pairs, tmp_path / "out", where=Where())
    with pytest.raises(ConfigError, match=r"There is no place 'lokal' to work\. Did you mean 'local'"):
        Where("lokal")


def test_the_file_beside_an_input_is_watched_too(pairs, tmp_path):
    files = [tuple(str(path) for path in pairs)]
    plan = make_plan(files, tmp_path / "out", 4, "", {})
    assert make_plan(files, tmp_path / "out", 4, "", {}) == plan
    pairs[1].write_text(pairs[1].read_text(encoding="utf-8").replace("a\n", "b\n"), encoding="utf-8")
    with pytest.raises(RunError, match=r"a\.target has changed since"):
        make_plan(files, tmp_path / "out", 4, "", {})


def test_workers_align_and_translate_from_the_command_line(pairs, tmp_path):
    files = ["--source", pairs[0], "--target", pairs[1]]
    run, log = trained.run("copy"), tmp_path / "log"
    out = tmp_path / "links"
    done = command("align", run, *files, "--on", "local", "--workers", 1, "--out", out, folder=log)
    assert done.code == 0, done.err
    assert f"15 lines into {out / 'a.links'}" in done.err
    assert len((out / "a.links").read_text(encoding="utf-8").split("\n")) == 16
    text, terms = tmp_path / "b.txt", tmp_path / "terms.tsv"
    word, *others = TEXT[0].split()
    text.write_text(f"{TEXT[0]}\n", encoding="utf-8")
    terms.write_text(f"{word}\t{others[-1]} {others[-1]}\n", encoding="utf-8")
    done = command("translate", run, text, "--on", "local", "--out", tmp_path / "made", "--terms", terms, "--align",
                   "--format", "jsonl", "--workers", 1, folder=log)  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "made" / "b.jsonl").read_text(encoding="utf-8"))
    assert f"{others[-1]} {others[-1]} " in found["translation"]  # where, is up to a model that is trained for seconds
    assert found["unplaced"] == []
    links = [tuple(map(int, link.split("-"))) for link in found["alignment"].split()]
    assert len(links) == len(found["translation"].split())  # one source word for each


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["align", "--on", "local", "--gold", "g", "--out", "o"], "--gold and --choose read a small set"),
        (["align", "--on", "local", "--text", "s", "t", "--out", "o"], "--text learns from all pairs at once"),
        (["align", "--on", "local"], "--on takes --source and --target, or --tsv, and a folder"),
        (["heads", "--on", "local", "--silence", "--out", "o"], "--silence and --gold read a small set"),
        (["heads", "--out", "o"], "--out is for work in shards; add --on local or --on ray, or leave it out."),
        (["align", "--workers", "2"], "--workers is for work in shards"),
        (["sweep", "--address", "here:1", "--out", "o", "--on", "rai"], "There is no place 'rai' to work"),
        (["sweep", "--address", "here:1", "--out", "o"], "--address is that of a Ray cluster; add --on ray"),
        (["translate", "x.txt", "--format", "jsonl"], "--format is for work in shards"),
        (["translate", "x.txt", "--on", "local", "--out", "o", "data.max_line=9"], "leave data.max_line out"),
        (["translate", "x.txt", "--on", "local", "--out", "o", "--nbest", "2"], "one translation for each line"),
        (["translate", "x.txt", "--on", "local", "--out", "o", "--align"], "Text has no place for links"),
    ],
)
def test_what_does_not_go_with_shards_is_one_sentence(arguments, sentence, pairs, tmp_path):
    name, *rest = arguments
    done = command(name, trained.run("copy"), *rest, folder=tmp_path / "log")
    assert done.code == 2
    assert sentence in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["translate", "--unknown", "x"], "unknown must be 'copy' or 'keep'; got 'x'."),
        (["translate", "--beam", "0"], "--beam must be at least 1 and at most 1,000; got 0."),
        (["align", "--layer", "9"], "There is no layer 9 of cross-attention"),
    ],
)
def test_a_wrong_option_is_refused_before_the_first_shard_and_the_folder_stays_free(
    arguments, sentence, pairs, tmp_path
):
    (name, *options), (source, target) = arguments, pairs
    files = [source] if name == "translate" else ["--source", source, "--target", target]
    shards = ["--on", "local", "--workers", 1, "--out", tmp_path / "out"]
    done = command(name, trained.run("copy"), *files, *shards, *options, folder=tmp_path / "log")
    assert done.code == 2
    assert sentence in done.err
    assert not (tmp_path / "out" / "plan.json").exists()


def test_an_error_in_the_middle_keeps_the_shards_that_were_made(pairs, here, tmp_path):
    def align():
        return align_corpus(trained.run("copy"), pairs, tmp_path / "out", where=Where(shard=4))

    here.killed = RunError("The disk is gone.")
    with pytest.raises(RunError, match="The disk is gone"):
        align()
    here.killed = None
    align()
    assert here == [3, 2, 1, 0]


def test_shards_need_a_run_whose_weights_stay_as_they_are(tmp_path):
    run = shutil.copytree(trained.run("copy"), tmp_path / "run")
    (run / "manifest.json").unlink()
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    with pytest.raises(
        RunError, match=r"run has not finished training, .* or use a copy: regard export .*run --out DIR"
    ):
        translate_corpus(run, tmp_path / "a.txt", tmp_path / "out")


def test_an_ensemble_cannot_place_terms(tmp_path):
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="An ensemble cannot place terms"):
        translate_corpus(["en-fr", "en-fr"], tmp_path / "a.txt", tmp_path / "out", terms={"cat": "chat"})
    assert not (tmp_path / "out").exists()


def test_two_inputs_with_one_output_are_refused(tmp_path):
    for name in ("t.en", "t.de"):
        (tmp_path / name).write_text("ba\n", encoding="utf-8")
    inputs = [tmp_path / "t.en", tmp_path / "t.de"]
    with pytest.raises(DataError, match=r"^The outputs of 2 inputs would be called t\.jsonl; rename an input"):
        translate_corpus(trained.run("copy"), inputs, tmp_path / "out", format="jsonl")
    with pytest.raises(RunError, match="is inside the run"):
        translate_corpus(trained.run("copy"), inputs, trained.run("copy") / "out")


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    for name in ("in1.txt", "in2.txt", "in[12].txt"):
        (tmp_path / name).touch()
    assert find_inputs(tmp_path / "in[12].txt") == [str(tmp_path / "in[12].txt")]
    (tmp_path / "in[12].txt").unlink()
    assert find_inputs(tmp_path / "in[12].txt") == [str(tmp_path / name) for name in ("in1.txt", "in2.txt")]


def test_parquet_without_its_package_is_refused_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="Parquet files need pyarrow; install it"):
        translate_corpus(trained.run("copy"), tmp_path / "in.txt", tmp_path / "out", format="parquet")
    assert not (tmp_path / "out").exists()
