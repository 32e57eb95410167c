"""Who may come in: which names the server answers to, which pages may call it, and the token.

A browser lends its user's loopback to every page it shows. So each request, whatever its method, must be addressed to
a name of this server (a page that rebinds its own name to 127.0.0.1 is not), and one that a page sends must come from
this server's own page or from an origin that was allowed by name.
"""

import hmac
import ipaddress
import re
from dataclasses import dataclass, field

from starlette.datastructures import Headers

from regard.serve.refusal import RefusedError

_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_OPEN = ("/", "/health")  # reachable without a token: they tell nothing, and the page must be able to ask for it
_OPEN_FOLDER = "/page/"


@dataclass(frozen=True)
class Door:
    """`host` is the address that the server binds to; `hosts` and `origins` are allowed besides its own."""

    host: str = "127.0.0.1"
    token: str | None = None
    hosts: tuple[str, ...] = ()
    origins: frozenset[str] = field(default_factory=frozenset)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def check(self, method: str, path: str, headers: Headers) -> str | None:
        """The allowed foreign origin that asks, or None for our own page and for clients that are no browser.

        Everybody else is refused with 403.
        """
        self._check_host(_single(headers, "host"))
        origin = _single(headers, "origin")
        if origin is not None:
            if self._own(origin, headers):
                return None
            if origin in self.origins:
                return origin
            raise RefusedError(403, "This origin may not use this server.")
        # Old ways to send a request from a page carry no Origin; every current browser says where they come from.
        site = headers.get("sec-fetch-site", "none")
        opening = method in ("GET", "HEAD") and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("none", "same-origin") and not opening:
            raise RefusedError(403, "Another website may not use this server.")
        return None

    def admit(self, path: str, headers: Headers, key: object) -> None:
        """Check the token where one is needed: the field api_key, or an Authorization header."""
        if self.token is None or is_open(path):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("bearer", "deepl-auth-key") or not given:
            given = key if isinstance(key, str) else ""
        if not given and not path.startswith("/v2/"):
            raise RefusedError(400, "Please contact the server operator to get an API key")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise RefusedError(403, "Invalid API key")

    def _check_host(self, host: str | None) -> None:
        found = _HOST.fullmatch(host or "")
        if found is None:
            raise RefusedError(403, "The Host of the request is missing or malformed.")
        name = found[1].strip("[]").lower()
        if name in _LOCAL or name in self.hosts or name == self.host.lower():
            return
        # A rebinding page needs a name of its own; a bare address is whatever the user typed.
        if not self.loopback and _is_address(name):
            return
        raise RefusedError(403, "This server does not answer to that Host.")

    def _own(self, origin: str, headers: Headers) -> bool:
        host = headers["host"].lower()
        return origin.lower() in (f"http://{host}", f"https://{host}")


def is_open(path: str) -> bool:
    """Whether a path needs no token."""
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _single(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise RefusedError(403, f"The request has more than one {name.title()}.")
    return values[0] if values else None
