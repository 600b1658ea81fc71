# Everything runs in the environment below .venv: on a fresh clone `make demo` needs Python 3.11+ and Java 17.

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The longest first.
LANES := test-chaos test-spark test-kafka-faults test-kafka test-faults test-contract test-programs test-rest
AZURITE := tests/azurite/node_modules/.installed

# Spark starts its workers with the first python3 on PATH, unless told otherwise.
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python

# Without its files compiled, each process would compile all that it imports; a run starts thousands.
unexport PYTHONDONTWRITEBYTECODE

# Spark puts pyspark's sources in a zip first on the path of each kind of worker, and what Python compiles of a zip it
# does not keep: a second of processor time, seven times a session. The same modules are installed.
PASS_THE_ZIP_BY := import sys; sys.path[:] = [each for each in sys.path if not each.endswith("pyspark.zip")]

.DEFAULT_GOAL := help
.PHONY: help env check format unit test test-full $(LANES) test-one-by-one mutants chaos chaos-mutants demo demo-kafka kafka kafka-jars bench bench-scale clean needs-java

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP) $(if $(shell command -v npm),$(AZURITE)) ## make the environment: .venv, and the Azure test server where node is

# Python's files are compiled when they are first imported, and most never are: to compile all takes the longest.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test,demo,bench]'
	echo '$(PASS_THE_ZIP_BY)' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/compiled.pth"
	@touch $@

# Install scripts are not needed, so nothing that is downloaded runs before a test starts it.
$(AZURITE): tests/azurite/package-lock.json
	npm ci --prefix tests/azurite --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

needs-java: ## fail early, and say so, when there is no Java
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version >/dev/null 2>&1 || \
		{ echo "Java 17 or newer is needed: install it, or set JAVA_HOME" >&2; exit 1; }

check: $(STAMP) ## lint, formatting, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

unit: $(STAMP) ## the tests that need no JVM, server or browser: three minutes
	$(BIN)/python -m pytest -m "not spark and not s3 and not azure and not cluster and not kafka and not browser"

# Most of a test's time is waiting, so three lanes run at a time. Each has, and ends, its own brokers and JVMs.
CHOSEN := -m "not full"
TOGETHER := --jobs=3 --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

test: env ## the environment and the tests, in lanes that are targets too: test-spark and so on
	@$(MAKE) --no-print-directory $(TOGETHER) $(LANES)

test-full: ## as test, and what it leaves out: see CONTRIBUTING.md
	@$(MAKE) --no-print-directory test CHOSEN=
	@$(MAKE) --no-print-directory test-one-by-one

test-kafka: env needs-java kafka-jars ## the tests on brokers that are well
	$(BIN)/python -m pytest $(CHOSEN) --ignore=tests/kafka/faults tests/kafka

test-kafka-faults: env needs-java kafka-jars ## the tests on brokers that stand still, die, or are cut off
	$(BIN)/python -m pytest $(CHOSEN) tests/kafka/faults

test-one-by-one: env needs-java kafka-jars ## the tests on brokers, with the producer for where librdkafka is not found
	$(BIN)/python -m pytest $(CHOSEN) --one-by-one tests/kafka

test-chaos test-contract test-faults test-programs test-spark: test-%: env needs-java kafka-jars
	$(BIN)/python -m pytest $(CHOSEN) tests/$*

test-rest: env needs-java kafka-jars ## the tests that no other lane has
	$(BIN)/python -m pytest $(CHOSEN) $(addprefix --ignore=tests/,chaos contract faults kafka programs spark)

mutants: env needs-java kafka-jars ## plant known defects one by one, and see that the tests notice each
	$(BIN)/python -m tests.mutants

BACKEND := all
SEED := 1
MINUTES := 1

chaos: env needs-java kafka-jars ## random faults, then whether clients were told the truth: BACKEND, SEED, MINUTES
	$(BIN)/python -m tests.chaos --backend $(BACKEND) --seed $(SEED) --minutes $(MINUTES) --into build/chaos

chaos-mutants: env needs-java kafka-jars ## plant known defects one by one, and see that chaos notices each
	$(BIN)/python -m tests.chaos.planted

demo: $(STAMP) needs-java ## the environment, then real flights loaded twice, a stale writer refused, the state read back
	SPARK_CONF_DIR=$(CURDIR)/conf $(BIN)/python jobs/demo.py

demo-kafka: $(STAMP) needs-java kafka-jars ## the same on a Kafka broker that it starts; an ordinary producer barges in
	SPARK_CONF_DIR=$(CURDIR)/conf $(BIN)/python jobs/demo_kafka.py

kafka: $(STAMP) needs-java kafka-jars ## one Kafka broker in the foreground, for trying things out; Ctrl-C ends it
	@$(BIN)/python -m spark_cas.testing.kafka_broker --conf conf/kafka

# Apart, for the first download may take longer than a test may.
kafka-jars: $(STAMP) needs-java ## the jars of a Kafka broker, resolved once into a cache
	@$(BIN)/python -m spark_cas.testing.kafka_broker --jars-only

bench: $(STAMP) needs-java ## speed and memory against Spark's own parquet and Kafka; writes build/bench.json
	SPARK_CONF_DIR=$(CURDIR)/conf $(BIN)/python -m benchmarks

bench-scale: $(STAMP) needs-java kafka-jars ## how cost grows with rows, partitions, chunks and executors; draws build/growth
	SPARK_CONF_DIR=$(CURDIR)/conf $(BIN)/python -m benchmarks.scale

clean: ## remove the environment and all that was built
	rm -rf .venv build dist spark-warehouse metastore_db derby.log tests/azurite/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find spark_cas jobs benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
