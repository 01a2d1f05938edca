# The one door. A target fetches what it misses, or says in one line what to install; each runs alone.
# Knobs: FILE=path (demo)  SECONDS=60 (fuzz, for each target)  ROOM=atomic (bench)  KILLS=1000000 (storm)

ROOM ?= atomic
SECONDS ?= 60
FILE ?=
KILLS ?= 1000000

TARGET := $(or $(CARGO_TARGET_DIR),target)
PYTHON ?= python3
VENV := $(abspath $(TARGET))/python-venv
BENCH := --manifest-path bench/Cargo.toml
# What the benchmark of the Python package runs.
export PIPEWORK_PYTHON := $(VENV)/bin/python
# A lock file that no longer fits is mended on a desk and an error in CI.
LOCKED := $(if $(CI),--locked)

# Where rustup puts cargo, for a shell that has not been told yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help setup build demo python-demo python-bench test python storm crash check model sanitize sanitize-thread sanitize-address fuzz fuzz-frame fuzz-mixed fuzz-reader fuzz-segment bench bench-quick clean \
	cargo lints strace nightly rust-src

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: cargo lints strace $(VENV)/ready ## fetch what build, test and check need
	cargo fetch $(LOCKED)
	cargo fetch $(LOCKED) $(BENCH)

build: cargo ## build everything, optimised
	cargo build $(LOCKED) --release --workspace

demo: cargo ## see every room at work on a real file, and a web application in Python (FILE=path)
	@cargo build $(LOCKED) --release --package pipework-cli
	@$(TARGET)/release/pipework demo $(if $(FILE),'$(FILE)')
	@$(MAKE) --no-print-directory python-demo

# Who only wants to look may have no Python, or no network to fetch the build's tools from: that is said, and no failure.
python-demo: cargo
	@if ! $(MAKE) --no-print-directory $(VENV)/ready >$(TARGET)/python-demo.log 2>&1; then \
		echo 'demo: the example in Python is left out: it needs Python 3.10 or later with venv, and the network once'; \
	else \
		(cd python && VIRTUAL_ENV=$(VENV) $(VENV)/bin/maturin develop $(LOCKED) --release --quiet) >$(TARGET)/python-demo.log 2>&1 \
			|| { cat $(TARGET)/python-demo.log >&2; exit 1; }; \
		printf '\npython/examples/batching_web.py\n'; \
		$(VENV)/bin/python python/examples/batching_web.py; \
	fi

test: cargo strace ## run every test, those of bench/ first
	cargo test $(LOCKED) --quiet $(BENCH) --all-targets
	cargo test $(LOCKED) --workspace --all-features --no-fail-fast
	RUSTFLAGS='--cfg loom' PIPEWORK_MODEL_SWITCHES=2 cargo test $(LOCKED) --package pipework --lib model
	@$(MAKE) --no-print-directory python

python: cargo $(VENV)/ready ## build the Python package, run its tests, prove its stubs and types (PYTHON=python3)
	cd python && VIRTUAL_ENV=$(VENV) $(VENV)/bin/maturin develop $(LOCKED) --quiet
	cd python && $(VENV)/bin/python -m pytest
	cd python && $(VENV)/bin/python -m mypy pipework tests examples
	cd python && $(VENV)/bin/python -m mypy.stubtest pipework._core

# One after the other: what idle processes cost is measured as well.
storm: cargo ## kill KILLS=1000000 processes in each room that must survive it; takes an hour or more
	PIPEWORK_KILLS=$(KILLS) cargo test $(LOCKED) --release --package pipework --test it -- \
		--test-threads=1 storm parked_waiters

crash: cargo ## kill at every instruction of every operation on shared memory; takes some minutes
	PIPEWORK_CRASH=all cargo test $(LOCKED) --release --package pipework --test it -- --nocapture crash::

check: cargo lints ## formatting, lints and docs with warnings as errors; licences, duplicates
	cargo fmt --all --check
	cargo fmt --check $(BENCH)
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy $(LOCKED) --workspace --all-features --all-targets -- -D warnings
	cargo clippy $(LOCKED) --package pipework --lib -- -D warnings --cfg fuzzing
	cargo clippy $(LOCKED) $(BENCH) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc $(LOCKED) --workspace --all-features --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check licenses bans sources; \
	else echo 'check: licences and duplicates not looked at: cargo install cargo-deny --locked'; fi

model: cargo ## search every order of what processes and threads do to shared memory
	PIPEWORK_MODEL=large cargo test $(LOCKED) --release --package pipework --test model -- --nocapture --test-threads=1
	RUSTFLAGS='--cfg loom' cargo test $(LOCKED) --release --package pipework --lib model -- --nocapture --test-threads=1

sanitize: sanitize-thread sanitize-address ## run the core's tests under ThreadSanitizer and AddressSanitizer, with a nightly Rust

# The standard library is built anew, so that what it does to memory is seen as well; zstd's C is not. Nothing is suppressed, but these are left out: processes
# stopped at every instruction, storms of kills, and the project's own lints, in which there is nothing to see; tests that weigh a process, since
# a sanitizer weighs more; a bus error that is not ours, which the sanitizer takes for its own; mappings that a signal handler replaces, which to ThreadSanitizer are races; tests under strace, in
# which AddressSanitizer cannot look for leaks.
NOT_SANITIZED := crash:: storm tidy:: little_memory bus_error
NOT_SANITIZED_thread := cut_short
NOT_SANITIZED_address := no_system_call larger_than_pipe_buf
SANITIZED = CARGO_TARGET_DIR=$(abspath $(TARGET))/sanitize-$* RUSTFLAGS='-Zsanitizer=$*' CFLAGS='-fno-sanitize=all' \
	TSAN_OPTIONS='die_after_fork=0 allocator_may_return_null=1' ASAN_OPTIONS='allocator_may_return_null=1 quarantine_size_mb=4' \
	cargo +nightly test $(LOCKED) -Zbuild-std --target $(shell rustc -vV | sed -n 's/^host: //p') --package pipework --all-features

# First whether it finds a fault that is there.
sanitize-thread sanitize-address: sanitize-%: cargo rust-src
	$(SANITIZED) --test it -- --ignored --exact sanitizer::$*_is_awake 2>&1 | grep -i 'SUMMARY: $*Sanitizer'
	$(SANITIZED) --lib --test it -- $(addprefix --skip=,$(NOT_SANITIZED) $(NOT_SANITIZED_$*))

fuzz: fuzz-frame fuzz-mixed fuzz-reader fuzz-segment ## fuzz each target for SECONDS=60, with a nightly Rust

# Vectors are good seeds: the fuzzer starts from whole messages and segments instead of finding a header by luck. The bytes in front
# are the settings that each target takes from its input: see the room's fuzzing.rs.
fuzz-frame fuzz-mixed fuzz-reader: VECTORS := vectors/atomic
fuzz-segment: VECTORS := vectors/reqrep
SETTINGS_frame := '\020\001\020'
SETTINGS_mixed := '\377\077\007'
SETTINGS_reader := '\010\377\077\003' '\011\377\077\003'
SETTINGS_segment := '\000\010'

fuzz-frame fuzz-mixed fuzz-reader fuzz-segment: fuzz-%: cargo nightly
	@mkdir -p fuzz/corpus/$*
	@for vector in $(VECTORS)/*.bin; do n=0; for settings in $(SETTINGS_$*); do n=$$((n + 1)); \
		{ printf "$$settings"; cat "$$vector"; } >"fuzz/corpus/$*/$$(basename "$$vector")-$$n"; done; done
	cargo +nightly fuzz run $* -- -max_total_time=$(SECONDS) -timeout=10 -max_len=8192 -print_final_stats=1

bench: cargo $(if $(filter python,$(ROOM)),python-bench) ## measure beside the peers and keep a dated record (ROOM=atomic)
	cargo run $(LOCKED) --release $(BENCH) -- $(ROOM) --record

bench-quick: cargo $(if $(filter python,$(ROOM)),python-bench) ## a look at the same in less than a minute; keeps nothing
	cargo run $(LOCKED) --release $(BENCH) -- $(ROOM) --quick

# A peer that cannot be installed here is shown as absent.
python-bench: cargo $(VENV)/ready
	cd python && VIRTUAL_ENV=$(VENV) $(VENV)/bin/maturin develop $(LOCKED) --release --quiet
	@while read -r peer; do $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check "$$peer" || true; done <bench/peer/requirements.txt

clean: ## remove what was built
	rm -rf target bench/target fuzz/target fuzz/corpus fuzz/artifacts

# ---------------------------------------------------------------- what a target may miss

cargo:
	@command -v cargo >/dev/null || { echo 'make: install Rust 1.95 or later: https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'make: install a C compiler (gcc)' >&2; exit 1; }

lints:
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt \
		|| { echo 'make: install rustfmt for this Rust' >&2; exit 1; }
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy \
		|| { echo 'make: install clippy for this Rust' >&2; exit 1; }

# Made anew when the requirements change. The tag tells backups, and tests/it/tidy.rs, that it can be made again.
$(VENV)/ready: python/requirements.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
		|| { echo 'make: install Python 3.10 or later with its venv module (Debian: python3-venv)' >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement python/requirements.txt
	@printf 'Signature: 8a477f597d28d172789f06886806bc55\n' >$(VENV)/CACHEDIR.TAG
	@touch $@

# One test looks at the program from outside.
strace:
	@command -v strace >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -qq -y strace; } \
		|| echo 'make: install strace, or the test that watches every write(2) is skipped'

nightly:
	@rustup run nightly cargo --version >/dev/null 2>&1 \
		|| { echo 'fuzz: needs a nightly Rust: rustup toolchain install nightly --profile minimal' >&2; exit 1; }
	@command -v c++ >/dev/null || { echo 'fuzz: needs a C++ compiler (g++)' >&2; exit 1; }
	@cargo +nightly fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked

rust-src:
	@rustup run nightly cargo --version >/dev/null 2>&1 \
		|| { echo 'sanitize: needs a nightly Rust: rustup toolchain install nightly --profile minimal' >&2; exit 1; }
	@rustup component list --toolchain nightly | grep -q 'rust-src (installed)' \
		|| rustup component add rust-src --toolchain nightly
