"""R1 to R12: nothing that was saved is lost, and a run that was interrupted ends with the same bits."""

import os
import resource
import shutil
import signal
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import small
import torch
import trained
from commands import KillAfter, QuickPulse, SignalIn, regard, run_ranks, sha256, start_ranks
from faults import FAULTS, Crash, Disk
from promises import check, refused
from test_train_durability import attempt, content, save

import regard as package
from regard.core import Memory, attend, dot, scaled_dot, softmax
from regard.data.batching import ShardedPlan
from regard.data.vocabulary import Vocabulary
from regard.data.word_vocabulary import Plain
from regard.errors import RegardError
from regard.runs.folder import entry, find_weights, make_manifest, newest_checkpoint
from regard.symbols import SYMBOLS
from regard.training.events import Stepped

STEPS = "train.steps=12"


@cache
def whole(model: str) -> tuple[str, list[str]]:
    """The weights and the files of a run that nothing interrupted."""
    run = trained.kept(f"attack-{model}", [model, STEPS], lambda folder: small.train(model, folder, STEPS))
    return sha256(run / "weights.safetensors"), files(run)


def files(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.name != ".lock")


class KillAt:
    """A fault: SIGKILL at the k-th operation on the files of a run."""

    def __init__(self, run: Path, place: int) -> None:
        self.run, self.left = str(run), place

    def __call__(self) -> None:
        def hook(event: str, arguments: tuple) -> None:
            written = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
            if (written or event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")) and self.run in str(arguments):
                self.left -= 1
                if self.left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)


@check("R1", "SIGKILL at any file operation: the same command ends with the same weights and files", 1, 300)
def kill(draw: Random, folder: Path) -> None:
    model, run = draw.choice(list(small.MODELS)), folder / "run"
    arguments = small.arguments(model, run, STEPS)
    killed = regard(*arguments, folder=folder / "log", plant=KillAt(run, draw.randrange(90)))
    assert killed.code in (0, -signal.SIGKILL), killed.err
    again = regard(*arguments, folder=folder / "log")
    assert again.code == 0, again.err
    assert (sha256(run / "weights.safetensors"), files(run)) == whole(model)


@check("R2", "an operation of a save fails: one sentence, and the last checkpoint is intact", 10, 5000)
def fail(draw: Random, folder: Path) -> None:
    with Disk().installed():
        save(folder, 1)
        save(folder, 2, keep=[1])
    fault = draw.choice(FAULTS)
    error = attempt(Disk(draw.randrange(60), fault), lambda: save(folder, 3, keep=[2]))
    assert error is None or isinstance(error, Crash) == (fault == "crash")
    assert content(folder) == 3 if error is None else content(folder) in (2, 3)
    with Disk().installed():
        save(folder, 4)
    assert content(folder) == 4
    assert os.listdir(folder / "checkpoints") == ["000004"]


@check("R3", "power lost at any operation: what a save reported is there", 10, 5000)
def lose_power(draw: Random, folder: Path) -> None:
    disk = Disk()
    with disk.installed():
        save(folder, 1)
        save(folder, 2, keep=[1])
    later = Disk(draw.randrange(60), "crash")
    later.unsynced, later.names = disk.unsynced, disk.names
    error = attempt(later, lambda: save(folder, 3, keep=[2]))
    luck = draw.random()
    later.lose_power(folder, lambda: draw.random() < luck)
    assert content(folder) == 3 if error is None else content(folder) in (2, 3)


def damage(path: Path, draw: Random) -> str:
    """Change a file in some way; returns how."""
    data, kind = bytearray(path.read_bytes()), draw.choice(["bit", "bit", "bit", "cut", "append", "zeros", "remove"])
    place = draw.randrange(len(data))
    if kind == "bit":
        data[place] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "append":
        data += draw.randbytes(draw.randint(1, 64))
    elif kind == "zeros":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
        data[place] ^= 1 if data[place] == path.read_bytes()[place] else 0
    path.write_bytes(data)
    if kind == "remove":
        path.unlink()
    return f"{path.name}: {kind} at {place}"


@check("R4", "a damaged checkpoint is never loaded", 25, 50_000)
def flip(draw: Random, folder: Path) -> None:
    with Disk().installed():
        saved = save(folder, 1)
    done = damage(draw.choice(sorted(saved.iterdir())), draw)
    refused(lambda: newest_checkpoint(folder), done)


@check("R4", "a damaged included model is never loaded", 4, 500)
def flip_shipped(draw: Random, folder: Path) -> None:
    model = draw.choice(sorted((Path(__file__).parents[2] / "models").iterdir()))
    names = ("config.toml", "manifest.json", "source.json", "source.model", "target.json", "target.model")
    run = folder / model.name
    shutil.copytree(model, run)
    done = damage(run / draw.choice((*names, "weights.safetensors")), draw)
    refused(lambda: find_weights(run), done)


class StoppedError(Exception):
    """An interruption at a step."""


def interrupted(model: str, run: Path, *places: int) -> None:
    """Train, and interrupt it after each of these updates."""
    for place in places:

        def interrupt(event: object, place: int = place) -> None:
            if isinstance(event, Stepped) and event.step == place:
                raise StoppedError

        with suppress(StoppedError):
            small.train(model, run, STEPS, observe=interrupt)


@check("R4", "any file of an unfinished run damaged, corpus and settings too: refused, or the same weights", 2, 500)
def flip_unfinished(draw: Random, folder: Path) -> None:
    model, run = draw.choice(list(small.MODELS)), folder / "run"
    interrupted(model, run, draw.randint(5, 11))
    done = damage(
        draw.choice([path for path in sorted(run.rglob("*")) if path.is_file() and path.stat().st_size]), draw
    )
    with suppress(RegardError):
        small.train(model, run, STEPS)
        assert sha256(run / "weights.safetensors") == whole(model)[0], done


@check("R1", "a second training with the same --out and other settings is refused and disturbs nothing", 1, 30)
def second(draw: Random, folder: Path) -> None:
    model, run, place, others = draw.choice(list(small.MODELS)), folder / "run", draw.randint(1, 3), []

    def start(event: object) -> None:
        if isinstance(event, Stepped) and event.step == place:  # before the first checkpoint
            others.append(regard(*small.arguments(model, run, "train.steps=30"), folder=folder / "log"))

    small.train(model, run, STEPS, observe=start)
    assert [other.code for other in others] == [2]
    assert "Another process is training" in others[0].err
    assert (sha256(run / "weights.safetensors"), files(run)) == whole(model)


@check("R5", "interrupted after any update and resumed, once or twice: the same weights, bit by bit", 1, 500)
def resume(draw: Random, folder: Path) -> None:
    model = draw.choice(list(small.MODELS))
    interrupted(model, folder / "run", *sorted(draw.sample(range(1, 12), draw.randint(1, 2))))
    small.train(model, folder / "run", STEPS)
    assert sha256(folder / "run" / "weights.safetensors") == whole(model)[0]


@check("R6", "the order of the data is the same for any number of ranks, nothing twice, nothing missing", 30, 2000)
def order(draw: Random, folder: Path) -> None:
    count, world = draw.randint(1, 400), draw.randint(1, 8)
    lengths = np.array([draw.randint(1, 40) for _ in range(count)])
    plan = ShardedPlan(lengths, lengths[::-1].copy(), draw.randint(1, 300), draw.randrange(2**40), draw.randrange(50))
    seen = []
    for position in range(len(plan)):
        rows = [plan[position][rank::world] for rank in range(world)]  # as Loop shares a batch
        seen += [int(rows[at % world][at // world]) for at in range(sum(map(len, rows)))]
    assert seen == [number for batch in plan for number in batch.tolist()]
    assert sorted(seen) == list(range(count))


@check("R7", "SIGTERM in any update: at most that update is lost, and the resumed run is the same", 1, 100)
def terminate(draw: Random, folder: Path) -> None:
    model, run, place = draw.choice(list(small.MODELS)), folder / "run", draw.randint(1, 12)
    arguments = small.arguments(model, run, STEPS)
    stopped = regard(*arguments, folder=folder / "log", plant=SignalIn("regard.training.loop:Loop.update", [place]))
    assert stopped.code == 0, stopped.err
    assert int(newest_checkpoint(run).name) >= place - 1
    assert regard(*arguments, folder=folder / "log").code == 0
    assert sha256(run / "weights.safetensors") == whole(model)[0]


@check("R8", "a rank that is killed ends the others, and the run resumes", 0, 20)
def lose_rank(draw: Random, folder: Path) -> None:
    world, run = draw.randint(2, 3), folder / "run"
    arguments = small.arguments("bahdanau", run, STEPS)
    plants = {draw.randrange(world): KillAfter(draw.randint(1, 10))}
    assert all(run_ranks(arguments, world, folder / "log", plants))
    assert not any(run_ranks(arguments, world, folder / "again"))


class OutOfMemory:
    """A fault: no more than a little memory can be had from update `step` on."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self) -> None:
        from regard.training.loop import Loop

        update = Loop.update

        def update_and_fill(loop, group, last):
            update(loop, group, last)
            if loop.cursor.step == self.step:
                resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
                torch.zeros(1 << 28)

        Loop.update = update_and_fill


@check("R8", "a rank that is stopped or out of memory ends the others, and the run resumes", 0, 20)
def stall_rank(draw: Random, folder: Path) -> None:
    world, run, step = draw.randint(2, 3), folder / "run", draw.randint(1, 10)
    arguments, bad = small.arguments("bahdanau", run, STEPS), draw.randrange(world)
    fault = draw.choice([KillAfter(step, signal.SIGSTOP), OutOfMemory(step)])
    plants = {rank: QuickPulse(fault if rank == bad else None) for rank in range(world)}
    ranks = start_ranks(arguments, world, folder / "log", plants)
    codes = [one.wait() for rank, one in enumerate(ranks) if rank != bad]
    with suppress(ProcessLookupError):
        ranks[bad].send(signal.SIGKILL)
    assert all(codes), codes
    assert ranks[bad].wait()
    assert not any(run_ranks(arguments, world, folder / "again"))


@check("R9", "a row without anything visible gives zeros, forward and backward, and nothing is ever NaN", 50, 10_000)
def mask(draw: Random, folder: Path) -> None:
    torch.manual_seed(draw.randrange(2**40))
    shape, kind = (
        (draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 5)),
        draw.choice([torch.float32, torch.bfloat16]),
    )
    query = torch.randn(*shape[:2], 4, dtype=kind, requires_grad=True)
    states = (torch.randn(shape[0], shape[2], 4) * 10 ** draw.randint(-3, 4)).to(kind).requires_grad_()
    visible = torch.rand(shape) < draw.choice([0.0, 0.3, 0.9])
    found = attend(query, Memory(states, states, visible), draw.choice([dot, scaled_dot]), softmax)
    found.context.float().square().sum().backward()
    for part in (found.context, found.weights, query.grad, states.grad):
        assert bool(part.isfinite().all())
    assert not bool(found.weights[~visible].any())


@check("R10", "a line of 10,000 words does not stop a training", 1, 20)
def monster(draw: Random, folder: Path) -> None:
    lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(2, 5))) for _ in range(60)]
    lines[draw.randrange(60)] = "a " * 10_000
    for side in ("source", "target"):
        (folder / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = [f"data.source={folder / 'source'}", f"data.target={folder / 'target'}", "train.steps=3", "data.held_out=5"]
    command = regard(
        "train", "--model", "luong", "--preset", "tiny", "--out", folder / "run", *small.MODELS["luong"],
        "data.subwords=word", *given, folder=folder / "log",
    )  # fmt: skip
    assert command.code == 0, command.err


@check("R11", "a vocabulary that is not the model's is refused", 10, 500)
def other_vocabulary(draw: Random, folder: Path) -> None:
    run = folder / "run"
    shutil.copytree(trained.run("bahdanau"), run)
    own = Vocabulary.load(run, "source")
    tokens = own.pieces(range(len(SYMBOLS), len(own)))
    first, second = draw.sample(range(len(tokens)), 2)
    tokens[first], tokens[second] = draw.choice(
        [(tokens[second], tokens[first]), (f"{tokens[first]}x", tokens[second])]
    )
    Vocabulary(Plain("word", [*SYMBOLS, *tokens]), "word").save(run, "source")
    refused(lambda: package.load(run), "another vocabulary")


@check("R12", "the same seed gives the same model", 1, 50)
def again(draw: Random, folder: Path) -> None:
    model = draw.choice(list(small.MODELS))
    small.train(model, folder / "run", STEPS)
    assert sha256(folder / "run" / "weights.safetensors") == whole(model)[0]


def reseal(run: Path) -> None:
    """Give a run a manifest that its files agree with, as an attacker could."""
    names = [path.name for path in run.iterdir() if path.is_file() and path.name not in ("manifest.json", ".lock")]
    written = {name: entry((run / name).read_bytes()) for name in names}
    (run / "manifest.json").write_bytes(make_manifest(written, {"steps": [1], "best": 1.0, "start_from": {}}))
