"""Writes a small reward model with random weights as transformers has them, a tokenizer of letters, and pairs.

  reward_model.py FOLDER [causal]     model.safetensors, config.json, tokenizer.json, train.jsonl; causal: with the
                                      head of a language model
"""
import json
import os
import random
import struct
import sys

from letters import letter, write_tokenizer

VOCAB, DIM, HEADS, KV, FFN, LAYERS, PAIRS = 40, 16, 4, 2, 24, 2, 24


def tensors(causal):
    rng = random.Random(7)
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes |= {at + "self_attn.q_proj.weight": (DIM, DIM), at + "self_attn.k_proj.weight": (DIM // HEADS * KV, DIM),
                   at + "self_attn.v_proj.weight": (DIM // HEADS * KV, DIM), at + "self_attn.o_proj.weight": (DIM, DIM),
                   at + "mlp.gate_proj.weight": (FFN, DIM), at + "mlp.up_proj.weight": (FFN, DIM),
                   at + "mlp.down_proj.weight": (DIM, FFN), at + "input_layernorm.weight": (DIM,),
                   at + "post_attention_layernorm.weight": (DIM,)}
    shapes["lm_head.weight" if causal else "score.weight"] = (VOCAB if causal else 1, DIM)
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        yield name, shape, [rng.gauss(1.0 if "norm" in name else 0.0, 0.3) for _ in range(count)]


def pairs():
    rng = random.Random(3)
    word = lambda low, high, n: "".join(letter(rng.randrange(low, high)) for _ in range(n))
    for _ in range(PAIRS):
        prompt = word(0, VOCAB, rng.randrange(2, 5))
        # What is chosen has more letters of the first half.
        yield {"prompt": prompt, "chosen": word(0, 26, rng.randrange(1, 5)), "rejected": word(14, VOCAB, rng.randrange(1, 5))}


def main():
    folder, causal = sys.argv[1], sys.argv[2:] == ["causal"]
    os.makedirs(folder, exist_ok=True)
    head, data, at = {"__metadata__": {"format": "pt"}}, b"", 0
    for name, shape, values in sorted(tensors(causal)):
        data += struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, len(data)]}
        at = len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    config = {"architectures": ["LlamaForCausalLM" if causal else "LlamaForSequenceClassification"],
              "model_type": "llama", "vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": FFN,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
              "torch_dtype": "float32"}
    if not causal:
        config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    json.dump(config, open(folder + "/config.json", "w"))
    write_tokenizer(folder, VOCAB)
    with open(folder + "/train.jsonl", "w") as f:
        f.writelines(json.dumps(p) + "\n" for p in pairs())


if __name__ == "__main__":
    main()
