"""Run a step over a sequence: the plain loop, with the gradients of its matrices computed once, after the loop.

A recurrence multiplies by the same matrices at every step, y_t = x_t W^T. Autograd computes dW_t = dy_t^T x_t for each
step, T products of few rows, and adds them up in T passes over W. Here the dy_t of all steps are collected, and
dW = sum_t dy_t^T x_t is one product. The same holds for keys and values that every step attends to. The numbers are
the same up to rounding. Only the products of `core.products` are collected, which layers and models call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.nested import leaves
from regard.core.products import product_dtype, running, weight_gradient

State = TypeVar("State")
Shared = TypeVar("Shared")
Inputs = Tensor | tuple[Tensor, ...]


def recur(step: Callable[[Any, State], tuple[Any, State]], inputs: Inputs, state: State) -> tuple[Any, State]:
    """Call `step(input, state) -> (output, state)` for every step of inputs [B, T, ...], one tensor or several.

    Returns the outputs [B, T, ...], one tensor or several, and the state after the last step.
    """
    if _scans:
        return _scan(step, inputs, state)
    steps = (inputs if isinstance(inputs, Tensor) else inputs[0]).shape[1]
    outputs = []
    each: Any = inputs.unbind(1) if isinstance(inputs, Tensor) else zip(*(x.unbind(1) for x in inputs), strict=True)
    with nullcontext() if refusal(steps) else Loop(steps, state):
        for x in each:
            output, state = step(x, state)
            outputs.append(output)
    if isinstance(outputs[0], Tensor):
        return torch.stack(outputs, dim=1), state
    return tuple(torch.stack(part, dim=1) for part in zip(*outputs, strict=True)), state


def refusal(steps: int = 2) -> str:
    """Why the gradients are not formed after the loop; "" where they are."""
    if torch.compiler.is_compiling():
        return "torch.compile and torch.export trace the plain loop"
    if not torch.is_grad_enabled():
        return "no gradients are needed"
    return "one step has nothing to collect" if steps < 2 else ""


_scans = False


@contextmanager
def by_scan() -> Iterator[None]:
    """In this block, a loop is one operator that contains a step, so that a model can be exported for any length."""
    global _scans
    before, _scans = _scans, True
    try:
        yield
    finally:
        _scans = before


def _scan(step: Callable[[Any, State], tuple[Any, State]], inputs: Inputs, state: State) -> tuple[Any, State]:
    from torch._higher_order_ops.scan import scan
    from torch.utils._pytree import tree_map

    def turned(state: State, x: Any) -> tuple[State, Any]:
        output, state = step(x, state)
        return state, tree_map(torch.clone, output)  # the operator allows no tensor twice

    after, outputs = scan(turned, tree_map(torch.clone, state), inputs, dim=1)
    return outputs, after


class Loop:
    """In its block, computes the products with matrices that are the same at every step (`core.products`).

    These are the parameters, the tensors of the first state (its memory is passed on unchanged), and views of both.
    """

    def __init__(self, steps: int, state: Any) -> None:
        self.steps = steps
        self.first = {id(base): base for base in map(_base, leaves(state))}
        self.shared: dict[Any, Any] = {}
        self.products: dict[Any, Product] = {}
        self.casts: dict[Any, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> "Loop":
        running.recurrences.append(self)
        return self

    def __exit__(self, *raised: Any) -> None:
        running.recurrences.pop()
        for product in self.products.values():
            product.zeros.clear()  # the graph holds the products; a reference back would keep it alive

    def once(self, key: Any, make: Callable[[], Shared]) -> Shared:
        """What `make` returns, called at the first step only."""
        if key not in self.shared:
            self.shared[key] = make()
        made: Shared = self.shared[key]
        return made

    def cast(self, x: Tensor, dtype: torch.dtype, known: Tensor | None = None) -> Tensor:
        """x in another dtype, converted once for all products that read it; or `known`, if the caller computed it."""
        if x.dtype == dtype:
            return x
        if not x.is_contiguous():
            return x.to(dtype)
        key = _values(x, dtype)
        if key not in self.casts:
            self.casts[key] = x, x.to(dtype) if known is None else known
        return self.casts[key][1].view(x.shape)

    def copy_of(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """`core.products.cast`."""
        return self.cast(x, dtype) if x.is_contiguous() and _values(x, dtype) in self.casts else x.to(dtype)

    def same_at_every_step(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter, one of the first state, or a view of one."""
        base = _base(tensor)
        return id(base) in self.first or isinstance(base, nn.Parameter)

    def product(self, x: Tensor, matrix: Tensor, bias: Tensor | None, transposed: bool) -> Tensor | None:
        """x M^T + b (`transposed`) or x M, with the gradient of M formed after the loop; None where each step forms its
        own, or needs none."""
        found = self.products.get(_key(x, matrix, bias))
        if found is None:
            if not (matrix.requires_grad and self.same_at_every_step(matrix)):
                return None
            if not (_pays(x, matrix) if transposed else x.shape[:-2] == matrix.shape[:-2]):
                return None
        if found is None or not found.zeros:  # a matrix that is used twice a step has a second product
            found = self.products[_key(x, matrix, bias)] = Product(x, matrix, bias, self.steps, transposed)
        return found(self.cast(x, found.dtype))


def _values(x: Tensor, dtype: torch.dtype) -> Any:
    """The key of x in another dtype; a view of all of x has the same key."""
    return x.data_ptr(), x.numel(), x._version, x.requires_grad, dtype


def _base(x: Tensor) -> Tensor:
    """The tensor that x is a view of, or x."""
    return x if x._base is None else x._base


def _key(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Any:
    """The key of a product in a loop. Each step creates the views of its matrices again, so their ids are no keys."""
    if matrix._base is None:
        return id(matrix), id(bias), x.shape
    return id(matrix._base), matrix.storage_offset(), matrix.shape, matrix.stride(), id(bias), x.shape


def _pays(x: Tensor, matrix: Tensor) -> bool:
    """Whether storing the rows of x and dy of a step takes less memory traffic than a gradient of the matrix."""
    m, n = matrix.shape
    return x.numel() // n * (m + n) <= 2 * m * n


class Product:
    """x_t -> x_t M^T + b (`transposed`, as F.linear) or x_t M (as matmul), called at most `steps` times in a loop."""

    def __init__(self, x: Tensor, matrix: Tensor, bias: Tensor | None, steps: int, transposed: bool) -> None:
        self.transposed, self.seen = transposed, list[Tensor]()
        self.dtype = product_dtype(x)
        self.key_parts = matrix, bias  # their ids are part of the product's key, so they must not be freed
        self.matrix, self.bias = matrix.detach().to(self.dtype), None if bias is None else bias.detach().to(self.dtype)
        right = self.matrix.mT if transposed else self.matrix
        self.right = right.contiguous() if right.is_cpu else right  # a CPU multiplies few rows fastest by this layout
        # A zero without memory for each step: forward adds nothing, backward brings back the dy of all steps.
        zeros = _Collected.apply(x, self, steps, matrix, bias)
        self.zeros = list(zeros.unbind(0))

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach())
        return _Product.apply(self.zeros.pop(), x, self)


class _Collected(torch.autograd.Function):
    """Its backward receives the dy of all steps and computes the gradient of the matrix by one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, product: Product, steps: int, matrix: Tensor, bias: Tensor | None) -> Tensor:
        ctx.product, ctx.dtype = product, matrix.dtype
        width = matrix.shape[-2 if product.transposed else -1]
        return torch.zeros((), dtype=product.dtype, device=x.device).expand(steps, *x.shape[:-1], width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        seen, transposed = ctx.product.seen, ctx.product.transposed
        # The zeros were handed out from the last to the first.
        grad, x = grad[len(grad) - len(seen) :], torch.stack(seen[::-1])  # [T, ..., m], [T, ..., n]
        if transposed:
            grad, x = grad.flatten(0, -2), x.flatten(0, -2)  # [rows, m], [rows, n]
            bias = None if ctx.product.bias is None else grad.sum(dim=0, dtype=ctx.dtype)
            return None, None, None, weight_gradient(grad, x, ctx.dtype), bias
        grad, x = (part.movedim(0, -3).flatten(-3, -2) for part in (grad, x))  # [B, T rows, m], [B, T rows, n]
        return None, None, None, (x.mT @ grad).to(ctx.dtype), None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, zero: Tensor, x: Tensor, product: Product) -> Tensor:
        ctx.product = product
        if product.bias is None:
            return _multiply(x, product.right)
        return torch.addmm(product.bias, x.flatten(0, -2), product.right).unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix = ctx.product.matrix
        return grad, _multiply(grad, matrix if ctx.product.transposed else matrix.mT), None


SMALL = 2**12  # numbers of a matrix


def _multiply(x: Tensor, matrix: Tensor) -> Tensor:
    """x @ matrix. For many small matrices and one row each, a CPU multiplies and adds in half the time."""
    if x.is_cpu and matrix.dim() == 3 and x.shape[1] == 1 and matrix[0].numel() <= SMALL:
        return (x.mT * matrix).sum(1, keepdim=True)
    return torch.matmul(x, matrix)
