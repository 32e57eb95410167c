"""The events of a training run in words, and a line that a notebook shows while `regard.train` runs."""

import sys
import time
from typing import Any

from regard.training.events import DataReady, Event, Finished, Noticed, Resumed, Saved, Skipped, Stepped, Validated

_EVERY = 0.5  # seconds between two updates of a notebook's line
_ENDS = {"done": "done", "patience": "no improvement", "time": "time limit reached"}


def lines_about(event: Event) -> list[str]:
    """What to print of an event, mostly nothing; `describe_step` is for the steps."""
    match event:
        case DataReady(batches, weights, device, notes):
            many = f"{batches} batch{'' if batches == 1 else 'es'} per epoch"
            return [*notes, f"{weights / 1e6:.2f} M weights on {device}, {many}"]
        case Resumed(step, damaged):
            lost = [f"the checkpoint {one} is damaged and was skipped; it will be written again" for one in damaged]
            return [f"resumed at step {step}", *lost] if step else lost  # 0: only the weights of another run
        case Skipped(step, reason, examples, lines):
            which, numbers = ("line", lines) if lines else ("example", examples)
            return [f"step {step} skipped: {reason} ({which} {', '.join(map(str, numbers[:8]))}, ...)"]
        case Noticed(step, text):
            return [f"step {step}: {text}"]
        case Validated(step, metrics, samples, best, by):
            scores = ", ".join(f"{name} {plain_number(value)}" for name, value in metrics.items())
            measured = f"step {step} validation: {scores}{f' (best so far by {by})' if best else ''}"
            return [measured, *(f"    {sample}" for sample in samples)]
        case Finished(step, reason, seconds):
            return [f"{_ENDS.get(reason, reason)} at step {step} after {clock(seconds)}"]
        case Stepped() | Saved():
            return []


def describe_step(event: Stepped) -> str:
    """Loss, speed and learning rate of an update."""
    return f"loss {event.loss:.3f}  {event.tokens_per_second:,.0f} tokens/s  rate {event.rate:.2g}"


def plain_number(value: float) -> str:
    """A score in four digits, or with one decimal where those would need an exponent.

    >>> plain_number(12.3456), plain_number(0.0005), plain_number(5.873e-07), plain_number(54321.0)
    ('12.35', '0.0005', '0.0', '54321.0')
    """
    text = f"{value:.4g}"
    return f"{value:.1f}" if "e" in text else text


def clock(seconds: float | None) -> str:
    """Seconds as h:mm:ss or m:ss; a question mark where they are not known."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class NotebookLine:
    """Shows the last validation and the current step of a training run in one place of a notebook."""

    def __init__(self, display: Any) -> None:
        self.display = display  # IPython.display.display
        self.handle: Any = None
        self.last, self.shown_at = "", 0.0  # the lines of the last event that was not a step, and when a step was shown

    def __call__(self, event: Event) -> None:
        if isinstance(event, Stepped):
            if time.monotonic() - self.shown_at > _EVERY or event.step == event.total:
                self.shown_at = time.monotonic()
                left = clock(event.seconds_left)
                self.show(f"step {event.step}/{event.total}  {describe_step(event)}  left {left}\n{self.last}")
        elif lines := lines_about(event):
            self.last = "\n".join(lines)
            self.show(self.last)

    def show(self, text: str) -> None:
        """Replace what is shown."""
        plain = {"text/plain": text}
        if self.handle is None:
            self.handle = self.display(plain, raw=True, display_id=True)
        else:
            self.handle.update(plain, raw=True)


def in_notebook() -> NotebookLine | None:
    """A line for the notebook that this process is the kernel of; None elsewhere, where the library prints nothing."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return NotebookLine(sys.modules["IPython"].display.display)
