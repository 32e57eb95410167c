"""regard demo"""

from pathlib import Path
from typing import Annotated

import typer

SENTENCE = "the black cat that the old man sees does not eat the red apple ."
SETTINGS = (
    "data.subwords=word",
    "data.size=12000",
    "data.max_words=14",
    "data.held_out=300",
    "train.validate_sentences=200",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("demo/phrasebook"),
    model: Annotated[str, typer.Option(help="A model; see `regard models`.")] = "bahdanau",
    minutes: Annotated[float, typer.Option(help="Train for at most so long.")] = 1.0,
) -> None:
    """Train a translator from scratch in about a minute, translate, and show what it looked at."""
    import regard
    from regard.api.training import gather
    from regard.cli.progress import Watcher, stages
    from regard.cli.text import put
    from regard.train.begin import train as begin
    from regard.train.experiment import resolve

    settings = [*SETTINGS, f"train.minutes={minutes}", "train.epochs=1000", "train.validate_every=200"]
    with Watcher() as watcher, stages() as tell:
        begin(resolve(gather(None, model, "tiny", settings, corpus="phrasebook")), out, watcher, tell)
    translator = regard.load(out)
    put("\nTranslations of sentences it has never seen:")
    for text in (SENTENCE, *HELD_OUT):
        put(f"  {text}\n  → {translator.translate(text)}")
    trace = translator.look(SENTENCE)
    put("\nWhat it looked at: each row is a French word, the numbers are hundredths of its attention.\n")
    put(trace.to_terminal())
    put(f"The same as a picture: {trace.draw(out / 'alignment.png')}")
    put("\nWhat to try next:")
    put(f'  regard look {out} "the small dog sees the old house ." --out look.html')
    put(f"  regard serve {out}            then open http://127.0.0.1:5000")
    put("  regard train --source your.en --target your.fr --model bahdanau --preset small --out runs/mine")


HELD_OUT = ("I do not see the white houses .", "the young woman ate a green apple .")
