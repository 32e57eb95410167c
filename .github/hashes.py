"""Write requirements.txt and requirements-serve.txt: packages of constraints.txt with the SHA-256 of their files.

python .github/hashes.py     in an environment with `.[dev]` installed; reads the index of PyPI

`pip install --require-hashes --no-deps --requirement FILE` then installs exactly these files. Torch is not among them:
the CPU builds for Linux come from PyTorch's own index and differ from those of PyPI.
"""

import importlib.metadata
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# Wheels for the systems and the versions of Python that the workflows use, and source archives.
FILE = re.compile(
    r"\.tar\.gz$|-(?:py[23.py]*|cp3[0-9]+|cp31[1-4])-(?:none|abi3|cp31[1-4])-"
    r"(?:any|(?:many|musl)?linux[^-]*(?:x86_64|aarch64)|macosx[^-]*(?:arm64|universal2)|win_amd64)\.whl$"
)
ONLY = {  # packages that some of them do not need or do not have
    "uvloop": 'sys_platform != "win32"',
    "backports.zstd": 'python_version < "3.14"',
}
SERVED = {"python_version": "3.12", "sys_platform": "linux", "platform_system": "Linux", "extra": ""}  # the container


def hashed(name: str, version: str) -> str:
    """A line of a requirements file."""
    with urllib.request.urlopen(f"https://pypi.org/simple/{canonicalize_name(name)}/", timeout=60) as answer:
        links = re.findall(r'#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>', answer.read().decode("utf-8"))
    start = canonicalize_name(f"{name}-{version}-")
    found = [sha for sha, file in links if canonicalize_name(file).startswith((start, f"{start}tar"))]
    chosen = sorted({sha for sha, file in links if sha in found and FILE.search(file)})
    assert chosen, f"PyPI has no files of {name} {version}"
    marker = f" ; {ONLY[name]}" if name in ONLY else ""
    return " \\\n    ".join([f"{name}=={version}{marker}", *(f"--hash=sha256:{sha}" for sha in chosen)])


def needed(name: str, extra: str, known: dict[str, str]) -> set[str]:
    """The packages that one needs in the container, itself included."""
    found, left = set[str](), [(name, extra)]
    while left:
        name, extra = left.pop()
        for line in importlib.metadata.requires(name) or []:
            one = Requirement(line)
            other = canonicalize_name(one.name)
            if (
                other in known
                and other not in found
                and (not one.marker or one.marker.evaluate({**SERVED, "extra": extra}))
            ):
                found.add(other)
                left += [(other, wanted) for wanted in ("", *one.extras)]
    return found


def main() -> None:
    """Write both files."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").split()
    versions = dict(line.split("==") for line in lines)
    names = {str(canonicalize_name(name)): name for name in versions}
    serve = needed("regard", "serve", names) | needed("regard", "", names)
    with ThreadPoolExecutor(8) as pool:
        kept = [name for name in versions if name != "torch"]
        rows = dict(zip(kept, pool.map(lambda name: hashed(name, versions[name]), kept), strict=True))
    head = "# Written by .github/hashes.py from constraints.txt; torch is installed separately.\n"
    for file, chosen in (("requirements.txt", set(names)), ("requirements-serve.txt", serve)):
        text = "\n".join(row for name, row in rows.items() if canonicalize_name(name) in chosen)
        (ROOT / file).write_text(f"{head}{text}\n", "utf-8")


if __name__ == "__main__":
    main()
