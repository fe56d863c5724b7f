# Everything here starts from python3 (3.11 or newer), make and a package index.
# What a target needs is installed into .venv, once, with the versions of constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

# Two threads for every one of several test processes stall small machines.
RUN_TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check format bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.has-demo ## see what taut does: writes a page to demo/
	$(BIN)/taut demo --out demo

test: .venv/.has-test ## run the test suite; ARGS="-k norms" passes options to pytest
	$(RUN_TESTS) $(ARGS)

check: .venv/.has-dev ## check format, lint and types; change nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: .venv/.has-dev ## put the code in its one format, and mend what can be mended safely
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: .venv/.has-bench ## measure the layers against peers on this machine
	$(BIN)/taut bench layers

docs: .venv/.has-docs ## build the documentation: docs/_build/html/index.html
	rm -rf docs/auto_gallery  # the examples run anew: their scripts may be old, and the library new
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean: ## remove what make has made
	rm -rf .venv demo dist docs/_build docs/auto_gallery .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv .venv

# One stamp for each extra of pyproject.toml, renewed when the requirements change.
.venv/.has-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@
