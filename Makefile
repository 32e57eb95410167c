# Each target creates the virtual environment first, so that it works as the first command on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TASK ?= translate
LECTURES := $(patsubst course/%.py,build/course/%.json,$(wildcard course/[0-9]_*.py))

.PHONY: demo course notebooks docs site gallery results package lint test published kernels slow attack quick check browser format clean help

help:
	@echo "make demo    train a translator in about a minute and show its attention"
	@echo "make course  run the five lectures in course/ and write build/course/*.html: pages and slides"
	@echo "make notebooks  write the lectures and the assignment as course/notebooks/*.ipynb"
	@echo "make docs    build the documentation as a site in build/docs; runs the lectures that have changed since their last run"
	@echo "make site    docs, course and the page without a server in one folder, build/site, for any web host; needs npm"
	@echo "make gallery draw the pictures of docs/gallery.md again"
	@echo "make results TABLE=NAME repeat a table of docs/results, from data to numbers; without a name, list them"
	@echo "make package build the sdist and the wheel in dist/, and check them"
	@echo "make lint    format, lint, types and import layers"
	@echo "make test    every test except the slow ones and those of make published"
	@echo "make published  the wheel, other packages, the demo, commands in unsafe folders, the site of the docs, the lectures"
	@echo "make kernels the tests of the Triton kernels by its interpreter, without a GPU; installs Triton (a wheel of 263 MB on aarch64)"
	@echo "make check   lint, test and published, as CI does"
	@echo "make slow    the tests that take minutes: long training, load, every fault"
	@echo "make attack  every promise of docs/reliability.md, tried TIMES as often as in its table (default 1)"
	@echo "make quick   the tests without the slow ones and the browser"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/regard demo --task $(TASK)

course: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python course/render.py build/course course/[0-9]_*.py

notebooks: $(STAMP)
	$(BIN)/python course/notebooks.py

build/course/%.json: course/%.py course/render.py | $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python course/render.py build/course $<
build/course/4_transformer.json: models/en-fr-transformer/manifest.json  # which it translates with

docs: $(STAMP) $(LECTURES)
	rm -rf build/docs build/docs-pages build/live
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs . build/docs -d build/docs-pages
	$(BIN)/python docs/check.py build/docs

# The models run in the visitor's browser; links to the page of `regard serve` become live figures.
RUNS ?= en-fr en-fr/bahdanau en-fr/cho fr-en
RUNTIME := build/runtime/node_modules/onnxruntime-web
site: $(STAMP) $(LECTURES)
	rm -rf build/site build/live build/stills build/docs-pages
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix build/runtime onnxruntime-web@1.30.0
	$(BIN)/regard page $(RUNS) --out build/live --runtime $(RUNTIME)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs . build/site -d build/docs-pages
	mv build/live build/site/live
	touch build/site/.nojekyll
	$(BIN)/python docs/check.py build/site

gallery: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/gallery.py

results: $(STAMP)
	$(BIN)/python benchmarks/results.py $(TABLE)

package:
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet build twine check-wheel-contents
	rm -rf dist
	build/tools/bin/python -m build --outdir dist .
	build/tools/bin/twine check --strict dist/*
	build/tools/bin/check-wheel-contents dist/*.whl

# Processes of one thread each, since tiny tensors gain nothing from more threads; six for two cores, since they often wait
# for a browser, a server, a signal or what another one prepares: four kept two cores busy for 70 % of the time. A process
# that has nothing left to do takes half of what another has.
# Many tests start commands, which would compile the package again if bytecode were not kept.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 6 --dist worksteal --durations 25

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) browser
	$(PYTEST) -m "not slow and not published"

PUBLISHED := package docs course examples cli_start safe_path
published: $(STAMP) browser
	$(PYTEST) --numprocesses 3 -m "published and not slow" $(addprefix tests/test_,$(addsuffix .py,$(PUBLISHED)))

# Not part of `make test`: the wheel of Triton is large. Where torch has CUDA, Triton came with it.
kernels: $(STAMP)
	@$(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/python -m pip install --quiet --no-deps triton==3.9.0
	TRITON_INTERPRET=1 $(PYTEST) tests/test_kernels_triton.py

slow: $(STAMP) browser
	$(PYTEST) -m slow

TIMES ?= 1
attack: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/attack --times $(TIMES)

quick: $(STAMP)
	$(PYTEST) -m "not slow and not published and not browser"

check: lint test published

# The tests of the page drive a real Chromium: the headless shell, which has no window and takes a quarter less CPU time,
# or else the whole browser. It is installed where possible; elsewhere they are skipped with a warning.
browser:
	@command -v chromium-headless-shell >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && apt-get install -qq -y chromium-headless-shell; } >/dev/null 2>&1 || \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && apt-get update -qq && \
	  { apt-get install -qq -y chromium-headless-shell || apt-get install -qq -y chromium; }; } >/dev/null 2>&1 || \
	echo "NO BROWSER: chromium is missing and could not be installed; the tests of the page will be skipped." >&2

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache demo
