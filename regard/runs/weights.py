"""The weights of a model as a flat, named table, and models that are built around given weights."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from regard.errors import ConfigError, RunError, brief


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every weight and buffer of a model once; tied matrices appear under their first name."""
    kept, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    kept.update((name, buffer) for name, buffer in model.state_dict().items() if name in buffers)
    return {name: tensor.detach() for name, tensor in kept.items()}


def set_weights(model: nn.Module, tensors: dict[str, Tensor], where: str) -> None:
    """Set the weights of a model; names and shapes must match. `where` is for error messages."""
    check_shapes(model, {name: tensor.shape for name, tensor in tensors.items()}, where)
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            tensor.copy_(tensors[name])


def check_shapes(model: nn.Module, shapes: dict[str, torch.Size], where: str) -> None:
    """Refuse weights whose names or shapes are not those of the model."""
    own = weights_of(model)
    if own.keys() != shapes.keys():
        odd = sorted(own.keys() ^ shapes.keys())[0]
        raise RunError(f"The weights in {where} belong to another model: {odd[:200]!r} exists only on one side.")
    for name, tensor in own.items():
        if tensor.shape != shapes[name]:
            raise RunError(
                f"The weights in {where} belong to another model: {name!r} is {list(shapes[name])} there and "
                f"{list(tensor.shape)} here."
            )


def build_filled(
    make: Callable[[], nn.Module],
    shapes: dict[str, torch.Size],
    read: Callable[[], Iterable[tuple[str, Tensor]]],
    where: str,
) -> nn.Module:
    """The model that `make` builds, with the names and weights that `read` returns; `shapes` are their shapes.

    Names and shapes are checked before memory for the weights is allocated.
    """
    with weightless(shapes, where):
        check_shapes(make(), shapes, where)
    with Unfilled():
        model = make()
    own, filled = weights_of(model), set[str]()
    with torch.no_grad():
        for name, tensor in read():  # one at a time: there are never two copies of the whole model
            if name not in own or own[name].shape != tensor.shape:
                raise RunError(f"The weights in {where} have changed while they were read; repeat the command.")
            own[name].copy_(tensor)
            filled.add(name)
    if filled != own.keys():
        raise RunError(f"The weights in {where} have changed while they were read; repeat the command.")
    return model


class Unfilled(TorchFunctionMode):
    """In this mode, models are built with uninitialised weights, to be set afterwards.

    Random initialisation takes most of the time of loading a model. On the meta device `normal_` would import 800
    modules first.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {**(kwargs or {}), **dict(zip(("tensor",), args, strict=False))}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return given["tensor"]
        if func is torch.linalg.qr:  # of weights that begin orthogonal
            return given["tensor"], given["tensor"][: given["tensor"].shape[1]]
        return func(*args, **(kwargs or {}))


@contextmanager
def weightless(shapes: dict[str, torch.Size], where: str) -> Iterator[None]:
    """Models that are built in the block take no memory, and one that outgrows the weights of `where` is refused.

    So settings that do not match the weights cost nothing: parameters are on the meta device, and building stops at the
    first one too many.
    """
    # A tied matrix may be registered several times, so allow for more.
    tensors, numbers = 4 * len(shapes) + 16, 4 * sum(shape.numel() for shape in shapes.values())

    def count(size: int) -> None:
        nonlocal tensors, numbers
        tensors, numbers = tensors - 1, numbers - size
        if tensors < 0 or numbers < 0:
            raise RunError(f"The weights in {where} belong to another model: the settings describe a much larger one.")

    with _counted(count, RunError, f"No model can be built from the settings next to {where}"):
        yield


def check_memory(make: Callable[[], nn.Module]) -> None:
    """Refuse a model whose weights do not fit into memory, before any is allocated."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**48
    numbers = 0

    def count(size: int) -> None:
        nonlocal numbers
        numbers += size
        if 4 * numbers > memory:
            raise ConfigError(
                f"The weights of this model do not fit into memory: they need over {4 * numbers / 2**30:,.0f} GiB, and "
                f"this machine has {memory / 2**30:,.0f} GiB. Reduce the sizes in [model], such as model.width."
            )

    with _counted(count, ConfigError, "No model can be built from the settings of [model]"):
        make()


@contextmanager
def _counted(count: Callable[[int], None], refuse: Callable[[str], Exception], sentence: str) -> Iterator[None]:
    """Build models without memory in the block; `count` gets the size of each parameter and may raise.

    Sizes that no tensor can have are refused with `sentence`.
    """

    def registered(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        count(parameter.numel() if parameter is not None else 0)

    try:
        with register_module_parameter_registration_hook(registered), torch.device("meta"), Unfilled():
            yield
    except (RuntimeError, TypeError, OverflowError) as error:
        raise refuse(f"{sentence}: {brief(error)}.") from None


def choose_device(name: str) -> torch.device:
    """The device of a setting; "auto" is the GPU of this rank if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"The device must be auto, cpu or cuda; got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("The device cuda needs a GPU that torch can see; use cpu or auto.")
    return device
