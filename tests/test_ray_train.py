"""`regard train --on ray`: two raylets of this machine train as one process does, also when one is killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import patience
import pytest
import small
from commands import metrics, steps_made
from test_train_ranks import close

import regard
from regard.cluster.ranks import LOST, Head, Job, Reporter, follow, run_rank, train_on_ray
from regard.errors import ConfigError, RunError, TrainingError
from regard.runs.folder import newest_checkpoint
from regard.training.events import DataReady, Noticed, Resumed, Stepped

SETTINGS = ("train.steps=160", "train.save_every=10", "train.validate_every=1000", "train.clip=0.1")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 2}, "--workers and --address are for training on a cluster; add --on ray"),
        ({"address": "here:1"}, "--workers and --address are for training on a cluster"),
        ({"on": "ray"}, "--on ray needs --workers N"),
        ({"on": "ray", "workers": 0}, "--workers must be at least 1; got 0"),
        ({"on": "rey", "workers": 1}, "Did you mean 'ray'"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_made(given, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        regard.train(corpus="reverse", model="bahdanau", preset="tiny", out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_without_ray_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"^Ray is not installed; .* pip install 'regard\[ray\]'\.$"):
        regard.train(corpus="reverse", model="bahdanau", preset="tiny", out=tmp_path / "run", on="ray", workers=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("starts", [0, 1])
def test_a_rank_with_other_storage_refuses_at_once_but_may_be_started_again_later(starts, tmp_path, monkeypatch):
    head, job = Head(), Job({}, tmp_path / "run", str(tmp_path), None, "", tmp_path / "mark")
    head.starts = starts
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda answer: answer))
    monkeypatch.setenv("RANK", "0")
    handle = SimpleNamespace(**{name: SimpleNamespace(remote=getattr(head, name)) for name in ("begin", "refuse")})
    with pytest.raises(RunError, match=r"^Rank 0 on .* storage that all nodes share\.$") as raised:
        run_rank({"job": job, "head": handle})
    assert head.poll(False)[1] is (None if starts else raised.value)
    assert head.begin(1) == (2 if starts else 0)  # 0: nothing to do for the others


def test_the_last_reports_are_sent_after_those_before_them():
    made = []

    def wait(answers, timeout=None):
        made.extend(["waited"] if timeout is None else [])
        return ([], answers) if timeout == 0 else (answers, [])

    report = Reporter(SimpleNamespace(wait=wait), SimpleNamespace(report=SimpleNamespace(remote=made.append)))
    report.answer = "of an earlier report, pending"
    report(1)
    report(2)
    report.send()
    assert made == ["waited", [1, 2]]


def test_a_lost_actor_is_one_sentence():
    class RayError(Exception):
        pass

    def get(answer):
        raise RayError("The actor died.\nThe process was killed")

    ray = SimpleNamespace(wait=lambda some, timeout: ([], some), get=get, exceptions=SimpleNamespace(RayError=RayError))
    head = SimpleNamespace(poll=SimpleNamespace(remote=lambda stop: None))
    with pytest.raises(TrainingError, match=r"^Training on Ray failed: The process was killed\. To resume, repeat"):
        follow(ray, head, None, None, None)


class Nodes:
    """A cluster of two raylets, each with room for one rank, which therefore are on both."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self.each = {"num_cpus": 1, "num_gpus": 0, "node_ip_address": ray.util.get_node_ip_address()}
        self.cluster = Cluster(initialize_head=True, head_node_args=self.each)
        self.other = self.cluster.add_node(**self.each)

    def kill(self) -> None:
        """Kill the second node with all its processes, and start another."""
        raylet = self.other.all_processes["raylet"][0].process.pid
        ranks = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
        for process in (raylet, *map(int, ranks)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.cluster.remove_node(self.other, allow_graceful=False)
        self.other = self.cluster.add_node(**self.each)


@pytest.fixture(scope="module")
def nodes():
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'regard[ray]'")
    here = str(Path(__file__).parent.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", here, prepend=os.pathsep)  # for the ranks
        patch.setenv("RAY_worker_niceness", "0")  # a busy machine is slow
        patch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(patience.PATIENCE))
        made = Nodes()
        yield made
        ray.shutdown()
        made.cluster.shutdown()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    small.train("bahdanau", run, *SETTINGS)
    return run


def command(nodes, run, *settings):
    where = ["--on", "ray", "--workers", "2", "--address", nodes.cluster.address]
    return [sys.executable, "-m", "regard", *small.arguments("bahdanau", run, *settings), *where]


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_ends_with_the_losses_of_one_process(nodes, alone, tmp_path):
    run = tmp_path / "run"
    with open(tmp_path / "said", "wb") as said:
        driver = subprocess.Popen(command(nodes, run, *SETTINGS), stderr=said)
        patience.until(lambda: steps_made(run) >= 5 or driver.poll() is not None, 0.01)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(patience.PATIENCE) == 130
    first = (tmp_path / "said").read_text(encoding="utf-8")
    assert "step 1/160  loss" in first
    assert f"Saved. To resume: regard train --out {run}" in first
    saved = int(newest_checkpoint(run).name)
    assert 5 <= saved == steps_made(run) < 160
    done = subprocess.run(command(nodes, run, *SETTINGS), stderr=subprocess.PIPE, timeout=patience.PATIENCE)
    second = done.stderr.decode()
    assert done.returncode == 0, second
    assert f"resumed at step {saved}" in second
    assert "done at step 160" in second
    assert f"The run is in {run}" in second
    assert close(run, alone)


@pytest.mark.slow
def test_a_killed_raylet_is_replaced_and_the_run_resumes(nodes, alone, tmp_path):
    run, seen, killed = tmp_path / "run", [], []

    def observe(event):
        seen.append(event)
        if isinstance(event, Stepped) and event.step >= 15 and not killed:
            killed.append(event.step)
            nodes.kill()

    experiment = small.experiment("bahdanau", *SETTINGS)
    assert train_on_ray(experiment, run, observe, workers=2, address=nodes.cluster.address) == "done"
    resumed = [event.step for event in seen if isinstance(event, Resumed)]
    assert resumed
    assert all(step >= 10 and step % 10 == 0 for step in resumed)
    assert [event.text for event in seen if isinstance(event, Noticed)].count(LOST) >= len(resumed)
    assert sum(isinstance(event, DataReady) for event in seen) == 1 + len(resumed)
    assert [line["step"] for line in metrics(run) if "loss" in line] == list(range(1, 161))
    assert close(run, alone)


@pytest.mark.slow
def test_a_refusal_of_a_rank_is_its_sentence(nodes, tmp_path):
    (tmp_path / "run").write_text("x", encoding="utf-8")
    done = subprocess.run(command(nodes, tmp_path / "run"), stderr=subprocess.PIPE, timeout=patience.PATIENCE)
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert lines == [f"regard: {tmp_path / 'run'} is a file; --out needs the name of a folder for the run."]


@pytest.mark.slow
def test_no_cluster_at_that_address_is_one_sentence(nodes, tmp_path):
    import ray

    ray.shutdown()
    with pytest.raises(RunError, match="There is no Ray cluster at 127"):
        train_on_ray(small.experiment("bahdanau"), tmp_path / "run", workers=1, address="127.0.0.1:1")
