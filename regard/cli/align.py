"""regard align"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

import regard
from regard.cli.options import Device, Gold, Overwrite, Pairs, Run, Shards, only, run_folder
from regard.cli.progress import bar
from regard.cli.text import check_out, load, pair_files, pairs_of, put, watch
from regard.errors import ConfigError, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from regard.api.aligning import Linking
    from regard.api.heads import Heads
    from regard.look.trace import Trace
    from regard.text.pharaoh import Gold as GoldLinks
    from regard.work import Progress


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
    ahead = _Direction.load(run, device, sources, targets, named)
    behind = _Direction.load(how.back, device, targets, sources) if how.back else None
    if behind:
        behind.check_opposite(ahead)
    if choose:
        _choose(ahead, behind, answers)
    learned = expect_links([*text[0], *sources], [*text[1], *targets], len(sources)) if text else None
    with bar("aligning") as progress:
        weights = aligning.weigh(ahead.traces(progress), ahead.heads, learned)
    opposite = None
    if behind:
        with bar("aligning the opposite direction") as progress:
            turned = None if learned is None else [probabilities.T for probabilities in learned]
            opposite = aligning.weigh(behind.traces(progress), behind.heads, turned)
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
        put(f"{score_alignments(links, answers)}  ({ahead.described}, {how.described})")


def _choose(ahead: "_Direction", behind: "_Direction | None", answers: "list[GoldLinks] | None") -> None:
    """Choose the heads by the gold links, or else by the agreement of both directions, and save the choice."""
    from regard.api import aligning

    with bar("choosing") as progress:
        if answers is not None:
            ahead.heads, _ = aligning.choose_by_gold(ahead.record(progress), answers)
        elif behind:
            found = aligning.choose_by_agreement(ahead.record(progress), behind.record(progress))
            ahead.heads, behind.heads = found
            behind.keep_choice()
    ahead.keep_choice()


def _align_in_shards(run: Path, pairs: Words, how: LinkOptions, out: Path | None, shards: Shards, device: str) -> None:
    from regard.api.corpus import align_corpus

    if how.text:
        raise ConfigError("--text learns from all pairs at once; leave --on out.")
    files, folder = pair_files(pairs, out)
    linking, heads = how.choices()
    work = partial(align_corpus, run, files, folder, back=how.back, where=shards.where(device))
    watch("aligning", folder, partial(work, how=linking, heads=heads))


@dataclass
class _Direction:
    """A model that reads the pairs in one direction, and the heads whose attention becomes links."""

    run: Path
    translator: "regard.Translator"
    sources: list[str]
    targets: list[str]
    heads: "Heads"
    recorded: "list[Trace] | None" = None

    @classmethod
    def load(
        cls, run: Path, device: str, sources: list[str], targets: list[str], named: "Heads | None" = None
    ) -> "_Direction":
        from regard.api.aligning import check_attends

        check_attends(run)
        translator = load(run, device, "translate")
        return cls(run, translator, sources, targets, translator.heads.override(named) if named else translator.heads)

    def traces(self, progress: "Progress") -> "Iterable[Trace]":
        from regard.api import aligning

        return self.recorded or aligning.traces(self.translator, self.sources, self.targets, progress)

    def record(self, progress: "Progress") -> "list[Trace]":
        """The traces, kept, so that they are computed once."""
        self.recorded = list(self.traces(progress))
        return self.recorded

    def check_opposite(self, other: "_Direction") -> None:
        """Refuse another model of the same direction, where its languages are known."""
        source, target = self.translator.source_language, self.translator.target_language
        same = (source, target) == (other.translator.source_language, other.translator.target_language)
        if source and target and same:
            raise ConfigError(
                f"--back takes a model of the other direction, {target} to {source}; {self.run} translates {source} to "
                f"{target}."
            )

    @property
    def described(self) -> str:
        return self.heads.describe(self.translator.model)

    def keep_choice(self) -> None:
        from regard.api.heads import keep_choice

        keep_choice(self.run, self.heads)
        typer.echo(f"saved in {self.run}: {self.described}", err=True)
