"""Scores: how well each slot of a memory matches a query, [B, ..., T, S], before any normalising.

A score without parameters is a function, one with parameters a module; both are called as `score(query, keys)`.
A module with work to do on the keys has `project(states) -> keys`, done once for a sentence and kept in `Memory`;
`project_keys` does that for any score. A score may take a third argument: distances [T, S] (Relative, alibi), the place
of the key minus the place of the query, or coverage [B, S, d] (Covered).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.products import Linear, linear, matmul
from regard.errors import ConfigError, ShapeError


def dot(query: Tensor, keys: Tensor) -> Tensor:
    """q . k (Luong 2015). The widths of query and keys must be equal.

    >>> query = torch.tensor([[[1.0, 2.0]]])  # [B, T, D]
    >>> keys = torch.tensor([[[3.0, 0.0], [0.0, 3.0]]])  # [B, S, D]
    >>> core.dot(query, keys)
    tensor([[[3., 6.]]])
    """
    _check_widths("dot", query, keys)
    return matmul(query, keys.transpose(-1, -2))  # [..., T, S]


def uniform(query: Tensor, keys: Tensor) -> Tensor:
    """Zero for every slot: no preference. With the one slot of a fixed-vector model the weight is then exactly one.

    >>> core.softmax(core.uniform(torch.ones(1, 1, 2), torch.randn(1, 4, 3)))
    tensor([[[0.2500, 0.2500, 0.2500, 0.2500]]])
    """
    return query.new_zeros(*query.shape[:-1], keys.shape[-2])  # [..., T, S]


def scaled_dot(query: Tensor, keys: Tensor) -> Tensor:
    """q . k / sqrt(d_k) (Vaswani 2017): unit variance for unit queries and keys, whatever the width.

    >>> ones = torch.ones(1, 1, 64)
    >>> core.dot(ones, ones), core.scaled_dot(ones, ones)
    (tensor([[[64.]]]), tensor([[[8.]]]))
    """
    _check_widths("scaled_dot", query, keys)
    return matmul(query / math.sqrt(keys.shape[-1]), keys.transpose(-1, -2))  # [..., T, S]


class Relative(nn.Module):
    """q . (k + a_(j-i)) / sqrt(d_k) (Shaw 2018, eq. 4): a learned vector for each distance, shared by all heads.

    Each layer has its own vectors, as in the paper's big model; its base model has some for each head too (section
    4.1). Distances beyond `clip` count as `clip`. The query meets each of the 2 clip + 1 vectors once, not each pair of
    words (section 3.3).

    >>> score, states, places = core.Relative(width=4, clip=1), torch.ones(1, 5, 4), torch.arange(5)
    >>> scores = score(states, states, places - places[:, None])  # distances [T, S]
    >>> torch.equal(scores[0, 0, 1], scores[0, 0, 4])  # four places away counts as one
    True
    """

    def __init__(self, width: int, clip: int = 16) -> None:
        super().__init__()
        self.distances = nn.Embedding(2 * clip + 1, width)  # a^K
        nn.init.xavier_uniform_(self.distances.weight)

    def forward(self, query: Tensor, keys: Tensor, distances: Tensor) -> Tensor:
        _check_widths("Relative", query, keys)
        query = query / math.sqrt(keys.shape[-1])
        by_distance = dot(query, self.distances.weight)  # [..., T, 2 clip + 1]
        which = clip_distances(distances, self.distances.num_embeddings)  # [T, S]
        return dot(query, keys) + by_distance.gather(-1, which.expand(*query.shape[:-1], -1))  # [..., T, S]


def clip_distances(distances: Tensor, count: int) -> Tensor:
    """Rows of a table of `count` = 2 clip + 1 distances, the most negative one first."""
    clip = count // 2
    return distances.clamp(-clip, clip) + clip


def alibi(query: Tensor, keys: Tensor, distances: Tensor) -> Tensor:
    """`q . k / sqrt(d_k) - m_h |j - i|` (Press 2022), with the slopes m_h = 2^(-8h/H) of the heads h = 1 ... H.

    query and keys [B, H, ..., D]. The paper's model is causal, where j <= i; in both directions the bias is symmetric.

    >>> states, places = torch.zeros(1, 2, 3, 8), torch.arange(3)  # of zeros only the bias is left
    >>> core.alibi(states, states, places - places[:, None])[0, :, 2]  # of the last query: [H, S]
    tensor([[-0.1250, -0.0625,  0.0000],
            [-0.0078, -0.0039,  0.0000]])
    """
    heads = query.shape[1]
    slopes = 2.0 ** (torch.arange(1, heads + 1, device=query.device) * (-8 / heads))  # [H]
    bias = slopes[:, None, None] * distances.abs()  # [H, T, S], in float32: bfloat16 counts to 256 only
    return scaled_dot(query, keys) - bias.to(query.dtype)


class Cosine(nn.Module):
    """strength * cos(q, k), content-based addressing (Graves 2014).

    The strength is positive (softplus of a learned number): without it the scores lie in [-1, 1], and a softmax over
    many slots could never become peaked.

    >>> query, keys = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[50.0, 0.0], [3.0, 4.0]]])
    >>> core.Cosine(strength=2.0)(query, keys).detach()  # the lengths of the vectors do not count
    tensor([[[2.0000, 1.2000]]])
    """

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__()
        if not strength > 0:
            raise ShapeError(f"Cosine needs a strength above zero; got {strength}. Use 1 to begin with plain cosines.")
        self.raw_strength = nn.Parameter(torch.tensor(math.log(math.expm1(strength))))

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        _check_widths("cosine", query, keys)
        sizes = query.norm(dim=-1)[..., :, None] * keys.norm(dim=-1)[..., None, :]  # [..., T, S]
        strength = nn.functional.softplus(self.raw_strength)
        return strength * dot(query, keys) / sizes.clamp(min=1e-8)  # [..., T, S]


class General(nn.Module):
    """q^T W k (Luong 2015): W is applied to the keys, once.

    >>> score = core.General(query_width=2, key_width=3)
    >>> keys = score.project(torch.randn(1, 5, 3))  # [B, S, query_width]
    >>> score(torch.randn(1, 4, 2), keys).shape  # [B, T, S]
    torch.Size([1, 4, 5])
    """

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.W = Linear(key_width, query_width, bias=False)

    def project(self, states: Tensor) -> Tensor:
        check_width("General", "states", states, self.W.in_features)
        return self.W(states)  # [..., S, query_width]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot(query, keys)


def is_dot(score: object) -> bool:
    """Whether the scores are q . k, with keys as they were projected; a subclass with another `forward` is not."""
    return score is dot or getattr(type(score), "forward", None) is General.forward


class Perceptron(nn.Module):
    """v^T tanh(q + k), for a query and keys that come projected to one width. Its subclasses project them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.v = Linear(width, 1, bias=False)

    def project_query(self, query: Tensor) -> Tensor:
        """The query as the perceptron adds it to a key: [..., T, width]."""
        return query

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        query = self.project_query(query)
        check_width(type(self).__name__, "projected keys", keys, self.v.in_features)
        hidden = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))  # [..., T, S, width]
        return self.v(hidden).squeeze(-1)  # [..., T, S]


def is_perceptron(score: object) -> bool:
    """Whether the scores are v^T tanh(q + k); a subclass with another `forward` is not."""
    return getattr(type(score), "forward", None) is Perceptron.forward


class Additive(Perceptron):
    """v^T tanh(W q + U k), Bahdanau's perceptron. U k does not depend on the query and is computed once.

    >>> score = core.Additive(query_width=2, key_width=3, width=8)
    >>> keys = score.project(torch.randn(1, 5, 3))  # U k: [B, S, width]
    >>> score(torch.randn(1, 4, 2), keys).shape  # [B, T, S]
    torch.Size([1, 4, 5])
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__(width)
        self.W = Linear(query_width, width, bias=False)
        self.U = Linear(key_width, width, bias=False)

    def project(self, states: Tensor) -> Tensor:
        check_width("Additive", "states", states, self.U.in_features)
        return self.U(states)  # [..., S, width]

    def project_query(self, query: Tensor) -> Tensor:
        check_width("Additive", "query", query, self.W.in_features)
        return self.W(query)


class Covered(Additive):
    """v^T tanh(W q + U k + V C), with the coverage C of each slot (Tu 2016; See 2017 with a bias): [B, S, d].

    Coverage is what a slot has been attended to so far; it changes from step to step, so it comes beside the keys.

    >>> score = core.Covered(query_width=2, key_width=3, width=8, coverage_width=1)
    >>> keys, coverage = score.project(torch.randn(1, 5, 3)), torch.zeros(1, 5, 1)  # before the first step
    >>> weights = core.softmax(score(torch.randn(1, 1, 2), keys, coverage))  # [B, 1, S]
    >>> coverage = coverage + weights.transpose(1, 2)  # for the next step
    >>> coverage.shape, round(coverage.sum().item(), 4)
    (torch.Size([1, 5, 1]), 1.0)
    """

    def __init__(self, query_width: int, key_width: int, width: int, coverage_width: int, bias: bool = False) -> None:
        super().__init__(query_width, key_width, width)
        self.V = Linear(coverage_width, width, bias)

    def cover(self, keys: Tensor, coverage: Tensor) -> Tensor:
        """U k + V C: the keys as the perceptron adds them to a query, [B, S, width]."""
        return keys + self.V(coverage)

    def forward(self, query: Tensor, keys: Tensor, coverage: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(query, self.cover(keys, coverage))


class NormedAdditive(Additive):
    """`g v^T tanh(W q + U k + b) / |v| + r` (Raffel 2017): the length of v is learned by itself, scores have an offset.

    Scores that are compared with zero, and not with each other, need both.

    >>> score = core.NormedAdditive(query_width=2, key_width=3, width=8, offset=-4.0)
    >>> score(torch.zeros(1, 1, 2), score.project(torch.zeros(1, 3, 3))).detach()  # nothing matches: the offset
    tensor([[[-4., -4., -4.]]])
    """

    def __init__(self, query_width: int, key_width: int, width: int, offset: float = 0.0) -> None:
        super().__init__(query_width, key_width, width)
        self.b = nn.Parameter(torch.zeros(width))
        self.g, self.r = nn.Parameter(torch.empty(())), nn.Parameter(torch.empty(()))
        self.reset(offset)

    @torch.no_grad()
    def reset(self, offset: float) -> None:
        """The paper's start: g = 1 / sqrt(width), r = offset, b = 0, and a v of any length."""
        self.v.weight.normal_()
        self.b.zero_()
        self.g.fill_(self.v.in_features**-0.5)
        self.r.fill_(offset)

    def project_query(self, query: Tensor) -> Tensor:
        return super().project_query(query) + self.b

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.g / self.v.weight.norm() * super().forward(query, keys) + self.r  # [..., T, S]


class Concat(Perceptron):
    """v^T tanh(W [q; k]), Luong's concat as the paper prints it.

    W is kept as one matrix [width, query + key]; splitting it in two shows that this is Bahdanau's score.

    >>> score, query, states = core.Concat(2, 3, width=8), torch.randn(1, 1, 2), torch.randn(1, 5, 3)
    >>> both = torch.cat([query.expand(1, 5, 2), states], dim=-1)  # [q; k] for each slot
    >>> printed = score.v(torch.tanh(score.W(both))).transpose(1, 2)  # [B, 1, S]
    >>> torch.allclose(score(query, score.project(states)), printed, atol=1e-5)
    True
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__(width)
        self.query_width = query_width
        self.W = Linear(query_width + key_width, width, bias=False)

    def project(self, states: Tensor) -> Tensor:
        check_width("Concat", "states", states, self.W.in_features - self.query_width)
        return linear(states, self.W.weight[:, self.query_width :])  # [..., S, width]

    def project_query(self, query: Tensor) -> Tensor:
        check_width("Concat", "query", query, self.query_width)
        return linear(query, self.W.weight[:, : self.query_width])


class ConcatReleased(Perceptron):
    """v^T tanh(k + W q), Luong's concat as the released code computes it: the block on the keys is the identity.

    >>> score, states = core.ConcatReleased(query_width=2, key_width=3), torch.randn(1, 5, 3)
    >>> score(torch.randn(1, 4, 2), states).shape  # the keys are the states themselves
    torch.Size([1, 4, 5])
    """

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(key_width)
        self.W = Linear(query_width, key_width, bias=False)

    def project_query(self, query: Tensor) -> Tensor:
        check_width("ConcatReleased", "query", query, self.W.in_features)
        return self.W(query)


class Location(nn.Module):
    """(W q)_s, Luong's location score: it sees where a slot is and nothing of what is in it.

    W has one row for each of `longest` positions. A shorter source uses the first rows; slots beyond `longest`
    score -inf, so that every normaliser gives them weight 0.

    >>> score = core.Location(query_width=2, longest=3)
    >>> score.W.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> score(torch.tensor([[[2.0, 5.0]]]), torch.randn(1, 4, 7)).detach()  # four slots, whatever they hold
    tensor([[[2., 5., 7., -inf]]])
    """

    def __init__(self, query_width: int, longest: int) -> None:
        super().__init__()
        self.W = Linear(query_width, longest, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        check_width("Location", "query", query, self.W.in_features)
        size = keys.shape[-2]
        scores = query @ self.W.weight[:size].T  # [..., T, min(S, longest)]
        beyond = size - scores.shape[-1]
        return nn.functional.pad(scores, (0, beyond), value=-math.inf) if beyond else scores  # [..., T, S]


# The scores by their names in the settings of models: (query width, key width, hidden width) -> score.
SCORES: dict[str, Callable[[int, int, int], Any]] = {
    "dot": lambda query, key, hidden: dot,
    "scaled-dot": lambda query, key, hidden: scaled_dot,
    "cosine": lambda query, key, hidden: Cosine(),
    "general": lambda query, key, hidden: General(query, key),
    "additive": Additive,
    "concat": Concat,
    "concat-released": lambda query, key, hidden: ConcatReleased(query, key),
}
ONE_WIDTH = ("dot", "scaled-dot", "cosine")  # they compare a query and keys of one width

# Of these, the ones for a model that projects its queries and keys itself: (width) -> score.
COMPARISONS: dict[str, Callable[[int], Any]] = {
    "dot": lambda width: dot,
    "scaled-dot": lambda width: scaled_dot,
    "cosine": lambda width: Cosine(),
    "additive": Perceptron,
}


def make_score(name: str, query_width: int, key_width: int, width: int) -> Any:
    """The score of this name in `SCORES`; one that needs a query and keys of one width is refused for others.

    >>> core.make_score("dot", query_width=3, key_width=3, width=8) is core.dot
    True
    >>> core.make_score("general", query_width=2, key_width=3, width=8)
    General(
      (W): Linear(in_features=3, out_features=2, bias=False)
    )
    """
    if name in ONE_WIDTH and query_width != key_width:
        raise ConfigError(
            f"model.score = {name!r} compares a query and keys of one width; here the query has {query_width} numbers "
            f"and the keys have {key_width}. Use general, additive or concat."
        )
    return SCORES[name](query_width, key_width, width)


def project_keys(score: Any, states: Tensor) -> Tensor:
    """The keys of `states` [..., S, D] for this score: projected where the score has a projection, else the states.

    >>> states = torch.randn(1, 5, 3)
    >>> core.project_keys(core.Additive(query_width=2, key_width=3, width=8), states).shape
    torch.Size([1, 5, 8])
    >>> core.project_keys(core.dot, states) is states
    True
    """
    project = getattr(score, "project", None)
    return states if project is None else project(states)


def check_width(name: str, what: str, given: Tensor, width: int) -> None:
    """Refuse what a score was not made for."""
    if given.shape[-1] != width:
        raise ShapeError(
            f"The {name} score was made for {what} of width {width}; got {list(given.shape)}. "
            f"Keys come from project_keys(score, states); give the score the widths of its query and states."
        )


def _check_widths(name: str, query: Tensor, keys: Tensor) -> None:
    if query.shape[-1] != keys.shape[-1]:
        raise ShapeError(
            f"The {name} score needs a query and keys of one width; got {query.shape[-1]} and {keys.shape[-1]}. "
            f"Use General or Additive for different widths."
        )
