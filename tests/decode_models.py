"""Tiny models that meet the contract, for tests of search: a recurrent one, one that never ends, one that breaks."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.models.contract import shift_right
from regard.symbols import END


class TinyState(NamedTuple):
    memory: Memory
    hidden: Tensor  # [N, D]


class Tiny(nn.Module):
    """h = tanh(U h + E y + mean of the source); logits = W h. The future hangs on every token written."""

    def __init__(self, vocabulary: int = 11, width: int = 7, seed: int = 0, end: float = 0.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.vocabulary = vocabulary
        self.read = torch.randn(vocabulary, width, generator=generator)
        self.embed = torch.randn(vocabulary, width, generator=generator)
        self.turn = torch.randn(width, width, generator=generator)
        self.write = torch.randn(width, vocabulary, generator=generator)
        self.bias = torch.zeros(vocabulary)
        self.bias[END] = end

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        slots = self.read[source]  # [B, S, D]
        mask = padding_mask(lengths, source.shape[1])  # [B, 1, S]
        summary = (slots * mask.transpose(1, 2)).sum(1) / lengths[:, None]  # [B, D]
        return Memory(slots, slots, mask, summary)

    def start(self, memory: Memory) -> TinyState:
        return TinyState(memory, torch.zeros_like(memory.summary))

    def step(self, token: Tensor, state: TinyState) -> tuple[Tensor, TinyState]:
        # Products of one row at a time: a row's numbers are the same, to the last bit, in any batch.
        hidden = (state.hidden[:, :, None] * self.turn).sum(1) + self.embed[token] + state.memory.summary
        hidden = hidden.tanh()
        logits = (hidden[:, :, None] * self.write).sum(1) + self.bias
        return logits, TinyState(state.memory, hidden)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        state, logits = self.start(self.encode(source, lengths)), []
        for token in shift_right(target).unbind(1):
            each, state = self.step(token, state)
            logits.append(each)
        return torch.stack(logits, 1)


class Endless(Tiny):
    """Never writes END."""

    def step(self, token: Tensor, state: TinyState) -> tuple[Tensor, TinyState]:
        logits, state = super().step(token, state)
        return logits.index_fill(1, torch.tensor([END]), -torch.inf), state


class Breaking(Tiny):
    """After `fuse` tokens of a sentence whose first source word is even, every logit is `value`."""

    def __init__(self, value: float, fuse: int = 2, only: int | None = None, **settings: float) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.value, self.fuse, self.only = value, fuse, only

    def start(self, memory: Memory) -> TinyState:
        count = torch.zeros(len(memory.keys), 1)  # [B, 1]; the first source word is even where keys say so
        even = (memory.keys[:, 0, :1] == self.read[::2, 0]).any(1, keepdim=True)  # [B, 1]
        return TinyState(memory, torch.cat([super().start(memory).hidden, count, even], 1))

    def step(self, token: Tensor, state: TinyState) -> tuple[Tensor, TinyState]:
        hidden, count, even = state.hidden[:, :-2], state.hidden[:, -2:-1], state.hidden[:, -1:]
        logits, after = super().step(token, TinyState(state.memory, hidden))
        broken = (count >= self.fuse) & (even > 0)  # [N, 1]
        if self.only is not None:  # break one entry of the row, and only after this token
            place = torch.zeros_like(logits, dtype=torch.bool)
            place[:, -1] = True
            broken = broken & (token == self.only)[:, None] & place
        logits = logits.masked_fill(broken, self.value)
        return logits, TinyState(state.memory, torch.cat([after.hidden, count + 1, even], 1))


class Table(nn.Module):
    """A Markov chain: the next token hangs on the last one alone, by the probabilities given; others never come."""

    def __init__(self, vocabulary: int, chances: dict[int, dict[int, float]]) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.table = torch.full((vocabulary, vocabulary), -torch.inf)
        self.table[:, END] = 0.0  # where nothing is said, the sentence ends
        for last, following in chances.items():
            self.table[last, END] = -torch.inf
            for token, chance in following.items():
                self.table[last, token] = torch.tensor(chance).log()

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        slots = source[..., None].float()  # [B, S, 1]
        return Memory(slots, slots, padding_mask(lengths, source.shape[1]))

    def start(self, memory: Memory) -> TinyState:
        return TinyState(memory, memory.keys[:, 0])

    def step(self, token: Tensor, state: TinyState) -> tuple[Tensor, TinyState]:
        return self.table[token], state

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        return self.table[shift_right(target)]


def batch(sentences: list[list[int]], extra: int = 0) -> tuple[Tensor, Tensor]:
    """Ids into source [B, S] and lengths [B]; `extra` columns of padding more than needed."""
    rows = [[*ids, END] for ids in sentences]
    width = max(map(len, rows)) + extra
    source = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return source, torch.tensor([len(row) for row in rows])


def sentences(count: int, vocabulary: int = 11, seed: int = 0, longest: int = 9) -> list[list[int]]:
    """Random sentences of 1 to `longest` words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(4, vocabulary, (n,), generator=generator).tolist() for n in lengths]


def teacher_forced(model: Tiny | Table, sentence: list[int], tokens: list[int]) -> list[float]:
    """log P of each of `tokens` (END written out) given those before it."""
    logprobs = model(*batch([sentence]), torch.tensor([tokens])).log_softmax(-1)[0]  # [T, V]
    return [logprobs[t, token].item() for t, token in enumerate(tokens)]
