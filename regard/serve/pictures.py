"""The captioners that a server offers: what it writes of a picture, and where it looked while it did."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.api.captioner import Caption, CaptionWriter
from regard.data.builtin import shapes
from regard.data.images import Pixels, encode_png
from regard.errors import DataError
from regard.look.trace import Trace
from regard.look.tree import plain
from regard.look.words import Label, arrange
from regard.models.registry import entry
from regard.serve.models import Stop, interruptible
from regard.serve.refusal import StoppedError


@dataclass(frozen=True)
class Example:
    """A picture drawn on the spot, and the caption that is right for it."""

    caption: str
    png: bytes


class CaptionModel:
    """A trained captioner under the name by which clients choose it."""

    kind = "caption"

    def __init__(self, writer: CaptionWriter, name: str) -> None:
        self.id = name
        self.writer = writer

    @property
    def beam(self) -> int:
        """The beam that is used where nobody asks for another."""
        return self.writer.experiment.decode.beam

    @property
    def drawn(self) -> str:
        """The name of the corpus that the model learned from, where its pictures are drawn; else empty."""
        corpus: str = self.writer.experiment.data.corpus
        return corpus

    def describe(self) -> dict[str, Any]:
        """What a reader wants to know of the model."""
        about, config = entry(self.writer.experiment.name), self.writer.model.config
        return {
            "name": self.writer.experiment.name,
            "paper": about.paper,
            "idea": about.idea,
            "beam": self.beam,
            "parameters": sum(part.numel() for part in self.writer.model.parameters()),
            "grid": [config.grid, config.grid],
            "side": self.writer.model.side,
            "look": config.look,
            "drawn": self.drawn,
        }

    def rehearse(self) -> str:
        """The caption of one picture, always the same: a ramp from black to the colours."""
        side = self.writer.model.side
        ramp = np.linspace(0, 255, side, dtype=np.uint8)
        red, green = np.broadcast_to(ramp, (side, side)), np.broadcast_to(ramp[:, None], (side, side))
        return self.writer.caption(np.ascontiguousarray(np.stack([red, green, red // 2], axis=-1))).text

    def read(self, data: bytes) -> Pixels:
        """The square of a picture that the model sees; what is no picture, or too large a one, is refused."""
        return self.writer.pixels(data)

    def caption(self, pixels: Pixels, beam: int | None, nbest: int, stop: Stop) -> dict[str, Any]:
        """The caption of a picture, the runners-up, where each word looked on the true grid, and all of it as a trace.

        A tree of plain values and arrays.
        """
        found = self.writer.caption(pixels, beam=beam, nbest=nbest, stop=stop)
        if found.finished == "stopped":
            raise StoppedError
        with interruptible(self.writer.model, stop):
            trace = self.writer.look(pixels, found)
        return {**_told(found, trace), "trace": plain(trace)}

    def example(self, number: int) -> Example:
        """A picture as those that the model learned from, and yet none of them."""
        data, grid = self.writer.experiment.data, self.writer.model.config.grid
        if not self.drawn:
            raise DataError(f"The model {self.id} learned from files; only the corpus shapes can be drawn anew.")
        scene = shapes.scene(data.size + number, data.seed, grid)
        return Example(scene.caption, encode_png(shapes.draw_scene(scene, grid)))


def _told(found: Caption, trace: Trace) -> dict[str, Any]:
    assert trace.image is not None
    table = arrange(trace)
    return {
        "caption": found.text,
        "finished": found.finished,
        "nbest": [{"text": one.text, "score": one.score, "logprob": one.logprob} for one in found.nbest],
        "grid": list(trace.image.grid),
        "words": [
            {
                "text": word.text,
                "logprob": sum(trace.target.tokens[t].logprob or 0.0 for t in word.tokens),
                **_gate(trace, word),
                "weights": np.round(weights.reshape(trace.image.grid).astype(float), 6).tolist(),
            }
            for word, weights in zip(table.rows, table.weights, strict=True)
        ],
    }


def _gate(trace: Trace, word: Label) -> dict[str, float]:
    """How much of what it saw a word let in, where the model has a gate: the mean over its pieces."""
    gates = [trace.steps[t].norms["gate"] for t in word.tokens if "gate" in trace.steps[t].norms]
    return {"gate": round(sum(gates) / len(gates), 6)} if gates else {}
