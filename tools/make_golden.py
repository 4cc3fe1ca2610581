#!/usr/bin/env python3
"""Makes a folder that `trireme check` can check: your own model beside what transformers computes of it.

    pip install torch transformers safetensors
    tools/make_golden.py MODEL [--out DIR] [--batch 2] [--tokens 40] [--seed 1]

MODEL is a Hugging Face folder (config.json, model*.safetensors) of a family that Trireme knows. Without
--out the results go into it: golden.safetensors, golden.json, generation.json. With --out its files are
copied first. Then: trireme check DIR

Everything is computed in float64. transformers names float32 inside norms, softmax and rotary tables even
in a model converted to double, so its modules are shown a `torch` whose float32 is float64. Large models
take 8 bytes a weight four times over (weights, gradients, two moments).
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import types

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

IGNORED = -100
STEPS = 10
ADAMW = {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
         "weight_decay": 0.1, "clip_norm": 1.0, "steps": STEPS}
TOLERANCE = {"logits_relative_to_max": 5e-5, "loss_absolute": 2e-5,
             "grad_relative_to_max_of_tensor": 1e-4, "losses_absolute": 2e-4,
             "grad_norm_relative": 5e-4, "final_rms": 2e-5}


class Float64Torch(types.ModuleType):
    """The module torch, but what asks for float32 gets float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def show_float64():
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.") and getattr(module, "torch", None) is torch:
            module.torch = Float64Torch("torch")
    torch.Tensor.float = torch.Tensor.double


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64)  # imports its modules
    show_float64()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager")
    return model.eval()  # eval: no dropout


def stored_names(folder):
    """The names of all tensors in the folder's files."""
    names = set()
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            names.update(file.keys())
    return names


def as_stored(model, values, names):
    """A value for each parameter -> a tensor for each name in the folder's files.

    Saving splits what transformers fuses, for example the matrices of all experts, so the values are saved
    in place of the weights. GPT-2's published file leaves a prefix out.
    """
    out = {}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        weights = dict(model.named_parameters())
        kept = {name: w.detach().clone() for name, w in weights.items()}
        for name, w in weights.items():
            w.copy_(values[name])
        model.save_pretrained(folder)
        for name, w in weights.items():
            w.copy_(kept[name])
        for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in file.keys():
                    short = name.removeprefix(model.base_model_prefix + ".")
                    out[name if name in names else short] = file.get_tensor(name)
    for name, _ in model.named_buffers():  # they are saved too, and have no gradient
        out.pop(name, None)
    missing = sorted(set(out) - names)
    if missing:
        sys.exit(f"make_golden: {missing[0]} is in none of the files model*.safetensors")
    return out


def loss_of(model, ids, labels):
    logits = model(ids, use_cache=False).logits
    return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def draw(generator, vocab, *shape):
    """Token ids and their labels: those of the next position, one in five ignored."""
    ids = torch.randint(vocab, (*shape[:-1], shape[-1] + 1), generator=generator)
    labels = ids[..., 1:].clone()
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = IGNORED
    return ids[..., :-1].contiguous(), labels


def train(model, all_ids, all_labels):
    """Ten AdamW steps, written out: what golden.json says of the optimizer."""
    weights = dict(model.named_parameters())
    m = {name: torch.zeros_like(w) for name, w in weights.items()}
    v = {name: torch.zeros_like(w) for name, w in weights.items()}
    losses, norms = [], []
    for step, (ids, labels) in enumerate(zip(all_ids, all_labels), 1):
        model.zero_grad()
        _, loss = loss_of(model, ids, labels)
        loss.backward()
        norm = torch.sqrt(sum((w.grad ** 2).sum() for w in weights.values() if w.grad is not None))
        losses.append(loss.item())
        norms.append(norm.item())
        factor = min(1.0, ADAMW["clip_norm"] / (norm.item() + 1e-6))
        with torch.no_grad():
            for name, w in weights.items():
                g = (w.grad if w.grad is not None else torch.zeros_like(w)) * factor
                if w.ndim >= 2:
                    w -= ADAMW["lr"] * ADAMW["weight_decay"] * w
                m[name] += (1 - ADAMW["beta1"]) * (g - m[name])
                v[name] += (1 - ADAMW["beta2"]) * (g * g - v[name])
                m_hat = m[name] / (1 - ADAMW["beta1"] ** step)
                v_hat = v[name] / (1 - ADAMW["beta2"] ** step)
                w -= ADAMW["lr"] * m_hat / (v_hat.sqrt() + ADAMW["eps"])
    return {**ADAMW, "losses": losses, "grad_norm": norms}


@torch.no_grad()
def generate(model, generator, count=24, prompt_count=11):
    """Greedy continuation, cut before the first choice that float32 rounding could turn."""
    prompt = torch.randint(model.config.vocab_size, (prompt_count,), generator=generator).tolist()
    ids, smallest = [], float("inf")
    for _ in range(count):
        logits = model(torch.tensor([prompt + ids]), use_cache=False).logits[0, -1]
        best = logits.topk(2)
        gap = (best.values[0] - best.values[1]).item()
        if gap < 1e-3 * logits.abs().max().item():
            break
        smallest = min(smallest, gap)
        ids.append(best.indices[0].item())
    return {"prompt": prompt, "ids": ids, "smallest_logit_gap": smallest} if ids else None


def two_finals(weights):
    """Which parameters are compared after the steps: the first and the last matrix of a layer."""
    matrices = sorted(n for n, w in weights.items() if w.ndim == 2)
    return [matrices[0], [n for n in matrices if any(c.isdigit() for c in n)][-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    folder = args.out or args.model
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for path in [args.model / "config.json", *args.model.glob("model*.safetensors*")]:
            shutil.copy(path, args.out)

    model = load(args.model)
    names = stored_names(args.model)
    vocab = model.config.vocab_size
    generator = torch.Generator().manual_seed(args.seed)
    ids, labels = draw(generator, vocab, args.batch, args.tokens)
    traj_ids, traj_labels = draw(generator, vocab, STEPS, args.batch, args.tokens)

    logits, loss = loss_of(model, ids, labels)
    loss.backward()
    tensors = {"input_ids": ids, "labels": labels, "logits": logits.detach().to(torch.float32),
               "loss": loss.detach().to(torch.float32),
               "traj_input_ids": traj_ids, "traj_labels": traj_labels}
    none = {name: w.grad if w.grad is not None else torch.zeros_like(w)  # a router that decides nothing
            for name, w in model.named_parameters()}
    gradients = as_stored(model, none, names)
    tensors |= {"grad." + name: g.to(torch.float32) for name, g in gradients.items()}
    largest = max(g.abs().max().item() for g in gradients.values())
    for g in gradients.values():  # rounding of what is zero, such as the router of weights that are all 1
        if g.abs().max().item() < 1e-12 * largest:
            g.zero_()
    zero = sorted(name for name, g in gradients.items() if not g.any())
    generation = generate(model, generator, prompt_count=min(11, args.tokens // 2))
    saved = str(model.config.dtype).removeprefix("torch.")
    golden = {
        "name": args.model.resolve().name, "model_type": model.config.model_type,
        "batch": args.batch, "tokens": args.tokens, "vocab_size": vocab, "seed": args.seed,
        "saved_dtype": saved, "parameters": sum(w.numel() for w in model.parameters()),
        "reference": {"torch": torch.__version__, "transformers": transformers.__version__,
                      "computed_in": "float64", "attention": "eager"},
        "loss": loss.item(), "tokens_in_loss": int((labels != IGNORED).sum()),
        "ignored_label": IGNORED, "tolerance": TOLERANCE, "gradients_that_are_zero": zero,
        "optimizer": train(model, traj_ids, traj_labels)}
    weights = as_stored(model, dict(model.named_parameters()), names)
    for name in two_finals(weights):
        tensors["final." + name] = weights[name].to(torch.float32)

    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "golden.safetensors")
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    if generation:
        (folder / "generation.json").write_text(json.dumps(generation, indent=1) + "\n")
    print(f"{folder}: loss {loss.item():.6f}, {len(gradients)} gradients, "
          f"{len(generation['ids']) if generation else 0} tokens; now: trireme check {folder}")


if __name__ == "__main__":
    main()
