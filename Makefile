# Everything lives in .venv in this checkout. `make` lists what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
WORKERS ?= auto
# What needs no server, no browser and no process of its own: most of the rules, in a minute.
QUICK := tests/core tests/store tests/engine tests/docs $(wildcard tests/test_*.py)

.DEFAULT_GOAL := help
.PHONY: help setup up test check format bench docs pictures clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv with everything the project needs

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what pyproject.toml names into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

up: setup ## start a coordinator on SQLite with a small shop on it, to look at
	@$(BIN)/python scripts/up.py

test: setup ## run every test
	@$(BIN)/python scripts/browser.py
	@$(BIN)/python scripts/postgres.py
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Without the plugin of schemathesis: it takes seconds to load, and none of these tests needs it.
check: setup ## format, lint, types, import contracts, generated pages, fast tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/reference.py --check
	@$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow' -q -p no:schemathesis $(QUICK)

format: setup ## put the code into shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: setup ## write the generated pages of docs/reference anew
	@$(BIN)/python scripts/reference.py

pictures: setup ## take pictures of every page of the dashboard, light and dark
	@$(BIN)/python scripts/browser.py
	@$(BIN)/python scripts/pictures.py

bench: setup ## measure this machine, and peers beside it, in one table
	@$(BIN)/python -m benchmarks $(BENCH)

clean: ## remove what the commands above have made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
