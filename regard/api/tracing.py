"""The trace of a sentence and its output: one forward pass with every attention call recorded."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.api.flags import unseen
from regard.core.normalise import Causal
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.errors import ConfigError, DataError, ShapeError
from regard.look.record import AttentionCall, Recorded, attentions, layer_of, record, side_of
from regard.look.tokens import Side, Token
from regard.look.trace import Trace
from regard.look.trace_data import HIDING, Attended
from regard.models.pointer import Pointer
from regard.symbols import END, SYMBOLS
from regard.text.visible import BLANKS

LONGEST_LOOK = 1_000  # tokens of a sentence that can be traced: every head keeps T x S numbers
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


def trace_forward(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    written: Sequence[int],
    source: Side,
    vocabulary: Vocabulary,
    topk: int,
    target: Side | None = None,
    **parts: Any,
) -> Trace:
    """The trace of the ids `written` after `inputs`; `parts` are those of `assemble`.

    Costs one forward pass. The target gets the probabilities of its tokens and of `topk` alternatives to each. The
    attention of a model that copies holds the probability of copying as `step_values["copy"]`.
    """
    if topk < 0:
        raise ConfigError(f"topk must be at least 0; got {topk}.")
    ids = torch.tensor([list(written)], device=next(model.parameters()).device)  # [1, T]
    shares: list[Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        seen = stack.enter_context(record(model))
        if isinstance(model, Pointer):
            hook = model.generate.register_forward_hook(
                lambda module, args, logit: shares.append(torch.sigmoid(-logit[0, :, 0]))
            )
            stack.enter_context(hook)
        logits = model(*inputs, ids)  # [1, T, V]
    if target is None:
        plain = [index for index in written if index != END]
        target = tokens_of(vocabulary.tokenised(plain), ended=len(plain) < len(written))
    target = add_probabilities(target, written, logits[0], vocabulary.pieces, topk)
    trace = assemble(model, seen, source, target, **parts)
    return with_step_values(trace, "copy", shares[0].tolist() if shares else ())  # [T]


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
    the cross-attentions, query timing and shift of the model's `attention_layout`. `about` describes the model; `parts`
    are further fields of the trace: beam, changes, image, notes. With `weights_alone`, scores and vectors are left out,
    for reading a whole corpus.
    """
    modules = attentions(model)
    layout = getattr(model, "attention_layout", None)
    cross = tuple(modules) if layout is None else layout.cross
    attention: dict[str, Attended] = {}
    for name in recorded:
        call = recorded[name]
        if not -len(call.weights) <= row < len(call.weights):
            raise ShapeError(f"There is no sentence {row}: {len(call.weights)} were recorded.")
        slots = call.weights.shape[-1]
        if name not in cross:
            kind = side_of(name)
        elif parts.get("image") is not None:
            kind = "image"
        else:
            kind = "fixed" if slots == 1 and len(source.tokens) > 1 else "cross"
        layer = layer_of(name)
        settings: dict[str, Any] = {
            "kind": kind,
            "layer": sum(other.kind == kind for other in attention.values()) if layer is None else layer,
            "score": name_of(modules[name].score),
            "normalise": name_of(modules[name].normalise),
        }
        if name in cross and layout is not None:
            settings |= {"query": layout.query, "shift": layout.shift if kind == "cross" else 0}
        sizes = len(source.tokens), len(target.tokens)
        arrays = _arrays(modules[name], call, row, kind, sizes, weights_alone, vectors=name in cross)
        attention[name] = Attended(name, **arrays, **settings)
    described = {"kind": type(model).__name__.lower(), "layers": len(cross), **(about or {})}
    if layout is not None and layout.key_heads:
        described["key_heads"] = layout.key_heads
    return Trace(source, target, attention, described, **parts)


def _arrays(
    module: Any, call: AttentionCall, row: int, kind: str, sizes: tuple[int, int], weights_alone: bool, vectors: bool
) -> dict[str, Any]:
    """The arrays of an `Attended`: those of sentence `row`, with heads, cut to its tokens."""
    S, T = sizes
    rows = S if kind == "encoder" else T
    slots = {"encoder": S, "cross": S, "decoder": T}.get(kind, call.weights.shape[-1])
    # Attention over the past that never reaches the last word (the LSTMN's) has no slot for it.
    missing = 1 if kind in ("encoder", "decoder") and call.weights.shape[-1] == slots - 1 else 0
    once = kind == "fixed" and call.weights.shape[-2] == 1  # one call before the first word: the same for all words

    def numbers(part: Tensor, fill: float | None = None) -> NDArray[np.float32]:
        """[H, rows, ...] of one sentence; with `fill`, also padded along S."""
        one = part[row] if part.dim() == 4 else part[row][None]
        if fill is not None and missing:
            one = nn.functional.pad(one, (0, missing), value=fill)
        return np.asarray(one.cpu().float().numpy(), dtype=np.float32)

    weights = numbers(call.weights, 0.0)
    weights = weights.repeat(T, 1) if once else weights
    if weights_alone:
        return {"weights": weights[:, :rows, :slots]}
    scores, context = numbers(call.scores, float("-inf")), numbers(call.context)
    norms = np.linalg.norm(context, axis=-1)  # [H, rows]
    if once:
        scores, norms = scores.repeat(T, 1), norms.repeat(T, 1)
    if isinstance(module.normalise, Causal):  # a sparse normaliser gives weight 0 to slots that are not hidden, too
        queries, size = scores.shape[-2:]
        scores = np.where(np.tri(queries, size, size - queries, dtype=bool), scores, -np.inf)
    elif name_of(module.normalise) in HIDING:
        scores = np.where(weights == 0, -np.inf, scores)
    return {
        "weights": weights[:, :rows, :slots],
        "scores": scores[:, :rows, :slots],
        "context_norms": norms[:, :rows],
        "centre": None if call.centre is None else call.centre[row].cpu().float().numpy()[:rows],
        "half_width": int(getattr(module.normalise, "half_width", 0)),
        "query_vectors": _bins(numbers(call.query), rows) if vectors else None,
        "context_vectors": _bins(context, rows) if vectors else None,
    }


def name_of(part: Any) -> str:
    """The name of a score or a normaliser in a trace."""
    name = getattr(part, "__name__", type(part).__name__)
    return _NAMES.get(name, name[:1].lower() + name[1:])


def _bins(vectors: NDArray[np.float32], rows: int) -> NDArray[np.float64]:
    """[H, T, D] -> [rows, at most 32]: the heads side by side, neighbours averaged; NaN where there is no vector."""
    flat = vectors.swapaxes(0, 1).reshape(vectors.shape[1], -1).astype(np.float64)
    edges = np.linspace(0, flat.shape[1], min(_BINS, flat.shape[1]) + 1).astype(int)
    means = np.round(np.add.reduceat(flat, edges[:-1], axis=1) / np.diff(edges), 5)[:rows]
    return np.pad(means, [(0, rows - len(means)), (0, 0)], constant_values=np.nan)


def add_probabilities(
    target: Side, ids: Sequence[int], logits: Tensor, pieces: Callable[[list[int]], list[str]], best: int = 5
) -> Side:
    """The target with the log-probability of each token and of the `best` alternatives at its place.

    ids [T] belong to the tokens, logits [T, V] are the model's (longer ones are cut), `pieces` gives the texts of ids.
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
        top = zip(pieces(which[t].tolist()), (round(value, 6) for value in values[t].tolist()), strict=True)
        tokens.append(replace(token, logprob=round(float(logprobs[t, ids[t]]), 6), topk=tuple(top)))
    return Side(target.text, tuple(tokens))


def with_step_values(trace: Trace, name: str, values: Sequence[float]) -> Trace:
    """The trace with a number for each target token in its attention to the source; unchanged if there are none."""
    if not values:
        return trace
    given: dict[str, Any] = {name: np.round(np.asarray(values, dtype=np.float64), 6)}
    attention = {
        key: replace(seen, step_values={**seen.step_values, **given}) if seen.query_vectors is not None else seen
        for key, seen in trace.attention.items()
    }
    return replace(trace, attention=attention)


def with_end(written: list[int], ended: bool) -> list[int]:
    """The ids that a search found, END last if they ended; an empty text always has it."""
    return [*written, END] if ended or not written else written


def check_words(text: str, encoded: Tokenised, what: str = "sentence") -> None:
    """Refuse a text without words."""
    if not encoded.ids or not text.split():
        raise DataError(f"There is nothing to look at in an empty {what}; pass at least one word.")


def check_length(ids: Sequence[int]) -> None:
    """Refuse a sentence that is too long to trace."""
    if len(ids) > LONGEST_LOOK:
        raise DataError(f"A sentence of {len(ids)} tokens is too long to look into; give at most {LONGEST_LOOK}.")


def describe_forced(vocabulary: Vocabulary, forced: Sequence[int] | None) -> list[dict[str, Any]]:
    """A forced beginning as one of the changes of a trace: the rows that were not the model's choice."""
    if not forced:
        return []
    text = f"begins with '{vocabulary.decode(forced)}'"
    return [{"kind": "force", "text": text, "rows": list(range(len(forced)))}]


def note_unseen(flag: str, holder: str, *texts: Tokenised) -> tuple[dict[str, Any], ...]:
    """A note about characters or words that are not in the vocabulary, if `texts` have any."""
    words = [word for text in texts for word in unseen(text)]
    text = f"{holder} characters or words that were never seen in training"
    return ({"flag": flag, "text": text, "words": words},) if words else ()


def tokens_of(tokenised: Tokenised, ended: bool) -> Side:
    """The tokens of a text with their positions and the words they belong to; END last if the sentence ended."""
    text = tokenised.text
    tokens = [
        Token(text[start:end].strip(BLANKS) or piece, piece, start, end, word=word)
        for piece, (start, end), word in zip(tokenised.pieces, tokenised.spans, tokenised.words, strict=True)
    ]
    end = [Token(SYMBOLS[END], SYMBOLS[END], len(text), len(text), special=True)] if ended else []
    return Side(text, (*tokens, *end))
