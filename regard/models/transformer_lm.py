"""Liu et al., "Generating Wikipedia by summarizing long sequences" (ICLR 2018): the Transformer's decoder by itself.

What was new: Vaswani's decoder without the encoder is a language model. Here it stands for what is used today, beside
the recurrent models that look back: every layer looks at all words so far, with several heads at once.

    x = LN(x + masked MHA(x, x, x));  x = LN(x + FFN(x))                        or with the norm before each part
    input: sqrt(D) E[token] + PE(position);  output: softmax(x E^T) with the same E
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.normalise import causal_softmax
from regard.core.positions import sinusoid
from regard.layers.attention import MultiHead
from regard.layers.transformer import FeedForward, Past, Residual, grow
from regard.models.contract import Looking, check_target, shift_right

ROOM = 32  # steps that a fresh state has room for; the buffers double when they are full


@dataclass(frozen=True)
class TransformerLanguageConfig:
    """The decoder of the Transformer's base model."""

    vocabulary: int = setting(37_000, "words or pieces that the model knows")
    width: int = setting(512, "size of the residual stream (d_model)")
    layers: int = setting(6, "layers, each of self-attention and a feed-forward net")
    heads: int = setting(8, "attention heads; each has width / heads dimensions")
    inner: int = setting(2048, "hidden size of the feed-forward nets (d_ff)")
    dropout: float = setting(0.1, "share of each sub-layer's output and of the embeddings dropped in training")
    norm: str = setting("post", "layer norm after each sub-layer, as published, or before it", ("post", "pre"))
    tied: bool = setting(True, "input and output share their matrix")


class TransformerLanguageState(NamedTuple):
    """What a step carries to the next. A state that has been stepped from is spent: its buffers are written on."""

    keys: Tensor  # [B, L, H, room, D/H], of the words so far
    values: Tensor  # [B, L, H, room, D/H]
    position: Tensor  # [B], steps so far


class CausalLayer(nn.Module):
    """Self-attention over the words so far, then a feed-forward net at each."""

    def __init__(self, config: TransformerLanguageConfig) -> None:
        super().__init__()
        self.self_attention = MultiHead(config.width, config.heads, causal_softmax)
        self.feed_forward = FeedForward(config.width, config.inner)
        self.joins = nn.ModuleList(Residual(config.width, config.dropout, config.norm == "pre") for _ in range(2))

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]. With a `past`, x is one step and its keys and values join it."""

        def look(x: Tensor) -> Tensor:
            memory = self.self_attention.remember(x)
            seen = memory if past is None else past.append(memory)
            return self.self_attention(self.self_attention.ask(x), seen)

        return self.joins[1](self.joins[0](x, look), self.feed_forward)


class TransformerLanguageModel(nn.Module):
    """A stack of causal layers that writes a text word by word."""

    looking = Looking(query="current", shift=0, cross=())

    def __init__(self, config: TransformerLanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(CausalLayer(config) for _ in range(config.layers))
        # A pre-norm stream is never normalised on its way, so the stack ends with a norm of its own.
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        self.W = nn.Linear(config.width, config.vocabulary, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        for name, weights in self.named_parameters():
            if name in ("embed.weight", "W.weight"):
                nn.init.normal_(weights, std=config.width**-0.5)
            elif weights.dim() > 1:
                nn.init.xavier_uniform_(weights)
        if config.tied:
            self.W.weight = self.embed.weight

    def start(self, rows: int) -> TransformerLanguageState:
        """Nothing written yet: empty buffers."""
        heads, width = self.config.heads, self.config.width
        room = self.embed.weight.new_zeros(rows, self.config.layers, heads, ROOM, width // heads)
        position = torch.zeros(rows, dtype=torch.long, device=room.device)
        return TransformerLanguageState(room, torch.zeros_like(room), position)

    def step(self, token: Tensor, state: TransformerLanguageState) -> tuple[Tensor, TransformerLanguageState]:
        """token [B] -> logits [B, V]; the buffers of `state` are written in place."""
        filled = int(state.position[0]) if len(token) else 0
        keys, values = grow(state.keys, filled + 1), grow(state.values, filled + 1)
        x = self.receive(token[:, None], filled)  # [B, 1, D]
        for k, layer in enumerate(self.layers):
            x = layer(x, Past(keys[:, k], values[:, k], filled))
        return self.W(self.norm(x))[:, 0], TransformerLanguageState(keys, values, state.position + 1)

    def forward(self, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], all steps at once under the causal mask."""
        check_target(target)
        x = self.receive(shift_right(target), 0)  # [B, T, D]
        for layer in self.layers:
            x = layer(x)
        return self.W(self.norm(x))

    def receive(self, tokens: Tensor, first: int) -> Tensor:
        """dropout(sqrt(D) E[token] + PE): tokens [B, T] from position `first` on -> [B, T, D]."""
        x = self.embed(tokens) * math.sqrt(self.config.width)
        places = torch.arange(first, first + tokens.shape[1], device=tokens.device)  # [T]
        return self.dropout(x + sinusoid(places, self.config.width).to(x.dtype))


PRESETS = {
    "paper": TransformerLanguageConfig(),
    "small": TransformerLanguageConfig(width=256, layers=4, heads=4, inner=1024, dropout=0.3, norm="pre"),
    "tiny": TransformerLanguageConfig(width=96, layers=2, heads=4, inner=192, dropout=0.0, norm="pre"),
}
VARIANTS = {
    "post": replace(PRESETS["tiny"], norm="post"),
    "untied": replace(PRESETS["tiny"], tied=False),
}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {
        "rate": 1.0,
        "schedule": "noam",
        "warmup": 4000,
        "beta2": 0.98,
        "batch_tokens": 16_384,
        "clip": 0.0,
        "best_by": "loss",
    },
    "small": {
        "rate": 0.001,
        "clip": 1.0,
        "batch_tokens": 4_096,
        "schedule": "cosine",
        "warmup": 400,
        "epochs": 20,
        "best_by": "loss",
    },
    "tiny": {
        "rate": 0.003,
        "clip": 1.0,
        "batch_tokens": 2_048,
        "schedule": "cosine",
        "warmup": 100,
        "epochs": 6,
        "best_by": "loss",
    },
}
