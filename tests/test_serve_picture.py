"""Pictures through the server: captions over HTTP, what is refused, and the view V6 in a real browser."""

import base64
import io
import itertools
import json
import re
import socket
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import patience
import pytest
from browser_parts import opened, picture, until
from npm_parts import packages
from PIL import Image
from serve_parts import Server, calling, captioner, serving, trained

from regard.api.loading import load
from regard.corpora import shapes
from regard.data.images import encode_png
from regard.errors import RunError
from regard.look.html import page_tree
from regard.look.trace import Trace
from regard.look.trace_data import Picture
from regard.look.trace_file import write
from regard.runs.experiment import resolve
from regard.serve.access import Access, AccessToken
from regard.serve.captions import CaptionModel
from regard.serve.limits import Limits, StoppedError
from regard.serve.loading import load_model
from regard.training.start import train

SCENE = encode_png(shapes.draw_scene(shapes.scene(7)))
KINDS = ("JPEG", "PNG", "WEBP")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(trained(), captioner(), cached=True) as server:
        yield server
        assert "Traceback" not in "".join(server.log)


KEY = {"api_key": "a-long-enough-token"}


@pytest.fixture(scope="module")
def alone() -> Iterator[Server]:
    """A captioner with no translator beside it, small limits, and a token."""
    limits = {"queue": 1, "pictures": 2, "sending_picture": 1.0}
    access = Access("0.0.0.0", (AccessToken("default", KEY["api_key"]),))
    with serving(captioner(), access=access, limits=limits) as server:
        yield server
        assert "Traceback" not in "".join(server.log)


def photo(kind: str, width: int = 90, height: int = 60, mode: str = "RGB") -> bytes:
    """A picture as a file of some kind."""
    values = np.random.default_rng(3).integers(0, 255, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def send(server: Server, data: bytes, **query: Any) -> Any:
    return server.client.post("/api/v1/caption", content=data, params=query)


def busy(server: Server) -> float:
    """Seconds that the captioner has worked."""
    lines = server.client.get("/metrics").text.split("\n")
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith('regard_busy_seconds_total{model="capt'))


# --- over HTTP


def test_a_caption_tells_where_each_word_looked(server: Server) -> None:
    writer = load(captioner(), device="cpu")
    answer = send(server, SCENE, nbest=3).json()
    expected = writer.caption(SCENE, nbest=3)
    assert answer["caption"] == expected.text
    assert [one["text"] for one in answer["nbest"]] == [one.text for one in expected.nbest]
    assert answer["finished"] == expected.finished
    assert answer["grid"] == [4, 4]
    assert " ".join(word["text"] for word in answer["words"]) == answer["caption"]
    trace = Trace.from_json(json.dumps(answer["trace"]))
    assert trace == writer.look(SCENE, expected)
    for t, word in enumerate(answer["words"]):
        weights = np.array(word["weights"])
        np.testing.assert_allclose(weights, trace.attention["attention"].weights[0, t].reshape(4, 4), atol=1e-6)
        assert weights.sum() == pytest.approx(1, abs=1e-4)
        assert word["gate"] == trace.attention["attention"].step_values["gate"][t]
        assert word["logprob"] == pytest.approx(expected.token_logprobs[t], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_jpeg_png_and_webp_as_a_body_or_in_a_form(server: Server, kind: str) -> None:
    data = photo(kind)
    alone = send(server, data)
    hostile = '"><script>alert(1)</script>/../../etc/passwd\u202egnp.exe'
    form = server.client.post("/api/v1/caption", files={"image": (hostile, data, "text/html")})
    assert alone.status_code == form.status_code == 200, alone.text
    assert alone.json() == form.json()


def test_a_client_that_left_is_not_waited_for() -> None:
    """A client that went away, or a time that is up, ends the writing and the looking."""
    model = load_model(str(captioner()), Limits())
    assert isinstance(model, CaptionModel)
    with pytest.raises(StoppedError):
        model.caption(model.read(SCENE), None, 1, calling(lambda: True))
    asked = itertools.count()
    written = len(model.writer.caption(SCENE).tokens) + 1
    with pytest.raises(StoppedError):
        model.caption(model.read(SCENE), None, 1, calling(lambda: next(asked) > written + 1))


def test_models_are_distinguished_by_kind(server: Server) -> None:
    models = server.client.get("/api/v1/models").json()["models"]
    assert [(one["id"], one["kind"]) for one in models] == [
        ("bahdanau-reverse", "translate"),
        ("captioner-shapes", "caption"),
    ]
    assert models[1]["grid"] == [4, 4]
    assert models[1]["drawn"] == "shapes"
    assert [one["code"] for one in server.client.get("/languages").json()] == ["en", "de"]
    assert server.translate("ba da")["translatedText"] == "da ba"
    wrong = server.post("/translate", q="ba", source="en", target="de", model="captioner-shapes")
    assert (wrong.status_code, wrong.json()["error"]) == (
        422,
        "The model captioner-shapes is not one that translates; GET /api/v1/models lists the kinds.",
    )
    assert server.post("/api/v1/trace", text="ba", model="captioner-shapes").status_code == 422
    assert send(server, SCENE, model="bahdanau-reverse").status_code == 422
    assert send(server, SCENE, model="nobody").status_code == 404


def test_a_captioner_alone_is_no_translator(alone: Server) -> None:
    get = alone.client.get
    assert get("/languages", params=KEY).json() == []
    assert get("/v2/languages", params=KEY).json() == []
    assert get("/frontend/settings", params=KEY).json()["language"] == {}
    assert alone.post("/detect", q="ba", **KEY).json() == []
    for path, fields in {
        "/translate": {"q": "ba", "source": "en", "target": "de"},
        "/v2/translate": {"text": ["ba"], "target_lang": "DE"},
        "/api/v1/trace": {"text": "ba"},
    }.items():
        refused = alone.client.post(path, json=fields, headers={"authorization": f"Bearer {KEY['api_key']}"})
        assert refused.status_code == 404
        assert "No loaded model translates" in refused.text
    assert "/api/v1/caption" in get("/spec", params=KEY).json()["paths"]


def test_a_run_of_another_task_cannot_be_served(tmp_path: Path) -> None:
    wanted = {
        "model": {"name": "document", "preset": "tiny"},
        "data": {"corpus": "reviews", "size": 40, "held_out": 4},
        "train": {"steps": 1},
    }
    train(resolve(wanted), tmp_path / "reviews")
    with pytest.raises(RunError, match="of the task 'classify'; only translators and captioners can be served"):
        load_model(str(tmp_path / "reviews"), Limits())
    with pytest.raises(AssertionError, match="did not start"):  # it gives no address
        Server(tmp_path / "reviews")


def test_an_example_is_drawn_with_its_right_caption(server: Server) -> None:
    first, again, other = (server.client.get("/api/v1/example", params={"number": n}).json() for n in (5, 5, 6))
    assert first == again != other
    size = load(captioner(), device="cpu").experiment.data.size
    assert first["caption"] == shapes.scene(size + 5).caption
    assert base64.b64decode(first["png"]) == encode_png(shapes.draw_scene(shapes.scene(size + 5)))
    assert server.client.get("/api/v1/example", params={"number": -1}).status_code == 400


# --- what is refused


def png_bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes whose header promises that size."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 10_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


HOSTILE: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 415, "is empty"),
    "text": (b"not a picture", 415, "must be JPEG, PNG or WebP"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>', 415, "must be JPEG, PNG or WebP"),
    "gif": (b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", 415, "must be JPEG, PNG or WebP"),
    "bmp": (b"BM" + b"\0" * 60, 415, "must be JPEG, PNG or WebP"),
    "json": (b'{"image": "cat.png"}', 415, "must be JPEG, PNG or WebP"),
    "bomb": (png_bomb(60_000, 60_000), 422, "megapixels"),
    "wide": (png_bomb(24_000_001, 1), 422, "megapixels"),
    "lying": (png_bomb(2000, 2000), 422, "truncated or damaged"),
    "head": (b"\x89PNG\r\n\x1a\n", 422, "damaged"),
    "jpeg": (photo("JPEG")[:700], 422, "truncated or damaged"),
    "webp": (photo("WEBP")[:300], 422, "damaged"),
    "scans": (b"\xff\xd8\xff" + b"\xff\xda\x00\x08" * 100, 422, "more than 64 scans"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_picture_is_refused_before_the_model_runs(server: Server, name: str) -> None:
    data, status, sentence = HOSTILE[name]
    before = busy(server)
    response = send(server, data)
    assert response.status_code == status, response.text
    assert sentence in response.json()["error"]
    assert response.json()["error"].count("\n") == 0
    assert busy(server) == before


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 413)])
def test_a_picture_has_at_most_8_mebibytes(server: Server, more: int, status: int) -> None:
    data = photo("JPEG")
    padded = data + b"\0" * (2**23 + more - len(data))
    assert send(server, padded).status_code == status


def test_24_megapixels_are_read_and_no_more(server: Server) -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (6000, 4000), (200, 30, 30, 90)).save(buffer, "PNG", compress_level=1)
    before = peak(server)
    assert send(server, buffer.getvalue()).status_code == 200
    assert peak(server) - before < 256, "its pixels, and white paper under what is transparent"
    assert send(server, png_bomb(6000, 4001)).status_code == 422


def peak(server: Server) -> float:
    """The most memory that the server ever had, in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text("ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"params": {"beam": 21}}, "must be <= 20"),
        ({"params": {"nbest": 0}}, "must be >= 1"),
        ({"params": {"nbest": 12}}, "must be <= 11"),
        ({"files": {"image": SCENE}, "data": {"model": "x"}}, "must hold only the field image"),
        ({"files": {"other": SCENE}}, "must hold only the field image"),
        ({"files": [("image", SCENE), ("image", SCENE)]}, "One picture at a time"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, "Invalid multipart form"),
    ],
)
def test_refusals_name_what_is_wrong(server: Server, given: dict[str, Any], sentence: str) -> None:
    response = server.client.post("/api/v1/caption", **given)
    assert response.status_code == 400
    assert sentence in response.json()["error"]


def test_damaged_files_of_every_kind_never_end_in_a_fault(server: Server) -> None:
    draw = np.random.default_rng(5)
    for number in range(45):
        data = bytearray(photo(KINDS[number % 3]))
        for at in draw.integers(0, len(data), 1 + number % 7):
            data[at] = int(draw.integers(0, 256))
        response = send(server, bytes(data[: len(data) - number % 5 * 40]))
        assert response.status_code in (200, 415, 422), response.text
        assert "Traceback" not in response.text


def test_too_many_pictures_are_refused_with_retry_after(alone: Server) -> None:
    found: list[Any] = []
    with ThreadPoolExecutor(12) as pool:
        patience.until(
            lambda: (
                found.extend(pool.map(lambda _: send(alone, SCENE, beam=20, nbest=11, **KEY), range(12)))
                or len({response.status_code for response in found}) > 1
            )
        )
    assert {response.status_code for response in found} == {200, 429}
    late = [response for response in found if response.status_code == 429]
    assert all(response.headers["retry-after"] == "1" for response in late)
    assert send(alone, SCENE, **KEY).status_code == 200, "the places are free again"


def test_a_picture_that_arrives_slowly_is_given_up(alone: Server) -> None:
    with socket.create_connection(("127.0.0.1", alone.port), timeout=patience.PATIENCE) as line:
        head = [f"POST /api/v1/caption?api_key={KEY['api_key']} HTTP/1.1", "Host: localhost", "Connection: close"]
        line.sendall("\r\n".join([*head, f"Content-Length: {len(SCENE)}", "", ""]).encode() + SCENE[:100])
        answer = line.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 408 ")
    assert "took too long to arrive" in answer


def test_a_token_is_required_before_the_picture_is_received(alone: Server) -> None:
    assert send(alone, SCENE).status_code == 400
    assert send(alone, b"x" * 2**24).status_code == 400
    assert send(alone, SCENE, **KEY).status_code == 200
    assert alone.client.get("/api/v1/example").status_code == 400


# --- the page

DROP = """([name, type, base64]) => {
  const bytes = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], name, { type }));
  const given = { bubbles: true, cancelable: true };
  const paste = new ClipboardEvent("paste", { ...given, clipboardData: files });
  const drop = new DragEvent("drop", { ...given, dataTransfer: files });
  document.body.dispatchEvent(name.startsWith("pasted") ? paste : drop);
}"""
HOSTILE_NAME = "<img src=x onerror=alert(1)>\u202egnp.png"


@pytest.fixture
def page(server: Server, chromium: Any) -> Iterator[Any]:
    with opened(chromium, f"{server.address}#model=captioner-shapes") as page:
        page.locator(".shot").nth(1).wait_for()
        yield page


def said(page: Any, text: str) -> None:
    """Wait until the page announces a text that begins so."""
    until(page, "text => document.querySelector('#announcements').textContent.startsWith(text)", text)


def named(word: str) -> str:
    """A word inside a sentence: quoted, and isolated so that it keeps its own direction."""
    return f"\u2018\u2068{word}\u2069\u2019"


def chips(page: Any) -> list[str]:
    return page.locator(".spoken .chip").all_inner_texts()


@pytest.mark.browser
def test_a_page_of_pictures_is_small_and_loads_what_it_shows(page: Any) -> None:
    loaded = page.evaluate(
        """performance.getEntriesByType("resource").filter((one) => one.name.includes("/page/"))
          .map((one) => [one.name.split("/").at(-1), one.decodedBodySize])"""
    )
    assert sum(size for _, size in loaded) < 300_000
    names = {name for name, _ in loaded}
    assert "picture.js" in names
    assert not names & {"steps.js", "compare.js", "translate.js"}
    page.get_by_role("button", name="Translate a sentence").click()
    page.locator(".translation .word").first.wait_for()
    page.get_by_role("button", name="Describe a picture").click()
    page.locator(".shot").nth(1).wait_for()


@pytest.mark.browser
def test_a_first_visit_shows_an_example_and_where_each_word_looked(page: Any, server: Server) -> None:
    drawn = server.client.get("/api/v1/example").json()
    answer = send(server, base64.b64decode(drawn["png"]), beam=5).json()
    words = answer["caption"].split(" ")
    assert chips(page) == words
    assert page.locator(".shot").count() == len(words) + 1, "one frame a word, and all of them together"
    assert page.locator(".said").inner_text().startswith(f"All {len(words)} words together: strongest at row ")
    page.locator(".spoken .chip").nth(1).click()
    weights = np.array(answer["words"][1]["weights"])
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    top = np.sort(weights, axis=None)[-5:].sum()
    assert page.locator(".said").inner_text() == (
        f"{named(words[1])}: strongest at row {row + 1}, column {column + 1}, {weights.max():.2f}; "
        f"the top 5 cells hold {top:.2f}."
    )
    assert page.locator(".telling .note").inner_text().startswith(f"Gate \u03b2 {answer['words'][1]['gate']:.2f}: ")
    shades = page.locator("svg.looked-at .map rect").evaluate_all(
        "all => all.map((one) => +one.getAttribute('fill-opacity'))"
    )
    largest = max(np.max(word["weights"]) for word in answer["words"])
    np.testing.assert_allclose(shades, 1 - weights.ravel() / largest, atol=1e-3, err_msg="darker where it did not look")
    assert page.locator(".shot[aria-pressed=true] bdi").inner_text() == words[1]
    assert "t=1" in page.url
    assert "example=0" in page.url
    picture(page, "picture-word")
    page.get_by_role("button", name="Draw another").click()
    until(page, "location.hash.includes('example=1')")


@pytest.mark.browser
def test_pointing_at_a_region_shows_which_words_looked_there(page: Any) -> None:
    box = page.locator("svg.looked-at").bounding_box()
    at = {"x": box["width"] * 0.6, "y": box["height"] * 0.3}
    page.locator("svg.looked-at").hover(position=at)
    assert page.locator(".asked").inner_text().startswith("Row 2, column 3: most attention from ")
    assert page.locator(".shares .bar").count() == len(chips(page))
    page.locator("svg.looked-at").click(position=at)
    said(page, "Row 2, column 3: most attention from ")
    assert "s=6" in page.url
    picture(page, "picture-region")
    frame = page.locator("svg.looked-at .region").bounding_box()
    assert frame["width"] == pytest.approx(box["width"] / 4, abs=6)
    page.mouse.move(5, 5)
    assert page.locator(".shares .bar").count() == len(chips(page)), "what was clicked stays"


@pytest.mark.browser
def test_the_picture_is_walked_with_the_keys(page: Any) -> None:
    words = chips(page)
    page.locator("svg.looked-at").focus()
    page.keyboard.press("ArrowRight")
    said(page, f"{named(words[0])}: strongest at row ")
    page.keyboard.press("End")
    said(page, f"{named(words[-1])}: strongest at row ")
    page.keyboard.press("Home")
    said(page, f"All {len(words)} words together")
    page.keyboard.press("Enter")
    said(page, "Row ")
    for key in ("ArrowUp", "ArrowLeft") * 4:
        page.keyboard.press(key)
    said(page, "Row 1, column 1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    said(page, "Row 2, column 2")
    assert page.locator("svg.looked-at").get_attribute("aria-activedescendant") == "region-5"
    assert page.locator("#region-5").get_attribute("aria-label").startswith("Row 2, column 2")
    page.keyboard.press("Escape")
    said(page, "out of the regions")
    page.keyboard.press("ArrowRight")
    said(page, f"{named(words[0])}")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    said(page, f"{named(words[1])}")
    assert page.evaluate("document.activeElement.dataset.row") == "1"


@pytest.mark.browser
def test_smoothing_colours_and_tables_say_what_they_are(page: Any) -> None:
    assert "4 \u00d7 4 cells, the true grid" in page.locator("regard-picture .caption").inner_text()
    page.get_by_role("button", name="Smooth for display").click()
    assert "smoothed for display" in page.locator("regard-picture .caption").inner_text()
    assert page.locator("svg.looked-at .map rect").count() == 0
    places = [[0, 0], [0.5, 0.5], [1, 0.5], [1, 1], [0.5, 1.25], [2, 2]]
    mixed = "places => import('/page/maps.js').then((m) => places.map((at) => m.between([0, 1, 2, 3], [2, 2], ...at)))"
    assert page.evaluate(mixed, places) == [0, 0, 1, 1.5, 0.75, 3]
    assert page.locator("svg.looked-at .lines").count() == 0
    page.get_by_label("Colours").select_option("viridis")
    page.get_by_label("Opacity").fill("25")
    assert page.locator("svg.looked-at .map").get_attribute("opacity") == "0.25"
    assert "smooth=true" in page.url
    assert "tint=viridis" in page.url
    picture(page, "picture-smooth")
    page.get_by_role("button", name="Table").click()
    assert page.locator("table.numbers").count() == 2
    rows = page.locator("table.numbers").nth(1).locator("tbody tr").all_inner_texts()
    for row in rows:
        assert sum(float(weight) for weight in row.split("\t")[1:]) == pytest.approx(1, abs=0.01)
    picture(page, "picture-table")


@pytest.mark.browser
def test_a_picture_is_chosen_dropped_or_pasted(page: Any) -> None:
    with page.expect_response("**/api/v1/caption*") as response:
        page.locator("regard-caption input[type=file]").set_input_files(
            {"name": HOSTILE_NAME, "mimeType": "image/png", "buffer": photo("PNG", 90, 60)}
        )
    assert response.value.status == 200
    page.locator(".given .name").wait_for()
    assert page.locator(".given .name").inner_text() == HOSTILE_NAME.replace("\u202e", "\u2039U+202E\u203a")
    assert page.locator(".given img").evaluate("(one) => [one.naturalWidth, one.naturalHeight]") == [60, 60]
    assert "example" not in page.url
    for name, kind in (("dropped.jpg", "JPEG"), ("pasted.webp", "WEBP")):
        page.evaluate(DROP, [name, f"image/{kind.lower()}", base64.b64encode(photo(kind)).decode()])
        until(page, "name => document.querySelector('.given .name')?.innerText === name", name)
    assert page.evaluate("document.querySelectorAll('main img').length") == 1


@pytest.mark.browser
def test_what_is_refused_is_said_in_a_sentence(server: Server, chromium: Any) -> None:
    page = chromium.new_page(server.address)  # not `opened`: a refusal is an error to the console
    page.goto(f"{server.address}#model=captioner-shapes")
    page.locator(".shot").nth(1).wait_for()
    page.locator("regard-caption input[type=file]").set_input_files(
        {"name": "x.png", "mimeType": "image/png", "buffer": png_bomb(60_000, 60_000)}
    )
    page.locator("regard-caption [role=alert]").wait_for()
    assert "megapixels" in page.locator("regard-caption [role=alert]").inner_text()
    said(page, "The picture has")
    page.get_by_role("button", name="Draw an example").click()
    page.locator(".shot").nth(1).wait_for()
    assert page.locator("regard-caption [role=alert]").count() == 0
    page.close()


@pytest.mark.browser
def test_between_sentences_and_pictures(page: Any) -> None:
    page.get_by_role("button", name="Translate a sentence").click()
    page.locator("#source").fill("ba da fo")
    until(page, "document.querySelectorAll('.translation .word').length === 3")
    assert page.get_by_role("tab").count() == 4
    assert page.locator("regard-picture").count() == 0
    assert page.locator(".picker [data-model]").evaluate_all("all => all.map(one => one.dataset.model)") == [
        "bahdanau-reverse"
    ]
    page.get_by_role("tab", name="Compare").click()
    page.get_by_role("button", name="Models").click()
    page.get_by_text("Only one model is loaded for this language.").wait_for()
    page.get_by_role("button", name="Describe a picture").click()
    page.locator(".shot").nth(1).wait_for()
    page.get_by_text("Show the request").last.click()
    assert "/api/v1/caption?model=captioner-shapes" in page.locator(".request pre").inner_text()


def export(page: Any, kind: str, folder: Path) -> Path:
    """Export the view, as a user does."""
    page.locator(".menu summary").click()
    with page.expect_download() as download:
        page.locator(f".menu [data-kind={kind}]").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.browser
def test_the_view_is_exported_and_opens_with_the_network_off(page: Any, chromium: Any, tmp_path: Path) -> None:
    words = chips(page)
    page.locator(".spoken .chip").nth(1).click()
    drawing = ElementTree.fromstring(export(page, "SVG", tmp_path).read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    texts = [(text.text or "").strip("\u2068\u2069") for text in drawing.iter(f"{space}text")]
    assert set(words) <= set(texts)
    assert all(one.get("href").startswith("data:image/png;base64,") for one in drawing.iter(f"{space}image"))  # type: ignore[union-attr]
    png = Image.open(io.BytesIO(export(page, "PNG", tmp_path).read_bytes())).convert("RGB")
    assert len(png.getcolors(1 << 20) or []) > 20, "the picture and the map are in it"
    lines = export(page, "CSV", tmp_path).read_bytes().decode("utf-8").split("\r\n")
    assert lines[0].startswith('"word","probability","gate","row 0, column 0"')
    assert [line.split(",")[0].strip('"') for line in lines[1:-1]] == words
    trace = Trace.load(export(page, "JSON", tmp_path))
    assert trace.target.text == " ".join(words)
    saved = export(page, "HTML", tmp_path)
    assert "127.0.0.1" not in saved.read_text("utf-8")
    with opened(chromium, saved.as_uri(), offline=True) as alone:
        alone.locator(".shot").nth(1).wait_for()
        assert alone.locator(".shot").count() == len(words) + 1
        assert alone.locator(".said").inner_text().startswith(f"{named(words[1])}: strongest at row ")
        assert alone.locator(".sentence").all_inner_texts() == [" ".join(words)]
        alone.locator(".shot").nth(3).click()
        assert alone.locator(".said").inner_text().startswith(f"{named(words[2])}")
        picture(alone, "picture-exported")


@pytest.mark.browser
def test_hostile_words_of_a_caption_are_shown_as_text(page: Any) -> None:
    texts = [
        "<script>alert(1)</script>",
        "</style><img src=x onerror=alert(1)>",
        "\u202e",
        "=1+1",
        "\ud83d\udc68",
        "&lt;",
    ]
    image = Picture(48, 48, (4, 4))
    trace = Trace.from_arrays([], texts, np.full((len(texts), 16), 1 / 16), kind="image", image=image, score=texts[0])
    shown = page.evaluate(
        """async ([tree, texts]) => {
          const { state } = await import("/page/state.js");
          const { tableOf, Trace } = await import("/page/trace.js");
          const { alone } = await import("/page/export.js");
          const maps = await import("/page/maps.js");
          const count = () => document.querySelectorAll("script, iframe, img, object, link, style, form").length;
          const before = count();
          const trace = new Trace(JSON.parse(tree));
          const nbest = [{ text: "", score: 0 }, { text: texts[0], score: 0 }];
          const picture = { ...state.get("picture"), name: texts[1], right: texts[1], nbest };
          state.set({ trace, picture, t: 0, s: 3, error: "" });
          const table = tableOf(trace), style = { grid: [4, 4], square: picture.square, tint: "blue", opacity: 1 };
          const words = maps.measured(table, trace, style.grid), said = trace.maps["words hidden"];
          const drawn = alone(maps.sheet(style, table, words, 0, () => 1, texts.join(" "), said));
          if (new DOMParser().parseFromString(drawn, "image/svg+xml").querySelector("parsererror, script, a"))
            throw new Error("broken SVG");
          const grown = count() - before;
          state.set({ listed: true });
          return [grown, count() - before, maps.wordLines(table, words)];
        }""",
        [write(page_tree(trace)), texts],
    )
    assert shown[0] == shown[1] == 0
    assert '"\'=1+1"' in shown[2], "no formula in a spreadsheet"


@pytest.mark.browser
def test_axe_finds_nothing_serious(server: Server, chromium: Any) -> None:
    script = (packages() / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    options = {"bypass_csp": True, "reduced_motion": "reduce"}  # colours do not fade in
    with opened(chromium, f"{server.address}#model=captioner-shapes&t=1&s=2", **options) as page:
        page.locator(".shot").nth(1).wait_for()
        page.evaluate(script)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate("axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)")
            grave = [one for one in found if one["impact"] in ("serious", "critical")]
            assert [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in grave] == [], scheme
            picture(page, f"{scheme}-picture")


@pytest.mark.browser
def test_nothing_is_wider_than_a_small_phone(server: Server, chromium: Any) -> None:
    media = {"reduced_motion": "reduce", "forced_colors": "active"}
    with opened(chromium, f"{server.address}#model=captioner-shapes&t=1", 360, 740, media) as page:
        page.locator(".shot").nth(1).wait_for()
        picture(page, "phone-picture")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("button", name="Table").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
