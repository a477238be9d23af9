# Tunery. `make help` lists the targets; each sets up what it needs first.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-security test-clients test-vllm test-containers test-kubernetes test-observe pythons reference focus check lint types contracts unit gateway services others fmt integration sim soak bench figures lock sbom clean
MAKEFLAGS += --no-print-directory
# Our modules are compiled once, not again in each of the hundreds of processes of a test run.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
ARGS ?=
SEEDS ?= 300
FIRST ?= 1
SOAK_SEEDS ?= 50000
ROUNDS ?= 50
# The newest of these that runs and is 3.11 or later. A pyenv shim may exist and not run: try it.
PYTHONS := python3 python3.11 python3.12 python3.13 python
FIND_PYTHON = for p in $(PYTHONS); do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done
# Files with the longest tests first, so that no worker ends long after the other.
QUICK := tests/simulation tests/histories tests/repo tests/contract tests/unit
SLOW := tests/e2e tests/integration
# It keeps both cores busy on purpose, which would starve a training of a test beside it.
OUTAGES := tests/e2e/test_outages.py
# Where its validator cannot be installed, `make focus` says so in a line.
FOCUS := tests/integration/services/exporter/test_focus.py
PYTEST := $(BIN)/python -m pytest -q
BESIDE := -n 2 --dist loadfile --no-loadscope-reorder
# They take half an hour. A run that takes 65 minutes ends with the names of what failed and
# of the slowest tests, before CI ends it without any.
WITHIN := --session-timeout=3900 --durations=20
# One race among 12,000 tests must not hide what the others say: each has a second try, and the end
# of the run names those that needed it (RERUN). Such a test is a bug to be mended.
AGAIN := --reruns 1 -raR
# Long searches share no servers, so a worker that has none left takes some of another. Some wait
# for a process or a clock: three workers keep two cores busy.
SHARED := -n 3 --dist worksteal
# Quick tests run in three processes, each with about as much to do and what needs the same imports.
# Workers of one run would each import and collect all 6,000 tests and report them to one more: a
# tenth more CPU time. Their files are in memory where there is room: on a disk each costs 0.4 ms.
QUICK_FILES = $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 { print "TMPDIR=/dev/shm" }')
# Files of tests whose results still hold are left out: FULL=1 runs all, as `make test` does.
QUICK_TESTS = $(QUICK_FILES) $(PYTEST) -p no:cacheprovider $(if $(FULL),$(AGAIN),-p tests.unchanged) -m "not train and not long"
# They import FastAPI and the gateway's routes, or openai: three seconds.
WITH_HTTP := $(addprefix tests/unit/,services/gateway services/notifier tunery/cli/replay tunery/cli/reconcile)

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## everything below: packages, servers, base model; seconds when it is all there
	@python="$$($(FIND_PYTHON))"; \
	if [ -z "$$python" ]; then echo "setup: no Python 3.11 or newer (tried $(PYTHONS))" >&2; \
	  echo "  fix: install Python 3.11, with pip or venv" >&2; exit 1; fi; \
	"$$python" tunery/local/bootstrap.py

demo: setup ## a real fine-tune that loses its machine half-way; ARGS="--json --keep --data FILE"
	@$(BIN)/tunery demo $(ARGS)

test: export FULL := 1
test: check integration ## all that must pass: check, then tests with torch and real servers
	@$(BIN)/python -c 'import sys; print("tested on Python", sys.version.split()[0], "only; make pythons: the oldest and the newest")'

# All of it is in `make test` as well, beside other tests.
test-security: export HYPOTHESIS_PROFILE = repeatable
test-security: setup ## what shows that findings of the security review hold: rights, borders, walls, quotas, generated requests
	$(PYTEST) $(BESIDE) --durations=10 -m "security and not soak" tests $(ARGS)

test-clients: setup ## the newest Tinker SDK, DSPy, LlamaIndex, LangChain, pydantic-ai, Agents SDK, litellm, instructor, W&B, openai-node, unchanged, each in an environment of its own
	@$(BIN)/python -m tests.clients $(ARGS)

test-vllm: setup ## the suite of engines over a real vLLM on the CPU, in an environment of its own (6 GB)
	@$(BIN)/python -m tests.vllm $(ARGS)

test-containers: setup ## tests of our servers' ports over official images, where a container engine answers
	@$(BIN)/python -m tests.containers $(ARGS)

test-kubernetes: setup ## a lease as a JobSet on a real API server with Kueue; builds them once (minutes, 4 GB)
	@$(BIN)/python -m tests.kubernetes $(ARGS)

test-observe: setup ## tunery up --observe, rules, panels and alerts in a real Prometheus, installed or Debian's
	@$(BIN)/python -m tests.observe $(ARGS)

pythons: setup ## quick tests and outages on the oldest and the newest Python found
	@$(BIN)/python -m tests.pythons

reference: setup ## dist/openapi.json and dist/recipe.schema.json, for clients and editors
	$(BIN)/python -m tests.repo.openapi
	$(BIN)/python -m tests.repo.recipes

focus: setup ## the FinOps Foundation's validator on exported files; it needs Python 3.12 or newer
	@if $(BIN)/python -m tests.focus; then $(PYTEST) $(FOCUS); fi

# The searches of which `make check` runs a share (tests/searches.py), seeds of the simulator among
# them, and four times the examples of each property, here and in the tests with servers.
integration: export HYPOTHESIS_PROFILE = repeatable
integration: setup
	$(PYTEST) $(SHARED) -m "(hypothesis or long) and not train and not soak" $(QUICK)
	$(PYTEST) $(BESIDE) $(AGAIN) tests/unit tests/repo -m "train and not soak"
	$(PYTEST) $(BESIDE) $(AGAIN) $(WITHIN) -m "not soak" --ignore=$(OUTAGES) --ignore=$(FOCUS) $(SLOW)
	$(PYTEST) $(AGAIN) -m "not soak" $(OUTAGES)
	@$(BIN)/python -m tests.kubernetes --if-built -n0 $(AGAIN) -k test_leases
	@$(MAKE) focus

check: setup ## within a minute: format, lint, types, import contracts, quick tests that a change may concern; FULL=1: all
	@$(MAKE) -k -j6 --output-sync=target services others gateway types lint contracts

lint:
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .

types:
	@$(BIN)/mypy $(wildcard schemas services tunery simulator examples bench tests)

contracts:
	@$(BIN)/lint-imports

unit:
	@$(MAKE) -k -j3 --output-sync=target services others gateway

services:
	@$(QUICK_TESTS) tests/simulation tests/histories tests/contract tests/unit/simulator tests/unit/services $(addprefix --ignore=,$(WITH_HTTP))

gateway:
	@$(QUICK_TESTS) tests/repo tests/infra $(WITH_HTTP)

others:
	@$(QUICK_TESTS) tests/unit $(addprefix --ignore=,tests/unit/services tests/unit/simulator $(WITH_HTTP))

fmt: setup ## format and sort imports
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

sim: setup ## the simulator: SEEDS=10000 FIRST=1; or one run, line by line: SEED=7 TRACE=1
	@$(BIN)/python -m simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST)) \
	  $(if $(TRACE),--trace) $(ARGS)

soak: setup ## the long proofs, never in CI: kills of real processes (ROUNDS=50), seeds, searches
	$(BIN)/python -m tests.soak --rounds $(ROUNDS)
	$(BIN)/python -m simulator --seeds $(SOAK_SEEDS) --first 10001
	HYPOTHESIS_PROFILE=searching $(PYTEST) tests/unit -m "not train"
	$(BIN)/python -m bench.data.scale --rows 10000000 --kill
	for round in 1 2 3 4 5; do $(PYTEST) $(BESIDE) -m "not soak" $(SLOW) $(ARGS) || exit 1; done
	$(PYTEST) -m soak tests/simulation tests/unit tests/infra $(SLOW) $(ARGS)
	$(BIN)/python -m tests.busy $(PYTEST) -m "not soak" tests/e2e $(ARGS)

bench: setup ## the figures of the README; ARGS=--json
	$(BIN)/python -m bench.core $(ARGS)
	$(BIN)/python -m bench.submit $(ARGS)
	$(BIN)/python -m bench.follow $(ARGS)

figures: setup ## docs/figures.md anew from one run of all its benches: a quarter of an hour
	@$(BIN)/python -m bench.figures run $(ARGS)

lock: setup ## write requirements.lock anew from pyproject.toml; versions that still fit stay
	@PATH="$(CURDIR)/.tools/bin:$$PATH" uv pip compile --quiet --universal --generate-hashes \
	  --no-emit-index-url --no-header --python-version 3.11 --extra train --extra serve --extra local --extra watch --extra cluster --extra confluent --extra openai --extra mcp --group dev \
	  pyproject.toml -o requirements.lock

sbom: setup ## sbom.cdx.json: the packages of requirements.lock with their hashes, in CycloneDX's format
	@PATH="$(CURDIR)/.tools/bin:$$PATH" uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements \
	  --pyproject pyproject.toml --output-reproducible --of JSON -o sbom.cdx.json requirements.lock

clean: ## remove .venv, .tools and caches of tools from the clone (not your data, not ~/.cache)
	rm -rf .venv .venvs .tools .tools.part .mypy_cache .ruff_cache .pytest_cache .pytest_unchanged .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
