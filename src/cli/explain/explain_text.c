// Prints the whole run as text, as wide as the terminal: timeline, mesh, bytes.
#include "cli/explain/explain.h"

#include <stdio.h>
#include <string.h>

enum { LABEL = 10, ROWS_SHOWN = 24, COLUMNS_MAX = 512 };

// ---- the timeline -------------------------------------------------------------------------------

// Columns of a row. A timeline to scale shows its actions from column to column, with the
// micro-batch if it fits; a finer one is mixed.
typedef struct strip {
    int64_t columns, length; // of `length` units of time
    bool mixed, numbered;    // numbered: every action is wide enough for its micro-batch
} strip;

static strip strip_make(const plan_timeline *t, int columns)
{
    const int64_t width = max_i64(20, min_i64(columns, COLUMNS_MAX) - LABEL);
    strip s = {.columns = width, .length = t->length};
    int64_t most = 0, shortest = INT64_MAX;
    char digits[16];
    const int widest = 1 + snprintf(digits, sizeof(digits), "%d", t->request.microbatches - 1);
    for (int32_t i = 0; i < t->request.stages; i++) {
        const timeline_rank *r = &t->ranks[i];
        most = max_i64(most, r->list.count);
        for (int64_t k = 0; k < r->list.count; k++) {
            const int64_t parts = r->list.actions[k].kind == SCHEDULE_BOTH ? 3 : 1;
            shortest = min_i64(shortest, (r->spans[k].end - r->spans[k].begin) / parts);
        }
    }
    // A unit is as wide as "F12", or one column.
    if (t->length <= width) s.columns = t->length * (t->length * widest <= width ? widest : 1);
    s.mixed = s.columns < s.length && 2 * s.columns < 3 * most;
    s.numbered = shortest * s.columns / s.length >= widest;
    return s;
}

typedef struct part {
    char letter;
    int32_t microbatch;
    timeline_span span;
} part;

static char letter_of(schedule_kind kind, int32_t chunk)
{
    static const char letters[] = {[SCHEDULE_FORWARD] = 'F',
                                   [SCHEDULE_BACKWARD] = 'B',
                                   [SCHEDULE_BACKWARD_INPUT] = 'I',
                                   [SCHEDULE_BACKWARD_WEIGHT] = 'W',
                                   [SCHEDULE_BOTH] = 'F'};
    return (char)(letters[kind] + (chunk % 2 == 1 ? 'a' - 'A' : 0));
}

// An action is one part; in a pair the forward is drawn first.
static int parts_of(const plan_timeline *t, int32_t rank, int64_t k, part parts[2])
{
    const schedule_action *x = &t->ranks[rank].list.actions[k];
    const timeline_span span = t->ranks[rank].spans[k];
    parts[0] = (part){letter_of(x->kind, x->chunk), x->microbatch, span};
    if (x->kind != SCHEDULE_BOTH) return 1;
    parts[0].span.end = span.begin + (span.end - span.begin) / 3;
    parts[1] = (part){letter_of(SCHEDULE_BACKWARD, x->chunk_b), x->microbatch_b, span};
    parts[1].span.begin = parts[0].span.end;
    return 2;
}

static int64_t column_of(const strip *s, int64_t time)
{
    return (2 * time * s->columns + s->length) / (2 * s->length);
}

static void row_write(const plan_timeline *t, int32_t rank, const strip *s, char *row)
{
    memset(row, '.', (size_t)s->columns);
    row[s->columns] = '\0';
    for (int64_t k = 0; k < t->ranks[rank].list.count; k++) {
        part parts[2];
        const int n = parts_of(t, rank, k, parts);
        for (int i = 0; i < n; i++) {
            char word[16];
            const int64_t begin = column_of(s, parts[i].span.begin);
            const int64_t end = column_of(s, parts[i].span.end);
            const int length = snprintf(word, sizeof(word), s->numbered ? "%c%d" : "%c",
                                        parts[i].letter, parts[i].microbatch);
            for (int64_t c = begin; c < end; c++) {
                const char rest = s->numbered ? '-' : parts[i].letter;
                row[c] = c - begin < length ? word[c - begin] : rest;
            }
        }
    }
}

// Each column shows the letter that lags most behind its share of the row so far, so a row shows
// each letter, and idle time, in proportion to its time.
static void row_mix(const plan_timeline *t, int32_t rank, const strip *s, char *row)
{
    int64_t owed[128] = {0}, at = 0, k = 0;
    const timeline_rank *r = &t->ranks[rank];
    part parts[2] = {0};
    int n = 0, i = 0;
    for (int64_t c = 0; c < s->columns; c++) {
        const int64_t begin = at, end = (c + 1) * s->length / s->columns;
        while (at < end) {
            if (i == n && k < r->list.count) {
                n = parts_of(t, rank, k++, parts);
                i = 0;
            }
            const bool idle = i == n || at < parts[i].span.begin;
            const int64_t until = i == n ? end : idle ? parts[i].span.begin : parts[i].span.end;
            const int64_t to = min_i64(until, end);
            owed[idle ? '.' : parts[i].letter] += to - at;
            at = to;
            if (!idle && at == parts[i].span.end) i++;
        }
        int most = '.';
        for (int letter = 0; letter < 128; letter++) {
            if (owed[letter] > owed[most]) most = letter;
        }
        owed[most] -= end - begin;
        row[c] = (char)most;
    }
    row[s->columns] = '\0';
}

static void print_row(const explain *x, const plan_timeline *t, int32_t rank, const strip *s)
{
    char row[4 * COLUMNS_MAX], label[32];
    if (s->mixed) {
        row_mix(t, rank, s, row);
    } else {
        row_write(t, rank, s, row);
    }
    (void)snprintf(label, sizeof(label), "  pp %d", rank);
    cli_print(x->cli, "%-*s%s\n", LABEL, label, row);
}

static const char *percent(int64_t part_of, int64_t all, char buffer[32])
{
    (void)snprintf(buffer, 32, "%.1f%%", all > 0 ? 100.0 * (double)part_of / (double)all : 0.0);
    return buffer;
}

static void print_rows(const explain *x, const plan_timeline *t)
{
    const int32_t ranks = t->request.stages;
    const strip s = strip_make(t, x->cli->columns);
    for (int32_t i = 0; i < ranks; i++) {
        if (ranks > ROWS_SHOWN && i == ROWS_SHOWN / 2) {
            cli_print(x->cli, "%-*s... %d more ...\n", LABEL, "", ranks - ROWS_SHOWN);
            i = ranks - ROWS_SHOWN / 2;
        }
        print_row(x, t, i, &s);
    }
    if (s.mixed) {
        cli_print(x->cli, "%-*seach letter in proportion to its share of the time\n", LABEL, "");
    }
}

static const char *without_barrier(const plan_timeline *t, char buffer[32])
{
    return percent(t->bubble - t->barrier, t->length - t->barrier, buffer);
}

static void print_bubbles(const explain *x, const plan_timeline *flops, const plan_timeline *equal)
{
    char a[32], b[32];
    cli_print(x->cli, "  bubble  %s by FLOPs; in equal times %s, %lld of %lld units\n",
              percent(flops->bubble, flops->length, a), percent(equal->bubble, equal->length, b),
              (long long)equal->bubble, (long long)equal->length);
    if (flops->barrier == 0 && equal->barrier == 0) return;
    cli_print(x->cli,
              "          without the optimizer's barrier %s; %s: the barrier costs %lld units\n",
              without_barrier(flops, a), without_barrier(equal, b), (long long)equal->barrier);
}

static status print_timeline(const explain *x, explain_price price)
{
    plan_timeline *flops = NULL, *equal = NULL;
    TRY(explain_simulate(x, PRICE_FLOPS, 0, &flops));
    TRY(explain_simulate(x, PRICE_EQUAL, 0, &equal));
    const plan_timeline *t = price == PRICE_EQUAL ? equal : flops;
    const schedule_request *r = &t->request;
    cli_print(x->cli, "pipeline  %s: %d micro-batch%s, %d rank%s of pp", t->schedule->name,
              r->microbatches, text_plural(r->microbatches, "es"), r->stages,
              text_plural(r->stages, "s"));
    if (r->chunks > 1) cli_print(x->cli, " x %d chunks", r->chunks);
    cli_print(x->cli, price == PRICE_EQUAL ? ", in equal times\n" : ", by FLOPs\n");
    print_rows(x, t);
    print_bubbles(x, flops, equal);
    cli_print(x->cli, "  held    at most %d micro-batch%s x chunks of activations on a rank\n",
              t->live_peak, text_plural(t->live_peak, "es"));
    return ST_OK;
}

status explain_row(const explain *x, int32_t pp)
{
    enum { MOST = 400000 }; // actions: about 10 ms
    plan_timeline *t = NULL;
    const schedule_request *r = &x->pipe.shape;
    if (3 * (int64_t)r->stages * r->microbatches * r->chunks > MOST) return ST_OK;
    TRY(explain_simulate(x, PRICE_FLOPS, 0, &t));
    const strip s = strip_make(t, x->cli->columns);
    print_row(x, t, pp, &s);
    return ST_OK;
}

// ---- the mesh -----------------------------------------------------------------------------------

static void range_print(int64_t first, int64_t count, char *out, size_t bytes)
{
    char a[32], b[32];
    if (count == 1) {
        (void)snprintf(out, bytes, "%s", text_grouped(first, a));
    } else {
        (void)snprintf(out, bytes, "%s-%s", text_grouped(first, a),
                       text_grouped(first + count - 1, b));
    }
}

// The layers of a rank's chunks: "embed, 0 + 7, head"; of many chunks the first and the last.
static void chunks_print(const explain *x, int32_t rank, char out[160])
{
    char first[64], last[64];
    const schedule_request *r = &x->pipe.shape;
    explain_layers(x, plan_schedule_stage(x->schedule, r, rank, 0), first);
    explain_layers(x, plan_schedule_stage(x->schedule, r, rank, r->chunks - 1), last);
    (void)snprintf(out, 160, "%s%s%s", first,
                   r->chunks == 1   ? ""
                   : r->chunks == 2 ? " + "
                                    : " + ... + ",
                   r->chunks == 1 ? "" : last);
}

// Ranks of one pp and dp coordinate are consecutive.
static void print_mesh(const explain *x, int32_t shown)
{
    const run_config *r = x->r;
    char count[32], name[40], cell[72], layers[160];
    const int64_t dp = r->layout.dp, pp = r->layout.pp, inner = r->layout.cp * r->layout.tp;
    const bool wide = x->ranks > 9999; // "12,344-12,351"
    const int64_t cells = min_i64(dp, wide ? 3 : 5);
    cli_print(x->cli, "\nmesh      %s rank%s; rank = ((pp * %lld + dp) * %lld + cp) * %lld + tp\n",
              text_grouped(x->ranks, count), text_plural(x->ranks, "s"), (long long)dp,
              (long long)r->layout.cp, (long long)r->layout.tp);
    cli_print(x->cli, "  %-6s  %-22s", "pp", "layers");
    for (int64_t c = 0; c < cells; c++) {
        const int64_t i = c < cells - 1 ? c : dp - 1;
        (void)snprintf(name, sizeof(name), "%sdp %lld", i > c ? "... " : "", (long long)i);
        cli_print(x->cli, " %*s", (wide ? 13 : 7) + (i > c ? 3 : 0), name);
    }
    cli_print(x->cli, "\n");
    for (int32_t k = 0; k < shown; k++) {
        const int64_t i = k < shown - shown / 2 ? k : pp - shown + k;
        if (i > k && k == shown - shown / 2) cli_print(x->cli, "  ...\n");
        chunks_print(x, (int32_t)i, layers);
        cli_print(x->cli, "  %-6lld  %-22s", (long long)i, layers);
        for (int64_t d = 0; d < cells; d++) {
            range_print((i * dp + (d < cells - 1 ? d : dp - 1)) * inner, inner, cell, sizeof(cell));
            cli_print(x->cli, " %*s", (wide ? 13 : 7) + (d == cells - 1 && cells < dp ? 3 : 0),
                      cell);
        }
        cli_print(x->cli, "\n");
    }
}

// ---- bytes --------------------------------------------------------------------------------------

static void print_bytes(const explain *x, const explain_bytes *bytes, int32_t count)
{
    static const char *const heads[PLAN_BYTES_COUNT] = {"weights", "grads",       "master",
                                                        "moments", "activations", "buffers"};
    char human[32], rank[32];
    cli_print(x->cli, "\nbytes     of the first rank of each stage, at the peak\n");
    cli_print(x->cli, "  %-7s", "rank");
    for (int k = 0; k < PLAN_BYTES_COUNT; k++)
        cli_print(x->cli, " %*s", k == PLAN_BYTES_ACTIVATIONS ? 11 : 8, heads[k]);
    cli_print(x->cli, " %9s\n", "together");
    for (int32_t i = 0; i < count; i++) {
        if (i > 0 && bytes[i].rank - bytes[i - 1].rank > x->ranks / x->r->layout.pp) {
            cli_print(x->cli, "  ...\n");
        }
        cli_print(x->cli, "  %-7s", text_grouped(bytes[i].rank, rank));
        for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
            const int64_t copy = k == PLAN_BYTES_BUFFERS ? bytes[i].snapshot + bytes[i].copies : 0;
            cli_print(x->cli, " %*s", k == PLAN_BYTES_ACTIVATIONS ? 11 : 8,
                      text_bytes_human(bytes[i].kind[k] + copy, human));
        }
        cli_print(x->cli, " %9s\n", text_bytes_human(bytes[i].all, human));
    }
    if (bytes[0].snapshot > 0) {
        cli_print(x->cli, "  buffers of rank 0 hold a copy of the state, %s, while it is saved\n",
                  text_bytes_human(bytes[0].snapshot, human));
    }
    if (bytes[0].copies > 0) {
        cli_print(x->cli,
                  "  buffers of each rank hold copies of the state for a lost rank, %s here\n",
                  text_bytes_human(bytes[0].copies, human));
    }
}

status explain_print(const explain *x, explain_price price, const explain_bytes *bytes,
                     int32_t count)
{
    char parameters[32], batch[32];
    text layout = {.a = x->cli->a};
    TRY(run_config_print_layout(x->r, &layout));
    cli_print(x->cli, "model     %s, %s parameters, %lld layer%s%s\n",
              x->r->model.preset != NULL ? x->r->model.preset : x->spec.arch,
              text_count_human((double)x->model->parameters, parameters), (long long)x->spec.layers,
              text_plural(x->spec.layers, "s"),
              x->vocab_is_known ? ""
                                : " (vocabulary of the preset: the tokenizer is not available)");
    cli_print(x->cli, "layout    %s\n", layout.bytes);
    cli_print(x->cli, "step      %s sequences x %lld tokens, %lld at once\n\n",
              text_grouped(run_config_batch_max(x->r), batch), (long long)x->r->train.seq,
              (long long)x->r->train.micro_batch);
    TRY(print_timeline(x, price));
    print_mesh(x, count);
    explain_experts(x);
    print_bytes(x, bytes, count);
    return ST_OK;
}
