# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test check bench format setup clean

demo: $(READY)
	$(BIN)/tabes demo --out demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(READY)

# constraints.txt pins torch: a plain torch brings gigabytes of CUDA.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv demo build dist
