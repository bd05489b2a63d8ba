#!/usr/bin/env bash
# check_measure.sh PROGRAM SOURCE: `measure` of the CPU: one file with profile, records and comparison, which a call
# that was killed or had failed parts goes on with; and what is no measurement.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
program=$(realpath "$program")
cd "$work" || exit 1
measure() { # ARGUMENT...
    "$program" measure "$@" --backend host --minutes 1 --steps 2 >table 2>said
}
parts() { # STATUS
    awk -v status="$1" '$3 == status { print $2 }' said | tr '\n' ' '
}

cp "$source/tests/cli/inputs/set.json" .
measure set.json -o m.json
expect "status" 0 "$?"
expect "parts" "host 01-packed 02-on-the-wall " "$(parts ok)"
expect "rows" 2 "$(grep -c ' exact$' table)"
expect "files that stay" "m.json said set.json table" "$(echo *)"
! grep -qF "$(uname -n)" m.json || complain "the file names the machine"
for key in '"schema":"slimpack/measurement/1"' '"schema":"slimpack/profile/1"' '"schema":"slimpack/execution/1"' \
    '"schema":"slimpack/validation/1"'; do
    grep -qF "$key" m.json || complain "no $key"
done
# Nothing is missing: nothing runs again, and the comparison is that of the file.
cp table first
cp m.json first.json
measure set.json -o m.json
expect "status again" 0 "$?"
expect "parts again" "" "$(parts ok)"
cmp first table || complain "the same measurement is compared otherwise"
"$program" validate set.json --backend host --executed m.json >table
expect "status of --executed" 0 "$?"
cmp first table || complain "--executed FILE compares otherwise"
"$program" report first.json -o page.html -q
expect "status of a page" 0 "$?"
expect "cases on the page" 2 "$(grep -o '"group": *"g"' page.html | wc -l)"
# Its profiles go to files by the names of their own.
mkdir profiles
expect "profiles that are taken out" profiles/host-fp32.json "$("$program" calibrate --measured first.json -o profiles 2>said)"
grep -q 'host-fp32.json is of a quick calibration' said || complain "no word of the quick calibration"
"$program" validate set.json --backend host --executed first.json --set profile=profiles/host-fp32.json >table
cmp first table || complain "the profile that was taken out predicts otherwise"
rm -r profiles
# Parts by their name or command: no others run, and a later call goes on.
measure set.json -o parts.json --part calibrate --part 'virtual'
expect "parts that were named" "host 01-packed " "$(parts ok)"
grep -q 'parts that --part leaves out: 1' said || complain "no word of what was left out"
expect "rows of parts that were named" 1 "$(grep -c ' exact$' table)"
"$program" measure set.json -o parts.json --backend host --minutes 1 --steps 2 --part virtual --part walls >table 2>said
expect "status of a part that there is not" 2 "$?"
grep -q "no part has 'walls'" said || complain "a part that there is not: $(head -n 1 said)"
measure set.json -o parts.json --part 02-on
expect "the part that was left" "02-on-the-wall " "$(parts ok)"
# A quick calibration is repeated where there is time for a whole one; a part that failed runs again.
sed 's/"name":"case 01-packed","status":"ok"/"name":"case 01-packed","status":"failed"/' first.json >m.json
measure set.json -o m.json
expect "parts that had failed" "01-packed " "$(parts ok)"

# Killed at any time: what was written is whole, and the next call ends it.
for tenths in 2 10 30; do
    rm -f k.json
    "$program" measure set.json -o k.json --backend host --minutes 1 --steps 2 >/dev/null 2>&1 &
    child=$!
    sleep "$((tenths / 10)).$((tenths % 10))"
    kill -TERM $child
    wait $child
    expect "folders after $tenths tenths of a second" "" "$(find . -name '*.work')"
    [ ! -e k.json ] || "$program" validate set.json --backend host --executed k.json >/dev/null 2>&1
    case $? in 0 | 1 | 70) ;; *) complain "no measurement after $tenths tenths of a second: $?" ;; esac
done
measure set.json -o k.json
expect "status after a kill" 0 "$?"
# Ended while it waits for its set: nothing stays of the folder in which a file is compared.
mkfifo pipe
mkdir temporary
TMPDIR=$work/temporary "$program" validate pipe --backend host --executed first.json >/dev/null 2>&1 &
child=$!
until [ -e temporary/slimpack-*/01-packed.result.json ]; do
    kill -0 $child || break
    sleep 0.01
done
expect "files in the folder of a comparison" 1 "$(find temporary -name host.json | wc -l)"
kill -TERM $child
wait $child
expect "status of a comparison that was ended" 143 "$?"
expect "folders of a comparison that was ended" "" "$(ls temporary)"

# A case that the backend refuses, and a profile of a partition, which the CPU has not.
sed 's/{"name": "on the wall".*}}/{"name": "sinks", "set": {"model.attention_sinks": true}}, {"name": "part", "clock": "wall", "set": {"profile": "host-1of2"}}/' set.json >other.json
measure other.json -o o.json
expect "status of parts that fail" 1 "$?"
expect "parts that fail" "02-sinks host-1of2 " "$(parts failed)"
grep -q 'parts that failed or were not reached: 2' said || complain "no word of what failed"
grep -q "^sinks  *cannot execute: .*attention sinks" table || complain "no reason in the row of sinks"
tr -s '\n ' ' ' <said | grep -q 'are predicted with that of the whole device' || complain "no word of the profile that stands in"
# Where no calibration went well the program's own profiles stand in, of partitions as well.
sed 's/"profiles":{.*},"results":/"profiles":{},"results":/' o.json >none.json
"$program" validate other.json --backend host --executed none.json >table 2>said
expect "status without profiles" 1 "$?"
expect "cases without profiles" 2 "$(grep -c ' exact$' table)"
tr -s '\n ' ' ' <said | grep -q "host-1of2 was not measured: its cases are predicted with the program's own" || complain "no word of the program's own profiles"

# What is no measurement, or another.
refuse() { # WORDS ARGUMENT...
    words=$1
    shift
    "$program" "$@" >out 2>said
    expect "status of $*" 3 "$?"
    # As one line: paths are as long as the machine has them.
    tr -s '\n ' ' ' <said | grep -q "$words" || complain "'$*' says: $(cat said)"
}
refuse 'm.json: set: is another' measure other.json --backend host -o m.json
cp set.json no.json
refuse 'no.json: schema: expected "slimpack/measurement/1", this is a set of steps' measure set.json --backend host -o no.json
refuse 'expected a set of scenarios' measure m.json --backend host -o x.json
refuse "unknown backend 'none'" measure set.json --backend none -o x.json
refuse 'this is a profile' validate set.json --backend host --executed "$source/profiles/host.json"
sed 's,"01-packed":,"../evil":,' first.json >evil.json
refuse "results: '../evil' is no name" validate set.json --backend host --executed evil.json
head -c 2000 first.json >half.json
refuse 'half.json:' calibrate --measured half.json -o .
sed 's,"name":"host-fp32","name":"../evil",' first.json >evil.json
refuse 'host: expected a profile whose name' calibrate --measured evil.json -o .
# Two profiles of one GPU have one name, and the file of the second would take the place of the first's.
sed 's,"profiles":{,"profiles":{"again":{"name":"host-fp32"}\,,' first.json >twice.json
refuse "twice.json: host: 'host-fp32' names profile 'again' already" calibrate --measured twice.json -o .
[ ! -e host-fp32.json ] || complain "a profile of two with one name was written"
refuse 'this is a set of steps' calibrate --measured set.json -o .
refuse 'half.json:' validate set.json --backend host --executed half.json
refuse 'first.json: steps: is another' measure set.json --backend host -o first.json
sed 's/"version":"[^"]*"/"version":"0.0"/' first.json >older.json
refuse 'older.json: version: is another' measure set.json --backend host --steps 2 -o older.json
# Of a file that others sent it is said, too, what was not measured.
for missing in host host-1of2; do
    sed "s/\"profiles\":{\"host\":/\"profiles\":{\"$([ $missing = host ] && echo other || echo host)\":/" o.json >less.json
    "$program" validate other.json --backend host --executed less.json >out 2>said
    tr -s '\n ' ' ' <said | grep -q "profile $missing was not measured" || complain "no word of profile $missing"
done
# Two calls at once: the later one leaves the first alone.
"$program" measure set.json --backend host -o two.json --minutes 1 --steps 2 >/dev/null 2>&1 &
child=$!
until [ -e two.json.work/set.json ]; do
    kill -0 $child || break
    sleep 0.01
done
refuse "two.json.work: another 'slimpack measure' works there" measure set.json --backend host --steps 2 -o two.json
[ -e two.json.work/set.json ] || complain "the later call took the folder of the first"
kill -TERM $child
wait $child
# A folder of somebody's, where the parts would run.
mkdir x.json.work
echo mine >x.json.work/notes
refuse 'x.json.work: File exists' measure set.json --backend host -o x.json
expect "somebody's notes" mine "$(cat x.json.work/notes)"
rm -r x.json.work
[ ! -e x.json ] || complain "a file is left of a call that was refused"
"$program" measure set.json --backend host >/dev/null 2>said
expect "status without a file" 2 "$?"
exit "$failed"
