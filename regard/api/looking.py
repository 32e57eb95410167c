"""Look inside a translation: its trace, what-ifs and forced words, the search tree, and attributions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.api.aligning import mark_aligning
from regard.api.flags import NOTES, unseen, wrong_with
from regard.api.heads import Heads, is_fixed
from regard.api.terms import TermPairs
from regard.api.tracing import (
    check_length,
    check_words,
    describe_forced,
    note_unseen,
    tokens_of,
    trace_forward,
    with_end,
)
from regard.api.translator import Translator
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.beam import SearchStep
from regard.decode.hypothesis import Hypothesis
from regard.errors import ConfigError, DataError, RunError, counted, numbered
from regard.look.attribution import add_attribution
from regard.look.case import Case
from regard.look.change import Change, Changed, Force, Mask, Silence, change, find
from regard.look.table import Show, labels
from regard.look.trace import Trace
from regard.look.trace_data import Beam, BeamNode
from regard.symbols import END, PAD, START, UNKNOWN
from regard.text.normalise import one_line, rewrite
from regard.text.visible import label


def look(
    translator: Translator,
    source: str,
    target: str | Sequence[int] | None = None,
    *,
    changes: Sequence[Change] = (),
    prefix: str | Sequence[int] | None = None,
    terms: TermPairs | None = None,
    tree: bool = False,
    topk: int = 5,
    by: str | Sequence[str] = (),
    against: str | None = None,
    **options: Any,
) -> Trace:
    """`Translator.look`."""
    translator.needs_one_model("look inside")
    check_changes(translator, changes)
    forces = sorted((item for item in changes if isinstance(item, Force)), key=lambda force: force.t)
    chosen = [] if terms else [target, prefix, *(force.word for force in forces)]  # the user's own words
    if terms:
        if target is not None or prefix is not None or changes or tree:
            raise DataError("Terms exclude a target, a prefix, what-ifs and the search tree; pass one or the other.")
        target = translator.translate(source, terms=terms, split=False, **options).text
    elif target is not None and (prefix is not None or forces):
        raise DataError("A target excludes a prefix and forced words; pass one or the other.")
    encoded, vocabulary = translator.encode(source), translator.target_vocabulary
    check_words(source, encoded)
    check_length(encoded.ids)
    begins = None if prefix is None else translator.prefix_ids(prefix)
    forced, steps = describe_forced(vocabulary, begins), list[SearchStep]()
    _, noted = translator.check_source(encoded)
    others = locate([item for item in changes if item not in forces], translator.model, encoded)
    with torch.inference_mode(), change(translator.model, *others) as changed:
        if target is None:
            config = translator.settings(**options)

            def search(begins: list[int] | None, **more: Any) -> Hypothesis:
                changed.restart()
                asked = {"prefixes": None if begins is None else [begins], **more}
                return translator.search([encoded.ids], config, **asked)[0][0]

            for force in forces:  # each needs a search, since the words before it are the model's
                found, first = search(begins).ids, len(begins or ())
                if not first <= force.t <= len(found):
                    raise ConfigError(
                        f"Step {force.t} cannot be forced; after what is forced before it, the steps are {first} to "
                        f"{len(found)}."
                    )
                begins = found[: force.t] + translator.prefix_ids(force.word)
                forced.append({**force.describe(), "rows": list(range(force.t, len(begins)))})
            hypothesis = search(begins, observe=steps.append if tree else None)
            text, same = vocabulary.decode(hypothesis.ids), translator.source_language == translator.target_language
            noted |= {flag: NOTES[flag] for flag in wrong_with(source, text, hypothesis.ended, same)}
            written = with_end(hypothesis.ids, hypothesis.finished)
        else:
            written = [*translator.prefix_ids(target), END]
            check_length(written[:-1])
        spelled = [vocabulary.encode(one_line(text)) for text in chosen if isinstance(text, str)]
        notes = (
            *note_unseen("unseen", "the source holds", encoded),
            *({"flag": flag, "text": note} for flag, note in noted.items() if flag != "unseen"),
            *note_unseen("forced", "the forced words hold", *spelled),
        )
        trace = trace_forward(
            translator.model, translator.inputs(source), written, tokens_of(encoded, ended=True), vocabulary, topk,
            changes=(*mark_unreached(changed, len(written)), *forced), notes=notes, beam=beam_of(steps, vocabulary),
            about=translator.about,
        )  # fmt: skip
    if translator.calibration is not None:
        plain = [index for index in written if index != END]
        logprobs = [token.logprob for token in trace.target.tokens if token.logprob is not None]
        sure = translator.calibration.rate(translator.decoded(encoded, plain, logprobs)).words
        tokens = (
            token if token.word is None or token.special else replace(token, confidence=round(sure[token.word][1], 4))
            for token in trace.target.tokens
        )
        trace = replace(trace, target=replace(trace.target, tokens=tuple(tokens)))
    if by or against is not None:
        trace = add_attributions(translator, trace, encoded.ids, written, [by] if isinstance(by, str) else by, against)
    return mark_aligning(trace, translator.heads)


def mark_unreached(changed: Changed, rows: int) -> list[dict[str, Any]]:
    """The descriptions of changes; those of rows that the translation does not have say so."""
    beyond = f" (no effect: the translation has {numbered('row', rows)})"
    return [
        {**one, "text": one["text"] + beyond} if change.where() is None and one.get("row", 0) >= rows else one
        for change, one in zip(changed.changes, changed.describe(), strict=True)
    ]


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


# --- attributions


def add_attributions(
    translator: Translator, trace: Trace, read: list[int], written: list[int], methods: Sequence[str],
    against: str | None,
) -> Trace:  # fmt: skip
    """The trace with what `methods` find in its sentence; with `against`, compared with that word."""
    if not methods:
        raise DataError("A word to compare with needs a method; pass by='occlusion-removed', for example.")
    if any(one["kind"] != "force" for one in trace.changes):
        raise DataError("An attribution explains the model as it is; leave out the what-ifs that change attention.")
    source, target = (torch.tensor(ids, device=translator.device) for ids in ([*read, END], written))
    other = None
    if against is not None:  # the token that the word begins with; a piece of the vocabulary is that token
        vocabulary = translator.target_vocabulary
        encoded = vocabulary.encode(one_line(against))
        other = vocabulary.numbers.get(against, encoded.ids[0] if encoded.ids else UNKNOWN)
        if other in (PAD, START, UNKNOWN) or (against not in vocabulary.numbers and unseen(encoded)):
            raise DataError(
                f"There is no word {against!r:.60} in the target vocabulary to compare with; pass another one."
            )
    for method in methods:
        name, _, place = method.partition(":")
        heads = translator.heads
        if place:
            if name not in ("attention", "attention-norm") or not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4})?", place):
                raise ConfigError(
                    f"A layer and a head are for the methods attention and attention-norm, as in attention:1.0; "
                    f"got {method!r:.60}."
                )
            heads = Heads(*map(int, place.split(".")))
        case = Case(translator.model, source, target, other, (), heads.layer, heads.head, heads.shift or 0)
        trace = add_attribution(trace, case, method, against or "")
    return trace


# --- what-ifs by name: `Mask("station")` hides a word, and `Silence("1.0")` removes head 0 of layer 1


def check_changes(translator: Translator, changes: Sequence[Change]) -> None:
    """Refuse changes of attention if the model has none; words can be forced in any model."""
    if isinstance(changes, Change):
        raise DataError("Changes are a list, as in changes=[Mask(0)]; got a single change.")
    if any(not isinstance(item, Force) for item in changes) and is_fixed(translator.model):
        raise RunError(
            f"{translator.name} has no attention to words to change (model {translator.experiment.name}); force words "
            f"of the translation, or use another model, such as bahdanau, luong or transformer."
        )


def locate(changes: Sequence[Change], model: nn.Module, encoded: Tokenised) -> list[Change]:
    """`changes` with words of the sentence `encoded` as positions, and layers and heads as modules of `model`."""
    found: list[Change] = []
    for item in changes:
        if isinstance(item, Mask) and isinstance(item.position, str):
            found += [replace(item, position=at, word=text) for at, text in _pieces(encoded, item.position)]
        elif isinstance(item, Silence) and (place := re.fullmatch(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?", item.name)):
            # LAYER or LAYER.HEAD of the attention over the source, from 0; any other name is that of a module.
            cross, layer = find(model, None), int(place[1])
            if layer >= len(cross):
                have = numbered("layer", len(cross))
                raise ConfigError(f"There is no layer {layer} of attention over the source; this model has {have}.")
            found.append(Silence(cross[layer], item.head if place[2] is None else int(place[2])))
        else:
            found.append(item)
    return found


def _pieces(encoded: Tokenised, word: str) -> Iterator[tuple[int, str]]:
    """The positions of all pieces of a source word, given by its text (every occurrence) or by its number from 0.

    A word is what a picture shows in one cell ("1992" of "1992.") or the text between two spaces ("1992.").
    """
    tokens, listed = tokens_of(encoded, ended=False).tokens, encoded.text.split()
    for show in (Show(), Show(punctuation=False)):
        cells = [cell for cell in labels(encoded.text, tokens, show) if cell.text == rewrite(word).text]
        if cells:
            return ((at, cell.text) for cell in cells for at in cell.tokens)
    if not (word.isascii() and word.isdecimal() and int(word[:9]) < len(listed)):
        raise ConfigError(
            f"There is no word {label(word)!r} in the sentence; pass one of its {counted(len(listed), 'word')}, or its "
            "position, from 0."
        )
    return ((at, listed[int(word)]) for at, group in enumerate(encoded.words) if group == int(word))
