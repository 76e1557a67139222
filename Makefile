# `make demo` runs the main job, `make test` the tests; each installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
# Where `make bench` finds the sets, makes the un-tuned encoder and puts its results.
DATA ?= $(firstword $(wildcard ../shared/data) data)
UNTUNED ?= models/distilbert-tagger
RESULTS ?= results

.PHONY: demo test lint long bench clean

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

# The README's tables again; what did not change is not computed again.
bench: $(INSTALLED) .venv/bench
	test -d $(DATA) || $(BIN)/retriever bench download $(DATA)
	$(BIN)/retriever bench model $(UNTUNED)
	$(BIN)/retriever bench retrieval --data $(DATA)/cranfield --data $(DATA)/scifact --data $(DATA)/wikiqa_beir \
		--encoder all-MiniLM-L6-v2 --encoder $(UNTUNED) --pooling auto --out $(RESULTS)/retrieval
	$(BIN)/retriever bench qa --data $(DATA) --dataset qnli --dataset wikiqa \
		--encoder all-MiniLM-L6-v2 --encoder $(UNTUNED) --out $(RESULTS)/qa
	$(BIN)/retriever bench sts --data $(DATA) --encoder all-MiniLM-L6-v2 --encoder $(UNTUNED) --out $(RESULTS)/sts

.venv/bench: $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev,bench]'
	touch $@

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev]'
	touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
