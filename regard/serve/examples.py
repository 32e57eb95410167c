"""Example sentences for the page, and how well a text fits a vocabulary.

Languages are detected twice, for two questions. `regard.text.languages` needs no model: is this text clearly in another
language than the model's? It flags translations. `fit` answers which of the loaded languages a text is in, for
`source=auto`: by the vocabularies, which know languages that the word lists do not, with the lists as further evidence.
"""

import math
import re

from regard.corpora import Example
from regard.corpora.registry import find_builtin
from regard.data.settings import DataConfig
from regard.data.vocabulary import Vocabulary
from regard.symbols import UNKNOWN
from regard.text.languages import common_words, other_language

EXAMPLES = 4
COMMON = 2.0  # nats by which a common word of a language is shorter
# For models of real text: crossing links, negation, a question, and 40 words.
SENTENCES = {
    "en": [
        "The red door of the white house is not open.",
        "Where is the station?",
        "She did not sign the agreement on the European Economic Area.",
        "Although the committee had discussed the proposal for several hours, the members who were present could not "
        "agree on the amount of money that should be given to the regions which had suffered most from the floods of "
        "last spring.",
    ],
    "fr": [
        "La porte rouge de la maison blanche n'est pas ouverte.",
        "Où est la gare ?",
        "Elle n'a pas signé l'accord sur l'Espace économique européen.",
    ],
}
# Sentences of 10 to 40 words, to compare models with and without attention.
LENGTHS = {
    "en": [
        "The committee could not agree on the amount of money.",
        "The members of the committee who were present could not agree on the amount of money for the regions.",
        "After several hours the members of the committee who were present could not agree on the amount of money that "
        "should be given to the regions which had suffered.",
        SENTENCES["en"][-1],
    ]
}
EXAMPLE_WORDS = 8  # in a generated example, at most


def generate(data: DataConfig, count: int) -> list[Example]:
    """New sentences of a generated corpus; none for other data."""
    if not data.corpus:
        return []
    longest = max(data.min_words, min(data.max_words, EXAMPLE_WORDS))
    return find_builtin(data.corpus).generate(count, data.seed + 1, data.min_words, longest)


def fit(text: str, vocabulary: Vocabulary, language: str) -> tuple[float, float]:
    """How well a text fits a vocabulary, from 0 to 1, and its code length in nats.

    The fit is 1 if every word is one piece, and 0 if all words are unknown or spelled letter by letter. It is also 0 if
    the common words are clearly those of another language. The length is that of a code in which all pieces are equally
    likely and common words of the language are shorter: the language with the shorter code is likelier, even if both
    share a joint vocabulary.
    """
    words, letters = len(text.split()), len(re.sub(r"\s+", "", text))
    if not words:
        return 0.0, 0.0
    pieces = 0
    for index, piece, (start, end) in zip(*vocabulary.encode(text)[:3], strict=True):
        if not text[start:end].isspace():
            strange = index == UNKNOWN or piece.startswith("<0x")
            pieces += max(1, end - start) + 1 if strange else 1
    whole = words if vocabulary.kind != "char" and letters > words else 0
    spelled = letters if whole else 2 * letters
    fits = (spelled - pieces) / (spelled - (whole or letters))
    length = pieces * math.log(len(vocabulary)) - COMMON * common_words(text, language)
    return 0.0 if other_language(text, language) else max(0.0, min(1.0, fits)), length
