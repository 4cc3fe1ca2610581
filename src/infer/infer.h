// Generation with the trainer's own programs, plans, executor and kernels.
//
// PREFILL processes a prompt, a chunk of tokens at a time. DECODE extends the sequence, a token at
// a time. Several sequences run in one batch, each in its own slot. All plans share weights and the
// KV cache, which are run tensors of one arena. The program plans all memory before the first
// token, so it refuses a request that does not fit before it starts.
//
// With `strict` a sequence and its logits have the same bits alone or with others, in any slot,
// with any number of slots and threads and any chunk. Its random draws always depend only on its
// seed and on the number of its earlier draws.
#ifndef INFER_INFER_H
#define INFER_INFER_H

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "exec/exec.h"
#include "model/model.h"

typedef struct infer infer;

typedef struct infer_options {
    int threads;                      // 0: one per core
    const char *device, *backend;     // NULL: "cpu"; that of device cuda is cuda
    int ordinal;                      // of several GPUs, for one rank alone
    bool by_calls;                    // on a GPU steps are posted call by call, without graphs
    const struct cuda_driver *driver; // of device cuda; NULL: libcuda
    dtype compute;                    // type of weights, cache and activations
    int64_t context;                  // longest sequence, prompt and continuation together
    int64_t chunk;                    // tokens of a prompt per PREFILL; 0: chosen from the context
    int64_t slots;                    // sequences at once; 0: 1
    // Tokens that the cache holds, of all sequences together, in pages that sequences share; 0:
    // each slot has `context` tokens of its own. With pages use infer_fits and infer_slot_end.
    int64_t cache;
    bool logits; // true if infer_logits will be called
    bool strict;
    int64_t memory_limit_bytes; // 0: the memory of the machine, or of its GPU
    // For measurements, where infer_open gets no folder: this model with initial values.
    const decoder_spec *fresh;
    uint64_t fresh_seed;
    const char *level;   // NULL: the machine's
    bool scores;         // the model is a reward model; otherwise those are refused
    const char *adapter; // folder of PEFT with an adapter for the model; NULL: none
    // Folders of adapters that take turns (infer_adapter_use); at first none is used.
    const char *const *adapters;
    int64_t adapter_count;
    trace_ring *trace; // trace of every run; NULL: none
    // The keys layout.tp, determinism.tp_shards and determinism.etp_shards, for infer_open alone;
    // NULL: one rank and whole sums. The others of it are not read.
    const run_config *layout;
    // The layout.tp ranks that share the model, each of which opens it with equal options; NULL:
    // this one alone. The calls of rank 0 decide what all do; the others call infer_follow.
    comm *ranks;
} infer_options;

// Adds the adapter to the spec of a model: that of the folder itself, or `adapter`.
NODISCARD status infer_adapter_read(const host *h, arena *a, const char *folder,
                                    const char *adapter, decoder_spec *spec);

// Rules for choosing the next token: temperature 0 takes the best one. A filter is off at 0, top_p
// at 1.
typedef struct infer_sampling {
    double temperature;
    int64_t top_k;
    double top_p, min_p;
    uint64_t seed;
} infer_sampling;

// `folder` holds a config.json with either a native checkpoint (manifest.json) or Hugging Face
// weights; NULL: options->fresh. `a` holds everything but the device arena. A context beyond the
// model's is ST_CONFIG_RANGE.
NODISCARD status infer_open(const host *h, arena *a, const char *folder,
                            const infer_options *options, infer **out);
void infer_close(infer *g); // NULL is legal

const decoder_spec *infer_spec(const infer *g);
int64_t infer_slots(const infer *g);
const plan *infer_decode_plan(const infer *g); // the plan of an infer_next call
int64_t infer_peak_bytes(const infer *g);
int64_t infer_length(const infer *g, int64_t slot); // tokens in the slot's sequence so far

// ---- one sequence, in slot 0 --------------------------------------------------------------------
// Drops the sequence before, processes the prompt (at least one token) and draws the next token.
NODISCARD status infer_begin(infer *g, const infer_sampling *sampling, const int32_t *ids,
                             int64_t count, int32_t *next);
// Appends one token, usually the one drawn last, and draws the next one.
NODISCARD status infer_next(infer *g, int32_t id, int32_t *next);
// The logits (vocab) of the slot's last draw. Needs options.logits.
NODISCARD status infer_logits(const infer *g, int64_t slot, float *out);

typedef struct infer_likely {
    int32_t id;
    double log_p; // natural logarithm of its probability, without temperature and filters
} infer_likely;
// At the slot's last draw: out[0] is the token `id`, and out[1 .. count] are the most probable
// tokens, the best first and equal ones by id. Needs options.logits; count is at most the
// vocabulary's size.
void infer_slot_likely(const infer *g, int64_t slot, int32_t id, int64_t count, infer_likely *out);

// ---- several sequences at once ------------------------------------------------------------------
// With options.logits, a prompt that a slot has, or had last, is not computed again: its keys and
// the logits after it are taken over, with the same bits.
NODISCARD status infer_slot_begin(infer *g, int64_t slot, const infer_sampling *sampling,
                                  const int32_t *ids, int64_t count, int32_t *next);
int64_t infer_kept_tokens(const infer *g); // of prompts that were not computed again
// Whether there are pages for one more sequence with this prompt. If no slot has a sequence, there
// always are.
bool infer_fits(infer *g, const int32_t *ids, int64_t count);
typedef struct infer_turn {
    int64_t slot; // each at most once in a call
    int32_t id;   // the token to append
    int32_t next; // the token drawn after it; -1: none, there was no page for it
} infer_turn;
// Extends each of these slots by one token; the other slots do not change. Where pages run out, the
// slots that began last are put back: they give up their pages and draw nothing. Such a turn is
// made again until there are pages and the sequence was computed again, and draws then. The slot
// that began first is never put back.
NODISCARD status infer_slots_next(infer *g, infer_turn *turns, int64_t count);
// The slot's sequence is over. It keeps the pages of its prompt while no other needs them.
NODISCARD status infer_slot_end(infer *g, int64_t slot);
typedef struct infer_cache {
    int64_t tokens, used; // of all pages, and of those that are in use; 0: there are no pages
    int64_t put_back;     // sequences, since the beginning
} infer_cache;
infer_cache infer_cache_counted(const infer *g);

// The adapter of options.adapters for all sequences that begin from now on; -1: none. No sequence
// may be continued that began with another.
NODISCARD status infer_adapter_use(infer *g, int64_t index);

// ---- several ranks ------------------------------------------------------------------------------
// Without options.ranks these functions do nothing.
// Refuses a layout that the model's shapes do not allow.
NODISCARD status infer_layout_check(const decoder_spec *spec, const run_config *layout);
// A rank other than 0: does what rank 0 does, until infer_dismiss.
NODISCARD status infer_follow(infer *g);
// Rank 0: ends infer_follow on the others.
NODISCARD status infer_dismiss(infer *g);
// Rank 0, about once a second while it has nothing to do: fails if another rank is lost.
NODISCARD status infer_wait(infer *g);

// ---- a list of prompts --------------------------------------------------------------------------
typedef struct infer_prompt {
    const int32_t *ids; // borrowed
    int64_t count, max_tokens;
    infer_sampling sampling;
} infer_prompt;

typedef struct infer_watcher {
    void *context;
    // Called before prompt `index` is processed; may be NULL.
    status (*begun)(void *context, int64_t index);
    // Prompt `index` drew a token. Set *ends to end its sequence before max_tokens.
    status (*drawn)(void *context, int64_t index, int32_t id, bool *ends);
    bool (*stop)(void *context); // called before each step; true ends all; NULL: never
} infer_watcher;

// Prompts start in their order, each as soon as a slot is free.
NODISCARD status infer_run(infer *g, const infer_prompt *prompts, int64_t count,
                           const infer_watcher *watcher);

#endif
