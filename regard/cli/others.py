"""regard caption, regard classify, regard perplexity, regard generate: the models beside translation"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (caption, classify, perplexity, generate):
        app.command(command.__name__)(command)


def caption(
    run: Run,
    images: Annotated[list[Path], typer.Argument(help="Pictures: JPEG, PNG or WebP.")],
    out: Annotated[
        Path | None, typer.Option(help="Draw where it looked: .png, .svg, .pdf or .html (one picture).")
    ] = None,
    view: Annotated[str, typer.Option(help="film (all words), or picture.")] = "film",
    beam: Annotated[int | None, typer.Option(help="Beam width.")] = None,
    device: Device = "auto",
) -> None:
    """Write a caption for each picture, and show which part of it each word looked at."""
    from regard.api.captioner import load_captioner
    from regard.cli.progress import bar
    from regard.cli.text import check_out, put
    from regard.errors import ConfigError

    if out is not None and len(images) != 1:
        raise ConfigError(f"--out draws one picture; got {len(images)}.")
    check_out(out)
    writer = load_captioner(run, device)
    with bar("looking at pictures") as tell:
        captions = writer.caption(list(images), beam=beam, progress=tell)
    for image, found in zip(images, captions, strict=True):
        put(f"{image}\t{found}" if len(images) > 1 else str(found))
    if out is not None:
        put(f"drawn: {writer.look(images[0], beam=beam).draw(out, view)}")


def classify(
    run: Run,
    file: Annotated[Path | None, typer.Argument(help="Documents, one a line (none: standard input).")] = None,
    look: Annotated[bool, typer.Option("--look", help="Show the sentences and words that counted.")] = False,
    out: Annotated[Path | None, typer.Option(help="Draw the first document into an .html file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with all probabilities.")] = False,
    device: Device = "auto",
) -> None:
    """The class of each document, one a line; with --look, the text with the weights of its sentences and words.

    An empty line has no class, and gives an empty line.
    """
    from regard.api.classifier import load_classifier
    from regard.cli.progress import bar
    from regard.cli.text import check_out, lines_of, put
    from regard.data.text import is_blank

    check_out(out)
    classifier = load_classifier(run, device)
    documents = lines_of(file)
    with bar("reading", printing=True) as tell:
        for number, text in enumerate(documents, 1):
            found = {} if is_blank(text) else classifier.classify(text).probabilities
            best = max(found, key=lambda name: found[name], default="")
            put(json.dumps(found) if as_json else f"{best}\t{found[best]:.3f}" if found else "")
            if look and found:
                put(classifier.look(text).to_terminal(colour=sys.stdout.isatty()))
            tell(number, len(documents))
    if out is not None:
        put(f"drawn: {classifier.look(documents[0] if documents else '').draw(out)}")


def perplexity(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help="Text, one sentence or paragraph a line (none: standard input).")
    ] = None,
    device: Device = "auto",
) -> None:
    """The perplexity of a text under a language model, ends of lines counted."""
    from regard.api.writer import load_writer
    from regard.cli.progress import bar
    from regard.cli.text import lines_of, put

    writer = load_writer(run, device)
    with bar("reading") as tell:
        value, tokens = writer.perplexity(lines_of(file), tell)
    put(f"perplexity {value:.3f} a token, {tokens} tokens")


def generate(
    run: Run,
    prefix: Annotated[str, typer.Argument(help="The beginning of the text.")] = "",
    count: Annotated[int, typer.Option(help="How many texts.")] = 3,
    temperature: Annotated[float, typer.Option(help="Lower is more careful.")] = 1.0,
    longest: Annotated[int, typer.Option(help="Most tokens after the prefix.")] = 60,
    seed: Annotated[int, typer.Option(help="Another seed gives other texts.")] = 1,
    device: Device = "auto",
) -> None:
    """Write texts that go on from a prefix."""
    from regard.api.writer import load_writer
    from regard.cli.progress import bar
    from regard.cli.text import put

    with bar("writing"):
        texts = load_writer(run, device).generate(prefix, count, longest, temperature=temperature, seed=seed)
    for text in texts:
        put(text)
