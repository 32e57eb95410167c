"""Translations that went wrong in a way that shows without a reference: nothing, a loop, or the source again."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

Flag = Literal["empty", "loop", "copy"]

COPIED = 0.8  # at least this share of the words are the source's, in its order
LONGEST = 64  # words of a phrase that is looked for again
WORDS = 4  # a source with fewer words (a name, a number, "OK") may well stay as it is


def flags(source: Sequence[str], output: Sequence[str]) -> list[Flag]:
    """What is wrong with `output` as a translation of `source`, both as words; an empty list where nothing is.

    * "empty": the source holds words and the output none.
    * "loop": a word four times in a row, two to four words three times, five or more twice; unless the source loops.
    * "copy": the output is the source again, wholly or nearly, letter case aside.
    """
    if not source:
        return []
    if not output:
        return ["empty"]
    found: list[Flag] = []
    if loops(output) and not loops(source):
        found.append("loop")
    if _copies(source, output):
        found.append("copy")
    return found


def loops(words: Sequence[str]) -> bool:
    """Whether some stretch of `words` says the same thing over and over."""
    for period in range(1, min(len(words) // 2, LONGEST) + 1):
        times = 4 if period == 1 else 3 if period < 5 else 2
        run = 0  # how many words in a row equal the word one period earlier
        for earlier, word in zip(words, words[period:], strict=False):
            run = run + 1 if word == earlier else 0
            if run >= period * (times - 1):
                return True
    return False


def _copies(source: Sequence[str], output: Sequence[str]) -> bool:
    """Whether 2 * (words in common, in order) / (words of both) reaches `COPIED`."""
    before, after = [word.casefold() for word in source], [word.casefold() for word in output]
    if sum(any(character.isalpha() for character in word) for word in before) < WORDS:
        return False
    match = SequenceMatcher(None, before, after, autojunk=False)
    return match.real_quick_ratio() >= COPIED and match.quick_ratio() >= COPIED and match.ratio() >= COPIED
