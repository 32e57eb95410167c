"""regard translate"""

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

import regard

CHUNK = 512  # lines read and translated before they are written: memory stays small, and a pipe sees output early


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("translate")(translate)


def translate(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN [FILE] [decode.key=value ...]",
            help="A run folder, the file to translate (none: standard input), and settings of decoding.",
        ),
    ],
    beam: Annotated[int | None, typer.Option(help="Beam width, 1 (greedy) to 1000.")] = None,
    nbest: Annotated[
        int,
        typer.Option(help="Translations for each line, tab-separated with their scores; at most as many as --beam."),
    ] = 1,
    temperature: Annotated[float | None, typer.Option(help="Above 0: sample instead of searching.")] = None,
    with_run: Annotated[list[Path] | None, typer.Option("--with", help="Another run, to form an ensemble.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores and tokens.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
) -> None:
    """Translate RUN [FILE], or standard input to standard output: line n of the output is line n of the input."""
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import put, put_json, stream
    from regard.config import override
    from regard.errors import ConfigError

    run = [Path(one) for one in arguments if not one.startswith("decode.")]
    if not 1 <= len(run) <= 2:
        raise ConfigError(
            f"translate takes a run and at most one file; got {len(run)} names. Pass --with for ensembles."
        )
    if len(run) == 2 and not run[1].exists() and " " in str(run[1]):
        raise ConfigError(f'There is no file {run[1]}. To translate a sentence: echo "{run[1]}" | regard translate RUN')
    translator = load_translator([run[0], *with_run] if with_run else run[0], device=device)
    lines = stream(run[1] if len(run) == 2 else None)
    tables: dict[str, Any] = {}
    for assignment in arguments:
        tables = override(tables, assignment) if assignment.startswith("decode.") else tables
    options: dict[str, Any] = {"beam": beam, "nbest": nbest, "temperature": temperature, **tables.get("decode", {})}
    translator.settings(**options)  # refuses what does not fit, before anything is read
    strange = Unknown(translator.source_vocabulary.kind)
    typed = len(run) == 1 and sys.stdin.isatty()  # someone waits for each line
    done = 0
    with bar("translating", printing=True) as tell:
        while some := list(islice(lines, 1 if typed else CHUNK)):
            translations = translator.translate(some, **options, progress=lambda n, _, done=done: tell(done + n, None))
            for number, (line, found) in enumerate(zip(some, translations, strict=True), done + 1):
                warn(translator, number, line, found)
                strange.add(number, found.unknown)
                if as_json:
                    put_json({"source": line, "translation": found.text, **details(found), "unknown": found.unknown})
                else:
                    put(_text(found, nbest))
            sys.stdout.flush()
            done += len(some)
    if strange.count:
        typer.echo(strange, err=True)


def warn(translator: "regard.Translator", number: int, line: str, found: "regard.Translation") -> None:
    """Say on stderr, with its number, when a line is longer than any in training or its translation was cut off."""
    most = translator.experiment.data.max_length
    pieces = len(translator.source_vocabulary.encode_many([line])[0]) if len(line) > most else 0
    if pieces > most:
        typer.echo(f"line {number}: {pieces} tokens, more than the {most} of any line in training", err=True)
    if found.finished not in ("end", "empty"):
        typer.echo(f"line {number}: the translation did not end by itself ({found.finished})", err=True)


class Unknown:
    """What the source vocabulary does not hold, counted over all lines; the first few are remembered."""

    FEW = 5

    def __init__(self, kind: str) -> None:
        self.noun = {"word": "word", "char": "character"}.get(kind, "piece")
        self.count = 0
        self.first: dict[str, int] = {}  # its spelling -> the first line that holds it; one more than is told

    def add(self, number: int, unknown: list[str]) -> None:
        """Count what was unknown in line `number`."""
        self.count += len(unknown)
        for one in unknown:
            if one not in self.first and len(self.first) <= self.FEW:
                self.first[one] = number

    def __str__(self) -> str:
        from regard.look.text import label

        told = [f"{label(one)} (line {number})" for one, number in self.first.items()]
        more = ", ..." if len(told) > self.FEW else ""
        are = f"{self.noun} of the input is" if self.count == 1 else f"{self.noun}s of the input are"
        return f"{self.count} {are} not in the vocabulary and could not be read: {', '.join(told[: self.FEW])}{more}"


def _text(found: "regard.Translation", nbest: int) -> str:
    if nbest == 1:
        return found.text
    return "\t".join(f"{one.score:.4f}\t{one.text}" for one in found.nbest)


def details(found: Any) -> dict[str, Any]:
    """How sure a model was of a translation or a caption, for JSON."""
    return {
        "score": found.score,
        "logprob": found.logprob,
        "finished": found.finished,
        "tokens": found.tokens,
        "token_logprobs": found.token_logprobs,
        "nbest": [{"text": one.text, "score": one.score} for one in found.nbest],
    }
