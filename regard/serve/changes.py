"""What-if changes as a client writes them, such as {"kind": "mask", "position": 3}."""

from collections.abc import Callable
from typing import Any

from regard.look.change import Change, Mask, SetRow, ShiftRow, Silence, Temperature
from regard.serve.limits import RefusedError


def parse(changes: Any, most: int) -> list[Change]:
    """The changes of a request, each checked; a refusal names what is wrong."""
    if changes is None:
        return []
    if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
        raise RefusedError(422, "changes must be a list of objects, each with a kind.")
    if len(changes) > most:
        raise RefusedError(422, f"At most {most} changes may be made at once; got {len(changes)}.")
    return [_one(change) for change in changes]


def _one(change: dict[str, Any]) -> Change:
    kind = change.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise RefusedError(422, f"A change must be one of {', '.join(_KINDS)}; got {str(kind)[:40]!r}.")
    return _KINDS[kind](change)


def _temperature(change: dict[str, Any]) -> Change:
    value = change.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= 1000:
        raise RefusedError(422, "A change of temperature needs a value between 0.001 and 1000.")
    return Temperature(float(value))


def _silence(change: dict[str, Any]) -> Change:
    name = change.get("name")
    if not isinstance(name, str):
        raise RefusedError(422, "A change of silence needs the name of an attention module.")
    return Silence(name, _maybe(change, "head"))


_KINDS: dict[str, Callable[[dict[str, Any]], Change]] = {
    "mask": lambda change: Mask(_whole(change, "position")),
    "temperature": _temperature,
    "set-row": lambda change: SetRow(_whole(change, "t"), _whole(change, "position"), head=_maybe(change, "head")),
    "shift-row": lambda change: ShiftRow(
        _whole(change, "t"), _whole(change, "by", -10_000), head=_maybe(change, "head")
    ),
    "silence": _silence,
}


def _whole(change: dict[str, Any], name: str, least: int = 0) -> int:
    value = change.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10_000:
        raise RefusedError(422, f"A change of {change['kind']} needs {name} as a whole number of at least {least}.")
    return value


def _maybe(change: dict[str, Any], name: str) -> int | None:
    return None if change.get(name) is None else _whole(change, name)
