"""regard corpora"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.progress import bar
from regard.cli.text import check_out, put
from regard.errors import DataError, check_known, counted


def corpora(
    name: Annotated[str | None, Argument(help="Corpus to write to files.")] = None,
    out: Annotated[str, Option(help="Prefix of the files OUT.source, OUT.target, OUT.gold (default: NAME).")] = "",
    size: Annotated[int, Option(help="Number of sentence pairs.")] = 500,
    seed: Annotated[int, Option(help="Seed of the generator.")] = 1,
    min_words: Annotated[int, Option(help="Fewest source words.")] = 3,
    max_words: Annotated[int, Option(help="Most source words.")] = 12,
) -> None:
    """List the built-in corpora, which are generated on demand; with a name, write one to files: sentence pairs with
    gold alignments, a text (OUT.txt), labelled documents (OUT.tsv), or pictures with captions (the folder OUT)."""
    from regard.data.builtin.registry import BUILTIN, find_builtin
    from regard.data.settings import DataConfig

    if name is None:
        meanings = {known: found.meaning for known, found in BUILTIN.items()}
        meanings |= {known: meaning for known, (meaning, _) in OTHERS.items()}
        for known, meaning in meanings.items():
            put(f"{known:<14} {meaning}")
        put("\nTo train on one: regard train --corpus phrasebook --model bahdanau --preset tiny --out runs/first")
        return
    check_known("built-in corpus", name, [*BUILTIN, *OTHERS], error=DataError)
    prefix = out or name
    check_out(Path(f"{prefix}.txt" if name in OTHERS else f"{prefix}.source"))
    if name in OTHERS:
        DataConfig(size=size)  # refuses an invalid size
        with bar("generating"):
            put(f"{size} of {name}: {OTHERS[name][1](prefix, size, seed)}")
        return
    DataConfig(corpus=name, size=size, min_words=min_words, max_words=max_words)  # refuses invalid numbers
    with bar("generating"):
        examples = find_builtin(name).generate(size, seed, min_words, max_words)
    gold = (" ".join(f"{i + 1}-{j + 1}" for i, j in sorted(one.alignment)) for one in examples)
    sides = (one.source for one in examples), (one.target for one in examples)
    files = dict(zip((f"{prefix}.{ending}" for ending in ("source", "target", "gold")), (*sides, gold), strict=True))
    for path in _write(files):
        put(f"{counted(len(examples), 'line')}: {path}")


def _write_tales(out: str, size: int, seed: int) -> Path:
    from regard.data.builtin.tales import generate

    return _write({f"{out}.txt": (tale.text for tale in generate(size, seed))})[0]


def _write_reviews(out: str, size: int, seed: int) -> Path:
    from regard.data.builtin.reviews import generate

    return _write({f"{out}.tsv": (f"{review.label}\t{review.text}" for review in generate(size, seed))})[0]


def _write_shapes(out: str, size: int, seed: int) -> Path:
    from regard.data.builtin.shapes import draw_scene, scene
    from regard.data.files import fill_folder
    from regard.data.images import encode_png

    def files() -> Iterator[tuple[str, bytes]]:
        for number in range(size):
            shown = scene(number, seed)
            yield f"{number:06}.png", encode_png(draw_scene(shown))
            yield f"{number:06}.txt", f"{shown.caption}\n".encode()

    there = Path(out)
    if there.exists():
        same = there.is_dir() and len(list(there.iterdir())) == 2 * size
        if not same or any(
            not (there / name).is_file() or (there / name).read_bytes() != data for name, data in files()
        ):
            raise DataError(f"{out} exists already and holds something else; pass another --out, or delete it.")
        return there
    with fill_folder(there) as folder:
        for name, content in files():
            (folder / name).write_bytes(content)
    return there


def _write(files: Mapping[str, Iterable[str]]) -> list[Path]:
    """Write lines to files. If one is there and has other lines, nothing is written."""
    from regard.data.files import write_atomically

    contents = {Path(name): "".join(f"{line}\n" for line in lines).encode() for name, lines in files.items()}
    for path, content in contents.items():
        if path.exists() and path.read_bytes() != content:
            raise DataError(f"{path} exists already and holds something else; pass another --out, or delete it.")
    return [write_atomically(*one) for one in contents.items()]


OTHERS: dict[str, tuple[str, Callable[[str, int, int], Path]]] = {
    "shapes": ("drawn pictures of coloured shapes with captions, for `captioner`", _write_shapes),
    "reviews": ("film reviews in which a few sentences decide the label, for `document`", _write_reviews),
    "tales": ("short texts whose last word depends on their first words, for language models", _write_tales),
}
