"""A document as text: each sentence with its weight, each word with a shade.

A word's shade is its weight times the square root of its sentence's weight, so that the important words of unimportant
sentences stay visible (Yang 2016); the darkest word of the document has the darkest colour. Sentences that matter have
a warm bar beside them, with the weight in hundredths.
"""

import html
from collections.abc import Sequence
from typing import Any, Protocol

from regard.errors import ConfigError
from regard.look.html import envelope
from regard.look.palette import ink_on, mix, palette, parse
from regard.look.show import Show
from regard.look.text import columns, label, visible

LEVELS = 16  # different shades
_BARS = ("#fffaf5", "#fde0c5", "#f9bc8b", "#f08f4f", "#d9622b", "#a8410f")  # sentence weight: white to burnt orange
_STYLE = """
body{margin:2rem auto;max-width:52rem;padding:0 1rem;font:1rem/1.9 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:1.1rem}table{border-collapse:collapse;width:100%}td{vertical-align:top;padding:.2rem .6rem}
td.bar{width:2.5rem;text-align:right;font-variant-numeric:tabular-nums;font-size:.8rem}
span{border-radius:.2rem;padding:.05rem .1rem}ul{list-style:none;padding:0;font-size:.9rem}
p{font-size:.85rem;color:#5b6470}tr:target,td:focus{outline:2px solid #d55e00}
"""


class Weighted(Protocol):
    """A sentence of a trace: where it is, its weight, and its words as (start, end, weight)."""

    start: int
    end: int
    weight: float
    words: tuple[tuple[int, int, float], ...]

    def shades(self) -> list[float]: ...


class Traced(Protocol):
    """What a drawing needs of a document's trace."""

    @property
    def text(self) -> str: ...
    @property
    def sentences(self) -> Sequence[Any]: ...
    @property
    def probabilities(self) -> Any: ...


def page(trace: Traced, show: Show) -> str:
    """One self-contained page without scripts; no text can break out of it, and nothing is loaded from anywhere."""
    style = _STYLE + _classes("w", palette(show.palette or "blue")) + _classes("s", _BARS)
    name = show.title or label(trace.text, 60)
    top = _darkest(trace)
    rows = "\n".join(_row(trace, sentence, top, at) for at, sentence in enumerate(trace.sentences))
    odds = "".join(
        f"<li><b><bdi>{html.escape(visible(key))}</bdi></b> {value:.3f}</li>" for key, value in _ranked(trace)
    )
    body = (
        f'<h1 dir="auto">{html.escape(visible(name))}</h1>\n<ul>'
        f"{odds}</ul>\n<table>\n{rows}\n</table>\n"
        "<p>The number beside a sentence is its weight in hundredths; the shade of a word is its weight within the "
        "sentence times the square root of the sentence's weight, the darkest word being the largest.</p>\n"
    )
    return envelope(name, style, body)


def _row(trace: Traced, sentence: Weighted, top: float, at: int) -> str:
    parts = []
    place = sentence.start
    for (start, end, weight), level in zip(sentence.words, _levels(sentence, top), strict=True):
        parts.append(html.escape(_between(trace.text, place, start)))
        word = html.escape(visible(trace.text[start:end]))
        parts.append(f'<span class="w{level}" title="{weight:.3f}">{word}</span>')
        place = end
    bar = _level(sentence.weight)
    number = f"{100 * sentence.weight:.0f}"
    return (
        f'<tr id="s{at}"><td class="bar s{bar}" title="{sentence.weight:.4f}">{number}</td>'
        f'<td dir="auto">{"".join(parts)}</td></tr>'
    )


def _between(text: str, start: int, end: int) -> str:
    """The text between two words: white space is one space, everything else is made visible."""
    gap = text[start:end]
    return "" if not gap else " " if gap.isspace() else visible(gap)


def _darkest(trace: Traced) -> float:
    return max((shade for one in trace.sentences for shade in one.shades()), default=0.0)


def _levels(sentence: Weighted, top: float) -> list[int]:
    return [_level(shade / top if top else 0.0) for shade in sentence.shades()]


def _level(value: float) -> int:
    return min(LEVELS - 1, max(0, round(value * (LEVELS - 1))))


def _classes(letter: str, colours: tuple[str, ...]) -> str:
    rules = []
    for level in range(LEVELS):
        red, green, blue = mix(colours, level / (LEVELS - 1))
        ink = ink_on((red, green, blue))
        rules.append(f".{letter}{level}{{background:#{red:02x}{green:02x}{blue:02x};color:{ink}}}")
    return "".join(rules)


def _ranked(trace: Traced) -> list[tuple[str, float]]:
    return sorted(trace.probabilities.items(), key=lambda item: -item[1])


def terminal(trace: Traced, show: Show) -> str:
    """The document as lines of about `show.width` columns: the sentence's weight in hundredths, then its words.

    Without colour a word of at least a quarter of the largest shade is written as *word*, from a half as **word**.
    """
    width, colour = show.width, show.colour
    if width < 40:
        raise ConfigError(f"width must be at least 40 columns; got {width}.")
    hues, top = palette(show.palette or "blue"), _darkest(trace)
    lines = ["  ".join(f"{visible(name)} {value:.3f}" for name, value in _ranked(trace)), ""]
    for sentence in trace.sentences:
        number = f"{100 * sentence.weight:3.0f}"
        head = _painted(number, _BARS, _level(sentence.weight)) if colour else number
        levels = _levels(sentence, top)
        body = _wrapped(trace, sentence, levels, width - 5, hues if colour else None)
        lines += [f"{head}  {first}" if not at else f"     {first}" for at, first in enumerate(body)]
    return "\n".join(lines) + "\n"


def _wrapped(
    trace: Traced, sentence: Weighted, levels: list[int], width: int, hues: tuple[str, ...] | None
) -> list[str]:
    lines, used, place = [""], 0, sentence.start
    for (start, end, _), level in zip(sentence.words, levels, strict=True):
        word, gap = visible(trace.text[start:end]), _between(trace.text, place, start)
        place = end
        if used and used + len(gap) + columns(word) > width:
            lines.append("")
            used, gap = 0, ""
        shown = _painted(word, hues, level) if hues else _marked(word, level)
        lines[-1] += gap + shown
        used += len(gap) + columns(word)
    return lines


def _marked(word: str, level: int) -> str:
    stars = "**" if level >= LEVELS // 2 else "*" if level >= LEVELS // 4 else ""
    return f"{stars}{word}{stars}"


def _painted(text: str, hues: tuple[str, ...], level: int) -> str:
    back = mix(hues, level / (LEVELS - 1))
    ink = parse(ink_on(back))
    return f"\x1b[48;2;{back[0]};{back[1]};{back[2]};38;2;{ink[0]};{ink[1]};{ink[2]}m{text}\x1b[0m"
