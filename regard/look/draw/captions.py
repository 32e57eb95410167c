"""A caption's attention as one self-contained page without scripts: the picture, and on it the cells of each word.

The picture lies in the page once, as a PNG. Every cell is a rectangle of its true size that tells its weight when it is
pointed at; `smooth` blurs them for display, and the page says so. Nothing is loaded and no word can break out.
"""

import base64
import html
from pathlib import Path

from regard.data.images import Pixels, encode_png
from regard.look.contents import Contents
from regard.look.contents import Picture as Size
from regard.look.draw.cells import Cells, Region, background, describe, map_of, region_of, shares_of, size_of
from regard.look.draw.html import envelope, heading
from regard.look.draw.palette import CHANGED, mix
from regard.look.draw.palette import palette as find_palette
from regard.look.text import label
from regard.look.words import Head, Layer, Table, arrange

_STYLE = """
body{margin:2rem auto;max-width:72rem;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:1.1rem}main{display:flex;flex-wrap:wrap;gap:1.2rem;align-items:flex-start}
figure{margin:0;width:13rem}figure.large{width:26rem;max-width:100%}figure svg{width:100%;height:auto;display:block}
figcaption{font-size:.8rem;color:#5b6470}b{font-size:1rem;color:#1b1f24}p{font-size:.85rem;color:#5b6470}
table{border-collapse:collapse}th{text-align:right;font-weight:600}td,th{padding:.1rem .5rem}
td svg{width:14rem;height:.9rem}
"""


def film(
    trace: Contents,
    *,
    picture: str | Path | Pixels | None = None,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    smooth: bool = False,
    palette: str = "viridis",
    title: str | None = None,
) -> str:
    """The picture once for each word, on one scale for all of them."""
    size = size_of(trace)
    table = arrange(trace, layer, head, words, special)
    most = float(table.weights.max(initial=0)) or 1.0
    page = _Page(trace, table, size, picture, smooth, palette, most)
    return page.whole([*page.bare(), *(page.frame(step) for step in range(len(table.rows)))], title)


def one(
    trace: Contents,
    *,
    picture: str | Path | Pixels | None = None,
    step: int | None = None,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    smooth: bool = False,
    palette: str = "viridis",
    title: str | None = None,
) -> str:
    """The map of word `step` (from 0), large, or of all words together: how often each cell was seen."""
    size = size_of(trace)
    table = arrange(trace, layer, head, words, special)
    most = 1.0 if step is not None else max(1.0, float(map_of(table, None, size).max(initial=0)))
    page = _Page(trace, table, size, picture, smooth, palette, most)
    return page.whole([*page.bare(), page.frame(step, large=True)], title)


def region(
    trace: Contents,
    *,
    cells: tuple[int, int] | tuple[int, int, int, int] = (0, 0),
    picture: str | Path | Pixels | None = None,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    title: str | None = None,
) -> str:
    """The reverse: how much each word looked at a region, as bars; `cells` as in the still picture."""
    size = size_of(trace)
    table = arrange(trace, layer, head, words, special)
    chosen = region_of(cells, size.grid)
    shares, sentence = shares_of(table, chosen, size)
    page = _Page(trace, table, size, picture, False, "viridis", None)
    bars = "".join(
        f'<tr><th><bdi>{_text(label(each.text, 40))}</bdi></th><td><svg viewBox="0 0 100 6" preserveAspectRatio="none">'
        f'<rect width="{100 * min(1.0, share):.1f}" height="6" fill="{CHANGED}"/></svg></td><td>{share:.2f}</td></tr>'
        for each, share in zip(table.rows, shares.tolist(), strict=True)
    )
    return page.whole([page.figure(None, sentence, chosen, large=True), f"<table>{bars}</table>"], title)


class _Page:
    """What the figures of one page share."""

    def __init__(
        self,
        trace: Contents,
        table: Table,
        size: Size,
        picture: str | Path | Pixels | None,
        smooth: bool,
        palette: str,
        most: float | None,
    ) -> None:
        self.trace, self.table, self.size, self.smooth, self.most = trace, table, size, smooth, most
        self.hues = find_palette(palette)
        behind = background(picture, size)
        self.data = "" if behind is None else base64.b64encode(encode_png(behind)).decode("ascii")

    def bare(self) -> list[str]:
        """The picture by itself, where there is one."""
        return [self.figure(None, "The picture.")] if self.data else []

    def frame(self, step: int | None, large: bool = False) -> str:
        """The map of one word, or of all."""
        cells = map_of(self.table, step, self.size)
        name = "all words" if step is None else label(self.table.rows[step].text, 40)
        told = describe(self.table, step, cells)
        return self.figure(cells, told, large=large, name=name)

    def figure(
        self, cells: Cells | None, told: str, box: Region | None = None, large: bool = False, name: str = ""
    ) -> str:
        """The picture with `cells` over it and a `box` around a region, each where it is there."""
        width, height = self.size.width, self.size.height
        parts = [f'<use href="#picture" width="{width}" height="{height}"/>'] if self.data else []
        if cells is not None:
            look = (' opacity=".62"' if self.data else "") + (' filter="url(#smooth)"' if self.smooth else "")
            parts.append(f"<g{look}>{self._rectangles(cells)}</g>")
        if box is not None:
            top, left, bottom, right = box
            x, y, wide, high = self._place(top, left, bottom - top + 1, right - left + 1)
            stroke = f'fill="none" stroke="{CHANGED}" stroke-width="{width / 60:g}"'
            parts.append(f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" {stroke}/>')
        word = f"<b><bdi>{_text(name)}</bdi></b><br>" if name else ""
        return (
            f'<figure{" class=large" if large else ""}><svg viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{_text(told)}">{"".join(parts)}</svg><figcaption>{word}{_text(told)}</figcaption></figure>'
        )

    def whole(self, parts: list[str], title: str | None) -> str:
        """The page of these parts, with what is drawn said below."""
        rows, columns = self.size.grid
        says = [f"{self.table.caption}, grid {rows} x {columns} (counted from 0)"]
        says += ["smoothed for display"] if self.smooth else []
        scale = "" if self.most is None else f"Colours from 0 {self._legend()} to {self.most:.2f}. "
        name = title or label(self.trace.target.text, 60)
        body = f"{heading(name)}\n{self._shared()}<main>{''.join(parts)}</main>\n"
        return envelope(name, _STYLE, f"{body}<p>{scale}{_text(', '.join(says))}.</p>\n", "img-src data:")

    def _rectangles(self, cells: Cells) -> str:
        found = []
        for row, line in enumerate(cells.tolist()):
            for column, weight in enumerate(line):
                x, y, wide, high = self._place(row, column, 1, 1)
                if self.smooth:  # cells at an edge go on behind it: the blur must not mix them with nothing
                    rows, columns = self.size.grid
                    x, wide = x - wide * (column == 0), wide * (1 + (column == 0) + (column == columns - 1))
                    y, high = y - high * (row == 0), high * (1 + (row == 0) + (row == rows - 1))
                red, green, blue = mix(self.hues, weight / (self.most or 1.0))
                found.append(
                    f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" '
                    f'fill="#{red:02x}{green:02x}{blue:02x}">'
                    f"<title>row {row}, column {column}: {weight:.3f}</title></rect>"
                )
        return "".join(found)

    def _place(self, row: int, column: int, rows: int, columns: int) -> tuple[float, float, float, float]:
        """x, y, width and height of some cells."""
        high, wide = self.size.height / self.size.grid[0], self.size.width / self.size.grid[1]
        return column * wide, row * high, columns * wide, rows * high

    def _shared(self) -> str:
        """The picture, and the blur of cells, once for all figures."""
        width, height = self.size.width, self.size.height
        picture = (
            f'<symbol id="picture" viewBox="0 0 {width} {height}"><image href="data:image/png;base64,{self.data}" '
            f'width="{width}" height="{height}" preserveAspectRatio="none"/></symbol>'
            if self.data
            else ""
        )
        blur = f'<filter id="smooth"><feGaussianBlur stdDeviation="{width / self.size.grid[1] / 2:g}"/></filter>'
        return f'<svg width="0" height="0" aria-hidden="true">{picture}{blur if self.smooth else ""}</svg>\n'

    def _legend(self) -> str:
        steps = "".join(
            f'<rect x="{10 * at}" width="10" height="10" fill="{hue}"/>' for at, hue in enumerate(self.hues)
        )
        return f'<svg width="90" height="10" aria-hidden="true">{steps}</svg>'


def _text(text: str) -> str:
    return html.escape(text, quote=True)
