"""Pictures: the right numbers in the right place, text as text, the same bytes again, and no string breaks them."""

import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from regard.errors import ConfigError
from regard.look import Beam, BeamNode, Picture, Show, Side, Trace
from regard.look.documents import DocumentTrace, SeenSentence
from regard.look.draw import beam, fonts, still, terminal
from regard.look.draw.ribbons import strongest
from regard.look.palette import PALETTES, ink_on, luminance, mix, parse, ramp
from regard.look.table import VIEWS
from regard.look.tokens import Token
from regard.text.visible import columns, label, visible

HOSTILE = [
    "</script><script>alert(1)</script>", "<!--", "]]>", "&amp;", '"', "'", "$x^2$", "$", "\\frac{1}{2}", "\x00",
    "\x1b[31m", "\ud800", "\udfff\ud800", "\u202eevil", "\u2066", "\ufeff", "\ufffe", "\U0010ffff", "\U000e0041",
    "\u200d", "", " ", "\n", "\u2028", "\u3000", "👨\u200d👩\u200d👧", "🏴\U000e0067\U000e0062\U000e007f", "🇩🇪",
    "e\u0301", "a" + "\u0301" * 300, "مرحبا", "שלום", "中文", "नमस्ते", "x" * 5000, "%s %d {0}", "\ue000", "_a", "#b",
]  # fmt: skip


def some_weights(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]) * 0.3, size=shape[:-1]).astype(np.float32)


def a_trace(
    source=("▁Das", "▁Haus", "▁ist", "▁gr", "oß", "</s>"),
    target=("the", "house", "is", "big", "</s>"),
    layers=2,
    heads=3,
):
    weights = some_weights(layers, heads, len(target), len(source))
    trace = Trace.from_arrays(list(source), list(target), weights, np.log(np.maximum(weights, 1e-20)), score="dot")
    tokens = [
        replace(token, logprob=-0.3, topk=((token.text, -0.3), (source[0], -2.0))) for token in trace.target.tokens
    ]
    nodes = [BeamNode(0, None, 0, "<s>", 0, 0, 0)]
    nodes += [
        BeamNode(at + 1, 0, 1, text, -0.5 - at, -0.5 - at, -0.5 - at, pruned=at > 1)
        for at, text in enumerate(target[:4])
    ]
    return replace(trace, target=Side(trace.target.text, tuple(tokens)), beam=Beam(2, tuple(nodes), (1,)))


TEXT_VIEWS = [view for view in VIEWS if view not in ("film", "picture", "region")]


@pytest.mark.parametrize(
    ("view", "ending"), [*((view, ".svg") for view in TEXT_VIEWS), ("matrix", ".png"), ("beam", ".pdf")]
)
def test_a_trace_read_back_draws_the_same_picture(view, ending, tmp_path):
    trace = a_trace()
    first = trace.draw(tmp_path / f"a{ending}", view=view).read_bytes()
    again = Trace.from_json(trace.to_json()).draw(tmp_path / f"b{ending}", view=view).read_bytes()
    assert first == again
    assert {path.name for path in tmp_path.iterdir()} == {f"a{ending}", f"b{ending}"}
    if ending == ".png":
        picture = imread(io.BytesIO(first))
        assert picture.shape[0] > 100
        assert picture.min() < 0.5 < picture.max(), "something was drawn"


def svg_of(trace, **options):
    view = options.pop("view", "matrix")
    return still.render(trace, ".svg", view, Show(**options)).decode("utf-8")


def texts_of(svg):
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_svg_text_is_text_and_squares_hold_the_numbers():
    trace = Trace.from_arrays(["eins", "zwei"], ["one", "two", "three"], [[0.9, 0.1], [0.25, 0.75], [0.0, 1.0]])
    svg = svg_of(trace)
    texts = texts_of(svg)
    assert [text for text in texts if text in ("eins", "zwei", "one", "two", "three")] == [
        "eins",
        "zwei",
        "one",
        "two",
        "three",
    ]
    assert [text for text in texts if re.fullmatch(r"\.\d\d|1", text)][:5] == [".90", ".10", ".25", ".75", "1"]
    fills = re.findall(r'id="QuadMesh_1">(.*?)</g>', svg, re.S)[0]
    found = [parse(colour) for colour in re.findall(r"fill: (#[0-9a-f]{6})", fills)]
    expected = [mix(PALETTES["blue"], weight) for weight in (0.9, 0.1, 0.25, 0.75, 0.0, 1.0)]
    assert np.abs(np.array(found) - np.array(expected)).max() <= 2, (
        "source across, target down, fixed scale from 0 to 1"
    )
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)
    assert "http" not in outside, "no address of anything"
    assert "<title>3 of 3 words give at least half of their weight" in svg


def test_the_scale_is_fixed():
    low = Trace.from_arrays(["a", "b"], ["x"], [[0.5, 0.5]])
    fills = re.findall(r'id="QuadMesh_1">(.*?)</g>', svg_of(low), re.S)[0]
    colours = {parse(colour) for colour in re.findall(r"fill: (#[0-9a-f]{6})", fills)}
    assert len(colours) == 1
    assert np.abs(np.array(colours.pop()) - np.array(mix(PALETTES["blue"], 0.5))).max() <= 2
    assert {"0", "0.5", "1", "weight"} <= set(texts_of(svg_of(low))), "the legend"


def test_right_to_left_columns_begin_at_the_right():
    trace = Trace.from_arrays(["שלום", "עולם"], ["hello", "world"], [[1.0, 0.0], [0.0, 1.0]])
    svg = svg_of(trace, numbers=False)
    first, second = (
        float(re.search(rf'(?:translate\(| x=")([\d.]+)[^>]*>{text}<', svg)[1]) for text in ("שלום", "עולם")
    )
    assert first > second


def test_arabic_is_joined_and_ordered():
    """Joined letters are narrower than the same letters kept apart, and the text runs from the right."""
    from matplotlib.figure import Figure

    def ink(text):
        drawing = Figure(figsize=(4, 1))
        drawing.text(0.5, 0.4, text, fontsize=30, ha="center", fontfamily=fonts.families([text]))
        buffer = io.BytesIO()
        drawing.savefig(buffer, format="png")
        buffer.seek(0)
        dark = np.argwhere(imread(buffer)[..., 0] < 0.5)[:, 1]
        return dark.max() - dark.min()

    assert ink("سلام") < 0.9 * ink("س\u200cل\u200cا\u200cم")
    assert ink("e\u0301") <= ink("e") + 2, "a combining mark stands on its letter"


def test_a_missing_script_is_said_once(monkeypatch, tmp_path):
    monkeypatch.setattr(fonts, "_warned", set())
    trace = Trace.from_arrays(["\U00012000"], ["\U00012001"], [[1.0]])  # cuneiform
    if len(fonts.families(["\U00012000"], warn=False)) > 1:
        pytest.skip("this system has a font for cuneiform")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace.draw(tmp_path / "a.png")
        trace.draw(tmp_path / "b.png")
        trace.draw(tmp_path / "c.svg")
    assert [str(one.message)[:30] for one in caught] == ["No font here holds 2 of the le"]


@pytest.mark.parametrize("view", TEXT_VIEWS)
def test_hostile_tokens_never_break_a_picture(view):
    trace = a_trace(HOSTILE[::2], HOSTILE[1::2], layers=1, heads=2)
    seen = replace(trace.attention["layers.0"], score="\x00</b>$", normalise="$\ud800$")
    trace = replace(trace, attention={"layers.0": seen})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fonts.FontWarning)
        svg = svg_of(trace, view=view, **({"special": True} if view in ("matrix", "ribbons", "heads") else {}))
        if view == "matrix":
            assert still.render(trace, ".png", view, Show(dpi=40))[:4] == b"\x89PNG"
            assert still.render(trace, ".pdf", view)[:4] == b"%PDF"
    text = "".join(texts_of(svg))
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ufffe\uffff]", text)


@given(st.text(st.characters(codec=None), max_size=30), st.integers(4, 20))
def test_any_string_becomes_a_visible_label(text, longest):
    shown = label(text, longest)
    assert shown
    assert columns(shown) <= longest
    shown.encode("utf-8")
    ElementTree.fromstring(f"<t>{shown.replace('&', '').replace('<', '')}</t>")
    assert "\n" not in shown
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in shown)


def test_labels_are_cut_between_letters():
    assert label("abcdefgh", 5) == "abcd…"
    assert label("e\u0301" * 9, 4) == "e\u0301" * 3 + "…"
    assert label("中文字典大", 5) == "中文…"
    assert visible("\u202ea") == "‹RLO›a"
    assert visible("می\u200cخواهم") == "می\u200cخواهم", "a joiner inside a word is part of the spelling"
    assert visible("👨‍👩‍👧") == "👨‍👩‍👧"
    assert visible(" a ") == "␣a␣"
    assert visible("") == "∅"


def test_many_cells_are_one_image_and_not_as_many_shapes():
    words = [f"word{at}" for at in range(61)]
    svg = svg_of(Trace.from_arrays(words, words, some_weights(61, 61)))
    assert svg.count("<image") > 0
    assert svg.count("<path") + svg.count("<use") < 100
    assert len(svg) < 500_000
    assert "word60" in texts_of(svg)


def test_longer_than_any_screen(tmp_path):
    words = [f"w{at}" for at in range(3000)]
    weights = np.zeros((5, 3000), dtype=np.float32)
    weights[:, 7] = 1
    svg = svg_of(Trace.from_arrays(words, [*"abcde"], weights))
    assert "each dot shows the largest of 3 x 3 weights" in " ".join(texts_of(svg))


@pytest.mark.parametrize(
    ("path", "options", "says"),
    [
        ("a.gif", {}, r"must end in .png, .svg, .pdf or .html; got 'a.gif'"),
        ("a", {}, "must end in"),
        ("a.png", {"view": "matirx"}, "Did you mean 'matrix'"),
        ("a.png", {"head": 9}, "There is no head 9"),
        ("a.svg", {"layer": 5}, "There is no layer 5"),
        ("a.png", {"palete": "blue"}, "no option 'palete' of the matrix view. Did you mean 'palette'"),
        ("a.png", {"palette": "rainbow"}, "There is no palette 'rainbow'"),
        ("a.png", {"dpi": 0}, "dpi must be"),
        ("a.png", {"view": "film"}, "these views are for captions"),
        ("a.png", {"view": "steps", "step": 99}, "There is no step 99"),
        ("a.html", {"view": "steps", "step": 99}, "There is no step 99: this trace has steps 0 to 4"),
        ("a.png", {"view": "ribbons", "mass": 0}, "mass must be above 0"),
        ("a.html", {"head": 9}, "There is no head 9"),
        ("a.html", {"heda": 0}, "no option 'heda' of the matrix page. Did you mean 'head'"),
        ("a.html", {"view": "picture"}, "these views are for captions"),
        ("no/folder/a.svg", {}, "could not be written"),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(path, options, says, tmp_path):
    with pytest.raises(Exception, match=says) as caught:
        a_trace().draw(tmp_path / path, **options)
    assert type(caught.value).__module__ == "regard.errors"
    assert not list(tmp_path.iterdir())


def test_a_forced_word_is_among_the_likely_ones_however_unlikely():
    likely = (("cat", -0.1), ("dog", -3.0))
    target = [Token("cat", "cat", logprob=-0.1, topk=likely), Token("ibex", "ibex", logprob=-2.0, topk=likely)]
    trace = Trace.from_arrays(["chat", "bouquetin"], target, some_weights(1, 1, 2, 2))
    shown = [texts_of(svg_of(trace, view="steps", step=step)) for step in (0, 1)]
    assert "ibex  0.14" in shown[1]
    assert sum(text.startswith("cat  ") for text in shown[0]) == 1, "and none stands there twice"


def test_all_heads_stand_between_their_words():
    source, target = ["Das", "Haus", "ist", "groß"], ["the", "house", "is"]
    trace = Trace.from_arrays(source, target, some_weights(2, 3, 3, 4))
    texts = texts_of(svg_of(trace, view="heads"))
    assert [text for text in texts if text in target] == target * 2, "once beside each layer"
    assert [text for text in texts if text in source] == source * 3, "once below each head of the last layer"
    assert "named" not in " ".join(texts)
    words = [f"word{at}" for at in range(90)]
    text = " ".join(texts_of(svg_of(Trace.from_arrays(words, words, some_weights(1, 8, 90, 90)), view="heads")))
    note = re.search(
        r"only every (\w+) target word and every (\w+) source word named, as there is no room for more", text
    )
    assert note, "what is left out is said"
    number = {"second": 2, "third": 3}.get(note[1]) or int(note[1].removesuffix("th"))
    assert [word for word in words if word in text.split()] == words[::number]


def test_names_beside_heads_do_not_overlap():
    """Two layers of eight heads, as long as such sentences are: every name has a separate line."""
    words = [f"w{at}" for at in range(26)]
    svg = svg_of(Trace.from_arrays(words, words[:24], some_weights(2, 8, 24, 26)), view="heads")
    size = r"font-size: ([\d.]+)px[^>]*"
    rows = re.findall(size + r'text-anchor: end[^>]*y="([\d.]+)"[^>]*>w\d+<', svg)
    columns = re.findall(size + r"translate\(([\d.]+) [\d.]+\) rotate\(-90\)[^>]*>w\d+<", svg)
    assert (len(rows), len(columns)) == (2 * 24, 8 * 26)
    for names in (rows, columns):
        assert (np.abs(np.diff([float(place) for _, place in names])) > float(names[0][0])).all()
    assert {f"w{at}" for at in range(26)} <= set(texts_of(svg)), "there is room for all"


@pytest.mark.parametrize("view", ["matrix", "ribbons", "heads", "steps"])
def test_empty_and_single_sentences_draw(view):
    single = Trace.from_arrays(["a"], ["b"], [[1.0]])
    assert still.render(single, ".png", view)[:4] == b"\x89PNG"
    only_end = Trace.from_arrays(["</s>"], ["</s>"], [[1.0]])
    assert still.render(only_end, ".png", view)[:4] == b"\x89PNG"


def test_text_for_a_page_or_a_terminal_checks_its_options_too():
    for act in (a_trace().to_html, a_trace().to_terminal):
        with pytest.raises(ConfigError, match="'titel'"):
            act(titel="x")


def test_nothing_to_draw_says_so():
    with pytest.raises(ConfigError, match="no search tree"):
        still.render(Trace.from_arrays(["a"], ["b"], [[1.0]]), ".png", "beam")


def test_what_was_changed_is_marked():
    trace = replace(a_trace(), changes=({"kind": "mask", "text": "source position 1 masked", "column": 1},))
    svg = svg_of(trace)
    assert re.search(r"bold[^>]*#d55e00[^>]*>Haus<|#d55e00[^>]*>Haus<", svg), "in another colour and bold"
    assert "changed: source position 1 masked" in " ".join(texts_of(svg))


def test_captions_over_a_picture():
    weights = some_weights(3, 6)
    trace = Trace.from_arrays(["x"], ["a", "dog", "</s>"], weights, kind="image", image=Picture(30, 20, (2, 3)))
    text = " ".join(texts_of(svg_of(trace, view="film")))
    assert "dog" in text
    at = divmod(int(weights[1].argmax()), 3)
    assert f"strongest: row {at[0]}, column {at[1]}, {weights[1].max():.2f}" in text
    assert "grid 2 x 3 (counted from 0), colours from 0" in text
    assert "smoothed for display" in " ".join(texts_of(svg_of(trace, view="film", smooth=True)))


def test_ribbons_keep_the_fewest_links_that_hold_the_mass():
    row = np.array([0.1, 0.5, 0.05, 0.3, 0.05], dtype=np.float32)
    assert strongest(row, 0.75) == [1, 3]
    assert strongest(row, 0.5) == [1]
    assert sorted(strongest(row, 1.0)) == [0, 1, 2, 3, 4]
    assert strongest(np.zeros(3, dtype=np.float32), 0.75) == []


def test_the_winner_of_a_beam_runs_along_the_top():
    nodes = (
        BeamNode(0, None, 0, "<s>", 0, 0, 0), BeamNode(1, 0, 1, "a", -2, -2, -2), BeamNode(2, 0, 1, "b", -1, -1, -1),
        BeamNode(3, 1, 2, "c", -0.1, -2.1, -1.05, finished=True), BeamNode(4, 2, 2, "d", -3, -4, -2, finished=True),
    )  # fmt: skip
    heights = beam.layout(Beam(2, nodes, (3, 4)), {node.id: node for node in nodes})
    assert heights == {0: 0, 1: 0, 3: 0, 2: 1, 4: 1}


def test_palettes_are_even_and_numbers_readable_on_them():
    for name, colours in PALETTES.items():
        light = [luminance(mix(colours, at / 100)) for at in range(101)]
        steps = np.diff(light)
        assert (steps < 1e-3).all() or (steps > -1e-3).all(), f"{name} runs one way"
    found = ramp(PALETTES["viridis"])  # what the page looks up
    for at in range(256):
        back = mix(PALETTES["viridis"], at / 255)
        assert parse(f"#{found['hues'][6 * at : 6 * at + 6]}") == back
        assert {"k": "#000000", "w": "#ffffff"}[found["ink"][at]] == ink_on(back)
    for at in range(101):
        back = mix(PALETTES["blue"], at / 100)
        ink = luminance(parse(ink_on(back)))
        high, low = max(ink, luminance(back)), min(ink, luminance(back))
        assert (high + 0.05) / (low + 0.05) >= 4.5


# --- the terminal


def test_only_a_terminal_gets_colours_and_only_where_they_are_wanted(monkeypatch):
    trace = Trace.from_arrays(["eins"], ["one"], [[1.0]])
    document = DocumentTrace("a", (SeenSentence(0, 1, 1.0, ((0, 1, 1.0),)),), {"good": 1.0})
    monkeypatch.delenv("NO_COLOR", raising=False)
    for shown, refused, expected in ((False, "", False), (True, "", True), (True, "1", False)):
        monkeypatch.setattr("sys.stdout.isatty", lambda shown=shown: shown)
        monkeypatch.setenv("NO_COLOR", refused)
        assert ["\x1b" in one.to_terminal() for one in (trace, document)] == [expected] * 2
        assert "\x1b" in trace.to_terminal(colour=True)


def test_the_terminal_shows_the_same_table():
    trace = Trace.from_arrays(["eins", "zwei"], ["one", "two"], [[0.9, 0.1], [0.25, 0.75]])
    plain = trace.to_terminal(colour=False)
    assert "\x1b" not in plain
    assert [line.split()[1:] for line in plain.split("\n") if line.startswith(("one", "two"))] == [
        ["@90", ".10"],
        [":25", "#75"],
    ]
    coloured = trace.to_terminal(colour=True)
    painted = np.array(re.findall(r"48;2;(\d+);(\d+);(\d+)", coloured), dtype=int)  # [cells, 3]
    assert np.abs(painted - mix(PALETTES["blue"], 0.9)).max(-1).min() <= 2  # a weight is float32
    assert "cross-attention" in plain


def test_a_weight_of_one_has_its_number_and_stays_in_its_column():
    trace = Trace.from_arrays(["x", "y", "z"], ["a", "b"], [[0, 1, 0], [0.25, 0.5, 0.25]])
    assert trace.to_terminal(colour=False).split("\n")[1:3] == ["a     @100    ", "b :25 +50 :25 "]
    coloured = re.sub("\x1b[^m]*m", "", trace.to_terminal(colour=True)).split("\n")
    assert coloured[1:3] == ["a    100   ", "b 25 50 25 "]


@pytest.mark.parametrize("width", [40, 80])
def test_the_only_column_of_a_model_without_attention_has_its_whole_name(width):
    written = ["internationalisation", "ist"]
    trace = Trace.from_arrays(["where", "is", "it"], written, [[1.0], [1.0]], kind="fixed")
    name, *body = trace.to_terminal(width=width, colour=False).split("\n")
    assert name.strip() == "(the whole sentence)"
    assert columns(name) <= width
    assert name.index("(") == body[0].index("@")  # above its weights


def test_a_wide_matrix_is_cut_to_the_terminal(monkeypatch):
    words = [f"w{at}" for at in range(90)]
    trace = Trace.from_arrays(words, ["x"], np.full((1, 90), 1 / 90))
    text = trace.to_terminal(width=60, colour=False)
    assert max(columns(line) for line in text.split("\n")) <= 60
    monkeypatch.setenv("COLUMNS", "50")  # as a shell says it
    assert 40 < max(columns(line) for line in trace.to_terminal(colour=False).split("\n")) <= 50
    with pytest.raises(ConfigError, match="at least 40"):
        a_trace().to_terminal(width=3)


def test_no_token_reaches_the_terminal_raw():
    text = a_trace(HOSTILE[:20], HOSTILE[20:], 1, 1).to_terminal(special=True)
    bare = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", bare)
    text.encode("utf-8")
    assert "\x1b[31m" not in text
    assert terminal.matrix(Trace.from_arrays(["שלום"], ["中文"], [[1.0]]), Show(colour=False)).startswith("0=שלום")
