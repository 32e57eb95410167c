"""Which mistakes would the tests not notice? Small changes to the source, one at a time; those that survive are listed.

    python tests/mutants.py training models --count 100 --seed 1
    python tests/mutants.py regard/training/objectives.py --count 20

A mutant is one changed operator, constant or condition, a removed call, a dropped keyword or two swapped arguments. It
lives in a copy of the package that comes first on the import path, also of processes that tests start. First the tests
of its folder run without a mutant: they must pass, and the functions that each of them calls are noted. Those that call
the changed function then run until one fails, the quick ones first, in a fork of one process that has imported torch.
A mutant is killed by a failure, an error or the time limit; it is unreached if no test calls its function.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PLACES = {  # the tests of each folder or file of the package
    "training": "train_laws train_papers timed cross_entropy train_numbers guided packing captioning streams "
    "train_documents train_durability train_refusals train_origin train_stop images",
    "models": "train_laws models_papers systems streams captioner lstmn document language laws counts others",
    "decode": "decode_search decode_captured decode_sampling decode_ensemble decode_coverage decode_terms "
    "decode_models",
    "files": "formats format_laws passages sentences terms document_data translate_files confidence",
    "look": "look_record look_change look_trace look_words look_tasks look_laws look_draw look_html look_foreign "
    "look_picture attribution faithful document_look reach captioner",
    "evaluate/faithful.py": "faithful",
    "evaluate/confidence.py": "confidence",
    "api/faithful.py": "faithful",
}
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.MatMult: ast.Mult,
}  # fmt: skip
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments, ast.AnnAssign, ast.Import, ast.ImportFrom)


class Mutant(NamedTuple):
    path: Path
    line: int
    change: str  # what was changed, in words
    source: str  # the whole file, changed


def changes_of(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], ast.AST]]]:
    """What can be changed about one node: a description, and a function of a copy of the node."""

    def setting(**fields: object) -> Callable[[ast.AST], ast.AST]:
        def change(found: ast.AST) -> ast.AST:
            for name, value in fields.items():
                setattr(found, name, value)
            return found

        return change

    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield "another comparison", setting(ops=[COMPARISONS[type(op)]()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield "another operator", setting(op=ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield "and <-> or", setting(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "sign or not removed", lambda found: found.operand  # type: ignore[attr-defined]
        case ast.Constant(value=bool(value)):
            yield "another constant", setting(value=not value)
        case ast.Constant(value=int(value)):
            yield "another constant", setting(value=value + 1)
        case ast.Constant(value=float(value)):
            yield "another constant", setting(value=2 * value if value else 1.0)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield "condition negated", setting(test=ast.UnaryOp(ast.Not(), test))
        case ast.Expr(value=ast.Call()):
            yield "call removed", lambda found: ast.Pass()
        case ast.Call(args=args, keywords=keywords):
            plain = not any(isinstance(each, ast.Starred) for each in args)
            if plain and len(args) == 1 and not keywords:
                yield "call replaced by its argument", lambda found: found.args[0]  # type: ignore[attr-defined]
            if plain and len(args) > 1:
                yield "two arguments swapped", setting(args=[args[1], args[0], *args[2:]])
            if keywords:
                yield f"{keywords[-1].arg}= dropped", setting(keywords=keywords[:-1])


def mutants_of(path: Path) -> list[Callable[[], Mutant]]:
    """Every mutant of a file, made when it is called."""
    text = path.read_text(encoding="utf-8")
    found: list[Callable[[], Mutant]] = []

    def visit(place: tuple[tuple[str, int | None], ...], node: ast.AST) -> None:
        if isinstance(node, SKIPPED):
            return
        for change, function in changes_of(node):
            found.append(lambda change=change, function=function: mutate(path, text, place, change, function))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "slice"):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.AST):
                    visit((*place, (name, index)), child)

    for index, statement in enumerate(ast.parse(text).body):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            visit((("body", index),), statement)
    return found


def mutate(path: Path, text: str, place: tuple, change: str, function: Callable[[ast.AST], ast.AST]) -> Mutant:
    tree: ast.AST = ast.parse(text)
    parent, node = tree, tree
    for name, index in place:
        parent, node = node, getattr(node, name) if index is None else getattr(node, name)[index]
    line, before = node.lineno, ast.unparse(node)  # type: ignore[attr-defined]
    after = ast.copy_location(function(copy.deepcopy(node)), node)
    name, index = place[-1]
    if index is None:
        setattr(parent, name, after)
    else:
        getattr(parent, name)[index] = after
    short = " ".join(before.split("\n", 1)[0].split())[:60]
    return Mutant(path, line, f"{change}: {short}", ast.unparse(ast.fix_missing_locations(tree)) + "\n")


def function_of(path: Path, line: int) -> int:
    """The first line of the innermost function around a line, as its code object has it; 0 outside of functions."""
    found = [
        min([node.lineno, *(one.lineno for one in node.decorator_list)])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(found, default=0)


class Reach:
    """Which functions of the package each test calls in its own process, and how long it takes."""

    def __init__(self, folder: str) -> None:
        self.package = str(Path(folder) / "regard")
        self.called: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.now: set[tuple[str, int]] = set()

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Before a test, its fixtures included."""
        self.now = self.called.setdefault(item.nodeid, set())
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def trace(self, frame: Any, event: str, argument: object) -> None:
        if frame.f_code.co_filename.startswith(self.package):
            self.now.add((frame.f_code.co_filename[len(self.package) + 1 :], frame.f_code.co_firstlineno))

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        found = {one: [self.seconds.get(one, 0.0), sorted(self.called[one])] for one in self.called}
        Path(self.package).with_name("reach.json").write_text(json.dumps(found))


Reached = dict[str, tuple[float, set[tuple[str, int]]]]


def files_of(place: str) -> list[Path]:
    """The files of one of PLACES, or the file of that name."""
    path = ROOT / "regard" / place if place in PLACES else ROOT / place
    return sorted(path.glob("*.py")) if path.is_dir() else [path]


def reach(place: str, seconds: float) -> Reached:
    """The tests of a place, which must pass without a mutant: their seconds, and the functions that they call."""
    tests = [f"tests/test_{one}.py" for one in PLACES[place].split()]
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        if run(tests, folder, None, seconds, Reach(folder)):
            sys.exit(f"The tests of {place} fail without a mutant:\n{(Path(folder) / 'log').read_text()[-4000:]}")
        found = json.loads((Path(folder) / "reach.json").read_text())
    return {test: (taken, {(file, line) for file, line in calls}) for test, (taken, calls) in found.items()}


def tests_of(mutant: Mutant, reached: Reached, most: float) -> list[str]:
    """The tests that call the function of the mutant (or any of its file), the quick ones first, for `most` seconds."""
    file, function = str(mutant.path.relative_to(ROOT / "regard")), function_of(mutant.path, mutant.line)
    taken = {
        test: seconds
        for test, (seconds, calls) in reached.items()
        if ((file, function) in calls if function else any(one == file for one, _ in calls))
    }
    chosen = sorted(taken, key=taken.__getitem__)
    return [
        test for test, total in zip(chosen, accumulate(map(taken.__getitem__, chosen)), strict=True) if total < most
    ]


def run(tests: list[str], folder: str, mutant: Mutant | None, seconds: float, *plugins: object) -> int:
    """The exit status of the tests with a copy of the package in `folder` that has the mutant."""
    # Copies keep the times of the files, so that their compiled forms serve.
    shutil.copytree(ROOT / "regard", Path(folder) / "regard", copy_function=shutil.copy2)
    (Path(folder) / "models").symlink_to(ROOT / "models")
    if mutant is not None:
        changed = Path(folder) / mutant.path.relative_to(ROOT)
        changed.unlink()
        changed.write_text(mutant.source, encoding="utf-8")
    child = os.fork()
    if not child:
        os._exit(run_tests(tests, folder, plugins))
    return wait_for(child, seconds)


def run_tests(tests: list[str], folder: str, plugins: tuple[object, ...]) -> int:
    """In the child: the exit status of pytest with the package of `folder`."""
    os.setsid()  # first: the time limit kills its whole group
    import pytest

    with open(Path(folder) / "log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.path.insert(0, folder)
    os.environ |= {"PYTHONPATH": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode, tempfile.tempdir = True, None
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not browser"]
    return int(pytest.main([*options, *tests], plugins=plugins))


def wait_for(child: int, seconds: float) -> int:
    """The exit status of a child; its whole group is killed at the time limit."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", default=list(PLACES), help=f"any of {', '.join(PLACES)}, or files of them")
    parser.add_argument("--count", type=int, default=100, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="time limit of one mutant")
    parser.add_argument("--most", type=float, default=60, help="seconds of tests for one mutant, the quick ones first")
    given = parser.parse_args()
    os.nice(10)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    import hypothesis  # noqa: F401  imported once, before the forks
    import numpy  # noqa: F401
    import torch  # noqa: F401

    files = [file for one in given.places for file in files_of(one)]
    place_of = {file: place for place in PLACES for file in files_of(place)}
    every = [make for file in sorted(files) for make in mutants_of(file)]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"{len(drawn)} of {len(every)} mutants in {len(files)} files", flush=True)
    reached: dict[str, Reached] = {}
    counts = Counter[str]()
    for number, make in enumerate(drawn, 1):
        mutant = make()
        place = place_of[mutant.path]
        if place not in reached:
            reached[place] = reach(place, 20 * given.seconds)
        tests = tests_of(mutant, reached[place], given.most)
        began, said = time.monotonic(), "UNREACHED"
        if tests:
            with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
                said = "killed" if run(tests, folder, mutant, given.seconds) else "SURVIVED"
        counts[said] += 1
        where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
        print(f"{number:4} {said:9} {time.monotonic() - began:5.0f} s  {where}  {mutant.change}", flush=True)
    print(", ".join(f"{count} {said}" for said, count in counts.items()), flush=True)


if __name__ == "__main__":
    main()
