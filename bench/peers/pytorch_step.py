#!/usr/bin/env python3
"""Times whole training steps in PyTorch, the same work as `trireme bench step`.

A step is: forward, cross-entropy over every token, backward, clip of the gradient norm to 1, AdamW
(fused). The models are written here in plain PyTorch with scaled_dot_product_attention. Weights and
optimizer state are float32; bf16 means autocast, as one would train with PyTorch.

    pytorch_step.py --model gpt2-124m --batch 4 --seq 1024 --precision bf16 --mode compile --threads 2

Prints one line of JSON: tokens_per_s, step_s (median), cpu_s (of all threads in a step, median),
peak_rss_bytes, and what was run.
"""
import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Gpt2Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 small: learned positions, LayerNorm, tanh GELU, biases, tied head."""

    def __init__(self, vocab=50257, dim=768, heads=12, layers=12, context=1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Gpt2Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.q = nn.Linear(dim, heads * self.head, bias=False)
        self.kv = nn.Linear(dim, 2 * kv_heads * self.head, bias=False)
        self.out = nn.Linear(heads * self.head, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        h = self.norm1(x)
        q = rotate(self.q(h).view(B, T, self.heads, self.head).transpose(1, 2), cos, sin)
        k, v = self.kv(h).view(B, T, 2 * self.kv_heads, self.head).transpose(1, 2).chunk(2, dim=1)
        y = F.scaled_dot_product_attention(q, rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norm2(x))

    def mlp(self, h):
        gate, up = self.gate_up(h).chunk(2, dim=2)
        return self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Llama(nn.Module):
    """A small Llama (the sizes of SmolLM-135M): RMSNorm, rotary positions, SwiGLU, grouped heads."""

    def __init__(self, vocab=49152, dim=576, heads=9, kv_heads=3, layers=30, ffn=1536):
        super().__init__()
        self.head = dim // heads
        self.tokens = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=1e-5)

    def forward(self, ids):
        half = self.head // 2
        inverse = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(ids.shape[1], dtype=torch.float32)[:, None] * inverse
        cos, sin = angles.cos(), angles.sin()
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.out())

    def out(self):
        return self.tokens.weight


class Experts(nn.Module):
    """Experts of which each token uses the best `top`; a product for each expert with its tokens."""

    def __init__(self, dim, ffn, experts, top):
        super().__init__()
        self.top = top
        self.router = nn.Linear(dim, experts, bias=False)
        self.gate_up = nn.ModuleList(nn.Linear(dim, 2 * ffn, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(ffn, dim, bias=False) for _ in range(experts))

    def forward(self, x):
        rows = x.flatten(0, 1)
        weights, ids = self.router(rows).float().softmax(-1).topk(self.top)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype).flatten()
        order = ids.flatten().argsort(stable=True)
        counts = ids.flatten().bincount(minlength=len(self.down)).tolist()
        parts = []
        for own, gate_up, down in zip(rows[order // self.top].split(counts), self.gate_up, self.down):
            gate, up = gate_up(own).chunk(2, dim=1)
            parts.append(down(F.silu(gate) * up))
        y = torch.cat(parts) * weights[order, None]
        return torch.zeros_like(rows).index_add(0, order // self.top, y.to(x.dtype)).view_as(x)


class MixtralBlock(LlamaBlock):
    def __init__(self, dim, heads, kv_heads, ffn, experts, top):
        super().__init__(dim, heads, kv_heads, 1)
        self.gate_up, self.down = None, None
        self.experts = Experts(dim, ffn, experts, top)

    def mlp(self, h):
        return self.experts(h)


class Mixtral(Llama):
    """A small mixture of experts, Mixtral's form, 142M parameters with its own head."""

    def __init__(self, vocab=32000, dim=512, heads=8, layers=8, ffn=1024, experts=8, top=2):
        super().__init__(vocab, dim, heads, heads, 0, ffn)
        self.blocks = nn.ModuleList(MixtralBlock(dim, heads, heads, ffn, experts, top)
                                    for _ in range(layers))
        self.head_weight = nn.Parameter(torch.empty(vocab, dim))

    def out(self):
        return self.head_weight


MODELS = {"gpt2-124m": Gpt2, "llama-135m": Llama, "mixtral-142m": Mixtral}


def initialise(model):
    for weight in model.parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences")
    parser.add_argument("--seq", type=int, required=True, help="tokens of a sequence")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--threads", type=int, default=0, help="0: as PyTorch likes")
    parser.add_argument("--steps", type=int, default=5, help="timed, after --warmup")
    parser.add_argument("--warmup", type=int, default=2)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)

    model = MODELS[args.model]()
    initialise(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    vocab = model.tokens.num_embeddings
    batches = torch.randint(vocab, (args.warmup + args.steps, args.batch, args.seq + 1))

    def loss_of(ids, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            logits = model(ids)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    if args.mode == "compile":
        loss_of = torch.compile(loss_of)

    times, used, loss = [], [], math.nan
    for batch in batches:
        begin, begin_used = time.perf_counter(), time.process_time()
        loss = loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - begin)
        used.append(time.process_time() - begin_used)
    step_s = statistics.median(times[args.warmup:])
    print(json.dumps({
        "tokens_per_s": args.batch * args.seq / step_s, "step_s": step_s,
        "cpu_s": statistics.median(used[args.warmup:]),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "model": args.model, "batch": args.batch, "seq": args.seq,
        "precision": args.precision, "mode": args.mode, "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()), "loss": loss.item(),
        "torch": torch.__version__}))


main()
