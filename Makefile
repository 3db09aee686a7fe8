# The commands of this repository. A fresh machine needs Python 3.11, make, gcc and git, and a package index.
#
#   make demo    train the example on 2 CPU processes
#   make test    everything that must pass: lint, types and all tests
#   make check   lint, types and the architecture tests: seconds, no distributed run
#   make crash-sweep   stop saves of checkpoints at every call and 200 random times: minutes
#   make data-sweep    read loaders of some thousand shapes at 1 to 4 ranks: minutes
#   make test-core test-data test-checkpoint test-launch    the tests of one subject
#   make golden  write the kept plans of launches anew, to be reviewed
#   make format  let ruff rewrite the layout
#   make differences    write docs/differences.md from docs/differences.yaml
#   make reference      record anew what the interface's reference does; REFERENCE_PYTHON names a Python that has it
#   make clean   remove the virtual environment and caches

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETTINGS := pyproject.toml constraints.txt

# torch is named with its release: an index may offer a CPU build of that one only.
TORCH := $(shell grep '^torch==' constraints.txt)
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt $(TORCH)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

# The subjects. What none of them names belongs to the core, so that together they are all tests.
DATA := $(wildcard tests/unit/data tests/*/test_data*.py)
CHECKPOINT := $(wildcard tests/checkpoint tests/unit/checkpoint tests/*/test_checkpoint*.py)
LAUNCH := $(wildcard tests/unit/launching tests/unit/commands tests/*/test_launch*.py)

# Each recorder tests/reference/record_NAME.py writes data/NAME.json; a checkpoint is a folder.
REFERENCE_PYTHON ?= $(ACCELERATE_REFERENCE_PYTHON)
RECORDED := tests/reference/data
RECORDINGS := $(patsubst tests/reference/record_%.py,%,$(wildcard tests/reference/record_*.py))

.PHONY: demo test check lint format crash-sweep data-sweep golden differences reference clean test-core test-data test-checkpoint test-launch
.DELETE_ON_ERROR:

demo: $(VENV)/.installed-demo
	$(BIN)/accelerate launch --cpu --num_processes 2 examples/text_classification.py

# `check`, with all tests in place of those about the architecture.
test: lint
	$(PYTEST) tests

check: lint
	$(PYTEST) tests/architecture

lint: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test-core: $(VENV)/.installed-test
	$(PYTEST) tests $(addprefix --ignore=,$(DATA) $(CHECKPOINT) $(LAUNCH))

test-data: $(VENV)/.installed-test
	$(PYTEST) $(or $(DATA),$(error no tests about data))

test-checkpoint: $(VENV)/.installed-test
	$(PYTEST) $(or $(CHECKPOINT),$(error no tests about checkpoints))

crash-sweep: $(VENV)/.installed-test
	CRASH_SWEEP=full $(PYTEST) --timeout 1800 tests/checkpoint/crash

data-sweep: $(VENV)/.installed-test
	DATA_SWEEP=full $(PYTEST) --timeout 1800 tests/distributed/test_data_property.py

test-launch: $(VENV)/.installed-test
	$(PYTEST) $(or $(LAUNCH),$(error no tests about launching))

# The plans of launches that are kept as text: look at the difference before it is committed.
golden: $(VENV)/.installed-test
	$(BIN)/python -m tests.golden.plan_text

differences: $(VENV)/.installed-test
	$(BIN)/python tools/differences.py

# The recorders import the reference, never ours: PYTHONPATH is kept from them.
reference:
	$(if $(REFERENCE_PYTHON),,$(error REFERENCE_PYTHON names no Python that has the reference))
	$(foreach name,$(RECORDINGS),env -u PYTHONPATH $(REFERENCE_PYTHON) tests/reference/record_$(name).py \
		$(RECORDED)/$(if $(filter checkpoint,$(name)),checkpoint_1_15_0,$(name).json) &&) true
	git --no-pager diff --stat -- $(RECORDED)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: $(SETTINGS) | $(BIN)/python
	$(INSTALL) --editable '.[examples]'
	touch $@

$(VENV)/.installed-test: $(SETTINGS) | $(BIN)/python
	$(INSTALL) --editable '.[examples,test,lint]'
	touch $@ $(VENV)/.installed-demo

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
