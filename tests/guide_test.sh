#!/bin/bash
# The guide: every command of a ```sh block runs, page by page in a folder of its own, and every picture is what
# the program draws. Its sums are src/cli/guide_test.c's. GUIDE_DRAW=1 draws the pictures anew.
set -u -o pipefail
. tests/support/named.sh
here=$PWD
small="model.layers=8 model.dim=32 model.heads=4 model.ffn_dim=64 model.context=64 train.seq=32 train.micro_batch=1"
commands=0
for page in docs/guide/*.md; do
    mkdir -p "$dir/$(basename "$page" .md)"
    while IFS= read -r line; do
        commands=$((commands + 1))
        code "$(basename "$page" .md): $line" 0 bash -c "cd '$dir/$(basename "$page" .md)' && $(realpath "$trireme") ${line#trireme }"
    done < <(awk '/^```/ { inside = $0 == "```sh"; next } inside && NF' "$page")
done
if [ "$commands" -ge 6 ]; then passed "there are commands"; else failed "there are commands"; fi

# alike A B: the timeline to the letter; below it the same words, and bytes within a tenth: how the plan packs them
# gets better from time to time, and a guide need not be drawn anew for that.
alike() {
    python3 - "$1" "$2" <<'END'
import re, sys
old, new = (re.split("Ranks and bytes|>Memory<", open(name, encoding="utf-8").read()) for name in sys.argv[1:3])
words = [re.findall(r"<text[^>]*>([^<]*)</text>", part[1]) for part in (old, new)]
def same(a, b):
    x, y = (re.findall(r"([0-9.]+) [KMGT]?i?B", t) for t in (a, b))
    if not x:
        return a == b
    return len(x) == len(y) and all(abs(float(u) - float(v)) <= 0.1 * float(v) for u, v in zip(x, y))
wrong = [] if old[0] == new[0] else ["the timelines differ"]
if len(words[0]) != len(words[1]):
    wrong.append("they do not have as many words")
wrong += [f"{a} / {b}" for a, b in zip(*words) if not same(a, b)]
print("\n".join(wrong))
sys.exit(bool(wrong))
END
}
"$trireme" init "$dir/demo" >/dev/null
pictures=0
while read -r name flags; do
    pictures=$((pictures + 1))
    flags=${flags//\$small/$small}
    [[ $flags == *--cluster* ]] || flags="$dir/demo/config.yaml kernels.threads=1 kernels.level=scalar $flags"
    # shellcheck disable=SC2086
    code "draws $name" 0 "$trireme" explain $flags --svg "$dir/$name"
    [ "${GUIDE_DRAW:-0}" = 0 ] || cp "$dir/$name" "$here/docs/guide/$name"
    if alike "$dir/$name" "docs/guide/$name" >"$dir/out"; then passed "$name is as drawn"; else failed "$name is as drawn: GUIDE_DRAW=1 draws it anew"; fi
    if grep -q "($name)" docs/guide/*.md; then passed "$name is shown"; else failed "$name is shown"; fi
done < <(sed -n 's/^<!-- picture: \(.*\) -->$/\1/p' docs/guide/*.md)
if [ "$pictures" -ge 3 ]; then passed "there are pictures"; else failed "there are pictures"; fi
# Links between pages.
for link in $(grep -oh '](\([a-z0-9.-]*\))' docs/guide/*.md | tr -d '()]'); do
    if [ -e "docs/guide/$link" ]; then passed "$link"; else failed "$link is linked"; fi
done
[ $failures = 0 ]
