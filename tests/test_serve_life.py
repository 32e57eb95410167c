"""A server under way: overload, clients that leave, and SIGTERM with requests in flight."""

import asyncio
import http.client
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
import torch
from commands import forked_children
from patience import PATIENCE, until
from serve_parts import Server, serving, trained

from regard.serve.access import Access
from regard.serve.limits import Limits
from regard.serve.loading import NICE, load_model

SYLLABLES = [first + second for first in "bdfgklmn" for second in "aeiou"]
LONG = " ".join(["ba"] * 3000)
MANY = 40  # such texts in one request are many seconds of work


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(limits={"queue": 16}, fresh=True) as server:
        yield server


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(SYLLABLES, k=2))


def request(*texts: str) -> bytes:
    """A request to translate as it goes over the wire."""
    body = json.dumps({"q": texts, "source": "en", "target": "de"}).encode()
    head = ["POST /translate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def total(server: Server, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = server.client.get("/metrics").text.split("\n")
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith(name))


def waiting(server: Server) -> float:
    return total(server, "regard_waiting_requests")


async def storm(server: Server, clients: int, least: int, answers: dict[str, str]) -> tuple[Counter[int], int]:
    """Clients that send as fast as they can, at least so many requests and until one is refused.

    The number of answers by status, and how many were wrong.
    """
    answered: Counter[int] = Counter()
    wrong = 0
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def client(number: int, line: httpx.AsyncClient) -> None:
        nonlocal wrong
        draw = random.Random(number)
        while answered.total() < least or not answered[429]:
            text = draw.choice(list(answers))
            response = await line.post("/translate", json={"q": text, "source": "en", "target": "de"})
            answered[response.status_code] += 1
            if response.status_code == 429:
                assert response.headers["retry-after"] == "1"
                await asyncio.sleep(draw.uniform(0.05, 0.15))
            elif response.json().get("translatedText") != answers[text]:
                wrong += 1

    async with httpx.AsyncClient(base_url=server.address, timeout=PATIENCE, limits=limits, trust_env=False) as line:
        await asyncio.gather(*(client(number, line) for number in range(clients)))
    return answered, wrong


def overload(server: Server, clients: int, requests: int) -> None:
    draw = random.Random(1)
    texts = [sentence(draw) for _ in range(20)]
    answers = {text: server.translate(text)["translatedText"] for text in texts}
    asyncio.run(storm(server, 32, 15, answers))  # what the first requests allocate stays
    before = server.memory
    answered, wrong = asyncio.run(storm(server, clients, requests, answers))
    assert wrong == 0
    assert set(answered) == {200, 429}, answered
    assert server.translate(texts[0])["translatedText"] == answers[texts[0]]
    until(lambda: waiting(server) == 0)
    assert server.memory - before < 64


def test_overload_is_refused_and_no_client_gets_a_wrong_answer(server: Server) -> None:
    overload(server, clients=32, requests=40)


@pytest.mark.slow
def test_256_clients(server: Server) -> None:
    overload(server, clients=256, requests=20_000)


def test_200_clients_that_leave_free_their_slots(server: Server) -> None:
    draw = random.Random(2)
    for _ in range(200):
        line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        line.sendall(request(LONG if draw.random() < 0.3 else sentence(draw)))
        time.sleep(draw.uniform(0, 0.01))
        line.close()
    until(lambda: waiting(server) == 0)
    assert server.translate("ba da")["translatedText"] == "da ba"
    assert server.client.get("/health").json() == {"status": "ok"}


def test_long_texts_let_a_short_one_through(server: Server) -> None:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    line.sendall(request(*[LONG] * MANY))
    until(lambda: waiting(server) == 1)
    assert server.translate("ba da")["translatedText"] == "da ba"
    assert waiting(server) == 1, "the long one is still under way"
    line.close()


@contextmanager
def without_room(**settings: Any) -> Iterator[tuple[Server, int, socket.socket]]:
    """A server whose only place is taken, its model process, which is stopped, and the connection that waits."""
    with (
        serving(limits={"queue": 1}, **settings) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as first,
    ):
        child = server.model_process()
        os.kill(child, signal.SIGSTOP)
        first.sendall(request("ba da"))
        until(lambda: waiting(server) == 1)
        yield server, child, first


def test_a_request_without_room_is_refused_for_its_head_alone() -> None:
    """Nothing of it is parsed, the connection stays usable, and a large body does not lose the answer."""
    with without_room(access=Access(origins=frozenset(["https://editor.example"]))) as (server, child, first):
        before = total(server, "regard_refused_total")
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        for body in (b"not JSON", b"", b"x" * (3 << 20)):
            line.request("POST", "/translate", body, {"Content-Type": "application/json"})
            response = line.getresponse()
            assert (response.status, response.getheader("Retry-After")) == (429, "1")
            assert response.getheader("X-Content-Type-Options") == "nosniff"
            assert json.loads(response.read()) == {
                "error": "Slowdown: too many requests are waiting, try again in a second"
            }
        line.request("GET", "/languages")
        assert line.getresponse().status == 200, "on the same connection, what needs no model"
        line.close()
        assert total(server, "regard_refused_total") == before + 3

        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
            head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %s\r\n\r\n"
            line.sendall(head % (server.port, b"9" * 5000))
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 400"), "a length that no number is"

        post = server.client.post
        assert "message" in post("/v2/translate", headers={"Connection": "close"}, content=b"x" * (3 << 20)).json()
        allowed = post(
            "/translate", headers={"Origin": "https://editor.example"}, json={"q": "ba", "source": "en", "target": "de"}
        )
        assert (allowed.status_code, allowed.headers["Access-Control-Allow-Origin"]) == (429, "https://editor.example")
        assert post("/translate", headers={"Host": "elsewhere.example"}).status_code == 403
        assert post("/detect", json={"q": 1}).status_code == 400, "the queue is not its concern"

        os.kill(child, signal.SIGCONT)
        found = b""
        while b"}" not in found and (part := first.recv(1 << 16)):
            found += part
        assert b"da ba" in found, "what was accepted gets its answer"


def test_of_many_requests_at_once_only_those_with_room_are_accepted() -> None:
    with serving(limits={"queue": 1}) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        lines = [stack.enter_context(socket.create_connection(address, timeout=PATIENCE)) for _ in range(20)]
        assert server.client.get("/health").status_code == 200  # all of them are accepted
        child = server.model_process()
        for process in (child, server.process.pid):
            os.kill(process, signal.SIGSTOP)
        for line in lines:
            line.sendall(request("ba da"))
        os.kill(server.process.pid, signal.SIGCONT)
        until(lambda: total(server, "regard_refused_total") == 19)
        os.kill(child, signal.SIGCONT)
        found = Counter(line.recv(1 << 16).split(b" ", 2)[1] for line in lines)
        assert found == {b"200": 1, b"429": 19}


def test_what_is_not_http_is_answered_after_what_is(server: Server) -> None:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    line.sendall(request("ba da") + b"\0\0 no request\r\n\r\n")
    found = b""
    while part := line.recv(1 << 16):
        found += part
    assert found.startswith(b"HTTP/1.1 200 ")
    assert b"da ba" in found
    assert b"HTTP/1.1 400 " in found
    line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    line.sendall(head + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n")
    assert line.recv(1 << 16).startswith(b"HTTP/1.1 400 "), "a body that does not end"
    line.close()


def test_models_leave_the_server_a_core_and_stand_back(server: Server) -> None:
    """Threads wait for each other at every operation: more than there are cores make a model many times slower."""
    started = forked_children(server.process.pid)
    assert len(started) == 2, "the model and the reader"
    mine = os.getpriority(os.PRIO_PROCESS, server.process.pid)
    assert [os.getpriority(os.PRIO_PROCESS, child) for child in started] == [mine + NICE] * 2
    torch.set_num_threads(3)
    try:
        load_model(str(trained()), Limits(), threads=2)
        assert torch.get_num_threads() == 2
        load_model(str(trained()), Limits(), threads=8)
        assert torch.get_num_threads() == 2, "a smaller number of the environment holds"
    finally:
        torch.set_num_threads(1)


def test_a_killed_model_or_reader_is_replaced_while_the_server_answers(server: Server) -> None:
    killed = forked_children(server.process.pid)
    before = total(server, "regard_model_restarts_total")
    for child in killed:
        os.kill(child, signal.SIGKILL)
    until(lambda: total(server, "regard_model_restarts_total") == before + 2)
    assert server.translate("ba da")["translatedText"] == "da ba", "it waits for the new process"
    assert server.translate("<p>ba da", format="html")["translatedText"] == "<p>da ba"
    until(lambda: server.client.get("/health").status_code == 200)
    assert not set(killed) & set(forked_children(server.process.pid))


def test_a_parser_that_hangs_stops_neither_the_server_nor_its_end() -> None:
    with serving(limits={"stuck": 1.0}) as server:
        reader = server.model_process(reader=True)
        os.kill(reader, signal.SIGSTOP)
        text = {"q": "ba da", "source": "en", "target": "de"}
        html = {**text, "q": "<p>ba da", "format": "html"}
        assert server.post("/translate", **html).status_code == 503
        until(lambda: server.client.get("/health").status_code == 200)
        until(lambda: server.post("/translate", **text).status_code == 200)
        assert server.model_process(reader=True) != reader, "it was replaced"
        until(lambda: server.post("/translate", **html).status_code == 200)
        upload = {"data": {"source": "en", "target": "de"}, "files": {"file": ("x.md", b"ba da\n")}}
        until(lambda: server.client.post("/translate_file", **upload).status_code == 200)


def stopped(server: Server, clients: int, seed: int) -> tuple[int, Counter[str], int]:
    """SIGTERM between the requests of several clients.

    The exit code, what became of the requests, and how many were sent before the signal.
    """
    draw = random.Random(seed)
    before = draw.randrange(clients + 1)
    body = json.dumps({"q": [sentence(draw)] * 8, "source": "en", "target": "de"})
    lines = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE) for _ in range(clients)]
    for line in lines:
        line.request("GET", "/health")  # so that every request goes over a connection that is already accepted
        line.getresponse().read()
    results: Counter[str] = Counter()
    for number, line in enumerate(lines):
        if number == before:
            server.send(signal.SIGTERM)
        with suppress(OSError):  # sent after the end
            line.request("POST", "/translate", body, {"Content-Type": "application/json"})
    if before == clients:
        server.send(signal.SIGTERM)
    for number, line in enumerate(lines):
        try:
            response = line.getresponse()
            found = json.loads(response.read())
            right = response.status != 200 or len(found["translatedText"]) == 8
            results[str(response.status) if right else "wrong"] += 1
        except (http.client.HTTPException, OSError):
            results["sent too late" if number >= before else "lost"] += 1
        line.close()
    return server.wait(), results, before


def test_sigterm_loses_nothing_that_was_accepted() -> None:
    check_stop(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
def test_sigterm_loses_nothing_twenty_times(seed: int) -> None:
    check_stop(seed)


def check_stop(seed: int) -> None:
    server = Server(trained())
    code, results, before = stopped(server, clients=16, seed=seed)
    assert code == 0, server.errors()
    assert set(results) <= {"200", "503", "429", "sent too late"}, (seed, before, results)


def test_while_it_stops_the_server_is_not_ready() -> None:
    server = Server(trained())
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        line.sendall(request(*[LONG] * MANY))
        until(lambda: waiting(server) == 1)
        server.send(signal.SIGTERM)
        until(lambda: server.client.get("/health").status_code == 503)
        assert server.client.get("/health").json()["error"] == "stopping"
        refused = server.post("/translate", q="ba", source="en", target="de")
        assert (refused.status_code, refused.json()["error"]) == (503, "The server is shutting down.")
        assert refused.headers["connection"] == "close"
    assert server.wait() == 0


def test_a_request_that_is_not_done_when_the_time_to_stop_is_over_gets_its_503() -> None:
    server = Server(trained(), limits={"drain": 0.2})
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        line.sendall(request(*[LONG] * MANY))
        until(lambda: waiting(server) == 1)
        server.send(signal.SIGTERM)
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 503 "), answer
    assert b"The server is shutting down." in answer
    assert server.wait() == 0
    assert "Traceback" not in server.errors()
