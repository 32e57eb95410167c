"""How well a language model foretells a text: the negative log-likelihood of every word and every end of line."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from regard.data.batching import plan_epoch
from regard.data.lines import Rows
from regard.models.contract import LanguageModel
from regard.symbols import PAD


@torch.inference_mode()
def text_loss(
    model: LanguageModel,
    rows: Rows,
    device: torch.device,
    batch_tokens: int = 8192,
    progress: Callable[[int, int | None], None] | None = None,
) -> tuple[float, int]:
    """(sum of -log p, tokens) over all rows; every row is read from the start. exp(sum / tokens) is the perplexity."""
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


def last_word_accuracy(model: LanguageModel, rows: Rows, device: torch.device) -> float:
    """The share of rows whose last word before the end is the likeliest one given the words before it."""
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


def likelihoods(model: LanguageModel, row: list[int], device: torch.device) -> np.ndarray:
    """log p of each token of one row given those before it: [T]."""
    target = torch.tensor([row], device=device)
    with torch.inference_mode():
        logprobs = model.forward(target).float().log_softmax(-1)  # [1, T, V]
    return logprobs[0].gather(1, target[0, :, None])[:, 0].cpu().numpy()
