"""Models of other libraries are recorded, or refused in a sentence; their outputs become traces."""

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard.errors import ConfigError, DataError


class Reader(nn.Module):
    """A model with torch's own attention, as a user writes one."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)

    def forward(self, query, states, **options):
        return self.attention(query, states, states, **options)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
def test_torch_attention_is_recorded_and_returns_what_it_would(batch_first, options):
    model = Reader(batch_first).eval()
    query, states = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    inputs = (query, states) if batch_first else (query.transpose(0, 1), states.transpose(0, 1))
    plain = model(*inputs, **options)
    with regard.record(model) as seen:
        looked = model(*inputs, **options)
    torch.testing.assert_close(looked, plain)
    one = seen["attention"]
    expected = model(*inputs, average_attn_weights=False)[1]  # [B, H, T, S]
    torch.testing.assert_close(one.weights, expected)
    assert (one.context.shape, one.query.shape) == ((2, 3, 8), (2, 3, 8))
    torch.testing.assert_close(one.scores.softmax(-1), expected)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_torch_encoder_layers_are_recorded():
    """Also in eval mode, where torch would take a fused path."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 4, 8)
    with torch.no_grad(), regard.record(model) as seen:
        model(x)
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert seen["layers.1.self_attn"].weights.shape == (2, 2, 4, 4)


def test_a_model_without_attention_is_refused():
    with pytest.raises(ConfigError, match="Linear holds no attention"), regard.record(nn.Linear(2, 2)):
        pass


# --- transformers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed (pip install transformers)")


def gpt(transformers, kind="eager"):
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=8, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2, attn_implementation=kind
    )
    return transformers.GPT2LMHeadModel(config).eval()


def marian(transformers):
    torch.manual_seed(1)
    config = transformers.MarianConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=32, pad_token_id=19,
        decoder_start_token_id=19, eos_token_id=0, forced_eos_token_id=None, attn_implementation="eager",
    )  # fmt: skip
    return transformers.MarianMTModel(config).eval()


@torch.no_grad()
def test_transformers_models_are_recorded(transformers):
    ids = torch.tensor([[3, 4, 5, 6]])
    model = gpt(transformers)
    with regard.record(model) as seen:
        attentions = model(ids, output_attentions=True).attentions
    assert list(seen) == ["transformer.h.0.attn", "transformer.h.1.attn"]
    for one, expected in zip(seen.values(), attentions, strict=True):
        torch.testing.assert_close(one.weights, expected)
    model = marian(transformers)
    with regard.record(model) as seen:
        outputs = model(ids, decoder_input_ids=torch.tensor([[19, 7, 8]]), output_attentions=True)
    torch.testing.assert_close(seen["model.decoder.layers.1.encoder_attn"].weights, outputs.cross_attentions[1])


@torch.no_grad()
def test_fused_attention_of_transformers_is_refused(transformers):
    model = gpt(transformers, "sdpa")
    with pytest.raises(ConfigError, match="attn_implementation='eager'"), regard.record(model):
        model(torch.tensor([[3, 4, 5]]))
    assert not any(module._forward_hooks for module in model.modules())


@torch.no_grad()
@pytest.mark.parametrize("beams", [1, 3])
def test_generated_sequences_come_as_they_are(transformers, beams):
    """The start symbol and what pads a shorter hypothesis are left out."""
    model, ids = marian(transformers), torch.tensor([[3, 4, 5, 0]])
    options = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False}
    found = model.generate(ids, **options, output_attentions=True, return_dict_in_generate=True)
    tokens = [f"w{index}" for index in found.sequences[0].tolist()]
    trace = regard.Trace.from_huggingface(found, ["a", "b", "c", "</s>"], tokens)
    weights = trace.attention["layers.1"].weights  # [H, T, S]
    assert trace.target.tokens[0].text == tokens[1]
    again = model(ids, decoder_input_ids=found.sequences[:, :-1], output_attentions=True).cross_attentions[1][0]
    assert np.abs(weights - again[:, : weights.shape[1]].numpy()).max() < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("beams", [1, 3])
def test_a_generation_with_fused_attention_is_refused(transformers, beams):
    """It gives a tuple of no layers for every step."""
    options = {"max_new_tokens": 3, "num_beams": beams, "output_attentions": True, "return_dict_in_generate": True}
    found = gpt(transformers, "sdpa").generate(torch.tensor([[1, 4, 5]]), **options)
    with pytest.raises(DataError, match="attn_implementation='eager'"):
        regard.Trace.from_huggingface(found, [f"w{index}" for index in found.sequences[0].tolist()])


@torch.no_grad()
def test_a_model_without_an_encoder_becomes_a_trace(transformers):
    model, ids = gpt(transformers), torch.tensor([[1, 4, 5]])
    found = model.generate(ids, max_new_tokens=4, do_sample=False, output_attentions=True, return_dict_in_generate=True)
    tokens = [f"w{index}" for index in found.sequences[0].tolist()]
    generated = regard.Trace.from_huggingface(found, tokens)
    forward = regard.Trace.from_huggingface(model(found.sequences, output_attentions=True), tokens)
    assert [token.text for token in forward.target.tokens] == tokens[1:]
    for name, seen in forward.attention.items():
        assert seen.kind == "decoder"
        assert np.abs(seen.weights - generated.attention[name].weights).max() < 1e-5
    with pytest.raises(DataError, match="leave the target out"):
        regard.Trace.from_huggingface(found, tokens, tokens)
    with pytest.raises(DataError, match="hold no weights"):
        regard.Trace.from_huggingface(model(ids), tokens)
