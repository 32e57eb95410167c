"""`regard.train`: from a settings file, or from plain arguments, to a trained translator."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.api.loading import load
from regard.config import load_toml, override
from regard.data.prepare import Stages
from regard.errors import RunError
from regard.train.begin import train as begin
from regard.train.experiment import check_tables, resolve
from regard.train.journal import Observe
from regard.train.origin import inherit

Files = str | Path | list[str]


def gather(
    config: str | Path | Mapping[str, Any] | None,
    model: str | None,
    preset: str | None,
    settings: Iterable[str],
    **data: Any,
) -> dict[str, Any]:
    """The tables of settings: a file or mapping, then model, preset and data, then `section.key=value` on top."""
    tables = dict(config) if isinstance(config, Mapping) else load_toml(Path(config)) if config else {}
    given = {
        name: [str(one) for one in value] if isinstance(value, list | tuple) else str(value)
        for name, value in data.items()
        if value
    }
    check_tables(tables)
    tables["data"] = {**tables.get("data", {}), **given}
    chosen = {name: value for name, value in (("name", model), ("preset", preset)) if value}
    tables["model"] = {**tables.get("model", {}), **chosen}
    for assignment in settings:
        tables = override(tables, assignment)
    return tables


def train(
    config: str | Path | Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    model: str | None = None,
    preset: str | None = None,
    source: Files | None = None,
    target: Files | None = None,
    corpus: str | None = None,
    settings: Iterable[str] = (),
    observe: Observe | None = None,
    stages: Stages | None = None,
) -> Any:
    """Train into the folder `out`, or go on there, and return the trained model (see `regard.load`).

    `config` is a TOML file or a mapping of tables; `settings` are strings such as "train.steps=200". `observe` is
    called with every event of the loop (see `regard.train.journal`).

        translator = regard.train(source="train.en", target="train.fr", model="bahdanau", preset="tiny", out="run")
    """
    tables = gather(config, model, preset, settings, source=source, target=target, corpus=corpus)
    reason = begin(resolve(inherit(tables, Path(out))), Path(out), observe, stages)
    if reason == "asked":
        raise RunError(f"Training was stopped and saved; the same call goes on with {out}.")
    return load(out)
