"""Gradient flow: how much of a source word's influence on a target word goes through attention.

The gradient of log p(y_t) with respect to the embedding of source word s is computed twice: with all paths open, and
with the context of every attention over the source held fixed, so that only the recurrent state is left. By the chain
rule the difference is what passes through attention at least once:

    attention[t, s] = || d log p(y_t) / d x_s  -  the same with contexts fixed ||
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core.attend import Look
from regard.errors import DataError, ShapeError
from regard.look.change import find
from regard.look.record import attentions
from regard.sealed import write_output

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Flow:
    """Norms of gradients [T, S]: in all, through attention, through the state; and when each word was read."""

    total: Array
    attention: Array
    state: Array
    read_at: tuple[int, ...]  # source position -> its place in reading order

    def distance(self) -> NDArray[np.int64]:
        """Recurrent steps from reading word s to writing word t: words read after s, plus words written before t."""
        T, S = self.total.shape
        return (S - 1 - np.asarray(self.read_at))[None, :] + np.arange(T)[:, None]

    def by_distance(self, which: str = "total") -> tuple[NDArray[np.int64], Array]:
        """Distances in order, and the mean norm at each; words that the model never reads (an END) are left out."""
        read = self.total.any(axis=0)  # [S]
        values, distance = getattr(self, which)[:, read].ravel(), self.distance()[:, read].ravel()
        places = np.unique(distance)
        return places, np.array([values[distance == place].mean() for place in places])


def flow(model: nn.Module, source: Tensor, target: Tensor) -> Flow:
    """The gradient flow of one sentence: source ids [S] and target ids [T], both with END last. Dropout is off.

    >>> from regard.look import flow
    >>> model = regard.load("en-fr/cho").model
    >>> found = flow(model, torch.tensor([20, 30, 40, 2]), torch.tensor([25, 35, 2]))
    >>> found.total.shape, found.by_distance()[0].tolist()  # [T, S], and the steps from reading to writing a word
    ((3, 4), [0, 1, 2, 3, 4, 5])
    """
    if source.dim() != 1 or target.dim() != 1:
        raise ShapeError(
            f"flow takes one sentence, ids [S] and [T]; got {list(source.shape)} and {list(target.shape)}."
        )
    was_training = model.training
    model.eval()
    try:
        everything, read_at = _gradients(model, source, target, fixed=False)
        state, _ = _gradients(model, source, target, fixed=True)
    finally:
        model.train(was_training)
    parts = everything, everything - state, state
    total, attention, kept = (part.double().norm(dim=-1).cpu().numpy() for part in parts)
    return Flow(total, attention, kept, read_at)


def _gradients(model: nn.Module, source: Tensor, target: Tensor, fixed: bool) -> tuple[Tensor, tuple[int, ...]]:
    """d log p(y_t) / d x_s as [T, S, D] in the order of the source, and the reading order."""

    def hold(module: nn.Module, args: tuple[Any, ...], look: Look) -> Look:
        one_slot = look.weights is not None and look.weights.shape[-1] == 1 < len(source)
        return look if one_slot else look._replace(context=look.context.detach())  # one slot is no attention

    lengths = torch.tensor([len(source)], device=source.device)
    modules = attentions(model)
    with ExitStack() as stack, torch.enable_grad():
        caught = stack.enter_context(source_embeddings(model))
        for name in find(model, None) if fixed else []:
            stack.enter_context(modules[name].register_forward_hook(hold))
        logits = model(source[None], lengths, target[None])[0]  # [T, V]
    ids, _, leaf = caught[0]
    rows = [slope(value, leaf)[0] for value in logits.log_softmax(-1).gather(-1, target[:, None]).squeeze(-1)]  # [S, D]
    placed, S = source_order(ids[0], source), len(source)
    reverse = bool(getattr(getattr(model, "config", None), "reverse", False))  # some reverse the vectors, not the ids
    return torch.stack(rows)[:, list(placed)], (*range(S - 2, -1, -1), S - 1) if reverse else placed


@contextmanager
def source_embeddings(model: nn.Module, shares: Tensor | None = None) -> Iterator[list[tuple[Tensor, Tensor, Tensor]]]:
    """Make the source embeddings leaves of the graph while the block runs, multiplied by `shares` [B], if given.

    The list that it yields gets the embedded ids [B, S], their vectors [B, S, D], and the leaf that the model reads.
    """
    embed = getattr(model, "embed", None)
    if not isinstance(embed, nn.Module):
        raise DataError(
            f"{type(model).__name__} has no source embedding named 'embed', so that its gradients cannot be measured."
        )
    caught: list[tuple[Tensor, Tensor, Tensor]] = []

    def catch(module: nn.Module, args: tuple[Any, ...], vectors: Tensor) -> Tensor | None:
        if caught:  # a shared embedding reads the target later
            return None
        vectors = vectors.detach()
        leaf = (vectors.clone() if shares is None else vectors * shares[:, None, None].to(vectors)).requires_grad_()
        caught.append((args[0], vectors, leaf))
        return leaf

    with embed.register_forward_hook(catch):
        yield caught


def slope(value: Tensor, leaf: Tensor) -> Tensor:
    """The gradient of a number by a leaf, whose graph stays; zeros where it does not depend on it."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    return torch.autograd.grad(value, leaf, retain_graph=True, materialize_grads=True)[0]


def source_order(ids: Tensor, source: Tensor) -> tuple[int, ...]:
    """The place of each source position among the embedded ids [S]."""
    S = len(source)
    for order in (tuple(range(S)), (*range(S - 2, -1, -1), S - 1)):  # forward; words reversed, END in place
        if torch.equal(ids[list(order)], source):
            return order
    raise DataError("The model embeds its source in an order that is neither forward nor reversed.")


def draw_flows(flows: Mapping[str, Flow], path: str | Path, title: str | None = None) -> Path:
    """Gradient norm against distance into a .png, .svg or .pdf: one line for each model, and where it has attention and
    a state, a second line for what is left when attention is held fixed.

    >>> from regard.look import draw_flows, flow
    >>> ids = torch.tensor([20, 30, 40, 2]), torch.tensor([25, 35, 2])
    >>> flows = {name: flow(regard.load(f"en-fr/{name}").model, *ids) for name in ("cho", "bahdanau")}
    >>> draw_flows(flows, "flow.svg").name
    'flow.svg'
    """
    from regard.look.draw import curves  # matplotlib comes in only when a still picture is drawn

    return write_output(Path(path), curves.render(flows, Path(path), title))
