#!/bin/bash
# resilience.mode=live on hosts that share no memory: network namespaces behind a bridge, with a launcher and a
# rank each. Two hosts, a rank on the second is killed. Five hosts, cut into two (with the one that leads) and
# three: the three go on, the two end their ranks, and after the cut all five train; one history, the digest of
# one process. Three hosts: one is lost with its launcher, and `train RUN --join` takes its place on a host with
# another address. `chaos` on three hosts ends two of them, one after the other, and a rank of the third.
set -u
. tests/support/named.sh
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "hosts need root, for network namespaces"
command -v ip >/dev/null || skip "hosts need ip; apt install iproute2"
"$trireme" doctor 2>&1 | grep -q "ucx: between hosts" || skip "UCX is not on this machine; apt install libucx0"
cd "$dir" || exit 1
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
u=tl$$
tidy() {
    for i in 0 1 2 3 4 s; do ip netns del $u$i; done
    rm -rf "$dir"
} 2>/dev/null
trap tidy EXIT
ip netns add ${u}s 2>/dev/null && ip -n ${u}s link add name sw0 type bridge && ip -n ${u}s link add name sw1 type bridge \
    || skip "this machine makes no network namespaces"
ip -n ${u}s link set dev sw0 up
ip -n ${u}s link set dev sw1 up
for i in 0 1 2 3 4; do
    ip netns add $u$i && ip link add v$i netns $u$i type veth peer name p$i netns ${u}s || skip "this machine makes no veth"
    ip -n ${u}s link set p$i master sw0
    ip -n ${u}s link set p$i up
    ip -n $u$i addr add 10.213.9.$((i + 1))/24 dev v$i && ip -n $u$i link set v$i up && ip -n $u$i link set lo up
done
sleep 2 # the kernel takes up to a second to see that both ends are up
head -c 32 /dev/urandom >key
chmod 600 key
"$trireme" init demo >/dev/null || exit 1
keys="model.layers=1 model.dim=32 model.heads=2 model.kv_heads=2 model.ffn_dim=64 train.seq=16 train.global_batch=10
      determinism=strict checkpoint.every=100000 eval.every=0"
port=$((20000 + $$ % 20000))
# hosts COUNT DIR KEY...: a launcher on each; $codes
hosts() {
    local count=$1 to=$2 pids=
    shift 2
    port=$((port + 1))
    for ((i = 0; i < count; i++)); do
        HOST=host-$i RANK=$i LOCAL_RANK=0 WORLD_SIZE=$count LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.213.9.1 MASTER_PORT=$port \
            TRIREME_KEY=key UCX_TLS=tcp timeout -k 5 300 ip netns exec $u$i unshare --uts --pid --fork --mount-proc --kill-child \
            bash -c 'hostname $HOST; exec "$@"' - "$trireme" train demo run.dir="$dir/$to" $keys layout.dp="$count" layout.zero=1 \
            resilience.mode=live resilience.buddy.ranks=1 "$@" >"$to.$i" 2>&1 &
        pids+=" $!"
    done
    codes=
    for pid in $pids; do
        wait "$pid"
        codes+=" $?"
    done
    cat "$to".* >out
    : >err
}
wait_step() { # DIR STEP
    for _ in $(seq 2400); do
        grep -q "\"step\": $2," "$1/metrics.jsonl" 2>/dev/null && return
        sleep 0.05
    done
}
kill_rank() { # DIR HOST: its process there has another number in its own namespace
    local inner
    read -r _ inner <"$1/logs/processes-$2"
    for pid in $(processes "run.dir=$dir/$1 " | awk '{ print $1 }'); do
        [ "$(awk '/^NSpid/ {print $NF}' "/proc/$pid/status")" = "$inner" ] &&
            [ "$(nsenter -t "$pid" -u hostname)" = "host-$2" ] && kill -9 "$pid"
    done 2>/dev/null
}

code "one process" 0 "$trireme" train demo run.dir="$dir/one" $keys train.steps=40
(wait_step two 15; kill_rank two 1) &
hosts 2 two train.steps=40
same "a rank of the second host is killed: exit codes" "$codes" " 0 0"
same "a rank of the second host is killed: the digest of one process" "$(digest two)" "$(digest one)"
says "a rank of the second host is killed: told" two/metrics.jsonl '"event": "lost", "rank": 1, "epoch": 1, "ranks": 2'
says "between hosts" two/run.json '"transport": "ucx"'

join_elsewhere() { # a launcher of host 1 and its ranks end; host 3, with another address, takes the place
    wait_step moved 15
    for pid in $(processes "run.dir=$dir/moved " | cut -d' ' -f1); do
        [ "$(nsenter -t "$pid" -u hostname)" = host-1 ] && kill -9 "$pid"
    done 2>/dev/null
    for _ in $(seq 600); do grep -q '"epoch": 1, "ranks": 2' moved/metrics.jsonl && break; sleep 0.05; done
    HOST=host-3 TRIREME_KEY=key UCX_TLS=tcp timeout -k 5 300 ip netns exec ${u}3 unshare --uts --pid --fork --mount-proc \
        --kill-child bash -c 'hostname $HOST; exec "$@"' - "$trireme" train moved --join >moved.join 2>&1
    echo "$?" >moved.code
}
code "one process, for three" 0 "$trireme" train demo run.dir="$dir/third" $keys train.global_batch=6 train.steps=200
join_elsewhere &
hosts 3 moved train.global_batch=6 train.steps=200
wait $! 2>/dev/null
wait
same "another host takes the place: exit codes" "$codes $(cat moved.code)" " 0 137 0 0"
same "another host takes the place: the digest of one process" "$(digest moved)" "$(digest third)"
says "another host takes the place: told" moved/metrics.jsonl '"event": "joined", .*"ranks": 3'

printf '4 host\n' >host0
printf '9 kill\n' >host1
printf '14 host\n' >host2
port=$((port + 1))
pids=()
for i in 0 1 2; do
    RANK=$i LOCAL_RANK=$i WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TRIREME_KEY=key timeout 300 \
        "$trireme" chaos demo run.dir="$dir/shaken" $keys train.global_batch=6 train.steps=1500 layout.dp=3 layout.zero=1 \
        resilience.mode=live resilience.buddy.ranks=1 --schedule host$i --json >"chaos.$i" 2>&1 &
    pids+=($!)
done
codes=
for pid in "${pids[@]}"; do
    wait "$pid"
    codes+=" $?"
done
cat chaos.0 chaos.1 chaos.2 >out
: >err
code "one process, for chaos" 0 "$trireme" train demo run.dir="$dir/calm" $keys train.global_batch=6 train.steps=1500
same "chaos on three hosts: exit codes" "$codes" " 0 0 0"
same "chaos on three hosts: the digest of one process" "$(digest shaken)" "$(digest calm)"
says "chaos on three hosts: losses" chaos.0 '"faults": 1, .*"losses": 3'
says "chaos on three hosts: they come back" shaken/metrics.jsonl '"ranks": 3'

code "one process, longer" 0 "$trireme" train demo run.dir="$dir/long" $keys train.steps=90
cut_and_heal() {
    wait_step five 10
    for i in 0 1; do ip -n ${u}s link set p$i master sw1; done
    wait_step five 14 # of the three
    sleep 5
    for i in 0 1; do ip -n ${u}s link set p$i master sw0; done
}
cut_and_heal &
hosts 5 five train.steps=90
same "two of five are cut off: exit codes" "$codes" " 0 0 0 0 0"
same "two of five are cut off: the digest of one process" "$(digest five)" "$(digest long)"
says "two of five are cut off: three go on" five/metrics.jsonl '"event": "lost", .*"epoch": 1, "ranks": 3'
says "two of five are cut off: they come back" five/metrics.jsonl '"event": "joined", .*"ranks": 5'
[ $failures = 0 ]
