"""Faithfulness: the laws of its measures, on tables of numbers and on small models."""

import copy
import json
import time
from itertools import permutations

import numpy as np
import pytest
import torch
import trained
from commands import run_here

from regard.api import faithful as api
from regard.api.faithful import measure_faithfulness, randomise
from regard.corpora.phrasebook import generate
from regard.errors import ConfigError, DataError
from regard.evaluate import faithful
from regard.evaluate.alignment import AlignmentScore
from regard.evaluate.faithful import ORACLE, RANDOM, Estimate
from regard.text.pharaoh import Gold

SIZE = 5


def table(seed=0, size=SIZE):
    """log p of a word without every set of words, at random."""
    generator = np.random.default_rng(seed)
    return {some: float(np.log(generator.uniform(0.01, 1))) for some in faithful.subsets(size)}


def test_levels_are_one_two_and_shares_rounded_up():
    assert faithful.counts(10) == [1, 2, 1, 2, 3, 4, 5]
    assert faithful.counts(1) == [1] * 7  # never more words than there are
    assert faithful.counts(30)[2] == 3  # 0.1 * 30 is above 3 in floating point
    assert faithful.counts(7)[2:] == [1, 2, 3, 3, 4]


def test_curves_are_the_definition():
    known, order = table(), [3, 0, 4, 1, 2]
    first, second = faithful.curves(order, known)
    whole = np.exp(known[frozenset()])
    assert first[1] == pytest.approx(whole - np.exp(known[frozenset({3, 0})]))
    assert second[1] == pytest.approx(whole - np.exp(known[frozenset({4, 1, 2})]))
    assert faithful.needed(order) | {frozenset()} <= known.keys()
    assert faithful.needed(order) == {
        frozenset(some) for some in ([3], [3, 0], [3, 0, 4], [0, 4, 1, 2], [4, 1, 2], [1, 2])
    }


def test_no_order_is_better_than_the_oracle_and_random_is_between():
    known = table(1)
    best = faithful.best_curves(SIZE, known)
    all_curves = np.array([faithful.curves(order, known) for order in permutations(range(SIZE))])
    assert (all_curves[:, 0] <= best[0] + 1e-12).all()
    assert (all_curves[:, 1] >= best[1] - 1e-12).all()
    # At each level one order reaches it.
    assert np.allclose(all_curves[:, 0].max(0), best[0])
    assert np.allclose(all_curves[:, 1].min(0), best[1])
    mean = all_curves.mean(0)
    assert (mean[0] < best[0]).all()
    assert (mean[0] > all_curves[:, 0].min(0)).all()


def test_the_only_influential_word_first_is_the_best_order():
    known = {some: np.log(0.1 if 2 in some else 0.9) for some in faithful.subsets(SIZE)}
    first, second = faithful.curves([2, 0, 1, 3, 4], known)
    assert np.allclose(first, 0.8)
    assert np.allclose(second, 0)
    assert np.allclose([first, second], faithful.best_curves(SIZE, known))
    assert np.allclose(faithful.curves([0, 1, 3, 4, 2], known), [[0] * 7, [0.8] * 7])


def test_equal_values_are_ranked_at_random_and_others_by_size():
    generator = np.random.default_rng(0)
    orders = [faithful.rank(np.array([0.0, 2.0, 0.0, 1.0]), generator) for _ in range(40)]
    assert all(order[:2] == [1, 3] for order in orders)
    assert {tuple(order[2:]) for order in orders} == {(0, 2), (2, 0)}


def test_tau_b_is_the_definition():
    a, b = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 2.0])
    # pairs: 12+ 13+ 14+ | 23 tied in a, 24 -, 34 tied in b: (3 - 1) / sqrt(5 * 5)
    assert faithful.kendall(a, b) == pytest.approx(2 / 5)
    assert faithful.kendall(a, a) == pytest.approx(1)
    assert faithful.kendall(-a, a) == pytest.approx(-1)
    assert faithful.kendall(np.ones(4), a) == 0  # no order at all
    assert np.isnan(faithful.kendall(a, np.ones(4)))
    assert faithful.similarity(np.stack([a, a]), np.stack([a, np.ones(4)])) == pytest.approx(1)
    assert np.isnan(faithful.similarity(a[None, :1], a[None, :1]))


def test_reach_is_zero_for_random_and_one_for_the_oracle():
    assert faithful.reach([[0.2, 0.2, 0.8], [0.1, 0.1, 0.5]]) == pytest.approx((0, 0, 0))
    assert faithful.reach([[0.8, 0.2, 0.8], [0.5, 0.1, 0.5]]) == pytest.approx((1, 1, 1))
    assert faithful.reach([[0.5, 0.2, 0.8]]).value == pytest.approx(0.5)
    assert faithful.reach([]) is None
    assert faithful.reach([[0.3, 0.3, 0.3]]) is None  # a sentence of one word: every order is the best
    some = [[0.5, 0.2, 0.8], [0.3, 0.2, 0.6]]
    assert faithful.reach([[0.3, 0.3, 0.3], *some]) == faithful.reach(some)


def test_an_estimate_is_a_mean_within_its_interval():
    found = Estimate.of([0.0, 1.0, float("nan"), 0.5, 0.7])
    assert found.value == pytest.approx(0.55)
    assert 0 < found.low < 0.55 < found.high < 1
    assert Estimate.of([float("nan")]) is None


def test_the_threshold_is_chosen_on_the_other_lines():
    """Even lines are right at the share 0.3, odd ones at 0.6: each half takes what fits the other."""
    right = Gold(frozenset({(0, 0), (1, 0)}), frozenset({(0, 0), (1, 0)}))
    even, odd = np.array([[0.35, 0.35, 0.3]]), np.array([[0.5, 0.5, 0.0]])
    answers = [right, right] * 3
    same = faithful.align([odd] * 6, answers)
    assert same["aer_threshold"].value == 0
    assert same["aer"].value == pytest.approx(1 / 3)
    mixed = faithful.align([even, odd] * 3, answers)
    # Odd lines allow any threshold up to 0.5; the first of the best, 0.05, also links the third word of even lines.
    assert mixed["aer_threshold"].value == pytest.approx(AlignmentScore(5 * 3, 12, 12, 12).aer)
    negative = faithful.align([np.array([[-1.0, -2.0, -3.0]])] * 2, [right] * 2)
    assert negative["aer"].value == 1  # nothing speaks for a word: no link


def test_randomising_goes_from_the_output_to_the_source_and_keeps_every_entry():
    other = copy.deepcopy(trained.translator("heads").model)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    parts = []
    for part in randomise(other):
        parts.append(part)
        moved = {name for name, value in other.named_parameters() if not torch.equal(value, before[name])}
        assert all(any(name.startswith(done) for done in parts) for name in moved)
    assert parts.index("decoder.1") < parts.index("decoder.0") < parts.index("encoder.1") < parts.index("encoder.0")
    for name, value in other.named_parameters():
        assert torch.equal(value.flatten().sort().values, before[name].flatten().sort().values)


@pytest.fixture(scope="module")
def pairs():
    return generate(4, 9, 3, 5)


@pytest.mark.parametrize("erasing", ["masked", "unknown", "removed"])
def test_laws_of_a_model(pairs, erasing):
    sources, targets = ([getattr(pair, side) for pair in pairs] for side in ("source", "target"))
    methods, begun = ["attention", "gradient", f"occlusion-{erasing}"], time.perf_counter()
    found = measure_faithfulness(
        trained.translator("bahdanau"), sources, targets, methods=methods, erasing=erasing, sane=0
    )
    rows = {one.method: one for one in found.methods}
    assert list(rows) == [*methods, RANDOM, ORACLE]
    assert found.sentences == found.short == 4
    assert 0 < sum(rows[method].seconds for method in methods) * 4 < time.perf_counter() - begun
    for one in rows.values():
        assert (one.curves[0] <= rows[ORACLE].curves[0] + 1e-9).all()
        assert (one.curves[1] >= rows[ORACLE].curves[1] - 1e-9).all()
        means = [estimate.value for estimate in (one.comprehensiveness, one.sufficiency)]
        assert means == pytest.approx(one.curves.mean(1).tolist())
    assert rows[f"occlusion-{erasing}"].correlation.value == pytest.approx(1)
    assert rows[f"occlusion-{erasing}"].curves[0][0] == pytest.approx(
        rows[ORACLE].curves[0][0]
    )  # one word: by definition
    assert rows["gradient"].reach.value < 1


def test_a_long_sentence_gives_the_numbers_of_a_short_one(pairs, monkeypatch):
    """Only the sets that are needed are erased, for each target word alone: the curves stay."""
    sources, targets = ([getattr(pair, side) for pair in pairs[:2]] for side in ("source", "target"))

    def measure():
        return measure_faithfulness(trained.translator("heads"), sources, targets, methods=["alti"], sane=0)

    short = measure()
    monkeypatch.setattr(api, "SHORT", 0)
    long = measure()
    assert long.short == 0
    assert long.methods[0].reach is None
    assert short.methods[0].reach is not None
    assert np.allclose(short.methods[0].curves, long.methods[0].curves, atol=1e-5)
    assert np.allclose(short.methods[1].curves, long.methods[1].curves, atol=1e-5)
    assert short.methods[0].correlation.value == pytest.approx(long.methods[0].correlation.value, abs=1e-3)


def test_a_fixed_vector_has_no_attention_but_can_be_explained(pairs):
    sources, targets = ([getattr(pair, side) for pair in pairs[:1]] for side in ("source", "target"))
    found = measure_faithfulness(trained.translator("fixed"), sources, targets, sane=1)
    assert found.erase == "unknown"
    assert {"attention", "rollout", "occlusion-masked"} <= found.skipped.keys()
    assert "one vector" in found.skipped["attention"]
    kept = found.methods[0].kept
    assert len(kept) > 2
    assert all(-1 <= value <= 1 for value in kept.values())
    with pytest.raises(ConfigError, match="erase by unknown or removed"):
        measure_faithfulness(trained.translator("fixed"), sources, targets, erasing="masked")


def test_the_command(tmp_path, pairs):
    for side in ("source", "target"):
        (tmp_path / side).write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs))
    (tmp_path / "gold").write_text("".join("1-1\n" for _ in pairs))
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    options = ["--gold", tmp_path / "gold", "--sentences", 2, "--sanity", 1, "--methods", "attention,occlusion-removed"]
    done = run_here("faithful", trained.run("bahdanau"), *files, *options, "--json", "--plot", tmp_path / "plot.svg")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["sentences"] == 2
    assert [row["method"] for row in found["methods"]] == [
        "attention",
        "occlusion-removed",
        "random",
        "oracle",
    ]
    attention = found["methods"][0]
    assert attention["aer"]["low"] <= attention["aer"]["value"] <= attention["aer"]["high"]
    assert list(attention["kept"]) == ["output", "decoder", "encoder", "embed"]
    drawn = (tmp_path / "plot.svg").read_text()
    places = [drawn.index(f">{one}<") for one in ("source words erased", "comprehensiveness (more is better)")]
    assert max(places) < min(drawn.index(f">{one}<") for one in ("source words left", "sufficiency (less is better)"))

    def refused(*more, run="bahdanau"):
        done = run_here("faithful", trained.run(run), *files, *more)
        assert done.code == 2
        assert not done.out
        return done.err

    assert "There is no attribution method 'atention'. Did you mean 'attention'?" in refused("--methods", "atention")
    assert "no Transformer layers" in refused("--methods", "alti", "--sentences", 1)
    assert "has no attention over the source words" in refused("--methods", "attention", run="fixed")
    assert "There is no way to erase 'mask'" in refused("--erase", "mask")
    assert "Invalid value for '--sentences'" in refused("--sentences", 0)
    for gold, says in {
        "1-1\n": "got 4 pairs and 1 line",
        "\n\n\n\n": "The gold file has no links",
        "1-1\n\n1-9\n1-1\n": "The gold links of pair 3 name words 1-9",
    }.items():
        (tmp_path / "gold").write_text(gold)
        assert says in refused("--gold", tmp_path / "gold", "--sentences", 1)
    (tmp_path / "source").write_text("\n".join(["a", " ", "b", "c", ""]))
    assert "Pair 2 has an empty side" in refused()


def test_pairs_are_checked_before_the_first_is_measured(pairs, monkeypatch):
    sources, targets = ([getattr(pair, side) for pair in pairs] for side in ("source", "target"))
    monkeypatch.setattr(api, "_read", None)  # a measurement would raise TypeError

    def refused(says, number, words, most=None, methods=("attention", "integrated-gradients")):
        changed = [[*one[: number - 1], " ".join(["cat"] * words), *one[number:]] for one in (sources, targets)]
        with pytest.raises(DataError, match=says):
            measure_faithfulness(trained.translator("bahdanau"), *changed, methods=methods, most=most)

    refused(r"^Pair 4 has \d+ source and \d+ target tokens; at most 1000 on each side", 4, 1001)
    refused(r"^Pair 3 has .+; at most 1000 on each side", 3, 1001, 2, ["attention"])  # the first and the third
    refused(r"^Pair 2 has .+ integrated gradients would take hours\. Leave", 2, 300)
    refused(r"^Pair 3 has an empty side; give words on both sides, or leave the pair out\.$", 3, 0, 2)
    with pytest.raises(ConfigError, match="There is no layer 9 of attention"):
        measure_faithfulness(trained.translator("bahdanau"), sources, targets, methods=["gradient", "attention:9"])
    with pytest.raises(TypeError):
        measure_faithfulness(trained.translator("bahdanau"), sources, targets, methods=["attention:0"])


def test_progress_counts_every_attribution_also_with_randomised_weights(pairs):
    sources, targets, seen = [pairs[0].source], [pairs[0].target], []
    measure_faithfulness(
        trained.translator("bahdanau"), sources, targets, methods=["attention", "gradient"], sane=1,
        progress=lambda *now: seen.append(now),
    )  # fmt: skip
    total = 2 + 1 + 4 * 2  # two attributions, what the pair loses, and both again after each of four parts
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_other_line_counts_are_refused(pairs):
    with pytest.raises(DataError, match="got 2 and 1"):
        measure_faithfulness(trained.translator("bahdanau"), ["a", "b"], ["a"])
