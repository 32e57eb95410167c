"""Batches of few shapes, for updates that a GPU replays: every example once, and the loss of the batch unpadded."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_ranks
from test_captioning import task_of

from regard.data.batching import Batch, ShardedPlan, make_even, round_up
from regard.data.pairs import LinkedBatch
from regard.models.registry import MODELS, build
from regard.runs.settings import TrainConfig
from regard.training.distributed import Ranks
from regard.training.objectives import likelihood
from regard.training.update import MicroBatch, Update


def test_lengths_are_rounded_up_to_a_coarse_scale():
    lengths = np.arange(1, 2000)
    rounded = round_up(lengths)
    assert (rounded >= lengths).all()
    assert (rounded < np.maximum(lengths * 1.25, lengths + 4)).all()
    assert (round_up(rounded) == rounded).all()
    assert sorted(set(rounded[:128].tolist())) == [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128]


def test_an_even_plan_holds_every_pair_once_in_few_shapes():
    draw = np.random.default_rng(1)
    source = np.minimum(1 + draw.geometric(0.05, 5000), 100)
    target = np.clip(source + draw.integers(-3, 6, 5000), 1, 100)
    shapes, pairs = set(), []
    plan = ShardedPlan(source, target, 1024, seed=1, epoch=2, even=True)
    for position in range(len(plan)):
        numbers = plan[position]
        pairs += numbers.tolist()
        S, T = int(source[numbers].max()), int(target[numbers].max())
        empty = torch.zeros(len(numbers), dtype=torch.long)
        batch = Batch(empty, torch.zeros(len(numbers), S).long(), empty, torch.zeros(len(numbers), T).long(), empty)
        even = make_even(batch, 1024)
        assert even.source.numel() <= 1024
        assert even.target.numel() <= 1024
        shapes.add((*even.source.shape, even.target.shape[1]))
    assert sorted(pairs) == list(range(5000))
    assert len(shapes) < len(plan) / 2
    assert len({shape[1:] for shape in shapes}) == len(shapes)  # the rows follow from the lengths
    assert [len(batch) for batch in ShardedPlan(source, target, 1024, 1, 2)] != [len(batch) for batch in plan]


def test_what_is_added_is_padding_and_rows_of_length_one():
    links = torch.ones(2, 3, 5, dtype=torch.bool)
    ids = torch.full((2, 5), 7), torch.tensor([5, 5]), torch.full((2, 3), 8), torch.tensor([3, 3])
    even = make_even(LinkedBatch(torch.tensor([4, 9]), *ids, links), 40, world=2)
    assert [tuple(part.shape) for part in even] == [(3,), (3, 8), (3,), (3, 4), (3,), (3, 4, 8)]
    assert even.source.tolist() == [[7] * 5 + [0] * 3] * 2 + [[0] * 8]
    assert even.source_lengths.tolist() == [5, 5, 1]
    assert int(even.links.sum()) == 30


@pytest.mark.parametrize("name", [name for name, found in MODELS.items() if found.task in ("translate", "language")])
def test_a_padded_batch_has_the_loss_and_the_gradients_of_the_batch(name):
    torch.manual_seed(3)
    config = MODELS[name].presets["tiny"]
    sizes = {"source_vocabulary": 13, "target_vocabulary": 13, "vocabulary": 13, "dropout": 0.0, "noise": 0.0}
    fields = {field.name for field in dataclasses.fields(config)}
    model = build(name, dataclasses.replace(config, **{k: v for k, v in sizes.items() if k in fields})).double()
    source = torch.tensor([[5, 6, 7, 8, 2], [4, 9, 2, 0, 0], [11, 2, 0, 0, 0]])
    target = torch.tensor([[4, 5, 6, 9, 5, 2], [9, 2, 0, 0, 0, 0], [7, 8, 2, 0, 0, 0]])
    batch = Batch(torch.arange(3), source, torch.tensor([5, 3, 2]), target, torch.tensor([6, 2, 3]))
    found = []
    for each in (batch, make_even(batch, 40)):
        inputs = (each.source, each.source_lengths, each.target) if MODELS[name].task == "translate" else (each.target,)
        loss, plain = likelihood(model, *inputs, smoothing=0.1)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        found.append((plain.item(), loss.item(), torch.autograd.grad(loss, weights, allow_unused=True)))
    assert found[1][:2] == pytest.approx(found[0][:2], rel=1e-9)
    for one, other in zip(found[0][2], found[1][2], strict=True):
        if one is not None:
            torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-9)


def test_weights_that_an_update_changed_count_as_changed(tmp_path: Path):
    """A search that copied the weights learns from their versions that the copies are old. Fused optimisers and replays
    of a CUDA graph leave them as they are."""
    task, model = task_of("soft", tmp_path)
    make = Update(model, TrainConfig(), Ranks(torch.device("cpu")))
    make.optimiser = torch.optim.Adam(make.weights, fused=True)
    before = [(weight._version, weight.detach().clone()) for weight in make.weights]
    batch = task.load([0], 0)
    make(task, [MicroBatch([0], batch, *task.count(batch))], 0.1, lambda: (False, False))
    assert any(not torch.equal(weight, old) for weight, (_, old) in zip(make.weights, before, strict=True))
    assert all(weight._version > version for weight, (version, _) in zip(make.weights, before, strict=True))


def test_the_baseline_moves_by_the_rewards_of_all_ranks(tmp_path: Path):
    task, model = task_of("hard", tmp_path)
    batch, ranks = task.load([0, 1, 2], 0), Ranks(torch.device("cpu"))
    another = torch.tensor(
        [0.0, 5.0, 5.0, 0.0, 0.0, 0.0, -8.0, 5.0], dtype=torch.float64
    )  # rank: 5 captions, reward -8
    ranks.add_tensor = lambda total: total + another
    own = []
    loss = task.loss
    task.loss = lambda *args: own.append(loss(*args)) or own[-1]
    Update(model, TrainConfig(), ranks)(
        task, [MicroBatch([0, 1, 2], batch, *task.count(batch))], 0.1, lambda: (False, False)
    )
    assert float(task.baseline) == pytest.approx((float(own[0].sums[0]) - 8) / 8)


class WriteBaseline:
    """A plant: writes down the baseline of every update."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> None:
        from regard.training.captioning import Captioning

        carry = Captioning.carry

        def written(task, sums, sound):
            carry(task, sums, sound)
            with open(self.path, "a", encoding="utf-8") as stream:
                stream.write(f"{os.getpid()} {float(task.baseline)!r}\n")

        Captioning.carry = written


def test_two_processes_have_one_baseline(tmp_path: Path):
    settings = ("model.look=hard", "model.features=12", "model.embedding=10", "model.width=14", "model.attention=11")
    more = ("data.size=30", "train.batch_tokens=40", "train.steps=4", "train.validate_sentences=1")
    command = [
        "train",
        "--corpus",
        "shapes",
        "--model",
        "captioner",
        "--preset",
        "tiny",
        "--out",
        str(tmp_path / "run"),
    ]
    plants = {rank: WriteBaseline(tmp_path / f"{rank}.txt") for rank in range(2)}
    assert run_ranks([*command, *settings, *more], 2, tmp_path / "log", plants) == [0, 0]
    first, second = ([line.split() for line in (tmp_path / f"{rank}.txt").open()] for rank in range(2))
    assert len(first) == 4
    assert [value for _, value in first] == [value for _, value in second]
    assert first[0][0] != second[0][0]


def test_the_preset_base_starts_and_the_published_one_stays_available():
    presets = MODELS["transformer"].presets
    assert presets["base"] == dataclasses.replace(presets["paper"], gain=0.5)
    assert presets["paper"].gain == 1.0
