"""Which tokens may come next: banned symbols, minimum length, no repeated n-grams, forced prefixes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.settings import DecodeConfig
from regard.errors import DataError
from regard.symbols import END, PAD, START, UNKNOWN

NEVER = -torch.inf


class Rules:
    """Gives -inf to every token that may not come next. The others keep the model's log-probability as it is."""

    def __init__(self, config: DecodeConfig, prefixes: Sequence[Sequence[int]] | None, device: torch.device) -> None:
        self._min_length = config.min_length
        self._ngram = config.no_repeat_ngram
        self._banned = torch.tensor([PAD, START, *([UNKNOWN] if config.ban_unknown else [])], device=device)
        self._prefixes = _padded(prefixes or [], device)  # [B, P]
        self._largest = max((token for prefix in prefixes or [] for token in prefix), default=0)

    def apply(self, logprobs: Tensor, tokens: Tensor, sentences: Tensor) -> None:
        """Change `logprobs` [N, V] in place, for rows that so far wrote `tokens` [N, t].

        `sentences` [A] are the sentences of the rows: row n belongs to sentences[n // (N / A)].
        """
        length = tokens.shape[1]
        if length < self._prefixes.shape[1]:
            self._force(logprobs, tokens, sentences)
            return
        self._ban(logprobs, tokens)

    def _ban(self, logprobs: Tensor, tokens: Tensor) -> None:
        logprobs.index_fill_(1, self._banned, NEVER)
        if tokens.shape[1] < self._min_length:
            logprobs[:, END] = NEVER
        if self._ngram and tokens.shape[1] >= self._ngram:
            logprobs.scatter_(1, repeats(tokens, self._ngram), NEVER)

    def _force(self, logprobs: Tensor, tokens: Tensor, sentences: Tensor) -> None:
        """A forced token stands against every ban; a sentence whose prefix is over goes on by the rules."""
        if self._largest >= logprobs.shape[1]:
            raise DataError(
                f"A forced prefix holds token {self._largest}, but the vocabulary has {logprobs.shape[1]} tokens; "
                f"encode the prefix with the model's own target vocabulary."
            )
        beams = len(logprobs) // len(sentences)
        forced = self._prefixes[sentences, tokens.shape[1]].repeat_interleave(beams)[:, None]  # [N, 1]
        kept = logprobs.gather(1, forced)  # [N, 1]
        self._ban(logprobs, tokens)
        bound = forced != PAD  # [N, 1]
        logprobs.masked_fill_(bound, NEVER)
        logprobs.scatter_(1, forced, kept.masked_fill(~bound, NEVER))


def repeats(tokens: Tensor, size: int) -> Tensor:
    """The tokens that would complete a run of `size` tokens once more, PAD elsewhere. [N, t] -> [N, t - size + 1]"""
    runs = tokens.unfold(1, size, 1)  # [N, W, size]
    last = tokens[:, None, tokens.shape[1] - size + 1 :]  # [N, 1, size - 1]
    return runs[..., -1].masked_fill((runs[..., :-1] != last).any(-1), PAD)


def _padded(prefixes: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    for prefix in prefixes:
        wrong = [token for token in prefix if token < 0 or token in (PAD, START, END)]
        if wrong:
            raise DataError(f"A forced prefix holds words only; got the symbol {wrong[0]} in {list(prefix)}.")
    width = max(map(len, prefixes), default=0)
    rows = [[*prefix, *[PAD] * (width - len(prefix))] for prefix in prefixes]
    return torch.tensor(rows, dtype=torch.long, device=device).view(len(rows), width)
