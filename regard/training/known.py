"""The translators that ship with regard, and their names, which work wherever a run folder does.

In a source tree they are in the folder `models` beside the package, in an installed package in `regard/shipped`.
"""

import difflib
import os
import re
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
LONGEST = 1000  # characters of a name; what is longer is a text
PACKAGE = Path(__file__).resolve().parent.parent
HOMES = (PACKAGE / "shipped", PACKAGE.parent / "models")


def find_run(run: str | Path) -> Path:
    """The folder of a run: the folder of this name where there is one, else the model that ships under this name."""
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
    if len(name) > LONGEST:
        raise RunError(
            f"Expected the name of a run or model; got a text of {len(name):,} characters. Name one before the text, "
            f"such as en-fr."
        )
    if " " in name:
        raise RunError(
            f"There is no run folder {name!r}. A text comes after the name of a model: regard translate en-fr {name!r}."
        )
    near = near_run(path)
    if near:
        raise RunError(f"There is no run folder {name}.{near}")
    close = [one for one in FOLDERS if one.endswith(f"/{name}")]  # en-fr/bahdanau
    close = close or difflib.get_close_matches(name, FOLDERS, n=1, cutoff=0.75)
    if close or _DIRECTION.fullmatch(name):
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise RunError(
            f"There is no run folder {name} and no model of that name.{hint} Known: {', '.join(FOLDERS)}; others are "
            f"trained with `regard train`."
        )
    return path


def near_run(path: Path) -> str:
    """A did-you-mean for a run that is not there, where its folder has one of almost this name; else no text."""
    close = difflib.get_close_matches(path.name, runs_in(path.parent), n=1)
    return f" Did you mean '{path.with_name(close[0])}'?" if close else ""


def runs_in(folder: Path) -> list[str]:
    """The names of the runs in a folder."""
    try:
        return [one.name for one in folder.iterdir() if (one / "config.toml").is_file()]
    except OSError:
        return []


def shipped_folder(name: str) -> Path | None:
    """The folder of a model that ships, if it is installed."""
    places = (home / FOLDERS[name] for home in HOMES)
    return next((place for place in places if (place / "manifest.json").is_file()), None)


def shipped_name(run: Path) -> str:
    """The name of a model that ships, by its folder; empty for any other."""
    return next((name for name, folder in shipped().items() if run.exists() and run.samefile(folder)), "")


def check_own(run: Path) -> None:
    """Refuse to change a model that ships."""
    if name := shipped_name(run):
        raise RunError(
            f"{name} ships with regard and is not changed; make a copy of your own and use that: regard export "
            f"{name} --out {run.resolve().name}-copy."
        )


def shipped() -> dict[str, Path]:
    """The models that are installed, each once under its shortest name."""
    found: dict[Path, str] = {}
    for name in FOLDERS:
        folder = shipped_folder(name)
        if folder is not None:
            found.setdefault(folder, name)
    return {name: folder for folder, name in found.items()}
