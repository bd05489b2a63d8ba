#!/usr/bin/env bash
# check_traces.sh PROGRAM SOURCE: traces in the form of PyTorch's profiler, whose sums are known by how they are made.
# `validate --trace` finds them by rank, `calibrate --from-trace` a profile by which `simulate` runs, and files that
# are cut off, of the CPU alone, of other runs or no traces are refused by name and place.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
# shellcheck source=tests/cli/make_trace.sh
. "$(dirname "$0")/make_trace.sh"
cd "$work" || exit 1
unset SLIMPACK_PROFILE_PATH

cat >s.json <<'end'
{"model": "llama-3-8b", "cluster": "h100-8", "profile": "h100", "parallel": {"tp": 2, "pp": 2, "dp": 2},
 "workload": {"uniform": 4096, "context": 4096, "samples_per_batch": 8}}
end

mkdir traces
make_trace 0 8 30 >traces/rank0.json
make_trace 1 8 0 | gzip >traces/rank1.json.gz
make_trace 1 8 0 >rank1.json

# WHAT of a rank in the table of a step, in ms.
figure() { # FILE RANK WHAT
    awk -F, -v rank="$2" -v what="$3" '$1 == rank && $2 == what { print $4 }' "$1"
}
untimed() { grep -v -e solver_ms -e simulate_ms; } # what no two runs have in common
"$program" validate s.json --trace traces --csv --quiet >timed.csv || complain "validate --trace FOLDER: exit $?"
untimed <timed.csv >out.csv
"$program" validate s.json --trace traces/rank0.json rank1.json --csv --quiet >timed.csv || complain "validate: files"
untimed <timed.csv >files.csv
cmp -s out.csv files.csv || complain "a folder and its files, one of them packed, differ"
"$program" validate s.json --trace traces/rank0.json --trace rank1.json --csv --quiet | untimed | cmp -s - files.csv ||
    complain "options and operands differ"
# Of 20 rounds in 2 steps, the last ends at 940: 19.94 ms in all. Work of a round: 400 + 100 + 200 + 10, the kernel of
# 50 being beside the attention.
while read -r what early late; do
    expect "rank 0, $what" "$early" "$(figure out.csv 0 "$what")"
    expect "rank 1, $what" "$late" "$(figure out.csv 1 "$what")"
done <<'end'
step 9.97 9.97
products 4 4
attention 3 3
optimizer 0 0
idle 1.57 1.87
end
expect "rank 0, exposed" 1.3 "$(figure out.csv 0 "communication that nothing hides")"
expect "rank 1, exposed" 1 "$(figure out.csv 1 "communication that nothing hides")"
expect "rank 0, both" 2.87 "$(figure out.csv 0 "idle or that nothing hides")"
expect "bound by memory" 0.5 "$(figure out.csv 0 "bound by memory")"
expect "copies" 0.1 "$(figure out.csv 0 "copies and memset")"
expect "all-reduce, early" 2.9 "$(figure out.csv 0 all-reduce)"
expect "all-reduce, late" 2.6 "$(figure out.csv 1 all-reduce)"
expect "sends" 0.4 "$(figure out.csv 0 "send and receive")"
expect "waiting, early" 0.3 "$(figure out.csv 0 "waiting in collectives")"
expect "waiting, late" "" "$(figure out.csv 1 "waiting in collectives")"
# What the early rank waits is beside the attention.
expect "waiting that shows" "" "$(figure out.csv 0 "waiting that nothing hides")"

expect "traced step among the figures" 9.97 "$(awk -F, '$1 == "measured.iteration_ms" { print $2 }' out.csv)"
# The prediction is that of `simulate`, whatever the trace says.
"$program" simulate s.json --json --quiet >result.json || complain "no result"
ms=$(sed -n 's/^  "iteration_ms": \([0-9.e+-]*\),*$/\1/p' result.json)
expect "predicted step" "$ms" "$(awk -F, '$1 == 0 && $2 == "step" { print $3 }' out.csv)"
awk -F, '$1 == 0 && $3 != "" { p[$2] = $3 }
    END {
        sum = p["products"] + p["attention"] + p["bound by memory"] + p["optimizer"]
        sum += p["communication that nothing hides"] + p["idle"]
        d = sum - p["step"]; exit !(d < 1e-3 && d > -1e-3) }' out.csv || complain "predicted parts do not add up to the step"
# Kernels bound by memory take what the ranks compute less where memory is endless and launches are free: the mean of
# both pipeline ranks, the second of which begins at rank 4.
cat >endless.json <<'end'
{"schema": "slimpack/profile/1", "extends": "h100", "hbm_gb_per_s": 1e9, "memory": {"gb_per_s": 1e9, "level": "assumed", "source": "endless"},
 "kernel": {"us": 1e-9, "level": "assumed", "source": "free"}}
end
computed() { # ARGUMENTS...
    "$program" simulate s.json "$@" --json --quiet | sed -n 's/^ *"compute": \([0-9.e+-]*\),*$/\1/p' | head -1
}
make_trace 4 8 0 >rank4.json
"$program" validate s.json --trace traces/rank0.json rank4.json --csv --quiet |
    awk -F, -v all="$(computed)" -v least="$(computed --set profile=./endless.json --set cluster.hbm_gb_per_s=1e9)" '
    $2 == "bound by memory" { memory += $3 / 2; ranks++ }
    END { d = memory / (all - least) - 1; print memory, all - least; exit !(ranks == 2 && memory > 1 && d < 1e-3 && d > -1e-3) }' \
        >memory.txt || complain "kernels bound by memory take another time: $(cat memory.txt)"
"$program" validate s.json --trace traces --json --quiet -o report.json >out.json || complain "validate --json"
cmp -s report.json out.json || complain "-o and --json differ"
grep -q '"schema": "slimpack/validation/1"' out.json || complain "no validation"
"$program" validate s.json --trace traces --bound 1 --quiet >/dev/null
expect "a bound that is missed" 1 $?

# A profile, its values and what it is made of.
"$program" calibrate --from-trace traces/rank0.json rank1.json --profile h100 -o mine.json --json >c.json 2>c.err ||
    complain "calibrate --from-trace: exit $?"
grep -q '"value_of": "gemm 14336x4096 at m 4096"' c.json || complain "no product in $(cat c.json)"
grep -q '"value_of": "all_reduce of 2 ranks, 2097152 bytes"' c.json || complain "no collective"
grep -q '"section": "kernel.us"' c.json || complain "kernel.us is not named"
"$program" simulate s.json --set profile=./mine.json --quiet >with.txt || complain "the profile is not read"
grep -q 'profile mine' with.txt || complain "the profile has another name"

refused() { # STATUS TEXT ARGUMENTS...
    local status=$1 text=$2
    shift 2
    "$program" "$@" >/dev/null 2>err.txt
    expect "exit of $*" "$status" $?
    tr -s '\n ' ' ' <err.txt | grep -qF -- "$text" || complain "$*: expected '$text', got '$(cat err.txt)'"
}
head -c 4000 traces/rank0.json >cut.json
refused 3 "cut.json:" validate s.json --trace cut.json
refused 3 "ends in the middle" validate s.json --trace cut.json
head -c 9000 traces/rank0.json >cut.json
"$program" calibrate --from-trace cut.json --profile h100 -o cut_profile.json >/dev/null 2>err.txt ||
    complain "a trace that is cut off gives no profile: $(cat err.txt)"
grep -q 'cut.json ends in the middle, at line [0-9]*' err.txt || complain "the cut is not told: $(cat err.txt)"
head -c 500 traces/rank1.json.gz >cut.json.gz
refused 3 "ends in the middle" validate s.json --trace cut.json.gz
printf '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}' >cpu.json
refused 3 "nothing on a GPU" calibrate --from-trace cpu.json --profile h100 -o x.json
refused 3 "has no 'traceEvents'" validate s.json --trace s.json
refused 3 "slimpack/result/1" calibrate --from-trace result.json --profile h100 -o x.json
"$program" simulate s.json --trace own.json --quiet >/dev/null || complain "no trace of the program's own"
refused 3 "is of PyTorch's profiler" calibrate --from-trace own.json --profile h100 -o x.json
make_trace 1 8 0 "NVIDIA A100-SXM4-80GB" >a100.json
refused 3 "give traces of one GPU" calibrate --from-trace traces/rank0.json a100.json --profile h100 -o x.json
make_trace 1 16 0 >larger.json
refused 3 "a run on 8 GPUs, larger.json on 16" validate s.json --trace traces/rank0.json larger.json
refused 3 "are both of rank 1" validate s.json --trace rank1.json traces/rank1.json.gz
make_trace 8 16 0 >ninth.json
refused 3 "is of rank 8, s.json has 8 GPUs" validate s.json --trace ninth.json
mkdir empty
refused 3 "no .json and no .json.gz" validate s.json --trace empty
refused 2 "needs --profile BASE" calibrate --from-trace rank1.json -o x.json
refused 2 "of the options --profile and -o alone" calibrate --from-trace rank1.json --profile h100 -o x.json --quick
refused 2 "of the options --profile and -o alone" calibrate --from-trace rank1.json --profile h100 -o x.json --folds 2
refused 2 "exclude each other" validate s.json --trace rank1.json --published
refused 2 "--trace need SCENARIO" validate --trace rank1.json
[ ! -e x.json ] || complain "a refused calibration wrote a profile"
exit "$failed"
