"""Vaswani et al., "Attention is all you need" (NIPS 2017).

What was new: no recurrence at all. Every layer attends to the layer below with several heads, so that all
positions of a sentence are computed together and any two words are one step apart.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V                                                 (eq. 1)
    encoder layer:  x = LN(x + MHA(x, x, x));  x = LN(x + FFN(x))                                     (section 3.1)
    decoder layer:  x = LN(x + masked MHA(x, x, x));  x = LN(x + MHA(x, h, h));  x = LN(x + FFN(x))
    input:   sqrt(D) E[token] + PE(position);  output: softmax(x E^T) with the same E                 (section 3.4)

The default is the published post-norm model. The released code of later years is another model (pre-norm, other
positions, other warm-up); `norm`, `positions` and `tied` name such differences. `bias`, `activation` and `decoder` are
Marian's, whose models can be imported.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory, Normalise
from regard.core.masks import padding_mask
from regard.core.normalise import NORMALISERS, Causal
from regard.core.positions import LearnedPositions, rotate_by, sinusoid
from regard.core.scores import COMPARISONS
from regard.errors import ConfigError
from regard.kernels.choose import known_full
from regard.layers.attention import Attention
from regard.layers.dropout import Dropout
from regard.layers.past import Carry, Past
from regard.layers.transformer import (
    ACTIVATIONS,
    JOINS,
    SSRU,
    CrossAttention,
    FeedForward,
    Rotation,
    SelfAttention,
    TransformerLayer,
    last_norm,
    no_rotation,
)
from regard.models.contract import Looking, check_batch, check_target, shift_right


@dataclass(frozen=True)
class TransformerConfig:
    """The base model."""

    source_vocabulary: int = setting(37_000, "words or pieces of the source language")
    target_vocabulary: int = setting(37_000, "words or pieces of the target language")
    width: int = setting(512, "size of the residual stream (d_model)")
    layers: int = setting(6, "layers in the encoder and in the decoder")
    decoder_layers: int = setting(0, "layers in the decoder; 0 is as many as in the encoder")
    heads: int = setting(8, "attention heads; each has width / heads dimensions")
    score: str = setting("scaled-dot", "how the queries and keys of a head are compared", tuple(COMPARISONS))
    normaliser: str = setting("softmax", "how scores become weights", tuple(NORMALISERS))
    inner: int = setting(2048, "hidden size of the feed-forward nets (d_ff)")
    dropout: float = setting(0.1, "share of each sub-layer's output and of the embeddings dropped in training")
    norm: str = setting("post", "layer norm after each sub-layer, as published, or before it", ("post", "pre"))
    gain: float = setting(
        1.0,
        "scale of the initial values, attention outputs and feed-forward nets; a post-norm stack starts sooner at 0.5",
    )
    positions: str = setting("sinusoid", "how a word knows its place", ("sinusoid", "learned", "rotary"))
    longest: int = setting(1024, "places that learned positions know")
    tied: str = setting(
        "all",
        "which matrices are one: source, target and output; target and output; or none",
        ("all", "target", "none"),
    )
    decoder: str = setting(
        "attention",
        "how a decoder layer reads the words so far: self-attention, or an SSRU, a recurrence of one state",
        ("attention", "ssru"),
    )
    activation: str = setting("relu", "activation of the feed-forward nets", tuple(ACTIVATIONS))
    bias: bool = setting(False, "biases in attention and in the output layer")


class TransformerState(NamedTuple):
    """What a step carries to the next."""

    memory: tuple[Memory, ...]  # of each decoder layer: keys and values of the source, [B, H, S, D/H]
    past: tuple[Past | Carry, ...]  # of each decoder layer: keys and values of the words so far, [B, H, t, D/H]
    position: Tensor  # [B], words so far; the same for every row


class Transformer(nn.Module):
    """Encoder and decoder: stacks of layers in a residual stream."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        depth = config.decoder_layers or config.layers
        self.looking = Looking("current", 0, tuple(f"decoder.{k}.cross_attention.attention" for k in range(depth)))
        if config.tied == "all" and config.source_vocabulary != config.target_vocabulary:
            raise ConfigError(
                f"tied = 'all' needs one vocabulary for both languages; got {config.source_vocabulary} and "
                f"{config.target_vocabulary} words. Set data.joint = true, or model.tied = 'target'."
            )
        if config.positions == "rotary" and config.score == "additive":
            raise ConfigError(
                "model.positions = 'rotary' turns queries and keys that meet in a dot product; got model.score = "
                "'additive'. Use other positions or another score."
            )
        self.embed = nn.Embedding(config.source_vocabulary, config.width)
        self.embed_target = self.embed if config.tied == "all" else nn.Embedding(config.target_vocabulary, config.width)
        self.place = PLACES[config.positions](config)
        self.encoder = nn.ModuleList(self._layer(NORMALISERS[config.normaliser]) for _ in range(config.layers))
        causal = Causal(NORMALISERS[config.normaliser])
        self.decoder = nn.ModuleList(self._layer(causal, cross=True) for _ in range(depth))
        self.encoder_norm, self.decoder_norm = (last_norm(config.norm, config.width) for _ in range(2))
        self.output = nn.Linear(config.width, config.target_vocabulary, config.bias)
        self.dropout = Dropout(config.dropout)
        # As in the released code, N(0, 1/D): sqrt(D) E has unit variance.
        for vectors in (self.embed, self.embed_target, self.output):
            nn.init.normal_(vectors.weight, std=config.width**-0.5)
        if config.tied != "none":
            self.output.weight = self.embed_target.weight

    def _layer(self, normalise: Normalise, cross: bool = False) -> TransformerLayer:
        config = self.config
        join = partial(JOINS[config.norm], config.width, config.dropout)
        size = config.width, config.heads
        ssru = cross and config.decoder == "ssru"

        def attention(normalise: Normalise) -> Attention:
            return Attention(COMPARISONS[config.score](config.width // config.heads), normalise)

        to_source = attention(NORMALISERS[config.normaliser])
        return TransformerLayer(
            SSRU(config.width) if ssru else SelfAttention(*size, attention(normalise), config.gain, config.bias),
            CrossAttention(*size, to_source, config.gain, config.bias) if cross else None,
            FeedForward(config.width, config.inner, config.gain, config.activation),
            join,
        )

    @property
    def longest(self) -> int | None:
        """The most words that a sentence may have, if there is a limit."""
        return self.config.longest if self.config.positions == "learned" else None

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S]: a state [B, S, D] for each word."""
        check_batch(source, lengths)
        mask = None if known_full(lengths, source.shape[1]) else padding_mask(lengths, source.shape[1])  # [B, 1, S]
        x, rotation = self.receive(self.embed, source, torch.arange(source.shape[1], device=source.device))  # [B, S, D]
        for layer in self.encoder:
            x, _ = layer(x, mask=heads_mask(mask), rotation=rotation)
        x = self.encoder_norm(x)
        return Memory(x, x, mask)

    def start(self, memory: Memory) -> TransformerState:
        """Nothing written yet. The keys and values of the source are computed once."""
        seen = tuple(self.remember(layer, memory) for layer in self.decoder)
        past = tuple(layer.self_attention.start(one) for layer, one in zip(self.decoder, seen, strict=True))  # type: ignore[operator, union-attr]
        return TransformerState(seen, past, torch.zeros(len(memory.keys), dtype=torch.long, device=memory.keys.device))

    def step(self, token: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """token [B] -> logits [B, V]."""
        x, rotation = self.receive(self.embed_target, token[:, None], state.position[:1])  # [B, 1, D]
        pasts = []
        for layer, seen, past in zip(self.decoder, state.memory, state.past, strict=True):
            x, past = layer(x, past, source=seen, rotation=rotation)
            pasts.append(past)
        logits = self.output(self.decoder_norm(x[:, 0]))
        return logits, TransformerState(state.memory, tuple(pasts), state.position + 1)

    def hidden(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """What the output layer reads for target [B, T]: [B, T, D], all steps at once under the causal mask."""
        check_target(target, source)
        memory = self.encode(source, lengths)
        positions = torch.arange(target.shape[1], device=target.device)
        x, rotation = self.receive(self.embed_target, shift_right(target), positions)  # [B, T, D]
        for layer in self.decoder:
            x, _ = layer(x, source=self.remember(layer, memory), rotation=rotation)
        return self.decoder_norm(x)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T]."""
        return self.output(self.hidden(source, lengths, target))

    def receive(self, embed: nn.Module, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Rotation]:
        """dropout(sqrt(D) E[token] + PE): tokens [B, T] at positions [T] -> [B, T, D], and the rotation."""
        x, rotation = self.place(embed(tokens) * math.sqrt(self.config.width), positions)
        return self.dropout(x), rotation

    def remember(self, layer: nn.Module, memory: Memory) -> Memory:
        """What a decoder layer attends to in the source."""
        return layer.cross_attention.remember(memory.values, heads_mask(memory.mask))  # type: ignore[operator, union-attr]


def heads_mask(mask: Tensor | None) -> Tensor | None:
    """[B, 1, S] -> [B, 1, 1, S]: the same for every head and query."""
    return None if mask is None else mask[:, None]


class Sinusoid(nn.Module):
    """Adds the paper's sinusoid."""

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Rotation]:
        return x + sinusoid(positions, x.shape[-1]).to(x.dtype), no_rotation


class Learned(nn.Module):
    """Adds a learned vector for each position."""

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.embed = LearnedPositions(longest, width)
        nn.init.normal_(self.embed.table.weight, std=width**-0.5)

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Rotation]:
        return x + self.embed(positions), no_rotation


class Rotary(nn.Module):
    """Adds nothing: queries and keys are turned inside the layers."""

    def __init__(self, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Rotation]:
        return x, partial(rotate_by, waves=sinusoid(positions, self.head_width).to(x.dtype))


PLACES: dict[str, Callable[[TransformerConfig], nn.Module]] = {
    "sinusoid": lambda config: Sinusoid(),
    "learned": lambda config: Learned(config.longest, config.width),
    "rotary": lambda config: Rotary(config.width // config.heads),
}

BASE = TransformerConfig()
PRESETS = {
    "base": replace(BASE, gain=0.5),  # starts with any sensible schedule; "paper" needs a long warm-up
    "paper": BASE,
    "big": replace(BASE, width=1024, heads=16, inner=4096, dropout=0.3),
    "small": replace(BASE, width=256, layers=3, heads=4, inner=1024, dropout=0.3, gain=0.5),
    "tiny": replace(BASE, width=128, layers=2, heads=4, inner=256, dropout=0.0, gain=0.5),
}
VARIANTS = {
    "pre": replace(PRESETS["tiny"], norm="pre"),
    "learned": replace(PRESETS["tiny"], positions="learned", longest=32),
    "rotary": replace(PRESETS["tiny"], positions="rotary"),
    "pre-rotary": replace(PRESETS["tiny"], norm="pre", positions="rotary"),
    "tied-target": replace(PRESETS["tiny"], tied="target"),
    "untied": replace(PRESETS["tiny"], tied="none"),
    "shallow-decoder": replace(PRESETS["tiny"], decoder_layers=1),
    "additive-sparsemax": replace(PRESETS["tiny"], score="additive", normaliser="sparsemax"),
    "cosine-entmax15": replace(PRESETS["tiny"], score="cosine", normaliser="entmax15", positions="rotary"),
    "marian": replace(PRESETS["tiny"], decoder="ssru", activation="swish", bias=True),
}

# Adam with beta2 = 0.98 and 4000 updates of warm-up is the paper's.
NOAM: dict[str, object] = {"rate": 1.0, "beta2": 0.98, "schedule": "noam", "warmup": 4000, "clip": 0.0}
RECIPES: dict[str, dict[str, object]] = {
    "base": {**NOAM, "label_smoothing": 0.1, "average": 5, "keep": 5},
    "paper": {**NOAM, "label_smoothing": 0.1, "average": 5, "keep": 5},
    "big": {**NOAM, "label_smoothing": 0.1, "average": 20, "keep": 20},
    "small": {"rate": 0.0015, "beta2": 0.98, "schedule": "inverse-sqrt", "warmup": 1000, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "beta2": 0.98, "schedule": "inverse-sqrt", "warmup": 200},
}
