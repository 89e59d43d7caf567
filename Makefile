# SPDX-License-Identifier: Apache-2.0
# Short names for the common commands. CMake builds everything below build/.

JOBS ?= $(shell nproc)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

.PHONY: build demo test bench soak lint format clean help setup
.DEFAULT_GOAL := build

build: setup build/build.ninja ## build the libraries, the tally command and the examples
	cmake --build build

demo: build ## train a network to read digits on two ranks, with each of several hooks
	build/tally run -n 2 build/examples/05_digits

test: build ## run all tests
	ctest --preset release

bench: build ## measure this machine, and installed peers; BENCH_ARGS=--help lists options
	@python3 -B bench/run_all.py $(BENCH_ARGS)

soak: build ## long campaigns: random calls, kills, damaged blobs, failing calls; SOAK_SECONDS, SOAK_TRIALS, SOAK_SEED
	@tests/soak.sh build $(SOAK)

lint: ## check format, static analysis, include direction, sizes and names
	scripts/setup --lint
	scripts/lint

format: ## format all C files with clang-format
	scripts/setup --lint
	scripts/c-files | xargs clang-format -i

clean: ## remove build/
	rm -rf build

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

# Installs missing packages; returns at once if there are none.
setup:
	@scripts/setup

# Ninja configures again by itself when a CMake file changes.
build/build.ninja: | setup
	cmake --preset release
