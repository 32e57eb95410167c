"""Small runs on built-in corpora: a few updates of a few thousand weights, as a command line and in this process."""

from pathlib import Path

from regard.api.training import gather
from regard.runs.experiment import resolve
from regard.training.start import train as begin

MODELS = {
    "bahdanau": ("model.width=7", "model.embedding=5", "model.attention=6", "model.readout=4"),
    "luong": ("model.width=6", "model.layers=1"),
    "sutskever": ("model.width=6", "model.layers=2"),
    "transformer": ("model.width=8", "model.heads=2", "model.inner=12", "model.layers=1", "data.joint=true"),
}
DATA = ("data.size=60", "data.subwords=word", "data.max_words=6", "data.seed=3")
TRAIN = ("train.batch_tokens=64", "train.validate_sentences=2", "train.save_every=4")
DECODE = ("decode.max_ratio=1", "decode.max_extra=3")  # hardly trained, they end when they must


def settings(model: str, *more: str) -> list[str]:
    """Settings of a small run; later ones win."""
    return [*MODELS[model], *DATA, *TRAIN, *DECODE, *more]


def arguments(model: str, out: Path, *more: str, corpus: str = "reverse") -> list[str]:
    """The command line of a small run."""
    chosen = ["--corpus", corpus, "--model", model, "--preset", "tiny", "--out", str(out)]
    return ["train", *chosen, *settings(model, *more)]


def experiment(model: str, *more: str, corpus: str = "reverse"):
    """The settings of a small run, resolved."""
    return resolve(gather(None, model, "tiny", settings(model, *more), corpus=corpus))


def train(model: str, out: Path, *more: str, observe=None, corpus: str = "reverse") -> str:
    """Train a small run in this process; returns why it ended."""
    return begin(experiment(model, *more, corpus=corpus), out, observe)
