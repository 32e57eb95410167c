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


def corpora() -> None:
    """List the built-in corpora: generated on the spot, nothing to download."""
    from regard.cli.text import put
    from regard.data.builtin.registry import BUILTIN

    for name, found in BUILTIN.items():
        put(f"{name:<14} {found.meaning}")
    put("\nTrain on one: regard train --corpus phrasebook --model bahdanau --preset tiny --out runs/first")
