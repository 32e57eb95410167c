"""Kernels compiled by another process while the corpus is prepared."""

import subprocess

import pytest
import small
import torch

from regard.models.registry import MODELS
from regard.training import rehearsal

TRANSLATORS = [name for name, found in MODELS.items() if found.task == "translate"]
SHORT = ("train.batch_tokens=70", "data.vocabulary=20")


@pytest.fixture
def started(monkeypatch):
    """The processes that were started."""
    processes, start = [], subprocess.Popen

    def spy(command, **options):
        processes.append(start(command, **options))
        return processes[-1]

    monkeypatch.setattr(rehearsal.subprocess, "Popen", spy)
    return processes


@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_translator_rehearses_its_update(name):
    tables = small.gather(None, name, "tiny", [*SHORT, "data.subwords=word"], corpus="reverse")
    rehearsal.rehearse(small.resolve(tables), torch.device("cpu"))


def test_what_needs_links_rehearses_without_them():
    guided = small.experiment("bahdanau", *SHORT, "train.guided=1", "data.alignment=gold", corpus="phrasebook")
    rehearsal.rehearse(guided, torch.device("cpu"))


def test_a_process_compiles_while_the_block_runs_and_is_gone_after_it(started, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rehearsal, "little_memory", lambda: False)
    with rehearsal.compiling(small.experiment("bahdanau", *SHORT), torch.device("cuda")):
        assert len(started) == 1
    assert started[0].returncode is not None


def test_a_cpu_another_task_and_a_machine_with_kernels_need_no_process(started, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rehearsal, "little_memory", lambda: False)
    experiment = small.experiment("bahdanau", *SHORT)
    with rehearsal.compiling(experiment, torch.device("cpu")):
        pass
    tales = small.resolve(small.gather(None, "lstm-lm", "tiny", [], corpus="tales"))
    with rehearsal.compiling(tales, torch.device("cuda")):
        pass
    (tmp_path / "kernel").mkdir()
    with rehearsal.compiling(experiment, torch.device("cuda")):
        pass
    assert started == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_process_leaves_kernels_behind(started, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with rehearsal.compiling(small.experiment("transformer", *SHORT, "train.precision=bf16"), torch.device("cuda")):
        assert started[0].wait(120) == 0
    assert rehearsal.has_kernels()
