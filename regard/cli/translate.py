"""regard translate"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import regard
from regard.cli.options import Beam, Device, Engine, Overwrite, Shards, With, add_options, with_on
from regard.cli.progress import bar
from regard.cli.text import (
    WORDS_SHOWN,
    batches,
    check_out,
    is_setting,
    is_text,
    load,
    note_unknown,
    put,
    put_json,
    sections_of,
    watch,
)  # fmt: skip
from regard.errors import ConfigError, DataError, check_file, counted
from regard.text.lines import REPLACED, Reading

if TYPE_CHECKING:
    from regard.evaluate.confidence import Trust

DEFAULT = "en-fr"  # the model for a sentence without the name of a run


@dataclass(frozen=True)
class Search:
    """How a translation is found, and by which models."""

    beam: Beam = None
    nbest: Annotated[
        int | None,
        Option(
            help="Candidates per line (default: 1), tab-separated with their scores: distinct texts, at most --beam."
        ),
    ] = None
    temperature: Annotated[float | None, Option(help="Above 0: sample instead of searching.")] = None
    with_run: With = None
    max_tokens: Annotated[int, Option(min=1, help="Longest line to translate, in tokens.")] = 4096


@dataclass(frozen=True)
class Trusted:
    """How far a translation is to be trusted."""

    confidence: Annotated[
        bool,
        Option("--confidence", help="Calibrated confidence (0 to 1), tab, translation; words with --json; XLIFF too."),
    ] = False
    min_confidence: Annotated[
        float | None,
        Option(help="Leave a line below this confidence (0 to 1) empty; in PO and XLIFF files, mark it for review."),
    ] = None


@dataclass(frozen=True)
class Terms:
    """Words whose translation is known."""

    terms: Annotated[Path | None, Option(help="Source words, tab, the words that they must become.")] = None
    lexicon: Annotated[Path | None, Option(help="File of the same format: replacements of copied unknown words.")] = (
        None
    )
    unknown: Annotated[
        str | None, Option(help="Unknown words of the translation: copy from the source (default), or keep.")
    ] = None

    def check(self, runs: Sequence[str | Path]) -> None:
        """Refuse to copy unknown words with a model without attention or an ensemble, and terms for two models."""
        from regard.runs.included import find_pivot

        if find_pivot(runs[0]) and (self.terms or self.lexicon):
            raise ConfigError(
                f"Terms are for one model, and {runs[0]} is translated through English with two; leave them out."
            )
        if find_pivot(runs[0]) or (self.unknown != "copy" and self.lexicon is None):
            return  # they are copied where that is possible
        if runs[1:]:
            raise ConfigError(
                "An ensemble cannot copy unknown words; leave out --unknown copy and --lexicon, or --with."
            )
        from regard.api.aligning import check_attends  # with all of regard.look, which a translation does not need

        check_attends(runs[0])

    def read(self) -> dict[str, Any]:
        """The options of `Translator.translate`."""
        from regard.api.terms import read_terms

        lexicon = dict(read_terms(self.lexicon)) if self.lexicon else None
        return {
            "unknown": self.unknown or "copy",
            "terms": read_terms(self.terms) if self.terms else None,
            "lexicon": lexicon,
        }


@dataclass(frozen=True)
class Tables:
    """Options of translation in shards."""

    column: Annotated[
        str, Option(callback=with_on, help="With --on: number (TSV) or name (JSONL, Parquet) of a column.")
    ] = ""
    align: Annotated[
        bool, Option("--align", callback=with_on, help="With --on and --format jsonl or parquet: links of words.")
    ] = False
    form: Annotated[str, Option("--format", callback=with_on, help="With --on: text, jsonl or parquet.")] = "text"


def translate(
    arguments: Annotated[
        list[str],
        Argument(
            metavar="[RUN] [FILE | SENTENCE] [decode.key=value ...]",
            help="Run folder or model (default for a sentence: en-fr), file or sentence (default: stdin), "
            "settings of decoding, and data.max_line, data.max_unpacked (bytes) or data.invalid=replace.",
        ),
    ],
    *,
    search: Search,
    as_json: Annotated[bool, Option("--json", help="One JSON object per line, with scores and tokens.")] = False,
    out: Annotated[Path | None, Option("--out", "-o", help="Write a file of the same format, or TMX.")] = None,
    overwrite: Overwrite = False,
    no_fuzzy: Annotated[
        bool, Option("--no-fuzzy", help="With --out: do not mark translations in PO and XLIFF files for review.")
    ] = False,
    words: Terms,
    trust: Trusted,
    device: Device = "auto",
    engine: Engine = "regard",
    shards: Shards,
    tables: Tables,
) -> None:
    """Translate a file, a sentence, or standard input: line n of the output is line n of the input.

    With --out, the extension of the file is its format: only the text is translated, everything else is kept byte for
    byte, and inline tags and placeholders are placed by attention. Units of PO and XLIFF files that have a translation
    are kept; new ones are marked as fuzzy or for review, unless there is --no-fuzzy.

    With --on, files and patterns ('in/*.txt.gz') are translated into the folder --out, every line exactly once; after a
    crash, repeat the command to do the rest.

    A pair of languages without a model, such as fr-de, is translated through English, if fr-en and en-de are included
    or are runs in the current folder or in runs.

    An argument that is not an existing file and does not look like a file name is translated as a text. Every line is
    translated sentence by sentence; problems are reported on standard error. A line longer than --max-tokens gives an
    empty line, and the exit code is 2. The confidence of a line is that of its least certain sentence.
    """
    from regard.config import read
    from regard.evaluate.confidence import Trust
    from regard.runs.included import FOLDERS, find_pivot, find_run

    wanted = Trust(**vars(trust))
    settings = sections_of(filter(is_setting, arguments), *(() if shards.on else ("data",)))
    names = [argument for argument in arguments if not is_setting(argument)]
    searching = {"beam": search.beam, "nbest": search.nbest, "temperature": search.temperature}
    options = {"nbest": 1, **add_options(settings["decode"], **searching)}
    alone = names[0] if len(names) == 1 and is_text(names[0]) and names[0] not in FOLDERS else ""
    if " " in alone or (alone and not find_pivot(alone) and not find_run(alone).exists()):  # neither a file nor a run
        names.insert(0, DEFAULT)
    runs: list[str | Path] = [*names[:1], *(search.with_run or [])]
    if shards.on:
        if options.pop("nbest") != 1 or as_json:
            raise ConfigError("--on writes one translation for each line; leave --nbest out, and use --format jsonl.")
        options |= {"max_tokens": search.max_tokens, "device": device, "engine": engine, **vars(shards), **vars(trust)}
        options |= {"column": tables.column, "align": tables.align, "format": tables.form}
        return write_corpus(runs, names[1:], out, words, options)
    if not 1 <= len(names) <= 2:
        raise ConfigError(
            f"translate takes a run and at most one file or sentence; got {' '.join(names)!r}. Put a sentence in "
            "quotes; for an ensemble use --with."
        )
    text = names[1] if len(names) == 2 and names[1] != "-" else None
    reading = read(Reading, settings["data"], "data")
    if text is not None and not text.strip():
        raise ConfigError("There is nothing to translate in an empty text; pass at least one word, or a file.")
    sentence = text is not None and is_text(text)
    check_out(out, overwrite, text)
    words.check(runs)
    translator = load(runs, device, engine=engine)
    translator.settings(**options)  # refuses invalid settings before anything is read
    if wanted.wanted:
        translator.check_calibrated()
    options |= words.read() | {"confidence": wanted.wanted}
    if out:
        if text is None or sentence or as_json or options["nbest"] != 1:
            example = "regard translate RUN FILE --out FILE"
            raise ConfigError(f"--out is for the translation of a file, without --json and --nbest: {example}.")
        return write_translated(translator, Path(text), out, {**options, "fuzzy": not no_fuzzy, **vars(trust)})
    if text is not None and not sentence:
        check_file(text)
        check_no_markup(Path(text), names[0])
    lines = [[text or ""]] if sentence else batches(Path(text) if text else None, reading)
    nbest = 0 if options.get("temperature") else options["nbest"]  # samples may be equal
    notes = Notes(translator, search.max_tokens, nbest, reading.invalid == "replace", wanted)
    print_lines(translator, lines, {"max_tokens": search.max_tokens, **options}, notes, as_json, trust.confidence)


def print_lines(
    translator: "regard.Translator",
    lines: Iterable[list[str]],
    options: dict[str, Any],
    notes: "Notes",
    as_json: bool,
    confidence: bool,
) -> None:
    """Translate lines as they arrive: one output line for each, and notes on standard error."""
    done = 0
    with bar("translating", printing=True) as progress:
        for batch in lines:
            found = translator.translate(batch, **options, progress=lambda n, _, done=done: progress(done + n, None))
            for line, translation in zip(batch, found, strict=True):
                done += 1
                notes.add(done, line, translation)
                sure = translation.confidence
                text = "" if notes.trust.doubts(sure) else translation.text
                if as_json:
                    marks = {name: getattr(translation, name) for name in ("unknown", "flags", "unplaced")}
                    marks |= {"confidence": sure and asdict(sure)} if options["confidence"] else {}
                    put_json({"source": line, "translation": text, **details(translation), **marks})
                elif options["nbest"] == 1:
                    put((f"{sure.sentence:.3f}\t" if sure else "\t") * confidence + text)
                else:
                    put("\t".join(row(candidate, confidence, notes) for candidate in translation.nbest))
            sys.stdout.flush()
    notes.conclude(done)


def row(candidate: Any, confidence: bool, notes: "Notes") -> str:
    """A candidate with its score, and with its confidence where that is wanted."""
    sure = f"{candidate.confidence.sentence:.3f}\t" if confidence and candidate.confidence else ""
    return f"{candidate.score:.4f}\t{sure}{'' if notes.trust.doubts(candidate.confidence) else candidate.text}"


def check_no_markup(file: Path, run: str, more: str = "") -> None:
    """Refuse a document whose markup would be translated as text; `more` follows --out in the sentence."""
    from regard.files.document import format_of

    if not more and file.suffix == ".jsonl":
        raise ConfigError(
            f"{file.name} has JSON objects, not lines of text; name their text, as in regard translate {run} {file} "
            "--on local --column text --out FOLDER."
        )
    form = format_of(str(file))
    if form is not None and form.markup:
        raise ConfigError(
            f"{file.name} is {form.name}, whose markup is not text: write the translated file with --out{more}, "
            f"as in regard translate {run} {file} --out translated{file.suffix}."
        )


def write_corpus(
    runs: Sequence[str | Path], inputs: list[str], out: Path | None, words: Terms, options: dict[str, Any]
) -> None:
    """Translate files of any size into a folder."""
    from regard.api.corpus import translate_corpus
    from regard.runs.included import find_pivot

    if runs and find_pivot(runs[0]):
        raise ConfigError(f"--on takes a model, and {runs[0]} has none; translate in two steps, through English.")
    if runs:
        words.check(runs)
    given = {name: value for name, value in (options | words.read()).items() if value is not None}
    if not inputs or out is None:
        raise ConfigError(
            "--on takes files and a folder for the results: regard translate RUN FILES --out DIR --on local."
        )
    for file in inputs:
        check_no_markup(Path(file), str(runs[0]), " and without --on")
    found = watch("translating", out, partial(translate_corpus, runs, inputs, out, **given))
    if found.doubted is not None:
        note_doubts(found.doubted, found.lines, "lines", given["min_confidence"])


def write_translated(translator: "regard.Translator", file: Path, out: Path, options: dict[str, Any]) -> None:
    """Translate a file into another one, and report problems."""
    from regard.api.files import translate_file

    with bar("translating") as progress:
        found = translate_file(translator, file, out, progress, **options)
    typer.echo(
        f"{out}: {counted(found.segments, 'segment')}, {counted(found.sentences, 'sentence')} translated", err=True
    )
    if options["min_confidence"] is not None:
        note_doubts(found.doubted, found.segments, "segments", options["min_confidence"], "")
    if not found.segments:
        typer.echo(f"no text was found in {file}; check that it is what its ending says", err=True)
    for note, count in found.notes.items():
        typer.echo(f"{count} of the sentences: {note}", err=True)
    for term in found.unplaced:
        typer.echo(f"the term {term} could not be placed", err=True)


class Notes:
    """Reports problems with the translations of lines on standard error, at once or at the end."""

    AT_ONCE = ("language", "cut", "number", "loop", "copy", "empty")

    def __init__(
        self,
        translator: "regard.Translator",
        max_tokens: int,
        nbest: int,
        replaces: bool,
        trust: "Trust",
    ) -> None:
        self.translator, self.max_tokens, self.nbest = translator, max_tokens, nbest
        self.trust, self.withheld = trust, 0  # lines that are left empty
        self.replaces = replaces  # whether bytes that are not UTF-8 become U+FFFD
        self.unknown = self.too_long = self.fewer = self.replaced = 0
        self.lowered = False
        self.first: dict[str, int] = {}  # an unknown word -> its first line; one more than is printed

    def add(self, number: int, line: str, found: Any) -> None:
        """Report the problems of the translation of line `number`, and count those that are reported at the end."""
        notes = [note for flag, note in found.noted.items() if flag in self.AT_ONCE]
        notes += [f"the term {term} could not be placed" for term in found.unplaced]
        if found.finished == "too long":
            self.too_long += 1
            length = self.translator.too_long(line, self.max_tokens)
            notes = [f"not translated; {length} exceed the limit of {counted(self.max_tokens, 'token')}"]
        elif found.finished not in ("end", "empty"):
            notes.insert(0, f"the translation did not end by itself ({found.finished})")
        for note in notes:
            typer.echo(f"line {number}: {note}", err=True)
        self.withheld += self.trust.doubts(found.confidence)
        self.fewer += len(found.nbest) < self.nbest and found.finished not in ("empty", "too long")
        self.replaced += self.replaces and REPLACED in line
        self.lowered = self.lowered or "lower-cased" in found.flags
        self.unknown += len(found.unknown)
        for word in found.unknown:
            if word not in self.first and len(self.first) <= WORDS_SHOWN:
                self.first[word] = number

    def conclude(self, lines: int) -> None:
        """Report what concerns all lines; raise an error if some were too long."""
        from regard.api.flags import NOTES
        from regard.text.visible import label

        listed = [f"{label(word)} (line {number})" for word, number in self.first.items()]
        note_unknown(self.unknown, "input", listed, self.translator.source_vocabulary.kind)
        if self.replaced:
            typer.echo(f"{counted(self.replaced, 'line')} with U+FFFD in place of bytes that were not UTF-8", err=True)
        if self.fewer:
            note = f"fewer than {self.nbest} candidates, as equal texts count once: {self.fewer} of {lines} lines"
            typer.echo(f"{note}; a wider --beam may find more", err=True)
        if self.lowered:
            typer.echo(NOTES["lower-cased"], err=True)
        if self.trust.min_confidence is not None:
            note_doubts(self.withheld, lines, "lines", self.trust.min_confidence)
        if self.too_long:
            raise DataError(
                f"Lines of more than {counted(self.max_tokens, 'token')} were left empty, {self.too_long} of {lines}; "
                f"split them into sentences, or pass a larger --max-tokens."
            )


def note_doubts(count: int, total: int, what: str, least: float, how: str = "left empty, ") -> None:
    """Say how many translations had too little confidence."""
    typer.echo(f"{how}with a confidence below {least:g}: {count} of {total} {what}", err=True)


def details(found: Any) -> dict[str, Any]:
    """The log-probabilities of a translation or a caption, for JSON."""
    names = ("score", "logprob", "finished", "tokens", "token_logprobs")
    nbest = [{"text": candidate.text, "score": candidate.score} for candidate in found.nbest]
    return {**{name: getattr(found, name) for name in names}, "nbest": nbest}
