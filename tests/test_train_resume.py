"""A run that was killed or stopped anywhere, and started again with the same command, ends with the same bits."""

import random
import signal
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import small
from commands import KillAfter, SignalLater, metrics, regard, sha256, steps_made

from regard.errors import RunError
from regard.runs.folder import checkpoints, newest_checkpoint, read_cursor, read_tensors, save_checkpoint
from regard.training import loop
from regard.training.events import Resumed, Saved, Stepped

CASES = {
    "bahdanau": ("model.dropout=0.3", "train.epochs=2", "data.size=40"),
    "sutskever": ("model.dropout=0.2", "train.epochs=2", "data.size=40", "train.optimiser=adadelta", "train.rate=1.0"),
    "transformer": ("model.dropout=0.1", "train.epochs=2", "data.size=80", "train.accumulate=2"),
}
MORE = ("transformer", "luong", "bahdanau", "sutskever")
SLOW = pytest.mark.slow
# Everything whose history a checkpoint must carry: the plateau's stalls, the best, the newest few for the average.
HISTORY = (
    "train.schedule=plateau",
    "train.validate_every=3",
    "train.average=3",
    "train.rate=0.03",
    "train.best_by=loss",
)


def state_of(run: Path) -> dict:
    """All that must be equal: the published weights, the last checkpoint with the optimiser, the log."""
    last = checkpoints(run)[-1]
    about = {name: value for name, value in vars(read_cursor(last)).items() if name != "seconds"}
    log = [{name: value for name, value in line.items() if name != "tokens_per_second"} for line in metrics(run)]
    files = [run / "weights.safetensors", last / "weights.safetensors", last / "state.safetensors"]
    return {"files": [sha256(file) for file in files], "cursor": about, "log": log, "last": last.name}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run of a case, made when it is first asked for."""
    made = {}

    def find(model: str, *settings: str) -> dict:
        if (model, settings) not in made:
            run = tmp_path_factory.mktemp(model) / "run"
            command = regard(*small.arguments(model, run, *settings), folder=run.parent / "log")
            assert command.code == 0, command.err
            made[model, settings] = state_of(run)
        return made[model, settings]

    return find


@pytest.mark.parametrize("model", [pytest.param("bahdanau", marks=SLOW), "sutskever", "transformer"])
def test_kills_at_the_end_of_an_epoch_and_twice_in_the_next_change_no_bit(model, whole, tmp_path):
    run, command = tmp_path / "run", small.arguments(model, tmp_path / "run", *CASES[model])
    expected = whole(model, *CASES[model])
    steps = expected["cursor"]["step"]
    epoch = steps // int(CASES[model][1].partition("=")[2])
    assert epoch >= 4
    assert steps == 2 * epoch
    for place in (epoch, epoch + 1, epoch + 1, steps):
        assert regard(*command, folder=tmp_path / "log", plant=KillAfter(place)).code == -signal.SIGKILL
        assert steps_made(run) == place
        assert not (run / "manifest.json").exists()
    done = regard(*command, folder=tmp_path / "log")
    assert done.code == 0
    assert state_of(run) == expected
    again = regard(*command, folder=tmp_path / "log")  # a finished run stays as it is
    assert again.code == 0
    assert state_of(run) == expected


def test_kills_at_any_moment_change_no_bit(whole, tmp_path):
    settings = ("train.epochs=4", "model.dropout=0.2", *HISTORY)
    expected = whole("bahdanau", *settings)
    seed = time.time_ns()
    print(f"seed {seed}")
    rng = random.Random(seed)
    run = tmp_path / "run"
    kills = 0
    for _ in range(4):
        goal = steps_made(run) + 1 + rng.randrange(6)
        plant = SignalLater(goal, rng.random() / 50, signal.SIGKILL, tmp_path / "note")
        done = regard(*small.arguments("bahdanau", run, *settings), folder=tmp_path / "log", plant=plant)
        kills += done.code == -signal.SIGKILL
    assert regard(*small.arguments("bahdanau", run, *settings), folder=tmp_path / "log").code == 0
    assert kills >= 2
    assert state_of(run) == expected


class Killed(BaseException):
    """Nothing in regard may catch this."""


def train_until(step: int | None, model: str, run: Path, *settings: str) -> list[int]:
    """Train in this process, and break off after `step`; the steps that were resumed from and made."""
    seen = []

    def observe(event):
        if isinstance(event, Resumed | Stepped):
            seen.append(event.step)
        if isinstance(event, Stepped) and event.step == step:
            raise Killed

    if step is None:
        small.train(model, run, *settings, observe=observe)
    else:
        with pytest.raises(Killed):
            small.train(model, run, *settings, observe=observe)
    return seen


@pytest.mark.parametrize(
    ("model", "steps"),
    [("transformer", (1, 3, 4, 11)), ("luong", (5,)), *(pytest.param(m, range(1, 12), marks=SLOW) for m in MORE)],
)
def test_every_step_is_a_place_to_go_on_from(model, steps, tmp_path):
    settings = ("train.steps=11", "model.dropout=0.2", *HISTORY)
    small.train(model, tmp_path / "whole", *settings)
    expected = state_of(tmp_path / "whole")
    for step in steps:
        run = tmp_path / str(step)
        train_until(step, model, run, *settings)
        train_until(None, model, run, *settings)
        assert state_of(run) == expected, step


def test_a_run_that_dies_after_each_single_step_arrives(tmp_path):
    settings = ("train.steps=9", "train.save_every=1", "model.dropout=0.2", *HISTORY)
    small.train("bahdanau", tmp_path / "whole", *settings)
    run = tmp_path / "run"
    for step in range(2, 10):
        # the update before was saved; this one is made and dies
        seen = train_until(step, "bahdanau", run, *settings)
        assert seen == ([1, 2] if step == 2 else [step - 2, step - 1, step])
    train_until(None, "bahdanau", run, *settings)
    assert state_of(run) == state_of(tmp_path / "whole")


def test_the_same_seed_is_the_same_model_and_another_is_not(tmp_path):
    hashes = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6), ("d", 2**62), ("e", -1)):
        small.train("bahdanau", tmp_path / name, "train.steps=3", "model.dropout=0.2", f"train.seed={seed}")
        hashes.append(sha256(tmp_path / name / "weights.safetensors"))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_a_damaged_newest_checkpoint_is_passed_over_and_named(tmp_path):
    settings = ("train.steps=12", "train.validate_every=100", "model.dropout=0.2")
    small.train("bahdanau", tmp_path / "whole", *settings)
    run = tmp_path / "run"
    train_until(9, "bahdanau", run, *settings)
    damaged = run / "checkpoints" / "000008" / "state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert newest_checkpoint(run).name == "000004"
    events = []
    small.train("bahdanau", run, *settings, observe=events.append)
    assert Resumed(4, ["000008"]) in events
    assert state_of(run) == state_of(tmp_path / "whole")
    assert read_tensors(run / "checkpoints" / "000008" / "state.safetensors")  # made again


class Later(Executor):
    """The slowest thread there can be: work is done when its result is needed."""

    def submit(self, work, *args):
        class Work(Future):
            def result(self):
                return work(*args)

        return Work()


@pytest.mark.parametrize("model", ["transformer", "sutskever"])
def test_checkpoints_written_while_training_continues_change_no_bit(model, tmp_path, monkeypatch):
    settings = ("train.steps=11", "train.save_every=2", "model.dropout=0.2", *HISTORY)
    small.train(model, tmp_path / "whole", *settings)
    monkeypatch.setattr(loop, "writer", lambda device: Later())
    events = []
    small.train(model, tmp_path / "later", *settings, observe=events.append)
    assert state_of(tmp_path / "later") == state_of(tmp_path / "whole")
    order = [(type(event), event.step) for event in events if isinstance(event, Stepped | Saved)]
    assert order.index((Saved, 2)) > order.index((Stepped, 3))  # reported when it is on the disk
    train_until(7, model, tmp_path / "killed", *settings)
    train_until(None, model, tmp_path / "killed", *settings)
    assert state_of(tmp_path / "killed") == state_of(tmp_path / "whole")


@pytest.mark.parametrize("disk", [Later(), ThreadPoolExecutor(1)], ids=["later", "thread"])
def test_a_checkpoint_that_cannot_be_written_while_training_continues_ends_training(tmp_path, monkeypatch, disk):
    def fill_up(run, step, *parts):
        if step > 2:
            raise RunError(f"The checkpoint of step {step} could not be saved: No space left on device.")
        return save_checkpoint(run, step, *parts)

    monkeypatch.setattr(loop, "writer", lambda device: disk)
    monkeypatch.setattr("regard.training.checkpoints.save_checkpoint", fill_up)
    with pytest.raises(RunError, match="step 4 could not be saved"):
        small.train("bahdanau", tmp_path / "run", "train.steps=8", "train.save_every=2", "train.keep=1")
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == ["000002"]
