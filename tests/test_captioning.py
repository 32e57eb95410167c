"""Captioning from settings to captions: training in the one loop, resuming, features kept, and the finished writer."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.api.loading import load
from regard.corpora import shapes
from regard.data.images import as_tensor, encode_png, read_picture
from regard.data.prepare import prepare
from regard.data.settings import CaptionConfig
from regard.data.store import Column
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError, RunError
from regard.layers.image import LITE0_PACKAGE
from regard.look.record import record
from regard.models.registry import build
from regard.runs.experiment import Experiment, resolve
from regard.runs.folder import find_weights, read_tensors
from regard.runs.settings import TrainConfig
from regard.training import caption_data, captioning
from regard.training.caption_data import Album, CaptionBatch, CaptionEncoding
from regard.training.captioning import Captioning, doubly_stochastic, draw_places, on_objects
from regard.training.objectives import cross_entropy
from regard.training.start import train

SMALL = {"features": 12, "embedding": 10, "width": 14, "attention": 11}


def experiment(look: str = "soft", **train_settings: Any) -> Experiment:
    settings = {"steps": 4, "batch_tokens": 60, "save_every": 2, "validate_every": 4, "validate_sentences": 4}
    return resolve(
        {
            "model": {"name": "captioner", "preset": "tiny", "look": look, **SMALL},
            "data": {"corpus": "shapes", "size": 60, "held_out": 6},
            "train": {**settings, **train_settings},
            "decode": {"max_ratio": 0.0, "max_extra": 6},
        }
    )


def task_of(look: str, tmp_path: Path) -> tuple[Captioning, Any]:
    made = experiment(look)
    data = prepare(CaptionEncoding(made.data, made.model, tmp_path), tmp_path)
    torch.manual_seed(0)
    model = build("captioner", dataclasses.replace(made.model, target_vocabulary=len(data.vocabulary)))
    return Captioning(data, made.train, made.decode, tmp_path), model


@pytest.mark.parametrize("look", ["soft", "hard"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(look: str, tmp_path: Path):
    """The moving baseline of hard attention is in the checkpoint, so that resuming changes nothing."""
    assert train(experiment(look), tmp_path / "whole") == "done"
    assert train(experiment(look, steps=2), tmp_path / "parts") == "done"
    assert train(experiment(look), tmp_path / "parts") == "done"
    whole, parts = (
        read_tensors(tmp_path / name / "checkpoints" / "000004" / "weights.safetensors") for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_the_finished_run_writes_captions_and_shows_where_it_looked(tmp_path: Path):
    train(experiment(), tmp_path / "run")
    writer = load(tmp_path / "run", device="cpu")
    shown = shapes.scene(1000)
    pixels = shapes.draw_scene(shown)
    path = tmp_path / "scene.png"
    path.write_bytes(encode_png(pixels))
    one, again, both = writer.caption(pixels), writer.caption(path), writer.caption([pixels, path.read_bytes()])
    assert one.text == again.text == both[0].text == both[1].text
    three = writer.caption(pixels, nbest=3)
    assert len(three.nbest) == 3
    assert three == writer.caption(pixels, nbest=3) != three.nbest[1], "though each holds itself among its n-best"
    assert "nbest" not in repr(three)
    assert writer.look(pixels, three) == writer.look(pixels, nbest=3), "a caption is looked at as it was written"
    trace = writer.look(path, shown.caption)
    words = shown.caption.split(" ")
    assert [token.text for token in trace.target.tokens] == [*words, "</s>"]
    assert trace.attention["attention"].weights.shape == (1, len(words) + 1, 16)
    assert trace.attention["attention"].kind == "image"
    assert trace.attention["attention"].query == "previous"
    (seen,) = trace.attention.values()
    assert all(0 < gate < 1 for gate in seen.step_values["gate"])
    assert len(seen.step_values["gate"]) == len(words) + 1
    for view in ("film", "picture", "region", "matrix"):
        behind = {} if view == "matrix" else {"picture": pixels}
        assert trace.draw(tmp_path / f"{view}.svg", view=view, **behind).stat().st_size > 1000
    with pytest.raises(DataError, match=r"uint8 \[64, 64, 3\]"):
        writer.caption(np.zeros((64, 64), np.uint8))
    with pytest.raises(DataError, match="JPEG, PNG or WebP"):
        writer.caption(b"not a picture")


def test_the_writer_scores_an_album(tmp_path: Path):
    train(experiment(), tmp_path / "run")
    writer = load(tmp_path / "run", device="cpu")
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        shown = shapes.scene(2000 + number)
        (folder / f"{number}.png").write_bytes(encode_png(shapes.draw_scene(shown)))
        written = writer.caption(shapes.draw_scene(shown)).text
        (folder / f"{number}.txt").write_text(f"{written.upper()} .\nsomething else", encoding="utf-8")
    assert writer.score(str(folder)).bleu[0] == pytest.approx(100.0)


def test_a_run_of_another_task_is_refused(tmp_path: Path):
    run = tmp_path / "run"
    train(experiment(), run)
    text = (run / "config.toml").read_text(encoding="utf-8")
    assert text.startswith('task = "caption"')
    assert find_weights(run)
    with pytest.raises((RunError, ConfigError)):
        load(tmp_path / "nothing")


# --- the task --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", ["soft", "hard"])
def test_batches_hold_every_caption_once_beside_its_own_picture(look: str, tmp_path: Path):
    task, _ = task_of(look, tmp_path)
    plan = task.plan(3)
    numbers = np.concatenate([plan[k] for k in range(len(plan))])
    assert sorted(numbers.tolist()) == list(range(54))
    batch = task.load(plan[0].tolist(), 3)
    for row, number in enumerate(plan[0].tolist()):
        assert task.data.vocabulary.decode(batch.target[row].tolist()) == shapes.scene(number).caption
        assert torch.equal(batch.source[row], as_tensor([shapes.draw_scene(shapes.scene(number))])[0])


def test_the_soft_objective_is_likelihood_and_penalty(tmp_path: Path):
    task, model = task_of("soft", tmp_path)
    batch = task.load([0, 1, 2], 0)
    plain = task.loss(model, batch)
    with record(model) as seen:
        logits = model(batch.source, batch.source_lengths, batch.target)
    nll, _ = cross_entropy(logits, batch.target)
    assert float(plain.total.detach()) == pytest.approx(float(nll.detach()), rel=1e-5)
    assert task.count(batch) == (int((batch.target != 0).sum()), 3)
    model.config = dataclasses.replace(model.config, look_once=2.0)
    penalty = doubly_stochastic(seen["attention"].weights, batch.target)
    assert float((task.loss(model, batch).total - plain.total).detach()) == pytest.approx(2 * penalty.item(), rel=1e-4)
    assert penalty > 0


def test_hard_attention_takes_the_expectation_in_half_of_the_batches(tmp_path: Path):
    """There the loss is the likelihood alone; in the others REINFORCE adds the places that were drawn."""
    task, model = task_of("hard", tmp_path)
    batch = task.load([0, 1, 2], 0)
    task.set_tensors({"baseline": torch.tensor(0.0)}, model)
    expected = 0
    for seed in range(30):
        losses = []
        for strength in (0.0, 1000.0):
            model.config = dataclasses.replace(model.config, entropy=0.0, reinforce=strength)
            torch.manual_seed(seed)
            losses.append(float(task.loss(model, batch).total.detach()))
        expected += abs(losses[1] - losses[0]) < 1e-3
    assert 7 <= expected <= 23


def test_hard_attention_is_rewarded_by_word_and_for_its_entropy(tmp_path: Path):
    task, model = task_of("hard", tmp_path)
    batch = task.load([0, 1, 2], 0)
    model.config = dataclasses.replace(model.config, entropy=0.0, expectation=1.0)
    plain = task.loss(model, batch)
    model.config = dataclasses.replace(model.config, entropy=2.0)
    with draw_places(model.attention, torch.ones(3, dtype=torch.bool)) as drawn:
        model(batch.source, batch.source_lengths, batch.target)
    spread = torch.cat([each.entropy for each in drawn], dim=1)[batch.target != 0].sum().item()
    assert spread > 0
    assert float((plain.total - task.loss(model, batch).total).detach()) == pytest.approx(2 * spread, rel=1e-3)
    model.config = dataclasses.replace(model.config, entropy=0.0)
    one = task.load([0], 0)
    found = task.loss(model, one)  # without a baseline, the loss is the likelihood
    assert float(found.sums[0]) == pytest.approx(-float(found.total.detach()) / int(one.target_lengths[0]), rel=1e-5)


def test_hard_attention_refuses_smoothed_labels(tmp_path: Path):
    task, model = task_of("hard", tmp_path)
    task.config = dataclasses.replace(task.config, label_smoothing=0.1)
    with pytest.raises(ConfigError, match="label_smoothing = 0"):
        task.loss(model, task.load([0, 1], 0))


def test_the_baseline_begins_at_the_first_reward_and_is_carried(tmp_path: Path):
    task, model = task_of("hard", tmp_path)
    assert task.tensors() == {}
    sums = task.loss(model, task.load([0, 1, 2], 0)).sums
    assert int(sums[1]) == 3
    assert task.tensors() == {}  # it moves when the update is made
    task.carry(sums, torch.tensor(True))
    assert float(task.baseline) == pytest.approx(float(sums[0]) / 3, rel=1e-5)
    task.carry(sums * math.nan, torch.tensor(False))
    assert float(task.baseline) == pytest.approx(float(sums[0]) / 3, rel=1e-5)
    other, _ = task_of("hard", tmp_path)
    other.set_tensors(task.tensors(), model)
    assert other.baseline == task.baseline


def test_a_padded_batch_has_the_loss_of_the_batch(tmp_path: Path):
    """On a GPU batches are padded to few shapes, by columns and by whole rows."""
    for look in ("soft", "hard"):
        task, model = task_of(look, tmp_path / look)
        model.config = dataclasses.replace(model.config, look_once=2.0, expectation=1.0)
        model.double()
        task.set_tensors({"baseline": torch.tensor(-1.0)}, model)
        batch = task.load([0, 1, 2], 0)
        batch = batch._replace(source=batch.source.double())
        padded = task.even(batch, 1)
        assert len(padded.target) > 3
        assert padded.target.shape[1] > batch.target.shape[1]
        one, other = task.loss(model, batch), task.loss(model, padded)
        assert other.total.item() == pytest.approx(one.total.item(), rel=1e-9)
        assert other.sums.tolist() == pytest.approx(one.sums.tolist(), rel=1e-6)


def test_weight_on_the_named_object_is_measured():
    album = Album(lambda rows: torch.zeros(0), Column.of([[5, 6, 7, 2]]), np.array([0]), lambda place: (None, 2, 2))
    weights = torch.tensor([[[1.0, 0, 0], [0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0, 0, 1]]])
    found = on_objects(album, [0], weights)
    assert np.mean(found, axis=0).tolist() == pytest.approx([0.55, 0.5])
    assert on_objects(dataclasses.replace(album, cells=None), [0], weights) == []


def test_validation_measures_what_the_settings_say(tmp_path: Path):
    task, model = task_of("soft", tmp_path)
    with torch.inference_mode():
        found = task.validate(model.eval())
    assert set(found.metrics) == {
        "loss",
        "shuffled_loss",
        "perplexity",
        "on_object",
        "best_on_object",
        "bleu",
        "accuracy",
    }
    assert len(found.samples) == 3
    assert 0 < found.metrics["on_object"] < 1


def test_a_picture_with_several_captions_is_described_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    task, model = task_of("soft", tmp_path)
    twice = np.repeat(np.arange(len(task.data.dev)), 2)
    album = dataclasses.replace(
        task.data.dev,
        targets=Column.of([task.data.dev.targets.row(row) for row in twice]),
        pictures=task.data.dev.pictures[twice],
    )
    seen: list[torch.Tensor] = []
    real = captioning.decode
    monkeypatch.setattr(captioning, "decode", lambda model, *given: (seen.append(given[0]), real(model, *given))[1])
    tasks = [
        Captioning(dataclasses.replace(task.data, dev=dev), task.config, task.decode, tmp_path)
        for dev in (task.data.dev, album)
    ]
    with torch.inference_mode():
        once, found = (one.validate(model.eval()) for one in tasks)
    assert len(seen[0]) == 4
    assert torch.equal(*seen)
    assert found.samples == once.samples
    assert found.metrics["bleu"] == once.metrics["bleu"]


# --- frozen encoders -------------------------------------------------------------------------------------------------


def test_features_of_a_frozen_encoder_are_computed_once(tmp_path: Path):
    pytest.importorskip(LITE0_PACKAGE, reason="the weights of EfficientNet-Lite0 come in another package")
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.png").write_bytes(encode_png(shapes.draw_scene(shapes.scene(number))))
        (folder / f"{number}.txt").write_text("a drawn picture\n", encoding="utf-8")
    made = resolve(
        {
            "model": {"name": "captioner", "preset": "small", "grid": 2, "width": 14, "embedding": 10, "attention": 11},
            "data": {"images": str(folder), "held_out": 1, "cache": str(tmp_path / "cache")},
        }
    )
    data = prepare(CaptionEncoding(made.data, made.model, tmp_path / "run"), tmp_path / "run")
    assert data.encoding.cells == 4
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("features*/all.cells")}
    assert len(kept) == 1, "held-out pictures are among the others"
    again = prepare(CaptionEncoding(made.data, made.model, tmp_path / "other"), tmp_path / "other")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("features*/all.cells")} == kept
    rows = data.train.source([0, 1])
    assert rows.shape == (2, 4, 1280)
    assert torch.equal(again.train.source([0, 1]), rows)
    model = build("captioner", dataclasses.replace(made.model, target_vocabulary=len(data.vocabulary)))
    task = Captioning(data, TrainConfig(), DecodeConfig(), tmp_path)
    task.ready(model)
    pixels = shapes.draw_scene(shapes.scene(0))
    seen = model.see(as_tensor([pixels]))
    assert (seen[0] - rows[0]).abs().max() < 0.02 * max(1.0, float(rows.abs().max()))
    batch = CaptionBatch(*task.load([0, 1], 0))
    task.loss(model.train(), batch).total.backward()
    assert all(weight.grad is None for weight in model.image.parameters())


def test_features_belong_to_their_pictures_in_every_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs that share a cache may name the pictures of one folder in another order, or fewer of them."""

    class Means(torch.nn.Module):
        """The mean colour of each cell: without weights, so that it is frozen."""

        stride = 16

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            read.append(len(pictures))
            return torch.nn.functional.avg_pool2d(pictures, 16).flatten(2).mT  # [B, S, 3]

    read: list[int] = []
    monkeypatch.setattr(caption_data, "image_encoder", lambda name, width: Means())
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.png").write_bytes(encode_png(shapes.draw_scene(shapes.scene(number))))
    made = experiment()
    model = dataclasses.replace(made.model, encoder="efficientnet-lite0", grid=2, features=3)
    for order, computed in (((0, 1, 2, 3), 4), ((0, 1, 2, 3), 0), ((3, 1, 0, 2), 4), ((2, 1), 2)):
        lines = [json.dumps({"image": f"{number}.png", "captions": [f"picture {number}"]}) for number in order]
        (tmp_path / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
        config = CaptionConfig(
            images=str(folder), captions=str(tmp_path / "captions.jsonl"), held_out=1, cache=str(tmp_path / "cache")
        )
        read.clear()
        data = prepare(CaptionEncoding(config, model, tmp_path / "run"), tmp_path / "run")
        assert sum(read) == computed
        found = torch.cat([album.source(album.pictures) for album in (data.train, data.dev)])
        places = [place for album in (data.train, data.dev) for place in album.pictures]
        pixels = [read_picture(folder / f"{order[place]}.png", 32) for place in places]
        assert torch.equal(found, Means()(as_tensor(pixels)).half().float())


def test_drawn_pictures_need_the_encoder_that_learns(tmp_path: Path):
    made = experiment()
    with pytest.raises(ConfigError, match=r"need model\.encoder='small'"):
        prepare(CaptionEncoding(made.data, dataclasses.replace(made.model, encoder="none"), tmp_path), tmp_path)
