"""Sweeps: which runs a file stands for, groups and their test, and drivers that are stopped, killed or refused."""

import json
import random
import re
import signal
from pathlib import Path

import patience
import pytest
from commands import Command, context, regard

from regard.api.halving import Halving
from regard.api.sweeping import collect, read_sweep, start_training, sweep
from regard.cluster.local import run_local
from regard.cluster.shards import Input, Plan, write_results
from regard.errors import ConfigError, DataError, RunError
from regard.evaluate.groups import ONE_SEED, System, compare_groups, plot_groups
from regard.evaluate.significance import group_bootstrap
from regard.runs.folder import checkpoints, is_finished
from regard.sealed import locked
from regard.training.events import Validated

SMALL = """
[data]
corpus = "reverse"
size = 60
subwords = "word"
max_words = 6
held_out = 5
[model]
name = "luong"
preset = "tiny"
width = 6
[train]
steps = 3
batch_tokens = 64
validate_sentences = 0
"""


@pytest.fixture(autouse=True)
def workers_as_forks(monkeypatch):
    """A worker that imports everything takes seconds; test_shards.py starts them as users do."""
    monkeypatch.setattr("regard.processes.context", context)


def write(folder: Path, text: str, name: str = "sweep.toml") -> Path:
    path = folder / name
    path.write_text(text + SMALL, encoding="utf-8")
    return path


def test_a_sweep_is_runs_times_grid_times_seeds(tmp_path):
    text = 'seeds = [1, 7]\n[[runs]]\nmodel.score = "dot"\n[[runs]]\nmodel.window = "local-m"\n'
    trials = read_sweep(write(tmp_path, text + "[grid]\nmodel.layers = [1, 2]\n"), ["train.steps=5"])
    assert len(trials) == len({trial.name for trial in trials}) == 2 * 2 * 2
    first, last = trials[0], trials[-1]
    assert (first.groups, first.seed) == (["score=dot layers=1"], 1)
    assert (last.groups, last.seed) == (["window=local-m layers=2"], 7)
    assert {trial.tables["train"]["steps"] for trial in trials} == {5}
    assert (last.tables["model"]["layers"], last.tables["model"]["window"], last.tables["train"]["seed"]) == (
        2, "local-m", 7,
    )  # fmt: skip
    assert "score" not in last.tables["model"]


def test_settings_of_decoding_share_their_training_and_do_not_leak(tmp_path):
    text = "[[runs]]\ndecode.beam = 2\n[[runs]]\ndecode.length_penalty = 1.0\n[[runs]]\nmodel.layers = 2\n"
    shared, other = read_sweep(write(tmp_path, text))
    assert shared.groups == ["beam=2", "length_penalty=1.0"]
    assert [(one["beam"], one["length_penalty"]) for one in shared.decodes] == [(2, 0.6), (5, 1.0)]
    assert other.groups == ["layers=2"]
    assert "beam" not in shared.tables.get("decode", {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[grid]\nmodel.widht = [1]\n", "There is no setting 'widht' in .model.. Did you mean 'width'"),
        ("[grid]\nmodel.score = ['dott']\n", "model.score must be one of"),
        ("[grid]\nmodel.layers = []\n", "model.layers must be a list of at least one value"),
        ("[grid]\nlayers = [1]\n", "settings such as model.layers; got 'layers'"),
        ("[grid]\ntrain.seed = [1]\n", "The seeds of a sweep are those of `seeds`"),
        ("seeds = [1]\n", "There is nothing to sweep over"),
        ("seeds = []\n[grid]\nmodel.layers = [1]\n", "seeds must be a list of whole numbers"),
        ("seeds = [3, 3]\n[grid]\nmodel.layers = [1]\n", "name each once"),
        ("[gird]\nmodel.layers = [1]\n", "There is no part 'gird' of a sweep. Did you mean 'grid'"),
        ("[[runs]]\nmodel.layers = 1\n[[runs]]\nmodel.layers = 1\n", "layers=1 occur twice"),
        ("[test]\nsource = 'none.en'\ntarget = 'none.de'\n[grid]\nmodel.layers = [1]\n", "none.en"),
        ("[test]\nsource = 'none.en'\n[grid]\nmodel.layers = [1]\n", "names two files, source and target"),
        ("[[runs]]\nmodel.window = 'local-m'\nmodel.normaliser = 'sparsemax'\n", "takes the softmax in a window"),
        ("[[runs]]\nmodel.name = 'lstm-lm'\n", "A sweep compares translators"),
    ],
)
def test_a_bad_sweep_is_one_sentence_and_makes_no_folder(text, sentence, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(text + SMALL, encoding="utf-8")
    if "lstm-lm" in text:  # its data is of another kind
        path.write_text(text + "[data]\ncorpus = 'tales'\n", encoding="utf-8")
    with pytest.raises((ConfigError, DataError), match=sentence):
        sweep(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("data.corpus=revers", "Did you mean 'reverse'"),
        ("data.dev_tsv=nothing.tsv", "nothing.tsv"),
    ],
)
@pytest.mark.parametrize("axis", ["model.layers = [1]", "data.vocabulary = [20, 30]"])
def test_a_missing_corpus_is_found_before_the_first_run(axis, setting, sentence, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(f"[grid]\n{axis}\n" + SMALL, encoding="utf-8")
    with pytest.raises((ConfigError, DataError), match=sentence):
        sweep(path, tmp_path / "out", settings=[setting])
    assert not (tmp_path / "out").exists()


def test_a_wrong_name_of_one_corpus_is_found_before_the_first_run(tmp_path):
    path = write(tmp_path, "[grid]\ndata.corpus = ['copy', 'revers']\n")
    with pytest.raises(DataError, match="Did you mean 'reverse'"):
        sweep(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parent.parent.glob("configs/sweeps/*.toml")), ids=lambda p: p.stem
)
def test_the_sweeps_that_ship_are_whole(path, monkeypatch, tmp_path):
    """Every setting is known and fits its model; the first line is the command."""
    monkeypatch.chdir(path.parent.parent.parent)
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# regard sweep configs/sweeps/{path.name} --out sweeps/{path.stem}")
    assert "seeds = [1, 2" in text
    without_test = tmp_path / path.name  # its files may not be here
    without_test.write_text(re.sub(r"\[test\]\n(\w.*\n)*", "", text), encoding="utf-8")
    trials = read_sweep(without_test)
    assert len({group for trial in trials for group in trial.groups}) >= 4


@pytest.mark.parametrize("setting", ["model.feed=true", "decode.beam = 2", "train.seed=5"])
def test_a_setting_that_the_file_changes_is_refused_on_the_command_line(setting):
    path = Path(__file__).parent.parent / "configs" / "sweeps" / "phrasebook.toml"
    with pytest.raises(ConfigError, match=f"sets {setting.partition('=')[0].strip()} for each run itself"):
        read_sweep(path, [setting])


def test_a_folder_of_another_sweep_or_of_something_else_is_refused_untouched(tmp_path):
    path = write(tmp_path, "[grid]\nmodel.layers = [1]\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match="is not the folder of a sweep"):
        sweep(path, out)
    assert [one.name for one in out.iterdir()] == ["notes.txt"]
    (out / "notes.txt").rename(out / "plan.jsonl")
    with pytest.raises(RunError, match="holds a sweep with other settings or another test set"):
        sweep(path, out)
    assert [one.read_text(encoding="utf-8") for one in out.iterdir()] == ["mine"]
    for wrong, sentence in (
        ({"workers": 0}, "--workers must be at least 1; got 0"),
        ({"minutes": 0}, "--minutes must be above 0; got 0"),
        ({"minutes": 1, "on": "ray"}, "with --on ray set train.minutes"),
        ({"on": "rai"}, "There is no place 'rai' to work"),
        ({"address": "127.0.0.1:1"}, "--address is that of a Ray cluster; add --on ray"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            sweep(path, tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


def test_a_run_is_scored_on_its_validation_set_with_every_choice_of_decoding(tmp_path):
    path = write(tmp_path, "[grid]\ndecode.beam = [1, 2]\n")
    (trial,) = read_sweep(path)
    work = start_training(tmp_path, 1)
    (found,) = work([json.dumps(trial)], lambda rows: None)
    run = tmp_path / "runs" / trial.name
    assert is_finished(run)
    assert len(found["references"]) == len(found["written"][0]) == len(found["written"][1]) == 5
    before = (run / "weights.safetensors").stat().st_mtime_ns
    assert list(work([json.dumps(trial)], lambda rows: None)) == [found]  # a finished run is not trained again
    assert (run / "weights.safetensors").stat().st_mtime_ns == before
    plan = Plan([Input("", "", 0, 0, 1)], 1, "", {})
    (tmp_path / "shards").mkdir()
    write_results(tmp_path, plan.shards()[0], [found])
    swept = collect(tmp_path, [trial], plan.shards(), None)
    assert {group.name for group in swept.table.groups} == {"beam=1", "beam=2"}
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["sentences"] == 5
    assert (tmp_path / "results.svg").read_text(encoding="utf-8").count("<path") > 3


def test_a_run_that_fails_is_set_aside_and_the_others_are_compared(tmp_path):
    lines = "".join(f"{first} {second}\n" for first in ("ba", "de", "fi") for second in ("go", "ku"))
    for name in ("test.a", "test.b"):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    files = f"[test]\nsource = '{tmp_path}/test.a'\ntarget = '{tmp_path}/test.b'\n"
    choices = ("model.score = 'dot'\n", "data.min_words = 1\ndata.max_words = 1\n", "model.score = 'general'\n")
    runs = "".join(f"[[runs]]\n{one}" for one in choices)
    path, out = write(tmp_path, files + runs), tmp_path / "out"
    with locked(out, "is working"), pytest.raises(RunError, match="Another process is working in"):
        sweep(path, out)
    command = regard("sweep", path, "--out", out, "--workers", 1, "--json", folder=tmp_path / "log")
    assert command.code == 2
    assert "1 of 3 runs failed and were set aside" in command.err
    found = json.loads(command.out)
    assert (found["runs"], found["finished"], found["sentences"]) == (3, 2, 6)
    (reason,) = found["failed"].values()
    assert "set data.max_words higher" in reason
    assert {group["name"] for group in found["groups"]} == {"score=dot", "score=general"}
    assert "case:mixed" in found["signature"]
    (tmp_path / "test.b").write_text(lines[::-1].strip() + "\n", encoding="utf-8")
    with pytest.raises(RunError, match="another test set"):
        sweep(path, out)


def test_a_stopped_sweep_saves_and_a_killed_one_leaves_no_worker(tmp_path):
    path, out = write(tmp_path, "[grid]\nmodel.layers = [1]\n"), tmp_path / "out"
    arguments = ["sweep", path, "--out", out, "--workers", 1, "train.steps=1000000", "train.save_every=1000000"]
    run = out / "runs" / "000-model.layers=1-seed=1"

    def count() -> int:
        return (
            (run / "metrics.jsonl").read_text(encoding="utf-8").count("\n") if (run / "metrics.jsonl").exists() else 0
        )

    driver = Command(arguments, tmp_path / "log")
    driver.until(lambda: count() > 0)
    driver.send(signal.SIGINT)
    assert driver.wait() == 130
    assert "the same command continues" in driver.err
    (saved,) = checkpoints(run)
    lines = count()
    driver = Command(arguments, tmp_path / "log")
    driver.until(lambda: count() > lines)
    driver.send(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL

    def free() -> bool:
        try:
            with locked(run, "is training"):
                return True
        except RunError:
            return False

    patience.until(free, 0.01, lambda: "the worker lives on")
    assert checkpoints(run) == [saved]


def start_nothing():
    raise AssertionError("no worker may start")


def test_work_whose_time_is_up_is_left_undone(tmp_path):
    plan = Plan([Input("", "", 0, 0, 2)], 1, "", {})
    assert run_local(start_nothing, plan, tmp_path, 1, until=0.0) == 0
    assert not (tmp_path / "failed").exists()


WORDS = ["the", "old", "house", "stands", "near", "a", "river", "and", "every", "dog", "likes", "it"]


def noisy(noise: float, seed: int, references: list[str]) -> list[str]:
    chance = random.Random(seed)
    return [" ".join("x" if chance.random() < noise else word for word in line.split(" ")) for line in references]


@pytest.fixture(scope="module")
def references() -> list[str]:
    return [" ".join(random.Random(number).choices(WORDS, k=9)) for number in range(60)]


def test_seeds_widen_the_interval_of_the_bootstrap(references):
    """A lucky seed is no better system: with one good and one bad seed on each side nothing is shown."""
    good, bad = noisy(0.1, 1, references), noisy(0.5, 2, references)
    alone = group_bootstrap([good], [bad], references)
    assert alone.p == pytest.approx(1 / 1001)
    mixed = group_bootstrap([good, bad], [bad, noisy(0.5, 3, references)], references)
    assert mixed.delta > 5
    assert mixed.p > 0.05
    assert mixed.low < 0.5 < mixed.high
    same = [[noisy(0.3, 10 * side + seed, references) for seed in range(3)] for side in (1, 2)]
    steady = group_bootstrap(*same, references)
    assert steady.low < 0 < steady.high
    assert steady.delta == pytest.approx(steady.a - steady.b)
    with pytest.raises(DataError, match="at least one seed"):
        group_bootstrap([], [good], references)


def test_the_table_has_the_best_group_first_and_every_seed(references, tmp_path):
    groups = {
        name: {seed: System(noisy(noise, seed, references), size, 10.0 * seed) for seed in (1, 2, 3)}
        for name, noise, size in (("bad $x$", 0.5, 20), ("good", 0.1, 10))
    }
    table = compare_groups(groups, references)
    best, other = table.groups
    assert (best.name, best.seeds, best.seconds, best.parameters) == ("good", [1, 2, 3], 20.0, 10)
    assert best.best_against is None
    assert best.mean == pytest.approx(sum(best.bleu) / 3)
    assert best.spread == pytest.approx((sum((one - best.mean) ** 2 for one in best.bleu) / 2) ** 0.5)
    assert other.best_against.delta == pytest.approx(best.mean - other.mean)
    assert f"{best.bleu[2]:.2f}" in str(table).split("\n")[1]
    assert "version:" in str(table)
    drawn = plot_groups(table, tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert "bad $x$" in drawn
    one = compare_groups({"only": {1: groups["good"][1]}}, references)
    assert one.groups[0].spread is None
    assert ONE_SEED not in f"{table}{one}"
    alone = compare_groups({name: {1: seeds[1]} for name, seeds in groups.items()}, references)
    assert str(alone).count(ONE_SEED) == 1


def test_halving_stops_the_runs_that_validate_worse_and_keeps_them(tmp_path):
    rates = "[grid]\ntrain.rate = [0.01, 1e-9, 1e-10, 0.02]\n"  # two that cannot learn, after one that does
    path, out = write(tmp_path, rates), tmp_path / "out"
    settings = ["train.steps=8", "train.validate_every=2", "train.schedule=constant"]
    found = sweep(path, out, settings=settings, workers=1, halving=2)
    assert (found.runs, found.finished, found.failed) == (4, 4, {})
    assert [name[:3] for name in found.stopped] == ["001", "002"]
    assert {place.partition(" with")[0] for place in found.stopped.values()} == {"after 2 updates"}
    assert {group.name for group in found.table.groups} == {"rate=0.01", "rate=0.02"}
    stopped = next(iter((out / "runs").glob("001*")))
    assert not is_finished(stopped)
    kept = checkpoints(stopped)
    assert kept  # it can be resumed by hand
    again = sweep(path, out, settings=settings, workers=1, halving=2)  # nothing is trained again
    assert (again.stopped, checkpoints(stopped)) == (found.stopped, kept)


@pytest.mark.filterwarnings("error")
def test_a_run_that_was_killed_as_halving_stopped_it_is_stopped_when_it_resumes(tmp_path):
    def validated(loss, step=10):
        return Validated(step, {"loss": loss}, [], True)

    assert not Halving(tmp_path, 2, "good", 10)(validated(2.0))
    assert Halving(tmp_path, 2, "bad", 10)(validated(3.0))
    again = Halving(tmp_path, 2, "bad", 10)
    assert again.stopped == "after 10 updates with a loss of 3.000"
    assert again(validated(1.0, 11))
    resumed = Halving(tmp_path, 2, "good", 10)
    assert not resumed(validated(2.0))  # validated again, after its last checkpoint was lost
    assert not resumed(validated(1.0, 20))


def test_a_run_that_halving_would_stop_at_its_last_update_is_finished(tmp_path):
    path = write(tmp_path, "[grid]\ntrain.rate = [0.01, 1e-9]\n")
    settings = ["train.steps=4", "train.validate_every=4", "train.schedule=constant"]
    found = sweep(path, tmp_path / "out", settings=settings, workers=1, halving=2)
    assert (found.finished, found.stopped) == (2, {})
    assert {group.name for group in found.table.groups} == {"rate=0.01", "rate=1e-09"}


@pytest.mark.parametrize(
    ("text", "settings", "halving", "sentence"),
    [
        ("[grid]\nmodel.layers = [1]\n", [], 1, "N is at least 2; got 1"),
        ("[grid]\ndata.max_words = [5, 6]\n", ["train.validate_every=2"], 2, "data.max_words was 5, now 6"),
        ("[grid]\nmodel.layers = [1]\n", ["train.validate_every=0"], 2, "set one train.validate_every for all"),
        ("[grid]\ntrain.validate_every = [1, 2]\n", [], 2, "set one train.validate_every for all"),
    ],
)
def test_halving_of_runs_that_cannot_be_compared_is_refused(text, settings, halving, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        sweep(write(tmp_path, text), tmp_path / "out", settings=settings, halving=halving)
    assert not (tmp_path / "out").exists()
