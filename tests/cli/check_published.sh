#!/usr/bin/env bash
# check_published.sh PROGRAM SOURCE: every published table is within its bound; but for a full run (SP_TEST_FULL=1)
# without those of hundreds of rows on large clusters, of whose kind another is there.
set -euo pipefail
[ "${SP_TEST_FULL:-}" != 1 ] || exec "$1" validate --published --quiet
for map in "$2"/experiments/published/[!f]*.json; do
    case $(basename "$map" .json) in
    h100_nanotron | h100_nanotron_memory | h100_nanotron_network | a100_bigscience | a100_bigscience_memory) ;;
    *) "$1" validate --published --table "$(basename "$map" .json)" --quiet ;;
    esac
done
