# Every target sets up what it needs: one .venv, shared by all of them. `make help` lists the targets.
#   PYTHON=python3.12     the interpreter to build .venv with (default: the first 3.11 or newer on the PATH)
#   TORCH="torch==2.13.0" what `make test-torch` installs as torch (the default); pip options are allowed in it
#   TRITONS="3.6.0 3.9.0" the versions of Triton that `make test-triton` compiles the kernels with (the default)
#   WORKERS=2             how many processes run the tests (default: one a core, at most 4)

PYTHON ?=
TORCH ?=
TRITONS ?= 3.6.0 3.9.0
WORKERS ?= auto
PYTEST_ARGS ?=

SETUP = PYTHON="$(PYTHON)" TORCH="$(TORCH)" sh scripts/setup_venv.sh
IN_VENV = .venv/bin/python -m
PYTEST = $(IN_VENV) pytest -n $(WORKERS) --maxprocesses=4 --dist=worksteal --durations=5

.PHONY: help demo test test-digests test-torch test-triton test-exhaustive lint format clean
.NOTPARALLEL:

help:
	@echo "make demo        set up and run the demonstration"
	@echo "make test        set up and run all tests that need no torch"
	@echo "make test-digests  every cast over all 2^32 inputs against recordings of an H200: minutes"
	@echo "make test-torch  set up and run the tests that need torch"
	@echo "make test-triton compile the GPU kernels with two versions of Triton; no GPU and no torch"
	@echo "make test-exhaustive  walk whole input spaces: the slowest tests; writes docs/exhaustive.md"
	@echo "make lint        ruff and pyright"
	@echo "make format      rewrite the sources as ruff formats them"
	@echo "make clean       remove .venv"

demo:
	@$(SETUP) plot
	$(IN_VENV) lpsim demo

test:
	@$(SETUP) plot test
	$(PYTEST) -m "not torch and not triton and not gpu and not exhaustive and not sweep" $(PYTEST_ARGS)

test-digests:
	@$(SETUP) plot test
	$(PYTEST) -m sweep $(PYTEST_ARGS)

test-torch:
	@$(SETUP) torch plot test
	$(PYTEST) -m "torch and not triton and not gpu and not exhaustive" $(PYTEST_ARGS)

# Triton alone, a folder a version: its packages want torch, which is gigabytes and is not needed to compile. The first
# version compiles everything; the others only what the kernels of `quantize` are made of.
test-triton:
	@$(SETUP) plot test
	@tests=; for version in $(TRITONS); do \
		folder=.venv/triton-$$version; \
		[ -d $$folder ] || { \
			rm -rf $$folder.partial; \
			$(IN_VENV) pip --disable-pip-version-check install --no-deps --quiet --target $$folder.partial triton==$$version && \
			mv $$folder.partial $$folder; } || exit 1; \
		echo "== Triton $$version"; \
		PYTHONPATH=$$folder $(PYTEST) -m "triton and not torch and not gpu" $(PYTEST_ARGS) $$tests || exit 1; \
		tests="tests/kernels/test_mirror.py tests/kernels/test_quantize_kernels.py"; \
	done

test-exhaustive:
	@$(SETUP) plot test
	$(PYTEST) -m "exhaustive and not torch and not triton and not gpu" -o junit_family=xunit1 --junitxml=.pytest_cache/exhaustive.xml $(PYTEST_ARGS)
	.venv/bin/python scripts/exhaustive_report.py .pytest_cache/exhaustive.xml > docs/exhaustive.md

lint:
	@$(SETUP) plot test dev
	$(IN_VENV) ruff check
	$(IN_VENV) ruff format --check
	$(IN_VENV) pyright

format:
	@$(SETUP) plot test dev
	$(IN_VENV) ruff check --fix
	$(IN_VENV) ruff format

clean:
	rm -rf .venv
