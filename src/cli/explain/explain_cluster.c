// `explain --cluster`: shows a run on a cluster that need not be present, as one picture.
//
//   title      model, layout, time of a step
//   Step       pp 0 | work of the compute stream, and below it the collectives |
//   Memory     pp 0 | ======== of the device's memory |
//   Communication  tp ep cp dp pp: over how many devices and over which part of the network
//
// The step is the simulated one, in time. A row is drawn in columns of equal time, each in the
// colour of the activity that takes most of it, so the picture has the same size for a million
// actions as for a thousand.
#include "cli/explain/explain.h"
#include "cli/explain/svg.h"
#include "cli/plan/simulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INK = 0x1f2a37, QUIET = 0x6b7785, HAIR = 0xd9dfe6, GROUND = 0xeef1f5, LIMIT = 0xc23b3b };
static const double page = 1280.0, margin = 40.0, label_width = 56.0, note_width = 190.0;
static const svg_font heading = {.size = 16, .bold = true, .colour = INK},
                      small = {.size = 12, .colour = QUIET},
                      small_end = {.size = 12, .colour = QUIET, .anchor = SVG_END},
                      name_font = {.size = 12, .bold = true, .colour = INK};

// Activities of a column of time.
typedef enum doing {
    DOING_FORWARD,
    DOING_AGAIN,
    DOING_INPUT,
    DOING_WEIGHT,
    DOING_UPDATE,
    DOING_MESSAGE, // plus the kind of traffic
    DOING_COUNT = DOING_MESSAGE + TRAFFIC_COUNT
} doing;
static const struct {
    const char *name;
    uint32_t colour;
} doings[DOING_COUNT] = {[DOING_FORWARD] = {"forward", 0x2f6fb5},
                         [DOING_AGAIN] = {"recomputed forward", 0x8fb4dc},
                         [DOING_INPUT] = {"gradient of the input", 0x2f9e7a},
                         [DOING_WEIGHT] = {"gradients of weights", 0xe5a33a},
                         [DOING_UPDATE] = {"update", 0x6a5fb3},
                         [DOING_MESSAGE + TRAFFIC_TP] = {"tp", 0xc2556b},
                         [DOING_MESSAGE + TRAFFIC_CP] = {"cp", 0xdd8f9f},
                         [DOING_MESSAGE + TRAFFIC_DP] = {"dp", 0x7a5230},
                         [DOING_MESSAGE + TRAFFIC_PP] = {"pp", 0x4a5563},
                         [DOING_MESSAGE + TRAFFIC_EP] = {"ep", 0xb44fb0}};

enum { STAGE_ROWS = 32, COLUMNS = 1000 };
typedef struct picture {
    const predict_step *x;
    text *out;
    double top;
    int64_t begin, end; // of the step, in time
    bool seen[DOING_COUNT];
} picture;

static double left_of(void)
{
    return margin + label_width;
}

static double width_of(void)
{
    return page - margin - note_width - left_of();
}

static int32_t rows_of(const predict_step *x)
{
    return x->stages < STAGE_ROWS ? x->stages : STAGE_ROWS;
}

// The stage of a row; the middle of many stages is left out.
static int32_t stage_of(const predict_step *x, int32_t row)
{
    const int32_t shown = rows_of(x);
    return row < shown - shown / 2 ? row : x->stages - shown + row;
}

// ---- the step -----------------------------------------------------------------------------------

static doing doing_of(const plan *p, const plan_action *x)
{
    if (x->kind == ACTION_COMMUNICATE) {
        return (doing)(DOING_MESSAGE + traffic_of(p->run->groups[p->comms[x->comm].group].axes));
    }
    if (x->kind == ACTION_OPTIMIZER) return DOING_UPDATE;
    switch (x->list) {
    case OP_FORWARD:
        return DOING_FORWARD;
    case OP_RECOMPUTE:
        return DOING_AGAIN;
    case OP_BACKWARD_INPUT:
        return DOING_INPUT;
    default:
        return DOING_WEIGHT;
    }
}

static void step_ends(picture *p)
{
    const predict_step *x = p->x;
    p->begin = INT64_MAX;
    for (int32_t r = 0; r < x->stages; r++) {
        const plan *own = x->ranks[r].p;
        for (int64_t i = 0; i < own->action_count; i++) {
            if (own->actions[i].stream != STREAM_COMPUTE) continue;
            const sim_span s = x->step->spans[r][i];
            p->begin = min_i64(p->begin, s.begin);
            p->end = max_i64(p->end, s.end);
        }
    }
    p->end = max_i64(p->end, p->begin + 1);
}

// Adds an action's time to the columns that it covers.
static void span_add(const picture *p, sim_span s, doing what, float (*columns)[DOING_COUNT])
{
    const double unit = (double)COLUMNS / (double)(p->end - p->begin);
    const double begin = fmax(0.0, (double)(s.begin - p->begin) * unit);
    const double end = fmin((double)COLUMNS, (double)(s.end - p->begin) * unit);
    for (int c = (int)begin; c < COLUMNS && (double)c < end; c++) {
        columns[c][what] += (float)(fmin(end, c + 1.0) - fmax(begin, (double)c));
    }
}

// The largest activity of a column; -1: all together are less than `least` of it.
static int column_of(const float of[DOING_COUNT], float least)
{
    int best = 0;
    float sum = 0.0f;
    for (int k = 0; k < DOING_COUNT; k++) {
        sum += of[k];
        if (of[k] > of[best]) best = k;
    }
    return sum < least ? -1 : best;
}

static status columns_draw(picture *p, float (*columns)[DOING_COUNT], float least, double y,
                           double height)
{
    const double unit = width_of() / COLUMNS;
    for (int from = 0, to = 0; from < COLUMNS; from = to) {
        const int what = column_of(columns[from], least);
        for (to = from + 1; to < COLUMNS && column_of(columns[to], least) == what;) to++;
        if (what < 0) continue;
        const double box[4] = {left_of() + unit * from, y, unit * (to - from), height};
        p->seen[what] = true;
        TRY(svg_box(p->out, box, 0.0, doings[what].colour, -1));
    }
    return ST_OK;
}

static status stage_draw(picture *p, arena *a, int32_t stage, double y, double height)
{
    const predict_step *x = p->x;
    const plan *own = x->ranks[stage].p;
    const sim_times *t = &x->step->times[stage];
    const double ground[4] = {left_of(), y, width_of(), height};
    float(*work)[DOING_COUNT] = NULL, (*collectives)[DOING_COUNT] = NULL;
    TRY(arena_new(a, COLUMNS, &work));
    TRY(arena_new(a, COLUMNS, &collectives));
    for (int64_t i = 0; i < own->action_count; i++) {
        const plan_action *one = &own->actions[i];
        const bool is_collective = one->kind == ACTION_COMMUNICATE;
        if (!is_collective && one->stream != STREAM_COMPUTE) continue;
        span_add(p, x->step->spans[stage][i], doing_of(own, one),
                 is_collective ? collectives : work);
    }
    int64_t exposed = 0;
    for (int k = 0; k < TRAFFIC_COUNT; k++) exposed += t->exposed[k];
    TRY(svg_label(p->out, margin, y + height / 2, &name_font, "pp %d", (int)stage));
    TRY(svg_box(p->out, ground, 2.0, GROUND, -1));
    TRY(columns_draw(p, work, 0.5f, y, height * 0.72));
    TRY(columns_draw(p, collectives, 0.1f, y + height * 0.78, height * 0.22));
    return svg_label(p->out, page - margin, y + height / 2, &small_end,
                     "%.1f%% idle · %.1f%% waiting", 100.0 * (double)t->bubble / (double)t->length,
                     100.0 * (double)exposed / (double)t->length);
}

static status axis_draw(const picture *p)
{
    const double seconds = (double)(p->end - p->begin) * 1e-9;
    const svg_font tick = {.size = 10, .colour = QUIET, .anchor = SVG_MIDDLE};
    double step = pow(10.0, floor(log10(seconds)));
    if (seconds / step < 2.5) step /= 5.0;
    if (seconds / step < 5.0) step /= 2.0;
    for (int i = 0; i * step <= seconds * 1.0001; i++) {
        const double at = i * step;
        const double x = left_of() + width_of() * at / seconds;
        const double line[4] = {x, p->top, x, p->top + 4};
        TRY(svg_line(p->out, line, QUIET, 0.8, false));
        TRY(svg_label(p->out, x, p->top + 12, &tick, seconds < 1.0 ? "%g ms" : "%g s",
                      seconds < 1.0 ? at * 1e3 : at));
    }
    return ST_OK;
}

static status legend_item(const picture *p, double *x, uint32_t colour, const char *word)
{
    const double box[4] = {*x, p->top - 6, 12, 12};
    TRY(svg_box(p->out, box, 2.0, colour, -1));
    TRY(svg_label(p->out, *x + 17, p->top, &small, "%s", word));
    *x += 34 + 6.6 * (double)strlen(word);
    return ST_OK;
}

static status step_draw(picture *p)
{
    const predict_step *x = p->x;
    const int32_t rows = rows_of(x);
    const double row = fmin(40.0, fmax(16.0, 560.0 / rows));
    arena *a = NULL;
    status st = ST_OK;
    step_ends(p);
    TRY(svg_label(p->out, margin, p->top, &heading, "Step"));
    TRY(svg_label(p->out, left_of() + 10, p->top, &small,
                  "one rank of each stage: work above, transfers below"));
    p->top += 20;
    TRY(arena_create("columns", 0, &a));
    for (int32_t i = 0; i < rows && st == ST_OK; i++) {
        st = stage_draw(p, a, stage_of(x, i), p->top + row * i, row * 0.86);
        arena_reset(a);
    }
    arena_destroy(a);
    TRY(st);
    p->top += row * rows;
    TRY(axis_draw(p));
    p->top += 36;
    double at = left_of();
    for (int k = 0; k < DOING_COUNT; k++) {
        if (p->seen[k]) TRY(legend_item(p, &at, doings[k].colour, doings[k].name));
    }
    TRY(legend_item(p, &at, GROUND, "idle"));
    p->top += 48;
    return ST_OK;
}

// ---- memory -------------------------------------------------------------------------------------

static status memory_draw(picture *p)
{
    const predict_step *x = p->x;
    const int32_t rows = rows_of(x);
    const double row = fmin(26.0, fmax(12.0, 380.0 / rows));
    char human[32];
    double most = (double)x->usable_bytes * 1.02;
    for (int32_t i = 0; i < x->stages; i++) most = fmax(most, (double)x->peak_bytes * 1.02);
    const double unit = width_of() / most, limit = left_of() + unit * (double)x->usable_bytes;
    TRY(svg_label(p->out, margin, p->top, &heading, "Memory"));
    TRY(svg_label(p->out, left_of() + 40, p->top, &small, "one rank of each stage; a device has %s",
                  text_bytes_human(x->usable_bytes, human)));
    p->top += 20;
    for (int32_t i = 0; i < rows; i++) {
        int64_t kind[PLAN_BYTES_COUNT];
        const int32_t stage = stage_of(x, i);
        const int64_t all = predict_step_bytes(x, stage, kind);
        const double y = p->top + row * i, ground[4] = {left_of(), y, width_of(), row * 0.8};
        double at = left_of();
        TRY(svg_label(p->out, margin, y + row * 0.4, &name_font, "pp %d", (int)stage));
        TRY(svg_box(p->out, ground, 2.0, GROUND, -1));
        for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
            const double box[4] = {at, y, unit * (double)kind[k], row * 0.8};
            if (box[2] > 0.05) TRY(svg_box(p->out, box, 0.0, explain_bytes_colours[k], -1));
            at += box[2];
        }
        TRY(svg_label(p->out, page - margin, y + row * 0.4, &small_end, "%s%s",
                      text_bytes_human(all, human), all > x->usable_bytes ? ": does not fit" : ""));
    }
    const double line[4] = {limit, p->top - 4, limit, p->top + row * rows};
    TRY(svg_line(p->out, line, LIMIT, 1.5, true));
    p->top += row * rows + 16;
    double at = left_of();
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        TRY(legend_item(p, &at, explain_bytes_colours[k], plan_bytes_name((plan_kind_of_bytes)k)));
    }
    p->top += 48;
    return ST_OK;
}

// ---- communication over the network ------------------------------------------------------------

typedef struct axis_reach {
    const char *name;
    doing kind;
    int64_t ranks, apart; // devices from one to the next
} axis_reach;

// Position of a number of devices, 1 to all, on a logarithmic axis.
static double device_x(const predict_step *x, double devices)
{
    return left_of() + width_of() * log2(devices) / fmax(log2((double)x->devices), 1.0);
}

static status levels_draw(const picture *p, double height)
{
    const cluster *c = &p->x->of->machine;
    double from = 1.0;
    for (int32_t i = 0; i < c->level_count; i++) {
        const cluster_level *level = &c->levels[i];
        const bool last = i + 1 == c->level_count;
        const double all = (double)p->x->devices;
        const double to = last ? all : fmin((double)level->devices, all);
        if (to <= from) continue;
        const double x0 = device_x(p->x, from), x1 = device_x(p->x, to);
        const double box[4] = {x0, p->top, x1 - x0, height};
        TRY(svg_box(p->out, box, 0.0, i % 2 == 0 ? GROUND : 0xe2e8ef, -1));
        char n[32];
        TRY(svg_label(p->out, x0 + 6, p->top + 11, &small, "%s, %.0f GB/s", level->name,
                      level->bytes_s * 1e-9));
        TRY(svg_label(p->out, x1 - 4, p->top + height + 10, &small_end, "%s",
                      text_grouped((int64_t)to, n)));
        from = to;
    }
    return ST_OK;
}

static status reach_draw(picture *p)
{
    const run_config *r = p->x->of->r;
    const int64_t tp = r->layout.tp, cp = r->layout.cp, dp = r->layout.dp, pp = r->layout.pp;
    const axis_reach all[] = {{"tp", DOING_MESSAGE + TRAFFIC_TP, tp, 1},
                              {"cp", DOING_MESSAGE + TRAFFIC_CP, cp, tp},
                              {"ep", DOING_MESSAGE + TRAFFIC_EP, r->layout.ep, tp},
                              {"dp", DOING_MESSAGE + TRAFFIC_DP, dp, tp * cp},
                              {"pp", DOING_MESSAGE + TRAFFIC_PP, pp, tp * cp * dp}};
    int32_t rows = 0;
    for (int k = 0; k < (int)COUNT_OF(all); k++) rows += all[k].ranks > 1 ? 1 : 0;
    if (rows == 0) return ST_OK;
    const double row = 24.0, height = 24.0 + row * rows;
    TRY(svg_label(p->out, margin, p->top, &heading, "Communication"));
    TRY(svg_label(p->out, left_of() + 150, p->top, &small,
                  "from a rank's nearest peer to its farthest, in devices of the cluster"));
    p->top += 18;
    TRY(levels_draw(p, height));
    double y = p->top + 22;
    for (int k = 0; k < (int)COUNT_OF(all); k++) {
        const axis_reach *one = &all[k];
        if (one->ranks <= 1) continue;
        char n[32];
        const double x0 = device_x(p->x, (double)one->apart),
                     x1 = device_x(p->x, (double)(one->apart * one->ranks));
        const double box[4] = {x0, y + 4, fmax(x1 - x0, 3.0), row - 8};
        TRY(svg_label(p->out, margin, y + row / 2, &name_font, "%s", one->name));
        TRY(svg_box(p->out, box, 3.0, doings[one->kind].colour, -1));
        TRY(svg_label(p->out, page - margin, y + row / 2, &small_end, "%s ranks · %.1f%%",
                      text_grouped(one->ranks, n),
                      100.0 * p->x->exposed[one->kind - DOING_MESSAGE]));
        y += row;
    }
    p->top += height + 30;
    return svg_label(p->out, page - margin, p->top, &small_end,
                     "percent of the step in which work waits for it");
}

// ---- the picture -------------------------------------------------------------------------------

static status title_draw(picture *p)
{
    const predict_step *x = p->x;
    const predict_setup *s = x->of;
    const svg_font title = {.size = 24, .bold = true, .colour = INK};
    const svg_font note = {.size = 14, .colour = QUIET};
    text layout = {.a = p->out->a};
    char n[3][32];
    TRY(run_config_print_layout(s->r, &layout));
    TRY(svg_label(p->out, margin, p->top, &title, "%s on %s", s->name, s->machine.name));
    p->top += 30;
    TRY(svg_label(p->out, margin, p->top, &note, "%s parameters on %s devices: %s",
                  text_count_human((double)x->parameters, n[0]), text_grouped(x->devices, n[1]),
                  layout.bytes));
    p->top += 21;
    TRY(svg_label(p->out, margin, p->top, &note,
                  "A step of %s sequences of %s tokens takes %.3g s: %s tokens/s, MFU %.1f%%",
                  text_grouped(run_config_batch_max(s->r), n[0]),
                  text_grouped(s->r->train.seq, n[1]), x->step_s,
                  text_count_human(x->tokens_per_s, n[2]), 100.0 * x->mfu));
    p->top += 44;
    return ST_OK;
}

static status cluster_svg(const predict_step *x, arena *a, text *out)
{
    text body = {.a = a};
    picture p = {.x = x, .out = &body, .top = margin};
    TRY(title_draw(&p));
    TRY(step_draw(&p));
    TRY(memory_draw(&p));
    TRY(reach_draw(&p));
    TRY(svg_begin(out, page, p.top + margin / 2, "trireme explain"));
    TRY(text_add_bytes(out, body.bytes, body.length));
    return svg_end(out);
}

status explain_cluster(cli_context *cli, const cli_call *call, const char *machine, const char *svg)
{
    predict_setup *s = NULL;
    predict_step *x = NULL;
    text t = {.a = cli->a}, drawn = {.a = cli->a};
    simulate_request w = {.operand = call->operands[0],
                          .cluster = machine,
                          .keys = call->keys,
                          .key_count = call->key_count};
    TRY(simulate_named(cli, &w));
    TRY(arena_new(cli->a, 1, &s));
    TRY(arena_new(cli->a, 1, &x));
    TRY(simulate_open(cli, w.operand, w.cluster, w.keys, w.key_count, false, s));
    TRY(simulate_keys_check(cli, call->keys, call->key_count, s, run_config_ranks(s->r)));
    TRY(predict_step_make(cli->a, s, x));
    TRY(simulate_print_text(cli->a, x, &t));
    TRY(text_add(&t, "\n"));
    TRY(simulate_print_software(cli, x, NULL, &t));
    cli_print_text(cli, &t);
    if (svg == NULL) return ST_OK;
    TRY(cluster_svg(x, cli->a, &drawn));
    TRY(host_write_all(cli->h, svg, drawn.bytes, drawn.length));
    cli_print(cli, "\npicture   %s\n", svg);
    return ST_OK;
}
