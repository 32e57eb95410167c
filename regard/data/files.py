r"""The one gateway of text: bytes -> strict UTF-8 -> lines split on "\n" and nowhere else.

Line n of a file is line n of the corpus, as `wc -l` counts. A carriage return just before "\n" belongs to the line
ending and goes with it (CRLF files); every other character stays in its line: a lone CR, NUL, U+0085, U+2028 and the
rest at which `str.splitlines` would break. A byte order mark at the start of a file is not text and is removed.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.errors import DataError

Progress = Callable[[int, int | None], None]  # (done, total); total is None where it is not known
Digests = dict[str, str]  # path -> SHA-256 of a file, in hexadecimal, as it was when it was last read to its end

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what reading a damaged or packed file raises
BOM = b"\xef\xbb\xbf"
_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], object]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)


def open_bytes(path: str | Path, digests: Digests | None = None) -> BinaryIO:
    """The bytes of a file, unpacked if it is gzip, bzip2 or xz: its first bytes decide, not its name.

    Once all of it has been read, `digests` holds the SHA-256 of the file as it is on the disk.
    """
    if Path(path).is_dir():
        raise DataError(f"{path} is a folder; give a text file, or a list of files.")
    try:
        raw = io.BufferedReader(_Watched(str(path), {} if digests is None else digests))  # the caller closes it
    except FileNotFoundError:
        raise DataError(f"There is no file {path}; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"The file {path} cannot be opened: {error}.") from None
    head = raw.peek(6)[:6]
    for magic, opener in _OPENERS:
        if head.startswith(magic):
            return cast(BinaryIO, io.BufferedReader(_Closing(opener(raw), raw), 1 << 16))
    return raw


class _Watched(io.FileIO):
    """A file that computes its own SHA-256 while it is read from beginning to end."""

    def __init__(self, path: str, digests: Digests) -> None:
        super().__init__(path, "rb")
        self.key, self.digests, self.sha256 = path, digests, hashlib.sha256()

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        if not count:
            self.digests[self.key] = self.sha256.hexdigest()
        return count


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


def read_lines(path: str | Path, invalid: str = "refuse", digests: Digests | None = None) -> Iterator[str]:
    r"""The lines of a file without their "\n", one at a time; `digests` as in `open_bytes`.

    Bytes that are not UTF-8 are refused with file and line number, or with `invalid="replace"` become U+FFFD.
    """
    with open_bytes(path, digests) as stream:
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
    """A folder under a temporary name, which the caller fills with synced files; it then replaces `folder`.

    A folder that is replaced is moved aside before it is deleted: a process that has mapped its files keeps them.
    """
    temporary, old = (folder.with_name(f".{folder.name}{kind}.{os.getpid()}.tmp") for kind in ("", ".old"))
    for left in (temporary, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        sync_folder(temporary)
        if folder.exists():
            os.rename(folder, old)
        os.rename(temporary, folder)
        sync_folder(folder.parent)
    finally:
        for left in (temporary, old):
            shutil.rmtree(left, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make the renames in a folder survive a power loss. Windows cannot open a folder, and needs no sync of one."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_small(path: Path, most: int = 256 << 20) -> bytes:
    """All bytes of a file of at most `most`; OSError for one that is larger, and for a pipe or a device, which may
    never end. The files of a run that someone else made are read with it."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is not a regular file")
    with open(path, "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path.name} has more than {most >> 20} MiB")
    return content


def seal(body: dict[str, Any]) -> bytes:
    """`body` as JSON that holds its own SHA-256, so that any changed byte is noticed."""
    own = hashlib.sha256(json.dumps(body, indent=1).encode()).hexdigest()
    return json.dumps({**body, "seal": own}, indent=1).encode()


def unseal(content: bytes) -> dict[str, Any]:
    """What `seal` was given; ValueError where a byte has changed."""
    try:
        body = {name: value for name, value in json.loads(content).items() if name != "seal"}
    except (AttributeError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({type(error).__name__})") from None
    if content != seal(body):
        raise ValueError("it is not what was written")
    return body
