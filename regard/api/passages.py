"""Split a text of any length into sentences that a model can translate, and find problems of translations."""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from regard.data.vocabulary import Tokenised
from regard.decode.hypothesis import flags, loops
from regard.files.segment import ADDRESS, Builder, Segment, find_addresses, has_words
from regard.symbols import UNKNOWN
from regard.text.sentences import Span, split_clauses, split_sentences

NOTES = {  # flag -> what it means
    "unseen": "the source holds characters or words that were never seen in training",
    "language": "the source looks like another language than the one that the model reads",
    "lower-cased": "the source was lower-cased: the model was trained on lower-case text",
    "term": "the source has a term that could not be placed",
    "cut": "the source has a sentence that is longer than any in training and was cut at clauses",
    "number": "the source has a number, a web address or an e-mail address that the translation does not have",
    "loop": "the translation repeats itself",
    "copy": "the translation is the source again",
    "empty": "the translation is empty",
    "length": "the translation ran into the length limit",
}
_STUTTER = re.compile(r"(\w.{0,7}?)\1{7,}")  # the same few characters eight times
_SEPARATOR = re.compile(r"(?<=\d)[.,'’ \u00a0\u202f](?=\d)")  # 1,234.50 and 1 234,50 are the same number
_NUMBER = re.compile(r"\d{2,}")  # a single digit may be written as a word
_DIGIT = re.compile(r"\d")
_LINE = re.compile(r"[^\n]+")


class Passage(NamedTuple):
    """A text and its sentences to translate; the text between them is kept.

    A sentence is a segment: its addresses and placeholders are removed, and put back into its translation.
    """

    text: str
    spans: list[Span]  # of the sentences
    segments: list[Segment]
    encoded: list[Tokenised]
    cut: bool = False  # whether a long sentence was cut at clauses


def take_apart(text: str, encode: Callable[[str], Tokenised], most: int) -> Passage:
    """The sentences of each line of a text; those of more than `most` tokens are cut at clauses."""
    passage, cut = Passage(text, [], [], []), False
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
                    continue  # an address alone is kept
                passage.spans.append((begin, stop))
                passage.segments.append(segment)
                passage.encoded.append(whole if segment.text == text[start:end] else encode(segment.text))
    if not passage.segments:  # white space, or nothing to translate
        return keep_whole("", encode)._replace(text=text if text.strip() else "")
    return passage._replace(cut=cut)


def keep_whole(text: str, encode: Callable[[str], Tokenised]) -> Passage:
    """The text as one sentence, as it is."""
    return Passage(text, [(0, len(text))], [Segment(text, (), text, text)], [encode(text)])


def end_alike(source: str, translation: str) -> str:
    """The translation without a full stop at its end that its source does not have: titles and labels have none."""
    added = source[-1:].isalnum() and translation.endswith(".") and not translation.endswith("..")
    return translation[:-1].rstrip() if added else translation


def wrong_with(source: str, translation: str, finished: str, same_language: bool) -> list[str]:
    """The flags of one sentence, by its text alone."""
    found: list[str] = [
        flag for flag in flags(source.split(), translation.split()) if flag != "copy" or not same_language
    ]
    stutters = _STUTTER.search(translation[:10_000]) and not _STUTTER.search(source[:10_000])
    if stutters and "loop" not in found and not loops(source.split()):
        found.append("loop")
    lost = ["number"] if lost_numbers(source, translation) else []
    return [*lost, *found, *(["length"] if finished == "length" else [])]


def lost_numbers(source: str, translation: str) -> list[str]:
    """The numbers of two digits or more, web and e-mail addresses of a sentence that its translation does not have.

    Numbers are compared by their digits, so that 1,234.50 and 1 234,50 are the same.
    """
    addresses = [address for address in find_addresses(source) if address not in translation]
    if not _DIGIT.search(source):
        return addresses
    read, wrote = (
        Counter(_NUMBER.findall(_SEPARATOR.sub("", ADDRESS.sub(" ", text)))) for text in (source, translation)
    )
    return [*addresses, *(read - wrote).elements()]


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


# --- languages: the code of one, then common words of it
_COMMON = """
    de der die das und ist nicht ein eine einen einem einer ich sie er wir zu mit den dem des von auf für dass auch es
    de sind wird haben habe hat war wie bei im zum aus mir mich dir ihr sich nach als um kann was mein wenn
    de wo wer wann warum bitte danke guten hier heute
    en the and of to a in is that it was for you with are this have not be they from what which there would been his
    en her your we he she my do i don t s ll re ve m has had will can as at by on or an if me him them us our who how
    en when where why all no so did does please thanks hello
    es el la los las un una es y que en de por con para no se del como pero más está son lo su sus este esta yo muy qué
    es al mi tu te me le ha hay fue si ya todo nos dónde cómo cuándo quién gracias hola buenos aquí hoy
    fr le la les l des du de d un une est et en dans que qu qui pour pas ne n sur avec sont ce c cette ces nous vous
    fr ils elle mais ou je j tu il au aux être ai à a été se s son sa ses leur par plus on mon ma suis as fait tout
    fr très où es si y t m me te lui quand quel quelle merci bonjour ici
    it il lo la gli le un una è e che di in per non con sono del della dei delle questo questa come ma più anche nel
    it alla ha ho mi si ti io al da se suo molto dov quando quale grazie buongiorno qui oggi
    nl de het een en van is dat niet op te zijn met voor ik je hij aan die er maar ook wordt was we naar in om heeft
    nl als ze mijn dit bij nog uit waar hoe wat wie waarom bedankt goedemorgen hier vandaag
    pt o a os as um uma é e que não de para com em do da dos das no na mais por se como mas está são eu ele ela você
    pt isso seu sua muito foi me ao onde quando quem obrigado olá aqui hoje
"""
_WORDS: dict[str, set[str]] = {}
for _language, *_words in map(str.split, _COMMON.strip().split("\n")):
    _WORDS.setdefault(_language, set()).update(_words)
_IN_NAMES = (
    "a as d da das de dei del della den der des di do dos du e el en es in l la las le les lo los o os van von y"
)
_READ = 400  # words of a text that are compared


def common_words(text: str, language: str) -> int:
    """How many words of a text are common ones of a language; 0 if the language is not listed.

    >>> common_words("Je ne sais pas.", "fr"), common_words("Je ne sais pas.", "en")
    (3, 0)
    """
    known = _WORDS.get(language.replace("_", "-").split("-")[0].lower(), set())
    return sum(map(known.__contains__, re.findall(r"[^\W\d_]+", text.lower())[:_READ]))


def other_language(text: str, own: str) -> str:
    """The code of the language that `text` is in by its most common words, if that is clearly not `own`; else "".

    It is another language if a quarter of all words are common words of it, three times as many as those of `own`, and
    two of them are not words of `own` or parts of names ("de la", "von der"). Short sentences and languages that are
    not listed are not recognised.
    """
    own = own.replace("_", "-").split("-")[0].lower()
    if own not in _WORDS:
        return ""
    words = re.findall(r"[^\W\d_]+", text.lower())[:_READ]
    counts = {language: sum(map(known.__contains__, words)) for language, known in _WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    proofs = (set(words) & _WORDS[best]) - _WORDS[own] - set(_IN_NAMES.split())
    plainly = len(proofs) >= 2 and 4 * counts[best] >= len(words) and counts[best] >= 3 * counts[own]
    return best if plainly else ""
