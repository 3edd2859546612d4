# Two commands matter: `make run` shows the runbooks, `make test` passes the whole suite. Both make the environment.

PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# Environments of the caller's own must not leak into this one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: run test lab lint bench sweep envtest tools env lock clean
.DEFAULT_GOAL := run

run: env  ## every runbook's main scenario on the embedded cluster
	@$(BIN)/gpurunbook run --all --main

# Three on two cores: the tests of control planes and browsers mostly wait.
test: env  ## the whole suite
	$(BIN)/pytest -n 3 --dist loadgroup $(TESTS)

lab: env  ## JupyterLab on working copies of the runbooks
	$(BIN)/gpurunbook lab

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/gpurunbook lint runbooks/
	@echo "lines per room:"
	@cd gpurunbook && for room in . */; do \
	  depth=$$([ $$room = . ] && echo "-maxdepth 1" || true); \
	  printf '%6d  gpurunbook/%s\n' "$$(find $$room $$depth -name '*.py' -exec cat {} + | wc -l)" "$${room#.}"; \
	done | sort -rn

bench: env  ## paired measurements; nothing is asserted
	for file in tests/bench/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

sweep: env  ## kills and faults at every request, the full matrix
	GPURUNBOOK_SWEEP=full $(BIN)/pytest -n 2 --dist loadgroup -m sweep

envtest:  ## kube-apiserver, controller manager, scheduler, etcd, kwok (needs Go; about 15 minutes cold on two cores)
	$(PYTHON) tests/tools/build.py envtest

tools:  ## cosign, syft, trivy, crane, helm, trivydb (needs Go; about 20 minutes cold on two cores)
	$(PYTHON) tests/tools/build.py tools

env: .venv/package.stamp

.venv/lock.stamp: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpurunbook needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11")'
	@echo "installing into .venv what requirements.lock names; the first time this takes some minutes"
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@

.venv/package.stamp: .venv/lock.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock:  ## pins pyproject's dependencies anew: requirements.lock (hashes, all platforms) and environment.yml
	rm -rf build/lock && $(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes $(UPGRADE) \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header --output-file requirements.lock pyproject.toml
	{ sed '/- pip:$$/q' environment.yml; sed -nE "s/^([a-z0-9][^ ]*==.*[^ ]) +\\\\\$$/    - \"\1\"/p" requirements.lock; } \
	  > environment.yml.new && mv environment.yml.new environment.yml

clean:  ## removes the environment and what runs left; keeps the cache of Go programs
	rm -rf .venv build outputs/*
