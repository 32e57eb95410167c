"""The graded assignment, with solutions; course/notebooks/assignment.ipynb is the copy for students.

`python course/notebooks.py --teach DIR --seed N` writes it for nbgrader, with hidden tests.
"""

# %% [markdown]
# # Assignment: Bahdanau's attention
#
# Implement the attention of Bahdanau, Cho and Bengio (2015) in PyTorch, train a translator with it, look at what it
# attends to, and measure its alignment error rate. You need lectures 1 to 3. The notebook takes about two minutes on
# two CPU cores. You may use PyTorch, but no attention of another library.
#
# | part | points |
# |---|---|
# | 1. the score | 10 |
# | 2. the weights | 10 |
# | 3. the module | 15 |
# | 4. the decoder | 15 |
# | 5. links and their error rate | 15 |
# | 6. the trained model | 10 |
# | 7. looking | 10 |
# | 8. report | 15 |
#
# Cells that begin with `assert` check your work. They pass for correct code; further tests run when your notebook is
# graded. Do not change them, and do not add or remove cells.

# %%
import random
import tempfile
from pathlib import Path

import torch
from exercises import narrate, picture, updates
from torch import nn

import regard
from regard.corpora import phrasebook

narrate()  # in a terminal: print the text too

SEED = 0  # of the tests
torch.manual_seed(1)
torch.set_num_threads(1)  # tiny tensors gain nothing from more
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The corpus
#
# `phrasebook` has English sentences of a small grammar, their French translations, and the correct word links: `(i, j)`
# links source word i with target word j. Adjectives change place, and one word may become two.

# %%
train = phrasebook.generate(40 * updates(100), seed=1, max_words=8)
test = phrasebook.generate(2 * updates(100), seed=2, max_words=8)
tested = {one.source for one in test}
train = [one for one in train if one.source not in tested]
print(train[0])
PAD, START, END, UNKNOWN = range(4)


def vocabulary(sentences):
    words = sorted({word for sentence in sentences for word in sentence.split()})
    return {word: number for number, word in enumerate(words, 4)}


english, french = vocabulary(one.source for one in train), vocabulary(one.target for one in train)
french_words = {number: word for word, number in french.items()}


def batch(sentences, known):  # -> ids [B, S], mask [B, S]: True where there is a word
    rows = [torch.tensor([*(known.get(word, UNKNOWN) for word in one.split()), END]) for one in sentences]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return ids, ids != PAD


# %% [markdown]
# ## 1. The score (10 points)
#
# The additive score compares the decoder state s with every encoder state h (appendix A.1.2):
#
#     e_j = v^T tanh(W s + U h_j)
#
# `query` is `W s` `[B, D]`, `keys` are `U h` `[B, S, D]`, and `v` is `[D]`. Return the scores `[B, S]`.


# %% answer score
def additive_scores(query, keys, v):
    ### BEGIN SOLUTION
    return torch.tanh(query[:, None] + keys) @ v
    ### END SOLUTION


# %% test score 10
scores = additive_scores(torch.zeros(2, 3), torch.tensor([0.0, 0.5, 9.0])[None, :, None].expand(2, 3, 3), torch.ones(3))
assert scores.shape == (2, 3)
assert torch.allclose(scores[0], torch.tensor([0.0, 1.3863, 3.0]), atol=1e-3)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED)
q, k, v = (torch.randn(size, generator=draw) for size in ((4, 5), (4, 7, 5), (5,)))
for b in range(4):
    for s in range(7):
        right = sum(v[d] * torch.tanh(q[b, d] + k[b, s, d]) for d in range(5))
        assert torch.isclose(additive_scores(q, k, v)[b, s], right, atol=1e-5)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The weights (10 points)
#
# A softmax over the slots of each row of `scores` `[B, S]`, where `mask` `[B, S]` is True. Other slots get the weight
# 0. A row without any visible slot gets zeros, never NaN. Scores of 1000 must not overflow.


# %% answer weights
def masked_softmax(scores, mask):
    ### BEGIN SOLUTION
    seen = scores.masked_fill(~mask, -torch.inf)
    highest = seen.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    raised = (seen - highest).exp()
    return raised / raised.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    ### END SOLUTION


# %% test weights 10
weights = masked_softmax(torch.tensor([[1.0, 1.0, 5.0], [1000.0, 0.0, 0.0]]), torch.tensor([[True, True, False]] * 2))
assert torch.allclose(weights, torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), atol=1e-4)
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
e, m = 3 * torch.randn(6, 8, generator=draw), torch.rand(6, 8, generator=draw) < 0.5
m[0], m[1] = False, True
e[2, 0], m[2, 0] = -1000.0, True
got = masked_softmax(e, m)
for b in range(6):
    assert torch.all(got[b, ~m[b]] == 0)
    assert torch.allclose(got[b, m[b]], torch.softmax(e[b, m[b]], 0) if m[b].any() else e[b, m[b]], atol=1e-5)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The module (15 points)
#
# Put both together. `self.W` and `self.U` are linear layers without bias, `self.v` is a parameter. The keys are
# projected once per sentence, by `remember`. `forward` takes the state `[B, N]`, and returns the context `[B, M]` and
# the weights `[B, S]`:
#
#     c = sum_j alpha_j h_j


# %% answer module
class Attention(nn.Module):
    def __init__(self, state_width, memory_width, width):
        super().__init__()
        self.W = nn.Linear(state_width, width, bias=False)
        self.U = nn.Linear(memory_width, width, bias=False)
        self.v = nn.Parameter(torch.randn(width) / width**0.5)

    def remember(self, states):  # [B, S, M] -> the keys [B, S, D]
        ### BEGIN SOLUTION
        return self.U(states)
        ### END SOLUTION

    def forward(self, state, keys, states, mask):
        ### BEGIN SOLUTION
        weights = masked_softmax(additive_scores(self.W(state), keys, self.v), mask)
        return (weights[:, None] @ states)[:, 0], weights
        ### END SOLUTION


# %% test module 15
attention = Attention(3, 4, 5)
memory = torch.randn(2, 6, 4)
context, weights = attention(torch.randn(2, 3), attention.remember(memory), memory, torch.ones(2, 6).bool())
assert (context.shape, weights.shape) == ((2, 4), (2, 6))
assert torch.allclose(weights.sum(-1), torch.ones(2))
### BEGIN HIDDEN TESTS
torch.manual_seed(SEED + 2)
trial, s, h = Attention(4, 6, 5), torch.randn(3, 4), torch.randn(3, 7, 6)
m = torch.arange(7) < torch.tensor([[7], [3], [1]])
context, weights = trial(s, trial.remember(h), h, m)
e = torch.tanh((s @ trial.W.weight.T)[:, None] + h @ trial.U.weight.T) @ trial.v
right = torch.softmax(e.masked_fill(~m, -1e9), -1)
assert torch.allclose(weights, right, atol=1e-5)
assert torch.allclose(context, (right[..., None] * h).sum(1), atol=1e-5)
context.sum().backward()
assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in trial.parameters())
### END HIDDEN TESTS

# %% [markdown]
# ## 4. The decoder (15 points)
#
# One step: attend with the state *before* the step, feed the previous word and the context to the GRU, and predict from
# the new state, the previous word and the context:
#
#     c_i, alpha_i = attention(s_{i-1});   s_i = GRU([y_{i-1}; c_i], s_{i-1});   logits = output([s_i; y_{i-1}; c_i])
#
# `word` is the embedded previous word `[B, E]`. Return the logits `[B, V]`, the new state `[B, N]` and the weights.


# %% answer decoder
class Translator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(len(english) + 4, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.first = nn.Linear(width, width)
        self.embed_target = nn.Embedding(len(french) + 4, width)
        self.attention = Attention(width, 2 * width, width)
        self.gru = nn.GRUCell(3 * width, width)
        self.output = nn.Linear(4 * width, len(french) + 4)

    def encode(self, source, mask):  # [B, S] -> states [B, S, 2N], keys, the first decoder state [B, N]
        lengths = mask.sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        backward = states[:, 0].chunk(2, -1)[1]
        return states, self.attention.remember(states), torch.tanh(self.first(backward))

    def step(self, word, state, keys, states, mask):
        ### BEGIN SOLUTION
        context, weights = self.attention(state, keys, states, mask)
        state = self.gru(torch.cat([word, context], -1), state)
        return self.output(torch.cat([state, word, context], -1)), state, weights
        ### END SOLUTION

    def forward(self, source, mask, target):  # teacher forcing: logits [B, T, V] and weights [B, T, S]
        states, keys, state = self.encode(source, mask)
        previous = torch.cat([torch.full((len(target), 1), START), target[:, :-1]], 1)
        logits, weights = [], []
        for word in self.embed_target(previous).unbind(1):
            scores, state, seen = self.step(word, state, keys, states, mask)
            logits.append(scores)
            weights.append(seen)
        return torch.stack(logits, 1), torch.stack(weights, 1)


# %% test decoder 15
torch.manual_seed(1)
model = Translator()
source, mask = batch([one.source for one in train[:5]], english)
target, _ = batch([one.target for one in train[:5]], french)
logits, weights = model(source, mask, target)
assert logits.shape == (*target.shape, len(french) + 4)
assert weights.shape == (*target.shape, source.shape[1])
assert torch.all(weights[~mask[:, None].expand_as(weights)] == 0)
### BEGIN HIDDEN TESTS
states, keys, state = model.encode(source, mask)
word = model.embed_target(target[:, 0])
got, after, seen = model.step(word, state, keys, states, mask)
e = torch.tanh(model.attention.W(state)[:, None] + keys) @ model.attention.v
alpha = torch.softmax(e.masked_fill(~mask, -1e9), -1)
c = (alpha[..., None] * states).sum(1)
s = model.gru(torch.cat([word, c], -1), state)
assert torch.allclose(seen, alpha, atol=1e-5), "the query must be the state before the step"
assert torch.allclose(after, s, atol=1e-5)
assert torch.allclose(got, model.output(torch.cat([s, word, c], -1)), atol=1e-4)
### END HIDDEN TESTS

# %% [markdown]
# ## Training
#
# Nothing to write here. It takes about a minute.

# %%
optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
shuffle = random.Random(1)
for update in range(1, updates(600) + 1):
    some = shuffle.sample(train, 32)
    source, mask = batch([one.source for one in some], english)
    target, _ = batch([one.target for one in some], french)
    logits, _ = model(source, mask, target)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    if update % 200 == 0:
        print(f"update {update}, loss {loss.item():.3f}")
model.eval()


# %%
def translate(sentence, longest=30):  # greedy
    with torch.no_grad():
        source, mask = batch([sentence], english)
        states, keys, state = model.encode(source, mask)
        word, words = torch.tensor([START]), []
        for _ in range(longest):
            logits, state, _ = model.step(model.embed_target(word), state, keys, states, mask)
            word = logits.argmax(-1)
            if word.item() == END:
                break
            words.append(french_words.get(word.item(), "?"))
    return " ".join(words)


for one in test[:3]:
    print(one.source, "->", translate(one.source))

# %% [markdown]
# ## 5. Links and their error rate (15 points)
#
# `links(weights)` takes the weights `[T, S]` of one sentence pair and returns a set of links `(s, t)`: each target word
# is linked with the source word that has the largest weight. `aer(found, sure)` takes two lists of sets, one for each
# sentence pair. Sum the counts over all pairs before you divide; here all links are sure:
#
#     AER = 1 - 2 |A and S| / (|A| + |S|)


# %% answer links
def links(weights):
    ### BEGIN SOLUTION
    return {(int(s), t) for t, s in enumerate(weights.argmax(-1))}
    ### END SOLUTION


def aer(found, sure):
    ### BEGIN SOLUTION
    both = sum(len(a & s) for a, s in zip(found, sure, strict=True))
    return 1 - 2 * both / (sum(map(len, found)) + sum(map(len, sure)))
    ### END SOLUTION


# %% test links 15
assert links(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.6, 0.4]])) == {(1, 0), (0, 1), (0, 2)}
assert abs(aer([{(0, 0), (1, 1)}], [{(0, 0), (1, 1)}])) < 1e-9
assert abs(aer([{(0, 0), (1, 1)}], [{(0, 0), (1, 0)}]) - 0.5) < 1e-9
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 3)
w = torch.rand(6, 4, generator=draw)
assert links(w) == {(int(row.argmax()), t) for t, row in enumerate(w)}
pairs = [[{(int(i), int(j)) for i, j in torch.randint(4, (n, 2), generator=draw)} for n in (3, 9, 5)] for _ in range(2)]
hits = sum(len(a & b) for a, b in zip(*pairs, strict=True))
sizes = sum(len(one) for side in pairs for one in side)
assert abs(aer(*pairs) - (1 - 2 * hits / sizes)) < 1e-9, "sum the counts over the pairs before you divide"
### END HIDDEN TESTS

# %% [markdown]
# ## 6. The trained model (10 points)
#
# Measure the error rate on the test set: force the reference translation (`model(source, mask, target)`), drop the row
# and the column of the end mark, and compare with the correct links. For comparison, the diagonal links word t with
# word t. `model_aer` and `diagonal_aer` are your two numbers. `exact` is the share of test sentences that your model
# translates exactly.


# %% answer trained
def attended(one):  # the weights [T, S] of a sentence pair, without the end marks
    with torch.no_grad():
        source, mask = batch([one.source], english)
        target, _ = batch([one.target], french)
        return model(source, mask, target)[1][0, :-1, :-1]


correct = [set(one.alignment) for one in test]
### BEGIN SOLUTION
model_aer = aer([links(attended(one)) for one in test], correct)
diagonal = [{(t, t) for t in range(min(len(one.source.split()), len(one.target.split())))} for one in test]
diagonal_aer = aer(diagonal, correct)
exact = sum(translate(one.source) == one.target for one in test) / len(test)
### END SOLUTION
print(f"AER {100 * model_aer:.1f}, of the diagonal {100 * diagonal_aer:.1f}; {100 * exact:.0f} % exact")

# %% test trained 10
assert 0 <= model_aer <= 1
assert 0 <= exact <= 1
### BEGIN HIDDEN TESTS
pairs = [(attended(one), set(one.alignment)) for one in test]
a = [{(int(row.argmax()), t) for t, row in enumerate(w)} for w, _ in pairs]
counts = sum(len(one) for one in a) + sum(len(one.alignment) for one in test)
right = 1 - 2 * sum(len(one & sure) for one, (_, sure) in zip(a, pairs, strict=True)) / counts
assert abs(model_aer - right) < 1e-6
assert model_aer < diagonal_aer
assert exact > 0.3, "the model has not learned"
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Looking (10 points)
#
# Draw the weights of one test sentence whose word order changes, and of one that your model gets wrong, if there is
# one. `Trace.from_arrays` takes the words of both sides and the weights.

# %%
example = max(test, key=lambda one: sum(abs(i - j) for i, j in one.alignment) / len(one.alignment))
trace = regard.Trace.from_arrays(
    example.source.split(), example.target.split(), attended(example).numpy(), kind="cross"
)
picture(trace.draw(folder / "attention.svg"))

# %% [markdown] answer looking 10
# Describe in two to four sentences what you see in your two pictures.

# %% [markdown] answer report 15
# ## 8. Report (15 points)
#
# At most 300 words. (a) Compare your error rate with the diagonal's, and explain which links are still wrong, with an
# example. (b) Which target words have no sharp row, and why? (c) The model was trained without links. Why does it learn
# them, and when would a good translator not?
