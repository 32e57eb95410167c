"""Captioned pictures prepared for training: read or drawn, with tokenised captions and features computed once.

Captions, picture names and features are memory-mapped from disk; only the index of the tar file or folder is in memory.
Features of a frozen encoder are stored under a fingerprint of the pictures and its weights. For a trainable encoder,
pictures are read again for each batch, and those of the built-in corpus are drawn again.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.corpora import shapes
from regard.data.batching import pad
from regard.data.captions import Captioned, open_captions, without_punctuation
from regard.data.encoding import Corpus, Encoding, Rows, Tally, fingerprint_of, train_vocabulary
from regard.data.images import Pixels, as_tensor, read_picture
from regard.data.prepare import Stages, quiet
from regard.data.settings import CaptionConfig
from regard.data.store import Array, Block, Column, ColumnType, RowLengths, find_store, id_type, write_store
from regard.data.tokenisers import Tokenise
from regard.errors import ConfigError
from regard.layers.image import image_encoder, load_pretrained
from regard.symbols import END

_BLOCK = 32  # pictures encoded at once
DRAWN = 8192  # pictures kept in memory

ReadPictures = Callable[[Sequence[int]], Tensor]  # numbers of pictures -> pictures [B, 3, H, W] or features [B, S, D]
Cells = tuple[int | None, ...]  # the cell that each word of a caption describes, if known


class CaptionBatch(NamedTuple):
    """Pictures, or their features, and captions with END, padded with PAD."""

    source: Tensor  # [B, 3, H, W] or [B, S, D]
    source_lengths: Tensor  # [B], cells
    target: Tensor  # [B, T]
    target_lengths: Tensor  # [B]


@dataclass(frozen=True)
class Album:
    """Captions with their pictures; each caption is one example."""

    source: ReadPictures
    targets: Column  # the ids of each caption, END included
    pictures: Array  # [N] the number of each caption's picture in the corpus, rising
    cells: Callable[[int], Cells] | None = None  # of a drawn picture
    size: int = 0  # cells of every picture

    @property
    def sides(self) -> tuple[RowLengths, RowLengths]:
        return self.targets.lengths, self.targets.lengths

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> CaptionBatch:
        """These captions, in that order."""
        source = self.source([int(self.pictures[number]) for number in numbers])
        return CaptionBatch(source, torch.full((len(source),), self.size), *pad(self.targets.take(numbers)))


class Drawings:
    """The pictures of the built-in corpus with these numbers, drawn on demand."""

    def __init__(self, numbers: range, seed: int, grid: int) -> None:
        self.scene = lru_cache(DRAWN)(lambda place: shapes.scene(numbers[place], seed, grid))
        self.picture = lru_cache(DRAWN)(lambda place: shapes.draw_scene(self.scene(place), grid))
        places = range(len(numbers))
        captions = hashlib.sha256()
        for place in places:
            captions.update(self.scene(place).caption.encode() + b"\n")
        entries = lambda digests: (Captioned(1 + one, str(one), [self.scene(one).caption]) for one in places)  # noqa: E731
        self.corpus = Corpus(entries, (), [captions.hexdigest()], "picture")

    def album(self, image: Column, **columns: Any) -> Album:
        """The captions in these columns with their pictures; the last ones drawn are cached."""
        source = lambda numbers: as_tensor([self.picture(int(number)) for number in numbers])  # noqa: E731
        return Album(source, **columns, cells=lambda place: self.scene(place).cells)


class Photographs:
    """Pictures in files, read again for each batch, or as features on disk."""

    def __init__(self, config: CaptionConfig, images: str, captions: str) -> None:
        def clean(text: str) -> str:
            text = text.lower() if config.lowercase else text
            return without_punctuation(text) if config.bare else text

        self.files, found = open_captions(images, captions, config)
        self.content = self.files.fingerprint()
        self.corpus = Corpus(
            lambda digests: (one._replace(captions=[*map(clean, one.captions)]) for one in found.read(digests)),
            found.files,
            [self.content],
            found.place,
        )
        self.side = 0  # pixels; known when they are prepared
        self.features: Array | None = None  # [P, S, D], of a frozen encoder

    def prepare(self, config: CaptionConfig, model: Any, place: Path, report: Stages) -> list[str]:
        """Compute or find the features of a frozen encoder; returns notes for the user."""
        encoder = image_encoder(model.encoder, model.features)
        if encoder is None:
            raise ConfigError("Pictures need an encoder; set model.encoder to small, efficientnet-lite0 or timm:NAME.")
        self.side = model.grid * int(encoder.stride)  # type: ignore[arg-type]
        if any(weight.requires_grad for weight in encoder.parameters()):
            return []
        names = hashlib.sha256()
        for entry in self.corpus:
            names.update(entry.image.encode("utf-8", "surrogatepass") + b"\0")
        parts = [self.content, names.hexdigest(), model.encoder, load_pretrained(encoder), str(self.side)]
        fingerprint = fingerprint_of(parts)
        place = Path(config.cache) / f"features-{fingerprint[:16]}" if config.cache else place
        store, notes = find_store(place, fingerprint)
        if store is None:
            types = {"cells": ColumnType("float16", ragged=False)}
            store = write_store(place, fingerprint, types, self.encode(encoder, report), parts=("all",))
        self.features = store.parts["all"]["cells"]
        return notes

    @torch.inference_mode()
    def encode(self, encoder: nn.Module, report: Stages) -> Iterator[Block]:
        """Blocks of features [B, S, D] of all pictures, in order."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        encoder.to(device)
        names = (entry.image for entry in self.corpus)
        done = 0
        while block := [self.picture(name) for name in islice(names, _BLOCK)]:
            report("pictures", done, None)
            done += len(block)
            yield "all", {"cells": encoder(as_tensor(block).to(device)).to(torch.float16).cpu().numpy()}

    def picture(self, name: str) -> Pixels:
        """One picture."""
        return read_picture(self.files.read(name), self.side, name)

    def album(self, image: Column, **columns: Any) -> Album:
        """The captions in these columns with their pictures; `image` holds the bytes of the picture names."""
        features, pictures = self.features, columns["pictures"]
        if features is not None:
            return Album(
                lambda numbers: torch.from_numpy(features[np.asarray(numbers, np.int64)].astype(np.float32)), **columns
            )

        def read(numbers: Sequence[int]) -> Tensor:
            rows = np.searchsorted(pictures, np.asarray(numbers, np.int64))  # the first caption of each picture
            names = (image.row(row).tobytes().decode("utf-8", "surrogatepass") for row in rows)
            return as_tensor([*map(self.picture, names)])

        return Album(read, **columns)


def find_pictures(config: CaptionConfig, model: Any) -> list[Drawings | Photographs]:
    """The pictures to train on, and those for validation where these are not held out by the settings of all tasks."""
    if config.corpus == "shapes":
        if model.encoder != "small":
            raise ConfigError(f"The drawn pictures of shapes need model.encoder='small'; got {model.encoder!r}.")
        count = config.size - min(config.held_out, max(1, config.size // 10))
        parts = range(count), range(count, config.size)
        return [Drawings(part, config.seed, model.grid) for part in parts if part]
    if not config.images:
        raise ConfigError('There is no corpus: give data.images (and data.captions), or data.corpus="shapes".')
    given = (config.images, config.captions), (config.dev_images, config.dev_captions)
    return [Photographs(config, images, captions) for images, captions in given if images]


class CaptionEncoding(Encoding[Captioned]):
    """Captions into ids with END, each beside the number of its picture; `cells` are those of a picture.

    `model` are the settings of the captioner, with its encoder and grid.
    """

    noun, names = "captions", ("target",)

    def __init__(self, config: CaptionConfig, model: Any, folder: Path, report: Stages = quiet) -> None:
        self.pictures = find_pictures(config, model)
        super().__init__(config, self.pictures[0].corpus, self.pictures[1].corpus if len(self.pictures) > 1 else None)
        self.model, self.folder, self.report, self.cells = model, folder, report, model.grid**2
        self.damaged: list[str] = []  # features that had to be computed again

    def texts(self, item: Captioned) -> tuple[str, ...]:
        return item.image, " ".join(item.captions)

    def make(self, sample: Sequence[Captioned]) -> None:
        drawn = [" ".join(shapes.vocabulary_words())] if self.config.corpus == "shapes" else []
        lines = drawn or (text for item in sample for text in item.captions)
        self.vocabularies = [train_vocabulary(lines, self.config)]

    def column_types(self) -> dict[str, ColumnType]:
        numbers = {"pictures": ColumnType("int64", ragged=False), "image": ColumnType("uint8")}
        return {"targets": id_type(len(self.vocabularies[0])), **numbers}

    def encode(self, items: Sequence[Captioned], tally: Tally, tokenise: Tokenise) -> Rows[Captioned]:
        found: list[tuple[Captioned, tuple[Any, ...]]] = []
        for item in items:
            for ids in self.vocabularies[0].encode_many(item.captions):
                if not ids or len(ids) > self.config.max_length:
                    tally.drop("too long" if ids else "empty", item.line)
                else:
                    found.append((item, ([*ids, END], item.line - 1, item.image.encode("utf-8", "surrogatepass"))))
        return Rows.of(found, self.column_types())

    def shown(self, item: Captioned) -> Sequence[Any]:
        return [(item.image, item.captions)]

    def sizes(self) -> dict[str, int]:
        return {"target_vocabulary": len(self.vocabularies[0])}

    def open(self, columns: dict[str, Any], training: bool) -> Album:
        pictures = self.pictures[0 if training else -1]
        if isinstance(pictures, Photographs) and not pictures.side:
            place = self.folder / ("features-train" if training else "features-dev")
            self.damaged += pictures.prepare(self.config, self.model, place, self.report)
        return replace(pictures.album(**columns), size=self.cells)

    def describe(self, train: Album, dev: Album) -> list[str]:
        return [*super().describe(train, dev), *self.damaged]
