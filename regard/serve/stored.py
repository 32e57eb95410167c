"""What the server keeps in memory for clients: translated files and glossaries."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from regard.serve.languages import without_region
from regard.serve.limits import RefusedError

if TYPE_CHECKING:  # it imports FastAPI, which is imported while the models are loading
    from regard.serve import schemas

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
    """Terms, and how DeepL's API describes them."""

    about: "schemas.Glossary"
    terms: tuple[tuple[str, str], ...]


class Glossaries(dict[tuple[Hashable, str], Glossary]):
    """The glossaries of every client, by client and id."""

    def find(self, client: Hashable, id: str) -> Glossary:
        """A glossary of a client; raises if there is none."""
        if (client, id) not in self:
            raise RefusedError(404, "Glossary not found.")
        return self[client, id]

    def terms(self, client: Hashable, id: str, source: str, target: str) -> tuple[tuple[str, str], ...]:
        """The terms of a glossary, whose languages must match the request's; none for an empty id."""
        if not id:
            return ()
        about, terms = self.find(client, id)
        if source == "auto":
            raise RefusedError(400, "Value for 'source_lang' is required with a glossary.")
        pair = about.source_lang, about.target_lang
        if (without_region(source), without_region(target)) != pair:
            raise RefusedError(400, f"The glossary is for {' to '.join(pair)}; the request is {source} to {target}.")
        return terms
