"""Why a request is not answered: a status and one sentence, in the shape that the caller's API expects."""

from collections.abc import Mapping

from starlette.responses import JSONResponse


class RefusedError(Exception):
    """A request that is refused on purpose: told to the client in one sentence, never logged as a fault."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


class StoppedError(Exception):
    """Work that was given up because nobody waits for it any more."""


def answer(path: str, refusal: RefusedError) -> JSONResponse:
    """{"error": sentence}, or {"message": sentence} where the path speaks DeepL's API."""
    key = "message" if path.startswith("/v2/") else "error"
    return JSONResponse({key: refusal.sentence}, refusal.status, refusal.headers)
