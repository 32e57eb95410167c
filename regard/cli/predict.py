"""regard caption, classify, generate"""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.options import Beam, CaptionView, Device, JsonLines, OnPicture, Overwrite, Run
from regard.cli.progress import bar
from regard.cli.text import batches, check_out, is_text, load, note_unknown, put, put_note, put_result
from regard.errors import ConfigError


def caption(
    run: Run,
    images: Annotated[list[Path], Argument(help="Pictures: JPEG, PNG or WebP.")],
    *,
    out: Annotated[Path | None, Option(help="Draw the attention over one picture: .png, .svg, .pdf or .html.")] = None,
    overwrite: Overwrite = False,
    view: CaptionView = None,
    picture: OnPicture,
    beam: Beam = None,
    as_json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Write a caption for each picture, and show which part of it each word attends to."""
    from regard.cli.look import on_picture
    from regard.cli.translate import details
    from regard.look.html import check_picture

    if out is not None and len(images) != 1:
        raise ConfigError(f"--out draws one picture; got {len(images)}.")
    if out is None and (view is not None or picture != OnPicture()):
        raise ConfigError("--view, --word, --cell and --smooth need --out, as in --out look.html.")
    options = on_picture(images[0], view, picture)
    check_out(out, overwrite, *images)
    if out is not None:
        check_picture(out)
    writer = load(run, device, "caption")
    with bar("captioning") as progress:
        captions = writer.caption(list(images), beam=beam, progress=progress)
    for image, found in zip(images, captions, strict=True):
        text = f"{image}\t{found}" if len(images) > 1 else found
        put_result(text, {"image": str(image), "caption": found.text, **details(found)}, as_json)
    if out is not None:
        put_note(f"drawn: {writer.look(images[0], captions[0]).draw(out, **options)}", as_json)


def classify(
    run: Run,
    text: Annotated[
        str | None,
        Argument(metavar="[FILE | TEXT]", help="Documents, one per line (default: stdin), or a single document."),
    ] = None,
    look: Annotated[bool, Option("--look", help="Show the weights of sentences and words.")] = False,
    out: Annotated[Path | None, Option(help="Draw the first document: .html.")] = None,
    overwrite: Overwrite = False,
    as_json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Print the class of each document; with --look, also its text with the weights of sentences and words.

    An argument that is not an existing file and does not look like a file name is classified as a document. An empty
    line has no class and gives an empty line.
    """
    from regard.look.html import check_picture
    from regard.text.lines import is_blank

    if look and as_json:
        raise ConfigError(
            "--look cannot be combined with --json; for the weights as data: regard look --out look.json."
        )
    if text is not None and not text.strip():
        raise ConfigError("There is nothing to classify in an empty text; pass at least one word, or a file.")
    check_out(out, overwrite, text)
    if out is not None:
        check_picture(out)
    classifier = load(run, device, "classify")
    done, first = 0, ""
    with bar("classifying", printing=True) as progress:
        for lines in [[text]] if text and is_text(text) else batches(Path(text) if text else None):
            first = first if done else lines[0]
            for line in lines:
                found = {} if is_blank(line) else classifier.classify(line).probabilities
                best = max(found, key=lambda name: found[name], default="")
                put_result(f"{best}\t{found[best]:.3f}" if found else "", found, as_json)
                if look and found:
                    put(classifier.look(line).to_terminal())
                done += 1
                progress(done, None)
            sys.stdout.flush()
    if out is not None:
        put_note(f"drawn: {classifier.look(first).draw(out)}", as_json)


def generate(
    run: Run,
    prefix: Annotated[str, Argument(help="Start of the text.")] = "",
    count: Annotated[int, Option(help="Number of texts.")] = 3,
    temperature: Annotated[float | None, Option(help="Sampling temperature (default: the run's, or 1).")] = None,
    longest: Annotated[int, Option(help="Most tokens after the prefix.")] = 60,
    seed: Annotated[int, Option(help="Seed of the samples.")] = 1,
    device: Device = "auto",
) -> None:
    """Sample texts that continue a prefix."""
    from regard.api.flags import unseen
    from regard.text.normalise import one_line
    from regard.text.visible import label

    writer = load(run, device, "language")
    unknown = unseen(writer.vocabulary.encode(one_line(prefix)))
    note_unknown(len(unknown), "prefix", [label(word) for word in dict.fromkeys(unknown)], writer.vocabulary.kind)
    with bar("sampling"):
        texts = writer.generate(prefix, count, longest, temperature=temperature, seed=seed)
    for text in texts:
        put(text)
