// Runs one EVALUATE plan with one micro-batch; rows that the caller does not fill have no labels.
#include "infer/evaluate.h"

#include "infer/open.h"

#include <string.h>

struct infer_scorer {
    infer_core c;
    plan *p;
    infer_rows rows;
    float *losses; // (rows, seq) of the last run, in memory of the executor
    step_device *results;
};

static status open_parts(infer_scorer *s, const host *h, arena *a, const char *folder,
                         const infer_options *options, bool documents)
{
    enum { ROWS_MAX = 4096 };
    TRY(infer_core_begin(&s->c, h, a, folder, options));
    TRY(infer_core_context(&s->c, options->context));
    s->rows.rows = max_i64(1, options->slots);
    s->rows.seq = options->context;
    if (s->rows.rows > ROWS_MAX) {
        return fail(ST_CONFIG_RANGE, "%lld rows at once, at most %d", (long long)s->rows.rows,
                    (int)ROWS_MAX);
    }
    const infer_plan_wanted wanted = {.purpose = PURPOSE_EVALUATE,
                                      .sequences = s->rows.rows,
                                      .micro_batch = s->rows.rows,
                                      .seq = s->rows.seq,
                                      .documents = documents,
                                      .losses = true};
    TRY(infer_core_plan(&s->c, &wanted, &s->p));
    const int64_t cells = s->rows.rows * s->rows.seq;
    TRY(arena_new(a, cells, &s->rows.ids));
    TRY(arena_new(a, cells, &s->rows.labels));
    TRY(arena_new(a, cells, &s->rows.positions));
    TRY(arena_new(a, cells, &s->rows.documents));
    TRY(arena_new(a, 1, &s->results));
    const plan *const plans[] = {s->p};
    TRY(infer_core_load(&s->c, folder, plans, 1));
    return exec_host_memory(s->c.e, cells * (int64_t)sizeof(float), (void **)&s->losses);
}

status infer_scorer_open(const host *h, arena *a, const char *folder, const infer_options *options,
                         bool documents, infer_scorer **out)
{
    infer_scorer *s = NULL;
    TRY(arena_new(a, 1, &s));
    const status st = open_parts(s, h, a, folder, options, documents);
    if (st != ST_OK) {
        infer_scorer_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void infer_scorer_close(infer_scorer *s)
{
    if (s != NULL) infer_core_end(&s->c);
}

const infer_rows *infer_scorer_rows(const infer_scorer *s)
{
    return &s->rows;
}

void infer_scorer_row(infer_scorer *s, int64_t row, const int32_t *ids, const int32_t *labels,
                      int64_t count)
{
    const int64_t seq = s->rows.seq, at = row * seq;
    ASSERT(row >= 0 && row < s->rows.rows && count >= 0 && count <= seq);
    for (int64_t t = 0; t < seq; t++) {
        s->rows.ids[at + t] = t < count ? ids[t] : 0;
        s->rows.labels[at + t] = t < count ? labels[t] : -1;
        s->rows.positions[at + t] = (int32_t)t;
        s->rows.documents[at + t] = 0;
    }
}

status infer_scorer_run(infer_scorer *s, int64_t count, infer_score *score, float *losses)
{
    const int64_t seq = s->rows.seq, bytes = s->rows.rows * seq * (int64_t)sizeof(int32_t);
    ASSERT(count >= 1 && count <= s->rows.rows);
    for (int64_t row = count; row < s->rows.rows; row++) infer_scorer_row(s, row, NULL, NULL, 0);
    for (int64_t i = 0; i < count * seq; i++) {
        TRY(infer_core_token_check(&s->c, s->rows.ids[i]));
        if (s->rows.labels[i] >= 0) TRY(infer_core_token_check(&s->c, s->rows.labels[i]));
    }
    exec_input input = {.batch = {{"ids", s->rows.ids, bytes},
                                  {"labels", s->rows.labels, bytes},
                                  {"positions", s->rows.positions, bytes},
                                  {"documents", s->rows.documents, bytes}},
                        .batch_count = 4};
    TRY(infer_core_run(&s->c, s->p, &input));
    int64_t step = 0;
    bool any = false;
    TRY(exec_results(s->c.e, s->results, &step, &any));
    ASSERT(any);
    exact_merge(&score->nats, &s->results->loss_sum);
    score->tokens += s->results->tokens;
    if (losses == NULL) return ST_OK;
    TRY(infer_core_output(&s->c, s->p, 0, s->losses, s->rows.rows * seq * (int64_t)sizeof(float)));
    memcpy(losses, s->losses, (size_t)(count * seq) * sizeof(float));
    return ST_OK;
}
