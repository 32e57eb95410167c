"""Several processes train as one: the same losses, whatever their number; none ever waits for one that has left."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
import small
import torch
from commands import (
    KillAfter,
    QuickPulse,
    SignalIn,
    free_port,
    metrics,
    regard,
    run_ranks,
    sha256,
    start_ranks,
    steps_made,
)
from test_train_numbers import make_loop

from regard.runs.folder import newest_checkpoint, read_tensors

SETTINGS = ("train.epochs=2", "train.clip=0.1")
UNEVEN = ("train.batch_tokens=9", "data.size=30", "train.steps=12")  # batches of one to three sentences


def losses(run) -> list[float]:
    return [line["loss"] for line in metrics(run) if "loss" in line]


def close(run, other) -> bool:
    """The same losses, and the same last weights but for rounding."""
    assert losses(run) == pytest.approx(losses(other), abs=1e-5)
    one, two = (read_tensors(newest_checkpoint(folder) / "weights.safetensors") for folder in (run, other))
    return all(torch.allclose(tensor, two[name], atol=2e-4) for name, tensor in one.items())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process, made when it is first asked for."""
    made = {}

    def find(model: str, *settings: str):
        if (model, settings) not in made:
            run = tmp_path_factory.mktemp("alone") / "run"
            assert regard(*small.arguments(model, run, *settings), folder=run.parent / "log").code == 0
            made[model, settings] = run
        return made[model, settings]

    return find


@pytest.mark.parametrize("model", ["bahdanau", pytest.param("transformer", marks=pytest.mark.slow)])
def test_two_processes_have_the_losses_of_one(model, alone, tmp_path):
    run = tmp_path / "run"
    assert run_ranks(small.arguments(model, run, *SETTINGS), 2, tmp_path / "log") == [0, 0]
    assert len(losses(run)) == 12
    assert close(run, alone(model, *SETTINGS))
    said = (tmp_path / "log" / "1" / "0.err").read_text(encoding="utf-8")
    assert "step" not in said  # only the first speaks


@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_batches_with_fewer_sentences_than_ranks_block_no_rank(world, alone, tmp_path):
    run = tmp_path / "run"
    assert run_ranks(small.arguments("bahdanau", run, *UNEVEN), world, tmp_path / "log") == [0] * world
    assert close(run, alone("bahdanau", *UNEVEN))


def test_a_run_goes_on_with_another_number_of_processes(alone, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    died = run_ranks(command, 2, tmp_path / "two", {rank: KillAfter(5) for rank in range(2)})
    assert died == [-signal.SIGKILL] * 2
    died = run_ranks(command, 3, tmp_path / "three", {rank: KillAfter(9) for rank in range(3)})
    assert died == [-signal.SIGKILL] * 3
    assert regard(*command, folder=tmp_path / "log").code == 0
    assert close(run, alone("bahdanau", *SETTINGS))


def test_two_processes_resume_to_the_same_bits(tmp_path):
    settings = (*SETTINGS, "model.dropout=0.3")
    for name, kills in (("whole", ()), ("killed", (3, 8))):
        command = small.arguments("bahdanau", tmp_path / name, *settings)
        for step in kills:
            run_ranks(command, 2, tmp_path / "log", {rank: KillAfter(step) for rank in range(2)})
        assert run_ranks(command, 2, tmp_path / "log") == [0, 0]
    whole, killed = (tmp_path / name / "weights.safetensors" for name in ("whole", "killed"))
    assert sha256(whole) == sha256(killed)


@pytest.mark.parametrize("asked", [pytest.param((0,), marks=pytest.mark.slow), (1,), (0, 1)])
def test_a_stop_requested_of_one_rank_stops_all(asked, alone, tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    plants = {rank: KillAfter(4, signal.SIGTERM) for rank in asked}
    assert run_ranks(command, 2, tmp_path / "log", plants) == [0, 0]
    assert int(newest_checkpoint(run).name) == steps_made(run) == 5
    assert run_ranks(command, 2, tmp_path / "log") == [0, 0]
    assert close(run, alone("bahdanau", *SETTINGS))


def test_a_stop_while_the_first_validates_and_the_other_waits(tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    plant = SignalIn("regard.decode.search:search", range(1, 100))
    assert run_ranks(command, 2, tmp_path / "log", {0: plant}) == [0, 0]
    assert steps_made(run) == 6
    assert not [line for line in metrics(run) if "dev_loss" in line]
    assert run_ranks(command, 2, tmp_path / "log") == [0, 0]
    assert [line["step"] for line in metrics(run) if "dev_loss" in line] == [6, 12]


class BadSentences:
    """A fault: the loss of this rank's part is not a number in update 3."""

    def __call__(self) -> None:
        from regard.training.translation import TranslationTask

        loss, count = TranslationTask.loss, iter(range(1, 1000))

        def bad(task, model, batch):
            found = loss(task, model, batch)
            return found._replace(total=found.total * float("nan")) if next(count) == 3 else found

        TranslationTask.loss = bad


def test_a_bad_sentence_of_another_rank_is_left_out_by_all_and_named(tmp_path):
    run, command = tmp_path / "run", small.arguments("bahdanau", tmp_path / "run", *SETTINGS)
    assert run_ranks(command, 2, tmp_path / "log", {1: BadSentences()}) == [0, 0]
    (skipped,) = [line for line in metrics(run) if "skipped" in line]
    assert skipped["step"] == 3
    loop = make_loop(tmp_path / "other", *SETTINGS)
    assert skipped["examples"] == loop.task.plan(0)[2].tolist()  # of all ranks
    assert len(losses(run)) == 11


def test_a_refusal_of_the_first_ends_it_with_its_sentence(tmp_path):
    (tmp_path / "run").write_text("x", encoding="utf-8")
    commands = start_ranks(small.arguments("bahdanau", tmp_path / "run", *SETTINGS), 2, tmp_path / "log")
    assert commands[0].wait() == 2
    assert "is a file; --out needs the name of a folder" in commands[0].err
    with suppress(ProcessLookupError):  # it may have ended by itself: there is nobody to meet
        commands[1].send(signal.SIGTERM)  # as torchrun does when one has failed
    assert commands[1].wait() != 0


@pytest.mark.parametrize("world", range(1, 9))
def test_every_sentence_is_read_once_whatever_the_number_of_ranks(world, tmp_path):
    loop = make_loop(tmp_path / "run", "train.batch_tokens=40")
    parts = []
    for rank in range(world):
        loop.ranks = SimpleNamespace(rank=rank, world=world)
        parts.append(list(loop.load(loop.task.plan(3), 1, 3)))
    for position in range(1, len(loop.task.plan(3))):
        numbers = loop.task.plan(3)[position].tolist()
        seen = [part[position - 1] for part in parts]
        assert all(list(part.numbers) == numbers for part in seen)
        mine = [part.batch.indices.tolist() if part.batch is not None else [] for part in seen]
        assert sorted(number for some in mine for number in some) == sorted(numbers)


def test_a_rank_that_is_stopped_ends_the_other_which_names_it(tmp_path):
    """Either of the two; both pairs run side by side, since each waits for seconds."""
    started = []
    for stopped in range(2):
        command = small.arguments("bahdanau", tmp_path / f"run {stopped}", *SETTINGS)
        plants = {stopped: QuickPulse(KillAfter(5, signal.SIGSTOP)), 1 - stopped: QuickPulse()}
        started.append((command, start_ranks(command, 2, tmp_path / f"log {stopped}", plants)))
    for stopped, (_, ranks) in enumerate(started):
        assert ranks[1 - stopped].wait() == 1
        assert f"Rank {stopped} has not responded" in ranks[1 - stopped].err
        ranks[stopped].send(signal.SIGKILL)
        ranks[stopped].wait()
    assert run_ranks(started[1][0], 2, tmp_path / "log") == [0, 0]


@pytest.mark.slow
def test_torchrun_itself(alone, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    command += ["-m", "regard", *small.arguments("bahdanau", tmp_path / "run", *SETTINGS)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert close(tmp_path / "run", alone("bahdanau", *SETTINGS))
