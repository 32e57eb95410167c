"""`regard train` and its mistakes: one sentence on stderr, exit code 2, nothing overwritten, nothing left behind."""

import io
import os
import pty
import re
import select
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest
import small
from commands import PATIENCE, Command, SignalIn, metrics, regard, run_here, sha256
from rich.console import Console
from rich.progress import Progress

import regard as library
from regard.cli import progress
from regard.data.settings import check_codes
from regard.runs.experiment import resolve
from regard.runs.folder import checkpoints
from regard.training.events import Validated
from regard.training.start import differences


def snapshot(folder: Path) -> dict[Path, str]:
    """Every file below a folder with its content."""
    return {path: sha256(path) for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"}


def refused(*arguments: object, folder: Path, says: str) -> str:
    """Run a command that must be refused in one sentence: here, since it changes nothing."""
    command = run_here(*arguments)
    assert command.code == 2, (command.code, command.err)
    assert "Traceback" not in command.err
    assert command.out == ""
    sentence = command.err.rstrip("\n").split("\n")[-1]
    assert sentence.startswith("regard: ")
    assert re.search(says, sentence), sentence
    return command.err


@pytest.fixture
def files(tmp_path):
    """Parallel files of `lines` lines, by their names."""

    def write(name: str, lines: int, text: str = "one two three") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{text} {number}\n" for number in range(lines)), encoding="utf-8")
        return path

    return write


def parallel(source: object, target: object, out: Path, *more: str) -> list[object]:
    given = ["--source", source, "--target", target, "--model", "bahdanau", "--preset", "tiny", "--out", out]
    return ["train", *given, *small.MODELS["bahdanau"], "data.subwords=word", "train.steps=2", *more]


def test_missing_unequal_and_empty_corpora(files, tmp_path):
    out, here = tmp_path / "run", tmp_path / "none.txt"
    ten, nine, empty = files("ten", 10), files("nine", 9), files("empty", 0)
    blank = tmp_path / "blank"
    blank.write_text("\n  \n" * 5, encoding="utf-8")
    refused(*parallel(here, ten, out), folder=tmp_path, says=f"There is no file {here}; check the path")
    refused(*parallel(ten, nine, out), folder=tmp_path, says=f"{ten} has 10 lines and {nine} has 9")
    refused(
        *parallel(empty, empty, out), folder=tmp_path, says=f"The corpus of {empty}, {empty} is empty: it has no line"
    )
    refused(*parallel(blank, ten, out), folder=tmp_path, says=r"all its pairs \(10\) are blank or have an empty side")
    refused(*parallel(tmp_path, ten, out), folder=tmp_path, says="is a folder; give a text file")
    bad = tmp_path / "bad"
    bad.write_bytes(b"one\n" * 7 + b"\xff\n" + b"two\n" * 2)
    refused(*parallel(bad, ten, out), folder=tmp_path, says=f"{bad}, line 8: byte 1 .0xFF. is not UTF-8")
    assert not out.exists()  # a folder that was made for nothing goes again


def test_a_corpus_of_one_pair(files, tmp_path):
    one = files("one", 1)
    refused(*parallel(one, one, tmp_path / "run"), folder=tmp_path, says="has 1 usable example")
    assert not (tmp_path / "run").exists()
    done = regard(*parallel(one, one, tmp_path / "run", "data.held_out=0"), folder=tmp_path / "log")
    assert done.code == 0  # who asks for it gets it
    assert metrics(tmp_path / "run")


def test_half_a_corpus_and_two_corpora(files, tmp_path):
    ten, out = files("ten", 10), tmp_path / "run"
    start = ["train", "--model", "bahdanau", "--out", out]
    refused(*start, "--source", ten, folder=tmp_path, says="Only data.source is set; a parallel corpus needs")
    mine = files("data.source", 3)  # the name of a file, not of a setting
    refused(*start, "--source", mine, "--target", ten, folder=tmp_path, says=f"{mine} has 3 lines and {ten} has 10")
    refused(*start, folder=tmp_path, says="There is no corpus")
    refused(*start, "--corpus", "copy", "--source", ten, "--target", ten, folder=tmp_path, says="set one of the two")
    refused(*start, "--corpus", "copies", folder=tmp_path, says="Did you mean 'copy'")
    captioner = ["train", "--model", "captioner", "--out", out, "--source", ten, "--target", ten]
    refused(*captioner, folder=tmp_path, says="captioner is trained on pictures with captions: .*leave data.source out")
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train.stepps=3"], r"There is no setting 'stepps' in \[train\]\. Did you mean 'steps'"),
        (["model.widht=3"], r"no setting 'widht' in \[model\]\. Did you mean 'width'"),
        (["trian.steps=3"], r"no section 'trian' of settings\. Did you mean 'train'"),
        (["--model", "bahdanu"], r"no model 'bahdanu'\. Did you mean 'bahdanau'"),
        (["--preset", "tinny"], r"no preset 'tinny' of bahdanau\. Did you mean 'tiny'"),
        (["model.name=5"], "--model and model.name are the same setting; pass one of them"),
        (["train.steps=many"], "train.steps must be a whole number; got 'many'"),
        (["train.steps=2.5"], "train.steps must be a whole number; got 2.5"),
        (["train.steps="], "train.steps must be a whole number; got ''"),
        (["train.steps=true"], "train.steps must be a whole number; got True"),
        (["steps=3"], r"section\.key=value, as in train\.steps=200; got 'steps=3'"),
        (["train.steps=3", "stray"], "Settings on the command line are section.key=value; got 'stray'"),
        (["nowhere.toml"], "There is no settings file nowhere.toml"),
        (["train.device=gpu"], "The device must be auto, cpu or cuda; got 'gpu'"),
        (["model.width=0"], "model.width must be at least 1; got 0"),
        (["model.width=-3"], "model.width must be at least 1; got -3"),
        (["data.max_words=1"], "data.max_words must be at least data.min_words"),
        (["decode.beam=0"], "decode.beam must be at least 1"),
    ],
)
def test_settings_that_do_not_exist_or_do_not_fit(arguments, says, tmp_path):
    start = ["train", "--corpus", "copy", "--model", "bahdanau", "--preset", "tiny", "--out", tmp_path / "run"]
    refused(*start, *arguments, folder=tmp_path, says=says)
    assert not (tmp_path / "run").exists()


def test_bad_toml(tmp_path):
    config = tmp_path / "x.toml"
    for text, says in (
        ("[train\nsteps = 3", "x.toml is not valid TOML: .*line 1"),
        ("train = 5", r"\[train\] must be a table of settings; got train = 5"),
        ("model = 'bahdanau'", r"\[model\] must be a table"),
        ("data = []", r"\[data\] must be a table"),
        ("[model]\nname = 'cho'\n[extra]\n", "no section 'extra' of settings"),
        ("[train]\nsteps = 3\n", r"No model is set: set model.name"),
        ("task = 'sing'\n[model]\nname = 'cho'", "is for the task 'translate'; got task = 'sing'"),
    ):
        config.write_text(text, encoding="utf-8")
        refused("train", config, "--out", tmp_path / "run", folder=tmp_path, says=says)
    config.write_bytes(b"\xff\xfe")
    refused("train", config, "--out", tmp_path / "run", folder=tmp_path, says="could not be read as UTF-8")
    refused("train", "train.steps=3", folder=tmp_path, says="Expected a run folder; pass --out")
    assert not (tmp_path / "run").exists()


def test_a_target_that_is_a_file_or_another_folder_is_left_alone(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine", encoding="utf-8")
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine too", encoding="utf-8")
    before = snapshot(folder)
    refused(*small.arguments("bahdanau", file, "train.steps=2"), folder=tmp_path, says="is a file; --out needs")
    refused(*small.arguments("bahdanau", folder, "train.steps=2"), folder=tmp_path, says="is not a run of regard")
    refused(
        *small.arguments("bahdanau", file / "in", "train.steps=2"),
        folder=tmp_path,
        says="The folder .*in cannot be created: Not a directory; choose another",
    )
    assert file.read_text(encoding="utf-8") == "mine"
    assert snapshot(folder) == before
    empty = tmp_path / "empty"
    empty.mkdir()
    assert regard(*small.arguments("bahdanau", empty, "train.steps=2"), folder=tmp_path / "log").code == 0


def test_the_settings_of_a_user_are_never_written_over(tmp_path):
    """A folder with a config.toml of one's own, used as --out: nothing in it may change, whatever the settings are."""
    mine = tmp_path / "mine"
    mine.mkdir()
    config = mine / "config.toml"
    config.write_text(
        '# my notes\n[model]\nname = "bahdanau"\npreset = "tiny"\n[data]\ncorpus = "copy"\n', encoding="utf-8"
    )
    (mine / "corpus.en").write_text("precious\n", encoding="utf-8")
    before = snapshot(mine)
    for more in ([], ["train.seed=9"], ["model.width=5"]):
        refused("train", config, "--out", mine, *more, folder=tmp_path, says="was not written by regard")
        assert snapshot(mine) == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("cli") / "run"
    small.train("bahdanau", run, "train.steps=4")
    return run


def test_a_run_with_other_settings_is_left_alone(finished, tmp_path):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = snapshot(run)
    for more, says in (
        (["train.seed=7"], r"holds a run with other settings \(train.seed was 1, now 7\)"),
        (["model.width=9"], "model.width was 7, now 9"),
        (["data.size=61"], "data.size was 60, now 61"),
        (["train.rate=0.5", "train.clip=3.0"], "train.rate was .*; train.clip was"),
    ):
        refused(*small.arguments("bahdanau", run, "train.steps=4", *more), folder=tmp_path, says=says)
        assert snapshot(run) == before
    refused(
        *small.arguments("luong", run, "train.steps=4"), folder=tmp_path, says="model.name was 'bahdanau', now 'luong'"
    )
    assert snapshot(run) == before


def test_a_refused_resume_names_no_setting_that_only_follows_from_the_model_or_preset():
    tiny = {"model": {"name": "transformer", "preset": "tiny"}}

    def differ(name: str, size: str, **more: object) -> list[str]:
        other = {"model": {"name": name, "preset": size}, **more}
        return [one.split(" was ")[0] for one in differences(resolve(tiny), resolve(other))]

    assert differ("transformer", "small") == ["model.preset"]
    assert differ("bahdanau", "tiny") == ["model.name"]
    assert differ("luong", "small", data={"size": 5}) == ["model.name", "model.preset", "data.size"]
    assert differ("transformer", "tiny", train={"rate": 0.25}) == ["train.rate"]


def test_the_name_of_a_language_is_not_its_code(files, tmp_path):
    ten = files("ten", 10)
    for setting in ("data.source_language=english", "data.target_language=fr/FR"):
        says = f"{setting.partition('=')[0]} must be a language code such as en or pt-BR; got '{setting[21:]}'"
        refused(*parallel(ten, ten, tmp_path / "run", setting), folder=tmp_path, says=says)
        assert not (tmp_path / "run").exists()
    for code in ("en", "pt_BR", "zh-Hans", "yue"):
        check_codes({"source_language": code})
    check_codes({"source_language": "english", "tmx": "memory.tmx"})  # as the memory calls it


def test_a_finished_model_without_checkpoints_is_left_alone(finished, tmp_path):
    """As someone keeps it who wants the room: neither the same settings nor others may touch it."""
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    before = snapshot(run)
    for more in ([], ["train.seed=7"]):
        says = "holds a finished model but no checkpoint to resume from"
        refused(*small.arguments("bahdanau", run, "train.steps=4", *more), folder=tmp_path, says=says)
        assert snapshot(run) == before


def test_a_failure_on_the_way_keeps_a_finished_model(files, tmp_path):
    ten, out = files("ten", 40), tmp_path / "run"
    assert regard(*parallel(ten, ten, out), folder=tmp_path / "log").code == 0
    before = snapshot(out)
    moved = ten.rename(tmp_path / "away")
    refused(*parallel(ten, ten, out, "train.steps=6"), folder=tmp_path, says="There is no file")
    assert snapshot(out) == before
    moved.rename(ten)
    assert regard(*parallel(ten, ten, out, "train.steps=6"), folder=tmp_path / "log").code == 0
    assert checkpoints(out)[-1].name == "000006"


def test_a_finished_run_that_was_to_go_on_and_died_can_still_be_used(finished, tmp_path):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    plant = SignalIn("regard.training.loop:Loop.run", [1], signal.SIGKILL)
    died = regard(*small.arguments("bahdanau", run, "train.steps=6"), folder=tmp_path / "log", plant=plant)
    assert died.code == -signal.SIGKILL
    assert library.load(run).translate("ko")  # its new settings do not make the old model look damaged


def test_a_run_that_never_began_can_be_begun_otherwise(tmp_path):
    """Killed while its corpus was read: other settings may take the folder, unless something else lies in it."""
    run = tmp_path / "run"
    small.train("bahdanau", run, "train.steps=4")
    for name in ("checkpoints", "manifest.json", "weights.safetensors"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    before = snapshot(run)
    changed = small.arguments("bahdanau", run, "train.steps=4", "data.size=50")
    refused(*changed, folder=tmp_path, says="holds notes.txt, which regard did not write")
    assert snapshot(run) == before
    (run / "notes.txt").unlink()
    assert regard(*changed, folder=tmp_path / "log").code == 0
    assert len(metrics(run)) == 5


def test_out_alone_resumes_with_the_settings_of_the_run(finished, tmp_path):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = snapshot(run)
    again = regard("train", "--out", run, folder=tmp_path / "log")
    assert (again.code, snapshot(run)) == (0, before)
    said = "Nothing was trained: the run is finished already. To train it further, set"
    assert f"{said} train.steps above 4." in again.err
    assert regard("train", "--out", run, "train.steps=6", folder=tmp_path / "log").code == 0
    assert [line["step"] for line in metrics(run) if "loss" in line][-1] == 6
    assert checkpoints(run)[-1].name == "000006"
    epochs = small.arguments("bahdanau", tmp_path / "epochs", "train.epochs=1")
    assert regard(*epochs, folder=tmp_path / "log").code == 0
    assert f"{said} train.epochs above 1." in regard(*epochs, folder=tmp_path / "log").err
    refused("train", "--out", run, "model.width=9", folder=tmp_path, says="model.width was 7, now 9")
    refused("train", "--out", tmp_path / "none", folder=tmp_path, says=r"There is no run in .*none to resume")
    assert not (tmp_path / "none").exists()
    assert library.train(out=run).name == "run"


def test_a_plain_log_says_what_a_person_wants_to_know(files, tmp_path):
    words = [f"{a} {b} {c}" for a in "abcd" for b in "efgh" for c in "ijk"]
    source = tmp_path / "x.en"
    source.write_text("".join(f"{line}\n" for line in [*words, "", "a " * 300]), encoding="utf-8")
    done = regard(
        *parallel(source, source, tmp_path / "run", "train.epochs=1", "train.steps=0"), folder=tmp_path / "log"
    )
    assert done.code == 0
    assert done.out == ""  # stdout stays free
    for part in (
        "of 50 pairs kept",
        "1 dropped: empty (line 49)",
        "1 dropped: too long (line 50)",
        "vocabulary:",
        "weights on cpu",
        "tokens/s",
        "validation: loss",
        "→",
        "done at step",
        "note: BLEU in validation stayed below 1, so the model is of no use yet: train longer",
        f"The run is in {tmp_path / 'run'}",
    ):
        assert part in done.err, part
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    ("validations", "useful"),
    [([], None), ([(0, 1.001)], True), ([(0, 54)], False), ([(30, 54), (0, 54)], True)],
)
def test_a_model_of_one_word_answers_is_judged_by_perplexity(validations, useful):
    watcher = progress.Watcher()
    for step, (bleu, perplexity) in enumerate(validations):
        watcher(Validated(step, {"bleu": bleu, "perplexity": perplexity}, [], False))
    assert watcher.useful is useful


class InTerminal:
    """A plant: the process has a terminal, and its bars are drawn at once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        terminal = os.open(self.name, os.O_RDWR)
        for number in range(3):
            os.dup2(terminal, number)
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": "120"})
        progress.QUIET = 0.0


def test_a_live_bar_in_a_terminal(tmp_path):
    """In a pseudo-terminal, with a bar for reading before the one of training: no crash, and a cursor at the end."""
    ours, theirs = pty.openpty()
    arguments = small.arguments("bahdanau", tmp_path / "run", "train.steps=8", "train.validate_every=4")
    command = Command(arguments, tmp_path / "log", InTerminal(os.ttyname(theirs)))
    said = b""
    while command.process.is_alive() or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.05)[0]:
            said += os.read(ours, 65536)
    text = said.decode("utf-8", "replace")
    assert command.wait() == 0, text
    os.close(theirs)
    os.close(ours)
    assert "Traceback" not in text
    assert "8/8" in text
    assert "validation: loss" in text
    assert text.count("\x1b[?25l") > 0
    assert text.count("\x1b[?25h") >= text.count("\x1b[?25l")  # the cursor is shown again


@pytest.mark.parametrize("shown", [False, True])
def test_long_work_shows_a_bar_even_without_progress(shown, monkeypatch):
    said, drawn = io.StringIO(), threading.Event()
    monkeypatch.setattr(progress, "console", lambda: Console(file=said, force_terminal=True, width=80))
    monkeypatch.setattr(progress, "QUIET", 0.0 if shown else 3600.0)
    start = Progress.start
    monkeypatch.setattr(Progress, "start", lambda bar: (start(bar), drawn.set()))
    with progress.bar("thinking"):
        assert not shown or drawn.wait(PATIENCE)
    assert ("thinking" in said.getvalue()) == shown
    assert said.getvalue().count("\x1b[?25h") == said.getvalue().count("\x1b[?25l") == shown


def test_a_bar_stays_away_from_files_and_from_results_in_the_same_terminal(monkeypatch):
    monkeypatch.setattr(progress, "QUIET", 0.0)
    threads = threading.active_count()
    for terminal, printing in ((False, False), (True, True)):
        said = io.StringIO()
        monkeypatch.setattr(progress, "console", lambda: Console(file=said, force_terminal=terminal))  # noqa: B023
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        with progress.bar("thinking", printing=printing) as tell:
            tell(1, 2)
        assert threading.active_count() <= threads  # no timer was started
        assert said.getvalue() == ""
