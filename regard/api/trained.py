"""What every class that `regard.load` returns has in common, and the output of a model with its log-probabilities."""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from regard.decode.search import check_precision
from regard.decode.settings import DecodeConfig
from regard.runs.experiment import Experiment


@dataclass(frozen=True)
class Output:
    """The output of a model, with its log-probabilities."""

    text: str
    score: float  # what the search ranks by: log-probability with the length penalty
    logprob: float
    tokens: list[str]
    token_logprobs: list[float]
    finished: str  # how it ended: "end", "length" (cut off), "not finite", "stopped" or "empty"
    # The requested candidates, this one first; excluded from ==, which would recurse.
    nbest: list[Self] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


class Trained:
    """A model with the settings and the name of its run: the base of every class that `regard.load` returns."""

    def __init__(self, model: nn.Module, experiment: Experiment, name: str) -> None:
        self.model: Any = model.eval()
        self.experiment, self.name = experiment, name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.experiment.name}, {self.size:,} weights on {self.device})"

    @property
    def size(self) -> int:
        """How many weights the model has."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def settings(self, **changes: Any) -> DecodeConfig:
        """The run's [decode] settings with `changes` applied; None keeps the run's value."""
        config = self.experiment.decode.changed(changes)
        check_precision(config.precision, self.device)
        return config
