"""Captioned pictures: a tar file or folder of pictures, and JSON lines, or a text file beside each picture.

    {"image": "dog.jpg", "captions": ["a dog runs", "a brown dog on grass"]}        one object a line
    dog.jpg + dog.txt                                                               one caption a line

Nothing is extracted to disk: a tar file is read in place, and only its regular files.
"""

import hashlib
import json
import tarfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from regard.data.encoding import Corpus
from regard.data.images import file_bytes
from regard.errors import DataError, check_file, near_file
from regard.sealed import digest
from regard.text.lines import READING, Digests, Reading, is_blank, read_lines

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")


class Captioned(NamedTuple):
    """The name of a picture, and its captions."""

    line: int  # its number in the corpus, from 1
    image: str
    captions: list[str]


class PictureFiles:
    """Pictures by name, in a tar file or a folder; `read` gives the bytes of one."""

    def __init__(self, place: str | Path) -> None:
        self.place = Path(place)
        if self.place.is_dir():
            self._members: dict[str, tuple[int, int]] | None = None
            found = (path for path in self.place.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
            self.names = sorted(path.relative_to(self.place).as_posix() for path in found)
        elif self.place.exists():
            self._members = _tar_members(self.place)
            self.names = list(self._members)
        else:
            raise DataError(f"There is no file or folder {place}; check the path.{near_file(place)}")

    def read(self, name: str) -> bytes:
        """The bytes of a picture; a path outside the folder is refused like a missing one."""
        if self._members is not None:
            if name not in self._members:
                raise DataError(f"{self.place} holds no picture {name!r}.")
            start, size = self._members[name]
            with open(self.place, "rb") as stream:
                stream.seek(start)
                return stream.read(size)
        path = self.place / name
        if not path.is_file() or not path.resolve().is_relative_to(self.place.resolve()):
            raise DataError(f"{self.place} holds no picture {name!r}.")
        return file_bytes(path)

    def fingerprint(self) -> str:
        """SHA-256 of the tar file, or of all pictures of a folder and the text files next to them."""
        if self._members is not None:
            return digest(self.place)
        whole = hashlib.sha256()
        for name in self.names:
            text = (self.place / name).with_suffix(".txt")
            caption = text.read_bytes() if text.is_file() else b""
            for part in (name.encode("utf-8", "surrogatepass"), self.read(name), caption):
                whole.update(hashlib.sha256(part).digest())
        return whole.hexdigest()


def _tar_members(path: Path) -> dict[str, tuple[int, int]]:
    """Name -> (offset, size) of every regular file in an uncompressed tar file."""
    found: dict[str, tuple[int, int]] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if not member.isreg() or not member.name.lower().endswith(ENDINGS):
                    continue
                if member.name in found:
                    raise DataError(f"{path} holds {member.name!r} twice; every picture needs a unique name.")
                found[member.name] = (member.offset_data, member.size)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(
            f"{path} is not an uncompressed tar file, or is damaged: {error}. Decompress .tar.gz to .tar first."
        ) from None
    return found


def read_captions(path: str, reading: Reading = READING, digests: Digests | None = None) -> Iterator[Captioned]:
    """The lines of a JSON lines file, each {"image": name, "captions": [text, ...]}."""
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path, reading, digests), start=1):
        if is_blank(line):
            continue
        try:
            entry = json.loads(line)
            image, captions = entry["image"], entry["captions"]
            if not isinstance(image, str) or not isinstance(captions, list):
                raise TypeError("image must be text and captions a list")
            if not all(isinstance(caption, str) for caption in captions):
                raise TypeError("captions must be text")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(
                f'{path}, line {number}: expected {{"image": "name.jpg", "captions": ["..."]}}; {reason}.'
            ) from None
        if image in seen:
            raise DataError(
                f"{path}, line {number}: the picture {image!r} occurs twice; put all its captions into one line."
            )
        seen.add(image)
        yield Captioned(len(seen), image, captions)


def beside(pictures: PictureFiles, reading: Reading = READING) -> Iterator[Captioned]:
    """The captions in NAME.txt next to each picture of a folder; pictures without such a file are skipped."""
    texts = ((name, (pictures.place / name).with_suffix(".txt")) for name in pictures.names)
    found = ((name, path) for name, path in texts if path.is_file())
    for number, (name, path) in enumerate(found, start=1):
        yield Captioned(number, name, [line for line in read_lines(path, reading) if not is_blank(line)])


def open_captions(images: str, captions: str, reading: Reading = READING) -> tuple[PictureFiles, Corpus[Captioned]]:
    """Pictures and their captions; a caption without a picture is refused, a picture without a caption is skipped."""
    pictures = PictureFiles(images)
    if captions:
        check_file(captions)
    elif not pictures.place.is_dir():
        raise DataError(f"The tar file {images} needs captions: set data.captions to a JSON lines file.")

    def read(digests: Digests) -> Iterator[Captioned]:
        known, line = set(pictures.names), 0
        for entry in read_captions(captions, reading, digests) if captions else beside(pictures, reading):
            if entry.image not in known:
                raise DataError(f"{captions} names the picture {entry.image!r}, which is not in {images}.")
            if not all(map(is_blank, entry.captions)):
                line += 1
                yield entry._replace(line=line)
        if not line:
            raise DataError(
                f"{images} holds no picture with a caption; captions are JSON lines, or NAME.txt next to NAME.jpg."
            )

    return pictures, Corpus(read, (captions,) if captions else (), (), "picture")


def without_punctuation(text: str) -> str:
    """A caption without punctuation, its words joined by single spaces."""
    kept = "".join(character for character in text if unicodedata.category(character)[0] != "P")
    return " ".join(kept.split())
