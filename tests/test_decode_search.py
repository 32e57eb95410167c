"""Laws of search: what it returns, that it ends, and that a sentence's neighbours change nothing."""

import itertools
import random
from dataclasses import asdict
from typing import Any

import pytest
import torch
from decode_models import Breaking, Endless, Table, Tiny, batch, sentences, teacher_forced
from torch import Tensor

from regard.decode.beam import SearchStep, advance, beam_search, begin
from regard.decode.greedy import follow
from regard.decode.hypothesis import Hypothesis
from regard.decode.rules import best
from regard.decode.search import decode, decode_many, search
from regard.decode.settings import DecodeConfig
from regard.decode.steps import PLAIN, SearchRequest
from regard.errors import ConfigError, DataError
from regard.symbols import END, PAD, START, UNKNOWN

GREEDY = DecodeConfig(beam=1)
BEAM = DecodeConfig(beam=5, nbest=3)
SAMPLE = DecodeConfig(temperature=1.0, nbest=2, top_p=0.9)
METHODS = [GREEDY, BEAM, DecodeConfig(beam=4, length_penalty=0.0), SAMPLE]


def with_(config: DecodeConfig, **changes: object) -> DecodeConfig:
    return DecodeConfig(**{**asdict(config), **changes})


def plain_beam_search(
    model: Tiny, sentence: list[int], limit: int, config: DecodeConfig
) -> list[tuple[list[int], float]]:
    """The documented rules for one sentence in plain loops, with no bound: ranked (ids, score) of those that ended."""
    alive, finished = [([], 0.0)], []
    for length in range(1, limit + 1):
        candidates = []
        for ids, total in alive:
            logprobs = model(*batch([sentence]), torch.tensor([[*ids, PAD]])).log_softmax(-1)[0, -1].tolist()
            candidates += [
                ([*ids, token], total + each)
                for token, each in enumerate(logprobs)
                if token not in (PAD, START) and not (token == END and length <= config.min_length)
            ]
        candidates.sort(key=lambda candidate: -candidate[1])
        penalty = config.penalty(length)
        finished += [(ids[:-1], total / penalty) for ids, total in candidates[: config.beam] if ids[-1] == END]
        alive = [candidate for candidate in candidates if candidate[0][-1] != END][: config.beam]
        if len(finished) >= config.beam:
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis[1])[: config.nbest]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_equals_a_plain_search_of_one_sentence_at_a_time(beam: int, alpha: float) -> None:
    model = Tiny(seed=3)
    config = DecodeConfig(beam=beam, nbest=min(2, beam), length_penalty=alpha, max_ratio=0, max_extra=7, min_length=1)
    texts = sentences(12)
    for sentence, hypotheses in zip(texts, decode(model, *batch(texts), config), strict=True):
        ended = [hypothesis for hypothesis in hypotheses if hypothesis.finished]
        expected = plain_beam_search(model, sentence, 7, config)
        assert [hypothesis.ids for hypothesis in ended] == [ids for ids, _ in expected]
        assert [hypothesis.score for hypothesis in ended] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_finished_hypotheses_are_ranked_by_the_penalty_of_their_length() -> None:
    config = DecodeConfig(beam=3, length_penalty=1.5)
    beam, draw = begin(torch.tensor([9, 9]), 9, torch.device("cpu"), config, PLAIN), torch.Generator().manual_seed(1)
    for _ in range(4):
        beam, _ = advance(beam, torch.randn(beam.total.numel(), 6, generator=draw), config, None)
    found = beam.finished
    ended = found.score > -torch.inf
    assert len(found.length[ended].unique()) > 1
    assert torch.equal(
        found.score[ended], (found.total / DecodeConfig(length_penalty=1.5).penalty(found.length.double()))[ended]
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    model, (source, lengths) = Tiny(seed=seed), batch(sentences(9, seed=seed))
    state = model.start(model.encode(source, lengths))
    limits = torch.tensor([GREEDY.longest(n - 1) for n in lengths.tolist()])
    beams = beam_search(model, state, limits, GREEDY)
    assert [hypotheses[0] for hypotheses in beams] == follow(model, state, limits, GREEDY)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(alpha: float) -> None:
    words, limit = [UNKNOWN, 4, 5], 3
    model = Tiny(vocabulary=6, seed=5)
    config = DecodeConfig(beam=6**limit, nbest=4, length_penalty=alpha, max_ratio=0, max_extra=limit)
    source, lengths = batch([[4, 5]])
    scored = []
    for length in range(limit):
        for ids in itertools.product(words, repeat=length):
            logprob = sum(teacher_forced(model, [4, 5], [*ids, END]))
            scored.append((logprob / DecodeConfig(length_penalty=alpha).penalty(length + 1), list(ids)))
    scored.sort(reverse=True)
    (found,) = decode(model, source, lengths, config)
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in scored[:4]]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in scored[:4]], abs=1e-5)


@pytest.mark.parametrize("config", METHODS)
def test_the_log_probability_is_the_teacher_forced_one(config: DecodeConfig) -> None:
    model, texts = Tiny(seed=2), sentences(8)
    for sentence, hypotheses in zip(texts, decode(model, *batch(texts), config), strict=True):
        assert len(hypotheses) == config.nbest
        for hypothesis in hypotheses:
            tokens = [*hypothesis.ids, END] if hypothesis.finished else hypothesis.ids
            expected = teacher_forced(model, sentence, tokens)
            assert hypothesis.token_logprobs == pytest.approx(expected, abs=1e-5)
            assert hypothesis.logprob == pytest.approx(sum(expected), abs=1e-4)
            penalty = ((5 + len(tokens)) / 6) ** config.length_penalty
            assert hypothesis.score == pytest.approx(hypothesis.logprob / penalty, abs=1e-6)


@pytest.mark.parametrize("config", METHODS)
def test_log_probabilities_of_rounded_logits_are_not_rounded(config: DecodeConfig) -> None:
    """As autocast rounds what the last layer writes: log p is that of these logits, in float32."""

    class Rounding(Tiny):
        def step(self, token: Tensor, state: Any) -> Any:
            logits, after = super().step(token, state)
            return logits.bfloat16(), after

    model = Rounding(seed=2)
    (found,) = decode(model, *batch([[4, 5, 6]]), config)
    for hypothesis in found:
        tokens = [*hypothesis.ids, END] if hypothesis.finished else hypothesis.ids
        logits = model(*batch([[4, 5, 6]]), torch.tensor([tokens]))  # [1, T, V]
        expected = logits.float().log_softmax(-1)[0, range(len(tokens)), tokens].tolist()
        assert hypothesis.token_logprobs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("config", METHODS)
def test_neighbours_and_padding_change_nothing(config: DecodeConfig) -> None:
    model, texts = Tiny(seed=1, end=0.5), sentences(60)
    alone = [decode(model, *batch([text]), config)[0] for text in texts]
    order = random.Random(0)
    for size in (2, 7, 60):
        indices = order.sample(range(len(texts)), len(texts))
        for first in range(0, len(texts), size):
            rows = indices[first : first + size]
            found = decode(model, *batch([texts[row] for row in rows], extra=order.randint(0, 4)), config)
            for row, hypotheses in zip(rows, found, strict=True):
                assert [h.ids for h in hypotheses] == [h.ids for h in alone[row]]
                assert [h.score for h in hypotheses] == pytest.approx([h.score for h in alone[row]], abs=1e-5)


def test_a_translation_has_room_for_one_token_at_least() -> None:
    assert [with_(GREEDY, max_ratio=0.0, max_extra=0).longest(n) for n in (1, 4)] == [1, 1]
    assert [with_(GREEDY, max_ratio=1.5, max_extra=2).longest(n) for n in (1, 4)] == [4, 8]


@pytest.mark.parametrize("config", METHODS)
def test_a_model_that_never_ends_is_cut_at_its_longest(config: DecodeConfig) -> None:
    texts = sentences(6)
    config = with_(config, max_ratio=1.5, max_extra=3)
    for text, hypotheses in zip(texts, decode(Endless(), *batch(texts), config), strict=True):
        assert {hypothesis.ended for hypothesis in hypotheses} == {"length"}
        assert {len(hypothesis.ids) for hypothesis in hypotheses} == {-(-len(text) * 3 // 2) + 3}
        assert not hypotheses[0].finished


@pytest.mark.parametrize("config", METHODS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_end_their_own_sentence_only(config: DecodeConfig, value: float) -> None:
    config = with_(config, min_length=3)
    texts = [[4, 5, 7], [5, 6], [6, 7, 8, 9], [7]]
    sound, broken = Tiny(seed=3), Breaking(value, seed=3)
    expected = decode(sound, *batch(texts), config)
    found = decode(broken, *batch(texts), config)
    for text, before, after in zip(texts, expected, found, strict=True):
        if text[0] % 2:
            assert after == before
        else:
            assert {hypothesis.ended for hypothesis in after} == {"not finite"}
            assert all(len(hypothesis.ids) == 2 for hypothesis in after)
            assert all(abs(hypothesis.logprob) < 100 for hypothesis in after)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_broken_number_spoils_its_beam_and_the_others_go_on(value: float) -> None:
    texts = [[4, 5, 7]]
    (best,) = decode(Tiny(seed=3), *batch(texts), with_(BEAM, min_length=4))
    model = Breaking(value, fuse=1, only=best[0].ids[1], seed=3)
    (found,) = decode(model, *batch(texts), with_(BEAM, min_length=4))
    assert [hypothesis.ended for hypothesis in found] == ["end"] * 3
    assert all(best[0].ids[1] not in hypothesis.ids[1:-1] for hypothesis in found)


def test_random_weights_always_end_and_say_how() -> None:
    for seed, beam in itertools.product(range(20), (1, 5, 10)):
        texts = sentences(25, seed=seed)
        found = decode(Tiny(seed=seed), *batch(texts), DecodeConfig(beam=beam, max_extra=5))
        assert all(hypotheses[0].ended in ("end", "length") for hypotheses in found)


def test_the_first_step_expands_one_beam_and_hypotheses_differ() -> None:
    for hypotheses in decode(Tiny(seed=4), *batch(sentences(10)), DecodeConfig(beam=6, nbest=6)):
        ids = [tuple(hypothesis.ids) + (() if hypothesis.finished else (-1,)) for hypothesis in hypotheses]
        assert len(set(ids)) == len(ids) == 6


def test_a_beam_beats_greed_where_the_first_word_misleads() -> None:
    # 4 is likelier first, but what follows it is spread thin; 5 leads to a sure sentence.
    thin = dict.fromkeys((6, 7, 8, 9), 0.25)
    model = Table(10, {START: {4: 0.55, 5: 0.45}, 4: thin, 5: {6: 1.0}})
    source, lengths = batch([[4]])
    flat = with_(GREEDY, length_penalty=0.0)
    assert decode(model, source, lengths, flat)[0][0].ids[0] == 4
    (best,) = decode(model, source, lengths, with_(flat, beam=2))[0]
    assert best.ids == [5, 6]
    assert best.logprob == pytest.approx(torch.tensor(0.45).log().item())


def test_a_vocabulary_smaller_than_the_beam() -> None:
    model = Table(6, {START: {4: 0.9, END: 0.1}, 4: {END: 0.8, 4: 0.2}})
    (found,) = decode(model, *batch([[4]]), DecodeConfig(beam=12, nbest=12, max_ratio=0, max_extra=4))
    assert [(hypothesis.ids, hypothesis.ended) for hypothesis in found] == [
        ([4], "end"),
        ([4, 4], "end"),
        ([], "end"),
        ([4, 4, 4], "end"),
        ([4, 4, 4, 4], "length"),
    ]


def test_ties_are_broken_the_same_way_every_time() -> None:
    model = Tiny(seed=0)
    model.write = torch.zeros_like(model.write)  # every token is as likely as any other
    texts = sentences(9)
    config = DecodeConfig(beam=3, nbest=3, max_extra=2)
    alone = [decode(model, *batch([text]), config)[0] for text in texts]
    assert decode(model, *batch(texts), config) == alone
    assert decode(model, *batch(texts[::-1]), config) == alone[::-1]


@pytest.mark.parametrize("config", METHODS)
def test_symbols_are_never_written(config: DecodeConfig) -> None:
    model = Tiny(seed=6)
    model.bias[PAD] = model.bias[START] = model.bias[UNKNOWN] = 9.0
    written = {token for group in decode(model, *batch(sentences(9)), config) for h in group for token in h.ids}
    assert UNKNOWN in written
    assert not written & {PAD, START, END}
    banned = decode(model, *batch(sentences(9)), with_(config, ban_unknown=True))
    assert UNKNOWN not in {token for group in banned for h in group for token in h.ids}


@pytest.mark.parametrize("config", METHODS)
def test_lengths_stay_within_their_bounds(config: DecodeConfig) -> None:
    config = with_(config, min_length=4, max_ratio=0, max_extra=6)
    lengths = set()
    for end in (-3.0, 0.0, 8.0):
        for hypotheses in decode(Tiny(seed=7, end=end), *batch(sentences(15)), config):
            for hypothesis in hypotheses:
                lengths.add(len(hypothesis.ids))
                assert hypothesis.finished == (len(hypothesis.ids) < 6)
    assert {4, 6} <= lengths <= {4, 5, 6}


@pytest.mark.parametrize("config", METHODS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_run_of_tokens_occurs_twice(config: DecodeConfig, size: int) -> None:
    def repeated(hypotheses: list[Hypothesis]) -> bool:
        ids = hypotheses[0].ids
        runs = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
        return len(set(runs)) < len(runs)

    texts, config = sentences(10), with_(config, max_extra=30, temperature=config.temperature / 2)
    assert any(map(repeated, decode(Endless(seed=1), *batch(texts), config)))
    assert not any(map(repeated, decode(Endless(seed=1), *batch(texts), with_(config, no_repeat_ngram=size))))


def test_the_ban_of_repeats_takes_nothing_else_away() -> None:
    model, source = Endless(vocabulary=9, seed=1), batch([[4, 5]])
    (found,) = decode(model, *source, DecodeConfig(beam=1, max_ratio=0, max_extra=40, no_repeat_ngram=2))[0:1]
    ids = found[0].ids
    for t in range(1, len(ids)):
        logits = model(*source, torch.tensor([[*ids[:t], PAD]]))[0, -1]
        free = [token for token in range(UNKNOWN, 9) if (ids[t - 1], token) not in itertools.pairwise(ids[:t])]
        assert ids[t] == max(free, key=lambda token: logits[token])


@pytest.mark.parametrize("config", METHODS)
def test_a_forced_prefix_begins_the_sentence_and_the_rest_is_searched(config: DecodeConfig) -> None:
    model, texts = Tiny(seed=8), sentences(4)
    prefixes = [[5, 6, 7], [], [UNKNOWN], [9, 9]]
    config = with_(config, ban_unknown=True, no_repeat_ngram=1)
    found = decode(model, *batch(texts), config, request=SearchRequest(prefixes=prefixes))
    for text, prefix, hypotheses in zip(texts, prefixes, found, strict=True):
        assert hypotheses == decode(model, *batch([text]), config, request=SearchRequest(prefixes=[prefix]))[0]
        assert len(hypotheses) == config.nbest
        for hypothesis in hypotheses:
            assert hypothesis.ids[: len(prefix)] == prefix
            tokens = [*hypothesis.ids, END] if hypothesis.finished else hypothesis.ids
            assert hypothesis.token_logprobs == pytest.approx(teacher_forced(model, text, tokens), abs=1e-5)
    assert found[1] == decode(model, *batch(texts[1:2]), config)[0]


def test_a_prefix_of_the_best_translation_gives_it_again() -> None:
    model, texts = Tiny(seed=9, end=0.5), sentences(12)
    config = DecodeConfig(beam=1)
    best = [hypotheses[0] for hypotheses in decode(model, *batch(texts), config)]
    prefixes = [hypothesis.ids[: len(hypothesis.ids) // 2] for hypothesis in best]
    again = decode(model, *batch(texts), config, request=SearchRequest(prefixes=prefixes))
    assert [hypotheses[0].ids for hypotheses in again] == [hypothesis.ids for hypothesis in best]


def test_a_prefix_longer_than_the_longest_is_kept_whole() -> None:
    config = DecodeConfig(beam=2, max_ratio=0, max_extra=2)
    (found,) = decode(Endless(), *batch([[4]]), config, request=SearchRequest(prefixes=[[5, 6, 7, 8]]))
    assert found[0].ids[:4] == [5, 6, 7, 8]
    assert (len(found[0].ids), found[0].ended) == (5, "length")


def test_prefixes_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="holds words only; got the symbol 2 in \\[5, 2\\]"):
        decode(Tiny(), *batch([[4]]), BEAM, request=SearchRequest(prefixes=[[5, END]]))
    with pytest.raises(DataError, match="holds token 11, but the vocabulary has 11 tokens"):
        decode(Tiny(), *batch([[4]]), BEAM, request=SearchRequest(prefixes=[[11]]))
    with pytest.raises(DataError, match="one prefix for each sentence, 1 in all; got 2"):
        decode(Tiny(), *batch([[4]]), BEAM, request=SearchRequest(prefixes=[[5], [6]]))


@pytest.mark.parametrize("config", METHODS)
def test_a_source_of_end_alone_gives_the_empty_sentence(config: DecodeConfig) -> None:
    texts: list[list[int]] = [[], [4, 5, 6], []]
    model = Tiny(seed=3)
    found = decode(model, *batch(texts), config)
    assert found[0] == found[2] == [Hypothesis([], 0.0, 0.0, "end", [0.0])]
    assert found[1] == decode(model, *batch([[4, 5, 6]]), config)[0]
    assert decode(model, *batch([[]]), config) == [found[0]]


@pytest.mark.parametrize("config", METHODS)
def test_a_search_that_is_stopped_gives_what_it_has(config: DecodeConfig) -> None:
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 4

    for hypotheses in decode(Endless(), *batch(sentences(3)), config, request=SearchRequest(stop=stop)):
        assert {hypothesis.ended for hypothesis in hypotheses} == {"stopped"}
        assert {len(hypothesis.ids) for hypothesis in hypotheses} == {4}
    assert len(asked) == 5


def test_the_steps_shown_are_the_whole_tree() -> None:
    model, texts, steps = Tiny(seed=2, end=2.0), sentences(5), []
    config = DecodeConfig(beam=3, nbest=3)
    found = decode(model, *batch(texts), config, request=SearchRequest(observe=steps.append))
    assert found == decode(model, *batch(texts), config)
    for sentence, hypotheses in enumerate(found):
        beams: dict[int, tuple[list[int], float]] = {0: ([], 0.0)}
        ended = {}
        for step in steps:
            assert isinstance(step, SearchStep)
            if sentence not in step.sentences.tolist():
                continue
            row = step.sentences.tolist().index(sentence)
            after = {}
            for parent, token, logprob, total, score, slot, end in zip(
                *(part[row].tolist() for part in step[2:]), strict=True
            ):
                if total == -float("inf"):
                    assert slot == -1
                    assert not end
                    continue
                ids, before = beams[parent]
                assert total == pytest.approx(before + logprob, abs=1e-5)
                if end:
                    assert token == END
                    ended[tuple(ids)] = score
                elif slot >= 0:
                    after[slot] = ([*ids, token], total)
            assert sorted(after) == list(range(len(after)))
            beams = after
        for hypothesis in hypotheses:
            if hypothesis.finished:
                assert ended[tuple(hypothesis.ids)] == pytest.approx(hypothesis.score, abs=1e-6)
            else:
                assert hypothesis.ids in [ids for ids, _ in beams.values()]
    assert {hypothesis.ended for hypotheses in found for hypothesis in hypotheses} == {"end", "length"}


def test_observing_shows_greedy_search_as_a_beam_of_one() -> None:
    steps: list[SearchStep] = []
    source = batch(sentences(3))
    assert decode(Tiny(), *source, GREEDY, request=SearchRequest(observe=steps.append)) == decode(
        Tiny(), *source, GREEDY
    )
    assert steps[0].token.shape == (3, 2)


def test_search_goes_on_from_a_state() -> None:
    model, source = Tiny(seed=1), batch([[4, 5], [6, 7, 8]])
    state = model.start(model.encode(*source))
    found = search(model, state, torch.tensor([4, 9]), with_(BEAM, nbest=1))
    assert [len(hypotheses[0].ids) <= limit for hypotheses, limit in zip(found, (4, 9), strict=True)] == [True, True]


def test_a_default_beam_grows_with_nbest() -> None:
    own = DecodeConfig(beam=2)
    assert own.changed({"nbest": 4}).beam == own.changed({"nbest": 4, "beam": None}).beam == 4
    assert own.changed({"nbest": 1, "beam": 3}).beam == 3
    assert own.changed({"nbest": 4, "temperature": 1.0}).nbest == 4
    with pytest.raises(
        ConfigError, match=r"nbest must be at most decode.beam; got nbest 4 with beam 3. Set decode.beam"
    ):
        own.changed({"nbest": 4, "beam": 3})


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory")]
)
def test_a_beam_that_does_not_fit_into_memory_is_an_error(error: Exception) -> None:
    class Large(Tiny):
        def step(self, token: Tensor, state: Any) -> Any:
            raise error

    with pytest.raises(ConfigError, match="not enough memory for 2 sentences at once with a beam of 5; set a smaller"):
        decode(Large(), *batch([[4], [5]]), BEAM)


def test_other_errors_of_a_model_stay_what_they_are() -> None:
    class Broken(Tiny):
        def step(self, token: Tensor, state: Any) -> Any:
            raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        decode(Broken(), *batch([[4]]), BEAM)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"decode.beam must be at least 1 and at most 1,000; got 0"):
        DecodeConfig(beam=0)
    with pytest.raises(ConfigError, match=r"decode.nbest must be at most decode.beam; got nbest 4 with beam 2"):
        DecodeConfig(beam=2, nbest=4)
    for name, value, most in (
        ("max_extra", 10**18, "1,000,000"),
        ("min_length", 10**18, "1,000,000"),
        ("max_ratio", 1e10, "1,000"),
        ("beam", 1001, "1,000"),
    ):
        with pytest.raises(ConfigError, match=rf"decode.{name} must be at least . and at most {most}; got "):
            DecodeConfig(**{name: value})
    with pytest.raises(ConfigError, match=r"decode.nbest must be at least 1 and at most 10,000; got 10001"):
        DecodeConfig(temperature=1.0, nbest=10_001)
    with pytest.raises(ConfigError, match=r"decode.nbest must be at most decode.beam; got nbest 1001 with beam 1000"):
        DecodeConfig(beam=1000, nbest=1001)
    with pytest.raises(ConfigError, match=r"decode.top_p must be above 0 and at most 1; got 1.5"):
        DecodeConfig(temperature=1.0, top_p=1.5)
    with pytest.raises(ConfigError, match=r"set decode.temperature above 0"):
        DecodeConfig(top_k=3)
    with pytest.raises(ConfigError, match=r"decode.length_penalty must be at least 0; got -1"):
        DecodeConfig(length_penalty=-1)
    with pytest.raises(ConfigError, match=r"decode.length_penalty must be a number between -2.63 and 2.63; got nan"):
        DecodeConfig(length_penalty=float("nan"))


def test_the_length_penalty_is_gnmts() -> None:
    assert DecodeConfig(length_penalty=0.7).penalty(1) == 1.0
    assert DecodeConfig(length_penalty=0.5).penalty(13) == pytest.approx(3**0.5)
    assert DecodeConfig(length_penalty=0.0).penalty(8) == 1.0


def test_the_search_goes_on_while_a_longer_translation_could_still_win() -> None:
    # Ending at once is likelier, but 4 5 6 7 8 9 loses nothing on its way and the penalty favours it in the end.
    chain = {token: {token + 1: 1.0} for token in range(4, 9)}
    model = Table(10, {START: {END: 0.6, 4: 0.4}, **chain})
    (found,) = decode(model, *batch([[4]]), DecodeConfig(beam=2, length_penalty=2.0))
    assert found[0].ids == [4, 5, 6, 7, 8, 9]
    assert found[0].score == pytest.approx(torch.tensor(0.4).log().item() / 4)
    (found,) = decode(model, *batch([[4]]), DecodeConfig(beam=2, length_penalty=0.0))
    assert found[0].ids == []


def test_the_search_ends_when_as_many_as_the_beam_have_finished() -> None:
    model = Table(7, {START: {END: 0.5, 4: 0.5}, 4: {END: 0.5, 5: 0.5}, 5: {5: 1.0}})
    steps: list[SearchStep] = []
    (found,) = decode(
        model,
        *batch([[4]]),
        DecodeConfig(beam=2, nbest=2, length_penalty=2.0),
        request=SearchRequest(observe=steps.append),
    )
    assert [hypothesis.ids for hypothesis in found] == [[], [4]]
    assert len(steps) == 2


def test_the_search_ends_when_no_longer_translation_could_win() -> None:
    # Ending at once scores log 0.8. What begins with 4 scores at most log 0.2 / lp(22), with lp(22) = 27/6.
    model, steps = Table(7, {START: {END: 0.8, 4: 0.2}, 4: {4: 1.0}}), list[SearchStep]()
    config = DecodeConfig(beam=2, length_penalty=1.0, max_ratio=0, max_extra=22)
    (found,) = decode(model, *batch([[4]]), config, request=SearchRequest(observe=steps.append))
    assert (found[0].ids, len(steps)) == ([], 1)


@pytest.mark.parametrize("size", [2048, 2111, 5000, 31])
def test_the_quick_choice_of_the_best_is_topk(size: int) -> None:
    values = torch.randn(7, size, generator=torch.Generator().manual_seed(size)).log_softmax(-1)
    values[1, size - 1] = values[2, 0] = 1.0  # the best at either end
    values[3] = -torch.inf
    values[3, 5] = 0.0
    values[4] = torch.nan
    top, ids = best(values, 6)
    assert torch.equal(top.nan_to_num(9.0), values.topk(6).values.nan_to_num(9.0))
    assert torch.equal(values.gather(1, ids).nan_to_num(9.0), top.nan_to_num(9.0))
    assert ids[3, 0] == 5
    assert all(len(set(row)) == 6 for row in ids.tolist())


def test_a_precision_that_the_device_lacks_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="needs a GPU; use float32 on a CPU"):
        decode(Tiny(), torch.tensor([[5, END]]), torch.tensor([2]), with_(GREEDY, precision="bf16"))


@pytest.mark.parametrize(("config", "copies"), [(GREEDY, 1), (BEAM, 5), (SAMPLE, 2)])
def test_many_rows_are_read_in_batches_of_like_length_that_count_every_beam(config: DecodeConfig, copies: int) -> None:
    read: list[tuple[int, int]] = []

    class Watched(Tiny):
        def encode(self, source: Tensor, lengths: Tensor) -> Any:
            read.append((source.shape[0], source.shape[1]))
            return super().encode(source, lengths)

    rows, progress = [*sentences(12), list(range(4, 11)) * 10], list[tuple[int, int]]()
    config = with_(config, max_ratio=0, max_extra=4)
    found = decode_many(
        Watched(), rows, config, torch.device("cpu"), batch_tokens=60, progress=lambda *done: progress.append(done)
    )
    alone = [decode(Tiny(), *batch([row]), config)[0] for row in rows]
    assert [[one.ids for one in some] for some in found] == [[one.ids for one in some] for some in alone]
    lengths = sorted((len(row) + 1 for row in rows), reverse=True)
    ends = list(itertools.accumulate(count for count, _ in read))
    assert progress == [(end, len(rows)) for end in ends]
    assert ends[-1] == len(rows)
    assert [width for _, width in read] == [lengths[begin] for begin in [0, *ends[:-1]]]  # the longest first
    assert read[0] == (1, 71)  # longer than a batch may be, so it is alone
    for (count, width), end in zip(read[1:], ends[1:], strict=True):
        assert count * width * copies <= 60
        assert (count + 1) * width * copies > 60 or end == len(rows)  # as many as fit
