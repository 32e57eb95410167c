"""What-if changes as a client writes them, such as {"kind": "mask", "position": 3}."""

from typing import Any

from regard.look.change import Change, Mask, SetRow, ShiftRow, Silence, Temperature
from regard.serve.fields import check_name
from regard.serve.limits import RefusedError

KINDS = {  # with the fields of each
    "mask": ("position",),
    "temperature": ("value",),
    "set-row": ("t", "position", "weights", "head"),
    "shift-row": ("t", "by", "head"),
    "silence": ("name", "head"),
}


def parse(changes: Any, most: int) -> list[Change]:
    """The changes of a request, checked."""
    if changes is None:
        return []
    if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
        raise RefusedError(422, "changes must be a list of objects, each with a kind.")
    if len(changes) > most:
        raise RefusedError(422, f"At most {most} changes are possible at once; got {len(changes)}.")
    return [_parse_change(change) for change in changes]


def _parse_change(change: dict[str, Any]) -> Change:
    kind = change.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RefusedError(422, f"A change must be one of {', '.join(KINDS)}; got {str(kind)[:40]!r}.")
    for field in change:
        check_name(field, ("kind", *KINDS[kind]), f"a {kind} change")

    def integer(name: str, least: int = 0) -> int:
        value = change.get(name)
        if type(value) is not int or not least <= value <= 10_000:
            raise RefusedError(422, f"A {kind} change needs {name}, an integer from {least} to 10000.")
        return value

    head = integer("head") if change.get("head") is not None else None
    match kind:
        case "mask":
            return Mask(integer("position"))
        case "set-row":
            weights = change.get("weights")
            if weights is None:
                return SetRow(integer("t"), integer("position"), head=head)
            numbers = isinstance(weights, list) and all(type(one) in (int, float) and 0 <= one <= 1 for one in weights)
            if not numbers or "position" in change:
                raise RefusedError(422, "A set-row change needs position, or weights: numbers from 0 to 1.")
            return SetRow(integer("t"), weights, head=head)
        case "shift-row":
            return ShiftRow(integer("t"), integer("by", -10_000), head=head)
        case "silence":
            if isinstance(name := change.get("name"), str):
                return Silence(name, head)
            raise RefusedError(422, "A silence change needs name, an attention module as in a trace.")
    value = change.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= 1000:
        raise RefusedError(422, "A temperature change needs value, a number from 0.001 to 1000.")
    return Temperature(float(value))
