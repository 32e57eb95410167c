"""What the lectures in `course/` share: a corpus that tiny models learn in seconds, pictures, and checks of exercises.

    print(check("2.1", softmax))        "2.1: right.", or one sentence about what was expected

An exercise has a number as its answer, or a function that is compared with regard's own on a few inputs.
"""

import ast
import base64
import inspect
import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.cells import update_keeps
from regard.core.masks import causal_mask
from regard.core.normalise import softmax
from regard.core.positions import sinusoid
from regard.core.scores import scaled_dot
from regard.errors import ConfigError, check_known
from regard.evaluate.alignment import score_alignments
from regard.sealed import write_atomically
from regard.text.pharaoh import Gold

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


@dataclass(frozen=True)
class Number:
    """An exercise whose answer is a number; `why` explains it."""

    value: float
    why: str

    def check(self, answer: Any) -> str:
        """What is wrong, or nothing."""
        if isinstance(answer, bool) or not isinstance(answer, int | float | np.number):
            return f"the answer is a number; got {_kind(answer)}."
        return "" if math.isclose(float(answer), self.value, rel_tol=1e-3) else f"not {answer:g}. {self.why}"


@dataclass(frozen=True)
class Function:
    """An exercise whose answer is a function of `names`, numpy arrays: it must agree with `expected` on all `cases`."""

    names: tuple[str, ...]
    expected: Callable[..., Any]
    cases: tuple[tuple[Any, ...], ...]

    def check(self, answer: Any) -> str:
        """What is wrong, or nothing."""
        wanted = f"the answer is a function of ({', '.join(self.names)})"
        if not callable(answer):
            return f"{wanted}; got {_kind(answer)}."
        try:
            inspect.signature(answer).bind(*self.names)
        except (TypeError, ValueError):
            return f"{wanted}; yours takes other arguments."
        for case in self.cases:
            given = ", ".join(f"{name}={_short(value)}" for name, value in zip(self.names, case, strict=True))
            right = np.asarray(self.expected(*case))
            try:
                got = np.asarray(answer(*case))
                same = got.shape == right.shape and np.allclose(got.astype(float), right.astype(float), atol=1e-5)
            except Exception as error:  # whatever the answer of a learner raises
                return f"with {given} (numpy arrays) your function raised {type(error).__name__}: {error}."
            if not same:
                return f"with {given} the result is {_short(right)}; yours is {_short(got)}."
        return ""


def check(number: str, answer: Any) -> Verdict:
    """Check the answer to an exercise such as "2.3".

    >>> from exercises import check
    >>> check("3.1", 8)
    3.1: not 8. A sum of 64 independent products with variance 1 has variance 64.
    >>> check("3.1", 64).right
    True
    """
    check_known("exercise", str(number), EXERCISES)
    wrong = EXERCISES[number].check(answer)
    return Verdict(not wrong, f"{number}: {wrong or 'right.'}")


def _kind(answer: Any) -> str:
    return "nothing yet" if answer is None or answer is ... else f"a {type(answer).__name__}"


def _short(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return str(sorted(value))
    return np.array2string(np.asarray(value), precision=3, separator=", ", threshold=12).replace("\n", "")


def _numpy(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """A function of tensors as one of arrays."""
    return lambda *arrays: function(*(torch.as_tensor(array) for array in arrays)).numpy()


def _aer(found: set[Any], sure: set[Any], possible: set[Any]) -> float:
    return score_alignments([found], [Gold(frozenset(sure), frozenset(possible))]).aer


def _random(*shape: int) -> Any:
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape)


_LINKS = {(0, 0), (1, 2), (2, 1)}
_VISIBLE = np.array([[True, True, False], [False, False, False]])
EXERCISES: dict[str, Number | Function] = {
    "1.1": Number(4 * 96 * (64 + 96), "Three gates and a candidate each read the word and the state: 4 n (m + n)."),
    "1.2": Function(
        ("state", "new", "update"),
        _numpy(lambda state, new, update: update_keeps(update, state, new)),
        ((_random(4), _random(4) + 1, np.array([0.0, 1.0, 0.5, 0.2])),),
    ),
    "1.3": Number(1.0, "The vector has the same size for every sentence: the ratio is 1."),
    "2.1": Function(("scores",), _numpy(softmax), ((_random(5),), (np.array([1000.0, 0.0]),))),
    "2.2": Function(("weights", "values"), lambda weights, values: weights @ values, ((_random(3), _random(3, 4)),)),
    "2.3": Function(("scores", "mask"), _numpy(softmax), ((_random(2, 3), _VISIBLE),)),
    "2.4": Number(math.log(8), "Uniform weights 1/S have the entropy log S, the largest of all."),
    "3.1": Number(64, "A sum of 64 independent products with variance 1 has variance 64."),
    "3.2": Function(("query", "keys"), _numpy(scaled_dot), ((_random(3, 9), _random(5, 9)),)),
    "3.3": Function(
        ("t", "size", "half_width"),
        lambda t, size, half_width: np.abs(np.arange(size) - t) <= half_width,
        ((0, 6, 2), (3, 6, 1), (5, 6, 10)),
    ),
    "3.4": Function(
        ("found", "sure", "possible"),
        _aer,
        ((_LINKS, _LINKS, _LINKS), (_LINKS, {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)}), ({(0, 1)}, _LINKS, _LINKS)),
    ),
    "4.1": Function(("size",), lambda size: causal_mask(size).numpy(), ((1,), (4,))),
    "4.2": Function(
        ("length", "width"), lambda length, width: sinusoid(torch.arange(length), width).numpy(), ((3, 4), (7, 8))
    ),
    "4.3": Number(4 * 64 * 64, "Queries, keys, values and the output have one matrix [64, 64] each, split into heads."),
    "5.1": Number(14 * 14, "Every cell of the grid is a slot of the memory."),
    "5.2": Function(
        ("mask",),
        lambda mask: mask / max(1, mask.sum()),
        ((np.array([True, True, False]),), (np.array([False, False]),)),
    ),
    "5.3": Function(("p", "q"), lambda p, q: np.abs(p - q).sum() / 2, ((np.array([0.7, 0.3]), np.array([0.1, 0.9])),)),
}
