// Prints the assumptions of a prediction, and compares it with a published figure.
//
// A device for which Trireme has no kernels has no default software: the profile `trireme` says
// what its kernels would have to reach. Two profiles of software that was measured on the device,
// or on the nearest one, stand in columns of their own.
#include "catalog/profile.h"
#include "cli/explain/explain.h"
#include "cli/plan/simulate.h"
#include "cli/wrap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 3 };

typedef struct column {
    const char *name;
    predict_setup setup;
    predict_step step;
    bool is_there, has_run;
    sim_long_run_result run;
} column;

static bool is_unmeasured(const predict_step *x)
{
    return !x->of->has_profile && !cost_is_processor(&x->of->machine.device);
}

const char *simulate_assumes(const predict_step *x)
{
    if (is_unmeasured(x)) {
        return "Trireme was never measured on this device: its kernels would have to reach its entry; "
               "profile=NAME takes software that was measured";
    }
    return x->of->profile.about;
}

// ---- columns ------------------------------------------------------------------------------------

static status column_make(cli_context *cli, const predict_step *x, const char *software, column *c)
{
    sim_long_run_input in;
    const cluster_device *d = &x->of->machine.device;
    c->setup = *x->of;
    TRY(catalog_profile_load(cli->h, cli->a, software, d->entry != NULL ? d->entry : d->name, NULL,
                             0, &c->setup.profile));
    TRY(predict_step_show(cli->a, &c->setup, &c->step));
    c->name = c->setup.profile.name;
    c->is_there = true;
    c->has_run = c->setup.has_length && c->step.fits;
    return c->has_run ? predict_long_run(cli->a, &c->step, &in, &c->run) : ST_OK;
}

typedef enum cell {
    CELL_STEP,
    CELL_RATE,
    CELL_FLOPS,
    CELL_MFU,
    CELL_BYTES,
    CELL_DAYS,
    CELL_COST
} cell;
enum { CELLS = CELL_COST + 1 };
static const char *const cell_names[CELLS] = {"step",   "tok/s", "TFLOP/s", "MFU",
                                              "memory", "days",  "cost"};

// "-" of what does not fit.
static const char *cell_word(const column *c, cell k, char buffer[48])
{
    char n[32];
    const predict_step *x = &c->step;
    if (k == CELL_BYTES && !x->fits) {
        (void)snprintf(buffer, 48, "%s over", text_bytes_human(x->peak_bytes - x->usable_bytes, n));
        return buffer;
    }
    if (!x->fits || (k >= CELL_DAYS && !c->has_run)) return "-";
    switch (k) {
    case CELL_STEP:
        (void)snprintf(buffer, 48, "%s", text_duration_human(x->step_s, n));
        break;
    case CELL_RATE:
        (void)snprintf(buffer, 48, "%s", text_count_human(x->tokens_per_s, n));
        break;
    case CELL_FLOPS:
        (void)snprintf(buffer, 48, "%.4g", x->flops_per_device * 1e-12);
        break;
    case CELL_MFU:
        (void)snprintf(buffer, 48, "%.1f%%", 100.0 * x->mfu);
        break;
    case CELL_BYTES:
        (void)snprintf(buffer, 48, "%s", text_bytes_human(x->peak_bytes, n));
        break;
    case CELL_DAYS:
        (void)snprintf(buffer, 48, "%.1f", c->run.days.p50);
        break;
    case CELL_COST:
        if (!c->run.has_price) return "-";
        (void)snprintf(buffer, 48, "$%s", text_count_human(c->run.cost_usd.p50, n));
        break;
    }
    return buffer;
}

static status columns_print(cli_context *cli, const predict_step *x, const sim_long_run_result *run,
                            text *t)
{
    char word[48];
    column *c = NULL;
    const cluster_device *d = &x->of->machine.device;
    TRY(arena_new(cli->a, COLUMNS, &c));
    c[0] = (column){
        .name = "trireme", .step = *x, .is_there = true, .has_run = run != NULL && x->fits};
    if (run != NULL) c[0].run = *run;
    for (int i = 0; i < COLUMNS - 1; i++) {
        if (d->software[i] == NULL || *d->software[i] == '\0') continue;
        TRY(column_make(cli, x, d->software[i], &c[i + 1]));
    }
    TRY(text_add(
        t, "\n          needed of   measured software, or what is nearest to it\n          "));
    for (int i = 0; i < COLUMNS; i++) {
        if (c[i].is_there) TRY(text_add(t, i == 0 ? "%-12s" : "%-24s", c[i].name));
    }
    TRY(text_add(t, "\n"));
    for (int k = 0; k < CELLS; k++) {
        if (k >= CELL_DAYS && run == NULL) continue;
        TRY(text_add(t, "%-10s", cell_names[k]));
        for (int i = 0; i < COLUMNS; i++) {
            if (!c[i].is_there) continue;
            TRY(text_add(t, i == 0 ? "%-12s" : "%-24s", cell_word(&c[i], (cell)k, word)));
        }
        TRY(text_add(t, "\n"));
    }
    return ST_OK;
}

// ---- lines --------------------------------------------------------------------------------------

static status line_add(cli_context *cli, text *t, const char *head, const char *content)
{
    char *line = NULL;
    TRY(arena_format(cli->a, &line, "%-9s %s", head, content));
    // The head's blanks stay: the first line is made of a word without them.
    TRY(text_add(t, "%-10s", head));
    TRY(wrap_sentences(t, content, 10, (int)min_i64(cli->columns, 80)));
    return text_add(t, "\n");
}

static status run_lines(cli_context *cli, const simulate_request *w, text *t)
{
    char *line = NULL;
    if (w->run != NULL && w->moved) {
        TRY(arena_format(cli->a, &line,
                         "settings of the run %s on another cluster; changed to fit: %s",
                         w->run->name, w->changes != NULL ? w->changes : "nothing"));
        TRY(line_add(cli, t, "run", line));
    }
    if (w->run_unused != NULL) {
        TRY(arena_format(cli->a, &line,
                         "the run %s is not used: with --cluster and a layout, this is the model",
                         w->run_unused));
        TRY(line_add(cli, t, "note", line));
    }
    if (!w->layout_open) return ST_OK;
    return line_add(cli, t, "note", "no layout was given: layout=auto takes the planner's fastest");
}

status simulate_print_software(cli_context *cli, const predict_step *x,
                               const sim_long_run_result *long_run, text *out)
{
    TRY(line_add(cli, out, "assumes", simulate_assumes(x)));
    if (x->is_line) {
        TRY(line_add(cli, out, "note",
                     "so many micro-batches are not simulated one by one: the step is on the line "
                     "through two steps with fewer"));
    }
    return is_unmeasured(x) ? columns_print(cli, x, long_run, out) : ST_OK;
}

status simulate_print_assumed(cli_context *cli, const simulate_request *w, const predict_step *x,
                              const sim_long_run_result *long_run, text *out)
{
    TRY(text_add(out, "\n"));
    TRY(run_lines(cli, w, out));
    return simulate_print_software(cli, x, long_run, out);
}

// ---- published ----------------------------------------------------------------------------------

typedef struct comparison {
    char name[32];
    double published, predicted;
} comparison;

// The user's keys make it another run than the published one.
static bool is_other_run(const simulate_request *w)
{
    static const char *const parts[] = {"model.", "train.", "layout", "cluster.", "precision."};
    for (int64_t i = w->run_keys; i < w->key_count; i++) {
        for (int64_t k = 0; k < COUNT_OF(parts); k++) {
            if (strncmp(w->keys[i], parts[k], strlen(parts[k])) == 0) return true;
        }
    }
    return false;
}

// false: the run has no published figure, or it is asked about something else than the run.
static bool compare(const simulate_request *w, const predict_step *x,
                    const sim_long_run_result *run, comparison *out)
{
    const catalog_run *r = w->run;
    if (r == NULL || w->moved || is_other_run(w) || *r->published == '\0') return false;
    const char *equals = strchr(r->published, '=');
    const struct {
        const char *name;
        double value;
    } figures[] = {{"tflops_per_device", x->flops_per_device * 1e-12},
                   {"mfu", x->mfu},
                   {"step_s", x->step_s},
                   {"gpu_hours", run != NULL ? run->device_hours.p50 : 0.0}};
    for (int64_t i = 0; i < COUNT_OF(figures); i++) {
        const size_t length = strlen(figures[i].name);
        if (strncmp(figures[i].name, r->published, length) != 0) continue;
        if (r->published + length != equals) continue;
        (void)snprintf(out->name, sizeof(out->name), "%s", figures[i].name);
        out->predicted = figures[i].value;
        out->published = strtod(equals + 1, NULL);
        return out->published > 0.0 && out->predicted > 0.0;
    }
    return false;
}

status simulate_print_published(cli_context *cli, const simulate_request *w, const predict_step *x,
                                const sim_long_run_result *long_run, text *out)
{
    comparison c;
    char *line = NULL;
    if (w->run != NULL && *w->run->uncompared != '\0') {
        TRY(text_add(out, "\n"));
        return line_add(cli, out, "published", w->run->uncompared);
    }
    if (!x->fits || !compare(w, x, long_run, &c)) return ST_OK;
    TRY(text_add(out, "\n"));
    TRY(arena_format(cli->a, &line, "%s %.6g, predicted %.6g: %+.1f%%; %s", c.name, c.published,
                     c.predicted, 100.0 * (c.predicted / c.published - 1.0),
                     w->run->published_source));
    TRY(line_add(cli, out, "published", line));
    if (*w->run->difference == '\0') return ST_OK;
    return line_add(cli, out, "why", w->run->difference);
}

status simulate_published_json(const simulate_request *w, const predict_step *x,
                               const sim_long_run_result *long_run, text *out)
{
    comparison c;
    if (w->changes != NULL) {
        TRY(text_add(out, "\"changed\": "));
        TRY(text_add_json(out, w->changes));
        TRY(text_add(out, ", "));
    }
    if (!compare(w, x, long_run, &c)) return ST_OK;
    TRY(text_add(out,
                 "\"published\": {\"figure\": \"%s\", \"value\": %.10g, \"predicted\": %.10g, "
                 "\"difference\": %.6g, \"source\": ",
                 c.name, c.published, c.predicted, c.predicted / c.published - 1.0));
    TRY(text_add_json(out, w->run->published_source));
    TRY(text_add(out, ", \"why\": "));
    TRY(text_add_json(out, w->run->difference));
    return text_add(out, "}, ");
}
