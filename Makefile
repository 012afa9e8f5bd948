# Each target builds .venv when it is missing. PYTHON may name another Python 3.11.
PYTHON ?= python3.11
BIN := .venv/bin
RECIPE ?= deployments/recipes/demo.toml

export OMP_WAIT_POLICY ?= PASSIVE
export DO_NOT_TRACK ?= 1
export PREFECT_SERVER_ANALYTICS_ENABLED ?= false
export HF_HUB_DISABLE_TELEMETRY ?= 1
# Each stage is a process of its own: it must find its modules compiled.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-slow test-parallel test-orchestration bench chaos lint ui ui-stop doctor clean

demo: .venv/ready  ## the whole chain on this installation's own documentation, in minutes
	$(BIN)/python -m flows.pipeline $(RECIPE) $(ARGS)

test: .venv/ready  ## all tests that are fast, three files at a time: many of them wait for processes
	$(PYTEST) tests -m "not slow" $(ARGS)

test-slow: .venv/ready  ## the others: kills, hangs and layouts of processes at length
	$(PYTEST) $$(grep -rl --include="test_*.py" "^@pytest.mark.slow" tests) -m slow $(ARGS)

test-parallel: .venv/ready  ## every layout of a training against one process
	$(BIN)/python -m tests.stages.pretrain.parallel.equality $(ARGS)

bench: bench-chain

bench-%: .venv/ready  ## measure; the last line is one JSON object
	$(BIN)/python -m tests.benchmarks.$(subst -,_,$*) $(ARGS)

chaos: .venv/ready  ## some 200 faults in trainings on two processes; resumes where it was stopped
	$(BIN)/python -m tests.chaos $(ARGS)

chaos-chain: .venv/ready  ## kill the whole chain at 20 random moments, on one process and on two
	$(BIN)/python -m tests.chaos.chain $(ARGS)

ui: .venv/ready  ## the desk: server with UI, worker, deployments; what runs already goes on
	$(BIN)/python -m flows.desk up $(ARGS)

ui-stop: .venv/ready  ## stop the desk; its runs continue with the next `make ui`
	$(BIN)/python -m flows.desk down

doctor: .venv/ready  ## what the desk misses, and what to do about it
	$(BIN)/python -m flows.desk doctor $(ARGS)

test-orchestration: .venv/ready  ## a real desk: kills, triggers, schedules, and its UI in a browser
	$(BIN)/python -m tests.orchestration $(ARGS)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pip that comes with Python 3.11 needs minutes to choose among the files of the packages that are named. Compiling
# all modules of all packages takes longer than installing them; a first import compiles those that are used. What an
# interrupted set-up left is removed: pip takes a package that is half there for installed. The kernels are compiled by
# a small run through the stages that use them, beside the first import of what is slow to import.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
FIRST_IMPORT := import datasets, flows.pipeline, lm_eval.evaluator, matplotlib.figure, prefect.server.api.server, \
	torch._dynamo, transformers.models.auto.modeling_auto, transformers.models.llama.modeling_llama

.venv/ready: pyproject.toml constraints.txt
	test -e $@ || rm -rf .venv
	rm -f $@
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade pip
	$(INSTALL) torch
	$(INSTALL) --editable '.[dev]'
	root=$$(mktemp -d) && trap 'rm -rf '$$root EXIT; \
		$(BIN)/python -c '$(FIRST_IMPORT)' & import=$$!; \
		$(BIN)/python -m stages.pretokenize deployments/recipes/tiny.toml --upstream --root $$root >$$root/output 2>&1 \
		|| { cat $$root/output; exit 1; }; \
		wait $$import
	touch $@

clean:  ## remove what was built here; artifacts and runs stay
	rm -rf .venv .bench data/__pycache__  # the last holds compiled kernels, of each state of their sources
