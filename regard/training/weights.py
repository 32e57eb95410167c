"""The tensors of a model and its optimiser as flat, named tables, for files that hold nothing but numbers."""

from typing import Any

import torch
from torch import Tensor, nn, optim

from regard.errors import RunError


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every weight and buffer of a model once; matrices that are tied appear under their first name."""
    kept = dict(model.named_parameters())
    kept.update((name, buffer) for name, buffer in model.state_dict().items() if name in dict(model.named_buffers()))
    return {name: tensor.detach() for name, tensor in kept.items()}


def set_weights(model: nn.Module, tensors: dict[str, Tensor], where: str) -> None:
    """Give a model the weights of `where`; names and shapes must be those of the model."""
    own = weights_of(model)
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())[0]
        raise RunError(f"The weights in {where} belong to another model: {odd!r} is only on one side.")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise RunError(
                    f"The weights in {where} belong to another model: {name!r} is {list(tensors[name].shape)} there "
                    f"and {list(tensor.shape)} here."
                )
            tensor.copy_(tensors[name])


def optimiser_state(optimiser: optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory, as `<number of the weight>.<name>` -> tensor."""
    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value) for number, slots in state.items() for name, value in slots.items()
    }


def set_optimiser_state(optimiser: optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore an optimiser's memory."""
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor.clone()  # a copy, not a view of the file
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
