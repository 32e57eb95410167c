"""The metrics of the server, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from regard.serve.limits import RefusedError

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one server. Thread-safe."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("regard_requests", "responses", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "regard_request_seconds", "arrival to response", ["path"], "", "", "", registry, buckets=_SECONDS
        )
        self.refused = Counter("regard_refused", "requests refused before any work", ["reason"], registry=registry)
        self.sentences = Histogram(
            "regard_batch_sentences", "sentences of a batch", ["model"], registry=registry, buckets=(1, 2, 4, 8, 16, 32)
        )
        self.tokens = Counter("regard_source_tokens", "source tokens translated", ["model"], registry=registry)
        self.busy = Counter("regard_busy_seconds", "seconds of work", ["model"], registry=registry)
        self.restarts = Counter("regard_model_restarts", "processes replaced", ["model"], registry=registry)
        self.waiting = Gauge("regard_waiting_requests", "unanswered requests", ["model"], registry=registry)
        self.up = Gauge("regard_model_up", "whether a model is ready", ["model"], registry=registry)
        self.held = Gauge("regard_held_bytes", "responses that clients have not read yet", registry=registry)
        self.characters = 0  # translated since the start, for DeepL's /v2/usage

    def count_refusal(self, refusal: RefusedError) -> None:
        """Count a request that is refused because a queue is full."""
        if refusal.status == 429:
            self.refused.labels("queue").inc()

    def write(self) -> bytes:
        return generate_latest(self.registry)
