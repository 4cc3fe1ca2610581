// `bisect`: finds where a layout first computes something else than one rank.
#include "cli/commands.h"
#include "cli/plan/plan.h"
#include "cli/run_folder.h"
#include "cli/train/signals.h"
#include "diagnose/bisect.h"

#include <math.h>
#include <string.h>

typedef struct bisect_flags {
    int64_t steps;
    bool verbose, json;
} bisect_flags;

static const option rows[] = {
    {.key = "steps",
     .kind = OPTION_INT,
     .offset = (int64_t)offsetof(bisect_flags, steps),
     .default_text = "3",
     .min = 1,
     .max = 1e6,
     .help = "number of steps; stops earlier if a value differs"},
    {.key = "verbose",
     .kind = OPTION_BOOL,
     .offset = (int64_t)offsetof(bisect_flags, verbose),
     .default_text = "false",
     .help = "print a line for each compared tensor"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = (int64_t)offsetof(bisect_flags, json),
     .default_text = "false",
     .help = "print one JSON object instead of text"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct viewer {
    cli_context *cli;
    const bisect_flags *f;
    bisect_phase phase; // of the last item
    int64_t step, items;
    double worst;
} viewer;

// Prints a line for each phase that agrees.
static void phase_end(viewer *v)
{
    if (v->items == 0 || v->f->json || v->f->verbose) return;
    char count[32];
    (void)snprintf(count, sizeof(count), "%lld tensors", (long long)v->items);
    cli_print(v->cli, "step %-3lld  %-9s %-14s agree, at most %.2f of the bound\n",
              (long long)v->step, bisect_phase_name(v->phase), count, v->worst);
    cli_push(v->cli);
    v->items = 0;
    v->worst = 0.0;
}

static void compared(void *context, const bisect_item *item)
{
    viewer *v = context;
    if (item->phase != v->phase || item->step != v->step) phase_end(v);
    v->phase = item->phase;
    v->step = item->step;
    if (item->differ > 0) phase_end(v);
    if (item->differ == 0) v->items++;
    v->worst = fmax(v->worst, item->worst);
    if (!v->f->verbose || v->f->json) return;
    char name[96];
    (void)snprintf(name, sizeof(name), "%s, %s", item->block, item->tensor);
    cli_print(v->cli, "step %-3lld  %-9s %-44s %9lld values  ", (long long)item->step,
              bisect_phase_name(item->phase), name, (long long)item->elements);
    if (item->differ == 0) {
        cli_print(v->cli, "at most %.2f of the bound\n", item->worst);
    } else {
        cli_print(v->cli, "%lld DIFFER\n", (long long)item->differ);
    }
    cli_push(v->cli);
}

static bool stop_asked(void *context)
{
    (void)context;
    return cli_signals_asked();
}

// ---- output -------------------------------------------------------------------------------------

static void index_print(cli_context *cli, const bisect_index *at, bool is_json)
{
    const struct {
        const char *name;
        int64_t value;
    } parts[] = {{"sequence", at->sequence},
                 {"position", at->position},
                 {"row", at->row},
                 {"column", at->column}};
    const char *between = "";
    for (int i = 0; i < COUNT_OF(parts); i++) {
        if (parts[i].value < 0) continue;
        cli_print(cli, is_json ? "%s\"%s\": %lld" : "%s%s %lld", between, parts[i].name,
                  (long long)parts[i].value);
        between = ", ";
    }
}

// JSON has no NaN.
static void number_print(cli_context *cli, const char *name, double value)
{
    cli_print(cli, isfinite(value) ? ", \"%s\": %.9g" : ", \"%s\": null", name, value);
}

static void print_json(cli_context *cli, const bisect_report *t)
{
    const bisect_found *f = &t->first;
    cli_print(cli,
              "{\"differs\": %s, \"ranks\": %lld, \"steps\": %lld, \"tensors\": %lld, \"values\": "
              "%lld, \"bound_by\": \"%s\"",
              t->differs ? "true" : "false", (long long)t->ranks, (long long)t->steps,
              (long long)t->items, (long long)t->elements, t->by_fp64 ? "fp64" : "bf16");
    number_print(cli, "worst", t->worst);
    if (t->differs) {
        cli_print(cli,
                  ", \"first\": {\"step\": %lld, \"phase\": \"%s\", \"block\": \"%s\", \"tensor\": "
                  "\"%s\", \"index\": {",
                  (long long)f->item.step, bisect_phase_name(f->item.phase), f->item.block,
                  f->item.tensor);
        index_print(cli, &f->index, true);
        cli_print(cli, "}");
        number_print(cli, "value", f->value);
        number_print(cli, "expected", f->expected);
        number_print(cli, "bound", f->bound);
        cli_print(cli,
                  ", \"values\": %lld, \"differ\": %lld, \"ranks\": \"%s\", \"others\": \"%s\", "
                  "\"before\": \"%s\"}",
                  (long long)f->item.elements, (long long)f->item.differ, f->ranks,
                  f->others != NULL ? f->others : "", f->before != NULL ? f->before : "");
    }
    cli_print(cli, "}\n");
}

static void print_found(cli_context *cli, const bisect_report *t)
{
    const bisect_found *f = &t->first;
    cli_print(cli, "differs   step %lld, %s of %s, %s\n", (long long)f->item.step,
              bisect_phase_name(f->item.phase), f->item.block, f->item.tensor);
    if (f->item.phase != BISECT_SUMS) {
        cli_print(cli, "first at  ");
        index_print(cli, &f->index, false);
        cli_print(cli, "; %lld of %lld values differ\n", (long long)f->item.differ,
                  (long long)f->item.elements);
    }
    cli_print(cli, "value     %-15.9g on %s\n", f->value, f->ranks);
    cli_print(cli, "expected  %-15.9g %s%s\n", f->expected,
              f->others != NULL ? "as on " : "on one rank", f->others != NULL ? f->others : "");
    cli_print(cli, "bound     %.3g; the difference is %.3g times that\n", f->bound,
              fabs(f->value - f->expected) / f->bound);
    cli_print(cli, "before    %s%s\n", f->before != NULL ? f->before : "nothing",
              f->before != NULL ? " and all before it agree" : "");
}

static status print_head(cli_context *cli, const run_config *r)
{
    text layout = {.a = cli->a};
    TRY(run_config_print_layout(r, &layout));
    cli_print(cli, "layout    %s\n", layout.bytes);
    return ST_OK;
}

static void print_end(cli_context *cli, const bisect_report *t)
{
    char count[32], values[32];
    cli_print(cli,
              "measured  %s, %s parameters, %lld rank%s, %lld sequences per step; bounds by %s\n",
              t->arch, text_count_human((double)t->parameters, count), (long long)t->ranks,
              text_plural(t->ranks, "s"), (long long)t->sequences,
              t->by_fp64 ? "one rank against fp64" : "one rank in bf16 against fp32");
    if (!t->is_inside) {
        cli_print(
            cli,
            "          outputs of blocks only: memory does not suffice for the tensors inside; "
            "a smaller train.global_batch compares them too\n");
    }
    if (t->differs) return;
    cli_print(cli, "agrees    %lld steps, %lld tensors, %s values; worst %.2f of its bound, %s\n",
              (long long)t->steps, (long long)t->items,
              text_count_human((double)t->elements, values), t->worst, t->where);
}

static status run(cli_context *cli, const cli_call *call)
{
    const bisect_flags *f = call->flags;
    const char *path = NULL;
    bool is_resolved = false;
    run_config r;
    config *c = NULL;
    bisect_report t;
    viewer v = {.cli = cli, .f = f};
    TRY(cli_config_file(cli, call->operands[0], &path, &is_resolved));
    TRY(run_config_load(cli->h, cli->a, path, call->keys, call->key_count, &r, &c));
    TRY(plan_micro_batch_here(cli, NULL, &r));
    if (!f->json) TRY(print_head(cli, &r));
    const bisect_order order = {.r = &r,
                                .steps = min_i64(f->steps, r.train.steps),
                                .context = &v,
                                .compared = compared,
                                .stop_asked = stop_asked};
    cli_signals_begin_quiet();
    const status st = diagnose_bisect(cli->h, cli->a, &order, &t);
    cli_signals_end();
    TRY(st);
    if (f->json) {
        print_json(cli, &t);
    } else {
        phase_end(&v);
        if (t.differs) print_found(cli, &t);
        print_end(cli, &t);
    }
    if (!t.differs) return ST_OK;
    return fail(ST_ANSWER_NO, "step %lld: %s of %s, %s differs from the result of one rank",
                (long long)t.first.item.step, bisect_phase_name(t.first.item.phase),
                t.first.item.block, t.first.item.tensor);
}

const cli_command cli_command_bisect = {
    .name = "bisect",
    .summary = "find the first tensor in which a layout differs from one rank",
    .synopsis = "CONFIG|RUN [--steps N] [--verbose] [--json] [key.path=value ...]",
    .about =
        "Runs the configuration, with its ranks as threads of this process, in step with one rank in "
        "fp32 that has the same weights, data and random numbers. Compares values in the order in "
        "which they are computed: activations of every block, their gradients, gradients of weights, "
        "loss and norm, the update. Names the first block, tensor and index that differ by more than "
        "rounding explains. It measures rounding: one rank in fp32 (and in the configuration's types) "
        "against fp64, or for large models one rank in bf16 against fp32. In bf16 the bound hides small "
        "differences: with train.precision=fp32 it is 65,536 times as fine. Exit code 0: all values "
        "agree, 8: a value differs, 75: stopped before the last step.",
    .examples = "  trireme bisect demo/config.yaml layout.dp=2 layout.tp=2\n"
                "  trireme bisect demo/config.yaml layout.pp=2 --steps 1 --verbose\n",
    .flags = &flags,
    .flags_bytes = sizeof(bisect_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
