# Two commands for a newcomer: `make demo`, `make test`. Both build their own virtual environment.

# The newest interpreter that runs here (a shim may be there and not run); 3.11 at least.
PYTHON ?= $(shell for v in 3.13 3.12 3.11; do python$$v -c '' 2>/dev/null && echo python$$v && exit; done; echo python3)
VENV ?= .venv
READY := $(VENV)/.ready

.PHONY: demo test lint clean

demo: $(READY)
	$(VENV)/bin/adjudge demo examples

test: $(READY) lint
	$(VENV)/bin/python -m pytest -n auto --maxprocesses 8 --dist worksteal

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "building $(VENV) with the pinned CPU torch and triton; this takes a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[triton,dev]'
	@touch $@

clean:
	rm -rf $(VENV)
