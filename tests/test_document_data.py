"""Labelled documents: files into sentences, words, classes and batches; the built-in reviews; the linear baseline."""

import bz2
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.corpora import reviews
from regard.data.documents import (
    DocumentDataConfig,
    DocumentEncoding,
    DocumentSet,
    find_documents,
    group_labels,
    load_words,
    make_set,
    spell,
    split_document,
    training_documents,
)
from regard.data.prepare import prepare
from regard.errors import ConfigError, DataError
from regard.evaluate.classification import BagOfWords
from regard.symbols import UNKNOWN
from regard.text.sentences import split_sentences

CONFIG = DocumentDataConfig()


def write_jsonl(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def rows(count: int = 20) -> list[dict]:
    return [{"stars": 1 + k % 4 * 3, "text": f"Film number {k}. It was seen by {k} people!"} for k in range(count)]


# --- reading


def test_json_lines_packed_or_not_are_documents(tmp_path: Path):
    path = tmp_path / "d.jsonl.bz2"
    path.write_bytes(bz2.compress("".join(json.dumps(row) + "\n" for row in rows(3)).encode()))
    config = replace(CONFIG, files=str(path), label="stars")
    assert [(d.line, d.label) for d in find_documents(config)] == [(1, "1"), (2, "4"), (3, "7")]


def test_tsv_is_label_tab_text_and_quotes_are_characters(tmp_path: Path):
    path = tmp_path / "d.tsv"
    path.write_text('good\tA "fine\tfilm.\nbad\t\u2028No\u00a0.\n', encoding="utf-8")
    documents = find_documents(replace(CONFIG, files=str(path)))
    assert [(d.label, d.text) for d in documents] == [("good", 'A "fine\tfilm.'), ("bad", "\u2028No\u00a0.")]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("{not json}\n", "d.jsonl", r"d.jsonl, line 1: not a JSON object"),
        ("[1]\n", "d.jsonl", "a line must be a JSON object; got list"),
        (
            '{"text": "a", "label": "b"}\n{"texts": "a", "label": "b"}\n',
            "d.jsonl",
            "line 2: There is no field 'text'. Did",
        ),
        ('{"text": 5, "label": "b"}\n', "d.jsonl", "'text' must be text"),
        ('{"text": "a", "label": 0.5}\n', "d.jsonl", "'label' text or an integer"),
        ("[" * 100_000 + "\n", "d.jsonl", "not a JSON object"),
        ("no tab here\n", "d.tsv", "expected label, tab and text; got 'no tab here'"),
        ("a\tb\n", "d.csv", r"must be JSON lines \(.jsonl\) or label-tab-text"),
    ],
)
def test_files_that_are_no_documents_are_refused(tmp_path: Path, content: str, name: str, message: str):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(find_documents(replace(CONFIG, files=str(path))))


def test_a_file_that_is_not_there_is_named_whatever_its_ending():
    for name in ("missing.tsv", "missing"):
        with pytest.raises(DataError, match=f"There is no file {name}; check the path"):
            list(find_documents(replace(CONFIG, files=name)))


def test_another_encoding_is_refused_with_its_line(tmp_path: Path):
    path = tmp_path / "d.tsv"
    path.write_bytes("good\tfine\nbad\tcaf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match="line 2: byte 8"):
        list(find_documents(replace(CONFIG, files=str(path))))


def test_settings_that_name_no_corpus_or_two_are_refused():
    with pytest.raises(ConfigError, match="There are no documents"):
        find_documents(CONFIG)
    with pytest.raises(ConfigError, match="set one of the two"):
        find_documents(replace(CONFIG, files="a.jsonl", corpus="reviews"))
    with pytest.raises(DataError, match="Did you mean 'reviews'"):
        find_documents(replace(CONFIG, corpus="review"))


# --- labels


def test_labels_can_be_grouped_into_classes():
    groups = group_labels(replace(CONFIG, classes=("negative = 1 2", "very good = 9 10")))
    assert groups == {"1": "negative", "2": "negative", "9": "very good", "10": "very good"}
    for wrong in (("negative 1 2",), ("= 1",), ("a = ",), ("a = 1", "b = 1")):
        with pytest.raises(ConfigError, match=r"data\.classes"):
            group_labels(replace(CONFIG, classes=wrong))


def test_a_label_never_seen_is_refused(tmp_path: Path):
    train = write_jsonl(tmp_path / "train.jsonl", rows())
    dev = write_jsonl(tmp_path / "dev.jsonl", [{"stars": 5, "text": "Odd."}])
    config = replace(CONFIG, files=train, dev_files=dev, label="stars")
    with pytest.raises(DataError, match=r"There is no label '5'.* Known: 1, 4, 7, 10"):
        prepare(DocumentEncoding(config), tmp_path)


def test_one_class_alone_is_refused(tmp_path: Path):
    path = write_jsonl(tmp_path / "d.jsonl", [{"label": "x", "text": f"Text {k}."} for k in range(5)])
    with pytest.raises(DataError, match="There is only one class, 'x'"):
        prepare(DocumentEncoding(replace(CONFIG, files=path)), tmp_path)


# --- numbers


def test_a_long_sentence_is_read_as_several_and_no_word_is_lost():
    text = "a b c d e f g. H i"
    sentences = split_document(text, most=3)
    assert spell(text, sentences) == ["a b c", "d e f", "g .", "H i"]
    assert "".join(text[start:end] for words in sentences for start, end in words) == "abcdefg.Hi"


def test_prepared_documents_are_the_same_the_second_time_and_empty_ones_are_reported(tmp_path: Path):
    path = write_jsonl(tmp_path / "d.jsonl", [*rows(), {"stars": 1, "text": " \u00a0"}])
    config = replace(CONFIG, files=path, label="stars", classes=("low = 1 4", "high = 7 10"))
    run = tmp_path / "run"
    run.mkdir()
    first, second = (prepare(DocumentEncoding(config), run) for _ in range(2))
    assert first.encoding.classes == ["low", "high"]
    assert len(first.train) + len(first.dev) == 20
    assert "18 of 21 documents kept, 2 held out; 1 dropped: empty (line 21)" in first.notes[0]
    for one, other in ((first.train, second.train), (first.dev, second.dev)):
        assert all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("words", "lengths", "labels"))
    assert isinstance(first.train.words, np.memmap)
    trained = list(training_documents(config))
    assert len(trained) == 18
    assert {text for text, _ in first.shown}.isdisjoint(document.text for document in trained)
    vocabulary, classes = load_words(run)
    assert classes == first.encoding.classes
    document = list(find_documents(config))[3]
    ids = vocabulary.encode_many(spell(document.text, split_document(document.text, 100)))
    assert [len(sentence) for sentence in ids] == [4, 7]
    assert vocabulary.decode(ids[1]).startswith("it was seen by")


def test_another_setting_is_another_set_of_numbers(tmp_path: Path):
    path = write_jsonl(tmp_path / "d.jsonl", rows())
    config = replace(CONFIG, files=path, label="stars")
    whole = prepare(DocumentEncoding(config), tmp_path)
    cut = prepare(DocumentEncoding(replace(config, max_sentence=2)), tmp_path)
    assert cut.train.lengths.max() == 2 < whole.train.lengths.max()
    assert cut.train.words.tolist() == whole.train.words.tolist()


def test_rare_words_are_unknown(tmp_path: Path):
    path = write_jsonl(tmp_path / "d.jsonl", rows())
    found = prepare(DocumentEncoding(replace(CONFIG, files=path, label="stars", min_count=3)), tmp_path)
    assert len(found.vocabulary) == 4 + len(["film", "number", ".", "it", "was", "seen", "by", "people", "!"])
    assert (found.train.words == UNKNOWN).any()


def test_a_batch_is_its_documents_in_order():
    documents = make_set([[[4, 5], [6]], [], [[7, 8, 9]]], [0, 1, 2])
    assert documents.sizes.tolist() == [3, 0, 3]
    words, lengths, counts, labels = documents.batch([2, 1, 0, 2])
    assert words.tolist() == [7, 8, 9, 4, 5, 6, 7, 8, 9]
    assert lengths.tolist() == [3, 2, 1, 3]
    assert counts.tolist() == [1, 0, 2, 1]
    assert labels.tolist() == [2, 1, 0, 2]
    assert [len(part) for part in documents.batch([])] == [0, 0, 0, 0]


# --- the built-in reviews


def test_reviews_are_what_they_say():
    found = reviews.generate(300, seed=3)
    assert found == reviews.generate(300, seed=3) != reviews.generate(300, seed=4)
    assert len({review.text for review in found}) == 300
    assert 100 < sum(review.label == "positive" for review in found) < 200
    for review in found:
        assert [review.text[a:b] for a, b in split_sentences(review.text)] == list(review.sentences)
        assert 1 <= len(review.deciding) <= 3
        for place, sentence in enumerate(review.sentences):
            speaks = any(aspect in sentence for aspect in reviews._ASPECTS)
            assert speaks == (place in review.deciding)
            if speaks:
                praised = any(
                    word in sentence.split(" ") for word in (*reviews._GOOD, *(w + "." for w in reviews._GOOD))
                )
                negated = any(word in sentence.split(" ") for word in reviews._NOT)
                assert (praised != negated) == (review.label == "positive")


# --- the linear baseline


def test_the_baseline_learns_what_only_pairs_tell():
    draw = np.random.default_rng(0)

    def documents(count: int) -> DocumentSet:
        """Class 1 where 4 stands right before 5; both words are always there, so that words alone tell nothing."""
        rows, labels = [], []
        for _ in range(count):
            label = int(draw.integers(2))
            fill = [int(word) for word in draw.integers(10, 60, 6)]
            rows.append([[*fill[:3], *([4, 5] if label else [5, 4]), *fill[3:]]])
            labels.append(label)
        return make_set(rows, labels)

    train, test = documents(300), documents(200)
    assert (BagOfWords(train).classify(test) == test.labels).all()


def test_a_pair_of_words_lies_within_a_sentence():
    """4 and 5 are neighbours in a sentence of class 1, and at the border of two sentences of class 0."""
    documents = make_set([[[4, 5]], [[6, 4], [5, 6]]] * 10, [1, 0] * 10)
    fitted = BagOfWords(documents)
    features = fitted.model[0].get_feature_names_out().tolist()
    assert features == ["4", "4 5", "5", "5 6", "6", "6 4"]
    assert fitted.classify(make_set([[[4, 5]], [[6, 4], [5, 6]]], [1, 0])).tolist() == [1, 0]
    assert fitted.classify(make_set([[[99]]], [0])).tolist()[0] in (0, 1)  # nothing known: the bias decides


def test_documents_that_no_baseline_can_be_fitted_to_are_refused(monkeypatch):
    for documents in (make_set([], []), make_set([[[4]], [[4]]], [1, 1])):
        with pytest.raises(DataError, match="baseline cannot be fitted to these documents"):
            BagOfWords(documents)
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ConfigError, match=r"needs scikit-learn; install it with: pip install 'regard\[baseline\]'"):
        BagOfWords(make_set([[[4]]], [0]))
