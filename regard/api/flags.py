"""What may be wrong with a translation, by the texts alone: its flags."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from operator import eq

from regard.data.vocabulary import Tokenised
from regard.files.segment import ADDRESS, SYMBOL, find_addresses
from regard.symbols import UNKNOWN
from regard.text.languages import english_name, other_language

NOTES = {  # flag -> what it means, which is its note
    "unseen": "the source holds characters or words that were never seen in training",
    "language": "the source looks like another language than the one that the model reads",
    "lower-cased": "the source was lower-cased: the model was trained on lower-case text",
    "term": "the source has a term that could not be placed",
    "cut": "the source has a sentence that is longer than any in training and was cut at clauses",
    "number": "the source has a number, an amount, a time, a symbol or an address that the translation does not have",
    "loop": "the translation repeats itself",
    "copy": "the translation is the source again",
    "empty": "the translation is empty",
    "length": "the translation ran into the length limit",
}
LOOKS = "the source looks like {found}, but the model reads {own}"  # the note of "language", which names both
COPIED = 0.8  # at least this share of the words are the source's, in its order
LONGEST = 64  # most words of a phrase whose repetition counts
WORDS = 4  # a source with fewer words (a name, a number, "OK") may well stay as it is
_STUTTER = re.compile(r"(\w.{0,7}?)\1{7,}")  # the same few characters eight times
_SEPARATOR = re.compile(r"(?<=\d)[.,'’ \u00a0\u202f](?=\d)")  # 1,234.50 and 1 234,50 are the same number
_DECIMAL = re.compile(r"(?<=\d)[.,](?=(?:\d\d?|\d{4,})(?![.,]?\d))")  # 3.4 is not 34; 3.400 may be 3400
_NUMBER = re.compile(r"\d+_\d+|\d{2,}")  # a single digit may be written as a word
_DIGIT = re.compile(r"\d")
_TIME = re.compile(r"(?<![\d:.,])(\d{1,2})\s?[:hH.]\s?([0-5]\d)(?![\d:.,]?\d)")
_CLOCK = re.compile(r"(?<![\d:.,])(\d{1,2}):([0-5]\d)(?![\d:.,]?\d)")
# A symbol beside a number -> how else it may be written, in lower case.
WORDED = {
    "%": "per ?cent|pour ?cent|prozent|por ?cien|procent", "$": "dollar|usd", "€": "euro|eur", "¥": "yen|yuan|jpy",
    "£": "pound|livre|pfund|libra|gbp", "°": "degr|grad", "km": "kilom", "cm": "centim", "mm": "millim", "kg": "kilo",
    "ml": "millilit", "mph": "mile", "km/h": "kilom", "kb": r"\bko\b", "mb": r"\bmo\b", "gb": r"\bgo\b",
}  # fmt: skip
# A number from 10 to 20 -> its word in English and French, as patterns.
SPELLED = {
    "10": "ten(?:th)?|dix(?:ième)?", "11": "eleven(?:th)?|onz(?:e|ième)", "12": "twel(?:ve|fth)|douz(?:e|ième)",
    "13": "thirteen(?:th)?|treiz(?:e|ième)", "14": "fourteen(?:th)?|quatorz(?:e|ième)",
    "15": "fifteen(?:th)?|quinz(?:e|ième)", "16": "sixteen(?:th)?|seiz(?:e|ième)",
    "17": "seventeen(?:th)?|dix-sept(?:ième)?", "18": "eighteen(?:th)?|dix-huit(?:ième)?",
    "19": "nineteen(?:th)?|dix-neuf|dix-neuvième", "20": "twent(?:y|ieth)|vingt(?:ième)?(?! et un)",
}  # fmt: skip
_GLUED = re.compile(r"[^\W\d_]{3}\d")  # a number without a space after a word
_UNITS = "|".join(sorted((re.escape(unit) for unit in WORDED if unit.isalpha() or "/" in unit), key=len, reverse=True))
_QUANTITY = re.compile(rf"[$€£¥](?=\s?\d)|(?<=\d)\s?(?:[%$€£¥°]|(?:{_UNITS})(?!\w))", re.I)
_SMALL = re.compile(rf"[$€£¥]\s?(\d)(?![.,]?\d)|(?<![\d.,])(\d)\s?(?:[%$€£¥°]|(?:{_UNITS})(?!\w))", re.I)


def language_note(text: str, own: str) -> str:
    """The note of a text that is clearly in another language than `own`, which the model reads; else ""."""
    found = other_language(text, own)
    return LOOKS.format(found=english_name(found), own=english_name(own)) if found else ""


def join_notes(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The problems of several translations: each flag once, with its first note, in the order of `NOTES`."""
    found: dict[str, str] = {}
    for part in parts:
        found = {**part, **found}
    return {flag: found[flag] for flag in NOTES if flag in found}


def wrong_with(source: str, translation: str, finished: str, same_language: bool) -> list[str]:
    """The flags of one sentence and its translation; an empty list where nothing is wrong.

    * "number": see `lost_numbers`.
    * "empty": the source has words and the translation none.
    * "loop": a word four times in a row, two to four words three times, five or more twice, or a few characters eight
      times; unless the source loops.
    * "copy": the translation is the source again, wholly or nearly, ignoring case, and should be in another language.
    * "length": the search was cut.
    """
    read, wrote = source.split(), translation.split()
    found = ["number"] if lost_numbers(source, translation) else []
    if read and not wrote:
        found.append("empty")
    if read and loops(wrote) and not loops(read):
        found.append("loop")
    before, after = list(map(str.casefold, read)), list(map(str.casefold, wrote))
    common = (Counter(before) & Counter(after)).total()  # in any order: at least as many, and quickly counted
    if common and not same_language and 2 * common / (len(before) + len(after)) >= COPIED:
        words = sum(any(map(str.isalpha, word)) for word in before)
        # The share of words in common, in order: 2 * common / words of both.
        if words >= WORDS and SequenceMatcher(None, before, after, autojunk=False).ratio() >= COPIED:
            found.append("copy")
    if "loop" not in found and _STUTTER.search(translation[:10_000]) and not _STUTTER.search(source[:10_000]):
        found += [] if loops(read) else ["loop"]
    return [*found, "length"] if finished == "length" else found


def loops(words: Sequence[str]) -> bool:
    """Whether some stretch of `words` says the same thing over and over."""
    for period in range(1, min(len(words) // 2, LONGEST) + 1):
        times = 4 if period == 1 else 3 if period < 5 else 2
        if sum(map(eq, words, words[period:])) < period * (times - 1):
            continue  # too few words equal the word one period earlier, in a row or not
        run = 0  # how many of them in a row
        for earlier, word in zip(words, words[period:], strict=False):
            run = run + 1 if word == earlier else 0
            if run >= period * (times - 1):
                return True
    return False


def lost_numbers(source: str, translation: str) -> list[str]:
    """The numbers of two digits or more, decimals, amounts, times, symbols, web and e-mail addresses of a sentence that
    its translation does not have.

    Numbers are compared by their digits, so that 1,234.50 and 1 234,50 are the same; those from 10 to 20 may be words.
    An amount of one digit is lost if the translation has not this digit but a number that the source has not. A number
    that the translation joins to a word ("coûte5") is lost too, and a sign that is written twice, as in "$5 dollars",
    or in broken bytes.
    """
    lost = []
    if ADDRESS.search(source):
        lost = [address for address in find_addresses(source) if address not in translation]
    if not source.isascii():
        lost += (Counter(SYMBOL.findall(source)) - Counter(SYMBOL.findall(translation))).elements()
    if _DIGIT.search(source):
        lowered = translation.lower()
        for unit in dict.fromkeys(found[0].strip().lower() for found in _QUANTITY.finditer(source)):
            same = re.escape(unit) + (r"(?!\w)" if unit[-1].isalnum() else "")
            twice = re.compile(rf"{same}[\d., \u00a0\u202f]{{1,20}}(?:{WORDED[unit]})")  # "$5 dollars"
            doubled = not unit[0].isalpha() and twice.search(lowered) and not twice.search(source.lower())
            broken = not unit.isascii() and "\ufffd" in translation and "\ufffd" not in source
            if doubled or broken or not re.search(rf"{same}|{WORDED[unit]}", lowered):
                lost.append(unit)
        times = {(int(hour) % 12, minute) for hour, minute in _TIME.findall(translation)}
        clocks = _CLOCK.findall(source)
        lost += [f"{hour}:{minute}" for hour, minute in clocks if (int(hour) % 12, minute) not in times]
        read, wrote = (
            Counter(_NUMBER.findall(_SEPARATOR.sub("", _DECIMAL.sub("_", ADDRESS.sub(" ", text)))))
            for text in (source, translation)
        )
        missing = read - wrote
        lost += (missing - (spelled(missing, lowered) - spelled(missing, source.lower()))).elements()
        lost += [one for one in _GLUED.findall(lowered) if one not in source.lower()]
        digits = re.findall(r"\d+", translation)
        if wrote - read or set(digits) - set(re.findall(r"\d+", source)):
            lost += [one for found in _SMALL.findall(source) for one in found if one and one not in digits]
    return lost


def spelled(numbers: Iterable[str], text: str) -> Counter[str]:
    """How often a text in lower case has the words for numbers."""
    known = [one for one in numbers if one in SPELLED]
    return Counter({one: len(re.findall(rf"(?<![\w-])(?:{SPELLED[one]})(?![\w-])", text)) for one in known})


def unseen(encoded: Tokenised) -> list[str]:
    """The parts of a sentence that are not in the vocabulary, in order, as spelled: unknown words, and characters that
    are spelled as bytes."""
    found: list[str] = []
    last = (-1, -1)
    for index, piece, span in zip(encoded.ids, encoded.pieces, encoded.spans, strict=True):
        byte = piece.startswith("<0x") and piece.endswith(">") and len(piece) == 6
        if (index == UNKNOWN or byte) and not (byte and span == last):
            found.append(encoded.text[slice(*span)])
        last = span
    return found
