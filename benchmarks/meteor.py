"""METEOR of captions, by METEOR 1.5 itself, which pycocoevalcap brings along (it needs Java).

    python benchmarks/meteor.py write runs/flickr8k-soft TEST.tar TEST.jsonl.bz2 captions.jsonl
    pip install pycocoevalcap
    python benchmarks/meteor.py score captions.jsonl
    python benchmarks/meteor.py people TEST.jsonl.bz2

`write` makes {"caption", "references"} of every picture, one JSON object a line, on any machine; `score` needs no run.
`people` scores the first caption of each picture against the others: what a person reaches with one reference fewer.
Captions are compared as they are, without full stops, in lower case, as the captioner writes them.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import regard
from regard.data.captions import open_captions, without_punctuation
from regard.sealed import write_atomically
from regard.text.lines import read_lines


def write(run: str, images: str, captions: str, out: str) -> None:
    writer = regard.load(run, "auto", "caption")
    files, corpus = open_captions(images, captions, writer.experiment.data)
    entries = list(corpus)
    rows = []
    for first in range(0, len(entries), 64):
        some = entries[first : first + 64]
        found = writer.caption([files.read(entry.image) for entry in some])
        rows += [
            {"caption": one.text, "references": [plain(each) for each in entry.captions]}
            for one, entry in zip(found, some, strict=True)
        ]
    write_atomically(Path(out), "".join(json.dumps(row) + "\n" for row in rows).encode())


def plain(caption: str) -> str:
    return without_punctuation(caption.lower())


def score(rows: Iterable[dict[str, Any]]) -> None:
    from pycocoevalcap.meteor.meteor import Meteor

    listed = list(rows)
    written = {number: [row["caption"]] for number, row in enumerate(listed)}
    references = {number: row["references"] for number, row in enumerate(listed)}
    value, _ = Meteor().compute_score(references, written)
    print(f"METEOR {100 * value:.2f} of {len(listed)} captions")


def main() -> None:
    match sys.argv[1:]:
        case ["write", run, images, captions, out]:
            write(run, images, captions, out)
        case ["score", path]:
            score(json.loads(line) for line in read_lines(path))
        case ["people", path]:
            given = [[plain(each) for each in json.loads(line)["captions"]] for line in read_lines(path)]
            score({"caption": first, "references": others} for first, *others in given)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
