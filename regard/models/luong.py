"""Luong, Pham and Manning, "Effective approaches to attention-based neural machine translation" (EMNLP 2015).

What was new: a simpler path (attend *after* the step, with the state that has read the word), a choice of scores, local
attention to a window of the source, and input feeding, which gives the next step the last attentional vector.

    h_t = LSTM(E y_{t-1} ; h~_{t-1})                       four layers; input feeding adds h~_{t-1}   (section 3.3)
    a_t(s) = softmax_s(score(h_t, h_s))                    h_s: the top states of the encoder         (eq. 7-8)
    score = h_t^T h_s (dot), h_t^T W_a h_s (general), v_a^T tanh(W_a [h_t ; h_s]) (concat), (W_a h_t)_s (location)
    c_t = sum_s a_t(s) h_s
    h~_t = tanh(W_c [c_t ; h_t]);  p(y_t) = softmax(W_s h~_t)                                         (eq. 5-6)
    local-m: softmax over |s - t| <= D
    local-p: p_t = S sigmoid(v_p^T tanh(W_p h_t)), softmax over |s - p_t| <= D, times a Gaussian      (eq. 9-10)

The END of the source is neither read nor attended to, as in the released code. Also where the encoder reads backwards,
its states are kept in the order of the source, and windows and pictures are in that order. Positions count from 0; the
released centre, sigmoid(.) (srcLen - 1) + 1 counted from 1 with END in srcLen, is S sigmoid(.) here as well.
"""

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.normalise import NORMALISERS, GaussianWindow, Window
from regard.core.products import Linear, cast
from regard.core.scores import SCORES, Location
from regard.errors import ConfigError
from regard.kernels.choose import Dropout
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import LSTMState, StackedLSTM, reverse_words
from regard.models.contract import AttentionLayout, EncoderDecoder, check_batch


@dataclass(frozen=True)
class LuongConfig(Settings):
    """The best single model of the paper: local-p with the general score and input feeding."""

    source_vocabulary: int = setting(50_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(50_000, "size of the target vocabulary", "[1, inf)")
    width: int = setting(1000, "size of the embeddings and of the state of a layer (n)", "[1, inf)")
    layers: int = setting(4, "number of LSTM layers in the encoder and in the decoder", "[1, 10000]")
    score: str = setting("general", "score function of attention", ChainMap[str, Any]({"location": None}, SCORES))
    normaliser: str = setting("softmax", "normaliser of the scores in global attention", NORMALISERS)
    window: str = setting(
        "local-p", "attend everywhere, around the step, or around a predicted place", ("global", "local-m", "local-p")
    )
    half_width: int = setting(10, "words to each side in local attention (D); sigma is D / 2", "[1, inf)")
    longest: int = setting(50, "number of source positions of the location score", "[1, inf)")
    feed: bool = setting(True, "feed h~ back into the next step")
    reverse: bool = setting(True, "read the source words backwards")
    released: bool = setting(
        False, "local attention as in the released code: window around floor(p), local-m stays on the words"
    )
    dropout: float = setting(0.2, "dropout on the input of each layer and of the output layer", "[0, 1)")
    spread: float = setting(0.1, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class LuongState(NamedTuple):
    memory: Memory
    lstm: LSTMState
    fed: Tensor  # [B, n], h~_{t-1}
    position: Tensor  # [B], the number of the step, from zero


class Luong(EncoderDecoder):
    """Stacked LSTMs; the query is the state after the step."""

    # Footnote 14 reads a content-based row as the alignment of the word just read: shift 1. Trained models align either
    # way (error rates: docs/results/hansards.md): a row is shown at the word written; `regard align --choose` measures.
    attention_layout = AttentionLayout(query="current", cross=("attention",))

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        n = config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, n)
        self.encoder = StackedLSTM(n, n, config.layers, config.dropout)  # no biases, as in the released code
        self.embed_target = nn.Embedding(config.target_vocabulary, n)
        self.decoder = StackedLSTM(n, n, config.layers, config.dropout)  # no biases, as in the released code
        self.feed = Linear(n, 4 * n, bias=False) if config.feed else None  # columns of W that read h~_{t-1}
        self.decoder.recurrence = "fed" if config.feed else "lstm"  # for `regard.explain`
        if config.window != "global" and config.normaliser != "softmax":
            raise ConfigError(
                f"model.window = {config.window!r} takes the softmax in a window; got model.normaliser = "
                f"{config.normaliser!r}. Set model.window = 'global' to use it."
            )
        located = config.score == "location"
        score = Location(n, config.longest) if located else SCORES[config.score](n, n, n)
        self.attention = Attention(score, WINDOWS[config.window](config))
        self.centre = CENTRES[config.window](config)
        self.W_c = Linear(2 * n, n, bias=False)
        self.output = Linear(n, config.target_vocabulary, bias=False)  # W_s
        self.dropout = Dropout(config.dropout)
        for weights in filter(Tensor.dim, self.parameters()):  # a scalar, the strength of a cosine, keeps its value
            nn.init.uniform_(weights, -config.spread, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read the words of source [B, S] without END: top states [B, S, n]; summary: all last states."""
        check_batch(source, lengths)
        words = lengths - 1
        order = (lambda x: reverse_words(x, words)) if self.config.reverse else (lambda x: x)
        states, last = self.encoder(order(self.embed(source)), self.encoder.start(source.shape[0]), words)
        mask = padding_mask(words, source.shape[1])  # [B, 1, S]
        summary = torch.stack([*last.hidden, *last.cell], dim=1)  # [B, 2L, n]
        summary = summary.masked_fill((words < 1)[:, None, None], 0)  # without words the LSTM has read its END instead
        return self.attention.remember(order(states), mask, summary)

    def start(self, memory: Memory) -> LuongState:
        """The decoder begins with the encoder's states of all layers, and h~_0 = 0."""
        assert memory.summary is not None
        L, states = self.config.layers, memory.summary.unbind(1)  # [B, n] each
        position = torch.zeros(states[0].shape[0], dtype=torch.long, device=states[0].device)
        return LuongState(memory, LSTMState(states[:L], states[L:]), torch.zeros_like(states[0]), position)

    def step(self, token: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        """token [B] -> logits [B, V]."""
        attentional, state = self.recurrent_step(self.decoder.project(self.embed_target(token)), state)
        return self.output(self.dropout(attentional)), state

    def decode(self, words: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns h~ [B, T, n]; no loop without input feeding."""
        embedded, T = self.embed_target(words), words.shape[1]  # [B, T, n]
        if self.feed is not None:
            attentional, state = recur(self.recurrent_step, self.decoder.project(embedded), state)  # [B, T, n]
        else:
            hidden, lstm = self.decoder(embedded, state.lstm)  # [B, T, n]
            steps = state.position[:, None] + torch.arange(T, device=words.device)  # [B, T]
            attentional = self.attentional_vector(hidden, state.memory, steps)
            state = LuongState(state.memory, lstm, attentional[:, -1], state.position + T)
        return self.dropout(attentional), state

    def recurrent_step(self, input_gates: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        """h_t = LSTM(y_{t-1}, h~_{t-1});  h~_t = tanh(W_c [c_t ; h_t]), with y_{t-1} in input_gates [B, 4n]."""
        if self.feed is not None:
            input_gates = input_gates + self.feed(self.dropout(state.fed))
        hidden, lstm = self.decoder.step(input_gates, state.lstm)  # [B, n]
        fed = self.attentional_vector(hidden[:, None], state.memory, state.position[:, None]).squeeze(1)  # [B, n]
        return fed, LuongState(state.memory, lstm, fed, state.position + 1)

    def attentional_vector(self, hidden: Tensor, memory: Memory, steps: Tensor) -> Tensor:
        """h~ = tanh(W_c [c ; h]) for hidden [B, T, n] at the given steps [B, T]: [B, T, n]."""
        centre = self.centre(hidden, memory, steps) if self.centre else None  # [B, T]
        context = self.attention(hidden, memory, centre).context  # [B, T, n]
        return torch.tanh(self.W_c(torch.cat([context, cast(hidden, context.dtype)], dim=-1)))


def same_step(hidden: Tensor, memory: Memory, steps: Tensor, released: bool) -> Tensor:
    """local-m: p_t = t. The released code never leaves the last word."""
    return torch.minimum(steps, _words(memory) - 1) if released else steps  # [B, T]


class Predicted(nn.Module):
    """local-p: p_t = S sigmoid(v_p^T tanh(W_p h_t)), a real number in [0, S]; S counts the real words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W = Linear(width, width, bias=False)  # W_p
        self.v = Linear(width, 1, bias=False)  # v_p

    def forward(self, hidden: Tensor, memory: Memory, steps: Tensor) -> Tensor:
        share = torch.sigmoid(self.v(torch.tanh(self.W(hidden)))).squeeze(-1)  # [B, T]
        share = share.to(torch.promote_types(share.dtype, torch.float32))  # bfloat16 counts to 256 only
        return share * _words(memory).to(share.dtype)


def _words(memory: Memory) -> Tensor:
    """S, the number of real source words: [B, 1]."""
    assert memory.mask is not None
    return memory.mask.sum(dim=-1)


# What the scores become: (scores, mask, and in local attention the centre) -> weights.
WINDOWS: dict[str, Callable[[LuongConfig], Any]] = {
    "global": lambda config: NORMALISERS[config.normaliser],
    "local-m": lambda config: Window(config.half_width),
    "local-p": lambda config: GaussianWindow(config.half_width, config.released),
}
# Where a window is: (hidden, memory, steps) -> its centre [B, T].
CENTRES: dict[str, Callable[[LuongConfig], Callable[[Tensor, Memory, Tensor], Tensor] | None]] = {
    "global": lambda config: None,
    "local-m": lambda config: partial(same_step, released=config.released),
    "local-p": lambda config: Predicted(config.width),
}

PRESETS = {
    "paper": LuongConfig(),
    "small": LuongConfig(width=512, layers=2, window="global", dropout=0.3),
    "tiny": LuongConfig(width=128, layers=1, window="global", dropout=0.0),
}
VARIANTS = {
    f"{window}-{score}": replace(PRESETS["tiny"], window=window, score=score, half_width=2, longest=8)
    for window, scores in {
        "global": ("dot", "general", "concat", "concat-released", "location"),
        "local-m": ("general", "location"),
        "local-p": ("dot", "general", "location"),
    }.items()
    for score in scores
} | {
    "no-feed": replace(PRESETS["tiny"], feed=False),
    "local-p-no-feed": replace(PRESETS["tiny"], feed=False, window="local-p", half_width=2),
    "cosine-entmax15": replace(PRESETS["tiny"], score="cosine", normaliser="entmax15"),
    "forward": replace(PRESETS["tiny"], reverse=False, layers=2),
    "local-m-released": replace(PRESETS["tiny"], window="local-m", half_width=2, released=True),
    "local-p-released": replace(PRESETS["tiny"], window="local-p", half_width=2, released=True),
}

# SGD from 1.0, halved every epoch after the eighth of twelve (the models with dropout), clipped at 5 by the sentence.
RECIPES: dict[str, dict[str, object]] = {
    "paper": {
        "optimiser": "sgd", "rate": 1.0, "schedule": "halving", "halve_after": 8.0, "epochs": 12, "clip": 5.0,
        "normalise": "sentences",
    },
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}  # fmt: skip
