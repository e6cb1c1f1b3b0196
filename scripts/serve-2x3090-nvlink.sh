#!/usr/bin/env bash
# Serve a model on two RTX 3090s joined by NVLink: scripts/serve-2x3090-nvlink.sh MODEL [vLLM's arguments]; see --help.
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" serve --rig 2x3090-nvlink "$@"
