#!/usr/bin/env bash
# check_calibrate.sh PROGRAM SOURCE: steps that are simulated with one profile are given as measured
# to a fit that starts from another one; it finds the rate that was changed and writes a profile
# that `simulate` takes and that gives the same times.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1
unset SLIMPACK_PROFILE_PATH

profile() { # NAME TFLOPS
    cat <<PROFILE
{"schema": "slimpack/profile/1", "name": "$1", "gpu": "round",
 "gemm_model": {"tflops": $2, "level": "assumed", "source": "round numbers"},
 "attention": {
   "forward_causal": {"level": "assumed", "source": "round numbers", "points": [[1024, 400]]},
   "backward_causal": {"level": "assumed", "source": "round numbers", "points": [[1024, 400]]}},
 "memory": {"gb_per_s": 2000, "level": "assumed", "source": "round numbers"},
 "kernel": {"us": 0, "level": "assumed", "source": "round numbers"},
 "links": {"nvlink_gb_per_s": 200, "nvlink_latency_us": 4, "nic_efficiency": 0.8, "nic_latency_us": 10,
   "level": "assumed", "source": "round numbers"},
 "optimizer": {"bytes_per_parameter": 16, "level": "assumed", "source": "round numbers"}}
PROFILE
}
profile start 300 >start.json
profile truth 450 >truth.json

scenario() { # TP PP PROFILE
    echo "{\"model\": \"llama-13b\", \"cluster\": \"h100-8\", \"profile\": \"$3\"," \
        "\"parallel\": {\"tp\": $1, \"pp\": $2}," \
        "\"workload\": {\"uniform\": 4096, \"context\": 4096, \"samples_per_batch\": 8}}" >s.json
    "$program" simulate s.json --json --quiet >result.json || [ $? -eq 1 ] || complain "no result"
    sed -n 's/^  "iteration_ms": \([0-9.]*\),*$/\1/p' result.json | head -1
}
without_times() {
    sed -E 's/"(solver_ms|simulate_ms)": [0-9.e+-]+/"\1": 0/'
}
header=model,cluster,parallel.tp,parallel.pp,workload.uniform,workload.context
echo "$header,workload.samples_per_batch,iteration_ms" >runs.csv
for layout in "8 1" "2 4" "2 2"; do
    set -- $layout
    echo "llama-13b,h100-8,$1,$2,4096,4096,8,$(scenario "$1" "$2" ./truth.json)" >>runs.csv
done

cat >fit.json <<'SPEC'
{"schema": "slimpack/fit/1", "name": "mine", "profile": "./start.json",
 "constants": {"gemm_model.tflops": {"unit": "TFLOP/s", "least": 50, "most": 990}},
 "tables": {"runs": {"folds": 3}}, "bootstrap": 2,
 "ablations": [{"name": "no latency", "set": {"links.nvlink_latency_us": 0}}]}
SPEC
"$program" calibrate --from-measurements runs.csv --fit fit.json -o mine.json --report mine.md --quiet \
    >out.txt || complain "the fit failed"
grep -q '^| gemm_model.tflops  *|  *450 |' out.txt || complain "450 TFLOP/s not found: $(cat out.txt)"
for section in "Constants" "Errors" "Ablation" "Rows that the model does not explain"; do
    grep -q "^## $section\$" mine.md || complain "the report has no section '$section'"
done
grep -q '"level": "fitted"' mine.json || complain "mine.json does not say that it is fitted"
[ "$(scenario 2 2 ./mine.json)" = "$(scenario 2 2 ./truth.json)" ] ||
    complain "mine.json does not give the times of truth.json"
grep -q '"level": "fitted"' result.json && complain "truth.json is not fitted"

# Steps of logs in place of a table: two scenarios, each with the log of its run.
sed 's/"tables": {"runs": {"folds": 3}}/"tables": {"a": {}, "b": {}}/' fit.json >fit_logs.json
for run in "a 8 1" "b 2 4"; do
    set -- $run
    ms=$(scenario "$2" "$3" ./truth.json)
    sed 's|"profile": "./truth.json",||' s.json >"$1.json"
    awk -v ms="$ms" 'BEGIN { for (i = 1; i <= 20; i++)
        printf " iteration %8d/ 100 | elapsed time per iteration (ms): %.3f | global batch size: 8 |\n", i, i < 3 ? 5 * ms : i % 6 ? ms : 3 * ms }' >"$1.log"
done
"$program" calibrate --from-measurements a.json,b.json --log a.log --log b.log --fit fit_logs.json -o mine_logs.json \
    --quiet >out_logs.txt || complain "the fit to logs failed"
grep -q '^| gemm_model.tflops  *|  *450 |' out_logs.txt || complain "450 TFLOP/s not found in logs: $(cat out_logs.txt)"
"$program" validate a.json --log a.log --profile ./mine_logs.json --bound 1 --json -q -o kept.json >logged.json ||
    complain "the fitted profile misses the log that it was fitted to"
cmp <(without_times <kept.json) <(without_times <logged.json) || complain "-o keeps another report"
grep -q '"kept_steps": 15' logged.json || complain "kept steps: $(grep kept_steps logged.json)"
"$program" report logged.json -o page.html >/dev/null || complain "the report of a log has no page"
printf '%s\n' 'no step' >nothing.log
"$program" validate a.json --log nothing.log -q 2>/dev/null && complain "a log without steps is taken"

# A table with a map beside a scenario with its log: each is found as by itself. Empty cells are as the map's base has
# them or, where that states nothing, as by default.
head -1 runs.csv | sed 's/iteration_ms/ms/; s/workload.context/context/; s/$/,schedule.kind,memory.recompute/' >mapped.csv
sed '1d; s/$/,,/' runs.csv >>mapped.csv
cat >own_map.json <<'MAP'
{"schema": "slimpack/measurements/1", "measured": {"column": "ms", "is": "iteration_ms"},
 "base": {"model": "llama-13b", "memory": {"recompute": "none"}},
 "columns": {"model": "model", "cluster": "cluster", "parallel.tp": "parallel.tp", "parallel.pp": "parallel.pp",
   "workload.uniform": "workload.uniform", "context": "workload.context", "workload.samples_per_batch": "workload.samples_per_batch",
   "schedule.kind": "schedule.kind", "memory.recompute": "memory.recompute"}}
MAP
sed 's/"tables": {"runs": {"folds": 3}}/"tables": {"mapped": {}, "b": {}}/' fit.json >fit_mixed.json
mixed() { # OUTPUT TABLE: sources in either order
    "$program" calibrate --from-measurements "b.json,$2" --map own_map.json --log b.log --fit fit_mixed.json -o "$1" --json --quiet
}
mixed mine_mixed.json mapped.csv >out_mixed.json || complain "the fit to a table with a map and a log failed"
rate_of() { tr -d ' \n' <"$1" | grep -o '"tflops":[0-9.]*' | head -1; }
expect "what a map and a log are fitted with" '"tflops":450' "$(rate_of mine_mixed.json | sed 's/\.0*$//; s/449\.99*[0-9]*$/450/; s/450\.0*[0-9]*$/450/')"
cp mapped.csv empty.csv
sed -i 's/,,$/,1f1b,none/' mapped.csv
mixed stated_mixed.json mapped.csv >out_stated.json || complain "the fit to stated cells failed"
cmp out_mixed.json out_stated.json && cmp mine_mixed.json stated_mixed.json || complain "empty cells are not as their default"
sed 's/,,$/,gpipe,full/' empty.csv >mapped.csv
mixed other_mixed.json mapped.csv >out_other.json || complain "the fit to other cells failed"
cmp -s mine_mixed.json other_mixed.json && complain "the cells change nothing"
message=$("$program" calibrate --from-measurements b.json --map own_map.json --log b.log --fit fit_mixed.json 2>&1)
expect "a map without a table" "error: 1 maps for 0 tables: give one --map for each" "$message"

# Everything is the same with other numbers of threads, and as JSON nothing else is printed; what rows
# warn of stands in it.
for jobs in 1 3; do
    "$program" calibrate runs.csv --fit fit.json -o "jobs$jobs.json" -j $jobs --json \
        >"out$jobs.json" 2>err.txt || complain "the fit failed with -j $jobs"
    [ -s err.txt ] && complain "messages: $(cat err.txt)"
done
grep -q 'rows state neither parallel.dp nor nodes' out1.json || complain "the JSON drops warnings of rows"
cmp jobs1.json jobs3.json && cmp jobs1.json mine.json && cmp out1.json out3.json || failed=1

# A profile that extends another finds it from wherever it was written to.
mkdir folder
sed 's/"name": "mine"/"name": "mine", "extends": true/' fit.json >extend.json
"$program" calibrate runs.csv --fit extend.json -o folder/mine.json --quiet >/dev/null || complain "the fit that extends failed"
grep -q '"extends": "../start.json"' folder/mine.json || complain "extends: $(grep extends folder/mine.json)"
[ "$(scenario 2 2 ./folder/mine.json)" = "$(scenario 2 2 ./truth.json)" ] || complain "folder/mine.json is not read"

if command -v gnuplot >/dev/null; then
    "$program" calibrate runs.csv --fit fit.json --folds 0 --bootstrap 0 --no-ablation \
        --plot residuals.png --quiet >/dev/null || complain "no plot"
    [ -s residuals.png ] || complain "the plot is empty"
fi
exit "$failed"
