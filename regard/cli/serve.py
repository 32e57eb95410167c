"""regard serve"""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    runs: Annotated[list[Path], typer.Argument(help="One or more run folders.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 5000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine clients need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="Secret that clients must send; made up when none is given beyond this machine.")
    ] = None,
) -> None:
    """Serve a page for people and the REST API that translation clients already speak."""
    from regard.serve import run

    run(
        [str(one) for one in runs],
        host=host,
        port=port,
        token=token,
        ready=lambda address: typer.echo(f"Open {address}"),
    )
