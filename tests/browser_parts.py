"""A real browser for tests: Chromium through Playwright, shut off from every machine but this one."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import patience
import pytest

PICTURES = os.environ.get("REGARD_TEST_PICTURES")  # a folder for screenshots, where they are wanted
# One process for all pages, one for the browser, its network and its drawing, and none for the list below the address
# bar, which nobody sees: each takes up to a second, and what they say to each other takes time at every visit.
# The list of features replaces Playwright's, whose other names are of the browser around the page, too.
LEAN = (
    "--renderer-process-limit=1", "--disable-site-isolation-trials", "--in-process-gpu",
    "--enable-features=NetworkServiceInProcess2",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,AimEnabled,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "LensOverlay,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,PreconnectToSearch,"
    "ThirdPartyStoragePartitioning",
)  # fmt: skip


def chromium() -> str:
    """Where Chromium is; the test is skipped, loudly, where it is not."""
    pytest.importorskip("playwright.sync_api")
    # The first is the same browser without a window around the page; it takes a quarter less CPU time.
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    warnings.warn("NOT TESTED in a browser: Chromium is not on the PATH (apt-get install chromium)", stacklevel=2)
    pytest.skip("Chromium is not on the PATH")


class Browser:
    """A running Chromium. Pages with the same options share a context, with what it has read and started."""

    def __init__(self, running: Any) -> None:
        self.running = running
        self._contexts: dict[str, Any] = {}
        self.left: dict[str, list[tuple[Any, list[str]]]] = {}  # pages that tests have left, by their options

    def new_context(self, **options: Any) -> Any:
        """A context for a test that has its own rules."""
        return self.running.new_context(**options)

    def new_page(self, address: str, **options: Any) -> Any:
        """A page for this address, in the context of these options."""
        key = repr(sorted(options.items()))
        if key not in self._contexts:
            context = self._contexts[key] = self.running.new_context(**options)
            context.set_default_timeout(1000 * patience.PATIENCE)
            if address.startswith("http"):  # a page that stays keeps the process of this site alive
                context.new_page().goto(urljoin(address, "/health"))
        return self._contexts[key].new_page()


@contextmanager
def browser() -> Iterator[Browser]:
    """A running Chromium that finds no other machine."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", alone, *LEAN])
        try:
            yield Browser(running)
        finally:
            running.close()


def faults_of(page: Any) -> list[str]:
    """What a page does from now on that it should not: foreign requests, errors, dialogs."""
    faults: list[str] = []

    def failed(request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob", "file") and address.hostname not in ("127.0.0.1", "localhost"):
            faults.append(f"foreign request: {request.url}")

    page.on("requestfailed", failed)  # as every foreign one does; to hear of all of them takes time
    page.on("pageerror", lambda error: faults.append(f"error: {error.stack or error}"))
    page.on("console", lambda said: said.type == "error" and faults.append(f"console: {said.text}"))
    page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    return faults


@contextmanager
def opened(
    running: Browser,
    address: str,
    wide: int = 1200,
    high: int = 900,
    media: dict[str, str] | None = None,
    **options: Any,
) -> Iterator[Any]:
    """A page at an address, as on a first visit; it must do nothing that it should not.

    A page that another test has left is taken again: to make a new one would be a fifth of the CPU time.
    """
    left = running.left.setdefault(repr((sorted(options.items()), media)), [])
    if left:
        page, faults = left.pop()
    else:
        page = running.new_page(address, **options)
        faults = faults_of(page)
    try:
        page.emulate_media(**{"color_scheme": "light", **(media or {})})
        page.set_viewport_size({"width": wide, "height": high})
        page.goto(address)
        yield page
        assert faults == [], faults
    except BaseException:
        _forget(page)
        page.close()
        raise
    _forget(page)
    page.unroute_all()
    page.goto("about:blank")
    page.mouse.move(0, 0)
    faults.clear()  # of a visit that was over
    left.append((page, faults))


def _forget(page: Any) -> None:
    """Leave nothing in the browser; a page without an origin has no storage."""
    page.evaluate("try { localStorage.clear(); sessionStorage.clear(); } catch {}")


def until(page: Any, true: str, argument: Any = None) -> None:
    """Wait for an expression to become true; the page's own policy forbids Playwright's way of doing so."""
    question = true if argument is not None else f"() => {true}"
    # Playwright's own wait as the pause, since it answers the requests of the page meanwhile.
    patience.until(lambda: page.evaluate(question, argument) or page.wait_for_timeout(50), 0, lambda: question)


def picture(page: Any, name: str) -> None:
    """Keep a screenshot for people to look at, if REGARD_TEST_PICTURES names a folder."""
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)
