"""The server and the page: translate, describe pictures, watch a model decode, and use it from any client.

process     bind, answer, and on SIGTERM finish what was accepted
protocol    HTTP at the wire: slow clients, requests that cannot be read
gate, door  limits of headers, hosts, origins, the token, headers of every answer
fields      query, form, multipart or JSON into fields
app, spec   which path leads where, and its description
libre, deepl        the endpoints of LibreTranslate and DeepL
own, captions       ours under /api/v1/, for sentences and for pictures
house       the models side by side, and the way work is handed over
work, worker        tickets and batches, one thread for each model
runs, models, pictures   run folders into translators and captioners: the one place where the server meets regard.api
arithmetic  one decoding step in full, for the page to do again
page/       plain ES modules, no build step
"""

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
