"""`regard.train`: from a settings file, or from plain arguments, to a trained translator."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.api.loading import load
from regard.config import load_toml, override
from regard.data.prepare import Stages
from regard.data.settings import as_files
from regard.data.tmx import choose_languages
from regard.errors import RunError
from regard.train.begin import train as begin
from regard.train.experiment import check_tables, resolve
from regard.train.journal import Observe
from regard.train.origin import inherit

Files = str | Path | list[str]
_LANGUAGE = re.compile(r"\.([a-z]{2,3})(?:\.(?:gz|bz2|xz))?$")
_NO_LANGUAGE = {"txt", "tsv", "csv", "tok", "bpe", "src", "tgt", "raw", "tmx"}


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
    return with_languages(tables)


def with_languages(tables: dict[str, Any]) -> dict[str, Any]:
    """Name the languages after the endings of the files, train.en and train.fr, or after a translation memory, where
    they are not named."""
    data = dict(tables["data"])

    def files_of(name: str) -> list[str]:
        return [str(path) for path in as_files(data.get(name, ""))] if isinstance(data.get(name), str | list) else []

    if files_of("tmx"):
        sides = ("source_language", "target_language")
        chosen = choose_languages(files_of("tmx"), *(str(data.get(side, "")) for side in sides))
        data |= {side: data.get(side) or language for side, language in zip(sides, chosen, strict=True)}
    for side in ("source", "target"):
        files = files_of(side)
        endings = {match[1] for match in map(_LANGUAGE.search, files) if match} - _NO_LANGUAGE
        if files and len(endings) == 1 and f"{side}_language" not in data:
            data[f"{side}_language"] = endings.pop()
    return {**tables, "data": data}


def train(
    config: str | Path | Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    model: str | None = None,
    preset: str | None = None,
    source: Files | None = None,
    target: Files | None = None,
    tmx: Files | None = None,
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
    tables = gather(config, model, preset, settings, source=source, target=target, tmx=tmx, corpus=corpus)
    reason = begin(resolve(inherit(tables, Path(out))), Path(out), observe, stages)
    if reason == "asked":
        raise RunError(f"Training was stopped and saved; the same call goes on with {out}.")
    return load(out)
