# Each target makes its own virtual environment first, so that each works as the first command on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TASK ?= translate

.PHONY: demo test slow quick check browser format clean help

help:
	@echo "make demo    train a translator in about a minute and see what it looks at"
	@echo "make test    the tests"
	@echo "make slow    the tests that take minutes: long training, load, every fault"
	@echo "make check   format, lint, types, floors, and the tests"
	@echo "make quick   the tests without the slow ones"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/regard demo --task $(TASK)

# Two processes of one thread each: tiny tensors gain nothing from more threads. A file's tests stay together, since they
# share what they trained.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test: $(STAMP) browser
	$(PYTEST) -m "not slow"

slow: $(STAMP) browser
	$(PYTEST) -m slow

quick: $(STAMP)
	$(PYTEST) -m "not slow and not browser"

check: $(STAMP) browser
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -m "not slow"

# The tests of the page drive a real Chromium. It is installed where that is allowed; elsewhere they are skipped, loudly.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq >/dev/null && apt-get install -qq -y chromium >/dev/null; } || \
	echo "NO BROWSER: chromium is not here and could not be installed; the tests of the page will be skipped." >&2

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache demo
