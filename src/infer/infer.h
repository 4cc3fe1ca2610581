// Generation with the trainer's own programs, plans, executor and kernels.
//
// A text is taken in by PREFILL, a chunk of tokens at a time, and grown by DECODE, a token at a time.
// Both plans share weights and the cache of keys and values, which are run tensors of one arena; all
// of it is planned before the first token, so a text that would not fit is refused then.
#ifndef INFER_INFER_H
#define INFER_INFER_H

#include "checkpoint/checkpoint.h"
#include "exec/exec.h"
#include "model/model.h"

typedef struct infer infer;

typedef struct infer_options {
    int threads;                  // 0: one per core
    const char *device, *backend; // NULL: "cpu"
    dtype compute;                // of weights, cache and activations
    int64_t context;              // longest text, prompt and continuation together
    int64_t chunk;                // tokens of a prompt taken at once; 0: as fits the context
    bool strict;
    int64_t memory_limit_bytes; // 0: what the machine has
} infer_options;

// How the next token is chosen: temperature 0 takes the best one. A filter is off at 0, top_p at 1.
typedef struct infer_sampling {
    double temperature;
    int64_t top_k;
    double top_p, min_p;
    uint64_t seed;
} infer_sampling;

// `folder` holds a config.json with either a checkpoint of ours (manifest.json) or Hugging Face
// weights. Everything but the arena lies in `a`. A context beyond the model's is ST_CONFIG_RANGE.
NODISCARD status infer_open(const host *h, arena *a, const char *folder,
                            const infer_options *options, infer **out);
void infer_close(infer *g); // NULL is legal

const decoder_spec *infer_spec(const infer *g);
int64_t infer_arena_bytes(const infer *g);
int64_t infer_length(const infer *g); // tokens taken in so far

// Forgets the text before, takes the prompt (at least one token) and draws the token after it.
NODISCARD status infer_begin(infer *g, const infer_sampling *sampling, const int32_t *ids,
                             int64_t count, int32_t *next);
// Takes one more token, usually the one drawn last, and draws the one after it.
NODISCARD status infer_next(infer *g, int32_t id, int32_t *next);
// The logits (vocab) that the last token was drawn from.
NODISCARD status infer_logits(infer *g, float *out);

#endif
