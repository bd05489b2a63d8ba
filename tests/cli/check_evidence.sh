#!/usr/bin/env bash
# check_evidence.sh PROGRAM SOURCE: what the program says of steps that are unlike logged ones is what its
# profiles and the published tables give as they are.
set -euo pipefail
"$2/experiments/evidence.sh" --check "$1"
