"""Fonts of this system that have the letters to be drawn."""

import unicodedata
import warnings
from collections.abc import Iterable
from functools import lru_cache

from matplotlib import font_manager

FIRST = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and many signs
PREFERRED = (  # similar in weight to the rest of the picture, where installed
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans SC", "PingFang SC",
    "Hiragino Sans", "Hiragino Sans GB", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "IPAGothic", "NanumGothic", "SimHei", "SimSun",
    "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Thai", "Nirmala UI", "Leelawadee UI",
    "Noto Emoji", "Noto Sans Symbols", "Noto Sans Symbols 2", "Symbola", "Segoe UI Symbol", "Arial Unicode MS",
)  # fmt: skip
_COLOUR = ("Noto Color Emoji", "Apple Color Emoji", "Segoe UI Emoji", "Twemoji Mozilla")  # pictures, not outlines
_warned: set[str] = set()


class FontWarning(UserWarning):
    """No installed font has some letter of a picture."""


def families(texts: Iterable[str], warn: bool = True) -> list[str]:
    """Font families to draw `texts` with: the first that holds a letter draws it.

    Warns once for each script that no font holds; such letters appear as boxes in PNG and PDF (SVG and HTML use the
    reader's own fonts).
    """
    needed = {character for text in texts for character in text if not _ignorable(character)}
    chosen = [FIRST]
    missing = needed - _letters(_files()[FIRST])
    files = _files()
    for name in (*(name for name in PREFERRED if name in files), *files):
        if not missing:
            break
        if name in chosen or name in _COLOUR or name.startswith(("Last Resort", "STIX", "cm")):
            continue
        found = missing & _letters(files[name])
        if found:
            chosen.append(name)
            missing -= found
    scripts = sorted({unicodedata.name(character, "an unnamed letter").split(" ")[0] for character in missing})
    if warn and (new := [script for script in scripts if script not in _warned]):
        _warned.update(new)
        warnings.warn(
            f"No font here holds {len(missing)} of the letters to be drawn ({', '.join(new).lower()}: "
            f"{' '.join(sorted(missing)[:6])}); they appear as boxes. Install a font that does, such as Noto Sans, or "
            f"draw to .svg or .html.",
            FontWarning,
            stacklevel=2,
        )
    return chosen


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    """Family -> the file of its plain face."""
    best: dict[str, tuple[int, str]] = {}
    for entry in font_manager.fontManager.ttflist:
        bold = abs(entry.weight - 400) if isinstance(entry.weight, int) else 0
        plain = (entry.style != "normal") * 1000 + bold + (entry.stretch != "normal") * 500
        if entry.name not in best or (plain, entry.fname) < best[entry.name]:
            best[entry.name] = (plain, entry.fname)
    return {name: file for name, (_, file) in sorted(best.items())}


@lru_cache(maxsize=512)
def _letters(file: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, font_manager.get_font(file).get_charmap()))
    except (OSError, RuntimeError):  # a font that cannot be opened holds nothing
        return frozenset()


def _ignorable(character: str) -> bool:
    return character in "\n\u200c\u200d\ufe0e\ufe0f" or unicodedata.category(character) in ("Cf", "Cc", "Zs")
