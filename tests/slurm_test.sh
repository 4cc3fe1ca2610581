#!/bin/bash
# Real Slurm on this one machine: munged, slurmctld and three slurmd in a folder of their own, on ports of their
# own. sbatch with srun starts four ranks on one node, srun two nodes with two ranks each. With SLURM_LOST=1 a
# job on two nodes then loses the slurmd of one, the next job a whole node, and Slurm starts both again on other
# nodes. The digests must be that of one process. The nodes here are one host, and so are their ranks: they share
# its memory.
set -u
. tests/support/named.sh
script=$PWD/share/slurm/train.sbatch
skip() { echo "skipped: $1"; exit 77; }
PATH=$PATH:/usr/sbin:/sbin
for program in munged munge slurmctld slurmd srun sbatch sinfo; do
    command -v $program >/dev/null || skip "no $program; apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
done
[ "$(id -u)" = 0 ] || skip "slurmd starts processes of others: root only"

# ---- a cluster ---------------------------------------------------------------------------------------
host=$(hostname -s)
port=$((20000 + $$ % 10000))
stop() {
    local f
    for f in "$dir"/slurm/*.pid; do
        [ -s "$f" ] && kill "$(cat "$f")" 2>/dev/null
    done
    for _ in $(seq 100); do
        compgen -G "$dir/slurm/*.pid" >/dev/null || break
        sleep 0.1
    done
    rm -rf "$dir"
}
trap stop EXIT
mkdir -p "$dir/slurm/state" "$dir/slurm/spool/n1" "$dir/slurm/spool/n2" "$dir/slurm/tmp/n1" "$dir/slurm/tmp/n2"
chmod 755 "$dir"
cd "$dir/slurm" || exit 1
head -c 128 /dev/urandom >munge.key
chmod 600 munge.key
munged --force --key-file="$PWD/munge.key" --socket="$PWD/munge.socket" --pid-file="$PWD/munged.pid" \
    --log-file="$PWD/munged.log" --seed-file="$PWD/munge.seed" --num-threads=1 >munged.out 2>&1 ||
    skip "munged does not start: $(tail -1 munged.out)"
cat >slurm.conf <<END
ClusterName=trireme
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$PWD/munge.socket
SlurmctldPort=$port
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool/%n
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/slurmd-%n.pid
SlurmctldLogFile=$PWD/slurmctld.log
SlurmdLogFile=$PWD/slurmd-%n.log
TmpFS=$PWD/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
SlurmdTimeout=8
MpiDefault=none
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
NodeName=n3 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 3)) CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$PWD/slurm.conf
slurmctld -i -f slurm.conf >ctld.out 2>&1 || skip "slurmctld does not start: $(tail -1 ctld.out)"
for node in n1 n2 n3; do
    slurmd -N $node -f "$SLURM_CONF" >$node.out 2>&1 || skip "slurmd does not start: $(tail -1 $node.out)"
done
for _ in $(seq 300); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = 3 ] && break
    sleep 0.1
done
if [ "$(sinfo -h -N -o %T | grep -c idle)" = 3 ]; then
    passed "three nodes are idle"
else
    cat slurmctld.log slurmd-*.log >"$dir/err"
    sinfo >"$dir/out"
    failed "three nodes are idle"
    exit 1
fi

# ---- jobs --------------------------------------------------------------------------------------------
cd "$dir" || exit 1
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=8 train.steps=12 determinism=strict eval.every=0 kernels.threads=1"
"$trireme" init demo >/dev/null || exit 1
head -c 32 /dev/urandom >key
chmod 600 key
export TRIREME_KEY=$dir/key
code "one process" 0 "$trireme" train demo run.dir="$dir/one" $keys
want=$("$trireme" digest one)
job() { # NAME RUN: its output is shown where it failed
    cat "$dir/job" >"$dir/out" 2>/dev/null
    if [ "$2" = 0 ]; then passed "$1"; else echo "exit $2" >"$dir/err"; failed "$1"; fi
}
timeout 600 sbatch --wait -N1 -n4 -w n1 -o "$dir/job" --wrap \
    "srun '$trireme' train '$dir/demo' run.dir='$dir/four' layout.dp=4 $(echo $keys)" >/dev/null 2>err
job "sbatch and srun: four ranks on a node" $?
same "four ranks: the digest of one" "$("$trireme" digest four 2>&1)" "$want"
# The nodes' names are Slurm's alone here, so the ranks are told where the first one is.
TRIREME_ADDRESS=127.0.0.1:$((port + 4)) timeout 600 srun -N2 -n4 --ntasks-per-node=2 \
    "$trireme" train "$dir/demo" run.dir="$dir/two" layout.dp=4 layout.zero=1 $keys >"$dir/job" 2>&1
job "srun: two nodes with two ranks each" $?
same "two nodes: the digest of one" "$("$trireme" digest two 2>&1)" "$want"
if [ -s two/logs/rank-00003.log ]; then passed "two nodes: logs of all ranks"; else failed "two nodes: logs of all ranks"; fi
timeout 600 srun -N1 -n2 -w n1 "$trireme" train "$dir/demo" run.dir="$dir/refused" layout.dp=4 $keys >"$dir/job" 2>&1
same "a layout for more ranks than srun started: exit code" "$?" 3

# ---- a lost node -------------------------------------------------------------------------------------
# `make test-slurm` sets SLURM_LOST=1: Slurm needs its time to see that a node is lost.
[ "${SLURM_LOST:-}" = 1 ] || { [ $failures = 0 ]; exit; }
# The script that the project installs starts the run again without a person and without a flag. The first
# job loses only the slurmd of its second node, whose ranks Slurm cannot reach from then on; the second job
# loses a whole node, the one where the script itself runs.
mkdir bin
ln -s "$trireme" bin/trireme
export PATH=$dir/bin:$PATH TRIREME_ADDRESS=127.0.0.1:$((port + 5))
long="$keys train.steps=6000 checkpoint.every=50 log.every=1"
code "one process, a longer run" 0 "$trireme" train demo run.dir="$dir/long" $long
want=$("$trireme" digest long)
trained() { # RUN: its newest step
    tail -n 1 "$1/metrics.jsonl" 2>/dev/null | sed -n 's/.*"step": *\([0-9]*\).*/\1/p'
}
node_of() { # PID of a step's daemon: the node whose log it has open
    readlink /proc/"$1"/fd/* 2>/dev/null | sed -n 's/.*slurmd-\(n[0-9]\)\.log/\1/p' | head -n 1
}
processes_of() { # NODE: its daemon, the daemons of its steps, and what those have started
    local stepd
    cat "$dir/slurm/slurmd-$1.pid"
    for stepd in $(pgrep -f '^slurmstepd: '); do
        [ "$(node_of "$stepd")" = "$1" ] && echo "$stepd" && pgrep -P "$stepd"
    done
}
lost_node() { # RUN slurmd|node: exit code 0 when the job that lost a node has ended well
    local id first second
    id=$(sbatch --parsable -N2 --ntasks-per-node=2 -o "$dir/job" "$script" demo run.dir="$dir/$1" layout.dp=4 $long) || return
    for _ in $(seq 600); do
        [ "$(trained "$1")" -ge 120 ] 2>/dev/null && break
        sleep 0.1
    done
    read -r first second <<<"$(scontrol show hostnames "$(squeue -h -j "$id" -o %N)" | tr '\n' ' ')"
    if [ "$2" = slurmd ]; then
        lost=$second
        kill -9 "$(cat "$dir/slurm/slurmd-$lost.pid")"
    else
        lost=$first
        kill -9 $(processes_of "$lost")
    fi
    # Slurm lets a job that it has put back wait two minutes.
    for _ in $(seq 1200); do
        case $(squeue -h -j "$id" -o '%T %r' 2>/dev/null) in
        "PENDING BeginTime") scontrol update jobid="$id" StartTime=now ;;
        "") break ;;
        esac
        sleep 0.1
    done
    slurmd -N "$lost" -f "$SLURM_CONF" >"$dir/slurm/$lost.out" 2>&1
    for _ in $(seq 300); do
        [ "$(sinfo -h -N -o %T | grep -c idle)" = 3 ] && break
        sleep 0.1
    done
    scontrol -o show job "$id" >"$dir/ended"
    grep -q 'ExitCode=0:0' "$dir/ended"
}
for what in slurmd node; do
    rm -f job
    lost_node "lost-$what" "$what"
    job "a lost $what: the job is started again and ends" $?
    says "a lost $what: Slurm has started it twice" ended "Restarts=[1-9]"
    says "a lost $what: it goes on from a checkpoint" "lost-$what/log.txt" "^start .*step"
    same "a lost $what: the digest of one" "$("$trireme" digest "lost-$what" 2>&1)" "$want"
done
[ $failures = 0 ]
