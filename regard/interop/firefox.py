"""The translation models of Firefox, from Mozilla's registry: `regard import firefox:en-de`.

The registry is a server of Remote Settings. GET / names the address of the attachments, and each record of a collection
describes one file of a model: the languages, the version, the type of the file, and an attachment with its size and
SHA-256. Files of the newer collection are compressed with zstd; their records have the size and SHA-256 of the content
too.
"""

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from regard.errors import ConfigError, DataError, brief
from regard.sealed import digest, locked
from regard.text.lines import UNREADABLE, open_zst
from regard.version import __version__
from regard.work import Progress

SERVER = "https://firefox.settings.services.mozilla.com/v1"
MIRROR = "REGARD_FIREFOX"  # the environment variable that names another server
COLLECTIONS = ("translations-models-v2", "translations-models")
NAMES = {"model": "model.bin", "vocab": "vocab.spm", "srcvocab": "source.spm", "trgvocab": "target.spm"}  # of a type
SEARCH = b"beam-size: 1\nnormalize: 1.0\nmax-length-factor: 2.0\n"  # as Firefox translates
MOST_BYTES = 1 << 31  # of a file
MOST_RECORDS = 1 << 26  # bytes of a collection
ATTEMPTS, SECONDS, BLOCK = 3, 60, 1 << 18
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})([a-z]*)(\d{0,6})")
_CODE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_HASH = re.compile(r"[0-9a-f]{64}")


class Attachment(NamedTuple):
    """A file of the registry. `content` is the size and SHA-256 of a compressed file when it is unpacked."""

    location: str
    size: int
    sha256: str
    content: tuple[int, str] | None


class RegistryModel(NamedTuple):
    """A model of the registry."""

    source: str
    target: str
    version: str
    architecture: str
    files: dict[str, Attachment]  # by the names that they get

    @property
    def size(self) -> int:
        """The bytes to download."""
        return sum(file.size for file in self.files.values())


def list_models(mirror: str = "", version: str = "") -> dict[str, RegistryModel]:
    """The best model of each pair, such as en-de: the newest, or the one of this version.

    Alpha and beta versions, and files that only some versions of Firefox may use, are for pairs without any other.
    """
    files: dict[tuple[str, ...], dict[str, Attachment]] = {}
    for record in _records(_server(mirror)):
        try:
            source = record.get("sourceLanguage") or record["fromLang"]
            target = record.get("targetLanguage") or record["toLang"]
            filtered, variant, kind = (
                record.get(name) or "" for name in ("filter_expression", "variant", "architecture")
            )
            key = (source, target, record["version"], variant, filtered, kind)
            name, file = NAMES[record["fileType"]], _attachment(record)
            if _CODE.fullmatch(source) and _CODE.fullmatch(target) and all(isinstance(part, str) for part in key):
                files.setdefault(key, {})[name] = file
        except (KeyError, TypeError, ValueError):
            continue  # a file that a translation does not need, or of a form that is not known here
    ranked = []
    for (source, target, number, variant, filtered, kind), found in files.items():
        parts, vocabularies = _VERSION.fullmatch(number), found.keys() - {"model.bin"}
        if parts and len(vocabularies) < len(found) and vocabularies in ({"vocab.spm"}, {"source.spm", "target.spm"}):
            major, minor, letters, last = parts.groups()
            # A released version that every Firefox may use before any other, and then the newest.
            rank = not filtered, not letters, not variant, int(major), int(minor), letters, int(last or 0)
            ranked.append((rank, RegistryModel(source, target, number, brief(kind), found)))
    ranked.sort(key=lambda pair: pair[0])
    best = {f"{one.source}-{one.target}": one for _, one in ranked if version in ("", one.version)}
    return dict(sorted(best.items()))


@contextmanager
def download(
    pair: str, out: Path, mirror: str = "", progress: Progress | None = None
) -> Iterator[tuple[RegistryModel, Path]]:
    """The model of a pair such as en-de, or en-de@1.0 for a version, and for the block a folder with its files.

    The files are downloaded into a hidden folder next to `out`. It stays if the download is interrupted or the block
    fails, and the next call continues.
    """
    pair, _, version = pair.partition("@")
    known = list_models(mirror, version)
    if pair not in known:
        near = [name for name in known if set(name.split("-")) & set(pair.split("-")) - {"en"}] or [*known]
        some = f"it has {', '.join(near[:12])}{', ...' * (len(near) > 12)}" if known else "it has none"
        of = f" of the version {brief(version)}" if version else ""
        raise DataError(
            f"The registry of Firefox has no model {brief(pair)}{of}; {some}. `regard models --from firefox` lists all."
        )
    model, server = known[pair], _server(mirror)
    if any(file.content for file in model.files.values()):
        open_zst(io.BytesIO())  # before the download: refused without the library for it
    try:
        base = _checked(str(_get(f"{server}/")["capabilities"]["attachments"]["base_url"]))
    except (KeyError, TypeError, HTTPError):
        raise DataError(
            f"{server} names no address of attachments; a mirror must answer as Remote Settings does."
        ) from None
    folder, done = out.with_name(f".{out.name}.download"), 0
    with locked(folder, "downloads a model"):
        ready = folder / "model"
        shutil.rmtree(ready, ignore_errors=True)  # of an earlier command, which may have been for another model
        ready.mkdir()
        for name, file in model.files.items():
            part = folder / f"{file.sha256}.part"
            for here in _download(f"{base.rstrip('/')}/{file.location}", file, part):
                if progress:
                    progress(done + here, model.size)
            (ready / name).write_bytes(_unpack(part, file))
            done += file.size
        (ready / "config.yml").write_bytes(SEARCH)
        yield model, ready
    shutil.rmtree(folder, ignore_errors=True)


def _download(url: str, file: Attachment, part: Path) -> Iterator[int]:
    """Download a file as `part`, or the rest of it if a beginning is there, and verify it; yields the bytes so far."""
    why = ""
    for _ in range(ATTEMPTS):
        size = part.stat().st_size if part.exists() else 0
        try:
            if size < file.size:
                with _open(url, {"Range": f"bytes={size}-"} if size else {}) as response:
                    if not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
                        size = 0  # the server sends everything
                    with open(part, "ab" if size else "wb") as stream:
                        while size <= file.size and (block := response.read(BLOCK)):
                            size += stream.write(block)
                            yield min(size, file.size)
            if size == file.size and digest(part) == file.sha256:
                return
            why = f"{size} of {file.size} bytes arrived"
            if size >= file.size:
                why = "it is not the file of the record: its SHA-256 or its size differs"
                part.unlink()
        except (OSError, HTTPException) as error:
            why = brief(getattr(error, "reason", error))
    raise DataError(f"{url} could not be downloaded: {why}; the same command continues the download.")


def _unpack(part: Path, file: Attachment) -> bytes:
    """The content of a downloaded file."""
    if file.content is None:
        return part.read_bytes()
    size, expected = file.content
    try:
        with open_zst(part) as stream:
            content = bytes(stream.read(size + 1))  # no more, whatever a damaged file claims
    except UNREADABLE as error:
        raise DataError(f"{file.location} cannot be unpacked: {brief(error)}.") from None
    if len(content) != size or sha256(content).hexdigest() != expected:
        raise DataError(f"{file.location} was unpacked, and its SHA-256 is not the one of the record; report it.")
    return content


def _attachment(record: dict[str, Any]) -> Attachment:
    """The file of a record; ValueError if it is not one to download."""
    attached = record["attachment"]
    location, sent = attached["location"], (int(attached["size"]), attached["hash"])
    packed = location.endswith(".zst")
    content = (int(record["decompressedSize"]), record["decompressedHash"]) if packed else None
    for size, sha in (sent, content or sent):
        if not 0 < size < MOST_BYTES or not _HASH.fullmatch(sha):
            raise ValueError(f"{size} bytes, {sha}")
    return Attachment(location, *sent, content)


def _records(server: str) -> Iterator[dict[str, Any]]:
    """The records of all collections that the server has."""
    missing = []
    for collection in COLLECTIONS:
        address = f"{server}/buckets/main/collections/{collection}/records"
        try:
            found = _get(address)
            yield from (record for record in found["data"] if isinstance(record, dict))
        except HTTPError as error:
            missing.append(f"{collection}: {error.code} {brief(error.reason)}")
        except (KeyError, TypeError):
            raise DataError(
                f"{address} is not a list of records; a mirror must answer as Remote Settings does."
            ) from None
    if len(missing) == len(COLLECTIONS):
        raise DataError(
            f"{server} has no translation models ({', '.join(missing)}); name another server with --mirror."
        )


def _get(url: str) -> Any:
    """The JSON at an address; an HTTPError if the server refuses."""
    try:
        with _open(url) as response:
            content = response.read(MOST_RECORDS)
            if response.length:
                raise OSError("the answer is too long, or was cut")
        return json.loads(content)
    except HTTPError:
        raise
    except (OSError, HTTPException) as error:
        raise DataError(
            f"The registry of Firefox cannot be reached at {url}: {brief(getattr(error, 'reason', error))}; check the "
            f"connection and the proxy, or name another server with --mirror or {MIRROR}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{url} is not JSON: {brief(error)}; name the address of the server up to /v1.") from None


def _open(url: str, headers: dict[str, str] | None = None) -> Any:
    return urlopen(Request(url, headers={"User-Agent": f"regard/{__version__}", **(headers or {})}), timeout=SECONDS)


def _server(mirror: str) -> str:
    return _checked(mirror or os.environ.get(MIRROR) or SERVER).rstrip("/")


def _checked(url: str) -> str:
    """An address of the web; urllib would also open files."""
    if not re.match(r"https?://[^/\s]", url):
        raise ConfigError(f"A server is an address such as {SERVER}; got {brief(repr(url))}.")
    return url
