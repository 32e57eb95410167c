"""Lecture 3: scores and windows. Run it as a script, open it as a notebook, or build all with `make course`."""

# %% [markdown]
# # 3. Which score, which window
#
# Attention needs a score for every pair of query and key, and can cover all slots or only a window. Luong, Pham and
# Manning (2015) compared the choices. In this lecture you compute them all, find out why the dot product is scaled, and
# measure where trained models attend.

# %%
import tempfile
from pathlib import Path

import torch
from exercises import check, digits, narrate, picture, updates, write_pairs

import regard
from regard.api.aligning import choose_by_gold, traces
from regard.core import (
    Additive,
    Concat,
    Cosine,
    GaussianWindow,
    General,
    Location,
    Window,
    dot,
    project_keys,
    scaled_dot,
)
from regard.text.pharaoh import Gold

narrate()  # in a terminal: print the text too

folder = Path(tempfile.mkdtemp())
torch.manual_seed(1)

# %% [markdown]
# ## Six scores
#
# | score | equation | parameters |
# |---|---|---|
# | dot | `q . k` | none; q and k have the same width |
# | scaled dot | `q . k / sqrt(D)` | none |
# | cosine | `b cos(q, k)` | the strength b |
# | general | `q^T W k` | W |
# | concat, additive | `v^T tanh(W [q; k])` | W, v |
# | location | `(W q)_s` | W; the key is not used |
#
# A score is called as `score(query, keys)`. Some scores project the keys first, once per sentence, with `project_keys`.

# %%
D, S = 16, 5
query, states = torch.randn(1, 1, D), torch.randn(1, S, D)
scores = {
    "dot": dot,
    "scaled dot": scaled_dot,
    "cosine": Cosine(),
    "general": General(D, D),
    "concat": Concat(D, D, D),
    "additive": Additive(D, D, D),
    "location": Location(D, longest=20),
}
for name, score in scores.items():
    with torch.no_grad():
        look = regard.attend(query, regard.Memory(project_keys(score, states), states), score)
    print(f"{name:<11} weights {look.weights[0, 0].numpy().round(2)}")

# %% [markdown]
# ## Why the dot product is scaled
#
# If the entries of q and k are independent with mean 0 and variance 1, then `q . k` is a sum of D products with
# variance 1 each, so its standard deviation is `sqrt(D)`. Large scores saturate the softmax, and its gradient vanishes.
# Measure this with 10 slots:

# %%
print("width  std of q.k  largest weight, dot  scaled  gradient norm, dot  scaled")
for width in (4, 16, 64, 256, 1024):
    query, keys = torch.randn(500, 1, width), torch.randn(500, 10, width)
    row = [f"{width:>5}", f"{dot(query, keys).std():>11.2f}"]
    largest, gradients = [], []
    for score in (dot, scaled_dot):
        found = score(query, keys).requires_grad_()
        weights = found.softmax(-1)
        largest.append(weights.amax(-1).mean().item())
        (gradient,) = torch.autograd.grad(weights[..., 0].sum(), found)  # of the first weight
        gradients.append(gradient.norm(dim=-1).mean().item())
    print(*row, f"{largest[0]:>20.3f}{largest[1]:>8.3f}{gradients[0]:>20.3f}{gradients[1]:>8.3f}")

# %% [markdown]
# With the scale, the weights do not depend on the width. Without it, one slot takes all the weight and the gradient
# vanishes.
#
# ## Windows
#
# Local attention covers `|s - p| <= D` around a centre p. **local-m** sets p = t, the current step. **local-p**
# predicts it, `p = S sigmoid(v^T tanh(W h))`, and multiplies the weights by a Gaussian, so that p gets a gradient:
#
#     w_s = softmax_s(e) * exp(-(s - p)^2 / (2 sigma^2)),    sigma = D / 2

# %%
flat = torch.zeros(1, 1, 9)
centre = torch.tensor([[3.3]])
print("local-m", Window(2)(flat, None, centre.round())[0, 0].numpy().round(2))
print("local-p", GaussianWindow(2)(flat, None, centre)[0, 0].numpy().round(2))

# %% [markdown]
# ## Trained models
#
# Train four of Luong's models on the digits of lecture 1, with the same settings. Their query is the state **after**
# reading the last word.

# %%
files = write_pairs(digits(20 * updates(300), seed=1), folder)
common = [
    f"train.steps={updates(300)}", "train.batch_tokens=600", "train.rate=0.01", "train.validate_sentences=0",
    "data.subwords=word", "data.held_out=20", "decode.max_ratio=1", "decode.max_extra=4", "model.width=32",
    "model.layers=1", "model.reverse=false",
    "model.dropout=0", "model.spread=0.3",
]  # fmt: skip
variants = {
    "dot": ["model.score=dot", "model.window=global"],
    "general": ["model.score=general", "model.window=global"],
    "location": ["model.score=location", "model.window=global"],
    "general, local-p": ["model.score=general", "model.window=local-p", "model.half_width=2"],
}
models = {
    name: regard.train(model="luong", preset="tiny", **files, out=folder / name, settings=common + chosen)
    for name, chosen in variants.items()
}

# %% [markdown]
# ## The alignment error rate
#
# In this corpus the correct links are known: source word s belongs to target word n - 1 - s, where n is the length. For
# each target word, take the source word with the largest weight. The error rate compares these links A with the sure
# links S and the possible links P, which contain S (Och and Ney 2003):
#
#     AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)
#
# Row t of the weights comes from the state that has read word t - 1 and writes word t. In some models, this row aligns
# the word just *read*. Therefore measure with shift 0 (row t is word t) and shift 1 (row t + 1 is word t).

# %%
sources, targets = map(list, zip(*digits(60, seed=3), strict=True))
links = [frozenset((s, len(one.split()) - 1 - s) for s in range(len(one.split()))) for one in sources]
gold = [Gold(sure=some, possible=some) for some in links]
print(f"{'model':<18} BLEU  AER, shift 0  shift 1")
for name, model in models.items():
    bleu = model.score(sources, targets, metrics=["bleu"], beam=1)["bleu"]
    _, rates = choose_by_gold(list(traces(model, sources, targets)), gold)
    error = {heads.shift: 100 * rate for heads, rate in rates.items()}
    print(f"{name:<18} {bleu:>4.0f} {error[0]:>13.1f} {error[1]:>8.1f}")

# %% [markdown]
# A model can translate well although its attention is not an alignment: the state can carry words, and each encoder
# state also encodes its neighbours. The error rate measures the weights, BLEU measures the words.

# %%
sentence = "three one four one five nine two six"
picture(models["general"].look(sentence).draw(folder / "general.svg", title="general, global"))

# %%
picture(models["general, local-p"].look(sentence).draw(folder / "local.svg", title="general, local-p"))

# %% [markdown]
# ## Exercises
#
# The functions that you write get numpy arrays and return one.
#
# **3.1** The entries of q and k are independent with variance 1 and width 64. What is the variance of `q . k`?

# %%
answer = None
print(check("3.1", answer))

# %% [markdown]
# **3.2** Write `scaled(query, keys)` for query `[T, D]` and keys `[S, D]`, in numpy.


# %%
def scaled(query, keys):
    return query @ keys.T


print(check("3.2", scaled))

# %% [markdown]
# **3.3** Write `window(t, size, half_width)`: a boolean array `[size]`, True where local-m may attend at step t.


# %%
def window(t, size, half_width):
    return [True] * size


print(check("3.3", window))

# %% [markdown]
# **3.4** Write `aer(found, sure, possible)` for sets of links. Possible links may or may not include the sure ones.


# %%
def aer(found, sure, possible):
    return 1 - len(found & sure) / len(found)


print(check("3.4", aer))

# %% [markdown]
# ## In the browser
#
# Run `regard serve`, then open
# [a sentence in two models](http://127.0.0.1:5000/#view=compare&comparing=models&model=en-fr-bahdanau&other=en-fr-transformer&text=The+European+Parliament+did+not+accept+the+new+proposal.).
# The page compares their alignments. `regard align --gold` measures them on files.
