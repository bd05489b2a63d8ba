#!/usr/bin/env bash
# check_outputs.sh PROGRAM SOURCE: an output that is another file of the command line is refused before anything is
# computed or written, by whatever name.
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
}
refused simulate scenario.json --trace new.json --plan new.json
refused simulate scenario.json --trace new.json --graphml ./new.json
refused simulate scenario.json --trace new.json --memory-snapshot folder/../new.json
refused simulate scenario.json --plan scenario.json
refused simulate scenario.json --plan hard.json
refused simulate scenario.json --trace folder/link.json
refused plan scenario.json -o "$work/scenario.json"
refused run scenario.json --backend host --record new.json -o new.json
refused tune llama-7b --gpus 2 --context 2K --lengths scenario.json -o scenario.json
refused merge scenario.json shard.jsonl -o scenario.json
refused validate --measurements scenario.json --map map.json -o scenario.json

# Files of one name in two folders are two, and a device may be named twice.
"$program" simulate scenario.json --plan new.json --trace folder/new.json --quiet >/dev/null ||
    complain "two outputs of one name: exit $?"
[ -s new.json ] && [ -s folder/new.json ] || complain "two outputs of one name: not both written"
"$program" simulate scenario.json --plan /dev/null --trace /dev/null --quiet >/dev/null || complain "/dev/null: exit $?"
exit "$failed"
