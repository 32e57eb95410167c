"""Calibrate the confidence of the models that ship on newstest2013, and judge it elsewhere.

    python benchmarks/confidence.py data --keep               # all models; writes models/*/confidence.json
    python benchmarks/confidence.py data en-fr --drawn docs/confidence.svg
    python benchmarks/confidence.py data en-fr --cost 60      # what it costs, with one thread

Judged are newstest2014, the Europarl test set, the held-out part of Tatoeba, and captions of Multi30k with their German
as a source in an unknown language. A source is broken in two ways: "forced" pairs the translation of the true source
with a broken source, "own" is the model's translation of the broken source. Log-probability is the mean over tokens.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cards import read_sets
from models_data import read

import regard
from regard.api.confidence import calibrate, decode_texts, force_texts, keep_calibration
from regard.api.translator import Translator
from regard.evaluate.confidence import (
    BREAKS,
    Calibration,
    Decoded,
    Judged,
    auroc,
    calibration_error,
    reliability,
    sentence_signals,
    word_labels,
    word_signals,
)
from regard.evaluate.scores import build_metric
from regard.runs.included import find_run, shipped


def main() -> None:
    """Calibrate, judge, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of corpora")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="models or run folders (default: all that ship)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lines", type=int, default=10**6, help="lines of each set")
    parser.add_argument("--broken", type=int, default=10**6, help="lines of newstest2014 and Tatoeba that are broken")
    parser.add_argument("--keep", action="store_true", help="write the calibration into the run folder")
    parser.add_argument("--drawn", type=Path, help="reliability diagram of the first model")
    parser.add_argument(
        "--cost",
        type=int,
        default=0,
        metavar="LINES",
        help="only measure the time of LINES lines, with and without confidence",
    )
    given = parser.parse_args()
    fitting = [read(given.data / f"newstest.en-fr/newstest2013.{side}.bz2")[: given.lines] for side in ("en", "fr")]
    captions = [read(given.data / f"multi30k/test_2016_flickr.{side}.bz2") for side in ("en", "fr", "de")]
    sets = read_sets(given.data) | {"multi30k": list(zip(*captions[:2], strict=True))}
    for name in given.runs or shipped():
        translator = regard.load(name, given.device)
        sides = fitting if translator.source_language == "en" else fitting[::-1]
        if given.cost:
            cost(translator, sides[0][: given.cost])
            continue
        found = calibrate(translator, *sides)
        if given.keep:
            keep_calibration(find_run(name), found)
        print(f"\n## {name}: {found.about['sentences']} sentences, {found.about['words']} words\n")
        curves = {}
        for place, pairs in sets.items():
            ways = [list(side)[: given.lines] for side in zip(*pairs, strict=True)]
            sources, references = ways if translator.source_language == "en" else ways[::-1]
            true = score_texts(translator, sources, references)
            curves[place] = report(place, found, true)
            if place in ("newstest2014", "tatoeba"):
                report_detached(translator, found, true, sources[: given.broken], references[: given.broken])
            if place == "multi30k":
                compare("own", "German", found, true, decode_texts(translator, captions[2][: len(sources)]))
        if given.drawn:
            draw({place: curves[place] for place in ("newstest2014", "europarl", "tatoeba")}, given.drawn)
            given.drawn = None


def score_texts(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> list[Judged]:
    """Translations with their chrF; those without words are left out."""
    chrf, found = build_metric("chrf"), decode_texts(translator, sources)
    scored = (chrf.sentence_score(one.text, [words]).score / 100 for one, words in zip(found, references, strict=True))
    return [Judged(*one) for one in zip(found, references, scored, strict=True) if one[0].text.split()]


def report(place: str, found: Calibration, true: list[Judged]) -> list[list[tuple[float, float, int]]]:
    """The calibration error of words and sentences, the correlation with chrF; returns both reliability curves."""
    words = np.concatenate([word_signals(one.found) for one in true])
    labels = np.concatenate([word_labels(one.found.text, one.reference) for one in true]).astype(float)
    own, chrf = np.stack([sentence_signals(one.found) for one in true]), np.array([one.chrf for one in true])
    raw, rated, sure = own_chances(true), found.word(words), found.sentence(own)
    plain = mean_logprob([one.found for one in true])
    print(
        f"{place}: {len(true)} sentences, {len(labels)} words, {labels.mean():.3f} of them in the reference; "
        f"word ECE {calibration_error(raw, labels):.4f} before, {calibration_error(rated, labels):.4f} after; "
        f"AUROC of words {auroc(raw[labels > 0], raw[labels == 0]):.3f} before, "
        f"{auroc(rated[labels > 0], rated[labels == 0]):.3f} after; mean confidence {sure.mean():.3f}, chrF "
        f"{chrf.mean():.3f}, sentence ECE {calibration_error(sure, chrf):.4f}; correlation with chrF "
        f"{np.corrcoef(plain, chrf)[0, 1]:.3f} by log-probability, {np.corrcoef(sure, chrf)[0, 1]:.3f} by confidence",
        flush=True,
    )
    for least in (0.2, 0.3, 0.4, 0.5):
        kept = sure >= least
        mean = f"chrF {chrf[kept].mean():.3f} kept" if kept.any() else "none kept"
        gone = f", {chrf[~kept].mean():.3f} left empty" if not kept.all() else ""
        print(f"  --min-confidence {least}: {1 - kept.mean():.3f} of the lines left empty; {mean}{gone}")
    return [reliability(raw, labels), reliability(rated, labels)]


def own_chances(true: list[Judged]) -> np.ndarray:
    """The probability of each word by the model: the product over its pieces."""
    each = []
    for one in true:
        sums = np.zeros(len(one.found.text.split()))
        np.add.at(sums, one.found.words, one.found.logprobs[: len(one.found.words)])
        each.append(np.exp(sums))
    return np.concatenate(each)


def report_detached(
    translator: Translator, found: Calibration, true: list[Judged], sources: list[str], references: list[str]
) -> None:
    """AUROC of each kind of broken source against the true ones, by log-probability alone and by confidence."""
    rng, written = random.Random(1), [one.text for one in decode_texts(translator, sources)]
    broken = {kind: [change(source, rng) for source in sources] for kind, change in BREAKS.items()}
    broken |= {"truncated": [" ".join(one.split()[: max(1, len(one.split()) // 2)]) for one in sources]}
    broken |= {"language": references}
    mixed: list[Decoded] = []
    for kind, texts in {"another": [*sources[1:], *sources[:1]], **broken}.items():
        forced = force_texts(translator, texts, written)
        mixed += forced if kind == "another" else []
        compare("forced", kind, found, true, forced)
    for kind, texts in broken.items():
        own = decode_texts(translator, texts)
        mixed += own if kind != "truncated" else []
        compare("own", kind, found, true, own)
    compare("all", "of the kinds that were fitted", found, true, mixed)


def compare(how: str, kind: str, found: Calibration, true: list[Judged], detached: list[Decoded]) -> None:
    """Print both AUROCs of one kind."""
    sides = [one.found for one in true], detached
    rated = [found.sentence(np.stack([*map(sentence_signals, side)])) for side in sides]
    print(
        f"  {how} {kind} ({len(detached)}): log-probability {auroc(*map(mean_logprob, sides)):.3f}, confidence "
        f"{auroc(*rated):.3f}; left empty at --min-confidence 0.3: {(rated[1] < 0.3).mean():.3f}",
        flush=True,
    )


def mean_logprob(some: list[Decoded]) -> np.ndarray:
    """The mean log-probability of the tokens of each translation."""
    return np.array([np.mean(one.logprobs) if one.logprobs else -np.inf for one in some])


def draw(curves: dict[str, list[list[tuple[float, float, int]]]], out: Path) -> None:
    """A reliability diagram of words for each set: how many are in the reference, by confidence."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curves), figsize=(3.2 * len(curves), 3.4), sharey=True, layout="constrained")
    for axis, (place, both) in zip(axes, curves.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
        for curve, label, colour in zip(both, ("probability", "confidence"), ("#b5651d", "#1f5fa8"), strict=True):
            chance, right, sizes = (np.array(part) for part in zip(*curve, strict=True))
            axis.plot(chance, right, color=colour, linewidth=1.2, label=label)
            axis.scatter(chance, right, s=4 + 120 * sizes / sizes.sum(), color=colour)
        axis.set(title=place, xlim=(0, 1), ylim=(0, 1), xlabel="confidence of a word", aspect="equal")
    axes[0].set_ylabel("share in the reference")
    axes[0].legend(loc="upper left", frameon=False)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def cost(translator: Translator, sources: list[str]) -> None:
    """CPU seconds with and without confidence, by turns in one run; and what the confidence alone takes."""
    translator.translate(sources[:8])
    spent = {False: 0.0, True: 0.0}
    for confidence in (False, True, True, False):
        began = time.process_time()
        translator.translate(sources, confidence=confidence)
        spent[confidence] += time.process_time() - began
    found = decode_texts(translator, sources)
    numbers = [(translator.encode(one.source), translator.prefix_ids(one.text), one.logprobs) for one in found]
    assert translator.calibration is not None
    began = time.process_time()
    for encoded, ids, logprobs in numbers:
        translator.calibration.rate(translator.decoded(encoded, ids, logprobs))
    alone = 2 * (time.process_time() - began)
    print(
        f"{translator.name}: {len(sources)} lines twice, CPU seconds {spent[False]:.2f} without, {spent[True]:.2f} with"
        f" ({spent[True] / spent[False] - 1:+.1%}); the confidence alone {alone:.3f} ({alone / spent[False]:.2%})"
    )


if __name__ == "__main__":
    main()
