"""From settings to datasets: reuse, invalidation, accounting, and a clear sentence for every bad corpus."""

import dataclasses
import json

import numpy as np
import pytest

from regard.config import read, to_toml
from regard.data.prepare import prepare
from regard.data.settings import DataConfig
from regard.data.store import Resampled, Store, open_store, write_store
from regard.errors import ConfigError, DataError
from regard.symbols import END, UNKNOWN

ANIMALS = ["dog", "cat", "horse", "bird", "cow", "goat", "wolf", "bear"]


def write_corpus(folder, count=200, name="train"):
    source = [f"the {ANIMALS[index % 8]} number {index}" for index in range(count)]
    target = [f"{index} {line.upper()}" for index, line in enumerate(source)]
    for side, lines in (("en", source), ("fr", target)):
        (folder / f"{name}.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return DataConfig(
        source=str(folder / f"{name}.en"),
        target=str(folder / f"{name}.fr"),
        vocabulary=500,
        subwords="word",
        held_out=20,
    )


def change(config, **settings):
    return dataclasses.replace(config, **settings)


def ids(dataset):
    return [
        tuple(map(tuple, (np.asarray(side).tolist() for side in dataset.pair(index)))) for index in range(len(dataset))
    ]


@pytest.mark.parametrize("subwords", ["bpe", "unigram", "word", "char"])
@pytest.mark.parametrize("joint", [False, True])
def test_a_second_call_gives_the_same_and_does_the_work_once(tmp_path, subwords, joint):
    config = change(write_corpus(tmp_path), subwords=subwords, joint=joint)
    run = tmp_path / "run"
    stages: list[str] = []
    first = prepare(config, run, lambda stage, done, total: stages.append(stage))
    assert "vocabulary" in stages
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    stages.clear()
    again = prepare(config, run, lambda stage, done, total: stages.append(stage))
    assert stages == []
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == times
    assert ids(first.train) == ids(again.train)
    assert ids(first.dev) == ids(again.dev)
    assert (first.dev_source, first.dev_target, first.report) == (again.dev_source, again.dev_target, again.report)
    assert first.fingerprint == again.fingerprint
    assert (first.source_vocabulary is first.target_vocabulary) == joint
    assert (again.source_vocabulary is again.target_vocabulary) == joint


def test_pairs_are_tokenised_as_they_stand_in_the_file(tmp_path):
    config = write_corpus(tmp_path)
    made = prepare(config, tmp_path / "run")
    assert len(made.dev) == 20
    assert len(made.train) == 180
    text = (tmp_path / "train.en").read_text().split("\n")
    assert isinstance(made.train, Store)
    for index in range(0, 180, 17):
        source, target = made.train.pair(index)
        assert source[-1] == target[-1] == END
        assert len(source) == made.train.source_lengths[index]
        assert len(target) == made.train.target_lengths[index]
        line = text[made.train.lines[index] - 1]
        assert made.source_vocabulary.encode(line).ids == source[:-1].tolist()
    assert not set(made.dev_source) & {text[line - 1] for line in made.train.lines}
    assert [[*made.source_vocabulary.encode(line).ids, END] for line in made.dev_source] == [
        made.dev.pair(index)[0] for index in range(20)
    ]
    # each line has a number of its own: those held out were not seen by the vocabulary
    assert all(UNKNOWN in made.dev.pair(index)[0] for index in range(20))
    assert not any(UNKNOWN in made.train.pair(index)[0] for index in range(180))


def test_no_source_sentence_is_on_both_sides(tmp_path):
    rows = [f"{ANIMALS[index % 8]} {index // 20}\tx{index}" for index in range(400)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    made = prepare(DataConfig(tsv=str(tmp_path / "rows.tsv"), subwords="word", held_out=30), tmp_path / "run")
    trained = {rows[line - 1].split("\t")[0] for line in made.train.lines}
    assert not trained & set(made.dev_source)
    assert made.report.total == 400
    assert 30 <= len(made.dev) < 40


def test_every_pair_is_accounted_for(tmp_path):
    config = change(write_corpus(tmp_path), max_length=6, max_ratio=2.0)
    source = (tmp_path / "train.en").read_text().split("\n")[:-1]
    target = (tmp_path / "train.fr").read_text().split("\n")[:-1]
    source[3] = source[7] = ""
    target[8] = "\u00a0 "
    source[10] = "word " * 7
    target[11] = "a"
    (tmp_path / "train.en").write_text("\n".join(source) + "\n")
    (tmp_path / "train.fr").write_text("\n".join(target) + "\n")
    report = prepare(config, tmp_path / "run").report
    assert report.total == 200 == report.kept + report.held_out + sum(report.dropped.values())
    assert report.lines == {"empty": [4, 8, 9], "too long": [11], "ratio": [12]}
    assert report.held_out in (18, 19, 20)  # a held-out pair may be too long as well


def test_validation_files_of_their_own(tmp_path):
    config = write_corpus(tmp_path)
    other = write_corpus(tmp_path, 30, "dev")
    (tmp_path / "dev.en").write_text((tmp_path / "dev.en").read_text().replace("the cat number 9\n", "\n"))
    made = prepare(change(config, dev_source=other.source, dev_target=(str(other.target),)), tmp_path / "run")
    assert len(made.train) == 200
    assert made.report.held_out == 0
    assert made.dev_report is not None
    assert (made.dev_report.kept, made.dev_report.dropped) == (29, {"empty": 1})
    assert len(made.dev) == len(made.dev_source) == len(made.dev_target) == 29


def test_a_changed_corpus_vocabulary_or_setting_is_tokenised_anew(tmp_path):
    config = change(write_corpus(tmp_path), cache=str(tmp_path / "cache"))
    made = [prepare(config, tmp_path / "one")]
    made.append(prepare(change(config, max_length=5), tmp_path / "one"))
    made.append(prepare(change(config, vocabulary=60), tmp_path / "two"))
    made.append(prepare(change(config, seed=9), tmp_path / "one"))
    assert prepare(config, tmp_path / "three").fingerprint == made[0].fingerprint  # another run shares the cache
    assert len(list((tmp_path / "cache").iterdir())) == 4
    text = (tmp_path / "train.en").read_text().replace("wolf", "mole")
    (tmp_path / "train.en").write_text(text)
    made.append(prepare(config, tmp_path / "one"))
    assert len({prepared.fingerprint for prepared in made}) == 5
    assert len(list((tmp_path / "cache").iterdir())) == 5


def test_a_damaged_or_unfinished_store_is_made_anew(tmp_path):
    config = write_corpus(tmp_path)
    run = tmp_path / "run"
    expected = ids(prepare(config, run).train)
    (run / "corpus" / "target.ids").write_bytes(b"short")
    assert ids(prepare(config, run).train) == expected
    (run / "corpus" / "store.json").write_bytes(b"{")
    assert ids(prepare(config, run).train) == expected
    (run / "corpus" / "store.json").unlink()
    assert ids(prepare(config, run).train) == expected
    assert sorted(path.name for path in run.iterdir()) == ["corpus", "source.json", "target.json"]  # no temporary left


def test_large_vocabularies_take_four_bytes_and_empty_stores_open(tmp_path):
    rows = [(1, [70_000, 5], [6]), (4, [5], [7, 8])]
    store = write_store(tmp_path / "wide", "f", rows, 80_000, dict)
    assert store.pair(0)[0].tolist() == [70_000, 5, END]
    assert store.lines.tolist() == [1, 4]
    assert open_store(tmp_path / "wide", "f") is not None
    assert open_store(tmp_path / "wide", "g") is None
    assert len(write_store(tmp_path / "none", "f", [], 10, dict)) == 0


def test_sampling_is_pure_varies_by_epoch_and_respects_the_limit(tmp_path):
    config = change(write_corpus(tmp_path), subwords="bpe", sampling=0.3, max_length=30)
    made = prepare(config, tmp_path / "run")
    again = prepare(config, tmp_path / "run")
    assert isinstance(made.train, Resampled)
    assert isinstance(again.train, Resampled)
    drawn = [[made.train.pair(index, epoch) for index in range(40)] for epoch in range(3)]
    assert drawn == [[again.train.pair(index, epoch) for index in range(40)] for epoch in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    for index, (source, target) in enumerate(drawn[1]):
        best = made.train.store.pair(index)
        assert made.source_vocabulary.decode(source) == made.source_vocabulary.decode(best[0])
        assert made.target_vocabulary.decode(target) == made.target_vocabulary.decode(best[1])
        assert source[-1] == target[-1] == END
        assert max(len(source), len(target)) <= 31


@pytest.mark.parametrize("name", ["phrasebook", "dates", "copy", "reverse"])
def test_built_in_corpora_are_prepared(tmp_path, name):
    config = DataConfig(corpus=name, size=300, subwords="char")
    made = prepare(config, tmp_path / "run")
    assert (len(made.train), len(made.dev)) == (270, 30)


def test_bad_corpora_are_refused_in_one_sentence(tmp_path):
    good = write_corpus(tmp_path)
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    blank = tmp_path / "blank"
    blank.write_bytes(b"\n \n")
    one = tmp_path / "one"
    one.write_bytes(b"only\n")
    invalid = tmp_path / "invalid"
    invalid.write_bytes(b"a\nb\xff\n")
    cases = [
        (change(good, source=str(tmp_path / "nowhere")), "There is no file"),
        (change(good, source=str(tmp_path)), "is a folder"),
        (change(good, source=str(one)), "one has 1 lines and .*train.fr has 200"),
        (change(good, source=str(empty), target=str(empty)), "The corpus is empty: it has no line"),
        (change(good, source=str(blank), target=str(blank)), "each of its 2 pairs has an empty side"),
        (change(good, source=str(one), target=str(one)), "1 usable pair with one source sentence; .* give more pairs"),
        (change(good, source=str(invalid), target=str(invalid)), "invalid, line 2: byte 2"),
        (change(good, target=""), "Only the source file is given"),
        (change(good, max_length=1), "No pair is left to train on: 0 of 200 pairs kept; 200 dropped: too long"),
        (change(good, dev_source=str(tmp_path / "gone"), dev_target=str(one)), "There is no file .*gone"),
    ]
    for config, sentence in cases:
        with pytest.raises(DataError, match=sentence):
            prepare(config, tmp_path / "run" / str(cases.index((config, sentence))))
    with pytest.raises(DataError, match=r"no built-in corpus 'phrasebok'. Did you mean 'phrasebook'"):
        prepare(DataConfig(corpus="phrasebok"), tmp_path / "run")
    with pytest.raises(ConfigError, match="There is no corpus"):
        prepare(DataConfig(), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"Both data.corpus and files"):
        prepare(change(good, corpus="copy"), tmp_path / "run")


def test_one_pair_is_enough_when_nothing_is_held_out(tmp_path):
    path = tmp_path / "one"
    path.write_bytes(b"only\n")
    made = prepare(DataConfig(source=str(path), target=str(path), held_out=0), tmp_path / "run")
    assert (len(made.train), len(made.dev)) == (1, 0)


def test_replaced_bytes_are_a_setting(tmp_path):
    config = change(write_corpus(tmp_path), invalid="replace")
    content = (tmp_path / "train.en").read_bytes()
    (tmp_path / "train.en").write_bytes(content.replace(b"dog", b"d\xffg"))
    assert prepare(config, tmp_path / "run").report.total == 200


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    config = write_corpus(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="could not be made"):
        prepare(config, tmp_path / "file" / "run")


def test_settings_pass_through_toml_and_refuse_what_does_not_fit():
    config = DataConfig(source=("a", "b"), target=("c", "d"), subwords="unigram")
    table = dataclasses.asdict(config)
    assert read(DataConfig, json.loads(json.dumps(table)), "data") == config
    assert 'subwords = "unigram"' in to_toml({"data": table})
    for settings, sentence in (
        ({"vocabulary": 2}, "data.vocabulary must be at least 5; got 2"),
        ({"max_words": 2}, "data.max_words must be at least data.min_words"),
        ({"sampling": 1.5}, "data.sampling lies between"),
        ({"max_ratio": 0.5}, "data.max_ratio is at least 1"),
        ({"subwords": "bytes"}, "data.subwords must be one of bpe, unigram, word, char"),
        ({"vocab": 3}, "Did you mean"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            read(DataConfig, settings, "data")
