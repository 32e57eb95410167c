"""From settings to datasets: reuse, invalidation, accounting, and a clear sentence for every bad corpus."""

import dataclasses
import gzip
import json
import re
import sys

import numpy as np
import pytest

import regard.data.prepare as prepare_module
import regard.data.tokenisers as tokenisers_module
from regard.config import read, to_toml
from regard.data.batching import round_up
from regard.data.documents import DocumentEncoding
from regard.data.encoding import have_text
from regard.data.pairs import PairEncoding, PairSet, Resampled
from regard.data.prepare import prepare, survey
from regard.data.settings import DataConfig, DocumentDataConfig, TextDataConfig
from regard.data.store import ColumnType, Store, find_store, id_type, write_store
from regard.data.text_corpus import TextEncoding
from regard.data.tokenisers import tokenise_here, tokenisers
from regard.data.vocabulary import Vocabulary
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError, RunError
from regard.runs.settings import TrainConfig
from regard.symbols import END, UNKNOWN
from regard.training.translation import TranslationTask

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


def pair(dataset, index):
    return [side[0] for side in PairSet.take(dataset, [index])]


def ids(dataset):
    return [
        tuple(map(tuple, (np.asarray(side).tolist() for side in pair(dataset, index)))) for index in range(len(dataset))
    ]


@pytest.mark.parametrize("subwords", ["bpe", "unigram", "word", "char"])
@pytest.mark.parametrize("joint", [False, True])
def test_a_second_call_gives_the_same_and_does_the_work_once(tmp_path, subwords, joint):
    config = change(write_corpus(tmp_path), subwords=subwords, joint=joint)
    run = tmp_path / "run"
    stages: list[str] = []
    first = prepare(PairEncoding(config), run, lambda stage, done, total: stages.append(stage))
    assert "vocabulary" in stages
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    stages.clear()
    again = prepare(PairEncoding(config), run, lambda stage, done, total: stages.append(stage))
    assert stages == []
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == times
    assert ids(first.train) == ids(again.train)
    assert ids(first.dev) == ids(again.dev)
    assert (first.shown, first.tallies) == (again.shown, again.tallies)
    assert first.fingerprint == again.fingerprint
    assert (first.vocabularies[0] is first.vocabularies[1]) == joint
    assert (again.vocabularies[0] is again.vocabularies[1]) == joint


def test_a_vocabulary_of_another_run_and_its_tokenised_corpus_are_used_without_reading_the_text(tmp_path):
    config = change(write_corpus(tmp_path), cache=str(tmp_path / "cache"))
    first = prepare(PairEncoding(config), tmp_path / "one")
    stages: list[str] = []
    report = lambda stage, done, total: stages.append(stage)  # noqa: E731
    shared = change(config, vocabulary_from=str(tmp_path / "one"))
    second = prepare(PairEncoding(shared), tmp_path / "two", report)
    assert stages == ["vocabulary"]
    assert (second.fingerprint, ids(second.train)) == (first.fingerprint, ids(first.train))
    larger = change(shared, source=str(tmp_path / "more.en"), target=str(tmp_path / "more.fr"))
    write_corpus(tmp_path, 300, "more")
    third = prepare(PairEncoding(larger), tmp_path / "three", report)
    assert "reading" in stages
    assert third.vocabularies[0].fingerprint == first.vocabularies[0].fingerprint
    assert len(third.train) == 280
    stages.clear()
    with pytest.raises(DataError, match=r"data\.vocabulary_from names .*none"):
        prepare(
            PairEncoding(change(config, cache="", vocabulary_from=str(tmp_path / "none"))), tmp_path / "four", report
        )
    assert "reading" not in stages


def test_pairs_are_tokenised_as_they_stand_in_the_file(tmp_path):
    config = write_corpus(tmp_path)
    made = prepare(PairEncoding(config), tmp_path / "run")
    assert len(made.dev) == 20
    assert len(made.train) == 180
    text = (tmp_path / "train.en").read_text().split("\n")
    assert isinstance(made.train, PairSet)
    for index in range(0, 180, 17):
        source, target = pair(made.train, index)
        assert source[-1] == target[-1] == END
        assert len(source) == made.train.sides[0][index]
        assert len(target) == made.train.sides[1][index]
        line = text[made.train.lines[index] - 1]
        assert made.vocabularies[0].encode(line).ids == source[:-1].tolist()
    assert not {source for source, _ in made.shown} & {text[line - 1] for line in made.train.lines}
    assert [[*made.vocabularies[0].encode(line).ids, END] for line, _ in made.shown] == [
        pair(made.dev, index)[0].tolist() for index in range(20)
    ]
    # each line has a different number: those held out were not seen by the vocabulary
    assert all(UNKNOWN in pair(made.dev, index)[0] for index in range(20))
    assert not any(UNKNOWN in pair(made.train, index)[0] for index in range(180))


def test_no_source_sentence_is_on_both_sides(tmp_path):
    rows = [f"{ANIMALS[index % 8]} {index // 20}\tx{index}" for index in range(400)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    made = prepare(
        PairEncoding(DataConfig(tsv=str(tmp_path / "rows.tsv"), subwords="word", held_out=30)), tmp_path / "run"
    )
    trained = {rows[line - 1].split("\t")[0] for line in made.train.lines}
    assert not trained & {source for source, _ in made.shown}
    assert made.tallies[0].total == 400
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
    report = prepare(PairEncoding(config), tmp_path / "run").tallies[0]
    assert report.total == 200 == report.kept + report.held_out + sum(report.dropped.values())
    assert report.lines == {"empty": [4, 8, 9], "too long": [11], "ratio": [12]}
    assert report.held_out in (18, 19, 20)  # a held-out pair may be too long as well


def test_every_nth_pair_is_a_corpus_with_a_held_out_part(tmp_path):
    made = prepare(PairEncoding(change(write_corpus(tmp_path), every=4)), tmp_path / "run")
    assert {line % 4 for line in made.train.lines} == {1}
    assert (made.tallies[0].kept, made.tallies[0].held_out) == (45, 5)
    assert made.tallies[0].dropped == {"data.every": 150}


def test_validation_files(tmp_path):
    config = write_corpus(tmp_path)
    other = write_corpus(tmp_path, 30, "dev")
    (tmp_path / "dev.en").write_text((tmp_path / "dev.en").read_text().replace("the cat number 9\n", "\n"))
    made = prepare(
        PairEncoding(change(config, dev_source=other.source, dev_target=(str(other.target),))), tmp_path / "run"
    )
    assert len(made.train) == 200
    assert made.tallies[0].held_out == 0
    assert (made.tallies[1].kept, made.tallies[1].dropped) == (29, {"empty": 1})
    assert len(made.dev) == len(made.shown) == 29


def test_a_changed_corpus_vocabulary_or_setting_is_tokenised_again(tmp_path):
    config = change(write_corpus(tmp_path), cache=str(tmp_path / "cache"))
    made = [prepare(PairEncoding(config), tmp_path / "one")]
    made.append(prepare(PairEncoding(change(config, max_length=5)), tmp_path / "one"))
    made.append(prepare(PairEncoding(change(config, vocabulary=60)), tmp_path / "two"))
    made.append(prepare(PairEncoding(change(config, seed=9)), tmp_path / "one"))
    assert (
        prepare(PairEncoding(config), tmp_path / "three").fingerprint == made[0].fingerprint
    )  # another run shares the cache
    assert len(list((tmp_path / "cache").iterdir())) == 4
    text = (tmp_path / "train.en").read_text().replace("wolf", "mole")
    (tmp_path / "train.en").write_text(text)
    made.append(prepare(PairEncoding(config), tmp_path / "one"))
    assert len({prepared.fingerprint for prepared in made}) == 5
    assert len(list((tmp_path / "cache").iterdir())) == 5


def test_a_damaged_store_is_named_and_made_again(tmp_path):
    """Any byte of any of its files; what was trained on so far must be trained on again."""
    config, run = write_corpus(tmp_path), tmp_path / "run"
    first = prepare(PairEncoding(config), run)
    expected = ids(first.train), ids(first.dev)
    assert not any("rebuilt" in note for note in first.notes)
    for path in sorted((run / "corpus").iterdir()):
        good = path.read_bytes()
        places = {0, len(good) // 2, len(good) - 1} if good else ()
        for bad in (*(flip(good, place) for place in places), good[:-1], good + b"\0", b""):
            if bad != good:
                path.write_bytes(bad)
                with pytest.raises(DataError, match=f"{path.name} is (missing or )?damaged"):
                    Store(run / "corpus")
        again = prepare(PairEncoding(config), run)
        assert [path.name in note for note in again.notes if "rebuilt" in note] == [True]
        assert (ids(again.train), ids(again.dev)) == expected
        path.unlink()
        assert path.name in prepare(PairEncoding(config), run).notes[0]
    assert sorted(path.name for path in run.iterdir()) == ["corpus", "source.json", "target.json"]  # no temporary left


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def test_large_vocabularies_take_four_bytes_and_empty_stores_open(tmp_path):
    types = {"ids": id_type(80_000), "line": ColumnType("int64", ragged=False)}
    assert (types["ids"], id_type(1 << 16)) == (ColumnType("uint32"), ColumnType("uint16"))
    blocks = [
        ("train", {"ids": [[70_000, 5], []], "line": [1, 4]}),
        ("train", {"ids": [[6]], "line": [9]}),
        ("dev", {}),
    ]
    for store in (write_store(tmp_path / "wide", "f", types, blocks), Store(tmp_path / "wide")):
        train = store.parts["train"]
        assert [train["ids"].row(index).tolist() for index in range(3)] == [[70_000, 5], [], [6]]
        assert train["line"].tolist() == [1, 4, 9]
        assert isinstance(train["ids"].values, np.memmap)
        assert len(store.parts["dev"]["ids"]) == len(store.parts["dev"]["line"]) == 0
    assert find_store(tmp_path / "wide", "g") == find_store(tmp_path / "none", "f") == (None, [])


def test_sampling_is_pure_varies_by_epoch_and_respects_the_limit(tmp_path):
    config = change(write_corpus(tmp_path), subwords="bpe", sampling=0.3, max_length=30)
    made = prepare(PairEncoding(config), tmp_path / "run")
    again = prepare(PairEncoding(config), tmp_path / "run")
    assert isinstance(made.train, Resampled)
    assert isinstance(again.train, Resampled)
    drawn = [
        [listed([rows[0] for rows in made.train.take([index], epoch)]) for index in range(40)] for epoch in range(3)
    ]
    assert drawn == [[listed(pair) for pair in zip(*again.train.take(range(40), n), strict=True)] for n in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    for index, (source, target) in enumerate(drawn[1]):
        best = pair(made.train, index)
        assert made.vocabularies[0].decode(source) == made.vocabularies[0].decode(best[0])
        assert made.vocabularies[1].decode(target) == made.vocabularies[1].decode(best[1])
        assert source[-1] == target[-1] == END
        assert max(len(source), len(target)) <= 31


def test_sampled_batches_have_the_shapes_that_were_planned(tmp_path):
    """A batch of the same planned lengths has the same shape in every epoch, whatever was drawn."""
    made = prepare(PairEncoding(change(write_corpus(tmp_path), subwords="bpe", sampling=0.3)), tmp_path / "run")
    task = TranslationTask(made, TrainConfig(batch_tokens=150), DecodeConfig(), tmp_path)
    shapes, lengths = {}, set()
    for epoch in range(4):
        for numbers in task.plan(epoch, even=True):
            planned = tuple(int(round_up(side[numbers]).max()) for side in made.train.sides)
            batch = task.load(numbers.tolist(), epoch)
            even = task.even(batch, 1)
            shapes.setdefault(planned, set()).add((even.source.shape, even.target.shape))
            lengths.add((planned, batch.source.shape[1]))
            assert even.source[: len(numbers), : batch.source.shape[1]].equal(batch.source)
            assert not even.source[:, batch.source.shape[1] :].any()
    assert {len(some) for some in shapes.values()} == {1}
    assert len(lengths) > len(shapes), "samples of the same plan differ in length"


def listed(pair):
    return tuple(side.tolist() for side in pair)


@pytest.mark.parametrize("name", ["phrasebook", "dates", "copy", "reverse"])
def test_built_in_corpora_are_prepared(tmp_path, name):
    config = DataConfig(corpus=name, size=300, subwords="char")
    made = prepare(PairEncoding(config), tmp_path / "run")
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
        (change(good, source=str(one)), "one has 1 line and .*train.fr has 200"),
        (change(good, source=str(empty), target=str(empty)), "is empty: it has no line"),
        (
            change(good, source=str(blank), target=str(blank)),
            r"all its pairs \(2\) are blank or have an empty side",
        ),
        (change(good, source=str(one), target=str(one)), "has 1 usable example, so none can be held out; add more"),
        (change(good, source=str(invalid), target=str(invalid)), "invalid, line 2: byte 2"),
        (change(good, target=""), "Only data.source is set"),
        (change(good, max_length=1), "Nothing is left to train on: 0 of 200 pairs kept; 200 dropped: too long"),
        (change(good, dev_source=str(tmp_path / "gone"), dev_target=str(one)), "There is no file .*gone"),
        (change(good, dev_source=str(one)), r"Only data\.dev_source is set; .* needs data\.dev_target too"),
        (change(good, dev_source=str(empty), dev_target=str(empty)), "left to validate with: 0 of 0 pairs kept"),
        (change(good, dev_source=str(blank), dev_target=str(blank)), "left to validate with: .*2 dropped: empty"),
    ]
    for config, sentence in cases:
        with pytest.raises(DataError, match=sentence):
            prepare(PairEncoding(config), tmp_path / "run" / str(cases.index((config, sentence))))
    with pytest.raises(DataError, match=r"no built-in corpus 'phrasebok'. Did you mean 'phrasebook'"):
        prepare(PairEncoding(DataConfig(corpus="phrasebok")), tmp_path / "run")
    with pytest.raises(ConfigError, match="There is no corpus"):
        prepare(PairEncoding(DataConfig()), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"Both data.corpus and files"):
        prepare(PairEncoding(change(good, corpus="copy")), tmp_path / "run")


def test_one_pair_is_enough_when_nothing_is_held_out(tmp_path):
    path = tmp_path / "one"
    path.write_bytes(b"only\n")
    made = prepare(PairEncoding(DataConfig(source=str(path), target=str(path), held_out=0)), tmp_path / "run")
    assert (len(made.train), len(made.dev)) == (1, 0)


def test_replaced_bytes_are_a_setting_and_their_pairs_are_counted(tmp_path):
    config = change(write_corpus(tmp_path), invalid="replace")
    assert "U+FFFD" not in str(prepare(PairEncoding(config), tmp_path / "run").tallies[0])
    for name, word in (("train.en", b"dog"), ("train.fr", b"DOG")):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content.replace(word, b"d\xffg\xff"))
    for _ in range(2):  # made, and found
        (tally,) = prepare(PairEncoding(config), tmp_path / "run").tallies
        assert tally.total == 200
        assert str(tally).endswith("; 25 with U+FFFD in place of bytes that were not UTF-8")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    config = write_corpus(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be created"):
        prepare(PairEncoding(config), tmp_path / "file" / "run")


def test_settings_pass_through_toml_and_refuse_what_does_not_fit():
    config = DataConfig(source=("a", "b"), target=("c", "d"), subwords="unigram")
    table = dataclasses.asdict(config)
    assert read(DataConfig, json.loads(json.dumps(table)), "data") == config
    assert 'subwords = "unigram"' in to_toml({"data": table})
    for settings, sentence in (
        ({"vocabulary": 2}, "data.vocabulary must be at least 5; got 2"),
        ({"max_words": 2}, "data.max_words must be at least data.min_words"),
        ({"sampling": 1.5}, "data.sampling must be at least 0 and below 1"),
        ({"max_ratio": 0.5}, "data.max_ratio must be at least 1"),
        ({"subwords": "bytes"}, "data.subwords must be one of bpe, unigram, word, char"),
        ({"vocab": 3}, "Did you mean"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            read(DataConfig, settings, "data")


# The steps that all tasks share.


def write_task(folder, task: str, animals=ANIMALS, count=60):
    """Files of a corpus for a task, and a function that prepares it."""
    lines = [f"the {animals[index % len(animals)]} of {animals[index // 8 % 8]}" for index in range(count)]
    text = {
        "pairs": [f"{line}\t{line} too" for line in lines],
        "text": lines,
        "documents": [f"{'ab'[index % 2]}\t{line}. And so on." for index, line in enumerate(lines)],
    }[task]
    path = folder / ("corpus.txt" if task == "text" else "corpus.tsv")
    path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    encoding, config = {
        "pairs": (PairEncoding, DataConfig(tsv=str(path), subwords="word")),
        "text": (TextEncoding, TextDataConfig(files=str(path), subwords="word")),
        "documents": (DocumentEncoding, DocumentDataConfig(files=str(path))),
    }[task]
    return path, lambda run, **how: prepare(encoding(config), run, **how)


TASKS = ("pairs", "text", "documents")
OPENED: list[str] = []
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event == "open" else None)


@pytest.mark.parametrize("task", TASKS)
def test_a_corpus_is_read_once_or_twice_where_it_does_not_fit_into_memory(tmp_path, monkeypatch, task):
    path, prepare = write_task(tmp_path, task)
    OPENED.clear()
    prepare(tmp_path / "run")
    assert OPENED.count(str(path)) == 1
    OPENED.clear()
    prepare(tmp_path / "run")
    assert OPENED.count(str(path)) == 1, "for its digest"
    OPENED.clear()
    monkeypatch.setattr(prepare_module, "MEMORY", 3_000)
    prepare(tmp_path / "other")
    assert OPENED.count(str(path)) == 2
    for name in ("train", "dev"):
        for file in (tmp_path / "run" / "corpus").glob(f"{name}.*"):
            size = len((tmp_path / "other" / "corpus" / file.name).read_bytes())
            assert size == len(file.read_bytes()), "the same examples, in ids of another vocabulary"


def test_a_translation_memory_and_packed_files_are_read_once(tmp_path):
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>cat {n}</seg></tuv><tuv xml:lang="fr"><seg>chat {n}</seg></tuv></tu>'
        for n in range(20)
    )
    memory, packed = tmp_path / "m.tmx", tmp_path / "p.tsv.gz"
    memory.write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")
    packed.write_bytes(gzip.compress("".join(f"cat {n}\tchat {n}\n" for n in range(20)).encode()))
    for path, given in ((memory, {"tmx": str(memory)}), (packed, {"tsv": str(packed)})):
        config = DataConfig(**given, source_language="en", target_language="fr", subwords="word")
        OPENED.clear()
        prepare(PairEncoding(config), tmp_path / f"run of {path.name}")
        assert OPENED.count(str(path)) == 1


def test_files_whose_names_contradict_the_languages_are_noted(tmp_path):
    config = write_corpus(tmp_path, 20)

    def said(**settings):
        notes = prepare(PairEncoding(change(config, **settings)), tmp_path / "run").notes
        return [note for note in notes if "language" in note]

    assert said() == said(source_language="en-GB", target_language="FR") == []
    assert said(source_language="eng", target_language="") == []  # en by another code
    assert said(source_language="nb", target_language="de") == []  # .en and .fr may be anything here
    (note,) = said(source_language="fr", target_language="en", dev_source=config.source, dev_target=config.target)
    assert "train.en is a source file, but the source language is fr" in note
    assert "train.fr is a target file, but the target language is en" in note
    assert note.endswith("Check that source and target are not swapped.")


def test_a_file_that_is_both_source_and_target_is_noted(tmp_path):
    config = write_corpus(tmp_path, 20)
    both = change(config, target=config.source)
    note = f"{config.source} is both source and target. Check the names of the files."
    assert note in prepare(PairEncoding(both), tmp_path / "run").notes
    assert note not in prepare(PairEncoding(config), tmp_path / "other").notes


def test_a_joint_vocabulary_is_described_as_one(tmp_path):
    config = write_corpus(tmp_path, 20)
    for joint, said in (
        (False, r"vocabulary: \d+ source, \d+ target"),
        (True, r"vocabulary: \d+, shared by both sides"),
    ):
        notes = prepare(PairEncoding(change(config, joint=joint)), tmp_path / f"run {joint}").notes
        assert any(re.fullmatch(said, note) for note in notes)


@pytest.mark.parametrize("task", TASKS)
def test_a_vocabulary_belongs_to_the_files_it_was_made_from(tmp_path, task):
    """The files change before anything was trained: every word of the new ones would be unknown."""
    run = tmp_path / "run"
    _, prepare = write_task(tmp_path, task)
    before = prepare(run).fingerprint
    _, prepare = write_task(tmp_path, task, animals=[name[::-1] for name in ANIMALS])
    made = prepare(run)
    assert made.fingerprint != before
    vocabulary = made.vocabularies[-1]
    assert UNKNOWN not in vocabulary.encode("the god of tac").ids
    _, prepare = write_task(tmp_path, task)
    assert prepare(run, fixed=True).fingerprint not in (made.fingerprint, before), "a vocabulary that was given stays"


@pytest.mark.parametrize("task", TASKS)
def test_another_corpus_than_the_one_trained_on_is_refused_before_anything_changes(tmp_path, task):
    run = tmp_path / "run"
    path, prepare = write_task(tmp_path, task)
    trained = prepare(run).fingerprint
    assert prepare(run, fixed=True, expected=trained).fingerprint == trained
    path.write_text(path.read_text().replace("wolf", "mole"), encoding="utf-8")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with pytest.raises(RunError, match=r"The corpus differs from the one that .*run was trained on; restore it"):
        prepare(run, fixed=True, expected=trained)
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("task", TASKS)
def test_files_that_change_while_they_are_read_are_refused(tmp_path, monkeypatch, task):
    monkeypatch.setattr(prepare_module, "MEMORY", 1_200)
    path, prepare = write_task(tmp_path, task)

    def change_it(stage, done, total):
        if stage == "vocabulary":
            path.write_text(path.read_text().replace("wolf", "mole"), encoding="utf-8")

    with pytest.raises(DataError, match="The corpus changed while it was read"):
        prepare(tmp_path / "run", report=change_it)
    assert not (tmp_path / "run" / "corpus").exists()
    prepare(tmp_path / "run")
    made = b"".join(file.read_bytes() for file in (tmp_path / "run").glob("[stw]*.json"))
    assert b"mole" in made, "and made from the new ones next time"


@pytest.mark.parametrize("limit", ["SAMPLE", "MEMORY"])
def test_a_vocabulary_is_made_from_an_even_sample_of_a_large_corpus(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(
        prepare_module, limit, 10 if limit == "SAMPLE" else 10 * (sys.getsizeof("w00") + sys.getsizeof((1, "w00")))
    )
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"w{line:02}\n" for line in range(1, 65)), encoding="utf-8")
    encoding = TextEncoding(TextDataConfig(files=str(path), subwords="word", held_out=0))
    monkeypatch.setattr(prepare_module, "_READ", 5)  # so that blocks begin anywhere between two that are kept
    found = survey(encoding)
    assert [item.line for item in found.sample()] == list(range(1, 65, 8))
    assert found.total == 64


def test_a_pair_needs_text_on_both_sides():
    columns = ["a", " ", "b", "\u3000", "c "], ["x", "y", "", "z", " w"]
    assert have_text(columns) == [True, False, False, False, True]


def test_the_links_of_a_pair_count_among_its_bytes():
    encoding = PairEncoding(DataConfig(corpus="reverse", size=20, alignment=("gold",)))
    pair = next(iter(encoding.corpus))
    assert pair.links
    assert encoding.size([pair]) > encoding.size([pair._replace(links=())]) + 8 * len(pair.links)


@pytest.mark.parametrize("dev", [False, True], ids=["held-out", "files"])
def test_blocks_that_are_tokenised_at_the_same_time_make_the_same_store(tmp_path, monkeypatch, dev):
    config = change(write_corpus(tmp_path), max_length=100)
    source = tmp_path / "train.en"
    lines = source.read_text(encoding="utf-8").split("\n")
    for place in (3, 4, 30, 60, 61, 62, 150, 170, 199):  # more are too long than a tally names
        lines[place] = " " if place % 2 else "long " * 200
    source.write_text("\n".join(lines), encoding="utf-8")
    if dev:
        write_corpus(tmp_path, 30, "dev")
        config = change(config, dev_source=str(tmp_path / "dev.en"), dev_target=str(tmp_path / "dev.fr"))
    found = []
    for block, cores in ((7, 10_000), (10_000, 10_000), (50, 1)):  # threads, one after the other, processes
        monkeypatch.setattr(prepare_module, "_BLOCK", block)
        monkeypatch.setattr(prepare_module, "_LARGE", 1)
        monkeypatch.setattr(prepare_module, "_CORES", cores)
        found.append(prepare(PairEncoding(config), tmp_path / str(block)))
    for one in found[1:]:
        assert (ids(one.train), ids(one.dev)) == (ids(found[0].train), ids(found[0].dev))
        assert (one.shown, one.tallies, one.notes) == (found[0].shown, found[0].tallies, found[0].notes)
    assert found[0].tallies[0].lines == {"empty": [4, 62, 200], "too long": [5, 31, 61, 63, 151]}


@pytest.mark.parametrize("subwords", ["bpe", "char"])
def test_texts_are_tokenised_in_other_processes_as_in_this_one(tmp_path, subwords):
    texts = ["the dog", "", " ", "a\nb\0c\u2028", "naïve 日本 \ud800", "the dog"]
    vocabularies = [Vocabulary.train(some, subwords, 300) for some in (texts[:1] * 9, texts[:5])]
    for name, vocabulary in zip("ab", vocabularies, strict=True):
        vocabulary.save(tmp_path, name)
    here = tokenise_here(vocabularies)
    with tokenisers(tmp_path, "ab") as there:
        for some in (texts, [], texts[::-1]):
            for which in (0, 1):
                one, other = here(which, some), there(which, some)
                assert (one.values.tolist(), one.offsets.tolist()) == (other.values.tolist(), other.offsets.tolist())


@pytest.fixture
def saved(tmp_path):
    vocabulary = Vocabulary.train(["the dog", "a cat"], "char", 300)
    vocabulary.save(tmp_path, "a")
    return vocabulary


def test_what_python_prints_when_it_starts_is_no_reply(tmp_path, saved, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hello', end='')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    with tokenisers(tmp_path, ["a"]) as tokenise:
        for texts in (["a dog"] * 100_000, ["the cat"]):  # a reply of more than a pipe holds
            assert tokenise(0, texts).values.tolist() == saved.encode_many(texts[:1], end=True)[0] * len(texts)


@pytest.mark.parametrize("count", [1, 8_192])  # a request that a pipe holds, and one that it does not
def test_a_process_that_dies_is_reported_and_the_others_end(tmp_path, saved, monkeypatch, count):
    started = []
    start = tokenisers_module._start
    monkeypatch.setattr(tokenisers_module, "_start", lambda *how: started.append(start(*how)) or started[-1])
    with tokenisers(tmp_path, ["a"]) as tokenise:
        tokenise(0, ["a dog"])
        started[0].kill()
        with pytest.raises(DataError, match="tokeniser process ended"):
            tokenise(0, ["a text"] * count)
    assert [process.poll() is not None for process in started] == [True]
    with tokenisers(tmp_path, ["none"]) as tokenise, pytest.raises(DataError, match="tokeniser process ended"):
        tokenise(0, ["a text"] * count)  # it ends, since there is no such vocabulary
    with tokenisers(tmp_path, ["a"]) as tokenise:
        tokenise(0, ["a dog"])
        assert started[-1].poll() is None
    assert started[-1].poll() is not None


def test_a_process_that_cannot_start_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with tokenisers(tmp_path, ["a"]) as tokenise, pytest.raises(DataError, match="could not be started: No such file"):
        tokenise(0, ["a dog"])
