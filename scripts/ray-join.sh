#!/usr/bin/env bash
# Lend this box's cards to a head: scripts/ray-join.sh HEAD_ADDRESS --token-file FILE
exec "$(dirname -- "${BASH_SOURCE[0]}")/tools-env.sh" ray-join "$@"
