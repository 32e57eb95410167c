"""No crash, full disk or failing call during a save loses what was saved, and the next save sweeps up."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
import small
import torch
from commands import metrics, regard
from faults import FAULTS, Crash, Disk, every_place
from test_train_resume import state_of

from regard.errors import RegardError, RunError
from regard.runs.folder import (
    CHECKPOINT,
    checkpoints,
    digest,
    find_weights,
    is_finished,
    newest_checkpoint,
    prune,
    publish,
    read_cursor,
    read_manifest,
    read_tensors,
    save_checkpoint,
)
from regard.sealed import fill_folder, make_folder, write_atomically
from regard.training.events import Journal


def tensors(step: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((3, 5), float(step)), "bias": torch.arange(7.0) + step}


def save(run, step: int, keep=(), best: int | None = None):
    folder = save_checkpoint(
        run, step, tensors(step), {"0.step": torch.tensor(step)}, {"step": step, "best_step": best}
    )
    prune(run, {step, *keep})
    return folder


def attempt(disk, action) -> BaseException | None:
    """Do something on this disk: what it was refused with, or how it crashed."""
    try:
        with disk.installed() if disk else nullcontext():
            action()
    except (RegardError, Crash) as error:
        return error
    return None


def content(run) -> int:
    """The step of the newest whole checkpoint, with every tensor of it read."""
    folder = newest_checkpoint(run)
    step = read_cursor(folder).step
    assert folder.name == f"{step:06d}"
    for name, tensor in read_tensors(folder / "weights.safetensors").items():
        assert torch.equal(tensor, tensors(step)[name])
    return step


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("[train]\n", encoding="utf-8")
    return tmp_path / "run"


# Errors that differ in their number alone, and are not retried, go the same way; `make slow` has all.
each_fault = pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[pytest.mark.slow] * (one in ("EDQUOT", "EIO"))) for one in FAULTS]
)


@each_fault
def test_a_save_that_fails_at_any_operation_keeps_the_last_one(fault, run):
    places = 0
    for place in every_place():
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        disk = Disk()
        with disk.installed():
            save(run, 1)
            save(run, 2, keep=[1])
        disk = Disk(place, fault)
        error = attempt(disk, lambda: save(run, 3, keep=[2]))
        returned = error is None
        if not returned:
            assert isinstance(error, Crash) == (fault == "crash")
            assert fault == "crash" or "The checkpoint of step 3" in str(error)
            assert fault == "crash" or "Earlier checkpoints are unchanged" in str(error)
        if not disk.failed:
            assert returned
            break
        places += 1
        assert content(run) == 3 if returned else content(run) in (2, 3)
        with Disk().installed():
            save(run, 4, keep=[2, 3])
        assert content(run) == 4
        names = sorted(os.listdir(run / "checkpoints"))
        assert names in (["000002", "000004"], ["000002", "000003", "000004"])
    assert places > 20
    assert {"create", "write", "fsync", "rename", "mkdir", "open"} <= set(disk.log)


@each_fault
def test_a_publication_that_fails_at_any_operation_leaves_something_to_load(fault, run):
    (run / "source.json").write_text("{}", encoding="utf-8")
    for place in every_place():
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        with Disk().installed():
            save(run, 2)
            publish(run, tensors(1), ["source.json"], {"steps": [1]})
        disk = Disk(place, fault)
        error = attempt(disk, lambda: publish(run, tensors(2), ["source.json"], {"steps": [2]}))
        assert isinstance(error, Crash) == (fault == "crash" and disk.failed)
        found = read_tensors(find_weights(run))
        allowed = (1, 2) if is_finished(run) else (2,)
        assert any(torch.equal(found["bias"], tensors(step)["bias"]) for step in allowed)
        if not disk.failed:
            break
        publish(run, tensors(2), ["source.json"], {"steps": [2]})
        assert torch.equal(read_tensors(find_weights(run))["bias"], tensors(2)["bias"])
        assert not [name for name in os.listdir(run) if name.endswith(".tmp")]
    assert place > 10


@pytest.mark.parametrize("luck", [0.0, 0.5])
def test_a_loss_of_power_at_any_operation_keeps_the_last_one(luck, run):
    """All names that were not synced are lost, or about half of them."""
    draw = random.Random(5)
    for place in every_place():
        before = Disk()
        with before.installed():
            shutil.rmtree(run, ignore_errors=True)
            make_folder(run)
            write_atomically(run / "config.toml", b"[train]\n")
            save(run, 2)
        disk = Disk(place, "crash")
        disk.names, disk.unsynced = before.names, before.unsynced
        crashed = attempt(disk, lambda: (save(run, 3, keep=[2]), publish(run, tensors(3), [], {})))
        disk.lose_power(run, lambda: draw.random() < luck)
        assert content(run) in (2, 3)
        found = read_tensors(find_weights(run))
        assert any(torch.equal(found["bias"], tensors(step)["bias"]) for step in (2, 3))
        if crashed is None:
            assert content(run) == 3
            assert is_finished(run)
            break
    assert place > 30


def test_a_loss_of_power_keeps_every_file_and_folder_that_was_reported_as_written(tmp_path):
    disk = Disk()
    with disk.installed():
        make_folder(tmp_path / "new" / "deep")
        write_atomically(tmp_path / "new" / "deep" / "file", b"old")
        write_atomically(tmp_path / "new" / "deep" / "file", b"new")
        for content in (b"1", b"2"):
            with fill_folder(tmp_path / "new" / "other" / "folder") as folder, open(folder / "part", "wb") as stream:
                stream.write(content)
    disk.lose_power(tmp_path)
    assert (tmp_path / "new" / "deep" / "file").read_bytes() == b"new"
    assert (tmp_path / "new" / "other" / "folder" / "part").read_bytes() == b"2"


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    with fill_folder(tmp_path / "folder") as filling:
        (filling / "file").write_text("old", encoding="utf-8")
    rename = os.rename

    def failing(source, target):
        if str(target) == str(tmp_path / "folder") and ".old" not in str(source):
            raise OSError(errno.EIO, "the disk fails")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="the disk fails"), fill_folder(tmp_path / "folder") as filling:
        (filling / "file").write_text("new", encoding="utf-8")
    assert (tmp_path / "folder" / "file").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_removed_folder_comes_back_whole_or_not_at_all(tmp_path):
    draw = random.Random(3)
    for place in every_place():
        before = Disk()
        with before.installed():
            save(tmp_path, 1)
            save(tmp_path, 2, keep=[1])
        disk = Disk(place, "crash")
        attempt(disk, lambda: prune(tmp_path, [2]))
        disk.lose_power(tmp_path, lambda: draw.random() < 0.5)
        assert [content(tmp_path) for _ in checkpoints(tmp_path)]
        for folder in checkpoints(tmp_path):
            read_manifest(folder, CHECKPOINT)
        if not disk.failed:
            break
    assert place > 5


def test_a_disk_that_lies_is_found_out_before_anything_is_deleted(run):
    """Each write in turn changes a byte, and says that all is well."""
    lies = 0
    for place in every_place():
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        with Disk().installed():
            save(run, 2)
        disk = Disk(place, "lie")
        error = attempt(disk, lambda: save(run, 3))
        if not disk.failed:
            break
        if disk.log[place] == "write":
            lies += 1
            assert "damaged" in str(error)
            assert content(run) == 2
    assert lies == 4


def test_real_kills_at_every_operation_of_a_save(run):
    for place in every_place():
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        with Disk().installed():
            save(run, 2)
        child = os.fork()
        if child == 0:  # pragma: no cover - dies here, or leaves without pytest noticing
            with Disk(place, "kill").installed():
                save(run, 3, keep=[2])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert content(run) in (2, 3)
        if os.WIFEXITED(status):
            assert content(run) == 3
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        with Disk().installed():
            save(run, 4)
        assert os.listdir(run / "checkpoints") == ["000004"]
    assert place > 20


def test_deleting_never_leaves_half_a_checkpoint_under_its_name(run):
    for place in every_place():
        for step in (1, 2, 3):
            with Disk().installed():
                save(run, step, keep=range(step))
        disk = Disk(place, "crash")
        attempt(disk, lambda: prune(run, [3]))
        for folder in checkpoints(run):
            assert sorted(os.listdir(folder)) == [
                "manifest.json",
                "state.json",
                "state.safetensors",
                "weights.safetensors",
            ]
        assert content(run) == 3
        if not disk.failed:
            break
    assert place > 5


def test_what_cannot_be_deleted_is_no_reason_to_stop(run):
    whole = Disk()
    save(run, 1)
    with whole.installed():
        prune(run, [])
    save(run, 1)
    disk = Disk(whole.log.index("rename"), "EACCES")
    with disk.installed():
        prune(run, [])
    assert disk.failed
    assert content(run) == 1


def test_what_a_crash_left_goes_with_the_next_save_and_nothing_else_does(run):
    left = [run / ".weights.safetensors.4321.tmp", run / "checkpoints" / ".000001.tmp"]
    left[1].mkdir(parents=True)
    for path in (left[0], left[1] / "state.json", run / "mine.tmp", run / ".mine"):
        path.write_bytes(b"half")
    save(run, 2)
    assert not any(path.exists() for path in left)
    assert (run / "mine.tmp").exists()
    assert (run / ".mine").exists()


def test_too_little_space_is_refused_before_anything_is_written(run, monkeypatch):
    save(run, 1)
    usage = shutil.disk_usage(run)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    before = sorted(run.rglob("*"))
    with pytest.raises(RunError, match=r"No space left for a checkpoint in .*: 0\.0 MiB are needed and 0\.0 free"):
        save(run, 2)
    assert sorted(run.rglob("*")) == before
    assert content(run) == 1


def test_a_log_that_cannot_be_written_is_one_sentence(run):
    journal = Journal(run, 0)
    with (
        Disk(0, "ENOSPC").installed(),
        pytest.raises(RunError, match=r"metrics\.jsonl could not be written: No space left"),
    ):
        journal.write(1, loss=2.0)


class SmallFiles:
    """A fault: no file of this process may grow beyond this size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


def test_a_command_whose_checkpoint_cannot_be_written_is_one_sentence_and_code_2(tmp_path):
    run, settings = tmp_path / "run", ("train.steps=8", "train.validate_every=100")
    whole = tmp_path / "whole"
    small.train("bahdanau", whole, *settings)
    weights = (whole / "weights.safetensors").stat().st_size
    log = tmp_path / "log"
    failed = regard(*small.arguments("bahdanau", run, *settings), folder=log, plant=SmallFiles(weights - 10))
    assert failed.code == 2
    assert "Traceback" not in failed.err
    sentence = failed.err.split("\n")[-2]
    assert sentence.startswith(
        f"regard: The checkpoint of step 4 could not be saved in {run / 'checkpoints'}: File too large."
    )
    assert os.listdir(run / "checkpoints") == []
    assert regard(*small.arguments("bahdanau", run, *settings), folder=log).code == 0
    assert state_of(run) == state_of(whole)


@pytest.fixture
def little(tmp_path):
    """A separate real file system, and a way to change its size."""
    place = tmp_path / "little"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place, lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_really_full_at_many_sizes(little, monkeypatch):
    place, resize = little
    monkeypatch.setattr(sys.modules["regard.runs.folder"], "SPARE", 0)  # let the disk find out, not the check before it
    run = place / "run"
    refused = 0
    for pages in range(4, 24):
        shutil.rmtree(run, ignore_errors=True)
        resize("64k")
        run.mkdir()
        save(run, 1)
        resize(f"{4 * (pages + 1)}k")
        error = attempt(None, lambda: save(run, 2, keep=[1]))
        if error:
            assert "No space left on device" in str(error)
            refused += 1
            assert os.listdir(run / "checkpoints") == ["000001"]
        assert content(run) == (1 if error else 2)
    assert 2 < refused < 19


def test_a_run_on_a_full_disk_goes_on_when_there_is_room(little, tmp_path):
    place, resize = little
    settings = ("train.steps=12", "train.validate_every=100", "model.width=40", "train.keep=2")
    small.train("bahdanau", tmp_path / "whole", *settings)
    needed = sum(file.stat().st_size for file in (tmp_path / "whole" / "checkpoints" / "000012").iterdir())
    resize(f"{int(needed * 2.2) // 1024 + 60}k")  # one checkpoint, and not twice the room for another
    command = small.arguments("bahdanau", place / "run", *settings)
    failed = regard(*command, folder=tmp_path / "log")
    assert failed.code == 2
    assert "Traceback" not in failed.err
    assert "No space left" in failed.err.split("\n")[-2]
    assert content_steps(place / "run")
    assert metrics(place / "run")
    resize(f"{needed * 8 // 1024}k")
    done = regard(*command, folder=tmp_path / "log")
    assert done.code == 0, done.err
    assert state_of(place / "run") == state_of(tmp_path / "whole")


def content_steps(run) -> list[int]:
    return [int(folder.name) for folder in checkpoints(run)]


def test_random_faults_in_a_row_never_lose_a_save_that_returned(run):
    rng = random.Random(7)
    saved = 0
    for step in range(1, 120):
        disk = Disk(rng.randrange(60), rng.choice(FAULTS))
        if attempt(disk, lambda step=step, saved=saved: save(run, step, keep=[saved])) is None:
            saved = step
        if saved:
            assert content(run) in (saved, step)
            saved = content(run)
    assert saved > 30


def test_the_state_is_plain_json_and_the_rest_safetensors(run):
    folder = save(run, 1)
    assert sorted(file.suffix for file in folder.iterdir()) == [".json", ".json", ".safetensors", ".safetensors"]
    for file in folder.glob("*.json"):
        json.loads(file.read_text(encoding="utf-8"))
    for file in folder.glob("*.safetensors"):
        read_tensors(file)
        assert digest(file) == json.loads((folder / "manifest.json").read_bytes())["files"][file.name]["sha256"]
