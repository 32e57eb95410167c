"""The documentation as a site: `make docs`. The sources are the whole tree, so that links between docs, course,
examples and models work as they do in the repository; lectures and examples are pages, made from their Python files.
"""

import ast
import json
import runpy
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
COURSE = TREE / "build" / "course"  # what the lectures printed and drew; `make docs` runs them first
cells = runpy.run_path(str(TREE / "course" / "exercises.py"))["cells"]

project = html_title = "regard"
author = "the authors of regard"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".py": "markdown"}
include_patterns = ["docs/*.md", "docs/results/*.md", "course/*.md", "course/[0-9]_*.py", "course/answers.py",
                    "examples/*.py", "models/*/CARD.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
                    "CODE_OF_CONDUCT.md"]  # fmt: skip
exclude_patterns = [".*", "build", "dist", "node_modules", "runs", "sweeps", "demo"]
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
    if name in BELOW:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{BELOW[name]}\n```\n"


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
