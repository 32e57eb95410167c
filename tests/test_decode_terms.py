"""A search for translations that hold given terms: all finished ones do, and sentences do not affect each other."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_laws import LENGTHS, SOURCE, make

from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.decode.steps import SearchRequest
from regard.decode.terms import Term, Terms, next_tokens, want
from regard.errors import ConfigError
from regard.symbols import END, PAD

CONFIG = DecodeConfig(beam=8, nbest=8, max_ratio=0.0, max_extra=8, length_penalty=0.0)
EACH = [[Term((7, 9)), Term((4,))], [Term((5,)), Term((5,))], []]
NOTHING = Terms([[], [], []], [(), (), ()], ())


def test_some_rows_of_a_request_are_those_rows():
    request = SearchRequest([[4], [5], [6]], Terms(EACH, [(1,), (2,), (3,)], (8,)))
    assert request.take([2, 0]) == SearchRequest([[6], [4]], Terms([EACH[2], EACH[0]], [(3,), (1,)], (8,)))


def ending(case: str) -> Any:
    """A random model that often ends."""
    model = make(case)
    with torch.no_grad():
        model.output.bias[END] += 4
    return model


def held(ids: list[int], term: Term) -> list[int]:
    return [at for at in range(len(ids)) if tuple(ids[at : at + len(term.ids)]) == term.ids]


@pytest.mark.parametrize("case", ["bahdanau-tiny", "transformer-marian"])
def test_every_finished_hypothesis_holds_its_terms_and_a_batch_changes_nothing(case: str) -> None:
    model = ending(case)
    found = decode(model, SOURCE, LENGTHS, CONFIG, request=SearchRequest(terms=Terms(EACH, [(), (), ()], ())))
    assert all(any(one.finished for one in some) for some in found)
    for some, terms in zip(found, EACH, strict=True):
        for one in some:
            if one.finished:
                assert all(len(held(one.ids, term)) >= terms.count(term) for term in terms), one.ids
    plain = decode(model, SOURCE, LENGTHS, CONFIG)
    assert [one.ids for one in found[2]] == [one.ids for one in plain[2]]
    for row in range(3):
        size = int(LENGTHS[row])
        (alone,) = decode(
            model,
            SOURCE[row : row + 1, :size],
            LENGTHS[row : row + 1],
            CONFIG,
            request=SearchRequest(terms=Terms([EACH[row]], [()], ())),
        )
        assert [one.ids for one in alone] == [one.ids for one in found[row]]


def test_a_wide_beam_finds_the_likeliest_sentence_that_holds_the_term() -> None:
    """Against all sentences of up to three words."""
    model = make("luong-tiny")
    term, words = (6, 9), range(3, 13)
    config = replace(CONFIG, beam=200, nbest=1, max_extra=4)
    (found,) = decode(
        model, SOURCE[:1], LENGTHS[:1], config, request=SearchRequest(terms=Terms([[Term(term)]], [()], ()))
    )
    sentences = [list(ids) for size in (2, 3) for ids in itertools.product(words, repeat=size)]
    sentences = [ids for ids in sentences if held(ids, Term(term))]
    best = -torch.inf
    for ids in sentences:
        target = torch.tensor([[*ids, END]])
        with torch.no_grad():
            logprobs = model(SOURCE[:1], LENGTHS[:1], target).log_softmax(-1)
        best = max(best, float(logprobs.gather(2, target[..., None]).sum()))
    assert found[0].logprob == pytest.approx(best, abs=1e-4)


def test_where_a_term_may_begin_what_it_replaces_and_what_may_not_follow() -> None:
    model = ending("bahdanau-tiny")
    term = Term((7,), first=2, last=3)
    for banned, joined in (((), ()), ((8, 9, 10), ()), ((), tuple(range(3, 13)))):
        (found, *_) = decode(
            model,
            SOURCE,
            LENGTHS,
            CONFIG,
            request=SearchRequest(terms=Terms([[term], [], []], [banned, (), ()], joined)),
        )
        finished = [one.ids for one in found if one.finished]
        assert finished
        for ids in finished:
            assert any(2 <= at <= 3 for at in held(ids, term))
            assert not set(ids) & set(banned)
            assert not joined or ids[-1] == 7  # nothing but END may follow


def test_a_term_may_begin_from_its_first_to_its_last_step() -> None:
    wanted = want(Terms([[Term((5, 6), first=1, last=2)]], [()], ()), 1, torch.device("cpu"))
    begins = [int(next_tokens(wanted, torch.tensor([[step]]))) for step in range(4)]
    assert begins == [PAD, 5, 5, PAD]


def test_terms_are_not_sampled() -> None:
    with pytest.raises(ConfigError, match=r"set decode\.temperature to 0"):
        decode(
            make("bahdanau-tiny"), SOURCE, LENGTHS, DecodeConfig(temperature=1.0), request=SearchRequest(terms=NOTHING)
        )
