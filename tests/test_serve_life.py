"""A server under way: overload, clients that leave, and SIGTERM with requests in flight."""

import asyncio
import json
import random
import signal
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from serve_parts import Server, serving, trained

SYLLABLES = [first + second for first in "bdfgklmn" for second in "aeiou"]
LONG = " ".join(["ba"] * 3000)
MANY = 40  # such texts in one request are many seconds of work


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(limits={"queue": 16}) as server:
        yield server


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(SYLLABLES, k=2))


def request(*texts: str) -> bytes:
    """A request to translate as it goes over the wire."""
    body = json.dumps({"q": texts, "source": "en", "target": "de"}).encode()
    head = ["POST /translate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def waiting(server: Server) -> float:
    lines = server.client.get("/metrics").text.split("\n")
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith("regard_waiting_requests"))


Times = dict[int, list[float]]


async def storm(server: Server, clients: int, seconds: float, answers: dict[str, str]) -> tuple[Times, int]:
    """Clients that ask as fast as they can: how long each answer took, by its status, and how many were wrong."""
    times: Times = {}
    wrong = 0
    end = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def client(number: int, line: httpx.AsyncClient) -> None:
        nonlocal wrong
        draw = random.Random(number)
        while time.monotonic() < end:
            text = draw.choice(list(answers))
            began = time.monotonic()
            response = await line.post("/translate", json={"q": text, "source": "en", "target": "de"})
            times.setdefault(response.status_code, []).append(time.monotonic() - began)
            if response.status_code == 429:
                assert response.headers["retry-after"] == "1"
                await asyncio.sleep(draw.uniform(0.05, 0.15))
            elif response.json().get("translatedText") != answers[text]:
                wrong += 1

    async with httpx.AsyncClient(base_url=server.address, timeout=60, limits=limits, trust_env=False) as line:
        await asyncio.gather(*(client(number, line) for number in range(clients)))
    return times, wrong


def overload(server: Server, clients: int, seconds: float) -> None:
    draw = random.Random(1)
    texts = [sentence(draw) for _ in range(60)]
    answers = {text: server.translate(text)["translatedText"] for text in texts}
    asyncio.run(storm(server, 8, 1, answers))  # what the first requests allocate stays
    before = server.memory
    times, wrong = asyncio.run(storm(server, clients, seconds, answers))
    assert wrong == 0
    assert set(times) == {200, 429}, {status: len(each) for status, each in times.items()}
    assert statistics.median(times[429]) < statistics.median(times[200]), "a refusal is quicker than an answer"
    began = time.monotonic()
    assert server.translate(texts[0])["translatedText"] == answers[texts[0]]
    assert time.monotonic() - began < 5
    assert waiting(server) == 0
    assert server.memory - before < 64


def test_overload_is_refused_and_nobody_gets_a_wrong_answer(server: Server) -> None:
    overload(server, clients=64, seconds=3)


@pytest.mark.slow
def test_256_clients_for_half_a_minute(server: Server) -> None:
    overload(server, clients=256, seconds=30)


def test_200_clients_that_leave_free_their_slots(server: Server) -> None:
    draw = random.Random(2)
    for _ in range(200):
        line = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        line.sendall(request(LONG if draw.random() < 0.3 else sentence(draw)))
        time.sleep(draw.uniform(0, 0.01))
        line.close()
    end = time.monotonic() + 10
    while waiting(server) and time.monotonic() < end:
        time.sleep(0.05)
    assert waiting(server) == 0
    assert server.translate("ba da")["translatedText"] == "da ba"
    assert server.client.get("/health").json() == {"status": "ok"}


def test_long_texts_let_a_short_one_through(server: Server) -> None:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    line.sendall(request(*[LONG] * MANY))
    end = time.monotonic() + 20
    while waiting(server) == 0:
        assert time.monotonic() < end, "the long request never arrived"
        time.sleep(0.01)
    began = time.monotonic()
    assert server.translate("ba da")["translatedText"] == "da ba"
    quick = time.monotonic() - began
    assert waiting(server) == 1, "the long one is still under way"
    line.close()
    assert quick < 5, quick


def stopped(server: Server, clients: int, seed: int) -> tuple[int, Counter]:
    """SIGTERM while clients ask: the exit code, and what became of every request."""
    results: Counter[str] = Counter()
    begun = threading.Barrier(clients + 1)

    def ask(number: int) -> None:
        draw = random.Random(1000 * seed + number)
        with httpx.Client(base_url=server.address, timeout=40, trust_env=False) as line:
            text = sentence(draw)
            line.get("/health")  # so that the request goes over a line that is already accepted
            begun.wait()
            response = line.post("/translate", json={"q": [text] * 8, "source": "en", "target": "de"})
            if response.status_code == 200:
                results["answered" if len(response.json()["translatedText"]) == 8 else "wrong"] += 1
            else:
                results[str(response.status_code)] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(random.Random(seed).uniform(0.0, 0.1))
    began = time.monotonic()
    code = server.stop(signal.SIGTERM)
    assert time.monotonic() - began < 30
    for thread in threads:
        thread.join(40)
    return code, results


@pytest.mark.parametrize("seed", range(2))
def test_sigterm_loses_nothing_that_was_accepted(seed: int) -> None:
    check_stop(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 20))
def test_sigterm_loses_nothing_twenty_times(seed: int) -> None:
    check_stop(seed)


def check_stop(seed: int) -> None:
    server = Server(trained())
    code, results = stopped(server, clients=16, seed=seed)
    assert code == 0, server.errors()
    assert sum(results.values()) == 16, "every client heard something"
    assert set(results) <= {"answered", "503", "429"}, results


def test_while_it_stops_the_server_is_not_ready() -> None:
    server = Server(trained(), limits={"drain": 4.0})
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        line.sendall(request(LONG))
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.15)
        health = server.client.get("/health")
        assert (health.status_code, health.json()["error"]) == (503, "stopping")
        refused = server.post("/translate", q="ba", source="en", target="de")
        assert (refused.status_code, refused.json()["error"]) == (503, "The server is shutting down.")
        assert refused.headers["connection"] == "close"
    assert server.process.wait(30) == 0
