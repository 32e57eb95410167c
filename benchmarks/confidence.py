"""Judge the confidence of translators by test sets: calibration, detached sources, correlation with chrF, cost.

    python benchmarks/confidence.py data                          # the models that ship, every line
    python benchmarks/confidence.py data runs/mine --sets newstest2014 --lines 500 --broken 125
    python benchmarks/confidence.py data en-fr --sets newstest2014,europarl,tatoeba --drawn docs/confidence.svg
    python benchmarks/confidence.py data en-fr --origins --lines 600      # newstest2013, by the language of its authors
    python benchmarks/confidence.py data en-fr/cho --signals              # would further signals help?
    python benchmarks/confidence.py data en-fr/cho --few                  # how many pairs does a fit of words need?
    python benchmarks/confidence.py data en-fr --cost 60                  # what it costs, with one thread

The sets are newstest2014, the Europarl test set, the held-out part of Tatoeba, and captions of Multi30k with their
German as a source in an unknown language. A source is broken in two ways: "forced" pairs the translation of the true
source with a broken source, "own" is the model's translation of the broken source. Log-probability is the mean over
tokens. The confidence is the one in the run, which `regard calibrate` fits. `--kept FOLDER` keeps the translations, so
that another calibration of the same weights is judged in seconds.
"""

import argparse
import hashlib
import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cards import read_sets
from models_data import Pairs, read

import regard
from regard.api.confidence import decode_texts, force_texts
from regard.api.translator import Translator
from regard.evaluate.confidence import (
    BREAKS,
    DETACHED,
    LATER,
    SENTENCE_SIGNALS,
    SURE,
    Calibration,
    Decoded,
    Judged,
    auroc,
    calibration_error,
    fit,
    reliability,
    sentence_signals,
    word_labels,
    word_signals,
)
from regard.evaluate.scores import build_metric
from regard.runs.included import find_run, shipped

ORIGINS = ("fr", "ru", "cs", "de", "en", "es")  # of newstest2013: 500 lines each, in this order


def main() -> None:
    """Judge, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of corpora")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="models or run folders (default: all that ship)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sets", default="newstest2014,europarl,tatoeba,multi30k", help="separated by commas")
    parser.add_argument("--lines", type=int, default=10**6, help="lines of each set, evenly spaced")
    parser.add_argument("--broken", type=int, default=10**6, help="lines of newstest2014 that are broken in each way")
    parser.add_argument("--kept", type=Path, help="folder that keeps the translations of each model")
    parser.add_argument("--drawn", type=Path, help="reliability diagram of the first model")
    parser.add_argument("--origins", action="store_true", help="only judge newstest2013, by origin")
    parser.add_argument("--signals", action="store_true", help="only try further signals, on newstest2013")
    parser.add_argument("--few", action="store_true", help="only fit words to few lines of newstest2013")
    parser.add_argument("--cost", type=int, default=0, metavar="LINES", help="only measure the time of LINES lines")
    given = parser.parse_args()
    years = {year: read_pairs(given.data / f"newstest.en-fr/newstest{year}") for year in (2013, 2014)}
    captions = [read(given.data / f"multi30k/test_2016_flickr.{side}.bz2") for side in ("en", "fr", "de")]
    sets = read_sets(given.data) | {"multi30k": list(zip(*captions[:2], strict=True))}
    for name in given.runs or shipped():
        translator = regard.load(name, given.device)
        translator.check_calibrated()
        found, turn = translator.calibration, 1 if translator.source_language == "en" else -1
        assert found is not None
        decode = Kept(translator, given.kept and given.kept / f"{weights_of(name)}.jsonl")
        if given.cost:
            cost(translator, [pair[::turn][0] for pair in years[2013][: given.cost]])
            continue
        print(f"\n## {name}: fitted to {found.about['sentences']} sentences, {found.about['words']} words\n")
        if given.signals:
            try_signals(translator, decode, [pair[::turn] for pair in years[2013]], given.lines)
            continue
        if given.few:
            try_few(decode, [pair[::turn] for pair in years[2013]], given.lines)
            continue
        if given.origins:
            for at, origin in enumerate(ORIGINS):
                pairs = spaced(years[2013][500 * at : 500 * (at + 1)], given.lines // len(ORIGINS))
                report(f"newstest2013 from {origin}", found, score_texts(decode, pairs, turn))
            continue
        curves = {}
        for place in given.sets.split(","):
            pairs = spaced(sets[place], given.lines)
            true = score_texts(decode, pairs, turn)
            curves[place] = report(place, found, true)
            if place == "newstest2014":
                report_detached(translator, decode, found, true, spaced(pairs, given.broken), turn)
            if place == "multi30k":
                compare("own", "German", found, true, decode(spaced(captions[2], given.lines)))
        if given.drawn:
            draw(curves, given.drawn)
            given.drawn = None


def read_pairs(path: Path) -> Pairs:
    """A test set, English first."""
    return list(zip(*(read(Path(f"{path}.{side}.bz2")) for side in ("en", "fr")), strict=True))


def spaced(items: list[Any], most: int) -> list[Any]:
    """At most so many items, evenly spaced."""
    return [items[at * len(items) // most] for at in range(most)] if most < len(items) else items


def weights_of(name: str) -> str:
    """A short name of the weights of a run."""
    return hashlib.sha256((find_run(name) / "weights.safetensors").read_bytes()).hexdigest()[:12]


class Kept:
    """The translations of texts; each text is translated once, in this run and in later ones if there is a file."""

    def __init__(self, translator: Translator, path: Path | None) -> None:
        self.translator, self.path, self.known = translator, path, dict[str, Decoded]()
        if path and path.exists():
            rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            self.known = {text: Decoded(*row) for text, row in rows}

    def __call__(self, texts: list[str]) -> list[Decoded]:
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        for at in range(0, len(missing), 250):
            some = missing[at : at + 250]
            new = dict(zip(some, decode_texts(self.translator, some), strict=True))
            self.known |= new
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(pair) + "\n" for pair in new.items())
        return [self.known[text] for text in texts]


def score_texts(decode: Kept, pairs: Pairs, turn: int) -> list[Judged]:
    """Translations with their chrF; those without words are left out."""
    sources, references = (list(side) for side in zip(*(pair[::turn] for pair in pairs), strict=True))
    chrf, found = build_metric("chrf"), decode(sources)
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
    translator: Translator, decode: Kept, found: Calibration, true: list[Judged], pairs: Pairs, turn: int
) -> None:
    """AUROC of each kind of broken source against the true ones, by log-probability alone and by confidence."""
    sources, references = (list(side) for side in zip(*(pair[::turn] for pair in pairs), strict=True))
    rng, written = random.Random(1), [one.text for one in decode(sources)]
    broken = {kind: [change(source, rng) for source in sources] for kind, change in BREAKS.items()}
    broken |= {"truncated": [" ".join(one.split()[: max(1, len(one.split()) // 2)]) for one in sources]}
    broken |= {"language": references}
    mixed: list[Decoded] = []
    for kind, texts in {"another": [*sources[1:], *sources[:1]], **broken}.items():
        forced = force_texts(translator, texts, written)
        mixed += forced if kind == "another" else []
        compare("forced", kind, found, true, forced)
    for kind, texts in broken.items():
        own = decode(texts)
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


TRIED: dict[str, Callable[[np.ndarray], float]] = {  # of the log-probabilities of the tokens
    "least likely token": lambda each: each.min(),
    "standard deviation": lambda each: each.std(),
    "squared surprise": lambda each: math.log(SURE - each.mean()) ** 2,
    "logarithm of the end": lambda each: math.log(SURE - each[-1]),
}


def try_signals(translator: Translator, decode: Kept, pairs: Pairs, lines: int) -> None:
    """AUROC with each of `TRIED` beside the signals of a sentence, and without each of `LATER`: fitted to the first
    1,000 lines of newstest2013 and judged on others; a quarter of the lines is broken in each way. What a signal finds
    in shuffled words may only be that the first and the last word are not in their places: so these stay, too."""

    def collect(pairs: Pairs, seed: int) -> tuple[list[Judged], list[Decoded]]:
        """True translations, and broken ones."""
        sources, rng = [source for source, _ in pairs], random.Random(seed)
        texts = [[change(source, rng) for source in sources[::4]] for change in BREAKS.values()]
        broken = [one for some in (*texts, [pair[1] for pair in pairs[::4]]) for one in decode(some)]
        written, others = [one.text for one in decode(sources[::4])], [*sources[1:], *sources[:1]][::4]
        return score_texts(decode, pairs, 1), [*broken, *force_texts(translator, others, written)]

    def signals(some: list[Decoded], names: list[str]) -> np.ndarray:
        each = [np.array(one.logprobs or [-20.0]) for one in some]
        tried = np.array([[TRIED[name](one) for name in names if name in TRIED] for one in each])
        known = [at for at, name in enumerate(SENTENCE_SIGNALS) if name in names]
        return np.column_stack([np.stack([*map(sentence_signals, some)])[:, known], tried])

    others, rng = spaced(pairs[1000:], lines), random.Random(2)
    (true, broken), (judged, detached) = collect(pairs[:1000], 0), collect(others, 1)
    words = [source.split() for source, _ in others[::4]]
    inner = decode([" ".join([*one[:1], *rng.sample(one[1:-1], max(0, len(one) - 2)), *one[1:][-1:]]) for one in words])
    labels = np.array([*(one.chrf for one in true), *[0.0] * len(broken)])
    weights = np.repeat([1.0, DETACHED * len(true) / len(broken)], [len(true), len(broken)])
    chrf, own = np.array([one.chrf for one in judged]), [one.found for one in judged]
    tried = {"as it is": [*SENTENCE_SIGNALS]}
    for some in (*((name,) for name in LATER), LATER):
        tried[f"without {', '.join(some)}"] = [name for name in SENTENCE_SIGNALS if name not in some]
    tried |= {f"with {name}": [*SENTENCE_SIGNALS, name] for name in TRIED}
    for title, names in tried.items():
        found = fit(signals([*(one.found for one in true), *broken], names), labels, weights)
        sure, *below = (found(signals(some, names)) for some in (own, detached, inner))
        print(
            f"  {title}: AUROC {auroc(sure, below[0]):.4f}; words shuffled between the first and the last "
            f"{auroc(sure, below[1]):.4f}; correlation with chrF {np.corrcoef(sure, chrf)[0, 1]:.3f}",
            flush=True,
        )


def try_few(decode: Kept, pairs: Pairs, lines: int) -> None:
    """The error of words after fits to few of the first 1,000 lines of newstest2013, on others: 20 draws of each."""
    sides = [score_texts(decode, some, 1) for some in (pairs[:1000], spaced(pairs[1000:], lines))]
    known, others = (
        [(word_signals(one.found), word_labels(one.found.text, one.reference)) for one in side] for side in sides
    )
    signals, labels = (np.concatenate(part) for part in zip(*others, strict=True))
    print(f"  before: {calibration_error(own_chances(sides[1]), labels.astype(float)):.3f}")
    drawn = random.Random(0)
    for count in (60, 100, 150, 200, 500, 1000):
        errors = []
        for _ in range(20 if count < len(known) else 1):
            inputs, right = (np.concatenate(part) for part in zip(*drawn.sample(known, count), strict=True))
            errors.append(calibration_error(fit(inputs, right.astype(float))(signals), labels.astype(float)))
        print(f"  {count} pairs: mean error of words {np.mean(errors):.3f}, largest {max(errors):.3f}", flush=True)


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
