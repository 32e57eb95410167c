"""Attributions: from which source words did each target word come? One matrix [T, S] for each method of `METHODS`.

A method knows a model by its contract and by what hooks see: `record`, `change` and the source embeddings.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.errors import ConfigError, check_known
from regard.look.case import Attributed, Case
from regard.look.contributions import alti, attend, attend_norms, attends, layers_of, rollout, zero_values
from regard.look.gradients import COMPLETE, gradient, integrate
from regard.look.occlusion import occlude_masked, occlude_removed, occlude_unknown
from regard.look.table import Show, labels, merge
from regard.look.trace import Trace
from regard.look.trace_data import BY, Attended, TraceData


def attribute(case: Case, method: str) -> Attributed:
    """Attribute every target word of a sentence to its source words by one of `METHODS`."""
    check_method(case.model, method)
    if case.against is not None and not METHODS[method].contrasts:
        able = ", ".join(name for name in methods_of(case.model) if METHODS[name].contrasts)
        raise ConfigError(
            f"The method {method!r} does not depend on the word that is written, so that two words cannot be compared "
            f"by it; compare them by one of: {able}."
        )
    was_training, trained = case.model.training, [one for one in case.model.parameters() if one.requires_grad]
    case.model.eval().requires_grad_(False)
    try:
        # Ids that were made under inference mode cannot be part of a graph.
        with torch.inference_mode(False), torch.no_grad():
            return METHODS[method].act(replace(case, source=case.source.clone(), target=case.target.clone()))
    finally:
        case.model.train(was_training)
        for parameter in trained:
            parameter.requires_grad_()


def check_method(model: nn.Module, method: str) -> None:
    """Refuse a method that does not exist, or that is not defined for a model."""
    check_known("attribution method", method, METHODS)
    try:
        METHODS[method].needs(model)
    except ConfigError as error:
        reason = str(error).removesuffix(".")
        raise ConfigError(f"{reason}; attribute by one of: {', '.join(methods_of(model))}.") from None


def _anything(model: nn.Module) -> None:
    """Every sequence model will do."""


class Method(NamedTuple):
    """A method: the function, what it needs of a model, what a row is, and whether two words can be compared by it (Yin
    and Neubig 2022, "Interpreting language models with contrastive explanations")."""

    act: Callable[[Case], Attributed]
    needs: Callable[[Any], Any]
    row: str
    contrasts: bool = False


_ONE = "a row sums to one"
_WITH_PREFIX = "a row sums to one together with the target words before it"
_LOST = "the log-probability that the target word loses without the source word"
_SLOPE = "the slope of the log-probability along each source word"
_SUM = "a row sums to the log-probability that the source words add to zero vectors in their place"
METHODS: dict[str, Method] = {
    "attention": Method(attend, attends, "a row sums to one, or to less in a window that is not normalised"),
    "attention-norm": Method(attend_norms, attends, _ONE),
    "rollout": Method(rollout, layers_of, _WITH_PREFIX),
    "alti": Method(alti, layers_of, _WITH_PREFIX),
    "value-zeroing": Method(zero_values, layers_of, _WITH_PREFIX),
    "gradient": Method(gradient, _anything, _SLOPE, True),
    "integrated-gradients": Method(integrate, _anything, _SUM, True),
    "occlusion-masked": Method(occlude_masked, attends, _LOST, True),
    "occlusion-unknown": Method(occlude_unknown, _anything, _LOST, True),
    "occlusion-removed": Method(occlude_removed, _anything, _LOST, True),
}


def methods_of(model: nn.Module) -> list[str]:
    """The methods that are defined for a model."""

    def fits(method: Method) -> bool:
        try:
            method.needs(model)
        except ConfigError:
            return False
        return True

    return [name for name, method in METHODS.items() if fits(method)]


# --- in a trace


@dataclass(frozen=True, eq=False)
class Attribution:
    """From which source words each target word came, by one method; `Translator.attribute` makes one.

    `meaning` says what a row of `matrix` is. `source_share` is there for methods whose rows sum to one together with
    the target words before: the part of each row that is the source's.

    >>> found = regard.load("en-fr").attribute("The cat sleeps.", "Le chat dort.", method="alti")
    >>> found.rows[1], found.columns[found.matrix[1].argmax()], found.source_share.shape
    ('chat', 'cat', (5,))
    """

    method: str
    rows: tuple[str, ...]  # target words, </s> last
    columns: tuple[str, ...]  # source words, </s> last
    matrix: NDArray[np.float32]  # [rows, columns]
    meaning: str
    source_share: NDArray[np.float32] | None = None  # [rows]

    @classmethod
    def of(cls, trace: TraceData, name: str, words: bool = True) -> "Attribution":
        """The attribution that a trace has under `name`, between words or between pieces."""
        seen, show = trace.attention[name], Show(words=words)
        by = seen.method or name
        rows, columns = (labels(side.text, side.tokens, show) for side in (trace.target, trace.source))
        matrix = merge((seen.weights if seen.scores is None else seen.scores)[0], rows, columns)
        method = METHODS.get(by.partition(_AGAINST)[0].partition(":")[0])
        share = None
        if _SHARE in seen.step_values:
            share = np.array([seen.step_values[_SHARE][list(row.tokens)].mean() for row in rows], dtype=np.float32)
        down, across = (tuple(label.text for label in side) for side in (rows, columns))
        return cls(by, down, across, matrix, method.row if method else "", share)


_AGAINST = " against "  # between a method and the word that it compares with
ESTIMATED = 0.1  # share of a row of integrated gradients above which an estimated part is noted
DRAWN = "the positive part of each row, as shares"
_SHARE = "source"  # the name of the source's part of each row in a trace


def add_attribution(trace: Trace, case: Case, method: str, against: str = "") -> Trace:
    """The trace with the attribution of its sentence by `method`, which may name a layer and a head after a
    colon, those of `case`; `against` is the text of `case.against`.

    It is kept as a module of the kind "attribution". What it draws are shares: the values themselves, where they are
    shares; else, the positive values of each row, by words, divided by their sum, with the values as its scores.
    """
    columns = labels(trace.source.text, trace.source.tokens, Show())
    kind, name = method.partition(":")[0], method + (f"{_AGAINST}{against}" if against else "")
    if name in trace.attention and trace.attention[name].method is None:
        name = BY + name
    found = attribute(replace(case, words=[label.tokens for label in columns]), kind)
    values = found.values.float().cpu().numpy()  # [T, S]
    settings: dict[str, Any] = {"weights": values}
    if METHODS[kind].contrasts:
        by_word = np.add.reduceat(values, [label.tokens[0] for label in columns], axis=1).clip(min=0)  # [T, words]
        total = by_word.sum(-1, keepdims=True)
        shares = np.divide(by_word, total, out=np.zeros_like(by_word), where=total > 0)
        counts = [len(label.tokens) for label in columns]
        settings = {"weights": np.repeat(shares / counts, counts, axis=1), "scores": values, "score": DRAWN}
    if found.prefix is not None:
        settings["step_values"] = {_SHARE: values.sum(-1).astype(np.float64)}
    settings["weights"] = settings["weights"].clip(0, 1)  # rounding
    seen = Attended(name, kind="attribution", normalise="shares", **settings)
    notes = trace.notes
    if found.gap is not None:
        uncertain = found.gap > (ESTIMATED * found.values.abs().sum(-1)).clamp(min=COMPLETE)
        if many := int(uncertain.sum()):
            text = f"the log-probability changes too abruptly for integrated gradients in {many} of {len(found.gap)} "
            text += f"tokens, where up to {float(found.gap[uncertain].max()):.2g} of it is divided by an estimate"
            notes = (*notes, {"flag": "attribution", "text": text})
    return replace(trace, attention={**trace.attention, name: seen}, notes=notes)
