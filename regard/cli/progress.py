"""Progress on stderr: a live bar in a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from regard.training.events import DataReady, Event, Finished, Noticed, Resumed, Saved, Skipped, Stepped, Validated

PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal
QUIET = 2.0  # seconds before a bar appears

console = Console(stderr=True, highlight=False)


@contextmanager
def bar(what: str, printing: bool = False) -> Iterator[Callable[..., None]]:
    """A bar for work of known or unknown size, shown in a terminal after two seconds; yields `progress(done, total)`.
    Work that is `printing` its results to the same terminal shows no bar."""
    if not console.is_terminal or (printing and sys.stdout.isatty()):
        yield lambda done, total, stage=what: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True)
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
        self.live = console.is_terminal
        self.preparing = ExitStack()
        self.last = 0.0
        columns = (
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[left]}"),
        )
        self.progress = Progress(*columns, console=console, transient=True, disable=not self.live)
        self.task = self.progress.add_task("", total=None, left="?")

    def __enter__(self) -> "Watcher":
        self.preparation = self.preparing.enter_context(bar("preparing the data"))
        return self

    def __exit__(self, *error: object) -> None:
        self.preparing.close()
        self.progress.stop()

    def stages(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress of data preparation."""
        self.preparation(done, total, stage)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Stepped():
                self.step(event)
            case DataReady(examples, weights, device, notes):
                self.preparing.close()
                self.progress.start()
                for note in notes:
                    self.say(note)
                many = f"{examples} batch{'' if examples == 1 else 'es'} per epoch"
                self.say(f"{weights / 1e6:.2f} M weights on {device}, {many}")
            case Resumed(step, damaged):
                if step:  # 0: only the weights of another run
                    self.say(f"resumed at step {step}")
                for name in damaged:
                    self.say(f"the checkpoint {name} is damaged and was skipped; it will be written again")
            case Skipped(step, reason, examples, lines):
                which = ("line", lines) if lines else ("example", examples)
                self.say(f"step {step} skipped: {reason} ({which[0]} {', '.join(map(str, which[1][:8]))}, ...)")
            case Noticed(step, text):
                self.say(f"step {step}: {text}")
            case Validated(step, metrics, samples, best):
                numbers = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
                self.say(f"step {step} validation: {numbers}{' (best so far)' if best else ''}")
                for sample in samples:
                    self.say(f"    {sample}")
            case Saved():
                pass
            case Finished(step, reason, seconds):
                words = {"done": "done", "patience": "no improvement", "time": "time limit reached", "asked": "stopped"}
                self.say(f"{words[reason]} at step {step} after {clock(seconds)}")

    def step(self, event: Stepped) -> None:
        """Move the bar, or print a line every few seconds."""
        numbers = f"loss {event.loss:.3f}  {event.tokens_per_second:,.0f} tokens/s  rate {event.rate:.2g}"
        if self.live:
            total = event.total if event.total < 10**9 else None
            self.progress.update(
                self.task, completed=event.step, total=total, description=numbers, left=clock(event.seconds_left)
            )
        elif time.monotonic() - self.last > PLAIN_EVERY or event.step == event.total:
            self.last = time.monotonic()
            self.say(f"step {event.step}/{event.total}  {numbers}  left {clock(event.seconds_left)}")

    def say(self, line: str) -> None:
        """Print a line above the bar without markup: corpus text may contain anything."""
        if self.live:
            console.print(Text(line))
        else:
            sys.stderr.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
            sys.stderr.flush()


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
