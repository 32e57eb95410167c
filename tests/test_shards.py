"""A corpus in shards: every line once and in order, whatever is killed; the core knows no model."""

import gzip
import json
import os
import random
import re
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import commands
import pytest

from regard import processes
from regard.cluster import local
from regard.cluster.local import Worker, gpus_for, run_local, share_cores
from regard.cluster.shards import (
    ShardReader,
    finished,
    join,
    make_plan,
    missing,
    output_name,
    read_results,
    results_path,
    write_results,
)
from regard.errors import DataError, RunError
from regard.text.lines import zstd

TASK = {"work": "upper"}


@dataclass(frozen=True)
class Upper:
    """Work that needs no model. It may die once or always at a line, hang, be slow, or count its starts."""

    folder: str = ""
    dies_once_at: str | None = None
    fails_at: str | None = None
    hangs_at: str | None = None
    pause: float = 0.0

    def __call__(self):
        def work(lines, tell):
            for line in lines:
                if line == self.dies_once_at and not (mark := Path(self.folder) / "died").exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                if line == self.fails_at:
                    raise ValueError("no good")
                time.sleep(3600 if line == self.hangs_at else self.pause)
                tell(1)
                yield {"translation": line.upper()}

        return work


@dataclass(frozen=True)
class Gpu:
    """Work that notes which GPU its worker sees, and waits for the other worker."""

    folder: Path

    def __call__(self):
        (self.folder / f"worker-{os.getpid()}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])

        def work(lines, tell):
            while len(list(self.folder.glob("worker-*"))) < 2:
                time.sleep(0.01)
            yield from ({"translation": line} for line in lines)

        return work


def text(result):
    return result["translation"]


@pytest.fixture
def corpus(tmp_path):
    """Two files, one packed, with a blank line, a line separator and no newline at the end."""
    lines = [f"line {n}" if n % 7 else "" for n in range(23)], ["a\u2028b", "ç", "end"]
    (tmp_path / "a.txt").write_text("\n".join(lines[0]) + "\n", encoding="utf-8", newline="\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(lines[1]).encode()))
    return [str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")], lines


def outputs(out):
    return [
        (out / "a.txt").read_text(encoding="utf-8").split("\n"),
        gzip.decompress((out / "b.txt.gz").read_bytes()).decode().split("\n"),
    ]


def whole(lines):
    return [[line.upper() for line in some] + [""] for some in lines]


def test_every_line_once_in_order_in_the_shape_of_the_input(corpus, tmp_path):
    paths, lines = corpus
    out = tmp_path / "out"
    plan = make_plan(paths, out, 4, "", TASK)
    assert [shard.lines for shard in plan.shards()] == [4] * 5 + [3, 3]
    seen = []
    assert run_local(Upper(), plan, out, 2, lambda done, total: seen.append((done, total))) == 0
    assert seen[-1] == (26, 26)
    assert join(plan, out, "text", text) == [out / "a.txt", out / "b.txt.gz"]
    assert outputs(out) == whole(lines)
    assert finished(out) == [out / "a.txt", out / "b.txt.gz"]
    assert not (out / "shards").exists()


def test_a_zst_file_comes_back_as_one(tmp_path):
    path, out = tmp_path / "a.txt.zst", tmp_path / "out"
    path.write_bytes(zstd.compress("été\nb\n".encode()))
    plan = make_plan([str(path)], out, 4, "", TASK)
    assert run_local(Upper(), plan, out, 1) == 0
    assert join(plan, out, "text", text) == [out / "a.txt.zst"]
    assert zstd.decompress((out / "a.txt.zst").read_bytes()).decode() == "ÉTÉ\nB\n"


def test_workers_take_the_gpus_in_turn(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.processes.context", commands.context)  # a worker with a GPU loads torch
    out = tmp_path / "out"
    plan = make_plan(corpus[0], out, 4, "", TASK)
    assert run_local(Gpu(tmp_path), plan, out, 2, gpus=["0", "3"]) == 0
    assert sorted(path.read_text() for path in tmp_path.glob("worker-*")) == ["0", "3"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
def test_workers_share_the_cores_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert share_cores(None, 0) == (1, 1)
    finally:
        os.sched_setaffinity(0, allowed)
    assert share_cores(1, 0) == (1, len(allowed))


def test_workers_share_a_gpu_where_there_are_cores_for_them(monkeypatch):
    monkeypatch.setattr("regard.cluster.local.usable_cores", lambda: 16)
    assert share_cores(None, 1, per_gpu=4) == (4, 4)
    assert share_cores(None, 4, per_gpu=4) == (8, 2)
    assert share_cores(None, 12, per_gpu=4) == (12, 1)
    assert share_cores(3, 1, per_gpu=4) == (3, 5)
    assert share_cores(None, 2) == (2, 8)


def test_a_gpu_that_is_named_by_its_number_stays_visible(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert gpus_for("auto", "cuda") == ["2", "5", "7"]
    assert gpus_for("auto", "cuda:1") == []


def test_a_worker_that_dies_between_two_shards_gives_back_the_second(corpus, tmp_path, monkeypatch):
    paths, lines = corpus
    out, begun = tmp_path / "out", []
    plan = make_plan(paths, out, 20, "", TASK)

    def kill_and_begin(worker, shard, begin=Worker.begin):
        begun.append(shard.number)
        if len(begun) == 2:
            worker.process.signal(signal.SIGKILL)
            worker.process.join()
        begin(worker, shard)

    monkeypatch.setattr(Worker, "begin", kill_and_begin)
    assert run_local(Upper(), plan, out, 1) == 0
    assert begun == [0, 1, 1, 2]
    join(plan, out, "text", text)
    assert outputs(out) == whole(lines)


def test_results_do_not_depend_on_workers_or_order(corpus, tmp_path, monkeypatch):
    paths, _ = corpus
    made = []
    for workers, order in ((1, 1), (3, -1)):
        out = tmp_path / str(workers)
        plan = make_plan(paths, out, 5, "", TASK)
        monkeypatch.setattr(local, "missing", lambda *plan, order=order: missing(*plan)[::order])
        run_local(Upper(), plan, out, workers)
        join(plan, out, "jsonl", text)
        made.append([path.read_bytes() for path in sorted(out.glob("*.jsonl*"))])
    assert made[0] == made[1]
    assert json.loads(made[0][0].split(b"\n")[1]) == {"line": 2, "translation": "LINE 1"}


def test_a_worker_that_dies_is_replaced(corpus, tmp_path):
    paths, lines = corpus
    out = tmp_path / "out"
    plan = make_plan(paths, out, 4, "", TASK)
    assert run_local(Upper(str(tmp_path), dies_once_at="line 9"), plan, out, 2) == 0
    assert (tmp_path / "died").exists()
    join(plan, out, "text", text)
    assert outputs(out) == whole(lines)


def test_a_shard_that_keeps_failing_is_set_aside_and_the_rest_is_done(corpus, tmp_path):
    paths, lines = corpus
    out = tmp_path / "out"
    plan = make_plan(paths, out, 4, "", TASK)
    assert run_local(Upper(fails_at="line 9"), plan, out, 1) == 1
    assert (out / "failed" / "000002.txt").read_text(encoding="utf-8") == "ValueError: no good\n"
    with pytest.raises(RunError, match=r"000002\.jsonl is missing or damaged"):
        join(plan, out, "text", text)
    assert not (out / "manifest.json").exists()
    assert [shard.number for shard in missing(plan, out)] == [2]  # another chance
    assert run_local(Upper(), plan, out, 1) == 0
    join(plan, out, "text", text)
    assert outputs(out) == whole(lines)


def test_a_shard_that_cannot_be_set_aside_is_one_sentence(corpus, tmp_path):
    out = tmp_path / "out"
    plan = make_plan(corpus[0], out, 4, "", TASK)
    (out / "failed").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataError, match=r"^The folder .*failed cannot be created"):
        run_local(Upper(fails_at="line 9"), plan, out, 1)


def test_a_shard_that_hangs_is_set_aside_and_the_rest_is_done(corpus, tmp_path):
    paths, _ = corpus
    out = tmp_path / "out"
    plan = make_plan(paths, out, 4, "", TASK)
    assert run_local(Upper(hangs_at="line 9"), plan, out, 1, silent=1.0) == 1
    assert (out / "failed" / "000002.txt").read_text(encoding="utf-8") == "nothing was done for 1 second\n"
    assert [shard.number for shard in missing(plan, out)] == [2]


def test_work_that_cannot_start_is_one_sentence(corpus, tmp_path):
    paths, _ = corpus
    plan = make_plan(paths, tmp_path / "out", 4, "", TASK)
    with pytest.raises(RunError, match="no such model"):
        run_local(broken_start, plan, tmp_path / "out", 2)


def broken_start():
    raise RunError("no such model")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_shard_is_made_again(damage, corpus, tmp_path):
    paths, _ = corpus
    out = tmp_path / "out"
    plan = make_plan(paths, out, 10, "", TASK)
    (out / "shards").mkdir()
    read = ShardReader(plan)
    for shard in plan.shards():
        write_results(out, shard, [{"translation": row} for row in read(shard)])
    assert missing(plan, out) == []
    shard = plan.shards()[1]
    path = results_path(out, shard)
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-9], "flip": content.replace(b"line 12", b"line 13"), "empty": b""}[damage])
    assert read_results(out, shard) is None
    assert missing(plan, out) == [shard]


def test_a_folder_of_other_inputs_or_another_task_is_refused(corpus, tmp_path):
    paths, _ = corpus
    out = tmp_path / "out"
    make_plan(paths, out, 4, "", TASK)
    for change, sentence in (
        ((paths, out, 5, "", TASK), "begun with another run, other settings"),
        ((paths, out, 4, "", {"work": "lower"}), "begun with another run, other settings"),
        ((paths, out, 4, "", {**TASK, "align": False}), "or another version of regard"),
        ((paths[:1], out, 4, "", TASK), "begun with other input files"),
    ):
        with pytest.raises(RunError, match=sentence):
            make_plan(*change)
    Path(paths[0]).touch()
    make_plan(paths, out, 4, "", TASK)  # the same bytes at another time
    Path(paths[0]).write_text("other\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"a\.txt has changed since"):
        make_plan(paths, out, 4, "", TASK)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    with pytest.raises(RunError, match="holds other files"):
        make_plan(paths, tmp_path / "mine", 4, "", TASK)
    from regard.sealed import locked  # imports torch, which the workers above do without

    other = pytest.raises(RunError, match="Another process is working in")
    with locked(out, "is working"), other, locked(out, "is working"):
        pass


@pytest.mark.parametrize(
    ("name", "content", "column", "rows"),
    [
        ("a.tsv", "1\tone\n2\ttwo\n", "2", ["one", "two"]),
        ("a.jsonl", '{"text": "one"}\n{"text": "two"}\n', "text", ["one", "two"]),
        ("a.tsv", "1\tone\n2\n", "2", r"line 2 has 1 column;"),
        ("a.jsonl", '{"text": null}\n{"text": 2}\n{"text": "a\\nb"}\n', "text", ["", "2", "a\nb"]),
        ("a.jsonl", '{"text": "one"}\n[]\n', "text", r"line 2 is not a JSON object with 'text'"),
        ("a.jsonl", '{"text": ["one"]}\n', "text", r"line 1 is not a JSON object with 'text', a text;"),
        ("a.jsonl", '{"text": "one"}\n', "", r"a\.jsonl has JSON objects, not lines of text; pass --column"),
        ("a.jsonl", '{"text": true}\n', "text", r"line 1 is not a JSON object with 'text', a text;"),
    ],
)
def test_columns_of_tables(name, content, column, rows, tmp_path):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    if isinstance(rows, str):
        with pytest.raises(DataError, match=rows):
            make_plan([str(path)], tmp_path / "out", 4, column, TASK)
        assert not (tmp_path / "out" / "plan.json").exists()
    else:
        plan = make_plan([str(path)], tmp_path / "out", 4, column, TASK)
        assert ShardReader(plan)(plan.shards()[0]) == rows


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_row_with_a_line_break_is_one_line(form, tmp_path):
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    path.write_text('{"text": "one\\ntwo"}\n{"text": null}\n{"text": "a\\rb\\r\\nc"}\n', encoding="utf-8")
    plan = make_plan([str(path)], out, 2, "text", TASK)
    assert run_local(Upper(), plan, out, 1) == 0
    [made] = join(plan, out, form, text)
    lines = made.read_bytes().decode().split("\n")
    if form == "jsonl":
        lines = [json.loads(line)["translation"] for line in lines[:-1]]
        assert lines == ["ONE\nTWO", "", "A\rB\r\nC"]
    else:
        assert lines == ["ONE TWO", "", "A B C", ""]


@pytest.mark.parametrize(
    ("inputs", "given", "name"),
    [
        (["t.en", "t.de"], {"form": "jsonl"}, "t.jsonl"),
        (["a.txt", "a.tsv"], {}, "a.txt"),
        (["x/a.txt", "y/a.txt"], {}, "a.txt"),
        (["a.txt.gz", "a.tsv.gz"], {}, "a.txt.gz"),
        (["a.txt", "a.txt.gz"], {"form": "parquet"}, "a.parquet"),
        (["a.en", "a.fr"], {"ending": ".links"}, "a.links"),
        (["manifest.json"], {}, "manifest.json"),
        (["plan.json"], {}, "plan.json"),
        (["shards"], {}, "shards"),
        (["failed"], {}, "failed"),
    ],
)
def test_inputs_whose_outputs_have_the_same_name_are_refused_before_any_work(inputs, given, name, tmp_path):
    out, paths = tmp_path / "out", [tmp_path / one for one in inputs]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("one\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"would be called {re.escape(name)}; rename an input"):
        make_plan(list(map(str, paths)), out, 2, "", TASK, partial(output_name, **given))
    assert not out.exists()


def test_inputs_that_change_meanwhile_are_not_mixed(corpus, tmp_path):
    """Their size and time may be as before; the results are deleted, and the same command begins again."""
    (path, other), lines = corpus
    path, out = Path(path), tmp_path / "out"
    plan, about, before = make_plan([str(path), other], out, 4, "", TASK), path.stat(), path.read_bytes()
    assert run_local(Upper(), plan, out, 1) == 0
    path.write_bytes(before.replace(b"line", b"word"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(RunError, match=r"a\.txt was changed while it was read.*Repeat the command"):
        join(plan, out, "text", text)
    path.write_bytes(before)
    assert os.listdir(out) == []
    plan = make_plan([str(path), other], out, 4, "", TASK)
    assert run_local(Upper(), plan, out, 1) == 0
    path.rename(tmp_path / "moved")
    with pytest.raises(RunError, match=r"a\.txt is gone; put it back and repeat the command"):
        join(plan, out, "text", text)
    (tmp_path / "moved").rename(path)
    join(plan, out, "text", text)
    assert outputs(out) == whole(lines)


def drive(paths, out, forks):
    commands.share_forkserver(forks)
    processes.context = commands.context
    plan = make_plan(paths, out, 4, "", TASK)
    run_local(Upper(pause=0.02), plan, out, 2)
    join(plan, out, "text", text)


def test_a_driver_killed_at_random_moments_loses_and_repeats_nothing(corpus, tmp_path):
    """The driver is killed with SIGKILL; its workers end by themselves, and the next driver does what is missing."""
    paths, lines = corpus
    out, seed = tmp_path / "out", time.time_ns()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for kills in (True, True, False):
        driver = commands.context.Process(target=drive, args=(paths, out, commands.forkserver_address()))
        driver.start()
        wanted = len(list(out.glob("shards/*.jsonl"))) + rng.randrange(3)
        while kills and driver.is_alive() and len(list(out.glob("shards/*.jsonl"))) < wanted:
            time.sleep(0.01)
        if kills:
            driver.kill()
        driver.join()
    assert driver.exitcode == 0
    assert outputs(out) == whole(lines)


def test_a_list_that_is_empty_at_first_holds_text_later_in_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install regard[ray])")
    import pyarrow.parquet as pq

    from regard.cluster import shards

    monkeypatch.setattr(shards, "AT_ONCE", 2)
    rows = [{"line": 1, "unplaced": []}, {"line": 2, "unplaced": []}, {"line": 3, "unplaced": ["cat"]}]
    shards._write_parquet(tmp_path / "a.parquet", (json.dumps(row).encode() for row in rows))
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == rows
    shards._write_parquet(tmp_path / "empty.parquet", iter(()))
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0
