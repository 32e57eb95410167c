"""Reading the attention of transformers' encoder-decoder outputs, without importing that library."""

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
    found, indices = (
        outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)
        for name in ("cross_attentions", "beam_indices")
    )
    stepwise = bool(found) and isinstance(found[0], list | tuple)  # type: ignore[index]
    if not found or any(part is None for step in found for part in (step if stepwise else [step])):
        raise DataError(
            "These outputs hold no cross-attention weights: fused kernels do not keep them. Load the model with "
            "attn_implementation='eager' and call it with output_attentions=True "
            "(generate needs return_dict_in_generate=True too); only encoder-decoder models have them."
        )
    rows = len(indices) if indices is not None else len(found[0][0] if stepwise else found[0])
    if not 0 <= row < rows:
        raise DataError(f"There is no sentence {row}: these outputs hold {rows}, counted from 0.")
    if not stepwise:
        return np.stack([as_array(layer)[row] for layer in found])  # [L, H, T, S]
    # The batch row that the hypothesis lived in at each step; -1 marks what lies after its end.
    lived = [row] * len(found) if indices is None else [int(at) for at in as_array(indices)[row] if at >= 0]
    steps = [np.stack([as_array(layer)[at][:, -1:] for layer in step]) for at, step in zip(lived, found, strict=False)]
    return np.concatenate(steps, axis=2)  # [L, H, T, S]
