# Every task has one name, for people and for CI. `make` alone lists them.
SETUP := sh kernel/setup/python.sh
COMMAND := $(SETUP) kernel/setup
RUN := $(COMMAND) exec

.DEFAULT_GOAL := help
.PHONY: help lab test test-full lint bench op widget print-env wheel env build lock

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

lab: ## set up, build, and open JupyterLab at the first notebook (LAB_ARGS="--no-browser" and the like are passed on)
	@$(COMMAND) lab $(LAB_ARGS)

test: ## set up, build and run the tests; prints what each stage took
	@$(SETUP) tests/stages.py

test-full: ## the same with the long tests too, and no time limits
	@$(SETUP) tests/stages.py --full

lint: ## formatting, lints and documentation of Rust and Python
	@$(COMMAND) lint

bench: build ## time per op beside a raw PJRT loop, and beside the peer where it is installed
	@$(RUN) python tests/bench/overhead.py $(BENCH_ARGS)

op: build ## one operator's tests: make op OP=sinc
	@test -n "$(OP)" || { echo 'name the operator: make op OP=sinc' >&2; exit 2; }
	@$(RUN) python -m pytest tests/ops --op $(OP)

widget: ## build the notebook widget's committed bundle (needs Node; nothing else does but its tests)
	@$(COMMAND) widget

print-env: ## print the folder of the Python environment
	@$(COMMAND) print-env

wheel: ## build a wheel into dist/, for an existing environment with a torch of the same minor version
	@$(COMMAND) wheel

env: ## make the Python environment, nothing else
	@$(COMMAND) env

build: ## build the Rust libraries and put them into the Python package
	@$(COMMAND) build

lock: ## write the lock files of the Python environment anew (LOCK_ARGS=--upgrade takes newer versions)
	@$(COMMAND) lock $(LOCK_ARGS)
