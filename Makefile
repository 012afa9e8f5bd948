# Each target builds .venv when it is missing. PYTHON may name another Python 3.11.
PYTHON ?= python3.11
BIN := .venv/bin
RECIPE ?= deployments/recipes/demo.toml

export OMP_WAIT_POLICY ?= PASSIVE
export DO_NOT_TRACK ?= 1
export PREFECT_SERVER_ANALYTICS_ENABLED ?= false
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: demo test bench lint ui clean

demo: .venv/ready  ## the whole chain on this installation's own documentation, in minutes
	$(BIN)/python -m flows.pipeline $(RECIPE) $(ARGS)

test: .venv/ready  ## all tests that are fast, two files at a time
	$(BIN)/python -m pytest tests --numprocesses 2 --dist loadfile $(ARGS)

bench: bench-chain

bench-%: .venv/ready  ## measure; the last line is one JSON object
	$(BIN)/python -m tests.benchmarks.$(subst -,_,$*) $(ARGS)

chaos-chain: .venv/ready  ## kill the whole chain at 20 random moments, on one process and on two
	$(BIN)/python -m tests.chaos.chain $(ARGS)

ui: .venv/ready  ## the Prefect server with its UI, on loopback
	$(BIN)/prefect server start --host 127.0.0.1

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:  ## remove what was built here; artifacts and runs stay
	rm -rf .venv .bench
