"""The server and the page: translate, describe pictures, and show how a model decodes, for people and for programs.

process         bind, answer, and on SIGTERM finish what was accepted
limits          how much a request may use, and refusals
access          hosts, origins and tokens: who may use the server
guard           the layer around all endpoints: checks, counts, headers of every answer
protocol        connections: their number, and timers for requests and answers
fields          query, form, multipart or JSON into fields
layout          texts into sentences and back
app, spec       which path leads where, and its description
libre, deepl, api_v1, glossaries     the endpoints
stored          files and glossaries that clients leave for a while
state           the models side by side, and how work is handed to one
queue, worker   tickets and batches; the process of a model seen from the server
model_process   the process of a model seen from inside, with
models, examples, captions, changes, inside     what models do there; only these use torch
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
