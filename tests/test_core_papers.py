"""The core beside the papers: every score, normaliser, mask and position against the plain loops, and their laws."""

import math

import numpy as np
import papers
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core.attend import Memory, attend
from regard.core.masks import causal_mask, padding_mask, window_mask
from regard.core.normalise import (
    GaussianWindow,
    Window,
    causal_softmax,
    entmax15,
    hard_argmax,
    hard_sample,
    softmax,
    sparsemax,
)
from regard.core.positions import LearnedPositions, rotate, sinusoid
from regard.core.scores import (
    Additive,
    Concat,
    ConcatReleased,
    Cosine,
    General,
    Location,
    dot,
    project_keys,
    scaled_dot,
    uniform,
)

B, T, S, D, K = 2, 3, 5, 7, 4  # K: another width, for scores that join two
CLOSE = {"atol": 1e-9, "rtol": 0.0}


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(11)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def array(x: Tensor) -> np.ndarray:
    return x.detach().numpy().astype(np.float64)


def close(ours: Tensor, reference: np.ndarray, **tolerance: float) -> bool:
    return np.allclose(array(ours), reference, **(tolerance or CLOSE))


def spread(module: torch.nn.Module) -> torch.nn.Module:
    """Weights large enough for every nonlinearity to matter."""
    for weight in module.parameters():
        torch.nn.init.normal_(weight)
    return module


# --- scores ----------------------------------------------------------------------------------------------------------


def with_loops(query: Tensor, states: Tensor, score, *weights: np.ndarray) -> np.ndarray:
    return np.stack([papers.scores_of(score, array(q), array(k), *weights) for q, k in zip(query, states, strict=True)])


def test_scores_without_parameters_are_the_papers():
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    assert close(dot(query, keys), with_loops(query, keys, papers.dot))
    assert close(scaled_dot(query, keys), with_loops(query, keys, papers.scaled_dot))


def test_general_is_the_papers():
    query, states = torch.randn(B, T, D), torch.randn(B, S, K)
    score = spread(General(D, K))
    ours = score(query, project_keys(score, states))
    assert close(ours, with_loops(query, states, papers.general, array(score.W.weight)))


def test_additive_is_the_papers():
    query, states = torch.randn(B, T, D), torch.randn(B, S, K)
    score = spread(Additive(D, K, 6))
    ours = score(query, project_keys(score, states))
    weights = array(score.W.weight), array(score.U.weight), array(score.v.weight)[0]
    assert close(ours, with_loops(query, states, papers.additive, *weights))


def test_luong_concat_is_the_papers():
    query, states = torch.randn(B, T, D), torch.randn(B, S, K)
    score = spread(Concat(D, K, 6))
    ours = score(query, project_keys(score, states))
    weights = array(score.W.weight), array(score.v.weight)[0]
    assert close(ours, with_loops(query, states, papers.luong_concat, *weights))


def test_luong_concat_released_is_the_codes():
    query, states = torch.randn(B, T, D), torch.randn(B, S, K)
    score = spread(ConcatReleased(D, K))
    ours = score(query, project_keys(score, states))
    weights = array(score.W.weight), array(score.v.weight)[0]
    assert close(ours, with_loops(query, states, papers.luong_concat_code, *weights))


def test_cosine_is_the_papers():
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    keys[0, 1] = 0  # a key of length zero scores zero
    for strength in (0.3, 1.0, 12.0):
        ours = Cosine(strength)(query, keys)
        assert close(ours, with_loops(query, keys, papers.cosine, strength))
    assert (Cosine(2.0)(query, keys).abs() <= 2 + 1e-12).all()


@pytest.mark.parametrize("longest", [3, 5, 9])
def test_location_is_the_papers(longest: int):
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    score = spread(Location(D, longest))
    rows = [[papers.location(q, array(score.W.weight), S) for q in array(row)] for row in query]
    assert close(score(query, keys), np.array(rows))


def test_uniform_gives_every_slot_the_same_score():
    scores = uniform(torch.randn(B, T, D), torch.randn(B, S, K))
    assert torch.equal(scores, torch.zeros(B, T, S))
    assert torch.equal(softmax(scores), torch.full((B, T, S), 1 / S))


def test_scores_take_heads():
    query, keys = torch.randn(B, 4, T, D), torch.randn(B, 4, S, D)
    additive = spread(Additive(D, D, 6))
    for score in (dot, scaled_dot, Cosine(1.0), additive, spread(Location(D, S))):
        whole = score(query, project_keys(score, keys))
        assert whole.shape == (B, 4, T, S)
        assert torch.allclose(whole[:, 2], score(query[:, 2], project_keys(score, keys[:, 2])), **CLOSE)


def test_equivalence_cosine_is_dot_on_unit_vectors():
    query, keys = F.normalize(torch.randn(B, T, D), dim=-1), F.normalize(torch.randn(B, S, D), dim=-1)
    assert torch.allclose(Cosine(1.0)(query, keys), dot(query, keys), **CLOSE)


def test_t3_4_general_with_identity_is_dot():
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    score = General(D, D)
    torch.nn.init.eye_(score.W.weight)
    assert torch.allclose(score(query, project_keys(score, keys)), dot(query, keys), **CLOSE)


def test_t3_4_concat_of_the_code_without_its_query_block_does_not_see_the_query():
    query, keys = torch.randn(B, T, D), torch.randn(B, S, K)
    score = spread(ConcatReleased(D, K))
    torch.nn.init.zeros_(score.W.weight)
    scores = score(query, keys)
    assert torch.equal(scores, score(torch.randn(B, T, D), keys))
    assert torch.equal(scores[:, 0], scores[:, 2])


def test_equivalence_luong_concat_is_additive_with_a_split_matrix():
    query, states = torch.randn(B, T, D), torch.randn(B, S, K)
    concat, additive = spread(Concat(D, K, 6)), Additive(D, K, 6)
    with torch.no_grad():
        additive.W.weight.copy_(concat.W.weight[:, :D])
        additive.U.weight.copy_(concat.W.weight[:, D:])
        additive.v.weight.copy_(concat.v.weight)
    ours = concat(query, project_keys(concat, states))
    assert torch.allclose(ours, additive(query, project_keys(additive, states)), **CLOSE)


def test_equivalence_additive_is_not_symmetric():
    query, states = torch.randn(B, T, D), torch.randn(B, S, D)
    score = spread(Additive(D, D, 6))
    forth = score(query, project_keys(score, states))
    back = score(states, project_keys(score, query)).transpose(-1, -2)
    assert not torch.allclose(forth, back, atol=1e-3)


def test_t3_6_location_ignores_what_is_in_the_slots():
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    score = spread(Location(D, 8))
    assert torch.equal(score(query, keys), score(query, torch.randn(B, S, D)))


@pytest.mark.parametrize("width", [4, 64, 512])
def test_t5_9_scaled_scores_have_unit_variance(width: int):
    scores = scaled_dot(torch.randn(1, 300, width), torch.randn(1, 300, width))
    assert scores.var().item() == pytest.approx(1, abs=0.05)


def test_t8_2_dot_grows_with_the_width_and_additive_is_bounded():
    small = dot(torch.randn(1, 300, 16), torch.randn(1, 300, 16)).var().item()
    large = dot(torch.randn(1, 300, 256), torch.randn(1, 300, 256)).var().item()
    assert large / small == pytest.approx(16, rel=0.15)
    score = spread(Additive(D, D, 32))
    scores = score(100 * torch.randn(B, T, D), project_keys(score, 100 * torch.randn(B, S, D)))
    assert (scores.abs() <= score.v.weight.abs().sum() + 1e-12).all()


# --- normalisers -----------------------------------------------------------------------------------------------------

CENTRE = torch.tensor([[0.0, 2.3, 4.6], [1.5, 3.0, 7.0]], dtype=torch.float64)  # [B, T]


def local_m(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    return Window(1)(scores, mask, CENTRE.round().to(scores.dtype))


def local_p(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    return GaussianWindow(2)(scores, mask, CENTRE.to(scores.dtype))


def local_p_released(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    return GaussianWindow(2, released=True)(scores, mask, CENTRE.to(scores.dtype))


NORMALISERS = {
    "softmax": (softmax, lambda e, m, b, t: papers.softmax(e, m)),
    "causal_softmax": (
        causal_softmax,
        lambda e, m, b, t: papers.softmax(e, [s <= t + S - T and (m is None or m[s]) for s in range(S)]),
    ),
    "hard_argmax": (hard_argmax, lambda e, m, b, t: papers.hard(e, m)),
    "local_m": (local_m, lambda e, m, b, t: papers.local_m(e, round(CENTRE[b, t].item()), 1, m)),
    "local_p": (local_p, lambda e, m, b, t: papers.local_p(e, CENTRE[b, t].item(), 2, m)),
    "local_p_released": (
        local_p_released,
        lambda e, m, b, t: papers.local_p(e, CENTRE[b, t].item(), 2, m, floor_window=True),
    ),
    "sparsemax": (sparsemax, lambda e, m, b, t: papers.sparsemax(e, m)),
    "entmax15": (entmax15, lambda e, m, b, t: papers.entmax15(e, m)),
}
SUM_TO_ONE = ["softmax", "hard_argmax", "sparsemax", "entmax15"]
names = pytest.mark.parametrize("name", NORMALISERS)

MASKS = {
    "none": None,
    "padding": padding_mask(torch.tensor([5, 2]), S),
    "lengths_zero": padding_mask(torch.tensor([3, 0]), S),
    "ragged": torch.tensor([[[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]] * 2).bool(),
}


@names
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("scale", [0.3, 1.0, 30.0])
def test_normalisers_are_the_papers(name: str, mask: Tensor | None, scale: float):
    ours, reference = NORMALISERS[name]
    scores = scale * torch.randn(B, T, S)
    full = None if mask is None else array(mask.expand(B, T, S)).astype(bool)
    want = np.array(
        [
            [reference(array(scores[b, t]), None if full is None else full[b, t], b, t) for t in range(T)]
            for b in range(B)
        ]
    )
    assert close(ours(scores, mask), want)


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "softmax"])
@pytest.mark.parametrize("hidden", [0, 1, 2, 20, 39])
def test_long_rows_with_many_hidden_slots_are_the_papers(name: str, hidden: int):
    ours, reference = NORMALISERS[name]
    scores = torch.randn(1, 8, 40) * torch.logspace(-2, 2, 8)[:, None]
    mask = torch.ones(1, 8, 40, dtype=torch.bool)
    for t in range(8):
        mask[0, t, torch.randperm(40)[:hidden]] = False
    want = np.array([reference(array(scores[0, t]), mask[0, t].tolist(), 0, t) for t in range(8)])
    assert close(ours(scores, mask)[0], want)
    assert close(ours(scores.float(), mask)[0], want, atol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("size", [40, 600])
def test_bfloat16_rows_are_the_exact_ones_up_to_rounding(name: str, scale: float, size: int):
    ours, _ = NORMALISERS[name]
    scores = (scale * torch.randn(1, 8, size)).bfloat16()
    exact = ours(scores.double())
    assert torch.allclose(ours(scores).double(), exact, atol=0.02, rtol=0)
    assert torch.allclose(ours(scores).double().sum(-1), torch.ones(1, 8), atol=0.05, rtol=0)


@names
def test_weights_are_zero_where_the_mask_hides(name: str):
    ours, _ = NORMALISERS[name]
    for mask in list(MASKS.values())[1:]:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            weights = ours((5 * torch.randn(B, T, S)).to(dtype), mask)
            assert weights.dtype == dtype
            assert (weights[~mask.expand(B, T, S)] == 0).all()
            assert (weights >= 0).all()


@pytest.mark.parametrize("name", SUM_TO_ONE)
def test_weights_sum_to_one_where_anything_is_visible(name: str):
    ours, _ = NORMALISERS[name]
    for mask in MASKS.values():
        sums = ours(5 * torch.randn(B, T, S), mask).sum(-1)
        somewhere = torch.ones(B, T) if mask is None else mask.expand(B, T, S).any(-1).double()
        assert torch.allclose(sums, somewhere, **CLOSE)


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_row_that_may_look_nowhere_gives_exact_zeros(name: str, dtype: torch.dtype):
    ours, _ = NORMALISERS[name]
    mask = torch.tensor([[[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]]] * 2).bool()
    scores = torch.randn(B, T, S).to(dtype).requires_grad_()
    values = torch.randn(B, S, D).to(dtype).requires_grad_()
    weights = ours(scores, mask)
    context = weights @ values
    assert (weights[:, 1] == 0).all()
    assert (context[:, 1] == 0).all()
    if weights.requires_grad:  # a hard choice has no gradient
        (context * torch.randn(B, T, D).to(dtype)).sum().backward()
        assert (scores.grad[:, 1] == 0).all()
        assert scores.grad.isfinite().all()
        assert (scores.grad[~mask] == 0).all()
        assert values.grad.isfinite().all()


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_scores_of_minus_infinity_are_nowhere_to_look(name: str, dtype: torch.dtype):
    ours, _ = NORMALISERS[name]
    mask = torch.tensor([[[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]]] * 2).bool()
    scores = torch.randn(B, T, S).to(dtype)
    hidden = scores.masked_fill(~mask, -math.inf).requires_grad_()
    weights = ours(hidden)
    assert torch.equal(weights, ours(scores, mask))
    if weights.requires_grad:
        (weights * torch.randn(B, T, S).to(dtype)).sum().backward()
        assert hidden.grad.isfinite().all()
        assert (hidden.grad[~mask] == 0).all()


@pytest.mark.parametrize("name", SUM_TO_ONE)
def test_adding_a_constant_to_all_scores_changes_nothing(name: str):
    ours, _ = NORMALISERS[name]
    scores = 3 * torch.randn(B, T, S)
    for mask in MASKS.values():
        assert torch.allclose(ours(scores + 17.0, mask), ours(scores, mask), **CLOSE)


def test_equivalence_scaling_the_query_is_a_temperature():
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    plain = softmax(dot(query, keys))
    sharp = plain**2.5 / (plain**2.5).sum(-1, keepdim=True)
    assert torch.allclose(softmax(dot(2.5 * query, keys)), sharp, **CLOSE)


def test_softmax_is_stable():
    scores = torch.tensor([[[1e4, 1e4 - 1, -1e4]]])
    assert close(softmax(scores)[0, 0], papers.softmax(array(scores[0, 0])))
    assert softmax(scores.float() * 1e30).isfinite().all()


def test_sparse_normalisers_give_the_printed_values():
    scores = torch.tensor([[[-2.0, 0.0, 0.5]]])
    assert close(softmax(scores)[0, 0], [0.0486, 0.3592, 0.5922], atol=5e-5)
    assert close(sparsemax(scores)[0, 0], [0, 0.25, 0.75])
    assert close(entmax15(scores)[0, 0], [0, 0.3260, 0.6740], atol=5e-5)


@pytest.mark.parametrize("normalise", [sparsemax, entmax15])
def test_sparse_laws(normalise):
    scores = 2 * torch.randn(4, T, 9)
    weights = normalise(scores)
    assert (weights == 0).any()  # exact zeros
    gap = torch.zeros(1, 1, S)
    gap[..., 3] = 10
    assert torch.equal(normalise(gap), F.one_hot(torch.tensor([[3]]), S).double())
    row = scores[0, 0]
    jacobian = torch.autograd.functional.jacobian(lambda e: normalise(e[None, None])[0, 0], row)
    assert torch.allclose(jacobian.sum(0), torch.zeros(9), **CLOSE)
    assert torch.allclose(jacobian.sum(1), torch.zeros(9), **CLOSE)
    off = weights[0, 0] == 0
    assert (jacobian[off] == 0).all()
    assert (jacobian[:, off] == 0).all()


@pytest.mark.parametrize(
    "name", ["softmax", "causal_softmax", "local_m", "local_p", "local_p_released", "sparsemax", "entmax15"]
)
@pytest.mark.parametrize("mask", [None, MASKS["padding"], MASKS["ragged"]], ids=["none", "padding", "ragged"])
def test_gradients_are_those_of_finite_differences(name: str, mask: Tensor | None):
    ours, _ = NORMALISERS[name]
    scores = torch.randn(B, T, S, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: ours(e, mask), scores)


def test_gaussian_gradient_reaches_the_centre():
    scores = torch.randn(1, T, S)
    centre = torch.tensor([[0.3, 2.2, 3.7]], requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: GaussianWindow(2)(scores, None, p), centre)
    GaussianWindow(2)(scores, None, centre).sum().backward()
    assert (centre.grad != 0).all()


# --- local windows ---------------------------------------------------------------------------------------------------


def test_t3_1_local_rows_sum_to_at_most_one_and_stay_under_the_softmax():
    scores, mask = torch.randn(B, T, S), MASKS["padding"]
    centre = torch.tensor([[0.0, 2.0, 4.6], [1.5, 0.25, 1.0]])
    weights = GaussianWindow(2)(scores, mask, centre)
    before = Window(2)(scores, mask, centre)
    assert (weights.sum(-1) <= 1).all()
    assert (weights <= before).all()
    at_centre = torch.arange(S) == centre[..., None]
    same = (weights == before) & (before > 0)
    assert torch.equal(same, at_centre & (before > 0))
    assert torch.allclose(before.sum(-1), torch.ones(B, T), **CLOSE)


def test_t3_2_local_weights_are_zero_outside_the_window_and_the_sentence():
    scores, lengths = torch.randn(B, T, 30), torch.tensor([30, 12])
    centre = torch.tensor([[3.4, 15.0, 29.0], [1.0, 9.7, 12.0]])
    mask = padding_mask(lengths, 30)
    inside = ((torch.arange(30) - centre[..., None]).abs() <= 4) & mask
    for normalise in (Window(4), GaussianWindow(4)):  # the paper's window, |s - p| <= D
        weights = normalise(scores, mask, centre)
        assert torch.equal(weights > 0, inside)
        assert ((weights > 0).sum(-1) <= 9).all()
    released = GaussianWindow(4, released=True)(scores, mask, centre)  # the code's window, |s - floor(p)| <= D
    assert torch.equal(released > 0, ((torch.arange(30) - centre.floor()[..., None]).abs() <= 4) & mask)


def test_t3_3_a_window_wider_than_the_sentence_is_global():
    scores, mask = torch.randn(B, T, S), MASKS["padding"]
    centre = torch.tensor([[0.0, 2.0, 4.6], [1.5, 0.25, 1.0]])
    assert torch.allclose(Window(S)(scores, mask, centre.floor()), softmax(scores, mask), **CLOSE)
    flat = GaussianWindow(10**8)(scores, mask, centre)  # sigma = D / 2, as good as infinite
    assert torch.allclose(flat, softmax(scores, mask), **CLOSE)


@pytest.mark.parametrize("half_width", [2, 10])
def test_t3_8_gaussian_at_the_edge_of_the_window(half_width: int):
    scores, centre = torch.randn(1, 1, 25), torch.tensor([[12.0]])
    ratio = (GaussianWindow(half_width)(scores, None, centre) / Window(half_width)(scores, None, centre))[0, 0]
    for edge in (12 - half_width, 12 + half_width):
        assert ratio[edge].item() == pytest.approx(math.exp(-2), abs=1e-12)
    assert ratio[12].item() == 1.0


def test_t3_2_a_window_far_along_holds_in_bfloat16():
    scores, centre = torch.randn(1, 1, 400), torch.tensor([[304.0]])  # a number that bfloat16 knows
    for normalise in (Window(3), GaussianWindow(3), GaussianWindow(3, released=True)):
        weights = normalise(scores.bfloat16(), None, centre.bfloat16())
        assert (weights[0, 0] > 0).nonzero().flatten().tolist() == list(range(301, 308))
        assert torch.allclose(weights.double(), normalise(scores, None, centre), atol=0.01, rtol=0)


def test_local_m_past_the_end_of_the_sentence_looks_nowhere():
    weights = Window(2)(torch.randn(1, 2, S), padding_mask(torch.tensor([3]), S), torch.tensor([[4, 6]]))
    assert (weights[0, 0] > 0).tolist() == [False, False, True, False, False]
    assert (weights[0, 1] == 0).all()


# --- hard sampling ---------------------------------------------------------------------------------------------------


def test_hard_sample_is_one_visible_slot_with_its_log_probability():
    scores = torch.randn(B, T, S, requires_grad=True)
    for mask in (None, MASKS["ragged"], MASKS["lengths_zero"]):
        weights, logprob = hard_sample(scores, mask)
        somewhere = torch.ones(B, T) if mask is None else mask.expand(B, T, S).any(-1).double()
        assert torch.equal(weights.sum(-1), somewhere)
        assert set(weights.unique().tolist()) <= {0.0, 1.0}
        if mask is not None:
            assert (weights[~mask.expand(B, T, S)] == 0).all()
        expected = (weights * softmax(scores, mask)).sum(-1)
        assert torch.allclose(logprob.exp()[somewhere > 0], expected[somewhere > 0], **CLOSE)
        assert (logprob[somewhere == 0] == 0).all()
        assert not weights.requires_grad
        (grad,) = torch.autograd.grad(logprob.sum(), scores, retain_graph=True)
        assert torch.allclose(grad, weights - softmax(scores, mask).detach(), **CLOSE)


def test_hard_sample_draws_from_the_softmax_and_repeats_with_its_generator():
    scores = torch.randn(1, 1, S).expand(1, 20_000, S)
    weights, _ = hard_sample(scores, None, torch.Generator().manual_seed(5))
    again, _ = hard_sample(scores, None, torch.Generator().manual_seed(5))
    assert torch.equal(weights, again)
    assert torch.allclose(weights.mean(1), softmax(scores)[:, 0], atol=0.02)


# --- the three lines, masks ------------------------------------------------------------------------------------------


def test_attend_is_the_papers_attention():
    query, keys, values = torch.randn(B, T, D), torch.randn(B, S, D), torch.randn(B, S, K)
    mask = MASKS["ragged"]
    look = attend(query, Memory(keys, values, mask), scaled_dot, softmax)
    for b in range(B):
        context, weights = papers.attention(array(query[b]), array(keys[b]), array(values[b]), mask[b].tolist())
        assert close(look.context[b], context)
        assert close(look.weights[b], weights)
    assert close(look.scores, with_loops(query, keys, papers.scaled_dot))


@pytest.mark.parametrize("mask", [None, MASKS["padding"]], ids=["none", "padding"])
def test_t5_2_attend_is_torchs_scaled_dot_product_attention(mask: Tensor | None):
    query, keys, values = torch.randn(B, 4, T, D), torch.randn(B, 4, S, D), torch.randn(B, 4, S, K)
    heads = None if mask is None else mask[:, None]
    look = attend(query, Memory(keys, values, heads), scaled_dot, softmax)
    theirs = F.scaled_dot_product_attention(query, keys, values, attn_mask=heads)
    assert torch.allclose(look.context, theirs, **CLOSE)
    own = attend(query, Memory(query, query, causal_mask(T)), scaled_dot, softmax)
    assert torch.allclose(own.context, F.scaled_dot_product_attention(query, query, query, is_causal=True), **CLOSE)


@pytest.mark.parametrize("normalise", [softmax, sparsemax, entmax15, hard_argmax])
@pytest.mark.parametrize("kind", ["dot", "scaled_dot", "additive", "general", "cosine"])
def test_t2_4_content_attention_follows_a_permutation(normalise, kind: str):
    score = {
        "dot": dot,
        "scaled_dot": scaled_dot,
        "additive": spread(Additive(D, D, 6)),
        "general": spread(General(D, D)),
        "cosine": Cosine(3.0),
    }[kind]
    query, states, mask = torch.randn(B, T, D), torch.randn(B, S, D), padding_mask(torch.tensor([5, 3]), S)
    order = torch.tensor([3, 0, 4, 1, 2])
    look = attend(query, Memory(project_keys(score, states), states, mask), score, normalise)
    moved = states[:, order]
    other = attend(query, Memory(project_keys(score, moved), moved, mask[..., order]), score, normalise)
    assert torch.allclose(other.weights, look.weights[..., order], **CLOSE)
    assert torch.allclose(other.context, look.context, **CLOSE)


def test_masks_are_the_papers():
    assert causal_mask(4).tolist() == papers.causal(4)
    assert padding_mask(torch.tensor([2, 0, 3]), 3)[:, 0].tolist() == [[True, True, False], [False] * 3, [True] * 3]
    centre = torch.tensor([[0.0, 2.5, 9.0]])
    assert window_mask(centre, 2, 6)[0].tolist() == [papers.window(c, 2, 6) for c in (0.0, 2.5, 9.0)]


# --- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 6, 16])
def test_sinusoid_is_the_papers(width: int):
    positions = torch.tensor([[0, 1, 2], [7, 100, 4999]])
    want = [[papers.sinusoid(pos, width) for pos in row] for row in positions.tolist()]
    assert close(sinusoid(positions, width), np.array(want))


def test_t5_6_sinusoid_moves_by_a_rotation_and_has_a_fixed_norm():
    width = 8
    positions = torch.arange(50)
    table = sinusoid(positions, width).double()
    assert torch.allclose(table.square().sum(-1), torch.full((50,), width / 2), **CLOSE)
    for k in (1, 9):
        turn = torch.zeros(width, width)
        for i in range(width // 2):
            angle = k * 10000 ** (-2 * i / width)
            c, s = math.cos(angle), math.sin(angle)
            turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]])
        assert torch.allclose(table[k:], table[:-k] @ turn.T, **CLOSE)


@pytest.mark.parametrize("width", [2, 6, 16])
def test_rotary_is_the_papers(width: int):
    x = torch.randn(B, 4, T, width)
    positions = torch.tensor([0, 3, 1000])
    want = [[[papers.rotary(v, p) for v, p in zip(head, [0, 3, 1000], strict=True)] for head in b] for b in array(x)]
    assert close(rotate(x, positions), np.array(want))


def test_rotary_laws():
    query, keys = torch.randn(B, T, 6), torch.randn(B, S, 6)
    at_t, at_s = torch.arange(T) + 2, torch.arange(S)
    assert torch.equal(rotate(query, torch.zeros(T)), query)
    assert torch.allclose(rotate(query, at_t).norm(dim=-1), query.norm(dim=-1), **CLOSE)
    near = dot(rotate(query, at_t), rotate(keys, at_s))
    for shift in (1, 40):
        assert torch.allclose(dot(rotate(query, at_t + shift), rotate(keys, at_s + shift)), near, **CLOSE)
    assert not torch.allclose(dot(rotate(query, at_t + 1), rotate(keys, at_s)), near, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_rotary_far_away_is_exact_up_to_the_rounding_of_its_input(dtype: torch.dtype):
    x, positions = torch.randn(B, T, 6).to(dtype), torch.tensor([0, 301, 4999])
    turned = rotate(x, positions)
    assert turned.dtype == dtype
    want = [[papers.rotary(v, p) for v, p in zip(row, positions.tolist(), strict=True)] for row in array(x.double())]
    assert close(turned.double(), np.array(want), atol=1e-5 if dtype == torch.float32 else 0.05)


def test_learned_positions_are_rows_of_a_table():
    table = LearnedPositions(6, D)
    positions = torch.tensor([[0, 5], [2, 2]])
    assert torch.equal(table(positions), table.table.weight[positions])
