# Every target is one line into ./rig (scripts/rig is the Python package behind it).
#
#   make rehearse                     build the CPU engine, serve a real image request on four ranks
#   make test                         everything that is checked before a change lands
#   make apply build                  the wheel for a box with GPUs
#
# VLLM=0.32.0 names a pinned release (`./rig pins`); the primary one if absent.
# FLAVOR=cuda|cpu, FROM=wheel|source (for `rebase`: a pin), RANKS=4, OFFLOAD_TOWERS=1, MODEL=...: see docs/commands.md.

# Plain `=`: a variable of the same name in your environment changes nothing, one on make's
# command line does.
VLLM =
FLAVOR = cuda
FROM = wheel
RANKS = 4
OFFLOAD_TOWERS =
MODEL =
RIG = 4x3090
TO =
EDIT =
SOURCE =
WHEELS =
VERIFY_FLAGS =
PYTEST = ./rig --python -m pytest

# A misspelt variable would be ignored without a word, and another wheel built.
KNOWN = VLLM FLAVOR FROM RANKS OFFLOAD_TOWERS MODEL RIG TO EDIT SOURCE WHEELS VERIFY_FLAGS PYTEST
GIVEN = $(foreach v,$(.VARIABLES),$(if $(filter command line,$(origin $(v))),$(v)))
UNKNOWN = $(filter-out $(KNOWN) MAKEFLAGS MAKEOVERRIDES -%,$(GIVEN))
ifneq ($(strip $(UNKNOWN)),)
$(error unknown variable $(UNKNOWN): the known ones are $(KNOWN))
endif
ifneq ($(filter-out 0 1,$(OFFLOAD_TOWERS))$(word 2,$(OFFLOAD_TOWERS)),)
$(error OFFLOAD_TOWERS is 1 or 0, not $(OFFLOAD_TOWERS))
endif

# build/ and dist/ are folders: without this line `make build` would find build/ up to date.
.PHONY: help apply refresh verify build pins rehearse serve check check-patches format \
        test test-fast test-full clean rebase rebase-continue rebase-abort forecast probes bench \
        image release docs

help:
	@sed -n 's/^#   //p' Makefile; ./rig --help

apply:
	@./rig apply $(VLLM)

refresh:
	@./rig refresh $(VLLM)

verify:
	@./rig verify $(VLLM) $(VERIFY_FLAGS)

build:
	@./rig build $(VLLM) --flavor $(FLAVOR) --from $(FROM)

pins:
	@./rig pins

rebase:
	@./rig rebase $(TO) $(if $(filter-out wheel source,$(FROM)),--from $(FROM)) $(EDIT:%=--edit %)

rebase-continue:
	@./rig rebase --continue

rebase-abort:
	@./rig rebase --abort

forecast:
	@./rig forecast $(SOURCE)

probes:
	@./rig probes

# What the tools cost in seconds; the launcher is timed if `make rehearse` has made an engine.
bench:
	@./rig bench

image:
	@./rig image $(VLLM) --flavor $(FLAVOR)

release:
	@./rig release $(foreach w,$(WHEELS),--wheel $(w)) $(VERIFY_FLAGS)

# The documentation as a site, in build/site; broken links fail.
docs:
	@./rig docs --site

rehearse:
	@./rig rehearse $(VLLM) --ranks $(RANKS) $(if $(filter 1,$(OFFLOAD_TOWERS)),--offload-towers)

serve:
	@scripts/serve.sh --rig $(RIG) $(MODEL) $(if $(filter 1,$(OFFLOAD_TOWERS)),--offload-towers)

check: check-patches
	@./rig --python -m ruff check .
	@./rig --python -m ruff format --check .
	@./rig --python -m mypy
	@.venv/bin/shellcheck rig scripts/*.sh .ci/run

# vLLM's own ruff and mypy settings, on every file that a patch touches, on every pin.
check-patches:
	@./rig check-patches

format:
	@./rig --python -m ruff check --fix .
	@./rig --python -m ruff format .

# Unit tests only: no engine, no release wheels. Seconds to a minute or two.
test-fast:
	@$(PYTEST) -m "not engine and not network and not full"

# What must pass before a change lands: proofs for all pins, both wheels, the rehearsal.
test: check
	@./rig verify $(VERIFY_FLAGS)
	@$(PYTEST) -m "not full"

# Everything, the slow proofs too: other pins live, every release wheel built.
test-full: check
	@./rig verify $(VERIFY_FLAGS)
	@$(PYTEST)

# build/ holds your edited trees: those are not removed, `./rig clean` says which it leaves.
clean:
	@./rig clean
