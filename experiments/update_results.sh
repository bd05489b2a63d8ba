#!/bin/sh
# update_results.sh: runs what the pages show and puts the outputs into experiments/results and from
# there into the pages. Needs the release build with its benchmarks.
set -eu
cd "$(dirname "$0")/.."
build/slimpack compare experiments/demo.json --strategies packed,packed-tuned,ffd,balanced,chunkflow,slimpipe,slimpack,slimpack-zb --quiet >experiments/results/demo.txt
build/slimpack simulate experiments/demo.json --set strategy.kind=slimpack --set workload.batches=1 --quiet >experiments/results/step.txt
build/slimpack tune llama-3-70b --gpus 256 --context 32K --quiet >experiments/results/tune_70b.txt
build/slimpack simulate experiments/demo.json --set strategy.kind=slimpack --set workload.batches=1 --set parallel.dp=1 \
    --set nodes=8 --set workload.samples_per_batch=128 --plot experiments/results/step.png --quiet >/dev/null
build/slimpack compare experiments/zoo.json --schedules 1f1b,zb-h1,zb-v,slimpipe --quiet >experiments/results/zoo_four.txt
build/bench/engine >experiments/results/engine.json
build/bench/schedules >experiments/results/schedules.jsonl
build/bench/network | experiments/network_tables.sh >experiments/results/network.txt
build/bench/network_step | experiments/network_tables.sh >experiments/results/network_step.txt
build/bench/network_graph | experiments/network_tables.sh >experiments/results/network_graph.txt
# Cases in which the CPU executor takes more than 3 % beside its kernels, and all cases together.
build/bench/host_overhead | sed -n 's/.*"group": "\([^"]*\)", "case": "\([^"]*\)".*"overhead": \([-0-9.]*\)}.*/\1|\2|\3/p' |
    awk -F'|' '$2 == "all" || $3 > 0.03 { printf "%-10s %-32s %5.1f %%\n", $1, $2, 100 * $3 }' >experiments/results/host_overhead.txt
build/bench/sweep >experiments/results/sweep.json
build/bench/solver >experiments/results/solver.json
build/bench/assignment >experiments/results/assignment.txt
{
    build/bench/plan_stream experiments/demo.json 1000 0 strategy.kind=slimpack
    build/bench/plan_stream experiments/demo.json 1000 0 strategy.kind=slimpack-zb parallel.tp=2 parallel.pp=4 parallel.dp=16 \
        memory.recompute=none
} >experiments/results/plan_stream.txt
build/bench/rivals >experiments/results/rivals.txt
experiments/expert_packs.sh
build/bench/zones >experiments/results/zones.txt
build/slimpack prefill experiments/prefill.json --lengths 16K,32K,64K,128K,256K,512K,1M --alphas 0.8,0.95 --quiet --wide \
    >experiments/results/prefill.txt
# By head: seconds, speed-up beside its limit, what is kept.
build/bench/sample_attention | awk -F'[,:] ' '
    { one = /"head"/; for (i = 1; i < NF; i += 2) { gsub(/[{"]/, "", $i); gsub(/[}"]/, "", $(i + 1)); of[$i] = $(i + 1) } }
    NR == 1 { print "head      version  alpha    dense s  sampling  attending  speed-up     limit   pairs  CRA sampled  CRA all" }
    one { printf "%-9s %-8s %5s %10s %9s %10s %8sx %8sx %7s %12s %8s\n", of["head"], of["pattern"], of["alpha"], of["dense_s"], \
                      of["sampling_s"], of["attending_s"], of["speedup"], of["limit"], of["kept_pairs"], of["cra_sampled"], of["cra"] }
    !one { printf "the first %s together: %s s dense, %s s sampled, %sx\n", of["heads"], of["dense_s"], of["sampled_s"], of["speedup"] }
' >experiments/results/sample_attention.txt
build/bench/local_search >experiments/results/local_search.txt
build/slimpack compare experiments/demo.json --memory-curve --strategies packed-tuned,chunkflow,slimpipe,slimpack,slimpack-zb \
    --set workload.batches=1 --quiet --wide >experiments/results/memory_curve.txt
experiments/validate_host.sh
experiments/heterospec.sh

# Fitted profiles, their reports, and what they predict.
published=experiments/published
build/slimpack calibrate --from-measurements $published/a100_single_node.csv,$published/a100_multi_node.csv \
    --fit $published/fit_a100.json -o profiles/a100-fitted.json --report experiments/results/fit_a100.md --quiet >/dev/null
build/slimpack calibrate --from-measurements $published/h800_throughput.csv \
    --fit $published/fit_h800.json -o profiles/h800-fitted.json --report experiments/results/fit_h800.md --quiet >/dev/null
fit() { # TABLE SPEC PROFILE
    build/slimpack calibrate --from-measurements "$published/$1" --fit "$published/$2.json" -o "profiles/$3.json" \
        --report "experiments/results/$2.md" --quiet >/dev/null
}
fit h100_dgxc.csv,$published/h100_dgxc_2025.csv fit_h100 h100
fit h100_nanotron.csv fit_h100_nanotron h100-nanotron
fit h100_fsdp.json fit_h100_fsdp h100-fsdp
fit a100_megascale.csv,$published/a100_internevo.csv fit_a100_steps a100
fit a100_fsdp.json,$published/a100_fsdp_small.csv fit_a100_fsdp a100-fsdp
fit b200_simumax.csv fit_b200 b200
fit gb200_405b.csv fit_gb200 gb200
fit packed_sft.csv,$published/qwen3_overlap.csv fit_h100_bridge h100-bridge
# The profile that is fitted is one of the inputs: profile h100 names it for FP8.
build/slimpack calibrate --from-measurements $published/h100_dgxc_fp8.csv --fit $published/fit_h100_fp8.json \
    -o /tmp/h100-fp8.json --report experiments/results/fit_h100_fp8.md --quiet >/dev/null
mv /tmp/h100-fp8.json profiles/h100-fp8.json
build/slimpack calibrate --from-measurements $published/dynamic_cp.csv,$published/dynamic_cp_packed.json \
    --fit $published/fit_h100_varlen.json -o profiles/h100-varlen.json --report experiments/results/fit_h100_varlen.md --quiet >/dev/null
for report in a100 a100_steps h800 h100 h100_nanotron h100_fsdp a100_fsdp h100_varlen b200 gb200 h100_bridge h100_fp8; do
    cat "experiments/results/fit_$report.md"
done | awk '/^## /{on = $2 == "Errors"} on && /^\|/ && !(/^\| (table|---)/ && seen[$0]++)' >experiments/results/fits.txt
experiments/evidence.sh build/slimpack
build/slimpack validate --published --quiet --wide >experiments/results/validation.txt

experiments/reproduce.sh

# Puts all results into the pages, its own among them.
experiments/atlas.sh build/slimpack
