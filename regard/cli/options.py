"""Arguments and options that several commands share, and groups of them.

A parameter of a command may be a dataclass; each of its fields is then an option.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, CallbackParam, Context, Option

from regard.config import check_once
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.api.corpus import Where


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its groups as parameters, as typer needs it."""
    signature = inspect.signature(command)
    own = signature.parameters.items()
    groups: dict[str, Any] = {name: param.annotation for name, param in own if is_dataclass(param.annotation)}
    options: list[Parameter] = []
    for name, param in own:
        if name not in groups:
            options.append(param.replace(kind=Parameter.KEYWORD_ONLY))
        for field in fields(groups[name]) if name in groups else ():
            known = {"default": field.default, "annotation": field.type}
            options.append(Parameter(field.name, Parameter.KEYWORD_ONLY, **known))

    @wraps(command)
    def act(**given: Any) -> None:
        typed = [name for name, value in given.items() if value is not None]
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        try:
            command(**given)
        except ConfigError as error:
            sentence = str(error)
            for name in typed if not sentence.startswith("--") else ():
                sentence = sentence.replace(f"decode.{name}", f"--{name}")  # --beam, not decode.beam
            raise ConfigError(sentence) from error

    act.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    act.__annotations__ = {option.name: option.annotation for option in options}
    return act


def run_folder(name: str) -> Path:
    """The folder of a run, or of the included model of this name."""
    from regard.runs.included import find_run

    return find_run(name)


Run = Annotated[
    Path, Argument(metavar="RUN", parser=run_folder, help="Run folder, or a model of `regard models` such as en-fr.")
]
TextFile = Annotated[Path | None, Argument(help="Text, one sentence or paragraph per line (default: stdin).")]
Gold = Annotated[Path | None, Option(help="Gold links (from 1; i-j sure, ipj possible): report AER.")]
With = Annotated[list[Path] | None, Option("--with", help="Another run for an ensemble; repeatable.")]
Beam = Annotated[int | None, Option(help="Beam width, 1 (greedy) to 1000.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON: unrounded numbers, with signatures.")]
JsonLines = Annotated[bool, Option("--json", help="Print one JSON object per line, with all probabilities.")]
Engine = Annotated[
    str, Option(help="Inference engine: regard, or ctranslate2 (int8; Transformers; needs regard[fast]).")
]
Device = Annotated[str, Option(help="cpu, cuda or auto.")]
CaptionView = Annotated[str | None, Option(help="film (every word), picture (--word, or all) or region (--cell).")]


def add_options(decode: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Decoding settings from `decode.key=value` and from options; an option of None was not given."""
    given = {name: value for name, value in options.items() if value is not None}
    check_once((f"decode.{name}" for name in decode), {f"decode.{name}": name for name in given})
    return {**given, **decode}


def only(reads: Callable[[Mapping[str, Any]], object], purpose: str) -> Callable[[Context, CallbackParam, Any], Any]:
    """A callback that refuses an option that has no effect: `reads` decides by the values of the eager options."""

    def check(context: Context, option: CallbackParam, value: Any) -> Any:
        source = context.get_parameter_source(str(option.name))
        if source is not None and source.name == "COMMANDLINE" and not reads(context.params):
            raise ConfigError(f"{option.opts[0]} is for {purpose}, or leave it out.")
        return value

    return check


with_on = only(lambda given: given.get("on"), "work in shards; add --on local or --on ray")

Overwrite = Annotated[
    bool,
    Option(
        "--overwrite",
        callback=only(lambda given: not given.get("on"), "the one file of --out; leave out --on"),
        help="Replace the output file if it exists.",
    ),
]
Folder = Annotated[Path | None, Option("--out", callback=with_on, help="With --on: folder of the results.")]


@dataclass(frozen=True)
class Pairs:
    """The files of a test set: two parallel files, or one TSV or TMX file."""

    source: Annotated[Path | None, Option(help="Source sentences, one per line.")] = None
    target: Annotated[Path | None, Option(help="Reference translations, line for line.")] = None
    tsv: Annotated[Path | None, Option(help="Instead of both: source, tab, target on each line.")] = None
    tmx: Annotated[Path | None, Option(help="Instead of both: a translation memory in the run's languages.")] = None


@dataclass(frozen=True)
class Shards:
    """Where shards are processed, and how large they are."""

    # Eager: parsed before the options that depend on it.
    on: Annotated[
        str | None, Option(is_eager=True, help="Files of any size into the folder --out, in shards: local or ray.")
    ] = None
    workers: Annotated[
        int | None,
        Option(
            callback=with_on,
            help="With --on: processes (default: one per GPU or core; translate: four per GPU, or one per two cores).",
        ),
    ] = None
    shard: Annotated[int, Option("--shard", callback=with_on, help="With --on: lines of a shard.")] = 10_000
    address: Annotated[
        str | None, Option(callback=with_on, help="With --on ray: the cluster (default: this machine).")
    ] = None

    def where(self, device: str) -> "Where":
        """These options as a `Where`; only with --on."""
        from regard.api.corpus import Where

        return Where(self.on or "local", self.workers, self.shard, "", self.address, device)


@dataclass(frozen=True)
class OnPicture:
    """What is drawn of a caption."""

    word: Annotated[int | None, Option(help="Captions: draw the weights of this word, from 0 (--view picture).")] = None
    cell: Annotated[
        str | None,
        Option(help="Captions: words that attend to ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT, from 0 (--view region)."),
    ] = None
    smooth: Annotated[bool, Option("--smooth", help="Captions: interpolate between cells; the drawing says so.")] = (
        False
    )
