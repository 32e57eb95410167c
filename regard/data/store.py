"""A tokenised corpus on disk, read by memory mapping: a corpus may be larger than memory.

A store is a folder: `source.ids` and `target.ids` hold the ids of all sentences one after the other, each ended by
END; `source.offsets` and `target.offsets` say where each begins; `lines` which line of the corpus it was; `links` and
`links.offsets`, where the corpus is aligned, which words belong together. `store.json`, written last, holds the
fingerprint and the sizes. The folder appears under its name by one rename.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.pharaoh import Link
from regard.data.text import fill_folder
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.symbols import END

STORE_FORMAT = 1


class Tokenised(NamedTuple):
    """A pair of a corpus in ids, END not among them, and the links between its words where it is aligned."""

    line: int
    source: list[int]
    target: list[int]
    links: Sequence[Link] = ()


class Store:
    """Pairs of id rows, END included, and their lengths. Opens in no time and holds no sentence in memory."""

    def __init__(self, folder: Path) -> None:
        try:
            header = json.loads((folder / "store.json").read_bytes())
            self.fingerprint: str = header["fingerprint"]
            self.about: dict[str, Any] = header["about"]
            kind: np.dtype[Any] = np.dtype({"uint16": np.uint16, "uint32": np.uint32}[header["dtype"]])
            sides = ("source", "target")
            self._ids = [_map(folder / f"{side}.ids", kind, header["tokens"][side]) for side in sides]
            count = header["pairs"]
            self._offsets = [_map(folder / f"{side}.offsets", np.dtype(np.int64), count + 1) for side in sides]
            self.lines = _map(folder / "lines", np.dtype(np.int64), count)
            total = header.get("links")
            self.aligned = total is not None
            if self.aligned:
                self._links = _map(folder / "links", np.dtype(np.uint32), 2 * total).reshape(-1, 2)
                self._link_offsets = _map(folder / "links.offsets", np.dtype(np.int64), count + 1)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"The tokenised corpus {folder} is not complete ({error}); delete it, it is made anew."
            ) from None
        self.source_lengths: NDArray[np.int64] = np.diff(self._offsets[0])  # [N] END counted
        self.target_lengths: NDArray[np.int64] = np.diff(self._offsets[1])  # [N]

    def __len__(self) -> int:
        return len(self.lines)

    def pair(self, index: int, epoch: int = 0) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Source and target ids of pair `index`, each ending with END; the same in every epoch."""
        source, target = (
            ids[offsets[index] : offsets[index + 1]] for ids, offsets in zip(self._ids, self._offsets, strict=True)
        )
        return source, target

    def links(self, index: int) -> NDArray[np.generic]:
        """The links [L, 2] of pair `index`, (source word, target word); none where the corpus is not aligned."""
        if not self.aligned:
            return np.zeros((0, 2), dtype=np.uint32)
        return self._links[self._link_offsets[index] : self._link_offsets[index + 1]]


class Rows:
    """The same for a few pairs in memory."""

    def __init__(self, pairs: list[tuple[list[int], list[int]]]) -> None:
        self.pairs = [([*source, END], [*target, END]) for source, target in pairs]
        self.source_lengths = np.array([len(source) for source, _ in self.pairs], dtype=np.int64)  # [N]
        self.target_lengths = np.array([len(target) for _, target in self.pairs], dtype=np.int64)  # [N]

    def __len__(self) -> int:
        return len(self.pairs)

    def pair(self, index: int, epoch: int = 0) -> tuple[list[int], list[int]]:
        """Source and target ids of pair `index`, each ending with END."""
        return self.pairs[index]


class Resampled:
    """A store whose sentences are segmented anew in every epoch: subword regularisation.

    What pair `index` is in `epoch` is a pure function of the seed. Lengths, by which batches are planned, are those
    of the best segmentation; a drawn one may be somewhat longer.
    """

    def __init__(
        self, store: Store, vocabularies: tuple[Vocabulary, Vocabulary], amount: float, seed: int, most: int
    ) -> None:
        self.store = store
        self.vocabularies = vocabularies
        self.amount = amount
        self.seed = seed
        self.most = most  # a drawn segmentation longer than this is not used
        self.source_lengths = store.source_lengths
        self.target_lengths = store.target_lengths

    def __len__(self) -> int:
        return len(self.store)

    def pair(self, index: int, epoch: int = 0) -> tuple[list[int], list[int]]:
        """Source and target ids of pair `index` as drawn for `epoch`, each ending with END."""
        rows = []
        for side, (ids, vocabulary) in enumerate(zip(self.store.pair(index), self.vocabularies, strict=True)):
            best = ids[:-1].tolist()
            drawn = vocabulary.sample(best, self.amount, f"{self.seed}:{epoch}:{index}:{side}")
            rows.append([*(drawn if len(drawn) <= self.most else best), END])
        return rows[0], rows[1]


def open_store(folder: Path, fingerprint: str) -> Store | None:
    """The store `folder` if it is there, whole, and has this fingerprint."""
    if not (folder / "store.json").exists():
        return None
    try:
        store = Store(folder)
    except DataError:
        return None  # damaged: it is made anew
    return store if store.fingerprint == fingerprint else None


def write_store(
    folder: Path,
    fingerprint: str,
    rows: Iterable[Tokenised],
    vocabulary: int,
    about: Callable[[], dict[str, Any]],
    aligned: bool = False,
) -> Store:
    """Write `rows` as the store `folder`; `about`, asked when all rows are through, is kept in its header.

    `vocabulary` is the size of the larger vocabulary: ids take two bytes where they fit. `aligned` keeps the links.
    """
    kind = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
    try:
        with fill_folder(folder) as temporary:
            header = _write_rows(temporary, rows, kind, aligned)
            header |= {"format": STORE_FORMAT, "fingerprint": fingerprint, "dtype": kind.name, "about": about()}
            with open(temporary / "store.json", "wb") as stream:
                stream.write(json.dumps(header).encode())
                _sync(stream)
    except OSError as error:
        quicker = open_store(folder, fingerprint)  # another process may have written the same
        if quicker is None:
            raise DataError(f"The tokenised corpus {folder} could not be written: {error.strerror or error}.") from None
    return Store(folder)


def _write_rows(
    folder: Path, rows: Iterable[Tokenised], kind: np.dtype[np.generic], aligned: bool
) -> dict[str, object]:
    names = ["source.ids", "target.ids", "source.offsets", "target.offsets", "lines"]
    names += ["links", "links.offsets"] if aligned else []
    streams: dict[str, BinaryIO] = {name: open(folder / name, "wb") for name in names}  # noqa: SIM115
    totals = {"source": 0, "target": 0}
    count = linked = 0
    try:
        for name in names:
            if name.endswith(".offsets"):
                streams[name].write(np.int64(0).tobytes())
        for row in rows:
            line, source, target, links = Tokenised(*row)
            count += 1
            streams["lines"].write(np.int64(line).tobytes())
            for side, ids in (("source", source), ("target", target)):
                streams[f"{side}.ids"].write(np.array([*ids, END], dtype=kind).tobytes())
                totals[side] += len(ids) + 1
                streams[f"{side}.offsets"].write(np.int64(totals[side]).tobytes())
            if aligned:
                linked += len(links)
                streams["links"].write(np.array(links, dtype=np.uint32).tobytes())
                streams["links.offsets"].write(np.int64(linked).tobytes())
        for stream in streams.values():
            _sync(stream)
    finally:
        for stream in streams.values():
            stream.close()
    return {"pairs": count, "tokens": totals, **({"links": linked} if aligned else {})}


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _map(path: Path, kind: np.dtype[np.generic], count: int) -> NDArray[np.generic]:
    if path.stat().st_size != count * kind.itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {count * kind.itemsize}")
    if count == 0:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r", shape=(count,))
