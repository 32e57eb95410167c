"""Tiny models trained once for all tests that look into them: seconds each, made on first use."""

from functools import cache
from pathlib import Path
from typing import Any

from kept import kept

import regard
from regard.api.training import gather
from regard.runs.experiment import resolve
from regard.training.start import train as begin

COMMON = ("train.validate_sentences=0", "train.validate_every=100000", "data.held_out=20")
SETTINGS = {
    # Learns to copy, in a few hundred updates.
    "copy": (
        "luong", "copy", "model.width=48", "train.rate=0.02", "train.schedule=cosine", "train.steps=260",
        "train.batch_tokens=400", "data.subwords=word", "data.size=8000", "data.min_words=2", "data.max_words=6",
    ),
    # Has heads, layers and pieces; it need not be good at anything.
    "heads": (
        "transformer", "phrasebook", "model.width=16", "model.heads=2", "model.inner=16", "model.layers=2",
        "train.steps=30", "train.batch_tokens=300", "train.rate=0.01", "train.warmup=5", "data.joint=true",
        "data.size=300", "data.vocabulary=340", "data.max_words=6",
    ),
    # Two ways for the gradient: attention and the state.
    "bahdanau": (
        "bahdanau", "phrasebook", "model.width=12", "model.embedding=9", "model.attention=10", "model.readout=8",
        "train.steps=30", "train.batch_tokens=300", "train.rate=0.01", "data.subwords=word", "data.size=300",
        "data.max_words=6",
    ),
    "local": (
        "luong", "reverse", "model.width=10", "model.window=local-p", "model.half_width=2", "train.steps=8",
        "train.batch_tokens=200", "data.subwords=word", "data.size=60", "data.max_words=6",
    ),
    "fixed": (
        "sutskever", "reverse", "model.width=8", "model.layers=1", "train.steps=4", "train.batch_tokens=200",
        "data.subwords=word", "data.size=60", "data.max_words=6",
    ),
    # Looks at its source and at its own past.
    "lstmn": (
        "lstmn", "reverse", "model.width=8", "model.embedding=7", "train.steps=4",
        "train.batch_tokens=200", "data.subwords=word", "data.size=60", "data.max_words=6",
    ),
    # The other tasks.
    "captioner": (
        "captioner", "shapes", "model.features=12", "model.embedding=10", "model.width=14", "model.attention=11",
        "train.steps=4", "train.batch_tokens=60", "data.size=60", "decode.max_ratio=0", "decode.max_extra=6",
    ),
    "language": ("attentive-lm", "tales", "train.steps=4", "train.batch_tokens=200", "data.size=60"),
    "classifier": ("document", "reviews", "train.steps=4", "train.batch_tokens=600", "data.size=60"),
}  # fmt: skip


@cache
def run(name: str) -> Path:
    """The run folder of one of SETTINGS."""
    model, corpus, *settings = SETTINGS[name]
    settings += COMMON
    train = lambda out: begin(resolve(gather(None, model, "tiny", settings, corpus=corpus)), out)  # noqa: E731
    return kept(name, [model, corpus, settings], train)


@cache
def model(name: str) -> Any:
    """What `regard.load` makes of one of SETTINGS."""
    return regard.load(run(name))


def translator(name: str) -> "regard.Translator":
    """The translator of one of SETTINGS."""
    return model(name)
