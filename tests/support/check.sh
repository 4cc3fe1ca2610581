# For tests/*_test.sh that print what went wrong alone. Sourced; works in a folder of its own, which goes
# at the end, and counts $failures: end with [ $failures = 0 ].
trireme=${TRIREME:?the program to test}
scratch=$(mktemp -d) && cd "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

# check EXIT_CODE WHAT... -- COMMAND...: the program's command exits so, and each WHAT stands in what it
# prints. check_any: of any command.
check_any() {
    local code=$1 found wanted=()
    shift
    while [ "$1" != -- ]; do wanted+=("$1"); shift; done
    shift
    "$@" >out 2>&1
    found=$?
    if [ "$found" -ne "$code" ]; then
        echo "$*: exit $found, $code expected"; cat out
        failures=$((failures + 1))
    fi
    for what in ${wanted[@]+"${wanted[@]}"}; do
        grep -qF -- "$what" out && continue
        echo "$*: \"$what\" is not in"; cat out
        failures=$((failures + 1))
    done
}
check() {
    local head=()
    while [ "$1" != -- ]; do head+=("$1"); shift; done
    shift
    check_any "${head[@]}" -- "$trireme" "$@"
}
same() { # same NAME A B
    [ "$2" = "$3" ] && return
    echo "$1: \"$2\" is not \"$3\""
    failures=$((failures + 1))
}
