#!/usr/bin/env bash
# check_outputs.sh PROGRAM SOURCE: an output that is another file of the command line is refused before anything is
# computed or written, by whatever name; standard streams, what an output replaces, and names that gnuplot would run.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

echo '{"model": "llama-7b", "parallel": {"tp": 4}, "workload": {"uniform": 512, "samples_per_batch": 1}}' >scenario.json
cp scenario.json before.json
mkdir folder
ln -s ../scenario.json folder/link.json
ln scenario.json hard.json

refused() { # WORD... : the command line
    message=$("$program" "$@" --quiet 2>&1 >/dev/null)
    expect "exit of $*" 2 "$?"
    case $message in
    *"same file"* | *"write over"*) ;;
    *) complain "$*: $message" ;;
    esac
    cmp before.json scenario.json || complain "$*: the scenario was changed"
    [ -e new.json ] && complain "$*: an output was made"
    true
}
refused simulate scenario.json --trace new.json --plan new.json
refused simulate scenario.json --trace new.json --graphml ./new.json
refused simulate scenario.json --trace new.json --memory-snapshot folder/../new.json
refused simulate scenario.json --plan scenario.json
refused simulate scenario.json --plan hard.json
refused simulate scenario.json --trace folder/link.json
refused plan scenario.json -o "$work/scenario.json"
refused run scenario.json --backend host --record new.json -o new.json
ln -s new.json dangling
ln -s ../dangling folder/chain
ln -s "$work/folder/../new.json" folder/absolute
for link in dangling folder/chain folder/absolute; do
    refused simulate scenario.json --trace new.json --plan "$link"
    refused simulate scenario.json --plot "$link" --trace ./new.json
done
refused simulate scenario.json --plot folder/chain --trace folder/absolute
refused sweep scenario.json -o new.json --plot dangling
refused tune llama-7b --gpus 2 --context 2K --lengths scenario.json -o scenario.json
refused merge scenario.json shard.jsonl -o scenario.json
refused validate --measurements scenario.json --map map.json -o scenario.json

# Files of one name in two folders are two, and a device may be named twice.
"$program" simulate scenario.json --plan new.json --trace folder/new.json --quiet >/dev/null ||
    complain "two outputs of one name: exit $?"
[ -s new.json ] && [ -s folder/new.json ] || complain "two outputs of one name: not both written"
"$program" simulate scenario.json --plan /dev/null --trace /dev/null --quiet >/dev/null || complain "/dev/null: exit $?"
# ---- standard output and other streams ----

expect_told() { # TEXT WORD... : refused as wrong usage, with this text
    told=$1
    shift
    message=$("$program" "$@" --quiet 2>&1 >out.txt)
    expect "exit of $*" 2 "$?"
    case $message in
    *"$told"*) ;;
    *) complain "$*: $message" ;;
    esac
}
"$program" simulate scenario.json --trace trace.json --quiet >shown.txt
"$program" simulate scenario.json --trace - --quiet >out.txt 2>err.txt || complain "--trace -: exit $?"
cmp trace.json out.txt || complain "--trace -: not the trace"
cmp shown.txt err.txt || complain "--trace -: not the text on standard error"
"$program" simulate scenario.json --trace /dev/stdout --quiet 2>err.txt | cmp trace.json - || complain "a pipe: not the trace"
"$program" plan scenario.json -o plan.json --quiet >/dev/null
"$program" plan - -o - --quiet <scenario.json 2>/dev/null | cmp plan.json - || complain "plan - -o -: not the plan"
[ -e ./- ] && complain "a file called -"
for command in simulate compare prefill "plan -o /dev/null" "run --backend fake" "plan --check" report lengths; do
    input=scenario.json
    case $command in
    run* | *--check) input=plan.json ;;
    report) command="report -o page.html" && "$program" simulate scenario.json --json >result.json && input=result.json ;;
    lengths) echo 512 >lengths.txt && input=lengths.txt ;;
    esac
    # shellcheck disable=SC2086
    "$program" $command $input --quiet >file.out 2>&1
    # shellcheck disable=SC2086
    cat $input | "$program" $command - --quiet >pipe.out 2>&1 || complain "$command -: exit $?"
    sed "s,/dev/stdin,$input,g" pipe.out | sed 's/  *[0-9.]* ms to .*//' | head -n 3 >pipe.txt
    sed 's/  *[0-9.]* ms to .*//' file.out | head -n 3 | cmp -s - pipe.txt || complain "$command: another answer from a pipe"
done
expect_told "standard output" simulate scenario.json --trace - --json
expect_told "standard output" simulate scenario.json --trace - --plan -
expect_told "can be read once" plan - --stream
expect_told "cannot be '-'" simulate scenario.json --plot -
expect_told "cannot be '-'" reproduce zb_v -o -
expect_told "cannot be '-'" sweep scenario.json -o -
expect_told "cannot be '/dev/stdout'" run plan.json --backend fake --record /dev/stdout
# A record goes to a pipe once, when it is whole.
timeout 60 "$program" run plan.json --backend fake --record >(cat >record.json) --quiet >/dev/null || complain "--record to a pipe: exit $?"
for _ in $(seq 100); do [ -s record.json ] && break; sleep 0.05; done
expect "records in a pipe" 1 "$(grep -o '"schema":"slimpack/execution/1"' record.json | wc -l)"
expect_told "same file 'out.txt'" simulate scenario.json --trace out.txt
# What is written to be copied: alone on standard output where - is asked for, whole behind an answer, over no input.
"$program" simulate scenario.json --emit megatron=flags.sh --quiet >/dev/null
"$program" simulate scenario.json --emit megatron=- --quiet 2>/dev/null | cmp flags.sh - || complain "--emit to -: other flags"
[ -e ./- ] && complain "a file is called -"
"$program" simulate scenario.json --emit megatron --quiet | tail -n "$(wc -l <flags.sh)" | cmp flags.sh - || complain "--emit: flags are cut on a screen"
cp scenario.json own.json
expect_told "--emit would write over 'own.json'" simulate own.json --emit megatron=own.json
cmp scenario.json own.json || complain "--emit: the scenario was overwritten"

# ---- - for every command's inputs and outputs ----

cp "$source"/experiments/{decode,prefill}.json "$source/experiments/figures/zb_v.json" "$source"/tests/cli/inputs/* .
mv t.csv stdin.csv # by what a table from a pipe is called
sed -i 's/"t"/"stdin"/' fit.json
cat >config.json <<'end'
{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 4, "vocab_size": 1000}
end
echo '{"base": {"model": "llama-7b", "parallel": {"tp": 4}, "workload": {"uniform": 512, "samples_per_batch": 1}}, "grid": {"parallel.pp": [1, 2]}}' >spec.json
"$program" sweep spec.json -o rows.jsonl -q >/dev/null
"$program" plan small.json -o small_plan.json -q >/dev/null
"$program" simulate small.json --json -q >small_result.json
# What takes time on this machine, and names of files, differ.
steady() { sed 's,/dev/stdin,FILE,g; s,"[a-z_]*_ms": .*,,' | grep -v -e _ms -e seconds -e '[0-9] ms' -e FILE -e '"model": ' -e '"name": '; }
reads() { # FILE WORD... : with the file in the place of @, and as -
    local file=$1
    shift
    rm -f merged.jsonl
    "$program" "${@/#@/$file}" --json -q 2>err.txt | sed "s,$file,FILE,g" | steady >file.out
    rm -f merged.jsonl
    "$program" "${@/#@/-}" --json -q <"$file" 2>err.txt | steady >pipe.out
    [ -s file.out ] || complain "$*: no answer: $(cat err.txt)"
    cmp -s file.out pipe.out || complain "$*: another answer from a pipe: $(diff file.out pipe.out | head -n 4)"
}
reads decode.json decode @
reads prefill.json prefill @
reads small.json simulate @
reads small.json compare @ --strategies packed,slimpack
reads small.json plan @ -o made.json
reads small.json validate @ --backend fake
reads small_plan.json plan --check @
reads small_plan.json run @ --backend fake
reads small_result.json report @ -o page.html
reads spec.json sweep @ -o rows.jsonl --resume
reads spec.json merge @ rows.jsonl -o merged.jsonl
reads stdin.csv validate --measurements @
reads stdin.csv calibrate --from-measurements @ --fit fit.json -o made.json
reads fit.json calibrate --from-measurements stdin.csv --fit @ -o made.json
reads config.json tune @ --gpus 2 --context 2K --strategies packed
reads zb_v.json reproduce @
reads lengths.txt lengths @
writes() { # WORD... -o: the file and the stream hold the same bytes, and people are told on standard error
    rm -f made.svg
    "$program" "$@" made.svg -q >/dev/null 2>&1
    "$program" "$@" - -q >out.txt 2>err.txt
    [ -s made.svg ] && [ -s err.txt ] || complain "$*: nothing is written or told"
    cmp -s <(steady <made.svg) <(steady <out.txt) || complain "$* -: not the file"
}
writes plan small.json -o
writes simulate small.json --graphml
writes simulate small.json --topology
writes report small_result.json -o
writes run small_plan.json --backend fake --clock virtual -o
writes validate small.json --backend fake -o
writes calibrate --from-measurements stdin.csv --fit fit.json -o
writes tune config.json --gpus 2 --context 2K --strategies packed -o

# A path in a scenario is looked up beside its file, wherever the program runs, and the model is called as it was stated.
mkdir -p apart/models
cp config.json apart/models
printf '100\n200\n300\n' >apart/lens.txt
echo '{"model": "models/config.json", "cluster": "h100-8", "workload": {"lengths": "lens.txt", "context": 1024}}' >apart/s.json
for from in . apart /; do
    (cd "$from" && "$program" simulate "$work/apart/s.json" -q) >out.txt 2>err.txt || complain "from $from: $(cat err.txt)"
    grep -q '^[^ ]*models/config.json on 1 H100' out.txt || complain "from $from: $(head -n 1 out.txt)"
done
"$program" simulate scenario.json --set model='"LLaMA-7B"' -q | grep -q '^LLaMA-7B on' || complain "the model has another name"
"$program" tune LLaMA-7B --gpus 2 --context 2K --strategies packed -q --wide >out.txt
grep -q '^LLaMA-7B on 2' out.txt && grep -q 'slimpack tune LLaMA-7B' out.txt || complain "tune: the model has another name"

# ---- what stood there ----

# Neither a picture's data nor an output of several files replaces what was read.
echo '{"uniform_costs": {"f_ms": 1, "b_ms": 1}, "parallel": {"pp": 2}}' >z.png.dat
cp z.png.dat z.json
"$program" simulate z.png.dat --plot z.png --quiet >/dev/null
cmp -s z.json z.png.dat || complain "--plot: the scenario was changed"
echo 512 >lengths.txt
echo '{"model": "llama-7b", "workload": {"lengths": "lengths.txt"}}' >reads.json
expect_told "input of this command" simulate reads.json --trace lengths.txt
[ "$(cat lengths.txt)" = 512 ] || complain "the lengths were changed"
cp "$source/experiments/figures/zb_v.json" figure.json
cp figure.json figure.before
"$program" reproduce ./figure.json -o . --quiet >/dev/null 2>&1
cmp -s figure.json figure.before || complain "reproduce -o: the figure was changed"

# The mode of what is replaced and a link to it stay, and nothing is left beside it.
mkdir kept
"$program" plan scenario.json -o kept/plan.json --quiet >/dev/null
chmod 640 kept/plan.json
ln -s plan.json kept/link.json
"$program" plan scenario.json --set workload.seed=2 -o kept/link.json --quiet >/dev/null
expect "mode" 640 "$(stat -c %a kept/plan.json)"
[ -L kept/link.json ] || complain "the link was replaced"
grep -q '"seed":2' <(tr -d ' ' <kept/plan.json) || complain "the link's file was not written"

# What a link leads to is made whole where nothing is there yet.
ln -s ../kept/made.json folder/made.json
"$program" plan scenario.json -o folder/made.json --quiet >/dev/null || complain "a link to nothing: exit $?"
[ -L folder/made.json ] || complain "a link to nothing was replaced"
[ -s kept/made.json ] || complain "a link to nothing: nothing was made"
rm folder/made.json kept/made.json

# An output that fails, or that a signal ends, leaves what stood there.
cp kept/plan.json plan.before
(
    ulimit -f 1
    "$program" plan scenario.json --set workload.batches=64 -o kept/plan.json --quiet >/dev/null 2>&1
)
cmp -s plan.before kept/plan.json || complain "a full disk: the old plan is gone"
expect "parts left by a full disk" 0 "$(ls -A kept | grep -c part)"
for signal in HUP TERM USR1; do
    "$program" plan scenario.json --set workload.batches=100000 -o kept/plan.json --quiet >/dev/null 2>&1 &
    process=$!
    for _ in $(seq 100); do
        ls -A kept | grep -q part && break
        sleep 0.05
    done
    kill -$signal $process 2>/dev/null || complain "$signal: the plan ended too soon"
    { wait $process; } 2>/dev/null
    cmp -s plan.before kept/plan.json || complain "$signal: the old plan is gone"
done
expect "files beside the outputs" "link.json plan.json" "$(ls -A kept | tr '\n' ' ' | sed 's/ $//')"

# Nor does a picture: gnuplot is ended with the program, and its folder goes.
mkdir slow slow/tmp
printf '#!/bin/sh\necho $$ >"%s/slow/pid"\nexec sleep 60\n' "$work" >slow/gnuplot
chmod +x slow/gnuplot
for signal in INT TERM; do
    rm -f slow/pid
    # A shell has its background jobs ignore SIGINT.
    PATH="$work/slow:$PATH" TMPDIR="$work/slow/tmp" env --default-signal=INT "$program" simulate z.json \
        --plot slow/p.png --quiet >/dev/null 2>&1 &
    process=$!
    for _ in $(seq 200); do [ -s slow/pid ] && break; sleep 0.05; done
    kill -$signal $process
    { wait $process; } 2>/dev/null
    kill -0 "$(cat slow/pid)" 2>/dev/null && complain "$signal: gnuplot goes on"
    expect "$signal: temporary files of a picture" "" "$(ls -A slow/tmp)"
done

# ---- names that a shell or gnuplot would run ----

if command -v gnuplot >/dev/null; then
    mkdir names temporary && cd names || exit 1
    cp ../z.json s.json
    printf '{"base": {"uniform_costs": {"f_ms": 1, "b_ms": 1}}, "grid": {"parallel.pp": [1, 2]}}' >spec.json
    export TMPDIR="$work/temporary"
    for name in '|touch PWNED;cat>x.png' '<touch PWNED #.png' '`touch PWNED`.png' '$(touch PWNED).png' "it's.png" \
        'a"b.svg' $'new\nline.png' '-e.png' 'x.png;touch PWNED.png' '%s.png'; do
        "$program" simulate s.json "--plot=$name" --quiet >/dev/null || complain "$name: exit $?"
        [ -s "./$name" ] || complain "$name: no picture"
        rm -f "./$name"
    done
    "$program" sweep spec.json -o r.jsonl --pareto iteration_ms,bubble_ratio '--plot=|touch PWNED;cat>y.png' --quiet >/dev/null ||
        complain "sweep: exit $?"
    mkdir '|touch PWNED #' && "$program" reproduce zb_v -o '|touch PWNED #' --plot png --quiet >/dev/null
    [ -s '|touch PWNED #/zb_v.png' ] || complain "reproduce: no picture"
    [ -e PWNED ] && complain "a name was run as a command"
    expect "temporary files" "" "$(ls -A "$TMPDIR")"
    cd .. || exit 1
fi
# A scenario that is written leads from its folder to files in it, however they were named, and goes with them where that
# is moved; absolute names of other files stay, and a stream has absolute ones.
mkdir -p job/data
printf '100\n3000\n900\n' | tee job/data/lengths.txt >lengths.txt
leads() { # PATH OUTPUT EXPECTED
    "$program" tune llama-7b --gpus 8 --context 4K --tokens-per-batch 16K --set strategy.kind=packed --lengths "$1" -o "$2" --quiet >printed.txt 2>messages
    file=$2
    [ "$2" != - ] || file=printed.txt
    expect "lengths of $1 in $2" "$3" "$(sed -n 's/.*"lengths": "\(.*\)".*/\1/p' "$file")"
}
here=$(pwd -P)
leads job/data/lengths.txt job/best.json data/lengths.txt
leads "$here/job/data/lengths.txt" job/best.json data/lengths.txt
leads "$here/lengths.txt" best.json lengths.txt
leads "$here/lengths.txt" job/other.json "$here/lengths.txt"
leads lengths.txt - "$here/lengths.txt"
"$program" simulate job/best.json --json --quiet >before.txt
mv job moved
"$program" simulate moved/best.json --json --quiet >after.txt || complain "a scenario that was moved with its lengths is not read"
expect "a scenario that was moved" "$(grep -m 1 '"iteration_ms"' before.txt)" "$(grep -m 1 '"iteration_ms"' after.txt)"
exit "$failed"
