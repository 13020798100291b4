# The two commands of the README are `make run` and `make test`; the rest are parts of them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run test packages-run packages-test lint doc unit doctest benches examples features lab sim sim-hashes model mutants tail

## The voice server with its offline defaults; open the URL it prints.
run: packages-run
	cargo run --release -- serve $(ARGS)

## Everything that must hold, the real browser included.
test: packages-test lint doc features unit doctest lab benches examples

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
	cargo check --lib --no-default-features --features lab --locked

unit: packages-test
	cargo nextest run --locked --no-fail-fast

doctest: packages-test
	cargo test --doc --locked

## The stories and the ten faults, on a virtual clock; logs and numbers go to target/lab.
lab: packages-test
	cargo run --quiet --locked -- lab --out target/lab/scenarios
	cargo run --quiet --locked -- lab faults --out target/lab/faults

# Benches run once here, as tests; for numbers use `cargo bench`.
benches: packages-test
	cargo test --benches --locked

examples: packages-test
	for example in echo custom_tool custom_tts metrics steer_and_cancel webrtc_server; do echo "== example $$example"; cargo run --quiet --locked --example $$example; done

## The audible tail over WebRTC and a real browser: 24 barge-ins by recorded voices, about six minutes.
tail: packages-test
	ANTIPHON_BARGE_INS=24 cargo nextest run --locked --no-capture --test browser -E 'test(barge_ins)'

## 100,000 sessions from as many seeds, every law held in each; and the traces of the release build are those of the debug build.
sim:
	cargo run --release --locked -- lab sim --expect tests/sim_hashes.txt
	cargo run --release --locked -- lab sim --seeds 100000

## Writes the table of traces anew, after a change of what the machine decides or the simulation does.
sim-hashes:
	cargo build --locked
	hashes=$$(cargo run --quiet --locked -- lab sim --seeds 24 --hashes --threads 1) && { \
	  echo '# Seeds and trace hashes, written by `make sim-hashes`. They change with whatever the machine decides, writes or lets sound.'; \
	  echo "$$hashes"; } > tests/sim_hashes.txt

## Ten million states of the machine, by every order of a bounded set of events.
model:
	cargo run --release --locked -- lab model --states 10000000

## Plants faults in the deciding room and shows that the tests notice at least nine of ten. Takes about an hour.
mutants: packages-test
	scripts/mutants
