"""`regard.sweep`: many runs from one file, settings times seeds, and a table that compares the settings.

    OUT/plan.jsonl          the runs of the sweep, one per line; another sweep needs another folder
    OUT/runs/NAME/          a run folder for each, as `regard train` makes it
    OUT/shards/000003.jsonl the translations of the test set by run 3, once it is trained
    OUT/failed/000003.txt   why run 3 was set aside
    OUT/halving.log         validations of the runs, with successive halving (see `regard.api.halving`)
    OUT/results.json, .svg  the table and its plot

A run is a unit of work of `regard.cluster`. Settings that differ only in [decode] share one training.
"""

import itertools
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.api.corpus import Where
from regard.api.halving import Halving, check_halving
from regard.api.loading import load, read_experiment
from regard.api.training import gather, plan
from regard.cluster.local import gpus_for, share_cores
from regard.cluster.shards import Count, Input, Plan, Shard, Work, read_results
from regard.config import load_toml
from regard.corpora.registry import find_builtin
from regard.data.corpus import find_corpus, open_corpus
from regard.data.prepare import Stages
from regard.errors import ConfigError, DataError, RunError, check_known
from regard.evaluate.groups import GroupTable, System, compare_groups, plot_groups
from regard.models.registry import build
from regard.runs.experiment import SECTIONS, Experiment, check_tables
from regard.runs.folder import newest_checkpoint, read_cursor
from regard.sealed import locked, write_atomically
from regard.text.lines import Digests, read_lines
from regard.training.events import BEFORE_THE_END
from regard.training.start import differences, open_data
from regard.training.start import train as begin
from regard.work import Progress

OWN = ("config", "seeds", "test", "grid", "runs")  # what a sweep file may hold besides the sections of settings

Settings = dict[str, Any]  # section.key -> value


class Trial(NamedTuple):
    """One run: its folder in OUT/runs, its settings, and the groups that it belongs to."""

    name: str
    seed: int
    tables: dict[str, Any]
    groups: list[str]  # one for each choice of [decode]
    decodes: list[dict[str, Any]]  # all settings of [decode] of each group
    test: dict[str, str]  # source and target files and their SHA-256; empty: the validation set


class Swept(NamedTuple):
    """The result of a sweep."""

    table: GroupTable | None  # None if no run is finished
    runs: int
    finished: int
    failed: dict[str, str]  # run -> why it was set aside
    stopped: dict[str, str]  # run -> where successive halving stopped it


def read_sweep(path: str | Path, settings: Sequence[str] = ()) -> list[Trial]:
    """The runs of a sweep file: [[runs]] times [grid] times `seeds`, on top of its other settings.

    `settings` are strings such as "train.steps=200", which apply to all runs.
    """
    tables = load_toml(Path(path))
    for name in tables:
        check_known("part", name, (*OWN, *SECTIONS), " of a sweep")
    seeds, test = tables.get("seeds", [1]), _test(tables.get("test", {}))
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"seeds must be a list of whole numbers, as in seeds = [1, 2, 3]; got {seeds!r}.")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"Every seed makes the same run again; name each once, got seeds = {seeds!r}.")
    common: dict[str, Any] = load_toml(Path(str(tables["config"]))) if "config" in tables else {}
    for given in (common, {name: table for name, table in tables.items() if name in SECTIONS}):
        check_tables(given)
    for section in SECTIONS:
        common[section] = {**common.get(section, {}), **tables.get(section, {})}
    common = gather(common, settings=settings)
    trials: dict[str, Trial] = {}
    groups = {_label(chosen): chosen for chosen in _choices(tables, path)}
    axes = {"train.seed", *(name for chosen in groups.values() for name in chosen)}
    for name in (setting.partition("=")[0].strip() for setting in settings):
        if name in axes:
            raise ConfigError(f"{path} sets {name} for each run itself; change it there, or leave it out.")
    for group, chosen in groups.items():
        experiment = _resolve(_changed(common, {**chosen, "train.seed": seeds[0]}))
        with torch.device("meta"):  # without memory: building a model refuses settings that cannot be combined
            build(experiment.name, experiment.model)
        for seed in seeds:
            learned = {name: value for name, value in chosen.items() if not name.startswith("decode.")}
            key = json.dumps([learned, seed])
            if key not in trials:
                words = re.sub(r"[^\w.=-]+", "-", " ".join(f"{name}={_text(learned[name])}" for name in learned))
                name = "-".join(filter(None, [f"{len(trials):03d}", words[:80].strip("-"), f"seed={seed}"]))
                trials[key] = Trial(name, seed, _changed(common, {**learned, "train.seed": seed}), [], [], test)
            trials[key].groups.append(group)
            trials[key].decodes.append(asdict(experiment.decode))
    return list(trials.values())


def _choices(tables: Mapping[str, Any], path: str | Path) -> list[Settings]:
    """Each entry of [[runs]], or none, with each combination of [grid]."""
    runs, grid = tables.get("runs", [{}]), tables.get("grid", {})
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise ConfigError("[[runs]] is a list of tables of settings, each such as model.score = 'dot'.")
    if not isinstance(grid, dict):
        raise ConfigError(f"[grid] is a table of lists, as in model.layers = [1, 2]; got {grid!r}.")
    axes = _flat(grid)
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"In [grid], {name} must be a list of at least one value; got {values!r}.")
    if not axes and not any(runs):
        raise ConfigError("There is nothing to sweep over: give a [grid], such as model.layers = [1, 2], or [[runs]].")
    combined = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    choices = [{**_flat(run), **values} for run in runs for values in combined]
    if any("train.seed" in choice for choice in choices):
        raise ConfigError("The seeds of a sweep are those of `seeds`, as in seeds = [1, 2, 3]; not train.seed.")
    names = [_label(choice) for choice in choices]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"The settings {twice[0]} occur twice in {path}; leave one out.")
    return choices


def _flat(table: Mapping[str, Any]) -> Settings:
    """{"model": {"width": 3}} -> {"model.width": 3}; "model.width" in quotes stays as it is."""
    settings: Settings = {}
    for section, values in table.items():
        if isinstance(values, dict):
            settings |= {f"{section}.{key}": value for key, value in values.items()}
        else:
            settings[section] = values
    for name in settings:
        if name.partition(".")[0] not in SECTIONS or "." not in name:
            raise ConfigError(f"A sweep changes settings such as model.layers; got {name!r}.")
    return settings


def _changed(tables: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    changed = dict(tables)
    for name, value in settings.items():
        section, _, key = name.partition(".")
        changed[section] = {**changed.get(section, {}), key: value}
    return changed


def _resolve(tables: Mapping[str, Any], run: Path = Path()) -> Experiment:
    """The settings of a run, checked; only translators are scored here."""
    experiment, _ = plan(run, tables)
    if experiment.task != "translate":
        raise ConfigError(f"A sweep compares translators; the model {experiment.name} is for {experiment.task!r}.")
    return experiment


def _test(given: Any) -> dict[str, str]:
    """The files of the test set with their SHA-256. They are read once now: a missing one is found before training."""
    if given == {}:
        return {}
    if not isinstance(given, dict) or given.keys() != {"source", "target"}:
        raise ConfigError(f"[test] names two files, source and target; got {given!r}.")
    digests: Digests = {}
    sizes = [sum(1 for _ in read_lines(str(given[side]), digests=digests)) for side in ("source", "target")]
    if sizes[0] != sizes[1] or not sizes[0]:
        raise DataError(f"The files of [test] must have the same number of lines, at least one; they have {sizes}.")
    return {**given, "sha256": " ".join(digests[str(given[side])] for side in ("source", "target"))}


def _label(settings: Settings) -> str:
    """A group's name: its settings, without their sections unless two have the same key."""
    keys = [name.partition(".")[2] for name in settings]
    short = {name: key if keys.count(key) == 1 else name for name, key in zip(settings, keys, strict=True)}
    return " ".join(f"{short[name]}={_text(value)}" for name, value in settings.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def start_training(out: Path, threads: int, started: str = ".", factor: int = 0) -> Work:
    """The work of a sweep: train a run, or resume it, and translate the test set with it.

    `started` is the working directory of the command: the paths of a corpus may be relative to it. `factor` is that of
    halving.
    """
    torch.set_num_threads(threads)
    try:
        os.chdir(started)
    except OSError:
        raise RunError(f"There is no folder {started} on this node; a sweep needs shared storage.") from None

    def work(rows: Sequence[str], count: Count) -> Iterator[dict[str, Any]]:
        for trial in (Trial(*json.loads(row)) for row in rows):
            run = out / "runs" / trial.name
            experiment = _resolve(trial.tables, run)
            halving = Halving(out, factor, trial.name, experiment.train.validate_every) if factor else None
            ended = begin(experiment, run, halving)
            if ended == "stopped" and halving and halving.stopped:
                yield {"stopped": halving.stopped}
                continue
            if ended in BEFORE_THE_END:
                raise RunError(f"{run} was stopped and saved.")
            if trial.test:
                sources, references = (list(read_lines(trial.test[side])) for side in ("source", "target"))
            else:
                shown = open_data(experiment, run).shown
                if not shown:
                    raise DataError("The run holds out no sentences; set data.held_out above 0, or give a [test] set.")
                sources, references = map(list, zip(*shown, strict=True))
            translator = load(run, experiment.train.device, "translate")
            yield {
                "seconds": training_seconds(run),
                "parameters": translator.size,
                "references": references,
                "written": [
                    [translation.text for translation in translator.translate(sources, split=False, **decode)]
                    for decode in trial.decodes
                ],
            }

    return work


def sweep(
    file: str | Path,
    out: str | Path,
    *,
    settings: Sequence[str] = (),
    on: str = "local",
    workers: int | None = None,
    address: str | None = None,
    minutes: float | None = None,
    halving: int = 0,
    stages: Stages | None = None,
) -> Swept:
    """Train every run of the sweep `file` into the folder `out`, `workers` at a time, and compare the groups.

    `on` is "local" (processes of this machine) or "ray" (`address` names a cluster, whose nodes all see `out` and the
    corpus).

    Finished runs are kept: repeating the call trains the missing runs and resumes those that were stopped. After
    `minutes` the runs in progress save a checkpoint and stop. A run that fails three times is set aside. With `halving`
    = k, a run continues after 1, k, k^2, ... validations only if it is among the best 1/k that have reached that point.
    `stages` is called with the stage ("training", "comparing"), and the numbers of finished and of all items.

    >>> with open("sweep.toml", "w", encoding="utf-8") as file:
    ...     _ = file.write('''
    ...     data = {corpus = "copy", size = 60, held_out = 4, subwords = "word", max_words = 4}
    ...     model = {name = "luong", preset = "tiny", width = 8}
    ...     train = {steps = 2, batch_tokens = 100, validate_sentences = 0}
    ...     grid = {model = {score = ["dot", "general"]}}
    ...     seeds = [1]
    ...     ''')
    >>> swept = regard.sweep("sweep.toml", "swept", workers=1)
    >>> print(swept.table)
    group    BLEU ...
    """
    since, where = time.monotonic(), Where(on, workers, address=address)
    number, threads = share_cores(workers, where.gpus)
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"--minutes must be above 0; got {minutes}.")
    if minutes is not None and on == "ray":
        raise ConfigError("--minutes stops the processes of this machine; with --on ray set train.minutes of each run.")
    trials, folder = read_sweep(file, settings), Path(out).absolute()
    if halving:
        experiments = [_resolve(trial.tables) for trial in trials]
        differ = [name for experiment in experiments for name in differences(experiments[0], experiment)]
        check_halving(halving, differ, {experiment.train.validate_every for experiment in experiments})
    if not (folder / "plan.jsonl").exists():
        check_corpora(trials)
    content = "".join(json.dumps(trial) + "\n" for trial in trials).encode()
    check_folder(folder, content)
    with locked(folder, "is working"):
        check_folder(folder, content)
        write_atomically(folder / "plan.jsonl", content)
        work = Plan([Input(str(folder / "plan.jsonl"), "", len(content), 0, len(trials))], 1, "", {})
        start = partial(start_training, folder, threads, os.getcwd(), halving)
        until = math.inf if minutes is None else since + 60 * minutes
        watch = [partial(stages, stage) if stages else None for stage in ("training", "comparing")]
        gpus = gpus_for(*(str(trial.tables["train"].get("device", "")) for trial in trials))
        where.run(start, work, folder, number, watch[0], until=until, silent=math.inf, gpus=gpus)
        return collect(folder, trials, work.shards(), watch[1])


def check_corpora(trials: Sequence[Trial]) -> None:
    """Refuse trials if none has a corpus, or if one has a wrong corpus name; others are set aside if they fail."""
    refused: list[ConfigError | DataError] = []
    different = {json.dumps(trial.tables["data"]): trial.tables for trial in trials}
    settings = [_resolve(tables).data for tables in different.values()]
    for name in filter(None, (data.corpus for data in settings)):
        find_builtin(name)
    for data in settings:
        try:
            find_corpus(data)
            open_corpus(data, "dev_")
            return
        except (ConfigError, DataError) as error:
            refused.append(error)
    raise refused[0]


def check_folder(folder: Path, content: bytes) -> None:
    """Refuse a folder of another sweep, or with other files; nothing in it is changed."""
    path = folder / "plan.jsonl"
    if path.is_file():
        if path.read_bytes() != content:
            raise RunError(f"{folder} holds a sweep with other settings or another test set; choose another --out.")
    elif folder.exists() and (not folder.is_dir() or any(not file.name.startswith(".") for file in folder.iterdir())):
        raise RunError(f"{folder} exists and is not the folder of a sweep; choose another --out.")


def collect(folder: Path, trials: Sequence[Trial], shards: Sequence[Shard], progress: Progress | None) -> Swept:
    """The table of the finished runs, which is also written to the folder, and why others failed."""
    groups: dict[str, dict[int, System]] = {}
    references: list[str] | None = None
    finished, failed, stopped = 0, dict[str, str](), dict[str, str]()
    for trial, shard in zip(trials, shards, strict=True):
        lines = read_results(folder, shard)
        reason = folder / "failed" / f"{shard.number:06d}.txt"
        if lines is None:
            failed |= {trial.name: reason.read_text(encoding="utf-8").strip()} if reason.exists() else {}
            continue
        result, finished = json.loads(lines[0]), finished + 1
        if "stopped" in result:
            stopped[trial.name] = result["stopped"]
            continue
        if references is not None and result["references"] != references:
            raise DataError(
                "The runs have different validation sets, so their scores cannot be compared; add a [test]."
            )
        references = result["references"]
        for group, written in zip(trial.groups, result["written"], strict=True):
            groups.setdefault(group, {})[trial.seed] = System(written, result["parameters"], result["seconds"])
    table = None
    if references is not None:
        table = compare_groups(groups, references, progress=progress)
        data = json.dumps(asdict(table), ensure_ascii=False, indent=1).encode() + b"\n"
        write_atomically(folder / "results.json", data)
        plot_groups(table, folder / "results.svg")
    return Swept(table, len(trials), finished, failed, stopped)


def training_seconds(run: Path) -> float | None:
    """The training time of a run, over all its starts; None if it has no checkpoint."""
    newest = newest_checkpoint(run, check=("state.json",))
    return read_cursor(newest).seconds if newest else None


def group_by_seed(runs: Sequence[Path]) -> dict[str, dict[int, Path]]:
    """Runs that differ only in train.seed, by group; a group is named by the settings in which the groups differ."""
    groups: dict[str, dict[int, Path]] = {}
    settings: dict[str, Settings] = {}
    for run in runs:
        tables = read_experiment(run, "translate").tables()
        flat = {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
        seed = flat.pop("train.seed")
        key = json.dumps(flat, sort_keys=True)
        settings[key] = flat
        if seed in groups.setdefault(key, {}):
            raise ConfigError(f"{run} and {groups[key][seed]} have the same settings and the same seed; name one.")
        groups[key][seed] = run
    alike: dict[str, list[Settings]] = {}  # the groups of each model, which are compared with each other only
    for flat in settings.values():
        alike.setdefault(flat["model.name"], []).append(flat)
    differ = dict.fromkeys(["model.name"] if len(alike) > 1 else [])
    for first, *others in alike.values():
        differ |= dict.fromkeys(name for name in first if any(other[name] != first[name] for other in others))
    alone = str(min(next(iter(groups.values())).values()))
    named = {key: {name: settings[key][name] for name in differ if name in settings[key]} for key in groups}
    return {_label(named[key]) or alone: group for key, group in groups.items()}
