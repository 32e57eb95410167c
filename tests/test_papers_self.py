"""The reference itself: values and laws that the papers print, so that a slip in papers.py cannot hide."""

import ast
import math
import re
from pathlib import Path

import numpy as np
import papers
import pytest

SEED = np.random.default_rng(3)


def random(*shape):
    return SEED.normal(size=shape)


def test_the_reference_knows_neither_regard_nor_torch():
    tree = ast.parse(Path(papers.__file__).read_text(encoding="utf-8"))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names
    }
    assert imported == {"math", "numpy"}


def test_every_property_is_a_test_or_is_listed_with_its_reason():
    folder = Path(papers.__file__).parent
    properties = {
        f"{section}.{k}" for section, last in ((1, 6), (2, 9), (3, 8), (4, 6), (5, 9)) for k in range(1, last + 1)
    }
    tested = set()
    for file in folder.glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            tested |= {f"{section}.{k}" for section, k in re.findall(r"_t(\d+)_(\d+)(?=_)", name)}
    listed = set(
        re.findall(r"T(\d+\.\d+)", (folder / "README.md").read_text(encoding="utf-8").split("| property |")[1])
    )
    assert properties - tested - listed == set()


def test_a_missing_weight_is_named_and_a_missing_bias_is_zero():
    w = papers.Weights(W_a=np.eye(2))
    assert w.b_a == 0.0
    with pytest.raises(AttributeError, match="U_a"):
        _ = w.U_a


def test_normalisers_give_the_printed_values():
    z = np.array([-2.0, 0.0, 0.5])
    assert np.allclose(papers.softmax(z), [0.0486, 0.3592, 0.5922], atol=5e-5)
    assert np.allclose(papers.sparsemax(z), [0, 0.25, 0.75], atol=1e-14)
    assert np.allclose(papers.entmax15(z), [0, 0.3260, 0.6740], atol=5e-5)


@pytest.mark.parametrize("normalise", [papers.softmax, papers.hard, papers.sparsemax, papers.entmax15])
def test_normalisers_see_only_what_the_mask_shows(normalise):
    z = random(6)
    mask = [True, False, True, True, False, True]
    p = normalise(z, mask)
    kept = [j for j in range(6) if mask[j]]
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p[1] == p[4] == 0
    assert np.allclose(p[kept], normalise(z[kept]), atol=1e-14)
    assert np.array_equal(normalise(z, [False] * 6), np.zeros(6))


def test_entmax_lies_between_softmax_and_sparsemax():
    z = random(5)
    assert np.allclose(papers.entmax(z, 1 + 1e-6), papers.softmax(z), atol=1e-5)
    assert np.allclose(papers.entmax(z, 2.0), papers.sparsemax(z))


def test_sparsemax_is_the_projection_on_the_simplex():
    z = random(4)
    best = ((papers.sparsemax(z) - z) ** 2).sum()
    for other in SEED.dirichlet(np.ones(4), size=300):
        assert ((other - z) ** 2).sum() >= best - 1e-12


def test_local_windows():
    e = random(9)
    near = papers.local_m(e, 3, 2)
    assert [s for s in range(9) if near[s] > 0] == [1, 2, 3, 4, 5]
    assert np.array_equal(papers.local_m(e, 12, 2), np.zeros(9))
    assert np.array_equal(papers.local_m(e, 12, 2, clamp=True), papers.local_m(e, 8, 2))
    assert papers.gaussian(7, 2, 2.5) == pytest.approx(math.exp(-2))
    for_real = papers.local_p(e, 3.7, 2)
    assert [s for s in range(9) if for_real[s] > 0] == [2, 3, 4, 5]
    for_code = papers.local_p(e, 3.7, 2, floor_window=True)
    assert [s for s in range(9) if for_code[s] > 0] == [1, 2, 3, 4, 5]
    assert for_real.sum() < 1


def test_sinusoid_has_the_printed_norm_and_interleaves():
    for pos in (0, 1, 17):
        assert (papers.sinusoid(pos, 8) ** 2).sum() == pytest.approx(4)
    assert np.array_equal(papers.sinusoid(0, 6), [0, 1, 0, 1, 0, 1])
    assert papers.sinusoid(1, 6)[0] == math.sin(1)


def test_rotary_keeps_length_and_depends_on_distance():
    q, k = random(6), random(6)
    assert np.array_equal(papers.rotary(q, 0), q)
    assert np.linalg.norm(papers.rotary(q, 9)) == pytest.approx(np.linalg.norm(q))
    near = papers.dot(papers.rotary(q, 2), papers.rotary(k, 5))
    assert papers.dot(papers.rotary(q, 12), papers.rotary(k, 15)) == pytest.approx(near)


def test_noam_peaks_as_printed():
    assert papers.noam(4000, 512) == pytest.approx(6.99e-4, abs=5e-7)
    assert papers.noam(4000, 1024) == pytest.approx(4.94e-4, abs=5e-7)
    assert max(range(1, 9000), key=lambda step: papers.noam(step, 512)) == 4000
    assert papers.noam(4000, 512) / papers.noam(16000, 512) == pytest.approx(2)


def test_length_and_coverage_penalties():
    assert papers.length_penalty(1, 0.6) == 1
    assert papers.length_penalty(10, 0.6) == pytest.approx(1.733, abs=5e-4)
    assert papers.length_penalty(50, 0.6) == pytest.approx(3.779, abs=5e-4)
    assert papers.coverage_penalty(np.eye(3), 0.2) == 0
    thin = np.array([[0.5, 0.5], [0.25, 0.75]])
    assert papers.coverage_penalty(thin, 0.2) == pytest.approx(0.2 * math.log(0.75))
    assert papers.gnmt_score(-4.0, thin, 0, 0) == -4.0


def test_alignment_error_rate_of_the_toy():
    sure = {(0, 0), (1, 1)}
    possible = sure | {(1, 2)}
    assert papers.alignment_error_rate([({(0, 0), (1, 2), (2, 1)}, sure, possible)]) == pytest.approx(0.4)
    assert papers.alignment_error_rate([(sure, sure, possible)]) == 0
    # counts are summed over the corpus, which is not the mean of the sentences
    both = [({(0, 0), (1, 2), (2, 1)}, sure, possible), ({(0, 0)}, {(0, 0)}, {(0, 0)})]
    assert papers.alignment_error_rate(both) == pytest.approx(1 - (1 + 1 + 2 + 1) / (4 + 3))


def test_label_smoothing_conventions():
    K = 5
    for convention in ("all", "others", "no_pad"):
        q = papers.smoothed_target(2, K, 0.1, convention, pad=0)
        assert q.sum() == pytest.approx(1)
        assert papers.smoothed_loss(np.zeros(K), 2, 0.1, convention, pad=0) == pytest.approx(math.log(K))
        logits = random(K)
        plain = -papers.log_softmax(logits)[2]
        assert papers.smoothed_loss(logits, 2, 0.0, convention, pad=0) == pytest.approx(plain)
    assert papers.smoothed_target(2, K, 0.1, "others")[0] == pytest.approx(0.025)
    assert papers.smoothed_target(2, K, 0.1, "all")[0] == pytest.approx(0.02)
    assert papers.smoothed_target(2, K, 0.1, "no_pad", pad=0)[0] == 0
    best = np.log(papers.smoothed_target(2, K, 0.1, "others"))
    assert papers.smoothed_loss(best, 2, 0.1, "others", subtract_entropy=True) == pytest.approx(0)


def test_doubly_stochastic_penalty():
    assert papers.doubly_stochastic_penalty(np.eye(4)) == 0
    C, L = 3, 7
    assert papers.doubly_stochastic_penalty(np.full((C, L), 1 / L)) == pytest.approx((C - L) ** 2 / L)


def test_guided_alignment_loss_skips_unlinked_rows():
    alpha = np.array([[0.5, 0.5], [0.2, 0.8], [0.1, 0.9]])
    links = [[1, 1], [0, 0], [0, 1]]
    assert papers.guided_alignment_loss(alpha, links) == pytest.approx(-(math.log(0.5) + math.log(0.9)) / 3)


def test_gru_polarities_are_mirrors_and_reset_placement_is_not():
    m, n = 3, 4
    w = papers.Weights({f"{a}{g}": random(n, m if a == "W" else n) for a in "WU" for g in ("", "_r", "_z")})
    mirror = papers.Weights({k: -v if k.endswith("_z") else v for k, v in w.items()})
    x, h = random(m), random(n)
    assert np.allclose(papers.cho_gru(x, h, w), papers.bahdanau_gru(x, h, mirror))
    assert not np.allclose(papers.cho_gru(x, h, w), papers.gru_reset_after(x, h, w))
    open_gate = papers.Weights({**w, "b_r": 1e3})
    assert np.allclose(papers.cho_gru(x, h, open_gate), papers.gru_reset_after(x, h, open_gate))


def test_maxout_takes_adjacent_pairs():
    assert np.array_equal(papers.maxout(np.array([1.0, 2.0, 5.0, 4.0])), [2, 5])


def test_reversal_keeps_end_last():
    assert papers.reversed_words([7, 8, 9, 2]) == [9, 8, 7, 2]


def test_one_head_of_identities_is_plain_attention():
    d = 4
    X, M = random(3, d), random(5, d)
    eye = np.eye(d)
    rows, alpha = papers.multi_head(X, M, papers.Weights(W_Q=[eye], W_K=[eye], W_V=[eye], W_O=eye))
    plain, weights = papers.attention(X, M, M)
    assert np.allclose(rows, plain)
    assert np.allclose(alpha[0], weights)


def test_layer_norm_has_mean_zero_and_variance_one():
    rows = papers.layer_norm(random(3, 6), papers.Weights(g=np.ones(6)), eps=0.0)
    assert np.allclose(rows.mean(1), 0)
    assert np.allclose(rows.var(1), 1)


def test_lstmn_looking_one_step_back_is_an_lstm():
    m, n = 3, 4
    w = papers.Weights(v=np.zeros(n), W_h=random(n, n), W_x=random(n, m), W_ht=random(n, n), W=random(4 * n, n + m))
    x, h, c = random(m), random(n), random(n)
    got_h, got_c, _, s = papers.lstmn_step(x, [h], [c], np.zeros(n), w)
    swapped = papers.Weights(W=np.concatenate([w.W[:, n:], w.W[:, :n]], axis=1))  # [x ; h] instead of [h ; x]
    want_h, want_c = papers.lstm(x, h, c, swapped)
    assert s == [1.0]
    assert np.allclose(got_h, want_h)
    assert np.allclose(got_c, want_c)


def test_han_pooling_without_a_context_vector_is_the_mean():
    h = [random(4) for _ in range(3)]
    pooled, alpha = papers.han_pool(h, papers.Weights(W=random(4, 4), b=random(4), u=np.zeros(4)))
    assert np.allclose(alpha, 1 / 3)
    assert np.allclose(pooled, np.mean(h, axis=0))


def test_attentive_lm_has_no_context_before_the_first_word():
    n = 4
    w = papers.Weights(v=random(n), W1=random(n, n), W2=random(n, n), W3=random(n, 2 * n), W=random(6, n))
    logits, alpha, c = papers.attentive_lm_step(random(n), [], w)
    assert logits.shape == (6,)
    assert len(alpha) == 0
    assert np.array_equal(c, np.zeros(n))
    _, alpha, _ = papers.attentive_lm_step(random(n), [random(n), random(n)], w)
    assert alpha.sum() == pytest.approx(1)
