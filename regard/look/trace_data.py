"""The data of a trace, which drawings and measures read: tokens, the attention of each module, search tree, picture.

Layers, heads and positions count from 0, as in the dotted names of modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, DataError, ShapeError, check_known
from regard.look import trace_file
from regard.look.record import as_array
from regard.look.tokens import Side

Array = NDArray[np.float32]
Vectors = NDArray[np.float64]

KINDS: dict[str, tuple[str, str]] = {  # kind -> what its rows are, what its columns are
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("target", "read"),  # columns are START, y_1, ... y_{T-1}
    "image": ("target", "cells"),  # columns are the cells of the picture, row by row
    "fixed": ("target", "summary"),  # no attention: one column, the vector of the whole sentence
    "pool": ("summary", "source"),  # one row: a learned query reads the sentence
    "attribution": ("target", "source"),  # no attention: what another method found (`regard.look.attribution`)
}
BY = "by "  # begins the name of an attribution whose method has the name of a module of the model
HIDING = ("causal softmax", "window", "Gaussian window")  # normalisers that hide slots by themselves
_OPTIONAL = ("steps", "beam", "changes", "notes", "image")  # left out of the JSON where there are none
_OF_STEPS = ("query_vectors", "context_vectors", "step_values")


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
    query_vectors: Vectors | None = None  # [T, at most 32]: queries, heads side by side, neighbours averaged
    context_vectors: Vectors | None = None  # [T, at most 32]: contexts, likewise
    step_values: Mapping[str, Vectors] = field(default_factory=dict)  # name -> [T]: "gate", "copy"; NaN where unknown

    def __post_init__(self) -> None:
        weights = as_array(self.weights)
        if weights.dtype.kind not in "fiub":
            raise ShapeError(f"The weights of '{self.name}' must be numbers; got {weights.dtype}.")
        if weights.ndim not in (2, 3):
            raise ShapeError(f"The weights of '{self.name}' must be [T, S] or [H, T, S]; got {list(weights.shape)}.")
        weights = np.ascontiguousarray(weights if weights.ndim == 3 else weights[None], dtype=np.float32)  # [H, T, S]
        object.__setattr__(self, "weights", weights)
        H, T, S = weights.shape
        if not np.isfinite(weights).all():
            h, t, s = (int(i) for i in np.argwhere(~np.isfinite(weights))[0])
            raise DataError(
                f"The weights of '{self.name}' must be finite; head {h}, row {t}, column {s} is {weights[h, t, s]}. "
                f"A row without any visible position should hold zeros."
            )
        if weights.size and (weights.min() < 0 or weights.max() > 1.001):
            raise DataError(
                f"The weights of '{self.name}' must lie between 0 and 1; they range from {weights.min():.4g} to "
                f"{weights.max():.4g}. Were scores passed instead of weights?"
            )
        check_known("kind", self.kind, KINDS, " of attention")
        if self.query not in ("previous", "current"):
            raise ConfigError(f"query must be 'previous' or 'current'; got '{self.query}' for '{self.name}'.")
        if self.shift not in (0, 1):
            raise ConfigError(f"shift must be 0 or 1; got {self.shift} for '{self.name}'.")
        object.__setattr__(self, "shifted_heads", tuple(self.shifted_heads))
        if not all(head in range(H) for head in self.shifted_heads):
            raise DataError(f"The shifted heads of '{self.name}' are some of its {H}; got {self.shifted_heads!r}.")
        if self.aligning not in (None, "mean", *range(H)):
            raise DataError(f"The aligning head of '{self.name}' is one of its {H} or 'mean'; got {self.aligning!r}.")
        for what, shape in (("scores", (H, T, S)), ("context_norms", (H, T)), ("centre", (T,))):
            if getattr(self, what) is None:
                continue
            array = np.ascontiguousarray(as_array(getattr(self, what)), dtype=np.float32)
            array = array[None] if array.ndim == 2 and len(shape) == 3 else array
            if array.shape != shape:
                raise ShapeError(
                    f"The {what} of '{self.name}' must be {list(shape)} like its weights; got {list(array.shape)}."
                )
            if np.isnan(array).any():
                raise DataError(f"The {what} of '{self.name}' must be numbers; some are NaN.")
            object.__setattr__(self, what, array)

    @property
    def heads(self) -> int:
        return int(self.weights.shape[0])

    @property
    def method(self) -> str | None:
        """The method of an attribution; None for attention."""
        return self.name.removeprefix(BY) if self.kind == "attribution" else None

    def shift_of(self, head: object) -> int:
        """The shift of one head; of anything else, such as the mean of several, that of the module."""
        return 1 if head in self.shifted_heads else self.shift

    def part(self, heads: Sequence[int]) -> Self:
        """The module with these heads alone, numbered from 0 in the given order."""
        per_head = {name: getattr(self, name) for name in ("weights", "scores", "context_norms")}
        return replace(
            self,
            **{name: values[list(heads)] for name, values in per_head.items() if values is not None},
            shifted_heads=tuple(number for number, head in enumerate(heads) if head in self.shifted_heads),
            aligning=heads.index(self.aligning) if self.aligning in heads else None,
        )

    def plain(self) -> dict[str, Any]:
        """The module as a trace's JSON has it, without what its "steps" hold."""
        kept = {key: value for key, value in vars(self).items() if key not in _OF_STEPS}
        return {**kept, "shape": list(self.weights.shape)}

    def plain_steps(self) -> list[dict[str, Any]]:
        """The vectors and values of each row that has any, as a trace's JSON has them."""
        steps: list[dict[str, Any]] = []
        for t in range(self.weights.shape[1]):
            query, context = (
                [] if part is None or np.isnan(part[t]).any() else part[t].tolist()
                for part in (self.query_vectors, self.context_vectors)
            )
            norms = {name: float(values[t]) for name, values in self.step_values.items() if not np.isnan(values[t])}
            if query or context or norms:
                steps.append({"t": t, "name": self.name, "query": query, "context": context, "norms": norms})
        return steps


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
class TraceData:
    """What a trace holds: drawings and measures read it; `regard.look.Trace` adds files and pictures to it."""

    source: Side
    target: Side
    attention: Mapping[str, Attended]
    model: Mapping[str, Any] = field(default_factory=dict)
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
        half = trace_file.half
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

    def plain(self) -> dict[str, Any]:
        """The trace as dicts, lists, numbers and arrays, as docs/looking.md describes them."""
        tree: dict[str, Any] = {
            "trace": trace_file.VERSION,
            "model": dict(self.model),
            "source": _plain_side(self.source),
            "target": _plain_side(self.target),
            "attention": {name: seen.plain() for name, seen in self.attention.items()},
            "steps": [step for seen in self.attention.values() for step in seen.plain_steps()],
            "beam": self.beam and {**vars(self.beam), "nodes": [vars(node) for node in self.beam.nodes]},
            "changes": [dict(one) for one in self.changes],
            "notes": [dict(one) for one in self.notes],
            "image": self.image and vars(self.image),
        }
        return {key: value for key, value in tree.items() if key not in _OPTIONAL or value}


def _plain_side(side: Side) -> dict[str, Any]:
    tokens = []
    for token in side.tokens:
        values = {**vars(token), "topk": [{"text": text, "logprob": logprob} for text, logprob in token.topk]}
        optional = {key: values.pop(key) for key in ("word", "logprob", "confidence", "topk")}
        tokens.append(values | {key: value for key, value in optional.items() if value not in (None, [])})
    return {"text": side.text, "tokens": tokens}
