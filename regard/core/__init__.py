"""Tensors in, tensors out: the attention core of every model."""

from regard.core.attend import Look, Memory, Normalise, Score, attend
from regard.core.masks import causal_mask, padding_mask, window_mask
from regard.core.normalise import (
    GaussianWindow,
    Sample,
    Window,
    causal_softmax,
    entmax15,
    hard_argmax,
    hard_sample,
    softmax,
    sparsemax,
)
from regard.core.positions import LearnedPositions, rotate, sinusoid
from regard.core.scores import (
    Additive,
    Concat,
    ConcatReleased,
    Cosine,
    General,
    Location,
    dot,
    project_keys,
    scaled_dot,
    uniform,
)

__all__ = [
    "Additive",
    "Concat",
    "ConcatReleased",
    "Cosine",
    "GaussianWindow",
    "General",
    "LearnedPositions",
    "Location",
    "Look",
    "Memory",
    "Normalise",
    "Sample",
    "Score",
    "Window",
    "attend",
    "causal_mask",
    "causal_softmax",
    "dot",
    "entmax15",
    "hard_argmax",
    "hard_sample",
    "padding_mask",
    "project_keys",
    "rotate",
    "scaled_dot",
    "sinusoid",
    "softmax",
    "sparsemax",
    "uniform",
    "window_mask",
]
