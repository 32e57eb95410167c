"""The documentation as a site: `make docs`. The sources are the whole tree, so that links between docs, course,
examples and models work as they do in the repository; lectures and examples are pages, made from their Python files.
"""

import ast
import html
import json
import re
import runpy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

TREE = Path(__file__).resolve().parent.parent
COURSE = TREE / "build" / "course"  # what the lectures printed and drew; `make docs` runs them first
LIVE = TREE / "build" / "live"  # the page without a server; with it, links to the page become live figures
STILLS = TREE / "build" / "stills"  # their pictures for browsers that cannot run it
if LIVE.is_dir():
    STILLS.mkdir(parents=True, exist_ok=True)
cells = runpy.run_path(str(TREE / "course" / "exercises.py"))["cells"]

project = html_title = "regard"
author = "the authors of regard"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".py": "markdown"}
include_patterns = ["docs/*.md", "docs/results/*.md", "course/*.md", "course/[0-9]_*.py", "course/answers.py",
                    "examples/*.py", "models/*/CARD.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
                    "CODE_OF_CONDUCT.md"]  # fmt: skip
exclude_patterns = [".*", "build", "dist", "node_modules", "runs", "sweeps", "demo", "data"]
templates_path = ["templates"]

myst_heading_anchors = 4
smartquotes = False  # "--out" stays as it is typed
default_role = "code"  # in docstrings, `name` is code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 100

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["live.js"]
html_extra_path = [str(STILLS)] if LIVE.is_dir() else []
html_additional_pages = {"index": "start.html"}  # the pages of docs/ are one folder below
html_copy_source = html_show_copyright = False
pygments_dark_style = "github-dark"

# Pages below a page, in the order of their names: written here, since GitHub would show a toctree as code.
BELOW = {
    "docs/results/index": "[!i]*",
    "docs/own": "../examples/*",
    "docs/models": "../models/*/CARD",
    "course/README": "[0-9]_*\nteaching\nanswers",
}


def read(app: Any, name: str, source: list[str]) -> None:
    """Called by Sphinx for each page, with its text in a list that may be changed."""
    if app.env.doc2path(name).suffix == ".py":
        source[0] = lecture(name, source[0]) if "# %%" in source[0] else example(name, source[0])
    if LIVE.is_dir():
        source[0] = FIGURE.sub(
            lambda found: f"{found[0] if found[1] else ''}\n\n{figure(name, found[1] or found[2])}\n\n", source[0]
        )
    if name in BELOW:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{BELOW[name]}\n```\n"


# What gets a live figure: a paragraph with a link to the page of `regard serve`, below it; or the picture after a
# comment with a state, in its place.
FIGURE = re.compile(r"^.*\]\(http://127\.0\.0\.1:5000/#(\S+)\).*(?:\n.+)*|^<!-- live (\S+) -->\n\n!\[.*$", re.M)


def figure(name: str, state: str) -> str:
    """A still picture with a button that puts the page in its place, opened at `state`."""
    from regard import load
    from regard.runs.included import FOLDERS
    from regard.serve.examples import SENTENCES

    about = {key: values[0] for key, values in parse_qs(state).items()}
    text = about.get("text") or SENTENCES["en"][0]
    model = next(run for run, folder in FOLDERS.items() if folder == about["model"])
    still = f"live-{about['model']}-{re.sub(r'[^a-z]+', '-', text.lower())[:40]}.svg"
    trace = load(model).look(text)
    rows = about.get("form") == "matrix" or any(one.kind == "fixed" for one in trace.attention.values())
    trace.draw(STILLS / still, view="matrix" if rows else "ribbons")
    index = json.loads((LIVE / "files" / "index.json").read_text(encoding="utf-8"))
    loaded = {"runtime.bin", about["model"], about.get("other", about["model"])}
    if about.get("comparing") == "length":  # beside the first model with attention
        loaded.add(next(one["id"] for one in index["models"] if not one["fixed"]))
    size = sum(one["bytes"] for file, one in index["files"].items() if file.partition("/")[0] in loaded)
    root, said = "../" * name.count("/"), html.escape(f"{text} \u2192 {trace.target.text}", quote=True)
    page = f"{root}live/index.html#{html.escape(state, quote=True)}"
    offer = f"Run it here: your own sentence, in your browser (loads {size / 1e6:.0f} MB once)"
    return (
        f'````{{raw}} html\n<figure class="live" data-page="{page}">\n'
        f'<img src="{root}{still}" alt="Attention: {said}">\n'
        f'<figcaption><button type="button" hidden>{offer}</button>\n'
        f'<a href="{page}">Open the page</a></figcaption>\n</figure>\n````'
    )


def example(name: str, code: str) -> str:
    """A page with the first sentence of the docstring, what follows it, and the file."""
    first, _, rest = (ast.get_docstring(ast.parse(code)) or "").partition("\n")
    return f"# {Path(name).name}.py\n\n{first}\n\n{rest}\n\n```python\n{code}```\n"


def lecture(name: str, code: str) -> str:
    """A page with the cells of a lecture, and their output where they have been run as they are now."""
    written = COURSE / f"{Path(name).name}.json"
    shown = json.loads(written.read_text(encoding="utf-8")) if written.is_file() else []
    found = [(cell.text, cell.body) for cell in cells(code)]
    fresh = [(one["text"], one["body"]) for one in shown] == found
    parts = []
    for number, (text, body) in enumerate(found):
        parts.append(body if text else f"```python\n{body}\n```")
        if fresh and not text:
            parts += output(shown[number])
        if number == 0 and not fresh:
            parts.append("*This page was built without running the lecture: `make docs` adds its output.*")
    return "\n\n".join(parts) + "\n"


def output(cell: dict[str, Any]) -> list[str]:
    """What a cell printed and showed, as Markdown."""
    printed = [f"```{{code-block}} text\n:class: output\n\n{cell['printed']}```"] if cell["printed"] else []
    return printed + ([f"````{{raw}} html\n{cell['html']}\n````"] if cell["html"] else [])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", read)
