#!/usr/bin/env python3
"""Compares Trireme's logits with those of transformers, both ways, for every family.

    tools/compare_transformers.py build/trireme [--only llama] [--keep FOLDER] [--limit 1e-4]

  out   a model that Trireme trained for two steps and exported, loaded by AutoModelForCausalLM and
        AutoTokenizer; and the ids that its tokenizer gives
  in    models that transformers saved (random weights; tied and not, grouped queries, windows, every
        kind of rotary positions, biases, bf16, several files), read by Trireme
  back  the same through `import` and `export`: the tensors must be the same bytes

Logits are computed here in float32 and there by `trireme check`, which says the largest difference
relative to the largest logit. The table shows absolute differences; exit 1 if one is beyond the limit.
Where torch and transformers are not installed, a throw-away environment is made for them with pip.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from throwaway import environment

environment(["torch==2.13.0", "transformers", "safetensors", "numpy"],
            modules=["torch", "transformers", "safetensors", "numpy"])
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

VOCAB, CONTEXT, BATCH, TOKENS = 257, 128, 2, 96
TEXT = "The ship has three banks of oars.\nΣὺν Ἀθηνᾷ καὶ χεῖρα κίνει 🙂\t\x00\x7f é\n\n  end"

# ---- out: `key=value` of a training configuration ---------------------------------------------------
SIZES = "model.layers=2 model.dim=64 model.heads=4 model.ffn_dim=96 model.vocab=257 model.context=128"
OURS = {
    "gpt2": f"model.arch=gpt2 {SIZES}",
    "llama": f"model.arch=llama {SIZES} model.kv_heads=2",
    "llama tied": f"model.arch=llama {SIZES} model.tied=yes model.head_dim=24",
    "llama biases": f"model.arch=llama {SIZES} model.attention_bias=yes model.mlp_bias=yes",
    "llama3.1": f"model.preset=llama3.1-8b {SIZES} model.kv_heads=1 model.head_dim=16",
    "mistral": f"model.arch=mistral {SIZES} model.kv_heads=2 model.window=16",
    "qwen2": f"model.arch=qwen2 {SIZES} model.kv_heads=2",
    "qwen3": f"model.arch=qwen3 {SIZES} model.kv_heads=2 model.head_dim=32",
}

# ---- in: a configuration of transformers and how it is saved ----------------------------------------
LLAMA = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=96, max_position_embeddings=CONTEXT, initializer_range=0.1)
GPT2 = dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=CONTEXT, initializer_range=0.1,
            bos_token_id=256, eos_token_id=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

GEMMA = {**LLAMA, "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 12,
         "attn_logit_softcapping": 4.0, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 20,
         "pad_token_id": None, "bos_token_id": 2, "eos_token_id": 1}
PHI = {**LLAMA, "num_key_value_heads": 2, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
       "sliding_window": None}


def rope(kind, **options):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **options}}


MOE = {**LLAMA, "num_key_value_heads": 2, "num_experts": 5, "num_experts_per_tok": 2,
       "moe_intermediate_size": 40}
LATENT = {**LLAMA, "num_hidden_layers": 3, "num_key_value_heads": 4, "kv_lora_rank": 20, "q_lora_rank": 24,
          "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 8,
          "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1,
          "first_k_dense_replace": 1, "head_dim": 8}

OSS = {**LLAMA, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2,
       "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], "pad_token_id": None,
       "eos_token_id": 1, **rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
                                 beta_slow=1.0, truncate=False)}

THEIRS = [
    ("gpt2", "GPT2Config", GPT2, {}),
    ("gpt2 untied", "GPT2Config", {**GPT2, "tie_word_embeddings": False}, {}),
    ("gpt2 wide, relu", "GPT2Config", {**GPT2, "n_inner": 100, "activation_function": "relu"}, {}),
    ("llama", "LlamaConfig", LLAMA, {}),
    ("llama tied, 1 of 4", "LlamaConfig",
     {**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 1}, {}),
    ("llama biases", "LlamaConfig", {**LLAMA, "attention_bias": True, "mlp_bias": True}, {}),
    ("llama head 24", "LlamaConfig", {**LLAMA, "head_dim": 24, "num_key_value_heads": 2}, {}),
    ("llama 4 files", "LlamaConfig", {**LLAMA, "num_key_value_heads": 2}, {"max_shard_size": "60KB"}),
    ("llama bf16", "LlamaConfig", {**LLAMA, "num_key_value_heads": 2}, {"dtype": torch.bfloat16}),
    ("llama fp16", "LlamaConfig", LLAMA, {"dtype": torch.float16}),
    ("llama linear", "LlamaConfig", {**LLAMA, **rope("linear", factor=4.0)}, {}),
    ("llama dynamic", "LlamaConfig", {**LLAMA, **rope("dynamic", factor=2.0)}, {}),
    ("llama yarn", "LlamaConfig",
     {**LLAMA, **rope("yarn", factor=4.0, original_max_position_embeddings=32)}, {}),
    ("llama3.1", "LlamaConfig",
     {**LLAMA, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=32)}, {}),
    ("mistral window", "MistralConfig",
     {**LLAMA, "num_key_value_heads": 2, "sliding_window": 16}, {}),
    ("mistral", "MistralConfig", {**LLAMA, "num_key_value_heads": 2, "sliding_window": None}, {}),
    ("qwen2", "Qwen2Config", {**LLAMA, "num_key_value_heads": 2}, {}),
    ("qwen2 window", "Qwen2Config",
     {**LLAMA, "num_hidden_layers": 3, "num_key_value_heads": 2, "use_sliding_window": True,
      "sliding_window": 16, "max_window_layers": 1, "tie_word_embeddings": True}, {}),
    ("qwen3", "Qwen3Config", {**LLAMA, "num_key_value_heads": 2, "head_dim": 32}, {}),
    ("qwen3 tied, files", "Qwen3Config",
     {**LLAMA, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True},
     {"max_shard_size": "50KB"}),
    ("olmo2", "Olmo2Config", {**LLAMA, "num_key_value_heads": 2, "pad_token_id": None}, {}),
    ("gemma2", "Gemma2Config", GEMMA, {}),
    ("gemma2 uncapped", "Gemma2Config",
     {**GEMMA, "attn_logit_softcapping": None, "final_logit_softcapping": None,
      "query_pre_attn_scalar": 24, "layer_types": ["full_attention", "sliding_attention"] * 2}, {}),
    ("gemma3", "Gemma3TextConfig",
     {**GEMMA, "num_hidden_layers": 7, "attn_logit_softcapping": None, "rope_parameters": {
         "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}, {}),
    ("mixtral", "MixtralConfig",
     {**LLAMA, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2}, {}),
    ("qwen3_moe", "Qwen3MoeConfig", {**MOE, "head_dim": 16, "norm_topk_prob": True}, {}),
    ("olmoe", "OlmoeConfig", {**LLAMA, "num_key_value_heads": 2, "num_experts": 6,
                              "num_experts_per_tok": 3, "pad_token_id": None}, {}),
    ("qwen2_moe", "Qwen2MoeConfig", {**MOE, "shared_expert_intermediate_size": 56}, {}),
    ("qwen2_moe dense first", "Qwen2MoeConfig",
     {**MOE, "shared_expert_intermediate_size": 24, "num_hidden_layers": 3, "mlp_only_layers": [0],
      "norm_topk_prob": True, "use_sliding_window": True, "sliding_window": 16,
      "max_window_layers": 1}, {}),
    ("deepseek2 lite", "DeepseekV2Config", {**LATENT, "q_lora_rank": None}, {}),
    ("deepseek2", "DeepseekV2Config",
     {**LATENT, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2,
      "routed_scaling_factor": 3.0, "first_k_dense_replace": 1, **rope(
          "yarn", factor=4.0, original_max_position_embeddings=32, mscale=0.7, mscale_all_dim=0.7,
          beta_fast=2.0, beta_slow=0.5)}, {}),
    ("deepseek3", "DeepseekV3Config",
     {**LATENT, "n_group": 2, "topk_group": 1, "n_shared_experts": 2, "first_k_dense_replace": 0,
      "v_head_dim": 24, **rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0,
                               mscale_all_dim=1.0)}, {}),
    ("deepseek3 one group", "DeepseekV3Config",
     {**LATENT, "n_group": 1, "topk_group": 1, "rope_interleave": False, "norm_topk_prob": False,
      "rms_norm_eps": 1e-3}, {}),
    ("gpt_oss", "GptOssConfig", OSS, {}),
    ("gpt_oss bf16, files", "GptOssConfig",
     {**OSS, "num_hidden_layers": 3, "num_local_experts": 6, "num_experts_per_tok": 3,
      "swiglu_limit": 2.0, "sliding_window": 9,
      "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
     {"dtype": torch.bfloat16, "max_shard_size": "60KB"}),
    ("phi3", "Phi3Config", {**PHI, "sliding_window": 16}, {}),
    ("phi3 long", "Phi3Config",
     {**PHI, "original_max_position_embeddings": 32,
      "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8,
                          "long_factor": [1.0, 1.1, 1.3, 1.7, 2.2, 3.0, 4.0, 5.0],
                          "original_max_position_embeddings": 32}}, {}),
    ("phi3 short", "Phi3Config",
     {**PHI, "original_max_position_embeddings": 100,
      "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [4.0] * 8,
                          "short_factor": [1.0, 1.1, 1.3, 1.7, 2.2, 3.0, 4.0, 5.0],
                          "original_max_position_embeddings": 100}}, {}),
]


def run(*command, ok=(0,)):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode not in ok:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


@torch.no_grad()
def difference(trireme, folder, scratch):
    """The largest difference of a logit, and the largest logit, of a folder read by both."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCAB, (BATCH, TOKENS), generator=generator)
    logits = load(folder)(ids, use_cache=False).logits.float()
    work = scratch / "check"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work)
    save_file({"input_ids": ids, "labels": ids.roll(-1, 1).contiguous(),
               "logits": logits.contiguous()}, work / "golden.safetensors")
    (work / "golden.json").write_text(json.dumps({"ignored_label": -100}))
    told = json.loads(run(trireme, "check", work, "--json", ok=(0, 8)))
    largest = logits.abs().max().item()
    return told["worst"]["logits"] * largest, largest


def tensors(folder):
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})
    return found


def same_bytes(a, b):
    a, b = tensors(a), tensors(b)
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape
        and a[n].contiguous().view(torch.uint8).equal(b[n].contiguous().view(torch.uint8)) for n in a)


def check_out(args, name, keys, scratch):
    (scratch / "text.txt").write_text("some words of a text, again and again. " * 400)
    (scratch / "run.yaml").write_text(
        "train: {steps: 2, seq: 32, global_batch: 4}\nschedule: {warmup: 0}\neval: {every: 0}\n"
        "optimizer: {lr: 0.01}\ndata: {train: text.txt, tokenizer: bytes, valid: 0}\n")
    run(args.trireme, "train", scratch / "run.yaml", f"run.dir={scratch / 'run'}", "--quiet", *keys.split())
    run(args.trireme, "export", scratch / "run", scratch / "out")
    error, largest = difference(args.trireme, scratch / "out", scratch)
    tokenizer = transformers.AutoTokenizer.from_pretrained(scratch / "out")
    ids = tokenizer(TEXT)["input_ids"]
    notes = []
    if ids != list(TEXT.encode()) or tokenizer.decode(ids) != TEXT:
        notes.append("its tokenizer gives other ids")
    if tokenizer.eos_token_id != 256 or tokenizer("<|endoftext|>")["input_ids"] != [256]:
        notes.append("the end of a text is not 256")
    return error, largest, notes


def check_in(args, name, config, options, how, scratch):
    how = dict(how)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**options))
    with torch.no_grad():  # biases and norms of a fresh model are 0 and 1: no test at all
        for weight in model.parameters():
            if weight.ndim == 1:
                weight += 0.2 * torch.randn(weight.shape)
    model.to(how.pop("dtype", torch.float32)).save_pretrained(scratch / "saved", **how)
    error, largest = difference(args.trireme, scratch / "saved", scratch)
    run(args.trireme, "import", scratch / "saved", scratch / "ours")
    run(args.trireme, "export", scratch / "ours", scratch / "back", "--shard-bytes", 50000)
    notes = [] if same_bytes(scratch / "saved", scratch / "back") else ["other bytes came back"]
    again, _ = difference(args.trireme, scratch / "back", scratch)
    return max(error, again), largest, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trireme", type=pathlib.Path)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--keep", type=pathlib.Path, help="where the models stay")
    parser.add_argument("--limit", type=float, default=1e-4)
    args = parser.parse_args()
    args.trireme = args.trireme.resolve()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    cases = [("out", name, (keys,), check_out) for name, keys in OURS.items()]
    cases += [("in", name, rest, check_in) for name, *rest in THEIRS]
    cases = [c for c in cases if c[1].startswith(args.only)]
    failed = 0
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{'':4} {'model':20} {'difference':>10} {'largest':>8}")
    with tempfile.TemporaryDirectory(prefix="compare-") as temporary:
        for way, name, rest, check in cases:
            folder = (args.keep or pathlib.Path(temporary)) / f"{way}-{name.replace(' ', '-')}"
            folder.mkdir(parents=True)
            error, largest, notes = check(args, name, *rest, folder)
            if not error <= args.limit:
                notes.append(f"beyond {args.limit:g}")
            failed += bool(notes)
            print(f"{way:4} {name:20} {error:10.2e} {largest:8.3f}  {'; '.join(notes) or 'ok'}", flush=True)
    print(f"{len(cases)} models, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
