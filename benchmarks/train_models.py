"""Train the included models: two teachers, their translations, and four students that learn from these.

    python benchmarks/data.py europarl.en-fr europarl-more.en-fr catalogues.en-fr newstest.en-fr hansards.en-fr
    python benchmarks/data.py tatoeba tatoeba-more
    python benchmarks/models_data.py data runs/text
    python benchmarks/train_models.py                       # about 23 minutes of one H200
    python benchmarks/train_models.py --steps finish        # on any machine: heads, calibration, everyday sentences
    python benchmarks/train_models.py --further models      # go on from the included models

All settings are in configs/models-teacher*.toml, models-student*.toml and models-further*.toml. The commands of a step
run at once (on a GPU under NVIDIA's MPS, if it is installed) and write to runs/logs; a step ends when all have ended.
Repeat the command after an interruption: what is complete is skipped, and trainings continue from their checkpoints.
`--set GROUP:key=value` changes a setting for one group of commands (teacher, translate, student, transformer,
bahdanau, cho, or a command), to try the whole script with small sizes; `--lines N` scores and calibrates on N lines
(default: scores on all, and calibrates on the 1,000 of newstest2013 that are French or English in origin, by turns).
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models_data import read

from regard.runs.included import FOLDERS

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
FIRST = ("bahdanau-first", "models-student-bahdanau-first")  # a student before its teacher is there
STUDENTS = {  # command: config, name of the model, groups of --set
    "en-fr": ("models-student", "en-fr", ("student", "transformer")),
    "fr-en": ("models-student-back", "fr-en", ("student", "transformer")),
    "bahdanau": ("models-student-bahdanau", "en-fr/bahdanau", ("student",)),
    "cho": ("models-student-cho", "en-fr/cho", ("student",)),
}
TRANSLATED = ("tatoeba.train", *(f"parliament.{part}" for part in range(4)))
MORE = ("more.0", "more.1")  # what en-fr translates, too, if models are trained further
HELD = "runs/text/held-out.bz2"  # what no translation may be
DATA = (
    "Europarl v7, Tatoeba, message catalogues and documentation of {count} software projects (docs/models-data.md), "
    "and {phrases} of benchmarks/models_data.py, most of it as a Transformer translates it; newstest2014, the "
    "Europarl test set and the held-out part of Tatoeba were not trained on"
)
LICENCE = (
    "Europarl is free to use; Tatoeba (tatoeba.org) is CC BY 2.0 FR; the licences of the catalogues are in "
    "docs/models-data.md; the weights are under the licence of regard"
)


@dataclass(frozen=True)
class Command:
    """A named command, the file that exists when it has ended well, and what it is part of."""

    name: str
    words: list[str]
    done: Path
    groups: tuple[str, ...] = ()


def regard(*words: str) -> list[str]:
    return [sys.executable, "-m", "regard", *words]


def script(name: str, *words: str) -> list[str]:
    return [sys.executable, str(HERE / name), *words]


def training(name: str, config: str, groups: tuple[str, ...], *more: str) -> Command:
    words = regard("train", str(CONFIGS / f"{config}.toml"), "--out", f"runs/{name}", *more)
    return Command(name, words, Path(f"runs/logs/{name}.done"), groups)


def place(name: str) -> str:
    """The folder of a student among the exported models."""
    return FOLDERS[STUDENTS[name][1]]


def ends(chosen: list[str]) -> list[str]:
    """How the names of the teachers of these students end."""
    return sorted({"-back" if name == "fr-en" else "" for name in chosen})


def teachers(chosen: list[str], further: Path | None) -> Iterator[Command]:
    """Large Transformers, and the first phase of a student, which leaves them most of the GPU."""
    if further:
        return
    for end in ends(chosen):
        yield training(f"teacher{end}", f"models-teacher{end}", ("teacher",))
    yield training(*FIRST, ("student", "bahdanau"))  # its vocabulary is that of all students


def translations(chosen: list[str], further: Path | None) -> Iterator[Command]:
    """The training text as the teachers translate it, or as the Transformers that are trained further do."""
    for end in ends(chosen):
        teacher, out, parts, more = f"runs/teacher{end}", f"runs/distilled{end}", TRANSLATED, ["--minutes", "4"]
        if further:
            teacher = str(further / FOLDERS["fr-en" if end else "en-fr"])
            out, parts = f"runs/further{end}", TRANSLATED if end else (*TRANSLATED, *MORE)
            more += ["--nearest", "en" if end else "fr", "--workers", "6" if end else "8"]
        files = [f"runs/text/{part}.{'fr' if end else 'en'}.bz2" for part in parts]
        words = script("distil.py", teacher, *files, "--out", out, "--held-out", HELD, *more)
        yield Command(f"translate{end}", words, Path(f"runs/logs/{Path(out).name}.done"), ("translate",))
    if not further:
        return
    for end, side, model in (("", "en", "en-fr"), ("-back", "fr", "fr-en")):
        if chosen == [model]:  # it learns from sentences that the other one translates
            continue
        words = script("distil.py", str(further / FOLDERS[model]), f"runs/text/tatoeba.other.{side}.bz2")
        words += ["--out", f"runs/further{end}", "--held-out", HELD, "--workers", "1"]
        yield Command(f"translate-other{end}", words, Path(f"runs/logs/further-other{end}.done"), ("translate",))


def students(chosen: list[str], further: Path | None) -> Iterator[Command]:
    """The models that are included, or that are trained further."""
    for name in chosen:
        config, model, groups = STUDENTS[name]
        if further:
            start = ("--start-from", str(further / FOLDERS[model]))
            yield training(f"further-{name}", config.replace("student", "further"), (name, *groups), *start)
        else:
            more = ("--start-from", f"runs/{FIRST[0]}") if name == "bahdanau" else ()
            yield training(name, config, groups, *more)


def ship(chosen: list[str], further: Path | None, models: Path, device: str, lines: int) -> Iterator[Command]:
    """Each student as int8, its scores, and its card."""
    count = len((HERE / "data_catalogues.tsv").read_text(encoding="utf-8").splitlines())
    known = [*teachers(chosen, further), *translations(chosen, further), *students(chosen, further)]
    for name in chosen:
        model = STUDENTS[name][1]
        sides = ("fr", "en") if name == "fr-en" else ("en", "fr")
        sets = {"newstest2014": "data/newstest.en-fr/newstest2014", "europarl": "data/europarl.en-fr/test"}
        sets["tatoeba"] = "runs/text/tatoeba.test"
        back, run = "-back" if name == "fr-en" else "", f"further-{name}" if further else name
        needed = [f"teacher{back}", f"translate{back}", FIRST[0], run]
        needed += ["translate-other"] * (name != "en-fr") + ["translate-other-back"] * (name != "fr-en")
        commands = [shown(one) for one in known if one.name in needed]
        words = script("ship.py", f"runs/{run}", model, "--models", str(models), "--device", device)
        words += ["--further", str(further / FOLDERS[model])] if further else []
        words += [part for one in commands for part in ("--command", one)]
        phrases = "greetings, names and typing errors" if back else "greetings, idioms, names and typing errors"
        text = DATA.format(count=count, phrases=phrases if further else "greetings")
        words += ["--most", str(lines), "--data", text, "--licence", LICENCE]
        for key, place in sets.items():
            words += ["--set", f"{key}={','.join(f'{place}.{side}.bz2' for side in sides)}"]
        yield Command(f"ship-{name}", words, models / FOLDERS[model] / "CARD.md")


def finish(chosen: list[str], models: Path, device: str, lines: int) -> Iterator[Command]:
    """The head that aligns words, the calibration of the confidence, and the sheet of everyday sentences."""
    written = Path("runs/finish")
    written.mkdir(parents=True, exist_ok=True)
    pairs = [line.split(" ||| ") for line in read(Path("data/hansards.en-fr/dev.text.bz2"))]
    links = read(Path("data/hansards.en-fr/dev.gold.bz2"))
    for side, language in enumerate(("en", "fr")):
        news = read(Path(f"data/newstest.en-fr/newstest2013.{language}.bz2"))  # 500 lines of each origin
        direct = [line for both in zip(news[:500], news[2000:2500], strict=False) for line in both]
        kept = news[:lines] if lines else direct  # the origins of newstest2014, French and English, by turns
        gold = [re.sub(r"(\d+)([-p])(\d+)", r"\3\2\1", line) for line in links] if side else links  # source first
        for name, rows in (("dev", kept), ("words", [pair[side].strip() for pair in pairs]), ("gold", gold)):
            (written / f"{name}.{language}").write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    for name in chosen:
        _, model, groups = STUDENTS[name]
        folder = models / FOLDERS[model]
        source, target = ("fr", "en") if name == "fr-en" else ("en", "fr")
        if "transformer" in groups:
            words = regard(
                "align", str(folder), "--choose", "--device", device, "--gold", str(written / f"gold.{source}")
            )
            words += ["--source", str(written / f"words.{source}"), "--target", str(written / f"words.{target}")]
            yield Command(f"align-{name}", words, folder / "alignment.json")
        words = regard("calibrate", str(folder), "--source", str(written / f"dev.{source}"), "--device", device)
        words += ["--target", str(written / f"dev.{target}")]
        yield Command(f"calibrate-{name}", words, folder / "confidence.json")
    words = script("everyday.py", *(str(models / FOLDERS[STUDENTS[name][1]]) for name in chosen))
    judged = written / f"everyday-{models.name}.json"
    yield Command("everyday", [*words, "--failures", "--out", str(judged)], judged)


def shown(command: Any) -> str:
    """A command as it is typed in a clone."""
    words = ["regard", *command.words[3:]] if command.words[1] == "-m" else ["python", *command.words[1:]]
    return " ".join(words).replace(f"{HERE.parent}/", "")


def run(step: str, commands: list[Command], changes: list[tuple[str, str]], limit: float) -> None:
    """Run the commands of a step at once; end the program if one fails or the time is over."""
    logs, began, running = Path("runs/logs"), time.monotonic(), {}
    logs.mkdir(parents=True, exist_ok=True)
    for one in commands:
        if one.done.exists():
            print(f"{step}: {one.name} is done", flush=True)
            continue
        words = one.words + [text for group, text in changes if group in (one.name, *one.groups)]
        with open(logs / f"{one.name}.txt", "ab") as log:
            running[one.name] = subprocess.Popen(words, stdout=log, stderr=log), one
        print(f"{step}: {one.name} begins, {time.strftime('%H:%M:%S')}", flush=True)
    failed = []
    for name, (process, one) in running.items():
        try:
            code = process.wait(max(1.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            for other, _ in running.values():
                other.terminate()  # a training saves a checkpoint; the next call continues it
            sys.exit(f"{step}: the time is over; repeat the command to continue.")
        print(f"{step}: {name} ended with {code} after {time.monotonic() - began:.0f} s", flush=True)
        if code:
            failed.append(name)
        elif one.done.parent == logs:
            one.done.touch()
    if failed:
        sys.exit(f"{step}: {', '.join(failed)} failed; see runs/logs/{failed[0]}.txt.")


@contextmanager
def shared_gpu() -> Iterator[None]:
    """In this block, NVIDIA's MPS (if it is installed, and nobody has started it) lets processes share a GPU well."""
    control = shutil.which("nvidia-cuda-mps-control")
    started = control is not None and subprocess.run([control, "-d"], check=False).returncode == 0
    try:
        yield
    finally:
        if started:
            subprocess.run([str(control)], input=b"quit\n", check=False)


def main() -> None:
    """Run the steps in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("teachers", "translations", "students", "ship", "finish")
    parser.add_argument("--steps", nargs="+", choices=names, default=names[:4], help="(default: all but finish)")
    new, more = Path("runs/models-new"), Path("runs/models-further")
    parser.add_argument("--models", type=Path, help=f"folder for the exported models ({new}; with --further, {more})")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time; repeat to continue")
    parser.add_argument("--lines", type=int, default=0, help="lines of each test set and of calibration")
    parser.add_argument("--students", nargs="+", choices=tuple(STUDENTS), help="(default: all)")
    parser.add_argument("--further", type=Path, metavar="FOLDER", help="train the models of this folder further")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="GROUP:KEY=VALUE")
    given = parser.parse_args()
    given.models = given.models or (more if given.further else new)
    given.students = given.students or list(STUDENTS)
    limit = time.monotonic() + 60 * given.minutes
    needed = [*given.students, "en-fr", "fr-en"] if given.further else []
    missing = [name for name in needed if not (given.further / place(name)).is_dir()]
    if missing:
        parser.error(f"{given.further} has no folder {place(missing[0])}; --further expects one like models.")
    makers = {
        "teachers": lambda: teachers(given.students, given.further),
        "translations": lambda: translations(given.students, given.further),
        "students": lambda: students(given.students, given.further),
        "ship": lambda: ship(given.students, given.further, given.models, given.device, given.lines),
        "finish": lambda: finish(given.students, given.models, given.device, given.lines),
    }
    changes = [tuple(one.split(":", 1)) for one in given.changes]
    with shared_gpu():
        for step in given.steps:
            run(step, list(makers[step]()), changes, limit)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
