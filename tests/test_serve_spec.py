"""The API against its own description: whatever /spec allows, and much that it does not, never ends in a fault."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st
from serve_parts import Server, one_vector, serving, shared, trained

from regard.serve.access import Access
from regard.serve.app import build
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics

# A description of the API takes a third of a second, which every process would need to collect the tests.
POSTED = (
    "/translate", "/detect", "/suggest", "/translate_file", "/v2/translate", "/v2/glossaries", "/api/v1/trace",
    "/api/v1/beam", "/api/v1/steps", "/api/v1/path", "/api/v1/worth", "/api/v1/alternatives", "/api/v1/what-if",
    "/api/v1/caption",
)  # fmt: skip


def quietly(examples: int) -> hypothesis.settings:
    """So many examples, always the same ones, however slow the machine is."""
    return hypothesis.settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield shared()
    assert "Traceback" not in "".join(shared().log)


@cache
def endpoints() -> dict[str, list[str]]:
    """The paths of the API with their methods, without a service."""
    parts: Any = SimpleNamespace(access=Access(), limits=Limits(), metrics=Metrics())
    paths = build(parts).app.openapi()["paths"]
    return {path: [method.upper() for method in item] for path, item in paths.items()}


def test_the_description_names_every_endpoint_of_the_docs(server: Server) -> None:
    spec = server.client.get("/spec").json()
    assert spec["openapi"].startswith("3.1")
    assert set(spec["paths"]) == set(endpoints())
    assert {path for path, methods in endpoints().items() if "POST" in methods} == set(POSTED)
    table = (Path(__file__).parents[1] / "docs" / "serving.md").read_text("utf-8").partition("## Endpoints")[2]
    table = re.sub(r"ID|NAME", lambda name: f"{{{name[0].lower()}}}", table.partition("### What-ifs")[0])
    documented = set(re.findall(r"`(/[a-z0-9_/{}-]+[a-z}])`", table)) - {"/docs"}
    assert documented == set(endpoints())


@pytest.mark.parametrize("examples", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_what_the_description_allows_gets_an_answer_that_it_describes(server: Server, examples: int) -> None:
    """Schemathesis sends valid and broken requests made from /spec: no 5xx, and every answer fits its schema."""
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_url(f"{server.address}spec")
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.checks.response_schema_conformance,
        schemathesis.checks.content_type_conformance,
    ]
    for result in schema.get_all_operations():
        operation = result.ok()

        @quietly(examples)
        @hypothesis.seed(1)
        @hypothesis.given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE))
        def send(case):  # type: ignore[no-untyped-def]
            case.call_and_validate(checks=checks)

        send()


@pytest.mark.parametrize("run", [trained, one_vector])
def test_the_examples_are_accepted(run: Callable[[], Path], tmp_path: Path) -> None:
    """/docs shows them as commands."""
    with serving(run(), suggestions=tmp_path / "suggestions") as server:
        for path, operations in server.client.get("/spec").json()["paths"].items():
            content = operations.get("post", {}).get("requestBody", {}).get("content", {})
            if "application/json" in content:
                answer = server.post(path, **content["application/json"]["example"])
                transformer = "Only a Transformer has a path"
                assert answer.status_code < 300 or transformer in answer.text, (path, answer.text)


def test_the_description_says_what_a_change_holds(server: Server) -> None:
    schemas = server.client.get("/spec").json()["components"]["schemas"]
    changes = schemas["TraceRequest"]["properties"]["changes"]
    answer = server.post("/api/v1/what-if", text="ba da fo lu", changes=changes["examples"][0])
    assert answer.status_code == 200, answer.text
    listed = [one["kind"] for one in answer.json()["changes"]]
    assert listed == ["mask", "temperature"]
    assert (
        "`set-row` | `t`, `position` or `weights`, `head`"
        in (Path(__file__).parents[1] / "docs" / "serving.md").read_text()
    )
    assert list(schemas["SetRow"]["properties"]) == ["kind", "t", "position", "weights", "head"]


def test_the_description_names_the_ways_to_send_a_token(server: Server) -> None:
    spec = server.client.get("/spec").json()
    assert set(spec["components"]["securitySchemes"]) == {"bearer", "deepl", "api_key"}
    assert spec["paths"]["/translate"]["post"]["security"]


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = ["q", "source", "target", "format", "alternatives", "text", "target_lang", "prefix", "changes", "t", "head",
         "beam", "model", "name", "api_key", "most", "alignment", "kind", "source_lang", "tag_handling"]  # fmt: skip
SENSIBLE = {"q": "ba da", "text": "ba da", "source": "en", "target_lang": "de", "prefix": []}


@cache
def bodies() -> list[str]:
    """Drawn once, the same for every endpoint: to draw them takes longer than to send them."""
    drawn: list[str] = []

    @quietly(25)
    @hypothesis.seed(2)
    @hypothesis.given(st.dictionaries(st.sampled_from(NAMES), anything, max_size=5), st.booleans())
    def draw(fields: dict, sensible: bool) -> None:
        drawn.append(json.dumps({**SENSIBLE, **fields} if sensible else fields))  # lone surrogates and all

    draw()
    assert len(drawn) >= 25
    return drawn


@pytest.mark.parametrize("path", POSTED)
def test_any_json_whatever_is_answered(server: Server, path: str) -> None:
    for body in bodies():
        response = server.client.post(path, content=body, headers={"content-type": "application/json"})
        assert response.status_code < 500, (body, response.text)
        assert "Traceback" not in response.text
        response.content.decode("utf-8")


KINDS = [
    "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "",
    "multipart/form-data", "application/json; charset=utf-16", "multipart/form-data; boundary=",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"]


def test_any_bytes_whatever_are_answered(server: Server) -> None:
    @quietly(80)
    @hypothesis.seed(3)
    @hypothesis.given(
        st.sampled_from(sorted(endpoints())),
        st.sampled_from(METHODS),
        st.sampled_from(KINDS),
        st.binary(max_size=300) | st.just(b"--x\r\nContent-Disposition: form-data\r\n\r\n"),
        st.text(alphabet="abq=&%?;/+[]\x7f~ü0123456789ABCDEF", max_size=40),
    )
    def send(path: str, method: str, kind: str, body: bytes, query: str) -> None:
        address = f"{path}?{quote(query, safe='&=%?;/+[]~')}"
        response = server.client.request(method, address, content=body, headers={"content-type": kind})
        assert response.status_code < 500, (path, method, kind, body, response.text)

    send()
