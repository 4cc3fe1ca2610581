// Attention of 16-bit types on GPUs of compute capability 9.0: products by groups of four warps
// (wgmma), whole tiles by one instruction (TMA). A block has 128 queries of a head and goes over
// the keys in tiles of 128. Two groups have 64 queries each; a third one, the producer, only starts
// copies, one tile ahead.
//
//   shared memory   queries (2, 64, D) | keys (128, D), values (128, D) | the same again | barriers
//
//   producer        waits until keys, then values, of a stage are free; announces and copies a tile
//   groups          scores of tile n and results of tile n - 1 are computed at the same time; while
//                   the results are, the group takes the softmax of the scores
//
// Rows of D numbers lie as D / 64 pieces of rows of 64 (dev_sm90.h). Each sum has a fixed order:
// keys rise. Sources: Shah 2024, arXiv:2407.08608 (the overlap); NVIDIA, PTX ISA 9.0.
#include "kernels/cuda/attention_wgmma.h"

// Products of 64 queries and 128 keys, not scaled yet.
DEV_INLINE void wgmma_scores(dev_half type, int dim, uint64_t queries, uint64_t keys,
                             float p[WGMMA_KEY_TILES][4])
{
    DEV_UNROLL
    for (int k = 0; k < dim / 16; k++) {
        const int at = k % 4 * 32; // within a row of 64
        dev_group_product_shared(type, WGMMA_KEY_TILES, p,
                                 dev_matrix_at(queries, k / 4 * WGMMA_GROUP_ROWS * 128 + at),
                                 dev_matrix_at(keys, k / 4 * WGMMA_KEYS * 128 + at), k > 0);
    }
    dev_group_commit();
}

DEV_INLINE void wgmma_values(dev_half type, int dim, uint32_t p[WGMMA_KEYS / 16][4],
                             uint64_t values, float (*out)[4])
{
    DEV_UNROLL
    for (int k = 0; k < WGMMA_KEYS / 16; k++) {
        dev_group_product(type, dim / 8, out, p[k], dev_matrix_at(values, k * 16 * 128));
    }
    dev_group_commit();
}

// -infinity where a key is not seen. t: the warp's first query.
DEV_INLINE void wgmma_mask(const cuda_attention_args *a, int t, int key,
                           float p[WGMMA_KEY_TILES][4])
{
    if (wgmma_sees_all(a, t, 16, key, WGMMA_KEYS)) return;
    const wgmma_sight sight = wgmma_sight_of(a, false, t);
    DEV_UNROLL
    for (int n = 0; n < WGMMA_KEY_TILES; n++) {
        DEV_UNROLL
        for (int i = 0; i < 2; i++) {
            const int at = key + mma_lane_column(n) + i;
            const int64_t document = wgmma_document(a, at);
            DEV_UNROLL
            for (int r = 0; r < 2; r++) {
                if (!wgmma_sees(&sight, r, at, document)) p[n][2 * r + i] = -INFINITY;
            }
        }
    }
}

DEV_INLINE void wgmma_cap(const cuda_wgmma_more *m, float p[WGMMA_KEY_TILES][4])
{
    if (!(m->cap > 0.0f)) return;
    DEV_UNROLL
    for (int i = 0; i < WGMMA_KEY_TILES * 4; i++) {
        p[i / 4][i % 4] = m->cap * wgmma_tanh(p[i / 4][i % 4] * m->to_cap);
    }
}

DEV_INLINE void wgmma_drop(const cuda_wgmma_more *m, const uint32_t kept[2],
                           float p[WGMMA_KEY_TILES][4])
{
    DEV_UNROLL
    for (int i = 0; i < WGMMA_KEY_TILES * 4; i++) {
        const bool keeps = (kept[i / 32] >> i % 32 & 1u) != 0;
        p[i / 4][i % 4] = keeps ? p[i / 4][i % 4] * m->keep : 0.0f;
    }
}

// Replaces products by probabilities relative to the highest one so far. scale: of the products,
// with log2 e. factor: of what was summed before. The sums are those of the lane alone.
DEV_INLINE void wgmma_softmax(float scale, mma_state *state, float p[WGMMA_KEY_TILES][4],
                              float factor[2])
{
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        float highest = state->highest[r], sum = 0.0f;
        DEV_UNROLL
        for (int n = 0; n < WGMMA_KEY_TILES; n++) {
            highest = fmaxf(highest, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
        }
        highest = fmaxf(highest, dev_shuffle_xor(highest, 1));
        highest = fmaxf(highest, dev_shuffle_xor(highest, 2));
        const float base = highest == -INFINITY ? 0.0f : highest * scale; // exp2 of -infinity is 0
        factor[r] = dev_exp2(dev_fma(state->highest[r], scale, -base));
        DEV_UNROLL
        for (int n = 0; n < WGMMA_KEY_TILES; n++) {
            p[n][2 * r] = dev_exp2(dev_fma(p[n][2 * r], scale, -base));
            p[n][2 * r + 1] = dev_exp2(dev_fma(p[n][2 * r + 1], scale, -base));
            sum += p[n][2 * r] + p[n][2 * r + 1];
        }
        state->sum[r] = state->sum[r] * factor[r] + sum;
        state->highest[r] = highest;
    }
}

DEV_INLINE void wgmma_rescale(int dim, float (*out)[4], const float factor[2])
{
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) out[i / 4][i % 4] *= factor[i % 4 / 2];
}

DEV_INLINE void wgmma_probabilities(dev_half type, float p[WGMMA_KEY_TILES][4],
                                    uint32_t out[WGMMA_KEYS / 16][4])
{
    DEV_UNROLL
    for (int k = 0; k < WGMMA_KEYS / 16; k++) tile_as_a(type, &p[2 * k], out[k]);
    dev_group_operands(WGMMA_KEYS / 16, out);
}

// The barriers of a block, at the end of shared memory.
typedef struct wgmma_barriers {
    uint64_t queries, keys[2], values[2]; // are there
    uint64_t keys_free[2], values_free[2];
} wgmma_barriers;

// The thread of the producer that works.
DEV_INLINE void wgmma_produce(int dim, const cuda_wgmma_args *w, const wgmma_walk *walk,
                              char *shared, wgmma_barriers *b)
{
    const int bytes = WGMMA_KEYS * dim * 2, sequence = (int)dev_block(2);
    char *const stages = shared + WGMMA_ROWS * dim * 2;
    dev_phase_expect(&b->queries, WGMMA_ROWS * dim * 2);
    for (int i = 0; i < 2 * dim / 64; i++) {
        const int group = i / (dim / 64), piece = i % (dim / 64);
        dev_tile_copy(shared + i * WGMMA_GROUP_ROWS * 128, &w->maps[0], piece * 64, walk->head,
                      walk->first + group * WGMMA_GROUP_ROWS, sequence, &b->queries);
    }
    for (int n = 0; n < walk->tiles; n++) {
        char *const stage = stages + n % 2 * 2 * bytes;
        const int parity = n / 2 % 2 ^ 1; // of the phase before this one
        for (int i = 0; i < 2; i++) {
            uint64_t *const there = i == 0 ? &b->keys[n % 2] : &b->values[n % 2];
            dev_phase_wait(i == 0 ? &b->keys_free[n % 2] : &b->values_free[n % 2], parity);
            dev_phase_expect(there, bytes);
            for (int piece = 0; piece < dim / 64; piece++) {
                dev_tile_copy(stage + i * bytes + piece * WGMMA_KEYS * 128, &w->maps[1 + i],
                              piece * 64, walk->kv, walk->begin + n * WGMMA_KEYS, sequence, there);
            }
        }
    }
}

// Products of a tile of keys, from `key` on, become the probabilities that values are multiplied
// with; factor: of the results so far.
DEV_INLINE void wgmma_scores_end(const cuda_wgmma_args *w, bool with_more, int head, int t, int key,
                                 float scale, mma_state *state, float p[WGMMA_KEY_TILES][4],
                                 float factor[2])
{
    if (with_more) wgmma_cap(&w->more, p);
    wgmma_mask(&w->call, t, key, p);
    wgmma_softmax(scale, state, p, factor);
    if (!with_more) return;
    const uint32_t kept[2] = {wgmma_kept(w, head, false, t, key),
                              wgmma_kept(w, head, false, t, key + 64)};
    wgmma_drop(&w->more, kept, p);
}

DEV_INLINE void wgmma_consume(dev_half type, int dim, bool with_more, const cuda_wgmma_args *w,
                              const wgmma_walk *walk, char *shared, wgmma_barriers *b,
                              float (*out)[4])
{
    const int group = dev_thread() / DEV_GROUP, bytes = WGMMA_KEYS * dim * 2;
    char *const rows = shared + group * WGMMA_GROUP_ROWS * dim * 2;
    char *const stages = shared + WGMMA_ROWS * dim * 2;
    const int t = walk->first + mma_warp_row();
    const uint64_t queries = dev_matrix(rows, 0);
    const cuda_attention_args *const a = &w->call;
    const float scale = a->scale * MMA_LOG2_E;
    mma_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    float p[WGMMA_KEY_TILES][4], factor[2];
    uint32_t left[WGMMA_KEYS / 16][4];
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) out[i / 4][i % 4] = 0.0f;
    dev_phase_wait(&b->queries, 0);
    dev_phase_wait(&b->keys[0], 0);
    dev_group_fence();
    wgmma_scores(type, dim, queries, dev_matrix(stages, 0), p);
    dev_group_wait(0);
    dev_group_sums(WGMMA_KEY_TILES, p);
    wgmma_free(&b->keys_free[0]);
    wgmma_scores_end(w, with_more, walk->head, t, walk->begin, scale, &state, p, factor);
    wgmma_probabilities(type, p, left);
    for (int n = 1; n < walk->tiles; n++) {
        const int at = n % 2, before = at ^ 1;
        const char *const values = stages + before * 2 * bytes + bytes;
        dev_phase_wait(&b->keys[at], n / 2 % 2);
        dev_group_fence();
        wgmma_scores(type, dim, queries, dev_matrix(stages + at * 2 * bytes, 0), p);
        dev_phase_wait(&b->values[before], (n - 1) / 2 % 2);
        dev_group_fence();
        wgmma_values(type, dim, left, dev_matrix(values, WGMMA_KEYS * 128), out);
        dev_group_wait(1);
        dev_group_sums(WGMMA_KEY_TILES, p);
        wgmma_free(&b->keys_free[at]);
        wgmma_scores_end(w, with_more, walk->head, t, walk->begin + n * WGMMA_KEYS, scale, &state,
                         p, factor);
        dev_group_wait(0);
        dev_group_sums(dim / 8, out);
        wgmma_free(&b->values_free[before]);
        wgmma_rescale(dim, out, factor);
        wgmma_probabilities(type, p, left);
    }
    const int last = (walk->tiles - 1) % 2;
    dev_phase_wait(&b->values[last], (walk->tiles - 1) / 2 % 2);
    dev_group_fence();
    wgmma_values(type, dim, left, dev_matrix(stages + last * 2 * bytes + bytes, WGMMA_KEYS * 128),
                 out);
    dev_group_wait(0);
    dev_group_sums(dim / 8, out);
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        state.sum[r] += dev_shuffle_xor(state.sum[r], 1);
        state.sum[r] += dev_shuffle_xor(state.sum[r], 2);
        state.highest[r] *= scale;
    }
    dev_part_barrier(1 + group, DEV_GROUP); // the group's queries become its results
    const dev_span span = wgmma_span(a);
    mma_end(type, dim, a, &span, t, walk->head, &state, shared, out);
}

DEV_INLINE void wgmma_forward(dev_half type, int dim, bool with_more, const cuda_wgmma_args *w,
                              float (*out)[4])
{
    char *const shared = (char *)dev_shared();
    wgmma_barriers *const b =
        (wgmma_barriers *)(void *)(shared + (WGMMA_ROWS + 4 * WGMMA_KEYS) * dim * 2);
    const wgmma_walk walk = wgmma_walk_of(&w->call, WGMMA_KEYS);
    if (dev_thread() == 0) {
        dev_phase_init(&b->queries, 1);
        for (int i = 0; i < 2; i++) {
            dev_phase_init(&b->keys[i], 1);
            dev_phase_init(&b->values[i], 1);
            dev_phase_init(&b->keys_free[i], WGMMA_WARPS);
            dev_phase_init(&b->values_free[i], WGMMA_WARPS);
        }
        dev_phase_fence();
    }
    dev_barrier();
    if (dev_thread() >= WGMMA_CONSUMERS) {
        dev_registers_give(24);
        if (dev_thread() == WGMMA_CONSUMERS) wgmma_produce(dim, w, &walk, shared, b);
    } else {
        dev_registers_take(240);
        wgmma_consume(type, dim, with_more, w, &walk, shared, b, out);
    }
}

#define WGMMA_FORWARD(name, type, dim, with_more)                                 \
    DEV_KERNEL_ALONE(cuda_attention_wgmma_##name, cuda_wgmma_args, WGMMA_THREADS) \
    {                                                                             \
        float out[(dim) / 8][4];                                                  \
        if (DEV_SM90) wgmma_forward(type, dim, with_more, &a, out);               \
    }
WGMMA_EACH(WGMMA_FORWARD)
