"""The models beside the papers: whole teacher-forced sentences against the plain loops, and the papers' own properties.

The batch is padded; the loops read each sentence alone. So every comparison is also one of padding and batching.
"""

from contextlib import contextmanager
from dataclasses import fields, replace

import numpy as np
import papers
import pytest
import torch
from torch import Tensor, nn
from weights_of import (
    array,
    bahdanau_of,
    britz_of,
    britz_stack_of,
    cho_of,
    joins_of,
    layer_of,
    luong_of,
    norm_of,
    projections_of,
    spread,
    sutskever_of,
    transformer_of,
)

from regard.core.scores import Cosine, Perceptron, dot
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError
from regard.layers.attention import Attention
from regard.layers.transformer import NO_PLACES, Places
from regard.models.bahdanau import Bahdanau, BahdanauConfig, maxout
from regard.models.britz import Britz, BritzConfig, Stack
from regard.models.captioner import Captioner, CaptionerConfig
from regard.models.contract import shift_right
from regard.models.encdec import Cho, ChoConfig, RNNencdec, RNNencdecConfig, Sutskever, SutskeverConfig
from regard.models.luong import Luong, LuongConfig
from regard.models.pointer import Pointer, PointerConfig
from regard.models.registry import MODELS, build
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_lm import TransformerLanguageConfig, TransformerLanguageModel
from regard.symbols import END, START

SOURCE = torch.tensor([[5, 7, 4, 9, 6, END], [8, 6, 5, END, 0, 0]])
LENGTHS = torch.tensor([6, 4])
TARGET = torch.tensor([[4, 10, 12, 7, END], [6, 4, END, 0, 0]])
B, S, T = 2, 6, 5
SIZES = {"source_vocabulary": 11, "target_vocabulary": 13}
CLOSE = {"atol": 1e-9, "rtol": 0.0}

BAHDANAU = BahdanauConfig(**SIZES, embedding=5, width=4, attention=6, readout=3)
RNNENCDEC = RNNencdecConfig(**SIZES, embedding=5, width=4, readout=3)
CHO = ChoConfig(**SIZES, embedding=5, width=4, readout=3)
SUTSKEVER = SutskeverConfig(**SIZES, width=4, layers=3)
LUONG = LuongConfig(**SIZES, width=4, layers=2, half_width=2, longest=4, dropout=0.0, window="global")
BRITZ = BritzConfig(**SIZES, embedding=5, width=4, attention=6, dropout=0.0)
TRANSFORMER = TransformerConfig(**SIZES, width=12, heads=3, inner=7, layers=2, dropout=0.0, longest=9, tied="target")

# Bahdanau's query and keys differ in width, which a cosine refuses.
COSINES = [
    name
    for name, entry in MODELS.items()
    for field in fields(entry.config)
    if field.name == "score" and "cosine" in field.metadata["allowed"] and name != "bahdanau"
]
TIMINGS = ("paper", "appendix", "released", "conditional")
SCORES = ("dot", "general", "concat", "concat-released", "location")
WINDOWS = ("global", "local-m", "local-p")


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def close(ours: Tensor, reference: np.ndarray) -> bool:
    return np.allclose(array(ours), np.asarray(reference), **CLOSE)


@contextmanager
def watched(model: nn.Module):
    """What every attention of the model saw, by name, its calls joined along T: (context, weights, query)."""
    calls: dict[str, list] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, Attention):

            def hook(module, args, look, name=name):
                calls.setdefault(name, []).append((look.context, look.weights, args[0]))

            handles.append(module.register_forward_hook(hook))
    seen: dict[str, tuple[Tensor, ...]] = {}
    yield seen
    for handle in handles:
        handle.remove()
    for name, parts in calls.items():
        size = max(weights.shape[-1] for _, weights, _ in parts)
        widened = [(c, nn.functional.pad(w, (0, size - w.shape[-1])), q) for c, w, q in parts]
        seen[name] = tuple(torch.cat(part, dim=-2) for part in zip(*widened, strict=True))


def run(model: nn.Module) -> tuple[Tensor, dict[str, tuple[Tensor, ...]]]:
    with watched(model) as seen:
        logits = model(SOURCE, LENGTHS, TARGET)
    return logits, seen


def sentences():
    """Row, source ids without padding, the ids the decoder reads, the ids it writes."""
    for b, length in enumerate(LENGTHS.tolist()):
        yield b, SOURCE[b, :length].tolist(), shift_right(TARGET)[b].tolist(), TARGET[b].tolist()


# --- Cho, Sutskever, RNNencdec ---------------------------------------------------------------------------------------


def test_cho_is_the_papers():
    model = spread(Cho(CHO))
    logits, seen = run(model)
    w = cho_of(model)
    context, weights, _ = seen["attention"]
    for b, source, read, _ in sentences():
        want, states, c = papers.cho(source, [w.E_y[:, y] for y in read], w, CHO.width)
        assert close(logits[b], want)
        assert close(context[b], [c] * T)
        assert (weights[b] == 1).all()
        assert len(states) == T


@pytest.mark.parametrize("cell", ["paper", "torch"])
def test_rnnencdec_is_the_papers(cell: str):
    model = spread(RNNencdec(replace(RNNENCDEC, cell=cell)))
    logits, seen = run(model)
    w = bahdanau_of(model)
    reader = papers.bahdanau_gru if cell == "paper" else papers.gru_reset_after
    writer = papers.bahdanau_gru if cell == "paper" else papers.bahdanau_gru_reset_after
    for b, source, read, _ in sentences():
        h = papers.read_gru([w.E_x[:, x] for x in source], w.directions[0], RNNENCDEC.width, reader)[-1]
        want, _ = papers.rnnencdec(h, [w.E_y[:, y] for y in read], w, cell=writer)
        assert close(logits[b], want)
        assert close(seen["decoder.attention"][0][b], [h] * T)


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_sutskever_is_the_papers(reverse: bool, bias: bool):
    model = spread(Sutskever(replace(SUTSKEVER, reverse=reverse, bias=bias)))
    logits, seen = run(model)
    for b, source, read, _ in sentences():
        want, (hs, cs) = papers.sutskever(source, read, sutskever_of(model), SUTSKEVER.width, reverse)
        assert close(logits[b], want)
        assert close(seen["attention"][0][b, 0], np.concatenate([*hs, *cs]))


def test_t1_3_reversing_is_reading_the_flipped_words_with_end_last():
    backwards = spread(Sutskever(SUTSKEVER))
    forwards = Sutskever(replace(SUTSKEVER, reverse=False))
    forwards.load_state_dict(backwards.state_dict())
    flipped = SOURCE.clone()
    for b, source, _, _ in sentences():
        flipped[b, : len(source)] = torch.tensor(papers.reversed_words(source))
    assert flipped[0, 5] == END
    assert flipped[1, 3] == END
    ours, theirs = backwards.encode(SOURCE, LENGTHS), forwards.encode(flipped, LENGTHS)
    assert torch.equal(ours.values, theirs.values)
    assert not torch.allclose(ours.values, forwards.encode(SOURCE, LENGTHS).values, atol=1e-3)


# --- Bahdanau --------------------------------------------------------------------------------------------------------


def bahdanau_reference(model: Bahdanau, source: list[int], read: list[int], written: list[int]) -> papers.Weights:
    """The paper's answer for one sentence, by the model's own timing and cell."""
    config, w = model.config, bahdanau_of(model)
    paper = config.cell == "paper"
    X = [w.E_x[:, x] for x in source]
    h, _, back = papers.bigru_encoder(
        X, *w.directions, config.width, papers.bahdanau_gru if paper else papers.gru_reset_after
    )
    Y, Y_now = [w.E_y[:, y] for y in read], [w.E_y[:, y] for y in written]
    cell = papers.bahdanau_gru if paper else papers.bahdanau_gru_reset_after
    if config.timing == "conditional":
        return papers.bahdanau_d(h, papers.bahdanau_d_start(h, w), Y, w)
    s_0 = papers.bahdanau_start(back, w)
    if config.timing == "released":
        return papers.bahdanau_c(h, s_0, Y, Y_now, w, cell)
    return {"paper": papers.bahdanau_a, "appendix": papers.bahdanau_b}[config.timing](h, s_0, Y, w, cell=cell)


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("cell", ["paper", "torch"])
@pytest.mark.parametrize("rank", [0, 2])
def test_bahdanau_is_the_papers(timing: str, cell: str, rank: int):
    model = spread(Bahdanau(replace(BAHDANAU, timing=timing, cell=cell, output_rank=rank)))
    logits, seen = run(model)
    context, weights, query = seen["decoder.attention"]
    for b, source, read, written in sentences():
        want = bahdanau_reference(model, source, read, written)
        assert close(logits[b], want.logits)
        assert close(weights[b, :, : len(source)], want.alpha)
        assert close(context[b], want.contexts)
        if timing != "conditional":  # the query is the state before the step
            assert close(query[b, 1:], want.states[:-1])


def test_bahdanau_reads_start_as_the_zero_vector():
    assert (Bahdanau(BAHDANAU).decoder.embed.weight[START] == 0).all()


@pytest.mark.parametrize("timing", TIMINGS)
def test_t2_1_rows_sum_to_one_over_real_positions_and_end_is_real(timing: str):
    model = spread(Bahdanau(replace(BAHDANAU, timing=timing)))
    _, weights, _ = run(model)[1]["decoder.attention"]
    assert torch.allclose(weights.sum(-1), torch.ones(B, T), **CLOSE)
    assert (weights[1, :, 4:] == 0).all()
    assert (weights[0, :, 5] > 0).all()  # the column of END
    assert (weights[1, :, 3] > 0).all()


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_t2_2_a_fresh_model_attends_uniformly(timing: str, dtype: torch.dtype):
    model = Bahdanau(replace(BAHDANAU, timing=timing)).to(dtype).eval()
    assert (model.decoder.attention.score.v.weight == 0).all()
    _, seen = run(model)
    context, weights, _ = seen["decoder.attention"]
    states = model.encode(SOURCE, LENGTHS).values
    for b, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(weights[b, :, :length], torch.full((T, length), 1 / length, dtype=dtype))
        mean = states[b, :length].mean(0).expand(T, -1)
        assert torch.allclose(context[b], mean, atol=1e-6 if dtype == torch.float32 else 1e-12, rtol=0)


def test_t2_2_only_v_receives_alignment_gradient_on_the_first_step():
    model = Bahdanau(BAHDANAU)
    model(SOURCE, LENGTHS, TARGET).logsumexp(-1).sum().backward()
    score = model.decoder.attention.score
    assert (score.v.weight.grad != 0).any()
    assert (score.W.weight.grad == 0).all()
    assert (score.U.weight.grad == 0).all()


def test_fresh_bahdanau_has_the_papers_initial_weights():
    model = Bahdanau(replace(BAHDANAU, width=60, embedding=50, attention=70, readout=40))
    n = model.config.width
    reads, writes = model.encoder.cell, model.decoder.gru
    squares = [*reads.U.weight, reads.U_gates.weight[1][:n], writes.U.weight, *writes.U_gates.weight.split(n)]
    for square in squares:
        assert torch.allclose(square @ square.T, torch.eye(n), atol=1e-6)
    score = model.decoder.attention.score
    assert score.W.weight.std().item() == pytest.approx(0.001, rel=0.1)
    assert score.U.weight.std().item() == pytest.approx(0.001, rel=0.1)
    for weight in (
        model.embed.weight,
        model.decoder.W.W.weight,
        model.decoder.C.weight,
        model.decoder.readout.U_o.weight,
    ):
        assert weight.std().item() == pytest.approx(0.01, rel=0.15)
    assert all((weight == 0).all() for weight in model.parameters() if weight.dim() == 1)


@pytest.mark.parametrize("name", COSINES)
def test_a_cosine_begins_with_strength_one(name: str):
    config = MODELS[name].presets["tiny"]
    sizes = {"captioner": {"features": config.width, "encoder": "none"}, "document": {"attention": 2 * config.width}}
    few = {one.name: 9 for one in fields(config) if one.name.endswith("vocabulary")}  # words, not what is looked at
    model = build(name, replace(config, score="cosine", **few, **sizes.get(name, {})))
    found = [score for score in model.modules() if isinstance(score, Cosine)]
    assert found
    for score in found:
        assert nn.functional.softplus(score.raw_strength).item() == pytest.approx(1)


def test_t2_4_decoding_does_not_see_the_order_of_the_memory():
    model = spread(Bahdanau(BAHDANAU))
    memory = model.encode(SOURCE, LENGTHS)
    order = torch.tensor([2, 5, 0, 3, 1, 4])
    moved = memory._replace(keys=memory.keys[:, order], values=memory.values[:, order], mask=memory.mask[..., order])
    with watched(model) as seen:
        logits, _ = model.decoder(shift_right(TARGET), model.start(memory))
    with watched(model) as seen_moved:
        logits_moved, _ = model.decoder(shift_right(TARGET), model.start(moved))
    assert torch.allclose(logits, logits_moved, **CLOSE)
    context, weights, _ = seen["decoder.attention"]
    context_moved, weights_moved, _ = seen_moved["decoder.attention"]
    assert torch.allclose(weights[..., order], weights_moved, **CLOSE)
    assert torch.allclose(context, context_moved, **CLOSE)


@pytest.mark.parametrize("cell", ["paper", "torch"])
def test_t2_5_a_context_fixed_to_the_last_forward_state_is_rnnencdec(cell: str):
    n = BAHDANAU.width
    search, plain = spread(Bahdanau(replace(BAHDANAU, cell=cell))), RNNencdec(replace(RNNENCDEC, cell=cell))
    own = plain.state_dict()
    for name, weight in search.state_dict().items():
        if name in own and own[name].shape == weight.shape:
            own[name] = weight
        elif name in own and name.startswith("encoder."):  # one direction of two
            own[name] = weight[:1]
        elif name in own:  # what reads the context: the half that meets the forward state
            own[name] = weight[..., :n]
    plain.load_state_dict(own)
    plain.eval()
    memory = search.encode(SOURCE, LENGTHS)
    last = torch.stack([memory.values[b, length - 1, :n] for b, length in enumerate(LENGTHS.tolist())])  # ->h_S
    fixed = torch.cat([last, torch.zeros_like(last)], dim=-1)[:, None]
    state = search.start(memory)._replace(hidden=torch.tanh(plain.decoder.initial(last)))  # s_0 = tanh(W_s c)
    handle = search.decoder.attention.register_forward_hook(lambda module, args, look: look._replace(context=fixed))
    ours, _ = search.decoder(shift_right(TARGET), state)
    handle.remove()
    assert torch.allclose(search.output(ours), plain(SOURCE, LENGTHS, TARGET), **CLOSE)


@pytest.mark.parametrize("change", ["", "silent"])
def test_t2_8_main_text_and_appendix_differ_in_the_readout_alone(change: str):
    text = spread(Bahdanau(BAHDANAU))
    if change == "silent":
        nn.init.zeros_(text.decoder.readout.U_o.weight)
    appendix = Bahdanau(replace(BAHDANAU, timing="appendix")).eval()
    appendix.load_state_dict(text.state_dict())
    (logits, seen), (other, other_seen) = run(text), run(appendix)
    for ours, theirs in zip(seen["decoder.attention"], other_seen["decoder.attention"], strict=True):
        assert torch.equal(ours, theirs)
    if change == "silent":
        assert torch.allclose(logits, other, **CLOSE)
    else:
        assert not torch.allclose(logits, other, atol=1e-3)


def test_t2_9_maxout_takes_the_larger_of_adjacent_pairs():
    x = torch.randn(B, T, 8)
    units = maxout(x)
    assert units.shape == (B, T, 4)
    assert (units >= x[..., 0::2]).all()
    assert (units >= x[..., 1::2]).all()
    for b in range(B):
        for t in range(T):
            assert close(units[b, t], papers.maxout(array(x[b, t])))


# --- Luong -----------------------------------------------------------------------------------------------------------


def luong_reference(model: Luong, source: list[int], read: list[int]) -> papers.Weights:
    config, w = model.config, luong_of(model)
    return papers.luong(
        source[:-1],  # without END
        [w.E_y[:, y] for y in read],
        w,
        config.width,
        score=config.score.replace("concat-released", "concat_code"),
        where=config.window,
        D=config.half_width,
        feed=config.feed,
        reverse=config.reverse,
        released=config.released,
    )


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("feed", [True, False])
def test_luong_is_the_papers(score: str, window: str, feed: bool):
    model = spread(Luong(replace(LUONG, score=score, window=window, feed=feed)))
    logits, seen = run(model)
    context, weights, _ = seen["attention"]
    for b, source, read, _ in sentences():
        want = luong_reference(model, source, read)
        words = len(source) - 1
        assert close(weights[b, :, :words], want.alpha)
        assert (weights[b, :, words:] == 0).all()
        assert close(context[b], want.contexts)
        assert close(logits[b], want.logits)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("released", [True, False])
def test_luong_with_its_other_settings_is_the_papers(window: str, reverse: bool, released: bool):
    model = spread(Luong(replace(LUONG, window=window, reverse=reverse, released=released, half_width=1)))
    logits, seen = run(model)
    _, weights, _ = seen["attention"]
    for b, source, read, _ in sentences():
        want = luong_reference(model, source, read)
        assert close(weights[b, :, : len(source) - 1], want.alpha)
        assert close(logits[b], want.logits)


@pytest.mark.parametrize("score", SCORES)
def test_t3_1_global_rows_sum_to_one_and_local_p_rows_to_less(score: str):
    for window in ("global", "local-p"):
        _, seen = run(spread(Luong(replace(LUONG, score=score, window=window))))
        sums = seen["attention"][1].sum(-1)
        if window == "global":
            assert torch.allclose(sums, torch.ones(B, T), **CLOSE)
        else:
            assert (sums < 1).all()


@pytest.mark.parametrize("window", ["local-m", "local-p"])
def test_t3_2_a_window_holds_at_most_its_width(window: str):
    model = spread(Luong(replace(LUONG, window=window, half_width=1)))
    _, seen = run(model)
    weights = seen["attention"][1]
    assert ((weights > 0).sum(-1) <= 3).all()
    assert (weights[1, :, 3:] == 0).all()


@pytest.mark.parametrize("window", ["local-m", "local-p"])
@pytest.mark.parametrize("score", ["dot", "general", "concat"])
def test_t3_3_a_window_wider_than_the_sentence_is_global(window: str, score: str):
    wide = replace(LUONG, score=score, half_width=10**8, window=window)
    local, everywhere = spread(Luong(wide)), Luong(replace(wide, window="global")).eval()
    everywhere.load_state_dict({k: v for k, v in local.state_dict().items() if not k.startswith("centre")})
    assert torch.allclose(run(local)[0], run(everywhere)[0], **CLOSE)


def test_t3_5_the_predicted_centre_stays_in_the_sentence_and_learns():
    model = spread(Luong(replace(LUONG, window="local-p")))
    memory = model.encode(SOURCE, LENGTHS)
    centre = model.centre(10 * torch.randn(B, 50, LUONG.width), memory, torch.zeros(B, 50))
    words = (LENGTHS - 1)[:, None]
    assert (centre >= 0).all()
    assert (centre <= words).all()
    assert (centre % 1 != 0).any()  # real, not rounded
    model(SOURCE, LENGTHS, TARGET).logsumexp(-1).sum().backward()
    assert (model.centre.W.weight.grad != 0).any()
    assert (model.centre.v.weight.grad != 0).any()


def test_t3_5_the_predicted_centre_is_measured_in_real_words():
    model = spread(Luong(replace(LUONG, window="local-p")))
    hidden, w = torch.randn(B, 1, LUONG.width), luong_of(model)
    centre = model.centre(hidden, model.encode(SOURCE, LENGTHS), torch.zeros(B, 1))
    for b, words in enumerate((LENGTHS - 1).tolist()):
        assert close(centre[b, 0], papers.local_p_centre(array(hidden[b, 0]), w.W_p, w.v_p, words))


def test_t3_6_location_attention_ignores_the_encoder_states():
    model = spread(Luong(replace(LUONG, score="location", feed=False)))
    memory = model.encode(SOURCE, LENGTHS)
    other = memory._replace(keys=torch.randn_like(memory.keys), values=torch.randn_like(memory.values))
    rows = []
    for each in (memory, other):
        with watched(model) as seen:
            model.step(TARGET[:, 0], model.start(each))
        rows.append(seen["attention"][1])
    assert torch.equal(*rows)


def test_t3_7_feeding_through_zero_columns_is_not_feeding():
    fed = spread(Luong(LUONG))
    plain = Luong(replace(LUONG, feed=False)).eval()
    own = fed.state_dict()
    own.pop("feed.weight").zero_()
    logits = fed(SOURCE, LENGTHS, TARGET)
    plain.load_state_dict(own)
    assert torch.allclose(logits, plain(SOURCE, LENGTHS, TARGET), **CLOSE)


def test_luong_starts_its_feeding_at_zero():
    model = spread(Luong(LUONG))
    assert (model.start(model.encode(SOURCE, LENGTHS)).fed == 0).all()


# --- Britz -----------------------------------------------------------------------------------------------------------

DIRECTIONS = ("both", "forward", "reversed")
RESIDUALS = ("none", "residual", "dense")


def britz_is_the_papers(config: BritzConfig) -> None:
    model = spread(Britz(config), 0.4)
    logits, seen = run(model)
    context, weights, query = seen["attention"]
    w = britz_of(model)
    for b, source, read, _ in sentences():
        Y = [w.E_y[:, y] for y in read]
        residuals = config.encoder_residual, config.decoder_residual
        want = papers.britz(source, Y, w, config.width, config.score, *residuals)
        assert close(logits[b], want.logits)
        assert close(weights[b, :, : len(source)], want.alpha)
        assert (weights[b, :, len(source) :] == 0).all()
        assert close(context[b], want.contexts)
        assert close(query[b], [w.W_2 @ s + w.b_2 for s in want.states])  # the state after the step


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("score", ["multiplicative", "additive"])
def test_britz_is_the_papers(cell: str, direction: str, score: str):
    britz_is_the_papers(replace(BRITZ, cell=cell, direction=direction, score=score))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("embedding", [4, 5])  # with the width of the states nothing has to change it
def test_t8_4_residual_stacks_are_the_papers(cell: str, residual: str, embedding: int):
    config = replace(BRITZ, cell=cell, embedding=embedding, encoder_layers=6, decoder_layers=3)
    reads, writes = replace(config, encoder_residual=residual), replace(config, decoder_residual=residual)
    assert isinstance(Britz(reads).forwards.enter, nn.Linear) == (residual != "none" and embedding != config.width)
    assert isinstance(Britz(writes).decoder.enter, nn.Linear) == (residual != "none")
    britz_is_the_papers(reads)
    britz_is_the_papers(writes)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_t8_4_a_layer_adds_its_input_and_a_dense_one_all_inputs_below(cell: str):
    """With x^0 and the output of each cell: x + f(x), against the sum of everything before."""
    config = replace(BRITZ, embedding=4, cell=cell)
    stacks = {kind: spread(Stack(config, 4, 3, kind)) for kind in RESIDUALS}
    for stack in stacks.values():
        stack.load_state_dict(stacks["none"].state_dict())
    x = torch.randn(B, 4)
    for kind, stack in stacks.items():
        calls: list[tuple[Tensor, Tensor]] = []  # what each layer read and wrote
        hooks = [
            layer.register_forward_hook(lambda _, given, got, calls=calls: calls.append((given[0], got[0])))
            for layer in stack.layers
        ]
        top = stack(x[:, None])
        for hook in hooks:
            hook.remove()
        read, wrote = zip(*calls, strict=True)
        below = {
            "none": [wrote[0], wrote[1], wrote[2]],
            "residual": [wrote[0] + read[0], wrote[1] + read[1], wrote[2] + read[2]],
            "dense": [wrote[0] + read[0], wrote[1] + read[0] + read[1], wrote[2] + read[0] + read[1] + read[2]],
        }[kind]
        for ours, wanted in zip([*read[1:], top], below, strict=True):
            assert torch.allclose(ours, wanted, **CLOSE)
        assert close(top[:, 0], [papers.britz_read([array(row)], britz_stack_of(stack), 4, kind)[0] for row in x])


def test_t8_1_the_baseline_has_the_papers_number_of_weights():
    with torch.device("meta"):
        model = Britz(BritzConfig())
    assert sum(weights.numel() for weights in model.parameters()) / 1e6 == pytest.approx(66.32, rel=0.001)


def test_t8_2_multiplicative_scores_grow_with_their_size_and_additive_ones_are_bounded():
    """The variance of <q, k> is linear in the size; |v^T tanh(q + k)| <= ||v||_1 for any query and keys."""
    variance = {size: dot(torch.randn(400, size), torch.randn(300, size)).var().item() for size in (64, 256, 1024)}
    for size, found in variance.items():
        assert found == pytest.approx(size, rel=0.1)
    additive = Perceptron(64)
    bound = additive.v.weight.abs().sum()
    for size in (1, 10, 1000):
        scores = additive(size * torch.randn(1, 40, 64), size * torch.randn(1, 30, 64))
        assert (scores.abs() <= bound).all()
    sure = additive.v.weight.sign().expand(1, 1, 64) * 50
    assert torch.allclose(additive(sure, sure), bound)


@torch.no_grad()
def test_t8_3_a_length_penalty_of_zero_ranks_by_probability_alone():
    model = spread(Britz(BRITZ))
    found = decode(model, SOURCE, LENGTHS, DecodeConfig(beam=4, nbest=4, length_penalty=0.0))
    for hypotheses in found:
        assert [one.score for one in hypotheses] == [one.logprob for one in hypotheses]
        assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)
    other = decode(model, SOURCE, LENGTHS, DecodeConfig(beam=4, nbest=4, length_penalty=1.0))
    assert any(one.score != one.logprob for hypotheses in other for one in hypotheses)


def test_britz_starts_from_zeros_whatever_the_source_and_feeds_the_raw_context():
    model = spread(Britz(replace(BRITZ, cell="lstm")))
    state = model.start(model.encode(SOURCE, LENGTHS))
    assert all((part == 0).all() for layer in state.layers for part in (*layer.hidden, *layer.cell))
    assert (state.context == 0).all()
    with watched(model) as seen:
        _, state = model.step(TARGET[:, 0], state)
    assert torch.equal(state.context, seen["attention"][0][:, 0])


def test_a_fresh_britz_has_the_released_initial_weights():
    for cell, layers in (("gru", 3), ("lstm", 4)):
        model = Britz(replace(BRITZ, cell=cell, width=40, embedding=30, spread=0.04))
        layer = model.decoder.layers[1]
        bias = (layer.W if cell == "gru" else layer.W[0]).bias.unflatten(0, (layers, 40))
        assert bias.mean(1).tolist() == {"gru": [1, 1, 0], "lstm": [0, 1, 0, 0]}[cell]
        for weights in (weights for weights in model.parameters() if weights.dim() > 1):
            assert 0.03 < weights.abs().max() <= 0.04


def test_an_odd_number_of_layers_cannot_be_shared_by_two_directions():
    with pytest.raises(ConfigError, match=r"must be even; got 3\. Set model.direction = 'forward'"):
        Britz(replace(BRITZ, encoder_layers=3))
    assert len(Britz(replace(BRITZ, encoder_layers=3, direction="forward")).forwards.layers) == 3


# --- Transformer -----------------------------------------------------------------------------------------------------


LATER: dict[str, dict[str, object]] = {  # parts that later papers replaced, each alone
    "relative": {"positions": "relative", "clip": 2},
    "alibi": {"positions": "alibi"},
    "grouped": {"heads": 4, "key_heads": 2},
    "rms": {"layer_norm": "rms"},
    "swiglu": {"activation": "swiglu"},
}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("part", ["sinusoid", "learned", "rotary", *LATER])
def test_transformer_is_the_papers(norm: str, part: str):
    changes = LATER.get(part, {"positions": part})
    positions = changes.get("positions", "sinusoid")
    model = spread(Transformer(replace(TRANSFORMER, norm=norm, **changes)), 0.4)
    logits, seen = run(model)
    for b, source, read, _ in sentences():
        want, memory, weights = papers.transformer(
            source, read, transformer_of(model), pre_norm=norm == "pre", rotate=positions == "rotary"
        )
        assert close(logits[b], want)
        S_b = len(source)
        for k in range(TRANSFORMER.layers):
            assert close(seen[f"encoder.{k}.self_attention.attention"][1][b, :, :S_b, :S_b], weights["encoder"][k])
            assert close(seen[f"decoder.{k}.self_attention.attention"][1][b], weights["self"][k])
            assert close(seen[f"decoder.{k}.cross_attention.attention"][1][b, ..., :S_b], weights["cross"][k])
            assert (seen[f"decoder.{k}.cross_attention.attention"][1][b, ..., S_b:] == 0).all()
        assert len(memory) == S_b
    assert torch.allclose(model(SOURCE, LENGTHS, TARGET), logits, **CLOSE)  # unwatched, by the fused kernel


@pytest.mark.parametrize("positions", ["sinusoid", "rotary", "alibi"])
@torch.no_grad()
def test_a_language_model_is_the_papers_decoder_without_a_source(positions: str):
    config = TransformerLanguageConfig(13, width=12, layers=2, heads=3, inner=7, dropout=0.0, positions=positions)
    model = spread(TransformerLanguageModel(config), 0.4)
    for ids, logits in zip(TARGET, model(TARGET), strict=True):
        E = array(model.embed.weight)
        X = papers.embed([START, *ids[:-1]], E, "sinusoid" if positions == "sinusoid" else None)
        for layer in map(layer_of, model.layers):
            X, _ = papers.encoder_layer(X, layer, rotate=positions == "rotary", mask=papers.causal(T))
        assert close(logits, X @ E.T)


@pytest.mark.parametrize("preset", ["tiny", "local-m", "local-p"])
@torch.no_grad()
def test_luong_reads_no_end(preset: str):
    """Not even of a sentence without words, whose decoder begins with zeros."""
    model = spread(Luong(replace(LUONG, window="global" if preset == "tiny" else preset)), 0.4)
    source, lengths = torch.tensor([[END, 0, 0], [5, 6, END]]), torch.tensor([1, 3])
    state = model.start(model.encode(source, lengths))
    assert all((part[0] == 0).all() and (part[1] != 0).any() for part in (*state.lstm.hidden, *state.lstm.cell))
    logits = model(source, lengths, TARGET)
    model.embed.weight[END] += 1.0
    assert torch.equal(model(source, lengths, TARGET), logits)


@torch.no_grad()
def test_log_probabilities_of_a_pointer_are_not_rounded():
    """They are scores, and stay in float32 where products are in bfloat16."""
    model = Pointer(PointerConfig(13, 13, embedding=5, width=4, attention=6, spread=0.4)).float()
    with torch.autocast("cpu", torch.bfloat16):
        logprobs = model(SOURCE, LENGTHS, TARGET)
    assert logprobs.dtype == torch.float32
    assert (logprobs != logprobs.bfloat16().float()).any()


@torch.no_grad()
def test_see_trains_without_coverage_first():
    """The score reads zeros at every step, and a second phase takes the same weights."""
    config = PointerConfig(13, 13, embedding=5, width=4, attention=6, spread=0.4)
    plain, covered = Pointer(replace(config, coverage=False)), Pointer(config)
    covered.load_state_dict(plain.state_dict())
    source, lengths = SOURCE, LENGTHS
    before = plain(source, lengths, TARGET)
    assert not torch.allclose(covered(source, lengths, TARGET), before)
    for model in (plain, covered):
        model.attention.score.V.weight.zero_()
    assert torch.equal(plain(source, lengths, TARGET), before)
    assert torch.equal(covered(source, lengths, TARGET), before)


def test_fresh_weights_of_other_models_are_as_their_settings_say():
    """Large enough that a standard deviation is within a few per cent."""
    transformer = Transformer(replace(TRANSFORMER, width=66, source_vocabulary=300, target_vocabulary=300))
    for embedding in (transformer.embed, transformer.embed_target):
        assert float(embedding.weight.detach().std()) == pytest.approx(66**-0.5, rel=0.05)
    monotonic = build("monotonic", replace(MODELS["monotonic"].presets["tiny"], offset=-3.5))
    assert monotonic.decoder.attention.score.r.tolist() == -3.5
    assert float(monotonic.decoder.attention.score.g.detach()) == pytest.approx(
        MODELS["monotonic"].presets["tiny"].attention ** -0.5
    )
    captioner = Captioner(CaptionerConfig(target_vocabulary=300, embedding=64, width=32, spread=0.05, encoder="none"))
    assert float(captioner.embed.weight[END:].detach().std()) == pytest.approx(0.05, rel=0.05)
    assert not captioner.embed.weight[START].any()
    captioner.embed(torch.tensor([START])).sum().backward()
    assert not captioner.embed.weight.grad.any(), "y_0 stays zero"


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_transformer_ties_its_embeddings_as_named(tied: str):
    config = replace(TRANSFORMER, tied=tied, source_vocabulary=13)
    model = spread(Transformer(config), 0.4)
    assert (model.output.weight is model.embed_target.weight) == (tied != "none")
    assert (model.embed.weight is model.embed_target.weight) == (tied == "all")
    logits, _ = run(model)
    for b, source, read, _ in sentences():
        want, _, _ = papers.transformer(source, read, transformer_of(model))
        assert close(logits[b], want)


def torch_twin(model: Transformer) -> nn.Transformer:
    """torch's Transformer with the same weights; ours has no norm after the stacks and no biases in the attention."""
    config = model.config
    shape = {"dim_feedforward": config.inner, "dropout": 0.0, "batch_first": True, "norm_first": config.norm == "pre"}
    layers = [
        kind(config.width, config.heads, **shape) for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    ]
    twin = nn.Transformer(
        config.width,
        config.heads,
        batch_first=True,
        custom_encoder=nn.TransformerEncoder(layers[0], config.layers, enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(layers[1], config.layers),
    ).eval()
    names = {"self_attn": "self_attention", "multihead_attn": "cross_attention"}
    with torch.no_grad():
        for ours, theirs in zip(
            [*model.encoder, *model.decoder], [*twin.encoder.layers, *twin.decoder.layers], strict=True
        ):
            for their_name, our_name in names.items():
                if hasattr(theirs, their_name):
                    block, other = getattr(ours, our_name), getattr(theirs, their_name)
                    other.in_proj_weight.copy_(torch.cat(projections_of(block)))
                    other.in_proj_bias.zero_()
                    other.out_proj.weight.copy_(block.output.weight)
                    other.out_proj.bias.zero_()
            theirs.linear1.load_state_dict(ours.feed_forward[0].state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward[2].state_dict())
            for k, join in enumerate(joins_of(ours), start=1):
                getattr(theirs, f"norm{k}").load_state_dict(join.norm.state_dict())
    if config.norm == "pre":
        twin.encoder.norm, twin.decoder.norm = model.encoder_norm, model.decoder_norm
    return twin


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_t5_2_transformer_is_torchs_with_the_same_weights(norm: str):
    model = spread(Transformer(replace(TRANSFORMER, norm=norm)), 0.4)
    twin = torch_twin(model)
    read = shift_right(TARGET)
    x, _ = model.embed_tokens(model.embed, SOURCE, torch.arange(S))
    y, _ = model.embed_tokens(model.embed_target, read, torch.arange(T))
    hidden = torch.arange(S) >= LENGTHS[:, None]  # torch's True means: may not look
    out = twin(
        x,
        y,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    assert torch.allclose(model.output(out), model(SOURCE, LENGTHS, TARGET), **CLOSE)


class Nowhere(nn.Module):
    """No positions."""

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Places]:
        return x, NO_PLACES


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_t5_5_the_encoder_sees_order_only_through_positions(norm: str):
    model = spread(Transformer(replace(TRANSFORMER, norm=norm)), 0.4)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    lengths = torch.tensor([6, 6])
    source = torch.tensor([[5, 7, 4, 9, 6, END], [8, 6, 5, 3, 10, END]])

    def states() -> tuple[Tensor, Tensor]:
        return model.encode(source, lengths).values, model.encode(source[:, order], lengths).values

    plain, moved = states()
    assert not torch.allclose(plain[..., order, :], moved, atol=1e-3)
    model.place = Nowhere()
    plain, moved = states()
    assert torch.allclose(plain[..., order, :], moved, **CLOSE)


def test_pre_norm_stack_of_silent_sublayers_is_one_norm():
    model = spread(Transformer(replace(TRANSFORMER, norm="pre")))
    with torch.no_grad():
        for layer in model.encoder:
            layer.self_attention.output.weight.zero_()
            layer.feed_forward[2].weight.zero_()
            layer.feed_forward[2].bias.zero_()
    x, _ = model.embed_tokens(model.embed, SOURCE, torch.arange(S))
    out = x
    for layer in model.encoder:
        out, _ = layer(out)
    for b in range(B):
        assert close(model.encoder_norm(out)[b], papers.layer_norm(array(x[b]), norm_of(model.encoder_norm)))


# --- properties that every model shares ------------------------------------------------------------------------------

EVERY = {
    "cho": lambda: Cho(CHO),
    "rnnencdec": lambda: RNNencdec(RNNENCDEC),
    "sutskever": lambda: Sutskever(SUTSKEVER),
    **{f"bahdanau-{t}": lambda t=t: Bahdanau(replace(BAHDANAU, timing=t)) for t in TIMINGS},
    **{f"luong-{w}": lambda w=w: Luong(replace(LUONG, window=w)) for w in WINDOWS},
    "luong-no-feed": lambda: Luong(replace(LUONG, feed=False)),
    **{f"britz-{d}": lambda d=d: Britz(replace(BRITZ, direction=d)) for d in DIRECTIONS},
    "britz-dense": lambda: Britz(replace(BRITZ, decoder_residual="dense", cell="lstm", score="additive")),
    **{f"transformer-{n}": lambda n=n: Transformer(replace(TRANSFORMER, norm=n)) for n in ("post", "pre")},
    "transformer-rotary": lambda: Transformer(replace(TRANSFORMER, positions="rotary")),
}
# test_laws.py has these laws for all variants; here one of each model, and all in `make slow`.
FEW = (
    "cho", "rnnencdec", "sutskever", "bahdanau-paper", "luong-global", "luong-local-p", "britz-dense",
    "transformer-post", "transformer-rotary",
)  # fmt: skip
every = pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)


@every
def test_t1_2_t2_3_a_sentence_alone_is_a_row_of_a_padded_batch(name: str):
    model = spread(EVERY[name](), 0.4)
    logits, seen = run(model)
    for b, length in enumerate(LENGTHS.tolist()):
        with watched(model) as alone_seen:
            alone = model(SOURCE[b : b + 1, :length], LENGTHS[b : b + 1], TARGET[b : b + 1])
        assert torch.allclose(alone[0], logits[b], **CLOSE)
        written = TARGET[b : b + 1, : TARGET[b].tolist().index(END) + 1]  # without what follows END
        loss = nn.functional.cross_entropy(alone[0, : written.shape[1]], written[0])
        short = model(SOURCE[b : b + 1, :length], LENGTHS[b : b + 1], written)
        assert torch.allclose(nn.functional.cross_entropy(short[0], written[0]), loss, **CLOSE)
        for key, (context, weights, _) in alone_seen.items():
            size, rows = weights.shape[-1], weights.shape[-2]  # the encoder's own rows are padded too
            assert torch.allclose(weights[0], seen[key][1][b, ..., :rows, :size], **CLOSE)
            assert torch.allclose(context[0], seen[key][0][b, ..., :rows, :], **CLOSE)


@every
def test_t1_2_the_summary_and_the_states_do_not_see_the_padding(name: str):
    model = spread(EVERY[name](), 0.4)
    memory = model.encode(SOURCE, LENGTHS)
    other = SOURCE.clone()
    other[1, 4:] = 9  # the padding may hold anything
    longer = torch.cat([other, torch.full((B, 3), 7)], dim=1)
    again = model.encode(longer, LENGTHS)
    if memory.summary is not None:
        assert torch.allclose(memory.summary, again.summary, **CLOSE)
    slots = memory.values.shape[-2]
    for b, length in enumerate(LENGTHS.tolist()):
        real = 1 if slots == 1 else length - 1 if name.startswith("luong") else length
        assert torch.allclose(memory.values[b, ..., :real, :], again.values[b, ..., :real, :], **CLOSE)
    logits = [model(source, LENGTHS, TARGET) for source in (SOURCE, longer)]
    assert torch.allclose(*logits, **CLOSE)


def read_by(model: nn.Module) -> nn.Module:
    """The embedding that the decoder reads words with."""
    return model.decoder.embed if isinstance(model, Bahdanau | RNNencdec) else model.embed_target


@every
def test_t2_6_t5_3_a_word_has_no_gradient_to_what_was_written_before_it(name: str):
    model = spread(EVERY[name](), 0.4)
    leaves: list[Tensor] = []

    def cut(module: nn.Module, args: object, out: Tensor) -> Tensor:
        leaves.append(out.detach().requires_grad_())
        return leaves[-1]

    handle = read_by(model).register_forward_hook(cut)
    logits = model(SOURCE, LENGTHS, TARGET)
    handle.remove()
    (read,) = leaves  # [B, T, m]: read[:, i] is y_{i-1}, the word before the i-th
    for i in range(T):
        (grad,) = torch.autograd.grad(logits[:, i].square().sum(), read, retain_graph=True)
        assert (grad[:, i + 1 :] == 0).all()
        assert (grad[:, i] != 0).any()
        earlier = grad[:, 1:i] if name == "bahdanau-released" else grad[:, :i]  # whose cell never reads y_0
        assert (earlier != 0).any() or earlier.shape[1] == 0


@every
def test_t2_6_t5_3_changing_a_word_changes_only_what_follows(name: str):
    model = spread(EVERY[name](), 0.4)
    logits = model(SOURCE, LENGTHS, TARGET)
    for k in range(T):
        other = TARGET.clone()
        other[:, k] = torch.tensor([9, 11])
        changed = model(SOURCE, LENGTHS, other)
        assert torch.allclose(changed[:, : k + 1], logits[:, : k + 1], atol=1e-12, rtol=0)
        if k + 1 < T:
            assert not torch.allclose(changed[:, k + 1 :], logits[:, k + 1 :], atol=1e-4)


@every
def test_t2_7_t5_4_steps_are_the_whole_forward(name: str):
    model = spread(EVERY[name](), 0.4)
    logits, seen = run(model)
    with watched(model) as stepped, torch.no_grad():
        state = model.start(model.encode(SOURCE, LENGTHS))
        for t, token in enumerate(shift_right(TARGET).unbind(1)):
            step, state = model.step(token, state)
            assert torch.allclose(step, logits[:, t], **CLOSE)
    for key, (context, weights, _) in seen.items():
        if key.startswith("encoder"):
            continue
        assert torch.allclose(stepped[key][1], weights, **CLOSE)
        assert torch.allclose(stepped[key][0], context, **CLOSE)


@torch.no_grad()
def test_a_change_of_chos_one_vector_reaches_its_states():
    """What a what-if does to the context enters the GRU, and not the readout alone."""
    model = spread(Cho(CHO))
    state = model.start(model.encode(SOURCE, LENGTHS))
    _, plain = model.step(TARGET[:, 0], state)
    handle = model.attention.register_forward_hook(lambda module, args, look: look._replace(context=0 * look.context))
    _, changed = model.step(TARGET[:, 0], state)
    handle.remove()
    assert not torch.allclose(plain.hidden, changed.hidden)
