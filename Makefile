# `make check` is what CI runs; each check has its fixer in `make fix`. Set-up: hack/check.
BIN ?= .venv/bin
WORKERS ?= 2
E2E_WORKERS ?= 4

.PHONY: check check-full fix format lint types imports test test-full e2e e2e-full bench audit

check: format lint types imports test e2e

# The long matrices, too: every fault, a crash at every step, more of what is drawn at random.
check-full: format lint types imports test-full e2e-full

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

test-full:
	PROPERTY_TIMES=10 $(BIN)/pytest -n $(WORKERS)

# Its processes mostly wait: more of them than there are cores. One case at a time to whoever is free.
e2e:
	$(BIN)/pytest -n $(E2E_WORKERS) --maxschedchunk 1 e2e

e2e-full:
	$(BIN)/pytest -n $(E2E_WORKERS) --maxschedchunk 1 --full e2e

fix:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:
	$(BIN)/python -m benchmarks.simulate

# Not in `check`: it needs pypi.org itself (docs/security.md).
audit:
	hack/audit
