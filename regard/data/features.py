"""Features of pictures, computed once and kept in one memory-mapped file: [N, S, D] in half precision."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text import fill_folder, write_atomically
from regard.errors import DataError

_FORMAT = 1


class Features:
    """The cells of N pictures; rows are read from the disk when they are asked for."""

    def __init__(self, folder: Path) -> None:
        try:
            header = json.loads((folder / "features.json").read_bytes())
            if header["format"] != _FORMAT:
                raise ValueError(f"format {header['format']}")
            self.fingerprint: str = header["fingerprint"]
            N, S, D = header["shape"]
            if (folder / "features.bin").stat().st_size != N * S * D * 2:
                raise ValueError("features.bin has another size")
            self.cells: NDArray[np.float16] = np.memmap(
                folder / "features.bin", dtype=np.float16, mode="r", shape=(N, S, D)
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"The features {folder} are not complete ({error}); delete the folder.") from None

    def __len__(self) -> int:
        return len(self.cells)

    def rows(self, numbers: list[int]) -> Tensor:
        """The cells of these pictures, [B, S, D] in single precision."""
        return torch.from_numpy(self.cells[numbers].astype(np.float32))


def open_features(folder: Path, fingerprint: str) -> Features | None:
    """The features in `folder` if they are there, whole, and have this fingerprint."""
    if not (folder / "features.json").exists():
        return None
    try:
        found = Features(folder)
    except DataError:
        return None  # damaged: they are computed anew
    return found if found.fingerprint == fingerprint else None


def write_features(folder: Path, fingerprint: str, blocks: Iterable[Tensor]) -> Features:
    """Write blocks [B, S, D] one after the other as the features `folder`, whole or not at all."""
    count, shape = 0, (0, 0)
    try:
        with fill_folder(folder) as temporary:
            with open(temporary / "features.bin", "wb") as stream:
                for block in blocks:
                    shape = (block.shape[1], block.shape[2])
                    count += len(block)
                    stream.write(block.to(torch.float16).cpu().contiguous().numpy().tobytes())
                stream.flush()
                os.fsync(stream.fileno())
            header = {"format": _FORMAT, "fingerprint": fingerprint, "shape": [count, *shape]}
            write_atomically(temporary / "features.json", json.dumps(header).encode())
    except OSError as error:
        raise DataError(f"The features {folder} could not be written: {error.strerror or error}.") from None
    return Features(folder)
