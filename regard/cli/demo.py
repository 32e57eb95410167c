"""regard demo"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import regard

SENTENCE = "the black cat does not eat the red apple ."
VENV = Path(".venv/bin/regard")  # where `make` puts it
UNSEEN = (
    SENTENCE,
    "I do not see the white houses .",
    "the young woman ate a green apple .",
    "the black cat that the old man sees does not eat the red apple .",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    task: Annotated[str, typer.Option(help="translate, caption, document or language.")] = "translate",
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    model: Annotated[str | None, typer.Option(help="Another model of the task; see `regard models`.")] = None,
    minutes: Annotated[float, typer.Option(help="Train for at most so long.")] = 2.0,
) -> None:
    """Train a model from scratch in a minute or two, use it, and show what it looked at."""
    import torch

    from regard.api.training import gather
    from regard.cli.progress import Watcher
    from regard.errors import ConfigError, unknown
    from regard.models.registry import entry
    from regard.train.begin import train as begin
    from regard.train.experiment import resolve

    torch.set_num_threads(1)  # tensors of this size gain nothing from more threads, and lose much on a busy machine
    if task not in DEMOS:
        raise ConfigError(unknown("demo", task, DEMOS))
    name, corpus, settings, show = DEMOS[task]
    if model and entry(model).task != entry(name).task:
        raise ConfigError(f"The demo {task} needs a model of the same task as {name}; {model} is of another.")
    run = out or Path("demo") / corpus
    given = [*settings, f"train.minutes={minutes}"]
    experiment = resolve(gather(None, model or name, "tiny", given, corpus=corpus))
    with Watcher() as watcher:
        reason = begin(experiment, run, watcher, watcher.stages)
    if reason == "asked":
        typer.echo("Stopped and saved. The same command goes on from here.", err=True)
        raise typer.Exit(0)
    show(run, regard.load(run))


def show_translations(run: Path, translator: Any) -> None:
    """BLEU on new sentences, a few translations, and the alignment of one."""
    from regard.cli.progress import bar
    from regard.cli.text import put
    from regard.data.builtin.phrasebook import generate

    made = generate(300, seed=4242, min_words=3, max_words=14)  # not those it was trained on: another seed
    sources, targets = [one.source for one in made], [one.target for one in made]
    with bar("translating") as tell:
        report = translator.score(sources, targets, metrics=["bleu"], beam=1, progress=tell)
    put(f"\nOn {len(made)} new sentences: {report}")
    put("\nTranslations of sentences it has never seen:")
    for text in UNSEEN:
        put(f"  {text}\n  → {translator.translate(text)}")
    trace = translator.look(SENTENCE)
    put("\nWhat it looked at: each row is a French word, the numbers are hundredths of its attention.\n")
    put(trace.to_terminal(colour=sys.stdout.isatty()))
    put(f"The same as a picture: {trace.draw(run / 'alignment.png')}")
    put("\nWhat to try next:")
    put(f'  {command()} look {run} "the small dog sees the old house ." --out look.html')
    put(f"  {command()} serve {run}            then open http://127.0.0.1:5000")
    put(f"  {command()} train --source your.en --target your.fr --model bahdanau --preset small --out runs/mine")


def show_captions(run: Path, writer: Any) -> None:
    """A few pictures that it has never seen, each with its caption; where it looked in the first."""
    from regard.cli.text import put
    from regard.data.builtin.shapes import draw_scene, scene
    from regard.data.images import encode_png
    from regard.data.text import write_atomically

    put("\nCaptions of pictures it has never seen:")
    for number in range(3):
        drawn, path = scene(number, seed=4242), run / f"picture{number}.png"
        write_atomically(path, encode_png(draw_scene(drawn)))
        put(f"  {path}\n  → {writer.caption(path)}    (drawn as: {drawn.caption})")
    film = writer.look(run / "picture0.png").draw(run / "looked.png", "film", picture=run / "picture0.png")
    put(f"Where each word looked: {film}")
    put("\nWhat to try next:")
    put(f"  {command()} caption {run} {run / 'picture1.png'} --out looked.html")
    put(f"  {command()} serve {run}            then open http://127.0.0.1:5000")


def show_documents(run: Path, classifier: Any) -> None:
    """A review that it has never seen, with the weights of its sentences and words."""
    from regard.cli.text import put
    from regard.data.builtin.reviews import generate

    review = generate(1, seed=4242)[0]
    trace = classifier.look(review.text)
    put(f"\nA review it has never seen was written as {review.label!r}. What it says, and where it looked:\n")
    put(trace.to_terminal(colour=sys.stdout.isatty()))
    put(f"The same as a page: {trace.draw(run / 'document.html')}")
    put("\nWhat to try next:")
    put(f'  {command()} look {run} "The plot is not bad. Then the captain leaves." --out document.html')
    put(f"  {command()} classify {run} your-reviews.txt")


def show_texts(run: Path, writer: Any) -> None:
    """A few texts of its own, and what it looked at in one."""
    from regard.cli.text import put

    put("\nTexts it writes:")
    texts = writer.generate(count=4)
    for text in texts:
        put(f"  {text}")
    put("\nWhat it looked back at while it read the first: rows are the words to come, columns those it had read.\n")
    put(writer.look(texts[0] or "the").to_terminal(colour=sys.stdout.isatty()))
    put("What to try next:")
    put(f'  {command()} generate {run} "{texts[0].split(" ")[0]}" --temperature 0.5')
    put(f"  {command()} perplexity {run} your-text.txt")
    put(f"  {command()} reach {run} your-text.txt            how far back it looks")


def command() -> str:
    """How this program is called from here."""
    return "regard" if shutil.which("regard") else ".venv/bin/regard" if VENV.exists() else "python -m regard"


Show = Callable[[Path, Any], None]
DEMOS: dict[str, tuple[str, str, list[str], Show]] = {  # task -> model, built-in corpus, settings, what is shown
    "translate": (
        "bahdanau",
        "phrasebook",
        [
            "data.subwords=word",
            "data.size=12000",
            "data.max_words=14",
            "data.held_out=300",
            "train.validate_sentences=200",
            "train.batch_tokens=1024",
            "train.steps=600",
        ],
        show_translations,
    ),
    "caption": ("captioner", "shapes", ["data.size=6000"], show_captions),
    "document": ("document", "reviews", [], show_documents),
    "language": ("attentive-lm", "tales", ["data.subwords=word"], show_texts),
}
