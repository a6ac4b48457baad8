# `make check` is what CI runs; each check has its fixer in `make fix`. Set-up: hack/check.
BIN ?= .venv/bin
WORKERS ?= 2

.PHONY: check fix format lint types imports test bench

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

fix:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:
	$(BIN)/python -m benchmarks.simulate
