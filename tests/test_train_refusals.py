"""What was changed on the disk, or does not belong together, is refused by name; what can be used is used."""

import json
import os
import random
import shutil
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import pytest
import small

import regard
from regard.api.training import gather
from regard.data.vocabulary import Vocabulary
from regard.data.word_vocabulary import Plain
from regard.errors import ConfigError, DataError, RegardError, RunError
from regard.models.registry import MODELS, build, preset
from regard.runs.experiment import resolve
from regard.runs.folder import (
    VERSION,
    checkpoints,
    digest,
    find_weights,
    newest_checkpoint,
    read_config,
    read_cursor,
    read_tensors,
)
from regard.runs.weights import weightless
from regard.sealed import seal
from regard.training.events import DataReady
from regard.training.start import train as begin

SETTINGS = ("train.steps=8", "train.validate_every=4", "train.best_by=loss")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    small.train("bahdanau", run, *SETTINGS)
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run, to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def unfinished(run):
    """A run in progress: checkpoints 4 and 8, no finished model."""
    (run / "manifest.json").unlink()
    (run / "weights.safetensors").unlink()
    return run


def damages(content: bytes, count: int, seed: int = 1):
    """`content` with one bit changed (at both ends and `count` places between), cut short, and lengthened."""
    rng = random.Random(seed)
    for place in (0, 7, 8, len(content) - 1, *(rng.randrange(len(content)) for _ in range(count))):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        yield bytes(changed)
    yield from (content[:-1], content[: len(content) // 2], b"", content + b"\0", content + b"\n", b"\0" + content)
    yield content[:-4] + content[-4:][::-1] if content[-4:] != content[-4:][::-1] else content[1:]


def test_no_changed_byte_of_a_finished_run_is_loaded(run):
    names = ("weights.safetensors", "config.toml", "source.json", "target.json")
    assert set(json.loads((run / "manifest.json").read_bytes())["files"]) == set(names)
    tried = 0
    for name in names:
        good = (run / name).read_bytes()
        for bad in damages(good, 60):
            (run / name).write_bytes(bad)
            with pytest.raises(RunError, match=f"{name} is damaged"):
                find_weights(run)
            tried += 1
        with pytest.raises(RunError, match=f"{name} is damaged"):
            regard.load(run)
        (run / name).unlink()
        with pytest.raises(RunError, match=f"{name} is in the manifest but missing"):
            regard.load(run)
        (run / name).write_bytes(good)
    assert tried > 250
    assert regard.load(run)


def test_not_one_byte_of_the_manifest_can_change(run):
    good = (run / "manifest.json").read_bytes()
    rng = random.Random(3)
    for place in range(len(good)):
        changed = bytearray(good)
        changed[place] ^= 1 << rng.randrange(8)
        (run / "manifest.json").write_bytes(changed)
        with pytest.raises(RunError, match=r"manifest\.json|layout"):
            find_weights(run)
    for bad in damages(good, 0):
        (run / "manifest.json").write_bytes(bad)
        with pytest.raises(RunError, match=r"manifest\.json|layout"):
            find_weights(run)
    (run / "manifest.json").write_bytes(good)
    assert find_weights(run)


def test_a_finished_model_stays_if_no_checkpoint_is_intact(run):
    for folder in checkpoints(run):
        (folder / "weights.safetensors").write_bytes(b"damaged")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(RunError, match="is damaged"):
        small.train("bahdanau", run, "train.steps=12", *SETTINGS[1:])
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    regard.load(run)


def test_no_changed_byte_of_a_checkpoint_is_loaded(unfinished):
    shutil.rmtree(unfinished / "checkpoints" / "000004")
    (folder,) = checkpoints(unfinished)
    for file in sorted(folder.iterdir()):
        good = file.read_bytes()
        for bad in damages(good, 40):
            file.write_bytes(bad)
            for use in (find_weights, newest_checkpoint):
                with pytest.raises(RunError, match=file.name.replace(".", r"\.")):
                    use(unfinished)
        file.write_bytes(good)
    assert find_weights(unfinished)


@pytest.mark.parametrize("name", ["weights.safetensors", "state.safetensors", "state.json", "manifest.json"])
def test_a_damaged_newest_checkpoint_leaves_the_one_before(name, unfinished):
    file = unfinished / "checkpoints" / "000008" / name
    file.write_bytes(file.read_bytes()[:-1])
    assert newest_checkpoint(unfinished).name == "000004"
    assert find_weights(unfinished).parent.name == "000004"
    assert regard.load(unfinished)
    file.unlink()
    assert newest_checkpoint(unfinished).name == "000004"


def test_swapped_files_are_refused(run):
    first, second = (folder / "weights.safetensors" for folder in checkpoints(run))
    assert digest(first) != digest(second)
    shutil.copy(first, second)
    assert newest_checkpoint(run).name == "000004"
    other = first if digest(run / "weights.safetensors") != digest(first) else run / "source.json"
    shutil.copy(other, run / "weights.safetensors")
    with pytest.raises(RunError, match=r"weights\.safetensors is damaged"):
        regard.load(run)


def test_without_a_manifest_the_best_checkpoint_is_used(unfinished):
    best = read_cursor(newest_checkpoint(unfinished)).best_step
    assert find_weights(unfinished) == unfinished / "checkpoints" / f"{best:06d}" / "weights.safetensors"
    shutil.rmtree(unfinished / "checkpoints" / f"{best:06d}")
    left = newest_checkpoint(unfinished)
    assert find_weights(unfinished).parent == left
    shutil.rmtree(left)
    with pytest.raises(RunError, match="holds no finished model and no checkpoint"):
        regard.load(unfinished)


def test_a_manifest_of_an_older_state_or_of_too_few_files_is_refused(run):
    manifest = json.loads((run / "manifest.json").read_bytes())
    body = {name: value for name, value in manifest.items() if name != "seal"}
    stale = json.loads(json.dumps(body))
    stale["files"]["weights.safetensors"]["sha256"] = digest(checkpoints(run)[0] / "state.safetensors")
    (run / "manifest.json").write_bytes(seal(stale))
    with pytest.raises(RunError, match=r"weights\.safetensors is damaged"):
        regard.load(run)
    for missing in ("weights.safetensors", "config.toml"):
        fewer = {**body, "files": {name: entry for name, entry in body["files"].items() if name != missing}}
        (run / "manifest.json").write_bytes(seal(fewer))
        with pytest.raises(RunError, match=r"manifest\.json is damaged"):
            regard.load(run)
    away = {**body["files"], "../run/config.toml": body["files"]["config.toml"]}
    (run / "manifest.json").write_bytes(seal({**body, "files": away}))
    with pytest.raises(RunError, match="is in the manifest but missing"):
        regard.load(run)


@pytest.mark.parametrize("part", [".", "checkpoints/000008"])
def test_a_run_of_another_layout_is_refused(part, run):
    if part != ".":
        (run / "manifest.json").unlink()
        shutil.rmtree(run / "checkpoints" / "000004")
    path = run / part / "manifest.json"
    body = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "seal"}
    path.write_bytes(seal({**body, "run": VERSION + 1}))
    with pytest.raises(RunError, match=f"has layout version {VERSION + 1}; this version of regard reads {VERSION}"):
        regard.load(run)
    if part != ".":
        before = digest(path)
        with pytest.raises(RunError, match="has layout version"):
            small.train("bahdanau", run, *SETTINGS)
        assert digest(path) == before


def other_vocabularies(folder: Path, side: str):
    """Vocabularies that are whole and of the same size, and not the one that was trained with."""
    header = json.loads((folder / f"{side}.json").read_bytes())
    tokens = header["tokens"]
    rng = random.Random(5)
    for _ in range(8):
        shuffled = tokens[4:]
        rng.shuffle(shuffled)
        yield header | {"tokens": tokens[:4] + shuffled}
    for place in range(5, 12):
        changed = list(tokens)
        changed[place], changed[place + 1] = changed[place + 1], changed[place]
        yield header | {"tokens": changed}
        yield header | {"tokens": [*tokens[:place], tokens[place] + "x", *tokens[place + 1 :]]}
    yield header | {"lowercase": True}
    yield header | {"form": "nfkc"}


def write_vocabulary(folder: Path, side: str, header: dict) -> None:
    """Write a vocabulary with the fingerprint that is its own."""
    tokens = Plain(header["kind"], header["tokens"])
    Vocabulary(tokens, header["kind"], header["form"], header["lowercase"]).save(folder, side)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_vocabulary_that_does_not_belong_is_refused(side, run):
    good = (run / f"{side}.json").read_bytes()
    manifest = (run / "manifest.json").read_bytes()
    for header in list(other_vocabularies(run, side)):
        write_vocabulary(run, side, header)
        assert Vocabulary.load(run, side)  # whole in itself
        (run / "manifest.json").write_bytes(manifest)
        with pytest.raises(RunError, match=rf"{side}\.json is damaged"):
            regard.load(run)
        (run / "manifest.json").unlink()
        with pytest.raises(RunError, match=rf"{side}\.json does not belong to .*checkpoints"):
            regard.load(run)
    weights = {folder.name: digest(folder / "weights.safetensors") for folder in checkpoints(run)}
    with pytest.raises(RunError, match=rf"{side}\.json does not belong to .*checkpoints"):
        small.train("bahdanau", run, *SETTINGS[1:], "train.steps=12")
    assert {folder.name: digest(folder / "weights.safetensors") for folder in checkpoints(run)} == weights
    (run / f"{side}.json").write_bytes(good)
    small.train("bahdanau", run, *SETTINGS[1:], "train.steps=12")
    assert [folder.name for folder in checkpoints(run)][-1] == "000012"


def test_a_vocabulary_that_was_deleted_is_made_again_and_belongs(run):
    before = digest(run / "source.json")
    os.unlink(run / "source.json")
    with pytest.raises(RegardError, match=r"source\.json"):
        regard.load(run)
    small.train("bahdanau", run, *SETTINGS)
    assert digest(run / "source.json") == before
    assert regard.load(run)


def experiment_on(path: Path, task: str, steps: int):
    """The settings of a small run on a file of this task."""
    model, given = {
        "translate": ("bahdanau", [f"data.tsv={path}", "data.subwords=char", *small.MODELS["bahdanau"]]),
        "language": ("lstm-lm", [f"data.files={path}", "data.subwords=char", "model.width=6"]),
        "classify": ("document", [f"data.files={path}", "model.width=3", "model.embedding=4"]),
    }[task]
    return resolve(gather(None, model, "tiny", [*given, *small.TRAIN, f"train.steps={steps}"]))


@pytest.mark.parametrize(
    ("lines", "task"),
    [
        (20, "translate"),
        *(pytest.param(20, task, marks=pytest.mark.slow) for task in ("language", "classify")),
        *((61, task) for task in ("translate", "language", "classify")),
    ],
)
def test_a_run_is_not_resumed_on_another_corpus(task, lines, tmp_path):
    """A corpus that has shrunk has no batch at the old position; one that has grown would be trained on silently."""
    path, run = tmp_path / "corpus.tsv", tmp_path / "run"

    def write(count: int) -> None:
        texts = (f"{'ab'[number % 2]}\tnumber {number * 7 % 100} of {number}" for number in range(count))
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")

    write(60)
    begin(experiment_on(path, task, 4), run)
    write(lines)
    before = {file: digest(file) for file in run.rglob("*") if file.is_file() and file.name != ".lock"}
    with pytest.raises(RunError, match=r"The corpus differs from the one that .* was trained on; restore it to resume"):
        begin(experiment_on(path, task, 8), run)
    assert {file: digest(file) for file in before} == before
    write(60)
    assert begin(experiment_on(path, task, 8), run) == "done"


def test_a_damaged_corpus_is_named_and_made_again_when_a_run_is_resumed(unfinished, finished, tmp_path):
    last = digest(finished / "checkpoints" / "000008" / "weights.safetensors")
    shutil.rmtree(unfinished / "checkpoints" / "000008")
    files = sorted((unfinished / "corpus").iterdir())
    for number, file in enumerate(files):
        run = Path(shutil.copytree(unfinished, tmp_path / str(number)))
        content = bytearray(file.read_bytes() or b"x")
        content[len(content) // 2] ^= 1
        (run / "corpus" / file.name).write_bytes(content)
        events = []
        small.train("bahdanau", run, *SETTINGS, observe=events.append)
        notes = next(event for event in events if isinstance(event, DataReady)).notes
        assert any(f"{file.name} is" in note and "damaged" in note and "rebuilt" in note for note in notes), notes
        assert digest(run / "checkpoints" / "000008" / "weights.safetensors") == last
    assert len(files) == 11


def test_not_one_bit_of_the_settings_of_a_run_in_progress_can_change(unfinished):
    path = unfinished / "config.toml"
    good = path.read_bytes()
    expected = read_config(unfinished)
    for place in (*range(0, len(good), 5), *range(len(good) - 80, len(good))):  # the line of the digest is the last
        changed = bytearray(good)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(RunError, match=r"config\.toml is damaged"):
            read_config(unfinished)
    for bad in (good[: len(good) // 2], good[: good.index(b"[train]")], good + b"#", good.rpartition(b"# sha256")[0]):
        path.write_bytes(bad)
        for use in (regard.load, lambda run: small.train("bahdanau", run, *SETTINGS)):
            with pytest.raises(RunError, match=r"config\.toml is damaged"):
                use(unfinished)
    path.write_bytes(good)
    assert read_config(unfinished) == expected


def test_weights_of_another_model_are_refused(run):
    shutil.copy(run / "checkpoints" / "000008" / "state.safetensors", run / "weights.safetensors")
    manifest = json.loads((run / "manifest.json").read_bytes())
    body = {name: value for name, value in manifest.items() if name != "seal"}
    content = run / "weights.safetensors"
    body["files"]["weights.safetensors"] = {"sha256": digest(content), "bytes": content.stat().st_size}
    (run / "manifest.json").write_bytes(seal(body))
    with pytest.raises(RunError, match=r"belong to another model: .* exists only on one side"):
        regard.load(run)


def test_a_file_that_is_no_safetensors_is_refused_without_running_anything(run, tmp_path):
    for bad in (
        b"",
        b"\x80\x04\x95",
        os.urandom(200),
        (2**62).to_bytes(8, "little") + b"{}",
        b"PK\x03\x04" + bytes(50),
    ):
        (tmp_path / "x.safetensors").write_bytes(bad)
        with pytest.raises(RunError, match=r"x\.safetensors cannot be read as safetensors"):
            read_tensors(tmp_path / "x.safetensors")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="There is no run folder"):
        regard.load(tmp_path / "nothing")
    with pytest.raises(RunError, match="holds no finished model and no checkpoint"):
        regard.load(tmp_path)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(RunError, match="file is a file; name the folder of a run"):
        regard.load(tmp_path / "file")
    with pytest.raises((RunError, DataError)):
        regard.load([])


@pytest.mark.parametrize("model", ["bahdanau", "transformer", "luong"])
@pytest.mark.parametrize("width", [10**9, 10**18])
def test_a_model_that_no_memory_holds_is_refused_before_it_is_built(model, width, tmp_path):
    with pytest.raises(
        ConfigError, match=r"do not fit into memory: they need over|No model can be built from the settings"
    ):
        small.train(model, tmp_path / "run", f"model.width={width}")


@pytest.mark.parametrize("model", MODELS)
def test_no_number_in_the_settings_takes_memory_before_the_weights_are_compared(model):
    tiny = preset(model, "tiny")
    tiny = replace(tiny, **{one.name: 50 for one in fields(tiny) if one.name.endswith("vocabulary")})
    shapes = {name: weights.shape for name, weights in build(model, tiny).state_dict().items()}
    for one in fields(tiny):
        if type(getattr(tiny, one.name)) is int:
            tracemalloc.start()
            try:
                with weightless(shapes, "weights"):
                    build(model, replace(tiny, **{one.name: 10**6}))
            except RegardError:  # many numbers only limit what is computed later
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            assert peak < 2**22, one.name


def test_layers_without_end_are_refused():
    with pytest.raises(ConfigError, match=r"model.decoder_layers must be at least 0 and at most 10,000; got 10001"):
        replace(preset("transformer", "tiny"), decoder_layers=10_001)


def test_a_corpus_without_end_is_not_generated(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.size must be at least 1 and at most 100,000,000; got"):
        small.train("luong", tmp_path / "run", f"data.size={10**15}")
