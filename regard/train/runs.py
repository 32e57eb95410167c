"""A run on disk: one folder that holds everything, written so that no crash can lose or damage what was saved.

    RUN/config.toml                     all settings
    RUN/source.* target.*               vocabularies (translation)
    RUN/metrics.jsonl                   one line for each report of the loop
    RUN/checkpoints/000500/             weights.safetensors, state.safetensors, state.json, manifest.json
    RUN/weights.safetensors             the finished weights: the best checkpoint, or the average of several
    RUN/manifest.json                   SHA-256 and size of every file above that the finished model needs

A checkpoint is written under a temporary name, synced, and becomes real by one rename; its manifest is its last file.
The finished model counts only while manifest.json stands, and that is removed before anything it names is replaced.
Nothing is ever unpickled.
"""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regard.errors import RunError
from regard.version import __version__

VERSION = 1  # of the layout of a run; a folder of another version is refused
SPARE = 2  # free space asked for before a save, as a multiple of its size


def write_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, sync it, and rename it: it is there whole, or it is not there."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"{path} could not be written: {error.strerror or error}; nothing was lost.") from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def make_manifest(folder: Path, names: Iterable[str], about: dict[str, Any]) -> bytes:
    """The manifest of these files of a folder, with the versions that wrote them."""
    files = {name: {"sha256": digest(folder / name), "bytes": (folder / name).stat().st_size} for name in sorted(names)}
    versions = {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return json.dumps({"run": VERSION, "files": files, "versions": versions, **about}, indent=1).encode()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, with every file that it names checked against it."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, files = manifest["run"], manifest["files"]
        checked = {str(name): (str(entry["sha256"]), int(entry["bytes"])) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is missing or damaged ({type(error).__name__}); use another checkpoint.") from None
    if version != VERSION:
        raise RunError(f"{folder} was written in layout {version}, this regard reads layout {VERSION}; train it again.")
    for name, (sha256, size) in checked.items():
        file = folder / name
        if os.sep in name or not file.is_file():
            raise RunError(f"{file} is named in the manifest but is not there; restore it from a copy.")
        if file.stat().st_size != size or digest(file) != sha256:
            raise RunError(f"{file} is damaged: its SHA-256 is not the one in {path}; restore it from a copy.")
    return manifest


def save_checkpoint(
    run: Path, step: int, weights: dict[str, Tensor], state: dict[str, Tensor], about: dict[str, Any]
) -> Path:
    """Commit a checkpoint as RUN/checkpoints/<step> by renaming a complete, synced folder."""
    parent = run / "checkpoints"
    folder, temporary = parent / f"{step:06d}", parent / f".{step:06d}.tmp"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        check_space(parent, [*weights.values(), *state.values()])
        clear(temporary)
        temporary.mkdir()
        write_tensors(temporary / "weights.safetensors", weights)
        write_tensors(temporary / "state.safetensors", state)
        write_file(temporary / "state.json", json.dumps(about, indent=1).encode())
        names = ("weights.safetensors", "state.safetensors", "state.json")
        write_file(temporary / "manifest.json", make_manifest(temporary, names, {"step": step}))
        clear(folder)  # the same step saved again, after a resume
        os.rename(temporary, folder)
        sync_folder(parent)
    except OSError as error:
        clear(temporary)
        raise RunError(
            f"The checkpoint of step {step} could not be saved in {parent}: {error.strerror or error}. "
            f"Earlier checkpoints are untouched; make room and start again with the same command."
        ) from error
    return folder


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as safetensors, whole and synced."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_file(path, safetensors.torch.save(plain))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read safetensors; a file that is none is refused."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} cannot be read as safetensors: {error}.") from None


def check_space(folder: Path, tensors: Iterable[Tensor]) -> None:
    """Refuse to begin a save that the disk has no room for."""
    needed = SPARE * sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"No space left for a checkpoint in {folder}: {needed >> 20} MiB are needed and {free >> 20} MiB free. "
            f"Nothing was overwritten; make room and start again with the same command."
        )


def clear(folder: Path) -> None:
    """Remove a folder and what is in it, if it is there."""
    if folder.exists():
        shutil.rmtree(folder)


def checkpoints(run: Path) -> list[Path]:
    """The committed checkpoints of a run, oldest first. Unfinished ones have other names."""
    folder = run / "checkpoints"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in found if path.name.isdigit()), key=lambda path: int(path.name))


def newest_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint that is whole. A damaged one is an error only where no whole one is left."""
    failure: RunError | None = None
    for folder in reversed(checkpoints(run)):
        try:
            read_manifest(folder)
            return folder
        except RunError as error:
            failure = failure or error
    if failure:
        raise failure
    return None


def read_about(checkpoint: Path) -> dict[str, Any]:
    """The plain part of a checkpoint's state."""
    return json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))


def prune(run: Path, keep: int, best: int | None) -> None:
    """Delete all but the newest `keep` checkpoints and the best; call it after a save has been committed."""
    for folder in checkpoints(run)[:-keep]:
        if int(folder.name) != best:
            clear(folder)
    for left in (run / "checkpoints").glob(".*.tmp"):
        clear(left)


def publish(run: Path, weights: dict[str, Tensor], files: Iterable[str], about: dict[str, Any]) -> None:
    """Make `weights` the finished model of the run."""
    withdraw(run)
    write_tensors(run / "weights.safetensors", weights)
    names = {"config.toml", "weights.safetensors", *files}
    write_file(run / "manifest.json", make_manifest(run, names, about))


def withdraw(run: Path) -> None:
    """The run has no finished model (any more); its checkpoints stay."""
    if (run / "manifest.json").exists():
        (run / "manifest.json").unlink()
        sync_folder(run)


def average_weights(folders: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in float64 so that the order does not matter."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for folder in folders:
        count += 1
        for name, tensor in read_tensors(folder / "weights.safetensors").items():
            kinds[name] = tensor.dtype
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}


def find_weights(run: Path) -> Path:
    """The weights to use: the finished ones, or those of the best, else the newest, checkpoint of a run in progress."""
    if not run.is_dir():
        raise RunError(f"There is no run folder {run}; train one with `regard train ... --out {run}`.")
    if (run / "manifest.json").exists():
        read_manifest(run)
        return run / "weights.safetensors"
    newest = newest_checkpoint(run)
    if newest is None:
        raise RunError(f"{run} holds no finished model and no checkpoint; train it with `regard train`.")
    best = read_about(newest).get("best_step")
    folder = run / "checkpoints" / f"{best:06d}" if best is not None else newest
    if folder != newest and not folder.is_dir():
        folder = newest
    read_manifest(folder)
    return folder / "weights.safetensors"
