// `bench gemm` and `bench attention`: isolated kernels, at the shapes of training steps.
#include "cli/bench/bench.h"

#include "model/model.h"

#include <string.h>

// ---- output -------------------------------------------------------------------------------------

// A measured kernel. Names are unique within a measurement.
typedef struct kernel_row {
    const char *name, *of; // of: the model, or NULL
    int64_t calls;         // per step; 0: not part of a step
    double flops;          // per call
    train_time time;
} kernel_row;

typedef struct kernel_rows {
    const char *bench, *what;
    kernel_row *all;
    int64_t count, capacity;
    bench_peak peak;
} kernel_rows;

static status row_add(bench_context *c, kernel_rows *rows, const kernel_row *row)
{
    TRY(arena_grow(c->cli->a, (void **)&rows->all, &rows->capacity, rows->count + 1,
                   (int64_t)sizeof(*rows->all)));
    rows->all[rows->count++] = *row;
    // The peak is the best value of any kernel here.
    const double flops = row->flops / row->time.min_s;
    if (flops > rows->peak.gemm) rows->peak.gemm = flops;
    if (flops > rows->peak.flops) rows->peak.flops = flops;
    return ST_OK;
}

static status rows_json(bench_context *c, const kernel_rows *rows)
{
    text t = {.a = c->cli->a};
    TRY(text_add(&t, "{\"bench\": \"%s\", \"what\": ", rows->bench));
    TRY(text_add_json(&t, rows->what));
    TRY(text_add(&t, ", \"threads\": %d, \"level\": \"%s\",\n ", c->threads,
                 kern_context_level(c->kernels)));
    TRY(text_add(&t, "\"peak_flops\": %.6g, \"loop_flops\": %.6g, \"product_flops\": %.6g,\n ",
                 rows->peak.flops, rows->peak.loop, rows->peak.gemm));
    TRY(text_add(&t, "\"rows\": ["));
    for (int64_t i = 0; i < rows->count; i++) {
        const kernel_row *r = &rows->all[i];
        TRY(text_add(&t, "%s\n  {\"name\": ", i == 0 ? "" : ","));
        TRY(text_add_json(&t, r->name));
        if (r->of != NULL) {
            TRY(text_add(&t, ", \"model\": "));
            TRY(text_add_json(&t, r->of));
        }
        if (r->calls > 0) TRY(text_add(&t, ", \"calls\": %lld", (long long)r->calls));
        TRY(text_add(&t, ", \"flops\": %.9g, \"median_s\": %.9g, \"min_s\": %.9g, ", r->flops,
                     r->time.median_s, r->time.min_s));
        TRY(text_add(&t, "\"max_s\": %.9g, \"count\": %lld, ", r->time.max_s,
                     (long long)r->time.count));
        TRY(text_add(&t, "\"flops_per_s\": %.6g, \"share\": %.6g}", r->flops / r->time.median_s,
                     r->flops / r->time.median_s / rows->peak.flops));
    }
    TRY(text_add(&t, "]}\n"));
    cli_print_text(c->cli, &t);
    return ST_OK;
}

static void rows_table(bench_context *c, const kernel_rows *rows)
{
    cli_print(c->cli, "%s, %d threads, %s\n", rows->what, c->threads,
              kern_context_level(c->kernels));
    cli_print(c->cli, "peak %.4g GFLOP/s (register loop %.4g, best GEMM %.4g)\n",
              rows->peak.flops / 1e9, rows->peak.loop / 1e9, rows->peak.gemm / 1e9);
    const char *of = NULL;
    for (int64_t i = 0; i < rows->count; i++) {
        const kernel_row *r = &rows->all[i];
        if (i == 0 || (r->of != NULL && strcmp(r->of, of) != 0)) {
            cli_print(c->cli, "\n%-33s%5s%10s%10s%10s%8s\n", r->of != NULL ? r->of : rows->bench,
                      r->calls > 0 ? "calls" : "", "median ms", "min", "max", "GFLOP/s");
        }
        of = r->of;
        char calls[24] = "";
        if (r->calls > 0) (void)snprintf(calls, sizeof(calls), "%lld", (long long)r->calls);
        const char *name = r->of != NULL ? r->name + strlen(r->of) + 1 : r->name;
        cli_print(c->cli, "%-33s%5s%10.3f%10.3f%10.3f%8.1f%4.0f\n", name, calls,
                  1e3 * r->time.median_s, 1e3 * r->time.min_s, 1e3 * r->time.max_s,
                  r->flops / r->time.median_s / 1e9,
                  100.0 * r->flops / r->time.median_s / rows->peak.flops);
    }
    cli_print(c->cli, "the last column is the share of the peak, in percent, by the median\n");
}

static status rows_end(bench_context *c, const kernel_rows *rows)
{
    bench_row *compared = NULL;
    if (c->flags->json) {
        TRY(rows_json(c, rows));
    } else {
        rows_table(c, rows);
    }
    TRY(arena_new(c->cli->a, rows->count, &compared));
    for (int64_t i = 0; i < rows->count; i++) {
        compared[i] = (bench_row){rows->all[i].name, rows->all[i].time.median_s};
    }
    return bench_compare(c, rows->what, compared, rows->count);
}

static train_bench_on measured_on(const bench_context *c)
{
    return (train_bench_on){.h = c->cli->h,
                            .kernels = c->kernels,
                            .type = bench_type(c->flags->dtype),
                            .repeats = c->flags->repeats};
}

// ---- gemm ---------------------------------------------------------------------------------------

static const char *role_of(op_code code)
{
    const op_kind *kind = op_kind_of(code);
    if (kind->grad_of == GRAD_OF_INPUT) return "dx";
    if (kind->grad_of == GRAD_OF_WEIGHT) return "dw";
    return kind->logits != LOGITS_NONE ? "head" : "forward";
}

static status gemm_run(bench_context *c, const char *model, train_gemm *g, kernel_rows *rows)
{
    const train_bench_on on = measured_on(c);
    char *name = NULL;
    TRY(arena_format(c->cli->a, &name, "%s%s%s %lld x %lld x %lld", model != NULL ? model : "",
                     model != NULL ? " " : "", role_of(g->code), (long long)g->n, (long long)g->m,
                     (long long)g->k));
    TRY(train_gemm_time(&on, g));
    const kernel_row row = {name, model, model != NULL ? g->calls : 0, g->flops, g->time};
    return row_add(c, rows, &row);
}

static status gemm_given(bench_context *c, kernel_rows *rows)
{
    static const op_code codes[] = {OP_MATMUL, OP_MATMUL_DX, OP_MATMUL_DW};
    const bench_flags *f = c->flags;
    for (int i = 0; i < COUNT_OF(codes); i++) {
        train_gemm g = {.code = codes[i],
                        .n = f->n,
                        .m = f->m,
                        .k = f->k,
                        .flops = train_gemm_flops(codes[i], f->n, f->m, f->k)};
        TRY(gemm_run(c, NULL, &g, rows));
    }
    return ST_OK;
}

static status gemm_model(bench_context *c, const char *model, kernel_rows *rows)
{
    enum { BATCH = 4, SEQ = 1024 };
    const int64_t batch = c->flags->batch > 0 ? c->flags->batch : BATCH;
    const int64_t seq = c->flags->seq > 0 ? c->flags->seq : SEQ;
    train_gemm *all = NULL;
    int64_t count = 0;
    decoder_spec spec;
    TRY(model_spec_preset(c->cli->h, c->cli->a, model, &spec));
    TRY(train_gemm_shapes(c->cli->a, &spec, bench_type(c->flags->dtype), batch * seq, seq, &all,
                          &count));
    for (int64_t i = 0; i < count; i++) TRY(gemm_run(c, model, &all[i], rows));
    return ST_OK;
}

status bench_gemm(bench_context *c)
{
    static const char *const models[] = {"gpt2-124m", "llama-135m"};
    const bench_flags *f = c->flags;
    const bool is_given = f->n > 0 || f->m > 0 || f->k > 0;
    kernel_rows rows = {.bench = "gemm"};
    char *what = NULL;
    if (is_given && (f->n == 0 || f->m == 0 || f->k == 0)) {
        return fail(ST_USAGE, "bench gemm takes --n, --m and --k together");
    }
    if (is_given && (f->model != NULL || f->batch > 0 || f->seq > 0)) {
        return fail(ST_USAGE, "bench gemm takes either --n, --m, --k or a model's shapes");
    }
    TRY(arena_format(c->cli->a, &what, "GEMMs, %s", bench_types[f->dtype]));
    rows.what = what;
    TRY(bench_peak_measure(c, bench_type(f->dtype), &rows.peak));
    if (is_given) {
        TRY(gemm_given(c, &rows));
    } else if (f->model != NULL) {
        TRY(gemm_model(c, f->model, &rows));
    } else {
        for (int i = 0; i < COUNT_OF(models); i++) TRY(gemm_model(c, models[i], &rows));
    }
    return rows_end(c, &rows);
}

// ---- attention ----------------------------------------------------------------------------------

static status attention_run(bench_context *c, train_attention *a, kernel_rows *rows)
{
    const train_bench_on on = measured_on(c);
    char *name = NULL;
    TRY(arena_format(c->cli->a, &name, "%s %lld x %lld", a->backward ? "backward" : "forward",
                     (long long)a->batch, (long long)a->seq));
    TRY(train_attention_time(&on, a));
    const kernel_row row = {name, NULL, 0, a->flops, a->time};
    return row_add(c, rows, &row);
}

status bench_attention(bench_context *c)
{
    enum { HEADS = 12, HEAD_DIM = 64 };
    static const int64_t lengths[] = {1024, 4096, 16384};
    const bench_flags *f = c->flags;
    const int64_t heads = f->heads > 0 ? f->heads : HEADS;
    train_attention a = {.batch = f->batch > 0 ? f->batch : 1,
                         .heads = heads,
                         .kv_heads = f->kv_heads > 0 ? f->kv_heads : heads,
                         .head_dim = f->head_dim > 0 ? f->head_dim : HEAD_DIM};
    kernel_rows rows = {.bench = "attention"};
    char *what = NULL;
    if (a.heads % a.kv_heads != 0) {
        return fail(ST_USAGE, "--heads %lld is not a multiple of --kv-heads %lld",
                    (long long)a.heads, (long long)a.kv_heads);
    }
    TRY(arena_format(c->cli->a, &what, "causal attention, %lld heads of %lld, %lld of keys, %s",
                     (long long)a.heads, (long long)a.head_dim, (long long)a.kv_heads,
                     bench_types[f->dtype]));
    rows.what = what;
    TRY(bench_peak_measure(c, bench_type(f->dtype), &rows.peak));
    for (int i = 0; i < (f->seq > 0 ? 1 : COUNT_OF(lengths)); i++) {
        a.seq = f->seq > 0 ? f->seq : lengths[i];
        for (int k = 0; k < 2; k++) {
            a.backward = k == 1;
            TRY(attention_run(c, &a, &rows));
        }
    }
    return rows_end(c, &rows);
}
