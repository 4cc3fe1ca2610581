#!/usr/bin/env python3
"""Serves a model with this build and with llama.cpp's server and times both: clients that ask one after the other.

    pip download --no-binary llama-cpp-python --no-deps llama-cpp-python      # its vendor/llama.cpp is llama.cpp's source
    cmake -B out -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF && cmake --build out --target llama-server
    bench/peers/llama_server.py MODEL out/bin/llama-server [--dtype bf16] [--threads 2] [--clients 8] [--rounds 3]
    bench/peers/llama_server.py MODEL out/bin/llama-server --dtype fp32 --greedy
    bench/peers/llama_server.py MODEL xllamacpp ...       # the server inside the package xllamacpp of PyPI

MODEL is a Hugging Face folder or a run; `trireme export --format gguf` writes the file that llama.cpp loads. Both
servers hold the model in the same type and answer the same prompts with temperature 0; they take turns, round by round.
With --random DATA the folder MODEL is written first: random weights of the shape of SmolLM-135M, and GPT-2's vocabulary of
gpt2_encoder.json and gpt2_vocab.bpe in DATA. --greedy compares the texts instead of the time.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse

from shared import ask, begin_serve, prompt_of

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def begin_ours(trireme, model, options):
    p, address = begin_serve(trireme, model, "--key", "none", "--name", "m", "--batch", str(options.clients), "--precision",
                             options.dtype, "--threads", str(options.threads), "--context", str(options.context),
                             "--template", "none")
    return p, urllib.parse.urlsplit(address).port


IN_PYTHON = """
import sys, time, xllamacpp
model, port, clients, context, threads = sys.argv[1], *map(int, sys.argv[2:])
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_parallel, p.n_ctx, p.use_jinja = model, port, clients, clients * context, False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.kv_unified, p.n_gpu_layers = False, 0
server = xllamacpp.Server(p)
while True: time.sleep(1)
"""


def begin_theirs(server, gguf, options):
    port = free_port()
    if server == "xllamacpp":
        words = [sys.executable, "-c", IN_PYTHON, gguf, *map(str, (port, options.clients, options.context, options.threads))]
    else:
        words = [server, "-m", gguf, "--port", str(port), "--host", "127.0.0.1", "-np", str(options.clients), "-c",
                 str(options.context * options.clients), "-t", str(options.threads), "-tb", str(options.threads), "--no-webui"]
    p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return p, port
        except OSError:
            pass
        if p.poll() is not None:
            raise SystemExit(f"{server} ended with code {p.returncode}")
        time.sleep(0.2)
    raise SystemExit(f"{server} did not listen")


def round_of(port, options, more):
    def client(k):
        tokens = 0
        for n in range(options.requests):
            body = {"model": "m", "prompt": prompt_of(k, n, options.words), "max_tokens": options.tokens, "temperature": 0, **more}
            tokens += ask(port, body)["usage"]["completion_tokens"]
        return tokens

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
        tokens = sum(pool.map(client, range(options.clients)))
    return tokens / (time.monotonic() - begin)


def random_model(data, folder):
    """Random bf16 weights of SmolLM-135M's shape and the tokenizer of GPT-2."""
    import numpy as np
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads((data / "gpt2_encoder.json").read_text())
    merges = (data / "gpt2_vocab.bpe").read_text().split("\n")[1:]
    end = {"id": vocabulary["<|endoftext|>"], "content": "<|endoftext|>", "special": True, "single_word": False,
           "lstrip": False, "rstrip": False, "normalized": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": [m for m in merges if m]}}))
    dim, ffn, layers, heads, kv, vocab = 576, 1536, 30, 9, 3, len(vocabulary)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab,
              "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
              "hidden_act": "silu", "torch_dtype": "bfloat16", "head_dim": dim // heads, "bos_token_id": vocab - 1, "eos_token_id": vocab - 1,
              "attention_bias": False, "mlp_bias": False}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (vocab, dim), "model.norm.weight": (dim,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (dim,), at + "post_attention_layernorm.weight": (dim,),
                   at + "self_attn.q_proj.weight": (dim, dim), at + "self_attn.k_proj.weight": (kv * 64, dim),
                   at + "self_attn.v_proj.weight": (kv * 64, dim), at + "self_attn.o_proj.weight": (dim, dim),
                   at + "mlp.gate_proj.weight": (ffn, dim), at + "mlp.up_proj.weight": (ffn, dim),
                   at + "mlp.down_proj.weight": (dim, ffn)}
    rng, header, at = np.random.default_rng(1), {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * count]}
        at += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            values = np.ones(shape, np.float32) if len(shape) == 1 else rng.standard_normal(shape, np.float32) * 0.04
            f.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("server")
    parser.add_argument("--trireme", default="build/trireme")
    parser.add_argument("--random", type=pathlib.Path)
    parser.add_argument("--dtype", default="bf16", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--greedy", action="store_true")
    for name, value in {"threads": 2, "clients": 8, "rounds": 3, "requests": 2, "tokens": 64, "words": 24, "context": 256}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    trireme, model = os.path.realpath(options.trireme), options.model
    if options.random is not None and not os.path.exists(f"{model}/model.safetensors"):
        random_model(options.random, pathlib.Path(model))
    gguf = f"{model.rstrip('/')}-{options.dtype}.gguf"
    if not os.path.exists(gguf):
        subprocess.run([trireme, "export", model, gguf, "--format", "gguf", "--dtype", options.dtype], check=True)
    servers = []
    try:
        servers.append(begin_ours(trireme, model, options))
        servers.append(begin_theirs(options.server, gguf, options))
        more = [{}, {"ignore_eos": True, "cache_prompt": False}]
        ports = [port for _, port in servers]
        if options.greedy:
            same = 0
            for n in range(16):
                body = {"model": "m", "prompt": prompt_of(0, n, 8), "max_tokens": options.tokens, "temperature": 0,
                        "stop": ["<|im_end|>", "<|endoftext|>"]}  # llama.cpp ends a text at such tokens by itself
                texts = [ask(port, body)["choices"][0]["text"] for port in ports]
                same += texts[0] == texts[1]
                if texts[0] != texts[1]:
                    print(f"prompt {n}: {texts[0]!r} and {texts[1]!r}")
            print(f"{same} of 16 texts of at most {options.tokens} tokens are equal")
            sys.exit(same != 16)
        for port, m in zip(ports, more):
            ask(port, {"model": "m", "prompt": "warm", "max_tokens": 8, "temperature": 0, **m})
        rates = [[], []]
        for _ in range(options.rounds):
            for i in (0, 1):
                rates[i].append(round_of(ports[i], options, more[i]))
            print(f"this build {rates[0][-1]:.1f} tokens/s, llama.cpp {rates[1][-1]:.1f}", flush=True)
        ratios = [a / b for a, b in zip(*rates)]
        print(f"medians: {statistics.median(rates[0]):.1f} and {statistics.median(rates[1]):.1f} tokens/s, "
              f"ratio {statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})")
    finally:
        for p, _ in servers:
            p.send_signal(signal.SIGTERM)
            p.wait()


main()
