"""Attributions: each method equals its paper in plain loops, and keeps its laws in every registered translator."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import papers
import pytest
import torch
import trained
from test_laws import CASES
from torch import nn
from weights_of import spread, transformer_of

from regard.errors import ConfigError, DataError
from regard.look import Mask, Silence, Trace, attribution, change, gradients, record
from regard.look.attribution import METHODS, add_attribution, attribute, methods_of
from regard.look.case import Case
from regard.look.record import attentions
from regard.look.table import Show, arrange
from regard.models.registry import MODELS, build
from regard.models.transformer import Transformer, TransformerConfig
from regard.symbols import END, START, UNKNOWN

SOURCE, TARGET = torch.tensor([5, 7, 4, 9, END]), torch.tensor([6, 4, 8, END])  # S = 5, T = 4
T, S = len(TARGET), len(SOURCE)
TRANSFORMER = TransformerConfig(11, 13, width=12, heads=3, inner=7, layers=2, dropout=0.0, tied="none")
LAYERED = {
    "rollout": papers.rollout_layer,
    "alti": papers.alti_layer,
    "value-zeroing": papers.value_zeroing_layer,
}
GRADIENTS = ("gradient", "integrated-gradients")
OCCLUSIONS = ("occlusion-masked", "occlusion-unknown", "occlusion-removed")
ALL = [name for name, entry in MODELS.items() if entry.task == "translate"]
FIXED = ("cho", "rnnencdec", "sutskever")


@cache
def model_of(name):
    """A tiny model with random weights in float64."""
    torch.manual_seed(5)
    return spread(build(*CASES[f"{name}-tiny"]), 0.4)


def case(name, **options):
    return Case(model_of(name), SOURCE, TARGET, **options)


def values(model, source=SOURCE):
    """log p of every target word after a source that is read alone: [T]."""
    with torch.no_grad():
        logits = model(source[None], torch.tensor([len(source)]), TARGET[None])[0]
    return logits.log_softmax(-1)[torch.arange(T), TARGET]


# --- the papers


PARTS = [
    {},
    {"positions": "relative", "clip": 2},
    {"positions": "relative", "clip": 9},
    {"key_heads": 1},
    {"layer_norm": "rms"},
]


@pytest.mark.parametrize("method", LAYERED)
@pytest.mark.parametrize(
    ("norm", "part"),
    [  # where a norm stands matters for norms alone; `make slow` crosses all
        pytest.param(norm, part, marks=[pytest.mark.slow] * (norm == "pre" and bool(part) and "layer_norm" not in part))
        for norm in ("post", "pre")
        for part in PARTS
    ],
)
def test_a_method_through_the_layers_is_the_papers(method, norm, part):
    torch.manual_seed(3)
    model = spread(Transformer(replace(TRANSFORMER, norm=norm, **part)), 0.4)
    found = attribute(Case(model, SOURCE, TARGET), method)
    read = [START, *TARGET[:-1].tolist()]
    source, prefix = papers.attributed(
        SOURCE.tolist(), read, transformer_of(model), LAYERED[method], pre_norm=norm == "pre"
    )
    assert np.allclose(found.values, source, atol=1e-6)
    assert np.allclose(found.prefix, prefix, atol=1e-6)


def test_attention_norms_are_kobayashis():
    torch.manual_seed(3)
    model = spread(Transformer(TRANSFORMER), 0.4)
    read = [START, *TARGET[:-1].tolist()]
    w = transformer_of(model)
    _, memory, weights = papers.transformer(SOURCE.tolist(), read, w)
    for layer in range(2):
        parts = papers.head_parts(memory, w.decoder[layer].cross, weights["cross"][layer])
        norms = np.linalg.norm(parts, axis=-1)
        found = attribute(Case(model, SOURCE, TARGET, layer=layer), "attention-norm").values
        assert np.allclose(found, norms / norms.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("name", [name for name in ALL if name not in FIXED])
def test_attention_is_what_was_recorded(name):
    model = model_of(name)
    with torch.no_grad(), record(model) as seen:
        model(SOURCE[None], torch.tensor([S]), TARGET[None])
    cross = model.attention_layout.cross
    weights = seen[cross[-2:][0]].weights[0]
    heads = weights[None] if weights.dim() == 2 else weights
    assert torch.allclose(attribute(case(name), "attention").values, heads.mean(0))
    assert torch.allclose(attribute(case(name, head=len(heads) - 1), "attention").values, heads[-1])
    late = attribute(case(name, shift=1), "attention").values
    assert torch.allclose(late[:-1], heads.mean(0)[1:])
    if name != "transformer":  # a recurrent model sees the encoder states themselves
        states = seen.calls(cross[-2:][0])[0].memory.values[0]
        norms = heads[0] * states.norm(dim=-1)
        found = attribute(case(name), "attention-norm").values
        assert torch.allclose(found, norms / norms.sum(-1, keepdim=True).clamp(min=1e-30))


@pytest.mark.parametrize("name", ALL)
def test_gradient_times_input_is_how_log_p_grows_with_a_word(name):
    model, small = model_of(name), 1e-5

    def stretched(at, by):
        reverse = list(range(S - 1))[::-1] if name == "sutskever" else list(range(S - 1))  # the ids are reversed
        place = [*reverse, S - 1][at]
        calls = []

        def stretch(module, args, vectors):
            calls.append(1)
            if len(calls) > 1:  # a shared embedding reads the target later
                return vectors
            return vectors * (1 + by * (torch.arange(S) == place).double())[None, :, None]

        with model.embed.register_forward_hook(stretch):
            return values(model)

    slopes = torch.stack([(stretched(s, small) - stretched(s, -small)) / (2 * small) for s in range(S)], dim=1)
    assert torch.allclose(attribute(case(name), "gradient").values, slopes, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "name"),
    [  # words of several pieces with one model of each kind, since models know nothing of words
        pytest.param(
            words, name, marks=[pytest.mark.slow] * (bool(words) and name not in ("bahdanau", "transformer", "cho"))
        )
        for words in ((), ((0,), (1, 2), (3,), (4,)))
        for name in ALL
    ],
)
def test_occlusion_is_what_is_lost_one_word_at_a_time(name, words):
    model, whole = model_of(name), values(model_of(name))
    for method in OCCLUSIONS:
        if method == "occlusion-masked" and name in FIXED:
            continue
        want = torch.zeros(T, S, dtype=torch.float64)
        for group in words or [[s] for s in range(S)]:
            if method == "occlusion-masked":
                cross = model.attention_layout.cross
                over = [one for one in attentions(model) if one in cross or one.startswith("encoder")]
                if name == "lstmn":  # its tape grows: `Mask` knows positions of whole sentences only
                    continue
                with change(model, *(Mask(s, module) for s in group for module in over)):
                    lost = whole - values(model)
            elif S - 1 in group:
                continue
            elif method == "occlusion-unknown":
                lost = whole - values(model, torch.tensor([UNKNOWN if s in group else SOURCE[s] for s in range(S)]))
            else:
                lost = whole - values(model, torch.tensor([SOURCE[s] for s in range(S) if s not in group]))
            want[:, list(group)] = lost[:, None] / len(group)
        if method != "occlusion-masked" or name != "lstmn":
            assert torch.allclose(attribute(case(name, words=words), method).values, want, atol=1e-9)


# --- laws


def scaled(model, share):
    """The source embeddings of a model times `share`, until the hook is removed."""
    calls = []

    def scale(module, args, vectors):
        calls.append(1)
        return vectors * share if len(calls) == 1 else vectors  # a shared embedding reads the target later

    return model.embed.register_forward_hook(scale)


@pytest.mark.parametrize("name", ALL)
def test_integrated_gradients_are_complete(name):
    model = model_of(name)
    with scaled(model, 0):
        nothing = values(model)
    for steps in (12, 3000):
        found = attribute(case(name, steps=steps), "integrated-gradients")
        assert torch.allclose(found.values.sum(-1), values(model) - nothing, atol=1e-9)
    assert found.gap.max() <= 1e-3


def test_what_the_relus_of_a_transformer_hide_is_divided_well():
    torch.manual_seed(3)
    model = spread(Transformer(TRANSFORMER), 0.6)
    found, exact = (
        attribute(Case(model, SOURCE, TARGET, steps=steps), "integrated-gradients") for steps in (192, 3072)
    )
    assert (found.values - exact.values).abs().max() < 0.15 * found.gap.max()


def test_only_incomplete_words_are_refined_and_what_is_missing_is_reported(monkeypatch):
    refined, slopes = [], gradients._slopes

    def keep(case, shares, words):
        refined.append(set(words))
        return slopes(case, shares, words)

    monkeypatch.setattr(gradients, "_slopes", keep)
    assert (attribute(case("rnnencdec", steps=3000), "integrated-gradients").gap <= 1e-3).all()
    assert refined[0] == set(range(T))
    assert all(later <= earlier for earlier, later in itertools.pairwise(refined))
    assert len(refined[-1]) < T
    assert attribute(case("rnnencdec", steps=12), "integrated-gradients").gap.max() > 1e-3


def test_a_row_that_is_an_estimate_is_noted(monkeypatch):
    translator = trained.translator("heads")

    def noted():
        return [note["text"] for note in translator.look(TEXT, "le", by="integrated-gradients").notes]

    assert noted() == []
    for name in ("ESTIMATED", "COMPLETE"):
        monkeypatch.setattr(attribution, name, 0)
    assert "too abruptly for integrated gradients in 3 of 3 tokens" in " ".join(noted())


def test_parts_are_short_where_the_log_probability_changes(monkeypatch):
    steep = case("transformer", steps=48)
    placed = attribute(steep, "integrated-gradients").gap.sum()
    monkeypatch.setattr(gradients, "GRID", 1)  # parts of equal width
    assert placed < 0.9 * attribute(steep, "integrated-gradients").gap.sum()


@pytest.mark.parametrize("method", METHODS)
def test_rows_sum_to_one_where_the_method_says_so(method):
    found = attribute(case("transformer"), method)
    assert found.values.shape == (T, S)
    rows = METHODS[method].row
    assert (found.prefix is not None) == ("together with" in rows)
    if rows.startswith("a row sums to one"):
        total = found.values.sum(-1) + (0 if found.prefix is None else found.prefix.sum(-1))
        assert torch.allclose(total, torch.ones(T, dtype=torch.float64))
        assert (found.values >= 0).all()


def test_what_cannot_influence_the_output_gets_zero():
    for method in (*GRADIENTS, *OCCLUSIONS):  # Luong's END is neither read nor attended to
        found = attribute(case("luong"), method).values
        assert (found[:, -1] == 0).all()
        assert found[:, :-1].all()
    model = model_of("transformer")
    with change(model, *(Silence(name) for name in model.attention_layout.cross)):
        for method in (*LAYERED, *GRADIENTS, *OCCLUSIONS):
            if method != "rollout":  # which believes the residual alone
                assert attribute(case("transformer"), method).values.abs().max() < 1e-12


def test_rollout_of_one_layer_is_attention_with_the_residual():
    torch.manual_seed(3)
    model = spread(Transformer(replace(TRANSFORMER, layers=1)), 0.4)
    with torch.no_grad(), record(model) as seen:
        model(SOURCE[None], torch.tensor([S]), TARGET[None])
    read, own, cross = (seen[name].weights[0].mean(0) for name in seen)
    found = attribute(Case(model, SOURCE, TARGET), "rollout")
    assert torch.allclose(found.values, cross / 2 @ (read + torch.eye(S)) / 2)
    assert torch.allclose(found.prefix, (own + torch.eye(T)) / 4)


def test_alti_of_a_layer_without_attention_is_the_identity():
    model = model_of("transformer")
    with change(model, *(Silence(name) for name in attentions(model))):
        found = attribute(case("transformer"), "alti")
    assert torch.allclose(found.prefix, torch.eye(T, dtype=torch.float64))
    assert (found.values == 0).all()


class Sum(nn.Module):
    """A linear model: the logits of every step are a matrix times the sum of the source vectors."""

    def __init__(self):
        super().__init__()
        self.embed, self.output = nn.Embedding(11, 6).double(), nn.Linear(6, 13).double()
        nn.init.zeros_(self.embed.weight[UNKNOWN].data)

    def hidden(self, source, lengths, target):
        seen = torch.arange(source.shape[1]) < lengths[:, None]
        total = (self.embed(source) * seen[:, :, None]).sum(1, keepdim=True)
        return total.expand(-1, target.shape[1], -1)

    def forward(self, source, lengths, target):
        return self.output(self.hidden(source, lengths, target))


def test_in_a_linear_model_gradient_and_occlusion_are_the_same():
    torch.manual_seed(3)
    words = Case(Sum(), SOURCE, TARGET, against=10)  # the difference of two logits is linear, a log-probability is not
    slope = attribute(words, "gradient").values[:, :-1]
    for method in ("occlusion-unknown", "occlusion-removed", "integrated-gradients"):
        assert torch.allclose(attribute(words, method).values[:, :-1], slope, atol=1e-12)
    against = attribute(words, "gradient").values
    assert torch.allclose(
        attribute(Case(words.model, SOURCE, TARGET.clone().fill_(10), against=6), "gradient").values[0], -against[0]
    )


class Kinked(Sum):
    """The same through one ReLU, whose gradient jumps on the way from zero."""

    def hidden(self, source, lengths, target):
        return torch.relu(super().hidden(source, lengths, target).sum(-1, keepdim=True) - 5).expand(-1, -1, 6)


def test_integrated_gradients_find_where_a_relu_opens():
    torch.manual_seed(3)
    words = Case(Kinked(), SOURCE, TARGET, against=10, steps=12)
    each = words.model.embed(SOURCE).sum(-1).detach()  # [S]
    rise = (words.model.output.weight[TARGET] - words.model.output.weight[10]).sum(-1).detach()  # [T]
    opened = 1 - 5 / each.sum()  # the share of the way after it
    found = attribute(words, "integrated-gradients")
    assert found.gap.max() > 1e-3
    assert torch.allclose(found.values, rise[:, None] * each * opened, atol=1e-12)


def test_a_model_is_left_as_it_was():
    model = model_of("transformer").train()
    some = model.output.weight.requires_grad_(False)
    try:
        for method in METHODS:
            with torch.inference_mode():
                attribute(Case(model, SOURCE.clone(), TARGET.clone()), method)
        assert model.training
        assert [one for one in model.parameters() if not one.requires_grad] == [some]
        assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    finally:
        model.output.weight.requires_grad_()
        model.eval()


# --- what is not possible says why


@pytest.mark.parametrize("name", ALL)
def test_a_method_works_or_says_why_not(name):
    for method in METHODS:
        layered, attends = method in LAYERED, method in ("attention", "attention-norm", "occlusion-masked")
        if (layered and name != "transformer") or (attends and name in FIXED):
            with pytest.raises(
                ConfigError, match=r"has no (Transformer layers|attention over the source words)"
            ) as found:
                attribute(case(name), method)
            assert str(found.value).endswith(f"; attribute by one of: {', '.join(methods_of(case(name).model))}.")
        else:
            assert attribute(case(name, steps=12), method).values.isfinite().all()
    with pytest.raises(ConfigError, match=r"There is no attribution method 'alty'. Did you mean 'alti'\?"):
        attribute(case(name), "alty")
    if name not in FIXED:
        with pytest.raises(ConfigError, match="does not depend on the word"):
            attribute(case(name, against=5), "attention")


def test_a_recurrence_in_place_of_self_attention_is_named():
    model = spread(build(*CASES["transformer-marian"]))
    with pytest.raises(ConfigError, match="SSRU"):
        attribute(Case(model, SOURCE, TARGET), "alti")
    with pytest.raises(ConfigError, match="There is no layer 7 of attention over the source"):
        attribute(case("transformer", layer=7), "attention")
    with pytest.raises(ConfigError, match="There is no head 9"):
        attribute(case("transformer", head=9), "attention-norm")


# --- translators and traces

TEXT, WRITTEN = "the black cat sleeps .", "le chat noir dort ."


def test_pieces_are_merged_into_words_as_those_of_attention_are():
    translator = trained.translator("heads")
    trace = translator.look(TEXT, WRITTEN, by=["attention", "alti", "gradient"])
    for name, found in trace.attributions.items():
        table = arrange(trace, layer=name, special=True)
        assert found.rows == tuple(row.text for row in table.rows)
        assert found.columns == tuple(column.text for column in table.columns)
        if METHODS[name].contrasts:
            sums = trace.attention[name].weights[0].sum(-1)  # shares of the positive values, where there are any
            assert np.allclose(sums[sums > 0], 1, atol=1e-5)
            assert (sums > 0).sum() > 1
            by_hand = found.matrix.clip(min=0)
            total = by_hand.sum(-1, keepdims=True)
            assert len(found.rows) < len(trace.target.tokens) or np.allclose(table.weights, by_hand / total, atol=1e-5)
        else:
            assert np.allclose(found.matrix, table.weights)
    assert np.allclose(trace.attributions["alti"].source_share, trace.attributions["alti"].matrix.sum(-1))
    assert trace.attributions["gradient"].source_share is None
    drawn = arrange(trace, special=True)  # the head that a picture without a choice shows
    assert np.allclose(trace.attributions["attention"].matrix, drawn.weights, atol=1e-6)
    alone = translator.attribute(TEXT, WRITTEN, "alti")
    assert np.allclose(alone.matrix, trace.attributions["alti"].matrix)
    pieces = translator.attribute(TEXT, WRITTEN, "alti", words=False)
    assert pieces.matrix.shape == (len(trace.target.tokens), len(trace.source.tokens))


def test_a_word_of_many_pieces_is_occluded_at_once():
    translator = trained.translator("heads")
    trace = translator.look(TEXT, WRITTEN)
    found = translator.attribute(TEXT, WRITTEN, "occlusion-masked", words=False)
    groups = [list(column.tokens) for column in arrange(trace, special=True).columns]
    assert max(map(len, groups)) > 1
    for group in groups:
        assert np.allclose(found.matrix[:, group], found.matrix[:, group[:1]])


def test_attributions_are_kept_with_a_trace(tmp_path):
    trace = trained.translator("heads").look(TEXT, WRITTEN, by=["gradient", "occlusion-removed"], against="le")
    assert list(trace.attributions) == ["gradient against le", "occlusion-removed against le"]
    trace = trained.translator("heads").look(TEXT, WRITTEN, by=["rollout", "occlusion-removed"])
    back = Trace.load(trace.save(tmp_path / "trace.json"))
    assert back == trace
    for name, found in trace.attributions.items():
        assert np.array_equal(back.attributions[name].matrix, found.matrix)
    assert trained.translator("heads").look(TEXT).attributions == {}


def test_an_attribution_by_attention_is_beside_a_module_of_that_name(tmp_path):
    tokens = ["a", "b", "c", "d", "</s>"], ["x", "y", "z", "</s>"]
    trace = Trace.from_arrays(*tokens, np.full((T, S), 0.2))
    assert list(trace.attention) == ["attention"]
    explained = add_attribution(add_attribution(trace, case("luong"), "attention"), case("luong"), "attention")
    assert explained.attention["attention"] == trace.attention["attention"]
    found = Trace.load(explained.save(tmp_path / "trace.json")).attributions
    assert list(found) == ["attention"]
    assert found["attention"].method == "attention"
    assert np.allclose(found["attention"].matrix, attribute(case("luong"), "attention").values)
    caption = arrange(explained, Show(layer=[*explained.attention][-1])).caption
    assert caption.startswith("attribution by attention, ")


def test_what_cannot_be_attributed_is_refused_in_one_sentence():
    translator = trained.translator("heads")
    for error, match, arguments in (
        (DataError, "empty sentence", {"source": ""}),
        (ConfigError, "There is no attribution method 'roll'. Did you mean 'rollout'", {"method": "roll"}),
        (DataError, "cannot contain the symbol", {"target": [5, START]}),
        (DataError, "There is no token 999999", {"target": [999_999]}),
        (DataError, "There is no word '東' in the target vocabulary", {"method": "gradient", "against": "東"}),
        (DataError, "There is no word '' in the target vocabulary", {"method": "gradient", "against": ""}),
        (DataError, "There is no word '<s>'", {"method": "gradient", "against": "<s>"}),
        (ConfigError, "does not depend on the word", {"method": "alti", "against": "le"}),
        (ConfigError, "A layer and a head are for", {"method": "alti:1"}),
        (ConfigError, "A layer and a head are for", {"method": "attention:x"}),
        (ConfigError, "There is no layer 5", {"method": "attention:5"}),
        (DataError, "leave out the what-ifs", {"method": "gradient", "changes": [Mask("cat")]}),
    ):
        with pytest.raises(error, match=match) as caught:
            translator.attribute(**{"source": TEXT, **arguments})
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="needs a method"):
        translator.look(TEXT, against="le")


@pytest.mark.parametrize("words", [1, 120, pytest.param(500, marks=pytest.mark.slow)])
def test_short_and_long_sentences_are_attributed(words):
    translator = trained.translator("copy")  # word by word
    text = " ".join(["ba"] * words)
    for method in ("attention", "gradient", "occlusion-masked", "occlusion-removed"):
        found = translator.attribute(text, "ba de", method)
        assert found.matrix.shape == (3, words + 1)
        assert np.isfinite(found.matrix).all()


@pytest.mark.parametrize("words", [1, 40, pytest.param(500, marks=pytest.mark.slow)])
def test_long_sentences_go_through_the_layers_of_a_transformer(words):
    translator, text = trained.translator("heads"), " ".join(["the"] * words)
    for method in ("rollout", "alti", "gradient"):
        found = translator.attribute(text, text, method)
        assert found.matrix.shape == (words + 1, words + 1)
        assert np.isfinite(found.matrix).all()
    if words == 500:
        with pytest.raises(DataError, match=r"501 source and 501 target tokens would take hours; use the method grad"):
            translator.attribute(text, text, "integrated-gradients")
