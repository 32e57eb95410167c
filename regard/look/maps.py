"""Maps of a caption's attention over the cells of its picture: the numbers and the sentences of every drawing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.images import Pixels, read_picture
from regard.errors import ConfigError, DataError, numbered
from regard.look.table import Table, quoted
from regard.look.trace_data import Picture, TraceData
from regard.look.trace_file import fits

Cells = NDArray[np.float32]  # [rows, columns]
Region = tuple[int, int, int, int]  # top, left, bottom, right; the last ones included
_TOP = 5  # cells that the sentence under a map sums up


def size_of(trace: TraceData) -> Picture:
    """The picture's size and grid."""
    if trace.image is None:
        raise ConfigError("This trace has no picture; these views are for captions. Use the view matrix for text.")
    return trace.image


def background(picture: str | Path | Pixels | None, size: Picture) -> Pixels | None:
    """The square that the model saw, at least 224 pixels wide: read from a file, or pixels as they are."""
    if picture is None:
        return None
    if isinstance(picture, np.ndarray):
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise DataError(f"Pixels must be uint8 [H, W, 3]; got {picture.dtype} {list(picture.shape)}.")
        return picture
    return read_picture(picture, max(224, size.width))


def map_of(table: Table, step: int | None, size: Picture) -> Cells:
    """The weights of word `step` (from 0), or of all words together."""
    if step is None:
        return np.asarray(table.weights.sum(axis=0).reshape(size.grid), dtype=np.float32)
    if not fits(step, int) or not 0 <= step < len(table.rows):
        raise ConfigError(f"There is no word {step!r}: this caption has {numbered('word', len(table.rows))}.")
    return np.asarray(table.weights[step].reshape(size.grid), dtype=np.float32)


def describe(table: Table, step: int | None, cells: Cells) -> str:
    """One sentence about the map of a word, or of all words, for screen readers."""
    if not cells.size or not table.rows:
        return "Nothing was written."
    row, column = (int(at) for at in np.unravel_index(int(cells.argmax()), cells.shape))
    where = f"strongest at row {row + 1}, column {column + 1}, {cells[row, column]:.2f}"
    if step is None:
        unseen = int((cells < 0.05).sum())
        return f"All {len(table.rows)} words together: {where}; {unseen} of {cells.size} cells get less than 0.05."
    few = min(_TOP, cells.size)
    share = float(np.sort(cells, axis=None)[-few:].sum())
    return f"{quoted(table.rows[step])}: {where}; the top {few} cells hold {share:.2f}."


def region_of(cells: tuple[int, ...], grid: tuple[int, int]) -> Region:
    """(row, column), or the corners (top, left, bottom, right), as a region inside the grid."""
    listed = tuple(cells) if isinstance(cells, Sequence) else ()
    corners = (*listed, *listed) if len(listed) == 2 else listed
    whole = len(corners) == 4 and fits(corners, tuple[int, ...])
    if not whole or not (0 <= corners[0] <= corners[2] < grid[0] and 0 <= corners[1] <= corners[3] < grid[1]):
        raise ConfigError(
            f"Cells are ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT inside the grid of {grid[0]} x {grid[1]}, from 0; "
            f"got {cells!r}."
        )
    return corners[0], corners[1], corners[2], corners[3]


def shares_of(table: Table, region: Region, size: Picture) -> tuple[NDArray[np.float32], str]:
    """The share of each word's weight in a region, [T], and a sentence about the words with the largest."""
    top, left, bottom, right = region
    maps = table.weights.reshape(-1, *size.grid)  # [T, rows, columns]
    shares = maps[:, top : bottom + 1, left : right + 1].sum(axis=(1, 2))  # [T]
    one = (top, left) == (bottom, right)
    top, left, bottom, right = (at + 1 for at in region)  # people count from 1
    where = f"Row {top}, column {left}" if one else f"Rows {top}-{bottom}, columns {left}-{right}"
    order = np.argsort(-shares, kind="stable")[:2].tolist()
    most = ", then ".join(f"{quoted(table.rows[row])} {shares[row]:.2f}" for row in order) or "no word"
    return shares, f"{where}: most attention from {most}."
