# Each target makes its own virtual environment first, so that each works as the first command on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TASK ?= translate

.PHONY: demo test quick check format clean help

help:
	@echo "make demo    train a translator in about a minute and see what it looks at"
	@echo "make test    all tests"
	@echo "make check   format, lint, types, floors, tests: what CI expects"
	@echo "make quick   the tests without the slow ones"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/regard demo --task $(TASK)

test: $(STAMP)
	$(BIN)/python -m pytest

quick: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache demo
