"""A trained captioner: write captions, score them, and trace its attention over the picture."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from regard.api import tracing
from regard.api.trained import Output, Trained
from regard.data.captions import open_captions, without_punctuation
from regard.data.images import Pixels, as_tensor, read_picture
from regard.data.vocabulary import Vocabulary
from regard.decode.search import decode
from regard.decode.steps import SearchRequest
from regard.errors import DataError, RunError
from regard.evaluate.scores import CaptionScore, score_captions
from regard.look.change import Change, change
from regard.look.tokens import Side
from regard.look.trace import Trace
from regard.look.trace_data import Picture
from regard.runs.experiment import Experiment
from regard.symbols import END
from regard.work import Progress, reporting

Image = str | Path | bytes | Pixels  # a file, its bytes, or pixels [side, side, 3]
_AT_ONCE = 32  # pictures in a batch at most
_HYPOTHESES = 320  # hypotheses in a batch at most


@dataclasses.dataclass(frozen=True)
class Caption(Output):
    """A caption with its log-probabilities."""


class CaptionWriter(Trained):
    """A captioner with its vocabulary; `regard.load` makes one from a run folder.

    >>> settings = ["data.size=20", "data.held_out=0", "train.steps=2"]  # leave these out to get a model that works
    >>> captioner = regard.train(corpus="shapes", model="captioner", preset="tiny", out="shapes", settings=settings)
    >>> captioner
    CaptionWriter(shapes: captioner, ... weights on ...)
    """

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, experiment: Experiment, name: str) -> None:
        super().__init__(model, experiment, name)
        self.vocabulary = vocabulary
        if self.model.image is None:
            raise RunError(f"The captioner {name} was trained on precomputed features and cannot read pictures.")

    def pixels(self, image: Image) -> Pixels:
        """The square crop of a picture that the model reads, [side, side, 3]."""
        side = self.model.side
        if not isinstance(image, str | Path | bytes | np.ndarray):
            raise DataError(f"A picture is a file, its bytes or its pixels; got {type(image).__name__}.")
        if not isinstance(image, np.ndarray):
            return read_picture(image, side)
        if image.shape != (side, side, 3) or image.dtype != np.uint8:
            raise DataError(
                f"Pixels must be uint8 [{side}, {side}, 3]; got {image.dtype} {list(image.shape)}. Pass a file instead."
            )
        return image

    @overload
    def caption(self, image: Image, **options: Any) -> Caption: ...

    @overload
    def caption(self, image: list[Image], **options: Any) -> list[Caption]: ...

    def caption(
        self,
        image: Image | list[Image],
        *,
        progress: Progress | None = None,
        stop: Callable[[], bool] | None = None,
        **settings: Any,
    ) -> Caption | list[Caption]:
        """Caption one picture, or a list of them in order.

        `settings` are those of [decode] (beam, nbest, temperature, ...); `stop() -> bool` is called before every step.

        >>> import numpy
        >>> picture = numpy.zeros((64, 64, 3), dtype="uint8")  # black; or the name of a file
        >>> found = captioner.caption(picture, beam=3, nbest=2)
        >>> len(found.nbest), found.nbest[0].score >= found.nbest[1].score
        (2, True)
        """
        images, config = image if isinstance(image, list) else [image], self.settings(**settings)
        written: list[Caption] = []
        copies = config.nbest if config.temperature else config.beam
        size = max(1, min(_AT_ONCE, _HYPOTHESES // copies))
        for first in range(0, len(images), size):
            source, lengths = self._read(images[first : first + size])
            for hypotheses in decode(self.model, source, lengths, config, request=SearchRequest(stop=stop)):
                group: list[Caption] = []
                for found in hypotheses:
                    text, pieces = self.vocabulary.decode(found.ids), self.vocabulary.pieces(found.ids)
                    numbers = found.score, found.logprob, pieces, found.token_logprobs
                    group.append(Caption(text, *numbers, found.ended, group))
                written.append(group[0])
            if progress:
                progress(len(written), len(images))
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
        """Caption a picture (or force `target`) and return the attention weights of every word on the grid.

        A `Caption` as target is forced token by token, with END only where it ended. For soft attention,
        `step_values["gate"]` of the attention holds the gate beta. Draw the trace with
        `trace.draw(path, view="film", picture=writer.pixels(image))`, or the views "picture" and "region". `changes`
        are what-ifs such as `Mask(cell)`; the trace lists them.

        >>> import numpy
        >>> picture = numpy.zeros((64, 64, 3), dtype="uint8")  # black; or the name of a file
        >>> captioner.look(picture, "a red circle")  # three words and the end, each with weights over 4 x 4 cells
        Trace('' -> 'a red circle'; weights of attention [1, 4, 16])
        """
        if not isinstance(target, str | Caption | None):
            raise DataError(f"A target caption is text or a Caption; got {type(target).__name__}.")
        inputs, config, gates = self._read([image]), self.model.config, list[float]()
        with ExitStack() as stack:
            changed = stack.enter_context(change(self.model, *changes))
            if isinstance(target, str):
                written = [*self.vocabulary.encode(target.replace("\n", " ")).ids, END]
            else:
                found = target or self.caption(image, **options)
                ids = [self.vocabulary.numbers[piece] for piece in found.tokens]
                written = tracing.with_end(ids, found.finished == "end")
            tracing.check_length(written)
            if self.model.gate is not None:
                hook = self.model.gate.register_forward_hook(lambda module, args, beta: gates.append(float(beta[0])))
                stack.enter_context(hook)
            about = {"id": self.name, "name": self.experiment.name, "kind": "captioner", "look": config.look}
            picture = Picture(self.model.side, self.model.side, (config.grid, config.grid))
            trace = tracing.trace_forward(
                self.model, inputs, written, Side("", ()), self.vocabulary, topk, about=about, image=picture,
                changes=changed.describe(),
            )  # fmt: skip
        return tracing.with_step_values(trace, "gate", gates)

    def score(self, images: str, captions: str = "", progress: Progress | None = None, **options: Any) -> CaptionScore:
        """Caption every picture of a tar file or folder and score against its captions: BLEU-1 to BLEU-4."""
        files, corpus = open_captions(images, captions, self.experiment.data)
        entries = list(corpus)
        written: list[str] = []
        parts = [entries[first : first + _AT_ONCE] for first in range(0, len(entries), _AT_ONCE)]
        for part in reporting(parts, progress, len(entries), len):
            written += [found.text for found in self.caption([files.read(entry.image) for entry in part], **options)]
        data = self.experiment.data
        references = [[text.lower() if data.lowercase else text for text in entry.captions] for entry in entries]
        bare = [[without_punctuation(text) for text in texts] for texts in references] if data.bare else references
        return score_captions(written, bare)

    def _read(self, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
        """Pictures [B, 3, H, W] and their numbers of cells [B]."""
        source = as_tensor([self.pixels(image) for image in images]).to(self.device)
        return source, torch.full((len(source),), self.model.config.grid**2, device=self.device)
