"""Cheng, Dong and Lapata, "Long short-term memory-networks for machine reading" (EMNLP 2016).

What was new: an LSTM that does not compress its past into one state. It keeps the hidden and the memory vector of every
word on two tapes and attends to all of them, with the same weights on both, before each step (intra-attention):

    a_i = v^T tanh(W_h h_i + W_x x_t + W_s h~_{t-1});  s = softmax(a) over i < t                       (section 3.2)
    [h~_t ; c~_t] = sum_i s_i [h_i ; c_i]
    [i ; f ; o ; c^] = [sig ; sig ; sig ; tanh](W [h~_t ; x_t]);  c_t = f c~_t + i c^;  h_t = o tanh(c_t)

That is `LSTMNLayer`; a stacked layer reads the h_t of the one below and has its own tapes. At the first step the tapes
are empty and h~, c~ are zero, as with the slot of zeros that the released code begins with (and may attend to later).

The language model is a stack of layers. An encoder and a decoder are joined in two ways. Shallow fusion: attention over
the source, with the state before the step as the query as in Bahdanau, enters the decoder as input. Deep fusion: the
decoder attends to both tapes of the source, the hidden vectors g_j and the memory vectors a_j (gamma and alpha in the
paper), and the context enters the memory through another gate:

    b_j = u^T tanh(W_g g_j + W_x x_t + W_l g~_{t-1});  [g~_t ; a~_t] = sum_j softmax(b)_j [g_j ; a_j]   (section 4)
    r_t = sig(W_r [g~_t ; x_t]);  c_t = r_t a~_t + f c~_t + i c^
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.normalise import NORMALISERS
from regard.core.past import Past
from regard.core.products import Linear
from regard.core.scores import COMPARISONS, SCORES
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.models import lstm_lm
from regard.models.contract import AttentionLayout, EncoderDecoder, TextModel, check_batch, check_bound

# --- the layer, section 3.2


class LayerState(NamedTuple):
    """What a layer carries from step to step."""

    past: Past  # W_h h_i [B, t, n] as keys, [h_i ; c_i] [B, t, 2n] as values, of all steps so far
    hidden: Tensor  # [B, n], h_{t-1}
    summary: Tensor  # [B, n], h~_{t-1}
    position: Tensor  # [B], steps so far


class LSTMNLayer(nn.Module):
    """One layer. What depends on the input alone, `input_gates` = W_x x + b, is computed for all steps at once."""

    recurrence = "lstmn"  # for `regard.explain`

    def __init__(self, input_width: int, width: int, span: int, recall: bool, attention: Attention) -> None:
        super().__init__()
        self.width, self.span = width, span
        self.W_x = Linear(input_width, 5 * width)  # for the query, then for the gates i, f, o and the candidate
        self.W_h = Linear(width, width, bias=False)
        self.W_s = Linear(width, width, bias=False) if recall else None
        self.U = Linear(width, 4 * width, bias=False)  # the columns of W that act on h~
        self.attention = attention

    def start(self, rows: int) -> LayerState:
        """Empty tapes, and h~_0 = 0."""
        nothing = self.U.weight.new_zeros(rows, self.width)
        past = Past((nothing.new_zeros(rows, 0, self.width), nothing.new_zeros(rows, 0, 2 * self.width)))
        return LayerState(past, nothing, nothing, torch.zeros(rows, dtype=torch.long, device=nothing.device))

    def step(self, input_gates: Tensor, state: LayerState, added: Tensor | float = 0.0) -> tuple[Tensor, LayerState]:
        """input_gates [B, 5n] -> [h_t ; c_t] [B, 2n]. `added` [B, n] to c_t is what deep fusion brings."""
        query, gates = input_gates.split([self.width, 4 * self.width], dim=-1)  # W_x x_t [B, n], [B, 4n]
        if self.W_s is not None:
            query = query + self.W_s(state.summary)
        keys, values = state.past.tensors
        memory = Memory(keys, values, self.visible(state))
        summary, cell = self.attention(query[:, None], memory).context[:, 0].chunk(2, dim=-1)  # h~_t, c~_t [B, n]
        i, f, o, new = (gates + self.U(summary)).chunk(4, dim=-1)  # W [h~_t ; x_t]
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(new) + added
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        both = torch.cat([hidden, cell], dim=-1)  # [B, 2n]
        past = state.past.append(self.W_h(hidden)[:, None], both[:, None])
        return both, LayerState(past, hidden, summary, state.position + 1)

    def visible(self, state: LayerState) -> Tensor | None:
        """The filled slots, or the last `span` of them: [B, 1, S]."""
        if not self.span:
            return state.past.mask
        ages = state.past.ages  # [1, S]
        return ((ages > 0) & (ages <= state.position.clamp(max=self.span)[:, None]))[:, None]


def make_attention(config: Any) -> Attention:
    """Attention whose queries and keys are projected by the layer that attends."""
    return Attention(COMPARISONS[config.score](config.width), NORMALISERS[config.normaliser])


class Stack(nn.ModuleList):
    """Layers, each of which reads the hidden vectors of the one below."""

    def __init__(self, config: Any, span: int = 0, recall: bool = True) -> None:
        widths = [config.embedding, *[config.width] * (config.layers - 1)]
        super().__init__(LSTMNLayer(wide, config.width, span, recall, make_attention(config)) for wide in widths)

    def start(self, rows: int) -> tuple[LayerState, ...]:
        """Empty tapes in all layers."""
        return tuple(layer.start(rows) for layer in self)  # type: ignore[operator]

    def forward(
        self, x: Tensor, states: tuple[LayerState, ...], dropout: nn.Module
    ) -> tuple[list[Tensor], tuple[LayerState, ...]]:
        """Layer by layer, and in each word by word: x [B, T, m] -> [h ; c] of each layer [B, T, 2n], and its state."""
        written, after = [], []
        for layer, state in zip(self, states, strict=True):
            both, state = recur(layer.step, layer.W_x(dropout(x)), state)  # type: ignore[arg-type, operator] # [B, T, 2n]
            x = both[..., : layer.width]  # [B, T, n]
            written.append(both)
            after.append(state)
        return written, tuple(after)


# --- the language model, section 5.1


@dataclass(frozen=True)
class LSTMNLanguageConfig(Settings):
    """The language model of the paper, on the Penn Treebank."""

    vocabulary: int = setting(10_000, "size of the vocabulary", "[1, inf)")
    embedding: int = setting(150, "embedding size (m)", "[1, inf)")
    width: int = setting(300, "size of a layer's hidden and memory vectors (n)", "[1, inf)")
    layers: int = setting(1, "number of layers, one to three in the paper", "[1, 10000]")
    span: int = setting(0, "number of last words that may be attended to; 0 = all", "[0, inf)")
    score: str = setting("additive", "score function of projected queries and keys", COMPARISONS)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    dropout: float = setting(0.0, "dropout on the input of each layer and on the top states", "[0, 1)")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class LSTMNLanguageState(NamedTuple):
    layers: tuple[LayerState, ...]


class LSTMNLanguageModel(TextModel):
    """LSTMN layers that write a text word by word."""

    attention_layout = AttentionLayout(query="current")

    def __init__(self, config: LSTMNLanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.layers = Stack(config, config.span)
        self.dropout = nn.Dropout(config.dropout)
        self.output = Linear(config.width, config.vocabulary)
        for weights in filter(Tensor.dim, self.parameters()):  # a scalar, the strength of a cosine, keeps its value
            nn.init.uniform_(weights, -config.spread, config.spread)

    def start(self, rows: int) -> LSTMNLanguageState:
        """Empty tapes."""
        return LSTMNLanguageState(self.layers.start(rows))

    def decode(self, words: Tensor, state: LSTMNLanguageState) -> tuple[Tensor, LSTMNLanguageState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns top hidden vectors [B, T, n]."""
        written, layers = self.layers(self.embed(words), state.layers, self.dropout)
        return self.dropout(written[-1][..., : self.config.width]), LSTMNLanguageState(layers)

    def cut(self, state: LSTMNLanguageState) -> LSTMNLanguageState:
        """The state with the last `span` slots of its tapes, which are all that the next word may attend to."""
        span = self.config.span
        check_bound("span", span)
        return LSTMNLanguageState(tuple(layer._replace(past=layer.past.last(span)) for layer in state.layers))


LANGUAGE_PRESETS = {
    "paper": LSTMNLanguageConfig(),
    "small": LSTMNLanguageConfig(dropout=0.3, spread=0.2),
    "tiny": LSTMNLanguageConfig(embedding=64, width=96, spread=0.2),
}
LANGUAGE_VARIANTS = {
    "two-layers": replace(LANGUAGE_PRESETS["tiny"], layers=2),
    "span": replace(LANGUAGE_PRESETS["tiny"], span=3),
    "cosine-sparsemax": replace(LANGUAGE_PRESETS["tiny"], score="cosine", normaliser="sparsemax"),
}
LANGUAGE_RECIPES: dict[str, dict[str, object]] = {
    **lstm_lm.RECIPES,  # the baseline and this model are trained alike, but for the paper's own numbers
    "paper": {
        "optimiser": "sgd", "rate": 0.65, "clip": 5.0, "batch_tokens": 1_024, "normalise": "sentences",
        "schedule": "decay", "epochs": 30, "best_by": "loss",
    },
}  # fmt: skip


# --- the encoder-decoder, section 4


@dataclass(frozen=True)
class LSTMNConfig(Settings):
    """The encoder-decoder; the sizes are those of the released code, which is for textual entailment."""

    source_vocabulary: int = setting(30_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(30_000, "size of the target vocabulary", "[1, inf)")
    embedding: int = setting(300, "embedding size (m)", "[1, inf)")
    width: int = setting(450, "size of a layer's hidden and memory vectors (n)", "[1, inf)")
    layers: int = setting(1, "number of layers in the encoder and in the decoder", "[1, 10000]")
    fusion: str = setting("deep", "fusion of encoder and decoder", ("shallow", "deep"))
    released: bool = setting(False, "as in the released code, the encoder's query leaves out its last summary h~")
    score: str = setting("additive", "score function of projected queries and keys", COMPARISONS)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    dropout: float = setting(0.0, "dropout on the input of each layer and on the top states", "[0, 1)")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class LSTMNState(NamedTuple):
    memory: Memory
    layers: tuple[LayerState, ...]
    glimpse: Tensor  # [B, L, n], g~_{t-1}: what each layer last saw of the source; zero in shallow fusion


class LSTMN(EncoderDecoder):
    """An LSTMN that reads, an LSTMN that writes, and the fusion between them.

    As in the released code the decoder begins with empty tapes: the source reaches it through attention alone.
    """

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        m, n = config.embedding, config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, m)
        self.encoder = Stack(config, recall=not config.released)
        self.embed_target = nn.Embedding(config.target_vocabulary, m)
        self.decoder = Stack(config)
        self.fusion = FUSIONS[config.fusion](config)
        self.attention_layout: AttentionLayout = self.fusion.attention_layout
        self.dropout = nn.Dropout(config.dropout)
        self.output = Linear(n, config.target_vocabulary)
        for weights in filter(Tensor.dim, self.parameters()):  # a scalar, the strength of a cosine, keeps its value
            nn.init.uniform_(weights, -config.spread, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S] onto the tapes; what of them can be attended to is the fusion's choice."""
        check_batch(source, lengths)
        written, _ = self.encoder(self.embed(source), self.encoder.start(len(source)), self.dropout)  # [B, S, 2n] each
        return self.fusion.remember(written, padding_mask(lengths, source.shape[1]))

    def start(self, memory: Memory) -> LSTMNState:
        """Empty tapes, and nothing seen of the source yet."""
        layers = self.decoder.start(len(memory.keys))
        return LSTMNState(memory, layers, layers[0].hidden.new_zeros(len(memory.keys), len(layers), self.config.width))

    def decode(self, words: Tensor, state: LSTMNState) -> tuple[Tensor, LSTMNState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns top hidden vectors [B, T, n]."""
        x, layers, glimpses = self.embed_target(words), [], []
        for k, (layer, own) in enumerate(zip(self.decoder, state.layers, strict=True)):
            written, own, glimpse = self.fusion(k, layer, self.dropout(x), own, state.memory, state.glimpse[:, k])
            x = written[..., : self.config.width]  # [B, T, n]
            layers.append(own)
            glimpses.append(glimpse)
        return self.dropout(x), LSTMNState(state.memory, tuple(layers), torch.stack(glimpses, dim=1))


Fused = tuple[Tensor, LayerState, Tensor]  # [h ; c] of a decoder layer [B, T, 2n], its state, its last glimpse [B, n]


class Shallow(nn.Module):
    """Attention over the top hidden tape of the source with h_{t-1} of the first layer, which reads the context."""

    attention_layout = AttentionLayout(query="previous", cross=("fusion.attention",))

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        self.width = n = config.width
        # `additive` has its own projections: W_a h_{t-1}, U_a h_j.
        self.attention = Attention(SCORES[config.score](n, n, n), NORMALISERS[config.normaliser])
        self.C = Linear(n, 5 * n, bias=False)  # as a layer's W_x: the query and four gates

    def remember(self, tapes: list[Tensor], mask: Tensor) -> Memory:
        """Of L times [B, S, 2n], the last one's hidden vectors [B, S, n]."""
        return self.attention.remember(tapes[-1][..., : self.width], mask)

    def forward(self, k: int, layer: Any, x: Tensor, state: LayerState, memory: Memory, glimpse: Tensor) -> Fused:
        if k:
            return *recur(layer.step, layer.W_x(x), state), glimpse

        # The memory is part of the state: what a step leaves unchanged, `recur` differentiates once for all steps.
        def step(input_gates: Tensor, both: tuple[LayerState, Memory]) -> tuple[Tensor, tuple[LayerState, Memory]]:
            state, memory = both
            context = self.attention(state.hidden[:, None], memory).context[:, 0]  # [B, n]
            written, state = layer.step(input_gates + self.C(context), state)
            return written, (state, memory)

        written, (state, _) = recur(step, layer.W_x(x), (state, memory))
        return written, state, glimpse


class Deep(nn.Module):
    """Each layer of the decoder attends to both tapes of the same layer of the encoder."""

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        widths = [config.embedding, *[config.width] * (config.layers - 1)]
        self.layers = nn.ModuleList(SourceTapes(wide, config.width, make_attention(config)) for wide in widths)
        names = tuple(f"fusion.layers.{k}.attention" for k in range(config.layers))
        self.attention_layout = AttentionLayout(query="current", cross=names)

    def remember(self, tapes: list[Tensor], mask: Tensor) -> Memory:
        """L times [B, S, 2n] -> keys [B, L, S, n] and values [B, L, S, 2n]."""
        keys = [layer.W_g(rows[..., : layer.width]) for layer, rows in zip(self.layers, tapes, strict=True)]  # type: ignore[operator]
        return Memory(torch.stack(keys, dim=1), torch.stack(tapes, dim=1), mask)

    def forward(self, k: int, layer: Any, x: Tensor, state: LayerState, memory: Memory, glimpse: Tensor) -> Fused:
        own = Memory(memory.keys[:, k], memory.values[:, k], memory.mask)
        added, glimpse = self.layers[k](x, own, glimpse)  # [B, T, n]

        def step(inputs: tuple[Tensor, Tensor], state: LayerState) -> tuple[Tensor, LayerState]:
            return layer.step(inputs[0], state, inputs[1])

        return *recur(step, (layer.W_x(x), added), state), glimpse


class SourceTapes(nn.Module):
    """r_t a~_t for one layer. Its query depends on the input and its last context, not on the layer."""

    def __init__(self, input_width: int, width: int, attention: Attention) -> None:
        super().__init__()
        self.width = width
        self.W_x = Linear(input_width, 2 * width)  # for the query, then for the gate r
        self.W_g = Linear(width, width, bias=False)
        self.W_l = Linear(width, width, bias=False)
        self.W_r = Linear(width, width, bias=False)  # the columns of W_r that act on g~
        self.attention = attention

    def forward(self, x: Tensor, memory: Memory, glimpse: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, m], glimpse g~_{t-1} [B, n] -> what joins the memory vectors [B, T, n], and the last glimpse."""
        queries, gate = self.W_x(x).chunk(2, dim=-1)  # [B, T, n]

        def step(query: Tensor, state: tuple[Tensor, Memory]) -> tuple[Tensor, tuple[Tensor, Memory]]:
            glimpse, memory = state
            seen = self.attention((query + self.W_l(glimpse))[:, None], memory).context[:, 0]  # [B, 2n]
            return seen, (seen[:, : self.width], memory)

        seen, (glimpse, _) = recur(step, queries, (glimpse, memory))  # [B, T, 2n]
        glimpses, cells = seen.chunk(2, dim=-1)  # [B, T, n]
        return torch.sigmoid(gate + self.W_r(glimpses)) * cells, glimpse


FUSIONS: dict[str, Callable[[LSTMNConfig], Any]] = {"shallow": Shallow, "deep": Deep}


PRESETS = {
    "paper": LSTMNConfig(),
    "small": LSTMNConfig(embedding=256, width=384, dropout=0.3),
    "tiny": LSTMNConfig(embedding=64, width=96, spread=0.1),
}
VARIANTS = {
    "shallow": replace(PRESETS["tiny"], fusion="shallow"),
    "shallow-two-layers": replace(PRESETS["tiny"], fusion="shallow", layers=2),
    "deep-two-layers": replace(PRESETS["tiny"], layers=2),
    "released": replace(PRESETS["tiny"], released=True),
    "scaled-dot-entmax15": replace(PRESETS["tiny"], score="scaled-dot", normaliser="entmax15"),
}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"rate": 0.001, "clip": 5.0, "normalise": "sentences"},
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}
