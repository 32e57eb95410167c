"""The encoder-decoders before attention: everything the decoder knows of the source is one vector of fixed size.

Cho et al., "Learning phrase representations using RNN encoder-decoder" (EMNLP 2014): the GRU, and a summary c that
enters every step of the decoder.

    h_t = z * h_{t-1} + (1 - z) * h~_t;  h~_t = tanh(W e(x_t) + U (r * h_{t-1}))              encoder     (eq. 7-8)
    c = tanh(V h_S);  h'_0 = tanh(V' c)                                                       decoder     (appendix A.1)
    h'_t = z' * h'_{t-1} + (1 - z') * h~'_t;  h~'_t = tanh(W' e(y_{t-1}) + r' * (U' h'_{t-1} + C c))
    p(y_t) = softmax(G_l G_r maxout(O_h h'_t + O_y e(y_{t-1}) + O_c c))

Sutskever, Vinyals and Le, "Sequence to sequence learning with neural networks" (NIPS 2014): stacked LSTMs, the source
read backwards, and the summary v used only once, as the decoder's first state.

    v = (h^1_S, c^1_S, ..., h^L_S, c^L_S)                  the last states of all L layers of the encoder
    h^L_t = top state of LSTM(E y_{t-1}), which starts from v;  p(y_t) = softmax(W h^L_t)

They are the models that attention was invented to improve. Their memory has one slot, so the attention weight is always
exactly one: a trace shows the one vector, at every step (Cho) or at the start (Sutskever). RNNencdec is the baseline of
Bahdanau et al. 2015: their decoder with c_i fixed to the last encoder state.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.cells import update_keeps
from regard.core.products import Linear
from regard.core.scores import uniform
from regard.kernels.choose import Dropout, gru_reset_after, linear_over_steps
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import GateInputs, GRUEncoder, LSTMState, StackedLSTM, reverse_words
from regard.models.bahdanau import RECIPES, Bahdanau, Decoder, Sizes, initialise, maxout, rnnsearch_config
from regard.models.contract import AttentionLayout, EncoderDecoder, check_batch
from regard.symbols import START


@dataclass(frozen=True)
class ChoConfig(Settings):
    """The RNN encoder-decoder of Cho 2014a."""

    source_vocabulary: int = setting(15_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(15_000, "size of the target vocabulary", "[1, inf)")
    embedding: int = setting(100, "embedding size; also the rank of the output matrix", "[1, inf)")
    width: int = setting(1000, "size of the recurrent state and of the summary (n)", "[1, inf)")
    readout: int = setting(500, "maxout units before the softmax (l)", "[1, inf)")
    dropout: float = setting(0.0, "dropout on embeddings and readout; the paper has none", "[0, 1)")
    spread: float = setting(0.01, "standard deviation of the initial weights that are not recurrent", "[0, inf)")


class ChoState(NamedTuple):
    memory: Memory
    hidden: Tensor  # [B, n], h'_{t-1}


class Cho(EncoderDecoder):
    """A GRU reads the source, another one writes with the same c at every step."""

    recurrence = "gru"  # for `regard.explain`
    attention_layout = AttentionLayout(query="previous", cross=("attention",))

    def __init__(self, config: ChoConfig) -> None:
        super().__init__()
        m, n = config.embedding, config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, m)
        self.encoder = GRUEncoder("paper", m, n, directions=1, blend=update_keeps)
        self.V = Linear(n, n)  # the summary c = tanh(V h_S)
        self.initial = Linear(n, n)  # h'_0 = tanh(V' c)
        self.attention = Attention(uniform)  # reads only the shape of its query
        self.embed_target = nn.Embedding(config.target_vocabulary, m, padding_idx=START)  # y_0 is the zero vector
        self.W = GateInputs(m, n)  # W' of the reset gate, the update gate and the candidate
        self.C = Linear(n, 3 * n, bias=False)  # the same of C
        self.U = Linear(n, 3 * n, bias=False)  # the same of U'
        self.O_h = Linear(n, 2 * config.readout)
        self.O_y = Linear(m, 2 * config.readout, bias=False)
        self.O_c = Linear(n, 2 * config.readout, bias=False)
        self.G_r = Linear(config.readout, m, bias=False)  # the output matrix is G_l G_r, of rank m
        self.output = Linear(m, config.target_vocabulary)  # G_l
        self.dropout = Dropout(config.dropout)
        initialise(self, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S] into one slot [B, 1, n]."""
        check_batch(source, lengths)
        _, final = self.encoder(self.dropout(self.embed(source)), lengths)  # [B, n]
        return self.attention.remember(torch.tanh(self.V(final))[:, None])

    def start(self, memory: Memory) -> ChoState:
        """h'_0 = tanh(V' c)."""
        hidden = torch.tanh(self.initial(memory.values[:, 0]))  # [B, n]
        return ChoState(memory, hidden.to(self.initial.weight.dtype))

    def decode(self, words: Tensor, state: ChoState) -> tuple[Tensor, ChoState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns units of the readout [B, T, m]."""
        embedded = self.dropout(self.embed_target(words))  # [B, T, m]
        context = self.attention(embedded, state.memory).context  # [B, T, n]: the same c at every step

        def step(inputs: tuple[Tensor, Tensor], hidden: Tensor) -> tuple[Tensor, Tensor]:
            """h'_t = GRU(h'_{t-1}, y_{t-1}, c); the reset gate acts on U' h' + C c together."""
            input_gates, summary = inputs  # W e(y) and C c, [B, 3n]
            hidden = gru_reset_after(input_gates, self.U(hidden) + summary, hidden, update_keeps)
            return hidden, hidden

        summaries = linear_over_steps(self.C, context)  # [B, T, 3n]
        hiddens, hidden = recur(step, (self.W(embedded), summaries), state.hidden)  # [B, T, n]
        units = self.O_h(hiddens) + self.O_y(embedded) + linear_over_steps(self.O_c, context)  # [B, T, 2l]
        return self.G_r(self.dropout(maxout(units))), state._replace(hidden=hidden)


@dataclass(frozen=True)
class RNNencdecConfig(Sizes):
    """RNNencdec-50, the baseline of Bahdanau 2015."""

    cell: str = setting("paper", "GRU with the reset before the product, or torch's, after it", ("paper", "torch"))


class RNNencdec(Bahdanau):
    """RNNsearch with c_i fixed to the last forward state: Bahdanau's decoder over a memory of one slot."""

    def __init__(self, config: RNNencdecConfig) -> None:
        rnnsearch = rnnsearch_config(config)
        super().__init__(rnnsearch, Decoder(rnnsearch, config.width, Attention(uniform)), directions=1)
        self.config = config

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S] into one slot, the last forward state [B, 1, n], from which s_0 comes as well."""
        check_batch(source, lengths)
        _, final = self.encoder(self.dropout(self.embed(source)), lengths)  # [B, n]
        return self.decoder.attention.remember(final[:, None], summary=final)


@dataclass(frozen=True)
class SutskeverConfig(Settings):
    """The LSTM sequence-to-sequence model of Sutskever 2014."""

    source_vocabulary: int = setting(160_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(80_000, "size of the target vocabulary", "[1, inf)")
    width: int = setting(1000, "size of the embeddings and of the state of a layer (n)", "[1, inf)")
    layers: int = setting(4, "number of LSTM layers in the encoder and in the decoder", "[1, 10000]")
    reverse: bool = setting(True, "read the source words backwards")
    bias: bool = setting(True, "use biases in the LSTM")
    dropout: float = setting(
        0.0, "dropout on the input of each layer and of the output layer; the paper has none", "[0, 1)"
    )
    spread: float = setting(0.08, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class SutskeverState(NamedTuple):
    lstm: LSTMState


class Sutskever(EncoderDecoder):
    """One LSTM reads the source into v, another starts from v and sees no more of the source.

    The paper's first decoder input is the END of the source; here START takes its place, with its own vector.
    """

    attention_layout = AttentionLayout(query="current", cross=("attention",))

    def __init__(self, config: SutskeverConfig) -> None:
        super().__init__()
        n = config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, n)
        self.encoder = StackedLSTM(n, n, config.layers, config.dropout, bias=config.bias)
        self.attention = Attention(uniform)  # reads only the shape of its query
        self.embed_target = nn.Embedding(config.target_vocabulary, n)
        self.decoder = StackedLSTM(n, n, config.layers, config.dropout, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        self.output = Linear(n, config.target_vocabulary, bias=False)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S], words reversed and END last, into one slot of all states [B, 1, 2 L n]."""
        check_batch(source, lengths)
        words = reverse_words(source, lengths - 1) if self.config.reverse else source  # END keeps its place
        _, state = self.encoder(self.embed(words), self.encoder.start(words.shape[0]), lengths)
        return self.attention.remember(torch.cat([*state.hidden, *state.cell], dim=-1)[:, None])

    def start(self, memory: Memory) -> SutskeverState:
        """The one attention call: the slot becomes the decoder's state, layer by layer."""
        slot = self.attention(memory.keys, memory).context[:, 0].to(memory.values.dtype)  # [B, 2 L n]
        states = slot.split(self.config.width, dim=-1)  # [B, n] each
        return SutskeverState(LSTMState(states[: self.config.layers], states[self.config.layers :]))

    def step(self, token: Tensor, state: SutskeverState) -> tuple[Tensor, SutskeverState]:
        """token [B] -> logits [B, V]."""
        top, lstm = self.decoder.step(self.decoder.project(self.embed_target(token)), state.lstm)  # [B, n]
        return self.output(self.dropout(top)), SutskeverState(lstm)

    def decode(self, words: Tensor, state: SutskeverState) -> tuple[Tensor, SutskeverState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns top states [B, T, n]."""
        top, lstm = self.decoder(self.embed_target(words), state.lstm)
        return self.dropout(top), SutskeverState(lstm)


CHO_PRESETS = {
    "paper": ChoConfig(),
    "small": ChoConfig(embedding=256, width=512, readout=256, dropout=0.3, spread=0.05),
    "tiny": ChoConfig(embedding=64, width=128, readout=64, spread=0.1),
}
RNNENCDEC_PRESETS = {
    "paper": RNNencdecConfig(),
    "small": RNNencdecConfig(embedding=256, width=512, readout=256, dropout=0.3, spread=0.05),
    "tiny": RNNencdecConfig(embedding=64, width=128, readout=64, spread=0.1),
}
RNNENCDEC_VARIANTS = {"torch": replace(RNNENCDEC_PRESETS["tiny"], cell="torch")}
SUTSKEVER_PRESETS = {
    "paper": SutskeverConfig(),
    "small": SutskeverConfig(width=512, layers=2, dropout=0.3),
    "tiny": SutskeverConfig(width=128, layers=2),
}
SUTSKEVER_VARIANTS = {
    "forward": replace(SUTSKEVER_PRESETS["tiny"], reverse=False),
}

# Cho: Adadelta, without clipping. RNNencdec: as Bahdanau. Sutskever: SGD from 0.7, halved every half epoch after the
# fifth, clipped at 5 by the sentence.
RNNENCDEC_RECIPES = RECIPES
CHO_RECIPES: dict[str, dict[str, object]] = {**RECIPES, "paper": {**RECIPES["paper"], "clip": 0.0}}
SUTSKEVER_PAPER = {"optimiser": "sgd", "rate": 0.7, "schedule": "halving", "halve_every": 0.5, "clip": 5.0}
SUTSKEVER_RECIPES: dict[str, dict[str, object]] = {**RECIPES, "paper": {**SUTSKEVER_PAPER, "normalise": "sentences"}}
