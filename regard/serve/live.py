"""A translation while it is written, in the process of its model: the best beginning after every step of the search."""

from collections.abc import Callable

from regard.api.translation import Translation
from regard.api.translator import Translator
from regard.decode.beam import SearchStep


def follow(translator: Translator, text: str, emit: Callable[[str], None], stop: Callable[[], bool]) -> Translation:
    """Translate one sentence; `emit` gets its beginning whenever that changes."""
    return translator.translate(text, observe=Live(translator.target_vocabulary.decode, emit), stop=stop)


class Live:
    """The best translation so far of one sentence, from the steps of its search."""

    def __init__(self, decode: Callable[[list[int]], str], emit: Callable[[str], None]) -> None:
        self.decode, self.emit = decode, emit
        self._beams: dict[int, list[int]] = {}  # slot -> tokens
        self._ended = float("-inf")  # the best score of a finished translation
        self._said = ""

    def __call__(self, step: SearchStep) -> None:
        """Take in a step. The rows of a sentence that was cut at clauses are not followed."""
        if len(step.sentences) != 1:
            return
        before: dict[int, list[int]] = {0: []} if step.number == 1 else self._beams
        parents, tokens, slots, scores = (part[0].tolist() for part in (step.parent, step.token, step.slot, step.score))
        kept = [place for place, slot in enumerate(slots) if slot >= 0]
        self._beams = {slots[one]: [*before.get(parents[one], []), tokens[one]] for one in kept}
        ended = [score for score, over in zip(scores, step.ended[0].tolist(), strict=True) if over]
        self._ended = max([self._ended, *ended])
        if not kept or scores[kept[0]] < self._ended:
            return
        text = self.decode(self._beams[slots[kept[0]]])  # candidates come with the best first
        if text and text != self._said:
            self._said = text
            self.emit(text)
