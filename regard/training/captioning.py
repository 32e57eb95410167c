"""Captioning as a task: pictures in, captions out, with the objective of soft or hard attention.

    soft:  -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2                                     (Xu 2015, eq. 14)
    hard:  log p(y|s,a) + lambda_r (log p(y|s,a) - b) log p(s|a) + lambda_e H[s]                 (section 4.1)
           b_k = 0.9 b_{k-1} + 0.1 log p(y|s_k,a)

The gradient of the second line is the paper's if (log p(y|s,a) - b) counts as a constant. The model itself is not
changed: in the block of `draw_places`, a forward hook on its attention samples the locations.

On the built-in corpus `shapes` the cell of every named object is known, so validation also reports the weight on it.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.attend import Look, Memory
from regard.core.normalise import hard_sample, softmax
from regard.core.products import matmul
from regard.data.prepare import Data
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError
from regard.evaluate.scores import score_captions
from regard.layers.attention import Attention
from regard.layers.image import load_pretrained
from regard.look.record import record
from regard.runs.settings import TrainConfig
from regard.symbols import PAD
from regard.training.caption_data import Album, CaptionBatch
from regard.training.objectives import likelihood
from regard.training.task import SHOWN, Loss, Task, Validation

ATTENTION = "attention"  # the name of a captioner's attention
_DECODED = 64  # pictures captioned at once
DECAY = 0.9  # of the moving baseline


class Captioning(Task):
    """Pictures and captions. `baseline` is that of REINFORCE, the same on every rank."""

    sums = 2  # the rewards of an update, and its number of captions

    def __init__(self, data: Data, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        super().__init__(data, config, decode, run)
        self.baseline = torch.tensor(math.nan, dtype=torch.float64)  # not known yet

    def ready(self, model: nn.Module) -> None:
        """Load the ImageNet weights of a frozen encoder."""
        encoder = getattr(model, "image", None)
        if encoder is not None:
            load_pretrained(encoder)

    def even(self, batch: CaptionBatch, world: int) -> CaptionBatch:
        padded = super().even(batch, world)
        return padded._replace(source_lengths=torch.full_like(padded.source_lengths, self.data.train.size))

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Soft: cross-entropy and the doubly stochastic penalty. Hard: the paper's learning rule."""
        objective = self._soft if model.config.look == "soft" else self._hard  # type: ignore[union-attr]
        return objective(model, batch)

    def _soft(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """-log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2."""
        look_once: float = model.config.look_once  # type: ignore[union-attr, assignment]
        inputs, smoothing = (batch.source, batch.source_lengths, batch.target), self.config.label_smoothing
        with record(model, [ATTENTION] if look_once else [], detach=False) as seen:
            total, _ = likelihood(model, *inputs, smoothing=smoothing)
        if look_once:
            total = total + look_once * doubly_stochastic(seen[ATTENTION].weights, batch.target)
        return Loss(total, total.new_zeros(self.sums))

    def _hard(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Sample locations, or take the expectation with probability `expectation`.

        The reward is that of the released code, log p(y|s) per word, so that long captions do not weigh more than short
        ones. Without a baseline the advantage is zero, so the first update trains only the words.
        """
        config: Any = model.config
        if self.config.label_smoothing:
            raise ConfigError("Hard attention needs the plain likelihood as its reward; set train.label_smoothing = 0.")
        self.baseline = self.baseline.to(batch.target.device)
        expected = torch.rand((), device=batch.target.device) < config.expectation
        with draw_places(model.attention, expected.expand(len(batch.target))) as drawn:  # type: ignore[arg-type]
            logits = model(batch.source, batch.source_lengths, batch.target)  # [B, T, V]
        words = words_logprob(logits, batch.target)  # [B, T]
        real = batch.target != PAD
        places = torch.cat([each.logprob for each in drawn], dim=1) * real  # [B, T]
        spread = torch.cat([each.entropy for each in drawn], dim=1) * real  # [B, T]
        reward = words.detach().sum(1) / batch.target_lengths  # [B]
        baseline = torch.where(self.baseline.isnan(), reward, self.baseline)  # [B]
        total = reinforce(words.sum(1), places.sum(1), reward, baseline, config.reinforce)
        return Loss(total - config.entropy * spread.sum(), torch.stack([reward.sum(), real.any(dim=1).sum()]))

    def carry(self, sums: Tensor, sound: Tensor) -> None:
        """Update the baseline with the rewards of an update."""
        self.baseline = self.baseline.to(sums.device)
        self.baseline.copy_(torch.where(sound, update_baseline(self.baseline, *sums), self.baseline))

    def validate(self, model: nn.Module) -> Validation:
        """The losses of all held-out captions; BLEU and exact matches for `validate_sentences` pictures."""
        device, album = next(model.parameters()).device, self.data.dev
        if not len(album):
            return Validation({}, [])
        seen_objects: list[tuple[float, float]] = []

        @contextmanager
        def watch(numbers: Sequence[int]) -> Iterator[None]:
            with record(model, [ATTENTION]) as seen:
                yield
            seen_objects.extend(on_objects(album, numbers, seen[ATTENTION].weights))

        metrics = self.losses(model, watch)
        if seen_objects:
            metrics["on_object"], metrics["best_on_object"] = np.mean(seen_objects, axis=0).tolist()
        pictures = np.unique(album.pictures)[: self.config.validate_sentences].tolist()
        if not pictures:
            return Validation(metrics, [])
        written: list[str] = []
        for first in range(0, len(pictures), _DECODED):
            some = album.source(pictures[first : first + _DECODED]).to(device)
            lengths = torch.full((len(some),), album.size, device=device)
            found = decode(model, some, lengths, self.decode)  # type: ignore[arg-type]
            written += [self.data.vocabulary.decode(hypotheses[0].ids) for hypotheses in found]
        shown = self.data.shown[: len(pictures)]
        references = [captions for _, captions in shown]
        metrics["bleu"] = score_captions(written, references).bleu[3]
        right = sum(text in some for text, some in zip(written, references, strict=True))
        metrics["accuracy"] = right / len(written)
        samples = zip(shown[:SHOWN], written, strict=False)
        return Validation(metrics, [f"{image} → {text}" for (image, _), text in samples])

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.baseline.isnan() else {"baseline": self.baseline}

    def set_tensors(self, tensors: dict[str, Tensor], model: nn.Module) -> None:
        self.baseline = torch.full_like(self.baseline, float(tensors.get("baseline", math.nan)))


def on_objects(album: Album, numbers: Sequence[int], weights: Tensor) -> list[tuple[float, float]]:
    """For each word that names an object in a drawn picture: the weight of its cell, and 1 if no cell has more.

    weights [B, T, S] of the examples `numbers`; empty for other pictures.
    """
    found = []
    for row, number in zip(weights.float().cpu(), numbers, strict=True) if album.cells else ():
        for step, cell in enumerate(album.cells(int(album.pictures[number])) if album.cells else ()):
            if cell is not None:
                found.append((float(row[step, cell]), float(int(row[step].argmax()) == cell)))
    return found


class Drawn(NamedTuple):
    """The weights of one call of hard attention, and the terms for REINFORCE."""

    weights: Tensor  # [B, T, S], one-hot if a location was sampled
    logprob: Tensor  # [B, T], log p(s_t|a) with its gradient; zero if the expectation was taken
    entropy: Tensor  # [B, T], H[s_t] with its gradient


@contextmanager
def draw_places(attention: Attention, expected: Tensor | None = None) -> Iterator[list[Drawn]]:
    """In the block, every attention call selects one location, sampled from the softmax of its scores (eq. 8).

    Rows with `expected` [B] True take the expectation instead, like soft attention, and are trained by plain
    back-propagation. `hard_sample` uses torch's generator.
    """
    drawn: list[Drawn] = []

    def hook(module: nn.Module, args: tuple[Any, ...], look: Look) -> Look:
        memory: Memory = args[1]
        assert look.scores is not None
        sample = hard_sample(look.scores, memory.mask)
        weights, logprob = sample.weights, sample.logprob
        alpha = softmax(look.scores, memory.mask)  # [B, T, S]
        if expected is not None:
            weights = torch.where(expected[:, None, None], alpha, weights)
            logprob = logprob.masked_fill(expected[:, None], 0.0)
        drawn.append(Drawn(weights, logprob, entropy(alpha)))
        return Look(matmul(weights, memory.values), weights, look.scores)

    with attention.register_forward_hook(hook):
        yield drawn


def entropy(weights: Tensor) -> Tensor:
    """H = - sum_i alpha_i log alpha_i of weights [..., S]; a weight of zero adds zero, not NaN."""
    return -torch.xlogy(weights, weights.clamp(min=torch.finfo(weights.dtype).tiny)).sum(dim=-1)


def doubly_stochastic(weights: Tensor, target: Tensor) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2, summed over the batch: over time, every cell should get a total weight of 1.

    weights [B, T, S]; steps whose target [B, T] is PAD do not count, nor do rows of only PAD.
    """
    real = target != PAD  # [B, T]
    seen = (weights * real[..., None]).sum(dim=1)  # [B, S]
    return ((1 - seen).square() * real.any(dim=1, keepdim=True)).sum()


def words_logprob(logits: Tensor, target: Tensor) -> Tensor:
    """log p(y_t|...) of every word of target [B, T], zero for PAD: logits [B, T, V] -> [B, T]."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [B, T, V]: bf16 is too coarse for a logarithm
    logprob = exact.log_softmax(dim=-1).gather(-1, target[..., None]).squeeze(-1)  # [B, T]
    return logprob.masked_fill(target == PAD, 0.0)


def reinforce(words: Tensor, places: Tensor, reward: Tensor, baseline: float | Tensor, strength: float = 1.0) -> Tensor:
    """A loss whose gradient is the paper's estimator (eq. 12, with a baseline), summed over the batch.

    words [B] is log p(y|s,a), places [B] is log p(s|a), both with gradients; reward [B] and baseline have none. With
    reward = words and strength 1, the expected gradient is that of the bound (eq. 10).
    """
    advantage = (reward - baseline).detach()  # [B]
    return -(words + strength * advantage * places).sum()


def update_baseline(baseline: Tensor, reward: Tensor, rows: Tensor) -> Tensor:
    """b_k = 0.9 b_{k-1} + 0.1 mean reward of an update; `reward` is a sum over `rows` rows, and b_1 is the first mean.

    An unknown baseline is NaN.
    """
    mean = reward / rows
    moved = DECAY * baseline + (1 - DECAY) * mean
    return torch.where(rows > 0, torch.where(baseline.isnan(), mean, moved), baseline)
