r"""The one gateway of text: bytes -> strict UTF-8 -> lines split on "\n" and nowhere else.

Line n of a file is line n of the corpus, as `wc -l` counts. A carriage return just before "\n" belongs to the line
ending and goes with it (CRLF files); every other character stays in its line: a lone CR, NUL, U+0085, U+2028 and the
rest at which `str.splitlines` would break. A byte order mark at the start of a file is not text and is removed.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from regard.errors import DataError

Progress = Callable[[int, int | None], None]  # (done, total); total is None where it is not known

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what reading a damaged or packed file raises
BOM = b"\xef\xbb\xbf"
_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], object]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)


def open_bytes(path: str | Path) -> BinaryIO:
    """The bytes of a file, unpacked if it is gzip, bzip2 or xz: its first bytes decide, not its name."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a text file, or a list of files.")
    try:
        raw = open(path, "rb")  # noqa: SIM115 - the caller closes it
    except FileNotFoundError:
        raise DataError(f"There is no file {path}; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"The file {path} cannot be opened: {error}.") from None
    head = raw.peek(6)[:6]
    for magic, opener in _OPENERS:
        if head.startswith(magic):
            return cast(BinaryIO, io.BufferedReader(_Closing(opener(raw), raw), 1 << 16))
    return raw


class _Closing(io.RawIOBase):
    """An unpacking stream that closes the packed file together with itself."""

    def __init__(self, unpacked: object, packed: BinaryIO) -> None:
        self.unpacked = cast(BinaryIO, unpacked)
        self.packed = packed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        block = self.unpacked.read(len(cast(memoryview, buffer)))
        cast(memoryview, buffer)[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self.unpacked.close()
            self.packed.close()
        super().close()


def read_lines(path: str | Path, invalid: str = "refuse") -> Iterator[str]:
    r"""The lines of a file without their "\n", one at a time.

    Bytes that are not UTF-8 are refused with file and line number, or with `invalid="replace"` become U+FFFD.
    """
    with open_bytes(path) as stream:
        lines = iter(stream)
        number = 0
        while True:
            number += 1
            try:
                line = next(lines)
            except StopIteration:
                return
            except UNREADABLE as error:
                raise DataError(f"{path} cannot be read beyond line {number - 1}: {error}.") from None
            if number == 1 and line.startswith(BOM):
                line = line[len(BOM) :]
                if not line:
                    return  # the file holds the mark and no line
            yield decode_line(line, path, number, invalid)


def decode_line(line: bytes, path: str | Path, number: int, invalid: str) -> str:
    r"""One raw line as text, without its ending; `path` and `number` are for the error sentence."""
    if line.endswith(b"\n"):
        line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
    try:
        return line.decode("utf-8", errors="strict" if invalid == "refuse" else "replace")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {error.start + 1} (0x{line[error.start]:02X}) is not UTF-8; "
            "convert the file (training can also take it as it is, with data.invalid=replace)."
        ) from None


def is_blank(text: str) -> bool:
    """True for a line without anything to translate: empty, or white space alone."""
    return not text or text.isspace()


def digest(path: str | Path) -> str:
    """SHA-256 of a file as it lies on the disk, in hexadecimal."""
    if Path(path).is_dir():
        raise DataError(f"{path} is a folder; give a text file, or a list of files.")
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"There is no file {path}; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"The file {path} cannot be read: {error}.") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, sync it, and rename it: whenever the power fails, it is old or new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise DataError(f"{path} could not be written: {error.strerror or error}; nothing was lost.") from error


@contextmanager
def fill_folder(folder: Path) -> Iterator[Path]:
    """A folder under a temporary name, which the caller fills with synced files; then it becomes `folder` at once."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        sync_folder(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make the renames in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
