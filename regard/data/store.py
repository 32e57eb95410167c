"""A tokenised corpus on disk, memory-mapped, so that it may be larger than memory.

A store is a folder. Each column of each part ("train", "dev") is one file of numbers, such as `train.source`; if
examples differ in length, `train.source.offsets` holds the start of each. `store.json`, written last and sealed, holds
the fingerprint of the corpus and settings, and the SHA-256 of every file. The folder is committed by one rename.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.sealed import check_files, fill_folder, seal, unseal

STORE_FORMAT = 2
Array = NDArray[Any]
Block = tuple[str, Mapping[str, Any]]  # a part, and for each column the values of a block: a `Column` or a list


class ColumnType(NamedTuple):
    """The dtype of a column, and whether its examples differ in length."""

    dtype: str
    ragged: bool = True


def id_type(vocabulary: int) -> ColumnType:
    """The column type of token ids: two bytes each if the vocabulary is small enough."""
    return ColumnType("uint16" if vocabulary <= 1 << 16 else "uint32")


class RowLengths:
    """The lengths of rows, indexed like an array; all of them may not fit into memory."""

    def __init__(self, offsets: Array) -> None:
        self.starts, self.ends = offsets[:-1], offsets[1:]  # [N]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: Any) -> NDArray[np.int64]:
        return np.asarray(self.ends[rows] - self.starts[rows])


class Column:
    """Rows of different lengths in one array: row i is values[offsets[i]:offsets[i + 1]]."""

    def __init__(self, values: Array, offsets: Array) -> None:
        self.values = values
        self.offsets = offsets  # [N + 1]
        self.lengths = RowLengths(offsets)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: str = "int32") -> "Column":
        """Rows in memory."""
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def where(self, chosen: Array) -> "Column":
        """The rows for which `chosen` [N] is true."""
        lengths = self.lengths[:]
        offsets = np.cumsum([0, *lengths[chosen]], dtype=np.int64)
        return Column(self.values[np.repeat(chosen, lengths)], offsets)

    def row(self, index: int) -> Array:
        """The values of one example."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: Sequence[int]) -> list[Array]:
        """The values of the examples `indices`."""
        chosen, values = np.array(indices, np.int64), np.asarray(self.values)  # slicing a memmap is slower
        starts, ends = self.offsets[chosen].tolist(), self.offsets[chosen + 1].tolist()
        return [values[start:end] for start, end in zip(starts, ends, strict=True)]


class Store:
    """The memory-mapped columns of each part; opening it checks the SHA-256 of every file."""

    def __init__(self, folder: Path) -> None:
        try:
            header = unseal((folder / "store.json").read_bytes())
            if header["format"] != STORE_FORMAT:
                raise ValueError(f"it has format {header['format']}")
            self.fingerprint: str = header["fingerprint"]
            self.about: dict[str, Any] = header["about"]
            check_files(folder, header["files"], f"delete {folder} to rebuild it")
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{folder / 'store.json'} is missing or damaged ({error}); delete {folder} to rebuild it."
            ) from None
        self.parts: dict[str, dict[str, Any]] = {}
        for name, (dtype, shape) in header["columns"].items():
            part, _, column = name.partition(".")
            found: Any = None
            if f"{name}.offsets" in header["files"]:
                offsets = _map(folder / f"{name}.offsets", "int64", [shape[0] + 1])
                found = Column(_map(folder / name, dtype, offsets[-1:].tolist()), offsets)
            self.parts.setdefault(part, {})[column] = _map(folder / name, dtype, shape) if found is None else found


def find_store(folder: Path, fingerprint: str) -> tuple[Store | None, list[str]]:
    """The store `folder` if it exists and has this fingerprint, and notes. A damaged store counts as missing, since it
    can be rebuilt; a note says what is damaged."""
    try:
        store = Store(folder) if folder.is_dir() else None
    except DataError as error:
        return None, [f"rebuilt: {error}"]
    return store if store and store.fingerprint == fingerprint else None, []


def write_store(
    folder: Path,
    fingerprint: str,
    types: Mapping[str, ColumnType],
    blocks: Iterable[Block],
    about: Callable[[], dict[str, Any]] = dict,
    parts: Sequence[str] = ("train", "dev"),
) -> Store:
    """Write `blocks` as the store `folder`; `about()` is called after the last block and stored in the header."""
    names = [f"{part}.{name}" for part in parts for name in types]
    shapes = {name: [0] for name in names}  # of each column: the number of examples, then their shape if it is fixed
    ends = dict.fromkeys(names, 0)  # of ragged columns: the end of the last example
    try:
        with fill_folder(folder) as temporary, ExitStack() as streams:
            files: dict[str, tuple[BinaryIO, Any]] = {}  # with their SHA-256

            def write(name: str, values: Array) -> None:
                if name not in files:
                    files[name] = streams.enter_context(open(temporary / name, "wb")), hashlib.sha256()
                content = np.ascontiguousarray(values).tobytes()
                files[name][0].write(content)
                files[name][1].update(content)

            for name in names:
                write(name, np.zeros(0))
                if types[name.partition(".")[2]].ragged:
                    write(f"{name}.offsets", np.zeros(1, np.int64))
            for part, block in blocks:
                for column, rows in block.items():
                    name, type_ = f"{part}.{column}", types[column]
                    shapes[name][0] += len(rows)
                    if type_.ragged:
                        ragged = rows if isinstance(rows, Column) else Column.of(rows, type_.dtype)
                        values, offsets = ragged.values.astype(type_.dtype), ends[name] + ragged.offsets[1:]
                        ends[name] = int(offsets[-1])
                        write(f"{name}.offsets", offsets)
                    else:
                        values = np.asarray(rows, type_.dtype)
                        shapes[name][1:] = values.shape[1:]
                    write(name, values)
            columns = {name: (types[name.partition(".")[2]].dtype, shapes[name]) for name in names}
            header = {"format": STORE_FORMAT, "fingerprint": fingerprint, "about": about(), "columns": columns}
            sums = {name: sha256.hexdigest() for name, (_, sha256) in files.items()}
            write("store.json", np.frombuffer(seal({**header, "files": sums}), np.uint8))
    except OSError as error:
        found, _ = find_store(folder, fingerprint)  # another process may have written the same store
        if found is None:
            raise DataError(f"The tokenised corpus {folder} could not be written: {error.strerror or error}.") from None
        return found
    return Store(folder)


def _map(path: Path, dtype: str, shape: Sequence[int]) -> Array:
    return np.memmap(path, dtype=dtype, mode="r", shape=tuple(shape)) if path.stat().st_size else np.zeros(shape, dtype)
