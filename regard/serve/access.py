"""Who may use the server: host names, origins and tokens.

A browser lets every web page send requests to loopback. So the Host of every request must be a name of this server,
which stops DNS rebinding, and a request from a page must come from this server's page or an allowed origin.
"""

import hmac
import ipaddress
import logging
import os
import re
import secrets
import sys
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import ConfigError, counted
from regard.serve.limits import RefusedError

if TYPE_CHECKING:  # the command line creates an Access before it knows whether the web packages are installed
    from starlette.datastructures import Headers

TOKEN_VARIABLE = "REGARD_TOKEN"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_OPEN = ("/", "/health")  # no token needed: they reveal nothing, and the page must load before a token can be entered
OPEN_FOLDER = "/page/"
_DAY = 86400.0
log = logging.getLogger("regard.serve")


class AccessToken:
    """A secret that clients send, with an optional rate (requests a second) and quota (characters a day)."""

    def __init__(self, name: str, token: str, rate: float | None = None, quota: int | None = None) -> None:
        if len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(f"The token {name} must have at least 8 characters of printable ASCII, without spaces.")
        if (rate is not None and rate <= 0) or (quota is not None and quota <= 0):
            raise ConfigError(f"The rate and the quota of the token {name} must be positive numbers.")
        self.name, self.secret, self.rate, self.quota = name, token.encode(), rate, quota
        self._left = self._burst = max(1.0, rate or 1.0)  # requests possible at once
        self._seen = self._day = time.monotonic()  # the last request, and the start of the day of the quota
        self._used = 0

    def count_request(self, now: float) -> None:
        """Refuse with 429 above the rate."""
        if self.rate is None:
            return
        self._left = min(self._burst, self._left + (now - self._seen) * self.rate)
        self._seen = now
        if self._left < 1:
            wait = str(max(1, round((1 - self._left) / self.rate)))
            raise RefusedError(
                429, f"Slowdown: at most {counted(self.rate, 'request', 'g')} a second", {"Retry-After": wait}
            )
        self._left -= 1

    def count_characters(self, characters: int, now: float, path: str) -> None:
        """Refuse above the quota: with 456 in DeepL's API, with 403 in LibreTranslate's, as these do."""
        used = self.used_today(now)
        if self.quota is not None and used + characters > self.quota:
            raise RefusedError(456 if path.startswith("/v2/") else 403, "The quota of this API key is used up.")
        self._used += characters

    def used_today(self, now: float) -> int:
        """The characters counted since the day of the quota began."""
        if now - self._day >= _DAY:
            self._used, self._day = 0, now
        return self._used


@dataclass(frozen=True)
class Access:
    """Where the server listens and who may use it: `host` is the address to bind, `hosts` are further host names,
    `origins` are other origins that may call it, and `shown` is the token in the address of the page."""

    host: str = "127.0.0.1"
    tokens: tuple[AccessToken, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: frozenset[str] = frozenset()
    shown: str | None = None

    def check(self, method: str, path: str, headers: "Headers") -> None:
        """Allow our own page, allowed origins, and clients that are not browsers; refuse the rest."""
        for name in ("host", "origin"):
            if len(headers.getlist(name)) > 1:
                raise RefusedError(400, f"The request has more than one {name.title()}.")
        self.check_host(headers.get("host"))
        origin = headers.get("origin")
        if origin is not None:
            host = headers["host"].lower()
            if origin.lower() not in (f"http://{host}", f"https://{host}") and origin not in self.origins:
                raise RefusedError(403, "This origin may not use this server.")
            return
        # Some requests of a page have no Origin; current browsers send Sec-Fetch-Site instead.
        site = headers.get("sec-fetch-site", "none")
        opening = method in ("GET", "HEAD") and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("none", "same-origin") and not opening:
            raise RefusedError(403, "Another website may not use this server.")

    def admit(self, path: str, headers: "Headers", key: object) -> AccessToken | None:
        """The token of a request, from an Authorization header or the field api_key; None if none is needed."""
        if not self.tokens or path in _OPEN or path.startswith(OPEN_FOLDER):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("bearer", "deepl-auth-key") or not given:
            given = key if isinstance(key, str) else ""
        if not given and not path.startswith("/v2/"):
            raise RefusedError(400, "Please contact the server operator to get an API key")
        found = [token for token in self.tokens if hmac.compare_digest(given.encode(), token.secret)]
        if not found:
            raise RefusedError(403, "Invalid API key")
        found[0].count_request(time.monotonic())
        return found[0]

    def check_host(self, host: str | None) -> None:
        """Refuse an unknown Host with 403, a missing or malformed one with 400."""
        # Not Starlette's TrustedHostMiddleware: it takes the first of several Hosts, cannot allow all addresses without
        # allowing all names, and answers with plain text or a redirect.
        found = _HOST.fullmatch(host or "")
        if found is None:
            raise RefusedError(400, "The Host of the request is missing or malformed.")  # RFC 9112, section 3.2
        name = found[1].strip("[]").lower()
        if name in (*_LOCAL, self.host.lower(), *map(str.lower, self.hosts)):
            return
        # DNS rebinding needs a name; a bare address was typed by the user.
        if not is_loopback(self.host) and _is_address(name):
            return
        raise RefusedError(403, "This Host is not allowed; start the server with --allow-host to allow it.")


def secured(access: Access) -> Access:
    """Add a random token if one is required and there is none."""
    if access.tokens or is_loopback(access.host):
        return access
    made = secrets.token_urlsafe(24)
    return replace(access, tokens=(AccessToken("default", made),), shown=made)


def read_tokens(token: str | None = None, file: str | Path | None = None) -> tuple[AccessToken, ...]:
    """The valid tokens: from an option, the environment, and a TOML file with one table per token.

    [tokens.editor]
    token = "a long secret"
    rate = 10        # requests a second; optional
    quota = 1000000  # characters a day; optional
    """
    found = [AccessToken("default", one) for one in (token, os.environ.get(TOKEN_VARIABLE)) if one is not None]
    if file is not None:
        try:
            tables = tomllib.loads(Path(file).read_text("utf-8")).get("tokens", {})
            found += [AccessToken(name, **table) for name, table in tables.items()]
        except (OSError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            why = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"The tokens in {file} cannot be read ({why}); each is a table [tokens.NAME] with token, "
                f"and optionally rate and quota."
            ) from None
        if not tables:
            raise ConfigError(f"The file {file} has no tokens; each is a table [tokens.NAME] with token.")
        if sys.platform != "win32" and Path(file).stat().st_mode & 0o007:
            log.warning("Other users of this machine may read the tokens in %s; run `chmod o= %s`.", file, file)
    return tuple(found)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only.

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
