#!/bin/bash
# The manifests for Kubernetes: by the published schema where a validator is installed (pip install
# kubernetes-validate), by what the ranks rely on in every case; and two ranks that join with the variables
# that an indexed job gives its pods.
set -u
. tests/support/named.sh
manifest=$PWD/share/kubernetes/train.yaml
cd "$dir" || exit 1
python3 -c 'import yaml' 2>/dev/null || { echo "skipped: no python3 with yaml, which reads the manifests"; exit 77; }
cat >structure.py <<'END'
import sys, yaml

parts = {d["kind"]: d for d in yaml.safe_load_all(open(sys.argv[1]))}
job, service, policy = parts["Job"], parts["Service"], parts["NetworkPolicy"]
spec, pod = job["spec"], job["spec"]["template"]["spec"]
train = {c["name"]: c for c in pod["containers"]}["train"]
env = {e["name"]: e["value"] for e in train["env"]}
ranks = spec["completions"]
# The address of rank 0 is made of the job's name, twice.
assert spec["completionMode"] == "Indexed"
assert service["metadata"]["name"] == job["metadata"]["name"] == pod["subdomain"]
assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
label = {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == label
# One number of ranks, in four places.
assert spec["parallelism"] == ranks == int(env["WORLD_SIZE"])
assert "layout.dp=%d" % ranks in train["command"]
# The key is no variable, and a copy that only the rank may read.
mounts = {m["name"]: m["mountPath"] for m in train["volumeMounts"]}
assert env["TRIREME_KEY"].startswith(mounts["key"] + "/") and "secret" not in mounts
assert pod["initContainers"][0]["command"][:3] == ["install", "-m", "600"]
# Exit codes: 75 goes on, those that a person must look at do not, and no code is in both.
rules = [(r["action"], r["onExitCodes"]["values"]) for r in spec["podFailurePolicy"]["rules"] if "onExitCodes" in r]
assert rules == [("Ignore", [75]), ("FailJob", [2, 3, 5, 6, 8, 76])], rules
assert pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
END
code "the manifest is what ranks rely on" 0 python3 structure.py "$manifest"
validator=${KUBERNETES_VALIDATE:-kubernetes-validate}
if command -v "$validator" >/dev/null; then
    code "the manifest meets the published schema" 0 "$validator" --strict "$manifest"
    sed 's/completions: 2/completions: two/' "$manifest" >wrong.yaml
    "$validator" --strict wrong.yaml >out 2>&1 && failed "and a wrong one does not" || passed "and a wrong one does not"
else
    echo "[  SKIPPED ] the manifest meets the published schema: no kubernetes-validate (pip install kubernetes-validate)"
fi

keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=6 train.steps=12 determinism=strict eval.every=0"
"$trireme" init demo >/dev/null || exit 1
head -c 32 /dev/urandom >key
chmod 600 key
free_port
pod() { # INDEX: where every pod's name leads to this machine
    env JOB_COMPLETION_INDEX="$1" WORLD_SIZE=2 HOSTNAME="trireme-train-$1" TRIREME_KEY=key TRIREME_ADDRESS="127.0.0.1:$port" \
        timeout 600 "$trireme" train demo run.dir="$dir/pods" layout.dp=2 $keys
}
code "one process" 0 "$trireme" train demo run.dir="$dir/one" $keys
pod 1 >rank1 2>&1 &
other=$!
code "an indexed job's variables, index 0" 0 pod 0
wait $other
same "index 1: exit code" "$?" 0
same "the digest of one" "$("$trireme" digest pods 2>&1)" "$("$trireme" digest one)"
[ $failures = 0 ]
