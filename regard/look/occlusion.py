"""Attributions by occlusion: what the model loses without a source word."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.batching import pad
from regard.look.case import Attributed, Case, rows_at_once
from regard.look.change import Change, change
from regard.look.record import attentions, side_of
from regard.symbols import UNKNOWN


def occlude_masked(case: Case) -> Attributed:
    """Occlusion: the log-probability that is lost when a source word is masked in every attention over the source, in
    the decoder and in the encoder (erasure, Li et al. 2016). A recurrent encoder has still read the word."""
    return _occlude(case, erase_masked, case.words or [[at] for at in range(len(case.source))])


def occlude_unknown(case: Case) -> Attributed:
    """Occlusion: the log-probability that is lost when a source word is replaced by the unknown word."""
    return _occlude(case, erase_unknown, _without_end(case))


def occlude_removed(case: Case) -> Attributed:
    """Occlusion: the log-probability that is lost when a source word is removed from the sentence (leave one out)."""
    return _occlude(case, erase_removed, _without_end(case))


def erase_masked(case: Case, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T] of the target words, for each group of source positions that is masked in every attention."""
    modules, cross = attentions(case.model), case.model.attention_layout.cross
    names = [name for name in modules if name in cross or side_of(name) == "encoder"]
    hidden = torch.zeros(len(groups), len(case.source), dtype=torch.bool, device=case.source.device)
    for row, group in enumerate(groups):
        hidden[row, list(group)] = True
    with change(case.model, *(Hide(hidden, name) for name in names)):
        return _values(case, [case.source.tolist()] * len(groups))


def erase_unknown(case: Case, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T] of the target words, for each group of source positions that become the unknown word."""
    ids = case.source.tolist()
    return _values(case, [[UNKNOWN if at in group else ids[at] for at in range(len(ids))] for group in groups])


def erase_removed(case: Case, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T] of the target words, for each group of source positions that are left out."""
    ids = case.source.tolist()
    return _values(case, [[ids[at] for at in range(len(ids)) if at not in group] for group in groups])


@dataclass(frozen=True, eq=False)
class Hide(Change):
    """Some source positions are masked, other ones in every row of the batch: `hidden` [B, S]."""

    hidden: Tensor
    name: str

    def score(self, scores: Tensor) -> Tensor:
        hidden = self.hidden[:, : scores.shape[-1]]  # a tape that is being written is shorter
        return scores.masked_fill(hidden.view(len(hidden), *[1] * (scores.dim() - 2), -1), float("-inf"))


def _without_end(case: Case) -> list[Sequence[int]]:
    """The words of the source. Its END is neither replaced nor removed: a model reads no sentence without it."""
    last = len(case.source) - 1
    words = case.words or [[at] for at in range(last)]
    return [word for word in words if last not in word]


Erase = Callable[[Case, Sequence[Sequence[int]]], Tensor]


def erase(case: Case, act: Erase, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T - first] of the target words without each group of source positions, in batches."""
    at_once = rows_at_once(case.source, len(case.target) + len(case.source))
    return torch.cat([act(case, groups[start : start + at_once]) for start in range(0, len(groups), at_once)])


def _occlude(case: Case, act: Erase, words: Sequence[Sequence[int]]) -> Attributed:
    """What each word is worth: the value that is lost without it; its positions share it equally."""
    whole, *left = erase(case, act, [[], *words])  # [T]
    found = whole.new_zeros(len(case.target), len(case.source))
    for group, value in zip(words, left, strict=True):
        found[:, list(group)] = (whole - value)[:, None] / len(group)
    return Attributed(found)


def _values(case: Case, sources: list[list[int]]) -> Tensor:
    """The value [B, T - first] of the target words after each of these sources."""
    source, lengths = (part.to(case.source.device) for part in pad(sources))
    target = case.target.expand(len(sources), -1)
    hidden = case.model.hidden(source, lengths, target)  # [B, T, D]
    return case.value(case.model.output(hidden[:, case.first :]), target[:, case.first :])


ERASERS: dict[str, Erase] = {"masked": erase_masked, "unknown": erase_unknown, "removed": erase_removed}
