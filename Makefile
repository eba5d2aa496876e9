# `make demo` and `make test` set up all they need in .venv and then run; nothing else has to be installed but Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test test-extra lint format clean

demo: $(INSTALLED)
	$(BIN)/longtake demo --out out

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 -m "not extra"

test-extra: $(INSTALLED)
	$(BIN)/python -m pytest -m extra

lint: $(INSTALLED)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED)
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
