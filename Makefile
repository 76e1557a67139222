# `make demo` runs the main job, `make test` the tests; each installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test lint long clean

demo: $(INSTALLED)
	$(BIN)/retriever demo

test: $(INSTALLED) lint
	$(BIN)/pytest -m "not slow"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What takes too long for every day but must hold.
long: $(INSTALLED)
	$(BIN)/pytest -m slow

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev]'
	touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
