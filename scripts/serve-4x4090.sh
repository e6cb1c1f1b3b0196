#!/usr/bin/env bash
# Serve a model on four RTX 4090s: scripts/serve-4x4090.sh MODEL [vLLM's arguments]; see --help.
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" serve --rig 4x4090 "$@"
