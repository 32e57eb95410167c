"""A small run to share: int8 weights with one scale per row, without anything that only training needs.

    DIR/config.toml             all settings, file names without their folders
    DIR/weights.safetensors     matrices as int8 NAME and float32 NAME:scale, everything else as float16
    DIR/source.* target.*       vocabularies
    DIR/manifest.json           SHA-256 and size of every file above, and what the model expects

Such a folder is loaded and checked like any other run; its weights are converted to float32.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import RunError
from regard.runs.experiment import Experiment, resolve
from regard.runs.folder import belongings, find_weights, pack, read_config, read_shapes, read_tensors, write_folder
from regard.runs.included import check_outside_run

SCALE = ":scale"  # suffix of the name of a matrix's scales
LEVELS = 127  # int8 without -128, so that quantisation is symmetric
PATHS = (
    "source", "target", "tsv", "tmx", "alignment", "dev_source", "dev_target", "dev_tsv", "dev_tmx", "images",
    "captions", "dev_images", "dev_captions", "files", "dev_files", "vectors",
)  # fmt: skip


def shrink(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Quantise weights to a quarter of their size: matrices as int8 with a scale per row, the rest as float16."""
    small: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if not weight.is_floating_point():
            small[name] = weight
        elif weight.dim() < 2:
            small[name] = weight.half() if bool(weight.half().isfinite().all()) else weight
        else:
            scale = weight.float().flatten(1).abs().amax(1) / LEVELS  # [rows]
            steps = weight.float() / scale.clamp_min(torch.finfo(torch.float32).tiny).view(
                -1, *[1] * (weight.dim() - 1)
            )
            small[name], small[name + SCALE] = steps.round().clamp(-LEVELS, LEVELS).to(torch.int8), scale
    return small


def expand(tensors: dict[str, Tensor], where: str) -> Iterator[tuple[str, Tensor]]:
    """The names and weights as float32, whether they were quantised or not; one is converted at a time."""
    for name, tensor in tensors.items():
        if name.endswith(SCALE):
            if name.removesuffix(SCALE) not in tensors:
                raise RunError(f"The weights in {where} are damaged: the matrix of {name!r} is missing.")
        elif tensor.dtype == torch.int8 and tensor.dim() > 1:
            scale = tensors.get(name + SCALE)
            if scale is None or scale.shape != tensor.shape[:1]:
                raise RunError(f"The weights in {where} are damaged: {name!r} needs one scale per row.")
            yield name, tensor.float() * scale.float().view(-1, *[1] * (tensor.dim() - 1))
        else:
            yield name, tensor.float() if tensor.dtype == torch.float16 else tensor


def read_full_shapes(path: Path) -> dict[str, torch.Size]:
    """The shapes of the weights of a run, small or not; only the header of the file is read."""
    return {name: shape for name, shape in read_shapes(path).items() if not name.endswith(SCALE)}


def read_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The names and weights of a run, small or not."""
    return expand(read_tensors(path), str(path))


def export_small(run: Path, out: Path, about: dict[str, Any]) -> int:
    """Export `run` to the new folder `out`; returns its size in bytes.

    Corpus, checkpoints and optimiser state are not included. `about` is added to the manifest.
    """
    check_new(out)
    weights = find_weights(run)
    experiment = without_folders(resolve(read_config(run)))
    contents = {name: (run / name).read_bytes() for name in belongings(weights)}
    contents |= {
        "config.toml": experiment.toml().encode(),
        "weights.safetensors": pack(shrink(dict(read_weights(weights)))),
    }
    chosen = run / "alignment.json"  # which head aligns; not in the manifest, since `regard align` changes it
    return write_folder(out, contents, about, {chosen.name: chosen.read_bytes()} if chosen.exists() else None)


def check_new(out: Path) -> None:
    """Refuse to write into a folder that is not empty, or inside the folder of a run."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} exists and is not an empty folder; nothing was changed. Choose another --out.")
    check_outside_run(out)


def without_folders(experiment: Experiment) -> Experiment:
    """The settings with file names only: folder names are private."""

    def last(value: Any) -> Any:
        return tuple(map(last, value)) if isinstance(value, tuple) else Path(value).name

    fields = {field.name for field in dataclasses.fields(experiment.data)}
    data = {name: last(getattr(experiment.data, name)) for name in PATHS if name in fields}
    data |= {name: "" for name in ("vocabulary_from", "cache") if name in fields}  # not exported
    train = dataclasses.replace(experiment.train, start_from=last(experiment.train.start_from))
    return dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, **data), train=train)
