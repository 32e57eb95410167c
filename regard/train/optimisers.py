"""The rules of the updates, by name, with the constants that the papers give."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn, optim

Build = Callable[[Iterable[nn.Parameter], Any], optim.Optimizer]

OPTIMISERS: dict[str, Build] = {
    # eps 1e-9 is the Transformer's; with beta2 = 0.98 it is the paper's Adam.
    "adam": lambda weights, config: optim.Adam(weights, config.rate, betas=(0.9, config.beta2), eps=1e-9),
    "adamw": lambda weights, config: optim.AdamW(
        weights, config.rate, betas=(0.9, config.beta2), eps=1e-9, weight_decay=config.weight_decay
    ),
    # rho 0.95 and eps 1e-6: Cho 2014, Bahdanau 2015. Adadelta finds its own scale: its rate is usually 1.
    "adadelta": lambda weights, config: optim.Adadelta(weights, config.rate, rho=0.95, eps=1e-6),
    "sgd": lambda weights, config: optim.SGD(weights, config.rate, momentum=config.momentum),
    # Graves' form, as Xu 2015 trained on Flickr8k: the mean of the gradients is taken off their square.
    "rmsprop": lambda weights, config: optim.RMSprop(
        weights, config.rate, alpha=0.95, eps=1e-4, momentum=config.momentum, centered=True
    ),
}
