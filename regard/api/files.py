"""Translate files of any format of `regard.files`, and write TMX from any of them."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.api.translator import Translator
from regard.data.tmx import write_memory
from regard.errors import DataError
from regard.files.document import LARGEST, find_format, open_document
from regard.files.place import place_tags, spell
from regard.files.segment import Segment, Sentence, Sentences
from regard.sealed import write_output
from regard.text.lines import check_not_input, language_of, read_whole
from regard.work import Progress

LINE = 2000  # characters; a longer sentence is translated in parts
AT_ONCE = 4096  # parts of a file in memory; all of them can take many times the memory of the file


class FileReport(NamedTuple):
    """The result of translating a file."""

    segments: int
    sentences: int
    flags: dict[str, int]  # flag -> number of sentences
    unplaced: list[str]  # terms that could not be placed


def translate_file(
    translator: Translator,
    file: Path | str,
    out: Path | str,
    progress: Progress | None = None,
    fuzzy: bool = True,
    **options: Any,
) -> FileReport:
    """Translate a file into another one of the same format, or into a translation memory (.tmx).

    The extension is the format; if it is a language of the translator (train.en), the file is text. Everything that is
    not translated is kept byte for byte, except for the language that the file names; inline tags and placeholders are
    kept once each. With `fuzzy`, new translations in PO and XLIFF files are marked for review. Options as for
    `Translator.translate`.
    """
    file, out = Path(file), Path(out)
    check_not_input(out, file)
    memory = out.suffix.lower() == ".tmx"
    languages = {translator.source_language, translator.target_language} - {""}
    name, result = ("text.txt" if language_of(path.name) in languages else path.name for path in (file, out))
    if not memory and find_format(name) is not find_format(result, "tmx"):
        raise DataError(
            f"{file.name} is {find_format(name).name}, and so must the output be; got {out.name}. "
            "Give it the same ending, or .tmx for a translation memory."
        )
    data = read_whole(file, LARGEST)
    reads = find_format(name).reads
    # All of it is read once before anything is translated, so that an error comes at once.
    total = sum(isinstance(part, Segment) for read in reads for part in open_document(data, name, read).read())
    done = count = 0  # segments and sentences
    flags: Counter[str] = Counter()
    unplaced: dict[str, None] = {}
    units: list[tuple[str, str]] = []
    for read in reads:
        document, texts = open_document(data, name, read), list[str]()
        rest = document.read()
        while parts := list(islice(rest, AT_ONCE)):
            segments = [part for part in parts if isinstance(part, Segment)]
            sentences = Sentences(segments, LINE)

            def report(part: int, whole: int | None, done: int = done, segments: int = len(segments)) -> None:
                if progress:
                    progress(done + segments * part // (whole or 1), total)

            found = translator.translate(sentences.texts, progress=report, **options)
            written = [Sentence(translation.text) for translation in found]
            tagged = [at for at, (segment, _) in enumerate(sentences.owners) if segment.tags]  # only these need links
            both = [sentences.texts[at] for at in tagged], [found[at].text for at in tagged]
            for at, linked in zip(tagged, translator.link_words(*both, options.get("terms")), strict=True):
                written[at] = linked
            placed = list(zip(segments, sentences.join(written), strict=True))
            each = (place_tags(*pair) for pair in placed)
            texts.append("".join(part if isinstance(part, str) else part.wrap(next(each)) for part in parts))
            units += ((spell(source), spell(source, target)) for source, target in placed if memory)
            done, count = done + len(segments), count + len(found)
            flags.update(flag for translation in found for flag in translation.flags)
            unplaced.update(dict.fromkeys(term for translation in found for term in translation.unplaced))
        data = document.encode("".join(texts), translator.target_language, fuzzy)
    if memory:
        data = write_memory(units, translator.source_language, translator.target_language)
    write_output(out, data)
    return FileReport(done, count, dict(flags), list(unplaced))
