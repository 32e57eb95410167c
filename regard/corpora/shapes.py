"""`shapes`: drawn pictures of coloured shapes in a grid, captions of their arrangement, and the cell of each shape.

    a red circle left of a blue square and above a green cross

One to three objects are named, each of another colour, in the order of `COLOURS`; the others are in the row or the
column of the first. Grey shapes may be anywhere and are never named. Picture and caption are a pure function of seed
and number, and the caption follows from the picture, so that captions and attention can be checked exactly.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

COLOURS = {
    "red": (214, 39, 40),
    "yellow": (240, 200, 30),
    "green": (44, 150, 60),
    "blue": (40, 90, 200),
    "purple": (140, 60, 170),
    "black": (30, 30, 30),
}
GREY = (176, 176, 176)
PAPER = (246, 244, 238)
CELL = 16  # pixels on a side of a cell
GRID = 4  # cells on a side of a picture
_MOST_GREY = 3

Plane = NDArray[np.floating[Any]]


class Thing(NamedTuple):
    """A shape in a cell; cells count row by row from the top left."""

    shape: str
    colour: str  # "" is grey: not named
    cell: int
    size: float  # half its width, in pixels
    shift: tuple[float, float]  # of its middle from the middle of the cell: down, right


class Scene(NamedTuple):
    """The content of a picture. The named things come first, in the order of the caption."""

    things: tuple[Thing, ...]
    caption: str
    cells: tuple[int | None, ...]  # the cell that each word of the caption describes, or None


def scene(number: int, seed: int = 1, grid: int = GRID) -> Scene:
    """Scene `number` of the corpus `seed`."""
    if grid < 3:
        raise DataError(f"The pictures of shapes need a grid of at least 3 x 3 cells; got {grid} x {grid}.")
    draw = random.Random(f"shapes:{seed}:{number}")
    named = draw.choices((1, 2, 3), weights=(1, 3, 3))[0]
    colours = sorted(draw.sample(list(COLOURS), named), key=list(COLOURS).index)
    first = draw.randrange(grid * grid)
    cells, (row, column) = [first], divmod(first, grid)
    in_line = [c for c in range(grid * grid) if c != first and (c // grid == row or c % grid == column)]
    while len(cells) < named:
        cell = draw.choice(in_line)
        if cell not in cells:
            cells.append(cell)
    free = [cell for cell in range(grid * grid) if cell not in cells]
    greys = draw.sample(free, draw.randint(0, _MOST_GREY))
    things = tuple(
        _thing(draw, colour, cell)
        for colour, cell in zip([*colours, *[""] * len(greys)], [*cells, *greys], strict=True)
    )
    words, spoken = _describe(things[:named], grid)
    return Scene(things, " ".join(words), tuple(spoken))


def _thing(draw: random.Random, colour: str, cell: int) -> Thing:
    size = draw.uniform(4.6, 6.6)
    room = CELL / 2 - size - 1
    shift = (draw.uniform(-room, room), draw.uniform(-room, room))
    return Thing(draw.choice(list(SHAPES)), colour, cell, size, shift)


def _describe(things: tuple[Thing, ...], grid: int) -> tuple[list[str], list[int | None]]:
    words: list[str] = []
    spoken: list[int | None] = []
    for place, thing in enumerate(things):
        linking = [] if place == 0 else _relation(things[0].cell, thing.cell, grid)
        if place > 1:
            linking.insert(0, "and")
        words += [*linking, "a", thing.colour, thing.shape]
        spoken += [*[None] * (len(linking) + 1), thing.cell, thing.cell]
    return words, spoken


def _relation(first: int, other: int, grid: int) -> list[str]:
    """The first cell relative to the other."""
    row, column = first // grid - other // grid, first % grid - other % grid
    if row == 0:
        return ["left", "of"] if column < 0 else ["right", "of"]
    return ["above"] if row < 0 else ["below"]


# The distance of a point inside a shape, in units of its size, negative outside; points are relative to its centre.
SHAPES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "circle": lambda down, right: 1 - np.hypot(down, right),
    "square": lambda down, right: 0.86 - np.maximum(abs(down), abs(right)),
    "triangle": lambda down, right: np.minimum(0.85 - down, (0.5 * (down + 1) - abs(right)) / 1.12),
    "diamond": lambda down, right: (1 - abs(down) - 1.35 * abs(right)) / 1.68,
    "cross": lambda down, right: np.maximum(
        np.minimum(0.3 - abs(down), 0.95 - abs(right)), np.minimum(0.3 - abs(right), 0.95 - abs(down))
    ),
}
_POINTS = np.arange(CELL) + 0.5 - CELL / 2  # the pixels of a cell, relative to its centre


def draw_scene(shown: Scene, grid: int = GRID) -> NDArray[np.uint8]:
    """The picture of a scene, [16 grid, 16 grid, 3], with anti-aliased edges."""
    pixels = np.full((grid * CELL, grid * CELL, 3), PAPER, dtype=np.uint8)
    for thing in shown.things:
        down, right = ((_POINTS - shift) / thing.size for shift in thing.shift)
        inside = SHAPES[thing.shape](down[:, None], right[None, :])  # [16, 16]
        ink = (inside * thing.size + 0.5).clip(0, 1)[..., None]  # [16, 16, 1]
        row, column = divmod(thing.cell, grid)
        part = pixels[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
        part[:] = np.rint(ink * COLOURS.get(thing.colour, GREY) + (1 - ink) * PAPER)
    return pixels


def vocabulary_words() -> list[str]:
    """All words of captions."""
    return ["a", "and", "left", "right", "of", "above", "below", *COLOURS, *SHAPES]
