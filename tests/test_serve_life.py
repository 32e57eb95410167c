"""A server under way: overload, clients that leave, and SIGTERM with requests in flight."""

import asyncio
import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

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


def until(true: Callable[[], object]) -> None:
    """Wait for something that must become true, however slow the machine is."""
    for _ in range(2000):
        if true():
            return
        threading.Event().wait(0.02)
    raise AssertionError("this never became true")


def waiting(server: Server) -> float:
    lines = server.client.get("/metrics").text.split("\n")
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith("regard_waiting_requests"))


async def storm(server: Server, clients: int, seconds: float, answers: dict[str, str]) -> tuple[Counter[int], int]:
    """Clients that send as fast as they can: the number of answers by status, and how many were wrong."""
    answered: Counter[int] = Counter()
    wrong = 0
    end = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def client(number: int, line: httpx.AsyncClient) -> None:
        nonlocal wrong
        draw = random.Random(number)
        while time.monotonic() < end:
            text = draw.choice(list(answers))
            response = await line.post("/translate", json={"q": text, "source": "en", "target": "de"})
            answered[response.status_code] += 1
            if response.status_code == 429:
                assert response.headers["retry-after"] == "1"
                await asyncio.sleep(draw.uniform(0.05, 0.15))
            elif response.json().get("translatedText") != answers[text]:
                wrong += 1

    async with httpx.AsyncClient(base_url=server.address, timeout=60, limits=limits, trust_env=False) as line:
        await asyncio.gather(*(client(number, line) for number in range(clients)))
    return answered, wrong


def overload(server: Server, clients: int, seconds: float) -> None:
    draw = random.Random(1)
    texts = [sentence(draw) for _ in range(60)]
    answers = {text: server.translate(text)["translatedText"] for text in texts}
    asyncio.run(storm(server, 8, 1, answers))  # what the first requests allocate stays
    before = server.memory
    answered, wrong = asyncio.run(storm(server, clients, seconds, answers))
    assert wrong == 0
    assert set(answered) == {200, 429}, answered
    assert server.translate(texts[0])["translatedText"] == answers[texts[0]]
    until(lambda: waiting(server) == 0)
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
    until(lambda: waiting(server) == 0)
    assert server.translate("ba da")["translatedText"] == "da ba"
    assert server.client.get("/health").json() == {"status": "ok"}


def test_long_texts_let_a_short_one_through(server: Server) -> None:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    line.sendall(request(*[LONG] * MANY))
    until(lambda: waiting(server) == 1)
    assert server.translate("ba da")["translatedText"] == "da ba"
    assert waiting(server) == 1, "the long one is still under way"
    line.close()


def test_one_deadline_for_all_that_a_request_needs() -> None:
    """With alignment every sentence is traced after it was translated, all within the time of the one request."""
    with serving(limits={"seconds": 3.0}) as server:
        until(lambda: server.translate("ba da", alignment=True)["alignment"])
        response = server.post("/translate", q=[LONG[:2000]] * 100, source="en", target="de", alignment=True)
        assert (response.status_code, response.json()) == (503, {"error": "This took longer than 3 seconds."})
        until(lambda: waiting(server) == 0)
        assert server.translate("ba da")["translatedText"] == "da ba"


def test_a_killed_model_is_replaced_while_the_server_answers() -> None:
    with serving() as server:
        (child,) = children(server, "spawn_main")
        os.kill(child, signal.SIGKILL)
        until(lambda: server.client.get("/health").status_code == 503)
        assert server.translate("ba da")["translatedText"] == "da ba", "it waits for the new process"
        until(lambda: server.client.get("/health").status_code == 200)
        assert children(server, "spawn_main") != [child]
        server.errors()


def children(server: Server, name: str) -> list[int]:
    """The processes of a server whose command line contains a name."""
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    found = [int(one) for one in path.read_text().split()]
    return [one for one in found if name in Path(f"/proc/{one}/cmdline").read_text()]


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
    code = server.stop(signal.SIGTERM)
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
    server = Server(trained(), limits={"drain": 20.0})
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        line.sendall(request(*[LONG] * MANY))
        until(lambda: waiting(server) == 1)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.client.get("/health").status_code == 503)
        assert server.client.get("/health").json()["error"] == "stopping"
        refused = server.post("/translate", q="ba", source="en", target="de")
        assert (refused.status_code, refused.json()["error"]) == (503, "The server is shutting down.")
        assert refused.headers["connection"] == "close"
    assert server.process.wait(30) == 0
