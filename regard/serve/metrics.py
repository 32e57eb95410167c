"""Counters in the text format of Prometheus."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1, 2, 4, 8, 16, 32)


class Histogram:
    """How many observations were at most so large, their sum and their number."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.total = 0.0
        self.number = 0

    def add(self, value: float) -> None:
        """Count one observation."""
        self.total += value
        self.number += 1
        for place, bound in enumerate(self.bounds):
            self.counts[place] += value <= bound

    def lines(self, name: str, labels: str) -> list[str]:
        """The lines of this histogram."""
        steps = [*zip(map(str, self.bounds), self.counts, strict=True), ("+Inf", self.number)]
        return [
            *(f'{name}_bucket{{{labels},le="{bound}"}} {count}' for bound, count in steps),
            f"{name}_sum{{{labels}}} {self.total:.6f}",
            f"{name}_count{{{labels}}} {self.number}",
        ]


class Metrics:
    """What the server counts about itself. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._batches: dict[str, Histogram] = defaultdict(lambda: Histogram(_SENTENCES))
        self._busy: dict[str, float] = defaultdict(float)
        self._tokens: dict[str, int] = defaultdict(int)
        self._refused: dict[str, int] = defaultdict(int)
        self._began = time.time()
        self.characters = 0  # translated so far, which DeepL's clients ask for

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count one answer."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path].add(seconds)

    def batch(self, model: str, sentences: int, tokens: int, seconds: float) -> None:
        """Count one batch that a model translated."""
        with self._lock:
            self._batches[model].add(sentences)
            self._tokens[model] += tokens
            self._busy[model] += seconds

    def work(self, model: str, seconds: float) -> None:
        """Count the time of a trace, a picture or whatever else a model did alone."""
        with self._lock:
            self._busy[model] += seconds

    def refuse(self, reason: str) -> None:
        """Count one request that was refused at the door."""
        with self._lock:
            self._refused[reason] += 1

    def write(self, gauges: dict[str, dict[str, float]]) -> str:
        """All of it as text; `gauges` are read at the moment: name -> label -> value."""
        with self._lock:
            lines = ["# TYPE regard_requests_total counter"]
            lines += [
                f'regard_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ]
            lines.append("# TYPE regard_request_seconds histogram")
            for path, histogram in sorted(self._seconds.items()):
                lines += histogram.lines("regard_request_seconds", f'path="{path}"')
            lines.append("# TYPE regard_batch_sentences histogram")
            for model, histogram in sorted(self._batches.items()):
                lines += histogram.lines("regard_batch_sentences", f'model="{model}"')
            counters: dict[str, tuple[str, Mapping[str, float]]] = {
                "regard_source_tokens_total": ("model", self._tokens),
                "regard_busy_seconds_total": ("model", self._busy),
                "regard_refused_total": ("reason", self._refused),
            }
            for name, (label, values) in counters.items():
                lines.append(f"# TYPE {name} counter")
                lines += [f'{name}{{{label}="{key}"}} {value}' for key, value in sorted(values.items())]
        for name, readings in gauges.items():
            lines.append(f"# TYPE {name} gauge")
            lines += [f'{name}{{model="{key}"}} {value}' for key, value in sorted(readings.items())]
        lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {self._began:.3f}"]
        return "\n".join(lines) + "\n"
