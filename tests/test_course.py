"""Every lecture runs from top to bottom; checks accept the answers and refuse others in one sentence."""

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.models.registry import MODELS
from regard.runs.included import FOLDERS

COURSE = Path(__file__).resolve().parent.parent / "course"
LECTURES = sorted(COURSE.glob("[0-9]_*.py"))
ANSWERS = runpy.run_path(str(COURSE / "answers.py"))["ANSWERS"]
sys.path.insert(0, str(COURSE))  # as when a lecture is run: its folder comes first
SCRIPT = runpy.run_path(str(COURSE / "render.py"))
from exercises import EXERCISES, check, digits, narrate, picture, updates  # noqa: E402


def render(lecture: Path) -> str:
    """The page of a lecture, which is run."""
    return SCRIPT["render"](SCRIPT["run"](lecture), lecture.stem)


@pytest.fixture(autouse=True)
def _one_thread_and_own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("regard.models.registry.MODELS", dict(MODELS))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@pytest.mark.parametrize("number", EXERCISES)
def test_wrong_answers_are_refused(number: str) -> None:
    answer = ANSWERS[number]
    if callable(answer):
        wrong = lambda *inputs: np.asarray(answer(*inputs)) + 0.01  # noqa: E731
        verdict = check(number, wrong)
        assert re.match(rf"{number}: with .+ the result is .+; yours is .+\.$", verdict.text)
        assert re.match(rf"{number}: the answer is a function of \(.+\); got a float\.$", check(number, 0.5).text)
    else:
        verdict = check(number, answer * 1.01)
        assert verdict.text.startswith(f"{number}: not ")
        assert check(number, "many").text == f"{number}: the answer is a number; got a str."
    assert not verdict.right
    assert not check(number, None).right
    assert "got nothing yet" in check(number, None).text


def test_an_answer_that_fails_and_an_exercise_that_is_not_there() -> None:
    assert not check("2.1", lambda scores: scores[:2]).right
    assert check("2.1", lambda scores: 1 // 0).text.endswith(
        "raised ZeroDivisionError: integer division or modulo by zero."
    )
    assert check("2.1", lambda: 0).text == "2.1: the answer is a function of (scores); yours takes other arguments."
    assert not check("1.3", True).right
    with pytest.raises(ConfigError, match=r"There is no exercise '9.9'\. Known: 1\.1, "):
        check("9.9", 1)


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
