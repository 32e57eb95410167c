"""regard serve"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.cli.options import Engine
from regard.errors import counted


def serve(
    runs: Annotated[
        list[str] | None, Argument(metavar="[RUN ...]", help="Runs (default: the included models).")
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 5000,
    host: Annotated[str, Option(help="Address to listen on; clients on other machines need a token.")] = "127.0.0.1",
    token: Annotated[str | None, Option(help="Token that clients send; safer in REGARD_TOKEN or a file.")] = None,
    tokens: Annotated[Path | None, Option(help="TOML file of tokens, each with a name, rate and quota.")] = None,
    allow_host: Annotated[list[str] | None, Option(help="Additional host name of the server; repeatable.")] = None,
    allow_origin: Annotated[list[str] | None, Option(help="Origin whose pages may use the server; repeatable.")] = None,
    suggestions: Annotated[Path | None, Option(help="File to which suggested translations are added.")] = None,
    limit: Annotated[list[str] | None, Option(metavar="NAME=VALUE", help="Change a limit of docs/serving.md.")] = None,
    source_language: Annotated[str, Option(help="Source language, such as en, of runs that name none.")] = "",
    target_language: Annotated[str, Option(help="Target language, such as pt, of runs that name none.")] = "",
    engine: Engine = "regard",
) -> None:
    """Serve a web page, and the REST APIs of LibreTranslate and DeepL."""
    from regard.runs.included import find_runs, shipped
    from regard.serve import run
    from regard.serve.access import Access, read_tokens
    from regard.serve.limits import Limits

    known = read_tokens(token, tokens)
    limits = Limits().changed(limit or [])  # refused before anything is loaded
    access = Access(host, known, tuple(allow_host or ()), frozenset(allow_origin or ()), shown=token)
    folders = find_runs(runs) if runs else list(shipped().values())
    if folders:
        typer.echo(f"loading {counted(len(folders), 'model')} …", err=True)
    run(
        folders,
        port=port,
        access=access,
        limits=limits,
        engine=engine,
        suggestions=suggestions,
        languages=(source_language, target_language),
        ready=lambda address: typer.echo(f"Open {address}"),
    )
