"""How much one request may use, the errors for requests that are refused, and how often the log repeats itself."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from regard.config import Settings, override, read
from regard.errors import ConfigError, check_known

_AGAIN = 60.0  # seconds in which a log message appears once


@dataclass(frozen=True)
class Limits(Settings):
    """The limits of a server, each checked before the work that it bounds; see docs/serving.md."""

    table, allowed = "limit", "(0, 1e12)"

    # a request
    body: int = 1 << 20  # bytes
    picture: int = 8 << 20  # bytes of a request with a picture
    file: int = 4 << 20  # bytes of a request with a file to translate
    header_bytes: int = 64 << 10
    headers: int = 100
    depth: int = 32  # nesting of JSON
    values: int = 10_000  # values in a JSON body
    # what it contains
    segments: int = 128  # texts
    sentences: int = 1024  # lines and parts of lines over all texts
    characters: int = 1 << 16  # of one text
    line: int = 500  # characters; a longer line is split
    tokens: int = 1000  # on each side of a trace
    numbers: int = 1 << 22  # attention weights and scores in one answer
    tree: int = 4096  # source tokens times beam of a search tree
    alternatives: int = 10
    beam: int = 20
    changes: int = 32  # in one what-if
    # time, in seconds
    seconds: float = 60.0  # from arrival to answer
    sending: float = 10.0  # to receive a request
    sending_picture: float = 30.0
    reading: float = 15.0  # without progress while a response is sent
    reading_all: float = 120.0  # to send a whole response
    drain: float = 25.0  # to finish accepted requests after SIGTERM
    stuck: float = 8.0  # without a decoding step until a model counts as stuck; after twice that it is killed
    # the server
    connections: int = 512
    queue: int = 48  # unanswered requests of a model: one and a half batches
    cost: int = 1 << 21  # characters times beam of one request, and of a model's queue
    pictures: int = 16  # received or decoded at the same time
    held: int = 256 << 20  # bytes of responses that clients have not read yet

    def changed(self, settings: Sequence[str]) -> "Limits":
        """These limits with `settings` such as "beam=5" applied."""
        for setting in settings:
            name, value, _ = setting.partition("=")
            if not value:
                raise ConfigError(f"A limit must be NAME=NUMBER; got {setting!r}.")
            check_known("limit", name, [field.name for field in fields(self)])
        tables = override({"limit": {}}, *(f"limit.{setting}" for setting in settings))
        return read(Limits, tables["limit"], "limit", over=self)


class RefusedError(Exception):
    """A request that is refused on purpose: a status and a sentence for the client. Not logged."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, sentence, headers)  # all arguments, so that it can be pickled
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return self.sentence


def busy(what: str) -> RefusedError:
    """A refusal because of overload."""
    return RefusedError(429, f"Slowdown: too many {what}, try again in a second", {"Retry-After": "1"})


class StoppedError(Exception):
    """Work that ended early: its time is up, or its client disconnected."""


FAULT = RefusedError(500, "Something went wrong in the server; its log has the details.")
SHUTTING_DOWN = RefusedError(503, "The server is shutting down.", {"Retry-After": "5", "Connection": "close"})


class OncePerMinute(logging.Filter):
    """Logs each message once a minute, with the number of repetitions that were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        said, left = self._said.get(record.msg, (-_AGAIN, 0))
        if record.created - said < _AGAIN:
            self._said[record.msg] = said, left + 1
            return False
        if len(self._said) > 1000:
            self._said.clear()
        self._said[record.msg] = record.created, 0
        if left:
            record.msg = f"{record.msg} (and {left} more times)"
        return True
