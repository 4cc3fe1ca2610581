// Draws the picture of a run: above, the step of the pipeline; below, a row per stage with its
// ranks and bytes.
//
//   title
//   Pipeline         pp 0 | F F F I W ...                     | idle, held
//   Ranks and bytes  pp 0 | layers | [0 1 2 3] [4 5 6 7] ...  | ======== 1.2 GiB
#include "cli/explain/explain.h"
#include "cli/explain/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- colours ------------------------------------------------------------------------------------
enum { INK = 0x1f2a37, QUIET = 0x6b7785, HAIR = 0xd9dfe6, GROUND = 0xeef1f5 };
static const uint32_t forward_colour = 0x2f6fb5, both_colour = 0x1d7f5f, input_colour = 0x2f9e7a,
                      weight_colour = 0xe5a33a;
const uint32_t explain_bytes_colours[PLAN_BYTES_COUNT] = {
    [PLAN_BYTES_WEIGHTS] = 0x2f6fb5,     [PLAN_BYTES_GRADIENTS] = 0x2f9e7a,
    [PLAN_BYTES_MASTER] = 0x6a5fb3,      [PLAN_BYTES_MOMENTS] = 0xa98ccf,
    [PLAN_BYTES_ACTIVATIONS] = 0xe5a33a, [PLAN_BYTES_BUFFERS] = 0xa3aebb};
static const double page = 1280.0, margin = 40.0, label_width = 96.0, note_width = 132.0;
static const svg_font heading = {.size = 16, .bold = true, .colour = INK},
                      small = {.size = 12, .colour = QUIET},
                      small_end = {.size = 12, .colour = QUIET, .anchor = SVG_END};

typedef struct picture {
    const explain *x;
    const plan_timeline *t;     // the drawn part
    const plan_timeline *whole; // the whole step
    text *out;
    double top; // of the section
    double row; // height of a row of the timeline with its gap
    const explain_bytes *bytes;
    int32_t count;
} picture;

// ---- the timeline -------------------------------------------------------------------------------
enum { TIMELINE_ROWS = 64 };

static uint32_t colour_of(schedule_kind kind, int32_t chunk, int32_t chunks)
{
    static const uint32_t *const base[] = {[SCHEDULE_FORWARD] = &forward_colour,
                                           [SCHEDULE_BACKWARD] = &both_colour,
                                           [SCHEDULE_BACKWARD_INPUT] = &input_colour,
                                           [SCHEDULE_BACKWARD_WEIGHT] = &weight_colour,
                                           [SCHEDULE_BOTH] = &forward_colour};
    return svg_lighter(*base[kind], chunks > 1 ? 0.55 * chunk / (chunks - 1) : 0.0);
}

static double chart_width(void)
{
    return page - 2 * margin - label_width - note_width;
}

// Draws one cell: its colour, and the micro-batch if the cell is wide enough.
static status cell_draw(const picture *p, const double at[4], schedule_kind kind, int32_t chunk,
                        int32_t microbatch)
{
    char digits[16]; // of the last micro-batch: all cells of a width show their number, or none
    const int n = snprintf(digits, sizeof(digits), "%d", p->t->request.microbatches - 1);
    const uint32_t fill = colour_of(kind, chunk, p->t->request.chunks);
    const bool dark = (fill & 0xff00u) < 0xae00u; // by its green component, most of its brightness
    svg_font font = {.colour = dark ? 0xffffff : INK, .anchor = SVG_MIDDLE};
    const double high = at[3] * 0.56 < 12.0 ? at[3] * 0.56 : 12.0,
                 wide = (at[2] - 2.0) / (0.62 * n);
    font.size = high < wide ? high : wide;
    const double gap = at[2] > 5.0 ? 0.6 : at[2] > 3.0 ? 0.3 : 0.0;
    const double box[4] = {at[0] + gap, at[1], at[2] - 2 * gap, at[3]};
    TRY(svg_box(p->out, box, at[2] > 5.0 ? 2.0 : 0.0, fill, -1));
    if (font.size < 6.0) return ST_OK;
    return svg_label(p->out, at[0] + at[2] / 2, at[1] + at[3] / 2, &font, "%d", microbatch);
}

static status action_draw(const picture *p, const schedule_action *x, const double at[4])
{
    if (x->kind != SCHEDULE_BOTH) return cell_draw(p, at, x->kind, x->chunk, x->microbatch);
    const double above[4] = {at[0], at[1], at[2], at[3] / 2 - 0.5};
    const double below[4] = {at[0], at[1] + at[3] / 2 + 0.5, at[2], at[3] / 2 - 0.5};
    TRY(cell_draw(p, above, SCHEDULE_FORWARD, x->chunk, x->microbatch));
    return cell_draw(p, below, SCHEDULE_BACKWARD, x->chunk_b, x->microbatch_b);
}

static status rank_draw(const picture *p, int32_t rank, double y)
{
    const timeline_rank *r = &p->t->ranks[rank], *whole = &p->whole->ranks[rank];
    const double left = margin + label_width, unit = chart_width() / (double)p->t->length;
    const double height = p->row * 0.86;
    const svg_font name = {.size = p->row > 15 ? 13 : 9, .bold = true, .colour = INK};
    svg_font note = small_end;
    const double ground[4] = {left, y, chart_width(), height};
    note.size = name.size - 1;
    TRY(svg_label(p->out, margin, y + height / 2, &name, "pp %d", rank));
    TRY(svg_box(p->out, ground, 3.0, GROUND, -1));
    for (int64_t k = 0; k < r->list.count; k++) {
        const timeline_span s = r->spans[k];
        const double at[4] = {left + unit * (double)s.begin, y, unit * (double)(s.end - s.begin),
                              height};
        TRY(action_draw(p, &r->list.actions[k], at));
    }
    return svg_label(p->out, page - margin, y + height / 2, &note, "%.1f%% idle · %d held",
                     100.0 * (double)whole->bubble / (double)p->whole->length, whole->live_peak);
}

// Draws about eight ticks at 1, 2 or 5 times a power of ten.
static status axis_draw(const picture *p, double y)
{
    int64_t step = 1;
    if (p->t->costs.stages != NULL) return ST_OK; // a FLOP axis has no useful unit
    for (int i = 0; p->t->length / step > 10; i++)
        step = step / (i % 3 == 1 ? 2 : 1) * (i % 3 == 1 ? 5 : 2);
    const double left = margin + label_width, unit = chart_width() / (double)p->t->length;
    const svg_font tick = {.size = 10, .colour = QUIET, .anchor = SVG_MIDDLE};
    for (int64_t at = 0; at <= p->t->length; at += step) {
        const double x = left + unit * (double)at;
        const double line[4] = {x, y, x, y + 4};
        TRY(svg_line(p->out, line, QUIET, 0.8, false));
        TRY(svg_label(p->out, x, y + 12, &tick, "%lld", (long long)at));
    }
    return ST_OK;
}

static status legend_draw(const picture *p, double y)
{
    const struct {
        schedule_kind kind;
        const char *name;
        bool is_there;
    } items[] = {
        {SCHEDULE_FORWARD, "forward", true},
        {SCHEDULE_BACKWARD, "backward",
         !p->t->schedule->splits_backward || p->t->request.chunks == 2},
        {SCHEDULE_BACKWARD_INPUT, "gradient of the input", p->t->schedule->splits_backward},
        {SCHEDULE_BACKWARD_WEIGHT, "gradients of weights", p->t->schedule->splits_backward},
    };
    double x = margin + label_width;
    const int32_t chunks = p->t->request.chunks;
    for (int i = 0; i < (int)COUNT_OF(items); i++) {
        if (!items[i].is_there) continue;
        for (int32_t c = 0; c < chunks && c < 4; c++) {
            const double box[4] = {x, y - 6, 12, 12};
            TRY(svg_box(p->out, box, 2.0, colour_of(items[i].kind, c, chunks), -1));
            x += 14;
        }
        TRY(svg_label(p->out, x + 4, y, &small, "%s", items[i].name));
        x += 26 + 6.4 * (double)strlen(items[i].name);
    }
    const double box[4] = {x, y - 6, 12, 12};
    TRY(svg_box(p->out, box, 2.0, GROUND, HAIR));
    return svg_label(p->out, x + 18, y, &small,
                     chunks > 1 ? "idle; lighter: later chunks" : "idle");
}

static status timeline_draw(picture *p)
{
    const plan_timeline *t = p->whole;
    const int32_t shown = t->request.stages < TIMELINE_ROWS ? t->request.stages : TIMELINE_ROWS;
    char why[128] = "", drawn[64] = "", units[64] = "";
    if (p->t != t) {
        (void)snprintf(drawn, sizeof(drawn), " (%d are drawn)", p->t->request.microbatches);
    }
    if (t->costs.stages == NULL) {
        (void)snprintf(units, sizeof(units), ", %lld of %lld", (long long)t->bubble,
                       (long long)t->length);
    }
    if (t->barrier > 0) {
        (void)snprintf(why, sizeof(why), "; %.1f%% without the optimizer's barrier",
                       100.0 * (double)(t->bubble - t->barrier) / (double)(t->length - t->barrier));
    }
    TRY(svg_label(p->out, margin, p->top, &heading, "Pipeline"));
    TRY(svg_label(p->out, margin + label_width, p->top, &small,
                  "%s, %d micro-batch%s%s, %s: bubble %.1f%%%s%s", t->schedule->name,
                  t->request.microbatches, text_plural(t->request.microbatches, "es"), drawn,
                  units[0] != '\0' ? "in equal times" : "by FLOPs",
                  100.0 * (double)t->bubble / (double)t->length, units, why));
    TRY(svg_label(p->out, page - margin, p->top, &small_end, "idle · activations held"));
    p->top += 22;
    for (int32_t i = 0; i < shown; i++) {
        const int32_t rank =
            i < shown - shown / 2 ? i : t->request.stages - shown + i; // the middle is left out
        TRY(rank_draw(p, rank, p->top + p->row * i));
    }
    p->top += p->row * shown;
    TRY(axis_draw(p, p->top));
    TRY(legend_draw(p, p->top + 34));
    p->top += 34 + 50;
    return ST_OK;
}

// ---- ranks and bytes ----------------------------------------------------------------------------
enum { HOLDER_ROWS = 16, SQUARES = 8 };
static const double mesh_left = 40.0 + 96.0 + 120.0, mesh_width = 430.0;

// Draws the ranks of one stage and one dp coordinate: squares, a line per tp group, or the range of
// their numbers.
static status ranks_draw(const picture *p, int64_t first, const double at[4], uint32_t colour)
{
    const int64_t tp = p->x->r->layout.tp, cp = p->x->r->layout.cp;
    const double side = at[2] / (double)tp - 2.0, line = at[3] / (double)cp;
    const svg_font name = {.size = 10, .colour = INK, .anchor = SVG_MIDDLE};
    char a[32], b[32];
    TRY(svg_box(p->out, at, 4.0, svg_lighter(colour, 0.82), svg_lighter(colour, 0.3)));
    const double widest = 9.0 + 6.0 * (double)strlen(text_grouped(p->x->ranks, a));
    if (tp > SQUARES || side < widest || line < 13.0 || p->x->ranks > 10000) {
        const bool one = tp * cp == 1;
        const double y = at[1] + at[3] / 2;
        if (one)
            return svg_label(p->out, at[0] + at[2] / 2, y, &name, "%s", text_grouped(first, a));
        return svg_label(p->out, at[0] + at[2] / 2, y, &name, "%s–%s", text_grouped(first, a),
                         text_grouped(first + tp * cp - 1, b));
    }
    for (int64_t i = 0; i < tp * cp; i++) {
        const double x = at[0] + at[2] / (double)tp * ((double)(i % tp) + 0.5);
        const int64_t row = i / tp;
        const double y = at[1] + line * ((double)row + 0.5);
        if (tp > 1 && i % tp > 0) {
            const double l[4] = {x - at[2] / (double)tp, y, x, y};
            TRY(svg_line(p->out, l, svg_lighter(colour, 0.3), 1.5, false));
        }
    }
    for (int64_t i = 0; i < tp * cp; i++) {
        const double x = at[0] + at[2] / (double)tp * ((double)(i % tp) + 0.5);
        const int64_t row = i / tp;
        const double y = at[1] + line * ((double)row + 0.5);
        char n[32];
        const double wide = 9.0 + 6.0 * (double)strlen(text_grouped(first + i, n));
        const double box[4] = {x - wide / 2, y - 7, wide, 14};
        TRY(svg_box(p->out, box, 3.0, 0xffffff, svg_lighter(colour, 0.2)));
        TRY(svg_label(p->out, x, y, &name, "%s", n));
    }
    return ST_OK;
}

// Width of the columns of dp coordinates: that of their content; at least three fit.
static double box_wanted(const explain *x)
{
    const int64_t tp = x->r->layout.tp, inner = tp * x->r->layout.cp;
    char a[32], b[32];
    const size_t one = strlen(text_grouped(x->ranks, a));
    if (tp <= SQUARES && x->ranks <= 10000) return 40.0 + (12.0 + 7.0 * (double)one) * (double)tp;
    const size_t range = inner > 1 ? strlen(text_grouped(x->ranks - inner, b)) + one + 1 : one;
    return 26.0 + 6.2 * (double)range;
}

static double box_width(const explain *x)
{
    return fmin(box_wanted(x), mesh_width / (double)min_i64(x->r->layout.dp, 3));
}

static int64_t box_count(const explain *x)
{
    return min_i64(x->r->layout.dp, (int64_t)max_i64(3, (int64_t)(mesh_width / box_width(x))));
}

static status stage_ranks_draw(const picture *p, int64_t stage, double y, double height)
{
    const int64_t dp = p->x->r->layout.dp, boxes = box_count(p->x);
    const int64_t inner = p->x->r->layout.tp * p->x->r->layout.cp;
    const double wide = box_width(p->x);
    const svg_font dots = {.size = 12, .colour = QUIET, .anchor = SVG_MIDDLE};
    for (int64_t c = 0; c < boxes; c++) {
        const int64_t d = c < boxes - 1 ? c : dp - 1;
        const double at[4] = {mesh_left + wide * (double)c, y, wide - 8, height};
        if (boxes < dp && c == boxes - 2) {
            TRY(svg_label(p->out, at[0] + at[2] / 2, y + height / 2, &dots, "…"));
            continue;
        }
        TRY(ranks_draw(p, (stage * dp + d) * inner, at, forward_colour));
    }
    return ST_OK;
}

static status stage_bytes_draw(const picture *p, const explain_bytes *b, double y, double height,
                               int64_t most)
{
    const double left = mesh_left + mesh_width + 20.0, wide = page - margin - 78.0 - left;
    const double scale = wide / (double)max_i64(most, 1);
    const svg_font total = {.size = 12, .bold = true, .colour = INK, .anchor = SVG_END};
    char human[32];
    double x = left;
    const double ground[4] = {left, y, wide, height};
    TRY(svg_box(p->out, ground, 3.0, GROUND, -1));
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        const double at[4] = {x, y, scale * (double)b->kind[k], height};
        if (at[2] > 0.05) TRY(svg_box(p->out, at, 0.0, explain_bytes_colours[k], -1));
        x += at[2];
    }
    return svg_label(p->out, page - margin, y + height / 2, &total, "%s",
                     text_bytes_human(b->all - b->snapshot, human));
}

static status kind_draw(const picture *p, double *x, uint32_t colour, const char *name)
{
    const double box[4] = {*x, p->top - 5, 10, 10};
    const svg_font font = {.size = 11, .colour = QUIET};
    TRY(svg_box(p->out, box, 2.0, colour, -1));
    TRY(svg_label(p->out, *x + 14, p->top, &font, "%s", name));
    *x += 26 + 6.5 * (double)strlen(name);
    return ST_OK;
}

static status kinds_draw(const picture *p)
{
    double x = mesh_left + mesh_width + 20.0;
    int64_t all[PLAN_BYTES_COUNT] = {0};
    for (int32_t i = 0; i < p->count; i++) {
        for (int k = 0; k < PLAN_BYTES_COUNT; k++) all[k] += p->bytes[i].kind[k];
    }
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        if (all[k] == 0) continue;
        TRY(kind_draw(p, &x, explain_bytes_colours[k], plan_bytes_name((plan_kind_of_bytes)k)));
    }
    return ST_OK;
}

static status heads_draw(picture *p)
{
    const int64_t dp = p->x->r->layout.dp, boxes = box_count(p->x);
    const double wide = box_width(p->x);
    const svg_font first = {.size = 11, .colour = QUIET};
    const svg_font name = {.size = 11, .colour = QUIET, .anchor = SVG_MIDDLE};
    TRY(svg_label(p->out, margin, p->top, &heading, "Ranks and bytes"));
    TRY(kinds_draw(p));
    p->top += 26;
    TRY(svg_label(p->out, margin + 52, p->top, &first, "layers"));
    for (int64_t c = 0; c < boxes; c++) {
        if (boxes < dp && c == boxes - 2) continue;
        TRY(svg_label(p->out, mesh_left + wide * ((double)c + 0.5) - 4, p->top, &name, "dp %lld",
                      (long long)(c < boxes - 1 ? c : dp - 1)));
    }
    p->top += 18;
    return ST_OK;
}

// The layers of each of a rank's chunks, on one line each; the last line stands for the rest.
static status stage_layers_draw(const picture *p, int32_t rank, double y, double height)
{
    enum { LINES = 4 };
    const int32_t chunks = p->x->pipe.shape.chunks, lines = chunks < LINES ? chunks : LINES;
    const double line = height / lines;
    svg_font note = {.size = 11, .colour = QUIET};
    if (line < 13.0) note.size = line * 0.8;
    for (int32_t i = 0; i < lines; i++) {
        char layers[64];
        const int32_t chunk = i < lines - 1 ? i : chunks - 1;
        const int32_t stage = plan_schedule_stage(p->x->schedule, &p->x->pipe.shape, rank, chunk);
        TRY(svg_label(p->out, margin + 52, y + line * (i + 0.5), &note, "%s%s",
                      chunk > i ? "… " : "", explain_layers(p->x, stage, layers)));
    }
    return ST_OK;
}

static status holders_draw(picture *p, double height)
{
    const int32_t shown = p->count < HOLDER_ROWS ? p->count : HOLDER_ROWS;
    const svg_font name = {.size = 13, .bold = true, .colour = INK};
    int64_t most = 0;
    for (int32_t i = 0; i < p->count; i++)
        most = max_i64(most, p->bytes[i].all - p->bytes[i].snapshot);
    TRY(heads_draw(p));
    for (int32_t i = 0; i < shown; i++) {
        const explain_bytes *b = &p->bytes[i < shown - shown / 2 ? i : p->count - shown + i];
        const int64_t stage = b->rank / (p->x->ranks / p->x->r->layout.pp);
        const double y = p->top + (height + 8) * i;
        TRY(svg_label(p->out, margin, y + height / 2, &name, "pp %lld", (long long)stage));
        TRY(stage_layers_draw(p, (int32_t)stage, y, height));
        TRY(stage_ranks_draw(p, stage, y, height));
        TRY(stage_bytes_draw(p, b, y, height, most));
    }
    p->top += (height + 8) * shown + 14;
    if (p->bytes[0].snapshot == 0) return ST_OK;
    char human[32];
    TRY(svg_label(p->out, page - margin, p->top, &small_end,
                  "rank 0 has a copy of the state too, %s, while it is saved",
                  text_bytes_human(p->bytes[0].snapshot, human)));
    p->top += 14;
    return ST_OK;
}

// ---- the picture --------------------------------------------------------------------------------

static status title_draw(picture *p, const char *layout)
{
    const run_config *r = p->x->r;
    const svg_font title = {.size = 24, .bold = true, .colour = INK};
    const svg_font note = {.size = 14, .colour = QUIET};
    char parameters[32], ranks[32], batch[32];
    TRY(svg_label(p->out, margin, p->top, &title, "%s",
                  r->model.preset != NULL ? r->model.preset : p->x->spec.arch));
    p->top += 30;
    TRY(svg_label(p->out, margin, p->top, &note, "%s parameters in %lld layer%s on %s rank%s: %s",
                  text_count_human((double)p->x->model->parameters, parameters),
                  (long long)p->x->spec.layers, text_plural(p->x->spec.layers, "s"),
                  text_grouped(p->x->ranks, ranks), text_plural(p->x->ranks, "s"), layout));
    p->top += 21;
    TRY(svg_label(p->out, margin, p->top, &note,
                  "A step is %s sequences of %lld tokens, %lld at once.",
                  text_grouped(run_config_batch_max(r), batch), (long long)r->train.seq,
                  (long long)r->train.micro_batch));
    p->top += 44;
    return ST_OK;
}

// Draws fewer micro-batches if the cells of all would be too narrow to distinguish, but at least as
// many as fill the pipeline.
static status timelines_of(const explain *x, explain_price price, picture *p)
{
    enum { NARROWEST = 5 };
    const int64_t all = x->pipe.shape.microbatches, least = min_i64(all, 2 * x->pipe.shape.stages);
    plan_timeline *whole = NULL, *drawn = NULL;
    TRY(explain_simulate(x, price, 0, &whole));
    int64_t most = 0; // actions of a rank
    for (int32_t i = 0; i < whole->request.stages; i++) {
        most = max_i64(most, whole->ranks[i].list.count);
    }
    const double cells = chart_width() / NARROWEST;
    p->t = p->whole = whole;
    if ((double)most <= cells || least == all) return ST_OK;
    const int64_t fits = (int64_t)((double)all * cells / (double)most);
    TRY(explain_simulate(x, price, max_i64(fits, least), &drawn));
    if (drawn->request.microbatches < all) p->t = drawn;
    return ST_OK;
}

status explain_svg(const explain *x, explain_price price, const explain_bytes *bytes, int32_t count,
                   text *out)
{
    text layout = {.a = x->cli->a}, body = {.a = x->cli->a};
    TRY(run_config_print_layout(x->r, &layout));
    picture p = {.x = x, .out = &body, .top = margin, .bytes = bytes, .count = count};
    TRY(timelines_of(x, price, &p));
    const plan_timeline *t = p.t;
    const double rows = t->request.stages < TIMELINE_ROWS ? t->request.stages : TIMELINE_ROWS;
    p.row = 560.0 / rows < 34.0 ? 560.0 / rows : 34.0;
    const int64_t cp = x->r->layout.cp, chunks = x->pipe.shape.chunks;
    double height = 30.0;
    if (cp > 1 && cp <= 4) height = (double)max_i64(30, 17 * cp);
    if (chunks > 2) height = (double)max_i64((int64_t)height, 13 * min_i64(chunks, 4));
    TRY(title_draw(&p, layout.bytes));
    TRY(timeline_draw(&p));
    TRY(holders_draw(&p, height));
    TRY(svg_begin(out, page, p.top + margin / 2, "trireme explain"));
    TRY(text_add_bytes(out, body.bytes, body.length));
    return svg_end(out);
}
