"""One path for each row, with no beams: greedy search and sampling differ only in how a token is chosen."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decode.hypothesis import Ended, Found, Hypothesis
from regard.decode.rules import Ints, Rules
from regard.decode.settings import DecodeConfig
from regard.models.contract import SequenceModel, State, take
from regard.symbols import END, START

Choose = Callable[[Tensor, int, Ints], Tensor]  # log-probabilities [N, V], step from 0, rows [N] -> tokens [N]


def likeliest(logprobs: Tensor, step: int, rows: Ints) -> Tensor:
    """Greedy: the token of the highest probability, the first of equal ones. [N, V] -> [N]"""
    return logprobs.max(dim=1).indices


@torch.inference_mode()
def follow(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    choose: Choose = likeliest,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[Hypothesis]:
    """Write one token after another for each row of `state`, until END or the row's longest length `limits` [B]."""
    rules = Rules(config, prefixes, limits.device)
    found = Found(len(limits), config.length_penalty)
    longest = limits.cpu().numpy()  # [B]
    tokens = np.zeros((len(longest), longest.max(initial=0)), dtype=np.int64)  # [B, T]
    values = np.zeros(tokens.shape)  # [B, T] their log-probabilities
    total = np.zeros(len(longest))  # [B]
    rows = np.arange(len(longest))  # [A] those still open
    token = torch.full_like(limits, START)  # [A]

    def collect(which: Ints, ended: Ended, words: int, length: int) -> None:
        if len(which):
            found.add(which, tokens[which, :words], values[which, :length], total[which], ended)

    for step in range(tokens.shape[1]):
        if stop is not None and stop():
            collect(rows, "stopped", step, step)
            break
        logits, state = model.step(token, state)
        logprobs = logits.float().log_softmax(-1)  # [A, V]; one number that is not finite makes the whole row NaN
        rules.apply(logprobs, tokens[rows, :step], rows)
        token = choose(logprobs, step, rows)  # [A]
        value = logprobs.gather(1, token[:, None]).squeeze(1).cpu().numpy()  # [A]
        word = token.cpu().numpy()  # [A]
        broken = ~np.isfinite(value)  # [A]
        tokens[rows, step], values[rows, step] = word, value
        total[rows] += np.where(broken, 0.0, value)
        ended, cut = word == END, longest[rows] <= step + 1  # [A]
        done = ended | cut | broken  # [A]
        if done.any():
            collect(rows[broken], "not finite", step, step)
            collect(rows[ended & ~broken], "end", step, step + 1)
            collect(rows[cut & ~ended & ~broken], "length", step + 1, step + 1)
            if done.all():
                break
            keep = torch.from_numpy((~done).nonzero()[0]).to(limits.device)  # [A]
            rows, token, state = rows[~done], token[keep], take(state, keep)
    return [hypotheses[0] for hypotheses in found.ranked(1)]
