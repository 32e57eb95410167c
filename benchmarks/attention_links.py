"""Word links from attention: where the argmax is wrong, and what a dictionary made of the attention itself mends.

    python benchmarks/attention_links.py errors runs/ahead pbtest
    python benchmarks/attention_links.py dictionary runs/ahead runs/back some pbdev pbtest --links some.links
    python benchmarks/attention_links.py text europarl odd even all
    python benchmarks/attention_links.py score all.gold ahead.links --back back.links

pbtest is a prefix as `regard corpora --out` writes it: pbtest.source, pbtest.target, pbtest.gold.

`errors` counts wrong argmax links by target word, and shows where the rows of a last full stop and of END look.
`dictionary` sums the weights of all pairs of `some` to p(source word | target word), multiplies each row of weights
with it, and estimates it again from the mean of the products of both directions. The directions are joined by the
geometric mean: the argmax of each target word, and every weight of at least `--least`. Gold links are read for the
score alone.
`--prior diagonal` takes exp(-10 |i/S - j/T|) in the place of attention, `--prior uniform` is IBM model 1.
`text` links by the words of parallel text alone, what `regard align --text` mixes with attention.
`score` gives the error rate of links from elsewhere, and of those of two directions joined, on the last lines of their
files: all of them, the odd ones and the even ones.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import regard
from regard.api.aligning import traces, word_weights
from regard.evaluate.alignment import (
    SYMMETRISATIONS,
    argmax_links,
    mutual_argmax_links,
    read_gold,
    score_alignments,
    symmetrise,
    threshold_links,
    write_pharaoh,
)
from regard.evaluate.word_pairs import expect_links
from regard.text.lines import read_lines
from regard.text.pharaoh import parse_pharaoh

Words = Sequence[Sequence[str]]
Weights = Sequence[NDArray[Any]]  # [target words, source words] of each pair
Prior = Callable[[Words, Words], Weights]
Dictionary = dict[str, dict[str, float]]
UNSEEN = 1e-6  # p(source word | target word) of a pair that was never together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("errors")
    one.add_argument("run")
    one.add_argument("prefix")
    two = commands.add_parser("dictionary")
    for name in ("ahead", "back", "train"):
        two.add_argument(name)
    two.add_argument("tests", nargs="+")
    two.add_argument("--links", type=Path, help="write those of the pairs `train` to this file")
    two.add_argument("--prior", default="attention", choices=("attention", "diagonal", "uniform"))
    two.add_argument(
        "--rounds", type=int, default=2, help="how often the dictionary is estimated again; -1: no dictionary"
    )
    two.add_argument("--floor", type=float, default=0.003, help="added to every weight")
    two.add_argument("--least", type=float, default=0.3)
    three = commands.add_parser("text")
    three.add_argument("train")
    three.add_argument("tests", nargs="+")
    three.add_argument("--least", type=float, default=0.5)
    four = commands.add_parser("score")
    for name in ("gold", "links"):
        four.add_argument(name, type=Path)
    four.add_argument("--back", type=Path, help="the links of the other direction, also as source-target")
    given = parser.parse_args()
    if given.command == "errors":
        errors(given.run, given.prefix)
    elif given.command == "dictionary":
        compare(given)
    elif given.command == "text":
        link_by_text(given.train, given.tests, given.least)
    else:
        score(given.gold, given.links, given.back)


def read(prefix: str) -> tuple[Words, Words]:
    source, target = ([line.split() for line in read_lines(f"{prefix}.{side}")] for side in ("source", "target"))
    return source, target


def attention(run: str) -> Prior:
    translator = regard.load(run)

    def weigh(sources: Words, targets: Words) -> Weights:
        source, target = ([" ".join(words) for words in side] for side in (sources, targets))
        return [word_weights(trace, translator.heads) for trace in traces(translator, source, target)]

    return weigh


def diagonal(steepness: float) -> Prior:
    def weigh(sources: Words, targets: Words) -> Weights:
        found = []
        for source, target in zip(sources, targets, strict=True):
            away = np.arange(len(source)) / len(source) - np.arange(len(target))[:, None] / len(target)
            found.append(np.exp(-steepness * np.abs(away)))
        return [rows / rows.sum(1, keepdims=True) for rows in found]

    return weigh


def count(weights: Iterable[NDArray[Any]], sources: Words, targets: Words) -> Dictionary:
    """p(source word | target word): the weights summed over all pairs."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for rows, source, target in zip(weights, sources, targets, strict=True):
        for row, written in zip(rows.tolist(), target, strict=True):
            for weight, word in zip(row, source, strict=True):
                sums[written][word] += weight
    return {w: {s: n / max(sum(row.values()), 1e-30) for s, n in row.items()} for w, row in sums.items()}


def look_up(known: Dictionary, weights: Weights, sources: Words, targets: Words, floor: float) -> Weights:
    """Each row times p(source word | its word), to sum 1."""
    found = []
    for rows, source, target in zip(weights, sources, targets, strict=True):
        table = np.array([[known.get(w, {}).get(s, UNSEEN) for s in source] for w in target])
        scores = (rows + floor) * table
        found.append(scores / np.maximum(scores.sum(1, keepdims=True), 1e-12))
    return found


def compare(given: argparse.Namespace) -> None:
    priors = {"diagonal": diagonal(10), "uniform": diagonal(0)}
    ways = [priors.get(given.prior) or attention(run) for run in (given.ahead, given.back)]

    def weigh(prefix: str) -> tuple[list[tuple[Words, Words]], list[Weights]]:
        source, target = read(prefix)
        sides = [(source, target), (target, source)]
        return sides, [way(*side) for way, side in zip(ways, sides, strict=True)]

    def looked_up(sides: Sequence[tuple[Words, Words]], weights: Sequence[Weights]) -> list[Weights]:
        return [look_up(k, w, *side, given.floor) for k, w, side in zip(known, weights, sides, strict=True)]

    sides, weights = weigh(given.train)
    known = [count(w, *side) for w, side in zip(weights, sides, strict=True)]
    for _ in range(given.rounds):
        both = [(ahead + back.T) / 2 for ahead, back in zip(*looked_up(sides, weights), strict=True)]
        known = [count(both, *sides[0]), count((w.T for w in both), *sides[1])]
    for prefix in ([given.train] if given.links else []) + given.tests:
        rows = weigh(prefix)[1] if given.rounds < 0 else looked_up(*weigh(prefix))
        both = [np.sqrt(ahead * back.T) for ahead, back in zip(*rows, strict=True)]
        joined = [argmax_links(w) | threshold_links(w, given.least) for w in both]
        if given.links and prefix == given.train:
            write_pharaoh(joined, given.links)
            continue
        gold = read_gold(f"{prefix}.gold")
        print(f"{prefix}: ahead alone  {score_alignments([argmax_links(w) for w in rows[0]], gold)}")
        print(f"{prefix}: both         {score_alignments(joined, gold)}", flush=True)


def link_by_text(train: str, tests: Sequence[str], least: float) -> None:
    text = [list(read_lines(f"{train}.{side}")) for side in ("source", "target")]
    for prefix in tests:
        pairs = [list(read_lines(f"{prefix}.{side}")) for side in ("source", "target")]
        gold = read_gold(f"{prefix}.gold")
        weights = expect_links([*text[0], *pairs[0]], [*text[1], *pairs[1]], len(gold))
        print(f"{prefix}: mutual      {score_alignments([mutual_argmax_links(w) for w in weights], gold)}")
        print(
            f"{prefix}: at least {least}  {score_alignments([threshold_links(w, least) for w in weights], gold)}",
            flush=True,
        )


def score(gold_file: Path, links: Path, back: Path | None) -> None:
    gold = read_gold(gold_file)
    ahead, *behind = (
        [parse_pharaoh(line, str(file)) for line in read_lines(file)][-len(gold) :] for file in (links, back) if file
    )
    found = {"ahead": ahead}
    if behind:
        found["back"] = behind[0]
        for name in SYMMETRISATIONS:
            found[name] = [symmetrise(one, two, name) for one, two in zip(ahead, behind[0], strict=True)]
    for name, alignments in found.items():
        halves = [f"{100 * score_alignments(alignments[n::2], gold[n::2]).aer:.2f}" for n in (0, 1)]
        print(f"{name:20} {score_alignments(alignments, gold)}  odd {halves[0]}  even {halves[1]}")


def errors(run: str, prefix: str) -> None:
    sources, targets = read(prefix)
    gold = read_gold(f"{prefix}.gold")
    links = [argmax_links(weights) for weights in attention(run)(sources, targets)]
    wrong: Counter[str] = Counter()
    away: Counter[int] = Counter()
    words = Counter(word for target in targets for word in target)
    second = 0
    for found, (sure, _), target in zip(links, gold, targets, strict=True):
        for source, place in found - sure:
            wrong[target[place]] += 1
            away[min((source - i for i, j in sure if j == place), key=abs, default=0)] += 1
        right = {place for _, place in found & sure}
        second += sum(place in right for _, place in sure - found)
    print(score_alignments(links, gold))
    print(f"{sum(wrong.values())} wrong links; {second} missed links of words that have a right one")
    print("places from the right word:", "  ".join(f"{d:+d}: {n}" for d, n in away.most_common(6)))
    for word, number in wrong.most_common(25):
        print(f"{word:12} {number:4} wrong of {words[word]:4}")
    stops(run, sources, targets)


def stops(run: str, sources: Words, targets: Words) -> None:
    """Where the rows of a last full stop and of END look: at the source's full stop (its last word), or at its END."""
    translator = regard.load(run)
    source, target = ([" ".join(words) for words in side] for side in (sources, targets))
    corners = []
    for trace in traces(translator, source, target):
        if trace.target.tokens[-2].text == ".":
            rows = next(seen for seen in trace.attention.values() if seen.kind == "cross").weights.mean(0)
            corners.append(rows[-2:, -2:])
    mean = np.mean(corners, axis=0)
    for name, row in zip(("full stop", "END"), mean, strict=True):
        print(f"row of {name}: {row[0]:.2f} on the full stop, {row[1]:.2f} on END")


if __name__ == "__main__":
    main()
