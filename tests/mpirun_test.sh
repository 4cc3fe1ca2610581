#!/bin/bash
# Open MPI's launcher starts the ranks of a run, which speak as ever or over MPI itself. The digest is that of one
# process.
set -u
. tests/support/named.sh
mpirun --version 2>/dev/null | grep -q "Open MPI" || { echo "skipped: no mpirun of Open MPI; apt-get install --no-install-recommends openmpi-bin"; exit 77; }
cd "$dir" || exit 1
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=6 train.steps=12 determinism=strict eval.every=0"
"$trireme" init demo >/dev/null || exit 1
head -c 32 /dev/urandom >key
chmod 600 key
started() { # RANKS NAME KEY...
    local ranks=$1 name=$2
    shift 2
    TRIREME_KEY=$dir/key OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        timeout 600 mpirun --oversubscribe --bind-to none -n "$ranks" "$trireme" train demo run.dir="$dir/$name" $keys "$@"
}
code "one process" 0 "$trireme" train demo run.dir="$dir/one" $keys
code "mpirun, two ranks" 0 started 2 two layout.dp=2
same "two ranks: the digest of one" "$("$trireme" digest two 2>&1)" "$("$trireme" digest one)"
if [ "$(grep -c '^done ' out)" = 1 ]; then passed "only the first rank talks"; else failed "only the first rank talks"; fi
code "mpirun, three ranks, ZeRO-1" 0 started 3 three layout.dp=3 layout.zero=1
same "three ranks: the digest of one" "$("$trireme" digest three 2>&1)" "$("$trireme" digest one)"
if "$trireme" doctor 2>&1 | tr -s '\n ' ' ' | grep -q 'mpi: between ranks'; then
    code "over MPI, two ranks" 0 started 2 mpi layout.dp=2 comm.transport=mpi
    same "over MPI: the digest of one" "$("$trireme" digest mpi 2>&1)" "$("$trireme" digest one)"
    says "run.json names it" mpi/run.json "\"transport\": *\"mpi\""
    code "over MPI, two stages of two" 0 started 4 mesh layout.dp=2 layout.pp=2 layout.zero=1 comm.transport=mpi
    same "two stages of two: the digest of one" "$("$trireme" digest mesh 2>&1)" "$("$trireme" digest one)"
    code "bench comm over MPI" 0 env TRIREME_KEY="$dir/key" mpirun --allow-run-as-root --oversubscribe -n 2 \
        "$trireme" bench comm --transport mpi --op all_gather --bytes 8,1MiB --json
    says "it says so" out '"transport": "mpi"'
    code "MPI without mpirun" 3 "$trireme" train demo run.dir="$dir/alone" $keys layout.dp=2 comm.transport=mpi
    says "what to do" err 'mpirun -n 2'
else
    echo "skipped: over MPI itself: not built with it, or it is not on this machine"
fi
code "fewer ranks than the layout wants" 3 started 2 refused layout.dp=3
[ $failures = 0 ]
