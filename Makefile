# What people do with a clone. Everything needs Python 3.11+, make and a package registry, and nothing else.
#
#   make install   the environment, in .venv (PYTHON=python3.12 chooses the interpreter)
#   make demo      play a conversation on a stack of its own, and show every memory
#   make up        keep the local stack running; Ctrl-C stops it
#   make test      the whole suite (ARGS="-k buffer" is passed to pytest)
#   make chaos     prove that nothing is lost under faults (ARGS="--seed 1 --seed 2 --seed 3")
#   make lint      ruff and pyright, both strict
#   make docs      write docs/cli.md and docs/demo.svg again
#   make clean     delete .venv and the local stack's data

PYTHON ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed$(if $(PYTHON),-$(notdir $(PYTHON)))

.PHONY: install demo up test chaos lint docs clean
.DEFAULT_GOAL := install

install: $(STAMP)

$(STAMP): pyproject.toml scripts/install.sh
	@sh scripts/install.sh "$(VENV)" "$(PYTHON)"
	@touch "$(VENV)/.installed" "$@"

demo: $(STAMP)
	@$(BIN)/lamina demo $(ARGS)

up: $(STAMP)
	@$(BIN)/lamina up $(ARGS)

test: $(STAMP)
	@$(BIN)/python -m pytest -n 4 --dist loadfile $(ARGS)

chaos: $(STAMP)
	@$(BIN)/lamina chaos $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

docs: $(STAMP)
	@$(BIN)/python -m lamina_services.cli.reference docs/cli.md
	@$(BIN)/lamina demo --svg docs/demo.svg

clean:
	@if [ -x "$(BIN)/lamina" ]; then "$(BIN)/lamina" down --wipe; fi
	@rm -rf "$(VENV)"
