"""On a GPU: the same answers as on the CPU, for every model, with fused kernels, recorded, and in bfloat16; updates
captured as CUDA graphs are those that run plainly."""

import copy
import dataclasses
import gc
import math
from typing import NamedTuple

import pytest
import small
import torch

from regard.api.training import gather
from regard.core.products import Linear, weight_gradient
from regard.data.batching import Batch, pack
from regard.data.text_corpus import TextBatch
from regard.decode.rules import MANY_ROWS, best
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.kernels.choose import lstm, refused
from regard.kernels.graphs import Recorded
from regard.kernels.step_model import CastLinear
from regard.layers.recurrent import StackedLSTM
from regard.look.attribution import attribute, methods_of
from regard.look.case import Case
from regard.look.record import record
from regard.models.registry import MODELS, build
from regard.runs.experiment import resolve
from regard.runs.settings import TrainConfig
from regard.training.caption_data import CaptionBatch
from regard.training.distributed import Ranks
from regard.training.events import Skipped, Stepped, Validated
from regard.training.loop import pinned, seed_everything
from regard.training.objectives import (
    consistent_likelihood,
    likelihood,
)
from regard.training.start import train
from regard.training.task import Loss, Task
from regard.training.update import DelayedNumbers, MicroBatch, Update, arithmetic

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

TRANSLATORS = [name for name, found in MODELS.items() if found.task == "translate"]


def ready(name):
    torch.manual_seed(3)
    config = dataclasses.replace(MODELS[name].presets["tiny"], source_vocabulary=13, target_vocabulary=13)
    if name == "monotonic":
        config = dataclasses.replace(config, noise=0.0, test="expectation")  # training as it is without chance
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
def test_attributions_are_those_of_the_cpu(name):
    """Every row is another backward pass through the same graph, and steps under a change have other kernels."""
    model, (source, _, target) = ready(name)
    case = Case(model, source[0], target[0], steps=12)
    here = {method: attribute(case, method).values for method in methods_of(model)}
    model.cuda()
    there = dataclasses.replace(case, source=case.source.cuda(), target=case.target.cuda())
    for method, values in here.items():
        found = attribute(there, method).values.to(values)
        torch.testing.assert_close(found, values, atol=5e-3, rtol=2e-2, msg=lambda text, method=method: method + text)


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
    here = [torch.randn(5, wide, requires_grad=True) for wide in (28, 28, 7)]
    there = tuple(part.detach().cuda().requires_grad_() for part in here)
    kind = torch.bfloat16 if lowered else torch.float32
    with torch.autocast("cuda", torch.bfloat16, enabled=lowered):
        hidden, cell = lstm(there[0].to(kind), there[1].to(kind), there[2])
    expected_hidden, expected_cell = lstm(here[0].to(kind).float(), here[1].to(kind).float(), here[2])
    assert hidden.dtype == cell.dtype == torch.float32  # the state keeps its precision
    torch.testing.assert_close(hidden.cpu(), expected_hidden)
    torch.testing.assert_close(cell.cpu(), expected_cell)
    (2 * hidden.sin() + cell.cos()).sum().backward()
    (2 * expected_hidden.sin() + expected_cell.cos()).sum().backward()
    for slope, other in zip(here, there, strict=True):
        torch.testing.assert_close(other.grad.cpu(), slope.grad, **({"atol": 2e-2, "rtol": 2e-2} if lowered else {}))


def test_the_state_of_a_recurrent_net_keeps_float32_in_bfloat16():
    stack = StackedLSTM(6, 6, 2, 0.0).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        states, last = stack(torch.randn(2, 3, 6, device="cuda"), stack.start(2), torch.tensor([3, 2], device="cuda"))
    assert {part.dtype for part in (states, *last.hidden, *last.cell)} == {torch.float32}


# --- updates: captured as CUDA graphs, and plain ----------------------------------------------------------------------


class FewBatches(Task):
    """A task of three batches of two shapes, for any registered model."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, MODELS[name].task
        torch.manual_seed(5)
        self.batches = [self._batch(rows, length) for rows, length in ((4, 5), (3, 7), (4, 5))]

    def _batch(self, rows: int, length: int):
        target = torch.randint(4, 13, (rows, length))
        target[0, -2:] = torch.tensor([2, 0])
        lengths = (target != 0).sum(1)
        if self.kind == "translate":
            return Batch(torch.arange(rows), target.flip(1).clamp(min=2), torch.full((rows,), length), target, lengths)
        if self.kind == "language":
            return TextBatch(target, lengths)
        pictures = torch.rand(rows, 3, 48, 48)
        return CaptionBatch(pictures, torch.full((rows,), self.cells), target, lengths)

    cells = 36

    def count(self, batch):
        lengths = batch[-1]
        return int(lengths.sum()), len(lengths)

    def loss(self, model, batch):
        inputs = (batch.target,) if self.kind == "language" else (batch[-4], batch[-3], batch[-2])
        return Loss(likelihood(model, *inputs, smoothing=0.1)[0])


def settings_of(name):
    """The smallest preset with what the data decides; None where a model needs other data."""
    config = MODELS[name].presets["tiny"]
    sizes = {"source_vocabulary": 13, "target_vocabulary": 13, "vocabulary": 13}
    fields = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{key: size for key, size in sizes.items() if key in fields})


def updates(name, precision, capture, steps=8, dropout=0.0, batches=FewBatches):
    """The numbers of some updates, the weights afterwards, and the `Update` that made them."""
    torch.manual_seed(3)
    config = settings_of(name)
    if hasattr(config, "dropout"):
        config = dataclasses.replace(config, dropout=dropout)
    task, ranks = batches(name), Ranks(torch.device("cuda"))
    make = Update(build(name, config).cuda(), TrainConfig(precision=precision, rate=0.01), ranks, capture)
    late, found = DelayedNumbers(ranks.device), []
    with arithmetic(precision):
        for step in range(steps):
            seed_everything(1, step, 0)
            batch = task.batches[step % 3]
            part = MicroBatch([step], pinned(batch), *task.count(batch))
            found += late(step, make(task, [part], 0.01 / (1 + step), lambda: (False, False)))
    found += late.read()
    return [numbers for _, numbers in found], [weight.detach().clone() for weight in make.weights], make


CAPTURED = [name for name, found in MODELS.items() if found.task != "classify"]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", CAPTURED)
def test_captured_updates_are_the_plain_ones(name, precision):
    """Without dropout the same kernels run in the same order; atomic additions of embeddings may round differently."""
    plain, weights, _ = updates(name, precision, capture=False)
    captured, others, make = updates(name, precision, capture=True)
    assert make.refusal == ""
    assert len(make.graphs.graphs) == 2
    near = 1e-4 if precision == "float32" else 2e-2
    assert [found.loss for found in captured] == pytest.approx([found.loss for found in plain], rel=near)
    assert [found.norm for found in captured] == pytest.approx([found.norm for found in plain], rel=10 * near)
    assert plain[6].loss != plain[0].loss  # of the same batch, after some updates
    one, other = (torch.cat([weight.flatten() for weight in found]) for found in (weights, others))
    assert (one - other).norm() < 10 * near * one.norm()  # not each by itself: Adam follows the sign of any rounding


class PackedBatches(FewBatches):
    """The same batches, end to end."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.batches = [pack(batch, 40) for batch in self.batches]

    def count(self, batch):
        return int((batch.target != 0).sum()), len(batch.queries)

    def loss(self, model, batch):
        return Loss(likelihood(model, batch, smoothing=0.1)[0])


@pytest.mark.parametrize("capture", [False, True], ids=["plain", "captured"])
def test_sentences_end_to_end_have_the_losses_of_padded_ones(capture):
    padded, weights, _ = updates("transformer", "bf16", capture=capture)
    packed, others, make = updates("transformer", "bf16", capture=capture, batches=PackedBatches)
    assert make.refusal == ""
    assert [found.loss for found in packed] == pytest.approx([found.loss for found in padded], rel=2e-2)
    one, other = (torch.cat([weight.flatten() for weight in found]) for found in (weights, others))
    assert (one - other).norm() < 0.2 * one.norm()


class Agreeing(FewBatches):
    """The same batches; two passes shall agree."""

    def loss(self, model, batch):
        inputs = batch.source, batch.source_lengths, batch.target
        return Loss(consistent_likelihood(model, *inputs, weight=2.0, smoothing=0.1))


class AgreeingPacked(PackedBatches):
    """The same, end to end."""

    def loss(self, model, batch):
        return Loss(consistent_likelihood(model, batch, weight=2.0, smoothing=0.1))


@pytest.mark.parametrize("batches", [Agreeing, AgreeingPacked])
def test_two_passes_that_shall_agree_are_captured(batches):
    plain, weights, _ = updates("transformer", "bf16", capture=False, batches=Agreeing)
    found, others, make = updates("transformer", "bf16", capture=True, batches=batches)
    assert make.refusal == ""
    assert [update.loss for update in found] == pytest.approx([update.loss for update in plain], rel=2e-2)
    one, other = (torch.cat([weight.flatten() for weight in part]) for part in (weights, others))
    assert (one - other).norm() < 0.2 * one.norm()


# --- decoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_captured_decoding_finds_what_the_cpu_finds(name, beam):
    model, (source, lengths, _) = ready(name)
    settings = DecodeConfig(beam=beam, max_extra=6)
    with torch.inference_mode():
        here = decode(model, source, lengths, settings)
        there = decode(model.cuda(), source.cuda(), lengths.cuda(), settings)
        again = decode(model, source.cuda(), lengths.cuda(), settings)  # by the same graph
    assert model not in refused
    for ours, theirs, replayed in zip(here, there, again, strict=True):
        assert theirs[0].ids == replayed[0].ids
        assert theirs[0].logprob == pytest.approx(ours[0].logprob, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("capture", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_search_between_updates_uses_the_new_weights(name, capture, precision):
    _, _, make = updates(name, precision, capture)
    source, lengths = torch.tensor([[5, 6, 7, 8, 2]], device="cuda"), torch.tensor([5], device="cuda")
    settings = DecodeConfig(beam=1, max_ratio=0.0, max_extra=3, precision=precision)

    def search(model):
        with torch.inference_mode():
            return decode(model.eval(), source, lengths, settings)[0][0].logprob

    before = search(make.model)
    for step in range(8):
        batch = make.task.batches[step % 3]
        part = MicroBatch([step], pinned(batch), *make.task.count(batch))
        make(make.task, [part], 0.05, lambda: (False, False))
    after = search(make.model)
    assert after != pytest.approx(before, abs=0.02)
    assert after == pytest.approx(search(copy.deepcopy(make.model)), abs=0.02)


def test_graphs_are_captured_after_all_others_are_gone():
    for _ in range(3):
        model, (source, lengths, _) = ready("transformer")
        model.cuda()
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            decode(model, source.cuda(), lengths.cuda(), DecodeConfig(beam=2))
        assert model not in refused
        del model
        gc.collect()


def test_the_best_tokens_of_many_rows_are_those_of_topk():
    values = torch.randn(MANY_ROWS, 64 * 40 + 5, device="cuda")
    for found, wanted in zip(best(values, 5), values.topk(5), strict=True):
        assert torch.equal(found, wanted)


def test_captured_dropout_follows_the_seed_of_the_step():
    plain, _, _ = updates("transformer", "float32", capture=False, dropout=0.3)
    captured, _, make = updates("transformer", "float32", capture=True, dropout=0.3)
    assert make.refusal == ""
    assert [found.loss for found in captured] == pytest.approx([found.loss for found in plain], rel=1e-4)


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "adadelta", "sgd", "rmsprop"])
@pytest.mark.parametrize("capture", [False, True], ids=["plain", "captured"])
def test_an_update_that_is_not_finite_changes_nothing(optimiser, capture):
    """Bad updates before, at and after the recording; what is left is as if they had never been."""
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 2).cuda()
    config = TrainConfig(optimiser=optimiser, rate=0.01, momentum=0.5, clip=0.5)
    rows = [torch.randn(4, 3) for _ in range(9)]

    class Rows(NamedTuple):
        x: torch.Tensor

    class Squares(Task):
        def __init__(self):
            pass

        def loss(self, model, batch):
            return Loss(model(batch.x).square().sum())

    def run(model, bad, made):
        make = Update(model, config, Ranks(torch.device("cuda")), capture)
        for step in made:
            row = rows[step] * (math.nan if step in bad else 1.0)
            make(Squares(), [MicroBatch([step], Rows(row.pin_memory()), 4, 4)], 0.01, lambda: (False, False))

    bad, other = {0, 2, 6}, copy.deepcopy(model)
    run(model, bad, range(9))
    run(other, (), sorted(set(range(9)) - bad))
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


def test_work_that_asks_the_device_runs_plainly_and_says_so():
    weight = torch.ones(3, device="cuda")

    def asking(x):
        return torch.nn.functional.dropout(x, 0.5) * float(weight.sum())

    work = Recorded(asking, torch.device("cuda"))
    for _ in range(5):
        torch.manual_seed(1)
        found = work(torch.ones(4))
        torch.manual_seed(1)
        torch.testing.assert_close(found, asking(torch.ones(4, device="cuda")))
    assert work.refusal


def test_the_least_recently_used_graph_is_dropped():
    work = Recorded(lambda x: x * 2, torch.device("cuda"), most=2)
    for size in (1, 2, 3) * 4:
        assert work(torch.full((size,), float(size))).tolist() == [2.0 * size] * size
    assert len(work.graphs) == 2


def test_graphs_that_are_garbage_are_not_freed_while_another_is_recorded():
    device, ones = torch.device("cuda"), torch.ones(3)
    before = gc.get_threshold()
    gc.set_threshold(1)  # so that any allocation begins a search

    def work(x):
        some = [[] for _ in range(1000)]
        return x * len(some)

    try:
        for _ in range(3):
            recorded = Recorded(work, device)
            recorded.cycle = recorded  # so that the last reference is not the end of it
            for _ in range(4):
                assert recorded(ones).tolist() == [1000.0] * 3
            assert not recorded.refusal
            assert len(recorded.graphs) == 1
    finally:
        gc.set_threshold(*before)


def test_gradients_of_several_batches_are_captured_too():
    found = {}
    for capture in (False, True):
        torch.manual_seed(3)
        model, task = build("bahdanau", settings_of("bahdanau")).cuda(), FewBatches("bahdanau")
        make = Update(model, TrainConfig(accumulate=3, rate=0.01), Ranks(torch.device("cuda")), capture)
        parts = [MicroBatch([0], pinned(batch), *task.count(batch)) for batch in task.batches]
        found[capture] = [make(task, parts, 0.01, lambda: (False, False)).tolist() for _ in range(4)]
        assert not make.refusal
    assert found[True] == [pytest.approx(row, rel=1e-4) for row in found[False]]


@pytest.mark.parametrize("settings", [(), ("train.accumulate=2",), ("train.capture=false",)], ids=str)
def test_a_run_reports_every_update_in_order_and_learns(settings, tmp_path):
    more = ("train.device=cuda", "train.epochs=12", "train.rate=0.02", "train.batch_tokens=128", "train.save_every=7")
    events, threads, before = [], set(), torch.get_num_threads()

    def observe(event):
        events.append(event)
        threads.add(torch.get_num_threads() if isinstance(event, Stepped) else 1)

    assert small.train("bahdanau", tmp_path / "run", *more, *settings, observe=observe) == "done"
    assert (threads, torch.get_num_threads()) == ({1}, before)  # the host's tensors are small
    steps = [event for event in events if isinstance(event, Stepped)]
    assert [event.step for event in steps] == list(range(1, steps[-1].total + 1))
    assert steps[-1].loss < steps[0].loss
    assert not [event for event in events if isinstance(event, Skipped)]
    assert all(math.isfinite(event.metrics["loss"]) for event in events if isinstance(event, Validated))


@pytest.mark.parametrize(
    ("name", "bound"), [("lstm-lm", ()), ("lstmn-lm", ("model.span=5",)), ("attentive-lm", ("model.window=5",)),
                        ("transformer-lm", ("model.window=5",))],
)  # fmt: skip
def test_the_states_of_streams_are_carried_by_captured_updates(name, bound, tmp_path):
    settings = ["data.size=40", "data.held_out=4", "data.subwords=word", "data.context=7", "data.streams=3", *bound]
    found = {}
    for capture in ("false", "true"):
        more = ["model.dropout=0", "train.device=cuda", "train.epochs=3", "train.precision=float32"]
        experiment = resolve(gather(None, name, "tiny", [*settings, *more, f"train.capture={capture}"], corpus="tales"))
        events = []
        train(experiment, tmp_path / capture, events.append)
        found[capture] = [event.loss for event in events if isinstance(event, Stepped)]
    assert len(found["true"]) > 60
    assert found["true"][:40] == pytest.approx(found["false"][:40], rel=1e-3)


@pytest.mark.parametrize("width", [7, 8, 620])
def test_products_of_any_width_are_the_plain_ones(width: int) -> None:
    """Rows that a GPU does not read well are padded: in training, and in the steps of a search."""
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(width, 24).cuda(), torch.randn(50, 30, width, device="cuda", requires_grad=True)
    ours = Linear(width, 24).cuda()
    ours.load_state_dict(linear.state_dict())
    results = []
    for layer in (linear, ours):
        x.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x)
        (y.float() - 1).square().sum().backward()
        results.append([y, x.grad, layer.weight.grad, layer.bias.grad])
    for plain, found in zip(*results, strict=True):
        assert (found.shape, found.dtype) == (plain.shape, plain.dtype)
        torch.testing.assert_close(found, plain, rtol=2**-6, atol=2**-6 * float(plain.detach().abs().max()))
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(CastLinear(linear)(x), results[0][0], rtol=2**-6, atol=2**-6)


def test_gradients_of_weights_are_added_up_in_float32() -> None:
    torch.manual_seed(0)
    d, x = torch.randn(2, 4096, 16, device="cuda", dtype=torch.bfloat16)
    total = weight_gradient(d[:2048], x[:2048], torch.float32)
    total = weight_gradient(d[2048:], x[2048:], torch.float32, total)
    torch.testing.assert_close(total.double(), d.double().T @ x.double(), rtol=1e-4, atol=1e-3)
