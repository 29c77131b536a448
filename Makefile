# The targets, for GNU make 3.81 or later; `make help` lists them.
#   PYTHON=python3.12  builds the environment with that interpreter
#   TORCH=cpu          takes torch's CPU build: see docs/commands.md
#   CORES=2            cores that snakemake may use
#   TIER=embedded      the tier that publish, bundle and clean-results act on
#   HOURS=8            CPU hours that decide may spend

CORES ?= all
TIER ?= embedded
PYTHON ?=

BIN := .venv/bin
IN_ENV = PATH="$(CURDIR)/$(BIN):$$PATH"
# With one line that says where the run stands in place of Snakemake's log.
RUN = DPATLAS_STANDING=1 $(IN_ENV) snakemake --quiet host --cores $(CORES)
# One process per core, one thread per process.
PYTEST = OMP_NUM_THREADS=1 $(IN_ENV) pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: all first help setup smoke test test-all paper-mini lint format docs lock lock-uv decide publish bundle wheel clean clean-results

all: setup ## set up, run the default tier and say where its page is (the default)
	@$(RUN)
	@echo "open results/embedded/report/index.html in a browser"

first: setup ## set up, then one exact result in a minute: its figure, its tests and its verdict
	@$(RUN) first
	@cat results/embedded/first/finding.txt

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv and install what the lock names; nothing to do the second time
	@PYTHON='$(PYTHON)' sh tools/setup.sh

smoke: setup ## run every rule once on tiny settings
	@$(RUN) --configfile workflow/tiers/smoke.yaml
	@echo "open results/smoke/report/index.html in a browser (its numbers mean nothing)"

test: setup ## the tests, without those marked slow
	@$(PYTEST) -m "not slow"

test-all: setup ## those, and what needs minutes: faults, documents, a real Slurm
	@$(PYTEST) -m "not mini"

paper-mini: setup ## run the printed and the paper tier end to end on miniature data sets and weight files
	@OMP_NUM_THREADS=1 $(IN_ENV) pytest -s tests/workflow/test_paper_mini.py

lint: setup ## ruff, mypy, snakefmt and snakemake --lint; changes nothing
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/snakefmt --check Snakefile workflow
	@$(IN_ENV) snakemake --lint

format: setup ## ruff and snakefmt, writing
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@$(BIN)/snakefmt Snakefile workflow

docs: setup ## build the documentation into site/, with packages in an environment of their own
	@sh tools/docs.sh
	@echo "open site/index.html in a browser"

lock: setup ## resolve requirements.in anew; LOCK_FLAGS=--upgrade moves pins that still fit
	@for name in requirements requirements-docs requirements-models; do \
		$(BIN)/uv pip compile -q --universal --python-version 3.11 --prerelease disallow --generate-hashes --no-emit-index-url --no-header --no-annotate $(LOCK_FLAGS) $$name.in -o $$name.lock || exit; \
	done
	@echo "requirements.lock is fresh: update environment.yml, then run make test"

lock-uv: setup ## pin another uv: make lock-uv UV=X.Y.Z
	@test -n "$(UV)" || { echo "name the version: make lock-uv UV=X.Y.Z" >&2; exit 2; }
	@echo "uv==$(UV)" | $(BIN)/uv pip compile -q - --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements-uv.lock

decide: setup ## more runs where they decide most: make decide HOURS=8 (CPU hours), then the page
	@test -n "$(HOURS)" || { echo "HOURS: missing; allowed: CPU hours, such as make decide HOURS=8" >&2; exit 2; }
	@$(IN_ENV) python -m dpatlas decide --hours $(HOURS) --cores $(CORES)
	@$(RUN)

publish: setup ## copy the summaries of a complete run to docs/results: make publish TIER=embedded
	@$(IN_ENV) python -m dpatlas publish --tier $(TIER)

bundle: setup ## write the raw records of a complete run as one archive: make bundle TIER=embedded
	@$(IN_ENV) python -m dpatlas bundle --tier $(TIER)

wheel: setup ## build dist/dp_atlas-*.whl, the package that needs no checkout
	@$(IN_ENV) python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

# .snakemake stays: it holds what made each result, and without it an edit would re-run nothing.
clean: ## remove caches of tests and tools; .venv, results and .snakemake stay
	@echo "removing .pytest_cache .ruff_cache .mypy_cache .hypothesis build and __pycache__ folders"
	@rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis build
	@find . \( -path ./.venv -o -path ./.snakemake -o -path ./results -o -path ./.git \) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

clean-results: ## remove one tier's results after asking: make clean-results TIER=smoke
	@case "$(TIER)" in *[!A-Za-z0-9_-]*|"") echo "TIER: found '$(TIER)'; allowed: letters, digits, - and _" >&2; exit 2;; esac
	@test -d "results/$(TIER)" || { echo "results/$(TIER) is not there"; exit 0; }; \
	printf 'remove results/%s? [y/N] ' "$(TIER)"; read answer || answer=; \
	if [ "$$answer" = y ]; then rm -rf "results/$(TIER)"; echo removed; else echo kept; fi
