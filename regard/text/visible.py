"""Any string made visible: on one line, without invisible characters, legal in XML and in a terminal."""

import unicodedata

import wcwidth

NAMES = {
    "\u061c": "ALM", "\u200b": "ZWSP", "\u200e": "LRM", "\u200f": "RLM", "\u202a": "LRE", "\u202b": "RLE",
    "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO", "\u2060": "WJ", "\u2066": "LRI", "\u2067": "RLI",
    "\u2068": "FSI", "\u2069": "PDI", "\ufeff": "BOM", "\u2028": "LS", "\u2029": "PS", "\u00ad": "SHY",
}  # fmt: skip
PRINTED = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x8E2}  # format characters of Arabic and Syriac with a visible shape
BLANKS = " \u00a0\u202f"  # not shown at the ends of a word; French has no-break spaces before its "?" and inside « »
JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_LONGEST_CLUSTER = 16  # code points; a longer stack of marks on one letter is cut


def visible(text: str) -> str:
    """`text` with everything invisible, unpaired or illegal replaced by a visible mark.

    Controls become their pictures (␀), direction controls their names (‹RLO›), lone surrogates, noncharacters and other
    unprintables their numbers (‹U+D800›); spaces at the ends become ␣. Joiners inside words and emoji stay.
    """
    if not text:
        return "∅"
    marked = text if text.isprintable() else "".join(_mark(text, at) for at in range(len(text)))
    bare = marked.strip(" ")
    if not bare:
        return "␣" * len(marked)
    before = len(marked) - len(marked.lstrip(" "))
    after = len(marked) - len(marked.rstrip(" "))
    return "␣" * before + bare + "␣" * after


def _mark(text: str, at: int) -> str:
    character, code = text[at], ord(text[at])
    if character.isprintable() or code in PRINTED:
        return character
    if code < 0x20 or code == 0x7F:
        return chr(0x2400 + code) if code < 0x20 else "␡"
    if character in NAMES:
        return f"‹{NAMES[character]}›"
    if character in JOINERS and at > 0 and text[at - 1] not in JOINERS + " ":
        return character  # they mean something after a letter only
    if 0xE0020 <= code <= 0xE007F and "\U0001f3f4" in text[max(0, at - 8) : at]:  # the tags of a flag
        return character
    return "⍽" if unicodedata.category(character) == "Zs" else f"‹U+{code:04X}›"


def label(text: str, longest: int = 24) -> str:
    """`visible` text of at most `longest` columns, the rest an ellipsis; never cut inside a letter and its marks."""
    parts = [part[:_LONGEST_CLUSTER] for part in wcwidth.iter_graphemes(visible(text[: 40 * longest]))]
    if sum(map(columns, parts)) <= longest and len(text) <= 40 * longest:
        return "".join(parts)
    kept, used = [], 0
    for part in parts:
        used += columns(part)
        if used > longest - 1:
            break
        kept.append(part)
    return "".join(kept) + "…"


def plain_piece(piece: str) -> str:
    """A vocabulary's piece without its marks of words: "▁the" is "the"."""
    return piece.replace("▁", " ").strip(BLANKS) or piece


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes: two for wide letters, none for marks."""
    return max(0, wcwidth.wcswidth(text))


def wrap(text: str, width: int) -> str:
    """`text` broken at spaces into lines of at most `width` columns where that is possible."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > width:
            lines.append(word)
        else:
            lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)
