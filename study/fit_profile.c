// Fits a profile: finds the habits of a software (cost/habits.h) that bring simulated step times
// nearest to published ones.
//
//   study/validate --list PROFILE >rows
//   build/study/fit_profile rows START.yaml product=0.4:1.2 memory=0.2:1 ...
//
// A row is a line "step_s <tab> cluster <tab> key=value key=value ...". Its plans are made once;
// each trial prices and simulates them again, as `trireme simulate` does. The method is a
// coordinate search: each parameter in turn is moved up and down within its range, by steps that
// halve; the mean of |log(predicted / published)| must fall. It is not least squares, because one
// row that cannot be met must not change all others. Prints the best values as YAML, then each
// row's error.
#include "assemble/assemble.h"
#include "catalog/catalog.h"
#include "catalog/profile.h"
#include "cost/habits.h"
#include "model/model.h"
#include "sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 256, WORDS_MAX = 64, PARAMETERS_MAX = 16, ROUNDS = 5, LINE_BYTES = 8192 };

typedef struct row {
    double step_s;
    char name[128];
    cluster c;
    sim_rank *ranks;
    int32_t count;
    double predicted_s;
    bool fp8;
    int64_t top_k;
} row;

typedef struct parameter {
    const char *name;
    double *value;
    double low, high;
} parameter;

typedef struct fit {
    arena *a, *scratch;
    row rows[ROWS_MAX];
    int32_t row_count;
    cost_profile profile;
    cost_habits habits;
    parameter parameters[PARAMETERS_MAX];
    int32_t parameter_count;
} fit;

static status row_make(fit *f, char *line, row *out)
{
    const char *words[WORDS_MAX], *of_cluster[WORDS_MAX];
    int64_t count = 0, cluster_count = 0;
    run_config *r = NULL;
    decoder_spec spec;
    config *c = NULL;
    char *step = strtok(line, "\t"), *name = strtok(NULL, "\t"), *place = strtok(NULL, "\t");
    if (place == NULL) return fail(ST_DATA, "a line with less than three columns");
    out->step_s = strtod(step, NULL);
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    words[count++] = "data.train=any"; // no data is read
    for (char *w = strtok(NULL, " \n"); w != NULL && count < WORDS_MAX; w = strtok(NULL, " \n")) {
        const char *const mark = "cluster.";
        if (strncmp(w, mark, strlen(mark)) == 0) {
            of_cluster[cluster_count++] = w + strlen(mark);
        } else {
            words[count++] = w;
        }
    }
    TRY(catalog_cluster_load(host_real(), f->a, place, of_cluster, cluster_count, &out->c));
    TRY(arena_new(f->a, 1, &r));
    TRY(run_config_load_planned(host_real(), f->a, NULL, words, count, r, &c));
    TRY(model_spec_from_config(host_real(), f->a, r, &spec));
    assemble_plans *plans = NULL;
    const int32_t stages = (int32_t)r->layout.pp;
    TRY(arena_new(f->a, stages, &plans));
    TRY(arena_new(f->a, stages, &out->ranks));
    const assemble_options options = {.threads = 1,
                                      .device = "cpu",
                                      .backend = "cpu",
                                      .documents = r->data.packing == RUN_PACKING_MASKED,
                                      .mesh = run_config_mesh(r, 0),
                                      .sizes_only = true,
                                      .rows_inline = !f->habits.beside,
                                      .whole_again = f->habits.whole_again,
                                      .last = PLAN_COLLECTED};
    TRY(assemble_stages(f->a, r, &spec, &options, plans));
    const int64_t apart = run_config_ranks(r) / stages;
    for (int32_t i = 0; i < stages; i++) {
        out->ranks[i] = (sim_rank){.p = plans[i].all[0], .mesh = run_config_mesh(r, i * apart)};
    }
    out->count = stages;
    out->fp8 = r->train.precision == RUN_FP8;
    out->top_k = spec.experts.top_k;
    return ST_OK;
}

static status rows_read(fit *f, const char *path)
{
    char line[LINE_BYTES];
    FILE *in = fopen(path, "r");
    if (in == NULL) return fail(ST_NOT_FOUND, "cannot open %s", path);
    while (fgets(line, sizeof(line), in) != NULL && f->row_count < ROWS_MAX) {
        if (row_make(f, line, &f->rows[f->row_count]) == ST_OK) {
            f->row_count++;
        } else {
            fprintf(stderr, "left out: %s: %s\n", f->rows[f->row_count].name, error_last()->text);
            error_clear();
        }
    }
    (void)fclose(in);
    return f->row_count > 0 ? ST_OK : fail(ST_DATA, "no row of %s can be simulated", path);
}

static status row_predict(fit *f, row *x)
{
    sim_prices *prices = NULL;
    sim_step *step = NULL;
    const cost_model m = {.c = &x->c, .profile = &f->profile, .fp8 = x->fp8, .top_k = x->top_k};
    arena_reset(f->scratch);
    TRY(arena_new(f->scratch, x->count, &prices));
    TRY(sim_price(f->scratch, &m, x->ranks, x->count, prices));
    const int64_t host_ns = cost_step_ns(&f->profile);
    TRY(sim_step_run(f->scratch, x->ranks, x->count, prices, host_ns, SIM_STEPS, &step));
    x->predicted_s = (double)step->step_ns / 1e9;
    return ST_OK;
}

static status distance(fit *f, double *out)
{
    double sum = 0.0;
    for (int32_t i = 0; i < f->row_count; i++) {
        TRY(row_predict(f, &f->rows[i]));
        sum += fabs(log(f->rows[i].predicted_s / f->rows[i].step_s));
    }
    *out = sum / f->row_count;
    return ST_OK;
}

// Moves one parameter by `step` of its range and keeps the value if the error falls.
static status parameter_move(fit *f, parameter *p, double step, double *best)
{
    const double before = *p->value;
    for (int sign = -1; sign <= 1; sign += 2) {
        double now;
        *p->value = fmin(p->high, fmax(p->low, before + sign * step * (p->high - p->low)));
        TRY(distance(f, &now));
        if (now < *best) {
            *best = now;
            return ST_OK;
        }
    }
    *p->value = before;
    return ST_OK;
}

static status search(fit *f)
{
    double best;
    TRY(distance(f, &best));
    fprintf(stderr, "at first %.4f\n", best);
    double step = 0.25;
    for (int round = 0; round < ROUNDS; round++) {
        for (bool moved = true; moved;) {
            const double before = best;
            for (int32_t i = 0; i < f->parameter_count; i++) {
                TRY(parameter_move(f, &f->parameters[i], step, &best));
            }
            moved = best < before * 0.995;
            fprintf(stderr, "step %.4f: %.4f\n", step, best);
        }
        step /= 2.0;
    }
    return distance(f, &best);
}

static status parameter_read(fit *f, char *word, parameter *out)
{
#define REAL_HABIT(field, key, scale, least, most, none, help) {#field, &f->habits.field},
#define NO_REAL(...)
    const struct {
        const char *name;
        double *value;
    } all[] = {{"product", &f->profile.gemm},
               {"attention", &f->profile.attention},
               {"memory", &f->profile.memory},
               {"launch", &f->profile.launch},
               {"tp_bandwidth", &f->profile.bandwidth[TRAFFIC_TP]},
               {"dp_bandwidth", &f->profile.bandwidth[TRAFFIC_DP]},
               {"pp_bandwidth", &f->profile.bandwidth[TRAFFIC_PP]},
               {"ep_bandwidth", &f->profile.bandwidth[TRAFFIC_EP]},
               {"tp_overlap", &f->profile.overlap[TRAFFIC_TP]},
               {"dp_overlap", &f->profile.overlap[TRAFFIC_DP]},
               {"pp_overlap", &f->profile.overlap[TRAFFIC_PP]},
               {"ep_overlap", &f->profile.overlap[TRAFFIC_EP]},
               COST_HABITS(REAL_HABIT, NO_REAL, NO_REAL)};
    char *range = strchr(word, '=');
    char *middle = range == NULL ? NULL : strchr(range, ':');
    if (middle == NULL) return fail(ST_USAGE, "%s is not NAME=LOW:HIGH", word);
    *range = *middle = '\0';
    for (int64_t i = 0; i < COUNT_OF(all); i++) {
        if (strcmp(all[i].name, word) != 0) continue;
        *out = (parameter){.name = all[i].name,
                           .value = all[i].value,
                           .low = strtod(range + 1, NULL),
                           .high = strtod(middle + 1, NULL)};
        return ST_OK;
    }
    return fail(ST_USAGE, "there is no parameter %s", word);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const fit *f)
{
    double errors[ROWS_MAX];
    for (int32_t i = 0; i < f->parameter_count; i++) {
        printf("%s: %.4g\n", f->parameters[i].name, *f->parameters[i].value);
    }
    for (int32_t i = 0; i < f->row_count; i++) {
        const double error = f->rows[i].predicted_s / f->rows[i].step_s - 1.0;
        errors[i] = fabs(error);
        printf("# %-32s %+6.1f%%  %.4g s\n", f->rows[i].name, 100.0 * error, f->rows[i].step_s);
    }
    qsort(errors, (size_t)f->row_count, sizeof(errors[0]), by_size);
    printf("# %d rows: median %.1f%%, 90th percentile %.1f%%\n", f->row_count,
           100.0 * errors[f->row_count / 2], 100.0 * errors[(f->row_count * 9) / 10]);
}

static status run(fit *f, int argc, char **argv)
{
    TRY(arena_create("fit rows", 0, &f->a));
    TRY(arena_create("fit trial", 0, &f->scratch));
    TRY(catalog_profile_load(host_real(), f->a, argv[2], NULL, NULL, 0, &f->profile));
    f->habits = *cost_habits_of(&f->profile);
    f->profile.habits = &f->habits;
    for (int i = 3; i < argc && f->parameter_count < PARAMETERS_MAX; i++) {
        TRY(parameter_read(f, argv[i], &f->parameters[f->parameter_count]));
        f->parameter_count++;
    }
    TRY(rows_read(f, argv[1]));
    TRY(search(f));
    print(f);
    return ST_OK;
}

int main(int argc, char **argv)
{
    static fit f;
    if (argc < 3) {
        fprintf(stderr, "usage: fit_profile ROWS PROFILE [NAME=LOW:HIGH ...]\n");
        return 2;
    }
    if (run(&f, argc, argv) != ST_OK) {
        fprintf(stderr, "%s\n", error_last()->text);
        return 1;
    }
    return 0;
}
