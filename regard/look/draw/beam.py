"""The beam: a search tree from left to right, one column per step, with kept, cut and finished candidates."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.errors import ConfigError, counted
from regard.look.draw import matrix
from regard.look.palette import FAINT, INK
from regard.look.table import Show
from regard.look.trace_data import Beam, BeamNode, TraceData
from regard.text.visible import columns, label, plain_piece

_BEST, _KEPT, _CUT = "#124983", "#6ba3cf", "#b8bfc8"


def figure(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """The search tree: a node names its token and the log-probability of its prefix; an edge is as thick as the token
    was probable. The winner is dark, cut candidates are grey and dashed (left out with pruned=False)."""
    if trace.beam is None or not trace.beam.nodes:
        raise ConfigError("This trace holds no search tree; look with beam search to get one.")
    shown = {node.id: node for node in trace.beam.nodes if show.pruned or not node.pruned}
    shown = {id: node for id, node in shown.items() if node.parent is None or node.parent in shown}
    heights = layout(trace.beam, shown)
    first, last = min(node.step for node in shown.values()), max(node.step for node in shown.values())
    widest = max(columns(label(plain_piece(node.token), 14)) for node in shown.values())
    wide, tall = 0.5 + 0.085 * max(4, widest), 0.36  # inches a step, a line
    size = ((last - first + 1) * wide, (max(heights.values(), default=0) + 1) * tall)
    drawing, axes = matrix.canvas(*size)
    axes.set(xlim=(first - 0.4, last + 0.6), ylim=(max(heights.values(), default=0) + 0.7, -0.7))
    axes.axis("off")
    best: set[int] = set()  # the winner's path
    at = shown.get(trace.beam.ranked[0]) if trace.beam.ranked else None
    while at is not None and at.id not in best:
        best.add(at.id)
        at = shown.get(at.parent) if at.parent is not None else None
    for node in sorted(shown.values(), key=lambda node: (node.id in best, not node.pruned, -node.id)):
        _edge(axes, node, shown, heights, node.id in best)
    for node in shown.values():
        rank = trace.beam.ranked.index(node.id) + 1 if node.id in trace.beam.ranked else None
        _name(axes, node, heights[node.id], node.id in best, rank)
    caption = (
        f"beam search, size {trace.beam.size}: {counted(len(shown), 'candidate')}, {len(trace.beam.ranked)} finished; "
        f"below a token the log-probability up to it, beside a rank the score that decides; thickness is probability"
    )
    matrix.under(axes, caption + ("; dashed: cut" if show.pruned else ""), show.title, size)
    words = " ".join(label(plain_piece(shown[id].token)) for id in sorted(best, key=lambda id: shown[id].step))
    size_words = f"Beam search of size {trace.beam.size} with {counted(len(shown), 'candidate')}"
    return drawing, f"{size_words}; the winner is: {words}."


def layout(beam: Beam, shown: dict[int, BeamNode]) -> dict[int, float]:
    """A height for every node: each leaf takes one line, the better ones first, and a parent is level with its
    best child, so that the winner runs along the top. Without recursion: beams can be long."""
    children: dict[int | None, list[BeamNode]] = {}
    for node in shown.values():
        children.setdefault(node.parent if node.parent in shown else None, []).append(node)
    quality: dict[int, float] = {}
    ranks = {id: place for place, id in enumerate(beam.ranked)}
    for node in sorted(shown.values(), key=lambda node: -node.step):
        below = [quality[child.id] for child in children.get(node.id, [])]
        own = 1e9 - ranks[node.id] if node.id in ranks else node.total - 1e6 * node.pruned
        quality[node.id] = max([own, *below])
    heights: dict[int, float] = {}
    line = 0
    stack = sorted(children.get(None, []), key=lambda node: quality[node.id])
    while stack:
        node = stack.pop()
        below_nodes = sorted(children.get(node.id, []), key=lambda child: quality[child.id])
        heights[node.id] = line
        if below_nodes:
            stack += below_nodes
        else:
            line += 1
    return heights


def _edge(axes: Axes, node: BeamNode, shown: dict[int, BeamNode], heights: dict[int, float], best: bool) -> None:
    if node.parent is None or node.parent not in shown:
        return
    parent = shown[node.parent]
    x0, y0, x1, y1 = parent.step, heights[parent.id], node.step, heights[node.id]
    bend = x0 + 0.5 * (x1 - x0) if y0 != y1 else x1
    probability = math.exp(min(0.0, node.logprob))
    axes.plot(
        [x0, x0 + 0.25, bend - 0.12, bend, x1] if y0 != y1 else [x0, x1],
        [y0, y0, y1, y1, y1] if y0 != y1 else [y0, y1],
        color=_BEST if best else _CUT if node.pruned else _KEPT,
        linewidth=0.7 + (1.0 if node.pruned else 3.2) * probability, solid_capstyle="round",
        linestyle=(0, (3, 2)) if node.pruned else "-", zorder=1 + best,
    )  # fmt: skip


def _name(axes: Axes, node: BeamNode, y: float, best: bool, rank: int | None) -> None:
    ink, text = FAINT if node.pruned else INK, label(plain_piece(node.token), 14)
    box = {"boxstyle": "round,pad=0.18", "facecolor": "white", "edgecolor": _BEST if best else _CUT, "linewidth": 0.8}
    axes.text(
        node.step, y, text, ha="center", va="center", fontsize=9, color=ink, parse_math=False,
        bbox=box, fontweight="bold" if best else "normal", zorder=4,
    )  # fmt: skip
    place = (node.step, y)
    matrix.note(axes, f"{node.total:.2f}", place, (0, -8.5), 6, ha="center", va="top", color=FAINT, zorder=3)
    if rank is not None:
        style = {"color": _BEST if best else INK, "fontweight": "bold" if best else "normal", "zorder": 4}
        away = (6 + 3.2 * columns(text), 0)
        matrix.note(axes, f"{rank}.  {node.score:.3f}", place, away, 8.5, ha="left", va="center", **style)
