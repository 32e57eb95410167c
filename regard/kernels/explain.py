"""What `kernels.choose` chooses for each part of a model, in words."""

from typing import Any, NamedTuple

from torch import nn

from regard.errors import ConfigError, brief
from regard.kernels import choose
from regard.kernels.choose import FUSED, IN_A_LOOP, MOST_BEAMS, TRITON_DOT, Choice, no_library, no_triton
from regard.kernels.recur import refusal as no_collecting

LIBRARY = "torch's recurrent kernels"
NOT_IN_A_LIBRARY = {
    "gru": "no library has this cell",
    "fed": "each step reads what the model attended to in the step before",
    "lstmn": "each step attends to all steps before it",
}
SEARCH = f"more than {MOST_BEAMS} beams, prefixes, terms and banned repeats take the plain form"


class Explanation(NamedTuple):
    """Which form each part of a model takes on a device; `str` of it is a table."""

    device: str
    parts: tuple[tuple[str, Choice], ...]  # name of the part, and its form

    def __str__(self) -> str:
        wide = max((len(name) for name, _ in self.parts), default=0)
        rows = [f"{name:<{wide}}  {path.name}" + (f" ({path.why_not_faster})" if path.why_not_faster else "")
                for name, path in self.parts]  # fmt: skip
        return "\n".join([f"on {self.device}:", *rows])


def explain(model: Any, device: str | None = None) -> Explanation:
    """The form of every attention, recurrence and loss of `model`, and what keeps each from a faster one.

    `model` is a module, or what `regard.load` returns. `device` is "cpu" or "cuda"; by default that of the model's
    weights.

    >>> print(regard.explain(regard.load("en-fr/bahdanau"), "cpu"))
    on cpu:
    encoder                 loop (no library has this cell)
    ...
    decoding step           plain (CUDA graphs run on a GPU, not on cpu)
    beam search             plain (Triton kernels run on a GPU, not on cpu)
    """
    if not isinstance(model, nn.Module):
        if getattr(model, "model", None) is None:
            raise ConfigError(
                f"explain takes a model, or what regard.load returns; got {brief(repr(model))}. Load it first."
            )
        model = model.model
    device = device or next((weight.device.type for weight in model.parameters()), "cpu")
    fed = any(getattr(module, "recurrence", "") == "fed" for module in model.modules())
    parts: list[tuple[str, Choice]] = []
    for name, module in model.named_modules():
        if hasattr(module, "score") and hasattr(module, "normalise"):
            path = choose.attention_path(module.score, module.normalise, bool(module._forward_hooks), device)
            if fed and path.name == FUSED:
                path = Choice(f"plain in training, {FUSED} in decoding", IN_A_LOOP)
            elif fed and path.name.startswith(TRITON_DOT):
                path = Choice(f"{TRITON_DOT} of one query at a step in training, {FUSED} in decoding", IN_A_LOOP)
            parts.append((name, path))
        elif isinstance(module, nn.RNNBase):
            parts.append((name, Choice(LIBRARY)))
        elif getattr(module, "recurrence", ""):  # stated by layers and models
            name, why = name or "model", NOT_IN_A_LIBRARY.get(module.recurrence) or no_library(device)
            parts.append((name, _unless(why, LIBRARY, "loop")))
            if module.recurrence != "lstmn":
                parts.append((f"{name}, its cells", _unless(no_triton(device), "Triton")))
            if why:
                parts.append(
                    (f"{name}, its gradients", _unless(no_collecting(), "once, after the loop", "at each step"))
                )
    if hasattr(model, "hidden"):
        parts.append(("batches in training", choose.batches_path(model, device)))
    parts.append(("loss", choose.loss_path(getattr(model, "output", None))))
    if hasattr(model, "step"):
        parts.append(("decoding step", choose.steps_path(model, device)))
    if hasattr(model, "encode"):
        parts.append(("beam search", _unless(no_triton(device), "Triton, three launches a token", rest=SEARCH)))
    return Explanation(device, tuple(parts))


def _unless(why: str, faster: str, plain: str = "plain", rest: str = "") -> Choice:
    """The faster form, or the plain one if there is a reason against it; `rest` is what the faster form leaves out."""
    return Choice(plain, why) if why else Choice(faster, rest)
