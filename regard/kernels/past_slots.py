"""Triton: write the keys and values of a step into their buffers, and move them from beam to beam, one launch each."""

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


def move_slots(keys: Tensor, values: Tensor, rows: Tensor, filled: Tensor, beams: int) -> None:
    """`regard.kernels.past.move_slots`: a program holds all beams of a sentence in registers while it writes."""
    B, H, room, D = keys.shape
    wide, many = triton.next_power_of_2(D), triton.next_power_of_2(beams)
    slots = min(triton.next_power_of_2(room), max(1, 4096 // (wide * many)))
    _move[B // beams * H, triton.cdiv(room, slots), 2](
        keys, values, rows, filled, *keys.stride()[:3], *values.stride()[:3], H, D, beams, slots, many, wide
    )


@triton.jit
def _move(
    keys, values, rows, filled, keys_b, keys_h, keys_s, values_b, values_h, values_s,
    H: tl.constexpr, D: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, KK: tl.constexpr, DD: tl.constexpr,
):  # fmt: skip
    h, first = tl.program_id(0) % H, (tl.program_id(0) // H).to(tl.int64) * K
    if tl.program_id(1) * SLOTS >= tl.load(filled):
        return
    if tl.program_id(2) == 0:
        _swap(keys + h * keys_h, rows, filled, first, keys_b, keys_s, D, K, SLOTS, KK, DD)
    else:
        _swap(values + h * values_h, rows, filled, first, values_b, values_s, D, K, SLOTS, KK, DD)


@triton.jit
def _swap(
    buffer, rows, filled, first, row_step, slot_step,
    D: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, KK: tl.constexpr, DD: tl.constexpr,
):  # fmt: skip
    k, d = tl.arange(0, KK), tl.arange(0, DD)
    slot = tl.program_id(1) * SLOTS + tl.arange(0, SLOTS)
    source = tl.load(rows + first + k, k < K, first)  # [KK]
    if tl.sum(tl.where((k < K) & (source != first + k), 1, 0)) > 0:
        inside = slot[None, :, None] * slot_step + d[None, None, :]
        there = (k < K)[:, None, None] & (slot < tl.load(filled))[None, :, None] & (d < D)[None, None, :]
        tile = tl.load(buffer + source[:, None, None] * row_step + inside, there)  # [KK, SLOTS, DD]
        tl.debug_barrier()  # every thread has read before any writes
        tl.store(buffer + (first + k)[:, None, None] * row_step + inside, tile, there)
