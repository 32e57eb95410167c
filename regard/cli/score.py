"""regard score, compare, perplexity"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import regard
from regard.cli.options import AsJson, Beam, Device, Run, SourceFile, TargetFile, TextFile, Tmx, Tsv, With, run_folder
from regard.cli.progress import bar
from regard.cli.text import check_out, lines_of, pairs_of, put, put_json, put_note
from regard.errors import ConfigError

Lowercase = Annotated[bool, typer.Option(help="Ignore case.")]
Tokenize = Annotated[str | None, typer.Option(help="sacreBLEU tokeniser for BLEU (13a, none, intl, ...).")]
Plot = Annotated[Path | None, typer.Option(help="Plot the score by source length: PNG, SVG or PDF.")]


def score(
    run: Run,
    source: SourceFile = None,
    target: TargetFile = None,
    tsv: Tsv = None,
    tmx: Tmx = None,
    with_run: With = None,
    images: Annotated[Path | None, typer.Option(help="For a captioner: folder or tar file of pictures.")] = None,
    captions: Annotated[
        Path | None, typer.Option(help="Their captions as JSON lines (default: NAME.txt beside each picture).")
    ] = None,
    documents: Annotated[Path | None, typer.Option(help="For a classifier: labelled documents, JSONL or TSV.")] = None,
    bag_of_words: Annotated[
        bool, typer.Option("--bag-of-words", help="Also score a linear classifier of words and word pairs.")
    ] = False,
    by_length: Annotated[bool, typer.Option("--by-length", help="Also print a table by source length.")] = False,
    plot: Plot = None,
    beam: Beam = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    with_perplexity: Annotated[bool, typer.Option("--perplexity", help="Also score the references.")] = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Score a run on a test set: translations with BLEU, chrF and TER and their sacreBLEU signatures, captions with
    BLEU-1 to BLEU-4, documents with accuracy. For language models use `regard perplexity`."""
    from regard.evaluate.by_length import by_length as table_by_length
    from regard.evaluate.by_length import plot_by_length

    if images is not None:
        return _score_captions(run, images, captions, beam, device, as_json)
    if documents is not None:
        return _score_documents(run, documents, bag_of_words, device, as_json)
    if (source is None or target is None) and tsv is None and tmx is None:
        raise ConfigError(
            "Nothing to score: pass --source and --target, --tsv, --tmx, --images and --captions, or --documents."
        )
    _check(plot, tokenize)
    sources, references = pairs_of(run, source, target, tsv, tmx)
    translator = regard.load([run, *(with_run or [])], device)
    written, report = _scored(translator, sources, references, beam, lowercase, tokenize)
    found: dict[str, Any] = {"run": translator.name, **asdict(report)}
    say = _say(as_json)
    say(str(report))
    if with_perplexity:
        with bar("scoring the references") as progress:
            found["perplexity"] = translator.perplexity(sources, references, progress)
        say(f"perplexity {found['perplexity']:.3f} per token")
    if by_length or plot:
        table = table_by_length(sources, written, references, lowercase=lowercase, tokenize=tokenize)
        found["by_length"] = asdict(table)
        say(str(table))
    if as_json:
        put_json(found)
    if plot:
        put_note(f"drawn: {plot_by_length({translator.name: table}, plot)}", as_json)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", parser=run_folder, help="Two or more run folders or models.")
    ],
    source: SourceFile = None,
    target: TargetFile = None,
    tsv: Tsv = None,
    tmx: Tmx = None,
    plot: Plot = None,
    beam: Beam = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    by_seed: Annotated[
        bool, typer.Option("--by-seed", help="Runs that differ in train.seed alone are one group; compare the groups.")
    ] = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Score several runs on one test set, with a paired bootstrap against the first and a table by source length.

    With --by-seed: mean and spread of each group, and the best against each other, over sentences and seeds.
    """
    from regard.evaluate.by_length import by_length as table_by_length
    from regard.evaluate.by_length import plot_by_length
    from regard.evaluate.significance import paired_bootstrap

    if len({run.resolve() for run in runs}) < max(2, len(runs)):
        raise ConfigError("compare needs at least two different runs; use `regard score` for one.")
    _check(plot, tokenize)
    sources, references = pairs_of(runs[0], source, target, tsv, tmx)
    if by_seed:
        return _compare_groups(runs, sources, references, plot, beam, lowercase, tokenize, as_json, device)
    translators = [regard.load(run, device, "translate") for run in runs]
    shared = len({translator.name for translator in translators}) < len(runs)
    names = [str(run) if shared else translator.name for run, translator in zip(runs, translators, strict=True)]
    systems: dict[str, list[str]] = {}
    reports: dict[str, Any] = {}
    say = _say(as_json)
    for name, translator in zip(names, translators, strict=True):
        systems[name], reports[name] = _scored(translator, sources, references, beam, lowercase, tokenize)
        say(f"{name}\n{reports[name]}\n")
    (first, baseline), *others = systems.items()
    comparisons: list[dict[str, Any]] = []
    for name, written in others:
        with bar("resampling") as progress:
            result = paired_bootstrap(
                written, baseline, references, lowercase=lowercase, tokenize=tokenize, progress=progress
            )
        comparisons.append({"run": name, "against": first, **asdict(result)})
        say(f"{name} against {first}: {result}")
    tables = {
        name: table_by_length(sources, written, references, lowercase=lowercase, tokenize=tokenize)
        for name, written in systems.items()
    }
    if as_json:
        rows = [{"run": name, **asdict(reports[name]), "by_length": asdict(tables[name])} for name in names]
        put_json({"systems": rows, "comparisons": comparisons})
    for name, table in tables.items():
        say(f"\n{name}\n{table}")
    if plot:
        say("")
        put_note(f"drawn: {plot_by_length(tables, plot)}", as_json)


def _compare_groups(
    runs: list[Path], sources: list[str], references: list[str], plot: Path | None, beam: int | None, lowercase: bool,
    tokenize: str | None, as_json: bool, device: str,
) -> None:  # fmt: skip
    from regard.api.sweeping import group_by_seed, training_seconds
    from regard.evaluate.groups import System, compare_groups, plot_groups

    groups: dict[str, dict[int, System]] = {}
    for name, seeds in group_by_seed(runs).items():
        for seed, run in sorted(seeds.items()):
            translator = regard.load(run, device, "translate")
            written, _ = _scored(translator, sources, references, beam, lowercase, tokenize)
            parameters = sum(weight.numel() for weight in translator.model.parameters())
            groups.setdefault(name, {})[seed] = System(written, parameters, training_seconds(run))
    with bar("resampling") as progress:
        table = compare_groups(groups, references, lowercase, tokenize, progress=progress)
    if as_json:
        put_json(table.as_data())
    else:
        put(str(table))
    if plot:
        put_note(f"drawn: {plot_groups(table, plot)}", as_json)


def _score_captions(
    run: Path, images: Path, captions: Path | None, beam: int | None, device: str, as_json: bool
) -> None:

    writer = regard.load(run, device, "caption")
    with bar("captioning") as progress:
        found = writer.score(str(images), str(captions or ""), beam=beam, progress=progress)
    if as_json:
        put_json({"run": writer.name, **found._asdict()})
    else:
        put(str(found))


def _score_documents(run: Path, documents: Path, bag_of_words: bool, device: str, as_json: bool) -> None:

    classifier = regard.load(run, device, "classify")
    with bar("classifying") as progress:
        score = classifier.score(documents, progress=progress)
    say = _say(as_json)
    say(str(score))
    found: dict[str, Any] = {"run": classifier.name, **score._asdict()}
    if bag_of_words:
        with bar("fitting the baseline"):
            linear = classifier.score_bag_of_words(documents)
        found["bag_of_words"] = linear._asdict()
        say(f"\nA linear classifier of words and word pairs: {linear}")
    if as_json:
        put_json(found)


def perplexity(run: Run, file: TextFile = None, as_json: AsJson = False, device: Device = "auto") -> None:
    """Print the perplexity of a text under a language model; the end of a line is a token."""

    writer = regard.load(run, device, "language")
    with bar("reading") as progress:
        value, tokens = writer.perplexity(lines_of(file), progress)
    if as_json:  # perplexities are comparable only with the same tokens, so the vocabulary comes along
        kind = {"subwords": writer.vocabulary.kind, "vocabulary": len(writer.vocabulary)}
        put_json({"run": writer.name, "perplexity": value, "tokens": tokens, **kind})
    else:
        put(f"perplexity {value:.3f} per token, {tokens} tokens")


def _say(as_json: bool) -> Callable[[str], None]:
    """Print a line at once, or nothing where the results are one JSON object at the end."""
    return (lambda line: None) if as_json else put


def _check(plot: Path | None, tokenize: str | None) -> None:
    """Refuse invalid options before anything is translated."""
    from regard.evaluate.by_length import check_plot
    from regard.evaluate.scores import build_metric

    build_metric("bleu", tokenize=tokenize)
    if plot:
        check_plot(plot)
        check_out(plot)


def _scored(
    translator: "regard.Translator",
    sources: list[str],
    references: list[str],
    beam: int | None,
    lowercase: bool,
    tokenize: str | None,
) -> tuple[list[str], Any]:
    """The translations of a test set, and their scores."""
    from regard.evaluate.scores import score as measure

    with bar(f"translating with {translator.name}") as progress:
        written = [one.text for one in translator.translate(sources, beam=beam, split=False, progress=progress)]
    with bar("scoring"):
        return written, measure(written, references, lowercase=lowercase, tokenize=tokenize)
