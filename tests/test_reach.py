"""How far back a language model looks, measured on looks that are known."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.look.measure import Reach, reach
from regard.models import attentive_lm, transformer_lm
from regard.models.attentive_lm import AttentiveLanguageModel
from regard.models.transformer_lm import TransformerLanguageModel
from regard.symbols import END, PAD, START

TARGET = torch.tensor([[4, 7, 9, 7, END], [5, 7, END, PAD, PAD]])


class Back(nn.Module):
    """A score that prefers the slot `steps` before the newest by far."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        T, S = query.shape[-2], keys.shape[-2]
        wanted = torch.arange(T)[:, None] - self.steps == torch.arange(S)
        return (50.0 * wanted).expand(len(query), T, S)


def attentive(steps: int) -> AttentiveLanguageModel:
    model = AttentiveLanguageModel(replace(attentive_lm.PRESETS["tiny"], vocabulary=13)).eval()
    model.attention.score = Back(steps)
    return model


def test_a_look_two_words_back_has_distance_two():
    (found,) = reach(attentive(2), [TARGET], farthest=4)
    assert found.name == "attention"
    assert found.shares.sum() == pytest.approx(1)
    # Of 4 + 2 words with a past, the first of each row can look one back only.
    assert np.allclose(found.shares, [0, 2 / 6, 4 / 6, 0, 0])
    assert found.mean == pytest.approx((2 * 1 + 4 * 2) / 6)


def test_what_is_beyond_the_farthest_is_counted_together():
    (found,) = reach(attentive(3), [TARGET[:1]], farthest=2)
    assert found.shares[2] > found.shares[1] > 0
    assert found.shares.sum() == pytest.approx(1)


def test_batches_are_added_and_padding_does_not_count():
    whole = reach(attentive(1), [TARGET])[0]
    parts = reach(attentive(1), [TARGET[:1], TARGET[1:, :3]])[0]
    assert np.allclose(whole.shares, parts.shares)
    assert whole.words == pytest.approx(parts.words)
    assert set(whole.words) == {START, 4, 5, 7, 9}, "the words that somebody could look back at"
    assert whole.times == {START: 6, 4: 3, 5: 1, 7: 2, 9: 1}
    assert whole.favourites(least=2) == sorted({START, 4, 7}, key=lambda word: -whole.words[word])


def test_parts_of_a_text_that_were_written_as_json_add_up():
    (whole,), total = reach(attentive(1), [TARGET]), Reach("attention", [0.0] * 21)
    for rows in TARGET.split(1):
        (part,) = reach(attentive(1), [rows])
        total.merge(Reach.of(json.loads(json.dumps(vars(part)))))
    assert total.mean == pytest.approx(whole.mean)
    assert total.words == pytest.approx(whole.words)
    assert total.times == whole.times
    assert np.allclose(total.shares, whole.shares)


def test_uniform_attention_gives_every_word_one():
    model = attentive(0)
    model.attention.score = Back(99)
    found = reach(model, [TARGET])[0]
    assert list(found.words.values()) == pytest.approx([1.0] * 5)


def test_a_transformer_sees_the_word_just_read():
    model = TransformerLanguageModel(replace(transformer_lm.PRESETS["tiny"], vocabulary=13)).eval()
    found = reach(model, [TARGET])
    assert len(found) == 2
    assert all(each.shares[0] > 0 and each.shares.sum() == pytest.approx(1) for each in found)
