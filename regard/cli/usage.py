"""The parser of the command line. Its errors are one sentence: what was expected, what was given, what to do."""

import difflib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from regard.errors import ConfigError, RegardError, brief, check_known

UsageError: Any = BadParameter.__base__  # of all errors of the parser; typer does not export it
_LONG_DASH = re.compile(r"[\u2010-\u2015\u2212]-?([a-z-]+)(=.*)?")  # what editors make of two hyphens
_SETTING = re.compile(r"(train|data|decode|model)\.\w+=\S*")


class NoReaderError(Exception):
    """The reader of standard output has exited. A BrokenPipeError would become exit code 1 in typer."""


class Group(TyperGroup):
    """All commands. An unknown command, or a command's option before it, is refused in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments into the context."""
        with in_one_sentence(ctx, args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with."""
        check_known("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command that refuses arguments and options that are unknown, missing or wrong in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments into the context."""
        for argument in _before_texts(args):
            if _SETTING.fullmatch(argument) and not _settings_of(ctx) and not os.path.exists(argument):
                raise ConfigError(f"`{_name(ctx)}` has no use for the setting {brief(argument)!r}; leave it out.")
            _check_section(argument, ctx)
        with in_one_sentence(ctx, args):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RegardError as error:
            raise type(error)(_by_options(str(error), ctx)) from error
        except BrokenPipeError as error:
            raise NoReaderError from error


@contextmanager
def in_one_sentence(context: Any, arguments: list[str]) -> Iterator[None]:
    """Turn errors of the parser into one sentence, and refuse an option that it would read as a text."""
    given, options = list(arguments), _options_of(context)  # the parser removes items from its list
    for argument in _before_texts(given):
        dashed = _LONG_DASH.fullmatch(argument)
        if dashed and dashed[1] in options:
            raise ConfigError(
                f"{brief(argument)!r} begins with a long dash, as some editors write it; type two hyphens: "
                f"{options[dashed[1]]}."
            )
    try:
        yield
    except UsageError as error:
        if not given and context.command.no_args_is_help:
            raise
        raise ConfigError(_refusal(error, context, given)) from None


def _refusal(error: Any, context: Any, given: list[str]) -> str:
    """The sentence for an error of the parser: an unknown option, a wrong value, a missing or an extra argument."""
    param = getattr(error, "param", None)
    if param is not None and type(error) is BadParameter:
        return _wrong_value(param.opts, error.message, given)
    if hasattr(error, "possibilities"):
        sentence = _no_option(error.option_name, context)
    elif param is not None:
        missing = param.opts[0] if param.param_type_name == "option" else param.metavar or param.name.upper()
        sentence = f"Expected {missing}."
    elif "extra argument" in error.message:
        sentence = f"{brief(error.message)}. {_joined(given) or 'A text of several words is one argument, in quotes.'}"
    else:
        sentence = f"{brief(error.message)}."
    return f"{sentence} For all options: {_name(context)} --help."


def _joined(given: list[str]) -> str:
    """A hint if the name of an included model was written as two words."""
    from regard.runs.included import FOLDERS

    names = (f"{first}/{second}" for first, second in itertools.pairwise(given))
    return next((f"Did you mean {name}?" for name in names if name in FOLDERS), "")


def _name(context: Any) -> str:
    """The command as it is typed."""
    return str(context.command_path).replace("python -m regard", "regard")


def _options_of(context: Any) -> dict[str, str]:
    """The options of a command by their names without dashes."""
    names = (name for param in context.command.params for name in (*param.opts, *param.secondary_opts))
    return {name.lstrip("-"): name for name in names if name.startswith("-")}


def _has_option(command: Any, name: str) -> bool:
    return any(name in param.opts for param in command.params)


def _settings_of(context: Any) -> str:
    """The settings that a command takes, from the metavar of its arguments: "[decode.key=value ...]"."""
    return " ".join(str(param.metavar) for param in context.command.params if "key=value" in str(param.metavar))


def _before_texts(arguments: Iterable[str]) -> Iterator[str]:
    """The arguments before --; those after it are never options."""
    return itertools.takewhile(lambda argument: argument != "--", arguments)


def _no_option(name: str, context: Any) -> str:
    """The sentence for an unknown option, with a hint: a similar option, one for such files, or a setting."""
    options, bare = _options_of(context), name.lstrip("-")
    close = difflib.get_close_matches(bare, options, n=1)
    hint = f" Did you mean {options[close[0]]}?" if close else _as_setting(bare, _settings_of(context))
    written = [param.opts[0] for param in context.command.params if f".{bare} " in str(getattr(param, "help", ""))]
    if written:  # as --json, where --out look.json does it
        hint = f" Write it with {written[0]}, as in {written[0]} {context.info_name}.{bare}."
    commands = getattr(context.command, "commands", {}).items()
    owners = [owner for owner, command in commands if _has_option(command, name)]
    if owners:
        hint = f" It is an option of {', '.join(owners)}; write it after the command."
    if not name.startswith("--"):
        hint += " Options begin with two dashes; a text that begins with a dash comes after --."
    return f"{_name(context)} has no option {brief(name)}.{hint}"


def _check_section(argument: str, context: Any) -> None:
    """Refuse a setting without its section, such as beam=3."""
    bare = re.fullmatch(r"(\w+)=(\S+)", argument)
    section = _section_of(bare[1], _settings_of(context)) if bare and not os.path.exists(argument) else ""
    if bare and section:
        option = _options_of(context).get(bare[1].replace("_", "-"))
        either = f", or the option {option} {bare[2]}" if option else ""
        written = f"{section}.{brief(argument)}{either}"
        raise ConfigError(f"A setting is section.key=value; got {brief(argument)!r}. Write {written}.")


def _as_setting(option: str, takes: str) -> str:
    """A hint if an unknown option is a setting that the command takes."""
    name = option.partition("=")[0].replace("-", "_").rpartition(".")[2]
    section = _section_of(name, takes)
    return f" It is a setting: {section}.{name}=VALUE." if section else ""


def _section_of(name: str, takes: str) -> str:
    """The section of a setting that the command takes; empty if it takes none of this name."""
    from regard.data.settings import DataConfig
    from regard.decode.settings import DecodeConfig
    from regard.runs.settings import TrainConfig

    for section, settings in (("train", TrainConfig), ("data", DataConfig), ("decode", DecodeConfig)):
        if re.search(rf"\b(section|{section})\.key=value", takes) and name in (
            field.name for field in fields(settings)
        ):
            return section
    return ""


def _by_options(sentence: str, context: Any) -> str:
    """An error sentence in which settings and parameters that were passed as options have the option's name: --beam."""
    options = {param.name: param.opts[0] for param in context.command.params if param.param_type_name == "option"}
    name, verb, rest = sentence.partition(" must be ")
    if verb and name in options:
        return options[name] + verb + rest
    what = re.match(r"There is no (\w+) '", sentence)
    if what and what[1] in options and is_given(context, what[1]):
        return f"There is no {options[what[1]]} '{sentence[what.end() :]}"
    setting = re.compile(r"(?<![\w./-])(?:data|decode|train)\.(\w+)")  # and no part of a path
    named = [name for name in setting.findall(sentence) if name in options]
    if any(options[name] in sentence for name in named) or not any(is_given(context, name) for name in named):
        return sentence  # also if both were given, since the sentence names both
    return setting.sub(lambda found: options.get(found[1], found[0]), sentence)


def is_given(context: Any, name: str) -> bool:
    """Whether a parameter was given on the command line, and is not its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _wrong_value(options: list[str], message: str, given: list[str]) -> str:
    """What an option expects, and what was given; the parser's `message` has only the first."""
    parts = [part for argument in given for part in argument.split("=", 1)]
    value = [after for name, after in itertools.pairwise(parts) if name in options][-1:]  # the last one counts
    kinds = {"integer": "a whole number", "number": "a number", "float": "a number"}
    kind = next((words for kind, words in kinds.items() if f"valid {kind}" in message), None)
    bound = re.search(r"should be (greater|less) than or equal to (\S+)", message)
    if bound:
        kind = f"a number that is at {'least' if bound[1] == 'greater' else 'most'} {bound[2]}"
    wanted = f"takes {kind}" if kind else f"has a wrong value ({brief(message)})"
    return f"{options[0]} {wanted}; got {brief(''.join(value))!r}."
