"""The layers beside the papers: cells, encoders and multi-head attention against the plain loops and against torch."""

from functools import partial

import numpy as np
import papers
import pytest
import torch
from torch import Tensor, nn
from weights_of import additive_of, array, directions_of, gru_of, heads_of, projections_of, spread, stack_of

from regard.core.attend import Memory, attend
from regard.core.cells import update_keeps, update_writes
from regard.core.masks import padding_mask
from regard.core.normalise import GaussianWindow, Window, causal_softmax, entmax15, softmax, sparsemax
from regard.core.past import EMPTY_PAST
from regard.core.scores import Additive, dot, scaled_dot
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import (
    GateInputs,
    GRUEncoder,
    LSTMState,
    ResetAfterGRU,
    ResetBeforeGRU,
    StackedLSTM,
    reverse_words,
)
from regard.layers.transformer import CrossAttention, Heads, SelfAttention

B, T, S, M, N = 2, 3, 5, 3, 4  # M: width of the input, N: width of the state
CLOSE = {"atol": 1e-9, "rtol": 0.0}
LENGTHS = torch.tensor([5, 3])


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def close(ours: Tensor, reference: np.ndarray) -> bool:
    return np.allclose(array(ours), np.asarray(reference), **CLOSE)


# --- GRU cells -------------------------------------------------------------------------------------------------------

CELLS = {
    "cho": (ResetBeforeGRU, update_keeps, papers.cho_gru),
    "bahdanau": (ResetBeforeGRU, update_writes, papers.bahdanau_gru),
    "torch": (ResetAfterGRU, update_keeps, papers.gru_reset_after),
    "torch_writes": (ResetAfterGRU, update_writes, papers.bahdanau_gru_reset_after),
}


@pytest.mark.parametrize("name", CELLS)
def test_t1_5_gru_cells_are_explicit_loops(name: str):
    kind, blend, reference = CELLS[name]
    inputs, cell = spread(GateInputs(M, N)), spread(kind(N, blend))
    x, h = torch.randn(B, T, M), torch.randn(B, N)
    w = gru_of(inputs, cell)
    state = h
    for t in range(T):
        state = cell(inputs(x[:, t]), state)
    for b in range(B):
        loop = array(h[b])
        for t in range(T):
            loop = reference(array(x[b, t]), loop, w)
        assert close(state[b], loop)


def test_bahdanau_cell_with_a_context_is_the_papers():
    inputs, cell, context = (
        spread(GateInputs(M, N)),
        spread(ResetBeforeGRU(N, update_writes)),
        spread(nn.Linear(6, 3 * N, False)),
    )
    x, h, c = torch.randn(B, M), torch.randn(B, N), torch.randn(B, 6)
    ours = cell(inputs(x) + context(c), h)
    w = gru_of(inputs, cell, context)
    for b in range(B):
        assert close(ours[b], papers.bahdanau_gru(array(x[b]), array(h[b]), w, array(c[b])))


def twin_of(inputs: GateInputs, cell: ResetBeforeGRU | ResetAfterGRU) -> nn.GRUCell:
    """torch's own cell with the same weights."""
    twin = nn.GRUCell(M, N)
    across = cell.U.weight if isinstance(cell, ResetAfterGRU) else torch.cat([cell.U_gates.weight, cell.U.weight])
    with torch.no_grad():
        twin.weight_ih.copy_(inputs.W.weight)
        twin.weight_hh.copy_(across)
        twin.bias_ih.copy_(torch.cat([torch.zeros(2 * N), inputs.b]))
        twin.bias_hh.zero_()
        if isinstance(cell, ResetAfterGRU):
            twin.bias_hh[2 * N :] = cell.b
    return twin


def test_t1_5_reset_after_is_torchs_cell_and_reset_before_is_not():
    inputs, x, h = spread(GateInputs(M, N)), torch.randn(B, M), torch.randn(B, N)
    after, before = spread(ResetAfterGRU(N, update_keeps)), spread(ResetBeforeGRU(N, update_keeps))
    assert torch.allclose(after(inputs(x), h), twin_of(inputs, after)(x, h), **CLOSE)
    assert not torch.allclose(before(inputs(x), h), twin_of(inputs, before)(x, h), atol=1e-3)


def test_t1_5_reset_before_is_torchs_cell_when_the_reset_gate_is_open():
    inputs, x, h = spread(GateInputs(M, N)), torch.randn(B, M), torch.randn(B, N)
    before = spread(ResetBeforeGRU(N, update_keeps))
    twin = twin_of(inputs, before)
    open_gate = torch.cat([torch.full((N,), 1e3), torch.zeros(2 * N)])
    with torch.no_grad():
        twin.bias_ih[:N] = 1e3
    assert torch.allclose(before(inputs(x) + open_gate, h), twin(x, h), **CLOSE)


def test_keep_and_write_are_mirrors():
    z, old, new = torch.rand(B, N), torch.randn(B, N), torch.randn(B, N)
    assert torch.allclose(update_keeps(z, old, new), z * old + (1 - z) * new, **CLOSE)
    assert torch.allclose(update_writes(z, old, new), (1 - z) * old + z * new, **CLOSE)


# --- encoders --------------------------------------------------------------------------------------------------------

ENCODERS = {
    "cho": (lambda d: GRUEncoder("paper", M, N, d, update_keeps), papers.cho_gru),
    "bahdanau": (lambda d: GRUEncoder("paper", M, N, d, update_writes), papers.bahdanau_gru),
    "torch": (lambda d: GRUEncoder("torch", M, N, d, update_writes), papers.gru_reset_after),
}


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("name", ENCODERS)
def test_t1_2_encoders_read_each_padded_row_as_the_papers_read_it_alone(name: str, directions: int):
    make, cell = ENCODERS[name]
    encoder = spread(make(directions))
    x = torch.randn(B, S, M)
    states, final = encoder(x, LENGTHS)
    assert states.shape == (B, S, directions * N)
    weights = directions_of(encoder)
    for b, length in enumerate(LENGTHS.tolist()):
        words = list(array(x[b, :length]))
        ahead = papers.read_gru(words, weights[0], N, cell)
        if directions == 1:
            assert close(states[b, :length], ahead)
            assert close(final[b], ahead[-1])
        else:
            both, ahead, back = papers.bigru_encoder(words, *weights, N, cell)
            assert close(states[b, :length], both)
            assert close(final[b], np.concatenate([ahead[-1], back[0]]))


@pytest.mark.parametrize("name", ENCODERS)
def test_t1_2_what_stands_in_the_padding_changes_nothing(name: str):
    encoder = spread(ENCODERS[name][0](2))
    x = torch.randn(B, S, M)
    states, final = encoder(x, LENGTHS)
    x[1, 3:] = 1e3
    other, other_final = encoder(x, LENGTHS)
    assert torch.equal(states[1, :3], other[1, :3])
    assert torch.equal(final, other_final)


def test_t1_3_reversal_turns_the_words_by_length():
    tokens = torch.tensor([[7, 8, 9, 5, 2], [4, 6, 2, 0, 0], [2, 0, 0, 0, 0]])
    lengths = torch.tensor([5, 3, 1])
    turned = reverse_words(tokens, lengths - 1)  # END keeps its place
    for row, length, want in zip(turned.tolist(), lengths.tolist(), tokens.tolist(), strict=True):
        assert row[:length] == papers.reversed_words(want[:length])
        assert row[length:] == want[length:]
    states = torch.randn(3, 5, N)
    assert torch.equal(reverse_words(reverse_words(states, lengths), lengths), states)


# --- LSTM ------------------------------------------------------------------------------------------------------------

LAYERS = 3


def stack(bias: bool = True) -> StackedLSTM:
    return spread(StackedLSTM(M, N, LAYERS, 0.0, bias=bias))


@pytest.mark.parametrize("bias", [False, True])
def test_stacked_lstm_reads_each_padded_row_as_the_papers_read_it_alone(bias: bool):
    lstm = stack(bias=bias)
    x = torch.randn(B, S, M)
    tops, state = lstm(x, lstm.start(B), LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        want, hs, cs = papers.stacked_lstm_encoder(list(array(x[b, :length])), stack_of(lstm), N)
        assert close(tops[b, :length], want)
        for found, expected in zip((*state.hidden, *state.cell), (*hs, *cs), strict=True):
            assert close(found[b], expected)


@pytest.mark.parametrize("stepwise", [False, True])
def test_stacked_lstm_runs_from_a_state_as_the_papers_do(stepwise: bool):
    """All steps at once and one step at a time."""
    lstm = stack()
    _, state = stack()(torch.randn(B, S, M), lstm.start(B), LENGTHS)
    x = torch.randn(B, T, M)
    if stepwise:
        tops, after = recur(lstm.step, lstm.project(x), state)
    else:
        tops, after = lstm(x, state)
    for b in range(B):
        hs, cs = ([array(layer[b]) for layer in part] for part in state)
        for t in range(T):
            hs, cs = papers.stacked_lstm_step(array(x[b, t]), hs, cs, stack_of(lstm))
            assert close(tops[b, t], hs[-1])
        for found, expected in zip((*after.hidden, *after.cell), (*hs, *cs), strict=True):
            assert close(found[b], expected)


@pytest.mark.parametrize("bias", [False, True])
def test_fed_lstm_steps_are_the_papers(bias: bool):
    """A vector fed back adds its own columns to the gates of the first layer."""
    lstm, feed = stack(bias=bias), spread(nn.Linear(N, 4 * N, bias=False))
    state = LSTMState(*(tuple(torch.randn(LAYERS, B, N)) for _ in range(2)))
    x, fed = torch.randn(B, T, M), torch.randn(B, T, N)
    hs, cs = ([[array(layer[b]) for layer in part] for b in range(B)] for part in state)
    for t in range(T):
        top, state = lstm.step(lstm.project(x[:, t]) + feed(fed[:, t]), state)
        for b in range(B):
            first, *rest = stack_of(lstm, feed)
            h, c = papers.lstm_fed(array(x[b, t]), array(fed[b, t]), hs[b][0], cs[b][0], first)
            above, above_c = papers.stacked_lstm_step(h, hs[b][1:], cs[b][1:], rest)
            hs[b], cs[b] = [h, *above], [c, *above_c]
            assert close(top[b], hs[b][-1])
            for found, expected in zip((*state.hidden, *state.cell), (*hs[b], *cs[b]), strict=True):
                assert close(found[b], expected)


def test_stacked_lstm_is_nn_lstm():
    lstm, twin = stack(), nn.LSTM(M, N, LAYERS, batch_first=True)
    with torch.no_grad():
        for k, (into, across) in enumerate(zip(lstm.W, lstm.U, strict=True)):
            getattr(twin, f"weight_ih_l{k}").copy_(into.weight)
            getattr(twin, f"weight_hh_l{k}").copy_(across.weight)
            getattr(twin, f"bias_ih_l{k}").copy_(into.bias)
            getattr(twin, f"bias_hh_l{k}").zero_()
    x = torch.randn(B, S, M)
    theirs, (hidden, cell) = twin(x)
    ours, state = lstm(x, lstm.start(B), torch.tensor([S, S]))
    assert torch.allclose(ours, theirs, **CLOSE)
    assert torch.allclose(torch.stack(state.hidden), hidden, **CLOSE)
    assert torch.allclose(torch.stack(state.cell), cell, **CLOSE)


# --- attention as a module -------------------------------------------------------------------------------------------


def test_additive_attention_module_is_the_papers():
    attention = spread(Attention(Additive(N, M, 6)))
    states, query = torch.randn(B, S, M), torch.randn(B, T, N)
    look = attention(query, attention.remember(states, padding_mask(LENGTHS, S)))
    for b, length in enumerate(LENGTHS.tolist()):
        for t in range(T):
            h = list(array(states[b, :length]))
            alpha, context, scores = papers.align(array(query[b, t]), h, additive_of(attention.score))
            assert close(look.weights[b, t, :length], alpha)
            assert (look.weights[b, t, length:] == 0).all()
            assert close(look.context[b, t], context)
            assert close(look.scores[b, t, :length], scores)


def test_local_attention_module_looks_around_its_centre():
    states, query, centre = torch.randn(B, S, N), torch.randn(B, T, N), 5 * torch.rand(B, T)
    memory = Memory(states, states, padding_mask(LENGTHS, S))
    for normalise, reference in ((Window(1), papers.local_m), (GaussianWindow(2), papers.local_p)):
        look = Attention(dot, normalise)(query, memory, centre)
        for b, length in enumerate(LENGTHS.tolist()):
            for t in range(T):
                e = np.array([papers.dot(array(query[b, t]), array(k)) for k in states[b, :length]])
                want = reference(e, centre[b, t].item(), normalise.half_width)
                assert close(look.weights[b, t, :length], want)


@pytest.mark.parametrize("normalise", [softmax, causal_softmax])
@pytest.mark.parametrize("masked", [False, True])
def test_a_fused_look_is_the_plain_look(normalise, masked: bool):
    attention = Attention(scaled_dot, normalise)
    size = T if normalise is causal_softmax else S
    lengths = torch.tensor([size, size - 1])
    query, keys, values = torch.randn(B, 2, T, N), torch.randn(B, 2, size, N), torch.randn(B, 2, size, M)
    memory = Memory(keys, values, padding_mask(lengths, size)[:, None] if masked else None)
    fused, plain = attention(query, memory), attend(query, memory, scaled_dot, normalise)
    assert fused.weights is None
    assert torch.allclose(fused.context, plain.context, **CLOSE)


def test_a_fused_step_sees_all_of_its_past():
    attention = Attention(scaled_dot, causal_softmax)
    query, keys, values = torch.randn(B, 2, 1, N), torch.randn(B, 2, S, N), torch.randn(B, 2, S, M)
    fused, plain = (
        each(query, Memory(keys, values))
        for each in (attention, partial(attend, score=scaled_dot, normalise=causal_softmax))
    )
    assert torch.allclose(fused.context, plain.context, **CLOSE)
    for b in range(B):
        for k in range(2):
            rows, _ = papers.attention(array(query[b, k]), array(keys[b, k]), array(values[b, k]))
            assert close(plain.context[b, k], rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("watched", [False, True])
def test_a_sentence_without_words_gives_zeros_in_every_head(dtype: torch.dtype, watched: bool):
    attention = Attention(scaled_dot)
    parts = [torch.randn(B, 2, size, 8).to(dtype).requires_grad_() for size in (T, S, S)]
    memory = Memory(parts[1], parts[2], padding_mask(torch.tensor([3, 0]), S)[:, None])
    look = partial(attend, score=scaled_dot, normalise=softmax) if watched else attention
    context = look(parts[0], memory).context
    assert (context[1] == 0).all()
    (context * torch.randn(B, 2, T, 8).to(dtype)).sum().backward()
    for part in parts:
        assert part.grad.isfinite().all()
        assert (part.grad[1] == 0).all()


@pytest.mark.parametrize("normalise", [softmax, causal_softmax, sparsemax, entmax15])
def test_a_hook_sees_the_weights_and_changes_nothing(normalise):
    attention = Attention(scaled_dot, normalise)
    states = torch.randn(B, 2, T, N)
    before = attention(states, Memory(states, states)).context
    seen = []
    handle = attention.register_forward_hook(lambda module, args, look: seen.append(look))
    during = attention(states, Memory(states, states)).context
    handle.remove()
    assert torch.allclose(before, during, **CLOSE)
    assert seen[0].weights.shape == seen[0].scores.shape == (B, 2, T, T)


# --- multi-head attention --------------------------------------------------------------------------------------------

WIDTH, HEADS = 12, 3


@pytest.mark.parametrize("watched", [False, True])
def test_multi_head_attention_is_the_papers(watched: bool):
    block = spread(CrossAttention(Heads(WIDTH, HEADS), Attention(scaled_dot)))
    x, states = torch.randn(B, T, WIDTH), torch.randn(B, S, WIDTH)
    seen = []
    if watched:
        block.attention.register_forward_hook(lambda module, args, look: seen.append(look.weights))
    ours = block(x, block.remember(states, padding_mask(LENGTHS, S)[:, None]))
    for b, length in enumerate(LENGTHS.tolist()):
        rows, weights = papers.multi_head(array(x[b]), array(states[b, :length]), heads_of(block))
        assert close(ours[b], rows)
        if watched:
            assert close(seen[0][b, ..., :length], weights)
            assert (seen[0][b, ..., length:] == 0).all()


def test_causal_multi_head_attention_is_the_papers():
    block = spread(SelfAttention(Heads(WIDTH, HEADS), Attention(scaled_dot, causal_softmax)))
    x = torch.randn(B, T, WIDTH)
    ours, _ = block(x, EMPTY_PAST)
    for b in range(B):
        rows, _ = papers.multi_head(array(x[b]), array(x[b]), heads_of(block), papers.causal(T))
        assert close(ours[b], rows)


def test_t5_1_one_head_of_identities_is_scaled_dot_product_attention():
    block = CrossAttention(Heads(N, 1), Attention(scaled_dot))
    with torch.no_grad():
        for weight in (*projections_of(block), block.output.weight):
            nn.init.eye_(weight)
    x, states = torch.randn(B, T, N), torch.randn(B, S, N)
    ours = block(x, block.remember(states))
    assert torch.allclose(ours, nn.functional.scaled_dot_product_attention(x, states, states), **CLOSE)


@pytest.mark.parametrize("masked", [False, True])
def test_t5_2_multi_head_attention_is_torchs(masked: bool):
    block = spread(CrossAttention(Heads(WIDTH, HEADS), Attention(scaled_dot)))
    twin = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat(projections_of(block)))
        twin.out_proj.weight.copy_(block.output.weight)
    x, states = torch.randn(B, T, WIDTH), torch.randn(B, S, WIDTH)
    mask = padding_mask(LENGTHS, S)[:, None] if masked else None
    ours = block(x, block.remember(states, mask))
    blocked = None if mask is None else ~mask[:, 0, 0]  # torch's True means: may not look
    theirs, weights = twin(x, states, states, key_padding_mask=blocked, average_attn_weights=False)
    assert torch.allclose(ours, theirs, **CLOSE)
    seen = []
    block.attention.register_forward_hook(lambda module, args, look: seen.append(look.weights))
    block(x, block.remember(states, mask))
    assert torch.allclose(seen[0], weights, **CLOSE)


def test_multi_head_attention_follows_a_permutation_of_the_memory():
    block = spread(CrossAttention(Heads(WIDTH, HEADS), Attention(scaled_dot)))
    x, states, order = torch.randn(B, T, WIDTH), torch.randn(B, S, WIDTH), torch.tensor([3, 0, 4, 1, 2])
    ask = partial(block, x)
    assert torch.allclose(ask(block.remember(states)), ask(block.remember(states[:, order])), **CLOSE)
