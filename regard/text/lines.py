r"""All text is read here: bytes -> strict UTF-8 -> lines, split on "\n" only.

Line n of a file is line n of the corpus, as `wc -l` counts. A carriage return directly before "\n" is part of the line
ending (CRLF files). Every other character stays in its line, including a lone CR, NUL, U+0085, U+2028 and others at
which `str.splitlines` breaks. A byte order mark at the start of a file is removed. A line longer than
`Reading.max_line`, or a compressed file that expands too far, is refused before it fills the memory.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from regard.config import Settings, setting
from regard.errors import DataError, check_file, counted
from regard.work import prefetch

Digests = dict[str, str]  # path -> SHA-256 in hexadecimal, from the last complete read of the file

try:
    from compression import zstd  # type: ignore[import-not-found]
except ImportError:  # before Python 3.14
    try:
        from backports import zstd
    except ImportError:
        zstd = None

# The errors of reading a damaged or compressed file.
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, *([zstd.ZstdError] if zstd else []))
BOM = b"\xef\xbb\xbf"
REPLACED = "\ufffd"  # replaces bytes that are not UTF-8
_BLOCK = 1 << 16  # bytes read at once
_TOGETHER, _AHEAD = 4, 512  # files that are decompressed at the same time, and how many blocks ahead
_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", lambda raw: open_zst(raw)),
)
_LANGUAGE = re.compile(r"\.(?!txt|tsv|csv|tok|bpe|src|tgt|raw|tmx)([a-z]{2,3})$")
_PACKED = re.compile(r"\.(gz|bz2|xz|zst)$", re.IGNORECASE)


@dataclass(frozen=True)
class Reading(Settings):
    """How text files are read, in every task. The two limits bound the memory and time for a file."""

    table = "data"

    invalid: str = setting("refuse", "how to handle bytes that are not UTF-8", ("refuse", "replace"))
    max_line: int = setting(
        1 << 22, "maximum size of a line in bytes, and of a unit of a TMX file in characters", "[1, inf)"
    )
    max_unpacked: int = setting(
        1 << 36, "maximum size in bytes of a decompressed file (gz, bz2, xz or zst)", "[1, inf)"
    )


READING = Reading()


def open_zst(file: Any, mode: str = "rb") -> Any:
    """Open a zst file; built into Python since 3.14."""
    if zstd is None:
        raise DataError("Reading zst files needs a library: pip install 'regard[zst]', or compress them as gz.")
    return zstd.ZstdFile(file, mode)


def bare_name(name: str) -> str:
    """A file name without the extension of its compression: "memory.tmx" for "memory.tmx.gz"."""
    return _PACKED.sub("", name)


def language_of(name: str) -> str:
    """The language code at the end of a file name, compressed or not: fr for "train.fr.gz"; empty if there is none."""
    found = _LANGUAGE.search(bare_name(name))
    return found[1] if found else ""


def check_not_input(out: str | Path, *inputs: str | Path | None) -> None:
    """Refuse to overwrite an input file."""
    for path in inputs:
        if path is not None and os.path.exists(path) and os.path.exists(out) and os.path.samefile(path, out):
            raise DataError(f"{out} is also an input and would be overwritten; write to another file.")


def read_blocks(path: str | Path, reading: Reading, digests: Digests | None) -> Iterator[bytes]:
    """The bytes of a file in blocks, decompressed if its first bytes are those of gzip, bzip2, xz or zst.

    A file with a compressed file's name is decompressed in a thread, a few blocks ahead. After a complete read,
    `digests` holds the SHA-256 of the file on disk.
    """
    blocks = _unpack(path, reading, digests)
    if not _is_packed(path):
        yield from blocks
        return
    with prefetch(blocks) as ahead:
        yield from ahead


def _is_packed(path: str | Path) -> bool:
    """Whether this is a regular file with a compressed file's name. A pipe is not read ahead: it may block forever."""
    return bool(_PACKED.search(str(path))) and os.path.isfile(path)


def _unpack(path: str | Path, reading: Reading, digests: Digests | None) -> Iterator[bytes]:
    check_file(path)
    try:
        watched = _Watched(str(path), {} if digests is None else digests)
    except (OSError, ValueError) as error:
        raise DataError(f"The file {path} cannot be opened: {error}.") from None
    with io.BufferedReader(watched, _BLOCK) as raw:
        head = raw.peek(6)[:6]
        opener = next((opener for magic, opener in _OPENERS if head.startswith(magic)), None)
        if opener is None:
            yield from iter(raw.read1, b"")
            return
        size = 0
        with opener(raw) as unpacked:
            for block in iter(partial(unpacked.read, _BLOCK), b""):
                size += len(block)
                if size > reading.max_unpacked:
                    most = f"{reading.max_unpacked} bytes (data.max_unpacked)"
                    raise DataError(f"{path} expands to more than {most}; decompress it first.")
                yield block


class _Watched(io.FileIO):
    """A file that computes its SHA-256 while it is read."""

    def __init__(self, path: str, digests: Digests) -> None:
        super().__init__(path, "rb")
        self.key, self.digests, self.sha256 = path, digests, hashlib.sha256()

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        if not count:
            self.digests[self.key] = self.sha256.hexdigest()
        return count


def read_whole(path: str | Path, most: int, reading: Reading = READING, digests: Digests | None = None) -> bytes:
    """All bytes of a plain or compressed file, at most `most`; `digests` as in `read_blocks`."""
    content = bytearray()
    try:
        for block in read_blocks(path, reading, digests):
            content += block
            if len(content) > most:
                raise DataError(f"{path} has more than {most >> 20} MiB, which is too large; use a smaller one.")
    except UNREADABLE as error:
        raise DataError(damaged(path, error)) from None
    return bytes(content)


def damaged(name: str | Path, error: BaseException, read: str = "") -> str:
    """The error message for an incomplete file; `read` is how much could be read."""
    reason = f"only {read} could be read: {error}" if read else str(error)
    return f"{name} is incomplete or damaged ({reason}); copy or download it again."


def read_lines(path: str | Path, reading: Reading = READING, digests: Digests | None = None) -> Iterator[str]:
    r"""The lines of a file without their "\n", one at a time; `digests` as in `read_blocks`.

    Bytes that are not UTF-8 are refused with file and line number, or with `invalid="replace"` become U+FFFD.
    """
    return _lines(path, read_blocks(path, reading, digests), reading)


def read_files(
    paths: Sequence[str], reading: Reading = READING, digests: Digests | None = None
) -> Iterator[Iterator[str]]:
    """The lines of each file in turn; read each one completely before the next.

    The next compressed files are decompressed in threads meanwhile, up to 32 MiB of each.
    """
    rest = iter(paths)
    while some := list(islice(rest, _TOGETHER)):
        with ExitStack() as stack:
            blocks = [
                stack.enter_context(prefetch(_unpack(path, reading, digests), _AHEAD))
                if paths[1:] and _is_packed(path)
                else read_blocks(path, reading, digests)
                for path in some
            ]
            yield from (_lines(path, each, reading) for path, each in zip(some, blocks, strict=True))


def _lines(path: str | Path, blocks: Iterator[bytes], reading: Reading) -> Iterator[str]:
    number = 0
    for lines in split_lines(lambda: next(blocks, b""), path, reading):
        try:
            texts = b"\n".join(lines).decode().split("\n") if lines else []  # at once: quicker than line by line
        except UnicodeDecodeError:
            texts = [decode_line(line, path, place, reading) for place, line in enumerate(lines, number + 1)]
        number += len(lines)
        yield from texts


def split_lines(read: Callable[[], bytes], name: str | Path, reading: Reading) -> Iterator[list[bytes]]:
    r"""Lines without their ending, as many as each `read` completes; a line may have at most `reading.max_line` bytes.

    `read` returns b"" at the end; `name` is for the error message.
    """
    most = reading.max_line
    number = size = 0  # complete lines so far, and bytes of the current line
    parts: list[bytes] = []  # joined once, when the line ends: a long line costs linear time
    while True:
        try:
            block = read()
        except UNREADABLE as error:
            raise DataError(damaged(name, error, counted(number, "line") if number else "")) from None
        parts.append(block)
        size += len(block)
        if block and b"\n" not in block and size <= most:
            continue
        content = b"".join(parts)
        *lines, rest = (content if number else content.removeprefix(BOM)).split(b"\n")
        long = [place for place, line in enumerate((*lines, rest), number + 1) if len(line) > most]
        if long:
            raise DataError(
                f"{name}, line {long[0]} has more than {most} bytes (data.max_line); break it into shorter lines."
            )
        yield [line.removesuffix(b"\r") for line in lines] + ([rest] if rest and not block else [])
        if not block:
            return
        number += len(lines)
        parts, size = [rest], len(rest)


def decode_line(line: bytes, name: str | Path, number: int, reading: Reading) -> str:
    """One line as text; `name` and `number` are for the error message."""
    try:
        return line.decode("utf-8", errors="strict" if reading.invalid == "refuse" else "replace")
    except UnicodeDecodeError as error:
        if number == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise DataError(f"{name} looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8 IN > OUT.") from None
        raise DataError(
            f"{name}, line {number}: byte {error.start + 1} (0x{line[error.start]:02X}) is not UTF-8; "
            "convert it, as in iconv -f LATIN1 -t UTF-8 IN > OUT, or let `regard train` or `regard translate` replace "
            "such bytes: add data.invalid=replace."
        ) from None


def is_blank(text: str) -> bool:
    """Whether a line is empty or only white space."""
    return not text or text.isspace()
