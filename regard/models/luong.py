"""Luong, Pham and Manning, "Effective approaches to attention-based neural machine translation" (EMNLP 2015).

What was new: a simpler path (look *after* the step, with the state that has read the word), a choice of scores, local
attention that looks at a window only, and input feeding, which tells the next step what the last one looked at.

    h_t = LSTM(E y_{t-1} ; h~_{t-1})                       four layers; input feeding adds h~_{t-1}   (section 3.3)
    a_t(s) = align(h_t, h_s)                               dot, general, concat or location           (eq. 7-8)
    c_t = sum_s a_t(s) h_s                                 h_s: the top states of the encoder
    h~_t = tanh(W_c [c_t ; h_t]);  p(y_t) = softmax(W_s h~_t)                                          (eq. 5-6)
    local-m: softmax over |s - t| <= D
    local-p: p_t = S sigmoid(v_p^T tanh(W_p h_t)), softmax over |s - p_t| <= D, times a Gaussian      (eq. 9-10)

The END of the source is neither read nor looked at, as in the released code. Whatever order the encoder reads in, its
states are kept in the order of the source, so that windows and pictures are in that order too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.normalise import GaussianWindow, Window, softmax
from regard.core.scores import Concat, ConcatReleased, General, Location, dot
from regard.kernels.product import Product
from regard.kernels.repeated import Repeated, nothing
from regard.layers.attention import Attention, Looks
from regard.layers.dropout import Dropout
from regard.layers.recurrent import FedSteps, LSTMState, LSTMSteps, StackedLSTM, reverse_words
from regard.models.contract import Looking, check_batch, check_target, shift_right


@dataclass(frozen=True)
class LuongConfig:
    """The best single model of the paper: local-p with the general score and input feeding."""

    source_vocabulary: int = setting(50_000, "words or pieces of the source language")
    target_vocabulary: int = setting(50_000, "words or pieces of the target language")
    width: int = setting(1000, "size of a word vector and of a layer's state (n)")
    layers: int = setting(4, "LSTM layers in the encoder and in the decoder")
    score: str = setting(
        "general", "how states are compared", ("dot", "general", "concat", "concat-released", "location")
    )
    window: str = setting(
        "local-p", "look everywhere, around the step, or around a predicted place", ("global", "local-m", "local-p")
    )
    half_width: int = setting(10, "words to each side in local attention (D); sigma is D / 2")
    longest: int = setting(50, "source words that the location score knows")
    feed: bool = setting(True, "feed h~ back into the next step")
    reverse: bool = setting(True, "read the source words backwards")
    released: bool = setting(
        False, "local attention as in the released code: window around floor(p), local-m stays on the words"
    )
    dropout: float = setting(0.2, "share of each layer's input dropped in training")
    spread: float = setting(0.1, "initial weights are uniform in [-spread, spread]")


SCORES: dict[str, Callable[[LuongConfig], Any]] = {
    "dot": lambda config: dot,
    "general": lambda config: General(config.width, config.width),
    "concat": lambda config: Concat(config.width, config.width, config.width),
    "concat-released": lambda config: ConcatReleased(config.width, config.width),
    "location": lambda config: Location(config.width, config.longest),
}
NORMALISERS: dict[str, Callable[[LuongConfig], Any]] = {
    "global": lambda config: softmax,
    "local-m": lambda config: Window(config.half_width),
    "local-p": lambda config: GaussianWindow(config.half_width, config.released),
}


class LuongState(NamedTuple):
    """What a step carries to the next."""

    memory: Memory
    lstm: LSTMState
    fed: Tensor  # [B, n], h~_{t-1}
    position: Tensor  # [B], the number of the step, from zero
    decoder: "Steps"  # the weights, as steps of one search use them


class Luong(nn.Module):
    """Stacked LSTMs, looking with the state after the step."""

    # Footnote 14 reads a content-based row as the alignment of the word just read: shift 1. Networks learn the one or
    # the other (docs/results.md has both error rates); a row is shown at the word written, and `regard align --choose`
    # finds out which it is.
    looking = Looking(query="current", shift=0, cross=("attention",))

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        n = config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, n)
        self.encoder = StackedLSTM(n, n, config.layers, config.dropout)
        self.embed_target = nn.Embedding(config.target_vocabulary, n)
        self.decoder = StackedLSTM(n, n, config.layers, config.dropout, feed_width=n if config.feed else 0)
        self.attention = Attention(SCORES[config.score](config), NORMALISERS[config.window](config))
        self.centre = CENTRES[config.window](config)
        self.W_c = nn.Linear(2 * n, n, bias=False)
        self.W_s = nn.Linear(n, config.target_vocabulary, bias=False)
        self.dropout = Dropout(config.dropout)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read the words of source [B, S] without END: top states [B, S, n]; summary: all last states."""
        check_batch(source, lengths)
        words = lengths - 1
        turn = (lambda x: reverse_words(x, words)) if self.config.reverse else (lambda x: x)
        states, last = self.encoder.read(turn(self.embed(source)), words)
        mask = padding_mask(words, source.shape[1])  # [B, 1, S]
        summary = torch.stack([last.hidden, last.cell], dim=1)  # [B, 2, L, n]
        return self.attention.remember(turn(states), mask, summary)

    def start(self, memory: Memory) -> LuongState:
        """The decoder begins with the encoder's states of all layers, and h~_0 = 0."""
        assert memory.summary is not None
        hidden, cell = memory.summary.unbind(1)  # [B, L, n]
        position = torch.zeros(len(hidden), dtype=torch.long, device=hidden.device)
        return LuongState(memory, LSTMState(hidden, cell), torch.zeros_like(hidden[:, 0]), position, Steps(self))

    def step(self, token: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        """token [B] -> logits [B, V]."""
        steps, x = state.decoder, self.embed_target(token)  # [B, n]
        top, lstm = steps.lstm(torch.cat([x, state.fed], dim=-1) if self.config.feed else x, state.lstm)  # [B, n]
        both = self.look(top[:, None], state.memory, state.position[:, None])[:, 0]  # [B, 2n]
        seen = torch.tanh(steps.W_c(both))  # [B, n]
        return steps.W_s(self.dropout(seen)), LuongState(state.memory, lstm, seen, state.position + 1, steps)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], each step reading the true word before it."""
        check_target(target, source)
        return self.W_s(self.dropout(self.decode(shift_right(target), self.start(self.encode(source, lengths)))))

    def decode(self, words: Tensor, state: LuongState) -> Tensor:
        """words [B, T], the words read -> h~ [B, T, n]. Without input feeding there is no loop."""
        embedded = self.embed_target(words)  # [B, T, n]
        steps = state.position[:, None] + torch.arange(words.shape[1], device=words.device)  # [B, T]
        if not self.config.feed:
            hidden, _ = self.decoder.run(embedded, state.lstm)  # [B, T, n]
            return torch.tanh(self.W_c(self.look(hidden, state.memory, steps)))
        move, fed, seen = FedSteps(self.decoder, self.decoder.project(embedded), state.lstm), state.fed, []
        look = Looks(self.attention, state.memory, words.shape[1])
        join = Repeated(nothing(embedded, *embedded.shape), self.W_c.weight)
        for step in steps.split(1, dim=1):  # T times [B, 1]
            top = move(fed)  # [B, n]
            context = look(top, self.centre(top[:, None], state.memory, step))  # [B, n]
            fed = torch.tanh(join(torch.cat([context, top], dim=-1)))  # [B, n]
            seen.append(fed)
        return torch.stack(seen, dim=1)

    def look(self, hidden: Tensor, memory: Memory, steps: Tensor) -> Tensor:
        """[c ; h] for hidden [B, T, n] at the given steps [B, T]: [B, T, 2n]."""
        context = self.attention(hidden, memory, self.centre(hidden, memory, steps)).context  # [B, T, n]
        return torch.cat([context, hidden], dim=-1)


class Steps:
    """What the steps of one search share."""

    def __init__(self, model: Luong) -> None:
        self.lstm = LSTMSteps(model.decoder)
        self.W_c, self.W_s = Product(model.W_c.weight), Product(model.W_s.weight)


class Everywhere(nn.Module):
    """Global attention has no centre."""

    def forward(self, hidden: Tensor, memory: Memory, steps: Tensor) -> None:
        return None


class SameStep(nn.Module):
    """local-m: p_t = t. The released code never leaves the last word."""

    def __init__(self, hold: bool) -> None:
        super().__init__()
        self.hold = hold

    def forward(self, hidden: Tensor, memory: Memory, steps: Tensor) -> Tensor:
        return torch.minimum(steps, _words(memory) - 1) if self.hold else steps  # [B, T]


class Predicted(nn.Module):
    """local-p: p_t = S sigmoid(v_p^T tanh(W_p h_t)), a real number in [0, S]; S counts the real words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, hidden: Tensor, memory: Memory, steps: Tensor) -> Tensor:
        share = torch.sigmoid(self.v(torch.tanh(self.W(hidden)))).squeeze(-1)  # [B, T]
        share = share.to(torch.promote_types(share.dtype, torch.float32))  # bfloat16 counts to 256 only
        return share * _words(memory).to(share.dtype)


def _words(memory: Memory) -> Tensor:
    """S, the number of real source words: [B, 1]."""
    assert memory.mask is not None
    return memory.mask.sum(dim=-1)


CENTRES: dict[str, Callable[[LuongConfig], nn.Module]] = {
    "global": lambda config: Everywhere(),
    "local-m": lambda config: SameStep(config.released),
    "local-p": lambda config: Predicted(config.width),
}

PRESETS = {
    "paper": LuongConfig(),
    "small": LuongConfig(width=512, layers=2, window="global", dropout=0.3),
    "tiny": LuongConfig(width=128, layers=1, window="global", dropout=0.0),
}
VARIANTS = {
    f"{window}-{score}": replace(PRESETS["tiny"], window=window, score=score, half_width=2, longest=8)
    for window in NORMALISERS
    for score in SCORES
} | {
    "no-feed": replace(PRESETS["tiny"], feed=False),
    "local-p-no-feed": replace(PRESETS["tiny"], feed=False, window="local-p", half_width=2),
    "forward": replace(PRESETS["tiny"], reverse=False, layers=2),
    "local-m-released": replace(PRESETS["tiny"], window="local-m", half_width=2, released=True),
    "local-p-released": replace(PRESETS["tiny"], window="local-p", half_width=2, released=True),
}

# SGD from 1.0, halved every epoch after the eighth of twelve (the models with dropout), clipped at 5 by the sentence.
RECIPES: dict[str, dict[str, object]] = {
    "paper": {
        "optimiser": "sgd",
        "rate": 1.0,
        "schedule": "halving",
        "halve_after": 8.0,
        "epochs": 12,
        "clip": 5.0,
        "normalise": "sentences",
    },
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}
