"""Self-contained HTML pages, which open from disk without a network, and the data that the page draws.

The page selects from the numbers of `page_tree` and draws them; it computes none of them again. A file and the server
send the same tree, beside the trace itself, whose weights are the tables of single tokens.

The view modules in `page/`, which the server uses too, become one script. A strict Content-Security-Policy allows that
script and the style by their hashes, and nothing else. The trace is in a JSON block in which `<`, `>` and `&` are
escaped, and the script puts every word into a text node, so that no token can inject markup.
"""

import base64
import hashlib
import html
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.images import encode_png
from regard.errors import ConfigError, numbered
from regard.look import table as tables
from regard.look.maps import background, describe, map_of, region_of, shares_of, size_of
from regard.look.measure import measure
from regard.look.palette import DARK, DIVERGING, PALETTES, palette, ramp
from regard.look.table import CAPTION_VIEWS, STILL, Show, arrange, choose, tokens_of
from regard.look.trace_data import KINDS, Attended, TraceData
from regard.look.trace_file import fits, half, write
from regard.sealed import write_output
from regard.text.visible import label, visible

_OPENS = {"heads": "compare", "beam": "beam", "steps": "steps"}
_STYLES = ("theme", "controls", "translate", "pictures", "steps", "search", "captions")
_HELD = '<script type="application/json" id="held">{}</script>'
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}  # inside a script
_IMPORT = re.compile(r'^import (?:(\* as \w+|\{[^}]*\}) from )?"\./(\w+)\.js";\n', re.M)
_EXPORT = re.compile(r"^export (?:async )?(?:const|function|class) (\w+)", re.M)
# Numbers of a trace; a larger one is shown in half precision, and only the modules that connect target and source.
PRECISE = 500_000
_LONGEST = 60


def page(trace: TraceData, view: str, show: Show) -> "Page":
    """The page of a trace, opened at `view` with the options of `show`."""
    count = sum(seen.weights.size for seen in trace.attention.values())
    source, target = (label(side.text, 60) for side in (trace.source, trace.target))
    title = show.title or (target if trace.image is not None else f"{source} → {target}")
    held: dict[str, Any] = {
        "trace": page_tree(trace if count <= PRECISE else trace.slim(), show),
        "titled": show.title is not None,
        "selection": _picture_selection(trace, view, show) if view in CAPTION_VIEWS else _selection(trace, view, show),
        "picture": None,
    }
    if trace.image is not None:
        behind = background(show.picture, trace.image)
        data = "" if behind is None else base64.b64encode(encode_png(behind)).decode("ascii")
        side = 0 if behind is None else behind.shape[0]
        held["picture"] = {"square": data and f"data:image/png;base64,{data}", "side": side}
    caption = arrange(trace, show).caption
    return Page(file(title, caption).replace(_HELD.format(""), _HELD.format(write(held).translate(_ESCAPES))))


def file(title: str = "regard: attention", caption: str = "") -> str:
    """The page with an empty block of data, which `page` fills, and in a browser the server's page."""
    style, script = "\n".join(_read_page_file(f"{name}.css") for name in _STYLES), bundle()
    body = (
        f'<main><h1 dir="auto">{html.escape(visible(title))}</h1><noscript>{html.escape(caption)}</noscript></main>\n'
        f'<div id="announcements" class="hidden" role="status" aria-live="polite"></div>\n{_HELD.format("")}\n'
        f'<script type="module">{script}</script>\n'
    )
    return envelope(title, style, body, f"script-src '{digest(script)}'; img-src data: blob:")


def _selection(trace: TraceData, view: str, show: Show) -> dict[str, Any]:
    """The initial state of the page, by the page's names; refuses what cannot be shown."""
    if view == "beam" and trace.beam is None:
        raise ConfigError("This trace holds no search tree; look with beam search to get one.")
    seen = choose(trace, show.layer)
    steps = len(tokens_of(trace, KINDS[seen.kind][0]))
    if show.step is not None and not (fits(show.step, int) and 0 <= show.step < steps):
        raise ConfigError(f"There is no step {show.step}: this trace has {numbered('step', steps)}.")
    palette(show.palette or "blue")
    several = not isinstance(show.head, int | str | None)
    same = ("layer", "words", "special", "renormalise", "shift", "mass", "numbers", "pruned")
    return {
        "view": _OPENS.get(view, "alignment"),
        "form": "ribbons" if view == "ribbons" else "matrix",
        "head": ",".join(map(str, show.head)) if several else show.head,  # type: ignore[arg-type]
        "palette": show.palette or "blue",
        "t": show.step,
        **{name: getattr(show, name) for name in same},
    }


def _picture_selection(trace: TraceData, view: str, show: Show) -> dict[str, Any]:
    size, table, tint = size_of(trace), arrange(trace, show), show.palette or "viridis"
    palette(tint)
    opened: dict[str, Any] = {"view": "picture", "tint": tint}
    opened |= {"words": show.words, "special": show.special, "smooth": show.smooth}
    if view == "picture" and show.step is not None:
        map_of(table, show.step, size)  # refuses a word that is not there
        opened["t"] = table.rows[show.step].tokens[0]
    if view == "region":
        region = region_of(show.cells, size.grid)
        shares, sentence = shares_of(table, region, size)
        opened["region"] = {"corners": region, "shares": shares.astype(float).round(6).tolist(), "sentence": sentence}
    return opened


# --- files of the page


@lru_cache(maxsize=64)
def _read_page_file(name: str) -> str:
    return resources.files("regard.look").joinpath("page", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def bundle() -> str:
    """The module `exported` and all that it imports as one script: every module becomes a function that runs once."""
    done: list[str] = []
    parts: list[str] = []

    def as_constant(found: re.Match[str]) -> str:  # `import { a as b } from "./c.js"`: `const { a: b } = $c`
        names = (found[1] or "").removeprefix("* as ").replace(" as ", ": ")
        return f"const {names} = ${found[2]};\n" if names else ""

    def add(name: str) -> None:
        source = _read_page_file(f"{name}.js")
        for found in _IMPORT.finditer(source):
            if found[2] not in done:
                done.append(found[2])
                add(found[2])
        names = ", ".join(_EXPORT.findall(source))
        body = re.sub(r"^export ", "", _IMPORT.sub(as_constant, source), flags=re.M)
        parts.append(f"const ${name} = (() => {{\n{body}return {{ {names} }};\n}})();\n")

    add("exported")
    return "".join(parts)


# --- any page


def envelope(title: str, style: str, body: str, allowed: str = "") -> str:
    """A page that loads nothing and whose policy allows only its style and what is `allowed`."""
    rules = ["default-src 'none'", allowed, f"style-src '{digest(style)}'", "base-uri 'none'", "form-action 'none'"]
    return (
        '<!doctype html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rule for rule in rules if rule)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(visible(title))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}</body>\n</html>\n"
    )


class Page(str):
    """A self-contained page as text. A notebook shows it in a frame, which isolates its style and script."""

    def __repr__(self) -> str:
        return f"<a page of {len(self) / 1024:.0f} KiB; a notebook shows it, str() gives its HTML>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self, quote=True)}" sandbox="allow-scripts" title="attention" '
            f'style="width:100%;height:720px;border:0"></iframe>'
        )


def check_picture(path: Path) -> None:
    """Refuse a file name with an unsupported extension."""
    if path.suffix.lower() not in (".html", *STILL):
        raise ConfigError(
            f"A picture's name must end in {', '.join(STILL)} or .html; got '{path.name}'. The data of a trace is "
            f"saved as .json."
        )


def draw_into(path: str | Path | None, page: Callable[[], Page], still: Callable[[str], bytes]) -> "Path | Page":
    """The page, for a notebook; or a file, by its extension the page or a still picture."""
    if path is None:
        return page()
    path = Path(path)
    check_picture(path)
    ending = path.suffix.lower()
    return write_output(path, page().encode("utf-8") if ending == ".html" else still(ending))


def digest(text: str) -> str:
    """The hash of a text as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def page_tree(trace: TraceData, show: Show | None = None) -> dict[str, Any]:
    """The tree of a trace with everything that the page draws of it under "views": the tables of every module, the
    colours, the changed words, and the sentences of a caption's maps."""
    show = show or Show()
    leading = tables.leading_modules(trace)
    large = sum(seen.weights.size for seen in trace.attention.values()) > PRECISE
    modules = leading if large else [*leading, *(one for one in trace.attention.values() if one not in leading)]
    measures = {(row.name, row.head): row.values for row in measure(trace)}
    rows, columns = trace.changed()
    views = {
        "modules": [
            {
                "name": seen.name,
                "method": seen.method,
                "leading": seen in leading,
                "heads": tables.head_words(seen),
                "step_head": tables.step_head(trace, seen),
                "combined": _combined(seen.weights, large),
                "measures": [
                    {key: round(measures[seen.name, head][key], 6) for key in ("entropy", "diagonality", "special")}
                    for head in range(seen.heads)
                ],
                "words": _tables(trace, seen, show, large),
                "pieces": _tables(trace, seen, replace(show, words=False), large),
            }
            for seen in modules
        ],
        "summaries": tables.SUMMARIES,
        "default": tables.choose(trace).name if leading else None,
        "step": tables.step_module(trace).name if leading else None,
        "shifted": tables.SHIFTED,
        "aligning": next(({"head": seen.aligning} for seen in leading if seen.aligning is not None), None),
        "changed": {"rows": sorted(rows), "columns": sorted(columns)},
        # Of the target; each table has it of the source.
        "right_to_left": tables.right_to_left([token.text for token in trace.target.tokens]),
        "maps": None if trace.image is None or not leading else _maps(trace, show),
        "ramps": ramps(),
    }
    return {**trace.plain(), "views": views}


@lru_cache(maxsize=1)
def ramps() -> dict[str, Any]:
    """The colours of every palette on a light and on a dark page, with the ink on each."""
    light = {**PALETTES, "diverging": DIVERGING}
    themes = (("light", light), ("dark", DARK))
    return {theme: {name: ramp(colours) for name, colours in palettes.items()} for theme, palettes in themes}


def _combined(weights: tables.Array, large: bool) -> tables.Array | None:
    """The mean of the heads and the largest of them, [2, T, S]; a single head needs neither."""
    if len(weights) == 1:
        return None
    stacked = np.stack([weights.mean(0), weights.max(0)])
    return half(stacked) if large else stacked


def _tables(trace: TraceData, seen: Attended, show: Show, large: bool) -> list[dict[str, Any]] | None:
    """The table with shift 0, and for cross-attention also with shift 1; special tokens included.

    The weights of single tokens are left out, since the trace has them; None if every word is a single token.
    """

    def plain(side: tuple[tables.Label, ...]) -> list[dict[str, Any]]:
        named = [{"text": label(one.text, _LONGEST), "tokens": list(one.tokens)} for one in side]
        return [each | ({"special": True} if one.special else {}) for each, one in zip(named, side, strict=True)]

    found = []
    for shift in (0, 1) if seen.kind == "cross" else (0,):
        rows, columns = tables.frame(trace, seen, show, shift)
        if show.words and not any(len(one.tokens) > 1 for one in (*rows, *columns)):
            return None
        whole = seen.weights[:, shift:]  # [H, T, S]
        combined = _combined(seen.weights, large)
        stacked = whole if combined is None else np.concatenate([whole, combined[:, shift:]])
        merged = tables.merge(stacked, rows, columns) if show.words else stacked  # [heads, rows, columns]
        head = "{head}" if seen.heads > 1 else ""
        captions = {
            name: tables.caption(trace, seen, changed, (rows, columns), head=head, lost="{lost}", shift=shift)
            for name, changed in {
                "hidden": replace(show, special=False, renormalise=False),
                "renormalised": replace(show, special=False, renormalise=True),
                "shown": replace(show, special=True),
            }.items()
        }
        found.append(
            {
                "rows": plain(rows),
                "columns": plain(columns),
                "weights": None if not show.words else half(merged) if large else merged,
                "hidden": np.round(tables.hidden_mass(merged, rows, columns).astype(float), 4).tolist(),
                "captions": captions,
                "right_to_left": tables.right_to_left([one.text for one in columns]),
            }
        )
    return found


def _maps(trace: TraceData, show: Show) -> dict[str, Any]:
    """Sentences of a caption's maps, for every choice of words and special tokens."""
    assert trace.image is not None
    size, found = trace.image, {}
    for words in (True, False):
        for special in (True, False):
            table = tables.arrange(trace, replace(show, layer=None, head=None, words=words, special=special))
            steps: list[int | None] = [None, *range(len(table.rows))]
            cells = [(row, column) for row in range(size.grid[0]) for column in range(size.grid[1])]
            found[f"{'words' if words else 'pieces'} {'shown' if special else 'hidden'}"] = {
                "maps": [describe(table, step, map_of(table, step, size)) for step in steps],
                "cells": [shares_of(table, (*cell, *cell), size)[1] for cell in cells],
            }
    return found
