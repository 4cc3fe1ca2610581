// `plan`: finds the best layouts of a model on a cluster, says why the others lose, and answers the
// inverse questions.
#include "cli/commands.h"
#include "cli/explain/explain.h"
#include "cli/plan/plan.h"

#include <stdio.h>
#include <string.h>

typedef struct plan_flags {
    const char *cluster, *write, *devices, *layouts;
    int64_t global_batch, top, simulations;
    double days, budget;
    bool json, csv, max_model, min_devices;
} plan_flags;

#define AT(field) (int64_t) offsetof(plan_flags, field)
static const option rows[] = {
    {.key = "cluster",
     .kind = OPTION_TEXT,
     .offset = AT(cluster),
     .help = "cluster: a name such as h100, or a YAML file"},
    {.key = "global-batch",
     .kind = OPTION_INT,
     .offset = AT(global_batch),
     .default_text = "0",
     .max = 1 << 24,
     .unit = "sequences",
     .help = "train.global_batch; 0: that of the run, or about four million tokens"},
    {.key = "top",
     .kind = OPTION_INT,
     .offset = AT(top),
     .default_text = "3",
     .min = 1,
     .max = 100,
     .help = "number of best layouts to show"},
    {.key = "plays",
     .kind = OPTION_INT,
     .offset = AT(simulations),
     .default_text = "0",
     .min = 0,
     .max = 100000,
     .help =
         "largest number of layouts to simulate, in the order of their least time, but at least "
         "--top; 0: 8, or fewer if one takes a second or more"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "print one JSON object instead of text"},
    {.key = "write",
     .kind = OPTION_PATH,
     .offset = AT(write),
     .help = "write the configuration of the best layout to this file"},
    {.key = "devices",
     .kind = OPTION_TEXT,
     .offset = AT(devices),
     .help = "print a table with a row for each number of devices, such as 64..16384"},
    {.key = "layouts",
     .kind = OPTION_PATH,
     .offset = AT(layouts),
     .help =
         "print a table with a row for each line of this file, such as layout.tp=8 layout.pp=4"},
    {.key = "csv",
     .kind = OPTION_BOOL,
     .offset = AT(csv),
     .default_text = "false",
     .help = "print the table of --devices or --layouts as comma-separated values"},
    {.key = "max-model",
     .kind = OPTION_BOOL,
     .offset = AT(max_model),
     .default_text = "false",
     .help = "find how many layers of this shape fit on the cluster"},
    {.key = "min-devices",
     .kind = OPTION_BOOL,
     .offset = AT(min_devices),
     .default_text = "false",
     .help = "find the fewest devices on which the model fits"},
    {.key = "days",
     .kind = OPTION_REAL,
     .offset = AT(days),
     .default_text = "0",
     .max = 1e6,
     .unit = "days",
     .help = "find the fewest devices that finish in this time; needs train.tokens"},
    {.key = "budget",
     .kind = OPTION_REAL,
     .offset = AT(budget),
     .default_text = "0",
     .max = 1e15,
     .unit = "US dollars",
     .help =
         "find the most devices with which the run costs at most this much; needs train.tokens"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// ---- JSON --------------------------------------------------------------------------------------

static const char *question_name(predict_question question)
{
    static const char *const names[] = {"", "max_model", "min_devices", "days", "budget"};
    return names[question];
}

static status answer_json(const predict_answer *q, text *t)
{
    if (q->question == ASK_NOTHING) return text_add(t, "null");
    TRY(text_add(t, "{\"question\": \"%s\", ", question_name(q->question)));
    if (q->question == ASK_MAX_MODEL) {
        return text_add(t, "\"layers\": %lld, \"parameters\": %lld, \"too_many_layers\": %lld}",
                        (long long)q->layers, (long long)q->parameters, (long long)q->boundary);
    }
    TRY(text_add(t, "\"devices\": "));
    TRY(q->devices > 0 ? text_add(t, "%lld", (long long)q->devices) : text_add(t, "null"));
    if (q->question == ASK_MIN_DEVICES) {
        return text_add(t, ", \"too_few_devices\": %lld}", (long long)q->boundary);
    }
    TRY(text_add(t, ", \"limit\": %.10g, ", q->limit));
    if (q->devices == 0) {
        TRY(text_add(t, "\"days\": null, \"cost_usd\": null, \"nearest_devices\": "));
        if (q->boundary == 0) return text_add(t, "null}");
        return text_add(t, "%lld, \"nearest_days\": %.8g, \"nearest_cost_usd\": %.10g}",
                        (long long)q->boundary, q->boundary_days, q->boundary_usd);
    }
    TRY(text_add(t, "\"days\": %.8g, \"cost_usd\": %.10g, \"%s\": ", q->days, q->cost_usd,
                 q->question == ASK_DAYS ? "too_few_devices" : "too_many_devices"));
    if (q->boundary == 0) return text_add(t, "null}");
    TRY(text_add(t, "%lld, \"their_days\": ", (long long)q->boundary));
    if (q->boundary_days <= 0.0) return text_add(t, "null, \"their_cost_usd\": null}");
    return text_add(t, "%.8g, \"their_cost_usd\": %.10g}", q->boundary_days, q->boundary_usd);
}

static status plans_json(predict_planner *p, const search_result *found, text *t)
{
    predict_setup s;
    predict_step *x = NULL;
    sim_long_run_input in;
    sim_long_run_result long_run;
    TRY(text_add(t, "\"plans\": ["));
    for (int32_t i = 0; i < found->count; i++) {
        arena_reset(p->each.work);
        TRY(arena_new(p->each.work, 1, &x));
        TRY(candidates_show(&p->each, p->each.work, &found->plans[i].layout, &s, x));
        if (s.has_length) TRY(predict_long_run(p->each.work, x, &in, &long_run));
        if (i > 0) TRY(text_add(t, ", "));
        TRY(simulate_print_json(p->each.work, x, NULL, s.has_length ? &long_run : NULL, t));
    }
    return text_add(t, "]");
}

static status searched_json(const search_result *found, text *t)
{
    TRY(text_add(t,
                 "\"searched\": {\"layouts\": %lld, \"played\": %lld, \"too_large\": %lld, "
                 "\"slower\": %lld, \"refused\": %lld, \"not_played\": %lld, \"ruled_out\": {",
                 (long long)found->layouts, (long long)found->simulated,
                 (long long)found->too_large, (long long)found->slower, (long long)found->refused,
                 (long long)found->unknown));
    bool any = false;
    for (int i = 0; i < RULE_COUNT; i++) {
        if (found->ruled_out[i] == 0) continue;
        if (any) TRY(text_add(t, ", "));
        any = true;
        TRY(text_add_json(t, search_rule_name((search_rule)i)));
        TRY(text_add(t, ": %lld", (long long)found->ruled_out[i]));
    }
    return text_add(t, "}}");
}

static status miss_json(predict_planner *p, arena *a, const search_result *found, text *t)
{
    char name[SEARCH_NAME_BYTES];
    text remedies = {.a = a};
    const search_found *no = found->count > 0 ? &found->fastest_too_large : &found->smallest;
    TRY(text_add(t, "\"too_large\": "));
    if (no->layout.dp == 0) return text_add(t, "null");
    const int64_t bytes = no->simulated.peak_bytes > 0 ? no->simulated.peak_bytes : no->bytes;
    TRY(plan_print_remedies(p, a, no, &remedies));
    TRY(text_add(t, "{\"layout\": "));
    TRY(text_add_json(t, search_layout_name(&no->layout, name)));
    TRY(text_add(t, ", \"peak_bytes\": %lld, \"over_bytes\": %lld, \"remedies\": ",
                 (long long)bytes, (long long)(bytes - predict_usable_bytes(p))));
    TRY(text_add_json(t, remedies.length > 0 ? remedies.bytes : ""));
    return text_add(t, "}");
}

static status json_print(predict_planner *p, arena *a, const search_result *found,
                         const predict_answer *q, text *t)
{
    TRY(text_add(t, "{"));
    TRY(plans_json(p, found, t));
    TRY(text_add(t, ", \"answer\": "));
    TRY(answer_json(q, t));
    TRY(text_add(t, ", "));
    TRY(searched_json(found, t));
    TRY(text_add(t, ", "));
    TRY(miss_json(p, a, found, t));
    return text_add(t, "}\n");
}

// ---- text --------------------------------------------------------------------------------------

// Prints the devices that the deadline or budget allows, and the effect of one more node.
static status limit_print(const predict_answer *q, text *t)
{
    char n[2][32];
    TRY(text_add(t, "answer    %s device%s: %.1f days, $%s\n", text_grouped(q->devices, n[0]),
                 text_plural(q->devices, "s"), q->days, text_count_human(q->cost_usd, n[1])));
    if (q->boundary == 0) return text_add(t, "\n");
    TRY(text_add(t, "          %s are too %s: ", text_grouped(q->boundary, n[0]),
                 q->question == ASK_DAYS ? "few" : "many"));
    if (q->boundary_days <= 0.0) return text_add(t, "no layout fits\n\n");
    return text_add(t, "%.1f days, $%s\n\n", q->boundary_days,
                    text_count_human(q->boundary_usd, n[1]));
}

// No number of devices suffices: the one that comes nearest.
static status nearest_print(const predict_planner *p, const predict_answer *q, text *t)
{
    char n[4][32];
    const char *all = text_grouped(p->devices, n[0]);
    if (q->boundary == 0) {
        return text_add(t, "answer    no: the model fits on no number of devices up to %s\n\n",
                        all);
    }
    if (q->question == ASK_DAYS) {
        return text_add(t,
                        "answer    %.4g days: not with %s devices; all of them need %.1f days and "
                        "$%s\n\n",
                        q->limit, all, q->boundary_days, text_count_human(q->boundary_usd, n[1]));
    }
    return text_add(t,
                    "answer    $%s: not enough; the fewest devices that hold the model, %s,\n"
                    "          cost $%s in %.1f days\n\n",
                    text_count_human(q->limit, n[1]), text_grouped(q->boundary, n[2]),
                    text_count_human(q->boundary_usd, n[3]), q->boundary_days);
}

static status answer_print(const predict_planner *p, const predict_answer *q, text *t)
{
    char n[2][32];
    switch (q->question) {
    case ASK_MAX_MODEL:
        if (q->layers == 0)
            return text_add(t, "answer    no model of this shape fits, not even one layer\n\n");
        return text_add(t, "answer    %lld layer%s, %s parameters; %lld do not fit\n\n",
                        (long long)q->layers, text_plural(q->layers, "s"),
                        text_count_human((double)q->parameters, n[0]), (long long)q->boundary);
    case ASK_MIN_DEVICES:
        if (q->devices == 0) {
            return text_add(t,
                            "answer    the model does not fit on the %s devices of %s; its states "
                            "alone\n          fill the memory of %s\n\n",
                            text_grouped(q->boundary, n[0]), p->each.base.machine.name,
                            text_grouped(q->needed, n[1]));
        }
        if (q->boundary == 0) return text_add(t, "answer    1 device is enough\n\n");
        return text_add(t, "answer    %s devices; %s %s too few\n\n",
                        text_grouped(q->devices, n[0]), text_grouped(q->boundary, n[1]),
                        q->boundary == 1 ? "is" : "are");
    case ASK_DAYS:
    case ASK_BUDGET:
        if (q->devices == 0) return nearest_print(p, q, t);
        return limit_print(q, t);
    case ASK_NOTHING:
    default:
        return ST_OK;
    }
}

// The error if no layout fits: the missing bytes of the best layout, and changes that would help.
static status does_not_fit(predict_planner *p, arena *a, const search_result *found)
{
    char name[SEARCH_NAME_BYTES], over[32], have[32];
    text remedies = {.a = a};
    const search_found *no = &found->smallest;
    if (no->layout.dp == 0) {
        return fail(ST_ANSWER_NO, "none of the layouts of %lld devices has a plan",
                    (long long)p->devices);
    }
    const int64_t bytes = no->simulated.peak_bytes > 0 ? no->simulated.peak_bytes : no->bytes;
    TRY(plan_print_remedies(p, a, no, &remedies));
    return fail(
        ST_ANSWER_NO,
        "no layout fits in %s: the smallest of %lld layouts (%s, zero %d) is %lld bytes over "
        "(%s)%s%s; more devices, a smaller model or a shorter train.seq may help: "
        "--min-devices and --max-model find how much",
        text_bytes_human(predict_usable_bytes(p), have), (long long)found->layouts,
        search_layout_name(&no->layout, name), (int)no->layout.zero,
        (long long)(bytes - predict_usable_bytes(p)),
        text_bytes_human(bytes - predict_usable_bytes(p), over), remedies.length > 0 ? "; " : "",
        remedies.length > 0 ? remedies.bytes : "");
}

// ---- the command -------------------------------------------------------------------------------

static status question_of(const plan_flags *f, predict_question *question, double *limit)
{
    const int asked = (f->max_model ? 1 : 0) + (f->min_devices ? 1 : 0) + (f->days > 0.0 ? 1 : 0) +
                      (f->budget > 0.0 ? 1 : 0);
    *question = f->max_model     ? ASK_MAX_MODEL
                : f->min_devices ? ASK_MIN_DEVICES
                : f->days > 0.0  ? ASK_DAYS
                                 : ASK_NOTHING;
    if (f->budget > 0.0) *question = ASK_BUDGET;
    *limit = f->days > 0.0 ? f->days : f->budget;
    if (asked <= 1) return ST_OK;
    return fail(ST_USAGE, "--max-model, --min-devices, --days and --budget exclude each other");
}

static status keys_with_batch(cli_context *cli, const cli_call *call, const char ***keys,
                              int64_t *count)
{
    const plan_flags *f = call->flags;
    char *line = NULL;
    TRY(arena_new(cli->a, call->key_count + 1, keys));
    for (int64_t i = 0; i < call->key_count; i++) (*keys)[i] = call->keys[i];
    *count = call->key_count;
    if (f->global_batch == 0) return ST_OK;
    TRY(arena_format(cli->a, &line, "train.global_batch=%lld", (long long)f->global_batch));
    (*keys)[(*count)++] = line;
    return ST_OK;
}

// The best layout by other software.
static status software_print(cli_context *cli, predict_planner *p, const search_result *found,
                             text *t)
{
    predict_setup s;
    predict_step *x = NULL;
    sim_long_run_input in;
    sim_long_run_result long_run;
    if (found->count == 0) return ST_OK;
    arena_reset(p->each.work);
    TRY(arena_new(p->each.work, 1, &x));
    TRY(candidates_show(&p->each, p->each.work, &found->plans[0].layout, &s, x));
    if (s.has_length) TRY(predict_long_run(p->each.work, x, &in, &long_run));
    TRY(text_add(t, "\n"));
    return simulate_print_software(cli, x, s.has_length ? &long_run : NULL, t);
}

// Dollars cannot be asked for where no price is known.
static status price_check(const predict_planner *p)
{
    const sim_long_run_step step = {.devices = p->devices};
    sim_long_run_input in;
    sim_long_run_input_make(p->each.base.r, &p->each.base.machine, &step, &in);
    if (sim_long_run_has_price(&in)) return ST_OK;
    return fail(ST_CONFIG,
                "--budget: no price %s is known for %s; give price.device_hour=USD, or another "
                "price.kind",
                in.price_kind, p->each.base.machine.name);
}

static status answered(planning *x, const plan_flags *f, arena *a)
{
    predict_planner *p = &x->p;
    predict_answer q;
    predict_question question = ASK_NOTHING;
    double limit = 0.0;
    cli_progress *progress = NULL;
    search_result found = {.count = 0};
    text t = {.a = a};
    TRY(question_of(f, &question, &limit));
    if (question == ASK_BUDGET) TRY(price_check(p));
    cli_progress_begin(x->cli, "planning", &progress);
    plan_watch(p, progress);
    status st = predict_ask(p, question, limit, &q);
    // Planning every layer of a very deep model takes minutes: the answer stands alone.
    const bool is_deep = question == ASK_MAX_MODEL && q.layers > PREDICT_LAYERS_LISTED;
    if (st == ST_OK && !is_deep) st = predict_search(p, a, p->simulations, &found);
    cli_progress_end(progress);
    p->progress = NULL;
    TRY(st);
    if (f->json) {
        TRY(json_print(p, a, &found, &q, &t));
    } else {
        TRY(answer_print(p, &q, &t));
        if (is_deep) {
            TRY(text_add(&t,
                         "note      layouts of so deep a model are not listed: plan "
                         "model.layers=%lld searches them\n",
                         (long long)q.layers));
        } else {
            TRY(plan_print_text(p, a, &found, &t));
        }
        TRY(software_print(x->cli, p, &found, &t));
    }
    cli_print_text(x->cli, &t);
    if (is_deep) return ST_OK;
    if (found.count == 0) return does_not_fit(p, a, &found);
    if (f->write == NULL) return ST_OK;
    TRY(plan_config_write(x, &found.plans[0].layout, f->write));
    if (!f->json) cli_print(x->cli, "\nwritten   %s\n", f->write);
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    const plan_flags *f = call->flags;
    const char **keys = NULL;
    int64_t count = 0;
    planning *x = NULL;
    if (f->cluster == NULL) return fail(ST_USAGE, "plan needs --cluster NAME or a YAML file");
    TRY(arena_new(cli->a, 1, &x));
    TRY(keys_with_batch(cli, call, &keys, &count));
    if (f->csv && f->devices == NULL && f->layouts == NULL) {
        return fail(ST_USAGE, "--csv prints a table: add --devices 64..16384 or --layouts FILE");
    }
    if (f->layouts != NULL) {
        const plan_layouts w = {cli, call->operands[0], f->cluster, keys, count};
        return plan_table_layouts(&w, f->layouts, f->csv);
    }
    TRY(plan_open(cli, call->operands[0], f->cluster, keys, count, x));
    predict_planner *p = &x->p;
    p->wanted = (int32_t)f->top;
    if (f->simulations > 0) p->rows = 0; // the number of simulations is given
    p->simulations = (int32_t)max_i64(f->simulations > 0 ? f->simulations : p->simulations, f->top);
    // A written configuration has all keys.
    const int64_t told = f->write == NULL ? call->key_count : 0;
    status st = simulate_keys_check(cli, call->keys, told, &p->each.base, 0);
    if (st == ST_OK) {
        st =
            f->devices != NULL ? plan_table_devices(x, f->devices, f->csv) : answered(x, f, cli->a);
    }
    plan_close(x);
    return st;
}

const cli_command cli_command_plan = {
    .name = "plan",
    .summary = "find the best layout on a cluster, and why others lose",
    .synopsis =
        "CONFIG|PRESET|FOLDER --cluster NAME|FILE [--global-batch N] [--top N] [--json] "
        "[--write FILE] [--max-model | --min-devices | --days D | --budget USD | --devices A..B | "
        "--layouts FILE] [--csv] "
        "[key.path=value ...]",
    .about =
        "Considers every layout that the cluster's devices allow: dp, tp, pp, cp, ep, virtual stages, "
        "schedule, ZeRO, micro-batch, recompute (all layers, or a quarter of them, half, three "
        "quarters). It computes a lower bound of time and the bytes of "
        "each in closed form, and simulates the plans of those that fit until no other can be faster. Prints "
        "the best layouts, the bytes of the first, why others lose, and the effect of one percent better "
        "hardware. A given layout key fixes that part. cluster.devices=N takes N devices. If no layout fits, "
        "the exit code is 8. --max-model, --min-devices, --days and --budget answer inverse questions.",
    .examples = "  trireme plan llama3.1-70b --cluster h100 cluster.devices=64\n"
                "  trireme plan llama3.1-8b --cluster a100-80 cluster.devices=8 --write run.yaml\n"
                "  trireme plan llama3.1-405b --cluster h100 --min-devices\n",
    .flags = &flags,
    .flags_bytes = sizeof(plan_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
