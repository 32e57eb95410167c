"""Schedules and losses of training beside the papers."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import papers
import pytest
import torch

from regard.models.registry import build, preset
from regard.symbols import PAD
from regard.training.objectives import consistent_likelihood, cross_entropy, guided_alignment
from regard.training.optimisers import plain_optimiser
from regard.training.schedules import SCHEDULES, Moment

T, V = 4, 7


def at(step: int, width: int = 512, epoch: float = 0.0) -> Moment:
    return Moment(step=step, total=100_000, epoch=epoch, stalls=0, width=width)


@pytest.mark.parametrize("width", [512, 1024])
def test_t5_7_noam_is_the_papers_with_its_printed_peaks(width: int):
    settings = SimpleNamespace(rate=1.0, warmup=4000)
    rates = {step: SCHEDULES["noam"](at(step, width), settings) for step in range(1, 9001)}
    for step, rate in rates.items():
        assert rate == pytest.approx(papers.noam(step, width), rel=1e-12)
    assert max(rates, key=rates.__getitem__) == 4000
    assert rates[4000] == pytest.approx({512: 6.99e-4, 1024: 4.94e-4}[width], abs=5e-7)
    assert rates[4000] / SCHEDULES["noam"](at(16_000, width), settings) == pytest.approx(2)


def test_the_inverse_square_root_is_noams_shape_with_its_peak_at_the_rate():
    settings, noam = SimpleNamespace(rate=0.4, warmup=10), SimpleNamespace(rate=1.0, warmup=10)
    peak = SCHEDULES["noam"](at(10), noam)
    for step in (1, 5, 10, 40, 1000):
        shape = SCHEDULES["noam"](at(step), noam) / peak
        assert SCHEDULES["inverse-sqrt"](at(step), settings) == pytest.approx(0.4 * shape)


def test_a_cosine_rises_in_the_warm_up_and_falls_to_nothing():
    """Linear to the rate at the end of the warm-up, half of it half way down, as half a wave."""
    settings = SimpleNamespace(rate=0.4, warmup=10, schedule="cosine")
    rates = [SCHEDULES["cosine"](Moment(step, 110, 0.0, 0, 8), settings) for step in (1, 5, 10, 60, 85, 110)]
    falls = [math.cos(math.pi * share) / 2 + 0.5 for share in (0.0, 0.0, 0.0, 0.5, 0.75, 1.0)]
    rises = [0.1, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert rates == pytest.approx([0.4 * up * down for up, down in zip(rises, falls, strict=True)], abs=1e-9)


def test_halving_is_sutskevers_and_luongs():
    sutskever = SimpleNamespace(rate=0.7, warmup=0, halve_after=5, halve_every=0.5)
    epochs = (0, 4.99, 5, 5.49, 5.5, 6, 7.4)
    assert [0.7 / SCHEDULES["halving"](at(1, epoch=e), sutskever) for e in epochs] == [1, 1, 2, 2, 4, 8, 32]
    luong = SimpleNamespace(rate=1.0, warmup=0, halve_after=5, halve_every=1)
    assert [1 / SCHEDULES["halving"](at(1, epoch=e), luong) for e in (4.9, 5.1, 6.1, 9.9)] == [1, 2, 4, 32]


def test_decay_is_chengs():
    cheng = SimpleNamespace(rate=0.65, warmup=0, decay=0.85, decay_after=0)
    rates = [SCHEDULES["decay"](at(1, epoch=e), cheng) for e in (0, 0.99, 1, 2.5)]
    assert rates == pytest.approx([0.65, 0.65, 0.65 * 0.85, 0.65 * 0.85**2])
    zaremba = SimpleNamespace(rate=1.0, warmup=0, decay=1 / 1.2, decay_after=5)
    rates = [SCHEDULES["decay"](at(1, epoch=e), zaremba) for e in (0, 5.99, 6, 7.5)]
    assert rates == pytest.approx([1, 1, 1 / 1.2, 1 / 1.44])


@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
def test_momentum_carries_the_last_update_on(name: str):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = plain_optimiser([weight], SimpleNamespace(optimiser=name, rate=1.0, momentum=0.5))
    places = [0.0]
    for gradient in (1.0, 0.0):
        weight.grad = torch.tensor([gradient])
        optimiser.step()
        places.append(float(weight.detach()))
    first, second = places[1] - places[0], places[2] - places[1]
    assert first < 0
    assert second == pytest.approx(first / 2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_t5_8_the_smoothed_loss_is_the_papers(smoothing: float):
    logits = torch.randn(2, T, V, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    target = torch.tensor([[4, 5, 6, 2], [3, 2, PAD, PAD]])
    loss, plain = cross_entropy(logits, target, smoothing)
    pairs = [(logits[b, t].numpy(), target[b, t].item()) for b in range(2) for t in range(T) if target[b, t] != PAD]
    want = sum(papers.smoothed_loss(row, gold, smoothing, "all") for row, gold in pairs)
    assert loss.item() == pytest.approx(want, abs=1e-9)
    assert plain.item() == pytest.approx(sum(-papers.log_softmax(row)[gold] for row, gold in pairs), abs=1e-9)


def test_t5_8_at_uniform_logits_the_loss_is_log_v_and_without_smoothing_the_cross_entropy():
    target = torch.tensor([[4, 5, 6, 2]])
    for smoothing in (0.0, 0.1):
        loss, _ = cross_entropy(torch.zeros(1, T, V, dtype=torch.float64), target, smoothing)
        assert loss.item() / T == pytest.approx(math.log(V), abs=1e-12)
    logits = torch.randn(1, T, V, dtype=torch.float64)
    loss, plain = cross_entropy(logits, target, 0.0)
    assert loss.item() == plain.item()
    assert loss.item() == pytest.approx(torch.nn.functional.cross_entropy(logits[0], target[0], reduction="sum").item())


def test_guided_alignment_is_the_papers_sum():
    weights = torch.rand(2, T, 5, dtype=torch.float64).softmax(-1)
    links = torch.tensor(np.random.default_rng(2).integers(0, 2, size=(2, T, 5)), dtype=torch.float64)
    links[0, 1] = 0  # a word without a link
    want = sum(T * papers.guided_alignment_loss(weights[b].numpy(), links[b].tolist()) for b in range(2))
    assert guided_alignment(weights, links).item() == pytest.approx(want, abs=1e-9)


def test_two_passes_that_shall_agree_have_half_the_loss_of_r_drop():
    both = torch.randn(4, T, V, dtype=torch.float64)  # logits of two sentences, read twice with different dropout
    target = torch.tensor([[3, 4, 2, PAD], [5, 2, PAD, PAD]])
    found = consistent_likelihood(lambda _, gold: both, torch.zeros(2, 3), target, weight=5.0)
    p, q = both.softmax(-1).chunk(2)
    want = sum(papers.r_drop(p[b, t], q[b, t], target[b, t], 5.0) for b, t in (target != PAD).nonzero().tolist())
    assert float(found) == pytest.approx(float(want) / 2)


@pytest.mark.parametrize("far", [5.0, 25.0, 60.0])
def test_however_surely_a_word_looks_elsewhere_it_is_pulled_to_its_link(far: float):
    """Through a softmax the gradient of the scores is weights - gold, also where the linked weight is 1e-26."""
    scores = torch.tensor([[[far, 0.0, 1.0]]], requires_grad=True)
    links = torch.tensor([[[0, 1, 0]]])
    weights = scores.softmax(-1)
    guided_alignment(weights, links).backward()
    torch.testing.assert_close(scores.grad, (weights - links).detach(), rtol=0, atol=1e-3)


def test_a_link_of_weight_zero_has_a_finite_loss_and_gradient():
    scores = torch.tensor([[[500.0, 0.0, 1.0]]], requires_grad=True)
    loss = guided_alignment(scores.softmax(-1), torch.tensor([[[0, 1, 0]]]))
    (1000 * loss).backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


def test_gain_scales_what_sub_layers_add_and_not_their_queries():
    """Xavier's bound is sqrt(6 / (in + out)); values, outputs and feed-forward nets begin inside `gain` times it."""
    config = replace(preset("transformer", "tiny"), source_vocabulary=11, target_vocabulary=11, gain=0.25)
    asked = {  # the matrices of queries, keys and values stacked in one
        "self_attention.project.weight": (1.0, 1.0, 0.25),
        "cross_attention.query.weight": (1.0,),
        "cross_attention.project.weight": (1.0, 0.25),
    }
    for name, weights in build("transformer", config).named_parameters():
        if weights.dim() > 1 and "embed" not in name:
            gains = asked.get(name.split(".", 2)[-1], (0.25,))
            for block, gain in zip(weights.detach().chunk(len(gains)), gains, strict=True):
                share = float(block.abs().max()) / math.sqrt(6 / sum(block.shape))
                assert share == pytest.approx(gain, rel=0.01), name
