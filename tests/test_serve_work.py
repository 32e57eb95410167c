"""The queue and the worker: turns, batches, short work between the steps of long work, and honest health."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from serve_parts import backwards, trained

from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Options, TranslationModel
from regard.serve.refusal import RefusedError, StoppedError
from regard.serve.runs import load
from regard.serve.work import MOST_COST, MOST_ROWS, Queue, Sentence, Ticket
from regard.serve.worker import Worker


def ticket(*tokens: int, beam: int = 1, options: Any = "same", seconds: float = 60) -> Ticket:
    made = Ticket(time.monotonic() + seconds, beam, options)
    made.add([f"text {size}" for size in tokens], list(tokens))
    return made


def sizes(batch: object) -> list[int]:
    assert isinstance(batch, list)
    return [sentence.tokens for sentence in batch]


def test_a_long_request_and_a_short_one_share_the_next_batch() -> None:
    queue, long, short = Queue(), ticket(*[5] * 128), ticket(6)
    queue.put(long)
    assert len(sizes(queue.take())) == MOST_ROWS
    queue.put(short)
    assert 6 in sizes(queue.take())
    rest = [len(sizes(queue.take())) for _ in range(3)]
    assert sum(rest) + 2 * MOST_ROWS == 129
    assert queue.take() is None


def test_a_batch_holds_like_options_and_like_lengths_and_keeps_its_cost() -> None:
    queue = Queue()
    for one in (ticket(10), ticket(300), ticket(12), ticket(11, options="other"), ticket(14)):
        queue.put(one)
    assert [sizes(queue.take()) for _ in range(3)] == [[10, 12, 14], [300], [11]]
    for _ in range(20):
        queue.put(ticket(400, beam=5))
    batch = queue.take()
    assert sum(sizes(batch)) * 5 <= MOST_COST
    queue = Queue()
    queue.put(ticket(4000, beam=5))
    assert sizes(queue.take()) == [4000], "what cannot be cut is a batch of its own"


def test_tickets_that_nobody_waits_for_are_skipped() -> None:
    queue, gone, late, kept = Queue(), ticket(5), ticket(5, seconds=-1), ticket(7)
    for one in (gone, late, kept):
        queue.put(one)
    gone.gone = True
    assert sizes(queue.take()) == [7]
    assert queue.take() is None


def test_exclusive_work_stands_in_line() -> None:
    queue, work = Queue(), Ticket(time.monotonic() + 60, work=lambda stop: 1)
    queue.put(work)
    queue.put(ticket(5))
    assert sizes(queue.take(100, exclusive=False)) == [5], "in between, only sentences are taken"
    assert queue.take() is work


@dataclass
class Found:
    text: str
    finished: str = "end"


class Slow(TranslationModel):
    """A real model that takes its time: every step of a text with 'slow' in it lasts 20 ms."""

    def translate(self, texts: list[str], options: Options, stop: Callable[[], bool]) -> list[Any]:
        slow = any("slow" in text for text in texts)
        if not slow:
            return super().translate(texts, options, stop)
        for _ in range(200):
            if stop():
                return [Found("", "stopped") for _ in texts]
            time.sleep(0.02)
        return [Found("done") for _ in texts]

    def count(self, text: str) -> int:
        return 2000 if "slow" in text else super().count(text)


def begin(kind: type[TranslationModel] = TranslationModel, **limits: Any) -> Worker:
    (model,) = load([trained()])
    model.__class__ = kind
    worker = Worker(model, Limits(**limits), Metrics())
    worker.start()
    until(lambda: not worker.trouble)
    return worker


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "this never became true"
        time.sleep(0.01)


def ask(worker: Worker, *texts: str, seconds: float = 60) -> Ticket:
    made = Ticket(time.monotonic() + seconds, worker.model.beam, Options())
    made.add(list(texts), [worker.model.count(text) for text in texts])
    worker.submit(made)
    return made


def test_answers_do_not_depend_on_the_batch() -> None:
    worker = begin()
    texts = ["ba da", "lu me ko", "zo ti ke ma", "fo", "ba", "ga ne vi so"]
    alone = [ask(worker, text).answer.result(20)[0] for text in texts]
    together = [ask(worker, text) for text in texts]
    at_once = ask(worker, *texts).answer.result(20)
    for one, other, third in zip(alone, (each.answer.result(20)[0] for each in together), at_once, strict=True):
        assert one.text == other.text == third.text
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.score == pytest.approx(third.score, abs=1e-5)
    worker.close()


def test_a_slow_request_does_not_hold_up_a_quick_one() -> None:
    worker = begin(Slow)
    slow = ask(worker, "slow")
    time.sleep(0.3)
    began = time.monotonic()
    quick = [ask(worker, text) for text in ("ba da", "lu me ko")]
    assert [each.answer.result(10)[0].text for each in quick] == ["da ba", "ko me lu"]
    assert time.monotonic() - began < 2
    assert not slow.answer.done()
    assert slow.answer.result(20)[0].text == "done", "and the slow one goes on"
    worker.close()


def test_who_goes_away_frees_the_slot_within_a_step() -> None:
    worker = begin(Slow)
    slow = ask(worker, "slow")
    time.sleep(0.2)
    assert worker.accepted == 1
    slow.gone = True
    slow.answer.cancel()
    assert worker.accepted == 0
    began = time.monotonic()
    assert ask(worker, "ba da").answer.result(10)[0].text == "da ba"
    assert time.monotonic() - began < 1
    worker.close()


def test_a_deadline_stops_the_work() -> None:
    worker = begin(Slow)
    with pytest.raises(StoppedError):
        ask(worker, "slow", seconds=0.3).answer.result(5)
    worker.close()


def test_beyond_the_queue_requests_are_refused_at_once() -> None:
    worker = begin(Slow, queue=3)
    waiting = [ask(worker, "slow") for _ in range(3)]
    with pytest.raises(RefusedError) as refused:
        worker.make_room()
    assert refused.value.status == 429
    assert refused.value.headers["Retry-After"] == "1"
    for one in waiting:
        one.gone = True
        one.answer.cancel()
    worker.make_room()
    worker.close()


def test_cost_is_limited_too_but_one_request_alone_may_be_large() -> None:
    worker = begin(Slow, cost=5000)
    worker.make_room(1_000_000)
    waiting = ask(worker, "slow")  # 2000 tokens, times the beam
    with pytest.raises(RefusedError) as refused:
        worker.make_room(100_000)
    assert refused.value.status == 429
    waiting.gone = True
    waiting.answer.cancel()
    worker.make_room(100_000)
    worker.close()


def test_an_error_of_the_model_reaches_its_own_request_only() -> None:
    class Picky(TranslationModel):
        def translate(self, texts: list[str], options: Options, stop: Callable[[], bool]) -> list[Any]:
            if any("bad" in text for text in texts):
                raise ValueError("not this")
            return super().translate(texts, options, stop)

    worker = begin(Picky)
    with pytest.raises(ValueError, match="not this"):
        ask(worker, "bad").answer.result(10)
    assert ask(worker, "ba da").answer.result(10)[0].text == backwards("ba da")
    assert worker.trouble == ""
    worker.close()


# --- health


class Broken(TranslationModel):
    """A model whose fault can be chosen."""

    fault = ""

    def translate(self, texts: list[str], options: Options, stop: Callable[[], bool]) -> list[Any]:
        if self.fault == "raises":
            raise RuntimeError("the disk is full")
        if self.fault == "dies":
            raise SystemExit
        if self.fault == "hangs":
            threading.Event().wait(3)
        found = super().translate(texts, options, stop)
        return [Found(each.text[::-1]) for each in found] if self.fault == "lies" else found


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        ("raises", "the model fails"),
        ("dies", "dead"),
        ("hangs", "stuck"),
        ("lies", "the model's answers changed"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_health_tells_the_truth(fault: str, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.serve.worker.PROBE", 0.2)
    worker = begin(Broken, stuck=1.0)
    assert worker.trouble == ""
    worker.model.fault = fault  # type: ignore[attr-defined]
    until(lambda: worker.trouble == trouble, 10)
    if fault in ("dies", "hangs"):
        with pytest.raises(RefusedError, match="does not answer"):
            worker.make_room()
    if fault != "dies":
        worker.model.fault = ""  # type: ignore[attr-defined]
        until(lambda: worker.trouble == "", 10)
    worker.close()


def test_a_worker_is_not_ready_before_it_has_translated() -> None:
    (model,) = load([trained()])
    worker = Worker(model, Limits(), Metrics())
    assert worker.trouble == "starting"


def test_a_sentence_knows_its_place() -> None:
    made = ticket(1, 2, 3)
    assert [each.place for each in made.waiting] == [0, 1, 2]
    made.give(2, "c")
    made.give(0, "a")
    assert not made.answer.done()
    made.give(1, "b")
    assert made.answer.result(0) == ["a", "b", "c"]
    assert isinstance(made.waiting[0], Sentence)
