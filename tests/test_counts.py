"""The sizes of the published models, counted on the meta device: nothing is allocated."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from regard.models.registry import MODELS, build, preset


def on_meta(name: str, config: object) -> nn.Module:
    with torch.device("meta"):
        return build(name, config)


def count(model: nn.Module, biases: bool = True) -> int:
    """Parameters, each tied matrix once; without biases (and gains) where asked."""
    return sum(weight.numel() for weight in model.parameters() if biases or weight.dim() > 1)


def test_t1_1_sutskever_has_384_million_without_biases():
    """160M + 80M embeddings + 80M softmax + 2 * 4 * (4 * 1000 * 2000) recurrent."""
    model = on_meta("sutskever", replace(preset("sutskever", "paper"), bias=False))
    assert count(model) == 384_000_000
    assert (
        sum(weight.numel() for name, weight in model.named_parameters() if name.startswith(("encoder.", "decoder.")))
        == 64_000_000
    )


def test_rnnsearch_has_80_million_without_biases():
    config = preset("bahdanau", "paper")
    assert round(count(on_meta("bahdanau", config), biases=False) / 1e6, 2) == 80.40


def test_rnnsearch_as_released_has_84_million():
    config = replace(preset("bahdanau", "paper"), output_rank=620)
    assert round(count(on_meta("bahdanau", config), biases=False) / 1e6, 2) == 84.31


def test_the_pointer_generator_has_the_published_size():
    """See et al. 2017, section 5: 21,499,600 parameters, 1,153 of the pointer and 512 of coverage."""
    assert count(on_meta("pointer", preset("pointer", "paper"))) == 21_499_600 + 1_153 + 512


def test_parts_that_are_chosen_have_their_sizes_alone():
    """U_f of the fertility has 2n numbers and no bias; each further layer of a captioner's perceptron is affine."""
    coverage, captioner = preset("coverage", "tiny"), preset("captioner", "tiny")
    sizes = [
        count(on_meta("coverage", replace(coverage, coverage="linguistic", coverage_width=1, fertility=N)))
        for N in (0, 2)
    ]
    assert sizes[1] - sizes[0] == 2 * coverage.width
    layers = [count(on_meta("captioner", replace(captioner, attention_layers=number))) for number in (1, 2, 3)]
    width = captioner.attention
    assert [more - fewer for fewer, more in pairwise(layers)] == [width * (width + 1)] * 2


@pytest.mark.parametrize(("size", "published", "computed"), [("base", 65e6, 63.1), ("big", 213e6, 214.2)])
def test_the_transformer_has_the_published_size(size: str, published: float, computed: float):
    """With a tied vocabulary of 37,000 pieces; the paper rounds, and its vocabulary is 'about 37000'."""
    total = count(on_meta("transformer", preset("transformer", size)))
    assert abs(total - published) / published < 0.04
    assert abs(total / 1e6 - computed) < 0.1


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_built_on_the_meta_device(name: str):
    """In every preset; a tiny model has fewer weights than a small one, and a small one no more than the paper's."""
    presets = MODELS[name].presets
    models = {size: on_meta(name, config) for size, config in presets.items()}
    assert all(weight.is_meta for model in models.values() for weight in model.parameters())
    assert count(models["tiny"]) < count(models["small"]) <= count(models["paper"])
