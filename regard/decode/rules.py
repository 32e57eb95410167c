"""Which tokens may come next: banned symbols, minimum length, no repeated n-grams, forced prefixes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.settings import DecodeConfig
from regard.errors import DataError
from regard.symbols import END, PAD, START, UNKNOWN

NEVER = -torch.inf
MANY_ROWS = 64  # from which on a GPU finds the best tokens fastest by blocks


def apply_rules(
    logprobs: Tensor, config: DecodeConfig, length: Tensor, written: Tensor | None, prefix: Tensor | None
) -> None:
    """Give -inf, in place, to each token in `logprobs` [N, V] that may not come next; the rest is unchanged.

    `length` [N] tokens are written so far: the first of each row of `written` [N, T], which repeats need. Where
    `prefix` [N, P] holds a token at that place, it is forced and overrides every ban.
    """
    kept = None
    if prefix is not None:
        forced = prefix.gather(1, length.clamp(max=prefix.shape[1] - 1)[:, None])  # [N, 1]; PAD where it is over
        kept = logprobs.gather(1, forced)  # [N, 1]
    for token in banned(config):
        logprobs[:, token].fill_(NEVER)
    if config.min_length:
        logprobs[:, END].masked_fill_(length < config.min_length, NEVER)
    if written is not None and written.shape[1] >= config.no_repeat_ngram > 0:
        logprobs.scatter_(1, repeats(written, length, config.no_repeat_ngram), NEVER)
    if kept is not None:
        free = forced == PAD  # [N, 1]
        logprobs.masked_fill_(~free, NEVER).scatter_(1, forced, kept.masked_fill(free, NEVER))


def banned(config: DecodeConfig) -> tuple[int, ...]:
    """The tokens that a translation never has."""
    return PAD, START, *([UNKNOWN] if config.ban_unknown else [])


def best(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`values.topk(k)` of [N, V], in less time: only the k blocks with the highest peaks are searched."""
    (N, V), device = values.shape, values.device
    block = 64 if values.is_cpu else 256  # a GPU finds the peak of a long row at less cost for each number
    if V // block < 32 or k >= 16 or not (values.is_cpu or N >= MANY_ROWS):
        return values.topk(k)
    blocks = values[:, : V // block * block].view(N, -1, block)  # [N, G, block]
    rest = values[:, V // block * block :]  # [N, fewer than block]
    chosen = blocks.amax(-1).topk(k).indices  # [N, k]
    near = blocks.gather(1, chosen[..., None].expand(-1, -1, block)).flatten(1)  # [N, k * block]
    ids = (chosen[..., None] * block + torch.arange(block, device=device)).flatten(1)  # [N, k * block]
    tail = torch.arange(V - rest.shape[1], V, device=device).expand(N, -1)  # [N, fewer than block]
    top, place = torch.cat([near, rest], 1).topk(k)  # [N, k]
    return top, torch.cat([ids, tail], 1).gather(1, place)


def repeats(written: Tensor, length: Tensor, size: int) -> Tensor:
    """The tokens that would repeat a run of `size` tokens, PAD elsewhere. [N, T] -> [N, T - size + 1]"""
    runs = written.unfold(1, size, 1)  # [N, W, size]
    last = torch.arange(1 - size, 0, device=written.device) + length[:, None]  # [N, size - 1]
    same = (runs[..., :-1] == written.gather(1, last.clamp_(min=0))[:, None]).all(-1)  # [N, W]
    past = torch.arange(size, written.shape[1] + 1, device=written.device) <= length[:, None]  # [N, W]
    return torch.where(same & past, runs[..., -1], PAD)


def padded(prefixes: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Forced prefixes as rows [B, P + 1], PAD behind each."""
    for prefix in prefixes:
        wrong = [token for token in prefix if token < 0 or token in (PAD, START, END)]
        if wrong:
            raise DataError(f"A forced prefix holds words only; got the symbol {wrong[0]} in {list(prefix)}.")
    longest = max(map(len, prefixes), default=0)
    rows = [[*prefix, *[PAD] * (longest + 1 - len(prefix))] for prefix in prefixes]
    table = torch.tensor(rows, dtype=torch.long).view(len(prefixes), longest + 1)
    return table.to(device, non_blocking=True)
