"""Laws that every registered translator keeps, in every preset and named variant, at sizes that differ pairwise."""

import copy
import dataclasses
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.testing import assert_close
from weights_of import spread

from regard.core.attend import Memory
from regard.core.normalise import ForwardOnly, GaussianWindow, Window
from regard.core.positions import rotate
from regard.kernels.past import with_room
from regard.look.record import attentions, record
from regard.models.contract import SequenceModel, take, take_beams
from regard.models.registry import MODELS, build
from regard.symbols import END, PAD, START
from regard.training.objectives import cross_entropy, likelihood

SMALL = {
    "source_vocabulary": 11,
    "target_vocabulary": 13,
    "embedding": 5,
    "width": 8,
    "attention": 7,
    "readout": 3,
    "inner": 10,
    "heads": 2,
    "output_rank": 4,
    "half_width": 1,
    "key_heads": 1,
    "shortlist": 7,
    "spread": 0.1,  # of initial weights, which the laws replace: these do not make another model
    "gain": 0.5,
    "offset": -1.0,
}


def shrink(config: Any) -> Any:
    """The same model, as small as it can be: the choices stay, the sizes go."""
    names = {field.name for field in dataclasses.fields(config)}
    sizes = {name: size for name, size in SMALL.items() if name in names and getattr(config, name)}
    if getattr(config, "tied", "none") == "all":
        sizes["target_vocabulary"] = sizes["source_vocabulary"]
    if getattr(config, "window", ""):  # of Luong, where the score by location alone has a longest sentence
        sizes["longest"] = 4  # shorter than the sentences
    if getattr(config, "layers", 0) > 2:
        sizes["layers"] = 2  # a third does what the second does
    return dataclasses.replace(config, dropout=0.25, **sizes)


def is_hard(config: Any) -> bool:
    return getattr(config, "test", "") == "hard"


def every_case() -> dict[str, tuple[str, Any]]:
    """Every preset and variant of the translators, each distinct shrunken model once."""
    found: dict[str, tuple[str, Any]] = {}
    for name, entry in MODELS.items():
        if getattr(entry, "task", "translate") != "translate":
            continue
        for label, config in {"tiny": entry.presets["tiny"], **entry.variants, **entry.presets}.items():
            case = (name, shrink(config))
            if case not in found.values():
                found[f"{name}-{label}"] = case
    return found


CASES = every_case()
# Choices that are made in different places are not crossed but in `make slow`. Luong's windows and scores: every score
# has the global window, and "dot" has every window. Depth: luong-forward, britz-residual and -dense, and
# lstmn-deep-two-layers are deep. Positions and norms: transformer-modern is "pre" and rotary. Other scores and
# normalisers: two Transformers and bahdanau-general-sparsemax. RMSNorm, SwiGLU and shared keys: transformer-modern has
# them. One reading direction: luong-forward. LSTMs: britz-residual and -reversed have them. The GRU of torch:
# bahdanau-torch.
CROSSED = {
    "luong-small", "luong-paper", "britz-deep", "britz-paper", "britz-lstm", "lstmn-shallow-two-layers",
    "transformer-pre", "transformer-rotary", "transformer-pre-rotary", "luong-cosine-entmax15",
    "transformer-rms", "transformer-swiglu", "transformer-grouped",
    "luong-local-m-general", "luong-local-m-location", "luong-local-p-general", "luong-local-p-location",
    "lstmn-scaled-dot-entmax15", "luong-local-p-no-feed", "sutskever-forward", "britz-forward", "rnnencdec-torch",
}  # fmt: skip


def cases(chosen):
    """A parameter for each case, the crossed ones slow."""
    return pytest.mark.parametrize(
        "case", [pytest.param(case, marks=pytest.mark.slow) if case in CROSSED else case for case in chosen]
    )


everywhere = cases(CASES)
# Hard monotonic attention is a choice, which has no gradient.
differentiable = cases(case for case, (_, config) in CASES.items() if not is_hard(config))
# Laws of what all variants of a model have in common, its state, its random numbers and its precision, are for one of
# each model and of each kind of layer; `make slow` has all.
KINDS = [
    *(case for case in CASES if case.endswith("-tiny")),
    "bahdanau-released", "bahdanau-conditional", "bahdanau-general-sparsemax", "monotonic-expectation",
    "luong-local-p-dot", "luong-forward", "pointer-shortlist", "britz-residual", "transformer-relative",
    "transformer-modern", "transformer-marian",
]  # fmt: skip


def kinds(chosen):
    """A parameter for each case, those that are not among the kinds slow."""
    return pytest.mark.parametrize(
        "case", [case if case in KINDS else pytest.param(case, marks=pytest.mark.slow) for case in chosen]
    )


each_kind = kinds(CASES)
each_differentiable_kind = kinds(case for case, (_, config) in CASES.items() if not is_hard(config))

SOURCE = torch.tensor([[5, 9, 4, 10, 7, END], [6, 3, END, PAD, PAD, PAD], [8, 4, 7, 9, END, PAD]])
LENGTHS = torch.tensor([6, 3, 5])
TARGET = torch.tensor([[4, 7, 9, END, PAD], [10, 5, 6, 8, END], [3, END, PAD, PAD, PAD]])
TARGET_LENGTHS = torch.tensor([4, 5, 2])


def fresh(case: str, seed: int = 3) -> Any:
    """The model of a case in float64, with weights so large that every part matters."""
    torch.manual_seed(seed)
    return spread(build(*CASES[case]))


@cache
def make(case: str) -> Any:
    """The same, built once for the laws that change nothing in it."""
    return fresh(case)


def run_steps(model: SequenceModel, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    """Logits [B, T, V] by `start` and `step` alone."""
    state = model.start(model.encode(source, lengths))
    return go_on(model, torch.full_like(target[:, 0], START), state, target)


def go_on(model: SequenceModel, token: Tensor, state: Any, target: Tensor) -> Tensor:
    """Logits [B, T, V] of target [B, T] from `state`, reading `token` first and then the target."""
    logits = []
    for following in target.unbind(1):
        each, state = model.step(token, state)
        logits.append(each)
        token = following
    return torch.stack(logits, dim=1)


@cache
@torch.no_grad()
def whole(case: str) -> Tensor:
    """Logits [B, T, V] of `forward` for the batch of all laws, computed once for those that compare with them."""
    return make(case)(SOURCE, LENGTHS, TARGET)


@cache
@torch.no_grad()
def seen_whole(case: str) -> Any:
    """What the attention modules saw in the same batch."""
    with record(make(case)) as seen:
        make(case)(SOURCE, LENGTHS, TARGET)
    return seen


def real(logits: Tensor) -> Tensor:
    """The logits of the words that are there, [words, V]."""
    return logits[:, : TARGET.shape[1]][TARGET != PAD]


@everywhere
@torch.no_grad()
def test_steps_equal_forward(case: str):
    logits = whole(case)
    assert logits.shape == (3, 5, CASES[case][1].target_vocabulary)
    assert logits.std() > 0.1, "the weights must make a difference, or the laws would hold for nothing"
    assert_close(run_steps(make(case), SOURCE, LENGTHS, TARGET), logits, rtol=0, atol=1e-10)


@differentiable
def test_gradients_of_steps_equal_those_of_forward(case: str):
    """`forward` may take its products and their gradients in another order; the gradients are the same."""
    model = make(case)
    weights = dict(model.named_parameters())
    parallel = torch.autograd.grad(real(model(SOURCE, LENGTHS, TARGET)).square().sum(), list(weights.values()))
    stepped = torch.autograd.grad(
        real(run_steps(model, SOURCE, LENGTHS, TARGET)).square().sum(), list(weights.values())
    )
    for name, one, other in zip(weights, parallel, stepped, strict=True):
        assert_close(one, other, rtol=1e-8, atol=1e-8, msg=lambda message, name=name: f"{name}: {message}")


@differentiable
def test_the_loss_in_training_is_that_of_the_logits(case: str):
    """However a batch is laid out so that little is computed for padding, loss and gradients are the same."""
    model = make(case)
    weights = dict(model.named_parameters())
    found = likelihood(model, SOURCE, LENGTHS, TARGET, smoothing=0.1)
    wanted = cross_entropy(model(SOURCE, LENGTHS, TARGET), TARGET, smoothing=0.1)
    assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    each = (torch.autograd.grad(loss, list(weights.values()), allow_unused=True) for loss, _ in (found, wanted))
    for name, one, other in zip(weights, *each, strict=True):
        assert_close(one, other, rtol=1e-8, atol=1e-8, msg=lambda message, name=name: f"{name}: {message}")


@everywhere
@torch.no_grad()
def test_padding_changes_nothing(case: str):
    """More padding on both sides, and any words in the place of padding, leave logits and weights as they are."""
    model = make(case)
    junk = torch.randint(3, 11, (3, 4), generator=torch.Generator().manual_seed(0))
    source = torch.cat([torch.where(SOURCE == PAD, junk[:, :1], SOURCE), junk], dim=1)
    target = torch.cat([torch.where(TARGET == PAD, junk[:, :1], TARGET), junk], dim=1)
    with record(model) as after:
        padded = model(source, LENGTHS, target)
    assert_close(real(padded), real(whole(case)), rtol=0, atol=1e-10)
    for name in model.attention_layout.cross:
        was, now = seen_whole(case)[name].weights, after[name].weights
        T, S = was.shape[-2:]
        pairs = zip(was.movedim(-2, 1), now[..., :T, :S].movedim(-2, 1), TARGET_LENGTHS, strict=True)
        for row_was, row_now, length in pairs:
            assert_close(row_now[:length], row_was[:length], rtol=0, atol=1e-10)


@everywhere
@torch.no_grad()
def test_padding_changes_nothing_without_a_record(case: str):
    """The same for what runs when nobody looks, fused kernels included; also for the steps."""
    model = make(case)
    source = nn.functional.pad(SOURCE, (0, 3), value=PAD)
    target = nn.functional.pad(TARGET, (0, 2), value=PAD)
    expected = real(whole(case))
    assert_close(real(model(source, LENGTHS, target)), expected, rtol=0, atol=1e-10)
    assert_close(real(run_steps(model, source, LENGTHS, target)), expected, rtol=0, atol=1e-10)


@everywhere
@torch.no_grad()
def test_the_future_changes_nothing(case: str):
    """T5.3: another word y_k leaves the logits of y_1 ... y_k as they are, to the last bit, and changes a later one."""
    model, logits = make(case), whole(case)
    for k in range(TARGET.shape[1]):
        other = TARGET.clone()
        other[:, k] = (TARGET[:, k] - 2) % 7 + 4
        changed = model(SOURCE, LENGTHS, other)
        assert torch.equal(changed[:, : k + 1], logits[:, : k + 1])
        assert k + 1 == TARGET.shape[1] or not torch.equal(changed[:, k + 1], logits[:, k + 1])


@each_kind
def test_the_future_has_no_gradient(case: str):
    """T2.6, T5.3: d logits_i / d E y_k is exactly zero for k >= i, and the word read last always counts."""
    model = make(case)
    embedded: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], vectors: Tensor) -> None:
        if args[0].shape == TARGET.shape:  # the source is longer
            embedded.append(vectors)

    handles = [part.register_forward_hook(keep) for part in model.modules() if isinstance(part, nn.Embedding)]
    logits = model(SOURCE, LENGTHS, TARGET)
    (read,) = embedded  # [B, T, m]: START, y_1, ...
    for i in range(TARGET.shape[1]):
        (grads,) = torch.autograd.grad(logits[:, i].square().sum(), read, retain_graph=True)
        assert torch.equal(grads[:, i + 1 :], torch.zeros_like(grads[:, i + 1 :]))
        assert (grads[:, i].abs().sum(-1) > 0).all()
    for handle in handles:
        handle.remove()


@each_kind
@torch.no_grad()
def test_a_batch_of_one_equals_a_row_of_many(case: str):
    model, logits = make(case), whole(case)
    for row, (length, steps) in enumerate(zip(LENGTHS.tolist(), TARGET_LENGTHS.tolist(), strict=True)):
        alone = (SOURCE[row : row + 1, :length], LENGTHS[row : row + 1], TARGET[row : row + 1, :steps])
        assert_close(model(*alone)[0], logits[row, :steps], rtol=0, atol=1e-10)


@differentiable
def test_recording_changes_nothing(case: str):
    """Logits and gradients are the same under `record`, so the fused kernel is the plain one; no hook stays behind."""
    model = make(case)

    def run(forward: Callable[..., Tensor]) -> tuple[Tensor, list[Tensor]]:
        logits = forward(model, SOURCE, LENGTHS, TARGET)
        return logits.detach(), list(torch.autograd.grad(real(logits).square().sum(), list(model.parameters())))

    def forward(model: nn.Module, *batch: Tensor) -> Tensor:
        return model(*batch)

    plain, grads = run(forward)
    with record(model) as seen:
        recorded, recorded_grads = run(forward)
    with record(model), torch.no_grad():
        stepped = run_steps(model, SOURCE, LENGTHS, TARGET)
    assert set(model.attention_layout.cross) <= set(seen) == set(attentions(model))
    assert not any(module._forward_hooks for module in model.modules())
    assert_close(recorded, plain, rtol=0, atol=1e-10)
    assert_close(stepped, plain, rtol=0, atol=1e-10)
    for was, now in zip(grads, recorded_grads, strict=True):
        assert_close(now, was, rtol=1e-8, atol=1e-8)


@everywhere
@torch.no_grad()
def test_a_recorded_step_sees_what_forward_sees(case: str):
    model, expected = make(case), seen_whole(case)
    with record(model) as stepped:
        run_steps(model, SOURCE, LENGTHS, TARGET)
    for name in attentions(model):
        assert_close(stepped[name].weights, expected[name].weights, rtol=0, atol=1e-10)
        assert_close(stepped[name].context, expected[name].context, rtol=0, atol=1e-10)


@each_kind
@torch.no_grad()
def test_save_and_load_give_the_same_logits(case: str, tmp_path):
    model, other, logits = make(case), fresh(case, seed=4), whole(case)
    assert not torch.equal(other(SOURCE, LENGTHS, TARGET), logits)
    save_model(model, str(tmp_path / "weights.safetensors"))
    load_model(other, str(tmp_path / "weights.safetensors"))
    assert torch.equal(other(SOURCE, LENGTHS, TARGET), logits)
    assert sum(p.numel() for p in other.parameters()) == sum(p.numel() for p in model.parameters())


@everywhere
@torch.no_grad()
def test_weights_are_zero_on_padding_and_sum_to_one(case: str):
    """T2.1, T3.1, T3.2: over what the query may see; local-p rows sum to at most one; nowhere to look gives zeros."""
    model, seen = make(case), seen_whole(case)
    for name, module in attentions(model).items():
        weights, scores, centre = seen[name].weights, seen[name].scores, seen[name].centre
        visible = scores > -torch.inf  # the memory's mask, and slots that the score itself hides
        if isinstance(module.normalise, Window | GaussianWindow):
            assert centre is not None
            visible = visible & module.normalise.visible(scores, centre)
        if name.endswith("self_attention.attention") and name.startswith("decoder"):
            visible = visible.tril()
        assert (weights[~visible] == 0).all()
        assert (weights >= 0).all()
        sums, anything = weights.sum(-1), visible.any(-1)
        assert (sums[~anything] == 0).all()
        if isinstance(module.normalise, GaussianWindow | ForwardOnly):
            assert (sums <= 1 + 1e-12).all()
            assert (sums[anything] > 0).all() or is_hard(CASES[case][1])  # which may stop nowhere
        else:
            assert_close(sums[anything], torch.ones_like(sums[anything]), rtol=0, atol=1e-12)

    # The masks themselves: a cross-attention over words has no weight beyond the sentence, END included or not.
    for name in model.attention_layout.cross:
        weights = seen[name].weights  # [B, (H), T, S]
        if weights.shape[-1] == 1:  # one vector of the whole sentence
            assert torch.equal(weights, torch.ones_like(weights))
            continue
        assert weights.shape[-1] == SOURCE.shape[1]
        for row, length in zip(weights, LENGTHS, strict=True):
            assert (row[..., length:] == 0).all()
            assert row[..., :length].sum() > 0 or is_hard(CASES[case][1])


@each_kind
@torch.no_grad()
def test_take_reorders_a_state(case: str):
    """After `take`, steps go on as if the rows had always stood in that order; the old state is still whole."""
    model = make(case)
    rows = torch.tensor([2, 0, 1, 0])
    start = torch.full_like(TARGET[:, 0], START)
    state = model.start(model.encode(SOURCE, LENGTHS))
    _, state = model.step(start, state)
    _, state = model.step(TARGET[:, 0], state)
    taken = take(state, rows)
    expected = whole(case)[rows, 2:]
    assert_close(go_on(model, TARGET[:, 1], state, TARGET[:, 2:])[rows], expected, rtol=0, atol=1e-10)
    assert_close(go_on(model, TARGET[rows, 1], taken, TARGET[rows, 2:]), expected, rtol=0, atol=1e-10)


@each_kind
@torch.no_grad()
def test_take_beams_reorders_all_but_the_memory(case: str):
    """Beams of one sentence trade places, and go on as the hypotheses that they took over."""
    model = make(case)
    K = 3
    source, lengths = SOURCE[:2].repeat_interleave(K, 0), LENGTHS[:2].repeat_interleave(K, 0)  # [6, S]
    words = torch.randint(4, 11, (6, 5), generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([1, 1, 0, 5, 3, 4])
    state = model.start(model.encode(source, lengths))
    _, state = model.step(torch.full((6,), START), state)
    _, state = model.step(words[:, 0], state)
    moved = take_beams(state, rows)
    again = take_beams(moved, torch.tensor([2, 1, 0, 4, 4, 3]))
    rows_again = rows[[2, 1, 0, 4, 4, 3]]
    for state, order in ((moved, rows), (again, rows_again)):
        expected = model(source, lengths, words[order])[:, 2:]
        assert_close(go_on(model, words[order, 1], state, words[order, 2:]), expected, rtol=0, atol=1e-10)
    if hasattr(moved, "memory"):
        assert moved.memory is state.memory


@everywhere
@torch.no_grad()
def test_an_empty_sentence_is_read_and_written(case: str):
    """A source of END alone, by itself or among others: finite logits, the same both ways; Luong looks nowhere."""
    model = make(case)
    source = torch.cat([SOURCE, torch.tensor([[END, PAD, PAD, PAD, PAD, PAD]])])
    lengths = torch.cat([LENGTHS, torch.tensor([1])])
    target = torch.cat([TARGET, TARGET[1:2]])
    with record(model) as seen:
        logits = model(source, lengths, target)
    assert logits.isfinite().all()
    assert_close(logits[:3], whole(case), rtol=0, atol=1e-10)
    alone = run_steps(model, torch.tensor([[END]]), torch.tensor([1]), TARGET[1:2])
    assert_close(alone[0], logits[3], rtol=0, atol=1e-10)
    for name in model.attention_layout.cross:
        weights = seen[name].weights[3]  # [(H), T, S]
        assert (weights[..., 1:] == 0).all()
        if CASES[case][0] == "luong":
            assert (weights == 0).all()
            assert (seen[name].context[3] == 0).all()
        elif weights.shape[-2] > 0 and CASES[case][0] != "monotonic":  # which may not stop at END
            assert_close(weights[..., 0], torch.ones_like(weights[..., 0]))


@each_kind
def test_an_empty_sentence_has_finite_gradients(case: str):
    model = make(case)
    logits = model(torch.tensor([[END]]), torch.tensor([1]), torch.tensor([[END]]))
    loss = logits.log_softmax(-1)[..., END].sum().neg()
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    assert all(grad is None or grad.isfinite().all() for grad in grads)


@each_kind
@torch.no_grad()
def test_bfloat16_is_finite_and_close(case: str):
    """In bfloat16 nothing is NaN, and for gentle weights the logits are those of float64 up to its rounding."""
    torch.manual_seed(3)
    model = spread(build(*CASES[case]), 0.3)
    exact = model(SOURCE, LENGTHS, TARGET)
    coarse = model.bfloat16()
    parallel, stepped = coarse(SOURCE, LENGTHS, TARGET), run_steps(coarse, SOURCE, LENGTHS, TARGET)
    assert parallel.dtype == torch.bfloat16
    assert parallel.isfinite().all()
    assert stepped.isfinite().all()
    assert_close(parallel.double(), exact, rtol=0, atol=0.15)
    assert_close(stepped.double(), exact, rtol=0, atol=0.15)
    with record(coarse) as seen:
        coarse(SOURCE, LENGTHS, TARGET)
    assert all(look.weights.isfinite().all() and look.context.isfinite().all() for look in seen.values())


@each_differentiable_kind
@pytest.mark.filterwarnings("ignore:TF32")
def test_autocast_learns_what_full_precision_learns(case: str):
    """Mixed precision, as in training on a GPU: finite, and gradients that point the same way."""
    torch.manual_seed(3)
    model = spread(build(*CASES[case]), 0.3).float()

    def gradient() -> Tensor:
        loss = nn.functional.cross_entropy(model(SOURCE, LENGTHS, TARGET).flatten(0, 1).float(), TARGET.flatten())
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(model.parameters()))])

    exact = gradient()
    # Not every CPU has the library's LSTM in bfloat16; torch has another.
    with torch.autocast("cpu", torch.bfloat16), torch.backends.mkldnn.flags(enabled=False):
        coarse = gradient()
    assert coarse.isfinite().all()
    assert coarse.dtype == torch.float32
    assert nn.functional.cosine_similarity(exact, coarse, dim=0) > 0.98


@each_kind
@torch.no_grad()
@pytest.mark.filterwarnings("ignore:TF32")
def test_the_state_of_a_recurrent_net_keeps_its_precision_under_autocast(case: str):
    """Products may be coarse; what is carried from step to step is not, or rounding would pile up in it."""
    model = build(*CASES[case])
    with torch.autocast("cpu", torch.bfloat16), torch.backends.mkldnn.flags(enabled=False):
        state = model.start(model.encode(SOURCE, LENGTHS))
        _, after = model.step(TARGET[:, 0], state)
    for found in (state, after):
        carried = [getattr(found, "hidden", None), *chain(*getattr(found, "lstm", ()))]
        assert {part.dtype for part in carried if part is not None} <= {torch.float32}


@each_kind
@torch.no_grad()
def test_a_model_leaves_nothing_behind(case: str):
    """`forward` and `step` write nothing on the modules: the second batch cannot feel the first."""
    model = make(case)
    kept = {name: set(vars(part)) for name, part in model.named_modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    logits = model(SOURCE, LENGTHS, TARGET)
    run_steps(model, SOURCE[1:], LENGTHS[1:], TARGET[1:])
    assert torch.equal(model(SOURCE, LENGTHS, TARGET), logits)
    assert {name: set(vars(part)) for name, part in model.named_modules()} == kept
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())


@each_kind
@torch.no_grad()
def test_dropout_acts_in_training_only(case: str):
    model = copy.deepcopy(make(case)).train()
    torch.manual_seed(1)
    first = model(SOURCE, LENGTHS, TARGET)
    torch.manual_seed(2)
    assert not torch.equal(model(SOURCE, LENGTHS, TARGET), first)
    assert torch.equal(model.eval()(SOURCE, LENGTHS, TARGET), whole(case))


@differentiable
def test_every_parameter_learns(case: str):
    """Each weight matters for the loss; a part that got no gradient would be left out of the model."""
    weights = dict(make(case).named_parameters())
    loss = make(case)(SOURCE, LENGTHS, TARGET).log_softmax(-1)[..., 5].sum()
    grads = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    assert not [name for name, grad in zip(weights, grads, strict=True) if grad is None or not grad.any()]


@torch.no_grad()
def test_bfloat16_counts_positions_beyond_256():
    """bfloat16 holds whole numbers up to 256 only; windows and rotations must count places in more than that."""
    S = 400
    scores, centre = torch.zeros(1, 2, S, dtype=torch.bfloat16), torch.tensor([[299.0, 301.0]])
    for normalise in (Window(2), GaussianWindow(2), GaussianWindow(2, released=True)):
        weights = normalise(scores, None, centre)
        assert weights.dtype == torch.bfloat16
        assert [row.nonzero().flatten().tolist() for row in weights[0]] == [
            [297, 298, 299, 300, 301],
            [299, 300, 301, 302, 303],
        ]
    x = torch.randn(S, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    places = torch.arange(S)
    assert_close(rotate(x, places).double(), rotate(x.double(), places), rtol=0, atol=0.04)


@torch.no_grad()
def test_local_p_predicts_places_beyond_256_in_bfloat16():
    """The centre of local-p is S * sigmoid(...): in a long sentence it must not jump from even to even place."""
    name, config = CASES["luong-local-p-general"]
    torch.manual_seed(3)
    model = spread(build(name, config), 0.3).bfloat16()
    source = torch.randint(4, 11, (1, 600), generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(1, 50, config.width, generator=torch.Generator().manual_seed(1)).bfloat16()
    centre = model.centre(hidden, model.encode(source, torch.tensor([600])), torch.arange(50)[None])
    assert centre.dtype == torch.float32
    assert (centre[centre > 256] % 1 != 0).any()


TRANSFORMERS = [case for case in CASES if case.startswith("transformer")]
transformers = cases(TRANSFORMERS)


@each_kind
@torch.no_grad()
def test_a_state_may_be_stepped_twice(case: str):
    """Branching: two words after one state, and either child goes on as if the other had never been."""
    model = make(case)
    start = torch.full_like(TARGET[:, 0], START)
    _, state = model.step(start, model.start(model.encode(SOURCE, LENGTHS)))
    words = [TARGET, (TARGET - 2) % 7 + 4]
    children = [model.step(target[:, 0], state)[1] for target in words]
    for child, target in zip(children, words, strict=True):
        expected = model(SOURCE, LENGTHS, target)[:, 2:]
        assert_close(go_on(model, target[:, 1], child, target[:, 2:]), expected, rtol=0, atol=1e-10)


@transformers
@pytest.mark.parametrize(("room", "fixed"), [(4, False), (16, True)], ids=["roomy", "fixed"])
@torch.no_grad()
def test_t5_4_the_past_in_place_is_the_plain_one(case: str, room: int, fixed: bool):
    """T5.4: buffers that double, twice, or of a fixed size with a mask; also after a `take`, and with more room."""
    name, config = CASES[case]
    torch.manual_seed(3)
    model = spread(build(name, dataclasses.replace(config, longest=16)))
    words = torch.randint(4, 11, (2, 16), generator=torch.Generator().manual_seed(2))
    expected = model(SOURCE[:2], LENGTHS[:2], words)
    state = with_room(model.start(model.encode(SOURCE[:2], LENGTHS[:2])), room - 4 * fixed, fixed)
    token = torch.full((2,), START)
    for t in range(16):
        logits, state = model.step(token, state)
        assert_close(logits, expected[:, t], rtol=0, atol=1e-9)
        token = words[:, t]
        if t == 3:  # full to the last slot
            state = take(state, torch.tensor([1, 0]))
            expected, words, token = expected.flip(0), words.flip(0), token.flip(0)
        if t == 7 and fixed:
            state = with_room(state, room, fixed)
    assert case == "transformer-marian" or state.past[0].tensors[0].shape[-2] == 16  # an SSRU's past does not grow


# Tracing takes seconds: a few different models. What would break most traces, a value read from the device, is looked
# for in one case of every model and of every choice that changes what is traced. `make slow` has all.
TRACED = ["bahdanau-conditional", "luong-local-p-dot", "transformer-tiny", "lstmn-tiny"]
DIFFERENT = [
    "cho-tiny", "rnnencdec-tiny", "sutskever-tiny", "coverage-tiny", "pointer-tiny", "monotonic-tiny", "britz-residual",
    *TRACED,
]  # fmt: skip


SHORT = SOURCE[1:, :2], torch.tensor([2, 1])  # few steps, since each is traced


def traced(cases: Iterable[str], *quick: str) -> pytest.MarkDecorator:
    """These cases, those that are not in `quick` as slow tests."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize("case", [one if one in quick else pytest.param(one, marks=slow) for one in cases])


@torch.no_grad()
def one_layer(case: str) -> Any:
    """The model of a case with one layer: a second is traced as the first is."""
    name, config = CASES[case]
    return spread(build(name, dataclasses.replace(config, layers=1) if hasattr(config, "layers") else config))


@traced(CASES, *DIFFERENT)
@torch.no_grad()
def test_nothing_is_read_from_the_device(case: str):
    """On a device that has shapes and no numbers: to read one is an error, and so is a tensor of another device."""
    with torch.device("meta"):
        model = build(*CASES[case]).eval()
    source, lengths, target = (part.to("meta") for part in (*SHORT, TARGET[1:, :2]))
    assert model(source, lengths, target).is_meta
    assert run_steps(model, source, lengths, target).is_meta


@traced(CASES, "bahdanau-conditional", "transformer-tiny")
@torch.no_grad()
def test_forward_can_be_compiled(case: str):
    """The eager backend: no graph break hides a question to the device."""
    model, batch = one_layer(case), (*SHORT, TARGET[1:, :2])
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(*batch), model(*batch), rtol=0, atol=1e-10)
    torch._dynamo.reset()


@traced((case for case in CASES if case not in TRANSFORMERS), *TRACED)
@torch.no_grad()
def test_encode_and_one_step_can_be_exported(case: str):
    model = one_layer(case)
    encode = torch.export.export(Call(model, "encode"), SHORT).module()
    state = model.start(Memory(*encode(*SHORT)))
    logits, state = model.step(torch.full((2,), START), state)
    words = TARGET[1:]
    assert_close(logits, run_steps(model, *SHORT, words)[:, 0], rtol=0, atol=1e-10)
    step = torch.export.export(Call(model, "step"), (words[:, 0], state)).module()
    assert_close(step(words[:, 0], state)[0], model.step(words[:, 0], state)[0], rtol=0, atol=1e-10)


@traced(TRANSFORMERS, "transformer-tiny")
@torch.no_grad()
def test_a_transformer_is_exported_for_any_length(case: str):
    """No data-dependent Python: a step of another length is the exported one's."""
    model = one_layer(case)
    logits = torch.export.export(model, (SOURCE, LENGTHS, TARGET)).module()(SOURCE, LENGTHS, TARGET)
    assert_close(logits, model(SOURCE, LENGTHS, TARGET), rtol=0, atol=1e-10)
    words, states = TARGET.unbind(1), [model.start(model.encode(SOURCE, LENGTHS))]
    for word in words:
        states.append(model.step(word, states[-1])[1])
    stepper = Call(model, "step")
    steps = torch.export.Dim("steps", min=2, max=32)
    sizes = torch.utils._pytree.tree_map(lambda part: None if part is None else {}, states[3])
    sizes = sizes._replace(
        past=torch.utils._pytree.tree_map(lambda part: {2: steps} if part.dim() == 4 else {}, states[3].past)
    )
    exported = torch.export.export(stepper, (words[0], states[3]), dynamic_shapes=(({}, sizes),)).module()
    logits, _ = exported(words[1], states[4])
    assert_close(logits, model.step(words[1], states[4])[0], rtol=0, atol=1e-10)


class Call(nn.Module):
    """A method of a model as a module."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *given: Any) -> Any:
        return getattr(self.model, self.method)(*given)


@torch.no_grad()
def test_the_projections_begin_as_separate_matrices():
    """Queries, keys and values share a matrix; each block has the variance of its own Xavier matrix, the gain apart."""
    torch.manual_seed(1)
    config = dataclasses.replace(
        MODELS["transformer"].presets["tiny"], gain=0.5, source_vocabulary=9, target_vocabulary=9
    )
    layer = build("transformer", config).decoder[0]
    D = config.width
    blocks = [*layer.self_attention.project.weight.chunk(3), layer.cross_attention.query.weight]
    blocks += [*layer.cross_attention.project.weight.chunk(2), layer.self_attention.output.weight]
    for block, gain in zip(blocks, [1.0, 1.0, 0.5, 1.0, 1.0, 0.5, 0.5], strict=True):
        assert block.abs().max() <= gain * (6 / (2 * D)) ** 0.5
        assert block.std().item() == pytest.approx(gain * (2 / (2 * D)) ** 0.5, rel=0.03)
