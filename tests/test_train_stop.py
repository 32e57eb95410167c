"""SIGTERM and Ctrl-C: training saves, says so and leaves with code 0 within seconds; going on changes nothing."""

import os
import random
import signal
import time

import pytest
import small
from commands import Command, KillAfter, SignalIn, metrics, regard, steps_made
from test_train_resume import HISTORY, state_of

from regard.train.runs import checkpoints, newest_checkpoint, read_about

SETTINGS = ("train.epochs=3", "model.dropout=0.2", *HISTORY)
SAVED = "Saved. The same command goes on from here"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    assert regard(*small.arguments("bahdanau", run, *SETTINGS), folder=run.parent / "log").code == 0
    return state_of(run)


def stopped(run, command, at=None):
    """What every stop must be like: code 0, one sentence, not finished, and no step of the log lost."""
    assert command.code == 0, command.err
    assert command.err.count(SAVED) == 1
    assert "Traceback" not in command.err
    assert not (run / "manifest.json").exists()
    assert int(newest_checkpoint(run).name) == steps_made(run)
    if at is not None:
        assert steps_made(run) == at


# At 6 and 18 a validation is due when the stop comes; the checkpoint of 17 would be among the newest, the averaged.
@pytest.mark.parametrize(("number", "stops"), [(signal.SIGTERM, (1, 5, 16)), (signal.SIGINT, (8, 17))])
def test_a_signal_saves_and_the_same_command_goes_on(number, stops, expected, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    assert expected["cursor"]["step"] == 18
    for step in stops:
        stopped(run, regard(*command, folder=tmp_path / "log", plant=KillAfter(step, number)), at=step + 1)
    done = regard(*command, folder=tmp_path / "log")
    assert done.code == 0
    found = state_of(run)
    if stops[-1] == 17:  # the last checkpoint is that of the stop, with its validation still due
        assert found["cursor"]["due"]
        found["cursor"] = expected["cursor"]
    assert found == expected
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}
    assert regard(*command, folder=tmp_path / "log").code == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_validation_breaks_it_off_and_it_is_made_up_for(number, expected, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    plant = SignalIn("regard.decode.search:search", range(1, 100), number)
    for step in (3, 3):  # stopped again in the validation that it owes
        stopped(run, regard(*command, folder=tmp_path / "log", plant=plant), at=step)
        assert read_about(newest_checkpoint(run))["due"]
        assert not [line for line in metrics(run) if "dev_loss" in line]
    killed = regard(*command, folder=tmp_path / "log", plant=KillAfter(4))  # owed, made, and lost with the kill
    assert killed.code == -signal.SIGKILL
    assert [line["step"] for line in metrics(run) if "dev_loss" in line] == [3]
    assert regard(*command, folder=tmp_path / "log").code == 0
    assert state_of(run) == expected


def test_a_signal_while_saving_or_finishing_waits_for_it(expected, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    log = tmp_path / "log"
    stopped(run, regard(*command, folder=log, plant=SignalIn("regard.train.runs:write_atomically", [7])))
    done = regard(*command, folder=log, plant=SignalIn("regard.train.loop:Loop.finish", [1]))
    assert done.code == 0
    assert "done at step" in done.err
    assert state_of(run) == expected


def test_at_any_moment_it_ends_within_seconds(expected, tmp_path):
    run, rng = tmp_path / "run", random.Random(time.time_ns())
    for _ in range(4):
        command = Command(small.arguments("bahdanau", run, *SETTINGS), tmp_path / "log")
        goal = steps_made(run) + rng.randrange(4)
        command.until(lambda goal=goal: steps_made(run) > goal)
        time.sleep(rng.random() / 30)
        asked, before = time.monotonic(), steps_made(run)
        command.send(rng.choice([signal.SIGTERM, signal.SIGINT]))
        command.code = command.wait()
        if (run / "manifest.json").exists():
            break  # it was done already
        stopped(run, command)
        assert time.monotonic() - asked < 30  # it takes a tenth of a second on a machine of one's own
        assert steps_made(run) <= before + 3  # the update that it was in, and what was not yet on the disk
    assert regard(*small.arguments("bahdanau", run, *SETTINGS), folder=tmp_path / "log").code == 0
    assert state_of(run) == expected


class TwoInterrupts:
    """A fault: Ctrl-C in update 5, and again a good while later in the same update."""

    def __call__(self) -> None:
        from regard.train.loop import Loop

        backward = Loop.backward

        def slow(loop, group):
            if loop.cursor.step == 4:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.1)
                os.kill(os.getpid(), signal.SIGINT)
            return backward(loop, group)

        Loop.backward = slow


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
    first = Command(small.arguments("bahdanau", run, "train.steps=400"), tmp_path / "log")
    first.until(lambda: steps_made(run) > 2)
    second = regard(*small.arguments("bahdanau", run, "train.steps=400"), folder=tmp_path / "log")
    first.send(signal.SIGTERM)
    first.code = first.wait()
    assert second.code == 2
    assert second.err == f"regard: Another process is training in {run}; wait for it, or choose another --out.\n"
    stopped(run, first)


def test_the_handlers_of_the_caller_come_back(tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    small.train("bahdanau", tmp_path / "run", "train.steps=1")
    assert {number: signal.getsignal(number) for number in before} == before
