# For tests that walk the folder of reference models. Sourced.
#
# golden_models FOLDER: the reference models in it that this program trains, one path per line. The
# folder also has models of architectures that are not supported yet; the program must refuse each of
# these by name (C050, C060), and it is named here. Fewer than GOLDEN_KNOWN that are trained is an error.
GOLDEN_KNOWN=19
golden_models() {
    local folder refusal known=0
    for folder in "$1"/*/; do
        folder=${folder%/}
        refusal=$("${TRIREME:?}" check "$folder" --json 2>&1 >/dev/null)
        if [[ $refusal =~ error\[(C050|C060)\] ]]; then
            echo "left out: ${folder##*/}: ${refusal%%$'\n'*}" >&2
            continue
        fi
        known=$((known + 1))
        echo "$folder"
    done
    [ "$known" -ge "$GOLDEN_KNOWN" ] && return
    echo "only $known reference models are trained, $GOLDEN_KNOWN or more expected" >&2
    return 1
}
