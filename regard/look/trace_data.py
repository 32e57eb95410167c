"""The parts of a trace: tokens, attention, steps, search tree, picture. Plain data, checked on construction.

Layers, heads and positions count from 0, as in the dotted names of modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, DataError, ShapeError, check_known
from regard.look.tokens import Side, is_number, is_whole

Array = NDArray[np.float32]

KINDS: dict[str, tuple[str, str]] = {  # kind -> what its rows are, what its columns are
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("target", "read"),  # columns are START, y_1, ... y_{T-1}
    "image": ("target", "cells"),  # columns are the cells of the picture, row by row
    "fixed": ("target", "summary"),  # no attention: one column, the vector of the whole sentence
    "pool": ("summary", "source"),  # one row: a learned query reads the sentence
}
HIDING = ("causal softmax", "window", "Gaussian window")  # normalisers that hide slots by themselves


@dataclass(frozen=True, eq=False)
class Attended:
    """The weights and scores of one attention module for one sentence.

    `query` is the decoder state that row t was computed from: "previous" (s_{t-1}, before y_{t-1} was read) or
    "current" (after y_{t-1} was read). `shift` is 1 where row t aligns the word just read, y_{t-1}, instead of the
    next word, y_t (Luong 2015, footnote 14, for content-based scores); drawings and alignments move the rows by it.
    `shifted_heads` are heads that do so alone, whatever the `shift` of the module. `aligning` is set in the module that
    aligns words, and drawn by default: a head, or "mean" for the mean of all.

    >>> seen = regard.look.Attended("attention", torch.eye(2))  # one head: two target words, two source words
    >>> seen.weights.shape, seen.heads, seen.kind
    ((1, 2, 2), 1, 'cross')
    """

    name: str
    weights: Array  # [H, T, S]
    kind: str = "cross"
    layer: int = 0
    scores: Array | None = None  # [H, T, S]; -inf where masked
    context_norms: Array | None = None  # [H, T]
    query: str = "current"
    shift: int = 0
    score: str = ""  # the model's own formula: additive, dot, general, scaled dot, ...
    normalise: str = "softmax"
    centre: Array | None = None  # [T], the centre of local attention
    half_width: int = 0  # of the window of local attention
    shifted_heads: tuple[int, ...] = ()
    aligning: int | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _heads(self.weights, f"The weights of '{self.name}'"))
        check_known("kind", self.kind, KINDS, " of attention")
        for text in (self.name, self.score, self.normalise):
            if not isinstance(text, str):
                raise DataError(f"An attention's name, score and normaliser are texts; got {text!r}.")
        if not is_whole(self.layer) or not is_whole(self.half_width):
            raise DataError(f"An attention's layer and half width are whole numbers; got {self.layer!r}.")
        if self.query not in ("previous", "current"):
            raise ConfigError(f"query must be 'previous' or 'current'; got '{self.query}' for '{self.name}'.")
        if not is_whole(self.shift) or self.shift not in (0, 1):
            raise ConfigError(f"shift must be 0 or 1; got {self.shift} for '{self.name}'.")
        _check_weights(self.weights, self.name)
        H, T, S = self.weights.shape
        if not all(is_whole(head) and 0 <= head < H for head in self.shifted_heads):
            raise DataError(f"The shifted heads of '{self.name}' are some of its {H}; got {self.shifted_heads!r}.")
        object.__setattr__(self, "shifted_heads", tuple(self.shifted_heads))
        if self.aligning not in (None, "mean") and not (is_whole(self.aligning) and self.aligning in range(H)):
            raise DataError(f"The aligning head of '{self.name}' is one of its {H} or 'mean'; got {self.aligning!r}.")
        for what, shape in (("scores", (H, T, S)), ("context_norms", (H, T)), ("centre", (T,))):
            values = getattr(self, what)
            if values is not None:
                object.__setattr__(self, what, _numbers(values, shape, f"The {what} of '{self.name}'"))

    @property
    def heads(self) -> int:
        return int(self.weights.shape[0])

    def shift_of(self, head: object) -> int:
        """The shift of one head; of anything else, such as the mean of several, that of the module."""
        return 1 if head in self.shifted_heads else self.shift

    def part(self, heads: Sequence[int]) -> "Attended":
        """The module with these heads alone, numbered from 0 in the given order."""
        per_head = {name: getattr(self, name) for name in ("weights", "scores", "context_norms")}
        return replace(
            self,
            **{name: values[list(heads)] for name, values in per_head.items() if values is not None},
            shifted_heads=tuple(number for number, head in enumerate(heads) if head in self.shifted_heads),
            aligning=heads.index(self.aligning) if self.aligning in heads else None,
        )


@dataclass(frozen=True)
class StepVectors:
    """Vectors of one decoding step, each averaged into at most 32 bins, for teaching pictures.

    >>> regard.look.StepVectors(t=0, name="attention", context=(0.5, -1.0), norms={"context": 1.1}).norms
    {'context': 1.1}
    """

    t: int
    name: str
    query: tuple[float, ...] = ()
    context: tuple[float, ...] = ()
    norms: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_whole(self.t) or not all(map(is_number, (*self.query, *self.context, *self.norms.values()))):
            raise DataError(
                f"A step's vectors and norms are finite numbers, its t is a whole one; step {self.t!r} differs."
            )


@dataclass(frozen=True)
class BeamNode:
    """One candidate of a beam search: `token` after its parent's prefix.

    `logprob` is that of the token, `total` that of the prefix with it; candidates are ranked by `score`.

    >>> regard.look.BeamNode(id=1, parent=0, step=1, token="chat", logprob=-0.2, total=-0.3, score=-0.3).finished
    False
    """

    id: int
    parent: int | None
    step: int
    token: str
    logprob: float
    total: float
    score: float
    finished: bool = False
    pruned: bool = False

    def __post_init__(self) -> None:
        numbers = all(map(is_number, (self.logprob, self.total, self.score)))
        if not (isinstance(self.token, str) and is_whole(self.id) and is_whole(self.step) and numbers):
            raise DataError(f"A beam node needs a text, a whole id and step and finite numbers; got {self!r}.")


@dataclass(frozen=True)
class Beam:
    """A search tree: every candidate, and the finished ones by rank, the best first.

    >>> first = regard.look.BeamNode(0, None, 0, "le", -0.1, -0.1, -0.1)
    >>> second = regard.look.BeamNode(1, 0, 1, "chat", -0.2, -0.3, -0.3, finished=True)
    >>> beam = regard.look.Beam(size=1, nodes=(first, second), ranked=(1,))
    >>> [node.token for node in beam.nodes]
    ['le', 'chat']
    """

    size: int
    nodes: tuple[BeamNode, ...]
    ranked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        known = {node.id for node in self.nodes}
        if len(known) != len(self.nodes):
            raise DataError("The nodes of a beam must have different ids; some id occurs twice.")
        for node in self.nodes:
            if node.parent is not None and (node.parent not in known or node.parent == node.id):
                raise DataError(f"Beam node {node.id} names the parent {node.parent}, which is not another node.")
        lost = [rank for rank in self.ranked if rank not in known]
        if lost:
            raise DataError(f"The ranking of a beam names node {lost[0]}, which is not in the tree.")


@dataclass(frozen=True)
class Picture:
    """The picture that a caption was written for: its size in pixels and its grid of cells.

    >>> regard.look.Picture(width=224, height=224, grid=(7, 7)).grid
    (7, 7)
    """

    width: int
    height: int
    grid: tuple[int, int]  # rows, columns


@dataclass(frozen=True, eq=False)
class Contents:
    """The data of a `regard.look.Trace`: what a model computed while it wrote one sentence."""

    source: Side
    target: Side
    attention: Mapping[str, Attended]
    model: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepVectors, ...] = ()
    beam: Beam | None = None
    changes: tuple[Mapping[str, Any], ...] = ()  # what-if: each has at least "kind" and "text"
    image: Picture | None = None
    notes: tuple[Mapping[str, Any], ...] = ()  # what is not right with it: each has at least "flag" and "text"

    def __post_init__(self) -> None:
        for name, seen in self.attention.items():
            if name != seen.name:
                raise DataError(f"The attention under '{name}' has the name '{seen.name}'; the two must be equal.")
            rows, columns = (self.size(side) for side in KINDS[seen.kind])
            if seen.weights.shape[1:] != (rows, columns):
                raise ShapeError(
                    f"'{name}' ({seen.kind}) has weights {list(seen.weights.shape)}, but this trace has {rows} rows "
                    f"({KINDS[seen.kind][0]}) and {columns} columns ({KINDS[seen.kind][1]}): expected [H, {rows}, "
                    f"{columns}]. Check that special tokens such as </s> are in the token lists or in neither."
                )

    def changed(self) -> tuple[set[int], set[int]]:
        """The target and source positions that a what-if changed."""
        rows = {int(one["row"]) for one in self.changes if isinstance(one.get("row"), int)}
        for one in self.changes:  # a forced beginning is several rows
            rows |= {row for row in one.get("rows", ()) if isinstance(row, int)}
        return rows, {int(one["column"]) for one in self.changes if isinstance(one.get("column"), int)}

    def slim(self) -> Self:
        """A smaller trace for long sentences: weights rounded to half precision, no scores."""
        smaller = {name: replace(one, weights=half(one.weights), scores=None) for name, one in self.attention.items()}
        return replace(self, attention=smaller)

    def size(self, side: str) -> int:
        """How many tokens `side` has: source, target, read, cells or summary."""
        if side == "cells":
            if self.image is None:
                raise DataError(
                    "Attention over a picture needs the picture's grid: pass image=Picture(width, height, grid)."
                )
            return self.image.grid[0] * self.image.grid[1]
        if side == "summary":
            return 1
        return len(self.source.tokens if side == "source" else self.target.tokens)


def half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def as_array(values: Any) -> NDArray[Any]:
    """Numbers of numpy, torch or lists as an array, without importing torch."""
    return np.asarray(values.detach().cpu().float() if hasattr(values, "detach") else values)


def _heads(values: Any, what: str) -> Array:
    array = as_array(values)
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{what} must be numbers; got {array.dtype}.")
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        raise ShapeError(f"{what} must be [T, S] or [H, T, S]; got {list(array.shape)}.")
    return np.ascontiguousarray(array, dtype=np.float32)  # [H, T, S]


def _numbers(values: Any, shape: tuple[int, ...], what: str) -> Array:
    array = np.ascontiguousarray(as_array(values), dtype=np.float32)
    if array.ndim == 2 and len(shape) == 3:
        array = array[None]
    if array.shape != shape:
        raise ShapeError(f"{what} must be {list(shape)} like its weights; got {list(array.shape)}.")
    if np.isnan(array).any():
        raise DataError(f"{what} must be numbers; some are NaN.")
    return array


def _check_weights(weights: Array, name: str) -> None:
    if not np.isfinite(weights).all():
        h, t, s = (int(i) for i in np.argwhere(~np.isfinite(weights))[0])
        raise DataError(
            f"The weights of '{name}' must be finite; head {h}, row {t}, column {s} is {weights[h, t, s]}. "
            f"A row without any visible position should hold zeros."
        )
    if weights.size and (weights.min() < 0 or weights.max() > 1.001):
        raise DataError(
            f"The weights of '{name}' must lie between 0 and 1; they range from {weights.min():.4g} to "
            f"{weights.max():.4g}. Were scores passed instead of weights?"
        )
