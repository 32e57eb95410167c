"""HTTP at the wire: what comes before a request exists, where only the protocol can refuse."""

import asyncio
import json
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SENDING = 10.0  # seconds that a client may take to send the head of its request


class Protocol(H11Protocol):
    """uvicorn's protocol, with a clock for slow clients and JSON for requests that cannot be read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._clock = self.loop.call_later(SENDING, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is no HTTP: 431 where its head is too long, 400 otherwise."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        sentence = "The head of the request is too long." if status == 431 else "This is not an HTTP request."
        body = json.dumps({"error": sentence}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        events: list[Any] = [
            h11.Response(status_code=status if status in (400, 431) else 400, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
