"""A translation, and how it is made from what a search found: sentence by sentence, then the whole text."""

from dataclasses import dataclass, field

from regard.api import passages
from regard.api.tracing import Output
from regard.data.formats import Segment
from regard.data.vocabulary import Tokenised
from regard.decode.hypothesis import Hypothesis

_SPACES = str.maketrans("\u00a0\u202f", "  ")  # translations that differ in the kind of space are the same


@dataclass(frozen=True)
class Translation(Output):
    """A translation with its log-probabilities; as a string it is its text.

    `tokens` and `token_logprobs` are its pieces and their log-probabilities (one more than pieces: the end of the
    sentence), `score` is what the search ranks by, `nbest` lists the different candidates, at most as many as
    requested, and `finished` says how it ended. `unknown` are words of the source that were never seen in training,
    `unplaced` terms that are not in it.

    >>> found = regard.load("en-fr").translate("Where is the station?", nbest=3)
    >>> found.text, found.finished, found.flags
    ('Où est la gare ?', 'end', [])
    >>> found.nbest[0].score >= found.nbest[1].score
    True
    """

    # Words (for subwords: characters) of the source that were never seen in training.
    unknown: list[str] = field(default_factory=list, compare=False)
    flags: list[str] = field(default_factory=list, compare=False)  # what to know about it: see `notes`
    unplaced: list[str] = field(default_factory=list, compare=False)  # terms that could not be placed

    @property
    def notes(self) -> list[str]:
        """What a reader should know, in words: "the translation repeats itself", for example. Mostly nothing."""
        return [passages.NOTES[flag] for flag in self.flags]


@dataclass
class Draft:
    """A sentence while it is translated: what was found for it, the best first, and how each is spelled."""

    segment: Segment
    encoded: Tokenised
    found: list[Hypothesis] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)  # terms that could not be placed

    def candidates(self, nbest: int, sampled: bool) -> list[int]:
        """The numbers of the `nbest` different texts; samples may be alike."""
        alike = {text.translate(_SPACES): number for number, text in reversed(list(enumerate(self.texts)))}
        return (list(range(len(self.texts))) if sampled else sorted(alike.values()))[:nbest]


def join(passage: passages.Passage, sentences: list[list[Translation]]) -> Translation:
    """The translation of a text from those of its sentences: the best of each, the second best, ..."""
    if len(sentences) == 1 and passage.gaps == ["", ""]:
        return sentences[0][0]
    group: list[Translation] = []
    for rank in range(max(map(len, sentences))):
        chosen = [some[min(rank, len(some) - 1)] for some in sentences]
        group.append(
            Translation(
                text=passages.join_text(passage, [one.text for one in chosen]),
                score=sum(one.score for one in chosen),
                logprob=sum(one.logprob for one in chosen),
                tokens=[piece for one in chosen for piece in one.tokens],
                token_logprobs=[number for one in chosen for number in one.token_logprobs],
                finished=passages.worst([one.finished for one in chosen]),
                nbest=group,
                unknown=[word for one in chosen for word in one.unknown],
                unplaced=[term for one in chosen for term in one.unplaced],
                flags=passages.merge([*(one.flags for one in chosen), ["cut"] if passage.cut else []]),
            )
        )
    return group[0]
