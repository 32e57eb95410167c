"""Shards on a Ray cluster: Ray Data with a pool of actors, each of which loads once. Ray does scaling and placement."""

import os
import re
import socket
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

from regard.cluster.shards import TRIES, Plan, Shard, ShardReader, Start, missing, set_aside, write_results
from regard.errors import ConfigError, RegardError, RunError, brief, need
from regard.work import Progress

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame of HTTP/2 without content; byte 3 is its kind


class Actor:
    """One worker of the pool. A shard that fails three times is set aside; the actor stays."""

    def __init__(self, start: Start, plan: Plan, out: Path) -> None:
        self.read, self.plan, self.out, self.broken = ShardReader(plan), plan, out, ""
        try:
            self.work = start()
        except RegardError as error:  # Ray would start it again and again
            self.broken = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Batches of one shard: its number, first line and so on; returns the lines done and whether it failed."""
        return {name: [value] for name, value in self._do(batch).items()}

    def _do(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self.broken:
            return {"lines": 0, "failed": True, "broken": self.broken}
        shard = Shard(*(int(batch[name][0]) for name in Shard._fields))
        for _ in range(TRIES):
            try:
                write_results(self.out, shard, self.work(self.read(shard), lambda rows: None))
                return {"lines": shard.lines, "failed": False, "broken": ""}
            except Exception as error:  # any failure of one shard is retried and reported, and ends nothing else
                self.read = ShardReader(self.plan)
                reason = f"{type(error).__name__}: {error}"
        try:
            set_aside(self.out, shard, reason)
        except RegardError as error:  # the disk is full
            return {"lines": 0, "failed": True, "broken": str(error)}
        return {"lines": shard.lines, "failed": True, "broken": ""}


def _check_reachable(address: str | None) -> None:
    """Fail at once if no Ray cluster answers at host:port; Ray itself would try for minutes."""
    if address in (None, "auto", "local"):
        return
    found = re.fullmatch(r"(?:ray://)?(\[[^\]]+\]|[^:/]+):(\d{1,5})", address or "")
    if not found:
        raise ConfigError(f"The address of a Ray cluster is host:port, ray://host:port or auto; got {address!r}.")
    with socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=10) as stream:
        if os.environ.get("RAY_USE_TLS", "0") == "0":  # gRPC is HTTP/2: both sides begin with settings
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
            if stream.makefile("rb").read(len(SETTINGS))[3:4] != SETTINGS[3:4]:
                raise ConnectionError("another program answers there")


def need_ray() -> Any:
    """The module `ray`, or an error that says how to install it."""
    return need("ray", "Ray is not installed; install it, or work without --on ray: pip install 'regard[ray]'.")


def connect(address: str | None) -> Any:
    """The module `ray`, connected to the cluster at `address`, or to this machine."""
    ray = need_ray()
    try:
        _check_reachable(address)
        # Ray lets its workers import from the current folder first. They may only if this process does.
        trusted = {"", os.getcwd()} & set(sys.path)
        with chdir("." if trusted else Path(ray.__file__).parents[1]):
            ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
    except RegardError:
        raise
    except (OSError, OverflowError) as error:
        raise RunError(f"There is no Ray cluster at {address}: {brief(error)}") from None
    except Exception as error:  # of any type: a cluster of another version, a node that does not start, no ray[client]
        raise RunError(f"Ray cannot be used: {brief(error)}") from error
    return ray


def run_ray(
    start: Start, plan: Plan, out: Path, workers: int, progress: Progress | None = None, address: str | None = None,
    gpus: float = 0,
) -> int:  # fmt: skip
    """Process the missing shards with a pool of `workers` actors; returns how many were set aside.

    `out` and the inputs must be on storage that all nodes share. `gpus` is the fraction of a GPU that an actor takes.
    """
    shards, ray = missing(plan, out), connect(address)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items([shard._asdict() for shard in shards], override_num_blocks=len(shards))
    results = rows.map_batches(
        Actor, fn_constructor_args=(start, plan, out), batch_size=1, concurrency=min(workers, len(shards)),
        num_cpus=1, num_gpus=gpus or None,
    )  # fmt: skip
    total, done, failed = sum(shard.lines for shard in shards), 0, 0
    for row in results.iter_rows():
        if row["broken"]:
            raise RunError(row["broken"])
        done, failed = done + row["lines"], failed + bool(row["failed"])
        if progress:
            progress(done, total)
    return failed
