# Each target installs what it needs. Start with `make help`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REQUIREMENTS := .ci/requirements/dev.txt
PACKAGES := hami_dra webhook certs
OTHER_VERSIONS := 1.36 1.35 1.34

# Bash with pipefail, so that a failing command in a pipe fails its target.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: dev
dev: $(STAMP) ## Create .venv with everything: console scripts, tools, Go and kubectl.

$(STAMP): $(REQUIREMENTS) pyproject.toml .ci/venv
	@PYTHON="$(PYTHON)" .ci/venv $(VENV) $(REQUIREMENTS)
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Run unmodified legacy YAML on a real control plane and show who got what (KEEP=1 leaves it up).
	@$(BIN)/python -m hami_dra.lab demo $(if $(KEEP),--keep)

.PHONY: demo-stop
demo-stop: $(STAMP) ## Stop a demo that was left up: make demo-stop DIR=...
	@$(BIN)/python -m hami_dra.lab stop "$(DIR)"

# The same order and examples each time: a commit passes or does not.
.PHONY: test
test: $(STAMP) ## Run every test, those on the real control plane included.
	@$(BIN)/python -m hami_dra.lab build
	@$(BIN)/python -m tests.tools.helm
	@$(BIN)/python -m tests.node.build
	@$(BIN)/pytest -m "not cluster" -n auto -p no:benchmark -p no:randomly --hypothesis-profile=same
	@$(BIN)/pytest -m cluster -p no:randomly --hypothesis-profile=same

.PHONY: test-fast
test-fast: $(STAMP) ## Run the tests that need no cluster, in another order and with other examples each time.
	@$(BIN)/pytest -m "not cluster and not tools" -n auto -p no:benchmark

.PHONY: test-search
test-search: $(STAMP) ## Look for what breaks a property, with a thousand examples for each (hours).
	@$(BIN)/pytest -m "hypothesis and not cluster" -n auto -p no:benchmark --timeout=0 \
		--hypothesis-profile=search

.PHONY: test-matrix
test-matrix: $(STAMP) ## Run the tests on a real control plane on other versions of Kubernetes (builds each once).
	@$(BIN)/python -m tests.node.build
	@failed=; for version in $(OTHER_VERSIONS); do \
		echo "Kubernetes $$version"; \
		$(BIN)/python -m hami_dra.lab build --version $$version && \
		$(BIN)/pytest -m cluster -p no:randomly --hypothesis-profile=same --kube-version $$version \
			|| failed="$$failed $$version"; \
	done; [ -z "$$failed" ] || { echo "failed on Kubernetes$$failed"; exit 1; }

.PHONY: add-version
add-version: $(STAMP) ## Write the module files of a version of Kubernetes: make add-version VERSION=1.36.3.
	@$(BIN)/python tests/cluster/add_version.py "$(VERSION)"

.PHONY: bench
bench: $(STAMP) ## Measure migrations, as ratios in one run.
	@$(BIN)/pytest tests/bench -o python_files="bench_*.py" -o python_functions="bench_*" -p no:randomly -s \
		--timeout=0 --benchmark-columns=median,iqr,rounds --benchmark-sort=name

.PHONY: bench-webhook
bench-webhook: $(STAMP) ## Measure the webhook beside its alternatives (ARGS=--help says what can be chosen).
	@$(BIN)/python -m tests.bench.webhook $(ARGS)

.PHONY: bench-cli
bench-cli: $(STAMP) ## Measure the CLI: --help, one Deployment, a repository of 10,000 files.
	@$(BIN)/python -m tests.bench.bench_cli

.PHONY: screens
screens: $(STAMP) ## Write what the documentation shows of the CLI anew.
	@$(BIN)/python -m tests.screens

.PHONY: bench-node
bench-node: $(STAMP) ## Measure the node agent against a real API server.
	@$(BIN)/python -m hami_dra.lab build
	@$(BIN)/python -m tests.node.bench $(ARGS)

.PHONY: native
native: $(STAMP) ## Build the native library for glibc 2.17, x86-64 and aarch64, into native/build.
	@$(MAKE) -s -C native releases ZIG="$(abspath $(BIN))/python -m ziglang"

.PHONY: native-test
native-test: $(STAMP) ## Run the tests of the native library on a fake driver.
	@$(BIN)/pytest tests/native

.PHONY: native-fuzz
native-fuzz: $(STAMP) ## Fuzz what the native library reads for minutes: make native-fuzz RUNS=10000000.
	@$(BIN)/pytest tests/native/test_fuzz.py -n auto --timeout=0 --fuzz-runs=$(or $(RUNS),1000000)

.PHONY: native-old-libc
native-old-libc: $(STAMP) ## Run the native library on another C library: make native-old-libc ROOT=DIR, an image's unpacked root.
	@$(BIN)/python -m tests.native.old_libc "$(ROOT)"

.PHONY: native-bench
native-bench: native ## Measure the native library on a fake driver: make native-bench LIBRARY=PATH compares another.
	@$(BIN)/python -m tests.native.bench $(if $(LIBRARY),--library "$(LIBRARY)") $(ARGS)

.PHONY: check
check: $(STAMP) ## Lint, check types and architecture; changes nothing.
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/codespell
	@$(BIN)/clang-format --dry-run --Werror native/*/*.[ch] native/tests/*/*.[ch]
	@$(MAKE) -s -C native lint CLANG_TIDY="$(abspath $(BIN))/clang-tidy"
	@test -z "$$("$$($(BIN)/go env GOROOT)/bin/gofmt" -l tests/cluster tests/bench tests/node)"

.PHONY: fix
fix: $(STAMP) ## Format and repair what the linter can.
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix .

COMPILE := $(BIN)/uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 \
	--generate-hashes --native-tls

.PHONY: lock
lock: $(STAMP) ## Pin the newest allowed versions of all requirements, with their hashes.
	@$(COMPILE) --upgrade pyproject.toml --group dev --extra lab -o $(REQUIREMENTS)
	@$(MAKE) --no-print-directory image-requirements

.PHONY: image-requirements
image-requirements: $(STAMP) ## Pin what the image holds and is built with, in the versions that are tested.
	@$(COMPILE) pyproject.toml -c $(REQUIREMENTS) -o .ci/requirements/run.txt
	@$(COMPILE) --group pyproject.toml:build -c $(REQUIREMENTS) -o .ci/requirements/build.txt

.PHONY: manifests
manifests: $(STAMP) ## Write the manifests that are made from others: registration, guard, chart files.
	@$(BIN)/python -m tests.tools.manifests

.PHONY: clean
clean: ## Remove .venv and what tools left behind; the cache of built binaries stays.
	@rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
