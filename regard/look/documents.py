"""The attention of a document classifier: the weight of each sentence, and of each word within its sentence.

    logits, weights = look_at(model, words, lengths, counts)        # weights of both levels, for every document
    trace = DocumentTrace.of(text, spans, weights[0], probabilities)
    trace.draw("review.html"); trace.to_terminal()

A word is drawn with a shade: its weight times the square root of its sentence's weight, so that the important words of
unimportant sentences stay visible (Yang 2016, section 3.6); the darkest word of the document has the darkest colour.
Sentences that matter have a warm bar beside them, with the weight in hundredths.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ConfigError, DataError
from regard.look import trace_file
from regard.look.html import Page, draw_into, envelope
from regard.look.palette import ink_on, mix, paint, palette
from regard.look.record import Recorded, record
from regard.look.table import chosen
from regard.models.document import DocumentClassifier, groups
from regard.text.visible import columns, label, visible, wrap

VERSION = 1
LEVELS = 16  # different shades
_BARS = ("#fffaf5", "#fde0c5", "#f9bc8b", "#f08f4f", "#d9622b", "#a8410f")  # sentence weight: white to burnt orange
_STYLE = """
body{margin:2rem auto;max-width:52rem;padding:0 1rem;font:1rem/1.9 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:1.1rem}table{border-collapse:collapse;width:100%}td{vertical-align:top;padding:.2rem .6rem}
td.bar{width:2.5rem;text-align:right;font-variant-numeric:tabular-nums;font-size:.8rem}
span{border-radius:.2rem;padding:.05rem .1rem}ul{list-style:none;padding:0;font-size:.9rem}
p{font-size:.85rem;color:#5b6470}tr:target,td:focus{outline:2px solid #d55e00}
"""
_SHADE = (
    "The number beside a sentence is its weight in hundredths; the shade of a word is its weight within the sentence "
    "times the square root of the sentence's weight"
)
_UNDER = f"{_SHADE}, the darkest word being the largest."
_STARS = f"{_SHADE}: **word** has at least half of the largest, *word* a quarter."


class DocumentWeights(NamedTuple):
    """The weights of one document. A sentence without words has weight 0 and no words."""

    sentences: list[float]
    words: list[list[float]]  # for each sentence


@torch.inference_mode()
def look_at(
    model: DocumentClassifier, words: Tensor, lengths: Tensor, counts: Tensor
) -> tuple[Tensor, list[DocumentWeights]]:
    """Read documents as `DocumentClassifier.forward` does: the logits [B, C], and the weights of both levels."""
    with record(model) as seen:
        logits = model(words, lengths, counts)
    if len(words) and not len(seen):
        raise ConfigError(
            f"A document model with pooling {model.config.pooling!r} has no attention; "
            f"train one with model.pooling = 'attention'."
        )
    weights = _rows(seen, "words.pool.attention", lengths)  # N lists
    owner = torch.repeat_interleave(torch.arange(len(counts)), counts.cpu())  # [N]
    written = lengths.cpu() > 0  # [N]
    whole = _rows(seen, "sentences.pool.attention", torch.bincount(owner[written], minlength=len(counts)))  # B lists
    sentences, documents = iter(weights), []
    for count, document in zip(counts.tolist(), whole, strict=True):
        read, shares = [next(sentences) for _ in range(count)], iter(document)
        documents.append(DocumentWeights([next(shares) if words_seen else 0.0 for words_seen in read], read))
    return logits, documents


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
        """What is drawn for each word: its weight times the square root of the sentence's."""
        return [weight * math.sqrt(self.weight) for _, _, weight in self.words]


@dataclass(frozen=True)
class DocumentTrace:
    """A document, its class probabilities, and the weights of its sentences and words."""

    text: str
    sentences: tuple[SeenSentence, ...]
    probabilities: Mapping[str, float]

    def __post_init__(self) -> None:
        for one in self.sentences:
            spans = [(one.start, one.end), *((start, end) for start, end, _ in one.words)]
            if any(not 0 <= start <= end <= len(self.text) for start, end in spans):
                raise DataError(f"A sentence at {one.start}..{one.end} lies outside its text of {len(self.text)}.")

    @classmethod
    def of(
        cls,
        text: str,
        spans: Sequence[Sequence[tuple[int, int]]],
        weights: DocumentWeights,
        probabilities: Mapping[str, float],
    ) -> "DocumentTrace":
        """A trace of the words' spans, sentence by sentence, and the weights of `look_at`."""
        sentences = []
        for words, weight, each in zip(spans, weights.sentences, weights.words, strict=True):
            if words:
                weighed = tuple((*span, one) for span, one in zip(words, each, strict=True))
                sentences.append(SeenSentence(words[0][0], words[-1][1], weight, weighed))
        return cls(text, tuple(sentences), dict(probabilities))

    def to_json(self) -> str:
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
            return cls(tree["text"], tuple(sentences), tree["probabilities"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"This is not the trace of a document ({type(error).__name__}: {error}).") from None

    def save(self, path: str | Path) -> Path:
        """Write the trace to `path`, whole or not at all; a name ending in .gz is compressed."""
        return trace_file.save(self.to_json(), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "DocumentTrace":
        return cls.from_json(trace_file.load(Path(path)))

    def draw(self, path: str | Path | None = None, **options: Any) -> Path | Page:
        """Draw into a .png, .svg, .pdf or .html file, or without a path for a notebook; the options are those of
        `to_html`, and `dpi` for a still picture."""

        def still(ending: str) -> bytes:
            from regard.look.draw import document  # matplotlib is imported only when a still picture is drawn

            show = chosen(None, options, ("title", "palette", "dpi"), "a document's picture")
            hues, rows = palette(show.palette or "blue"), []
            for one in self.sentences:
                lines = [
                    [document.Word(gap, word, mix(hues, level / (LEVELS - 1))) for gap, word, _, level in line]
                    for line in self._lines(one, document.WIDTH)
                ]
                rows.append(document.Row(f"{100 * one.weight:.0f}", mix(_BARS, one.weight), lines))
            odds = "   ".join(f"{name} {odds:.3f}" for name, odds in self._ranked())
            heading = visible(f"{show.title}: {odds}" if show.title else odds)
            return document.render(heading, rows, _UNDER, ending, show.dpi)

        return draw_into(path, lambda: self.to_html(**options), still)

    def to_html(self, **options: Any) -> Page:
        """One self-contained page without scripts; the options are `title` and `palette`."""
        show = chosen(None, options, ("title", "palette"), "a document's page")
        style = _STYLE + _classes("w", palette(show.palette or "blue")) + _classes("s", _BARS)
        name = show.title or label(self.text, 60)
        rows = "\n".join(self._row(one, at) for at, one in enumerate(self.sentences))
        odds = "".join(f"<li><b><bdi>{escape(visible(key))}</bdi></b> {odds:.3f}</li>" for key, odds in self._ranked())
        heading = f'<h1 dir="auto">{escape(visible(name))}</h1>'
        body = f"{heading}\n<ul>{odds}</ul>\n<table>\n{rows}\n</table>\n<p>{_UNDER}</p>\n"
        return Page(envelope(name, style, body))

    def to_terminal(self, **options: Any) -> str:
        """The document as lines of about `width` columns: the sentence's weight in hundredths, then its words; and a
        legend.

        Without colours a word of at least a quarter of the largest shade is written as *word*, from a half as
        **word**. The other option is `palette`.
        """
        show = chosen(None, options, ("width", "colour", "palette"), "a document in a terminal")
        hues = palette(show.palette or "blue") if show.coloured else None
        lines = ["  ".join(f"{visible(name)} {value:.3f}" for name, value in self._ranked()), ""]
        for one in self.sentences:
            number = f"{100 * one.weight:3.0f}"
            head = paint(number, _BARS, _level(one.weight) / (LEVELS - 1)) if hues else number
            for at, line in enumerate(self._lines(one, show.across - 5)):
                text = "     " if at else f"{head}  "
                for place, (gap, word, _, level) in enumerate(line):
                    stars = "**" if level >= LEVELS // 2 else "*" if level >= LEVELS // 4 else ""
                    shown = paint(word, hues, level / (LEVELS - 1)) if hues else f"{stars}{word}{stars}"
                    text += gap + shown if place else shown
                lines.append(text)
        lines += ["", wrap(_UNDER if hues else _STARS, show.across)]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        return self.to_html()._repr_html_()

    @cached_property
    def _darkest(self) -> float:
        return max((shade for one in self.sentences for shade in one.shades()), default=0.0)

    def _ranked(self) -> list[tuple[str, float]]:
        return sorted(self.probabilities.items(), key=lambda item: -item[1])

    def _words(self, sentence: SeenSentence) -> Iterator[tuple[str, str, float, int]]:
        """For each word: the text before it, the word, its weight and the level of its shade."""
        place = sentence.start
        for (start, end, weight), shade in zip(sentence.words, sentence.shades(), strict=True):
            gap = self.text[place:start]  # white space is one space, everything else is made visible
            shown = "" if not gap else " " if gap.isspace() else visible(gap)
            yield shown, visible(self.text[start:end]), weight, _level(shade / (self._darkest or 1.0))
            place = end

    def _row(self, sentence: SeenSentence, at: int) -> str:
        parts = [
            f'{escape(gap)}<span class="w{level}" title="{weight:.3f}">{escape(word)}</span>'
            for gap, word, weight, level in self._words(sentence)
        ]
        return (
            f'<tr id="s{at}"><td class="bar s{_level(sentence.weight)}" title="{sentence.weight:.4f}">'
            f'{100 * sentence.weight:.0f}</td><td dir="auto">{"".join(parts)}</td></tr>'
        )

    def _lines(self, sentence: SeenSentence, width: int) -> list[list[tuple[str, str, float, int]]]:
        """The words of a sentence in lines of `width` columns, if none is longer. What stands before the first word of
        a line is not written."""
        lines: list[list[tuple[str, str, float, int]]] = [[]]
        used = 0
        for one in self._words(sentence):
            gap, word = map(columns, one[:2])
            if lines[-1] and used + gap + word > width:
                lines.append([])
                used = 0
            used += gap + word if lines[-1] else word
            lines[-1].append(one)
        return lines


def _level(value: float) -> int:
    return min(LEVELS - 1, max(0, round(value * (LEVELS - 1))))


def _classes(letter: str, colours: tuple[str, ...]) -> str:
    rules = []
    for level in range(LEVELS):
        back = mix(colours, level / (LEVELS - 1))
        rules.append(f".{letter}{level}{{background:#{bytes(back).hex()};color:{ink_on(back)}}}")
    return "".join(rules)
