"""Laws that every language model keeps, and the attentive one beside its paper."""

from dataclasses import replace
from typing import Any

import numpy as np
import papers
import pytest
import torch
from papers import Weights
from torch import Tensor, nn
from torch.testing import assert_close
from weights_of import array, spread, stack_of

from regard.decode.search import search
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, ShapeError
from regard.look.record import record
from regard.models import attentive_lm, lstm_lm, lstmn, transformer_lm
from regard.models.attentive_lm import AttentiveConfig, AttentiveLanguageModel
from regard.models.contract import LanguageModel, take
from regard.models.lstm_lm import LSTMLanguageModel
from regard.models.lstmn import LSTMNLanguageModel
from regard.models.transformer_lm import TransformerLanguageModel
from regard.symbols import END, PAD, START

SMALL = {"vocabulary": 13, "embedding": 5, "width": 12, "inner": 7, "heads": 3, "span": 2, "window": 2}
TARGET = torch.tensor([[4, 7, 9, END, PAD], [10, 5, 6, 8, END], [3, END, PAD, PAD, PAD]])
LENGTHS = [4, 5, 2]


def shrink(config: Any) -> Any:
    """The same model, as small as it can be: the choices stay, the sizes go."""
    return replace(config, dropout=0.25, **{n: size for n, size in SMALL.items() if getattr(config, n, 0)})


CASES: dict[str, tuple[type[nn.Module], Any]] = {
    f"{name}-{label}": (model, shrink(config))
    for name, model, presets, variants in (
        ("lstm", LSTMLanguageModel, lstm_lm.PRESETS, lstm_lm.VARIANTS),
        ("lstmn", LSTMNLanguageModel, lstmn.LANGUAGE_PRESETS, lstmn.LANGUAGE_VARIANTS),
        ("attentive", AttentiveLanguageModel, attentive_lm.PRESETS, attentive_lm.VARIANTS),
        ("transformer", TransformerLanguageModel, transformer_lm.PRESETS, transformer_lm.VARIANTS),
    )
    for label, config in {"tiny": presets["tiny"], "small": presets["small"], **variants}.items()
}
everywhere = pytest.mark.parametrize("case", CASES)
# Laws of what variants share, their state and how it is searched, are for one of each kind of state and of attention;
# `make slow` has all.
KINDS = (
    "lstm-two-layers", "lstmn-tiny", "lstmn-two-layers", "lstmn-span", "attentive-tiny", "attentive-window",
    "attentive-key-value-predict", "transformer-tiny", "transformer-rotary", "transformer-alibi",
)  # fmt: skip
each_kind = pytest.mark.parametrize(
    "case", [case if case in KINDS else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)


def make(case: str) -> Any:
    torch.manual_seed(3)
    model, config = CASES[case]
    return spread(model(config))


def run_steps(model: LanguageModel, target: Tensor) -> Tensor:
    state, token, logits = model.start(len(target)), torch.full_like(target[:, 0], START), []
    for following in target.unbind(1):
        each, state = model.step(token, state)
        logits.append(each)
        token = following
    return torch.stack(logits, dim=1)


@each_kind
@torch.no_grad()
def test_steps_equal_forward_beyond_the_room_of_a_fresh_state(case: str):
    model, target = make(case), torch.randint(3, 13, (2, 70))
    assert_close(run_steps(model, target), model(target), rtol=0, atol=1e-10)


@everywhere
@torch.no_grad()
def test_steps_equal_forward(case: str):
    model = make(case)
    assert isinstance(model, LanguageModel)
    for target in (TARGET, TARGET[:, :1]):
        logits = model(target)
        assert logits.shape == (*target.shape, 13)
        assert logits.std() > 0.1
        assert_close(run_steps(model, target), logits, rtol=0, atol=1e-10)


@everywhere
@torch.no_grad()
def test_the_future_changes_nothing(case: str):
    model = make(case)
    logits = model(TARGET)
    for k in range(TARGET.shape[1]):
        other = TARGET.clone()
        other[:, k] = (TARGET[:, k] + 3) % 13
        changed = model(other)
        assert_close(changed[:, : k + 1], logits[:, : k + 1], rtol=0, atol=1e-12)
        assert k + 1 == TARGET.shape[1] or not torch.allclose(changed[:, k + 1], logits[:, k + 1])


@each_kind
@torch.no_grad()
def test_one_text_is_a_row_of_many_and_padding_changes_nothing(case: str):
    model = make(case)
    logits = model(torch.nn.functional.pad(TARGET, (0, 3), value=PAD))
    for row, length in enumerate(LENGTHS):
        assert_close(model(TARGET[row : row + 1, :length])[0], logits[row, :length], rtol=0, atol=1e-10)


@everywhere
def test_recording_changes_nothing(case: str):
    model = make(case)

    def run() -> list[Tensor]:
        logits = model(TARGET)
        return [logits.detach(), *torch.autograd.grad(logits.square().sum(), list(model.parameters()))]

    plain = run()
    with record(model) as seen:
        for ours, expected in zip(run(), plain, strict=True):
            assert_close(ours, expected, rtol=1e-8, atol=1e-8)
    for look in seen.values():
        total = look.weights.sum(-1)
        assert ((total - 1).abs() < 1e-9).logical_or(total == 0).all()
        assert torch.equal(look.weights, look.weights.tril())


@each_kind
@torch.no_grad()
def test_a_state_may_be_stepped_twice(case: str):
    """Branching: two words after one state, and either child continues as if the other did not exist."""
    model = make(case)
    _, state = model.step(torch.full_like(TARGET[:, 0], START), model.start(len(TARGET)))
    words = [TARGET, (TARGET - 2) % 7 + 4]
    children = [model.step(target[:, 0], state)[1] for target in words]
    for child, target in zip(children, words, strict=True):
        logits, _ = model.step(target[:, 1], child)
        assert_close(logits, run_steps(model, target)[:, 2], rtol=0, atol=1e-10)


# Tracing takes seconds: here one small model, in `make slow` all.
@pytest.mark.parametrize(
    "case",
    [one if one == "transformer-tiny" else pytest.param(one, marks=pytest.mark.slow) for one in CASES],
)
@torch.no_grad()
def test_forward_can_be_compiled(case: str):
    model = make(case)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(TARGET[:, :2]), model(TARGET[:, :2]), rtol=0, atol=1e-10)  # few steps: each is traced
    torch._dynamo.reset()


@each_kind
@torch.no_grad()
def test_a_state_can_be_taken(case: str):
    model = make(case)
    _, state = model.step(torch.tensor([START, START, START]), model.start(3))
    rows = torch.tensor([2, 0, 0, 1])
    taken = take(state, rows)
    expected, _ = model.step(TARGET[:, 0], state)
    logits, _ = model.step(TARGET[rows, 0], taken)
    assert_close(logits, expected[rows], rtol=0, atol=1e-12)


@each_kind
@torch.no_grad()
def test_search_knows_start_and_step_alone(case: str):
    """Greedy, beams and samples go on from `start(rows)`; what they report is the log-probability under `forward`."""
    model = make(case)
    limits = torch.tensor([6, 9])
    for config in (DecodeConfig(beam=1), DecodeConfig(beam=3), DecodeConfig(temperature=1.0, nbest=2)):
        for hypotheses, limit in zip(search(model, model.start(2), limits, config), limits, strict=True):
            best = hypotheses[0]
            assert len(best.token_logprobs) <= limit
            ids = torch.tensor([[*best.ids, *([END] if best.finished else [])]])
            logprobs = model(ids).log_softmax(-1)[0].gather(1, ids[0, :, None])[:, 0]
            assert_close(torch.tensor(best.token_logprobs).double(), logprobs, rtol=0, atol=1e-4)


@everywhere
def test_what_is_no_batch_of_texts_is_refused(case: str):
    with pytest.raises(ShapeError, match="one text alone is target"):
        make(case)(TARGET[0])


# --- the attentive language model beside its paper

ATTENTIVE = AttentiveConfig(vocabulary=13, embedding=5, width=6, layers=2, dropout=0.0)


@pytest.mark.parametrize("window", [0, 2])
@torch.no_grad()
def test_the_attentive_model_is_the_papers(window: int):
    torch.manual_seed(1)
    model = spread(AttentiveLanguageModel(replace(ATTENTIVE, window=window)))
    score = model.attention.score
    w = Weights(
        v=array(score.v.weight)[0],
        W1=array(score.U.weight),
        W2=array(score.W.weight),
        W3=array(model.W_c.weight),
        b3=array(model.W_c.bias),
        W=array(model.output.weight),
        b=array(model.output.bias),
    )
    target = TARGET[1]
    read = [array(model.embed.weight)[word] for word in [START, *target[:-1].tolist()]]
    states, _, _ = papers.stacked_lstm_encoder(read, stack_of(model.lstm), 6)
    with record(model) as seen:
        logits = model(target[None])[0]
    weights = seen["attention"].weights[0]
    for t, state in enumerate(states):
        first = max(0, t - window) if window else 0
        expected, alpha, _ = papers.attentive_lm_step(state, states[first:t], w)
        assert np.allclose(array(logits[t]), expected, atol=1e-9)
        assert np.allclose(array(weights[t, first:t]), alpha, atol=1e-12)
        assert weights[t, :first].sum() == weights[t, t:].sum() == 0


@pytest.mark.parametrize("score", ["additive", "dot"])
@torch.no_grad()
def test_a_split_state_is_found_by_its_key_and_seen_by_its_value(score: str):
    """Daniluk: only the first third is compared, only the second is seen, and only the third predicts."""
    torch.manual_seed(1)
    model = spread(AttentiveLanguageModel(replace(ATTENTIVE, split="key-value-predict", score=score)))
    hidden, _ = model.lstm(model.embed(torch.tensor([[START, 4, 7]])), model.start(1).lstm)
    key, value, predict = (array(part[0]) for part in hidden.chunk(3, dim=-1))
    if score == "dot":
        scores = [papers.dot(key[2], key[i]) for i in range(2)]
    else:
        w = model.attention.score
        args = (array(w.W.weight), array(w.U.weight), array(w.v.weight)[0])
        scores = [papers.additive(key[2], key[i], *args) for i in range(2)]
    context = papers.softmax(np.array(scores)) @ value[:2]
    mixed = np.tanh(array(model.W_c.weight) @ np.concatenate([predict[2], context]) + array(model.W_c.bias))
    expected = array(model.output.weight) @ mixed + array(model.output.bias)
    assert np.allclose(array(model(torch.tensor([[4, 7, 9]]))[0, 2]), expected, atol=1e-9)


def test_a_width_that_cannot_be_split_is_refused():
    with pytest.raises(ConfigError, match="width must be a multiple of 3"):
        AttentiveLanguageModel(replace(ATTENTIVE, width=7, split="key-value-predict"))
