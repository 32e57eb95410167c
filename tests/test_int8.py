"""Small runs: int8 weights that load like any other run, are as good, and are refused when damaged."""

import json
from pathlib import Path

import pytest
import small
import torch
import trained
from commands import regard as command
from safetensors.torch import load_file, save_file

import regard
from regard.api.exporting import export
from regard.errors import ConfigError, RunError
from regard.runs.folder import entry, make_manifest
from regard.runs.int8 import LEVELS, SCALE, expand, shrink


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "copy"
    export(trained.run("copy"), folder)
    return folder


def test_a_weight_moves_by_at_most_half_a_step_of_its_row():
    torch.manual_seed(1)
    weights = {"matrix": torch.randn(5, 7) * torch.tensor([1e-6, 1.0, 50.0, 0.0, 3.0])[:, None], "bias": torch.randn(7)}
    weights["kernel"] = torch.randn(4, 3, 2, 2)
    found = dict(expand(shrink(weights), "here"))
    assert found.keys() == weights.keys()
    for name in ("matrix", "kernel"):
        step = weights[name].flatten(1).abs().amax(1) / LEVELS
        moved = (found[name] - weights[name]).flatten(1).abs().amax(1)
        assert (moved <= 0.5001 * step + 1e-12).all()
    assert found["bias"].dtype == torch.float32
    assert torch.allclose(found["bias"], weights["bias"], rtol=1e-3)


def test_numbers_that_half_precision_cannot_hold_stay_as_they_are():
    small = shrink({"b": torch.tensor([1e6]), "n": torch.tensor([3])})
    assert dict(expand(small, "here"))["b"].item() == 1e6


def test_a_small_run_translates_as_the_run_that_it_came_from(out: Path):
    whole, found = trained.translator("copy"), regard.load(out)
    texts = [" ".join(whole.source_vocabulary.pieces([k, k + 3, k + 1])) for k in range(4, 24)]
    same = [a.text == b.text for a, b in zip(whole.translate(texts), found.translate(texts), strict=True)]
    assert sum(same) >= 19
    weights = load_file(out / "weights.safetensors")
    assert {tensor.dtype for name, tensor in weights.items() if tensor.dim() > 1} == {torch.int8}
    assert (out / "weights.safetensors").stat().st_size < 0.4 * (
        trained.run("copy") / "weights.safetensors"
    ).stat().st_size


def test_what_only_training_needs_is_left_behind(out: Path):
    assert sorted(path.name for path in out.iterdir()) == [
        "config.toml", "manifest.json", "source.json", "target.json", "weights.safetensors",
    ]  # fmt: skip


def test_folders_of_files_are_left_behind(tmp_path: Path):
    (tmp_path / "secret").mkdir()
    for side in ("en", "fr"):
        (tmp_path / "secret" / f"a.{side}").write_text("".join(f"ba {'da ' * k}\n" for k in range(20)))
    files = {side: str(tmp_path / "secret" / f"a.{end}") for side, end in (("source", "en"), ("target", "fr"))}
    run = tmp_path / "run"
    settings = ["train.steps=1", "data.subwords=word", "model.width=4", "model.layers=1"]
    regard.train(model="luong", preset="tiny", out=run, settings=settings, **files)
    export(run, tmp_path / "out")
    text = (tmp_path / "out" / "config.toml").read_text()
    assert 'source = "a.en"' in text
    assert "secret" not in text
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["expects"]["source_language"] == "en"
    assert manifest["expects"]["case"] == "lower"
    assert manifest["expects"]["corpus"] == "a.en"


@pytest.mark.parametrize("name", ["captioner", "language", "classifier"])
def test_every_task_can_be_exported(name: str, tmp_path: Path):
    export(trained.run(name), tmp_path / "out")
    whole, found = trained.model(name).model, regard.load(tmp_path / "out").model
    for one, other in zip(whole.parameters(), found.parameters(), strict=True):
        assert torch.allclose(one, other, atol=float(one.detach().abs().max()) / 100 + 1e-6)


@pytest.mark.parametrize("name", trained.SETTINGS)
def test_loading_draws_no_random_weights(name: str):
    """They would be replaced, and drawing them takes longer than all else."""
    run, before = trained.run(name), torch.get_rng_state()
    regard.load(run)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_small_run_can_be_trained_on(out: Path, tmp_path: Path):
    settings = [f"train.start_from={out}", "train.steps=2", "train.batch_tokens=64", "data.size=60", "data.max_words=6"]
    assert regard.train(corpus="copy", out=tmp_path / "tuned", settings=settings).translate("a") is not None


def test_a_flipped_bit_is_refused(out: Path, tmp_path: Path):
    for name in ("weights.safetensors", "config.toml", "manifest.json", "source.json"):
        folder = tmp_path / name
        folder.mkdir()
        for path in out.iterdir():
            content = bytearray(path.read_bytes())
            if path.name == name:
                content[len(content) // 2] ^= 4
            (folder / path.name).write_bytes(content)
        with pytest.raises(RunError, match=r"damaged|not there"):
            regard.load(folder)


@pytest.mark.parametrize("fault", ["no scale", "short scale", "no matrix", "other model"])
def test_weights_that_do_not_fit_together_are_refused(out: Path, tmp_path: Path, fault: str):
    tensors = load_file(out / "weights.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.dtype == torch.int8)
    if fault == "no scale":
        tensors.pop(name + SCALE)
    elif fault == "short scale":
        tensors[name + SCALE] = tensors[name + SCALE][1:].clone()
    elif fault == "no matrix":
        tensors.pop(name)
    else:
        tensors.update({name: tensors[name][:, 1:].contiguous()})
    for path in out.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    save_file(tensors, tmp_path / "weights.safetensors")
    files = [path for path in tmp_path.iterdir() if path.name != "manifest.json"]
    (tmp_path / "manifest.json").write_bytes(make_manifest({one.name: entry(one.read_bytes()) for one in files}, {}))
    with pytest.raises(RunError, match=r"damaged|another model"):
        regard.load(tmp_path)


def test_nothing_is_overwritten_and_unknown_formats_are_refused(out: Path, tmp_path: Path):
    with pytest.raises(RunError, match="is not an empty folder; nothing was changed"):
        export(trained.run("copy"), out)
    with pytest.raises(ConfigError, match="Did you mean 'small'"):
        export(trained.run("copy"), tmp_path / "x", "smal")
    (tmp_path / "empty").mkdir()
    export(trained.run("copy"), tmp_path / "empty")
    assert regard.load(tmp_path / "empty")


def test_the_command(tmp_path: Path):
    small.train("luong", tmp_path / "run", "train.steps=2")
    found = command("export", tmp_path / "run", "--to", "small", "--out", tmp_path / "out", folder=tmp_path / "log")
    assert found.code == 0, found.err
    printed = command("models", tmp_path / "out", folder=tmp_path / "log")
    assert "luong" in printed.out
    assert "lower case; input is lower-cased" in printed.out
    assert command("export", tmp_path / "gone", "--out", tmp_path / "y", folder=tmp_path / "log").code == 2
