"""A text of any length into sentences that a model can translate, and their translations into one text again."""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from regard.data.formats.segment import ADDRESS, Builder, Segment, find_addresses, has_words
from regard.data.sentences import split_clauses, split_sentences
from regard.data.vocabulary import Tokenised
from regard.decode.hypothesis import flags, loops
from regard.symbols import UNKNOWN

NOTES = {  # flag -> what it means
    "unseen": "holds characters or words that were never seen in training",
    "language": "looks like another language than the one that the model reads",
    "lower-cased": "was lower-cased: the model was trained on lower-case text",
    "term": "has a term that could not be placed",
    "cut": "has a sentence that is longer than any in training and was cut at clauses",
    "number": "has a number, a web address or an e-mail address that the translation does not have",
    "loop": "the translation repeats itself",
    "copy": "the translation is the source again",
    "empty": "the translation is empty",
    "length": "the translation ran into the length limit",
}
_STUTTER = re.compile(r"(\w.{0,7}?)\1{7,}")  # the same few characters eight times
_WORST = ("not finite", "stopped", "length", "end", "empty")  # how the worst of several sentences ended
_SEPARATOR = re.compile(r"(?<=\d)[.,'’ \u00a0\u202f](?=\d)")  # 1,234.50 and 1 234,50 are the same number
_NUMBER = re.compile(r"\d{2,}")  # a single digit may be written as a word
_DIGIT = re.compile(r"\d")
_LINE = re.compile(r"[^\n]+")


class Passage(NamedTuple):
    """A text as sentences to translate, and the text before, between and after them.

    A sentence is a segment: its addresses and placeholders are taken out, and put back into its translation.
    """

    segments: list[Segment]
    encoded: list[Tokenised]
    gaps: list[str]  # one more than segments
    cut: bool  # whether a long sentence was cut at clauses

    @property
    def sentences(self) -> list[str]:
        return [one.text for one in self.segments]


def take_apart(text: str, encode: Callable[[str], Tokenised], most: int) -> Passage:
    """The sentences of each line of a text; those of more than `most` tokens are cut at clauses."""
    passage, reached, cut = Passage([], [], [], False), 0, False
    for line in _LINE.finditer(text):
        for span in split_sentences(line[0]):
            start, end = (line.start() + at for at in span)
            whole, parts = encode(text[start:end]), [(start, end)]
            if len(whole.ids) > most:
                parts = split_clauses(text, (start, end), [start + begin for begin, _ in whole.spans], most)
                cut = True
            for begin, stop in parts:
                builder = Builder()
                builder.words(text[begin:stop])
                segment = builder.build(text[begin:stop])
                if segment.tags and not has_words(segment.text):
                    continue  # an address alone stays where it is
                passage.gaps.append(text[reached:begin])
                passage.segments.append(segment)
                passage.encoded.append(whole if segment.text == text[start:end] else encode(segment.text))
                reached = stop
    if not passage.segments:  # white space, or nothing to translate
        return keep_whole("", encode)._replace(gaps=[text if text.strip() else "", ""])
    return passage._replace(gaps=[*passage.gaps, text[reached:]], cut=cut)


def keep_whole(text: str, encode: Callable[[str], Tokenised]) -> Passage:
    """The text as one sentence, as it is."""
    return Passage([Segment(text, (), text, text)], [encode(text)], ["", ""], False)


def end_alike(source: str, translation: str) -> str:
    """The translation without a full stop at its end that its source does not have: titles and labels have none."""
    added = source[-1:].isalnum() and translation.endswith(".") and not translation.endswith("..")
    return translation[:-1].rstrip() if added else translation


def wrong_with(source: str, translation: str, finished: str, same_language: bool) -> list[str]:
    """The flags of one sentence, from what was written alone."""
    found: list[str] = [one for one in flags(source.split(), translation.split()) if one != "copy" or not same_language]
    stutters = _STUTTER.search(translation[:10_000]) and not _STUTTER.search(source[:10_000])
    if stutters and "loop" not in found and not loops(source.split()):
        found.append("loop")
    lost = ["number"] if lost_numbers(source, translation) else []
    return [*lost, *found, *(["length"] if finished == "length" else [])]


def lost_numbers(source: str, translation: str) -> list[str]:
    """The numbers of two digits or more, web and e-mail addresses of a sentence that its translation does not have.

    Numbers are compared by their digits, so that 1,234.50 and 1 234,50 are the same.
    """
    addresses = [one for one in find_addresses(source) if one not in translation]
    if not _DIGIT.search(source):
        return addresses
    read, wrote = (
        Counter(_NUMBER.findall(_SEPARATOR.sub("", ADDRESS.sub(" ", text)))) for text in (source, translation)
    )
    return [*addresses, *(read - wrote).elements()]


def join_text(passage: Passage, translations: list[str]) -> str:
    """The translations with the white space and line breaks of the source around them."""
    pairs = zip(passage.gaps, [*translations, ""], strict=True)
    return "".join(gap + written for gap, written in pairs)


def worst(finished: list[str]) -> str:
    """How a text of several sentences ended."""
    return min(finished, key=_WORST.index)


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


def merge(values: list[list[str]]) -> list[str]:
    """Flags of several sentences, each once, in the order of NOTES."""
    present = {one for some in values for one in some}
    return [one for one in NOTES if one in present]
