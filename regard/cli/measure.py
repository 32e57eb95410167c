"""regard heads, faithful, flow, reach: attention in numbers"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from regard.cli.options import AsJson, Device, Folder, Gold, Overwrite, Pairs, Run, Shards, TextFile
from regard.cli.progress import bar
from regard.cli.text import (
    check_out,
    check_text_file,
    fitted,
    lines_of,
    load,
    pair_files,
    pairs_of,
    put,
    put_result,
    watch,
)
from regard.errors import ConfigError, check_known, counted

if TYPE_CHECKING:
    from regard.evaluate.faithful import Estimate
    from regard.evaluate.faithful import Report as Faithfulness
    from regard.look.measure import Report


def heads(
    run: Run,
    *,
    pairs: Pairs,
    gold: Gold = None,
    by: Annotated[str | None, Option(help="Sort by this column (default: confidence; aer with --gold).")] = None,
    silence: Annotated[bool, Option("--silence", help="Remove each head in turn and report the loss in BLEU.")] = False,
    beam: Annotated[int, Option(help="Beam width for --silence, 1 (greedy, the fastest) to 1000.")] = 1,
    as_json: AsJson = False,
    out: Folder = None,
    shards: Shards,
    device: Device = "auto",
) -> None:
    """Measure every head over a corpus: entropy, confidence, coverage, diagonality, mass on special tokens, AER.

    With --on, the corpus may be of any size: partial sums are kept in the folder --out, and after a crash the same
    command continues. Pairs with an empty or a very long side are left out.
    """
    from regard.api.aligning import check_attends
    from regard.api.corpus import read_report, report_corpus
    from regard.api.measuring import report_heads
    from regard.evaluate.alignment import read_gold
    from regard.look.measure import MEASURES

    if by is not None:
        check_known("--by", by, [*MEASURES, *(["aer"] if gold else [])], " without --gold" if by == "aer" else "")
    if shards.on:
        if silence or gold:
            raise ConfigError("--silence and --gold read a small set; leave --on out.")
        files, folder = pair_files(pairs, out)
        [sums] = watch(
            "measuring", folder, partial(report_corpus, run, files, folder, where=shards.where(device))
        ).outputs
        return _put_report(read_report(sums), by or "confidence", as_json)
    if silence and (gold or by):
        raise ConfigError("--silence sorts by BLEU; it cannot be combined with --gold or --by.")
    sources, targets = pairs_of(run, pairs)
    answers = read_gold(gold) if gold else None
    check_attends(run)
    translator = load(run, device, "translate")
    if silence:
        return _put_worth(translator, sources, targets, beam, as_json)
    with bar("measuring") as progress:
        report = report_heads(translator, sources, targets, answers, progress)
    _put_report(report, by or ("aer" if answers is not None and "aer" in report.measures else "confidence"), as_json)


def _put_worth(translator: Any, sources: list[str], targets: list[str], beam: int, as_json: bool) -> None:
    """Print the loss in BLEU without each head."""
    from regard.api.measuring import silence_heads

    with bar("removing heads") as progress:
        worth = silence_heads(translator, sources, targets, beam, progress)
    rows = [{"module": head.name, "head": head.head, "bleu": head.score, "drop": head.drop} for head in worth]
    whole = f"{worth[0].score + worth[0].drop:.2f}"
    cells = [
        (head.name, "all" if head.head is None else str(head.head), f"{head.score:.2f}", f"{head.drop:.2f}")
        for head in worth
    ]
    wide = max(len(head.name) for head in worth)
    table = [("removed", "head", "BLEU", "loss"), ("(none)", "-", whole, "-"), *cells]
    lines = (f"{module}, head {head}: BLEU {bleu}, loss {loss}" for module, head, bleu, loss in cells)
    shown = fitted(
        [f"{module:<{wide}}  {head:>4}  {bleu:>6}  {loss:>6}" for module, head, bleu, loss in table],
        [f"(none): BLEU {whole}", *lines],
    )
    usual = translator.experiment.decode.beam
    note = f"BLEU with beam {beam} (--beam)" + (f"; regard score searches with beam {usual}" * (usual != beam))
    found = {"sentences": len(sources), "beam": beam, "heads": rows}
    put_result(f"{shown}\n{fitted([note], [note])}", found, as_json)


def _put_report(found: "Report", ranked: str, as_json: bool) -> None:
    rows = [{"module": row.name, "layer": row.layer, "head": row.head, **row.values} for row in found.ranked(ranked)]
    rates = ", aer as a fraction, with shift 0 (regard align --choose tries both)" if "aer" in found.measures else ""
    note = f"means over {counted(found.sentences, 'sentence')}, sorted by {ranked}; entropy in nats{rates}"
    data = {"sentences": found.sentences, "by": ranked, "heads": rows}
    lines = (
        f"{row.name}, head {row.head}: {', '.join(f'{name} {value:.3f}' for name, value in row.values.items())}"
        for row in found.ranked(ranked)
    )
    table = fitted(found.to_text(ranked).split("\n"), lines)
    put_result(f"{table}\n{fitted([note], [note])}", data, as_json)


def faithful(
    run: Run,
    *,
    pairs: Pairs,
    gold: Gold = None,
    methods: Annotated[
        str | None, Option(help="Attribution methods, separated by commas (default: all that the model has).")
    ] = None,
    erase: Annotated[
        str | None,
        Option(help="How words are erased: masked, unknown or removed (default: masked; without attention, unknown)."),
    ] = None,
    sentences: Annotated[
        int | None, Option(min=1, help="Read N pairs, evenly spaced (default: all).", metavar="N")
    ] = None,
    sanity: Annotated[
        int, Option(min=0, help="Attribute at most N sentences again with randomised weights; 0: none.", metavar="N")
    ] = 5,
    as_json: AsJson = False,
    plot: Annotated[Path | None, Option(help="Plot what is lost by the words erased: PNG, SVG or PDF.")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Measure how faithful each attribution method is: what the model loses without the source words it ranks first.

    The translations are forced. comprehensiveness: the probability of a target word that is lost without its first
    source words (mean over 1, 2 and 10 to 50 % of the words); sufficiency: what is lost if only they are left; reach:
    comprehensiveness between a random order (0) and the best set of words (1), in sentences of at most 8 words; tau:
    rank correlation with leaving out one word; kept: rank correlation with the attribution of a randomised model.
    """
    from regard.api.faithful import measure_faithfulness
    from regard.evaluate.alignment import read_gold
    from regard.evaluate.by_length import check_plot
    from regard.evaluate.faithful import plot_faithful

    check_out(plot and check_plot(plot), overwrite, *vars(pairs).values(), gold)
    sources, targets = pairs_of(run, pairs)
    answers = read_gold(gold) if gold else None
    translator = load(run, device, "translate")
    named = None if methods is None else [name.strip() for name in methods.split(",")]
    with bar("attributing") as progress:
        found = measure_faithfulness(translator, sources, targets, answers, named, erase, sanity, progress, sentences)
    if plot is not None:
        plot_faithful(found, plot)
    _put_faithful(found, as_json)


def _put_faithful(found: "Faithfulness", as_json: bool) -> None:
    def ranged(value: "Estimate | None") -> str:
        return "-" if value is None else f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"

    measures = ("comprehensiveness", "sufficiency", "reach", "correlation", "aer", "aer_threshold")
    shown = [name for name in measures if any(getattr(one, name) for one in found.methods)]
    titles = [{"correlation": "tau", "aer_threshold": "aer by threshold"}.get(name, name) for name in shown]
    table, lines, data = [["method", *titles, "kept", "s/sentence"]], list[str](), []
    for one in found.methods:
        kept = f"{list(one.kept.values())[-1]:.2f}" if one.kept else "-"
        cells = [*(ranged(getattr(one, name)) for name in shown), kept]
        cells.append("-" if one.seconds is None else f"{one.seconds:.3f}")
        table.append([one.method, *cells])
        lines.append(f"{one.method}: {', '.join(map(' '.join, zip(table[0][1:], cells, strict=True)))}")
        values = {name: value and value._asdict() for name in measures for value in [getattr(one, name)]}
        curves = dict(zip(("comprehensiveness_curve", "sufficiency_curve"), one.curves.tolist(), strict=True))
        data.append({"method": one.method, **values, **curves, "kept": dict(one.kept), "seconds": one.seconds})
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    note = (
        f"{counted(found.words, 'target word')} of {counted(found.sentences, 'sentence')}, words {found.erase}, "
        f"oracle in {counted(found.short, 'short sentence')}; in brackets: 95 % intervals over sentences"
    )
    reasons = dict.fromkeys(found.skipped.values())
    skipped = [
        f"{', '.join(name for name, why in found.skipped.items() if why == reason)}: {reason}" for reason in reasons
    ]
    text = "\n".join([fitted(rows, lines), *(fitted([line], [line]) for line in (note, *skipped))])
    counts = {"sentences": found.sentences, "words": found.words, "short": found.short, "erase": found.erase}
    put_result(text, {**counts, "methods": data, "skipped": dict(found.skipped)}, as_json)


def flow(
    run: Run,
    text: Annotated[str, Argument(help="Sentence to translate.")],
    target: Annotated[str | None, Option(help="Force this translation instead of searching for one.")] = None,
    with_run: Annotated[list[Path] | None, Option("--with", help="Another run to compare; repeatable.")] = None,
    out: Annotated[Path | None, Option(help="Draw the curves: .svg, .png or .pdf.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Show how far influence reaches: gradient norm by distance, in total and with the attention weights held fixed."""
    from regard.api.measuring import flow_of
    from regard.look.flow import Flow, draw_flows
    from regard.text.visible import label

    check_out(out, overwrite)
    flows: dict[str, Flow] = {}
    with bar("computing gradients"):
        for folder in [run, *(with_run or [])]:
            translator = load(folder, task="translate")
            name = translator.name if translator.name not in flows else str(folder)
            flows[name] = flow_of(translator, text, target)
    if out is not None:
        put(f"drawn: {draw_flows(flows, out, label(text, 60))}")
    for name, found in flows.items():
        through = float(found.attention.sum() / max(1e-30, found.attention.sum() + found.state.sum()))
        put(f"{name}: {100 * through:.1f} % of the gradient passes through attention")
        if out is None:
            put("distance      total  attention held fixed")
            for place, total, state in zip(*found.by_distance(), found.by_distance("state")[1], strict=True):
                put(f"{place:>8}  {total:9.4g}  {state:20.4g}")


def reach(
    run: Run,
    file: TextFile = None,
    *,
    farthest: Annotated[int, Option(min=1, help="Largest distance; all beyond it are counted together.")] = 20,
    words: Annotated[int, Option(help="Number of words to list, those with the most weight first.")] = 10,
    least: Annotated[int, Option(help="Ignore words that occur fewer than N times.", metavar="N")] = 20,
    as_json: AsJson = False,
    device: Device = "auto",
    out: Folder = None,
    shards: Shards,
) -> None:
    """Measure how far back a language model attends in a text, and to which words.

    With --on, the text may be of any size: partial sums are kept in the folder --out, and after a crash the same
    command continues.
    """
    check_text_file(file, "reach")
    writer = load(run, device, "language")
    if shards.on:
        from regard.api.corpus import reach_corpus, read_reach

        if file is None or out is None:
            raise ConfigError("--on takes a file and a folder for the results: regard reach RUN FILE --out DIR.")
        work = partial(reach_corpus, run, [file], out, farthest=farthest, where=shards.where(device))
        [sums] = watch("reading", out, work).outputs
        found = read_reach(sums)
    else:
        with bar("reading") as progress:
            found = writer.reach(lines_of(file), farthest, progress)
    modules = []
    for module in found:
        top = module.favourites(least)[: max(0, words)]
        named = dict(zip(writer.vocabulary.pieces(top), (module.words[word] for word in top), strict=True))
        modules.append({"module": module.name, "mean": module.mean, "shares": module.shares.tolist(), "words": named})
    text = "\n\n".join(map(_reach_table, modules))
    put_result(text, {"run": str(run), "farthest": farthest, "modules": modules}, as_json)


def _reach_table(found: dict[str, Any]) -> str:
    shares = found["shares"]
    lines = [f"{found['module']}: mean distance {found['mean']:.2f} words (0 is the last word read)"]
    for distance, share in enumerate(shares):
        name = f"{distance}" if distance < len(shares) - 1 else f"{distance}+"
        lines.append(f"{name:>8}  {share:6.3f}  {'#' * round(50 * share)}".rstrip())
    if found["words"]:
        named = ", ".join(f"{word} {times:.2f}" for word, times in found["words"].items())
        lines.append(f"most attended words, relative to uniform attention: {named}")
    return "\n".join(lines)
