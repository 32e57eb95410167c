"""A text as the sentences that a model translates (drafts), and the translation of the whole text from theirs."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.api.flags import NOTES, join_notes, lost_numbers
from regard.api.trained import Output
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.hypothesis import Hypothesis
from regard.evaluate.confidence import Confidence
from regard.files.place import spell
from regard.files.segment import PROTECTED, Segment, Sentence, as_it_is, find_addresses, join_sentences, protect
from regard.symbols import UNKNOWN
from regard.text.normalise import well_formed
from regard.text.sentences import Span, has_words, sentences_of_lines, split_clauses

Encode = Callable[[str], Tokenised]
# Read instead of the only address of a sentence: models copy this name, and write the preposition that it needs.
NAME = "Google"
# Read instead of amounts and large numbers, if one was lost: models copy small numbers before the word of a currency.
SMALL = ("25", "48", "36", "72", "54")
CURRENCIES = {  # language -> sign -> plural of its name, which ends with s
    "en": {"$": "dollars", "€": "euros", "£": "pounds"},
    "fr": {"$": "dollars", "€": "euros", "£": "livres"},
}
_AMOUNT = re.compile(  # a sign and its number, a number and its sign, or a number with marks or of five digits
    r"(?<![\w.,:/-])(?:([$€£])[ \u00a0]?(\d+(?:[.,\u00a0\u202f]\d+)*)"
    r"|(\d+(?:[.,\u00a0\u202f]\d+)*)[ \u00a0\u202f]?([$€£])"
    r"|(\d+(?:[.,\u00a0\u202f]\d+)+|\d{5,}))(?![\w:/]|[.,]\d)"
)
# The marks between thousands and before decimals in a language.
NUMBERS = {"en": (",", "."), "fr": ("\u00a0", ",")}
_ENDS = ("not finite", "stopped", "length", "end", "empty")  # how a sentence ended, the worst first


@dataclass(frozen=True)
class Translation(Output):
    r"""A translation with its log-probabilities; `str(translation)` is its text.

    `tokens` and `token_logprobs` are its pieces and their log-probabilities (one more than pieces: the end of the
    sentence), `score` is what the search ranks by, `nbest` lists the different candidates, at most as many as
    requested, and `finished` says how it ended. `unknown` are words of the source that were never seen in training,
    `unplaced` terms that are not in it. `confidence` is filled in on request.

    >>> found = regard.load("en-fr").translate("Where is the station?", nbest=3)
    >>> found.text, found.finished, found.flags
    ('Où est la gare\xa0?', 'end', [])
    >>> found.nbest[0].score >= found.nbest[1].score
    True
    """

    # Words (for subwords: characters) of the source that were never seen in training.
    unknown: list[str] = field(default_factory=list, compare=False)
    noted: dict[str, str] = field(default_factory=dict, compare=False)  # problems: `flags`, each with its note
    unplaced: list[str] = field(default_factory=list, compare=False)  # terms that could not be placed
    confidence: Confidence | None = field(default=None, compare=False)  # of a text, that of its least certain sentence

    @property
    def flags(self) -> list[str]:
        """What may be wrong with the translation, as short names such as "loop": see `notes`.

        >>> regard.load("en-fr").translate("The zxqkj 漢").flags
        ['unseen']
        """
        return list(self.noted)

    @property
    def notes(self) -> list[str]:
        """The flags in words, such as "the translation repeats itself". Most translations have none.

        >>> regard.load("en-fr").translate("The zxqkj 漢").notes
        ['the source holds characters or words that were never seen in training']
        >>> regard.load("en-fr").translate("Je ne sais pas où est la gare.").notes
        ['the source looks like French, but the model reads English']
        """
        return list(self.noted.values())


@dataclass
class Draft:
    """A sentence that is being translated: its hypotheses, the best first, and their texts."""

    span: Span  # in the text
    source: str
    encoded: Tokenised  # of `words`
    words: str = ""  # what the model reads
    protected: Segment | None = None  # without its addresses, placeholders and symbols, if it has some
    stand_ins: dict[str, str] = field(default_factory=dict)  # what is read in the place of what; put back by `restore`
    capitals: bool = False  # whether words in capitals are read as ordinary ones; the translation is in capitals
    found: list[Hypothesis] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    candidates: list[Translation] = field(default_factory=list)  # the different ones, the best first
    unplaced: list[str] = field(default_factory=list)  # terms that could not be placed


@dataclass
class Text:
    """A text and the drafts of its sentences; what is between them is kept."""

    text: str
    drafts: list[Draft]
    cut: bool = False  # whether a long sentence was cut at clauses


def whole(text: str, encode: Encode) -> Text:
    """The text as one sentence, as it is."""
    return Text(text, [Draft((0, len(text)), text, encode(text), text)])


def split(text: str, encode: Encode, most: int) -> Text:
    """The sentences of each line of a text, without the labels of list items; those of more than `most` tokens, as they
    are read, are cut at clauses."""
    text = well_formed(text)
    result = Text(text, [])
    for start, end in sentences_of_lines(text):
        typed = encode(text[start:end])
        parts = [read(text, (start, end), typed, encode)]
        if len((parts[0].encoded if parts[0].capitals else typed).ids) > most:
            pieces = parts[0].encoded if len(parts[0].words) == end - start else typed  # in capitals: as read
            clauses = split_clauses(text, (start, end), [start + begin for begin, _ in pieces.spans], most)
            parts = [read(text, span, encode(text[slice(*span)]), encode) for span in clauses]
            result.cut = True
        result.drafts += [draft for draft in parts if has_words(draft.words)]  # an address or a rule is kept
    if not result.drafts:  # white space, or nothing to translate
        return Text(text if text.strip() else "", whole("", encode).drafts)
    return result


def read(text: str, span: Span, typed: Tokenised, encode: Encode) -> Draft:
    """The draft of a sentence: without what must not change, and in lower case if it is in capitals."""
    source = text[slice(*span)]
    draft = Draft(span, source, typed, source, protect(source) if PROTECTED.search(source) else None)
    if draft.protected:
        draft.words = draft.protected.text
        draft.encoded = encode(draft.words)
    if draft.words.isupper():
        recase(draft, encode)
    return draft


def lower(text: str) -> str:
    """A text in capitals as a sentence, character by character: only its first letter and the word I stay."""
    first = next((at for at, character in enumerate(text) if character.isalpha()), 0)
    lowered = "".join(character.lower() if len(character.lower()) == 1 else character for character in text)
    return text[: first + 1] + re.sub(r"(?<!\w)i(?!\w)", "I", lowered[first + 1 :])


def recase(draft: Draft, encode: Encode) -> None:
    """Read a sentence in capitals as an ordinary one, if the vocabulary then knows its words better: it takes fewer
    unknown tokens, or fewer tokens. NATO and other short forms stay."""
    forms = [draft.words, lower(draft.words), lower(draft.words).lower()]
    read = [draft.encoded, *(encode(form) for form in forms[1:])]
    costs = [(one.ids.count(UNKNOWN), len(one.ids)) for one in read]
    best = costs.index(min(costs))
    if best and len(forms[best]) == len(forms[0]):
        draft.words, draft.encoded, draft.capitals = forms[best], read[best], True


def name_address(draft: Draft, encode: Encode) -> None:
    """Read a sentence with NAME for its address, if it has one address, nothing else to protect, and a vocabulary that
    knows the name."""
    found = find_addresses(draft.source)
    if len(found) != 1 or draft.capitals:
        return
    named = draft.source.replace(found[0], NAME)
    encoded = encode(named)
    if (
        named.count(NAME) == 1
        and protect(named) is None
        and encoded.ids.count(UNKNOWN) == draft.encoded.ids.count(UNKNOWN)
    ):
        draft.stand_ins, draft.words, draft.encoded = {NAME: found[0]}, named, encoded


def leave_address(draft: Draft, encode: Encode) -> None:
    """Read a sentence without its address instead."""
    assert draft.protected is not None
    draft.stand_ins, draft.words = {}, draft.protected.text
    draft.encoded = encode(draft.words)


def with_small_numbers(draft: Draft, read: str, write: str, encode: Encode) -> Draft | None:
    """What to read where the translation of a sentence has lost a number: small numbers in the place of its amounts
    and large numbers, and names of currencies instead of signs. None where nothing is lost, or cannot be replaced."""
    if draft.protected or not draft.texts or not lost_numbers(draft.source, draft.texts[0]):
        return None
    free = iter([number for number in SMALL if number not in draft.source])
    names, stand_ins = CURRENCIES.get(read, {}), dict[str, str]()

    def replace(found: re.Match[str]) -> str:
        number, sign = found[2] or found[3] or found[5], found[1] or found[4]
        stand_in = next(free, "") if len(number) > 1 else number
        stand_ins[stand_in] = respell(number, read, write)
        if sign not in names:
            return found[0].replace(number, stand_in)
        return f"{stand_in} {names[sign].removesuffix('s' if number == '1' else '')}"

    words = _AMOUNT.sub(replace, draft.words)
    if not stand_ins or "" in stand_ins:
        return None
    return dataclasses.replace(draft, words=words, encoded=encode(words), stand_ins=stand_ins, found=[], texts=[])


def keeps(draft: Draft, vocabulary: Vocabulary) -> bool:
    """Whether the best hypothesis has every stand-in exactly once; others that have not are left out."""
    kept = [
        one
        for one in draft.found
        for text in [vocabulary.decode(one.ids)]
        if all(len(_standing(stand_in).findall(text)) == 1 for stand_in in draft.stand_ins)
    ]
    if kept[:1] != draft.found[:1]:
        return False
    draft.found = kept
    return True


def _standing(stand_in: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.,]){stand_in}(?!\w|[.,]\d)")


def restore(draft: Draft, text: str) -> str:
    """A text with what its stand-ins stand for."""
    for stand_in, own in draft.stand_ins.items():
        text = _standing(stand_in).sub(own.replace("\\", r"\\"), text)
    return text


def end_alike(source: str, translation: str) -> str:
    """The translation without a full stop at its end that its source does not have: titles and labels have none."""
    added = source[-1:].isalnum() and translation.endswith(".") and not translation.endswith("..")
    return translation[:-1].rstrip() if added else translation


def respell(number: str, read: str, write: str) -> str:
    """A number as the other language writes it: 1,200.50 as 1 200,50. One without marks, or with others, stays."""
    (comma, point), (own_comma, own_point) = NUMBERS.get(read, ("", "")), NUMBERS.get(write, ("", ""))
    number = number.replace("\u202f", "\u00a0")
    if (
        not comma
        or not own_comma
        or not re.fullmatch(rf"(?:\d+|\d{{1,3}}(?:{comma}\d{{3}})+)(?:[{point}]\d+)?", number)
    ):
        return number
    whole, _, rest = number.partition(point)
    return whole.replace(comma, own_comma) + (own_point + rest if rest else "")


def write_numbers(source: str, translation: str, read: str, write: str) -> str:
    """The translation with the large numbers of the source as its language writes them: models copy 1,200.50, which is
    1 200,50 in French. A number without marks, and one with plain spaces, stay."""
    if read == write or read not in NUMBERS or write not in NUMBERS:
        return translation
    comma, point = NUMBERS[read]
    numbers = re.findall(
        rf"(?<![\d.,\u00a0])\d{{1,3}}(?:{comma}\d{{3}})+(?:[{point}]\d+)?(?![.,\u00a0]?\d)",
        source.replace("\u202f", "\u00a0"),
    )
    for number in dict.fromkeys(numbers):
        whole, _, rest = number.partition(point)
        own = respell(number, read, write)
        found = "[., \u00a0\u202f]?".join(whole.split(comma)) + (f"[.,]{rest}" if rest else "")

        def rewrite(one: re.Match[str], own: str = own) -> str:
            return one[0] if one[0].isdecimal() or re.sub("[ \u202f]", "\u00a0", one[0]) == own else own

        translation = re.sub(rf"(?<![\d.,]){found}(?![.,]?\d)", rewrite, translation)
    return translation


def put_back(draft: Draft, translated: Sentence) -> str:
    """The translation of a sentence with its addresses, placeholders and symbols."""
    assert draft.protected is not None
    joined = join_sentences(draft.words, [(0, len(draft.words))], [translated])
    return spell(draft.protected, joined, str.upper if draft.capitals else as_it_is)


def copy_unknown(
    encoded: Tokenised, ids: list[int], weights: NDArray[np.float32], vocabulary: Vocabulary, lexicon: Mapping[str, str]
) -> str:
    """The translation `ids` with each unknown word replaced by the source word with its largest weight, or by the
    lexicon's entry for that word (Luong et al. 2015, section 3.3)."""
    pieces: list[str] = []
    for at, index in enumerate(ids):
        if index != UNKNOWN:
            continue
        seen = weights[at, : len(encoded.ids)]
        if not seen.any():  # a model with one vector for the whole source has no weights
            return vocabulary.decode(ids)
        word = encoded.text[slice(*encoded.spans[int(np.argmax(seen))])].strip()
        pieces.append(lexicon.get(word, lexicon.get(word.lower(), word)))
    # A placeholder for each unknown word, so that the vocabulary decides on white space.
    parts = vocabulary.decode(ids).split(vocabulary.pieces([UNKNOWN])[0])
    if len(parts) != len(pieces) + 1:
        return vocabulary.decode(ids)
    return "".join(part + word for part, word in zip(parts, [*pieces, ""], strict=True))


def join(text: Text) -> Translation:
    """The translation of a text from those of its sentences: the best of each, the second best, ..."""
    if len(text.drafts) == 1 and text.drafts[0].span == (0, len(text.text)):
        return text.drafts[0].candidates[0]
    group: list[Translation] = []
    for rank in range(max(len(draft.candidates) for draft in text.drafts)):
        chosen = [draft.candidates[min(rank, len(draft.candidates) - 1)] for draft in text.drafts]
        cut = {"cut": NOTES["cut"]} if text.cut else {}
        parts, reached = [], 0
        for draft, part in zip(text.drafts, chosen, strict=True):
            parts += [text.text[reached : draft.span[0]], part.text]
            reached = draft.span[1]
        group.append(
            Translation(
                text="".join([*parts, text.text[reached:]]),
                score=sum(part.score for part in chosen),
                logprob=sum(part.logprob for part in chosen),
                tokens=[piece for part in chosen for piece in part.tokens],
                token_logprobs=[number for part in chosen for number in part.token_logprobs],
                finished=min((part.finished for part in chosen), key=_ENDS.index),
                nbest=group,
                unknown=[word for part in chosen for word in part.unknown],
                unplaced=[term for part in chosen for term in part.unplaced],
                noted=join_notes([cut, *(part.noted for part in chosen)]),
                confidence=least([part.confidence for part in chosen if part.confidence]),
            )
        )
    return group[0]


def least(parts: list[Confidence]) -> Confidence | None:
    """The confidence of a text: that of its least certain sentence, and all words."""
    words = [word for part in parts for word in part.words]
    return Confidence(min(part.sentence for part in parts), words) if parts else None
