"""The same shards on a Ray cluster of two nodes: the same bytes, also when a worker or a node is killed."""

import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trained
from test_shards import TASK, Upper, broken_start, text
from test_sweep import write as write_sweep

from regard.api.corpus import Where, align_corpus
from regard.api.sweeping import sweep
from regard.cluster.local import run_local
from regard.cluster.ray import run_ray
from regard.cluster.shards import join, make_plan
from regard.corpora.registry import generate_copy
from regard.errors import ConfigError, RunError

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
            assert run_local(start, plan, out, 1) == 0
        else:
            assert run_ray(start, plan, out, 2, address=cluster.address) == 0
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

    assert run_ray(Upper(pause=0.05), plan, out, 3, kill, cluster.address) == 0
    join(plan, out, "text", text)
    assert (out / "a.txt").read_text(encoding="utf-8") == "".join(f"{line.upper()}\n" for line in LINES)


def test_a_shard_that_keeps_failing_is_set_aside(cluster, tmp_path):
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    assert run_ray(Upper(fails_at="line 25"), plan, out, 2, address=cluster.address) == 1
    assert [path.name for path in (out / "failed").iterdir()] == ["000001.txt"]


def test_a_disk_that_takes_nothing_more_is_one_sentence(cluster, tmp_path):
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    (out / "failed").write_text("in the way", encoding="utf-8")
    with pytest.raises(RunError, match=r"^The folder .*failed cannot be created"):
        run_ray(Upper(fails_at="line 25"), plan, out, 2, address=cluster.address)


def test_work_that_cannot_start_is_one_sentence(cluster, tmp_path):
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    with pytest.raises(RunError, match=r"^no such model$"):
        run_ray(broken_start, plan, out, 2, address=cluster.address)


def test_a_sweep_on_ray_writes_what_local_runs_write(cluster, tmp_path):
    file = write_sweep(tmp_path, "[grid]\nmodel.score = ['dot', 'general']\n")
    found = {}
    for on in ("local", "ray"):
        address = cluster.address if on == "ray" else None
        swept = sweep(file, tmp_path / on, on=on, workers=2, address=address)
        assert (swept.runs, swept.finished, swept.failed) == (2, 2, {})
        lines = [(tmp_path / on / "shards" / f"00000{n}.jsonl").read_bytes().split(b"\n")[0] for n in range(2)]
        found[on] = [json.loads(line) for line in lines]
    for mine, theirs in zip(found["ray"], found["local"], strict=True):
        assert mine["written"] == theirs["written"]
        assert mine["parameters"] == theirs["parameters"]


def test_alignments_on_ray_are_those_of_local_workers(cluster, tmp_path):
    lines = [example.source for example in generate_copy(9, 5, 2, 6)]
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    made = []
    for where in (Where(workers=1, shard=4), Where("ray", 2, 4, address=cluster.address)):
        [links] = align_corpus(trained.run("copy"), [path, path], tmp_path / where.on, where=where).outputs
        made.append(links.read_bytes())
    assert made[0] == made[1]
    assert made[0].count(b"\n") == 9


def test_no_cluster_at_that_address_is_one_sentence(tmp_path):
    import ray

    ray.shutdown()
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    with pytest.raises(RunError, match="There is no Ray cluster at 127"):
        run_ray(Upper(), plan, out, 1, address="127.0.0.1:1")


@pytest.mark.parametrize("address", ["nonsense", "", "http://127.0.0.1:6379", "127.0.0.1:"])
def test_what_is_no_address_is_one_sentence(tmp_path, address):
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    with pytest.raises(ConfigError, match="The address of a Ray cluster is host:port"):
        run_ray(Upper(), plan, out, 1, address=address)


def test_another_program_at_that_address_is_one_sentence(tmp_path):
    out = tmp_path / "out"
    plan = make_plan([corpus(tmp_path)], out, 20, "", TASK)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(RunError, match=r"There is no Ray cluster at .*: another program answers there"):
            run_ray(Upper(), plan, out, 1, address=f"127.0.0.1:{server.server_port}")
        server.shutdown()
