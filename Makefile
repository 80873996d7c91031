# The verbs of Drumline. README and CI call these and nothing else. Needs Python >= 3.11, make and a network.

SUPPORTED = import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
# A Python's own place, past shims and environments: `python3` on PATH may be a shim that starts nothing.
WHICH = import sys; print(sys.version.split()[0], sys.base_prefix)
ifeq ($(origin PYTHON),undefined)
PYTHON := $(or $(shell for each in python3 python3.13 python3.12 python3.11 python3.14 python; do \
  $$each -c '$(SUPPORTED)' >/dev/null 2>&1 && { command -v $$each; break; }; done),python3)
HAVE := $(shell .venv/bin/python -c '$(WHICH)' 2>/dev/null)
WANTED := $(or $(HAVE),$(shell $(PYTHON) -c '$(WHICH)' 2>/dev/null))
else
HAVE := $(shell .venv/bin/python -c '$(WHICH)' 2>/dev/null)
WANTED := $(shell $(PYTHON) -c '$(WHICH)' 2>/dev/null)
endif
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
PY := .venv/bin/python
NPM := $(PYTHON) scripts/npm.py
# LONG=1: with the tests that are marked `long`, as `make test-long` has them.
SHORT := $(if $(LONG),,not long)
ENGINE := tests/unit/distribute tests/unit/distribute_input tests/conformance
QUICK := tests/unit/worker/test_warming.py $(patsubst %,tests/unit/distribute/test_%.py,run reduce collectives sparse)
# What Python itself, or the JAX that comes with it, once made different: warnings, protocols, threads, compiled text.
FOR_EACH_PYTHON := tests/unit/distribute_input/test_iterator_state.py $(patsubst %,tests/unit/distribute/test_%.py,step_traces run_on_shapes)
EVERY_DAY := $(QUICK) tests/unit/contracts tests/unit/distribute/test_context.py tests/unit/distribute/test_error_rows.py tests/unit/distribute/test_error_rows_of_values.py tests/unit/sdk/test_imports.py \
  tests/unit/server tests/unit/worker tests/integration/server/test_runs_life.py tests/integration/server/test_retries.py tests/e2e/test_submit_digits.py
DASHBOARD_SOURCES := $(shell find frontend -type f -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)
export PYTHONUNBUFFERED := 1
# Byte code caches let Drumline start in a second; some container images switch them off.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-long check unit integration simulation sim e2e frontend-test conformance chaos chaos-gangs machine fuzz pythons test-pythons accelerator bench bench-engine bench-accelerator bench-orchestration bench-fairness bench-telemetry bench-ui bench-peers house surface openapi lock build clean

help: ## list the verbs
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: .venv/.demo accelerator frontend/dist/index.html ## start everything, run the digits job on 8 replicas, show it (ONCE=1: exit with the run's code)
	@$(PY) scripts/demo.py $(if $(ONCE),--once)

accelerator: .venv/.demo ## JAX for the GPUs or TPUs that are found (ACCELERATOR=cuda12, cuda13, tpu or none decides instead)
	@$(PY) scripts/accelerator.py --install "$(UV)" --accelerator "$(ACCELERATOR)"

test: .venv/.dev frontend/dist/index.html .venv/.chromium ## prove that all of it works, stages side by side (STAGES='unit chaos' narrows; logs in build/test/)
	@$(PY) scripts/stages.py --only "$(STAGES)"

test-quick: .venv/.dev frontend/dist/index.html .venv/.chromium ## for every day, under 2 minutes: static checks, quick tests of every part, one run in the browser
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && .venv/bin/lint-imports && $(PY) -m mypy
	$(PY) -m pytest -q -n 2 $(EVERY_DAY)

test-long: .venv/.dev frontend/dist/index.html .venv/.chromium ## what does not fit `make test`, once for each issue; the table is kept in tests/long.json
	@$(PY) scripts/stages.py --long --only "$(STAGES)" --write tests/long.json

check: .venv/.dev frontend/node_modules/.installed openapi-check ## ruff, mypy strict, import-linter, dead code, commit messages, Biome, tsc, knip
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	$(PY) scripts/dead_code.py
	$(PY) scripts/commits.py
	$(NPM) run check

unit: .venv/.dev ## tests without servers (LONG=1: those marked long too)
	JAX_ENABLE_X64=1 $(PY) -m pytest -q tests/unit/distribute -m 'x64$(if $(LONG),, and not long and not x64(often=False))' -k 'not hundreds'
	$(PY) -m pytest -q -n 2 --dist loadfile -m '$(SHORT)' tests/unit

integration: .venv/.dev ## tests against real Redis, SQLite, PostgreSQL and worker processes (LONG=1: those marked long too; DATABASES=both)
	$(PY) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m '$(SHORT)' tests/machine tests/integration $(if $(DATABASES),--databases $(DATABASES))

simulation: .venv/.dev ## 300 histories of faults in virtual time, every mutant, and what once broke
	$(PY) -m pytest -q -n 2 --dist worksteal tests/sim

chaos: .venv/.dev ## kill, freeze and cut off real processes; nothing is lost or run twice (SEEDS=n: n times each; FULL=1: longer)
	$(PY) -m pytest -q -n 4 --dist loadgroup -m '$(if $(FULL),,not long)' tests/chaos --seeds $(or $(SEEDS),1) $(if $(FULL),--full)

chaos-gangs: .venv/.dev ## one member of a gang fails in every way that is known, and is named (REPEAT=n: n times each); a gang over two networks
	$(PY) -m pytest -q tests/chaos/test_gang_members.py tests/chaos/test_gang_networks.py --seeds $(or $(REPEAT),1)

.PHONY: test-chips
test-chips: .venv/.dev ## plan programs for TPU slices from v2 to TPU7x and for GPUs by their compilers, which it adds to build/chips (RECORD=1: take their figures anew)
	PATH="$(CURDIR)/.uv/bin:$$PATH" .venv/bin/drumline worker compilers add tpu --data-dir build/chips --accept-licence
	PATH="$(CURDIR)/.uv/bin:$$PATH" .venv/bin/drumline worker compilers add gpu --data-dir build/chips --accept-licence
	PYTHONPATH=tests $(PY) -m chips.plan_all --data-dir build/chips $(if $(RECORD),--write)

.PHONY: test-traces
test-traces: .venv/.dev ## read public traces of real accelerators that lie in TRACES; tests/traces/public.json says where they are
	PYTHONPATH=tests $(PY) -m traces.read_public $(TRACES)

.PHONY: record-release
record-release: .venv/.dev ## live through a small world on both databases and keep what it leaves: data and traffic that later versions are held against
	PYTHONPATH=tests $(PY) -m release.record

conformance: .venv/.dev ## recorded TensorFlow behaviour
	$(PY) -m pytest -q tests/conformance

pythons: .venv/.dev ## the main job and quick tests on every further Python 3.11 to 3.14 that is found (PYTHONS='3.11 3.12' names them)
	$(PY) scripts/pythons.py --others --uv "$(UV)" --only "$(PYTHONS)" -- -n 2 --dist loadfile tests/slim $(QUICK) $(FOR_EACH_PYTHON)

test-pythons: .venv/.dev ## all of the engine's tests on every Python that is found, each with its newest JAX
	$(PY) scripts/pythons.py --uv "$(UV)" --only "$(PYTHONS)" -- -n 2 $(ENGINE)

e2e: .venv/.dev frontend/dist/index.html .venv/.chromium ## the main job through SDK, REST and browser (LONG=1: tests marked long too)
	$(PY) -m pytest -q -n 2 --dist loadfile -m '$(SHORT)' tests/e2e

frontend-test: frontend/dist/index.html ## the dashboard's own tests and budgets
	$(NPM) run test$(if $(DRUMLINE_TEST_REPORTS), -- --reporter=default --reporter=junit --outputFile.junit="$(DRUMLINE_TEST_REPORTS)/vitest.xml")
	$(NPM) run budget

.PHONY: tour
tour: .venv/.dev frontend/dist/index.html .venv/.chromium ## take the pictures of docs/tour.md from a world in which a bit of everything happens
	PYTHONPATH=tests $(PY) -m tour

bench: .venv/.dev frontend/dist/index.html ## timings of the main job; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/main_job.py

bench-engine: .venv/.dev ## a training step beside hand-written JAX, pmap and TensorFlow, and over two processes; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/engine.py
	PYTHONPATH=tests $(PY) tests/bench/gang.py

bench-accelerator: .venv/.dev ## a transformer in bfloat16 beside hand-written JAX on this machine's GPUs or TPUs; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/accelerator.py

bench-orchestration: .venv/.dev frontend/dist/index.html ## load on the server, runs at once, beside Ray Jobs; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/orchestration.py

bench-fairness: .venv/.dev ## what each route's costliest request costs everybody else; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/fairness.py

bench-telemetry: .venv/.dev frontend/dist/index.html ## values and lines arrive whole, and how soon; what logging costs a loop; 500 live clients; search of 5 million lines; beside MLflow's server (FACTOR=1: all points); JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/telemetry.py $(if $(FACTOR),--factor $(FACTOR))

.PHONY: bench-flood
bench-flood: .venv/.dev frontend/dist/index.html ## 1 GiB of output in a minute and a line of 100 MiB: memory of the server, and what other runs wait; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/flood.py

.PHONY: bench-fields
bench-fields: .venv/.dev ## 100 000 runs with 20 fields: any sort, filter, page and count, and submissions beside them; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/fields.py

.PHONY: bench-telemetry-storage
bench-telemetry-storage: .venv/.dev ## points of metrics on each database: rate, bytes, charts, reading out; LONG=1: 10 million; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/telemetry_storage.py $(if $(LONG),--long)

bench-ui: .venv/.dev frontend/dist/index.html .venv/.chromium ## how soon the dashboard draws curves in a browser that is held back; JSON in build/bench/
	PYTHONPATH=tests $(PY) tests/bench/ui.py

bench-peers: .venv-peers/.installed ## TensorFlow and Ray in an environment of their own, for the comparisons

.PHONY: bench-mlflow
bench-mlflow: .venv-mlflow/.installed ## MLflow's server in an environment of its own, for bench-telemetry

sim: .venv/.dev ## live through SEEDS histories of faults in virtual time, and catch every mutant; report in build/sim/
	PYTHONPATH=tests $(PY) -m sim --seeds $(or $(SEEDS),500)

machine: .venv/.dev ## EXAMPLES histories of users, workers and time through HTTP beside a model, on both databases
	DRUMLINE_MACHINE_EXAMPLES=$(or $(EXAMPLES),500) $(PY) -m pytest -q -n 2 tests/machine

fuzz: .venv/.dev ## REQUESTS odd requests to every route; report in build/fuzz/
	PYTHONPATH=tests $(PY) -m fuzz --requests $(or $(REQUESTS),10000)

house: .venv/.dev frontend/node_modules/.installed .venv/.chromium ## what a newcomer walks through: files, functions and crossings of five traces; JSON in build/house.json
	$(PY) -m scripts.house --uv "$(UV)"

surface: .venv/.dev ## take the snapshot of the public surface anew, which a test compares
	$(PY) -m scripts.house.surface --write

openapi: .venv/.dev frontend/node_modules/.installed ## write frontend/openapi.json and the dashboard's types
	$(PY) scripts/openapi.py
	$(NPM) run schema

.PHONY: openapi-check
openapi-check: .venv/.dev
	$(PY) scripts/openapi.py --check

build: .venv/.dev frontend/dist/index.html ## wheel and sdist in dist/
	$(UV) build --quiet

lock: $(if $(findstring .uv/,$(UV)),.uv/bin/uv) ## pin the requirement sets again
	UV=$(UV) scripts/lock.sh

clean: ## remove what make made
	rm -rf .venv .venv-* .uv .node build dist frontend/dist frontend/node_modules

# --- environments ----------------------------------------------------------------------------------------------------

define require-python
@$(PYTHON) -c '$(SUPPORTED)' >/dev/null 2>&1 || { \
  echo "$(PYTHON) starts no Python 3.11 to 3.14; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 1; }
endef

.uv/bin/uv: requirements/uv.txt
	$(require-python)
	$(PYTHON) -m venv --clear .uv
	.uv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt

.venv/bin/python: | $(if $(findstring .uv/,$(UV)),.uv/bin/uv)
	$(require-python)
	$(UV) venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys._base_executable)')" .venv

# An environment that another Python made is replaced, and all that was in it.
ifneq ($(WANTED),$(HAVE))
.PHONY: .venv/bin/python
.venv/.demo .venv/.dev: .venv/bin/python
endif

.venv/.demo: requirements/demo.txt pyproject.toml | .venv/bin/python
	$(UV) pip install --quiet --compile-bytecode --python $(PY) --require-hashes -r requirements/demo.txt
	$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: requirements/dev.txt pyproject.toml | .venv/bin/python
	$(UV) pip install --quiet --compile-bytecode --python $(PY) --require-hashes -r requirements/dev.txt
	$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@ .venv/.demo

.venv-peers/.installed: requirements/peers.txt | .venv/bin/python
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv-peers
	$(UV) pip install --quiet --python .venv-peers/bin/python --require-hashes -r $<
	@touch $@

.venv-mlflow/.installed: requirements/mlflow.txt | .venv/bin/python
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv-mlflow
	$(UV) pip install --quiet --python .venv-mlflow/bin/python --require-hashes -r $<
	@touch $@

.venv/.chromium: scripts/chromium.sh | .venv/bin/python
	@scripts/chromium.sh
	@touch $@

frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json | .venv/bin/python
	$(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

frontend/dist/index.html: frontend/node_modules/.installed $(DASHBOARD_SOURCES)
	@echo "Building the dashboard"
	@$(NPM) run --silent build -- --logLevel warn
