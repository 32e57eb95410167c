"""What is attributed: a sentence with its translation, and what every attribution method reads of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

TOKENS = (2048, 16384)  # of source and target together in one forward pass, on a CPU and on a GPU


@dataclass(frozen=True)
class Case:
    """A sentence to attribute: ids of source [S] and target [T], END last in both."""

    model: Any
    source: Tensor
    target: Tensor
    against: int | None = None  # a token: differences of log p(y_t) and log p(against) are attributed
    words: Sequence[Sequence[int]] = ()  # source positions that are occluded together; what is in none is never
    layer: int | None = None  # of the attention over the source; None: the last but one
    head: int | None = None  # None: the mean of all, or their sum
    shift: int = 0  # 1: row t + 1 is of word t
    first: int = 0  # the first target position whose value is wanted where source words are erased
    steps: int = 192  # of integrated gradients: the most gradients of a target word in one pass

    def value(self, logits: Tensor, words: Tensor) -> Tensor:
        """log p(word), or what it has more than that of `against`: logits [..., V] and words [...] -> [...]."""
        logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        value = logprobs.gather(-1, words[..., None]).squeeze(-1)
        return value if self.against is None else value - logprobs[..., self.against]


class Attributed(NamedTuple):
    """What a method found: [T, S], and for methods whose rows sum to one together with the target prefix, that part."""

    values: Tensor  # [T, S]
    prefix: Tensor | None = None  # [T, T]: START, y_1, ... y_{T-1}
    gap: Tensor | None = None  # [T], of integrated gradients: the difference to what each row must sum to


def rows_at_once(source: Tensor, length: int) -> int:
    """How many copies of a sentence of `length` tokens are read in one forward pass, on the device of `source`."""
    return max(1, TOKENS[source.is_cuda] // length)


def inputs(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Source [1, S], lengths [1] and target [1, T], as a model reads them."""
    lengths = torch.tensor([len(case.source)], device=case.source.device)
    return case.source[None], lengths, case.target[None]
