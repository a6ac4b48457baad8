# `make check` is what CI runs; each check has its fixer in `make fix`. Set-up: hack/check.
BIN ?= .venv/bin
WORKERS ?= 2
E2E_WORKERS ?= 4

.PHONY: check fix format lint types imports test e2e bench

check: format lint types imports test

format:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

test:
	$(BIN)/pytest -n $(WORKERS)

# Its processes mostly wait: more of them than there are cores. One case at a time to whoever is free.
e2e:
	$(BIN)/pytest -n $(E2E_WORKERS) --maxschedchunk 1 e2e

fix:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:
	$(BIN)/python -m benchmarks.simulate
