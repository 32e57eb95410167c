"""Repeat a table of docs/results, from data to numbers: python benchmarks/results.py [TABLE]

TABLE is the anchor of its heading, such as `tales`. The commands are those in the blocks below that heading; they run
in the folder of the clone and write into runs/ and sweeps/. Without a name, the tables are listed.
"""

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from markdown_it import MarkdownIt

TREE = Path(__file__).resolve().parent.parent


def tables() -> Iterator[tuple[str, Path, str]]:
    """Each heading with commands below it: its anchor, its page and the commands."""
    for page in sorted((TREE / "docs" / "results").glob("*.md")):
        if page.name == "index.md":  # how to repeat a table
            continue
        anchor, script = "", ""
        tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
        for before, token in zip([None, *tokens], [*tokens, None], strict=True):
            if token is None or token.type == "heading_open":
                if script:
                    yield anchor, page, script
                script = ""
            elif before is not None and before.type == "heading_open":
                anchor = re.sub(r"[^\w -]", "", token.content.lower()).replace(" ", "-")
            elif token.type == "fence" and token.info in ("", "bash"):
                script += token.content


def machine() -> str:
    """Where the numbers come from, in a line."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{gpu}, PyTorch {torch.__version__}"


def repeat(script: str) -> int:
    """Runs the commands with the Python that runs this file; returns the exit code."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    (TREE / "runs").mkdir(exist_ok=True)
    shell = ["bash", "-euxo", "pipefail", "-c", script]
    return subprocess.run(shell, cwd=TREE, env={**os.environ, "PATH": path}, check=False).returncode


def main() -> int:
    """Lists the tables, or repeats one."""
    known = {anchor: (page, script) for anchor, page, script in tables()}
    if len(sys.argv) != 2:
        for anchor, (page, _) in known.items():
            print(f"{anchor:60} {page.relative_to(TREE)}")
        return 0
    if sys.argv[1] not in known:
        named = shlex.quote(sys.argv[1])
        print(f"Expected the name of a table, got {named}; run without a name to list them.", file=sys.stderr)
        return 2
    page, script = known[sys.argv[1]]
    read = script + "".join(
        (TREE / one).read_text(encoding="utf-8") for one in re.findall(r"configs/[\w/-]+\.toml", script)
    )
    if missing := {name for name in re.findall(r"data/([\w.-]+)/", read) if not (TREE / "data" / name).is_dir()}:
        print(f"Build the corpora first: python benchmarks/data.py {' '.join(sorted(missing))}", file=sys.stderr)
        return 2
    began = time.monotonic()
    code = repeat(script)
    minutes = (time.monotonic() - began) / 60
    done = f"Compare with {page.relative_to(TREE)}#{sys.argv[1]}." if code == 0 else f"A command failed ({code})."
    print(f"{minutes:.1f} minutes on {machine()}. {done}")
    return code


if __name__ == "__main__":
    sys.exit(main())
