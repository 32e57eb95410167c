"""regard score, compare, perplexity"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import regard
from regard.cli.options import AsJson, Beam, Device, Overwrite, Pairs, Run, TextFile, With, add_options, run_folder
from regard.cli.progress import bar
from regard.cli.text import (
    check_out,
    check_settings,
    check_text_file,
    lines_of,
    load,
    pairs_of,
    put,
    put_json,
    put_note,
    put_result,
    sections_of,
)  # fmt: skip
from regard.errors import ConfigError, counted


@dataclass(frozen=True)
class Scoring:
    """How translations are made and scored."""

    by_length: Annotated[bool, Option("--by-length", help="Also print a table by source length.")] = False
    plot: Annotated[Path | None, Option(help="Plot the score by source length: PNG, SVG or PDF.")] = None
    overwrite: Overwrite = False
    beam: Beam = None
    lowercase: Annotated[bool, Option(help="Ignore case.")] = False
    tokenize: Annotated[str | None, Option(help="sacreBLEU tokeniser for BLEU (13a, none, intl, ...).")] = None
    ter: Annotated[bool | None, Option(help="Compute TER (default: unless it takes more than about a minute).")] = None

    @property
    def measured(self) -> dict[str, Any]:
        """The options of `regard.evaluate`."""
        return {"lowercase": self.lowercase, "tokenize": self.tokenize}

    def check(self) -> None:
        """Refuse invalid options before anything is translated."""
        from regard.evaluate.by_length import check_plot
        from regard.evaluate.scores import build_metric

        build_metric("bleu", tokenize=self.tokenize)
        if self.plot:
            check_plot(self.plot)
            check_out(self.plot, self.overwrite)

    def metrics(self, references: list[str]) -> list[str]:
        """All metrics, or all but TER, with a note if it is left out because it takes long."""
        from regard.evaluate.scores import METRICS, ter_takes_long

        long = self.ter is None and ter_takes_long(references)
        if long:
            typer.echo("TER is left out: it would take minutes. Pass --ter to compute it.", err=True)
        return [name for name in METRICS if name != "ter" or not (long or self.ter is False)]

    def translate(
        self,
        translator: "regard.Translator",
        sources: list[str],
        references: list[str],
        metrics: list[str],
        **decoding: Any,
    ) -> tuple[list[str], Any]:
        """The translations of a test set, and their scores."""
        from regard.evaluate.scores import score

        options = add_options(decoding, beam=self.beam)
        translator.settings(**options)  # refuses invalid settings before anything is translated
        with bar(f"translating with {translator.name}") as progress:
            found = translator.translate(sources, split=False, progress=progress, **options)
        empty = sum("empty" in translation.flags for translation in found)
        if empty:
            typer.echo(f"empty translations of {translator.name}: {empty} of {len(found)}", err=True)
        written = [translation.text for translation in found]
        with bar("scoring"):
            return written, score(written, references, metrics=metrics, **self.measured)


@dataclass(frozen=True)
class Pictures:
    """The test set of a captioner."""

    images: Annotated[Path | None, Option(help="For a captioner: folder or tar file of pictures.")] = None
    captions: Annotated[Path | None, Option(help="Their captions, JSON lines (default: NAME.txt for each).")] = None

    def score(self, run: Path, beam: int | None, device: str) -> tuple[Any, dict[str, Any]]:
        """What to print, and the same for JSON."""
        writer = load(run, device, "caption")
        with bar("captioning") as progress:
            found = writer.score(str(self.images), str(self.captions or ""), beam=beam, progress=progress)
        return found, {"run": writer.name, **found._asdict()}


@dataclass(frozen=True)
class Documents:
    """The test set of a classifier."""

    documents: Annotated[Path | None, Option(help="For a classifier: labelled documents, JSONL or TSV.")] = None
    bag_of_words: Annotated[bool, Option("--bag-of-words", help="Also score a bag-of-words classifier.")] = False

    def score(self, run: Path, device: str) -> tuple[Any, dict[str, Any]]:
        """What to print, and the same for JSON."""
        classifier = load(run, device, "classify")
        with bar("classifying") as progress:
            score = classifier.score(self.documents, progress=progress)
        text, found = str(score), {"run": classifier.name, **score._asdict()}
        if self.bag_of_words:
            with bar("fitting the baseline"):
                linear = classifier.score_bag_of_words(self.documents)
            found["bag_of_words"] = linear._asdict()
            text += f"\n\nA linear classifier of words and word pairs: {linear}"
        return text, found


def score(
    run: Run,
    settings: Annotated[
        list[str] | None, Argument(metavar="[decode.key=value ...]", help="Decoding settings, for translators.")
    ] = None,
    *,
    pairs: Pairs,
    with_run: With = None,
    pictures: Pictures,
    labelled: Documents,
    how: Scoring,
    with_perplexity: Annotated[bool, Option("--perplexity", help="Also score the references.")] = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Score a run on a test set: translations with BLEU, chrF and TER and their sacreBLEU signatures, captions with
    BLEU-1 to BLEU-4, documents with accuracy. For language models use `regard perplexity`."""
    from regard.evaluate import by_length as lengths

    check_settings(settings or [])
    decoding = sections_of(settings or [])["decode"]
    if decoding and (pictures.images or labelled.documents):
        raise ConfigError("Decoding settings are for translators; leave them out.")
    if pictures.images is not None:
        return put_result(*pictures.score(run, how.beam, device), as_json)
    if labelled.documents is not None:
        return put_result(*labelled.score(run, device), as_json)
    if not (pairs.source and pairs.target) and not pairs.tsv and not pairs.tmx:
        lone = f"{'--target' if pairs.source else '--source'} is missing" if pairs.source or pairs.target else ""
        wanted = "pass --source and --target, --tsv, --tmx, --images and --captions, or --documents"
        raise ConfigError(f"{lone or 'Nothing to score'}: {wanted}.")
    how.check()
    sources, references = _test_set(run, pairs)
    translator = load([run, *(with_run or [])], device)
    written, report = how.translate(translator, sources, references, how.metrics(references), **decoding)
    found, texts = {"run": translator.name, **asdict(report)}, [str(report)]
    if with_perplexity:
        with bar("scoring the references") as progress:
            found["perplexity"] = translator.perplexity(sources, references, progress)
        texts.append(f"perplexity {found['perplexity']:.3f} per token")
    if how.by_length or how.plot:
        table = lengths.by_length(sources, written, references, **how.measured)
        found["by_length"] = asdict(table)
        texts.append(str(table))
    put_result("\n".join(texts), found, as_json)
    if how.plot:
        put_note(f"drawn: {lengths.plot_by_length({translator.name: table}, how.plot)}", as_json)


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", parser=run_folder, help="Two or more runs or models.")],
    *,
    pairs: Pairs,
    how: Scoring,
    by_seed: Annotated[bool, Option("--by-seed", help="Compare groups of runs that differ in the seed alone.")] = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Score several runs on one test set, with a paired bootstrap against the first.

    With --by-seed: mean and spread of each group, and the best against each other, over sentences and seeds.
    """
    if len({run.resolve() for run in runs}) < max(2, len(runs)):
        raise ConfigError("compare needs at least two different runs; use `regard score` for one.")
    how.check()
    if by_seed and (how.ter or how.by_length):
        raise ConfigError(f"--by-seed compares groups by BLEU alone; leave --{'ter' if how.ter else 'by-length'} out.")
    sources, references = _test_set(runs[0], pairs)
    comparing = _compare_groups if by_seed else _compare_runs
    comparing(runs, sources, references, how, as_json, device)


def _test_set(run: Path, pairs: Pairs) -> tuple[list[str], list[str]]:
    """The pairs, with a note of how many have a blank side."""
    from regard.text.lines import is_blank

    sources, references = pairs_of(run, pairs)
    blank = sum(map(lambda *pair: any(map(is_blank, pair)), sources, references))
    if blank:
        note = f"pairs with a blank source or reference: {blank} of {len(sources)}"
        typer.echo(f"{note}; they are scored like the others", err=True)
    return sources, references


def _compare_runs(
    runs: list[Path], sources: list[str], references: list[str], how: Scoring, as_json: bool, device: str
) -> None:
    from regard.api.loading import check_direction
    from regard.evaluate import by_length as lengths
    from regard.evaluate.significance import group_bootstrap

    translators = [load(run, device, "translate") for run in runs]
    for other in translators[1:]:
        check_direction(translators[0], other)
    shared = len({translator.name for translator in translators}) < len(runs)
    names = [str(run) if shared else translator.name for run, translator in zip(runs, translators, strict=True)]
    metrics = how.metrics(references)
    say = (lambda line: None) if as_json else put  # as soon as known; JSON is one object at the end
    systems: dict[str, list[str]] = {}
    rows: dict[str, dict[str, Any]] = {}
    tables: dict[str, Any] = {}
    for name, translator in zip(names, translators, strict=True):
        systems[name], report = how.translate(translator, sources, references, metrics)
        rows[name] = {"run": name, **asdict(report)}
        if how.by_length or how.plot:
            tables[name] = lengths.by_length(sources, systems[name], references, **how.measured)
            rows[name]["by_length"] = asdict(tables[name])
        say(f"{name}\n{report}\n")
    first, *others = names
    comparisons: list[dict[str, Any]] = []
    for name in others:
        with bar("resampling") as progress:
            pair = [systems[name]], [systems[first]]
            result = group_bootstrap(*pair, references, progress=progress, **how.measured)
        comparisons.append({"run": name, "against": first, **asdict(result)})
        say(f"{name} against {first}: {result}")
    for name, table in tables.items():
        say(f"\n{name}\n{table}")
    if as_json:
        put_json({"systems": list(rows.values()), "comparisons": comparisons})
    if how.plot:
        put_note(f"drawn: {lengths.plot_by_length(tables, how.plot)}", as_json)


def _compare_groups(
    runs: list[Path], sources: list[str], references: list[str], how: Scoring, as_json: bool, device: str
) -> None:
    from regard.api.sweeping import group_by_seed, training_seconds
    from regard.evaluate.groups import System, compare_groups, plot_groups

    groups: dict[str, dict[int, System]] = {}
    for name, seeds in group_by_seed(runs).items():
        for seed, run in sorted(seeds.items()):
            translator = load(run, device, "translate")
            written, _ = how.translate(translator, sources, references, ["bleu"])
            groups.setdefault(name, {})[seed] = System(written, translator.size, training_seconds(run))
    with bar("resampling") as progress:
        table = compare_groups(groups, references, progress=progress, **how.measured)
    put_result(table, asdict(table), as_json)
    if how.plot:
        put_note(f"drawn: {plot_groups(table, how.plot)}", as_json)


def perplexity(
    run: Run,
    file: TextFile = None,
    context: Annotated[
        int | None,
        Option(min=0, help="Join the lines and read rows of this many tokens; 0: lines. Default: the run's."),
    ] = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Print the perplexity of a text under a language model; the end of a line is a token."""
    check_text_file(file, "perplexity")
    writer = load(run, device, "language")
    with bar("reading") as progress:
        value, tokens = writer.perplexity(lines_of(file), progress, context)
    # Perplexities are comparable only with the same tokens, so the vocabulary is part of the result.
    kind = {"subwords": writer.vocabulary.kind, "vocabulary": len(writer.vocabulary)}
    found = {"run": writer.name, "perplexity": value, "tokens": tokens, **kind}
    put_result(f"perplexity {value:.3f} per token, {counted(tokens, 'token')}", found, as_json)
