#!/usr/bin/env bash
# check_settings.sh PROGRAM SOURCE: experiments/SCENARIO.md is what the program says of its settings, a page that
# differs is noticed, every key, section and list has a page of its own, and values may be written as people write them.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/experiments/settings_page.sh" --check "$program"

mkdir "$work/experiments"
cp "$source/experiments/settings_page.sh" "$work/experiments"
sed 's/^| `parallel.pp` |/| `parallel.qq` |/' "$source/experiments/SCENARIO.md" >"$work/experiments/SCENARIO.md"
if "$work/experiments/settings_page.sh" --check "$program" >"$work/difference"; then
    echo "a changed page is not noticed"
    exit 1
fi
grep -q '^+| `parallel.pp`' "$work/difference"

failed=0
for key in $("$program" help settings | sed -n 's/^\([a-z][a-z0-9_.]*\)  .*/\1/p'); do
    "$program" help "$key" | grep "^$key: " >/dev/null || { echo "no page of '$key'"; failed=1; }
    grep -q "^| \`$key\` |" "$source/experiments/SCENARIO.md" || { echo "'$key' is not in SCENARIO.md"; failed=1; }
done
for topic in settings models clusters strategies schedules stacks profiles distributions parallel memory model; do
    [ "$("$program" help "$topic" | wc -l)" -gt 3 ] || { echo "nothing on '$topic'"; failed=1; }
done

# Tokens in binary thousands, a model in another spelling, and dp from the nodes.
echo '{"model": "LLaMA2_13B", "cluster": "h800-8", "nodes": 2, "parallel": {"tp": 4}, "workload": {"lengths": [9, 7]}}' \
    >"$work/s.json"
"$program" simulate "$work/s.json" --set workload.context=128K --explain --quiet >"$work/resolved"
for line in '"context": 131072' '"name": "llama-2-13b"' '"dp": 4'; do
    grep -q "$line" "$work/resolved" || { echo "no line $line in the resolved scenario"; failed=1; }
done
exit "$failed"
