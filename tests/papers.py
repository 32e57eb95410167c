"""The formulas of the papers as printed, in plain loops over numpy float64.

This file is the reference: it knows nothing of regard and nothing of torch. One sentence at a time, no padding, no
batches, column vectors, W in R^{out x in}; only the Transformer writes x W, as its paper does. Weights come as a
`Weights` dictionary with the papers' names. A bias that a paper leaves out of print may be given under the name
that the function's docstring tells; without it there is none.

Positions are counted from 0 here (x_0 ... x_{S-1}, y_0 ... y_{T-1}), where the papers count from 1.
"""

import math

import numpy as np


class Weights(dict):
    """The weights of one equation under the paper's names: w.W_a is w["W_a"]; an absent bias is zero."""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        if name.startswith("b"):
            return 0.0
        raise AttributeError(f"this equation needs the weight {name}; given: {', '.join(self)}")


def sigmoid(x):
    """1 / (1 + exp(-x)), by the identity that cannot overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(x)))


def concat(*vectors):
    """[a ; b ; ...]"""
    return np.concatenate(vectors)


# ---------------------------------------------------------------------------------------------------------------------
# Scores of one query q and one key k (one number)
# ---------------------------------------------------------------------------------------------------------------------


def dot(q, k):
    """Luong: q . k"""
    total = 0.0
    for a, b in zip(q, k, strict=True):
        total += float(a) * float(b)
    return total


def scaled_dot(q, k):
    """Vaswani: q . k / sqrt(d_k); d_k is the dimension of k, not its norm."""
    return dot(q, k) / math.sqrt(len(k))


def general(q, k, W_a):
    """Luong: q^T W_a k, W_a in R^{d_q x d_k}"""
    return dot(q, W_a @ k)


def additive(q, k, W_a, U_a, v_a, b_a=0.0):
    """Bahdanau: v_a^T tanh(W_a q + U_a k), W_a in R^{n_a x d_q}, U_a in R^{n_a x d_k}, v_a in R^{n_a}"""
    return dot(v_a, np.tanh(W_a @ q + U_a @ k + b_a))


def luong_concat(q, k, W_a, v_a):
    """Luong: v_a^T tanh(W_a [q ; k]), W_a in R^{n x (d_q + d_k)}, v_a in R^n"""
    return dot(v_a, np.tanh(W_a @ concat(q, k)))


def luong_concat_code(q, k, W_a, v_a):
    """Luong's released code: the block of W_a that meets k is fixed to the identity, v_a^T tanh(k + W_a q)"""
    return dot(v_a, np.tanh(k + W_a @ q))


def cosine(q, k, beta, eps=1e-8):
    """Graves' NTM: beta q.k / max(|q| |k|, eps), with a key strength beta > 0"""
    norms = math.sqrt(dot(q, q)) * math.sqrt(dot(k, k))
    return beta * dot(q, k) / max(norms, eps)


def location(q, W_a, S):
    """Luong: (W_a q)_j, W_a in R^{Lmax x d_q}; a short source uses the first S rows, words past Lmax get -inf"""
    rows = W_a @ q
    return np.array([rows[j] if j < len(rows) else -math.inf for j in range(S)])


def scores_of(score, Q, K, *weights):
    """e_ij = score(q_i, k_j, weights): all pairs, one at a time."""
    e = np.zeros((len(Q), len(K)))
    for i in range(len(Q)):
        for j in range(len(K)):
            e[i, j] = score(Q[i], K[j], *weights)
    return e


# ---------------------------------------------------------------------------------------------------------------------
# Normalisers of one row of scores e_1 ... e_S, with a mask (1 = may look)
# ---------------------------------------------------------------------------------------------------------------------


def visible(e, mask):
    """The positions that may be looked at. A score of -inf is nowhere to look either."""
    return [j for j in range(len(e)) if (mask is None or mask[j]) and e[j] > -math.inf]


def softmax(e, mask=None):
    """alpha_j = exp(e_j) / sum over visible k of exp(e_k); zeros where nothing is visible."""
    alpha = np.zeros(len(e))
    seen = visible(e, mask)
    if not seen:
        return alpha
    top = max(e[j] for j in seen)
    for j in seen:
        alpha[j] = math.exp(e[j] - top)
    return alpha / alpha.sum()


def hard(e, mask=None):
    """One-hot at the best visible score (the first of equals); zeros where nothing is visible."""
    alpha = np.zeros(len(e))
    seen = visible(e, mask)
    if seen:
        alpha[max(seen, key=lambda j: (e[j], -j))] = 1.0
    return alpha


def window(centre, D, S):
    """Luong's window {s : |s - centre| <= D}, clipped to the sentence."""
    return [abs(s - centre) <= D for s in range(S)]


def local_m(e, t, D, mask=None, clamp=False):
    """Luong local-m: p_t = t, softmax over the window. clamp: the released code moves p_t to the last real word."""
    seen = visible(e, mask)
    p_t = min(t, seen[-1]) if clamp and seen else t
    near = window(p_t, D, len(e))
    return softmax(e, [near[s] and (mask is None or mask[s]) for s in range(len(e))])


def local_p_centre(h_t, W_p, v_p, S):
    """Luong local-p: p_t = S sigmoid(v_p^T tanh(W_p h_t)), a real number in [0, S]; S is the true length.

    Indexing: the paper does not say where positions start. Everywhere in this file they start at 0, so p_t = 0 is the
    first word, and p_t = S lies one past the last.
    """
    return S * float(sigmoid(dot(v_p, np.tanh(W_p @ h_t))))


def local_p_centre_code(h_t, W_p, v_p, S):
    """The released code's centre: sigmoid(.) (srcLen - 1) + 1 counted from 1; srcLen counts the END of the source.

    S is the number of words without END, so srcLen - 1 = S: counted from 0 the centre is S sigmoid(.), as in the paper.
    """
    srcLen = S + 1
    from_one = float(sigmoid(dot(v_p, np.tanh(W_p @ h_t)))) * (srcLen - 1) + 1
    return from_one - 1


def gaussian(s, p_t, sigma):
    """exp(-(s - p_t)^2 / (2 sigma^2))"""
    return math.exp(-((s - p_t) ** 2) / (2.0 * sigma**2))


def local_p(e, p_t, D, mask=None, sigma=None, floor_window=False):
    """Luong local-p: (softmax over the window) x Gaussian around the real p_t, not renormalised; sigma = D / 2.

    Paper: the window is |s - p_t| <= D. floor_window: the released code's |s - floor(p_t)| <= D.
    """
    sigma = D / 2.0 if sigma is None else sigma
    near = window(math.floor(p_t) if floor_window else p_t, D, len(e))
    align = softmax(e, [near[s] and (mask is None or mask[s]) for s in range(len(e))])
    return np.array([align[s] * gaussian(s, p_t, sigma) for s in range(len(e))])


def threshold(mass, low, high):
    """The tau in [low, high] with mass(tau) = 1, for a falling mass: bisection until the floats are neighbours."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if mass(middle) > 1.0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def entmax(e, alpha, mask=None):
    """p_j = [(alpha - 1) e_j - tau]_+^{1/(alpha - 1)} with tau such that p sums to 1 (alpha = 2 is sparsemax)."""
    p = np.zeros(len(e))
    seen = visible(e, mask)
    if not seen:
        return p
    z = {j: (alpha - 1.0) * e[j] for j in seen}
    power = 1.0 / (alpha - 1.0)
    top = max(z.values())
    tau = threshold(lambda tau: sum(max(x - tau, 0.0) ** power for x in z.values()), top - 1.0, top)
    for j in seen:
        p[j] = max(z[j] - tau, 0.0) ** power
    return p


def sparsemax(e, mask=None):
    """argmin over the simplex of ||p - e||^2 = [e - tau]_+"""
    return entmax(e, 2.0, mask)


def entmax15(e, mask=None):
    """1.5-entmax: [e / 2 - tau]_+^2"""
    return entmax(e, 1.5, mask)


def context_of(alpha, h):
    """c = sum_j alpha_j h_j"""
    c = np.zeros(len(h[0]))
    for j in range(len(h)):
        c = c + alpha[j] * h[j]
    return c


# ---------------------------------------------------------------------------------------------------------------------
# Positions
# ---------------------------------------------------------------------------------------------------------------------


def sinusoid(pos, d):
    """PE(pos, 2i) = sin(pos / 10000^{2i/d}), PE(pos, 2i+1) = cos(the same)"""
    pe = np.zeros(d)
    for i in range((d + 1) // 2):
        angle = pos / 10000.0 ** (2 * i / d)
        pe[2 * i] = math.sin(angle)
        if 2 * i + 1 < d:
            pe[2 * i + 1] = math.cos(angle)
    return pe


def rotary(x, pos):
    """Rotate the pairs (2i, 2i+1) of x by pos theta_i, theta_i = 10000^{-2i/d}"""
    d = len(x)
    y = np.zeros(d)
    for i in range(d // 2):
        angle = pos * 10000.0 ** (-2 * i / d)
        y[2 * i] = x[2 * i] * math.cos(angle) - x[2 * i + 1] * math.sin(angle)
        y[2 * i + 1] = x[2 * i] * math.sin(angle) + x[2 * i + 1] * math.cos(angle)
    return y


# ---------------------------------------------------------------------------------------------------------------------
# Cells
# ---------------------------------------------------------------------------------------------------------------------


def cho_gru(x, h, w):
    """Cho 2014, eq. 5-8: reset before the product, z keeps the old state. w: W_r U_r W_z U_z W U (b_r b_z b)"""
    r = sigmoid(w.W_r @ x + w.U_r @ h + w.b_r)
    z = sigmoid(w.W_z @ x + w.U_z @ h + w.b_z)
    candidate = np.tanh(w.W @ x + w.U @ (r * h) + w.b)
    return z * h + (1.0 - z) * candidate


def bahdanau_gru(x, s, w, c=None):
    """Bahdanau: reset before the product, z writes the new state; with a context c if the weights C_* are there.

    w: W_r U_r C_r, W_z U_z C_z, W U C (b_r b_z b)
    """
    C_r, C_z, C = (w.C_r @ c, w.C_z @ c, w.C @ c) if c is not None else (0.0, 0.0, 0.0)
    r = sigmoid(w.W_r @ x + w.U_r @ s + C_r + w.b_r)
    z = sigmoid(w.W_z @ x + w.U_z @ s + C_z + w.b_z)
    candidate = np.tanh(w.W @ x + w.U @ (r * s) + C + w.b)
    return (1.0 - z) * s + z * candidate


def gru_reset_after(x, h, w):
    """torch and dl4mt: reset after the product, z keeps. w: W_r U_r W_z U_z W U (b_r b_z b; b_U inside the reset)"""
    r = sigmoid(w.W_r @ x + w.U_r @ h + w.b_r)
    z = sigmoid(w.W_z @ x + w.U_z @ h + w.b_z)
    candidate = np.tanh(w.W @ x + w.b + r * (w.U @ h + w.b_U))
    return z * h + (1.0 - z) * candidate


def bahdanau_gru_reset_after(x, s, w, c=None):
    """Bahdanau's cell with torch's placement of the reset gate: after the product, z writes. w: bahdanau_gru's (b_U)"""
    C_r, C_z, C = (w.C_r @ c, w.C_z @ c, w.C @ c) if c is not None else (0.0, 0.0, 0.0)
    r = sigmoid(w.W_r @ x + w.U_r @ s + C_r + w.b_r)
    z = sigmoid(w.W_z @ x + w.U_z @ s + C_z + w.b_z)
    candidate = np.tanh(w.W @ x + C + w.b + r * (w.U @ s + w.b_U))
    return (1.0 - z) * s + z * candidate


def lstm(x, h, c, w):
    """Sutskever, Zaremba: [i;f;o;g] = [sig;sig;sig;tanh](W [x ; h] + b), W in R^{4n x (m + n)}; returns h, c"""
    n = len(h)
    a = w.W @ concat(x, h) + w.b
    i, f, o, g = sigmoid(a[:n]), sigmoid(a[n : 2 * n]), sigmoid(a[2 * n : 3 * n]), np.tanh(a[3 * n :])
    c = f * c + i * g
    return o * np.tanh(c), c


def lstm_fed(x, feed, h, c, w):
    """Luong's input feeding: the input of the LSTM is [E y_{t-1} ; htilde_{t-1}], W in R^{4n x (m + n + n)}"""
    return lstm(concat(x, feed), h, c, w)


def maxout(t):
    """t_k = max(t_{2k-1}, t_{2k}): adjacent pairs, R^{2l} -> R^l"""
    return np.array([max(t[2 * k], t[2 * k + 1]) for k in range(len(t) // 2)])


# ---------------------------------------------------------------------------------------------------------------------
# Readers (encoders): a list of embedded words in, a list of states out
# ---------------------------------------------------------------------------------------------------------------------


def read_gru(X, w, n, cell):
    """h_0 = 0, h_j = cell(x_j, h_{j-1}): the states h_1 ... h_S"""
    h = np.zeros(n)
    states = []
    for x in X:
        h = cell(x, h, w)
        states.append(h)
    return states


def bigru_encoder(X, forward, backward, n, cell=bahdanau_gru):
    """h_j = [->h_j ; <-h_j]. Returns the annotations, the forward states and the backward states, in source order."""
    ahead = read_gru(X, forward, n, cell)
    back = read_gru(X[::-1], backward, n, cell)[::-1]
    return [concat(f, b) for f, b in zip(ahead, back, strict=True)], ahead, back


def stacked_lstm_step(x, hs, cs, layers):
    """One word through a stack: layer l reads h^{l-1}_t. Returns the new h and c of every layer."""
    new_h, new_c = [], []
    for h, c, w in zip(hs, cs, layers, strict=True):
        x, c = lstm(x, h, c, w)
        new_h.append(x)
        new_c.append(c)
    return new_h, new_c


def stacked_lstm_encoder(X, layers, n):
    """Reads X from zero states. Returns the top states of all positions, and h and c of every layer at the end."""
    hs = [np.zeros(n) for _ in layers]
    cs = [np.zeros(n) for _ in layers]
    tops = []
    for x in X:
        hs, cs = stacked_lstm_step(x, hs, cs, layers)
        tops.append(hs[-1])
    return tops, hs, cs


def reversed_words(source):
    """a b c END -> c b a END: the words are reversed, END stays last."""
    return [*source[:-1][::-1], source[-1]]


# ---------------------------------------------------------------------------------------------------------------------
# Sutskever 2014, Cho 2014
# ---------------------------------------------------------------------------------------------------------------------


def sutskever(source, read, w, n, reverse=True):
    """Two stacks of LSTMs; the decoder starts from the encoder's states, layer by layer.

    source: ids with END last. read: the ids the decoder reads (the start symbol, then the target without its last).
    w: E_x (m x K_x), E_y (m x K_y), encoder and decoder (lists of LSTM weights), W_out (K_y x n) (b_out).
    Returns logits [T, K_y] and the summary v = (hs, cs).
    """
    order = reversed_words(source) if reverse else source
    _, hs, cs = stacked_lstm_encoder([w.E_x[:, x] for x in order], w.encoder, n)
    v = (hs, cs)
    logits = []
    for y in read:
        hs, cs = stacked_lstm_step(w.E_y[:, y], hs, cs, w.decoder)
        logits.append(w.W_out @ hs[-1] + w.b_out)
    return np.array(logits), v


def cho_decoder_step(y, h, c, w):
    """Cho 2014, appendix: the gates also read c, and the reset gate stands before U' h' + C c.

    w: W_r U_r C_r, W_z U_z C_z, W U C (b_r b_z b). y is the embedding of the word before.
    """
    r = sigmoid(w.W_r @ y + w.U_r @ h + w.C_r @ c + w.b_r)
    z = sigmoid(w.W_z @ y + w.U_z @ h + w.C_z @ c + w.b_z)
    candidate = np.tanh(w.W @ y + r * (w.U @ h + w.C @ c) + w.b)
    return z * h + (1.0 - z) * candidate


def cho_readout(h, y, c, w):
    """s' = O_h h' + O_y y_{t-1} + O_c c in R^{2l}; maxout over pairs; logits G_l (G_r s) (b_o b_out)"""
    s = maxout(w.O_h @ h + w.O_y @ y + w.O_c @ c + w.b_o)
    return w.G_l @ (w.G_r @ s) + w.b_out


def cho(source, Y, w, n):
    """RNN Encoder-Decoder: c = tanh(V h_S); h'_0 = tanh(V' c); every step and every readout sees c.

    source: ids; Y: embeddings of the words before (y_0 first). w: E_x, encoder (Cho GRU), V, V_prime, decoder,
    readout (b_V b_V_prime). Returns logits, states h'_1 ..., c.
    """
    h_S = read_gru([w.E_x[:, x] for x in source], w.encoder, n, cho_gru)[-1]
    c = np.tanh(w.V @ h_S + w.b_V)
    h = np.tanh(w.V_prime @ c + w.b_V_prime)
    logits, states = [], []
    for y in Y:
        h = cho_decoder_step(y, h, c, w.decoder)
        states.append(h)
        logits.append(cho_readout(h, y, c, w.readout))
    return np.array(logits), states, c


def rnnencdec(h, Y, w, readout_state="after", cell=bahdanau_gru):
    """GroundHog's RNNencdec: the decoder of RNNsearch with c_i = h for every i and s_0 = tanh(W_s c + b_s).

    h: the forward state at the end of the source. w: W_s (b_s), decoder (Bahdanau GRU with C_*), readout.
    readout_state: "after" reads s_i (main text), "before" reads s_{i-1} (appendix).
    """
    s = np.tanh(w.W_s @ h + w.b_s)
    logits, states = [], []
    for y in Y:
        before, s = s, cell(y, s, w.decoder, h)
        states.append(s)
        logits.append(bahdanau_readout(s if readout_state == "after" else before, y, h, w.readout))
    return np.array(logits), states


# ---------------------------------------------------------------------------------------------------------------------
# See 2017
# ---------------------------------------------------------------------------------------------------------------------


def shortlist_or_location(source, P_short, a, z, words, unknown=3):
    """Gulcehre 2016: with z, a word of the shortlist, the unknown one being any of the other words; with 1 - z, the
    source word at a place. words: size of the vocabulary."""
    K = len(P_short)
    rare = [w for w in range(words) if w >= K or w == unknown]
    P = np.array([z * (P_short[unknown] / len(rare) if w in rare else P_short[w]) for w in range(words)])
    for i, x in enumerate(source):
        P[x] += (1.0 - z) * a[i]
    return P


def pointer(source, read, w, n, shortlist=0):
    """The pointer-generator with coverage, eq. 1-4, 8-11, and what the released code adds: s_t = [c_t ; h_t] in the
    attention and p_gen, x_t = W_x [E y_{t-1} ; h*_{t-1}] + b_x, h_0 = ReLU(W_h0 [->h ; <-h] + b_h0), c_0 likewise.

    source, read: ids. w: E (m x K), forwards, backwards, decoder (LSTMs), W_h0 b_h0 W_c0 b_c0, W_x b_x, align (W_h W_s
    w_c v b_attn), V b_V, V_prime b_V_prime, w_gen b_gen on [x_t ; s_t ; h*_t]. Returns P(w) [T, K], a [T, S] and
    p_gen [T].

    With `shortlist` = K words (Gulcehre 2016) V_prime has K rows, and in place of w_gen there is the switch, W_f b_f
    U_f b_U w_z b_z.
    """
    X = [w.E[:, x] for x in source]
    ahead, back = stacked_lstm_encoder(X, [w.forwards], n), stacked_lstm_encoder(X[::-1], [w.backwards], n)
    H = [concat(f, b) for f, b in zip(ahead[0], back[0][::-1], strict=True)]
    hidden = np.maximum(0.0, w.W_h0 @ concat(ahead[1][0], back[1][0]) + w.b_h0)
    cell = np.maximum(0.0, w.W_c0 @ concat(ahead[2][0], back[2][0]) + w.b_c0)
    context, c = np.zeros(2 * n), np.zeros(len(H))
    written, weights, shares = [], [], []
    for y in read:
        x = w.W_x @ concat(w.E[:, y], context) + w.b_x
        hidden, cell = lstm(x, hidden, cell, w.decoder)
        s, p = concat(cell, hidden), w.align
        e = [dot(p.v, np.tanh(p.W_h @ h + p.W_s @ s + p.w_c * c[i] + p.b_attn)) for i, h in enumerate(H)]
        a = softmax(np.array(e))
        c = c + a
        context = context_of(a, H)
        P = np.exp(log_softmax(w.V_prime @ (w.V @ concat(hidden, context) + w.b_V) + w.b_V_prime))
        if shortlist:
            f = np.tanh(w.W_f @ concat(s, context) + w.b_f)
            p_gen = float(sigmoid(dot(w.w_z, f + np.tanh(w.U_f @ f + w.b_U)) + w.b_z))
            P = shortlist_or_location(source, P, a, p_gen, w.E.shape[1])
        else:
            p_gen = float(sigmoid(dot(w.w_gen, concat(x, s, context)) + w.b_gen))
            P = p_gen * P
            for i, word in enumerate(source):
                P[word] += (1.0 - p_gen) * a[i]
        written.append(P)
        weights.append(a)
        shares.append(p_gen)
    return np.array(written), np.array(weights), np.array(shares)


# ---------------------------------------------------------------------------------------------------------------------
# Bahdanau 2015
# ---------------------------------------------------------------------------------------------------------------------


def align(s, h, w, normalise=softmax):
    """e_j = v_a^T tanh(W_a s + U_a h_j); alpha = softmax(e); c = sum_j alpha_j h_j. Returns alpha, c, e."""
    e = np.array([additive(s, h_j, w.W_a, w.U_a, w.v_a, w.b_a) for h_j in h])
    alpha = normalise(e)
    return alpha, context_of(alpha, h), e


def bahdanau_readout(s, y, c, w):
    """t~ = U_o s + V_o E y_{i-1} + C_o c in R^{2l}; t = maxout(t~); logits W_o t. w: U_o V_o C_o W_o (b_o b_out)

    GroundHog factorises the softmax: with W_o1 in R^{m x l}, the logits are W_o (W_o1 t).
    """
    t = maxout(w.U_o @ s + w.V_o @ y + w.C_o @ c + w.b_o)
    return w.W_o @ (w.W_o1 @ t if "W_o1" in w else t) + w.b_out


def bahdanau_start(back, w):
    """s_0 = tanh(W_s <-h_1): the backward state at the first source word"""
    return np.tanh(w.W_s @ back[0] + w.b_s)


def bahdanau_a(h, s, Y, w, readout_state="after", cell=bahdanau_gru):
    """Main text: c_i = att(s_{i-1}); s_i = f(s_{i-1}, y_{i-1}, c_i); the readout sees s_i, y_{i-1}, c_i.

    h: annotations; s: s_0; Y: embeddings of y_0 y_1 ... . w: align, decoder, readout.
    Returns a dictionary of alpha, contexts, states (after each step), logits.
    """
    trace = []
    for y in Y:
        alpha, c, _ = align(s, h, w.align)
        before, s = s, cell(y, s, w.decoder, c)
        read = s if readout_state == "after" else before
        trace.append((alpha, c, s, bahdanau_readout(read, y, c, w.readout)))
    return collect(trace)


def bahdanau_b(h, s, Y, w, cell=bahdanau_gru):
    """Appendix A.2.2, literally: as the main text, but the readout sees s_{i-1}."""
    return bahdanau_a(h, s, Y, w, readout_state="before", cell=cell)


def monotonic_weights(e, previous):
    """Raffel 2017: p_j = sigmoid(e_j); q_j = (1 - p_{j-1}) q_{j-1} + previous_j; alpha_j = p_j q_j, one j at a time."""
    alpha, q, passed = np.zeros(len(e)), 0.0, 0.0
    for j in range(len(e)):
        q = passed * q + previous[j]
        alpha[j] = sigmoid(e[j]) * q
        passed = 1.0 - sigmoid(e[j])
    return alpha


def monotonic_stop(e, previous):
    """At test: the first j from where the step before stopped with sigmoid(e_j) > 0.5; zeros where there is none."""
    alpha = np.zeros(len(e))
    if previous.sum() == 0:
        return alpha
    for j in range(int(np.argmax(previous)), len(e)):
        if sigmoid(e[j]) > 0.5:
            alpha[j] = 1.0
            break
    return alpha


def monotonic(h, s, Y, w, weights):
    """e_ij = g v^T tanh(W_a s_{i-1} + U_a h_j + b_a) / |v| + r, weights from those of the step before.

    w.align: W_a U_a v_a b_a g r. The rest is `bahdanau_a`.
    """
    alpha = np.array([1.0] + [0.0] * (len(h) - 1))
    trace = []
    for y in Y:
        a = w.align
        e = [a.g * additive(s, h_j, a.W_a, a.U_a, a.v_a, a.b_a) / math.sqrt(dot(a.v_a, a.v_a)) + a.r for h_j in h]
        alpha = weights(e, alpha)
        c = context_of(alpha, h)
        s = bahdanau_gru(y, s, w.decoder, c)
        trace.append((alpha, c, s, bahdanau_readout(s, y, c, w.readout)))
    return collect(trace)


def coverage(h, s, Y, w, kind):
    """Tu 2016: e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j + V_a C_{i-1,j}), the rest as Bahdanau's main text.

    kind "linguistic": C_ij = C_{i-1,j} + alpha_ij / Phi_j with Phi_j = N sigmoid(U_f h_j), w: U_f (1 x 2n), N; without
    U_f, Phi_j = 1. kind "neural": C_ij = GRU(C_{i-1,j}; [alpha_ij ; h_j ; s_{i-1}]), w.gru. w.align has V_a, too.
    """
    C = [np.zeros(w.align.V_a.shape[1]) for _ in h]
    trace = []
    for y in Y:
        a = w.align
        e = [dot(a.v_a, np.tanh(a.W_a @ s + a.U_a @ h[j] + a.V_a @ C[j])) for j in range(len(h))]
        alpha = softmax(np.array(e))
        c = context_of(alpha, h)
        for j in range(len(h)):
            if kind == "linguistic":
                fertility = w.N * sigmoid(w.U_f @ h[j]) if "U_f" in w else 1.0
                C[j] = C[j] + alpha[j] / fertility
            else:
                C[j] = bahdanau_gru(concat([alpha[j]], h[j], s), C[j], w.gru)
        s = bahdanau_gru(y, s, w.decoder, c)
        trace.append((alpha, c, s, bahdanau_readout(s, y, c, w.readout)))
    return collect(trace)


def coverage_loss(alpha):
    """See 2017, eq. 10-12: c^t = sum_{t' < t} a^{t'}, covloss_t = sum_i min(a_i^t, c_i^t); alpha [T, S]."""
    total = 0.0
    for t in range(len(alpha)):
        for i in range(len(alpha[t])):
            total += min(alpha[t][i], sum(alpha[k][i] for k in range(t)))
    return total


def bahdanau_c(h, d, Y, Y_now, w, cell=bahdanau_gru):
    """Released code: c_i = att(d_{i-1}); the readout sees d_{i-1}, y_{i-1}, c_i; then d_i = f(d_{i-1}, y_i, c_i).

    Y: embeddings of y_0 y_1 ... y_{T-1}; Y_now: of y_1 ... y_T. So the query has already consumed y_{i-1}.
    """
    trace = []
    for y_before, y_now in zip(Y, Y_now, strict=True):
        alpha, c, _ = align(d, h, w.align)
        logits = bahdanau_readout(d, y_before, c, w.readout)
        d = cell(y_now, d, w.decoder, c)
        trace.append((alpha, c, d, logits))
    return collect(trace)


def bahdanau_d_start(h, w):
    """dl4mt: s_0 = tanh(W_s mean_j h_j)"""
    return np.tanh(w.W_s @ (sum(h) / len(h)) + w.b_s)


def bahdanau_d_readout(s, y, c, w):
    """dl4mt: logits W_o tanh(U_o s + V_o E y_{i-1} + C_o c); W_o (W_o1 .) where the softmax is factorised"""
    t = np.tanh(w.U_o @ s + w.V_o @ y + w.C_o @ c + w.b_o)
    return w.W_o @ (w.W_o1 @ t if "W_o1" in w else t) + w.b_out


def bahdanau_d(h, s, Y, w, readout=bahdanau_d_readout):
    """Conditional GRU: s'_i = GRU1(s_{i-1}, y_{i-1}); c_i = att(s'_i); s_i = GRU2(s'_i, c_i); the readout sees s_i.

    w: gru1, gru2 (reset after the product), align, readout.
    """
    trace = []
    for y in Y:
        s_prime = gru_reset_after(y, s, w.gru1)
        alpha, c, _ = align(s_prime, h, w.align)
        s = gru_reset_after(c, s_prime, w.gru2)
        trace.append((alpha, c, s, readout(s, y, c, w.readout)))
    return collect(trace)


def collect(trace):
    """Steps of (alpha, context, state, logits) into one dictionary of arrays."""
    alpha, contexts, states, logits = zip(*trace, strict=True)
    return Weights(alpha=np.array(alpha), contexts=np.array(contexts), states=np.array(states), logits=np.array(logits))


# ---------------------------------------------------------------------------------------------------------------------
# Luong 2015
# ---------------------------------------------------------------------------------------------------------------------


def luong_scores(h_t, hbar, w, score):
    """score(h_t, hbar_s) for every s: dot, general, concat, concat_code or location."""
    if score == "location":
        return location(h_t, w.W_a, len(hbar))
    if score == "dot":
        return np.array([dot(h_t, k) for k in hbar])
    if score == "general":
        return np.array([general(h_t, k, w.W_a) for k in hbar])
    if score == "concat":
        return np.array([luong_concat(h_t, k, w.W_a, w.v_a) for k in hbar])
    if score == "concat_code":
        return np.array([luong_concat_code(h_t, k, w.W_a, w.v_a) for k in hbar])
    raise ValueError(score)


def luong_weights(h_t, hbar, t, w, score, where, D, released=False):
    """a_t: global (softmax), local-m (window around t) or local-p (Gaussian window around a predicted centre).

    released: as the authors' code does it, local-m stays at the last word and local-p's window is around floor(p_t).
    """
    e = luong_scores(h_t, hbar, w, score)
    if where == "global":
        return softmax(e)
    if where == "local-m":
        return local_m(e, t, D, clamp=released)
    if where == "local-p":
        centre = local_p_centre_code if released else local_p_centre
        return local_p(e, centre(h_t, w.W_p, w.v_p, len(hbar)), D, floor_window=released)
    raise ValueError(where)


def luong_step(y, htilde, hs, cs, hbar, t, w, score="general", where="global", D=10, feed=True, released=False):
    """One word: the stack reads [E y_{t-1} ; htilde_{t-1}], looks with h_t, htilde_t = tanh(W_c [c_t ; h_t]).

    w: decoder (list of LSTM weights), W_c (n x 2n), W_s (K_y x n), and what score and where need (W_a v_a W_p v_p)
    (b_c b_out). Returns a_t, c_t, htilde_t, logits, and the new hs, cs.
    """
    hs, cs = stacked_lstm_step(concat(y, htilde) if feed else y, hs, cs, w.decoder)
    h_t = hs[-1]
    a_t = luong_weights(h_t, hbar, t, w, score, where, D, released)
    c_t = context_of(a_t, hbar)
    htilde = np.tanh(w.W_c @ concat(c_t, h_t) + w.b_c)
    return a_t, c_t, htilde, w.W_s @ htilde + w.b_out, hs, cs


def luong(words, Y, w, n, score="general", where="global", D=10, feed=True, reverse=True, released=False):
    """The whole teacher-forced model. words: ids; Y: embeddings of y_0 y_1 ...; w: E_x, encoder, and luong_step's.

    The source is given without its END, which is neither read nor looked at (released code). With reverse the words are
    read right to left, but hbar_s stays the state at source word s: the window and the Gaussian live in the order of
    the source as written.
    """
    S = len(words)
    order = list(range(S))[::-1] if reverse else list(range(S))
    tops, hs, cs = stacked_lstm_encoder([w.E_x[:, words[s]] for s in order], w.encoder, n)
    hbar = [None] * S
    for top, s in zip(tops, order, strict=True):
        hbar[s] = top
    htilde = np.zeros(n)
    trace = []
    for t, y in enumerate(Y):
        a_t, c_t, htilde, logits, hs, cs = luong_step(y, htilde, hs, cs, hbar, t, w, score, where, D, feed, released)
        trace.append((a_t, c_t, htilde, logits))
    return collect(trace)


# ---------------------------------------------------------------------------------------------------------------------
# Britz 2017
# ---------------------------------------------------------------------------------------------------------------------


def britz_stack_step(x, states, w, residual="none"):
    """One step of a stack: x^0 = x (W_in x + b_in where w has W_in), f_l(x^l) the output of cell l, and

    none: x^{l+1} = f_l(x^l);  residual: x^{l+1} = f_l(x^l) + x^l;  dense: x^{l+1} = f_l(x^l) + x^0 + ... + x^l.
    states: h of each GRU, (h, c) of each LSTM. w: layers (GRU weights W_r ... or LSTM weights W b) (W_in b_in).
    Returns x^L and the new states.
    """
    inputs = [w.W_in @ x + w.b_in if "W_in" in w else x]
    after = []
    for state, layer in zip(states, w.layers, strict=True):
        if "W_r" in layer:
            output = cho_gru(inputs[-1], state, layer)
            after.append(output)
        else:
            output, c = lstm(inputs[-1], *state, layer)
            after.append((output, c))
        if residual == "residual":
            output = output + inputs[-1]
        if residual == "dense":
            for below in inputs:
                output = output + below
        inputs.append(output)
    return inputs[-1], after


def britz_zero(w, n):
    """Zero states of a stack."""
    return [np.zeros(n) if "W_r" in layer else (np.zeros(n), np.zeros(n)) for layer in w.layers]


def britz_read(X, w, n, residual="none"):
    """Top outputs of a stack over X, in the order of X."""
    states, tops = britz_zero(w, n), []
    for x in X:
        top, states = britz_stack_step(x, states, w, residual)
        tops.append(top)
    return tops


def britz(source, Y, w, n, score="multiplicative", reads="none", writes="none"):
    """The whole teacher-forced model. source: ids with END; Y: embeddings of y_0 y_1 ...

    w: E_x, forwards and/or backwards, decoder (stacks), W_1 b_1, W_2 b_2 (v for the additive score), W b, W_o b_o.
    The query is the top output after y_{t-1}; the raw context enters the next input; the decoder begins with zeros.
    reads, writes: the residual connections of encoder and decoder.
    """
    X = [w.E_x[:, x] for x in source]
    tops = []
    if "forwards" in w:
        tops.append(britz_read(X, w.forwards, n, reads))
    if "backwards" in w:
        tops.append(britz_read(X[::-1], w.backwards, n, reads)[::-1])
    h = [concat(*both) for both in zip(*tops, strict=True)]
    states, c = britz_zero(w.decoder, n), np.zeros(len(h[0]))
    trace = []
    for y in Y:
        s, states = britz_stack_step(concat(y, c), states, w.decoder, writes)
        e = []
        for h_j in h:
            key, query = w.W_1 @ h_j + w.b_1, w.W_2 @ s + w.b_2
            e.append(dot(key, query) if score == "multiplicative" else dot(w.v, np.tanh(key + query)))
        alpha = softmax(e)
        c = context_of(alpha, h)
        trace.append((alpha, c, s, w.W_o @ np.tanh(w.W @ concat(s, c) + w.b) + w.b_o))
    return collect(trace)


# ---------------------------------------------------------------------------------------------------------------------
# Vaswani 2017 (rows are positions, x W as in the paper)
# ---------------------------------------------------------------------------------------------------------------------


def causal(T):
    """Position i sees positions <= i."""
    return [[j <= i for j in range(T)] for i in range(T)]


def attention(Q, K, V, mask=None):
    """softmax(Q K^T / sqrt(d_k)) V, row by row. Returns the rows and the weights."""
    alpha = np.zeros((len(Q), len(K)))
    for i in range(len(Q)):
        e = np.array([scaled_dot(Q[i], K[j]) for j in range(len(K))])
        alpha[i] = softmax(e, None if mask is None else mask[i])
    return np.array([context_of(alpha[i], V) for i in range(len(Q))]), alpha


def multi_head(X_q, X_m, w, mask=None, rotate=False):
    """[head_1 ; ... ; head_h] W^O, head_i = Attention(X_q W_i^Q, X_m W_i^K, X_m W_i^V).

    w: W_Q, W_K (h of d x d_k), W_V (h of d x d_v), W_O (h d_v x d) (b_Q b_K b_V b_O). With fewer W_K and W_V than W_Q
    (grouped queries), neighbouring heads share one. a_K, a_V: relative positions; alibi: linear biases.
    rotate: rotary positions on the queries and keys of every head. Returns the rows and the weights [h, T, S].
    """
    heads, weights = [], []
    for i in range(len(w.W_Q)):
        group = i * len(w.W_K) // len(w.W_Q)
        Q, K, V = X_q @ w.W_Q[i], X_m @ w.W_K[group], X_m @ w.W_V[group]
        if "b_Q" in w:
            Q, K, V = Q + w.b_Q[i], K + w.b_K[i], V + w.b_V[i]
        if rotate:
            Q = np.array([rotary(q, pos) for pos, q in enumerate(Q)])
            K = np.array([rotary(k, pos) for pos, k in enumerate(K)])
        if "a_K" in w:
            head, alpha = relative_attention(Q, K, V, w.a_K, w.a_V, mask)
        elif "alibi" in w:
            head, alpha = alibi_attention(Q, K, V, i + 1, len(w.W_Q), mask)
        else:
            head, alpha = attention(Q, K, V, mask)
        heads.append(head)
        weights.append(alpha)
    return np.concatenate(heads, axis=1) @ w.W_O + w.b_O, np.array(weights)


def relative_attention(Q, K, V, a_K, a_V, mask=None):
    """Shaw 2018, eq. 1-4: e_ij = q_i (k_j + a^K_ij)^T / sqrt(d), z_i = sum_j alpha_ij (v_j + a^V_ij).

    a^K_ij is row clip(j - i, -k, k) + k of a_K, a table of 2k + 1 rows.
    """
    k = len(a_K) // 2
    rows, weights = [], []
    for i in range(len(Q)):
        place = [max(-k, min(k, j - i)) + k for j in range(len(K))]
        e = np.array([dot(Q[i], K[j] + a_K[place[j]]) / math.sqrt(len(K[j])) for j in range(len(K))])
        alpha = softmax(e, None if mask is None else mask[i])
        rows.append(sum(alpha[j] * (V[j] + a_V[place[j]]) for j in range(len(K))))
        weights.append(alpha)
    return np.array(rows), np.array(weights)


def alibi_attention(Q, K, V, h, H, mask=None):
    """Press 2022: q_i k_j / sqrt(d) - m |j - i| with the slope m = 2^(-8 h / H) of head h, counted from 1."""
    rows, weights = [], []
    for i in range(len(Q)):
        e = np.array([scaled_dot(Q[i], K[j]) - 2.0 ** (-8.0 * h / H) * abs(j - i) for j in range(len(K))])
        alpha = softmax(e, None if mask is None else mask[i])
        rows.append(context_of(alpha, V))
        weights.append(alpha)
    return np.array(rows), np.array(weights)


def feed_forward(X, w):
    """FFN(x) = max(0, x W1 + b1) W2 + b2; Shazeer 2020, eq. 6: (swish(x W) * x V) W2, swish(x) = x sigmoid(x)"""
    if "V" in w:
        inner = X @ w.W
        return (inner * sigmoid(inner) * (X @ w.V)) @ w.W2
    return np.maximum(0.0, X @ w.W1 + w.b1) @ w.W2 + w.b2


def layer_norm(X, w, eps=1e-5):
    """g (x - mean) / sqrt(variance + eps) + b for every row, with the biased variance. w: g (b)

    w: g_rms is an RMSNorm, g x / sqrt(mean(x^2) + 1e-6) (Zhang and Sennrich 2019, eq. 4).
    """
    if "g_rms" in w:
        return np.array([w.g_rms * x / math.sqrt(sum(a * a for a in x) / len(x) + 1e-6) for x in X])
    rows = []
    for x in X:
        mean = sum(x) / len(x)
        variance = sum((a - mean) ** 2 for a in x) / len(x)
        rows.append(w.g * (x - mean) / math.sqrt(variance + eps) + w.b)
    return np.array(rows)


def sublayer(X, f, norm, pre_norm, eps=1e-5):
    """Post-norm, as published: LN(x + f(x)). Pre-norm: x + f(LN(x))."""
    if pre_norm:
        return X + f(layer_norm(X, norm, eps))
    return layer_norm(X + f(X), norm, eps)


def encoder_layer(X, w, pre_norm=False, rotate=False, mask=None, eps=1e-5):
    """Self-attention, then FFN. w: self, norm1, ffn, norm2. Returns the rows and the weights [h, S, S]."""
    seen = []

    def look(A):
        rows, alpha = multi_head(A, A, w.self, mask, rotate)
        seen.append(alpha)
        return rows

    X = sublayer(X, look, w.norm1, pre_norm, eps)
    X = sublayer(X, lambda A: feed_forward(A, w.ffn), w.norm2, pre_norm, eps)
    return X, seen[0]


def decoder_layer(Y, M, w, pre_norm=False, rotate=False, eps=1e-5):
    """Causal self-attention, attention to M, FFN. w: self, norm1, cross, norm2, ffn, norm3.

    Rotary positions turn the self-attention only: source and target have no common ruler.
    Returns the rows, the self weights [h, T, T] and the cross weights [h, T, S].
    """
    seen = []

    def look_back(A):
        rows, alpha = multi_head(A, A, w.self, causal(len(A)), rotate)
        seen.append(alpha)
        return rows

    def look_across(A):
        rows, alpha = multi_head(A, M, w.cross)
        seen.append(alpha)
        return rows

    Y = sublayer(Y, look_back, w.norm1, pre_norm, eps)
    Y = sublayer(Y, look_across, w.norm2, pre_norm, eps)
    Y = sublayer(Y, lambda A: feed_forward(A, w.ffn), w.norm3, pre_norm, eps)
    return Y, seen[0], seen[1]


def embed(ids, E, positions):
    """sqrt(d) E[token] + PE; E in R^{K x d}. positions: "sinusoid", a learned table, or None."""
    d = E.shape[1]
    rows = [math.sqrt(d) * E[token] for token in ids]
    if isinstance(positions, str):
        rows = [row + sinusoid(pos, d) for pos, row in enumerate(rows)]
    elif positions is not None:
        rows = [row + positions[pos] for pos, row in enumerate(rows)]
    return np.array(rows)


def transformer(source, read, w, pre_norm=False, rotate=False, eps=1e-5):
    """The whole teacher-forced model. source: ids; read: the target shifted right.

    w: E_x, E_y (K x d), P_x, P_y ("sinusoid", a table or None), encoder, decoder (lists of layers), W_out (K_y x d;
    E_y itself where tied) (b_out); encoder_norm and decoder_norm end the stacks of the pre-norm form.
    Returns logits, memory, and the weights of every layer: encoder, self, cross.
    """
    X = embed(source, w.E_x, w.P_x)
    weights = {"encoder": [], "self": [], "cross": []}
    for layer in w.encoder:
        X, alpha = encoder_layer(X, layer, pre_norm, rotate, eps=eps)
        weights["encoder"].append(alpha)
    if pre_norm:
        X = layer_norm(X, w.encoder_norm, eps)
    Y = embed(read, w.E_y, w.P_y)
    for layer in w.decoder:
        Y, own, cross = decoder_layer(Y, X, layer, pre_norm, rotate, eps=eps)
        weights["self"].append(own)
        weights["cross"].append(cross)
    if pre_norm:
        Y = layer_norm(Y, w.decoder_norm, eps)
    return Y @ w.W_out.T + w.b_out, X, weights


# --- attributions through the layers of a Transformer


def head_parts(M, w, alpha):
    """What row j of M adds to row i of `multi_head`: sum_h alpha^h_ij (m_j W_V^h (+ a^V_ij)) W_O^h. [i][j] -> vector

    Kobayashi 2020, eq. 3-4; the attention norm of (i, j) is its length.
    """
    H, T, S = alpha.shape
    parts = np.zeros((T, S, w.W_O.shape[1]))
    for h in range(H):
        V = M @ w.W_V[h * len(w.W_V) // H]
        rows = len(w.W_O) // H
        W_O = w.W_O[h * rows : (h + 1) * rows]
        for i in range(T):
            for j in range(S):
                v = V[j]
                if "a_V" in w:
                    k = len(w.a_V) // 2
                    v = v + w.a_V[max(-k, min(k, j - i)) + k]
                parts[i, j] += alpha[h, i, j] * v @ W_O
    return parts


def attributed(source, read, w, one, pre_norm=False):
    """Multiply what `one` finds in each layer. Returns what each row takes of the source [T, S] and of its prefix."""
    X, E = embed(source, w.E_x, w.P_x), np.eye(len(source))
    for layer in w.encoder:
        E = one(X, None, layer, pre_norm)[0] @ E
        X = encoder_layer(X, layer, pre_norm)[0]
    if pre_norm:
        X = layer_norm(X, w.encoder_norm)
    Y, prefix, found = embed(read, w.E_y, w.P_y), np.eye(len(read)), np.zeros((len(read), len(source)))
    for layer in w.decoder:
        own, cross = one(Y, X, layer, pre_norm)
        prefix, found = own @ prefix, own @ found + cross @ E
        Y = decoder_layer(Y, X, layer, pre_norm)[0]
    return found, prefix


def look_inside(X, M, w, pre_norm):
    """Self-attention of a layer and what each position adds to it; then, with a source M, the same of cross-attention.
    (X, added, parts, alpha) of each block."""
    A = layer_norm(X, w.norm1) if pre_norm else X
    added, alpha = multi_head(A, A, w.self, None if M is None else causal(len(A)))
    blocks = [(X, added, head_parts(A, w.self, alpha), alpha)]
    if M is not None:
        X = X + added if pre_norm else layer_norm(X + added, w.norm1)
        A = layer_norm(X, w.norm2) if pre_norm else X
        added, alpha = multi_head(A, M, w.cross)
        blocks.append((X, added, head_parts(M, w.cross, alpha), alpha))
    return blocks


def rollout_layer(X, M, w, pre_norm):
    """Abnar and Zuidema 2020, eq. 1: A = 0.5 W_att + 0.5 I, heads averaged; cross-attention takes one half."""
    blocks = look_inside(X, M, w, pre_norm)
    own = 0.5 * np.mean(blocks[0][3], axis=0) + 0.5 * np.eye(len(X))
    return (own, None) if M is None else (0.5 * own, 0.5 * np.mean(blocks[1][3], axis=0))


def alti_layer(X, M, w, pre_norm):
    """Ferrando 2022: c_ij = max(0, |y_i| - |y_i - T_i(x_j)|) in the l1 norm, divided by its sum over j."""
    shares = []
    for block, (residual, added, parts, _) in enumerate(look_inside(X, M, w, pre_norm)):
        norm = (w.norm1, w.norm2)[block]
        before = residual + added
        y = before if pre_norm else layer_norm(before, norm)
        rows = []
        for i in range(len(y)):
            vectors = [*parts[i], residual[i]]
            if not pre_norm:
                u = before[i]
                if "g_rms" in norm:
                    scale = norm.g_rms / math.sqrt(sum(a * a for a in u) / len(u) + 1e-6)
                    vectors = [scale * v for v in vectors]
                else:
                    scale = norm.g / math.sqrt(sum((a - u.mean()) ** 2 for a in u) / len(u) + 1e-5)
                    vectors = [scale * (v - v.mean()) for v in vectors]
            if block == 0:  # the residual of self-attention is position i itself
                vectors[i] = vectors[i] + vectors[-1]
                vectors = vectors[:-1]
            c = [max(0.0, np.abs(y[i]).sum() - np.abs(y[i] - v).sum()) for v in vectors]
            if not any(c):  # the paper leaves it open: no vector but the bias points to y_i
                c[i if block == 0 else -1] = 1.0  # here, the residual
            rows.append([a / sum(c) for a in c])
        shares.append(np.array(rows))
    if M is None:
        return shares[0], None
    return shares[1][:, -1:] * shares[0], shares[1][:, :-1]


def value_zeroing_layer(X, M, w, pre_norm):
    """Mohebbi 2023, eq. 5-6: the cosine distance of a layer's outputs with and without the value of j, normalised."""

    def rest(added, without=None):
        """The output of the layer, whose self-attention gives `added`; `without` the value of one source word."""
        Z = X + added if pre_norm else layer_norm(X + added, w.norm1)
        if M is not None:
            _, across, parts, _ = look_across(Z)
            across = across if without is None else across - parts[:, without]
            Z = Z + across if pre_norm else layer_norm(Z + across, w.norm2)
        return sublayer(Z, lambda A: feed_forward(A, w.ffn), w.norm2 if M is None else w.norm3, pre_norm)

    def look_across(Z):
        A = layer_norm(Z, w.norm2) if pre_norm else Z
        added, alpha = multi_head(A, M, w.cross)
        return Z, added, head_parts(M, w.cross, alpha), alpha

    def distance(a, b):
        return 1 - dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))

    _, added, parts, _ = look_inside(X, M, w, pre_norm)[0]
    whole = rest(added)
    outputs = [rest(added - parts[:, j]) for j in range(len(X))]
    outputs += [] if M is None else [rest(added, s) for s in range(len(M))]
    rows = [[distance(one[i], whole[i]) for one in outputs] for i in range(len(X))]
    rows = np.array([[a / sum(row) for a in row] for row in rows])
    return (rows, None) if M is None else (rows[:, : len(X)], rows[:, len(X) :])


def noam(step, d, warmup=4000):
    """lrate = d^-0.5 min(step^-0.5, step warmup^-1.5); steps count from 1"""
    return d**-0.5 * min(step**-0.5, step * warmup**-1.5)


# ---------------------------------------------------------------------------------------------------------------------
# Losses and penalties
# ---------------------------------------------------------------------------------------------------------------------


def log_softmax(z):
    """z_k - log sum exp z"""
    top = max(z)
    return z - (top + math.log(sum(math.exp(a - top) for a in z)))


def smoothed_target(gold, K, eps, convention, pad=None):
    """q over K words. "all": (1 - eps) on gold and eps/K on every word (PyTorch); "others": 1 - eps on gold, eps/(K-1)
    on each other (T2T, fairseq); "no_pad": 1 - eps on gold, 0 on pad, eps/(K-2) on the rest (annotated Transformer)."""
    q = np.zeros(K)
    for k in range(K):
        if convention == "all":
            q[k] = eps / K + (1.0 - eps if k == gold else 0.0)
        elif convention == "others":
            q[k] = 1.0 - eps if k == gold else eps / (K - 1)
        elif convention == "no_pad":
            q[k] = 1.0 - eps if k == gold else (0.0 if k == pad else eps / (K - 2))
        else:
            raise ValueError(convention)
    return q


def smoothed_loss(logits, gold, eps, convention="all", pad=None, subtract_entropy=False):
    """-sum_k q_k log p_k of one token; T2T also subtracts the entropy of q, so that the best loss is 0."""
    q = smoothed_target(gold, len(logits), eps, convention, pad)
    loss = -sum(a * b for a, b in zip(q, log_softmax(logits), strict=True))
    return loss - (-sum(a * math.log(a) for a in q if a > 0) if subtract_entropy else 0.0)


def length_penalty(length, alpha):
    """GNMT: lp(Y) = ((5 + |Y|) / 6)^alpha"""
    return ((5.0 + length) / 6.0) ** alpha


def coverage_penalty(p, beta):
    """GNMT: cp = beta sum_i log(min(sum_j p_ij, 1)); p [T, S], the sum over i runs over real source positions."""
    total = 0.0
    for i in range(p.shape[1]):
        total += math.log(min(sum(p[j, i] for j in range(p.shape[0])), 1.0))
    return beta * total


def gnmt_score(log_p, p, alpha, beta):
    """s(Y, X) = log P / lp(Y) + cp(X; Y)"""
    return log_p / length_penalty(p.shape[0], alpha) + coverage_penalty(p, beta)


def alignment_error_rate(sentences):
    """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), counts summed over the corpus. sentences: sets (A, S, P)"""
    sure = possible = found = wanted = 0
    for A, S, P in sentences:
        sure += len(A & S)
        possible += len(A & (P | S))
        found += len(A)
        wanted += len(S)
    return 1.0 - (sure + possible) / (found + wanted)


def guided_alignment_loss(alpha, links):
    """Chen 2016: -(1/T) sum_i sum_j A_ij log alpha_ij; A [T, S] row-normalised, rows without a link are skipped."""
    T, S = alpha.shape
    total = 0.0
    for i in range(T):
        n = sum(links[i])
        for j in range(S):
            if links[i][j]:
                total += links[i][j] / n * math.log(alpha[i, j])
    return -total / T


def r_drop(p, q, gold, alpha):
    """Liang 2021, eq. 4, of one word: -log p(y) - log q(y) + alpha / 2 (KL(p || q) + KL(q || p)); p, q [V]."""
    total = -math.log(p[gold]) - math.log(q[gold])
    for k in range(len(p)):
        total += alpha / 2 * (p[k] * math.log(p[k] / q[k]) + q[k] * math.log(q[k] / p[k]))
    return total


def doubly_stochastic_penalty(alpha, strength=1.0):
    """Xu 2015: lambda sum_i (1 - sum_t alpha_ti)^2: the sum over time of every location should be one."""
    T, L = alpha.shape
    return strength * sum((1.0 - sum(alpha[t, i] for t in range(T))) ** 2 for i in range(L))


# ---------------------------------------------------------------------------------------------------------------------
# Attention without a source: HAN, LSTMN, attentive language model
# ---------------------------------------------------------------------------------------------------------------------


def han_pool(h, w):
    """Yang 2016: u_t = tanh(W h_t + b); alpha = softmax(u_t^T u); s = sum_t alpha_t h_t. w: W b u. Returns s, alpha"""
    alpha = softmax(np.array([dot(np.tanh(w.W @ h_t + w.b), w.u) for h_t in h]))
    return context_of(alpha, h), alpha


def han_gru(x, h, w):
    """Yang 2016: reset after the product, z writes. w: W_r U_r b_r, W_z U_z b_z, W U b"""
    r = sigmoid(w.W_r @ x + w.U_r @ h + w.b_r)
    z = sigmoid(w.W_z @ x + w.U_z @ h + w.b_z)
    return (1.0 - z) * h + z * np.tanh(w.W @ x + r * (w.U @ h) + w.b)


def lstmn_step(x, H, C, htilde, w):
    """Cheng 2016: look at the tapes H, C of the past (a zero slot at the start), then the LSTM on what was seen.

    a_i = v^T tanh(W_h h_i + W_x x_t + W_ht htilde_{t-1}); w: v W_h W_x W_ht, W in R^{4n x (n + m)} on [htilde ; x] (b).
    Returns h_t, c_t, htilde_t, s^t. The caller appends h_t and c_t to the tapes.
    """
    a = np.array([dot(w.v, np.tanh(w.W_h @ h_i + w.W_x @ x + w.W_ht @ htilde)) for h_i in H])
    s = softmax(a)
    htilde, ctilde = context_of(s, H), context_of(s, C)
    n = len(htilde)
    g = w.W @ concat(htilde, x) + w.b
    i, f, o, chat = sigmoid(g[:n]), sigmoid(g[n : 2 * n]), sigmoid(g[2 * n : 3 * n]), np.tanh(g[3 * n :])
    c = f * ctilde + i * chat
    return o * np.tanh(c), c, htilde, s


def attentive_lm_step(h_t, past, w):
    """Salton 2017: e_i = v^T tanh(W1 h_i + W2 h_t), c = sum alpha_i h_i, logits W tanh(W3 [h_t ; c]) over i < t.

    With no past the context is zero. w: v W1 W2 W3 W (b3 b). Returns logits, alpha, c.
    """
    alpha = softmax(np.array([additive(h_t, h_i, w.W2, w.W1, w.v) for h_i in past]))
    c = context_of(alpha, past) if past else np.zeros(len(h_t))
    return w.W @ np.tanh(w.W3 @ concat(h_t, c) + w.b3) + w.b, alpha, c


def grow_diag_final(forward: set, backward: set, n: int, m: int, final: str = "") -> set:
    """Koehn et al. 2005: grow-diag over a matrix of n target and m source words, then `final` "or", "and", or none."""
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    aligned = [[(f, e) in forward and (f, e) in backward for f in range(m)] for e in range(n)]

    def free(e: int, f: int) -> tuple[bool, bool]:
        return not any(aligned[e]), not any(row[f] for row in aligned)

    added = True
    while added:
        added = False
        for e in range(n):
            for f in range(m):
                if not aligned[e][f]:
                    continue
                for down, right in neighbours:
                    near, beside = e + down, f + right
                    inside = 0 <= near < n and 0 <= beside < m
                    if inside and any(free(near, beside)) and (beside, near) in forward | backward:
                        aligned[near][beside] = added = True
    for direction in (forward, backward) if final else ():
        for e in range(n):
            for f in range(m):
                fits = all(free(e, f)) if final == "and" else any(free(e, f))
                if fits and (f, e) in direction:
                    aligned[e][f] = True
    return {(f, e) for e in range(n) for f in range(m) if aligned[e][f]}
