"""The weights of regard's modules under the papers' names, so that the plain loops of papers.py can use them."""

import numpy as np
import torch
from papers import Weights
from torch import Tensor, nn

from regard.core.scores import Additive, Relative, alibi
from regard.layers.recurrent import GateInputs, GRUEncoder, GRULayer, ResetAfterGRU, ResetBeforeGRU, StackedLSTM
from regard.layers.transformer import CrossAttention, FeedForward, SelfAttention
from regard.layers.transformer_parts import SwiGLU
from regard.models.bahdanau import Bahdanau, Decoder, Readout
from regard.models.britz import Britz, Stack
from regard.models.coverage import Coverage, Linguistic
from regard.models.encdec import Cho, RNNencdec, Sutskever
from regard.models.luong import Luong
from regard.models.pointer import Pointer
from regard.models.transformer import Transformer


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


def state_of(cell: ResetBeforeGRU | ResetAfterGRU, direction: int = 0) -> Weights:
    def matrix(part: nn.Module) -> Tensor:
        return part.weight if part.weight.dim() == 2 else part.weight[direction]

    if isinstance(cell, ResetAfterGRU):
        return Weights(thirds(matrix(cell.U), "U") | {"b_U": array(cell.b)})
    reset, update = (array(part) for part in matrix(cell.U_gates).chunk(2, dim=0))
    return Weights(U_r=reset, U_z=update, U=array(matrix(cell.U)))


def gru_of(inputs: GateInputs, cell: ResetBeforeGRU | ResetAfterGRU, context: nn.Linear | None = None) -> Weights:
    own = inputs_of(inputs) | state_of(cell)
    return Weights(own if context is None else own | thirds(context.weight, "C"))


def directions_of(encoder: GRUEncoder) -> list[Weights]:
    """Forward, then backward."""
    return [Weights(inputs_of(inputs) | state_of(encoder.cell, k)) for k, inputs in enumerate(encoder.inputs)]


def torch_gru_of(into: Tensor, across: Tensor, b_into: Tensor, b_across: Tensor) -> Weights:
    """The weights of one direction of an nn.GRU."""
    biases, others = thirds(b_into, "b"), thirds(b_across, "b")
    w = thirds(into, "W") | thirds(across, "U")
    return Weights(
        w | {"b_r": biases["b_r"] + others["b_r"], "b_z": biases["b_z"] + others["b_z"]},
        b=biases["b"],
        b_U=others["b"],
    )


def lstm_of(into: nn.Linear, across: nn.Linear, feed: nn.Linear | None = None) -> Weights:
    """Gates are stacked i f g o; the papers write i f o g, and one matrix on [x ; h], or [x ; fed ; h]."""

    def reorder(matrix: Tensor) -> np.ndarray:
        i, f, g, o = (array(part) for part in matrix.chunk(4, dim=0))
        return np.concatenate([i, f, o, g], axis=0)

    parts = [into, across] if feed is None else [into, feed, across]
    w = Weights(W=np.concatenate([reorder(part.weight) for part in parts], axis=1))
    return w if into.bias is None else Weights(w, b=reorder(into.bias))


def stack_of(stack: StackedLSTM, feed: nn.Linear | None = None) -> list[Weights]:
    """`feed` are the columns of the first layer that read a vector fed back."""
    layers = zip(stack.W, stack.U, [feed, *[None] * len(stack.U)], strict=False)
    return [lstm_of(*layer) for layer in layers]


def additive_of(score: Additive) -> Weights:
    return Weights(W_a=array(score.W.weight), U_a=array(score.U.weight), v_a=array(score.v.weight)[0])


def projections_of(block: SelfAttention | CrossAttention) -> tuple[Tensor, ...]:
    """W^Q, W^K and W^V, [D, D] each, as they multiply from the left."""
    whole, few = block.project.weight, block.output.in_features // block.heads * block.key_heads
    if not isinstance(block, SelfAttention):
        return block.query.weight, *whole.chunk(2)
    return whole.split((block.output.in_features, few, few))


def heads_of(block: SelfAttention | CrossAttention) -> Weights:
    """The H matrices of a kind, each d x d_k as in the paper's x W."""
    counts = block.heads, block.key_heads, block.key_heads
    wholes = zip(projections_of(block), counts, strict=True)
    kinds = ([array(part.T) for part in whole.chunk(count)] for whole, count in wholes)
    w = Weights(zip(("W_Q", "W_K", "W_V"), kinds, strict=True), W_O=array(block.output.weight.T))
    score = block.attention.score
    if isinstance(score, Relative):
        w["a_K"], w["a_V"] = array(score.distances.weight), array(block.values.weight)
    return Weights(w, alibi=True) if score is alibi else w


# --- whole models ----------------------------------------------------------------------------------------------------


def columns(embedding: nn.Embedding) -> np.ndarray:
    """E in R^{m x K}: one column for each word."""
    return array(embedding.weight.T)


def readout_of(readout: Readout, output: nn.Linear) -> Weights:
    w = Weights(
        U_o=array(readout.U_o.weight),
        b_o=array(readout.U_o.bias),
        V_o=array(readout.V_o.weight),
        C_o=array(readout.C_o.weight),
        W_o=array(output.weight),
        b_out=array(output.bias),
    )
    return Weights(w, W_o1=array(readout.narrow.weight)) if isinstance(readout.narrow, nn.Linear) else w


def bahdanau_decoder_of(decoder: Decoder, output: nn.Linear) -> Weights:
    w = Weights(
        E_y=columns(decoder.embed),
        W_s=array(decoder.initial.weight),
        b_s=array(decoder.initial.bias),
        readout=readout_of(decoder.readout, output),
    )
    if isinstance(decoder.attention.score, Additive):
        w["align"] = additive_of(decoder.attention.score)
    if isinstance(decoder.C, GateInputs):  # the conditional GRU: one cell reads the word, the other the context
        w["gru1"], w["gru2"] = gru_of(decoder.W, decoder.gru), gru_of(decoder.C, decoder.gru_2)
    else:
        w["decoder"] = gru_of(decoder.W, decoder.gru, decoder.C)
    return w


def bahdanau_of(model: Bahdanau | RNNencdec) -> Weights:
    w = bahdanau_decoder_of(model.decoder, model.output)
    return Weights(w, E_x=columns(model.embed), directions=directions_of(model.encoder))


def coverage_of(model: Coverage) -> Weights:
    w, part = bahdanau_of(model), model.decoder.coverage
    w["align"]["V_a"] = array(model.decoder.attention.score.V.weight)
    if isinstance(part, Linguistic):
        return w if part.U_f is None else Weights(w, U_f=array(part.U_f.weight), N=part.fertility)
    W = torch.cat([part.W_alpha.weight, part.W_h.weight, part.W_s.weight], dim=1)
    biases = {"b_r": part.W_h.bias.chunk(3)[0], "b_z": part.W_h.bias.chunk(3)[1], "b": part.W_h.bias.chunk(3)[2]}
    gru = thirds(W, "W") | state_of(part.gru) | {name: array(bias) for name, bias in biases.items()}
    return Weights(w, gru=Weights(gru))


def pointer_of(model: Pointer) -> Weights:
    def bias(name: str, linear: nn.Linear) -> Weights:
        return Weights({name: array(linear.weight), f"b_{name}": array(linear.bias)})

    score, own = model.attention.score, {}
    for name, part in (("V", model.V), ("V_prime", model.V_prime)):
        own |= bias(name, part)
    for kind, part in zip(("h0", "c0"), model.reduce, strict=True):
        own |= {f"W_{kind}": array(part.weight), f"b_{kind}": array(part.bias)}
    gate = model.generate
    if model.config.shortlist:
        own |= {"W_f": array(gate.W.weight), "b_f": array(gate.W.bias), "U_f": array(gate.U.weight)}
        own |= {"b_U": array(gate.U.bias), "w_z": array(gate.w.weight)[0], "b_z": array(gate.w.bias)[0]}
    else:
        own |= {"w_gen": array(gate.w.weight)[0], "b_gen": array(gate.w.bias)[0]}
    align = Weights(
        W_h=array(score.U.weight),
        W_s=array(score.W.weight),
        w_c=array(score.V.weight)[:, 0],
        b_attn=array(score.V.bias),
        v=array(score.v.weight)[0],
    )
    return Weights(
        own,
        E=columns(model.embed),
        forwards=stack_of(model.forwards)[0],
        backwards=stack_of(model.backwards)[0],
        decoder=stack_of(model.lstm)[0],
        W_x=np.concatenate([array(model.W_x.weight), array(model.W_context.weight)], axis=1),
        b_x=array(model.W_x.bias),
        align=align,
    )


def cho_of(model: Cho) -> Weights:
    decoder = inputs_of(model.W) | thirds(model.U.weight, "U") | thirds(model.C.weight, "C")
    readout = {name: array(getattr(model, name).weight) for name in ("O_h", "O_y", "O_c", "G_r")}
    return Weights(
        E_x=columns(model.embed),
        E_y=columns(model.embed_target),
        encoder=directions_of(model.encoder)[0],
        V=array(model.V.weight),
        b_V=array(model.V.bias),
        V_prime=array(model.initial.weight),
        b_V_prime=array(model.initial.bias),
        decoder=Weights(decoder),
        readout=Weights(
            readout, G_l=array(model.output.weight), b_o=array(model.O_h.bias), b_out=array(model.output.bias)
        ),
    )


def sutskever_of(model: Sutskever) -> Weights:
    return Weights(
        E_x=columns(model.embed),
        E_y=columns(model.embed_target),
        encoder=stack_of(model.encoder),
        decoder=stack_of(model.decoder),
        W_out=array(model.output.weight),
    )


def luong_of(model: Luong) -> Weights:
    w = Weights(
        E_x=columns(model.embed),
        E_y=columns(model.embed_target),
        encoder=stack_of(model.encoder),
        decoder=stack_of(model.decoder, model.feed),
        W_c=array(model.W_c.weight),
        W_s=array(model.output.weight),
    )
    score = model.attention.score
    if hasattr(score, "W"):
        w["W_a"] = array(score.W.weight)
    if hasattr(score, "v"):
        w["v_a"] = array(score.v.weight)[0]
    if hasattr(model.centre, "W"):
        w["W_p"], w["v_p"] = array(model.centre.W.weight), array(model.centre.v.weight)[0]
    return w


def britz_stack_of(stack: Stack) -> Weights:
    def layer_weights(layer: GRULayer | StackedLSTM) -> Weights:
        if isinstance(layer, StackedLSTM):
            return stack_of(layer)[0]
        biases = zip(("b_r", "b_z", "b"), layer.W.bias.chunk(3), strict=True)
        return Weights(
            thirds(layer.W.weight, "W") | state_of(layer.cell) | {name: array(bias) for name, bias in biases}
        )

    w = Weights(layers=[layer_weights(layer) for layer in stack.layers])
    if isinstance(stack.enter, nn.Linear):
        w["W_in"], w["b_in"] = array(stack.enter.weight), array(stack.enter.bias)
    return w


def britz_of(model: Britz) -> Weights:
    w = Weights(E_x=columns(model.embed), E_y=columns(model.embed_target), decoder=britz_stack_of(model.decoder))
    for name in ("forwards", "backwards"):
        if getattr(model, name) is not None:
            w[name] = britz_stack_of(getattr(model, name))
    for name, part in (("_1", model.W_1), ("_2", model.W_2), ("", model.W), ("_o", model.output)):
        w[f"W{name}"], w[f"b{name}"] = array(part.weight), array(part.bias)
    return Weights(w, v=array(model.attention.score.v.weight)[0]) if model.config.score == "additive" else w


def norm_of(norm: nn.LayerNorm | nn.RMSNorm) -> Weights:
    if isinstance(norm, nn.RMSNorm):
        return Weights(g_rms=array(norm.weight))
    return Weights(g=array(norm.weight), b=array(norm.bias))


def feed_forward_of(net: FeedForward | SwiGLU) -> Weights:
    if isinstance(net, SwiGLU):
        W, V = net.project.weight.T.chunk(2, dim=1)
        return Weights(W=array(W), V=array(V), W2=array(net.output.weight.T))
    return Weights(W1=array(net[0].weight.T), b1=array(net[0].bias), W2=array(net[2].weight.T), b2=array(net[2].bias))


def layer_of(layer: nn.Module) -> Weights:
    w = Weights(self=heads_of(layer.self_attention), ffn=feed_forward_of(layer.feed_forward))
    if layer.cross_attention is not None:
        w["cross"] = heads_of(layer.cross_attention)
    return Weights(w | {f"norm{k}": norm_of(join.norm) for k, join in enumerate(joins_of(layer), start=1)})


def joins_of(layer: nn.Module) -> list[nn.Module]:
    """How the sub-layers join the stream, in their order."""
    return [join for join in (layer.join_self, layer.join_cross, layer.join_feed) if join is not None]


def transformer_of(model: Transformer) -> Weights:
    places = {"sinusoid": lambda: "sinusoid", "learned": lambda: array(model.place.embed.table.weight)}
    place = places.get(model.config.positions, lambda: None)()
    w = Weights(
        E_x=array(model.embed.weight),
        E_y=array(model.embed_target.weight),
        P_x=place,
        P_y=place,
        encoder=[layer_of(layer) for layer in model.encoder],
        decoder=[layer_of(layer) for layer in model.decoder],
        W_out=array(model.output.weight),
    )
    if model.config.norm == "pre":
        w["encoder_norm"], w["decoder_norm"] = norm_of(model.encoder_norm), norm_of(model.decoder_norm)
    return w
