"""Arguments and options that several commands share, and groups of them.

A parameter of a command may be a dataclass; each of its fields is then an option.
"""

import difflib
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, CallbackParam, Context, Option
from typer.core import TyperCommand, TyperGroup

from regard.config import check_once
from regard.errors import ConfigError, RegardError, brief, check_known

if TYPE_CHECKING:
    from regard.api.corpus import Where


class NoReaderError(Exception):
    """The reader of standard output has exited; of a BrokenPipeError typer would make exit code 1."""


class Group(TyperGroup):
    """All commands; one that does not exist, and an option before it, are refused in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments into the context."""
        with known_options(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with."""
        check_known("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command that refuses an unknown option, and one with a wrong value, in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments into the context."""
        given = list(args)
        try:
            with known_options(ctx):
                return super().parse_args(ctx, args)
        except BadParameter as error:
            if type(error) is not BadParameter or error.param is None:
                raise  # one that is missing: the usage says where it belongs
            raise ConfigError(_wrong_value(error.param.opts, error.message, given)) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RegardError as error:
            raise type(error)(_by_options(str(error), ctx)) from error
        except BrokenPipeError as error:
            raise NoReaderError from error


@contextmanager
def known_options(context: Any) -> Iterator[None]:
    """Refuse an option that does not exist, with the nearest one."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "possibilities"):  # an error that typer does not export
            raise
        name = error.option_name  # type: ignore[attr-defined]
        known = {
            one.lstrip("-"): one for param in context.command.params for one in (*param.opts, *param.secondary_opts)
        }
        close = difflib.get_close_matches(name.lstrip("-"), known, n=1)
        hint = f" Did you mean {known[close[0]]}?" if close else _as_setting(name.lstrip("-"), context.command.params)
        if not name.startswith("--"):
            hint += " Options begin with two dashes; a text that begins with a dash comes after --."
        command = context.command_path.replace("python -m regard", "regard")
        raise ConfigError(
            f"There is no option {brief(name)!r} of {command}.{hint} For all options: {command} --help."
        ) from None


def _as_setting(option: str, parameters: Iterable[Any]) -> str:
    """A hint where an option that does not exist is a setting that the command takes."""
    from regard.data.settings import DataConfig
    from regard.decode.settings import DecodeConfig
    from regard.training.settings import TrainConfig

    name = option.partition("=")[0].replace("-", "_").rpartition(".")[2]
    takes = " ".join(str(one.metavar) for one in parameters)  # as in [decode.key=value ...]
    for section, settings in (("train", TrainConfig), ("data", DataConfig), ("decode", DecodeConfig)):
        if re.search(rf"\b(section|{section})\.key=value", takes) and name in (one.name for one in fields(settings)):
            return f" It is a setting: {section}.{name}=VALUE."
    return ""


def _by_options(sentence: str, context: Any) -> str:
    """A sentence about settings or parameters that came by options: with the names of the options, as in --beam."""
    options = {one.name: one.opts[0] for one in context.command.params if one.param_type_name == "option"}
    name, verb, rest = sentence.partition(" must be ")
    if verb and name in options:
        return options[name] + verb + rest
    setting = re.compile(r"(?<![\w./-])(?:data|decode|train)\.(\w+)")  # and no part of a path
    named = [name for name in setting.findall(sentence) if name in options]
    if any(options[name] in sentence for name in named) or not any(_is_given(context, name) for name in named):
        return sentence  # also where both were given, which it says
    return setting.sub(lambda found: options.get(found[1], found[0]), sentence)


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _wrong_value(options: list[str], message: str, given: list[str]) -> str:
    """What was expected of an option, and what came; the parser's `message` says the first alone."""
    parts = [part for one in given for part in one.split("=", 1)]
    value = [after for name, after in itertools.pairwise(parts) if name in options][-1:]  # the last one counts
    kinds = {"integer": "a whole number", "number": "a number", "float": "a number"}
    kind = next((words for kind, words in kinds.items() if f"valid {kind}" in message), None)
    bound = re.search(r"should be (greater|less) than or equal to (\S+)", message)
    if bound:
        kind = f"a number that is at {'least' if bound[1] == 'greater' else 'most'} {bound[2]}"
    wanted = f"takes {kind}" if kind else f"has a wrong value ({brief(message)})"
    return f"{options[0]} {wanted}; got {brief(''.join(value))!r}."


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: with the fields of its groups in their place."""
    signature = inspect.signature(command)
    own = signature.parameters.items()
    groups: dict[str, Any] = {name: one.annotation for name, one in own if is_dataclass(one.annotation)}
    options: list[Parameter] = []
    for name, one in own:
        if name not in groups:
            options.append(one.replace(kind=Parameter.KEYWORD_ONLY))
        for field in fields(groups[name]) if name in groups else ():
            known = {"default": field.default, "annotation": field.type}
            options.append(Parameter(field.name, Parameter.KEYWORD_ONLY, **known))

    @wraps(command)
    def act(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    act.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    act.__annotations__ = {one.name: one.annotation for one in options}
    return act


def run_folder(name: str) -> Path:
    """The folder of a run, or of a model that ships under this name."""
    from regard.training.known import find_run

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
    str, Option(help="What translates: regard, or ctranslate2 (int8; Transformers; needs regard[fast]).")
]
Device = Annotated[str, Option(help="cpu, cuda or auto.")]
CaptionView = Annotated[str | None, Option(help="film (every word), picture (--word, or all) or region (--cell).")]


def add_options(decode: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Settings `decode.key=value` by key, with the options that stand for some of them; None is one not given."""
    given = {name: value for name, value in options.items() if value is not None}
    check_once((f"decode.{name}" for name in decode), {f"decode.{name}": name for name in given})
    return {**given, **decode}


def only(reads: Callable[[Mapping[str, Any]], object], purpose: str) -> Callable[[Context, CallbackParam, Any], Any]:
    """A callback that refuses an option where nothing `reads` it, by the values of the eager options."""

    def check(context: Context, option: CallbackParam, value: Any) -> Any:
        if _is_given(context, str(option.name)) and not reads(context.params):
            raise ConfigError(f"{option.opts[0]} is for {purpose}, or leave it out.")
        return value

    return check


with_on = only(lambda given: given.get("on"), "work in shards; add --on local or --on ray")

Folder = Annotated[Path | None, Option("--out", callback=with_on, help="With --on: folder of the results.")]


@dataclass(frozen=True)
class Pairs:
    """The files of a test set: two, line for line, or one of another kind."""

    source: Annotated[Path | None, Option(help="Source sentences, one per line.")] = None
    target: Annotated[Path | None, Option(help="Reference translations, line for line.")] = None
    tsv: Annotated[Path | None, Option(help="Instead of both: source, tab, target on each line.")] = None
    tmx: Annotated[Path | None, Option(help="Instead of both: a translation memory with the languages of the run.")] = (
        None
    )


@dataclass(frozen=True)
class Shards:
    """Where work in shards is done, and in what pieces."""

    # Eager: its value is there when the options that need it are checked.
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
        """The same for the library; only with --on."""
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
