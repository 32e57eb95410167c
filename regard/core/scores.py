"""How well does each slot answer the query? Scores [B, ..., T, S] before any normalising.

A score without parameters is a function, one with parameters a module; both are called as `score(query, keys)`.
A module with work to do on the keys has `project(states) -> keys`, done once for a sentence and kept in `Memory`;
`project_keys` does that for any score.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ShapeError


def dot(query: Tensor, keys: Tensor) -> Tensor:
    """q . k (Luong 2015). The widths of query and keys must be equal."""
    _check_widths("dot", query, keys)
    return query @ keys.transpose(-1, -2)  # [..., T, S]


def uniform(query: Tensor, keys: Tensor) -> Tensor:
    """Zero for every slot: no preference. With the one slot of a fixed-vector model the weight is then exactly one."""
    return query.new_zeros(*query.shape[:-1], keys.shape[-2])  # [..., T, S]


def scaled_dot(query: Tensor, keys: Tensor) -> Tensor:
    """q . k / sqrt(d_k) (Vaswani 2017): unit variance for unit queries and keys, whatever the width."""
    _check_widths("scaled_dot", query, keys)
    return (query / math.sqrt(keys.shape[-1])) @ keys.transpose(-1, -2)  # [..., T, S]


class Cosine(nn.Module):
    """strength * cos(q, k), content-based addressing (Graves 2014).

    The strength is positive (softplus of a learned number): without it the scores lie in [-1, 1], and a softmax over
    many slots could never become peaked.
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
    """q^T W k (Luong 2015): W is applied to the keys, once."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.W = nn.Linear(key_width, query_width, bias=False)

    def project(self, states: Tensor) -> Tensor:
        check_width("General", "states", states, self.W.in_features)
        return self.W(states)  # [..., S, query_width]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot(query, keys)


def is_dot(score: object) -> bool:
    """Whether the scores are q . k, with keys as they were projected; a subclass with another `forward` is not."""
    return score is dot or getattr(type(score), "forward", None) is General.forward


class Perceptron(nn.Module):
    """v^T tanh(q + k), for a query and keys that come projected to one width. The four scores below project them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.v = nn.Linear(width, 1, bias=False)

    def ask(self, query: Tensor) -> Tensor:
        """The query as the perceptron adds it to a key: [..., T, width]."""
        return query

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        query = self.ask(query)
        check_width(type(self).__name__, "projected keys", keys, self.v.in_features)
        hidden = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))  # [..., T, S, width]
        return self.v(hidden).squeeze(-1)  # [..., T, S]


def is_perceptron(score: object) -> bool:
    """Whether the scores are v^T tanh(q + k); a subclass with another `forward` is not."""
    return getattr(type(score), "forward", None) is Perceptron.forward


class Additive(Perceptron):
    """v^T tanh(W q + U k), Bahdanau's perceptron. U k does not depend on the query and is computed once."""

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__(width)
        self.W = nn.Linear(query_width, width, bias=False)
        self.U = nn.Linear(key_width, width, bias=False)

    def project(self, states: Tensor) -> Tensor:
        check_width("Additive", "states", states, self.U.in_features)
        return self.U(states)  # [..., S, width]

    def ask(self, query: Tensor) -> Tensor:
        check_width("Additive", "query", query, self.W.in_features)
        return self.W(query)


class Concat(Perceptron):
    """v^T tanh(W [q; k]), Luong's concat as the paper prints it.

    W is kept as one matrix [width, query + key]; splitting it in two shows that this is Bahdanau's score.
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__(width)
        self.query_width = query_width
        self.W = nn.Linear(query_width + key_width, width, bias=False)

    def project(self, states: Tensor) -> Tensor:
        check_width("Concat", "states", states, self.W.in_features - self.query_width)
        return nn.functional.linear(states, self.W.weight[:, self.query_width :])  # [..., S, width]

    def ask(self, query: Tensor) -> Tensor:
        check_width("Concat", "query", query, self.query_width)
        return nn.functional.linear(query, self.W.weight[:, : self.query_width])


class ConcatReleased(Perceptron):
    """v^T tanh(k + W q), Luong's concat as the released code computes it: the block on the keys is the identity."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(key_width)
        self.W = nn.Linear(query_width, key_width, bias=False)

    def ask(self, query: Tensor) -> Tensor:
        check_width("ConcatReleased", "query", query, self.W.in_features)
        return self.W(query)


class Location(nn.Module):
    """(W q)_s, Luong's location score: it sees where a slot is and nothing of what is in it.

    W has one row for each of `longest` positions. A shorter source uses the first rows; slots beyond `longest`
    score -inf, so that every normaliser gives them weight 0.
    """

    def __init__(self, query_width: int, longest: int) -> None:
        super().__init__()
        self.W = nn.Linear(query_width, longest, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        check_width("Location", "query", query, self.W.in_features)
        size = keys.shape[-2]
        scores = query @ self.W.weight[:size].T  # [..., T, min(S, longest)]
        beyond = size - scores.shape[-1]
        return nn.functional.pad(scores, (0, beyond), value=-math.inf) if beyond else scores  # [..., T, S]


def project_keys(score: Any, states: Tensor) -> Tensor:
    """The keys of `states` [..., S, D] for this score: projected where the score has a projection, else the states."""
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
