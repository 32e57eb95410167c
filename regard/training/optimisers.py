"""The optimisers, by name, with the constants of the papers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

# name -> its class in torch, and its constants besides the learning rate
OPTIMISERS: dict[str, tuple[type[optim.Optimizer], Callable[[Any], dict[str, Any]]]] = {
    # eps 1e-9 is the Transformer's; with beta2 = 0.98 it is the paper's Adam.
    "adam": (optim.Adam, lambda config: {"betas": (0.9, config.beta2), "eps": 1e-9}),
    "adamw": (
        optim.AdamW,
        lambda config: {"betas": (0.9, config.beta2), "eps": 1e-9, "weight_decay": config.weight_decay},
    ),
    # rho 0.95 and eps 1e-6: Cho 2014, Bahdanau 2015. The learning rate of Adadelta is usually 1.
    "adadelta": (optim.Adadelta, lambda config: {"rho": 0.95, "eps": 1e-6}),
    "sgd": (optim.SGD, lambda config: {"momentum": config.momentum}),
    # Graves' centred form, as in Xu 2015 on Flickr8k.
    "rmsprop": (
        optim.RMSprop,
        lambda config: {"alpha": 0.95, "eps": 1e-4, "momentum": config.momentum, "centered": True},
    ),
}
ON_GPU: dict[str, dict[str, bool]] = {  # options that keep a step on the device, so that it can be captured
    "adam": {"fused": True, "capturable": True},
    "adamw": {"fused": True, "capturable": True},
    "adadelta": {"capturable": True},
    "sgd": {"fused": True},
    "rmsprop": {"capturable": True},
}


def make_optimiser(weights: Sequence[nn.Parameter], config: Any) -> optim.Optimizer:
    """The optimiser of the settings; on a GPU its learning rate is a tensor there."""
    device = weights[0].device if weights else torch.device("cpu")
    if device.type == "cpu":
        return plain_optimiser(weights, config)
    rate = torch.tensor(config.rate, dtype=torch.float32, device=device)
    optimiser = plain_optimiser(weights, config, lr=rate, **ON_GPU[config.optimiser])
    optimiser._warned_capturable_if_run_uncaptured = True  # a step may also run eagerly
    return optimiser


def plain_optimiser(weights: Sequence[nn.Parameter], config: Any, **more: Any) -> Any:
    """The optimiser of the settings, with `more` of its arguments."""
    kind, constants = OPTIMISERS[config.optimiser]
    return kind(weights, **{"lr": config.rate, **constants(config), **more})


def set_rate(optimiser: optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for part in optimiser.param_groups:
        if isinstance(part["lr"], Tensor):
            part["lr"].fill_(rate)
        else:
            part["lr"] = rate


def step_if(sound: Tensor, optimiser: optim.Optimizer, divisor: Tensor) -> None:
    """Divide the gradients and make a step, all on the device; if `sound` is False nothing changes.

    Fused Adam supports both. For other optimisers, the weights and the state are restored.
    """
    if isinstance(optimiser, optim.Adam):  # AdamW is one
        optimiser.grad_scale, optimiser.found_inf = divisor.float(), (~sound).float()  # type: ignore[attr-defined]
        optimiser.step()
        return
    weights = [weight for part in optimiser.param_groups for weight in part["params"] if weight.grad is not None]
    for weight in weights:
        weight.grad.copy_(torch.where(sound, weight.grad / divisor, 0.0))
    memory = [value for slots in optimiser.state.values() for value in slots.values() if isinstance(value, Tensor)]
    kept = [*(weight.detach() for weight in weights), *memory]
    before = [tensor.clone() for tensor in kept]
    optimiser.step()
    for tensor, old in zip(kept, before, strict=True):
        tensor.copy_(torch.where(sound, tensor, old))


def clip(gradients: list[Tensor], norm: float, longest: float) -> None:
    """g <- g * longest / |g| if the norm |g| of all gradients together is above `longest`; 0 is no limit."""
    if longest and norm > longest:
        torch._foreach_mul_(gradients, longest / norm)
