"""One update: the gradients of a group of batches, summed over all ranks, clipped, and applied by the optimiser.

On a GPU nothing here waits for the device. The device decides whether an update is sound; otherwise weights and
optimiser state stay unchanged. Its numbers are read a few updates later (`DelayedNumbers`). The whole update is
recorded as a CUDA graph for each batch shape and replayed; see `regard.kernels.graphs`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from regard.errors import out_of_memory
from regard.kernels.graphs import Recorded
from regard.runs.settings import TrainConfig
from regard.training.distributed import Ranks, Reducer
from regard.training.optimisers import clip, make_optimiser, set_rate, step_if
from regard.training.task import Task

LATE = 4  # updates on a GPU before the numbers of an update are read

Of = TypeVar("Of")


class MicroBatch(NamedTuple):
    """One batch of an update."""

    numbers: Sequence[int]  # the examples of all ranks
    batch: Any  # this rank's tensors, or None if it has no rows
    tokens: int  # of this rank
    sentences: int


class Numbers(NamedTuple):
    """The results of an update, over all ranks."""

    loss: float  # a sum
    tokens: float
    sentences: float
    lost: float  # ranks that ran out of memory
    stop: float  # ranks that received a request to stop
    time_is_up: float
    norm: float  # of the gradient

    @property
    def problem(self) -> str:
        """Why the update was skipped, or nothing."""
        if self.lost:
            return "out of memory"
        return "" if math.isfinite(self.loss) and math.isfinite(self.norm) else "loss or gradient not finite"


class Update:
    """Makes updates of `model`; with `capture`, as CUDA graphs."""

    def __init__(self, model: nn.Module, config: TrainConfig, ranks: Ranks, capture: bool = False) -> None:
        self.model, self.config, self.ranks = model, config, ranks
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimiser = make_optimiser(self.weights, config)
        self.reducer = Reducer(self.weights) if ranks.world > 1 else None
        self.whole = config.accumulate == 1 and ranks.world == 1  # an update is one batch, and one graph
        self.work: Callable[..., Tensor] = self.whole_update if self.whole else self.gradient
        self.graphs = Recorded(self.work, ranks.device) if capture else None
        self.task: Task
        self.kind: Callable[..., Any] = tuple  # of the batch

    @property
    def refusal(self) -> str:
        """Why updates run without a graph, or nothing."""
        return self.graphs.refusal if self.graphs else ""

    def __call__(
        self, task: Task, group: list[MicroBatch], rate: float, flags: Callable[[], tuple[bool, bool]]
    ) -> Tensor:
        """Make one update; returns its `Numbers` as a tensor [7]. `flags` are `stop` and `time_is_up` of this rank."""
        self.task = task
        if not self.model.training:  # `train` visits every module, which is slower than launching a replay
            self.model.train()
        set_rate(self.optimiser, rate)
        try:
            return self.update(group, flags)
        finally:  # a replay or a fused optimiser does not increment versions, and searches cache the weights
            increment_version(self.weights)

    def update(self, group: list[MicroBatch], flags: Callable[[], tuple[bool, bool]]) -> Tensor:
        """The update itself."""
        mine = [part for part in group if part.batch is not None]
        sums = sum(part.tokens for part in mine), sum(part.sentences for part in mine)
        try:
            if self.whole:
                return self.run(mine[0].batch, self.on_host(*sums, 0, *flags()))
            found, lost = self.sum_gradients(mine), 0
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self.optimiser.zero_grad(set_to_none=True)
            found, lost, sums = self.no_sums(), 1, (0, 0)
        return self.finish(self.on_host(*sums, lost, *flags()), found)

    def run(self, batch: Any, *numbers: Tensor) -> Tensor:
        """Run the work on a batch, with its graph or eagerly."""
        self.kind = type(batch)
        if self.graphs:
            return self.graphs(*numbers, *batch)
        stay, device = self.task.on_host, self.ranks.device
        moved = (x if name in stay else x.to(device, non_blocking=True) for name, x in batch._asdict().items())
        return self.work(*numbers, *moved)

    def whole_update(self, own: Tensor, *batch: Tensor) -> Tensor:
        """A whole update from one batch."""
        return self.finish(own, self.gradient(*batch))

    def sum_gradients(self, parts: list[MicroBatch]) -> Tensor:
        """Sum the gradients of several batches; returns the sums of their losses."""
        if self.graphs:
            self.zero_gradients()
        found = self.no_sums()
        for place, part in enumerate(parts, 1):
            if self.reducer and not self.graphs and place == len(parts):
                self.reducer.begin()
            found = found + self.run(part.batch)
        return found

    def gradient(self, *parts: Tensor) -> Tensor:
        """Add the gradients of one batch; returns its loss and the task's sums, [1 + n]."""
        precise = self.config.precision != "bf16"
        device = self.ranks.device.type
        with torch.autocast(device, torch.bfloat16, enabled=not precise):
            loss = self.task.loss(self.model, self.kind(*parts))
        loss.total.backward()
        total = loss.total.detach().double().reshape(1)
        return total if loss.sums is None else torch.cat([total, loss.sums.detach().double()])

    def finish(self, own: Tensor, found: Tensor) -> Tensor:
        """From the gradients of this rank to the optimiser's step.

        `own` [5] are the host's numbers of this rank, `found` [1 + n] the loss and the task's sums.
        """
        if self.reducer:
            self.reducer.finish()
        own = own.to(found.device, non_blocking=True)
        found = self.ranks.add_tensor(torch.cat([found[:1], own, found[1:]]))
        totals, sums = found[:6], found[6:]
        loss, tokens, sentences, lost, _, _ = totals.unbind()
        count = (tokens if self.config.normalise == "tokens" else sentences).clamp(min=1.0)
        step = self.step_on_cpu if totals.device.type == "cpu" else self.step_on_gpu
        norm, sound = step(loss.isfinite() & (lost == 0), count)
        self.task.carry(sums, sound)
        if self.whole or not self.graphs:
            self.optimiser.zero_grad(set_to_none=True)
        return torch.cat([totals, norm.double().reshape(1)])

    def step_on_cpu(self, sound: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Divide the gradients by `count` and step if all is sound; returns the gradient norm, and whether it was."""
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        if not gradients:  # memory ran out
            return count.new_zeros(()), torch.tensor(False)
        torch._foreach_div_(gradients, float(count))
        norm = nn.utils.get_total_norm(gradients)
        sound = sound & norm.isfinite()
        if sound:
            clip(gradients, float(norm), self.config.clip)
            self.optimiser.step()
        return norm, sound

    def step_on_gpu(self, sound: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The same on a GPU, without reading its values."""
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        if not gradients:
            return count.new_zeros(()), count < 0
        norm = nn.utils.get_total_norm(gradients).double() / count
        sound = sound & norm.isfinite()
        longest = self.config.clip
        step_if(sound, self.optimiser, count * (norm / longest).clamp(min=1.0) if longest else count)
        return norm, sound

    def zero_gradients(self) -> None:
        """Zero the gradients in place, where the graphs add to them."""
        for weight in self.weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        torch._foreach_zero_([weight.grad for weight in self.weights if weight.grad is not None])

    def no_sums(self) -> Tensor:
        """Zero sums."""
        return torch.zeros(1 + self.task.sums, dtype=torch.float64, device=self.ranks.device)

    def on_host(self, *numbers: float) -> Tensor:
        """Numbers of the host, in pinned memory for a GPU."""
        here = torch.tensor(numbers, dtype=torch.float64)
        return here.pin_memory() if self.ranks.device.type == "cuda" else here


class DelayedNumbers(Generic[Of]):
    """Numbers of the device that are read a few updates later, so that the host never waits.

    On a CPU they are available immediately.
    """

    def __init__(self, device: torch.device) -> None:
        self.waiting: deque[tuple[Of, Tensor, torch.cuda.Event]] = deque()
        self.late = LATE if device.type == "cuda" else 0
        self.buffers = [torch.empty(7, dtype=torch.float64, pin_memory=True) for _ in range(LATE + 1) if self.late]
        self.count = 0

    def __call__(self, item: Of, numbers: Tensor) -> Iterator[tuple[Of, Numbers]]:
        """Store the numbers of this update, and yield those that are due."""
        if not self.late:
            yield item, Numbers(*numbers.tolist())
            return
        buffer = self.buffers[self.count % len(self.buffers)]
        self.count += 1
        buffer.copy_(numbers, non_blocking=True)
        event = torch.cuda.Event(blocking=True)  # a wait frees the core for the loader and other processes
        event.record()
        self.waiting.append((item, buffer, event))
        yield from self.read(self.late)

    def read(self, leave: int = 0) -> Iterator[tuple[Of, Numbers]]:
        """Yield all stored numbers but the last `leave`."""
        while len(self.waiting) > leave:
            item, buffer, event = self.waiting.popleft()
            event.synchronize()
            yield item, Numbers(*buffer.tolist())


@contextmanager
def host_threads(device: torch.device) -> Iterator[None]:
    """One CPU thread for torch while a GPU trains; no change when training on a CPU.

    Otherwise torch wakes all cores for each batch of ids, and they busy-wait for the next: two runs on one machine slow
    each other down.
    """
    before = torch.get_num_threads()
    if device.type != "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Set the precision of float32 products to `train.precision`; the previous mode is restored afterwards.

    "float32" also turns off TF32 in cuDNN's recurrent and convolution kernels, where torch enables it by default. With
    "bf16" those kernels are outside of autocast and use TF32.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
