#!/bin/bash
# share/slurm/train.sbatch with programs in place of Slurm's: which exit codes put the job back into the queue, that
# TERM reaches the step, and that a node which fails its check starts no rank.
set -u
. tests/support/named.sh
script=$PWD/share/slurm/train.sbatch
cd "$dir" || exit 1
mkdir bin
cat >bin/srun <<'END'
#!/bin/bash
case "$*" in *" doctor") exit "$DOCTOR" ;; esac
trap 'echo term >>steps; exit 75' TERM
echo "$*" >>steps
[ "$CODE" = wait ] || exit "$CODE"
for _ in $(seq 4000); do sleep 0.05; done
END
printf '#!/bin/bash\necho "$*" >>requeued\n' >bin/scontrol
printf '#!/bin/bash\nexit 1\n' >bin/scancel # the script then signals the step itself
chmod +x bin/*
job() { # CODE DOCTOR RESTARTS: starts the script
    rm -f requeued steps
    env PATH="$dir/bin:$PATH" CODE="$1" DOCTOR="$2" SLURM_RESTART_COUNT="$3" SLURM_JOB_ID=9 TRIREME_KEY="$dir/key" \
        bash "$script" run.yaml layout.dp=2
}
again() { [ -s requeued ] && echo yes || echo no; }

code "a run that ends" 0 job 0 0 0
same "is not queued again" "$(again)" no
says "its keys arrive" steps 'trireme train run.yaml layout.dp=2'
code "a saved run" 75 job 75 0 99
same "is queued again, however often" "$(again)" yes
same "with a key of mode 600" "$(stat -c %a key)" 600
code "a lost rank" 7 job 7 0 4
same "is queued again" "$(again)" yes
code "the sixth one in a row" 7 job 7 0 5
same "is not" "$(again)" no
code "an error of the configuration" 3 job 3 0 0
same "is not queued again" "$(again)" no
code "a node that fails its check" 4 job 0 1 0
same "starts no rank" "$([ -e steps ] && echo yes || echo no)" no

job wait 0 0 >out 2>err &
script_pid=$!
soon $script_pid test -s steps
inner=$(processes train.sbatch | awk -v shell=$script_pid '$1 == shell || $2 == shell { print $1 }')
soon $script_pid signal_in SigCgt "${inner:=$script_pid}" 15
kill -TERM "$inner"
wait $script_pid
same "TERM: exit code" $? 75
says "TERM reaches the step" steps '^term'
same "and the job is queued again" "$(again)" yes
[ $failures = 0 ]
