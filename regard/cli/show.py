"""regard models, regard corpora"""

import dataclasses
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("models")(models)
    app.command("corpora")(corpora)


def models(
    name: Annotated[str | None, typer.Argument(help="A model, to list its settings, presets and recipes.")] = None,
    preset: Annotated[str, typer.Option(help="Show the values of this preset.")] = "paper",
) -> None:
    """List the models; with a name, all settings of it and of training, each with its meaning."""
    from regard.cli.text import put
    from regard.config import describe
    from regard.decode.settings import DecodeConfig
    from regard.models.registry import MODELS, entry
    from regard.models.registry import preset as find_preset
    from regard.train.experiment import KINDS
    from regard.train.settings import TrainConfig

    if name is None:
        for known, found in MODELS.items():
            put(f"{known:<14} {found.paper:<36} {found.idea}")
        put("\n`regard models NAME` lists the settings of one.")
        return
    found, config = entry(name), find_preset(name, preset)
    put(f"{name}: {found.idea} ({found.paper})\npresets: {', '.join(found.presets)}\n")
    recipe = dict(found.recipes.get(preset, {}))
    sections = {
        f"model (preset {preset})": describe(config),
        "train": describe(dataclasses.replace(TrainConfig(), **recipe)),
        "data": describe(KINDS[found.task].data()),
        "decode": describe(DecodeConfig()),
    }
    for title, rows in sections.items():
        put(f"[{title}]")
        for key, value, meaning in rows:
            put(f"  {key + ' = ' + str(value):<34} {meaning}")
        put("")


def corpora(
    name: Annotated[str | None, typer.Argument(help="A corpus, to write some of it to files.")] = None,
    out: Annotated[str, typer.Option(help="Beginning of the file names: OUT.source, OUT.target, OUT.gold.")] = "",
    size: Annotated[int, typer.Option(help="Sentence pairs.")] = 500,
    seed: Annotated[int, typer.Option(help="Another seed gives other sentences.")] = 1,
    min_words: Annotated[int, typer.Option(help="Fewest source words.")] = 3,
    max_words: Annotated[int, typer.Option(help="Most source words.")] = 12,
) -> None:
    """List the built-in corpora, generated on the spot; with a name, write one to files with its gold alignments."""
    from pathlib import Path

    from regard.cli.progress import bar
    from regard.cli.text import check_out, put
    from regard.data.builtin.registry import BUILTIN, find_builtin
    from regard.data.settings import DataConfig
    from regard.data.text import write_atomically

    if name is None:
        for known, found in BUILTIN.items():
            put(f"{known:<14} {found.meaning}")
        put("\nTrain on one: regard train --corpus phrasebook --model bahdanau --preset tiny --out runs/first")
        return
    DataConfig(corpus=name, size=size, min_words=min_words, max_words=max_words)  # refuses numbers that cannot be
    check_out(Path(f"{out or name}.source"))
    with bar("making sentences"):
        examples = find_builtin(name).generate(size, seed, min_words, max_words)
    gold = [" ".join(f"{i + 1}-{j + 1}" for i, j in sorted(example.alignment)) for example in examples]
    columns = {
        "source": [example.source for example in examples],
        "target": [example.target for example in examples],
        "gold": gold,
    }
    for ending, lines in columns.items():
        path = Path(f"{out or name}.{ending}")
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
        put(f"{len(lines)} lines: {path}")
