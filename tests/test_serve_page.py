"""The page in a real browser: everything that it is for, by mouse and by keyboard, with the network shut off."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser_parts import browser, opened, picture, until
from npm_parts import packages
from serve_parts import Server, one_vector, serving, trained

from regard.look import Trace
from regard.look.trace_file import write
from regard.look.views import page_tree

pytestmark = pytest.mark.browser
TEXT = "ba da fo"
FOCUSED = "(one) => one.innerText || one.getAttribute('aria-label') || one.localName"
SHOW = """async (text) => {
  const { state } = await import("/page/state.js");
  const { Trace } = await import("/page/trace.js");
  state.set({ form: "matrix", trace: new Trace(JSON.parse(text)) });
}"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    runs = trained(), one_vector(), trained("transformer", "data.joint=true", steps=60)
    with serving(*runs) as server:
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture
def page(server: Server, chromium: Any) -> Iterator[Any]:
    with opened(chromium, f"{server.address}#text={TEXT.replace(' ', '+')}") as page:
        page.locator(".translation .word").first.wait_for()
        yield page


def words(page: Any) -> list[str]:
    return page.locator(".translation .word").all_inner_texts()


def said(page: Any, text: str) -> None:
    """Wait until a screen reader is told something that begins so."""
    until(page, "text => document.querySelector('#announcements').textContent.startsWith(text)", text)


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_type_a_sentence_and_see_its_translation(page: Any) -> None:
    assert words(page) == ["fo", "da", "ba"]
    page.locator("#source").fill("lu me ko")
    page.get_by_text("ko", exact=True).first.wait_for()
    assert words(page) == ["ko", "me", "lu"]
    assert "lu+me+ko" in page.url
    picture(page, "translate")


def test_of_several_lines_the_one_with_the_caret_is_looked_into(page: Any) -> None:
    page.locator("#source").fill("ba da\nlu me ko")
    page.locator(".sentence.other").wait_for()
    assert page.locator(".sentence.other").inner_text() == "da ba"
    assert words(page) == ["ko", "me", "lu"]
    page.locator("#source").press("Control+Home")
    until(page, "document.querySelectorAll('.translation .word').length === 2")
    assert words(page) == ["da", "ba"]
    assert page.locator(".sentence.other").inner_text() == "ko me lu"


def test_a_first_visit_shows_an_example_at_once(server: Server, chromium: Any) -> None:
    with opened(chromium, server.address) as page:
        page.locator(".translation .word").first.wait_for()
        assert page.locator("#source").input_value() != ""
        assert page.locator(".ribbons .band").count() > 0
        assert page.locator(".examples .chip").count() == 3
        page.locator(".examples .chip").first.click()
        assert page.locator("#source").input_value() == page.evaluate(
            "import('/page/state.js').then((m) => m.state.get('text'))"
        )


def test_pointing_at_a_word_marks_where_the_model_looked(page: Any) -> None:
    page.locator(".translation .word").nth(1).hover()
    share = "Number(one.style.getPropertyValue('--share'))"
    until(page, f"[...document.querySelectorAll('.behind .linked')].some((one) => {share} > 0.3)")
    said = page.locator(".pane.target .note").first.inner_text()
    assert re.fullmatch(r"While writing da, the model looked \d+\s% at \w+\.", said)
    linked = page.locator(".behind").inner_text()
    assert linked == TEXT, "the words behind the box are the words in the box"


def test_a_chosen_alternative_is_kept_and_the_rest_written_anew(page: Any) -> None:
    page.locator(".translation .word").first.click()
    choices = page.locator(".popover li button")
    choices.first.wait_for()
    assert choices.first.get_attribute("aria-current") == "true"
    other = choices.nth(1).locator("bdi").inner_text()
    choices.nth(1).click()
    page.get_by_role("button", name="Undo the choice").wait_for()
    until(page, "other => document.querySelector('.translation .word').innerText === other", other)
    assert page.locator(".translation .word.changed").all_inner_texts() == [other], "what was forced is marked"
    assert page.locator("regard-alignment text.changed").all_text_contents() == [f"\u2068{other}\u2069"]
    assert f"changed: begins with '{other}'" in page.locator("regard-alignment .caption").inner_text()
    page.get_by_role("button", name="Undo the choice").click()
    until(page, "document.querySelector('.translation .word').innerText === 'fo'")


def test_alignment_as_ribbons_matrix_and_table(page: Any) -> None:
    assert page.locator(".ribbons .band").count() >= 3
    page.get_by_role("button", name="Matrix").click()
    assert page.locator(".matrix [role=gridcell]").count() == 9
    page.get_by_role("button", name="Special tokens").click()
    assert page.locator(".matrix [role=gridcell]").count() == 16
    assert "hidden" not in page.locator("regard-alignment .caption").inner_text()
    page.get_by_role("button", name="Table").click()
    rows = [
        [float(cell) for cell in row.split("\t")[1:]]
        for row in page.locator("table.numbers tbody tr").all_inner_texts()
    ]
    assert all(sum(row) == pytest.approx(1, abs=0.01) for row in rows)
    picture(page, "table")


def test_the_matrix_is_walked_with_the_keys(page: Any) -> None:
    page.get_by_role("button", name="Matrix").click()
    page.locator("svg.matrix").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    said(page, "target \u2018da\u2019, source \u2018da\u2019, weight ")
    assert page.locator("svg.matrix").get_attribute("aria-activedescendant") == "cell-1-1"
    assert "t=1&s=1" in page.url
    page.keyboard.press("End")
    said(page, "target \u2018da\u2019, source \u2018fo\u2019, weight ")
    picture(page, "matrix")
    page.keyboard.press("Enter")
    page.locator("regard-steps .panel").first.wait_for()
    page.keyboard.press("Escape")


def test_step_through_decoding(page: Any) -> None:
    view(page, "Step by step")
    page.locator(".panel").nth(5).wait_for()
    assert page.locator(".panel").count() == 6
    for step in range(4):
        until(page, "step => document.querySelector('.player .number').innerText === `${step + 1} / 4`", step)
        until(page, "document.querySelectorAll('.check').length === 4")
        checks = page.locator(".check").all_inner_texts()
        assert all(check.startswith("✓") for check in checks), checks
        picture(page, f"step-{step + 1}")
        if step < 3:
            page.get_by_role("button", name="Next step").click()
    assert "end of sentence" in page.locator(".panel.word").inner_text()
    page.locator(".panels").click()
    page.locator("regard-steps .dot").first.focus()
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelector('.player .number').innerText === '3 / 4'")
    page.keyboard.press("Shift+ArrowLeft")
    until(page, "document.querySelectorAll('.panel.later').length === 1")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").click()


def test_what_if(page: Any) -> None:
    view(page, "Step by step")
    page.locator(".panel.score").wait_for()
    page.get_by_label("Source word").select_option("2")
    page.get_by_role("button", name="Hide it").click()
    page.locator(".bars.score .masked").wait_for()
    assert page.locator(".bars.score .masked bdi").inner_text() == "fo"
    assert words(page) == ["fo", "da", "ba"], "the words stay until decoding goes on"
    page.get_by_role("button", name="Continue decoding from here").click()
    page.locator(".chips .chip").nth(1).wait_for()
    picture(page, "what-if")
    page.get_by_role("button", name="Undo everything").click()
    until(page, "document.querySelectorAll('.chips .chip').length === 0")
    page.get_by_label("Write instead").select_option(index=0)
    page.get_by_role("button", name="Write it and continue").click()
    until(page, "document.querySelector('.translation .word').innerText !== 'fo'")


def test_hiding_a_word_masks_all_its_pieces(page: Any) -> None:
    """The same positions as `regard look --mask`, for a word of several pieces beside a full stop."""
    trace = Trace.from_arrays(["▁a", "▁hou", "se", ".", "</s>"], ["▁x", "</s>"], np.full((2, 5), 0.2))
    positions = page.evaluate(
        """async (text) => {
          const { host } = await import("/page/host.js");
          const { state } = await import("/page/state.js");
          const { Trace } = await import("/page/trace.js");
          const { whatIf } = await import("/page/whatif.js");
          host.translate = () => {};
          state.set({ s: 2 });
          const bar = whatIf(new Trace(JSON.parse(text)), 0, { output: { words: [] } });
          [...bar.querySelectorAll("button")].find((one) => one.textContent === "Hide it").click();
          return state.get("changes")[0].positions;
        }""",
        write(page_tree(trace)),
    )
    assert positions == [1, 2]


def test_a_model_without_attention_shows_its_one_vector(page: Any) -> None:
    page.get_by_label("Model").select_option("rnnencdec-reverse")
    view(page, "Step by step")
    page.locator(".panel.fixed").wait_for()
    assert "squeezed into this one vector" in page.locator(".panel.fixed").inner_text()
    assert page.locator(".panel").count() == 4
    picture(page, "one-vector")


def test_heads_and_models_are_compared(page: Any) -> None:
    view(page, "Compare")
    page.get_by_label("With").select_option("rnnencdec-reverse")
    page.locator(".fixed-note").wait_for()
    picture(page, "compare-models")
    page.get_by_label("Model").select_option("transformer-reverse")
    page.get_by_role("button", name="Heads").click()
    page.locator(".thumbnail").nth(7).wait_for()
    page.get_by_label("Order").select_option("entropy")
    picture(page, "compare-heads")
    page.get_by_label("Order").select_option("least alignment error")
    page.get_by_text("30 generated sentences whose right links are known").wait_for()
    errors = [float(text.split(" ")[-1]) for text in page.get_by_text("alignment error 0").all_inner_texts()]
    assert len(errors) == 8
    assert errors == sorted(errors)
    page.locator(".thumbnail").nth(3).click()
    page.locator("regard-alignment .caption").wait_for()
    assert re.search(r"layer \d, head \d", page.locator("regard-alignment .caption").inner_text())
    page.get_by_label("Head").select_option("max")
    assert "largest of 4 heads" in page.locator("regard-alignment .caption").inner_text()


def test_the_search_tree(page: Any) -> None:
    view(page, "Search")
    page.locator("svg.tree .node").first.wait_for()
    kept = page.locator("svg.tree .node").count()
    page.get_by_role("button", name="Pruned candidates").click()
    assert page.locator("svg.tree .node").count() > kept
    picture(page, "search")
    page.get_by_label("Replay to step").fill("1")
    until(page, "document.querySelectorAll('svg.tree .score').length === 0")
    page.get_by_label("Replay to step").fill("4")
    page.locator("svg.tree").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    said(page, "fo da ba: log-probability")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.locator(".popover li button").first.wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    page.get_by_label("Word to write here").fill("lu")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.translation').innerText.startsWith('fo da lu')")
    page.get_by_role("button", name="Undo the choice").click()
    page.get_by_role("button", name="List").click()
    assert page.locator("[role=tree] [role=treeitem]").count() > 1
    page.get_by_role("button", name="Table").click()
    page.get_by_text("finished, rank 1").wait_for()


def export(page: Any, kind: str, folder: Path) -> Path:
    """Export the shown view, as a user does."""
    page.locator(".menu summary").click()
    with page.expect_download() as download:
        page.locator(f".menu [data-kind={kind}]").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.parametrize("name", ["Where it looked", "Step by step", "Compare", "Search"])
def test_every_view_is_exported(page: Any, name: str, tmp_path: Path) -> None:
    view(page, name)
    page.locator("regard-views .menu").wait_for()
    page.locator(".panel.output, .band, .matrix, .tree").first.wait_for()
    drawing = ElementTree.fromstring(export(page, "SVG", tmp_path).read_text("utf-8"))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert any("fo" in (text.text or "") for text in drawing.iter("{http://www.w3.org/2000/svg}text"))
    assert export(page, "PNG", tmp_path).read_bytes().startswith(b"\x89PNG")
    assert export(page, "CSV", tmp_path).read_text("utf-8").count("\n") >= 3
    assert json.loads(export(page, "JSON", tmp_path).read_text("utf-8"))["trace"] == 1


def test_the_exported_page_opens_with_the_network_off(page: Any, chromium: Any, tmp_path: Path) -> None:
    view(page, "Step by step")
    page.locator(".panel.output").wait_for()
    saved = export(page, "HTML", tmp_path)
    text = saved.read_text("utf-8")
    assert "127.0.0.1" not in text
    with opened(chromium, saved.as_uri(), offline=True) as alone:
        alone.locator(".panel.output").wait_for()
        assert all(check.startswith("✓") for check in alone.locator(".check").all_inner_texts())
        alone.get_by_role("button", name="Next step").click()
        until(alone, "document.querySelector('.player .number').innerText === '2 / 4'")
        view(alone, "Where it looked")
        alone.get_by_role("button", name="Matrix").click()
        assert alone.locator(".matrix [role=gridcell]").count() == 9
        view(alone, "Compare")
        alone.get_by_text("This file holds one model.").wait_for()
        view(alone, "Search")
        alone.locator("svg.tree .node").first.wait_for()
        picture(alone, "exported")


def test_the_address_holds_the_selection(server: Server, chromium: Any) -> None:
    address = f"{server.address}#text=ba+da+fo&view=alignment&form=matrix&t=1&s=2&special=true&palette=cividis"
    with opened(chromium, address) as page:
        page.locator(".matrix .active").wait_for()
        assert page.get_by_role("button", name="Special tokens").get_attribute("aria-pressed") == "true"
        assert page.get_by_label("Colours").input_value() == "cividis"


def test_everything_is_reached_with_the_tab_key(page: Any) -> None:
    page.locator("#source").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(f"(({FOCUSED}))(document.activeElement)"))
    for wanted in ("fo", "da", "ba", "Where it looked", "Matrix", "Whole words"):
        assert wanted in reached, (wanted, reached)
    assert any("Links between source words" in str(name) for name in reached)
    page.locator("[role=tab]").first.focus()
    page.keyboard.press("?")
    page.locator("dialog.keys").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.locator("regard-steps .panel").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server: Server, chromium: Any, scheme: str) -> None:
    script = (packages() / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    options = {"color_scheme": scheme, "bypass_csp": True, "reduced_motion": "reduce"}  # colours do not fade in
    with opened(chromium, f"{server.address}#text=ba+da+fo", **options) as page:
        page.locator(".translation .word").first.wait_for()
        page.evaluate(script)
        for name in ("Where it looked", "Step by step", "Compare", "Search"):
            view(page, name)
            page.locator(".panel.output, .band, .matrix, .tree").first.wait_for()
            if name == "Where it looked":
                page.get_by_role("button", name="Matrix").click()
            found = [
                one for one in page.evaluate("axe.run()")["violations"] if one["impact"] in ("serious", "critical")
            ]
            assert [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found] == [], name
            picture(page, f"{scheme}-{name.lower().replace(' ', '-')}")


@pytest.mark.parametrize("name", ["Where it looked", "Step by step", "Compare", "Search"])
def test_nothing_is_wider_than_a_small_phone(server: Server, chromium: Any, name: str) -> None:
    with opened(chromium, f"{server.address}#text=ba+da+fo", viewport={"width": 360, "height": 740}) as page:
        page.locator(".translation .word").first.wait_for()
        view(page, name)
        page.locator(".panel.output, .band, .matrix, .tree").first.wait_for()
        picture(page, f"phone-{name.lower().replace(' ', '-')}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_with_reduced_motion_and_forced_colours_the_same_is_there(server: Server, chromium: Any) -> None:
    with opened(
        chromium, f"{server.address}#text=ba+da+fo&view=steps", reduced_motion="reduce", forced_colors="active"
    ) as page:
        page.locator(".panel.output").wait_for()
        assert page.evaluate("getComputedStyle(document.querySelector('.panel')).transitionDuration") == "0s"
        picture(page, "forced-colours")


def test_a_long_sentence_opens_and_responds(server: Server, chromium: Any) -> None:
    with opened(chromium, server.address) as page:
        page.locator(".translation .word").first.wait_for()
        words = [f"w{at}" for at in range(300)]
        weights = np.eye(300, dtype=np.float32) * 0.9 + 0.1 / 300
        page.evaluate(SHOW, write(page_tree(Trace.from_arrays(words, words, weights))))
        page.locator("svg.matrix image").wait_for()
        page.locator("svg.matrix").focus()
        for _ in range(3):
            page.keyboard.press("PageDown")
        said(page, "target \u2018w20\u2019")


def test_without_a_token_the_page_asks_for_it(chromium: Any) -> None:
    with serving(host="0.0.0.0", token="a-long-enough-token") as server:
        address = f"http://127.0.0.1:{server.port}/"
        context = chromium.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_label("Token").fill("a-long-enough-token")
        page.get_by_role("button", name="Open").click()
        page.locator(".translation .word").first.wait_for()
        context.close()
        with opened(chromium, f"{address}#token=a-long-enough-token") as known:
            known.locator(".translation .word").first.wait_for()
            assert "token" not in known.url
