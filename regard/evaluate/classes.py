"""Classification scores: accuracy and confusion matrix."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ClassScore(NamedTuple):
    """Accuracy and confusion matrix of a classifier."""

    accuracy: float
    documents: int
    confusion: dict[str, dict[str, int]]  # true class -> answer -> documents

    def __str__(self) -> str:
        names = list(self.confusion)
        width = max(8, *(len(name) for name in names))
        rows = [f"accuracy {self.accuracy:.3f}, {self.documents} documents", "", _row("true \\ answer", names, width)]
        rows += [_row(name, list(self.confusion[name].values()), width) for name in names]
        return "\n".join(rows)


def score_classes(answers: NDArray[np.integer], gold: NDArray[np.integer], classes: Sequence[str]) -> ClassScore:
    """Score predicted against true class numbers, [D] each."""
    table = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(table, (gold, answers), 1)
    confusion = {name: dict(zip(classes, row.tolist(), strict=True)) for name, row in zip(classes, table, strict=True)}
    return ClassScore(float(np.trace(table)) / max(1, len(gold)), len(gold), confusion)


def _row(name: str, cells: Sequence[object], width: int) -> str:
    return f"{name:<{max(width, 13)}}" + "".join(f"  {cell!s:>{width}}" for cell in cells)
