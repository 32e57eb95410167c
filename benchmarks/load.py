"""A server under more load than it can carry: python benchmarks/load.py [--clients 256] [--seconds 60]

Serves the shipped Transformer and lets many clients send a sentence again as soon as they have an answer; a client that
is refused waits for the second that Retry-After names, unless --rude. What a refusal takes is measured by one more
client in a separate process, since the clients' process is busy. Expected of an idle machine: refusals within 1 s
(99 %), accepted requests within twice the time of a full batch on an unloaded server (99 %), no wrong answer, no 5xx.
The processor time a refusal costs the server is shown too: it does not depend on what else the machine does.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

SENTENCES = [
    "Where is the station?",
    "She did not sign the agreement.",
    "The black cat does not like the white dog.",
    "We have never seen this house before.",
    "My brother reads an old book in the garden.",
]
BATCH = 32  # sentences that a model translates together: regard.serve.queue.MOST_ROWS
REFUSED, RATIO = 1.0, 2.0  # seconds, and times the full batch
PAUSE = 0.05  # seconds between the requests of the client that measures


class Answer(NamedTuple):
    """What came back for sentence `number`."""

    number: int
    status: int  # 0 where the connection was closed without an answer
    seconds: float
    text: str


async def send(port: int, number: int) -> Answer:
    """One request on a new connection."""
    body = json.dumps({"q": SENTENCES[number % len(SENTENCES)], "source": "en", "target": "fr"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    began = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        data = await reader.read()
        writer.close()
    except OSError:
        data = b""
    first, _, rest = data.partition(b"\r\n\r\n")
    status = int(first.split(b" ", 2)[1]) if first else 0
    text = json.loads(rest)["translatedText"] if status == 200 else ""
    return Answer(number % len(SENTENCES), status, time.perf_counter() - began, text)


async def repeat(port: int, number: int, end: float, pause: float, found: list[Answer]) -> None:
    """Send again and again until `end`, with `pause` seconds after a refusal."""
    while time.monotonic() < end:
        found.append(await send(port, number))
        number += 1
        if found[-1].status == 429:
            await asyncio.sleep(pause)


async def crowd(port: int, clients: int, seconds: float, pause: float) -> list[Answer]:
    """All answers to these clients."""
    found: list[Answer] = []
    end = time.monotonic() + seconds
    await asyncio.gather(*(repeat(port, number, end, pause, found) for number in range(clients)))
    return found


async def burst(port: int) -> list[Answer]:
    """A full batch on a server that does nothing else."""
    return await asyncio.gather(*(send(port, number) for number in range(BATCH)))


def measure(port: int, seconds: float, results: "multiprocessing.Queue[list[Answer]]") -> None:
    """The client in a separate process."""

    async def go() -> list[Answer]:
        found, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            found.append(await send(port, 0))
            await asyncio.sleep(PAUSE)
        return found

    results.put(asyncio.run(go()))


def share(values: list[float], part: float) -> float:
    """The value below which this part of the values lies; nan without any."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def processor_seconds(process: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(run: str) -> tuple["subprocess.Popen[str]", int]:
    """Start a server on a free port and wait until it is ready."""
    command = [sys.executable, "-m", "regard", "serve", run, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    found = re.search(r":(\d+)/", server.stdout.readline())
    if found is None:
        raise SystemExit("The server did not start.")
    port = int(found[1])
    while asyncio.run(send(port, 0)).status != 200:
        time.sleep(0.1)
    return server, port


def main() -> int:
    """Measure, and print what was found; the exit code is 1 where something was not as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="en-fr")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rude", action="store_true", help="clients send again at once after a refusal")
    given = parser.parse_args()
    server, port = serve(given.run)
    try:
        right = [asyncio.run(send(port, number)).text for number in range(len(SENTENCES))]
        unloaded = share([answer.seconds for _ in range(8) for answer in asyncio.run(burst(port))], 0.99)
        results: multiprocessing.Queue[list[Answer]] = multiprocessing.Queue()
        apart = multiprocessing.Process(target=measure, args=(port, given.seconds, results))
        before = processor_seconds(server.pid)
        apart.start()
        found = asyncio.run(crowd(port, given.clients, given.seconds, 0.0 if given.rude else 1.0))
        probed = results.get()
        used = processor_seconds(server.pid) - before
    finally:
        server.terminate()
        code = server.wait(60)
    answers = [*found, *probed]
    counts = Counter(answer.status for answer in answers)
    wrong = sum(answer.status == 200 and answer.text != right[answer.number] for answer in answers)
    accepted = share([answer.seconds for answer in answers if answer.status == 200], 0.99)
    refused = share([answer.seconds for answer in probed if answer.status == 429], 0.99)
    odd = sum(count for status, count in counts.items() if status not in (200, 429))
    rows = {
        "clients": f"{given.clients} for {given.seconds:g} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "answers": f"{dict(sorted(counts.items()))}, {counts[200] / given.seconds:.0f} accepted a second",
        "wrong answers, 5xx and none": f"{wrong}, {odd}",
        "refused, 99 %": f"{1000 * refused:.0f} ms from another process (at most {1000 * REFUSED:.0f})",
        "accepted, 99 %": f"{1000 * accepted:.0f} ms, {accepted / unloaded:.2f} full batches alone (at most {RATIO:g})",
        "server process": f"{1000 * used / len(answers):.2f} ms of processor time an answer, exit code {code}",
    }
    print("\n".join(f"{name:<28} {value}" for name, value in rows.items()))
    fine = not wrong and not odd and not refused > REFUSED and accepted <= RATIO * unloaded and code == 0
    print("as expected" if fine else "NOT as expected")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
