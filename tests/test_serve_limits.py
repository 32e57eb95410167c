"""Limits on by default, checked before any model runs; who may use the server; and the headers of every answer."""

import itertools
import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import until
from serve_parts import ATTENTIVE, Server, serving, trained
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from regard.errors import ConfigError
from regard.serve.access import Access, AccessToken, read_tokens
from regard.serve.app import build
from regard.serve.limits import Limits, OncePerMinute, RefusedError
from regard.serve.parameters import _pairs
from regard.serve.service import Service

BROKEN = 60.0  # seconds after which a limit of a second has not worked: a test of it fails instead of hanging


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    access = Access(hosts=("translate.example",), origins=frozenset(["https://editor.example"]))
    with serving(limits={"reading": 1.0}, access=access) as server:
        server.client.timeout = BROKEN
        yield server


def sentences(server: Server) -> float:
    """How many sentences the model has translated."""
    return value(server, "regard_batch_sentences_sum")


def filled(size: int) -> bytes:
    """A request to translate of a given size in bytes."""
    body = json.dumps({"q": "ba", "source": "en", "target": "de", "padding": ""}).encode()
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(("size", "status"), [(2**20 - 1, 200), (2**20, 200), (2**20 + 1, 413)])
def test_the_body_has_at_most_a_mebibyte(server: Server, size: int, status: int) -> None:
    assert server.client.post("/translate", content=filled(size), headers=JSON).status_code == status


def test_a_body_without_a_declared_length_is_counted_too(server: Server) -> None:
    before = sentences(server)
    parts = iter([filled(2**20 + 1)[at : at + 65536] for at in range(0, 2**20 + 1, 65536)])
    response = server.client.post("/translate", content=parts, headers=JSON)
    assert response.status_code == 413
    assert response.json() == {"error": "The request is larger than 1048576 bytes."}
    assert sentences(server) == before


def test_clients_that_do_not_read_take_no_open_file_for_long() -> None:
    """More of them than the process may have open files: they are dropped, and others are answered."""
    server = Server(trained(), files=160, limits={"reading": 1.0})
    request = b"GET /page/stage.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40
    lines = []
    try:
        for _ in range(200):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            line.settimeout(BROKEN)
            lines.append(line)
            with suppress(OSError):  # no open file is left for it
                line.connect(("127.0.0.1", server.port))
                line.sendall(request)

        def answered() -> bool:
            given = {"q": "ba da", "source": "en", "target": "de"}
            try:
                found = httpx.post(f"{server.address}translate", json=given, timeout=BROKEN, trust_env=False)
            except httpx.TransportError:
                return False
            assert found.status_code in (200, 503), found.text
            return found.status_code == 200

        until(answered, 0.2, most=BROKEN)
    finally:
        for line in lines:
            line.close()
        assert server.stop() == 0


@pytest.mark.parametrize(("texts", "status"), [(127, 200), (128, 200), (129, 400)])
def test_a_request_has_at_most_128_texts(server: Server, texts: int, status: int) -> None:
    response = server.post("/translate", q=["ba da"] * texts, source="en", target="de")
    assert response.status_code == status
    if status == 400:
        assert response.json() == {"error": "Invalid request: request (129) exceeds text limit (128)"}
        assert server.post("/v2/translate", text=["ba da"] * texts, target_lang="DE").status_code == 413


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ba da " * 10_922, id="words"),
        pytest.param("a" * 65_536, id="no spaces"),
        pytest.param("a" + " " * 65_000 + "a", id="spaces"),
        pytest.param("ba da\n" * 1023 + "ba" * 100, id="lines", marks=pytest.mark.slow),
        pytest.param("\U0001f600a" * 32_768, id="emoji", marks=pytest.mark.slow),
    ],
)
def test_any_text_within_the_character_limit_is_translated(brief: Server, text: str) -> None:
    """charLimit is true: long lines are cut into sentences, whatever they contain."""
    limit = brief.client.get("/frontend/settings").json()["charLimit"]
    assert len(text) <= limit == 65_536
    written = brief.translate(text)["translatedText"]
    assert all(line.strip() for line in written.split("\n"))
    assert written.count("\n") == text.count("\n")
    refused = brief.post("/translate", q=text.ljust(limit + 1), source="en", target="de")
    assert (refused.status_code, "exceeds text limit" in refused.json()["error"]) == (422, True)


@pytest.mark.parametrize(("lines", "status"), [(1024, 200), (1025, 413), (21_000, 413)])
def test_lines_count_as_sentences(brief: Server, lines: int, status: int) -> None:
    for fields in (
        {"q": "a\n" * lines},
        {"q": ["a\n" * (lines - 1), "a"]},
        {"q": "<p>a</p>" * lines, "format": "html"},
    ):
        found = brief.post("/translate", **{**fields, "source": "en", "target": "de"})
        assert found.status_code in ({status} if len(str(fields)) < 65_000 else {413, 422}), found.text


def test_a_json_body_has_at_most_10000_values(server: Server) -> None:
    for more, status in ((9_990, 200), (10_010, 413)):
        body = json.dumps({"q": 'ba da, "x" \\', "source": "en", "target": "de", "more": [1] * more})
        assert server.client.post("/translate", content=body, headers=JSON).status_code == status
    text = json.dumps({"q": '"ba", da [' * 5000, "source": "en", "target": "de"})
    assert server.client.post("/detect", content=text, headers=JSON).status_code == 200, (
        "commas of a text are no values"
    )


@pytest.fixture(scope="module")
def brief() -> Iterator[Server]:
    """A model that writes one word for each sentence, so that long texts take little time and need no limit on it."""
    short = ["decode.beam=1", "decode.max_ratio=0.0", "decode.max_extra=2", "decode.min_length=1"]
    with serving(trained("bahdanau", *ATTENTIVE, *short, steps=4)) as server:
        yield server


@pytest.fixture(scope="module")
def quick() -> Iterator[Server]:
    with serving(limits={"seconds": 0.3}) as server:
        server.client.timeout = BROKEN
        yield server


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    with serving(limits={"sending": 1.0, "sending_picture": 1.0}) as server:
        server.client.timeout = BROKEN
        yield server


def test_time_is_limited_and_the_server_goes_on(quick: Server) -> None:
    response = quick.post("/translate", q=" ".join(["ba"] * 20_000), source="en", target="de")
    assert response.status_code == 503
    assert response.json() == {"error": "This took longer than 0.3 seconds."}
    assert "retry-after" in response.headers
    until(lambda: quick.post("/translate", q="ba da", source="en", target="de").status_code == 200, most=BROKEN)


def test_one_deadline_for_all_that_a_request_needs(quick: Server) -> None:
    """With alignment every sentence is traced after it was translated, all within the time of the one request."""
    short = {"q": "ba da", "source": "en", "target": "de", "alignment": True}
    until(lambda: quick.post("/translate", **short).json().get("alignment"), most=BROKEN)
    long = {**short, "q": [" ".join(["ba"] * 600)] * 100}
    response = quick.post("/translate", **long)
    assert (response.status_code, response.json()) == (503, {"error": "This took longer than 0.3 seconds."})
    until(lambda: value(quick, "regard_waiting_requests") == 0, most=BROKEN)
    until(lambda: quick.post("/translate", **short).json().get("translatedText") == "da ba", most=BROKEN)


@pytest.mark.parametrize(("depth", "status"), [(31, 200), (32, 200), (33, 422), (900_000 // 2, 422)])
def test_json_is_at_most_32_levels_deep(server: Server, depth: int, status: int) -> None:
    deep = "[" * (depth - 1) + "]" * (depth - 1)
    body = f'{{"q":"ba da","source":"en","target":"de","deep":{deep}}}'
    response = server.client.post("/translate", content=body, headers=JSON)
    assert response.status_code == status


@pytest.mark.parametrize(("headers", "status"), [(99, 200), (100, 200), (101, 431)])
def test_a_request_has_at_most_100_headers(server: Server, headers: int, status: int) -> None:
    assert raw(server, [f"X-{number}: 1" for number in range(headers - 2)])[0] == status


@pytest.mark.parametrize(("size", "status"), [(60_000, 200), (66_000, 431), (120_000, 431)])
def test_headers_have_at_most_64_kibibytes(server: Server, size: int, status: int) -> None:
    code, text = raw(server, [f"X: {'x' * size}"])
    assert code == status
    if status == 431:
        assert set(json.loads(text.partition("\r\n\r\n")[2])) == {"error"}


def raw(
    server: Server, headers: list[str], first: str = "GET /health HTTP/1.1", hosts: tuple[str, ...] = ("localhost",)
) -> tuple[int, str]:
    """Send a request as it stands: the status and the whole answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=BROKEN) as line:
        line.sendall(
            "\r\n".join([first, *(f"Host: {host}" for host in hosts), "Connection: close", *headers, "", ""]).encode()
        )
        text = b""
        while part := line.recv(65536):
            text += part
    return int(text.split(b" ")[1]), text.decode()


def test_what_is_no_http_is_refused(server: Server) -> None:
    assert raw(server, [], first="HELO you")[0] == 400


def test_a_head_that_does_not_end_takes_little_memory(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=BROKEN) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            line.sendall((b"X: " + b"x" * 65_536 + b"\r\n") * 1000)
    assert raw(server, [])[0] == 200


def test_beyond_the_bound_on_connections_requests_are_refused() -> None:
    """Also if the others are silent: dropping those is the task of a reverse proxy."""
    with serving(limits={"connections": 8}) as server:
        server.client.close()
        lines = [socket.create_connection(("127.0.0.1", server.port), timeout=BROKEN) for _ in range(8)]
        for line in lines:
            line.sendall(b"POST /translate HTTP/1.1\r\nHost: loc")  # and never the rest
        until(lambda: raw(server, [])[0] == 503, most=BROKEN)
        for line in lines:
            line.close()
        until(lambda: raw(server, [])[0] == 200, most=BROKEN)


def test_a_client_that_does_not_read_is_dropped(server: Server) -> None:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(BROKEN)
        line.connect(("127.0.0.1", server.port))
        body = json.dumps({"text": " ".join(["ba"] * 900), "target": " ".join(["ba"] * 900)}).encode()
        head = f"POST /api/v1/trace HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        given_up = 'regard_requests_total{path="/api/v1/trace",status="200"}'
        until(lambda: value(server, given_up) == 1, most=BROKEN)  # it never ends in another way
        assert value(server, "regard_held_bytes") == 0, "nothing is kept for it any more"
        # Nor by the system: what it has buffered is dropped, and the connection with it.
        until(lambda: connections(server) == 1, most=BROKEN)


def connections(server: Server) -> int:
    """How many connections of a server the system holds."""
    lines = Path("/proc/net/tcp").read_text().split("\n")[1:-1]
    established = [line.split()[1] for line in lines if line.split()[3] in ("01", "04", "05", "08")]
    return sum(local.endswith(f":{server.port:04X}") for local in established)


def value(server: Server, name: str) -> float:
    lines = server.client.get("/metrics").text.split("\n")
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith(name))


def test_a_body_that_never_ends_is_given_up(hasty: Server) -> None:
    for path in ("/translate", "/translate_file", "/v2/translate", "/api/v1/trace", "/languages"):
        method = "GET" if path == "/languages" else "POST"
        headers = ["Content-Length: 100", "Content-Type: application/json"]
        code, text = raw(hasty, headers, first=f"{method} {path} HTTP/1.1")
        assert (code, "took too long to arrive" in text) == (408, True), path


# --- who may come in

OUR_HOSTS = ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:1", "127.0.0.1:65535"]
OTHER_HOSTS = [
    "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:5000", "0.0.0.0", "127.1",
    "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "192.168.0.1", "10.0.0.1:5000", "localhost.", "xn--lcalhost-x0a",
]  # fmt: skip
NO_HOSTS = [
    "", "localhost@evil.example", "evil.example@localhost", "localhost/", "localhost:", "localhost,evil.example",
    "localhost evil.example", "[::1", "::1", "ｌｏｃａｌｈｏｓｔ", "localhost%00", "localhost:99999999",
]  # fmt: skip
OUR_ORIGINS = [None, "http://{host}", "https://{host}", "HTTP://{host}"]
OTHER_ORIGINS = [
    "null", "", "http://", "http://evil.example", "https://evil.example", "http://{host}.evil.example", "{host}",
    "http://evil.example:5000", "http://{host}@evil.example", "http://evil.example/{host}", "http://{host}/",
    "ftp://{host}", "file://", "chrome-extension://abcdef", "http://localhost:3000", "http://{host}:1",
]  # fmt: skip
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD")


def test_3600_ways_to_ask_from_another_website() -> None:
    """Every method, 30 hosts, 20 origins: only our own names, from our own page or from no page at all, come in."""
    access, tried = Access(), 0
    hosts, origins = [*OUR_HOSTS, *OTHER_HOSTS, *NO_HOSTS], [*OUR_ORIGINS, *OTHER_ORIGINS]
    for method, host, origin in itertools.product(METHODS, hosts, origins):
        sent = [("host", host)] if origin is None else [("host", host), ("origin", origin.format(host=host))]
        headers = Headers(raw=[(name.encode(), value.encode()) for name, value in sent])
        if host in OUR_HOSTS and origin in OUR_ORIGINS:
            access.check(method, "/translate", headers)
        else:
            with pytest.raises(RefusedError) as refused:
                access.check(method, "/translate", headers)
            assert refused.value.status == (400 if host in NO_HOSTS else 403)
        tried += 1
    assert tried == 3600


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("hosts", [(), ("",), ("localhost", "localhost"), ("localhost:port",)])
def test_a_request_must_say_once_to_whom(server: Server, hosts: tuple[str, ...], version: str) -> None:
    for path in ("/", "/health", "/translate"):
        code, text = raw(server, [], f"GET {path} HTTP/{version}", hosts)
        assert code == 400
        assert '{"error":"The Host' in text or "Invalid HTTP request" in text


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, None),
        ({}, None),
    ],
)
def test_access_is_checked_for_every_method(server: Server, method: str, headers: dict, status: int | None) -> None:
    found = server.client.request(method, "/translate", headers=headers).status_code
    assert found == status if status else found != 403


def test_another_site_may_link_to_the_page_and_to_nothing_else(server: Server) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert server.client.get("/", headers=headers).status_code == 200
    assert server.client.get("/languages", headers=headers).status_code == 403


def test_a_preflight_of_an_allowed_origin_is_answered(server: Server) -> None:
    headers = {
        "origin": "https://editor.example",
        "access-control-request-method": "POST",
        "host": "translate.example",
    }
    answer = server.client.options("/translate", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://editor.example"
    assert "access-control-allow-credentials" not in answer.headers
    headers["origin"] = "https://other.example"
    assert server.client.options("/translate", headers=headers).status_code == 403


def test_beyond_loopback_a_token_is_needed() -> None:
    with serving(access=Access("0.0.0.0")) as server:
        token = server.fragment.removeprefix("token=")
        assert len(token) >= 32
        fields = {"q": "ba da", "source": "en", "target": "de"}
        translated = {"translatedText": "da ba"}
        missing = server.post("/translate", **fields)
        assert (missing.status_code, missing.json()["error"]) == (
            400,
            "Please contact the server operator to get an API key",
        )
        assert server.post("/translate", **fields, api_key="wrong").json() == {"error": "Invalid API key"}
        assert server.post("/translate", **fields, api_key=token).json() == translated
        assert server.post("/translate", **fields, apiKey=token).json() == translated
        bearer = {"authorization": f"Bearer {token}"}
        assert server.client.post("/translate", data=fields, headers=bearer).json() == translated
        deepl = {"authorization": f"DeepL-Auth-Key {token}"}
        assert server.client.get("/v2/usage", headers=deepl).status_code == 200
        assert server.client.get("/v2/usage").status_code == 403
        for path in ("/languages", "/metrics", "/spec", "/api/v1/models"):
            assert server.client.get(path).status_code == 400, path
            assert server.client.get(path, params={"api_key": token}).status_code == 200, path
        for path in ("/", "/docs", "/page/docs.js", "/health"):
            assert server.client.get(path).status_code == 200, path
        assert server.client.get("/", headers={"host": "192.168.7.7:5000"}).status_code == 200
        assert server.client.get("/", headers={"host": "evil.example"}).status_code == 403
        assert token not in server.client.get("/spec", headers=bearer).text


def test_a_token_that_could_be_guessed_or_not_sent_is_refused() -> None:
    for token in ("short", "with space in it", "naïve-token"):
        with pytest.raises(ConfigError, match="at least 8 characters"):
            AccessToken("default", token)


def test_tokens_come_from_a_file_and_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text('[tokens.editor]\ntoken = "secret-of-the-editor"\nrate = 2\nquota = 100\n')
    monkeypatch.setenv("REGARD_TOKEN", "secret-of-the-shell")
    file.chmod(0o644)
    shell, editor = read_tokens(None, file)
    assert f"Other users of this machine may read the tokens in {file}" in capsys.readouterr().err
    file.chmod(0o640)
    assert len(read_tokens(None, file)) == 2
    assert not capsys.readouterr().err
    assert (shell.name, editor.name, editor.rate, editor.quota) == ("default", "editor", 2, 100)
    access = Access(tokens=(shell, editor))
    for secret, found in (("secret-of-the-shell", shell), ("secret-of-the-editor", editor)):
        assert access.admit("/translate", Headers({"authorization": f"Bearer {secret}"}), None) is found
    with pytest.raises(RefusedError, match="Invalid API key"):
        access.admit("/translate", Headers(), "secret-of-the")
    for text in (
        "",
        "[tokens.a]\ntoken = 5\n",
        '[tokens.a]\ntoken = "long enough"\nspeed = 1\n',
        "[tokens",
        "tokens = 1",
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"tokens\.NAME"):
            read_tokens(None, file)


def test_a_token_has_a_rate_and_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 50.0)  # the machine has just started
    token = AccessToken("editor", "secret-of-the-editor", rate=2, quota=100)
    now = token._seen
    for _ in range(2):
        token.count_request(now)
    with pytest.raises(RefusedError) as refused:
        token.count_request(now)
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
    token.count_request(now + 0.5)
    token.count_characters(100, now, "/translate")
    for path, status in (("/translate", 403), ("/v2/translate", 456)):
        with pytest.raises(RefusedError) as refused:
            token.count_characters(1, now, path)
        assert refused.value.status == status
    with pytest.raises(RefusedError):
        token.count_characters(1, now + 86_390, "/translate")
    token.count_characters(100, now + 86_401, "/translate")


def test_usage_is_that_of_the_token_with_its_quota() -> None:
    limited = AccessToken("editor", "secret-of-the-editor", quota=100)
    unlimited = AccessToken("reader", "secret-of-the-reader")
    service = Service([], Limits(), Access(tokens=(limited, unlimited)))
    service.open()
    client = TestClient(build(service), base_url="http://localhost")
    limited.count_characters(40, time.monotonic(), "/v2/translate")
    for token, used, quota in ((limited, 40, 100), (unlimited, 0, 10**12)):
        answer = client.get("/v2/usage", headers={"authorization": f"DeepL-Auth-Key {token.secret.decode()}"})
        assert answer.json() == {"character_count": used, "character_limit": quota}
    service.close()


def test_the_log_says_a_thing_once_a_minute() -> None:
    once = OncePerMinute()
    records = [
        logging.makeLogRecord({"msg": msg, "created": at}) for at, msg in ((0, "a"), (1, "a"), (2, "b"), (61, "a"))
    ]
    assert [once.filter(record) for record in records] == [True, False, True, True]
    assert records[-1].msg == "a (and 1 more times)"


def test_limits_are_changed_by_name() -> None:
    changed = Limits().changed(["seconds=1.5", "queue=3"])
    assert (changed.seconds, changed.queue, changed.body) == (1.5, 3, Limits().body)
    for setting, sentence in (
        ("second=1", "Did you mean 'seconds'"),
        ("queue=x", "limit.queue must be a whole number; got 'x'"),
        ("queue=0", "limit.queue must be above 0"),
        ("queue", "A limit must be NAME=NUMBER; got 'queue'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Limits().changed([setting])


def test_every_answer_carries_its_policy(server: Server) -> None:
    for path in ("/", "/page/app.js", "/languages", "/nothing", "/health"):
        headers = server.client.get(path).headers
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


@given(st.lists(st.sampled_from([b"%", b"&", b"=", b"+", b"a", b"%41", b"%ff", b"%C3%A9", b"\xc3\xa9", b"%e", b";"])))
def test_fields_of_a_form_are_those_of_urllib(parts: list[bytes]) -> None:
    encoded = b"".join(parts)
    assert _pairs(encoded) == parse_qsl(encoded.decode("utf-8", "replace"), keep_blank_values=True)
