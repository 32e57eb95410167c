"""Errors about invalid input, in one sentence: what was expected, what was given, and what to do.

Everything that regard refuses on purpose is a `RegardError`. The command line prints its text without a
traceback and exits with code 2; a library user catches one type. The subclasses are for different kinds of input.
"""

import difflib
import mmap
import os
from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from typing import Any


class RegardError(Exception):
    """Base of every error that regard raises on purpose: one sentence about what was expected, given, and what to do.

    >>> try:
    ...     regard.load("runs/none")
    ... except regard.RegardError as error:
    ...     print(error)
    There is no run folder runs/none; train one with `regard train ... --out runs/none`.
    """


class ShapeError(RegardError, ValueError):
    """A tensor of the wrong shape or dtype, or a mask of the wrong kind."""


class ConfigError(RegardError, ValueError):
    """An unknown setting, or a value that does not fit."""


class DataError(RegardError, ValueError):
    """A corpus, vocabulary or picture that cannot be used as it is."""


class RunError(RegardError):
    """A run folder that is missing, damaged, or does not fit the request."""


class TrainingError(RegardError):
    """Training that cannot continue: numbers that are not finite, no space left."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on a CPU or a GPU. Torch raises a RuntimeError with such a message,
    the loader of a library an ImportError, the system an OSError.

    >>> out_of_memory(MemoryError()), out_of_memory(RuntimeError("CUDA out of memory.")), out_of_memory(ValueError("x"))
    (True, True, False)
    >>> out_of_memory(ImportError("x.so: failed to map segment from shared object")), out_of_memory(ImportError("x"))
    (True, False)
    """
    words = ("can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory", "failed to map")
    named = type(error).__name__ == "OutOfMemoryError"  # of torch, which is not imported here
    said = named or (
        isinstance(error, RuntimeError | ImportError | OSError) and any(some in str(error).lower() for some in words)
    )
    return said or isinstance(error, MemoryError)


def little_memory() -> bool:
    """Whether this process cannot allocate another 64 MiB, which are reserved for a moment and not written to.

    >>> little_memory()
    False
    """
    try:
        mmap.mmap(-1, 64 << 20).close()
    except (OSError, MemoryError):
        return True
    return False


def brief(message: object) -> str:
    """A message of another program for the middle of a sentence: one short line without control characters.

    >>> brief("bad\\x1b[2J\\nfile.")
    'bad [2J file'
    """
    text = "".join(character if character.isprintable() else " " for character in str(message)[:400])
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= 200 else f"{text[:200]}..."


def counted(number: float, noun: str, form: str = "") -> str:
    """A number with its noun, in the plural unless it is one; `form` is the format of the number.

    >>> counted(1.0, "minute", "g"), counted(1000, "pair", ",")
    ('1 minute', '1,000 pairs')
    """
    written = f"{number:{form}}"
    return f"{written} {noun}{'' if written == '1' else 's'}"


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> str:
    """The sentence for a name that does not exist, with a did-you-mean if one is similar; `where` follows the name.

    >>> unknown("model", "bahdanu", ["bahdanau", "luong"])
    "There is no model 'bahdanu'. Did you mean 'bahdanau'? Known: bahdanau, luong."
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no {kind} '{brief(name)}'{where}.{hint} Known: {', '.join(names)}."


def near_file(path: str | os.PathLike[str]) -> str:
    """How to get a missing file: the command that builds the corpus of a clone, or where it is said how to pack its
    photographs; or a did-you-mean if its folder has one with a similar name, or an empty text.
    """
    folder, name = os.path.split(path)
    if os.path.dirname(folder) == "data" and os.path.exists("benchmarks/data.py"):
        if not os.path.isdir(folder):
            return f" Build the corpus: python benchmarks/data.py {os.path.basename(folder)}"
        if name.endswith(".tar"):
            return " Photographs are packed by hand: docs/results/index.md#photographs-of-flickr8k has the script."
    try:
        names = [one for one in os.listdir(folder or ".") if one.isprintable()]  # what is no UTF-8 cannot be typed
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    except (OSError, ValueError):
        return ""
    return f" Did you mean '{brief(os.path.join(folder, close[0]))}'?" if close else ""


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a folder and a missing file."""
    if os.path.isdir(path):  # unlike Path.is_dir and Path.exists, these never raise
        raise DataError(f"{path} is a folder; give a text file, or a list of files.")
    if not os.path.exists(path):
        raise DataError(f"There is no file {path}; check the path.{near_file(path)}")


def check_known(
    kind: str, name: str, known: Collection[str], where: str = "", error: Callable[[str], RegardError] = ConfigError
) -> None:
    """Refuse a name that is not among those that are known."""
    if name not in known:
        raise error(unknown(kind, name, known, where))


def numbered(noun: str, count: int) -> str:
    """The numbers of `count` items, from 0.

    >>> numbered("head", 8), numbered("head", 1), numbered("head", 0)
    ('heads 0 to 7', 'one head, 0', 'no heads')
    """
    return f"{noun}s 0 to {count - 1}" if count > 1 else f"one {noun}, 0" if count else f"no {noun}s"


def need(module: str, sentence: str, error: Callable[[str], RegardError] = ConfigError) -> Any:
    """An optional package, imported where it is used; `sentence` says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise error(sentence) from None
