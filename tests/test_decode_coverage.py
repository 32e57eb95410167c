"""The coverage penalty: GNMT's formula, and what it does to the ranking."""

import math

import pytest
import torch
from decode_models import Tiny, batch, sentences
from torch import Tensor

from regard.decode import DecodeConfig, coverage_penalty, decode
from regard.errors import ConfigError
from regard.symbols import END, PAD


def test_the_formula() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [9.0, 9.0, 9.0]]])  # [1, 3, 3]
    # The third row and column are padding: the sums are 1.4 -> 1 and 0.4.
    found = coverage_penalty(weights, torch.tensor([2]), torch.tensor([2]))
    assert found.item() == pytest.approx(math.log(0.4))


def test_looking_everywhere_costs_nothing_and_nowhere_is_finite() -> None:
    assert coverage_penalty(torch.ones(1, 2, 5), torch.tensor([2]), torch.tensor([5])).item() == 0.0
    nowhere = coverage_penalty(torch.zeros(1, 2, 5), torch.tensor([2]), torch.tensor([5])).item()
    assert math.isfinite(nowhere)
    assert nowhere < -50


def test_it_ranks_again_all_that_was_found() -> None:
    texts = [*sentences(5), []]
    source, lengths = batch(texts)
    seen = []

    def weigh(rows: Tensor, target: Tensor) -> Tensor:
        """Each token looks at the whole source a little, so that long translations cover more."""
        seen.append((rows.tolist(), target))
        return torch.full((len(rows), target.shape[1], source.shape[1]), 0.1)

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


def test_it_needs_to_know_where_the_model_looked() -> None:
    with pytest.raises(ConfigError, match="needs to know where the model looked; pass weigh"):
        decode(Tiny(), *batch([[4]]), DecodeConfig(coverage_penalty=0.2))
