# For tests/*_test.sh that print a line for each thing they look at. Sourced; makes the folder $dir, which
# goes at the end, and counts $failures: end with [ $failures = 0 ].
[ -x "${TRIREME:?the program to test}" ] || { echo "skipped: $TRIREME is not built"; exit 77; }
trireme=$TRIREME
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
passed() { echo "[       OK ] $1"; }
failed() {
    echo "[  FAILED  ] $1"
    sed 's/^/    /' "$dir/out" "$dir/err" 2>/dev/null | cut -c1-300 | tail -20
    failures=$((failures + 1))
}
# code NAME EXPECTED COMMAND...: runs it, output in $dir/out, errors in $dir/err
code() {
    local name=$1 expected=$2 got=0
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
    if [ "$got" = "$expected" ]; then passed "$name"; else echo "exit $got, expected $expected" >>"$dir/err"; failed "$name"; fi
}
# says NAME FILE PATTERN
says() { if grep -qE -- "$3" "$dir/$2"; then passed "$1"; else failed "$1"; fi; }
# same NAME A B: and not both empty
same() { if [ -n "$2" ] && [ "$2" = "$3" ]; then passed "$1"; else echo "\"$2\" and \"$3\"" >>"$dir/err"; failed "$1"; fi; }
# refuses CODE PATTERN COMMAND...: it ends with this code, and a message of this pattern says why
refuses() {
    code "refuses: $2" "$1" "${@:3}"
    says "refuses: $2: says why" err "$2"
}
# small_run: writes text.txt, and prints the configuration of a run of two steps on it
small_run() {
    for _ in $(seq 300); do echo "the oar and the ship went out by night and the crew sang"; done >text.txt
    cat <<'Y'
model: {preset: tiny, layers: 1, dim: 32, heads: 2}
data: {train: text.txt, tokenizer: bytes, valid: 0}
train: {steps: 2, seq: 32, global_batch: 4}
eval: {every: 0}
checkpoint: {every: 0}
kernels: {threads: 1}
Y
}
# digest RUN, arena RUN: the digest of a run in $dir, and the bytes of its arena
digest() { "$trireme" digest "$dir/$1" 2>&1; }
arena() { sed -n 's/.*"arena_bytes": \([0-9]*\).*/\1/p' "$dir/$1/run.json" | head -1; }
# same_digests WANTED NAME KEYS LAYOUT...: runs of the script's train() with these keys (split at blanks) and each
# layout, called NAME1, NAME2, ..., have the digest. (Its own names are not those of scripts: train() would see them.)
same_digests() {
    local wanted_=$1 name_=$2 keys_=$3 number_=0 layout_
    shift 3
    for layout_; do
        number_=$((number_ + 1))
        code "$layout_" 0 train "$name_$number_" $keys_ $layout_
        same "$layout_: the same digest" "$(digest "$name_$number_")" "$wanted_"
    done
}
# listening LOG PID: waits for the line of a server that says its port, which becomes $port. LOG must be empty before it starts.
listening() {
    for _ in $(seq 1800); do
        port=$(sed -n 's|^listens .*:\([0-9]*\)/v1.*|\1|p' "$1" 2>/dev/null)
        [ -z "$port" ] || return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
# processes TEXT: "number parent command" of each whose command holds it; from /proc, for not every machine has pgrep
processes() {
    local at words stat
    for at in /proc/[0-9]*; do
        { mapfile -d '' -t words <"$at/cmdline"; } 2>/dev/null || continue
        [[ "${words[*]} " == *"$1"* ]] && stat=$(cat "$at/stat" 2>/dev/null) || continue
        stat=${stat##*) } # after the name, which may hold anything: state, parent
        stat=${stat#* }
        echo "${at#/proc/} ${stat%% *} ${words[*]}"
    done
}
# soon PID COMMAND...: waits until it succeeds; not longer than the process runs, nor two minutes: a busy machine takes its time
soon() {
    local pid_=$1
    shift
    for _ in $(seq 6000); do
        "$@" 2>/dev/null && return 0
        kill -0 "$pid_" 2>/dev/null || { "$@" 2>/dev/null; return; }
        sleep 0.02
    done
    return 1
}
# signal_in MASK PID NUMBER: of the process's masks of signals, SigCgt (it has a handler) or ShdPnd (not delivered yet) has it
signal_in() { ((16#$(sed -n "s/^$1:[[:space:]]*//p" "/proc/$2/status") >> ($3 - 1) & 1)); }
# free_port: another $port each time, at which nothing of this machine listens. Each script has ten ports of its own, below
# those that the system gives to connections.
free_port() {
    [ -n "${port_:-}" ] || port_=$((10000 + $$ % 2200 * 10))
    while grep -qi ":$(printf %04x "$port_") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do port_=$((port_ + 1)); done
    port=$port_
    port_=$((port_ + 1))
}
