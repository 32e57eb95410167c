"""What the server keeps in memory for clients: translated files and glossaries."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import PurePath
from typing import NamedTuple

from regard.serve.languages import without_region
from regard.serve.limits import RefusedError

MOST_FILES = 64
MOST_BYTES = 64 << 20
SECONDS = 3600.0


class StoredFile(NamedTuple):
    """A translated file."""

    data: bytes
    name: str
    until: float


class StoredFiles:
    """Translated files, oldest first; the oldest makes room for new ones."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, StoredFile] = OrderedDict()

    def put(self, data: bytes, name: str) -> str:
        """Store a file; returns its key."""
        key = secrets.token_urlsafe(16) + PurePath(name).suffix.lower()
        self._files[key] = StoredFile(data, name, time.monotonic() + SECONDS)
        while len(self._files) > MOST_FILES or sum(len(one.data) for one in self._files.values()) > MOST_BYTES:
            self._files.popitem(last=False)
        return key

    def get(self, key: str) -> StoredFile | None:
        """The file of a key, unless it has expired."""
        file = self._files.get(key)
        return file if file is not None and time.monotonic() < file.until else None


class Glossary(NamedTuple):
    """The terms of one language pair."""

    id: str
    name: str
    source: str
    target: str
    terms: tuple[tuple[str, str], ...]
    created: str


class Glossaries:
    """The glossaries of every client."""

    def __init__(self) -> None:
        self._all: dict[tuple[Hashable, str], Glossary] = {}  # by client and id

    def __len__(self) -> int:
        return len(self._all)

    def of(self, client: Hashable) -> list[Glossary]:
        return [one for (owner, _), one in self._all.items() if owner == client]

    def find(self, client: Hashable, id: str) -> Glossary:
        """A glossary of a client; raises if there is none."""
        if (client, id) not in self._all:
            raise RefusedError(404, "Glossary not found.")
        return self._all[client, id]

    def add(self, client: Hashable, glossary: Glossary) -> None:
        self._all[client, glossary.id] = glossary

    def remove(self, client: Hashable, id: str) -> None:
        del self._all[client, self.find(client, id).id]

    def terms(self, client: Hashable, id: str, source: str, target: str) -> tuple[tuple[str, str], ...]:
        """The terms of a glossary, whose languages must match the request's; none for an empty id."""
        if not id:
            return ()
        found = self.find(client, id)
        if source == "auto":
            raise RefusedError(400, "Value for 'source_lang' is required with a glossary.")
        if (without_region(source), without_region(target)) != (found.source, found.target):
            raise RefusedError(
                400, f"The glossary is for {found.source} to {found.target}; the request is {source} to {target}."
            )
        return found.terms
