"""Lecture 2: attention. Run it as a script, open it as a notebook, or build all lectures with `make course`."""

# %% [markdown]
# # 2. Attention
#
# Instead of one vector, attention keeps the encoder state of **every** word, and the decoder chooses at every step
# which of them to use (Bahdanau, Cho and Bengio, 2015). In this lecture you compute attention by hand, then with
# `regard.attend`. You then build Bahdanau's model and inspect what it learned.

# %%
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from exercises import check, digits, narrate, picture, updates, write_pairs
from torch import nn

import regard
from regard.core import Additive, dot, hard_argmax, padding_mask
from regard.core.cells import update_writes
from regard.core.products import Linear
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import GateInputs, GRUEncoder, ResetBeforeGRU
from regard.look import Temperature
from regard.models.contract import AttentionLayout, shift_right
from regard.models.registry import Entry, register

narrate()  # in a terminal: print the text too

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## By hand
#
# A memory has a **key** and a **value** for each of S slots. Given a **query**, attention is three lines:
#
#     scores  = score(query, keys)        how well does each slot match?
#     weights = softmax(scores)           w_s = exp(e_s) / sum over s' of exp(e_s')
#     context = weights @ values          the weighted sum
#
# This example has four slots with keys of width 2, and values that are easy to recognise.

# %%
keys = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])  # [S, D]
values = np.array([[10.0], [20.0], [30.0], [40.0]])  # [S, Dv]
query = np.array([2.0, 1.0])  # [D]

scores = keys @ query  # [S], the dot product
weights = np.exp(scores - scores.max())
weights /= weights.sum()  # [S]
context = weights @ values  # [Dv]
print("scores ", scores)
print("weights", weights.round(3), "sum", weights.sum().round(6))
print("context", context.round(3))

# %% [markdown]
# `regard.attend` computes the same three lines for batches: query `[B, T, D]`, keys `[B, S, D]`, values `[B, S, Dv]`.
# Every model in regard uses it.

# %%
memory = regard.Memory(keys=torch.tensor(keys)[None], values=torch.tensor(values)[None])
look = regard.attend(torch.tensor(query)[None, None], memory, score=dot)
print("weights", look.weights[0, 0].numpy().round(3))
print("context", look.context[0, 0].numpy().round(3))
assert np.allclose(look.weights[0, 0], weights)
assert np.allclose(look.context[0, 0], context)

# %% [markdown]
# ## Soft and hard, and the temperature
#
# Softmax is *soft*: every slot has some weight, and the gradient reaches every score. *Hard* attention takes one slot.
# It is cheaper, but has no gradient, so training it needs sampling (lecture 5). A temperature interpolates between the
# two. Divide the scores by a small number, and the weights approach the hard choice. Divide them by a large number, and
# the weights become uniform.

# %%
for temperature in (0.1, 0.5, 1.0, 5.0, 100.0):
    w = torch.softmax(torch.tensor(scores) / temperature, -1)
    print(f"temperature {temperature:>5}: {w.numpy().round(3)}  entropy {-(w * w.clamp(min=1e-12).log()).sum():.3f}")
print("hard             :", hard_argmax(torch.tensor(scores)[None])[0].numpy())

# %% [markdown]
# ## Bahdanau's model, from the paper
#
#     h_j     = [->h_j ; <-h_j]                              a GRU in both directions reads the source       (eq. 7)
#     e_ij    = v^T tanh(W_a s_{i-1} + U_a h_j)              the additive score                              (A.1.2)
#     alpha_i = softmax(e_i),   c_i = sum_j alpha_ij h_j                                                     (eq. 6, 5)
#     s_i     = GRU(s_{i-1}, y_{i-1}, c_i)                                                                   (A.2.2)
#     s_0     = tanh(W_s <-h_1)
#     p(y_i)  = softmax(W_o maxout(U_o s_i + V_o y_{i-1} + C_o c_i))                                         (eq. 4)
#
# The cell below builds the whole model from regard's parts. `recur` runs `decode` over all steps. `Attention` is
# `attend` as a module, so that it can be recorded. `regard/models/bahdanau.py` adds the variants of the paper's
# appendix and released code.


# %%
@dataclass(frozen=True)
class Config:
    source_vocabulary: int = 20
    target_vocabulary: int = 20
    width: int = 32


class State(NamedTuple):
    memory: regard.Memory
    hidden: torch.Tensor  # [B, n], s_{i-1}


class Ours(nn.Module):
    attention_layout = AttentionLayout(query="previous", shift=0, cross=("attention",))

    def __init__(self, config):
        super().__init__()
        n = config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, n)
        self.encoder = GRUEncoder("paper", n, n, directions=2, blend=update_writes)
        self.embed_target = nn.Embedding(config.target_vocabulary, n)
        self.attention = Attention(Additive(query_width=n, key_width=2 * n, width=n))
        self.W_s = Linear(n, n)
        self.W, self.C = GateInputs(n, n), Linear(2 * n, 3 * n, bias=False)
        self.gru = ResetBeforeGRU(n, update_writes)
        self.U_o, self.V_o, self.C_o = Linear(n, 2 * n), Linear(n, 2 * n), Linear(2 * n, 2 * n)
        self.output = Linear(n, config.target_vocabulary)
        for matrix in self.encoder.cell.parameters():
            nn.init.orthogonal_(matrix[0])
            nn.init.orthogonal_(matrix[1])

    def encode(self, source, lengths):  # [B, S], [B] -> Memory
        states, _ = self.encoder(self.embed(source), lengths)  # [B, S, 2n]
        first_backward = states[:, 0].chunk(2, dim=-1)[1]  # <-h_1: [B, n]
        return self.attention.remember(states, padding_mask(lengths, source.shape[1]), first_backward)

    def start(self, memory):
        return State(memory, torch.tanh(self.W_s(memory.summary)))

    def decode(self, word, state):  # one step: W y_{i-1} [B, 3n] -> (s_i, c_i)
        context = self.attention(state.hidden[:, None], state.memory).context[:, 0]  # c_i: [B, 2n]
        hidden = self.gru(word + self.C(context), state.hidden)  # s_i: [B, n]
        return (hidden, context), State(state.memory, hidden)

    def read_out(self, words, state):  # [B, T] -> [B, T, n]
        y = self.embed_target(words)
        (hidden, context), state = recur(self.decode, self.W(y), state)  # [B, T, n], [B, T, 2n]
        units = self.U_o(hidden) + self.V_o(y) + self.C_o(context)  # [B, T, 2n]
        return units.unflatten(-1, (-1, 2)).amax(-1), state  # maxout

    def step(self, token, state):  # [B] -> logits [B, V]
        units, state = self.read_out(token[:, None], state)
        return self.output(units[:, 0]), state

    def hidden(self, source, lengths, target):
        return self.read_out(shift_right(target), self.start(self.encode(source, lengths)))[0]

    def forward(self, source, lengths, target):  # logits [B, T, V]
        return self.output(self.hidden(source, lengths, target))


# %% [markdown]
# Once the model is registered under a name, you can train, run, draw and serve it like every other model.

# %%
register("ours", Entry(Ours, Config, {"tiny": Config()}, "Bahdanau et al. 2015", "the lecture's model", {}, {}))
files = write_pairs(digits(20 * updates(300), seed=1), folder)
settings = [
    f"train.steps={updates(200)}", "train.batch_tokens=600", "train.rate=0.01", "train.validate_sentences=0",
    "data.subwords=word", "data.held_out=20", "decode.max_ratio=1", "decode.max_extra=4",
]  # fmt: skip
translator = regard.train(model="ours", preset="tiny", **files, out=folder / "ours", settings=settings)
sources, targets = map(list, zip(*digits(100, seed=3), strict=True))
print(translator.score(sources, targets, metrics=["bleu"], beam=1))

# %% [markdown]
# ## What it attends to
#
# The target is the reversed source, so a correct alignment is a line from the top right to the bottom left. The model
# was never trained on alignments. It learned them because it must find the next word.

# %%
sentence = "three one four one five nine two six"
trace = translator.look(sentence)
print(trace.to_terminal(colour=False))

# %%
picture(trace.draw(folder / "alignment.svg"))

# %% [markdown]
# ## What if the attention were flatter?

# %%
for temperature in (0.3, 1.0, 3.0, 30.0):
    changed = translator.look(sentence, changes=[Temperature(temperature)])
    print(f"temperature {temperature:>4}: {changed.target.text}")

# %% [markdown]
# ## Exercises
#
# The functions that you write get numpy arrays and return one.
#
# **2.1** Write `softmax(scores)` for scores `[S]`. It must survive a score of 1000.


# %%
def softmax(scores):
    return scores


print(check("2.1", softmax))

# %% [markdown]
# **2.2** Write `context(weights, values)` for weights `[S]` and values `[S, Dv]`.


# %%
def context_of(weights, values):
    return values.mean(0)


print(check("2.2", context_of))

# %% [markdown]
# **2.3** The sentences of a batch are padded to the same length. Write `masked_softmax(scores, mask)` for scores
# `[T, S]` and a mask of the same shape (True = may attend). A fully masked row gets zeros.


# %%
def masked_softmax(scores, mask):
    return softmax(scores * mask)


print(check("2.3", masked_softmax))

# %% [markdown]
# **2.4** What is the largest entropy (in nats) that weights over 8 slots can have?

# %%
answer = None
print(check("2.4", answer))

# %% [markdown]
# ## In the browser
#
# Run `regard serve`, then open
# [a sentence step by step](http://127.0.0.1:5000/#view=steps&model=en-fr-bahdanau&text=I+do+not+know+where+the+station+is.).
# The page shows each decoding step, from scores to weights to context to word, for a model trained on real sentences.
