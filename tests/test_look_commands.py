"""`regard look`, `caption`, `reach` and the demos on runs of every task, from the command line."""

import json
import re

import pytest
import trained
from commands import SmallDemo, run_here
from commands import regard as command
from test_look_html import held

from regard.corpora import shapes
from regard.data.images import encode_png
from regard.look import Trace
from regard.look.documents import DocumentTrace

LINE = "anna has flutes and tom has drums"
REVIEW = "The plot is not bad. Then the captain leaves."


@pytest.fixture
def regard_command(tmp_path):
    def tell(*arguments):
        done = run_here(*arguments)
        return done.code, done.out, done.err

    return tell


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "scene.png"
    path.write_bytes(encode_png(shapes.draw_scene(shapes.scene(1))))
    return path


def test_a_language_model_shows_what_it_looked_back_at(regard_command, tmp_path):
    run = trained.run("language")
    code, out, err = regard_command("look", run, LINE)
    assert code == 0, err
    assert "decoder self-attention" in " ".join(out.split())
    assert "hidden" not in out, "<s> is shown: the first rows have nothing else to attend to"
    unseen = "note: the text holds characters or words that were never seen in training: z\n"
    assert regard_command("look", run, "anna has zebras")[2] == unseen
    code, out, err = regard_command("look", run, LINE, "--view", "ribbons", "--out", tmp_path / "a.svg")
    assert code == 0, err
    assert regard_command("look", run, LINE, "--out", tmp_path / "a.json")[0] == 0
    assert Trace.load(tmp_path / "a.json").target.text == LINE


def test_the_name_of_a_file_is_a_text_with_a_note(regard_command, tmp_path):
    file = tmp_path / "text.md"
    file.write_text(LINE, encoding="utf-8")
    code, _, err = regard_command("look", trained.run("language"), file)
    assert code == 0
    assert err.startswith(f"note: {file} is read as the text itself, not as a file; pass a sentence of it\n")
    assert regard_command("look", trained.run("language"), LINE)[2] == ""


def test_a_document_model_shows_its_sentences(regard_command, tmp_path):
    run = trained.run("classifier")
    code, out, err = regard_command("look", run, REVIEW)
    assert code == 0, err
    assert "positive 0." in out
    assert "captain" in out
    for name in ("a.html", "a.json"):
        assert regard_command("look", run, REVIEW, "--out", tmp_path / name)[0] == 0
    assert "captain" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert DocumentTrace.load(tmp_path / "a.json").text == REVIEW


def test_a_captioner_shows_its_picture_with_a_map_for_each_word(regard_command, picture, tmp_path):
    run = trained.run("captioner")
    code, out, err = regard_command("look", run, picture)
    assert code == 0, err
    caption = trained.model("captioner").caption(picture).text
    assert out.startswith(f"{caption}\n")
    assert "grid 4 x 4" in out
    for command_ in ("look", "caption"):
        for more in ([], ["--word", "0", "--smooth"], ["--cell", "1,1,2,2"]):
            code, _, err = regard_command(command_, run, picture, *more, "--overwrite", "--out", tmp_path / "a.html")
            assert code == 0, err
            page = (tmp_path / "a.html").read_text(encoding="utf-8")
            assert page.count("data:image/png;base64,") == 1
            assert held(page)["selection"]["smooth"] == ("--smooth" in more)
            assert ("Rows 2-3, columns 2-3: most attention from" in page) == ("--cell" in more)
    assert regard_command("caption", run, picture, "--out", tmp_path / "a.png")[0] == 0
    with_picture = (tmp_path / "a.png").read_bytes()
    trained.model("captioner").look(picture).draw(tmp_path / "bare.png", "film")
    assert with_picture != (tmp_path / "bare.png").read_bytes()
    code, out, err = regard_command("look", run, picture, "--mask", "1,2")
    assert code == 0, err
    assert out.startswith(f"unchanged: {caption}\nchanged:   ")
    assert "'row 1, column 2' masked" in " ".join(out.split())


def test_captions_and_their_score_as_json(regard_command, picture, tmp_path):
    run, writer = trained.run("captioner"), trained.model("captioner")
    code, out, err = regard_command("caption", run, picture, "--json", "--out", tmp_path / "a.png")
    assert code == 0, err
    assert err.startswith("drawn: ")
    expected = writer.caption(picture)
    found = json.loads(out)
    assert (found["image"], found["caption"], found["tokens"]) == (str(picture), expected.text, expected.tokens)
    assert found["token_logprobs"] == pytest.approx(expected.token_logprobs, abs=1e-5)
    code, out, err = regard_command("caption", run, picture, picture, "--json")
    assert code == 0, err
    assert [json.loads(line)["caption"] for line in out.split("\n")[:-1]] == [expected.text] * 2
    album = tmp_path / "album"
    album.mkdir()
    (album / "scene.png").write_bytes(picture.read_bytes())
    (album / "scene.txt").write_text(f"{expected.text}\n", encoding="utf-8")
    code, out, err = regard_command("score", run, "--images", album, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["bleu"][0] == pytest.approx(100)
    assert len(found["without_penalty"]) == 4
    assert "version:" in found["signature"]


def test_a_step_is_forced_from_the_command_line(regard_command):
    code, out, err = regard_command("look", trained.run("fixed"), "ba de fi go", "--force", "1=zu", "--force", "ba")
    assert code == 0, err
    assert out.split("\n")[1].startswith("changed:   ba zu")
    assert "changed: begins with 'ba', changed: step 1 writes 'zu'" in " ".join(out.split())


def test_an_attribution_is_drawn_also_of_an_empty_translation(regard_command):
    run = trained.run("lstmn")
    for options in (["--target", "ba fo"], ["--target", ""], ["--against", "ba"]):
        code, out, err = regard_command("look", run, "ba de", "--by", "occlusion-removed", *options)
        assert code == 0, err
        assert "attribution by occlusion-removed" in out
        assert ("\n</s>" in out) == ("" in options)  # the end mark is drawn where there is nothing else


def test_a_drawing_of_no_known_kind_is_refused_before_any_work(regard_command, picture, tmp_path):
    for given in (["caption", trained.run("captioner"), picture], ["classify", trained.run("classifier"), REVIEW]):
        code, out, err = regard_command(*given, "--out", tmp_path / "x.txt")
        assert (code, out) == (2, "")
        assert "must end in .png, .svg, .pdf or .html; got 'x.txt'" in err


def test_a_drawing_does_not_replace_what_it_is_made_of(regard_command, picture, tmp_path):
    before, page = picture.read_bytes(), tmp_path / "reviews.html"
    page.write_text(f"{REVIEW}\n")
    for given in (
        ["look", trained.run("captioner"), picture, "--out", picture],
        ["caption", trained.run("captioner"), picture, "--out", picture],
        ["classify", trained.run("classifier"), page, "--out", page],
    ):
        code, out, err = regard_command(*given)
        assert (code, out) == (2, "")
        assert "is also an input and would be overwritten; write to another file." in err
    assert (picture.read_bytes(), page.read_text()) == (before, f"{REVIEW}\n")


@pytest.mark.parametrize(
    ("run", "text", "more"),
    [
        ("fixed", "ba de fi go", ["--target", "ba de fi"]),
        ("fixed", "ba de fi go", ["--target", "ba de fi", "--view", "steps"]),
        ("language", LINE, []),
        ("captioner", None, ["--target", "a red circle"]),
    ],
)
def test_one_step_is_shown(run, text, more, regard_command, picture, tmp_path):
    for name, shown in (("a.svg", "step 2.*: after “"), ("a.html", '"t": ?2[,}]')):
        code, _, err = regard_command(
            "look", trained.run(run), text or picture, "--step", "2", *more, "--out", tmp_path / name
        )
        assert code == 0, err
        assert re.search(shown, (tmp_path / name).read_text(encoding="utf-8"))


def test_reach_tells_how_far_back_and_at_which_words(regard_command, tmp_path):
    (tmp_path / "text").write_text("anna has flutes\n" * 30, encoding="utf-8")
    run = trained.run("language")
    code, out, err = regard_command("reach", run, tmp_path / "text", "--farthest", "3")
    assert code == 0, err
    assert "mean distance" in out
    assert [line.split()[0] for line in out.split("\n")[1:5]] == ["0", "1", "2", "3+"]
    assert "most attended words, relative to uniform attention: " in out
    data = json.loads(regard_command("reach", run, tmp_path / "text", "--farthest", "3", "--json")[1])
    (found,) = data["modules"]
    assert sum(found["shares"]) == pytest.approx(1)
    assert data["run"] == str(run)
    assert data["farthest"] == len(found["shares"]) - 1 == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["look", "language", LINE, "--mask", "anna"], "--mask does not apply to a run of the task 'language'"),
        (["look", "language", LINE, "--view", "beam", "--out", "a.html"], "no search tree"),
        (["look", "classifier", REVIEW, "--head", "0"], "--head does not apply to a run of the task 'classify'"),
        (["look", "classifier", REVIEW, "--out", "a.txt"], "must end in .png"),
        (["look", "captioner", "nowhere.png"], "There is no picture nowhere.png"),
        (["look", "captioner", "PICTURE", "--word", "1"], "--word 1 needs a file to draw to; pass --out"),
        (["look", "captioner", "PICTURE", "--mask", "9,9"], "inside the grid of 4 x 4"),
        (["look", "captioner", "PICTURE", "--cell", "x", "--out", "a.png"], "Cells are ROW,COLUMN"),
        (["caption", "captioner", "PICTURE", "--cell", "9,9", "--out", "a.png"], "inside the grid of 4 x 4"),
        (["caption", "captioner", "PICTURE", "--word", "0", "--view", "film", "--out", "a.png"], "for --view picture"),
        (["caption", "captioner", "PICTURE", "--smooth"], "--smooth need --out"),
        (["look", "fixed", "ba", "--force", "9999=zu"], "Step 9999 cannot be forced"),
        (["look", "lstmn", "ba", "--temperature", "0"], "A temperature must be above zero"),
        (["look", "fixed", "ba", "--mask", "ba"], "has no attention to words (model sutskever); use a run of"),
        (["look", "lstmn", "ba", "--head", "7"], "has one head, 0."),
        (["look", "lstmn", "ba", "--by", "roll"], "There is no attribution method 'roll'. Did you mean 'rollout'?"),
        (["look", "lstmn", "ba", "--by", "alti"], "LSTMN has no Transformer layers, through which this method goes;"),
        (["look", "fixed", "ba", "--by", "attention"], "has no attention over the source words, but one vector"),
        (["look", "lstmn", "ba", "--by", "attention", "--against", "de"], "does not depend on the word that is"),
        (["look", "lstmn", "ba", "--against", "de"], "A word to compare with needs a method"),
        (["look", "lstmn", "ba", "--by", "gradient", "--against", "東"], "There is no word '東' in the target vocab"),
        (["look", "lstmn", "ba", "--by", "gradient", "--head", "0"], "--by draws an attribution; --layer, --head and"),
        (["look", "lstmn", "", "--by", "gradient"], "There is nothing to look at in an empty sentence"),
        (["look", "captioner", "PICTURE", "--word", "99", "--out", "a.png"], "There is no word 99: this caption has"),
        (["look", "fixed", "ba", "--force", "zu", "--force", "de"], "Pass at most one --force without STEP="),
        (["look", "fixed", "ba", "--step", "1"], "--step 1 needs a file to draw to; pass --out"),
        (["look", "fixed", "ba", "--step", "99", "--out", "a.png"], "There is no step 99: this trace has steps 0 to"),
        (["look", "fixed", "ba", "--step", "-1", "--out", "a.html"], "There is no step -1: this trace has steps 0 to"),
        (["look", "fixed", "ba", "--step", "1", "--view", "beam", "--out", "a.png"], "--step is for --view steps; got"),
        (
            ["look", "classifier", REVIEW, "--step", "1", "--out", "a.html"],
            "--step does not apply to a run of the task",
        ),
        (
            ["look", "fixed", "ba", "--word", "1", "--out", "a.png"],
            "--word does not apply to a run of the task 'translate'",
        ),
        (["flow", "language", LINE], "is a run for the task 'language'; this needs one for 'translate'"),
        (["align", "captioner", "--source", "FILE", "--target", "FILE"], "this needs one for 'translate'"),
        (["heads", "classifier", "--source", "FILE", "--target", "FILE"], "this needs one for 'translate'"),
        (["reach", "fixed", "FILE"], "is a run for the task 'translate'; this needs one for 'language'"),
        (["reach", "language", "EMPTY"], "There is no text"),
        (["classify", "fixed", "ba de"], "this needs one for 'classify'. Use `regard translate` or `regard look`."),
        (["translate", "language", "ba de"], "this needs one for 'translate'. Use `regard generate` or `regard look`."),
        (["translate", "fixed", "ba de", "--unknown", "copy"], "has no attention to words (model sutskever)"),
        (["translate", "fixed", "ba de", "--lexicon", "FILE"], "has no attention to words (model sutskever)"),
        (
            ["translate", "lstmn", "b d", "--with", "lstmn", "--unknown", "copy"],
            "An ensemble cannot copy unknown words",
        ),
        (["translate", "decode.beam=1", "--on", "local", "--out", "x"], "--on takes files and a folder"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(arguments, sentence, picture, tmp_path):
    (tmp_path / "file").write_text("ba\n", encoding="utf-8")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    known = {"PICTURE": picture, "FILE": tmp_path / "file", "EMPTY": tmp_path / "empty"}
    known |= {run: trained.run(run) for run in ("fixed", "lstmn", "language", "classifier", "captioner")}
    done = run_here(*(known.get(one, one) for one in arguments))
    assert done.code == 2, done.err
    assert done.err.startswith("regard: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("task", "says", "left"),
    [
        ("caption", "The attention of each word", "looked.png"),
        ("document", "A review not in the training data", "document.html"),
        ("language", "Samples:", "config.toml"),
    ],
)
def test_every_demo_runs_to_its_end(task, says, left, tmp_path):
    demo = "demo", "--task", task, "--minutes", 0.001, "--out", tmp_path / "run"
    done = command(*demo, folder=tmp_path / "log", plant=SmallDemo())
    assert done.code == 0, done.err
    assert says in done.out
    assert "What to try next" in done.out
    assert (tmp_path / "run" / left).stat().st_size > 0


def test_unknown_words_of_a_prefix_are_noted(regard_command):
    code, _, err = regard_command("generate", trained.run("language"), "anna 漢", "--count", "1")
    assert code == 0, err
    assert err == "1 character of the prefix is not in the vocabulary: 漢\n"


def test_the_advice_after_training_fits_the_task(regard_command, tmp_path):
    settings = ["train.steps=1", "train.batch_tokens=100", "data.size=40", "train.validate_sentences=0"]
    code, _, err = regard_command("train", "--corpus", "tales", "--model", "lstm-lm", "--preset", "tiny", "--out",
                        tmp_path / "run", *settings)  # fmt: skip
    assert code == 0, err
    assert f"Try: regard generate {tmp_path / 'run'}" in err
    assert "translate" not in err.split("Try: ")[1]
