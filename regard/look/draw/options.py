"""The options of a drawing by name: a slip of the pen gets a sentence."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from regard.errors import ConfigError, unknown


def check(make: Callable[..., Any], given: Iterable[str], what: str, *more: str) -> None:
    """Refuse names that are neither keyword arguments of `make` nor among `more`."""
    known = [one.name for one in inspect.signature(make).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for name in given:
        if name not in known and name not in more:
            raise ConfigError(unknown(f"option of {what}", name, sorted([*known, *more])))
