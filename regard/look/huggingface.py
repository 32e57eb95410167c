"""Reading the attention in the outputs of transformers' models, without importing that library."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.look.trace_data import as_array


def cross_attentions(outputs: Any, row: int = 0) -> NDArray[np.float32]:
    """Cross-attention weights [L, H, T, S] of sentence `row`.

    Takes the outputs of a forward pass (a tuple over layers of [B, H, T, S]) or of `generate` (a tuple over steps of
    tuples over layers of [B * beams, H, 1, S]; with beams, the rows are followed back through `beam_indices`).
    """
    alone = not _get(outputs, "cross_attentions") and _get(outputs, "attentions")
    advice = "these are of a model without an encoder, so leave the target out" if alone else ""
    return np.concatenate(_steps(outputs, "cross_attentions", row, advice), axis=2)


def self_attentions(outputs: Any, row: int = 0) -> NDArray[np.float32]:
    """Weights [L, H, T, T] of a model without an encoder, for sentence `row`.

    A forward pass gives a tuple over layers of [B, H, T, T]; `generate` gives them for the text that it continues, and
    then for one token after another.
    """
    steps = _steps(outputs, "attentions", row)
    size = steps[-1].shape[-1]
    return np.concatenate([np.pad(step, [(0, 0)] * 3 + [(0, size - step.shape[-1])]) for step in steps], axis=2)


def _steps(outputs: Any, name: str, row: int, advice: str = "") -> list[NDArray[np.float32]]:
    """The weights [L, H, t, S] of each step; a forward pass is one."""
    found, indices = _get(outputs, name), _get(outputs, "beam_indices")
    stepwise = bool(found) and isinstance(found[0], list | tuple)
    if not found or any(part is None for step in found for part in (step if stepwise else [step])):
        advice = advice or (
            "fused kernels do not keep them. Load the model with attn_implementation='eager' and call it with "
            "output_attentions=True (generate needs return_dict_in_generate=True too)"
        )
        raise DataError(f"These outputs hold no weights in '{name}': {advice}.")
    rows = len(indices) if indices is not None else len(found[0][0] if stepwise else found[0])
    if not 0 <= row < rows:
        raise DataError(f"There is no sentence {row}: these outputs hold {rows}, counted from 0.")
    if not stepwise:
        return [np.stack([as_array(layer)[row] for layer in found])]
    # The batch row that the hypothesis lived in at each step; -1 marks what lies after its end.
    lived = [row] * len(found) if indices is None else [int(at) for at in as_array(indices)[row] if at >= 0]
    return [np.stack([as_array(layer)[at] for layer in step]) for at, step in zip(lived, found, strict=False)]


def _get(outputs: Any, name: str) -> Any:
    return outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)
