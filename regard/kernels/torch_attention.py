"""The dot-product attention of torch: the context of `attend`, without the weights ever being stored."""

from contextlib import nullcontext

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.core.attend import Memory
from regard.core.masks import causal_mask

# Not cuDNN's: it prepares for every new shape, and batches of sentences have a new shape almost every time.
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attend(query: Tensor, memory: Memory, scaled: bool, causal: bool) -> Tensor:
    """softmax(q k^T) v, or softmax(q k^T / sqrt(d)) v if scaled, by torch's kernel.

    query [B, T, D], or [B, H, T, D] with heads -> context [B, T, Dv], or [B, H, T, Dv].
    `causal` is the triangle of `causal_softmax`. Torch has a fast triangle, aligned at the top left, for T = S and no
    other mask. A single query sees all of its past without it.
    """
    T, S, mask = query.shape[-2], memory.keys.shape[-2], memory.mask
    if query.dim() == 3:  # torch has fused kernels for queries with heads only
        one_head = Memory(memory.keys[:, None], memory.values[:, None], None if mask is None else mask.unsqueeze(-3))
        return fused_attend(query[:, None], one_head, scaled, causal)[:, 0]
    triangle = causal and T > 1
    if triangle and (mask is not None or T != S):
        past = causal_mask(S, query.device, queries=T)  # [T, S]
        mask, triangle = past if mask is None else mask & past, False
    with sdpa_kernel(BACKENDS) if query.is_cuda else nullcontext():
        return F.scaled_dot_product_attention(
            query, memory.keys, memory.values, mask, is_causal=triangle, scale=None if scaled else 1.0
        )
