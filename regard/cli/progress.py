"""Progress on stderr: a live bar in a terminal, plain lines elsewhere. rich is imported when a command runs."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

from regard.api.progress import clock, describe_step, lines_about
from regard.training.events import ENDLESS, DataReady, Event, Stepped, Validated

PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal
QUIET = 2.0  # seconds before a bar appears


@lru_cache(maxsize=1)
def console() -> Any:
    """Standard error as rich sees it."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def bar(what: str, printing: bool = False) -> Iterator[Callable[..., None]]:
    """A bar for work of known or unknown size, shown in a terminal after two seconds; yields `progress(done, total)`.
    Work that is `printing` its results to the same terminal shows no bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not console().is_terminal or (printing and sys.stdout.isatty()):
        yield lambda done, total, stage=what: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console(), transient=True)
    task = progress.add_task(what, total=None)
    start = threading.Timer(QUIET, progress.start)
    start.daemon = True
    start.start()
    try:
        yield lambda done, total, stage=what: progress.update(task, completed=done, total=total, description=stage)
    finally:
        start.cancel()
        start.join()  # it may be starting right now
        if progress.live.is_started:
            progress.stop()


class Watcher:
    """Shows a training run: the `stages` of its data, then the events of the loop."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.live = console().is_terminal
        self.preparing = ExitStack()
        self.last = 0.0
        self.stepped = False  # whether there was anything to train
        self.useful: bool | None = None  # by validation; None if that translated nothing
        columns = (
            TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"),
            TimeElapsedColumn(), TextColumn("left"), TextColumn("{task.fields[left]}"),
        )  # fmt: skip
        self.progress = Progress(*columns, console=console(), transient=True, disable=not self.live)
        self.task = self.progress.add_task("", total=None, left="?")

    def __enter__(self) -> "Watcher":
        self.preparation = self.preparing.enter_context(bar("preparing the data"))
        return self

    def __exit__(self, *error: object) -> None:
        self.preparing.close()
        self.progress.stop()

    def stages(self, stage: str, done: int, total: int | None) -> None:
        self.preparation(done, total, stage)

    def __call__(self, event: Event) -> None:
        """Show one event: steps move the bar, or are a line every few seconds; the rest is lines above it."""
        if isinstance(event, DataReady):
            self.preparing.close()
            self.progress.start()
        for line in lines_about(event):
            self.say(line)
        if isinstance(event, Validated) and "bleu" in event.metrics:
            # An answer of one word has no BLEU: its perplexity decides.
            self.useful = bool(self.useful) or event.metrics["bleu"] >= 1 or event.metrics.get("perplexity", 2) < 2
        if not isinstance(event, Stepped):
            return
        self.stepped = True
        numbers, left = describe_step(event), clock(event.seconds_left)
        if self.live:
            total = event.total if event.total < ENDLESS else None
            self.progress.update(self.task, completed=event.step, total=total, description=numbers, left=left)
        elif time.monotonic() - self.last > PLAIN_EVERY or event.step == event.total:
            self.last = time.monotonic()
            of = f"/{event.total}" if event.total < ENDLESS else ""  # else the clock ends training
            self.say(f"step {event.step}{of}  {numbers}  left {left}")

    def say(self, line: str) -> None:
        """Print a line above the bar without markup: corpus text may contain anything."""
        if self.live:
            from rich.text import Text

            console().print(Text(line))
        else:
            sys.stderr.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
            sys.stderr.flush()
