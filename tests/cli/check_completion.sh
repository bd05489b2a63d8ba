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
expect "--column" slimpack lengths --c
expect "--samples --seed" slimpack lengths --s
expect "some.json" slimpack lengths so
expect "" slimpack lengths --column so
expect "lengths" slimpack help le
exit "$failed"
