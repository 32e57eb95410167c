"""Scores of language models: negative log-likelihood of a text, and accuracy of last words."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import ShardedPlan
from regard.data.text_corpus import TextRows, TextStreams
from regard.models.contract import LanguageModel
from regard.symbols import PAD
from regard.work import Progress, reporting

BATCH_TOKENS = 8192


def text_loss(
    model: LanguageModel,
    rows: TextRows | TextStreams,
    device: torch.device,
    progress: Progress | None = None,
) -> tuple[float, int]:
    """(sum of -log p, number of tokens) over all rows. Perplexity is exp(sum / tokens).

    Each row is read from a fresh state, or with streams from the state that the row before it ended in.
    """
    total, batches = 0.0, _predictions(model, rows, device)
    for target, _, logits in reporting(batches, progress, rows.tokens, lambda batch: int(batch[1].sum())):
        flat = logits.float().flatten(0, 1)  # [B T, V]
        total += float(F.cross_entropy(flat, target.flatten(), ignore_index=PAD, reduction="sum"))
    return total, rows.tokens


def last_word_accuracy(model: LanguageModel, rows: TextRows, device: torch.device) -> float:
    """The fraction of rows whose last word is the most likely one given the words before it."""
    right = 0
    for target, lengths, logits in _predictions(model, rows, device):
        last = (lengths - 2).clamp(min=0)[:, None]  # [B, 1]
        right += int((logits.argmax(-1).gather(1, last) == target.gather(1, last)).sum())
    return right / max(1, len(rows))


@torch.inference_mode()
def _predictions(
    model: LanguageModel, rows: TextRows | TextStreams, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Target ids [B, T], lengths [B] and logits [B, T, V] of all rows, batch after batch."""
    if isinstance(rows, TextStreams):
        state = model.stream(rows.streams)
        for numbers in rows.plan():
            words, target, lengths, _ = (part.to(device) for part in rows.batch(numbers.tolist()))
            hidden, state = model.read(words, state)
            yield target, lengths, model.output(hidden)
        return
    for numbers in ShardedPlan(rows.lengths, rows.lengths, BATCH_TOKENS, seed=0, epoch=0):
        batch = rows.batch(numbers.tolist())
        target = batch.target.to(device)
        yield target, batch.lengths.to(device), model.forward(target)
