"""The server and the page: translate, describe pictures, and show how a model decodes, for people and for programs.

server          bind, answer requests, and finish the accepted ones after SIGTERM
app             the application: its routes, the files of the page, the OpenAPI description
middleware      around every request: checks before any work, time limits on sending, headers, metrics
limits, access  how much a request may use; hosts, origins and tokens: who may use the server
schemas         requests and answers as pydantic models
parameters      query string, form, multipart form or JSON into one of these models
libre, deepl, api_v1     the endpoints
call, service   an admitted request and how it reaches a model; the loaded models
layout          texts into sentences and back
queue, worker   tickets and batches; the server's side of a model process (`regard.processes`)
loading         what the process of a model runs, with
models, examples, captions, inside     its work; only these use torch
page/           plain ES modules, no build step
"""

from typing import Any

from regard.errors import RunError

_PACKAGES = ("fastapi", "uvicorn", "uvloop", "python_multipart", "prometheus_client", "langcodes")


def run(*args: Any, **options: Any) -> None:
    """Serve run folders until SIGTERM or SIGINT: see `regard.serve.server.serve`."""
    # The web packages are an extra, and importing regard.serve must cost nothing.
    try:
        from regard.serve.server import serve
    except ModuleNotFoundError as error:
        if error.name in _PACKAGES:
            raise RunError(f"The server needs {error.name}; install it: pip install 'regard[serve]'.") from None
        raise
    serve(*args, **options)
