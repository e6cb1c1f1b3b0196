# Every target is one line into ./rig (scripts/rig is the Python package behind it). `make help`
# prints the lines below and the `##` of each target.
#
#   make rehearse              no GPU needed: the CPU engine answers about a photograph
#   make apply build           the wheel for a box with GPUs
#
#   VLLM=0.32.0                a pinned release (`make pins`); the primary one if absent
#   FLAVOR=cuda|cpu            which engine: build, image
#   FROM=wheel|source          build: repack the release's wheel, or compile; rebase: the old pin
#   RANKS=4                    rehearse: tensor-parallel ranks, 1, 2 or 4
#   OFFLOAD_TOWERS=1           rehearse, serve: the towers' weights rest in host memory
#   MODEL=NAME                 serve: a hub's model, or a folder
#   RIG=4x3090                 serve: a rig file's name or path, or auto
#   TO=0.34.0                  rebase: the release to carry the series to
#   EDIT=0401                  rebase, rebase-continue: patches to stop at
#   SOURCE=TREE                forecast: a folder, an sdist, or a git address[@ref]
#   WHEELS=all                 release: VERSION:FLAVOUR[:ARCH] ..., or all
#   VERIFY_FLAGS=...           verify, test, release: options of `./rig verify`
#   PYTEST=...                 test*: the command that runs the tests
#   PYTHON=/path/to/python3    makes .venv, once; python3 if absent

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
KNOWN = VLLM FLAVOR FROM RANKS OFFLOAD_TOWERS MODEL RIG TO EDIT SOURCE WHEELS VERIFY_FLAGS PYTEST PYTHON
GIVEN = $(foreach v,$(.VARIABLES),$(if $(filter command line,$(origin $(v))),$(v)))
UNKNOWN = $(filter-out $(KNOWN) MAKEFLAGS MAKEOVERRIDES -%,$(GIVEN))
ifneq ($(strip $(UNKNOWN)),)
$(error unknown variable $(UNKNOWN): the known ones are $(KNOWN))
endif
ifneq ($(words $(FLAVOR)) $(filter-out cuda cpu,$(FLAVOR)),1 )
$(error FLAVOR is cuda or cpu, not '$(FLAVOR)')
endif
ifneq ($(words $(RANKS)) $(filter-out 1 2 4,$(RANKS)),1 )
$(error RANKS is 1, 2 or 4, not '$(RANKS)')
endif
ifneq ($(filter-out 0 1,$(OFFLOAD_TOWERS))$(word 2,$(OFFLOAD_TOWERS)),)
$(error OFFLOAD_TOWERS is 1 or 0, not $(OFFLOAD_TOWERS))
endif

# build/ and dist/ are folders: without .PHONY `make build` would find build/ up to date.
TARGETS = help apply refresh verify build pins rehearse serve check check-patches format \
          test test-fast test-full clean rebase rebase-continue rebase-abort forecast probes bench \
          image release docs
.PHONY: $(TARGETS)

# Here and not by .DEFAULT: `make tests` would find the folder tests/ up to date.
STRANGE = $(filter-out $(TARGETS),$(MAKECMDGOALS))
ifneq ($(strip $(STRANGE)),)
$(error unknown target $(STRANGE): `make help` lists them)
endif

help: ## this text
	@sed -n 's/^#   //p' Makefile
	@echo
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name text; do \
	    printf '%-26s %s\n' "$$name" "$$text"; done
	@echo; echo './rig --help lists all commands: doctor, plan, p2p, report, ...'

apply: ## build/vllm-<version>: the release and one commit per patch
	@./rig apply $(VLLM)

refresh: ## commits in build/ back to patches/, the locks renewed
	@./rig refresh $(VLLM)

verify: ## prove the series from nothing on every pin
	@./rig verify $(VLLM) $(VERIFY_FLAGS)

build: ## the wheel, in dist/
	@./rig build $(VLLM) --flavor $(FLAVOR) --from $(FROM)

pins: ## the pinned releases
	@./rig pins

rebase: ## carry the series to another release
	@./rig rebase $(TO) $(if $(filter-out wheel source,$(FROM)),--from $(FROM)) $(EDIT:%=--edit %)

rebase-continue: ## go on after a conflict is resolved, or a patch edited
	@./rig rebase --continue $(EDIT:%=--edit %)

rebase-abort: ## throw the rebase away
	@./rig rebase --abort

forecast: ## try the series on any tree
	@./rig forecast $(SOURCE)

probes: ## look up what each patch relies on upstream
	@./rig probes

# The launcher is timed if `make rehearse` has made an engine.
bench: ## what the tools cost in seconds
	@./rig bench

image: ## a container image
	@./rig image $(VLLM) --flavor $(FLAVOR)

release: ## wheels, checksums, bill of materials, provenance, changelog
	@./rig release $(foreach w,$(WHEELS),--wheel $(w)) $(VERIFY_FLAGS)

docs: ## the documentation as a site, in build/site; broken links fail
	@./rig docs --site

rehearse: ## serve a real image request with no GPU
	@./rig rehearse $(VLLM) --ranks $(RANKS) $(if $(filter 1,$(OFFLOAD_TOWERS)),--offload-towers)

serve: ## serve a model on this box
	@scripts/serve.sh --rig $(RIG) $(MODEL) $(if $(filter 1,$(OFFLOAD_TOWERS)),--offload-towers)

check: check-patches ## lint, formatting, types, shell scripts; vLLM's own on the patches
	@./rig --python -m ruff check .
	@./rig --python -m ruff format --check .
	@./rig --python -m mypy
	@.venv/bin/shellcheck rig scripts/*.sh .ci/run

check-patches: ## vLLM's own ruff and mypy settings on each patched file, on every pin
	@./rig check-patches

format: ## format the tools' Python
	@./rig --python -m ruff check --fix .
	@./rig --python -m ruff format .

test-fast: ## unit tests only: no engine, no release wheels
	@$(PYTEST) -m "not engine and not network and not full"

test: check ## what must pass before a change lands: proofs, wheels, the rehearsal
	@./rig verify $(VERIFY_FLAGS)
	@$(PYTEST) -m "not full"

test-full: check ## everything, the slow proofs too
	@./rig verify $(VERIFY_FLAGS)
	@$(PYTEST)

clean: ## remove build/ and dist/, but no tree that holds work of yours
	@./rig clean
