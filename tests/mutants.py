"""Which mistakes would the tests not notice? Small changes to the source, one at a time; those that survive are listed.

    python tests/mutants.py training models --count 100 --seed 1
    python tests/mutants.py regard/training/objectives.py --count 20

A mutant is one changed operator, constant or condition, a removed call, a dropped keyword or two swapped arguments. It
lives in a copy of the package that comes first on the import path, also of processes that tests start. The tests of
its room run until one fails, in a fork of one process that has imported torch. It is killed by a failure, an error or
the time limit; first the tests must pass without any mutant.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# The tests of a room, the quick ones first.
ROOMS = {
    "training": "train_laws train_papers timed cross_entropy train_numbers guided packing captioning streams "
    "train_documents",
    "models": "train_laws models_papers captioner lstmn document language",
    "decode": "decode_search decode_degenerate decode_sampling decode_ensemble decode_coverage decode_terms",
    "files": "formats passages sentences",
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


def tests_of(path: Path) -> list[Path]:
    """The tests of the file's room; those that import the file come first."""
    room, name = path.relative_to(ROOT / "regard").parts[0], path.stem
    files = [ROOT / "tests" / f"test_{one}.py" for one in ROOMS[room].split()]
    return sorted((one for one in files if one.exists()), key=lambda one: f"{room}.{name}" not in one.read_text())


def survives(tests: list[Path], mutant: Mutant | None, seconds: float) -> bool:
    """Whether the tests pass beside a copy of the package with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        # Copies keep the times of the files, so that their compiled forms serve.
        shutil.copytree(ROOT / "regard", Path(folder) / "regard", copy_function=shutil.copy2)
        if mutant is not None:
            changed = Path(folder) / mutant.path.relative_to(ROOT)
            changed.unlink()
            changed.write_text(mutant.source, encoding="utf-8")
        child = os.fork()
        if not child:
            os._exit(run_tests(tests, folder))
        return wait_for(child, seconds) == 0


def run_tests(tests: list[Path], folder: str) -> int:
    """In the child: the exit status of pytest with the package of `folder`."""
    import pytest

    os.setsid()
    with open(Path(folder) / "log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.path.insert(0, folder)
    os.environ |= {"PYTHONPATH": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode, tempfile.tempdir = True, None
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu", *map(str, tests)]))


def wait_for(child: int, seconds: float) -> int:
    """The exit status of a child; its whole group is killed at the time limit."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", default=list(ROOMS), help=f"rooms ({', '.join(ROOMS)}) or files of them")
    parser.add_argument("--count", type=int, default=100, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600, help="time limit of one mutant")
    given = parser.parse_args()
    os.nice(10)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    import hypothesis  # noqa: F401  imported once, before the forks
    import numpy  # noqa: F401
    import torch  # noqa: F401

    files = [
        file for one in given.places for file in (ROOT.glob(f"regard/{one}/*.py") if one in ROOMS else [ROOT / one])
    ]
    every = [make for file in sorted(files) for make in mutants_of(file)]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"{len(drawn)} of {len(every)} mutants in {len(files)} files", flush=True)
    sound: dict[tuple[Path, ...], bool] = {}
    survivors = 0
    for number, make in enumerate(drawn, 1):
        mutant = make()
        tests = tests_of(mutant.path)
        key = tuple(sorted(tests))
        if key not in sound:
            sound[key] = survives(tests, None, 10 * given.seconds)
        if not sound[key]:
            sys.exit(f"The tests fail without a mutant: {' '.join(one.name for one in tests)}")
        began = time.monotonic()
        alive = survives(tests, mutant, given.seconds)
        survivors += alive
        said = "SURVIVED" if alive else "killed  "
        where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
        print(f"{number:4} {said} {time.monotonic() - began:5.0f} s  {where}  {mutant.change}", flush=True)
    print(f"{survivors} of {len(drawn)} survived", flush=True)


if __name__ == "__main__":
    main()
