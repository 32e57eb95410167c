"""A trained translator: translate, score, and trace attention."""

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.api.heads import Heads
from regard.api.languages import other_language
from regard.api.passages import NOTES, Passage, join_text, keep_whole, merge, take_apart, unseen, worst, wrong_with
from regard.api.terms import Asked, Termbase, copy_unknown, place_terms
from regard.api.tracing import (
    Output,
    Trained,
    beam_of,
    check_length,
    describe_forced,
    read_together,
    spelled,
    tokens_of,
    trace_forward,
    trace_pairs,
)
from regard.data.builtin.registry import find_builtin
from regard.data.expects import knows_no_capitals
from regard.data.files import Progress
from regard.data.normalise_text import rewrite
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.batches import decode_many
from regard.decode.beam import SearchStep
from regard.decode.ensemble import Ensemble
from regard.decode.hypothesis import Hypothesis, Weigh
from regard.decode.settings import DecodeConfig
from regard.decode.terms import Terms
from regard.errors import ConfigError, DataError, RunError
from regard.evaluate.scores import METRICS, ScoreReport, perplexity, score
from regard.interop.ctranslate2 import Engine
from regard.look.change import Change, Changed, Force, change
from regard.look.record import record
from regard.look.trace import Trace
from regard.models.contract import Looking
from regard.symbols import END, UNKNOWN
from regard.training.experiment import Experiment
from regard.training.objectives import cross_entropy
from regard.training.translation import guided_head, guided_module

TERM_BEAM = 8  # beams at least of a search for terms: one for each token of a term, and some without it
CHARACTERS = 16  # a text of more than the allowed tokens times this is not even tokenised
BATCH_TOKENS = (4096, 65536)  # source tokens in a batch over all beams, on a CPU and on a GPU


@dataclasses.dataclass(frozen=True)
class Translation(Output):
    """A translation with its log-probabilities; as a string it is its text.

    `tokens` and `token_logprobs` are its pieces and their log-probabilities (one more than pieces: the end of the
    sentence), `score` is what the search ranks by, `nbest` lists the requested candidates, and `finished` says how it
    ended. `unknown` are words of the source that were never seen in training, `unplaced` terms that are not in it.

    >>> found = regard.load("en-fr").translate("Where is the station?", nbest=3)
    >>> found.text, found.finished, found.flags
    ('Où est la gare ?', 'end', [])
    >>> len(found.nbest), found.nbest[0].score >= found.nbest[1].score
    (3, True)
    """

    # Words (for subwords: characters) of the source that were never seen in training.
    unknown: list[str] = dataclasses.field(default_factory=list, compare=False)
    flags: list[str] = dataclasses.field(default_factory=list, compare=False)  # what to know about it: see `notes`
    unplaced: list[str] = dataclasses.field(default_factory=list, compare=False)  # terms that could not be placed

    @property
    def notes(self) -> list[str]:
        """What a reader should know, in words: "the translation repeats itself", for example. Mostly nothing."""
        return [NOTES[flag] for flag in self.flags]


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
    ) -> None:
        super().__init__(model, experiment, name)
        self.heads = heads or Heads()  # whose weights say which words belong together
        self.source_vocabulary, self.target_vocabulary = source_vocabulary, target_vocabulary
        self.engine: Engine | None = None  # what translates instead of regard's own search
        self.lowercases = knows_no_capitals(source_vocabulary)  # trained on lower-case text, so it reads no other
        of = source_vocabulary
        self._reader = Vocabulary(of.tokens, of.kind, of.form, lowercase=True) if self.lowercases else of
        made = find_builtin(experiment.data.corpus) if experiment.data.corpus else None
        self.source_language: str = experiment.data.source_language or (made.source_language if made else "")
        self.target_language: str = experiment.data.target_language or (made.target_language if made else "")

    @property
    def about(self) -> dict[str, Any]:
        """What a trace says about the model."""
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

    def translate(self, text: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """Translate one text, or a list of them in order.

        A text is translated sentence by sentence and put together again with its own white space and line breaks; a
        sentence that is longer than any in training is cut at clauses. `flags` of the result say what is not right.
        Options are the [decode] settings (beam, nbest, temperature, length_penalty, ...), `prefix` (a text, or one for
        each text, that the translation must start with), `split=False` (take each text as one sentence, as with a
        prefix), `terms` (source words that must become given target words, as a mapping or pairs; `unplaced` of the
        result lists those that could not be placed), `unknown="copy"` (unknown words of the translation become the
        source words with their largest weight, or what `lexicon` says for those; "keep" leaves them),
        `progress(done, total)`, `observe(step)`, shown every step of a beam search, and `stop() -> bool`, called before
        every step. An empty line gives an empty translation.

        >>> translator = regard.load("en-fr/bahdanau")
        >>> [str(one) for one in translator.translate(["Where is the station?", ""], beam=5)]
        ['Où est la gare ?', '']
        """
        if isinstance(text, bytes) or not isinstance(text, Iterable):
            raise DataError(f"A sentence is text; got {type(text).__name__}.")
        texts = [text] if isinstance(text, str) else list(text)
        for one in texts:
            clean(one)  # refuses what is no text
        prefix = options.pop("prefix", None)
        progress, observe, stop = (options.pop(name, None) for name in ("progress", "observe", "stop"))
        split = options.pop("split", True) and prefix is None
        terms, lexicon = options.pop("terms", None), options.pop("lexicon", None)
        unknown = options.pop("unknown", "copy")
        if unknown not in ("copy", "keep"):
            raise ConfigError(f"unknown must be copy or keep; got {unknown!r:.40}.")
        if terms and prefix is not None:
            raise ConfigError("prefix and terms cannot be given together: both say how the translation begins.")
        config = self.settings(**options)
        most = self.experiment.data.max_length
        passages = [take_apart(one, self.encode, most) if split else keep_whole(one, self.encode) for one in texts]
        rows = [encoded.ids for passage in passages for encoded in passage.encoded]
        prefixes = None
        if prefix is not None:
            wanted = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
            if len(wanted) != len(texts):
                raise DataError(f"Expected one prefix for each of the {len(texts)} sentences; got {len(wanted)}.")
            prefixes = [self.prefix_ids(one) for one in wanted]
        search: Any = self._search_many if self.engine is None or observe else self.engine.search
        if observe:
            search = partial(search, observe=observe)
        found = search(rows, config, prefixes=prefixes, tell=progress, stop=stop)
        sentences = [sentence for passage in passages for sentence in passage.sentences]
        encoded = [one for passage in passages for one in passage.encoded]
        unplaced: list[list[str]] = [[] for _ in sentences]
        if terms:
            self.needs_one_model("place terms")
            # All of the beam: in the best hypothesis the term may have become part of a longer word.
            beam = max(config.beam, TERM_BEAM)
            wide = dataclasses.replace(config, beam=beam, nbest=beam, temperature=0.0, top_k=0, top_p=1.0)
            unplaced = place_terms(
                Termbase(terms),
                sentences,
                encoded,
                found,
                self.target_vocabulary,
                partial(self._search_terms, config=wide, stop=stop),
                self._weigh,
            )
            found = [some[: config.nbest] for some in found]
        copied = self._copy_unknown(sentences, encoded, found, lexicon or {}) if unknown == "copy" else {}
        each = iter(self._translations(*one, copied) for one in zip(sentences, encoded, found, unplaced, strict=True))
        translations = [self._join(passage, [next(each) for _ in passage.encoded]) for passage in passages]
        return translations[0] if isinstance(text, str) else translations

    def look(
        self,
        source: str,
        target: str | Sequence[int] | None = None,
        *,
        changes: Sequence[Change] = (),
        prefix: str | Sequence[int] | None = None,
        tree: bool = False,
        topk: int = 5,
        **options: Any,
    ) -> Trace:
        """Translate `source` (or force `target`) and return the trace of every attention module.

        The trace is exact: the translation goes through `forward` once more with all layers and heads recorded.
        `changes` are what-ifs (see `regard.look.change`), and so is `prefix`, which the translation must start with;
        a `Force` sets the word of one step. The trace lists all of them. `tree` keeps the beam search tree, `topk` is
        the number of alternatives kept for each word. Other options are the [decode] settings.

        >>> trace = regard.load("en-fr/bahdanau").look("Where is the station?")
        >>> trace
        Trace('Where is the station?' -> 'Où est la gare ?'; weights of decoder.attention [1, 7, 7])
        """
        self.needs_one_model("look inside")
        encoded = self.encode(source)
        if not encoded.ids or not source.split():
            raise DataError("There is nothing to look at in an empty sentence; pass at least one word.")
        check_length(encoded.ids)
        forces = sorted((one for one in changes if isinstance(one, Force)), key=lambda one: one.t)
        if (prefix is not None or forces) and target is not None:
            raise DataError("A target excludes a prefix and forced words; pass one or the other.")
        begins = None if prefix is None else self.prefix_ids(prefix)
        forced_words = describe_forced(self.target_vocabulary, begins)
        steps: list[SearchStep] = []
        unknown, flags = self._wrong_with_source(source, encoded)
        with torch.inference_mode(), change(self.model, *(one for one in changes if one not in forces)) as changed:
            if target is None:
                config = self.settings(**options)
                for force in forces:
                    begins, rows = self._force(encoded.ids, config, begins or [], force, changed)
                    forced_words.append({**force.describe(), "rows": rows})
                changed.restart()
                hypothesis = self._search(encoded.ids, config, steps if tree else None, begins)[0]
                written = hypothesis.ids if hypothesis.ids and not hypothesis.finished else [*hypothesis.ids, END]
                said = self.target_vocabulary.decode(hypothesis.ids)
                flags += wrong_with(source, said, hypothesis.ended, self.source_language == self.target_language)
            else:
                written = [*self.prefix_ids(target), END]
                check_length(written[:-1])
            made = (*changed.describe(), *forced_words)
            seen = {"unseen": {"words": unknown}}  # what a note holds besides its flag and sentence
            notes = [{"flag": flag, "text": NOTES[flag], **seen.get(flag, {})} for flag in flags]
            batch = torch.tensor([[*encoded.ids, END]], device=self.device)  # [1, S]
            inputs = batch, torch.tensor([batch.shape[1]], device=self.device)
            sides = tokens_of(encoded, ended=True), spelled(self.target_vocabulary, written)
            beam = beam_of(steps, self.target_vocabulary) if steps else None
            parts = {"changes": made, "notes": notes, "beam": beam, "about": self.about}
            return trace_forward(self.model, inputs, written, sides, self.target_vocabulary, topk, **parts)

    def trace_pairs(self, sources: Sequence[str], targets: Sequence[str], names: Sequence[str]) -> list[Trace]:
        """The traces of given translations, in order, with the weights of the modules `names` only."""
        self.needs_one_model("look inside")
        encoded = [self.encode(source) for source in sources]
        written = [self.prefix_ids(target) for target in targets]
        return trace_pairs(self.model, self.target_vocabulary, self.about, encoded, written, names)

    def alternatives(self, source: str, prefix: str | Sequence[int] = "", k: int = 10) -> list[tuple[str, float]]:
        """The k most likely next pieces after a prefix of the translation, with their probabilities.

        >>> translator = regard.load("en-fr/bahdanau")
        >>> [piece for piece, chance in translator.alternatives("Where is the station?", "Où", k=2)]
        ['▁est', '▁se']
        """
        ids = self.prefix_ids(prefix)
        batch = torch.tensor([[*self.encode(source).ids, END]], device=self.device)
        lengths = torch.tensor([batch.shape[1]], device=self.device)
        target = torch.tensor([[*ids, END]], device=self.device)
        with torch.inference_mode():
            chances = self.model(batch, lengths, target)[0, -1].softmax(-1)  # [V]
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
        options = {"split": False, **options}  # the segments of a test set stay as they are
        return score([one.text for one in self.translate(list(source), **options)], list(target), metrics=metrics)

    def perplexity(self, source: Sequence[str], target: Sequence[str], progress: Progress | None = None) -> float:
        """exp of the mean negative log-likelihood per reference token, END included.

        >>> translator = regard.load("en-fr")
        >>> good, bad = (translator.perplexity(["Where is it?"], [one]) for one in ("Où est-il ?", "Il y a dix."))
        >>> good < bad
        True
        """
        if len(source) != len(target):
            raise DataError(f"Each sentence needs its reference; got {len(source)} sentences and {len(target)}.")
        pairs = [
            ([*self.encode(one).ids, END], [*self.prefix_ids(other), END])
            for one, other in zip(source, target, strict=True)
        ]
        total, done = 0.0, 0
        for _, read, lengths, gold in read_together(pairs, self.device):
            with torch.inference_mode():
                total += float(cross_entropy(self.model(read, lengths, gold), gold)[1])
            done += len(read)
            if progress:
                progress(done, len(pairs))
        return perplexity(total, max(1, sum(len(written) for _, written in pairs)))

    def prefix_ids(self, prefix: str | Sequence[int]) -> list[int]:
        """The ids of a translation or a prefix of one, given as text or as ids, without END."""
        if isinstance(prefix, str):
            return self.target_vocabulary.encode(clean(prefix)).ids
        try:
            ids = [operator.index(index) for index in prefix]
        except TypeError:
            raise DataError(f"A translation is text or a list of token ids; got {prefix!r:.60}.") from None
        pieces = self.target_vocabulary.pieces(ids)  # refuses ids outside the vocabulary
        for index, piece in zip(ids, pieces, strict=True):
            if index < UNKNOWN:
                raise DataError(f"A translation cannot contain the symbol {piece} (token {index}); leave it out.")
        return ids

    def too_long(self, text: str, most: int) -> str:
        """The length of a text of more than `most` tokens, as "5000 tokens"; nothing where it is shorter."""
        if len(text.encode("utf-8", "replace")) <= most:
            return ""  # a token has at least one byte
        if len(text) > CHARACTERS * most:
            return f"{len(text)} characters"
        tokens = len(self.encode(text).ids)
        return f"{tokens} tokens" if tokens > most else ""

    def encode(self, text: str) -> Tokenised:
        """The pieces of a source sentence, without END."""
        return self._reader.encode(clean(text))

    @torch.inference_mode()
    def _search_many(
        self, rows: Sequence[Sequence[int]], config: DecodeConfig, **options: Any
    ) -> list[list[Hypothesis]]:
        tokens = BATCH_TOKENS[self.device.type == "cuda"]
        return decode_many(self.model, rows, config, self.device, batch_tokens=tokens, weigher=self._weigher, **options)  # type: ignore[arg-type]

    def _search_terms(
        self, rows: list[list[int]], asked: list[Asked], joined: list[int], **options: Any
    ) -> list[list[Hypothesis]]:
        if not rows:
            return []
        terms = Terms([one.terms for one in asked], [one.replaced for one in asked], joined)
        return self._search_many(rows, terms=terms, prefixes=[one.prefix for one in asked], **options)

    def _search(
        self, ids: list[int], config: DecodeConfig, steps: list[SearchStep] | None, forced: list[int] | None
    ) -> list[Hypothesis]:
        observe = steps.append if steps is not None else None
        found = decode_many(
            self.model,  # type: ignore[arg-type]
            [ids],
            config,
            self.device,
            prefixes=None if forced is None else [forced],
            weigher=self._weigher,
            observe=observe,
        )
        return found[0]

    def _force(
        self, ids: list[int], config: DecodeConfig, begins: list[int], force: Force, changed: Changed
    ) -> tuple[list[int], list[int]]:
        """The prefix up to and including the forced word, and the rows of that word."""
        changed.restart()
        said = self._search(ids, config, None, begins)[0].ids
        if not len(begins) <= force.t <= len(said):
            raise ConfigError(
                f"Step {force.t} cannot be forced; after what is forced before it, the steps are {len(begins)} to "
                f"{len(said)}."
            )
        word = self.prefix_ids(force.word)
        return said[: force.t] + word, list(range(force.t, force.t + len(word)))

    def _weigher(self, source: Tensor, lengths: Tensor) -> Weigh:
        self.needs_one_model("use the coverage penalty")
        return weigher(self.model, source, lengths)

    def needs_one_model(self, what: str) -> None:
        """Refuse an ensemble."""
        if isinstance(self.model, Ensemble):
            raise RunError(f"An ensemble has no single attention; load one of its runs to {what}.")

    def _weigh(self, sources: list[list[int]], targets: list[list[int]]) -> list[NDArray[np.float32]]:
        """The weights [T, S] with which each word of a translation attended to its source, by `heads`; zeros where the
        model has one vector for the whole source."""
        model, heads = self.model, self.heads
        looking: Looking = model.looking  # type: ignore[assignment]
        name = guided_module(model, -2 if heads.layer is None else heads.layer)
        shift = looking.shift if heads.shift is None else heads.shift
        head = -1 if heads.head is None else heads.head
        found: dict[int, NDArray[np.float32]] = {}
        pairs = [([*source, END], [*target, END]) for source, target in zip(sources, targets, strict=True)]
        for places, read, lengths, written in read_together(pairs, self.device):
            with torch.inference_mode(), record(model, [name]) as seen:
                model(read, lengths, written)
            weights = guided_head(seen[name].weights, head).float().cpu().numpy()  # [B, T, S]
            for row, place in enumerate(places):
                T, S = len(pairs[place][1]), len(pairs[place][0])
                shifted = np.concatenate([weights[row, shift:T, :S], weights[row, T - shift : T, :S]])
                found[place] = shifted if shifted.shape == (T, S) else np.zeros((T, S), np.float32)
        return [found[place] for place in range(len(pairs))]

    def _copy_unknown(
        self,
        sentences: list[str],
        encoded: list[Tokenised],
        found: list[list[Hypothesis]],
        lexicon: Mapping[str, str],
    ) -> dict[int, str]:
        """The texts of the hypotheses that hold an unknown word, by their identity."""
        if isinstance(self.model, Ensemble) or not self.model.looking.cross:
            return {}
        rows = [(number, one) for number, some in enumerate(found) for one in some if UNKNOWN in one.ids]
        weights = self._weigh([encoded[number].ids for number, _ in rows], [one.ids for _, one in rows])
        return {
            id(one): copy_unknown(sentences[number], encoded[number], one.ids, seen, self.target_vocabulary, lexicon)
            for (number, one), seen in zip(rows, weights, strict=True)
        }

    def _join(self, passage: Passage, sentences: list[list[Translation]]) -> Translation:
        """The translation of a text from those of its sentences: the best of each, the second best, ..."""
        if len(sentences) == 1 and passage.gaps == ["", ""]:
            return sentences[0][0]
        group: list[Translation] = []
        for rank in range(max(map(len, sentences))):
            chosen = [some[min(rank, len(some) - 1)] for some in sentences]
            group.append(
                Translation(
                    text=join_text(passage, [one.text for one in chosen]),
                    score=sum(one.score for one in chosen),
                    logprob=sum(one.logprob for one in chosen),
                    tokens=[piece for one in chosen for piece in one.tokens],
                    token_logprobs=[number for one in chosen for number in one.token_logprobs],
                    finished=worst([one.finished for one in chosen]),
                    nbest=group,
                    unknown=[word for one in chosen for word in one.unknown],
                    unplaced=[term for one in chosen for term in one.unplaced],
                    flags=merge([*(one.flags for one in chosen), ["cut"] if passage.cut else []]),
                )
            )
        return group[0]

    def _wrong_with_source(self, text: str, encoded: Tokenised) -> tuple[list[str], list[str]]:
        """The parts of a sentence that were never seen in training, and its flags."""
        unknown = find_unknown(text, encoded)
        wrong = {
            "unseen": bool(unknown),
            "language": bool(other_language(text, self.source_language)),
            "lower-cased": self.lowercases and text.lower() != text,
        }
        return unknown, [flag for flag, holds in wrong.items() if holds]

    def _translations(
        self, text: str, encoded: Tokenised, hypotheses: list[Hypothesis], unplaced: list[str], copied: dict[int, str]
    ) -> list[Translation]:
        """The translations of one sentence, the best first."""
        group: list[Translation] = []
        unknown, before = self._wrong_with_source(text, encoded)
        for one in hypotheses:
            written = copied.get(id(one)) or self.target_vocabulary.decode(one.ids)
            pieces = self.target_vocabulary.pieces(one.ids)
            ended = one.ended if encoded.ids else "empty"
            same = self.source_language == self.target_language
            flags = [*before, *(["term"] if unplaced else []), *wrong_with(text, written, ended, same)]
            numbers = one.score, one.logprob, pieces, one.token_logprobs
            group.append(Translation(written, *numbers, ended, group, unknown, flags, unplaced))
        return group


def clean(text: str) -> str:
    """A sentence as one line of valid Unicode: line breaks become spaces, lone surrogates the replacement character."""
    if not isinstance(text, str):
        raise DataError(f"A sentence is text; got {type(text).__name__}.")
    return rewrite(text.replace("\n", " ")).text


def find_unknown(text: str, encoded: Tokenised) -> list[str]:
    """The parts of a sentence that are not in the vocabulary, in order, as spelled."""
    return unseen(clean(text), encoded, UNKNOWN)


def weigher(model: Any, source: Tensor, lengths: Tensor) -> Weigh:
    """For the coverage penalty: the mean weights [N, T, S] with which rows of a batch attended to their source, and
    which of its positions the model can attend to [N, S]."""

    def weigh(rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        with record(model) as seen:
            model(source[rows], lengths[rows], target)
        calls = [seen[name] for name in model.looking.cross]
        weights = [call.weights.mean(1) if call.weights.dim() == 4 else call.weights for call in calls]
        visible = [(call.scores > -torch.inf).flatten(1, -2).any(1) for call in calls]  # [N, S]
        return torch.stack(weights).mean(0), torch.stack(visible).any(0)

    return weigh
