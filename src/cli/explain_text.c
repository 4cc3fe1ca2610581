// The whole run as text, as wide as the terminal: timeline, mesh, bytes.
#include "cli/explain.h"

#include <stdio.h>
#include <string.h>

enum { LABEL = 10, ROWS_SHOWN = 24, COLUMNS_MAX = 512, CELLS = 6 };

// ---- the timeline -------------------------------------------------------------------------------

typedef struct strip {
    int64_t units;  // of time in a cell
    int32_t width;  // characters of a cell: 1, or with the micro-batch 2 or 3
    int64_t length; // cells
} strip;

static strip strip_make(const plan_timeline *t, int columns)
{
    const int64_t room = max_i64(20, min_i64(columns, COLUMNS_MAX) - LABEL);
    strip s = {.units = 1, .width = t->request.microbatches > 10 ? 3 : 2};
    while (s.width > 1 && t->length * s.width > room) s.width--;
    if (s.width == 2 && t->request.microbatches > 10)
        s.width = 1; // one digit would say the wrong thing
    if (s.width == 1) s.units = (t->length + room - 1) / room;
    s.length = (t->length + s.units - 1) / s.units;
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

// An action is one part; of two side by side the forward is drawn first.
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

// Cells of one unit or less of time: the letter, then the micro-batch; what goes on is a line.
static void part_write(const part *p, const strip *s, char *row)
{
    for (int64_t c = p->span.begin; c < p->span.end; c++) {
        char *cell = &row[c * s->width], digits[16];
        if (c > p->span.begin && s->width > 1) {
            memset(cell, '-', (size_t)s->width - (c + 1 == p->span.end ? 1 : 0));
            continue;
        }
        (void)snprintf(digits, sizeof(digits), "%c%d", p->letter, p->microbatch);
        for (int d = 0; d < s->width && digits[d] != '\0'; d++) cell[d] = digits[d];
    }
}

static void row_write(const plan_timeline *t, int32_t rank, const strip *s, char *row)
{
    memset(row, ' ', (size_t)(s->length * s->width));
    row[s->length * s->width] = '\0';
    for (int64_t c = 0; c < s->length; c++) row[c * s->width] = '.';
    for (int64_t k = 0; k < t->ranks[rank].list.count; k++) {
        part parts[2];
        const int n = parts_of(t, rank, k, parts);
        for (int i = 0; i < n; i++) part_write(&parts[i], s, row);
    }
}

// Cells of several units: each shows what is owed most of the row so far, so that a row has as much of
// each letter, and of idleness, as its time has.
static void row_mix(const plan_timeline *t, int32_t rank, const strip *s, char *row)
{
    int64_t owed[128] = {0}, at = 0, c = 0, k = 0;
    const timeline_rank *r = &t->ranks[rank];
    part parts[2] = {0};
    int n = 0, i = 0;
    for (; c < s->length; c++) {
        const int64_t end = (c + 1) * s->units;
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
        owed[most] -= s->units;
        row[c] = (char)most;
    }
    row[c] = '\0';
}

static void print_row(const explain *x, const plan_timeline *t, int32_t rank, const strip *s)
{
    char row[4 * COLUMNS_MAX], label[32];
    if (s->units > 1) {
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
    if (s.units > 1) {
        cli_print(x->cli,
                  "%-*sa column is %lld units: each letter as often as its share of the time\n",
                  LABEL, "", (long long)s.units);
    }
}

static void print_timeline(const explain *x, const plan_timeline *t)
{
    char share[32], words[64] = "as many decoder layers as its stage has";
    const int64_t without = t->bubble - t->barrier;
    const schedule_request *r = &t->request;
    if (x->unit > 1) {
        (void)snprintf(words, sizeof(words), "%lld decoder layers", (long long)x->unit);
    }
    cli_print(x->cli, "pipeline  %s: %d micro-batches, %d rank%s of pp", t->schedule->name,
              r->microbatches, r->stages, r->stages == 1 ? "" : "s");
    if (r->chunks > 1) cli_print(x->cli, " with %d chunks each", r->chunks);
    cli_print(x->cli, "\n");
    print_rows(x, t);
    cli_print(x->cli, "  bubble  %lld of %lld units, %s", (long long)t->bubble,
              (long long)t->length, percent(t->bubble, t->length, share));
    if (t->barrier > 0) {
        cli_print(x->cli, "; %lld without the optimizer's barrier, which costs %lld",
                  (long long)without, (long long)t->barrier);
    }
    cli_print(x->cli, "\n  held    at most %d micro-batches x chunks of activations on a rank\n",
              t->live_peak);
}

status explain_row(const explain *x, int32_t pp)
{
    enum { MOST = 400000 }; // actions: some 10 ms
    plan_timeline *t = NULL;
    const schedule_request *r = &x->pipe.shape;
    if (3 * (int64_t)r->stages * r->microbatches * r->chunks > MOST) return ST_OK;
    TRY(explain_play(x, x->cli->a, 0, &t));
    const strip s = strip_make(t, x->cli->columns);
    print_row(x, t, pp, &s);
    return ST_OK;
}

// ---- the mesh -----------------------------------------------------------------------------------

static void range_print(int64_t first, int64_t count, char *out, size_t bytes)
{
    char a[32], b[32];
    if (count == 1) {
        (void)snprintf(out, bytes, "%s", explain_count(first, a));
    } else {
        (void)snprintf(out, bytes, "%s-%s", explain_count(first, a),
                       explain_count(first + count - 1, b));
    }
}

// The layers of a rank's chunks: "embed, 0 + 7, head"; of many the first and the last.
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

// Ranks of one pp and dp coordinate follow one another.
static void print_mesh(const explain *x, int32_t shown)
{
    const run_config *r = x->r;
    char count[32], name[40], cell[72], layers[160];
    const int64_t dp = r->layout.dp, pp = r->layout.pp, inner = r->layout.cp * r->layout.tp;
    const int64_t cells = min_i64(dp, CELLS);
    cli_print(x->cli, "\nmesh      %s rank%s; rank = ((pp * %lld + dp) * %lld + cp) * %lld + tp\n",
              explain_count(x->ranks, count), x->ranks == 1 ? "" : "s", (long long)dp,
              (long long)r->layout.cp, (long long)r->layout.tp);
    cli_print(x->cli, "  %-6s  %-22s", "pp", "layers");
    for (int64_t c = 0; c < cells; c++) {
        const int64_t i = c < cells - 1 ? c : dp - 1;
        (void)snprintf(name, sizeof(name), "%sdp %lld", i > c ? "... " : "", (long long)i);
        cli_print(x->cli, " %*s", 7 + (x->ranks > 9999 ? 6 : 0), name);
    }
    cli_print(x->cli, "\n");
    for (int32_t k = 0; k < shown; k++) {
        const int64_t i = k < shown - shown / 2 ? k : pp - shown + k;
        if (i > k && k == shown - shown / 2) cli_print(x->cli, "  ...\n");
        chunks_print(x, (int32_t)i, layers);
        cli_print(x->cli, "  %-6lld  %-22s", (long long)i, layers);
        for (int64_t d = 0; d < cells; d++) {
            range_print((i * dp + (d < cells - 1 ? d : dp - 1)) * inner, inner, cell, sizeof(cell));
            cli_print(x->cli, " %*s", 7 + (x->ranks > 9999 ? 6 : 0), cell);
        }
        cli_print(x->cli, "\n");
    }
}

// ---- bytes --------------------------------------------------------------------------------------

static void print_bytes(const explain *x, const explain_bytes *bytes, int32_t count)
{
    static const char *const heads[BYTES_KIND_COUNT] = {"weights", "grads",       "master",
                                                        "moments", "activations", "buffers"};
    char human[32], rank[32];
    cli_print(x->cli, "\nbytes     of the first rank of each stage, at its fullest moment\n");
    cli_print(x->cli, "  %-7s", "rank");
    for (int k = 0; k < BYTES_KIND_COUNT; k++)
        cli_print(x->cli, " %*s", k == BYTES_ACTIVATIONS ? 11 : 9, heads[k]);
    cli_print(x->cli, " %9s\n", "together");
    for (int32_t i = 0; i < count; i++) {
        if (i > 0 && bytes[i].rank - bytes[i - 1].rank > x->ranks / x->r->layout.pp) {
            cli_print(x->cli, "  ...\n");
        }
        cli_print(x->cli, "  %-7s", explain_count(bytes[i].rank, rank));
        for (int k = 0; k < BYTES_KIND_COUNT; k++) {
            cli_print(x->cli, " %*s", k == BYTES_ACTIVATIONS ? 11 : 9,
                      text_bytes_human(bytes[i].kind[k], human));
        }
        cli_print(x->cli, " %9s\n", text_bytes_human(bytes[i].all, human));
    }
    if (bytes[0].snapshot > 0) {
        cli_print(x->cli, "  rank 0 has a copy of the state too, %s, while it is saved\n",
                  text_bytes_human(bytes[0].snapshot, human));
    }
}

status explain_print(const explain *x, const explain_bytes *bytes, int32_t count)
{
    plan_timeline *t = NULL;
    char parameters[32];
    text layout = {.a = x->cli->a};
    TRY(run_config_print_layout(x->r, &layout));
    TRY(explain_play(x, x->cli->a, 0, &t));
    cli_print(x->cli, "model     %s, %s parameters, %lld layers%s\n",
              x->r->model.preset != NULL ? x->r->model.preset : x->spec.arch,
              text_count_human((double)x->model->parameters, parameters), (long long)x->spec.layers,
              x->vocab_is_known ? "" : " (vocabulary of the preset: no tokenizer at hand)");
    cli_print(x->cli, "layout    %s; micro-batch %lld x %lld tokens, %lld sequences a step\n\n",
              layout.bytes, (long long)x->r->train.micro_batch, (long long)x->r->train.seq,
              (long long)run_config_batch_max(x->r));
    print_timeline(x, t);
    print_mesh(x, count);
    print_bytes(x, bytes, count);
    return ST_OK;
}
