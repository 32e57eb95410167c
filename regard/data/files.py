r"""The one gateway of text: bytes -> strict UTF-8 -> lines split on "\n" and nowhere else.

Line n of a file is line n of the corpus, as `wc -l` counts. A carriage return just before "\n" belongs to the line
ending and goes with it (CRLF files); every other character stays in its line: a lone CR, NUL, U+0085, U+2028 and the
rest at which `str.splitlines` would break. A byte order mark at the start of a file is not text and is removed. A line
longer than `Reading.max_line` is refused before it fills the memory, and so is a packed file that unpacks to too much.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice, repeat, takewhile
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, BinaryIO, TypeVar

from regard.data.settings import READING, Reading
from regard.errors import DataError, counted, little_memory, near_file

T = TypeVar("T")
Progress = Callable[[int, int | None], None]  # (done, total); total is None where it is not known
Digests = dict[str, str]  # path -> SHA-256 of a file, in hexadecimal, as it was when it was last read to its end

try:
    from compression import zstd  # type: ignore[import-not-found]
except ImportError:  # before Python 3.14
    try:
        from backports import zstd
    except ImportError:
        zstd = None

# What reading a damaged or packed file raises.
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, *([zstd.ZstdError] if zstd else []))
BOM = b"\xef\xbb\xbf"
REPLACED = "\ufffd"  # what bytes that are not UTF-8 become
SMALL = 256 << 20  # bytes of the largest file that is read as a whole
_BLOCK = 1 << 16  # bytes read at once
_TOGETHER, _AHEAD = 4, 512  # of several files: how many are unpacked at the same time, and how many blocks ahead
_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", lambda raw: open_zst(raw)),
)
_LANGUAGE = re.compile(r"\.(?!txt|tsv|csv|tok|bpe|src|tgt|raw|tmx)([a-z]{2,3})$")
_PACKED = re.compile(r"\.(gz|bz2|xz|zst)$", re.IGNORECASE)


def reporting(
    parts: Iterable[T], progress: Progress | None, total: int | None, size: Callable[[T], int] = lambda part: 1
) -> Iterator[T]:
    """The parts of some work, one by one; when one is done, `progress` gets the sizes of all so far, and `total`."""
    done = 0
    for part in parts:
        yield part
        done += size(part)
        if progress:
            progress(done, total)


def open_zst(file: Any, mode: str = "rb") -> Any:
    """A zst file; Python has them from 3.14 on."""
    if zstd is None:
        raise DataError("Files packed as zst need a library: pip install 'regard[zst]', or pack them as gz.")
    return zstd.ZstdFile(file, mode)


def bare_name(name: str) -> str:
    """The name of a packed file without its last ending: "memory.tmx" of "memory.tmx.gz"."""
    return _PACKED.sub("", name)


def language_of(name: str) -> str:
    """The code of a language that the name of a file ends with, packed or not: fr of "train.fr.gz"; empty if none."""
    found = _LANGUAGE.search(bare_name(name))
    return found[1] if found else ""


def check_file(path: str | Path) -> None:
    """Refuse a folder, and a file that is not there."""
    if os.path.isdir(path):  # unlike Path.is_dir and Path.exists, these never raise
        raise DataError(f"{path} is a folder; give a text file, or a list of files.")
    if not os.path.exists(path):
        raise DataError(f"There is no file {path}; check the path.{near_file(path)}")


def check_not_input(out: str | Path, *inputs: str | Path | None) -> None:
    """Refuse to write over a file that is read."""
    for path in inputs:
        if path is not None and os.path.exists(path) and os.path.exists(out) and os.path.samefile(path, out):
            raise DataError(f"{out} is also an input, which would be lost; write to another file.")


def read_blocks(path: str | Path, reading: Reading, digests: Digests | None) -> Iterator[bytes]:
    """The bytes of a file in blocks, unpacked if it is gzip, bzip2, xz or zst: its first bytes decide, not its name.

    A file with the name of a packed one is unpacked in a thread, a few blocks ahead. Once all of a file has been read,
    `digests` holds the SHA-256 of the file as it is on the disk.
    """
    blocks = _unpack(path, reading, digests)
    if not _is_packed(path):
        yield from blocks
        return
    with prefetch(blocks) as ahead:
        yield from ahead


def _is_packed(path: str | Path) -> bool:
    """Whether a regular file has the name of a packed one. A pipe, which may never be written, is not read ahead."""
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
                    raise DataError(f"{path} unpacks to more than {most}; unpack it first.")
                yield block


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


def read_whole(path: str | Path, most: int, reading: Reading = READING, digests: Digests | None = None) -> bytes:
    """All bytes of a plain or packed file, which may be at most `most`; `digests` as in `read_blocks`."""
    content = bytearray()
    try:
        for block in read_blocks(path, reading, digests):
            content += block
            if len(content) > most:
                raise DataError(f"{path} holds more than {most >> 20} MiB; a file of its kind may not be larger.")
    except UNREADABLE as error:
        raise DataError(damaged(path, error)) from None
    return bytes(content)


def damaged(name: str | Path, error: BaseException, read: str = "") -> str:
    """The sentence for a file that could not be read to its end; `read` is what there was of it."""
    said = f"only {read} could be read: {error}" if read else str(error)
    return f"{name} is incomplete or damaged ({said}); copy or download it again."


def read_lines(path: str | Path, reading: Reading = READING, digests: Digests | None = None) -> Iterator[str]:
    r"""The lines of a file without their "\n", one at a time; `digests` as in `read_blocks`.

    Bytes that are not UTF-8 are refused with file and line number, or with `invalid="replace"` become U+FFFD.
    """
    return _lines(path, read_blocks(path, reading, digests), reading)


def read_files(
    paths: Sequence[str], reading: Reading = READING, digests: Digests | None = None
) -> Iterator[Iterator[str]]:
    """The lines of each file in turn; read each to its end before the next.

    Of several packed files the next ones are unpacked meanwhile, each in a thread and up to 32 MiB of it.
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

    `read` returns no bytes at the end; `name` is for the error sentence.
    """
    most = reading.max_line
    number = size = 0  # whole lines so far, and bytes of the line that has not ended
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
    """One line as text; `name` and `number` are for the error sentence."""
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
    """True for a line without anything to translate: empty, or white space alone."""
    return not text or text.isspace()


def digest(path: str | Path) -> str:
    """SHA-256 of a file as it lies on the disk, in hexadecimal."""
    check_file(path)
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise DataError(f"The file {path} cannot be read: {error}.") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name for a file that the block writes; it is then synced and renamed to `path`.

    Whenever the power fails, `path` is old or new.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise DataError(f"{path} could not be written: {error.strerror or error}.") from error
        raise


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a whole file, or leave it as it was."""
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(content)
    return path


def make_folder(folder: Path) -> None:
    """Create a folder and those that it is in, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be created: {error.strerror or error}; choose another.") from None


@contextmanager
def prefetch(items: Iterator[T], depth: int = 4) -> Iterator[Iterator[T]]:
    """Run an iterator in a background thread, at most `depth` items ahead; leaving the block ends the thread.

    An error in the iterator is raised where its item would have come.
    """
    end: Any = object()
    with in_threads(repeat(partial(next, items, end)), depth) as ahead:
        yield takewhile(lambda item: item is not end, ahead)


@contextmanager
def in_threads(calls: Iterable[Callable[[], T]], depth: int, threads: int = 1) -> Iterator[Iterator[T]]:
    """The results of calls, in their order; threads make them, at most `depth` calls ahead, until the block is left.

    An error in a call is raised where its result would have come.
    """
    begun, rest = list[Thread](), iter(calls)
    if little_memory():
        raise MemoryError  # Python would wait without end for a thread that has no memory to begin with
    with ThreadPoolExecutor(threads, "regard-prefetch", lambda: begun.append(current_thread())) as pool:
        ahead = deque[Future[T]]()

        def result(future: Future[T]) -> T:
            while True:
                try:
                    return future.result(timeout=1)
                except TimeoutError:
                    if future.done():
                        return future.result()  # it came in this moment, or the call raised the error
                    if any(not thread.is_alive() for thread in begun):
                        raise MemoryError("The thread that reads ahead has died.") from None

        def taken() -> Iterator[T]:
            while ahead:
                item = result(ahead.popleft())
                ahead.extend(pool.submit(call) for call in islice(rest, 1))
                yield item

        try:
            ahead.extend(pool.submit(call) for call in islice(rest, depth))
            yield taken()
        finally:
            pool.shutdown(cancel_futures=True)


def usable_cores() -> int:
    """The cores that this process may use: fewer than the machine has under a scheduler or taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def read_small(path: Path) -> bytes:
    """All bytes of a file of at most `SMALL`; OSError for one that is larger, and for a pipe or a device, which may
    never end. The files of a run that someone else made are read with it."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is not a regular file")
    with open(path, "rb") as stream:
        content = stream.read(min(SMALL, os.fstat(stream.fileno()).st_size) + 1)  # no room for `SMALL` is taken
    if len(content) > SMALL:
        raise OSError(f"{path.name} has more than {SMALL >> 20} MiB")
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
