"""What must reach training, whatever the model: every dropout, its own noise at every update, smoothed labels, rewards.

A model without one of these still learns, so that no test of a result would notice.
"""

import dataclasses
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import small
import torch
from test_captioning import task_of
from torch import Tensor
from weights_of import spread

from regard.api import timed
from regard.data.batching import pack
from regard.models.registry import MODELS, build
from regard.symbols import END
from regard.training.captioning import draw_places, words_logprob
from regard.training.distributed import Ranks
from regard.training.objectives import cross_entropy
from regard.training.start import prepare

CPU = torch.device("cpu")
SOURCE, LENGTHS = torch.tensor([[5, 7, 4, 9, 6, END], [8, 6, 5, END, 0, 0]]), torch.tensor([6, 4])  # B = 2, S = 6
TARGET = torch.tensor([[4, 10, 12, 7, END], [6, 4, END, 0, 0]])  # T = 5
SIZES = {
    "source_vocabulary": 13, "target_vocabulary": 13, "vocabulary": 13, "embedding": 7, "width": 12, "attention": 9,
    "layers": 2, "decoder_layers": 2, "heads": 3, "inner": 10, "features": 8, "dropout": 0.25,
}  # fmt: skip
READ, WRITTEN = (2, 6, 7), (2, 5, 7)  # embeddings of the source and of the target
RNNSEARCH = {READ: 1, WRITTEN: 1, (2, 5, 11): 1}  # and the readout
TRANSFORMER = {(2, 6, 12): 1 + 2 * 2, (2, 5, 12): 1 + 2 * 3}  # embeddings, and each sub-layer of two layers
LSTMS = {WRITTEN: 1, (2, 5, 12): 2}  # inputs of two layers, and of the output layer
DROPPED: dict[str, tuple[dict[str, Any], dict[tuple[int, ...], int]]] = {  # settings; the shapes that are dropped from
    "cho": ({"readout": 11}, RNNSEARCH),
    "rnnencdec": ({"readout": 11}, RNNSEARCH),
    "bahdanau": ({"readout": 11}, RNNSEARCH),
    "coverage": ({"readout": 11}, RNNSEARCH),
    "monotonic": ({"readout": 11}, RNNSEARCH),
    "pointer": ({}, {READ: 1, WRITTEN: 1, (2, 5, 12): 1}),
    # The inputs of both layers on both sides, and of the output layer
    "sutskever": ({}, {(2, 6, 12): 2, (2, 5, 12): 3}),
    # The same; the second layer of the decoder and h~ that is fed are at every step
    "luong": ({}, {(2, 6, 12): 2, (2, 5, 12): 2, (2, 12): 5 + 5}),
    "britz": ({}, {READ: 2, (2, 7 + 24): 5, (2, 12): 5}),
    "lstmn": ({}, {READ: 1, (2, 6, 12): 1, **LSTMS}),
    "lstmn-lm": ({}, LSTMS),
    "attentive-lm": ({}, LSTMS),
    "lstm-lm": ({}, LSTMS),
    "transformer": ({}, TRANSFORMER),
    "transformer, pre-norm": ({"norm": "pre"}, TRANSFORMER),
    "transformer, RMSNorm": ({"layer_norm": "rms"}, TRANSFORMER),
    "transformer-lm": ({}, {(2, 5, 12): 1 + 2 * 2}),
    # The layer below the first state, h_t and the readout
    "captioner": ({"encoder": "none", "initial_layers": 2}, {(2, 8): 1, (2, 5, 12): 1, WRITTEN: 1}),
    "document": ({}, {(10, 7): 1, (4, 24): 1, (2, 24): 1}),  # words, sentences, the document
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_is_where_the_settings_say(name: str, monkeypatch: pytest.MonkeyPatch):
    dropped: list[tuple[int, ...]] = []

    def dropout(x: Tensor, p: float, training: bool = True, inplace: bool = False) -> Tensor:
        if p and training:
            assert p == 0.25
            dropped.append(tuple(x.shape))
        return x

    for place in ("regard.kernels.choose", "regard.layers.transformer", "torch.nn.functional"):
        monkeypatch.setattr(f"{place}.dropout", dropout)
    changes, shapes = DROPPED[name]
    model_name = name.split(",")[0]
    config = MODELS[model_name].presets["tiny"]
    own = {field.name for field in dataclasses.fields(config)}
    sizes = {size: value for size, value in (SIZES | changes).items() if size in own}
    model = build(model_name, dataclasses.replace(config, **sizes)).train()
    inputs: dict[str, tuple[Tensor, ...]] = {
        "translate": (SOURCE, LENGTHS, TARGET),
        "caption": (torch.rand(2, 6, 8), LENGTHS, TARGET),
        "language": (TARGET,),
        "classify": (torch.randint(4, 13, (10,)), torch.tensor([3, 2, 4, 1]), torch.tensor([3, 1])),
    }
    model(*inputs[MODELS[model_name].task])
    assert Counter(dropped) == shapes
    assert set(MODELS) == {one.split(",")[0] for one in DROPPED}


def test_every_update_of_every_rank_has_its_own_noise(tmp_path: Path):
    """And the same noise whenever it is repeated, which resuming needs."""

    def seeds(run: Path, rank: int) -> list[int]:
        run.mkdir()
        experiment = small.experiment("luong", "train.steps=4", "train.validate_every=9")
        ranks = Ranks(CPU)
        loop = prepare(experiment, run, ranks, None, None)
        make, found = loop.make_update, list[int]()
        loop.make_update = lambda *given: found.append(torch.initial_seed()) or make(*given)
        loop.make_update.refusal = ""
        ranks.rank = rank
        group = next(loop.load(loop.task.plan(0), 0, 0))
        for _ in range(4):
            loop.update([group], last=False)
        return found

    first, again, second = seeds(tmp_path / "a", 0), seeds(tmp_path / "b", 0), seeds(tmp_path / "c", 1)
    assert first == again
    assert len({*first, *second}) == 8


@pytest.mark.parametrize(
    ("packed", "setting"),
    [(False, "train.coverage=0.5"), *((p, f"train.consistency={c}") for p in (False, True) for c in (0, 1))],
)
def test_labels_of_a_translation_are_smoothed(setting: str, packed: bool, tmp_path: Path):
    tmp_path.joinpath("run").mkdir()
    experiment = small.experiment("transformer" if packed else "bahdanau", "model.dropout=0", setting)
    loop = prepare(experiment, tmp_path / "run", Ranks(CPU), None, None)
    spread(loop.model, 0.9)
    batch, found = loop.task.load([0, 1, 2], 0), []
    for smoothing in (0.0, 0.3):
        loop.task.config = dataclasses.replace(experiment.train, label_smoothing=smoothing)
        logits = loop.model(batch.source, batch.source_lengths, batch.target)
        plain = cross_entropy(logits, batch.target, smoothing)[0]
        total = loop.task.loss(loop.model, pack(batch) if packed else batch).total
        found.append(torch.stack([total, plain]).detach())
    added, plain_added = (found[1] - found[0]).tolist()
    assert abs(plain_added) > 0.02
    assert added == pytest.approx(plain_added, rel=1e-3)


@torch.no_grad()
def test_hard_attention_maximises_the_papers_objective(tmp_path: Path):
    """log p(y|s,a) + lambda_r (log p(y|s,a) / T - b) log p(s|a) + lambda_e H[s] (section 4.1)."""
    task, model = task_of("hard", tmp_path)
    model.config = dataclasses.replace(model.config, expectation=0.0, reinforce=0.7, entropy=0.4)
    model.double()
    batch = task.load([0, 1, 2], 0)
    batch = batch._replace(source=batch.source.double())
    task.set_tensors({"baseline": torch.tensor(-1.5)}, model)
    torch.manual_seed(4)
    loss = task.loss(model, batch)
    torch.manual_seed(4)
    torch.rand(())  # whether the expectation is taken
    with draw_places(model.attention, torch.zeros(3, dtype=torch.bool)) as drawn:
        words = words_logprob(model(batch.source, batch.source_lengths, batch.target), batch.target)
    total = rewards = 0.0
    for row, length in enumerate(batch.target_lengths.tolist()):
        written = float(words[row, :length].sum())
        places = sum(float(one.logprob[row, 0]) for one in drawn[:length])
        spread = sum(float(one.entropy[row, 0]) for one in drawn[:length])
        assert spread > 0
        total += written + 0.7 * (written / length + 1.5) * places + 0.4 * spread
        rewards += written / length
    assert float(loss.total) == pytest.approx(-total, rel=1e-6)
    assert loss.sums.tolist() == pytest.approx([rewards, 3], rel=1e-6)


def test_a_measured_speed_is_pieces_over_seconds(monkeypatch: pytest.MonkeyPatch):
    """The fastest of the updates after the first, by a clock of our own."""
    times = iter([0, 9, 10, 14, 20, 22, 30, 33, *range(40, 400, 3)])
    monkeypatch.setattr(timed, "time", SimpleNamespace(monotonic=lambda: float(next(times))))
    tokens = timed.batch_sizes(CPU).measured
    assert timed.measure(1, 32, 50, 4, CPU) == tokens // 4 * 4 / 2.0
