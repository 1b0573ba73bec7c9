# Every target sets up what it needs; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Each test process keeps to one thread: two processes of two threads fight over the cores.
# Some virtual machines name AMX among their instructions and do not have it; bfloat16 dies of that.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types bench docs clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv and install the package with its development extras

$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }  # a Python without ensurepip
	@echo "installing into $(VENV) (once; a minute or two)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## train on handwritten digits, simulate, and write demo/report.html
	$(BIN)/normscope demo

test: lint types  ## lint, types, then every test and doctest
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## pyright
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

bench: $(VENV)/.bench  ## measure against peers; writes benchmarks/results/ and benchmarks/README.md
	$(BIN)/python benchmarks/info_nce.py
	$(BIN)/python benchmarks/knn.py
	$(BIN)/python benchmarks/probe.py
	$(BIN)/python benchmarks/augment.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/simulations.py
	$(BIN)/python benchmarks/optimizers.py --net resnet10_narrow --side 8 --images 512 --batch 64
	$(BIN)/python benchmarks/texts.py all-MiniLM-L6-v2 --out texts/minilm.npz
	$(BIN)/python benchmarks/trust.py --texts texts/minilm.npz
	$(BIN)/python benchmarks/texts.py wordllama --out texts/wordllama.npz
	$(BIN)/python benchmarks/trust.py --texts texts/wordllama.npz

docs: $(VENV)/.docs  ## run the code of docs/, build site/, check its links, look at its pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 src
	$(BIN)/python docs/links.py site
	$(BIN)/python docs/look.py site

$(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: $(STAMP)
	@echo "installing the $* extra into $(VENV)"
	@$(INSTALL) --editable '.[$*]'
	@touch $@

clean:  ## remove the environment and everything built
	rm -rf $(VENV) site .executed demo runs .pytest_cache .ruff_cache .hypothesis
