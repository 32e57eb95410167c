"""The weights of regard's modules under the papers' names, so that the plain loops of papers.py can use them."""

import numpy as np
import torch
from papers import Weights
from torch import Tensor, nn

from regard.core.scores import Additive
from regard.layers.attention import MultiHead
from regard.layers.recurrent import GateInputs, PaperEncoder, ResetAfterGRU, ResetBeforeGRU, StackedLSTM, TorchEncoder


def array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy().astype(np.float64)


@torch.no_grad()
def spread(module: nn.Module, size: float = 0.7) -> nn.Module:
    """Random weights large enough for every nonlinearity and every bias to matter, in float64; START stays zero."""
    module.double().eval()
    for name, weight in module.named_parameters():
        weight.normal_(1.0 if "norm" in name and weight.dim() == 1 else 0.0, size)
    for part in module.modules():
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx].zero_()
    return module


def thirds(matrix: Tensor, letter: str) -> Weights:
    """Rows stacked as reset, update, candidate -> W_r, W_z, W."""
    reset, update, candidate = (array(part) for part in matrix.chunk(3, dim=0))
    return Weights({f"{letter}_r": reset, f"{letter}_z": update, letter: candidate})


def inputs_of(inputs: GateInputs) -> Weights:
    return Weights(thirds(inputs.W.weight, "W") | {"b": array(inputs.b)})


def state_of(cell: ResetBeforeGRU | ResetAfterGRU) -> Weights:
    if isinstance(cell, ResetAfterGRU):
        return Weights(thirds(cell.U.weight, "U") | {"b_U": array(cell.b)})
    reset, update = (array(part) for part in cell.U_gates.weight.chunk(2, dim=0))
    return Weights(U_r=reset, U_z=update, U=array(cell.U.weight))


def gru_of(inputs: GateInputs, cell: ResetBeforeGRU | ResetAfterGRU, context: nn.Linear | None = None) -> Weights:
    own = inputs_of(inputs) | state_of(cell)
    return Weights(own if context is None else own | thirds(context.weight, "C"))


def directions_of(encoder: PaperEncoder | TorchEncoder) -> list[Weights]:
    """Forward, then backward."""
    if isinstance(encoder, TorchEncoder):
        return [torch_gru_of(*weights) for weights in encoder.gru.all_weights]
    found = []
    for k, inputs in enumerate(encoder.inputs):
        reset, update = (array(part.T) for part in encoder.U_gates[k].chunk(2, dim=1))
        found.append(Weights(inputs_of(inputs) | {"U_r": reset, "U_z": update, "U": array(encoder.U[k].T)}))
    return found


def torch_gru_of(into: Tensor, across: Tensor, b_into: Tensor, b_across: Tensor) -> Weights:
    biases, others = thirds(b_into, "b"), thirds(b_across, "b")
    w = thirds(into, "W") | thirds(across, "U")
    return Weights(
        w | {"b_r": biases["b_r"] + others["b_r"], "b_z": biases["b_z"] + others["b_z"]},
        b=biases["b"],
        b_U=others["b"],
    )


def lstm_of(into: Tensor, across: Tensor, *biases: Tensor) -> Weights:
    """torch stacks i f g o; the papers write i f o g, and one matrix on [x ; h]."""

    def reorder(matrix: Tensor) -> np.ndarray:
        i, f, g, o = (array(part) for part in matrix.chunk(4, dim=0))
        return np.concatenate([i, f, o, g], axis=0)

    w = Weights(W=np.concatenate([reorder(into), reorder(across)], axis=1))
    return Weights(w, b=reorder(biases[0] + biases[1])) if biases else w


def stack_of(stack: StackedLSTM) -> list[Weights]:
    return [lstm_of(*weights) for weights in stack.lstm.all_weights]


def additive_of(score: Additive) -> Weights:
    return Weights(W_a=array(score.W.weight), U_a=array(score.U.weight), v_a=array(score.v.weight)[0])


def heads_of(block: MultiHead) -> Weights:
    """The H matrices of a kind, each d x d_k as in the paper's x W."""

    def split(linear: nn.Linear) -> list[np.ndarray]:
        return [array(part.T) for part in linear.weight.chunk(block.heads, dim=0)]

    return Weights(
        W_Q=split(block.query), W_K=split(block.key), W_V=split(block.value), W_O=array(block.output.weight.T)
    )
