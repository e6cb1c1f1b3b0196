#!/usr/bin/env bash
# Serve a model on a rig: scripts/serve.sh --rig 4x3090 MODEL [vLLM's arguments]; see --help.
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" serve "$@"
