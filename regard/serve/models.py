"""The translators that a server offers, and all that it knows of them."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.api.inspecting import report_heads
from regard.api.translator import Translation, Translator
from regard.data.builtin.example import Example
from regard.data.builtin.registry import find_builtin
from regard.data.pharaoh import Gold
from regard.errors import DataError
from regard.look.change import Change, change
from regard.look.record import attentions
from regard.look.trace import Trace
from regard.look.tree import plain
from regard.models.registry import entry
from regard.serve import languages
from regard.serve.arithmetic import explain, output, watch
from regard.serve.refusal import StoppedError
from regard.symbols import END, UNKNOWN

Stop = Callable[[], bool]
EXAMPLES = 4
EXAMPLE_WORDS = 8
ALIGNED = 30  # sentences over which the heads are measured


@dataclass(frozen=True)
class Options:
    """How sentences are translated; those of equal options may share a batch."""

    beam: int | None = None
    nbest: int = 1


@dataclass(frozen=True)
class Look:
    """What to look at: a sentence, the translation to read (or its beginning, as pieces), and what to change."""

    text: str
    target: str | tuple[str, ...] | None = None
    prefix: str | tuple[str, ...] | None = None
    beam: int | None = None
    changes: tuple[Change, ...] = ()
    tree: bool = False


class TranslationModel:
    """A trained translator under the name by which clients choose it."""

    kind = "translate"

    def __init__(self, translator: Translator, name: str) -> None:
        self.id = name
        self.translator = translator
        self.source = languages.canonical(translator.source_language)
        self.target = languages.canonical(translator.target_language)
        self._errors: dict[str, Any] | None = None  # of its heads

    @property
    def beam(self) -> int:
        """The beam that is used where nobody asks for another."""
        return self.translator.experiment.decode.beam

    def describe(self) -> dict[str, Any]:
        """What a reader wants to know of the model."""
        about = entry(self.translator.experiment.name)
        sides = {"source": self.source, "target": self.target}
        return {
            **{side: {"code": code, "name": languages.name(code)} for side, code in sides.items()},
            "name": self.translator.experiment.name,
            "paper": about.paper,
            "idea": about.idea,
            "beam": self.beam,
            "parameters": sum(part.numel() for part in self.translator.model.parameters()),
            "examples": [example.source for example in self._examples[:EXAMPLES]],
            "aligned": any(example.alignment for example in self._examples),
        }

    @cached_property
    def _examples(self) -> list[Example]:
        """New sentences, where the model was trained on a corpus that is generated."""
        data = self.translator.experiment.data
        if not data.corpus:
            return []
        longest = max(data.min_words, min(data.max_words, EXAMPLE_WORDS))
        return find_builtin(data.corpus).generate(ALIGNED, data.seed + 1, data.min_words, longest)

    # --- translating

    def translate(self, texts: list[str], options: Options, stop: Stop) -> list[Translation]:
        """One translation for each text."""
        return self.translator.translate(texts, beam=options.beam, nbest=options.nbest, stop=stop)

    def count(self, text: str) -> int:
        """How many tokens a text has, END counted."""
        return len(self.translator.source_vocabulary.encode_many([text])[0]) + 1

    def rehearse(self) -> str:
        """The translation of a short text that the model knows the words of."""
        vocabulary = self.translator.source_vocabulary
        last = range(len(vocabulary) - min(3, len(vocabulary) - UNKNOWN - 1), len(vocabulary))
        return self.translate([vocabulary.decode(last) or "a"], Options(), lambda: False)[0].text

    def fit(self, text: str) -> float:
        """How well a text fits the source vocabulary, from 0 to 1: 1 where every word is one piece, 0 where all are
        spelled letter by letter or unknown. It compares languages and is no probability."""
        vocabulary = self.translator.source_vocabulary
        words, letters = len(re.findall(r"\S+", text)), len(re.sub(r"\s+", "", text))
        if not words:
            return 0.0
        pieces = 0
        for index, piece, (start, end) in zip(*vocabulary.encode(text), strict=True):
            if not text[start:end].isspace():
                strange = index == UNKNOWN or piece.startswith("<0x")
                pieces += max(1, end - start) + 1 if strange else 1
        whole = words if vocabulary.kind != "char" and letters > words else 0
        spelled = letters if whole else 2 * letters
        best = whole or letters
        return max(0.0, min(1.0, (spelled - pieces) / (spelled - best)))

    # --- looking

    def look(self, look: Look, stop: Stop) -> dict[str, Any]:
        """The trace of one sentence as a tree of plain values and arrays; with `tree`, its translations in text too."""
        trace = self.trace(look, stop)
        tree = plain(trace)
        if trace.beam is not None:
            tree["translations"] = self._translations(trace)
        return tree

    def trace(self, look: Look, stop: Stop) -> Trace:
        """The trace of one sentence: of the translation given, or of the one that is found."""
        target = None if look.tree else self._written(look, stop)
        with interruptible(self.translator.model, stop):
            return self.translator.look(look.text, target, changes=look.changes, tree=look.tree, beam=look.beam)

    def _written(self, look: Look, stop: Stop) -> list[int]:
        """The ids of the translation that was given, or of the one found after the prefix, under the changes."""
        if isinstance(look.target, str):
            return self.translator.target_vocabulary.encode(look.target).ids
        if look.target is not None:
            return self.ids(look.target)
        prefix = None
        if look.prefix is not None:
            given = look.prefix if isinstance(look.prefix, str) else self.ids(look.prefix)
            prefix = [self.translator.prefix_ids(given)]
        with change(self.translator.model, *look.changes):
            (found,) = self.translator.translate([look.text], prefix=prefix, beam=look.beam, stop=stop)
        return self.ids(tuple(found.tokens))

    def _translations(self, trace: Trace) -> list[dict[str, Any]]:
        """The finished hypotheses of a search tree, best first, as text."""
        assert trace.beam is not None
        nodes = {node.id: node for node in trace.beam.nodes}
        found = []
        for rank in trace.beam.ranked:
            pieces, at = [], nodes[rank].parent
            while at is not None:
                pieces.append(nodes[at].token)
                at = nodes[at].parent
            text = self.translator.target_vocabulary.decode(self.ids(tuple(reversed(pieces))))
            found.append({"node": rank, "text": text, "score": nodes[rank].score, "logprob": nodes[rank].total})
        return found

    def step(self, look: Look, t: int, name: str | None, head: int, stop: Stop) -> dict[str, Any]:
        """The arithmetic of step t in full: see `regard.serve.arithmetic`."""
        translator, model = self.translator, self.translator.model
        written = [*self._written(look, stop), END]
        if not 0 <= t < len(written):
            raise DataError(f"There is no step {t}: this translation has steps 0 to {len(written) - 1}.")
        source = torch.tensor([[*translator.source_vocabulary.encode(look.text).ids, END]], device=translator.device)
        lengths = torch.tensor([source.shape[1]], device=translator.device)
        target = torch.tensor([written], device=translator.device)

        def forward() -> Tensor:
            logits: Tensor = model(source, lengths, target)  # [1, T, V]
            return logits

        with change(model, *look.changes):
            chosen, calls, logits = watch(model, name, forward)
        told = explain(model.get_submodule(chosen), calls, t, head)  # type: ignore[arg-type]
        return {
            "t": t,
            "name": chosen,
            "head": head,
            "changed": bool(look.changes),
            **told,
            "output": output(logits[0, t], written[t], self._word),
        }

    def head_errors(self, stop: Stop) -> dict[str, Any]:
        """The alignment error rate of every head over sentences whose links are known; found once, and then kept."""
        if self._errors is None:
            made = [example for example in self._examples if example.alignment]
            if not made:
                raise DataError(f"The model {self.id} learned from a corpus without known links between its words.")
            gold = [Gold(frozenset(example.alignment), frozenset(example.alignment)) for example in made]
            with interruptible(self.translator.model, stop):
                found = report_heads(self.translator, [one.source for one in made], [one.target for one in made], gold)
            rates = [
                {"layer": row.layer, "head": row.head, "aer": row.values["aer"]}
                for row in found.rows
                if "aer" in row.values
            ]
            self._errors = {"sentences": len(made), "heads": rates}
        return self._errors

    def alternatives(self, text: str, prefix: tuple[str, ...], most: int) -> list[dict[str, Any]]:
        """What could stand after the pieces of `prefix`, most likely first."""
        found = self.translator.alternatives(text, self.ids(prefix), most + END + 1)
        words = [(self._numbers[piece], piece, chance) for piece, chance in found if math.isfinite(chance)]
        return [
            {"piece": piece, "text": self.name(index), "probability": chance}
            for index, piece, chance in words
            if index > END
        ][:most]

    # --- pieces

    @cached_property
    def _numbers(self) -> dict[str, int]:
        vocabulary = self.translator.target_vocabulary
        return {piece: index for index, piece in enumerate(vocabulary.pieces(range(len(vocabulary))))}

    def ids(self, pieces: tuple[str, ...]) -> list[int]:
        """The numbers of target pieces."""
        for piece in pieces:
            if self._numbers.get(piece, END) <= END:
                raise DataError(f"There is no piece {piece[:40]!r} in the target vocabulary.")
        return [self._numbers[piece] for piece in pieces]

    def _word(self, index: int) -> dict[str, Any]:
        piece = self.translator.target_vocabulary.pieces([index])[0]
        return {"piece": piece, "text": self.name(index), "special": index <= END}

    def name(self, index: int) -> str:
        """A target piece as a reader sees it."""
        vocabulary = self.translator.target_vocabulary
        return vocabulary.decode([index]) or vocabulary.pieces([index])[0]


@contextmanager
def interruptible(model: nn.Module, stop: Stop) -> Iterator[None]:
    """Let `stop` end whatever the model does in the block: it is asked before every look, once a step."""

    def check(*_: Any) -> None:
        if stop():
            raise StoppedError

    handles = [module.register_forward_pre_hook(check) for module in attentions(model).values()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
