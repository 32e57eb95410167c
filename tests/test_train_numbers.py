"""The arithmetic of training: what is not finite, clipping, accumulation, schedules, the best, the average, the end."""

import contextlib
import dataclasses
import json
import math

import pytest
import small
import torch
from commands import metrics
from test_train_resume import state_of

from regard.decode.hypothesis import Hypothesis
from regard.errors import ConfigError, DataError, TrainingError
from regard.models.registry import MODELS, preset
from regard.runs.cursor import BLIND, Cursor
from regard.runs.folder import average_weights, checkpoints, newest_checkpoint, read_cursor, read_tensors, withdraw
from regard.runs.settings import TrainConfig
from regard.runs.weights import weights_of
from regard.training import translation
from regard.training.distributed import Ranks
from regard.training.events import DataReady, Finished, Journal, Noticed, Saved, Skipped, Stepped, Validated
from regard.training.loop import PATIENCE_WITH_NAN, grouped
from regard.training.notices import equal_passes, few_in_time, few_updates
from regard.training.optimisers import OPTIMISERS, clip, make_optimiser, plain_optimiser, step_if
from regard.training.schedules import SCHEDULES, Moment
from regard.training.start import prepare
from regard.training.task import Validation
from regard.training.update import Update, arithmetic, host_threads


class Spoiled:
    """A task around another, whose loss or gradient is spoiled in the updates of the given steps."""

    def __init__(self, task, steps, kind: str) -> None:
        self.task, self.steps, self.kind = task, set(steps), kind
        self.step = 0
        self.measures = None  # what validations measure, where that is prescribed

    def __getattr__(self, name):
        return getattr(self.task, name)

    def loss(self, model, batch):
        self.step += 1
        loss = self.task.loss(model, batch)
        if self.step not in self.steps:
            return loss
        if self.kind == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if self.kind == "cpu memory":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")
        if self.kind == "gradient":  # a finite loss whose gradient is not
            weight = next(iter(model.parameters()))
            return loss._replace(total=loss.total + (weight.flatten()[0] * 0.0).sqrt())
        return loss._replace(total=loss.total * {"nan": math.nan, "inf": math.inf}[self.kind])

    def validate(self, model):
        if self.measures is None:
            return self.task.validate(model)
        return Validation(dict(next(self.measures)), [])


def make_loop(run, *settings, observe=None, steps=(), kind="nan", model="bahdanau", corpus="reverse"):
    """A loop of a small run whose task can be spoiled, as `begin.train` makes it."""
    run.mkdir(parents=True, exist_ok=True)
    experiment = small.experiment(model, *settings, corpus=corpus)
    (run / "config.toml").write_text(experiment.toml(), encoding="utf-8")
    loop = prepare(experiment, run, Ranks(torch.device("cpu")), None, None)
    loop.observe = observe or (lambda event: None)
    loop.task = Spoiled(loop.task, steps, kind)
    return loop


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient", "memory", "cpu memory"])
def test_an_update_that_is_not_finite_is_left_out_and_its_sentences_are_named(kind, tmp_path):
    events, weights = [], {}

    def observe(event):
        events.append(event)
        if isinstance(event, Stepped | Skipped):
            weights[event.step] = {name: tensor.clone() for name, tensor in weights_of(loop.model).items()}

    loop = make_loop(tmp_path / "run", "train.steps=8", observe=observe, steps=(3, 5), kind=kind)
    planned = [loop.task.plan(0)[place].tolist() for place in range(5)]
    assert loop.run() == "done"
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert [(event.step, event.examples) for event in skipped] == [(3, planned[2]), (5, planned[4])]
    reason = "out of memory" if "memory" in kind else "loss or gradient not finite"
    assert {event.reason for event in skipped} == {reason}
    logged = [line for line in metrics(tmp_path / "run") if "skipped" in line]
    assert [line["examples"] for line in logged] == [planned[2], planned[4]]
    assert logged[0]["lines"] == loop.task.lines(planned[2])
    assert all(line > 0 for line in logged[0]["lines"])
    for step in range(2, 9):
        same = all(torch.equal(tensor, weights[step - 1][name]) for name, tensor in weights[step].items())
        assert same == (step in (3, 5)), step
    assert [line["step"] for line in metrics(tmp_path / "run") if "loss" in line] == [1, 2, 4, 6, 7, 8]


def test_it_gives_up_after_a_while_and_saves_nothing_bad(tmp_path):
    run = tmp_path / "run"
    loop = make_loop(run, "train.steps=100", "train.save_every=3", steps=range(5, 99))
    with pytest.raises(TrainingError) as caught:
        loop.run()
    last = 4 + PATIENCE_WITH_NAN
    assert str(caught.value).startswith(
        f"Training stopped at step {last}: loss or gradient not finite in {PATIENCE_WITH_NAN} updates in a row."
    )
    assert "train.rate" in str(caught.value)
    for folder in checkpoints(run):
        assert all(tensor.isfinite().all() for tensor in read_tensors(folder / "weights.safetensors").values())
        assert all(tensor.isfinite().all() for tensor in read_tensors(folder / "state.safetensors").values())
    assert read_cursor(newest_checkpoint(run)).skipped == 8  # of step 12: counted on after a resume
    again = make_loop(run, "train.steps=100", "train.save_every=3", steps=range(1, 99))
    with pytest.raises(TrainingError, match=f"at step {last}"):
        again.run()
    whole = make_loop(tmp_path / "lost", "train.steps=100", steps=range(1, 99), kind="memory")
    with pytest.raises(TrainingError, match=r"out of memory in 10 updates .* train\.batch_tokens"):
        whole.run()


def test_bad_updates_with_good_ones_between_do_not_stop_training(tmp_path):
    loop = make_loop(tmp_path / "run", "train.steps=30", steps=[step for step in range(1, 31) if step % 5])
    assert loop.run() == "done"
    assert loop.cursor.skipped == 0


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    run = tmp_path / "run"

    def observe(event):
        if isinstance(event, Stepped) and event.step == 6:
            with torch.no_grad():
                loop.parameters[0][0, 0] = math.inf

    loop = make_loop(run, "train.steps=20", "train.save_every=6", "train.validate_every=5", observe=observe)
    with pytest.raises(TrainingError, match="weights at step 6 are not finite and were not saved"):
        loop.run()
    assert [folder.name for folder in checkpoints(run)] == ["000005"]


def test_what_a_task_carries_goes_back_when_its_update_is_left_out(tmp_path):
    loop = make_loop(tmp_path / "run", "train.steps=4", steps=(2,))

    class Carrying(Spoiled):
        carried = 0.0

        sums = 1

        def tensors(self):
            return {"carried": torch.tensor(self.carried)}

        def carry(self, sums, sound):
            self.carried += float(sums) if sound else 0.0

        def loss(self, model, batch):
            loss = super().loss(model, batch)
            return loss._replace(sums=torch.tensor([math.nan if self.step in self.steps else 1.0]))

    loop.task = Carrying(loop.task.task, (2,), "nan")
    loop.run()
    assert loop.task.carried == 3
    newest = newest_checkpoint(tmp_path / "run")
    assert read_tensors(newest / "state.safetensors")["carried.carried"] == 3


def test_t1_6_clipping_keeps_the_direction_and_gives_the_norm():
    torch.manual_seed(1)
    gradients = [torch.randn(3, 5, dtype=torch.float64), torch.randn(7, dtype=torch.float64)]
    before = torch.cat([gradient.flatten() for gradient in gradients])
    norm = float(before.norm())
    for longest in (norm / 3, norm * (1 - 1e-9), norm, norm * 2, 0.0):
        some = [gradient.clone() for gradient in gradients]
        clip(some, norm, longest)
        after = torch.cat([gradient.flatten() for gradient in some])
        expected = longest if longest and longest < norm else norm
        assert float(after.norm()) == pytest.approx(expected, rel=1e-12)
        assert float(torch.dot(after, before) / after.norm() / before.norm()) == pytest.approx(1, abs=1e-12)
        if not longest or longest >= norm:
            assert torch.equal(after, before)


def test_a_requested_stop_saves_and_says_so(tmp_path):
    events = []
    loop = make_loop(tmp_path / "run", "train.steps=8", observe=events.append)
    loop.stop.requested = True
    assert loop.run() == events[-1].reason == "stopped"
    assert loop.cursor.step == 1
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["000001"]
    assert not (tmp_path / "run" / "manifest.json").exists(), "it is not finished"


def test_t1_6_the_loop_clips_the_gradient_of_the_mean(tmp_path):
    """With plain SGD at rate 1 the step is the gradient: its length is the smaller of the norm and the clip."""
    moved = {}
    for name, longest in (("free", 0.0), ("clipped", 0.125)):
        loop = make_loop(
            tmp_path / name, "train.steps=1", "train.optimiser=sgd", "train.rate=1.0", f"train.clip={longest}"
        )
        before = torch.cat([weight.detach().flatten() for weight in loop.parameters])
        loop.run()
        moved[name] = torch.cat([weight.detach().flatten() for weight in loop.parameters]) - before
    assert float(moved["free"].norm()) > 0.2
    assert float(moved["clipped"].norm()) == pytest.approx(0.125, rel=1e-4)
    assert torch.allclose(moved["clipped"] / 0.125, moved["free"] / moved["free"].norm(), atol=1e-4)


@pytest.mark.parametrize("normalise", ["tokens", "sentences"])
def test_accumulated_batches_are_one_batch(normalise, tmp_path):
    """Two halves of a batch accumulated give the update of the whole; the order of summing rounds differently."""
    settings = (
        "train.steps=1",
        "train.optimiser=sgd",
        "train.rate=1.0",
        "train.clip=0.0",
        f"train.normalise={normalise}",
    )
    whole = make_loop(tmp_path / "whole", *settings)
    halves = make_loop(tmp_path / "halves", *settings, "train.accumulate=2")
    numbers = whole.task.plan(0)[0]
    assert len(numbers) > 4
    for loop, batches in ((whole, [numbers]), (halves, [numbers[:3], numbers[3:]])):
        loop.task.plan = lambda epoch, even, batches=batches: batches
        loop.run()
    for one, other in zip(whole.parameters, halves.parameters, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    (one,), (other,) = (
        [line["loss"] for line in metrics(tmp_path / name) if "loss" in line] for name in ("whole", "halves")
    )
    assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("normalise", ["tokens", "sentences"])
def test_a_sentence_twice_in_a_batch_is_the_sentence_once(normalise, tmp_path):
    settings = (
        "train.steps=1",
        "train.optimiser=sgd",
        "train.rate=1.0",
        "train.clip=0.0",
        f"train.normalise={normalise}",
    )
    once, twice = (make_loop(tmp_path / name, *settings) for name in ("once", "twice"))
    first = once.task.plan(0)[0][:1]
    for loop, batch in ((once, first), (twice, first.repeat(2))):
        loop.task.plan = lambda epoch, even, batch=batch: [batch]
        loop.run()
    for one, other in zip(once.parameters, twice.parameters, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_an_epoch_that_accumulation_does_not_divide_ends_with_a_shorter_group():
    assert list(grouped(iter(range(7)), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(grouped(iter(range(6)), 3)) == [[0, 1, 2], [3, 4, 5]]
    assert list(grouped(iter(()), 3)) == []


def test_epochs_and_steps_say_how_long(tmp_path):
    for settings, steps, epochs in (
        (("train.epochs=2",), 12, 2),
        (("train.epochs=2", "train.accumulate=4"), 4, 2),
        (("train.steps=9", "train.epochs=1"), 9, 1),
        (("train.steps=3", "train.epochs=5"), 3, 0),
    ):
        loop = make_loop(tmp_path / "-".join(settings), *settings)
        assert loop.batches_an_epoch == 6
        assert loop.run() == "done"
        assert (loop.cursor.step, loop.cursor.epoch) == (steps, epochs)
        assert loop.total == steps
        seen = [line["step"] for line in metrics(loop.run_folder) if "loss" in line]
        assert seen == list(range(1, steps + 1))


def test_more_steps_go_on_with_a_finished_run(tmp_path):
    run = tmp_path / "run"
    small.train("bahdanau", run, "train.steps=5", "train.validate_every=100")
    first = state_of(run)
    events = []
    small.train("bahdanau", run, "train.steps=9", "train.validate_every=100", observe=events.append)
    assert [event.step for event in events if isinstance(event, Stepped)] == [6, 7, 8, 9]
    small.train("bahdanau", tmp_path / "whole", "train.steps=9", "train.validate_every=100")
    again, whole = state_of(run), state_of(tmp_path / "whole")
    assert again["files"][1:] == whole["files"][1:]  # the last weights and the optimiser
    assert first["files"] != again["files"]


def prescribed(run, measures, *settings):
    """Train with validations that measure what the test says; the loop, and the steps that were called the best."""
    events = []
    loop = make_loop(run, "train.validate_every=2", *settings, observe=events.append)
    loop.task.measures = iter(measures)
    reason = loop.run()
    return loop, reason, {event.step: event.by for event in events if isinstance(event, Validated) and event.best}


def test_patience_ends_training_and_the_best_is_published(tmp_path):
    run = tmp_path / "run"
    measures = [{"bleu": bleu, "loss": 1.0} for bleu in (1.0, 3.0, 2.0, 2.5, 2.9, 9.0)]
    loop, reason, best = prescribed(run, measures, "train.steps=40", "train.patience=3", "train.keep=1")
    assert reason == "patience"
    assert best == {2: "bleu", 4: "bleu"}
    assert loop.cursor.step == 10
    assert [folder.name for folder in checkpoints(run)] == ["000004", "000010"]  # the best is never pruned
    published, kept = (
        read_tensors(run / "weights.safetensors"),
        read_tensors(run / "checkpoints/000004/weights.safetensors"),
    )
    assert all(torch.equal(published[name], kept[name]) for name in kept)
    assert json.loads((run / "manifest.json").read_bytes())["steps"] == [4]


def test_the_loss_is_better_when_lower_and_decides_where_the_measure_is_equal(tmp_path):
    falling = [{"loss": loss} for loss in (3.0, 2.0, 2.5, 1.0)]
    assert prescribed(tmp_path / "a", falling, "train.steps=8")[2] == dict.fromkeys([2, 4, 8], "loss")
    pairs = (0.0, 3.0), (0.0, 2.0), (0.0, 2.5), (1.0, 9.0), (1.0, 8.0)
    equal = [{"bleu": bleu, "loss": loss} for bleu, loss in pairs]
    assert prescribed(tmp_path / "b", equal, "train.steps=10")[2] == {2: "loss", 4: "loss", 8: "bleu", 10: "loss"}


def test_the_host_of_a_gpu_keeps_to_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for device, expected in (("cuda", 1), ("cpu", 2)):
            with host_threads(torch.device(device)):
                assert torch.get_num_threads() == expected
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_measure_that_is_not_finite_is_never_the_best(tmp_path):
    odd = [{"loss": loss} for loss in (math.nan, math.inf, 2.0, math.nan)]
    loop, _, best = prescribed(tmp_path / "run", odd, "train.steps=8", "train.best_by=loss")
    assert best == {6: "loss"}
    assert loop.cursor.best == 2.0
    text = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text


def test_a_bleu_of_next_to_nothing_is_none(tmp_path):
    """Below one percent BLEU is noise: the loss decides."""
    noise = [{"bleu": bleu, "loss": loss} for bleu, loss in ((0.9, 5.0), (0.2, 4.0), (0.0, 3.0), (2.0, 9.0))]
    _, _, best = prescribed(tmp_path / "run", noise, "train.steps=8")
    assert best == {2: "loss", 4: "loss", 6: "loss", 8: "bleu"}


def notes(run, *settings):
    """The notes before the first update."""
    events = []
    run.mkdir()
    prepare(small.experiment("bahdanau", *settings), run, Ranks(torch.device("cpu")), events.append, None)
    (prepared,) = (event for event in events if isinstance(event, DataReady))
    return " ".join(prepared.notes)


def test_too_few_updates_to_learn_from_are_reported(tmp_path):
    said = notes(tmp_path / "few", "train.epochs=2")
    assert "only 12 updates in all" in said
    assert "a small corpus needs smaller batches (train.batch_tokens=8) and more epochs (train.epochs=50)" in said
    assert "needs a smaller model (--preset tiny), smaller" in notes(
        tmp_path / "wide", "train.epochs=2", "model.width=97"
    )
    chosen = notes(tmp_path / "chosen", "train.steps=2", "train.warmup=3")
    assert "updates in all" not in chosen, "who asks for that number knows it"
    assert "the learning rate rises over 3 updates" in chosen


def test_the_model_of_another_run_is_not_advised_to_be_smaller():
    wide = preset("bahdanau", "paper")
    for start, advised in (("", True), ("en-fr", False)):
        config = TrainConfig(minutes=1, start_from=start)
        assert ("--preset tiny" in few_in_time(5, config, wide)) == advised
        assert ("smaller batches" in few_in_time(5, config, wide)) == advised
        assert bool(few_updates(12, 6, config, wide)) == advised  # also where it is resumed


def test_the_rule_for_the_best_checkpoint_is_reported(tmp_path):
    bleu = (
        "the best checkpoint is the one with the highest BLEU on 2 validation sentences, and while that is below 1 the"
    )
    loss = "the best checkpoint is the one with the lowest loss on all validation examples (train.best_by)"
    assert bleu in notes(tmp_path / "bleu")
    assert loss in notes(tmp_path / "loss", "train.best_by=loss")
    assert loss in notes(tmp_path / "none", "train.validate_sentences=0")
    assert "best checkpoint" not in notes(tmp_path / "all", "data.held_out=0")


def test_two_equal_passes_are_reported(tmp_path):
    twice = ("train.steps=2", "train.consistency=5")
    assert "model.dropout is 0, so both passes are equal" in notes(tmp_path / "equal", *twice)
    assert "passes" not in notes(tmp_path / "dropout", *twice, "model.dropout=0.1")
    assert not equal_passes(TrainConfig(consistency=5.0), MODELS["monotonic"].presets["tiny"])  # it has noise


def test_without_held_out_sentences_the_last_weights_are_published(tmp_path):
    run = tmp_path / "run"
    small.train("bahdanau", run, "data.held_out=0", "train.epochs=2", "train.patience=1")
    published = read_tensors(run / "weights.safetensors")
    last = read_tensors(checkpoints(run)[-1] / "weights.safetensors")
    assert all(torch.equal(published[name], tensor) for name, tensor in last.items())
    assert not any("dev_loss" in line for line in metrics(run))
    assert read_cursor(checkpoints(run)[-1]).step == 12


def test_the_average_is_the_mean_of_the_newest(tmp_path):
    run = tmp_path / "run"
    settings = ("train.steps=10", "train.save_every=2", "train.keep=4", "train.average=3", "train.validate_every=100")
    small.train("bahdanau", run, *settings)
    assert [folder.name for folder in checkpoints(run)] == ["000004", "000006", "000008", "000010"]
    parts = [read_tensors(folder / "weights.safetensors") for folder in checkpoints(run)[-3:]]
    published = read_tensors(run / "weights.safetensors")
    for name, tensor in published.items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        assert torch.allclose(tensor.double(), mean, atol=1e-7)
        assert tensor.dtype == parts[0][name].dtype
    backwards = average_weights(reversed(checkpoints(run)[-3:]))
    assert all(torch.equal(backwards[name], tensor) for name, tensor in published.items())
    assert json.loads((run / "manifest.json").read_bytes())["steps"] == [6, 8, 10]


def test_a_damaged_checkpoint_does_not_get_into_an_average(tmp_path):
    run = tmp_path / "run"
    settings = ("train.steps=6", "train.save_every=2", "train.average=3", "train.validate_every=100")
    small.train("bahdanau", run, *settings)
    damaged = run / "checkpoints" / "000004" / "weights.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-2] ^= 64
    damaged.write_bytes(content)
    withdraw(run)
    with pytest.raises(Exception, match=r"000004/weights\.safetensors is damaged"):
        small.train("bahdanau", run, *settings)


def test_minutes_end_training_saved_and_finished_and_the_same_again_does_nothing(tmp_path):
    run, events = tmp_path / "run", []
    settings = ("train.epochs=0", "train.minutes=0.01", "train.validate_every=1000")
    assert small.train("bahdanau", run, *settings, observe=events.append) == "time"
    last = [event.step for event in events if isinstance(event, Stepped)][-1]
    assert int(newest_checkpoint(run).name) == last
    assert (run / "manifest.json").exists()
    before = state_of(run)
    again = []
    assert small.train("bahdanau", run, *settings, observe=again.append) == "time"
    assert not [event for event in again if isinstance(event, Stepped | Saved)]
    assert state_of(run) == before
    more = []
    assert small.train("bahdanau", run, *settings[:1], "train.minutes=0.02", settings[2], observe=more.append) == "time"
    assert [event for event in more if isinstance(event, Stepped)]


def test_validation_comes_at_its_steps_and_at_the_end(tmp_path):
    for name, settings, expected in (
        ("every", ("train.validate_every=4", "train.steps=10"), [4, 8, 10]),
        ("epoch", ("train.epochs=2",), [6, 12]),
        ("both", ("train.validate_every=5", "train.steps=10"), [5, 10]),
    ):
        events = []
        small.train("bahdanau", tmp_path / name, *settings, observe=events.append)
        assert [event.step for event in events if isinstance(event, Validated)] == expected
        lines = [line for line in metrics(tmp_path / name) if "dev_loss" in line]
        assert [line["step"] for line in lines] == expected
        assert {"step", "dev_loss", "dev_perplexity", "dev_shuffled_loss", "dev_bleu"} == set(lines[0])
        assert isinstance(events[-1], Finished)
        assert len(events[-3].samples if isinstance(events[-3], Validated) else events[-4].samples) == 2


def test_every_step_is_logged_with_its_numbers(tmp_path):
    small.train(
        "transformer", tmp_path / "run", "train.steps=5", "train.warmup=4", "train.rate=0.4", "train.schedule=noam"
    )
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert [set(line) for line in lines] == [{"step", "loss", "rate", "tokens_per_second"}] * 5
    expected = [0.4 * 8**-0.5 * min(step**-0.5, step * 4**-1.5) for step in range(1, 6)]
    assert [line["rate"] for line in lines] == pytest.approx(expected)
    assert all(line["tokens_per_second"] > 0 and line["loss"] > 0 for line in lines)


def test_the_loss_shown_is_per_token_whatever_the_gradient_is_divided_by(tmp_path):
    shown = {}
    for normalise in ("tokens", "sentences"):
        small.train("bahdanau", tmp_path / normalise, "train.steps=1", f"train.normalise={normalise}")
        shown[normalise] = metrics(tmp_path / normalise)[0]["loss"]
    assert shown["tokens"] == shown["sentences"]


def test_the_speed_counts_the_optimiser_and_the_wait_for_data_and_not_validations(tmp_path, monkeypatch):
    """By a clock that only moves where the test says: 1 s for a batch, 2 s for a step, 100 s for a validation."""
    now = [0.0]
    monkeypatch.setattr("regard.training.clock.time.monotonic", lambda: now[0])

    def slow(seconds, method):
        def slowly(*args, **kwargs):
            now[0] += seconds
            return method(*args, **kwargs)

        return slowly

    events = []
    loop = make_loop(tmp_path / "run", "train.steps=4", "train.validate_every=2", observe=events.append)

    def slow_batches(parts, size):
        for group in grouped(parts, size):
            now[0] += 1.0
            yield group

    monkeypatch.setattr("regard.training.loop.grouped", slow_batches)
    loop.optimiser.step = slow(2.0, loop.optimiser.step)
    loop.task.validate = slow(100.0, loop.task.validate)
    tokens = [loop.task.count(loop.task.load(loop.task.plan(0)[place], 0))[0] for place in range(4)]
    loop.run()
    speeds = [event.tokens_per_second for event in events if isinstance(event, Stepped)]
    assert speeds == pytest.approx([count / 3.0 for count in tokens])


def notices(run, measures):
    events = []
    loop = make_loop(run, "train.validate_every=1", f"train.steps={len(measures)}", observe=events.append)
    loop.task.measures = iter([{"loss": loss, "shuffled_loss": other} for loss, other in measures])
    loop.run()
    return [event for event in events if isinstance(event, Noticed)]


def test_a_model_that_ignores_its_source_is_noticed_once(tmp_path, monkeypatch):
    same, other = (3.5, 3.505), (3.5, 4.5)
    assert notices(tmp_path / "early", [same] * 5) == []
    monkeypatch.setattr("regard.runs.cursor.EARLY", 0)
    assert notices(tmp_path / "a", [same, same, other, same, same]) == []
    (found,) = notices(tmp_path / "b", [other, same, same, same, same])
    assert found.step == 1 + BLIND
    assert "the model ignores its source" in found.text
    assert "try a lower train.rate or a longer train.warmup" in found.text, "its initial weights have no gain"
    assert [line["step"] for line in metrics(tmp_path / "b") if "notice" in line] == [1 + BLIND]


def test_lower_case_text_is_scored_without_case(tmp_path, monkeypatch):
    """A model that writes every reference in lower case, all that it can write, reaches 100."""
    settings = ("data.lowercase=true", "data.subwords=char", "train.validate_sentences=6")
    loop = make_loop(tmp_path / "run", *settings, corpus="names")
    target = loop.task.data.vocabularies[1]
    found = [[Hypothesis(target.encode(text).ids, 0.0, 0.0, "end", [])] for _, text in loop.task.data.shown[:6]]
    assert any(text != text.lower() for _, text in loop.task.data.shown[:6])
    monkeypatch.setattr(translation, "decode_many", lambda *_: found)
    assert loop.task.validate(loop.model.eval()).metrics["bleu"] == pytest.approx(100)


def test_references_are_compared_in_the_form_that_the_model_writes(tmp_path, monkeypatch):
    loop = make_loop(tmp_path / "run", "data.form=punctuation", "data.subwords=char", "train.validate_sentences=6")
    shown = [(source, f"«{target}» l’oeil") for source, target in loop.task.data.shown[:6]]
    loop.task.task.data = dataclasses.replace(loop.task.data, shown=shown)
    found = [[Hypothesis([4], 0.0, 0.0, "end", [])] for _ in shown]
    monkeypatch.setattr(translation, "decode_many", lambda *_: found)
    written = iter(f'"{target[1:-8]}" l\'oeil' for _, target in shown)
    monkeypatch.setattr(loop.task.data.vocabularies[1], "decode", lambda ids: next(written))
    assert loop.task.validate(loop.model.eval()).metrics["bleu"] == pytest.approx(100)


def test_the_shuffled_loss_shows_whether_the_source_is_used(tmp_path):
    """A model whose source words are all one vector does not use them; one that copied them would lose much."""
    loop = make_loop(tmp_path / "run", "train.steps=1")
    with torch.no_grad():
        for name, weights in loop.model.named_parameters():
            torch.nn.init.normal_(weights, std=0.7)
            if name.startswith("decoder.attention") or "embed" in name:
                weights.mul_(3)
        seen = loop.task.validate(loop.model.eval()).metrics
        assert abs(seen["shuffled_loss"] - seen["loss"]) > 1e-3
        source = next(weights for name, weights in loop.model.named_parameters() if "encoder" in name)
        for name, weights in loop.model.named_parameters():
            if "encoder" in name:
                weights.zero_()
        assert source.abs().max() == 0
        blind = loop.task.validate(loop.model.eval()).metrics
    assert blind["shuffled_loss"] == pytest.approx(blind["loss"], abs=1e-6)


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "adadelta", "rmsprop", "sgd"])
def test_a_step_that_is_decided_on_the_device_is_the_step_or_nothing(optimiser):
    """Clipping, dividing and leaving out without a question give what the plain rules give, also in the first step."""
    config = TrainConfig(optimiser=optimiser, rate=0.1, momentum=0.5)
    torch.manual_seed(1)
    plain, other = ([torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(5))] for _ in range(2))
    fused = {"fused": True} if optimiser in ("adam", "adamw") else {}  # as on a GPU
    rules = [make_optimiser(plain, config), plain_optimiser(other, config, **fused)]
    for sound in (False, True, True, False, True):
        gradients = [torch.randn_like(weight) for weight in plain]
        for weights in (plain, other):
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient / 4 if weights is plain else gradient * (1 if sound else math.nan)
        if sound:
            rules[0].step()
        step_if(torch.tensor(sound), rules[1], torch.tensor(4.0))
        for one, two in zip(plain, other, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


@pytest.mark.parametrize("clip", [0.0, 0.05, 100.0])
def test_an_update_that_asks_nothing_is_the_one_that_asks(clip, tmp_path, monkeypatch):
    """The form of a GPU, on a CPU: dividing, clipping, counting and leaving out an update whose loss is NaN."""
    found = []
    for form in (Update.step_on_cpu, Update.step_on_gpu):
        monkeypatch.setattr(Update, "step_on_cpu", form)
        loop = make_loop(
            tmp_path / form.__name__, "train.steps=6", f"train.clip={clip}", "train.optimiser=adadelta", steps=(3,)
        )
        loop.run()
        lines = [(line["step"], line.get("loss")) for line in metrics(loop.run_folder) if "dev_loss" not in line]
        found.append((lines, [weight.detach() for weight in loop.parameters]))
    assert [step for step, loss in found[1][0] if loss is None] == [3]
    assert [pair[0] for pair in found[0][0]] == [pair[0] for pair in found[1][0]]
    losses = [[loss for _, loss in lines if loss is not None] for lines, _ in found]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_log_that_was_torn_is_mended(tmp_path):
    path = tmp_path / "metrics.jsonl"
    torn = b'7\n"x"\n\xff\xfe\n'
    path.write_bytes(
        b'{"step": 1, "loss": 2}\n' + torn + b'{"step": 2, "loss": 2}\n{"step": 3}\n{"step": 2, "dev_loss": 1}\n{"st'
    )
    Journal(tmp_path, 2).write(3, loss=math.nan)
    assert metrics(tmp_path) == [
        {"step": 1, "loss": 2},
        {"step": 2, "loss": 2},
        {"step": 2, "dev_loss": 1},
        {"step": 3, "loss": None},
    ]
    Journal(tmp_path, 2, due=True)
    assert metrics(tmp_path) == [{"step": 1, "loss": 2}, {"step": 2, "loss": 2}]


def test_the_settings_name_every_schedule_and_optimiser():
    choices = {field.name: tuple(field.metadata["allowed"]) for field in dataclasses.fields(TrainConfig)}
    assert choices["schedule"] == tuple(SCHEDULES)
    assert choices["optimiser"] == tuple(OPTIMISERS)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_are_positive_and_finite_and_rise_first(schedule):
    config = TrainConfig(rate=0.5, warmup=10, schedule=schedule, halve_after=2.0, halve_every=0.5)
    rates = [SCHEDULES[schedule](Moment(step, 200, step / 50, step // 60, 64), config) for step in range(1, 200)]
    assert all(math.isfinite(rate) and rate > 0 for rate in rates)
    assert max(rates) <= 0.5 + 1e-12
    if schedule != "halving":
        assert rates[:9] == sorted(rates[:9])
    assert rates[-1] < rates[20] or schedule == "constant"


def test_schedules_at_their_landmarks():
    def rate(name, step=1, epoch=0.0, stalls=0, **settings):
        return SCHEDULES[name](Moment(step, 100, epoch, stalls, 16), TrainConfig(rate=1.0, schedule=name, **settings))

    assert rate("constant") == 1
    assert rate("constant", 3, warmup=6) == 0.5
    assert rate("inverse-sqrt", 10, warmup=10) == 1
    assert rate("inverse-sqrt", 1, warmup=0) == rate("inverse-sqrt", 1, warmup=1) == 1
    assert rate("noam", 1, warmup=0) == rate("noam", 1, warmup=1) == 0.25  # 16 ** -0.5
    assert rate("inverse-sqrt", 40, warmup=10) == 0.5
    assert rate("cosine", 100) == pytest.approx(0)
    assert rate("cosine", 50) == pytest.approx(0.5)
    assert rate("cosine", 55, warmup=10) == pytest.approx(0.5)
    assert rate("plateau", stalls=3) == 0.125
    assert rate("halving", epoch=4.99) == 1
    assert rate("halving", epoch=6.5) == 0.25


def test_the_plateau_halves_in_a_real_run(tmp_path):
    measures = [{"loss": loss} for loss in (3.0, 3.5, 2.0, 2.5, 2.5)]
    prescribed(tmp_path / "run", measures, "train.steps=10", "train.schedule=plateau", "train.rate=0.01")
    rates = [line["rate"] for line in metrics(tmp_path / "run") if "rate" in line]
    assert rates == pytest.approx([0.01] * 4 + [0.005] * 4 + [0.0025] * 2)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("rate=0", "train.rate must be above 0"),
        ("rate=nan", "train.rate must be a number between"),
        ("rate=inf", "train.rate must be a number between"),
        ("clip=nan", "train.clip must be a number between"),
        ("clip=-1", "train.clip must be at least 0"),
        ("steps=-1", "train.steps must be at least 0"),
        ("minutes=inf", "train.minutes must be a number between"),
        ("beta2=1.0", "train.beta2 must be at least 0 and below 1"),
        ("weight_decay=-0.1", "train.weight_decay must be at least 0"),
        ("halve_every=0", "train.halve_every must be above 0"),
        ("validate_sentences=-1", "train.validate_sentences must be at least 0"),
        ("label_smoothing=1.0", "train.label_smoothing must be at least 0 and below 1"),
        ("accumulate=0", "train.accumulate must be at least 1"),
        ("average=9", "needs as many checkpoints; set train.keep to 9 or more"),
        ("epochs=0", "Training needs an end"),
        ("schedule=warm", "train.schedule must be one of constant, noam"),
        ("precision=bf16", "needs a GPU"),
        ("precision=tf32", "needs a GPU"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(setting, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        small.train("bahdanau", tmp_path / "run", f"train.{setting}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_arithmetic_is_afterwards_what_it_was(precision):
    """Training is one part of a process: what comes after it must not be less exact for it."""
    for before in ("highest", "high"):
        torch.set_float32_matmul_precision(before)
        kept = torch.backends.cudnn.allow_tf32
        with contextlib.suppress(ZeroDivisionError), arithmetic(precision):
            assert (torch.get_float32_matmul_precision() == "high") == (precision == "tf32")
            assert torch.backends.cudnn.allow_tf32 == (precision != "float32")
            _ = 1 / 0  # training may break off
        assert torch.get_float32_matmul_precision() == before
        assert torch.backends.cudnn.allow_tf32 == kept
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "adadelta", "sgd"])
def test_every_optimiser_lowers_the_loss(optimiser, tmp_path):
    rate = {"adadelta": 5.0, "sgd": 2.0}.get(optimiser, 0.02)
    settings = (f"train.optimiser={optimiser}", f"train.rate={rate}", "train.weight_decay=0.01", "train.epochs=3")
    small.train("bahdanau", tmp_path / "run", *settings, "train.validate_every=1000")
    losses = [line["loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert sum(losses[-6:]) < sum(losses[:6]) - 0.1


def test_nothing_to_train_on_is_refused(tmp_path):
    loop = make_loop(tmp_path / "run", "train.steps=2")
    loop.task.plan = lambda epoch, even: []
    with pytest.raises(DataError, match="nothing to train on"):
        type(loop)(loop.task, loop.model, loop.ranks)


def test_a_cursor_is_plain_numbers():
    assert json.loads(json.dumps(vars(Cursor()))) == vars(Cursor())
