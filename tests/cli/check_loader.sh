#!/usr/bin/env bash
# check_loader.sh PROGRAM SOURCE: the loader of the examples trains every document once, gives packs that
# hold whole documents, and hides its planning behind steps.
set -u
program=$1
source=$2
command -v python3 >/dev/null || { echo "SKIPPED: no python3 to run the loader with" && exit 77; }
scenario=$source/experiments/demo.json
loader=$source/experiments/examples/loader.py
. "$(dirname "$0")/prelude.sh"

text=$(python3 "$loader" "$scenario" --program "$program" --batches 3 --samples 16 --step-ms 60) || complain "the loader fails: exit $?"
echo "$text" | grep -E '^3 plans: waited [0-9.]+ ms for the first; planned [0-9.]+ ms behind steps, waited [0-9.]+ ms, [0-9.]+ % hidden$' >/dev/null ||
    complain "no figure of what is hidden: $text"
message=$(python3 "$loader" nothing.json --program "$program" --batches 1 2>&1 >/dev/null) && complain "a missing scenario is no error"
[[ $message == *"nothing.json: No such file"* && $message != *Traceback* ]] || complain "the message of a missing scenario: $message"

# 40 documents of up to 5000 tokens: balanced delays some of them, which come again, at last in a batch of
# their own. Each is in forward and in backward packs once, from its first token to its last.
python3 - "$program" "$scenario" "$(dirname "$loader")" <<'PYTHON' || complain "the packs of the loader"
import collections, sys
sys.path.insert(0, sys.argv[3])
sys.dont_write_bytecode = True
from loader import PlannedLoader
batches = [[((b, i), 1 + (b * 7919 + i * 104729) % 5000) for i in range(20)] for b in range(2)]
lengths = dict(sample for batch in batches for sample in batch)
settings = ["strategy.kind=balanced", "workload.context=5000", "parallel.dp=2"]
trained = {"forward": collections.Counter(), "backward": collections.Counter()}
delayed, plans = 0, 0
for plan in PlannedLoader(batches, sys.argv[2], sys.argv[1], options=[w for s in settings for w in ("--set", s)]):
    plans, delayed = plans + 1, delayed + len(plan.delayed)
    for side in trained:
        packs = {number: cuts for rank in getattr(plan, side).values() for number, cuts in rank}
        for cuts in packs.values():
            for sample, begin, tokens in cuts:
                trained[side][sample] += tokens
for side, tokens in trained.items():
    assert tokens == lengths, (side, set(lengths.items()) ^ set(tokens.items()))
assert delayed > 0 and plans > 2, (delayed, plans)
PYTHON
exit "$failed"
