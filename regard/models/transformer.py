"""Vaswani et al., "Attention is all you need" (NIPS 2017).

What was new: no recurrence at all. Every layer looks at the layer below with several heads at once, so that all
positions of a sentence are computed together and any two words are one step apart.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V                                                 (eq. 1)
    encoder layer:  x = LN(x + MHA(x, x, x));  x = LN(x + FFN(x))                                     (section 3.1)
    decoder layer:  x = LN(x + masked MHA(x, x, x));  x = LN(x + MHA(x, h, h));  x = LN(x + FFN(x))
    input:   sqrt(D) E[token] + PE(position);  output: softmax(x E^T) with the same E                 (section 3.4)

The default is the published post-norm model. The released code of later years is another model (pre-norm, other
positions, other warm-up); `norm`, `positions` and `tied` name such differences.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.positions import LearnedPositions, rotate_at, sinusoid_at
from regard.errors import ConfigError
from regard.kernels.product import Product
from regard.layers.dropout import Dropout
from regard.layers.transformer import DecoderLayer, DecoderSteps, EncoderLayer, Past, Turn, grow, unturned
from regard.models.contract import Looking, check_batch, check_target, shift_right

ROOM = 8  # steps that a fresh decoding state has room for; the buffers double when they are full


@dataclass(frozen=True)
class TransformerConfig:
    """The base model."""

    source_vocabulary: int = setting(37_000, "words or pieces of the source language")
    target_vocabulary: int = setting(37_000, "words or pieces of the target language")
    width: int = setting(512, "size of the residual stream (d_model)")
    layers: int = setting(6, "layers in the encoder and in the decoder")
    heads: int = setting(8, "attention heads; each has width / heads dimensions")
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


class TransformerState(NamedTuple):
    """What a step carries to the next."""

    memory: Memory  # keys and values of all layers, [B, L, H, S, D/H]
    keys: Tensor  # [B, L, H, room, D/H], of the words so far
    values: Tensor  # [B, L, H, room, D/H]
    position: Tensor  # [B], words so far; the same for every row
    decoder: "Steps"  # the weights, as steps of one search use them


class Transformer(nn.Module):
    """Encoder and decoder of equal depth."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.looking = Looking(
            "current", 0, tuple(f"decoder.{k}.cross_attention.attention" for k in range(config.layers))
        )
        self.embed = nn.Embedding(config.source_vocabulary, config.width)
        self.embed_target = self.embed if config.tied == "all" else nn.Embedding(config.target_vocabulary, config.width)
        self.W = nn.Linear(config.width, config.target_vocabulary, bias=False)
        if config.tied == "all" and config.source_vocabulary != config.target_vocabulary:
            raise ConfigError(
                f"tied = 'all' needs one vocabulary for both languages; got {config.source_vocabulary} and "
                f"{config.target_vocabulary} words. Set data.joint = true, or model.tied = 'target'."
            )
        if config.tied != "none":
            self.W.weight = self.embed_target.weight
        self.place = PLACES[config.positions](config)
        self.encoder = nn.ModuleList(EncoderLayer(*self._shape()) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(*self._shape()) for _ in range(config.layers))
        # A pre-norm stream is never normalised on its way, so the stack ends with a norm of its own.
        last = (lambda: nn.LayerNorm(config.width)) if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(), last()
        self.dropout = Dropout(config.dropout)
        self._initialise()

    def _shape(self) -> tuple[int, int, int, float, bool, Turn]:
        config = self.config
        turn = rotate_at if config.positions == "rotary" else unturned
        return config.width, config.heads, config.inner, config.dropout, config.norm == "pre", turn

    def _initialise(self) -> None:
        """Xavier-uniform matrices and N(0, 1/D) embeddings, as in the released code: sqrt(D) E has unit variance.

        `gain` scales what a sub-layer adds to the stream (DeepNet's beta, Wang et al. 2022); queries and keys add none.
        """
        for name, weights in self.named_parameters():
            if "embed" in name or name == "W.weight":
                nn.init.normal_(weights, std=self.config.width**-0.5)
            elif weights.dim() > 1:
                asks = name.endswith(("query.weight", "key.weight"))
                nn.init.xavier_uniform_(weights, gain=1.0 if asks else self.config.gain)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S]: keys and values of every decoder layer's cross-attention, [B, L, H, S, D/H]."""
        check_batch(source, lengths)
        mask = None if unpadded(lengths, source.shape[1]) else padding_mask(lengths, source.shape[1])  # [B, 1, S]
        places = range(source.shape[1])
        x = self.receive(self.embed, source, places)  # [B, S, D]
        for layer in self.encoder:
            x = layer(x, mask, places)
        x = self.encoder_norm(x)
        seen = [layer.cross_attention.remember(x) for layer in self.decoder]  # type: ignore[operator, union-attr]
        keys, values = (torch.stack(part, dim=1) for part in ([m.keys for m in seen], [m.values for m in seen]))
        return Memory(keys, values, mask)

    def start(self, memory: Memory) -> TransformerState:
        """Nothing written yet: empty buffers."""
        B, L, H, _, D = memory.keys.shape
        room = memory.keys.new_zeros(B, L, H, ROOM, D)
        position = torch.zeros(B, dtype=torch.long, device=room.device)
        return TransformerState(memory, room, torch.zeros_like(room), position, Steps(self))

    def step(self, token: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """token [B] -> logits [B, V]; the buffers of `state` are written in place."""
        filled = int(state.position[0]) if len(token) else 0
        keys, values = grow(state.keys, filled + 1), grow(state.values, filled + 1)
        places = range(filled, filled + 1)
        x = self.receive(self.embed_target, token, places)  # [B, D]
        pasts = zip(keys.unbind(1), values.unbind(1), strict=True)  # of each layer
        for layer, source, past in zip(state.decoder.layers, layer_memories(state.memory), pasts, strict=True):
            x = layer(x, source, places, Past(*past, filled))
        logits = state.decoder.W(self.decoder_norm(x))  # [B, V]
        return logits, TransformerState(state.memory, keys, values, state.position + 1, state.decoder)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], all steps at once under the causal mask."""
        check_target(target, source)
        memory = self.encode(source, lengths)
        places = range(target.shape[1])
        x = self.receive(self.embed_target, shift_right(target), places)  # [B, T, D]
        for layer, seen in zip(self.decoder, layer_memories(memory), strict=True):
            x = layer(x, seen, places)
        return self.W(self.decoder_norm(x))

    def receive(self, embed: nn.Module, tokens: Tensor, places: range) -> Tensor:
        """dropout(sqrt(D) E[token] + PE): tokens [B, T] at `places` -> [B, T, D]; or [B] at one place -> [B, D]."""
        x = self.place(embed(tokens) * math.sqrt(self.config.width), places)
        return self.dropout(x) if self.training else x


def unpadded(lengths: Tensor, size: int) -> bool:
    """Whether every row is known to fill all of `size`; on a GPU the question would make the host wait, so: False."""
    return lengths.device.type == "cpu" and bool((lengths == size).all())


class Steps:
    """What the steps of one search share."""

    def __init__(self, model: Transformer) -> None:
        self.layers = [DecoderSteps(layer) for layer in model.decoder]  # type: ignore[arg-type]
        self.W = Product(model.W.weight)


def layer_memories(memory: Memory) -> list[Memory]:
    """What each decoder layer sees of the source: [B, H, S, D/H], with the mask for every head and query."""
    mask = None if memory.mask is None else memory.mask[:, None]  # [B, 1, 1, S]
    pairs = zip(memory.keys.unbind(1), memory.values.unbind(1), strict=True)
    return [Memory(keys, values, mask) for keys, values in pairs]


class Sinusoid(nn.Module):
    """Adds the paper's sinusoid."""

    def forward(self, x: Tensor, places: range) -> Tensor:
        return x + sinusoid_at(places, x)


class Learned(nn.Module):
    """Adds a learned vector for each place."""

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.embed_place = LearnedPositions(longest, width)

    def forward(self, x: Tensor, places: range) -> Tensor:
        return x + self.embed_place.at(places)


class Nowhere(nn.Module):
    """Adds nothing: rotary positions turn queries and keys inside the layers."""

    def forward(self, x: Tensor, places: range) -> Tensor:
        return x


PLACES: dict[str, Callable[[TransformerConfig], nn.Module]] = {
    "sinusoid": lambda config: Sinusoid(),
    "learned": lambda config: Learned(config.longest, config.width),
    "rotary": lambda config: Nowhere(),
}

BASE = TransformerConfig()
PRESETS = {
    "base": BASE,
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
