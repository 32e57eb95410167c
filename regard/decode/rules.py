"""Which tokens may come next: banned symbols, minimum length, no repeated n-grams, forced prefixes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decode.settings import DecodeConfig
from regard.errors import DataError
from regard.symbols import END, PAD, START, UNKNOWN

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
NEVER = -torch.inf


class Rules:
    """Gives -inf to every token that may not come next. The others keep the model's log-probability as it is."""

    def __init__(self, config: DecodeConfig, prefixes: Sequence[Sequence[int]] | None, device: torch.device) -> None:
        self._min_length = config.min_length
        self._ngram = config.no_repeat_ngram
        banned = [PAD, START, *([UNKNOWN] if config.ban_unknown else [])]
        self._banned, self._banned_early = (torch.tensor(ids, device=device) for ids in (banned, [*banned, END]))
        self._prefixes = _padded(prefixes or [])  # [B, P]
        self._largest = int(self._prefixes.max(initial=0))

    def apply(self, logprobs: Tensor, written: Ints, sentences: Ints) -> None:
        """Change `logprobs` [N, V] in place, for rows that so far wrote `written` [N, t].

        `sentences` [A] are the sentences of the rows: row n belongs to sentences[n // (N / A)].
        """
        if written.shape[1] < self._prefixes.shape[1]:
            self._force(logprobs, written, sentences)
        else:
            self._ban(logprobs, written)

    def _ban(self, logprobs: Tensor, written: Ints) -> None:
        length = written.shape[1]
        logprobs.index_fill_(1, self._banned_early if length < self._min_length else self._banned, NEVER)
        if self._ngram and length >= self._ngram:
            logprobs.scatter_(1, torch.from_numpy(repeats(written, self._ngram)).to(logprobs.device), NEVER)

    def _force(self, logprobs: Tensor, written: Ints, sentences: Ints) -> None:
        """A forced token stands against every ban; a sentence whose prefix is over goes on by the rules."""
        if self._largest >= logprobs.shape[1]:
            raise DataError(
                f"A forced prefix holds token {self._largest}, but the vocabulary has {logprobs.shape[1]} tokens; "
                f"encode the prefix with the model's own target vocabulary."
            )
        forced = self._prefixes[sentences, written.shape[1]].repeat(len(written) // len(sentences))  # [N]
        token = torch.from_numpy(forced).to(logprobs.device)[:, None]  # [N, 1]
        kept = logprobs.gather(1, token)  # [N, 1]
        self._ban(logprobs, written)
        bound = token != PAD  # [N, 1]
        logprobs.masked_fill_(bound, NEVER)
        logprobs.scatter_(1, token, kept.masked_fill(~bound, NEVER))


def repeats(written: Ints, size: int) -> Ints:
    """The tokens that would complete a run of `size` tokens once more, PAD elsewhere. [N, t] -> [N, t - size + 1]"""
    runs = np.lib.stride_tricks.sliding_window_view(written, size, axis=1)  # [N, W, size]
    last = written[:, None, written.shape[1] - size + 1 :]  # [N, 1, size - 1]
    return np.where((runs[..., :-1] == last).all(-1), runs[..., -1], PAD)


def _padded(prefixes: Sequence[Sequence[int]]) -> Ints:
    for prefix in prefixes:
        wrong = [token for token in prefix if token < 0 or token in (PAD, START, END)]
        if wrong:
            raise DataError(f"A forced prefix holds words only; got the symbol {wrong[0]} in {list(prefix)}.")
    rows = np.full((len(prefixes), max(map(len, prefixes), default=0)), PAD)  # [B, P]
    for row, prefix in zip(rows, prefixes, strict=True):
        row[: len(prefix)] = prefix
    return rows
