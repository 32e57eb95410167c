"""Vaswani et al., "Attention is all you need" (NIPS 2017).

What was new: no recurrence at all. Every layer attends to the layer below with several heads, so that all
positions of a sentence are computed together and any two words are one step apart.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V                                                 (eq. 1)
    MHA(Q, K, V) = [head_1 ; ... ; head_H] W^O;  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)        (section 3.2.2)
    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2                                                            (eq. 2)
    encoder layer:  x = LN(x + MHA(x, x, x));  x = LN(x + FFN(x))                                     (section 3.1)
    decoder layer:  x = LN(x + masked MHA(x, x, x));  x = LN(x + MHA(x, h, h));  x = LN(x + FFN(x))
    input:   sqrt(D) E[token] + PE(position);  output: softmax(x E^T) with the same E                 (section 3.4-5)

The default is the published post-norm model. The released code of later years is another model (pre-norm, other
positions, other warm-up); `norm`, `positions` and `tied` name such differences. `bias`, `activation` and `decoder` are
Marian's, whose models can be imported. Later papers replaced single parts, and each replacement is a setting:

    positions = "relative"     e_ij = q_i (k_j + a^K_(j-i)) / sqrt(d_k), z_i = sum_j alpha_ij (v_j + a^V_(j-i))
                               (Shaw et al. 2018, "Self-attention with relative position representations")
    positions = "rotary"       queries and keys rotated by their places (Su et al. 2021, "RoFormer")
    positions = "alibi"        e_ij = q_i k_j / sqrt(d_k) - m_h |j - i|
                               (Press et al. 2022, "Train short, test long")
    key_heads = G              H heads share the keys and values of G, in the decoder as in the paper
                               (Ainslie et al. 2023, "GQA"; G = 1: Shazeer 2019, "Fast Transformer decoding")
    layer_norm = "rms"         g x / sqrt(mean(x^2)) (Zhang and Sennrich 2019, "Root mean square layer normalization")
    activation = "swiglu"      (swish(x W) * x V) W_2 (Shazeer 2020, "GLU variants improve Transformer")
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.blocks import Blocks, word_numbers
from regard.core.masks import padding_mask
from regard.core.normalise import NORMALISERS, Causal
from regard.core.past import EMPTY_PAST, Carry, Past
from regard.core.products import Linear
from regard.core.scores import COMPARISONS
from regard.errors import ConfigError
from regard.kernels.choose import Dropout, known_full
from regard.layers.attention import Attention
from regard.layers.transformer import (
    JOINS,
    NORMS,
    CrossAttention,
    Heads,
    Places,
    SelfAttention,
    TransformerLayer,
    last_norm,
)
from regard.layers.transformer_parts import FEED_FORWARDS, PLACES, SSRU, RelativeSelfAttention, self_score
from regard.models.contract import AttentionLayout, EncoderDecoder, check_batch, check_target, shift_right


@dataclass(frozen=True)
class TransformerConfig(Settings):
    """The base model."""

    source_vocabulary: int = setting(37_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(37_000, "size of the target vocabulary", "[1, inf)")
    width: int = setting(512, "size of the residual stream (d_model)", "[1, inf)")
    layers: int = setting(6, "number of layers in the encoder and in the decoder", "[1, 10000]")
    decoder_layers: int = setting(0, "number of layers in the decoder; 0 = as in the encoder", "[0, 10000]")
    heads: int = setting(8, "number of attention heads; each has width / heads dimensions", "[1, inf)")
    score: str = setting("scaled-dot", "score function of a head", COMPARISONS)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    inner: int = setting(2048, "hidden size of the feed-forward nets (d_ff)", "[1, inf)")
    dropout: float = setting(0.1, "dropout on the output of each sub-layer and on the embeddings", "[0, 1)")
    norm: str = setting("post", "layer norm after each sub-layer, as published, or before it", tuple(JOINS))
    gain: float = setting(
        1.0,
        "scale of the initial values, attention outputs and feed-forward nets; a post-norm stack starts sooner at 0.5",
        "(0, inf)",
    )
    positions: str = setting(
        "sinusoid",
        "position encoding; rotary: Su et al. 2021, relative: Shaw et al. 2018, alibi: Press et al. 2022",
        tuple(PLACES),
    )
    longest: int = setting(1024, "number of learned positions", "[1, inf)")
    clip: int = setting(16, "maximum distance of relative positions (k)", "[1, inf)")
    tied: str = setting(
        "all",
        "which embedding matrices are shared: source, target and output; target and output; or none",
        ("all", "target", "none"),
    )
    decoder: str = setting(
        "attention",
        "self-attention in the decoder, or an SSRU, a recurrence with one state",
        ("attention", "ssru"),
    )
    activation: str = setting("relu", "activation of the feed-forward nets; swiglu: Shazeer 2020", tuple(FEED_FORWARDS))
    bias: bool = setting(False, "use biases in attention and in the output layer")
    key_heads: int = setting(
        0,
        "number of key and value heads in the decoder, each shared by several heads (Ainslie et al. 2023); "
        "0 = one per head",
        "[0, inf)",
    )
    layer_norm: str = setting(
        "layer", "layer norm, or RMSNorm, which leaves out the mean (Zhang and Sennrich 2019)", tuple(NORMS)
    )


class TransformerState(NamedTuple):
    memory: tuple[Memory, ...]  # of each decoder layer: keys and values of the source, [B, key_heads, S, D/H]
    past: tuple[Past | Carry, ...]  # of each decoder layer: keys and values of the words so far, [B, key_heads, t, D/H]
    position: Tensor  # [B], words so far; the same for every row


class Transformer(EncoderDecoder):
    """Encoder and decoder: stacks of layers in a residual stream."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if config.tied == "all" and config.source_vocabulary != config.target_vocabulary:
            raise ConfigError(
                f"tied = 'all' needs one vocabulary for both languages; got {config.source_vocabulary} and "
                f"{config.target_vocabulary} words. Set data.joint = true, or model.tied = 'target'."
            )
        self.config = config
        depth = config.decoder_layers or config.layers
        cross = tuple(f"decoder.{k}.cross_attention.attention" for k in range(depth))
        self.attention_layout = AttentionLayout("current", cross, key_heads=config.key_heads)
        self.embed = nn.Embedding(config.source_vocabulary, config.width)
        self.embed_target = self.embed if config.tied == "all" else nn.Embedding(config.target_vocabulary, config.width)
        self.place = PLACES[config.positions](config)
        self.encoder = nn.ModuleList(self._layer(decodes=False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(self._layer(decodes=True) for _ in range(depth))
        self.encoder_norm, self.decoder_norm = (
            last_norm(config.norm, config.width, config.layer_norm) for _ in range(2)
        )
        self.output = Linear(config.width, config.target_vocabulary, config.bias)
        self.dropout = Dropout(config.dropout)
        # As in the released code, N(0, 1/D): sqrt(D) E has unit variance.
        for vectors in (self.embed, self.embed_target, self.output):
            nn.init.normal_(vectors.weight, std=config.width**-0.5)
        if config.tied != "none":
            self.output.weight = self.embed_target.weight

    def _layer(self, decodes: bool) -> TransformerLayer:
        config, normalise = self.config, NORMALISERS[self.config.normaliser]
        compare = partial(COMPARISONS[config.score], config.width // config.heads)
        self_attend = Attention(self_score(config), Causal(normalise) if decodes else normalise)
        sizes = Heads(config.width, config.heads, config.key_heads if decodes else 0, config.gain, config.bias)
        to_self = RelativeSelfAttention if config.positions == "relative" else SelfAttention
        return TransformerLayer(
            SSRU(config.width) if decodes and config.decoder == "ssru" else to_self(sizes, self_attend),
            CrossAttention(sizes, Attention(compare(), normalise)) if decodes else None,
            FEED_FORWARDS[config.activation](config.width, config.inner, config.gain),
            join=partial(JOINS[config.norm], config.width, config.dropout, config.layer_norm),
        )

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S]: a state [B, S, D] for each word."""
        check_batch(source, lengths)
        mask = None if known_full(lengths, source.shape[1]) else padding_mask(lengths, source.shape[1])  # [B, 1, S]
        positions = torch.arange(source.shape[1], device=source.device)
        return self.run_encoder(source, positions, mask)

    def start(self, memory: Memory) -> TransformerState:
        """Nothing written yet. The keys and values of the source are computed once."""
        seen = tuple(self.remember(memory))
        past = tuple(layer.self_attention.start(one) for layer, one in zip(self.decoder, seen, strict=True))  # type: ignore[operator, union-attr]
        return TransformerState(
            seen, past, torch.zeros(memory.keys.shape[0], dtype=torch.long, device=memory.keys.device)
        )

    def step(self, token: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """token [B] -> logits [B, V]."""
        x, past = self.run_decoder(token[:, None], state.position[:1], state.memory, state.past)  # [B, 1, D]
        return self.output(x[:, 0]), TransformerState(state.memory, past, state.position + 1)

    def hidden(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """What the output layer reads for target [B, T]: [B, T, D], all steps at once under the causal mask."""
        check_target(target, source)
        seen = self.remember(self.encode(source, lengths))
        return self.run_decoder(shift_right(target), torch.arange(target.shape[1], device=target.device), seen)[0]

    # --- the two stacks

    def run_encoder(
        self, source: Tensor, positions: Tensor, mask: Tensor | None, blocks: Blocks | None = None
    ) -> Memory:
        """The encoder: source [B, S] at positions [S], mask [B, 1, S] -> states [B, S, D]."""
        x, places = self.embed_tokens(self.embed, source, positions)  # [B, S, D]
        for layer in self.encoder:
            x, _ = layer(x, mask=heads_mask(mask), places=places._replace(blocks=blocks))
        x = self.encoder_norm(x)
        return Memory(x, x, mask)

    def run_decoder(
        self,
        words: Tensor,
        positions: Tensor,
        memory: Iterable[Memory],
        past: tuple[Past | Carry, ...] = (),
        blocks: Blocks | None = None,
        source_blocks: Blocks | None = None,
    ) -> tuple[Tensor, tuple[Past | Carry, ...]]:
        """The decoder: words [B, T], each the one before what is predicted, at positions [T] -> [B, T, D].

        memory and past are those of each layer; the second result is the past with the words in it.
        """
        x, places = self.embed_tokens(self.embed_target, words, positions)  # [B, T, D]
        places, after = places._replace(blocks=blocks, source_blocks=source_blocks), []
        for layer, seen, before in zip(self.decoder, memory, past or [EMPTY_PAST] * len(self.decoder), strict=True):
            x, written = layer(x, before, source=seen, places=places)
            after.append(written)
        return self.decoder_norm(x), tuple(after)

    def embed_tokens(self, embed: nn.Module, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Places]:
        """dropout(sqrt(D) E[token] + PE): tokens [B, T] at positions [T] -> [B, T, D], and what the layers need."""
        x, places = self.place(embed(tokens) * math.sqrt(self.config.width), positions)
        return self.dropout(x), places

    def remember(self, memory: Memory) -> Iterator[Memory]:
        """What each decoder layer attends to in the source: its keys and values [B, key_heads, S, D/H]."""
        for layer in self.decoder:
            yield layer.cross_attention.remember(memory.values, heads_mask(memory.mask))  # type: ignore[operator, union-attr]

    @property
    def longest(self) -> int | None:
        """The most words that a sentence may have, if there is a limit."""
        return self.config.longest if self.config.positions == "learned" else None

    # --- sentences end to end, so that nothing is computed for padding

    @property
    def packs(self) -> bool:
        """Whether `hidden_packed` serves: a recurrence, or distances between words, would cross from one sentence into
        the next; and only scaled dot products with a softmax have a kernel for it."""
        config = self.config
        plain = (config.score, config.normaliser, config.decoder) == ("scaled-dot", "softmax", "attention")
        return plain and config.positions in ("sinusoid", "rotary")

    def hidden_packed(self, source: Tensor, slots: Tensor, words: Tensor, queries: Tensor) -> Tensor:
        """`hidden` of sentences end to end, without padding: source [1, N], words [1, M] -> [1, M, D].

        slots [B, S] and queries [B, T] are the places of each sentence's words in source and words: all of them, each
        once (see `Blocks`).
        """
        memory = self.run_encoder(source, word_numbers(slots, source.shape[1]), None, Blocks(slots, slots))
        numbers, seen = word_numbers(queries, words.shape[1]), self.remember(memory)  # [M]
        inside, across = Blocks(queries, queries), Blocks(queries, slots)
        return self.run_decoder(words, numbers, seen, blocks=inside, source_blocks=across)[0]


def heads_mask(mask: Tensor | None) -> Tensor | None:
    """[B, 1, S] -> [B, 1, 1, S]: the same for every head and query."""
    return None if mask is None else mask[:, None]


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
    "relative": replace(PRESETS["tiny"], positions="relative"),
    "alibi": replace(PRESETS["tiny"], positions="alibi"),
    "rms": replace(PRESETS["tiny"], layer_norm="rms"),
    "swiglu": replace(PRESETS["tiny"], activation="swiglu", inner=170),  # keeps the number of weights
    "grouped": replace(PRESETS["tiny"], key_heads=2),
    # What most models of today are made of: the inner size keeps the number of weights.
    "modern": replace(
        PRESETS["tiny"], norm="pre", layer_norm="rms", positions="rotary", activation="swiglu", inner=170, key_heads=2
    ),
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
