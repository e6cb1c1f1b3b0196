#!/usr/bin/env bash
# Serve a model on eight RTX 3090s: scripts/serve-8x3090.sh MODEL [vLLM's arguments]; see --help.
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" serve --rig 8x3090 "$@"
