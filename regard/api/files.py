"""Translate files of any format of `regard.files`, and write TMX from any of them."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from regard.api.drafts import Translation
from regard.api.translator import Translator
from regard.data.tmx import write_memory
from regard.errors import DataError
from regard.files.document import LARGEST, find_format, read_document
from regard.files.place import place_tags, spell
from regard.files.segment import Aligned, Segment, Sentence, Sentences
from regard.sealed import write_output
from regard.text.lines import check_not_input, language_of, read_whole
from regard.work import Progress

LINE = 2000  # characters; a longer sentence is translated in parts


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
    counted: list[Translation] = []
    pairs: list[tuple[Segment, Aligned]] = []
    for read in find_format(name).reads:
        document = read_document(data, name, read)
        sentences = Sentences(document.segments, LINE)
        found = translator.translate(sentences.texts, progress=progress, **options)
        written = [Sentence(translation.text) for translation in found]
        tagged = [at for at, (segment, _) in enumerate(sentences.owners) if segment.tags]  # only these need links
        texts = [sentences.texts[at] for at in tagged], [found[at].text for at in tagged]
        for at, linked in zip(tagged, translator.link_words(*texts, options.get("terms")), strict=True):
            written[at] = linked
        placed = list(zip(document.segments, sentences.join(written), strict=True))
        counted += found
        data = document.write([place_tags(*pair) for pair in placed], translator.target_language, fuzzy)
        pairs += placed
    if memory:
        units = ((spell(source), spell(source, target)) for source, target in pairs)
        data = write_memory(units, translator.source_language, translator.target_language)
    write_output(out, data)
    flags = Counter(flag for translation in counted for flag in translation.flags)
    unplaced = list(dict.fromkeys(term for translation in counted for term in translation.unplaced))
    return FileReport(len(pairs), len(counted), dict(flags), unplaced)
