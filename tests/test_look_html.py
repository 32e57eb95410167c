"""The page: whole in one file, no address in it, no way out of it for any token, and the same numbers as the table."""

import base64
import hashlib
import html
import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from test_look_draw import HOSTILE, a_trace, some_weights

from regard.errors import ConfigError
from regard.look import Trace, arrange

NODE = shutil.which("node")


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of each script and style."""

    def __init__(self, text):
        super().__init__()
        self.found, self.inside, self.at = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.at = (tag, dict(attrs).get("type")) if tag in ("script", "style") else self.at

    def handle_endtag(self, tag):
        self.at = None if tag in ("script", "style") else self.at

    def handle_data(self, data):
        if self.at is not None:
            self.inside[self.at] = self.inside.get(self.at, "") + data


SHAPE = ["html", "head", "meta", "meta", "meta", "title", "style", "body", "main", "h1", "noscript", "script", "script"]


def payloads():
    seeds = [
        *HOSTILE, "<img src=x onerror=alert(1)>", "</title><script>", "</style>", "javascript:alert(1)",
        "<svg onload=x>", "--><script>", "\\u003c/script>", "&lt;/script&gt;", "</ScRiPt >", "<!--<script>",
        "]]><script>", "${alert(1)}", "`",
    ]  # fmt: skip
    return seeds + [f"{a}{b}" for a in seeds[:24] for b in seeds[-20:]]


def test_no_token_can_break_out():
    every = payloads()
    assert len(every) > 500
    for start in range(0, len(every), 64):
        some = every[start : start + 64]
        trace = a_trace(some, some[:5], layers=1, heads=1)
        trace = replace(trace, changes=({"kind": "x", "text": some[0]},), model={"id": some[0]})
        for text in (trace.to_html(), html.unescape(re.search('srcdoc="([^"]*)"', trace._repr_html_())[1])):
            text.encode("utf-8")
            page = Elements(text)
            assert [tag for tag, _ in page.found] == SHAPE
            attributes = {key for tag, attrs in page.found for key in attrs}
            assert attributes == {"lang", "charset", "http-equiv", "content", "name", "id", "dir", "type"}
            assert page.inside["script", "module"] == page_file("page.js")
            shown = json.loads(page.inside["script", "application/json"])["sides"]["source"]["tokens"]
            assert len(shown) == len(some)
            assert "<" not in page.inside["script", "application/json"]


def page_file(name):
    return resources.files("regard.look.draw").joinpath(name).read_text(encoding="utf-8")


def test_the_page_holds_no_address_and_allows_only_itself():
    text = a_trace().to_html()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|src=|href=", text.replace("http-equiv", ""))
    page = Elements(text)
    policy = next(attrs["content"] for _, attrs in page.found if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for part in (page.inside["script", "module"], page.inside["style", None]):
        assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy
    script = page_file("page.js")
    assert not re.search(
        r"insertAdjacentHTML|outerHTML|document\.write|eval\(|Function\(|fetch\(|XMLHttp|import\(", script
    )
    assert script.count("innerHTML") == 1, "once, of a constant, to learn the namespace of SVG"


def test_a_notebook_shows_it_alone_in_a_frame():
    shown = a_trace()._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert 'sandbox="allow-scripts"' in shown
    assert shown.count("<") == 2


def test_the_file_is_drawn_like_any_other(tmp_path):
    path = a_trace().draw(tmp_path / "a.html", view="ribbons", head=1, title="A & B")
    text = path.read_text(encoding="utf-8")
    assert "<title>A &amp; B</title>" in text
    state = json.loads(Elements(text).inside["script", "application/json"])["state"]
    assert (state["view"], state["head"], state["module"]) == ("ribbons", 1, 0)
    with pytest.raises(ConfigError, match="one head, their mean or their largest"):
        a_trace().draw(tmp_path / "b.html", head=[0, 1])


@pytest.mark.parametrize(
    ("step", "opens"),
    [(0, (0, True, False)), (1, (1, False, True)), (2, (1, True, False)), (3, (2, True, True))],
)
def test_the_page_opens_at_the_step_that_is_asked_for(step, opens):
    """A step inside a word opens the page on pieces, the end of the sentence on special tokens."""
    trace = Trace.from_arrays(["a", "b"], ["▁gr", "oß", "▁ist", "</s>"], some_weights(4, 2), shift=1)
    page = Elements(trace.to_html(view="steps", step=step))
    state = json.loads(page.inside["script", "application/json"])["state"]
    assert (state["view"], state["shift"]) == ("step", 0)
    assert (state["t"], state["words"], state["special"]) == opens
    rows = arrange(trace, words=state["words"], special=state["special"], shift=0).rows
    assert rows[state["t"]].tokens[0] == step


def test_long_sentences_stay_small():
    words = [f"w{at}" for at in range(250)]
    trace = Trace.from_arrays(words, words, some_weights(2, 8, 250, 250))
    assert len(trace.to_html()) < 3_200_000, "a million numbers in half precision"


@pytest.mark.skipif(NODE is None, reason="needs node to run the page's script")
def test_the_script_computes_the_same_table(tmp_path):
    """The page's own arrange, in JavaScript, against arrange in Python for every switch."""
    trace = a_trace(target=("▁the", "▁hou", "se", "▁is", "▁big", "</s>"))
    data = json.loads(Elements(trace.to_html()).inside["script", "application/json"])
    switches = list(itertools.product((0, 2, "mean", "max"), (True, False), (True, False), (True, False), (0, 1)))
    names = ("head", "words", "special", "renormalise", "shift")
    cases = [{"module": 1, **dict(zip(names, values, strict=True))} for values in switches]
    expected = [arrange(trace, 1, *values) for values in switches]
    (tmp_path / "page.mjs").write_text(page_file("page.js"), encoding="utf-8")
    (tmp_path / "run.mjs").write_text(
        """import { arrange, numbers, check, strongest } from "./page.mjs";
        import { readFileSync } from "node:fs";
        const { data, cases } = JSON.parse(readFileSync(new URL("./in.json", import.meta.url)));
        for (const one of data.modules) one.numbers = numbers(one.weights);
        const raw = numbers(data.modules[0].scores), S = data.modules[0].shape[2];
        const again = check([...raw.slice(0, S)], [...data.modules[0].numbers.slice(0, S)]);
        const links = strongest([0.1, 0.5, 0.05, 0.3, 0.05], 0.75);
        console.log(JSON.stringify({ tables: cases.map((one) => arrange(data, one)), again, links }));""",
        encoding="utf-8",
    )
    (tmp_path / "in.json").write_text(json.dumps({"data": data, "cases": cases}), encoding="utf-8")
    done = subprocess.run([NODE, str(tmp_path / "run.mjs")], capture_output=True, text=True, check=True, timeout=60)
    answer = json.loads(done.stdout)
    for one, table in zip(answer["tables"], expected, strict=True):
        assert [label["text"] for label in one["rows"]] == [label.text for label in table.rows]
        assert [label["text"] for label in one["columns"]] == [label.text for label in table.columns]
        assert np.allclose(one["weights"], table.weights, atol=1e-6)
        assert one["hidden"] == pytest.approx(table.hidden, abs=1e-6)
    assert answer["again"] < 1e-5, "the page's check line: softmax of the scores gives the weights"
    assert answer["links"] == [1, 3]
