"""Make the pictures of docs/gallery.md again: python benchmarks/gallery.py [SECTION ...]

The page holds the commands; this runs them as printed, block by block, from the root of the repository. Sections are
chosen by words of their headings (default: all): python benchmarks/gallery.py captions documents
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gallery.md"
MOST = 1_500_000  # bytes of all pictures in docs
SHELLS = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


class Block(NamedTuple):
    """Commands of the page."""

    section: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks of bash and Python, in order."""
    section = ""
    for found in re.finditer(r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if found[1]:
            section = found[1]
        elif found[2] in SHELLS:
            yield Block(section, found[2], found[3])


def pictures(page: str) -> set[Path]:
    """The files that the page shows."""
    return {PAGE.parent / name for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)}


def main(*wanted: str) -> None:
    """Run the blocks of the wanted sections."""
    page = PAGE.read_text(encoding="utf-8")
    chosen = [one for one in blocks(page) if not wanted or any(word.lower() in one.section.lower() for word in wanted)]
    if not chosen:
        sys.exit(f"No section of {PAGE.name} has {' or '.join(wanted)} in its heading.")
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": here, "PYTHONPATH": str(ROOT)}
    for one in chosen:
        began = time.monotonic()
        print(f"{one.section}\n{one.text}", flush=True)
        subprocess.run([*SHELLS[one.language], one.text], cwd=ROOT, env=environment, check=True)
        print(f"{time.monotonic() - began:.0f} seconds\n", flush=True)
    missing = sorted(str(path) for path in pictures(page) if not path.exists())
    if missing:
        sys.exit(f"The page shows pictures that no command has made: {', '.join(missing)}.")
    drawn = [path for ending in ("svg", "png", "gif") for path in (ROOT / "docs").rglob(f"*.{ending}")]
    size = sum(path.stat().st_size for path in drawn)
    print(f"{len(drawn)} pictures in docs, {size:,} bytes" + (f", more than {MOST:,}" if size > MOST else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="*", help="words of headings; without any, all sections")
    main(*parser.parse_args().section)
