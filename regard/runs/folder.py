"""A run on disk: one folder that holds everything, written so that a crash cannot lose or damage saved data.

    RUN/config.toml                     all settings, sealed by a comment in the last line
    RUN/source.* target.*               vocabularies (translation)
    RUN/metrics.jsonl                   one line per report of the loop
    RUN/checkpoints/000500/             weights.safetensors, state.safetensors, state.json, manifest.json
    RUN/weights.safetensors             the finished weights: the best checkpoint, or the average of several
    RUN/manifest.json                   SHA-256 and size of every file above that the finished model needs

A checkpoint is written under a temporary name, synced, and committed by one rename. Its manifest is written last and
also names the vocabularies that it needs. Resuming uses the newest intact checkpoint. The finished model is valid only
while manifest.json exists, which is removed before any file it names is replaced; without it the run is in progress,
and its best checkpoint is used. Nothing is ever unpickled.
"""

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regard.config import parse_toml, read
from regard.errors import ConfigError, DataError, RunError, brief
from regard.runs.cursor import Cursor
from regard.sealed import (
    check_files,
    digest,
    fill_folder,
    locked,
    make_folder,
    read_small,
    remove_folder,
    seal,
    sync,
    unseal,
    write_atomically,
)
from regard.version import __version__

VERSION = 1  # of the run layout; a folder of another version is refused
SPARE = 2  # required free space for a save, as a multiple of its size
MOST_HEADER = 4 << 20  # bytes of the header of a safetensors file: about 40,000 tensors
MOST_DOTS = 100  # in a line of config.toml, outside of strings
_STRING_OR_COMMENT = re.compile(rb'"(?:[^"\\]++|\\.)*+"|#.*|(").*')  # of an unclosed string, its quote
SEAL = b"# sha256 of the lines above: "
CHECKPOINT = ("weights.safetensors", "state.safetensors", "state.json")
FINISHED = ("weights.safetensors", "config.toml")
LEFT = ".*.[0-9]*.tmp"  # temporary files that a killed process may leave in a run folder


# --- manifests


def entry(content: bytes) -> dict[str, Any]:
    """The manifest entry of a file with this content."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def make_manifest(files: Mapping[str, dict[str, Any]], about: dict[str, Any]) -> bytes:
    """The manifest of these files, with the versions that wrote them."""
    versions = {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return seal({"run": VERSION, "files": dict(sorted(files.items())), "versions": versions, **about})


def write_folder(
    folder: Path, contents: Mapping[str, bytes], about: dict[str, Any], beside: Mapping[str, bytes] | None = None
) -> int:
    """Write files with their manifest as one folder, and files `beside` that are not in it; returns the size of the
    former."""
    manifest = make_manifest({name: entry(content) for name, content in contents.items()}, about)
    try:
        with fill_folder(folder) as temporary:
            for name, content in {**contents, **(beside or {}), "manifest.json": manifest}.items():
                with open(temporary / name, "wb") as stream:
                    stream.write(content)
    except OSError as error:
        raise RunError(f"{folder} could not be written: {error.strerror or error}.") from error
    return len(manifest) + sum(map(len, contents.values()))


def read_manifest(folder: Path, needed: Iterable[str], check: Iterable[str] | None = None) -> dict[str, Any]:
    """The manifest of a folder, which must name the files `needed`; its files, or those of `check`, are verified."""
    path = folder / "manifest.json"
    try:
        manifest = unseal(read_small(path))
        version = manifest["run"]
        sums = {name: str(entry["sha256"]) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RunError(f"{path} is missing or damaged; restore it from a copy.") from None
    if version != VERSION:
        raise RunError(
            f"{folder} has layout version {version}; this version of regard reads {VERSION}. Train it again."
        )
    if not set(needed) <= sums.keys():
        raise RunError(f"{path} is damaged: it does not name all files; restore it from a copy.")
    try:
        check_files(folder, {name: sums[name] for name in (sums if check is None else check)})
    except DataError as error:
        raise RunError(str(error)) from None
    return manifest


def digest_of_weights(run: Path) -> str:
    """The SHA-256 of the weights of a finished run, from its manifest."""
    return str(read_manifest(run, FINISHED, check=())["files"]["weights.safetensors"]["sha256"])


# --- settings


def write_config(run: Path, text: str) -> None:
    """Write the settings of a run. A finished model with other settings no longer counts as finished."""
    path, content = run / "config.toml", text.encode()
    sealed = content + SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"
    if not path.exists() or path.read_bytes() != sealed:
        newest_checkpoint(run)  # a run without an intact checkpoint cannot continue: its model stays as it is
        withdraw(run)
        write_atomically(path, sealed)


def read_config(run: Path) -> dict[str, Any]:
    """The settings of a run, as tables. Those of a run in progress must be sealed; a finished run has its manifest."""
    path = run / "config.toml"
    try:
        content = read_small(path)
    except OSError as error:
        raise RunError(f"{path} could not be read: {error.strerror or error}; restore it from a copy.") from None
    text, mark, sha256 = content.rpartition(SEAL)
    sealed = sha256 == hashlib.sha256(text).hexdigest().encode() + b"\n"
    if not sealed and (mark or (checkpoints(run) and not (run / "manifest.json").exists())):
        raise RunError(f"{path} is damaged: its checksum does not match; restore it from a copy.")
    # A stranger may have written it. Time and memory of tomllib grow with the square of the dots in a key, so the lines
    # must look like those of regard: strings in double quotes, and few dots outside of them.
    for line in content.split(b"\n"):
        rest = _STRING_OR_COMMENT.sub(rb"\1", line)
        if b'"' in rest or b"'" in rest or rest.count(b".") > MOST_DOTS:
            raise ConfigError(f"{path} was not written by regard: {brief(line.decode(errors='replace'))}.")
    tables = parse_toml(content, path)
    try:
        repr(tables)  # Python reads hexadecimal numbers of any length, but error sentences could not show them
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {brief(error)}.") from None
    return tables


# --- tensors


def pack(tensors: dict[str, Tensor]) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    with _safetensors(path):
        return safetensors.torch.load_file(path)


def read_shapes(path: Path) -> dict[str, torch.Size]:
    """The shapes of the tensors of a file, from its header only."""
    with _safetensors(path), safetensors.safe_open(path, "pt") as stream:
        return {name: torch.Size(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118


@contextmanager
def _safetensors(path: Path) -> Iterator[None]:
    """Raise errors of reading a file as RunError. A file with a huge header is not read."""
    try:
        with open(path, "rb") as stream:
            if int.from_bytes(stream.read(8), "little") > MOST_HEADER:
                raise OSError(f"its header has more than {MOST_HEADER >> 20} MiB")
        yield
    except (OSError, OverflowError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} cannot be read as safetensors: {brief(error)}.") from None


# --- one process at a time


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Lock a run folder for the block and create it if needed; another process is refused before it changes anything.

    The system releases the lock when the process ends, however it ends. A folder that was created here and is still
    empty at the end is removed.
    """
    made = not run.exists()
    if not made and not run.is_dir():
        raise RunError(f"{run} is a file; --out needs the name of a folder for the run.")
    if not made and not (run / "config.toml").exists() and not all(map(is_scratch, run.iterdir())):
        raise RunError(f"{run} exists and is not a run of regard; nothing was changed. Choose another --out.")
    with locked(run, "is training"):
        try:
            yield
        finally:
            if made and all(map(is_scratch, run.iterdir())):
                with suppress(OSError):  # another process may use it by now
                    (run / ".lock").unlink()
                    run.rmdir()


def is_scratch(path: Path) -> bool:
    """Whether a file of a run folder is the lock or a leftover of a killed process."""
    return path.name == ".lock" or path.match(LEFT)


# --- checkpoints


def save_checkpoint(
    run: Path,
    step: int,
    weights: dict[str, Tensor],
    state: dict[str, Tensor],
    about: dict[str, Any],
    belongs: Mapping[str, str] | None = None,
) -> Path:
    """Commit a checkpoint as RUN/checkpoints/<step> by renaming a complete, synced folder, and read it back.

    `belongs` holds the SHA-256 of the files of the run that these weights need: the vocabularies.
    """
    parent = run / "checkpoints"
    folder = parent / f"{step:06d}"
    try:
        make_folder(parent)
        check_space(parent, [*weights.values(), *state.values()])
        contents = {"weights.safetensors": pack(weights), "state.safetensors": pack(state)}
        contents["state.json"] = json.dumps(about, indent=1).encode()
        # This may replace a damaged checkpoint of the same step, if training continued from an older one.
        write_folder(folder, contents, {"step": step, "belongs": dict(belongs or {})})
    except (OSError, DataError, RunError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if not isinstance(cause, OSError):
            raise
        raise RunError(
            f"The checkpoint of step {step} could not be saved in {parent}: {cause.strerror or cause}. "
            f"Earlier checkpoints are unchanged; free some space and repeat the command."
        ) from error
    read_manifest(folder, CHECKPOINT)
    return folder


def check_space(folder: Path, tensors: Iterable[Tensor]) -> None:
    """Refuse a save if the disk has no room for it."""
    needed = SPARE * sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"No space left for a checkpoint in {folder}: {needed / 2**20:.1f} MiB are needed and {free / 2**20:.1f} "
            f"free. Nothing was overwritten; free some space and repeat the command."
        )


def checkpoints(run: Path) -> list[Path]:
    """The committed checkpoints of a run, oldest first. Unfinished ones have other names."""
    folder = run / "checkpoints"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in found if path.name.isdecimal()), key=lambda path: int(path.name))


def newest_checkpoint(run: Path, check: Iterable[str] | None = None) -> Path | None:
    """The newest intact checkpoint. A damaged one is an error only if none is intact.

    `check` limits the verification to some files, which is faster if the weights are not needed.
    """
    failure: RunError | None = None
    for folder in reversed(checkpoints(run)):
        try:
            read_manifest(folder, CHECKPOINT, check)
            return folder
        except RunError as error:
            failure = failure or error
    if failure:
        raise failure
    return None


def read_cursor(checkpoint: Path) -> Cursor:
    """The progress of training at a checkpoint; invalid values are refused."""
    path = checkpoint / "state.json"
    try:
        return read(Cursor, dict(json.loads(read_small(path))), "state")
    except (OSError, ValueError, TypeError, RecursionError, ConfigError) as error:
        raise RunError(f"{path} is not a valid training state: {brief(error)}. Restore it from a copy.") from None


def belongings(weights: Path) -> dict[str, str]:
    """The files of a run that these weights need, with their SHA-256: the vocabularies."""
    manifest = read_manifest(weights.parent, (), check=())
    if "belongs" not in manifest:  # of a finished model
        return {name: entry["sha256"] for name, entry in manifest["files"].items() if name not in FINISHED}
    found = manifest["belongs"]
    if not isinstance(found, dict) or any(Path(name).name != name for name in found):
        raise RunError(f"{weights.parent / 'manifest.json'} names files outside the run; restore it from a copy.")
    return found


def check_belongs(run: Path, checkpoint: Path, complete: bool = True) -> None:
    """Refuse a run whose vocabulary differs from the one that this checkpoint was trained with.

    A missing file is refused only if the run must be `complete`; otherwise it is rebuilt.
    """
    for name, sha256 in belongings(checkpoint / "weights.safetensors").items():
        if (complete or (run / name).exists()) and (not (run / name).is_file() or digest(run / name) != sha256):
            raise RunError(
                f"{run / name} does not belong to {checkpoint}: its SHA-256 differs from the file used in training; "
                f"restore it from a copy."
            )


def prune(run: Path, keep: Iterable[int]) -> None:
    """Delete the checkpoints of all steps but `keep`, and leftovers of killed processes; call it after a save.

    Files that cannot be deleted stay until the next time, so that training continues.
    """
    kept = set(keep)
    with suppress(OSError):
        for folder in checkpoints(run):
            if int(folder.name) not in kept:
                remove_folder(folder)
        for left in (*run.glob(LEFT), *(run / "checkpoints").glob(".*.tmp")):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def tidy(run: Path) -> None:
    """Delete leftovers of a killed process: temporary files, and checkpoints that are no longer needed."""
    keep = {int(folder.name) for folder in checkpoints(run)}
    newest = newest_checkpoint(run, check=("state.json",))
    if newest:
        cursor = read_cursor(newest)
        surplus = {step for step in keep if step < cursor.step} - {cursor.best_step, *cursor.kept}
        keep -= surplus if surplus and newest == newest_checkpoint(run) else set()
    prune(run, keep)


def clear(run: Path) -> None:
    """Empty a locked run folder: its files are moved aside, the settings last, and then deleted."""
    old = run / f".old.{os.getpid()}.tmp"
    shutil.rmtree(old, ignore_errors=True)
    try:
        old.mkdir()
        for path in sorted(run.iterdir(), key=lambda path: path.name == "config.toml"):
            if path.name not in (".lock", old.name):
                os.rename(path, old / path.name)
    except OSError as error:
        raise RunError(f"{run} could not be cleared: {error.strerror or error}; choose another --out.") from error
    shutil.rmtree(old, ignore_errors=True)


# --- the finished model


def publish(run: Path, weights: dict[str, Tensor], files: Iterable[str], about: dict[str, Any]) -> None:
    """Make `weights` the finished model of the run."""
    withdraw(run)
    content = pack(weights)
    write_atomically(run / "weights.safetensors", content)
    written = {name: entry((run / name).read_bytes()) for name in {"config.toml", *files}}
    write_atomically(run / "manifest.json", make_manifest({**written, "weights.safetensors": entry(content)}, about))


def withdraw(run: Path) -> None:
    """Mark the run as not finished; its checkpoints stay."""
    try:
        if (run / "manifest.json").exists():
            (run / "manifest.json").unlink()
            sync(run)
    except OSError as error:
        raise RunError(f"{run} could not be changed: {error.strerror or error}; nothing was lost.") from error


def is_finished(run: Path) -> bool:
    """Whether the run has an intact finished model."""
    try:
        return bool(read_manifest(run, FINISHED))
    except RunError:
        return False


def unfinished_at(run: Path) -> int | None:
    """The step of the newest checkpoint of an unfinished run; None for a finished one."""
    return None if (run / "manifest.json").exists() else int(checkpoints(run)[-1].name)


def average_weights(folders: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, computed in float64."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for folder in folders:
        read_manifest(folder, CHECKPOINT)
        count += 1
        for name, tensor in read_tensors(folder / "weights.safetensors").items():
            kinds[name] = tensor.dtype
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}


def find_weights(run: Path, check: Iterable[str] | None = None) -> Path:
    """The weights to use: the finished ones, or for a run in progress those of the best or newest checkpoint.

    Their files, or those of `check`, are verified; a caller that has done so already passes an empty one.
    """
    if not run.is_dir():
        raise RunError(f"There is no run folder {run}; train one with `regard train ... --out {run}`.")
    if (run / "manifest.json").exists():
        read_manifest(run, FINISHED, check)
        return run / "weights.safetensors"
    newest = newest_checkpoint(run)
    if newest is None:
        raise RunError(f"{run} holds no finished model and no checkpoint; train it with `regard train`.")
    best = read_cursor(newest).best_step
    folder = run / "checkpoints" / f"{best:06d}" if best is not None else newest
    if folder != newest and not folder.is_dir():
        folder = newest
    read_manifest(folder, CHECKPOINT, check)
    check_belongs(run, folder)
    return folder / "weights.safetensors"
