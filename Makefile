# What a contributor runs; .ci/run is what must be green.
.DEFAULT_GOAL := help
.PHONY: help format lint test test-all gates package bench docs pictures lock

help:            ## list these
	@awk -F ' *## ' '/^[a-z-]+:.*##/ {sub(/:.*/, "", $$1); printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

format:          ## format the code
	uv run ruff check --fix && uv run ruff format

lint:            ## style, types, import rules
	uv run ruff check && uv run ruff format --check && uv run mypy && uv run lint-imports

test:            ## the quick tests
	uv run pytest

test-all:        ## every tier, as in CI
	uv run pytest && uv run pytest -m 'engine or process or slow or property'

gates:           ## every gate of docs/reliability.md at its full size: hours (SHARE=0.1: a tenth)
	uv run --with pytest-cov tests/gates.py --share $(or $(SHARE),1)

package:         ## build the wheel and the sdist and try both in fresh environments
	.ci/package

bench:           ## start, list, command and ask beside the last commit: make bench BASE=<commit>
	uv run python -m compileall -q tui && uv run python tests/bench/pair_bench.py $(or $(BASE),HEAD~1)

docs:            ## the docs as a site, in build/site
	uv run --with mkdocs-material docs/site.py

pictures:        ## draw the pictures of the README and the docs
	uv run --with resvg-py --with pillow screenshots/make.py

lock:            ## write constraints.txt, the versions that the tests ran with
	uv export -q --all-extras --no-hashes --no-header --no-annotate --no-emit-project > constraints.txt
