// Measures the speeds of a processor's operations, as the catalogue stores them, inside training
// steps.
//
// A kernel that is called again and again finds its operands in the nearest cache and its threads
// awake. In a step it does not, and reaches a fifth less. So the prices of `simulate` come from
// steps: two models, a narrow and a wide one, in fp32 and bf16, and the wide one on few tokens.
// Speeds that fall with size have two unknowns (the speed of large sizes, and the size at half of
// it), and two runs give two equations. Threads that share a GEMM wait for each other, which ranks
// of one thread do not: `team` is that cost.
#include "cli/bench/bench.h"

#include "cost/cost.h"
#include "model/model.h"
#include "op/op.h"

#include <pthread.h>
#include <string.h>

enum { NARROW, WIDE, SHORT, MODELS, WARMUP = 2, STEPS = 4 };

typedef struct sums {
    double gemm_s, gemm_flops;     // forward and gradients of inputs
    double weight_s, weight_flops; // gradients of weights: sums over tokens, with small outputs
    double attention_s[2], attention_flops[2];
    double pointwise_s, pointwise_bytes;
} sums;

#define WIDE_KEYS \
    "model.layers=2", "model.dim=576", "model.heads=9", "model.kv_heads=9", "model.ffn_dim=1536"

static const struct {
    const char *preset, *keys[12];
    // GEMMs of dim x ffn in a layer, in addition to four of dim x dim
    int64_t dim, ffn, gemms, seq, tokens;
} models[MODELS] = {
    {"gpt2-tiny",
     {"model.layers=3", "model.dim=128", "model.heads=2", "model.ffn_dim=512", "train.seq=128",
      "train.global_batch=12", "train.micro_batch=12"},
     128,
     512,
     2,
     128,
     1536},
    {"tiny",
     {WIDE_KEYS, "train.seq=512", "train.global_batch=2", "train.micro_batch=2"},
     576,
     1536,
     3,
     512,
     1024},
    {"tiny",
     {WIDE_KEYS, "train.seq=128", "train.global_batch=1", "train.micro_batch=1"},
     576,
     1536,
     3,
     128,
     128},
};

static status step_measure(const bench_context *c, arena *a, int model, const char *precision,
                           int threads, train_bench *out)
{
    const char *keys[COUNT_OF(models[0].keys) + 8];
    int64_t count = 0;
    char *pair = NULL;
    run_config *r = NULL;
    config *made = NULL;
    decoder_spec spec;
    cli_context *cli = c->cli;
    while (count < COUNT_OF(models[0].keys) && models[model].keys[count] != NULL) {
        keys[count] = models[model].keys[count];
        count++;
    }
    TRY(arena_format(a, &pair, "model.preset=%s", models[model].preset));
    keys[count++] = pair;
    TRY(arena_format(a, &pair, "train.precision=%s", precision));
    keys[count++] = pair;
    TRY(arena_format(a, &pair, "kernels.threads=%d", threads));
    keys[count++] = pair;
    keys[count++] = "model.head_dim=64";
    keys[count++] = "data.train=random"; // never opened, but a run must have some data
    keys[count++] = "data.valid=0";
    keys[count++] = "eval.every=0";
    TRY(arena_new(a, 1, &r));
    TRY(run_config_load(cli->h, a, NULL, keys, count, r, &made));
    TRY(model_spec_from_config(cli->h, a, r, &spec));
    const bool brief = c->flags->size > 0 && c->flags->size < (1 << 20);
    return train_bench_steps(cli->h, a, r, &spec, brief ? 1 : WARMUP, brief ? 1 : STEPS, out);
}

static op_code code_of(const char *name)
{
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        if (strcmp(op_kind_of((op_code)code)->name, name) == 0) return (op_code)code;
    }
    return OP_CODE_COUNT; // a row without an operation
}

static void part_add(sums *s, const train_part *p)
{
    const op_code code = code_of(p->name);
    if (code == OP_CODE_COUNT) return;
    const op_kind *kind = op_kind_of(code);
    const bool is_gemm = kind->gemm != NULL && kind->logits == LOGITS_NONE;
    if (is_gemm && kind->grad_of == GRAD_OF_WEIGHT) {
        s->weight_s += p->seconds;
        s->weight_flops += p->flops;
    } else if (is_gemm) {
        s->gemm_s += p->seconds;
        s->gemm_flops += p->flops;
    } else if (kind->cost_class == COST_ATTENTION) {
        const int backward = kind->grad_of != GRAD_OF_NONE;
        s->attention_s[backward] += p->seconds;
        s->attention_flops[backward] += p->flops;
    } else if (kind->pointwise) {
        s->pointwise_s += p->seconds;
        s->pointwise_bytes += p->bytes;
    }
}

static double gemms_s(const sums *s)
{
    return s->gemm_s + s->weight_s;
}

static double gemms_flops(const sums *s)
{
    return s->gemm_flops + s->weight_flops;
}

static double rate(double amount, double seconds)
{
    return seconds > 0.0 ? amount / seconds : 0.0;
}

// FLOPs of a layer's GEMMs, each divided by the share of the best speed that its two sizes reach.
static double work_of(int model, double half_a, double half_b)
{
    const double d = (double)models[model].dim, f = (double)models[model].ffn;
    const double square = d / (d + half_a) * (d / (d + half_b));
    const double oblong =
        (d / (d + half_a) * (f / (f + half_b)) + f / (f + half_a) * (d / (d + half_b))) / 2.0;
    return 4.0 * d * d / square + (double)models[model].gemms * d * f / oblong;
}

// Slowdown of a model's GEMMs by their sizes: 1 is none.
static double slowed(int model, double half_a, double half_b)
{
    return work_of(model, half_a, half_b) / work_of(model, 0.0, 0.0);
}

enum { HALF_MOST = 256, HALVINGS = 40 };

// n and k at half speed: the value with which both models have the same best speed. 0 if the narrow
// model is no slower.
static double half_find(const double speed[MODELS])
{
    double low = 0.0, high = HALF_MOST;
    for (int i = 0; i < HALVINGS; i++) {
        const double half = (low + high) / 2.0;
        const bool more =
            speed[NARROW] * slowed(NARROW, half, half) < speed[WIDE] * slowed(WIDE, half, half);
        *(more ? &low : &high) = half;
    }
    return low;
}

// Rows at half speed: from share = T / (T + half) of a run on `few` tokens and one on `many`.
static double tokens_half(double speed_few, double few, double speed_many, double many)
{
    const double ratio = rate(speed_many, speed_few); // many (few + h) / (few (many + h))
    if (ratio <= 1.0) return 0.0;
    if (ratio >= 0.9 * many / few) return 9.0 * many; // no faster than in proportion to the tokens
    return few * many * (ratio - 1.0) / (many - few * ratio);
}

static void speeds_make(const sums s[2][MODELS], bench_speeds *out)
{
    double gemm[MODELS], attention[MODELS];
    for (int k = 0; k < MODELS; k++) {
        const sums *fp32 = &s[0][k], *bf16 = &s[1][k];
        gemm[k] = rate(gemms_flops(fp32) + gemms_flops(bf16), gemms_s(fp32) + gemms_s(bf16));
        attention[k] = rate(s[0][k].attention_flops[0] + s[0][k].attention_flops[1],
                            s[0][k].attention_s[0] + s[0][k].attention_s[1]);
    }
    const double few = (double)models[SHORT].tokens, many = (double)models[WIDE].tokens;
    const double rows = tokens_half(gemm[SHORT], few, gemm[WIDE], many);
    for (int k = 0; k < MODELS; k++) gemm[k] *= 1.0 + rows / (double)models[k].tokens;
    const double half = half_find(gemm);
    out->gemm_rows_half = rows;
    out->gemm_half = half;
    out->attention_half = tokens_half(attention[NARROW], (double)models[NARROW].seq,
                                      attention[WIDE], (double)models[WIDE].seq);
    double pointwise[MODELS]; // of both types
    for (int k = 0; k < MODELS; k++) {
        pointwise[k] = rate(s[0][k].pointwise_bytes / 4.0 + s[1][k].pointwise_bytes / 2.0,
                            s[0][k].pointwise_s + s[1][k].pointwise_s);
    }
    out->pointwise_half = tokens_half(pointwise[NARROW], (double)models[NARROW].dim,
                                      pointwise[WIDE], (double)models[WIDE].dim);
    const double tokens = 1.0 + out->attention_half / (double)models[WIDE].seq;
    for (int type = 0; type < 2; type++) {
        const sums *wide = &s[type][WIDE];
        const double width = type == 0 ? 4.0 : 2.0;
        // Gradients of weights have the model's sizes as rows, and sum over tokens.
        const double slow = slowed(WIDE, half, half) * (1.0 + rows / many);
        const double slow_weight = slowed(WIDE, rows, half) * (1.0 + half / many);
        out->gemm[type] = rate(wide->gemm_flops * slow + wide->weight_flops * slow_weight,
                               wide->gemm_s + wide->weight_s);
        out->pointwise[type] = rate(wide->pointwise_bytes / width, wide->pointwise_s) *
                               (1.0 + out->pointwise_half / (double)models[WIDE].dim);
    }
    for (int k = 0; k < 2; k++) { // both types together: they differ by less than the noise
        out->attention[k] = rate(s[0][WIDE].attention_flops[k] + s[1][WIDE].attention_flops[k],
                                 s[0][WIDE].attention_s[k] + s[1][WIDE].attention_s[k]) *
                            tokens;
    }
}

// One run of steps; out: receives the sums.
typedef struct job {
    const bench_context *c;
    int model, threads;
    const char *precision;
    sums *out;
    status st;
} job;

static status job_steps(const job *j, arena *a)
{
    train_bench *b = NULL;
    TRY(arena_new(a, 1, &b));
    TRY(step_measure(j->c, a, j->model, j->precision, j->threads, b));
    for (int i = 0; i < b->parts.count; i++) part_add(j->out, &b->parts.rows[i]);
    return ST_OK;
}

static void *job_run(void *argument)
{
    job *j = argument;
    arena *a = NULL;
    j->st = arena_create("calibration", 0, &a);
    if (j->st == ST_OK) j->st = job_steps(j, a);
    arena_destroy(a);
    return NULL;
}

// One thread each, all at the same time, like ranks.
static status alone_measure(const bench_context *c, int model, sums *out)
{
    pthread_t threads[KERN_MAX_THREADS];
    job jobs[KERN_MAX_THREADS];
    sums each[KERN_MAX_THREADS];
    status st = ST_OK;
    int begun = 0;
    memset(each, 0, sizeof(each));
    for (; begun < c->threads; begun++) {
        jobs[begun] = (job){c, model, 1, "fp32", &each[begun], ST_OK};
        if (pthread_create(&threads[begun], NULL, job_run, &jobs[begun]) != 0) break;
    }
    for (int i = 0; i < begun; i++) {
        (void)pthread_join(threads[i], NULL);
        if (jobs[i].st != ST_OK) st = jobs[i].st;
        out->gemm_s += gemms_s(&each[i]) / begun;
    }
    if (begun < c->threads)
        return fail(ST_NO_MEMORY, "cannot start %d threads for a measurement", c->threads);
    return st == ST_OK ? ST_OK : fail(st, "a step on one thread cannot be measured");
}

status bench_calibrate(const bench_context *c, bench_speeds *out)
{
    // A small --size requests a quick measurement, one below 1 MiB (step_measure) a brief one.
    const int rounds = c->flags->size > 0 && c->flags->size < (64 << 20) ? 1 : 3;
    static const char *const precisions[2] = {"fp32", "bf16"};
    sums all[2][MODELS], one[MODELS];
    memset(all, 0, sizeof(all));
    memset(one, 0, sizeof(one));
    // Alternates between models, so that drift of the machine affects all.
    for (int i = 0; i < rounds * MODELS; i++) {
        const int k = i % MODELS;
        for (int type = 0; type < 2; type++) {
            job j = {c, k, c->threads, precisions[type], &all[type][k], ST_OK};
            (void)job_run(&j);
            TRY(j.st);
        }
        if (k != SHORT) TRY(alone_measure(c, k, &one[k]));
    }
    speeds_make((const sums(*)[MODELS])all, out);
    const double alone = (one[NARROW].gemm_s + one[WIDE].gemm_s) / c->threads;
    const double together = gemms_s(&all[0][NARROW]) + gemms_s(&all[0][WIDE]);
    out->team = rate(alone, together);
    if (out->team > 1.0) out->team = 1.0;
    return ST_OK;
}
