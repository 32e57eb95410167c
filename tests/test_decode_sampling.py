"""Samples follow the model's probabilities, and belong to their sentence alone."""

from collections import Counter

import pytest
import torch
from decode_models import Table, Tiny, batch, sentences

from regard.decode.greedy import sample
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.symbols import END, START

CHANCES = {4: 0.5, 5: 0.3, 6: 0.15, END: 0.05}


def first_tokens(count: int = 2000, **settings: float) -> Counter[int]:
    model = Table(8, {START: CHANCES})
    config = DecodeConfig(temperature=settings.pop("temperature", 1.0), nbest=count, **settings)  # type: ignore[arg-type]
    (found,) = decode(model, *batch([[4]]), config)
    return Counter(hypothesis.ids[0] if hypothesis.ids else END for hypothesis in found)


def assert_follows(counts: Counter[int], chances: dict[int, float]) -> None:
    drawn, mass = counts.total(), sum(chances.values())
    assert set(counts) == set(chances)
    for token, chance in chances.items():
        share = chance / mass
        assert abs(counts[token] / drawn - share) < 4 * (share * (1 - share) / drawn) ** 0.5 + 1e-9


def test_samples_follow_the_probabilities() -> None:
    assert_follows(first_tokens(), CHANCES)


def test_temperature_sharpens() -> None:
    assert_follows(first_tokens(temperature=0.5), {token: chance**2 for token, chance in CHANCES.items()})


def test_top_k_keeps_the_likeliest() -> None:
    assert_follows(first_tokens(top_k=2), {4: 0.5, 5: 0.3})


def test_top_p_keeps_the_token_that_crosses() -> None:
    assert_follows(first_tokens(top_p=0.6), {4: 0.5, 5: 0.3})
    assert_follows(first_tokens(top_p=0.81), {4: 0.5, 5: 0.3, 6: 0.15})
    assert_follows(first_tokens(top_p=0.01), {4: 0.5})


def test_top_k_and_top_p_together() -> None:
    # Among the two likeliest (0.625 and 0.375 of what is left), the first alone reaches 0.6.
    assert_follows(first_tokens(top_k=2, top_p=0.6), {4: 0.5})


def test_a_low_temperature_is_greedy() -> None:
    source = batch(sentences(8))
    cold = decode(Tiny(), *source, DecodeConfig(temperature=1e-4))
    greedy = decode(Tiny(), *source, DecodeConfig(beam=1))
    assert [found[0].ids for found in cold] == [found[0].ids for found in greedy]


def test_the_seed_chooses_the_samples() -> None:
    source = batch(sentences(8))
    once = decode(Tiny(), *source, DecodeConfig(temperature=1.0, seed=3))
    assert decode(Tiny(), *source, DecodeConfig(temperature=1.0, seed=3)) == once
    assert decode(Tiny(), *source, DecodeConfig(temperature=1.0, seed=4)) != once


def test_more_samples_keep_the_first_ones() -> None:
    source = batch(sentences(5))
    few = decode(Tiny(), *source, DecodeConfig(temperature=1.0, nbest=2))
    many = decode(Tiny(), *source, DecodeConfig(temperature=1.0, nbest=4))
    for some, more in zip(few, many, strict=True):
        assert all(hypothesis.ids in [other.ids for other in more] for hypothesis in some)


def test_the_same_sentence_gets_the_same_sample() -> None:
    found = decode(Tiny(), *batch([[4, 5], [6], [4, 5]]), DecodeConfig(temperature=1.0))
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("drawn", [0.0, 1.0 - 2**-53])
def test_tokens_without_probability_are_never_drawn(drawn: float) -> None:
    logprobs = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).log()
    for settings in ({}, {"top_k": 4}, {"top_p": 0.99}):
        config = DecodeConfig(temperature=1.0, **settings)  # type: ignore[arg-type]
        assert sample(logprobs, torch.tensor([[drawn]], dtype=torch.float64), config).item() in (1, 3)
