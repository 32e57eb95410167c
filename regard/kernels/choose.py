"""The one place that chooses between the plain form of a computation and a faster one, and says why.

Every function here has the signature of its plain form: `attend` and the cells those of `regard.core`. The plain form
serves everywhere; a faster one serves where nothing in its `..._path` refuses it.
"""

import platform
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core import cells
from regard.core.attend import Look, Memory, Normalise, Score, check_memory
from regard.core.attend import attend as plain_attend
from regard.core.cells import Blend, Linear
from regard.core.normalise import causal_softmax, softmax
from regard.core.scores import Perceptron, is_dot, is_perceptron, scaled_dot
from regard.kernels import cpu, fused, library
from regard.kernels.direct import direct
from regard.kernels.recur import Collect, current_loop, recur

ARM = platform.machine() in ("aarch64", "arm64")
TRITON = find_spec("triton") is not None

FUSED, LIBRARY = "torch's fused attention", "torch's recurrent kernels"
IN_A_LOOP = "inside a recurrence the gradients of keys and values are formed once, after the loop"


class Path(NamedTuple):
    """Which form serves, and what keeps a faster one from it ("" where there is none)."""

    name: str
    why_not_faster: str = ""


def _no_triton(device: str, dtype: torch.dtype) -> str:
    """Why Triton kernels cannot serve; "" where they can."""
    if device != "cuda":
        return f"Triton kernels run on a GPU, not on {device}"
    if not TRITON:
        return "triton is not installed"
    return "Triton kernels compute in float32, not float64" if dtype == torch.float64 else ""


def _no_kernels(x: Tensor) -> str:
    """Why Triton kernels cannot serve for x here and now; "" where they can."""
    if torch.compiler.is_compiling():
        return "torch.compile and torch.export trace the plain form"
    return _no_triton(x.device.type, x.dtype)


# --- attention -------------------------------------------------------------------------------------------------------


def attention_path(
    score: object, normalise: object, watched: bool, device: str, dtype: torch.dtype = torch.float32
) -> Path:
    """The form of one attention call."""
    if is_perceptron(score):
        why = _no_triton(device, dtype)
        return Path("plain", why) if why else Path("Triton perceptron")
    if watched:
        return Path("plain", "the weights are being recorded, and fused attention never forms them")
    if current_loop() is not None:
        return Path("plain", IN_A_LOOP)
    if score is not scaled_dot and not is_dot(score):
        return Path("plain", f"no kernel for the score {_name(score)}")
    if normalise is not softmax and normalise is not causal_softmax:
        return Path("plain", f"fused attention computes the softmax, not {_name(normalise)}")
    if _no_triton(device, dtype):
        return Path(FUSED)
    return Path("Triton attention for short sequences, torch's for long ones")


def attend(query: Tensor, memory: Memory, score: Score, normalise: Normalise, watched: bool = False) -> Look:
    """`regard.core.attend.attend`. `watched`: the caller needs the weights, which fused attention never forms."""
    loop = current_loop()
    if loop is not None and not watched and _steps_again(loop, query, memory, score, normalise):
        return _in_loop(loop, query, memory, score)
    path = attention_path(score, normalise, watched, query.device.type, query.dtype)
    if path.name == "plain":
        return plain_attend(query, memory, score, normalise)
    check_memory(query, memory)
    if isinstance(score, Perceptron):
        return _perceptron(query, memory, score, normalise)
    kind = score is scaled_dot, normalise is causal_softmax
    if not _no_kernels(query):
        from regard.kernels import short

        if not short.refusal(query, memory):
            return Look(short.short_attend(query, memory, *kind), None, None)
    return Look(fused.fused_attend(query, memory, *kind), None, None)


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """x [B, T, parts * D] -> a [B, H, T, D/H] for each part."""
    if _no_kernels(x):
        B, T, _ = x.shape
        return x.view(B, T, parts, heads, -1).permute(2, 0, 3, 1, 4).unbind()
    from regard.kernels import short

    return short.split_heads(x, parts, heads)


def _steps_again(loop: Collect, query: Tensor, memory: Memory, score: Score, normalise: Normalise) -> bool:
    """Whether every step of a loop attends to this memory with one query, by a score that Triton has."""
    fixed = all(part is None or id(part) in loop.fixed for part in memory[:3])
    known = (is_perceptron(score) or is_dot(score)) and normalise is softmax
    one = query.dim() == 3 and query.shape[1] == 1 and memory.keys.shape[1] > 0
    return fixed and known and one and not _no_kernels(query)


def _in_loop(loop: Collect, query: Tensor, memory: Memory, score: Score) -> Look:
    from regard.kernels.additive import AttentionLoop

    check_memory(query, memory)
    keys, values, mask, _ = memory
    v = score.v.weight[0] if isinstance(score, Perceptron) else None
    steps = loop.keep((id(keys), id(values), id(mask)), lambda: AttentionLoop(keys, v, values, mask))
    asked = score.ask(query) if isinstance(score, Perceptron) else query
    context, weights = steps(loop.low(asked.squeeze(1), steps.dtype))  # selecting would fill and copy, backward
    return Look(context[:, None], weights[:, None], None)


def _perceptron(query: Tensor, memory: Memory, score: Perceptron, normalise: Normalise) -> Look:
    from regard.kernels.additive import additive_scores

    keys, values, mask, _ = memory
    if not keys.shape[1]:  # an empty tape has no scores to compute
        return plain_attend(query, memory, score, normalise)
    scores = additive_scores(score.ask(query), keys, score.v.weight[0])  # [B, T, S]
    weights = normalise(scores, mask)  # [B, T, S]
    return Look(weights.to(values.dtype) @ values, weights, scores)


# --- the residual stream ----------------------------------------------------------------------------------------------


def add_norm(x: Tensor, added: Tensor, norm: nn.LayerNorm, dropout: nn.Dropout) -> Tensor:
    """norm(x + dropout(added)). By Triton the result has the dtype of autocast, not float32."""
    if _no_kernels(x):
        return norm(x + dropout(added))
    from regard.kernels.norm import add_norm as by_triton

    return by_triton(x, added, norm.weight, norm.bias, norm.eps, dropout.p if dropout.training else 0.0)


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """norm(x), as `add_norm`."""
    if _no_kernels(x):
        return norm(x)
    from regard.kernels.norm import add_norm as by_triton

    return by_triton(x, None, norm.weight, norm.bias, norm.eps)


def linear_relu(x: Tensor, linear: nn.Module) -> Tensor:
    """relu(linear(x))."""
    if _no_kernels(x) or not isinstance(linear, nn.Linear) or linear._forward_hooks or linear.bias is None:
        return torch.relu(linear(x))
    from regard.kernels.linear_relu import linear_relu as by_triton

    return by_triton(x, linear.weight, linear.bias)


# --- cells -----------------------------------------------------------------------------------------------------------

BLENDS: dict[Blend, Blend] = {cells.keep: cpu.keep, cells.write: cpu.write}


def cell_path(device: str, dtype: torch.dtype = torch.float32) -> Path:
    """The form of the elementwise half of a GRU or LSTM cell: "Triton", "CPU" or "plain"."""
    if torch.compiler.is_compiling():
        return Path("plain", "torch.compile fuses the plain form")
    if device == "cpu":
        return Path("CPU")
    why = _no_triton(device, dtype)
    return Path("plain", why) if why else Path("Triton")


def gru(drive: Tensor, state: Tensor, U_gates: Linear, U: Linear, blend: Blend) -> Tensor:
    """`regard.core.cells.gru`."""
    path = cell_path(state.device.type, state.dtype).name
    if path != "Triton" or blend not in BLENDS:
        return cells.gru(drive, state, U_gates, U, BLENDS.get(blend, blend) if path == "CPU" else blend)
    from regard.kernels.cells import gru as by_triton

    after, low = by_triton(drive, state, U_gates, U, keep=blend is cells.keep)
    _remember(after, low)
    return after


def _remember(x: Tensor, low: Tensor | None) -> None:
    """A loop that multiplies x later finds it in the dtype of products."""
    loop = current_loop()
    if loop is not None and low is not None:
        loop.low(x, low.dtype, low)


def gru_reset_after(drive: Tensor, pushed: Tensor, state: Tensor, blend: Blend) -> Tensor:
    """`regard.core.cells.gru_reset_after`."""
    path = cell_path(state.device.type, state.dtype).name
    if path != "Triton" or blend not in BLENDS:
        return cells.gru_reset_after(drive, pushed, state, BLENDS.get(blend, blend) if path == "CPU" else blend)
    from regard.kernels.cells import gru_cell

    return gru_cell(drive, pushed, state, keep=blend is cells.keep)


def lstm(drive: Tensor, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """`regard.core.cells.lstm`."""
    path = cell_path(cell.device.type, cell.dtype).name
    if path == "Triton":
        from regard.kernels.cells import lstm_cell

        hidden, cell, low = lstm_cell(drive, pushed, cell)
        _remember(hidden, low)
        return hidden, cell
    return (cpu.lstm if path == "CPU" else cells.lstm)(drive, pushed, cell)


# --- dropout and padding ---------------------------------------------------------------------------------------------


def dropout(x: Tensor, p: float) -> Tensor:
    """torch.nn.functional.dropout, in training."""
    return cpu.dropout(x, p) if x.is_cpu else torch.nn.functional.dropout(x, p)


def known_full(lengths: Tensor, size: int) -> bool:
    """Whether every row is known to fill all of `size`, so that no mask is needed. A GPU is not asked."""
    return lengths.is_cpu and not torch.compiler.is_compiling() and bool((lengths == size).all())


# --- recurrences -----------------------------------------------------------------------------------------------------


NOT_IN_A_LIBRARY = {
    "gru": "no library has this cell",
    "fed": "each step reads what the model attended to in the step before",
    "lstmn": "each step attends to all steps before it",
}


def recurrence_path(device: str, recurrence: str = "lstm") -> Path:
    """The form of a recurrence: all steps in one call of torch, or a loop."""
    if recurrence in NOT_IN_A_LIBRARY:
        return Path("loop", NOT_IN_A_LIBRARY[recurrence])
    if torch.compiler.is_compiling():
        return Path("loop", "torch.compile and torch.export trace the plain loop")
    if device != "cpu":
        return Path("loop", "a captured update replays a loop at the speed of the library, and lengths stay on the GPU")
    if ARM:
        return Path("loop", "on 64-bit Arm torch's LSTM runs at half the speed of the loop")
    return Path(LIBRARY)


def lstm_layer(
    x: Tensor,
    hidden: Tensor,
    cell: Tensor,
    W: nn.Linear,
    U: nn.Linear,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps of an LSTM layer, [i; f; g; o] = W x + U h: x [B, T, m] -> states [B, T, n], last h and c [B, n].

    With lengths [B] the last ones are those after step lengths[b] of row b.
    """
    if recurrence_path(x.device.type).name != "loop":
        weights = [W.weight, U.weight] + ([] if W.bias is None else [W.bias])
        return library.lstm(x, hidden, cell, weights, lengths)

    def step(drive: Tensor, state: tuple[Tensor, Tensor]) -> Any:
        state = lstm(drive, U(state[0]), state[1])
        return state, state

    (states, cells_), (hidden, cell) = recur(step, W(x), (hidden, cell))  # [B, T, n]
    if lengths is None:
        return states, hidden, cell
    rows, last = torch.arange(len(x), device=x.device), lengths.clamp(min=1) - 1
    return states, states[rows, last], cells_[rows, last]


# --- one search ------------------------------------------------------------------------------------------------------


def for_steps(model: Any) -> Any:
    """The same model, weights and hooks with its linear layers laid out for the few rows of a decoding step, and its
    modules called directly.

    It lives as long as one search; weights that change later are not seen.
    """
    on_cpu = isinstance(model, nn.Module) and all(weight.is_cpu for weight in model.parameters())
    return direct(model, _for_few_rows) if on_cpu and not torch.is_grad_enabled() else model


def _for_few_rows(module: nn.Module) -> nn.Module:
    return cpu.StepLinear(module) if type(module) is nn.Linear and not module._forward_hooks else module


# --- explanations ----------------------------------------------------------------------------------------------------


class Explanation(NamedTuple):
    """Which form each part of a model takes on a device; `str` of it is a table."""

    device: str
    parts: tuple[tuple[str, Path], ...]  # name of the part, and its path

    def __str__(self) -> str:
        wide = max((len(name) for name, _ in self.parts), default=0)
        rows = [f"{name:<{wide}}  {path.name}" + (f" ({path.why_not_faster})" if path.why_not_faster else "")
                for name, path in self.parts]  # fmt: skip
        return "\n".join([f"on {self.device}:", *rows])


def explain(model: nn.Module, device: str | None = None) -> Explanation:
    """The path of every attention, recurrence and loss of `model`, and what keeps each from a faster one.

    `device` is "cpu" or "cuda"; by default that of the model's weights.
    """
    device = device or next((weight.device.type for weight in model.parameters()), "cpu")
    fed = any(getattr(module, "recurrence", "") == "fed" for module in model.modules())
    parts: list[tuple[str, Path]] = []
    for name, module in model.named_modules():
        if hasattr(module, "score") and hasattr(module, "normalise"):
            path = attention_path(module.score, module.normalise, bool(module._forward_hooks), device)
            if fed and path.name == FUSED:
                path = Path(f"plain in training, {FUSED} in decoding", IN_A_LOOP)
            parts.append((name, path))
        elif isinstance(module, nn.RNNBase):
            parts.append((name, Path(LIBRARY)))
        elif getattr(module, "recurrence", ""):  # stated by layers and models
            parts.append((name or "model", recurrence_path(device, module.recurrence)))
            if module.recurrence != "lstmn":
                parts.append((f"{name or 'model'}, its cells", cell_path(device)))
    return Explanation(device, (*parts, ("loss", loss_path(getattr(model, "output", None)))))


def loss_path(output: Any) -> Path:
    """The form of the output layer and its loss in training."""
    if type(output) is nn.Linear:
        return Path("logits in chunks, never all in memory")
    return Path("plain", "the output layer is not a single nn.Linear")


def _name(part: Any) -> str:
    return getattr(part, "__name__", type(part).__name__)
