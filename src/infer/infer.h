// Generation with the trainer's own programs, plans, executor and kernels.
//
// A text is taken in by PREFILL, a chunk of tokens at a time, and grown by DECODE, a token at a time.
// Several texts grow side by side, each in a slot of its own. All plans share weights and the cache of
// keys and values, which are run tensors of one arena; all of it is planned before the first token, so
// what would not fit is refused then.
//
// With `strict` a text and its logits have the same bits alone or beside others, in any slot, with any
// number of slots and threads and any chunk. Its random draws follow from its seed and how many it
// drew before, always.
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
    int64_t slots;                // texts grown side by side; 0: 1
    bool logits;                  // infer_logits will be asked for
    bool strict;
    int64_t memory_limit_bytes; // 0: what the machine has
    // For measurements, where infer_open gets no folder: this model with initial values.
    const decoder_spec *fresh;
    uint64_t fresh_seed;
    const kern_level *level; // NULL: the machine's
    trace_ring *trace;       // of every run; NULL: none
} infer_options;

// How the next token is chosen: temperature 0 takes the best one. A filter is off at 0, top_p at 1.
typedef struct infer_sampling {
    double temperature;
    int64_t top_k;
    double top_p, min_p;
    uint64_t seed;
} infer_sampling;

// `folder` holds a config.json with either a checkpoint of ours (manifest.json) or Hugging Face
// weights; NULL: options->fresh. Everything but the arena lies in `a`. A context beyond the model's is ST_CONFIG_RANGE.
NODISCARD status infer_open(const host *h, arena *a, const char *folder,
                            const infer_options *options, infer **out);
void infer_close(infer *g); // NULL is legal

const decoder_spec *infer_spec(const infer *g);
int64_t infer_slots(const infer *g);
const plan *infer_decode_plan(const infer *g); // what a call of infer_next runs
int64_t infer_peak_bytes(const infer *g);
int64_t infer_length(const infer *g, int64_t slot); // tokens taken in so far

// ---- one text, in slot 0 ------------------------------------------------------------------------
// Forgets the text before, takes the prompt (at least one token) and draws the token after it.
NODISCARD status infer_begin(infer *g, const infer_sampling *sampling, const int32_t *ids,
                             int64_t count, int32_t *next);
// Takes one more token, usually the one drawn last, and draws the one after it.
NODISCARD status infer_next(infer *g, int32_t id, int32_t *next);
// The logits (vocab) that the slot's last token was drawn from. Needs options.logits.
NODISCARD status infer_logits(const infer *g, int64_t slot, float *out);

// ---- texts side by side -------------------------------------------------------------------------
NODISCARD status infer_slot_begin(infer *g, int64_t slot, const infer_sampling *sampling,
                                  const int32_t *ids, int64_t count, int32_t *next);
typedef struct infer_turn {
    int64_t slot; // each at most once in a call
    int32_t id;   // the token it takes
    int32_t next; // the token drawn after it
} infer_turn;
// One token more for each of these slots; the others keep what they have.
NODISCARD status infer_slots_next(infer *g, infer_turn *turns, int64_t count);

// ---- a list of prompts --------------------------------------------------------------------------
typedef struct infer_prompt {
    const int32_t *ids; // borrowed
    int64_t count, max_tokens;
    infer_sampling sampling;
} infer_prompt;

typedef struct infer_watcher {
    void *context;
    status (*begun)(void *context, int64_t index); // prompt `index` comes to be taken in; NULL
    // Prompt `index` drew a token. *ends: it is the last one wanted, though max_tokens are not reached.
    status (*drawn)(void *context, int64_t index, int32_t id, bool *ends);
    bool (*stop)(void *context); // asked before each step, true ends all; NULL: never
} infer_watcher;

// Prompts enter in their order, each as soon as a slot is free.
NODISCARD status infer_run(infer *g, const infer_prompt *prompts, int64_t count,
                           const infer_watcher *watcher);

#endif
