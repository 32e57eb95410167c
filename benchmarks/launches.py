"""Where the time of an update goes on a GPU: python benchmarks/launches.py [MODEL ...]

A time loop makes thousands of small launches, and a processor that cannot launch faster than the GPU computes is what
sets the speed. For each model: milliseconds of an update by the clock, milliseconds in which the GPU worked, and
launches, for batches of 8,192 and 32,768 tokens in sentences of 30, in bfloat16, with a vocabulary of 16,000.
"""

import sys
import time
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from regard.models.registry import MODELS, build, preset
from regard.train.objectives import cross_entropy

WORDS, LENGTH, ROUNDS = 16_000, 30, 8


def make(name: str) -> nn.Module:
    """The preset `small` of a translator, ready to learn."""
    sizes = {"source_vocabulary": WORDS, "target_vocabulary": WORDS, "dropout": 0.1}
    return build(name, replace(preset(name, "small"), **sizes)).cuda().train()


def measure(model: nn.Module, rows: int) -> str:
    """One line of the table."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-4)
    source, target = (torch.randint(4, WORDS, (rows, LENGTH), device="cuda") for _ in range(2))
    lengths = torch.full((rows,), LENGTH, device="cuda")

    def update() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss: Tensor = cross_entropy(model(source, lengths, target), target, 0.1)[0]
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    for _ in range(3):
        update()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        update()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) / ROUNDS
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        update()
        torch.cuda.synchronize()
    kernels = [event for event in seen.key_averages() if event.self_device_time_total > 0]
    busy = sum(event.self_device_time_total for event in kernels) / 1e6
    launches = sum(event.count for event in kernels)
    tokens = rows * LENGTH
    return (
        f"{tokens:7,} tokens: {1e3 * wall:6.1f} ms, GPU busy {1e3 * busy:5.1f} ms, {launches:5,} launches, "
        f"{tokens / wall:9,.0f} tokens/s"
    )


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a CUDA device.")
    names = sys.argv[1:] or [name for name, found in MODELS.items() if found.task == "translate"]
    for name in names:
        for tokens in (8_192, 32_768):
            print(f"{name:14} {measure(make(name), tokens // LENGTH)}", flush=True)
