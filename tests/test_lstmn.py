"""The LSTMN beside its paper: tapes, language model and both fusions against plain loops; T7.1 to T7.5."""

from dataclasses import replace

import numpy as np
import papers
import pytest
import torch
from papers import Weights, concat, sigmoid
from torch import Tensor, nn
from torch.testing import assert_close
from weights_of import additive_of, array, spread

from regard.api.tracing import assemble
from regard.errors import ConfigError
from regard.kernels.recur import recur
from regard.look.record import record
from regard.look.tokens import Side, Token
from regard.look.trace import Trace
from regard.models.contract import SequenceModel, shift_right, take, take_beams
from regard.models.lstmn import (
    LANGUAGE_PRESETS,
    LANGUAGE_VARIANTS,
    LSTMN,
    PRESETS,
    VARIANTS,
    LSTMNConfig,
    LSTMNLanguageConfig,
    LSTMNLanguageModel,
    LSTMNLayer,
    SourceTapes,
    make_attention,
)
from regard.models.registry import build
from regard.symbols import END, PAD, START

LANGUAGE = LSTMNLanguageConfig(vocabulary=13, embedding=5, width=4, layers=2)
TRANSLATOR = LSTMNConfig(source_vocabulary=11, target_vocabulary=13, embedding=5, width=4, layers=2)
SOURCE = torch.tensor([[5, 7, 4, 9, 6, END], [8, 6, 5, END, PAD, PAD]])
LENGTHS = torch.tensor([6, 4])
TARGET = torch.tensor([[4, 10, 12, 7, END], [6, 4, END, PAD, PAD]])
FUSIONS = ("shallow", "deep")


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def language(**changes: object) -> LSTMNLanguageModel:
    return spread(LSTMNLanguageModel(replace(LANGUAGE, **changes)))  # type: ignore[return-value]


def translator(fusion: str, **changes: object) -> LSTMN:
    return spread(LSTMN(replace(TRANSLATOR, fusion=fusion, **changes)))  # type: ignore[return-value]


# --- the papers' loops with the model's weights


def layer_of(layer: LSTMNLayer) -> Weights:
    """The weights of a layer under the paper's names; the biases of the query and of the gates are one vector b_x."""
    n = layer.width
    into, bias = array(layer.W_x.weight), array(layer.W_x.bias)
    w_ht = np.zeros((n, n)) if layer.W_s is None else array(layer.W_s.weight)
    return Weights(
        v=array(layer.attention.score.v.weight)[0],
        W_h=array(layer.W_h.weight),
        W_x=np.concatenate([into[:n], bias[:n, None]], axis=1),  # on [x ; 1]
        W_ht=w_ht,
        W=np.concatenate([array(layer.U.weight), into[n:], bias[n:, None]], axis=1),  # on [htilde ; x ; 1]
    )


def plain_layer(layer: LSTMNLayer, inputs: list[np.ndarray], added: list | None = None, enter=None) -> list[np.ndarray]:
    """One layer over a text by `papers.lstmn_step`: rows [h_t ; c_t]. `added` joins c_t, `enter(h_{t-1})` the input."""
    w, n = layer_of(layer), layer.width
    H, C, htilde = [], [], np.zeros(n)
    empty = [np.zeros(n)]  # what is seen on empty tapes
    rows = []
    for t, x in enumerate(inputs):
        drive = np.zeros(5 * n) if enter is None else enter((H or empty)[-1])
        step = Weights(w, W_x=w.W_x.copy(), W=w.W.copy())
        step["W_x"][:, -1] += drive[:n]
        step["W"][:, -1] += drive[n:]
        h, c, htilde, _ = papers.lstmn_step(concat(x, [1.0]), H or empty, C or empty, htilde, step)
        if added is not None:  # c_t = r a~ + f c~ + i c^, and h_t follows
            gates = step.W @ concat(htilde, x, [1.0])
            c = c + added[t]
            h = sigmoid(gates[2 * n : 3 * n]) * np.tanh(c)
        H.append(h)
        C.append(c)
        rows.append(concat(h, c))
    return rows


def plain_source(source: SourceTapes, inputs: list[np.ndarray], tape: list[np.ndarray]) -> list[np.ndarray]:
    """r_t a~_t of deep fusion, one for each step."""
    n = source.width
    into, bias = array(source.W_x.weight), array(source.W_x.bias)
    W_g, W_l, W_r = (array(part.weight) for part in (source.W_g, source.W_l, source.W_r))
    u = array(source.attention.score.v.weight)[0]
    glimpse, added = np.zeros(n), []
    for x in inputs:
        query = into[:n] @ x + bias[:n] + W_l @ glimpse
        p = papers.softmax(np.array([u @ np.tanh(W_g @ row[:n] + query) for row in tape]))
        seen = sum(weight * row for weight, row in zip(p, tape, strict=True))
        glimpse, memory = seen[:n], seen[n:]
        added.append(sigmoid(into[n:] @ x + bias[n:] + W_r @ glimpse) * memory)
    return added


def plain_translation(model: LSTMN, source: Tensor, target: Tensor) -> np.ndarray:
    n = model.config.width
    x = [array(model.embed.weight)[word] for word in source]
    tapes = []
    for layer in model.encoder:
        tapes.append(plain_layer(layer, x))
        x = [row[:n] for row in tapes[-1]]
    x = [array(model.embed_target.weight)[word] for word in [START, *target[:-1].tolist()]]
    for k, layer in enumerate(model.decoder):
        if model.config.fusion == "deep":
            rows = plain_layer(layer, x, added=plain_source(model.fusion.layers[k], x, tapes[k]))
        else:
            w = additive_of(model.fusion.attention.score)
            memory = [row[:n] for row in tapes[-1]]

            def enter(h, w=w, memory=memory):
                scores = [papers.additive(h, key, w.W_a, w.U_a, w.v_a) for key in memory]
                context = sum(p * value for p, value in zip(papers.softmax(np.array(scores)), memory, strict=True))
                return array(model.fusion.C.weight) @ context

            rows = plain_layer(layer, x, enter=None if k else enter)
        x = [row[:n] for row in rows]
    return np.array([array(model.output.weight) @ h + array(model.output.bias) for h in x])


@torch.no_grad()
def test_the_language_model_is_the_papers():
    model = language(layers=3)
    logits = model(TARGET)
    for row, target in zip(logits, TARGET, strict=True):
        x = [array(model.embed.weight)[word] for word in [START, *target[:-1].tolist()]]
        for layer in model.layers:
            x = [written[:4] for written in plain_layer(layer, x)]
        expected = [array(model.output.weight) @ h + array(model.output.bias) for h in x]
        assert np.allclose(array(row), expected, atol=1e-9)


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("fusion", FUSIONS)
@torch.no_grad()
def test_translations_are_the_papers(fusion: str, released: bool):
    model = translator(fusion, released=released)
    assert isinstance(model, SequenceModel)
    logits = model(SOURCE, LENGTHS, TARGET)
    assert logits.std() > 0.1
    for row, source, length, target in zip(logits, SOURCE, LENGTHS, TARGET, strict=True):
        assert np.allclose(array(row), plain_translation(model, source[:length], target), atol=1e-9)


# --- the properties


@torch.no_grad()
def test_t7_1_a_step_looks_at_its_past_alone():
    """Row t has weight on the t states before it, on all of them, and nothing that it does not see changes it."""
    model = language()
    with record(model) as seen:
        logits = model(TARGET)
    for k in range(2):
        weights = seen[f"layers.{k}.attention"].weights  # [B, T, T - 1]
        assert weights.shape == (2, 5, 4)
        assert torch.equal(weights, weights.tril(-1))
        assert (weights > 0).sum() == 2 * 10
    for k in range(5):
        other = TARGET.clone()
        other[:, k] = (other[:, k] + 1) % 13
        assert torch.equal(model(other)[:, : k + 1], logits[:, : k + 1])


class LastSlot(nn.Module):
    """A score that makes the softmax one-hot at the newest slot."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = query.new_full((*query.shape[:-1], keys.shape[-2]), -torch.inf)
        scores[..., -1:] = 0.0
        return scores


@torch.no_grad()
def test_t7_2_one_hot_at_the_last_slot_is_a_plain_lstm():
    model = language()
    twin = nn.LSTM(5, 4, num_layers=2, batch_first=True)
    for k, layer in enumerate(model.layers):
        layer.attention.score = LastSlot()
        order = torch.tensor([*range(8), *range(12, 16), *range(8, 12)])  # i f o g here, i f g o in torch
        getattr(twin, f"weight_ih_l{k}").copy_(layer.W_x.weight[4:][order])
        getattr(twin, f"weight_hh_l{k}").copy_(layer.U.weight[order])
        getattr(twin, f"bias_ih_l{k}").copy_(layer.W_x.bias[4:][order])
        getattr(twin, f"bias_hh_l{k}").zero_()
    states, _ = twin(model.embed(shift_right(TARGET)))
    assert_close(model(TARGET), model.output(states), rtol=0, atol=1e-12)


@torch.no_grad()
def test_t7_3_the_tapes_are_as_long_as_the_text():
    """After step t they hold t vectors; a step leaves the tapes of its state as they were."""
    model = language()
    state = model.start(2)
    for t in range(5):
        before = state
        _, state = model.step(torch.tensor([4, 7]), state)
        for layer, older in zip(state.layers, before.layers, strict=True):
            assert layer.position.tolist() == [t + 1, t + 1]
            assert [part.shape[1] for part in (*layer.past.tensors, *older.past.tensors)] == [t + 1, t + 1, t, t]
            pairs = zip(layer.past.tensors, older.past.tensors, strict=True)
            assert all(torch.equal(new[:, :t], old) for new, old in pairs)


@torch.no_grad()
def test_t7_4_deep_fusion_with_a_closed_gate_is_a_plain_lstmn():
    model = translator("deep")
    for source in model.fusion.layers:
        source.W_x.weight[4:].zero_()
        source.W_x.bias[4:].fill_(-1e9)
    x = model.embed_target(shift_right(TARGET))
    for layer in model.decoder:
        x = recur(layer.step, layer.W_x(x), layer.start(2))[0][..., :4]
    assert torch.equal(model(SOURCE, LENGTHS, TARGET), model.output(x))


@pytest.mark.parametrize("fusion", FUSIONS)
@torch.no_grad()
def test_t7_5_weights_sum_to_one_and_padding_gets_none(fusion: str):
    model = translator(fusion)
    with record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    assert set(model.attention_layout.cross) < set(seen)
    for name, look in seen.items():
        first = 0 if name in model.attention_layout.cross else 1  # before the first word there is nothing to look at
        assert_close(look.weights[:, first:].sum(-1), torch.ones_like(look.weights[:, first:, 0]))
        assert torch.equal(look.weights[:, :first], torch.zeros_like(look.weights[:, :first]))
        if name in model.attention_layout.cross:
            assert look.weights.shape == (2, 5, 6)
            assert torch.equal(look.weights[1, :, 4:], torch.zeros(5, 2))


@torch.no_grad()
def test_a_span_hides_all_but_the_last_slots():
    model = language(layers=1, span=2)
    with record(model) as seen:
        model(TARGET)
    weights = seen["layers.0.attention"].weights
    assert torch.equal(weights, weights.tril(-1).triu(-2))
    wide = language(layers=1, span=5)
    wide.load_state_dict(model.state_dict())
    free = language(layers=1)
    free.load_state_dict(model.state_dict())
    assert torch.equal(wide(TARGET), free(TARGET))
    assert not torch.equal(model(TARGET), free(TARGET))


@torch.no_grad()
def test_a_trace_has_a_column_for_every_word():
    """Column s is the state after word s was read; the last word is read by nobody and has no weight."""
    model = translator("deep", layers=1)
    with record(model) as seen:
        model(SOURCE[:1], LENGTHS[:1], TARGET[:1])
    source, target = (Side("", tuple(Token(piece, piece) for piece in text)) for text in ("uvwxyz", "abcde"))
    trace = assemble(model, seen, source, target)
    reading, writing = (trace.attention[f"{side}.0.attention"] for side in ("encoder", "decoder"))
    assert (reading.kind, reading.weights.shape) == ("encoder", (1, 6, 6))
    assert (writing.kind, writing.weights.shape) == ("decoder", (1, 5, 5))
    assert np.allclose(writing.weights[0, :, :4], seen["decoder.0.attention"].weights[0])
    assert not writing.weights[..., 4].any()
    assert trace == Trace.from_json(trace.to_json())


# --- steps, beams and gradients


@pytest.mark.parametrize("fusion", FUSIONS)
@torch.no_grad()
def test_a_state_can_be_taken_and_goes_on(fusion: str):
    model = translator(fusion)
    state = model.start(model.encode(SOURCE, LENGTHS))
    _, state = model.step(torch.full((2,), START), state)
    rows = torch.tensor([1, 0, 1])
    taken, whole = take(state, rows), state
    logits, _ = model.step(TARGET[rows, 0], taken)
    expected, _ = model.step(TARGET[:, 0], whole)
    assert_close(logits, expected[rows], rtol=0, atol=1e-12)
    assert take_beams(state, rows).memory is state.memory


@torch.no_grad()
def test_words_in_one_call_are_words_in_several():
    model = language()
    words = shift_right(TARGET)
    whole, _ = model.decode(words, model.start(2))
    first, state = model.decode(words[:, :3], model.start(2))
    second, _ = model.decode(words[:, 3:], state)
    assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    layer = spread(LSTMNLayer(2, 3, span=0, recall=True, attention=make_attention(LSTMNConfig(width=3))))
    x, added = torch.randn(2, 3, 2, requires_grad=True), torch.randn(2, 3, 3, requires_grad=True)

    def run(x: Tensor, added: Tensor, *weights: Tensor) -> Tensor:
        return recur(lambda x, state: layer.step(x[0], state, x[1]), (layer.W_x(x), added), layer.start(2))[0]

    assert torch.autograd.gradcheck(run, (x, added, *layer.parameters()))


def test_recording_changes_nothing():
    model = translator("deep")

    def run() -> list[Tensor]:
        logits = model(SOURCE, LENGTHS, TARGET)
        return [logits.detach(), *torch.autograd.grad(logits.square().sum(), list(model.parameters()))]

    plain = run()
    with record(model):
        for ours, expected in zip(run(), plain, strict=True):
            assert torch.equal(ours, expected)


def test_layers_and_spans_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="layers must be at least 1"):
        build("lstmn-lm", replace(LANGUAGE, layers=0))
    with pytest.raises(ConfigError, match="span must be at least 0"):
        build("lstmn-lm", replace(LANGUAGE, span=-1))


def test_every_preset_and_variant_can_be_built_and_learns():
    for config in (*LANGUAGE_PRESETS.values(), *LANGUAGE_VARIANTS.values()):
        small = LSTMNLanguageModel(replace(config, vocabulary=13))
        small(TARGET).square().sum().backward()
        assert all(weights.grad is not None for weights in small.parameters())
    for each in (*PRESETS.values(), *VARIANTS.values()):
        model = LSTMN(replace(each, source_vocabulary=11, target_vocabulary=13))
        model(SOURCE, LENGTHS, TARGET).square().sum().backward()
        assert all(weights.grad is not None for weights in model.parameters())
