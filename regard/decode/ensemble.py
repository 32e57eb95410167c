"""Several models that share a vocabulary, combined: an ensemble meets the contract of a single model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError
from regard.models.contract import State


class EnsembleState(NamedTuple):
    """The members' states. Their memories are separate, so that beams of one sentence need not move them."""

    memory: tuple[Any, ...]
    states: tuple[Any, ...]


class Ensemble(nn.Module):
    """`models` as one model, whose probabilities are the renormalised geometric mean of theirs (as in Luong's code)."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise ConfigError("An ensemble needs at least one model; got none.")
        self.models: Any = nn.ModuleList(models)

    @property
    def longest(self) -> int | None:
        """The most words that every member can write, where there is a limit."""
        limits = [getattr(model, "longest", None) for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    def encode(self, source: Tensor, lengths: Tensor) -> Any:
        """Let every member read the source: a tuple of their memories."""
        return tuple(model.encode(source, lengths) for model in self.models)

    def start(self, memory: Any) -> EnsembleState:
        """Every member's state before the first token."""
        return _apart([model.start(part) for model, part in zip(self.models, memory, strict=True)])

    def step(self, token: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """One token for every row: the members' logits, joined. token [N] -> logits [N, V]"""
        steps = [
            model.step(token, _whole(part, memory))
            for model, part, memory in zip(self.models, state.states, state.memory, strict=True)
        ]
        return self._join([logits for logits, _ in steps]), _apart([after for _, after in steps])

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """All steps at once: the members' logits, joined. target [B, T] -> logits [B, T, V]"""
        return self._join([model(source, lengths, target) for model in self.models])

    def _join(self, logits: Sequence[Tensor]) -> Tensor:
        sizes = [each.shape[-1] for each in logits]
        if len(set(sizes)) > 1:
            raise ShapeError(
                f"The models of an ensemble must share one target vocabulary; theirs have {sizes} tokens. "
                f"Join models that were trained with the same vocabulary files."
            )
        return torch.stack(list(logits)).mean(0)


def _apart(states: Sequence[State]) -> EnsembleState:
    memories = tuple(getattr(state, "memory", None) for state in states)
    rest = tuple(state._replace(memory=None) if "memory" in state._fields else state for state in states)
    return EnsembleState(memories, rest)


def _whole(state: State, memory: Any) -> State:
    return state if memory is None else state._replace(memory=memory)
