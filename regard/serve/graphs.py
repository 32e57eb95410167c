"""A translator as two ONNX graphs for the page without a server: what `regard.interop.onnx` exports, with every number
that the page shows as further outputs and the what-ifs as further inputs.

    encoder    source [B, S], lengths [B], keep [B, N], hide [B, 1, S]
                                                                  -> state, parts of modules and layers
    step       token [B], keep [B, N], temperature [B, M], hide and fixed [B, M, S], lens [K], state
                                                                  -> logits, next state, parts, early [B, K, V]

`keep` is 0 for a silenced head of the N heads that a graph calls. The M heads over the source divide their scores by
`temperature`, add `hide` (0 or -inf) and add `fixed` to their weights; the heads of the encoder add its `hide`. `lens`
lists decoder layers whose predictions are computed. A runtime computes all outputs and copies only those that it is
asked for.

The weights are a file beside the graphs. They are stored as in the run, int8 or not, and expanded by the page.
"""

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.nested import leaves, map_nested
from regard.errors import ConfigError
from regard.interop.onnx import BATCH, PAST, SOURCE, check_onnx, dynamic, example, quiet, state_parts, write_graph
from regard.kernels.recur import by_scan
from regard.look.change import Change, all_heads, change
from regard.look.record import AttentionCall, Recorded, attentions, record, side_of
from regard.models.contract import attentions_to_source
from regard.models.pointer import Pointer
from regard.runs.folder import read_tensors
from regard.runs.int8 import SCALE
from regard.serve.inside import follow_layers, layers_of, predict_early, terms_of, visible_scores
from regard.symbols import START

_SMALLEST = 1024  # bytes of a tensor that is stored with the weights and not in its graph


@dataclass(frozen=True)
class _Given(Change):
    """A change of one module by inputs of a graph."""

    name: str
    keep: Tensor  # [B, (H), 1, 1]

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        return weights * self.keep


@dataclass(frozen=True)
class _GivenOverSource(_Given):
    """The same of a module over the source."""

    temperature: Tensor  # [B, (H), 1, 1]
    hide: Tensor  # [B, (H), 1, S]
    fixed: Tensor  # [B, (H), 1, S]

    def score(self, scores: Tensor) -> Tensor:
        return scores / self.temperature + self.hide

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        return super().weigh(weights, first) + self.fixed


@dataclass(frozen=True)
class _Hidden(Change):
    """Source positions that a module of the encoder does not see."""

    name: str
    hide: Tensor  # [B, 1, S]

    def score(self, scores: Tensor) -> Tensor:
        return scores + (self.hide.unsqueeze(1) if scores.dim() == 4 else self.hide)


class Modules:
    """The attention modules that one graph calls, and their heads in order."""

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        self.model, self.names = model, list(names)
        self.cross = [name for name in self.names if name in attentions_to_source(model)]

    def heads(self, names: Sequence[str]) -> int:
        return sum(len(all_heads(self.model, name)) for name in names)

    @contextmanager
    def changed(
        self, keep: Tensor, over_source: tuple[Tensor, Tensor, Tensor] | None = None, hide: Tensor | None = None
    ) -> Iterator[Recorded]:
        """Record the modules under the changes that the inputs of a graph describe."""
        changes, first, first_cross = list[Change](), 0, 0
        for name in self.names:
            heads = all_heads(self.model, name)
            many, count = heads[0] is not None, len(heads)

            def of_module(part: Tensor, first: int, many: bool = many, count: int = count) -> Tensor:
                """[B, N] or [B, N, S] -> [B, (H), 1, 1 or S]"""
                own = part[:, first : first + count] if many else part[:, first]
                return own.unsqueeze(-2) if part.dim() == 3 else own[..., None, None]

            kept = of_module(keep, first)
            first += count
            if over_source is not None and name in self.cross:
                parts = (of_module(part, first_cross) for part in over_source)
                changes.append(_GivenOverSource(name, kept, *parts))
                first_cross += count
            else:
                changes.append(_Given(name, kept))
        if hide is not None:
            changes += [_Hidden(name, hide) for name in self.names if side_of(name) == "encoder"]
        with change(self.model, *changes), record(self.model, self.names) as seen:
            yield seen

    def parts(self, seen: Recorded) -> dict[str, Tensor]:
        """The recorded tensors by "module:part"."""
        modules, found = attentions(self.model), dict[str, Tensor]()
        for name in self.names:
            (call,) = seen.calls(name)
            assert call.memory is not None
            terms = {key: part for key, part in terms_of(modules[name], call).items() if key in ("left", "right")}
            parts = {part: getattr(call, part) for part in ("weights", "scores", "query", "context", "centre")}
            parts |= {"visible": visible_scores(modules[name], call), "values": call.memory.values, **terms}
            found |= {f"{name}:{part}": tensor for part, tensor in parts.items() if tensor is not None}
        return found


def _layer_parts(seen: list[dict[str, Tensor]], kind: str) -> dict[str, Tensor]:
    return {f"{kind}.{place}:{part}": value for place, one in enumerate(seen) for part, value in one.items()}


class LookEncoder(nn.Module):
    """source, lengths, keep, hide -> the state before the first token, and what was recorded."""

    def __init__(self, model: Any, modules: Modules) -> None:
        super().__init__()
        self.model, self.modules_called = model, modules
        self.names: list[str] = []  # of what was recorded, after a forward pass

    def forward(self, source: Tensor, lengths: Tensor, keep: Tensor, hide: Tensor) -> tuple[Tensor, ...]:
        with ExitStack() as stack:
            seen = stack.enter_context(self.modules_called.changed(keep, hide=hide))
            layers = stack.enter_context(follow_layers(layers_of(self.model, decodes=False)))
            state = self.model.start(self.model.encode(source, lengths))
        parts = self.modules_called.parts(seen) | _layer_parts(layers, "encoder")
        self.names = list(parts)
        # An input that is not used would not be one of the graph.
        return (*leaves(state), *parts.values(), keep.sum() + hide.sum())


class LookStep(nn.Module):
    """One step -> logits, the next state, and what was recorded."""

    def __init__(self, model: Any, modules: Modules, state: Any) -> None:
        super().__init__()
        self.model, self.modules_called, self.state = model, modules, state
        self.names: list[str] = []

    def forward(
        self,
        token: Tensor,
        keep: Tensor,
        temperature: Tensor,
        hide: Tensor,
        fixed: Tensor,
        lens: Tensor,
        state: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        given, shares = iter(state), list[Tensor]()
        decoder = layers_of(self.model, decodes=True)
        with ExitStack() as stack:
            seen = stack.enter_context(self.modules_called.changed(keep, (temperature, hide, fixed)))
            layers = stack.enter_context(follow_layers(decoder))
            if isinstance(self.model, Pointer):
                hook = self.model.generate.register_forward_hook(
                    lambda module, args, logit: shares.append(torch.sigmoid(-logit))
                )
                stack.enter_context(hook)
            logits, after = self.model.step(token, map_nested(self.state, lambda _: next(given)))
        parts = self.modules_called.parts(seen) | _layer_parts(layers, "decoder")
        if shares:
            parts["copy"] = shares[0][:, :, 0]  # [B, 1]
        if decoder:
            streams = torch.stack([one["stream"][:, 0] for one in layers], 1)  # [B, L, D]
            parts["early"] = predict_early(self.model, streams[:, lens])  # [B, K, V]
        self.names = list(parts)
        unused = keep.sum() + temperature.sum() + (hide + fixed).sum() + lens.sum()
        return (logits, *leaves(after), *parts.values(), unused)


def called(model: Any) -> tuple[Modules, Modules, Any, dict[str, AttentionCall]]:
    """The attention modules of encoder and step, the state after some steps, and what they saw."""
    source, lengths = example(BATCH, SOURCE)
    with record(model) as first:
        state = model.start(model.encode(source, lengths))
    for name in first:
        if len(first.calls(name)) > 1:
            raise ConfigError(
                f"{type(model).__name__} cannot be shown on the page without a server: its module {name} attends at "
                f"every word that is read, which an exported graph does not record; use `regard serve`."
            )
    for _ in range(PAST):
        with record(model) as seen:
            _, state = model.step(torch.full((BATCH,), START), state)
    order = list(attentions(model))
    modules = [Modules(model, sorted(some, key=order.index)) for some in (first, seen)]
    return *modules, state, {**first, **seen}


def export_graphs(model: nn.Module, weights: Path, out: Path) -> dict[str, Any]:
    """Write encoder.onnx, step.onnx and weights.bin into the folder `out`; returns what the page must know of them.

    `weights` is the file of the run that `model` was loaded from.
    """
    check_onnx()
    model = model.cpu().eval()
    with quiet(), TemporaryDirectory() as temporary:
        source, lengths = example(BATCH, SOURCE)
        encoder, step, state, seen = called(model)
        parts = state_parts(model)
        names = list(parts)
        keeps = [torch.ones(BATCH, max(1, one.heads(one.names))) for one in (encoder, step)]
        heads = max(1, step.heads(step.cross))
        slots: int | str = seen[step.cross[0]].weights.shape[-1] if step.cross else 1
        row = torch.zeros(BATCH, heads, int(slots))
        slots = "source" if slots == SOURCE else slots
        reads, writes = LookEncoder(model, encoder), LookStep(model, step, state)
        token, lens = torch.full((BATCH,), START), torch.zeros(2, dtype=torch.long)
        inputs = (token, keeps[1], torch.ones(BATCH, heads), row, row.clone(), lens)
        tensors = tuple(tensor.contiguous() for tensor in leaves(state))
        _, after = model.step(token, state)  # type: ignore[operator]
        fixed = [one is other for one, other in zip(leaves(state), leaves(after), strict=True)]
        read = source, lengths, keeps[0], torch.zeros(BATCH, 1, SOURCE)
        reads(*read)  # so that the names are known
        writes(*inputs, tensors)
        batch = {0: "batch"}
        with by_scan():
            write_graph(
                reads,
                read,
                ({0: "batch", 1: "source"}, batch, batch, {0: "batch", 2: "source"}),
                (["source", "lengths", "keep", "hide"], [*names, *reads.names, "unused"]),
                Path(temporary) / "encoder.onnx",
            )
        rows = dynamic(["batch", heads, slots])
        write_graph(
            writes,
            (*inputs, tensors),
            (batch, batch, batch, rows, rows, {0: "layers"}, tuple(map(dynamic, parts.values()))),
            (
                ["token", "keep", "temperature", "hide", "fixed", "lens", *names],
                ["logits", *(f"next.{name}" for name in names), *writes.names, "unused"],
            ),
            Path(temporary) / "step.onnx",
        )
        packed = Weights(weights)
        for name in ("encoder.onnx", "step.onnx"):
            (out / name).write_bytes(packed.take_out(Path(temporary) / name))
        (out / "weights.bin").write_bytes(packed.file())
    return {
        # What a step passes on unchanged is the same for all beams of a sentence.
        "state": [{"name": name, "fixed": same} for name, same in zip(names, fixed, strict=True)],
        "encoder": _describe(encoder, seen),
        "step": _describe(step, seen),
        "slots": slots,
        "outputs": {"encoder": reads.names, "step": writes.names},
        "weights": packed.index,
        "expanded": packed.size,
    }


def _describe(modules: Modules, seen: Mapping[str, AttentionCall]) -> list[dict[str, Any]]:
    """Each module with the number of its heads (0 where it has no dimension of them) and its formula."""
    found = []
    for name in modules.names:
        terms = terms_of(attentions(modules.model)[name], seen[name])
        heads = all_heads(modules.model, name)
        formula = {key: part for key, part in terms.items() if key not in ("left", "right")}
        if "v" in formula:
            formula["v"] = formula["v"].tolist()
        found.append(
            {
                "name": name,
                "heads": 0 if heads[0] is None else len(heads),
                "cross": name in modules.cross,
                "formula": formula,
            }
        )
    return found


class Weights:
    """The tensors of graphs as one file: those of the run as they are stored there, others as float32.

    `index` lists them: where each is in the file, its type and shape, and where it lies in the memory that the graphs
    refer to, `size` bytes in all, as float32 and, if `turned`, transposed.
    """

    def __init__(self, weights: Path) -> None:
        stored = read_tensors(weights)
        self._stored: dict[bytes, tuple[str, bool]] = {}  # by the hash of what it expands to
        self._tensors = stored
        for name, tensor in stored.items():
            if name.endswith(SCALE) or not (tensor.is_floating_point() or tensor.dtype == torch.int8):
                continue
            full = tensor.float()
            if name + SCALE in stored:
                full = full * stored[name + SCALE].float().view(-1, *[1] * (tensor.dim() - 1))
            self._stored[_key(full.numpy())] = name, False
            if full.dim() == 2:
                self._stored.setdefault(_key(full.numpy().T), (name, True))
        self._parts: list[bytes] = []
        self._places: dict[str, int] = {}  # of what is in the file already
        self._memory: dict[bytes, int] = {}
        self._reached = 0
        self.index: list[dict[str, Any]] = []
        self.size = 0

    def take_out(self, path: Path) -> bytes:
        """The graph of a file with its weights replaced by references."""
        import onnx
        from onnx import TensorProto, external_data_helper, numpy_helper

        graph = onnx.load(str(path))
        for tensor in graph.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if tensor.data_type != TensorProto.FLOAT or values.nbytes < _SMALLEST:
                continue
            place = self._place(np.ascontiguousarray(values))
            tensor.ClearField("float_data")
            tensor.raw_data = b""
            external_data_helper.set_external_data(tensor, "weights", offset=place, length=values.nbytes)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
        data: bytes = graph.SerializeToString()
        return data

    def _place(self, values: np.ndarray[Any, Any]) -> int:
        """Where the values lie in memory."""
        key = _key(values)
        if key not in self._memory:
            name, turned = self._stored.get(key, ("", False))
            tensor = self._tensors[name] if name else torch.from_numpy(values.copy())
            where: dict[str, Any] = {"at": self._add(name or key.hex(), tensor)}
            if name + SCALE in self._tensors:
                where["scale"] = self._add(name + SCALE, self._tensors[name + SCALE].float())
            shape = [tensor.shape[0] if tensor.dim() else 1, tensor[0].numel() if tensor.dim() > 1 else 1]
            kind = str(tensor.dtype).removeprefix("torch.")
            self.index.append({**where, "type": kind, "shape": shape, "turned": turned, "to": self.size})
            self._memory[key] = self.size
            self.size += -(-values.nbytes // 64) * 64
        return self._memory[key]

    def _add(self, name: str, tensor: Tensor) -> int:
        if name not in self._places:
            data = tensor.contiguous().numpy().tobytes()
            self._places[name] = self._reached
            padded = data + bytes(-len(data) % 64)
            self._parts.append(padded)
            self._reached += len(padded)
        return self._places[name]

    def file(self) -> bytes:
        """All tensors, compressed."""
        return gzip.compress(b"".join(self._parts), 6, mtime=0)


def _key(values: np.ndarray[Any, Any]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values, dtype=np.float32).tobytes()).digest()
