"""Answers to the exercises, in numpy. Try them yourself first."""

import math

import numpy as np


def softmax(scores):
    """The highest score is subtracted first: exp(1000) is infinite, exp(0) is not."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def masked_softmax(scores, mask):
    """A hidden slot has the weight exp(-inf) = 0; a row without any visible slot is left at zeros."""
    weights = np.zeros_like(scores)
    for row, (some, seen) in enumerate(zip(scores, mask, strict=True)):
        if seen.any():
            weights[row, seen] = softmax(some[seen])
    return weights


def aer(found, sure, possible):
    """1 - (|A and S| + |A and P|) / (|A| + |S|); possible links include the sure ones."""
    return 1 - (len(found & sure) + len(found & (possible | sure))) / (len(found) + len(sure))


def positions(length, width):
    """Sine in even columns, cosine in odd ones, of position / 10000^(2i / width)."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)  # [length, width / 2]
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)


def rollout(layers):
    """The last layer reads the ones below it: (A_L + I) / 2 ... (A_1 + I) / 2."""
    found = np.eye(layers.shape[-1])
    for weights in layers:
        found = (weights + np.eye(len(found))) / 2 @ found
    return found


def half_error(chances, right):
    """The distance between the mean chance and the share of right ones in each half, weighed by its size."""
    halves = [half for half in (chances < 0.5, chances >= 0.5) if half.any()]
    return sum(half.mean() * abs(chances[half].mean() - right[half].mean()) for half in halves)


def comprehensiveness(order, counts, chances):
    """The first words of the order are removed together: index 1 on their axes."""
    lost = []
    for count in counts:
        place = np.zeros(chances.ndim, dtype=int)
        place[order[:count]] = 1
        lost.append(chances.flat[0] - chances[tuple(place)])
    return np.mean(lost)


ANSWERS = {
    "1.1": 4 * 96 * (64 + 96),
    "1.2": lambda state, new, update: update * state + (1 - update) * new,
    "1.3": 1,
    "2.1": softmax,
    "2.2": lambda weights, values: (weights[:, None] * values).sum(0),
    "2.3": masked_softmax,
    "2.4": math.log(8),
    "3.1": 64,
    "3.2": lambda query, keys: query @ keys.T / math.sqrt(keys.shape[-1]),
    "3.3": lambda t, size, half_width: np.array([abs(s - t) <= half_width for s in range(size)]),
    "3.4": aer,
    "4.1": lambda size: np.tril(np.ones((size, size), dtype=bool)),
    "4.2": positions,
    "4.3": 4 * 64 * 64,
    "4.4": half_error,
    "4.5": rollout,
    "4.6": comprehensiveness,
    "5.1": 14 * 14,
    "5.2": lambda mask: mask / mask.sum() if mask.any() else np.zeros(len(mask)),
    "5.3": lambda p, q: np.maximum(p - q, 0).sum(),
}

# Inputs of the hidden tests that `notebooks.py --teach` writes: `draw` is a numpy generator with the teacher's seed.
INPUTS = {
    "1.2": lambda draw: (draw.normal(size=6), draw.normal(size=6), draw.random(6)),
    "2.1": lambda draw: (draw.normal(size=7) * 400,),
    "2.2": lambda draw: (softmax(draw.normal(size=5)), draw.normal(size=(5, 3))),
    "2.3": lambda draw: (draw.normal(size=(4, 6)), draw.random((4, 6)) < [[0.7], [0.7], [0.7], [0.0]]),
    "3.2": lambda draw: (draw.normal(size=(2, 25)), draw.normal(size=(4, 25))),
    "3.3": lambda draw: (int(draw.integers(8)), 8, int(draw.integers(4))),
    "3.4": lambda draw: tuple({(i, int(j)) for i, j in enumerate(draw.integers(5, size=5))} for _ in range(3)),
    "4.1": lambda draw: (int(draw.integers(5, 9)),),
    "4.2": lambda draw: (int(draw.integers(3, 6)), 2 * int(draw.integers(2, 5))),
    "4.4": lambda draw: (draw.random(9), (draw.random(9) < 0.5).astype(float)),
    "4.5": lambda draw: (np.apply_along_axis(softmax, -1, draw.normal(size=(3, 4, 4))),),
    "4.6": lambda draw: (draw.permutation(4), draw.integers(1, 5, size=3), draw.random((2, 2, 2, 2))),
    "5.2": lambda draw: (draw.random(9) < 0.5,),
    "5.3": lambda draw: (softmax(draw.normal(size=5)), softmax(draw.normal(size=5))),
}
