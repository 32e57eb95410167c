"""A trained captioner: write captions, score them, and look where it looked."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from regard.api.tracing import check_length, spans_of, tokens_of
from regard.config import load_toml
from regard.data.captions import open_captions, without_punctuation
from regard.data.images import Pixels, as_tensor, read_picture
from regard.data.vocabulary import Vocabulary
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig, change_settings
from regard.errors import DataError, RunError
from regard.evaluate.captions import CaptionScore, score_captions
from regard.look.assemble import add_probabilities, assemble
from regard.look.change import Change, change
from regard.look.contents import Picture, Step
from regard.look.pieces import Sentence
from regard.look.record import record
from regard.look.trace import Trace
from regard.models.registry import build
from regard.symbols import END
from regard.train.begin import choose_device
from regard.train.experiment import Experiment, resolve
from regard.train.runs import find_weights, read_tensors
from regard.train.weights import set_weights

Tell = Callable[[int, int | None], None]
Image = str | Path | bytes | Pixels  # a file, its bytes, or pixels [H, W, 3] as the model's square
_AT_ONCE = 32  # pictures captioned together,
_HYPOTHESES = 320  # fewer where the beam (or the number of samples) is wide


@dataclasses.dataclass(frozen=True)
class Caption:
    """What was written of a picture, and how sure the model was of it."""

    text: str
    score: float
    logprob: float
    tokens: list[str]
    token_logprobs: list[float]
    finished: str  # how it ended: "end", "length" (cut off), "not finite" or "stopped"
    # This one first, then the runners-up that were asked for; left out of ==, which would never end.
    nbest: "list[Caption]" = dataclasses.field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


class CaptionWriter:
    """A captioner with its vocabulary, ready to use; `load_captioner` makes one from a run folder."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, experiment: Experiment, name: str) -> None:
        self.model: Any = model.eval()
        self.vocabulary, self.experiment, self.name = vocabulary, experiment, name
        if self.model.image is None:
            raise RunError(f"The captioner {name} was trained on ready-made features and cannot read pictures.")

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device

    def settings(self, **changes: Any) -> DecodeConfig:
        """The run's [decode] settings with some of them changed; None leaves one as it is."""
        return change_settings(self.experiment.decode, changes)

    def pixels(self, image: Image) -> Pixels:
        """The square of a picture that the model sees, [side, side, 3]."""
        side = self.model.side
        if not isinstance(image, str | Path | bytes | np.ndarray):
            raise DataError(f"A picture is a file, its bytes or its pixels; got {type(image).__name__}.")
        if not isinstance(image, np.ndarray):
            return read_picture(image, side)
        if image.shape != (side, side, 3) or image.dtype != np.uint8:
            raise DataError(
                f"Pixels must be uint8 [{side}, {side}, 3]; got {image.dtype} {list(image.shape)}. Give a file instead."
            )
        return image

    @overload
    def caption(self, image: Image, **options: Any) -> Caption: ...

    @overload
    def caption(self, image: list[Image], **options: Any) -> list[Caption]: ...

    def caption(self, image: Image | list[Image], **options: Any) -> Caption | list[Caption]:
        """Caption one picture, or a list of them in order.

        Options are the settings of [decode] (beam, nbest, temperature, ...), and `progress(done, total)` and
        `stop() -> bool`, which is asked before every step.
        """
        images = image if isinstance(image, list) else [image]
        tell, stop = options.pop("progress", None), options.pop("stop", None)
        config = self.settings(**options)
        written: list[Caption] = []
        copies = config.nbest if config.temperature else config.beam
        some = max(1, min(_AT_ONCE, _HYPOTHESES // copies))
        for first in range(0, len(images), some):
            source, lengths = self._read(images[first : first + some])
            found = decode(self.model, source, lengths, config, stop=stop)
            for hypotheses in found:
                group: list[Caption] = []
                for one in hypotheses:
                    text, pieces = self.vocabulary.decode(one.ids), self.vocabulary.pieces(one.ids)
                    group.append(Caption(text, one.score, one.logprob, pieces, one.token_logprobs, one.ended, group))
                written.append(group[0])
            if tell:
                tell(len(written), len(images))
        return written if isinstance(image, list) else written[0]

    def look(
        self,
        image: Image,
        target: str | Caption | None = None,
        *,
        changes: Sequence[Change] = (),
        topk: int = 5,
        **options: Any,
    ) -> Trace:
        """Caption a picture (or read `target`, forced) and return where every word looked, on the true grid.

        A `Caption` as target is read token by token as it was written, its end only where it had one. The steps of the
        trace hold the gate beta of a soft model as `norms["gate"]`. Draw it with
        `trace.draw(path, view="film", picture=writer.pixels(image))`; the views picture and region are for captions
        too. `changes` are what-ifs, such as `Mask(cell)`; the trace says what was changed.
        """
        with change(self.model, *changes) as changed:
            trace = self._look(image, target, topk, options)
        return dataclasses.replace(trace, changes=changed.describe())

    def _look(self, image: Image, target: str | Caption | None, topk: int, options: dict[str, Any]) -> Trace:
        source, lengths = self._read([image])
        if not isinstance(target, str | Caption | None):
            raise DataError(f"A caption to read is text, or a Caption; got {type(target).__name__}.")
        if isinstance(target, str):
            written = [*self.vocabulary.encode(target.replace("\n", " ")).ids, END]
        else:
            found = target or self.caption(image, **options)
            ids = [self._numbers[piece] for piece in found.tokens]
            written = ids if ids and found.finished != "end" else [*ids, END]
        check_length(written)
        gates: list[float] = []
        hook = lambda module, args, beta: gates.append(float(beta[0]))  # noqa: E731
        handle = self.model.gate.register_forward_hook(hook) if self.model.gate is not None else None
        try:
            with torch.inference_mode(), record(self.model) as seen:
                logits = self.model(source, lengths, torch.tensor([written], device=self.device))  # [1, T, V]
        finally:
            if handle is not None:
                handle.remove()
        plain = [index for index in written if index != END]
        text = self.vocabulary.decode(plain)
        spans = spans_of(self.vocabulary, plain, text)
        wrote = tokens_of(text, self.vocabulary.pieces(plain), spans, ended=len(plain) < len(written))
        wrote = add_probabilities(wrote, written, logits[0], lambda index: self.vocabulary.pieces([index])[0], topk)
        side, grid = self.model.side, self.model.config.grid
        about = {"id": self.name, "name": self.experiment.name, "kind": "captioner", "look": self.model.config.look}
        trace = assemble(
            self.model, seen, Sentence("", ()), wrote, image=Picture(side, side, (grid, grid)), about=about
        )
        return dataclasses.replace(trace, steps=_with_gates(trace.steps, gates))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        pieces = self.vocabulary.pieces(range(len(self.vocabulary)))
        return {piece: index for index, piece in enumerate(pieces)}

    def score(self, images: str, captions: str = "", **options: Any) -> CaptionScore:
        """Caption every picture of a tar file or folder and score against its captions: BLEU-1 to BLEU-4."""
        data = self.experiment.data
        files, entries = open_captions(images, captions, data.invalid)
        tell = options.pop("progress", None)
        written: list[str] = []
        for first in range(0, len(entries), _AT_ONCE):
            some = [files.read(entry.image) for entry in entries[first : first + _AT_ONCE]]
            written += [one.text for one in self.caption(list[Image](some), **options)]
            if tell:
                tell(len(written), len(entries))
        references = [[self._bare(caption) for caption in entry.captions] for entry in entries]
        return score_captions(written, references)

    def _bare(self, caption: str) -> str:
        data = self.experiment.data
        text = caption.lower() if data.lowercase else caption
        return without_punctuation(text) if data.bare else text

    def _read(self, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
        """Pictures [B, 3, H, W] and their numbers of cells [B]."""
        source = as_tensor([self.pixels(image) for image in images]).to(self.device)
        return source, torch.full((len(source),), self.model.config.grid**2, device=self.device)


def _with_gates(steps: tuple[Step, ...], gates: list[float]) -> tuple[Step, ...]:
    if not gates:
        return steps
    return tuple(dataclasses.replace(step, norms={**step.norms, "gate": round(gates[step.t], 6)}) for step in steps)


def load_captioner(run: str | Path, device: str = "auto") -> CaptionWriter:
    """The captioner of a run folder; every file is checked against the run's manifest."""
    folder = Path(run)
    weights = find_weights(folder)
    experiment = resolve(load_toml(folder / "config.toml"))
    if experiment.task != "caption":
        raise RunError(f"{folder} is a run for the task {experiment.task!r}; captions need a run of a captioner.")
    vocabulary = Vocabulary.load(folder, "target")
    model = build(experiment.name, dataclasses.replace(experiment.model, target_vocabulary=len(vocabulary)))
    set_weights(model, read_tensors(weights), str(weights))
    return CaptionWriter(model.to(choose_device(device)), vocabulary, experiment, folder.resolve().name)
