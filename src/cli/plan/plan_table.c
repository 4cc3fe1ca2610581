// `plan --devices A..B` and `plan --layouts FILE`: a table with one row for each number of devices
// or for each layout of a file, as text or as comma-separated values.
#include "cli/explain/explain.h"
#include "cli/plan/plan.h"

#include <stdio.h>
#include <string.h>

enum { TABLE_SIMULATIONS = 3, LAYOUT_FILE_BYTES = 1 << 20, LINE_KEYS = 32 };

// One row; `fits` false: no figures.
typedef struct row {
    char name[160]; // "64x4sx2 z1", or the keys of a file's line
    int64_t devices;
    bool fits, has_run;
    double step_s, tokens_per_s, mfu, days;
    double cost_usd; // 0: no price is known
    int64_t bytes;
    const char *limit; // the largest part of the step that is not computation, or why nothing fits
} row;

// Names the limit of the step.
static const char *limit_of(const predict_step *x)
{
    static const char *const waits[TRAFFIC_COUNT] = {[TRAFFIC_TP] = "tp messages",
                                                     [TRAFFIC_CP] = "cp messages",
                                                     [TRAFFIC_DP] = "dp messages",
                                                     [TRAFFIC_PP] = "pp messages",
                                                     [TRAFFIC_EP] = "ep messages"};
    double most = 0.1; // a tenth of the step: below it, the kernels are the limit
    const char *name = "kernels";
    if (x->bubble > most) {
        most = x->bubble;
        name = "bubble";
    }
    for (int k = 0; k < TRAFFIC_COUNT; k++) {
        if (x->exposed[k] <= most || waits[k] == NULL) continue;
        most = x->exposed[k];
        name = waits[k];
    }
    return name;
}

static status row_fill(arena *a, const predict_step *x, row *out)
{
    sim_long_run_input in;
    sim_long_run_result run;
    out->fits = x->fits;
    out->devices = x->devices;
    out->bytes = x->peak_bytes;
    out->step_s = x->step_s;
    out->tokens_per_s = x->tokens_per_s;
    out->mfu = x->mfu;
    out->limit = x->fits ? limit_of(x) : "memory";
    out->has_run = x->fits && x->of->has_length;
    if (!out->has_run) return ST_OK;
    TRY(predict_long_run(a, x, &in, &run));
    out->days = run.days.p50;
    out->cost_usd = run.has_price ? run.cost_usd.p50 : 0.0;
    return ST_OK;
}

// ---- printing -----------------------------------------------------------------------------------

static status csv_print(const row *rows, int64_t count, text *t)
{
    TRY(text_add(t,
                 "layout,devices,fits,step_s,tokens_per_s,mfu,peak_bytes,days,cost_usd,limit\n"));
    for (int64_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        TRY(text_add(t, "%s,%lld,%s,", r->name, (long long)r->devices, r->fits ? "yes" : "no"));
        if (r->fits) {
            TRY(text_add(t, "%.9g,%.9g,%.6g,%lld,", r->step_s, r->tokens_per_s, r->mfu,
                         (long long)r->bytes));
        } else {
            TRY(text_add(t, ",,,,"));
        }
        TRY(r->has_run ? text_add(t, "%.6g,", r->days) : text_add(t, ","));
        TRY(r->cost_usd > 0.0 ? text_add(t, "%.9g,", r->cost_usd) : text_add(t, ","));
        TRY(text_add(t, "%s\n", r->limit));
    }
    return ST_OK;
}

// A row of a file is named by its keys, which are too long for the table.
static bool is_keys(const row *r)
{
    return strchr(r->name, '=') != NULL;
}

static status table_print(const row *rows, int64_t count, text *t)
{
    char n[4][32], number[32];
    TRY(text_add(
        t, "devices  layout           step    tok/s   MFU  GiB/dev    days      cost  limit\n"));
    for (int64_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        (void)snprintf(number, sizeof(number), "# %lld", (long long)i + 1);
        TRY(text_add(t, "%7s  %-14s", text_grouped(r->devices, n[0]),
                     is_keys(r) ? number : r->name));
        if (!r->fits) {
            TRY(text_add(t, "  does not fit: %s\n", r->limit));
            continue;
        }
        TRY(text_add(t, "%7s%9s%5.0f%%%9.1f", text_duration_human(r->step_s, n[1]),
                     text_count_human(r->tokens_per_s, n[2]), 100.0 * r->mfu,
                     (double)r->bytes / 0x1p30));
        if (r->has_run) {
            (void)snprintf(number, sizeof(number), "$%s", text_count_human(r->cost_usd, n[3]));
            TRY(text_add(t, "%8.1f%10s", r->days, r->cost_usd > 0.0 ? number : "-"));
        } else {
            TRY(text_add(t, "%8s%10s", "-", "-"));
        }
        TRY(text_add(t, "  %s\n", r->limit));
    }
    for (int64_t i = 0; i < count && is_keys(&rows[i]); i++) {
        TRY(text_add(t, "%s# %lld %s\n", i == 0 ? "\n" : "", (long long)i + 1, rows[i].name));
    }
    if (count > 0 && !rows[0].has_run && rows[0].fits) {
        return text_add(t, "days and cost need train.tokens or train.steps\n");
    }
    return ST_OK;
}

static status rows_print(planning *x, const row *rows, int64_t count, bool csv)
{
    text t = {.a = x->cli->a};
    if (csv) {
        TRY(csv_print(rows, count, &t));
    } else {
        TRY(text_add(&t, "model     %s on %s, dollars as price.kind says\n", x->operand,
                     x->p.each.base.machine.name));
        TRY(text_add(&t, "assumes   %s\n\n", x->p.each.base.profile.name));
        TRY(table_print(rows, count, &t));
    }
    cli_print_text(x->cli, &t);
    return ST_OK;
}

// ---- numbers of devices -------------------------------------------------------------------------

// "64..16384", or one number.
static status range_read(const char *words, int64_t *from, int64_t *to)
{
    char first[32];
    const char *dots = strstr(words, "..");
    const size_t length = dots != NULL ? (size_t)(dots - words) : strlen(words);
    if (length < sizeof(first)) {
        (void)snprintf(first, sizeof(first), "%.*s", (int)length, words);
        if (text_parse_i64(first, from) && *from > 0) {
            if (dots == NULL) {
                *to = *from;
                return ST_OK;
            }
            if (text_parse_i64(dots + 2, to) && *to >= *from && *to <= 1 << 24) return ST_OK;
        }
    }
    return fail(ST_USAGE,
                "--devices %.64s: expected two numbers such as 64..16384; each row has "
                "twice the devices of the one before",
                words);
}

static status devices_row(planning *x, int64_t devices, row *out)
{
    predict_planner *p = &x->p;
    arena *a = NULL;
    search_result found = {.count = 0};
    predict_setup s;
    predict_step *step = NULL;
    *out = (row){.devices = devices, .limit = "memory"};
    (void)snprintf(out->name, sizeof(out->name), "-");
    TRY(predict_planner_devices(p, devices));
    TRY(arena_create("a row", 0, &a));
    status st = predict_search(p, a, TABLE_SIMULATIONS, &found);
    if (st == ST_CONFIG_CONFLICT) {
        error_clear();
        out->limit = "no layout divides the batch";
        st = ST_OK;
    } else if (st == ST_OK && found.count > 0) {
        const search_layout *l = &found.plans[0].layout;
        TRY_TO(destroy_arena, arena_new(a, 1, &step));
        TRY_TO(destroy_arena, candidates_show(&p->each, a, l, &s, step));
        st = row_fill(a, step, out);
        (void)snprintf(out->name, sizeof(out->name), "%dx%d%sx%d%s z%d", l->dp, l->tp,
                       l->sp ? "s" : "", l->pp, l->cp > 1 ? "c" : "", l->zero);
    }
destroy_arena:
    arena_destroy(a);
    return st;
}

status plan_table_devices(planning *x, const char *range, bool csv)
{
    enum { ROWS_MAX = 32 };
    row *rows = NULL;
    int64_t from = 0, to = 0, count = 0;
    cli_progress *progress = NULL;
    status st = ST_OK;
    TRY(range_read(range, &from, &to));
    TRY(arena_new(x->cli->a, ROWS_MAX, &rows));
    predict_ask_quickly(&x->p);
    cli_progress_begin(x->cli, "planning", &progress);
    plan_watch(&x->p, progress);
    for (int64_t n = from; st == ST_OK && count < ROWS_MAX; n = min_i64(2 * n, to)) {
        st = devices_row(x, n, &rows[count++]);
        if (n >= to) break;
    }
    cli_progress_end(progress);
    x->p.progress = NULL;
    TRY(st);
    return rows_print(x, rows, count, csv);
}

// ---- layouts of a file --------------------------------------------------------------------------

// Simulates one line: keys such as "layout.tp=8 layout.pp=4", over the keys of the command line.
static status layout_row(const plan_layouts *w, char *line, row *out)
{
    const char **keys = NULL;
    int64_t n = 0;
    arena *a = w->cli->a;
    predict_setup *s = NULL;
    predict_step *x = NULL;
    *out = (row){.limit = "memory"};
    (void)snprintf(out->name, sizeof(out->name), "%.159s", line);
    TRY(arena_new(a, w->key_count + LINE_KEYS, &keys));
    for (; n < w->key_count; n++) keys[n] = w->keys[n];
    for (char *word = line; *word != '\0' && n < w->key_count + LINE_KEYS;) {
        char *end = word + strcspn(word, " \t");
        const bool last = *end == '\0';
        *end = '\0';
        if (*word != '\0') keys[n++] = word;
        word = last ? end : end + 1;
    }
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, 1, &x));
    TRY(simulate_open(w->cli, w->operand, w->cluster, keys, n, false, s));
    TRY(predict_step_show(a, s, x));
    return row_fill(a, x, out);
}

status plan_table_layouts(const plan_layouts *w, const char *path, bool csv)
{
    char *all = NULL;
    row *rows = NULL;
    int64_t bytes = 0, count = 0, lines = 1;
    TRY(host_read_text(w->cli->h, w->cli->a, path, LAYOUT_FILE_BYTES, &all, &bytes));
    for (int64_t i = 0; i < bytes; i++) lines += all[i] == '\n' ? 1 : 0;
    TRY(arena_new(w->cli->a, lines, &rows));
    for (char *line = all; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) *end = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (*line != '\0' && *line != '#') {
            const status st = layout_row(w, line, &rows[count]);
            if (st != ST_OK) note("in layout %lld of %s", (long long)count + 1, path);
            TRY(st);
            count++;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    if (count == 0) {
        return fail(ST_USAGE, "%s has no layout: expected lines such as layout.tp=8 layout.pp=4",
                    path);
    }
    text t = {.a = w->cli->a};
    TRY(csv ? csv_print(rows, count, &t) : table_print(rows, count, &t));
    cli_print_text(w->cli, &t);
    return ST_OK;
}
