#!/usr/bin/env bash
# tokenizer from outside: texts to ids and back, as plain text and as lines, and what it refuses.
set -u
. tests/support/check.sh

cat >tokenizer.json <<'END'
{"added_tokens": [{"id": 9, "content": "</s>", "special": true, "normalized": false}],
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
   {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
 "pre_tokenizer": null,
 "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
   {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
 "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
   "vocab": {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "ab": 4, "▁ab": 5, "<0x0A>": 6, "<": 7, "/": 8},
   "merges": [["a", "b"], ["▁", "ab"]]}}
END
printf 'ab a\n' >text.txt
printf '{"text": "ab a"}\n\n{"n": 1, "text": "a</s>"}\n' >lines.jsonl

check 0 '5 1 2 6' -- tokenizer encode -t tokenizer.json <text.txt
"$trireme" tokenizer encode -t . <text.txt | "$trireme" tokenizer decode -t tokenizer.json >out
cmp -s out text.txt || same 'decoded text' "$(cat text.txt)" "$(cat out)"
same lines '{"ids": [5, 1, 2]}
{"ids": [1, 2, 9]}' "$("$trireme" tokenizer encode -t tokenizer.json --jsonl --special <lines.jsonl)"
same 'special tokens as text' '{"ids": [1, 2, 7, 8, 0, 0]}' \
    "$(tail -1 lines.jsonl | "$trireme" tokenizer encode -t tokenizer.json --jsonl)"
same 'texts of lines' '{"text": "ab a\u000a"}
{"text": "ab"}' "$(printf '{"ids": [5, 1, 2, 6]}\n{"ids": [5, 9]}\n' |
    "$trireme" tokenizer decode -t tokenizer.json --jsonl --skip-special)"
check 0 'method       pipeline' 'vocabulary   10' 'end of text  9' -- tokenizer info -t tokenizer.json
check 0 'method       bytes' -- tokenizer info --tokenizer bytes

check 2 'needs --tokenizer' -- tokenizer info
check 2 'did you mean "tokenizer encode"' -- tokenizer encod -t bytes
check 2 'takes no --special' -- tokenizer decode -t bytes --special
check 2 'takes no --jsonl' -- tokenizer info -t bytes --jsonl
printf '5 10' >ids; check 5 'standard input:1: an id that is no number from 0 to 9' -- tokenizer decode -t tokenizer.json <ids
printf '5 x' >ids; check 5 'standard input:1' -- tokenizer decode -t tokenizer.json <ids
printf '{"text": 7}\n' >ids; check 5 'standard input:1: no text' -- tokenizer encode -t tokenizer.json --jsonl <ids
sed 's/"pre_tokenizer": null/"post_processor": {"type": "BertProcessing", "sep": ["<\/s>", 9], "cls": ["a", 2]}/' \
    tokenizer.json >around.json
same 'tokens around a text' '{"ids": [2, 5, 1, 2, 9]}' \
    "$(head -1 lines.jsonl | "$trireme" tokenizer encode -t around.json --jsonl --add-special)"
check 0 '5 1 2 6' -- tokenizer encode -t around.json <text.txt
sed 's/"pre_tokenizer": null/"truncation": {"max_length": 2}, "padding": {"strategy": {"Fixed": 4}, "pad_id": 1}/' \
    tokenizer.json >limits.json
check 0 '5 1 2 6' 'asks for truncation to 2 tokens and padding to 4 tokens, which only' -- tokenizer encode -t limits.json <text.txt
check 0 '5 1 1 1' -- tokenizer encode -t limits.json --truncate --pad <text.txt
check 0 'asks for     truncation to 2' -- tokenizer info -t limits.json
check 2 '--pad has no effect' -- tokenizer encode -t tokenizer.json --pad <text.txt
check 2 'takes no --truncate' -- tokenizer decode -t limits.json --truncate <text.txt
check 2 'takes no --add-special' -- tokenizer decode -t bytes --add-special
sed -i 's/"type": "Fuse"/"type": "Fuze"/' tokenizer.json
check 3 'decoder `Fuze` is not supported' -- tokenizer encode -t tokenizer.json <text.txt

printf 'aab aab ab\n' >text.txt
check 0 'made   new/tokenizer.json   261 tokens, 4 merges from 4 different words' 'asked for' \
    -- tokenizer train -o new --vocab 300 text.txt
check 0 '258 260 259 199' -- tokenizer encode -t new <text.txt
printf 'aab' >text.txt; same 'a trained word' 258 "$("$trireme" tokenizer encode -t new/tokenizer.json <text.txt)"
printf 'aab aab ab' >text.txt
check 0 'made   uni/tokenizer.json' 'from 3 different words' 'asked for' \
    -- tokenizer train --model unigram -o uni --vocab 300 text.txt
"$trireme" tokenizer encode -t uni <text.txt | "$trireme" tokenizer decode -t uni >out
cmp -s out text.txt || same 'text of a Unigram' "$(cat text.txt)" "$(cat out)"
check 2 '32 pieces' -- tokenizer train --model unigram -o uni --vocab 280 text.txt
check 0 'was forgotten' -- tokenizer train -o new2 --max-words 2 --vocab 300 text.txt
check 2 'needs --out' -- tokenizer train text.txt
check 2 'needs texts' -- tokenizer train -o new
check 2 'expected 258' -- tokenizer train -o new --vocab 257 --special-token '<a>' --special-token '<b>' text.txt
check 2 'takes no --jsonl' -- tokenizer train -o new --jsonl text.txt
check 2 'takes no --out' -- tokenizer encode -t new -o new
check 2 'reads standard input' -- tokenizer encode -t new text.txt
check 0 '(400 tokens, trained on text.txt)' -- init mine --tokenizer bpe:400
check 0 '(400 tokens, trained on text.txt)' -- init yours --tokenizer unigram:400
grep -q '^  tokenizer: tokenizer.json ' mine/config.yaml || same 'the key of the tokenizer' set unset
check 2 'such as bpe:8k' -- init other --tokenizer bpe:
[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]
