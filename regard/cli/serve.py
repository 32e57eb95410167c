"""regard serve"""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Engine


def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN ...]", help="Run folders or models (default: the models that ship with regard)."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 5000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine clients need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(help="Secret that clients must send. Better in the environment variable REGARD_TOKEN or a file."),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="TOML file of several tokens, each with a name, a rate and a quota.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further host name that the server answers to; repeatable.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may use the server, as https://editor.example; repeatable."),
    ] = None,
    suggestions: Annotated[
        Path | None,
        typer.Option(help="File to which better translations that people suggest are added, as JSON lines."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Change a limit of docs/serving.md, as seconds=30; repeatable."),
    ] = None,
    engine: Engine = "regard",
) -> None:
    """Serve a page for people and the REST API of LibreTranslate and DeepL for programs."""
    from regard.serve import run
    from regard.serve.limits import Limits
    from regard.training.known import find_run, shipped

    run(
        [str(find_run(one)) for one in runs] if runs else [str(folder) for folder in shipped().values()],
        host=host,
        port=port,
        token=token,
        tokens=tokens,
        limits=Limits().changed(limit or []),
        hosts=allow_host or [],
        origins=allow_origin or [],
        engine=engine,
        suggestions=suggestions,
        ready=lambda address: typer.echo(f"Open {address}"),
    )
