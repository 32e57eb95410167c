"""Looking changes nothing, keeps everything, and leaves nothing behind."""

from dataclasses import replace

import numpy as np
import papers
import pytest
import torch
from test_laws import CROSSED

from regard.api.tracing import add_probabilities, assemble
from regard.errors import ConfigError, ShapeError
from regard.look import Attended, Picture, record
from regard.look.measure import reproduce
from regard.look.record import attentions
from regard.look.tokens import as_side
from regard.look.trace import Trace
from regard.models.registry import MODELS, build
from regard.symbols import END, START

SOURCE = torch.tensor([[5, 6, 7, 8, END], [5, 9, END, 0, 0]])  # [B, S]
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[4, 5, 6, 7, 8, END], [7, 8, END, 0, 0, 0]])  # [B, T]
WORDS = as_side(["a", "b", "c", "d", "</s>"]), as_side(["A", "B", "C", "D", "E", "</s>"])
EVERY = [
    (name, variant, config)
    for name, entry in MODELS.items()
    if hasattr(entry.presets["tiny"], "source_vocabulary")
    for variant, config in {"tiny": entry.presets["tiny"], **entry.variants}.items()
]


def model_of(name, config):
    torch.manual_seed(3)
    sizes = {"source_vocabulary": 11, "target_vocabulary": 11}
    return build(name, replace(config, **sizes)).eval()


def hooks(model):
    return [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]


@pytest.mark.parametrize(
    ("name", "variant", "config"),
    [pytest.param(*one, marks=[pytest.mark.slow] * ("-".join(one[:2]) in CROSSED)) for one in EVERY],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_model_gives_an_exact_trace_of_each_sentence(name, variant, config):
    model = model_of(name, config)
    values = {}
    with torch.no_grad():
        plain = model(SOURCE, LENGTHS, TARGET)
        handles = [
            module.register_forward_hook(lambda m, args, look, at=at: values.setdefault(at, []).append(args[1].values))
            for at, module in attentions(model).items()
        ]
        with record(model) as seen:
            looked = model(SOURCE, LENGTHS, TARGET)
        for handle in handles:
            handle.remove()
    assert torch.allclose(plain, looked, atol=1e-5)
    assert not hooks(model)
    assert set(seen) == set(attentions(model))
    for at, one in seen.items():
        assert one.weights.isfinite().all()
        assert torch.allclose(one.weights @ values[at][-1], one.context, atol=1e-5), (
            "weights times values are the context"
        )
    trace = assemble(model, seen, *WORDS)
    assert trace == Trace.from_json(trace.to_json())
    assert all(module.kind in ("cross", "fixed", "encoder", "decoder") for module in trace.attention.values())
    for module in trace.attention.values():
        again = reproduce(module)
        assert again is not None
        assert np.abs(again - module.weights).max() < 1e-5, "scores through the stated normaliser are the weights"
        if "indow" not in module.normalise and module.normalise != "monotonic":  # which may reach the end
            anywhere = np.isfinite(module.scores).any(-1)  # the first word of an LSTMN has nothing to look back at
            assert np.allclose(module.weights.sum(-1), anywhere, atol=1e-5)
    short = assemble(model, seen, as_side(["a", "e", "</s>"]), as_side(["A", "B", "</s>"]), row=1)
    for at, module in short.attention.items():  # the padded row, cut to its own tokens, has lost no weight
        whole = seen[at].weights[1]
        whole = whole if whole.dim() == 3 else whole[None]
        assert np.allclose(module.weights.sum(-1), whole.sum(-1).numpy()[:, : module.weights.shape[1]], atol=1e-6)


@pytest.mark.parametrize("name", sorted({name for name, _, _ in EVERY}))
def test_steps_are_recorded_as_a_forward_pass(name):
    model = model_of(name, MODELS[name].presets["tiny"])
    with torch.no_grad():
        with record(model) as whole:
            model(SOURCE, LENGTHS, TARGET)
        with record(model) as stepwise:
            state = model.start(model.encode(SOURCE, LENGTHS))
            token = torch.full((2,), START)
            for t in range(TARGET.shape[1]):
                _, state = model.step(token, state)
                token = TARGET[:, t]
    for at, one in whole.items():
        assert stepwise[at].weights.shape == one.weights.shape
        assert torch.allclose(stepwise[at].weights, one.weights, atol=1e-5)
        assert torch.allclose(stepwise[at].context, one.context, atol=1e-5)


@pytest.mark.parametrize("step", [papers.monotonic_stop, papers.monotonic_weights], ids=["hard", "soft"])
def test_monotonic_attention_is_reproduced_from_its_scores(step):
    scores, weights = np.array([[-1.0, 2.0, 3.0], [1.0, -1.0, 4.0], [0.5, 0.5, -2.0]]), [np.array([1.0, 0.0, 0.0])]
    for row in scores:
        weights.append(step(row, weights[-1]))
    seen = Attended("attention", np.array(weights[1:]), scores=scores, normalise="monotonic")
    assert np.allclose(reproduce(seen)[0], weights[1:], atol=1e-6)


def test_a_gaussian_window_is_reproduced_only_from_its_centre_and_width():
    given = {"name": "attention", "weights": np.full((1, 3), 0.3), "scores": np.zeros((1, 3))}
    for more in ({}, {"centre": np.array([1.0])}, {"half_width": 2}):
        assert reproduce(Attended(**given, **more, normalise="Gaussian window")) is None
    found = reproduce(Attended(**given, centre=np.array([1.0]), half_width=2, normalise="Gaussian window"))
    assert found[0, 0] == pytest.approx(np.exp([-0.5, 0, -0.5]) / 3)  # sigma is half of the half width


def test_what_a_model_says_of_itself_is_in_the_trace():
    luong = model_of("luong", MODELS["luong"].presets["tiny"])
    bahdanau = model_of("bahdanau", MODELS["bahdanau"].presets["tiny"])
    for model, query, shift, score in ((luong, "current", 0, "general"), (bahdanau, "previous", 0, "additive")):
        with record(model) as seen, torch.no_grad():
            logits = model(SOURCE, LENGTHS, TARGET)
        target = add_probabilities(WORDS[1], TARGET[0].tolist(), logits[0], lambda ids: list(map(str, ids)), best=3)
        (module,) = assemble(model, seen, WORDS[0], target).attention.values()
        assert (module.query, module.shift, module.score) == (query, shift, score)
        first = target.tokens[0]
        assert first.logprob == pytest.approx(logits[0, 0].log_softmax(-1)[4].item(), abs=1e-5)
        assert first.topk[0] == (str(int(logits[0, 0].argmax())), pytest.approx(max(v for _, v in first.topk)))


def test_no_hook_stays_after_an_error_and_blocks_nest():
    model = model_of("transformer", MODELS["transformer"].presets["tiny"])
    with pytest.raises(RuntimeError, match="broken"), record(model):
        raise RuntimeError("broken")
    assert not hooks(model)
    with record(model) as outer, torch.no_grad():
        with record(model) as inner:
            model(SOURCE, LENGTHS, TARGET)
        model(SOURCE, LENGTHS, TARGET)
    assert len(outer.calls("decoder.0.cross_attention.attention")) == 2
    assert len(inner.calls("decoder.0.cross_attention.attention")) == 1
    assert not hooks(model)


def test_calls_of_different_batches_are_not_joined_in_silence():
    model = model_of("bahdanau", MODELS["bahdanau"].presets["tiny"])
    with record(model) as seen, torch.no_grad():
        model(SOURCE, LENGTHS, TARGET)
        model(SOURCE[:1], LENGTHS[:1], TARGET[:1])
    with pytest.raises(ShapeError, match=r"different batches .* calls\('decoder.attention'\)"):
        _ = seen["decoder.attention"]
    with pytest.raises(ConfigError, match=r"Did you mean 'decoder.attention'"):
        seen.calls("decoder.atention")


def test_wrong_rows_and_ids_are_refused():
    model = model_of("bahdanau", MODELS["bahdanau"].presets["tiny"])
    with record(model) as seen, torch.no_grad():
        logits = model(SOURCE, LENGTHS, TARGET)
    with pytest.raises(ShapeError, match="no sentence 2: 2 were recorded"):
        assemble(model, seen, *WORDS, row=2)
    with pytest.raises(ShapeError, match="an id and a row of logits for each of 6"):
        add_probabilities(WORDS[1], [1, 2], logits[0], lambda ids: list(map(str, ids)))
    with pytest.raises(ShapeError, match=r"expected \[H, 6, 7\]"):
        assemble(model, seen, as_side([*"abcdefg"]), WORDS[1])


def test_a_caption_looks_at_the_cells_of_its_picture():
    torch.manual_seed(5)
    model = build("captioner", replace(MODELS["captioner"].variants["features"], target_vocabulary=11)).eval()
    cells = torch.randn(2, 16, 64)  # [B, S, D]: a grid of 4 x 4
    with record(model) as seen, torch.no_grad():
        model(cells, torch.tensor([16, 16]), TARGET)
    trace = assemble(model, seen, as_side(["picture"]), WORDS[1], image=Picture(64, 48, (4, 4)))
    (module,) = trace.attention.values()
    assert (module.kind, module.query, module.score, module.weights.shape) == (
        "image",
        "previous",
        "additive",
        (1, 6, 16),
    )
    assert Trace.from_json(trace.to_json()) == trace
