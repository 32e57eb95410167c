"""Lecture 1: the bottleneck. Run it as a script, open it as a notebook, or build all lectures with `make course`."""

# %% [markdown]
# # 1. The bottleneck
#
# The first neural translators (Cho et al. 2014, Sutskever et al. 2014) read a sentence into **one vector** and write
# the translation from that vector. In this lecture you train two of them, measure how they fail on long sentences, and
# measure how much information about each source word reaches the decoder.

# %%
import tempfile
from pathlib import Path

import numpy as np
from exercises import check, digits, narrate, picture, updates, write_pairs

import regard
from regard.api.measuring import flow_of
from regard.evaluate.by_length import by_length, plot_by_length
from regard.look import draw_flows

narrate()  # in a terminal: print the text too

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The corpus
#
# Training on a real corpus takes hours. This corpus takes seconds. The source is a sequence of English digits, the
# target the same digits in French, in reverse order. A model must learn ten words and one reordering rule.

# %%
files = write_pairs(digits(20 * updates(300), seed=1), folder)
for source, target in digits(3, seed=2):
    print(f"{source:<50} {target}")

# %% [markdown]
# ## A recurrent network reads a sentence
#
# A recurrent network has a state `h` of fixed size and updates it with every word. In the GRU (Cho 2014), two gates
# control what is forgotten:
#
#     r  = sigmoid(W_r x + U_r h)            reset: how much of the old state the candidate sees
#     z  = sigmoid(W_z x + U_z h)            update: how much of the old state stays
#     h~ = tanh(W x + U (r * h))             candidate
#     h  = z * h + (1 - z) * h~
#
# Ten lines of numpy, with random weights:

# %%
draw = np.random.default_rng(1)
width = 8
W_r, W_z, W, U_r, U_z, U = (draw.normal(size=(width, width)) / np.sqrt(width) for _ in range(6))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(x, h):  # [D], [D] -> [D]
    r, z = sigmoid(W_r @ x + U_r @ h), sigmoid(W_z @ x + U_z @ h)
    return z * h + (1 - z) * np.tanh(W @ x + U @ (r * h))


h = np.zeros(width)
for x in draw.normal(size=(5, width)):  # five words
    h = gru(x, h)
print(h.round(2))

# %% [markdown]
# The result has 8 numbers, for five words or fifty. Sutskever's LSTM has a second state `c`, which its gates only
# multiply and add to, so gradients survive longer: `c = f * c + i * g`, `h = o * tanh(c)`. Its size is fixed too.
#
# ## Two translators
#
# `cho` is the GRU encoder-decoder, `sutskever` the LSTM. Sutskever reverses the source, which brings the first source
# word next to the first target word. Our targets are already reversed, so we switch this off.

# %%
common = [
    f"train.steps={updates(300)}", "train.batch_tokens=600", "train.rate=0.01", "train.validate_sentences=0",
    "data.subwords=word", "data.held_out=20", "decode.max_ratio=1", "decode.max_extra=4",
]  # fmt: skip
small_gru = ["model.width=32"]
small_lstm = ["model.width=48", "model.layers=1", "model.reverse=false", "model.spread=0.3"]
options = {"preset": "tiny", **files}
gru_model = regard.train(model="cho", out=folder / "cho", settings=common + small_gru, **options)
lstm_model = regard.train(model="sutskever", out=folder / "sutskever", settings=common + small_lstm, **options)
sentence = "three one four one five"
print(gru_model.translate(sentence), "|", lstm_model.translate(sentence))

# %% [markdown]
# ## BLEU by length
#
# BLEU measures the n-grams that a translation shares with the reference; 100 is perfect. Group new sentences by length:

# %%
sources, targets = map(list, zip(*digits(120, seed=3), strict=True))
tables = {}
for name, model in {"GRU": gru_model, "LSTM": lstm_model}.items():
    translations = [str(one) for one in model.translate(sources, beam=1)]
    tables[name] = by_length(sources, translations, targets, edges=(6, 8, 10))
    print(name, tables[name], sep="\n")

# %%
picture(plot_by_length(tables, folder / "lengths.svg"))

# %% [markdown]
# The vector must encode every word and its position. Short sequences fit, long ones do not. A wider state moves the
# limit but does not remove it, and needs more data and time.
#
# ## How much of a word is left?
#
# Differentiate the log-probability of target word t with respect to the embedding of source word s. The norm of this
# gradient measures how much the source word still matters:
#
#     flow[t, s] = || d log p(y_t) / d x_s ||
#
# `flow_of` computes it in Python, `regard flow` on the command line. The distance is the number of recurrent steps
# between reading word s and writing word t.

# %%
source, target = max(digits(50, seed=4), key=lambda pair: len(pair[0].split()))
flows = {"GRU": flow_of(gru_model, source, target), "LSTM": flow_of(lstm_model, source, target)}
for name, seen in flows.items():
    places, norms = seen.by_distance()
    print(name, {int(place): round(float(norm), 3) for place, norm in zip(places, norms, strict=True)})

# %%
picture(draw_flows(flows, folder / "flow.svg"))

# %% [markdown]
# The next lecture removes the bottleneck: the decoder will attend to every state of the encoder.
#
# ## Exercises
#
# The functions that you write get numpy arrays and return one.
#
# **1.1** An LSTM layer has inputs of width 64 and states of width 96, and no biases. How many weights does it have?

# %%
answer = None
print(check("1.1", answer))

# %% [markdown]
# **1.2** Write the last line of the GRU as a function of `state`, `new` (the candidate) and `update` (the gate z).


# %%
def blend(state, new, update):
    return new


print(check("1.2", blend))

# %% [markdown]
# **1.3** The decoder receives some number of values for a source of 50 words. Divide it by the number for 5 words.

# %%
answer = None
print(check("1.3", answer))

# %% [markdown]
# ## In the browser
#
# Run `regard serve`, then open
# [a long sentence with and without attention](http://127.0.0.1:5000/#view=compare&comparing=length&model=en-fr-cho).
# The page has a trained model of this kind, `en-fr-cho`, beside one with attention.
