#!/bin/bash
# Device cuda without a GPU: the program loads a driver (tests/fixtures/cuda) that runs the kernels' own text in
# an emulator, late and in a drawn order, with device memory that the host cannot touch. Losses are the CPU's.
set -u
. tests/support/named.sh
library=$(dirname "$trireme")/tests/cuda
[ -e "$library/libcuda.so.1" ] || { echo "skipped: $library/libcuda.so.1 is not built"; exit 77; }
mkdir "$dir/bin"
cp "$trireme" "$dir/bin/trireme"
trireme=$dir/bin/trireme
golden=$(realpath "${TRIREME_SHARED:-../shared}")/golden/models reward_model=$(realpath tests/support/reward_model.py)
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="train.seq=16 train.global_batch=4 model.layers=2 model.dim=32 model.heads=2 eval.every=0
      checkpoint.every=100 schedule.warmup=2 kernels.threads=1 train.steps=${CUDA_STEPS:-5}"
width=model.ffn_dim=64
train() { timeout ${CUDA_LIMIT:-600} "$trireme" train demo/config.yaml $keys $width run.dir="$dir/$1" "${@:2}"; }
gpu() { LD_LIBRARY_PATH=$library train "$@" kernels.device=cuda; }
# near NAME RUN RUN DIFFERENCE: the losses of all steps that both have, at least the last two
near() {
    local worst
    worst=$(python3 -c '
import json, sys
a, b = [{r["step"]: r["loss"] for r in map(json.loads, open(f"{d}/metrics.jsonl")) if "loss" in r} for d in sys.argv[1:3]]
both = sorted(set(a) & set(b))
print(max(abs(a[s] - b[s]) for s in both) if len(both) >= 2 else "nan")' "$2" "$3")
    if awk -v a="$worst" -v b="$4" 'BEGIN { exit !(a + 0 == a && a <= b) }'; then passed "$1"; else
        echo "losses of $2 and $3 differ by $worst" >>"$dir/err"
        failed "$1"
    fi
}

code "a machine without a driver" 4 train none kernels.device=cuda
says "is told what is missing" err 'libcuda.so.1; install the driver'
code "a program without kernels" 3 gpu none
says "is told where they belong" err 'bin/trireme.fatbin is missing'
echo kernels >bin/trireme.fatbin

code "fp32 on the CPU" 0 train cpu32
code "fp32 on the GPU" 0 gpu gpu32
near "has the CPU's losses" cpu32 gpu32 0.00001
says "tells the memory outside the plan, as predicted" out ' and 614 MiB for context, code and libraries of the GPU'
says "and as measured" out 'libraries of the GPU took 300 MiB; 614 MiB were predicted'
code "all steps but the first of each plan" 0 grep -q '"event": "graphs", "replayed": 4, "prepared": 1, "refused": 0' gpu32/metrics.jsonl
code "without graphs" 0 gpu calls kernels.graphs=no
same "has the same bits" "$("$trireme" digest calls)" "$("$trireme" digest gpu32)"
gpt2="model.preset=gpt2-tiny model.vocab=257 train.precision=bf16 model.dropout=0.1 train.steps=20"
code "GPT-2 in bf16 on the CPU" 0 train cpu16 $gpt2
code "GPT-2 in bf16 on the GPU" 0 gpu gpu16 $gpt2
near "has the CPU's losses within bf16" cpu16 gpu16 0.02
llama="model.kv_heads=1 train.precision=bf16"
code "grouped queries on the CPU" 0 train cpu-kv $llama
code "grouped queries on the GPU" 0 gpu gpu-kv $llama
near "have the CPU's losses within bf16" cpu-kv gpu-kv 0.02
fp8="model.kv_heads=1 train.precision=fp8 precision.fp8=tensor"
code "fp8 on the CPU" 0 train cpu8 $fp8
code "fp8 on the GPU" 0 gpu gpu8 $fp8
says "says that this GPU has no units for it" out 'no products in 8 bits for precision.fp8 = tensor, so operands are rounded'
near "has the CPU's losses within bf16" cpu8 gpu8 0.02
code "ZeRO-3" 0 gpu zero layout.dp=2 layout.zero=3
near "has the losses of one rank" gpu32 zero 0.00001
says "tells how its communications travel" out 'through the host.* memory .comm.transport = peer or nccl spares that'
says "tells that its ranks share a GPU" out '2 ranks share one GPU'
# The same collectives without the host's memory: GPUs read each other's. dp and tp too at night.
peers() { # NAME RUN KEYS...: RUN is the same through the host; "": it is run here
    local name=$1 other=$2
    shift 2
    code "$name, GPU to GPU" 0 gpu "peer-$other" "$@" comm.transport=peer
    says "uses no memory of the host" out 'between the GPUs.* memories, 0 through the host'
    [ -e "$other" ] || code "$name, through the host" 0 gpu "$other" "$@"
    same "has the same bits" "$("$trireme" digest "peer-$other")" "$("$trireme" digest "$other")"
}
# kill_one TRANSPORT: kills the youngest process of the run lost-TRANSPORT when it has trained ten steps
kill_one() {
    local run=$dir/lost-$1
    soon $$ grep -q '"step": 10,' "$run/metrics.jsonl"
    kill -9 "$(processes "run.dir=$run" | cut -d' ' -f1 | sort -n | tail -1)"
} 2>/dev/null
# The same by NCCL, whose sums of two ranks have the host's bits.
export FAKE_NCCL_DIR=$dir/meet
mkdir meet
by_nccl() {
    local name=$1 other=$2
    shift 2
    code "$name, by NCCL" 0 gpu "nccl-$other" "$@" comm.transport=nccl
    says "uses no memory of the host" out ' by NCCL, 0 through the host'
    same "has the same bits" "$("$trireme" digest "nccl-$other")" "$("$trireme" digest "$other")"
}
# Ranks that cannot connect to each other: a report tells that they are in NCCL's start, and a signal ends it.
unmet() { LD_LIBRARY_PATH=$library FAKE_NCCL_NEVER=1 exec "$trireme" train demo/config.yaml $keys $width run.dir="$dir/unmet" \
    kernels.device=cuda layout.dp=2 comm.transport=nccl; }
in_start() { [ "$("$trireme" hang-report unmet | grep -c "NCCL's start.*not done")" = 2 ]; }
unmet >out 2>err </dev/null &
unmet=$!
code "NCCL's start: the report of a hang" 0 soon $unmet in_start
kill "$unmet"
wait "$unmet"
same "ends at SIGTERM" $? 75
FAKE_NVML_LOG=$dir/nvml FAKE_NVML=uncorrected=2 peers "ZeRO-3" zero layout.dp=2 layout.zero=3
same "NVML is closed as often as it is opened" "$(tr -d s <nvml | wc -c)" "$(tr -d i <nvml | wc -c)"
code "errors of a GPU's memory during a run" 0 grep -q '"event": "health", "rank": 1, "cause": "GPU: memory errors that ECC' \
    peer-zero/metrics.jsonl
mkdir mps
touch mps/control
FAKE_NVML=failed,slow,mig,throttle=0x44 CUDA_MPS_PIPE_DIRECTORY=mps CUDA_VISIBLE_DEVICES=0 LD_LIBRARY_PATH=$library code "doctor" 4 "$trireme" doctor
tr -s ' \n' ' ' <out >told
for text in '41 C, 92 of 700 W, 900 of 1980 MHz, memory 2600 MHz, PCIe 5 x8, 4 NVLinks, ECC on: 0 corrected' \
    'MIG on, throttled: power cap, heat of the hardware' 'GPU 0: rows of memory could not be remapped: replace the GPU' \
    'slowed down now: heat of the hardware; PCIe is narrower' 'MIG is on: a rank gets a slice' \
    'MPS runs: ranks that share a GPU' 'CUDA_VISIBLE_DEVICES=0'; do
    says "tells: $text" told "$text"
done
FAKE_NVML=slice LD_LIBRARY_PATH=$library code "a slice by MIG" 0 "$trireme" doctor
tr -s ' \n' ' ' <out >told
says "is named" told 'MIG-00fafafa-fafa-fafa-fafa-fafafafafafa: a slice by MIG'
CUDA_VISIBLE_DEVICES='' LD_LIBRARY_PATH=$library code "a variable that hides all GPUs" 0 "$trireme" doctor
tr -s ' \n' ' ' <out >told
says "is named" told 'CUDA_VISIBLE_DEVICES="" hides all GPUs'
mkdir broken
: >broken/libcuda.so.1
LD_LIBRARY_PATH=$dir/broken code "a driver that is broken" 0 "$trireme" doctor
tr -s ' \n' ' ' <out >told
says "has the loader's words" told 'cannot be loaded: .*file too short; training will use the CPU'
FAKE_NVML=bare LD_LIBRARY_PATH=$library code "a GPU that tells little" 0 "$trireme" doctor
FAKE_NVML=dead LD_LIBRARY_PATH=$library code "NVML without a driver" 0 "$trireme" doctor
says "is told" out 'errors of memory and throttling of the GPUs'
LD_LIBRARY_PATH=$library code "bench machine" 0 "$trireme" bench machine --size 64 --json
cp out told
code "knows the GPUs" 0 python3 -S -c 'import json; g = json.load(open("told"))["gpus"]
assert g[0]["name"] == "fake GPU 0" and g[0]["power_cap_mw"] == 700000 and g[0]["ecc_uncorrected"] == 0, g'
if [ -n "${CUDA_NIGHT:-}" ]; then
    peers "data parallelism" dp layout.dp=2
    peers "data parallelism in bf16" dp16 layout.dp=2 train.precision=bf16
    peers "tensor parallelism" tp layout.tp=2 layout.sp=true train.precision=bf16
    peers "two stages" pp layout.pp=2
    peers "four ranks" four layout.dp=2 layout.pp=2 layout.zero=1
    by_nccl "data parallelism" dp layout.dp=2
    keys=${keys/train.steps=${CUDA_STEPS:-5}/train.steps=40}
    code "an undisturbed run" 0 gpu whole layout.dp=2
    # A rank is killed in its middle; the other one goes on with a new process.
    # With resilience.mode=restart both are started again.
    for way in auto/live peer/live nccl/live auto/restart peer/restart nccl/restart; do
        transport=${way%/*} mode=${way#*/}
        rm -rf "lost-$transport"
        kill_one "$transport" &
        code "a lost rank, $transport, $mode" 0 gpu "lost-$transport" layout.dp=2 comm.transport=$transport resilience.mode=$mode
        wait $!
        code "is noticed" 0 grep -q '"event": "lost"' "lost-$transport/metrics.jsonl"
        same "and the run has the bits of an undisturbed one" "$("$trireme" digest "lost-$transport")" \
            "$("$trireme" digest whole)"
    done
    keys=${keys/train.steps=40/train.steps=${CUDA_STEPS:-5}}
    # GPU 1 has new errors at each look: its rank loses the place once, as a new process has the same GPU.
    FAKE_NVML=uncorrected=1,only=1 FAKE_CUDA_GPUS=3 code "a GPU whose memory fails" 0 gpu drained layout.dp=2 \
        comm.transport=peer resilience.mode=live resilience.straggler=evict resilience.spares=1
    code "drains its rank" 0 grep -q '"event": "lost", "rank": 1' drained/metrics.jsonl
    same "once" "$(grep -c '"event": "lost"' drained/metrics.jsonl)" 1
    same "and the run has the bits of an undisturbed one" "$("$trireme" digest drained)" "$("$trireme" digest dp)"
fi
# A launcher that shows each rank a GPU of its own (torchrun's variables; Slurm's and mpirun's bindings do the same)
bound() { # NAME KEYS...
    local pids= worst=0 port
    free_port
    for i in 0 1; do
        CUDA_VISIBLE_DEVICES=$i RANK=$i LOCAL_RANK=$i WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            TRIREME_KEY=$dir/key gpu "$@" layout.dp=2 >&"$((i + 7))" 2>&1 &
        pids+=" $!"
    done 7>"$dir/first" 8>"$dir/second"
    for pid in $pids; do wait "$pid" || worst=$?; done
    cat "$dir/first" "$dir/second" >&2
    return $worst
}
export FAKE_CUDA_GPUS=2
if [ -n "${CUDA_NIGHT:-}" ]; then
    head -c 32 /dev/urandom >key && chmod 600 key
    export FAKE_CUDA_MIB=1 # enough for one
    CUDA_VISIBLE_DEVICES=0 code "a GPU that two ranks share" 3 gpu shared layout.dp=2
    says "is too small for both" err 'fit'
    code "a GPU for each rank" 0 bound bound
    same "all of its memory is the rank's" "$(digest bound)" "$(digest dp)"
    unset FAKE_CUDA_MIB
fi
CUDA_VISIBLE_DEVICES=1 code "layout=auto" 0 gpu auto layout=auto train.steps=1
says "takes one rank on the one GPU that it sees" out '^layout +1 rank '
# Slurm's numbers are those of the host's device files.
export FAKE_CUDA_GPUS=4 SLURM_JOB_ID=1
SLURM_STEP_GPUS=1,3 LD_LIBRARY_PATH=$library code "Slurm's GPUs of a step" 0 "$trireme" doctor
tr -s ' \n' ' ' <out >told
says "are found by their numbers" told 'GPU 0: fake GPU 1, .*GPU 1: fake GPU 3, '
SLURM_STEP_GPUS=2 CUDA_VISIBLE_DEVICES=0,1,2,3 code "a task's GPU among those of a variable" 0 gpu none --dry-run
says "is chosen, and this is told" out 'CUDA_VISIBLE_DEVICES=0,1,2,3 shows 4 GPUs, and Slurm gave .* one of them, .*SLURM_STEP_GPUS=2'
SLURM_STEP_GPUS=2 CUDA_VISIBLE_DEVICES=1 code "variables that contradict each other" 3 gpu none --dry-run
says "are refused with the remedy" err 'Slurm gave this process GPU 2 .*CUDA_VISIBLE_DEVICES=1 shows /dev/nvidia1 alone.*unset CUDA_VISIBLE_DEVICES'
FAKE_CUDA_GPUS=2 FAKE_NVML=first=4 SLURM_STEP_GPUS=4,5 CUDA_VISIBLE_DEVICES=0,1 code "a device cgroup, where numbers differ" 0 gpu none --dry-run
says "has nothing to tell" out '^trireme '
same "has nothing to choose" "$(grep -c 'Slurm gave' out)" 0
FAKE_CUDA_GPUS=2 FAKE_NVML=first=4 SLURM_STEP_GPUS=0 code "GPUs that the cgroup hides" 3 gpu none --dry-run
says "are named" err 'GPU 0 .*shows /dev/nvidia4,5 alone'
SLURM_JOB_GPUS=0 SLURM_JOB_NUM_NODES=2 code "the script's GPUs on another node" 0 gpu none --dry-run
same "mean nothing" "$(grep -c 'Slurm gave' out)" 0
if [ -n "${CUDA_NIGHT:-}" ]; then
    # by_slurm NAME GPUS-OF-RANK-0 GPUS-OF-RANK-1 KEYS...: two tasks of srun, whose GPU 3 has errors of its memory
    by_slurm() {
        local name=$1 given=("$2" "$3") pids= worst=0
        shift 3
        free_port
        for i in 0 1; do
            SLURM_STEP_ID=0 SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NODEID=0 SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2 \
                SLURM_JOB_NODELIST=here SLURM_STEP_GPUS=${given[$i]} FAKE_NVML=uncorrected=1,only=3 TRIREME_KEY=$dir/key \
                TRIREME_ADDRESS=127.0.0.1:$port gpu "$name" layout.dp=2 "$@" >"$dir/rank.$i" 2>&1 &
            pids+=" $!"
        done
        for pid in $pids; do wait "$pid" || worst=$?; done
        cat "$dir"/rank.? >&2
        return $worst
    }
    for given in "1 3 1" "1,3 1,3 1" "3 1 0"; do
        for transport in auto peer; do
            # shellcheck disable=SC2086
            set -- $given
            code "tasks with the GPUs $1 and $2, $transport" 0 by_slurm "slurm-$1-$transport" "$1" "$2" comm.transport=$transport
            says "GPU 3 is that of rank $3" "slurm-$1-$transport/metrics.jsonl" "\"health\", \"rank\": $3,"
            same "no other rank has it" "$(grep -o '"health", "rank": [01]' "slurm-$1-$transport/metrics.jsonl" | sort -u | grep -c .)" 1
            same "has the bits of ranks that take GPUs in turn" "$(digest "slurm-$1-$transport")" "$(digest dp)"
        done
    done
fi
unset SLURM_JOB_ID
unset FAKE_CUDA_GPUS
FAKE_CUDA_GPUS=2 FAKE_CUDA_APART=1 code "GPUs that do not reach each other" 3 gpu apart layout.dp=2 comm.transport=peer
says "are refused with the remedy" err 'set comm.transport = auto'
code "peers without GPUs" 3 train nopeers comm.transport=peer
says "is refused" err 'comm.transport = peer is between GPUs'
# pair NAME DIFFERENCE KEYS... -- KEYS...: the same run on the CPU and, with the last keys too, on the GPU
pair() {
    local name=$1 most=$2 both=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do both+=("$1"); shift; done
    [ $# = 0 ] || shift
    number=$((number + 1))
    code "$name on the CPU" 0 train "cpu$number" "${both[@]}"
    code "$name on the GPU" 0 gpu "gpu$number" "${both[@]}" "$@"
    near "$name: losses of the CPU" "cpu$number" "gpu$number" "$most"
}
number=100
experts="model.preset=moe-tiny model.vocab=257 model.expert_ffn_dim=16"
pair "tensor parallelism" 0.02 train.precision=bf16 -- layout.tp=2 layout.sp=true
pair "Muon, context parallelism" 0.0001 optimizer.name=muon -- layout.cp=2
if [ -n "${CUDA_NIGHT:-}" ]; then # too slow for every day
    pair "fp8 in blocks" 0.02 model.kv_heads=1 train.precision=fp8
    pair "Lion" 0.0001 optimizer.name=lion
    code "a base model" 0 train base
    code "as a folder" 0 "$trireme" export base hf
    shape="model.layers=2 model.dim=32 model.heads=2" over="model.preset=null model.from=hf adapter.rank=4"
    keys=${keys/$shape/} width=optimizer.lr=0.01
    for adapter in kind=lora kind=dora "kind=lora adapter.quantize=int8" "kind=dora adapter.quantize=nf4"; do
        pair "an adapter, $adapter" 0.0001 $over adapter.$adapter
    done
    code "answers" 0 python3 "$reward_model" rm
    pair "a reward model" 0.0001 model.preset=null model.from=rm train.objective=reward train.seq=24 data.train=rm/train.jsonl data.valid=0 data.tokenizer=rm
    keys+=" $shape"
    pair "a ring" 0.0001 -- layout.cp=2 layout.cp_ring=true
fi
width=
rows="$experts train.precision=bf16 layout.dp=2 layout.ep=2"
pair "experts on two ranks, in bf16" 0.02 $experts train.precision=bf16 -- layout.dp=2 layout.ep=2
mv "gpu$number" rows
peers "their rows" rows $rows
by_nccl "their rows" rows $rows
if [ -n "${CUDA_NIGHT:-}" ]; then
    pair "experts that move" 0.0001 $experts -- layout.dp=2 layout.ep=2 moe.rebalance=2
    mv "gpu$number" moved
    code "between ranks" 0 grep -q '"event": "rebalance"' moved/metrics.jsonl
    moves="$experts moe.rebalance=2 layout.dp=2 layout.ep=2"
    peers "experts that move" moved $moves
    by_nccl "experts that move" moved $moves
    for layout in "layout.dp=2 layout.ep=2 layout.zero=1" "layout.dp=2 layout.tp=2 layout.ep=4 layout.sp=yes layout.etp=1" \
        "layout.dp=2 layout.ep=2 layout.pp=2"; do
        peers "rows of $layout" "$layout" $experts $layout
        by_nccl "rows of $layout" "$layout" $experts $layout
    done
    pair "experts and tp" 0.0001 $experts -- layout.tp=2
    pair "a bias that balances" 0.0001 $experts model.router.bias_rate=0.01 moe.aux_loss=0.01
    [ ! -d "$golden" ] || LD_LIBRARY_PATH=$library code "latent attention has the steps of its reference" 0 \
        "$trireme" check "$golden/deepseek_v3" kernels.device=cuda train.precision=fp32
fi
width=model.ffn_dim=64

FAKE_CUDA_SEED=7 code "another order of streams and blocks" 0 gpu seed
same "has the same bits" "$("$trireme" digest seed)" "$("$trireme" digest gpu32)"
code "a run that saves in its middle" 0 gpu saved checkpoint.every=3 layout.dp=2 layout.zero=3
code "goes on from there" 0 gpu resumed --resume "$dir/saved/checkpoints/step-0000003"
near "with the losses of an undisturbed run" gpu32 resumed 0.00001
code "a bench of a step" 0 env LD_LIBRARY_PATH="$library" "$trireme" bench step --model gpt2-tiny --batch 2 --seq 16 \
     --steps 1 kernels.device=cuda model.vocab=300 model.layers=1
says "tells the time of each operation" out 'attention'
FAKE_CUDA_MIB=1 code "a GPU that is too small" 3 gpu small train.global_batch=16 train.micro_batch=16
says "is told what would fit" err 'any one of these'
says "and what lies outside the plan" err 'context         614 MiB'
# A codec computes on the host: losses of the CPU's run, and residuals that a checkpoint holds.
code "compressed gradients" 0 gpu codec layout.dp=2 comm.compression=int8
near "have losses near those of one rank" gpu32 codec 0.01
if [ -n "${CUDA_NIGHT:-}" ]; then
    pair "one bit, ZeRO-1" 0.0001 layout.dp=2 layout.zero=1 comm.compression=onebit comm.compression.warmup=1
    code "compressed, GPU to GPU" 0 gpu codec-peer layout.dp=2 comm.compression=int8 comm.transport=peer
    same "has the same bits" "$("$trireme" digest codec-peer)" "$("$trireme" digest codec)"
    topk="layout.dp=2 layout.zero=1 comm.compression=topk comm.compression.warmup=1"
    code "top-k" 0 gpu topk $topk checkpoint.every=3
    code "goes on in its middle" 0 gpu topk-resumed $topk --resume "$dir/topk/checkpoints/step-0000003"
    same "has the digest of an undisturbed run" "$("$trireme" digest topk-resumed)" "$("$trireme" digest topk)"
fi
# one_digest NAME KEYS... -- LAYOUT...: strict order has the bits of one rank in each layout; / between the keys of two
one_digest() {
    local name=$1 like=() layout=()
    number=$((number + 1))
    shift
    while [ "$1" != -- ]; do like+=("$1"); shift; done
    code "$name in strict order" 0 gpu "strict$number" determinism=strict determinism.tp_shards=2 "${like[@]}"
    while [ $# -gt 0 ]; do
        shift
        layout=()
        while [ $# -gt 0 ] && [ "$1" != / ]; do layout+=("$1"); shift; done
        code "${layout[*]}" 0 gpu "strict$number-$#" determinism=strict determinism.tp_shards=2 "${like[@]}" "${layout[@]}"
        same "has the digest of one rank" "$("$trireme" digest "strict$number-$#")" "$("$trireme" digest "strict$number")"
    done
}
one_digest "grouped queries in bf16" model.kv_heads=1 train.precision=bf16 train.steps=2 -- \
    layout.dp=2 layout.zero=3 train.micro_batch=1 / layout.tp=2 layout.sp=true / layout.pp=2 train.micro_batch=2
if [ -n "${CUDA_NIGHT:-}" ]; then
    every=(layout.dp=2 train.micro_batch=2 / layout.dp=2 layout.zero=3 / layout.tp=2 layout.sp=true / layout.pp=2 train.micro_batch=1 / layout.dp=2 comm.transport=peer)
    one_digest "fp32" train.steps=2 -- "${every[@]}"
    near "losses of the CPU" cpu32 "strict$number" 0.00001
    one_digest "GPT-2 in bf16 with dropout" model.preset=gpt2-tiny model.vocab=257 train.precision=bf16 model.dropout=0.1 train.steps=2 -- "${every[@]}"
    one_digest "Muon" optimizer.name=muon train.precision=bf16 train.steps=2 -- "${every[@]}"
    one_digest "fp8" train.precision=fp8 precision.fp8=tensor train.steps=2 -- "${every[@]}"
    one_digest "sequences of odd lengths" train.seq=15 train.precision=bf16 train.steps=2 -- layout.dp=2 / train.micro_batch=1 / layout.tp=2
    one_digest "shards of a sequence" determinism.cp_shards=2 model.kv_heads=1 train.precision=bf16 train.seq=80 train.global_batch=2 \
        train.steps=2 -- layout.cp=2 / layout.dp=2 / layout.dp=2 layout.cp=2 layout.zero=3
    FAKE_CUDA_SEED=9 one_digest "another order of streams and blocks" model.kv_heads=1 train.precision=bf16 train.steps=2 -- layout.dp=2
    width=
    one_digest "experts" $experts train.precision=bf16 train.global_batch=8 determinism.etp_shards=2 train.steps=2 -- layout.dp=2 \
        / layout.dp=2 layout.ep=2 layout.zero=3 train.micro_batch=1 / layout.tp=2 / layout.pp=2
    width=model.ffn_dim=64
fi
[ $failures = 0 ]
