"""Bad input is refused in one sentence that says what was expected, what came and what to do; these tests read it."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import (
    Additive,
    Concat,
    ConcatReleased,
    Cosine,
    GaussianWindow,
    General,
    LearnedPositions,
    Location,
    Memory,
    Window,
    attend,
    dot,
    padding_mask,
    project_keys,
    scaled_dot,
    sinusoid,
    softmax,
)
from regard.errors import ConfigError, RegardError, ShapeError
from regard.layers.attention import Attention
from regard.layers.transformer import Heads, SelfAttention
from regard.models.bahdanau import BahdanauConfig
from regard.models.luong import LuongConfig
from regard.models.registry import MODELS, build, preset

B, T, S, D = 2, 3, 5, 7


def memory(mask: Tensor | None = None, slots: int = S) -> Memory:
    return Memory(torch.randn(B, slots, D), torch.randn(B, slots, D), mask)


def refused(error: type[RegardError], *parts: str) -> Any:
    """Expect an error whose text holds all `parts` and ends like a sentence."""
    return pytest.raises(error, match="(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts) + r".*[.)]$")


# Shapes and masks of the core.


def test_a_query_without_a_place_for_t():
    with refused(ShapeError, "query [B, ..., T, D]", "is [2, 7]", "[2, 5, 7]", "query.unsqueeze(-2)"):
        attend(torch.randn(B, D), memory(), dot, softmax)


def test_a_query_of_another_batch():
    with refused(ShapeError, "same leading sizes", "[3, 3, 7]", "[2, 5, 7]"):
        attend(torch.randn(3, T, D), memory(), dot, softmax)


def test_values_that_do_not_belong_to_the_keys():
    with refused(ShapeError, "one value for each key", "[2, 5, 7]", "[2, 4, 7]", "must be equal"):
        attend(torch.randn(B, T, D), memory()._replace(values=torch.randn(B, 4, D)), dot, softmax)


@pytest.mark.parametrize("score", [dot, scaled_dot, Cosine()], ids=["dot", "scaled_dot", "cosine"])
def test_a_query_of_another_width(score):
    with refused(ShapeError, "one width", "6 and 7", "Use General or Additive"):
        attend(torch.randn(B, T, 6), memory(), score, softmax)


@pytest.mark.parametrize("score", [Additive(6, D, 4), Concat(6, D, 4), ConcatReleased(6, D), Location(6, 9)])
def test_a_query_of_another_width_than_the_score_was_made_for(score):
    keys = project_keys(score, torch.randn(B, S, D))
    with refused(ShapeError, type(score).__name__, "query of width 6", "[2, 3, 5]"):
        score(torch.randn(B, T, 5), keys)


@pytest.mark.parametrize("score", [General(6, D), Additive(6, D, 4), Concat(6, D, 4)])
def test_states_of_another_width_than_the_score_was_made_for(score):
    with refused(ShapeError, type(score).__name__, "states of width 7", "[2, 5, 8]"):
        project_keys(score, torch.randn(B, S, 8))


@pytest.mark.parametrize("score", [Additive(6, D, 4), Concat(6, D, 4), ConcatReleased(6, D)])
def test_keys_that_were_not_projected(score):
    with refused(ShapeError, "keys of width", "project_keys(score, states)"):
        score(torch.randn(B, T, 6), torch.randn(B, S, 9))


def test_an_additive_mask():
    """Zeros and -inf, as other libraries add to the scores."""
    mask = torch.zeros(B, 1, S).masked_fill(~padding_mask(torch.tensor([5, 2]), S), -torch.inf)
    with refused(ShapeError, "must be boolean with True = may look", "torch.float32", "scores_mask == 0"):
        attend(torch.randn(B, T, D), memory(mask), dot, softmax)


def test_a_mask_of_zeros_and_ones():
    with refused(ShapeError, "must be boolean with True = may look", "torch.int64", "mask.bool()"):
        attend(torch.randn(B, T, D), memory(torch.ones(B, 1, S, dtype=torch.long)), dot, softmax)


def test_a_mask_of_torchs_polarity():
    """key_padding_mask [B, S] of nn.MultiheadAttention, True = padding: its shape gives it away."""
    mask = torch.arange(S) >= torch.tensor([5, 2])[:, None]
    with refused(ShapeError, "broadcast to the scores [2, 3, 5]", "got [2, 5]", "[B, 1, S]", "not for padding"):
        attend(torch.randn(B, T, D), memory(mask), dot, softmax)


def test_a_mask_of_another_length():
    with refused(ShapeError, "[2, 3, 5]", "[2, 1, 4]", "padding_mask"):
        attend(torch.randn(B, T, D), memory(padding_mask(torch.tensor([4, 2]), 4)), dot, softmax)


def test_masks_are_checked_before_the_fused_kernel_too():
    attention = Attention(scaled_dot)
    with refused(ShapeError, "must be boolean with True = may look"):
        attention(torch.randn(B, T, D), memory(torch.ones(B, 1, S)))
    with refused(ShapeError, "got [2, 5]"):
        attention(torch.randn(B, T, D), memory(torch.ones(B, S, dtype=torch.bool)))


@pytest.mark.parametrize("lengths", [torch.tensor([5.0, 2.0]), torch.ones(B, S, dtype=torch.bool), torch.tensor(3)])
def test_lengths_that_are_no_lengths(lengths: Tensor):
    with refused(ShapeError, "whole numbers of shape [B]", str(lengths.dtype), "number of real tokens"):
        padding_mask(lengths, S)


@pytest.mark.parametrize("normalise", [Window(2), GaussianWindow(2)])
def test_a_window_without_a_centre_for_each_query(normalise):
    with refused(ShapeError, "one centre for each query, [2, 3]", "got [2, 1]", "from zero"):
        normalise(torch.randn(B, T, S), None, torch.zeros(B, 1))


def test_positions():
    with refused(ShapeError, "width must be even", "got 7"):
        sinusoid(torch.arange(3), 7)
    with refused(ShapeError, "reach 4 tokens", "sinusoidal"):
        LearnedPositions(4, 8)(torch.arange(6))


def test_a_cosine_without_strength():
    with refused(ShapeError, "strength above zero", "got 0", "Use 1"):
        Cosine(0)


def test_heads_that_do_not_share_the_width():
    with refused(ConfigError, "multiple of model.heads", "got 10 and 4"):
        SelfAttention(Heads(10, 4), Attention(scaled_dot))


# Batches. Every translator refuses the same ones.

TRANSLATORS = [name for name, entry in MODELS.items() if getattr(entry, "task", "translate") == "translate"]
SOURCE, LENGTHS, TARGET = torch.tensor([[4, 5, 2], [6, 2, 0]]), torch.tensor([3, 2]), torch.tensor([[4, 2], [2, 0]])


@pytest.fixture(scope="module", params=TRANSLATORS)
def model(request):
    config = preset(request.param, "tiny")
    return build(request.param, replace(config, source_vocabulary=11, target_vocabulary=11))


@pytest.mark.parametrize(
    ("source", "lengths", "message"),
    [
        (SOURCE[0], LENGTHS, "torch.int64 [3]"),
        (SOURCE.float(), LENGTHS, "torch.float32 [2, 3]"),
        (SOURCE, LENGTHS[:1], "lengths torch.int64 [1]"),
        (SOURCE, LENGTHS.float(), "lengths torch.float32 [2]"),
        (SOURCE, SOURCE != 0, "lengths torch.bool [2, 3]"),
    ],
)
def test_a_batch_that_is_none(model, source: Tensor, lengths: Tensor, message: str):
    with refused(ShapeError, "ids [B, S] with lengths [B], all whole numbers", message, "count END in lengths"):
        model(source, lengths, TARGET)


@pytest.mark.parametrize("lengths", [[3, 4], [0, 3]])
def test_lengths_outside_the_source(model, lengths: list[int]):
    with refused(ShapeError, "between 1 and the 3 columns", f"{min(lengths)} to {max(lengths)}", "Count END"):
        model(SOURCE, torch.tensor(lengths), TARGET)


@pytest.mark.parametrize("target", [TARGET[0], TARGET.float(), TARGET[:1]])
def test_a_target_that_is_none(model, target: Tensor):
    with refused(ShapeError, "ids [B, T]", "2 rows of the source", str(list(target.shape)), "Pad rows"):
        model(SOURCE, LENGTHS, target)


# Names and settings of models.


def test_a_model_that_does_not_exist():
    with refused(ConfigError, "There is no model 'bahdanu'.", "Did you mean 'bahdanau'?", "Known: cho,", "luong"):
        build("bahdanu", BahdanauConfig())
    with refused(ConfigError, "no model 'gpt'"):
        preset("gpt")


def test_a_preset_that_does_not_exist():
    with refused(ConfigError, "no preset 'huge' of transformer.", "base", "big", "tiny"):
        preset("transformer", "huge")


def test_the_settings_of_another_model():
    with refused(ConfigError, "takes a LuongConfig", "got a BahdanauConfig", "preset('luong', 'tiny')"):
        build("luong", BahdanauConfig())


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("luong", {"window": "local"}, "model.window must be one of global, local-m, local-p; got 'local'."),
        ("bahdanau", {"timing": "groundhog"}, "model.timing must be one of paper, appendix, released, conditional"),
        ("transformer", {"norm": "rms"}, "model.norm must be one of post, pre; got 'rms'."),
        ("transformer", {"width": 2.5}, "model.width must be a whole number; got 2.5."),
        (
            "britz",
            {"decoder_residual": "all"},
            "model.decoder_residual must be one of none, residual, dense; got 'all'.",
        ),
        ("britz", {"encoder_layers": 1}, "must be even; got 1. Set model.direction = 'forward' for an odd number."),
        ("luong", {"width": 0}, "model.width must be at least 1; got 0."),
        ("bahdanau", {"output_rank": -1}, "model.output_rank must be at least 0; got -1."),
        ("transformer", {"dropout": 1.0}, "model.dropout must be at least 0 and below 1; got 1.0."),
        ("transformer", {"heads": 7}, "multiple of model.heads; got 128 and 7."),
        ("transformer", {"source_vocabulary": 9}, "one vocabulary for both languages; got 9 and 37000"),
    ],
)
def test_settings_that_cannot_be(name: str, changes: dict[str, Any], message: str):
    with refused(ConfigError, message):
        build(name, replace(preset(name, "tiny"), **changes))


def test_a_setting_that_does_not_exist_is_refused_by_python_itself():
    with pytest.raises(TypeError, match="windw"):
        LuongConfig(windw="global")  # type: ignore[call-arg]


# --- scores and normalisers in the settings


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("bahdanau", {"score": "dot"}, "compares a query and keys of one width; here the query has 96 numbers"),
        (
            "captioner",
            {"score": "cosine", "features": 48},
            "one width; here the query has 64 numbers and the keys have 48",
        ),
        ("luong", {"window": "local-p", "normaliser": "sparsemax"}, "Set model.window = 'global'"),
        ("captioner", {"look": "hard", "normaliser": "entmax15"}, "Set model.look = 'soft'"),
        ("document", {"pooling": "average", "normaliser": "sparsemax"}, "Set model.pooling = 'attention'"),
        ("transformer", {"positions": "rotary", "score": "additive"}, "meet in a dot product"),
        ("transformer", {"normaliser": "sparsmax"}, "must be one of softmax, sparsemax, entmax15; got 'sparsmax'"),
        ("lstmn", {"score": "general"}, "must be one of dot, scaled-dot, cosine, additive; got 'general'"),
    ],
)
def test_a_score_or_normaliser_that_makes_no_sense_is_refused(name, changes, says) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        build(name, replace(MODELS[name].presets["tiny"], **changes))
