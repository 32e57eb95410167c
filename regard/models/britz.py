"""Britz, Goldie, Luong and Le, "Massive exploration of neural machine translation architectures" (EMNLP 2017).

What was new: not a model but a measurement. One attentional encoder-decoder was trained in hundreds of variants, one
choice changed at a time: cell, depth, direction, residual connections, the form and the size of the attention score.

    h_j = [->h_j ; <-h_j]                                    stacks of GRUs or LSTMs, one for each direction
    x^{l+1} = f(x^l) + x^l                                   residual: the input of layer l + 1         (section 4.3)
    x^{l+1} = f(x^l) + sum_{k <= l} x^k                      dense residual

    s_t = top output of stack([E y_{t-1} ; c_{t-1}])         the first state and c_0 are zero
    score(h_j, s_t) = <W_1 h_j, W_2 s_t>                     multiplicative, not scaled                 (section 4.5)
    score(h_j, s_t) = v^T tanh(W_1 h_j + W_2 s_t)            additive; W_1 and W_2 have biases in both
    c_t = sum_j softmax(score)_j h_j
    p(y_t) = softmax(W_o tanh(W [s_t ; c_t] + b) + b_o)

As in the released code, the raw context is fed to the next step, the two directions of a deep encoder meet only at the
top, a linear map precedes the first layer where residuals need another width, and biases of gates begin with one (all
of a GRU's, the forget gate's of an LSTM). The depth of the encoder counts the layers of both directions.
"""

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.products import Linear
from regard.core.scores import COMPARISONS
from regard.errors import ConfigError
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import GRULayer, StackedLSTM, reverse_words
from regard.models.contract import AttentionLayout, EncoderDecoder, check_batch

BRITZ_SCORES = ChainMap[str, Any]({"multiplicative": COMPARISONS["dot"]}, COMPARISONS)  # the paper's name of dot


@dataclass(frozen=True)
class BritzConfig(Settings):
    """The baseline of the paper's tables."""

    source_vocabulary: int = setting(37_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(37_000, "size of the target vocabulary", "[1, inf)")
    embedding: int = setting(512, "embedding size (m)", "[1, inf)")
    width: int = setting(512, "size of the state of a layer (n)", "[1, inf)")
    cell: str = setting("gru", "recurrent cell", ("gru", "lstm"))
    encoder_layers: int = setting(2, "number of layers in the encoder, those of both directions together", "[1, 10000]")
    decoder_layers: int = setting(2, "number of layers in the decoder", "[1, 10000]")
    direction: str = setting("both", "order in which the source is read", ("both", "forward", "reversed"))
    encoder_residual: str = setting("none", "residual connections of the encoder", ("none", "residual", "dense"))
    decoder_residual: str = setting("none", "residual connections of the decoder", ("none", "residual", "dense"))
    score: str = setting("multiplicative", "score function of projected queries and keys", BRITZ_SCORES)
    attention: int = setting(512, "size of projected queries and keys", "[1, inf)")
    dropout: float = setting(0.2, "dropout on the input of each layer", "[0, 1)")
    spread: float = setting(0.04, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class BritzState(NamedTuple):
    memory: Memory
    layers: tuple[Any, ...]  # the state of each layer
    context: Tensor  # [B, Dv], c_{t-1}


class Britz(EncoderDecoder):
    """Recurrent stacks with attention; the query is the state after the step."""

    attention_layout = AttentionLayout(query="current", cross=("attention",))

    def __init__(self, config: BritzConfig) -> None:
        super().__init__()
        m, n, ways = config.embedding, config.width, 2 if config.direction == "both" else 1
        if config.encoder_layers % ways:
            raise ConfigError(
                f"model.encoder_layers counts the layers of both directions and must be even; got "
                f"{config.encoder_layers}. Set model.direction = 'forward' for an odd number."
            )
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, m)
        stacks = [Stack(config, m, config.encoder_layers // ways, config.encoder_residual) for _ in range(ways)]
        self.forwards = None if config.direction == "reversed" else stacks[0]
        self.backwards = None if config.direction == "forward" else stacks[-1]
        self.embed_target = nn.Embedding(config.target_vocabulary, m)
        self.decoder = Stack(config, m + ways * n, config.decoder_layers, config.decoder_residual)
        for layer in self.decoder.layers:
            layer.recurrence = "fed"  # type: ignore[assignment] # for `regard.explain`
        self.W_1 = Linear(ways * n, config.attention)
        self.W_2 = Linear(n, config.attention)
        self.attention = Attention(BRITZ_SCORES[config.score](config.attention))
        self.W = Linear(n + ways * n, n)
        self.output = Linear(n, config.target_vocabulary)  # W_o
        self.initialise(config.spread)

    @torch.no_grad()
    def initialise(self, spread: float) -> None:
        """Matrices uniform in [-spread, spread], biases zero, those of gates one."""
        for weights in filter(Tensor.dim, self.parameters()):  # a scalar, the strength of a cosine, keeps its value
            nn.init.uniform_(weights, -spread, spread) if weights.dim() > 1 else nn.init.zeros_(weights)
        n = self.config.width
        for layer in self.modules():
            if isinstance(layer, GRULayer):
                layer.W.bias[: 2 * n] = 1.0  # reset and update
            elif isinstance(layer, StackedLSTM):
                layer.W[0].bias[n : 2 * n] = 1.0  # type: ignore[operator] # forget

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S]: states [B, S, Dv] as values, in the order of the source, and W_1 h_j as keys."""
        check_batch(source, lengths)
        x, read = self.embed(source), []  # [B, S, m]
        if self.forwards is not None:
            read.append(self.forwards(x))  # [B, S, n]
        if self.backwards is not None:
            read.append(reverse_words(self.backwards(reverse_words(x, lengths)), lengths))  # [B, S, n]
        states = torch.cat(read, dim=-1)  # [B, S, Dv]
        return Memory(self.W_1(states), states, padding_mask(lengths, source.shape[1]))

    def start(self, memory: Memory) -> BritzState:
        """Zero states and no context: the source reaches the decoder through attention alone."""
        rows, _, wide = memory.values.shape
        return BritzState(memory, self.decoder.start(rows), self.embed.weight.new_zeros(rows, wide))

    def decode(self, words: Tensor, state: BritzState) -> tuple[Tensor, BritzState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns what the softmax layer reads [B, T, n]."""
        (hidden, context), state = recur(self.recurrent_step, self.embed_target(words), state)  # [B, T, n], [B, T, Dv]
        return torch.tanh(self.W(torch.cat([hidden, context], dim=-1))), state

    def recurrent_step(self, embedded: Tensor, state: BritzState) -> tuple[tuple[Tensor, Tensor], BritzState]:
        """s_t = stack([E y_{t-1} ; c_{t-1}]);  c_t = att(s_t). embedded [B, m] is E y_{t-1}."""
        hidden, layers = self.decoder.step(torch.cat([embedded, state.context], dim=-1), state.layers)  # [B, n]
        context = self.attention(self.W_2(hidden)[:, None], state.memory).context.squeeze(1)  # [B, Dv]
        context = context.to(state.context.dtype)
        return (hidden, context), BritzState(state.memory, layers, context)


Layer = Any  # a GRULayer or a StackedLSTM of one layer
CELLS: dict[str, Callable[[int, int, float], Layer]] = {
    "gru": GRULayer,
    "lstm": lambda wide, width, dropout: StackedLSTM(wide, width, 1, dropout, bias=True),
}
# What layer l + 1 reads: (f(x^l), [x^0 ... x^l]) -> x^{l+1}.
RESIDUALS: dict[str, Callable[[Tensor, list[Tensor]], Tensor]] = {
    "none": lambda output, inputs: output,
    "residual": lambda output, inputs: output + inputs[-1],
    "dense": lambda output, inputs: sum(inputs, start=output),
}


class Stack(nn.Module):
    """Recurrent layers of one width, each of which reads what `RESIDUALS` makes of those below."""

    def __init__(self, config: BritzConfig, input_width: int, layers: int, residual: str) -> None:
        super().__init__()
        n, plain = config.width, residual == "none"
        self.join = RESIDUALS[residual]
        self.enter = nn.Identity() if plain or input_width == n else Linear(input_width, n)
        widths = [input_width if plain else n, *[n] * (layers - 1)]
        self.layers = nn.ModuleList(CELLS[config.cell](wide, n, config.dropout) for wide in widths)

    def start(self, rows: int) -> tuple[Any, ...]:
        """Zero states of all layers."""
        return tuple(layer.start(rows) for layer in self.layers)  # type: ignore[operator]

    def step(self, x: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """One step: x [B, m] -> x^L [B, n], and the states of all layers."""
        inputs, after = [self.enter(x)], []
        for layer, before in zip(self.layers, state, strict=True):
            output, last = layer.step(layer.project(inputs[-1]), before)  # type: ignore[operator]
            inputs.append(self.join(output, inputs))
            after.append(last)
        return inputs[-1], tuple(after)

    def forward(self, x: Tensor) -> Tensor:
        """All steps from zero states, layer by layer: x [B, S, m] -> x^L [B, S, n]."""
        inputs = [self.enter(x)]
        for layer, zero in zip(self.layers, self.start(x.shape[0]), strict=True):
            output, _ = layer(inputs[-1], zero)
            inputs.append(self.join(output, inputs))
        return inputs[-1]


# The paper's [-0.04, 0.04] is made for millions of updates; in short runs larger weights learned sooner.
PRESETS = {
    "paper": BritzConfig(),
    "small": BritzConfig(embedding=256, dropout=0.3, spread=0.1),
    "tiny": BritzConfig(embedding=64, width=96, decoder_layers=1, attention=64, dropout=0.0, spread=0.3),
}
VARIANTS = {
    "lstm": replace(PRESETS["tiny"], cell="lstm"),
    "additive": replace(PRESETS["tiny"], score="additive"),
    "forward": replace(PRESETS["tiny"], direction="forward"),
    "reversed": replace(PRESETS["tiny"], direction="reversed", cell="lstm", encoder_layers=1),
    "deep": replace(PRESETS["tiny"], encoder_layers=4, decoder_layers=2),
    "residual": replace(
        PRESETS["tiny"], cell="lstm", encoder_layers=4, encoder_residual="residual",
        decoder_layers=2, decoder_residual="residual",
    ),
    "dense": replace(
        PRESETS["tiny"], encoder_layers=4, encoder_residual="dense", decoder_layers=2, decoder_residual="dense"
    ),
}  # fmt: skip

# Adam at 0.0001, without decay; the gradient is clipped at 5.
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"rate": 0.0001, "clip": 5.0},
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.005, "clip": 1.0},
}
