"""`regard.train`: from a settings file, or from plain arguments, to a trained model."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.api.loading import load
from regard.api.progress import in_notebook
from regard.api.timed import choose, choose_further, refuse_minutes
from regard.cluster.ranks import starter
from regard.config import check_once, load_toml, override, read
from regard.data.prepare import Stages
from regard.data.settings import as_files, check_codes
from regard.data.tmx import choose_languages
from regard.errors import ConfigError, RunError
from regard.runs.experiment import SECTIONS, Experiment, check_tables, resolve
from regard.runs.folder import checkpoints, read_config
from regard.runs.included import near_run
from regard.runs.settings import TrainConfig
from regard.text.lines import READING, Reading, language_of
from regard.training.events import BEFORE_THE_END, Event, Observe, wants_stop
from regard.training.start import inherit

Config = str | Path | Mapping[str, Any] | None  # a TOML file, or tables of settings


def gather(
    config: Config = None, model: str | None = None, preset: str | None = None, settings: Iterable[str] = (),
    out: Path | None = None, **data: Any,
) -> dict[str, Any]:  # fmt: skip
    """The tables of settings: a file or mapping, then model, preset and data, then `section.key=value` on top.

    If only `settings` are given, the tables are those of the run in `out`, so that it resumes.
    """
    if out and (out / "config.toml").exists() and not (config or model or preset or any(data.values())):
        config = read_config(out)
    tables = dict(config) if isinstance(config, Mapping) else load_toml(Path(config)) if config else {}
    given: dict[str, Any] = {name: value for name, value in data.items() if value not in (None, "", [], ())}
    for name, value in given.items():
        if isinstance(value, list | tuple):
            given[name] = [str(one) for one in value]
        elif isinstance(value, Path):
            given[name] = str(value)
    check_tables(tables)
    tables["data"] = {**tables.get("data", {}), **given}
    chosen = {name: value for name, value in (("name", model), ("preset", preset)) if value}
    tables["model"] = {**tables.get("model", {}), **chosen}
    settings, options = list(settings), {f"data.{name}": name for name in given}
    check_once(settings, options | {f"model.{name}": {"name": "model"}.get(name, name) for name in chosen})
    return with_languages(override(tables, *settings))


def with_languages(tables: dict[str, Any]) -> dict[str, Any]:
    """Fill in languages that are not set, from file endings (train.en, train.fr) or from the translation memory."""
    data = dict(tables["data"])

    def files_of(name: str) -> list[str]:
        return [str(path) for path in as_files(data.get(name, ""))] if isinstance(data.get(name), str | list) else []

    if files_of("tmx"):
        sides = ("source_language", "target_language")
        reading = read(Reading, {name: data[name] for name in vars(READING) if name in data}, "data")
        chosen = choose_languages(files_of("tmx"), *(str(data.get(side, "")) for side in sides), reading=reading)
        data |= {side: data.get(side) or language for side, language in zip(sides, chosen, strict=True)}
    for side in ("source", "target"):
        files = files_of(side)
        endings = {language for language in map(language_of, files) if language}
        if files and len(endings) == 1 and f"{side}_language" not in data:
            data[f"{side}_language"] = endings.pop()
    return {**tables, "data": data}


def plan(
    run: Path, config: Config = None, model: str | None = None, preset: str | None = None,
    settings: Iterable[str] = (), minutes: float | None = None, **data: Any,
) -> tuple[Experiment, list[str]]:  # fmt: skip
    """What to train into `run`, and the reasons for the settings that were chosen here.

    With `minutes` and no model, preset or file, settings that are not given are chosen to fit (see
    `regard.api.timed`); a run that was started keeps its own.
    """
    given, reasons = list(settings), list[str]()
    if minutes is not None and not 0 <= minutes < 1e6:  # 0 is no limit, unless the settings are chosen by it
        raise refuse_minutes(minutes)
    if not (config or model or preset or given or minutes or any(data.values()) or (run / "config.toml").exists()):
        start = "to start one, name a model and a corpus"
        raise RunError(f"There is no run in {run} to resume; {start}.{near_run(run)}")
    check_once(given, {"train.minutes": "minutes"} if minutes is not None else {})
    timed = [f"train.minutes={minutes}"] if minutes is not None else []
    tables = gather(config, model, preset, [*given, *timed], run, **data)
    if not checkpoints(run):
        check_codes(tables["data"])
    start = tables.get("train", {}).get("start_from")
    free = not (config or model or preset) and (start or not tables["model"])
    if minutes is not None and free and (any(data.values()) or not tables["model"]):
        own = tables["train"]
        read(TrainConfig, own, "train")  # refused before anything is measured
        if checkpoints(run):
            chosen = read_config(run)
        elif start:
            chosen, reasons = choose_further(tables["data"], minutes, str(start), own)
        else:
            chosen, reasons = choose(tables["data"], minutes, own)
        both = {name: {**chosen.get(name, {}), **tables.get(name, {})} for name in SECTIONS}
        tables = {**tables, **chosen, **both}
    elif minutes is not None and not checkpoints(run):
        reasons = ["--minutes is only a time limit: batches and schedule are those of the model, preset or file given"]
    return resolve(inherit(tables, run)), reasons


def train(
    config: Config = None,
    *,
    out: str | Path,
    model: str | None = None,
    preset: str | None = None,
    settings: Iterable[str] = (),
    minutes: float | None = None,
    observe: Observe | None = None,
    stages: Stages | None = None,
    on: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    **data: Any,
) -> Any:
    """Train into the folder `out`, or resume there, and return the trained model (see `regard.load`).

    `config` is a TOML file or a mapping of tables; `settings` are strings such as "train.steps=200"; `data` are [data]
    settings: files or lists of them as `source` and `target`, or as `tmx`, or a built-in `corpus`. `observe` is
    called with every event of the loop (see `regard.training.events`); in a notebook the default shows a line. If it
    returns True, training stops with the next update (on a GPU a few later) and saves: the model returned is then that
    of the best checkpoint so far (the newest, if none was validated), and the same call resumes. Ctrl-C and SIGTERM
    save too, and raise a `RunError`.
    `out` alone resumes the run in this folder. `minutes` is a time limit for everything; without a model, preset or
    config, these are chosen to fit (see `regard.api.timed`).
    `on` = "ray" trains with `workers` ranks on the Ray cluster at `address` (default: this machine); all nodes must see
    `out` and the corpus.

    >>> settings = ["data.size=100", "data.held_out=0", "train.steps=2"]  # leave these out to get a model that works
    >>> regard.train(corpus="reverse", model="bahdanau", preset="tiny", out="run", settings=settings)
    Translator(run: bahdanau, ... weights on ...)
    """
    if not isinstance(out, str | Path):
        raise ConfigError(f"out is the folder of the run, a path; got {type(out).__name__}.")
    run, since, begin = Path(out), time.monotonic(), starter(on, workers, address)
    experiment, _ = plan(run, config, model, preset, settings, minutes, **data)
    observer, enough = observe or in_notebook(), False

    def watch(event: Event) -> bool:
        nonlocal enough
        enough = (observer is not None and wants_stop(observer(event))) or enough
        return enough

    ended = begin(experiment, run, watch, stages, since if minutes is not None else None)
    if ended in BEFORE_THE_END and not enough:
        raise RunError(f"Training was interrupted and saved; the same call resumes {out}.")
    return load(out)
