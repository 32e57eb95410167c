"""What-ifs: change the attention of a model while a block runs; the model itself is not modified.

    with change(model, Silence("decoder.1.cross_attention", head=2), Temperature(0.5)) as changed:
        logits = model(source, lengths, target)
    trace = assemble(..., changes=changed.describe())

Every change acts on scores or weights of `Attention` modules; the context is then computed again from them. Rows are
counted for each module, so that row t is target position t in a forward pass and in decoding step by step alike; call
`changed.restart()` before another sentence is decoded step by step (a call of the model itself restarts by itself).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from regard.core.attend import Look
from regard.errors import ConfigError, numbered, unknown
from regard.layers.attention import Attention
from regard.look.record import arguments, attentions
from regard.work import Progress, reporting


@dataclass(frozen=True)
class Change:
    """What all changes share: by default they act on the attention to the source, and alter nothing."""

    def where(self) -> str | None:
        """A module's dotted name or the beginning of one (a layer); None is every attention to the source."""
        name: str | None = getattr(self, "name", None)
        return name

    def score(self, scores: Tensor) -> Tensor:
        """Other scores [B, (H), T, S]."""
        return scores

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        """Other weights [B, (H), T, S], whose first row is row `first` of the sentence. The context follows."""
        return weights

    def describe(self) -> dict[str, Any]:
        """The change as a trace keeps it: "kind", "text" and, where it has them, "row", "column", "name", "head"."""
        raise NotImplementedError


@dataclass(frozen=True)
class Silence(Change):
    """A head, or a whole module or layer, silenced: its weights and its context are zero.

    >>> from regard.look import Silence
    >>> translator, silent = regard.load("en-fr"), Silence("decoder.2.cross_attention", head=0)
    >>> trace = translator.look("Where is the station?", "Où est la gare ?", changes=[silent])
    >>> weights = trace.attention["decoder.2.cross_attention.attention"].weights  # [H, T, S]
    >>> weights.any(axis=(1, 2)).tolist()
    [False, True, True, True, True]
    """

    name: str
    head: int | None = None

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        return torch.where(_heads(weights, self.head, self.name), 0.0, weights)

    def describe(self) -> dict[str, Any]:
        which = self.name if self.head is None else f"head {self.head} of {self.name}"
        return {"kind": "silence", "text": f"{which} silenced", "name": self.name, "head": self.head}


@dataclass(frozen=True)
class Mask(Change):
    """A source position that is masked; the normaliser gives its weight to the rest.

    In `Translator.look`, `position` may be a word of the source: every piece of every occurrence is masked. `word` is
    the text there, for the caption of a picture, which names a word of several pieces once.

    >>> from regard.look import Mask
    >>> translator = regard.load("en-fr/bahdanau")
    >>> trace = translator.look("Where is the station?", "Où est la gare ?", changes=[Mask("the")])
    >>> trace.changes[0]["text"], trace.attention["decoder.attention"].weights[0, :, 2].any().item()
    ("'the' masked", False)
    """

    position: int | str
    name: str | None = None
    word: str = ""

    def score(self, scores: Tensor) -> Tensor:
        if isinstance(self.position, str):
            raise ConfigError(f"Only translator.look knows words; pass a position in place of {self.position!r}.")
        _check_slot(self.position, scores.shape[-1])
        hidden = torch.arange(scores.shape[-1], device=scores.device) == self.position  # [S]
        return scores.masked_fill(hidden, float("-inf"))

    def describe(self) -> dict[str, Any]:
        which = f"'{self.word}'" if self.word else f"source position {self.position}"
        return {"kind": "mask", "text": f"{which} masked", "column": self.position}


@dataclass(frozen=True)
class Temperature(Change):
    """Scores divided by `value`: below 1 sharper, above 1 flatter.

    >>> from regard.look import Temperature
    >>> translator = regard.load("en-fr/bahdanau")
    >>> for value in (0.1, 1.0, 10.0):  # the largest weight for the first word
    ...     trace = translator.look("Where is the station?", "Où est la gare ?", changes=[Temperature(value)])
    ...     print(f"{trace.attention['decoder.attention'].weights[0, 0].max():.1f}")
    1.0
    0.6
    0.2
    """

    value: float
    name: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.value < float("inf"):
            raise ConfigError(f"A temperature must be above zero and finite; got {self.value}.")

    def score(self, scores: Tensor) -> Tensor:
        return scores / self.value

    def describe(self) -> dict[str, Any]:
        return {"kind": "temperature", "text": f"temperature {self.value:g}"}


@dataclass(frozen=True)
class SetRow(Change):
    """Row `t` gets these weights: one for each source position, or one position that takes all.

    >>> from regard.look import SetRow
    >>> translator = regard.load("en-fr/bahdanau")
    >>> trace = translator.look("Where is the station?", "Où est la gare ?", changes=[SetRow(0, [0.5, 0.5])])
    >>> trace.attention["decoder.attention"].weights[0, 0].tolist()
    [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    """

    t: int
    weights: Sequence[float] | int
    name: str | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        _check_row(self.t)
        if not isinstance(self.weights, int) and any(not 0 <= weight <= 1 for weight in self.weights):
            raise ConfigError(f"The weights of a row must lie between 0 and 1; got {list(self.weights)[:5]}.")

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        S = weights.shape[-1]
        row = weights.new_zeros(S)
        if isinstance(self.weights, int):
            _check_slot(self.weights, S)
            row[self.weights] = 1.0
        elif len(self.weights) > S:
            raise ConfigError(f"A row of {S} source positions cannot take {len(self.weights)} weights.")
        else:
            row[: len(self.weights)] = torch.as_tensor(list(self.weights), dtype=row.dtype, device=row.device)
        return torch.where(_heads(weights, self.head, self.name) & _rows(weights, self.t, first), row, weights)

    def describe(self) -> dict[str, Any]:
        to = f"all on source position {self.weights}" if isinstance(self.weights, int) else "by hand"
        return {"kind": "set-row", "text": f"row {self.t} set {to}", "row": self.t, "head": self.head}


@dataclass(frozen=True)
class ShiftRow(Change):
    """Row `t` moved `by` source positions (negative: to the left). What would leave the sentence stays at its edge.

    >>> from regard.look import ShiftRow
    >>> translator = regard.load("en-fr/bahdanau")
    >>> trace = translator.look("Where is the station?", "Où est la gare ?", changes=[ShiftRow(0, by=2)])
    >>> trace.attention["decoder.attention"].weights[0, 0].argmax().item()  # otherwise 0, "Where"
    2
    """

    t: int
    by: int
    name: str | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        _check_row(self.t)

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        S = weights.shape[-1]
        to = (torch.arange(S, device=weights.device) + self.by).clamp(0, S - 1)  # [S]
        moved = torch.zeros_like(weights).index_add(-1, to, weights)
        return torch.where(_heads(weights, self.head, self.name) & _rows(weights, self.t, first), moved, weights)

    def describe(self) -> dict[str, Any]:
        return {"kind": "shift-row", "text": f"row {self.t} moved by {self.by:+d}", "row": self.t, "head": self.head}


@dataclass(frozen=True)
class Force(Change):
    r"""Step `t` writes `word`, its pieces from there on. The words before it are the model's; after it the
    model continues freely. It acts on a search and not on attention: pass it to `Translator.look(changes=[...])`.

    >>> from regard.look import Force
    >>> trace = regard.load("en-fr/bahdanau").look("Where is the station?", changes=[Force(3, "maison")])
    >>> trace.target.text
    'Où est la maison\xa0?'
    """

    t: int
    word: str

    def __post_init__(self) -> None:
        _check_row(self.t)
        if not isinstance(self.word, str) or not self.word.split():
            raise ConfigError(f"Force needs a word to write at step {self.t}; got {self.word!r}.")

    def where(self) -> str | None:
        raise ConfigError("Force acts on a search, not on attention; pass it to translator.look(changes=[...]).")

    def describe(self) -> dict[str, Any]:
        return {"kind": "force", "text": f"step {self.t} writes '{self.word}'", "row": self.t}


@dataclass(frozen=True, eq=False)
class Zero(Change):
    """Weights are zero where `slots`, which broadcasts to [B, (H), T, S], is True; the rest is not renormalised."""

    slots: Tensor
    name: str | None = None

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        return weights.masked_fill(self.slots.to(weights.device), 0.0)


class Changed:
    """The changes of a running block."""

    def __init__(self, changes: tuple[Change, ...], at: dict[Attention, list[Change]]) -> None:
        self.changes = changes
        self._at = at

    def describe(self) -> tuple[dict[str, Any], ...]:
        """What was changed, for `Trace.changes`."""
        return tuple(change.describe() for change in self.changes)

    def restart(self) -> None:
        """The next row is row 0: call it before another sentence is decoded step by step."""
        for module in self._at:
            _active[module].first = 0


class _Active:
    """The changes that act on one module now, of all blocks around it, and the rows it has seen."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.first = 0

    def __call__(self, module: Attention, args: tuple[Any, ...], named: dict[str, Any], look: Look) -> Look:
        _, memory, centre = arguments(args, named)
        assert look.scores is not None
        assert look.weights is not None
        scores, weights = look.scores, look.weights
        for change in self.changes:
            scores = change.score(scores)
        if scores is not look.scores:
            weights = module.normaliser(centre, named.get("previous"))(scores, memory.mask)
        for change in self.changes:
            weights = change.weigh(weights, self.first)
        self.first += look.context.shape[-2]
        return Look(weights @ memory.values, weights, scores)


# One hook per module, shared by nested blocks: scores change before weights in any order of the blocks.
_active: "WeakKeyDictionary[Attention, _Active]" = WeakKeyDictionary()


@contextmanager
def change(model: nn.Module, *changes: Change) -> Iterator[Changed]:
    """Apply `changes` while the block runs. Blocks may be nested; afterwards no hook is left, also after an error.

    The changes are in `regard.look`: `Silence`, `Mask`, `Temperature`, `SetRow` and `ShiftRow`.

    >>> from regard.look import Temperature
    >>> translator = regard.load("en-fr/bahdanau")
    >>> with regard.change(translator.model, Temperature(100)), regard.record(translator.model) as seen:
    ...     found = translator.translate("Where is the station?", beam=1)
    >>> bool(seen["decoder.attention"].weights.max() < 0.2)  # of seven pieces: nearly uniform
    True
    """
    modules = attentions(model)
    at: dict[Attention, list[Change]] = {}
    for item in changes:
        if not isinstance(item, Change):
            raise ConfigError(f"A change is one of regard.look: Silence, Mask, Temperature, ...; got {item!r}.")
        for name in find(model, item.where()):
            at.setdefault(modules[name], []).append(item)
    changed = Changed(tuple(changes), at)
    with ExitStack() as stack:
        for module, ours in at.items():
            if module not in _active:  # the outermost block holds the hook
                active = _active[module] = _Active()
                stack.callback(_active.pop, module)
                # Before all other hooks: a recorder sees what the model saw.
                stack.enter_context(module.register_forward_hook(active, with_kwargs=True, prepend=True))
            for item in ours:
                _active[module].changes.append(item)
                stack.callback(_active[module].changes.remove, item)
        stack.enter_context(model.register_forward_pre_hook(lambda *_: changed.restart()))
        yield changed


def find(model: nn.Module, where: str | None) -> list[str]:
    """The attention modules that `where` selects: a name, a prefix of names, or None for those over the source."""
    names = list(attentions(model))
    if where is None:
        layout = getattr(model, "attention_layout", None)
        found = [name for name in names if layout is None or name in layout.cross]
    else:
        found = [name for name in names if name == where or name.startswith(where + ".")]
    if not found:
        raise ConfigError(unknown("attention module", str(where), names))
    return found


@dataclass(frozen=True)
class Importance:
    """A head, the score without it, and the drop."""

    name: str
    head: int | None
    score: float
    drop: float


def importance(model: nn.Module, score: Callable[[], float], progress: Progress | None = None) -> list[Importance]:
    """Leave each head out in turn: `score()` without it (such as BLEU of a translated set); the largest drop first.

    >>> from regard.look import importance
    >>> translator = regard.load("en-fr/bahdanau")
    >>> score = lambda: -translator.perplexity(["Where is the station?"], ["Où est la gare ?"])
    >>> (only,) = importance(translator.model, score)  # its one attention
    >>> only.name, only.drop > 0
    ('decoder.attention', True)
    """
    whole = score()
    places = [(name, head) for name in attentions(model) for head in all_heads(model, name)]
    found = []
    for name, head in reporting(places, progress, len(places)):
        with change(model, Silence(name, head)):
            without = score()
        found.append(Importance(name, head, without, whole - without))
    return sorted(found, key=lambda head: -head.drop)


def all_heads(model: nn.Module, name: str) -> Sequence[int | None]:
    """The numbers of the heads of an attention module; [None] if it has no heads."""
    count = getattr(model.get_submodule(name.rpartition(".")[0]), "heads", None)
    return range(count) if isinstance(count, int) else [None]


def _heads(weights: Tensor, head: int | None, name: str | None) -> Tensor:
    """True for the chosen head: [1] or [H, 1, 1]."""
    if head is None:
        return torch.ones(1, dtype=torch.bool, device=weights.device)
    count = weights.shape[1] if weights.dim() == 4 else 1
    if not 0 <= head < count:
        raise ConfigError(f"There is no head {head}: {name or 'the attention'} has {numbered('head', count)}.")
    chosen = torch.arange(count, device=weights.device) == head  # [H]
    return chosen[:, None, None] if weights.dim() == 4 else chosen[:1]


def _rows(weights: Tensor, t: int, first: int) -> Tensor:
    """True for row t: [T, 1]."""
    return (torch.arange(weights.shape[-2], device=weights.device) + first == t)[:, None]


def _check_slot(position: int, size: int) -> None:
    if not isinstance(position, Integral) or not 0 <= position < size:
        raise ConfigError(f"There is no source position {position!r}: this sentence has {numbered('position', size)}.")


def _check_row(t: int) -> None:
    if t < 0:
        raise ConfigError(f"Rows count from 0; got {t}.")
