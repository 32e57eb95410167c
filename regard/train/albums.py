"""Captioned pictures made ready for training: read or drawn, their captions tokenised, their features computed once.

A frozen encoder's features are kept memory-mapped under a fingerprint of the pictures and of its weights; pictures for
an encoder that is trained along are read each time anew, and those of the built-in corpus stay drawn in memory.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.data.builtin import shapes
from regard.data.captions import CaptionConfig, Captioned, PictureFiles, open_captions, without_punctuation
from regard.data.corpus import Report, choose_held_out, sentence_key
from regard.data.features import open_features, write_features
from regard.data.images import Pixels, as_tensor, read_picture
from regard.data.prepare import Stages
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError
from regard.layers.image import image_encoder, load_pretrained
from regard.symbols import END

_BLOCK = 32  # pictures encoded at once

Source = Callable[[Sequence[int]], Tensor]  # numbers of pictures -> pictures [B, 3, H, W] or features [B, S, D]


class Album(NamedTuple):
    """Pictures with their captions: each caption is one example. `cells` are known for drawn pictures only."""

    source: Source
    names: list[str]
    texts: list[list[str]]  # captions of each picture
    owners: list[int]  # the picture of each example
    rows: list[list[int]]  # the ids of each example, END included
    cells: list[tuple[int | None, ...]] | None = None  # for each picture the cell of each word of its caption


@dataclasses.dataclass(frozen=True)
class CaptionData:
    """What `Captioning` trains on and validates with."""

    vocabulary: Vocabulary
    train: Album
    dev: Album
    cells: int  # S, cells of a picture
    report: Report


def prepare_captions(config: CaptionConfig, model: Any, run: Path, stages: Stages | None = None) -> CaptionData:
    """Read or draw the pictures, make or load the vocabulary, compute or open the features; `run` is the run folder.

    `model` are the settings of the captioner: they name the encoder and the grid.
    """
    tell = stages or (lambda stage, done, total: None)
    if config.corpus == "shapes":
        return _draw_shapes(config, model, run, tell)
    if not config.images:
        raise ConfigError('There is no corpus: give data.images (and data.captions), or data.corpus="shapes".')
    files, entries = open_captions(config.images, config.captions, config.invalid)
    if config.dev_images:
        dev_files, dev_entries = open_captions(config.dev_images, config.dev_captions, config.invalid)
    else:
        dev_files = files
        entries, dev_entries = _hold_out(entries, config)
    report = Report()
    texts = [_texts(entry, config) for entry in entries]
    vocabulary = _vocabulary(config, run, [text for some in texts for text in some])
    train = _album(
        entries, texts, vocabulary, config, report, _source(config, model, files, entries, run, "train", tell)
    )
    dev_texts = [_texts(entry, config) for entry in dev_entries]
    dev_source = _source(config, model, dev_files, dev_entries, run, "dev", tell)
    dev = _album(dev_entries, dev_texts, vocabulary, config, Report(), dev_source)
    if not train.rows:
        raise DataError(f"No caption is left to train on: {report}.")
    report.held_out = 0 if config.dev_images else len(dev.rows)
    return CaptionData(vocabulary, train, dev, model.grid**2, report)


def _draw_shapes(config: CaptionConfig, model: Any, run: Path, tell: Stages) -> CaptionData:
    """`size` drawn pictures, the last of them held out; once drawn they stay in memory."""
    if model.encoder != "small":
        raise ConfigError(f"The drawn pictures of shapes need model.encoder='small'; got {model.encoder!r}.")
    tell("drawing", 0, config.size)
    scenes = [shapes.scene(number, config.seed, model.grid) for number in range(config.size)]
    drawn = lru_cache(maxsize=None)(lambda number: shapes.draw_scene(scenes[number], model.grid))
    vocabulary = _vocabulary(config, run, [" ".join(shapes.vocabulary_words())])
    count = min(config.held_out, max(1, config.size // 10))
    report = Report(held_out=count)

    def album(first: int, last: int, report: Report) -> Album:
        entries = [Captioned(str(number), [scenes[number].caption]) for number in range(first, last)]
        texts = [entry.captions for entry in entries]
        made = _album(
            entries, texts, vocabulary, config, report, lambda rows: as_tensor([drawn(first + row) for row in rows])
        )
        return made._replace(cells=[scenes[number].cells for number in range(first, last)])

    train = album(0, config.size - count, report)
    return CaptionData(vocabulary, train, album(config.size - count, config.size, Report()), model.grid**2, report)


def _hold_out(entries: list[Captioned], config: CaptionConfig) -> tuple[list[Captioned], list[Captioned]]:
    keys = [sentence_key(entry.image, config.seed) for entry in entries]
    chosen = choose_held_out(keys, config.held_out)
    kept = [entry for entry, key in zip(entries, keys, strict=True) if key not in chosen]
    return kept, [entry for entry, key in zip(entries, keys, strict=True) if key in chosen]


def _texts(entry: Captioned, config: CaptionConfig) -> list[str]:
    texts = [caption.lower() if config.lowercase else caption for caption in entry.captions]
    return [without_punctuation(text) for text in texts] if config.bare else texts


def _vocabulary(config: CaptionConfig, run: Path, lines: list[str]) -> Vocabulary:
    """The vocabulary in the run folder, made at the first call."""
    if (run / "target.json").exists():
        return Vocabulary.load(run, "target")
    made = Vocabulary.train(lines, config.subwords, config.vocabulary, lowercase=config.lowercase)
    run.mkdir(parents=True, exist_ok=True)
    made.save(run, "target")
    return made


def _album(
    entries: list[Captioned],
    texts: list[list[str]],
    vocabulary: Vocabulary,
    config: CaptionConfig,
    report: Report,
    source: Source,
) -> Album:
    """One example for every caption fit for use; the others are counted in `report`."""
    owners, rows = [], []
    line = 0
    for picture, some in enumerate(texts):
        for ids in vocabulary.encode_many(some):
            line += 1
            if not ids or len(ids) > config.max_length:
                report.drop("too long" if ids else "empty", line)
                continue
            report.kept += 1
            owners.append(picture)
            rows.append([*ids, END])
    return Album(source, [entry.image for entry in entries], texts, owners, rows)


def _source(
    config: CaptionConfig, model: Any, files: PictureFiles, entries: list[Captioned], run: Path, part: str, tell: Stages
) -> Source:
    """How the pictures of `entries` are read: as features kept on the disk, or each time anew for a trained encoder."""
    names = [entry.image for entry in entries]
    encoder = image_encoder(model.encoder, model.features)
    if encoder is None:
        raise ConfigError("Pictures need an encoder; set model.encoder to small, efficientnet-lite0 or timm:NAME.")
    side = model.grid * int(encoder.stride)  # type: ignore[arg-type]

    def picture(number: int) -> Pixels:
        return read_picture(files.read(names[number]), side, names[number])

    if any(weight.requires_grad for weight in encoder.parameters()):
        return lambda numbers: as_tensor([picture(number) for number in numbers])
    weights = load_pretrained(encoder)
    parts = [files.fingerprint(names), model.encoder, weights, str(side)]
    fingerprint = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    place = Path(config.cache) / f"features-{fingerprint[:16]}" if config.cache else run / f"features-{part}"
    found = open_features(place, fingerprint)
    if found is None:
        found = write_features(place, fingerprint, _encode(encoder, picture, len(names), part, tell))
    return lambda numbers: found.rows(list(numbers))


@torch.inference_mode()
def _encode(
    encoder: nn.Module, picture: Callable[[int], Pixels], count: int, part: str, tell: Stages
) -> Iterator[Tensor]:
    """Blocks of features [B, S, D] of all pictures, in order."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder.to(device)
    for first in range(0, count, _BLOCK):
        tell(f"pictures ({part})", first, count)
        block = [picture(number) for number in range(first, min(first + _BLOCK, count))]
        yield encoder(as_tensor(block).to(device)).cpu()
