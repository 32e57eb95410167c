"""The server and the page: translate, watch a model decode, and use it from any client."""

from collections.abc import Callable, Sequence
from pathlib import Path

from regard.errors import RunError


def run(
    runs: Sequence[str | Path],
    host: str = "127.0.0.1",
    port: int = 5000,
    token: str | None = None,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve run folders until SIGTERM or SIGINT; `ready` is told the address of the page (see `process.serve`)."""
    # The web packages are an extra, and importing regard.serve must cost nothing.
    try:
        from regard.serve.process import serve
    except ModuleNotFoundError as error:
        if error.name in ("starlette", "uvicorn", "h11", "python_multipart"):
            raise RunError(f"The server needs the package {error.name}; install regard[serve].") from None
        raise
    serve(runs, host, port, token, ready=ready)
