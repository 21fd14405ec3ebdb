# Every target makes .venv first if it is missing or out of date; the second run is quick.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
READY_BENCH := $(VENV)/.ready-bench
READY_EXPERIMENTS := $(VENV)/.ready-experiments
OPENDP := .venv-opendp
READY_OPENDP := $(OPENDP)/.ready
DPMM   := .venv-dpmm
READY_DPMM := $(DPMM)/.ready

.DEFAULT_GOAL := help
.PHONY: help venv demo engines adapters test test-all mutants lint format bench experiments docs lock clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

venv: $(READY)  ## make .venv with everything pinned in requirements.lock

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "consilience needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Run: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	@echo "== setting up $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]'
	@touch $(READY)

$(READY_BENCH): $(READY)
	@echo "== adding the rivals for benchmarks (mbi, jax)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,bench]'
	@touch $(READY_BENCH)

$(READY_EXPERIMENTS): $(READY)
	@echo "== adding what draws the figures and learns from rows (matplotlib, scikit-learn)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,experiments]'
	@touch $(READY_EXPERIMENTS)

demo: $(READY)  ## the main job on generated people
	@$(BIN)/consilience demo

engines: $(READY)  ## add Ibis and Spark, so that make test tries them too (Spark needs Java 17)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,engines]'

$(READY_OPENDP): pyproject.toml requirements.lock
	@echo "== setting up $(OPENDP): OpenDP's mbi extra, whose pins do not go with those of $(VENV)"
	@test -x $(OPENDP)/bin/python || $(PYTHON) -m venv $(OPENDP)
	@$(OPENDP)/bin/python -m pip install --quiet --disable-pip-version-check -e . 'opendp[mbi]==0.16.0' pandas pytest hypothesis
	@touch $(READY_OPENDP)

$(READY_DPMM): pyproject.toml requirements.lock
	@echo "== setting up $(DPMM): dpmm, whose pins (NumPy 1, OpenDP 0.12) are below what ours declare"
	@test -x $(DPMM)/bin/python || $(PYTHON) -m venv $(DPMM)
	@$(DPMM)/bin/python -m pip install --quiet --disable-pip-version-check dpmm==0.1.9 numba threadpoolctl pytest hypothesis
	@$(DPMM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY_DPMM)

adapters: $(READY_BENCH) $(READY_OPENDP) $(READY_DPMM)  ## the adapters under the tools themselves: mbi 2.0, then mbi 1.1 and OpenDP, then dpmm
	@$(BIN)/python -m pytest -q tests/adapters
	@$(OPENDP)/bin/python -m pytest -q tests/adapters
	@$(DPMM)/bin/python -m pytest -q tests/adapters/test_dpmm.py

test: $(READY)  ## the test suite, in a few minutes: all but simulations, audits and other slow tests
	@$(BIN)/python -m pytest -q -m 'not slow'

test-all: $(READY_BENCH)  ## every test, with mbi installed, so that the adapter runs under it
	@$(BIN)/python -m pytest -q

mutants: $(READY)  ## plant faults in the privacy code, one by one: each must be noticed by its test
	@$(BIN)/python tests/mutants/run.py

lint: $(READY)  ## formatting, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: $(READY)  ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY_BENCH)  ## benchmarks beside their rivals, one table
	@$(BIN)/python benchmarks/run.py

experiments: $(READY_EXPERIMENTS)  ## the paper's figures and table: FIGURE=table for one, QUICK=1 for minutes
	@$(BIN)/python experiments/run.py $(if $(FIGURE),--figure $(FIGURE)) $(if $(QUICK),--quick)

docs: $(READY)  ## run what the docs show, then build the site into site/, warnings as errors
	@$(BIN)/python -m pytest -q tests/test_docs.py -m 'not slow'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in site/index.html; it opens from disk, without a network"

lock:  ## write requirements.lock anew from the newest versions
	@rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	@.lock-venv/bin/python -m pip install --quiet -e '.[dev,bench,experiments]'
	@.lock-venv/bin/python -m pip freeze --exclude-editable | grep -v ' @ ' > requirements.lock
	@rm -rf .lock-venv

clean:  ## remove .venv and caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist site
