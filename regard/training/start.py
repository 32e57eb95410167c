"""From settings to a trained run: the folder, the data, the model, the loop. The same settings resume it.

A run may start from the weights of another (`train.start_from`), with its model and vocabulary. These weights become
checkpoint 0 of the new run; after that, the other run is not needed.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.documents import DocumentEncoding
from regard.data.encoding import Encoding
from regard.data.pairs import PairEncoding
from regard.data.prepare import Data, Stages, quiet
from regard.data.prepare import prepare as prepare_data
from regard.data.text_corpus import TextEncoding
from regard.decode.search import check_precision
from regard.errors import ConfigError, RegardError, RunError, little_memory
from regard.models.registry import build
from regard.runs.expects import expectations
from regard.runs.experiment import Experiment, check_tables, resolve
from regard.runs.folder import (
    belongings,
    check_belongs,
    checkpoints,
    clear,
    find_weights,
    held,
    is_scratch,
    newest_checkpoint,
    read_config,
    read_cursor,
    tidy,
    write_config,
)
from regard.runs.included import find_run
from regard.runs.int8 import read_weights
from regard.runs.weights import check_memory, choose_device, weights_of
from regard.sealed import digest, write_atomically
from regard.training.caption_data import CaptionEncoding
from regard.training.captioning import Captioning
from regard.training.distributed import Ranks
from regard.training.documents import Documents
from regard.training.events import DataReady, Observe
from regard.training.language import Language
from regard.training.loop import Loop, seed_everything
from regard.training.notices import best_rule, equal_passes, few_updates, long_warmup
from regard.training.stopping import exiting
from regard.training.task import Task
from regard.training.translation import TranslationTask

# Settings of [train] that a resumed run may change: when to stop and where to run, not what is learned.
MAY_CHANGE = {"steps", "epochs", "minutes", "patience", "device", "save_every", "keep"}
# Files of a run before its first checkpoint. A run with other files is not restarted.
BEGUN = re.compile(
    r"config\.toml|metrics\.jsonl|checkpoints|tensorboard|corpus|features-\w+"
    r"|(source|target|words|text|classes|documents)\.(json|model|safetensors)"
)
# The settings of [data] that define a vocabulary, over all tasks.
VOCABULARY = (
    "subwords", "vocabulary", "vocabulary_from", "joint", "byte_fallback", "coverage", "form", "lowercase", "min_count",
)  # fmt: skip
LANGUAGES = ("source_language", "target_language")
# How the examples of a task become ids, and what it trains.
ENCODINGS: dict[str, Callable[[Experiment, Path, Stages], Encoding[Any]]] = {
    "translate": lambda experiment, run, report: PairEncoding(experiment.data),
    "caption": lambda experiment, run, report: CaptionEncoding(experiment.data, experiment.model, run, report),
    "classify": lambda experiment, run, report: DocumentEncoding(experiment.data),
    "language": lambda experiment, run, report: TextEncoding(experiment.data),
}
TASKS: dict[str, type[Task]] = {
    "translate": TranslationTask,
    "caption": Captioning,
    "classify": Documents,
    "language": Language,
}


def train(
    experiment: Experiment,
    run: Path,
    observe: Observe | None = None,
    stages: Stages | None = None,
    since: float | None = None,
) -> str:
    """Train `experiment` into the folder `run`, or resume there; returns why it ended (see `Finished`).

    `train.minutes` is counted from here, or from `since`, a value of `time.monotonic`.
    """
    ranks = Ranks(choose_device(experiment.train.device))
    try:
        with held(run) if ranks.first else nullcontext():
            fresh = claim(experiment, run) if ranks.first else False
            try:
                with exiting():
                    loop = prepare(experiment, run, ranks, observe, stages)
            except RegardError:
                if fresh:
                    clear(run)  # a refused run leaves nothing behind
                raise
            loop.clock.since = since
            return loop.run()
    finally:
        ranks.close()


def prepare(experiment: Experiment, run: Path, ranks: Ranks, observe: Observe | None, stages: Stages | None) -> Loop:
    """Prepare the data (rank 0 first), the initial model and the loop."""
    check_precision(experiment.decode.precision, ranks.device)
    origin = None
    if ranks.first:
        if experiment.train.start_from and not checkpoints(run):
            origin = take_over(experiment, run)
        with warming(stages or quiet, ranks.device) as report:
            data = open_data(experiment, run, report)  # makes the vocabularies and the store, once
        write_config(run, experiment.toml())  # a resumed run may change some settings
    ranks.wait()
    if not ranks.first:
        data = open_data(experiment, run)
    make = partial(build, experiment.name, dataclasses.replace(experiment.model, **data.encoding.sizes()))
    check_memory(make)
    seed_everything(experiment.train.seed, 0, 0)
    model = make()
    task = TASKS[experiment.task](data, experiment.train, experiment.decode, run)
    task.ready(model)
    loop = Loop(task, model, ranks, observe)
    if experiment.task == "translate":
        loop.about["expects"] = expectations(experiment.data, data.vocabulary)
    on_gpu = ranks.device.type == "cuda"
    loop.about["device"] = torch.cuda.get_device_name(ranks.device) if on_gpu else ranks.device.type
    if observe and ranks.first:
        weights = sum(weight.numel() for weight in model.parameters())
        few = few_updates(loop.total, loop.batches_an_epoch, experiment.train, experiment.model)
        equal = equal_passes(experiment.train, experiment.model)
        best = best_rule(experiment.task, experiment.train, len(data.shown))
        begins = [f"begins with the weights of {origin[0]}"] if origin else []
        notes = [*data.notes, *best, *equal, *few, *long_warmup(loop.total, experiment.train), *begins]
        observe(DataReady(loop.batches_an_epoch, weights, str(ranks.device), notes))
    if origin:
        loop.start_from(*origin)
    ranks.wait()
    ranks.watch()  # not earlier: while rank 0 prepares the data, the other ranks wait
    return loop


@contextmanager
def warming(stages: Stages, device: torch.device) -> Iterator[Stages]:
    """Progress for `stages`; while a vocabulary is learned, which leaves Python idle, initialise torch in a thread.

    This sets up the device and imports torch's compiler, which its optimisers need: each takes seconds. During reading
    it would slow things down.
    """

    def warm() -> None:  # errors are ignored here; they recur when training starts
        if device.type == "cuda":
            torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)
        import_module("torch._dynamo")

    with ThreadPoolExecutor(1) as pool:

        def report(stage: str, done: int, total: int | None) -> None:
            if stage == "vocabulary" and not little_memory():
                pool.submit(warm)
            stages(stage, done, total)

        yield report


def open_data(experiment: Experiment, run: Path, report: Stages = quiet) -> Data:
    """The data of a task. A resumed run must have the same corpus and vocabularies."""
    newest = newest_checkpoint(run, check=("state.json",))
    if newest:
        check_belongs(run, newest, complete=False)
    fixed, expected = bool(experiment.train.start_from or newest), read_cursor(newest).data if newest else ""
    return prepare_data(ENCODINGS[experiment.task](experiment, run, report), run, report, fixed, expected)


def claim(experiment: Experiment, run: Path) -> bool:
    """Write the settings into a new run folder, or check those of an existing run; returns whether it is new.

    Existing files are not touched, except leftovers of a killed process, and of a start with other settings that has no
    checkpoint.
    """
    inside = sorted(path.name for path in run.iterdir() if not is_scratch(path))
    resumes = "config.toml" in inside and check_same(experiment, run, inside)
    if "config.toml" in inside and not resumes:
        clear(run)  # started but never trained: its vocabulary has other settings
    tidy(run)
    if not resumes:
        write_config(run, experiment.toml())
    return not resumes


def check_same(experiment: Experiment, run: Path, inside: list[str]) -> bool:
    """Whether the existing run can be resumed; False if it was started with other settings and never trained."""
    config = run / "config.toml"
    old = resolve(read_config(run))
    other = differences(old, experiment)
    trained = bool(checkpoints(run))
    if not trained and "weights.safetensors" in inside:
        raise RunError(f"{run} holds a finished model but no checkpoint to resume from; choose another --out.")
    if other and trained:
        raise RunError(
            f"{run} holds a run with other settings ({'; '.join(other[:3])}). "
            f"Use the same settings to resume it, or another --out."
        )
    if not trained and not config.read_text(encoding="utf-8").startswith(old.toml()):
        raise RunError(f"{config} was not written by regard; choose another --out, so that your file is not changed.")
    strange = [name for name in inside if not BEGUN.fullmatch(name)]
    if other and strange:
        raise RunError(
            f"{run} was started with other settings and holds {strange[0]}, which regard did not write; choose another "
            f"--out."
        )
    return not other


def differences(old: Experiment, new: Experiment) -> list[str]:
    """The differences between two experiments, except what a resumed run may change, and defaults that follow from
    another model or preset."""
    found = []
    before: Mapping[str, dict[str, Any]] = old.tables()
    plain = [resolve({"model": {"name": one.name, "preset": one.preset}}).tables() for one in (old, new)]
    for section, table in new.tables().items():
        for name, value in table.items():
            was = before.get(section, {}).get(name)
            may_change = section == "decode" or (section == "train" and name in MAY_CHANGE)
            follows = name not in ("name", "preset") and [was, value] == [one[section].get(name) for one in plain]
            if was != value and not may_change and not follows:
                found.append(f"{section}.{name} was {_shown(was)}, now {_shown(value)}")
    return found


def _shown(value: Any) -> str:
    return ", ".join(map(repr, value)) if isinstance(value, tuple | list) else repr(value)


# --- starting from another run


def inherit(tables: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """The tables of settings, with unset model and vocabulary settings taken from the run `train.start_from`.

    A run that has a checkpoint reads its own settings, which are the same: the other run may be gone.
    """
    check_tables(tables)
    start, chosen = tables.get("train", {}).get("start_from"), tables.get("model", {})
    if not start:
        return dict(tables)
    place = run
    if not checkpoints(run):
        place = find_run(str(start))
        find_weights(place)  # refuses a folder that is not a run, or is damaged
    other = resolve(read_config(place))
    if chosen.get("name", other.name) != other.name:
        return dict(tables)  # `check_origin` refuses it
    model, data = (other.tables()[section] for section in ("model", "data"))
    taken = {name: value for name, value in data.items() if name in VOCABULARY or name in LANGUAGES}
    return {**tables, "model": {**model, **chosen}, "data": {**taken, **tables.get("data", {})}}


def take_over(experiment: Experiment, run: Path) -> tuple[str, str, dict[str, Tensor]]:
    """Copy the vocabularies of the run that `experiment` starts from into `run`; returns the name of that run, the
    SHA-256 of the file of its weights, and these."""
    other = find_run(experiment.train.start_from)
    weights = find_weights(other)
    check_origin(experiment, resolve(read_config(other)))
    for name in belongings(weights):
        write_atomically(run / name, (other / name).read_bytes())
    return other.resolve().name, digest(weights), dict(read_weights(weights))


def check_origin(new: Experiment, old: Experiment) -> None:
    """Refuse settings that contradict the model, vocabulary or languages of the run `train.start_from`."""
    check_languages(new.train.start_from, *([getattr(one.data, side, "") for side in LANGUAGES] for one in (new, old)))
    pairs = [
        ("model.name", new.name, old.name),
        ("model.preset", new.preset, old.preset),
        *((f"data.{name}", getattr(new.data, name, None), getattr(old.data, name, None)) for name in VOCABULARY),
        *((f"model.{name}", getattr(new.model, name), getattr(old.model, name)) for name in shaping(new, old)),
    ]
    for setting, here, there in pairs:
        if here != there:
            raise ConfigError(
                f"train.start_from uses the model and vocabulary of {new.train.start_from}, where {setting} is "
                f"{there!r}; got {here!r}. Leave {setting} out, or train without train.start_from."
            )


def check_languages(name: str, here: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a corpus whose languages differ from those of the run `name`; an empty language is unknown."""
    if any(ours and theirs and ours != theirs for ours, theirs in zip(here, there, strict=True)):
        raise ConfigError(
            f"{name} translates {' to '.join(there)}, but the corpus is {' to '.join(here)}. Start from a model of "
            f"these languages, swap --source and --target, or set data.source_language={there[0]} "
            f"data.target_language={there[1]} if the corpus is named wrongly."
        )


def shaping(new: Experiment, old: Experiment) -> list[str]:
    """The changed model settings that would change names or shapes of weights."""
    if new.name != old.name:
        return []
    there = dataclasses.asdict(old.model)
    changed = {name: value for name, value in dataclasses.asdict(new.model).items() if value != there[name]}
    return [name for name, value in changed.items() if shapes(old, **{name: value}) != shapes(old)]


def shapes(experiment: Experiment, **changes: Any) -> dict[str, torch.Size]:
    """The shape of each weight of a model, built on the meta device."""
    with torch.device("meta"):
        try:
            model = build(experiment.name, dataclasses.replace(experiment.model, **changes))
        except ConfigError:
            return {}  # settings that cannot be combined
    return {name: weight.shape for name, weight in weights_of(model).items()}
