"""The output layer with its loss in chunks: the same numbers and gradients as the two apart."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.kernels.cross_entropy import linear_consistency, linear_cross_entropy
from regard.training.objectives import consistent_likelihood, cross_entropy, output_likelihood


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_the_output_layer_with_its_loss_is_the_two_apart(
    smoothing: float, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.kernels.cross_entropy.CHUNK", {"cpu": 22})  # two rows at a time
    torch.manual_seed(5)
    hidden, weight = random(2, 5, 7, dtype=torch.float64), random(11, 7, dtype=torch.float64)
    b = random(11, dtype=torch.float64) if bias else None
    target = torch.tensor([[3, 10, 1, 0, 0], [4, 4, 9, 2, 1]])
    inputs = [hidden, weight, b] if b is not None else [hidden, weight]
    loss, plain = linear_cross_entropy(hidden, weight, b, target, smoothing, 0)
    right, right_plain = cross_entropy(torch.nn.functional.linear(hidden, weight, b), target, smoothing)
    torch.testing.assert_close(loss, right)
    torch.testing.assert_close(plain, right_plain)
    assert not plain.requires_grad
    for ours, theirs in zip(torch.autograd.grad(loss / 3, inputs), torch.autograd.grad(right / 3, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, b, target, smoothing, 0), (loss, plain))


def test_an_output_layer_with_a_hook_is_called_and_has_the_same_loss() -> None:
    model, called = torch.nn.Module(), list[Any]()
    model.output = torch.nn.Linear(7, 11)
    hidden, target = torch.randn(2, 5, 7), torch.tensor([[3, 10, 1, 0, 0], [4, 4, 9, 2, 1]])
    expected = output_likelihood(model, hidden, target, 0.1)
    model.output.register_forward_hook(lambda *call: called.append(call))
    torch.testing.assert_close(output_likelihood(model, hidden, target, 0.1), expected)
    assert len(called) == 1


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_the_output_layer_with_the_loss_of_two_passes_is_the_two_apart(
    smoothing: float, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.kernels.cross_entropy.CHUNK", {"cpu": 44})  # two tokens, four rows at a time
    torch.manual_seed(5)
    hidden, weight = random(2, 2, 5, 7, dtype=torch.float64), random(11, 7, dtype=torch.float64)
    b = random(11, dtype=torch.float64) if bias else None
    target = torch.tensor([[3, 10, 1, 0, 0], [4, 4, 9, 2, 1]])
    inputs = [hidden, weight, b] if b is not None else [hidden, weight]
    loss, plain = linear_consistency(hidden, weight, b, target, 5.0, smoothing, 0)
    logits = torch.nn.functional.linear(hidden.flatten(0, 1), weight, b)  # [4, 5, 11]
    right = consistent_likelihood(lambda _: logits, target, weight=5.0, smoothing=smoothing)
    torch.testing.assert_close(loss, right)
    torch.testing.assert_close(plain, cross_entropy(logits, target.repeat(2, 1))[1] / 2)
    for ours, theirs in zip(torch.autograd.grad(loss / 3, inputs), torch.autograd.grad(right / 3, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_loss_of_two_passes_takes_one_softmax() -> None:
    class Called(TorchDispatchMode):
        names: tuple[str, ...] = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names += (func.__name__,)
            return func(*args, **(kwargs or {}))

    with Called() as called:
        linear_consistency(random(2, 3, 7), random(11, 7), None, torch.tensor([3, 10, 1]), 5.0, 0.1)
    assert [name for name in called.names if "softmax" in name or "exp." in name] == ["_softmax.default"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_under_autocast_is_as_exact_as_the_plain_form(smoothing: float) -> None:
    torch.manual_seed(6)
    inputs = [random(6, 33), random(50, 33), random(50)]
    target = torch.randint(50, (6,))

    def plain(*x: Tensor) -> Tensor:
        return cross_entropy(torch.nn.functional.linear(*x)[None], target[None], smoothing)[0]

    exact = [x.detach().double().requires_grad_() for x in inputs]
    right = torch.autograd.grad(plain(*exact), exact)
    with torch.autocast("cpu", torch.bfloat16):
        theirs, ours = plain(*inputs), linear_cross_entropy(*inputs, target, smoothing, 0)[0]
    apart, together = (torch.autograd.grad(loss, inputs) for loss in (theirs, ours))
    for wanted, plainly, got in zip(right, apart, together, strict=True):
        assert got.dtype == torch.float32
        assert (got - wanted).norm() <= 2 * (plainly - wanted).norm()


def test_a_batch_of_padding_has_no_loss_and_no_gradient() -> None:
    hidden, weight = random(2, 3, 7), random(11, 7)
    loss, plain = linear_cross_entropy(hidden, weight, None, torch.zeros(2, 3, dtype=torch.long), 0.1, 0)
    assert loss == 0
    assert plain == 0
    for grad in torch.autograd.grad(loss, [hidden, weight]):
        assert (grad == 0).all()
