"""Documents and language models, from training to use, through Python and the command line."""

import json
import tempfile
from pathlib import Path

import commands
import pytest

import regard
from regard.corpora.reviews import generate
from regard.errors import DataError, RunError

FEW = ["train.steps=4", "train.batch_tokens=600", "train.validate_sentences=4"]


def command(*arguments, text=""):
    """A process where a command reads standard input, else here."""
    if not text:
        done = commands.run_here(*arguments)
        return done.code, done.out, done.err
    with tempfile.TemporaryDirectory() as folder:
        done = commands.regard(*arguments, folder=Path(folder), stdin=text.encode())
        return done.code, done.out, done.err


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    out = tmp_path_factory.mktemp("reviews") / "run"
    settings = [*FEW, "data.size=60", "data.held_out=6"]
    return out, regard.train(corpus="reviews", model="document", preset="tiny", out=out, settings=settings)


@pytest.fixture(scope="module")
def tales(tmp_path_factory):
    out = tmp_path_factory.mktemp("tales") / "run"
    settings = [*FEW, "data.size=80", "data.held_out=8", "data.subwords=word"]
    return out, regard.train(corpus="tales", model="attentive-lm", preset="tiny", out=out, settings=settings)


def test_a_document_gets_a_class_and_shows_its_sentences(reviews):
    _, classifier = reviews
    text = "The acting is dreadful. Then the captain leaves."
    found = classifier.classify(text)
    assert found.label in found.probabilities
    assert sum(found.probabilities.values()) == pytest.approx(1)
    trace = classifier.look(text)
    assert sum(one.weight for one in trace.sentences) == pytest.approx(1, abs=1e-5)
    assert [text[one.start : one.end] for one in trace.sentences] == [
        "The acting is dreadful.",
        "Then the captain leaves.",
    ]
    assert trace.probabilities == pytest.approx(found.probabilities)


def test_an_empty_document_has_no_class(reviews):
    with pytest.raises(DataError, match="at least one word"):
        reviews[1].classify(" \u00a0 ")


def test_classify_on_the_command_line(reviews, tmp_path):
    out, classifier = reviews
    texts = "The plot is great.\nNothing here is good.\n"
    code, said, _ = command("classify", out, "--out", tmp_path / "x.html", text=texts)
    labels = [line.split("\t")[0] for line in said.split("\n")[:2]]
    assert code == 0
    assert labels == [classifier.classify(line).label for line in texts.split("\n")[:2]]
    assert "great" in (tmp_path / "x.html").read_text()
    assert command("classify", out, "The plot is great.")[1] == said.split("\n")[0] + "\n"
    code, _, message = command("classify", out, "missing.txt")
    assert (code, message.startswith("regard: There is no file missing.txt")) == (2, True)
    assert "nothing to classify in an empty text" in command("classify", out, "")[2]


def test_an_empty_line_has_no_class_and_keeps_its_place(reviews, tmp_path):
    out, _ = reviews
    file = tmp_path / "texts"
    file.write_text("the plot is great.\n\n \nthe plot is poor.\n")
    code, said, message = command("classify", out, file)
    assert (code, message) == (0, "")
    assert [bool(line) for line in said.split("\n")] == [True, False, False, True, False]
    _, said, message = command("classify", out, file, "--json", "--out", tmp_path / "y.html")
    assert message.startswith("drawn: ")
    code, _, message = command("classify", out, file, "--json", "--look")
    assert code == 2
    assert "--look cannot be combined with --json" in message
    assert [len(json.loads(line)) for line in said.split("\n")[:-1]] == [2, 0, 0, 2]
    file.write_text("")
    assert command("classify", out, file, "--out", tmp_path / "x.html")[0] == 2
    assert command("classify", out, file, "--out", tmp_path / "no" / "x.html")[0] == 2


def test_documents_are_scored_on_the_command_line(reviews, tmp_path):
    out, classifier = reviews
    made = generate(20, seed=7)
    file = tmp_path / "test.tsv"
    file.write_text("".join(f"{one.label}\t{one.text}\n" for one in made) + f"{made[0].label}\t \n")
    code, said, _ = command("score", out, "--documents", file, "--bag-of-words")
    answers = [classifier.classify(one.text).label for one in made]
    right = sum(answer == one.label for answer, one in zip(answers, made, strict=True))
    first, second = said.split("A linear classifier of words and word pairs: ")
    assert code == 0
    assert first.startswith(f"accuracy {right / 20:.3f}, 20 documents"), "the one without a word is left out"
    assert second.startswith(("accuracy 0.", "accuracy 1."))
    for true, row in classifier.score(file).confusion.items():
        for label, count in row.items():
            assert count == sum(
                one.label == true and label == answer for one, answer in zip(made, answers, strict=True)
            )
    file.write_text("nobody knows\tthe plot is great.\n")
    code, _, message = command("score", out, "--documents", file)
    assert code == 2
    assert "nobody knows" in message
    file.write_text("".join(f"{one.label}\t{one.text}\n" for one in made))
    found = json.loads(command("score", out, "--documents", file, "--bag-of-words", "--json")[1])
    assert (found["accuracy"], found["documents"]) == (right / 20, 20)
    assert found["confusion"] == classifier.score(file).confusion
    assert found["bag_of_words"]["documents"] == 20
    code, _, message = command("score", out)
    assert code == 2
    assert "--documents" in message


def test_a_language_model_measures_and_writes(tales):
    out, writer = tales
    assert "dev_last_word" in (out / "metrics.jsonl").read_text()
    lines = ["anna has flutes", "tom likes drums"]
    value, tokens = writer.perplexity(lines)
    assert value > 1
    assert tokens == sum(len(line.split()) + 1 for line in lines)  # ends of lines are tokens
    first = writer.generate("anna", count=3, longest=5)
    assert first == writer.generate("anna", count=3, longest=5)
    assert all(text.startswith("anna") for text in first)
    assert len(set(first)) > 1
    trace = writer.look("anna has flutes")
    assert len(trace.target.tokens) == 4


def test_language_on_the_command_line(tales):
    code, said, _ = command("perplexity", tales[0], text="anna has flutes\n")
    assert code == 0
    assert said.startswith("perplexity ")
    assert "4 tokens" in said
    found = json.loads(command("perplexity", tales[0], "--json", text="anna has flutes\n")[1])
    value, tokens = tales[1].perplexity(["anna has flutes"])
    size = len(tales[1].vocabulary)
    expected = {"run": "run", "perplexity": value, "tokens": tokens, "subwords": "word", "vocabulary": size}
    assert found == pytest.approx(expected)
    code, said, _ = command("generate", tales[0], "anna", "--count", 2, "--longest", 3)
    assert code == 0
    assert len(said.split("\n")) == 3


@pytest.mark.parametrize(
    ("model", "corpus"), [("document", "reviews"), ("attentive-lm", "tales"), ("captioner", "shapes")]
)
def test_without_held_out_text_the_last_weights_count(model, corpus, tmp_path):
    settings = ["data.held_out=0", "data.size=20", "train.steps=3", "train.save_every=1", "train.validate_every=1"]
    regard.train(corpus=corpus, model=model, preset="tiny", out=tmp_path / "run", settings=settings)
    assert "dev_" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    last = tmp_path / "run" / "checkpoints" / "000003" / "weights.safetensors"
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == last.read_bytes()


def test_a_run_of_another_task_is_refused(tales, reviews):
    code, _, message = command("classify", tales[0], text="x\n")
    assert code == 2
    assert "'language'" in message
    assert "'classify'" in message
    from regard.api.loading import load

    with pytest.raises(RunError, match="task 'classify'; this needs one for 'caption'"):
        load(reviews[0], task="caption")
