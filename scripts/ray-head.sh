#!/usr/bin/env bash
# Serve a model over two or more boxes: scripts/ray-head.sh --interface IF --rig 4x3090 MODEL
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" ray-head "$@"
