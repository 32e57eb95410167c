"""One path for each row, with no beams: greedy search and sampling differ only in how a token is chosen."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decode.hypothesis import Ended, Found, Hypothesis
from regard.decode.rules import NEVER, Rules
from regard.decode.settings import DecodeConfig
from regard.models.contract import SequenceModel, State, take
from regard.symbols import END, START

Choose = Callable[[Tensor, int, Tensor], Tensor]  # log-probabilities [N, V], step from 0, rows [N] -> tokens [N]


def likeliest(logprobs: Tensor, step: int, rows: Tensor) -> Tensor:
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
    longest = int(limits.max()) if len(limits) else 0
    tokens = torch.zeros(len(limits), longest, dtype=torch.long, device=limits.device)  # [B, T]
    values = torch.zeros(len(limits), longest, device=limits.device)  # [B, T] their log-probabilities
    rows = torch.arange(len(limits), device=limits.device)  # [A] those still open
    token = torch.full_like(limits, START)  # [A]
    total = torch.zeros(len(limits), device=limits.device)  # [B]

    def collect(which: Tensor, ended: Ended, words: int, length: int) -> None:
        found.add(which, tokens[which, :words], values[which, :length], total[which], ended)

    for step in range(longest):
        if stop is not None and stop():
            collect(rows, "stopped", step, step)
            break
        logits, state = model.step(token, state)
        logprobs = logits.float().log_softmax(-1)  # [A, V]
        broken = logprobs[:, END].isnan()  # [A]; one NaN, +inf or nothing but -inf turns the whole row into NaN
        rules.apply(logprobs, tokens[rows, :step], rows)
        token = choose(logprobs, step, rows)  # [A]
        value = logprobs.gather(1, token[:, None]).squeeze(1)  # [A]
        broken |= value == NEVER
        tokens[rows, step], values[rows, step] = token, value
        total[rows] += value.masked_fill(broken, 0.0)
        ended, cut = token == END, limits[rows] <= step + 1  # [A]
        done = ended | cut | broken  # [A]
        if done.any():
            collect(rows[broken], "not finite", step, step)
            collect(rows[ended & ~broken], "end", step, step + 1)
            collect(rows[cut & ~ended & ~broken], "length", step + 1, step + 1)
            keep = (~done).nonzero().squeeze(1)  # [A]
            if not len(keep):
                break
            rows, token, state = rows[keep], token[keep], take(state, keep)
    return [hypotheses[0] for hypotheses in found.ranked(1)]
