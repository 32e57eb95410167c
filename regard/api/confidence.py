"""Fit the confidence of a translator to sentences with references, and keep it in the run folder."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.api.heads import read_together
from regard.api.translator import Translator, check_references
from regard.errors import RunError
from regard.evaluate.confidence import BREAKS, Calibration, Decoded, Judged, fit_calibration
from regard.evaluate.scores import build_metric
from regard.runs.folder import digest_of_weights
from regard.sealed import read_small, seal, unseal, write_atomically
from regard.work import Progress

FILE = "confidence.json"  # in the run folder


def calibrate(
    translator: Translator, sources: Sequence[str], references: Sequence[str], progress: Progress | None = None
) -> Calibration:
    """Fit the confidence of words and sentences to the model's translations of `sources`.

    Every line also gives one detached source, by turns: its words shuffled, its letters random, its reference (a text
    in another language), or for the translation of this line the source of the next one.
    """
    check_references(sources, references)
    chrf, rng = build_metric("chrf"), random.Random(0)
    kept = [place for place, pair in enumerate(zip(sources, references, strict=True)) if all(map(str.split, pair))]
    kinds = [[*BREAKS, "language", "another"][at % 4] for at in range(len(kept))]
    texts = [sources[place] for place in kept]
    for place, kind in zip(kept, kinds, strict=True):
        if kind != "another":
            texts.append(references[place] if kind == "language" else BREAKS[kind](sources[place], rng))
    found = decode_texts(translator, texts, progress)
    true = [
        Judged(one, references[place], chrf.sentence_score(one.text, [references[place]]).score / 100)
        for one, place in zip(found, kept, strict=False)
    ]
    others = [at for at, kind in enumerate(kinds) if kind == "another"]
    forced = force_texts(
        translator, [sources[kept[(at + 1) % len(kept)]] for at in others], [found[at].text for at in others]
    )
    own, another = iter(found[len(kept) :]), iter(forced)
    return fit_calibration(true, [next(another if kind == "another" else own) for kind in kinds])


def decode_texts(translator: Translator, texts: Sequence[str], progress: Progress | None = None) -> list[Decoded]:
    """The translations of texts, each as one sentence, with their signals."""
    numbers = translator.target_vocabulary.numbers
    written = translator.translate(list(texts), split=False, unknown="keep", progress=progress)
    pairs = zip(texts, written, strict=True)
    return [
        translator.decoded(translator.encode(text), [numbers[piece] for piece in one.tokens], one.token_logprobs)
        for text, one in pairs
    ]


def force_texts(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[Decoded]:
    """Given translations with the log-probabilities that the model gives them; costs a forward pass."""
    encoded, written = [translator.encode(text) for text in sources], [translator.prefix_ids(text) for text in targets]
    logprobs: dict[int, list[float]] = {}
    for places, source, lengths, target in read_together([read.ids for read in encoded], written, translator.device):
        with torch.inference_mode():
            each = translator.model(source, lengths, target).log_softmax(-1, dtype=torch.float32)  # [B, T, V]
        chosen = each.gather(-1, target[..., None]).squeeze(-1).tolist()  # [B, T]
        logprobs |= {place: row[: len(written[place]) + 1] for place, row in zip(places, chosen, strict=True)}
    return [
        translator.decoded(read, ids, logprobs[place])
        for place, (read, ids) in enumerate(zip(encoded, written, strict=True))
    ]


def keep_calibration(run: Path, calibration: Calibration) -> None:
    """Store a calibration in the folder of a finished run, where `find_calibration` finds it."""
    write_atomically(run / FILE, seal({"weights": digest_of_weights(run), **calibration.as_data()}))


def find_calibration(run: Path) -> Calibration | None:
    """The calibration of a finished run; None if there is none, or if it was fitted to other weights."""
    path = run / FILE
    if not path.exists() or not (run / "manifest.json").exists():
        return None
    try:
        data = unseal(read_small(path))
        return Calibration.from_data(data) if data["weights"] == digest_of_weights(run) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path} is damaged; delete it, or calibrate again with `regard calibrate`.") from None
