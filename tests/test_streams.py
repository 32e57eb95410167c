"""A text read side by side in streams, with the state carried from row to row: truncated back-propagation."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_train_resume import Killed, state_of
from torch.nn import functional as F
from torch.testing import assert_close
from weights_of import spread

from regard.api.language_model import Writer
from regard.api.training import gather
from regard.core.nested import leaves
from regard.data.batching import shift_right
from regard.data.prepare import Data, prepare
from regard.data.settings import TextDataConfig
from regard.data.text_corpus import TextEncoding, TextStreams
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.evaluate.language import text_loss
from regard.models import attentive_lm, lstm_lm, lstmn, transformer_lm
from regard.models.attentive_lm import AttentiveLanguageModel
from regard.models.contract import TextModel
from regard.models.lstm_lm import LSTMLanguageModel
from regard.models.lstmn import LSTMNLanguageModel
from regard.models.transformer_lm import TransformerLanguageModel
from regard.runs.experiment import resolve
from regard.runs.folder import newest_checkpoint, read_cursor
from regard.runs.settings import TrainConfig
from regard.symbols import END, PAD, START
from regard.training.events import Resumed, Stepped
from regard.training.language import Language
from regard.training.loop import Loop
from regard.training.objectives import likelihood
from regard.training.start import train as begin

CPU = torch.device("cpu")
CONFIG = TextDataConfig(corpus="tales", size=30, held_out=4, subwords="word", context=7, streams=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return prepare(TextEncoding(CONFIG), tmp_path_factory.mktemp("tales"))


def test_more_streams_than_the_text_has_tokens_for_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"too few for data.streams = 300 parts of at least data.context = 7"):
        prepare(TextEncoding(replace(CONFIG, streams=300)), tmp_path)


RECURRENT: dict[str, tuple[Any, Any]] = {
    "lstm": (LSTMLanguageModel, lstm_lm.PRESETS["tiny"]),
    "lstmn": (LSTMNLanguageModel, replace(lstmn.LANGUAGE_PRESETS["tiny"], span=5)),
    "lstmn, more than a row": (LSTMNLanguageModel, replace(lstmn.LANGUAGE_PRESETS["tiny"], span=11)),
    "attentive": (AttentiveLanguageModel, replace(attentive_lm.PRESETS["tiny"], window=5)),
    "attentive, more than a row": (AttentiveLanguageModel, replace(attentive_lm.PRESETS["tiny"], window=11)),
}


def make(data: Data, name: str = "lstm", **settings: Any) -> Any:
    torch.manual_seed(1)
    model, config = RECURRENT[name]
    return spread(model(replace(config, width=6, embedding=5, layers=2, **data.encoding.sizes(), **settings)))


def make_transformer(data: Data, positions: str = "sinusoid") -> TransformerLanguageModel:
    torch.manual_seed(1)
    sizes = {"width": 12, "heads": 3, "inner": 7, "positions": positions, **data.encoding.sizes()}
    return spread(TransformerLanguageModel(replace(transformer_lm.PRESETS["tiny"], window=9, **sizes))).eval()


def task_of(data: Data, folder: Path) -> Language:
    return Language(data, TrainConfig(device="cpu"), DecodeConfig(), folder)


@pytest.mark.parametrize(("size", "streams", "context"), [(23, 3, 4), (24, 3, 4), (25, 3, 4), (5, 7, 2), (10, 1, 3)])
def test_every_token_is_predicted_once_from_the_one_before_it(size: int, streams: int, context: int):
    text = TextStreams(np.arange(10, 10 + size, dtype=np.uint16), streams, context)
    batches = [text.batch(numbers.tolist()) for numbers in text.plan()]
    assert all(batch.target.shape == (streams, context) for batch in batches)
    assert [bool(batch.fresh.all()) for batch in batches] == [True, *[False] * (len(batches) - 1)]
    target, words = (torch.cat([getattr(batch, name) for batch in batches], 1) for name in ("target", "words"))
    parts = [row[row != PAD].tolist() for row in target]
    assert [token for part in parts for token in part] == list(range(10, 10 + size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part, read in zip(parts, words.tolist(), strict=True):
        assert read[: len(part)] == [START, *part[:-1]][: len(part)]
    assert sum(int(batch.lengths.sum()) for batch in batches) == text.tokens == size


def test_a_line_begins_with_start(data: Data):
    """So that a text by itself, which begins with START, begins as the lines of a stream do."""
    text: TextStreams = data.train
    read = [text.batch(numbers.tolist()) for numbers in text.plan()]
    words, target = (torch.cat([getattr(batch, name) for batch in read], 1) for name in ("words", "target"))
    ends = (target == END)[:, :-1]
    assert ends.sum() > 20
    assert (words[:, 1:][ends] == START).all()
    assert not (words == END).any()


@torch.no_grad()
def one_pass(model: Any, row: torch.Tensor) -> float:
    """-log p of a text [1, T] that is read from its beginning to its end."""
    words = shift_right(row)
    units, _ = model.decode(words.masked_fill(words == END, START), model.start(1))
    return float(F.cross_entropy(model.output(units)[0], row[0], reduction="sum"))


@pytest.mark.parametrize("name", RECURRENT)
def test_the_carried_loss_is_that_of_one_long_pass(name: str, data: Data, tmp_path: Path):
    model, task = make(data, name).eval(), task_of(data, tmp_path)
    text: TextStreams = data.train
    plan = task.plan(0) if name == "lstm" else task.plan(0)[:4]
    for _ in range(2):  # the second epoch begins with fresh states again
        losses = [task.loss(model, task.load(numbers.tolist(), 0)).total for numbers in plan]
        whole = [torch.from_numpy(text.values[a:b].astype(np.int64))[None] for a, b in pairwise(text.offsets)]
        rows = [row[:, : 7 * len(plan)] for row in whole]
        expected = sum(one_pass(model, row) for row in rows)
        assert float(sum(losses).detach()) == pytest.approx(expected, rel=1e-9)
    assert not any(part.requires_grad for part in leaves(task.carried))
    fresh = sum(float(likelihood(model, task.load(numbers.tolist(), 0).target)[1]) for numbers in plan)
    assert fresh != pytest.approx(expected, rel=1e-4)  # the state says something


@torch.no_grad()
@pytest.mark.parametrize("name", [*RECURRENT, "sinusoid", "rotary", "alibi"])
def test_the_first_row_of_a_stream_is_read_like_a_text_by_itself(name: str, data: Data):
    """A model that was trained in streams is used on texts by themselves: to generate, and to look."""
    model = make(data, name).eval() if name in RECURRENT else make_transformer(data, name)
    target = torch.randint(3, 20, (2, 7))
    units, _ = model.read(shift_right(target), model.stream(2))
    assert_close(units, model.hidden(target))
    logits, _ = model.step(torch.full((2,), START), model.start(2))
    assert_close(logits, model.output(units[:, 0]))


@torch.no_grad()
def test_a_transformer_reads_the_last_words_again(data: Data, tmp_path: Path):
    model = make_transformer(data)
    state, text = model.stream(2), torch.randint(3, 20, (2, 28))
    for row in range(0, 28, 7):
        units, state = model.read(text[:, row : row + 7], state)
        assert torch.equal(state[:, max(0, 9 - row - 7) :], text[:, max(0, row - 2) : row + 7])
        free = max(0, 9 - row)  # before a text there is padding, which nothing attends to
        moved = torch.cat([torch.full((2, free), 5), text[:, max(0, row - 9) : row + 7]], dim=1)
        visible = (torch.arange(16) >= free).expand(2, 16)[:, None, None]
        assert_close(units, model.run_layers(moved, 0, mask=visible)[0][:, 9:])
        if not free:
            assert_close(units, model.run_layers(moved, 0)[0][:, 9:])
    task = task_of(data, tmp_path)
    losses = [float(task.loss(model, task.load(numbers.tolist(), 0)).total) for numbers in task.plan(0)]
    assert losses == [float(task.loss(model, task.load(numbers.tolist(), 0)).total) for numbers in task.plan(1)]
    assert all(torch.isfinite(torch.tensor(losses)))


def test_perplexity_reads_a_text_from_its_beginning_to_its_end(data: Data):
    model = make(data).double().eval()
    experiment = resolve(gather(None, "lstm-lm", "tiny", ["data.streams=3", "data.context=7"], corpus="tales"))
    lines = ["the cat sat", "the dog saw the cat"]
    writer = Writer(model, data.vocabulary, experiment, "run")
    rows = writer._rows(lines, experiment.data)
    assert len(rows) == 2  # each begins with START, as in a stream; `reach` reads them so
    nll, tokens = one_pass(model, torch.from_numpy(rows.values[:].astype(np.int64))[None]), rows.tokens
    assert writer.perplexity(lines) == (pytest.approx(np.exp(nll / tokens)), tokens)
    nll_3, _ = text_loss(model, TextStreams(rows.values, 1, 3), CPU)
    assert nll_3 == pytest.approx(nll, rel=1e-6)


@pytest.mark.parametrize("name", RECURRENT)
def test_after_an_update_that_was_left_out_states_are_zero(name: str, data: Data, tmp_path: Path):
    model, task = make(data, name).eval(), task_of(data, tmp_path)
    task.loss(model, task.load([0, 1, 2], 0))
    task.carry(torch.zeros(0), torch.tensor(True))
    assert all(part.abs().max() > 0 for part in leaves(task.carried))
    for part in leaves(task.carried):
        part.fill_(float("nan") if part.is_floating_point() else 9)
    task.carry(torch.zeros(0), torch.tensor(False))
    assert all(part.abs().max() == 0 for part in leaves(task.carried))


SETTINGS = (
    "data.held_out=4", "data.subwords=word", "data.context=7", "data.streams=3", "model.width=6", "model.dropout=0.2",
    "train.save_every=5", "train.device=cpu",
)  # fmt: skip
SHORT = ["data.size=20", "train.epochs=1"]
EACH = {
    "lstm-lm": ["model.embedding=5", "model.layers=2", "data.size=40", "train.epochs=2"],
    "lstmn-lm": ["model.embedding=5", "model.span=5", *SHORT],
    "attentive-lm": ["model.embedding=5", "model.window=5", *SHORT],
    "transformer-lm": ["model.heads=2", "model.inner=7", "model.window=5", *SHORT],
}


@pytest.mark.parametrize(
    "model",
    [
        "lstm-lm",
        "transformer-lm",
        pytest.param("lstmn-lm", marks=pytest.mark.slow),
        pytest.param("attentive-lm", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_broken_off_ends_with_the_same_bits(model: str, tmp_path: Path):
    settings = [*SETTINGS, *EACH[model]]

    def train(run: Path, stop: int | None = None) -> list[int]:
        seen: list[int] = []

        def observe(event: Any) -> None:
            if isinstance(event, Resumed | Stepped):
                seen.append(event.step)
            if isinstance(event, Stepped) and event.step == stop:
                raise Killed

        begin(resolve(gather(None, model, "tiny", settings, corpus="tales")), run, observe)
        return seen

    train(tmp_path / "whole")
    for stop in (8, 12):
        with pytest.raises(Killed):
            train(tmp_path / "broken", stop)
    assert train(tmp_path / "broken")[:2] == [10, 11]
    assert read_cursor(newest_checkpoint(tmp_path / "broken")).epoch == (2 if model == "lstm-lm" else 1)
    assert state_of(tmp_path / "broken") == state_of(tmp_path / "whole")


def test_a_model_of_another_package_whose_state_grows_is_refused(data: Data, tmp_path: Path):
    class Growing(AttentiveLanguageModel):
        cut = TextModel.cut  # type: ignore[assignment]

    model = Growing(replace(attentive_lm.PRESETS["tiny"], **data.encoding.sizes()))
    with pytest.raises(ConfigError, match="state of Growing grows in `read`; define `cut`"):
        task_of(data, tmp_path).ready(model)


def test_keys_are_attended_to_in_the_precision_of_their_projection(data: Data):
    model, seen = make(data, "attentive"), []
    model.float().attention.register_forward_pre_hook(lambda module, given: seen.append(given[1].keys.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randint(3, 20, (2, 7)))
        model.read(torch.randint(3, 20, (2, 7)), model.stream(2))
    assert seen == [torch.bfloat16] * 2


def test_what_cannot_be_carried_is_refused(data: Data, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"data\.streams needs data\.context"):
        TextDataConfig(corpus="tales", streams=3)
    settings = ["data.size=40", "data.subwords=word", "data.context=7", "data.streams=3"]
    for model, bound in {"attentive-lm": "window", "lstmn-lm": "span", "transformer-lm": "window"}.items():
        with pytest.raises(ConfigError, match=rf"grows with the text; set model\.{bound}, the number of last words"):
            begin(resolve(gather(None, model, "tiny", settings, corpus="tales")), tmp_path / "run")
    ranks: Any = SimpleNamespace(world=2, device=CPU)
    with pytest.raises(ConfigError, match="needs a single process; start it without torchrun, or with --workers 1"):
        Loop(task_of(data, tmp_path), make(data), ranks)
