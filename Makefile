# Shortcuts only: each verb is one or two lines that you could type yourself. `make` alone lists them.
#
# Cargo may be installed for this user and not be on the PATH of a plain shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help run demo gateway test python node versions bench module wheel package lint audit mutants soak upgrade setup servers languages brokers browser web

help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: module ## Start a server with the module on 127.0.0.1 (PORT=6379; Ctrl-C stops it)
	@scripts/run

demo: module ## Watch the commands at work, each with its reply explained
	cargo run -q -p resil-tests --bin demo

gateway: ## Start a gateway with a dashboard on 127.0.0.1:8056: memory://, two upstreams, some traffic
	cargo run -q -p resil-gateway -- demo

test: module servers languages brokers browser ## Run every test, on Redis 7.0 and on Valkey 8.0, in Rust, Python and Node
	@scripts/test

python: module languages brokers ## Build and test the Python SDK alone
	@scripts/python build
	@scripts/python test

node: module languages brokers ## Build and test the Node SDK alone
	@scripts/node build
	@scripts/node test

web: languages browser ## Check the gateway's dashboard and test it in Chromium
	@scripts/web test

versions: module languages ## Test the SDKs on Python 3.9 and 3.14 and on Node 18 and 26, with one library for all
	cargo build -p resil-python -p resil-node -p resil-harness
	@scripts/python place && scripts/node env && scripts/node place
	@scripts/versions

bench: module ## Measure the module beside its peers, then the core by itself
	@scripts/bench

module: setup ## Build target/release/libresil.so
	cargo build --release -p resil-module

wheel: languages ## Build the Python package, target/wheels/*.whl, and try it
	@scripts/python wheel

package: languages ## Build the Node package, target/npm/*.tgz, and try it
	@scripts/node package

lint: languages ## Check format and lints, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	@scripts/python lint
	@scripts/node lint
	@scripts/web lint

audit: ## See what is known against the versions in the lock files
	@scripts/audit

mutants: module servers ## Plant faults, one at a time, and see that a test catches each
	@scripts/mutants

soak: module languages brokers ## Load one server for long and watch memory and latency; then kill clients and servers by the hundred
	RESIL_SOAK=1 cargo test --release -p resil-tests --test soak -- --nocapture
	RESIL_SOAK=1 cargo test --release -p resil-tests --test lock_torture kills -- --nocapture
	RESIL_SOAK=1 cargo test --release -p resil-tests --test ledger_torture -- --nocapture
	RESIL_SOAK=1 cargo test --release -p resil-tests --test safety --test stalls -- --nocapture
	RESIL_SOAK=1 cargo test -p resil --test faults overlaps -- --nocapture
	RESIL_SOAK=1 cargo test -p resil-tests --test workers campaign -- --nocapture

upgrade: module servers ## Run earlier modules and this one as primary and replica of each other (scripts/upgrade REV for one)
	@scripts/upgrade

setup: # what building needs; quick when nothing is missing
	@scripts/setup

languages: # the same, and what the SDKs of Python and Node need
	@scripts/setup --languages

brokers: # what the tests of workers and of the exporter need: RabbitMQ, Postgres and Prometheus, as programs and not as services
	@scripts/setup --brokers

browser: # what the tests of the dashboard need: Chromium
	@scripts/setup --browser

servers: setup # what testing needs: one Valkey for sure, newer servers if they can be had
	@scripts/servers valkey-8.0
	@scripts/servers --optional
