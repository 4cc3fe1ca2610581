#!/usr/bin/env python3
"""Training steps of GPT-2 124M in PyTorch on several ranks over gloo: the layouts of `trireme train layout.*`.

    pytorch_parallel.py --layout ddp|fsdp|tp|pp [--precision fp32|bf16] [--mode eager|compile] [--ranks 2]
                        [--batch 32] [--seq 1024] [--steps 1] [--warmup 0] [--sums step|microbatch]

A step is: forward and backward of every micro-batch (one sequence), clip to 1, AdamW (fused), in fp32 or with
autocast to bf16. Ranks are processes of this machine with one thread and one core each. `compile` compiles
each block, or in tp and pp what a rank has of it.
  ddp   DistributedDataParallel; gradients travel in the last micro-batch
  fsdp  fully_shard on each block and on the whole (FSDP2): weights and states are cut; gradients too with
        `--sums microbatch`, with `step` they stay whole until the last micro-batch
  tp    parallelize_module: columns and rows of attention and MLP, the vocabulary by rows; one rank's batch
  pp    torch.distributed.pipelining, 1F1B, as many layers on each stage as make both equal (head included)
One line of JSON: tokens_per_s of all ranks together, step_s (median), peak_rss_bytes of the largest rank.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS, CONTEXT = 50257, 768, 12, 12, 1024


class Block(nn.Module):
    """q, k and v apart, so that columns can be cut by heads."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.out = nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        h = self.norm1(x)
        B, T = h.shape[:2]
        q, k, v = (w(h).view(B, T, -1, DIM // HEADS).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Part(nn.Module):
    """Layers [begin, end) of the model, with embedding and head where they belong. `tied` needs both."""

    def __init__(self, begin=0, end=LAYERS, tied=True):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(end - begin))
        if begin == 0:
            self.tokens, self.positions = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        if end == LAYERS:
            self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)
            if tied:
                self.head.weight = self.tokens.weight

    def forward(self, x):
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def clip_mixed(parameters, ranks):
    """Some gradients are cut over the ranks (DTensors), others are whole on each."""
    from torch.distributed.tensor import DTensor
    square = torch.zeros(())
    grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters]
    for p, g in zip(parameters, grads):
        square += g.pow(2).sum() / (1 if isinstance(p.grad, DTensor) else ranks)
    dist.all_reduce(square)
    for g in grads:
        g.mul_(torch.clamp(1.0 / (square.sqrt() + 1e-6), max=1.0))


def train_step(model, optimizer, ids, labels, last_only, mixed=0):
    """All micro-batches; `last_only(model, is_last)` is a context in which gradients stay at home."""
    for i in range(len(ids)):
        with last_only(model, i + 1 == len(ids)):
            (loss_of(model(ids[i:i + 1]), labels[i:i + 1]) / len(ids)).backward()
    if mixed:
        clip_mixed(list(model.parameters()), mixed)
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def make_ddp(options):
    model = nn.parallel.DistributedDataParallel(Part())

    def quiet(m, last):
        return contextlib.nullcontext() if last else m.no_sync()
    return model, quiet


def make_fsdp(options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh, model = init_device_mesh("cpu", (options.ranks,)), Part()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)

    @contextlib.contextmanager
    def quiet(m, last):
        m.set_requires_gradient_sync(last or options.sums == "microbatch")
        yield
    return model, quiet


def make_tp(options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh, model = init_device_mesh("cpu", (options.ranks,)), Part(tied=False)
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel(),
            "up": ColwiseParallel(), "down": RowwiseParallel()})
    parallelize_module(model, mesh, {
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate())})
    return model, lambda m, last: contextlib.nullcontext()


def pipeline_runner(options, rank):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    # The head is worth some five and a half layers.
    cut = options.cut or (LAYERS * 3 // 4 if options.ranks == 2 else 0)
    part = Part(0, cut, False) if rank == 0 else Part(cut, LAYERS, False)
    stage = PipelineStage(part, rank, options.ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, options.batch, loss_fn=loss_of)

    def run(optimizer, ids, labels):
        if rank == 0:
            schedule.step(ids)
        else:
            schedule.step(target=labels, losses=[])
        nn.utils.clip_grad_norm_(part.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return part, run


def rank_main(rank, options, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(options.ranks))
    if options.precision == "bf16":
        torch.set_autocast_dtype("cpu", torch.bfloat16)
        torch.set_autocast_enabled("cpu", True)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    if options.layout == "pp":
        model, run = pipeline_runner(options, rank)
    else:
        model, quiet = {"ddp": make_ddp, "fsdp": make_fsdp, "tp": make_tp}[options.layout](options)
        share = options.batch if options.layout == "tp" else options.batch // options.ranks

        def run(optimizer, ids, labels):
            mine = slice(0, share) if options.layout == "tp" else slice(rank * share, (rank + 1) * share)
            train_step(model, optimizer, ids[mine], labels[mine], quiet,
                       options.ranks if options.layout == "tp" else 0)
    if options.mode == "compile":
        for block in (m for m in model.modules() if isinstance(m, Block)):
            block.compile()
    fused = options.layout in ("ddp", "pp")  # of DTensors it is not there everywhere
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused, foreach=False if not fused else None)
    data = torch.randint(VOCAB, (options.warmup + options.steps, options.batch, options.seq + 1))
    times = []
    for batch in data:
        dist.barrier()
        begin = time.perf_counter()
        run(optimizer, batch[:, :-1], batch[:, 1:])
        dist.barrier()
        times.append(time.perf_counter() - begin)
    rss = torch.tensor([float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)])
    dist.all_reduce(rss, op=dist.ReduceOp.MAX)
    if rank == 0:
        step_s = statistics.median(times[options.warmup:])
        out.put({"tokens_per_s": options.batch * options.seq / step_s, "step_s": step_s,
                 "peak_rss_bytes": int(rss.item()), "layout": options.layout, "sums": options.sums, "ranks": options.ranks,
                 "precision": options.precision, "mode": options.mode, "batch": options.batch, "seq": options.seq, "torch": torch.__version__})
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", choices=["ddp", "fsdp", "tp", "pp"], required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="sequences of a step, all ranks together")
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1, help="timed, after --warmup")
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--sums", choices=["step", "microbatch"], default="step", help="fsdp: when gradients travel")
    parser.add_argument("--cut", type=int, default=0, help="pp: layers of the first stage")
    parser.add_argument("--port", type=int, default=29611)
    options = parser.parse_args()
    context = mp.get_context("spawn")
    out = context.SimpleQueue()
    mp.spawn(rank_main, (options, options.port, out), options.ranks)
    print(json.dumps(out.get()))


if __name__ == "__main__":
    main()
