# VENV=path puts the environment elsewhere; PYTHON=path chooses the interpreter that makes it.
# CPU=1 installs torch without CUDA, from PyTorch's own index.
PYTHON ?= python3
VENV ?= .venv
CPU ?=

# abspath, so that commands find each other from any folder
WITH_VENV = PATH="$(abspath $(VENV))/bin:$$PATH"
LOCKED = --constraint constraints.txt --editable '.[dev]'
# tests start hundreds of interpreters, which would compile all sources if they kept none compiled
TESTED = PYTHONDONTWRITEBYTECODE= $(WITH_VENV)
# thousands of small files, for which a disk takes longer than memory, where that has room for them
IN_MEMORY = $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 1000000 2>/dev/null && \
  ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo TMPDIR=/dev/shm)

.PHONY: setup study test test-slow range lint docs bench mutants

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "paceline: needs Python >= 3.11, and $(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo missing); try PYTHON=path" >&2; exit 1; }
	@echo "Installing into $(VENV)$(if $(CPU),,: 7 GB on disk); this takes minutes" >&2
	@$(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || $(VENV)/bin/python -m pip install --quiet uv || true
	@$(WITH_VENV) uv pip install --python $(VENV)/bin/python --compile-bytecode $(if $(CPU),--torch-backend cpu) $(LOCKED) || { \
	  test -z "$(CPU)" || exit 1; \
	  echo "paceline: uv failed; pip tries, with its own configuration, and takes longer" >&2; \
	  $(VENV)/bin/python -m pip install --quiet $(LOCKED); }
	@touch $@
	@echo "next: source $(VENV)/bin/activate && make study, or paceline --help" >&2

study: setup
	@$(WITH_VENV) paceline sweep quick
	@$(WITH_VENV) paceline report quick
	@echo "The report: reports/quick/index.html"

test: setup
	$(IN_MEMORY) $(TESTED) python -m pytest --numprocesses 3 --dist worksteal -m "not slow"

test-slow: setup
	$(TESTED) python -m pytest --numprocesses 3 --dist worksteal -m slow

# the lowest versions that pyproject.toml allows: a new project trains on both clocks, sweeps and reports
SMALL = data=fashion_mnist_subset training.samples=2000 training.rate=by_rule
range: setup
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export $(WITH_VENV) && \
	uv venv --quiet --python $(PYTHON) "$$folder/venv" && uv pip install --quiet --python "$$folder/venv" \
	  $(if $(CPU),--torch-backend cpu) --resolution lowest-direct --editable . && \
	export PATH="$$folder/venv/bin:$$PATH" && paceline init "$$folder/project" && \
	cd "$$folder/project" && paceline train model=own workers=4 cluster=virtual $(SMALL) && \
	paceline train model=own workers=2 $(SMALL) && \
	paceline sweep first workers=1,2 scheme=sync_allreduce seed=0 $(SMALL) && paceline report first

lint: setup
	$(WITH_VENV) ruff check
	$(WITH_VENV) ruff format --check
	$(WITH_VENV) PYRIGHT_PYTHON_IGNORE_WARNINGS=1 pyright
	$(WITH_VENV) lint-imports

docs: setup
	$(WITH_VENV) NO_MKDOCS_2_WARNING=1 mkdocs build
	@echo "The pages: site/index.html"

bench: setup
	$(WITH_VENV) python -m benchmarks

mutants: setup
	$(WITH_VENV) python -m benchmarks.mutants
