# Two commands for a fresh machine with Python and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SIMULATOR := $(VENV)/.simulator
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check slow bench format policy clean

# The simulator alone: no torch, no tools.
$(SIMULATOR): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	touch $(SIMULATOR) $@

demo: $(SIMULATOR)  ## generate a month of jobs, compare policies on it, write demo-report/
	rm -rf demo-report
	$(BIN)/dovetail demo --output demo-report

test: $(STAMP)  ## the tests, in two processes
	$(BIN)/python -m pytest -n 2 --dist loadfile

slow: $(STAMP)  ## the tests that take minutes, and every property with a fresh seed
	$(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile=search

check: $(STAMP)  ## formatter, linter, types, documentation
	$(BIN)/ruff format --check src papers tools tests benchmarks examples
	$(BIN)/ruff check src papers tools tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/docs

format: $(STAMP)
	$(BIN)/ruff format src papers tools tests benchmarks examples
	$(BIN)/ruff check --fix src papers tools tests benchmarks examples

policy: $(STAMP)  ## make policy NAME=srtf: the conformance suite and a small comparison
	$(BIN)/python -m pytest tests/contract -k "$(subst -,_,$(NAME)) or $(NAME)"
	$(BIN)/dovetail demo --days 3 --policies "fifo srtf $(NAME)"

bench: $(STAMP)  ## the measurements of docs/claims/performance.md
	$(BIN)/python -m benchmarks.ladder

clean:
	rm -rf $(VENV) demo-report
