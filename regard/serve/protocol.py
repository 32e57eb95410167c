"""HTTP at the wire: what comes before a request exists, where only the protocol can refuse."""

import asyncio
import json
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LINGER = 1.0  # seconds in which a refused client may go on sending before the line is cut


class Protocol(H11Protocol):
    """uvicorn's protocol, with a clock for slow clients and JSON for requests that cannot be read."""

    sending = 10.0  # seconds that a client may take to send the head of its request
    refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._clock = self.loop.call_later(self.sending, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)

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
        # Closing at once, with bytes of the client still unread, would reset the line before the answer is seen.
        self.refused = True
        self.loop.call_later(LINGER, self.transport.close)
