"""SIGKILL for the processes of a corpus in shards, at random moments: what `benchmarks/corpus.py --kills` uses."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")  # a fresh process, as a command is
SPREAD = 0.9  # of the shards are done at the latest moment of a kill
TRIES = 5  # that a node has to start, and a driver when nothing is killed: the last kill may still be felt
STUCK = 600.0  # seconds without a new shard after which a run is given up


class Nodes:
    """A Ray cluster on this machine: a head and more raylets, each with room for one worker, on a GPU if there is one.

    The nodes share the GPU.
    """

    def __init__(self, number: int, gpu: bool) -> None:
        from ray.cluster_utils import Cluster

        self.each = {"num_cpus": 1, "num_gpus": int(gpu)}
        self.cluster = Cluster(shutdown_at_exit=False)  # that is for main threads only
        self._start()
        self.others = [self._start() for _ in range(number - 1)]

    def _start(self) -> Any:
        """Start one more node, the head first; on a busy machine it may miss Ray's limit of 30 seconds."""
        for attempt in range(1, TRIES + 1):
            try:
                return self.cluster.add_node(**self.each)
            except Exception as error:  # Ray's own are of no other type
                print(f"a node did not start: {error}", file=sys.stderr)
                if attempt == TRIES:
                    raise

    @property
    def address(self) -> str:
        return self.cluster.address

    def raylets(self) -> list[int]:
        """The processes of all nodes, the head's first."""
        return [node.all_processes["raylet"][0].process.pid for node in (self.cluster.head_node, *self.others)]

    def kill_node(self, place: int) -> None:
        """Kill one of the nodes after the head, and start it again."""
        os.kill(self.raylets()[1 + place], signal.SIGKILL)
        self.cluster.remove_node(self.others[place], allow_graceful=False)  # what is left of it
        self.others[place] = self._start()

    def stop(self) -> None:
        self.cluster.shutdown()


def children(parents: list[int], name: bytes) -> list[int]:
    """The processes that `parents` have started and whose command line has `name` in it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                named = name in (folder / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue  # it has ended
            if parent in parents and named:
                found.append(int(folder.name))
    return found


class Killer:
    """Runs a function in a fresh process until it succeeds, killing it, one of its workers or a node `kills` times.

    Each kind of process is killed as often. The moments are spread over the work: each comes up to `within` seconds
    after a random number of shards is done, so that workers are killed while they load, translate or write.
    """

    def __init__(self, out: Path, shards: int, kills: int, within: float, seed: int, nodes: Nodes | None) -> None:
        self.out, self.within, self.nodes, self.rng = out, within, nodes, random.Random(seed)
        self.moments = sorted(self.rng.uniform(0, SPREAD) * shards for _ in range(kills))
        kinds = ["driver", "worker", *(["raylet"] if nodes and nodes.others else [])]
        self.kinds = [kinds[number % len(kinds)] for number in range(kills)]
        self.rng.shuffle(self.kinds)
        self.killed: Counter[str] = Counter()

    def run(self, translate: Callable[[], object]) -> int:
        """Returns how often the command was given."""
        given = failures = 0
        while True:
            given, before = given + 1, self.killed.total()
            driver = SPAWN.Process(target=translate)
            driver.start()
            try:
                self._watch(driver)
            finally:
                driver.kill()
            driver.join()
            code = driver.exitcode
            if code == 0:
                return given
            failures = failures + 1 if self.killed.total() == before else 0  # in a row and without a kill
            # 1: its workers were killed as they loaded, or too often in one shard
            if code not in (-signal.SIGKILL, 1) or failures == TRIES:
                raise RuntimeError(f"the driver ended with exit code {code}")

    def _watch(self, driver: SpawnProcess) -> None:
        """Kill something at each moment, until the driver ends or is killed."""
        done, since = -1, time.monotonic()
        while driver.is_alive():
            found = len(list((self.out / "shards").glob("[0-9]*.jsonl")))
            if found != done:
                done, since = found, time.monotonic()
            if time.monotonic() - since > STUCK:
                raise RuntimeError(f"nothing was done for {STUCK:g} seconds")
            left = self.moments[self.killed.total() :]
            if left and done >= left[0] and driver.pid and self._workers(driver.pid):
                driver.join(self.rng.uniform(0, self.within))
                if driver.is_alive():
                    self._kill(driver.pid)
            time.sleep(0.05)

    def _workers(self, driver: int) -> list[int]:
        if self.nodes:
            return children(self.nodes.raylets(), b"MapWorker")
        return children(children([driver], b"forkserver"), b"forkserver")  # forks of the driver's fork server

    def _kill(self, driver: int) -> None:
        kind, workers = self.kinds[self.killed.total()], self._workers(driver)
        try:
            if kind == "raylet" and self.nodes:
                self.nodes.kill_node(self.rng.randrange(len(self.nodes.others)))
            elif kind == "driver" or workers:
                os.kill(driver if kind == "driver" else self.rng.choice(workers), signal.SIGKILL)
            else:
                return  # the workers have just ended
        except ProcessLookupError:
            return
        self.killed[kind] += 1
        print(f"{time.strftime('%H:%M:%S')} {self.out.name}: {kind} killed", file=sys.stderr)
