"""regard heads"""

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("heads")(heads)


def heads(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Annotated[Path, typer.Option(help="Source sentences, one a line.")],
    target: Annotated[Path, typer.Option(help="Their translations, line for line.")],
    gold: Annotated[Path | None, typer.Option(help="Gold links (1-based, i-j sure, ipj possible): adds AER.")] = None,
    by: Annotated[
        str | None, typer.Option(help="Rank by this column (default: confidence, or aer with --gold).")
    ] = None,
    silence: Annotated[
        bool,
        typer.Option("--silence", help="Leave each head out in turn and translate again: what it is worth, in BLEU."),
    ] = False,
    beam: Annotated[int, typer.Option(help="Beam width for --silence, 1 (greedy, the quickest) to 1000.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """What each head does over a corpus: entropy, confidence, coverage, diagonality, mass on special tokens, AER."""
    from regard.api import inspecting
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import lines_of, put, put_json
    from regard.errors import ConfigError
    from regard.evaluate.alignment import read_gold

    if silence and (gold or by):
        raise ConfigError("--silence ranks by BLEU; leave --gold and --by to a report without it.")
    sources, targets = lines_of(source), lines_of(target)
    answers = read_gold(gold) if gold else None
    translator = load_translator(run)
    if silence:
        with bar("leaving heads out") as tell:
            worth = inspecting.silence_heads(translator, sources, targets, beam, tell)
        rows: list[dict[str, Any]] = [
            {"module": one.name, "head": one.head, "bleu": one.score, "drop": one.drop} for one in worth
        ]
        if as_json:
            put_json({"sentences": len(sources), "heads": rows})
        else:
            put(_worth(rows))
        return
    with bar("reading") as tell:
        found = inspecting.report_heads(translator, sources, targets, answers, tell)
    ranked = by or ("aer" if answers is not None and "aer" in found.measures else "confidence")
    if as_json:
        rows = [
            {"module": row.name, "layer": row.layer, "head": row.head, **row.values} for row in found.ranked(ranked)
        ]
        put_json({"sentences": found.sentences, "by": ranked, "heads": rows})
        return
    put(found.to_text(ranked))
    put(f"means over {found.sentences} sentences, ranked by {ranked}; entropy is in nats, aer a share")


def _worth(rows: list[dict[str, Any]]) -> str:
    wide = max(len(row["module"]) for row in rows)
    whole = rows[0]["bleu"] + rows[0]["drop"]
    lines = [f"{'silenced':<{wide}}  head    BLEU    lost", f"{'(nothing)':<{wide}}     -  {whole:6.2f}       -"]
    for row in rows:
        head = "all" if row["head"] is None else row["head"]
        lines.append(f"{row['module']:<{wide}}  {head:>4}  {row['bleu']:6.2f}  {row['drop']:6.2f}")
    return "\n".join(lines)
