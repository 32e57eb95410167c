"""The page without a server in numbers: bytes until the first translation, time from a click to it, memory of the tab;
and the same click on the page of `regard serve`.

    regard page en-fr en-fr/bahdanau en-fr/cho --out site
    python benchmarks/page_static.py site

Times by the clock are those of this machine with whatever else runs on it. Beside them is the processor time: of the
tab, which runs the model there, or of the server's processes.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from page import children, cpu
from playwright.sync_api import sync_playwright

SENTENCE = "The committee could not agree on the amount of money for the regions last spring{}."  # 15 words
ENDS = ("", " !", " ?", "…", " .", " ;", ":", " -", "!!")
CLICK = """async (text) => {
  const box = document.querySelector("#source");
  const { state } = await import("./page/state.js");
  box.value = text;
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
  state.set({ sentences: [], trace: null });
  const began = performance.now();
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, bubbles: true }));
  const pause = () => new Promise((go) => setTimeout(go));
  while (!state.get("sentences").some((one) => one.done) || state.get("text") !== text) await pause();
  const translated = performance.now();
  while (!state.get("trace") || state.get("busy")) await pause();
  return [translated - began, performance.now() - translated];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(chosen.site)]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert host.stdout
    port = re.search(r"port (\d+)", host.stdout.readline())
    assert port
    names = [path.name for path in sorted((chosen.site / "files").iterdir()) if path.is_dir()]
    path = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
            for name in names:
                visit(browser, f"http://127.0.0.1:{port[1]}/#model={name}", name, chosen.rounds)
            server = subprocess.Popen(
                [sys.executable, "-m", "regard", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True
            )
            assert server.stdout
            address = server.stdout.readline().split()[-1]
            for name in names:
                page = browser.new_page()
                page.goto(f"{address}#model={name}")
                page.locator(".translation .word").first.wait_for(timeout=300_000)
                measure(page, f"{name}, regard serve", chosen.rounds, partial(processor, server.pid))
                page.close()
            server.terminate()
            browser.close()
    finally:
        host.kill()


def processor(server: int) -> float:
    """The processor time of a server and its models."""
    return sum(map(cpu, children(server)))


def visit(browser: Any, address: str, name: str, rounds: int) -> None:
    """A first visit, and some translations."""
    context = browser.new_context()
    page = context.new_page()
    sizes: dict[str, int] = {}
    addresses: dict[str, str] = {}
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on(
        "Network.responseReceived", lambda event: addresses.update({event["requestId"]: event["response"]["url"]})
    )
    session.on("Network.loadingFinished", lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}))
    began = time.monotonic()
    page.goto(address)
    page.locator(".translation .word").first.wait_for(timeout=300_000)
    first = time.monotonic() - began
    own = sum(size for number, size in sizes.items() if f"/files/{name}/" in addresses.get(number, ""))
    every = sum(sizes.values())
    bytes_ = f"{(every - own) / 1e6:.1f} MB before the model, {every / 1e6:.1f} MB in all"
    print(f"{name}: {bytes_}; first translation after {first:.1f} s", flush=True)
    processes = browser.new_browser_cdp_session()

    def tab() -> dict[str, Any]:
        found = processes.send("SystemInfo.getProcessInfo")["processInfo"]
        return max((one for one in found if one["type"] == "renderer"), key=lambda one: one["cpuTime"])

    measure(page, name, rounds, lambda: float(tab()["cpuTime"]))
    used = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{tab()['id']}/smaps_rollup").read_text(), re.M)
    print(f"{name}: memory of the tab {int(used[1]) / 1024:.0f} MiB" if used else "")
    context.close()


def measure(page: Any, name: str, rounds: int, spent: Callable[[], float]) -> None:
    """From Ctrl+Enter to the translation, and on to its attention, after some translations that warm up."""
    found = []
    for number in range(rounds + 2):
        before = spent()
        translated, attended = page.evaluate(CLICK, SENTENCE.format(ENDS[number % len(ENDS)]))
        found.append((translated / 1000, attended / 1000, spent() - before))
    clock, more, used = (statistics.median(each) for each in zip(*found[2:], strict=True))
    print(
        f"{name}: {clock:.2f} s to the translation, {more:.2f} s more to its attention "
        f"(processor {used:.2f} s in all); load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
