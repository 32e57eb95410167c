"""The Triton kernels against the plain equations, on a GPU and by Triton's interpreter, which needs none.

The interpreter must be chosen before Triton is imported; so this file runs itself in a subprocess.
"""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from regard.core.attend import Memory, attend_unchecked
from regard.core.normalise import Causal, softmax, sparsemax
from regard.core.scores import Perceptron
from regard.errors import ShapeError
from regard.training.objectives import consistent_likelihood, cross_entropy

pytest.importorskip(
    "triton", reason="Triton is not installed; `make kernels` installs it and tests its kernels without a GPU."
)
INSIDE = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INSIDE else "cuda"
inside = pytest.mark.skipif(
    not INSIDE and not torch.cuda.is_available(),
    reason="runs on a GPU, and in the process of test_all_in_the_interpreter",
)
LOW = (torch.float32, torch.bfloat16)


@pytest.mark.slow
@pytest.mark.skipif(INSIDE, reason="this is that process")
def test_all_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", __file__, "-q", "-n0", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype).requires_grad_()


def results(form, inputs: list[Tensor], probes: list[Tensor]) -> list[Tensor]:
    """The outputs of a form and the gradients of a random function of them."""
    outputs = form(*inputs)
    total = sum((out * probe.to(out.dtype)).sum() for out, probe in zip(outputs, probes, strict=True))
    return [*outputs, *torch.autograd.grad(total, inputs)]


def agree(kernel, plain, inputs: list[Tensor], *shapes: tuple[int, ...], zero: bool = False) -> None:
    """The kernel's error is at most twice that of the plain form in the same precision, against float64.

    `zero`: gradients are zero, and what is left of them is the rounding of the probes, so these bound the error.
    """
    probes = [torch.randn(shape, device=DEVICE) for shape in shapes]
    least = torch.stack([probe.double().norm() * zero for probe in probes]).max()
    exact = results(plain, [x.detach().double().requires_grad_() for x in inputs], probes)
    for ours, theirs, right in zip(results(kernel, inputs, probes), results(plain, inputs, probes), exact, strict=True):
        error, allowed = (ours - right).norm(), 2 * (theirs - right).norm()
        grain = 2**-8 if ours.dtype == torch.bfloat16 else 4e-6
        assert error <= allowed + grain * torch.maximum(right.norm(), least)


def plain_attend(query: Tensor, keys: Tensor, v: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    weights = softmax(torch.tanh(query[:, :, None] + keys[:, None]) @ v, mask)
    return weights @ values, weights


@inside
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("B", "T", "S", "D", "Dv"), [(2, 3, 5, 7, 11), (1, 2, 1, 1, 1), (1, 17, 66, 6, 3)])
def test_additive_attention_is_the_plain_one(B: int, T: int, S: int, D: int, Dv: int, dtype: torch.dtype) -> None:
    from regard.kernels.additive_attention import additive_scores

    def additive_attend(query: Tensor, keys: Tensor, v: Tensor, values: Tensor, may: Tensor | None):
        weights = softmax(additive_scores(query, keys, v), may)  # [B, T, S]
        return weights.to(values.dtype) @ values, weights

    torch.manual_seed(1)
    inputs = [random(*shape, dtype=dtype) for shape in ((B, T, D), (B, S, D), (D,), (B, S, Dv))]
    mask = torch.rand(B, T, S, device=DEVICE) > 0.3
    mask[0, 0] = False
    for may in (mask, None):
        agree(
            lambda *x, may=may: additive_attend(*x, may),
            lambda *x, may=may: plain_attend(*x, may),
            inputs,
            (B, T, Dv),
            (B, T, S),
        )
    context, _ = additive_attend(*inputs, mask)
    assert (context[0, 0] == 0).all()


@inside
def test_a_perceptron_of_many_heads_with_a_sparse_normaliser_is_the_plain_one() -> None:
    from regard.kernels.choose import _perceptron

    torch.manual_seed(1)
    score = Perceptron(7).to(DEVICE)
    inputs = [random(2, 3, 5, 7), random(2, 3, 5, 7), random(2, 3, 5, 4)]  # [B, H, T, D], [B, H, S, D], [B, H, S, Dv]
    for normalise in (Causal(sparsemax), softmax):

        def form(act, query: Tensor, keys: Tensor, values: Tensor, normalise=normalise) -> tuple[Tensor, Tensor]:
            found = act(query, Memory(keys, values), score.to(query.dtype), normalise)
            return found.context, found.weights

        kernel = partial(_perceptron, watched=True)
        agree(partial(form, kernel), partial(form, attend_unchecked), inputs, (2, 3, 5, 4), (2, 3, 5, 5))


@inside
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("B", "T", "S", "D", "Dv"), [(2, 3, 5, 7, 11), (1, 2, 1, 130, 129), (2, 2, 17, 2, 1)])
def test_a_loop_of_attention_is_the_plain_one(B: int, T: int, S: int, D: int, Dv: int, dtype: torch.dtype) -> None:
    from regard.kernels.additive_attention import AttentionLoop

    torch.manual_seed(2)
    inputs = [random(*shape, dtype=dtype) for shape in ((B, T, D), (B, S, D), (D,), (B, S, Dv))]
    mask = torch.rand(B, 1, S, device=DEVICE) > 0.3
    mask[0] = False

    def loop(query: Tensor, keys: Tensor, v: Tensor | None, values: Tensor) -> tuple[Tensor, Tensor]:
        attend = AttentionLoop(keys, v, values, mask)
        contexts, weights = zip(*(attend(q) for q in query.unbind(1)), strict=True)
        return torch.stack(contexts, dim=1), torch.stack(weights, dim=1)

    def dot(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        weights = softmax(query @ keys.mT, mask)
        return weights @ values, weights

    agree(loop, lambda *x: plain_attend(*x, mask), inputs, (B, T, Dv), (B, T, S))
    query, keys, _, values = inputs
    agree(lambda q, k, x: loop(q, k, None, x), dot, [query, keys, values], (B, T, Dv), (B, T, S))


@inside
def test_a_step_of_the_loop_without_a_gradient_adds_nothing() -> None:
    from regard.kernels.additive_attention import AttentionLoop

    keys, v, values = random(2, 5, 7), random(7), random(2, 5, 3)
    used, unused = random(2, 7), random(2, 7)

    def gradients(queries: list[Tensor]) -> list[Tensor]:
        attend = AttentionLoop(keys, v, values)
        contexts = [attend(q)[0] for q in queries]
        return list(torch.autograd.grad(contexts[0].sum(), [keys, v, values]))

    for alone, beside in zip(gradients([used]), gradients([used, unused]), strict=True):
        assert torch.equal(alone, beside)


@inside
def test_widths_that_do_not_match_are_refused() -> None:
    from regard.kernels.additive_attention import AttentionLoop, additive_scores
    from regard.kernels.cells import lstm_cell

    with pytest.raises(ShapeError, match="Project query and keys to the width of v"):
        additive_scores(random(2, 3, 7), random(2, 5, 7), random(6))
    with pytest.raises(ShapeError, match="Project query and keys to the width of v"):
        AttentionLoop(random(2, 5, 7), random(7), random(2, 5, 3))(random(2, 6))
    with pytest.raises(RuntimeError, match="expand"):
        AttentionLoop(random(2, 6, 7), random(7), random(2, 6, 3), torch.ones(1, 3, dtype=torch.bool, device=DEVICE))
    with pytest.raises(ShapeError, match="float64"):
        additive_scores(*(random(*shape, dtype=torch.float64) for shape in ((2, 3, 7), (2, 5, 7), (7,))))
    with pytest.raises(ShapeError, match=r"inputs \[2, 12\]"):
        lstm_cell(random(2, 12), random(2, 9), random(2, 3))


def plain_lstm(wx: Tensor, uh: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    i, f, g, o = (wx + uh).chunk(4, dim=-1)
    after = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    hidden = o.sigmoid() * after.tanh()
    return hidden, after, hidden.to(uh.dtype)


def fused_lstm(*inputs: Tensor) -> tuple[Tensor, ...]:
    from regard.kernels.cells import lstm_cell

    hidden, after, low = lstm_cell(*inputs)
    assert hidden.dtype == after.dtype == torch.float32
    assert (low is None) == (inputs[1].dtype == torch.float32)
    return hidden, after, hidden if low is None else low


def blended(update: Tensor, old: Tensor, new: Tensor, keep: bool) -> Tensor:
    return update * old + (1 - update) * new if keep else update * new + (1 - update) * old


def plain_gru(wx: Tensor, state: Tensor, U_gates: Tensor, U: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    n = state.shape[-1]
    reset, update = (wx[..., : 2 * n] + state.to(U.dtype) @ U_gates.mT).sigmoid().chunk(2, dim=-1)
    after = blended(update, state, (wx[..., 2 * n :] + (reset * state).to(U.dtype) @ U.mT).tanh(), keep)
    return after, after.to(U.dtype)


def fused_gru(wx: Tensor, state: Tensor, U_gates: Tensor, U: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    from regard.kernels.cells import gru

    after, low = gru(wx, state, lambda x: x.to(U.dtype) @ U_gates.mT, lambda x: x @ U.mT, keep)
    return after, after if low is None else low


def reset_after(wx: Tensor, uh: Tensor, state: Tensor, keep: bool) -> tuple[Tensor]:
    n = state.shape[-1]
    reset, update = (wx + uh)[..., : 2 * n].sigmoid().chunk(2, dim=-1)
    return (blended(update, state, (wx[..., 2 * n :] + reset * uh[..., 2 * n :]).tanh(), keep),)


@inside
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("shape", [(2, 7), (2, 3, 5), (1, 1030)])
def test_cells_are_the_plain_equations(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from regard.kernels.cells import gru_cell

    torch.manual_seed(3)
    *rows, n = shape
    state = random(*shape)  # float32 beside whatever the products are in
    uh = {parts: random(*rows, parts * n, dtype=dtype) for parts in (3, 4)}
    wx = {parts: random(*rows, 3, parts * n, dtype=dtype)[..., 1, :] for parts in (3, 4)}  # one step of many
    agree(fused_lstm, plain_lstm, [wx[4], uh[4], state], shape, shape, shape)
    matrices = [(random(m, n).detach() / n**0.5).to(dtype).requires_grad_() for m in (2 * n, n)]
    for keep in (True, False):
        forms = (partial(form, keep=keep) for form in (fused_gru, plain_gru))
        agree(*forms, [wx[3], state, *matrices], shape, shape)
        agree(
            lambda *x, keep=keep: (gru_cell(*x, keep),),
            partial(reset_after, keep=keep),
            [wx[3], uh[3], state],
            shape,
        )


@inside
def test_a_state_that_only_products_read_has_its_gradient() -> None:
    inputs = [random(2, wide, dtype=torch.bfloat16) for wide in (12, 12)] + [random(2, 3)]
    for place in range(3):
        got = torch.autograd.grad(fused_lstm(*inputs)[place].float().sum(), inputs)
        wanted = torch.autograd.grad(plain_lstm(*(x.float() for x in inputs))[place].sum(), inputs)
        torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.01)


@inside
def test_a_shut_update_gate_leaves_the_state_exactly_as_it_is() -> None:
    state, U_gates, U = random(2, 5), random(10, 5), random(5, 5)
    for shut, keep in ((torch.inf, True), (-torch.inf, False)):
        parts = [random(2, 5).detach(), torch.full((2, 5), shut, device=DEVICE), random(2, 5).detach()]
        wx = torch.cat(parts, dim=-1).requires_grad_()
        after, _ = fused_gru(wx, state, U_gates, U, keep)
        assert torch.equal(after, state)
        (grad,) = torch.autograd.grad(after.sum(), wx)
        assert (grad == 0).all()


@inside
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", LOW)
def test_logits_become_their_gradient_in_place(dtype: torch.dtype, smoothing: float) -> None:
    from regard.kernels.softmax_gradient import differentiate

    torch.manual_seed(4)
    for n, V in ((3, 7), (2, 4099), (1, 1)):
        logits, gold = (3 * torch.randn(n, V, device=DEVICE)).to(dtype), torch.randint(V, (n,), device=DEVICE)
        gold[0] = 0  # padding
        exact = logits.double()[None].requires_grad_()
        loss, plain = cross_entropy(exact, gold[None], smoothing)
        (right,) = torch.autograd.grad(loss, exact)
        losses = torch.empty(2, n, device=DEVICE)
        got = differentiate(logits, gold, losses, smoothing, 0, True)
        assert got.data_ptr() == logits.data_ptr()
        torch.testing.assert_close(losses.double().sum(1), torch.stack([loss.detach(), plain]), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got.double(), right[0], rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)
        assert (got[0] == 0).all()


@inside
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", LOW)
def test_the_logits_of_two_passes_become_their_gradient_in_place(dtype: torch.dtype, smoothing: float) -> None:
    from regard.kernels.softmax_gradient import differentiate_pairs

    torch.manual_seed(4)
    for n, V in ((3, 7), (2, 4099), (1, 1)):
        passes, gold = (3 * torch.randn(2, n, V, device=DEVICE)).to(dtype), torch.randint(V, (n,), device=DEVICE)
        gold[0] = 0  # padding
        exact = passes.double().requires_grad_()
        loss = consistent_likelihood(lambda _, exact=exact: exact, gold[None], weight=4.0, smoothing=smoothing)
        (right,) = torch.autograd.grad(loss, exact)  # [2, n, V]
        plain = cross_entropy(exact, gold.repeat(2, 1))[1] / 2
        logits, losses = passes.transpose(0, 1).reshape(2 * n, V), torch.empty(2, 2 * n, device=DEVICE)
        got = differentiate_pairs(logits, gold.repeat_interleave(2), losses, smoothing, 0, True, 4.0)
        assert got.data_ptr() == logits.data_ptr()
        torch.testing.assert_close(losses.double().sum(1), torch.stack([loss.detach(), plain]), rtol=1e-5, atol=1e-5)
        error = (got.double().view(n, 2, V).transpose(0, 1) - right).abs().max()
        assert error <= (2**-7 if dtype == torch.bfloat16 else 1e-5) * right.abs().max() + 1e-6
        assert (got[:2] == 0).all()


@inside
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("N", "D"), [(1, 1), (5, 7), (37, 130)])
def test_the_norm_of_a_sum_is_the_plain_one(N: int, D: int, dtype: torch.dtype) -> None:
    from regard.kernels.add_norm import add_norm

    torch.manual_seed(1)
    x, added = random(N, D, dtype=dtype), random(N, D, dtype=dtype)
    gamma, beta = random(D), random(D)

    def plain(x: Tensor, *more: Tensor) -> tuple[Tensor]:
        *added, gamma, beta = more
        exact = torch.promote_types(x.dtype, torch.float32)
        total = x.to(exact) + added[0].to(exact) if added else x.to(exact)
        return (torch.nn.functional.layer_norm(total, (D,), gamma, beta, 0.1).to(x.dtype),)

    agree(
        lambda *x: (add_norm(*x, 0.1),), plain, [x, added, gamma, beta], (N, D), zero=D == 1
    )  # of one number the norm is beta
    agree(lambda x, *more: (add_norm(x, None, *more, 0.1),), plain, [x, gamma, beta], (N, D), zero=D == 1)


@inside
def test_dropout_in_the_norm_follows_the_seed_and_its_gradient_the_elements_kept() -> None:
    from regard.kernels.add_norm import add_norm

    gamma, beta = torch.ones(64, device=DEVICE), torch.zeros(64, device=DEVICE)
    x, added = random(50, 64), random(50, 64)

    def run() -> tuple[Tensor, Tensor]:
        y = add_norm(x, added, gamma, beta, 0.1, 0.25)
        return y, torch.autograd.grad((y * y.detach().sin()).sum(), [x, added])

    torch.manual_seed(3)
    y, (d_x, d_added) = run()
    share = d_added / d_x  # 0 where an element is dropped, 4/3 elsewhere
    kept = share > 0.5
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.03)
    torch.testing.assert_close(share, kept * (4 / 3), rtol=1e-4, atol=1e-5)
    total = x + added * kept * (4 / 3)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(total, (64,), eps=0.1))
    assert not torch.equal(y, run()[0])
    torch.manual_seed(3)
    assert torch.equal(y, run()[0])


@inside
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])  # the interpreter has no products of bfloat16
@pytest.mark.parametrize(("B", "H", "T", "S", "D"), [(2, 3, 5, 5, 4), (2, 1, 1, 17, 8), (1, 2, 18, 20, 16)])
def test_short_attention_is_the_plain_one(B: int, H: int, T: int, S: int, D: int, dtype: torch.dtype) -> None:
    from regard.core.attend import Memory, attend
    from regard.core.normalise import causal_softmax
    from regard.core.scores import scaled_dot
    from regard.kernels.short_attention import short_attend

    torch.manual_seed(1)
    inputs = [random(B, H, size, D, dtype=dtype) for size in (T, S, S)]
    mask = torch.rand(B, 1, 1, S, device=DEVICE) > 0.3
    mask[0] = False
    past = mask[-1, 0]  # [1, S], the same for all
    for may, normalise in (
        (mask, softmax),
        (None, causal_softmax),
        (mask[1:2] if B > 1 else None, causal_softmax),
        (past, softmax),
    ):
        memory = lambda keys, values, may=may: Memory(keys, values, may)  # noqa: E731
        agree(
            lambda q, *kv: (short_attend(q, memory(*kv), True, normalise is causal_softmax),),  # noqa: B023
            lambda q, *kv: (attend(q, memory(*kv), scaled_dot, normalise).context,),  # noqa: B023
            inputs,
            (B, H, T, D),
        )


@inside
def test_short_attention_never_reads_what_is_masked() -> None:
    from regard.kernels.short_attention import short_attend

    torch.manual_seed(1)
    query, keys, values = inputs = [random(2, 1, 5, 4, dtype=torch.float16) for _ in range(3)]
    mask = torch.tensor([[True, True, False, True, False], [True] * 5], device=DEVICE)[:, None, None]
    results = []
    for hidden in (0.0, torch.nan):
        with torch.no_grad():
            for part in (keys, values):
                part.masked_fill_(~mask[:, 0, 0, :][:, None, :, None], hidden)
        context = short_attend(query, Memory(keys, values, mask), True, False)
        results.append([context, *torch.autograd.grad(context.float().square().sum(), inputs)])
    for plain, found in zip(*results, strict=True):
        assert torch.equal(plain, found)


@inside
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_sentences_end_to_end_is_that_of_each(causal: bool) -> None:
    from regard.core.attend import Memory, attend
    from regard.core.blocks import Blocks, apart, end_to_end
    from regard.core.normalise import causal_softmax
    from regard.core.scores import scaled_dot
    from regard.kernels.short_attention import short_attend

    torch.manual_seed(1)
    inputs = [random(1, 2, size, 4, dtype=torch.float16) for size in (10, 12, 12)]
    # Some sentences have no words on one side, or on either.
    queries = torch.tensor([[0, 1, 2, -1], [3, 4, 5, 6], [-1] * 4, [7, -1, -1, -1], [8, 9, -1, -1]], device=DEVICE)
    slots = torch.tensor([[4, 5, 6, 7], [0, 1, 2, 3], [-1] * 4, [8, 9, 10, 11], [-1] * 4], device=DEVICE)
    blocks = Blocks(queries, slots)
    normalise = causal_softmax if causal else softmax

    def plain(query: Tensor, *kv: Tensor) -> tuple[Tensor]:
        memory = Memory(*(apart(x, slots) for x in kv), (slots >= 0)[:, None, None])
        return (end_to_end(attend(apart(query, queries), memory, scaled_dot, normalise).context, queries, 10),)

    agree(lambda q, *kv: (short_attend(q, Memory(*kv), True, causal, blocks),), plain, inputs, (1, 2, 10, 4))


@inside
def test_a_step_is_written_into_its_slot() -> None:
    from regard.kernels.past_slots import write_slot

    buffers = [torch.zeros(2, 3, 5, 4, dtype=torch.float16, device=DEVICE) for _ in range(2)]
    new = torch.randn(2, 1, 2, 3, 4, device=DEVICE).permute(2, 0, 3, 1, 4).unbind()  # views, as heads are split
    write_slot(*buffers, *new, torch.tensor([3], device=DEVICE))
    for buffer, step in zip(buffers, new, strict=True):
        assert torch.equal(buffer[:, :, 3:4], step.half())
        assert not buffer[:, :, [0, 1, 2, 4]].any()


@inside
@pytest.mark.parametrize("beams", [1, 3, 4])
def test_beams_change_places_in_the_slots_that_are_filled(beams: int) -> None:
    from regard.kernels.past_slots import move_slots

    torch.manual_seed(1)
    A, H, room, D, filled = 3, 2, 7, 5, 4
    before = [torch.randn(A * beams, H, room, D, device=DEVICE) for _ in range(2)]
    inside = torch.randint(0, beams, (A, beams), device=DEVICE)
    inside[1] = torch.arange(beams)  # a sentence whose beams stay
    rows = (inside + beams * torch.arange(A, device=DEVICE)[:, None]).flatten()
    after = [buffer.clone() for buffer in before]
    move_slots(*after, rows, torch.tensor([filled], device=DEVICE), beams)
    for new, old in zip(after, before, strict=True):
        assert torch.equal(new[:, :, :filled], old[rows][:, :, :filled])


@inside
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_gradients_of_heads_reach_the_projection_without_a_copy(parts: int) -> None:
    from regard.core.attend import Memory
    from regard.kernels.short_attention import short_attend, split_heads

    torch.manual_seed(1)
    B, T, H, D = 2, 5, 3, 4
    projected, other = random(B, T, parts * H * D), random(B, T, 2 * H * D)

    def loss(split) -> Tensor:
        mine = split(projected, parts, H)
        query, keys, values = (*mine, *split(other, 2, H)[: 3 - parts])
        return short_attend(query, Memory(keys, values), True, False).square().sum()

    def plain_split(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
        return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    wanted = torch.autograd.grad(loss(plain_split), projected)[0]
    torch.testing.assert_close(torch.autograd.grad(loss(split_heads), projected)[0], wanted)
    stacked = torch.autograd.grad(sum(x.sin().sum() for x in split_heads(projected, parts, H)), projected)[0]
    torch.testing.assert_close(stacked, projected.detach().cos())


@inside
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("N", "n", "m"), [(1, 3, 5), (150, 8, 24)])
def test_a_linear_layer_with_relu_is_the_plain_one(N: int, n: int, m: int, dtype: torch.dtype) -> None:
    from regard.kernels.linear_relu import LinearReLU

    torch.manual_seed(1)
    inputs = [random(*shape, dtype=dtype) for shape in ((2, N, n), (m, n), (m,))]
    plain = torch.nn.functional.linear
    agree(lambda *x: (LinearReLU.apply(*x),), lambda *x: (plain(*x).relu(),), inputs, (2, N, m))


@inside
@pytest.mark.parametrize("name", ["transformer", "bahdanau", "luong"])
def test_models_by_the_kernels_are_the_plain_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.kernels import choose
    from regard.models.registry import MODELS, build
    from regard.training.objectives import likelihood

    sizes = {"source_vocabulary": 13, "target_vocabulary": 13, "width": 16, "dropout": 0.0}
    sizes |= {"inner": 24, "layers": 1} if name == "transformer" else {"layers": 2} if name == "luong" else {}
    torch.manual_seed(3)
    model = build(name, replace(MODELS[name].presets["tiny"], **sizes)).to(DEVICE)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    source = torch.tensor([[5, 6, 7, 8, 2], [4, 9, 2, 0, 0]], device=DEVICE)
    target = torch.tensor([[4, 5, 6, 2], [9, 2, 0, 0]], device=DEVICE)
    inputs = source, torch.tensor([5, 3], device=DEVICE), target

    def gradients() -> list[Tensor]:
        loss, _ = likelihood(model, *inputs)
        return [loss, *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)]

    with monkeypatch.context() as patch:
        patch.setattr(choose, "TRITON", False)
        exact = gradients()
    monkeypatch.setattr(choose, "no_triton", lambda *_: "")
    torch.testing.assert_close(gradients(), exact, rtol=1e-3, atol=1e-4)
    with torch.autocast(DEVICE, torch.float16):  # the interpreter has no products of bfloat16
        for found, wanted in zip(gradients(), exact, strict=True):
            assert found is wanted or (found - wanted).norm() <= 0.02 * wanted.norm() + 0.01


@inside
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("A", "k", "V", "M"), [(3, 1, 7, 7), (2, 3, 5000, 4), (1, 2, 4096, 13)])
def test_likely_tokens_are_the_plain_ones(A: int, k: int, V: int, M: int, dtype: torch.dtype) -> None:
    from regard.decode import rules
    from regard.decode.settings import DecodeConfig
    from regard.kernels.beams import likely

    torch.manual_seed(1)
    ids = torch.stack([torch.randperm(V) for _ in range(A * k)])
    logits = (ids.float() / 64).to(dtype).to(DEVICE)  # few ties in float32, many in bfloat16
    logits[0, 2] = 1e3 if dtype == torch.bfloat16 else 200.0  # END, which is too early in the first sentence
    length = torch.arange(A, device=DEVICE)
    config = DecodeConfig(min_length=1, ban_unknown=True)
    logprob, token = likely(logits, length, M, rules.banned(config), config.min_length)
    logprobs = logits.log_softmax(-1, dtype=torch.float32)
    rules.apply_rules(logprobs, config, length.repeat_interleave(k), None, None)
    wanted, _ = rules.best(logprobs, M)
    torch.testing.assert_close(logprob, wanted, rtol=1e-5, atol=1e-5)
    real = wanted > -torch.inf
    torch.testing.assert_close(
        logits.float().log_softmax(-1).gather(1, token)[real], wanted[real], rtol=1e-5, atol=1e-5
    )
    assert all(len(set(row[some].tolist())) == some.sum() for row, some in zip(token, real, strict=True))


@inside
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_has_no_likely_token(wrong: float) -> None:
    from regard.kernels.beams import likely

    logits = torch.randn(2, 5000, device=DEVICE)
    logits[0, slice(None) if wrong == -torch.inf else 4321] = wrong
    logprob, token = likely(logits, torch.zeros(2, dtype=torch.long, device=DEVICE), 3, (0, 1), 0)
    assert logprob[0].isnan().all()
    assert logprob[1].isfinite().all()
    assert (token < 5000).all()


@inside
@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize(("K", "nbest"), [(1, 1), (3, 2), (4, 4)])
def test_selected_beams_are_the_plain_ones(K: int, nbest: int, patient: bool) -> None:
    """Many sentences, from their first token to the last, with ties, ends, and rows that break."""
    from regard.decode import beam as plain
    from regard.decode.settings import DecodeConfig
    from regard.decode.steps import SearchRequest
    from regard.kernels.beams import select

    torch.manual_seed(K)
    config = DecodeConfig(beam=K, nbest=nbest, patient=patient)
    A, M, steps = 12, min(K + 1, 6), 9
    limits = torch.cat([torch.tensor([steps]), torch.randint(2, steps, (A - 1,))]).to(DEVICE)
    ours = theirs = plain.begin(limits, steps, torch.device(DEVICE), config, SearchRequest())
    for number in range(steps):
        k = ours.total.shape[1]
        token = torch.stack([torch.randperm(5)[:M] + 2 for _ in range(A * k)])  # END is 2
        each = -torch.randint(1, 4, (A * k, M)).float().sort(dim=1).values
        each[torch.rand(A * k) < 0.05] = torch.nan
        penalty = ours.penalties.gather(1, ours.length[:, None]).squeeze(1)
        given = [x.to(DEVICE) for x in (each, token)]
        ours, theirs = (
            before._replace(tokens=before.tokens.clone(), parents=before.parents.clone()) for before in (ours, theirs)
        )
        ours, rows = select(*given, ours, penalty, K, nbest, patient)
        theirs, expected = plain.select(theirs, plain.expand(theirs, *given, K), penalty, config)
        used = theirs.total > -torch.inf  # [A, K]
        for name in ("length", "done", "broken", "total"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), (name, number)
        going = used & ~theirs.done[:, None]
        assert torch.equal(rows.view(A, K)[going], expected.view(A, K)[going])
        assert torch.equal(ours.token[going], theirs.token[going])
        there = theirs.finished.score > -torch.inf
        for mine, right in zip(ours.finished, theirs.finished, strict=True):
            assert torch.equal(mine[there], right[there])
        assert torch.equal(ours.finished.score, theirs.finished.score)
        for name in ("tokens", "parents", "logprobs"):
            written = used & (ours.length == number + 1)[:, None]
            mine, right = getattr(ours, name)[:, number], getattr(theirs, name)[:, number]
            assert torch.equal(mine[written], right[written]), (name, number)
    assert theirs.done.all()
    assert (theirs.finished.score > -torch.inf).any()


@inside
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("N", "m"), [(0, 3), (1, 1), (5, 3), (64, 16), (1024, 17), (1025, 20), (2100, 257)])
def test_column_sums_are_those_of_torch(N: int, m: int, dtype: torch.dtype) -> None:
    from regard.kernels.column_sums import column_sums

    torch.manual_seed(1)
    x = torch.randn(N, m, device=DEVICE).to(dtype)
    torch.testing.assert_close(column_sums(x), x.sum(dim=0, dtype=torch.float64).float(), rtol=1e-5, atol=1e-4)
    wide = torch.randn(m, N, device=DEVICE).to(dtype).T  # not contiguous
    torch.testing.assert_close(column_sums(wide), wide.sum(dim=0, dtype=torch.float64).float(), rtol=1e-5, atol=1e-4)
