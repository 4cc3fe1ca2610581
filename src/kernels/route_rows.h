// The rows over which the loss that balances experts is even: those of a token's sequence, or of
// all sequences of the call.
//
// A rank that has pieces of sequences (op/pass/context.h, op/pass/partition.h) also has `whole`:
// the choices of all tokens of these sequences, one sequence after the other. Choices are counted,
// so the order of the tokens within a sequence changes no bit.
#ifndef KERNELS_ROUTE_ROWS_H
#define KERNELS_ROUTE_ROWS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct route_rows {
    int64_t sets; // with one loss each: sequences, or one
    int64_t own;  // rows of a set that the call has; the last set may have fewer
    int64_t all;  // rows of a set in `choices`
    const kern_tensor *choices;
} route_rows;

static inline route_rows route_rows_of(const kern_call *c, const kern_tensor *ids,
                                       const kern_tensor *whole)
{
    route_rows r;
    const int64_t rows = ids->dims[0];
    r.own = c->attrs.aux_micro || c->seq < 1 ? rows : c->seq;
    if (r.own < 1) r.own = 1;
    r.sets = (rows + r.own - 1) / r.own;
    r.all = r.own;
    r.choices = ids;
    if (whole->data == NULL) return r;
    r.all = r.sets > 0 ? whole->dims[0] / r.sets : 0;
    r.choices = whole;
    return r;
}

// The operand `whole` of ROUTE_BWD and of STEP_ROUTES.
static inline const kern_tensor *route_whole(const kern_call *c)
{
    return &c->in[c->code == OP_ROUTE_BWD ? 4 : 3];
}

#ifdef __cplusplus
}
#endif
#endif
