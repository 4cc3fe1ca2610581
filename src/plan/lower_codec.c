// Lowering, gradients that travel compressed: the same sums at the same places of the step, with a
// residual per sum (a run tensor, cut over the ranks, so checkpoints have it), one tensor that all of
// them work in, for their lane is in order, and a table of what each of them lost.
//
// The table is added over the ranks before the step's sums are, and read back with its results: so every
// rank sees the same numbers for the same step, and can draw the same conclusion.
#include "plan/lower.h"

#include <stdio.h>
#include <string.h>

// That the sum is over.
static int32_t ranks_of(const lowering *l, const plan_comm *c)
{
    return (int32_t)plan_group_size(&l->r->mesh, &l->p->run->groups[c->group]);
}

static status feedback_add(lowering *l, plan_comm *c, const char *name)
{
    const plan_codec *codec = l->r->codec;
    const int32_t ranks = ranks_of(l, c);
    const int64_t bytes = codec->feedback_bytes(codec->context, c->total, ranks, c->piece);
    c->feedback = -1;
    if (bytes == 0) return ST_OK;
    plan_tensor t = {.type = DTYPE_U8,
                     .ndim = 2,
                     .dims = {1, bytes},
                     .kind = BYTES_GRADIENTS,
                     .role = ROLE_STATE,
                     .weight = -1,
                     .bytes = align_up(bytes, ALIGN_TENSOR),
                     .piece_rows = 1,
                     .pieces = ranks};
    (void)snprintf(t.name, sizeof(t.name), PLAN_FEEDBACK "%s.%.70s", codec->name, name);
    return lower_run_tensor(l->p->run, &t, &c->feedback);
}

// In use from the first sum on, as gradients are: until all sums are known to be done.
static status work_add(lowering *l, plan_comm *c)
{
    const plan_codec *codec = l->r->codec;
    const int32_t ranks = ranks_of(l, c);
    const int64_t bytes = codec->work_bytes(codec->context, c->total, ranks, c->piece);
    if (l->codec_work < 0) {
        const plan_tensor t = {.name = "compression.work",
                               .type = DTYPE_U8,
                               .ndim = 1,
                               .kind = BYTES_GRADIENTS,
                               .weight = -1};
        TRY(plan_tensor_push(l->p, &t, &l->codec_work));
    }
    plan_tensor *t = &l->p->tensors[l->codec_work];
    t->dims[0] = max_i64(t->dims[0], bytes);
    t->bytes = align_up(t->dims[0], ALIGN_TENSOR);
    c->work = l->codec_work;
    return lower_touch(l, l->codec_work);
}

status lower_codec_sum(lowering *l, plan_comm *c, const char *name)
{
    if (l->r->codec == NULL) return ST_OK;
    if (c->type != DTYPE_F32 || c->leaves_count > 0) {
        return fail(ST_INTERNAL, "%s of %s in order cannot be compressed", c->name,
                    dtype_name(c->type));
    }
    for (int32_t i = 0; i < c->items_count; i++) c->total += l->p->items[c->items_begin + i].count;
    c->compressed = true;
    c->bucket = l->p->bucket_count++;
    (void)snprintf(c->name, sizeof(c->name), "%s", name);
    TRY(feedback_add(l, c, name));
    return work_add(l, c);
}

status lower_codec_losses(lowering *l, plan_comm *c, bool *any)
{
    *any = l->r->codec != NULL && l->p->bucket_count > 0;
    if (!*any) return ST_OK;
    const int64_t reals = l->r->codec->reals, count = reals * l->p->bucket_count;
    plan_tensor t = {.name = "compression.losses",
                     .type = DTYPE_F64,
                     .ndim = 2,
                     .dims = {l->p->bucket_count, reals},
                     .kind = BYTES_BUFFERS,
                     .role = ROLE_ACTIVATION,
                     .weight = -1,
                     .bytes = align_up(count * (int64_t)sizeof(double), ALIGN_TENSOR)};
    TRY(lower_run_tensor(l->p->run, &t, &l->p->losses));
    l->p->codec = l->r->codec->name;
    l->p->codec_reals = (int32_t)reals;
    *c = (plan_comm){.op = PLAN_ALL_REDUCE,
                     .reduction = PLAN_SUM,
                     .group = l->groups[KIND_DENSE].data,
                     .type = DTYPE_F64,
                     .name = "losses of compression"};
    const plan_comm_item item = {.in = l->p->losses, .out = l->p->losses, .count = count};
    return lower_item_push(l, c, &item);
}
