"""Sentences cannot script: hostile text through every field, into the page and everything that it exports."""

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from browser_parts import opened, until
from serve_parts import Server, shared

RUN = "globalThis.pwned=(globalThis.pwned||0)+1"
SCRIPTS = [
    "<script>RUN</script>", "</script><script>RUN</script>", "<img src=x onerror=RUN>", "<svg onload=RUN>",
    "<svg><script>RUN</script></svg>", "<iframe srcdoc='<script>parent.RUN</script>'>", "<body onload=RUN>",
    "<!--</script><script>RUN</script>-->", "<!--", "-->", "]]>", "</style><script>RUN</script>", "</title>",
    "<details open ontoggle=RUN>", "<math><mtext><script>RUN</script>", "<a href='javascript:RUN'>x</a>",
    "<input autofocus onfocus=RUN>", "<style>@import'//evil.example'</style>", "<link rel=icon href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>", "<base href=//evil.example>", "<template><script>RUN",
    "javascript:RUN", "data:text/html,<script>RUN</script>", "&lt;script&gt;RUN&lt;/script&gt;", "&#60;script&#62;",
    '" onmouseover="RUN', "' onmouseover='RUN", '" autofocus onfocus=RUN x="', "`${RUN}`", "${RUN}", "{{RUN}}",
    "\\u003cscript\\u003eRUN", "</textarea><script>RUN</script>", "</bdi></button><script>RUN</script>",
    "url(javascript:RUN)",
]  # fmt: skip
SIGNS = [
    "\x00", "\x01\x02\x1f", "\x7f", "\x85", "\u2028", "\u2029", "\u202e evil", "\u2066\u2067\u2068", "\u200f", "\ufeff",
    "\u00ad", "\ud800", "\udfff", "\ud83d", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e" + "\u0301" * 50, "\uffff",
    "\ufffe", "\ufdfd" * 5, "\U0010ffff", "\u0627\u0644\u0633\u0644\u0627\u0645", "\u4f60\u597d", "a" * 2000, "\t",
    "\x0b\x0c", "\u3000", "=1+1", "@x", "-1", "+cmd",
]  # fmt: skip


def payloads() -> list[str]:
    """500 hostile texts: each trick as it is, and mixtures of two of them."""
    plain = [*(script.replace("RUN", RUN) for script in SCRIPTS), *SIGNS]
    draw = random.Random(7)
    pairs = draw.sample(list(itertools.product(plain, plain)), 500 - len(plain))
    return [*plain, *(first + second for first, second in pairs)]


ALL = payloads()


@pytest.fixture(scope="module")
def server() -> Server:
    return shared()


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])  # each trick, and mixtures
def test_hostile_texts_through_every_field(server: Server, count: int) -> None:
    assert len(ALL) == 500
    for number, text in enumerate(ALL[:count]):
        fields = [
            ("/translate", {"q": text, "source": "en", "target": "de", "format": "html" if number % 2 else "text"}),
            ("/translate", {"q": "ba", "source": text, "target": text, "format": text, "model": text}),
            ("/v2/translate", {"text": [text], "target_lang": "DE", "source_lang": text if number % 3 else ""}),
            ("/api/v1/trace", {"text": f"ba {text}".replace("\n", " "), "target": text}),
            ("/api/v1/what-if", {"text": "ba", "prefix": [text], "changes": [{"kind": text}]}),
        ]
        path, body = fields[number % len(fields)]
        response = server.client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
        assert response.status_code in (200, 400, 404, 422), (path, text)
        assert response.headers["content-type"] == "application/json"
        response.content.decode("utf-8")
        response.json()


SHOW = (Path(__file__).parent / "hostile.js").read_text("utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("count", [70, pytest.param(500, marks=pytest.mark.slow)])  # each trick; with all mixtures
def test_hostile_sentences_in_every_view_and_export(server: Server, chromium: Any, tmp_path: Path, count: int) -> None:
    texts = json.dumps(ALL[:count])
    with opened(chromium, server.address) as page:
        page.locator(".translation .word").first.wait_for()
        # A lone surrogate cannot leave Python; the page meets it as JSON that holds an escape.
        files = page.evaluate(f"(texts) => {{ {SHOW}; return show(JSON.parse(texts)); }}", texts)
    assert len(files) == math.ceil(count / 50)
    with opened(chromium, "about:blank", offline=True) as page:
        for number, text in enumerate(files):
            saved = tmp_path / f"{number}.html"
            saved.write_text(text, "utf-8", errors="replace")
            page.goto(saved.as_uri())
            page.locator(".stagegrid").wait_for()
            assert page.evaluate("globalThis.pwned") is None, number
            assert page.evaluate("document.querySelectorAll('script').length") == 2, number  # the data and the views
            assert page.locator(".check.off").count() == 0


@pytest.mark.browser
def test_hostile_text_typed_by_a_user(server: Server, chromium: Any) -> None:
    with opened(chromium, server.address) as page:
        page.locator(".translation .word").first.wait_for()
        shown = "text => document.querySelector('svg.ribbons')?.textContent.includes(text)"
        for number, script in enumerate(SCRIPTS[:6]):
            page.locator("#source").fill(f"Q{number}X " + script.replace("RUN", RUN))
            page.keyboard.press("Control+Enter")
            until(page, shown, f"Q{number}X")
            assert page.evaluate("globalThis.pwned") is None
            assert script[:4] in page.locator("svg.ribbons").text_content()
