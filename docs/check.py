"""Check a built site: python docs/check.py build/docs

Every link to a page or a place within one leads there, and no page loads anything from another origin.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {  # what a browser fetches when it shows a page; a link is fetched only when somebody follows it
    "script": ["src"], "img": ["src", "srcset"], "link": ["href"], "iframe": ["src"], "source": ["src", "srcset"],
    "video": ["src", "poster"], "audio": ["src"], "object": ["data"], "embed": ["src"], "input": ["src"],
}  # fmt: skip
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """The places of a page, where its links go, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = IN_STYLES.findall(text)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "data-page" in given:
            self.links.append(given["data-page"])
        if given.get("http-equiv") == "refresh":
            self.links.append(given["content"].partition("url=")[2])
        self.loads += [given[name] for name in LOADS.get(tag, []) if name in given]
        if "srcdoc" in given:
            self.loads += Page(given["srcdoc"]).loads


def faults(site: Path) -> Iterator[str]:
    """A sentence for each link that leads nowhere and each load from another origin."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for load in page.loads:
            if urlsplit(load).netloc:
                yield f"{name} loads {load}."
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not to.is_file():
                yield f"{name} has a link to {link}, which is not there."
            elif to.parent.name == "live":
                continue  # its places are made by its script, or are states
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].places:
                yield f"{name} has a link to {link}, but that page has no such place."
    for path in sorted(site.rglob("*.css")):
        for load in IN_STYLES.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} loads {load}."


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "Every link leads somewhere, and nothing is loaded from elsewhere.")
    sys.exit(1 if found else 0)
