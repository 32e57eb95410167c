"""Child processes: calls, partial results, interrupts, errors, deaths, and that they end with their parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import context
from patience import PATIENCE, until

from regard import processes
from regard.errors import RunError
from regard.processes import ChildProcess, DiedError, FailedError


@pytest.fixture(scope="module", autouse=True)
def forks():
    """Children are forks of the server of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "context", context)
        yield


def load():
    """Start the service of these tests: `answer` calls the function of this name."""
    return answer


def answer(running, name, *args):
    return {"count": count, "wait": wait, "fail": fail, "thread": thread, "sleep": sleep, "variable": os.environ.get}[
        name
    ](*([running, *args] if name in ("count", "wait") else args))


def count(running, most):
    for number in range(most):
        running.send(number)
    return most


def wait(running):
    while not running.stopped():
        time.sleep(0.01)
    return "stopped"


def sleep():
    time.sleep(PATIENCE)


def thread():
    return threading.current_thread() is threading.main_thread()


class PickyError(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, one, two):
        super().__init__(one + two)


def fail(kind):
    raise RunError("expected this") if kind == "ours" else PickyError("ab", "cd")


@pytest.fixture(scope="module")
def shared():
    child = ChildProcess(load)
    yield child
    child.end()
    child.join(PATIENCE)
    assert child.exitcode == 0


def test_results_parts_and_errors_arrive_in_order(shared):
    parts = []
    assert shared.call("count", 5, part=parts.append).result.result(PATIENCE) == 5
    assert parts == [0, 1, 2, 3, 4]
    with pytest.raises(RunError, match=r"^expected this$"):
        shared.call("fail", "ours").result.result(PATIENCE)
    with pytest.raises(FailedError, match=r"^PickyError: abcd$"):
        shared.call("fail", "other").result.result(PATIENCE)
    assert shared.call("count", 1).result.result(PATIENCE) == 1, "it still answers"


def test_a_call_that_waits_is_interrupted_overtaken_and_stopped(shared):
    waiting, behind = shared.call("wait"), shared.call("count", 2)
    assert shared.interrupt("count", 3).result.result(PATIENCE) == 3
    assert shared.call_in_thread("thread").result.result(PATIENCE) is False
    assert not waiting.result.done()
    assert not behind.result.done()
    shared.stop(waiting)
    assert waiting.result.result(PATIENCE) == "stopped"
    assert behind.result.result(PATIENCE) == 2


def test_the_environment_is_that_of_the_parent_now(shared, monkeypatch):
    monkeypatch.setenv("REGARD_TEST", "now")
    child = ChildProcess(load)
    assert child.call_in_thread("variable", "REGARD_TEST").result.result(PATIENCE) == "now"
    assert child.call_in_thread("variable", "PYTHONSAFEPATH").result.result(PATIENCE) is None, "only while it starts"
    child.end()
    child.join()


def broken():
    raise RunError("there is no such model")


def test_an_error_while_loading_is_the_result_of_loading():
    child = ChildProcess(broken)
    with pytest.raises(RunError, match="no such model"):
        child.loaded.result(PATIENCE)
    with pytest.raises(DiedError):
        child.call("count", 1).result.result(PATIENCE)


def test_silence_is_counted_while_a_call_makes_no_progress():
    child = ChildProcess(load)
    child.loaded.result(PATIENCE)
    assert child.silence == 0.0
    waiting = child.call("wait")
    assert child.interrupt("count", 1).result.result(PATIENCE) == 1  # so that it has begun
    child.signal(signal.SIGSTOP)
    until(lambda: child.silence > 0.3)
    child.signal(signal.SIGCONT)
    until(lambda: child.silence < 0.3)
    child.signal(signal.SIGKILL)
    with pytest.raises(DiedError):
        waiting.result.result(PATIENCE)
    until(lambda: child.dead)
    child.join()
    assert (child.exitcode, child.silence) == (-signal.SIGKILL, 0.0)


def test_one_child_that_is_stopped_or_killed_does_not_disturb_the_others(shared):
    first, second = ChildProcess(load), ChildProcess(load)
    first.loaded.result(PATIENCE)
    second.loaded.result(PATIENCE)
    first.signal(signal.SIGSTOP)
    second.signal(signal.SIGKILL)
    assert shared.call("count", 4).result.result(PATIENCE) == 4
    third = ChildProcess(load)
    assert third.call("count", 4).result.result(PATIENCE) == 4
    first.signal(signal.SIGKILL)
    for child in (first, second):
        child.join()
    third.end()
    third.join()


def test_children_end_with_their_parent_and_without_the_current_folder(tmp_path):
    """A real parent: its children find no module in its current folder, and end when it is killed."""
    trap = "raise SystemExit('code of the current folder has run')\n"
    for name in ("multiprocessing", "threading", "signal", "test_processes_none", "torch", "regard"):
        (tmp_path / f"{name}.py").write_text(trap, encoding="utf-8")
    script = tmp_path / "scripts" / "parent.py"
    script.parent.mkdir()
    script.write_text(
        "import sys; sys.path.insert(1, sys.argv[1])\n"
        "from regard.processes import ChildProcess\n"
        "from test_processes import load\n"
        "if __name__ == '__main__':\n"
        "    child = ChildProcess(load)\n"
        "    call = child.call('wait')\n"
        "    child.loaded.result()\n"
        "    print(child.pid, flush=True)\n"
        "    call.result.result()\n",
        encoding="utf-8",
    )
    command = [sys.executable, str(script), str(Path(__file__).parent)]
    parent = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])


def test_calls_in_the_thread_do_not_hide_that_the_others_are_stuck():
    child = ChildProcess(load)
    child.loaded.result(PATIENCE)
    stuck = child.call("sleep")
    until(lambda: child.silence > 0.3)
    before = child.silence
    assert child.call_in_thread("thread").result.result(PATIENCE) is False
    assert child.silence > before
    child.join(0)
    assert isinstance(stuck.result.exception(PATIENCE), DiedError)


def test_calls_of_a_child_that_does_not_read_return_at_once():
    child = ChildProcess(load)
    child.loaded.result()
    child.signal(signal.SIGSTOP)
    more_than_a_pipe_holds = "x" * 1_000_000
    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(lambda: [child.call_in_thread("variable", more_than_a_pipe_holds) for _ in range(3)])
        try:
            assert len(calls.result(PATIENCE)) == 3
        finally:
            child.kill()
    assert [type(call.result.exception(PATIENCE)) for call in calls.result()] == [DiedError] * 3
    child.join()


def test_a_child_finishes_its_call_and_ends():
    child = ChildProcess(load)
    call = child.call("count", 3)
    child.finish()
    assert call.result.result(PATIENCE) == 3
    child.join(PATIENCE)
    assert child.exitcode == 0


def test_an_error_of_the_receiver_of_parts_ends_the_child():
    ended = threading.Event()
    child = ChildProcess(load, ended.set)

    def broken(part):
        raise ValueError("no room")

    call = child.call("count", 3, part=broken)
    with pytest.raises(ValueError, match="no room"):
        call.result.result(PATIENCE)
    assert ended.wait(PATIENCE)
    child.join(PATIENCE)
    assert child.exitcode is not None
