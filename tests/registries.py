"""Local servers that speak the protocols of Mozilla's registry (Remote Settings) and of the Hugging Face Hub."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Files:
    """Addresses -> bytes, and what clients requested. `cut` ends answers after this number of bytes, where the address
    contains `cuts`."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.errors: dict[str, str] = {}  # address -> X-Error-Code of a 404
        self.asked: list[tuple[str, str, str]] = []  # method, path without query, Range
        self.cut: int | None = None
        self.cuts = "/cdn/"
        self.ranges = True
        self.address = ""

    def ranges_of(self, part: str) -> list[str]:
        """The ranges that were asked of files whose address contains `part`."""
        return [asked for method, path, asked in self.asked if method == "GET" and part in path]


@contextmanager
def served(files: Files) -> Iterator[Files]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked = self.headers.get("Range", "")
            files.asked.append((self.command, path, asked))
            content = files.content.get(path)
            if content is None:
                self.send_response(404)
                if path in files.errors:
                    self.send_header("X-Error-Code", files.errors[path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and files.ranges else 0
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            for name, value in files.headers.get(path, {}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                end = len(content) if files.cut is None or files.cuts not in path else start + files.cut
                self.wfile.write(content[start:end])
                self.close_connection = end < len(content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    files.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- Remote Settings


class Registry(Files):
    """Mozilla's registry: records by collection, and their attachments."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, list[dict[str, Any]]] = {"translations-models-v2": [], "translations-models": []}

    def publish(self) -> str:
        """Answer with the records as they are now; returns the address of the server."""
        root = {
            "project_name": "Remote Settings PROD",
            "capabilities": {"attachments": {"base_url": f"{self.address}/cdn/"}},
        }
        self.content["/v1/"] = json.dumps(root).encode()
        for name, records in self.records.items():
            self.content[f"/v1/buckets/main/collections/{name}/records"] = json.dumps({"data": records}).encode()
        return f"{self.address}/v1"

    def add(
        self, source: str, target: str, version: str, files: dict[str, bytes], old: bool = False, **more: Any
    ) -> None:
        """Add the files of a model by their types, compressed in the newer collection."""
        collection = "translations-models" if old else "translations-models-v2"
        for kind, content in files.items():
            sent = content if old else compress(content)
            name = f"{kind}.{source}{target}.{'spm' if 'vocab' in kind else 'bin'}"
            location = f"main-workspace/{collection}/{source}{target}-{version}-{kind}" + ("" if old else ".zst")
            self.content[f"/cdn/{location}"] = sent
            languages = ("fromLang", "toLang") if old else ("sourceLanguage", "targetLanguage")
            packed = {"decompressedSize": len(content), "decompressedHash": hashlib.sha256(content).hexdigest()}
            self.records[collection].append({
                "name": name, **dict(zip(languages, (source, target), strict=True)), "version": version,
                "fileType": kind, "filter_expression": "", "schema": 1749570042331,
                **({} if old else {**packed, "architecture": "tiny"}), **more,
                "attachment": {
                    "hash": hashlib.sha256(sent).hexdigest(), "size": len(sent), "location": location,
                    "filename": name + ("" if old else ".zst"),
                    "mimetype": "application/octet-stream" if old else "application/zstd",
                },
            })  # fmt: skip


def compress(content: bytes) -> bytes:
    from regard.text.lines import zstd

    return zstd.compress(content)


# --- the Hub


class Hub(Files):
    """Repositories of models: a description, and files by commit."""

    def add(self, name: str, commit: str, files: dict[str, bytes], revision: str = "main") -> None:
        siblings = [{"rfilename": file, "size": len(content), "blobId": "0" * 40} for file, content in files.items()]
        about = json.dumps(
            {"id": name, "modelId": name, "sha": commit, "private": False, "tags": [], "siblings": siblings}
        )
        for path in (
            f"/api/models/{name}",
            f"/api/models/{name}/revision/{revision}",
            f"/api/models/{name}/revision/{commit}",
        ):
            self.content[path] = about.encode()
        for file, content in files.items():
            path = f"/{name}/resolve/{commit}/{file}"
            self.content[path] = content
            self.headers[path] = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit}
