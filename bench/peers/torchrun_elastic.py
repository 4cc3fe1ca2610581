#!/usr/bin/env python3
"""From kill -9 of a rank to computing again: torchrun's elastic agent beside `trireme train`.

    bench/peers/torchrun_elastic.py build/trireme [--kills 5] [--python python3]

Both train a model of the same shape (2 layers, width 64, sequences of 64 bytes, a batch of 8) on two
ranks and keep the state of every step: Trireme in the machine's memory, the script under torchrun in a
file. A rank is killed at a random time; the time counts from the kill to the end of the first step of
the ranks that go on. It needs torch in PYTHON. Started without arguments by torchrun, it is the
script that trains."""
import argparse, json, os, random, signal, statistics, subprocess, sys, tempfile, time

LAYERS, DIM, HEADS, SEQ, BATCH = 2, 64, 4, 64, 8


def train(folder):
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with open(f"{folder}/pid-{rank}.tmp", "w") as f:
        f.write(str(os.getpid()))
    os.rename(f"{folder}/pid-{rank}.tmp", f"{folder}/pid-{rank}")
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0.0, batch_first=True)
    inner = torch.nn.Sequential(torch.nn.Embedding(257, DIM), torch.nn.TransformerEncoder(layer, LAYERS),
                                torch.nn.Linear(DIM, 257))
    model = DistributedDataParallel(inner)
    adam, step, path = torch.optim.AdamW(model.parameters()), 0, f"{folder}/state"
    if os.path.exists(path):
        state = torch.load(path)
        inner.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        step = state["step"]
    while True:
        g = torch.Generator().manual_seed(step * world + rank)
        ids = torch.randint(0, 256, (BATCH // world, SEQ + 1), generator=g)
        loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        step += 1
        if rank == 0:
            torch.save({"model": inner.state_dict(), "adam": adam.state_dict(), "step": step}, path + ".tmp")
            os.rename(path + ".tmp", path)
            with open(f"{folder}/steps", "a") as f:
                f.write(f"{time.time()} {step}\n")
        time.sleep(0.02)


def wait_for(condition, seconds=300):
    end = time.time() + seconds
    while time.time() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    sys.exit("no progress")


def torchrun_times(kills, python):
    times = []
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([python, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=100",
                                "--standalone", os.path.abspath(__file__)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=dict(os.environ, BENCH_FOLDER=folder, OMP_NUM_THREADS="1"))
        after = lambda t: [l for l in (open(f"{folder}/steps") if os.path.exists(f"{folder}/steps") else [])
                           if float(l.split()[0]) > t]
        begin = time.time()
        for _ in range(kills):
            wait_for(lambda: len(after(begin)) > 10)
            time.sleep(random.random())
            before = {r: open(f"{folder}/pid-{r}").read() for r in (0, 1)}
            killed = time.time()
            os.kill(int(before[1]), signal.SIGKILL)
            wait_for(lambda: all(open(f"{folder}/pid-{r}").read() != before[r] for r in (0, 1)))
            begun = time.time()
            line = wait_for(lambda: after(begun))[0]
            times.append(float(line.split()[0]) - killed)
            print(f"torchrun: {times[-1]:.2f} s", flush=True)
            begin = time.time()
        run.send_signal(signal.SIGTERM)
        run.wait()
    return times


def trireme_times(program, kills, mode):
    times = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "init", f"{folder}/demo"], check=True, stdout=subprocess.DEVNULL)
        run = subprocess.Popen([program, "train", f"{folder}/demo/config.yaml", f"run.dir={folder}/run", f"model.layers={LAYERS}",
                                f"model.dim={DIM}", f"model.heads={HEADS}", f"train.seq={SEQ}", f"train.global_batch={BATCH}",
                                "train.steps=1000000", "eval.every=0", "checkpoint.every=0", "kernels.threads=1", "layout.dp=2",
                                "log.every=1000000", *mode], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = f"{folder}/run/metrics.jsonl"

        def lines():
            out = []
            for l in open(metrics) if os.path.exists(metrics) else []:
                try:
                    out.append(json.loads(l))
                except ValueError:
                    pass
            return out
        begin = time.time()
        for i in range(kills):
            wait_for(lambda: sum(l.get("time", 0) > begin for l in lines()) > 10)
            time.sleep(random.random())
            pids = dict(map(int, l.split()) for l in open(f"{folder}/run/logs/processes"))
            killed = time.time()
            os.kill(pids[1], signal.SIGKILL)

            def again():
                seen = 0
                for l in lines():
                    seen += l.get("event") == "lost"
                    if seen == i + 1 and "loss" in l:
                        return l["time"]
            times.append(wait_for(again) - killed)
            begin = time.time()
        run.send_signal(signal.SIGTERM)
        run.wait()
    return times


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--kills", type=int, default=5)
    p.add_argument("--python", default=sys.executable)
    a = p.parse_args()
    peer = torchrun_times(a.kills, a.python)
    ours = trireme_times(os.path.abspath(a.program), a.kills, ["resilience.mode=live"])
    spare = trireme_times(os.path.abspath(a.program), a.kills, ["resilience.mode=live", "resilience.spares=1"])
    for name, t in (("torchrun's elastic agent", peer), ("trireme, a new process", ours), ("trireme, a spare", spare)):
        print(f"{name:26s} median {statistics.median(t):6.2f} s  from {min(t):.2f} to {max(t):.2f}"
              f"  {statistics.median(peer) / statistics.median(t):5.1f} times as fast")


if "BENCH_FOLDER" in os.environ and "RANK" in os.environ:
    train(os.environ["BENCH_FOLDER"])
else:
    main()
