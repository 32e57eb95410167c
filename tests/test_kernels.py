"""The faster forms give the plain answers: values, and every gradient against finite differences."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.testing import assert_close

from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.normalise import GaussianWindow, softmax
from regard.core.scores import Additive, General, Location, dot
from regard.kernels.lerp import lerp
from regard.kernels.lstm import lstm_cell
from regard.kernels.product import Product
from regard.kernels.repeated import Repeated
from regard.layers.attention import Attention, Looks
from regard.layers.dropout import Dropout
from regard.layers.recurrent import LSTMState, StackedLSTM, run_packed

B, T, M, N = 2, 4, 3, 5


def number(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def loop(base: Tensor, W: Tensor, V: Tensor, x: Tensor, z: Tensor) -> Tensor:  # noqa: N803
    push, states = Repeated(base, W, V), []
    for t in range(base.shape[-2]):
        x = torch.tanh(push(x, z[..., t, :]))
        states.append(x)
    return torch.stack(states, dim=-2)


def plain_loop(base: Tensor, W: Tensor, V: Tensor, x: Tensor, z: Tensor) -> Tensor:  # noqa: N803
    states = []
    for t in range(base.shape[-2]):
        x = torch.tanh(base[..., t, :] + x @ W.mT + z[..., t, :] @ V.mT)
        states.append(x)
    return torch.stack(states, dim=-2)


@pytest.mark.parametrize("lead", [(), (2,)], ids=["one matrix", "a matrix for each direction"])
def test_repeated_products_are_the_plain_ones(lead: tuple[int, ...]):
    given = (
        number(*lead, B, T, N),
        number(*lead, N, N),
        number(*lead, N, M),
        number(*lead, B, N),
        number(*lead, B, T, M),
    )
    assert_close(loop(*given), plain_loop(*given), rtol=0, atol=1e-12)
    with torch.no_grad():
        assert_close(loop(*given), plain_loop(*given), rtol=0, atol=1e-12)
    assert gradcheck(loop, given)


def test_repeated_products_of_some_steps_only():
    """A loss on an early step, a loop that ends early, and two walks back over one graph."""
    given = (number(B, T, N), number(N, N), number(N, M), number(B, N), number(B, T, M))
    for part in (lambda states: states[:, 0].sum(), lambda states: states[:, :2].square().sum()):
        ours, plain = part(loop(*given)), part(plain_loop(*given))
        expected = torch.autograd.grad(plain, given, allow_unused=True)
        for _ in range(2):
            found = torch.autograd.grad(ours, given, retain_graph=True, allow_unused=True)
            for one, other in zip(found, expected, strict=True):
                assert_close(one, torch.zeros_like(one) if other is None else other, rtol=0, atol=1e-12)
    base, W, V, x, z = given
    push = Repeated(base, W, V)
    found = torch.autograd.grad(push(x, z[:, 0]).square().sum(), (W, V, x))
    expected = torch.autograd.grad((base[:, 0] + x @ W.T + z[:, 0] @ V.T).square().sum(), (W, V, x))
    assert_close(found, expected, rtol=0, atol=1e-12)


def test_gradients_of_something_else_leave_no_trace_in_those_of_the_weights():
    """Asking for the gradient of an input first must not count its steps twice."""
    given = (number(B, T, N), number(N, N), number(N, M), number(B, N), number(B, T, M))
    states = loop(*given).square().sum()
    torch.autograd.grad(states, given[3], retain_graph=True)
    found = torch.autograd.grad(states, given[1])
    assert_close(found, torch.autograd.grad(plain_loop(*given).square().sum(), given[1]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, B])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_the_linear_layer(rows: int, bias: bool):
    """As often as it is called, for one row and for several, and with something else in place of the bias."""
    layer, x, base = nn.Linear(M, N, bias, dtype=torch.float64), number(rows, M), number(rows, N)
    product = Product(layer.weight, layer.bias)
    for _ in range(2):
        assert_close(product(x), layer(x))
        assert_close(product(x, base), x @ layer.weight.T + base)
    product(x).square().sum().backward()
    assert_close(layer.weight.grad, 2 * layer(x).T @ x)


def test_the_lstm_cell_is_the_formula_and_so_is_its_gradient():
    pushed, cell = number(B, 4 * N), number(B, N)
    i, f, g, o = pushed.chunk(4, dim=-1)
    expected = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    hidden, after = lstm_cell(pushed, cell)
    assert_close(after, expected)
    assert_close(hidden, torch.sigmoid(o) * torch.tanh(expected))
    assert gradcheck(lstm_cell, (pushed, cell))


@pytest.mark.parametrize("bias", [False, True])
def test_a_walk_is_the_librarys_lstm(bias: bool):
    """Whichever of the two a machine prefers."""
    stack = StackedLSTM(M, N, 3, 0.0, bias=bias).double()
    x, lengths = number(B, T, M), torch.tensor([T, 2])
    start = LSTMState(number(B, 3, N), number(B, 3, N))
    states, (hidden, cell) = stack.lstm(x, tuple(part.transpose(0, 1).contiguous() for part in start))
    ours, after = stack.walk(x, start, torch.tensor([T - 1, T - 1]))
    assert_close(ours, states)
    assert_close(after, LSTMState(hidden.transpose(0, 1), cell.transpose(0, 1)))
    nothing = LSTMState(x.new_zeros(B, 3, N), x.new_zeros(B, 3, N))
    states, (hidden, cell) = run_packed(stack.lstm, x, lengths)
    ours, after = stack.walk(x, nothing, lengths - 1)
    for row, length in enumerate(lengths.tolist()):
        assert_close(ours[row, :length], states[row, :length])
    assert_close(after, LSTMState(hidden.transpose(0, 1), cell.transpose(0, 1)))
    weights = list(stack.parameters())
    one = torch.autograd.grad(after.hidden.sum() + after.cell.square().sum(), [x, *weights], allow_unused=True)
    other = torch.autograd.grad(hidden.sum() + cell.square().sum(), [x, *weights], allow_unused=True)
    for ours_, theirs in zip(one, other, strict=True):
        assert_close(ours_, theirs)


def test_a_walk_in_training_drops_the_input_of_every_layer():
    stack = StackedLSTM(M, N, 2, 0.5).train()
    assert isinstance(stack.dropout, nn.Dropout)
    x = torch.randn(B, T, M)
    nothing = LSTMState(torch.zeros(B, 2, N), torch.zeros(B, 2, N))
    walks = [stack.walk(x, nothing, torch.tensor([3, 3]))[0] for _ in range(2)]
    assert not torch.equal(*walks)


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


def test_between_two_states_and_its_gradient():
    start, end, weight = number(B, N), number(B, N), number(B, N)
    assert_close(lerp(start, end, weight), start + weight * (end - start))
    assert gradcheck(lerp, (start, end, weight))


SCORES = {
    "additive": lambda: Additive(N, M, 6),
    "general": lambda: General(N, M),
    "dot": lambda: dot,
    "local-p": lambda: General(N, M),  # around a centre that is given
    "location": lambda: Location(N, 4),  # has no quicker form
}


@pytest.mark.parametrize("name", SCORES)
def test_the_looks_of_a_loop_are_those_of_attention(name: str):
    """Values and the gradients of everything, with a row that is padded and one that may look nowhere."""
    attention = Attention(SCORES[name](), GaussianWindow(1) if name == "local-p" else softmax).double()
    for weights in attention.parameters():
        nn.init.normal_(weights)
    states, queries = number(3, 4, N if name == "dot" else M), number(3, T, N)
    mask = padding_mask(torch.tensor([4, 2, 0]), 4)
    centre = torch.tensor([[1.5], [0.5], [0.0]], dtype=torch.float64) if name == "local-p" else None

    def walk(looks: Callable[[Memory], Callable[[Tensor], Tensor]]) -> tuple[Tensor, tuple[Tensor, ...]]:
        look = looks(attention.remember(states, mask))
        seen = torch.stack([look(query) for query in queries.unbind(1)], dim=1)
        return seen, torch.autograd.grad(seen.sin().sum(), [states, queries, *attention.parameters()])

    found = walk(lambda memory: partial(Looks(attention, memory, T), centre=centre))
    plain = walk(lambda memory: lambda query: attention.look(query[:, None], memory, centre).context[:, 0])
    assert_close(found, plain, rtol=0, atol=1e-12)
    assert not found[0][2].any()


def test_looks_go_through_attention_where_somebody_watches():
    attention, seen = Attention(General(N, M)).double(), []
    handle = attention.register_forward_hook(lambda module, given, found: seen.append(found))
    memory = attention.remember(number(B, 3, M))
    Looks(attention, memory, T)(number(B, N))
    assert len(seen) == 1
    assert seen[0].weights is not None
    handle.remove()
    attention.register_forward_pre_hook(lambda module, given: seen.append(None))
    Looks(attention, memory, T)(number(B, N))
    assert len(seen) == 2


def test_looks_go_through_attention_where_a_score_has_a_form_of_its_own():
    class Turned(General):
        def forward(self, query: Tensor, keys: Tensor) -> Tensor:
            return -super().forward(query, keys)

    attention, query = Attention(Turned(N, M)).double(), number(B, N)
    memory = attention.remember(number(B, 3, M))
    assert_close(Looks(attention, memory, T)(query), attention.look(query[:, None], memory).context[:, 0])


def test_a_second_derivative_is_refused_and_not_wrong():
    base, W, x = number(B, T, N), number(N, N), number(B, N)
    push = Repeated(base, W)
    (slope,) = torch.autograd.grad(push(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()
