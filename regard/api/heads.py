"""The aligning head of a translator: which attention weights link words, these weights, and the links.

`regard align` (api/aligning.py) uses it for whole corpora, `Translator` for terms, placeholders and unknown words.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core.scores import uniform
from regard.data.batching import ShardedPlan, pad
from regard.decode.hypothesis import Weigh
from regard.errors import RunError
from regard.files.segment import Link
from regard.look.record import attentions, record
from regard.look.table import Label, Table, arrange, choose
from regard.look.tokens import Side
from regard.look.trace import Trace
from regard.models.contract import attentions_to_source, guided_head, guided_module
from regard.runs.settings import TrainConfig
from regard.sealed import read_small, write_atomically
from regard.symbols import END
from regard.text.sentences import Span, split_words

FILE = "alignment.json"  # in the run folder: the head that was chosen
Pair = tuple[list[int], list[int]]  # source and target ids, END last in both
_READ_TOKENS = 4096  # tokens of one side of a batch, with padding


@dataclass(frozen=True)
class Heads:
    """Which weights give the alignment: a layer of cross-attention, and one of its heads, or their mean (None).

    Without a layer, this is the last layer but one. `shift` 1 takes row t + 1 for word t; None is the model's own.
    """

    layer: int | None = None
    head: int | None = None
    shift: int | None = None

    def override(self, named: "Heads") -> "Heads":
        """The choice of a run, replaced by what a user `named`. A shift belongs to its head: any other head has the
        model's own shift unless one is named."""
        if named.layer is None and named.head is None:
            return self if named.shift is None else replace(self, shift=named.shift)
        other = replace(named, layer=self.layer if named.layer is None else named.layer)
        same = (other.layer, other.head) == (self.layer, self.head)
        return replace(other, shift=self.shift) if same and other.shift is None else other

    def table(self, trace: Trace, **options: Any) -> Table:
        """The weights of these heads as a table of words."""
        head = "mean" if self.head is None else self.head
        return arrange(trace, layer=self.layer, head=head, shift=self.shift, **options)

    def describe(self, model: nn.Module) -> str:
        """The choice in words, for a model."""
        alone = self.layer is None and len(attentions_to_source(model)) == 1
        layer = "the last layer but one" if self.layer is None else f"layer {self.layer}"
        head = "mean of its heads" if self.head is None else f"head {self.head}"
        weights = "the one attention over the source" if alone and self.head is None else f"{layer}, {head}"
        return weights + ("" if self.shift is None else f", shift {self.shift}")


CHOICE = Heads()  # nothing named: the choice of the run


def is_fixed(model: Any) -> bool:
    """Whether a model has no attention over the source, but one vector for all steps."""
    modules = attentions(model)
    return all(modules[name].score is uniform for name in attentions_to_source(model))


def keep_choice(run: Path, heads: Heads) -> None:
    """Store a choice in the run folder, where `find_choice` finds it."""
    write_atomically(run / FILE, (json.dumps(asdict(heads)) + "\n").encode())


def find_choice(run: Path, model: nn.Module, train: TrainConfig) -> Heads:
    """The choice stored in a run, the head that was guided in training, or the default."""
    path = run / FILE
    if not path.exists():
        return guided_heads(model, train)
    try:
        heads = Heads(**json.loads(read_small(path)))
        if not _fits(heads, model):
            raise ValueError
    except (OSError, ValueError, TypeError, RecursionError):
        raise RunError(
            f"{path} is damaged, or from another model; delete it, or choose again with `regard align --gold`."
        ) from None
    return heads


def _fits(heads: Heads, model: nn.Module) -> bool:
    """Whether a model has these heads. Models of other packages need not name their number."""
    layers, per_layer = len(attentions_to_source(model)), getattr(getattr(model, "config", None), "heads", 1 << 16)
    sizes = (heads.layer, layers), (heads.head, per_layer), (heads.shift, 2)
    return all(number is None or (type(number) is int and 0 <= number < size) for number, size in sizes)


def guided_heads(model: nn.Module, train: TrainConfig) -> Heads:
    """The head that was guided in training."""
    if not train.guided:
        return Heads()
    layer = attentions_to_source(model).index(guided_module(model, train.guided_layer))
    return Heads(layer, None if train.guided_head < 0 else train.guided_head, train.guided_shift)


# --- weights of given pairs


def read_together(pairs: Sequence[Pair], device: torch.device) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Batches of pairs of similar length: their indices, sources [B, S] with lengths [B], and targets [B, T]."""
    if not pairs:
        return
    read, wrote = (np.array([len(pair[side]) for pair in pairs], dtype=np.int64) for side in (0, 1))
    for places in (batch.tolist() for batch in ShardedPlan(read, wrote, _READ_TOKENS, seed=0, epoch=0)):
        source, lengths = pad([pairs[place][0] for place in places])
        target, _ = pad([pairs[place][1] for place in places])
        yield places, source.to(device), lengths.to(device), target.to(device)


def weigh_ids(
    model: Any, heads: Heads, sources: Sequence[list[int]], targets: Sequence[list[int]], device: torch.device
) -> list[NDArray[np.float32]]:
    """The weights [T, S] with which each word of a translation attended to its source, by `heads`, END included in
    both; zeros where the model has one vector for the whole source."""
    name = guided_module(model, -2 if heads.layer is None else heads.layer)
    shift = model.attention_layout.shift if heads.shift is None else heads.shift
    found: dict[int, NDArray[np.float32]] = {}
    pairs = [([*source, END], [*target, END]) for source, target in zip(sources, targets, strict=True)]
    for places, read, lengths, written in read_together(pairs, device):
        with torch.inference_mode(), record(model, [name]) as seen:
            model(read, lengths, written)
        weights = guided_head(seen[name].weights, -1 if heads.head is None else heads.head)  # [B, T, S]
        for row, place in zip(weights.float().cpu().numpy(), places, strict=True):
            T, S = len(pairs[place][1]), len(pairs[place][0])
            shifted = np.concatenate([row[shift:T, :S], row[T - shift : T, :S]])
            found[place] = shifted if shifted.shape == (T, S) else np.zeros((T, S), np.float32)
    return [found[place] for place in range(len(pairs))]


def weigher(model: Any, source: Tensor, lengths: Tensor) -> Weigh:
    """For the coverage penalty: the mean weights [N, T, S] with which rows of a batch attended to their source, and
    which of its positions the model can attend to [N, S]."""

    def weigh(rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        with record(model) as seen:
            model(source[rows], lengths[rows], target)
        calls = [seen[name] for name in attentions_to_source(model)]
        weights = [call.weights.mean(1) if call.weights.dim() == 4 else call.weights for call in calls]
        visible = [(call.scores > -torch.inf).flatten(1, -2).any(1) for call in calls]  # [N, S]
        return torch.stack(weights).mean(0), torch.stack(visible).any(0)

    return weigh


# --- links


def mark_aligning(trace: Trace, heads: Heads) -> Trace:
    """The trace with the choice of its run marked: these weights are drawn by default, with their shift."""
    if heads == Heads() or not _attends(trace):
        return trace
    seen = choose(trace, heads.layer)
    if heads.head is None:
        seen = replace(seen, aligning="mean", shift=seen.shift if heads.shift is None else heads.shift)
    else:
        seen = replace(seen, aligning=heads.head, shifted_heads=(heads.head,) if heads.shift else ())
    return replace(trace, attention={**trace.attention, seen.name: seen})


def _attends(trace: Trace) -> bool:
    return any(seen.kind == "cross" for seen in trace.attention.values())


def link_words(trace: Trace, heads: Heads) -> tuple[Link, ...]:
    """The source word with the largest weight for each target word; nothing for a model without cross-attention."""
    if not _attends(trace):
        return ()
    table = heads.table(trace)
    if not table.columns:
        return ()
    best = np.argmax(table.weights, axis=1)  # [rows]
    return tuple(
        Link(_span(trace.source, table.columns[column]), _span(trace.target, row), round(float(weights[column]), 4))
        for row, weights, column in zip(table.rows, table.weights, best, strict=True)
    )


def word_weights(trace: Trace, heads: Heads) -> NDArray[np.float32]:
    """[target words, source words]: pieces merged, special tokens left out, words split at white space."""
    table = heads.table(trace, punctuation=False)
    sizes = len(trace.target.text.split()), len(trace.source.text.split())
    sides = (trace.target, table.rows, sizes[0]), (trace.source, table.columns, sizes[1])
    rows, columns = (  # the word of each label; -1 where it belongs to none
        np.array([-1 if word is None or word >= size else word for word in words], dtype=np.int64)
        for words, size in (([side.tokens[cell.tokens[0]].word for cell in cells], size) for side, cells, size in sides)
    )
    weights = np.zeros(sizes, dtype=np.float32)
    np.add.at(weights, np.ix_(rows[rows >= 0], columns[columns >= 0]), table.weights[np.ix_(rows >= 0, columns >= 0)])
    return weights


def diagonal(source: str, target: str) -> tuple[Link, ...]:
    """Word j of T is linked with word j * S / T."""
    read, wrote = (split_words(text, (0, len(text))) for text in (source, target))
    return tuple(Link(read[at * len(read) // len(wrote)], span) for at, span in enumerate(wrote)) if read else ()


def _span(side: Side, label: Label) -> Span:
    return side.tokens[label.tokens[0]].start, side.tokens[label.tokens[-1]].end
