"""Guided attention: links are read, projected to pieces and reach the loss; the gradient reaches the score."""

import math
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small
import torch
from commands import regard as command

import regard
from regard.api import aligning
from regard.api.heads import Heads, guided_heads
from regard.api.training import gather
from regard.core.nested import leaves
from regard.corpora.phrasebook import generate
from regard.data.pairs import PairEncoding, link_pieces
from regard.data.prepare import prepare
from regard.data.settings import DataConfig
from regard.data.vocabulary import Vocabulary
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.evaluate.alignment import score_alignments
from regard.look.record import record
from regard.models.registry import MODELS, build
from regard.runs.experiment import resolve
from regard.runs.settings import TrainConfig
from regard.text.pharaoh import Gold, format_pharaoh
from regard.training.start import train as begin
from regard.training.translation import TranslationTask

DATA = DataConfig(corpus="phrasebook", size=80, max_words=7, held_out=5, seed=4, alignment="gold")
KINDS = {"word": {}, "char": {}, "bpe": {"vocabulary": 330}, "unigram": {"vocabulary": 330}}


def links_of(data, batch):
    return link_pieces(data.train.links, data.vocabularies, batch)


def data_of(folder: Path, kind: str = "word", **changes):
    return prepare(PairEncoding(replace(DATA, subwords=kind, **KINDS[kind], **changes)), folder)


def corpus(folder: Path, *lines: tuple[str, str, str], **changes) -> DataConfig:
    """Files of pairs and their links."""
    for name, column in (("a", 0), ("b", 1), ("links", 2)):
        (folder / name).write_bytes("".join(line[column] + "\n" for line in lines).encode())
    files = {"source": str(folder / "a"), "target": str(folder / "b"), "alignment": str(folder / "links")}
    return replace(DATA, **{"corpus": "", "held_out": 1, "subwords": "word", **files, **changes})


PAIRS = [("a b c", "x y", "0-0 2-1"), ("b b", "y y y", ""), ("c", "z", "0-0"), ("a c", "x z", "0-0 1-1")]


# From text to pieces


@pytest.mark.parametrize("kind", KINDS)
def test_the_word_of_each_piece_is_known_from_the_ids_alone(kind):
    texts = [example.target for example in generate(60, 2, 3, 9)]
    vocabulary = Vocabulary.train(texts, kind, KINDS[kind].get("vocabulary", 400))
    strange = ["  two  spaces ", "日本 語", "a\u00a0b 👩‍👩‍👧 x", "\u3000a", "é e\u0301 x", " ", "ab"]
    for text in [*texts, *strange]:
        encoded = vocabulary.encode(text)
        if 3 in encoded.ids:  # an unknown character is a letter, whatever it was
            continue
        assert vocabulary.words_of(encoded.ids) == encoded.words, text
    assert vocabulary.words_of([]) == []


@pytest.mark.parametrize("sampling", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_linked_exactly_where_their_words_are(kind, sampling, tmp_path):
    data = data_of(tmp_path, kind, sampling=sampling)
    made = generate(DATA.size, DATA.seed, DATA.min_words, DATA.max_words)
    lines = [int(line) for line in data.train.lines]
    batch = data.train.batch([7, 3, 20], epoch=2)
    links = links_of(data, batch)
    assert links.shape == (3, batch.target.shape[1], batch.source.shape[1])
    for row, index in enumerate((7, 3, 20)):
        example = made[lines[index] - 1]
        source, target = (
            vocabulary.words_of(ids[row, : int(length[row]) - 1])
            for vocabulary, ids, length in (
                (data.vocabularies[0], batch.source, batch.source_lengths),
                (data.vocabularies[1], batch.target, batch.target_lengths),
            )
        )
        assert max(source) + 1 == len(example.source.split())
        for t in range(links.shape[1]):
            for s in range(links.shape[2]):
                inside = t < len(target) and s < len(source)
                assert bool(links[row, t, s]) == (inside and (source[s], target[t]) in example.alignment)


def test_a_file_of_links_is_the_same_as_gold_and_only_a_mapped_file_holds_them(tmp_path):
    made = generate(DATA.size, DATA.seed, DATA.min_words, DATA.max_words)
    path = tmp_path / "links"
    path.write_bytes("".join(format_pharaoh(example.alignment) + "\n" for example in made).encode())
    gold, file = data_of(tmp_path / "gold"), data_of(tmp_path / "file", alignment=str(path))
    plain = data_of(tmp_path / "plain", alignment="")
    batch = gold.train.batch(range(20))
    assert torch.equal(links_of(gold, batch), links_of(file, batch))
    assert isinstance(gold.train.aligned.values, np.memmap)
    assert not plain.encoding.aligned
    assert plain.train.links(3).shape == (0, 2)
    assert len({gold.fingerprint, file.fingerprint, plain.fingerprint}) == 3
    again = data_of(tmp_path / "gold")
    assert torch.equal(links_of(gold, batch), links_of(again, batch)), "the second time it is only mapped"


def test_a_rank_sees_the_rows_of_the_whole_batch(tmp_path):
    task = task_of(data_of(tmp_path), guided=0.5)
    numbers = task.plan(1)[0].tolist()
    whole = task.load(numbers, 1)
    for rank in range(3):
        part = task.load(numbers[rank::3], 1)
        T, S = part.target.shape[1], part.source.shape[1]
        assert torch.equal(part.links, whole.links[rank::3, :T, :S])
        assert not whole.links[rank::3, T:].any()
    assert task.load([], 0).links.shape == (0, 0, 0)


# From pieces to the gradient


def task_of(data, **train):
    return TranslationTask(data, TrainConfig(batch_tokens=200, **train), DecodeConfig(), Path("run"))


def model_of(name, data, **settings):
    torch.manual_seed(3)
    config = replace(MODELS[name].presets["tiny"], **settings, **data.encoding.sizes())
    return build(name, config).double()


CASES = {
    "bahdanau": ({"width": 6, "embedding": 5, "attention": 7, "readout": 4}, "decoder.attention", None),
    "luong": ({"width": 6}, "attention", None),
    "transformer": (
        {"width": 8, "heads": 2, "inner": 6, "layers": 3, "tied": "none"}, "decoder.1.cross_attention.attention", 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_the_loss_is_that_of_the_papers_over_the_rows_that_have_links(name, shift, tmp_path):
    settings, module, head = CASES[name]
    data = data_of(tmp_path, "bpe")
    task = task_of(data, guided=0.3, guided_head=head or 0, guided_shift=shift)
    model = model_of(name, data, **settings)
    batch = task.load([4, 1, 9], 0)
    assert not batch.links[:, -1].any(), "END has no link, so no row is missing after the last word"
    batch.links[0, 1] = False  # a target word without a link
    loss = task.loss(model, batch)
    with torch.no_grad(), record(model) as seen:
        model(batch.source, batch.source_lengths, batch.target)
    weights = seen[module].weights if head is None else seen[module].weights[:, head]
    guide = 0.0
    for b, t, s in batch.links.nonzero().tolist():
        guide -= math.log(weights[b, t + shift, s]) / int(batch.links[b, t].sum())
    plain = task.loss(model, data.train.batch([4, 1, 9]))
    assert float(loss.total.detach() - plain.total.detach()) == pytest.approx(0.3 * guide, rel=1e-5)
    assert task.count(batch)[0] == int(batch.target_lengths.sum())


@pytest.mark.parametrize("shift", [0, 1])
def test_links_are_read_from_what_was_guided(shift, tmp_path):
    model = model_of("transformer", data_of(tmp_path), **CASES["transformer"][0])
    train = TrainConfig(guided=1.0, guided_head=1, guided_shift=shift, steps=1)
    assert guided_heads(model, train) == Heads(1, 1, shift)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_the_links_alone_reaches_the_score_and_not_what_comes_after(name, tmp_path):
    settings, _, head = CASES[name]
    data = data_of(tmp_path)
    model = model_of(name, data, **settings)
    batch = task_of(data, guided=1.0).load([0, 1, 2], 0)
    plain, guided = (task_of(data, guided=weight, guided_head=head or 0) for weight in (1e-9, 1.0))

    def gradients(task):
        model.zero_grad()
        task.loss(model, batch).total.backward()
        return {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}

    before, after = gradients(plain), gradients(guided)
    moved = {key for key in after if not torch.allclose(before[key], after[key], atol=1e-7)}
    score = {
        "bahdanau": "decoder.attention.score",
        "luong": "encoder",
        "transformer": "decoder.1.cross_attention.query",
    }
    readout = {"bahdanau": "decoder.readout", "luong": "W_s", "transformer": "output."}
    assert any(key.startswith(score[name]) for key in moved), moved
    assert not any(key.startswith(readout[name]) for key in moved), moved
    if name == "transformer":
        assert not any(key.startswith("decoder.2") for key in moved), "later layers are not touched"
        half = model.config.width // 2
        change = (
            after["decoder.1.cross_attention.query.weight"] - before["decoder.1.cross_attention.query.weight"]
        ).abs()
        assert change[:half].max() < 1e-7 < change[half:].max(), "one head alone is guided"


def test_recording_keeps_the_graph_only_on_request_and_watches_only_named_modules(tmp_path):
    data = data_of(tmp_path)
    model = model_of("transformer", data, **CASES["transformer"][0])
    batch = data.train.batch([0, 1])
    name = CASES["transformer"][1]
    with record(model, [name], detach=False) as seen:
        model(batch.source, batch.source_lengths, batch.target)
    assert list(seen) == [name]
    assert seen[name].weights.requires_grad
    with record(model) as seen:
        model(batch.source, batch.source_lengths, batch.target)
    assert len(seen) == 9
    assert not any(part.requires_grad for one in seen.values() for part in leaves(one))
    with pytest.raises(ConfigError, match=r"decoder\.1\.cross_attention\.attention"), record(model, [name[:-1]]):
        pass


QUICK = {
    "transformer": ("model.width=32", "model.heads=2", "model.inner=32", "data.joint=true", "train.warmup=10"),
    "luong": ("model.width=32",),
}


RARELY = ("train.validate_sentences=0", "train.validate_every=1000", "train.save_every=1000", "data.held_out=20")


@pytest.mark.parametrize(
    ("name", "tried"), [("transformer", (0.0, 1.0)), pytest.param("luong", (1.0,), marks=pytest.mark.slow)]
)
def test_guided_training_aligns_soon(name, tried, tmp_path):
    """Forty updates: what was guided is most of the way there, what was not has not begun."""
    made = generate(30, 9, 3, 6)
    gold = [Gold(frozenset(example.alignment), frozenset(example.alignment)) for example in made]
    rates = {}
    for weight in tried:
        run = tmp_path / str(weight)
        settings = [*QUICK[name], "data.subwords=word", "data.size=300", "data.max_words=6", "data.alignment=gold"]
        settings += [f"train.guided={weight}", "train.steps=40", "train.batch_tokens=200", "train.rate=0.015"]
        begin(resolve(gather(None, name, "tiny", [*settings, *RARELY], corpus="phrasebook")), run)
        translator = regard.load(run)
        seen = aligning.traces(translator, [one.source for one in made], [one.target for one in made])
        heads = translator.heads
        assert (heads.shift == 0) == bool(weight)
        rates[weight] = score_alignments(aligning.align(seen, heads), gold).aer
    assert rates[1.0] < 0.45
    assert rates[1.0] < rates.get(0.0, 1.0) - 0.2


def test_a_guided_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    more = ("data.alignment=gold", "train.guided=0.5", "train.steps=6")
    small.train("transformer", tmp_path / "whole", *more)
    small.train("transformer", tmp_path / "parts", *more[:2], "train.steps=3")
    small.train("transformer", tmp_path / "parts", *more)
    whole, parts = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
    small.train("transformer", tmp_path / "free", "train.steps=6")
    assert (tmp_path / "free" / "weights.safetensors").read_bytes() != whole


# Refused


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["0-0 2-1", "", "0-0"], "has 3 lines and the corpus 4 pairs; line n must hold the links of pair n"),
        (["0-0", "", "", "", "0-0", ""], "has 6 lines and the corpus 4 pairs"),
        (["0-0 3-1", "", "", ""], "line 1, links words 3-1, but its pair has 3 source words and 2 target words"),
        (["0-2", "", "", ""], "line 1, links words 0-2"),
        (["", "0 0", "", ""], "line 2, must hold links i-j with integers, such as 1-2; got '0'"),
        (["", "1p1", "", ""], "line 2, must hold links i-j with integers"),
    ],
)
def test_links_that_do_not_belong_to_the_corpus_are_refused(lines, sentence, tmp_path):
    config = corpus(tmp_path, *PAIRS, dev_source=str(tmp_path / "a"), dev_target=str(tmp_path / "b"))
    (tmp_path / "links").write_bytes("".join(f"{line}\n" for line in lines).encode())
    with pytest.raises(DataError) as refused:
        prepare(PairEncoding(config), tmp_path / "run")
    assert sentence in str(refused.value)
    assert not (tmp_path / "run" / "corpus").exists()


def test_a_pair_whose_words_the_pieces_do_not_tell_is_trained_on_without_links(tmp_path):
    """Subwords read the sign ▁ as a space: what was one word is two."""
    lines = [("ab cd", "xy z", "0-0 1-1")] * 20 + [("ab▁cd e", "xy z", "1-1")]
    dev = {"dev_source": str(tmp_path / "a"), "dev_target": str(tmp_path / "b")}
    data = prepare(PairEncoding(corpus(tmp_path, *lines, **dev, subwords="bpe", vocabulary=300)), tmp_path / "run")
    assert len(data.train) == 21
    assert len(data.train.links(0)) == 2
    assert len(data.train.links(20)) == 0


def settings(**more):
    return [f"{key.replace('__', '.')}={value}" for key, value in more.items()]


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("bahdanau", {"data__alignment": "nowhere.txt"}, "There is no alignment file nowhere.txt"),
        ("bahdanau", {"data__alignment": ""}, "train.guided needs word links"),
        ("bahdanau", {"train__guided": -1}, "train.guided must be at least 0; got -1"),
        ("bahdanau", {"train__guided_head": 1}, "train.guided_head is 1, but 'decoder.attention' has one head, 0"),
        ("bahdanau", {"train__guided_layer": 1}, "train.guided_layer is 1, but the attention over the source"),
        ("transformer", {"train__guided_head": 2}, "has heads 0 to 1"),
        ("transformer", {"train__guided_head": -2}, "train.guided_head must be at least -1; got -2"),
        ("transformer", {"train__guided_shift": 2}, "train.guided_shift must be at least 0 and at most 1; got 2"),
        ("sutskever", {}, "Sutskever sees the source as one vector"),
    ],
)
def test_what_cannot_be_guided_is_refused_before_anything_is_trained(name, changes, sentence, tmp_path):
    given = {"data__alignment": "gold", "train__guided": 0.1, "train__steps": 1, **changes}
    with pytest.raises((ConfigError, DataError)) as refused:
        small.train(name, tmp_path / "run", *settings(**given))
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
    assert not (tmp_path / "run").exists(), "nothing is left behind"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train__guided_shift": 1}, "train.guided_shift needs guided attention: set train.guided above 0"),
        ({"train__consistency": -1}, "train.consistency must be at least 0; got -1"),
        ({"train__consistency": 5, "train__coverage": 1}, "train.coverage and train.consistency cannot be combined"),
    ],
)
def test_a_consistency_that_means_nothing_is_refused(changes, sentence, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        small.train("bahdanau", tmp_path / "run", *settings(train__steps=1, **changes))
    assert not (tmp_path / "run").exists(), "nothing is left behind"


def test_consistency_weighs_how_far_two_passes_with_dropout_are_apart(tmp_path):
    data = data_of(tmp_path)
    model = model_of("bahdanau", data, dropout=0.4, **CASES["bahdanau"][0]).train()
    batch = data.train.batch([4, 1, 9])

    def loss(weight):
        torch.manual_seed(1)
        return float(task_of(data, consistency=weight).loss(model, batch).total.detach())

    apart = loss(2.0) - loss(1.0)
    assert apart > 0
    assert loss(5.0) - loss(2.0) == pytest.approx(3 * apart)
    model.eval()
    assert loss(5.0) == pytest.approx(loss(0.0))


def test_gold_belongs_to_built_in_corpora_alone(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.alignment = 'gold' needs a built-in corpus"):
        prepare(PairEncoding(corpus(tmp_path, *PAIRS, alignment="gold")), tmp_path / "run")


def test_the_command_line_refuses_in_one_sentence(tmp_path):
    (tmp_path / "links").write_bytes(b"0-0\n")
    more = [f"data.alignment={tmp_path / 'links'}", "train.guided=0.1"]
    done = command(*small.arguments("bahdanau", tmp_path / "run", *more), folder=tmp_path / "log")
    assert done.code == 2
    assert done.err.startswith("regard: The alignment ")
    assert done.err.count("\n") == 1


def test_random_links_survive_the_way_to_the_store(tmp_path):
    draw = random.Random(5)
    lines = []
    for _ in range(40):
        sizes = draw.randint(1, 6), draw.randint(1, 6)
        links = {(draw.randrange(sizes[0]), draw.randrange(sizes[1])) for _ in range(draw.randint(0, 5))}
        text = [" ".join(f"w{draw.randrange(9)}" for _ in range(size)) for size in sizes]
        lines.append((*text, format_pharaoh(links)))
    config = corpus(tmp_path, *lines, dev_source=str(tmp_path / "a"), dev_target=str(tmp_path / "b"))
    data = prepare(PairEncoding(config), tmp_path / "run")
    for index, line in enumerate(data.train.lines):
        assert format_pharaoh(map(tuple, data.train.links(index).tolist())) == lines[int(line) - 1][2]
