"""Chooses between the plain form of a computation and a faster one, and says why.

The plain form is in `regard.core` or `regard.layers` and runs everywhere. A faster function has the same signature and
is called unless one of the functions below gives a reason against it.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from regard.core import cells
from regard.core.attend import Look, Memory, Normalise, Score, attend_unchecked, check_memory
from regard.core.blocks import Blocks, apart, end_to_end
from regard.core.cells import Blend, LinearMap
from regard.core.normalise import is_causal_softmax, softmax
from regard.core.products import current_recurrence, matmul, product_dtype
from regard.core.scores import Perceptron, check_width, is_dot, is_perceptron, scaled_dot, uniform
from regard.kernels import cpu
from regard.kernels.cpu import ARM
from regard.kernels.recur import Loop
from regard.kernels.torch_attention import fused_attend

TRITON = find_spec("triton") is not None
LONGEST, WIDEST_HEAD = 128, 128  # maximum words and head width of Triton's attention
MOST_BEAMS = 16  # maximum for the kernels of a search, which rank continuations in registers

FUSED, TRITON_DOT = "torch's fused attention", "Triton attention"
END_TO_END = "sentences end to end without padding"
ONE_SLOT = "plain; a memory of one slot is taken as it is"
IN_A_LOOP = "inside a recurrence the gradients of keys and values are formed once, after the loop"

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Choice(NamedTuple):
    """The form that is used, and why no faster one is ("" if there is none)."""

    name: str
    why_not_faster: str = ""


def no_triton(device: str, dtype: torch.dtype = torch.float32) -> str:
    """Why Triton kernels cannot be used; "" if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile and torch.export trace the plain form"
    if device != "cuda":
        return f"Triton kernels run on a GPU, not on {device}"
    if not TRITON:
        return "triton is not installed"
    return "Triton kernels compute in float32, not float64" if dtype == torch.float64 else ""


def no_library(device: str) -> str:
    """Why torch's recurrent kernels cannot be used; "" if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile and torch.export trace the plain loop"
    if device != "cpu":
        return "a captured update replays a loop at the speed of the library, and lengths stay on the GPU"
    return "on 64-bit Arm torch's LSTM runs at half the speed of the loop" if ARM else ""


def _or_from(
    module: str, refusal: Callable[[Tensor], str], fits: Callable[..., bool] = lambda *_: True
) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    def decorate(plain: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(plain)
        def chosen(*given: Given.args, **named: Given.kwargs) -> Result:
            if refusal(given[0]) or not fits(*given):  # type: ignore[arg-type]
                return plain(*given, **named)
            return getattr(import_module(f"regard.kernels.{module}"), plain.__name__)(*given, **named)

        return chosen

    return decorate


def or_triton(
    module: str, fits: Callable[..., bool] = lambda *_: True
) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Decorate a plain function for which `kernels.<module>` has a Triton version with the same name and signature.

    The Triton version is called for the arguments that `fits` accepts.
    """
    return _or_from(module, lambda x: no_triton(x.device.type, x.dtype), fits)


or_library = _or_from("torch_lstm", lambda x: no_library(x.device.type))


# --- attention -------------------------------------------------------------------------------------------------------


def attention_path(
    score: object, normalise: object, watched: bool, device: str, dtype: torch.dtype = torch.float32
) -> Choice:
    """The form of one attention call."""
    if is_perceptron(score):
        if device == "cpu" and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu"):
            return Choice("CPU perceptron")
        why = no_triton(device, dtype)
        return Choice("plain", why) if why else Choice("Triton perceptron")
    if watched:
        return Choice("plain", "the weights are being recorded, and fused attention never forms them")
    if score is uniform and normalise is softmax:
        return Choice(ONE_SLOT)
    if current_recurrence() is not None:
        return Choice("plain", IN_A_LOOP)
    if score is not scaled_dot and not is_dot(score):
        return Choice("plain", f"no kernel for the score {_name(score)}")
    if normalise is not softmax and not is_causal_softmax(normalise):
        return Choice("plain", f"fused attention computes the softmax, not {_name(normalise)}")
    return Choice(FUSED) if no_triton(device, dtype) else Choice(f"{TRITON_DOT}, {FUSED} for the rest", SHORT)


SHORT = (
    f"Triton's takes 16-bit floats, at most {LONGEST} words, heads of at most {WIDEST_HEAD} numbers, "
    "one mask for a sentence"
)


def not_short(query: Tensor, memory: Memory, blocks: Blocks | None = None) -> bool:
    """Whether the input is outside the limits of Triton's attention (`SHORT`), where a head is one tile."""
    mask = memory.mask
    lengths = (query.shape[-2], memory.keys.shape[-2]) if blocks is None else (x.shape[1] for x in blocks)
    return (
        query.dim() != 4
        or memory.values.shape[-1] != query.shape[-1]
        or not 1 < max(lengths) <= LONGEST
        or query.shape[3] > WIDEST_HEAD
        or product_dtype(query) not in (torch.bfloat16, torch.float16)
        or not (mask is None or mask.shape[:-1] == (1,) or (mask.dim() == 4 and mask.shape[1:3] == (1, 1)))
    )


def attend(
    query: Tensor,
    memory: Memory,
    score: Score,
    normalise: Normalise,
    watched: bool = False,
    blocks: Blocks | None = None,
) -> Look:
    """`regard.core.attend.attend`. `watched`: the caller needs the weights, which fused attention never forms.

    With `blocks`, query [1, H, N, D] and memory are concatenated sentences; each one attends to itself only.
    """
    loop: Loop | None = current_recurrence()
    check_memory(query, memory)
    why = no_triton(query.device.type, query.dtype)
    path = attention_path(score, normalise, watched, query.device.type, query.dtype).name
    if blocks is not None and (not path.startswith(TRITON_DOT) or not_short(query, memory, blocks)):
        return _inside(query, memory, score, normalise, watched, blocks)
    if loop is not None and not (why or watched) and _steps_again(loop, query, memory, score, normalise):
        return _in_loop(loop, query, memory, score)
    if path == ONE_SLOT and memory.mask is None and memory.keys.shape[-2] == 1:
        return Look(memory.values.expand(*query.shape[:-1], -1), None, None)
    if path in ("plain", ONE_SLOT):
        return attend_unchecked(query, memory, score, normalise)
    if isinstance(score, Perceptron):
        return _perceptron(query, memory, score, normalise, watched)
    kind = score is scaled_dot, is_causal_softmax(normalise)
    if why or (blocks is None and not_short(query, memory)):
        return Look(fused_attend(query, memory, *kind), None, None)
    from regard.kernels.short_attention import short_attend

    return Look(short_attend(query, memory, *kind, blocks), None, None)


def _inside(query: Tensor, memory: Memory, score: Score, normalise: Normalise, watched: bool, blocks: Blocks) -> Look:
    """Concatenated sentences, padded for attention only. Under a causal mask no word sees the padding after it."""
    queries, slots = blocks
    full = slots.numel() == memory.keys.shape[2]  # each word has a slot, so each slot has a word
    free = full or (is_causal_softmax(normalise) and queries is slots and not watched)
    inside = None if free else (slots >= 0)[:, None, None]  # [B, 1, 1, S]
    one = Memory(apart(memory.keys, slots), apart(memory.values, slots), inside)
    look = attend(apart(query, queries), one, score, normalise, watched)
    return look._replace(context=end_to_end(look.context, queries, query.shape[2]))


def _steps_again(loop: Loop, query: Tensor, memory: Memory, score: Score, normalise: Normalise) -> bool:
    """Whether every step of a loop attends to this memory with one query, by a score that an `AttentionLoop` has."""
    keys, values, mask, _ = memory
    if normalise is not softmax or query.dim() != 3 or query.shape[1] != 1 or not keys.shape[1]:
        return False
    if not all(part is None or loop.same_at_every_step(part) for part in (keys, values, mask)):
        return False
    return is_perceptron(score) or is_dot(score)


def _in_loop(loop: Loop, query: Tensor, memory: Memory, score: Score) -> Look:
    from regard.kernels.additive_attention import AttentionLoop

    keys, values, mask, _ = memory
    v = score.v.weight[0] if isinstance(score, Perceptron) else None
    steps = loop.once((id(keys), id(values), id(mask)), lambda: AttentionLoop(keys, v, values, mask))
    projected = score.project_query(query) if isinstance(score, Perceptron) else query
    context, weights = steps(loop.cast(projected.squeeze(1), steps.dtype))  # selecting would fill and copy, backward
    return Look(context[:, None], weights[:, None], None)


def _perceptron(query: Tensor, memory: Memory, score: Perceptron, normalise: Normalise, watched: bool) -> Look:
    keys, values, mask, _ = memory
    if not keys.shape[-2]:  # an empty tape has no scores to compute
        return attend_unchecked(query, memory, score, normalise)
    check_width(type(score).__name__, "projected keys", keys, score.v.in_features)
    projected, v = score.project_query(query), score.v.weight[0]
    if query.is_cpu:
        scores = cpu.additive_scores(projected, keys, v)  # [B, ..., T, S]
    elif normalise is softmax and query.shape[1:-1] == (1,) and not (watched or torch.is_grad_enabled()):
        from regard.kernels.additive_attention import AttentionLoop

        context, weights = AttentionLoop(keys, v, values, mask)(projected.squeeze(1))  # [B, Dv], [B, S]
        return Look(context[:, None], weights[:, None], None)
    else:
        from regard.kernels.additive_attention import additive_scores

        scores = additive_scores(projected.flatten(0, -3), keys.flatten(0, -3), v).unflatten(0, query.shape[:-2])
    weights = normalise(scores, mask)  # [B, ..., T, S]
    return Look(matmul(weights.to(values.dtype), values), weights, scores)


# --- cells -----------------------------------------------------------------------------------------------------------

KEEPS: dict[Blend, bool] = {cells.update_keeps: True, cells.update_writes: False}  # the blends of Triton's cells


def gru(input_gates: Tensor, state: Tensor, U_gates: LinearMap, U: LinearMap, blend: Blend) -> Tensor:
    """`regard.core.cells.gru`."""
    if blend not in KEEPS or no_triton(state.device.type, state.dtype):
        return cells.gru(input_gates, state, U_gates, U, blend)
    from regard.kernels.cells import gru as by_triton

    return _known_in_low_precision(*by_triton(input_gates, state, U_gates, U, KEEPS[blend]))


def _known_in_low_precision(x: Tensor, cast: Tensor | None) -> Tensor:
    """x. A loop that multiplies x later uses `cast`, the same numbers in the dtype of products."""
    loop: Loop | None = current_recurrence()
    if loop is not None and cast is not None:
        loop.cast(x, cast.dtype, cast)
    return x


def gru_reset_after(input_gates: Tensor, hidden_gates: Tensor, state: Tensor, blend: Blend) -> Tensor:
    """`regard.core.cells.gru_reset_after`."""
    if blend not in KEEPS or no_triton(state.device.type, state.dtype):
        return cells.gru_reset_after(input_gates, hidden_gates, state, blend)
    from regard.kernels.cells import gru_cell

    return gru_cell(input_gates, hidden_gates, state, KEEPS[blend])


def lstm(input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """`regard.core.cells.lstm`."""
    if no_triton(cell.device.type, cell.dtype):
        return cells.lstm(input_gates, hidden_gates, cell)
    from regard.kernels.cells import lstm_cell

    hidden, cell, rounded = lstm_cell(input_gates, hidden_gates, cell)
    return _known_in_low_precision(hidden, rounded), cell


# --- the loss, batches, captured steps -------------------------------------------------------------------------------


def loss_path(output: Any) -> Choice:
    """The form of the output layer and its loss in training."""
    if isinstance(output, nn.Linear) and not output._forward_hooks:
        return Choice("logits in chunks, never all in memory")
    return Choice("plain", "the output layer is not a single nn.Linear without hooks")


def batches_path(model: Any, device: str) -> Choice:
    """The form of the batches in training."""
    by_chunks = loss_path(getattr(model, "output", None)).name != "plain"
    if by_chunks and getattr(model, "packs", False):
        return Choice(END_TO_END, "with train.precision = bf16; else padded rows" if device == "cuda" else "")
    why = "the model does not compute sentences that lie end to end"
    return Choice("padded rows of few lengths" if device == "cuda" else "padded rows", why)


refused: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()  # models whose steps could not be captured, and why


def steps_path(model: Any, device: str, observed: bool = False) -> Choice:
    """The form of a decoding step: a CUDA graph, or plain calls."""
    if device != "cuda":
        return Choice("plain", f"CUDA graphs run on a GPU, not on {device}")
    if observed:
        return Choice("plain", "each step is observed")
    if not isinstance(model, nn.Module):
        return Choice("plain", "the model is not a torch module")
    if any(part._forward_hooks or part._forward_pre_hooks for part in model.modules()):
        return Choice("plain", "a hook watches the model, and a graph runs no hooks")
    return Choice("plain", refused[model]) if model in refused else Choice("CUDA graph")


def beam_kernels(logits: Tensor, beams: int, plain: bool) -> Any:
    """The module of kernels for the bookkeeping of a beam search; None for the plain form."""
    if plain or beams > MOST_BEAMS or no_triton(logits.device.type, logits.dtype):
        return None
    return import_module("regard.kernels.beams")


# --- products, dropout, padding --------------------------------------------------------------------------------------


def linear_over_steps(linear: LinearMap, x: Tensor) -> Tensor:
    """linear(x) of x [B, T, n]; if all steps share one vector (a stride of zero), it is multiplied once."""
    return linear(x) if x.stride(1) else linear(x[:, :1]).expand(-1, x.shape[1], -1)


def dropout(x: Tensor, p: float) -> Tensor:
    """torch.nn.functional.dropout, in training."""
    return cpu.dropout(x, p) if x.is_cpu else torch.nn.functional.dropout(x, p)


class Dropout(nn.Dropout):
    """nn.Dropout by `dropout`: zero a share p of the elements and scale the rest by 1 / (1 - p), in training only.

    It draws other numbers than nn.Dropout, which models use whose earlier runs must be reproduced by the same seed.
    """

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training and self.p else x


def known_full(lengths: Tensor, size: int) -> bool:
    """Whether every row is known to fill all of `size`, so that no mask is needed. Lengths on a GPU are not read."""
    return lengths.is_cpu and not torch.compiler.is_compiling() and bool((lengths == size).all())


def _name(part: Any) -> str:
    return getattr(part, "__name__", type(part).__name__)
