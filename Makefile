# Needs git, make and Python 3.11 or newer; everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
APP := .venv/.stamp-app
DEV := .venv/.stamp-dev
DOCS := .venv/.stamp-docs
# pytest-xdist runs two processes: one BLAS thread each, or they fight over the cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# scikit-learn's own array-API tests skip themselves unless SciPy's switch is on.
BORROWED := tests/estimators/test_sklearn_pca.py tests/estimators/test_estimator_checks.py

.DEFAULT_GOAL := help
.PHONY: demo docs pages test test-slow test-oldest test-newest release mutants fuzz audit shapes
.PHONY: bench lint format types clean help

demo: $(APP)  ## Fit models to handwritten digits, write dualpca-demo.html
	$(BIN)/dualpca demo

test: lint types  ## Run every check but the slow tests
	tests/install_chromium.sh
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m "not slow"
	$(ONE_THREAD) SCIPY_ARRAY_API=1 $(BIN)/pytest -n 2 -q -k array_api $(BORROWED)

# pytest's exit status 5 says that nothing was collected: there are no slow tests.
test-slow: $(DEV)  ## Run the slow tests
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m slow || { status=$$?; [ $$status -eq 5 ] || exit $$status; }

# Environments of their own: the oldest Python and packages that pyproject.toml allows, and the
# newest Python with the packages of constraints.txt. Pages and a browser are left to `make test`.
OLDEST_PYTHON ?= python3.11
NEWEST_PYTHON ?= python3.13
ELSEWHERE := --ignore=tests/docs --ignore=tests/app/test_explorer_browser.py
OTHERS := -q -n 2 -m "not slow" $(ELSEWHERE)
test-oldest:  ## Run the tests with the oldest versions that pyproject.toml allows
	$(OLDEST_PYTHON) -m venv --clear .venv-oldest
	$(OLDEST_PYTHON) -m tools.oldest > .venv-oldest/requirements.txt
	.venv-oldest/bin/python -m pip install -q --prefer-binary -r .venv-oldest/requirements.txt -e .
	$(ONE_THREAD) .venv-oldest/bin/pytest $(OTHERS)

test-newest:  ## Run the tests on the newest Python: NEWEST_PYTHON=/path/to/python3
	$(NEWEST_PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install -q --prefer-binary -c constraints.txt \
	  -e '.[app,dask,dev,onnx,search]'
	$(ONE_THREAD) .venv-newest/bin/pytest $(OTHERS)

release: $(DEV)  ## Check version and changelog, build dist/ and look into it
	$(BIN)/python -m tools.release

# Faults put in one at a time: docs/design/tests.md. What was measured once is used again;
# SEED=n draws the same faults as before.
SEED ?= $(shell $(PYTHON) -c 'import secrets; print(secrets.randbelow(10**6))')
COUNT ?= 240
BUDGET ?= 7200
mutants: $(DEV)  ## Put faults into the package and see which no test notices (hours)
	$(BIN)/python -m tools.mutants coverage --budget $(BUDGET)
	$(BIN)/python -m tools.mutants run --seed $(SEED) --count $(COUNT) --budget $(BUDGET)

SECONDS ?= 60
fuzz: $(DEV)  ## Hand hostile files to everything that reads files, for SECONDS
	$(BIN)/python -m tools.fuzz --seconds $(SECONDS)

shapes: $(DEV)  ## Fit every model to tables of odd shapes, for SECONDS
	$(BIN)/python -m tools.shapes --seconds $(SECONDS)

# AUDIT=--online asks for known vulnerabilities; tools/audit.py says how to do so without a network.
audit: $(DEV)  ## List dependencies, their licences and known vulnerabilities
	$(BIN)/python -m tools.audit $(AUDIT)

bench: $(DEV)  ## Compare with other libraries, write docs/benchmarks.md and a summary
	$(BIN)/python -m benchmarks $(SECTIONS)

docs: $(DOCS)  ## Build the documentation into site/; a warning is an error
	$(BIN)/dualpca reproduce -o docs/_extra/reproduced
	MPLBACKEND=agg $(BIN)/sphinx-build -q -W --keep-going -b html docs site
	$(BIN)/python docs/check_site.py site
	$(BIN)/codespell docs README.md CONTRIBUTING.md CHANGELOG.md examples src
	@echo "open site/index.html"

pages: $(DEV)  ## Run README, first steps and guides in new environments, as a newcomer would
	$(ONE_THREAD) $(BIN)/python -m tests.docs.clean

lint: $(DEV)  ## Check formatting, style and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

format: $(DEV)  ## Reformat the code and mend what can be mended
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: $(DEV)  ## Check the types
	$(BIN)/mypy

clean:  ## Remove caches and outputs, keep the environments
	rm -rf build dist site docs/_extra docs/gallery docs/reference/generated benchmarks/out
	rm -f dualpca-demo.html dualpca-demo.dpca dualpca-demo.csv
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path './.venv*' -prune -o -type d -name __pycache__ -exec rm -rf {} +

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dualpca needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv

# Stamps make the second run fast; the development environment contains the application's.
$(APP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[app]'
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[app,dask,dev,onnx,search]'
	@touch $(APP) $@

$(DOCS): $(DEV)
	$(PIP) -c constraints.txt -e '.[app,dask,dev,docs,onnx,search]'
	@touch $@
