"""The attention of a document classifier: the weight of each sentence, and of each word within its sentence.

model.eval()
looked = look_at(model, batch)                     # weights of both levels, for every document
trace = DocumentTrace(text, sentences, probabilities)
trace.draw("review.html"); trace.to_terminal()
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ConfigError, DataError
from regard.look import trace_file
from regard.look.draw import document as drawing
from regard.look.html import notebook
from regard.look.record import Recorded, record
from regard.look.show import Show, chosen
from regard.models.document import Document, groups

VERSION = 1


class Weights(NamedTuple):
    """The weights of one document. A sentence without words has weight 0 and no words."""

    sentences: list[float]
    words: list[list[float]]  # for each sentence


class Looked(NamedTuple):
    """Logits and weights of a batch of documents."""

    logits: Tensor  # [B, C]
    weights: list[Weights]


@torch.inference_mode()
def look_at(model: Document, words: Tensor, lengths: Tensor, counts: Tensor) -> Looked:
    """Read documents as `Document.forward` does, and keep the weights of both levels."""
    with record(model) as seen:
        logits = model(words, lengths, counts)
    if len(words) and not len(seen):
        raise ConfigError(
            f"A document model with pooling {model.config.pooling!r} has no attention; "
            f"train one with model.pooling = 'attention'."
        )
    each = _rows(seen, "words.pool.attention", lengths)  # N lists
    owner = torch.repeat_interleave(torch.arange(len(counts)), counts.cpu())  # [N]
    written = lengths.cpu() > 0  # [N]
    whole = _rows(seen, "sentences.pool.attention", torch.bincount(owner[written], minlength=len(counts)))  # B lists
    sentences, found = iter(each), []
    for count, document in zip(counts.tolist(), whole, strict=True):
        read, weights = [next(sentences) for _ in range(count)], iter(document)
        found.append(Weights([next(weights) if words_seen else 0.0 for words_seen in read], read))
    return Looked(logits, found)


def _rows(seen: Recorded, name: str, lengths: Tensor) -> list[list[float]]:
    """The weights of every row of a level, without padding, in the order of the rows."""
    rows: list[list[float]] = [[] for _ in range(len(lengths))]
    chosen = groups(lengths)
    for call, group in zip(seen.calls(name) if chosen else [], chosen, strict=True):
        for place, weights in zip(group.tolist(), call.weights[:, 0].tolist(), strict=True):
            rows[place] = weights[: int(lengths[place])]
    return rows


@dataclass(frozen=True)
class SeenSentence:
    """A sentence of a document: code points [start, end) of the text, its weight, and (start, end, weight) of words."""

    start: int
    end: int
    weight: float
    words: tuple[tuple[int, int, float], ...]

    def shades(self) -> list[float]:
        """What is drawn for each word: its weight times the square root of the sentence's (Yang 2016, section 3.6)."""
        return [weight * math.sqrt(self.weight) for _, _, weight in self.words]


@dataclass(frozen=True)
class DocumentTrace:
    """A document, its class probabilities, and the weights of its sentences and words."""

    text: str
    sentences: tuple[SeenSentence, ...]
    probabilities: Mapping[str, float]
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.sentences:
            spans = [(one.start, one.end), *((start, end) for start, end, _ in one.words)]
            if any(not 0 <= start <= end <= len(self.text) for start, end in spans):
                raise DataError(f"A sentence at {one.start}..{one.end} lies outside its text of {len(self.text)}.")

    @classmethod
    def of(
        cls, text: str, spans: Sequence[Sequence[tuple[int, int]]], weights: Weights, probabilities: Mapping[str, float]
    ) -> "DocumentTrace":
        """A trace of the words' spans, sentence by sentence, and the weights of `look_at`."""
        sentences = [
            SeenSentence(
                words[0][0], words[-1][1], weight, tuple((*span, w) for span, w in zip(words, each, strict=True))
            )
            for words, weight, each in zip(spans, weights.sentences, weights.words, strict=True)
            if words
        ]
        return cls(text, tuple(sentences), dict(probabilities))

    @property
    def label(self) -> str:
        """The likeliest class."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    def to_json(self) -> str:
        """The trace as one line of JSON."""
        return json.dumps({"document_trace": VERSION, **asdict(self)}, ensure_ascii=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "DocumentTrace":
        """A trace from its JSON; a clear error for anything else."""
        try:
            tree = json.loads(text)
            if tree["document_trace"] != VERSION:
                raise DataError(f"This trace has version {tree['document_trace']!r}; this regard reads {VERSION}.")
            sentences = (
                SeenSentence(one["start"], one["end"], one["weight"], tuple((a, b, w) for a, b, w in one["words"]))
                for one in tree["sentences"]
            )
            return cls(tree["text"], tuple(sentences), tree["probabilities"], tree.get("model", {}))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"This is not the trace of a document ({type(error).__name__}: {error}).") from None

    def save(self, path: str | Path) -> Path:
        """Write the trace to `path`, whole or not at all; a name ending in .gz is compressed."""
        return trace_file.save(self.to_json(), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "DocumentTrace":
        """Read a trace that `save` wrote."""
        return cls.from_json(trace_file.load(Path(path)))

    def draw(self, path: str | Path, **options: Any) -> Path:
        """Draw into an .html file."""
        path = Path(path)
        if path.suffix.lower() != ".html":
            raise ConfigError(f"A document is drawn into a file ending in .html; got '{path.name}'.")
        return trace_file.write_whole(self.to_html(**options).encode("utf-8"), path)

    def to_html(self, **options: Any) -> str:
        """One self-contained page."""
        return drawing.page(self, chosen(None, options, ("title", "palette"), "a document's page"))

    def to_terminal(self, **options: Any) -> str:
        """The text with its weights for a terminal: coloured, or with marks where colour=False."""
        known = ("width", "colour", "palette")
        return drawing.terminal(self, chosen(None, options, known, "a document in a terminal"))

    def _repr_html_(self) -> str:
        return notebook(drawing.page(self, Show()), 480, script=False)
