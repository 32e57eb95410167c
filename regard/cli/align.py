"""regard align"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

import regard
from regard.cli.corpus import pair_files, watch
from regard.cli.options import Device, Gold, Pairs, Run, Shards, run_folder
from regard.cli.progress import bar
from regard.cli.text import check_out, pairs_of, put
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.api.links import Heads


@dataclass(frozen=True)
class Words(Pairs):
    """Pairs in words, as white space separates them."""

    source: Annotated[Path | None, Option(help="Source sentences, words separated by white space.")] = None
    target: Annotated[Path | None, Option(help="Their translations, line for line.")] = None


@dataclass(frozen=True)
class Linking:
    """How weights become links."""

    method: Annotated[str, Option(help="argmax, mutual or threshold.")] = "argmax"
    threshold: Annotated[float, Option(help="Smallest weight of a link, for --method threshold.")] = 0.3
    layer: Annotated[int | None, Option(help="Cross-attention layer, from 0.")] = None
    head: Annotated[int | None, Option(help="Head, from 0 (default: the mean).")] = None
    shift: Annotated[int | None, Option(help="1: row t + 1 aligns word t (default: the model's).")] = None
    back: Annotated[Path | None, Option(metavar="RUN", parser=run_folder, help="Run of the other direction.")] = None
    join: Annotated[str, Option(help="intersection, union, grow-diag, grow-diag-final, or mean (of the weights).")] = (
        "grow-diag"
    )
    text: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="SOURCE TARGET", help="Parallel text: learn which words go together, and mix that in."),
    ] = None


def align(
    run: Run,
    *,
    pairs: Words,
    how: Linking,
    gold: Gold = None,
    choose: Annotated[bool, Option("--choose", help="Save the best layer and head, by --gold or --back.")] = False,
    out: Annotated[Path | None, Option(help="Write the links to this file (default: stdout).")] = None,
    shards: Shards,
    device: Device = "auto",
) -> None:
    """Extract word alignments from attention as Pharaoh lines (i-j, from 0); with --gold, report AER.

    With --on, files of any size are aligned into the folder --out, every pair exactly once: after a crash the same
    command makes what is missing. A pair with an empty or a very long side gives an empty line.

    With --text, a dictionary and the jumps between links are learned from parallel text and from the pairs themselves,
    without gold links; the weights are then the mean of attention and of the probabilities of links that they give.
    """
    from regard.api import aligning
    from regard.api.corpus_attention import Links, align_corpus
    from regard.api.links import Heads
    from regard.data.pharaoh import format_pharaoh
    from regard.evaluate.alignment import Weights, read_gold, score_alignments, write_pharaoh
    from regard.evaluate.word_pairs import expect_links
    from regard.look.trace import Trace

    named = Heads(how.layer, how.head, how.shift) if (how.layer, how.head, how.shift) != (None, None, None) else None
    back = how.back
    if shards.on:
        if gold or choose:
            raise ConfigError("--gold and --choose read a small set; leave --on out.")
        if how.text:
            raise ConfigError("--text learns from all pairs at once; leave --on out.")
        files, folder = pair_files(pairs, out)
        links_of = Links(how.method, how.threshold, named, how.join)
        work = partial(align_corpus, run, files, folder, back=back, links=links_of, where=shards.where(device))
        watch("aligning", folder, lambda progress: work(progress=progress))
        return
    check_out(out)
    aligning.check_linking(how.method, how.threshold, how.join)
    sources, targets = pairs_of(run, pairs)
    text = pairs_of(run, Words(*how.text)) if how.text else None
    answers = read_gold(gold) if gold else None
    if answers is not None:
        aligning.check_gold(answers, sources, targets)
    if choose and answers is None and back is None:
        raise ConfigError("--choose needs --gold, or --back to compare with.")
    ahead, *both_ways = (regard.load(one, device, "translate") for one in (run, back) if one)
    behind = both_ways[0] if both_ways else None
    heads = named or ahead.heads
    other = behind.heads if behind else heads
    seen: list[Trace] = []
    back_traces: list[Trace] = []  # of both directions, kept so that --choose reads nothing twice
    if choose:
        with bar("choosing") as progress:
            seen = list(aligning.traces(ahead, sources, targets, progress))
            if answers is not None:
                heads, _ = aligning.choose_by_gold(seen, answers)
            elif behind:
                back_traces = list(aligning.traces(behind, targets, sources, progress))
                heads, other = aligning.choose_by_agreement(seen, back_traces)
        if back and behind and answers is None:
            _keep(back, other, behind)
        _keep(run, heads, ahead)
    learned: list[Weights] | None = None
    if text:
        learned = expect_links([*text[0], *sources], [*text[1], *targets], len(sources))
    with bar("aligning") as progress:
        weights = aligning.weigh(seen or aligning.traces(ahead, sources, targets, progress), heads, learned)
    opposite: list[Weights] | None = None
    if behind is not None:
        with bar("aligning the opposite direction") as progress:
            found = back_traces or aligning.traces(behind, targets, sources, progress)
            turned = None if learned is None else [one.T for one in learned]
            opposite = aligning.weigh(found, other, turned)
    links = aligning.link(weights, opposite, how.method, how.threshold, how.join)
    if out is not None:
        write_pharaoh(links, out)
    elif answers is None:
        for line in links:
            put(format_pharaoh(line))
    if answers is not None:
        joined = "" if behind is None else f", joined by {how.join}"
        words = "" if how.text is None else f", with the words of {how.text[0]} and {how.text[1]}"
        put(f"{score_alignments(links, answers)}  ({heads.describe(ahead.model)}, {how.method}{joined}{words})")


def _keep(run: Path, heads: "Heads", translator: "regard.Translator") -> None:
    from regard.api.links import keep_choice

    keep_choice(run, heads)
    typer.echo(f"saved in {run}: {heads.describe(translator.model)}", err=True)
