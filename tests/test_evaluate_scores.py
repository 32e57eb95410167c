"""Scores are sacreBLEU's, carry their signature, and pair up line by line; by length, they are those of the bins."""

import math
import random
from pathlib import Path

import pytest
import sacrebleu

from regard.errors import DataError
from regard.evaluate import significance
from regard.evaluate.by_length import LengthTable, by_length, plot_by_length
from regard.evaluate.scores import perplexity, score
from regard.evaluate.significance import group_bootstrap

WORDS = ["the", "old", "house", "stands", "near", "a", "river", "and", "every", "dog", "likes", "it", "."]


def corpus(count: int = 60, noise: float = 0.2, seed: int = 0) -> tuple[list[str], list[str]]:
    """References, and hypotheses in which a share of the words is wrong."""
    chance = random.Random(seed)
    references = [" ".join(random.Random(number).choices(WORDS, k=4 + number % 37)) for number in range(count)]
    hypotheses = [
        " ".join("Xylophone" if chance.random() < noise else word for word in line.split(" ")) for line in references
    ]
    return hypotheses, references


def test_the_numbers_are_sacrebleus() -> None:
    hypotheses, references = corpus()
    report = score(hypotheses, references)
    assert report["bleu"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert report["chrf"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert report["ter"] == pytest.approx(sacrebleu.corpus_ter(hypotheses, [references]).score)
    assert report.sentences == 60


def test_every_number_is_printed_with_its_signature() -> None:
    hypotheses, references = corpus()
    lines = str(score(hypotheses, references)).split("\n")
    assert [line.split(" ")[0] for line in lines] == ["BLEU", "chrF", "TER"]
    assert all(f"version:{sacrebleu.__version__}" in line and "nrefs:1" in line for line in lines)
    assert "case:mixed" in lines[0]
    assert "tok:13a" in lines[0]


def test_case_and_tokeniser_can_be_chosen_and_show_in_the_signature() -> None:
    upper, plain = ["THE OLD HOUSE STANDS ."], ["the old house stands ."]
    assert score(upper, plain)["bleu"] < 100
    lowered = score(upper, plain, lowercase=True)
    assert (lowered["bleu"], lowered["ter"]) == (pytest.approx(100), 0)
    assert "case:lc" in str(lowered)
    assert "tok:none" in str(score(upper, plain, metrics=["bleu"], tokenize="none"))
    glued, apart = ["the old house stands."], ["the old house stands ."]
    assert score(glued, apart)["bleu"] == pytest.approx(100)
    assert score(glued, apart, tokenize="none")["bleu"] < 100


def test_several_references() -> None:
    hypotheses, references = ["the old dog likes it"], ["a river and every dog likes it"]
    both = score(hypotheses, references, hypotheses)
    assert both["bleu"] == pytest.approx(100)
    assert "nrefs:2" in str(both)


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match="as many references as hypotheses; got 1 and 2"):
        score(["a", "b"], ["a"])
    with pytest.raises(DataError, match="at least one sentence; got none"):
        score([], [])
    with pytest.raises(DataError, match="at least one set of references"):
        score(["a"])
    with pytest.raises(DataError, match=r"no metric 'blue'. Did you mean 'bleu'"):
        score(["a"], ["a"], metrics=["blue"])
    with pytest.raises(KeyError, match="Did you mean 'bleu'"):
        score(["a"], ["a"], metrics=["bleu"])["blue"]
    with pytest.raises(DataError, match="as many sources as hypotheses; got 1 and 2"):
        by_length(["a"], ["a", "b"], ["a", "b"])
    with pytest.raises(DataError, match="as many lines of the other system as hypotheses; got 1 and 2"):
        group_bootstrap([["a", "b"]], [["a"]], ["a", "b"])


def test_perplexity() -> None:
    assert perplexity(10 * math.log(7), 10) == pytest.approx(7)
    assert perplexity(0.0, 3) == 1.0
    assert perplexity(1e9, 3) == math.inf
    assert math.isnan(perplexity(math.nan, 3))
    with pytest.raises(DataError, match="at least one token; got 0"):
        perplexity(1.0, 0)


def test_bins_hold_every_sentence_once_and_score_as_corpora() -> None:
    hypotheses, references = corpus()
    table = by_length(references, hypotheses, references, edges=(10, 20, 30))
    assert [each.label for each in table.bins] == ["1-10", "11-20", "21-30", ">30"]
    assert sum(each.sentences for each in table.bins) == 60
    chosen = [number for number, line in enumerate(references) if 11 <= len(line.split()) <= 20]
    expected = score([hypotheses[n] for n in chosen], [references[n] for n in chosen], metrics=["bleu"])["bleu"]
    assert table.bins[1].sentences == len(chosen)
    assert table.bins[1].score == pytest.approx(expected)
    assert table.bins[3].sentences > 0


def test_one_bin_is_the_whole_corpus_and_an_empty_one_has_no_score() -> None:
    hypotheses, references = corpus()
    table = by_length(references, hypotheses, references, edges=(100, 200))
    assert [each.sentences for each in table.bins] == [60, 0, 0]
    assert table.bins[0].score == pytest.approx(score(hypotheses, references)["bleu"])
    assert table.bins[1].score is None
    assert table.bins[1].interval is None
    assert table.metric == "BLEU"
    printed = str(table).split("\n")
    assert printed[-1].startswith("nrefs:1")
    assert len(printed) == 3, "no line for lengths without sentences"


def test_an_interval_holds_the_score_and_narrows_with_more_sentences() -> None:
    hypotheses, references = corpus()
    few = by_length(references, hypotheses, references, edges=(100,)).bins[0]
    again = by_length(references, hypotheses, references, edges=(100,)).bins[0]
    many = by_length(references * 9, hypotheses * 9, references * 9, edges=(100,)).bins[0]
    widths = [each.interval[1] - each.interval[0] for each in (few, many) if each.interval and each.score]
    assert few == again
    assert few.interval[0] < few.score < few.interval[1]
    assert many.interval[0] < many.score < many.interval[1]
    assert widths[1] == pytest.approx(widths[0] / 3, rel=0.15)


def test_equal_sentences_have_no_interval_around_their_score() -> None:
    hypothesis, reference = "a b c d e f g", "a b c d e f h"
    only = by_length([reference] * 20, [hypothesis] * 20, [reference] * 20, edges=(100,)).bins[0]
    assert only.interval == pytest.approx((only.score, only.score))


def test_the_edges_are_checked() -> None:
    for edges in ((), (0, 5), (10, 10), (20, 10)):
        with pytest.raises(DataError, match="must be increasing whole numbers from 1; got"):
            by_length(["a"], ["a"], ["a"], edges=edges)


def tables() -> dict[str, LengthTable]:
    found = {}
    for number, name in enumerate(["Cho", "Bahdanau", "Transformer"]):
        hypotheses, references = corpus(noise=0.1 * number, seed=number)
        found[name] = by_length(references, hypotheses, references)
    return found


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_plot_is_written_by_its_ending(tmp_path: Path, ending: str, magic: bytes) -> None:
    path = plot_by_length(tables(), tmp_path / f"figure.{ending}")
    assert path.read_bytes().startswith(magic)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_plot_names_systems_axes_and_numbers_of_sentences(tmp_path: Path) -> None:
    text = plot_by_length(tables(), tmp_path / "figure.svg").read_text(encoding="utf-8")
    drawn = [
        "Cho",
        "Bahdanau",
        "Transformer",
        "source length in words",
        "BLEU",
        "11-20",
        "n=20",
        "#0072b2",
        "#d55e00",
        "tok:13a",
    ]
    for each in drawn:
        assert each in text


def test_plots_that_would_mislead_are_refused(tmp_path: Path) -> None:
    found = tables()
    with pytest.raises(DataError, match=r"PNG, SVG or PDF; 'figure.gif' ends with none"):
        plot_by_length(found, tmp_path / "figure.gif")
    with pytest.raises(DataError, match="at least one system"):
        plot_by_length({}, tmp_path / "figure.png")
    hypotheses, references = corpus(count=50)
    with pytest.raises(DataError, match="Cho and other have different bins or numbers of sentences"):
        plot_by_length({**found, "other": by_length(references, hypotheses, references)}, tmp_path / "figure.png")


def test_the_bootstrap_tells_a_better_system_from_a_lucky_one() -> None:
    good, references = corpus(noise=0.1, seed=1)
    same, _ = corpus(noise=0.1, seed=2)
    bad, _ = corpus(noise=0.4, seed=3)
    clear = group_bootstrap([good], [bad], references)
    assert clear.delta == pytest.approx(score(good, references)["bleu"] - score(bad, references)["bleu"])
    assert clear.p == pytest.approx(1 / 1001)
    assert 0 < clear.low < clear.delta < clear.high
    lucky = group_bootstrap([good], [same], references)
    assert lucky.p > 0.05
    assert lucky.low < 0 < lucky.high


def test_the_bootstrap_is_reproducible_and_pairs_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    good, references = corpus(noise=0.1, seed=1)
    bad, _ = corpus(noise=0.3, seed=3)
    once = group_bootstrap([good], [bad], references)
    assert group_bootstrap([good], [bad], references) == once
    back = group_bootstrap([bad], [good], references)
    assert (back.delta, back.low, back.high, back.p) == pytest.approx((-once.delta, -once.high, -once.low, once.p))
    itself = group_bootstrap([good], [good], references)
    assert (itself.delta, itself.low, itself.high, itself.p) == (0, 0, 0, 1)
    monkeypatch.setattr(significance, "SEED", 7)
    assert group_bootstrap([good], [bad], references) != once
    assert "nrefs:1" in str(once)
    assert "p = " in str(once)


def test_the_p_value_agrees_with_sacrebleus() -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    a, references = corpus(count=150, noise=0.2, seed=1)
    b, _ = corpus(count=150, noise=0.22, seed=5)
    theirs = PairedTest(
        [("b", b), ("a", a)], {"BLEU": BLEU(references=[references])}, references=None, test_type="bs", n_samples=1000
    )()[1]["BLEU"][1]
    ours = group_bootstrap([a], [b], references)
    assert ours.a == pytest.approx(theirs.score)
    assert ours.p == pytest.approx(theirs.p_value, abs=0.06)
