"""A captioner inside its process: describe a picture, and show the attention of each word."""

from typing import Any

import numpy as np

from regard.api.captioner import CaptionWriter
from regard.corpora import shapes
from regard.data.images import MOST_PIXELS, encode_png, picture_format
from regard.errors import DataError
from regard.look.html import page_tree
from regard.look.table import Label, arrange
from regard.look.trace import Trace
from regard.processes import Running
from regard.serve.limits import RefusedError, StoppedError
from regard.serve.models import ServedModel, interruptible


class CaptionModel(ServedModel):
    """A captioner of a server."""

    kind = "caption"

    def __init__(self, writer: CaptionWriter, name: str) -> None:
        super().__init__(writer, name)
        self.writer = writer
        self.drawn: str = writer.experiment.data.corpus  # a generated corpus; empty for pictures from files

    def describe(self) -> dict[str, Any]:
        """The description of the model for clients."""
        config = self.writer.model.config
        return {
            **super().describe(),
            "grid": [config.grid, config.grid],
            "side": self.writer.model.side,
            "look": config.look,
            "drawn": self.drawn,
            "megapixels": MOST_PIXELS // 1_000_000,
        }

    def self_test(self, running: Running) -> str:
        """The caption of a fixed picture, a colour ramp; it must always be the same."""
        side = self.writer.model.side
        ramp = np.linspace(0, 255, side, dtype=np.uint8)
        red, green = np.broadcast_to(ramp, (side, side)), np.broadcast_to(ramp[:, None], (side, side))
        return self.writer.caption(np.ascontiguousarray(np.stack([red, green, red // 2], axis=-1))).text

    def read(self, data: bytes) -> bytes:
        """The pixels of a picture at the size of the model; other files and too large pictures are refused."""
        try:
            picture_format(data, "The body")
        except DataError as error:
            raise RefusedError(415, str(error)) from None
        return self.writer.pixels(data).tobytes()

    def caption(self, data: bytes, beam: int | None, nbest: int, running: Running) -> dict[str, Any]:
        """The caption of a picture, its n-best list, the attention of each word over the grid, and the trace."""
        side = self.writer.model.side
        pixels = np.frombuffer(data, np.uint8).reshape(side, side, 3).copy()
        found = self.writer.caption(pixels, beam=beam, nbest=nbest, stop=running.stopped)
        if found.finished == "stopped":
            raise StoppedError
        with interruptible(self.writer.model, running):
            trace = self.writer.look(pixels, found)
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
            "trace": page_tree(trace),
        }

    def example(self, number: int) -> tuple[str, bytes]:
        """A new picture from the training distribution: its caption, and the picture as PNG."""
        data, grid = self.writer.experiment.data, self.writer.model.config.grid
        if not self.drawn:
            raise RefusedError(404, f"The model {self.id} has no examples: it was not trained on a generated corpus.")
        scene = shapes.scene(data.size + number, data.seed, grid)
        return scene.caption, encode_png(shapes.draw_scene(scene, grid))


def _gate(trace: Trace, word: Label) -> dict[str, float]:
    """The gate of a word, the mean over its pieces, if the model has one."""
    values = next((seen.step_values["gate"] for seen in trace.attention.values() if "gate" in seen.step_values), None)
    gates = [] if values is None else values[list(word.tokens)].tolist()
    return {"gate": round(sum(gates) / len(gates), 6)} if gates else {}
