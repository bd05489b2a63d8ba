#!/usr/bin/env bash
# The completion script is read by bash and offers commands, their options and files.
set -u
program=$1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
touch some.json
# shellcheck source=/dev/null
. <("$program" help --completion)

complete_words() { # WORD... : the words on the command line, the last one being completed
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _slimpack
    echo "${COMPREPLY[*]}"
}
expect() { # EXPECTED WORD...
    local expected=$1 found
    shift
    found=$(complete_words "$@")
    if [ "$found" != "$expected" ]; then
        echo "completion of '$*': expected '$expected', got '$found'"
        failed=1
    fi
}
expect "lengths" slimpack len
expect "--version" slimpack --v
expect "--column" slimpack lengths --co
expect "--samples --seed" slimpack lengths --s
expect "some.json" slimpack lengths so
expect "" slimpack lengths --column so
expect "lengths" slimpack help le
expect "parallel.pp" slimpack help parallel.p
expect "profiles" slimpack help profiles
expect "parallel.pp=" slimpack simulate some.json --set parallel.p
expect "schedule.microbatches= schedule.microbatch_samples=" slimpack compare some.json --set schedule.micro
expect "memory.recompute=none" slimpack simulate some.json --set memory.recompute=n
expect "strategy.kind=bfd strategy.kind=bytescale strategy.kind=balanced" slimpack simulate some.json --set strategy.kind=b
expect "" slimpack simulate some.json --set parallel.pp=
# What is built in, where it can stand.
expect "llama-2-7b llama-2-13b llama-2-70b" slimpack tune llama-2
expect "h800-8 h800-8x100g" slimpack tune llama-7b --cluster h8
expect "wikipedia" slimpack tune llama-7b --lengths wi
expect "wikipedia" slimpack lengths wi
expect "zb_v zb_v_speedup" "$program" reproduce zb_v
# Bash makes a word of its own of the equals sign.
expect "flash unfused" slimpack simulate some.json --set memory.attention =
expect "flash" slimpack simulate some.json --set memory.attention = f

# Every strategy of the list is in the help of compare and completes as the last of several. The
# list is read where the program refuses a strategy that is none.
known=$("$program" compare some.json --wide --strategies zzzzzzzzzzzzzzzz 2>&1 |
    sed -n 's/.*(known: \(.*\)).*/\1/p' | tr -d ,)
[ -n "$known" ] || { echo "no list of strategies"; failed=1; }
for strategy in $known; do
    "$program" help compare | grep -q "^  $strategy  *[a-z]" ||
        { echo "no strategy '$strategy' in the help of compare"; failed=1; }
    case " $(complete_words slimpack compare --strategies "padded,$strategy") " in
    *" padded,$strategy "*) ;;
    *) echo "no completion of strategy '$strategy'"; failed=1 ;;
    esac
done

# zsh and fish get every command, option and setting too. Where they are installed they read their script, and fish
# completes by it.
"$program" help --completion zsh >_slimpack
"$program" help --completion fish >slimpack.fish
"$program" help --json | grep -o '"name": "[^"]*"' | sed 's/.*: "//; s/"//' >names
[ "$(wc -l <names)" -gt 100 ] || { echo "few names of commands and options: $(wc -l <names)"; failed=1; }
while IFS= read -r name; do
    grep -q -e "--$name[=\[]" -e "'$name:" _slimpack || { echo "zsh: no '$name'"; failed=1; }
    grep -q -e " -l $name\b" -e " -a $name\b" slimpack.fish || { echo "fish: no '$name'"; failed=1; }
done < <(sort -u names)
"$program" help --completion bash | cmp - <("$program" help --completion) || failed=1
! "$program" help --completion ksh 2>/dev/null || { echo "a script for ksh"; failed=1; }
! command -v zsh >/dev/null || zsh -n _slimpack || failed=1
if command -v fish >/dev/null; then
    offered() { # EXPECTED LINE
        found=$(PATH=$(dirname "$program"):$PATH fish --no-config -c "source slimpack.fish; complete -C '$2'" 2>&1 |
            cut -f 1 | tr '\n' ' ')
        [ "$found" = "$1 " ] || { echo "fish: completion of '$2': expected '$1', got '$found'"; failed=1; }
    }
    offered "lengths" "slimpack len"
    offered "--samples --seed" "slimpack lengths --s"
    offered "parallel.pp=" "slimpack simulate some.json --set parallel.p"
    offered "memory.recompute=none" "slimpack simulate some.json --set memory.recompute=n"
    offered "padded,packed padded,packed-tuned" "slimpack compare some.json --strategies padded,packed"
    offered "h800-8 h800-8x100g" "slimpack tune llama-7b --cluster h8"
    offered "zb_v zb_v_speedup" "slimpack reproduce zb_v"
fi
exit "$failed"
