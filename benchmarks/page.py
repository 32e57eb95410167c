"""The page in numbers: start-up, the first token of a stream, what is downloaded, and how soon it follows a reader.

    python benchmarks/page.py                # the models that ship
    python benchmarks/page.py runs/en-fr     # another run

Times by the clock are those of this machine with whatever else runs on it. Beside them is the processor time: of the
server, of the processes of the models, and of the page's main thread for scripts, style and layout.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import regard

# 60 words.
SENTENCE = (
    "The committee that met yesterday evening in the large hall of the old town did not want to accept the new "
    "proposal which the president of the commission had made only two weeks ago, because he believed that it would "
    "cost the citizens of the country far more money than the plan that they had discussed in the year "
    "before."
)
ROUNDS = 15
TICKS = os.sysconf("SC_CLK_TCK")

# How long the page is busy with an event, the layout included.
BUSY = """(act) => {
  const began = performance.now();
  act();
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""
HOVER = f"""(selector) => {{
  const busy = {BUSY};
  return [...document.querySelectorAll(selector)].map((one) => busy(() => {{
    one.dispatchEvent(new PointerEvent("pointerenter"));
    one.dispatchEvent(new PointerEvent("pointermove", {{ bubbles: true }}));
  }}));
}}"""
# From a key until the stage shows the next part of a step, or the next word.
STEP = """async () => {
  const { state } = await import("/page/state.js");
  await new Promise((done) => setTimeout(done, 400)); // a reader looks; the next step is requested meanwhile
  const before = state.get("t"), written = () => document.querySelectorAll(".sofar .done").length;
  const began = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  const moved = state.get("t") !== before;
  while (written() !== (state.get("t") ?? 0)) await new Promise((done) => setTimeout(done));
  document.body.getBoundingClientRect();
  return [moved, performance.now() - began];
}"""


def cpu(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    found = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [*found, *(below for child in found for below in children(child))]


def spread(times: list[float], unit: float = 1.0) -> str:
    """The middle and the largest of some times."""
    return f"median {statistics.median(times) * unit:.1f} ms, largest {max(times) * unit:.1f} ms"


def first_event(address: str, body: dict[str, Any]) -> float:
    """Seconds until the first event of a stream; the rest is read."""
    request = urllib.request.Request(
        f"{address}translate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request) as response:
        response.readline()
        waited = time.perf_counter() - began
        response.read()
    return waited


def calls_before_the_first_event(run: str | None) -> dict[str, int]:
    """How often the model is called until there is something to send."""
    from regard.serve.models import Live

    translator = regard.load(run) if run else regard.load("en-fr")
    model, calls = translator.model, {"encode": 0, "step": 0}
    seen: list[dict[str, int]] = []

    def counted(name: str) -> Callable[..., Any]:
        plain = getattr(model, name)

        def call(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return plain(*args, **named)

        return call

    for name in calls:
        object.__setattr__(model, name, counted(name))
    live = Live(translator.target_vocabulary.decode, lambda _: seen.append(dict(calls)))
    translator.translate(SENTENCE, observe=live)
    return seen[0]


class Page:
    """A page in Chromium whose main thread is timed."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy(self) -> float:
        """Milliseconds of processor time for scripts, style and layout so far."""
        found = {one["name"]: one["value"] for one in self.session.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(sum(found[f"{name}Duration"] for name in ("Script", "Layout", "RecalcStyle")))

    def hover(self, name: str, selector: str) -> None:
        """Point at every word of a kind."""
        self.page.evaluate(HOVER, selector)  # the first time is compilation
        before = self.busy()
        times = self.page.evaluate(HOVER, selector)
        print(f"hover {name}: {spread(times)}; {(self.busy() - before) / len(times):.1f} ms processor each")

    def step(self, count: int) -> None:
        """Go on step by step."""
        kinds: dict[str, list[tuple[float, float]]] = {"part of a step": [], "next word": []}
        for _ in range(count):
            before = self.busy()
            moved, took = self.page.evaluate(STEP)
            kinds["next word" if moved else "part of a step"].append((took, self.busy() - before))
        for name, found in kinds.items():
            processor = statistics.median(one for _, one in found)
            print(f"{name}: {spread([one for one, _ in found])}; {processor:.1f} ms processor each")


def measure_browser(address: str, model: str) -> None:
    """What Chromium downloads and how long it is busy."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        print("Chromium is not on the PATH: the page is not measured.")
        return
    text = urllib.parse.urlencode({"model": model, "text": SENTENCE})
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"{address}#{text}")
        page.locator(".translation .word").first.wait_for()
        loaded = page.evaluate(
            """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
              .map((one) => [new URL(one.name).origin, one.name.includes("/page/") || one.entryType === "navigation",
                             one.decodedBodySize, one.transferSize])"""
        )
        own = [(plain, sent) for _, part, plain, sent in loaded if part]
        print(f"page: {len(own)} files, {sum(plain for plain, _ in own):,} bytes, {sum(s for _, s in own):,} as sent")
        print(f"origins: {sorted({origin for origin, *_ in loaded})}")
        timed = Page(page)
        timed.hover("a word of the translation", ".translation .word")
        timed.hover("a word of the ribbons", ".ribbons text")
        page.get_by_role("tab", name="Step by step").click()
        page.locator(".stagegrid").wait_for()
        timed.step(35)
        browser.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="a run folder or a shipped model; default: all models that ship")
    given = parser.parse_args()
    began = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "regard", "serve", *([given.run] if given.run else []), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        used = sum(map(cpu, children(server.pid)))
        print(f"all models loaded after {time.perf_counter() - began:.2f} s, {used:.2f} s of processor time")
        models = json.load(urllib.request.urlopen(f"{address}api/v1/models"))["models"]
        about = next(one for one in models if one["kind"] != "caption")
        body = {"source": about["source"]["code"], "target": about["target"]["code"], "model": about["id"]}
        short = about["examples"][0]
        for name, text in ((f"{len(short.split())} words", short), ("60 words", SENTENCE)):
            first_event(address, {"q": text, "stream": True, **body})
            before = [cpu(pid) for pid in children(server.pid)]
            waits = [first_event(address, {"q": text, "stream": True, **body}) for _ in range(ROUNDS)]
            used = sum(map(cpu, children(server.pid))) - sum(before)
            print(f"first event of {name}: {spread(waits, 1000)}; {used / ROUNDS * 1000:.0f} ms processor for it all")
        counts = calls_before_the_first_event(given.run)
        print(f"before the first event: {counts['encode']} encoding, {counts['step']} decoding step")
        measure_browser(address, about["id"])
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
