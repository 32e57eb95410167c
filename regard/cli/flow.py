"""regard flow"""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("flow")(flow)


def flow(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[str, typer.Argument(help="The sentence to translate.")],
    target: Annotated[str | None, typer.Option(help="Read this translation instead of searching for one.")] = None,
    with_run: Annotated[
        list[Path] | None, typer.Option("--with", help="Another run, to compare; may be given again.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the curves into a .svg, .png or .pdf file.")] = None,
) -> None:
    """How far influence reaches: gradient norm against distance, with all ways open and with attention held fixed."""
    from regard.api.inspecting import flow_of
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import check_out, put
    from regard.look.flow import Flow, draw_flows
    from regard.look.text import label

    check_out(out)
    flows: dict[str, Flow] = {}
    with bar("following the gradient"):
        for one in [run, *(with_run or [])]:
            translator = load_translator(one)
            name = translator.name if translator.name not in flows else str(one)
            flows[name] = flow_of(translator, text, target)
    if out is not None:
        put(f"drawn: {draw_flows(flows, out, label(text, 60))}")
    for name, found in flows.items():
        through = float(found.attention.sum() / max(1e-30, found.attention.sum() + found.state.sum()))
        put(f"{name}: {100 * through:.1f} % of the gradient goes through attention")
        if out is None:
            put("distance     total  attention held fixed")
            for place, total, state in zip(*found.by_distance(), found.by_distance("state")[1], strict=True):
                put(f"{place:>8}  {total:8.4g}  {state:20.4g}")
