# Two commands do all the set-up on a fresh Debian machine as root: `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= /usr/bin/python3
BIN := .venv/bin
PACKAGES := $(shell sed 's/\#.*//' deploy/debian-packages.txt)
# Live tests need root; where they can run they must, and say why when they cannot.
export CRISCOPE_LIVE ?= $(if $(filter 0,$(shell id -u)),1,0)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: packages ## install what is missing, make .venv with the command in it, build the BPF objects
	@$(MAKE) --no-print-directory venv objects

demo: setup ## trace real pods on a private containerd (root); TROUBLE=shim makes trouble; ARGS="--seconds 30" ends it
	@$(BIN)/python -m tests.rig.demo $(if $(TROUBLE),--trouble $(TROUBLE)) $(ARGS)

demo-replay: venv ## serve a shipped capture of a real node (no root)
	@$(BIN)/python -m tests.rig.demo --replay tests/data/truth.jsonl.gz $(ARGS)

test: setup lint unit web live ## everything that must pass

lint: venv ## style, types, and the architecture's one direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: venv ## tests without privilege; ARGS="-k name" chooses
	$(BIN)/python -m pytest --numprocesses 2 --ignore tests/live --ignore tests/web $(ARGS)

web: setup ## tests of the web page in a real browser, one at a time; pictures in .output/web
	$(BIN)/python -m pytest tests/web $(ARGS)

live: setup ## tests with real eBPF, containerd, runc and CNI
	$(BIN)/python -m pytest tests/live -m "not long" $(ARGS)

long: setup ## the live tests that take minutes: every trouble, and a real Prometheus
	$(BIN)/python -m pytest tests/live -m long $(ARGS)

bench: setup ## measure the cost and the speed
	@for script in tests/bench/*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

fuzz: venv ## look for inputs that break a decoder, ten minutes each; ARGS="--seconds 60 frames rpc" chooses
	$(BIN)/pip install --quiet --group fuzz
	nice -n 19 $(BIN)/python -m tests.fuzz $(ARGS)

pictures: setup ## draw each dashboard's queries on a node in trouble, to .output/dashboards
	$(BIN)/pip install --quiet --group pictures
	$(BIN)/python -m pytest tests/live/test_prometheus.py
	$(BIN)/python -m dashboards.pictures

clean: ## remove what was built, the virtual environment too
	$(MAKE) -C bpf clean
	rm -rf .venv .output dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

packages:
	@missing=; \
	for package in $(PACKAGES); do \
	  [[ "$$(dpkg-query --show --showformat '$${db:Status-Status}' "$$package" 2>/dev/null)" == installed ]] || missing+=" $$package"; \
	done; \
	[[ -z "$$missing" ]] && exit; \
	if [[ "$$(id -u)" != 0 ]]; then echo "missing Debian packages:$$missing; run \`make setup\` once as root" >&2; exit 2; fi; \
	apt-get update; \
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $$missing

venv: .venv/installed ; @:

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: set PYTHON" >&2; exit 2; }
	@[[ -x $(BIN)/python ]] || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'  # the first that knows dependency groups
	$(BIN)/pip install --quiet --editable . --group dev
	@touch $@

objects:
	@$(MAKE) --silent -C bpf

.NOTPARALLEL:
.PHONY: help setup demo demo-replay test lint unit long web live bench fuzz pictures clean packages venv objects
