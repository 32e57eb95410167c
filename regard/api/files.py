"""Translate files of any format of `regard.files`, and write TMX from any of them."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.api.drafts import least
from regard.api.translator import Translator
from regard.data.tmx import write_memory
from regard.errors import ConfigError, DataError
from regard.evaluate.confidence import Trust
from regard.files.document import LARGEST, find_format, open_document
from regard.files.place import place_tags, spell
from regard.files.segment import Review, Segment, Sentence, Sentences
from regard.sealed import write_output
from regard.text.lines import check_not_input, language_of, read_whole
from regard.work import Progress

LINE = 2000  # characters; a longer sentence is translated in parts
AT_ONCE = 4096  # parts of a file in memory; all of them can take many times the memory of the file


class FileReport(NamedTuple):
    """The result of translating a file."""

    segments: int
    sentences: int
    notes: dict[str, int]  # what is wrong, in words -> number of sentences
    unplaced: list[str]  # terms that could not be placed
    doubted: int = 0  # segments with a smaller confidence than `min_confidence`


def translate_file(
    translator: Translator,
    file: Path | str,
    out: Path | str,
    progress: Progress | None = None,
    fuzzy: bool = True,
    confidence: bool = False,
    min_confidence: float | None = None,
    **options: Any,
) -> FileReport:
    """Translate a file into another one of the same format, or into a translation memory (.tmx).

    The extension is the format; if it is a language of the translator (train.en), the file is text. Everything that is
    not translated is kept byte for byte, except for the language that the file names; inline tags and placeholders are
    kept once each. With `fuzzy`, new translations in PO and XLIFF files are marked for review; with `min_confidence`,
    those with a smaller confidence are. In other formats these are not used: a line of plain text becomes empty, a
    segment of another format stays as it is, and a memory does not have it. With `confidence`, an XLIFF file has the
    confidence of each translation as its match quality. Options as for `Translator.translate`.
    """
    file, out, trust = Path(file), Path(out), Trust(confidence, min_confidence)
    check_not_input(out, file)
    if file.is_dir():
        raise DataError(f"{file} is a folder; give one file.")
    memory = out.suffix.lower() == ".tmx"
    languages = {translator.source_language, translator.target_language} - {""}
    name, result = ("text.txt" if language_of(path.name) in languages else path.name for path in (file, out))
    if not memory and find_format(name) is not find_format(result, "tmx"):
        raise DataError(
            f"{file.name} is {find_format(name).name}, and so must the output be; got {out.name}. "
            "Give it the same ending, or .tmx for a translation memory."
        )
    form = find_format(name)
    if confidence and (memory or not form.rates):
        raise ConfigError(
            f"{'A translation memory' if memory else form.name} has no place for a confidence; leave --confidence out, "
            "or pass --min-confidence. XLIFF has one."
        )
    options["confidence"] = trust.wanted
    data, reads, bilingual = read_whole(file, LARGEST), form.reads, form.pairs is not None and not memory
    # All of it is read once before anything is translated, so that an error comes at once.
    total = sum(isinstance(part, Segment) for read in reads for part in open_document(data, name, read).read())
    done = count = doubted = 0  # segments, sentences, and segments that are not trusted
    notes: Counter[str] = Counter()
    unplaced: dict[str, None] = {}
    units: list[tuple[str, str]] = []
    for read in reads:
        document, texts, size = open_document(data, name, read), list[str](), 0
        rated = list[tuple[int, float]]()  # the character at which each segment begins, and its confidence
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
            each = iter(zip(sentences.join(written), sentences.group(found), strict=True))
            written_parts = list[str]()  # joined at once: a short text takes many times its length
            for part in parts:
                text = part if isinstance(part, str) else ""
                if isinstance(part, Segment):
                    target, some = next(each)
                    sure = least([one.confidence for one in some if one.confidence])
                    rated += [(size, sure.sentence)] if sure else []
                    doubted += (doubts := trust.doubts(sure))
                    if not doubts or bilingual:
                        text = part.wrap(place_tags(part, target))
                        units += [(spell(part), spell(part, target))] if memory else []
                    else:
                        text = part.wrap(part.inner if form.markup else "")
                written_parts.append(text)
                size += len(text)
            texts.append("".join(written_parts))
            done, count = done + len(segments), count + len(found)
            notes.update(note for translation in found for note in translation.notes)
            unplaced.update(dict.fromkeys(term for translation in found for term in translation.unplaced))
        review = Review(fuzzy, min_confidence, confidence, rated)
        data = document.encode("".join(texts), translator.target_language, review)
    if memory:
        data = write_memory(units, translator.source_language, translator.target_language)
    write_output(out, data)
    return FileReport(done, count, dict(notes), list(unplaced), doubted)
