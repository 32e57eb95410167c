"""A translation, and how it is made from the hypotheses of a search: sentence by sentence, then the whole text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.api import passages
from regard.api.passages import other_language
from regard.api.trained import Output
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.ensemble import Ensemble
from regard.decode.hypothesis import Hypothesis
from regard.decode.settings import DecodeConfig
from regard.files.place import spell
from regard.files.segment import Segment, Sentence, join_sentences
from regard.models.contract import attentions_to_source
from regard.symbols import UNKNOWN

_SPACES = str.maketrans("\u00a0\u202f", "  ")  # translations that differ in the kind of space are the same


@dataclass(frozen=True)
class Translation(Output):
    """A translation with its log-probabilities; `str(translation)` is its text.

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
    flags: list[str] = field(default_factory=list, compare=False)  # problems: see `notes`
    unplaced: list[str] = field(default_factory=list, compare=False)  # terms that could not be placed

    @property
    def notes(self) -> list[str]:
        """The flags in words, such as "the translation repeats itself". Most translations have none.

        >>> regard.load("en-fr").translate("The zxqkj 漢").notes
        ['the source holds characters or words that were never seen in training']
        """
        return [passages.NOTES[flag] for flag in self.flags]


@dataclass
class Draft:
    """A sentence that is being translated: its hypotheses, the best first, and their texts."""

    segment: Segment
    encoded: Tokenised
    found: list[Hypothesis] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)  # terms that could not be placed

    def candidates(self, nbest: int, sampled: bool) -> list[int]:
        """The numbers of the `nbest` different texts; samples may be alike."""
        alike = {text.translate(_SPACES): number for number, text in reversed(list(enumerate(self.texts)))}
        return (list(range(len(self.texts))) if sampled else sorted(alike.values()))[:nbest]


class Written(Protocol):
    """The parts of a translator that turn hypotheses into texts."""

    model: Any
    target_vocabulary: Vocabulary
    source_language: str
    target_language: str
    lowercases: bool

    def weigh(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[Any]: ...

    def link_words(self, sources: Sequence[str], targets: Sequence[str], terms: Any = None) -> list[Any]: ...


def spell_drafts(
    translator: Written, drafts: list[Draft], lexicon: Mapping[str, str] | None, split: bool, terms: Any = None
) -> None:
    """Fill in the texts of each draft: unknown words are copied from the source if there is a `lexicon`, and with
    `split` what was removed from the sentence is put back."""
    for draft in drafts:
        draft.texts = [translator.target_vocabulary.decode(hypothesis.ids) for hypothesis in draft.found]
    if lexicon is not None and not isinstance(translator.model, Ensemble) and attentions_to_source(translator.model):
        written = ((draft, at, hypothesis) for draft in drafts for at, hypothesis in enumerate(draft.found))
        unknown = [(draft, at) for draft, at, hypothesis in written if UNKNOWN in hypothesis.ids]
        pairs = [draft.encoded.ids for draft, _ in unknown], [draft.found[at].ids for draft, at in unknown]
        for (draft, at), weights in zip(unknown, translator.weigh(*pairs), strict=True):
            ids, vocabulary = draft.found[at].ids, translator.target_vocabulary
            draft.texts[at] = copy_unknown(draft.encoded, ids, weights, vocabulary, lexicon)
    if not split:
        return
    for draft in drafts:
        draft.texts = [passages.end_alike(draft.segment.text, text) for text in draft.texts]
    tagged = [(draft, at) for draft in drafts if draft.segment.tags for at in range(len(draft.texts))]
    texts = [draft.segment.text for draft, _ in tagged], [draft.texts[at] for draft, at in tagged]
    for (draft, at), linked in zip(tagged, translator.link_words(*texts, terms), strict=True):
        source = draft.segment.text
        draft.texts[at] = spell(draft.segment, join_sentences(source, [(0, len(source))], [linked]))


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


def wrong_with_source(translator: Written, encoded: Tokenised) -> tuple[list[str], list[str]]:
    """The parts of a sentence that were never seen in training, and its flags."""
    unknown, text = passages.unseen(encoded), encoded.text
    wrong = {
        "unseen": bool(unknown),
        "language": bool(other_language(text, translator.source_language)),
        "lower-cased": translator.lowercases and text.lower() != text,
    }
    return unknown, [flag for flag, holds in wrong.items() if holds]


def translations_of(translator: Written, draft: Draft, config: DecodeConfig) -> list[Translation]:
    """The different translations of one sentence, the best first."""
    group: list[Translation] = []
    unknown, before = wrong_with_source(translator, draft.encoded)
    before += ["term"] if draft.unplaced else []
    same = translator.source_language == translator.target_language
    for number in draft.candidates(config.nbest, sampled=config.temperature > 0):
        hypothesis, text = draft.found[number], draft.texts[number]
        ended = hypothesis.ended if draft.encoded.ids else "empty"
        flags = [*before, *passages.wrong_with(draft.segment.inner, text, ended, same)]
        pieces = translator.target_vocabulary.pieces(hypothesis.ids)
        numbers = hypothesis.score, hypothesis.logprob, pieces, hypothesis.token_logprobs
        group.append(Translation(text, *numbers, ended, group, unknown, flags, draft.unplaced))
    return group


def join(passage: passages.Passage, sentences: list[list[Translation]]) -> Translation:
    """The translation of a text from those of its sentences: the best of each, the second best, ..."""
    if passage.spans == [(0, len(passage.text))]:
        return sentences[0][0]
    group: list[Translation] = []
    ends = ("not finite", "stopped", "length", "end", "empty")  # the worst first
    for rank in range(max(map(len, sentences))):
        chosen = [candidates[min(rank, len(candidates) - 1)] for candidates in sentences]
        flags = {*(flag for part in chosen for flag in part.flags), *(["cut"] if passage.cut else [])}
        group.append(
            Translation(
                text=join_sentences(passage.text, passage.spans, [Sentence(part.text) for part in chosen]).text,
                score=sum(part.score for part in chosen),
                logprob=sum(part.logprob for part in chosen),
                tokens=[piece for part in chosen for piece in part.tokens],
                token_logprobs=[number for part in chosen for number in part.token_logprobs],
                finished=min((part.finished for part in chosen), key=ends.index),
                nbest=group,
                unknown=[word for part in chosen for word in part.unknown],
                unplaced=[term for part in chosen for term in part.unplaced],
                flags=[flag for flag in passages.NOTES if flag in flags],
            )
        )
    return group[0]
