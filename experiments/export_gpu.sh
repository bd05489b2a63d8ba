#!/bin/sh
# export_gpu.sh [FOLDER [STEPS]]: plans experiments/validate_gpu.json and writes what a GPU is to execute of it to
# FOLDER (default gpu-requests), one plan a case, STEPS steps each (default 4: one to warm up, and of the others the
# one of median time). tests/gpu/run.sh executes them on the machine with the GPU, tests/gpu/file_results.sh compares
# what comes back with what is predicted. SP_PROGRAM: slimpack (default build/slimpack).
set -eu
cd "$(dirname "$0")/.."
folder=${1:-gpu-requests}
profiles=$folder/profiles
rm -rf "$profiles"
mkdir -p "$profiles"
# Until a partition was measured its cases are planned with the whole GPU's profile, which goes along.
if [ ! -e profiles/h200-1of4.json ]; then
    cp profiles/h200.json "$profiles/h200-1of4.json"
fi
rm -f "$folder"/*.json "$folder"/runs.txt
SLIMPACK_PROFILE_PATH=$profiles${SLIMPACK_PROFILE_PATH:+:$SLIMPACK_PROFILE_PATH} "${SP_PROGRAM:-build/slimpack}" \
    validate experiments/validate_gpu.json --backend cuda --precision bf16 --steps "${2:-4}" --export "$folder"
