# All tasks of the project. A target fetches what it needs, or says in one line what to install; each runs
# alone. Knobs: FILE=path (demo)  SECONDS=60 (fuzz, for each target)  MODULE=atomic (bench)
# KILLS=1000000 (storm)  CALLS=100000 MESSAGES=1000000 (nats)  PYTHON=python3  PERL=perl  PIPEWORK_KILLS=100 (node)
MODULE ?= atomic
TARGET := $(or $(CARGO_TARGET_DIR),target)
BENCH := --manifest-path bench/Cargo.toml
CORE := --release --package pipework
ALOUD := --nocapture --test-threads=1
# cargo updates an outdated lock file on a developer's machine and fails in CI.
LOCKED := $(if $(CI),--locked)
# Finds the cargo of a fresh rustup in any shell. The benchmark runs this Python.
export PATH := $(PATH):$(HOME)/.cargo/bin
export PIPEWORK_PYTHON := $(abspath $(TARGET))/python-venv/bin/python
export PIPEWORK_FREE_PYTHON := $(abspath $(TARGET))/python-venv-3.14t/bin/python

.PHONY: $(MAKECMDGOALS) cargo lints tools # folders have some of these names

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: cargo lints tools ## fetch what build, test and check need
	python/dev env && perl/dev env && node/dev env
	for each in . bench bridge/nats; do cargo fetch $(LOCKED) --manifest-path $$each/Cargo.toml || exit; done

build: cargo ; cargo build $(LOCKED) --release --workspace && $(MAKE) -sC crates/pipework-c built ## build everything, optimised

demo: cargo ## see every module at work on a real file, and a web application in Python (FILE=path)
	@cargo build $(LOCKED) --release --package pipework-cli
	@$(TARGET)/release/pipework demo $(if $(FILE),'$(FILE)')
	@echo 'Now a web application in Python. First its package is built:'
	@python/dev demo && echo 'Past one machine: docs/nats.md, and make nats to see it with killed servers'

test: export PIPEWORK_SHORT = 1
test: ## run the tests in a quarter of an hour, part by part, and say in a table what passed, failed and was left out
test-all: ## run the long ones as well, as CI does
test test-all: cargo tools ; @tests/run project rust packages python+perl+node loom bench
TESTED := cargo $(LOCKED) --config "target.'cfg(all())'.runner='$(abspath tests/cargo)'" test
TESTED_ALL := $(TESTED) --workspace --all-features --no-fail-fast
test-bench: cargo ; $(TESTED) $(BENCH) --all-targets
# What the project asks of its files comes first: it fails most often. Then come the unit tests of the core.
test-project: cargo ; $(TESTED_ALL) --test it -- project::
# rustdoc runs all examples in one process if another program starts them, and some change their process.
test-rust: cargo
	$(TESTED_ALL) --tests -- --skip project:: || failed=1; \
		tests/limit 1200 cargo test $(LOCKED) --workspace --all-features --no-fail-fast --doc && [ -z "$$failed" ]
test-loom: cargo ; RUSTFLAGS='--cfg loom' PIPEWORK_MODEL_SWITCHES=2 $(TESTED) --package pipework --lib model
# What the next ones test, and what they exchange messages with. Each is built, even if another one cannot be.
test-packages: cargo
	cargo build $(LOCKED) --quiet --package pipework-cli --package pipework-c
	for each in $(or $(PACKAGES),python perl node); do $$each/dev build || failed=1; done; [ -z "$$failed" ]
test-python test-perl test-node: test-%: ; $*/dev check
test-newest: ; node/dev newest
python: ## build the Python package, run its tests, prove its stubs and types
python-all: ## run them under each Python that pyenv has (python-turn: one a day; python-watch: for deadlocks and leaks)
python-free: ## run them without the interpreter lock, in a CPython 3.14t that is compiled once and kept
python-all python-turn python-watch python-free: python-%: cargo ; python/dev $*
perl: ## build the Perl distribution, run its tests
python: ; @PACKAGES=python exec tests/run packages python
perl: ; @PACKAGES='python perl' exec tests/run packages perl
node: ; @tests/run packages node newest ## build the Node package, prove its types, run its tests; on the newest Node too
c: cargo tools ## build the C library, write its header, run its tests
	cargo test $(LOCKED) --package pipework-c -- --include-ignored
install: ## install the C library (PREFIX=/usr/local DESTDIR=)
uninstall: ## take it away again
install uninstall: ; @$(MAKE) --no-print-directory --directory crates/pipework-c $@

# One after the other: what idle processes cost is measured as well.
storm: cargo ## kill KILLS processes in each module that must survive it; takes an hour or more
	PIPEWORK_KILLS=$(or $(KILLS),1000000) cargo test $(LOCKED) $(CORE) --test it -- --test-threads=1 storm parked_waiters

crash: cargo ## kill at every instruction of every operation on shared memory; takes more than an hour
	PIPEWORK_CRASH=all cargo test $(LOCKED) $(CORE) --test it -- --nocapture crash::

check: cargo lints ## formatting, lints and docs with warnings as errors; licences (cargo-deny)
	for each in . bench fuzz bridge/nats; do cargo fmt --all --check --manifest-path $$each/Cargo.toml || exit; done
	cargo clippy $(LOCKED) --workspace --all-features --all-targets -- -D warnings
	cargo clippy $(LOCKED) --package pipework --lib -- -D warnings --cfg fuzzing
	for each in bench bridge/nats; do cargo clippy $(LOCKED) --manifest-path $$each/Cargo.toml --all-targets -- -D warnings || exit; done
	RUSTDOCFLAGS='-D warnings' cargo doc $(LOCKED) --workspace --all-features --no-deps
	@! cargo deny --version >/dev/null 2>&1 || cargo deny check licenses bans sources

nats: cargo ## test the bridge with real NATS servers; kills servers, bridges and workers (CALLS, MESSAGES)
	@command -v nats-server >/dev/null || dist/apt nats-server
	cargo build $(LOCKED) --release --package pipework-cli && PIPEWORK_COMMAND=$(abspath $(TARGET))/release/pipework PIPEWORK_NATS=1 \
		PIPEWORK_NATS_CALLS=$(or $(CALLS),100000) PIPEWORK_NATS_MESSAGES=$(or $(MESSAGES),1000000) cargo test $(LOCKED) --release --manifest-path bridge/nats/Cargo.toml

model: cargo ## search every order of what processes and threads do to shared memory
	PIPEWORK_MODEL=large cargo test $(LOCKED) $(CORE) --test model -- $(ALOUD)
	RUSTFLAGS='--cfg loom' cargo test $(LOCKED) $(CORE) --lib model -- $(ALOUD)

sanitize: sanitize-thread sanitize-address ## the core's tests under both (nightly Rust)
sanitize-thread sanitize-address: sanitize-%: cargo ; crates/pipework/tests/sanitize $*
sanitize-python: cargo ; python/tests/sanitize ## threads in the Python package, under a CPython compiled with ThreadSanitizer (clang)

fuzz: fuzz-frame fuzz-mixed fuzz-reader fuzz-segment fuzz-broadcast ## fuzz each target for SECONDS (nightly Rust)
fuzz-frame fuzz-mixed fuzz-reader fuzz-segment fuzz-broadcast: fuzz-%: cargo ; fuzz/run $* $(or $(SECONDS),60)
proof: cargo ; crates/pipework/tests/proof ## run what docs/proof.md shows, and keep the figures; a day (PROOF=quick)
docs: cargo ; book/build ## build the book, target/book/site, and check every link in it

bench: ## measure beside the peers and keep a dated record (MODULE=atomic)
bench-quick: ## a look at the same in less than a minute; keeps nothing
bench bench-quick: cargo
	@case $(MODULE) in perl) perl/dev build && perl/dev peers;; node) node/dev build --release && node/dev peers;; python*|blob|deaths) python/dev build --release && python/dev build-free --release && python/dev peers;; nats) cargo build $(LOCKED) --release --bins --examples --manifest-path bridge/nats/Cargo.toml;; esac
	cargo build $(LOCKED) --release -p pipework-c && cargo run $(LOCKED) --release $(BENCH) $(if $(filter blob broadcast,$(MODULE)),--features peers) -- $(MODULE) $(if $(filter bench,$@),--record,--quick)

dist: cargo ; @dist/build ## make every package, in target/dist
dist-test: cargo ; @dist/test ## install each where nothing else is, and use it; make all twice
aarch64: cargo ; @dist/aarch64 ## build for that machine, and run the tests under qemu; half an hour
release: cargo ; @dist/release '$(VERSION)' ## check all that a release needs, and tag it (VERSION=0.1.0)
clean: ; rm -rf target node/node_modules node/lib/*.node bench/target bridge/nats/target fuzz/target fuzz/corpus fuzz/artifacts ## remove all build results

cargo:
	@command -v cargo >/dev/null && command -v cc >/dev/null \
		|| { echo 'make: install Rust (https://rustup.rs) and a C compiler (gcc)' >&2; exit 1; }
lints:
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
tools:
	@for tool in cmake pkg-config strace; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	pkg-config --exists libpipewire-0.3 2>/dev/null || missing="$$missing libpipewire-0.3-dev"; \
	[ -z "$$missing" ] || dist/apt $$missing \
		|| { echo "make: install$$missing, or the tests that need them are skipped"; [ -z "$(CI)" ]; }
