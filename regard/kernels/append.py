"""Triton: the keys and values of one step written into their buffers, one launch for both."""

import triton
import triton.language as tl
from torch import Tensor


def write_slot(keys_to: Tensor, values_to: Tensor, keys: Tensor, values: Tensor, slot: Tensor) -> None:
    """`regard.kernels.past.write_slot`: keys, values [B, H, 1, D] into slot [1] of buffers [B, H, room, D]."""
    B, H, _, D = keys.shape
    strides = [x.stride()[:2] for x in (keys_to, values_to, keys, values)]
    flat = [stride for pair in strides for stride in pair]
    steps = keys_to.stride(2), values_to.stride(2)
    _write[(B * H,)](keys_to, values_to, keys, values, slot, *flat, *steps, H, D, triton.next_power_of_2(D))


@triton.jit
def _write(
    keys_to, values_to, keys, values, slot,
    keys_to_b, keys_to_h, values_to_b, values_to_h, keys_b, keys_h, values_b, values_h, keys_to_s, values_to_s,
    H: tl.constexpr, D: tl.constexpr, DD: tl.constexpr,
):  # fmt: skip
    h, b = tl.program_id(0) % H, (tl.program_id(0) // H).to(tl.int64)
    d, at = tl.arange(0, DD), tl.load(slot)
    key = tl.load(keys + b * keys_b + h * keys_h + d, d < D)
    value = tl.load(values + b * values_b + h * values_h + d, d < D)
    keys_to += b * keys_to_b + h * keys_to_h + at * keys_to_s
    values_to += b * values_to_b + h * values_to_h + at * values_to_s
    tl.store(keys_to + d, key.to(keys_to.dtype.element_ty), d < D)
    tl.store(values_to + d, value.to(values_to.dtype.element_ty), d < D)
