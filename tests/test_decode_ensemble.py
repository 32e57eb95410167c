"""Several models as one: the means of their probabilities, and the contract of a single model."""

import pytest
import torch
from decode_models import Breaking, Tiny, batch, sentences, teacher_forced

from regard.decode.ensemble import Ensemble
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, ShapeError
from regard.models.contract import take_beams
from regard.symbols import END

TEXTS = sentences(7)
TARGET = torch.tensor([[5, 6, 7, END]]).repeat(7, 1)


def members() -> list[Tiny]:
    return [Tiny(seed=1), Tiny(seed=2, width=5), Tiny(seed=3)]


def test_the_geometric_mean_is_renormalised() -> None:
    source, lengths = batch(TEXTS)
    each = torch.stack([model(source, lengths, TARGET).softmax(-1) for model in members()])  # [3, B, T, V]
    product = each.prod(0) ** (1 / 3)
    expected = product / product.sum(-1, keepdim=True)
    assert torch.allclose(Ensemble(members())(source, lengths, TARGET).softmax(-1), expected, atol=1e-6)


@pytest.mark.parametrize("beam", [1, 4])
def test_search_with_an_ensemble_scores_as_the_ensemble_does(beam: int) -> None:
    model = Ensemble(members())
    for text, (best,) in zip(TEXTS, decode(model, *batch(TEXTS), DecodeConfig(beam=beam)), strict=True):
        tokens = [*best.ids, END] if best.finished else best.ids
        assert best.token_logprobs == pytest.approx(teacher_forced(model, text, tokens), abs=1e-5)  # type: ignore[arg-type]


def test_a_model_joined_with_itself_is_itself() -> None:
    config = DecodeConfig(beam=3, nbest=3)
    alone = decode(Tiny(seed=5), *batch(TEXTS), config)
    joined = decode(Ensemble([Tiny(seed=5)] * 2), *batch(TEXTS), config)
    assert [[h.ids for h in found] for found in joined] == [[h.ids for h in found] for found in alone]


def test_beams_of_one_sentence_leave_the_memories_where_they_are() -> None:
    model = Ensemble(members())
    state = model.start(model.encode(*batch(TEXTS)))
    moved = take_beams(state, torch.tensor([1, 0, 2, 3, 4, 5, 6]))
    assert moved.memory is state.memory
    assert torch.equal(moved.states[1].hidden[0], state.states[1].hidden[1])
    assert all(part.memory is None for part in moved.states)


def test_one_member_that_breaks_breaks_the_ensemble() -> None:
    model = Ensemble([Tiny(seed=1), Breaking(float("nan"), seed=2)])
    even, odd = decode(model, *batch([[4, 5], [5, 6]]), DecodeConfig(beam=2, min_length=4))
    assert (even[0].ended, odd[0].ended) == ("not finite", odd[0].ended)
    assert odd[0].ended != "not finite"


def test_models_of_different_vocabularies_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"share one target vocabulary; theirs have \[11, 13\] tokens"):
        decode(Ensemble([Tiny(), Tiny(vocabulary=13)]), *batch(TEXTS), DecodeConfig())
    with pytest.raises(ConfigError, match="at least one model"):
        Ensemble([])
