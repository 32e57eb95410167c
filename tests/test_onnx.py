"""Models as ONNX graphs: onnxruntime computes the same numbers over whole sentences, whatever their size."""

import json
from dataclasses import replace

import pytest
import torch

from regard.interop.onnx import Encoder, Step, export_onnx
from regard.models.registry import MODELS, build
from regard.symbols import END, START

WORDS = 23
SMALL = {"width": 16, "heads": 4, "inner": 24, "layers": 1, "embedding": 8, "annotation": 10}
CASES = [
    *(("transformer", variant) for variant in ("tiny", "marian", "modern", "additive-sparsemax")),
    *((name, "tiny") for name in ("bahdanau", "coverage", "luong", "pointer")),
    *(("britz", variant) for variant in ("tiny", "residual", "dense")),
]


def batch_of(rows, words, seed):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.full((rows,), words)
    lengths[0] = max(1, words - 1)
    source = torch.randint(4, WORDS, (rows, words), generator=draw)
    source[torch.arange(rows), lengths - 1] = END
    return source.masked_fill(torch.arange(words) >= lengths[:, None], 0), lengths


def model_of(name, variant):
    entry = MODELS[name]
    config = {"tiny": entry.presets["tiny"], **entry.variants}[variant]
    sizes = {"source_vocabulary": WORDS, "target_vocabulary": WORDS}
    torch.manual_seed(1)
    model = build(name, replace(config, **sizes, **{key: SMALL[key] for key in SMALL if hasattr(config, key)})).eval()
    for weight_name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, float("norm.weight" in weight_name), 0.4)
    return model


@pytest.mark.parametrize(("name", "variant"), CASES)
@torch.no_grad()
def test_the_modules_that_are_exported_compute_what_the_model_does(name, variant):
    """What torch traces: the state as a flat list of tensors in and out, with the weights of one attention."""
    model = model_of(name, variant)
    source, lengths = batch_of(2, 5, seed=1)
    state = model.start(model.encode(source, lengths))
    parts = Encoder(model)(source, lengths)
    token = torch.full((2,), START)
    for _ in range(3):
        logits, after = model.step(token, state)
        ours, weights, *parts = Step(model, state, model.attention_layout.cross[-1])(token, tuple(parts))
        assert torch.allclose(ours, logits, atol=1e-6)
        assert weights.shape[::2] == (2, 5)
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:2]), atol=1e-5)
        state, token = after, logits.argmax(-1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_onnxruntime_computes_the_same_over_whole_sentences(name, variant, tmp_path):
    """Batches of other sizes than the example's, from an empty past on; also the weights of the attention."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install regard[onnx])")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install regard[onnx])")
    model = model_of(name, variant)
    attention = model.attention_layout.cross[-1]
    export_onnx(model, tmp_path / "model", {}, attention)
    encoder, step = (
        onnxruntime.InferenceSession(str(tmp_path / "model" / f"{part}.onnx"), providers=["CPUExecutionProvider"])
        for part in ("encoder", "step")
    )
    about = json.loads((tmp_path / "model" / "model.json").read_bytes())
    names = [part["name"] for part in about["state"]]
    taken = {one.name for one in step.get_inputs()}
    for rows, words in ((1, 4), (2, 9), (4, 3)):
        source, lengths = batch_of(rows, words, seed=rows)
        with torch.no_grad():
            state = model.start(model.encode(source, lengths))
            parts = encoder.run(names, {"source": source.numpy(), "lengths": lengths.numpy()})
            token = torch.full((rows,), START)
            for _ in range(6):
                logits, state = model.step(token, state)
                given = {"token": token.numpy(), **dict(zip(names, parts, strict=True))}
                theirs, weights, *parts = step.run(None, {key: part for key, part in given.items() if key in taken})
                assert (logits - torch.from_numpy(theirs)).abs().max() < 1e-4
                assert weights.shape[0] == rows
                assert weights.sum(-1) == pytest.approx(1.0, abs=1e-4)
                token = logits.argmax(-1)
