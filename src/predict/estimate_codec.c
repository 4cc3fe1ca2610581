// Estimates compressed gradients in closed form: the time of their sums and the bytes that are kept
// from step to step. Lowering decides which sums there are (collect_codec.c): per layer one for
// tensors cut over tp and one for whole ones; for rows that ZeRO cuts one per weight, and one more
// across if rows have copies.
#include "predict/estimate_internal.h"

const plan_codec *estimate_codec_of(const estimate *e, const estimate_layout *l)
{
    return l->dp > 1 || e->r.cp > 1 ? e->r.codec : NULL;
}

int64_t estimate_sum_ns(const plan_codec *codec, const cost_model *m, const cost_group *g,
                        int64_t count, int64_t piece)
{
    if (g->ranks < 2) return 0;
    const int64_t stream = codec->stream_bytes(codec->context, count, (int32_t)g->ranks, piece);
    return cost_compressed_ns(m, g, stream, piece > 0);
}

// ---- kept bytes --------------------------------------------------------------------------------

// The sums of one rank of the pipeline.
typedef struct rank_sums {
    const estimate *e;
    const estimate_layout *l;
    const plan_codec *codec;
    plan_mesh mesh;
    bool bidirectional;
    int64_t count, residuals; // bytes
} rank_sums;

static void sum_add(rank_sums *s, int64_t count, int64_t ranks, int64_t piece)
{
    if (ranks < 2) return;
    const int64_t bytes = s->codec->feedback_bytes(s->codec->context, count, (int32_t)ranks, piece);
    s->count++;
    s->residuals += bytes > 0 ? align_up(bytes, ALIGN_TENSOR) : 0;
}

// Number of ranks with other rows of the batch; for experts, of ranks with the same experts. In a
// bidirectional pipeline, over two stages.
static int64_t data_ranks(const rank_sums *s, bool is_shared_out)
{
    const int64_t all = (int64_t)s->l->dp * max_i64(s->e->r.cp, 1);
    return (is_shared_out ? plan_expert_size(&s->mesh) : all) * (s->bidirectional ? 2 : 1);
}

// Rows that are cut: sums inside, and across the ranks that keep the same rows.
static void rows_add(rank_sums *s, const op_weight *w, const plan_rows *rows)
{
    const int64_t ways = plan_weight_size(&s->mesh, w);
    const int64_t across = data_ranks(s, plan_is_shared_out(&s->mesh, w)) / ways;
    sum_add(s, w->rows * w->columns, ways, rows->piece * w->columns);
    sum_add(s, rows->piece * w->columns, across, 0);
}

// `there`: programs on the rank; a weight of several programs is counted once, with the first.
static void layer_add(rank_sums *s, int32_t program, const bool *there)
{
    enum { KINDS = 2 };
    const program_estimate *p = &s->e->programs[program];
    int64_t whole[KINDS][SORT_COUNT] = {{0}};
    for (int32_t i = 0; i < p->weight_count; i++) {
        const program_weight *x = &p->weights[i];
        const op_weight *w = &s->e->m->weights[x->row];
        const plan_sort sort = plan_sort_of(w);
        if (!x->has_grad || (x->other_holder >= 0 && there[x->other_holder]) || sort == SORT_PLAIN)
            continue;
        const bool all = estimate_updates_whole(&s->e->r.states, w);
        const plan_rows rows = plan_rows_of(&s->mesh, s->l->zero, w, all);
        if (rows.cut && !s->bidirectional) {
            rows_add(s, w, &rows);
        } else {
            whole[plan_is_shared_out(&s->mesh, w) ? 1 : 0][sort] += w->rows * w->columns;
        }
    }
    for (int i = 0; i < KINDS * SORT_COUNT; i++) {
        const int64_t count = whole[i / SORT_COUNT][i % SORT_COUNT];
        if (count > 0) sum_add(s, count, data_ranks(s, i >= SORT_COUNT), 0);
    }
}

static rank_sums sums_of(const estimate *e, const estimate_layout *l, int32_t pp)
{
    rank_sums s = {.e = e,
                   .l = l,
                   .codec = estimate_codec_of(e, l),
                   .mesh = estimate_mesh(e, l),
                   .bidirectional = l->schedule != NULL && l->schedule->shape == SHAPE_TWO};
    bool there[ESTIMATE_PROGRAMS] = {false};
    for (int32_t again = 0; again < 2; again++) {
        for (int32_t c = 0; c < l->chunks; c++) {
            const int32_t stage = estimate_stage_of(l, pp, c);
            for (int32_t i = l->first_layer[stage]; i < l->first_layer[stage + 1]; i++) {
                const int32_t program = e->m->layers[i].program;
                if (again == 0) there[program] = true;
                if (again == 1) layer_add(&s, program, there);
            }
        }
    }
    return s;
}

void estimate_codec_run(const estimate *e, const estimate_layout *l, int32_t pp, kinds *run)
{
    const plan_codec *codec = estimate_codec_of(e, l);
    int64_t most = 0;
    if (codec == NULL) return;
    for (int32_t r = 0; r < l->pp; r++) { // a row of the table for each sum of the fullest stage
        const rank_sums s = sums_of(e, l, r);
        most = max_i64(most, s.count);
        if (r == pp) run->at[PLAN_BYTES_GRADIENTS] += s.residuals;
    }
    const int64_t row = (int64_t)codec->reals * (int64_t)sizeof(double);
    if (most > 0) run->at[PLAN_BYTES_BUFFERS] += align_up(l->pp * most * row, ALIGN_TENSOR);
}
