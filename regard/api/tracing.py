"""The trace of a sentence and its output: a forward pass with every attention call recorded, and the other parts of a
trace (search tree, forced words, notes)."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.api.flags import NOTES, unseen
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.beam import SearchStep
from regard.decode.hypothesis import Hypothesis
from regard.errors import ConfigError, DataError
from regard.look.assemble import add_probabilities, assemble
from regard.look.change import Force
from regard.look.record import record
from regard.look.tokens import Side, Token
from regard.look.trace import Trace
from regard.look.trace_data import Beam, BeamNode
from regard.models.pointer import Pointer
from regard.symbols import END, SYMBOLS

LONGEST_LOOK = 1_000  # tokens of a sentence that can be traced: every head keeps T x S numbers


def trace_forward(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    written: Sequence[int],
    source: Side,
    vocabulary: Vocabulary,
    topk: int,
    target: Side | None = None,
    **parts: Any,
) -> Trace:
    """The trace of the ids `written` after `inputs`; `parts` are those of `assemble`.

    Costs one forward pass. The target gets the probabilities of its tokens and of `topk` alternatives to each. The
    steps of a model that copies hold the probability of copying as `norms["copy"]`.
    """
    if topk < 0:
        raise ConfigError(f"topk must be at least 0; got {topk}.")
    ids = torch.tensor([list(written)], device=next(model.parameters()).device)  # [1, T]
    shares: list[Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        seen = stack.enter_context(record(model))
        if isinstance(model, Pointer):
            hook = model.generate.register_forward_hook(lambda module, args, share: shares.append(1 - share[0, :, 0]))
            stack.enter_context(hook)
        logits = model(*inputs, ids)  # [1, T, V]
    target = target or spelled(vocabulary, written)
    target = add_probabilities(target, written, logits[0], lambda index: vocabulary.pieces([index])[0], topk)
    trace = assemble(model, seen, source, target, **parts)
    return with_norms(trace, "copy", shares[0].tolist() if shares else ())  # [T]


def with_norms(trace: Trace, name: str, numbers: Sequence[float]) -> Trace:
    """The trace with a number for each of its steps; unchanged if there are none."""
    if not numbers:
        return trace
    norms = [{**step.norms, name: round(numbers[step.t], 6)} for step in trace.steps]
    return replace(trace, steps=tuple(replace(step, norms=some) for step, some in zip(trace.steps, norms, strict=True)))


def spelled(vocabulary: Vocabulary, written: Sequence[int]) -> Side:
    """The tokens of ids that a model wrote, with END if it is among them."""
    plain = [index for index in written if index != END]
    return tokens_of(vocabulary.tokenised(plain), ended=len(plain) < len(written))


def with_end(written: list[int], ended: bool) -> list[int]:
    """The ids that a search found, END last if they ended; an empty text always has it."""
    return [*written, END] if ended or not written else written


def check_words(text: str, encoded: Tokenised, what: str = "sentence") -> None:
    """Refuse a text without words."""
    if not encoded.ids or not text.split():
        raise DataError(f"There is nothing to look at in an empty {what}; pass at least one word.")


def check_length(ids: Sequence[int]) -> None:
    """Refuse a sentence that is too long to trace."""
    if len(ids) > LONGEST_LOOK:
        raise DataError(f"A sentence of {len(ids)} tokens is too long to look into; give at most {LONGEST_LOOK}.")


def force_words(
    forces: Iterable[Force],
    begins: list[int] | None,
    search: Callable[[list[int] | None], Hypothesis],
    encode: Callable[[str], list[int]],
) -> tuple[list[int] | None, list[dict[str, Any]]]:
    """The ids that a translation must begin with to have all forced words, which are sorted by step, and the
    descriptions of these words for a trace. Each needs a search, since the words before it are the model's."""
    described = []
    for force in forces:
        found, first = search(begins).ids, len(begins or ())
        if not first <= force.t <= len(found):
            raise ConfigError(
                f"Step {force.t} cannot be forced; after what is forced before it, the steps are {first} to "
                f"{len(found)}."
            )
        begins = found[: force.t] + encode(force.word)
        described.append({**force.describe(), "rows": list(range(force.t, len(begins)))})
    return begins, described


def describe_forced(vocabulary: Vocabulary, forced: Sequence[int] | None) -> list[dict[str, Any]]:
    """A forced beginning as one of the changes of a trace: the rows that were not the model's choice."""
    if not forced:
        return []
    text = f"begins with '{vocabulary.decode(forced)}'"
    return [{"kind": "force", "text": text, "rows": list(range(len(forced)))}]


def notes_of(flags: Iterable[str], source: Tokenised, forced: Iterable[Tokenised]) -> tuple[dict[str, Any], ...]:
    """The notes of a trace: the flags of a translation in words, and forced words that the vocabulary does not have."""
    return (
        *note_unseen("unseen", "the source holds", source),
        *({"flag": flag, "text": NOTES[flag]} for flag in flags if flag != "unseen"),
        *note_unseen("forced", "the forced words hold", *forced),
    )


def note_unseen(flag: str, holder: str, *texts: Tokenised) -> tuple[dict[str, Any], ...]:
    """A note about characters or words that are not in the vocabulary, if `texts` have any."""
    words = [word for text in texts for word in unseen(text)]
    text = f"{holder} characters or words that were never seen in training"
    return ({"flag": flag, "text": text, "words": words},) if words else ()


def tokens_of(tokenised: Tokenised, ended: bool) -> Side:
    """The tokens of a text with their positions and the words they belong to; END last if the sentence ended."""
    text = tokenised.text
    tokens = [
        Token(text[start:end].strip(" ") or piece, piece, start, end, word=word)
        for piece, (start, end), word in zip(tokenised.pieces, tokenised.spans, tokenised.words, strict=True)
    ]
    end = [Token(SYMBOLS[END], SYMBOLS[END], len(text), len(text), special=True)] if ended else []
    return Side(text, (*tokens, *end))


def beam_of(search: Sequence[SearchStep], vocabulary: Vocabulary) -> Beam | None:
    """The search tree of one sentence: every candidate, its parent, and whether it was kept; None without steps."""
    if not search:
        return None
    nodes: list[BeamNode] = []
    living: dict[int, int] = {}  # beam slot -> node, of the step before
    for step in search:
        born: dict[int, int] = {}
        for place in np.flatnonzero(np.isfinite(step.logprob[0])).tolist():
            slot, ended = int(step.slot[0, place]), bool(step.ended[0, place])
            node = BeamNode(
                id=len(nodes),
                parent=living[int(step.parent[0, place])] if step.number > 1 else None,
                step=step.number,
                token=vocabulary.pieces([int(step.token[0, place])])[0],
                logprob=float(step.logprob[0, place]),
                total=float(step.total[0, place]),
                score=float(step.score[0, place]),
                finished=ended,
                pruned=slot < 0 and not ended,
            )
            nodes.append(node)
            if slot >= 0:
                born[slot] = node.id
        living = born
    finished = sorted((node for node in nodes if node.finished), key=lambda node: -node.score)
    size = 1 + max(int(step.slot[0].max()) for step in search)  # as many hypotheses as were kept at once
    return Beam(max(1, size), tuple(nodes), tuple(node.id for node in finished))
