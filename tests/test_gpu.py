"""On a GPU: the same answers as on the CPU, for every model, with fused kernels, recorded, and in bfloat16."""

import dataclasses

import pytest
import torch

from regard.kernels.lstm import lstm_cell
from regard.layers.recurrent import StackedLSTM
from regard.look.record import record
from regard.models.registry import MODELS, build

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

TRANSLATORS = [name for name, found in MODELS.items() if found.task == "translate"]


def ready(name):
    torch.manual_seed(3)
    config = dataclasses.replace(MODELS[name].presets["tiny"], source_vocabulary=13, target_vocabulary=13)
    model = build(name, config).eval()
    for weights in model.parameters():  # away from the zeros of the initialisation, where every look is the same
        torch.nn.init.normal_(weights, std=0.2)
    source = torch.tensor([[5, 6, 7, 8, 2], [4, 9, 2, 0, 0], [11, 2, 0, 0, 0]])
    target = torch.tensor([[4, 5, 6, 2], [9, 2, 0, 0], [7, 8, 2, 0]])
    return model, (source, torch.tensor([5, 3, 2]), target)


def run(model, batch):
    model.train()  # the library kernels of an LSTM have a gradient in training mode only; no tiny preset drops anything
    logits = model(*batch)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[2].flatten(), ignore_index=0)
    return logits, torch.autograd.grad(loss, [w for w in model.parameters() if w.requires_grad], allow_unused=True)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_logits_and_gradients_are_those_of_the_cpu(name):
    model, batch = ready(name)
    plain, slopes = run(model, batch)
    there, there_slopes = run(model.cuda(), [part.cuda() for part in batch])
    real = batch[2] != 0
    torch.testing.assert_close(there.cpu()[real], plain[real], atol=2e-3, rtol=2e-3)
    for slope, other in zip(slopes, there_slopes, strict=True):
        if slope is not None:
            torch.testing.assert_close(other.cpu(), slope, atol=2e-3, rtol=2e-2)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_recording_changes_nothing_but_rounding(name):
    model, batch = ready(name)
    model, batch = model.cuda(), [part.cuda() for part in batch]
    with torch.no_grad():
        fused = model(*batch)
        with record(model) as seen:
            plain = model(*batch)
    real = batch[2] != 0
    torch.testing.assert_close(fused[real], plain[real], atol=2e-3, rtol=2e-3)
    assert len(seen)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_step_in_bfloat16_is_finite_and_near(name):
    model, batch = ready(name)
    model, batch = model.cuda(), [part.cuda() for part in batch]
    exact = model(*batch)
    with torch.autocast("cuda", torch.bfloat16):
        rough, slopes = run(model, batch)
    assert all(torch.isfinite(slope).all() for slope in slopes if slope is not None)
    assert (rough.float() - exact).abs().max() < 0.1 * exact.abs().max() + 0.2


@pytest.mark.parametrize("lowered", [False, True], ids=["float32", "bfloat16"])
def test_the_lstm_cell_is_that_of_the_cpu(lowered):
    torch.manual_seed(4)
    here = torch.randn(5, 28, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    there = tuple(part.detach().cuda().requires_grad_() for part in here)
    kind = torch.bfloat16 if lowered else torch.float32
    with torch.autocast("cuda", torch.bfloat16, enabled=lowered):
        hidden, cell = lstm_cell(there[0].to(kind), there[1])
    expected_hidden, expected_cell = lstm_cell(here[0].to(kind).float(), here[1])
    assert hidden.dtype == cell.dtype == torch.float32  # the state keeps its precision
    torch.testing.assert_close(hidden.cpu(), expected_hidden)
    torch.testing.assert_close(cell.cpu(), expected_cell)
    (2 * hidden.sin() + cell.cos()).sum().backward()
    (2 * expected_hidden.sin() + expected_cell.cos()).sum().backward()
    for slope, other in zip(here, there, strict=True):
        torch.testing.assert_close(other.grad.cpu(), slope.grad, **({"atol": 2e-2, "rtol": 2e-2} if lowered else {}))


def test_library_kernels_of_a_recurrent_net_keep_float32_in_bfloat16():
    stack = StackedLSTM(6, 6, 2, 0.0).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        states, last = stack.read(torch.randn(2, 3, 6, device="cuda"), torch.tensor([3, 2], device="cuda"))
    assert states.dtype == last.hidden.dtype == last.cell.dtype == torch.float32
