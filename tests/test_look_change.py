"""What if: each change does what it says, in a forward pass and step by step, and leaves the model as it was."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_look_record import LENGTHS, SOURCE, TARGET, WORDS, hooks, model_of

from regard.api.tracing import assemble
from regard.errors import ConfigError, DataError, ShapeError
from regard.look import (
    Mask,
    SetRow,
    ShiftRow,
    Silence,
    Temperature,
    change,
    draw_flows,
    flow,
    importance,
    record,
)  # fmt: skip
from regard.models.registry import MODELS
from regard.symbols import START

CROSS = {"bahdanau": "decoder.attention", "luong": "attention", "transformer": "decoder.1.cross_attention.attention"}


def tiny(name, **settings):
    model = model_of(name, replace(MODELS[name].presets["tiny"], **settings))
    if name == "bahdanau":  # its v begins at zero: every score is zero, and no temperature shows
        torch.nn.init.normal_(model.decoder.attention.score.v.weight)
    return model


def look(model, *changes, stepwise=False):
    with torch.no_grad(), change(model, *changes), record(model) as seen:
        if not stepwise:
            return model(SOURCE, LENGTHS, TARGET), seen
        state, token, logits = model.start(model.encode(SOURCE, LENGTHS)), torch.full((2,), START), []
        for t in range(TARGET.shape[1]):
            one, state = model.step(token, state)
            logits.append(one)
            token = TARGET[:, t]
        return torch.stack(logits, 1), seen


@pytest.mark.parametrize("name", list(CROSS))
@pytest.mark.parametrize(
    "what",
    [Mask(1), Temperature(0.3), SetRow(2, 3), SetRow(1, (0.5, 0.5)), ShiftRow(2, 1)],
    ids=lambda one: type(one).__name__,
)
def test_steps_and_forward_agree_on_every_change(name, what):
    model = tiny(name)
    plain, _ = look(model)
    whole, seen = look(model, what)
    stepped, _ = look(model, what, stepwise=True)
    assert torch.allclose(whole, stepped, atol=1e-5)
    assert not torch.allclose(whole, plain, atol=1e-6), "the change had an effect"
    assert torch.allclose(look(model)[0], plain), "and none remains"
    assert not hooks(model)
    assert seen[CROSS[name]].weights.isfinite().all()


@pytest.mark.parametrize("name", list(CROSS))
def test_a_masked_word_has_no_weight_and_the_rest_is_the_softmax_without_it(name):
    model = tiny(name)
    _, plain = look(model)
    _, seen = look(model, Mask(1))
    weights = seen[CROSS[name]].weights
    assert (weights[..., 1] == 0).all()
    first = CROSS[name].replace("decoder.1", "decoder.0")
    before, after = plain[first].weights[..., 0, :], seen[first].weights[..., 0, :]  # the first query is unchanged
    left = before.clone()
    left[..., 1] = 0
    assert torch.allclose(after, left / left.sum(-1, keepdim=True), atol=1e-5)


def test_temperature_is_a_softmax_of_divided_scores():
    model = tiny("transformer")
    name = "decoder.0.cross_attention.attention"
    _, plain = look(model)
    _, seen = look(model, Temperature(0.5, name))
    assert torch.allclose(seen[name].weights, (plain[name].scores / 0.5).softmax(-1), atol=1e-5)
    _, flat = look(model, Temperature(1e6, name))
    assert torch.allclose(flat[name].weights[0], torch.full_like(flat[name].weights[0], 1 / 5), atol=1e-4)


def test_a_silenced_head_sees_nothing_and_a_layer_is_all_its_heads():
    model = tiny("transformer")
    _, seen = look(model, Silence("decoder.0.cross_attention.attention", 2))
    one = seen["decoder.0.cross_attention.attention"]
    assert (one.context[:, 2] == 0).all()
    assert (one.weights[:, 2] == 0).all()
    assert (one.context[:, 1] != 0).any()
    _, seen = look(model, Silence("decoder.0"))
    silent = [name for name, one in seen.items() if (one.context == 0).all()]
    assert silent == ["decoder.0.self_attention.attention", "decoder.0.cross_attention.attention"]


def test_rows_are_set_and_moved_exactly_there():
    model = tiny("luong", feed=False)
    _, plain = look(model)
    _, seen = look(model, SetRow(2, 3))
    before, after = plain["attention"].weights, seen["attention"].weights
    assert after[:, 2].tolist() == [[0, 0, 0, 1, 0]] * 2
    assert torch.equal(after[:, [0, 1, 3, 4, 5]], before[:, [0, 1, 3, 4, 5]])
    for given in ([0, 1, 0, 0, 0], [0.25, 0.5]):  # all five, or the first ones
        _, seen = look(model, SetRow(2, given))
        assert seen["attention"].weights[0, 2].tolist() == [*given, 0, 0, 0][:5]
    _, moved = look(model, ShiftRow(1, -2))
    row = before[0, 1]
    assert moved["attention"].weights[0, 1].tolist() == pytest.approx(
        [float(row[:3].sum()), float(row[3]), float(row[4]), 0, 0]
    )
    assert torch.allclose(moved["attention"].weights.sum(-1), before.sum(-1))


def test_nested_blocks_and_recording_on_either_side():
    model = tiny("bahdanau")
    together, _ = look(model, Temperature(0.4), Silence("decoder.attention"), Mask(0))
    with torch.no_grad(), change(model, Silence("decoder.attention")), change(model, Temperature(0.4)):
        with record(model) as outer, change(model, Mask(0)), record(model) as inner:
            nested = model(SOURCE, LENGTHS, TARGET)
        assert torch.allclose(nested, together)
        for seen in (outer, inner):
            assert (seen["decoder.attention"].weights == 0).all(), "who records sees what the model saw"
    assert not hooks(model)
    with pytest.raises(RuntimeError, match="broken"), change(model, Mask(0)), change(model, Mask(1)):
        raise RuntimeError("broken")
    assert not hooks(model)


def test_a_change_ends_with_its_block_also_inside_another():
    model = tiny("bahdanau")
    alone, _ = look(model, Mask(0))
    with torch.no_grad(), change(model, Mask(0)):
        with change(model, Temperature(0.1), Mask(1)):
            assert not torch.allclose(model(SOURCE, LENGTHS, TARGET), alone, atol=1e-6)
        assert torch.equal(model(SOURCE, LENGTHS, TARGET), alone)


def test_a_second_sentence_counts_from_zero_again():
    model = tiny("bahdanau")
    with torch.no_grad(), change(model, SetRow(0, 2)) as changed:
        for _ in range(2):
            with record(model) as seen:
                model(SOURCE, LENGTHS, TARGET)
            assert (seen["decoder.attention"].weights[:, 0, 2] == 1).all()
        changed.restart()
        with record(model) as seen:
            model.step(torch.full((2,), START), model.start(model.encode(SOURCE, LENGTHS)))
        assert (seen["decoder.attention"].weights[:, 0, 2] == 1).all()


def test_the_trace_marks_what_was_changed():
    model = tiny("bahdanau")
    with torch.no_grad(), change(model, Mask(1), SetRow(2, 0)) as changed, record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    trace = assemble(model, seen, *WORDS, changes=changed.describe())
    assert [one["text"] for one in trace.changes] == ["source position 1 masked", "row 2 set all on source position 0"]
    assert (trace.changes[0]["column"], trace.changes[1]["row"]) == (1, 2)
    assert "changed: source position 1 masked" in trace.to_terminal(width=400)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (lambda: Silence("decoder.9"), "There is no attention module 'decoder.9'"),
        (lambda: Silence("decoder.0.cross_attention.attention", 4), "There is no head 4: .* has heads 0 to 3"),
        (lambda: Mask(5), "There is no source position 5: this sentence has positions 0 to 4"),
        (lambda: Mask("word"), "Only translator.look knows words; pass a position in place of 'word'"),
        (lambda: Temperature(0), "above zero and finite; got 0"),
        (lambda: Temperature(float("nan")), "above zero and finite"),
        (lambda: SetRow(-1, 0), "Rows count from 0"),
        (lambda: SetRow(0, (2.0,)), "between 0 and 1"),
        (lambda: SetRow(0, (0.1,) * 6), "5 source positions cannot take 6 weights"),
    ],
)
def test_impossible_changes_are_refused_in_a_sentence(what, says):
    model = tiny("transformer")
    with pytest.raises(ConfigError, match=says):
        look(model, what())
    assert not hooks(model)


def test_importance_finds_the_head_that_matters():
    model = tiny("transformer", layers=1)
    model.decoder[0].cross_attention.output.weight.data[:, 32:] = 0  # heads 1, 2 and 3 are not heard
    with torch.no_grad():
        whole = model(SOURCE, LENGTHS, TARGET)
        done = []
        found = importance(
            model,
            lambda: -float((model(SOURCE, LENGTHS, TARGET) - whole).abs().sum()),
            lambda at, total: done.append((at, total)),
        )
    ours = {one.head: one.drop for one in found if one.name.startswith("decoder.0.cross")}
    assert ours[0] > 1
    assert max(ours[1], ours[2], ours[3]) < 1e-3
    assert found == sorted(found, key=lambda one: -one.drop)
    assert done[-1] == (12, 12)


# --- gradient flow


def test_flow_without_attention_goes_through_the_state_and_in_a_transformer_through_attention():
    sutskever, transformer = (flow(tiny(name), SOURCE[0], TARGET[0]) for name in ("sutskever", "transformer"))
    assert (sutskever.attention == 0).all()
    assert (sutskever.total > 0).all()
    assert sutskever.read_at == (3, 2, 1, 0, 4), "it reads the words backwards"
    luong = flow(tiny("luong"), SOURCE[0], TARGET[0])
    assert luong.read_at == (3, 2, 1, 0, 4)
    assert (luong.total[:, 4] == 0).all(), "it never reads END"
    assert (luong.by_distance()[1] > 0).all(), "so END is not in the curve"
    assert (transformer.state == 0).all()
    assert np.allclose(transformer.attention, transformer.total)


def test_flow_is_the_derivative():
    model = tiny("bahdanau").double()
    found = flow(model, SOURCE[0], TARGET[0])
    vector = torch.zeros(1, 5, model.config.embedding, dtype=torch.double)
    embed = model.embed

    def logprob(step):
        handle = embed.register_forward_hook(lambda m, a, out: out + step)
        with torch.no_grad():
            logits = model(SOURCE[:1], LENGTHS[:1], TARGET[:1])[0]
        handle.remove()
        return logits.log_softmax(-1)[3, TARGET[0, 3]]

    slopes = []
    for at in range(model.config.embedding):
        vector[0, 1, at] = 1e-5
        slopes.append(float(logprob(vector) - logprob(-vector)) / 2e-5)
        vector[0, 1, at] = 0
    assert found.total[3, 1] == pytest.approx(np.linalg.norm(slopes), rel=1e-4)
    both = found.attention + found.state
    assert (both >= found.total - 1e-12).all(), "two ways and a triangle"
    assert not hooks(model)
    assert not model.training


def test_flow_leaves_training_mode_and_refuses_batches(tmp_path):
    model = tiny("luong").train()
    one = flow(model, SOURCE[0], TARGET[0])
    assert model.training
    distance, norm = one.by_distance()
    assert distance.tolist() == sorted(set(one.distance()[:, :4].ravel().tolist())), "all but END, which it never reads"
    assert len(norm) == len(distance)
    with pytest.raises(ShapeError, match="one sentence"):
        flow(model, SOURCE, TARGET)
    with pytest.raises(DataError, match="no source embedding"):
        flow(torch.nn.Linear(2, 2), SOURCE[0], TARGET[0])
    svg = draw_flows({"luong </b>": one, "again": one}, tmp_path / "flow.svg").read_text(encoding="utf-8")
    assert ">luong &lt;/b&gt;<" in svg
    with pytest.raises(ConfigError, match="must end in"):
        draw_flows({"a": one}, tmp_path / "flow.txt")
    with pytest.raises(ConfigError, match="at least one flow"):
        draw_flows({}, tmp_path / "flow.svg")
