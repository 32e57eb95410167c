"""A real browser for tests: Chromium through Playwright, shut off from every machine but this one."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import patience
import pytest

PICTURES = Path(os.environ.get("REGARD_TEST_PICTURES", Path(__file__).parent.parent / "build" / "screenshots"))


def chromium() -> str:
    """Where Chromium is; the test is skipped, loudly, where it is not."""
    pytest.importorskip("playwright.sync_api")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    warnings.warn("NOT TESTED in a browser: Chromium is not on the PATH (apt-get install chromium)", stacklevel=2)
    pytest.skip("Chromium is not on the PATH")


class Watch:
    """What a page did that it should not: foreign requests, errors, dialogs."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def on(self, page: Any) -> None:
        """Watch a page, and let nothing of it reach another machine."""
        page.context.route("**/*", self._route)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", lambda said: said.type == "error" and self.faults.append(f"console: {said.text}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _route(self, route: Any) -> None:
        address = route.request.url
        if urlsplit(address).scheme in ("data", "blob", "file") or urlsplit(address).hostname in (
            "127.0.0.1",
            "localhost",
        ):
            route.continue_()
        else:
            self.faults.append(f"foreign request: {address}")
            route.abort()


@contextmanager
def browser() -> Iterator[Any]:
    """A running Chromium."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(running: Any, address: str, **options: Any) -> Iterator[Any]:
    """A separate page at an address; it must do nothing that it should not."""
    options = {"viewport": {"width": 1200, "height": 900}, "accept_downloads": True, **options}
    context = running.new_context(**options)
    context.set_default_timeout(1000 * patience.PATIENCE)
    page, watch = context.new_page(), Watch()
    watch.on(page)
    try:
        page.goto(address)
        yield page
        assert watch.faults == [], watch.faults
    finally:
        context.close()


def until(page: Any, true: str, argument: Any = None) -> None:
    """Wait for an expression to become true; the page's own policy forbids Playwright's way of doing so."""
    question = true if argument is not None else f"() => {true}"
    # Playwright's own wait as the pause, since it answers the requests of the page meanwhile.
    patience.until(lambda: page.evaluate(question, argument) or page.wait_for_timeout(50), 0, lambda: question)


def picture(page: Any, name: str) -> None:
    """Keep a screenshot for people to look at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
