"""A trained translator: text in, translation out.

`translate` has four steps: the sentences of the text (drafts.py), the search (regard.decode), the texts of what was
found (`spell`), and the text of all sentences. What looks inside a translator is in looking.py and aligning.py, which
are imported when they are needed.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.api import drafts, flags
from regard.api.drafts import Draft, Translation
from regard.api.heads import Heads, read_together
from regard.api.terms import Placement, Termbase, TermPairs, elide, place_terms
from regard.api.trained import Trained
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.beam import SearchStep
from regard.decode.ensemble import Ensemble
from regard.decode.hypothesis import Hypothesis, Weigh
from regard.decode.search import decode_many
from regard.decode.settings import DecodeConfig
from regard.decode.steps import SearchRequest
from regard.decode.terms import Terms
from regard.errors import ConfigError, DataError, RunError
from regard.evaluate.confidence import Calibration, Decoded
from regard.evaluate.scores import METRICS, ScoreReport, perplexity, score
from regard.files.segment import Sentence
from regard.models.contract import attentions_to_source
from regard.runs.expects import knows_no_capitals, languages_of
from regard.runs.experiment import Experiment
from regard.symbols import END, PAD, UNKNOWN
from regard.text.normalise import one_line
from regard.work import Progress, reporting

if TYPE_CHECKING:
    from regard.interop.ctranslate2 import Engine
    from regard.look.attribution import Attribution
    from regard.look.trace import Trace

TERM_BEAM = 8  # smallest beam of a search for terms: one for each token of a term, and some without it
CHARACTERS = 16  # a text with more characters than this times the allowed tokens is refused without tokenising it
BATCH_TOKENS = (4096, 65536)  # source tokens in a batch over all beams, on a CPU and on a GPU
_SPACES = str.maketrans("\u00a0\u202f", "  ")  # translations that differ in the kind of space are the same
Observe = Callable[[SearchStep], None]


class Translator(Trained):
    """A model with its vocabularies; `regard.load` makes one from a run folder.

    >>> translator = regard.load("en-fr/bahdanau")
    >>> translator.source_language, translator.target_language
    ('en', 'fr')
    """

    model: nn.Module

    def __init__(
        self,
        model: nn.Module,
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        experiment: Experiment,
        name: str,
        heads: Heads | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        super().__init__(model, experiment, name)
        self.heads = heads or Heads()  # whose weights align words
        self.calibration = calibration  # of the confidence
        self.source_vocabulary, self.target_vocabulary = source_vocabulary, target_vocabulary
        self.engine: Engine | None = None  # used by `translate` instead of regard's own search
        read = source_vocabulary
        self.lowercases = knows_no_capitals(read)  # trained on lower-case text, so that input is lower-cased
        self._reader = Vocabulary(read.tokens, read.kind, read.form, lowercase=True) if self.lowercases else read
        self.source_language, self.target_language = languages_of(experiment.data)

    @property
    def about(self) -> dict[str, Any]:
        """The description of the model in a trace."""
        return {
            "id": self.name,
            "name": self.experiment.name,
            "kind": "transformer" if self.experiment.name == "transformer" else "rnn",
            "source_language": self.source_language,
            "target_language": self.target_language,
        }

    @overload
    def translate(self, text: str, **options: Any) -> Translation: ...

    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[Translation]: ...

    def translate(
        self,
        text: str | Sequence[str],
        *,
        prefix: str | Sequence[str | Sequence[int]] | None = None,
        split: bool = True,
        terms: TermPairs | None = None,
        lexicon: Mapping[str, str] | None = None,
        unknown: str = "copy",
        confidence: bool = False,
        max_tokens: int | None = None,
        progress: Progress | None = None,
        observe: Observe | None = None,
        stop: Callable[[], bool] | None = None,
        **settings: Any,
    ) -> Translation | list[Translation]:
        r"""Translate one text, or a list of them in order.

        A text is translated sentence by sentence and joined again with its own white space and line breaks; a sentence
        that is longer than any in training is cut at clauses. Addresses, paths, @names, placeholders such as {name} and
        emoji are kept as they are, and a sentence in capitals is read as an ordinary one and written in capitals. A
        sentence whose translation loses an amount or a large number is translated again with a small one in its place.
        `flags` of the result lists problems. An empty line gives an empty translation.

        `settings` are those of [decode] (beam, nbest, temperature, length_penalty, ...). With `nbest=3`, the result is
        the best translation, and its `nbest` lists the three candidates. `prefix` is a text, or one for
        each text, that the translation must start with; with `split=False`, and with a prefix, each text is one
        sentence. `terms` are source words that must become given target words, as a mapping or pairs; `unplaced` of the
        result lists those that could not be placed. With `unknown="copy"`, unknown words of the translation become the
        source words with their largest weight, or the entries of `lexicon` for those; "keep" leaves them. With
        `confidence`, the result has the calibrated confidence of each sentence and word. A text of
        more than `max_tokens` is not translated: its `finished` is "too long". `progress(done, total)` is called after
        batches, `observe(step)` with every step of a beam search, and `stop() -> bool` before every step.

        >>> translator = regard.load("en-fr/bahdanau")
        >>> [str(found) for found in translator.translate(["Where is the station?", ""], beam=5)]
        ['Où est la gare\xa0?', '']
        """
        texts = list(text) if isinstance(text, Iterable) and not isinstance(text, str | bytes) else [text]
        for given in texts:
            one_line(given)  # refuses what is not text
        if unknown not in ("copy", "keep"):
            raise ConfigError(f"unknown must be 'copy' or 'keep'; got {unknown!r:.40}.")
        if confidence:
            self.check_calibrated()
        config = self.settings(**settings)
        prefixes = None
        if prefix is not None:
            wanted = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
            if len(wanted) != len(texts):
                raise DataError(f"Expected one prefix for each sentence, {len(texts)} in all; got {len(wanted)}.")
            prefixes, split = list(map(self.prefix_ids, wanted)), False
        skipped = [] if max_tokens is None else [at for at, one in enumerate(texts) if self.too_long(one, max_tokens)]
        for at in skipped:
            texts[at] = ""
        read = partial(drafts.split, most=self.experiment.data.max_length) if split else drafts.whole
        parts = [read(given, self.encode) for given in texts]
        sentences = [draft for part in parts for draft in part.drafts]
        if not terms:
            for draft in sentences:
                if draft.protected:
                    drafts.name_address(draft, self.encode)
        # The whole beam: some hypotheses may have the same text, or hold a term as a part of a longer word.
        several = config.nbest > 1 and not config.temperature
        whole = dataclasses.replace(config, nbest=config.beam) if several else config
        plain: Any = self.engine.search if self.engine else self.search
        search = partial(self.search, observe=observe) if observe else plain
        todo = sentences
        while todo:
            rows = [draft.encoded.ids for draft in todo]
            beams = search(rows, whole, prefixes=prefixes, progress=progress if todo is sentences else None, stop=stop)
            searched, todo = todo, []
            for draft, hypotheses in zip(searched, beams, strict=True):
                draft.found = hypotheses
                if draft.stand_ins and not drafts.keeps(draft, self.target_vocabulary):
                    drafts.leave_address(draft, self.encode)
                    todo.append(draft)
        if terms:
            self._place_terms(self.termbase(terms), sentences, prefixes, config, stop)
        copied = None if unknown == "keep" else lexicon or {}
        self.spell(sentences, copied, split, terms)
        lost: list[Draft] = []
        for draft in sentences:
            draft.candidates = self.candidates(draft, config, confidence)
            if "number" in draft.candidates[0].flags:
                lost.append(draft)
        if lost and split and not terms:
            for draft in self._recover_numbers(lost, lambda rows: plain(rows, whole, stop=stop), copied):
                draft.candidates = self.candidates(draft, config, confidence)
        translations = list(map(drafts.join, parts))
        for at in skipped:
            translations[at] = dataclasses.replace(translations[at], finished="too long")
        return translations[0] if isinstance(text, str) else translations

    def _recover_numbers(
        self, sentences: list[Draft], search: Callable[[list[list[int]]], list[list[Hypothesis]]],
        lexicon: Mapping[str, str] | None,
    ) -> Iterator[Draft]:  # fmt: skip
        """Translate sentences that have lost a number again, with small numbers; where the translation then has all
        numbers of its source, it takes the place of the first one, and the draft is yielded."""
        languages = self.source_language, self.target_language
        again = [(draft, drafts.with_small_numbers(draft, *languages, self.encode)) for draft in sentences]
        pairs = [(draft, small) for draft, small in again if small]
        beams = search([small.encoded.ids for _, small in pairs]) if pairs else []
        for (_, small), hypotheses in zip(pairs, beams, strict=True):
            small.found = hypotheses
        kept = [(draft, small) for draft, small in pairs if drafts.keeps(small, self.target_vocabulary)]
        self.spell([small for _, small in kept], lexicon, True)
        for draft, small in kept:
            if small.texts and not flags.lost_numbers(draft.source, small.texts[0]):
                draft.words, draft.encoded, draft.stand_ins = small.words, small.encoded, small.stand_ins
                draft.found, draft.texts = small.found, small.texts
                yield draft

    @torch.inference_mode()
    def search(
        self, rows: Sequence[Sequence[int]], config: DecodeConfig, progress: Progress | None = None, **request: Any
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each row of source ids; `request` are the fields of a `SearchRequest`."""

        def coverage(source: Tensor, lengths: Tensor) -> Weigh:
            from regard.api.aligning import weigher

            self.needs_one_model("use the coverage penalty")
            return weigher(self.model, source, lengths)

        tokens, asked = BATCH_TOKENS[self.device.type == "cuda"], SearchRequest(**request)
        model: Any = self.model
        return decode_many(
            model, rows, config, self.device, batch_tokens=tokens, weigher=coverage, progress=progress, request=asked
        )

    def spell(
        self, sentences: list[Draft], lexicon: Mapping[str, str] | None, split: bool, terms: TermPairs | None = None
    ) -> None:
        """Fill in the texts of each draft: unknown words are copied from the source if there is a `lexicon`, and with
        `split` the addresses and placeholders of the sentence are put back."""
        vocabulary = self.target_vocabulary
        unknown: list[tuple[Draft, int, list[int]]] = []
        for draft in sentences:
            draft.texts = []
            for at, hypothesis in enumerate(draft.found):
                draft.texts.append(vocabulary.decode(hypothesis.ids))
                if UNKNOWN in hypothesis.ids:
                    unknown.append((draft, at, hypothesis.ids))
        if unknown and lexicon is not None and self.attends:
            pairs = [draft.encoded.ids for draft, _, _ in unknown], [ids for _, _, ids in unknown]
            for (draft, at, ids), weights in zip(unknown, self.weigh(*pairs), strict=True):
                draft.texts[at] = drafts.copy_unknown(draft.encoded, ids, weights, vocabulary, lexicon)
        if not split:
            return
        base, languages = self.termbase(terms) if terms else None, (self.source_language, self.target_language)
        protected: list[Draft] = []
        for draft in sentences:
            for at, text in enumerate(draft.texts):
                text = drafts.end_alike(draft.words, text)
                text = drafts.write_numbers(draft.words, text, *languages)
                if base:
                    text = elide(text, base, draft.words, self.target_language)
                if draft.stand_ins:
                    text = drafts.restore(draft, text)
                draft.texts[at] = text.upper() if draft.capitals and not draft.protected else text
            if draft.protected and not draft.stand_ins:
                protected.append(draft)
        if protected:
            read = [draft.words for draft in protected for _ in draft.texts]
            linked = iter(self.link_words(read, [text for draft in protected for text in draft.texts], terms))
            for draft in protected:
                draft.texts = [drafts.put_back(draft, next(linked)) for _ in draft.texts]

    def candidates(self, draft: Draft, config: DecodeConfig, confidence: bool = False) -> list[Translation]:
        """The different translations of one sentence, the best first; samples may be alike."""
        unknown, before = self.check_source(draft.encoded)
        before |= {"term": flags.NOTES["term"]} if draft.unplaced else {}
        same = self.source_language == self.target_language
        group: list[Translation] = []
        seen: set[str] = set()
        for hypothesis, text in zip(draft.found, draft.texts, strict=True):
            alike = text.translate(_SPACES) in seen and not config.temperature
            if alike or len(group) == config.nbest:
                continue
            seen.add(text.translate(_SPACES))
            ended = hypothesis.ended if draft.encoded.ids else "empty"
            noted = before | {flag: flags.NOTES[flag] for flag in flags.wrong_with(draft.source, text, ended, same)}
            pieces = self.target_vocabulary.pieces(hypothesis.ids)
            numbers = hypothesis.score, hypothesis.logprob, pieces, hypothesis.token_logprobs
            sure = None
            if confidence and self.calibration and draft.encoded.ids:
                sure = self.calibration.rate(self.decoded(draft.encoded, hypothesis.ids, hypothesis.token_logprobs))
                words = [(drafts.restore(draft, word), chance) for word, chance in sure.words]
                languages = self.source_language, self.target_language
                words = [  # of the text, whose numbers are those of its language
                    (word if word in text else drafts.write_numbers(draft.words, word, *languages), chance)
                    for word, chance in words
                ]
                sure = dataclasses.replace(sure, words=words)
            group.append(Translation(text, *numbers, ended, group, unknown, noted, draft.unplaced, sure))
        return group

    def check_source(self, encoded: Tokenised) -> tuple[list[str], dict[str, str]]:
        """The parts of a sentence that were never seen in training, and its flags with their notes."""
        unknown, text = flags.unseen(encoded), encoded.text
        noted = {"unseen": flags.NOTES["unseen"]} if unknown else {}
        if note := flags.language_note(text, self.source_language):
            noted["language"] = note
        if self.lowercases and text.lower() != text:
            noted["lower-cased"] = flags.NOTES["lower-cased"]
        return unknown, noted

    def termbase(self, terms: TermPairs) -> Termbase:
        """Terms as sentences of this translator have them."""
        return Termbase(terms, self.source_vocabulary.comparable, self.target_vocabulary.in_form)

    def _place_terms(
        self, terms: Termbase, sentences: list[Draft], prefixes: list[list[int]] | None, config: DecodeConfig,
        stop: Callable[[], bool] | None,
    ) -> None:  # fmt: skip
        """Search again for the sentences whose translation misses terms."""
        self.needs_one_model("place terms")
        beam = max(config.beam, TERM_BEAM)
        wide = dataclasses.replace(config, beam=beam, nbest=beam, temperature=0.0, top_k=0, top_p=1.0)

        def search(rows: list[list[int]], ways: list[Placement], joined: list[int]) -> list[list[Hypothesis]]:
            wanted = Terms([way.terms for way in ways], [way.replaced for way in ways], joined)
            prefixes = [way.prefix for way in ways]
            return self.search(rows, wide, terms=wanted, prefixes=prefixes, stop=stop) if rows else []

        place_terms(terms, sentences, prefixes, self.target_vocabulary, search, self.weigh)

    # --- texts and ids

    def encode(self, text: str) -> Tokenised:
        """The pieces of a source sentence, without END."""
        return self._reader.encode(one_line(text))

    def prefix_ids(self, prefix: str | Sequence[int]) -> list[int]:
        """The ids of a translation or a prefix of one, given as text or as ids, without END.

        A space at the end of a text is removed: it would become a separate piece, which few words can follow.
        """
        if isinstance(prefix, str):
            return self.target_vocabulary.encode(one_line(prefix).rstrip()).ids
        try:
            ids = [operator.index(index) for index in prefix]
        except TypeError:
            raise DataError(f"A translation is text or a list of token ids; got {prefix!r:.60}.") from None
        pieces = self.target_vocabulary.pieces(ids)  # refuses ids outside the vocabulary
        for index, piece in zip(ids, pieces, strict=True):
            if index < UNKNOWN:
                raise DataError(f"A translation cannot contain the symbol {piece} (token {index}); leave it out.")
        return ids

    def inputs(self, text: str) -> tuple[Tensor, Tensor]:
        """One source sentence [1, S] and its length [1], END included."""
        source = torch.tensor([[*self.encode(text).ids, END]], device=self.device)
        return source, torch.tensor([source.shape[1]], device=self.device)

    def too_long(self, text: str, most: int) -> str:
        """The length of a text of more than `most` tokens, as "5000 tokens"; empty if it is shorter."""
        if len(text.encode("utf-8", "replace")) <= most:
            return ""  # a token has at least one byte
        if len(text) > CHARACTERS * most:
            return f"{len(text)} characters"
        tokens = len(self.encode(text).ids)
        return f"{tokens} tokens" if tokens > most else ""

    # --- probabilities and scores

    def alternatives(self, source: str, prefix: str | Sequence[int] = "", k: int = 10) -> list[tuple[str, float]]:
        """The k most likely next pieces after a prefix of the translation, with their probabilities.

        >>> translator = regard.load("en-fr/bahdanau")
        >>> [piece for piece, chance in translator.alternatives("Where is the station?", "Où", k=2)]
        ['▁est', '▁se']
        """
        target = torch.tensor([[*self.prefix_ids(prefix), END]], device=self.device)
        with torch.inference_mode():
            chances = self.model(*self.inputs(source), target)[0, -1].softmax(-1)  # [V]
        best = chances.topk(min(k, len(chances)))
        pieces = self.target_vocabulary.pieces(best.indices.tolist())
        return list(zip(pieces, best.values.tolist(), strict=True))

    def score(
        self, source: Sequence[str], target: Sequence[str], metrics: Sequence[str] = METRICS, **options: Any
    ) -> ScoreReport:
        """Translate `source` and score it against the references `target`; options as for `translate`.

        >>> print(regard.load("en-fr").score(["Where is the station?"], ["Où est la gare ?"], metrics=["bleu"]))
        BLEU 100.00 ...
        """
        check_references(source, target)
        options = {"split": False, **options}  # the segments of a test set stay as they are
        written = [translation.text for translation in self.translate(list(source), **options)]
        return score(written, list(target), metrics=metrics)

    def perplexity(self, source: Sequence[str], target: Sequence[str], progress: Progress | None = None) -> float:
        """exp of the mean negative log-likelihood per reference token, END included.

        >>> translator = regard.load("en-fr")
        >>> good, bad = (translator.perplexity(["Where is it?"], [one]) for one in ("Où est-il ?", "Il y a dix."))
        >>> good < bad
        True
        """
        check_references(source, target)
        encoded, wanted = [self.encode(text).ids for text in source], [self.prefix_ids(text) for text in target]
        total, batches = 0.0, read_together(encoded, wanted, self.device)
        for _, read, lengths, gold in reporting(batches, progress, len(encoded), lambda batch: len(batch[0])):
            with torch.inference_mode():
                logits = self.model(read, lengths, gold).flatten(0, 1)  # [B T, V]
                total += float(F.cross_entropy(logits, gold.flatten(), ignore_index=PAD, reduction="sum"))
        return perplexity(total, max(1, sum(map(len, wanted)) + len(wanted)))  # END counted

    def check_calibrated(self) -> None:
        """Refuse a translator whose confidence is not calibrated."""
        if isinstance(self.model, Ensemble):
            raise RunError("An ensemble has no calibrated confidence; load one of its runs.")
        if self.calibration is None:
            raise RunError(
                f"The confidence of {self.name} is not calibrated for its weights; run `regard calibrate` with the run "
                f"and held-out sentences, --source FILE --target FILE."
            )

    def decoded(self, encoded: Tokenised, ids: list[int], logprobs: list[float]) -> Decoded:
        """What the confidence of a translation is computed from."""
        text, words = self.target_vocabulary.decode(ids), self.target_vocabulary.words_of(ids)
        if words and max(words) != len(text.split()) - 1:  # bytes that are no characters, or white space alone
            words = self.target_vocabulary.tokenised(ids).words
        return Decoded(encoded.text, self.source_language, len(encoded.ids), text, words, logprobs)

    # --- attention

    @property
    def attends(self) -> bool:
        """Whether there is one model, and its attention reads the source."""
        return not isinstance(self.model, Ensemble) and bool(attentions_to_source(self.model))

    def needs_one_model(self, what: str) -> None:
        """Refuse an ensemble."""
        if isinstance(self.model, Ensemble):
            raise RunError(f"An ensemble has no single attention; load one of its runs to {what}.")

    def weigh(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[Any]:
        """The weights [T, S] of each pair of ids by which words are linked."""
        from regard.api.aligning import weigh_ids

        return weigh_ids(self.model, self.heads, sources, targets, self.device)

    def look(self, source: str, target: str | Sequence[int] | None = None, **options: Any) -> "Trace":
        r"""Translate `source` (or force `target`) and return the trace of every attention module.

        The trace is exact: the translation goes through `forward` once more with all layers and heads recorded. The
        options, and their defaults:

        - `changes=()`: what-ifs (see `regard.look.change`), such as `Mask("station")`; a `Force` sets the word of one
          step. The trace lists all of them.
        - `prefix=None`: what the translation must start with, also a what-if.
        - `terms=None`: as for `translate`; the trace is of the translation with these terms.
        - `tree=False`: whether to keep the beam search tree.
        - `topk=5`: the number of alternatives kept for each word.
        - `by=()`: methods of `attribute`, whose results the trace gets as well, and `against=None`: a word that they
          compare with.

        Other options are the [decode] settings.

        >>> trace = regard.load("en-fr/bahdanau").look("Where is the station?")
        >>> trace
        Trace('Where is the station?' -> 'Où est la gare\xa0?'; weights of decoder.attention [1, 7, 6])
        """
        from regard.api.looking import look

        return look(self, source, target, **options)

    def attribute(
        self,
        source: str,
        target: str | Sequence[int] | None = None,
        method: str = "attention",
        against: str | None = None,
        *,
        words: bool = True,
        **options: Any,
    ) -> "Attribution":
        """From which source words each word of the translation of `source` (or of a forced `target`) came.

        `method` is attention, attention-norm, rollout, alti, value-zeroing, gradient, integrated-gradients,
        occlusion-masked, occlusion-unknown or occlusion-removed; `regard.look.attribution` defines them. The attention
        methods take the run's aligning head, or LAYER or LAYER.HEAD as in "attention:1.0". With `against`, the gradient
        and occlusion methods say why each word was written and not that one. `words=False` keeps subword pieces apart.
        Other options are those of `look`.

        >>> found = regard.load("en-fr/bahdanau").attribute("The cat sleeps.", "Le chat dort.", "occlusion-masked")
        >>> found.rows[2], found.columns[found.matrix[2].argmax()]
        ('dort', 'sleeps')
        """
        from regard.look.attribution import Attribution

        trace = self.look(source, target, by=method, against=against, topk=0, **options)
        return Attribution.of(trace, [*trace.attention][-1], words)

    def align(self, source: str, target: str) -> list[tuple[int, int]]:
        """The links (source word, target word), from 0, of a sentence and its translation, in words as white space
        separates them: each target word with the source word of its largest attention weight.

        The weights are those of the run's aligning head, as for `regard align`.

        >>> regard.load("en-fr/bahdanau").align("The black cat sleeps .", "Le chat noir dort .")
        [(0, 0), (1, 2), (2, 1), (3, 3), (4, 4)]
        """
        from regard.api.aligning import align_pair

        return align_pair(self, one_line(source), one_line(target))

    def link_words(
        self, sources: Sequence[str], targets: Sequence[str], terms: TermPairs | None = None
    ) -> list[Sentence]:
        """Each translation with the links of its words.

        The weights are those of the run's aligning head (chosen by `regard align --choose`, or guided in training),
        else of the last layer but one. A sentence that is too long to trace, and a model without attention, get the
        links of the diagonal. `terms` are linked with their own source words.
        """
        from regard.api.aligning import link_words

        return link_words(self, sources, targets, self.termbase(terms) if terms else None)


def check_references(source: Sequence[str], target: Sequence[str]) -> None:
    """Refuse sentences and references that are not two lists of equal length."""
    if isinstance(source, str) or isinstance(target, str):
        raise DataError("Pass a list of sentences and a list of their references; got a single text.")
    if len(source) != len(target):
        raise DataError(f"Each sentence needs its reference; got {len(source)} and {len(target)}.")
