# Everything a developer or a CI machine does with this project. `make` alone prints the list.

.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
UV_VERSION := 0.13.9
UPGRADE ?= --upgrade

VENV := .venv
BIN := $(VENV)/bin
# Tests on Spark and Kafka wait half of their time: two processes run them, each with a broker and a Spark of its own. Two others,
# which give way to them, meanwhile run the tests that need neither, so that no core is idle when either group has ended.
# A process takes one file after the other, and imports it then: imported by all of them, the files cost more CPU than they need to.
TEST_PROCESSES ?= 2
IN_PROCESSES = -n $(TEST_PROCESSES) --dist load --maxschedchunk 1 -p tests.whole_files -o console_output_style=classic
MINUTES ?= 5
SEED ?=
# Tests start hundreds of Python processes: without bytecode, each compiles the engine again, for a third of the CPU of its start.
unexport PYTHONDONTWRITEBYTECODE
STAMP := $(VENV)/.installed
LOCK_VENV := build/lock-venv

.PHONY: help
help: ## Print this list
	@echo "usage: make TARGET [PYTHON=python3.x]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP) ## Install the locked dependencies and the project into .venv (instant when nothing changed)

# The build tools go in first, from the same lock: source distributions (pyspark) are then built with pinned tools.
# The stamp is written last, so an interrupted installation is taken up again; it needs no network when it is fresh.
$(STAMP): requirements.lock pyproject.toml scripts/check-prerequisites.sh scripts/find-spark-home
	@python=$$(scripts/check-prerequisites.sh "$(PYTHON)") && \
		echo "Installing into $(VENV) with $$($$python --version); this takes some minutes the first time." && \
		{ "$(BIN)/python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || "$$python" -m venv --clear $(VENV); }
	@awk '/^(packaging|setuptools|wheel)==/ { on = 1 } on { print } !/\\$$/ { on = 0 }' requirements.lock > $(VENV)/build-tools.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/build-tools.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e . # a plain path, which editors and mypy follow, not an import hook
	@cp scripts/find-spark-home $(BIN)/find-spark-home
	@echo "Compiling the kernels (kept on disk)."
	@$(BIN)/python -m streams.engine.spark.warm_up
	@echo "Recording Spark's classes, so that it starts with less CPU."
	@$(BIN)/python -m streams.driver.record_classes 2>/dev/null || \
		echo "That failed; Spark will start more slowly. $(BIN)/python -m streams.driver.record_classes tries again, and says why."
	@touch $(STAMP)

.PHONY: jars
jars: venv ## Fetch the jars of the embedded Kafka broker and of Delta Lake into the cache folder (once)
	@$(BIN)/streams broker fetch --delta

.PHONY: lint
lint: venv ## Check style, formatting, types and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_words.py

.PHONY: test
test: jars ## Check style and types, and run all tests but the long ones, on real Kafka brokers and real Spark
	@$(MAKE) --no-print-directory -k -j2 test-brokers test-others

.PHONY: test-brokers
test-brokers: jars
	$(BIN)/python -m pytest $(IN_PROCESSES) -m "kafka or spark"

.PHONY: test-others
test-others: venv
	nice -n 5 $(MAKE) --no-print-directory lint
	nice -n 5 $(BIN)/python -m pytest $(IN_PROCESSES) -m "not kafka and not spark"

.PHONY: test-long
test-long: jars ## Run the long tests and all examples of random tests: more cases of what `make test` proves (takes an hour or more)
	$(BIN)/python -m pytest $(IN_PROCESSES) --long

.PHONY: test-fast
test-fast: venv ## Run the tests that need neither Kafka nor Spark, without the slow ones, in a few minutes
	$(BIN)/python -m pytest $(IN_PROCESSES) -m "not kafka and not spark and not slow"

.PHONY: sim
sim: venv ## Play random histories of the commit protocol in a simulated world; SEED=n replays one with its log
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--count $(or $(COUNT),20000))
	$(if $(SEED),,$(BIN)/python -m pytest -q tests/simulation/crash_pairs.py)

.PHONY: crash-sweep
crash-sweep: jars ## Kill a worker at every pair of crash points on real Spark (takes long)
	$(BIN)/python -m pytest tests/spark/crash_sweep.py

.PHONY: serve-drills
serve-drills: jars ## A host lost, a large restore, a rescale and brokers away under streams serve; SERVE_DRILL_ROWS= is the rows (takes long)
	$(BIN)/python -m pytest -s tests/spark/serve_drills.py

.PHONY: oracle-live
oracle-live: jars ## Run all cases of both oracle suites in live execution on real Spark (takes long)
	$(BIN)/python -m tests.conformance --engine live tests/conformance/cases

KAFKA_VERSIONS ?= 3.9.2 4.0.1 4.1.1 4.2.1 4.4.0

.PHONY: kafka-versions
kafka-versions: venv ## Run the tests of what talks to brokers, and drill D02, on other versions of Kafka; KAFKA_VERSIONS="4.0.1 ..."
	@set -e; for version in $(KAFKA_VERSIONS); do \
		echo "Kafka $$version"; export STREAMS_KAFKA_VERSION=$$version; $(BIN)/streams broker fetch; \
		$(BIN)/python -m pytest -q -m "kafka and not spark" tests/kafka_client tests/commit tests/restore tests/live tests/faults \
			tests/broker/test_broker_cli.py; \
		$(BIN)/streams drill run D02; \
	done

.PHONY: docs-check
docs-check: jars ## Back up, damage and restore an application as docs/operate/procedures.md says (takes minutes)
	$(BIN)/python -m pytest tests/docs/procedures.py

.PHONY: drills
drills: jars ## Hold every fault drill in both executions and write the pages of results (takes up to two hours)
	$(BIN)/streams drill run all --report docs/drills.md
	$(BIN)/streams drill run all --execution micro-batch --report docs/drills-micro-batches.md

.PHONY: chaos
chaos: jars ## Random blows under load, verified; SEED= repeats a run, MINUTES= is how long blows fall
	$(BIN)/streams drill run D30 --minutes $(MINUTES) --seed $(or $(SEED),$(shell date +%s))

.PHONY: demo
demo: jars ## Show the engine at work: a broker, a topology, a crash and its recovery
	$(BIN)/python -m topologies.demo

.PHONY: demo-lake
demo-lake: jars ## Show flights in Delta tables: exact through a kill, queried by SQL, compared
	$(BIN)/python -m topologies.demo_lake

.PHONY: bench
bench: jars ## Run the benchmark of 1000 devices and print its figures
	$(BIN)/python -m benchmarks run devices --no-save

.PHONY: peers
peers: venv ## Set up the systems that the benchmarks compare with, each in a folder of its own below build/peers
	@$(BIN)/python -m benchmarks.peers.environments

SITE_VENV := build/site-venv

.PHONY: interop
interop: jars ## Take over a Kafka Streams application in Java and hand it back, twice, on a real broker; compare results and stores
	$(BIN)/python -m tests.interop

.PHONY: site-venv
site-venv: venv
	@[ -e $(SITE_VENV)/.installed ] && [ $(SITE_VENV)/.installed -nt scripts/site-requirements.lock ] || { \
		$(BIN)/python -m venv --clear $(SITE_VENV) && \
		$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
			-r scripts/site-requirements.lock && touch $(SITE_VENV)/.installed; }

.PHONY: site
site: site-venv ## Build the documentation site into build/site, with the pages of the API (needs Python 3.11 or newer)
	@$(BIN)/python scripts/site.py $(SITE_VENV)/bin/zensical

.PHONY: changelog
changelog: site-venv ## Write the fragments of .changelog into CHANGELOG.md, under VERSION, and delete them
	$(SITE_VENV)/bin/towncrier build --yes --version $(VERSION)

.PHONY: lock
lock: ## Resolve the dependencies anew into requirements.lock; UPGRADE= keeps the versions that are there
	@python=$$(scripts/check-prerequisites.sh "$(PYTHON)") && "$$python" -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(LOCK_VENV)/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.10 --no-python-downloads \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-package streams-on-spark \
		--custom-compile-command "make lock" --output-file requirements.lock requirements.in
	$(LOCK_VENV)/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --no-python-downloads \
		--generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --output-file scripts/site-requirements.lock scripts/site-requirements.in

.PHONY: dist
dist: venv ## Build the wheel and the source distribution into dist
	$(BIN)/python -m build --no-isolation

.PHONY: release-check
release-check: ## Play the first minutes of a user with the wheel in an empty environment; ARGS="--lowest", "--python 3.12", ...
	@python=$$(scripts/check-prerequisites.sh "$(PYTHON)") && "$$python" -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) build
	PATH="$(CURDIR)/$(LOCK_VENV)/bin:$$PATH" $(LOCK_VENV)/bin/python scripts/check_release.py $(ARGS)

.PHONY: clean
clean: ## Remove the virtual environment and everything generated (the jar cache stays)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
