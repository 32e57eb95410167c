"""Training and decoding on a GPU beside what else there is: python benchmarks/gpu.py [--rows bahdanau-80 ...]

Every row is one piece of work, done by several contestants in turns: regard with captured updates, regard plainly, and
the loop that tutorials have or MarianMT of the transformers library (both in plain PyTorch with a fused Adam). Printed
are the median milliseconds of a piece of work between two waits for the GPU, the median of one of several in a row, as
in a training, which waits for nothing, with real target tokens per second for both, calls that launch work on the GPU,
and the peak of memory. Everything runs in bfloat16 autocast (decoding of Marian: with weights in bfloat16).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from regard.data.batching import Batch, PackedBatch, pack
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.models.registry import build, preset
from regard.runs.settings import TrainConfig
from regard.training.distributed import Ranks
from regard.training.loop import pinned
from regard.training.objectives import can_pack, likelihood
from regard.training.task import Loss, Task
from regard.training.update import MicroBatch, Update

GPU = torch.device("cuda")
WORDS, ROUNDS, WARM, ROW = 30_000, 7, 4, 10
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")
Work = Callable[[], object]


class Lane(NamedTuple):
    """A contestant."""

    name: str
    make: Callable[[], Work]


class Sentences(NamedTuple):
    """Random sentences, the same for all contestants of a row."""

    source: Tensor  # [B, S]
    lengths: Tensor  # [B]
    target: Tensor  # [B, T]

    @property
    def tokens(self) -> int:
        """Real target tokens."""
        return int((self.target != 0).sum())


def sentences(rows: int, length: int, ragged: bool = False) -> Sentences:
    """Rows of one length, or of a quarter of it up to all of it."""
    draw = torch.Generator().manual_seed(1)
    source, target = (torch.randint(4, WORDS, (rows, length), generator=draw) for _ in range(2))
    lengths = torch.full((rows,), length)
    if ragged:
        lengths = torch.randint(length // 4, length + 1, (rows,), generator=draw)
        lengths[0] = length
        outside = torch.arange(length) >= lengths[:, None]  # [B, T]
        source, target = source.masked_fill(outside, 0), target.masked_fill(outside, 0)
    return Sentences(source, lengths, target)


# --- regard -----------------------------------------------------------------------------------------------------------


class Pairs(Task):
    """A task of one batch."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing

    def loss(self, model: nn.Module, batch: Batch | PackedBatch) -> Loss:
        """As `TranslationTask` has it."""
        if isinstance(batch, PackedBatch):
            return Loss(likelihood(model, batch, smoothing=self.smoothing)[0])
        inputs = batch.source, batch.source_lengths, batch.target
        return Loss(likelihood(model, *inputs, smoothing=self.smoothing)[0])


def ours(name: str, size: str, given: Sentences, capture: bool, smoothing: float = 0.0, **settings: Any) -> Work:
    """Updates of a registered model, as training makes them."""
    sizes = {"source_vocabulary": WORDS, "target_vocabulary": WORDS, "dropout": 0.0}
    model = build(name, replace(preset(name, size), **sizes, **settings)).to(GPU)
    update = Update(model, TrainConfig(precision="bf16", rate=1e-4), Ranks(GPU), capture)
    numbers = torch.arange(len(given.source))
    batch: Any = Batch(numbers, given.source, given.lengths, given.target, (given.target != 0).sum(1))
    if can_pack(model):
        batch = pack(batch, given.source.numel())
    part = MicroBatch(numbers.tolist(), pinned(batch), given.tokens, len(numbers))
    task: Any = Pairs(smoothing)

    def work() -> None:
        update(task, [part], 1e-4, lambda: (False, False))
        if update.refusal:
            raise RuntimeError(f"not captured: {update.refusal}")

    return work


def training(name: str, size: str, given: Sentences, smoothing: float = 0.0, **settings: Any) -> list[Lane]:
    """Captured and plain."""
    return [
        Lane(label, lambda capture=capture: ours(name, size, given, capture, smoothing, **settings))  # type: ignore[misc]
        for label, capture in (("regard, captured", True), ("regard, plain", False))
    ]


def decoding(name: str, size: str, given: Sentences, beam: int) -> Lane:
    """As many tokens as the source has."""

    def make() -> Work:
        sizes = {"source_vocabulary": WORDS, "target_vocabulary": WORDS}
        model = build(name, replace(preset(name, size), **sizes)).to(GPU).eval()
        source, lengths = given.source.to(GPU), given.lengths.to(GPU)
        length = source.shape[1]
        settings = DecodeConfig(beam=beam, min_length=length, max_ratio=0.0, max_extra=length)

        def work() -> None:
            with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
                decode(model, source, lengths, settings)  # type: ignore[arg-type]

        return work

    return Lane("regard", make)


# --- what else there is -----------------------------------------------------------------------------------------------


class TutorialBahdanau(nn.Module):
    """A GRU cell stepped in Python, attention in each step, all logits at once."""

    def __init__(self, embedding: int = 620, width: int = 1000) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, embedding), nn.Embedding(WORDS, embedding)
        self.encoder = nn.GRU(embedding, width, bidirectional=True, batch_first=True)
        self.first = nn.Linear(width, width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width)
        self.v = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(embedding + 2 * width, width)
        self.output = nn.Linear(3 * width + embedding, WORDS)
        self.width = width

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = source != 0
        states, _ = self.encoder(self.source(source))
        keys = self.key(states)
        hidden = torch.tanh(self.first(states[:, 0, self.width :]))
        words, seen = self.target(F.pad(target[:, :-1], (1, 0), value=1)), []
        for t in range(target.shape[1]):
            scores = self.v(torch.tanh(self.query(hidden).unsqueeze(1) + keys)).squeeze(-1)
            weights = scores.masked_fill(~mask, -1e4).softmax(-1)
            context = torch.bmm(weights.unsqueeze(1).to(states.dtype), states).squeeze(1)
            hidden = self.cell(torch.cat([words[:, t], context], -1), hidden)
            seen.append(torch.cat([hidden, context, words[:, t]], -1))
        return self.output(torch.stack(seen, 1))


class TutorialLuong(nn.Module):
    """Two LSTM cells stepped in Python, the general score, input feeding."""

    def __init__(self, width: int = 1000, layers: int = 2) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.encoder = nn.LSTM(width, width, layers, batch_first=True)
        self.cells = nn.ModuleList(nn.LSTMCell(width if k else 2 * width, width) for k in range(layers))
        self.key, self.merge = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = source != 0
        states, (hidden, cell) = self.encoder(self.source(source))
        keys, hiddens, cells = self.key(states), list(hidden), list(cell)
        words, fed, seen = self.target(F.pad(target[:, :-1], (1, 0), value=1)), torch.zeros_like(states[:, 0]), []
        for t in range(target.shape[1]):
            x = torch.cat([words[:, t], fed], -1)
            for k, each in enumerate(self.cells):
                hiddens[k], cells[k] = each(x, (hiddens[k], cells[k]))
                x = hiddens[k]
            scores = torch.bmm(keys, x.unsqueeze(-1).to(keys.dtype)).squeeze(-1)
            weights = scores.masked_fill(~mask, -1e4).softmax(-1)
            context = torch.bmm(weights.unsqueeze(1).to(states.dtype), states).squeeze(1)
            fed = torch.tanh(self.merge(torch.cat([context, x], -1)))
            seen.append(fed)
        return self.output(torch.stack(seen, 1))


def marian() -> Any:
    """MarianMT of the base size."""
    from transformers import MarianConfig, MarianMTModel

    both = {
        f"{side}_{name}": number
        for side in ("encoder", "decoder")
        for name, number in (("layers", 6), ("ffn_dim", 2048), ("attention_heads", 8))
    }
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    return MarianMTModel(
        MarianConfig(vocab_size=WORDS, d_model=512, dropout=0.0, max_position_embeddings=512, **both, **ids)
    ).to(GPU)


class TutorialMarian(nn.Module):
    """MarianMT called as the others are."""

    def __init__(self) -> None:
        super().__init__()
        self.model = marian()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        words = F.pad(target[:, :-1], (1, 0), value=1)
        found = self.model(input_ids=source, attention_mask=source != 0, decoder_input_ids=words, use_cache=False)
        return found.logits


def other(name: str, kind: Callable[[], nn.Module], given: Sentences, smoothing: float = 0.0) -> Lane:
    """The training loop that everyone writes."""

    def make() -> Work:
        model = kind().to(GPU).train()
        optimiser = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
        source, target = given.source.to(GPU), given.target.to(GPU)

        def work() -> None:
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(source, target)
                loss = F.cross_entropy(
                    logits.float().flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=smoothing
                )
            loss.backward()
            optimiser.step()

        return work

    return Lane(name, make)


def generating(given: Sentences, beam: int) -> Lane:
    """Marian's `generate`."""

    def make() -> Work:
        model = marian().to(torch.bfloat16).eval()
        source, length = given.source.to(GPU), given.source.shape[1]

        def work() -> None:
            with torch.inference_mode():
                model.generate(source, num_beams=beam, max_new_tokens=length, min_new_tokens=length, do_sample=False)

        return work

    return Lane("Marian, transformers", make)


# --- the table --------------------------------------------------------------------------------------------------------

FEEDING = {"width": 1000, "layers": 2, "window": "global", "score": "general"}


def rows() -> dict[str, Callable[[], tuple[Sentences, list[Lane]]]]:
    """The rows by name."""

    def bahdanau(count: int, length: int) -> tuple[Sentences, list[Lane]]:
        given = sentences(count, length)
        return given, [*training("bahdanau", "paper", given), other("tutorial loop", TutorialBahdanau, given)]

    def luong() -> tuple[Sentences, list[Lane]]:
        given = sentences(256, 30)
        return given, [*training("luong", "paper", given, **FEEDING), other("tutorial loop", TutorialLuong, given)]

    def transformer(smoothing: float, ragged: bool) -> tuple[Sentences, list[Lane]]:
        given = sentences(512, 32, ragged)
        lanes = training("transformer", "base", given, smoothing)
        return given, [*lanes, other("Marian, transformers", TutorialMarian, given, smoothing)]

    def decoded(name: str, size: str, count: int, beam: int) -> tuple[Sentences, list[Lane]]:
        given = sentences(count, 32)
        return given, [decoding(name, size, given, beam), *([generating(given, beam)] if name == "transformer" else [])]

    return {
        "bahdanau-80": lambda: bahdanau(80, 50),
        "bahdanau-256": lambda: bahdanau(256, 30),
        "luong-256": luong,
        "transformer-512": lambda: transformer(0.0, False),
        "transformer-512-smoothed": lambda: transformer(0.1, False),
        "transformer-512-ragged": lambda: transformer(0.1, True),
        "transformer-decode-1": lambda: decoded("transformer", "base", 1, 1),
        "transformer-decode-256": lambda: decoded("transformer", "base", 256, 4),
        "bahdanau-decode-1": lambda: decoded("bahdanau", "paper", 1, 1),
        "bahdanau-decode-256": lambda: decoded("bahdanau", "paper", 256, 4),
    }


def launches(work: Work, kernels: int = 0) -> int:
    """Calls that launch work on the GPU; prints the kernels that take the most time, if asked to."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        work()
        torch.cuda.synchronize()
    events = seen.key_averages()
    longest = sorted(events, key=lambda event: -event.self_device_time_total)
    for event in longest[:kernels]:
        print(f"{event.self_device_time_total / 1e3:10.3f} ms {event.count:6,} x {event.key[:110]}", flush=True)
    return sum(event.count for event in events if event.key.startswith(LAUNCHES))


def measure(name: str, make: Callable[[], tuple[Sentences, list[Lane]]], rounds: int, kernels: int) -> None:
    """Print one row of the table, a line for each contestant; before it, the longest kernels of the first one."""
    given, lanes = make()
    ready: list[tuple[str, Work, float, int]] = []
    for lane in lanes:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        try:
            work = lane.make()
            for _ in range(WARM):
                work()
            torch.cuda.synchronize()
            peak = (torch.cuda.max_memory_allocated() - before) / 2**30
            ready.append((lane.name, work, peak, launches(work, 0 if ready else kernels)))
        except Exception as error:
            print(f"{name:26} {lane.name:22} FAILED {type(error).__name__}: {str(error)[:160]}", flush=True)
    alone: dict[str, list[float]] = {each[0]: [] for each in ready}
    in_a_row: dict[str, list[float]] = {each[0]: [] for each in ready}
    for number in range(rounds):
        turn = number % max(1, len(ready))
        for label, work, _, _ in ready[turn:] + ready[:turn]:
            alone[label].append(seconds(work, 1))
            in_a_row[label].append(seconds(work, ROW))
    for label, _, peak, calls in ready:
        times = (statistics.median(found[label]) for found in (alone, in_a_row))
        speeds = (f"{1e3 * median:9.2f} ms {given.tokens / median:12,.0f} tokens/s" for median in times)
        print(f"{name:26} {label:22} {' | in a row '.join(speeds)} {calls:6,} launches {peak:6.2f} GiB", flush=True)


def seconds(work: Work, times: int) -> float:
    """Seconds of each of `times` pieces of work in a row."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a CUDA device.")
    table = rows()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=list(table), default=list(table))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kernels", type=int, default=0, help="print this many of the longest kernels of regard")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    start = time.perf_counter()
    for row in options.rows:
        try:
            measure(row, table[row], options.rounds, options.kernels)
        except Exception as error:
            print(f"{row:26} FAILED {type(error).__name__}: {str(error)[:200]}", flush=True)
        torch.cuda.empty_cache()
    print(f"{time.perf_counter() - start:.0f} s in all", flush=True)
