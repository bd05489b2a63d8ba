#!/usr/bin/env bash
# check_report.sh PROGRAM SOURCE: a page of results stands alone, no text of a document becomes HTML,
# and no half page is left. Where there is a Chromium, pages of each kind of document are opened at two
# widths and in both schemes of colours, hovered, zoomed and panned, and their sliders moved: each
# position says what its command does.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$work" || exit 1

count() { # TEXT FILE
    grep -o -F -e "$1" "$2" | wc -l
}

cp "$source/experiments/host_small.json" scenario.json
"$program" simulate scenario.json --quiet --json --trace trace.json --plan plan.json >result.json
"$program" compare scenario.json --strategies packed,bfd,slimpack --quiet --json >rows.json
"$program" validate scenario.json --backend fake --quiet --json >validation.json
"$program" run plan.json --backend fake --quiet --json -o executed.json >/dev/null
answer=$("$program" report result.json trace.json plan.json rows.json validation.json executed.json -o page.html | sed -n 1p)
grep -q -F "<p id=\"answer\">$answer</p>" page.html || complain "the page does not begin with: $answer"
[ -e page.html.part ] && complain "page.html.part is left"
grep -q '<h1 id="title">.* on 4 .*GPUs</h1>' page.html || complain "the title: $(grep '<h1' page.html)"

# A trace is compressed where its name ends in .gz, and a page made of it is that of the trace.
"$program" simulate scenario.json --quiet --trace trace.json.gz >/dev/null
gzip -dc trace.json.gz | cmp - trace.json || complain "trace.json.gz is not trace.json compressed"
[ "$(wc -c <trace.json.gz)" -lt "$(($(wc -c <trace.json) / 5))" ] || complain "trace.json.gz is not smaller"
"$program" report trace.json -o plain_trace.html >/dev/null
"$program" report trace.json.gz -o packed_trace.html >/dev/null || complain "no page of trace.json.gz"
sed 's/trace\.json\.gz/trace.json/g' packed_trace.html | cmp - plain_trace.html || complain "the page of trace.json.gz"
head -c 2000 trace.json.gz >cut.json.gz
expect "a trace that is cut short" "error: cut.json.gz: not a whole gzip file" \
    "$("$program" report cut.json.gz -o cut.html 2>&1)"
# All of the trace is there, but not the sum at the end that says so.
head -c -4 trace.json.gz >cut.json.gz
expect "a trace without its end" "error: cut.json.gz: not a whole gzip file" "$("$program" report cut.json.gz -o cut.html 2>&1)"
{ head -c 1000 trace.json.gz && head -c 64 /dev/zero && tail -c +1065 trace.json.gz; } >cut.json.gz
expect "a trace that is damaged" "error: cut.json.gz: not a whole gzip file" "$("$program" report cut.json.gz -o cut.html 2>&1)"
[ -e cut.html ] && complain "a page of a trace that is cut short"
expect "a name that was protocol buffers" "error: --trace: 'trace.pftrace': a trace is JSON, which Perfetto opens as well: \
'trace.json.gz' is written compressed" "$("$program" simulate scenario.json --wide --trace trace.pftrace 2>&1)"
[ -e trace.pftrace ] && complain "trace.pftrace is written"

# Nothing is fetched: the one address is the name of SVG's elements, which is not.
grep -o -E 'https?:[^"'\'' ]*' page.html | grep -v -F 'http://www.w3.org/2000/svg' >fetched.txt
grep -E '<(link|img|iframe)|@import| src=' page.html >>fetched.txt
[ -s fetched.txt ] && complain "the page needs: $(cat fetched.txt)"

# Texts of documents, names of files and of actions.
evil='</script><script>window.broken = 1</script><img onerror=x> & "quotes" <!--'
text=${evil//\"/\\\"}
cat >"a<b>&.json" <<JSON
{"schema": "slimpack/result/1", "strategy": "$text", "schedule": "$text", "iteration_ms": 1.5, "warnings": ["$text"], "not_validated": "$text",
 "model": {"name": "$text", "parameters": 7}, "memory_gib": {"$text": 1.0}, "fits": "$text"}
JSON
cat >evil_trace.json <<JSON
{"traceEvents": [{"name": "process_name", "ph": "M", "pid": 3, "tid": 0, "args": {"name": "$text"}},
 {"name": "$text", "cat": "$text", "ph": "X", "ts": 0, "dur": 5.5, "pid": 3, "tid": 1},
 {"name": "memory GiB", "ph": "C", "ts": 0, "pid": 3, "tid": 0, "args": {"$text": 2.5}}]}
JSON
"$program" report "a<b>&.json" evil_trace.json -o evil.html >/dev/null || complain "strange texts: exit $?"
[ "$(count '</script' evil.html)" = "$(count '</script' page.html)" ] || complain "a text ends the script"
[ "$(count '<script' evil.html)" = "$(count '<script' page.html)" ] || complain "a text begins a script"
[ "$(count '<img' evil.html)" = 0 ] || complain "a text becomes an element"
[ "$(count '<!--' evil.html)" = 0 ] || complain "a text becomes a comment"

# A page that cannot be written whole: the one before stays.
cp page.html before.html
(
    ulimit -f 8
    "$program" report result.json -o page.html 2>message.txt
) >/dev/null
[ $? = 3 ] || complain "a page that is cut short: expected exit 3"
grep -q '^error: page.html: ' message.txt || complain "a page that is cut short: $(cat message.txt)"
cmp -s page.html before.html || complain "a page that could not be written has changed the one before"
[ -e page.html.part ] && complain "a part of a page is left"
"$program" report result.json -o /dev/stdout | sed -n 1p | grep '^<!doctype html>' >/dev/null || complain "no page on a pipe"

# A sweep that was killed leaves a part of a line.
printf '%s\n%s' '{"point": {"parallel.tp": 1}, "status": "ok", "iteration_ms": 3.5}' '{"point": {"par' >killed.jsonl
"$program" report killed.jsonl -o killed.html | sed -n 1p | grep '^fastest of 1 point: ' >/dev/null || complain "a line that was cut short"

# What compare --memory-curve and sweep --json print.
printf '{"schema": "slimpack/sweep/1", "base": %s, "grid": {"memory.recompute": ["none", "full"], "strategy.kind": ["packed", "bfd"]}}' "$(cat scenario.json)" >sweep.json
"$program" sweep sweep.json -o lines.jsonl --quiet --json --pareto iteration_ms,peak_memory_gib >summary.json
"$program" compare scenario.json --strategies packed,bfd --memory-curve --quiet --json >curve.json
"$program" report summary.json -o summary.html | sed -n 1p | grep -E '^fastest of 4 points: (packed|bfd), recompute none: ' >/dev/null || complain "the answer of a sweep's summary"
# The lines alone carry the error of their times, or why there is none, for the page to say.
[ "$(grep -c '"status":"ok".*"not_validated":"' lines.jsonl)" = "$(grep -c '"status":"ok"' lines.jsonl)" ] || complain "lines of a sweep say nothing of their error"
"$program" report lines.jsonl -o lines.html | sed -n 1p | grep -F '(error not validated)' >/dev/null || complain "the answer of a sweep's lines"
grep -q '"not_validated":"' lines.html || complain "the page of a sweep's lines does not carry why its times have no error"
# A page of a sweep's lines says what was swept; of a summary, which holds some points, nothing is said.
grep -q '^<p id="swept">swept: recompute none, full; strategy packed, bfd</p>' <(sed 's/&quot;//g' lines.html) || complain "what was swept: $(grep 'id="swept"' lines.html)"
grep -q 'id="swept"' summary.html && complain "a summary tells of all values"
# A page of a sweep says model and GPUs, and what all points share, of its lines and of its summary.
for page in lines summary; do
    grep -q '<h1 id="title">.* on 4 .*GPUs: sweep of 4 points</h1>' $page.html || complain "the title of $page.html: $(grep '<h1' $page.html)"
    shared=$(grep -o '"settings":\[\[.*\]\]' $page.html | head -n 1)
    for setting in '["parallel.pp",' '["workload.seed",' '["model.layers",'; do
        case $(cat scenario.json) in
        *"\"$(sed 's/.*\.//; s/",//' <<<"$setting")\":"*) ;;
        *) continue ;;
        esac
        case $shared in
        *"$setting"*) ;;
        *) complain "$page.html lacks the shared setting $setting" ;;
        esac
    done
    case $shared in
    "") complain "$page.html has no settings" ;;
    *memory.recompute* | *strategy.kind*) complain "$page.html shares what the grid changes" ;;
    esac
done
"$program" report curve.json -o curve.html | sed -n 1p | grep -E '^fastest of 2 strategies with 8\.00 GiB: ' >/dev/null || complain "the answer of a memory curve"

# Prompts, and rows of lengths and methods.
printf '{"model": "llama-7b", "cluster": "a100-8", "profile": "a100-prefill", "workload": {"lengths": [2000, 50000]}, "prefill": {"attention": "sample"}}' >prompts.json
"$program" prefill prompts.json --quiet --json >first.json
"$program" prefill prompts.json --lengths 8K,64K --quiet --json >firsts.json
"$program" report first.json -o first.html | sed -n 1p | grep -E '^first token of the last of 2 prompts: .* \(error not validated\), .*x as fast as with dense attention, attention sample; (linear|attention) takes [0-9.]+ % of it, [0-9.]+ of [0-9.]+ GiB, fits$' >/dev/null || complain "the answer of a prefill"
"$program" report firsts.json -o firsts.html | sed -n 1p | grep -Fx 'first tokens by 10 lengths and methods' >/dev/null || complain "the answer of prefills"


# Generated text.
printf '{"model": "llama-3-8b", "cluster": "a100-8", "decode": {"method": "heterospec", "sequences": 4, "output_tokens": 64, "call_ms": 0.5}}' >texts.json
for method in heterospec eagle plain; do
    "$program" decode texts.json --set decode.method=$method --quiet --json >text_$method.json
done
"$program" decode texts.json --set decode.draft_gpus=own --set decode.batch=2 --quiet --json >text_own.json
"$program" report text_heterospec.json -o text.html | sed -n 1p | grep -E "^heterospec: [0-9]+ tokens/s \(error not validated\), [0-9.]+x plain decoding, [0-9.]+x EAGLE's trees, a step in [0-9.]+ ms; verification takes [0-9.]+ % of it, [0-9.]+ of [0-9.]+ GiB, fits\$" >/dev/null || complain "the answer of generated text"
"$program" report text_plain.json -o text.html | sed -n 1p | grep -E '^plain: [0-9]+ tokens/s \(error not validated\), a step in ' >/dev/null || complain "the answer of plain decoding"

# What was predicted and executed of one plan is told together, in any order; other plans are not.
"$program" simulate plan.json --quiet --json >predicted.json
"$program" run plan.json --backend fake --quiet --json >exact.json
awk '/"iteration_ms"/ && !done { sub(/[0-9.]+/, "1.5"); done = 1 } { print }' exact.json >faster.json
together='^packed, 1f1b, tp 1, cp 1, pp 4, dp 1: predicted [0-9.]+ ms, executed [0-9.]+ ms, error [+][0-9.]+ %$'
for order in "predicted.json faster.json" "faster.json predicted.json"; do
    # shellcheck disable=SC2086
    "$program" report $order -o pair.html | sed -n 1p | grep -E "$together" >/dev/null || complain "the answer of $order: $("$program" report $order -o pair.html | sed -n 1p)"
done
"$program" simulate scenario.json --quiet --json --set workload.samples_per_batch=8 >other.json
"$program" report other.json faster.json -o other.html | sed -n 1p | grep -E 'ms.*, (fits|does not fit)$' >/dev/null || complain "another plan is compared with"
"$program" report faster.json -o other.html | sed -n 1p | grep -E ', executed$' >/dev/null || complain "an executed result is not called so"

# Sliders: every position has an answer, the page says where one has none, and they begin at the step shown.
cat >slid.json <<JSON
{"model": "llama-13b", "cluster": "h800-8", "nodes": 2, "parallel": {"tp": 4, "pp": 2, "dp": 2},
 "workload": {"lengths": "wikipedia", "context": 16384, "samples_per_batch": 32, "batches": 2, "seed": 3}}
JSON
"$program" simulate slid.json --quiet --json >slid_result.json
bound="--slider-seconds 600" # a busy machine is slower than the bound by default
compares_values || bound="--slider-points 100"
# shellcheck disable=SC2086
"$program" report slid_result.json --sliders slid.json $bound -o slid.html --json >told.json || complain "sliders: exit $?"
! compares_values || grep -q '"without_answer": 0' told.json || complain "positions without an answer: $(cat told.json)"
"$program" report slid_result.json -o bare.html >/dev/null
[ "$(($(wc -c <slid.html) - $(wc -c <bare.html)))" -le 2097152 ] || complain "sliders add more than 2 MiB"
expect "a bound of positions" "warning: $(($(sed -n 's/.*"positions": \([0-9]*\).*/\1/p' told.json) - 40)) positions of the sliders have no answer: --slider-points \
and --slider-seconds bound how many are evaluated" \
    "$("$program" report slid_result.json --sliders slid.json --slider-points 40 -o few.html 2>&1 >/dev/null)"
"$program" report slid_result.json --sliders slid.json --set parallel.tp=2 --set parallel.dp=4 --slider-points 1 --wide -o other.html 2>message.txt &&
    complain "sliders of another step are taken"
grep -q '^error: slid.json: its step takes .*the sliders would begin at another step' message.txt || complain "sliders of another step: $(cat message.txt)"
"$program" report slid_result.json --sliders slid.json --set parallel.pp=16 --set parallel.dp=1 --set nodes=8 --slider-points 1 --wide -o other.html 2>message.txt &&
    complain "sliders of a step that cannot run are taken"
grep -q "^error: slid.json: .*pp: 40 layers cannot be split\|^error: slid.json: its step cannot run" message.txt || complain "sliders of no step: $(cat message.txt)"
"$program" report slid_result.json --sliders - --slider-points 1 -o piped.html --quiet <slid.json >/dev/null || complain "sliders of standard input"
grep -q '"words":"SCENARIO"' piped.html || complain "standard input is named as a file"
expect "sliders of another model" "error: slid.json: its model is llama-13b, that of rows.json is custom: the sliders would be of another step" \
    "$("$program" report rows.json --sliders slid.json --slider-points 1 --wide -o other.html 2>&1)"
"$program" report slid_result.json --set parallel.tp=2 -o other.html 2>message.txt
[ $? = 2 ] || complain "--set without sliders"
printf '{"uniform_costs": {"f_ms": 1, "b_ms": 1}, "parallel": {"pp": 2}, "schedule": {"kind": "1f1b", "microbatches": 4}}' >uniform.json
"$program" simulate uniform.json --quiet --json >uniform_result.json
expect "sliders without a cluster" "error: uniform.json: uniform_costs: sliders need a model on a cluster, which stated costs are not" \
    "$("$program" report uniform_result.json --sliders uniform.json --wide -o other.html 2>&1)"

# The commands that a page names are commands: a scenario of a name that a shell takes apart is one word.
mkdir commands
cp slid.json "commands/a scenario's.json"
cp slid.json "a scenario's.json"
"$program" report slid_result.json --sliders "a scenario's.json" --slider-points 1 -o named.html >/dev/null 2>&1
grep -o '"command":"[^"]*"' named.html | sed 's/^"command":"//; s/"$//; s/\\\\/\\/g' >commands.txt
[ "$(wc -l <commands.txt)" -ge 3 ] || complain "commands: $(cat commands.txt)"
while IFS= read -r command; do
    (
        slimpack() {
            case $1 in tune | compare) set -- "$@" --time-limit 2 ;; esac
            "$program" "$@"
        }
        cd commands && eval "$command" >/dev/null 2>../message.txt
    ) || complain "the page names a command that fails: $command: $(cat message.txt)"
done <commands.txt

# The answer of tune, without a figure of other steps than it.
"$program" tune llama-3-8b --gpus 12 --context 8K --quiet --json >tune.json
"$program" report tune.json -o tune.html | sed -n 1p | grep -F ' s (error not validated), ' >/dev/null || complain "the answer of tune"

# ---- in a browser ----
[ "$failed" = 0 ] || exit 1
# It runs the page, not the program.
compares_values || exit 0
browser=
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        browser=$name
        break
    fi
done
if [ -z "$browser" ]; then
    echo "SKIPPED: no Chromium to open the page with (Debian: chromium); what needs none has passed"
    exit 77
fi
open_page() { # FILE
    timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --window-size=1280,900 --user-data-dir="$work/profile" \
        --enable-logging=stderr ${scheme:+"$scheme"} ${clock:---virtual-time-budget=20000} --dump-dom "file://$work/$1" 2>browser.txt
    grep ':CONSOLE' browser.txt >&2 && complain "$1 writes to the console: $(grep -m1 ':CONSOLE' browser.txt)"
}
cat >probe.html <<'PROBE'
<script>
(async () => {
  const out = [], wait = () => new Promise(done => setTimeout(done, 50));
  const check = (what, holds) => { if (!holds) out.push(what); };
  const tip = document.getElementById('tip'), canvas = document.getElementById('timeline'), range = () => document.getElementById('range').textContent.match(/[\d.]+/g).map(Number);
  const send = (type, x, y, more) => { const box = canvas.getBoundingClientRect(); canvas.dispatchEvent(new (type === 'wheel' ? WheelEvent : PointerEvent)(type, { clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true, cancelable: true, ...more })); };
  const span = () => range()[1] - range()[0];
  canvas.scrollIntoView();
  await wait();
  const whole = span();
  check('a window of the whole step', whole > 0 && range()[0] === 0);
  send('pointermove', 72, 26);
  check('a hover tells the first action: ' + tip.innerText, !tip.hidden && /^F0\b/.test(tip.innerText) && /forward pack 0/.test(tip.innerText));
  check('a hover tells samples: ' + tip.innerText, /tokens; samples \d/.test(tip.innerText));
  let told = '';
  for (let x = 68; x < 900 && !/^F0/.test(told); x += 4) { send('pointermove', x, 54); told = tip.hidden ? '' : tip.innerText; }
  check('a hover tells what the second rank waited for: ' + told, /waited for F0 of dp0 pp0/.test(told));
  const ended = range()[1];
  send('wheel', 400, 30, { deltaY: -240 }); await wait();
  const zoomed = range();
  check('the wheel zooms', span() < whole * 0.9 && zoomed[0] > 0);
  send('pointerdown', 500, 30); send('pointermove', 450, 30); send('pointerup', 450, 30); await wait();
  check('dragging pans', range()[0] > zoomed[0] && Math.abs(span() - (zoomed[1] - zoomed[0])) < 0.01);
  canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '0', bubbles: true })); await wait();
  check('0 shows the whole step', range()[0] === 0 && Math.abs(range()[1] - ended) < 0.01);
  const touch = id => ({ pointerId: id, pointerType: 'touch' });
  send('pointerdown', 400, 30, touch(5)); send('pointerdown', 500, 30, touch(6)); send('pointermove', 700, 30, touch(6)); send('pointerup', 700, 30, touch(6)); send('pointerup', 400, 30, touch(5)); await wait();
  check('a pinch zooms', span() < whole * 0.6);
  document.querySelector('[aria-label="the whole step"]').click(); await wait();
  document.querySelector('[aria-label="zoom in"]').click(); await wait();
  check('a button zooms', Math.abs(span() / whole - 0.5) < 0.01);
  canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true })); await wait();
  check('a key zooms', Math.abs(span() / whole - 0.3) < 0.01);
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, found = new Set();
  for (let i = 0; i < pixels.length; i += 4) found.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  check('forward and backward are drawn: ' + found.size, found.has(0x4682c4) && found.has(0xe8893b));
  const dots = document.querySelectorAll('#pareto .dot');
  check('a point for each row: ' + dots.length, dots.length === 5);
  dots[0].dispatchEvent(new PointerEvent('pointerenter'));
  check('a hover tells the point: ' + tip.innerText, !tip.hidden && /[GM]iB/.test(tip.innerText));
  check('sections', ['Rows', 'Timeline', 'Memory over time', 'Predicted beside executed', 'How far it holds'].every(title => [...document.querySelectorAll('h2')].some(h => h.textContent.startsWith(title))));
  check('no wider than the window', document.documentElement.scrollWidth <= innerWidth);
  document.documentElement.dataset.probe = out.length ? out.join('; ').replace(/\s+/g, ' ') : 'good';
})().catch(error => { document.documentElement.dataset.probe = String(error); });
</script>
PROBE
"$program" report result.json trace.json plan.json rows.json validation.json executed.json -o probed.html >/dev/null
# On virtual time frames come when they like: each redraw is a timer here.
frames='<script>window.requestAnimationFrame = act => setTimeout(act, 1)</script>'
sed -e "s#^<body>#<body>$frames#" -e '/^<\/body>$/{r probe.html
d}' probed.html >opened.html
open_page opened.html >dom.html
probe=$(grep -o 'data-probe="[^"]*"' dom.html)
[ "$probe" = 'data-probe="good"' ] || complain "in $browser: ${probe:-no answer, $(tail -n 3 browser.txt)}"

# Strange texts are shown as they are.
printf '<script>document.documentElement.dataset.probe = window.broken === undefined && document.images.length === 0 ? "good" : "broken"</script>\n' >probe.html
sed -e '/^<\/body>$/{r probe.html
d}' evil.html >opened.html
open_page opened.html >dom.html
grep -q 'data-ready-ms=' dom.html || complain "the page of strange texts does not open"
grep -q 'data-probe="good"' dom.html || complain "a text was run"
"$program" report killed.jsonl summary.json curve.json first.json firsts.json -o more.html >/dev/null
open_page more.html >dom.html
grep -q 'data-ready-ms=' dom.html || complain "the page of a sweep and a memory curve does not open"
grep -q 'cannot be shown: [^$]' dom.html && complain "the page of a sweep and a memory curve shows a part not"
open_page lines.html | grep 'not validated: ' >/dev/null || complain "the page of a sweep's lines tells no error"
grep -q 'First tokens' dom.html || complain "prompts are not shown"
grep -q 'id="limits"><svg' dom.html || complain "a memory curve is not drawn"

# What is asked of each page below is asked of all of them at once: a browser takes longer to start than to open a page.
abouts=() expected=()
printf '<script>addEventListener("message", event => { document.documentElement.setAttribute("data-of" + [...document.querySelectorAll("iframe")].findIndex(node => node.contentWindow === event.source), event.data); })</script>\n' >frames.html
add_frame() { # ABOUT [WIDTH [EXPECTED]]: probed.html with probe.html, which tells its parent what is wrong, or "good"
    local at=${#abouts[@]}
    sed -e '/^<\/body>$/{r probe.html
d}' probed.html >"frame$at.html"
    printf '<iframe src="frame%d.html" width="%d" height="900" style="border: 0"></iframe>\n' "$at" "${2:-1280}" >>frames.html
    abouts+=("$1")
    expected+=("${3:-good}")
}

# The figures of prompts and of generated text, and nothing of steps.
cat >probe.html <<'PROBE'
<script>
{
  const out = [], check = (what, holds) => { if (!holds) out.push(what); };
  const parts = document.body.dataset.of === 'prompts' ? ['First tokens', 'Where the time to the first token goes', 'What prompts hold'] : ['Generated text', 'Where the time of a step goes', 'What generated text holds'];
  const section = title => [...document.querySelectorAll('section')].find(node => node.querySelector('h2').textContent === title);
  for (const title of parts) check('no ' + title, section(title));
  for (const title of ['Rows', 'Timeline', 'What fills the peak']) check(title + ' of no step', !section(title));
  const facts = [...document.querySelectorAll('#facts dt')].map(node => node.textContent);
  check('facts: ' + facts, ['peak memory', 'margin', 'fits', 'model', 'profile', parts[0] === 'First tokens' ? 'first token' : 'tokens/s'].every(name => facts.includes(name)));
  const widths = [...section(parts[1]).querySelectorAll('.bars .bar')].map(bar => [...bar.children].reduce((sum, part) => sum + parseFloat(part.style.width), 0));
  check('the longest bar is whole: ' + widths, widths.length === document.body.dataset.rows * 1 && Math.abs(Math.max(...widths) - 100) < 0.5);
  check('memory of parameters, keys and values', /parameters/.test(section(parts[2]).textContent) && /kv cache/.test(section(parts[2]).textContent));
  check('what is not modelled is that of training', !/context-parallel ranks whose shares/.test(document.getElementById('scope').textContent) && document.querySelectorAll('#missing li').length > 2);
  if (parts[0] === 'Generated text') {
    const cells = [...section(parts[0]).querySelectorAll('table')].map(node => node.textContent);
    check('methods', ['heterospec', 'eagle', 'plain'].every(name => cells[0].includes(name)));
    check('a tick', section(parts[0]).querySelectorAll('tr.best').length === 1);
    check('trees by entropy: ' + cells.length, cells.length === 3 && cells[1].includes('any'));
    check('a draft of its own', /transfer/.test(section(parts[1]).textContent) && !/hidden/.test(section(parts[1]).textContent));
  }
  check('no wider than the window', document.documentElement.scrollWidth <= innerWidth);
  check('a part is not shown', !/cannot be[ ]shown: [^$]/.test(document.documentElement.outerHTML));
  parent.postMessage(out.length ? out.join('; ') : 'good', '*');
}
</script>
PROBE
probe_inferred() { # WHAT DOCUMENT...
    local what=$1 rows
    shift
    rows=$#
    "$program" report "$@" -o probed.html >/dev/null
    sed -i "s#^<body>#<body data-of=\"$what\" data-rows=\"$rows\">#" probed.html
    add_frame "$what"
}
probe_inferred prompts first.json
probe_inferred text text_heterospec.json text_eagle.json text_plain.json text_own.json
# Links are shared in some results, in all, or in none.
alone='links that several groups share at the same time'
"$program" simulate scenario.json --quiet --json --set network.detail=flows >flows.json
"$program" simulate scenario.json --quiet --json --set network.detail=auto --set parallel.vocab_parallel=true >auto.json
cat >probe.html <<'PROBE'
<script>
{
  const node = document.getElementById('links');
  parent.postMessage(node === null ? 'nothing' : node.textContent, '*');
}
</script>
PROBE
told() { # ABOUT EXPECTED RESULTS
    local about=$1 says=$2
    shift 2
    "$program" report "$@" -o probed.html >/dev/null
    add_frame "$about" 1280 "$says"
}
told "links in no result" "$alone" result.json
told "links where auto is closed" "$alone" auto.json
told "links in one of two" "$alone, but where the network is flows or auto" result.json flows.json
told "links in all results" nothing flows.json

# Rows that were executed are called so and win nothing against predictions; both stand beside each other.
"$program" report predicted.json faster.json -o probed.html >/dev/null
cat >probe.html <<'PROBE'
<script>
{
  const out = [], check = (what, holds) => { if (!holds) out.push(what); };
  const section = title => [...document.querySelectorAll('section')].find(node => node.querySelector('h2').textContent === title);
  const rows = [...section('Rows').querySelectorAll('tbody tr')].map(row => [row.className, row.cells[0].textContent]);
  check('rows: ' + rows, rows.length === 2 && rows[0].join() === 'best,packed' && rows[1].join() === ',packed, executed');
  const both = section('Predicted beside executed');
  check('both', both && /iteration/.test(both.textContent) && both.querySelectorAll('table tbody tr').length === 4);
  check('a part is not shown', !/cannot be[ ]shown: [^$]/.test(document.documentElement.outerHTML));
  parent.postMessage(out.length ? out.join('; ') : 'good', '*');
}
</script>
PROBE
add_frame "a prediction and its execution"

# What the page says of each choice is what the terminal says, and what was asked stands in its head.
"$program" report tune.json -o probed.html >/dev/null
"$program" tune llama-3-8b --gpus 12 --context 8K --quiet | sed -n 's/^  pp  *//p' | head -n 1 | tr -d ' ,' >pp.txt
cat >probe.html <<PROBE
<script>
{
  const out = [], check = (what, holds) => { if (!holds) out.push(what); };
  const row = [...document.querySelectorAll('td')].find(cell => cell.textContent === 'pp').nextSibling.textContent.replace(/[ ,:]/g, '');
  check('choices of pp: ' + row, row === '$(cat pp.txt)' && /doesnotgotogether/.test(row));
  const facts = Object.fromEntries([...document.querySelectorAll('#facts > div')].map(node => [...node.children].map(child => child.textContent)));
  check('facts', facts.cluster === 'h100-8 (H100)' && facts.stack === 'megatron-core-2025' && facts.context === '8,192');
  check('limits', [...document.querySelectorAll('h2')].some(node => node.textContent === 'What limits it'));
  check('a part is not shown', !/cannot be[ ]shown: [^$]/.test(document.documentElement.outerHTML));
  parent.postMessage(out.length ? out.join('; ') : 'good', '*');
}
</script>
PROBE
add_frame tune

# On a phone no column lies beside the window, and rows with texts are not tall.
cat >probe.html <<'PROBE'
<script>
{
  const out = [], check = (what, holds) => { if (!holds) out.push(what); };
  const cells = [...document.querySelectorAll('.scroll td')].filter(cell => cell.offsetParent !== null);
  check('390 px: ' + innerWidth, innerWidth === 390);
  const beside = cells.filter(cell => cell.getBoundingClientRect().right > innerWidth);
  check('beside the window: ' + beside.slice(0, 3).map(cell => cell.dataset.head), cells.length > 20 && beside.length === 0);
  const tall = [...document.querySelectorAll('section tbody tr')].filter(row => row.clientHeight > 150 && !/^(dp|setting)/.test(row.cells[0].textContent));
  check('tall rows: ' + tall.slice(0, 3).map(row => row.clientHeight + ' ' + row.textContent), tall.length === 0);
  parent.postMessage(out.length ? out.join('; ') : 'good', '*');
}
</script>
PROBE
"$program" simulate scenario.json --quiet --json --set parallel.pp=4 >ranks.json
for page in tune.json ranks.json "predicted.json other.json"; do
    # shellcheck disable=SC2086
    "$program" report $page -o probed.html >/dev/null
    add_frame "$page on a phone" 390
done

# Every kind of page at both widths: nothing lies beside the window or is cut off by its box, names of charts stay
# in their picture, and parts add up to the figure beside them.
points() { # of a sweep: 20 near each other and one far off
    for i in $(seq 1 20); do
        printf '{"point": {"parallel.tp": %d}, "status": "ok", "strategy": "packed", "iteration_ms": %d, "peak_memory_gib": %d}\n' "$i" $((100 + i * 7 % 40)) $((20 + i))
    done
    printf '{"point": {"parallel.tp": 64}, "status": "ok", "strategy": "padded", "iteration_ms": 900000, "peak_memory_gib": 30}\n'
}
points >far.jsonl
# 24 strategies and one, whose time is a launch more than it computes, and tells a whole that is not its parts'.
rows=
for i in $(seq 1 25); do
    rows="$rows{\"schema\": \"slimpack/result/1\", \"strategy\": \"strategy$i\", \"status\": \"ok\", \"iteration_ms\": $((100 + i)).25, \"peak_memory_gib\": $((60 - i)),
 \"memory_stall_ms\": 0.25, \"time_breakdown_ms\": {\"compute\": $((70 + i)), \"launch\": 1.118, \"tp_comm\": 20.333333, \"bubble\": 9.666667}, \"memory_gib\": {\"parameters\": $((59 - i)).337, \"logits\": 0.663}},"
done
printf '{"schema": "slimpack/comparison/1", "baseline": "strategy1", "rows": [%s]}' "${rows%,}" >many.json
printf '{"schema": "slimpack/comparison/1", "baseline": "strategy1", "rows": [%s]}' "${rows%%,\{\"schema*}" >one.json
cat >probe.html <<'PROBE'
<script>
{
  const out = [], check = (what, holds) => { if (!holds) out.push(what); };
  const seen = node => node.checkVisibility() && node.getClientRects().length > 0, name = node => node.tagName + '.' + node.className + ' ' + node.textContent.slice(0, 40);
  const nodes = [...document.querySelectorAll('body *')].filter(node => node instanceof HTMLElement && seen(node));
  check('no wider than the window', document.documentElement.scrollWidth <= innerWidth);
  check('beside the window: ' + nodes.filter(node => node.getBoundingClientRect().right > innerWidth + 0.5).slice(0, 2).map(name), nodes.every(node => node.getBoundingClientRect().right <= innerWidth + 0.5));
  const cut = nodes.filter(node => !/^(inline|contents)/.test(getComputedStyle(node).display) && !['INPUT', 'SELECT', 'OPTION', 'CANVAS', 'I'].includes(node.tagName) && !node.closest('.bar.cut') && node.clientWidth > 0 && node.scrollWidth > node.clientWidth + 1);
  check('cut off: ' + cut.slice(0, 3).map(name), cut.length === 0);
  const texts = [...document.querySelectorAll('svg text')].filter(text => { const box = text.getBoundingClientRect(), whole = text.ownerSVGElement.getBoundingClientRect(); return box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1; });
  check('texts beside their picture: ' + texts.slice(0, 3).map(text => text.textContent), texts.length === 0);
  // "compute 1,046.5 ms" or "16,972.7 ms": in steps of its last digit, so that sums are exact.
  const figure = text => { const found = /([\d,]+)(?:\.(\d+))? (ms|s|GiB|MiB)$/.exec(text); return found ? [Number(found[1].replace(/,/g, '') + (found[2] || '')), (found[2] || '').length + found[3]] : null; };
  const holders = [...document.querySelectorAll('.bars + .legend')].map(legend => [legend, legend.previousSibling.children.length === 3 ? legend.previousSibling.lastChild.textContent.replace(/ of .*/, '') : null]);
  const slider = document.getElementById('slider-time');
  if (slider) holders.push([document.querySelector('#shown .legend'), slider.textContent]);
  let sums = 0;
  for (const [legend, whole] of holders.filter(([legend, whole]) => whole !== null && /\d (ms|s|GiB|MiB)$/.test(legend.lastChild.textContent))) {
    const parts = [...legend.children].map(item => figure(item.textContent)), total = figure(whole);
    check(`${legend.textContent} is not ${whole}`, total && parts.every(part => part && part[1] === total[1]) && parts.reduce((sum, part) => sum + part[0], 0) === total[0]);
    sums++;
  }
  const wanted = document.body.dataset.sums;
  check('sums: ' + sums, wanted === undefined || sums === Number(wanted));
  check('a title', document.title.length > 3 && document.querySelector('h1').textContent === document.title);
  check('a part is not shown', !/cannot be[ ]shown: [^$]/.test(document.documentElement.outerHTML));
  // Texts can be read on what is behind them (WCAG 2, contrast 4.5), in the scheme that is on.
  const rgb = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number), light = colour => { const [r, g, b] = rgb(colour).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = node => { for (let at = node; at; at = at.parentElement) { const colour = getComputedStyle(at).backgroundColor; if (!/, 0\)$|transparent/.test(colour)) return colour; } return 'rgb(255, 255, 255)'; };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const pale = nodes.filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) && node.id !== 'tip' && !node.disabled && node.tagName !== 'OPTION' && contrast(getComputedStyle(node).color, behind(node)) < 4.5);
  check('pale: ' + pale.slice(0, 3).map(name), pale.length === 0);
  check('scheme', light(getComputedStyle(document.body).backgroundColor) < 0.1 === matchMedia('(prefers-color-scheme: dark)').matches);
  // 24 series are 24 colours that can be told apart: at least 0.08 in OKLab (Ottosson), four times what is just seen.
  if (document.body.dataset.of === 'many') {
    const lab = colour => { const [r, g, b] = rgb(colour).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4), l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b), m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b), s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b); return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s]; };
    const colours = [...document.querySelectorAll('#pareto + .legend li path')].map(path => lab(getComputedStyle(path).fill)), paper = lab(getComputedStyle(document.querySelector('section')).backgroundColor);
    const apart = (a, b) => Math.hypot(...a.map((v, i) => v - b[i]));
    check('series: ' + colours.length, colours.length === 24);
    check('alike', colours.every((a, i) => apart(a, paper) > 0.15 && colours.every((b, j) => i === j || apart(a, b) >= 0.08)));
    check('what has no colour is named', /1 more: strategy25$/.test(document.querySelector('#pareto + .legend').textContent));
  }
  // One point far off is said and does not squash the others.
  if (document.body.dataset.of === 'far') {
    const dots = [...document.querySelectorAll('#pareto .dot')].map(dot => dot.getBoundingClientRect()), xs = dots.map(box => box.left), picture = document.querySelector('#pareto svg').getBoundingClientRect();
    xs.sort((a, b) => a - b);
    check('spread: ' + xs, dots.length === 21 && xs[19] - xs[0] > 0.6 * picture.width && xs[20] <= picture.right);
    check('the cut is said', /1 point lies beyond the axes and stands at their edge: up to 900\.00 s/.test(document.getElementById('pareto').parentNode.textContent));
  }
  parent.postMessage(out.length ? out.join('; ').replace(/[\s"&<>]+/g, ' ') : 'good', '*');
}
</script>
PROBE
fit_page() { # WHAT SUMS DOCUMENT...
    local what=$1 sums=$2 width
    shift 2
    "$program" report "$@" -o probed.html >/dev/null || complain "no page of $*"
    sed -i "s#^<body>#<body data-of=\"$what\" data-sums=\"$sums\">#" probed.html
    for width in 1280 390; do
        add_frame "$what at $width" "$width"
    done
}
"$program" simulate scenario.json --quiet --json --set parallel.dp=2 --trace two.json >two_result.json
fit_page "a step" 3 result.json trace.json plan.json
fit_page "a step with sliders" 4 slid_result.json --sliders slid.json --slider-points 200 --quiet
fit_page "a comparison" 0 rows.json
fit_page many 0 many.json
fit_page "one of many" 2 one.json
fit_page tune 3 tune.json
fit_page "a sweep" 0 lines.jsonl
fit_page far 0 far.jsonl
fit_page "a sweep's summary" 0 summary.json
fit_page "a memory curve" 0 curve.json
fit_page "a first token" 2 first.json
fit_page "first tokens" 0 firsts.json
fit_page "generated text" 0 text_heterospec.json text_eagle.json text_plain.json text_own.json
fit_page "a validation" 0 validation.json
fit_page "predicted and executed" 1 predicted.json faster.json
fit_page "strange texts" 1 "a<b>&.json" evil_trace.json
fit_page "several" 0 result.json rows.json tune.json lines.jsonl curve.json two.json

check_frames() {
    open_page frames.html >dom.html
    local at said
    for at in "${!abouts[@]}"; do
        said=$(grep -o "data-of$at=\"[^\"]*\"" dom.html)
        [ "$said" = "data-of$at=\"${expected[at]}\"" ] ||
            complain "${abouts[at]} in $browser${scheme:+, dark}: ${said:-no answer, $(tail -n 3 browser.txt)}"
    done
}
check_frames
scheme=--blink-settings=preferredColorScheme=0
check_frames
scheme=

# Sliders, in real time: every position along each axis, and some others. Each says what its command does.
cat >probe.html <<'PROBE'
<script>
{
  const knobs = [...document.querySelectorAll('.knob input')], base = knobs.map(knob => +knob.value), said = [], times = [];
  const go = digits => {
    const began = performance.now();
    digits.forEach((value, a) => { if (+knobs[a].value !== value) { knobs[a].value = value; knobs[a].dispatchEvent(new Event('input', { bubbles: true })); } });
    document.body.getBoundingClientRect();
    times.push(performance.now() - began);
    said.push([document.getElementById('slider-exact').dataset.ms || '-', document.querySelector('.badge').textContent, document.getElementById('slider-command').textContent].join('|'));
  };
  knobs.forEach((knob, a) => { for (let v = 0; v <= +knob.max; v++) go(base.map((value, other) => other === a ? v : value)); });
  for (let i = 1, seed = 7; i <= 12; i++) go(knobs.map(knob => { seed = seed * 1103515245 + 12345 & 0x7fffffff; return (seed >> 8) % (+knob.max + 1); }));
  times.sort((a, b) => a - b);
  document.documentElement.dataset.said = said.join('\n');
  document.documentElement.dataset.ms = times[times.length >> 1].toFixed(1);
}
</script>
PROBE
sed -e '/^<\/body>$/{r probe.html
d}' slid.html >opened.html
clock=--disable-extensions
open_page opened.html >dom.html
clock=
ms=$(sed -n 's/.*data-ms="\([0-9.]*\)".*/\1/p' dom.html)
awk -v ms="$ms" 'BEGIN { exit !(ms != "" && ms <= 100) }' || complain "a slider answers in ${ms:-no} ms"
sed -n '/data-said="/,/"/p' dom.html | sed -e 's/.*data-said="//' -e 's/".*//' | sort -u >said.txt
[ "$(grep -c 'slimpack simulate' said.txt)" -ge 15 ] || complain "positions: $(cat said.txt)"
[ "$(cut -d'|' -f2 said.txt | sort -u | wc -l)" -ge 3 ] || complain "positions are all alike: $(cut -d'|' -f2 said.txt | sort -u)"
while IFS='|' read -r shown word command; do
    if [ -z "$command" ]; then
        [ "$shown $word" = "- cannot run" ] || complain "a position without a command: $shown $word"
        continue
    fi
    read -ra words <<<"${command#slimpack }"
    "$program" "${words[@]}" --quiet --json >position.json 2>message.txt
    exit_status=$?
    ms=$(sed -n 's/^  "iteration_ms": \([0-9.e+]*\),$/\1/p' position.json | head -n 1)
    awk -v a="$shown" -v b="${ms:--}" 'BEGIN { exit !(a == b) }' || complain "$command takes ${ms:-none} ms, the slider says $shown"
    case $word in
    fits) grep -q '"fits": "yes"' position.json ;;
    "fits tightly") grep -q '"fits": "tight"' position.json ;;
    "does not fit") grep -q '"fits": "no"' position.json ;;
    "cannot run") [ "$exit_status" != 0 ] && [ -z "$ms" ] ;;
    *) false ;;
    esac || complain "$command: the slider says it $word"
done <said.txt
exit "$failed"
