// `bench generate`: the speed of decoding one sequence, token by token, and its share of the memory
// bandwidth. With one sequence a token reads every weight once and uses it once, so the bytes of
// the weights are the only limit.
//
// A model with random weights, without a folder. The benchmark decodes drawn tokens as `generate`
// does, with its temperature and no filter: that is the draw that reads the whole vocabulary.
//
// Other tenants of the machine share its memory: the same copy took 21 to 39 GB/s within some
// minutes. So the benchmark alternates between copies and tokens, one copy after every few tokens,
// and the share compares the median token with the median copy. Both read huge pages. The bandwidth
// of a copy counts reads and writes, so a token may exceed it: reading alone is up to a tenth
// faster.
#include "base/rng.h"
#include "cli/bench/bench.h"
#include "infer/infer.h"
#include "model/model.h"

enum { WARMUP = 4, COPY_EVERY = 5, TOKENS_DEFAULT = 100, CONTEXT_DEFAULT = 64 };

typedef struct generate_result {
    train_time token;
    train_parts parts;
    int64_t weight_bytes, peak_bytes, rss_bytes;
    train_time copy; // seconds per byte
    double peak_flops, copy_bytes_per_s;
    double tokens_per_s, weight_bytes_per_s, share;
    const char *what;
} generate_result;

typedef struct generating {
    cli_context *cli;
    infer *g;
    trace_ring *trace;
    train_windows windows;
    int64_t context, tokens; // of the prompt; that are measured
    train_copy copy;
    double *copies; // seconds per byte
    int64_t copy_count;
} generating;

// Bytes of weights that one run of the plan reads: all except the rows of lookup tables.
static int64_t weight_bytes_of(const plan *p)
{
    int64_t bytes = 0;
    extent_binding bound = {{0}};
    bound.value[EXTENT_ONE] = 1;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *action = &p->actions[i];
        if (action->kind != ACTION_COMPUTE || action->layer < 0) continue;
        const op_program *program = p->bindings[action->binding].program;
        for (int64_t k = 0; k < action->ops_count; k++) {
            const op_node *node = &program->lists[action->list].nodes[action->ops_begin + k];
            for (int j = 0; j < OP_MAX_IN; j++) {
                if (node->in[j] == TENSOR_NONE) continue;
                const op_tensor *t = &program->tensors[node->in[j]];
                if (t->role != ROLE_WEIGHT) continue;
                const int64_t all = op_tensor_bytes(t, &bound);
                const bool picks = (op_kind_of(node->code)->picks >> j & 1u) != 0;
                bytes += picks ? all / extent_value(t->dims[0], &bound) : all;
            }
        }
    }
    return bytes;
}

static status prompt_take(generating *v, int64_t vocab, int32_t *next)
{
    const infer_sampling sampling = {.temperature = 0.8, .top_p = 1.0, .seed = 1};
    int32_t *ids = NULL;
    TRY(arena_new(v->cli->a, v->context, &ids));
    for (int64_t i = 0; i < v->context; i++) {
        ids[i] = (int32_t)(rng_word(1, 0, (uint64_t)i) % (uint64_t)vocab);
    }
    return infer_begin(v->g, &sampling, ids, v->context, next);
}

static status copy_once(generating *v)
{
    double speed = 0.0;
    TRY(train_copy_run(&v->copy, 1, &speed));
    v->copies[v->copy_count++] = 1.0 / speed;
    return ST_OK;
}

static status tokens_time(generating *v, int32_t id, double *seconds)
{
    const host *h = v->cli->h;
    int64_t begin = h->api->monotonic_ns(h);
    train_windows_init(&v->windows, v->cli->a, begin);
    for (int64_t i = 0; i < v->tokens; i++) {
        if (i % COPY_EVERY == 0) {
            TRY(copy_once(v));
            begin = h->api->monotonic_ns(h);
            train_windows_resume(&v->windows, begin);
        }
        TRY(infer_next(v->g, id, &id));
        const int64_t end = h->api->monotonic_ns(h);
        seconds[i] = (double)(end - begin) / 1e9;
        TRY(train_windows_trace(&v->windows, v->trace));
        TRY(train_windows_close(&v->windows, end));
        begin = end;
    }
    return copy_once(v);
}

static status grow(generating *v, const bench_context *c, int64_t vocab, generate_result *out)
{
    int32_t id = 0;
    double *seconds = NULL;
    trace_record rest[64];
    TRY(arena_new(v->cli->a, v->tokens, &seconds));
    TRY(arena_new(v->cli->a, v->tokens / COPY_EVERY + 2, &v->copies));
    TRY(prompt_take(v, vocab, &id));
    for (int i = 0; i < WARMUP; i++) TRY(infer_next(v->g, id, &id));
    while (trace_take(v->trace, rest, COUNT_OF(rest)) > 0) {
    }
    out->rss_bytes = bench_resident_bytes(); // everything except the copies' memory
    TRY(train_copy_open(v->cli->h, c->kernels, c->flags->size, &v->copy));
    const status st = tokens_time(v, id, seconds);
    train_copy_close(&v->copy);
    TRY(st);
    out->token = train_time_of(seconds, v->tokens);
    out->copy = train_time_of(v->copies, v->copy_count);
    out->copy_bytes_per_s = 1.0 / out->copy.median_s;
    out->weight_bytes = weight_bytes_of(infer_decode_plan(v->g));
    out->peak_bytes = infer_peak_bytes(v->g);
    return train_parts_make(infer_decode_plan(v->g), &v->windows, &out->parts);
}

static status measure(bench_context *c, generate_result *out)
{
    cli_context *cli = c->cli;
    const bench_flags *f = c->flags;
    decoder_spec spec;
    generating v = {.cli = cli,
                    .context = f->context > 0 ? f->context : CONTEXT_DEFAULT,
                    .tokens = f->repeats > 0 ? f->repeats : TOKENS_DEFAULT};
    TRY(model_spec_from_config(cli->h, cli->a, c->config, &spec));
    const infer_options options = {.threads = c->threads,
                                   .compute = bench_type(f->precision),
                                   .context = v.context + WARMUP + v.tokens,
                                   .fresh = &spec,
                                   .fresh_seed = 1,
                                   .level = kern_context_level(c->kernels)};
    infer_options traced = options;
    // Two plans share the ring: the prefill ends before the first measured token.
    enum { RING = 1 << 14 };
    TRY(trace_create(cli->h, RING, &v.trace));
    traced.trace = v.trace;
    status st = infer_open(cli->h, cli->a, NULL, &traced, &v.g);
    if (st == ST_OK) st = grow(&v, c, spec.vocab, out);
    infer_close(v.g);
    trace_destroy(v.trace);
    return st;
}

static status machine_measure(bench_context *c, generate_result *g)
{
    bench_peak peak = {0};
    char *what = NULL;
    TRY(bench_peak_measure(c, bench_type(c->flags->precision), &peak));
    g->peak_flops = peak.flops;
    g->tokens_per_s = 1.0 / g->token.median_s;
    g->weight_bytes_per_s = (double)g->weight_bytes / g->token.median_s;
    g->share = g->weight_bytes_per_s / g->copy_bytes_per_s;
    TRY(arena_format(c->cli->a, &what, "%s  %s, after %lld tokens", c->config->model.preset,
                     bench_types[c->flags->precision],
                     (long long)(c->flags->context > 0 ? c->flags->context : CONTEXT_DEFAULT)));
    g->what = what;
    return ST_OK;
}

static status print_json(const bench_context *c, const generate_result *g)
{
    text t = {.a = c->cli->a};
    TRY(text_add(&t, "{\"tokens_per_s\": %.6g, \"token_s\": %.9g, \"token_s_min\": %.9g, ",
                 g->tokens_per_s, g->token.median_s, g->token.min_s));
    TRY(text_add(&t, "\"token_s_max\": %.9g, \"tokens\": %lld,\n ", g->token.max_s,
                 (long long)g->token.count));
    TRY(text_add(&t, "\"weight_bytes\": %lld, \"weight_bytes_per_s\": %.6g, ",
                 (long long)g->weight_bytes, g->weight_bytes_per_s));
    TRY(text_add(&t, "\"copy_bytes_per_s\": %.6g, \"copy_bytes_per_s_min\": %.6g, ",
                 g->copy_bytes_per_s, 1.0 / g->copy.max_s));
    TRY(text_add(&t, "\"copy_bytes_per_s_max\": %.6g, \"copies\": %lld, \"share\": %.6g,\n ",
                 1.0 / g->copy.min_s, (long long)g->copy.count, g->share));
    TRY(text_add(&t, "\"bench\": \"generate\", \"what\": "));
    TRY(text_add_json(&t, g->what));
    TRY(text_add(&t, ", \"threads\": %d, \"level\": \"%s\", ", c->threads,
                 kern_context_level(c->kernels)));
    TRY(text_add(&t, "\"peak_bytes\": %lld, \"rss_bytes\": %lld,\n \"peak_flops\": %.6g, ",
                 (long long)g->peak_bytes, (long long)g->rss_bytes, g->peak_flops));
    TRY(bench_parts_json(&t, &g->parts, g->peak_flops, g->copy_bytes_per_s));
    TRY(text_add(&t, "}\n"));
    cli_print_text(c->cli, &t);
    return ST_OK;
}

static void print_table(const bench_context *c, const generate_result *g)
{
    char bytes[32], rss[32], weights[32];
    cli_context *cli = c->cli;
    cli_print(cli, "model     %s, %d threads, %s\n", g->what, c->threads,
              kern_context_level(c->kernels));
    cli_print(cli, "token     %.4g ms (%.4g to %.4g)   %.1f tok/s\n", 1e3 * g->token.median_s,
              1e3 * g->token.min_s, 1e3 * g->token.max_s, g->tokens_per_s);
    cli_print(cli, "weights   %s a token, %.4g GB/s: %.1f%% of a copy\n",
              text_bytes_human(g->weight_bytes, weights), g->weight_bytes_per_s / 1e9,
              100.0 * g->share);
    cli_print(cli, "copy      %.4g GB/s (%.4g to %.4g), %lld in turn with the tokens\n",
              g->copy_bytes_per_s / 1e9, 1e-9 / g->copy.max_s, 1e-9 / g->copy.min_s,
              (long long)g->copy.count);
    cli_print(cli, "memory    %s planned and used, %s resident\n",
              text_bytes_human(g->peak_bytes, bytes), text_bytes_human(g->rss_bytes, rss));
    bench_parts_print(cli, "token", &g->parts, g->peak_flops, g->copy_bytes_per_s);
}

status bench_generate(bench_context *c)
{
    generate_result *g = NULL;
    TRY(arena_new(c->cli->a, 1, &g));
    TRY(measure(c, g));
    TRY(machine_measure(c, g));
    if (c->flags->json) {
        TRY(print_json(c, g));
    } else {
        print_table(c, g);
    }
    const bench_row row = {.name = "token", .median_s = g->token.median_s};
    return bench_compare(c, g->what, &row, 1);
}
