"""One process or many, started by torchrun: who am I, and sums over all.

Every rank takes its rows of the same global batch, and gradients are summed; a rank without rows adds zeros, so that
uneven data never leaves anyone waiting.
"""

import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

LONGEST_WAIT = timedelta(minutes=30)  # for another rank: rank 0 alone reads the corpus and validates


class Ranks:
    """The processes of a run; one where torchrun did not start us."""

    def __init__(self, device: torch.device) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
            torch.cuda.set_device(device)
        self.device = device
        if self.world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=LONGEST_WAIT)

    @property
    def first(self) -> bool:
        """Rank 0 alone writes files and speaks."""
        return self.rank == 0

    def add(self, *numbers: float) -> list[float]:
        """The sums of these numbers over all ranks."""
        if self.world == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def add_gradients(self, weights: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients of all ranks, in one message; a rank without a gradient adds zeros."""
        if self.world == 1:
            return
        parameters = [weight for weight in weights if weight.requires_grad]
        for weight in parameters:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        gradients = [weight.grad for weight in parameters if weight.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def agree(self, value: Tensor) -> Tensor:
        """Rank 0's value, on every rank."""
        if self.world > 1:
            dist.broadcast(value, 0)
        return value

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()
