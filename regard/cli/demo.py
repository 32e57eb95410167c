"""regard demo"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import regard
from regard.cli.progress import Watcher, bar
from regard.cli.text import put
from regard.errors import ConfigError, check_known, counted

SENTENCE = "the black cat does not eat the red apple ."
REAL = (
    "Where is the station?",
    "I don't know what you are talking about.",
    "The agreement on the European Economic Area was signed in August 1992.",
)
VENV = Path(".venv/bin/regard")  # where `make` puts it
UNSEEN = (
    SENTENCE,
    "I do not see the white houses .",
    "the young woman ate a green apple .",
    "the black cat that the old man sees does not eat the red apple .",
)


def demo(
    task: Annotated[str, Option(help="translate, caption, document or language.")] = "translate",
    out: Annotated[Path | None, Option(help="Run folder.")] = None,
    model: Annotated[str | None, Option(help="Another model of the task; see `regard models`.")] = None,
    minutes: Annotated[float, Option(help="Time limit of training in minutes.")] = 2.0,
) -> None:
    """Train a small model from scratch in a minute or two, use it, and show its attention."""
    import torch

    from regard.api.training import plan
    from regard.models.registry import entry
    from regard.training.events import BEFORE_THE_END, Noticed
    from regard.training.start import train as begin

    torch.set_num_threads(1)  # more threads do not speed up tensors of this size
    check_known("demo", task, DEMOS)
    name, corpus, settings, show = DEMOS[task]
    if model and entry(model).task != entry(name).task:
        raise ConfigError(f"The demo {task} needs a model of the same task as {name}; {model} is for another.")
    run = out or Path("demo") / corpus
    experiment, _ = plan(run, None, model or name, "tiny", settings.split(), minutes, corpus=corpus)
    if task == "translate" and not model:
        show_shipped(run.parent)
        put("\nNow a small translator, trained here from scratch on generated sentences:")
    with Watcher() as watcher:
        # Notices advise changing settings, which the demo does not accept.
        def observe(event: Any) -> None:
            if not isinstance(event, Noticed):
                watcher(event)

        reason = begin(experiment, run, observe, watcher.stages)
    if reason in BEFORE_THE_END:
        typer.echo("Saved. Repeat the command to resume.", err=True)
        raise KeyboardInterrupt if reason == "interrupted" else typer.Exit(0)
    show(run, regard.load(run))
    if reason == "time":
        limit = counted(minutes, "minute", "g")
        put(f"\nTraining stopped at the time limit of {limit}; the model may become better. To continue it:")
        other = f" --model {model}" if model and model != name else ""
        put(f"  {command()} demo --task {task}{other} --out {run} --minutes {5 * minutes:g}")


def show_shipped(folder: Path) -> None:
    """Real sentences with the models that ship, and the alignment of one."""
    from regard.runs.included import shipped_folder
    from regard.sealed import make_folder

    make_folder(folder)
    if shipped_folder("en-fr") is None or shipped_folder("en-fr/bahdanau") is None:
        put("The models that ship with regard are not part of this copy, so the demo begins with training.")
        return
    for name in ("en-fr/transformer", "en-fr/bahdanau"):
        translator = regard.load(name)
        put(f"{name}, a trained model that ships with regard:")
        for text, translation in zip(REAL, translator.translate(list(REAL)), strict=True):
            put(f"  {text}\n  → {translation}")
    _show_alignment(translator, REAL[-1], folder / "economic-area.png")


def _show_alignment(translator: Any, sentence: str, path: Path) -> None:
    trace = translator.look(sentence)
    put("\nAttention weights in hundredths: each row is a French word, each column an English one.\n")
    put(f"{trace.to_terminal()}\nThe same as an image: {trace.draw(path)}")


def _try_next(*commands: str) -> None:
    put("\nWhat to try next:")
    for arguments in commands:
        put(f"  {command()} {arguments}")


def show_translations(run: Path, translator: Any) -> None:
    """BLEU on new sentences, a few translations, and the alignment of one."""
    from regard.corpora.phrasebook import generate

    made = generate(300, seed=4242, min_words=3, max_words=14)  # another seed than the training data
    sources, targets = [pair.source for pair in made], [pair.target for pair in made]
    with bar("translating") as progress:
        report = translator.score(sources, targets, metrics=["bleu"], beam=1, progress=progress)
    put(f"\nOn {len(made)} new sentences: {report}")
    put("\nTranslations of sentences not in the training data:")
    for text in UNSEEN:
        put(f"  {text}\n  → {translator.translate(text)}")
    _show_alignment(translator, SENTENCE, run / "alignment.png")
    _try_next(
        'translate en-fr "Where is the station?"',
        "serve            then open http://127.0.0.1:5000: the models that ship, side by side",
        f'look {run} "the small dog sees the old house ." --out look.html',
        "train --source your.en --target your.fr --minutes 5 --out runs/mine",
    )


def show_captions(run: Path, writer: Any) -> None:
    """Captions of a few new pictures, and the attention over the first."""
    from regard.corpora.shapes import draw_scene, scene
    from regard.data.images import encode_png
    from regard.sealed import write_atomically

    put("\nCaptions of pictures not in the training data:")
    for number in range(3):
        drawn, path = scene(number, seed=4242), run / f"picture{number}.png"
        write_atomically(path, encode_png(draw_scene(drawn)))
        put(f"  {path}\n  → {writer.caption(path)}    (reference: {drawn.caption})")
    film = writer.look(run / "picture0.png").draw(run / "looked.png", "film", picture=run / "picture0.png")
    put(f"The attention of each word: {film}")
    _try_next(
        f"caption {run} {run / 'picture1.png'} --out looked.html",
        f"serve {run}            then open http://127.0.0.1:5000",
    )


def show_documents(run: Path, classifier: Any) -> None:
    """A new review, with the weights of its sentences and words."""
    from regard.corpora.reviews import generate

    review = generate(1, seed=4242)[0]
    trace = classifier.look(review.text)
    put(f"\nA review not in the training data, of class {review.label!r}, with its attention weights:\n")
    put(f"{trace.to_terminal()}\nThe same as a page: {trace.draw(run / 'document.html')}")
    look = f'look {run} "The plot is not bad. Then the captain leaves." --out document.html'
    _try_next(look, f"classify {run} your-reviews.txt")


def show_texts(run: Path, writer: Any) -> None:
    """A few samples, and the attention over one."""
    put("\nSamples:")
    texts = writer.generate(count=4)
    for text in texts:
        put(f"  {text}")
    put("\nAttention over the past in the first sample: rows are the next words, columns the words read so far.\n")
    put(writer.look(texts[0] or "the").to_terminal())
    _try_next(
        f'generate {run} "{texts[0].split(" ")[0]}" --temperature 0.5',
        f"perplexity {run} your-text.txt",
        f"reach {run} your-text.txt            how far back it attends",
    )


def command() -> str:
    """How to call this program from here."""
    return "regard" if shutil.which("regard") else ".venv/bin/regard" if VENV.exists() else "python -m regard"


_TRANSLATOR = (
    "data.subwords=word data.size=12000 data.max_words=14 data.held_out=300 "
    "train.validate_sentences=200 train.batch_tokens=1024 train.steps=600"
)
# task -> model, built-in corpus, settings, what to show
DEMOS: dict[str, tuple[str, str, str, Callable[[Path, Any], None]]] = {
    "translate": ("bahdanau", "phrasebook", _TRANSLATOR, show_translations),
    "caption": ("captioner", "shapes", "data.size=6000 train.seed=2", show_captions),
    "document": ("document", "reviews", "", show_documents),
    "language": ("attentive-lm", "tales", "data.subwords=word", show_texts),
}
