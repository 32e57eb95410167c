"""Confidence: the fit and its measures as laws, the calibration of a run, and every place where a user meets it."""

import json
import math
import random
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import trained
from commands import run_here

import regard
from regard.api.confidence import FILE, calibrate, find_calibration, force_texts, keep_calibration
from regard.api.files import translate_file
from regard.corpora.registry import generate_copy
from regard.errors import DataError, RunError
from regard.evaluate import confidence
from regard.evaluate.confidence import (
    FEW,
    LATER,
    LEAST,
    SENTENCE_SIGNALS,
    WORD_SIGNALS,
    Calibration,
    Decoded,
    Fitted,
    auroc,
    calibration_error,
    fit,
    sentence_signals,
    word_labels,
    word_signals,
)
from regard.sealed import seal, unseal

TEXT = [example.source for example in generate_copy(80, 97, 2, 6)]
EASY, HARD = TEXT[0], "zq ba da"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A copy of a trained run with its calibration."""
    folder = tmp_path_factory.mktemp("confidence")
    (folder / "text").write_bytes("".join(f"{line}\n" for line in TEXT).encode())
    path = Path(shutil.copytree(trained.run("copy"), folder / "run"))
    done = run_here("calibrate", path, "--source", folder / "text", "--target", folder / "text")
    assert done.code == 0, done.err
    assert "words: calibration error" in done.out
    assert "by confidence" in done.out
    assert f"80 sentences, {sum(len(line.split()) for line in TEXT)} words, 80 detached sources" in done.err
    return path


@pytest.fixture(scope="module")
def translator(run):
    return regard.load(run)


# --- the numbers


def simulated(count, seed=0):
    """Signals, their true probabilities, and labels that are drawn with these."""
    rng = np.random.default_rng(seed)
    signals = rng.normal(size=(count, 3))
    chances = 1 / (1 + np.exp(-(signals @ [1.5, -0.7, 0.0] + 0.3)))
    return signals, chances, (rng.random(count) < chances).astype(float)


def test_the_error_of_calibrated_numbers_is_near_zero_and_of_shifted_ones_the_shift():
    _, chances, labels = simulated(40_000)
    assert calibration_error(chances, labels) < 0.01
    assert calibration_error(np.full(1000, 0.25), np.repeat([1.0, 0.0], [500, 500])) == pytest.approx(0.25)
    assert calibration_error(labels, labels) == 0  # certain and right: 1.0 has a bin too


def test_auroc_is_the_share_of_pairs_in_the_right_order():
    rng = random.Random(3)
    above, below = ([rng.randrange(9) / 4 for _ in range(size)] for size in (17, 23))
    pairs = [(one > other) + (one == other) / 2 for one in above for other in below]
    assert auroc(np.array(above), np.array(below)) == pytest.approx(sum(pairs) / len(pairs))


def test_a_fit_finds_the_slopes_and_is_calibrated_on_other_data():
    signals, _, labels = simulated(20_000)
    found = fit(signals, labels)
    assert np.allclose(found.slopes, [1.5, -0.7, 0.0], atol=0.08)
    others, chances, drawn = simulated(20_000, seed=1)
    assert calibration_error(found(others), drawn) < 0.02
    assert np.abs(found(others) - chances).mean() < 0.02


@pytest.mark.parametrize("case", ["separable", "constant", "one label", "extreme"])
def test_a_fit_of_degenerate_data_is_finite_and_within_bounds(case):
    signals, _, labels = simulated(200)
    if case == "separable":
        labels = (signals[:, 0] > 0).astype(float)
    elif case == "constant":
        signals[:, 1] = 7.0
    elif case == "one label":
        labels = np.ones(200)
    else:
        signals[0] = 1e6
    found = fit(signals, labels)
    chances = found(np.concatenate([signals, 1e9 * signals]))
    assert np.isfinite([found.intercept, *found.slopes]).all()
    assert ((chances >= 0) & (chances <= 1)).all()


def test_confidence_increases_with_the_score_and_weights_count_as_copies():
    signals, _, labels = simulated(3_000)
    found = fit(signals, labels)
    line = np.linspace(-6, 6, 500)[:, None] * np.array(found.slopes) / np.dot(found.slopes, found.slopes)
    assert (np.diff(found(line)) > 0).all()
    twice = fit(np.concatenate([signals, signals[:500]]), np.concatenate([labels, labels[:500]]))
    weighted = fit(signals, labels, np.where(np.arange(3_000) < 500, 2.0, 1.0))
    # Standardised by different means, so that the ridge differs a little.
    assert np.allclose(twice.slopes, weighted.slopes, atol=1e-3)


def test_labels_that_are_a_step_of_the_score_are_fitted_as_a_step():
    signals = np.linspace(-1, 1, 400)
    labels = np.where(signals < 0, 0.25, 0.75)
    chances = fit(signals[:, None], labels)(signals[:, None])
    inner = (abs(signals) > 0.2) & (abs(signals) < 0.9)  # without the bins beside the step and at the ends
    assert np.allclose(chances[inner], labels[inner])


def test_a_word_is_compared_without_case_and_punctuation():
    labels = word_labels("Le chat, « dort » ! Oui", "le chat dort !")
    assert labels.tolist() == [True, True, False, True, False, True, False]


def test_signals_by_hand():
    found = Decoded("The cat 7", "en", 4, "Le cat dort", [0, 1, 1, 2], [-0.1, -0.2, -0.3, -0.4, -0.5])
    sentence = dict(zip(SENTENCE_SIGNALS, sentence_signals(found), strict=True))
    assert sentence["surprise"] == pytest.approx(math.log(0.3 + 1e-3))
    assert sentence["end"] == pytest.approx(math.exp(-0.5))
    assert (sentence["ratio"], sentence["copied"]) == (0.0, pytest.approx(1 / 3))
    assert (sentence["source pieces"], sentence["target pieces"]) == (pytest.approx(4 / 3), pytest.approx(5 / 3))
    assert (sentence["other language"], sentence["common words"]) == (0.0, pytest.approx(1 / 3))
    mean = sum(math.exp(-lost) for lost in (0.1, 0.2, 0.3, 0.4, 0.5)) / 5
    assert (sentence["probability"], sentence["first"]) == (pytest.approx(mean), -0.1)
    words = dict(zip(WORD_SIGNALS, word_signals(found).T.tolist(), strict=True))
    assert words["surprise"] == pytest.approx([math.log(lost + 1e-3) for lost in (0.1, 0.5, 0.4)])
    assert words["pieces"] == [1, 2, 1]
    assert words["before"] == pytest.approx([1, math.exp(-0.1), math.exp(-0.5)])
    assert words["after"] == pytest.approx([math.exp(-0.5), math.exp(-0.4), math.exp(-0.5)])
    assert (words["copied"], words["capital"], words["digit"]) == ([0, 1, 0], [1, 0, 0], [0, 0, 0])
    other = found._replace(source="Je ne sais pas où il est", pieces=9)
    assert dict(zip(SENTENCE_SIGNALS, sentence_signals(other), strict=True))["other language"] == 1


# --- a run


def test_a_calibration_is_plain_numbers_and_is_read_back(run, translator):
    data = unseal((run / FILE).read_bytes())
    assert set(data) == {"weights", "sentence", "word", "about"}
    assert tuple(data["word"]["slopes"]) == WORD_SIGNALS
    assert find_calibration(run) == translator.calibration
    assert trained.translator("copy").calibration is None


def test_a_calibration_without_the_signals_of_later_versions_gives_the_same_numbers(translator):
    data, count = translator.calibration.as_data(), len(SENTENCE_SIGNALS) - len(LATER)
    assert SENTENCE_SIGNALS[count:] == LATER
    slopes = list(data["sentence"]["slopes"].items())
    older = Calibration.from_data({**data, "sentence": {**data["sentence"], "slopes": dict(slopes[:count])}})
    assert older.word == translator.calibration.word
    by_hand = Fitted(older.sentence.intercept, tuple(slope for _, slope in slopes[:count]), older.sentence.knots)
    texts = [EASY, HARD]
    for found in force_texts(translator, texts, [one.text for one in translator.translate(texts, split=False)]):
        signals = sentence_signals(found)
        assert older.sentence(signals) == pytest.approx(by_hand(signals[:count]), abs=1e-12)
    assert Calibration.from_data(older.as_data()) == older
    with pytest.raises(ValueError, match="other signals"):  # those of no version
        Calibration.from_data({**data, "sentence": {**data["sentence"], "slopes": dict(slopes[:-1])}})


def test_confidence_is_deterministic_and_that_of_a_batch_is_that_of_a_line(translator):
    together = [found.confidence for found in translator.translate([EASY, HARD, TEXT[1]], confidence=True)]
    for text, confidence_of in zip([EASY, HARD, TEXT[1]], together, strict=True):
        alone = translator.translate(text, confidence=True).confidence
        assert alone.sentence == pytest.approx(confidence_of.sentence, abs=1e-5)
        assert alone == translator.translate(text, confidence=True).confidence
        assert 0 <= alone.sentence <= 1
        assert all(0 <= chance <= 1 for _, chance in alone.words)
    assert together[0].sentence > together[1].sentence
    assert [word for word, _ in together[0].words] == EASY.split()


def test_a_text_has_the_confidence_of_its_least_certain_sentence(translator):
    parts = [translator.translate(one, confidence=True).confidence for one in (f"{EASY}.", f"{HARD}.")]
    both = translator.translate(f"{EASY}.\n{HARD}.", confidence=True).confidence
    assert both.sentence == pytest.approx(min(part.sentence for part in parts), abs=1e-5)
    assert len(both.words) == sum(len(part.words) for part in parts)


def test_without_the_option_nothing_is_computed(translator, monkeypatch):
    monkeypatch.setattr(confidence.Calibration, "rate", None)
    assert translator.translate(EASY).confidence is None
    assert translator.translate("", confidence=True).confidence is None  # an empty line has none


def test_a_forced_translation_has_the_log_probabilities_of_a_found_one(translator):
    found = translator.translate(EASY, split=False)
    [forced] = force_texts(translator, [EASY], [found.text])
    assert forced.logprobs == pytest.approx(found.token_logprobs, abs=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: {**data, "sentence": {}},
        lambda data: {**data, "word": {**data["word"], "slopes": {}}},
        lambda data: {**data, "word": {**data["word"], "intercept": float("nan")}},
        lambda data: {**data, "word": {**data["word"], "intercept": "0"}},
        lambda data: {**data, "word": {**data["word"], "knots": [[0.0, 0.5], [1.0, 0.2]]}},
        lambda data: {**data, "word": {**data["word"], "knots": [[0.0, 0.0], [1.0, 1.5]]}},
    ],
)
def test_a_damaged_calibration_is_refused(change, run, tmp_path):
    for name in ("manifest.json", "config.toml"):
        shutil.copy(run / name, tmp_path / name)
    (tmp_path / FILE).write_bytes(seal(change(unseal((run / FILE).read_bytes()))))
    with pytest.raises(RunError, match="is damaged; delete it, or calibrate again"):
        find_calibration(tmp_path)
    (tmp_path / FILE).write_bytes((run / FILE).read_bytes().replace(b"intercept", b"intercepts", 1))
    with pytest.raises(RunError, match="is damaged"):
        find_calibration(tmp_path)


def test_the_calibration_of_other_weights_does_not_count(run, translator, tmp_path):
    other = Path(shutil.copytree(trained.run("heads"), tmp_path / "other"))
    shutil.copy(run / FILE, other / FILE)
    assert find_calibration(other) is None
    keep_calibration(other, translator.calibration)
    assert find_calibration(other) == translator.calibration


def test_what_cannot_be_calibrated_is_one_sentence(run, translator, tmp_path):
    with pytest.raises(DataError, match="at least 50 sentences that have a translation; got 3"):
        calibrate(translator, TEXT[:3], TEXT[:3])
    with pytest.raises(DataError, match="Each sentence needs its reference; got 2 and 1"):
        calibrate(translator, TEXT[:2], TEXT[:1])
    with pytest.raises(RunError, match="not calibrated for its weights; run `regard calibrate`"):
        trained.translator("heads").translate("a", confidence=True)
    with pytest.raises(RunError, match="An ensemble has no calibrated confidence"):
        regard.load([run, run]).translate("a", confidence=True)
    (tmp_path / "text").write_text("a\n")
    files = ["--source", tmp_path / "text", "--target", tmp_path / "text"]
    done = run_here("calibrate", "en-fr", *files)
    assert (done.code, done.out) == (2, "")
    assert "en-fr is included with regard and cannot be changed" in done.err


# --- commands


def test_few_pairs_and_no_gain_are_said(run, tmp_path):
    texts, wrong = [example.source for example in generate_copy(FEW, 3, 2, 6)], ["x y"] * FEW

    def heard(sources, references):
        for side, rows in (("source", sources), ("target", references)):
            (tmp_path / side).write_text("".join(f"{row}\n" for row in rows))
        files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
        done = run_here("calibrate", run, *files, "--dry")
        assert done.code == 0, done.err
        return done.err

    half = LEAST // 2  # what is learned from wrong references misleads where they are right
    few = heard(texts[:LEAST], [*wrong[:half], *texts[half:LEAST]])
    assert f"note: {LEAST} pairs are few: what is measured on {half} of them after a fit to the others depends" in few
    assert "note: for words, the confidence is no better than the model's own probability" in few
    assert "note:" not in heard(texts, wrong)


def lines(tmp_path, run, *options):
    (tmp_path / "in.txt").write_text(f"{EASY}\n\n{HARD}\n")
    done = run_here("translate", run, tmp_path / "in.txt", *options)
    assert done.code == 0, done.err
    return done.out.split("\n")[:-1], done.err


def test_columns_and_lines_that_are_left_empty_and_counted(run, translator, tmp_path):
    plain, err = lines(tmp_path, run)
    assert "left empty" not in err
    sure = [translator.translate(text, confidence=True).confidence.sentence for text in (EASY, HARD)]
    rated, _ = lines(tmp_path, run, "--confidence")
    assert rated == [f"{sure[0]:.3f}\t{plain[0]}", "\t", f"{sure[1]:.3f}\t{plain[2]}"]
    least = sum(sure) / 2
    kept, err = lines(tmp_path, run, "--min-confidence", least)
    assert kept == [plain[0], "", ""]
    assert f"left empty, with a confidence below {least:g}: 1 of 3 lines" in err
    assert lines(tmp_path, run, "--min-confidence", 0)[0] == plain
    several, _ = lines(tmp_path, run, "--confidence", "--nbest", 2)
    assert len(several[0].split("\t")) == 6


def test_json_has_words_only_if_asked(run, translator, tmp_path):
    plain, rated = (
        [json.loads(line) for line in lines(tmp_path, run, "--json", *more)[0]] for more in ([], ["--confidence"])
    )
    assert all("confidence" not in one for one in plain)
    found, given = translator.translate(EASY, confidence=True).confidence, rated[0].pop("confidence")
    assert given["sentence"] == pytest.approx(found.sentence, abs=1e-5)
    assert given["words"] == [[word, pytest.approx(chance, abs=1e-5)] for word, chance in found.words]
    assert (rated[0], rated[1]["confidence"]) == (plain[0], None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["heads", "x", "--confidence"], "not calibrated for its weights; run `regard calibrate`"),
        (["copy", "x", "--min-confidence", "1.5"], "must be at least 0 and at most 1; got 1.5"),
        (["copy", "in.txt", "--out", "out.txt", "--confidence"], "plain text has no place for a confidence"),
        (["copy", "x", "--on", "local", "--out", "out", "--confidence"], "Text has no place for a confidence"),
        (["copy", "x", "--on", "local", "--out", "out", "--min-confidence", "-1"], "must be at least 0 and at most 1"),
    ],
)
def test_wrong_uses_are_one_sentence(arguments, says, tmp_path):
    name, *rest = arguments
    run = trained.run(name)
    if "--out" in rest and "--on" not in rest:
        (tmp_path / "in.txt").write_text("a\n")
        run, rest[0] = "en-fr/bahdanau", tmp_path / "in.txt"  # a calibrated one
    done = run_here("translate", run, *rest)
    assert done.code == 2
    assert says in " ".join(done.err.split())


# --- files


@pytest.fixture(scope="module")
def between(translator):
    """The confidences of both texts, and a number between them."""
    sure = [translator.translate(text, confidence=True).confidence.sentence for text in (EASY, HARD)]
    return *sure, sum(sure) / 2


def written(translator, tmp_path, name, text, out=None, **options):
    (tmp_path / name).write_text(text, encoding="utf-8")
    out = tmp_path / (out or f"out-{name}")
    report = translate_file(translator, tmp_path / name, out, **options)
    return out.read_text(encoding="utf-8"), report


def test_only_uncertain_messages_are_fuzzy(translator, between, tmp_path):
    source = f'msgid "{EASY}"\nmsgstr ""\n\nmsgid "{HARD}\\n{EASY}"\nmsgstr ""\n'
    found, report = written(translator, tmp_path, "a.po", source, min_confidence=between[2])
    first, second = found.split("msgid")[-2:]
    assert ("#, fuzzy" in found.partition(f'msgid "{EASY}"')[0], "#, fuzzy" in first) == (False, True)
    assert (report.segments, report.doubted) == (3, 1)
    assert translator.translate(HARD).text in second  # it is there, to be reviewed
    for least, fuzzy in ((0.0, 0), (1.0, 2)):
        assert written(translator, tmp_path, "a.po", source, min_confidence=least)[0].count("#, fuzzy") == fuzzy


XLIFF = {
    "1.2": """<xliff version="1.2"><file source-language="en" target-language="fr"><body>
<trans-unit id="a"><source>{}</source></trans-unit><trans-unit id="é"><source>{}</source></trans-unit>
</body></file></xliff>""",
    "2.0": """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="fr"><file id="é">
<unit id="1"><segment id="s"><source>{}</source></segment><segment><source>{}</source></segment></unit>
</file></xliff>""",
}


@pytest.mark.parametrize("version", XLIFF)
def test_the_match_quality_of_a_unit_is_its_confidence(version, translator, between, tmp_path):
    easy, hard, least = between
    options = {"confidence": True, "min_confidence": least}
    found, report = written(translator, tmp_path, "a.xlf", XLIFF[version].format(EASY, HARD), **options)
    assert report.doubted == 1
    tree = ElementTree.fromstring(found)
    if version == "1.2":
        units = [*tree.iter("trans-unit")]
        assert [unit.find("alt-trans").get("match-quality") for unit in units] == [f"{easy:.0%}", f"{hard:.0%}"]
        assert all(unit.findtext("target") == unit.findtext("alt-trans/target") for unit in units)
        states = [unit.find("target").get("state") for unit in units]
        assert states == ["translated", "needs-review-translation"]
    else:
        core, mtc = "{urn:oasis:names:tc:xliff:document:2.0}", "{urn:oasis:names:tc:xliff:matches:2.0}"
        unit = next(tree.iter(f"{core}unit"))
        assert [child.tag for child in unit] == [f"{mtc}matches", f"{core}segment", f"{core}segment"]
        segments, matches = unit.findall(f"{core}segment"), unit.findall(f"{mtc}matches/{mtc}match")
        assert [match.get("ref") for match in matches] == [f"#{one.get('id')}" for one in segments]
        assert [match.get("matchQuality") for match in matches] == [f"{100 * one:.1f}" for one in (easy, hard)]
        texts = [[one.findtext(f"{core}{side}") for side in ("source", "target")] for one in (*matches, *segments)]
        assert texts[:2] == texts[2:]
        assert [one.get("subState") for one in segments] == [None, "mt:review"]
    again, _ = written(translator, tmp_path, "b.xlf", found, confidence=True)
    assert again == found  # nothing is left to translate, and matches are not read as sources


def test_uncertain_segments_of_other_files_are_not_used(translator, between, tmp_path):
    least, (easy, hard) = between[2], (translator.translate(text).text for text in (EASY, HARD))
    assert hard != HARD  # so that a translation can be told from the source
    text, report = written(translator, tmp_path, "a.txt", f"{EASY}\n{HARD}\n", min_confidence=least)
    assert (text, report.doubted) == (f"{easy}\n\n", 1)
    page, _ = written(translator, tmp_path, "a.html", f"<p>{EASY}</p><p>{HARD}</p>", min_confidence=least)
    assert page == f"<p>{easy}</p><p>{HARD}</p>"
    memory, _ = written(translator, tmp_path, "a.txt", f"{EASY}\n{HARD}\n", "a.tmx", min_confidence=least)
    assert (EASY in memory, HARD in memory) == (True, False)


def test_shards_have_the_confidence_and_count_what_is_left_empty(run, between, tmp_path):
    (tmp_path / "in.txt").write_text(f"{EASY}\n\n{HARD}\n")
    options = ["--on", "local", "--workers", "1", "--min-confidence", between[2]]
    for form in ("text", "jsonl"):
        more = ["--format", form, *(["--confidence"] if form == "jsonl" else [])]
        out = tmp_path / form
        done = run_here("translate", run, tmp_path / "in.txt", *options, *more, "--out", out)
        assert done.code == 0, done.err
        assert f"left empty, with a confidence below {between[2]:g}: 1 of 3 lines" in done.err
    assert (tmp_path / "text" / "in.txt").read_text().split("\n")[1:] == ["", "", ""]
    rows = [json.loads(row) for row in (tmp_path / "jsonl" / "in.jsonl").read_text().splitlines()]
    assert [row["confidence"] for row in rows] == [
        pytest.approx(between[0], abs=1e-4),
        None,
        pytest.approx(between[1], abs=1e-4),
    ]
    assert [bool(row["translation"]) for row in rows] == [True, False, False]


def test_a_fitted_function_is_the_identity_without_knots():
    assert Fitted(0.0, (1.0,))(np.array([[-800.0], [0.0], [800.0]])).tolist() == [0.0, 0.5, 1.0]


def test_the_errors_of_two_bins_do_not_cancel():
    chances, labels = np.repeat([0.25, 0.75], 4), np.array([1.0, 1.0, 0.0, 0.0] * 2)  # below by a quarter, above by one
    assert confidence.calibration_error(chances, labels) == pytest.approx(0.25)


def test_a_calibration_is_judged_against_the_probabilities_of_the_model():
    drawn = random.Random(2)

    def found(surprise: float) -> confidence.Decoded:
        logprobs = [-surprise * drawn.uniform(0.5, 1.5) for _ in range(3)]
        return confidence.Decoded("ba da", "", 2, "ki ko", [0, 1], logprobs)

    true = [confidence.Judged(found(0.5 + k / 20), ["ki", "ki ko", "x"][k % 3], 0.9 - k / 40) for k in range(30)]
    detached = [found(2.0 + k / 20) for k in range(20)]
    rough = confidence.fit_calibration(true * 2, detached * 3)
    judged = confidence.judge(rough, true, detached)
    words = np.exp([one.found.logprobs[:2] for one in true]).ravel()
    labels = np.concatenate([word_labels("ki ko", one.reference) for one in true]).astype(float)
    assert judged["word_error_before"] == pytest.approx(calibration_error(words, labels))
    rated = np.array([chance for one in true for _, chance in rough.rate(one.found).words])
    assert judged["word_error"] == pytest.approx(calibration_error(rated, labels))
    mean, broken = ([np.mean(one.logprobs) for one in some] for some in ([one.found for one in true], detached))
    assert judged["detached_auroc_before"] == auroc(np.array(mean), np.array(broken))
    own, lost = ([rough.rate(one).sentence for one in some] for some in ([one.found for one in true], detached))
    assert judged["detached_auroc"] == auroc(np.array(own), np.array(lost))
    chrf = [one.chrf for one in true]
    assert judged["chrf_correlation_before"] == pytest.approx(np.corrcoef(np.exp(mean), chrf)[0, 1])
    assert judged["chrf_correlation"] == pytest.approx(np.corrcoef(own, chrf)[0, 1])
    with pytest.raises(DataError, match="at least 50 sentences that have a translation; got 20"):
        confidence.fit_calibration(true * 2, detached)


def test_a_calibration_is_judged_on_the_half_that_it_is_not_fitted_to(monkeypatch):
    given = []
    monkeypatch.setattr(confidence, "judge", lambda *arguments: given.append(arguments) or {})
    found = [Decoded("ba", "", 1, f"ki{k}", [0], [-k / 100, -0.1]) for k in range(130)]
    true = [confidence.Judged(one, "ki0", k / 60) for k, one in enumerate(found[:60])]
    confidence.fit_calibration(true, found[60:])
    ((calibration, judged, detached),) = given
    assert (judged, detached) == (true[30:], found[95:])
    assert [calibration.about[name] for name in ("sentences", "words", "detached")] == [30, 30, 35]


def test_a_detached_source_lowers_the_confidence_in_such_sentences():
    drawn = random.Random(1)

    def found(surprise: float) -> confidence.Decoded:
        logprobs = [-surprise * drawn.uniform(0.5, 1.5) for _ in range(4)]
        return confidence.Decoded("ba da fo", "", 3, "ki ko ku", [0, 1, 2], logprobs)

    true = [confidence.Judged(found(0.1), "ki ko ku", 0.8) for _ in range(60)]
    fitted = confidence.fit_calibration(true, [found(3.0) for _ in range(60)])
    assert [fitted.about[name] for name in ("sentences", "words", "detached")] == [60, 180, 60]
    assert fitted.rate(found(0.1)).sentence > 0.7
    assert fitted.rate(found(3.0)).sentence < 0.2
