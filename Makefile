# Everything a fresh machine needs: Python 3.11 to 3.13 with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OVERRIDES ?=
# One process more than the two processors that the tests are meant for: some wait for others.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: run test lint format docs coverage bench clean

# Install once, and again only when the project's dependencies change.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $(READY)

run: $(READY)
	$(BIN)/fedsynth fetch mnist
	$(BIN)/python -m fedsynth.run scenario=split_mnist preset=laptop $(OVERRIDES)

test: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/mkdocs build --quiet

coverage: $(READY)
	$(BIN)/python -m pytest --cov=fedsynth --cov-report=term $(PYTEST_ARGS)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/clipped_gradient.py
	$(BIN)/python benchmarks/engine_rounds.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
