"""The search for slow regular expressions finds those that are slow, of every kind, and no others."""

import random
import re
import shutil

import pytest
from patterns import Use, in_python, script_uses, steep, uses

SLOW = [
    (r"\s+$", "findall"), (r"\s*x", "findall"), (r"(?:a+)+b", "match"), (r"(?:a|a)*b", "fullmatch"),
    (r"\s*(?:>\s?)*\s*\|?\s*-+", "fullmatch"), (r"%[0 ]*\d*[sd]", "match"), (r'"(?:[^"\\]+|\\.)*"', "findall"),
    (r".*?(?:en|fr)-x", "findall"), (r"a.*b|a", "findall"), (rb"[a-z]*[0-9a-f]*x", "fullmatch"),
    (r"<[^>]*?\sid=", "findall"), (r"^ +| +$", "findall"),
]  # fmt: skip
QUICK = [
    (r"\s+", "findall"), (r"(?<!\s)\s++$", "findall"), (r"(?:a++)++b", "match"), (r"\w{1,9}-\w{1,9}", "findall"),
    (r'"(?:[^"\\]|\\.)*"', "match"), (r"[^\n]*\n|[^\n]+", "findall"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "how"), SLOW)
def test_a_slow_pattern_is_found(pattern: str | bytes, how: str):
    assert steep(Use("", re.compile(pattern), how), random.Random(1))


@pytest.mark.parametrize(("pattern", "how"), QUICK)
def test_a_pattern_in_linear_time_passes(pattern: str, how: str):
    assert not steep(Use("", re.compile(pattern), how), random.Random(1))


def test_patterns_of_the_package_are_found_wherever_they_are_written():
    found = {(use.place.partition(":")[0], use.pattern.pattern, use.how) for use in uses()}
    assert {
        ("regard.files.po", r"[^\n]*\n|[^\n]+", "findall"),
        ("regard.api.terms", r"\w+|[^\w\s]", "findall"),
    } <= found
    assert ("regard.files.html", "</word", "findall") in found, "an f-string, with a word for what is not known"
    assert ("regard.files.po", r"nplurals\s*=\s*\d", "match") in found
    assert any(name == "regard.files.segment" and "www" in pattern for name, pattern, _ in found), "made of parts"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_patterns_of_the_page_are_found():
    found = {use.place for use in script_uses()}
    assert "serve/page/api.js /^data: /" in found
    assert any(place.startswith("serve/site /") and "[sS][tT]" not in place and "www" not in place for place in found)
    assert len(found) > 40


def test_a_pattern_of_javascript_is_read_by_python():
    assert in_python(r"(?<![\p{Nd}:])\p{L}+[^\p{N}_\P{L}]", "gu").pattern == "(?<![0-9:])[a-zé]+[^0-9_#]"
    assert in_python("A", "gi").findall("aA") == ["a", "A"]
