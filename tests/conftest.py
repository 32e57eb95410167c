"""Tests look for wrong answers, not for slow machines: no example has a deadline, and no file waits for the disk."""

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import unsynced  # noqa: F401
from browser_parts import browser
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
gc.disable()  # until all tests are collected: imports make next to no garbage


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Processes of pytest-xdist share one server of commands, which takes seconds to import what commands import."""
    from commands import forkserver_for_others

    node.workerinput["forkserver"] = forkserver_for_others()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        from commands import join_forkserver

        join_forkserver(*config.workerinput["forkserver"])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of several processes each imports other files first, so that from cold one and not all of them compile a file."""
    here, given = Path(__file__).parent, getattr(session.config, "workerinput", None)
    if given and [Path(one).resolve() for one in session.config.args] == [here]:
        files = sorted(here.glob("test_*.py"))
        first = len(files) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
        for path in files[first:] + files[:first]:
            with suppress(Exception, pytest.skip.Exception):  # pytest finds it again and reports it
                import_module(path.stem)


# Files with a test that takes long or waits long, by itself or for what it prepares.
LONG = (
    "test_site.py",
    "test_cli_use.py",
    "test_safe_path.py",
    "test_serve_clients.py",
    "test_docs.py",
    "test_look_laws.py",
)

# Files that import transformers, which takes as long as ten tests: one or two processes run all of them.
HUGGING_FACE = (
    "test_examples.py",
    "test_export_huggingface.py",
    "test_import_hub.py",
    "test_import_huggingface.py",
    "test_import_marian.py",
    "test_look_foreign.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each process begins with a long file. Files that share a server or a library come next: idle processes take over
    the ends."""
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    rest = sorted(
        (one for one in items if one.path.name not in LONG),
        key=lambda one: ("test_serve" not in one.path.name, one.path.name not in HUGGING_FACE),
    )
    size, ordered = len(items) // count, []
    for number in range(count):  # pytest-xdist deals out as many equal parts
        ordered += [item for name in LONG[number::count] for item in items if item.path.name == name]
        taken = size * (number + 1) - len(ordered)
        ordered, rest = ordered + rest[:taken], rest[taken:]
    items[:] = ordered + rest


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not look at it again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running Chromium, one for each file: while Playwright runs, no other test can use asyncio."""
    with browser() as running:
        yield running


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The warnings that a test logs. pytest's plugin for it, which is off, asks every logger of torch at every test."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    yield said
    logging.getLogger().removeHandler(handler)


@pytest.fixture(autouse=True)
def library_products():
    """torch stops using oneDNN in a process after a bfloat16 product that the CPU lacks; other tests compare bits."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].backends.mkldnn.enabled = True
