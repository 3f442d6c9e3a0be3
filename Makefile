# Everything lives in .venv in this checkout. `make` lists what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
AUDIT := .venv-audit
# One more than processors: many tests wait for processes.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
# yes: install exactly what requirements.lock names, each file checked against its hash. Empty
# (`make setup LOCKED=`): the versions of constraints.txt, for a platform that the lock lacks.
LOCKED ?= yes
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Tests start hundreds of processes of Rota. Without its bytecode each would compile what it imports,
# and each worker of pytest every test file.
unexport PYTHONDONTWRITEBYTECODE
# What needs no server, no browser and no process of its own: most of the rules, in a minute.
QUICK := tests/core tests/store tests/engine tests/docs $(wildcard tests/test_*.py)

.DEFAULT_GOAL := help
.PHONY: help setup up test check format fuzz bench docs site pictures audit clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv with everything the project needs

$(STAMP): pyproject.toml constraints.txt requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(LOCKED),)
	@echo "installing the versions of constraints.txt into $(VENV), without hashes ..."
	@$(PIP) install --constraint constraints.txt --upgrade pip
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
else
	@$(BIN)/python scripts/lock.py --check
	@echo "installing what requirements.lock names into $(VENV) ..."
	@$(PIP) install --require-hashes --no-deps --only-binary :all: --requirement requirements.lock || \
		{ echo "A file that does not match its hash was changed: do not install it. Only where the lock has"; \
		  echo "no files for this platform or Python (CONTRIBUTING.md names them): make setup LOCKED="; exit 1; }
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(PIP) check
endif
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
	@$(BIN)/python scripts/typescript.py --check
	@$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow' -q -p no:schemathesis $(QUICK)

format: setup ## put the code into shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: setup ## write the generated pages of docs/reference, and the types of the TypeScript client
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/typescript.py

site: setup ## build the documentation as a site in build/site (SITE=--serve serves it)
	@$(BIN)/python scripts/site.py $(SITE)

pictures: setup ## take pictures of every page of the dashboard, light and dark
	@$(BIN)/python scripts/browser.py
	@$(BIN)/python scripts/pictures.py

# The same input again: SEED=…, as it was printed. More flags: FUZZ="--only http --seconds 300".
fuzz: setup ## throw half-valid input at a coordinator for a minute on each transport
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(FUZZ)

bench: setup ## measure this machine, and peers beside it, in one table
	@$(BIN)/python -m benchmarks $(BENCH)

# Needs a vulnerability service on the network. It has an environment of its own, so that what it
# brings is no part of what it looks at.
audit: ## look for known vulnerabilities in what requirements.lock names
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && \
		$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; } || \
		{ rm -rf $(AUDIT); echo "audit: pip-audit could not be installed; nothing was audited"; exit 2; }
	@$(AUDIT)/bin/pip-audit --strict --require-hashes --disable-pip --requirement requirements.lock || \
		{ echo "audit: vulnerabilities stand above; if none do, the service was not reached and nothing was audited"; exit 1; }

clean: ## remove what the commands above have made
	rm -rf $(VENV) $(AUDIT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf clients/typescript/node_modules clients/typescript/build clients/typescript/dist
