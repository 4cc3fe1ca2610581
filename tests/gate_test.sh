#!/bin/bash
# `gate` and `export --gated`: bounds, regressions item by item, refusal rates, licences from the
# ledgers, approvals by ssh keys, the record and its hashes, the model card.
set -u
. tests/support/named.sh
"$trireme" init "$dir/demo" >/dev/null
head -c 30000 "$dir/demo/text.txt" >"$dir/text.txt"
cd "$dir" || exit 1
cat >corpus.yaml <<'END'
out: corpus
filters: []
sources:
  plays: {paths: text.txt, licence: CC0-1.0}
END
code "a corpus" 0 "$trireme" data build corpus.yaml
train() {
    "$trireme" train demo/config.yaml model.layers=1 model.dim=32 model.heads=2 train.seq=32 train.global_batch=8 \
        data.tokenizer=bytes data.valid=0 eval.every=0 kernels.threads=1 determinism=strict schedule.warmup=2 --quiet "$@"
}
code "a model" 0 train data.train=corpus train.steps=60 run.dir=run
code "a worse one: the same before it learned" 0 train data.train=corpus train.steps=1 run.dir=worse
python3 - <<'END'
import json, random
r, plays = random.Random(1), open("text.txt").read().replace("\n", " ")
with open("choice.jsonl", "w") as f:
    for i in range(40): # a piece of the text, or bytes that it does not have
        at = r.randrange(len(plays) - 40)
        text = [plays[at:at + 20], "".join(r.choice("#~%{}@^|<>=+*/\\_0123456789") for _ in range(20))]
        f.write(json.dumps({"context": "And", "choices": text if i % 2 else text[::-1], "gold": (i + 1) % 2}) + "\n")
with open("ask.jsonl", "w") as f:
    for i in range(4): f.write(json.dumps({"prompt": f"How do I {i}?"}) + "\n")
END
echo '{name: choice, data: choice.jsonl}' >choice.yaml
echo '{name: text, kind: perplexity, data: rows.jsonl}' >text.yaml
printf '{"text": "The king is dead."}\n{"text": "Long live the king."}\n' >rows.jsonl
echo '{name: refusals, kind: generation, data: ask.jsonl, context: "{{ prompt }}", match: [refusal], max_tokens: 6}' >ask.yaml
policy() { printf '%s\n' "$@" >policy.yaml; }
gate() { local model=$1; shift; "$trireme" gate "$model" --policy policy.yaml --threads 1 "$@"; }

policy 'name: release' 'version: 7' 'tasks: [choice.yaml, text.yaml, ask.yaml]' \
    'require: ["choice.acc >= 0.8", "text.bits_per_byte < 7.5", "refusals.matched <= 0.5"]' 'licences: [CC0-1.0]'
code "a model that passes" 0 gate run
says "its bound" out '^passed +bound +choice\.acc >= 0\.8: (0\.[89]|1\.0)'
says "the licence of its data" out '^passed +licence +plays: CC0-1\.0'
code "again: nothing runs anew" 0 gate run
says "from the record" out '^results +those of the record'
code "gated export" 0 "$trireme" export run hf --gated
says_card() { if grep -qE -- "$2" hf/README.md; then passed "$1"; else failed "$1"; fi; }
says_card "the card's results" '^\| choice \| acc \| '
says_card "the card's data" '\| CC0-1\.0 \|'
says_card "the card's policy" '^Policy release, version 7 \(sha256 [0-9a-f]{64}\)'
code "the card can be loaded with the folder" 0 "$trireme" eval hf --task choice.yaml

# --- refused ---
code "no record" 8 "$trireme" export worse none --gated
says "why" err 'there is no record of a gate'
code "a planted regression" 8 gate worse
says "the bound that fails" out '^FAILED +bound +(choice\.acc|text\.bits_per_byte)'
code "it is not exported" 8 "$trireme" export worse none --gated
says "why" err 'the gate did not let this model pass'
if [ -e none ]; then failed "nothing is left"; else passed "nothing is left"; fi
code "another model's record" 8 "$trireme" export worse none --gated --record run/gate/record.json
says "why" err 'is the record of another model'
sed 's/"passed": false/"passed": true/' worse/gate/record.json >edited.json
code "a record that was edited" 5 "$trireme" export worse none --gated --record edited.json
says "why" err 'was changed after the gate wrote it'
code "without the gate" 0 "$trireme" export worse plain --card
if grep -q 'exported without a release gate' plain/README.md; then passed "its card says so"; else failed "its card says so"; fi

policy 'tasks: [choice.yaml, text.yaml]' 'baseline: run' 'no_worse: [choice.acc, text.bits_per_byte]'
code "worse than the baseline" 8 gate worse
says "by the sign test" out '^FAILED +regression +choice\.acc no worse: .*\(sign test\)'
says "by the tolerance" out '^FAILED +regression +text\.bits_per_byte no worse: .*tolerance 0\.01'
code "no worse than itself" 0 gate run

code "a run on a plain text" 0 train data.train=text.txt train.steps=1 run.dir=unknown
policy 'licences: [CC0-1.0]'
code "data of unknown licence" 8 gate unknown
says "its file" out '^FAILED +licence +.*text\.txt: not known'
policy 'licences: [MIT]'
code "a licence that is not allowed" 8 gate run

# --- approvals ---
if command -v ssh-keygen >/dev/null; then
    for who in ann bob eve; do ssh-keygen -q -t ed25519 -N '' -C $who -f key-$who; done
    for who in ann bob; do echo "$who@x $(cut -d' ' -f1,2 key-$who.pub)"; done >signers
    policy 'licences: [CC0-1.0]' 'approvals: 2' 'signers: signers'
    sign() { rm -f run/gate/statement.sig; ssh-keygen -q -Y sign -f "key-$1" -n "${2:-trireme-gate}" run/gate/statement 2>/dev/null; mv run/gate/statement.sig "run/gate/$1.sig"; }
    code "no approval" 8 gate run
    says "how to sign" err 'ssh-keygen -Y sign -f KEY -n trireme-gate run/gate/statement'
    sign ann; sign eve
    code "one approval, and one of a stranger" 8 gate run
    says "counted" out '^FAILED +approval +2 approvals: 1: ann@x, eve\.sig \(no valid signature\)'
    cp run/gate/ann.sig run/gate/ann2.sig
    code "the same signer twice" 8 gate run
    sign bob file
    code "a signature for something else" 8 gate run
    sign bob
    code "two approvals" 0 gate run
    says "by name" out '^passed +approval +2 approvals: 2: ann@x, bob@x'
    code "an approved export" 0 "$trireme" export run hf2 --gated
    policy 'licences: [CC0-1.0, MIT]' 'approvals: 2' 'signers: signers'
    code "approvals of another policy do not count" 8 gate run
else
    echo "[  SKIPPED ] approvals: no ssh-keygen"
fi

# --- wrong policies ---
refuse() { local name=$1 exit=$2 pattern=$3; shift 3; policy "$@"; code "$name" "$exit" gate run; says "$name: why" err "$pattern"; }
refuse "nothing demanded" 3 'demands nothing' 'name: x'
refuse "a bound that is none" 3 'expected a bound such as' 'tasks: [choice.yaml]' 'require: [choice.acc]'
refuse "an unknown metric" 3 'no task gives "choice.f1"; there are: choice.acc' 'tasks: [choice.yaml]' 'require: ["choice.f1 > 1"]'
refuse "a baseline for nothing" 3 'baseline and no_worse belong together' 'tasks: [choice.yaml]' 'require: ["choice.acc > 0"]' 'baseline: run'
refuse "an unknown key" 3 'unknown key "requires"; did you mean "require"' 'requires: []'
code "no policy" 2 "$trireme" gate run
[ $failures = 0 ]
