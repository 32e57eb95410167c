"""How much one request may use, and the errors for requests that are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from regard.config import check_range, override, read
from regard.errors import ConfigError, check_known


@dataclass(frozen=True)
class Limits:
    """The limits of a server. Each is checked before the work that it bounds; docs/serving.md explains them."""

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
    line: int = 500  # characters; a longer line is translated in parts
    tokens: int = 1000  # on each side of a trace
    numbers: int = 1 << 22  # attention weights and scores in one answer
    tree: int = 4096  # source tokens times beam of a search tree
    alternatives: int = 10
    beam: int = 20
    changes: int = 32  # of one what-if
    # time, in seconds
    seconds: float = 60.0  # from arrival to answer
    sending: float = 10.0  # to receive a request
    sending_picture: float = 30.0
    reading: float = 15.0  # without progress while an answer is sent
    reading_all: float = 120.0  # to send a whole answer
    drain: float = 25.0  # to finish accepted requests after SIGTERM
    stuck: float = 8.0  # without a decoding step before a model counts as stuck; twice that ends its process
    # the server
    connections: int = 512
    queue: int = 48  # accepted requests for each model that have no answer yet: a full batch and half of the next
    cost: int = 1 << 21  # characters times beam of one request, and of all that wait for a model
    pictures: int = 16  # received or decoded at the same time
    held: int = 256 << 20  # bytes of answers that clients have not read yet

    def changed(self, settings: Sequence[str]) -> "Limits":
        """These limits with some changed, each given as "name=value"."""
        for setting in settings:
            name, given, _ = setting.partition("=")
            if not given:
                raise ConfigError(f"A limit is written NAME=NUMBER; got {setting!r}.")
            check_known("limit", name, [one.name for one in fields(self)])
        tables = override({"limit": {}}, *(f"limit.{setting}" for setting in settings))
        changed = read(Limits, tables["limit"], "limit", over=self)
        check_range("limit", changed, "(0, 1e12)", *tables["limit"])
        return changed


class RefusedError(Exception):
    """A request that is refused on purpose: a status and one sentence for the client, never logged as a fault."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, sentence, headers)  # all of them, so that it can be pickled
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return self.sentence


def busy(what: str) -> RefusedError:
    """The refusal of more than the server can take at once."""
    return RefusedError(429, f"Slowdown: too many {what}, try again in a second", {"Retry-After": "1"})


class StoppedError(Exception):
    """Work that ended early because its time is up or its client has gone away."""


FAULT = RefusedError(500, "Something went wrong in the server; its log has the details.")
SHUTTING_DOWN = RefusedError(503, "The server is shutting down.", {"Retry-After": "5", "Connection": "close"})
