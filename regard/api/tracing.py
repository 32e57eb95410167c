"""From a sentence and its translation to a `Trace`: one forward pass, recorded, put into words and numbers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.data.vocabulary import Encoded, Vocabulary, words
from regard.decode.beam import Step as SearchStep
from regard.look.contents import Attended, Beam, Node, Step
from regard.look.pieces import Sentence, Token
from regard.look.record import Seen, record
from regard.look.trace import Trace
from regard.symbols import END, SYMBOLS

if TYPE_CHECKING:
    from regard.api.translator import Translator

BINS = 32  # a query or context is shown as so many averages


def trace_sentence(
    translator: "Translator",
    source: str,
    encoded: Encoded,
    written: Sequence[int],
    topk: int,
    changes: tuple[Mapping[str, Any], ...],
    search: Sequence[SearchStep],
) -> Trace:
    """Read `written` (target ids, END among them where it was written) once more, recording every look."""
    model, device = translator.model, translator.device
    batch = torch.tensor([[*encoded.ids, END]], device=device)  # [1, S]
    target = torch.tensor([list(written)], device=device)  # [1, T]
    with record(model) as seen:
        logits = model(batch, torch.tensor([batch.shape[1]], device=device), target)  # [1, T, V]
    logprobs = logits[0].float().log_softmax(-1)  # [T, V]
    vocabulary = translator.target_vocabulary
    return Trace(
        source=source_sentence(source, encoded),
        target=target_sentence(vocabulary, written, logprobs, topk),
        attention={name: attended(model, name, seen[name], len(written)) for name in seen},
        model=describe(translator),
        steps=tuple(step for name in model.looking.cross for step in steps_of(name, seen[name], len(written))),  # type: ignore[union-attr]
        beam=beam_of(search, vocabulary, translator.experiment.decode.beam) if search else None,
        changes=changes,
    )


def describe(translator: "Translator") -> dict[str, Any]:
    """What a picture says of the model."""
    experiment, looking = translator.experiment, translator.model.looking
    return {
        "id": translator.name,
        "kind": "transformer" if experiment.name == "transformer" else "rnn",
        "name": experiment.name,
        "query": looking.query,  # type: ignore[union-attr]
        "source_language": translator.source_language,
        "target_language": translator.target_language,
    }


def source_sentence(text: str, encoded: Encoded) -> Sentence:
    """The tokens of the source with their places in the text, END last."""
    groups = words(text, encoded.spans)
    tokens = [
        Token(text[start:end].strip(" ") or piece, piece, start, end, word=group)
        for piece, (start, end), group in zip(encoded.pieces, encoded.spans, groups, strict=True)
    ]
    return Sentence(text, (*tokens, Token(SYMBOLS[END], SYMBOLS[END], len(text), len(text), special=True)))


def target_sentence(vocabulary: Vocabulary, ids: Sequence[int], logprobs: Tensor, topk: int) -> Sentence:
    """The tokens of the translation, each with its log-probability and the likeliest alternatives."""
    plain = [index for index in ids if index != END]
    text = vocabulary.decode(plain)
    spans = spans_of(vocabulary, plain, text)
    groups = words(text, spans)
    best = logprobs.topk(min(topk, logprobs.shape[1]), dim=-1)
    tokens = []
    for t, (index, piece) in enumerate(zip(ids, vocabulary.pieces(ids), strict=True)):
        others = zip(vocabulary.pieces(best.indices[t].tolist()), best.values[t].tolist(), strict=True)
        about: dict[str, Any] = {"logprob": float(logprobs[t, index]), "topk": tuple(others)}
        if index == END:
            tokens.append(Token(piece, piece, len(text), len(text), special=True, **about))
        else:
            start, end = spans[t]
            tokens.append(Token(text[start:end].strip(" ") or piece, piece, start, end, word=groups[t], **about))
    return Sentence(text, tuple(tokens))


def spans_of(vocabulary: Vocabulary, ids: list[int], text: str) -> list[tuple[int, int]]:
    """Where each piece of a translation stands in its text.

    A model may write a word in other pieces than the vocabulary would; then each piece ends where the text of the
    pieces up to it ends.
    """
    encoded = vocabulary.encode(text)
    if encoded.ids == ids:
        return encoded.spans
    ends = [min(len(vocabulary.decode(ids[: count + 1])), len(text)) for count in range(len(ids))]
    ends = np.maximum.accumulate([0, *ends]).tolist()
    return list(pairwise(ends))


def attended(model: Any, name: str, seen: Seen, rows: int) -> Attended:
    """One module's part of the trace; the batch of one is dropped and heads are made plain."""
    weights, scores, context = (heads(part) for part in (seen.weights, seen.scores, seen.context))
    kind = kind_of(model, name, weights.shape[-1])
    if kind == "fixed" and weights.shape[1] == 1:  # one look at the start serves every row
        weights, scores, context = (np.repeat(part, rows, axis=1) for part in (weights, scores, context))
    module = model.get_submodule(name)
    cross = kind in ("cross", "fixed")
    return Attended(
        name,
        weights,
        kind=kind,
        layer=next((int(part) for part in name.split(".") if part.isdigit()), 0),
        scores=scores,
        context_norms=np.linalg.norm(context, axis=-1),
        query=model.looking.query if cross else "current",
        shift=model.looking.shift if cross else 0,
        score=title(module.score),
        normalise=title(module.normalise),
        centre=None if seen.centre is None else seen.centre[0].float().cpu().numpy(),
        half_width=getattr(module.normalise, "half_width", 0),
    )


def kind_of(model: Any, name: str, slots: int) -> str:
    """What a module looks at."""
    if name in model.looking.cross:
        fixed = model.get_submodule(name).score.__class__.__name__ == "function" and slots == 1
        return "fixed" if fixed and title(model.get_submodule(name).score) == "uniform" else "cross"
    return "encoder" if name.startswith("encoder") else "decoder"


def title(part: Any) -> str:
    """The name of a score or normaliser as people say it: scaled dot, additive, softmax."""
    name = getattr(part, "__name__", None) or type(part).__name__
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.replace("_", " ").strip(" ")


def heads(part: Tensor) -> np.ndarray[Any, Any]:
    """[1, T, X] or [1, H, T, X] as an array [H, T, X]."""
    array = part[0].float().cpu().numpy()
    return array if array.ndim == 3 else array[None]


def steps_of(name: str, seen: Seen, rows: int) -> list[Step]:
    """The query and context of each step in a few bins, for the pictures that step through decoding."""
    query, context = heads(seen.query).mean(0), heads(seen.context).mean(0)  # [T, D]
    return [
        Step(
            t,
            name,
            query=bins(query[min(t, len(query) - 1)]),
            context=bins(context[min(t, len(context) - 1)]),
            norms={
                "query": float(np.linalg.norm(query[min(t, len(query) - 1)])),
                "context": float(np.linalg.norm(context[min(t, len(context) - 1)])),
            },
        )
        for t in range(rows)
    ]


def bins(vector: np.ndarray[Any, Any]) -> tuple[float, ...]:
    """A vector as at most BINS averages of neighbours."""
    return tuple(float(part.mean()) for part in np.array_split(vector, min(BINS, len(vector))))


def beam_of(search: Sequence[SearchStep], vocabulary: Vocabulary, size: int) -> Beam:
    """The search tree of the first sentence: every candidate weighed, its parent, and whether it went on."""
    nodes: list[Node] = []
    living: dict[int, int] = {}  # beam slot -> node, of the step before
    for step in search:
        born: dict[int, int] = {}
        row = list(step.sentences).index(0) if 0 in step.sentences else None
        if row is None:
            continue
        for place in range(step.token.shape[1]):
            if not np.isfinite(step.logprob[row, place]):
                continue
            number, slot = len(nodes), int(step.slot[row, place])
            ended = bool(step.ended[row, place])
            nodes.append(
                Node(
                    id=number,
                    parent=living.get(int(step.parent[row, place])) if step.number > 1 else None,
                    step=step.number,
                    token=vocabulary.pieces([int(step.token[row, place])])[0],
                    logprob=float(step.logprob[row, place]),
                    total=float(step.total[row, place]),
                    score=float(step.score[row, place]),
                    finished=ended,
                    pruned=slot < 0 and not ended,
                )
            )
            if slot >= 0:
                born[slot] = number
        living = born
    ended_nodes = sorted((node for node in nodes if node.finished), key=lambda node: -node.score)
    return Beam(size, tuple(nodes), tuple(node.id for node in ended_nodes))
