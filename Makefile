# Two commands: `make run` shows the demo cluster, `make test` runs the tests. Each sets up what it needs by itself.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
DATA   ?= .trueload/demo

# An install is out of date when one of these is newer: the metadata, the pinned versions, the build hook, the C parts.
C_PARTS   := $(wildcard collector/*/*.c collector/*/*.h collector/*/*/*.c collector/*/*/*.h)
INSTALLED := pyproject.toml constraints.txt $(wildcard build_native.py) $(C_PARTS)

.DEFAULT_GOAL := help
.PHONY: help run test lint types docs check wheel constraints clean

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' $(MAKEFILE_LIST)

run: $(VENV)/.ready-to-run ## show the demo cluster: server, pages, findings
	@$(BIN)/trueload up --demo --data $(DATA) $(RUN_ARGS)

test: $(VENV)/.ready-to-test ## run the tests; TEST_ARGS="tests/analysis -k gaps" narrows them
	@$(BIN)/python -m pytest $(TEST_ARGS)

lint: $(VENV)/.ready-to-test ## ruff, its formatter and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(VENV)/.ready-to-test ## mypy, strict, on everything
	@$(BIN)/mypy .

docs: $(VENV)/.ready-to-test ## write the generated pages of docs/ and of the chart anew
	@$(BIN)/python -m docs.generate
	@PYTHONPATH=. $(BIN)/python deploy/helm/generate.py

check: lint types test ## all of it, before a commit
	@$(BIN)/python -m docs.generate --check

wheel: $(VENV)/.ready-to-test ## build the wheel into dist/
	@$(PIP) wheel -qq --no-deps --no-build-isolation --wheel-dir dist .

# In an environment of its own, so that nothing which lies in .venv by chance gets pinned.
constraints: ## refresh constraints.txt from what the package index has today
	@$(PYTHON) -m venv --clear build/constraints
	@build/constraints/bin/python -m pip install --quiet --disable-pip-version-check hatchling ziglang editables
	@build/constraints/bin/python -m pip install --quiet --disable-pip-version-check pyspark
	@build/constraints/bin/python -m pip install --disable-pip-version-check --no-build-isolation -e '.[agent,server,web,report,spark,dev]'
	@sed '/^[^#]/d' constraints.txt > build/constraints.txt
	@build/constraints/bin/python -m pip freeze --disable-pip-version-check --exclude-editable | grep '^[A-Za-z0-9._-]*==' >> build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@rm -r build/constraints

clean: ## remove everything that make, the build and the tests made
	@rm -rf $(VENV) .trueload build dist .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find analysis collector dashboards docs tests warehouse -name __pycache__ -type d -exec rm -r {} +

# ------------------------------------------------------------------------------------------------------ set-up

# What may be missing is said in one line, before anything is made.
python_says = $(shell $(PYTHON) -c 'import sys; $(1)' 2>/dev/null)

$(VENV)/.made:
	$(if $(call python_says,print(1)),,$(error trueload needs Python 3.11 or newer: apt install python3 python3-venv))
	$(if $(call python_says,sys.version_info >= (3, 11) and print(1)),,$(error trueload needs Python 3.11 or newer, and this is $(shell $(PYTHON) -V 2>&1): name another with make PYTHON=python3.x))
	$(if $(call python_says,import ensurepip; import venv; print(1)),,$(error Python lacks its venv module: apt install python3-venv))
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# ziglang compiles the C parts; with both build tools in place, pip need not fetch them again for each install.
$(VENV)/.build-tools: $(VENV)/.made constraints.txt
	@echo "Setting up $(VENV): about two minutes, once."
	@$(PIP) install -qq -c constraints.txt hatchling editables ziglang
	@touch $@

$(VENV)/.ready-to-run: $(VENV)/.build-tools $(INSTALLED)
	@$(PIP) install -qq --no-build-isolation -c constraints.txt -e '.[agent,server,web]'
	@touch $@

$(VENV)/.ready-to-test: $(VENV)/.build-tools $(INSTALLED)
	@$(PIP) install -qq -c constraints.txt pyspark # comes as source, with build tools that are not ours
	@$(PIP) install -qq --no-build-isolation -c constraints.txt -e '.[agent,server,web,report,spark,dev]'
	@touch $@ $(VENV)/.ready-to-run
