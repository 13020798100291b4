# The two commands of the README are `make run` and `make test`; the rest are parts of them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run test packages-run packages-test lint doc unit doctest benches examples features tail

## The voice server with its offline defaults; open the URL it prints.
run: packages-run
	cargo run --release -- serve $(ARGS)

## Everything that must hold, the real browser included.
test: packages-test lint doc features unit doctest benches examples

packages-run:
	scripts/packages run

packages-test:
	scripts/packages test

lint: packages-test
	cargo fmt --all -- --check
	cargo clippy --all-targets --locked -- -D warnings

doc: packages-test
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked

# The library without its outer rooms must build too: an embedder may want neither server nor browser.
features: packages-test
	cargo check --lib --no-default-features --locked
	cargo check --lib --no-default-features --features opus --locked
	cargo check --lib --no-default-features --features webrtc --locked
	cargo check --lib --no-default-features --features http --locked

unit: packages-test
	cargo nextest run --locked --no-fail-fast

doctest: packages-test
	cargo test --doc --locked

# Benches run once here, as tests; for numbers use `cargo bench`.
benches: packages-test
	cargo test --benches --locked

examples: packages-test
	for example in echo custom_tts metrics webrtc_server; do echo "== example $$example"; cargo run --quiet --locked --example $$example; done

## The audible tail over WebRTC and a real browser: 24 barge-ins by recorded voices, about six minutes.
tail: packages-test
	ANTIPHON_BARGE_INS=24 cargo nextest run --locked --no-capture --test browser -E 'test(barge_ins)'
