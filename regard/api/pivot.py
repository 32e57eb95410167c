"""Translation through a third language: two translators, of which the second reads what the first has written."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from regard.api.drafts import Translation
from regard.api.flags import join_notes
from regard.api.terms import TermPairs
from regard.api.translator import Translator
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, RunError
from regard.evaluate.confidence import Confidence
from regard.files.segment import Sentence, chain_links
from regard.look.trace import Trace
from regard.text.languages import without_region
from regard.work import Progress


class Pivot:
    """Two translators as one: French to English and English to German translate French to German.

    `regard.load` makes one for a pair of languages without a model.
    """

    def __init__(self, first: Translator, second: Translator) -> None:
        self.first, self.second = first, second
        self.name = f"{first.name}+{second.name}"
        self.source_language, self.target_language = first.source_language, second.target_language
        self.source_vocabulary = first.source_vocabulary
        between = [without_region(code) for code in (first.target_language, second.source_language) if code]
        if len(set(between)) > 1:
            raise RunError(
                f"{first.name} translates into {between[0]}, but {second.name} from {between[1]}; they must be "
                f"the same."
            )

    def settings(self, **changes: Any) -> DecodeConfig:
        """The [decode] settings of the second model; changes that either refuses are refused."""
        self.first.settings(**{**changes, "nbest": 1})
        return self.second.settings(**changes)

    def check_calibrated(self) -> None:
        """Refuse models whose confidence is not calibrated."""
        self.first.check_calibrated()
        self.second.check_calibrated()

    def too_long(self, text: str, most: int) -> str:
        """The length of a text of more than `most` tokens; empty if it is shorter."""
        return self.first.too_long(text, most)

    def translate(
        self,
        text: str | Sequence[str],
        *,
        terms: TermPairs | None = None,
        lexicon: Any = None,
        nbest: int = 1,
        max_tokens: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Any:
        """Translate one text, or a list of them in order; options as for `Translator.translate`.

        A result has the flags of both translations, the unknown words of the first, and the pieces of the second. Score
        and log-probability are sums, and the confidence of a sentence is the product of both.
        """
        if terms or lexicon or options.get("prefix") is not None:
            raise ConfigError(
                "Terms, a lexicon and a prefix are for one model, and this translates with two; leave them out."
            )
        if isinstance(text, str):
            return self.translate([text], nbest=nbest, max_tokens=max_tokens, progress=progress, **options)[0]
        begun = self.first.translate(list(text), max_tokens=max_tokens, **options)
        middle = [one.text for one in begun]
        ended = self.second.translate(middle, nbest=nbest, progress=progress, **options)
        return [_chain(*pair) for pair in zip(begun, ended, strict=True)]

    def look(self, source: str, **options: Any) -> tuple[Trace, Trace]:
        """The traces of both translations of a sentence; options as for `Translator.look`."""
        begun = self.first.look(source, **options)
        return begun, self.second.look(begun.target.text, **options)

    def link_words(self, sources: Sequence[str], targets: Sequence[str], terms: Any = None) -> list[Sentence]:
        """Each translation with links to the words of its source, over the words of the first translation."""
        middle = [one.text for one in self.first.translate(list(sources))]
        begun, ended = self.first.link_words(sources, middle), self.second.link_words(middle, targets)
        return [Sentence(b.text, chain_links(a.links, b.links)) for a, b in zip(begun, ended, strict=True)]


def _chain(begun: Translation, ended: Translation) -> Translation:
    """The second translation, with what the first says about the source."""
    group: list[Translation] = []
    for one in ended.nbest or [ended]:
        sure = None
        if begun.confidence and one.confidence:
            sure = Confidence(begun.confidence.sentence * one.confidence.sentence, one.confidence.words)
        group.append(
            dataclasses.replace(
                one,
                score=begun.score + one.score,
                logprob=begun.logprob + one.logprob,
                finished=begun.finished if begun.finished not in ("end", "empty") else one.finished,
                nbest=group,
                unknown=begun.unknown,
                noted=join_notes([begun.noted, one.noted]),
                confidence=sure,
            )
        )
    return group[0]
