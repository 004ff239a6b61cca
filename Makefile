# The two commands a newcomer runs: `make demo` and `make test`. Only Python 3.11-3.13, git and make are needed;
# `make demo PYTHON=/path/to/python3.12` names the interpreter.
VENV := .venv
BIN := $(VENV)/bin
JOB := examples/llama3_405b_16384.yaml
PICTURE := out/llama3_405b_16384.png
PYTEST_FLAGS ?= -n 2 --dist loadfile

# Compiled JAX programs are kept in the checkout, so that a second run starts faster.
export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.jax_cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.1
export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1
# Wherever this comes from, it would make every start of Python slower.
unexport PYTHONDONTWRITEBYTECODE
# A bare `make` lists the commands.
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow coverage docs release-check test-browser lint format clean

help:
	@echo "make demo       install, predict $(JOB), draw $(PICTURE)"
	@echo "make test       install, run the tests (about 12 minutes on 2 cores)"
	@echo "make test-slow  run the slow tests too"
	@echo "make test-browser  open every HTML report in Chromium (needs it installed)"
	@echo "make coverage   lines and branches that the tests reach (about 30 minutes on one core)"
	@echo "make docs       the documentation site, in build/docs (half a minute), man pages in build/man"
	@echo "make release-check  build wheel and sdist, install them by pip, uv and pipx, run them (10 minutes)"
	@echo "make lint       ruff, pyright, import-linter, scripts/structure.py, scripts/words.py, the site; FOLDER=prism_jax/queue: of one folder"
	@echo "make format     let ruff rewrite the files"
	@echo "make clean      remove everything that make made"

demo:
	@scripts/make_venv $(VENV) test
	@mkdir -p out
	$(BIN)/prism-jax predict $(JOB) --plot $(PICTURE)

test:
	@scripts/make_venv $(VENV) test
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

test-slow:
	@scripts/make_venv $(VENV) test
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "slow or not slow"

test-browser:
	@scripts/make_venv $(VENV) browser
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "slow or not slow" tests/browser

# In one process, through a pipe: tests of full disks limit the size of the files that their process writes.
coverage:
	@scripts/make_venv $(VENV) dev
	$(BIN)/python -m coverage run --branch --source=prism_jax,inference -m pytest -q -n 0 2>&1 | cat
	$(BIN)/python -m coverage report --skip-covered --sort=cover

# No network is needed. make lint builds it too: a warning fails.
docs:
	@scripts/make_venv $(VENV) dev
	$(BIN)/sphinx-build -q -n -W --keep-going -b html docs build/docs
	$(BIN)/python docs/man.py build/man

# Needs a package index for the tools and dependencies; ONLY=3.12 takes one Python alone.
release-check:
	$$(sh scripts/find_python) scripts/release_check.py $(addprefix --only ,$(ONLY))

# All of it, or one folder (types included): make lint FOLDER=prism_jax/queue
lint:
	@scripts/make_venv $(VENV) dev
	$(BIN)/ruff check $(or $(FOLDER),.)
	$(BIN)/ruff format --check $(or $(FOLDER),.)
	$(BIN)/pyright --pythonpath $(BIN)/python $(FOLDER)
	$(BIN)/lint-imports
	$(BIN)/python scripts/structure.py
	$(BIN)/python scripts/words.py
	$(if $(FOLDER),,$(BIN)/sphinx-build -q -n -W --keep-going -b html docs build/docs)

format:
	@scripts/make_venv $(VENV) dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .coverage .jax_cache .pytest_cache .hypothesis .ruff_cache .import_linter_cache build dist out
	find prism_jax inference tests -name __pycache__ -type d -prune -exec rm -rf {} +
