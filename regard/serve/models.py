"""A translator inside its process: translate, look inside, detect the language."""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.api.drafts import Translation
from regard.api.flags import NOTES
from regard.api.heads import is_fixed
from regard.api.looking import check_changes
from regard.api.measuring import report_heads
from regard.api.tracing import describe_forced
from regard.api.trained import Trained
from regard.api.translator import Translator
from regard.corpora import Example
from regard.decode.beam import SearchStep
from regard.errors import DataError, numbered
from regard.look import html
from regard.look.attribution import methods_of
from regard.look.change import Change, Mask, SetRow, ShiftRow, Silence, Temperature, all_heads, change
from regard.look.html import page_tree
from regard.look.record import attentions, layer_of, side_of
from regard.look.trace import Trace
from regard.look.trace_file import write
from regard.models.contract import attentions_to_source
from regard.models.registry import entry
from regard.processes import Running
from regard.runs.expects import expectations
from regard.serve import examples, languages
from regard.serve.inside import TOGETHER, explain, follow_path, layers_of, output, watch, weigh_heads
from regard.serve.limits import Limits, RefusedError, StoppedError
from regard.serve.queue import Options, TraceRequest, TranslatedText
from regard.symbols import END, UNKNOWN
from regard.text.pharaoh import Gold

CHANGES: dict[str, Callable[..., Change]] = {
    "mask": Mask, "temperature": Temperature, "set-row": SetRow, "shift-row": ShiftRow, "silence": Silence
}  # fmt: skip
ALIGNED = 30  # sentences on which the heads are measured
_RECORDED = 8  # times the numbers of an answer that may be recorded
_UNKNOWN_WORDS = 20  # unknown words to report per sentence
_COMPARED = 2000  # characters of a text used to detect its language


@contextmanager
def interruptible(model: Any, running: Running) -> Iterator[None]:
    """Before every call of attention or of the output layer, check whether the call is stopped; if so, end the block
    with StoppedError."""

    def check(*_: Any) -> None:
        if running.stopped():
            raise StoppedError

    with ExitStack() as stack:
        for module in (*attentions(model).values(), model.output):
            stack.enter_context(module.register_forward_pre_hook(check))
        yield


class ServedModel:
    """A trained model and the name that clients use for it."""

    kind: str
    exported = staticmethod(html.file)  # the page of an exported file

    def __init__(self, trained: Trained, name: str) -> None:
        self.trained, self.id = trained, name
        self.beam = trained.experiment.decode.beam  # the default of requests

    def describe(self) -> dict[str, Any]:
        """The description of the model for clients."""
        name = self.trained.experiment.name
        about = {"name": name, "paper": entry(name).paper, "idea": entry(name).idea, "parameters": self.trained.size}
        return {"id": self.id, "kind": self.kind, "beam": self.beam, **about}

    @staticmethod
    def write(tree: dict[str, Any]) -> bytes:
        """An answer with arrays as JSON, in the format of a trace."""
        return write(tree).encode("utf-8")


class TranslationModel(ServedModel):
    """A translator of a server."""

    kind = "translate"

    def __init__(
        self, translator: Translator, name: str, limits: Limits, card: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(translator, name)
        self.card = card or {}  # of a shipped model
        self.translator = translator
        # Looking inside registers hooks. Translations that interrupt it use a twin with the same parameters.
        shared: dict[int, Any] = {id(one): one for one in (*translator.model.parameters(), *translator.model.buffers())}
        self._twin = copy.copy(translator)
        self._twin.model = copy.deepcopy(translator.model, shared)
        self.limits, self._longest = limits, translator.experiment.decode.longest
        self._errors: dict[str, Any] | None = None  # of its heads

    def describe(self) -> dict[str, Any]:
        """The description of the model for clients."""
        codes = {"source": self.translator.source_language, "target": self.translator.target_language}
        codes, made = {side: languages.canonical(code) for side, code in codes.items()}, self._examples
        return {
            **{side: {"code": code, "name": ""} for side, code in codes.items()},  # the server has the names
            **super().describe(),
            "expects": expectations(self.translator.experiment.data, self.translator.source_vocabulary),
            "bytes": self.card.get("bytes"),
            # The first score on its card, of the shipped weights.
            "score": next(
                ({"name": one["name"], "bleu": one["small"]["bleu"]} for one in self.card.get("scores", [])), None
            ),
            "examples": [one.source for one in made[: examples.EXAMPLES]]
            or examples.SENTENCES.get(codes["source"], []),
            "lengths": None if made else examples.LENGTHS.get(codes["source"]),
            "aligned": any(example.alignment for example in made),
            "fixed": is_fixed(self.translator.model),
            "calibrated": self.translator.calibration is not None,
            "methods": methods_of(self.translator.model),
            "flags": NOTES,
        }

    @cached_property
    def _examples(self) -> list[Example]:
        return examples.generate(self.translator.experiment.data, ALIGNED)

    # --- translating

    def translate(self, texts: list[str], options: Options, running: Running) -> list[TranslatedText]:
        """One translation for each text."""
        found = self._twin.translate(
            texts,
            beam=options.beam,
            nbest=options.nbest,
            terms=options.terms,
            confidence=options.confidence,
            stop=running.stopped,
        )
        if running.stopped():
            raise StoppedError
        sizes = map(len, self.translator.source_vocabulary.encode_many(texts))
        links: list[Any] = [()] * len(texts)
        if options.links:
            written = [one.text for one in found]
            links = [one.links for one in self._twin.link_words(texts, written, options.terms)]
        return [_describe(one, size + 1, linked) for one, size, linked in zip(found, sizes, links, strict=True)]

    def stream(self, texts: list[str], running: Running) -> int:
        """Translate the texts in order; sends the number of a text and its translation so far, then the result.

        Returns the number of texts.
        """
        for place, text in enumerate(texts):
            live = Live(self._twin.target_vocabulary.decode, lambda part, place=place: running.send((place, part)))  # type: ignore[misc]
            found = self._twin.translate(text, observe=live, stop=running.stopped)
            if running.stopped():
                raise StoppedError
            running.send((place, _describe(found, 0)))
        return len(texts)

    def self_test(self, running: Running) -> str:
        """The translation of a short text of known words; it must always be the same."""
        vocabulary = self.translator.source_vocabulary
        last = range(len(vocabulary) - min(3, len(vocabulary) - UNKNOWN - 1), len(vocabulary))
        return self.translate([vocabulary.decode(last) or "a"], Options(), running)[0].text

    def fit(self, texts: list[str]) -> list[tuple[float, float]]:
        """How well each text fits the source vocabulary, and its code length: see `examples.fit`."""
        language = languages.canonical(self.translator.source_language)
        return [examples.fit(text[:_COMPARED], self.translator.source_vocabulary, language) for text in texts]

    # --- looking inside

    def look(self, look: TraceRequest, running: Running) -> dict[str, Any]:
        """The trace of one sentence as a tree of plain values and arrays, with the translations of a search tree."""
        changes = self._changes(look)
        source = self._source(look.text)
        target: list[int] | None = None
        forced: list[int] = []
        if look.tree:
            cost = len(source) * (look.beam or self.beam)
            if cost > self.limits.tree:
                raise RefusedError(
                    422,
                    f"The search tree has {cost} tokens times beam, more than {self.limits.tree}; send a shorter text "
                    f"or a smaller beam.",
                )
            self._check_size(look, len(source), self._longest(len(source) - 1), answered=False)
        else:
            if look.target is None:  # before the search, as if the translation had half as many tokens
                self._check_size(look, len(source), len(source) // 2)
            target, forced = self._target_ids(look, running)
            self._check_size(look, len(source), len(target) + 1)
        with interruptible(self.translator.model, running):
            trace = self.translator.look(
                look.text, target, changes=changes, tree=look.tree, by=look.by or (), against=look.against,
                beam=look.beam,
            )  # fmt: skip
        self._check_size(look, len(source), len(trace.target.tokens))
        marks = (*trace.changes, *describe_forced(self.translator.target_vocabulary, forced))
        trace = dataclasses.replace(_part(trace, look), changes=marks)
        tree = page_tree(trace)
        if look.layers is not None or look.heads is not None:
            tree["part"] = {"layers": look.layers, "heads": look.heads}
        if trace.beam is not None:
            tree["translations"] = self._translations(trace)
        return tree

    def _changes(self, look: TraceRequest) -> list[Change]:
        """The changes that a client described, such as {"kind": "mask", "position": 3}."""
        changes = []
        for one in look.changes:
            fields = {name: value for name, value in one.items() if value is not None}
            kind = CHANGES[fields.pop("kind")]
            if kind is SetRow and "position" in fields:
                fields["weights"] = fields.pop("position")
            changes.append(kind(**fields))
        check_changes(self.translator, changes)
        return changes

    def _source(self, text: str) -> list[int]:
        return [*self._short(self.translator.encode(text).ids, "text"), END]

    def _short(self, ids: list[int], name: str) -> list[int]:
        """The ids; raises if there are too many."""
        if len(ids) > self.limits.tokens:
            raise RefusedError(422, f"The {name} has {len(ids)} tokens; send at most {self.limits.tokens}.")
        return ids

    def _check_size(self, look: TraceRequest, source: int, target: int, answered: bool = True) -> None:
        """Refuse a forward pass whose attention and logits would take too much memory, and if the attention is
        `answered`, one whose answer would be too large."""
        chosen, recorded = self._sizes(look, source, target)
        room = self.limits.numbers
        for numbers, most in ((chosen if answered else 0, room), (recorded, _RECORDED * room)):
            if numbers > most:
                raise RefusedError(
                    422,
                    f"The attention of this trace has {numbers} numbers, more than {most}; choose some layers and "
                    f"heads, or send a shorter text.",
                )

    def _sizes(self, look: TraceRequest, source: int, target: int) -> tuple[int, int]:
        """How many numbers the trace of a sentence pair holds, and how many are recorded for it."""
        model = self.translator.model
        chosen, recorded = 0, target * len(self.translator.target_vocabulary)  # logits
        cross = attentions_to_source(model)
        for name in attentions(model):
            heads, rows = len(all_heads(model, name)), source if side_of(name) == "encoder" else target
            numbers = 2 * rows * (source if name in cross else rows)  # of a head: weights and scores
            recorded += heads * numbers
            if look.layers is None or layer_of(name) in (None, *look.layers):
                chosen += (heads if look.heads is None else min(heads, len(look.heads))) * numbers
        return chosen, recorded

    def _target_ids(self, look: TraceRequest, running: Running) -> tuple[list[int], list[int]]:
        """The ids of the given translation, or of the one found under the changes, and the forced ids."""
        if look.target is not None:
            return self._short(self._ids(look.target), "translation"), []
        prefix = [] if look.prefix is None else self._short(self._ids(look.prefix), "prefix")
        with change(self.translator.model, *self._changes(look)):
            (found,) = self.translator.translate([look.text], prefix=[prefix], beam=look.beam, stop=running.stopped)
        return self._short(self._ids(tuple(found.tokens)), "translation"), prefix

    def _translations(self, trace: Trace) -> list[dict[str, Any]]:
        """The finished hypotheses of a search tree as text, best first."""
        assert trace.beam is not None
        nodes = {node.id: node for node in trace.beam.nodes}
        found = []
        for rank in trace.beam.ranked:
            pieces, at = [], nodes[rank].parent
            while at is not None:
                pieces.append(nodes[at].token)
                at = nodes[at].parent
            text = self.translator.target_vocabulary.decode(self._ids(tuple(reversed(pieces))))
            found.append({"node": rank, "text": text, "score": nodes[rank].score, "logprob": nodes[rank].total})
        return found

    def step(self, look: TraceRequest, t: int, name: str | None, head: int, running: Running) -> dict[str, Any]:
        """Every number of step t: see `regard.serve.inside`."""
        model, reading = self.translator.model, side_of(name or "") == "encoder"
        written, forward = self._forced(look, t, running, reading)
        with interruptible(model, running), change(model, *self._changes(look)):
            chosen, calls, logits = watch(model, name, forward)
        return {
            "t": t,
            "name": chosen,
            "head": head,
            "changed": bool(look.changes),
            **explain(model.get_submodule(chosen), calls, t, head),  # type: ignore[arg-type]
            "output": None if reading else output(logits[0, t], written[t], self._word),
        }

    def path(self, look: TraceRequest, t: int, name: str | None, running: Running) -> dict[str, Any]:
        """The path of step t through the decoder layers of a Transformer, or the encoder layers if `name` is a module
        of the encoder: see `regard.serve.inside`."""
        model, reading = self.translator.model, side_of(name or "") == "encoder"
        if not layers_of(model, decodes=not reading):
            raise DataError("Only a Transformer has a path through layers to show; this model has none.")
        _, forward = self._forced(look, t, running, reading)
        with interruptible(model, running), change(model, *self._changes(look)):
            return {"t": t, "layers": follow_path(model, forward, t, None if reading else self._word)}

    def worth(self, look: TraceRequest, running: Running) -> dict[str, Any]:
        """What each head is worth to a translation, under the changes."""
        model = self.translator.model
        written, forward = self._forced(look, 0, running)
        _, recorded = self._sizes(look, len(self._source(look.text)), len(written))
        room = _RECORDED * self.limits.numbers // recorded  # rows of a forward pass; at least 1
        with interruptible(model, running), change(model, *self._changes(look)):
            return {"heads": weigh_heads(model, forward, written, min(TOGETHER, room))}

    def _forced(
        self, look: TraceRequest, t: int, running: Running, reading: bool = False
    ) -> tuple[list[int], Callable[..., Tensor]]:
        """The ids of a translation with END, and a function for its logits [rows, T, V]. Step t is a position in it, or
        in the source if `reading`."""
        model, device = self.translator.model, self.translator.device
        source = self._source(look.text)

        def check_step(what: str, steps: int) -> None:
            if not 0 <= t < steps:
                raise DataError(f"There is no step {t}: this {what} has steps 0 to {steps - 1}.")

        if look.target is None:  # before the search
            self._check_size(look, len(source), self._longest(len(source) - 1), answered=False)
        if reading:
            check_step("sentence", len(source))
        written = [*self._target_ids(look, running)[0], END]
        self._check_size(look, len(source), len(written), answered=False)
        if not reading:
            check_step("translation", len(written))

        def forward(rows: int = 1) -> Tensor:
            lengths = torch.tensor([len(source)] * rows, device=device)
            sources, targets = (torch.tensor([ids] * rows, device=device) for ids in (source, written))
            logits: Tensor = model(sources, lengths, targets)
            return logits

        return written, forward

    def head_errors(self, running: Running) -> dict[str, Any]:
        """The alignment error rate of every head over sentences with known links; computed once."""
        if self._errors is None:
            made = [example for example in self._examples if example.alignment]
            if not made:
                raise DataError(f"The model {self.id} was trained on a corpus without reference word links.")
            gold = [Gold(frozenset(example.alignment), frozenset(example.alignment)) for example in made]
            with interruptible(self.translator.model, running):
                found = report_heads(self.translator, [one.source for one in made], [one.target for one in made], gold)
            rated = [row for row in found.rows if "aer" in row.values]
            heads = [{"layer": row.layer, "head": row.head, "aer": row.values["aer"]} for row in rated]
            self._errors = {"sentences": len(made), "heads": heads}
        return self._errors

    def alternatives(self, text: str, prefix: str | tuple[str, ...], most: int, running: Running) -> dict[str, Any]:
        """The pieces that could follow `prefix`, likeliest first."""
        ids = self._short(self._ids(prefix), "prefix")
        self._check_size(TraceRequest(text), len(self._source(text)), len(ids) + 1, answered=False)
        with interruptible(self.translator.model, running):
            found = self.translator.alternatives(text, ids, most + END + 1)
        likely, numbers = [], self.translator.target_vocabulary.numbers
        for piece, chance in found:
            word = self._word(numbers[piece])
            if math.isfinite(chance) and not word.pop("special"):
                likely.append({**word, "probability": chance})
        return {"alternatives": likely[:most]}

    # --- pieces

    def _ids(self, given: str | tuple[str, ...]) -> list[int]:
        """The ids of a translation or a prefix, given as text or pieces."""
        if isinstance(given, str):
            return self.translator.prefix_ids(given)
        numbers = self.translator.target_vocabulary.numbers
        for piece in given:
            if numbers.get(piece, END) <= END:
                raise DataError(f"There is no piece {piece[:40]!r} in the target vocabulary.")
        return [numbers[piece] for piece in given]

    def _word(self, index: int) -> dict[str, Any]:
        vocabulary = self.translator.target_vocabulary
        piece = vocabulary.pieces([index])[0]
        return {"piece": piece, "text": vocabulary.decode([index]) or piece, "special": index <= END}


class Live:
    """Emits the best translation so far of one sentence, from the steps of its search."""

    def __init__(self, decode: Callable[[list[int]], str], emit: Callable[[str], None]) -> None:
        self.decode, self.emit = decode, emit
        self._beams: dict[int, list[int]] = {}  # slot -> tokens
        self._ended = float("-inf")  # the best score of a finished translation
        self._said = ""

    def __call__(self, step: SearchStep) -> None:
        """Observe a step. A sentence that was split into clauses is not followed."""
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
        text = self.decode(self._beams[slots[kept[0]]])  # candidates are sorted, best first
        if text and text != self._said:
            self._said = text
            self.emit(text)


def _describe(one: Translation, tokens: int, links: Any = ()) -> TranslatedText:
    others, unknown = tuple(other.text for other in one.nbest), tuple(one.unknown[:_UNKNOWN_WORDS])
    found = one.text, others, tokens, one.finished, one.noted, unknown, links, tuple(one.unplaced)
    return TranslatedText(*found, one.confidence)


def _part(trace: Trace, look: TraceRequest) -> Trace:
    """The trace with the chosen layers and heads only."""
    if look.layers is None and look.heads is None:
        return trace
    modules = trace.attention.values()
    for part, chosen, count in (
        ("layer", look.layers, max((seen.layer + 1 for seen in modules), default=0)),
        ("head", look.heads, max((seen.heads for seen in modules), default=0)),
    ):
        for number in chosen or ():
            if number >= count:
                raise DataError(f"There is no {part} {number}; this model has {numbered(part, count)}.")
    kept = {}
    for name, seen in trace.attention.items():
        if seen.kind != "attribution" and look.heads is not None:
            seen = seen.part([head for head in look.heads if head < seen.heads])
        if seen.kind == "attribution" or (seen.heads and (look.layers is None or seen.layer in look.layers)):
            kept[name] = seen
    if not kept:
        raise DataError("None of the chosen layers and heads exists in this model.")
    return dataclasses.replace(trace, attention=kept)
