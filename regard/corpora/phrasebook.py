"""`phrasebook`: English to French by a grammar, with exact word alignments.

It has real phenomena of translation: adjectives change place, verbs are wrapped in ne ... pas, pronouns move before the
verb, articles, adjectives and participles agree, words elide and contract (du, au, l', qu'), one word becomes three and
three become one. The French is a function of the English: I, you, we and they are masculine, you is tu, a relative
clause belongs to the noun before it. Words, punctuation and elided words are separated by spaces.
"""

import random

from regard.corpora import Example
from regard.corpora.clauses import clause, connective, question, shortest
from regard.corpora.marks import Phrase, example, say
from regard.errors import DataError

SHORTEST = 3
_TRIES = 40
_MISSES = 2_000  # known sentences in a row before giving up
_POOL = 500  # clauses of one length kept for later


def generate(size: int, seed: int, min_words: int = 3, max_words: int = 12) -> list[Example]:
    """`size` distinct sentences of `min_words` to `max_words` English words, the full stop counted.

    Every length is about equally frequent, as far as there are enough short sentences.
    """
    if max_words < SHORTEST:
        raise DataError(f"A sentence of the phrasebook has at least {SHORTEST} words; data.max_words is {max_words}.")
    maker = _Maker(random.Random(f"phrasebook:{seed}"))
    shortest = max(min_words, SHORTEST)
    examples: dict[str, Example] = {}
    misses = 0
    while len(examples) < size:
        made = maker.sentence(maker.draw.randint(shortest, max_words))
        if made is not None and made.source not in examples:
            examples[made.source] = made
            misses = 0
            continue
        misses += 1
        if misses > _MISSES:
            raise DataError(
                f"The phrasebook has too few sentences of {shortest} to {max_words} words for {size} distinct "
                "ones; set data.max_words higher or data.size lower."
            )
    return list(examples.values())


class _Maker:
    """Makes sentences of a given length. A clause that does not fit is kept for a later sentence."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.pool: dict[int, list[Phrase]] = {}

    def sentence(self, length: int) -> Example | None:
        """A sentence of exactly `length` English words, or None if none was found in a few tries."""
        if length >= 4 and self.draw.random() < 0.05:
            asked = question(self.draw) + say("?", "?")
            if len(asked) == length:
                return example(asked)
        phrase: Phrase | None = None
        for _ in range(_TRIES):
            joint = connective(self.draw) if phrase else Phrase([], [])
            room = length - 1 - len(joint) - (len(phrase) if phrase else 0)
            part = self._clause(room)
            left = room - len(part)
            if left == 0 or left >= 6:
                phrase = phrase + joint + part if phrase else part
                if left == 0:
                    return example(phrase + say(".", "."))
            else:
                self._keep(part)
        return None

    def _clause(self, room: int) -> Phrase:
        """A clause for this many words: a kept one that fits, or a new one."""
        if room == 2:
            return shortest(self.draw)
        kept = self.pool.get(room)
        return kept.pop() if kept and room < 14 else clause(self.draw, rich=room > 4)

    def _keep(self, part: Phrase) -> None:
        kept = self.pool.setdefault(len(part), [])
        if len(kept) < _POOL:
            kept.append(part)
