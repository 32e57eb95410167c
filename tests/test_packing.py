"""Sentences end to end: the same losses and gradients as padded ones, for every Transformer that can."""

from dataclasses import replace

import pytest
import torch

from regard.core.blocks import apart, end_to_end, word_numbers
from regard.data.batching import Batch, pack
from regard.look.record import record
from regard.models.registry import MODELS, build
from regard.symbols import END, PAD, START
from regard.training.objectives import can_pack, likelihood, packed_likelihood

FOUND = MODELS["transformer"]
PACKED = ("tiny", "pre", "rotary", "pre-rotary", "tied-target", "untied", "shallow-decoder", "modern")
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
    batch = a_batch()
    padded = likelihood(model, batch.source, batch.source_lengths, batch.target, smoothing=0.1)
    packed = packed_likelihood(model, pack(batch, 64), smoothing=0.1)
    torch.testing.assert_close(packed, padded)
    weights = list(model.parameters())
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, weights) for loss, _ in (packed, padded)), rtol=1e-4, atol=1e-5
    )


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


def test_apart_and_end_to_end_are_inverse() -> None:
    places = torch.tensor([[2, 3, -1], [0, -1, -1], [-1, -1, -1]])
    row = torch.randn(1, 2, 4, 3)
    row[:, :, 1] = 0.0  # of no sentence
    torch.testing.assert_close(end_to_end(apart(row, places), places, 4), row)
    assert word_numbers(places, 4).tolist() == [0, 0, 0, 1]


def test_recording_sees_the_weights_of_each_sentence() -> None:
    model = build("transformer", replace(FOUND.presets["tiny"], **SIZES))
    found = pack(a_batch(), 64)
    with record(model) as seen:
        packed_likelihood(model, found)
    weights = seen["decoder.0.cross_attention.attention"].weights  # [B, H, T, S]
    assert weights.shape[0] == len(found.queries)
    real = found.queries >= 0
    torch.testing.assert_close(weights.sum(-1).transpose(1, 2)[real], torch.ones(int(real.sum()), weights.shape[1]))
