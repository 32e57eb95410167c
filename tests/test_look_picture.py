"""Captions drawn on their pictures: one word's map, all words together, and which words looked at a region."""

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_look_html import held

from regard.corpora import shapes
from regard.data.images import encode_png
from regard.errors import ConfigError, DataError
from regard.look.trace import Trace
from regard.look.trace_data import Picture

WORDS = ["a", "red", "circle", "</s>"]
GRID = (2, 3)


def make(weights: Any = None) -> Trace:
    given = np.array(
        [
            [0.1, 0.1, 0.1, 0.1, 0.5, 0.1],
            [0.0, 0.0, 0.9, 0.1, 0.0, 0.0],
            [0.0, 0.0, 0.8, 0.0, 0.0, 0.2],
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
    image = Picture(48, 32, GRID)
    return Trace.from_arrays([], WORDS, given if weights is None else weights, kind="image", image=image)


def svg(trace: Trace, path: Path, **options: Any) -> str:
    return trace.draw(path / "drawn.svg", **options).read_text(encoding="utf-8")


def test_one_words_map_says_where_it_looked(tmp_path: Path):
    text = svg(make(), tmp_path, view="picture", step=1)
    assert "\u2018red\u2019: strongest at row 1, column 3, 0.90; the top 5 cells hold 1.00." in _plain(text)
    assert "grid 2 x 3" in _plain(text)
    assert "smoothed" not in text
    assert "smoothed for display" in _plain(svg(make(), tmp_path, view="picture", step=1, smooth=True))


def test_all_words_together_are_their_sum(tmp_path: Path):
    text = _plain(svg(make(), tmp_path, view="picture"))
    assert "All 3 words together: strongest at row 1, column 3, 1.80; 0 of 6 cells get less than 0.05." in text
    with_end = _plain(svg(make(), tmp_path, view="picture", special=True))
    assert "All 4 words together" in with_end


def test_a_region_shows_a_bar_for_each_word(tmp_path: Path):
    text = _plain(svg(make(), tmp_path, view="region", cells=(0, 2)))
    assert "Row 1, column 3: most attention from \u2018red\u2019 0.90, then \u2018circle\u2019 0.80." in text
    for value in ("0.10", "0.90", "0.80"):
        assert value in text
    wide = _plain(svg(make(), tmp_path, view="region", cells=(0, 2, 1, 2)))
    assert "Rows 1-2, columns 3-3: most attention from \u2018circle\u2019 1.00" in wide


def test_the_picture_lies_behind_the_map(tmp_path: Path):
    pixels = shapes.draw_scene(shapes.scene(1))
    path = tmp_path / "scene.png"
    path.write_bytes(encode_png(pixels))
    for view in ("picture", "region", "film"):
        bare = make().draw(tmp_path / "bare.png", view=view).read_bytes()
        for behind in (path, pixels):
            assert make().draw(tmp_path / "drawn.png", view=view, picture=behind).read_bytes() != bare


@pytest.mark.parametrize("view", ["film", "picture", "region"])
def test_a_page_holds_the_picture_once(view: str, tmp_path: Path):
    pixels = shapes.draw_scene(shapes.scene(1))
    text = make().draw(tmp_path / "a.html", view=view, picture=pixels).read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 1
    assert base64.b64encode(encode_png(pixels)).decode() in text
    assert not re.search(r"https?:|@import", text.replace("http-equiv", ""))
    assert held(text)["selection"]["view"] == "picture"
    bare = make().draw(tmp_path / "b.html", view=view).read_text(encoding="utf-8")
    assert held(bare)["picture"] == {"square": "", "side": 0}


def test_a_page_says_what_it_shows():
    said = held(make().to_html())["trace"]["views"]["maps"]["words hidden"]
    red = "\u2018\u2068red\u2069\u2019"  # isolated: it keeps its own direction
    assert said["maps"][2] == f"{red}: strongest at row 1, column 3, 0.90; the top 5 cells hold 1.00."
    assert said["cells"][2].startswith(f"Row 1, column 3: most attention from {red} 0.90")
    assert held(make().to_html(view="picture", step=1))["selection"]["t"] == 1
    region = held(make().to_html(view="region", cells=(0, 2, 1, 2)))["selection"]["region"]
    assert region["corners"] == [0, 2, 1, 2]
    assert region["shares"] == pytest.approx([0.2, 0.9, 1.0])
    assert held(make().to_html(smooth=True))["selection"]["smooth"]
    assert make()._repr_html_().count("<") == 2, "alone in a frame"


def test_a_caption_in_a_terminal_is_a_map_for_each_word():
    lines = make().to_terminal(colour=False, width=60).split("\n")
    assert lines[0].split() == ["a", "red", "circle"]
    assert lines[1].count("@") == 1, "the strongest cell of all, in the first row of the grid"
    assert "grid 2 x 3" in " ".join(lines)
    assert "\x1b[48;2;" in make().to_terminal(colour=True)


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path):
    for view in ("picture", "region"):
        first, second = (svg(make(), tmp_path, view=view) for _ in range(2))
        assert first == second


def test_mistakes_are_refused(tmp_path: Path):
    text = Trace.from_arrays(["x", "y"], ["z"], [[0.5, 0.5]])
    for view in ("picture", "region"):
        with pytest.raises(ConfigError, match=r"no picture; these views are for captions"):
            text.draw(tmp_path / "a.png", view=view)
    with pytest.raises(ConfigError, match=r"There is no word 3: this caption has words 0 to 2"):
        make().draw(tmp_path / "a.png", view="picture", step=3)
    with pytest.raises(ConfigError, match=r"There is no word 'x': this caption has words 0 to 2"):
        make().to_html(view="picture", step="x")
    with pytest.raises(DataError, match=r"Pixels must be uint8 \[H, W, 3\]; got float64 \[3, 3\]"):
        make().to_html(picture=np.zeros((3, 3)))
    for cells in ((2, 0), (0, 3), (1, 0, 0, 0), (0,), (0, 0, 1, 3), (0.5, 1), 5):
        with pytest.raises(ConfigError, match=r"inside the grid of 2 x 3"):
            make().draw(tmp_path / "a.png", view="region", cells=cells)
    (tmp_path / "no.png").write_bytes(b"GIF89a")
    for view in ("picture", "region", "film"):
        with pytest.raises(DataError, match=r"no\.png has another format; a picture must be JPEG, PNG or WebP"):
            make().draw(tmp_path / "a.png", view=view, picture=tmp_path / "no.png")


def test_a_trace_read_back_draws_the_same_picture(tmp_path: Path):
    again = Trace.from_json(make().to_json())
    assert svg(again, tmp_path, view="picture", step=0) == svg(make(), tmp_path, view="picture", step=0)


def _plain(svg: str) -> str:
    """The text of a drawing, its lines joined."""
    found = re.findall(r"<text[^>]*>(.*?)</text>|<tspan[^>]*>(.*?)</tspan>", svg, re.DOTALL)
    joined = " ".join(" ".join(re.sub(r"<[^>]*>", " ", part) for part in pair) for pair in found)
    return re.sub(r"[\u2068\u2069]", "", re.sub(r"\s+", " ", joined.replace("&#x27;", "'").replace("&apos;", "'")))
