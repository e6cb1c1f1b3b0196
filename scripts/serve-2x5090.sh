#!/usr/bin/env bash
# Serve a model on two RTX 5090s: scripts/serve-2x5090.sh MODEL [vLLM's arguments]; see --help.
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" serve --rig 2x5090 "$@"
