"""The queue and the worker: turns, batches, short work between the steps of long work, and processes that fail."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import context
from patience import PATIENCE, until
from serve_parts import backwards, one_vector, trained

from regard.errors import RunError
from regard.serve.limits import Limits, RefusedError, StoppedError
from regard.serve.metrics import Metrics
from regard.serve.queue import MOST_COST, MOST_ROWS, MethodCall, Options, Queue, Row, Ticket
from regard.serve.worker import Worker


def ticket(*lengths: int, beam: int = 1, options: Any = "same", seconds: float = 60, client: str = "one") -> Ticket:
    made = Ticket(time.monotonic() + seconds, client, beam, options)
    made.add(["x" * length for length in lengths])
    return made


def sizes(batch: object) -> list[int]:
    assert isinstance(batch, list)
    return [len(sentence.text) for sentence in batch]


def test_a_long_request_and_a_short_one_share_the_next_batch() -> None:
    queue, long, short = Queue(), ticket(*[5] * 128), ticket(6)
    queue.put(long)
    assert len(sizes(queue.take())) == MOST_ROWS
    queue.put(short)
    assert 6 in sizes(queue.take())
    rest = [len(sizes(queue.take())) for _ in range(3)]
    assert sum(rest) + 2 * MOST_ROWS == 129
    assert not queue.take()


def test_clients_take_turns_however_many_requests_they_send() -> None:
    queue = Queue()
    for _ in range(40):
        queue.put(ticket(5, 5, 5, client="giant"))
    queue.put(ticket(*[6] * 20, client="small"))
    assert sizes(queue.take()).count(6) == MOST_ROWS // 2, "half of the batch for each of the two"
    queue = Queue()
    for client in ("giant", "giant", "giant", "small"):
        queue.put(Ticket(time.monotonic() + 60, client, work=MethodCall("look")))
    order = [queue.take() for _ in range(4)]
    assert [row.ticket.client for (row,) in order] == ["giant", "small", "giant", "giant"]


def test_a_batch_holds_like_options_and_like_lengths_and_keeps_its_cost() -> None:
    queue = Queue()
    for one in (ticket(40), ticket(1200), ticket(48), ticket(44, options="other"), ticket(56)):
        queue.put(one)
    assert [sorted(sizes(queue.take())) for _ in range(3)] == [[40, 48, 56], [1200], [44]]
    for _ in range(20):
        queue.put(ticket(1600, beam=5))
    batch = queue.take()
    assert sum(sizes(batch)) * 5 <= MOST_COST
    queue = Queue()
    queue.put(ticket(16000, beam=5))
    assert sizes(queue.take()) == [16000], "what cannot be cut is a batch alone"


def test_abandoned_tickets_are_skipped() -> None:
    queue, gone, late, kept = Queue(), ticket(5), ticket(5, seconds=-1), ticket(7)
    for one in (gone, late, kept):
        queue.put(one)
    gone.gone = True
    assert sizes(queue.take()) == [7]
    assert not queue.take()


def test_only_short_sentences_are_taken_in_between() -> None:
    queue = Queue()
    for one in (ticket(1000, 1000), ticket(5), ticket(900, client="two"), ticket(6, client="two")):
        queue.put(one)
    assert sizes(queue.take(100, exclusive=False)) == [5, 6]
    assert not queue.take(100, exclusive=False)
    assert sorted(sizes(queue.take())) == [900, 1000, 1000]


def test_sentences_like_those_at_work_wait_for_the_next_batch() -> None:
    queue = Queue()
    for one in (ticket(40), ticket(5, client="two")):
        queue.put(one)
    assert not queue.take(1000, exclusive=False, shorter=45)
    assert sorted(sizes(queue.take(1000, exclusive=False, shorter=300))) == [5, 40]


def test_exclusive_work_waits_its_turn() -> None:
    queue, work = Queue(), Ticket(time.monotonic() + 60, work=MethodCall("look"))
    queue.put(work)
    queue.put(ticket(5))
    assert sizes(queue.take(100, exclusive=False)) == [5], "in between, only sentences are taken"
    assert [row.ticket for row in queue.take()] == [work]


def test_a_sentence_knows_its_place() -> None:
    made = ticket(1, 2, 3)
    assert [each.place for each in made.waiting] == [0, 1, 2]
    made.give(2, "c")
    made.give(0, "a")
    assert not made.answer.done()
    made.give(1, "b")
    assert made.answer.result(0) == ["a", "b", "c"]
    assert isinstance(made.waiting[0], Row)


# --- with a process

LONG = " ".join(["ba"] * 600)


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    """Processes of models start as forks of one that has torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.processes.context", context)
        yield


@pytest.fixture(scope="module")
def shared_worker() -> Any:
    worker = begin()
    yield worker
    worker.close()


def begin(**limits: Any) -> Worker:
    worker = Worker(str(trained()), Limits(**{"stuck": PATIENCE, **limits}), Metrics())
    worker.open()
    worker.start()
    until(lambda: not worker.trouble)
    return worker


def ask(worker: Worker, *texts: str, client: str = "one", beam: int | None = None) -> Ticket:
    made = Ticket(time.monotonic() + PATIENCE, client, beam or worker.about["beam"], Options(beam))
    made.add(list(texts))
    worker.submit(made)
    return made


def texts(found: Ticket) -> list[str]:
    return [each.text for each in found.answer.result(PATIENCE)]


def leave(found: Ticket) -> None:
    """What the server does when a client has gone away."""
    found.gone = True
    found.answer.cancel()


def test_answers_do_not_depend_on_the_batch(shared_worker: Worker) -> None:
    each = ["ba da", "lu me ko", "zo ti ke ma", "fo", "ba", "ga ne vi so"]
    alone = [texts(ask(shared_worker, text))[0] for text in each]
    together = [ask(shared_worker, text) for text in each]
    assert alone == [texts(one)[0] for one in together] == texts(ask(shared_worker, *each))


def test_short_requests_pass_a_long_one(shared_worker: Worker) -> None:
    long = ask(shared_worker, *[LONG] * 200)
    until(lambda: len(long.waiting) < 200)
    assert texts(ask(shared_worker, "ba da")) == ["da ba"]
    assert not long.answer.done(), "the long one is still under way"
    leave(long)
    assert shared_worker.accepted.total() == 0


def test_a_client_that_leaves_frees_its_place_and_the_model(shared_worker: Worker) -> None:
    long = ask(shared_worker, *[LONG] * 1000)
    until(lambda: len(long.waiting) < 1000)
    assert shared_worker.accepted["one"] == 1
    leave(long)
    assert shared_worker.accepted.total() == 0
    work = Ticket(time.monotonic() + PATIENCE, work=MethodCall("self_test"))
    shared_worker.submit(work)
    assert isinstance(work.answer.result(PATIENCE), str), (
        "exclusive work never comes in between: the batch was given up"
    )


def test_a_deadline_stops_the_work(shared_worker: Worker) -> None:
    long = ask(shared_worker, *[LONG] * 1000)
    until(lambda: len(long.waiting) < 1000)
    long.deadline = time.monotonic()
    with pytest.raises(StoppedError):
        long.answer.result(PATIENCE)


def test_an_error_reaches_its_own_request_only(shared_worker: Worker) -> None:
    with pytest.raises(RefusedError) as refused:
        ask(shared_worker, "ba da", beam=-1).answer.result(PATIENCE)
    assert refused.value.status == 422
    assert texts(ask(shared_worker, "ba da")) == [backwards("ba da")]
    assert shared_worker.trouble == ""


def unstarted(**limits: Any) -> Worker:
    """A worker whose process is never used."""
    worker = Worker(str(trained()), Limits(**limits), Metrics())
    worker.about = {"id": "none", "beam": 1}
    worker.close(0)
    return worker


def status(worker: Worker, client: str = "one", cost: int = 0) -> int:
    try:
        worker.make_room(client, cost)
    except RefusedError as refused:
        return refused.status
    return 200


def test_beyond_the_queue_requests_are_refused_and_a_quarter_is_kept_for_others() -> None:
    worker = unstarted(queue=8)
    waiting = [ask(worker, "ba") for _ in range(6)]
    assert [status(worker), status(worker, "two")] == [429, 200]
    waiting += [ask(worker, "ba", client="two") for _ in range(2)]
    assert [status(worker), status(worker, "two"), status(worker, "three")] == [429] * 3
    for one in waiting:
        leave(one)
    assert [status(worker), status(worker, "two")] == [200, 200]
    assert not worker.accepted


def test_admission_counts_what_will_be_decoded() -> None:
    worker = unstarted(cost=5000)
    assert [status(worker, cost=5000), status(worker, cost=5001)] == [200, 413]
    waiting = ask(worker, "x" * 2000, beam=2)
    assert [status(worker, cost=1000), status(worker, cost=1001)] == [200, 429]
    leave(waiting)
    assert status(worker, cost=1001) == 200


# --- processes that fail


def restarts(worker: Worker) -> float | None:
    return worker.metrics.registry.get_sample_value("regard_model_restarts_total", {"model": worker.name})


def test_a_process_that_dies_is_replaced_and_its_requests_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = begin()
    assert worker.run_in_thread("fit", ["ba da"]).result(PATIENCE)[0][0] == 1.0
    translated = []

    def translate_and_die(batch: list[Row], alone: bool = True) -> None:
        if not translated:
            os.kill(frozen(worker), signal.SIGKILL)  # while the batch is in the process, which cannot answer any more
        translated.append(len(batch))
        Worker._work(worker, batch, alone)

    monkeypatch.setattr(worker, "_work", translate_and_die)
    requests = [ask(worker, *[LONG[:300]] * 4), ask(worker, "ba da", client="two")]
    assert texts(requests[1]) == ["da ba"]
    assert len(texts(requests[0])) == 4
    until(lambda: not worker.trouble)
    assert restarts(worker) == 1
    worker.close()
    assert worker._process.dead


def test_a_process_that_is_stuck_is_ended_and_the_request_refused(
    shared_worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = shared_worker
    stuck = Ticket(time.monotonic() + PATIENCE, work=MethodCall("head_errors"))

    def freeze_and_work(batch: list[Row]) -> None:
        frozen(worker)
        monkeypatch.setattr(worker, "limits", Limits(stuck=0.2))
        Worker._work(worker, batch)

    monkeypatch.setattr(worker, "_work", freeze_and_work)
    worker.submit(stuck)
    with pytest.raises(RefusedError) as refused:
        stuck.answer.result(PATIENCE)
    assert refused.value.status == 503
    monkeypatch.undo()
    until(lambda: not worker.trouble)
    assert restarts(worker)
    assert texts(ask(worker, "ba da")) == ["da ba"]


def frozen(worker: Worker) -> int:
    """Stop a worker's process where it is: its number."""
    pid = worker._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_a_run_that_cannot_be_loaded_is_refused_at_the_start(tmp_path: Path) -> None:
    worker = Worker(str(tmp_path / "none"), Limits(), Metrics())
    with pytest.raises(RunError):
        worker.open()
    worker.close()


def test_a_model_whose_answers_change_is_not_well(shared_worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(shared_worker, "_sample", "something else")
        shared_worker._probe()
        assert shared_worker.trouble == "the model's answers changed"
    shared_worker._probe()
    until(lambda: not shared_worker.trouble)


def test_another_model_in_the_folder_of_a_served_one_never_answers(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained(), folder)
    worker = Worker(str(folder), Limits(), Metrics())
    worker.open()
    worker.start()
    try:
        assert texts(ask(worker, "ba da")) == ["da ba"]
        shutil.rmtree(folder)
        shutil.copytree(one_vector(), folder)
        waits = ask(worker, *["ba da ga ka"] * 200)
        worker._process.kill()
        until(lambda: worker.trouble == "the model's answers changed")
        for late in (waits, ask(worker, "ba da")):
            with pytest.raises(RefusedError, match="not the one that was loaded first; restart the server"):
                late.answer.result(PATIENCE)
        with pytest.raises(RefusedError, match="restart the server"):
            worker.make_room()
    finally:
        worker.close()
