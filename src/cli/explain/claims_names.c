// The names that formulas of claims may use.
//
//   GB TB GiB k M G T  minute hour day year  Gbit         bytes, seconds (a year has 365.25 days)
//   "h100".bf16 ... units lanes watts                     a device, SI units, dense
//   "hdr".gbit_s                                          a link: one port, one direction
//   "h100".nvlink, .nic, .nvlink_devices, .devices ...    a cluster: bytes/s of a device, one way
//   "llama3-70b".parameters, .layers, .layer_parameters   a model preset, counted from its program
//   bytes("bf16")  bubble("1f1b", stages, microbatches)   functions of plan/ and base/
//   kept(mtbf, write, restart, interval)  ...
#include "catalog/catalog.h"
#include "cli/explain/claims.h"
#include "cost/failure.h"
#include "model/model.h"
#include "plan/schedule/timeline.h"

#include <string.h>

typedef struct number_row {
    const char *name;
    double value;
} number_row;

static const number_row constants[] = {
    {"k", 1e3},       {"M", 1e6},           {"G", 1e9},          {"T", 1e12},      {"GB", 1e9},
    {"TB", 1e12},     {"GiB", 0x1p30},      {"TFLOPS", 1e12},    {"minute", 60.0}, {"hour", 3.6e3},
    {"day", 86400.0}, {"year", 31557600.0}, {"Gbit", 1e9 / 8.0},
};

// ---- devices, links, clusters -------------------------------------------------------------------

typedef struct field_row {
    const char *name;
    int64_t offset;
    bool is_int32;
} field_row;

#define REAL(n, f)                                     \
    {                                                  \
        n, (int64_t)offsetof(cluster_device, f), false \
    }
#define WHOLE(n, f)                                   \
    {                                                 \
        n, (int64_t)offsetof(cluster_device, f), true \
    }
static const field_row device_fields[] = {
    REAL("fp32", peak_flops[MATH_FP32]),
    REAL("tf32", peak_flops[MATH_TF32]),
    REAL("bf16", peak_flops[MATH_BF16]),
    REAL("fp16", peak_flops[MATH_FP16]),
    REAL("fp8", peak_flops[MATH_FP8]),
    REAL("int8", peak_flops[MATH_INT8]),
    REAL("fp4", peak_flops[MATH_FP4]),
    REAL("bf16_sparse", sparse_flops[MATH_BF16]),
    REAL("fp8_sparse", sparse_flops[MATH_FP8]),
    REAL("int8_sparse", sparse_flops[MATH_INT8]),
    REAL("memory", memory_bytes),
    REAL("usable", usable_bytes),
    REAL("bandwidth", memory_bytes_s),
    REAL("watts", watts),
    WHOLE("units", units),
    WHOLE("lanes", lanes_per_unit),
    WHOLE("matrix_units", matrix_units_per_unit),
    WHOLE("dies", dies),
};
#undef REAL
#undef WHOLE

static double field_value(const field_row *row, const void *of)
{
    const char *at = (const char *)of + row->offset;
    int32_t whole;
    double real;
    if (row->is_int32) {
        memcpy(&whole, at, sizeof(whole));
        return (double)whole;
    }
    memcpy(&real, at, sizeof(real));
    return real;
}

// Bandwidth of the innermost level that ends a node, and of the one between nodes.
static double level_bytes_s(const cluster *c, bool within)
{
    int32_t i = 0;
    while (i + 1 < c->level_count && c->levels[i].devices < c->node.devices) i++;
    if (!within && i + 1 < c->level_count) i++;
    return c->levels[i].bytes_s;
}

static bool cluster_field(const cluster *c, const char *field, double *out)
{
    const number_row rows[] = {{"devices", (double)c->devices},
                               {"node_devices", (double)c->node.devices},
                               {"nvlink_devices", (double)c->levels[0].devices},
                               {"nvlink", level_bytes_s(c, true)},
                               {"nic", level_bytes_s(c, false)},
                               {"mtbf_device_h", c->failures.mtbf_device_h},
                               {"on_demand", c->prices.on_demand_usd_h},
                               {"device_usd", c->prices.device_usd}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, field) != 0) continue;
        *out = rows[i].value;
        return true;
    }
    return false;
}

// ---- models ------------------------------------------------------------------------------------

static bool spec_field(const decoder_spec *s, const char *field, double *out)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"layers", s->layers},     {"dim", s->dim},           {"heads", s->heads},
                {"kv_heads", s->kv_heads}, {"head_dim", s->head_dim}, {"ffn_dim", s->ffn_dim},
                {"vocab", s->vocab},       {"context", s->context}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, field) != 0) continue;
        *out = (double)rows[i].value;
        return true;
    }
    return false;
}

// Elements of the weights whose name has this prefix and that have `dims` dims; 0: any.
static double elements(const op_model *m, const char *begins, int dims)
{
    double sum = 0.0;
    for (int64_t i = 0; i < m->weight_count; i++) {
        const op_weight *w = &m->weights[i];
        if (strncmp(w->name, begins, strlen(begins)) != 0 || (dims > 0 && w->ndim != dims))
            continue;
        sum += (double)w->rows * (double)w->columns;
    }
    return sum;
}

static status model_field(claims_scope *s, const char *name, const char *field, double *out)
{
    decoder_spec spec;
    op_model *m = NULL;
    const model_options options = {.purpose = PURPOSE_TRAIN,
                                   .compute = DTYPE_BF16,
                                   .grad = DTYPE_F32,
                                   .seq = 128,
                                   .sizes_only = true};
    TRY(model_spec_preset(s->h, s->a, name, &spec));
    if (spec_field(&spec, field, out)) return ST_OK;
    arena *a = NULL;
    TRY(arena_create("claims", 0, &a));
    const status st = model_build(a, &spec, &options, &m);
    if (st == ST_OK && strcmp(field, "parameters") == 0) {
        *out = (double)m->parameters;
    } else if (st == ST_OK && strcmp(field, "product_parameters") == 0) {
        *out = (double)m->gemm_parameters;
    } else if (st == ST_OK && strcmp(field, "layer_parameters") == 0) {
        *out = elements(m, "layers.0.", 0);
    } else if (st == ST_OK) { // "vector_parameters": norms and biases
        *out = elements(m, "", 1);
    }
    arena_destroy(a);
    return st;
}

static bool is_of_model(const char *field)
{
    static const char *const counted[] = {"parameters", "product_parameters", "layer_parameters",
                                          "vector_parameters"};
    const decoder_spec none = {0};
    double value;
    if (spec_field(&none, field, &value)) return true;
    for (int64_t i = 0; i < COUNT_OF(counted); i++) {
        if (strcmp(field, counted[i]) == 0) return true;
    }
    return false;
}

// ---- names -------------------------------------------------------------------------------------

static status field_look_up(claims_scope *s, const char *name, const char *field, double *out)
{
    const cluster none = {.level_count = 1};
    const size_t length = strlen(name);
    if (strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".yaml") == 0)) {
        // A file of claims may come from a stranger, so it opens no other files.
        return fail(ST_CONFIG, "\"%s\".%s: claims may name entries of the catalogue, not files",
                    name, field);
    }
    for (int64_t i = 0; i < COUNT_OF(device_fields); i++) {
        if (strcmp(device_fields[i].name, field) != 0) continue;
        cluster_device d;
        TRY(catalog_device_load(s->h, s->a, name, &d));
        *out = field_value(&device_fields[i], &d);
        return ST_OK;
    }
    if (strcmp(field, "gbit_s") == 0) {
        TRY(catalog_link_load(s->h, s->a, name, out));
        *out *= 8e-9;
        return ST_OK;
    }
    if (cluster_field(&none, field, out)) {
        cluster *c = NULL;
        TRY(arena_new(s->a, 1, &c));
        TRY(catalog_cluster_load(s->h, s->a, name, NULL, 0, c));
        (void)cluster_field(c, field, out);
        return ST_OK;
    }
    if (is_of_model(field)) return model_field(s, name, field, out);
    return fail(ST_CONFIG, "\"%s\".%s: no entry of the catalogue has a field \"%s\"", name, field,
                field);
}

static status look_up(void *context, const char *name, const char *field, double *out)
{
    claims_scope *s = context;
    const char *names[CLAIM_LETS + COUNT_OF(constants)];
    int64_t count = 0;
    if (field != NULL) return field_look_up(s, name, field, out);
    for (int32_t i = 0; i < s->let_count; i++) {
        names[count++] = s->lets[i].name;
        if (strcmp(s->lets[i].name, name) != 0) continue;
        *out = s->lets[i].value;
        return ST_OK;
    }
    for (int64_t i = 0; i < COUNT_OF(constants); i++) {
        names[count++] = constants[i].name;
        if (strcmp(constants[i].name, name) != 0) continue;
        *out = constants[i].value;
        return ST_OK;
    }
    const char *near = text_nearest(name, names, count);
    return fail(ST_CONFIG, "unknown name %s%s%s", name, near == NULL ? "" : "; did you mean ",
                near == NULL ? "" : near);
}

// ---- functions ---------------------------------------------------------------------------------

// Share of a step in which a pipeline is idle, the mean of its ranks, without collectives.
// bubble(schedule, stages, microbatches [, chunks [, forward, backward_input, backward_weight]])
enum { ACTIONS_MAX = 1 << 18 }; // a second at most
static status bubble(const formula_value *v, int32_t count, double *out)
{
    const plan_schedule *schedule = plan_schedule_find(v[0].word);
    plan_timeline *t = NULL;
    arena *a = NULL;
    if (schedule == NULL) return fail(ST_CONFIG, "there is no schedule \"%s\"", v[0].word);
    schedule_request r = {.stages = (int32_t)v[1].number,
                          .microbatches = (int32_t)v[2].number,
                          .chunks = schedule->chunks_min};
    timeline_costs costs = {.each = {1, 1, 1}, .optimizer_barrier = true};
    if (count > 3) r.chunks = (int32_t)v[3].number;
    if (count == 7) {
        costs.each =
            (timeline_cost){(int64_t)v[4].number, (int64_t)v[5].number, (int64_t)v[6].number};
    }
    TRY(plan_schedule_check(schedule, &r));
    if ((int64_t)r.stages * r.microbatches * r.chunks > ACTIONS_MAX) {
        return fail(ST_CONFIG, "bubble: more than %d stages x micro-batches x chunks", ACTIONS_MAX);
    }
    TRY(arena_create("bubble", 0, &a));
    const status st = plan_timeline_simulate(a, schedule, &r, &costs, &t);
    if (st == ST_OK) {
        *out = (double)t->bubble / (double)t->length;
    }
    arena_destroy(a);
    return st;
}

static double of_four(int which, const formula_value *v)
{
    switch (which) {
    case 0:
        return cost_kept_share(v[0].number, v[1].number, v[2].number, v[3].number);
    case 1:
        return cost_interval_best(v[0].number, v[1].number);
    case 2:
        return cost_interval_young(v[0].number, v[1].number);
    case 3:
        return cost_poisson_below(v[0].number, (int64_t)v[1].number);
    case 4:
        return (double)cost_spares_for(v[0].number, v[1].number);
    default:
        return cost_out_for((int64_t)v[0].number, v[1].number);
    }
}

// A violation of the assertions of cost/failure.h is an error here.
static status failure_call(const char *function, const formula_value *v, int32_t count, double *out)
{
    static const struct {
        const char *name;
        int32_t count;
    } rows[] = {{"kept", 4},          {"best_interval", 2}, {"young_interval", 2},
                {"poisson_below", 2}, {"spares_for", 2},    {"out_for", 2}};
    for (int32_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, function) != 0 || count != rows[i].count) continue;
        const bool is_share = i >= 4;
        bool good = v[0].word == NULL && v[0].number > 0.0 && (i < 3 || v[0].number < 1e5);
        for (int32_t k = 1; k < count; k++) good = good && v[k].word == NULL && v[k].number >= 0.0;
        if (is_share) good = good && v[1].number > 0.0 && v[1].number < 1.0;
        if (i == 3) good = good && v[1].number < 1e6;
        if (!good) return fail(ST_CONFIG, "%s: a number is out of its limits", function);
        *out = of_four(i, v);
        return ST_OK;
    }
    return fail(ST_CONFIG,
                "there is no function %s of %d arguments; there are abs, best_interval, bubble, "
                "bytes, ceil, exp, floor, if, kept, log, log2, max, min, near, out_for, "
                "poisson_below, round, slowest, spares_for, sqrt, young_interval",
                function, count);
}

static status call(void *context, const char *function, const formula_value *v, int32_t count,
                   double *out)
{
    (void)context;
    if (strcmp(function, "bytes") == 0 && count == 1 && v[0].word != NULL) {
        dtype type;
        if (!dtype_parse(v[0].word, &type)) {
            return fail(ST_CONFIG, "bytes(\"%s\"): there is no such type", v[0].word);
        }
        *out = (double)dtype_bytes(type);
        return ST_OK;
    }
    if (strcmp(function, "bubble") == 0 && (count == 3 || count == 4 || count == 7)) {
        bool good = v[0].word != NULL;
        for (int32_t i = 1; i < count; i++) {
            good = good && v[i].word == NULL && v[i].number >= 0.0 && v[i].number <= 65536.0;
        }
        if (!good) {
            return fail(ST_CONFIG, "bubble: expected a schedule, then whole numbers up to 65536");
        }
        return bubble(v, count, out);
    }
    if (strcmp(function, "slowest") == 0 && count == 1) {
        *out = cost_normal_slowest(v[0].number);
        return ST_OK;
    }
    return failure_call(function, v, count, out);
}

formula_scope claims_formula_scope(claims_scope *s)
{
    return (formula_scope){.context = s, .look_up = look_up, .call = call};
}
