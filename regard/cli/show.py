"""regard models, regard corpora"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
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
    """List the built-in corpora, generated on the spot; with a name, write one to files: sentences with their gold
    alignments, a text, labelled documents (OUT.tsv), or pictures with captions (a folder OUT)."""
    from regard.cli.progress import bar
    from regard.cli.text import check_out, put
    from regard.data.builtin.registry import BUILTIN, find_builtin
    from regard.data.settings import DataConfig
    from regard.data.text import write_atomically
    from regard.errors import DataError, unknown

    if name is None:
        for known, found in BUILTIN.items():
            put(f"{known:<14} {found.meaning}")
        for known, (meaning, _) in OTHERS.items():
            put(f"{known:<14} {meaning}")
        put("\nTrain on one: regard train --corpus phrasebook --model bahdanau --preset tiny --out runs/first")
        return
    if name in OTHERS:
        DataConfig(size=size)  # refuses a number that cannot be
        check_out(Path(f"{out or name}.txt"))
        with bar("making it"):
            put(f"{size} of {name}: {OTHERS[name][1](out or name, size, seed)}")
        return
    if name not in BUILTIN:
        raise DataError(unknown("built-in corpus", name, [*BUILTIN, *OTHERS]))
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


def _write_tales(out: str, size: int, seed: int) -> Path:
    from regard.data.builtin.tales import generate

    return _write(Path(f"{out}.txt"), [tale.text for tale in generate(size, seed)])


def _write_reviews(out: str, size: int, seed: int) -> Path:
    from regard.data.builtin.reviews import generate

    return _write(Path(f"{out}.tsv"), [f"{review.label}\t{review.text}" for review in generate(size, seed)])


def _write_shapes(out: str, size: int, seed: int) -> Path:
    from regard.data.builtin.shapes import draw_scene, scene
    from regard.data.images import encode_png
    from regard.data.text import fill_folder
    from regard.errors import DataError

    if Path(out).exists():
        raise DataError(f"{out} exists already; give --out another name, so that nothing of yours is lost.")
    with fill_folder(Path(out)) as folder:
        for number in range(size):
            shown = scene(number, seed)
            (folder / f"{number:06}.png").write_bytes(encode_png(draw_scene(shown)))
            (folder / f"{number:06}.txt").write_text(shown.caption + "\n", encoding="utf-8")
    return Path(out)


def _write(path: Path, lines: list[str]) -> Path:
    from regard.data.text import write_atomically

    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    return path


OTHERS: dict[str, tuple[str, Callable[[str, int, int], Path]]] = {
    "shapes": ("drawn pictures of coloured shapes with captions, for `captioner`", _write_shapes),
    "reviews": ("film reviews of which a few sentences decide, for `document`", _write_reviews),
    "tales": ("who has what, and an end that must be remembered, for language models", _write_tales),
}
