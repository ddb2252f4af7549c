# Two commands for newcomers: `make demo` and `make test`. Everything they need goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := runs/minilm_ru3
# It upgrades itself first: the pip of Python 3.11 takes twice as long to choose what to install.
PIP = $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# pip would compile in one process, and much that nobody imports here. Python compiles what is left.
COMPILE = $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|testing|models|pip)/' $(VENV)/lib xcompress || true
# A test that crashes ends the run: with a new process in place of the lost one, pytest-xdist may wait forever at the end.
XDIST = --numprocesses auto --dist loadfile --max-worker-restart 0
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(XDIST)

# onnxruntime would report to Microsoft where a test or a benchmark imports it before xcompress
export ORT_DISABLE_TELEMETRY = 1
# where it is set, each process of the tests compiles the tests, and what COMPILE left out, once more
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-quick lint readme fuzz test-next clients clean

demo: $(VENV)/demo.installed  ## distil, export and measure the demo student; a second call reuses what is finished
	$(BIN)/python benchmarks/demo.py

test: $(VENV)/test.installed lint  ## style, types, layers and tests, in as many processes as there are cores
	$(PYTEST) -m 'not exhaustive'

test-all: $(VENV)/test.installed lint  ## those marked exhaustive as well: before a release
	$(PYTEST)

test-quick: $(VENV)/test.installed  ## the tests without those marked exhaustive, slow, browser or network
	$(PYTEST) -m 'not exhaustive and not slow and not browser and not network'

lint: $(VENV)/test.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

readme: $(VENV)/demo.installed  ## write the demo's figures into benchmarks/demo.md
	$(BIN)/python benchmarks/readme.py demo $(RUN)

$(VENV)/demo.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable '.[train,export]'
	$(COMPILE)
	touch $@

$(VENV)/test.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable '.[dev]'
	$(COMPILE)
	touch $@ $(VENV)/demo.installed

fuzz: $(VENV)/test.installed  ## random and damaged input with fixed seeds; writes benchmarks/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz

test-next: .venv-next/installed  ## the tests on the newest transformers 5 and sentence-transformers 6, without Optimum
	OMP_NUM_THREADS=1 .venv-next/bin/python -m pytest $(XDIST)

clients: $(VENV)/test.installed .venv-next/installed .venv-intel/installed  ## which client was tested with which version: a table in xcompress/export/README.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/clients.py $(BIN)/python .venv-next/bin/python .venv-intel/bin/python

.venv-next/installed: pyproject.toml
	$(PYTHON) -m venv .venv-next
	.venv-next/bin/python -m pip install --quiet torch==2.13.0 'transformers>=5,<6' 'sentence-transformers>=6' \
	  --editable '.[train,export,bench,test]'
	touch $@

.venv-intel/installed: pyproject.toml
	$(PYTHON) -m venv .venv-intel
	.venv-intel/bin/python -m pip install --quiet torch==2.13.0 optimum-intel \
	  --editable '.[train,export,bench,optimum,openvino,test]'
	touch $@

clean:  ## remove environments and the caches of tools; runs/ and ~/.cache/xcompress stay
	rm -rf .venv .venv-next .venv-intel .mypy_cache .ruff_cache .pytest_cache
