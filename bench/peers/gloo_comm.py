#!/usr/bin/env python3
"""Collectives of PyTorch over gloo, beside `trireme bench comm`: the same operations, ranks and sizes.

    bench/peers/gloo_comm.py [--ranks 2] [--op all_reduce] [--bytes 65536,1048576,16777216]

Ranks are processes of this machine, one thread each. A row per size in JSON lines: median time of enough
calls for 0.3 s, and bus bandwidth as nccl-tests defines it.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FACTOR = {"all_reduce": lambda n: 2 * (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n,
          "all_gather": lambda n: (n - 1) / n, "all_to_all": lambda n: (n - 1) / n}


def make(op, ranks, count):
    """bytes of an operation are those of the whole operand, as in `trireme bench comm`."""
    whole, piece = torch.zeros(count), torch.zeros(max(count // ranks, 1))
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if op == "reduce_scatter":
        pieces = [torch.zeros_like(piece) for _ in range(ranks)]
        return lambda: dist.reduce_scatter(piece, pieces)
    if op == "all_gather":
        pieces = [torch.empty_like(piece) for _ in range(ranks)]
        return lambda: dist.all_gather(pieces, piece)
    there = torch.empty_like(whole)
    return lambda: dist.all_to_all_single(there, whole)


def rank_main(rank, options, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(options.ranks))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank * len(cores) // options.ranks]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    for size in options.bytes:
        run = make(options.op, options.ranks, max(size // 4, 1))
        run()
        begin = time.perf_counter()
        run()
        once = torch.tensor([time.perf_counter() - begin])
        dist.all_reduce(once, op=dist.ReduceOp.MAX)
        times = []
        for _ in range(max(5, min(2000, int(0.3 / float(once))))):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        median = sorted(times)[len(times) // 2]
        if rank == 0:
            algbw = size / median / 1e9
            print(json.dumps({"op": options.op, "ranks": options.ranks, "bytes": size, "time_us": median * 1e6,
                              "algbw_gb_s": algbw, "busbw_gb_s": algbw * FACTOR[options.op](options.ranks),
                              "algorithm": "gloo, torch " + torch.__version__}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--op", choices=sorted(FACTOR), default="all_reduce")
    parser.add_argument("--bytes", type=lambda t: [int(b) for b in t.split(",")], default=[65536, 1 << 20, 16 << 20])
    options = parser.parse_args()
    mp.spawn(rank_main, args=(options, 20000 + os.getpid() % 20000), nprocs=options.ranks)


if __name__ == "__main__":
    main()
