"""`questions`: a short story, a question about it, and the word that answers it.

    tom went to the garden . mary went to the kitchen . tom went to the office . where is mary ?        kitchen

The answer is the place where the person went last. With attention, query, key and value are the question, the person of
a sentence, and its place; the link of an example is that place. The stories are like those of the first bAbI task
(Weston et al. 2015) and are generated here. The question comes last, so that a model that reads forwards does not know
it while it reads the story and must attend.
"""

import random

from regard.corpora import Example

_NAMES = ("anna", "tom", "mary", "paul")
_PLACES = ("kitchen", "garden", "office", "school", "park", "station")
_WENT = ("went", "moved", "walked")
_FEWEST, _MOST = 2, 4  # sentences of a story
ROOM = 100_000  # far below the number of stories, so that distinct ones are found quickly


def write(draw: random.Random) -> Example:
    """A story of two to four sentences with its question."""
    story = [(draw.choice(_NAMES), draw.choice(_PLACES)) for _ in range(draw.randint(_FEWEST, _MOST))]
    person = draw.choice(story)[0]
    words: list[str] = []
    answer = 0
    for name, place in story:
        words += [name, draw.choice(_WENT), "to", "the", place, "."]
        if name == person:
            answer = len(words) - 2
    words += ["where", "is", person, "?"]
    return Example(" ".join(words), words[answer], ((answer, 0),))
