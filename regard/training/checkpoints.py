"""Checkpoints: the model, its optimiser and the progress, into the run folder and back."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, optim

from regard.errors import RunError, TrainingError
from regard.runs.cursor import Cursor
from regard.runs.folder import (
    average_weights,
    check_belongs,
    checkpoints,
    newest_checkpoint,
    prune,
    publish,
    read_cursor,
    read_tensors,
    save_checkpoint,
)
from regard.runs.weights import set_weights, weights_of
from regard.sealed import digest
from regard.training.task import Task

CARRIED = "carried."  # prefix of a task's tensors, among those of the optimiser


def writer(device: torch.device) -> Executor | None:
    """A thread that writes checkpoints while a GPU trains. A CPU has no memory or time to spare for it."""
    return ThreadPoolExecutor(1, "regard-checkpoint") if device.type == "cuda" else None


class Checkpoints:
    """Writes checkpoints into the folder `run`, and resumes from them.

    `report` is called with the folder of each one that is on the disk. With a single-threaded executor `disk`, copies
    are written while training continues: 50 million weights with the state of Adam take seconds.
    """

    def __init__(
        self, run: Path, model: nn.Module, optimiser: optim.Optimizer, report: Callable[[Path], None],
        disk: Executor | None,
    ) -> None:  # fmt: skip
        self.run, self.model, self.optimiser, self.report, self.disk = run, model, optimiser, report, disk
        self.writing: Future[Path] | None = None
        self.resumed: int | None = None  # the step of the checkpoint that was resumed from

    def resume(self, task: Task) -> tuple[Cursor | None, list[str]]:
        """Load the newest intact checkpoint; returns its progress, if there is one, and newer damaged steps."""
        folder = newest_checkpoint(self.run)
        if folder is None:
            return None, []
        check_belongs(self.run, folder)
        cursor = read_cursor(folder)
        if cursor.data and task.fingerprint and cursor.data != task.fingerprint:
            raise RunError(f"The corpus differs from the one that {self.run} was started with; use another --out.")
        set_weights(self.model, read_tensors(folder / "weights.safetensors"), str(folder))
        state = read_tensors(folder / "state.safetensors")
        carried = {name.removeprefix(CARRIED): state.pop(name) for name in [*state] if name.startswith(CARRIED)}
        set_optimiser_state(self.optimiser, state)
        # Earlier versions kept numbers of a task in the cursor.
        carried |= {name: torch.tensor(number, dtype=torch.float64) for name, number in cursor.carried.items()}
        task.set_tensors(carried, self.model)
        self.resumed, cursor.data, cursor.carried = cursor.step, task.fingerprint, {}
        return cursor, [path.name for path in checkpoints(self.run) if int(path.name) > int(folder.name)]

    def write(self, task: Task, cursor: Cursor) -> None:
        """Commit a checkpoint if all its numbers are finite, then delete the ones that are no longer needed."""
        self.settle()  # the one before: two copies would take twice the memory
        weights, state = weights_of(self.model), optimiser_state(self.optimiser)
        state |= {CARRIED + name: tensor for name, tensor in task.tensors().items()}
        if not all(bool(tensor.isfinite().all()) for tensor in (*weights.values(), *state.values())):
            raise TrainingError(
                f"The weights at step {cursor.step} are not finite and were not saved; the last checkpoint is valid. "
                f"Try a lower train.rate in a new run."
            )
        belongs = {path.name: digest(path) for path in task.files()}
        if self.disk:
            weights, state = (
                {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()} for tensors in (weights, state)
            )
        progress, keep = asdict(cursor), needed(cursor)  # as they are now

        def commit() -> Path:
            folder = save_checkpoint(self.run, progress["step"], weights, state, progress, belongs)
            prune(self.run, keep)  # not if saving failed
            return folder

        if self.disk:
            self.writing = self.disk.submit(commit)
        else:
            self.report(commit())

    def settle(self) -> None:
        """Wait until the checkpoint that a thread writes is committed."""
        writing, self.writing = self.writing, None
        if writing:
            self.report(writing.result())

    def prune(self, cursor: Cursor) -> None:
        """Delete the checkpoints that are no longer needed."""
        prune(self.run, needed(cursor))

    def publish(self, task: Task, cursor: Cursor, average: int, about: dict[str, Any]) -> None:
        """Make the best checkpoint, or the average of the newest, the finished model."""
        chosen = cursor.kept[-average:] if average > 1 or cursor.best_step is None else [cursor.best_step]
        steps = {int(folder.name): folder for folder in checkpoints(self.run)}
        folders = [steps[step] for step in chosen if step in steps] or [steps[cursor.step]]
        found = {"steps": [int(folder.name) for folder in folders], "best": cursor.best, "start_from": cursor.origin}
        found |= {"seconds": round(cursor.seconds, 1), **about}
        publish(self.run, average_weights(folders), [path.name for path in task.files()], found)


def needed(cursor: Cursor) -> set[int]:
    """The steps whose checkpoints are kept: this one, the newest few and the best."""
    return {step for step in (cursor.step, *cursor.kept, cursor.best_step) if step is not None}


def optimiser_state(optimiser: optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state, as `<number of the weight>.<name>` -> tensor."""
    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value) for number, slots in state.items() for name, value in slots.items()
    }


def set_optimiser_state(optimiser: optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore an optimiser's state."""
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor.clone()  # a copy, not a view of the file
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
