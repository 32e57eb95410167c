"""regard align"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from regard.cli.options import Device, Gold, Overwrite, Pairs, Run, Shards, only, run_folder
from regard.cli.progress import bar
from regard.cli.text import check_out, load, pair_files, pairs_of, put, watch
from regard.errors import ConfigError, counted

if TYPE_CHECKING:
    from regard.api.aligning import Linking
    from regard.api.heads import Heads


@dataclass(frozen=True)
class Words(Pairs):
    """Pairs in words, as white space separates them."""

    source: Annotated[Path | None, Option(help="Source sentences, words separated by white space.")] = None
    target: Annotated[Path | None, Option(help="Their translations, line for line.")] = None


@dataclass(frozen=True)
class LinkOptions:
    """How weights become links."""

    # Eager: parsed before the options that depend on them.
    method: Annotated[str, Option(is_eager=True, help="argmax, mutual or threshold.")] = "argmax"
    threshold: Annotated[
        float,
        Option(
            callback=only(
                lambda given: given.get("method") not in ("argmax", "mutual"), "--method threshold; add that"
            ),
            help="Smallest weight of a link, for --method threshold.",
        ),
    ] = 0.3
    layer: Annotated[int | None, Option(help="Cross-attention layer, from 0 (default: the run's choice).")] = None
    head: Annotated[
        int | None, Option(help="Head, from 0 (default: the run's choice; with --layer, the mean of all).")
    ] = None
    shift: Annotated[
        int | None,
        Option(help="1: row t + 1 aligns word t (default: the saved one of the run's choice; else the model's)."),
    ] = None
    back: Annotated[
        Path | None, Option(metavar="RUN", parser=run_folder, is_eager=True, help="Run of the other direction.")
    ] = None
    join: Annotated[
        str,
        Option(
            callback=only(lambda given: given.get("back"), "two directions; add --back RUN"),
            help="With --back: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and, or mean (of the "
            "weights).",
        ),
    ] = "grow-diag"
    text: Annotated[
        tuple[Path, Path] | None,
        Option(
            metavar="SOURCE TARGET",
            help="Parallel text: learn link probabilities from it, and average them with attention.",
        ),
    ] = None

    def choices(self) -> "tuple[Linking, Heads]":
        """The options as a `Linking`, which refuses unknown values, and the layer, head and shift that were passed."""
        from regard.api.aligning import Linking
        from regard.api.heads import Heads

        return Linking(self.method, self.threshold, self.join), Heads(self.layer, self.head, self.shift)

    @property
    def described(self) -> str:
        """The options in words, printed after a score."""
        joined = f", joined by {self.join}" if self.back else ""
        words = f", with the words of {self.text[0]} and {self.text[1]}" if self.text else ""
        return f"{self.method}{joined}{words}"


def align(
    run: Run,
    *,
    pairs: Words,
    how: LinkOptions,
    gold: Gold = None,
    choose: Annotated[bool, Option("--choose", help="Save the best layer and head, by --gold or --back.")] = False,
    out: Annotated[Path | None, Option(help="Write the links to this file (default: stdout).")] = None,
    overwrite: Overwrite = False,
    shards: Shards,
    device: Device = "auto",
) -> None:
    """Extract word alignments from attention as Pharaoh lines (i-j, from 0); with --gold, report AER.

    With --on, files of any size are aligned into the folder --out, every pair exactly once; after a crash, repeat the
    command to do the rest. A pair with an empty or a very long side gives an empty line.

    With --text, a dictionary and the jumps between links are learned from parallel text and from the pairs themselves,
    without gold links; the weights are then the mean of attention and these link probabilities.
    """
    from regard.api import aligning
    from regard.api.heads import keep_choice
    from regard.evaluate.alignment import read_gold, score_alignments, write_pharaoh
    from regard.evaluate.word_pairs import expect_links
    from regard.runs.included import check_own
    from regard.text.pharaoh import format_pharaoh

    if shards.on:
        if gold or choose:
            raise ConfigError("--gold and --choose read a small set; leave --on out.")
        return _align_in_shards(run, pairs, how, out, shards, device)
    check_out(out, overwrite, *vars(pairs).values(), gold, *(how.text or ()))
    linking, named = how.choices()
    sources, targets = pairs_of(run, pairs)
    text = pairs_of(run, Words(*how.text)) if how.text else None
    answers = read_gold(gold) if gold else None
    if answers is not None:
        aligning.check_gold(answers, sources, targets)
    if choose:
        if answers is None and how.back is None:
            raise ConfigError("--choose needs --gold, or --back to compare with.")
        check_own(run)
        if answers is None and how.back:
            check_own(how.back)
    aligning.check_attends(run)
    ahead = load(run, device, "translate")
    ahead.heads = ahead.heads.override(named)
    behind = None
    if how.back:
        aligning.check_attends(how.back)
        behind = load(how.back, device, "translate")
        ways = [(one.source_language, one.target_language) for one in (ahead, behind)]
        if ways[0] == ways[1] and all(ways[0]):  # where the languages are known
            raise ConfigError(
                f"--back takes a model of the other direction, {ways[0][1]} to {ways[0][0]}; {how.back} translates "
                f"{ways[0][0]} to {ways[0][1]}."
            )
    seen = back = None  # traces that are kept, so that they are computed once
    if choose:
        with bar("choosing") as progress:
            seen = list(aligning.traces(ahead, sources, targets, progress))
            if answers is not None:
                ahead.heads, _ = aligning.choose_by_gold(seen, answers)
            elif behind:
                back = list(aligning.traces(behind, targets, sources, progress))
                ahead.heads, behind.heads = aligning.choose_by_agreement(seen, back)
        changed: list[tuple[Any, Any]] = [(run, ahead)] if back is None else [(how.back, behind), (run, ahead)]
        for folder, chosen in changed:
            keep_choice(folder, chosen.heads)
            typer.echo(f"saved in {folder}: {chosen.heads.describe(chosen.model)}", err=True)
    learned = expect_links([*text[0], *sources], [*text[1], *targets], len(sources)) if text else None
    with bar("aligning") as progress:
        read = seen or aligning.traces(ahead, sources, targets, progress)
        weights = aligning.weigh(read, ahead.heads, learned)
    opposite = None
    if behind:
        with bar("aligning the opposite direction") as progress:
            turned = None if learned is None else [probabilities.T for probabilities in learned]
            read = back or aligning.traces(behind, targets, sources, progress)
            opposite = aligning.weigh(read, behind.heads, turned)
    links = aligning.link(weights, opposite, linking)
    if not any(links):
        typer.echo("no link was found in any pair; pass a lower --threshold, or another --method", err=True)
    if out is not None:
        write_pharaoh(links, out)
        typer.echo(f"{out}: {counted(sum(map(len, links)), 'link')} of {counted(len(links), 'pair')}", err=True)
    elif answers is None:
        for line in links:
            put(format_pharaoh(line))
    if answers is not None:
        put(f"{score_alignments(links, answers)}  ({ahead.heads.describe(ahead.model)}, {how.described})")


def _align_in_shards(run: Path, pairs: Words, how: LinkOptions, out: Path | None, shards: Shards, device: str) -> None:
    from regard.api.corpus import align_corpus

    if how.text:
        raise ConfigError("--text learns from all pairs at once; leave --on out.")
    files, folder = pair_files(pairs, out)
    linking, heads = how.choices()
    work = partial(align_corpus, run, files, folder, back=how.back, where=shards.where(device))
    watch("aligning", folder, partial(work, how=linking, heads=heads))
