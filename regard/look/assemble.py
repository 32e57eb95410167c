"""From a recorded forward pass to the trace of one sentence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core.normalise import Causal
from regard.errors import ShapeError
from regard.look.record import Recorded, Seen, attentions
from regard.look.tokens import Side
from regard.look.trace import Trace
from regard.look.trace_data import HIDING, Array, Attended, Picture, StepVectors

_BINS = 32
_NAMES = {
    "scaled_dot": "scaled dot",
    "CellScore": "additive",
    "GaussianWindow": "Gaussian window",
    "ConcatReleased": "concat as released",
    "Perceptron": "additive",
    "hard_argmax": "argmax",
    "hard_sample": "one sample",
    "ForwardOnly": "monotonic",
    "NormedAdditive": "additive with offset",
}


def assemble(
    model: nn.Module,
    recorded: Recorded,
    source: Side,
    target: Side,
    row: int = 0,
    *,
    about: Mapping[str, Any] | None = None,
    weights_alone: bool = False,
    **parts: Any,
) -> Trace:
    """The trace of sentence `row` of a forward pass that was recorded, cut to the tokens of that sentence.

    `source` and `target` hold a token for every position that the model read and wrote, </s> included. The trace has
    the cross-attentions, query timing and shift of the model's `looking`. `about` describes the model; `parts` are
    further fields of the trace: beam, changes, image, notes. With `weights_alone`, scores and vectors are left out, for
    reading a whole corpus.
    """
    modules = attentions(model)
    looking = getattr(model, "looking", None)
    cross = tuple(modules) if looking is None else looking.cross
    attention: dict[str, Attended] = {}
    steps: list[StepVectors] = []
    for name in recorded:
        seen = _row(recorded[name], row)
        kind = _kind(name, name in cross, seen.weights.shape[-1], source, parts.get("image"))
        sizes = (len(source.tokens), len(target.tokens))
        attended = _attended(name, kind, modules[name], seen, sizes, weights_alone)
        if name in cross and looking is not None:
            attended = replace(attended, query=looking.query, shift=looking.shift if kind == "cross" else 0)
        layer = _layer(name, sum(other.kind == kind for other in attention.values()))
        attention[name] = replace(attended, layer=layer)
        if name in cross and not weights_alone:
            steps += _steps(name, seen, len(target.tokens))
    described = {"kind": type(model).__name__.lower(), "layers": len(cross), **(about or {})}
    if looking is not None and looking.key_heads:
        described["key_heads"] = looking.key_heads
    return Trace(source, target, attention, described, tuple(steps), **parts)


def add_probabilities(
    target: Side, ids: Sequence[int], logits: Tensor, name: Callable[[int], str], best: int = 5
) -> Side:
    """The target with the log-probability of each token and of the `best` alternatives at its place.

    ids [T] belong to the tokens, logits [T, V] are the model's (longer ones are cut), `name` gives the text of an id.
    """
    if len(ids) != len(target.tokens) or logits.shape[0] < len(ids):
        raise ShapeError(
            f"Probabilities need an id and a row of logits for each of {len(target.tokens)} target tokens; "
            f"got {len(ids)} ids and {logits.shape[0]} rows."
        )
    logprobs = logits[: len(ids)].detach().double().log_softmax(-1)  # [T, V]
    values, which = logprobs.topk(min(best, logprobs.shape[-1]), dim=-1)  # [T, k]
    tokens = []
    for t, token in enumerate(target.tokens):
        top = tuple((name(int(i)), round(float(v), 6)) for i, v in zip(which[t], values[t], strict=True))
        tokens.append(replace(token, logprob=round(float(logprobs[t, ids[t]]), 6), topk=top))
    return Side(target.text, tuple(tokens))


def _row(seen: Seen, row: int) -> Seen:
    """One sentence of a batch, always with heads: context [H, T, Dv], weights and scores [H, T, S], query [H, T, D]."""
    if not -len(seen.weights) <= row < len(seen.weights):
        raise ShapeError(f"There is no sentence {row}: {len(seen.weights)} were recorded.")
    context, weights, scores, query = (
        part[row] if part.dim() == 4 else part[row][None]
        for part in (seen.context, seen.weights, seen.scores, seen.query)
    )
    return Seen(context, weights, scores, query, None if seen.centre is None else seen.centre[row])


def _kind(name: str, cross: bool, slots: int, source: Side, image: Picture | None) -> str:
    if cross:
        if image is not None:
            return "image"
        return "fixed" if slots == 1 and len(source.tokens) > 1 else "cross"
    return "encoder" if name.split(".")[0].startswith("encoder") else "decoder"


def _attended(name: str, kind: str, module: Any, seen: Seen, sizes: tuple[int, int], weights_alone: bool) -> Attended:
    S, T = sizes
    rows = S if kind == "encoder" else T
    slots = {"encoder": S, "cross": S, "decoder": T}.get(kind, seen.weights.shape[-1])
    # Attention over the past that never reaches the last word (the LSTMN's) has no slot for it.
    missing = 1 if kind in ("encoder", "decoder") and seen.weights.shape[-1] == slots - 1 else 0
    weights = _numbers(nn.functional.pad(seen.weights, (0, missing)))  # [H, rows, slots], with padding
    once = kind == "fixed" and weights.shape[1] == 1  # one call before the first word: the same for all words
    weights = weights.repeat(T, 1) if once else weights
    plain = Attended(
        name, weights[:, :rows, :slots], kind, score=_name(module.score), normalise=_name(module.normalise)
    )
    if weights_alone:
        return plain
    scores = _numbers(nn.functional.pad(seen.scores, (0, missing), value=float("-inf")))
    norms = np.linalg.norm(_numbers(seen.context), axis=-1)  # [H, rows]
    if once:
        scores, norms = scores.repeat(T, 1), norms.repeat(T, 1)
    if isinstance(module.normalise, Causal):  # a sparse normaliser gives weight 0 to slots that are not hidden, too
        queries, size = scores.shape[-2:]
        scores = np.where(np.tri(queries, size, size - queries, dtype=bool), scores, -np.inf)
    elif plain.normalise in HIDING:
        scores = np.where(weights == 0, -np.inf, scores)
    return replace(
        plain,
        scores=scores[:, :rows, :slots],
        context_norms=norms[:, :rows],
        centre=None if seen.centre is None else _numbers(seen.centre)[:rows],
        half_width=int(getattr(module.normalise, "half_width", 0)),
    )


def _numbers(tensor: Tensor) -> Array:
    return np.asarray(tensor.cpu().float().numpy(), dtype=np.float32)


def _name(part: Any) -> str:
    name = getattr(part, "__name__", type(part).__name__)
    return _NAMES.get(name, name[:1].lower() + name[1:])


def _layer(name: str, count: int) -> int:
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return numbers[0] if numbers else count


def _steps(name: str, seen: Seen, count: int) -> list[StepVectors]:
    query, context = (_bins(_numbers(part)) for part in (seen.query, seen.context))
    return [
        StepVectors(t, name, tuple(query[t].tolist()), tuple(context[t].tolist()))
        for t in range(min(count, len(query), len(context)))
    ]


def _bins(vectors: Array) -> NDArray[np.float64]:
    """[H, T, D] -> [T, at most 32]: the heads side by side, neighbours averaged."""
    flat = vectors.swapaxes(0, 1).reshape(vectors.shape[1], -1).astype(np.float64)
    edges = np.linspace(0, flat.shape[1], min(_BINS, flat.shape[1]) + 1).astype(int)
    means = np.add.reduceat(flat, edges[:-1], axis=1) / np.diff(edges)
    return np.round(means, 5)
