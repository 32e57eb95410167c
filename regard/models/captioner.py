"""Xu et al., "Show, attend and tell: neural image caption generation with visual attention" (ICML 2015).

What was new: the memory is a picture. Its cells are the vectors of a convolutional net's feature map, and for every
word the decoder weighs all of them (soft) or attends to one, drawn at random in training (hard).

    a_i, i = 1 ... L                                       cells of the feature map, 14 x 14 in the paper  (3.1.1)
    e_ti = f_att(a_i, h_{t-1});  alpha_t = softmax(e_t)                                                    (eq. 4-5)
    soft: z_t = beta_t sum_i alpha_ti a_i,  beta_t = sigmoid(f_beta(h_{t-1})), one number                  (4.2)
    hard: z_t = a_s with s drawn from alpha_t, without a gate                                              (eq. 8-9)
    h_t, c_t = LSTM(E y_{t-1} ; h_{t-1} ; z_t)                                                             (eq. 1-3)
    h_0 = tanh(f_h(mean a)), c_0 = tanh(f_c(mean a))                                                       (3.1.2)
    p(y_t) = softmax(L_o (E y_{t-1} + L_h h_t + L_z z_t))                                                  (eq. 7)

The released code puts a tanh before L_o; `readout` names the two. Drawing places belongs to the objective that trains
with it (regard.training.captioning), not to the model: when decoding, a hard model attends to the best cell, or to the
expectation.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.normalise import NORMALISERS, hard_argmax
from regard.core.products import Linear
from regard.core.scores import SCORES, Additive, make_score
from regard.errors import ConfigError, ShapeError
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.image import check_pictures, image_encoder
from regard.layers.recurrent import LSTMState, StackedLSTM
from regard.models.bahdanau import initialise
from regard.models.contract import AttentionLayout, EncoderDecoder
from regard.symbols import START


@dataclass(frozen=True)
class CaptionerConfig(Settings):
    """The soft model for COCO with the released sizes; the readout is the paper's (eq. 7)."""

    target_vocabulary: int = setting(10_000, "size of the vocabulary of the captions", "[1, inf)")
    encoder: str = setting(
        "none", "image encoder: none (the input is features), small, efficientnet-lite0, or timm:NAME"
    )
    grid: int = setting(14, "number of cells on a side of a picture", "[1, inf)")
    features: int = setting(512, "size of a cell's vector (D)", "[1, inf)")
    embedding: int = setting(512, "size of the embeddings and of the readout (m)", "[1, inf)")
    width: int = setting(1800, "size of the LSTM's state (n)", "[1, inf)")
    attention: int = setting(512, "hidden size of the attention perceptron; the paper takes D", "[1, inf)")
    attention_layers: int = setting(
        2, "affine layers on a cell before the perceptron of the additive score", "[1, 10000]"
    )
    score: str = setting("additive", "score function of attention", SCORES)
    normaliser: str = setting("softmax", "normaliser of the scores in soft attention", NORMALISERS)
    initial_layers: int = setting(2, "layers between the mean cell and the first state", "[1, 10000]")
    look: str = setting(
        "soft",
        "attend to all cells (soft) or to one: in decoding the best one (hard) or the expectation (hard-expectation)",
        ("soft", "hard", "hard-expectation"),
    )
    readout: str = setting(
        "paper", "the sum as the paper prints it, or a tanh of it as released", ("paper", "released")
    )
    look_once: float = setting(
        1.0, "soft: weight of the penalty on cells whose weights do not sum to 1 (lambda)", "[0, inf)"
    )
    reinforce: float = setting(
        0.1, "hard: weight of REINFORCE beside the likelihood of the words (lambda_r)", "[0, inf)"
    )
    entropy: float = setting(0.002, "hard: weight of the entropy of the places (lambda_e)", "[0, inf)")
    expectation: float = setting(
        0.5, "hard: fraction of batches that take the expectation instead of a sample", "[0, 1]"
    )
    dropout: float = setting(0.5, "dropout on the state, the readout and the first layers", "[0, 1)")
    spread: float = setting(0.01, "standard deviation of the initial weights that are not orthogonal", "[0, inf)")


class CaptionerState(NamedTuple):
    memory: Memory
    lstm: LSTMState  # one layer: h_{t-1} and c_{t-1}


class Captioner(EncoderDecoder):
    """An LSTM that attends to the cells of a picture before each word."""

    attention_layout = AttentionLayout(query="previous", cross=("attention",))

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        D, m, n = config.features, config.embedding, config.width
        self.config = config
        # y_0 is the zero vector, as in the released code: START has no embedding and gets no gradient.
        self.embed = nn.Embedding(config.target_vocabulary, m, padding_idx=START)
        if config.look != "soft" and config.normaliser != "softmax":
            raise ConfigError(
                f"model.look = {config.look!r} draws cells from the softmax; got model.normaliser = "
                f"{config.normaliser!r}. Set model.look = 'soft' to use it."
            )
        score = (
            CellScore(n, D, config.attention, config.attention_layers)
            if config.score == "additive"
            else make_score(config.score, n, D, config.attention)
        )
        self.attention = Attention(score, hard_argmax if config.look == "hard" else NORMALISERS[config.normaliser])
        # beta_t = sigmoid(w . h_{t-1} + b): how much the picture matters for the next word
        soft = config.look == "soft"
        self.gate = nn.Sequential(OrderedDict(w=Linear(n, 1), sigmoid=nn.Sigmoid())) if soft else None
        self.initial = Initial(D, n, config.initial_layers, config.dropout)
        self.lstm = StackedLSTM(m, n, layers=1, dropout=0.0, bias=True)
        self.lstm.recurrence = "fed"  # for `regard.explain`
        self.Z = Linear(D, 4 * n, bias=False)  # columns of the LSTM's matrix that read z_t
        self.readout = Readout(config)
        self.output = Linear(m, config.target_vocabulary)  # L_o
        # Orthogonal are the recurrent matrices and the score's U. In the released code U is not, and other square
        # matrices are.
        initialise(self, config.spread, scores=False)
        self.image: Any = image_encoder(config.encoder, D)  # last: it keeps its own initial weights

    @property
    def side(self) -> int:
        """Pixels on a side of the pictures that `encode` takes."""
        return self.config.grid * self.image.stride if self.image is not None else 0

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read features [B, S, D] or pictures [B, 3, H, W]: cells as values, P(a) as keys; `lengths` counts cells."""
        cells = self.see(source) if source.dim() == 4 else source  # [B, S, D]
        if cells.dim() != 3 or cells.shape[-1] != self.config.features or lengths.shape != cells.shape[:1]:
            raise ShapeError(
                f"A captioner reads features [B, S, {self.config.features}] or pictures [B, 3, H, W], and the number "
                f"of cells [B]; got {list(source.shape)} and lengths {list(lengths.shape)}."
            )
        mask = padding_mask(lengths, cells.shape[1])  # [B, 1, S]
        real = mask.transpose(1, 2).to(cells.dtype)  # [B, S, 1]
        summary = (cells * real).sum(1) / real.sum(1).clamp(min=1)  # [B, D]: the mean cell
        return self.attention.remember(cells, mask, summary)

    def see(self, pictures: Tensor) -> Tensor:
        """The cells of pictures [B, 3, H, W], row by row: [B, S, D]."""
        if self.image is None:
            raise ShapeError(
                f"This captioner has no image encoder; give it features [B, S, {self.config.features}] or set "
                f"model.encoder."
            )
        check_pictures(pictures, self.image.stride)
        return self.image(pictures)

    def start(self, memory: Memory) -> CaptionerState:
        """h_0 and c_0 from the mean cell."""
        assert memory.summary is not None
        return CaptionerState(memory, self.initial(memory.summary))

    def decode(self, words: Tensor, state: CaptionerState) -> tuple[Tensor, CaptionerState]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns units of the readout [B, T, m]."""
        embedded = self.embed(words)  # [B, T, m]
        # Only the recurrence runs step by step: hidden [B, T, n], context [B, T, D].
        (hidden, context), state = recur(self.recurrent_step, self.lstm.project(embedded), state)
        return self.readout(hidden, embedded, context), state

    def recurrent_step(
        self, input_gates: Tensor, state: CaptionerState
    ) -> tuple[tuple[Tensor, Tensor], CaptionerState]:
        """z_t = beta_t att(h_{t-1});  h_t, c_t = LSTM(y_{t-1}, h_{t-1}, z_t), with y_{t-1} in input_gates [B, 4n]."""
        (before,) = state.lstm.hidden  # [B, n]: it has not read y_{t-1}
        context = self.attention(before[:, None], state.memory).context[:, 0]  # [B, D]
        if self.gate is not None:
            context = self.gate(before) * context  # beta [B, 1]
        hidden, lstm = self.lstm.step(input_gates + self.Z(context), state.lstm)  # [B, n]
        return (hidden, context), CaptionerState(state.memory, lstm)


class CellScore(Additive):
    """v^T tanh(P(a) + W h): Bahdanau's perceptron on P(a), affine with one layer, tanh(affine(affine(a))) with two."""

    def __init__(self, query_width: int, key_width: int, width: int, layers: int) -> None:
        super().__init__(query_width, key_width, width)
        self.b = nn.Parameter(torch.zeros(width))
        self.above = nn.ModuleList(Linear(width, width) for _ in range(layers - 1))

    def project(self, states: Tensor) -> Tensor:
        """P(a) for cells [B, S, D]: [B, S, width]."""
        keys = self.U(states) + self.b
        for layer in self.above:
            keys = torch.tanh(layer(keys))
        return keys


class Initial(nn.Module):
    """h_0 = tanh(W_h x), c_0 = tanh(W_c x), x the mean cell after layers - 1 ReLU layers."""

    def __init__(self, features: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.below = nn.ModuleList(Linear(features, features) for _ in range(layers - 1))
        self.hidden = Linear(features, width)
        self.cell = Linear(features, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, mean: Tensor) -> LSTMState:
        """mean [B, D] -> hidden and cell state [B, n]."""
        for layer in self.below:
            mean = self.dropout(torch.relu(layer(mean)))
        hidden, cell = (torch.tanh(layer(mean)).to(layer.weight.dtype) for layer in (self.hidden, self.cell))
        return LSTMState((hidden,), (cell,))


class Readout(nn.Module):
    """squash(E y_{t-1} + L_h h_t + L_z z_t), for all steps at once; nothing is squashed in the paper."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        m = config.embedding
        self.squash: nn.Module = nn.Tanh() if config.readout == "released" else nn.Identity()
        self.L_h = Linear(config.width, m)
        self.L_z = Linear(config.features, m)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        units = self.squash(embedded + self.L_h(self.dropout(hidden)) + self.L_z(context))  # [B, T, m]
        return self.dropout(units)


PRESETS = {
    "paper": CaptionerConfig(),
    "small": CaptionerConfig(
        encoder="efficientnet-lite0", grid=7, features=1280, embedding=512, width=512, attention=512,
        attention_layers=1, initial_layers=1, readout="released", spread=0.03,
    ),
    # A small state: one that can remember a whole picture learns no attention.
    "tiny": CaptionerConfig(
        encoder="small", grid=4, features=64, embedding=32, width=64, attention=64, attention_layers=1,
        initial_layers=1, look_once=0.0, dropout=0.0, spread=0.1,
    ),
}  # fmt: skip
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"rate": 0.001, "clip": 0.0, "normalise": "sentences", "batch_tokens": 768},
    "small": {"rate": 0.0005, "clip": 5.0, "normalise": "sentences", "batch_tokens": 1536},
    "tiny": {
        "steps": 1200, "rate": 0.004, "schedule": "halving", "halve_after": 6.0, "halve_every": 0.5, "clip": 5.0,
        "normalise": "sentences", "batch_tokens": 416, "validate_every": 400, "best_by": "accuracy",
    },
}  # fmt: skip
VARIANTS = {
    "hard": replace(PRESETS["tiny"], look="hard"),
    "hard-expectation": replace(PRESETS["tiny"], look="hard-expectation"),
    "released": replace(PRESETS["tiny"], readout="released"),
    "deep": replace(PRESETS["tiny"], attention_layers=2, initial_layers=2),
    "features": replace(PRESETS["tiny"], encoder="none"),
    "general-sparsemax": replace(PRESETS["tiny"], encoder="none", score="general", normaliser="sparsemax"),
}
