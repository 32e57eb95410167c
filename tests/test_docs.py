"""The docs: examples run, commands exist, no link of the site breaks, and it needs no network."""

import doctest
import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import patience
import pytest
import torch

import regard

TREE = Path(__file__).resolve().parent.parent
METHODS = {"Translator": ["translate", "look", "alternatives", "score", "perplexity"]}  # with an example each
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
faults = runpy.run_path(str(TREE / "docs" / "check.py"))["faults"]

PUBLIC = [path for name in regard.__all__ for path in (name, *(f"{name}.{one}" for one in METHODS.get(name, [])))]


@pytest.mark.parametrize("path", PUBLIC)
def test_the_example_of_a_public_name_runs(path: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, _, method = path.partition(".")
    thing = getattr(getattr(regard, name), method) if method else getattr(regard, name)
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(inspect.unwrap(thing), path, globs={"regard": regard, "torch": torch})
    assert found.examples, f"{path} has no example"
    said: list[str] = []
    assert doctest.DocTestRunner(optionflags=OPTIONS).run(found, out=said.append).failed == 0, "".join(said)


def test_the_reference_has_every_public_name() -> None:
    page = (TREE / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in regard.__all__ if f":: regard.{name}\n" not in page] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it: a warning is an error."""
    pytest.importorskip("furo", reason="the extra docs is not installed")
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-c", "docs", "."]
    command = [*build, str(out / "html"), "-d", str(out / "pages")]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=patience.PATIENCE)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_the_site_has_no_link_that_breaks_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert list(faults(site)) == []
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    for source in [*TREE.glob("docs/*.md"), *TREE.glob("course/[0-9]_*.py"), *TREE.glob("examples/*.py")]:
        assert str(source.relative_to(TREE).with_suffix(".html")) in pages
    reference = (site / "docs" / "api.html").read_text(encoding="utf-8")
    assert [name for name in regard.__all__ if f'id="regard.{name}"' not in reference] == []


@pytest.mark.browser
def test_search_works_from_a_file_without_a_network(site: Path, chromium) -> None:
    page = chromium.new_page("file:", offline=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/docs/index.html")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.goto((site / "search.html").as_uri() + "?q=" + quote("sparsemax"))
    page.locator("#search-results a", has_text="Your own parts").wait_for()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()


def test_the_check_finds_what_is_wrong(tmp_path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">fine</a> <a href="b.html#away">no place</a> <a href="c.html">no page</a>'
        '<a href="https://example.org/">a link may lead away</a> <script src="//cdn.example/x.js"></script>'
        '<iframe srcdoc="&lt;img src=&quot;http://example.org/i.png&quot;&gt;"></iframe>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="there"></p><img src="missing.png">', encoding="utf-8")
    (tmp_path / "s.css").write_text('@import "https://fonts.example/f.css";', encoding="utf-8")
    assert list(faults(tmp_path)) == [
        "a.html loads //cdn.example/x.js.",
        "a.html loads http://example.org/i.png.",
        "a.html has a link to b.html#away, but that page has no such place.",
        "a.html has a link to c.html, which is not there.",
        "b.html has a link to missing.png, which is not there.",
        "s.css loads https://fonts.example/f.css.",
    ]
