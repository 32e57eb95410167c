"""A trained translator: translate, score, look inside."""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from regard.api.opening import open_model, read_experiment
from regard.api.tracing import check_length, describe_forced, read_together, trace_sentence
from regard.data.builtin.registry import find_builtin
from regard.data.rewrite import rewrite
from regard.data.vocabulary import Encoded, Vocabulary
from regard.decode.beam import Step
from regard.decode.ensemble import Ensemble
from regard.decode.hypothesis import Hypothesis
from regard.decode.many import decode_many
from regard.decode.settings import DecodeConfig, change_settings
from regard.errors import ConfigError, DataError, RunError
from regard.evaluate.scores import METRICS, ScoreReport, perplexity, score
from regard.look.change import Change, Changed, Force, change
from regard.look.record import record
from regard.look.trace import Trace
from regard.symbols import END, UNKNOWN
from regard.train.experiment import Experiment
from regard.train.objectives import cross_entropy

Tell = Callable[[int, int | None], None]
BATCH_TOKENS = (4096, 65536)  # source tokens decoded together over all beams, on a CPU and on a GPU


@dataclasses.dataclass(frozen=True)
class Translation:
    """A translation, and how sure the model was of it."""

    text: str
    score: float  # what the search ranks by: log-probability with the length penalty
    logprob: float
    tokens: list[str]
    token_logprobs: list[float]
    finished: str  # how it ended: "end", "length" (cut off), "not finite", "stopped" or "empty"
    # This one first, then the runners-up that were asked for; left out of ==, which would never end.
    nbest: "list[Translation]" = dataclasses.field(compare=False, repr=False)
    # What the source vocabulary does not hold and the model could not read: words, or characters where it is made of
    # those; never anything where subwords spell by bytes what they do not know.
    unknown: list[str] = dataclasses.field(default_factory=list, compare=False)

    def __str__(self) -> str:
        return self.text


class Translator:
    """A model with its vocabularies, ready to use; `load_translator` makes one from a run folder."""

    def __init__(
        self,
        model: nn.Module,
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        experiment: Experiment,
        name: str,
    ) -> None:
        self.model = model.eval()
        self.source_vocabulary, self.target_vocabulary = source_vocabulary, target_vocabulary
        self.experiment, self.name = experiment, name
        made = find_builtin(experiment.data.corpus) if experiment.data.corpus else None  # it knows its languages
        self.source_language: str = experiment.data.source_language or (made.source_language if made else "")
        self.target_language: str = experiment.data.target_language or (made.target_language if made else "")

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device

    def settings(self, **changes: Any) -> DecodeConfig:
        """The run's [decode] settings with some of them changed; None leaves one as it is."""
        return change_settings(self.experiment.decode, changes)

    @overload
    def translate(self, text: str, **options: Any) -> Translation: ...

    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[Translation]: ...

    def translate(self, text: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """Translate one sentence, or a list of them in order.

        Options are the settings of [decode] (beam, nbest, temperature, length_penalty, ...), and `prefix` (a text, or
        one for each sentence, that the translation must begin with), `progress(done, total)` and `stop() -> bool`,
        which is asked before every step. An empty line gives an empty translation.
        """
        if isinstance(text, bytes) or not isinstance(text, Iterable):
            raise DataError(f"A sentence is text; got {type(text).__name__}.")
        texts = [text] if isinstance(text, str) else list(text)
        prefix = options.pop("prefix", None)
        tell, stop = options.pop("progress", None), options.pop("stop", None)
        config = self.settings(**options)
        read = [self.encode(one) for one in texts]
        rows = [one.ids for one in read]
        prefixes = None
        if prefix is not None:
            wanted = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
            if len(wanted) != len(texts):
                raise DataError(f"Expected one prefix for each of the {len(texts)} sentences; got {len(wanted)}.")
            prefixes = [self.prefix_ids(one) for one in wanted]
        with torch.inference_mode():
            found = decode_many(
                self.model,  # type: ignore[arg-type]
                rows,
                config,
                self.device,
                batch_tokens=BATCH_TOKENS[self.device.type == "cuda"],
                prefixes=prefixes,
                weigher=self._weigher,
                tell=tell,
                stop=stop,
            )
        translations = [
            self._translation(hypotheses, bool(encoded.ids), find_unknown(one, encoded))
            for hypotheses, one, encoded in zip(found, texts, read, strict=True)
        ]
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
        """Translate `source` (or read `target`, forced) and return what every attention module saw.

        The trace is exact for the sentence it shows: that sentence is read once more, all layers and heads recorded.
        `changes` are what-ifs (see `regard.look.change`), and so is `prefix`, which the translation must begin with;
        a `Force` writes a word at one step. The trace says what was changed. `tree` keeps the beam search, `topk`
        alternatives are kept at each word. Other options are settings of [decode].
        """
        self.needs_one_model("look inside")
        encoded = self.encode(source)
        if not encoded.ids or not source.split():
            raise DataError("There is nothing to look at in an empty sentence; give at least one word.")
        check_length(encoded.ids)
        forces = sorted((one for one in changes if isinstance(one, Force)), key=lambda one: one.t)
        if (prefix is not None or forces) and target is not None:
            raise DataError("A translation that is given cannot be forced to begin with something; leave one out.")
        begins = None if prefix is None else self.prefix_ids(prefix)
        told = describe_forced(self.target_vocabulary, begins)
        steps: list[Step] = []
        with torch.inference_mode(), change(self.model, *(one for one in changes if one not in forces)) as changed:
            if target is None:
                config = self.settings(**options)
                for force in forces:
                    begins, rows = self._force(encoded.ids, config, begins or [], force, changed)
                    told.append({**force.describe(), "rows": rows})
                changed.restart()
                hypothesis = self._search(encoded.ids, config, steps if tree else None, begins)[0]
                written = hypothesis.ids if hypothesis.ids and not hypothesis.finished else [*hypothesis.ids, END]
            else:
                written = [*self.prefix_ids(target), END]
                check_length(written[:-1])
            return trace_sentence(self, source, encoded, written, topk, (*changed.describe(), *told), steps)

    def alternatives(self, source: str, prefix: str | Sequence[int] = "", k: int = 10) -> list[tuple[str, float]]:
        """The k likeliest next pieces after a prefix of the translation, each with its probability."""
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
        """Translate `source` and score it against the references `target`; options as for `translate`."""
        return score([one.text for one in self.translate(list(source), **options)], list(target), metrics=metrics)

    def perplexity(self, source: Sequence[str], target: Sequence[str], progress: Tell | None = None) -> float:
        """exp of the mean negative log-likelihood of a reference token, END counted."""
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
        """The ids of a translation or of its beginning, given as text or as ids; END is not among them."""
        if isinstance(prefix, str):
            return self.target_vocabulary.encode(clean(prefix)).ids
        try:
            ids = [operator.index(index) for index in prefix]
        except TypeError:
            raise DataError(f"A translation is text, or a list of token numbers; got {prefix!r:.60}.") from None
        pieces = self.target_vocabulary.pieces(ids)  # refuses numbers that are no tokens
        for index, piece in zip(ids, pieces, strict=True):
            if index < UNKNOWN:
                raise DataError(f"A translation is made of words; leave out the symbol {piece} (token {index}).")
        return ids

    def encode(self, text: str) -> Encoded:
        """A source sentence in pieces, END not among them."""
        return self.source_vocabulary.encode(clean(text))

    def _search(
        self, ids: list[int], config: DecodeConfig, steps: list[Step] | None, forced: list[int] | None
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
        """What the translation now begins with, the forced word last, and the rows of that word."""
        changed.restart()
        said = self._search(ids, config, None, begins)[0].ids
        if not len(begins) <= force.t <= len(said):
            raise ConfigError(
                f"Step {force.t} cannot be forced: the translation has steps {len(begins)} to {len(said)} to choose "
                f"from, after what is forced before it."
            )
        word = self.prefix_ids(force.word)
        return said[: force.t] + word, list(range(force.t, force.t + len(word)))

    def _weigher(self, source: Tensor, lengths: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """For the coverage penalty: the mean weights [N, T, S] with which rows of a batch looked at their source."""
        self.needs_one_model("use the coverage penalty")

        def weigh(rows: Tensor, target: Tensor) -> Tensor:
            with record(self.model) as seen:
                self.model(source[rows], lengths[rows], target)
            looks = [seen[name].weights for name in self.model.looking.cross]  # type: ignore[union-attr]
            return torch.stack([look.mean(1) if look.dim() == 4 else look for look in looks]).mean(0)

        return weigh

    def needs_one_model(self, what: str) -> None:
        """Refuse an ensemble."""
        if isinstance(self.model, Ensemble):
            raise RunError(f"An ensemble has no attention of its own; load one of its runs to {what}.")

    def _translation(self, hypotheses: list[Hypothesis], words: bool, unknown: list[str]) -> Translation:
        group: list[Translation] = []
        for one in hypotheses:
            text = self.target_vocabulary.decode(one.ids)
            pieces = self.target_vocabulary.pieces(one.ids)
            ended = one.ended if words else "empty"
            group.append(Translation(text, one.score, one.logprob, pieces, one.token_logprobs, ended, group, unknown))
        return group[0]


def clean(text: str) -> str:
    """A sentence as one line of valid Unicode: line breaks become spaces, lone surrogates the replacement character."""
    if not isinstance(text, str):
        raise DataError(f"A sentence is text; got {type(text).__name__}.")
    return rewrite(text.replace("\n", " ")).text


def find_unknown(text: str, encoded: Encoded) -> list[str]:
    """The parts of a sentence that its vocabulary does not hold, in order, as they are spelled."""
    if UNKNOWN not in encoded.ids:
        return []
    plain = clean(text)
    return [
        plain[start:end] for index, (start, end) in zip(encoded.ids, encoded.spans, strict=True) if index == UNKNOWN
    ]


def load_translator(run: str | Path | Sequence[str | Path], device: str = "auto") -> Translator:
    """The translator of a run folder; several folders that share a vocabulary become one ensemble.

    Every file is checked against the run's manifest, and the vocabularies against their fingerprints.
    """
    if not isinstance(run, str | Path):
        return _ensemble([load_translator(one, device) for one in run])
    folder = Path(run)
    experiment = read_experiment(folder, "translate")
    source, target = (Vocabulary.load(folder, side) for side in ("source", "target"))
    sizes = {"source_vocabulary": len(source), "target_vocabulary": len(target)}
    model = open_model(folder, experiment, device, **sizes)
    return Translator(model, source, target, experiment, folder.resolve().name)


def _ensemble(members: list[Translator]) -> Translator:
    if not members:
        raise RunError("An ensemble needs at least one run; got none.")
    first, *others = members
    for other in others:
        for side in ("source_vocabulary", "target_vocabulary"):
            if getattr(first, side).fingerprint != getattr(other, side).fingerprint:
                raise RunError(
                    f"An ensemble needs runs with the same vocabularies; the {side.replace('_', ' ')} of {other.name} "
                    f"is not that of {first.name}. Train them on the same corpus with the same data settings."
                )
    if not others:
        return first
    model = Ensemble([member.model for member in members])
    name = "+".join(member.name for member in members)
    return Translator(model, first.source_vocabulary, first.target_vocabulary, first.experiment, name)
