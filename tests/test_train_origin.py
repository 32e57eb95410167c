"""A run that begins with the weights of another: what is taken over, what is refused, and that it then stands alone."""

import json
import shutil
from pathlib import Path

import pytest
import small
from commands import metrics, run_ranks, sha256
from commands import regard as command

import regard
from regard.api.training import gather
from regard.errors import ConfigError, DataError, RegardError, RunError
from regard.runs.experiment import resolve
from regard.runs.folder import checkpoints, read_cursor, read_tensors
from regard.training.events import DataReady, Resumed, Stepped
from regard.training.start import inherit
from regard.training.start import train as begin

MORE = ("data.size=70", "data.seed=8", *small.TRAIN, "train.steps=9", "train.rate=0.01")


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    run = tmp_path_factory.mktemp("origin") / "first"
    small.train("bahdanau", run, "train.steps=5", "train.seed=3")
    return run


def train(out: Path, start: Path, *settings: str, observe=None, model: str | None = None) -> str:
    """Begin `out` from `start`, on other sentences; nothing is said of model or vocabulary."""
    tables = gather(None, model, None, ["data.corpus=reverse", *MORE, f"train.start_from={start}", *settings])
    return begin(resolve(inherit(tables, out)), out, observe)


class Killed(BaseException):
    """Nothing in regard may catch this."""


def kill_at(step: int):
    def observe(event):
        if isinstance(event, Stepped) and event.step == step:
            raise Killed

    return observe


def test_weights_and_vocabulary_are_those_of_the_other_run(first, tmp_path):
    events = []
    with pytest.raises(Killed):
        train(tmp_path / "new", first, observe=lambda event: (events.append(event), kill_at(1)(event)))
    begun = next(event for event in events if isinstance(event, DataReady))
    assert "begins with the weights of first" in begun.notes
    assert Resumed(0, []) in events
    zero = read_tensors(tmp_path / "new" / "checkpoints" / "000000" / "weights.safetensors")
    there = read_tensors(first / "weights.safetensors")
    assert all(zero[name].equal(there[name]) for name in zero.keys() | there.keys())
    for name in ("source.json", "target.json"):
        assert sha256(tmp_path / "new" / name) == sha256(first / name)


def test_see_2017_trains_without_coverage_first(tmp_path):
    """The paper's two phases: the weights of the coverage learn in the second of them only."""
    sizes = ("model.width=6", "model.embedding=5", "model.attention=4", *small.DATA, *small.TRAIN, *small.DECODE)
    found = []
    for steps in (1, 5):
        out, settings = tmp_path / str(steps), [*sizes, "model.coverage=false", f"train.steps={steps}"]
        begin(resolve(gather(None, "pointer", "tiny", settings, corpus="reverse")), out)
        found.append(read_tensors(out / "weights.safetensors")["attention.score.V.weight"])
    assert found[0].equal(found[1])
    train(tmp_path / "second", out, "model.coverage=true", "train.coverage=1", "train.steps=3")
    assert not read_tensors(tmp_path / "second" / "weights.safetensors")["attention.score.V.weight"].equal(found[1])
    assert regard.load(tmp_path / "second").model.config.coverage
    assert not regard.load(out).model.config.coverage


def test_killed_anywhere_it_ends_with_the_same_bits_and_needs_the_other_run_no_more(first, tmp_path):
    train(tmp_path / "whole", first, "model.dropout=0.2")
    start = tmp_path / "first"
    for step in (1, 2, 6):
        shutil.copytree(first, start)
        run = tmp_path / str(step)
        with pytest.raises(Killed):
            train(run, start, "model.dropout=0.2", observe=kill_at(step))
        shutil.rmtree(start)
        train(run, start, "model.dropout=0.2")
        assert sha256(run / "weights.safetensors") == sha256(tmp_path / "whole" / "weights.safetensors"), step
    train(run, start, "model.dropout=0.2")  # a finished run stays as it is
    assert regard.load(run).translate("a b").text is not None


def test_the_manifest_and_every_checkpoint_say_where_it_began(first, tmp_path):
    train(tmp_path / "new", first)
    began = {"run": "first", "weights": sha256(first / "weights.safetensors")}
    assert json.loads((tmp_path / "new" / "manifest.json").read_bytes())["start_from"] == began
    assert [read_cursor(folder).origin for folder in checkpoints(tmp_path / "new")] == [began] * 3
    assert "000000" not in {folder.name for folder in checkpoints(tmp_path / "new")}, "it has served"
    assert json.loads((first / "manifest.json").read_bytes())["start_from"] == {}


def test_a_run_in_progress_can_be_begun_from(first, tmp_path):
    going = Path(shutil.copytree(first, tmp_path / "going"))
    (going / "manifest.json").unlink()
    (going / "weights.safetensors").unlink()
    train(tmp_path / "new", going)
    best = going / "checkpoints" / "000005" / "weights.safetensors"
    assert json.loads((tmp_path / "new" / "manifest.json").read_bytes())["start_from"]["weights"] == sha256(best)


def test_two_ranks_begin_with_the_same_weights(first, tmp_path):
    train(tmp_path / "one", first)
    given = ["--corpus", "reverse", "--out", tmp_path / "two", *MORE, f"train.start_from={first}"]
    assert run_ranks(["train", *given], 2, tmp_path / "log") == [0, 0]
    losses = [[line["loss"] for line in metrics(tmp_path / name) if "loss" in line] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_first_attempt_that_never_saved_is_begun_again_from_what_is_there_now(first, tmp_path):
    """The vocabulary of the first attempt must not meet the weights of the second."""
    start = Path(shutil.copytree(first, tmp_path / "start"))
    new = tmp_path / "new"
    with pytest.raises(Killed):
        train(new, start, observe=kill_at(1))
    shutil.rmtree(new / "checkpoints")
    shutil.rmtree(start)
    small.train("bahdanau", start, "train.steps=2", "data.subwords=char")
    train(new, start)
    assert sha256(new / "source.json") == sha256(start / "source.json") != sha256(first / "source.json")


@pytest.mark.parametrize("changes", [("model.dropout=0.1",), ("model.timing=appendix", "train.optimiser=adadelta")])
def test_what_leaves_the_weights_as_they_are_may_change(changes, first, tmp_path):
    assert train(tmp_path / "new", first, *changes) == "done"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("model.name=luong",), "model.name is 'bahdanau'; got 'luong'"),
        (("model.name=captioner", "data.corpus=shapes"), "model.name is 'bahdanau'; got 'captioner'"),
        (("model.preset=small",), "model.preset is 'tiny'; got 'small'"),
        (("data.subwords=bpe",), "data.subwords is 'word'; got 'bpe'"),
        (("data.vocabulary=500",), "data.vocabulary is 8000; got 500"),
        (("data.lowercase=true",), "data.lowercase is False; got True"),
        (("data.vocabulary_from=elsewhere",), "data.vocabulary_from is ''; got 'elsewhere'"),
        (("model.dropout=0.1", "model.readout=5", "model.width=9"), "model.width is 7; got 9"),
        (("model.timing=conditional",), "model.timing is 'paper'; got 'conditional'"),
    ],
)
def test_what_contradicts_the_other_run_is_refused_by_name(settings, named, first, tmp_path):
    with pytest.raises(ConfigError) as refused:
        train(tmp_path / "new", first, *settings)
    sentence = str(refused.value)
    assert f"train.start_from uses the model and vocabulary of {first}, where {named}. Leave " in sentence
    assert not (tmp_path / "new").exists(), "nothing is left behind"


def test_languages_are_taken_over_and_others_refused(first, tmp_path):
    train(tmp_path / "old", first, "data.source_language=en", "data.target_language=fr", "train.steps=1")
    train(tmp_path / "new", tmp_path / "old", "train.steps=1")
    assert regard.load(tmp_path / "new").source_language == "en"
    with pytest.raises(ConfigError, match="old translates en to fr, but the corpus is fr to en"):
        train(tmp_path / "back", tmp_path / "old", "data.source_language=fr", "data.target_language=en")
    assert not (tmp_path / "back").exists()


def test_heads_that_no_longer_divide_the_width_are_named(tmp_path):
    small.train("transformer", tmp_path / "first", "train.steps=1")
    with pytest.raises(ConfigError, match=r"model\.width is 8; got 9"):
        train(tmp_path / "new", tmp_path / "first", "model.width=9", "model.heads=3")


@pytest.mark.parametrize("name", ["weights.safetensors", "source.json", "manifest.json"])
def test_a_damaged_run_is_not_begun_from(name, first, tmp_path):
    start = Path(shutil.copytree(first, tmp_path / "start"))
    (start / name).write_bytes((start / name).read_bytes()[:-2] + b" \n")
    with pytest.raises(RunError, match=f"{name} is (missing or )?damaged"):
        train(tmp_path / "new", start)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("wrong", ["nothing", ".", 3])
def test_what_is_no_run_is_refused(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RegardError, match=r"no run folder|no finished model and no checkpoint"):
        train(tmp_path / "new", wrong)


def test_the_same_folder_with_another_origin_is_another_run(first, tmp_path):
    train(tmp_path / "new", first)
    before = sha256(tmp_path / "new" / "weights.safetensors")
    for start in (tmp_path / "new", tmp_path / "gone"):
        with pytest.raises(RunError, match=r"holds a run with other settings \(train\.start_from was"):
            train(tmp_path / "new", start)
    assert sha256(tmp_path / "new" / "weights.safetensors") == before


@pytest.mark.parametrize(
    ("model", "corpus", "more"),
    [
        ("document", "reviews", ("model.embedding=4", "model.width=3", "data.size=40")),
        ("attentive-lm", "tales", ("model.width=5", "data.size=60", "data.subwords=word")),
        ("captioner", "shapes", ("model.width=5", "data.size=30", "model.features=6")),
    ],
)
def test_every_task_can_begin_so(model, corpus, more, tmp_path):
    made = gather(None, model, "tiny", [*more, "train.steps=2"], corpus=corpus)
    begin(resolve(made), tmp_path / "first")
    other = ["data.size=50", "data.seed=4", "train.steps=2", f"train.start_from={tmp_path / 'first'}"]
    begin(resolve(inherit(gather(None, None, None, other, corpus=corpus), tmp_path / "new")), tmp_path / "new")
    one, two = (resolve_sizes(tmp_path / name) for name in ("first", "new"))
    assert one == two


def resolve_sizes(run: Path) -> dict:
    return {name: tensor.shape for name, tensor in read_tensors(run / "weights.safetensors").items()}


def test_a_label_that_the_other_run_never_saw_is_refused(tmp_path):
    lines = "".join(f"{label}\tsome words . and more {k} .\n" for k in range(6) for label in ("good", "bad"))
    (tmp_path / "a.tsv").write_text(lines, encoding="utf-8")
    (tmp_path / "b.tsv").write_text(lines + "odd\tsome words .\n", encoding="utf-8")
    made = gather(None, "document", "tiny", [f"data.files={tmp_path / 'a.tsv'}", "train.steps=1"])
    begin(resolve(made), tmp_path / "first")
    other = [f"data.files={tmp_path / 'b.tsv'}", "train.steps=1", f"train.start_from={tmp_path / 'first'}"]
    with pytest.raises(DataError, match="odd"):
        begin(resolve(inherit(gather(None, None, None, other), tmp_path / "new")), tmp_path / "new")


def test_two_phases_are_two_commands(tmp_path):
    """First translation, then guided attention."""
    small.train("bahdanau", tmp_path / "first", "train.steps=4")
    given = ["--corpus", "reverse", "--out", tmp_path / "guided", f"train.start_from={tmp_path / 'first'}"]
    settings = [*small.DATA, *small.TRAIN, "data.alignment=gold", "train.guided=1", "train.steps=3"]
    done = command("train", *given, *settings, folder=tmp_path / "log")
    assert done.code == 0, done.err
    assert "begins with the weights of first" in done.err
    assert "resumed" not in done.err
    assert "train.start_from=" in command("train", "--help", folder=tmp_path / "log").out
