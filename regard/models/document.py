"""Yang et al., "Hierarchical attention networks for document classification" (NAACL 2016).

What was new: the document is read as it is written, words into sentences and sentences into a document, and at both
levels a learned context vector is the query. The two levels are the same layer, once over words and once
over sentences.

    h_t = [->GRU(x_t) ; <-GRU(x_t)]                      words of a sentence, or sentences of a document
    u_t = tanh(W h_t + b);  alpha = softmax(u_t^T u_w);  s = sum_t alpha_t h_t     words         (eq. 5-7)
    the same with u_s, over the vectors s of the sentences: the document vector v  sentences     (eq. 8-10)
    p = softmax(W_c v + b_c)                                                                     (eq. 11)

The weights act on h, not on u. The paper's two baselines, the mean of all states and the largest of each dimension,
are `pooling`. There is no padding in what the model reads: a batch is one row of words, the lengths of the sentences
and the number of sentences of each document, so that one long sentence does not widen all other sentences. How the rows
are grouped follows from the lengths, on the host: with `lengths` and `counts` on the CPU, a GPU is never waited for.
"""

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.config import Settings, setting
from regard.core.normalise import NORMALISERS
from regard.core.products import Linear
from regard.core.scores import SCORES, dot, make_score, uniform
from regard.errors import ConfigError, ShapeError
from regard.kernels.torch_lstm import by_library
from regard.layers.attention import Attention

ROOM = 1 << 18  # most states, padding counted, that one attention call takes; a larger document takes several


@dataclass(frozen=True)
class DocumentConfig(Settings):
    """HN-ATT as published."""

    vocabulary: int = setting(30_000, "size of the vocabulary", "[1, inf)")
    classes: int = setting(5, "number of classes", "[1, inf)")
    embedding: int = setting(200, "embedding size", "[1, inf)")
    width: int = setting(50, "size of a GRU state, in each direction", "[1, inf)")
    attention: int = setting(100, "size of the context vectors", "[1, inf)")
    pooling: str = setting(
        "attention", "pooling of the states: attention, mean, or maximum of each dimension",
        ("attention", "average", "maximum"),
    )  # fmt: skip
    score: str = setting(
        "tanh-dot",
        "score function of attention; tanh-dot is the paper's",
        ChainMap[str, Any](SCORES, {"tanh-dot": None}),
    )
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    dropout: float = setting(0.0, "dropout on word, sentence and document vectors", "[0, 1)")
    spread: float = setting(0.1, "standard deviation of the initial word and context vectors", "[0, inf)")


class DocumentClassifier(nn.Module):
    """Words into sentences, sentences into a document, and the document into a class."""

    def __init__(self, config: DocumentConfig) -> None:
        super().__init__()
        self.config = config
        if config.pooling != "attention" and (config.score, config.normaliser) != ("tanh-dot", "softmax"):
            raise ConfigError(
                f"model.pooling = {config.pooling!r} has no scores; got model.score = {config.score!r} and "
                f"model.normaliser = {config.normaliser!r}. Set model.pooling = 'attention' to use them."
            )
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.words = Level(config, config.embedding)
        self.sentences = Level(config, 2 * config.width)
        self.W_c = Linear(2 * config.width, config.classes)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embed.weight, std=config.spread)

    def forward(self, words: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
        """Logits [B, C] of B documents.

        words [M] are the ids of all words of all documents in order, lengths [N] the words of each sentence, counts [B]
        the sentences of each document. A sentence without words counts for nothing; a document without any is the
        zero vector, so that its logits are the biases.
        """
        lengths, counts = lengths.cpu(), counts.cpu()
        check_documents(words, lengths, counts)
        vectors = self.words(self.dropout(self.embed(words)), lengths)  # [N, 2n]
        nonempty = lengths.nonzero().squeeze(1)  # [N or fewer]
        owner = torch.repeat_interleave(torch.arange(len(counts)), counts)  # [N]
        counts = torch.bincount(owner[nonempty], minlength=len(counts))  # [B]
        vectors = vectors[nonempty.to(vectors.device)]
        return self.W_c(self.dropout(self.sentences(self.dropout(vectors), counts)))  # [B, C]


class Level(nn.Module):
    """One level: h = BiGRU(x), then one vector of the states h of each row, by attention or another pooling."""

    def __init__(self, config: DocumentConfig, input_width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(input_width, config.width, bidirectional=True)  # as in the paper, reset after the product
        self.pool = POOLS[config.pooling](config)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x [M, m], the rows one after the other, lengths [N] (host) -> [N, 2n]; zeros for an empty row."""
        states = run_rows(self.gru, x, lengths)  # [M, 2n]
        starts = lengths.cumsum(0) - lengths  # [N]
        chosen, seen = [], []
        for rows in groups(lengths):  # R rows of similar length: one attention call
            places = torch.arange(int(lengths[rows].max()))  # [S]
            mask = places < lengths[rows, None]  # [R, S]
            index = torch.where(mask, starts[rows, None] + places, 0).to(x.device)  # [R, S]
            seen.append(self.pool(states[index], mask[:, None].to(x.device)))  # [R, 2n]
            chosen.append(rows)
        pooled = states.new_zeros(len(lengths), states.shape[-1])
        return pooled.index_copy(0, torch.cat(chosen).to(x.device), torch.cat(seen)) if chosen else pooled


class ContextVector(nn.Module):
    """sum_t alpha_t h_t: attention whose query is a learned vector u (u_w and u_s in the paper)."""

    def __init__(self, config: DocumentConfig) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.empty(config.attention).normal_(std=config.spread))
        D, width = config.attention, 2 * config.width
        score = TanhDot(width, D) if config.score == "tanh-dot" else make_score(config.score, D, width, D)
        self.attention = Attention(score, NORMALISERS[config.normaliser])

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states [R, S, 2n], mask [R, 1, S] -> [R, 2n]."""
        query = self.u.expand(len(states), 1, -1)  # [R, 1, D]
        return self.attention(query, self.attention.remember(states, mask)).context[:, 0]


class TanhDot(nn.Module):
    """u^T u_t with u_t = tanh(W h_t + b): a dot product after one layer on the keys."""

    def __init__(self, key_width: int, width: int) -> None:
        super().__init__()
        self.W = Linear(key_width, width)

    def project(self, states: Tensor) -> Tensor:
        return torch.tanh(self.W(states))  # [..., S, D]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot(query, keys)  # [..., T, S]


class Average(nn.Module):
    """HN-AVE: the mean of the states, which is attention with equal weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(uniform)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states [R, S, 2n], mask [R, 1, S] -> [R, 2n]."""
        return self.attention(states[:, :1], self.attention.remember(states, mask)).context[:, 0]


class Maximum(nn.Module):
    """HN-MAX: the largest value of each dimension. There are no weights, so nothing is recorded."""

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states [R, S, 2n], mask [R, 1, S] -> [R, 2n]."""
        return states.masked_fill(~mask.transpose(1, 2), -torch.inf).amax(dim=1)


POOLS: dict[str, Callable[[DocumentConfig], nn.Module]] = {
    "attention": ContextVector,
    "average": lambda config: Average(),
    "maximum": lambda config: Maximum(),
}


# --- rows of any length without padding


def run_rows(gru: nn.GRU, x: Tensor, lengths: Tensor) -> Tensor:
    """Run a GRU over every row, x [M, m], lengths [N] (host) -> states [M, directions * n], without padding."""
    if not len(x):
        return x.new_zeros(0, gru.hidden_size * (2 if gru.bidirectional else 1))
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)  # [M]
    places = torch.arange(len(x)) - (lengths.cumsum(0) - lengths)[rows]  # [M], counted in the row
    rank = lengths.argsort(descending=True, stable=True).argsort()  # [N]: a packed batch has the longest row first
    order = (places * len(lengths) + rank[rows]).argsort().to(x.device)  # [M]: all first words, all second ones, ...
    states, _ = by_library(gru, PackedSequence(x[order], torch.bincount(places)))
    return torch.zeros_like(states.data).index_copy(0, order, states.data)


def groups(lengths: Tensor) -> list[Tensor]:
    """Which rows share an attention call: [N] -> row numbers, the shorter rows first, without empty rows.

    Rows of one group differ in length by less than a factor of two, so padding never doubles the work; and a group
    holds at most ROOM places, so that a document of any size is read in calls of bounded size.
    """
    found = []
    for power in range(int(lengths.max()).bit_length() if len(lengths) else 0):
        rows = ((lengths >= 1 << power) & (lengths < 2 << power)).nonzero().squeeze(1)
        found += list(rows.split(max(1, ROOM >> (power + 1)))) if len(rows) else []
    return found


def check_documents(words: Tensor, lengths: Tensor, counts: Tensor) -> None:
    """Refuse words, lengths and counts that do not belong together."""
    if any(part.dim() != 1 or part.is_floating_point() for part in (words, lengths, counts)):
        raise ShapeError(
            f"Documents are word ids [M], sentence lengths [N] and sentence counts [B], whole numbers; got "
            f"{list(words.shape)}, {list(lengths.shape)} and {list(counts.shape)}. Put all words one after the other."
        )
    if int(lengths.sum()) != len(words) or int(counts.sum()) != len(lengths):
        raise ShapeError(
            f"The sentences hold {int(lengths.sum())} words and the documents {int(counts.sum())} sentences; "
            f"got {len(words)} words and {len(lengths)} sentences. Lengths and counts must add up."
        )


PRESETS = {
    "paper": DocumentConfig(),
    "small": DocumentConfig(dropout=0.3),
    "tiny": DocumentConfig(embedding=32, width=32, attention=32, dropout=0.3),
}
VARIANTS = {pooling: replace(PRESETS["tiny"], pooling=pooling) for pooling in POOLS if pooling != "attention"} | {
    "additive-sparsemax": replace(PRESETS["tiny"], score="additive", normaliser="sparsemax")
}
SHARED = {"normalise": "sentences", "best_by": "accuracy", "clip": 5.0}  # the loss counts documents, not words
RECIPES: dict[str, dict[str, object]] = {
    "paper": {**SHARED, "optimiser": "sgd", "momentum": 0.9, "rate": 0.1, "batch_tokens": 16_384},
    "small": {**SHARED, "rate": 0.001, "batch_tokens": 16_384, "patience": 4},
    "tiny": {**SHARED, "rate": 0.003, "batch_tokens": 4_096, "epochs": 10},
}
