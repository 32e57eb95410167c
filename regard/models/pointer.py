"""See, Liu and Manning, "Get to the point: summarization with pointer-generator networks" (ACL 2017).

What was new: the model need not know a word to write it. At every step it decides between writing a word of its
vocabulary and copying one that it attends to; coverage in the attention keeps it from copying the same words again.

    e_i = v^T tanh(W_h h_i + W_s s_t + w_c c_i + b);  a = softmax(e);  h* = sum_i a_i h_i           (eq. 1-3, 11)
    c_i = the sum of a_i over all steps before                                                     (eq. 10)
    P_vocab = softmax(V' (V [s_t ; h*] + b) + b')                                                  (eq. 4)
    p_gen = sigmoid(w_h h* + w_s s_t + w_x x_t + b)                                                (eq. 8)
    P(w) = p_gen P_vocab(w) + (1 - p_gen) sum of a_i over all i with x_i = w                       (eq. 9)

s_t in the attention and in p_gen is the cell and the output of the LSTM, and x_t = W_x [E y_{t-1} ; h*_{t-1}] + b, as
in the released code. Source and target share one vocabulary, E and all. The paper copies unknown words by temporary
numbers; here tokens are pieces, so that an unknown name is copied piece by piece.

The authors train without coverage first (c = 0: `model.coverage=false`). A short second phase has the coverage and its
loss: `train.start_from=RUN model.coverage=true train.coverage=1`.

`shortlist` gives the same encoder and decoder the output layer of Gulcehre et al., "Pointing the unknown words" (ACL
2016): only the K most frequent words can be written, one of them the unknown word, and a switch decides between this
shortlist and a place in the source. The location softmax is the attention.

    z = sigmoid(w^T (f + tanh(U f + b)) + b'),  f = tanh(W [s_t ; h*] + b)                           the switch
    P(w) = z P_short(w) + (1 - z) sum of a_i over all i with x_i = w            w in the shortlist
    P(w) = z P_short(unknown) / N + (1 - z) sum of a_i over all i with x_i = w  w one of the N other words

The paper trains the switch with a word of the shortlist always written and another one always pointed at, if it is in
the source; here P(w) is the sum of both ways. The unknown word is one of the N: at word level it is pointed at, and
`regard translate` replaces it by the source word.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.products import Linear
from regard.core.scores import Covered
from regard.errors import ConfigError
from regard.kernels.choose import Dropout
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import LSTMState, StackedLSTM, reverse_words
from regard.models.contract import AttentionLayout, EncoderDecoder, check_batch
from regard.symbols import UNKNOWN

LEAST = 1e-30  # of a probability whose logarithm is taken: most words cannot be copied from a source


@dataclass(frozen=True)
class PointerConfig(Settings):
    """The pointer-generator with coverage."""

    source_vocabulary: int = setting(50_000, "size of the vocabulary, which both languages share", "[1, inf)")
    target_vocabulary: int = setting(50_000, "the same size", "[1, inf)")
    embedding: int = setting(128, "embedding size (m)", "[1, inf)")
    width: int = setting(256, "size of an LSTM's state, in each direction (n)", "[1, inf)")
    attention: int = setting(512, "hidden size of the attention perceptron", "[1, inf)")
    coverage: bool = setting(True, "the score reads the coverage; false in the first of the paper's two phases")
    tied: str = setting("all", "source and target share one vocabulary and one embedding matrix", ("all",))
    dropout: float = setting(0.0, "dropout on embeddings and readout; the paper has none", "[0, 1)")
    spread: float = setting(0.02, "initial weights are uniform in [-spread, spread]", "[0, inf)")
    shortlist: int = setting(
        0,
        "number of words that can be written, the first of the vocabulary; others are pointed at; 0 = all (See)",
        "[0, inf)",
    )


class Handover(NamedTuple):
    """What the encoder hands to the decoder besides the memory."""

    last: Tensor  # [B, 2, 2n], the last hidden and cell states of both directions
    words: Tensor  # [B, S], the source


class PointerState(NamedTuple):
    memory: Memory
    lstm: LSTMState
    context: Tensor  # [B, 2n], h*_{t-1}
    coverage: Tensor  # [B, S, 1]


class Pointer(EncoderDecoder):
    """An LSTM encoder-decoder that writes words or copies them."""

    attention_layout = AttentionLayout(query="current", cross=("attention",))

    def __init__(self, config: PointerConfig) -> None:
        super().__init__()
        if config.source_vocabulary != config.target_vocabulary:
            raise ConfigError(
                f"The model pointer copies words, which needs one vocabulary for both languages; got "
                f"{config.source_vocabulary} and {config.target_vocabulary} words. Set data.joint = true."
            )
        m, n = config.embedding, config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, m)
        self.forwards, self.backwards = (StackedLSTM(m, n, 1, 0.0, bias=True) for _ in range(2))
        self.reduce = nn.ModuleList(Linear(2 * n, n) for _ in range(2))  # hidden and cell
        self.W_x = Linear(m, m)
        self.W_context = Linear(2 * n, m, bias=False)  # the columns of W_x that read h*_{t-1}
        self.lstm = StackedLSTM(m, n, 1, 0.0, bias=True)
        self.lstm.recurrence = "fed"  # for `regard.explain`
        self.attention = Attention(Covered(2 * n, 2 * n, config.attention, coverage_width=1, bias=True))
        if config.shortlist and not UNKNOWN < config.shortlist < config.target_vocabulary:
            raise ConfigError(
                f"model.shortlist must be above {UNKNOWN}, for the symbols, and below the vocabulary of "
                f"{config.target_vocabulary} words; got {config.shortlist}."
            )
        self.generate: nn.Module = Switch(n) if config.shortlist else Generate(m, n)
        self.V = Linear(3 * n, n)
        self.V_prime = Linear(n, config.shortlist or config.target_vocabulary)
        self.output = nn.Identity()  # what `decode` returns are log-probabilities, which are logits too
        self.dropout = Dropout(config.dropout)
        # The released code draws its LSTMs so and adds 1 to their forget gates; its embeddings and output layer begin
        # with N(0, 0.0001^2).
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread) if weights.dim() > 1 else nn.init.zeros_(weights)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S] in both directions: states [B, S, 2n]."""
        check_batch(source, lengths)
        x, rows = self.dropout(self.embed(source)), source.shape[0]
        forwards, last = self.forwards(x, self.forwards.start(rows), lengths)  # [B, S, n]
        backwards, first = self.backwards(reverse_words(x, lengths), self.backwards.start(rows), lengths)
        states = torch.cat([forwards, reverse_words(backwards, lengths)], dim=-1)  # [B, S, 2n]
        hidden = torch.cat([*last.hidden, *first.hidden], dim=-1)  # [B, 2n]: each LSTM has one layer
        cell = torch.cat([*last.cell, *first.cell], dim=-1)  # [B, 2n]
        mask = padding_mask(lengths, source.shape[1])  # [B, 1, S]
        return self.attention.remember(states, mask, Handover(torch.stack([hidden, cell], dim=1), source))

    def start(self, memory: Memory) -> PointerState:
        """h_0 and c_0 = ReLU(W [last forward ; last backward] + b); no context and no coverage yet."""
        assert memory.summary is not None
        pairs = zip(self.reduce, memory.summary.last.unbind(1), strict=True)
        hidden, cell = (torch.relu(reduce(last)).to(self.embed.weight.dtype) for reduce, last in pairs)  # [B, n]
        context = hidden.new_zeros(hidden.shape[0], 2 * self.config.width)
        coverage = hidden.new_zeros(*memory.values.shape[:2], 1)
        return PointerState(memory, LSTMState((hidden,), (cell,)), context, coverage)

    def decode(self, words: Tensor, state: PointerState) -> tuple[Tensor, PointerState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns log P [B, T, V]."""
        embedded = self.W_x(self.dropout(self.embed(words)))  # [B, T, m]
        # [B, T, m], [B, T, n], [B, T, n], [B, T, 2n], [B, T, S]
        (x, hidden, cell, context, weights), state = recur(self.recurrent_step, embedded, state)
        units = self.dropout(self.V(torch.cat([hidden, context.to(hidden.dtype)], dim=-1)))  # [B, T, n]
        written = self.V_prime(units)  # [B, T, V]
        wide = torch.promote_types(written.dtype, torch.float32)
        writes = self.generate(x, torch.cat([cell, hidden], dim=-1), context).to(wide)  # [B, T, 1]
        source = state.memory.summary.words[:, None].expand(weights.shape)  # [B, T, S]
        logprob = written.to(wide).log_softmax(-1)  # [B, T, V], or [B, T, K] of a shortlist
        if self.config.shortlist:
            logprob = spread_unknown(self.config.target_vocabulary, logprob)
        mixed = write_and_copy(logprob, writes, weights.to(wide), source)  # [B, T, V]
        return mixed.to(self.V_prime.weight.dtype), state  # scores, which autocast does not round

    def recurrent_step(self, embedded: Tensor, state: PointerState) -> tuple[tuple[Tensor, ...], PointerState]:
        """x_t from y_{t-1} and h*_{t-1};  s_t = LSTM(x_t);  h*_t = att(s_t, c_t). embedded [B, m]: W_x E y_{t-1}."""
        x = embedded + self.W_context(state.context)  # [B, m]
        hidden, lstm = self.lstm.step(self.lstm.project(x), state.lstm)  # [B, n]
        (cell,) = lstm.cell
        query = torch.cat([cell, hidden], dim=-1)[:, None]  # [B, 1, 2n]
        look = self.attention(query, state.memory, extra=state.coverage)  # not fused: has weights
        context = look.context.squeeze(1).to(state.context.dtype)  # [B, 2n]
        attended = look.weights.mT.to(state.coverage.dtype)  # [B, S, 1]
        coverage = state.coverage + attended if self.config.coverage else state.coverage
        seen = x, hidden, cell, context, look.weights.squeeze(1)
        return seen, PointerState(state.memory, lstm, context, coverage)


class Generate(nn.Module):
    """The logit of p_gen = sigmoid(w_h h* + w_s s_t + w_x x_t + b), the probability of writing: [B, T, 1]."""

    def __init__(self, embedding: int, width: int) -> None:
        super().__init__()
        self.w = Linear(embedding + 4 * width, 1)

    def forward(self, x: Tensor, state: Tensor, context: Tensor) -> Tensor:
        found: Tensor = self.w(torch.cat([x, state.to(x.dtype), context.to(x.dtype)], dim=-1))
        return found


def write_and_copy(written: Tensor, writes: Tensor, weights: Tensor, source: Tensor) -> Tensor:
    """See's eq. 9: log P_vocab [B, T, V], logit of p_gen [B, T, 1], weights and words of the source [B, T, S] -> log P.

    The logit, since 1 - p_gen has few digits left where almost nothing is copied.
    """
    copied = torch.zeros_like(written).scatter_add(-1, source, weights)  # [B, T, V]
    return torch.logaddexp(logsigmoid(writes) + written, logsigmoid(-writes) + copied.clamp(min=LEAST).log())


class Switch(nn.Module):
    """The logit of z = sigmoid(w^T (f + tanh(U f + b)) + b'), f = tanh(W [s_t ; h*] + b), the same probability."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W, self.U, self.w = Linear(4 * width, width), Linear(width, width), Linear(width, 1)

    def forward(self, x: Tensor, state: Tensor, context: Tensor) -> Tensor:  # x is what Generate reads
        lower = torch.tanh(self.W(torch.cat([state, context.to(state.dtype)], dim=-1)))  # [B, T, n]
        found: Tensor = self.w(lower + torch.tanh(self.U(lower)))  # [B, T, 1]
        return found


def spread_unknown(vocabulary: int, written: Tensor) -> Tensor:
    """log P_short [B, T, K] -> log-probabilities of all words [B, T, V]: the unknown word is any one outside of K."""
    shortlist = written.shape[-1]
    words = torch.arange(vocabulary, device=written.device)
    share = written[..., UNKNOWN, None] - math.log(vocabulary - shortlist + 1)  # [B, T, 1]
    padded = nn.functional.pad(written, (0, vocabulary - shortlist))  # [B, T, V]
    return torch.where((words >= shortlist) | (words == UNKNOWN), share, padded)


PRESETS = {
    "paper": PointerConfig(),
    "small": PointerConfig(embedding=128, width=192, attention=256, dropout=0.3, spread=0.05),
    # With small weights tanh is almost linear, and an additive score hardly compares its query with the keys.
    "tiny": PointerConfig(embedding=48, width=64, attention=64, spread=0.6),
}
VARIANTS = {"shortlist": replace(PRESETS["tiny"], shortlist=8)}

# The paper trains with Adagrad (rate 0.15), which is not among the optimisers here, in batches of 16, clipped at 2.
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"rate": 0.001, "clip": 2.0, "normalise": "sentences"},
    "small": {"rate": 0.001, "clip": 1.0},
    "tiny": {"rate": 0.005, "clip": 1.0},
}
