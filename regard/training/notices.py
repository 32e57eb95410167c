"""Messages about a training for the user: too few updates, two equal passes, an ignored source."""

import math
from typing import Any

from regard.errors import counted
from regard.models.registry import MODELS
from regard.runs.cursor import BLIND
from regard.runs.settings import TrainConfig
from regard.training.clock import TOO_FEW


def few_updates(total: int, batches_an_epoch: int, config: TrainConfig, model: Any) -> list[str]:
    """A note if there are too few updates to learn much, as with a small corpus and few epochs; not for a model that is
    already trained."""
    if total >= TOO_FEW or config.steps or config.start_from:
        return []
    epochs = math.ceil(TOO_FEW * config.accumulate / batches_an_epoch)
    advice = [*_smaller(config, model), f"more epochs (train.epochs={epochs})"]
    return [
        f"only {counted(total, 'update')} in all, too few to learn much: a small corpus needs {', '.join(advice[:-1])} "
        f"and {advice[-1]}"
    ]


def equal_passes(config: TrainConfig, model: Any) -> list[str]:
    """A note if R-Drop compares two passes of a model (its settings) without dropout or noise."""
    if not config.consistency or getattr(model, "dropout", True) or getattr(model, "noise", False):
        return []
    return [
        "train.consistency compares two passes with different dropout, but model.dropout is 0, so both passes are "
        "equal: set model.dropout above 0, or train.consistency=0"
    ]


def few_in_time(fit: int, config: TrainConfig, model: Any) -> str:
    """Only about `fit` updates of a model (its settings) fit into train.minutes. A model that is already trained would
    not gain from smaller batches."""
    there = f"there is time for about {counted(fit, 'update')} in {counted(config.minutes, 'minute', 'g')} at this pace"
    if config.start_from:
        return f"{there}: more minutes would adapt the model further"
    return f"{there}, too few to learn much: use {', '.join(_smaller(config, model))} or more minutes"


def long_warmup(total: int, config: TrainConfig) -> list[str]:
    """A note if training ends during the warm-up."""
    if total >= config.warmup or config.schedule == "halving":
        return []
    return [
        f"the learning rate rises over {config.warmup:,} updates (train.warmup), but training ends after about "
        f"{total:,}, at a fraction of it: set train.warmup={total // 10}"
    ]


def _smaller(config: TrainConfig, model: Any) -> list[str]:
    """How to make updates smaller: smaller batches, and a smaller model unless it is tiny or comes from another run."""
    tiny = next((one.presets["tiny"].width for one in MODELS.values() if isinstance(model, one.config)), 0)
    larger = not config.start_from and getattr(model, "width", 0) > tiny
    smaller = ["a smaller model (--preset tiny)"] if larger else []
    return [*smaller, f"smaller batches (train.batch_tokens={max(1, config.batch_tokens // 8)})"]


def best_rule(task: str, config: TrainConfig, held_out: int) -> list[str]:
    """How the best checkpoint is chosen, if there are validation examples and the best checkpoint is published."""
    sentences = min(held_out, config.validate_sentences) if task in ("translate", "caption") else 0
    by = "the lowest loss on all validation examples"
    if config.best_by == "bleu" and sentences:
        where = counted(sentences, "validation sentence" if task == "translate" else "validation picture")
        by = f"the highest BLEU on {where}, and while that is below 1 the lowest loss"
    elif config.best_by == "accuracy" and (sentences or task == "classify"):
        by = "the highest accuracy on validation examples"
    return [f"the best checkpoint is the one with {by} (train.best_by)"] if held_out and config.average == 1 else []


def source_ignored(metrics: dict[str, float], model: Any) -> str:
    """The model ignores its source; what may help."""
    gain = getattr(getattr(model, "config", None), "gain", 0.0)
    advice = "model.gain=0.5, " if gain > 0.5 else ""
    return (
        f"the model ignores its source: in the last {BLIND} validations the loss was the same with the sources "
        f"shuffled between sentences (now {metrics['loss']:.3f}, shuffled {metrics['shuffled_loss']:.3f}); in a new "
        f"run, try {advice}a lower train.rate or a longer train.warmup"
    )


def gave_up(step: int, reason: str, skipped: int) -> str:
    """Too many updates in a row were skipped."""
    advice = "a smaller train.batch_tokens" if reason == "out of memory" else "a lower train.rate"
    return (
        f"Training stopped at step {step}: {reason} in {skipped} updates in a row. The last checkpoint is valid; try "
        f"{advice} in a new run, or check the corpus lines that metrics.jsonl lists."
    )
