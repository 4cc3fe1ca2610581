"""Pieces of several scripts of this folder: `trireme serve` as a process, and model and data for TRL."""
import http.client
import json
import re
import subprocess

WORDS = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they".split()


def begin_serve(trireme, model, *flags):
    """The process and its address, such as http://127.0.0.1:8000/v1; the system chooses the port."""
    p = subprocess.Popen([trireme, "serve", model, "--port", "0", *flags], stdout=subprocess.PIPE, text=True)
    for line in p.stdout:
        found = re.match(r"listens\s+(\S+)", line)
        if found:
            return p, found[1]
    raise SystemExit("trireme serve did not listen")


def ask(port, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    text = r.read()
    c.close()
    if r.status != 200:
        raise SystemExit(f"port {port}: {r.status} {text[:300]!r}")
    return json.loads(text)


def prompt_of(client, number, words):
    return " ".join(WORDS[(client * 7 + number * 3 + i * i) % len(WORDS)] for i in range(words))


def trl_model(folder, tokenizer):
    """The model of an exported folder in fp32 and the tokenizer of a file, for one thread."""
    import torch
    import transformers
    torch.set_num_threads(1)
    return (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), eos_token="<|endoftext|>",
                                                 pad_token="<|endoftext|>"))


def trl_rows(path):
    import datasets
    return datasets.Dataset.from_list([json.loads(line) for line in path.open()])
