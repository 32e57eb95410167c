"""Reading the attention of transformers' encoder-decoder outputs, without importing that library."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError


def cross_attentions(outputs: Any, row: int = 0) -> NDArray[np.float32]:
    """Cross-attention weights [L, H, T, S] of sentence `row`.

    Takes the outputs of a forward pass (a tuple over layers of [B, H, T, S]) or of `generate` (a tuple over steps of
    tuples over layers of [B * beams, H, 1, S]; with beams, the rows are followed back through `beam_indices`).
    """
    found = outputs.get("cross_attentions") if isinstance(outputs, dict) else getattr(outputs, "cross_attentions", None)
    if not found or _holds_none(found):
        raise DataError(
            "These outputs hold no cross-attention weights: fused kernels do not keep them. Load the model with "
            "attn_implementation='eager' and call it with output_attentions=True "
            "(generate needs return_dict_in_generate=True too); only encoder-decoder models have them."
        )
    stepwise = isinstance(found[0], list | tuple)
    _check_row(outputs, row, len(found[0][0] if stepwise else found[0]))
    if not stepwise:
        return np.stack([_array(layer)[row] for layer in found])  # [L, H, T, S]
    rows = _beam_rows(outputs, row, len(found))
    steps = [np.stack([_array(layer)[at][:, -1:] for layer in step]) for at, step in zip(rows, found, strict=False)]
    return np.concatenate(steps, axis=2)  # [L, H, T, S]


def _holds_none(found: Any) -> bool:
    return any(
        part is None or (isinstance(part, list | tuple) and any(each is None for each in part)) for part in found
    )


def _check_row(outputs: Any, row: int, batch: int) -> None:
    indices = _beam_indices(outputs)
    rows = batch if indices is None else len(indices)
    if not 0 <= row < rows:
        raise DataError(f"There is no sentence {row}: these outputs hold {rows}, counted from 0.")


def _beam_indices(outputs: Any) -> Any:
    return outputs.get("beam_indices") if isinstance(outputs, dict) else getattr(outputs, "beam_indices", None)


def _beam_rows(outputs: Any, row: int, steps: int) -> list[int]:
    """The batch row that the returned hypothesis lived in at each step; its length is that of the hypothesis."""
    indices = _beam_indices(outputs)
    if indices is None:
        return [row] * steps
    path = [int(index) for index in _array(indices)[row]]
    return [index for index in path[:steps] if index >= 0]  # -1 marks what lies after the end


def _array(tensor: Any) -> NDArray[Any]:
    return np.asarray(tensor.detach().cpu().float() if hasattr(tensor, "detach") else tensor)
