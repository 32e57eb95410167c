"""The coverage penalty: GNMT's formula, and what it does to the ranking."""

import dataclasses
import math

import pytest
import torch
from decode_models import Tiny, batch, sentences
from torch import Tensor

from regard.api.aligning import weigher
from regard.decode.hypothesis import coverage_penalty
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError
from regard.look.record import record
from regard.models.registry import build, preset
from regard.symbols import END, PAD


def test_the_formula() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [9.0, 9.0, 9.0]]])  # [1, 3, 3]
    # The third row and column are padding: the sums are 1.4 -> 1 and 0.4.
    found = coverage_penalty(weights, torch.tensor([2]), torch.tensor([[True, True, False]]))
    assert found.item() == pytest.approx(math.log(0.4))


def test_looking_everywhere_costs_nothing_and_nowhere_is_finite() -> None:
    everything = torch.ones(1, 5, dtype=torch.bool)
    assert coverage_penalty(torch.ones(1, 2, 5), torch.tensor([2]), everything).item() == 0.0
    nowhere = coverage_penalty(torch.zeros(1, 2, 5), torch.tensor([2]), everything).item()
    assert math.isfinite(nowhere)
    assert nowhere < -50


def test_it_ranks_again_all_that_was_found() -> None:
    texts = [*sentences(5), []]
    source, lengths = batch(texts)
    seen = []

    def weigh(rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Each token looks at the whole source a little, so that long translations cover more."""
        seen.append((rows.tolist(), target))
        weights = torch.full((len(rows), target.shape[1], source.shape[1]), 0.1)
        return weights, torch.arange(source.shape[1]) < lengths[rows, None]

    model, plain = Tiny(seed=3, end=1.0), DecodeConfig(beam=4, nbest=4, max_extra=9)
    before = decode(model, source, lengths, plain)
    after = decode(
        model, source, lengths, DecodeConfig(beam=4, nbest=1, max_extra=9, coverage_penalty=5.0), weigh=weigh
    )
    for row, (length, found, (best,)) in enumerate(zip(lengths.tolist(), before, after, strict=True)):
        if length == 1:
            assert best.ids == []
            continue
        expected = {}
        for hypothesis in found:
            written = len(hypothesis.ids) + hypothesis.finished
            penalty = length * math.log(min(1.0, 0.1 * written))
            expected[tuple(hypothesis.ids)] = (hypothesis.finished, hypothesis.score + 5.0 * penalty)
        ids, (_, score) = max(expected.items(), key=lambda item: item[1])
        assert tuple(best.ids) == ids
        assert best.score == pytest.approx(score, abs=1e-4)
        assert row in seen[0][0]
    assert [best.ids for (best,) in after] != [found[0].ids for found in before]
    rows, target = seen[0]
    assert len(rows) == len(target) == 20
    assert all(PAD not in row[: row.index(END)] for row in target.tolist() if END in row)


def test_it_needs_the_attention_weights() -> None:
    with pytest.raises(ConfigError, match="needs the attention weights of hypotheses; pass weigh"):
        decode(Tiny(), *batch([[4]]), DecodeConfig(coverage_penalty=0.2))


@pytest.mark.parametrize("name", ["luong", "bahdanau", "transformer"])
def test_only_what_the_model_can_attend_to_counts(name: str) -> None:
    """Luong's models do not see END: without any weight it would cost log(1e-6), 13.8 a sentence."""
    torch.manual_seed(0)
    config = dataclasses.replace(preset(name, "tiny"), source_vocabulary=13, target_vocabulary=13)
    model = build(name, config).eval()
    texts = [[4, 5, 6], [7, 8], [9]]
    source, lengths = batch(texts)
    settings = DecodeConfig(beam=1, max_extra=5, coverage_penalty=1.0)
    found = decode(model, source, lengths, settings, weigh=weigher(model, source, lengths))
    for row, (text, (best,)) in enumerate(zip(texts, found, strict=True)):
        target = torch.tensor([[*best.ids, *([END] if best.finished else [])]])
        with record(model) as seen:
            model(source[row : row + 1], lengths[row : row + 1], target)
        weights = torch.stack([seen[each].weights for each in model.attention_layout.cross]).mean(0)  # [1, (H), T, S]
        covered = weights.flatten(0, -3).mean(0).sum(0)[: len(text) + (name != "luong")]  # [S]
        penalty = covered.clamp(max=1).log().sum().item()
        plain = best.logprob / ((5 + target.shape[1]) / 6) ** settings.length_penalty
        assert best.score == pytest.approx(plain + penalty, abs=1e-4)
