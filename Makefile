# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-all check bench format setup wheels clean

demo: $(READY)
	$(BIN)/tabes demo --out demo

test check test-all: export OMP_NUM_THREADS := 1

test: wheels
	$(BIN)/python -m pytest -n 2

# The tests that need more to be downloaded as well.
test-all: wheels
	$(BIN)/tabes models --fetch antiberty
	$(BIN)/python -m pytest -m "large or not large"

check: wheels
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(READY)

# Trained models of others for tests and docs: downloaded once (78 MB), checked by hash; see docs/models-reactions.md.
wheels: $(READY)
	$(BIN)/tabes models --fetch rxnmapper --fetch rxnfp

# constraints.txt pins torch: a plain torch brings gigabytes of CUDA.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv demo build dist
