"""regard caption, classify, perplexity, reach, generate: the models beside translation"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (caption, classify, perplexity, reach, generate):
        app.command(command.__name__)(command)


def caption(
    run: Run,
    images: Annotated[list[Path], typer.Argument(help="Pictures: JPEG, PNG or WebP.")],
    out: Annotated[
        Path | None, typer.Option(help="Draw where it looked: .png, .svg, .pdf or .html (one picture).")
    ] = None,
    view: Annotated[
        str | None, typer.Option(help="film (each word), picture (--word, or all words) or region (--cell).")
    ] = None,
    word: Annotated[int | None, typer.Option(help="Draw where this word looked, from 0.")] = None,
    cell: Annotated[
        str | None, typer.Option(help="Draw which words looked at ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT, from 0.")
    ] = None,
    smooth: Annotated[bool, typer.Option("--smooth", help="Blend the cells for display; the picture says so.")] = False,
    beam: Annotated[int | None, typer.Option(help="Beam width, 1 (greedy) to 1000.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a picture, with scores and tokens.")] = False,
    device: Device = "auto",
) -> None:
    """Write a caption for each picture, and show which part of it each word looked at."""
    from regard.api.captioner import load_captioner
    from regard.cli.look import on_picture
    from regard.cli.progress import bar
    from regard.cli.text import check_out, put, put_json, put_note
    from regard.cli.translate import details
    from regard.errors import ConfigError

    if out is not None and len(images) != 1:
        raise ConfigError(f"--out draws one picture; got {len(images)}.")
    if out is None and (view is not None or word is not None or cell is not None or smooth):
        raise ConfigError("--view, --word, --cell and --smooth are about a drawing; give --out, as in --out look.html.")
    options = on_picture(images[0], view, word, cell, smooth)
    check_out(out)
    writer = load_captioner(run, device)
    with bar("looking at pictures") as tell:
        captions = writer.caption(list(images), beam=beam, progress=tell)
    for image, found in zip(images, captions, strict=True):
        if as_json:
            put_json({"image": str(image), "caption": found.text, **details(found)})
        else:
            put(f"{image}\t{found}" if len(images) > 1 else str(found))
    if out is not None:
        put_note(f"drawn: {writer.look(images[0], captions[0]).draw(out, **options)}", as_json)


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
    from regard.cli.text import check_out, lines_of, put, put_json, put_note
    from regard.data.text import is_blank
    from regard.errors import ConfigError

    if look and as_json:
        raise ConfigError(
            "--look is to be read and --json is data; for the weights as data: regard look --out look.json."
        )
    check_out(out)
    classifier = load_classifier(run, device)
    documents = lines_of(file)
    with bar("reading", printing=True) as tell:
        for number, text in enumerate(documents, 1):
            found = {} if is_blank(text) else classifier.classify(text).probabilities
            best = max(found, key=lambda name: found[name], default="")
            if as_json:
                put_json(found)
            else:
                put(f"{best}\t{found[best]:.3f}" if found else "")
            if look and found:
                put(classifier.look(text).to_terminal(colour=sys.stdout.isatty()))
            tell(number, len(documents))
    if out is not None:
        put_note(f"drawn: {classifier.look(documents[0] if documents else '').draw(out)}", as_json)


def perplexity(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help="Text, one sentence or paragraph a line (none: standard input).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, with the kind and size of the vocabulary.")
    ] = False,
    device: Device = "auto",
) -> None:
    """The perplexity of a text under a language model, ends of lines counted."""
    from regard.api.writer import load_writer
    from regard.cli.progress import bar
    from regard.cli.text import lines_of, put, put_json

    writer = load_writer(run, device)
    with bar("reading") as tell:
        value, tokens = writer.perplexity(lines_of(file), tell)
    if as_json:  # perplexities compare where the tokens are the same, so what a token is comes with it
        kind = {"subwords": writer.vocabulary.kind, "vocabulary": len(writer.vocabulary)}
        put_json({"run": writer.name, "perplexity": value, "tokens": tokens, **kind})
    else:
        put(f"perplexity {value:.3f} a token, {tokens} tokens")


def reach(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help="Text, one sentence or paragraph a line (none: standard input).")
    ] = None,
    farthest: Annotated[int, typer.Option(help="Distances from here on are counted together.")] = 20,
    words: Annotated[int, typer.Option(help="How many of the words looked at most.")] = 10,
    least: Annotated[int, typer.Option(help="A word counts if it could be seen at least so many times.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; shares[d] is of distance d, the last of all beyond.")
    ] = False,
    device: Device = "auto",
) -> None:
    """How far back a language model looks in a text, and at which words."""
    from regard.api.writer import load_writer
    from regard.cli.progress import bar
    from regard.cli.text import lines_of, put, put_json
    from regard.errors import ConfigError

    if farthest < 1:
        raise ConfigError(f"--farthest must be at least 1; got {farthest}.")
    writer = load_writer(run, device)
    with bar("reading") as tell:
        found = writer.reach(lines_of(file), farthest, tell)
    told = []
    for one in found:
        top = one.favourites(least)[: max(0, words)]
        named = dict(zip(writer.vocabulary.pieces(top), (one.words[word] for word in top), strict=True))
        told.append({"module": one.name, "mean": one.mean, "shares": one.shares.tolist(), "words": named})
    if as_json:
        put_json({"run": str(run), "farthest": farthest, "modules": told})
    else:
        put("\n\n".join(_reach_table(one) for one in told))


def _reach_table(found: dict[str, Any]) -> str:
    shares = found["shares"]
    lines = [f"{found['module']}: {found['mean']:.2f} words back on average (0 is the word just read)"]
    for distance, share in enumerate(shares):
        name = f"{distance}" if distance < len(shares) - 1 else f"{distance}+"
        lines.append(f"{name:>8}  {share:6.3f}  {'#' * round(50 * share)}".rstrip())
    if found["words"]:
        named = ", ".join(f"{word} {times:.2f}" for word, times in found["words"].items())
        lines.append(f"looked at most, against looking at all alike: {named}")
    return "\n".join(lines)


def generate(
    run: Run,
    prefix: Annotated[str, typer.Argument(help="The beginning of the text.")] = "",
    count: Annotated[int, typer.Option(help="How many texts.")] = 3,
    temperature: Annotated[
        float | None, typer.Option(help="Lower is more careful (none: the run's own, or 1).")
    ] = None,
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
