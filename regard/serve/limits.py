"""How much one request may ask for. Everything here is refused before any model runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a server, on by default."""

    body: int = 1 << 20  # bytes of a request
    picture: int = 8 << 20  # bytes of a request that holds a picture
    pictures: int = 16  # received or read at once
    header_bytes: int = 64 << 10
    headers: int = 100
    depth: int = 32  # nesting of JSON
    segments: int = 128  # texts of one request
    tokens: int = 4096  # of one text
    characters: int = 1 << 16  # of one text: more cannot be 4,096 tokens of any language, so it is not even split
    alternatives: int = 10
    beam: int = 20
    changes: int = 32  # of one what-if
    seconds: float = 60.0  # from arrival to answer
    sending: float = 10.0  # seconds that a client may take to send its request
    sending_picture: float = 30.0
    cost: int = 1 << 21  # tokens times beam that may wait for a model, beyond a single request
    queue: int = 64  # requests accepted and not yet answered, for each model
    drain: float = 25.0  # seconds to finish what was accepted after SIGTERM
    stuck: float = 8.0  # seconds without a decoding step after which a worker counts as stuck
