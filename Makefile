# `make run` is the place to start. Every target sets up what it needs and then calls
# ordinary tools; `make PYTHON=/path/to/python3 ...` chooses the interpreter.

BIN := .venv/bin
# The tested versions of everything; `make PIP_CONSTRAINT= test` takes the newest.
PIP_CONSTRAINT ?= .ci/constraints.txt .ci/torch.txt
unexport PIP_CONSTRAINT
# The oldest versions that pyproject.toml allows, such as torch==2.7.
LOWER := $(shell sed -n 's/^ *"\(torch[a-z]*\)>=\([0-9.]*\)",/\1==\2/p' pyproject.toml)

.DEFAULT_GOAL := run
.PHONY: run test lab check bench bench-peers soak audiences pictures gpu wheel lock clean
.PHONY: setup setup-lower setup-lock setup-peers

# Measure how training scales on this machine, and print the answer.
run: setup
	@mkdir -p build
	@echo "run: notebooks/scaling.ipynb into build/scaling.ipynb (some minutes)"
	@$(BIN)/papermill --stdout-file - --log-level WARNING --no-progress-bar \
	  notebooks/scaling.ipynb build/scaling.ipynb
	@echo
	@$(BIN)/python -m nbkit.study.headline build/scaling.ipynb
	@echo "           make lab opens JupyterLab; the notebook is in its folder build"

# Everything that has to hold before a change is kept.
test: export COMMANDS = chromium:chromium fio:fio sbatch:slurm-wlm /usr/sbin/slurmd:slurm-wlm
test: check
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --durations=20

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo
	cd labextension && export PATH="$(CURDIR)/$(BIN):$$PATH" && \
	  jlpm install --immutable >/dev/null && jlpm check

# make lab ARGS="--no-browser --port 8889"; JupyterLab refuses root unless told.
lab: setup
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) \
	  --LabApp.default_url=/lab/tree/notebooks $(ARGS)

# nbkit's own budgets; writes build/bench.json. Images are read from the built-in set, or
# from another: make bench DATA=/path/to/images.
DATA ?= photos
bench: export COMMANDS = fio:fio
bench: setup
	NBKIT_BENCH_DATA=$(DATA) $(BIN)/python tests/bench/run.py

# The same against other tools, which get an environment of their own.
bench-peers: setup-peers
	.venv-peers/bin/python tests/bench/peers.py

# Hours: every fault many times, and the worker with the oldest torch that is allowed.
soak: setup setup-lower
	$(BIN)/python -m pytest tests/soak
	.venv-lower/bin/python -m pytest tests/launch tests/worker -m "not gpu"

# What README.md tells each kind of reader to type, from nothing; writes
# build/audiences.json.
audiences: export COMMANDS = sbatch:slurm-wlm /usr/sbin/slurmd:slurm-wlm
audiences: setup
	$(BIN)/python -m tests.soak.audiences

# README.md's pictures of a real JupyterLab, into .github/pictures/.
pictures: export COMMANDS = chromium:chromium
pictures: setup
	$(BIN)/python -m tests.pictures

# On a machine with an NVIDIA GPU.
gpu: setup
	$(BIN)/python tests/gpu/matrix.py

# The wheel, and the sdist, into dist/.
wheel: setup
	export PATH="$(CURDIR)/$(BIN):$$PATH" && $(BIN)/python -m hatchling build

# The newest versions that fit together, for every Python, into .ci/constraints.txt.
lock: setup-lock
	build/lock/bin/uv pip compile pyproject.toml --group dev --upgrade --quiet \
	  --output-file .ci/constraints.txt

# Everything that make has made.
clean:
	rm -rf build dist .venv .venv-lower .venv-peers
	rm -rf nbkit/labextension $(addprefix labextension/,lib node_modules .yarn)
	rm -rf .pytest_cache .ruff_cache .import_linter_cache
	find nbkit tests -name __pycache__ -prune -exec rm -rf {} +

setup:
	@PIP_CONSTRAINT="$(PIP_CONSTRAINT)" .ci/setup .venv -e '.[all]' --group dev

setup-lower:
	@.ci/setup .venv-lower -e '.[all]' --group test $(LOWER)

setup-lock:
	@.ci/setup build/lock --group lock

setup-peers:
	@.ci/setup .venv-peers -e '.[train]' --group peers
