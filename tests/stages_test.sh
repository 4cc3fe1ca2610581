#!/bin/bash
# `stages`: a whole chain, skipping what is unchanged, kills at random moments with the same digests
# as undisturbed, budgets, a planted regression that the gate refuses. KILLS: how many.
set -u
. tests/support/named.sh
kills=${KILLS:-2}
"$trireme" init "$dir/demo" >/dev/null
head -c 30000 "$dir/demo/text.txt" >"$dir/text.txt"
cd "$dir" || exit 1
small="model: {layers: 1, dim: 32, heads: 2, ffn_dim: 64, context: 128}"
usual='determinism: strict
kernels: {threads: 1}
eval: {every: 0}
checkpoint: {every: 20}'
echo '{filters: [], sources: {plays: {paths: text.txt, licence: CC0-1.0}}}' >corpus.yaml
cat >base.yaml <<END
train: {steps: 60, seq: 32, global_batch: 8}
data: {valid: 0}
schedule: {warmup: 2}
$small
$usual
END
python3 - <<'END'
import json, random
r = random.Random(1)
with open("talk.jsonl", "w") as f:
    for i in range(60):
        f.write(json.dumps({"messages": [{"role": "user", "content": f"king {i % 7}?"}, {"role": "assistant", "content": f"the king {i % 7}"}]}) + "\n")
with open("pairs.jsonl", "w") as f:
    for i in range(40): f.write(json.dumps({"prompt": f"king {i % 7}?", "chosen": f"the king {i % 7}", "rejected": "qzx"}) + "\n")
plays = open("text.txt").read().replace("\n", " ")
with open("choice.jsonl", "w") as f:
    for i in range(20):
        at = r.randrange(len(plays) - 40)
        text = [plays[at:at + 20], "".join(r.choice("#~%{}@^|<>=+*/_0123456789") for _ in range(20))]
        f.write(json.dumps({"context": "And", "choices": text, "gold": 0}) + "\n")
END
cat >sft.yaml <<END
train: {steps: 12, seq: 128, global_batch: 4}
data: {train: talk.jsonl, valid: 0, template: chatml}
schedule: {warmup: 2}
$usual
END
cat >dpo.yaml <<END
train: {steps: 6, seq: 128, global_batch: 4}
data: {train: pairs.jsonl, valid: 0, template: chatml}
schedule: {warmup: 2}
$usual
END
sed -i 's/every: 20/every: 4/' sft.yaml dpo.yaml
echo '{name: choice, data: choice.jsonl}' >choice.yaml
echo '{name: release, tasks: [choice.yaml], require: ["choice.acc >= 0.7"]}' >policy.yaml
chain() { # chain DIR [BUDGET...]: the file of a chain that works in DIR
    cat >"$1.yaml" <<END
stages: {dir: $1${2:+, $2}}
stage:
  data: {config: corpus.yaml}
  pretrain: {config: base.yaml, data: data}
  sft: {config: sft.yaml, from: pretrain}
  dpo: {config: dpo.yaml, from: sft}
  eval: {of: dpo, tasks: [choice.yaml]}
  gate: {of: dpo, policy: policy.yaml}
  export: {of: dpo, gate: gate}
END
}
facts() { python3 -S -c 'import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    print(r["stage"], r["key"], r["digest"])' "$1"; }
skipped() { python3 -S -c 'import json, sys; print(*[json.loads(l)["stage"] for l in open(sys.argv[1]) if json.loads(l)["skipped"]])' "$1"; }

chain calm
code "a chain" 0 "$trireme" stages calm.yaml --json
cp out calm.facts
same "every stage" "$(wc -l <out)" 7
same "none was there before" "none$(skipped out)" none
code "again" 0 "$trireme" stages calm.yaml --json
same "all are skipped" "$(skipped out)" "data pretrain sft dpo eval gate export"
same "the same digests" "$(facts out)" "$(facts calm.facts)"
code "the exported model works" 0 "$trireme" eval calm/export-*/out --task choice.yaml
if [ -e "$(echo calm/export-*/out/README.md)" ]; then passed "its card"; else failed "its card"; fi

# --- ended by SIGKILL at random moments, until it is done ---
chain killed
seed=${SEED:-1} n=0 ended=0
python3 - "$trireme" $seed "$kills" <<'END' >out 2>err
import os, random, signal, subprocess, sys, time
program, r, kills = sys.argv[1], random.Random(int(sys.argv[2])), int(sys.argv[3])
done = 0
for i in range(kills):
    p = subprocess.Popen([program, "stages", "killed.yaml", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        p.wait(timeout=r.uniform(0.02, 1.2))
        done += 1
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGKILL)
        p.wait()
print(kills, "kills,", done, "came too late")
END
cat out
code "the rest of it" 0 "$trireme" stages killed.yaml --json
same "after $kills kills: the same keys and digests" "$(facts out)" "$(facts calm.facts)"

# --- what changes runs again, and nothing before it ---
sed -i 's/steps: 6/steps: 7/' dpo.yaml
code "one stage changed" 0 "$trireme" stages calm.yaml --json
same "those before it are skipped" "$(skipped out)" "data pretrain sft"
sed -i 's/steps: 7/steps: 6/' dpo.yaml
code "changed back" 0 "$trireme" stages calm.yaml --json
same "nothing runs" "$(skipped out)" "data pretrain sft dpo eval gate export"

# --- an adapter on the corpus, a reward model, and completions that it rewards; from finished stages ---
cat >adapt.yaml <<END
train: {steps: 4, seq: 32, global_batch: 4}
adapter: {kind: lora, rank: 2}
data: {valid: 0}
schedule: {warmup: 0}
$usual
END
cat >grpo.yaml <<END
train: {steps: 3, seq: 32, global_batch: 8}
rollout: {prompts: asks.jsonl, group: 4, max_tokens: 4}
data: {template: none}
schedule: {warmup: 0}
determinism: strict
kernels: {threads: 1}
checkpoint: {every: 1}
END
sed 's/every: 4/every: 2/' dpo.yaml >reward.yaml
for i in 1 2 3; do echo "{\"prompt\": \"king $i?\"}"; done >asks.jsonl
others() { # others DIR
    sed '/dpo:/,$d' "$1.yaml" >"$1-others.yaml"
    cat >>"$1-others.yaml" <<END
  adapt: {config: adapt.yaml, from: pretrain, data: data}
  reward: {config: reward.yaml, from: sft}
  grpo: {config: grpo.yaml, from: sft, keys: [reward.kind=model, "reward.model={reward}"]}
  merged: {kind: export, of: adapt, flags: [--merge]}
  last: {kind: export, of: grpo}
END
}
others calm
others killed
code "other stages" 0 "$trireme" stages calm-others.yaml --json
same "what was there is skipped" "$(skipped out)" "data pretrain sft"
cp out others.facts
code "again" 0 "$trireme" stages calm-others.yaml --json
same "all are skipped" "$(skipped out)" "data pretrain sft adapt reward grpo merged last"
timeout -s KILL 0.7 "$trireme" stages killed-others.yaml >/dev/null 2>&1
code "after a kill" 0 "$trireme" stages killed-others.yaml --json
same "the same digests" "$(facts out)" "$(facts others.facts)"

# --- a budget ---
chain poor 'budget: 0.01s'
code "a budget of time" 75 "$trireme" stages poor.yaml
says "is used up" err 'the budget of 0\.01s is used up'
chain poor 'budget: $1, price: 0'
code "money without a price" 3 "$trireme" stages poor.yaml
if [ "$kills" -gt 9 ]; then
    chain poor 'budget: $50, price: 2'
    code "enough money" 0 "$trireme" stages poor.yaml --json
    same "continued to the same digests" "$(facts out)" "$(facts calm.facts)"
fi

# --- a planted regression ---
sed -i 's/acc >= 0.7/acc >= 1.5/' policy.yaml
code "a gate that refuses" 8 "$trireme" stages calm.yaml
says "names its stage" err 'stage gate ended with exit code 8'
says "with its reason" err '1 of 1 checks failed'
same "nothing more was exported" "$(ls -d calm/export-* | wc -l)" 2

# --- wrong files ---
refuse() { local name=$1 exit=$2 pattern=$3; shift 3; printf '%s\n' "$@" >bad.yaml; code "$name" "$exit" "$trireme" stages bad.yaml; says "$name: why" err "$pattern"; }
refuse "no stages" 3 'no stages; write stage' 'stages: {dir: x}'
refuse "a kind that is none" 3 'expected one of auto, data' 'stage: {a: {kind: dance}}'
refuse "no kind" 3 'stage\.a\.kind is not given' 'stage: {a: {config: base.yaml}}'
refuse "a stage after it" 3 'there is no stage "sft" before it' 'stage: {dpo: {config: dpo.yaml, from: sft}, sft: {config: sft.yaml}}'
refuse "no model" 3 'stage\.eval\.of is not given' 'stage: {eval: {tasks: [choice.yaml]}}'
refuse "a field of another kind" 3 'stage\.data\.of has no effect' 'stage: {data: {config: corpus.yaml, of: x}}'
refuse "an unknown key" 3 'unknown key "stage.data.configs"' 'stage: {data: {configs: corpus.yaml}}'
[ $failures = 0 ]
