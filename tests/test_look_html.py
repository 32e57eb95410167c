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
from regard.look import Show, Trace
from regard.look.draw.ribbons import strongest
from regard.look.html import bundle, page_tree
from regard.look.palette import DIVERGING, PALETTES, ink_on, mix
from regard.look.table import arrange, summary
from regard.look.trace_file import write

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


BODY = ["body", "main", "h1", "noscript", "div", "script", "script"]
SHAPE = ["html", "head", "meta", "meta", "meta", "title", "style", *BODY]


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
            own = {
                "lang",
                "charset",
                "http-equiv",
                "content",
                "name",
                "id",
                "dir",
                "type",
                "class",
                "role",
                "aria-live",
            }
            assert attributes == own
            assert page.inside["script", "module"] == bundle()
            shown = held(text)["trace"]["views"]["modules"][0]["pieces"][0]["columns"]
            assert len(shown) == len(some)
            assert "<" not in page.inside["script", "application/json"]


def held(text):
    return json.loads(Elements(text).inside["script", "application/json"])


def page_file(name):
    return resources.files("regard.look").joinpath("page", name).read_text(encoding="utf-8")


def test_the_page_holds_no_address_and_allows_only_itself():
    text = a_trace().to_html()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|src=|href=", text.replace("http-equiv", ""))
    page = Elements(text)
    policy = next(attrs["content"] for _, attrs in page.found if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for part in (page.inside["script", "module"], page.inside["style", None]):
        assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy
    script = bundle()
    assert not re.search(
        r"insertAdjacentHTML|outerHTML|document\.write|eval\(|Function\(|fetch\(|XMLHttp|import\(", script
    )
    assert script.count("innerHTML") == 1, "once, of a constant, to learn the namespaces of SVG and MathML"
    assert "</script" not in script


def test_every_part_of_the_script_defines_what_later_ones_take_of_it():
    pattern = r"^const \$(\w+) = \(\(\) => \{\n(.*?)return \{ ([^{}\n]*) \};\n\}\)\(\);\n"
    given: dict[str, list[str]] = {}
    for name, body, names in re.findall(pattern, bundle(), re.MULTILINE | re.DOTALL):
        for taken, part in re.findall(r"^const (\{[^{}]*\}|\w+) = \$(\w+);$", body, re.MULTILINE):
            parts = taken.strip("{ }").split(",") if taken.startswith("{") else []
            assert {one.partition(":")[0].strip() for one in parts} <= {*given[part], ""}, (name, part)
        given[name] = names.split(", ")
    assert list(given)[-1] == "exported"
    assert bundle().count(" = (() => {\n") >= len(given) > 20


def test_a_palette_that_is_not_there_is_refused_by_every_page():
    for view in ("matrix", "ribbons", "heads", "steps"):
        with pytest.raises(ConfigError, match="Did you mean 'blue'"):
            a_trace().to_html(view, palette="bleu")


def test_a_notebook_shows_it_alone_in_a_frame():
    shown = a_trace()._repr_html_()
    page = a_trace().draw()  # without a path
    assert page == a_trace().to_html()
    assert page._repr_html_() == shown
    assert len(repr(page)) < 100
    assert a_trace().draw(view="heads") == a_trace().to_html("heads")
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert 'sandbox="allow-scripts"' in shown
    assert shown.count("<") == 2


def test_the_file_is_drawn_like_any_other(tmp_path):
    path = a_trace().draw(tmp_path / "a.html", view="ribbons", head=1, title="A & B")
    text = path.read_text(encoding="utf-8")
    assert "<title>A &amp; B</title>" in text
    opens = held(text)["selection"]
    assert (opens["view"], opens["form"], opens["head"], opens["layer"]) == ("alignment", "ribbons", 1, None)
    several = a_trace().to_html(show=Show(head=[0, 1], layer=1))
    assert (held(several)["selection"]["head"], held(several)["selection"]["layer"]) == ("0,1", 1)


def test_the_page_opens_at_the_requested_step():
    trace = Trace.from_arrays(["a", "b"], ["▁gr", "oß", "▁ist", "</s>"], some_weights(4, 2), shift=1)
    opens = held(trace.to_html(view="steps", step=2))["selection"]
    assert (opens["view"], opens["t"]) == ("steps", 2)


def test_long_sentences_stay_small():
    words = [f"w{at}" for at in range(250)]
    trace = Trace.from_arrays(words, words, some_weights(2, 8, 250, 250))
    assert len(trace.to_html()) < 3_800_000, "a million numbers in half precision, with mean and largest of the heads"


@pytest.mark.skipif(NODE is None, reason="needs node to run the page's script")
@pytest.mark.parametrize("target", [("▁the", "▁agree", "ment", "▁of", "▁1992", ".", "</s>"), ("</s>",)])
def test_the_page_shows_the_numbers_and_the_captions_of_the_table(tmp_path, target):
    """The page's choice among the tables of `views`, against `arrange`, for every switch."""
    trace = a_trace(source=("▁L", "'", "accord", "▁de", "▁19", "92", ".", "</s>"), target=target)
    heads, layers = (0, 2, "mean", "max", [0, 2]), (0, 1)
    switches = list(itertools.product(layers, heads, (True, False), (True, False), (True, False), (0, 1)))
    names = ("layer", "head", "words", "special", "renormalise", "shift")
    cases = [dict(zip(names, values, strict=True)) for values in switches]
    asked = [
        {**one, "head": ",".join(map(str, one["head"]))} if isinstance(one["head"], list) else one for one in cases
    ]
    row = [0.1, 0.5, 0.05, 0.3, 0.05]
    masses = [0.1, 0.5, 0.75, 0.9, 1.0]
    values = [0.0, 0.21, 0.43, 0.77, 1.0]
    for name in ("trace", "palette"):
        (tmp_path / f"{name}.js").write_text(page_file(f"{name}.js"), encoding="utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (tmp_path / "run.js").write_text(
        """import { strongest, summary, tableOf, Trace } from "./trace.js";
        import { shades, signedHues } from "./palette.js";
        import { readFileSync } from "node:fs";
        const { tree, asked, row, masses, values } = JSON.parse(readFileSync(new URL("./in.json", import.meta.url)));
        const trace = new Trace(tree);
        const found = asked.map((one) => tableOf(trace, one));
        const tables = found.map((one) => ({ ...one, seen: null, said: summary(one) }));
        globalThis.document = { documentElement: { dataset: { theme: "light" } } };
        const [shade, signed] = [shades("viridis"), signedHues()];
        const colours = values.map((value) => [...Object.values(shade(value)), signed(2 * value - 1)]);
        console.log(JSON.stringify({ tables, colours, links: masses.map((mass) => strongest(row, mass)) }));""",
        encoding="utf-8",
    )
    given = {"tree": page_tree(trace), "asked": asked, "row": row, "masses": masses, "values": values}
    (tmp_path / "in.json").write_text(write(given), encoding="utf-8")
    done = subprocess.run([NODE, str(tmp_path / "run.js")], capture_output=True, text=True, check=True, timeout=600)
    answer = json.loads(done.stdout)
    for options, one in zip(cases, answer["tables"], strict=True):
        table = arrange(trace, **options)
        assert [label["text"] for label in one["rows"]] == [label.text for label in table.rows]
        assert [label["text"] for label in one["columns"]] == [label.text for label in table.columns]
        assert np.allclose(one["weights"], table.weights, atol=1e-6)
        assert one["caption"] == table.caption
        assert one["said"] == summary(table)
    for value, colours in zip(values, answer["colours"], strict=True):
        back, signed = mix(PALETTES["viridis"], value), mix(DIVERGING, value)
        assert colours == [f"#{bytes(back).hex()}", ink_on(back), f"#{bytes(signed).hex()}"]
    assert answer["links"] == [strongest(np.array(row, dtype=np.float32), mass) for mass in masses]


def test_renormalised_rows_are_the_shown_rows_divided_by_their_sums():
    weights = [[0.6, 0.1, 0.3], [0.1, 0.3, 0.6]]
    trace = Trace.from_arrays(["▁a", "▁b", "</s>"], ["▁x", "y"], weights)
    table = arrange(trace, renormalise=True)
    assert table.weights.tolist() == [pytest.approx([0.35 / 0.55, 0.2 / 0.55])], "after pieces were merged: .636, .364"
