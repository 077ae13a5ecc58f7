# make demo   an environment, then sweep, fit and plot on real handwritten digits
# make test   an environment with the development tools, then every test
# make lint   ruff and mypy

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One thread a process: tests run side by side, and spinning threads slow each other down.
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test quick lint clean

demo: $(VENV)/.demo
	$(BIN)/bscrit sweep sweeps/digits.toml
	$(BIN)/bscrit fit results/digits
	$(BIN)/bscrit plot results/digits

test: $(VENV)/.dev
	$(TEST)

quick: $(VENV)/.dev
	$(TEST) -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) results .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r constraints.txt
	$(PIP) -e '.[train,digits]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r constraints.txt
	$(PIP) -e '.[dev]'
	touch $@
