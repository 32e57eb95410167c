"""Lecture 4: the Transformer. Run it as a script, open it as a notebook, or build all lectures with `make course`."""

# %% [markdown]
# # 4. Attention without recurrence
#
# The Transformer (Vaswani et al. 2017) has no recurrence. In every layer, words attend to words with several heads. In
# this lecture you build self-attention, heads, masks and positions. You then train a small Transformer, measure its
# heads, remove them one by one, find out which source words made a target word, and measure which answer is true.

# %%
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from exercises import check, digits, narrate, picture, updates, write_pairs

import regard
from regard.api.faithful import measure_faithfulness
from regard.api.measuring import report_heads, silence_heads
from regard.core import causal_mask, sinusoid
from regard.text.pharaoh import Gold

narrate()  # in a terminal: print the text too

folder = Path(tempfile.mkdtemp())
torch.manual_seed(1)

# %% [markdown]
# ## Self-attention
#
# Queries, keys and values are projections of the same states x `[T, D]`:
#
#     Q = x W_q,   K = x W_k,   V = x W_v,        context = softmax(Q K^T / sqrt(D)) V
#
# All positions are computed in parallel, and any two words are one step apart. In a recurrent network, the number of
# steps grows with the distance between the words.

# %%
T, D, H = 5, 16, 4
x = torch.randn(1, T, D)  # [B, T, D]
W_q, W_k, W_v, W_o = (torch.randn(D, D) / D**0.5 for _ in range(4))
look = regard.attend(x @ W_q, regard.Memory(keys=x @ W_k, values=x @ W_v))
print(look.weights[0].numpy().round(2))

# %% [markdown]
# ## Heads
#
# One softmax tends to focus on one place. Split the width into H heads of width D / H. Each head has its own attention
# weights, and W_o mixes their contexts. The cost stays the same.


# %%
def split(states):  # [B, T, D] -> [B, H, T, D / H]
    return states.unflatten(-1, (H, D // H)).transpose(1, 2)


look = regard.attend(split(x @ W_q), regard.Memory(split(x @ W_k), split(x @ W_v)))
merged = look.context.transpose(1, 2).flatten(-2) @ W_o  # [B, T, D]
print("weights", list(look.weights.shape), "result", list(merged.shape))

# %% [markdown]
# ## Masks
#
# The decoder writes from left to right, so during training position t must not see later words. The causal mask is True
# where a query may attend:

# %%
print(causal_mask(4).int().numpy())
look = regard.attend(x @ W_q, regard.Memory(x @ W_k, x @ W_v, causal_mask(T)))
print(look.weights[0].numpy().round(2))

# %% [markdown]
# ## Positions
#
# Self-attention ignores the order of its input. If you permute the words, the results are permuted in the same way:

# %%
order = torch.tensor([3, 1, 4, 0, 2])


def self_attention(states):
    return regard.attend(states @ W_q, regard.Memory(states @ W_k, states @ W_v)).context


print("without positions:", torch.allclose(self_attention(x)[:, order], self_attention(x[:, order]), atol=1e-5))
positions = sinusoid(torch.arange(T), D).float()  # [T, D]
with_order = self_attention(x + positions)[:, order]
print("with positions:   ", torch.allclose(with_order, self_attention(x[:, order] + positions), atol=1e-5))

# %% [markdown]
# The paper adds `PE(pos, 2i) = sin(pos / 10000^(2i/D))` and `PE(pos, 2i+1) = cos(...)`. The dot product of two such
# vectors depends only on their distance, so "the previous word" is easy to express:

# %%
waves = sinusoid(torch.arange(30), 32)
products = waves @ waves.T
print("distance 3:", [round(float(products[p, p + 3]), 4) for p in (0, 5, 20)])
print("distance 9:", [round(float(products[p, p + 9]), 4) for p in (0, 5, 20)])

# %% [markdown]
# ## A small Transformer
#
# An encoder layer is self-attention followed by a two-layer network at each position, both with a residual connection
# `x + f(x)` and layer normalisation. A decoder layer adds cross-attention to the encoder.

# %%
files = write_pairs(digits(20 * updates(300), seed=1, longest=8), folder)
settings = [
    f"train.steps={updates(800)}", "train.batch_tokens=600", "train.rate=0.005", "train.warmup=20",
    "train.validate_sentences=0", "data.subwords=word", "data.held_out=20", "decode.max_ratio=1",
    "decode.max_extra=4", "model.width=32", "model.heads=4",
    "model.inner=64", "model.norm=pre",
]  # fmt: skip
translator = regard.train(model="transformer", preset="tiny", **files, out=folder / "transformer", settings=settings)
sources, targets = map(list, zip(*digits(40, seed=3, longest=8), strict=True))
print(translator.score(sources, targets, metrics=["bleu"], beam=1))

# %% [markdown]
# ## What heads do
#
# Measure the entropy, the largest weight and the diagonality of every head. For cross-attention heads, also measure the
# alignment error (the correct links are known, see lecture 3).

# %%
links = [frozenset((s, len(one.split()) - 1 - s) for s in range(len(one.split()))) for one in sources]
gold = [Gold(sure=some, possible=some) for some in links]
report = report_heads(translator, sources, targets, gold)
print(f"{'head':<34} entropy  confidence  diagonality    AER")
for row in report.ranked("entropy"):
    numbers = row.values
    error = f"{100 * numbers['aer']:>6.1f}" if "aer" in numbers else "     -"
    print(
        f"{row.name:<32} {row.head}  {numbers['entropy']:>6.2f} {numbers['confidence']:>11.2f}"
        f" {numbers['diagonality']:>12.2f} {error}"
    )

# %%
trace = translator.look("three one four one five nine two six")
picture(trace.draw(folder / "heads.svg", view="heads"))

# %% [markdown]
# ## Removing heads
#
# Set the context of one head to zero, translate again, and measure the drop in BLEU. Most single heads can be removed,
# because other heads do the same work. A few cannot (Michel et al. 2019, Voita et al. 2019).

# %%
removed = silence_heads(translator, sources, targets)
for one in [*removed[:4], *removed[-3:]]:
    print(f"{one.name:<32} {one.head}  BLEU without it {one.score:>5.1f}, drop {one.drop:>5.1f}")

# %% [markdown]
# ## Which source words made this word?
#
# The weights of one head say what that head read. They do not say what the word was made of: a layer also passes on its
# input through the residual connection, layers mix what they read, and the target words before the new one count too.
#
# - *Rollout* (Abnar and Zuidema 2020) replaces each attention block by `(A + I) / 2`, half attention and half residual,
#   and multiplies the blocks of all layers.
# - *ALTI+* (Ferrando et al. 2022) measures how much each vector of the sum in a block points to its result. What is
#   left of a row is the share of the target words before.
# - *Occlusion* removes a source word and measures the log-probability that each target word loses.
#
# The last one is a measurement: it changes the input and sees what happens. The others are estimates from one pass.

# %%
sentence = "three one four one five nine two six"
for method in ("attention", "rollout", "alti", "occlusion-removed"):
    found = translator.attribute(sentence, method=method)
    best = [found.columns[row.argmax()] for row in found.matrix]
    share = "" if found.source_share is None else f"  {found.source_share.mean():.2f} from the source"
    print(f"{method:<18} {' '.join(best)}{share}")

# %%
trace = translator.look(sentence, by="alti")
picture(trace.draw(folder / "alti.svg", layer="alti"))

# %% [markdown]
# ## Which of them is true?
#
# The methods disagree, so measure them. An attribution is *faithful* if the model needs the words that it ranks first.
# *Comprehensiveness* (DeYoung et al. 2020) is the probability of the target word that is lost when the first source
# words are removed, a mean over 1, 2 and 10 to 50 % of the words. `reach` puts it between a random order (0) and the
# *oracle* (1), the best set of words for each target word, found by trying all.

# %%
measured = measure_faithfulness(
    translator, sources[:20], targets[:20], erasing="removed", sane=0,
    methods=["attention:0", "attention:1", "rollout", "alti", "occlusion-removed"],
)  # fmt: skip
for one in measured.methods:
    reach = "" if one.reach is None else f"   reach {one.reach.value:.2f} ({one.reach.low:.2f} to {one.reach.high:.2f})"
    print(f"{one.method:<18} comprehensiveness {one.comprehensiveness.value:.2f}{reach}")

# %% [markdown]
# Attention is better than a random order, but it matters at which layer you look. The mean of the heads of the first
# decoder layer, which aligns badly (see the table of heads), is far below that of the second, and a picture does not
# tell you so. ALTI+ needs no choice of a layer, and reaches about as far as leaving out one word at a time, in one
# pass. All are below the oracle, which tries words together: of two words one may be enough, so that neither counts
# alone.
#
# This is the result of one small model. `docs/results/faithful.md` has tables of others. In a small Bahdanau, attention
# reaches about as far as masking one word at a time. On real text, the order of all words, and not only the first,
# hardly agrees with what each is worth.
#
# ## Can you trust the translation?
#
# A probability of the model is not the probability that it is right. Compare it with references: of the words to which
# the model gives 0.8, how many does a reference have? A function of the signals that the search gives anyway (the
# probabilities of a word and its neighbours, the length, words copied from the source) is fitted to held-out sentences,
# so that its number means what it says. `docs/trust.md` judges it. Here the included Transformer reads a sentence, the
# same words in another order, and letters without a meaning:

# %%
trusted = regard.load("en-fr")
for text in ("The committee accepted the proposal.", "accepted. proposal The the committee", "Kzq vtr wplo mnbx."):
    found = trusted.translate(text, confidence=True)
    words = " ".join(f"{word} {chance:.2f}" for word, chance in found.confidence.words)
    print(f"{found.confidence.sentence:.2f}  {found}   ({words})")

# %% [markdown]
# ## Exercises
#
# The functions that you write get numpy arrays and return one.
#
# **4.1** Write `causal(size)` in numpy: a boolean array `[size, size]`, True where position t (row) may attend to s.


# %%
def causal(size):
    return [[True] * size] * size


print(check("4.1", causal))

# %% [markdown]
# **4.2** Write `encode(length, width)`: the paper's position encodings `[length, width]`, with sines in even columns
# and cosines in odd ones.


# %%
def encode(length, width):
    return [[0.0] * width] * length


print(check("4.2", encode))

# %% [markdown]
# **4.3** How many weights does multi-head attention of width 64 with 8 heads have, without biases?

# %%
answer = None
print(check("4.3", answer))

# %% [markdown]
# **4.4** Write `error(chances, right)`: the expected calibration error with two bins, chances below 0.5 and the others.
# In each bin, take the distance between the mean chance and the share of right ones; weigh by the size of the bin.


# %%
def error(chances, right):
    return 0.0


print(check("4.4", error))

# %% [markdown]
# **4.5** Write `rollout(layers)` for the attention weights of an encoder, `layers` `[L, S, S]` (the first layer first,
# heads already averaged): the matrix `[S, S]` that says how much of each source word is in each last state.


# %%
def rollout(layers):
    return layers[-1]


print(check("4.5", rollout))

# %% [markdown]
# **4.6** Write `comprehensiveness(order, counts, chances)`. `chances` `[2, 2, ..., 2]` has an axis for each source word
# and holds the probability of a target word: index 1 on an axis says that the word is removed, 0 that it is there. So
# `chances[0, 1, 0]` is the probability without the second of three words. `order` lists the words, the most attributed
# first. Return the mean, over the `counts` k, of the probability that is lost without the first k words.


# %%
def comprehensiveness(order, counts, chances):
    return 0.0


print(check("4.6", comprehensiveness))

# %% [markdown]
# The next cell removes all sets of at most half of the words from three sentences, applies your function to the orders
# of three methods and to the best sets, and prints what regard measures on the same sentences. Once 4.6 is right, both
# columns are the same. How much of what the oracle finds does each method miss? Attention loses where its largest
# weight is not on the word that the model needs: print the orders of one target word.

# %%
few = [number for number, one in enumerate(sources) if len(one.split()) == 6][:3]
six, counts = range(6), np.array([1, 2, 1, 2, 2, 3, 3])  # one word, two, and 10, 20, 30, 40, 50 % of six, rounded up
methods = ["attention:0", "attention:1", "occlusion-removed"]
yours = {name: [] for name in (*methods, "oracle")}
for number in few:
    words, target = sources[number].split(), targets[number]
    chances = np.full([6] + 6 * [2], np.nan)  # [T, 2, 2, 2, 2, 2, 2]
    for gone in (some for size in range(4) for some in combinations(six, size)):
        trace = translator.look(" ".join(words[s] for s in six if s not in gone), target, topk=0)
        for t in six:
            chances[(t, *(int(s in gone) for s in six))] = np.exp(trace.target.tokens[t].logprob)
    for method in methods:
        rows = translator.attribute(sources[number], target, method).matrix[:6, :6]  # without </s>
        yours[method] += [comprehensiveness(np.argsort(-rows[t]), counts, chances[t]) for t in six]
    for t in six:
        best = [
            max(comprehensiveness(np.array(some), [k], chances[t]) for some in combinations(six, k)) for k in counts
        ]
        yours["oracle"].append(np.mean(best))
measured = measure_faithfulness(
    translator, [sources[number] for number in few], [targets[number] for number in few],
    methods=methods, erasing="removed", sane=0,
)  # fmt: skip
for one in measured.methods:
    if one.method in yours:
        print(f"{one.method:<18} yours {np.mean(yours[one.method]):.3f}   regard {one.comprehensiveness.value:.3f}")

# %% [markdown]
# ## In the browser
#
# Run `regard serve`, then open
# [all heads of a Transformer](http://127.0.0.1:5000/#view=compare&comparing=heads&model=en-fr-transformer&text=The+black+cat+does+not+sleep.).
# Remove one and see how the translation changes.
