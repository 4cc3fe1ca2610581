"""A tokenizer of letters for small models: letter i is the token i."""
import json


def letter(i):
    return chr(0x4E00 + i)


def write_tokenizer(folder, count):
    with open(folder + "/tokenizer.json", "w") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
                   "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                             "vocab": {letter(i): i for i in range(count)}, "merges": []}}, f)
