"""Sentences end to end: the same losses and gradients as padded ones, for every Transformer that can."""

from dataclasses import replace

import pytest
import torch

from regard.core.blocks import apart, end_to_end, word_numbers
from regard.data.batching import Batch, pack
from regard.look.record import record
from regard.models.registry import MODELS, build
from regard.symbols import END, PAD, START
from regard.training.objectives import (
    can_pack,
    consistent_likelihood,
    cross_entropy,
    likelihood,
)

FOUND = MODELS["transformer"]
PACKED = (
    "tiny",
    "pre",
    "rotary",
    "pre-rotary",
    "tied-target",
    "untied",
    "rms",
    "swiglu",
    "grouped",
    "shallow-decoder",
    "modern",
)
SIZES = {"source_vocabulary": 17, "target_vocabulary": 17, "width": 16, "layers": 1, "inner": 24, "dropout": 0.0}


def ragged(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = torch.tensor(lengths)
    rows = torch.randint(4, 17, (len(lengths), max(lengths)))
    rows[torch.arange(max(lengths)) >= sizes[:, None]] = PAD
    rows[torch.arange(len(lengths)), sizes - 1] = END
    return rows, sizes


def a_batch() -> Batch:
    torch.manual_seed(1)
    return Batch(torch.arange(4), *ragged(5, 2, 7, 1), *ragged(3, 6, 1, 4))


@pytest.mark.parametrize("name", ["tiny", *FOUND.variants])
def test_losses_and_gradients_are_those_of_padded_sentences(name: str) -> None:
    torch.manual_seed(3)
    model = build("transformer", replace({"tiny": FOUND.presets["tiny"], **FOUND.variants}[name], **SIZES))
    assert can_pack(model) == model.packs == (name in PACKED)
    if not model.packs:
        return
    batch, weights = a_batch(), list(model.double().parameters())
    inputs = batch.source, batch.source_lengths, batch.target
    padded = cross_entropy(model(*inputs), batch.target, smoothing=0.1)
    gradients = torch.autograd.grad(padded[0], weights)
    for packed in (likelihood(model, pack(batch, 64), smoothing=0.1), likelihood(model, *inputs, smoothing=0.1)):
        torch.testing.assert_close(packed, padded)
        torch.testing.assert_close(torch.autograd.grad(packed[0], weights), gradients)


def test_two_passes_that_shall_agree_may_lie_end_to_end_too() -> None:
    torch.manual_seed(3)
    model = build("transformer", replace(FOUND.presets["tiny"], **SIZES)).double()
    batch, weights = a_batch(), list(model.parameters())
    inputs = batch.source, batch.source_lengths, batch.target
    with record(model):  # which wants padded rows
        padded = consistent_likelihood(model, *inputs, weight=2.0, smoothing=0.1)
    gradients = torch.autograd.grad(padded, weights)
    for packed in (
        consistent_likelihood(model, pack(batch, 64), weight=2.0, smoothing=0.1),
        consistent_likelihood(model, *inputs, weight=2.0, smoothing=0.1),
    ):
        torch.testing.assert_close(packed, padded)
        torch.testing.assert_close(torch.autograd.grad(packed, weights), gradients)


def test_two_passes_end_to_end_have_different_dropout() -> None:
    torch.manual_seed(3)
    model = build("transformer", replace(FOUND.presets["tiny"], **{**SIZES, "dropout": 0.3})).train()
    losses = []
    for weight in (0.0, 1.0):
        torch.manual_seed(4)
        losses.append(consistent_likelihood(model, pack(a_batch(), 64), weight=weight).item())
    assert losses[1] > losses[0] + 0.01  # the divergences, which are 0 where both passes are the same


@pytest.mark.parametrize("lengths", [(5, 2, 7, 1), (4, 4, 4, 4)], ids=["ragged", "whole"])
def test_a_cpu_computes_no_padding(lengths: tuple[int, ...]) -> None:
    model, rows = build("transformer", replace(FOUND.presets["tiny"], **SIZES)), []
    hook = model.encoder[0].feed_forward.register_forward_pre_hook(
        lambda module, given: rows.append(given[0].shape[:2])
    )
    loss, _ = likelihood(model, *ragged(*lengths), ragged(3, 6, 1, 4)[0])
    hook.remove()
    assert torch.isfinite(loss)
    assert rows == [(1, sum(lengths))]


def test_a_row_holds_every_word_once_and_few_sizes_serve() -> None:
    batch = a_batch()
    found = pack(batch, 64)
    for number, (length, row) in enumerate(zip(batch.source_lengths.tolist(), found.slots, strict=False)):
        places = row[row >= 0].long()
        assert torch.equal(found.source[0, places], batch.source[number, :length])
        assert places.tolist() == list(range(int(places[0]), int(places[0]) + length))
    for number, length in enumerate(batch.target_lengths.tolist()):
        places = found.queries[number][:length].long()
        assert torch.equal(found.target[0, places], batch.target[number, :length])
        assert found.words[0, places].tolist() == [START, *batch.target[number, : length - 1].tolist()]
    assert (found.source != PAD).sum() == batch.source_lengths.sum()
    other = pack(Batch(torch.arange(4), *ragged(6, 2, 7, 1), *ragged(3, 6, 1, 4)), 64)
    assert [part.shape for part in other] == [part.shape for part in found]


@pytest.mark.parametrize("tokens", [0, 64, 1024])
def test_each_place_of_a_row_belongs_to_one_sentence(tokens: int) -> None:
    """Kernels write what belongs to a sentence and clear nothing, so PAD at the end of a row lies in sentences too."""
    found = pack(a_batch(), tokens)
    for row, places in ((found.source, found.slots), (found.target, found.queries)):
        assert sorted(places[places >= 0].tolist()) == list(range(row.shape[1]))
    assert bool((found.source == PAD).any()) == (tokens > 0)
    assert len(found.slots) == len(found.queries)


def test_apart_and_end_to_end_are_inverse() -> None:
    places = torch.tensor([[2, 3, -1], [0, -1, -1], [-1, -1, -1]])
    row = torch.randn(1, 2, 4, 3)
    row[:, :, 1] = 0.0  # of no sentence
    row.requires_grad_()
    again = end_to_end(apart(row, places), places, 4)
    torch.testing.assert_close(again, row)
    (grad,) = torch.autograd.grad(again.sum(), row)
    assert torch.equal(grad[0, 0, :, 0], torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert word_numbers(places, 4).tolist() == [0, 0, 0, 1]


def test_recording_sees_the_weights_of_each_sentence() -> None:
    model = build("transformer", replace(FOUND.presets["tiny"], **SIZES))
    found = pack(a_batch(), 64)
    with record(model) as seen:
        likelihood(model, found)
    weights = seen["decoder.0.cross_attention.attention"].weights  # [B, H, T, S]
    assert weights.shape[0] == len(found.queries)
    real = found.queries >= 0
    torch.testing.assert_close(weights.sum(-1).transpose(1, 2)[real], torch.ones(int(real.sum()), weights.shape[1]))
