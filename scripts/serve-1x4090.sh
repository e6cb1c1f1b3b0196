#!/usr/bin/env bash
# Serve a model on one RTX 4090: scripts/serve-1x4090.sh MODEL [vLLM's arguments]; see --help.
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" serve --rig 1x4090 "$@"
