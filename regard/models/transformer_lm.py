"""Liu et al., "Generating Wikipedia by summarizing long sequences" (ICLR 2018): the Transformer's decoder by itself.

What was new: Vaswani's decoder without the encoder is a language model. It stands for today's language models,
for comparison with the recurrent ones: every layer attends to all words so far, with several heads.

    x = LN(x + masked MHA(x, x, x));  x = LN(x + FFN(x))                        or with the norm before each part
    input: sqrt(D) E[token] + PE(position);  output: softmax(x E^T) with the same E

`positions` replaces the sinusoid PE: with "alibi" a model trained on short texts reads longer ones (Press et al. 2022).
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.normalise import NORMALISERS, Causal
from regard.core.past import EMPTY_PAST, Past
from regard.core.products import Linear
from regard.core.scores import COMPARISONS
from regard.kernels.choose import Dropout
from regard.layers.attention import Attention
from regard.layers.transformer import JOINS, FeedForward, Heads, SelfAttention, TransformerLayer, last_norm
from regard.layers.transformer_parts import PLACES, self_score
from regard.models import transformer
from regard.models.contract import AttentionLayout, TextModel, check_bound, check_target, shift_right
from regard.symbols import PAD


@dataclass(frozen=True)
class TransformerLanguageConfig(Settings):
    """The decoder of the Transformer's base model."""

    vocabulary: int = setting(37_000, "size of the vocabulary", "[1, inf)")
    width: int = setting(512, "size of the residual stream (d_model)", "[1, inf)")
    layers: int = setting(6, "number of layers, each of self-attention and a feed-forward net", "[1, 10000]")
    heads: int = setting(8, "number of attention heads; each has width / heads dimensions", "[1, inf)")
    score: str = setting("scaled-dot", "score function of a head", COMPARISONS)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    inner: int = setting(2048, "hidden size of the feed-forward nets (d_ff)", "[1, inf)")
    dropout: float = setting(0.1, "dropout on the output of each sub-layer and on the embeddings", "[0, 1)")
    norm: str = setting("post", "layer norm after each sub-layer, as published, or before it", tuple(JOINS))
    positions: str = setting(
        "sinusoid",
        "position encoding; rotary: Su et al. 2021, alibi: Press et al. 2022",
        ("sinusoid", "rotary", "alibi"),
    )
    tied: bool = setting(True, "share the matrix of input and output")
    window: int = setting(
        0, "with data.streams, number of words before a row that are read again as its context", "[0, inf)"
    )


class TransformerLanguageState(NamedTuple):
    past: tuple[Past, ...]  # of each layer: keys and values of the words so far, [B, H, t, D/H]
    position: Tensor  # [B], of the next word; the same for every row


class TransformerLanguageModel(TextModel):
    """A stack of causal layers that writes a text word by word."""

    attention_layout = AttentionLayout(query="current")

    def __init__(self, config: TransformerLanguageConfig) -> None:
        super().__init__()
        self.config = config
        join = partial(JOINS[config.norm], config.width, config.dropout)
        causal = Causal(NORMALISERS[config.normaliser])
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.place = PLACES[config.positions](config)
        # Words that a row of a stream reads again come first. Distances count from the first key instead.
        self.first = config.window if config.positions == "sinusoid" else 0
        self.layers = nn.ModuleList(
            TransformerLayer(
                SelfAttention(Heads(config.width, config.heads), Attention(self_score(config), causal)),
                None,
                FeedForward(config.width, config.inner),
                join,
            )
            for _ in range(config.layers)
        )
        self.norm = last_norm(config.norm, config.width)
        self.output = Linear(config.width, config.vocabulary, bias=False)
        self.dropout = Dropout(config.dropout)
        for vectors in (self.embed, self.output):
            nn.init.normal_(vectors.weight, std=config.width**-0.5)
        if config.tied:
            self.output.weight = self.embed.weight

    def start(self, rows: int) -> TransformerLanguageState:
        """Nothing written yet."""
        heads, weight = self.config.heads, self.embed.weight
        none = weight.new_zeros(rows, heads, 0, self.config.width // heads)  # [B, H, 0, D/H]
        past = tuple(Past((none, none)) for _ in self.layers)
        return TransformerLanguageState(past, torch.full((rows,), self.first, device=weight.device))

    def decode(self, words: Tensor, state: TransformerLanguageState) -> tuple[Tensor, TransformerLanguageState]:
        """words [B, T] after those in the past -> what the output layer reads, [B, T, D], and the past with them."""
        units, past = self.run_layers(words, state.position[:1], state.past)
        return units, TransformerLanguageState(past, state.position + words.shape[1])

    def hidden(self, target: Tensor) -> Tensor:
        """What the output layer reads for target [B, T]: [B, T, D], all steps at once under the causal mask."""
        check_target(target)
        return self.run_layers(shift_right(target), self.first)[0]

    def stream(self, rows: int) -> Tensor:
        """No words yet: padding [B, window]."""
        check_bound("window", self.config.window)
        return torch.full((rows, self.config.window), PAD, device=self.embed.weight.device)

    def read(self, words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The last words [B, window] are read again before words [B, T], since a position counts from there."""
        words = torch.cat([state, words], dim=1)  # [B, window + T]
        units, _ = self.run_layers(words, 0, mask=(words != PAD)[:, None, None])
        return units[:, state.shape[1] :], words[:, -state.shape[1] :]

    def run_layers(
        self, words: Tensor, first: Tensor | int, past: tuple[Past, ...] = (), mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Past, ...]]:
        """words [B, T] from position `first` on, mask [B, 1, 1, T] -> [B, T, D], and each layer's past with them."""
        positions = first + torch.arange(words.shape[1], device=words.device)  # [T]
        x, places = self.place(self.embed(words) * math.sqrt(self.config.width), positions)  # [B, T, D]
        x, after = self.dropout(x), []
        for layer, before in zip(self.layers, past or [EMPTY_PAST] * len(self.layers), strict=True):
            x, written = layer(x, before, mask=mask, places=places)
            after.append(written)
        return self.norm(x), tuple(after)


PRESETS = {
    "paper": TransformerLanguageConfig(),
    "small": TransformerLanguageConfig(width=256, layers=4, heads=4, inner=1024, dropout=0.3, norm="pre"),
    "tiny": TransformerLanguageConfig(width=96, layers=2, heads=4, inner=192, dropout=0.0, norm="pre"),
}
VARIANTS = {
    "post": replace(PRESETS["tiny"], norm="post"),
    "untied": replace(PRESETS["tiny"], tied=False),
    "rotary": replace(PRESETS["tiny"], positions="rotary"),
    "alibi": replace(PRESETS["tiny"], positions="alibi"),
    "cosine-sparsemax": replace(PRESETS["tiny"], score="cosine", normaliser="sparsemax"),
}
COSINE: dict[str, object] = {"clip": 1.0, "schedule": "cosine", "best_by": "loss"}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {**transformer.NOAM, "batch_tokens": 16_384, "best_by": "loss"},
    "small": {**COSINE, "rate": 0.001, "batch_tokens": 4_096, "warmup": 400, "epochs": 20},
    "tiny": {**COSINE, "rate": 0.003, "batch_tokens": 2_048, "warmup": 100, "epochs": 6},
}
