"""SIGTERM and Ctrl-C: training saves and exits (0, 130) after the current update; resuming changes nothing."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress

import pytest
import small
from commands import Command, KillAfter, SignalIn, SignalLater, metrics, regard, steps_made
from faults import Crash, Disk, every_place
from test_train_resume import HISTORY, state_of

from regard.api.training import gather
from regard.errors import ConfigError, RunError
from regard.runs.experiment import resolve
from regard.runs.folder import checkpoints, held, newest_checkpoint, read_config, read_cursor
from regard.training.events import Stepped
from regard.training.start import claim, train

SETTINGS = ("train.epochs=2", "model.dropout=0.2", *HISTORY)
SAVED = "Saved. To resume: regard train --out"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    assert regard(*small.arguments("bahdanau", run, *SETTINGS), folder=run.parent / "log").code == 0
    return state_of(run)


def resumed(run, expected):
    """The state of a run that was stopped and resumed; its last checkpoint may still have a validation due.

    A stop at the last step leaves a checkpoint that says so. Resuming makes the validation and publishes, and does not
    write a checkpoint of the same step a second time.
    """
    found = state_of(run)
    if found["cursor"]["due"]:
        assert found["cursor"]["step"] == expected["cursor"]["step"]
        found["cursor"] = expected["cursor"]
    return found


def stopped(run, command, at=None, number=signal.SIGTERM):
    """What every stop must be like: its code, one sentence, not finished, and no step of the log lost."""
    assert command.code == (130 if number == signal.SIGINT else 0), command.err
    assert command.err.count(SAVED) == 1
    assert "Traceback" not in command.err
    assert not (run / "manifest.json").exists()
    assert int(newest_checkpoint(run).name) == steps_made(run)
    if at is not None:
        assert steps_made(run) == at


# At 6 and 12 a validation is due when the stop comes; the checkpoint of 11 would be among the newest, the averaged.
@pytest.mark.parametrize(("number", "stops"), [(signal.SIGTERM, (1, 5, 10)), (signal.SIGINT, (8, 11))])
def test_a_signal_saves_and_the_same_command_goes_on(number, stops, expected, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    assert expected["cursor"]["step"] == 12
    for step in stops:
        stopped(run, regard(*command, folder=tmp_path / "log", plant=KillAfter(step, number)), step + 1, number)
    done = regard(*command, folder=tmp_path / "log")
    assert done.code == 0
    assert state_of(run)["cursor"]["due"] == (stops[-1] == 11)  # the last checkpoint is that of the stop
    assert resumed(run, expected) == expected
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}
    assert regard(*command, folder=tmp_path / "log").code == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_in_a_validation_breaks_it_off_and_it_is_made_up_for(number, expected, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    plant = SignalIn("regard.decode.search:search", range(1, 100), number)
    for step in (3, 3):  # stopped again in the validation that it owes
        stopped(run, regard(*command, folder=tmp_path / "log", plant=plant), step, number)
        assert read_cursor(newest_checkpoint(run)).due
        assert not [line for line in metrics(run) if "dev_loss" in line]
    killed = regard(*command, folder=tmp_path / "log", plant=KillAfter(4))  # owed, made, and lost with the kill
    assert killed.code == -signal.SIGKILL
    assert [line["step"] for line in metrics(run) if "dev_loss" in line] == [3]
    assert regard(*command, folder=tmp_path / "log").code == 0
    assert state_of(run) == expected


def test_a_signal_while_saving_or_finishing_waits_for_it(expected, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    log = tmp_path / "log"
    stopped(run, regard(*command, folder=log, plant=SignalIn("regard.runs.folder:fill_folder", [2])))
    done = regard(*command, folder=log, plant=SignalIn("regard.training.checkpoints:Checkpoints.publish", [1]))
    assert done.code == 0
    assert "done at step" in done.err
    assert state_of(run) == expected


def test_at_any_moment_it_ends_within_one_update(expected, tmp_path):
    run, note, seed = tmp_path / "run", tmp_path / "note", time.time_ns()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(4):
        number = rng.choice([signal.SIGTERM, signal.SIGINT])
        plant = SignalLater(steps_made(run) + 1 + rng.randrange(4), rng.random() / 30, number, note)
        command = regard(*small.arguments("bahdanau", run, *SETTINGS), folder=tmp_path / "log", plant=plant)
        if (run / "manifest.json").exists():
            break  # it was done already
        stopped(run, command, number=number)
        assert steps_made(run) <= int(note.read_text()) + 2  # the update that it was in, and at most the next
    assert regard(*small.arguments("bahdanau", run, *SETTINGS), folder=tmp_path / "log").code == 0
    assert resumed(run, expected) == expected


class TwoInterrupts:
    """A fault: Ctrl-C in update 5, and again a good while later in the same update."""

    def __call__(self) -> None:
        from regard.training.loop import Loop

        update = Loop.update

        def slow(loop, group, last):
            if loop.cursor.step == 4:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.1)
                os.kill(os.getpid(), signal.SIGINT)
            update(loop, group, last)

        Loop.update = slow


def test_a_second_interrupt_breaks_off_at_once_and_loses_nothing_that_was_saved(tmp_path):
    run = tmp_path / "run"
    command = regard(*small.arguments("bahdanau", run, *SETTINGS), folder=tmp_path / "log", plant=TwoInterrupts())
    assert command.code == 130
    assert command.err.endswith("regard: stopped.\n")
    assert newest_checkpoint(run).name == "000004"


def test_the_checkpoint_of_a_stop_goes_with_the_next_save(tmp_path):
    run = tmp_path / "run"
    settings = ("train.steps=16", "train.validate_every=100", "train.keep=2")
    command = small.arguments("bahdanau", run, *settings)
    for step, kept in ((9, ["000004", "000008", "000010"]), (13, ["000008", "000012", "000014"])):
        stopped(run, regard(*command, folder=tmp_path / "log", plant=KillAfter(step, signal.SIGTERM)), at=step + 1)
        assert [folder.name for folder in checkpoints(run)] == kept
    assert regard(*command, folder=tmp_path / "log").code == 0
    assert [folder.name for folder in checkpoints(run)] == ["000012", "000016"]


def test_a_second_process_in_the_same_run_is_refused(tmp_path):
    run = tmp_path / "run"
    first = Command(small.arguments("bahdanau", run, "train.steps=1000000"), tmp_path / "log")
    first.until(lambda: steps_made(run) > 2)
    second = regard(*small.arguments("bahdanau", run, "train.steps=1000000"), folder=tmp_path / "log")
    first.send(signal.SIGTERM)
    first.code = first.wait()
    assert second.code == 2
    assert second.err == f"regard: Another process is training in {run}; wait for it, or choose another --out.\n"
    stopped(run, first)


@pytest.mark.parametrize("other", [(), ("train.rate=0.01",), ("data.subwords=char",)])
def test_a_folder_that_is_held_is_not_touched_by_another_start(other, tmp_path):
    """Before the first checkpoint a start with other settings clears a folder, but not that of a running process."""
    run, settings = tmp_path / "run", ("train.steps=3", "train.save_every=100")
    tried = []

    def observe(event):
        if isinstance(event, Stepped) and event.step == 2:
            before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
            with pytest.raises(RunError, match=r"Another process is training in .*run; wait for it, or choose another"):
                small.train("bahdanau", run, *settings, *other)
            tried.append({path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before)

    assert small.train("bahdanau", run, *settings, observe=observe) == "done"
    assert tried == [True]


def test_a_start_that_was_never_trained_is_replaced_and_what_it_left_is_gone(tmp_path):
    run = tmp_path / "run"
    for subwords in ("char", "word"):
        with pytest.raises(ZeroDivisionError):
            small.train("bahdanau", run, f"data.subwords={subwords}", observe=lambda event: 1 // 0)
    assert read_config(run)["data"]["subwords"] == "word"
    assert sorted(path.name for path in run.iterdir()) == [
        ".lock",
        "config.toml",
        "corpus",
        "source.json",
        "target.json",
    ]
    (run / "checkpoints").mkdir()  # killed while it saved its first checkpoint
    with pytest.raises(ZeroDivisionError):
        small.train("bahdanau", run, "data.subwords=char", observe=lambda event: 1 // 0)
    assert read_config(run)["data"]["subwords"] == "char"
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=r"holds notes\.txt, which regard did not write; choose another --out"):
        small.train("bahdanau", run, "data.subwords=word")


def test_a_crash_while_a_folder_is_cleared_leaves_one_that_can_be_started(tmp_path):
    first, second = small.experiment("bahdanau"), small.experiment("bahdanau", "train.rate=0.01")
    for place in every_place():
        run = tmp_path / str(place)
        with held(run):
            claim(first, run)
            (run / "source.json").write_bytes(b"{}")
            (run / "corpus").mkdir()
            disk = Disk(place, "crash")
            with suppress(Crash), disk.installed():
                claim(second, run)
            claim(second, run)
            assert sorted(path.name for path in run.iterdir()) == [".lock", "config.toml"]
        if not disk.failed:
            break
    assert place > 5


def test_a_folder_made_for_nothing_goes_and_one_that_was_there_stays(tmp_path):
    run = tmp_path / "a" / "run"
    for existed in (False, True):
        if existed:
            run.mkdir()
        with pytest.raises(ConfigError), held(run):
            raise ConfigError("refused")
        assert run.exists() == existed
    (run / "mine").touch()
    with pytest.raises(RunError, match="is not a run of regard; nothing was changed"), held(run):
        pass
    assert [path.name for path in run.iterdir() if path.name != ".lock"] == ["mine"]


def test_what_a_kill_left_is_tidied_by_the_next_start_also_of_a_finished_run(tmp_path):
    run, settings = tmp_path / "run", ("train.steps=12", "train.keep=2", "train.validate_every=100")
    small.train("bahdanau", run, *settings)
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    weights = (run / "weights.safetensors").read_bytes()
    assert "checkpoints/000004" not in names
    shutil.copytree(run / "checkpoints" / "000008", run / "checkpoints" / "000004")  # killed before it was pruned
    shutil.copytree(run / "checkpoints" / "000008", run / "checkpoints" / ".000004.old.tmp")
    shutil.copytree(run / "corpus", run / ".corpus.4321.tmp")
    shutil.copytree(run / "corpus", run / ".old.4321.tmp")
    (run / ".weights.safetensors.4321.tmp").write_bytes(b"half")
    small.train("bahdanau", run, *settings)
    assert sorted(str(path.relative_to(run)) for path in run.rglob("*")) == names
    assert (run / "weights.safetensors").read_bytes() == weights


def test_sigterm_while_the_corpus_is_prepared_leaves_nothing_half_written(tmp_path):
    handler, run = signal.getsignal(signal.SIGTERM), tmp_path / "run"

    def stop(stage, done, total):
        if stage == "tokenising":
            os.kill(os.getpid(), signal.SIGTERM)

    experiment = resolve(gather(None, "luong", "tiny", small.settings("luong"), corpus="reverse"))
    with pytest.raises(SystemExit) as raised:
        train(experiment, run, stages=stop)
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not [path.name for path in run.iterdir() if path.suffix == ".tmp"]


def test_the_handlers_of_the_caller_come_back(tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    small.train("bahdanau", tmp_path / "run", "train.steps=1")
    assert {number: signal.getsignal(number) for number in before} == before
