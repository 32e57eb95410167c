"""A translation in fragments, words and tags, and the text that they make."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.data.formats.segment import Tag


class Fragment(NamedTuple):
    """A part of the result: words of the translation, or a tag."""

    text: str
    tag: Tag | None = None


def in_order(fragments: list[Fragment], tags: Sequence[Tag]) -> list[Fragment]:
    """Placeholders that are known by their order alone, put into their places in the order of the source."""
    arguments = iter([tag for tag in tags if tag.kind == "argument"])
    return [
        fragment
        if fragment.tag is None or fragment.tag.kind != "argument"
        else Fragment(fragment.text, next(arguments))
        for fragment in fragments
    ]


def write(fragments: list[Fragment], escape: Callable[[str], str]) -> str:
    """The text of the fragments, with white space around those tags that had it in the source."""
    following = ["" for _ in fragments]  # the character of the words that comes next
    after = ""
    for number in range(len(fragments) - 1, -1, -1):
        following[number] = after
        if fragments[number].tag is None:
            after = fragments[number].text[:1] or after
        elif fragments[number].tag.kind not in ("open", "close"):  # type: ignore[union-attr]
            after = "%"
    parts: list[str] = []
    last = ""
    for (text, tag), ahead in zip(fragments, following, strict=True):
        if tag is None:
            if last == "\n" and text[:1] == " ":  # a break stands for the space
                text = text[1:]
            parts.append(escape(text))
            last = text[-1:] or last
        elif tag.kind in ("open", "close"):
            parts.append(tag.raw)
        elif tag.kind == "break":
            while parts and parts[-1] == " ":
                parts.pop()
            parts.append(tag.raw)
            last = "\n"
        else:
            apart = tag.before or tag.after
            if last and not last.isspace() and (tag.before or (apart and last.isalnum())):
                parts.append(" ")
            parts.append(tag.raw)
            last = "%"
            if ahead and not ahead.isspace() and (tag.after or (apart and ahead.isalnum())):
                parts.append(" ")
                last = " "
    return "".join(parts)
