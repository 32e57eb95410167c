"""The faster forms give the plain numbers: values, and every gradient against finite differences."""

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.testing import assert_close

from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.normalise import Causal, GaussianWindow, causal_softmax, softmax, sparsemax
from regard.core.products import Linear, LowPrecisionLinear, current_recurrence, linear, matmul
from regard.core.scores import Additive, Concat, Cosine, General, Location, Perceptron, dot, scaled_dot
from regard.errors import ConfigError
from regard.kernels import choose, cpu, step_model, torch_lstm
from regard.kernels.choose import Dropout, attention_path
from regard.kernels.explain import explain
from regard.kernels.recur import Loop, Product, recur
from regard.kernels.step_model import for_steps
from regard.layers.attention import Attention
from regard.layers.recurrent import Matrices, StackedLSTM
from regard.look.record import attentions
from regard.models.registry import MODELS, build

B, T, M, N = 2, 4, 3, 5


def number(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


# --- recurrences: gradients of matrices formed once, after the loop


class Cell(nn.Module):
    """A step with a biased product, a product with a slice of a matrix, one with values of the state, and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.U = Linear(N, N)
        self.V = Linear(N + M, N, bias=False)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> Any:
        hidden, values = state  # [B, N], [B, N, N]
        context = matmul(hidden[:, None], values)[:, 0]  # [B, N]
        context = context + matmul(hidden[:, None], values.transpose(-1, -2))[:, 0]
        hidden = torch.tanh(self.U(hidden) + linear(x, self.V.weight[:, N:]) + self.U(context))
        return (hidden, context), (hidden, values)


def plain(step: Any, inputs: Tensor, state: Any) -> Any:
    outputs = []
    for x in inputs.unbind(1):
        output, state = step(x, state)
        outputs.append(output)
    return tuple(torch.stack(part, dim=1) for part in zip(*outputs, strict=True)), state


def test_a_recurrence_is_its_plain_loop_and_so_is_every_gradient():
    cell, x, hidden, values = Cell().double(), number(B, T, M), number(B, N), number(B, N, N)
    given = (x, hidden, values, *cell.parameters())

    def run(loop: Any) -> Any:
        outputs, (last, _) = loop(cell, x, (hidden, values))
        loss = sum(part.sin().sum() for part in outputs) + last.square().sum()
        return outputs, last, torch.autograd.grad(loss, given)

    assert_close(run(recur), run(plain), rtol=0, atol=1e-12)
    with torch.no_grad():
        assert_close(recur(cell, x, (hidden, values)), plain(cell, x, (hidden, values)))


def test_products_are_collected_and_not_formed_at_each_step():
    """What makes the loop fast: one entry for each matrix, which has seen T inputs."""
    cell, x = Cell().double(), number(B, T, M)
    found = []

    def step(x: Tensor, state: Any) -> Any:
        found.append(current_recurrence())
        return cell(x, state)

    recur(step, x, (number(B, N), number(B, N, N)))
    (loop,) = set(found)
    assert isinstance(loop, Loop)
    assert current_recurrence() is None
    # U, the slice of V, the values and their transpose; U is used twice a step, so it has a second entry.
    assert [len(product.seen) for product in loop.products.values()] == [T] * 4


def test_a_recurrence_leaves_nothing_behind():
    """No cycle of references holds the graph: without the garbage collector, it goes with its outputs."""
    cell, x = Cell().double(), number(B, T, M)
    gc.collect()  # what earlier tests left does not count
    gc.disable()
    try:
        outputs, state = recur(cell, x, (number(B, N), number(B, N, N)))
        assert [one for one in gc.get_objects() if type(one) is Product]
        del outputs, state
        assert not [one for one in gc.get_objects() if type(one) is Product]
    finally:
        gc.enable()


def test_each_direction_has_its_matrix_in_a_recurrence():
    maps, x = Matrices(2, N, N).double(), number(2, T, B, N)
    nn.init.normal_(maps.weight)

    def step(x: Tensor, state: Tensor) -> Any:
        state = torch.tanh(x + maps(state))
        return (state,), state

    def run(loop: Any) -> Any:
        (states,), last = loop(step, x, x.new_zeros(2, B, N))
        return states, torch.autograd.grad(states.sin().sum() + last.sum(), (x, maps.weight))

    assert_close(run(recur), run(plain), rtol=0, atol=1e-12)


def test_losses_on_some_steps_and_two_walks_over_one_graph():
    cell, x, state = Cell().double(), number(B, T, M), (number(B, N), number(B, N, N))
    weights = list(cell.parameters())
    for part in (slice(0, 1), slice(0, 2), slice(3, 4)):
        (ours, _), _ = recur(cell, x, state)
        (other, _), _ = plain(cell, x, state)
        expected = torch.autograd.grad(other[:, part].square().sum(), weights)
        torch.autograd.grad(ours.sum(), x, retain_graph=True)  # gradients of something else leave no trace
        for _ in range(2):
            found = torch.autograd.grad(ours[:, part].square().sum(), weights, retain_graph=True)
            assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_second_derivative_is_refused_and_not_wrong():
    cell, x = Cell().double(), number(B, T, M)
    (outputs, _), _ = recur(cell, x, (number(B, N), number(B, N, N)))
    (slope,) = torch.autograd.grad(outputs.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


SCORES = {
    "additive": (lambda: Additive(N, M, 6), softmax),
    "concat": (lambda: Concat(N, M, 6), softmax),
    "general": (lambda: General(N, M), softmax),
    "local-p": (lambda: General(N, M), GaussianWindow(1)),
    "location": (lambda: Location(N, 4), softmax),
    "sparsemax": (lambda: Additive(N, M, 6), sparsemax),
}


@pytest.mark.parametrize("name", SCORES)
def test_attention_in_a_loop_has_the_gradients_of_attention(name: str):
    """With a row that is padded and one that may attend to nothing."""
    score, normalise = SCORES[name]
    attention = Attention(score(), normalise).double()
    for weights in attention.parameters():
        nn.init.normal_(weights)
    states, queries = number(3, 4, M), number(3, T, N)
    centre = torch.tensor([[1.5], [0.5], [0.0]], dtype=torch.float64) if name == "local-p" else None

    def step(query: Tensor, memory: Memory) -> Any:
        return (attention(query[:, None], memory, centre).context[:, 0],), memory

    def run(loop: Any) -> Any:
        memory = attention.remember(states, padding_mask(torch.tensor([4, 2, 0]), 4))
        (contexts,), _ = loop(step, queries, memory)
        return contexts, torch.autograd.grad(contexts.sin().sum(), [states, queries, *attention.parameters()])

    found = run(recur)
    assert_close(found, run(plain), rtol=0, atol=1e-12)
    assert not found[0][2].any()


@pytest.mark.parametrize("queries", [1, T])
def test_additive_scores_on_a_cpu_are_the_formula_and_so_is_their_gradient(queries: int):
    score, query, keys = Perceptron(N).double(), number(B, queries, N), number(B, T + 1, N)
    v = score.v.weight.detach()[0].requires_grad_()
    assert_close(cpu.additive_scores(query, keys, v), score(query, keys))
    assert gradcheck(cpu.additive_scores, (query, keys, v))


def test_the_tanh_of_a_cpu_errs_at_most_twice_as_much_as_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "ARM", True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.linspace(-1e-2, 1e-2, 999)])
    exact = torch.tanh(x.double())
    scores = cpu.additive_scores(x[:, None], torch.zeros(1, 1), torch.ones(1)).squeeze(1)  # v^T tanh(x + 0)
    found, torchs = ((y - exact).abs().mean() for y in (scores, torch.tanh(x)))
    assert 0 < found <= 2 * torchs


# --- cells and layers


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([T, 2])], ids=["whole rows", "padded rows"])
def test_a_loop_of_cells_is_the_librarys_lstm(bias: bool, lengths: Tensor | None, monkeypatch: pytest.MonkeyPatch):
    stack = StackedLSTM(M, N, 3, 0.0, bias=bias).double()
    x, start = number(B, T, M), stack.start(B)
    given = [x, *stack.parameters()]

    def run(arm: bool) -> Any:
        monkeypatch.setattr("regard.kernels.choose.ARM", arm)
        tops, state = stack(x, start, lengths)
        real = tops if lengths is None else torch.cat([row[:n] for row, n in zip(tops, lengths, strict=True)])
        loss = real.sin().sum() + sum(h.sum() for h in state.hidden) + sum(c.square().sum() for c in state.cell)
        return real, state, torch.autograd.grad(loss, given)

    assert_close(run(arm=True), run(arm=False), rtol=0, atol=1e-12)


def test_the_librarys_lstm_is_really_called(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("regard.kernels.choose.ARM", False)
    calls, real = [], torch_lstm.lstm_layer
    monkeypatch.setattr(torch_lstm, "lstm_layer", lambda *given: calls.append(1) or real(*given))
    StackedLSTM(M, N, 2, 0.0)(torch.randn(B, T, M), StackedLSTM(M, N, 2, 0.0).start(B))
    assert len(calls) == 2


def test_a_stack_in_training_drops_the_input_of_every_layer():
    stack = StackedLSTM(M, N, 2, 0.5).train()
    x = torch.randn(B, T, M)
    assert not torch.equal(stack(x, stack.start(B))[0], stack(x, stack.start(B))[0])


@pytest.mark.parametrize("rows", [(1,), (B,), (B, 1), (B, T)])
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_linear_layer_for_steps_is_the_linear_layer(rows: tuple[int, ...], bias: bool):
    layer, x = nn.Linear(M, N, bias, dtype=torch.float64), number(*rows, M)
    ready = for_steps(nn.Sequential(layer))
    assert isinstance(ready[0], step_model.TransposedLinear)
    for _ in range(2):
        assert_close(ready(x), layer(x))


@torch.no_grad()
def test_a_model_for_steps_keeps_hooks_and_shared_modules_and_changes_nothing():
    shared = nn.Linear(M, M)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    seen: list[Tensor] = []
    model[1].register_forward_hook(lambda module, given, found: seen.append(found))
    ready = for_steps(model)
    assert ready[0] is ready[2]
    assert_close(ready(torch.ones(B, M)), model(torch.ones(B, M)))
    assert len(seen) == 2
    assert model[0] is shared


def test_the_chosen_path_says_why_it_is_not_a_faster_one():
    for causal in (causal_softmax, Causal(softmax)):
        assert attention_path(scaled_dot, causal, watched=False, device="cpu").why_not_faster == ""
    assert attention_path(General(N, M), softmax, watched=False, device="cpu").name == "torch's fused attention"
    for score, normalise, watched, word in (
        (scaled_dot, softmax, True, "recorded"),
        (Cosine(), softmax, False, "Cosine"),
        (dot, sparsemax, False, "sparsemax"),
        (scaled_dot, Causal(sparsemax), False, "causal sparsemax"),
    ):
        path = attention_path(score, normalise, watched, "cpu")
        assert path.name == "plain"
        assert word in path.why_not_faster


def test_a_score_with_another_forward_is_not_a_dot_product():
    class Turned(General):
        def forward(self, query: Tensor, keys: Tensor) -> Tensor:
            return -super().forward(query, keys)

    assert attention_path(Turned(N, M), softmax, watched=False, device="cpu").name == "plain"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_dropout_zeroes_its_share_and_keeps_the_mean(share: float):
    x = torch.ones(401, 503, requires_grad=True)
    dropped = Dropout(share).train()(x)
    assert abs(float((dropped == 0).float().mean()) - share) < 0.01
    assert abs(float(dropped.detach().mean()) - 1) < 0.02
    (grad,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(grad, dropped.detach())  # the same elements, scaled alike
    quarters = (dropped[:, :500] == 0).float().reshape(-1, 4).mean(0)  # of one draw
    assert (quarters - share).abs().max() < 0.02


def test_dropout_follows_the_seed_and_rests_outside_training():
    dropout, x = Dropout(0.3), torch.randn(7, 5)
    torch.manual_seed(1)
    once = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), once)
    assert not torch.equal(dropout(x), once)
    assert dropout.eval()(x) is x
    assert dropout.train()(x.bfloat16()).dtype == torch.bfloat16


# --- explanations


def empty(name: str, config: Any) -> Any:
    """A model without weights, which an explanation does not read."""
    with torch.device("meta"):
        return build(name, config)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_explains_its_paths(name: str):
    """On both kinds of device, without one of them: every attention, recurrence and the loss has a line."""
    model = empty(name, MODELS[name].presets["tiny"])
    for device in ("cpu", "cuda"):
        found = explain(model, device)
        said = dict(found.parts)
        assert set(attentions(model)) < set(said)
        assert said["loss"].name == (
            "plain" if name in ("document", "pointer") else "logits in chunks, never all in memory"
        )
        assert str(found).startswith(f"on {device}:\n")
        assert all(path.name and (path.name != "plain" or path.why_not_faster) for path in said.values())


def test_an_explanation_names_what_keeps_a_part_from_a_faster_path():
    with pytest.raises(ConfigError, match=r"explain takes a model, or what regard\.load returns"):
        explain("en-fr")
    module = empty("luong", MODELS["luong"].presets["tiny"])
    assert explain(SimpleNamespace(model=module), "cpu") == explain(module, "cpu")
    text = str(explain(empty("bahdanau", MODELS["bahdanau"].presets["tiny"]), "cpu"))
    assert "decoder.attention" in text
    assert "no library has this cell" in text
    assert "CUDA graphs run on a GPU, not on cpu" in text
    assert "loop (no library has this cell)" in text
    luong = dict(explain(empty("luong", MODELS["luong"].presets["tiny"]), "cpu").parts)
    assert luong["attention"].name == "plain in training, torch's fused attention in decoding"
    assert luong["decoder"] == ("loop", "each step reads what the model attended to in the step before")
    britz = dict(explain(empty("britz", MODELS["britz"].variants["residual"]), "cpu").parts)
    assert britz["decoder.layers.1"] == ("loop", "each step reads what the model attended to in the step before")
    assert britz["forwards.layers.1"] == (
        ("loop", choose.no_library("cpu")) if choose.ARM else ("torch's recurrent kernels", "")
    )
    for name, said in (("alibi", "alibi"), ("relative", "Relative")):
        later = dict(explain(empty("transformer", MODELS["transformer"].variants[name]), "cuda").parts)
        assert later["encoder.0.self_attention.attention"] == ("plain", f"no kernel for the score {said}")
        assert "fused attention" in later["decoder.0.cross_attention.attention"].name
        assert later["batches in training"].name.startswith("padded rows")
    packed = dict(explain(empty("transformer", MODELS["transformer"].presets["tiny"]), "cuda").parts)
    assert packed["batches in training"] == (
        choose.END_TO_END,
        "with train.precision = bf16; else padded rows",
    )
    here = dict(explain(empty("transformer", MODELS["transformer"].presets["tiny"]), "cpu").parts)
    assert here["batches in training"] == (choose.END_TO_END, "")
    assert packed["beam search"].name == ("Triton, three launches a token" if choose.TRITON else "plain")


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_for_steps_keeps_its_own_matrix_beside_the_aligned_one(bias: bool, monkeypatch: pytest.MonkeyPatch):
    """Scores read the matrix of a layer directly, so that it must not be wider than the layer."""
    monkeypatch.setattr(step_model, "padded", lambda x: torch.nn.functional.pad(x, (0, -x.shape[-1] % 8)))
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(12, 5, bias=bias), torch.randn(3, 12)
    with torch.no_grad():
        low = step_model.CastLinear(linear)
        assert low.wide.shape == (5, 16)
        torch.testing.assert_close(low.weight.float(), linear.weight, rtol=2**-7, atol=2**-7)
        torch.testing.assert_close(low(x).float(), linear(x), rtol=2**-5, atol=2**-5)
        assert (low.bias is None) is not bias


def test_a_kernel_serves_the_arguments_that_fit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choose, "no_triton", lambda *_: "")
    monkeypatch.setattr(choose, "import_module", lambda _: SimpleNamespace(double=lambda x, n: "kernel"))

    @choose.or_triton("anything", fits=lambda x, n: n < 3)
    def double(x: torch.Tensor, n: int) -> str:
        return "plain"

    assert double(torch.zeros(1), 2) == "kernel"
    assert double(torch.zeros(1), 3) == "plain"


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bfloat16
@pytest.mark.parametrize("bias", [True, False])
def test_low_precision_products_are_those_of_autocast_with_exact_dtypes(bias: bool):
    layer, x = nn.Linear(6, 5, bias), torch.randn(7, 3, 6, requires_grad=True)
    inputs = [x, *layer.parameters()]
    wanted = layer(x)
    exact = torch.autograd.grad(wanted.square().sum(), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = LowPrecisionLinear.apply(x, layer.weight, layer.bias)
    assert found.dtype == torch.bfloat16
    gradients = torch.autograd.grad(found.float().square().sum(), inputs)
    for one, other in ((found, wanted), *zip(gradients, exact, strict=True)):
        assert one.dtype == (torch.bfloat16 if one is found else torch.float32)
        assert_close(one.float(), other, rtol=0.05, atol=0.02 * float(other.detach().abs().max()))


def test_a_product_with_a_bias_of_each_step_reads_the_bias_of_its_step():
    layer, x, start = Linear(N, N).double(), number(B, T, N), number(B, N)

    def step(x: Tensor, state: Tensor) -> Any:
        state = torch.tanh(linear(state, layer.weight, x[0]))  # another bias at each step
        return (state,), state

    assert_close(recur(step, x, start), plain(step, x, start))


def test_threads_do_not_share_a_recurrence():
    """A thread that multiplies while another one runs a loop is not part of it."""
    layer, x = Linear(N, N).double(), number(B, T, N)
    elsewhere: list[Any] = []

    def step(x: Tensor, state: Tensor) -> Any:
        thread = threading.Thread(target=lambda: elsewhere.append(current_recurrence()))
        thread.start()
        thread.join()
        return (layer(state),), layer(state)

    recur(step, x, number(B, N))
    assert elsewhere == [None] * T
