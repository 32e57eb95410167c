"""make results: the tables of docs/results are found with their commands, and a small one is repeated."""

import json
import re
import runpy
from pathlib import Path
from statistics import fmean

import pytest

TREE = Path(__file__).resolve().parent.parent
# Model, perplexity, last word right, and the smallest of its seeds where there are several.
ROW = r"^\| `([\w-]+-lm)` \| ([\d.]+)(?: \([^)]+\))? \| ([\d.]+) %(?: \(([\d.]+)-[^)]+\))?"


def test_every_table_has_a_name_of_its_own_and_commands(capsys, monkeypatch) -> None:
    names = runpy.run_path(str(TREE / "benchmarks" / "results.py"))
    tables = [(anchor, script) for anchor, _, script in names["tables"]()]
    scripts = dict(tables)
    assert len(tables) == len(scripts) > 25
    pages = "".join(path.read_text(encoding="utf-8") for path in TREE.glob("docs/**/*.md"))
    assert set(re.findall(r"make results TABLE=([\w-]+)", pages)) <= scripts.keys()
    assert "repeat-a-table" not in scripts
    assert scripts["tales"].startswith("for m in lstm-lm")
    assert "configs/tales.toml" in scripts["tales"]
    monkeypatch.setattr("sys.argv", ["results.py", "tails"])
    assert names["main"]() == 2
    assert "Expected the name of a table, got tails" in capsys.readouterr().err


def test_a_table_whose_corpus_is_missing_names_the_command(tmp_path, monkeypatch, capsys) -> None:
    names = runpy.run_path(str(TREE / "benchmarks" / "results.py"))
    for folder in ("docs", "configs"):
        (tmp_path / folder).symlink_to(TREE / folder)
    monkeypatch.setitem(names["main"].__globals__, "TREE", tmp_path)
    monkeypatch.setattr("sys.argv", ["results.py", "length-on-europarl"])
    assert names["main"]() == 2
    assert "python benchmarks/data.py europarl.en-fr" in capsys.readouterr().err


def last_validation(file: Path) -> dict[str, float]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "dev_last_word" in line][-1]


@pytest.mark.timeout(7200)
@pytest.mark.slow
def test_the_table_of_tales_is_repeated(tmp_path, monkeypatch, capfd) -> None:
    """All four models with three seeds. Rounding differs between processors, and so do the numbers."""
    names = runpy.run_path(str(TREE / "benchmarks" / "results.py"))
    for folder in ("docs", "configs"):
        (tmp_path / folder).symlink_to(TREE / folder)
    monkeypatch.setitem(names["main"].__globals__, "TREE", tmp_path)
    monkeypatch.setattr("sys.argv", ["results.py", "tales"])
    assert names["main"]() == 0
    assert re.search(r"\d+\.\d minutes on \w+ \w+, \d+ cores", capfd.readouterr().out)
    page = (TREE / "docs" / "results" / "language-models.md").read_text(encoding="utf-8")
    found = re.findall(ROW, page, re.MULTILINE)
    rows = {model: (float(value), float(least or right)) for model, value, right, least in found}
    assert len(rows) == 4
    for model, (perplexity, least) in rows.items():
        runs = [tmp_path / "runs" / f"tales-{model}-{seed}" / "metrics.jsonl" for seed in (1, 2, 3)]
        lasts = [last_validation(run) for run in runs]
        assert fmean(one["dev_perplexity"] for one in lasts) == pytest.approx(perplexity, rel=0.1), model
        assert 100 * fmean(one["dev_last_word"] for one in lasts) > least - 5, model
