// Two configurations with every common key. Rates and sizes are what these models train well with;
// keys that are left at their default stand there all the same, to be found.
#include "cli/init_config.h"

#include <stddef.h>

#define TOP(what)                                                                                 \
    "# " what "\n"                                                                                \
    "#\n"                                                                                         \
    "# Any key can be given on the command line too: trireme train config.yaml train.steps=500\n" \
    "# trireme help train.steps explains one key, trireme config reference lists all of them.\n"  \
    "\n"                                                                                          \
    "run:\n"                                                                                      \
    "  dir: run                # checkpoints, metrics, logs; the same command again continues\n"  \
    "\n"

#define DATA                                                                                \
    "data:\n"                                                                               \
    "  train: text.txt         # texts, JSON lines or token files: a path, a list, globs\n" \
    "  valid: 0.05             # share of the text that is held out, or files of its own\n" \
    "  packing: masked         # documents in one sequence do not see each other; or plain\n"

#define MACHINE                                                                           \
    "\n"                                                                                  \
    "# memory: {limit: 4GiB}    # a run that needs more is refused before it starts\n"    \
    "# kernels: {threads: 2}    # default: one per core\n"                                \
    "# determinism: strict      # same bits for any micro-batch, thread count, restart\n" \
    "# trace: {steps: \"10:12\"}  # these steps as a Chrome trace, run/trace.json\n"

static const char *const configs[INIT_PRESET_COUNT] = {
    [INIT_TINY] = TOP(
        "A small model of letters, for a first run: a minute or two on two cores.") "model:\n"
                                                                                    "  preset: tiny            # 1.3 million weights; layers, dim, heads, ... change it\n"
                                                                                    "  # from: ../some-model   # or a Hugging Face folder, to train its weights further\n"
                                                                                    "  dropout: 0\n"
                                                                                    "\n" DATA
                                                                                    "  tokenizer: bytes        # or a tokenizer.json, or a folder with one\n"
                                                                                    "\n"
                                                                                    "train:\n"
                                                                                    "  steps: 450\n"
                                                                                    "  seq: 256                # tokens in a sequence\n"
                                                                                    "  global_batch: 8         # sequences in a step\n"
                                                                                    "  micro_batch: 0          # sequences at once: memory and speed, not the result; 0 chooses\n"
                                                                                    "  precision: fp32         # or bf16, fp16\n"
                                                                                    "  recompute: none         # or selective, full: less memory, same result\n"
                                                                                    "  seed: 1\n"
                                                                                    "  # max_time: 1h          # then stop with a checkpoint and exit 75\n"
                                                                                    "\n"
                                                                                    "optimizer:\n"
                                                                                    "  name: adamw             # or muon\n"
                                                                                    "  lr: 3e-3\n"
                                                                                    "  beta1: 0.9\n"
                                                                                    "  beta2: 0.95\n"
                                                                                    "  weight_decay: 0.1       # not on one-dim tensors\n"
                                                                                    "  clip: 1\n"
                                                                                    "\n"
                                                                                    "schedule:                 # of the learning rate\n"
                                                                                    "  name: cosine            # or constant, linear, wsd, inverse_sqrt\n"
                                                                                    "  warmup: 40\n"
                                                                                    "  min_ratio: 0.1\n"
                                                                                    "\n"
                                                                                    "eval:\n"
                                                                                    "  every: 100              # steps\n"
                                                                                    "  batches: 4\n"
                                                                                    "\n"
                                                                                    "checkpoint:\n"
                                                                                    "  every: 250              # steps; one is always written after the last\n"
                                                                                    "  keep: 3\n"
                                                                                    "\n"
                                                                                    "log:\n"
                                                                                    "  every: 20               # steps; run/metrics.jsonl has every one\n" MACHINE,
    [INIT_124M] = TOP(
        "GPT-2's size. Days on a laptop; the settings are those of a real run.") "model:\n"
                                                                                 "  preset: gpt2-124m       # or llama-135m, gpt2-1.5b, llama3-8b, ...\n"
                                                                                 "  # from: ../gpt2         # or a Hugging Face folder, to train its weights further\n"
                                                                                 "  dropout: 0\n"
                                                                                 "\n" DATA
                                                                                 "  tokenizer: bytes        # better: the folder of GPT-2's vocab.json and merges.txt\n"
                                                                                 "\n"
                                                                                 "train:\n"
                                                                                 "  steps: 20000\n"
                                                                                 "  seq: 1024               # tokens in a sequence\n"
                                                                                 "  global_batch: 32        # sequences in a step\n"
                                                                                 "  micro_batch: 0          # sequences at once: memory and speed, not the result; 0 chooses\n"
                                                                                 "  precision: fp32         # bf16 where the processor has it\n"
                                                                                 "  recompute: none         # or selective, full: less memory, same result\n"
                                                                                 "  seed: 1\n"
                                                                                 "  # max_time: 12h         # then stop with a checkpoint and exit 75\n"
                                                                                 "\n"
                                                                                 "optimizer:\n"
                                                                                 "  name: adamw             # or muon\n"
                                                                                 "  lr: 6e-4\n"
                                                                                 "  beta1: 0.9\n"
                                                                                 "  beta2: 0.95\n"
                                                                                 "  weight_decay: 0.1       # not on one-dim tensors\n"
                                                                                 "  clip: 1\n"
                                                                                 "\n"
                                                                                 "schedule:                 # of the learning rate\n"
                                                                                 "  name: cosine            # or constant, linear, wsd, inverse_sqrt\n"
                                                                                 "  warmup: 700\n"
                                                                                 "  min_ratio: 0.1\n"
                                                                                 "\n"
                                                                                 "eval:\n"
                                                                                 "  every: 250              # steps\n"
                                                                                 "  batches: 8\n"
                                                                                 "\n"
                                                                                 "checkpoint:\n"
                                                                                 "  every: 500              # steps; one is always written after the last\n"
                                                                                 "  keep: 3\n"
                                                                                 "  keep_every: 5000        # these stay for ever\n"
                                                                                 "\n"
                                                                                 "log:\n"
                                                                                 "  every: 10               # steps; run/metrics.jsonl has every one\n" MACHINE,
};

const char *init_config_text(init_preset preset)
{
    return (unsigned)preset < INIT_PRESET_COUNT ? configs[preset] : NULL;
}
