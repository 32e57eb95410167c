"""What the lectures in `course/` share: a corpus that tiny models learn in seconds, pictures, and checks of exercises.

    print(check("2.1", softmax))        "2.1: right.", or what is wrong with the answer, and a hint

The answer to an exercise is a number, of which only a digest is here, or a function that is tried on a few inputs. This
file is part of every notebook, so it contains no answers; they are in answers.py.
"""

import ast
import base64
import hashlib
import inspect
import math
import os
import random
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.errors import ConfigError, check_known
from regard.sealed import write_atomically

ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FRENCH = ["zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"]
UPDATES = "COURSE_UPDATES"  # the environment variable that shortens all training, for tests
_KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


class Cell(NamedTuple):
    """A cell of a lecture: text in Markdown, or code; `line` is where it begins in the file, from 0."""

    text: bool
    body: str
    line: int


def cells(script: str) -> list[Cell]:
    """The cells of a percent script, in order; what stands before the first mark is the docstring and is left out."""
    found: list[Cell] = []
    lines = script.split("\n")
    marks = [number for number, line in enumerate(lines) if re.match(r"# %%", line)]
    for begin, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        text = "[markdown]" in lines[begin]
        body = lines[begin + 1 : end]
        body = [re.sub(r"^# ?", "", line) for line in body] if text else body
        found.append(Cell(text, "\n".join(body).strip("\n"), begin + 1))
    return found


def narrate() -> None:
    """Print the text and the questions too where a lecture runs as a script; a notebook shows them anyway.

    Called in the first cell, this runs all cells in order, prints the text between them, and exits.
    """
    script = sys.modules["__main__"]
    path = Path(getattr(script, "__file__", None) or "")
    if not re.match(r"\d_", path.name) or hasattr(script, "narrated"):
        return
    script.narrated = True  # type: ignore[attr-defined]
    for text, body, line in cells(path.read_text(encoding="utf-8")):
        if text:
            print(f"\n{body}\n", flush=True)
            continue
        tree = ast.increment_lineno(ast.parse(body), line)  # errors name the line of the file
        exec(compile(tree, str(path), "exec"), vars(script))
    sys.exit()


class Verdict(NamedTuple):
    """Whether an answer is right, and a sentence about it."""

    right: bool
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


class Picture(NamedTuple):
    """A picture file as a notebook shows it."""

    path: Path

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.path.read_bytes()).decode("ascii")
        return f'<img src="data:{_KINDS[self.path.suffix]};base64,{data}" alt="{self.path.stem}">'


def picture(path: str | Path) -> Picture:
    """Show a .png or .svg file: the last line of a cell."""
    path = Path(path)
    if path.suffix not in _KINDS:
        raise ConfigError(f"A lecture shows .png and .svg files; got '{path.name}'.")
    return Picture(path)


def updates(full: int) -> int:
    """The number of training updates: `full`, or COURSE_UPDATES where that is set and smaller."""
    most = os.environ.get(UPDATES, "")
    if most and not most.isdecimal():
        raise ConfigError(f"{UPDATES} must be a whole number of updates; got '{most}'.")
    return min(full, int(most)) if most else full


def digits(size: int, seed: int, shortest: int = 4, longest: int = 12) -> list[tuple[str, str]]:
    """Numbers in English digits, and in French digits backwards: ("three one", "un trois"). Word s is aligned with
    word S - 1 - s of the target, so every attention map has a right answer."""
    draw = random.Random(f"digits:{seed}")
    rows = [draw.choices(range(10), k=draw.randint(shortest, longest)) for _ in range(size)]
    return [(" ".join(ENGLISH[d] for d in row), " ".join(FRENCH[d] for d in row[::-1])) for row in rows]


def write_pairs(pairs: Iterable[tuple[str, str]], folder: str | Path) -> dict[str, str]:
    """Write train.en and train.fr into `folder`: the arguments `source` and `target` of `regard.train`."""
    sides = dict(zip(("source", "target"), zip(*pairs, strict=True), strict=True))
    names = {"source": Path(folder) / "train.en", "target": Path(folder) / "train.fr"}
    for side, lines in sides.items():
        write_atomically(names[side], "".join(f"{line}\n" for line in lines).encode("utf-8"))
    return {side: str(path) for side, path in names.items()}


def digest(number: str, value: float) -> str:
    """What is kept of the answer to an exercise: a number that is not whole counts with three digits."""
    text = f"{value:.0f}" if math.isclose(value, round(value), rel_tol=1e-9) else f"{value:.3g}"
    return hashlib.sha256(f"{number}: {text}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Number:
    """An exercise whose answer is a number."""

    digest: str
    hint: str

    def check(self, number: str, answer: Any) -> str:
        """What is wrong, or nothing."""
        if isinstance(answer, bool) or not isinstance(answer, int | float | np.number):
            return f"the answer is a number; got {_kind(answer)}."
        right = math.isfinite(answer) and digest(number, float(answer)) == self.digest
        return "" if right else f"not {answer:g}. {self.hint}"


@dataclass(frozen=True)
class Function:
    """An exercise whose answer is a function of `names`, numpy arrays, with the results of a few cases."""

    names: tuple[str, ...]
    cases: tuple[tuple[tuple[Any, ...], Any], ...]
    hint: str

    def check(self, number: str, answer: Any) -> str:
        """What is wrong, or nothing."""
        wanted = f"the answer is a function of ({', '.join(self.names)})"
        if not callable(answer):
            return f"{wanted}; got {_kind(answer)}."
        try:
            inspect.signature(answer).bind(*self.names)
        except (TypeError, ValueError):
            return f"{wanted}; yours takes other arguments."
        for inputs, result in self.cases:
            right = np.asarray(result)
            given = ", ".join(f"{name}={_short(value)}" for name, value in zip(self.names, inputs, strict=True))
            try:
                got = np.asarray(answer(*inputs))
                same = got.shape == right.shape and np.allclose(got.astype(float), right.astype(float), atol=1e-3)
            except Exception as error:  # whatever the answer of a learner raises
                return f"with {given} (numpy arrays) your function raised {type(error).__name__}: {error}."
            if got.shape != right.shape:
                return f"with {given} the result has the shape {list(right.shape)}; yours has {list(got.shape)}."
            if not same:
                return f"with {given} the result is not {_short(got)}. {self.hint}"
        return ""


def check(number: str, answer: Any) -> Verdict:
    """Check the answer to an exercise such as "2.3".

    >>> from exercises import check
    >>> check("3.1", 8)
    3.1: not 8. What is the variance of one product, and of a sum of independent ones?
    """
    check_known("exercise", str(number), EXERCISES)
    wrong = EXERCISES[number].check(number, answer)
    return Verdict(not wrong, f"{number}: {wrong or 'right.'}")


def _kind(answer: Any) -> str:
    return "nothing yet" if answer is None or answer is ... else f"a {type(answer).__name__}"


def _short(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return str(sorted(value))
    shown = np.array2string(np.asarray(value), precision=3, separator=", ", threshold=12).replace("\n", "")
    return shown.rstrip(".")  # the number 0., at the end of a sentence


_TWO, _THREE, _FOUR = (np.array(row) for row in ([0.7, 0.3], [2.0, 0.0, 1.0], [1.0, -1.0, 0.5, 2.0]))
_SEEN = np.array([[True, True, False], [False, False, False]])
_LINKS = {(0, 0), (1, 2), (2, 1)}
EXERCISES: dict[str, Number | Function] = {
    "1.1": Number("f113f9f6bda4eec5", "There are three gates and a candidate. What does each of them read?"),
    "1.2": Function(
        ("state", "new", "update"),
        (((_FOUR, _FOUR + 1, np.array([0.0, 1.0, 0.5, 0.2])), [2.0, -1.0, 1.0, 2.8]),),
        "The gate z says how much of the old state stays.",
    ),
    "1.3": Number("e009e3912712c3a3", "How large is the vector that the decoder gets, for each of the two?"),
    "2.1": Function(
        ("scores",),
        (((_THREE,), [0.6652, 0.09, 0.2447]), ((np.array([1000.0, 0.0]),), [1.0, 0.0])),
        "The weights sum to 1, and adding the same number to every score does not change them.",
    ),
    "2.2": Function(
        ("weights", "values"),
        (((_TWO, np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])), [3.7, 7.4, 11.1]),),
        "A slot with weight 1 gives its own value.",
    ),
    "2.3": Function(
        ("scores", "mask"),
        (((np.array([_THREE, _THREE]), _SEEN), [[0.8808, 0.1192, 0.0], [0.0, 0.0, 0.0]]),),
        "A hidden slot has weight 0, whatever its score, and the visible ones of a row sum to 1.",
    ),
    "2.4": Number("8bb3b24dbf96260a", "Which weights have the largest entropy? Compute -sum w log w of them."),
    "3.1": Number("a61ffd8627b3f1d6", "What is the variance of one product, and of a sum of independent ones?"),
    "3.2": Function(
        ("query", "keys"),
        (((np.array([_FOUR]), np.array([_FOUR, -_FOUR, _FOUR[::-1]])), [[3.125, -3.125, 1.5]]),),
        "The standard deviation of the scores does not depend on the width D.",
    ),
    "3.3": Function(
        ("t", "size", "half_width"),
        (
            ((0, 4, 1), [True, True, False, False]),
            ((3, 6, 1), [False, False, True, True, True, False]),
            ((1, 3, 9), [True] * 3),
        ),
        "Local-m attends to |s - t| <= half_width.",
    ),
    "3.4": Function(
        ("found", "sure", "possible"),
        (
            ((_LINKS, _LINKS, _LINKS), 0.0),
            ((_LINKS, {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)}), 0.4),
            (({(0, 1)}, _LINKS, _LINKS), 1.0),
            ((_LINKS, {(0, 0), (1, 1)}, {(1, 2)}), 0.4),
        ),
        "Count the links that are found and sure, and those that are found and sure or possible.",
    ),
    "4.1": Function(
        ("size",),
        (((1,), [[True]]), ((3,), [[True, False, False], [True, True, False], [True, True, True]])),
        "Position t sees itself and what comes before it.",
    ),
    "4.2": Function(
        ("length", "width"),
        (((2, 4), [[0.0, 1.0, 0.0, 1.0], [0.8415, 0.5403, 0.01, 1.0]]),),
        "Columns 2i and 2i + 1 are the sine and the cosine of the same angle.",
    ),
    "4.3": Number(
        "633a5b5c0b43cd75", "Which matrices does it have, and does their size depend on the number of heads?"
    ),
    "4.4": Function(
        ("chances", "right"),
        (
            ((np.array([0.25, 0.25, 0.25, 0.25]), np.array([1, 0, 0, 0])), 0.0),
            ((np.array([0.9, 0.9, 0.2, 0.2]), np.array([1, 0, 0, 0])), 0.3),
            ((np.array([0.1, 0.7]), np.array([1, 1])), 0.6),
        ),
        "In each half of [0, 1], how far is the mean chance from the share of right ones? Weigh by its size.",
    ),
    "4.5": Function(
        ("layers",),
        (
            ((np.array([[[0.0, 1.0], [1.0, 0.0]]]),), [[0.5, 0.5], [0.5, 0.5]]),
            ((np.array([[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]),), [[0.5, 0.5], [0.25, 0.75]]),
        ),
        "A layer takes half of its attention and half of its input; the last layer reads what the ones before it made.",
    ),
    "4.6": Function(
        ("order", "counts", "chances"),
        (
            ((np.array([1, 0]), np.array([1]), np.array([[0.9, 0.3], [0.8, 0.1]])), 0.6),
            ((np.array([0, 1]), np.array([1, 2]), np.array([[0.9, 0.3], [0.8, 0.1]])), 0.45),
            ((np.array([2, 0, 1]), np.array([2, 2]), np.arange(9, 1, -1).reshape(2, 2, 2) / 10), 0.5),
        ),
        "The first k words of the order are removed together, and the others stay.",
    ),
    "5.1": Number("474bcf9dc7521553", "Every cell of the grid is a slot."),
    "5.2": Function(
        ("mask",),
        (((np.array([True, True, False]),), [0.5, 0.5, 0.0]), ((np.array([False, False]),), [0.0, 0.0])),
        "The weights of the visible slots are equal and sum to 1.",
    ),
    "5.3": Function(
        ("p", "q"),
        (((_TWO, np.array([0.1, 0.9])), 0.6), ((_TWO, _TWO), 0.0), ((np.array([1.0, 0.0]), np.array([0.0, 1.0])), 1.0)),
        "It is 0 for equal distributions and 1 for those without a common outcome.",
    ),
}
