"""regard corpora"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Argument, Option

from regard.cli.options import Overwrite
from regard.cli.progress import bar
from regard.cli.text import check_out, fitted, put
from regard.errors import ConfigError, DataError, check_known, counted

SHOWN = 3  # examples of a corpus
SIZE = 500  # examples written to files by default


def corpora(
    name: Annotated[str | None, Argument(help="Corpus to show, or to write to files.")] = None,
    out: Annotated[str | None, Option(help="Prefix of files to write: OUT.source, OUT.target, OUT.gold.")] = None,
    overwrite: Overwrite = False,
    size: Annotated[int | None, Option(help=f"With --out: number of examples to write (default: {SIZE}).")] = None,
    seed: Annotated[int, Option(help="Seed of the generator.")] = 1,
    min_words: Annotated[int, Option(help="Fewest source words.")] = 3,
    max_words: Annotated[int, Option(help="Most source words.")] = 12,
) -> None:
    """List the built-in corpora, which are generated on demand. With a name, show a few examples of one; with --out,
    write it to files: sentence pairs with gold alignments, a text (OUT.txt), labelled documents (OUT.tsv), or pictures
    with captions (the folder OUT)."""
    from regard.corpora.registry import BUILTIN, find_builtin
    from regard.data.settings import DataConfig

    if name is None:
        meanings = {known: found.meaning for known, found in BUILTIN.items()}
        meanings |= {known: found.meaning for known, found in OTHERS.items()}
        put(fitted([f"{known:<14} {meaning}" for known, meaning in meanings.items()], map(": ".join, meanings.items())))
        put("\n`regard corpora NAME` shows examples of one.")
        put("To train on one: regard train --corpus phrasebook --model bahdanau --preset tiny --out runs/first")
        return
    check_known("built-in corpus", name, [*BUILTIN, *OTHERS], error=DataError)
    if out is None and size is not None:
        raise ConfigError("--size is for files; add --out PREFIX.")
    if out == "":
        raise ConfigError("--out must not be empty; give the prefix of the files.")
    size = SIZE if size is None else size
    if name in OTHERS:
        DataConfig(size=size)  # refuses an invalid size
        other = OTHERS[name]
        if out is None:
            return show(name, other.meaning, other.model, _texts(name, SHOWN, seed))
        check_out(Path(f"{out}.txt"), True)  # what is there is compared below
        with bar("generating"):
            if other.ending:
                [path] = _write({f"{out}{other.ending}": _texts(name, size, seed)}, overwrite)
            else:
                path = _write_shapes(Path(out), size, seed)
        put(f"{counted(size, other.noun)}: {path}")
        return
    DataConfig(corpus=name, size=size, min_words=min_words, max_words=max_words)  # refuses invalid numbers
    found = find_builtin(name)
    if out is None:
        examples = found.generate(SHOWN, seed, min_words, max_words)
        return show(name, found.meaning, "bahdanau", (f"{pair.source}\n  → {pair.target}" for pair in examples))
    check_out(Path(f"{out}.source"), True)
    with bar("generating"):
        examples = found.generate(size, seed, min_words, max_words)
    files = {
        f"{out}.source": (pair.source for pair in examples),
        f"{out}.target": (pair.target for pair in examples),
        f"{out}.gold": (" ".join(f"{i + 1}-{j + 1}" for i, j in sorted(pair.alignment)) for pair in examples),
    }
    for path in _write(files, overwrite):
        put(f"{counted(len(examples), 'line')}: {path}")


def show(name: str, meaning: str, model: str, examples: Iterable[str]) -> None:
    """Print what a corpus is, a few examples, and how to use it."""
    put(f"{name}: {meaning}\n")
    for example in examples:
        put(f"  {example}")
    put(f"\nTo train on it: regard train --corpus {name} --model {model} --preset tiny --out runs/{name}")
    put(f"To write it to files: regard corpora {name} --out {name}")


def _texts(name: str, size: int, seed: int) -> Iterator[str]:
    """The examples of a corpus of `OTHERS` as lines: captions, labels and texts separated by a tab, or texts."""
    from regard.corpora import reviews, shapes, tales

    if name == "shapes":
        return (shapes.scene(number, seed).caption for number in range(size))
    if name == "reviews":
        return (f"{review.label}\t{review.text}" for review in reviews.generate(size, seed))
    return (tale.text for tale in tales.generate(size, seed))


def _write_shapes(out: Path, size: int, seed: int) -> Path:
    from regard.corpora.shapes import draw_scene, scene
    from regard.data.images import encode_png
    from regard.sealed import fill_folder

    def files() -> Iterator[tuple[str, bytes]]:
        for number in range(size):
            shown = scene(number, seed)
            yield f"{number:06}.png", encode_png(draw_scene(shown))
            yield f"{number:06}.txt", f"{shown.caption}\n".encode()

    if out.exists():
        same = out.is_dir() and len(list(out.iterdir())) == 2 * size
        if not same or any(not (out / name).is_file() or (out / name).read_bytes() != data for name, data in files()):
            raise DataError(f"{out} exists already and holds something else; pass another --out, or delete it.")
        return out
    with fill_folder(out) as folder:
        for name, content in files():
            (folder / name).write_bytes(content)
    return out


def _write(files: Mapping[str, Iterable[str]], overwrite: bool) -> list[Path]:
    """Write lines to files. If one of them exists with other lines and may not be overwritten, nothing is written."""
    from regard.sealed import write_output

    contents = {Path(name): "".join(f"{line}\n" for line in lines).encode() for name, lines in files.items()}
    for path, content in contents.items():
        check_out(path, overwrite or (path.is_file() and path.read_bytes() == content))
    return [write_output(path, content) for path, content in contents.items()]


class Other(NamedTuple):
    """A corpus that does not consist of sentence pairs."""

    meaning: str
    model: str  # an example of a model for it
    noun: str  # what an example is
    ending: str  # of the file of texts; empty for pictures


OTHERS = {
    "shapes": Other("drawn pictures of coloured shapes with captions, for `captioner`",
                    "captioner", "picture", ""),
    "reviews": Other("film reviews in which a few sentences decide the label, for `document`",
                     "document", "document", ".tsv"),
    "tales": Other("short texts whose last word depends on their first words, for language models",
                   "attentive-lm", "line", ".txt"),
}  # fmt: skip
