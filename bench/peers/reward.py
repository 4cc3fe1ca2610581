#!/usr/bin/env python3
"""The numbers of tests/reward_test.sh, by PyTorch and transformers.

  pip install torch==2.13.0 transformers==5.24.0
  tests/support/reward_model.py FOLDER && bench/peers/reward.py FOLDER

Reads FOLDER, which `trireme export` may have written, as LlamaForSequenceClassification and prints the means of the
scores of chosen and rejected answers, their Bradley-Terry loss and the norm of its gradient.
"""
import json
import sys

import torch
from transformers import AutoModelForSequenceClassification


def main():
    folder, data = sys.argv[1], (sys.argv[2:] or [sys.argv[1] + "/train.jsonl"])[0]
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    assert model.config.num_labels == 1, model.config.num_labels
    pairs = [json.loads(line) for line in open(data)]
    ids = lambda text: torch.tensor([[ord(c) - 0x4E00 for c in text]])
    score = lambda text: model.score(model.model(ids(text)).last_hidden_state)[0, -1, 0]
    chosen = torch.stack([score(p["prompt"] + p["chosen"]) for p in pairs])
    rejected = torch.stack([score(p["prompt"] + p["rejected"]) for p in pairs])
    assert abs(model(ids(pairs[0]["prompt"] + pairs[0]["chosen"])).logits[0, 0] - chosen[0]) < 1e-9
    loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
    loss.backward()
    norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters() if p.grad is not None))
    print(json.dumps({"loss": loss.item(), "grad_norm": norm.item(), "reward_first": chosen.mean().item(),
                      "reward_second": rejected.mean().item(), "accuracy": (chosen > rejected).double().mean().item()}))


if __name__ == "__main__":
    main()
