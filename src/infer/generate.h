// The state of generation: slots, plans and inputs of a step. Private to generate.c and pages.c.
#ifndef INFER_GENERATE_H
#define INFER_GENERATE_H

#include "exec/pages.h"
#include "infer/open.h"

enum { INFER_PARAMS = 8 };

typedef struct infer_held {
    int32_t *text; // the sequence's tokens
    int32_t length;
    int64_t draws;
    int64_t table_seq; // the length of the rotary table that rotated its cached keys
    int32_t prompt;    // its first tokens, after which `first` has the logits; 0: nothing is kept
    int32_t prefilled; // its first tokens, which were processed at once
    // With pages: the number of its begin, whether it has begun and not ended, and whether it was
    // put back, so that it has no page.
    int64_t age;
    bool is_live, is_back;
    int32_t target; // tokens that it had when it was put back; it draws again behind them
} infer_held;

struct infer {
    infer_core c;
    int64_t slot_count, chunk;
    infer_held *slots;
    plan **plans; // [0]: decode; [1 + slot]: prefill; with pages [1]: prefill of any slot
    int64_t plan_count;
    int64_t table_seq; // the length of the rotary table on the device
    float *logits;     // (slots, vocab) logits of each slot's last draw, or NULL
    // Tokens and logits of the last run, in memory of the executor.
    int32_t *drawn;
    float *logits_run;
    float *first; // (slots, vocab) logits after each slot's prompt, or NULL
    exec_caches caches;
    exec_pages pages; // count 0: none
    bool *gone;       // [slot]
    int64_t begun, put_back;
    void *draw_space; // of a draw from `first`
    int64_t draw_bytes, kept_tokens;
    infer_turn **pending, *heard; // heard: turns that rank 0 told
    infer_turn **oldest;          // turns by age
    // Inputs of a step: prefill has rows of a chunk for each slot, decode has one row.
    int32_t *ids, *positions, *lengths, *rows;
    float *params;
    int64_t *draws;
};

// True if the slot, extended by one token, needs the same rotary table as `seq` tokens.
static inline bool infer_table_fits(const infer *g, const infer_held *s, int64_t seq)
{
    return !model_rope_changes(&g->c.spec, seq, s->length + 1);
}

// Returns a slot with the keys and the logits of this prompt, whatever followed it there; -1: none.
int64_t infer_prompt_find(const infer *g, const int32_t *ids, int64_t count);

// ---- pages.c, where the cache has pages ---------------------------------------------------------
// The slot gives up its pages and gets those for its prompt. The first `start` tokens are in pages
// of slot `from`; the others will be computed.
NODISCARD status infer_pages_begin(infer *g, int64_t b, int64_t from, int64_t start, int64_t count);
// Returns how many of the prompt's first tokens need not be computed, because slot *from has them.
int64_t infer_prefix_find(const infer *g, const int32_t *ids, int64_t count, int64_t *from);
// Sees to the pages of all turns, the oldest sequence first, and marks those without by next = -1.
NODISCARD status infer_pages_turns(infer *g, infer_turn *turns, int64_t count);
void infer_pages_end(infer *g, int64_t b);

#endif
