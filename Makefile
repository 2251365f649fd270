# make serve   install into .venv, fetch the default model, serve it on http://127.0.0.1:8000 until Ctrl-C
# make test    install what tests need, then lint, types, import contracts, tests
# make demo    four chats in a pool made for one
# make clean   remove .venv and everything that was built (fetched models stay in ~/.cache/parkade)

PYTHON ?= python3
MODEL ?= smollm2-135m
SERVE_FLAGS ?=
DEMO_FLAGS ?=
PYTEST_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# An installed environment is stamped; only a change of these files installs again.
SOURCES := pyproject.toml constraints.txt

.PHONY: serve test demo clean
.DEFAULT_GOAL := serve

serve: $(VENV)/installed
	@$(BIN)/parkade serve $(MODEL) $(SERVE_FLAGS)

demo: $(VENV)/installed
	@$(BIN)/parkade demo $(DEMO_FLAGS)

test: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Parkade needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." \
	    "Name another, as in: make serve PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }

$(VENV)/installed: $(SOURCES) | $(BIN)/python
	$(PIP) install -e . -c constraints.txt
	@touch $@

$(VENV)/installed-dev: $(SOURCES) | $(BIN)/python
	$(PIP) install -e '.[dev]' -c constraints.txt
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
