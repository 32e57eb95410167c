"""The page without a server for tests: built once, its engine run by node, and its answers compared with Python's."""

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from kept import kept
from npm_parts import packages
from serve_parts import trained

from regard.api.confidence import keep_calibration
from regard.collector import without_collector
from regard.evaluate.confidence import SENTENCE_SIGNALS, Calibration, Fitted
from regard.serve import site
from regard.serve.limits import Limits
from regard.serve.loading import load_model
from regard.serve.models import TranslationModel
from regard.serve.queue import TraceRequest
from regard.serve.site import build_site

# Two numbers agree within 1e-4 and, where they are large, four millionths of the largest: float32 has seven digits.
CLOSE, ROUNDED = 1e-4, 4e-6
# Attention weights agree less well: some scores of en-fr are above 3,000, where the steps of float32 are 0.00025.
SHARP, SHARPENED = 3e-4, {"weights", "combined"}
WRITERS = ("serve/graphs.py", "serve/site.py", "serve/inside.py", "serve/models.py", "interop/onnx.py")
SCRIPT = Path(__file__).parent / "site_node.mjs"
# Numbers without a scale of their own: sums over hundreds of terms.
LOOSE = {
    "query",
    "context",
    "context_norms",
    "left",
    "right",
    "values",
    "stream",
    "before",
    "self",
    "cross",
    "feed",
    "log_total",
    "logit",
}


class NotStopped:
    """A call that nobody stops."""

    def stopped(self) -> bool:
        return False


NEVER: Any = NotStopped()


def built(runs: Sequence[Path | str], out: Path) -> Path:
    """The page of some runs with the modules of now; what was exported is kept while its code stays the same."""
    runtime = packages() / "node_modules" / "onnxruntime-web"
    package = Path(site.__file__).parents[1]
    code = [hashlib.sha256((package / name).read_bytes()).hexdigest() for name in WRITERS]

    @without_collector()  # torch's exporter makes millions of objects: a tenth of its time
    def export(out: Path) -> None:
        build_site(runs, out, runtime)

    shutil.copytree(kept("site", [[str(run) for run in runs], code], export), out)
    for folder in (*reversed(site.FOLDERS), site.MODULES):
        for path in folder.iterdir():
            if (out / "page" / path.name).exists():
                shutil.copy(path, out / "page" / path.name)
    return out


CALIBRATION = Calibration(
    Fitted(0.0, (0.0,) * len(SENTENCE_SIGNALS)),
    Fitted(0.3, (-0.2, -0.1, 0.1, 0.3, 0.9, -0.7, 0.4, 0.6, -0.5), ((0.0, 0.0), (0.4, 0.1), (0.7, 0.8), (1.0, 1.0))),
    {},
)


@cache
def small_runs() -> list[Path]:
    """The folders of two small runs, the second with a calibration."""
    plain = trained("transformer", "model.layers=1", "model.heads=2", "data.joint=true", steps=200)

    def calibrated(out: Path) -> None:
        shutil.copytree(plain, out)
        keep_calibration(out, CALIBRATION)

    return [trained(), kept(plain.name, ["calibrated", str(plain), CALIBRATION.as_data()], calibrated)]


class Engine:
    """The engine of a built page in a node process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, **request: Any) -> Any:
        """The answer to a request of `site_node.mjs`."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        if "error" in found:
            raise EngineError(found["error"], found["stack"])
        return found["answer"]

    def each(self, module: str, name: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """What a function of a module returns for each list of arguments."""
        return list(self.ask(module=module, name=name, each=calls))


class EngineError(Exception):
    """A sentence that the engine answers a request with."""


@contextmanager
def engine(site: Path) -> Iterator[Engine]:
    process = subprocess.Popen(
        ["node", str(SCRIPT), str(site)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        yield Engine(process)
    finally:
        process.kill()
        process.wait()


def served(run: Path | str) -> TranslationModel:
    """The model of a run as the server has it."""
    model = load_model(str(run), Limits())
    assert isinstance(model, TranslationModel)
    return model


def in_python(model: TranslationModel, method: str, body: dict[str, Any]) -> Any:
    """What the server answers to a request of the engine, as JSON."""
    names = ("text", "target", "prefix", "beam", "changes", "tree", "by", "against")
    given = {
        name: tuple(value) if name in ("target", "prefix") and isinstance(value, list) else value
        for name, value in body.items()
    }
    look = TraceRequest(**{name: given[name] for name in names if name in given})
    if method == "look":
        found: Any = model.look(look, NEVER)
    elif method == "explain":
        found = model.step(look, body["t"], body.get("name"), body["head"], NEVER)
    elif method == "path":
        found = model.path(look, body["t"], body.get("name"), NEVER)
    elif method == "worth":
        found = model.worth(look, NEVER)
    else:
        found = model.alternatives(look.text, given["prefix"], body["most"], NEVER)
    return json.loads(model.write(found))


def differences(theirs: Any, ours: Any, path: str = "", close: float = CLOSE) -> list[str]:
    """Where two answers differ: other keys, other texts, numbers further apart than the bound. Of a search and of
    rankings, what is equal up to the bound may be in another order."""
    if isinstance(theirs, dict) and "base64" in theirs:
        one, two = (_array(part) for part in (theirs, ours))
        if one.shape != two.shape:
            return [f"{path}: shape {one.shape}, not {two.shape}"]
        same = np.isneginf(one) == np.isneginf(two)
        one, two = (np.where(np.isfinite(part), part, 0) for part in (one, two))
        far = np.abs(one - two)
        last = path.split(".")[-1]
        bound = max(SHARP if last in SHARPENED else close, close) + ROUNDED * np.abs(one).max(initial=0)
        if last in LOOSE:
            bound = bound + close * np.abs(one)
        if theirs["dtype"] == "float16":  # Python sends a large trace in half precision, and sums of halves
            bound = bound + 2.0**-10 * np.abs(one)
        return [] if same.all() and (far <= bound).all() else [f"{path}: off by {far.max():.2g}"]
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = [f"{path}.{name}: only in one" for name in theirs.keys() ^ ours.keys()]
        theirs, ours = dict(theirs), dict(ours)
        if theirs.get("beam") and ours.get("beam"):
            found += _search_differences(theirs.pop("beam"), ours.pop("beam"), close)
            found += _ranked_differences(theirs.pop("translations"), ours.pop("translations"), "text", "score", close)
        for name, (key, value) in RANKED.items():
            if isinstance(theirs.get(name), list) and isinstance(ours.get(name), list) and _have(theirs[name], value):
                found += _ranked_differences(theirs.pop(name), ours.pop(name), key, value, close)
        return found + [
            line
            for name in theirs.keys() & ours.keys()
            for line in differences(theirs[name], ours[name], f"{path}.{name}", close)
        ]
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return [f"{path}: {len(theirs)} parts, not {len(ours)}"]
        return [
            line
            for at, pair in enumerate(zip(theirs, ours, strict=True))
            for line in differences(*pair, f"{path}.{at}", close)
        ]
    if isinstance(theirs, float) or isinstance(ours, float):
        loose = path.split(".")[-1] in LOOSE or "steps" in path
        return [] if _near(theirs, ours, close, loose) else [f"{path}: {theirs}, not {ours}"]
    return (
        []
        if theirs == ours and isinstance(theirs, bool) == isinstance(ours, bool)
        else [f"{path}: {theirs!r}, not {ours!r}"]
    )


# Lists that are ordered by a number: what an entry is known by, and the number.
RANKED = {
    "topk": ("text", "logprob"),
    "words": ("piece", "logit"),
    "alternatives": ("piece", "probability"),
    "lens": ("piece", "probability"),
    "heads": ("name", "drop"),
}


def _near(theirs: float, ours: float, close: float, loose: bool = False) -> bool:
    return abs(theirs - ours) <= close * (1 + abs(theirs) * loose) + ROUNDED * abs(theirs) + 1e-6


def _have(entries: list[Any], name: str) -> bool:
    return bool(entries) and isinstance(entries[0], dict) and name in entries[0]


def _ranked_differences(theirs: list[Any], ours: list[Any], key: str, value: str, close: float) -> list[str]:
    """The same numbers in the same order, and the same entries for them; the last may be others that are as good."""
    if len(theirs) != len(ours):
        return [f"{value}: {len(theirs)} entries, not {len(ours)}"]
    found = [
        f"{value}: {one[value]} of {one[key]!r}, not {two[value]} of {two[key]!r}"
        for one, two in zip(theirs, ours, strict=True)
        if not _near(one[value], two[value], close, loose=True)
    ]
    entries = [{(one[key], one.get("head")): one[value] for one in part} for part in (theirs, ours)]
    for known, other in (entries, entries[::-1]):
        for name, number in known.items():
            if not _near(number, other.get(name, min(known.values())), close, loose=True):
                found.append(f"{value}: {number} of {name}, not {other.get(name)}")
    return found


def _search_differences(theirs: dict[str, Any], ours: dict[str, Any], close: float) -> list[str]:
    """Two search trees: the same hypotheses with the same numbers, until one step leaves it to rounding which of two
    equal candidates is kept. After that, what is in both."""
    first, second = _by_path(theirs), _by_path(ours)
    numbers = ("logprob", "total", "score")
    found = [
        f"beam.{name}: {first[path][name]} of {path}, not {second[path][name]}"
        for path in first.keys() & second.keys()
        for name in numbers
        if not _near(first[path][name], second[path][name], close, loose=True)
    ]
    for step in range(1, 1 + max(map(len, first))):
        other = {
            path: (first.get(path) or second[path])["total"]
            for path in first.keys() | second.keys()
            if len(path) == step and _kept(first.get(path)) != _kept(second.get(path))
        }
        for path, total in other.items():
            if not any(_near(total, one, close, loose=True) for name, one in other.items() if name != path):
                found.append(f"beam: {path} is {_kept(first.get(path))}, not {_kept(second.get(path))}")
        if other:
            return found
    return found if theirs["size"] == ours["size"] else [*found, f"beam: {theirs['size']}, not {ours['size']}"]


def _kept(node: dict[str, Any] | None) -> str:
    return "absent" if node is None else "finished" if node["finished"] else "pruned" if node["pruned"] else "kept"


def _by_path(beam: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """The nodes of a search tree by the tokens that lead to them."""
    paths: dict[int | None, tuple[str, ...]] = {None: ()}
    for node in beam["nodes"]:
        paths[node["id"]] = (*paths[node["parent"]], node["token"])
    return {paths[node["id"]]: node for node in beam["nodes"]}


def without_noise(answer: dict[str, Any], name: str, scores: dict[str, Any]) -> dict[str, Any]:
    """An answer whose shares of an attribution can be compared: each row times the sum that was divided by, up to 1.
    Where `scores` have next to nothing to share, the shares are rounding, and so is what is measured over all rows."""
    sums = _array(scores)[0].clip(0).sum(-1, keepdims=True)  # [T, 1]
    seen = answer["attention"][name]
    seen["weights"] = (_array(seen["weights"])[0] * np.minimum(1, sums / 4)).tolist()
    (drawn,) = (one for one in answer["views"]["modules"] if one["name"] == name)
    del drawn["measures"]
    for table in (*(drawn["words"] or ()), *drawn["pieces"]):
        del table["weights"], table["hidden"]
    return answer


def _array(stored: dict[str, Any]) -> np.ndarray[Any, Any]:
    kind = {"float32": "<f4", "float16": "<f2"}[stored["dtype"]]
    return np.frombuffer(base64.b64decode(stored["base64"]), kind).reshape(stored["shape"]).astype(np.float64)
