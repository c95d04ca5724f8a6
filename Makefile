# SPDX-License-Identifier: Apache-2.0
# A thin cover over the CMake presets, for people.  `make` alone prints the list of targets.
# Every target works alone on a fresh machine: it asks tools/deps.sh for the packages that it needs.

JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 120

.PHONY: help demo test soak asan tsan small exact fuzz gallery bench format lint docs install uninstall clean build

help: ## print this list
	@echo 'usage: make TARGET'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

demo: ## build, then train, evaluate and use a word-language classifier
	@tools/deps.sh build demo
	@cmake --preset release
	@cmake --build --preset release --parallel $(JOBS) --target belay_cli
	@tools/demo.sh

test: ## all tests that need no GPU: optimised, then under address, undefined and leak sanitizers
	@tools/deps.sh build test
	@$(MAKE) --no-print-directory test-release test-debug

soak: ## the same tests at full count
	@tools/deps.sh build test
	@BELAY_SOAK=1 $(MAKE) --no-print-directory test-release test-debug

asan: ## the tests over optimised code under address, undefined and leak sanitizers
	@tools/deps.sh build test
	@$(MAKE) --no-print-directory test-asan

tsan: ## the tests under the thread sanitizer
	@tools/deps.sh build test lint
	@$(MAKE) --no-print-directory test-tsan

small: ## the tests with every limit shrunk, to give bugs a chance
	@tools/deps.sh build test
	@$(MAKE) --no-print-directory test-small

exact: ## the tests with each tensor against an inaccessible page, its end and then its begin; then between red zones
	@tools/deps.sh build test
	@$(MAKE) --no-print-directory build-release
	@for mode in exact exact-left redzone; do \
	    echo "BELAY_MEMORY=$$mode,poison"; \
	    BELAY_MEMORY=$$mode,poison ctest --preset release --parallel $(JOBS) || exit 1; \
	done

fuzz: ## every fuzzer for FUZZ_SECONDS (120) seconds
	@tools/deps.sh build lint
	@$(MAKE) --no-print-directory build-fuzz
	@tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

gallery: ## every fault of examples/faults, by its report; writes docs/fault-matrix.md
	@tools/deps.sh build test
	@cmake --preset release
	@cmake --build --preset release --parallel $(JOBS) --target fault_gallery
	@tools/gallery.sh build/release/examples/faults docs/fault-matrix.md

bench: ## the benchmark table of docs/performance.md
	@tools/deps.sh build
	@$(MAKE) --no-print-directory build-release
	@build/release/belay bench

build: ## the optimised library and binary, in build/release
	@tools/deps.sh build
	@$(MAKE) --no-print-directory build-release

format: ## put every C file into the committed layout
	@tools/deps.sh lint
	@git ls-files -z '*.c' '*.h' '*.cu' | xargs -0 clang-format -i

lint: ## clang-tidy and cppcheck over the whole of src/
	@tools/deps.sh build lint
	@tools/lint.sh

docs: ## write the generated pages of docs/ anew
	@tools/deps.sh build
	@$(MAKE) --no-print-directory build-release
	@build/release/belay_generate .

install: ## install below PREFIX (/usr/local), DESTDIR in front
	@tools/deps.sh build
	@$(MAKE) --no-print-directory build-release
	@DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX)
	@test -n "$(DESTDIR)" || ldconfig 2>/dev/null || true

uninstall: ## take away what `make install` put there last; DESTDIR as then
	@DESTDIR=$(DESTDIR) cmake -DFOLDER=build/release -P cmake/uninstall.cmake
	@test -n "$(DESTDIR)" || ldconfig 2>/dev/null || true

clean: ## remove build folders and what the demo made
	@rm -rf build demo

# The steps that the targets above are made of: build-PRESET and test-PRESET.
build-%:
	@cmake --preset $*
	@cmake --build --preset $* --parallel $(JOBS)

test-%: build-%
	@ctest --preset $* --parallel $(JOBS)

.PRECIOUS: build-%
.NOTPARALLEL:
