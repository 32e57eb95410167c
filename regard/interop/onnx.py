"""ONNX: a sequence model as two graphs that any runtime can run, with dynamic batch and lengths.

    encoder.onnx    source [B, S], lengths [B]           -> state, one tensor for each part
    step.onnx       token [B], state                     -> logits [B, V], weights [B, H, S], state
    model.json      the symbols, and the parts of the state in the order of inputs and outputs

The first step reads START, later steps the chosen token. The state is an input and an output of a step. `weights` are
those of one attention over the source. The vocabularies are next to the graphs.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.nested import leaves, map_nested
from regard.errors import ConfigError, RunError
from regard.kernels.recur import by_scan
from regard.look.record import record
from regard.sealed import fill_folder, write_atomically
from regard.symbols import END, PAD, START, UNKNOWN

# Sizes of the example batches, all different, to find out what each dimension depends on.
BATCH, SOURCE, PAST = 3, 7, 5


class Encoder(nn.Module):
    """source, lengths -> the parts of the state before the first token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        return tuple(leaves(self.model.start(self.model.encode(source, lengths))))


class Step(nn.Module):
    """token, parts of the state -> logits, weights, parts of the next state."""

    def __init__(self, model: Any, state: Any, attention: str) -> None:
        super().__init__()
        self.model, self.state, self.attention = model, state, attention

    def forward(self, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        parts = iter(state)
        with record(self.model, [self.attention]) as seen:
            logits, after = self.model.step(token, map_nested(self.state, lambda _: next(parts)))
        if self.attention in seen:
            weights = seen[self.attention].weights  # [B, (H), 1, S]
            weights = (weights if weights.dim() == 4 else weights[:, None])[:, :, 0]
        else:  # Sutskever reads its one vector before the first step
            weights = torch.ones_like(logits[:, None, :1])
        return logits, weights, *leaves(after)


def export_onnx(model: nn.Module, out: Path, files: dict[str, bytes], attention: str) -> int:
    """Write the new folder `out`, including `files`; returns its size in bytes.

    `attention` is the name of the attention module whose weights a step returns.
    """
    check_onnx()
    model = model.cpu().eval()
    with quiet():
        source, lengths = example(BATCH, SOURCE)
        state = model.start(model.encode(source, lengths))  # type: ignore[operator]
        parts = state_parts(model)
        for _ in range(PAST):
            token = torch.full((BATCH,), START)
            _, state = model.step(token, state)  # type: ignore[operator]
        names = list(parts)
        with fill_folder(out) as folder:
            with by_scan():  # a source has any length, a step has one token
                write_graph(
                    Encoder(model),
                    (source, lengths),
                    ({0: "batch", 1: "source"}, {0: "batch"}),
                    (["source", "lengths"], names),
                    folder / "encoder.onnx",
                )
            write_graph(
                Step(model, state, attention),
                (token, tuple(tensor.contiguous() for tensor in leaves(state))),
                ({0: "batch"}, tuple(map(dynamic, parts.values()))),
                (["token", *names], ["logits", "weights", *(f"next.{name}" for name in names)]),
                folder / "step.onnx",
            )
            about = {
                "symbols": {"pad": PAD, "start": START, "end": END, "unknown": UNKNOWN},
                "attention": attention,
                "state": [{"name": name, "shape": shape} for name, shape in parts.items()],
            }
            for name, content in {**files, "model.json": (json.dumps(about, indent=1) + "\n").encode()}.items():
                write_atomically(folder / name, content)
            return sum(path.stat().st_size for path in folder.iterdir())


def check_onnx() -> None:
    """Refuse an export without the packages that it needs."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError(f"The export to ONNX needs {error.name}; install it: pip install 'regard[onnx]'.") from None


def named_tensors(state: Any, name: str = "") -> list[tuple[str, Tensor]]:
    """The tensors of a state with their dotted names."""
    if isinstance(state, Tensor):
        return [(name, state)]
    if not isinstance(state, tuple):
        return []
    names = getattr(state, "_fields", range(len(state)))
    inner = zip(names, state, strict=True)
    return [found for each, part in inner for found in named_tensors(part, f"{name}.{each}" if name else str(each))]


def state_parts(model: Any) -> dict[str, list[str | int]]:
    """The dotted name of each tensor of the state -> what its dimensions are: batch, source, past or a number. What
    they depend on is found out from batches that differ in one size."""

    def shapes(rows: int, words: int, steps: int) -> list[tuple[str, torch.Size]]:
        state = model.start(model.encode(*example(rows, words)))
        for _ in range(steps):
            _, state = model.step(torch.full((rows,), START), state)
        return [(name, tensor.shape) for name, tensor in named_tensors(state)]

    here = shapes(BATCH, SOURCE, PAST)
    others = {
        "batch": shapes(BATCH + 1, SOURCE, PAST),
        "source": shapes(BATCH, SOURCE + 1, PAST),
        "past": shapes(BATCH, SOURCE, PAST + 1),
    }
    found: dict[str, list[str | int]] = {}
    for number, (name, shape) in enumerate(here):
        found[name] = list(shape)
        for kind, other in others.items():
            for dimension, size in enumerate(other[number][1]):
                if size != shape[dimension]:
                    found[name][dimension] = kind
    return found


def dynamic(shape: list[str | int]) -> dict[int, str]:
    """The dimensions that vary, for torch's exporter."""
    return {at: kind for at, kind in enumerate(shape) if isinstance(kind, str)}


def example(rows: int, words: int) -> tuple[Tensor, Tensor]:
    """A batch with padding, so that there is a mask."""
    lengths = torch.full((rows,), words)
    lengths[-1] = words - 2
    source = torch.full((rows, words), UNKNOWN)
    source[torch.arange(rows), lengths - 1] = END
    return source.masked_fill(torch.arange(words) >= lengths[:, None], PAD), lengths


def write_graph(
    module: nn.Module, inputs: tuple[Any, ...], shapes: tuple[Any, ...], names: tuple[list[str], list[str]], path: Path
) -> None:
    try:
        torch.onnx.export(
            module.eval(),
            inputs,
            str(path),
            input_names=names[0],
            output_names=names[1],
            dynamic_shapes=shapes,
            dynamo=True,
            custom_translation_table=_translations(),
            external_data=False,
            verbose=False,
        )
    except torch.onnx.errors.OnnxExporterError as error:
        kind = type(module.model).__name__
        raise ConfigError(f"{kind} cannot be exported to ONNX: torch cannot trace its {path.stem}.") from error


def _translations() -> dict[Any, Callable[..., Any]]:
    """Of functions that torch writes in a form that loses digits: log(sigmoid(x)) and log(exp(x) + exp(y)), which are
    -inf where their terms are small."""
    from onnxscript import opset18 as op

    def logsigmoid(x: Any) -> Any:
        return op.Neg(op.Softplus(op.Neg(x)))

    def logaddexp(x: Any, y: Any) -> Any:
        most = op.Max(x, y)
        return op.Add(most, op.Log(op.Add(op.Exp(op.Sub(x, most)), op.Exp(op.Sub(y, most)))))

    return {torch.ops.aten.log_sigmoid.default: logsigmoid, torch.ops.aten.logaddexp.default: logaddexp}


@contextmanager
def quiet() -> Iterator[None]:
    """Without gradients, and without the exporter's progress and deprecation messages."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "onnx_ir", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
