"""Which attention weights of a model say what words belong together, and where a run keeps that choice."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

from regard.data.files import read_small, write_atomically
from regard.errors import RunError
from regard.training.settings import TrainConfig
from regard.training.translation import guided_module

FILE = "alignment.json"  # in the run folder: the head that was chosen


@dataclass(frozen=True)
class Heads:
    """Which weights give the alignment: a layer of cross-attention, and one of its heads or their mean.

    None is the trace's own choice, the last layer but one. `shift` 1 takes row t + 1 for word t; None is what the
    model says of itself.
    """

    layer: int | None = None
    head: int | None = None
    shift: int | None = None

    def describe(self, model: nn.Module) -> str:
        """In words, for the model they are heads of."""
        alone = self.layer is None and len(model.looking.cross) == 1  # type: ignore[arg-type]
        layer = "the last layer but one" if self.layer is None else f"layer {self.layer}"
        head = "mean of its heads" if self.head is None else f"head {self.head}"
        weights = "the one attention over the source" if alone and self.head is None else f"{layer}, {head}"
        return weights + ("" if self.shift is None else f", shift {self.shift}")


def keep_choice(run: Path, heads: Heads) -> None:
    """Store a choice in the run folder, where `find_choice` finds it."""
    write_atomically(run / FILE, (json.dumps(asdict(heads)) + "\n").encode())


def find_choice(run: Path, model: nn.Module, train: TrainConfig) -> Heads:
    """The choice stored in a run, the head that was guided in training, or the default."""
    path = run / FILE
    if not path.exists():
        return guided_heads(model, train)
    try:
        return Heads(**json.loads(read_small(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        raise RunError(f"{path} is damaged; delete it, or choose again with `regard align --gold`.") from None


def guided_heads(model: nn.Module, train: TrainConfig) -> Heads:
    """What was guided in training: its rows align the words that they write, so there is no shift."""
    if not train.guided:
        return Heads()
    cross: tuple[str, ...] = model.looking.cross  # type: ignore[assignment]
    layer = cross.index(guided_module(model, train.guided_layer))
    return Heads(layer, None if train.guided_head < 0 else train.guided_head, 0)
