"""Tokenise in other processes, for large corpora.

SentencePiece releases the GIL, but converting texts to bytes and ids to lists holds it, so that most threads would wait
on many cores. These processes do not import torch and start in a fraction of a second.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, cast

import numpy as np

from regard.data.store import Array, Column
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError

Tokenise = Callable[[int, Sequence[str]], Column]  # (number of the vocabulary, texts) -> ids with END
Process = subprocess.Popen[bytes]
_MAIN = "import sys; sys.path[:] = sys.argv[3:]; from regard.data.tokenisers import serve; serve(*sys.argv[1:3])"
_NUMBER = np.dtype(np.int64)
_REPLY = b"regard tokenised\n"  # the line before a reply


def tokenise_here(vocabularies: Sequence[Vocabulary]) -> Tokenise:
    """Tokenise in this process."""
    return lambda which, texts: Column.of(vocabularies[which].encode_many(texts, end=True))


@contextmanager
def tokenisers(folder: Path, names: Sequence[str]) -> Iterator[Tokenise]:
    """Tokenise in processes that load the vocabularies `names` of a run folder: one for each calling thread.

    They end when the block is left or this process dies.
    """
    idle = SimpleQueue[Process]()
    with ExitStack() as stack:

        def tokenise(which: int, texts: Sequence[str]) -> Column:
            try:
                process = idle.get_nowait()
            except Empty:
                process = _start(folder, names)
                stack.callback(_end, process)
            column = _request(process, which, texts)
            idle.put(process)
            return column

        yield tokenise


def _start(folder: Path, names: Sequence[str]) -> Process:
    command = [sys.executable, "-P", "-c", _MAIN, str(folder), " ".join(names), *sys.path]
    try:
        # In a new session, or on Windows in a new group: Ctrl-C goes to this process only, which ends the others.
        group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True, creationflags=group)
    except OSError as error:
        raise DataError(f"A tokeniser process could not be started: {error.strerror or error}.") from None


def _end(process: Process) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):  # an unread request may remain
            cast(BinaryIO, stream).close()
    process.wait()


def _request(process: Process, which: int, texts: Sequence[str]) -> Column:
    requests, replies = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    content = "".join(texts).encode("utf-8", "surrogatepass")
    try:
        requests.write(np.array([which, len(content), len(texts), *map(len, texts)], _NUMBER).tobytes())
        requests.write(content)
        requests.flush()
        while (line := replies.readline()) != _REPLY:  # skip other output of the Python start-up
            if not line:
                raise EOFError
        offsets = _read(replies, len(texts) + 1)
        return Column(_read(replies, int(offsets[-1])), offsets)
    except (OSError, EOFError):
        process.kill()
        code = process.wait()
        raise DataError(
            f"A tokeniser process ended with exit code {code}; check that there is enough memory."
        ) from None


def _read(stream: BinaryIO, count: int) -> Array:
    content = stream.read(count * _NUMBER.itemsize)
    if len(content) < count * _NUMBER.itemsize:
        raise EOFError
    return np.frombuffer(content, _NUMBER)


def serve(folder: str, names: str) -> None:
    """The main function of a tokeniser process: answer requests on standard input until it ends."""
    vocabularies = [Vocabulary.load(Path(folder), name) for name in names.split()]
    # Buffered even if PYTHONUNBUFFERED is set: an unbuffered write may be partial.
    with (
        open(0, "rb", closefd=False) as requests,
        open(1, "wb", closefd=False) as replies,
        suppress(EOFError, BrokenPipeError, MemoryError),  # after a MemoryError the caller reports the exit
    ):
        while True:
            which, size, count = _read(requests, 3).tolist()
            ends = np.cumsum(_read(requests, count)).tolist()
            content = requests.read(size).decode("utf-8", "surrogatepass")
            texts = [content[start:end] for start, end in pairwise([0, *ends])]
            column = tokenise_here(vocabularies)(which, texts)
            replies.write(b"\n" + _REPLY + column.offsets.tobytes())
            replies.write(column.values.astype(_NUMBER).tobytes())
            replies.flush()
