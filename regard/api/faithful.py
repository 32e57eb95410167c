"""Faithfulness of attributions: what a translator loses without the source words that each method ranks first."""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.api.aligning import check_gold, check_pairs
from regard.api.heads import is_fixed
from regard.api.tracing import LONGEST_LOOK
from regard.api.translator import Translator
from regard.errors import ConfigError, DataError, check_known
from regard.evaluate import faithful
from regard.evaluate.faithful import ORACLE, RANDOM, Estimate, Faithful, Report, Words
from regard.look.attribution import METHODS, check_method
from regard.look.case import Case
from regard.look.gradients import takes_hours
from regard.look.occlusion import ERASERS, erase
from regard.look.table import Show, labels
from regard.symbols import END
from regard.text.pharaoh import Gold
from regard.work import Progress, reporting

Array = NDArray[Any]
SHORT = 8  # source words of a sentence of which every subset is erased, for the oracle
ROWS = 6  # target words of a sentence whose probability is measured, drawn at random
DRAWS = 3  # random orders
SANE = 5  # sentences whose attributions are compared with those of randomised weights
SEED = 1


@dataclass(frozen=True, eq=False)
class _Sentence:
    """A pair of texts in words, R of the target and S of the source, without special tokens."""

    source: str
    target: str
    words: list[list[int]]  # target, source: which rows and columns of an attribution are words
    tokens: list[list[tuple[int, ...]]]  # of each word
    spaced: list[list[int]]  # the word that each belongs to, as white space separates them
    found: dict[str, Array] = field(default_factory=dict)  # method -> [R, S]
    curves: dict[str, Array] = field(default_factory=dict)  # method -> [2, L], means over target words
    correlation: dict[str, float] = field(default_factory=dict)  # method -> with leaving out one word
    measured: int = 0

    def attribute(self, translator: Translator, method: str) -> Array:
        matrix = translator.attribute(self.source, self.target, method).matrix
        return matrix[np.ix_(*self.words)].astype(np.float64)

    def by_space(self, values: Array) -> Array:
        """An attribution between words as gold links count them; the cells of one word are summed."""
        joined = np.zeros([len(text.split()) for text in (self.target, self.source)])
        np.add.at(joined, np.ix_(*self.spaced), values)
        return joined


def measure_faithfulness(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[Gold] | None = None,
    methods: Sequence[str] | None = None,
    erasing: str | None = None,
    sane: int = SANE,
    progress: Progress | None = None,
    most: int | None = None,
) -> Report:
    """How faithful attributions of the given translations are: by `methods`, or by all that the model has; of `most`
    pairs, evenly spaced.

    The words that a method ranks first are erased, and the probability of the target word is measured again. `erasing`
    is "masked" (in every attention over the source), "unknown" (replaced by the unknown word) or "removed"; by default
    masked, and unknown where the model has no attention to words. The first `sane` sentences are attributed once more
    after each part of the model is randomised, from the output to the source. All pairs are checked before the first is
    measured.

    >>> from regard.api.faithful import measure_faithfulness
    >>> chosen = ["attention", "occlusion-masked"]
    >>> translator = regard.load("en-fr/bahdanau")
    >>> found = measure_faithfulness(translator, ["The cat sleeps."], ["Le chat dort."], methods=chosen, sane=0)
    >>> [one.method for one in found.methods], found.methods[1].correlation.value  # with leaving out one word
    (['attention', 'occlusion-masked', 'random', 'oracle'], 1.0)
    """
    translator.needs_one_model("attribute")
    count = min(len(sources), most or len(sources))
    places = [number * len(sources) // count for number in range(count)]
    check_pairs(sources, targets, places)
    if gold is not None:
        check_gold(gold, sources, targets)
    chosen, skipped = list(dict.fromkeys(methods or METHODS)), dict[str, str]()
    for method in list(chosen):
        try:
            check_method(translator.model, method.partition(":")[0])
        except ConfigError as error:
            if methods:
                raise
            skipped[method] = str(error)
            chosen.remove(method)
    erasing = erasing or ("unknown" if is_fixed(translator.model) else "masked")
    check_known("way to erase", erasing, ERASERS)
    if is_fixed(translator.model) and erasing == "masked":
        raise ConfigError(
            f"{translator.name} has no attention to words in which they could be masked; erase by unknown or removed."
        )
    for place in places:
        _check_size(translator, place + 1, sources[place], targets[place], chosen)
    for method in chosen:
        if ":" in method:  # a layer and a head, of attention, which is quick: whether they exist
            translator.attribute(sources[places[0]], targets[places[0]], method)
    generator, seconds, sentences = np.random.default_rng(SEED), dict.fromkeys(chosen, 0.0), list[_Sentence]()
    again = len(parts_of(translator.model)) * min(sane, count)  # attributions of randomised models
    total = (count + again) * len(chosen) + count  # and for each pair what it loses
    steps = reporting(range(total), progress, total)
    for place in places:
        one = _read(translator, sources[place], targets[place])
        for method in chosen:
            next(steps)
            begun = time.perf_counter()
            one.found[method] = one.attribute(translator, method)
            seconds[method] += (time.perf_counter() - begun) / count
        next(steps)
        sentences.append(_measure(translator, one, erasing, generator))
    kept = _kept(translator, sentences[:sane], chosen, steps)
    next(steps, None)
    oracles = [one for one in sentences if ORACLE in one.curves]
    rows = []
    for method in (*chosen, RANDOM, ORACLE):
        have = [one.curves[method] for one in sentences if method in one.curves]  # [N, 2, L]
        more: dict[str, Any] = {"curves": np.mean(have, axis=0)} if have else {}
        if method in chosen:
            areas = [[one.curves[name][0].mean() for name in (method, RANDOM, ORACLE)] for one in oracles]
            more |= {"reach": faithful.reach(areas), "seconds": seconds[method], "kept": kept[method]}
            more["correlation"] = Estimate.of(one.correlation[method] for one in sentences)
            if gold is not None:
                more |= faithful.align(
                    [one.by_space(one.found[method]) for one in sentences], [gold[place] for place in places]
                )
        first, second = (Estimate.of(curves[side].mean() for curves in have) for side in (0, 1))
        rows.append(Faithful(method, first, second, **more))
    measured = sum(one.measured for one in sentences)
    return Report(len(sentences), measured, len(oracles), erasing, tuple(rows), skipped)


def _check_size(translator: Translator, number: int, source: str, target: str, methods: Sequence[str]) -> None:
    """Refuse a pair that cannot be traced, or that a method does not take."""
    sizes = [len(ids) + 1 for ids in (translator.encode(source).ids, translator.prefix_ids(target))]  # with END
    has = f"Pair {number} has {sizes[0]} source and {sizes[1]} target tokens"
    if max(sizes) > LONGEST_LOOK + 1:
        raise DataError(f"{has}; at most {LONGEST_LOOK} on each side can be looked into. Leave the pair out.")
    if "integrated-gradients" in methods and takes_hours(*sizes):
        raise DataError(
            f"{has}, for which integrated gradients would take hours. Leave the pair out, or choose other methods."
        )


def _read(translator: Translator, source: str, target: str) -> _Sentence:
    """A pair with its words, as `Attribution` has them."""
    trace = translator.look(source, target, topk=0)
    words, tokens, spaced = [], [], []
    for side, text in (trace.target, target), (trace.source, source):
        cells = labels(side.text, side.tokens, Show())
        words.append([at for at, cell in enumerate(cells) if not cell.special])
        tokens.append([cells[at].tokens for at in words[-1]])
        last = len(text.split()) - 1
        spaced.append([min(side.tokens[some[0]].word or 0, last) for some in tokens[-1]])
    return _Sentence(source, target, words, tokens, spaced)


def _measure(translator: Translator, one: _Sentence, erasing: str, generator: np.random.Generator) -> _Sentence:
    """The sentence with its curves and correlations."""
    targets, sources = one.tokens
    size, rows = len(sources), sorted(generator.permutation(len(targets))[:ROWS].tolist())
    orders = {name: {row: [faithful.rank(found[row], generator)] for row in rows} for name, found in one.found.items()}
    orders[RANDOM] = {row: [generator.permutation(size).tolist() for _ in range(DRAWS)] for row in rows}
    short, alone = size <= SHORT, [frozenset[int](), *(frozenset([at]) for at in range(size))]
    if short:
        work = [(rows, faithful.subsets(size))]
    else:  # a target word needs few sets, which others seldom need
        every = {row: [order for ranked in orders.values() for order in ranked[row]] for row in rows}
        work = [([row], list(set(alone).union(*map(faithful.needed, every[row])))) for row in rows]
    read, written = translator.encode(one.source).ids, translator.prefix_ids(one.target)
    source, target = (torch.tensor([*ids, END], device=translator.device) for ids in (read, written))
    tables: list[dict[Words, float]] = []  # for each row: words that are erased -> log-probability
    for some, sets in work:
        first, last = targets[some[0]][0], targets[some[-1]][-1]
        case = Case(translator.model, source, target[: last + 1], first=first)
        groups = [[token for word in erased for token in sources[word]] for erased in sets]
        with torch.inference_mode():
            values = erase(case, ERASERS[erasing], groups).double().cpu().numpy()  # [G, last + 1 - first]
        for row in some:
            sums = values[:, [token - first for token in targets[row]]].sum(-1).tolist()
            tables.append(dict(zip(sets, sums, strict=True)))
    for name, ranked in orders.items():
        pairs = zip(ranked.values(), tables, strict=True)
        drawn = [faithful.curves(order, table) for draws, table in pairs for order in draws]
        one.curves[name] = np.mean(drawn, axis=0)
    if short:
        one.curves[ORACLE] = np.mean([faithful.best_curves(size, table) for table in tables], axis=0)
    lost = np.array([[table[alone[0]] - table[some] for some in alone[1:]] for table in tables])  # [rows, S]
    for name, found in one.found.items():
        one.correlation[name] = faithful.similarity(found[rows], lost)
    return replace(one, measured=len(rows))


def _kept(
    translator: Translator, sentences: Sequence[_Sentence], methods: Sequence[str], steps: Iterator[int]
) -> dict[str, dict[str, float]]:
    """What is left of each method's attributions after each part of the model is randomised: part -> similarity."""
    other = copy.copy(translator)
    other.model = copy.deepcopy(translator.model)
    kept: dict[str, dict[str, float]] = {method: {} for method in methods}
    for part in randomise(other.model) if sentences else ():
        for method in methods:
            alike = []
            for one in sentences:
                next(steps)
                alike.append(faithful.similarity(one.attribute(other, method), one.found[method]))
            kept[method][part] = faithful.mean(alike)
    return kept


def parts_of(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of each part of a model: a layer of a stack, or a module."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        first, second, *_ = *name.split("."), ""
        parts.setdefault(f"{first}.{second}" if second.isdigit() else first, []).append(parameter)
    return parts


def randomise(model: nn.Module) -> Iterator[str]:
    """Shuffle the entries of every parameter, one of the `parts_of` a model after the other, and yield the name of each
    once it is done: the last part first, which for a cascade (Adebayo et al. 2018) goes from the output to the source.
    An embedding that is also the output comes last."""
    generator = torch.Generator().manual_seed(SEED)
    for part, parameters in reversed(parts_of(model).items()):
        for parameter in parameters:
            order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
            parameter.data = parameter.data.flatten()[order].view_as(parameter)
        yield part
