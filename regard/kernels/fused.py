"""The scaled dot-product attention of torch: the same answer as `attend`, without the weights ever being stored.

It serves wherever nobody needs to see the weights. `refusal` is the one place that decides, and says why not.
"""

import torch.nn.functional as F
from torch import Tensor

from regard.core.attend import Memory
from regard.core.normalise import causal_softmax, softmax
from regard.core.scores import scaled_dot


def refusal(score: object, normalise: object, watched: bool) -> str | None:
    """Why the fused kernel cannot serve, in a few words; None when it can."""
    if watched:
        return "somebody is recording, and the fused kernel shows no weights"
    if score is not scaled_dot:
        return "the fused kernel knows the scaled dot product only"
    if normalise is not softmax and normalise is not causal_softmax:
        return "the fused kernel knows the softmax only"
    return None


def fused_attend(query: Tensor, memory: Memory, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(d)) v by torch's kernel: query [B, H, T, D] -> context [B, H, T, Dv].

    `causal` is the triangle of `causal_softmax`; torch aligns its own at the top left, which is the same for T = S, and
    a single query sees all of its past without any mask.
    """
    triangle = causal and query.shape[-2] > 1
    if triangle and query.shape[-2] != memory.keys.shape[-2]:
        raise NotImplementedError("causal attention takes all steps at once, or one step with its past")
    return F.scaled_dot_product_attention(
        query, memory.keys, memory.values, attn_mask=None if triangle else memory.mask, is_causal=triangle
    )
