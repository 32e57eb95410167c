"""Hierarchical attention beside the paper: whole documents against plain loops, T6.1 to T6.5, laws of a batch."""

from dataclasses import replace

import numpy as np
import papers
import pytest
import torch
from papers import Weights
from torch import Tensor, nn
from torch.testing import assert_close
from weights_of import array, spread, torch_gru_of

from regard.errors import ShapeError
from regard.look.record import record
from regard.models import document as paper
from regard.models.document import PRESETS, VARIANTS, DocumentClassifier, DocumentConfig, Level, groups, run_rows

CONFIG = DocumentConfig(vocabulary=23, classes=3, embedding=5, width=4, attention=6)
DOCUMENTS = [
    [[5, 7, 4], [9, 6, 8, 11, 4, 5, 21, 3, 17], [12]],
    [[4, 4]],
    [[20, 19], [3, 5, 7, 9, 11]],
]
POOLINGS = ("attention", "average", "maximum")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


def batch(documents: list[list[list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    sentences = [sentence for document in documents for sentence in document]
    rows = ([word for sentence in sentences for word in sentence], [*map(len, sentences)], [*map(len, documents)])
    words, lengths, counts = (torch.tensor(row, dtype=torch.long) for row in rows)
    return words, lengths, counts


def make(pooling: str = "attention", **changes: object) -> DocumentClassifier:
    model = spread(DocumentClassifier(replace(CONFIG, pooling=pooling, **changes)))
    assert isinstance(model, DocumentClassifier)
    return model


def pool_of(level: Level, h: list[np.ndarray]) -> np.ndarray:
    """The paper's pooling of the states of one row."""
    if isinstance(level.pool, paper.Average):
        return np.mean(h, axis=0)
    if isinstance(level.pool, paper.Maximum):
        return np.max(h, axis=0)
    assert isinstance(level.pool, paper.ContextVector)
    layer = level.pool.attention.score.W
    w = Weights(W=array(layer.weight), b=array(layer.bias), u=array(level.pool.u))
    return papers.han_pool(h, w)[0]


def read(level: Level, x: list[np.ndarray]) -> np.ndarray:
    """One level by the plain loops: a row of vectors into one."""
    weights = [torch_gru_of(*each) for each in level.gru.all_weights]
    return pool_of(level, papers.bigru_encoder(x, *weights, CONFIG.width, papers.gru_reset_after)[0])


def reference(model: DocumentClassifier, document: list[list[int]]) -> np.ndarray:
    E = array(model.embed.weight)
    vectors = [read(model.words, [E[word] for word in sentence]) for sentence in document]
    return array(model.W_c.weight) @ read(model.sentences, vectors) + array(model.W_c.bias)


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_whole_documents_are_the_papers(pooling: str):
    model = make(pooling)
    logits = model(*batch(DOCUMENTS))
    assert logits.std() > 0.1
    for row, document in zip(logits, DOCUMENTS, strict=True):
        assert np.allclose(array(row), reference(model, document), atol=1e-10)


@torch.no_grad()
def test_torchs_gru_is_the_papers_with_the_update_gate_turned_round():
    """The paper's z writes and torch's keeps; sigmoid(-x) = 1 - sigmoid(x), so negated weights are the same cell."""
    gru = nn.GRU(3, 4).double()
    gru.bias_hh_l0[8:].zero_()  # the paper has one bias, outside the reset
    w = torch_gru_of(*gru.all_weights[0])
    for name in ("W_z", "U_z", "b_z"):
        w[name] = -w[name]
    x = torch.randn(6, 3, dtype=torch.float64)
    h = np.zeros(4)
    for t, state in enumerate(gru(x)[0]):
        h = papers.han_gru(array(x[t]), h, w)
        assert np.allclose(array(state), h)


def weights_of(model: DocumentClassifier, documents: list[list[list[int]]]) -> tuple[list[Tensor], list[Tensor]]:
    """The word weights of each sentence and the sentence weights of each document, padding and all."""
    with record(model) as seen:
        model(*batch(documents))
    _, lengths, counts = batch(documents)
    found = []
    for level, sizes in (("words", lengths[lengths > 0]), ("sentences", counts)):
        rows: list[Tensor] = [torch.zeros(0)] * len(sizes)
        for call, group in zip(seen.calls(f"{level}.pool.attention"), groups(sizes), strict=True):
            for place, row in zip(group.tolist(), call.weights[:, 0], strict=True):
                rows[place] = row
        found.append(rows)
    return found[0], found[1]


@pytest.mark.parametrize("pooling", ["attention", "average"])
@torch.no_grad()
def test_t6_1_weights_sum_to_one_over_what_is_there_and_are_zero_on_padding(pooling: str):
    words, sentences = weights_of(make(pooling), DOCUMENTS)
    lengths = [len(sentence) for document in DOCUMENTS for sentence in document]
    for rows, sizes in ((words, lengths), (sentences, [len(document) for document in DOCUMENTS])):
        assert any(len(row) > size for row, size in zip(rows, sizes, strict=True)), "some row must have padding"
        for row, size in zip(rows, sizes, strict=True):
            assert row[:size].sum().item() == pytest.approx(1)
            assert torch.equal(row[size:], torch.zeros_like(row[size:]))


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_t6_2_neighbours_order_and_empty_sentences_change_nothing(pooling: str):
    model = make(pooling)
    logits = model(*batch(DOCUMENTS))
    for order in ([2, 0, 1], [1, 1, 0, 2]):
        assert_close(model(*batch([DOCUMENTS[k] for k in order])), logits[order], rtol=0, atol=1e-12)
    for row, document in enumerate(DOCUMENTS):
        assert_close(model(*batch([document]))[0], logits[row], rtol=0, atol=1e-12)
    longer = [*DOCUMENTS, [[9] * 33] * 17]
    assert_close(model(*batch(longer))[:3], logits, rtol=0, atol=1e-12)
    gaps = [[[], *document, [], []] for document in DOCUMENTS]
    assert_close(model(*batch(gaps)), logits, rtol=0, atol=1e-12)


@torch.no_grad()
def test_t6_3_without_a_context_vector_attention_is_the_average():
    looked, averaged = make("attention"), make("average")
    looked.words.pool.u.zero_()
    looked.sentences.pool.u.zero_()
    same = {name: weights for name, weights in looked.state_dict().items() if ".pool." not in name}
    averaged.load_state_dict(same)
    assert torch.equal(looked(*batch(DOCUMENTS)), averaged(*batch(DOCUMENTS)))


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_t6_4_pooling_does_not_know_the_order_and_the_whole_does(pooling: str):
    model = make(pooling)
    states = torch.randn(2, 5, 2 * CONFIG.width, dtype=torch.float64)
    mask = torch.ones(2, 1, 5, dtype=torch.bool)
    order = [3, 1, 4, 0, 2]
    pool = model.words.pool
    assert_close(pool(states[:, order], mask), pool(states, mask), rtol=0, atol=1e-12)
    turned = [[sentence[::-1] for sentence in document] for document in DOCUMENTS]
    shuffled = [document[::-1] for document in DOCUMENTS]
    for other in (turned, shuffled):
        assert not torch.allclose(model(*batch(other))[0], model(*batch(DOCUMENTS))[0], atol=1e-4)


@torch.no_grad()
def test_t6_5_the_only_sentence_and_the_only_word_have_weight_one():
    words, sentences = weights_of(make(), [[[4, 4]], [[8]]])
    assert [row.tolist() for row in sentences] == [[1.0], [1.0]]
    assert words[1].tolist() == [1.0]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_document_without_words_is_its_biases_and_has_a_finite_gradient(pooling: str):
    model = make(pooling)
    empty = [[], [[]], [[], []]]
    for documents in (empty, [*DOCUMENTS, *empty]):
        logits = model(*batch(documents))
        assert torch.equal(logits[-3:], model.W_c.bias.expand(3, -1))
        for grad in torch.autograd.grad(logits.square().sum(), list(model.parameters()), allow_unused=True):
            assert grad is None or grad.isfinite().all()
    assert model(*batch([])).shape == (0, CONFIG.classes)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_recording_changes_nothing(pooling: str):
    model = make(pooling)
    plain = model(*batch(DOCUMENTS))
    with record(model):
        assert torch.equal(model(*batch(DOCUMENTS)), plain)


@torch.no_grad()
def test_many_looks_are_one(monkeypatch: pytest.MonkeyPatch):
    """A document too large for one look is read in several, to the same end."""
    model = make()
    logits = model(*batch(DOCUMENTS * 5))
    monkeypatch.setattr(paper, "ROOM", 8)
    assert_close(model(*batch(DOCUMENTS * 5)), logits, rtol=0, atol=1e-12)
    assert max(len(rows) for rows in groups(batch(DOCUMENTS * 5)[1])) == 4


def test_groups_hold_each_row_once_and_pad_less_than_double():
    lengths = torch.tensor([0, 3, 1, 17, 2, 2, 0, 31, 32, 5])
    found = groups(lengths)
    assert sorted(torch.cat(found).tolist()) == [1, 2, 3, 4, 5, 7, 8, 9]
    for rows in found:
        assert 2 * lengths[rows].min() > lengths[rows].max()
    assert groups(torch.zeros(3, dtype=torch.long)) == []


@torch.no_grad()
def test_one_long_sentence_does_not_widen_the_others():
    """100,000 short sentences beside one of 3,000 words: padded to one width they would be 300 million states."""
    model = DocumentClassifier(replace(CONFIG, embedding=2, width=1, attention=2)).eval()
    logits = model(*batch([[[4] * 3_000], *[[[5, 6]] * 20] * 5_000]))
    assert logits.isfinite().all()


@torch.no_grad()
def test_rows_run_as_alone():
    gru = nn.GRU(3, 4, bidirectional=True).double()
    lengths = torch.tensor([2, 0, 5, 1, 5])
    x = torch.randn(13, 3, dtype=torch.float64)
    states = run_rows(gru, x, lengths)
    for row, alone in zip(x.split(lengths.tolist()), states.split(lengths.tolist()), strict=True):
        if len(row):
            assert_close(alone, gru(row)[0], rtol=0, atol=1e-12)


def test_lengths_that_do_not_add_up_are_refused():
    words, lengths, counts = batch(DOCUMENTS)
    with pytest.raises(ShapeError, match="got 21 words and 6 sentences"):
        make()(words[:-1], lengths, counts)
    with pytest.raises(ShapeError, match="Put all words one after the other"):
        make()(words[None], lengths, counts)


def test_every_preset_and_variant_learns_something():
    for config in (*PRESETS.values(), *VARIANTS.values()):
        model = DocumentClassifier(replace(config, vocabulary=23, classes=3))
        loss = nn.functional.cross_entropy(model(*batch(DOCUMENTS)), torch.tensor([0, 1, 2]))
        loss.backward()
        assert all(weights.grad is not None and weights.grad.isfinite().all() for weights in model.parameters())
