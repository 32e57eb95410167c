"""The same shards on a Ray cluster of two nodes: the same bytes, also when a worker or a node is killed."""

import os
import signal
import time
from pathlib import Path

import pytest
from test_shards import TASK, Upper, text

from regard.cluster.local import run_local
from regard.cluster.ray import run_ray
from regard.cluster.shards import join, make_plan, missing
from regard.errors import RunError

pytest.importorskip("ray", reason="Ray is not installed: pip install 'regard[ray]'")
pytestmark = pytest.mark.slow
LINES = [f"line {n}" for n in range(60)]


@pytest.fixture(scope="module")
def cluster():
    """Two raylets on this machine."""
    from ray.cluster_utils import Cluster

    here = Path(__file__).parent
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parent), before])  # for the workers
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    yield made
    import ray

    ray.shutdown()
    made.shutdown()
    os.environ["PYTHONPATH"] = before


def corpus(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return str(path)


def test_ray_gives_the_bytes_of_one_process_also_when_a_worker_dies(cluster, tmp_path):
    made = []
    for name, start in (("local", Upper()), ("ray", Upper()), ("killed", Upper(str(tmp_path), dies_once_at="line 31"))):
        out = tmp_path / name
        plan = make_plan([corpus(tmp_path)], out, 7, "", TASK)
        if name == "local":
            assert run_local(start, plan, out, missing(plan, out), 1) == 0
        else:
            assert run_ray(start, plan, out, missing(plan, out), 2, address=cluster.address) == 0
        [path] = join(plan, out, "jsonl", text)
        made.append(path.read_bytes())
    assert (tmp_path / "died").exists()
    assert made[0] == made[1] == made[2]


def test_a_node_that_is_killed_loses_nothing(cluster, tmp_path):
    out = tmp_path / "out"
    node = cluster.add_node(num_cpus=2)
    raylet = node.all_processes["raylet"][0].process.pid
    plan = make_plan([corpus(tmp_path)], out, 4, "", TASK)

    def kill(done, total):
        if done >= 8:
            try:
                os.kill(raylet, signal.SIGKILL)
            except ProcessLookupError:
                time.sleep(0)

    assert run_ray(Upper(pause=0.05), plan, out, missing(plan, out), 3, kill, cluster.address) == 0
    join(plan, out, "text", text)
    assert (out / "a.txt").read_text(encoding="utf-8") == "".join(f"{line.upper()}\n" for line in LINES)


def test_a_shard_that_keeps_failing_is_set_aside(cluster, tmp_path):
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    assert run_ray(Upper(fails_at="line 25"), plan, out, missing(plan, out), 2, address=cluster.address) == 1
    assert [path.name for path in (out / "failed").iterdir()] == ["000001.txt"]


def test_no_cluster_at_that_address_is_one_sentence(tmp_path):
    import ray

    ray.shutdown()
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    with pytest.raises(RunError, match="There is no Ray cluster at 127"):
        run_ray(Upper(), plan, out, missing(plan, out), 1, address="127.0.0.1:1")
