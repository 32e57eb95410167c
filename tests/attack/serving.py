"""S1 to S7, X6, X7: a server that refuses what is too much, answers what it accepted and serves no other site."""

import atexit
import json
import os
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import httpx
from commands import forked_children
from patience import PATIENCE, until
from promises import check
from serve_parts import Server, captioner, shared, trained
from starlette.datastructures import Headers
from untrusted import mutated, picture_file

from regard.serve.access import Access
from regard.serve.limits import RefusedError

WORDS = ["ba", "da", "ga", "ka"]


@cache
def strict(fresh: bool = False) -> Server:
    """A server with little room, for what would disturb other tests; it describes pictures too."""
    server = Server(trained(), captioner(), limits={"queue": 8, "connections": 24}, fresh=fresh)
    atexit.register(server.stop)  # else the command waits for it at its end
    return server


def sentence(draw: Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(2, 4)))


def metric(server: Server, name: str) -> float:
    found = re.findall(rf"(?m)^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", server.client.get("/metrics").text)
    return sum(map(float, found))


@cache
def right(text: str) -> str:
    """What the model answers when nothing else happens; every other answer to the same text is wrong."""
    return shared().translate(text)["translatedText"]


def fields(name: str, size: int) -> tuple[str, Any]:
    """A request that uses so much of a limit."""
    body = {"q": "ba", "source": "en", "target": "de"}
    if name == "body":
        return "/translate", json.dumps({**body, "x": "y" * (size - len(json.dumps({**body, "x": ""})))}).encode()
    if name == "segments":
        return "/translate", {**body, "q": ["ba"] * size}
    if name == "characters":
        return "/detect", {"q": "b" * size}
    if name == "depth":
        return "/translate", json.dumps({**body, "x": "?"}).replace('"?"', "[" * (size - 1) + "]" * (size - 1)).encode()
    if name == "alternatives":
        return "/translate", {**body, "alternatives": size}
    if name == "changes":
        return "/api/v1/what-if", {"text": "ba da", "changes": [{"kind": "temperature", "value": 1.0}] * size}
    return "/api/v1/trace", {"text": "ba da", "beam": size}


@check("S1", "a request at a limit is answered, one beyond it refused, before any work", 10, 300)
def limits(draw: Random, folder: Path) -> None:
    most = {
        "body": 1 << 20,
        "segments": 128,
        "characters": 1 << 16,
        "depth": 32,
        "alternatives": 10,
        "changes": 32,
        "beam": 20,
    }
    name, offset = draw.choice(list(most)), draw.choice([-1, 0, 1])
    path, body = fields(name, most[name] + offset)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = shared().client.post(path, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code == 200) == (offset <= 0), f"{name} {offset:+}: {answer.status_code} {answer.text[:100]}"
    assert answer.status_code in (200, 400, 413, 422)


@check("S2", "16 clients on a queue of 8: each gets the right answer or a 429", 1, 300)
def overload(draw: Random, folder: Path) -> None:
    server, texts = strict(), [sentence(draw) for _ in range(16)]
    expected = [right(text) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda q: server.post("/translate", q=q, source="en", target="de"), texts))
    for answer, want in zip(found, expected, strict=True):
        assert answer.status_code in (200, 429)
        assert answer.status_code == 429 or answer.json()["translatedText"] == want
        assert answer.status_code == 200 or "retry-after" in answer.headers


@check("S3", "a client that disconnects at any moment leaves no slot taken", 6, 2000)
def disconnect(draw: Random, folder: Path) -> None:
    server = strict()
    body = json.dumps({"q": [sentence(draw)] * 20, "source": "en", "target": "de", "text": "ba da"}).encode()
    path = draw.choice(["/translate", "/api/v1/trace", "/api/v1/beam"])
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    sent = head.encode() + body
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(sent[: draw.choice([0, 10, 60, len(sent) - 5, len(sent), len(sent)])])
        time.sleep(draw.choice([0, 0.005, 0.05]))
        if draw.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    until(lambda: metric(server, "regard_waiting_requests") == 0)
    assert server.translate("ba da")["translatedText"] == right("ba da")


@check("S4", "SIGTERM with 8 clients at work: every request that was sent is answered, exit code 0", 1, 50)
def stop(draw: Random, folder: Path) -> None:
    server, found, stopping = Server(trained()), [], []
    expected = right("ba da ga")

    def send() -> None:
        with httpx.Client(base_url=server.address, timeout=PATIENCE, trust_env=False) as client:
            while True:
                late = bool(stopping)
                try:
                    answer = client.post(
                        "/translate",
                        json={"q": "ba da ga", "source": "en", "target": "de"},
                        headers={"connection": "close"},
                    )
                    wrong = answer.status_code == 200 and answer.json()["translatedText"] != expected
                    found.append("wrong" if wrong else answer.status_code)
                except httpx.ConnectError:
                    return
                except httpx.TransportError as error:
                    if not late:  # sent before the signal, and not answered
                        found.append(repr(error))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(found) > 20)
    time.sleep(draw.uniform(0, 0.1))
    stopping.append(True)
    code = server.stop(signal.SIGTERM)
    for thread in threads:
        thread.join(PATIENCE)
    assert code == 0, server.errors()
    assert set(found) <= {200, 429, 503}, set(found)


@check("S5", "100 requests of all kinds leave memory, files and threads as they were", 1, 50)
def leak(draw: Random, folder: Path) -> None:
    server = shared()
    used = lambda kind: len(os.listdir(f"/proc/{server.process.pid}/{kind}"))  # noqa: E731

    def send(count: int) -> None:
        for _ in range(count):
            path = draw.choice(["/translate", "/api/v1/trace", "/api/v1/alternatives", "/detect", "/nothing"])
            text = sentence(draw)
            server.post(path, q=text, text=text, source="en", target="de", prefix=[])

    send(60)
    before, files, threads = server.memory, used("fd"), used("task")
    send(100)
    assert server.memory - before < 20
    assert used("fd") <= files + 1
    assert used("task") <= threads + 2  # of the pool, which grows to its size once


@check("S6", "a model process that is killed: /health says so or it is replaced, and answers stay right", 1, 30)
def replaced(draw: Random, folder: Path) -> None:
    server = strict(fresh=True)  # its models are its child processes
    before = metric(server, "regard_model_restarts_total")
    os.kill(draw.choice(forked_children(server.process.pid)), signal.SIGKILL)
    until(lambda: metric(server, "regard_model_restarts_total") > before)
    until(lambda: server.client.get("/health").status_code == 200)
    text = sentence(draw)
    assert server.translate(text)["translatedText"] == right(text)


@check(
    "S7",
    "slow and silent clients beyond the bound on connections: little memory, others get a 503 until they leave",
    1,
    30,
)
def slow(draw: Random, folder: Path) -> None:
    server = strict()
    before, held = server.memory, []
    try:
        for _ in range(40):  # more than the server's connections
            client = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            client.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Le")
            if draw.random() < 0.5:
                client.sendall(b"ngth: 100\r\n\r\n{")
            held.append(client)
        with httpx.Client(base_url=server.address, timeout=PATIENCE, trust_env=False) as client:
            found = client.post("/translate", json={"q": "ba da", "source": "en", "target": "de"})
        assert found.status_code == 503, found.text
        assert server.memory - before < 20
    finally:
        for one in held:
            one.close()
    server.client.close()
    server.client = httpx.Client(base_url=server.address, timeout=PATIENCE, trust_env=False)
    until(lambda: server.client.get("/health").status_code == 200)
    assert server.translate("ba da")["translatedText"] == right("ba da")


SLOW = {  # texts that a careless parser reads in quadratic time or worse
    "percent": "a %" + "0" * 60_000 + "z",
    "table": "a|b\n" + " " * 60_000 + "x",
    "rule": ">" * 30_000 + " " * 30_000 + "x",
    "heading": "# a" + " " * 60_000 + "b",
    "lines": "a" + " " * 60_000 + "b\nc",
    "tags": "<b " * 20_000,
    "quotes": "<a b='" * 10_000,
    "braces": "{ " * 30_000,
    "target": f"<trans-unit id='1'><source>a</source><target{' ' * 60_000}/></trans-unit>",
}


def used(process: int) -> float:
    """The CPU time of a process in seconds."""
    words = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@check("X9", "a request or a file that is slow to parse: answered or refused, and the server works on", 2, 500)
def parsing(draw: Random, folder: Path) -> None:
    parse(draw.choice(list(SLOW)), draw.choice(["html", "xml", "md", "xlf", "po", "srt"]))


REPORTED = [("percent", kind) for kind in ("html", "xml", "md")] + [("target", "xlf")]
REPORTED += [(name, "md") for name in ("table", "rule", "heading", "lines")]


@check("X9", "the eight requests that once held the server: answered or refused, and the server works on", 1, 5)
def parsing_reported(draw: Random, folder: Path) -> None:
    for name, kind in REPORTED:
        parse(name, kind)


def parse(name: str, kind: str) -> None:
    """Have a server read a text that is slow to parse."""
    server = shared()
    text, before = SLOW[name], used(server.process.pid)
    pair = {"source": "en", "target": "de"}
    if kind == "html":
        answer = server.post("/translate", q=text, format="html", **pair)
    elif kind == "xml":
        answer = server.post("/v2/translate", text=[text], source_lang="EN", target_lang="DE", tag_handling="xml")
    else:
        inside = {
            "xlf": "<xliff version='1.2'><file><body>?</body></file></xliff>",
            "po": 'msgid "?"\nmsgstr ""\n',
            "srt": "1\n00:00:01,000 --> 00:00:02,000\n?\n",
        }
        file = (f"x.{kind}", inside.get(kind, "?").replace("?", text).encode())
        answer = server.client.post("/translate_file", data=pair, files={"file": file})
    assert answer.status_code in (200, 400, 413, 422), answer.text[:200]
    assert server.client.get("/health").status_code == 200
    assert used(server.process.pid) - before < 3, f"{name} {kind}: {used(server.process.pid) - before} s in the server"


@check("S1", "files beyond the limit of sentences, at once: refused, and little memory is taken", 1, 50)
def uploads(draw: Random, folder: Path) -> None:
    server = strict()
    before, ending = server.memory, draw.choice(["a\n\n", "a|b\n-|-\n", "- a\n"])
    file = ("x.md", ending.encode() * ((1 << 20) // len(ending)))

    def send(_: int) -> httpx.Response:
        pair = {"source": "en", "target": "de"}
        return httpx.post(f"{server.address}translate_file", data=pair, files={"file": file}, timeout=PATIENCE)

    with ThreadPoolExecutor(8) as pool:
        found = {answer.status_code for answer in pool.map(send, range(8))}
    assert found <= {413, 429}
    assert server.memory - before < 60


NASTY = [
    "null", "true", "-1", "1e308", "1e999", "NaN", "9" * 5000, "10001", "[]", "{}", '""', '"\\u0000"', '"\\ud800"',
    "[null]", '["x"]', "0.5", "[" * 40 + "]" * 40,
    '{"kind":5}', '"a\\rb,c\\r"', f'"{"a" * 140_000},b"', '"' + "a " * 300 + '"', '"<![%x;"', '"../../etc/passwd"',
]  # fmt: skip
GOOD = {
    "/translate": {
        "q": "ba da",
        "source": "en",
        "target": "de",
        "alternatives": 2,
        "format": "html",
        "alignment": True,
    },
    "/v2/translate": {"text": ["ba da"], "target_lang": "DE", "source_lang": "EN", "tag_handling": "xml"},
    "/v2/glossaries": {
        "name": "x",
        "source_lang": "EN",
        "target_lang": "DE",
        "entries": "a,b\r",
        "entries_format": "csv",
    },
    "/detect": {"q": "ba da"},
    "/api/v1/trace": {"text": "ba da", "prefix": "da", "beam": 2, "layers": [0], "heads": [0]},
    "/api/v1/beam": {"text": "ba da", "beam": 3},
    "/api/v1/steps": {"text": "ba da", "t": 1, "head": 0, "target": "da ba"},
    "/api/v1/alternatives": {"text": "ba da", "prefix": ["da"], "most": 5},
    "/api/v1/what-if": {
        "text": "ba da",
        "changes": [{"kind": "mask", "position": 1}, {"kind": "set-row", "t": 0, "position": 1, "head": 0}],
    },
}


@check("X6", "a mutated request is answered or refused: no 5xx but 503, no traceback, no path", 80, 100_000)
def requests(draw: Random, folder: Path) -> None:
    path = draw.choice(list(GOOD))
    text = json.dumps(GOOD[path])
    if draw.random() < 0.6:
        value = re.search(re.escape(json.dumps(draw.choice(list(GOOD[path].values())))), text)
        text = text[: value.start()] + draw.choice(NASTY) + text[value.end() :]
        body = text.encode()
    else:
        body = bytearray(text.encode())
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(body))
            body[place : place + draw.randrange(3)] = draw.choice(
                [b"", bytes([draw.randrange(256)]), b'"', b"}", b"\\"]
            )
    answer = shared().client.post(path, content=bytes(body), headers={"content-type": "application/json"})
    assert answer.status_code < 500 or answer.status_code == 503, f"{path} {bytes(body)[:200]!r}: {answer.text[:200]}"
    assert not re.search("Traceback|/home/|/tmp/|site-packages|root:", answer.text)
    if answer.status_code == 201:
        shared().client.delete(f"{path}/{answer.json()['glossary_id']}")


@check("X6", "a mutated picture for a captioner is described or refused", 6, 5000)
def captions(draw: Random, folder: Path) -> None:
    data = mutated(picture_file(), draw, [b"IDAT", b"\xff" * 8, b"acTL", b"<svg>", b"\0" * 64])
    answer = strict().client.post("/api/v1/caption", content=data, headers={"content-type": "image/png"})
    assert answer.status_code in (200, 400, 413, 415, 422, 429), answer.text[:200]


HOSTS = [
    "127.0.0.1", "localhost", "localhost:5000", "[::1]:5000", "evil.example", "127.0.0.1.evil.example",
    "evil.example:5000", "localhost.evil.example", "127.0.0.1@evil.example", "[::1].evil.example", "0.0.0.0", "127.1",
    "2130706433", "LOCALHOST.", "", " ",
    "127.0.0.1/page/", "127.0.0.1?x", "127.0.0.1:80:80", "a\tb", "192.168.0.7", "localhost#", "xn--evil",
]  # fmt: skip
ORIGINS = [
    None, "null", "http://localhost", "http://evil.example", "https://127.0.0.1.evil.example", "file://", "", "http://",
    "http://localhost:1", "http://localhost.evil.example", "chrome-extension://x", "HTTP://LOCALHOST", "http://localhost/",
]  # fmt: skip


@check("X7", "another site cannot use a server on loopback: methods, hosts, origins and kinds of site", 150, 20_000)
def others(draw: Random, folder: Path) -> None:
    host, origin = draw.choice(HOSTS), draw.choice(ORIGINS)
    site, method = (
        draw.choice([None, "none", "same-origin", "same-site", "cross-site"]),
        draw.choice(["GET", "POST", "OPTIONS"]),
    )
    given = {
        "host": host,
        **({"origin": origin} if origin is not None else {}),
        **({"sec-fetch-site": site} if site else {}),
    }
    try:
        Access().check(method, "/translate", Headers(given))
    except RefusedError:
        return
    assert host in ("127.0.0.1", "localhost", "localhost:5000", "[::1]:5000")
    assert origin is None or origin.lower() == f"http://{host}"
    assert origin is not None or site in (None, "none", "same-origin")
