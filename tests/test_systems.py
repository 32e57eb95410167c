"""Coverage, copying, monotonic attention, distances and shared keys: each is its paper's equations (those of the
Transformer in test_models_papers.py), learns, and shows what it adds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import papers
import pytest
import torch
from torch import Tensor, nn
from weights_of import array, bahdanau_of, coverage_of, pointer_of, spread

import regard
from regard.api.tracing import assemble, trace_forward
from regard.api.training import gather
from regard.core.normalise import ForwardOnly
from regard.corpora.registry import find_builtin
from regard.data.batching import Batch
from regard.errors import ConfigError
from regard.look.record import record
from regard.look.tokens import as_side
from regard.look.trace import Trace
from regard.models.contract import shift_right
from regard.models.coverage import Coverage, CoverageConfig
from regard.models.encdec import Sutskever, SutskeverConfig
from regard.models.monotonic import Monotonic, MonotonicConfig
from regard.models.pointer import Pointer, PointerConfig
from regard.models.transformer import VARIANTS, Transformer
from regard.runs.experiment import resolve
from regard.runs.settings import TrainConfig
from regard.symbols import END, PAD, START, UNKNOWN
from regard.training.objectives import coverage_loss
from regard.training.start import train as begin
from regard.training.translation import TranslationTask

SOURCE = torch.tensor([[5, 7, 4, 9, 6, END], [8, 6, 5, END, PAD, PAD]])
LENGTHS = torch.tensor([6, 4])
TARGET = torch.tensor([[4, 10, 12, 7, END], [6, 4, END, PAD, PAD]])
SIZES = {"source_vocabulary": 11, "target_vocabulary": 13, "embedding": 5, "width": 4, "attention": 6, "readout": 3}
COVERAGE = CoverageConfig(**SIZES, coverage_width=2)
MONOTONIC = MonotonicConfig(**SIZES)
POINTER = PointerConfig(13, 13, embedding=5, width=4, attention=6)


def close(ours: Tensor, reference: np.ndarray) -> bool:
    return np.allclose(array(ours), np.asarray(reference), atol=1e-9, rtol=0.0)


def run(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Logits [B, T, V] and the weights [B, T, S] of the attention to the source."""
    with torch.no_grad(), record(model) as seen:
        logits = model(SOURCE, LENGTHS, TARGET)
    return logits, seen[model.attention_layout.cross[0]].weights


def sentences():
    """Row, source ids without padding, the ids the decoder reads."""
    for b, length in enumerate(LENGTHS.tolist()):
        yield b, SOURCE[b, :length].tolist(), shift_right(TARGET)[b].tolist()


def read_source(w, source, n):
    """Annotations and s_0 of RNNsearch."""
    h, _, back = papers.bigru_encoder([w.E_x[:, x] for x in source], *w.directions, n)
    return h, papers.bahdanau_start(back, w)


# --- coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "fertility"), [("linguistic", 2.0), ("linguistic", 0.0), ("neural", 2.0)])
def test_coverage_is_the_papers(kind: str, fertility: float):
    torch.manual_seed(5)
    model = spread(Coverage(replace(COVERAGE, coverage=kind, fertility=fertility)))
    logits, weights = run(model)
    w = coverage_of(model)
    for b, source, read in sentences():
        want = papers.coverage(*read_source(w, source, COVERAGE.width), [w.E_y[:, y] for y in read], w, kind)
        assert close(weights[b, :, : len(source)], want.alpha)
        assert close(logits[b], want.logits)


@torch.no_grad()
def test_coverage_without_fertility_is_the_sum_of_the_weights():
    """sum_j C_ij = i, and a word that gets no more weight keeps its coverage."""
    torch.manual_seed(5)
    model = spread(Coverage(replace(COVERAGE, coverage="linguistic", fertility=0.0)))
    state = model.start(model.encode(SOURCE, LENGTHS))
    for i, token in enumerate(shift_right(TARGET).unbind(1)):
        assert close(state.coverage.sum((1, 2)), np.full(2, float(i)))
        assert (state.coverage[1, 4:] == 0).all()
        _, state = model.step(token, state)


def test_coverage_loss_is_the_papers():
    """Of the real words only; 0 for the first word and for disjoint supports; at most 1 a word."""
    torch.manual_seed(5)
    weights = torch.rand(2, 5, 6, dtype=torch.float64).softmax(-1)
    words = TARGET != PAD
    want = sum(papers.coverage_loss(array(weights[b, : int(words[b].sum())])) for b in range(2))
    assert float(coverage_loss(weights, words)) == pytest.approx(want, abs=1e-6)
    assert 0 < want < int(words.sum()) - 2
    assert coverage_loss(weights[:, :1], words[:, :1]) == 0
    assert coverage_loss(torch.eye(5).expand(2, 5, 5), words) == 0
    assert float(coverage_loss(torch.ones(2, 5, 1), words)) == int(words.sum()) - 2


def looked(model: nn.Module, row: int = 1) -> Trace:
    """The trace of a sentence of three words, with END."""
    with torch.no_grad(), record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    return assemble(model, seen, as_side(["the", "black", "cat", "</s>"]), as_side(["chat", "noir", "</s>"]), row)


def test_look_shows_the_coverage():
    torch.manual_seed(5)
    trace = looked(spread(Coverage(COVERAGE)))
    total = trace.attention["decoder.attention"].weights[0].sum(0)
    line = f"coverage: the {total[0]:.2f}, black {total[1]:.2f}, cat {total[2]:.2f}, </s> {total[3]:.2f}\n"
    assert trace.to_terminal(colour=False).endswith(line)
    assert sum(total) == pytest.approx(3)


def test_training_adds_the_coverage_loss():
    """As many times as the settings say; a model that sees one vector is refused."""
    torch.manual_seed(5)
    model = spread(Coverage(COVERAGE))
    batch = Batch(torch.arange(2), SOURCE, LENGTHS, TARGET, torch.tensor([5, 3]))
    plain, added = (
        TranslationTask.loss(SimpleNamespace(config=TrainConfig(coverage=weight)), model, batch).total
        for weight in (0.0, 2.0)
    )
    assert close(added - plain, 2 * array(coverage_loss(run(model)[1], TARGET != PAD)))
    with pytest.raises(ConfigError, match=r"train\.coverage needs attention over the source words"):
        TranslationTask.ready(
            SimpleNamespace(config=TrainConfig(coverage=1.0)), Sutskever(SutskeverConfig(11, 13, width=4, layers=1))
        )


# --- copying ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shortlist", [0, 7])
def test_pointer_is_the_papers(shortlist: int):
    """P(w) is a distribution; a word that occurs twice in the source gets both weights."""
    torch.manual_seed(5)
    model = spread(Pointer(replace(POINTER, shortlist=shortlist)))
    twice = SOURCE.clone()
    twice[0, 3] = twice[0, 1]
    shares: list[Tensor] = []
    hook = model.generate.register_forward_hook(lambda module, args, logit: shares.append(logit.sigmoid()))
    with torch.no_grad(), record(model) as seen:
        logits = model(twice, LENGTHS, TARGET)
    hook.remove()
    assert close(logits.exp().sum(-1), np.ones((2, 5)))
    for b, length in enumerate(LENGTHS.tolist()):
        read = shift_right(TARGET)[b].tolist()
        want, weights, p_gen = papers.pointer(
            twice[b, :length].tolist(), read, pointer_of(model), POINTER.width, shortlist
        )
        assert close(logits[b].exp(), want)
        assert close(seen["attention"].weights[b, :, :length], weights)
        assert close(shares[0][b, :, 0], p_gen)


def test_what_is_not_in_the_shortlist_is_pointed_at_or_unknown():
    """Words outside of the shortlist and of the source are as likely as the unknown one; one in the source is more."""
    torch.manual_seed(5)
    model = spread(Pointer(replace(POINTER, shortlist=7)))
    with torch.no_grad():
        found = model(torch.tensor([[5, 9, 8, END]]), torch.tensor([4]), TARGET[:1]).exp()[0]  # [T, V]
    assert close(found.sum(-1), np.ones(5))
    assert close(found[:, [7, 10, 11, 12]], array(found[:, [UNKNOWN]].expand(-1, 4)))
    assert (found[:, [8, 9]] > 1.01 * found[:, [7]]).all()
    for size in (3, 13):
        with pytest.raises(ConfigError, match=rf"model\.shortlist must be above 3.* of 13 words; got {size}"):
            Pointer(replace(POINTER, shortlist=size))


def test_pointer_needs_one_vocabulary():
    with pytest.raises(ConfigError, match=r"one vocabulary for both languages; got 11 and 13 words"):
        Pointer(replace(POINTER, source_vocabulary=11))


def test_look_shows_what_was_copied():
    torch.manual_seed(5)
    model = spread(Pointer(POINTER))
    source, target = as_side(["Melu", "saw", "Zo", "</s>"]), as_side(["Zo", "vu", "</s>"])
    inputs, written = (torch.tensor([[5, 7, 6, END]]), torch.tensor([4])), [6, 9, END]
    vocabulary = SimpleNamespace(pieces=lambda ids: ["?"])
    trace = trace_forward(model, inputs, written, source, vocabulary, topk=1, target=target)
    p_gen = papers.pointer([5, 7, 6, END], [START, 6, 9], pointer_of(model), POINTER.width)[2]
    words = ", ".join(f"{word} {1 - share:.2f}" for word, share in zip(("Zo", "vu", "</s>"), p_gen, strict=True))
    assert trace.to_terminal(colour=False).endswith(f"\ncopied: {words}\n")
    assert not model.generate._forward_hooks
    unknown = replace(trace, target=as_side(["<unk>", "vu", "</s>"]))  # it stands for the word that it points at
    at = trace.attention["attention"].weights[0, 0].argmax()
    copied = words.replace("Zo ", f"<unk> ({trace.source.tokens[at].text}) ")
    assert unknown.to_terminal(colour=False).endswith(f"\ncopied: {copied}\n")
    seen = trace.attention["attention"]
    blind = replace(unknown, attention={"attention": replace(seen, weights=0 * seen.weights)})
    assert "copied: <unk> 0" in blind.to_terminal(colour=False)


# --- monotonic attention ---------------------------------------------------------------------------------------------


def monotonic(test: str = "hard") -> Monotonic:
    """A model that stops at several words: scores are spread around zero."""
    torch.manual_seed(37)
    model = spread(Monotonic(replace(MONOTONIC, test=test)))
    with torch.no_grad():
        model.decoder.attention.score.g.fill_(3.0)
        model.decoder.attention.score.r.fill_(-1.0)
    return model


@pytest.mark.parametrize(
    ("test", "weights"), [("hard", papers.monotonic_stop), ("expectation", papers.monotonic_weights)]
)
def test_monotonic_attention_is_the_papers(test: str, weights):
    model = monotonic(test)
    logits, seen = run(model)
    w, score = bahdanau_of(model), model.decoder.attention.score
    w["align"] |= {"g": array(score.g), "r": array(score.r), "b_a": array(score.b)}
    for b, source, read in sentences():
        want = papers.monotonic(*read_source(w, source, MONOTONIC.width), [w.E_y[:, y] for y in read], w, weights)
        assert close(seen[b, :, : len(source)], want.alpha)
        assert close(logits[b], want.logits)
    places = seen[0].argmax(-1)
    assert seen[0].any(-1).all()
    assert places.unique().numel() > 1
    assert test == "expectation" or (places.diff() >= 0).all()


def test_monotonic_weights_do_not_underflow_and_agree_when_sure():
    """200 slots that are passed with certainty; scores far from zero, where the expectation is the choice."""
    scores = torch.full((1, 1, 200), -50.0)
    scores[..., 150] = 50.0
    previous = (torch.arange(200) == 3).float()[None, None]
    for hard in (True, False):
        normalise = ForwardOnly(hard=hard).eval()
        assert torch.allclose(normalise(scores, None, previous), (torch.arange(200) == 150).float())
        assert not normalise(scores, None, torch.zeros_like(previous)).any()
    noisy = [ForwardOnly(noise=2.0).train()(torch.zeros(1, 1, 200), None, previous) for _ in range(2)]
    assert not torch.equal(*noisy)
    assert all((one.sum() <= 1 + 1e-5) and not one[..., :3].any() for one in noisy)


def test_look_shows_where_attention_stopped():
    trace = looked(monotonic())
    weights = trace.attention["decoder.attention"].weights[0]
    words = ["the", "black", "cat", "</s>"]
    places = [words[row.argmax()] if row.any() else "nowhere" for row in weights]
    line = f"\nstopped: chat at {places[0]}, noir at {places[1]}, </s> at {places[2]}\n"
    assert trace.to_terminal(colour=False).endswith(line)


# --- variants of the Transformer --------------------------------------------------------------------------------------


def transformer(variant: str) -> Transformer:
    torch.manual_seed(5)
    sizes = {"source_vocabulary": 13, "target_vocabulary": 13, "width": 8, "inner": 10}
    return spread(Transformer(replace(VARIANTS[variant], **sizes)))


@pytest.mark.parametrize("positions", ["relative", "alibi"])
def test_look_shows_the_weight_by_distance(positions: str):
    """The mean over layers, heads and words; nothing lies after a word in the decoder, nor beyond three words."""
    trace = looked(transformer(positions))
    encoder, decoder = (
        np.mean([trace.attention[f"{stack}.{k}.self_attention.attention"].weights.mean(0) for k in range(2)], axis=0)
        for stack in ("encoder", "decoder")
    )
    across = ", ".join(f"{d:+d} {np.mean([encoder[i, i + d] for i in range(max(0, -d), min(4, 4 - d))]):.2f}"
                       for d in range(-3, 4))  # fmt: skip
    back = ", ".join(f"{d:+d} {np.mean([decoder[i, i + d] for i in range(-d, 3)]):.2f}" for d in range(-2, 1))
    said = trace.to_terminal(colour=False)
    assert said.endswith(
        f"\nweight by distance in the encoder ({positions}): {across}\n"
        f"weight by distance in the decoder ({positions}): {back}\n"
    )


def test_look_shows_which_heads_share_keys():
    trace = looked(transformer("grouped"))
    assert trace.to_terminal(colour=False).endswith("\nheads that share keys: 0 1, 2 3\n")
    for count in (0, 4, 7, -1, True, "two"):  # of a file; four heads have one each
        assert "share" not in replace(trace, model={"key_heads": count}).to_terminal(colour=False)
    assert "share" not in looked(transformer("rms")).to_terminal(colour=False)


# --- built-in corpora ------------------------------------------------------------------------------------------------


def test_names_are_copied_and_mostly_new():
    examples = find_builtin("names").generate(2_000, 1, 3, 12)
    named = [{word for word in one.source.split(" ") if word[0].isupper()} for one in examples]
    for one, names in zip(examples, named, strict=True):
        assert names
        assert names == {word for word in one.target.split(" ") if word[0].isupper()}
        words, written = one.source.split(" "), one.target.split(" ")
        assert all((words[i] == written[j]) == (words[i] in {*names, ".", "?"}) for i, j in one.alignment)
    known = set().union(*named[:1_900])
    held_out = set().union(*named[1_900:])
    assert len(held_out - known) > 0.8 * len(held_out)


def test_questions_have_the_last_place_of_the_person():
    for one in find_builtin("questions").generate(500, 1, 3, 12):
        *sentences, question = one.source.split(" . ")
        person = question.split(" ")[2]
        facts = [fact.split(" ") for fact in sentences]
        assert one.target == {fact[0]: fact[-1] for fact in facts}[person]
        ((place, answer),) = one.alignment
        assert one.source.split(" ")[place] == one.target
        assert answer == 0
        assert one.source.split(" ")[place:].count(person) == 1  # in the question


WORDS = "data.subwords=word"
LEARNED = {  # model, corpus, longest sentence, updates, how many of 100 new sentences must be right, settings
    "names": ("pointer", "names", 12, 200, 90, ["data.vocabulary=400"]),
    "summaries": ("pointer", "summaries", 12, 150, 90, [WORDS]),
    # It must compare the person of the question with those of the story, which it cannot with small first weights.
    "questions": ("pointer", "questions", 12, 200, 90, [WORDS]),
    "britz": ("britz", "phrasebook", 6, 250, 40, [WORDS]),
    "coverage": ("coverage", "phrasebook", 6, 400, 40, [WORDS, "train.coverage=0.1"]),
    "monotonic": ("monotonic", "copy", 8, 400, 90, [WORDS]),
    "relative": ("transformer", "phrasebook", 6, 250, 30, [WORDS, "model.positions=relative"]),
    "alibi": ("transformer", "phrasebook", 6, 400, 50, [WORDS, "model.positions=alibi"]),
    "modern": (
        "transformer", "phrasebook", 6, 400, 50,
        [WORDS, "model.norm=pre", "model.layer_norm=rms", "model.positions=rotary", "model.activation=swiglu",
         "model.inner=170", "model.key_heads=2"],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("system", LEARNED)
def test_a_tiny_system_learns_its_corpus(system: str, tmp_path):
    """In about a minute on one core; sentences that are not in the corpus are translated greedily."""
    model, corpus, longest, updates, least, settings = LEARNED[system]
    settings = [f"data.max_words={longest}", f"train.steps={updates}", "train.batch_tokens=1024", *settings]
    settings += ["data.size=6000", "data.held_out=200"]
    begin(resolve(gather(None, model, "tiny", settings, corpus=corpus)), tmp_path / "run")
    new = find_builtin(corpus).generate(100, 78, 3, longest)
    found = regard.load(tmp_path / "run").translate([one.source for one in new], beam=1, split=False)
    assert sum(each.text == one.target for each, one in zip(found, new, strict=True)) > least


def test_summaries_say_what_each_does_with_what_is_theirs():
    for one in find_builtin("summaries").generate(500, 1, 3, 12):
        words, clauses = one.source.split(" "), [clause.split(" ") for clause in one.target.split(" ; ")]
        first = " ".join(words[: words.index("so")]).rstrip(" ,").split(" , ")
        assert [(clause[0], clause[2]) for clause in clauses] == [(c.split(" ")[0], c.split(" ")[2]) for c in first]
        assert all(words[i] == one.target.split(" ")[j] for i, j in one.alignment)
