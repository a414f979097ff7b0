# Everything a developer or a first-time user types. Needs Python 3.10+ with headers and venv, g++ and make;
# the rest (cmake, ninja, linters) comes from the package index into $(VENV).
PYTHON ?= python3
VENV ?= .venv
PROMPT ?= Give me three tips for sleeping better.
PYTEST_ARGS ?=
LLAMACPP ?=

BIN := $(VENV)/bin
BUILD_DIR := build/$(notdir $(VENV))
AARCH64_DIR := build/aarch64
KERNELS := CMakeFiles/edgeseek_core.dir/native/kernels
BUILD_TOOLS := 'scikit-build-core>=0.11' 'nanobind>=2.9' 'cmake>=3.18' ninja
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CMAKE_OPTIONS := --config-settings=cmake.define.EDGESEEK_TESTS=ON
ifdef CI
CMAKE_OPTIONS += --config-settings=cmake.define.EDGESEEK_WERROR=ON
endif
# No build isolation: the build directory stays valid from one install to the next, so only changed files
# are compiled again.
INSTALL := $(PIP) install --no-build-isolation --config-settings=build-dir=$(BUILD_DIR) $(CMAKE_OPTIONS)
NATIVE_FORMATTED = $(shell find native -name '*.cpp' -o -name '*.h' | sort)
PYTHON_CODE := $(wildcard src tests tools benchmarks examples)
# Whatever ends up in the wheel.
SOURCES := $(shell find src native CMakeLists.txt -type f -not -path '*/__pycache__/*' -not -path 'native/tests/*')

.DEFAULT_GOAL := help
.PHONY: help run build test check format-check lint types imports native-test pytest counts baseline fmt stub clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

run: $(VENV)/installed ## set everything up, pull SmolLM2-135M and answer PROMPT="..."
	$(BIN)/edgeseek run smollm2-135m --prompt "$(PROMPT)"

build: $(VENV)/installed ## create the environment, compile and install into it

test: check native-test pytest counts ## everything that must pass

check: format-check lint types imports ## formatting, lint, types and import contracts

format-check: $(VENV)/dev
	$(BIN)/ruff format --check $(PYTHON_CODE)
	$(BIN)/clang-format --dry-run -Werror $(NATIVE_FORMATTED)

lint: $(VENV)/dev
	$(BIN)/ruff check $(PYTHON_CODE)

types: $(VENV)/dev
	$(BIN)/mypy

imports: $(VENV)/dev
	PYTHONPATH=src $(BIN)/lint-imports --no-logo

native-test: $(VENV)/installed ## the C++ tests
	$(BIN)/cmake --build $(BUILD_DIR) --target native_tests
	$(BIN)/ctest --test-dir $(BUILD_DIR) --output-on-failure --no-tests=error

pytest: $(VENV)/installed $(VENV)/dev ## the Python tests; PYTEST_ARGS="-k name" chooses some
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Compares aarch64's inner loops too where they have been built, by `make baseline` or .ci/run.
counts: $(VENV)/installed $(VENV)/dev ## compare instruction counts with the stored baseline
	$(BIN)/cmake --build $(BUILD_DIR) --target count_workload
	PYTHONHASHSEED=0 $(BIN)/python -m benchmarks.counts $(BUILD_DIR) $(AARCH64_DIR)

baseline: $(VENV)/installed $(VENV)/dev ## store today's counts; LLAMACPP=path/to/ggml counts its kernels as well
	$(BIN)/cmake -S . -B $(AARCH64_DIR) -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
		-DEDGESEEK_TESTS=ON -DCMAKE_TOOLCHAIN_FILE="$(CURDIR)/cmake/aarch64-linux-gnu.cmake"
	$(BIN)/cmake --build $(AARCH64_DIR) --target edgeseek_core
	$(BIN)/cmake --build $(BUILD_DIR) --target count_workload
	PYTHONHASHSEED=0 $(BIN)/python -m benchmarks.counts $(BUILD_DIR) $(AARCH64_DIR) --update
	$(BIN)/python -m tools.count_instructions --write docs/benchmarks.md $(if $(LLAMACPP),--llamacpp $(LLAMACPP)) \
		$(foreach set,avx2 avx512,$(BUILD_DIR)/$(KERNELS)/kernels_$(set).cpp.o) \
		$(foreach set,neon neondot,$(AARCH64_DIR)/$(KERNELS)/kernels_$(set).cpp.o)

fmt: $(VENV)/dev ## format all code
	$(BIN)/ruff check --fix-only --quiet $(PYTHON_CODE)
	$(BIN)/ruff format $(PYTHON_CODE)
	$(BIN)/clang-format -i $(NATIVE_FORMATTED)

stub: $(VENV)/installed $(VENV)/dev ## regenerate src/edgeseek/_core.pyi from the built extension
	$(BIN)/python tools/make_stub.py

clean: ## remove what was built, and the environment
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "edgeseek needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(BUILD_TOOLS)
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml $(SOURCES)
	$(INSTALL) .
	touch $@

$(VENV)/dev: $(VENV)/created pyproject.toml | $(VENV)/installed
	$(INSTALL) '.[dev]'
	touch $@
