# Needs python3 (3.11 or newer), make and a package index.
# Each target installs its requirements into .venv once, in the versions of constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
LAB = -e ./src/taut_lab

# With several threads in each of several test processes, small machines stall.
RUN_TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-fast check format bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.has-demo ## run the demonstration and write an HTML report to demo/
	$(BIN)/taut demo --out demo

test: .venv/.has-test ## run the test suite; ARGS="-k norms" passes options to pytest
	$(RUN_TESTS) $(ARGS)

test-fast: .venv/.has-test ## run the test suite without the tests marked slow
	$(RUN_TESTS) -m "not slow" $(ARGS)

check: .venv/.has-dev ## check format, lint and types, without changes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: .venv/.has-dev ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: .venv/.has-bench ## benchmark the layers against other libraries
	$(BIN)/taut bench layers

docs: .venv/.has-docs ## build the documentation in docs/_build/html
	rm -rf docs/auto_gallery  # so that every example runs again with the current library
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean: ## remove everything that make has created
	rm -rf .venv demo dist docs/_build docs/auto_gallery .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv .venv

# One stamp for each extra of pyproject.toml, renewed when the requirements change. The demo needs
# the library alone; the other targets also install the lab.
.venv/.has-%: pyproject.toml src/taut_lab/pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[$*]' $(LAB)
	@touch $@

.venv/.has-demo: LAB :=
.venv/.has-dev: LAB = -e './src/taut_lab[peers]'

.venv/.has-bench: pyproject.toml src/taut_lab/pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e . -e './src/taut_lab[peers]'
	@touch $@
