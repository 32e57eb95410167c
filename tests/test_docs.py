"""The docs: examples run, commands exist, no link of the site breaks, and it needs no network."""

import contextlib
import doctest
import functools
import inspect
import itertools
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import patience
import pytest
import typer
from commands import context
from markdown_it import MarkdownIt

import regard
from regard.api.training import plan
from regard.cli import app
from regard.runs.included import FOLDERS

TREE = Path(__file__).resolve().parent.parent
REFERENCE = [*sorted(TREE.glob("docs/api*.md")), TREE / "docs" / "parts.md"]
DESCRIBED = re.compile(r"^\.\. auto\w+:: (\S+)\n((?:   .*\n)*)", re.MULTILINE)  # a name, and the options below it
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
GROUP = typer.main.get_command(app)
faults = runpy.run_path(str(TREE / "docs" / "check.py"))["faults"]

shipped = functools.cache(regard.load)


@pytest.fixture(autouse=True)
def load_once(monkeypatch) -> None:
    """The models that ship are read once for all examples, none of which changes a model."""
    once = lambda run, *given, **named: (shipped if run in FOLDERS else shipped.__wrapped__)(run, *given, **named)  # noqa: E731
    monkeypatch.setattr(regard, "load", functools.wraps(shipped.__wrapped__)(once))


def public() -> Iterator[tuple[Path, str, str | None]]:
    """Every name that the reference describes, with its page; and each member of a class that is shown."""
    for page in REFERENCE:
        for name, options in DESCRIBED.findall(page.read_text(encoding="utf-8")):
            yield page, name, None
            for members in re.findall(r":members:(.*)", options):
                yield from ((page, name, member.strip()) for member in members.split(","))


PUBLIC = list(public())


def first_python(page: Path) -> str:
    """The first block of Python of a page."""
    block = re.search(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block
    return block[1]


def run_example(thing: Any, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Runs the example in a docstring with the names that it may use; returns these and its own."""
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    (found,) = finder.find(inspect.unwrap(thing), name, globs=known)
    assert found.examples, f"{name} has no example"
    said: list[str] = []
    ran = doctest.DocTestRunner(optionflags=OPTIONS).run(found, out=said.append, clear_globs=False)
    assert ran.failed == 0, "".join(said)
    return found.globs


@pytest.fixture(scope="module")
def begin(tmp_path_factory) -> Callable[[Path, str], tuple[Path, dict[str, Any]]]:
    """Runs the example of a function or class once: its folder and its names, with which those of methods go on.

    The names that all examples of a page may use, its first block of Python, are made once."""

    @functools.cache
    def assumed(page: Path) -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(compile(first_python(page), page, "exec"), names)
        return names

    @functools.cache
    def begun(page: Path, name: str) -> tuple[Path, dict[str, Any]]:
        folder, names = tmp_path_factory.mktemp("example"), dict(assumed(page))
        with contextlib.chdir(folder):
            return folder, run_example(pkgutil.resolve_name(name), name, names)

    return begun


@pytest.mark.parametrize(
    ("page", "name", "member"), PUBLIC, ids=[name if one is None else f"{name}.{one}" for _, name, one in PUBLIC]
)
def test_the_example_of_a_public_name_runs(page: Path, name: str, member: str | None, begin, monkeypatch) -> None:
    monkeypatch.setattr("regard.processes.context", context)
    folder, names = begin(page, name)
    if member is not None:
        monkeypatch.chdir(folder)
        run_example(getattr(pkgutil.resolve_name(name), member), f"{name}.{member}", names)


def test_the_reference_has_every_public_name() -> None:
    described = {name for _, name, _ in PUBLIC}
    assert [name for name in regard.__all__ if f"regard.{name}" not in described] == []
    core = [name for name, part in vars(regard.core).items() if inspect.isclass(part) or inspect.isfunction(part)]
    assert [name for name in core if not described & {f"regard.{name}", f"regard.core.{name}"}] == []
    known = {name.rpartition(".")[2] for name in described}
    assert [name for name in regard.look.__all__ if name not in known] == []


def test_the_reference_has_every_method_with_an_example() -> None:
    shown = {(name, member) for _, name, member in PUBLIC}
    classes = {
        f"regard.{name}": getattr(regard, name) for name in regard.__all__ if inspect.isclass(getattr(regard, name))
    }
    found = [
        (name, member)
        for name, one in classes.items()
        for member, part in vars(one).items()
        if not member.startswith("_") and ">>>" in (inspect.getdoc(part) or "")
    ]
    assert len(found) > 10
    assert [one for one in found if one not in shown] == []


@pytest.mark.parametrize("page", sorted(TREE.glob("docs/results/*.md")), ids=lambda page: page.stem)
def test_a_reported_result_has_a_source(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.stem == "index" or not re.search(r"[Rr]eport(ed)?\*", text):
        return
    assert re.search(r"\b[A-Z][a-z]+(?: et al\.| and [A-Z][a-z]+)? (?:19|20)\d\d\b|without a single source", text)


def test_the_reference_can_be_read_as_a_file() -> None:
    """A table has every name, since only the site shows what the docstrings say."""
    row = re.compile(r"^\| `([\w.]+)` \| \S", re.MULTILINE)
    rows = {page: set(row.findall(page.read_text(encoding="utf-8"))) for page in REFERENCE}
    named = [(page, f"{name.rpartition('.')[2]}.{one}" if one else name) for page, name, one in PUBLIC]
    assert [name for page, name in named if name not in rows[page]] == []
    assert sum(map(len, rows.values())) == len(named)


def build(out: Path) -> None:
    """`make docs`, in a process that has imported already what the reference describes."""
    from sphinx.cmd.build import main

    os.chdir(TREE)
    os.dup2(os.open(out / "errors", os.O_WRONLY | os.O_CREAT), 2)
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", "docs", "-d", str(out / "pages")]
    sys.exit(main([*options, ".", str(out / "html")]))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it: a warning is an error."""
    pytest.importorskip("furo", reason="the extra docs is not installed")
    out = tmp_path_factory.mktemp("site")
    process = context.Process(target=build, args=(out,))
    process.start()
    process.join(patience.PATIENCE)
    assert process.exitcode == 0, (out / "errors").read_text(encoding="utf-8")
    return out / "html"


@pytest.mark.published
def test_the_site_has_no_link_that_breaks_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert list(faults(site)) == []
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    for source in [*TREE.glob("docs/**/*.md"), *TREE.glob("course/[0-9]_*.py"), *TREE.glob("examples/*.py")]:
        assert str(source.relative_to(TREE).with_suffix(".html")) in pages
    reference = (site / "docs" / "api.html").read_text(encoding="utf-8")
    assert [name for name in regard.__all__ if f'id="regard.{name}"' not in reference] == []


@pytest.mark.published
def test_the_links_of_the_readme_lead_somewhere(site: Path) -> None:
    """Most of it is not a page of the site."""
    parsed = MarkdownIt().enable("table").parse((TREE / "README.md").read_text(encoding="utf-8"))
    spans = [span for token in parsed for span in token.children or []]
    links = [str(span.attrs[name]) for span in spans for name in ("href", "src") if name in span.attrs]
    assert len(links) > 20
    for path, _, place in (link.partition("#") for link in links if "://" not in link):
        assert (TREE / path).exists(), path
        if place:
            assert f'id="{place}"' in (site / path).with_suffix(".html").read_text(encoding="utf-8"), place


@pytest.mark.published
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


def test_make_docs_runs_the_lectures_that_have_changed(tmp_path) -> None:
    """All at first, none whose output is there, one that was changed since, and one whose model was."""
    shutil.copy(TREE / "Makefile", tmp_path)
    shutil.copytree(TREE / "course", tmp_path / "course")
    model = tmp_path / "models" / "en-fr-transformer" / "manifest.json"
    model.parent.mkdir(parents=True)
    model.touch()
    lectures = sorted(f"course/{path.name}" for path in (tmp_path / "course").glob("[0-9]_*.py"))
    command = ["make", "--dry-run", "--assume-old=.venv/.installed", "docs"]

    def rendered() -> list[str]:
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        return sorted(re.findall(r"render\.py build/course (.+)", said))

    assert rendered() == lectures
    (tmp_path / "build" / "course").mkdir(parents=True)
    for lecture in lectures:
        (tmp_path / "build" / "course" / Path(lecture).name).with_suffix(".json").touch()
    assert rendered() == []
    os.utime(tmp_path / lectures[0], (2**32, 2**32))
    assert rendered() == lectures[:1]
    os.utime(model, (2**32, 2**32))
    assert rendered() == [lectures[0], "course/4_transformer.py"]


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


PAGES = [
    TREE / "README.md",
    TREE / "CONTRIBUTING.md",
    *sorted(TREE.glob("course/*.md")),
    *sorted(TREE.glob("docs/**/*.md")),
]
TARGETS = re.findall(r"^([a-z]+):", (TREE / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def commands(page: str) -> Iterator[list[str]]:
    """Every command of a page: those of its blocks of shell, and those in its text that are written out."""
    for token in MarkdownIt().enable("table").parse(page):
        if token.type == "fence" and token.info in ("", "bash"):
            script = token.content.replace("\\\n", " ")
            given = re.findall(r"for (\w+) in ([^\s;]+)", script)  # of a loop the first round
            given += re.findall(r'^(\w+)="(.*)"', script, re.MULTILINE)
            for name, value in given:
                script = re.sub(rf"\${name}\b", value, script)
            yield from split(line for line in script.split("\n") if not line.startswith("    "))  # what is printed
        for span in token.children or []:
            if span.type == "code_inline" and not re.search(r"\.\.\.|…|\(", span.content):
                yield from split([span.content])


def split(lines: Iterable[str]) -> Iterator[list[str]]:
    """The simple commands of lines of shell, as words, without their environment."""
    for line in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
        words.whitespace_split = True
        for apart, command in itertools.groupby(
            words, lambda word: word[:1] in tuple(";|&<>") or word in ("do", "done")
        ):
            if not apart and (kept := [*itertools.dropwhile(re.compile(r"\w+=").match, command)]):
                yield kept


def check(program: str, *words: str) -> None:
    """Fails if this is a command of ours that would be refused before it opens a file or a run."""
    if program == "regard" and words and words[0].islower() and words[0][0] != "-":
        command = GROUP.commands[words[0]]
        given = command.make_context(words[0], list(words[1:])).params if len(words) > 1 else {}
        if words[0] == "train" and given and "start_from" not in str(words):  # which must be there
            check_settings(given)
    elif program == "make":
        assert words[0] in TARGETS
    elif program.endswith("python") and words[0] != "-m":
        assert (TREE / words[0]).exists()


def check_settings(given: dict[str, Any]) -> None:
    """Fails if a model, preset or setting is unknown, or a value does not fit."""
    settings = list(given["arguments"] or [])
    config = settings.pop(0) if settings and "=" not in settings[0] else None
    data = {"source": given["tmx"] or given["source"], "target": given["target"], "corpus": given["corpus"]}
    if config or given["model"]:  # others are chosen for the corpus, or those of a run
        plan(Path("no-run"), config, given["model"], given["preset"], settings, **data)


def test_no_file_stands_for_a_target_of_make() -> None:
    """`regard page` writes a folder `site` by default, which `make site` would take for what it makes."""
    phony = re.search(r"^\.PHONY: (.+)$", (TREE / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony
    assert sorted(phony[1].split()) == sorted(TARGETS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_exists(page: Path, tmp_path, monkeypatch) -> None:
    (tmp_path / "configs").symlink_to(TREE / "configs")
    monkeypatch.chdir(tmp_path)  # where no run has a similar name
    for command in commands(page.read_text(encoding="utf-8")):
        try:
            check(*command)
        except (Exception, SystemExit) as error:
            pytest.fail(f"{shlex.join(command)}: {error!r}")


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/models.md", "docs/own.md"])
def test_the_first_python_of_a_page_runs(page: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(first_python(TREE / page), page, "exec"), {})


def test_the_example_of_work_on_shards_runs(tmp_path) -> None:
    """As a file, which its workers import."""
    page = (TREE / "docs/scale.md").read_text(encoding="utf-8")
    (tmp_path / "upper.py").write_text(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[-1])
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    subprocess.run([sys.executable, "upper.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TREE)}, check=True)
    assert (tmp_path / "out" / "in.txt").read_text() == "ONE\nTWO\n"


@pytest.mark.slow
def test_the_whole_site_is_built_and_every_link_leads_somewhere() -> None:
    """`make site`: docs, course and the page that runs in the browser; docs/check.py follows the links."""
    if shutil.which("npm") is None or not (TREE / ".venv" / ".installed").exists():
        pytest.skip("make site needs npm, and the virtual environment that make creates")
    done = subprocess.run(["make", "site"], cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    site = TREE / "build" / "site"
    assert (site / "live" / "files" / "en-fr-cho" / "weights.bin").is_file()
    for page in ("docs/index.html", *(f"course/{path.stem}.html" for path in (TREE / "course").glob("[0-9]_*.py"))):
        text = (site / page).read_text("utf-8")
        assert '<figure class="live"' in text, page
        assert "<img" in text.partition('<figure class="live"')[2][:400], "the still picture"
