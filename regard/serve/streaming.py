"""Translations while they are written: server-sent events, each a sentence and what there is of it so far."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from regard.serve.layout import Layout
from regard.serve.limits import RefusedError
from regard.serve.queue import MethodCall, Ticket, Written
from regard.serve.state import ServerState, client, deadline
from regard.serve.worker import Worker


async def stream(state: ServerState, request: Request, worker: Worker, layout: Layout) -> StreamingResponse:
    """The answer to a text with "stream": true; refused before the first event if it cannot be accepted."""
    work = MethodCall("stream", (layout.sentences,), parts=True)
    ticket = Ticket(deadline(request), client(request), worker.about["beam"], work=work)
    worker.make_room(ticket.client, ticket.beam * sum(map(len, layout.sentences)))
    state.count(request, layout.sentences)
    loop, parts = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def put(part: Any) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    ticket.part = put
    ticket.answer.add_done_callback(lambda _: put(None))
    worker.submit(ticket)
    return StreamingResponse(_events(ticket, layout, parts), media_type="text/event-stream")


async def _events(ticket: Ticket, layout: Layout, parts: "asyncio.Queue[Any]") -> AsyncIterator[str]:
    spans = [[start, start + len(sentence)] for start, sentence in zip(layout.starts, layout.sentences, strict=True)]

    def event(place: int, text: str, **more: Any) -> str:
        return _event({"sentence": place, "source": spans[place], "translatedText": text, **more})

    written: dict[int, Written] = {}  # a process that is replaced begins again
    try:
        while (part := await parts.get()) is not None:
            place, found = part
            if isinstance(found, Written):
                written[place] = found
                yield event(place, found.text, done=True, flags=list(found.flags), unknown=list(found.unknown))
            else:
                yield event(place, found)
        ticket.answer.result()
        yield _event({"translatedText": layout.write([written[place] for place in range(len(spans))])})
    except RefusedError as refusal:
        yield _event({"error": refusal.sentence})
    except Exception:
        yield _event({"error": "The translation was stopped: it took too long, or the model failed."})
    finally:
        ticket.gone = True
        ticket.answer.cancel()


def _event(tree: dict[str, Any]) -> str:
    return f"data: {json.dumps(tree, ensure_ascii=False, allow_nan=False)}\n\n"
