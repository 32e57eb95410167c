"""X9: every regular expression of the package takes linear time.

The patterns are found in the source, so that new ones are covered, and attacked with texts made from each pattern: what
it repeats, many times, after what stands before it and followed by what does not match. Those of the page's scripts are
read as Python reads them, which goes back as browsers do.
"""

import ast
import builtins
import importlib
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from re import _constants as sre
from re import _parser
from typing import Any, NamedTuple

from promises import check

import regard

PACKAGE = Path(regard.__file__).parent
HOW = {"match": "match", "fullmatch": "fullmatch", "prefixmatch": "match"}  # everything else searches
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
MANY = 100  # a repeat with at least this maximum can grow
SIZES = (12, 18, 27, 60, 250, 1500)  # characters: small ones first, for what grows exponentially
LONGEST = 100_000  # characters; a quadratic pattern is slow long before, and one that fails at once never is
SHARE = 20  # a text is slow at this share of the time of a known quadratic pattern: others have quicker steps
STEEP = 8.0  # times the time for four times the text: 4 if it is linear, 16 if it is quadratic
TEXTS = 60  # of a pattern in one try


class Use(NamedTuple):
    """A pattern, and how it is used: match, fullmatch or findall."""

    place: str
    pattern: re.Pattern[Any]
    how: str


# --- the patterns of the package


@cache
def uses() -> list[Use]:
    """Every use of a regular expression in the package."""
    return [use for path in sorted(PACKAGE.rglob("*.py")) for use in _uses_in(path)]


def _uses_in(path: Path) -> Iterator[Use]:
    text = path.read_text("utf-8")
    if not re.search(r"\bre\.\w", text):
        return
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_re(node.func)]
    if not calls:
        return
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    known = vars(importlib.import_module(name))
    for call in calls:
        place, method = f"{name}:{call.lineno}", call.func.attr  # type: ignore[attr-defined]
        if method not in ("escape", "purge"):
            flags = [one.value for one in call.keywords if one.arg == "flags"]
            flags += [one for one in call.args[1:] if ast.unparse(one).startswith("re.")]
            found = re.compile(_text(call.args[0], known, place), _flags(flags, known))
            for how in _methods(call, parents, tree) if method == "compile" else {HOW.get(method, "findall")}:
                yield Use(place, found, how)


def _is_re(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"


def _text(node: ast.expr, known: dict[str, Any], place: str) -> Any:
    """A pattern as it is when the code runs; what only a function knows stands as a word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, known, place) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        node = node.value
    elif isinstance(node, ast.Name):
        assert node.id in known, f"{place}: write the pattern in the call, so that it is tested"
    unknown = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - known.keys() - vars(builtins).keys()
    try:
        return eval(compile(ast.Expression(node), place, "eval"), known, dict.fromkeys(unknown, "word"))
    except LookupError:
        return "word"


def _flags(nodes: list[ast.expr], known: dict[str, Any]) -> int:
    return sum(int(eval(compile(ast.Expression(node), "flags", "eval"), known)) for node in nodes)


def _methods(call: ast.Call, parents: dict[Any, Any], tree: ast.Module) -> set[str]:
    """The methods by which a compiled pattern is used; all of them if it leaves its module or its name."""
    holder = parents[call]
    if isinstance(holder, ast.Attribute):
        return {HOW.get(holder.attr, "findall")}
    if not (isinstance(holder, ast.Assign) and isinstance(holder.targets[0], ast.Name)):
        return {"fullmatch", "findall"}
    name, found = holder.targets[0].id, set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            used = parents[node]
            if not (isinstance(used, ast.Attribute) and used.attr == "pattern"):
                found |= (
                    {HOW.get(used.attr, "findall")} if isinstance(used, ast.Attribute) else {"fullmatch", "findall"}
                )
    return found or {"fullmatch", "findall"}


# --- the patterns of the page

# Text without patterns (comments, strings), or a pattern: "/" where an expression begins.
_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|(?:[=(,:!&|?;{}\[>~+]|\breturn)\s*/(?![*/])"""
    r"""(?P<pattern>(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/(?P<flags>[a-z]*)""",
    re.S,
)
# What Python's patterns lack, as characters of that kind.
_KINDS = {"L": "a-zé", "Nd": "0-9", "N": "0-9", "M": "\u0301", "Zs": r"\ ", "Uppercase": "A-Z", "Lowercase": "a-z"}
# Every pattern that modules make while they are imported.
_MADE = """
const made = [], Real = RegExp;
const construct = (_, [text, flags]) => (made.push([text, flags ?? ""]), new Real(text, flags));
globalThis.RegExp = new Proxy(Real, { construct });
for (const name of process.argv.slice(2)) await import(name);
console.log(JSON.stringify(made));
"""


@cache
def script_uses() -> list[Use]:
    """Every pattern of the JavaScript modules that is written as one, or made when its module is imported."""
    scripts = sorted(PACKAGE.rglob("*.js"))
    found = [
        (str(path.relative_to(PACKAGE)), match["pattern"], match["flags"])
        for path in scripts
        for match in _LITERAL.finditer(path.read_text("utf-8"))
        if match["pattern"]
    ]
    with tempfile.TemporaryDirectory() as folder:
        from regard.serve.site import constants

        (Path(folder) / "package.json").write_text('{"type": "module"}')
        (Path(folder) / "constants.js").write_text(f"export default {json.dumps(constants())};")
        (Path(folder) / "made.js").write_text(_MADE)
        names = ["./text.js", "./confidence.js"]
        for name in names:
            shutil.copy(PACKAGE / "serve" / "site" / name, folder)
        done = subprocess.run(["node", "made.js", *names], cwd=folder, capture_output=True, text=True, check=True)
    made = [("serve/site", text, flags) for text, flags in json.loads(done.stdout)]
    return [Use(f"{place} /{text}/", in_python(text, flags), "findall") for place, text, flags in found + made]


def in_python(text: str, flags: str) -> re.Pattern[str]:
    """A pattern of JavaScript as one of Python; kinds of characters are some characters of that kind."""
    text = re.sub(r"\\P\{\w+\}", "#", text)
    inside = r"(\[(?:[^\]\\]|\\.)*)\\p\{(\w+)\}"
    while re.search(inside, text):
        text = re.sub(inside, lambda found: found[1] + _KINDS.get(found[2], "#"), text)
    text = re.sub(r"\\p\{(\w+)\}", lambda found: f"[{_KINDS.get(found[1], '#')}]", text)
    text = re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda found: re.escape(chr(int(found[1], 16))), text)
    return re.compile(text, sum(getattr(re, flag.upper()) for flag in flags if flag in "ims"))


# --- texts that a pattern may find hard


class Attack:
    """Texts made from the parse tree of a pattern."""

    def __init__(self, pattern: re.Pattern[Any], draw: Random) -> None:
        self.draw = draw
        self.bytes = isinstance(pattern.pattern, bytes)
        text = pattern.pattern.decode("latin-1") if self.bytes else pattern.pattern
        self.tree = _parser.parse(text, pattern.flags & ~re.UNICODE if self.bytes else pattern.flags)
        self.fold = bool(pattern.flags & re.IGNORECASE)
        singles = list(self._singles(self.tree))
        letters = dict.fromkeys("a0 _-.,:\n\t'\"<>é/x%\0" + "".join(letter for one in singles for letter in _ends(one)))
        if self.bytes:
            letters = {letter: None for letter in letters if ord(letter) < 256}
        # One character of each kind that the pattern tells apart.
        kinds = {tuple(self._holds(one, letter) for one in singles): letter for letter in reversed(letters)}
        self.letters = list(kinds.values())

    def texts(self, most: int) -> Iterator[tuple[str, str, str]]:
        """(before, repeated, after): for each long repeat, what leads to it and what it repeats."""
        after = ["", "\0", "\n", "x", self.draw.choice(self.letters)]
        shapes = [("", letter) for letter in self.letters]
        for before, body in self._repeats(self.tree, []):
            fits = [one for one in self.letters if any(self._holds(part, one) for part in self._singles(body))]
            # A character that the pattern does not begin with: what "^" allows is another matter.
            other = self.draw.choice([one for one in self.letters if one not in fits] or [""])
            pumps = [*fits, *(self._sample(body) for _ in range(4)), "".join(self.draw.choices(fits or ["x"], k=2))]
            shapes += [
                (start, pump)
                for pump in pumps
                if pump
                for start in (self._sample(before), self._sample(before, least=True), other + self._sample(before))
            ]
        each = [(*shape, end) for shape in dict.fromkeys(shapes) for end in after]
        return islice(iter(self.draw.sample(each, len(each))), most)

    def _singles(self, tree: Sequence[Any]) -> Iterator[Any]:
        """The parts of a pattern that match one character."""
        for operator, value in tree:
            if operator in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
                yield operator, value
            for inner in _inside(operator, value):
                yield from self._singles(inner)

    def _repeats(self, tree: Sequence[Any], before: list[Any]) -> Iterator[tuple[list[Any], Sequence[Any]]]:
        """Each long repeat: what comes before it, and what it repeats."""
        for place, (operator, value) in enumerate(tree):
            ahead = [*before, *tree[:place]]
            if operator in REPEATS and value[1] >= MANY:
                yield ahead, value[2]
            for inner in _inside(operator, value):
                yield from self._repeats(inner, ahead)

    def _sample(self, tree: Sequence[Any], least: bool = False) -> str:
        """A text that the tree may match, as short as possible if `least`; conditions on what is around it are
        ignored."""
        text = ""
        for operator, value in tree:
            if operator in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
                fits = [letter for letter in self.letters if self._holds((operator, value), letter)]
                text += chr(value) if operator is sre.LITERAL else self.draw.choice(fits) if fits else ""
            elif operator in REPEATS:
                times = min(value[1], max(value[0], 0 if least else self.draw.randint(0, 2)))
                text += "".join(self._sample(value[2], least) for _ in range(min(times, 20)))
            elif operator is sre.BRANCH:
                text += self._sample(self.draw.choice(value[1]), least)
            elif operator in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
                text += "".join(self._sample(inner, least) for inner in _inside(operator, value))
        return text

    def _holds(self, one: tuple[Any, Any], letter: str) -> bool:
        operator, value = one
        if operator is sre.ANY:
            return letter != "\n"
        if operator is sre.NOT_LITERAL:
            return ord(letter) != value
        if operator is sre.LITERAL:
            return letter == chr(value) or (self.fold and letter.lower() == chr(value).lower())
        negated = value[0][0] is sre.NEGATE
        cases = {letter, letter.lower(), letter.upper()} if self.fold else {letter}
        return negated != any(_within(part, case) for part in value for case in cases if len(case) == 1)


def _inside(operator: Any, value: Any) -> list[Any]:
    """The trees inside a part."""
    if operator in REPEATS:
        return [value[2]]
    if operator is sre.BRANCH:
        return list(value[1])
    if operator is sre.SUBPATTERN:
        return [value[3]]
    if operator is sre.ATOMIC_GROUP:
        return [value]
    return [value[1]] if operator in (sre.ASSERT, sre.ASSERT_NOT) else []


def _ends(one: tuple[Any, Any]) -> Iterator[str]:
    for operator, value in one[1] if one[0] is sre.IN else [one]:
        if operator in (sre.LITERAL, sre.NOT_LITERAL):
            yield chr(value)
        elif operator is sre.RANGE:
            yield chr(value[0])


def _within(part: tuple[Any, Any], letter: str) -> bool:
    operator, value = part
    if operator is sre.LITERAL:
        return ord(letter) == value
    if operator is sre.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    kinds = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
    if operator is sre.CATEGORY:
        name = str(value).removeprefix("CATEGORY_")
        return (re.match(kinds[name.removeprefix("NOT_")], letter) is None) == name.startswith("NOT_")
    return False


# --- how the time grows


def steep(use: Use, draw: Random, texts: int = TEXTS) -> str:
    """A text for which a pattern takes more than linear time, described; "" if none was found."""
    attack = Attack(use.pattern, draw)
    act = getattr(use.pattern, use.how)

    def taken(shape: tuple[str, str, str], size: int, times: int = 1) -> float:
        before, repeated, after = shape
        text = before + repeated * (size // len(repeated) + 1) + after
        given, least = text.encode("latin-1", "replace") if attack.bytes else text, float("inf")
        for _ in range(times):
            began = time.process_time()
            act(given)
            least = min(least, time.process_time() - began)
        return least

    for shape in attack.texts(texts):
        for size in SIZES:
            if taken(shape, size) > _quadratic() / SHARE:  # slow, or the machine paused: measure how it grows
                while (large := taken(shape, size, 3)) < _quadratic() / SHARE and size < LONGEST:
                    size *= 2
                small = taken(shape, size // 4, 3)
                # Other work on the machine may disturb one measurement.
                if all(large > max(_quadratic() / SHARE, STEEP * small) for large in (large, taken(shape, size, 3))):
                    return f"{shape} of {size // 4} and {size} characters took {small:.2g} and {large:.2g} s"
                break
    return ""


@cache
def _quadratic() -> float:
    """The time of this machine for a pattern that is known to be quadratic."""
    known, text = re.compile(r"\s+$"), " " * SIZES[-1] + "x"
    times = []
    for _ in range(5):
        began = time.process_time()
        known.findall(text)
        times.append(time.process_time() - began)
    return min(times)


@check("X9", "every regular expression of the package, attacked with texts made from it, takes linear time", 1, 150)
def expressions(draw: Random, folder: Path) -> None:
    each = uses() + (script_uses() if shutil.which("node") else [])
    found = [f"{use.place} {use.how} {use.pattern.pattern!r}: {why}" for use in each if (why := steep(use, draw))]
    assert not found, "\n".join(found)
