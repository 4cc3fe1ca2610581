#!/bin/bash
# An installed program needs nothing of the source tree: it brings its text, presets, man page and
# completion, and trains.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$(dirname "$TRIREME")" --prefix "$folder/usr" >"$folder/log"
bash -n "$folder/usr/share/bash-completion/completions/trireme"
grep -q '^\.TH' "$folder/usr/share/man/man1/trireme.1"
grep -q '^#compdef' "$folder/usr/share/zsh/site-functions/_trireme"

# Every command of the help stands in all three, with its flags: they come from one table.
program=$folder/usr/bin/trireme
commands=$("$program" help | sed -n '/^Commands$/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 13 ]
for command in $commands; do
    grep -q "^\.SS.*$command" "$folder/usr/share/man/man1/trireme.1"
    grep -q "^        $command) words=" "$folder/usr/share/bash-completion/completions/trireme"
    grep -q "^    $command) compadd" "$folder/usr/share/zsh/site-functions/_trireme"
    for flag in $("$program" help "$command" | sed -n '/^Flags/,$s/^  --\([a-z0-9-]*\).*/\1/p'); do
        grep -q "^        $command) .*--$flag" "$folder/usr/share/bash-completion/completions/trireme"
        grep -q -- "$(echo "$flag" | sed 's/-/\\\\-/g')" "$folder/usr/share/man/man1/trireme.1"
    done
done

cd "$folder"
usr/bin/trireme init demo
usr/bin/trireme train demo/config.yaml train.steps=3 schedule.warmup=1 train.global_batch=2 train.seq=32
usr/bin/trireme generate demo/run --prompt 'The ' --max-tokens 5
[ "$(usr/bin/trireme digest demo/run | wc -l)" = 1 ]

# Whoever asks for what is not there is told so, with the documented exit code.
status=0
usr/bin/trireme train demo/config.yaml train.stepz=2 || status=$?
[ "$status" = 3 ]
status=0
usr/bin/trireme no-such-command || status=$?
[ "$status" = 2 ]
