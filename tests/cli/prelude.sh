# Sourced by checks: a folder of their own in $work, and how they tell of faults. A check ends with
# exit "$failed".
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "$*"
    failed=1
}
expect() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] || complain "$1: expected '$2', got '$3'"
}
