# `make demo` runs the main job, `make test` the tests; each installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
# Where `make bench` finds the sets, makes the un-tuned encoder and puts its results.
DATA ?= $(firstword $(wildcard ../shared/data) data)
# HUB=bert-base-uncased UNTUNED=models/bert-base takes a model of the Hugging Face hub in its place.
UNTUNED ?= models/distilbert-tagger
HUB ?=
RESULTS ?= results
SEEDS ?= 1

# A file of tests at a time in each of some processes: what a file makes once is made once, and while one waits for a
# process or a browser the others work.
PYTEST = $(BIN)/pytest --dist loadfile

.PHONY: demo check unit test lint long torture bench bench-speed clean

demo: $(INSTALLED)
	$(BIN)/retriever demo

# Between two edits, in about a minute: lint and the unit tests beside each other.
check: $(INSTALLED)
	$(MAKE) --no-print-directory -j 2 --output-sync=target lint unit

# What needs no other process, server or browser, and no more than about a second.
unit: $(INSTALLED)
	OMP_NUM_THREADS=1 $(PYTEST) -n 2 -m "not heavy and not slow and not torture"

# Before a change is handed in: all that must hold, in some minutes. With more threads the processes would wait for each
# other; tests/conftest.py says which files begin first.
test: $(INSTALLED) lint
	OMP_NUM_THREADS=1 $(PYTEST) -n 4 --no-loadscope-reorder -m "not slow and not torture"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What takes too long for every change but must hold; .ci/run runs it after `make test`.
long: $(INSTALLED)
	$(PYTEST) -n 3 -m "slow and not torture"

# Everything that tries to break a collection, about an hour and a half on 2 cores; strace must be installed.
torture: $(INSTALLED)
	$(BIN)/python tests/torture/run.py --out $(RESULTS)/torture
	$(PYTEST) -n 3 -m torture

# The README's tables again; what did not change is not computed again.
BENCH = $(BIN)/retriever bench
TAGGER = --encoder $(UNTUNED)
bench: $(INSTALLED) .venv/bench
	$(BENCH) download $(DATA)
	$(BENCH) model $(UNTUNED) $(HUB:%=--hub %)
	$(BENCH) retrieval --data $(DATA) --encoder all-MiniLM-L6-v2 $(TAGGER) --pooling auto --out $(RESULTS)/retrieval
	test ! -d $(DATA)/cranfield || $(BENCH) retrieval --data $(DATA)/cranfield $(TAGGER) --pooling first-last \
		--out $(RESULTS)/retrieval-first-last
	$(BENCH) qa --data $(DATA) --dataset qnli --dataset wikiqa --out $(RESULTS)/qa-minilm
	$(BENCH) qa --data $(DATA) --dataset qnli --dataset wikiqa $(TAGGER) --pooling first-last --pooling word \
		--out $(RESULTS)/qa
	$(BENCH) sts --data $(DATA) $(TAGGER) --pooling first-last --pooling word --seeds $(SEEDS) \
		--transform none --transform center --transform whiten --transform whiten:dimension=256 \
		--transform whiten:soft=1 --transform bert-flow --transform flow --out $(RESULTS)/sts
	$(BENCH) sts --data $(DATA) --transform none --transform auto --out $(RESULTS)/sts-minilm
	$(BENCH) lexical --data $(DATA) $(TAGGER) --pooling first-last --pooling word --transform none --transform whiten \
		--transform bert-flow --transform flow --transform flow:strength=1 --out $(RESULTS)/lexical
	$(BENCH) isotropy --data $(DATA) $(TAGGER) --pooling first-last --transform none --transform whiten \
		--transform bert-flow --transform flow:strength=1 --out $(RESULTS)/isotropy

# Speed beside other systems, and what codes keep by their bytes; hours the first time, mostly of embedding.
bench-speed: $(INSTALLED) .venv/bench
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev,bench,speed]'
	$(BENCH) model $(UNTUNED) $(HUB:%=--hub %)
	$(BENCH) speed --data $(DATA) --precision int8 --embed-at-most 10000 --out $(RESULTS)/speed
	$(BENCH) quantization --data $(DATA) $(TAGGER) --pooling first-last --precision int8 --out $(RESULTS)/quantization

.venv/bench: $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev,bench]'
	touch $@

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev]'
	touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
