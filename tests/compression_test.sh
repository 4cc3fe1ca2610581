#!/bin/bash
# Processes whose gradients travel compressed: refused where it makes no sense, killed and continued to the
# digest of an undisturbed run, fewer bytes, and a bound that is recorded where it was broken.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=6 train.steps=120 checkpoint.every=10 eval.every=0 kernels.threads=1"
"$trireme" init demo >/dev/null || exit 1
train() { # NAME KEY...: with the standard ones
    local name=$1
    shift
    timeout 600 "$trireme" train demo run.dir="$dir/$name" $keys "$@"
}
number() { sed -n "${2}s/.*\"$3\": \([0-9.e+-]*\).*/\1/p" "$1/metrics.jsonl"; } # RUN LINE KEY

code "strict refuses it" 3 train strict layout.dp=2 comm.compression=int8 determinism=strict
says "strict says why" err 'comm.compression = int8 changes the result.* cannot be used in strict mode'
code "one rank refuses it" 3 train alone comm.compression=int8
says "one rank says why" err 'layout.dp and layout.cp are 1, so ranks exchange no gradients'

topk="layout.dp=2 layout.zero=1 comm.compression=topk comm.compression.keep=0.05 comm.compression.warmup=5"
code "top-k, undisturbed" 0 train straight $topk
want=$(digest straight)
"$trireme" train demo run.dir="$dir/killed" $keys $topk >out 2>err &
launcher=$!
a_rank() { rank=$(processes "run.dir=$dir/killed " | awk -v launcher=$launcher '$2 == launcher { print $1 }' | tail -1) && [ -n "$rank" ]; }
soon $launcher a_rank # before the checkpoint, for the search takes as long as many steps
soon $launcher test -e killed/checkpoints/step-0000010/manifest.json
kill -9 "${rank:?no rank is there}"
wait $launcher
same "top-k, a rank is killed: exit code" "$?" 7
code "top-k, killed: goes on" 0 train killed $topk
says "it went on from a checkpoint" out 'continued after step [0-9]+0'
same "top-k, killed: the digest of none" "$(digest killed)" "$want"
code "by another number of ranks" 0 train straight train.steps=130 ${topk/dp=2/dp=3}
says "the log names missing residuals" out 'residual of .* begins at zero for 12 of 12 buckets'

code "int8 with a bound that breaks" 0 train bound layout.dp=2 comm.compression=int8 \
    comm.compression.bound=1e-4
says "the log says when" out 'step 1: int8 has a relative error .* gradients are not compressed from step 3 on'
if grep -q '"whole_from_step": 3' bound/run.json; then passed "run.json says when"; else failed "run.json says when"; fi
same "metrics: errors of steps 1 and 2" "$(grep -c codec_error bound/metrics.jsonl)" 2
code "the checkpoint says when" 0 "$trireme" inspect bound/checkpoints/step-0000120
says "it says step 3" out 'whole from +3'

# Bytes that both ranks give away in a step: of fp32, 2 (n - 1) / n of 4 bytes, n times.
count=$(sed -n 's/.*"parameters": \([0-9]*\).*/\1/p' bound/run.json)
bytes=$(number bound 1 codec_bytes)
if [ "$bytes" -gt $((count * 2)) ] && [ "$bytes" -lt $((count * 8 * 27 / 100)) ]; then
    passed "int8: about a quarter of the bytes of fp32"
else
    echo "$bytes bytes for $count parameters" >err
    failed "int8: about a quarter of the bytes of fp32"
fi
[ $failures = 0 ]
