"""regard align"""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("align")(align)


def align(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Annotated[Path, typer.Option(help="Source sentences, tokenised: words are split at white space.")],
    target: Annotated[Path, typer.Option(help="Their translations, line for line.")],
    method: Annotated[str, typer.Option(help="argmax, mutual or threshold.")] = "argmax",
    threshold: Annotated[float, typer.Option(help="Least weight of a link, for --method threshold.")] = 0.3,
    layer: Annotated[int | None, typer.Option(help="Layer of cross-attention, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0 (none: the mean).")] = None,
    shift: Annotated[int | None, typer.Option(help="1: row t + 1 aligns word t. None: the model's own.")] = None,
    back: Annotated[Path | None, typer.Option(help="A run of the other direction, to join with.")] = None,
    join: Annotated[str, typer.Option(help="intersection, union, grow-diag or grow-diag-final.")] = "grow-diag",
    gold: Annotated[Path | None, typer.Option(help="Gold links (1-based, i-j sure, ipj possible): print AER.")] = None,
    choose: Annotated[
        bool, typer.Option("--choose", help="Choose layer and head by --gold (or by agreement with --back); keep it.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the links here instead of standard output.")] = None,
) -> None:
    """Word alignments as Pharaoh lines (i-j, from 0), read off the attention; with --gold, also AER."""
    from regard.api import aligning
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import check_out, lines_of, put
    from regard.data.pharaoh import format_pharaoh
    from regard.errors import ConfigError
    from regard.evaluate.alignment import read_gold, score_alignments, symmetrise, write_pharaoh
    from regard.look.trace import Trace

    check_out(out)
    symmetrise((), (), join)  # refuses an unknown name before the work is done
    sources, targets = lines_of(source), lines_of(target)
    answers = read_gold(gold) if gold else None
    if answers is not None:
        aligning.check_gold(answers, sources, targets)
    if choose and answers is None and back is None:
        raise ConfigError("--choose needs --gold, or --back to agree with.")
    ahead, behind = load_translator(run), load_translator(back) if back else None
    heads = aligning.find_choice(run, ahead)
    if (layer, head, shift) != (None, None, None):
        heads = aligning.Heads(layer, head, shift)
    other = aligning.find_choice(back, behind) if back and behind else heads
    seen: list[Trace] = []
    turned: list[Trace] = []  # both are kept where a choice has read them, so that nothing is read twice
    if choose:
        with bar("choosing") as tell:
            seen = list(aligning.traces(ahead, sources, targets, tell))
            if answers is not None:
                heads, _ = aligning.choose_by_gold(seen, answers)
            elif behind:
                turned = list(aligning.traces(behind, targets, sources, tell))
                heads, other = aligning.choose_by_agreement(seen, turned)
        if back and answers is None:
            aligning.keep_choice(back, other)
            typer.echo(f"chosen and kept in {back}: {other.told(behind or ahead)}", err=True)
        aligning.keep_choice(run, heads)
        typer.echo(f"chosen and kept in {run}: {heads.told(ahead)}", err=True)
    with bar("reading") as tell:
        links = aligning.align(seen or aligning.traces(ahead, sources, targets, tell), heads, method, threshold)
    if behind is not None:
        with bar("reading the other way") as tell:
            back_seen = turned or aligning.traces(behind, targets, sources, tell)
            links = aligning.join(links, aligning.align(back_seen, other, method, threshold), join)
    if out is not None:
        write_pharaoh(links, out)
    elif answers is None:
        for line in links:
            put(format_pharaoh(line))
    if answers is not None:
        both = "" if behind is None else f", both directions joined by {join}"
        put(f"{score_alignments(links, answers)}  ({heads.told(ahead)}, {method}{both})")
