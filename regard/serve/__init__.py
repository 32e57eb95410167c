"""The server and the page: translate, describe pictures, and show how a model decodes, for people and for programs.

process         bind, answer requests, and finish the accepted ones after SIGTERM
limits          how much a request may use, and the errors of refused requests
access          hosts, origins and tokens: who may use the server
guard           the layer around all endpoints: checks, metrics, response headers
protocol        connections: their number, and timers for requests and responses
fields          query string, form, multipart or JSON into fields
layout          texts into sentences and back
app, spec       the routes, and their OpenAPI description
libre, deepl, api_v1, glossaries     the endpoints
stored          translated files and glossaries, kept in memory
state           the loaded models, and how a request reaches one of them
queue, worker   tickets and batches; the server's side of a model process
model_process   the model process itself, with
models, examples, captions, changes, inside     its work; only these use torch
page/           plain ES modules, no build step
"""

from typing import Any

from regard.errors import RunError

_PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "python_multipart", "prometheus_client", "langcodes")


def run(*args: Any, **options: Any) -> None:
    """Serve run folders until SIGTERM or SIGINT: see `regard.serve.process.serve`."""
    # The web packages are an extra, and importing regard.serve must cost nothing.
    try:
        from regard.serve.process import serve
    except ModuleNotFoundError as error:
        if error.name in _PACKAGES:
            raise RunError(f"The server needs the package {error.name}; install regard[serve].") from None
        raise
    serve(*args, **options)
