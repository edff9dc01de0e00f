# `make run` is the place to start. Every target sets up what it needs and then calls
# ordinary tools; `make PYTHON=/path/to/python3 ...` chooses the interpreter, and
# `make PIP_CONSTRAINT= ...` the newest of everything.

BIN := .venv/bin
# The tested versions of everything, unless constraints of pip's own are named.
LOCK := $(if $(filter undefined,$(origin PIP_CONSTRAINT)),--lock)
# Debian's Chromium without windows: a page of JupyterLab takes it a fifth less CPU time.
BROWSER := chromium-headless-shell
# The oldest Python that pyproject.toml allows.
OLDEST := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)

.DEFAULT_GOAL := run
.PHONY: run test quick lab check types python typescript without-processes
.PHONY: test-newest test-lowest
.PHONY: golden bench bench-peers soak
.PHONY: audiences pictures gpu gpu-kit wheel lock
.PHONY: clean setup setup-blame setup-lock setup-lowest setup-newest setup-peers

# Measure how training scales on this machine, and print the answer.
run: setup
	@mkdir -p build
	@echo "run: notebooks/scaling.ipynb into build/scaling.ipynb (some minutes)"
	@$(BIN)/papermill --stdout-file - --log-level WARNING --no-progress-bar \
	  notebooks/scaling.ipynb build/scaling.ipynb
	@echo
	@$(BIN)/python -m nbkit.reports.headline build/scaling.ipynb
	@echo "           make lab opens JupyterLab; the notebook is in its folder build"

# Everything that has to hold before a change is kept. Each of its processes would compile
# what it imports where bytecode is not kept.
test test-newest test-lowest quick: export PYTHONDONTWRITEBYTECODE =
test test-newest test-lowest soak: export COMMANDS = $(BROWSER):$(BROWSER) fio:fio sbatch:slurm-wlm /usr/sbin/slurmd:slurm-wlm
# More processes than CPUs: many tests wait for a state. One for which time ran out runs
# once more, and the summary names it (RERUN).
RERUNS := --reruns=1 --only-rerun='AssertionError: waited ' \
  --only-rerun='AssertionError: Locator expected' \
  --only-rerun='Timeout(Error|Expired|Exception| \(>)' \
  --only-rerun='Address already in use'
test: check
	$(BIN)/python -m pytest --numprocesses=4 --durations=20 \
	  --durations-to=build/durations.tsv -raR $(RERUNS)

# The same tests with the newest of everything, in .venv-newest; the result is in
# build/newest. What fails is run with the lock and one newer package at a time, in
# .venv-blame. TESTS="tests/launch" takes these alone.
test-newest: setup-lock
	build/lock/bin/python -m tests.newest $(TESTS)

# With the oldest versions that pyproject.toml allows, on the oldest Python: what
# computes, records and serves. Their warnings are those of their time.
LOWEST_TESTS := $(addprefix tests/,cli config datasets estimates launch questions readspeed \
  references reports reproduction review server statistics store studies telemetry \
  widgets worker)
test-lowest: export WHOLE_TORCH = 1
test-lowest: setup-lowest
	.venv-lowest/bin/python -m pytest --numprocesses=4 -W default -m "not gpu" \
	  $(or $(TESTS),$(LOWEST_TESTS))

check: setup
	@$(MAKE) --no-print-directory --jobs --output-sync types python typescript

types:
	$(BIN)/pyright

python:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell *.md nbkit notebooks tests labextension

typescript:
	cd labextension && export PATH="$(CURDIR)/$(BIN):$$PATH" && \
	  jlpm install --immutable >/dev/null && jlpm check

# Take today's reports for those that tests/golden expects: their words alone, with
# NUMBERS=1 their numbers too. CASES="scaling/gpu precision/cpu" takes these alone.
golden: setup
	NUMBERS=$(NUMBERS) $(BIN)/python -m tests.golden.accept $(CASES)

# make lab ARGS="--no-browser --port 8889"; JupyterLab refuses root unless told.
# It opens an empty folder, for copies of the notebooks by the launcher's tiles.
lab: setup
	mkdir -p build/notebooks
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) \
	  --LabApp.default_url=/lab/tree/build/notebooks $(ARGS)

# While one works: what starts no process.
quick: setup
	@$(MAKE) --no-print-directory --jobs --output-sync types python without-processes

without-processes:
	$(BIN)/python -m pytest --numprocesses=2 --dist worksteal --without-processes --quiet

# nbkit's own budgets; writes build/bench.json. Images are read from the built-in set, or
# from another: make bench DATA=/path/to/images.
DATA ?= photos
bench: export COMMANDS = fio:fio
bench: setup
	NBKIT_BENCH_DATA=$(DATA) $(BIN)/python tests/bench/run.py

# The same against other tools, which get an environment of their own.
bench-peers: setup-peers
	.venv-peers/bin/python tests/bench/peers.py

# Hours: every fault many times, and slow tests of what is rare.
soak: export WHOLE_TORCH = 1
soak: setup setup-peers
	$(BIN)/python -m pytest tests/soak
	.venv-peers/bin/python -m pytest tests/soak/test_trackers.py tests/soak/test_trainer.py \
	  tests/soak/test_trainer_pages.py

# What README.md tells each kind of reader to type, from nothing; writes
# build/audiences.json.
audiences: export COMMANDS = sbatch:slurm-wlm /usr/sbin/slurmd:slurm-wlm
audiences: setup
	$(BIN)/python -m tests.soak.audiences

# The pages' pictures of a real JupyterLab, into .github/pictures/.
pictures: export COMMANDS = $(BROWSER):$(BROWSER)
pictures: setup
	$(BIN)/python -m tests.soak.pictures

# What only a GPU can settle, in three commands of 8 minutes: right, holds and fast. It
# installs nothing: make gpu PYTHON=/path/to/python names an environment with torch.
gpu:
	$(or $(PYTHON),$(wildcard $(BIN)/python),python3) tests/gpu/slot.py right holds fast

# The same for a machine without a network, into build/gpu-kit, for the Python of that
# machine: make gpu-kit PYTHON=3.12
gpu-kit:
	@$(MAKE) --no-print-directory setup PYTHON=
	$(BIN)/python tests/gpu/kit.py $(or $(PYTHON),3.12)

# The wheel, and the sdist, into dist/.
wheel: setup
	export PATH="$(CURDIR)/$(BIN):$$PATH" && $(BIN)/python -m hatchling build

# The newest versions that fit together, for every Python: PyTorch and what it brings into
# .ci/torch.txt, all else into .ci/constraints.txt, the hashes of its files into
# .ci/requirements.lock, and for Binder into .ci/binder.lock. Caps of the lock alone, each
# with its reason, belong into .ci/lock.in. UPGRADE= keeps versions that still fit.
UPGRADE := --upgrade
COMPILE := build/lock/bin/uv pip compile pyproject.toml --quiet
EVERYTHING := .ci/lock.in --extra all --group dev
# pyproject.toml leaves PyTorch out.
WITH_TORCH := --no-config --universal --python-version 3.11 --only-binary :all: \
  --no-annotate --no-header
HASHED := --constraint .ci/constraints.txt --generate-hashes
lock: setup-lock
	cat .ci/constraints.txt .ci/torch.txt >build/lock/all.txt
	$(COMPILE) $(EVERYTHING) $(WITH_TORCH) $(UPGRADE) --output-file build/lock/all.txt
	$(COMPILE) $(EVERYTHING) --constraint build/lock/all.txt --upgrade \
	  --output-file .ci/constraints.txt
	(head --lines=2 .ci/torch.txt && grep --fixed-strings --line-regexp --invert-match \
	  --file=.ci/constraints.txt build/lock/all.txt) >build/lock/torch.txt
	mv build/lock/torch.txt .ci/torch.txt
	$(COMPILE) $(EVERYTHING) $(HASHED) --upgrade --output-file .ci/requirements.lock
	$(COMPILE) --extra train $(HASHED) --upgrade --output-file .ci/binder.lock

# Everything that make has made.
clean:
	rm -rf build dist .venv $(addprefix .venv-,blame lowest newest peers)
	rm -rf nbkit/labextension $(addprefix labextension/,lib node_modules .yarn)
	rm -rf .pytest_cache .ruff_cache .import_linter_cache
	find nbkit tests -name __pycache__ -prune -exec rm -rf {} +

setup:
	@.ci/setup $(LOCK) .venv -e '.[all]' --group dev

# What is changed to find which package makes tests fail.
setup-blame:
	@.ci/setup --lock .venv-blame -e '.[all]' --group dev

setup-lock:
	@.ci/setup build/lock --group lock

# Bounds of nbkit itself and of its tests; what these bring is the newest that fits.
setup-lowest: setup-lock
	build/lock/bin/uv venv --quiet --clear --seed --python $(OLDEST) .venv-lowest
	build/lock/bin/uv pip install --quiet --no-config --python .venv-lowest/bin/python \
	  --resolution lowest-direct -e '.[train,dali]' --group test

setup-newest:
	@PIP_CONSTRAINT= .ci/setup --upgrade .venv-newest -e '.[all]' --group dev

setup-peers:
	@.ci/setup .venv-peers -e '.[train]' --group peers --group test
