// Interface between attention.c, attention_bwd.c and their leaves: one tile of queries of one head.
#ifndef KERNELS_CPU_ATTENTION_H
#define KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/vec_call.h"
#include "op/zigzag.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTENTION_QUERIES = 256,      // of a forward tile, at most
    ATTENTION_QUERIES_BWD = 128,  // of a backward tile
    ATTENTION_STRIDE_BWD = 144,   // of its scores: its queries, made an odd number of lines
    ATTENTION_KEYS = 72,          // of a key tile, at multiples of it; a multiple of 4 and of 6
    ATTENTION_KEYS_WIDE = 36,     // the same for heads wider than 128
    ATTENTION_KEYS_BF16 = 64,     // of a key tile in bf16, half of it for heads wider than 128
    ATTENTION_QUERIES_BF16 = 256, // of a backward tile in bf16, half of it for heads wider than 64
    ATTENTION_STRIDE_BF16 = 288,  // of its weights: an odd number of lines
    ATTENTION_CHUNK = 512         // keys of one task of a single query
};

static inline int64_t attention_key_tile(int64_t dim)
{
    return dim <= 128 ? ATTENTION_KEYS : ATTENTION_KEYS_WIDE;
}

// Largest number of runs of a sequence: queries or keys that are contiguous both in memory and in
// position.
enum { ATTENTION_RUNS = ZIGZAG_MAX_RUNS };

// A tile of queries of one head of one sequence, and all keys of the sequence in the call.
typedef struct cpu_attention_tile {
    int64_t dim, rows;                   // of the tile
    int64_t value_dim, wide;             // columns of values and of y; the larger of both dims
    int64_t position;                    // of its first query among the keys; may be negative
    int64_t keys;                        // of the sequence
    int64_t ways, turns;                 // keys are rows gathered from `ways` ranks (op/zigzag.h)
    zigzag_run key_runs[ATTENTION_RUNS]; // by position; row: counted in keys, as sums are
    int64_t key_run_count;
    const int32_t *pages; // of the sequence, each with `page` rows of k and v; NULL: none
    int64_t page;
    int64_t window;      // 0: none
    float scale, cap;    // cap 0: none
    cpu_span q, k, v, y; // first query's, first key's; y: result, backward: input
    int64_t q_stride, k_stride, v_stride, y_stride;
    float *lse; // of the first query; may be NULL (forward)
    int64_t lse_stride;
    const float *sink; // the score of a key without a value, that all queries see; NULL: none
    const kern_tensor *documents; // NULL: none
    int64_t document_row;         // of position 0
    float dropout;
    dropout_stream stream;
    float *scratch; // cpu_attention_scratch floats
    // Keys and values of the head in fp32, row after row in the order of the call, for all tiles of
    // the head (cpu_attention_packed floats; bf16_panel.inc gives the layout in bf16). A tile packs
    // the keys that are missing: in each run of keys, those below packed[run] are already packed,
    // except for keys that no later tile sees.
    float *packed_k, *packed_v;
    int64_t *packed;
    // Backward. dk and dv are fp32 sums (keys, columns aligned to 16); dk lacks the scale.
    cpu_span dy, dq;
    int64_t dy_stride, dq_stride;
    float *dk, *dv;
} cpu_attention_tile;

// Returns the row of a cache with the key of a sequence, and the number of rows from there on that
// are one after the other.
static inline int64_t attention_page_row(const int32_t *pages, int64_t page, int64_t key,
                                         int64_t *run)
{
    *run = page - key % page;
    return cpu_page_row(pages, page, key);
}

// The same in any call.
static inline int64_t attention_key_row(const cpu_attention_tile *t, int64_t key, int64_t *run)
{
    if (t->pages != NULL) return attention_page_row(t->pages, t->page, key, run);
    return zigzag_row(t->ways, t->turns, t->keys, key, run);
}

// dim: the larger of a head's columns of keys and of values.
int64_t cpu_attention_scratch(int64_t dim, bool backward); // in floats
int64_t cpu_attention_packed(int64_t keys, int64_t dim, int64_t runs);
// Returns the number of runs of keys of a sequence in a call.
int64_t attention_key_runs(const kern_call *call);
// Sets where the tiles of a thread pack the keys of a head; no key is packed yet. Keeps `packed`.
void attention_pack_begin(cpu_attention_tile *tile, float *at, int64_t packed[ATTENTION_RUNS]);

// The bf16 version (attention_bf16.c): whether a call may use it, and its leaves.
typedef void (*attention_leaf)(const cpu_attention_tile *tile);
bool attention_is_bf16(const kern_context *context, const kern_call *call);
void attention_bf16(const cpu_attention_tile *tile);
void attention_bf16_bwd(const cpu_attention_tile *tile);
int64_t attention_bf16_rows(int64_t dim);                   // queries of a backward tile
int64_t attention_bf16_scratch(int64_t dim, bool backward); // in floats
int64_t attention_bf16_packed(int64_t keys, int64_t dim, int64_t runs);

// Returns the term of a sink in a sum of 2^(score - highest), `highest` in units of log 2. The sum
// stays finite, because a query's own key has the term 1.
static inline double attention_sink(float sink, float highest)
{
    return exp((double)sink - (double)highest * 0.69314718055994530942);
}

// One query of each head of a group, against keys begin .. end - 1 of a cache.
typedef struct cpu_attention_chunk {
    int64_t dim, value_dim, heads, begin, end;
    float scale, cap;
    cpu_span q, k, v; // first head's; key 0's
    int64_t k_stride, v_stride;
    const int32_t *pages; // as in cpu_attention_tile
    int64_t page;
    // Results of each head: highest score (in units of log 2), sum, output (value_dim) before the
    // division by the sum.
    float *highest, *sum, *out;
    int64_t head_stride; // between heads' results, in floats
    float *scratch;      // cpu_attention_chunk_scratch floats
} cpu_attention_chunk;

int64_t cpu_attention_chunk_scratch(int64_t dim, int64_t heads);

// Returns the columns of a head of values, and the larger number of columns of a head.
int64_t attention_value_dim(const kern_call *call);
int64_t attention_wide(const kern_call *call);

// The shape of one sequence of a call.
typedef struct attention_sequence {
    int64_t query_row, key_row, keys;
    int64_t position;     // of query 0
    const int32_t *pages; // NULL: key 0 is in row key_row, and the others follow it
} attention_sequence;
// Writes the keys of a sequence, and the documents of all its positions, into the tile.
void attention_keys(const kern_call *call, const kern_tensor *documents, int64_t sequence,
                    int64_t keys, cpu_attention_tile *tile);
// Returns the number of runs of queries of each sequence and stores the runs in their order.
int attention_runs(const kern_call *call, int64_t position, zigzag_run runs[ATTENTION_RUNS]);
int64_t attention_sequences(const kern_call *call);
NODISCARD status attention_check(const kern_call *call, const kern_tensor *k,
                                 const kern_tensor *lengths);
attention_sequence attention_sequence_of(const kern_call *call, const kern_tensor *k,
                                         const kern_tensor *lengths, int64_t sequence);

#ifdef __cplusplus
}
#endif
#endif
