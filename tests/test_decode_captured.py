"""A captured step is the plain one: the logic with a stand-in for the CUDA graph here, the graph itself on a GPU."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from decode_models import Endless, Tiny, batch, sentences
from test_decode_models import TRANSLATORS, VOCABULARY, texts, translator
from torch import Tensor
from torch.autograd.graph import increment_version

from regard.core import nested
from regard.decode import beam, captured, steps
from regard.decode import search as searching
from regard.decode.hypothesis import Hypothesis
from regard.decode.search import decode, search
from regard.decode.settings import DecodeConfig
from regard.decode.steps import SearchRequest
from regard.kernels import graphs
from regard.kernels.choose import Choice, steps_path
from regard.models.contract import take
from regard.models.registry import MODELS, build

METHODS = {
    "greedy": DecodeConfig(beam=1, max_extra=20),
    "beam": DecodeConfig(beam=4, nbest=3, max_extra=20),
    "rules": DecodeConfig(beam=3, no_repeat_ngram=2, min_length=2, max_extra=20),
    "sample": DecodeConfig(temperature=1.0, nbest=2, top_p=0.9, max_extra=20),
}
methods = pytest.mark.parametrize("config", METHODS.values(), ids=METHODS)


class Captures:
    """Stands in for CUDA graphs on a CPU, and counts: steps run as they are, over the buffers of the graph."""

    def __init__(self) -> None:
        self.made = self.replayed = 0

    def capture(self, run: Callable[[], None], warm: Any, memory: Any) -> Callable[[], None]:
        warm()
        self.made += 1

        def replay() -> None:
            self.replayed += 1
            run()

        return replay


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    """Searches on the CPU go the way of those on a GPU."""
    found = Captures()
    monkeypatch.setattr(graphs, "capture", found.capture)
    monkeypatch.setattr(captured, "ROOM", 8)
    on_host(monkeypatch, False)
    return found


def on_host(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    for module in (steps, beam, searching):
        monkeypatch.setattr(module, "is_host", lambda tensor: answer)


def plain(*arguments: Any, **named: Any) -> list[list[Hypothesis]]:
    """`decode` as it runs on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        on_host(patch, True)
        return decode(*arguments, **named)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for group, others in zip(found, expected, strict=True):
        assert [(one.ids, one.ended) for one in group] == [(one.ids, one.ended) for one in others]
        assert [one.score for one in group] == pytest.approx([one.score for one in others], abs=1e-4)
        for one, other in zip(group, others, strict=True):
            assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-3)


@methods
@pytest.mark.parametrize("kind", [Tiny, Endless])
def test_a_captured_search_is_the_plain_one(
    captures: Captures, config: DecodeConfig, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences end at different times, so that the batch shrinks and the past grows from graph to graph."""
    model, source = kind(seed=3, end=1.0), batch(sentences(13))
    prefixes = [[5, 6]] * 4 + [[]] * 9
    found = decode(model, *source, config, request=SearchRequest(prefixes=prefixes))
    assert captures.made > 1
    expected = plain(model, *source, config, request=SearchRequest(prefixes=prefixes))
    assert_same(found, expected)
    monkeypatch.setattr(steps, "steps_path", lambda *_: Choice("plain", "for the test"))
    again = decode(model, *source, config, request=SearchRequest(prefixes=prefixes))  # a GPU's loop without a graph
    assert_same(again, expected)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *(
            pytest.param(
                "transformer",
                config,
                id=f"transformer-{name}",
                marks=[pytest.mark.slow] * (name in ("rules", "sample")),
            )
            for name, config in METHODS.items()
        ),
        pytest.param("bahdanau", METHODS["beam"], id="bahdanau"),
        *(
            pytest.param(name, METHODS["beam"], id=name, marks=pytest.mark.slow)
            for name in ("luong", "cho", "sutskever")
        ),
    ],
)
def test_captured_models(captures: Captures, name: str, config: DecodeConfig) -> None:
    """The methods know no model, so one model has them all; two of them in `make slow`, as small models have them
    above."""
    model, source = translator(name), batch(texts(7))
    found = decode(model, *source, config)
    assert captures.replayed > 10
    assert_same(found, plain(model, *source, config))
    made = captures.made
    assert_same(decode(model, *source, config), found)  # the source is read by a graph now
    assert captures.made == made + 1


def test_a_graph_serves_the_next_search_until_the_weights_change(captures: Captures) -> None:
    model, config = translator("transformer"), DecodeConfig(beam=2, max_ratio=0, max_extra=6)
    first = decode(model, *batch([[4, 5, 6]]), config)
    made = captures.made
    other = decode(model, *batch([[7, 8, 9]]), config)
    assert captures.made == made + 1  # these sizes are read for the second time
    assert_same(decode(model, *batch([[4, 5, 6]]), config), first)
    assert captures.made == made + 1
    assert other[0][0].ids != first[0][0].ids
    with torch.no_grad():
        model.output.weight.mul_(-1)
    assert decode(model, *batch([[4, 5, 6]]), config)[0][0].ids != first[0][0].ids
    assert captures.made == made + 2


def test_a_graph_serves_any_number_of_sentences_up_to_its_size(captures: Captures) -> None:
    model, config = Endless(), DecodeConfig(beam=2, max_ratio=0, max_extra=6)
    made = []
    for count in (8, 5, 7, 6, 8):
        assert len(decode(model, *batch([[4, 5, 6]] * count), config)) == count
        made.append(captures.made)
    assert made == [1, 1, 1, 1, 2]  # at last the source of eight is read for the second time


def test_what_cannot_be_captured_runs_plainly_and_says_why(captures: Captures, logged: list[str]) -> None:
    class Growing(Tiny):
        """Its state is wider after each step."""

        def step(self, token: Tensor, state: Any) -> Any:
            logits, after = super().step(token, state._replace(hidden=state.hidden[:, :7]))
            return logits, after._replace(hidden=torch.cat([after.hidden, state.hidden], 1))

    model, source = Growing(seed=3), batch(sentences(3))
    found = decode(model, *source, METHODS["beam"])
    decode(model, *source, METHODS["beam"])
    assert logged == [
        "Decoding runs without a CUDA graph: Growing cannot be captured: "
        "the state changes its shapes or types from step to step."
    ]
    assert captures.replayed == 0
    assert_same(found, plain(Tiny(seed=3), *source, METHODS["beam"]))


def test_a_state_that_a_step_rounds_is_captured(captures: Captures) -> None:
    """As autocast does to what a linear layer writes: the buffers hold the rounded numbers exactly."""

    class Rounding(Tiny):
        def step(self, token: Tensor, state: Any) -> Any:
            logits, after = super().step(token, state._replace(hidden=state.hidden.float()))
            return logits, after._replace(hidden=after.hidden.bfloat16())

    model, source = Rounding(seed=3, end=1.0), batch(sentences(5))
    found = decode(model, *source, METHODS["beam"])
    assert captures.replayed > 2
    assert_same(found, plain(model, *source, METHODS["beam"]))


def test_a_watched_model_is_not_captured(captures: Captures) -> None:
    model, calls = translator("transformer"), []
    model.decoder[0].register_forward_hook(lambda *call: calls.append(call))
    decode(model, *batch([[4, 5]]), DecodeConfig(beam=1, max_ratio=0, max_extra=5, min_length=5))
    assert (len(calls), captures.made) == (5, 0)


@pytest.mark.parametrize("config", [METHODS["greedy"], METHODS["beam"]], ids=["greedy", "beam"])
def test_a_sentence_alone_is_over_soon_after_it_ends(captures: Captures, config: DecodeConfig) -> None:
    (group,) = decode(Tiny(seed=3, end=50.0), *batch([[4, 5, 6]]), config)
    assert [one.ids for one in group[:1]] == [[]]
    assert captures.replayed == captured.POLL + 1  # one more is under way when the answer is read


def test_stopping_gives_what_there_is(captures: Captures) -> None:
    left = iter([False] * 6)
    found = decode(
        Endless(), *batch(sentences(3)), METHODS["beam"], request=SearchRequest(stop=lambda: next(left, True))
    )
    assert {(one.ended, len(one.ids)) for group in found for one in group} == {("stopped", 6)}


def test_few_sizes_serve_all() -> None:
    sizes = [captured.rounded(size) for size in range(1, 300)]
    assert all(size <= found < 2 * size + 1 for size, found in enumerate(sizes, start=1))
    assert sorted(set(sizes)) == [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384]


# --- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@methods
@pytest.mark.parametrize("name", TRANSLATORS)
def test_captured_is_plain_on_a_gpu(name: str, config: DecodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = translator(name).cuda(), [part.cuda() for part in batch(texts(11))]
    made = spy(monkeypatch)
    found = decode(model, *source, config)
    assert made, f"{name} was not captured: {steps_path(model, 'cuda').why_not_faster}"
    steps_alone = len(made)
    again = decode(model, *source, config)
    assert len(made) == steps_alone + 1, f"{name} does not read by a graph: {steps_path(model, 'cuda').why_not_faster}"
    monkeypatch.setattr(steps, "steps_path", lambda *_: Choice("plain", "for the test"))
    expected = decode(model, *source, config)
    assert_same(found, expected)
    assert_same(again, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_translator_is_captured_in_bfloat16(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = translator(name).cuda(), [part.cuda() for part in batch(texts(5))]
    made = spy(monkeypatch)
    decode(model, *source, DecodeConfig(beam=3, max_extra=10, precision="bf16"))
    assert made, f"{name} was not captured: {steps_path(model, 'cuda').why_not_faster}"


LANGUAGE_MODELS = [name for name, entry in MODELS.items() if entry.task == "language"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@methods
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_captured_language_models_are_plain_on_a_gpu(
    name: str, config: DecodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = build(name, dataclasses.replace(MODELS[name].presets["tiny"], vocabulary=VOCABULARY)).eval().cuda()
    limits, made = torch.tensor([40, 9, 20]), spy(monkeypatch)
    found = search(model, model.start(3), limits, config)
    assert made, f"{name} was not captured: {steps_path(model, 'cuda').why_not_faster}"
    monkeypatch.setattr(steps, "steps_path", lambda *_: Choice("plain", "for the test"))
    assert_same(found, search(model, model.start(3), limits, config))


def spy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each graph that is captured."""
    made: list[int] = []
    real = graphs.capture

    def capture(*given: Any) -> Callable[[], None]:
        made.append(1)
        return real(*given)

    monkeypatch.setattr(graphs, "capture", capture)
    return made


def test_a_thread_captures_on_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator keeps freed memory for each stream; threads that capture at the same time need their own."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: (device, object()))
    one, other = (graphs.GraphMemory(torch.device("cuda", index)) for index in range(2))
    assert one.stream is one.stream
    assert other.stream is not one.stream
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: one.stream).result() is not one.stream


def test_a_copy_of_a_state_shares_nothing() -> None:
    model = translator("transformer")
    state = model.start(model.encode(*batch(texts(2))))
    tensors = list(nested.leaves(graphs.copied(take(state, torch.tensor([0, 1])))))
    stored = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}
    assert len(stored) == len([tensor for tensor in tensors if tensor.numel()])


def test_graphs_of_older_weights_are_dropped() -> None:
    model = torch.nn.Linear(2, 2)
    kept, old = captured.graphs_of(model)
    kept["a size", old] = "graph"
    assert captured.graphs_of(model) == ({("a size", old): "graph"}, old)
    increment_version(list(model.parameters()))
    kept, new = captured.graphs_of(model)
    assert not kept
    assert new != old


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_of_all_types_come_to_the_host_in_one_transfer() -> None:
    torch.manual_seed(0)
    given = (
        torch.rand(3) > 0.5, (torch.arange(5), None), torch.rand(2, 3), torch.rand(3, 5).T.double(),
        torch.rand(0, 4), torch.tensor(7, dtype=torch.int32), torch.rand(3).bfloat16(),
    )  # fmt: skip
    found = nested.on_host(nested.map_nested(given, lambda part: part.cuda()))
    assert found[1][1] is None
    for part, other in zip(nested.leaves(given), nested.leaves(found), strict=True):
        assert other.is_cpu
        assert other.dtype == part.dtype
        assert torch.equal(other, part)
