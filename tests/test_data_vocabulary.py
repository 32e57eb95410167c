"""Text to ids and back: spans are exact for any text, fingerprints tell vocabularies apart, samples are pure."""

import json
import random
from collections import Counter
from contextlib import suppress
from itertools import pairwise, product

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import segmentations
from regard.data.segmentations import seeds_for
from regard.data.subwords import Subwords, train_subwords
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.errors import DataError
from regard.symbols import END, PAD, START, SYMBOLS, UNKNOWN
from regard.text.normalise import rewrite

LINES = [f"the cat number {number} sat on the mat, is n't it?" for number in range(60)]
LINES += ["été à la plage — 日本語 e\u0301 ﬁn", "l'homme où l'été n'est pas\u00a0!", "a\tb\0c ▁ ▅"]
KINDS = ("bpe", "unigram", "word", "char")
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("the cat été  \t▁\0\u2028日e\u0301")), max_size=40)


def make(kind, **more):
    return Vocabulary.train(LINES, kind, **{"size": 420, **more})


VOCABULARIES = {kind: make(kind) for kind in KINDS}
WITHOUT_BYTES = {kind: make(kind, byte_fallback=False) for kind in ("bpe", "unigram")}


@pytest.mark.parametrize(
    "vocabulary",
    [*VOCABULARIES.values(), *WITHOUT_BYTES.values()],
    ids=[*VOCABULARIES, *(f"{kind}-without-bytes" for kind in WITHOUT_BYTES)],
)
def test_begins_with_the_four_symbols(vocabulary):
    assert tuple(vocabulary.pieces(range(4))) == SYMBOLS
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    ids = vocabulary.encode("<pad> <s> </s> the").ids
    assert not {PAD, START, END} & set(ids)  # text can never write a symbol
    assert vocabulary.decode([START, *vocabulary.encode("the cat").ids, END, PAD, PAD]) == "the cat"


@given(text=TEXTS)
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("kind", KINDS)
def test_spans_are_exact(kind, text):
    seen = rewrite(text).text.replace("▁", " ")  # without lone surrogates; SentencePiece reads ▁ as a space
    for vocabulary in (VOCABULARIES[kind], WITHOUT_BYTES.get(kind, VOCABULARIES[kind])):
        encoded = vocabulary.encode(text)
        ids, pieces, spans, kept = encoded
        assert kept == text
        assert len(ids) == len(pieces) == len(spans) == len(encoded.words)
        assert vocabulary.encode_many([text]) == [ids]
        reached = 0
        for index, piece, (start, end) in zip(ids, pieces, spans, strict=True):
            assert 0 <= start <= end <= len(text)
            assert not seen[reached:start] or seen[reached:start].isspace()  # nothing but space between pieces
            if kind in ("bpe", "unigram") and vocabulary.tokens.processor.is_byte(index):
                assert end == start + 1
                assert int(piece[3:5], 16) in seen[start:end].encode()
            else:
                assert piece.replace("▁", " ").endswith(seen[start:end])
                assert start < end or piece == "▁"  # only the space put before a sentence stands for nothing
            reached = max(reached, end)
        assert not seen[reached:] or seen[reached:].isspace()
        assert all(left <= right for left, right in pairwise(spans))


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_with_bytes_nothing_is_lost(kind, text):
    text = "".join(letter for letter in text if letter not in "\n▁" and not "\ud800" <= letter <= "\udfff")
    vocabulary = VOCABULARIES[kind]
    ids = vocabulary.encode(text).ids
    assert UNKNOWN not in ids
    assert vocabulary.decode(ids) == text


def test_words_and_characters_decode():
    assert VOCABULARIES["word"].decode(VOCABULARIES["word"].encode(" the  cat\u00a0zzz ").ids) == "the cat <unk>"
    text = "the  cat où "
    assert VOCABULARIES["char"].decode(VOCABULARIES["char"].encode(text).ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_rewritten_text_keeps_spans_of_the_original(kind):
    vocabulary = make(kind, form="nfkc", lowercase=True)
    text = "THE ﬁn E\u0301té Ⅷ CAT"
    encoded = vocabulary.encode(text)
    assert encoded.ids == vocabulary.encode("the fin \u00e9té viii cat").ids
    got = [text[start:end] for start, end in encoded.spans]
    assert "ﬁ" in "".join(got)
    if kind == "word":
        assert got == ["THE", "ﬁn", "E\u0301té", "Ⅷ", "CAT"]
    assert encoded.words[-1] == 4


@pytest.mark.parametrize("kind", KINDS)
def test_other_quotation_marks_are_the_same_pieces_at_the_same_places(kind):
    vocabulary = Vocabulary.train(['the "cat" isn\'t " the " cat'] * 40, kind, 420, form="punctuation")
    text, plain = "the ‘cat’ isn’t « the » cat", 'the "cat" isn\'t " the " cat'
    encoded, wanted = vocabulary.encode(text), vocabulary.encode(plain)
    assert (encoded.ids, encoded.spans, encoded.words) == (wanted.ids, wanted.spans, wanted.words)
    assert vocabulary.in_form(text).text == plain
    again = vocabulary.tokenised(encoded.ids)  # of a given translation: as many words, at the same places
    assert again.words == encoded.words


def test_each_piece_knows_its_word():
    text = "  the cat  n'est\u2028pas "
    for vocabulary in VOCABULARIES.values():
        encoded = vocabulary.encode(text)
        belongs = encoded.words
        assert sorted(set(belongs)) == [0, 1, 2, 3]
        assert belongs == sorted(belongs)
        for (start, end), word in zip(encoded.spans, belongs, strict=True):
            shown = "".join(text[start:end].split())
            assert shown in text.split()[word]
    assert Tokenised([], [], [], "").words == []
    assert Tokenised([5], [" "], [(0, 1)], "   ").words == [-1]


@pytest.mark.parametrize("kind", KINDS)
def test_same_lines_same_vocabulary_and_other_lines_another(kind):
    again = make(kind)
    assert again.fingerprint == VOCABULARIES[kind].fingerprint
    others = [make(kind, lowercase=True), make(kind, form="nfc"), Vocabulary.train([*LINES, "Quiz Quiz"], kind, 420)]
    assert len({again.fingerprint, *(vocabulary.fingerprint for vocabulary in others)}) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(tmp_path, kind):
    vocabulary = make(kind, form="nfkc", lowercase=True)
    files = vocabulary.save(tmp_path, "source")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files)
    loaded = Vocabulary.load(tmp_path, "source")
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode("The Cat ÉTÉ").ids == vocabulary.encode("The Cat ÉTÉ").ids


@pytest.mark.parametrize("kind", KINDS)
def test_any_changed_byte_is_refused(tmp_path, kind):
    files = VOCABULARIES[kind].save(tmp_path, "source")
    draw = random.Random(3)
    for path in files:
        content = path.read_bytes()
        for _ in range(60):
            place = draw.randrange(len(content))
            changed = bytes([content[place] ^ (1 << draw.randrange(8))])
            path.write_bytes(content[:place] + changed + content[place + 1 :])
            with suppress(DataError):  # what loads all the same, as with another white space, means the same
                assert Vocabulary.load(tmp_path, "source").fingerprint == VOCABULARIES[kind].fingerprint
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError):
            Vocabulary.load(tmp_path, "source")
        path.write_bytes(content)
    assert Vocabulary.load(tmp_path, "source").fingerprint == VOCABULARIES[kind].fingerprint


def test_swapped_and_permuted_vocabularies_are_refused(tmp_path):
    VOCABULARIES["bpe"].save(tmp_path, "source")
    VOCABULARIES["unigram"].save(tmp_path, "target")
    (tmp_path / "source.model").write_bytes((tmp_path / "target.model").read_bytes())
    with pytest.raises(DataError, match="does not match its fingerprint"):
        Vocabulary.load(tmp_path, "source")
    VOCABULARIES["word"].save(tmp_path, "word")
    header = json.loads((tmp_path / "word.json").read_text())
    header["tokens"][5], header["tokens"][6] = header["tokens"][6], header["tokens"][5]
    (tmp_path / "word.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match="does not match its fingerprint"):
        Vocabulary.load(tmp_path, "word")
    with pytest.raises(DataError, match="no vocabulary file"):
        Vocabulary.load(tmp_path, "nothing")


@pytest.mark.parametrize("hostile", [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"format": 2}'])
def test_hostile_headers_are_refused(tmp_path, hostile):
    (tmp_path / "source.json").write_bytes(hostile)
    with pytest.raises(DataError):
        Vocabulary.load(tmp_path, "source")


def test_a_foreign_sentencepiece_model_is_refused():
    with pytest.raises(DataError, match="not a SentencePiece model, or is damaged"):
        Subwords(b"not a model")


def test_a_sentencepiece_model_with_a_piece_that_is_not_utf8_is_refused():
    whole = train_subwords(["the cat sees the dog"] * 9, "bpe", 300).content
    with pytest.raises(DataError, match="not a SentencePiece model, or is damaged"):
        Subwords(whole.replace("\u2581t".encode(), b"\xe2\x96\xfft"))


@pytest.mark.parametrize("kind", KINDS)
def test_small_and_large_sizes(kind):
    tiny = Vocabulary.train(["a"], kind, 8_000)  # a size that the text cannot fill is lowered
    assert 5 <= len(tiny) < 300
    assert tiny.decode(tiny.encode("a").ids) == "a"
    with pytest.raises(DataError, match="corpus is empty"):
        Vocabulary.train(["", "  "] if kind != "char" else [""], kind, 100)
    assert Vocabulary.train(["x" * 100_000], kind, 300).encode("x" * 10).ids


def test_a_size_below_the_characters_is_explained():
    with pytest.raises(DataError, match=r"A vocabulary of 100 is too small for this text.*data.vocabulary higher"):
        make("bpe", size=100)


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(DataError, match="the ids of this vocabulary go from"):
        VOCABULARIES["bpe"].decode([10_000])
    with pytest.raises(DataError, match="the ids of this vocabulary go from"):
        VOCABULARIES["word"].pieces([-1])


@given(text=TEXTS, seed=st.text(max_size=5))
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_pure_and_say_the_same(kind, text, seed):
    vocabulary = VOCABULARIES[kind]
    ids = vocabulary.encode(text).ids
    drawn = sample(vocabulary, ids, 0.3, seed)
    assert drawn == sample(vocabulary, ids, 0.3, seed)
    assert vocabulary.decode(drawn) == vocabulary.decode(ids)
    assert sample(vocabulary, ids, 0.0, seed) == ids


@given(text=TEXTS)
@settings(max_examples=80, deadline=None)
def test_without_dropout_our_merges_are_sentencepiece_s(text):
    for vocabulary in (VOCABULARIES["bpe"], WITHOUT_BYTES["bpe"]):
        text = text.replace("▁", " ")
        ids = vocabulary.encode(text).ids
        if UNKNOWN not in ids:
            sampler = vocabulary.sampler(1e-12)
            sampler.unchanged[:] = 0  # so that every word is merged from its letters
            assert sampler.draw([ids], seeds_for([1], "any"))[0].tolist() == ids


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_samples_vary(kind):
    vocabulary = VOCABULARIES[kind]
    ids = vocabulary.encode("the cat number 7 sat on the mat").ids
    assert len({tuple(sample(vocabulary, ids, 0.2, str(seed))) for seed in range(30)}) > 5


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_sample_does_not_depend_on_its_neighbours_or_on_what_was_drawn_before(kind, monkeypatch):
    vocabulary = VOCABULARIES[kind]
    texts = ["the cat number 7 sat on the mat", "", "the \N{SNOWMAN}cat  saw", "a mat"] * 20
    rows, seeds = vocabulary.encode_many(texts), seeds_for(range(80), "any")
    sampler = vocabulary.sampler(0.3)
    drawn = [row.tolist() for row in sampler.draw(rows, seeds)]
    assert drawn == [row.tolist() for row in sampler.draw(rows, seeds)]
    alone = [vocabulary.sampler(0.3).draw([row], seeds[n : n + 1])[0].tolist() for n, row in enumerate(rows)]
    assert drawn == alone
    monkeypatch.setattr(segmentations, "_REMEMBERED", 3)
    assert drawn[5:] == [row.tolist() for row in sampler.draw(rows[5:], seeds[5:])]


def test_merges_are_left_out_with_their_probability():
    """All segmentations of a word are as frequent as an enumeration of what may be left out says."""
    vocabulary, p, count = Vocabulary.train(["abab ab ab ab"] * 9, "bpe", 300), 0.3, 20_000
    sampler = vocabulary.sampler(p)
    (ids,) = vocabulary.encode_many(["ab"])
    drawn = Counter(
        tuple(vocabulary.pieces(row)) for row in sampler.draw([ids] * count, seeds_for(range(count), "any"))
    )
    steps = reference_dropout(list("▁ab"), {piece: -rank for piece, rank in sampler.ranks.items()}, p)
    assert sum(steps.values()) == pytest.approx(1)
    assert set(drawn) == set(steps)
    assert len(steps) > 2
    for pieces, probability in steps.items():
        assert drawn[pieces] / count == pytest.approx(probability, abs=4 * (probability / count) ** 0.5)


def reference_dropout(parts, scores, p):
    """The probability of every segmentation: at each step each possible merge is left out with probability p, and the
    best of the others is made."""
    pairs = [(scores[a + b], -k) for k, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
    found = Counter()
    for kept in product([True, False], repeat=len(pairs)):
        chance = (1 - p) ** sum(kept) * p ** (len(kept) - sum(kept))
        survivors = [pair for pair, keeps in zip(pairs, kept, strict=True) if keeps]
        if not survivors:
            found[tuple(parts)] += chance
            continue
        k = -max(survivors)[1]
        for pieces, after in reference_dropout(
            [*parts[:k], parts[k] + parts[k + 1], *parts[k + 2 :]], scores, p
        ).items():
            found[pieces] += chance * after
    return found


def sample(vocabulary, ids, amount, seed):
    """One sentence in other pieces, where there are others."""
    sampler = vocabulary.sampler(amount)
    return sampler.draw([ids], seeds_for([1], seed))[0].tolist() if sampler else ids


def test_end_is_behind_each_row_whatever_piece_ends_a_sentence_in_an_imported_model(tmp_path):
    model = tmp_path / "other.model"
    lines = [f"the {word} is here" for word in ("dog", "cat", "cow", "bird")]
    with model.open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=stream, vocab_size=40, model_type="bpe", minloglevel=3,
            hard_vocab_limit=False, pad_id=0, bos_id=1, eos_id=-1, unk_id=3, pad_piece="<pad>",
            user_defined_symbols=["</s>"],
        )  # fmt: skip
    subwords = Subwords(model.read_bytes())
    assert subwords.processor.eos_id() != END
    ids = subwords.split("the dog")[0]
    assert subwords.many(["the dog"], end=True) == [[*ids, END]]
    assert subwords.many(["the dog"], end=False) == [ids]
