"""benchmarks/papers.py: which jobs run and in which order, what is refused, and the tables of made-up results."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.errors import ConfigError

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def papers() -> dict[str, Any]:
    """The names of the script."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return runpy.run_path(str(BENCHMARKS / "papers.py"))
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(papers, monkeypatch, capsys):
    """The exit code of the script and what it printed; nothing is run unless `jobs` are given."""

    def act(*words: str, jobs: tuple = ()) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["papers.py", *words])
        if jobs:
            monkeypatch.setitem(papers["main"].__globals__, "jobs", lambda given: iter(jobs))
        try:
            code = papers["main"]()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return act


def job(papers, name: str, code: str = "print('{}')", needs: tuple[str, ...] = ()) -> Any:
    return papers["Job"](name, [sys.executable, "-c", code], needs)


def keep(name: str, *found: Any, **about: Any) -> None:
    """Write the result of a job."""
    path = Path("runs/papers/results") / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"found": found, **about}), encoding="utf-8")


def test_jobs_are_chosen_by_how_their_names_begin(papers) -> None:
    every = [job(papers, name) for name in ("a-x-1", "a-x-1-score", "a-y-1", "a-y-2-score", "b-x-1")]

    def names(*only: str, but: tuple[str, ...] = ()) -> list[str]:
        return [one.name for one in papers["select"](every, list(only), list(but))]

    assert names() == [one.name for one in every]
    assert names("a-x") == ["a-x-1", "a-x-1-score"]
    assert names("a-?-1", "b") == ["a-x-1", "a-x-1-score", "a-y-1", "b-x-1"]
    assert names("a", but=("*-score",)) == ["a-x-1", "a-y-1"]
    keep("a-x-1")
    assert names("a-x") == ["a-x-1-score"]  # what is done is not done again
    for only, but in ((["c"], []), (["a"], ["c"])):
        with pytest.raises(ConfigError, match=r"^No job begins with 'c'; the groups are a, b\.$"):
            papers["select"](every, only, but)


def test_jobs_run_after_what_they_need_and_failures_are_listed_at_the_end(papers, run) -> None:
    jobs = (
        job(papers, "second", needs=("first",)),
        job(papers, "first", "print('{\"a\": 1}')"),
        job(papers, "wrong", "import sys; print('why', file=sys.stderr); sys.exit(3)"),
        job(papers, "after-wrong", needs=("wrong", "nowhere/file")),
    )
    code, printed = run("--jobs", "2", jobs=jobs)
    assert code == 1
    lines = printed.splitlines()
    assert "failed with 3" in next(line for line in lines if " wrong: " in line)
    assert next(at for at, line in enumerate(lines) if " first: " in line) < next(
        at for at, line in enumerate(lines) if " second: " in line
    )
    assert "after-wrong did not begin: it needs wrong, nowhere/file." in lines
    assert lines[-1] == "Not done: wrong, after-wrong; see runs/papers/logs."
    assert Path("runs/papers/logs/wrong.txt").read_text() == "why\n"
    assert json.loads(Path("runs/papers/results/first.json").read_bytes())["found"] == [{"a": 1}]
    assert run("--only", "first", "second", jobs=jobs)[0] == 0  # both are done


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "nosuch"], "No job begins with 'nosuch'; the groups are phrasebook, "),
        (["--but", "nosuch"], "No job begins with 'nosuch'"),
        (["--table", "models"], "there are no results in runs/papers/results; run the jobs first"),
        (["--drawn", "a.svg"], "there are no results in runs/papers/results; run the jobs first"),
        (["--without", "attenton"], "there is no method 'attenton'; the methods are attention, "),
        (["--without", "en-fr:attenton"], "there is no method 'en-fr:attenton'"),
        (["--set", "train.steps"], "--set takes KEY=VALUE, as in train.steps=800; got 'train.steps'"),
        (["--jobs", "0"], "--jobs is at least 1"),
        (["--sentences", "1"], "--sentences at least 2"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_before_any_work(run, words: list[str], says: str) -> None:
    code, printed = run(*words)
    assert code == 2
    assert says in printed.splitlines()[-1]
    assert not Path("runs").exists()


def test_missing_data_names_the_command(papers, capsys) -> None:
    papers["write_text"](Path("data"), 4)
    printed = capsys.readouterr().out
    for name in ("multi30k", "newstest.en-fr", "europarl.en-fr", "hansards.en-fr"):
        assert f"build it: python benchmarks/data.py {name}\n" in printed


def test_options_reach_the_commands(papers, run, monkeypatch) -> None:
    seen: list[Any] = []
    monkeypatch.setitem(
        papers["main"].__globals__, "run", lambda chosen, every, count, limit: seen.extend(chosen) or []
    )
    words = ["--only", "phrasebook-bahdanau-1", "--set", "train.steps=7", "--without", "gradient", "bahdanau:attention"]
    assert run(*words, "--device", "cpu")[0] == 0
    train, score, faithful, removed = (" ".join(one.words) for one in seen)
    assert [one.needs for one in seen][1:] == [("phrasebook-bahdanau-1", "phrasebook")] * 3
    assert "train.steps=7" in train
    assert "train.steps=3000" not in train
    assert " score " in score
    [methods] = (word.split(",") for word in faithful.split() if "occlusion-masked" in word)
    assert not {"gradient", "attention", "alti"} & {*methods}  # the last one is not defined for this model
    assert "--erase removed" in removed


def test_tables_of_made_up_results(run) -> None:
    for seed, (bleu, reach) in enumerate(((30, 0.5), (34, 0.75)), 1):
        keep(f"multi30k-luong-{seed}", weights=2_500_000)
        keep(f"multi30k-luong-{seed}-score", {"scores": [{"name": "BLEU", "value": bleu}]})
        one = {"method": "attention", "reach": {"value": reach, "low": 0, "high": 1}, "kept": {"output": -0.5}}
        keep(f"multi30k-luong-{seed}-faithful", {"methods": [one]})
    keep("multi30k-bahdanau-1-score", {"scores": [{"name": "BLEU", "value": 31}]})
    keep("replaceable-1", {"run": "x", "attention": "uniform", "bleu": 1.5})
    one = {"method": "attention", "reach": {"value": 0.5, "low": 0.25, "high": 1}, "kept": {}, "seconds": 0.25}
    keep("included-fr-en-newstest-faithful", {"methods": [one]})
    code, printed = run("--table", "models", "multi30k", "replaceable", "included")
    assert code == 0
    assert "| luong | 32.0 (30.0-34.0) | 2.5 M | 2 |" in printed
    assert "| bahdanau | 31.0 † | - | 1 |" in printed
    assert "multi30k, faithful: reach\n\n| method | luong |\n|---|---|\n| attention | 0.62 (0.50-0.75) |" in printed
    assert "| attention | -0.50 (-0.50 to -0.50) |" in printed
    assert "| uniform | 1.50 † |" in printed
    assert "newstest: reach\n\n| method | fr-en |\n|---|---|\n| attention | 0.50 (0.25-1.00) |" in printed
    assert "| attention | 0.25 |" in printed  # seconds; an included model has no seeds to be marked for
