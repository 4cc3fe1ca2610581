#!/usr/bin/env python3
"""Times causal attention in PyTorch, forward and backward, as `trireme bench attention` does.

scaled_dot_product_attention on (batch, heads, seq, head size), grouped keys as they are. A forward
pass is timed with what its backward pass needs being kept; a backward pass is that of one sum.

    pytorch_attention.py --seq 4096 --heads 12 --kv-heads 12 --head-dim 64 --dtype fp32 --threads 2

Prints one line of JSON with the rows of `trireme bench attention --json`: name, flops, median_s,
min_s, max_s, flops_per_s. FLOPs count half of the square: two products forward, four backward.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def timed(call, repeats):
    """Seconds of each call after one that is not counted; 0: 3 to 20, until two seconds have gone."""
    call()
    seconds = []
    while len(seconds) < (repeats or 20):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
        if not repeats and len(seconds) >= 3 and sum(seconds) >= 2.0:
            break
    return seconds


def row(name, flops, seconds):
    median = statistics.median(seconds)
    return {"name": name, "flops": flops, "median_s": median, "min_s": min(seconds),
            "max_s": max(seconds), "count": len(seconds), "flops_per_s": flops / median}


def measure(args, seq):
    shape = (args.batch, args.heads, seq, args.head_dim)
    kv_heads = args.kv_heads or args.heads
    kv_shape = (args.batch, kv_heads, seq, args.head_dim)
    q, k, v = (torch.randn(s, dtype=TYPES[args.dtype], requires_grad=True)
               for s in (shape, kv_shape, kv_shape))
    dy = torch.randn(shape, dtype=TYPES[args.dtype])

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                              enable_gqa=kv_heads != args.heads)

    half = 2.0 * args.batch * args.heads * args.head_dim * seq * seq / 2.0
    yield row(f"forward {args.batch} x {seq}", 2.0 * half, timed(forward, args.repeats))
    y = forward()
    yield row(f"backward {args.batch} x {seq}", 4.0 * half, timed(
        lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True), args.repeats))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--kv-heads", type=int, default=0, help="0: as many")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", choices=TYPES, default="fp32")
    parser.add_argument("--threads", type=int, default=0, help="0: as PyTorch likes")
    parser.add_argument("--repeats", type=int, default=0, help="0: 3 to 20, about two seconds")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    rows = [r for seq in args.seq for r in measure(args, seq)]
    print(json.dumps({"bench": "attention", "dtype": args.dtype, "heads": args.heads,
                      "kv_heads": args.kv_heads or args.heads, "head_dim": args.head_dim,
                      "threads": torch.get_num_threads(), "torch": torch.__version__,
                      "rows": rows}))


main()
