#!/usr/bin/env bash
# check_published.sh PROGRAM: every published table is within its bound.
set -euo pipefail
"$1" validate --published --quiet
