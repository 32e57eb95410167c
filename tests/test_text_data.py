"""Text for language models: rows that hold every token once, the built-in tales, and what is measured on them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from weights_of import spread

from regard.corpora import tales
from regard.data.prepare import prepare
from regard.data.settings import TextDataConfig
from regard.data.text_corpus import TextEncoding, find_text, make_rows
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError
from regard.evaluate import language
from regard.evaluate.language import last_word_accuracy, text_loss
from regard.models.lstm_lm import LSTMLanguageConfig, LSTMLanguageModel
from regard.symbols import END, PAD

CONFIG = TextDataConfig(subwords="word", vocabulary=50)
LINES = ["a b c", "", "d", " \u00a0", "a a a a a a a"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.train(LINES, "word", 20)


def test_each_line_is_a_row_with_its_end(vocabulary: Vocabulary):
    rows = make_rows(LINES, vocabulary)
    a, b, c, d = vocabulary.encode("a b c d").ids
    assert [rows.row(k).tolist() for k in range(len(rows))] == [[a, b, c, END], [d, END], [*[a] * 7, END]]
    assert rows.tokens == 14
    batch = rows.batch([1, 0])
    assert batch.target.tolist() == [[d, END, PAD, PAD], [a, b, c, END]]
    assert batch.lengths.tolist() == [2, 4]


@pytest.mark.parametrize(("max_length", "context"), [(3, 0), (1, 0), (256, 5), (256, 14), (256, 100), (256, 1)])
def test_however_rows_are_cut_every_token_is_in_one_of_them(vocabulary: Vocabulary, max_length: int, context: int):
    whole, cut = make_rows(LINES, vocabulary), make_rows(LINES, vocabulary, max_length, context)
    joined = [token for k in range(len(cut)) for token in cut.row(k)]
    assert joined == [token for k in range(len(whole)) for token in whole.row(k)]
    assert all(0 < length <= (context or max_length) for length in cut.lengths)


def test_no_lines_are_no_rows(vocabulary: Vocabulary):
    rows = make_rows(["", " "], vocabulary)
    assert len(rows) == rows.tokens == 0


def test_a_text_is_prepared_the_same_the_second_time(tmp_path: Path):
    config = replace(CONFIG, corpus="tales", size=50, vocabulary=100)
    first, second = (prepare(TextEncoding(config), tmp_path) for _ in range(2))
    assert np.array_equal(first.train.values, second.train.values)
    assert len(first.dev) == 5
    assert "corpus: 45 of 50 lines kept, 5 held out" in first.notes
    assert isinstance(first.train.values, np.memmap)
    assert {first.vocabulary.decode(first.dev.row(k)) for k in range(5)} <= {
        tale.text for tale in tales.generate(50, 1)
    }


def test_texts_that_cannot_be_read_are_refused(tmp_path: Path):
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DataError, match=r"all its lines \(2\) are blank"):
        prepare(TextEncoding(replace(CONFIG, files=str(blank))), tmp_path / "run")
    with pytest.raises(DataError, match="There is no file"):
        prepare(TextEncoding(replace(CONFIG, files=str(tmp_path / "none.txt"))), tmp_path / "run")
    with pytest.raises(ConfigError, match="There is no text"):
        find_text(CONFIG)
    with pytest.raises(DataError, match="Did you mean 'tales'"):
        find_text(replace(CONFIG, corpus="tale"))
    with pytest.raises(ConfigError, match=r"data\.context must be at least 0"):
        replace(CONFIG, context=-1)


def test_what_a_tale_recalls_was_mentioned_before():
    found = tales.generate(200, seed=2)
    assert found == tales.generate(200, seed=2) != tales.generate(200, seed=3)
    for tale in found:
        words = tale.text.split(" ")
        assert len(tale.links) == len({told for _, told in tale.links}) in (2, 3)
        for recalled, told in tale.links:
            assert told < recalled
            assert words[recalled] == words[told]
            assert words[recalled - 2] == words[told - 2], "the same person has it and uses it"
        people = [words[told - 2] for _, told in tale.links]
        assert len(set(people)) == len(people)


def test_the_loss_of_a_text_is_the_sum_over_all_words_and_ends(vocabulary: Vocabulary, monkeypatch):
    torch.manual_seed(1)
    model = spread(LSTMLanguageModel(LSTMLanguageConfig(len(vocabulary), 5, 6, 1, 0.0)))
    rows = make_rows(LINES, vocabulary)
    reported: list[tuple[int, int | None]] = []
    for batch_tokens in (4, 1000):
        monkeypatch.setattr(language, "BATCH_TOKENS", batch_tokens)
        total, tokens = text_loss(model, rows, CPU, lambda done, of: reported.append((done, of)))
        each = [torch.tensor([rows.row(k).tolist()]) for k in range(len(rows))]
        with torch.no_grad():
            logprobs = [model(row)[0].log_softmax(-1).gather(1, row[0, :, None]).sum() for row in each]
        assert tokens == 14
        assert total == pytest.approx(-float(sum(logprobs)))
    assert reported[-1] == (14, 14)
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
    assert text_loss(model, rows, CPU)[0] == pytest.approx(14 * math.log(len(vocabulary)))


def test_the_last_word_is_right_where_the_model_says_so(vocabulary: Vocabulary):
    model = spread(LSTMLanguageModel(LSTMLanguageConfig(len(vocabulary), 5, 6, 1, 0.0)))
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
        model.output.bias[vocabulary.encode("a").ids[0]] = 1.0
    assert last_word_accuracy(model, make_rows(LINES, vocabulary), CPU) == pytest.approx(1 / 3)
