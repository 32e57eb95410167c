"""One decoding step, in reading order: query, scores, weights, context, distribution, chosen word."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from regard.errors import ConfigError, numbered
from regard.look.draw import matrix
from regard.look.measure import reproduce
from regard.look.palette import DIVERGING, FAINT, INK
from regard.look.table import Show, shift_note, step_head, step_module, tokens_of
from regard.look.tokens import Token
from regard.look.trace_data import KINDS, Attended, TraceData
from regard.text.visible import label, plain_piece, visible

_ROLES = {"query": "#cc79a7", "scores": "#e69f00", "weights": "#0072b2", "context": "#009e73", "output": "#56b4e9"}
_MOST_BARS = 40


def figure(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """Everything that was computed when target token `show.step` was written, one role = one colour."""
    seen = step_module(trace, show.layer, show.head)
    step, head = show.step or 0, step_head(trace, seen) if show.head is None else show.head  # one, never their mean
    rows = tokens_of(trace, KINDS[seen.kind][0])
    if not 0 <= step < len(rows):
        raise ConfigError(f"There is no step {step}: this trace has {numbered('step', len(rows))}.")
    if not isinstance(head, int) or not 0 <= head < seen.heads:
        raise ConfigError(f"There is no head {head}: '{seen.name}' has {numbered('head', seen.heads)}.")
    columns = tokens_of(trace, KINDS[seen.kind][1])
    keep = np.arange(len(columns))
    if len(columns) > _MOST_BARS:
        keep = np.sort(np.argsort(-seen.weights[head, step], kind="stable")[:_MOST_BARS])
    names = [label(columns[s].text, 16) for s in keep]
    bars, line = max(10, len(keep)), 0.2
    size = (10.5, bars * line)
    drawing, left = matrix.canvas(*size)
    query_vector, context_vector = (
        () if part is None or np.isnan(part[step]).any() else tuple(part[step].tolist())
        for part in (seen.query_vectors, seen.context_vectors)
    )
    chosen = rows[step]
    left.axis("off")
    query = "s(t-1): before the last word is read" if seen.query == "previous" else "s(t): after the last word is read"
    norm = "" if seen.context_norms is None else f", norm {seen.context_norms[head, step]:.2f}"
    high, space = 0.24 / size[1], 1 / size[1]
    _strip(drawing.add_axes((0, 1 - high, 0.17, high)), query_vector, "query", "1  query", query)
    _scores(drawing.add_axes((0.28, 0, 0.2, 1)), seen, names, keep, head, step)
    _weights(drawing.add_axes((0.52, 0, 0.2, 1)), seen, keep, head, step)
    note = f"weighted sum of the values{norm}"
    _strip(drawing.add_axes((0.76, 1 - high, 0.2, high)), context_vector, "context", "4  context", note)
    shown = min(8, max(1, len(chosen.topk)))
    below = drawing.add_axes((0.76, 1 - high - (0.6 + shown * line) * space, 0.2, shown * line * space))
    _output(below, chosen)
    before = " ".join(label(token.text) for token in rows[max(0, step - 8) : step] if not token.special)
    place = f" of layer {seen.layer}, head {head}" if seen.heads > 1 or len(trace.attention) > 1 else ""
    caption = f"step {step}{place}: after “{before or '(nothing yet)'}” the model wrote “{label(chosen.text)}”" + (
        f"; the {len(keep)} strongest of {len(columns)} source positions" if len(keep) < len(columns) else ""
    )
    note = shift_note(trace, seen, head, step)
    under = " ".join(part for part in (f"{caption}.", note, _check(seen, bool(trace.changes))) if part)
    matrix.under(left, under, show.title, size)
    return drawing, f"{caption}. {note}".removesuffix(" ")


def _head(axes: Axes, title: str, note: str) -> None:
    strong: dict[str, Any] = {"fontweight": "bold", "color": INK}
    faint: dict[str, Any] = {"color": FAINT}
    for text, up, size, style in ((title, 16, 10, strong), (note, 5, 7, faint)):
        matrix.note(axes, visible(text), (0, 1), (0, up), size, xycoords="axes fraction", **style)


def _strip(axes: Axes, vector: tuple[float, ...], role: str, title: str, note: str) -> None:
    """A vector as signed colours, purple below zero and orange above."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=_ROLES[role], linewidth=1.6)
    _head(axes, title, note)
    if not vector:
        axes.text(0.5, 0.5, "not recorded", fontsize=7, color=FAINT, ha="center", va="center")
        return
    most = max(1e-9, max(abs(value) for value in vector))
    hues = LinearSegmentedColormap.from_list("signed", DIVERGING)
    axes.imshow(np.array([vector]), aspect="auto", cmap=hues, vmin=-most, vmax=most, interpolation="nearest")


def _bars(axes: Axes, values: np.ndarray, colour: str, title: str, note: str) -> None:
    places = np.arange(len(values))
    axes.barh(places, values, color=colour, height=0.72)
    axes.set(ylim=(max(0.5, len(values) - 0.5), -0.5), yticks=[], xticks=[])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set(color="#c3cad3", linewidth=0.8)
    _head(axes, title, note)


def _scores(axes: Axes, seen: Attended, names: list[str], keep: np.ndarray, head: int, t: int) -> None:
    if seen.scores is None:
        values = np.zeros(len(keep))
        _bars(axes, values, _ROLES["scores"], "2  scores", "not recorded")
    else:
        raw = seen.scores[head, t, keep]
        values = np.where(np.isfinite(raw), raw, 0.0)
        _bars(axes, values, _ROLES["scores"], "2  scores", seen.score or "before normalising")
        low, high = min(0.0, float(values.min(initial=0))), max(0.0, float(values.max(initial=0)))
        room = 0.25 * (high - low or 1)
        axes.set_xlim(low - room * (low < 0), high + room)
        for at, value in enumerate(raw):
            text = f"{value:.2f}" if np.isfinite(value) else "masked"
            away = -3 if value < 0 and np.isfinite(value) else 3
            style = {"color": FAINT, "va": "center", "ha": "right" if away < 0 else "left"}
            matrix.note(axes, text, (values[at], at), (away, 0), 6.5, **style)
    for at, name in enumerate(names):
        beside = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center_baseline"}
        matrix.note(axes, name, (0, at), (-5, 0), 8.5, **beside)


def _weights(axes: Axes, seen: Attended, keep: np.ndarray, head: int, t: int) -> None:
    values = seen.weights[head, t, keep]
    _bars(axes, values, _ROLES["weights"], "3  weights", f"{seen.normalise}; sum = {seen.weights[head, t].sum():.3f}")
    axes.set_xlim(0, 1.18)
    for at, value in enumerate(values):
        matrix.note(axes, f"{value:.2f}", (value, at), (3, 0), 6.5, color=FAINT, va="center")


def _output(axes: Axes, chosen: Token) -> None:
    best = list(chosen.topk[:8])
    if chosen.logprob is not None and not any(text in (chosen.text, chosen.piece) for text, _ in best):
        best.append((chosen.text, chosen.logprob))  # a forced word may be far down
    values = np.array([math.exp(min(0.0, each)) for _, each in best])
    _bars(axes, values, _ROLES["output"], "5  distribution", "most probable words; the chosen one is bold")
    axes.set_xlim(0, 1.25)
    for at, (text, _) in enumerate(best):
        bold = "bold" if text in (chosen.text, chosen.piece) else "normal"
        words = f"{label(plain_piece(text), 14)}  {values[at]:.2f}"
        matrix.note(axes, words, (values[at], at), (3, 0), 8, va="center_baseline", fontweight=bold)
    style = {"xycoords": "axes fraction", "fontweight": "bold", "va": "top"}
    matrix.note(axes, f"6  writes “{label(chosen.text, 18)}”", (0, 0), (0, -8), 10, **style)


def _check(seen: Attended, changed: bool) -> str:
    again = reproduce(seen)
    if again is None:
        return ""
    worst = float(np.abs(again - seen.weights).max(initial=0))
    if worst > 1e-3 and changed:
        return f"some weights were set by a what-if; the others are {visible(seen.normalise)} of the scores"
    return f"{visible(seen.normalise)} of the scores reproduces the weights: largest difference {worst:.0e}"
