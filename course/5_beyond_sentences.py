"""Lecture 5: beyond sentences. Run it as a script, open it as a notebook, or build all lectures with `make course`."""

# %% [markdown]
# # 5. Beyond sentences
#
# A memory can be anything with slots: the cells of a picture, the words of a document, a model's own past. In this
# lecture you train one small model of each kind. You then test what attention weights explain and what they do not.

# %%
import tempfile
from pathlib import Path

import torch
from exercises import check, narrate, picture, updates
from torch import nn

import regard
from regard.core import dot, softmax
from regard.corpora import reviews
from regard.corpora.shapes import draw_scene, scene
from regard.data.images import encode_png
from regard.sealed import write_atomically

narrate()  # in a terminal: print the text too

folder = Path(tempfile.mkdtemp())
torch.manual_seed(1)

# %% [markdown]
# ## Pictures
#
# In Show, Attend and Tell (Xu et al. 2015), a convolutional network encodes a picture as a grid of vectors, the slots.
# At every word the decoder attends to the grid. *Soft* attention takes the weighted mean of all cells. *Hard* attention
# samples one cell. Sampling has no gradient, so it is trained by REINFORCE. The built-in corpus `shapes` has generated
# pictures with a grid of 4 x 4 cells.

# %%
captioner = regard.train(
    model="captioner", preset="tiny", corpus="shapes", out=folder / "shapes",
    settings=[
        f"train.steps={updates(700)}", "train.batch_tokens=300", "train.rate=0.003", "train.validate_sentences=0",
        f"data.size={20 * updates(150)}", "decode.max_ratio=0", "decode.max_extra=16",
    ],
)  # fmt: skip
drawn = scene(2, seed=4242)
image = folder / "scene.png"
write_atomically(image, encode_png(draw_scene(drawn)))
print("reference:", drawn.caption)
print("caption:  ", captioner.caption(image))

# %% [markdown]
# Force the reference caption and draw one map per word. Is the weight on the object that the word names?

# %%
trace = captioner.look(image, drawn.caption)
picture(trace.draw(folder / "film.png", picture=image))

# %% [markdown]
# ## A model's own past
#
# A language model can attend to its own earlier states (Cheng et al. 2016, Daniluk et al. 2017). In the corpus `tales`,
# the last words of a line depend on its beginning.

# %%
writer = regard.train(
    model="attentive-lm", preset="tiny", corpus="tales", out=folder / "tales",
    settings=[
        f"train.steps={updates(300)}", "train.batch_tokens=600", "train.rate=0.01", "train.validate_sentences=0",
        "data.subwords=word", f"data.size={20 * updates(250)}",
    ],
)  # fmt: skip
print("written:", *writer.generate(count=1, longest=24))
tale = "carl has lamps , nora finds balls , so nora uses balls and carl uses lamps"
print(writer.look(tale).to_terminal(colour=False))

# %% [markdown]
# After so little training the tales are grammatical, but the weights spread over all previous words: the model does not
# yet know who has what. `regard train configs/tales.toml --out runs/tales` trains longer.
#
# ## Documents
#
# Hierarchical attention (Yang et al. 2016) pools the words of each sentence into a vector, then the sentences of a
# document. The query is a learned vector u, and there is no decoder:
#
#     k_s = tanh(W h_s + b),   w = softmax(u . k_s),   document = sum_s w_s h_s,   p = sigmoid(v . document)
#
# The next cell implements one level of it. The reviews are generated, and one to three sentences of each are decisive.

# %%
made = reviews.generate(600, seed=1)
texts = [one.text.lower().replace(".", " .").split() for one in made]
numbers = {word: n for n, word in enumerate(sorted({word for text in texts for word in text}), 1)}
ids = nn.utils.rnn.pad_sequence([torch.tensor([numbers[word] for word in text]) for text in texts], batch_first=True)
labels = torch.tensor([one.label == "positive" for one in made]).float()


class Pooled(nn.Module):
    def __init__(self, words, width=16):
        super().__init__()
        self.embed = nn.Embedding(words + 1, width, padding_idx=0)
        self.near = nn.Conv1d(width, width, 3, padding=1)  # h_s sees its neighbours: "not bad"
        self.W = nn.Linear(width, width)
        self.u = nn.Parameter(torch.randn(1, 1, width))
        self.v = nn.Linear(width, 1)

    def attend(self, ids):  # [B, S] -> Look with weights [B, 1, S], and the memory
        states = self.near(self.embed(ids).mT).tanh().mT  # [B, S, D]
        memory = regard.Memory(self.W(states).tanh(), states, mask=(ids > 0)[:, None])
        return regard.attend(self.u.expand(len(ids), 1, -1), memory, dot, softmax), memory

    def answer(self, weights, memory):  # p(positive) [B], from any weights
        return self.v(weights @ memory.values)[:, 0, 0].sigmoid()

    def forward(self, ids):
        look, memory = self.attend(ids)
        return self.answer(look.weights, memory)


torch.manual_seed(0)  # with other seeds, the accuracy is between 0.75 and 0.93
model = Pooled(len(numbers))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
test = slice(500, 600)
for _ in range(updates(200)):
    rows = torch.randint(500, (64,))  # of the first 500
    loss = nn.functional.binary_cross_entropy(model(ids[rows]), labels[rows])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
model.eval()
with torch.no_grad():
    right = (model(ids[test]) > 0.5) == (labels[test] > 0.5)
    print(f"accuracy on new reviews: {float(right.float().mean()):.2f}")
    look, memory = model.attend(ids[test])
    weights = look.weights[0, 0]
strongest = weights.argsort(descending=True)[:3]
print("most weight:", ", ".join(f"{texts[500][s]} {weights[s]:.2f}" for s in strongest))

# %%
first = max(0, int(weights.argmax()) - 8)
near = slice(first, min(first + 16, len(texts[500])))  # the words around the largest weight
seen = regard.Trace.from_arrays(texts[500][near], ["positive?"], weights[None, near].numpy(), kind="cross")
picture(seen.draw(folder / "review.svg"))

# %% [markdown]
# ## What weights explain, and what they do not
#
# The picture suggests that these words decided the prediction. Test it (Jain and Wallace 2019, Wiegreffe and Pinter
# 2019):
#
# - **Uniform**: give every word the same weight. If the prediction stays, the weights did not matter.
# - **Permuted**: shuffle the weights among the words. If the prediction stays, their positions did not matter.
# - **Erasure**: remove the word with the largest weight, and for comparison a random word.
#
# Measure the change as the total variation between the two predictions, `sum |p - q| / 2`.


# %%
def erased(ids, place):  # the ids without the word at place [B]
    return ids.scatter(1, place[:, None], 0)


with torch.no_grad():
    before, mask = model(ids[test]), memory.mask.float()
    shuffled = torch.zeros_like(look.weights)
    for row, visible in enumerate(memory.mask[:, 0]):
        some = look.weights[row, 0, visible]
        shuffled[row, 0, visible] = some[torch.randperm(len(some))]
    random_place = torch.multinomial(mask[:, 0], 1)[:, 0]
    changed = {
        "uniform weights": model.answer(mask / mask.sum(-1, keepdim=True), memory),
        "permuted weights": model.answer(shuffled, memory),
        "largest weight erased": model(erased(ids[test], look.weights[:, 0].argmax(-1))),
        "random word erased": model(erased(ids[test], random_place)),
    }
    for name, after in changed.items():
        flips = ((after > 0.5) != (before > 0.5)).float().mean()
        print(f"{name:<22} mean change {(after - before).abs().mean():.3f}, decisions flipped {flips:.2f}")

# %% [markdown]
# In this model the weights matter. With uniform or permuted weights, many decisions flip, and erasing the word with the
# largest weight matters far more than erasing a random one.
#
# This does not hold in general. Here the vectors are one layer away from the words. In a deep model, a slot also
# encodes its neighbours, so a weight on a slot is not a weight on a word, and other weights often give the same
# prediction. Weights show what was *mixed*, not why. Run tests like these before you call a picture an explanation.
#
# Summaries and answers to questions are sequences again, whose words are copied from the source. The built-in corpora
# `summaries` and `questions` have tiny examples of both; docs/beyond.md trains a pointer network on them in a minute.
# There, query, key and value are literal: a question, who a sentence is about, and the place that it names.
#
# ## Exercises
#
# The functions that you write get numpy arrays and return one.
#
# **5.1** A picture is encoded as a grid of 14 x 14 cells. How many slots does the memory have?

# %%
answer = None
print(check("5.1", answer))

# %% [markdown]
# **5.2** Write `uniform(mask)` for a boolean mask `[S]`: equal weights over the visible slots, or zeros if there are
# none.


# %%
def uniform(mask):
    return mask / len(mask)


print(check("5.2", uniform))

# %% [markdown]
# **5.3** Write `variation(p, q)`: the total variation between two distributions `[V]`.


# %%
def variation(p, q):
    return abs(p - q).sum()


print(check("5.3", variation))

# %% [markdown]
# ## In the browser
#
# Run `regard serve`, then open
# [where a Transformer looked](http://127.0.0.1:5000/#view=alignment&model=en-fr-transformer&text=The+black+cat+does+not+sleep.).
# Mask a word, flatten the attention, remove a head, and compare the translations. `regard look RUN TEXT --mask WORD`
# does the same on the command line.
