"""The translators included with regard; their names work wherever a run folder does.

A pair of languages, such as en-de, is also the name of the run runs/en-de. A pair without a model is translated through
English, with the models of two other pairs.

In a source tree they are in the folder `models` next to the package, in an installed package in `regard/shipped`.
"""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from regard.errors import RunError

FOLDERS = {  # name -> folder
    "en-fr": "en-fr-transformer",
    "en-fr/transformer": "en-fr-transformer",
    "en-fr/bahdanau": "en-fr-bahdanau",
    "en-fr/cho": "en-fr-cho",
    "fr-en": "fr-en",
}
_DIRECTION = re.compile(r"[a-z]{2}-[a-z]{2}(/\w+)?")  # the name of a model, unlikely for a run
_PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
PIVOT = "en"  # through which a pair without a model is translated
USUAL = Path("runs")  # where the commands in the docs write runs
LONGEST = 1000  # characters of a name; anything longer is a text
PACKAGE = Path(__file__).resolve().parent.parent
HOMES = (PACKAGE / "shipped", PACKAGE.parent / "models")


def find_run(run: str | Path) -> Path:
    """The folder of a run: the folder of this name if it exists, otherwise the included model of this name, otherwise
    the run of a pair such as en-de in runs."""
    path, name = Path(run), Path(run).as_posix()
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long, such as a sentence
        return path
    if os.path.exists(path):
        raise RunError(f"{path} is a file; name the folder of a run, or a model such as en-fr.")
    if name in FOLDERS:
        folder = shipped_folder(name)
        if folder is None:
            raise RunError(
                f"The model {name} is not part of this installation; reinstall regard, or name a run folder."
            )
        return folder
    if _PAIR.fullmatch(name) and (USUAL / name / "config.toml").is_file():
        return USUAL / name
    if len(name) > LONGEST:
        raise RunError(
            f"Expected the name of a run or model; got a text of {len(name):,} characters. Put the name before the "
            f"text, such as en-fr."
        )
    if " " in name:
        raise RunError(
            f"There is no run folder {name!r}. A text comes after the name of a model: regard translate en-fr {name!r}."
        )
    if halves := _halves(name):
        missing = [half for half in halves if _locate(half) is None]
        if not missing:
            raise RunError(
                f"There is no model {name}; translate, look and serve go through English, with {' and '.join(halves)}, "
                f"but this command needs one model."
            )
        if len(missing) == 1 and _DIRECTION.fullmatch(name):
            raise RunError(
                f"There is no run folder or model {name}, and to translate through English, {missing[0]} is missing: "
                f"regard import firefox:{missing[0]} --out {USUAL}/{missing[0]}."
            )
    near = near_run(path)
    if near:
        raise RunError(f"There is no run folder {name}.{near}")
    close = [one for one in FOLDERS if one.endswith(f"/{name}")]  # en-fr/bahdanau
    close = close or difflib.get_close_matches(name, FOLDERS, n=1, cutoff=0.75)
    if close or _DIRECTION.fullmatch(name):
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise RunError(
            f"There is no run folder or model {name}.{hint} Known: {', '.join(FOLDERS)}; train others with "
            f"`regard train`, or import them, as in regard import firefox:en-de --out {USUAL}/en-de."
        )
    return path


def find_runs(names: Iterable[str | Path]) -> list[Path]:
    """The folders of several runs; a pair that is translated through English has two."""
    return [folder for name in names for folder in find_pivot(name) or [find_run(name)]]


def find_pivot(run: str | Path) -> tuple[Path, Path] | None:
    """The runs of XX-en and en-YY for a pair XX-YY without a run; None if it has one, or if one of them is
    missing."""
    halves = _halves(str(run))
    if not halves or _locate(str(run)):
        return None
    first, second = map(_locate, halves)
    return (first, second) if first and second else None


def _halves(name: str) -> tuple[str, str] | None:
    """The two pairs through which a pair of other languages than English can be translated."""
    pair = _PAIR.fullmatch(name)
    return (f"{pair[1]}-{PIVOT}", f"{PIVOT}-{pair[2]}") if pair and PIVOT not in pair.groups() else None


def _locate(pair: str) -> Path | None:
    """The run of a pair of languages: as `find_run`, but None if there is none."""
    places = (Path(pair), shipped_folder(pair) if pair in FOLDERS else None, USUAL / pair)
    return next((place for place in places if place and (place / "config.toml").is_file()), None)


def near_run(path: Path) -> str:
    """A did-you-mean for a missing run, if its folder has one with a similar name; otherwise an empty string."""
    close = difflib.get_close_matches(path.name, runs_in(path.parent), n=1)
    return f" Did you mean '{path.with_name(close[0])}'?" if close else ""


def runs_in(folder: Path) -> list[str]:
    """The names of the runs in a folder."""
    try:
        return [one.name for one in folder.iterdir() if (one / "config.toml").is_file()]
    except OSError:
        return []


def check_outside_run(path: Path) -> None:
    """Refuse to write into the folder of a run, which reads every file that has one of its names."""
    for folder in Path(os.path.realpath(path)).parents:
        signs = (folder / name for name in ("manifest.json", "checkpoints", ".lock"))
        if (folder / "config.toml").is_file() and any(sign.exists() for sign in signs):
            raise RunError(f"{path} is inside the run {folder}, whose files only training changes; write it elsewhere.")


def shipped_folder(name: str) -> Path | None:
    """The folder of an included model, if it is installed."""
    places = (home / FOLDERS[name] for home in HOMES)
    return next((place for place in places if (place / "manifest.json").is_file()), None)


def shipped_name(run: Path) -> str:
    """The name of an included model, by its folder; empty for any other."""
    return next((name for name, folder in shipped().items() if run.exists() and run.samefile(folder)), "")


def check_own(run: Path) -> None:
    """Refuse to change an included model."""
    if name := shipped_name(run):
        raise RunError(
            f"{name} is included with regard and cannot be changed; make a copy and use that: regard export {name} "
            f"--out {run.resolve().name}-copy."
        )


def shipped() -> dict[str, Path]:
    """The installed models, each once under its shortest name."""
    found: dict[Path, str] = {}
    for name in FOLDERS:
        folder = shipped_folder(name)
        if folder is not None:
            found.setdefault(folder, name)
    return {name: folder for folder, name in found.items()}
