# Sourced by checks: a folder of their own in $work, and how they tell of faults. A check ends with
# exit "$failed". Backends are looked for among those that tests build.
failed=0
work=$(mktemp -d)
export SLIMPACK_BACKEND_PATH
SLIMPACK_BACKEND_PATH=$(dirname "$(realpath "${program:-.}")")/tests/plugins
# A child that is killed before it has become its program still has this trap.
trap '[ "${BASHPID:-$$}" != "$$" ] || rm -rf "$work"' EXIT

complain() {
    echo "$*"
    failed=1
}
expect() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] || complain "$1: expected '$2', got '$3'"
}
# False under sanitizers (preset dev): they find no wrong values, and take many times as long over long runs
# that differ from shorter ones in values alone.
compares_values() {
    [ "${SP_TEST_SANITIZED:-}" != 1 ]
}
# What the pages' examples read, in this folder; the model that is trained on the CPU is a narrower one, on fewer samples.
pages_folder() {
    mkdir build experiments
    ln -s "$(realpath "$program")" build/slimpack
    ln -s "$source"/experiments/* experiments
    rm experiments/host_small.json
    sed 's/"hidden": 256, "ffn": 688/"hidden": 64, "ffn": 176/; s/"samples_per_batch": 32/"samples_per_batch": 8/' \
        "$source/experiments/host_small.json" >experiments/host_small.json
    [ "$(grep -cE '"hidden": 64,|"samples_per_batch": 8' experiments/host_small.json)" = 2 ] || complain "experiments/host_small.json is another model"
}
# The program with --wide, for checks of all that it says: `program=$(all_of "$program")`.
all_of() { # PROGRAM
    cat >"$work/all" <<end
#!/bin/sh
case \$1 in
help | -*) exec "$(realpath "$1")" "\$@" ;;
esac
command=\$1
shift
exec "$(realpath "$1")" "\$command" --wide "\$@"
end
    chmod +x "$work/all"
    echo "$work/all"
}
