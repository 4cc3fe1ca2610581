// Several ranks with one model, which layout.tp cuts as in training. All ranks run the same plans
// in the same order and draw the same tokens, because a draw depends on the seed alone. Rank 0
// decides the order and tells it before each step:
//
//   rank 0    BEGIN slot 2: 5 tokens     NEXT slots 0, 2     (idle) WAIT ...     END
//   rank 1    the same prefill           the same decode     still here          returns
//
// A rank that waits for an order sleeps in a broadcast. Rank 0 sends a WAIT about once a second, so
// it learns of a lost rank, and no wait is as long as the deadline of the ranks.
#include "infer/open.h"

#include "assemble/assemble.h"

status infer_layout_check(const decoder_spec *spec, const run_config *layout)
{
    TRY(assemble_layout_check(layout, spec));
    if (layout->layout.tp == 1 || spec->latent.kv_rank == 0) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "layout.tp = %lld: a cache of latent attention is not cut over ranks yet; use "
                "layout.tp=1",
                (long long)layout->layout.tp);
}

void infer_ranks_begin(infer_core *c, const infer_options *o)
{
    c->layout = o->layout;
    c->ranks = o->ranks;
    if (c->ranks == NULL) return;
    ASSERT(o->layout != NULL && comm_ranks(o->ranks) == o->layout->layout.tp);
    c->mesh = run_config_mesh(o->layout, comm_rank(o->ranks));
    c->places.mesh = c->mesh;
}

status infer_ranks_cut(infer_core *c, op_model *whole, op_model **own)
{
    op_model *of_tp = NULL;
    *own = whole;
    if (c->layout == NULL) return ST_OK;
    const op_cuts cuts = assemble_cuts(c->layout, &c->spec, &c->mesh, false);
    ASSERT(!cuts.tp.rows); // a sequence has one row, which every rank computes
    return op_model_cut(c->a, whole, &cuts, &of_tp, own);
}

status infer_ranks_fit(infer_core *c, const plan *const *plans, int64_t count)
{
    const int64_t bytes = plan_arena_bytes(&c->run, plans, count);
    int32_t lacks = bytes > c->memory_limit_bytes;
    char needed[32], free[32];
    TRY(comm_all_reduce(comm_world(c->ranks), &lacks, 1, DTYPE_I32, REDUCTION_MAX,
                        "whether the model fits", __func__));
    if (lacks == 0) return ST_OK;
    return fail(ST_DOES_NOT_FIT,
                "a rank needs %s, and each may take %s of the memory of its host or GPU",
                text_bytes_human(bytes, needed), text_bytes_human(c->memory_limit_bytes, free));
}

status infer_ranks_device(infer_core *c, exec_config *wanted)
{
    TRY(exec_groups_make(c->a, c->ranks, &c->mesh, &c->run, &c->groups));
    wanted->groups = c->groups;
    c->shared.ranks = c->ranks;
    exec_memory_share(&c->shared, wanted);
    return ST_OK;
}

void infer_ranks_end(infer_core *c)
{
    exec_groups_destroy(c->groups, &c->run);
    c->groups = NULL;
}

status infer_ranks_share(const infer_core *c, void *data, int64_t bytes)
{
    if (c->ranks == NULL) return ST_OK;
    return comm_pass(comm_world(c->ranks), COLLECTIVE_BROADCAST, 0, data, bytes,
                     "what rank 0 does next", __func__);
}
