#!/usr/bin/env bash
# The manual page formats without a warning and holds every command of the help.
set -u
program=$1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" help --man >"$work/slimpack.1" || exit 1
for command in $("$program" help | sed -n '/^commands:/,$ s/^  \([a-z]*\) .*/\1/p'); do
    if ! grep -q "^\.SS \"slimpack $command " "$work/slimpack.1"; then
        echo "no section for '$command'"
        failed=1
    fi
done
if ! command -v groff >/dev/null; then
    echo "groff is not installed: the page was not formatted"
    exit "$([ "$failed" = 0 ] && echo 77 || echo 1)"
fi
warnings=$(groff -man -Tutf8 -ww -z "$work/slimpack.1" 2>&1)
if [ -n "$warnings" ]; then
    echo "$warnings"
    failed=1
fi
exit "$failed"
