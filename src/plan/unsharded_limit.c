// Gathered weights and unsharded gradients that other software holds (ZeRO-2, ZeRO-3).
//
// A plan holds two layers' gathered weights and one layer's unsharded gradients. DeepSpeed gathers
// and sums weight by weight: it limits the elements of gathered weights
// (stage3_max_live_parameters), though a single weight may be larger; and it copies a gradient to a
// bucket of limited size (reduce_bucket_size), which is an additional allocation, or sums a larger
// gradient in place. If the bytes at a moment are o + w + g (others, gathered weights, unsharded
// gradients), that software has o + min(w, W) + min(g, G). The plan records its largest sums with
// and without w and g (plan.live_without). Each of these is an upper bound of the other software's
// peak:
//
//   max(o + w + g)    max(o + g) + W    max(o + w) + G    max(o) + W + G
//
// The function takes the least of them and subtracts the difference to the plan's peak from the
// weights first.
#include "plan/plan.h"

#include <string.h>

void plan_unsharded_spare(const int64_t without[PLAN_UNSHARDED_COUNT], const int64_t unsharded[2],
                          const int64_t most[2], int64_t spared[2])
{
    int64_t least = without[0];
    for (uint32_t bits = 1; bits < PLAN_UNSHARDED_COUNT; bits++) {
        int64_t held = without[bits];
        for (int i = 0; i < 2; i++) {
            if ((bits & 1u << i) == 0) continue;
            held = most[i] > INT64_MAX - held ? INT64_MAX : held + most[i];
        }
        least = min_i64(least, held);
    }
    int64_t all = without[0] - least;
    for (int i = 0; i < 2; i++) {
        spared[i] = min_i64(all, max_i64(unsharded[i] - most[i], 0));
        all -= spared[i];
    }
}

int64_t plan_unsharded_most(const plan_unsharded_limits *limits, int which, int64_t largest,
                            dtype type)
{
    const int64_t width = dtype_bytes(type);
    if (which == 0) {
        return limits->weights > 0 ? max_i64(largest, limits->weights * width) : INT64_MAX;
    }
    return limits->gradients > 0 ? largest + limits->gradients * width : INT64_MAX;
}

void plan_memory_spared(const plan *p, const plan_unsharded_limits *limits,
                        int64_t spared[PLAN_BYTES_COUNT])
{
    const plan_kind_of_bytes kinds[2] = {PLAN_BYTES_WEIGHTS, PLAN_BYTES_GRADIENTS};
    int64_t most[2], unsharded[2], largest[2] = {0}, out[2] = {0};
    dtype type[2] = {DTYPE_F32, DTYPE_F32};
    memset(spared, 0, PLAN_BYTES_COUNT * sizeof(*spared));
    for (int64_t k = 0; k < p->tensor_count; k++) {
        const plan_tensor *t = &p->tensors[k];
        const int i = t->kind == PLAN_BYTES_WEIGHTS ? 0 : 1;
        if (!t->is_unsharded || t->bytes <= largest[i]) continue;
        largest[i] = t->bytes;
        type[i] = t->type;
    }
    for (int i = 0; i < 2; i++) {
        unsharded[i] = p->unsharded_by_kind[kinds[i]];
        most[i] = plan_unsharded_most(limits, i, largest[i], type[i]);
    }
    plan_unsharded_spare(p->live_without, unsharded, most, out);
    for (int i = 0; i < 2; i++) spared[kinds[i]] = out[i];
}
