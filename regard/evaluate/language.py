"""Scores of language models: negative log-likelihood of a text, and accuracy of last words."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from regard.data.batching import plan_epoch
from regard.data.text_corpus import TextRows
from regard.models.contract import LanguageModel
from regard.symbols import PAD


@torch.inference_mode()
def text_loss(
    model: LanguageModel,
    rows: TextRows,
    device: torch.device,
    batch_tokens: int = 8192,
    progress: Callable[[int, int | None], None] | None = None,
) -> tuple[float, int]:
    """(sum of -log p, number of tokens) over all rows, each from a fresh state. Perplexity is exp(sum / tokens)."""
    total, done = 0.0, 0
    plan = plan_epoch(rows.lengths, rows.lengths, batch_tokens, seed=0, epoch=0)
    for position in range(len(plan)):
        batch = rows.batch(plan[position].tolist())
        target = batch.target.to(device)  # [B, T]
        logits = model.forward(target).float()  # [B, T, V]
        total += float(F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum"))
        done += int(batch.lengths.sum())
        if progress:
            progress(done, rows.tokens)
    assert done == rows.tokens
    return total, done


def last_word_accuracy(model: LanguageModel, rows: TextRows, device: torch.device) -> float:
    """The fraction of rows whose last word is the most likely one given the words before it."""
    right = 0
    plan = plan_epoch(rows.lengths, rows.lengths, 8192, seed=0, epoch=0)
    with torch.inference_mode():
        for position in range(len(plan)):
            batch = rows.batch(plan[position].tolist())
            target, lengths = batch.target.to(device), batch.lengths.to(device)
            last = (lengths - 2).clamp(min=0)[:, None]  # [B, 1]
            chosen = model.forward(target).argmax(-1).gather(1, last)  # [B, 1]
            right += int((chosen == target.gather(1, last)).sum())
    return right / max(1, len(rows))
