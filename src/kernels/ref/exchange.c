// Counts of the rows that go to experts of several ranks, and the offsets of those that come.
#include "kernels/ref/ref.h"

static void put(const kern_tensor *t, int64_t at, int64_t value)
{
    if (t->type == DTYPE_I32) {
        ((int32_t *)t->data)[at] = (int32_t)value;
    } else {
        ((int64_t *)t->data)[at] = value;
    }
}

status ref_count_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *ids = &c->in[0], *counts = &c->out[0];
    const int64_t experts = c->attrs.experts, sequences = counts->dims[0] / c->attrs.ranks;
    for (int64_t r = 0; r < counts->dims[0]; r++) {
        const int64_t rank = r / sequences, each = ids->dims[0] / sequences;
        for (int64_t e = 0; e < experts; e++) {
            int64_t count = 0;
            for (int64_t n = r % sequences * each; n < (r % sequences + 1) * each; n++) {
                for (int64_t t = 0; t < ids->dims[1]; t++) {
                    count += ref_int(ids, ref_offset(ids, n, t)) == rank * experts + e ? 1 : 0;
                }
            }
            put(counts, ref_offset(counts, r, e), count);
        }
    }
    return ST_OK;
}

// Counts the tokens and choices before each one anew.
status ref_limit_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *ids = &c->in[0], *kept = &c->out[0];
    for (int64_t k = 0; k < ids->dims[0] * ids->dims[1]; k++) {
        const int64_t n = k / ids->dims[1], first = n - n % c->attrs.limit_seq;
        const int64_t id = ref_int(ids, ref_offset(ids, n, k % ids->dims[1]));
        int64_t before = 0;
        for (int64_t i = first * ids->dims[1]; i < k; i++) {
            before += ref_int(ids, ref_offset(ids, i / ids->dims[1], i % ids->dims[1])) == id;
        }
        put(kept, ref_offset(kept, n, k % ids->dims[1]), before < c->attrs.limit ? id : -1);
    }
    return ST_OK;
}

status ref_place_experts(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *ids = &c->in[0], *table = &c->in[1], *slots = &c->out[0];
    const int64_t layer = c->layer > 0 ? c->layer : 0;
    for (int64_t k = 0; k < ids->dims[0] * ids->dims[1]; k++) {
        const int64_t n = k / ids->dims[1], t = k % ids->dims[1];
        const int64_t id = ref_int(ids, ref_offset(ids, n, t));
        const double slot = id < 0 ? -1.0 : ref_get(table, layer, id);
        put(slots, ref_offset(slots, n, t), (int64_t)slot);
    }
    return ST_OK;
}

status ref_row_offsets(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *counts = &c->in[0], *offsets = &c->out[0];
    const int64_t experts = c->attrs.experts, sequences = counts->dims[0] / c->attrs.ranks;
    int64_t row = 0;
    put(offsets, 0, 0);
    for (int64_t g = 0; g + 1 < offsets->dims[0]; g++) {
        for (int64_t q = 0; q < sequences; q++) {
            row += ref_int(counts, ref_offset(counts, g / experts * sequences + q, g % experts));
        }
        put(offsets, g + 1, row);
    }
    return ST_OK;
}
