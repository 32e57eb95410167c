"""Run a step over a sequence: the plain loop, with the gradients of its matrices formed once, after the loop.

A recurrence multiplies by the same matrices at every step, y_t = x_t W^T. Autograd forms dW_t = dy_t^T x_t for each
step, T products of few rows, and adds them up, T passes over all of W. Here the dy_t of all steps are collected and
dW = sum_t dy_t^T x_t is one product. The same holds for keys and values that every step attends to. The numbers are the
same up to rounding, and the step is written as if this file did not exist.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable as guarded
from torch.overrides import TorchFunctionMode

from regard.core.nested import leaves
from regard.kernels.products import bias_gradient, low, product_dtype, weight_gradient

State = TypeVar("State")
Inputs = Tensor | tuple[Tensor, ...]

aside = torch._C.DisableTorchFunction  # a block whose calls no loop has to see: it is faster there


class Function(torch.autograd.Function):
    """torch.autograd.Function with fewer Python calls around `forward`: a loop makes many small ones."""

    @classmethod
    def apply(cls, *given: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return super().apply(*given)  # type: ignore[no-untyped-call]
        return super(torch.autograd.Function, cls).apply(*given)  # type: ignore[misc]


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """torch's decorator, which guards only where a graph of the gradients is made."""
    with_guard = guarded(backward)
    return lambda ctx, *grads: (with_guard if torch.is_grad_enabled() else backward)(ctx, *grads)


def recur(step: Callable[[Any, State], tuple[Any, State]], inputs: Inputs, state: State) -> tuple[Any, State]:
    """Call `step(input, state) -> (output, state)` for every step of inputs [B, T, ...], one tensor or several.

    Returns the outputs [B, T, ...], one tensor or several, and the state after the last step.
    """
    steps = (inputs if isinstance(inputs, Tensor) else inputs[0]).shape[1]
    with nullcontext() if refusal(steps) else Collect(steps, state):
        return _loop(step, inputs, state)


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
    """Inside, a loop is one operator with a step in it, so that a model can be exported for any length."""
    global _scans
    before, _scans = _scans, True
    try:
        yield
    finally:
        _scans = before


def _loop(step: Callable[[Any, State], tuple[Any, State]], inputs: Inputs, state: State) -> tuple[Any, State]:
    if _scans:
        return _scan(step, inputs, state)
    outputs = []
    each: Any = inputs.unbind(1) if isinstance(inputs, Tensor) else zip(*(x.unbind(1) for x in inputs), strict=True)
    for x in each:
        output, state = step(x, state)
        outputs.append(output)
    if isinstance(outputs[0], Tensor):
        return torch.stack(outputs, dim=1), state
    return tuple(torch.stack(part, dim=1) for part in zip(*outputs, strict=True)), state


def _scan(step: Callable[[Any, State], tuple[Any, State]], inputs: Inputs, state: State) -> tuple[Any, State]:
    from torch._higher_order_ops.scan import scan
    from torch.utils._pytree import tree_map

    def turned(state: State, x: Any) -> tuple[State, Any]:
        output, state = step(x, state)
        return state, tree_map(torch.clone, output)  # the operator allows no tensor twice

    after, outputs = scan(turned, tree_map(torch.clone, state), inputs, dim=1)
    return outputs, after


class Collect(TorchFunctionMode):
    """While a loop runs, takes its products with loop-invariant matrices.

    Invariant are the parameters, every tensor of the first state (its memory is passed on unchanged) and views of them.
    """

    def __init__(self, steps: int, state: Any) -> None:
        super().__init__()
        self.steps = steps
        self.fixed = {id(tensor): tensor for tensor in leaves(state)}
        self.views: dict[Any, Tensor] = {}
        self.kept: dict[Any, Any] = {}
        self.products: dict[Any, Product] = {}
        self.lows: dict[Any, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> "Collect":
        _loops.append(self)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: Any) -> None:
        _loops.pop()
        for product in self.products.values():
            product.zeros.clear()  # the graph holds the products; a reference back would keep it alive
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """What a kernel makes at the first step and uses at all others."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def low(self, x: Tensor, dtype: torch.dtype, low: Tensor | None = None) -> Tensor:
        """x in another dtype: converted once, whichever products read it, or `low` as the caller computed it."""
        if x.dtype == dtype:
            return x
        if not x.is_contiguous():
            return x.to(dtype)
        key = _key(x, dtype)
        if key not in self.lows:
            self.lows[key] = x, x.to(dtype) if low is None else low
        return self.lows[key][1].view(x.shape)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = SEEN.get(func)
        if seen is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        return seen(self, func, args, kwargs or {})

    def linear(self, func: Any, args: Any, kwargs: Any) -> Any:
        if kwargs:
            return func(*args, **kwargs)
        x, matrix, bias = args if len(args) == 3 else (*args, None)
        found = self.products.get((id(matrix), id(bias), x.shape))
        if found is None and (not self.invariant(matrix) or not _pays(x, matrix)):
            return func(*args)
        return self.product(found, x, matrix, bias, transposed=True)

    def matmul(self, func: Any, args: Any, kwargs: Any) -> Any:
        if kwargs:
            return func(*args, **kwargs)
        x, matrix = args
        found = self.products.get((id(matrix), id(None), x.shape))
        if found is None and (not self.invariant(matrix) or x.shape[:-2] != matrix.shape[:-2]):
            return func(*args)
        return self.product(found, x, matrix, None, transposed=False)

    def convert(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not self.lows or kwargs or not isinstance(args[1], torch.dtype) or _key(*args[:2]) not in self.lows:
            return func(*args, **kwargs)
        return self.low(*args[:2])

    def once(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function of something invariant, called once; its result is invariant too."""
        if kwargs or not self.known(args[0]):
            return func(*args, **kwargs)
        how = repr(args[1:])
        if "tensor(" in how:  # an index that may change from step to step
            return func(*args)
        key = func, id(args[0]), how
        if key not in self.views:
            self.views[key] = func(*args)
            self.fixed[id(self.views[key])] = self.views[key]
        return self.views[key]

    def known(self, tensor: Any) -> bool:
        if id(tensor) not in self.fixed and isinstance(tensor, nn.Parameter):
            self.fixed[id(tensor)] = tensor
        return id(tensor) in self.fixed

    def invariant(self, matrix: Any) -> bool:
        return self.known(matrix) and matrix.requires_grad

    def product(
        self, found: "Product | None", x: Tensor, matrix: Tensor, bias: Tensor | None, transposed: bool
    ) -> Tensor:
        if found is None or not found.zeros:  # a matrix that is used twice a step has a second product
            found = Product(x, matrix, bias, self.steps, transposed)
            self.products[id(matrix), id(bias), x.shape] = found
        return found(x if x.dtype == found.dtype else self.low(x, found.dtype))


def _key(x: Tensor, dtype: Any) -> Any:
    """What x in another dtype is known by: a view of all of x is x."""
    return x.data_ptr(), x.numel(), x.is_contiguous(), x._version, x.requires_grad, dtype


_loops: list[Collect] = []


def current_loop() -> Collect | None:
    """The innermost loop that is running with its gradients collected."""
    return _loops[-1] if _loops else None


VIEWS = Tensor.transpose, Tensor.mT.__get__, Tensor.T.__get__, Tensor.__getitem__, Tensor.unsqueeze, Tensor.__invert__  # type: ignore[attr-defined]
SEEN: dict[Any, Callable[[Collect, Any, Any, Any], Any]] = {
    F.linear: Collect.linear,
    Tensor.to: Collect.convert,
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__), Collect.matmul),
    **dict.fromkeys(VIEWS, Collect.once),
}


def _pays(x: Tensor, matrix: Tensor) -> bool:
    """Keeping the rows of x and dy of every step must cost less than a gradient of the matrix at every step."""
    m, n = matrix.shape
    return x.numel() // n * (m + n) <= 2 * m * n


class Product:
    """x_t -> x_t M^T + b (`transposed`, as F.linear) or x_t M (as matmul), called at most `steps` times in a loop."""

    def __init__(self, x: Tensor, matrix: Tensor, bias: Tensor | None, steps: int, transposed: bool) -> None:
        self.transposed, self.seen = transposed, list[Tensor]()
        self.dtype = product_dtype(x)
        self.matrix, self.bias = low(matrix, self.dtype), None if bias is None else low(bias, self.dtype)
        right = self.matrix.mT if transposed else self.matrix
        self.right = right.contiguous() if right.is_cpu else right  # a CPU multiplies few rows fastest by this layout
        # A zero without memory for each step: forward adds nothing, backward brings back the dy of all steps.
        zeros = _Collected.apply(x, self, steps, matrix, bias)
        self.zeros = list(zeros.unbind(0))

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach())
        return _Product.apply(self.zeros.pop(), x, self)


class _Collected(Function):
    """The dy of all steps arrive here together: one product gives the gradient of the matrix."""

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
            bias = None if ctx.product.bias is None else bias_gradient(grad, ctx.dtype)
            return None, None, None, weight_gradient(grad, x, ctx.dtype), bias
        grad, x = (part.movedim(0, -3).flatten(-3, -2) for part in (grad, x))  # [B, T rows, m], [B, T rows, n]
        return None, None, None, (x.mT @ grad).to(ctx.dtype), None


class _Product(Function):
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


FEW = 2**12


def _multiply(x: Tensor, matrix: Tensor) -> Tensor:
    """x @ matrix. For many small matrices and one row each, a CPU multiplies and adds in half the time."""
    if x.is_cpu and matrix.dim() == 3 and x.shape[1] == 1 and matrix[0].numel() <= FEW:
        return (x.mT * matrix).sum(1, keepdim=True)
    return torch.matmul(x, matrix)
