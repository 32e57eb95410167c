"""Search with every registered translator: its scores are the model's, and neighbours change no translation."""

import random
from dataclasses import replace

import pytest
import torch
from decode_models import batch, sentences, teacher_forced
from torch import nn

from regard.decode.ensemble import Ensemble
from regard.decode.hypothesis import Hypothesis
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.decode.steps import SearchRequest
from regard.errors import DataError
from regard.models.registry import MODELS, build, preset
from regard.symbols import END

TRANSLATORS = [name for name, entry in MODELS.items() if entry.task == "translate"]
VOCABULARY = 53
GREEDY = ("bahdanau", "transformer")  # greedy search with others is left to `make slow`: beams step and reorder more
TIE = 1e-5  # difference of two scores that rounding can make


def with_beams(wide: int) -> pytest.MarkDecorator:
    """Every model with `wide` beams and with one."""
    return pytest.mark.parametrize(
        ("beam", "name"),
        [
            pytest.param(beam, name, marks=[pytest.mark.slow] * (beam == 1 and name not in GREEDY))
            for beam in (1, wide)
            for name in TRANSLATORS
        ],
    )


def translator(name: str, seed: int = 0) -> nn.Module:
    """A tiny model with large random weights, so that its translations differ from source to source."""
    torch.manual_seed(seed)
    config = replace(preset(name, "tiny"), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    model = build(name, config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.5 / parameter.shape[-1] ** 0.5)
            elif parameter.dim() == 0:  # so that monotonic attention stops at some words
                parameter.fill_(0.5)
    return model


def texts(count: int) -> list[list[int]]:
    return sentences(count, VOCABULARY, longest=12)


def check_scores(model: nn.Module, config: DecodeConfig) -> None:
    for text, hypotheses in zip(texts(3), decode(model, *batch(texts(3)), config), strict=True):
        assert len(hypotheses) == config.nbest
        for hypothesis in hypotheses:
            tokens = [*hypothesis.ids, END] if hypothesis.finished else hypothesis.ids
            with torch.inference_mode():
                expected = teacher_forced(model, text, tokens)  # type: ignore[arg-type]
            assert hypothesis.token_logprobs == pytest.approx(expected, abs=1e-3)


@with_beams(4)
def test_scores_are_those_of_forward(name: str, beam: int) -> None:
    check_scores(translator(name), DecodeConfig(beam=beam, nbest=beam, max_ratio=0.5, max_extra=6))


def test_an_ensemble_of_different_models() -> None:
    members = [translator("bahdanau", seed=1), translator("transformer", seed=2), translator("cho", seed=3)]
    check_scores(Ensemble(members), DecodeConfig(beam=3, nbest=3, max_extra=6))


def differences(model: nn.Module, config: DecodeConfig, count: int, batchings: int) -> int:
    """How many translations change when `count` sentences are put in other batches, of 1 to 16."""
    every, chance = texts(count), random.Random(0)
    expected: list[Hypothesis] | None = None
    changed = 0
    for _ in range(batchings):
        order = chance.sample(range(count), count)
        found: list[Hypothesis] = [Hypothesis([], 0.0, 0.0, "stopped", [])] * count
        while order:
            size = chance.choice([1, 3, 16])
            rows, order = order[:size], order[size:]
            results = decode(model, *batch([every[row] for row in rows], extra=chance.randint(0, 5)), config)
            for row, (best,) in zip(rows, results, strict=True):
                found[row] = best
        expected = expected or found
        # Products of other sizes round differently, so hypotheses of equal score may change places.
        changed += sum(
            one.ids != other.ids and abs(one.score - other.score) > TIE
            for one, other in zip(found, expected, strict=True)
        )
    assert expected is not None
    assert len({tuple(best.ids) for best in expected}) > count / 4  # else nothing was tested
    return changed


@with_beams(5)
def test_neighbours_change_no_translation(name: str, beam: int) -> None:
    assert differences(translator(name), DecodeConfig(beam=beam, max_extra=3, max_ratio=0.5), 8, 2) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("beam", [1, 5])
def test_neighbours_change_none_of_500_translations_in_10_batchings(name: str, beam: int) -> None:
    assert differences(translator(name), DecodeConfig(beam=beam, max_extra=4, max_ratio=1.0), 500, 10) == 0


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_with_learned_positions_is_cut_where_they_end(beam: int) -> None:
    config = replace(MODELS["transformer"].variants["learned"], source_vocabulary=13, target_vocabulary=13, longest=7)
    torch.manual_seed(0)
    model, source = build("transformer", config).eval(), batch([[4, 5], [6]])
    found = decode(model, *source, DecodeConfig(beam=beam, min_length=20))
    assert [(len(best.ids), best.ended) for (best,) in found] == [(7, "length")] * 2
    with pytest.raises(DataError, match="writes at most 7 tokens, END counted; got a prefix of 7"):
        decode(model, *source, DecodeConfig(beam=beam), request=SearchRequest(prefixes=[[5] * 7, []]))
