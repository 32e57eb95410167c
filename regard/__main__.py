"""`python -m regard` and the `regard` command: a user error is one sentence and exit code 2, never a traceback."""

import errno
import os
import sys
from io import TextIOWrapper
from typing import cast

from regard.errors import RegardError, little_memory, out_of_memory
from regard.training.stopping import TERMINATED

INTERRUPTED, NO_READER = 130, 141  # as a shell reports SIGINT and SIGPIPE


def main() -> None:
    """Run the command line."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started this process: nothing to read, nobody to write to
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    if sys.platform == "win32":  # UTF-8 and "\n" also in files and pipes, as elsewhere
        for stream in (sys.stdout, sys.stderr):
            cast(TextIOWrapper, stream).reconfigure(encoding="utf-8", newline="\n")
    try:
        try:
            from regard.cli import app  # here: child processes import this file and need no commands

            app()
        finally:
            flush()  # here, where a broken pipe is still caught
    except RegardError as error:
        leave(f"regard: {error}\n", 2)
    except SystemExit as error:
        if error.code in (INTERRUPTED, TERMINATED):
            leave("regard: stopped.\n", error.code)  # typer handled Ctrl-C without a message
        if isinstance(error.__context__, BrokenPipeError):  # typer exits with code 1
            leave_reader()
        raise
    except BrokenPipeError:  # from the last flush
        leave_reader()
    except (MemoryError, RuntimeError, ImportError, SystemError, OSError) as error:
        broken_import = isinstance(error, ImportError | SystemError)  # of a library that met the end of memory halfway
        if out_of_memory(error) or (broken_import and little_memory()):
            sys.stderr.write("regard: There is not enough memory for this; use a smaller model, batch or beam.\n")
            sys.stderr.flush()
            os._exit(2)  # what libraries do at the end needs memory too, and would add their tracebacks
        if not isinstance(error, OSError):
            raise
        where = f"{error.filename}: " if error.filename else ""
        leave(f"regard: {where}{error.strerror or error}.\n", 2)


def flush() -> None:
    """Write what is left of the output. A pipe whose reader has exited is an invalid argument on Windows."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if sys.platform == "win32" and error.errno == errno.EINVAL:
            raise BrokenPipeError from None
        raise


def leave_reader() -> None:
    """Exit without a message: the reader of our output has exited, as in `regard translate ... | head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
    sys.exit(NO_READER)


def leave(sentence: str, code: int) -> None:
    """Print the reason and exit."""
    sys.stderr.write(sentence.encode("utf-8", "replace").decode("utf-8"))
    sys.exit(code)


if __name__ == "__main__":
    main()
