"""Captioned pictures made ready for training: read or drawn, their captions tokenised, their features computed once.

The features of a frozen encoder are kept memory-mapped under a fingerprint of the pictures and of its weights. Pictures
for an encoder that is trained are read again for each batch, and those of the built-in corpus drawn again.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.builtin import shapes
from regard.data.captions import CaptionConfig, Captioned, PictureFiles, open_captions, without_punctuation
from regard.data.images import Pixels, as_tensor, read_picture
from regard.data.prepare import PLAIN, Corpus, Encoding, How, Stages, Tally, fingerprint_of, prepared, train_vocabulary
from regard.data.store import Array, Block, Column, ColumnType, find_store, id_type, write_store
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError
from regard.layers.image import image_encoder, load_pretrained
from regard.symbols import END

_BLOCK = 32  # pictures encoded at once
DRAWN = 8192  # pictures kept in memory

ReadPictures = Callable[[Sequence[int]], Tensor]  # numbers of pictures -> pictures [B, 3, H, W] or features [B, S, D]


class Album(NamedTuple):
    """Captions beside their pictures: each caption is one example."""

    source: ReadPictures
    targets: Column  # the ids of each caption, END included
    pictures: Array  # [N] the picture of each caption, as a place in `entries`
    entries: list[Captioned]  # of the whole corpus
    cells: list[tuple[int | None, ...]] | None = None  # of drawn pictures: the cell of each word of the caption


@dataclasses.dataclass(frozen=True)
class CaptionData:
    """What `Captioning` trains on and validates with."""

    vocabulary: Vocabulary
    train: Album
    dev: Album
    cells: int  # S, cells of a picture
    fingerprint: str
    notes: list[str]  # what a person should know about the data

    @property
    def sizes(self) -> dict[str, int]:
        """The settings of a model that its data decides."""
        return {"target_vocabulary": len(self.vocabulary)}


class Pictures(NamedTuple):
    """Pictures in files, or drawn ones, with their captions."""

    entries: list[Captioned]
    files: PictureFiles | None = None
    scenes: Sequence[shapes.Scene] = ()
    content: str = ""  # fingerprint of the files

    def corpus(self) -> Corpus[Captioned]:
        """The captions, one picture after the other."""
        texts = [text for entry in self.entries for text in (entry.image, *entry.captions, "")]
        return Corpus(lambda digests: self.entries, (), [self.content, *texts], "picture")


def find_pictures(config: CaptionConfig, model: Any, tell: Stages) -> list[Pictures]:
    """The pictures to train on, and those for validation where these are not held out by the settings of all tasks."""
    if config.corpus == "shapes":
        if model.encoder != "small":
            raise ConfigError(f"The drawn pictures of shapes need model.encoder='small'; got {model.encoder!r}.")
        tell("drawing", 0, config.size)
        scenes = [shapes.scene(number, config.seed, model.grid) for number in range(config.size)]
        count = config.size - min(config.held_out, max(1, config.size // 10))
        parts = [part for part in (scenes[:count], scenes[count:]) if part]
        return [Pictures([Captioned(1 + k, str(k), [one.caption]) for k, one in enumerate(p)], None, p) for p in parts]
    if not config.images:
        raise ConfigError('There is no corpus: give data.images (and data.captions), or data.corpus="shapes".')

    def clean(text: str) -> str:
        text = text.lower() if config.lowercase else text
        return without_punctuation(text) if config.bare else text

    found = []
    for images, captions in ((config.images, config.captions), (config.dev_images, config.dev_captions)):
        if images:
            files, entries = open_captions(images, captions, config)
            entries = [entry._replace(captions=[clean(text) for text in entry.captions]) for entry in entries]
            found.append(Pictures(entries, files, (), files.fingerprint([entry.image for entry in entries])))
    return found


class CaptionEncoding(Encoding[Captioned]):
    """Captions into ids with END, each beside the number of its picture."""

    noun, names = "captions", ("target",)

    def texts(self, item: Captioned) -> tuple[str, ...]:
        return item.image, " ".join(item.captions)

    def make(self, sample: Sequence[Captioned]) -> None:
        drawn = [" ".join(shapes.vocabulary_words())] if self.config.corpus == "shapes" else []
        lines = drawn or (text for item in sample for text in item.captions)
        self.vocabularies = [train_vocabulary(lines, self.config)]

    def column_types(self) -> dict[str, ColumnType]:
        return {"targets": id_type(len(self.vocabularies[0])), "pictures": ColumnType("int64", ragged=False)}

    def encode(self, items: Sequence[Captioned], tally: Tally) -> Iterator[tuple[Captioned, tuple[Any, ...]]]:
        for item in items:
            for ids in self.vocabularies[0].encode_many(item.captions):
                if not ids or len(ids) > self.config.max_length:
                    tally.drop("too long" if ids else "empty", item.line)
                else:
                    yield item, ([*ids, END], item.line - 1)


def prepare_captions(config: CaptionConfig, model: Any, folder: Path, how: How = PLAIN) -> CaptionData:
    """The pictures that the settings name; `model` are the settings of the captioner, with its encoder and grid."""
    found = find_pictures(config, model, how.progress)
    encoding = CaptionEncoding(config, found[0].corpus(), found[1].corpus() if len(found) > 1 else None)
    made = prepared(encoding, folder, how)
    notes = [*made.notes, f"vocabulary: {len(encoding.vocabularies[0])}"]
    sources = [
        _drawn(one.scenes, model.grid)
        if one.scenes
        else _source(config, model, one, folder / name, notes, how.progress)
        for one, name in zip(found, ("features-train", "features-dev"), strict=False)
    ]
    albums = [
        Album(source, **columns, entries=one.entries, cells=[scene.cells for scene in one.scenes] or None)
        for source, columns, one in ((sources[0], made.train, found[0]), (sources[-1], made.dev, found[-1]))
    ]
    return CaptionData(encoding.vocabularies[0], albums[0], albums[1], model.grid**2, made.fingerprint, notes)


def _drawn(scenes: Sequence[shapes.Scene], grid: int) -> ReadPictures:
    """Drawn pictures; the last ones drawn stay in memory."""
    picture = lru_cache(maxsize=DRAWN)(lambda number: shapes.draw_scene(scenes[number], grid))
    return lambda numbers: as_tensor([picture(int(number)) for number in numbers])


def _source(
    config: CaptionConfig, model: Any, pictures: Pictures, place: Path, notes: list[str], tell: Stages
) -> ReadPictures:
    """How pictures are read: as features kept on disk, or again for each batch where the encoder is trained."""
    files, names = pictures.files, [entry.image for entry in pictures.entries]
    assert files is not None
    encoder = image_encoder(model.encoder, model.features)
    if encoder is None:
        raise ConfigError("Pictures need an encoder; set model.encoder to small, efficientnet-lite0 or timm:NAME.")
    side = model.grid * int(encoder.stride)  # type: ignore[arg-type]

    def picture(number: int) -> Pixels:
        return read_picture(files.read(names[number]), side, names[number])

    if any(weight.requires_grad for weight in encoder.parameters()):
        return lambda numbers: as_tensor([picture(int(number)) for number in numbers])
    parts = [pictures.content, model.encoder, load_pretrained(encoder), str(side)]
    fingerprint = fingerprint_of(parts)
    place = Path(config.cache) / f"features-{fingerprint[:16]}" if config.cache else place
    found, damage = find_store(place, fingerprint)
    notes += damage
    if found is None:
        types = {"cells": ColumnType("float16", ragged=False)}
        found = write_store(place, fingerprint, types, _encode(encoder, picture, len(names), tell), parts=("all",))
    cells = found.parts["all"]["cells"]  # [N, S, D]
    return lambda numbers: torch.from_numpy(cells[np.asarray(numbers, np.int64)].astype(np.float32))


@torch.inference_mode()
def _encode(encoder: nn.Module, picture: Callable[[int], Pixels], count: int, tell: Stages) -> Iterator[Block]:
    """Blocks of features [B, S, D] of all pictures, in order."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder.to(device)
    for first in range(0, count, _BLOCK):
        tell("pictures", first, count)
        block = [picture(number) for number in range(first, min(first + _BLOCK, count))]
        yield "all", {"cells": encoder(as_tensor(block).to(device)).to(torch.float16).cpu().numpy()}
