"""The page without a server in real browsers, from `python -m http.server`, with the network to all else shut off."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import patience
import pytest
from browser_parts import faults_of, opened, picture, until
from npm_parts import packages
from serve_parts import one_vector
from site_parts import built, differences, in_python, served, small_runs

pytestmark = pytest.mark.browser
TEXT = "ba da fo"
# The words of a translation are shown before its trace has arrived.
TREE = """import('./page/state.js').then(async ({ state }) => {
  while (!state.get('trace') || state.get('busy')) await new Promise((go) => setTimeout(go, 50));
  return JSON.stringify(state.get('trace').tree);
})"""


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """The address of a folder that `python -m http.server` serves."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout
        found = re.search(r"port (\d+)", process.stdout.readline())
        assert found
        yield f"http://127.0.0.1:{found[1]}/"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def runs() -> list[Path]:
    return small_runs()


@pytest.fixture(scope="module")
def folder(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = built(runs, tmp_path_factory.mktemp("built") / "deep" / "site")
    # Scripts of Marionette have modules of their own; only a script of the page finds those of the page.
    reads = TREE.replace("./page/", "./") + ".then((tree) => { document.body.dataset.tree = tree; });"
    (site / "page" / "reads.js").write_text(reads, "utf-8")
    return site


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with hosted(folder.parent) as root:  # below the root, as on GitHub Pages: all addresses are relative
        yield f"{root}{folder.name}/"


def words(page: Any) -> list[str]:
    return list(page.locator(".translation .word").all_inner_texts())


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_a_visitor_types_and_sees_the_trace_of_python(address: str, chromium: Any, runs: list[Path]) -> None:
    with opened(chromium, f"{address}#text=ba+da+fo") as page:
        page.locator(".translation .word").first.wait_for()
        assert words(page) == ["fo", "da", "ba"]
        page.locator("#source").fill("lu me ko")
        until(
            page,
            "[...document.querySelectorAll('.translation .word')].map((one) => one.innerText).join() === 'ko,me,lu'",
        )
        ours = json.loads(page.evaluate(TREE))
        theirs = in_python(served(runs[0]), "look", {"text": "lu me ko", "tree": True, "beam": 5})
        assert differences(theirs, ours) == []
        for part in (".requests", "regard-caption", "text=File…"):
            assert not page.locator(part).first.is_visible(), "what needs a server is not shown"
        picture(page, "static")
        page.locator("#source").fill("Je ne sais pas où est la gare.")
        page.locator(".flag", has_text="the source looks like French, but the model reads English").first.wait_for()


def test_every_view_works_without_a_server(address: str, chromium: Any) -> None:
    with opened(chromium, f"{address}#text=ba+da+fo&model=transformer-reverse") as page:
        page.locator(".translation .word").first.wait_for()
        view(page, "Step by step")
        page.locator(".stagegrid").wait_for()
        page.keyboard.press("End")
        page.locator(".check").first.wait_for()
        assert page.locator(".check.off").count() == 0, "the numbers of the step reproduce each other"
        view(page, "Compare")
        page.locator(".thumbnail").first.wait_for()
        view(page, "Search")
        page.locator(".tree, [role=tree]").first.wait_for()
        view(page, "Where it looked")
        assert "confidence" in str(page.locator(".translation .word").first.get_attribute("title"))
        methods = page.get_by_label("Explained by")
        assert methods.locator("option[disabled]").inner_text() == "other methods need Python (regard serve)"
        methods.select_option("occlusion-removed")
        page.get_by_text("Not attention, but what is lost when a word is removed").wait_for()
        methods.select_option("")
        with page.expect_download() as saved:
            page.get_by_text("Export", exact=False).first.click()
            page.get_by_role("button", name="HTML").first.click()
        assert '"trace":1' in Path(saved.value.path()).read_text("utf-8")


def test_what_ifs_change_the_translation_as_in_python(address: str, chromium: Any, runs: list[Path]) -> None:
    changes = [{"kind": "mask", "positions": [0]}, {"kind": "set-row", "t": 1, "position": 2}]
    given = json.dumps(changes).replace(" ", "")
    with opened(chromium, f"{address}#text=ba+da+fo&changes={given}") as page:
        page.locator("regard-changes .changed").first.wait_for()
        page.locator(".translation .word").first.wait_for()
        asked = [{"kind": "mask", "position": 0}, changes[1]]
        theirs = in_python(served(runs[0]), "look", {"text": TEXT, "beam": 5, "prefix": [], "changes": asked})
        assert differences(theirs, json.loads(page.evaluate(TREE))) == []
        page.locator(".translation .word").first.click()
        page.locator(".popover button:not([disabled])").first.wait_for()


def test_the_next_visit_needs_no_network(address: str, chromium: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()
    faults = faults_of(page)
    page.goto(address)
    page.locator(".translation .word").first.wait_for()
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.reload()
    page.locator(".translation .word").first.wait_for()
    assert not [one for one in loaded if ".bin" in one], "large files are kept"
    context.set_offline(True)
    page.reload()
    page.locator(".translation .word").first.wait_for()
    page.locator("#source").fill("me lu")
    until(page, "document.querySelector('.translation .word')?.innerText === 'lu'")
    assert [one for one in faults if "foreign" in one or "error:" in one] == []
    context.close()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("missing", "is missing on the server (404)"),
        pytest.param("short", "is damaged", marks=pytest.mark.slow),
        ("changed", "is damaged"),
        ("wasm", "no WebAssembly"),
        ("memory", "not enough memory"),
        ("index", "list of models"),
        ("runtime", "files/runtime.bin is damaged"),
        ("module", "folder page/ is missing or damaged"),
        ("syntax", "folder page/ is missing or damaged"),
        ("long", "exceeds text limit (65536)"),
    ],
)
def test_what_goes_wrong_is_said_in_one_sentence(
    address: str, chromium: Any, folder: Path, damage: str, sentence: str
) -> None:
    context = chromium.new_context(service_workers="block")  # which has files to keep, and nothing to say here
    context.set_default_timeout(1000 * patience.PATIENCE)
    page = context.new_page()
    weights = next(folder.glob("files/bahdanau*/weights.bin")).read_bytes()
    answers = {
        "missing": {"status": 404},
        "short": {"body": weights[:-9]},
        "changed": {"body": weights[:99] + b"\0" + weights[100:]},
    }
    if damage in answers:
        page.route("**/weights.bin*", lambda route: route.fulfill(**answers[damage]))
    elif damage == "runtime":
        page.route("**/runtime.bin*", lambda route: route.fulfill(body=b"nothing"))
    elif damage == "module":
        page.route("**/page/ort.mjs", lambda route: route.fulfill(status=404))
    elif damage == "syntax":
        page.route("**/page/text.js", lambda route: route.fulfill(body="const =", content_type="text/javascript"))
    elif damage == "index":
        page.route("**/files/index.json", lambda route: route.fulfill(status=404))
    elif damage == "wasm":
        page.add_init_script("delete globalThis.WebAssembly")
    elif damage == "memory":
        page.add_init_script("WebAssembly.instantiate = () => Promise.reject(new RangeError('out of memory'))")
    text = "ba " * 22000 if damage == "long" else TEXT
    page.goto(f"{address}#{urlencode({'text': text})}")
    page.locator(".error", has_text=sentence).first.wait_for()
    shown = page.locator(".error", has_text=sentence).first.inner_text()
    assert "\n" not in shown.strip()
    until(page, "!document.querySelector('.waiting progress')")  # also of the files that are whole
    context.close()


@pytest.mark.parametrize(
    ("wide", "high", "scheme"), [(1200, 900, "light"), pytest.param(390, 844, "dark", marks=pytest.mark.slow)]
)
def test_axe_finds_nothing(address: str, chromium: Any, wide: int, high: int, scheme: str) -> None:
    script = (packages() / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    options = {"bypass_csp": True, "reduced_motion": "reduce"}
    with opened(chromium, f"{address}#text=ba+da+fo", wide, high, {"color_scheme": scheme}, **options) as page:
        page.evaluate(script)
        for ready in (".waiting progress, .translation .word", ".translation .word"):  # also while it is loading
            page.locator(ready).first.wait_for()
            found = page.evaluate("axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)")
            assert [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= wide


# --- Firefox by the Marionette protocol: Playwright supports only its patched build of Firefox


class Firefox:
    """A running Firefox without a window: Marionette, a JSON message with its length before it."""

    def __init__(self, port: int) -> None:
        self.number = 0
        found: list[socket.socket] = []

        def connected() -> bool:
            try:
                found.append(socket.create_connection(("127.0.0.1", port), 1))
            except OSError:
                return False
            return True

        patience.until(connected, 0.2, lambda: "Firefox does not listen")
        self.socket = found[0]
        self.socket.settimeout(patience.PATIENCE)
        self.receive()
        self.ask("WebDriver:NewSession", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})
        self.ask("WebDriver:SetTimeouts", script=int(1000 * patience.PATIENCE))

    def receive(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self.socket.recv(1)
        data = b""
        while len(data) < int(size[:-1]):
            data += self.socket.recv(int(size[:-1]) - len(data))
        return json.loads(data)

    def ask(self, command: str, **parameters: Any) -> Any:
        self.number += 1
        message = json.dumps([0, self.number, command, parameters]).encode()
        self.socket.sendall(f"{len(message)}:".encode() + message)
        _, _, error, result = self.receive()
        assert error is None, error
        return result

    def run(self, script: str) -> Any:
        """The value of a promise in the page."""
        body = f"const done = arguments[0]; ({script}).then(done, (error) => done(String(error)));"
        return self.ask("WebDriver:ExecuteAsyncScript", script=body, args=[])["value"]

    def wait_for(self, test: str) -> Any:
        """The first value of an expression that is true."""
        look = f"const found = {test}; if (found) done(found); else setTimeout(look, 100);"
        return self.run(f"new Promise((done) => {{ const look = () => {{ {look} }}; look(); }})")

    def click(self, path: str) -> None:
        """Click on an element as a user does."""
        self.wait_for(f"document.evaluate({json.dumps(path)}, document).iterateNext() !== null")
        (element,) = self.ask("WebDriver:FindElement", using="xpath", value=path)["value"].values()
        self.ask("WebDriver:ElementClick", id=element)


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[Firefox]:
    found = shutil.which("firefox") or shutil.which("firefox-esr")
    if found is None:
        pytest.skip("Firefox is not on the PATH (apt-get install firefox-esr)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Every other host is behind a proxy that does not exist.
    settings = {
        "marionette.port": port, "network.proxy.type": 1,
        "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,
        "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9, "network.proxy.no_proxies_on": "127.0.0.1",
        "network.proxy.allow_hijacking_localhost": False, "datareporting.policy.dataSubmissionEnabled": False,
    }  # fmt: skip
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in settings.items()]
    (tmp_path / "user.js").write_text("\n".join(lines))
    command = [found, "--headless", "--marionette", "--no-remote", "--profile", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Firefox(port)
    finally:
        process.kill()
        process.wait()


WORDS = """(document.querySelector(".error")?.innerText ??
  [...document.querySelectorAll(".translation .word")].map((one) => one.innerText).join(" "))"""


@pytest.mark.slow
def test_firefox_computes_the_same(address: str, firefox: Firefox, runs: list[Path]) -> None:
    for run, name in zip(runs, ("bahdanau-reverse", "transformer-reverse"), strict=True):
        firefox.ask("WebDriver:Navigate", url=f"{address}#text=ba+da+fo&model={name}")
        firefox.ask("WebDriver:Refresh")
        model = served(run)
        assert firefox.wait_for(WORDS) == model.translator.translate(TEXT).text
        theirs = in_python(model, "look", {"text": TEXT, "tree": True, "beam": 5})
        script = "Object.assign(document.createElement('script'), { type: 'module', src: 'page/reads.js' })"
        firefox.run(f"Promise.resolve(document.head.append({script}))")
        assert differences(theirs, json.loads(firefox.wait_for("document.body.dataset.tree"))) == []


@pytest.mark.slow
def test_firefox_shows_every_view_and_later_needs_no_network(folder: Path, firefox: Firefox) -> None:
    with hosted(folder) as address:
        firefox.ask("WebDriver:Navigate", url=f"{address}#text=ba+da+fo")
        assert firefox.wait_for(WORDS) == "fo da ba"
        for tab, seen in {
            "Step by step": ".stagegrid .check",
            "Compare": ".beside",
            "Search": ".tree, [role=tree]",
        }.items():
            firefox.click(f"//*[@role='tab'][contains(., '{tab}')]")
            firefox.wait_for(f"document.querySelector({json.dumps(seen)}) !== null")
            assert firefox.run("Promise.resolve(document.querySelectorAll('.check.off').length)") == 0
        firefox.ask("WebDriver:Navigate", url=f'{address}?#text=ba+da+fo&changes=[{{"kind":"mask","positions":[0]}}]')
        firefox.wait_for("document.querySelector('regard-changes .changed') !== null")
        assert firefox.wait_for(WORDS) != "fo da ba"
        firefox.run("navigator.serviceWorker.ready.then(() => true)")
    # Nobody answers at this address any more. (WebDriver's Refresh would not ask the service worker.)
    firefox.ask("WebDriver:Navigate", url=f"{address}?later#text=me+lu")
    assert firefox.wait_for(WORDS) == "lu me"


@pytest.mark.slow
def test_a_model_without_attention_is_compared_with_one_that_has_it(
    chromium: Any, runs: list[Path], tmp_path: Path
) -> None:
    site = built([runs[0], one_vector()], tmp_path / "site")
    with hosted(site) as address, opened(chromium, f"{address}#text=ba+da+fo") as page:
        page.locator(".translation .word").first.wait_for()
        page.locator("[data-step=away]").click()
        own = page.locator(".contrast", has_text="Your sentence, 3 words")
        for model in (served(runs[0]), served(one_vector())):
            shown = own.locator(".card", has_text=model.id).locator(".sentence").inner_text()
            assert shown == in_python(model, "look", {"text": TEXT})["target"]["text"]
