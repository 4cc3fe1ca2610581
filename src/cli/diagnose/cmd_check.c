// `check`: compares this program with the results of trusted software.
#include "base/format/json.h"
#include "cli/commands.h"
#include "diagnose/check.h"
#include "infer/infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_flags {
    bool json, each;
} check_flags;

static const option rows[] = {
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = (int64_t)offsetof(check_flags, json),
     .default_text = "false",
     .help = "print one JSON object instead of the table"},
    {.key = "each",
     .kind = OPTION_BOOL,
     .offset = (int64_t)offsetof(check_flags, each),
     .default_text = "false",
     .help = "list every gradient, not the worst ones only"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

enum { GENERATED_MAX = 4096 };

// The greedy continuation of generation.json.
typedef struct continuation {
    bool is_there, is_equal, ref_is_equal;
    int64_t count, same; // ids compared, and how many agree before the first difference
    double gap;          // at the first difference, by how much the wanted id's logit is smaller
                         // than the largest, relative to the largest absolute value; 0: none
    int32_t prompt[GENERATED_MAX], ids[GENERATED_MAX];
    int64_t prompt_count;
} continuation;

static status ids_read(const json *list, const char *name, int32_t *out, int64_t *count)
{
    *count = json_count(list);
    if (json_kind_of(list) != JSON_LIST || *count < 1 || *count > GENERATED_MAX) {
        return fail(ST_DAMAGED, "generation.json: %s is not a list of 1 to %d ids", name,
                    GENERATED_MAX);
    }
    for (int64_t i = 0; i < *count; i++) out[i] = (int32_t)json_int(json_at(list, i), -1);
    return ST_OK;
}

static status continuation_read(cli_context *cli, const char *folder, continuation *c)
{
    char *path = NULL;
    file_info info;
    json *root = NULL;
    TRY(path_join(cli->a, folder, "generation.json", &path));
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    c->is_there = true;
    TRY(json_read(cli->h, path, 1 << 24, &root));
    status st = ids_read(json_get(root, "prompt"), "prompt", c->prompt, &c->prompt_count);
    if (st == ST_OK) st = ids_read(json_get(root, "ids"), "ids", c->ids, &c->count);
    json_free(root);
    return st;
}

static status gap_read(cli_context *cli, const infer *g, int32_t wanted, double *gap)
{
    const int64_t vocab = infer_spec(g)->vocab;
    float *logits = NULL;
    double most = 0.0, best = -(double)INFINITY;
    if (wanted < 0 || wanted >= vocab) return fail(ST_DAMAGED, "generation.json: no id %d", wanted);
    TRY(arena_new(cli->a, vocab, &logits));
    TRY(infer_logits(g, 0, logits));
    for (int64_t i = 0; i < vocab; i++) {
        best = fmax(best, (double)logits[i]);
        most = fmax(most, fabs((double)logits[i]));
    }
    *gap = most > 0.0 ? (best - (double)logits[wanted]) / most : 0.0;
    return ST_OK;
}

static status continuation_grow(cli_context *cli, infer *g, continuation *c)
{
    const infer_sampling greedy = {.temperature = 0.0};
    int32_t id = 0;
    TRY(infer_begin(g, &greedy, c->prompt, c->prompt_count, &id));
    c->same = 0;
    for (int64_t i = 0; i < c->count && id == c->ids[i]; i++) {
        c->same++;
        if (i + 1 < c->count) TRY(infer_next(g, id, &id));
    }
    c->gap = 0.0;
    return c->same == c->count ? ST_OK : gap_read(cli, g, c->ids[c->same], &c->gap);
}

static status continuation_run(cli_context *cli, const char *folder, const run_config *r,
                               const char *backend, continuation *c)
{
    infer *g = NULL;
    const infer_options options = {
        .threads = (int)r->kernels.threads,
        .device = strcmp(backend, "ref") == 0 ? "cpu" : run_config_device(r),
        .backend = backend,
        .compute = run_config_types(r).compute,
        .context = c->prompt_count + c->count,
        .logits = true,
        .strict = r->determinism.mode == RUN_STRICT,
    };
    TRY(infer_open(cli->h, cli->a, folder, &options, &g));
    const status st = continuation_grow(cli, g, c);
    infer_close(g);
    return st;
}

// In bf16 and fp16 a continuation may differ from fp32's where two logits are closer than the limit
// of logits, or where the reference kernels differ too.
static status continuation_check(cli_context *cli, const char *folder, const diagnose_check *t,
                                 continuation *c)
{
    const char *backend = run_config_backend(t->config);
    TRY(continuation_read(cli, folder, c));
    if (!c->is_there) return ST_OK;
    if (t->is_narrow) {
        TRY(continuation_run(cli, folder, t->config, "ref", c));
        c->ref_is_equal = c->same == c->count;
    }
    TRY(continuation_run(cli, folder, t->config, backend, c));
    c->is_equal = c->same == c->count;
    return ST_OK;
}

static bool continuation_is_good(const continuation *c, const diagnose_check *t)
{
    const check_item *logits = &t->items[CHECK_LOGITS];
    const bool is_close = logits->is_there && c->gap <= logits->limit;
    return !c->is_there || c->is_equal || (t->is_narrow && (!c->ref_is_equal || is_close));
}

// ---- output -------------------------------------------------------------------------------------

static bool item_is_good(const check_item *item)
{
    return !item->is_there || item->error <= item->limit;
}

static void print_json(cli_context *cli, const diagnose_check *t, const continuation *c, bool ok)
{
    cli_print(cli, "{\"ok\": %s, \"worst\": {", ok ? "true" : "false");
    for (int i = 0; i < CHECK_WHAT_COUNT; i++) {
        const check_item *item = &t->items[i];
        cli_print(cli, "%s\"%s\": ", i == 0 ? "" : ", ", check_what_name((check_what)i));
        if (!item->is_there) {
            cli_print(cli, "null");
        } else {
            cli_print(cli, "%.9g", isfinite(item->error) ? item->error : 1e300);
        }
    }
    cli_print(cli, "}, \"generation_equal\": %s}\n",
              !c->is_there ? "null" : (c->is_equal ? "true" : "false"));
}

static int worse_first(const void *x, const void *y)
{
    const check_gradient *a = x, *b = y;
    return (a->error < b->error) - (a->error > b->error);
}

static void print_gradients(cli_context *cli, const diagnose_check *t, bool each)
{
    enum { SHOWN = 5 };
    const int64_t shown = each ? t->gradient_count : min_i64(SHOWN, t->gradient_count);
    if (t->gradient_count > 0) {
        qsort(t->gradients, (size_t)t->gradient_count, sizeof(*t->gradients), worse_first);
    }
    for (int64_t i = 0; i < shown; i++) {
        cli_print(cli, "    %-9.2e  %s\n", t->gradients[i].error, t->gradients[i].name);
    }
    if (shown < t->gradient_count) {
        cli_print(cli, "    %lld more are smaller\n", (long long)(t->gradient_count - shown));
    }
}

static void print_table(cli_context *cli, const diagnose_check *t, const continuation *c, bool each)
{
    char count[32];
    cli_print(cli, "%s, %s parameters, %lld x %lld tokens%s\n", t->arch,
              text_count_human((double)t->parameters, count), (long long)t->sequences,
              (long long)t->seq,
              t->is_narrow ? "; limits are 4 x the errors of the reference kernels" : "");
    cli_print(cli, "            error      limit\n");
    for (int i = 0; i < CHECK_WHAT_COUNT; i++) {
        const check_item *item = &t->items[i];
        if (!item->is_there) continue;
        cli_print(cli, "%-10s  %-9.2e  %-9.2e  %-4s", check_what_name((check_what)i), item->error,
                  item->limit, item_is_good(item) ? "ok" : "NO");
        cli_print(cli, "%s%s\n",
                  item->where == NULL ? "" : "  worst: ", item->where == NULL ? "" : item->where);
        if (i == CHECK_GRAD) print_gradients(cli, t, each);
    }
    if (c->is_there) {
        cli_print(cli, "generation  %lld of %lld ids   %s\n", (long long)c->same,
                  (long long)c->count, continuation_is_good(c, t) ? "ok" : "NO");
    }
}

static status run(cli_context *cli, const cli_call *call)
{
    const check_flags *f = call->flags;
    const char *folder = call->operands[0];
    diagnose_check t;
    continuation *c = NULL;
    TRY(arena_new(cli->a, 1, &c));
    TRY(diagnose_check_run(cli->h, cli->a, folder, call->keys, call->key_count, &t));
    TRY(continuation_check(cli, folder, &t, c));
    bool ok = continuation_is_good(c, &t);
    for (int i = 0; i < CHECK_WHAT_COUNT; i++) ok = ok && item_is_good(&t.items[i]);
    if (f->json) {
        print_json(cli, &t, c, ok);
    } else {
        print_table(cli, &t, c, f->each);
    }
    if (ok) return ST_OK;
    return fail(ST_ANSWER_NO, "%s: results differ from the reference by more than its limits",
                folder);
}

const cli_command cli_command_check = {
    .name = "check",
    .summary = "compare logits, gradients, steps and generation with reference results",
    .synopsis = "DIR [--json] [--each] [key.path=value ...]",
    .about =
        "DIR holds a model (config.json, model*.safetensors) and the results of trusted software "
        "for it (golden.safetensors, golden.json, optionally generation.json); "
        "tools/make_golden.py makes such a folder for your own model. The exit code is 0 only if all "
        "errors are within the limits that golden.json states, else 8. In bf16 and fp16 a limit is "
        "4 x the error of the reference kernels with the same roundings.",
    .examples = "  trireme check my-model\n"
                "  trireme check my-model train.precision=bf16 train.micro_batch=1\n",
    .flags = &flags,
    .flags_bytes = sizeof(check_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
