# make demo   an environment, then sweep, fit and plot on real handwritten digits
# make test   an environment with the development tools, then every test
# make lint   ruff and mypy
# make oldest a part of the tests with the lowest versions of everything that pyproject.toml allows

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)-oldest
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One thread a process: tests run side by side, and spinning threads slow each other down.
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test quick lint oldest clean

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

oldest: $(OLDEST)/.installed
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" tests/test_cli.py tests/test_api.py \
		tests/test_packaging.py tests/spec tests/tables tests/plot
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 --dist worksteal tests/meter/test_meter_callbacks.py

clean:
	rm -rf $(VENV) $(OLDEST) results .pytest_cache .mypy_cache .ruff_cache

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

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[test]'
	touch $@
