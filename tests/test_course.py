"""Every lecture runs from top to bottom, also as a notebook; checks accept the answers and refuse others in a sentence;
the hidden tests of the graded notebooks accept solutions and refuse mistakes.
"""

import contextlib
import io
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch

from regard.core.cells import update_keeps
from regard.core.masks import causal_mask
from regard.core.normalise import softmax
from regard.core.positions import sinusoid
from regard.core.scores import scaled_dot
from regard.errors import ConfigError
from regard.evaluate import faithful
from regard.evaluate.alignment import score_alignments
from regard.models.registry import MODELS
from regard.runs.included import FOLDERS
from regard.text.pharaoh import Gold

COURSE = Path(__file__).resolve().parent.parent / "course"
LECTURES = sorted(COURSE.glob("[0-9]_*.py"))
TEACHER = runpy.run_path(str(COURSE / "answers.py"))
ANSWERS = TEACHER["ANSWERS"]
sys.path.insert(0, str(COURSE))  # as when a lecture is run: its folder comes first
SCRIPT = runpy.run_path(str(COURSE / "render.py"))
from exercises import EXERCISES, Function, check, digits, narrate, picture, updates  # noqa: E402


def render(lecture: Path) -> str:
    """The page of a lecture, which is run."""
    return SCRIPT["render"](SCRIPT["run"](lecture), lecture.stem)


@pytest.fixture(autouse=True)
def _one_thread_and_own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(MODELS, "data", dict(MODELS.data))  # a lecture registers a model
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.published
@pytest.mark.parametrize("lecture", LECTURES, ids=lambda path: path.stem)
def test_a_lecture_runs_and_is_rendered(lecture: Path, monkeypatch) -> None:
    monkeypatch.setenv("COURSE_UPDATES", "2")
    page = render(lecture)
    number = lecture.stem[0]
    assert f"<h1>{number}. " in page
    assert page.count("<img src=") >= 1
    shown = re.findall(rf"^({number}\.\d): (?!right)", page, re.M) + re.findall(rf">({number}\.\d): (?!right)", page)
    assert set(shown) == {one for one in EXERCISES if one.startswith(number)}  # asked, and not solved in advance


@pytest.mark.parametrize("lecture", LECTURES, ids=lambda path: path.stem)
def test_a_lecture_ends_with_a_link_to_a_view_of_the_page(lecture: Path) -> None:
    """Its address names what the page knows, and a model that `regard serve` shows."""
    page = COURSE.parent / "regard" / "look" / "page"
    names = re.findall(r"^  (\w+):", (page / "state.js").read_text(encoding="utf-8").partition("};")[0], re.M)
    views = re.findall(r'{ id: "(\w+)"', (page / "views.js").read_text(encoding="utf-8"))
    last = SCRIPT["cells"](lecture.read_text(encoding="utf-8"))[-1]
    (address,) = map(urlsplit, re.findall(r"\[.+?\]\((http://.+?)\)", last.body))
    assert last.text
    assert (address.netloc, address.path) == ("127.0.0.1:5000", "/")
    wanted = {name: value for name, (value,) in parse_qs(address.fragment).items()}
    assert wanted.keys() <= set(names)
    assert wanted["view"] in views
    assert {wanted["model"], wanted.get("other", wanted["model"])} <= set(FOLDERS.values())


LEARNED = {  # what a lecture prints of its model, and the least that its text relies on
    "1_bottleneck": (r"LSTM\n.*\n +1-6 +\d+ +([\d.]+)", 60),
    "2_attention": (r"BLEU ([\d.]+)", 80),
    "3_scores_and_windows": (r"general, local-p +(\d+)", 80),
    "4_transformer": (r"BLEU ([\d.]+)", 85),
    "5_beyond_sentences": (r"accuracy on new reviews: ([\d.]+)", 0.75),
}


@pytest.mark.slow
@pytest.mark.parametrize("lecture", LECTURES, ids=lambda path: path.stem)
def test_a_whole_lecture_trains_models_that_learn(lecture: Path) -> None:
    pattern, least = LEARNED[lecture.stem]
    assert float(re.search(pattern, render(lecture))[1]) >= least


def test_the_answers_are_right() -> None:
    assert ANSWERS.keys() == EXERCISES.keys()
    for number, answer in ANSWERS.items():
        assert str(check(number, answer)) == f"{number}: right."


def test_the_answers_agree_with_the_library() -> None:
    ours = {
        "1.2": lambda state, new, update: update_keeps(update, state, new),
        "2.1": softmax,
        "2.2": lambda weights, values: weights @ values,
        "2.3": softmax,
        "3.2": scaled_dot,
        "4.1": causal_mask,
        "4.2": lambda length, width: sinusoid(torch.arange(length), width),
        "4.5": lambda layers: torch.linalg.multi_dot([(one + torch.eye(4)) / 2 for one in layers.flip(0)]),
    }
    for number, function in ours.items():
        inputs = TEACHER["INPUTS"][number](np.random.default_rng(5))
        tensors = [torch.as_tensor(one) if isinstance(one, np.ndarray) else one for one in inputs]
        np.testing.assert_allclose(ANSWERS[number](*inputs), function(*tensors).numpy(), atol=1e-6)
    found, sure, possible = TEACHER["INPUTS"]["3.4"](np.random.default_rng(5))
    expected = score_alignments([found], [Gold(frozenset(sure), frozenset(possible))]).aer
    assert ANSWERS["3.4"](found, sure, possible) == pytest.approx(expected)
    chances = np.random.default_rng(5).random([2] * 5)
    removed = {some: np.log(chances[tuple(int(s in some) for s in range(5))]) for some in faithful.subsets(5)}
    [lost, _] = faithful.curves([3, 0, 4, 1, 2], removed)
    assert ANSWERS["4.6"](np.array([3, 0, 4, 1, 2]), faithful.counts(5), chances) == pytest.approx(lost.mean())


@pytest.mark.parametrize("number", EXERCISES)
def test_wrong_answers_are_refused_without_the_right_one(number: str) -> None:
    answer = ANSWERS[number]
    if callable(answer):
        wrong = lambda *inputs: np.asarray(answer(*inputs)) + 0.01  # noqa: E731
        verdict = check(number, wrong)
        assert re.match(rf"{number}: with .+ the result is not .+\. [A-Z].+\.$", verdict.text)
        assert "the result has the shape [" in check(number, lambda *inputs: np.zeros((7, 7, 7))).text
        assert re.match(rf"{number}: the answer is a function of \(.+\); got a float\.$", check(number, 0.5).text)
    else:
        verdict = check(number, answer * 1.01)
        assert verdict.text.startswith(f"{number}: not ")
        assert not re.search(rf"\b{answer:.4g}\b", check(number, 12345).text.removeprefix(f"{number}: "))
        assert not check(number, float("nan")).right
        assert check(number, "many").text == f"{number}: the answer is a number; got a str."
    assert not verdict.right
    assert not check(number, None).right
    assert "got nothing yet" in check(number, None).text


def test_an_answer_that_fails_and_an_exercise_that_is_not_there() -> None:
    assert not check("2.1", lambda scores: scores[:2]).right
    assert check("2.1", lambda scores: 1 // 0).text.endswith(
        "raised ZeroDivisionError: integer division or modulo by zero."
    )
    assert "the result is not 0. In each half" in check("4.4", lambda chances, right: 0.0).text
    assert check("2.1", lambda: 0).text == "2.1: the answer is a function of (scores); yours takes other arguments."
    assert not check("1.3", True).right
    with pytest.raises(ConfigError, match=r"There is no exercise '9.9'\. Known: 1\.1, "):
        check("9.9", 1)


@pytest.fixture(scope="module")
def writer() -> dict:
    """The names of notebooks.py, which needs nbformat."""
    pytest.importorskip("nbformat", reason="the extra dev is not installed")
    return runpy.run_path(str(COURSE / "notebooks.py"))


def test_the_notebooks_are_those_of_the_lectures_and_hold_no_answers(writer) -> None:
    made = writer["student_notebooks"]()
    kept = {path.name: path.read_text(encoding="utf-8") for path in (COURSE / "notebooks").glob("*.ipynb")}
    assert made == kept, "run `make notebooks`"
    for text in made.values():
        assert not re.search("SOLUTION|HIDDEN", text)
        cells = json.loads(text)["cells"]
        assert cells[0]["source"] == ["%pip install --quiet regard"]
        assert not any(cell.get("outputs") for cell in cells)


def execute(name: str, folder: Path) -> str:
    """Run a notebook in its own kernel, in an empty folder, and return all that it printed."""
    pytest.importorskip("ipykernel", reason="the extra dev is not installed")
    import nbclient
    import nbformat

    notebook = nbformat.read(COURSE / "notebooks" / f"{name}.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow  # `make published` runs the lectures; here the same cells by Jupyter
def test_a_notebook_runs_in_jupyter(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COURSE_UPDATES", "1")
    assert "\n2.4: the answer is a number; got nothing yet.\n" in execute("2_attention", tmp_path)
    assert (tmp_path / "exercises.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in LECTURES])
def test_every_notebook_runs_whole(name: str, tmp_path) -> None:
    pattern, least = LEARNED[name]
    assert float(re.search(pattern, execute(name, tmp_path))[1]) >= least


def graded_cells(cells) -> list[tuple[str, str, str]]:
    """Name, answer and test of every question that is graded by running it."""
    sources = {one.metadata.nbgrader.grade_id: one.source for one in cells if "nbgrader" in one.metadata}
    return [(name, sources[f"{name}-answer"], test) for name, test in sources.items() if f"{name}-answer" in sources]


def passes(test: str, names: dict) -> bool:
    try:
        exec(test, names)
    except (AssertionError, NotImplementedError, TypeError, ValueError, IndexError):
        return False
    return True


def test_the_hidden_tests_of_the_exercises(writer) -> None:
    """They accept the solutions, and refuse stubs and answers that know only the visible cases."""
    cells = list(writer["sheet"](seed=7))
    names: dict = {}
    exec(cells[1].source, names)
    found = graded_cells(cells)
    assert len(found) == len(EXERCISES)
    guide = (COURSE / "teaching.md").read_text(encoding="utf-8")
    assert f"all lectures ({len(found)} points)" in guide
    assert f"| points of {len(found)} |" in guide
    assert cells != list(writer["sheet"](seed=8))
    for (name, answer, test), number in zip(found, EXERCISES, strict=True):
        exec(answer, names)
        assert passes(test, names), name
        asked = EXERCISES[number]
        if isinstance(asked, Function):
            known = lambda *given, asked=asked: next(  # noqa: E731
                (result for inputs, result in asked.cases if repr(inputs) == repr(given)), 0.5
            )
            variable = re.search(r"def (\w+)", answer)[1]
            assert not passes(test, {**names, variable: known})
        stub = writer["students"](answer)
        assert "NotImplementedError" in stub
        assert stub != answer


MISTAKES = {  # of the assignment: what a student might write
    "score": ("torch.tanh(query[:, None] + keys) @ v", "(query[:, None] + keys) @ v"),
    "weights": ("scores.masked_fill(~mask, -torch.inf)", "scores * mask"),
    "module": ("self.W(state), keys, self.v), mask)", "self.W(state), keys, self.v), mask | True)"),
    "decoder": (
        "return self.output(torch.cat([state, word, context], -1))",
        "context, weights = self.attention(state, keys, states, mask)\n"
        "        return self.output(torch.cat([state, word, context], -1))",
    ),
    "links": (
        "1 - 2 * both / (sum(map(len, found)) + sum(map(len, sure)))",
        "sum(1 - 2 * len(a & s) / (len(a) + len(s)) for a, s in zip(found, sure)) / len(found)",
    ),
}


def run_assignment(writer, names: dict) -> dict[str, bool]:
    """Run the solution of the assignment; which tests pass, and that each refuses its mistake."""
    right = {}
    cells = list(writer["converted"]((COURSE / "assignment.py").read_text(encoding="utf-8")))
    for number, cell in enumerate(cells):
        about = cell.metadata.get("nbgrader", {})
        if cell.cell_type != "code":
            continue
        if not about.get("grade"):
            exec(cell.source, names)
            continue
        name = about["grade_id"]
        right[name] = passes(cell.source, names)
        if name in MISTAKES:
            answer = cells[number - 1].source
            assert MISTAKES[name][0] in answer
            assert not passes(cell.source, exec_into({**names}, answer.replace(*MISTAKES[name]))), name
    return right


def exec_into(names: dict, source: str) -> dict:
    exec(source, names)
    return names


def test_the_tests_of_the_assignment_accept_the_solution_and_refuse_mistakes(writer, monkeypatch) -> None:
    monkeypatch.setenv("COURSE_UPDATES", "1")
    with contextlib.redirect_stdout(io.StringIO()):
        right = run_assignment(writer, {"__name__": "assignment"})
    assert right == {**dict.fromkeys(MISTAKES, True), "trained": False}  # a model without training is refused


@pytest.mark.slow
def test_the_whole_assignment(writer) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        right = run_assignment(writer, {"__name__": "assignment"})
    assert all(right.values())


def test_slides_have_the_headings_and_pictures_of_a_lecture() -> None:
    shown = [
        SCRIPT["Shown"](True, "# Title\n\nFirst. Second."),
        SCRIPT["Shown"](False, "narrate()"),
        SCRIPT["Shown"](True, "## Part\n\n    a = b"),
        SCRIPT["Shown"](False, "x = 1", "<out>", "<img src='data:,'>"),
        SCRIPT["Shown"](True, "## Exercises"),
        SCRIPT["Shown"](False, 'print(check("1.1", x))'),
        SCRIPT["Shown"](False, "compare(x)"),
        SCRIPT["Shown"](True, "## After"),
        SCRIPT["Shown"](False, "y = 2"),
    ]
    page = SCRIPT["slides"](shown, "0")
    assert page.count("<section>") == 4
    assert "First." in page
    assert "Second." not in page
    assert "a = b" in page
    assert "&lt;out&gt;" in page
    assert "<img src='data:,'>" in page
    assert "narrate" not in page
    assert "1.1" not in page
    assert "compare" not in page
    assert ">y<" in page.partition("After")[2]


def test_the_corpus_of_the_course(monkeypatch) -> None:
    pairs = digits(20, seed=5)
    assert pairs == digits(20, seed=5) != digits(20, seed=6)
    assert all(4 <= len(source.split()) == len(target.split()) <= 12 for source, target in pairs)
    assert ("three one", "un trois") in digits(2000, seed=1, shortest=2, longest=2)
    assert updates(200) == 200
    monkeypatch.setenv("COURSE_UPDATES", "3")
    assert (updates(200), updates(2)) == (3, 2)
    monkeypatch.setenv("COURSE_UPDATES", "few")
    with pytest.raises(ConfigError, match="COURSE_UPDATES must be a whole number of updates; got 'few'"):
        updates(200)
    with pytest.raises(ConfigError, match=r"shows \.png and \.svg files; got 'a\.pdf'"):
        picture("a.pdf")


def test_a_lecture_in_the_terminal_prints_its_text_between_the_output(tmp_path, monkeypatch, capsys) -> None:
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "0_x.py")
    Path(script.__file__).write_text(
        "# %%\nnarrate()\na = 2\n\n# %% [markdown]\n# What is a?\n\n# %%\nprint(a)\n", encoding="utf-8"
    )
    script.narrate = narrate
    monkeypatch.setitem(sys.modules, "__main__", script)
    with pytest.raises(SystemExit):
        narrate()
    assert capsys.readouterr().out == "\nWhat is a?\n\n2\n"
    script.__file__ = "notebook.ipynb"
    narrate()


def test_exercises_say_that_they_pass_arrays() -> None:
    assert "(numpy arrays) your function raised TypeError" in check("2.1", lambda s: torch.softmax(s, 0)).text


def test_cells_of_a_script_and_the_line_of_an_error(tmp_path) -> None:
    script = tmp_path / "0_x.py"
    script.write_text('"""Doc."""\n\n# %% [markdown]\n# # Title <b>\n# text\n\n# %%\nprint("<i>")\n', encoding="utf-8")
    page = render(script)
    assert "<title>Title &lt;b&gt;</title>" in page
    assert '<pre class="output">&lt;i&gt;\n</pre>' in page
    script.write_text("# %%\na = 1\n\n# %%\nb = a / 0\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as raised:
        render(script)
    assert (raised.traceback[-1].path, raised.traceback[-1].lineno + 1) == (script, 5)
