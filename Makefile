# SPDX-License-Identifier: Apache-2.0
# Short names for the common commands. CMake builds everything below build/.

JOBS ?= $(shell nproc)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

# All of the build except the tests, which take most of its time.
programs = src/all bench/all tools/all examples/all tally_man

.PHONY: build build-tests demo test test-quick bench wheel dist deb soak lint format clean help setup
.DEFAULT_GOAL := build

build: setup build/build.ninja ## build the libraries, the tally command and the examples
	cmake --build build --target $(programs)

demo: setup build/build.ninja ## train a network to read digits on two ranks, with each of several hooks
	cmake --build build --target tally_tool example_05_digits
	@build/tally run -n 2 build/examples/05_digits
	@# The report is about one hook alone: above, the hooks take turns, and a trace would add to their times.
	@rm -f build/demo-trace.*
	@TALLY_TRACE=build/demo-trace build/tally run -n 2 build/examples/05_digits allreduce >/dev/null 2>&1
	@build/tally report build/demo-trace.* -o build/demo.html >/dev/null && echo "Report: build/demo.html"
	@echo "Next:   build/tally bench hooks --ranks 2 --mb 100   # the hooks on 100 MB"

test: ## run all tests, with Open MPI and MPICH, and list those that were skipped
	@scripts/setup --mpi
	@$(MAKE) --no-print-directory build-tests
	@scripts/run-tests release

test-quick: build-tests ## run the tests of one process and a few of ranks, in less than a minute
	@scripts/run-tests release -L '^(unit|optim|interop|tool|example|fuzz|api)$$' -LE '^slow$$'

bench: build ## measure this machine, and installed peers; BENCH_ARGS=--help lists options
	@python3 -B bench/run_all.py $(BENCH_ARGS)

wheel: build ## build the Python package, with the library inside, in build/wheel
	@python3 -B python/make_wheel.py build/wheel

dist: ## make the source archive build/dist/tally-VERSION.tar.gz; the same tree gives the same bytes
	@scripts/make-dist build/dist

deb: ## build the Debian packages in build/deb, and check them with lintian
	scripts/setup --deb
	@scripts/make-deb build/deb

soak: build-tests ## long campaigns: random calls, kills, damaged blobs, failing calls; SOAK_SECONDS, SOAK_TRIALS, SOAK_SEED
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
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

# Installs missing packages; returns at once if there are none.
setup:
	@scripts/setup

# Everything, with the tests.
build-tests: setup build/build.ninja
	cmake --build build

# Ninja configures again by itself when a CMake file changes.
build/build.ninja: | setup
	cmake --preset release
