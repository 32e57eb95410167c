"""Limits on by default, refused before any model runs; who may come in; and what every answer carries."""

import itertools
import json
import socket
from collections.abc import Iterator

import pytest
from serve_parts import Server, serving
from starlette.datastructures import Headers

from regard.errors import ConfigError
from regard.serve.door import Door
from regard.serve.process import serve
from regard.serve.refusal import RefusedError


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def sentences(server: Server) -> float:
    """How many sentences the model has translated."""
    lines = server.client.get("/metrics").text.split("\n")
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith("regard_batch_sentences_sum"))


def filled(size: int) -> bytes:
    """A request to translate of so many bytes."""
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


@pytest.mark.parametrize(("texts", "status"), [(127, 200), (128, 200), (129, 400)])
def test_a_request_has_at_most_128_texts(server: Server, texts: int, status: int) -> None:
    response = server.post("/translate", q=["ba da"] * texts, source="en", target="de")
    assert response.status_code == status
    if status == 400:
        assert response.json() == {"error": "Invalid request: request (129) exceeds text limit (128)"}
        assert server.post("/v2/translate", text=["ba da"] * texts, target_lang="DE").status_code == 413


@pytest.mark.parametrize(("words", "status"), [(4094, 503), (4095, 503), (4096, 422), (40_000, 422)])
def test_a_text_has_at_most_4096_tokens(words: int, status: int, server: Server, quick: Server) -> None:
    """Those within the limit are begun (and here stopped by the time limit), those beyond are never begun."""
    response = quick.post("/translate", q=" ".join(["ba"] * words), source="en", target="de")
    assert response.status_code == status, response.text


@pytest.fixture(scope="module")
def quick() -> Iterator[Server]:
    with serving(limits={"seconds": 0.3, "sending": 1.0}) as server:
        yield server


def test_time_is_limited_and_the_server_goes_on(quick: Server) -> None:
    response = quick.post("/translate", q=" ".join(["ba"] * 4000), source="en", target="de")
    assert response.status_code == 503
    assert response.json() == {"error": "This took longer than 0.3 seconds."}
    assert "retry-after" in response.headers
    for _ in range(50):
        if quick.post("/translate", q="ba da", source="en", target="de").status_code == 200:
            return
    raise AssertionError("The server does not translate any more.")


@pytest.mark.parametrize(("depth", "status"), [(31, 200), (32, 200), (33, 422), (900_000 // 2, 422)])
def test_json_is_at_most_32_levels_deep(server: Server, depth: int, status: int) -> None:
    deep = "[" * (depth - 1) + "]" * (depth - 1)
    body = f'{{"q":"ba da","source":"en","target":"de","deep":{deep}}}'
    response = server.client.post("/translate", content=body, headers=JSON)
    assert response.status_code == status


@pytest.mark.parametrize(("headers", "status"), [(99, 200), (100, 200), (101, 431)])
def test_a_request_has_at_most_100_headers(server: Server, headers: int, status: int) -> None:
    assert raw(server, [f"X-{number}: 1" for number in range(headers - 2)])[0] == status


@pytest.mark.parametrize(("size", "status"), [(60_000, 200), (66_000, 431), (300_000, 431)])
def test_headers_have_at_most_64_kibibytes(server: Server, size: int, status: int) -> None:
    code, text = raw(server, [f"X: {'x' * size}"])
    assert code == status
    if status == 431:
        assert set(json.loads(text.partition("\r\n\r\n")[2])) == {"error"}


def raw(
    server: Server, headers: list[str], first: str = "GET /health HTTP/1.1", host: str = "localhost"
) -> tuple[int, str]:
    """Send a request as it stands: the status and the whole answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        line.sendall("\r\n".join([first, f"Host: {host}", "Connection: close", *headers, "", ""]).encode())
        text = b""
        while part := line.recv(65536):
            text += part
    return int(text.split(b" ")[1]), text.decode()


def test_what_is_no_http_gets_a_json_answer(server: Server) -> None:
    code, text = raw(server, [], first="HELO you")
    assert code == 400
    assert json.loads(text.partition("\r\n\r\n")[2]) == {"error": "This is not an HTTP request."}


def test_clients_that_never_finish_their_request_are_let_go(quick: Server) -> None:
    lines = [socket.create_connection(("127.0.0.1", quick.port), timeout=20) for _ in range(100)]
    for line in lines:
        line.sendall(b"POST /translate HTTP/1.1\r\nHost: loc")  # and never the rest
    assert quick.client.get("/languages").status_code == 200
    assert lines[0].recv(1) == b"", "the connection was closed"
    for line in lines:
        line.close()


def test_a_body_that_never_ends_is_given_up(quick: Server) -> None:
    code, text = raw(quick, ["Content-Length: 100", "Content-Type: application/json"], first="POST /translate HTTP/1.1")
    assert code == 408
    assert "took too long to arrive" in text


# --- who may come in

OUR_HOSTS = ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:1", "127.0.0.1:65535"]
OTHER_HOSTS = [
    "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:5000", "0.0.0.0", "127.1",
    "2130706433", "0x7f000001", "localhost@evil.example", "evil.example@localhost", "localhost/", "localhost:",
    "localhost,evil.example", "localhost evil.example", "[::1", "::1", "[::ffff:127.0.0.1]", "192.168.0.1",
    "10.0.0.1:5000", "localhost.", "xn--lcalhost-x0a", "ｌｏｃａｌｈｏｓｔ",
    "localhost%00", "localhost:99999999",
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
    door, tried = Door(), 0
    hosts, origins = [*OUR_HOSTS, *OTHER_HOSTS], [*OUR_ORIGINS, *OTHER_ORIGINS]
    for method, host, origin in itertools.product(METHODS, hosts, origins):
        sent = [("host", host)] if origin is None else [("host", host), ("origin", origin.format(host=host))]
        headers = Headers(raw=[(name.encode(), value.encode()) for name, value in sent])
        if host in OUR_HOSTS and origin in OUR_ORIGINS:
            door.check(method, "/translate", headers)
        else:
            with pytest.raises(RefusedError) as refused:
                door.check(method, "/translate", headers)
            assert refused.value.status == 403
        tried += 1
    assert tried == 3600


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
def test_the_door_stands_before_every_method(server: Server, method: str, headers: dict, status: int | None) -> None:
    found = server.client.request(method, "/translate", headers=headers).status_code
    assert found == status if status else found != 403


def test_another_site_may_link_to_the_page_and_to_nothing_else(server: Server) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert server.client.get("/", headers=headers).status_code == 200
    assert server.client.get("/languages", headers=headers).status_code == 403


def test_a_preflight_of_an_allowed_origin_is_answered() -> None:
    with serving(origins=["https://editor.example"], hosts=["translate.example"]) as server:
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
    with serving(host="0.0.0.0") as server:
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
        assert server.client.get("/").status_code == 200
        assert server.client.get("/health").status_code == 200
        assert server.client.get("/", headers={"host": "192.168.7.7:5000"}).status_code == 200
        assert server.client.get("/", headers={"host": "evil.example"}).status_code == 403
        assert token not in server.client.get("/spec", headers=bearer).text


def test_a_token_that_could_be_guessed_or_not_sent_is_refused() -> None:
    for token in ("short", "with space in it", "naïve-token"):
        with pytest.raises(ConfigError, match="at least 8 characters"):
            serve(["none"], token=token)


def test_every_answer_carries_its_policy(server: Server) -> None:
    for path in ("/", "/page/app.js", "/languages", "/nothing", "/health"):
        headers = server.client.get(path).headers
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
