"""Run a lecture and write what it says, computes and draws into one HTML file, as slides, and as JSON for `make docs`:

    python course/render.py build/course course/1_bottleneck.py [more lectures]

A lecture is a Python file with cells: `# %% [markdown]` begins text (in comments), `# %%` begins code. The value of the
last line of a cell is shown, as in a notebook, where it draws itself (`_repr_html_`).
"""

import ast
import contextlib
import html
import io
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from exercises import cells
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

STYLE = """
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff }
pre { padding: .7rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.4; background: #f5f6f8; border-radius: 4px }
pre.output { background: none; border-left: 3px solid #0072b2; border-radius: 0; margin-top: 0 }
img, iframe { max-width: 100% }
"""  # noqa: E501


SLIDES = """
html { scroll-snap-type: y proximity; font-size: 1.6vw }
body { max-width: none; margin: 0; padding: 0 }
section { box-sizing: border-box; min-height: 100vh; padding: 3vh 6vw; scroll-snap-align: start }
img { max-height: 70vh }
pre { font-size: .75rem }
"""
KEYS = """
const step = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 };
addEventListener("keydown", (event) => {
  const slides = [...document.querySelectorAll("section")];
  const here = slides.findLastIndex((one) => one.getBoundingClientRect().top < innerHeight / 2);
  if (!(event.key in step)) return;
  event.preventDefault();
  slides[Math.max(0, here + step[event.key])]?.scrollIntoView();
});
"""


def run_cell(code: str, line: int, path: Path, names: dict[str, Any]) -> tuple[str, Any]:
    """Run one cell: what it printed, and the value of its last line if that is an expression."""
    tree = ast.increment_lineno(ast.parse(code), line)  # errors name the line of the file
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
    return printed.getvalue(), value


class Shown(NamedTuple):
    """A cell that was run: what it printed, and how its last value draws itself; text has neither."""

    text: bool
    body: str
    printed: str = ""
    html: str = ""


def run(path: Path) -> list[Shown]:
    """The cells of a lecture, which is run from top to bottom."""
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    shown = []
    for text, body, line in cells(path.read_text(encoding="utf-8")):
        if text:
            shown.append(Shown(text, body))
            continue
        printed, value = run_cell(body, line, path, names)
        shown.append(Shown(text, body, printed, value._repr_html_() if hasattr(value, "_repr_html_") else ""))
    return shown


def drawn(cell: Shown) -> str:
    """A cell of code with its output."""
    output = f'<pre class="output">{html.escape(cell.printed)}</pre>' if cell.printed else ""
    return highlight(cell.body, PythonLexer(), HtmlFormatter()) + output + cell.html


def document(title: str, body: str, style: str = "", script: str = "") -> str:
    style = STYLE + HtmlFormatter().get_style_defs(".highlight") + style
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{style}</style></head>\n<body>\n{body}{script and f'<script>{script}</script>'}</body></html>\n"
    )


def title_of(shown: list[Shown], otherwise: str) -> str:
    found = re.match(r"# (.+)", shown[0].body) if shown else None
    return found[1] if found else otherwise


def render(shown: list[Shown], title: str) -> str:
    """The page of a lecture; its first heading takes the place of `title`."""
    markdown = MarkdownIt().enable("table")
    parts = [markdown.render(cell.body) if cell.text else drawn(cell) for cell in shown]
    return document(title_of(shown, title), "".join(parts))


def slides(shown: list[Shown], title: str) -> str:
    """The slides of a lecture, one for every heading: the first sentence of each paragraph, code, tables, results and
    pictures, but no imports and no cells of exercises."""
    markdown, parts, asking = MarkdownIt().enable("table"), [""], False
    for cell in shown:
        if not cell.text:
            parts[-1] += "" if asking or "narrate()" in cell.body else drawn(cell)
            continue
        tokens = markdown.parse(cell.body)
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type == "heading_open":
                parts.append("")
            elif token.type == "inline" and before.type == "heading_open":
                asking = token.content == "Exercises"
            elif token.type == "inline" and before.type == "paragraph_open" and token.level == 1:
                question = token.content.startswith("**")
                short = (
                    token.content if question else re.split(r"(?<=[^.][.?!:]) ", " ".join(token.content.split("\n")))[0]
                )
                token.children = markdown.parseInline(short)[0].children
            parts[-1] += markdown.renderer.render([token], markdown.options, {})
    body = "".join(f"<section>{part}</section>\n" for part in parts if part.strip())
    return document(title_of(shown, title), body, SLIDES, KEYS)


def main(out: str, *lectures: str) -> None:
    """Render `lectures` into the folder `out`."""
    Path(out).mkdir(parents=True, exist_ok=True)
    for lecture in map(Path, lectures):
        shown, page = run(lecture), Path(out) / f"{lecture.stem}.html"
        page.write_text(render(shown, lecture.stem), encoding="utf-8")
        page.with_suffix(".slides.html").write_text(slides(shown, lecture.stem), encoding="utf-8")
        data = json.dumps([one._asdict() for one in shown])
        page.with_suffix(".json").write_text(data, encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main(*sys.argv[1:])
