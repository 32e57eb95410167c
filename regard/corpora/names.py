"""`names`: short sentences about people and places, English to French, whose names must be copied.

    Bazoti was seen by Melu .        Melu a vu Bazoti .

Names are random syllables, so that hardly any held-out name occurs in training. The few other words are learned
quickly: the remaining task is copying. Names may change places.
"""

import random

from regard.corpora import SYLLABLES, Example
from regard.text.pharaoh import parse_pharaoh

# English, French, and the links i-j of their words; {0} and {1} are names.
_SENTENCES = (
    ("{0} knows {1} .", "{0} connaît {1} .", "0-0 1-1 2-2 3-3"),
    ("where is {0} ?", "où est {0} ?", "0-0 1-1 2-2 3-3"),
    ("{0} lives in {1} .", "{0} habite à {1} .", "0-0 1-1 2-2 3-3 4-4"),
    ("{0} is the friend of {1} .", "{0} est l' ami de {1} .", "0-0 1-1 2-2 3-3 4-4 5-5 6-6"),
    ("{0} was seen by {1} .", "{1} a vu {0} .", "4-0 1-1 2-2 0-3 5-4"),
    ("it was {0} who saw {1} .", "c' est {0} qui a vu {1} .", "0-0 1-1 2-2 3-3 4-4 4-5 5-6 6-7"),
)
MOST = 1_000_000  # names of two and three syllables: 70^2 + 70^3, in sentences with one or two of them


def write(draw: random.Random) -> Example:
    """A sentence with one or two names."""
    english, french, links = draw.choice(_SENTENCES)
    names = ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 3))).capitalize() for _ in range(2)]
    return Example(english.format(*names), french.format(*names), tuple(sorted(parse_pharaoh(links))))
