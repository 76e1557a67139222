# `make demo` runs the main job, `make test` the tests. Each installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
DEV := .venv/installed-dev
GPU := build/gpu
# Where `make bench` finds the data sets, writes the un-tuned encoder and writes its results.
DATA ?= $(firstword $(wildcard ../shared/data) data)
# HUB=bert-base-uncased UNTUNED=models/bert-base uses a model of the Hugging Face hub instead.
UNTUNED ?= models/distilbert-tagger
HUB ?=
RESULTS ?= results
SEEDS ?= 1

# Tests start hundreds of processes. Without byte code, each would compile the libraries again.
unexport PYTHONDONTWRITEBYTECODE

# Each process runs whole files, so that fixtures of a file are made once.
PYTEST = $(BIN)/pytest --dist loadfile
# --no-compile: Python compiles what is imported, and the rest would take 300 MB.
PIP = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo check unit test lint docs long test-gpu fuzz coverage torture bench bench-speed clean

demo: $(INSTALLED)
	$(BIN)/retriever demo

# While you work: lint, types, import contracts and unit tests.
check: $(DEV)
	$(MAKE) --no-print-directory -j 2 --output-sync=target lint unit

# Tests that start no process, server or browser and take at most about a second each.
unit: $(DEV)
	OMP_NUM_THREADS=1 $(PYTEST) -n 2 -m "not heavy and not slow and not torture"

# Before you send a change: everything that must hold. One thread per process, or the processes wait for each other.
test: $(DEV) lint docs
	OMP_NUM_THREADS=1 $(PYTEST) -n 4 --no-loadscope-reorder -m "not slow and not torture"

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# The documentation, in build/site. A broken link or anchor, or a stale docs/cli.md, is an error.
docs: $(DEV)
	$(BIN)/python docs/generate_cli.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Tests that take too long for `make test`; .ci/run runs them too.
long: $(DEV)
	OMP_NUM_THREADS=1 $(PYTEST) -n 3 -m "slow and not torture"

# The index tests with faiss-gpu, the package that users of NVIDIA GPUs install. It works without a GPU.
test-gpu: $(GPU)/installed
	$(GPU)/bin/python -c "import sys; from indexes.faiss.gpu import has_gpu_part; sys.exit(not has_gpu_part())"
	OMP_NUM_THREADS=1 $(GPU)/bin/python -m pytest --dist loadfile -n 2 -m "not slow and not torture" \
		tests/indexes/faiss tests/indexes/folder tests/benchmarks/test_gpu.py

# Ten minutes of fuzzing for each parser of foreign bytes, guided by coverage.
fuzz: $(DEV)
	$(BIN)/python tests/fuzz/run.py --out $(RESULTS)/fuzz

# Everything that tries to break a collection: about seven hours on 2 cores. Needs strace. Goes on where it was stopped.
torture: $(DEV)
	$(BIN)/python tests/torture/run.py --out $(RESULTS)/torture
	$(PYTEST) -n 3 -m torture --ignore tests/encoder/test_forks.py

# Branch coverage over all tiers, child processes included, in results/coverage. Takes as long as `make test long`, twice.
coverage: $(DEV)
	rm -rf $(RESULTS)/coverage && mkdir -p $(RESULTS)/coverage
	COVERAGE_FILE=$(abspath $(RESULTS)/coverage/data) OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n 3 --dist loadfile \
		-m "not torture" -o timeout=1800 || touch $(RESULTS)/coverage/some-tests-failed
	COVERAGE_FILE=$(abspath $(RESULTS)/coverage/data) $(BIN)/coverage combine -q
	COVERAGE_FILE=$(abspath $(RESULTS)/coverage/data) $(BIN)/coverage html -q -d $(RESULTS)/coverage/html
	COVERAGE_FILE=$(abspath $(RESULTS)/coverage/data) $(BIN)/coverage report --sort=cover | tee $(RESULTS)/coverage/report.txt
	test ! -e $(RESULTS)/coverage/some-tests-failed

# Measure the tables of docs/results.md again. Results that are still valid are reused.
BENCH = $(BIN)/retriever bench
TAGGER = --encoder $(UNTUNED)
bench: $(DEV)
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

# Speed beside other systems, and index size against recall. Takes hours the first time, mostly for embedding.
bench-speed: $(DEV)
	$(PIP) -e '.[cpu,dev,speed]'
	$(BENCH) model $(UNTUNED) $(HUB:%=--hub %)
	$(BIN)/python -m benchmarks speed --data $(DATA) --precision int8 --embed-at-most 10000 --out $(RESULTS)/speed
	$(BIN)/python -m benchmarks quantization --data $(DATA) $(TAGGER) --pooling first-last --precision int8 --out $(RESULTS)/quantization

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[cpu]'
	touch $@

$(DEV): $(INSTALLED)
	$(PIP) -e '.[cpu,dev]'
	touch $@

# A second venv, because faiss-gpu and faiss-cpu conflict. It finds everything else in the first one.
PURELIB := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
$(GPU)/installed: constraints.txt $(DEV)
	$(BIN)/python -m venv $(GPU)
	echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" > "$$($(GPU)/bin/python $(PURELIB))/first.pth"
	$(GPU)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt faiss-gpu
	touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
