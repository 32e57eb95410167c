"""The page in a real browser: everything that it is for, by mouse and by keyboard, with the network shut off."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser_parts import opened, picture, until
from npm_parts import packages
from serve_parts import Server, one_vector, serving, spoken, trained

from regard.api.heads import Heads, keep_choice
from regard.look import Attended, Side, Token, Trace
from regard.look.html import page_tree
from regard.look.trace_file import write
from regard.serve.access import Access, AccessToken

pytestmark = pytest.mark.browser
TEXT = "ba da fo"
FOCUSED = "(one) => one.innerText || one.getAttribute('aria-label') || one.localName"
SHOW = """async (text) => {
  const { state } = await import("/page/state.js");
  const { Trace } = await import("/page/trace.js");
  state.set({ form: "matrix", trace: new Trace(JSON.parse(text)) });
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("runs")
    transformer = folder / "transformer-reverse"
    shutil.copytree(trained("transformer", "data.joint=true", steps=150), transformer)
    keep_choice(transformer, Heads(layer=0, head=1, shift=1))
    models = trained(), one_vector(), transformer, spoken(trained(), folder / "back", "de", "en")
    with serving(*models, cached=True) as server:
        yield server


@pytest.fixture
def page(server: Server, chromium: Any) -> Iterator[Any]:
    with opened(chromium, f"{server.address}#text={TEXT.replace(' ', '+')}") as page:
        page.locator(".translation .word").first.wait_for()
        yield page


@pytest.fixture
def modules(server: Server, chromium: Any) -> Iterator[Any]:
    """A small page of the same origin, for tests of single modules: it loads none by itself but its own."""
    with opened(chromium, f"{server.address}docs") as page:
        yield page


def words(page: Any) -> list[str]:
    return page.locator(".translation .word").all_inner_texts()


def said(page: Any, text: str) -> None:
    """Wait until the page announces a text that begins so."""
    until(page, "text => document.querySelector('#announcements').textContent.startsWith(text)", text)


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_type_a_sentence_and_see_its_translation(page: Any) -> None:
    assert words(page) == ["fo", "da", "ba"]
    page.locator("#source").fill("lu me ko")
    until(
        page, "[...document.querySelectorAll('.translation .word')].map((one) => one.innerText).join() === 'ko,me,lu'"
    )
    assert "lu+me+ko" in page.url
    picture(page, "translate")


def test_of_several_sentences_the_one_with_the_caret_is_looked_into(page: Any) -> None:
    page.locator("#source").fill("1. ba da\n***\nlu me ko\n-")
    until(page, "document.querySelector('.translation .other')?.innerText === 'ko me lu'")
    until(page, "document.querySelectorAll('.translation .word').length === 2")
    assert words(page) == ["da", "ba"]
    page.locator("#source").press("Control+End")
    until(page, "document.querySelectorAll('.translation .word').length === 3")
    assert words(page) == ["ko", "me", "lu"]
    assert page.locator(".translation .other").inner_text() == "da ba"
    assert page.evaluate("document.querySelector('regard-translate').whole()") == "1. da ba\n***\nko me lu\n-"
    shown = page.locator(".translation .sentence").inner_text()
    assert " ".join(shown.split()) == "1. da ba *** ko me lu -"


def test_an_answer_that_is_aborted_while_it_is_read_is_no_answer(modules: Any) -> None:
    """It was taken for an empty one, and kept: the step that it belonged to could not be shown any more."""
    found = modules.evaluate(
        """async () => {
          const { post } = await import('/page/api.js');
          const whole = window.fetch;
          const json = () => Promise.reject(new DOMException('', 'AbortError'));
          window.fetch = async () => Object.assign(new Response('{}'), { json });
          try {
            return await post('/api/v1/steps', {});
          } catch (error) {
            return error.name;
          } finally {
            window.fetch = whole;
          }
        }"""
    )
    assert found == "AbortError"


def test_a_translation_that_is_overtaken_does_not_come_back(page: Any) -> None:
    """The answer to a first text is complete, too late to be aborted, and read after that to a second one."""
    page.evaluate(
        """() => {
          const real = window.fetch;
          window.looks = 0;
          window.fetch = async (path, options) => {
            if (String(path).includes("/beam")) window.looks++;
            if (!String(path).endsWith("/translate") || window.held) return real(path, options);
            window.held = real(path, { ...options, signal: undefined });
            await new Promise((done) => (window.release = done));
            return window.held;
          };
        }"""
    )
    page.locator("#source").fill("lu me")
    until(page, "window.release !== undefined")
    page.locator("#source").fill("ba da fo")
    until(page, "document.querySelectorAll('.translation .word').length === 3")
    looks = page.evaluate(
        """async () => {
          window.looks = 0;
          window.release();
          for (let frame = 0; frame < 60; frame++) await new Promise(requestAnimationFrame);
          return window.looks;
        }"""
    )
    assert looks == 0
    assert words(page) == ["fo", "da", "ba"]
    assert page.evaluate("document.querySelector('regard-translate').whole()") == "fo da ba"


def test_an_error_belongs_to_its_sentence(server: Server, chromium: Any) -> None:
    page = chromium.new_page(server.address)  # not `opened`: an answer of 422 is an error to the console
    page.route("**/api/v1/beam", lambda route: route.fulfill(status=422, json={"error": "This one is too long."}))
    page.goto(f"{server.address}#text=lu+me%0Ako+ba")
    page.locator(".translation .error").wait_for()
    text = page.locator("regard-translate .translation").inner_text()
    assert " ".join(text.split()) == "me lu This one is too long. ba ko"
    page.close()


def test_the_page_is_small_and_comes_from_one_place(page: Any) -> None:
    loaded = page.evaluate(
        """performance.getEntriesByType("resource").filter((one) => one.name.includes("/page/"))
          .map((one) => [new URL(one.name).origin, one.decodedBodySize])"""
    )
    assert {origin for origin, _ in loaded} == {page.evaluate("location.origin")}
    assert 100_000 < sum(size for _, size in loaded) < 300_000


def test_the_documentation_of_the_api_needs_nothing_from_elsewhere(server: Server, chromium: Any) -> None:
    with opened(chromium, f"{server.address}docs") as page:
        page.get_by_text("POST /translate", exact=True).wait_for()
        assert "required" in page.locator("section", has_text="POST /translate").first.inner_text()
        described = server.client.get("/spec").json()["paths"]
        assert page.locator("main section").count() == sum(map(len, described.values()))


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


def test_the_head_that_aligns_words_is_shown_first(page: Any) -> None:
    model(page, "transformer-reverse")
    caption, choice = page.locator("regard-alignment .caption"), page.get_by_label("Head")
    until(page, "document.querySelector('regard-alignment .caption').innerText.includes('Transformer')")
    aligning = "layer 0, head 1, the head that aligns words"
    assert f"{aligning}, whole words, shown one word later" in caption.inner_text()
    assert choice.input_value() == "1"
    choice.select_option("mean")
    assert "mean of 4 heads, whole words." in caption.inner_text()
    choice.select_option("2")
    assert "shown one word later" not in caption.inner_text()


def test_the_sentence_about_a_word_names_the_head_that_aligns(page: Any) -> None:
    weights = np.stack([np.full((3, 3), 1 / 3), np.eye(3)[[2, 0, 1]]]).astype(np.float32)
    tree = page_tree(Trace.from_arrays(["a", "b", "c"], ["x", "y", "z"], weights))
    tree["views"]["aligning"] = {"head": 1}
    tree["attention"]["attention"]["shifted_heads"] = [1]
    page.evaluate(SHOW, write(tree))
    page.locator(".translation .word").nth(1).hover()
    said = page.locator(".sure").inner_text()
    assert said.startswith("Just after writing y, the model looked 100")
    assert said.endswith("at b (layer 0, head 1, the head that aligns words).")


def test_the_dots_under_an_unsure_word_are_explained(page: Any) -> None:
    tree = page_tree(Trace.from_arrays(["a", "b"], ["x", "y"], np.eye(2, dtype=np.float32)))
    tree["target"]["tokens"][1]["logprob"] = -2.0
    page.evaluate(SHOW, write(tree))
    assert "Dotted: the model was unsure" in page.locator(".sure").inner_text()
    assert page.locator(".translation .unsure").get_attribute("title").startswith("unsure, probability 14")
    tree["target"]["tokens"][1]["logprob"] = -0.1
    page.evaluate(SHOW, write(tree))
    assert "Dotted" not in page.locator(".sure").inner_text()


def test_the_no_break_spaces_of_french_are_read_as_spaces(page: Any) -> None:
    marks = Token("?", "\u00a0?", 1, 3, word=1), Token("«", "▁«\u00a0", 4, 6, word=2), Token("b", "b", 6, 7, word=3)
    french = Side("a\u00a0? «\u00a0b", (Token("a", "▁a", 0, 1, word=0), *marks))
    page.evaluate(SHOW, write(page_tree(Trace.from_arrays(["a", "b", "c", "d"], french, np.eye(4, dtype=np.float32)))))
    assert page.locator(".translation .sentence").text_content().strip(" ") == french.text


def test_punctuation_that_a_sentence_mentions_is_in_quotes(page: Any) -> None:
    page.evaluate(SHOW, write(page_tree(Trace.from_arrays(["a", "."], ["x", "!"], np.eye(2, dtype=np.float32)))))
    page.locator(".translation .word").nth(1).hover()
    said = page.locator(".sure").inner_text()
    assert said.startswith("While writing \u201c!\u201d, the model looked 100")
    assert said.endswith(" at \u201c.\u201d.")


def test_a_chosen_alternative_is_kept_and_the_rest_written_again(page: Any) -> None:
    page.locator(".translation .word").first.click()
    choices = page.locator(".popover li button")
    choices.first.wait_for()
    assert choices.first.get_attribute("aria-current") == "true"
    other = choices.nth(1).locator("bdi").inner_text()
    choices.nth(1).click()
    bar = page.locator("regard-changes")
    until(page, "other => document.querySelector('.translation .word').innerText === other", other)
    assert page.locator(".translation .word.changed").all_inner_texts() == [other], "what was forced is marked"
    assert page.locator("regard-alignment text.changed").all_text_contents() == [f"\u2068{other}\u2069"]
    for name in ("Step by step", "Compare", "Search", "Where it looked"):
        view(page, name)
        assert f"begin with \u2018{other}\u2019" in bar.inner_text(), "a change is named in every view"
    bar.get_by_role("button", name="undo").click()
    until(page, "document.querySelector('.translation .word').innerText === 'fo'")
    assert not bar.is_visible()


def test_another_translation_of_the_search_becomes_the_translation(page: Any) -> None:
    page.get_by_text("Other translations").click()
    other = page.locator(".nbest li button").first
    text = other.inner_text()
    other.click()
    until(page, "text => document.querySelector('.translation .sentence').innerText === text", text)
    page.get_by_role("button", name="undo").click()
    until(page, "document.querySelector('.translation .word').innerText === 'fo'")


def test_alignment_as_ribbons_matrix_and_table(page: Any) -> None:
    assert page.locator(".ribbons .band").count() >= 3
    page.get_by_role("button", name="Matrix").click()
    assert page.locator(".matrix [role=gridcell]").count() == 9
    caption = page.locator("regard-alignment .caption")
    assert caption.inner_text().startswith(
        "Bahdanau\u2019s attention, computed from the state before each word, whole words. The end mark is not drawn"
    )
    special = page.get_by_role("button", name="Special tokens")
    assert not special.is_visible(), "what experts need is under More"
    page.get_by_text("More").click()
    special.click()
    assert page.locator(".matrix [role=gridcell]").count() == 16
    assert "not drawn" not in caption.inner_text()
    special.press("Escape")
    page.get_by_role("button", name="Table").click()
    rows = [
        [float(cell) for cell in row.split("\t")[1:]]
        for row in page.locator("table.numbers tbody tr").all_inner_texts()
    ]
    assert all(sum(row) == pytest.approx(1, abs=0.01) for row in rows)
    picture(page, "table")


@pytest.mark.parametrize(
    ("unseen", "said"),
    [
        (["</s>"], "The end mark is not drawn; it takes 64 % of the weight."),
        (["<s>"], "The start mark is not drawn; it takes 64 % of the weight."),
        (["<s>", "</s>"], "The start mark and the end mark are not drawn; they take 64 % of the weight."),
    ],
)
def test_the_caption_names_the_mark_that_is_not_drawn(modules: Any, unseen: list[str], said: str) -> None:
    caption = modules.evaluate(
        """async (unseen) => {
          const { caption } = await import("/page/wording.js");
          const seen = { kind: "decoder", weights: { shape: [1] }, query: "previous" };
          return caption({ seen, unseen, lost: 0.64 }, { modules: [seen], model: {} }, { words: true });
        }""",
        unseen,
    )
    assert caption.endswith(f". {said}")


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
    page.locator("regard-steps .stagegrid").wait_for()
    page.keyboard.press("Escape")


SUBS = ["read", "query", "scores", "weights", "context", "next word", "written"]


def at(page: Any, step: int, sub: int) -> None:
    """Wait until the stage shows a sub-step."""
    until(
        page,
        "([step, sub]) => document.querySelector('.player .number')?.innerText === `${step + 1} / 4` && "
        "document.querySelector('.stagegrid')?.dataset.sub === String(sub)",
        [step, sub],
    )


def shown(page: Any, selector: str) -> list[str]:
    return [one.text_content() for one in page.locator(selector).all() if one.is_visible()]


def test_nothing_of_a_step_is_shown_before_it_is_computed(page: Any) -> None:
    view(page, "Step by step")
    at(page, 0, 0)
    assert not page.locator("regard-translate .panes").is_visible(), "the panes would give the translation away"
    whole = "document.querySelector('main').innerText"
    for sub in range(7):
        at(page, 0, sub)
        parts = ["1", "2", "3", "4", "5"]
        assert shown(page, ".stagegrid .badge") == parts[: min(sub, 5)]
        assert len(shown(page, ".rows .cell:nth-child(2) .number")) == (4 if sub >= 2 else 0)
        assert len(shown(page, ".rows .cell:nth-child(3) .number")) == (4 if sub >= 3 else 0)
        assert bool(shown(page, ".sum .strip")) == (sub >= 4)
        assert bool(shown(page, ".words li")) == (sub >= 5)
        assert page.locator(".sofar .target").inner_text().replace("the next word", "").strip() == (
            "fo" if sub == 6 else ""
        )
        label = page.locator(".rows li").first.get_attribute("aria-label")
        assert [" score " in label, " weight " in label] == [sub >= 2, sub >= 3]
        picture(page, f"step-{SUBS[sub].replace(' ', '-')}")
        page.keyboard.press("ArrowRight")
    at(page, 1, 1)
    assert "da" not in page.locator(".sofar .target").inner_text()
    assert "da" in page.evaluate(whole)
    page.keyboard.press("End")
    at(page, 3, 6)
    assert all(check.startswith("\u2713") for check in page.locator(".check").all_inner_texts())
    assert page.locator(".check").count() == 4
    page.keyboard.press("Shift+ArrowLeft")
    at(page, 2, 1)


def test_the_next_word_changes_numbers_and_builds_no_part_of_the_stage_again(page: Any) -> None:
    view(page, "Step by step")
    at(page, 0, 0)
    page.keyboard.press("End")
    at(page, 3, 6)
    kept = ".player .next", ".sofar .source bdi", ".rows .fill", ".box.output .formula math"
    before = [page.locator(one).first.element_handle() for one in kept]
    numbers = page.locator(".rows .number").all_inner_texts()
    page.keyboard.press("Shift+ArrowLeft")
    at(page, 2, 1)
    assert shown(page, ".rows .number") == [], "those of the other step are not shown either"
    page.locator(".sofar .done").nth(1).click()
    at(page, 1, 6)
    assert [one.evaluate("one => one.isConnected") for one in before] == [True] * 4
    assert page.locator(".rows .number").all_inner_texts() != numbers
    assert page.locator(".sofar .target").inner_text().split() == ["fo", "da"]
    assert page.locator(".player .number").inner_text() == "2 / 4"
    page.keyboard.press("Home")
    at(page, 0, 0)
    assert page.get_by_role("button", name="Back").is_disabled()
    page.keyboard.press("ArrowRight")
    at(page, 0, 1)
    assert page.get_by_role("button", name="Back").is_enabled()


def test_steps_without_a_translation_leave_the_box_to_write_in(page: Any) -> None:
    view(page, "Step by step")
    at(page, 0, 0)
    page.evaluate("import('/page/state.js').then(({ state }) => state.set({ trace: null, busy: true }))")
    until(page, "document.querySelector('regard-steps .empty')")
    assert not page.locator("regard-steps .empty").is_visible(), "it is under way"
    assert not page.locator("#source").is_visible(), "the translation is not given away"
    page.evaluate(
        "import('/page/state.js').then(({ state }) => state.set({ busy: false, error: 'It cannot be reached.' }))"
    )
    page.locator("#source").wait_for()
    assert "cannot be reached" in page.locator("regard-translate .error").inner_text()
    assert page.locator("regard-steps .empty").is_visible()


def test_text_that_is_cut_off_says_so(page: Any) -> None:
    limit = page.evaluate("document.querySelector('#source').maxLength")
    page.route("**/translate", lambda route: None)  # never answered
    page.locator("#source").fill("ba " * (limit // 3 + 1))
    until(page, "document.querySelector('#counter').innerText.endsWith('longer text is cut off')")
    page.locator("#source").fill("ba")
    until(page, "document.querySelector('#counter').innerText.startsWith('2 / ')")
    assert "cut off" not in page.locator("#counter").inner_text()


def test_the_steps_say_that_they_wait(page: Any) -> None:
    held: list[Any] = []
    page.route("**/api/v1/steps", lambda route: held.append(route))
    page.get_by_role("tab", name="Step by step").click()
    page.get_by_text("Waiting for the model\u2026").wait_for()
    for route in held:
        route.continue_()
    page.unroute("**/api/v1/steps")
    page.locator(".stagegrid").wait_for()
    assert page.get_by_text("Waiting for the model\u2026").count() == 0


def test_the_keys_of_the_steps_work_as_soon_as_the_tab_is_opened(page: Any) -> None:
    page.get_by_role("tab", name="Where it looked").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    at(page, 0, 0)
    page.keyboard.press("ArrowRight")
    at(page, 0, 1)
    page.keyboard.press("ArrowLeft")
    at(page, 0, 0)
    page.keyboard.press(" ")
    page.get_by_role("button", name="Pause").wait_for()
    page.keyboard.press(" ")
    page.get_by_role("button", name="Play").wait_for()


def test_all_of_a_step_fits_on_the_screen(server: Server, chromium: Any) -> None:
    clipped = """[...document.querySelectorAll('.stagegrid .formula')].filter((one) =>
      one.checkVisibility({ visibilityProperty: true }) && one.scrollWidth > one.clientWidth + 1).length"""
    with opened(chromium, f"{server.address}#text=ba+da+fo&view=steps") as page:
        page.locator(".stagegrid").wait_for()
        for wide, high in ((1440, 900), (1024, 768), (390, 844)):
            page.set_viewport_size({"width": wide, "height": high})
            page.keyboard.press("Home")
            for _ in range(7):
                page.keyboard.press("ArrowRight")
                size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
                assert size[0] <= wide
                assert size[1] <= high
                assert page.evaluate(clipped) == 0, "no formula runs out of its box"
            picture(page, f"steps-{wide}")


def test_a_number_opens_to_its_arithmetic(page: Any) -> None:
    view(page, "Step by step")
    at(page, 0, 0)
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    at(page, 0, 4)
    page.locator(".rows li").first.focus()
    page.keyboard.press("ArrowDown")
    score, weight, share = page.locator(".details .sum-line").all_inner_texts()
    assert score.startswith("score v \u00b7 tanh(W q + U k) = ")
    assert score.endswith("\u2713")
    powers = re.search(r"= ([\d.]+) \u00f7 ([\d.]+) = ([\d.]+) \u2713$", weight)
    assert powers is not None
    assert float(powers[1]) / float(powers[2]) == pytest.approx(float(powers[3]), abs=0.002)
    assert share.startswith("share of the context ")
    assert page.locator(".rows li[tabindex='0']").count() == 1, "the list is one stop of the Tab key"


def test_the_softmax_is_seen_to_happen_unless_readers_want_no_movement(server: Server, chromium: Any) -> None:
    moving = "document.getAnimations().filter((one) => one.effect.target.matches('.track.weight .fill')).length"
    for motion, least in (("no-preference", 1), ("reduce", 0)):
        with opened(
            chromium, f"{server.address}#text=ba+da+fo&view=steps&sub=2", media={"reduced_motion": motion}
        ) as page:
            at(page, 0, 2)
            running = page.evaluate(
                f"""async () => {{
                  document.body.dispatchEvent(new KeyboardEvent("keydown", {{ key: "ArrowRight", bubbles: true }}));
                  return {moving};
                }}"""
            )
            assert (running >= 1) == (least == 1)
            at(page, 0, 3)
            assert shown(page, ".rows .cell:nth-child(3) .number"), "the same as a still"


def test_what_if(page: Any) -> None:
    view(page, "Step by step")
    at(page, 0, 0)
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    bar = page.locator("regard-changes")
    before = shown(page, ".rows .cell:nth-child(3) .number")
    slider = page.get_by_label("Temperature")
    slider.evaluate("one => { one.value = 6; one.dispatchEvent(new Event('input')); }")
    dragged = shown(page, ".rows .cell:nth-child(3) .number")
    assert max(map(float, dragged)) < max(map(float, before)), "live, and softer"
    assert page.locator(".track.weight .ghost").count() == 4, "with what was before"
    slider.evaluate("one => one.dispatchEvent(new Event('change'))")
    until(page, "document.querySelector('regard-changes').innerText.includes('softer (temperature 4)')")
    until(page, "document.querySelectorAll('.track.output .ghost').length > 3")
    kept = """() => {
      const bar = document.querySelector('regard-changes'), old = bar.querySelector('button');
      bar.show();
      return old === bar.querySelector('button');
    }"""
    assert page.evaluate(kept), "a button that is pressed is not replaced when a trace arrives"
    picture(page, "what-if")
    assert shown(page, ".rows .cell:nth-child(3) .number") == dragged, "the model agrees with the page"
    bar.get_by_role("button", name="undo").click()
    until(page, "document.querySelectorAll('.ghost').length === 0")
    page.locator(".rows li").nth(2).click()
    page.get_by_role("button", name="it is hidden").click()
    page.locator(".rows .masked").wait_for()
    assert "\u2018fo\u2019 is hidden" in bar.inner_text()
    bar.get_by_role("button", name="undo").click()
    until(page, "document.querySelectorAll('.rows .masked').length === 0")
    page.get_by_role("button", name="the model looks only here").click()
    until(page, "document.querySelector('regard-changes').innerText.includes('looks only at')")
    bar.get_by_role("button", name="undo").click()
    page.get_by_role("button", name="uniform weights").click()
    until(page, "document.querySelector('regard-changes').innerText.includes('the same attention')")
    weights = (
        "[...document.querySelectorAll('.track.weight .fill')].map((one) => one.style.getPropertyValue('--share'))"
    )
    until(page, f"{weights}.every((one) => Math.abs(one - 0.25) < 0.005)")
    bar.get_by_role("button", name="undo").click()
    until(page, "document.querySelectorAll('.ghost').length === 0")
    page.locator(".rows li").nth(0).click()
    page.get_by_role("button", name="it is swapped with the next word").click()
    until(page, "document.querySelector('#source').value === 'da ba fo'")
    assert "\u2018ba\u2019 and \u2018da\u2019 are swapped" in bar.inner_text()
    bar.get_by_role("button", name="undo").click()
    until(page, "document.querySelector('#source').value === 'ba da fo'")
    page.locator(".words button").first.click()
    until(page, "document.querySelector('.translation .word').innerText !== 'fo'")


def test_hiding_a_word_masks_all_its_pieces(modules: Any) -> None:
    """The same positions as `regard look --mask`, for a word of several pieces beside a full stop."""
    trace = Trace.from_arrays(["\u2581a", "\u2581hou", "se", ".", "</s>"], ["\u2581x", "</s>"], np.full((2, 5), 0.2))
    positions = modules.evaluate(
        """async (text) => {
          const { host } = await import("/page/host.js");
          const { state } = await import("/page/state.js");
          const { Trace } = await import("/page/trace.js");
          const { hide, sourceWord } = await import("/page/whatif.js");
          host.translate = () => {};
          hide(sourceWord(new Trace(JSON.parse(text)), 2));
          return state.get("changes")[0].positions;
        }""",
        write(page_tree(trace)),
    )
    assert positions == [1, 2]


def test_an_attribution_by_attention_is_not_the_module_of_that_name(modules: Any) -> None:
    trace = Trace.from_arrays(["a", "</s>"], ["x", "</s>"], np.eye(2))
    seen = Attended("by attention", np.eye(2), kind="attribution", normalise="shares")
    explained = replace(trace, attention={**trace.attention, seen.name: seen})
    found = modules.evaluate(
        """async (text) => {
          const { Trace } = await import("/page/trace.js");
          const [plain, explained] = JSON.parse(text).map((tree) => new Trace(tree));
          const both = plain.with(explained, "attention");
          return [null, "attention", "0", "by attention"].map((layer) => both.module(layer).kind);
        }""",
        f"[{write(page_tree(trace))},{write(page_tree(explained))}]",
    )
    assert found == ["cross", "attribution", "cross", "attribution"]


def test_a_word_is_explained_by_other_methods_than_attention(page: Any) -> None:
    explained, caption = page.get_by_label("Explained by"), page.locator("regard-alignment .caption")

    def until_said(text: str) -> None:
        until(page, f"document.querySelector('regard-alignment .caption').innerText.includes('{text}')")

    explained.select_option("occlusion-removed")
    until_said("a word is removed")
    page.get_by_role("button", name="Matrix").click()
    assert page.locator(".matrix [role=gridcell]").count() == 9
    assert page.get_by_label("and not").count() == 0
    page.evaluate("import('/page/state.js').then((m) => m.state.set({ t: 1 }))")
    other = page.get_by_label("and not")
    others = other.locator("option").all_inner_texts()
    assert len(others) > 2
    assert "da" not in others, "it was written"
    other.select_option(label=others[1])
    until_said("why not")
    assert f"\u2018\u2068{others[1]}\u2069\u2019" in caption.inner_text()
    picture(page, "attribution")
    view(page, "Step by step")  # goes through attention
    page.locator(".stagegrid").wait_for()
    view(page, "Where it looked")
    explained.select_option("")
    assert caption.inner_text().startswith("Bahdanau")
    model(page, "transformer-reverse")
    explained.select_option("alti")
    until_said("Not attention, but ALTI+")
    assert page.get_by_label("Layer").count() == 0
    page.locator("#source").fill("da fo ba")  # another sentence is explained by the same method
    until(page, "location.hash.includes('da+fo+ba')")
    until_said("Not attention, but ALTI+")
    model(page, "rnnencdec-reverse")  # no attention, but gradients
    assert "alti" not in explained.locator("option").evaluate_all("(all) => all.map((one) => one.value)")
    explained.select_option("gradient")
    until_said("gradient times input")


def test_a_model_without_attention_shows_its_one_vector(page: Any) -> None:
    model(page, "rnnencdec-reverse")
    caption = page.locator("regard-alignment .caption")
    until(page, "document.querySelector('regard-alignment .caption').innerText.startsWith('No attention')")
    assert caption.inner_text() == "No attention: one vector of the whole sentence."
    view(page, "Step by step")
    page.locator(".stagegrid.fixed").wait_for()
    page.keyboard.press("End")
    until(page, "document.querySelector('.stagegrid.fixed')?.dataset.sub === '6'")
    assert "squeezed into this one vector" in page.locator(".stagegrid .box.context").inner_text()
    assert shown(page, ".stagegrid .badge") == ["1", "2\u20134", "5"]
    picture(page, "one-vector")


def model(page: Any, name: str) -> None:
    """Choose a model."""
    page.locator(".picker summary").click()
    page.locator(f".picker [data-model={name}]").click()
    until(page, "!document.querySelector('regard-translate').classList.contains('busy')")


def test_models_are_compared(page: Any) -> None:
    view(page, "Compare")
    page.locator(".fixed-note").wait_for()
    page.get_by_role("button", name="transformer-reverse").click()
    until(page, "document.querySelectorAll('.beside .card').length === 3")
    assert "other=rnnencdec-reverse%2Ctransformer-reverse" in page.url
    picture(page, "compare-models")
    page.get_by_role("button", name="rnnencdec-reverse").click()
    page.get_by_role("heading", name="Difference").wait_for()
    page.get_by_role("button", name="With and without attention").click()
    page.locator(".contrast").nth(1).wait_for()
    assert "comparing=length" in page.url
    assert "Marked words differ" in page.locator("regard-compare .lead, regard-compare").first.inner_text()
    own, example = page.locator(".contrast h2").all_inner_texts()
    assert own == "Your sentence, 3 words"
    assert re.fullmatch(r"An example, \d+ words", example)
    assert page.locator(".contrast .note").first.inner_text() == TEXT
    page.get_by_label("Length").fill("0")
    until(page, "text => document.querySelector('.contrast:last-child h2').innerText !== text", example)
    picture(page, "compare-length")


def test_outputs_are_aligned_before_their_rows_are_compared(modules: Any) -> None:
    gap = modules.evaluate(
        """async () => {
          const { difference } = await import("/page/sides.js");
          const table = (rows, weights) => ({
            seen: { kind: "cross" }, columns: [{ text: "a" }, { text: "b" }], weights,
            rows: rows.map((text, at) => ({ text, tokens: [at] })),
          });
          const one = table(["x", "y"], [[1, 0], [0, 1]]);
          const { rows, weights } = difference(one, table(["z", "x", "y"], [[1, 0], [1, 0], [1, 0]]));
          return [rows.map((one) => one.text), weights.map((row) => row.map(Number))];
        }"""
    )
    assert gap == [["z (second only)", "x", "y"], [[-1, 0], [0, 0], [-1, 1]]]


def test_matrices_beside_each_other_are_seen_whole(page: Any) -> None:
    high, gap, one = page.evaluate(
        """async () => {
          const [{ drawMatrix }, { differenceMap }] = [await import("/page/matrix.js"), await import("/page/sides.js")];
          const named = (count) => Array.from({ length: count }, (_, at) => ({ text: `word${at}`, tokens: [at] }));
          const table = (rows, columns) => ({
            rows: named(rows), columns: named(columns), weights: named(rows).map(() => named(columns).map(() => 0.5)),
          });
          const drawn = (rows, columns, more) =>
            Number(drawMatrix(table(rows, columns), null, more).element.firstChild.getAttribute("height"));
          const bare = { bare: true, room: 1100 };
          const difference = differenceMap(table(45, 30)).querySelector("svg");
          return [
            [12, 24, 37, 45].map((rows) => drawn(rows, 30, bare)), Number(difference.getAttribute("height")),
            drawn(37, 30, { room: 1100 }),
          ];
        }"""
    )
    assert max(*high, gap) <= 752, "as high as the box that scrolls, without its border"
    assert high[0] > 400, "a short one is not made smaller"
    assert one > 1000, "one that stands alone keeps its large cells"


def test_heads_are_compared(page: Any) -> None:
    view(page, "Compare")
    model(page, "transformer-reverse")
    page.get_by_role("button", name="Heads").click()
    page.locator(".thumbnail").nth(7).wait_for()
    page.locator("label:has(> span:text-is('Attention')) select").select_option("encoder")
    assert page.locator(".thumbnail").count() == 8
    page.locator("label:has(> span:text-is('Attention')) select").select_option("cross")
    page.get_by_label("Order").select_option("entropy")
    picture(page, "compare-heads")
    page.get_by_label("Order").select_option("least alignment error")
    page.get_by_text("30 generated sentences whose right links are known").wait_for()
    errors = [float(text.split(" ")[-1]) for text in page.get_by_text("alignment error 0").all_inner_texts()]
    assert len(errors) == 8
    assert errors == sorted(errors)
    page.locator(".thumbnail").nth(3).click()
    page.locator("regard-alignment .caption").wait_for()
    caption = page.locator("regard-alignment .caption")
    assert re.search(r"layer \d, head \d", caption.inner_text())
    page.get_by_label("Head").select_option("max")
    assert "largest of 4 heads" in caption.inner_text()
    page.locator("label:has(> span:text-is('Attention')) select").select_option("encoder")
    assert caption.inner_text().startswith("Self-attention of the encoder, source words looking at source words, layer")
    assert page.locator(".ribbons text[data-row]").all_text_contents() == [
        "\u2068ba\u2069",
        "\u2068da\u2069",
        "\u2068fo\u2069",
    ]
    page.locator("label:has(> span:text-is('Attention')) select").select_option("decoder")
    assert caption.inner_text().startswith("Self-attention of the decoder")


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
    page.get_by_role("button", name="undo").click()
    page.get_by_role("button", name="List").click()
    assert page.locator("[role=tree] [role=treeitem]").count() > 1
    page.get_by_role("button", name="Table").click()
    page.get_by_text("finished, rank 1").wait_for()


def export(page: Any, kind: str, folder: Path) -> Path:
    """Export the shown view, as a user does."""
    page.locator("regard-views .menu summary", has_text="Export").click()
    with page.expect_download() as download:
        page.locator(f".menu [data-kind={kind}]").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


VIEWS = {  # and what each draws
    "Where it looked": ".band, .matrix",
    "Step by step": ".stagegrid",
    "Compare": ".beside .card",
    "Search": ".tree, [role=tree]",
}


def test_every_view_is_exported(page: Any, tmp_path: Path) -> None:
    exported = set()
    for name, part in VIEWS.items():
        view(page, name)
        page.locator("regard-views .menu").first.wait_for()
        page.locator(part).first.wait_for()
        image = export(page, "SVG", tmp_path).read_text("utf-8")
        drawing = ElementTree.fromstring(image)
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert any("fo" in (text.text or "") for text in drawing.iter("{http://www.w3.org/2000/svg}text"))
        assert export(page, "PNG", tmp_path).read_bytes().startswith(b"\x89PNG")
        assert export(page, "CSV", tmp_path).read_text("utf-8").count("\n") >= 3
        assert json.loads(export(page, "JSON", tmp_path).read_text("utf-8"))["trace"] == 1
        exported.add(image)
    assert len(exported) == 4, "each view draws its own"


def test_the_exported_page_opens_with_the_network_off(page: Any, chromium: Any, tmp_path: Path) -> None:
    view(page, "Step by step")
    at(page, 0, 0)
    saved = export(page, "HTML", tmp_path)
    text = saved.read_text("utf-8")
    assert "127.0.0.1" not in text
    with opened(chromium, saved.as_uri(), offline=True) as alone:
        at(alone, 0, 0)
        alone.keyboard.press("Shift+ArrowRight")
        at(alone, 1, 1)
        alone.keyboard.press("End")
        at(alone, 3, 6)
        assert alone.locator(".check").count() == 4
        assert all(check.startswith("✓") for check in alone.locator(".check").all_inner_texts())
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
        page.get_by_text("More").click()
        assert page.get_by_role("button", name="Special tokens").get_attribute("aria-pressed") == "true"
        assert page.get_by_label("Colours").input_value() == "cividis"


def test_everything_is_reached_with_the_tab_key(page: Any) -> None:
    page.locator("#source").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(f"(({FOCUSED}))(document.activeElement)"))
    for wanted in ("Clear", "Copy", "Share", "fo", "Where it looked", "Matrix", "More"):
        assert wanted in reached, (wanted, reached)
    assert "da" not in reached, "the words are one stop; the arrows go from word to word"
    assert any("Links between source words" in str(name) for name in reached)
    page.locator(".translation .word").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.innerText") == "da"
    page.locator("[role=tab]").first.focus()
    page.keyboard.press("?")
    page.locator("dialog.keys").wait_for()
    page.keyboard.press("Escape")


def test_the_first_minute(server: Server, chromium: Any) -> None:
    with opened(chromium, f"{server.address}#text=ba+da+fo") as page:
        cards = page.locator("regard-guide .caption-card")
        cards.nth(2).wait_for()
        cards.nth(0).click()
        said = page.locator(".sure").inner_text()
        assert re.fullmatch(r"While writing \w+, the model looked \d+\s% at \w+\.", said)
        cards.nth(1).click()
        until(page, "document.querySelector('regard-changes').innerText.includes('is hidden')")
        until(page, "document.querySelector('regard-changes .before')?.innerText === 'before: fo da ba'")
        assert page.locator("regard-changes .before mark").count() > 0, "what the word was needed for is marked"
        cards.nth(2).click()
        page.locator(".contrast").nth(1).wait_for()
        assert [text[0] for text in cards.all_inner_texts()] == ["\u2713"] * 3
        page.get_by_role("button", name="Do not show this again").click()
        page.reload()
        page.locator(".translation .word").first.wait_for()
        assert not page.locator("regard-guide").is_visible()


def test_the_picker_says_what_a_model_is(page: Any) -> None:
    page.locator(".picker summary").click()
    text = page.locator(".picker [data-model=bahdanau-reverse]").inner_text()
    assert "Bahdanau et al. 2015" in text
    assert "additive attention" in text
    assert "parameters" in text
    page.keyboard.press("Escape")
    assert not page.locator(".picker .sheet").is_visible()


def test_a_translation_is_seen_while_it_is_written_and_escape_stops_it(page: Any) -> None:
    held = page.evaluate(
        """async () => {
          const { state } = await import("/page/state.js");
          const seen = [];
          const end = state.on(["sentences"], () => seen.push(state.get("sentences")[0]?.translatedText));
          const box = document.querySelector("#source");
          box.value = "lu me ko";
          box.dispatchEvent(new Event("input"));
          while (state.get("trace")?.source.text !== "lu me ko") await new Promise((done) => setTimeout(done, 20));
          end();
          return seen;
        }"""
    )
    assert held[:3] == ["ko", "ko me", "ko me lu"]
    page.route("**/translate", lambda route: None)  # never answered
    page.locator("#source").fill("ba ba")
    page.get_by_role("button", name="Stop (Esc)").wait_for()
    page.locator("#source").press("Escape")
    until(page, "!document.querySelector('regard-translate').classList.contains('busy')")
    page.unroute("**/translate")


def test_copy_clear_share_and_the_way_back(server: Server, chromium: Any) -> None:
    with opened(chromium, f"{server.address}#text=ba+da+fo", permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator(".translation .word").first.wait_for()
        page.get_by_role("button", name="Copy", exact=True).click()
        until(page, "document.querySelector('#announcements').textContent === 'The translation is copied'")
        assert page.evaluate("navigator.clipboard.readText()") == "fo da ba"
        page.get_by_role("button", name="Share").click()
        until(page, "document.querySelector('#announcements').textContent === 'The address is copied'")
        assert page.locator(".message").is_visible()
        assert page.locator(".message").inner_text() == "The address is copied"
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        assert page.locator("#counter").inner_text() == "8 / 65,536"
        page.locator("#source").fill("lu me ko")
        until(page, "document.querySelector('.translation .word')?.innerText === 'ko'")
        page.go_back()
        until(page, "document.querySelector('#source').value === 'ba da fo'")
        until(page, "document.querySelector('.translation .word')?.innerText === 'fo'")
        page.go_forward()
        until(page, "document.querySelector('#source').value === 'lu me ko'")
        page.get_by_role("button", name="Clear").click()
        assert page.locator("#source").input_value() == ""
        assert page.locator("regard-translate .translation").inner_text() == "The translation appears here."


def test_pointing_moves_nothing_and_a_full_stop_can_be_hit(page: Any) -> None:
    where = "document.querySelector('.tabs').getBoundingClientRect().top"
    before = page.evaluate(where)
    for at_word in range(3):
        page.locator(".translation .word").nth(at_word).hover()
        assert page.evaluate(where) == before
    page.evaluate(SHOW, write(page_tree(Trace.from_arrays(["a", "."], ["x", "."], np.eye(2, dtype=np.float32)))))
    page.get_by_role("button", name="Ribbons").click()
    box = page.locator(".ribbons .hit").nth(1).bounding_box()
    assert min(box["width"], box["height"]) >= 24


def test_right_to_left_words_are_isolated_and_run_the_right_way(page: Any) -> None:
    hebrew = Trace.from_arrays(
        ["\u05e9\u05dc\u05d5\u05dd", "\u05e2\u05d5\u05dc\u05dd"], ["hello", "world"], np.eye(2, dtype=np.float32)
    )
    page.evaluate(SHOW, write(page_tree(hebrew)))
    page.get_by_role("button", name="Ribbons").click()
    first, second = (page.locator(f".ribbons text[data-column='{at_word}']") for at_word in (0, 1))
    assert first.bounding_box()["x"] > second.bounding_box()["x"], "the first word is on the right"
    assert first.text_content() == "\u2068\u05e9\u05dc\u05d5\u05dd\u2069"
    left, right = (page.locator(f".ribbons text[data-row='{at_word}']").bounding_box()["x"] for at_word in (0, 1))
    assert left < right
    assert page.locator(".translation bdi, .translation .word").evaluate_all(
        "all => all.every((one) => one.dir === 'auto')"
    )


@pytest.mark.parametrize(
    ("wide", "high", "scheme"),
    [
        (390, 844, "dark"),  # test_site_page.py has a wide and light one
        pytest.param(1440, 900, "light", marks=pytest.mark.slow),
        pytest.param(1024, 768, "dark", marks=pytest.mark.slow),
        pytest.param(390, 844, "light", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing(server: Server, chromium: Any, wide: int, high: int, scheme: str) -> None:
    script = (packages() / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    options = {"bypass_csp": True, "reduced_motion": "reduce"}  # colours do not fade in
    with opened(chromium, f"{server.address}#text=ba+da+fo", wide, high, {"color_scheme": scheme}, **options) as page:
        page.locator(".translation .word").first.wait_for()
        page.evaluate(script)
        for name in ("Where it looked", "Step by step", "Compare", "Search", "All layers", "Encoder"):
            if name == "All layers":
                view(page, "Where it looked")  # on a phone the steps leave no room for the picker
                deep(page)
                view(page, "Step by step")
                page.get_by_role("button", name=name).click()
                page.locator(".pathgrid").wait_for()
            elif name == "Encoder":
                page.locator(".choices select").first.select_option("encoder")
                page.locator(".pathgrid.encoder").wait_for()
            else:
                view(page, name)
                page.locator(".stagegrid, .band, .matrix, .tree, [role=tree], .thumbnail").first.wait_for()
            if page.locator(".stagegrid").count():
                page.keyboard.press("End")
            if name == "Where it looked":
                page.get_by_role("button", name="Matrix").click()
            found = page.evaluate("axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)")
            assert [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found] == [], name
            picture(page, f"{wide}-{scheme}-{name.lower().replace(' ', '-')}")


def test_nothing_is_wider_than_a_small_phone(server: Server, chromium: Any) -> None:
    with opened(chromium, f"{server.address}#text=ba+da+fo", wide=360, high=740) as page:
        page.locator(".translation .word").first.wait_for()
        for name, part in VIEWS.items():
            view(page, name)
            page.locator(part).first.wait_for()
            tabs = page.locator("[role=tablist]").evaluate("one => one.scrollWidth <= one.clientWidth")
            assert tabs, "the tabs fit"
            if name == "Search":
                assert page.locator("[role=tree] [role=treeitem]").count() > 1, "a drawing would need more room"
            picture(page, f"phone-{name.lower().replace(' ', '-')}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


def test_with_reduced_motion_and_forced_colours_the_same_is_there(server: Server, chromium: Any) -> None:
    with opened(
        chromium,
        f"{server.address}#text=ba+da+fo&view=steps",
        media={"reduced_motion": "reduce", "forced_colors": "active"},
    ) as page:
        page.locator(".stagegrid").wait_for()
        page.keyboard.press("End")
        at(page, 3, 6)
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


def test_without_a_token_the_page_and_the_documentation_ask_for_it(chromium: Any) -> None:
    token = "a-long-enough-token"
    with serving(access=Access("0.0.0.0", (AccessToken("default", token),), shown=token)) as server:
        address = f"http://127.0.0.1:{server.port}/"
        context = chromium.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_label("Token").fill("a-long-enough-token")
        page.get_by_role("button", name="Open").click()
        page.locator(".translation .word").first.wait_for()
        context.close()
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"{address}docs")
        page.get_by_label("Token").fill("a-long-enough-token")
        page.get_by_role("button", name="Open").click()
        section = page.locator("section", has_text="POST /translate").first
        section.wait_for()
        assert "-H 'Authorization: Bearer TOKEN'" in section.inner_text()
        context.close()
        with opened(chromium, f"{address}#token=a-long-enough-token") as known:
            known.locator(".translation .word").first.wait_for()
            assert "token" not in known.url


def test_long_sentences_wrap_into_lines_that_fit(server: Server, chromium: Any) -> None:
    """Every word is in one line, in order; no line is wider than the page; links stay in their line where they can."""
    words = [f"word{at}" for at in range(40)]
    weights = np.roll(np.eye(40, dtype=np.float32), 1, axis=1) * 0.8 + np.eye(40, dtype=np.float32) * 0.2
    with opened(chromium, server.address, wide=390, high=844) as page:
        page.locator(".translation .word").first.wait_for()
        page.evaluate(SHOW, write(page_tree(Trace.from_arrays(words, words, weights))))
        page.get_by_role("button", name="Ribbons").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        boxes = [
            [one.bounding_box() for one in page.locator(f".ribbons text[data-{side}]").all()]
            for side in ("column", "row")
        ]
        for side in boxes:
            assert len(side) == 40
            assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in side)
            order = sorted(range(40), key=lambda at: (round(side[at]["y"]), side[at]["x"]))
            assert order == list(range(40))
        assert len({round(box["y"]) for box in boxes[0]}) > 4, "several lines"
        cut = page.evaluate(
            """async () => {
              const { lines } = await import("/page/lines.js");
              const flat = (count, value) => Array.from({ length: count }, () => value);
              const blocks = [0, 0, 0, 1, 1].map((row) => [0, 0, 1, 1].map((column) => Number(row === column) / 2));
              return {
                whole: lines(flat(3, 10), flat(4, 10), flat(4, [1, 0, 0]), 40),
                blocks: lines(flat(4, 10), flat(5, 10), blocks, 30),
                wide: lines([99, 99], [99], [[1, 0]], 40),
                none: lines([], [], [], 40),
              };
            }"""
        )
    assert cut["whole"] == [{"columns": [0, 3], "rows": [0, 4]}]
    assert cut["blocks"] == [{"columns": [0, 2], "rows": [0, 3]}, {"columns": [2, 4], "rows": [3, 5]}]
    assert [one["columns"] for one in cut["wide"]] == [[0, 1], [1, 2]], "a word wider than a line has a line"
    assert cut["none"] == []


def deep(page: Any) -> None:
    """Choose the Transformer, and two words that it must begin with: it is too young to write any."""
    model(page, "transformer-reverse")
    page.evaluate("import('/page/session.js').then((session) => session.goOn('da ba'))")
    until(page, "document.querySelectorAll('.translation .word').length >= 2")


def test_a_step_through_all_layers_of_a_transformer(page: Any) -> None:
    deep(page)
    view(page, "Step by step")
    page.locator(".stagegrid").wait_for()
    page.get_by_role("button", name="All layers").click()
    page.locator(".pathgrid").wait_for()
    subs = page.locator(".player .segments button").all_inner_texts()
    assert subs == ["read", "layer 0", "layer 1", "next word", "written"]
    for sub in range(5):
        until(page, "sub => document.querySelector('.pathgrid').dataset.sub === String(sub)", sub)
        assert len(shown(page, ".pathgrid .box.layer")) == min(max(sub, 0), 2)
        assert bool(shown(page, ".pathgrid .words li")) == (sub >= 3)
        assert page.locator(".slot.filled").count() == (sub == 4)
        page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.player .number').innerText.startsWith('2 / ')")
    assert page.locator(".pathgrid .heads").first.locator("button").count() == 4
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    written = page.locator(".pathgrid .words .chosen bdi").inner_text()
    best = page.locator(".pathgrid .would bdi").all_inner_texts()
    assert len(best) == 2
    assert page.locator(".pathgrid .words li bdi").first.inner_text() == best[-1], "the last layer is the model"
    picture(page, "path")
    page.locator(".pathgrid .layer").nth(1).locator(".heads button").nth(2).click()
    until(page, "document.querySelectorAll('.stagegrid .rows li').length === 2")
    assert page.locator(".choices select").nth(0).input_value() == "decoder", "attention to the words so far"
    assert page.locator(".choices select").nth(2).input_value() == "2"
    assert written not in page.locator(".rows").inner_text(), "what is not written yet cannot be looked at"
    checks = shown(page, ".check")
    assert len(checks) == 3
    assert all(check.startswith("\u2713") for check in checks)
    assert page.get_by_label("Temperature").count() == 0, "the what-ifs change attention to the source"
    assert "whole" not in page.url


def test_a_source_word_is_followed_through_the_encoder(page: Any) -> None:
    """A step of reading: scores, weights, mix of values, residual path; nothing is written."""
    deep(page)
    view(page, "Step by step")
    page.locator(".how-read").wait_for()
    page.get_by_role("button", name="Go through the encoder").click()
    at(page, 0, 0)
    until(page, "document.querySelector('.asking')?.innerText === 'ba'")
    assert page.locator(".sofar .target").count() == 0
    assert page.locator(".player .segments button").last.inner_text() == "new vector"
    for sub in range(1, 6):
        page.keyboard.press("ArrowRight")
        at(page, 0, sub)
        assert shown(page, ".stagegrid .badge") == ["1", "2", "3", "4", "5"][:sub]
    checks = shown(page, ".check")
    assert len(checks) >= 3
    assert all(check.startswith("\u2713") for check in checks)
    assert shown(page, ".output .line .small")[:2] == ["the word before", "+ heads \u00d7 W"]
    row = page.locator(".rows li").first.element_handle()
    page.keyboard.press("ArrowRight")
    at(page, 1, 1)
    assert page.locator(".asking").all_inner_texts() == ["da"]
    assert row.evaluate("one => one.isConnected"), "the words of the stage stay, their numbers change"
    page.get_by_role("button", name="All layers").click()
    page.locator(".pathgrid.encoder").wait_for()
    page.keyboard.press("End")
    until(page, "document.querySelector('.asking')?.innerText === '\u25a0'")
    assert len(shown(page, ".pathgrid .box.layer")) == 2
    assert page.locator(".pathgrid .would").count() == 0, "the encoder writes nothing"
    page.locator(".pathgrid .heads button").first.click()
    until(page, "document.querySelector('.choices select').value === 'encoder'")
    page.locator(".choices select").first.select_option("cross")
    until(page, "document.querySelector('.sofar .slot') && !document.querySelector('.asking')")


def test_what_is_not_right_with_a_translation_is_marked(page: Any) -> None:
    page.locator("#source").fill("ba zzz fo\nlu qqq")
    until(page, "document.querySelectorAll('.behind .unseen').length === 2")
    assert page.locator(".behind .unseen").all_inner_texts() == ["zzz", "qqq"], "in every sentence"
    assert page.locator(".behind").inner_text() == "ba zzz fo\nlu qqq"
    until(page, "document.querySelectorAll('.translation .word').length > 0")
    notes = page.locator(".translation .flag").all_inner_texts()
    assert len(notes) == 2
    assert all("never seen in training" in note for note in notes)
    page.locator("#source").fill("Je ne sais pas où est la gare.")
    page.locator(".flag", has_text="; the source looks like French, but the model reads English").wait_for()


def test_what_is_kept_only_in_the_text_is_said_beside_the_words_of_the_model(page: Any) -> None:
    assert page.locator(".translation .flag").count() == 0
    page.locator("#source").fill("BA DA @someone FO")
    until(page, "document.querySelector('.translation .flag b')")
    kept = page.locator(".translation .flag b").inner_text()
    assert "@someone" in kept
    assert "@someone" not in " ".join(words(page))
    assert page.evaluate("document.querySelector('regard-translate').whole()") == kept
    page.evaluate("async () => (await import('/page/state.js')).state.set({ prefix: ['da'] })")
    assert page.locator(".translation .flag b").count() == 0


def test_a_file_comes_back_translated(page: Any, tmp_path: Path) -> None:
    file = {"name": "words.txt", "mimeType": "text/plain", "buffer": b"ba da fo\n\nlu me ko\n"}
    with page.expect_download() as download:
        page.locator("input[type=file]").set_input_files(file)
    download.value.save_as(tmp_path / "back.txt")
    assert (tmp_path / "back.txt").read_text("utf-8") == "fo da ba\n\nko me lu\n"
    assert download.value.suggested_filename.endswith(".txt")
    with page.expect_download() as dropped:
        page.evaluate(
            """() => {
              const data = new DataTransfer();
              data.items.add(new File(["<p>ba <b>da</b></p>"], "page.html", { type: "text/html" }));
              document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
            }"""
        )
    dropped.value.save_as(tmp_path / "page.html")
    assert sorted(re.sub(r"<[^>]*>", "", (tmp_path / "page.html").read_text("utf-8")).split()) == ["ba", "da"]
    assert not page.locator("regard-translate").evaluate("one => one.classList.contains('busy')")
    assert page.locator(".message").inner_text().startswith("page.html is translated and saved as ")


def test_a_refused_file_leaves_the_translation_in_place(server: Server, chromium: Any) -> None:
    page = chromium.new_page(server.address)  # not `opened`: a refusal is an error to the console
    page.goto(f"{server.address}#text={TEXT.replace(' ', '+')}")
    page.locator(".translation .word").first.wait_for()
    page.evaluate(
        "window.seen = []; new MutationObserver(() => seen.push(document.querySelector('.message').innerText))"
        ".observe(document.querySelector('.message'), { childList: true })"
    )
    file = {"name": "words.xyz", "mimeType": "text/plain", "buffer": b"ba da fo"}
    page.locator("input[type=file]").set_input_files(file)
    page.locator(".message.error").wait_for()
    assert page.locator(".message").inner_text().startswith("words.xyz: ")
    assert page.evaluate("seen[0]") == "words.xyz is being translated\u2026"
    assert words(page) == ["fo", "da", "ba"]
    page.close()


def test_pieces_of_words_are_called_pieces(page: Any) -> None:
    choice = {"piece": "\u2581incomprehensibilities", "text": "incomprehensibilities" * 3, "probability": 0.1234}
    page.route("**/api/v1/alternatives", lambda route: route.fulfill(json={"alternatives": [choice]}))
    page.locator(".translation .word").first.click()
    page.locator(".popover li button").wait_for()
    assert "some are only the first piece of a word" in page.locator(".popover .note").inner_text()
    inside = "(one) => one.scrollWidth <= one.clientWidth"
    assert page.locator(".popover li button").evaluate(inside), "the number stays in its column"


@pytest.mark.parametrize(("target", "pieced"), [(["x", "y"], False), (["\u2581hou", "se"], True)])
def test_steps_count_pieces_where_tokens_are_no_words(modules: Any, target: list[str], pieced: bool) -> None:
    tree = write(page_tree(Trace.from_arrays(["a", "b"], target, np.full((2, 2), 0.5))))
    found = modules.evaluate(
        "async (text) => new (await import('/page/trace.js')).Trace(JSON.parse(text)).pieced", tree
    )
    assert found is pieced
    named = modules.evaluate(
        """async (text) => {
          const { state } = await import("/page/state.js");
          await import("/page/whatif.js");
          (await import("/page/host.js")).host.live = true; // the bar of a page where something can be changed
          state.set({ trace: new (await import("/page/trace.js")).Trace(JSON.parse(text)) });
          state.set({ changes: [{ kind: "set-row", t: 1, position: 0 }] });
          const bar = document.body.appendChild(document.createElement("regard-changes"));
          return bar.innerText;
        }""",
        tree,
    )
    assert f"{'piece' if pieced else 'word'} 2 looks only at" in named, "the bar counts as the step view does"


def test_a_word_of_several_pieces_has_one_weight_in_the_sentence_too(modules: Any) -> None:
    trace = Trace.from_arrays(["\u2581do", "or", "\u2581red"], ["x"], np.array([[0.3, 0.3, 0.4]]))
    shares, said = modules.evaluate(
        """async (text) => {
          const { state } = await import("/page/state.js");
          const { Trace } = await import("/page/trace.js");
          const [{ host }] = [await import("/page/host.js"), await import("/page/steps.js")];
          const output = { words: [{ text: "x", piece: "x", logprob: 0, chosen: true }] };
          host.step = async () => ({ t: 0, weights: [0.3, 0.3, 0.4], formula: { kind: "dot" }, output });
          host.path = async () => null;
          state.set({ trace: new Trace(JSON.parse(text)), t: 0, sub: 3 });
          const steps = document.body.appendChild(document.createElement("regard-steps"));
          while (!steps.step) await new Promise((act) => setTimeout(act, 20));
          const marked = [...steps.querySelectorAll(".sentence [data-s]")];
          return [marked.map((one) => Number(one.style.getPropertyValue("--share"))), steps.words()];
        }""",
        write(page_tree(trace)),
    )
    assert shares == [pytest.approx(0.6), pytest.approx(0.6), pytest.approx(0.4)]
    assert "60 % of the weight on \u2018door\u2019" in said.replace("\u00a0", " ")


def test_the_exponent_of_a_weight_is_written_as_a_difference_of_any_scores(modules: Any) -> None:
    texts = modules.evaluate(
        """async () => {
          const { weightText } = await import("/page/arithmetic.js");
          const of = (scores) => {
            const top = Math.max(...scores), all = scores.map((one) => Math.exp(one - top));
            const sum = all.reduce((a, b) => a + b, 0), weights = { data: all.map((one) => one / sum) };
            return weightText({ scores: { data: scores }, weights }, { normalise: "softmax" }, 0);
          };
          return [of([-3, -1]), of([1, 2])];
        }"""
    )
    assert texts[0].startswith("exp(\u22123.00 \u2212 (\u22121.00)) \u00f7 \u03a3 = 0.135 \u00f7 1.135 = 0.119")
    assert texts[1].startswith("exp(1.00 \u2212 2.00) \u00f7 \u03a3 = 0.368 \u00f7 1.368 = 0.269")


def test_on_a_phone_words_are_tapped_and_the_sentence_about_one_stays_in_sight(server: Server, chromium: Any) -> None:
    address = f"{server.address}#text={TEXT.replace(' ', '+')}"
    with opened(chromium, address, wide=375, high=700, has_touch=True, is_mobile=True) as page:
        page.locator(".translation .word").first.wait_for()
        assert page.locator(".sure").inner_text().startswith("Tap a word")
        # As far down as it is below a longer text.
        page.evaluate("document.querySelector('.pair').style.setProperty('margin-bottom', '330px')")
        page.locator("regard-guide .caption-card", has_text="Tap a word").wait_for()
        page.locator(".translation .word").first.tap()
        page.locator(".popover li button").first.wait_for()
        sentence, above = page.locator(".sure").bounding_box(), page.locator(".popover").bounding_box()
        assert sentence["y"] >= 0
        assert sentence["y"] + sentence["height"] <= above["y"]
        picture(page, "phone-alternatives")


def test_the_languages_are_swapped_and_the_translation_goes_back(page: Any) -> None:
    page.get_by_role("button", name="Swap the languages").click()
    until(page, "document.querySelector('#source').value === 'fo da ba'")
    until(page, "document.querySelector('.translation .word')?.innerText === 'ba'")
    assert words(page) == ["ba", "da", "fo"]
    assert page.get_by_label("From").input_value() == "de"
    assert "model=back" in page.url
    page.go_back()
    until(page, "document.querySelector('#source').value === 'ba da fo'")
    assert page.get_by_label("From").input_value() == "en"


def test_everything_from_the_first_word_to_a_changed_step_by_keyboard(server: Server, chromium: Any) -> None:
    with opened(chromium, server.address, media={"reduced_motion": "reduce"}) as page:
        page.locator(".translation .word").first.wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "source":
                break
        page.keyboard.press("Control+A")
        page.keyboard.type("ba da fo")
        page.keyboard.press("Control+Enter")
        until(page, "document.querySelector('.translation .word')?.innerText === 'fo'")
        for _ in range(6):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.word')"):
                break
        page.keyboard.press("ArrowRight")
        until(page, "document.querySelector('.sure').innerText.startsWith('While writing da')")
        page.keyboard.press("Enter")
        page.locator(".popover li button").first.wait_for()
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.innerText") == "da", "the focus comes back"
        page.keyboard.press("2")
        page.locator(".stagegrid").wait_for()
        page.keyboard.press("Home")
        for sub in range(1, 5):
            page.keyboard.press("ArrowRight")
            at(page, 0, sub)
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.rows li')"):
                break
        page.keyboard.press("ArrowDown")
        assert page.locator(".details .sum-line").count() == 3
        for _ in range(6):
            page.keyboard.press("Shift+Tab")
            if page.evaluate("document.activeElement.innerText === 'it is hidden'"):
                break
        page.keyboard.press("Enter")
        page.locator(".rows .masked").wait_for()
        assert "is hidden" in page.locator("regard-changes").inner_text()
        assert page.evaluate("document.getAnimations().length") == 0, "nothing moves for those who want none"


WEIGHTS = "[...document.querySelectorAll('.rows li > :nth-child(3) .number')].map((one) => Number(one.innerText))"


def test_a_weight_is_dragged_or_set_by_keys_and_the_others_give_way(page: Any) -> None:
    page.goto(page.url + "&view=steps&t=1&sub=5")
    at(page, 1, 5)
    before = page.evaluate(WEIGHTS)
    bar = page.locator(".rows li .track.weight").first.bounding_box()
    page.mouse.move(bar["x"] + 1, bar["y"] + 4)
    page.mouse.down()
    page.mouse.move(bar["x"] + 0.6 * bar["width"], bar["y"] + 4)
    dragged = page.evaluate(WEIGHTS)
    assert dragged[0] == pytest.approx(0.6, abs=0.03)
    assert sum(dragged) == pytest.approx(1, abs=0.01)
    page.mouse.up()
    page.locator("regard-changes", has_text="the weights of word 2 are set by hand").wait_for()
    until(page, f"{WEIGHTS}[0] > 0.55 && document.querySelector('.sum .check.changed')")
    page.locator(".rows li").first.click()
    text = page.locator(".sum-line", has_text="weight ").inner_text()
    assert "by the what-if; the scores alone would give" in text, "a weight that was set comes from no quotient"
    page.get_by_role("button", name="undo").click()
    until(page, f"Math.abs({WEIGHTS}[0] - {before[0]}) < 0.002")
    page.locator(".rows li").nth(2).focus()
    page.keyboard.press("-")
    page.keyboard.press("-")
    page.locator("regard-changes", has_text="are set by hand").wait_for()


def test_the_tour_leads_through_the_page_by_keys(page: Any) -> None:
    page.get_by_role("button", name="Tour").click()
    marked = "document.querySelector('regard-compare .contrast:last-of-type.toured')"  # the bottleneck
    until(page, f"window.marked = {marked}")
    page.evaluate("import('/page/state.js').then((m) => m.state.set({ sort: 'entropy' }))")
    until(page, f"{marked} && {marked} !== window.marked")  # marked again where the view is drawn again
    covered = """(() => {
      const [one, card] = [".toured", ".tour"].map((name) => document.querySelector(name).getBoundingClientRect());
      return one.bottom > card.top && one.top < card.bottom && one.left < card.right;
    })()"""
    until(page, f"!{covered}")  # the two translations are there to be compared
    titles = []
    for _ in range(8):
        until(page, "document.querySelector('.toured') && document.activeElement.closest('regard-tour')")
        titles.append(page.locator("regard-tour h2").inner_text().split("\u00a0")[0].split(" 1")[0])
        last = page.locator("regard-tour .strong").inner_text() == "Done"
        page.keyboard.press("Enter")
        if last:
            break
    assert [title.rsplit(" of", 1)[0].rstrip(" 0123456789") for title in titles] == [
        "The bottleneck", "The query", "The scores", "The weights", "The context", "The next word", "What if?",
    ]  # fmt: skip
    assert page.locator("regard-tour").is_hidden()
    assert page.locator(".toured").count() == 0
    page.get_by_role("button", name="Tour").click()
    page.locator(".toured").wait_for()
    page.locator(".lead, .view").first.focus()
    page.keyboard.press("Escape")
    assert page.locator("regard-tour").is_hidden(), "it can be left from anywhere"
