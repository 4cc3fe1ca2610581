#!/bin/bash
# Two hosts: network namespaces with a cable between them, each with a name and processes of its own. Started
# torchrun's way and by mpirun, ranks in both must train what one process trains; a cut cable must be named.
set -u
. tests/support/named.sh
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "two hosts need root, for network namespaces"
command -v ip >/dev/null || skip "two hosts need ip; apt install iproute2"
ldconfig -p | grep -q 'libucp\.so\.0' || skip "UCX is not on this machine; apt install libucx0"
"$trireme" doctor 2>/dev/null | tr -s '\n ' ' ' | grep -q 'built without UCX' && skip "this program was built without UCX"
cd "$dir" || exit 1
# The leak checker traces its process, which now and then fails beside UCX's threads.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
a=tria$$ b=trib$$
tidy() {
    ip netns del $a
    ip netns del $b
    rm -rf "$dir"
} 2>/dev/null
trap tidy EXIT
ip netns add $a 2>/dev/null && ip netns add $b && unshare --uts --pid --fork --mount-proc true \
    || skip "this machine makes no network namespaces"
ip link add tra$$ netns $a type veth peer name trb$$ netns $b || skip "this machine makes no veth"
for at in "$a tra$$ 1" "$b trb$$ 2"; do
    set -- $at
    ip -n "$1" addr add 10.213.7."$3"/24 dev "$2" && ip -n "$1" link set "$2" up && ip -n "$1" link set lo up
done
cables_up() { # the kernel takes up to a second to see that both ends are up
    for _ in $(seq 100); do
        ip -n $a -o link show tra$$ | grep -q "state UP" && ip -n $b -o link show trb$$ | grep -q "state UP" && break
        sleep 0.05
    done
}
cables_up
head -c 32 /dev/urandom >key
chmod 600 key
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=6 train.steps=12 determinism=strict checkpoint.every=4 eval.every=0"
"$trireme" init demo >/dev/null || exit 1
# on_host NAMESPACE HOST FIRST-RANK RANKS-HERE RANKS COMMAND...: its ranks; their output in HOST.RANK
on_host() {
    local space=$1 name=$2 first=$3 here=$4 ranks=$5
    shift 5
    FIRST=$first HERE=$here RANKS=$ranks HOST=$name PORT=$port timeout -k 5 600 ip netns exec "$space" \
        unshare --uts --pid --fork --mount-proc --kill-child bash -c '
        hostname "$HOST"
        export WORLD_SIZE=$RANKS LOCAL_WORLD_SIZE=$HERE MASTER_ADDR=10.213.7.1 MASTER_PORT=$PORT
        export TRIREME_KEY=key UCX_TLS=tcp worst=0 pids=
        for ((i = 0; i < HERE; i++)); do
            LOCAL_RANK=$i RANK=$((FIRST + i)) "$@" >"$HOST.$((FIRST + i))" 2>&1 &
            pids+=" $!"
        done
        for pid in $pids; do
            wait "$pid" || worst=$?
        done
        exit $worst' rank "$@"
}
# on_both NAME CODE RANKS-EACH COMMAND...: CODE is one of both hosts, or "CODE CODE"
on_both() {
    local name=$1 expected=$2 each=$3
    shift 3
    [[ $expected == *" "* ]] || expected+=" $expected"
    free_port
    on_host $b node-b "$each" "$each" $((2 * each)) "$@" &
    local other=$!
    on_host $a node-a 0 "$each" $((2 * each)) "$@"
    local got=$?
    wait $other
    local got_b=$?
    cat node-a.* >out
    cat node-b.* >err
    same "$name: exit codes" "$got $got_b" "$expected"
}

cut_when_under_way() { # [STEP]: the cable, in the middle of a run, or at a step of this pattern
    soon $$ grep -qE "^step +${1:-}" node-a.0
    ip -n $b link set trb$$ down
}
# Hosts with GPUs (tests/cuda_hosts_night.sh): their data goes through the memory of the hosts or by NCCL, the rest by
# UCX. The library of NCCL is the tests' own, whose ranks meet in a folder of both hosts.
if [ -n "${HOSTS_GPUS:-}" ]; then
    export LD_LIBRARY_PATH=$(dirname "$trireme")/tests/cuda FAKE_NCCL_DIR=$dir/meet
    [ -e "$LD_LIBRARY_PATH/libcuda.so.1" ] || skip "$LD_LIBRARY_PATH/libcuda.so.1 is not built"
    mkdir bin meet
    cp "$trireme" bin/
    echo kernels >bin/trireme.fatbin
    keys="train.seq=16 train.global_batch=4 model.layers=2 model.dim=32 model.heads=2 model.ffn_dim=64 eval.every=0
          checkpoint.every=3 schedule.warmup=2 kernels.threads=1 train.steps=5 kernels.device=cuda"
    gpus() { on_both "$1" 0 1 "$dir/bin/trireme" train demo run.dir="$dir/$2" $keys "${@:3}"; }
    gpus "a GPU on each" staged layout.dp=2
    says "goes through the hosts" out ' through the host.s memory'
    gpus "by NCCL" nccl layout.dp=2 comm.transport=nccl
    says "goes from GPU to GPU" out ' by NCCL, 0 through the host'
    says "and uses UCX for the rest" nccl/run.json '"transport": "ucx"'
    same "by NCCL: the digest through the hosts" "$(digest nccl)" "$(digest staged)"
    gpus "ZeRO-3 by NCCL" zero layout.dp=2 layout.zero=3 comm.transport=nccl
    gpus "goes on from a checkpoint" zero-on layout.dp=2 layout.zero=3 --resume "$dir/zero/checkpoints/step-0000003"
    same "with its digest" "$(digest zero-on)" "$(digest zero)"
    moe="model.preset=moe-tiny model.vocab=257 model.expert_ffn_dim=16 model.ffn_dim=0 layout.dp=2 layout.ep=2"
    gpus "experts" moe-staged $moe
    gpus "experts by NCCL" moe-nccl $moe comm.transport=nccl
    same "experts by NCCL: the digest through the hosts" "$(digest moe-nccl)" "$(digest moe-staged)"
    on_both "GPUs of hosts do not read each other's memory" 0 1 "$dir/bin/trireme" train demo run.dir="$dir/peer" $keys \
        layout.dp=2 comm.transport=peer
    same "peer: the digest through the hosts" "$(digest peer)" "$(digest staged)"
    on_both "resilience.mode=restart, for ranks that this program starts" 3 1 "$dir/bin/trireme" train demo run.dir="$dir/no" \
        $keys layout.dp=2 resilience.mode=restart
    says "says what to take on several hosts" out 'let torchrun restart the job'
    # After a loss all ranks end, and the same command, which a batch system gives again, goes on from the last
    # checkpoint. The cable is cut, and put back, or the rank of the second host is killed.
    kill_when_under_way() { # RUN: the youngest process there; with a launcher, one of its ranks
        soon $$ grep -q '"step": 1[2-9],.*loss' "$1/metrics.jsonl"
        local youngest=
        for pid in $(processes "run.dir=$dir/$1" | awk -v program="$dir/bin/trireme" '$3 == program || $3 ~ /exe$/ { print $1 }' | sort -n); do
            [ "$(ip netns identify "$pid" 2>/dev/null)" = $b ] && youngest=$pid
        done
        kill -9 "$youngest"
    }
    lost="layout.dp=2 layout.zero=1 train.steps=40 checkpoint.every=5 log.every=1"
    gpus "an undisturbed run" undisturbed $lost
    for transport in auto nccl; do
        for run in killed cut; do
            rm -f node-*
            if [ $run = killed ]; then kill_when_under_way killed-$transport & else cut_when_under_way '1[2-9]/' & fi
            fault=$! expected=7
            [ $run = cut ] || expected="7 137"
            on_both "$run, $transport" "$expected" 1 "$dir/bin/trireme" train demo run.dir="$dir/$run-$transport" $keys $lost \
                comm.transport=$transport
            wait $fault
            ip -n $b link set trb$$ up
            ip -n $b addr add 10.213.7.2/24 dev trb$$ 2>/dev/null
            cables_up
            gpus "$run, $transport: the same command" $run-$transport $lost comm.transport=$transport
            says "$run, $transport: goes on from a checkpoint" out "^start +.continued after step [1-9]"
            same "$run, $transport: the digest of an undisturbed run" "$(digest $run-$transport)" "$(digest undisturbed)"
        done
    done
    # resilience.mode=live replaces the killed rank.
    rm -f node-*
    kill_when_under_way live &
    fault=$!
    on_both "killed, live" 0 1 "$dir/bin/trireme" train demo run.dir="$dir/live" $keys $lost resilience.mode=live \
        resilience.buddy.ranks=1
    wait $fault
    says "killed, live: is noticed" live/metrics.jsonl '"event": "lost"'
    same "killed, live: the digest of an undisturbed run" "$(digest live)" "$(digest undisturbed)"
    rm -f node-*
    cut_when_under_way &
    on_both "a cut cable, NCCL" 7 1 "$dir/bin/trireme" train demo run.dir="$dir/cut" $keys train.steps=100000 log.every=20 \
        layout.dp=2 comm.transport=nccl
    [ $failures = 0 ]
    exit
fi

code "one process" 0 "$trireme" train demo run.dir="$dir/one" $keys
want=$(digest one)
on_both "a rank on each" 0 1 "$trireme" train demo run.dir="$dir/two" $keys layout.dp=2
same "a rank on each: the digest of one" "$(digest two)" "$want"
on_both "two on each, ZeRO-1" 0 2 "$trireme" train demo run.dir="$dir/four" $keys layout.dp=4 layout.zero=1
same "two on each: the digest of one" "$(digest four)" "$want"
on_both "a stage on each" 0 1 "$trireme" train demo run.dir="$dir/stages" $keys layout.pp=2
same "a stage on each: the digest of one" "$(digest stages)" "$want"
on_both "two on each, stages of two" 0 2 "$trireme" train demo run.dir="$dir/mesh" $keys layout.pp=2 layout.dp=2 layout.zero=1
same "stages of two: the digest of one" "$(digest mesh)" "$want"
on_both "four on each, all axes" 0 4 "$trireme" train demo run.dir="$dir/axes" $keys layout.pp=2 layout.dp=2 layout.tp=2 layout.zero=1 determinism.tp_shards=2
code "one process, sums in halves" 0 "$trireme" train demo run.dir="$dir/halves" $keys determinism.tp_shards=2
same "four on each: the digest of one" "$(digest axes)" "$(digest halves)"

# Rows of experts go inside each host first, then between hosts.
moe="model.ffn_dim=0 train.global_batch=8 model.experts=4 model.experts_per_token=2 model.expert_ffn_dim=32"
code "experts, one process" 0 "$trireme" train demo run.dir="$dir/experts-1" $keys $moe
on_both "experts over both hosts" 0 2 "$trireme" train demo run.dir="$dir/experts-4" $keys $moe layout.dp=4 layout.ep=4 layout.zero=1
same "experts over both hosts: the digest of one" "$(digest experts-4)" "$(digest experts-1)"

# Gradients that travel compressed lose the same on one host and on two.
for codec in "int8" "topk comm.compression.keep=0.05 comm.compression.warmup=2"; do
    packed="determinism=fast kernels.threads=1 layout.dp=2 comm.compression=$codec"
    code "${codec%% *}, one host" 0 "$trireme" train demo run.dir="$dir/${codec%% *}-1" $keys $packed
    on_both "${codec%% *}, two hosts" 0 1 "$trireme" train demo run.dir="$dir/${codec%% *}-2" $keys $packed
    same "${codec%% *}: the digest of one host" "$(digest "${codec%% *}-2")" "$(digest "${codec%% *}-1")"
done

on_both "bench comm, two on each" 0 2 "$trireme" bench comm --op all_reduce --bytes 8,1MiB --json
says "bench comm: over what, and how" out '"bytes": 1048576.*"algorithm": "two_level", "transport": "ucx"'

# Open MPI's launcher on the first host starts a daemon on the other by `agent HOST COMMAND...`.
over_mpirun() { # RANKS-EACH COMMAND...
    local each=$1
    shift
    free_port
    timeout -k 5 600 ip netns exec $a unshare --uts --pid --fork --mount-proc --kill-child bash -c 'hostname node-a; exec "$@"' - \
        mpirun --allow-run-as-root --host 10.213.7.1:"$each",10.213.7.2:"$each" --oversubscribe --bind-to none \
        --mca plm_rsh_agent "$dir/agent" --mca oob_tcp_if_include 10.213.7.0/24 -x TRIREME_KEY="$dir/key" -x UCX_TLS=tcp \
        -x TRIREME_ADDRESS=10.213.7.1:$port "$@"
}
cat >agent <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
shift
exec ip netns exec $b unshare --uts --pid --fork --mount-proc --kill-child bash -c "hostname node-b; \$*"
END
chmod +x agent
if mpirun --version 2>/dev/null | grep -q "Open MPI"; then
    code "mpirun, two on each" 0 over_mpirun 2 "$trireme" train demo run.dir="$dir/mpirun" $keys layout.dp=4 layout.zero=1
    same "mpirun: the digest of one" "$(digest mpirun)" "$want"
    says "mpirun: between hosts" mpirun/run.json '"transport": "ucx"'
else
    echo "skipped: no mpirun of Open MPI; apt-get install --no-install-recommends openmpi-bin"
fi

rm -f node-*
cut_when_under_way &
on_both "a cut cable" 7 1 "$trireme" train demo run.dir="$dir/cut" $keys train.steps=100000 log.every=20 layout.dp=2
says "a cut cable: one side names the link" out 'link node-a - node-b \(ucx, tcp/'
says "a cut cable: the other, too" err 'link node-b - node-a \(ucx, tcp/'
[ $failures = 0 ]
