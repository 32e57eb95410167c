"""regard score, regard compare"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import regard


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("score")(score)
    app.command("compare")(compare)


Source = Annotated[Path, typer.Option(help="Source sentences, one a line.")]
Target = Annotated[Path, typer.Option(help="Reference translations, line for line.")]
Beam = Annotated[int | None, typer.Option(help="Beam width, 1 (greedy) to 1000.")]
Lowercase = Annotated[bool, typer.Option(help="Ignore letter case.")]
Tokenize = Annotated[str | None, typer.Option(help="sacreBLEU's tokeniser for BLEU (13a, none, intl, ...).")]
Plot = Annotated[Path | None, typer.Option(help="Draw the score against source length: PNG, SVG or PDF.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, numbers as they are, with the signatures.")]


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Annotated[Path | None, typer.Option(help="Source sentences, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Reference translations, line for line.")] = None,
    images: Annotated[Path | None, typer.Option(help="For a captioner: a folder or tar file of pictures.")] = None,
    captions: Annotated[
        Path | None, typer.Option(help="Their captions, JSON lines; none: NAME.txt beside each picture.")
    ] = None,
    documents: Annotated[Path | None, typer.Option(help="For a classifier: labelled documents, JSONL or TSV.")] = None,
    bag_of_words: Annotated[
        bool, typer.Option("--bag-of-words", help="Also what a linear classifier of words and pairs reaches.")
    ] = False,
    by_length: Annotated[bool, typer.Option("--by-length", help="Also a table by source length.")] = False,
    plot: Plot = None,
    beam: Beam = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    perplexity: Annotated[bool, typer.Option("--perplexity", help="Also the perplexity of the references.")] = False,
    as_json: AsJson = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
) -> None:
    """Score a run on a test set: translations by BLEU, chrF and TER with sacreBLEU's signatures, captions by BLEU-1 to
    BLEU-4, documents by accuracy. (For language models, see `regard perplexity`.)"""
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import put_json, put_note
    from regard.errors import ConfigError
    from regard.evaluate.by_length import by_length as table_by_length
    from regard.evaluate.by_length import plot_by_length
    from regard.evaluate.scores import score as measure

    if images is not None:
        return _score_captions(run, images, captions, beam, device, as_json)
    if documents is not None:
        return _score_documents(run, documents, bag_of_words, device, as_json)
    if source is None or target is None:
        raise ConfigError("Nothing to score: give --source and --target, --images and --captions, or --documents.")
    _check(plot, tokenize)
    sources, references = _pairs(source, target)
    translator = load_translator(run, device)
    written = _translate(translator, sources, beam)
    with bar("scoring"):
        report = measure(written, references, lowercase=lowercase, tokenize=tokenize)
    found: dict[str, Any] = {"run": translator.name, **asdict(report)}
    say = _say(as_json)
    say(str(report))
    if perplexity:
        with bar("reading the references") as tell:
            found["perplexity"] = translator.perplexity(sources, references, tell)
        say(f"perplexity {found['perplexity']:.3f} a token")
    if by_length or plot:
        table = table_by_length(sources, written, references, lowercase=lowercase, tokenize=tokenize)
        found["by_length"] = asdict(table)
        say(str(table))
    if as_json:
        put_json(found)
    if plot:
        put_note(f"drawn: {plot_by_length({translator.name: table}, plot)}", as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders.")],
    source: Source,
    target: Target,
    plot: Plot = None,
    beam: Beam = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    as_json: AsJson = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
) -> None:
    """Score several runs on one test set, test each against the first (paired bootstrap), and show scores by length."""
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import put_json, put_note
    from regard.errors import ConfigError
    from regard.evaluate.by_length import by_length as table_by_length
    from regard.evaluate.by_length import plot_by_length
    from regard.evaluate.scores import ScoreReport
    from regard.evaluate.scores import score as measure
    from regard.evaluate.significance import paired_bootstrap

    if len({run.resolve() for run in runs}) < max(2, len(runs)):
        raise ConfigError("compare needs at least two runs, each named once; use `regard score` for one.")
    _check(plot, tokenize)
    sources, references = _pairs(source, target)
    translators = [load_translator(run, device) for run in runs]
    shared = len({translator.name for translator in translators}) < len(runs)
    names = [str(run) if shared else translator.name for run, translator in zip(runs, translators, strict=True)]
    systems: dict[str, list[str]] = {}
    reports: dict[str, ScoreReport] = {}
    say = _say(as_json)
    for name, translator in zip(names, translators, strict=True):
        systems[name] = _translate(translator, sources, beam)
        with bar("scoring"):
            reports[name] = measure(systems[name], references, lowercase=lowercase, tokenize=tokenize)
        say(f"{name}\n{reports[name]}\n")
    (first, baseline), *others = systems.items()
    comparisons: list[dict[str, Any]] = []
    for name, written in others:
        with bar("drawing samples") as tell:
            result = paired_bootstrap(
                written, baseline, references, lowercase=lowercase, tokenize=tokenize, progress=tell
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


def _score_captions(
    run: Path, images: Path, captions: Path | None, beam: int | None, device: str, as_json: bool
) -> None:
    from regard.api.captioner import load_captioner
    from regard.cli.progress import bar
    from regard.cli.text import put, put_json

    writer = load_captioner(run, device)
    with bar("captioning") as tell:
        found = writer.score(str(images), str(captions or ""), beam=beam, progress=tell)
    if as_json:
        put_json({"run": writer.name, **found._asdict()})
    else:
        put(str(found))


def _score_documents(run: Path, documents: Path, bag_of_words: bool, device: str, as_json: bool) -> None:
    from regard.api.classifier import load_classifier
    from regard.cli.progress import bar
    from regard.cli.text import put_json

    classifier = load_classifier(run, device)
    with bar("classifying") as tell:
        score = classifier.score(documents, progress=tell)
    say = _say(as_json)
    say(str(score))
    found: dict[str, Any] = {"run": classifier.name, **score._asdict()}
    if bag_of_words:
        with bar("fitting the bag of words"):
            linear = classifier.score_bag_of_words(documents)
        found["bag_of_words"] = linear._asdict()
        say(f"\nA linear classifier of words and word pairs: {linear}")
    if as_json:
        put_json(found)


def _say(as_json: bool) -> Callable[[str], None]:
    """Print a line as soon as it is known; nothing where all of it comes as one JSON object at the end."""
    from regard.cli.text import put

    return (lambda line: None) if as_json else put


def _check(plot: Path | None, tokenize: str | None) -> None:
    """Refuse, before anything is translated, what would be refused afterwards."""
    from regard.cli.text import check_out
    from regard.evaluate.by_length import check_plot
    from regard.evaluate.scores import build_metric

    build_metric("bleu", tokenize=tokenize)
    if plot:
        check_plot(plot)
        check_out(plot)


def _pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    from regard.cli.text import lines_of
    from regard.errors import DataError

    sources, references = lines_of(source), lines_of(target)
    if len(sources) != len(references):
        raise DataError(
            f"Source and target must have the same number of lines; {source} has {len(sources)} and {target} "
            f"{len(references)}."
        )
    return sources, references


def _translate(translator: "regard.Translator", sources: list[str], beam: int | None) -> list[str]:
    from regard.cli.progress import bar

    with bar(f"translating with {translator.name}") as tell:
        return [one.text for one in translator.translate(sources, beam=beam, progress=tell)]
