#!/bin/bash
# Whole runs: published failure rates, keys of the fleet, and what more devices bring for a fixed batch.
set -u -o pipefail
. tests/support/named.sh
# holds NAME EXPRESSION: of the last JSON, as j
holds() {
    if python3 -S -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$dir/out" "$2" 2>>"$dir/err"; then passed "$1"; else failed "$1: $2"; fi
}
simulate() { COLUMNS=80 "$trireme" simulate "$@"; }
small="cluster.devices=1024 layout.zero=1 train.tokens=1e12"

# --- as the Llama 3 report has them: 419 interruptions in 54 days of 16,384 devices ---
code "16,384 devices" 0 simulate llama3.1-405b --json
holds "as many failures" "abs(j['failures']['p50'] / j['days']['p50'] * 54 - 419) < 15"
holds "over 90% effective" "j['goodput']['p10'] > 0.9"
holds "percentiles in order" "all(j[k]['p10'] <= j[k]['p50'] <= j[k]['p90'] for k in ('days', 'gpu_hours', 'cost_usd', 'energy_kwh', 'failures', 'goodput', 'checkpoint_interval_s', 'spares'))"
holds "hours of devices" "abs(j['gpu_hours']['p50'] / (j['days']['p50'] * 24 * 16384) - 1) < 1e-6"

# --- keys ---
code "one's own fleet" 0 simulate llama3.1-8b --cluster h100 $small fleet.mtbf_device_h=10240 fleet.repair_h=5 fleet.spares=0 \
    checkpoint.write_s=60 checkpoint.restart_s=300 checkpoint.interval_s=1800 price.device_hour=2 price.kwh=0.1 --json
holds "a failure every ten hours" "abs(j['failures']['p50'] / (j['days']['p50'] * 24) - 0.1) < 0.05"
holds "which wait for their repair" "j['goodput']['p50'] < 0.75"
holds "the interval asked for, in whole steps" "abs(j['checkpoint_interval_s']['p50'] - 1800) < 2 * j['step_s']"
holds "money of hours and energy" "abs(j['cost_usd']['p50'] / (2 * j['gpu_hours']['p50'] + 0.1 * j['energy_kwh']['p50']) - 1) < 1e-3"
code "with spares" 0 simulate llama3.1-8b --cluster h100 $small fleet.mtbf_device_h=10240 fleet.repair_h=5 fleet.spares=64 --json
holds "nobody waits" "j['goodput']['p50'] > 0.9 and j['spares']['p90'] <= 64"
code "a run that never ends" 3 simulate llama3.1-8b --cluster h100 $small fleet.mtbf_device_h=10
says "what would help" err 'fewer devices, a shorter checkpoint\.restart_s'
code "tokens and steps" 3 simulate llama3.1-8b --cluster h100 $small train.steps=5
"$trireme" init "$dir/demo" >/dev/null
code "training has no fleet" 3 "$trireme" train "$dir/demo/config.yaml" --dry-run fleet.spares=8
says "whose it is" err 'fleet\.spares has no effect: it applies only to `trireme simulate` and `trireme plan`'

# --- no price of this kind is known: the cost is not the part of the bill that is ---
code "a kind without a price" 0 simulate llama3-8b --cluster a100-80 cluster.devices=64 train.tokens=1e10 price.kind=spot
says "no dollars in the columns" out '^cost +- +- '
code "as JSON" 0 simulate llama3-8b --cluster a100-80 cluster.devices=64 train.tokens=1e10 price.kind=spot --json
holds "no cost" "j['cost_usd']['p50'] is None"
code "a budget" 3 "$trireme" plan llama3-8b --cluster a100-80 cluster.devices=64 train.tokens=1e10 price.kind=spot --budget 1000
says "what is missing" err 'no price spot is known for a100-80'

# --- a fixed batch: beyond 8,192 devices twice as many bring less than a fifth ---
for n in 2048 4096 8192 16384; do
    code "70B on $n" 0 simulate llama3-70b --cluster h100 cluster.devices=$n layout.tp=8 layout.sp=yes layout.zero=1 \
        train.global_batch=4096 train.seq=1024 train.micro_batch=1 train.recompute=selective --json
    cp "$dir/out" "$dir/$n.json"
done
if python3 - "$dir" <<'END'; then passed "returns diminish"; else failed "returns diminish"; fi
import json, sys
speed = [json.load(open(f"{sys.argv[1]}/{n}.json"))["tokens_per_s"] for n in (2048, 4096, 8192, 16384)]
gains = [after / before - 1 for before, after in zip(speed, speed[1:])]
print(gains)
sys.exit(not (gains == sorted(gains, reverse=True) and gains[0] > 0.3 and gains[2] < 0.2))
END
[ $failures = 0 ]
