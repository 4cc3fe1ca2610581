// The losses of objectives: against formulas written apart from the code, and their slopes against
// finite differences.
#include "op/objective.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 48, PAIRS = 3 };

typedef struct case_rows {
    double loss[ROWS], given[ROWS * GIVEN_COLUMNS];
    int32_t documents[ROWS], units[ROWS];
    double losses[ROWS], slopes[ROWS], measures[ROWS * MEASURE_COLUMNS];
} case_rows;

static bool has_label(const case_rows *c, int t)
{
    return c->given[t * GIVEN_COLUMNS + GIVEN_LABEL] > 0.0;
}

static double draw(uint64_t *n)
{
    return (double)rng_uniform(rng_word(7, 1, (*n)++));
}

// Six documents of seven rows, the labels on the last four or five, and six rows of padding.
static void fill(case_rows *c)
{
    uint64_t n = 0;
    memset(c, 0, sizeof(*c));
    for (int t = 0; t < ROWS; t++) {
        const int at = t % 7;
        c->documents[t] = t / 7;
        const bool is_label = t < 42 && at >= 2 + t / 7 % 2 && at < 6;
        c->given[t * GIVEN_COLUMNS + GIVEN_LABEL] = is_label ? 1.0 : 0.0;
        c->loss[t] = is_label ? 0.2 + 2.0 * draw(&n) : 0.0;
        c->given[t * GIVEN_COLUMNS + GIVEN_OLD] = -c->loss[t] + 0.8 * (draw(&n) - 0.5);
        c->given[t * GIVEN_COLUMNS + GIVEN_ADVANTAGE] = draw(&n) - 0.5;
        c->given[t * GIVEN_COLUMNS + GIVEN_REFERENCE] = -c->loss[t] + draw(&n) - 0.5;
        if (at == 0) c->given[t * GIVEN_COLUMNS + GIVEN_REFERENCE] = -6.0 * draw(&n);
    }
}

static double total(const op_objective_attrs *a, case_rows *c)
{
    const op_objective_sequence s = {.rows = ROWS,
                                     .token_loss = c->loss,
                                     .given = c->given,
                                     .documents = c->documents,
                                     .losses = c->losses,
                                     .slopes = c->slopes,
                                     .measures = c->measures,
                                     .units = c->units};
    double sum = 0.0;
    op_objective_compute(a, &s);
    for (int t = 0; t < ROWS; t++) {
        if (c->units[t] >= 0) sum += c->losses[t];
        if (c->units[t] < 0) assert_true(c->losses[t] == 0.0);
    }
    return sum;
}

static const op_objective_attrs all[] = {
    {.kind = OBJECTIVE_DPO, .form = FORM_SIGMOID, .beta = 0.3f},
    {.kind = OBJECTIVE_DPO, .form = FORM_SIGMOID, .beta = 0.3f, .smoothing = 0.25f},
    {.kind = OBJECTIVE_DPO, .form = FORM_IPO, .beta = 0.5f},
    {.kind = OBJECTIVE_DPO, .form = FORM_ROBUST, .beta = 0.3f, .smoothing = 0.25f},
    {.kind = OBJECTIVE_DPO, .form = FORM_HINGE, .beta = 0.1f},
    {.kind = OBJECTIVE_ORPO, .beta = 0.5f},
    {.kind = OBJECTIVE_KTO, .beta = 0.3f, .wanted = 1.5f, .unwanted = 0.75f},
    {.kind = OBJECTIVE_GRPO, .form = FORM_GRPO, .low = 0.2f, .high = 0.3f, .kl = 0.5f},
    {.kind = OBJECTIVE_GRPO, .form = FORM_BNPO, .low = 0.2f, .high = 0.2f},
    {.kind = OBJECTIVE_GRPO,
     .form = FORM_DR_GRPO,
     .low = 0.1f,
     .high = 0.2f,
     .kl = 0.25f,
     .length = 16.0f},
    {.kind = OBJECTIVE_REWARD},
};

static void slopes_are_differences(void **state)
{
    (void)state;
    static case_rows c, moved;
    for (int i = 0; i < COUNT_OF(all); i++) {
        fill(&c);
        (void)total(&all[i], &c);
        for (int t = 0; t < ROWS; t++) {
            const double h = 1e-6;
            double two[2];
            for (int k = 0; k < 2; k++) {
                moved = c;
                moved.loss[t] += k == 0 ? h : -h;
                two[k] = total(&all[i], &moved);
            }
            // KTO's reference point has no gradient, by definition.
            const bool shifts = all[i].kind == OBJECTIVE_KTO && c.documents[t] % 2 == 1;
            const double slope = !has_label(&c, t) || shifts ? 0.0 : (two[0] - two[1]) / (2 * h);
            assert_true(fabs(slope - c.slopes[t]) <= 1e-7 * fmax(1.0, fabs(slope)));
        }
    }
}

static double sum_of(const case_rows *c, int document, double *count)
{
    double sum = 0.0;
    *count = 0.0;
    for (int t = 7 * document; t < 7 * document + 7; t++) {
        if (!has_label(c, t)) continue;
        sum -= c->loss[t];
        *count += 1.0;
    }
    return sum;
}

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

// The formulas of the papers, pair by pair.
static double pairs_of(const op_objective_attrs *a, const case_rows *c)
{
    const double b = (double)a->beta, e = (double)a->smoothing;
    double sum = 0.0, z = 0.0;
    for (int k = 0; k < PAIRS; k++) {
        double n = 0.0;
        z += (sum_of(c, 2 * k + 1, &n) - c->given[(14 * k + 7) * GIVEN_COLUMNS]) / PAIRS;
    }
    z = fmax(z, 0.0);
    for (int k = 0; k < PAIRS; k++) {
        double n[2];
        const double s[2] = {sum_of(c, 2 * k, &n[0]), sum_of(c, 2 * k + 1, &n[1])};
        const double r[2] = {c->given[14 * k * GIVEN_COLUMNS],
                             c->given[(14 * k + 7) * GIVEN_COLUMNS]};
        const double h = s[0] - s[1] - r[0] + r[1];
        if (a->kind == OBJECTIVE_REWARD) {
            sum -= log(logistic(s[0] - s[1]));
        } else if (a->kind == OBJECTIVE_ORPO) {
            const double p[2] = {exp(s[0] / n[0]), exp(s[1] / n[1])};
            const double odds = log(p[0] / (1 - p[0]) / (p[1] / (1 - p[1])));
            sum += -s[0] / n[0] - b * log(logistic(odds));
        } else if (a->kind == OBJECTIVE_KTO) {
            const bool wanted = c->given[14 * k * GIVEN_COLUMNS + GIVEN_ADVANTAGE] > 0.0;
            const double gap = b * (s[0] - r[0] - z);
            sum += wanted ? (double)a->wanted * (1 - logistic(gap))
                          : (double)a->unwanted * (1 - logistic(-gap));
        } else if (a->form == FORM_IPO) {
            const double mean = (s[0] - r[0]) / n[0] - (s[1] - r[1]) / n[1];
            sum += pow(mean - 1.0 / (2.0 * b), 2.0);
        } else if (a->form == FORM_HINGE) {
            sum += fmax(0.0, 1.0 - b * h);
        } else {
            const double good = -log(logistic(b * h)), bad = -log(logistic(-b * h));
            sum += a->form == FORM_ROBUST ? ((1 - e) * good - e * bad) / (1 - 2 * e)
                                          : (1 - e) * good + e * bad;
        }
    }
    return sum;
}

static double tokens_of(const op_objective_attrs *a, const case_rows *c)
{
    double sum = 0.0;
    for (int t = 0; t < 42; t++) {
        double n = 0.0;
        (void)sum_of(c, c->documents[t], &n);
        if (!has_label(c, t)) continue;
        const double *g = c->given + t * GIVEN_COLUMNS, logp = -c->loss[t];
        const double ratio = exp(logp) / exp(g[GIVEN_OLD]), gap = g[GIVEN_REFERENCE] - logp;
        double bound = ratio;
        if (bound < 1.0 - (double)a->low) bound = 1.0 - (double)a->low;
        if (bound > 1.0 + (double)a->high) bound = 1.0 + (double)a->high;
        const double loss = -fmin(ratio * g[GIVEN_ADVANTAGE], bound * g[GIVEN_ADVANTAGE]) +
                            (double)a->kl * (exp(gap) - gap - 1.0);
        sum += a->form == FORM_BNPO ? loss : loss / (a->form == FORM_GRPO ? n : (double)a->length);
    }
    return sum;
}

static void losses_are_those_of_the_papers(void **state)
{
    (void)state;
    static case_rows c;
    for (int i = 0; i < COUNT_OF(all); i++) {
        fill(&c);
        const double got = total(&all[i], &c);
        const double want =
            all[i].kind == OBJECTIVE_GRPO ? tokens_of(&all[i], &c) : pairs_of(&all[i], &c);
        assert_true(fabs(got - want) <= 1e-12 * fmax(1.0, fabs(want)));
    }
}

// A pair without a label on one side, and padding, are no units.
static void only_whole_pairs_count(void **state)
{
    (void)state;
    static case_rows c;
    fill(&c);
    for (int t = 7; t < 14; t++) c.given[t * GIVEN_COLUMNS + GIVEN_LABEL] = 0.0;
    (void)total(&all[0], &c);
    int units = 0;
    for (int t = 0; t < ROWS; t++) {
        units += c.units[t] >= 0 ? 1 : 0;
        if (t < 14) assert_true(c.slopes[t] == 0.0);
    }
    assert_int_equal(units, PAIRS - 1);
}

// KTO: an answer whose comparison was left out is trained on, and the reference point is the mean
// of the others.
static void kto_lacks_a_comparison(void **state)
{
    (void)state;
    static case_rows c;
    const op_objective_attrs *kto = &all[6];
    assert_int_equal(kto->kind, OBJECTIVE_KTO);
    fill(&c);
    for (int t = 7; t < 14; t++) c.given[t * GIVEN_COLUMNS + GIVEN_LABEL] = 0.0;
    const double got = total(kto, &c), b = (double)kto->beta;
    double z = 0.0, want = 0.0, n = 0.0;
    for (int k = 1; k < PAIRS; k++) {
        z += (sum_of(&c, 2 * k + 1, &n) - c.given[(14 * k + 7) * GIVEN_COLUMNS]) / (PAIRS - 1);
    }
    z = fmax(z, 0.0);
    for (int k = 0; k < PAIRS; k++) {
        const double *g = c.given + 14 * k * GIVEN_COLUMNS;
        const double gap = b * (sum_of(&c, 2 * k, &n) - g[GIVEN_REFERENCE] - z);
        want += g[GIVEN_ADVANTAGE] > 0.0 ? (double)kto->wanted * (1 - logistic(gap))
                                         : (double)kto->unwanted * (1 - logistic(-gap));
    }
    assert_true(fabs(got - want) <= 1e-12 * fmax(1.0, fabs(want)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_are_differences),
        cmocka_unit_test(losses_are_those_of_the_papers),
        cmocka_unit_test(only_whole_pairs_count),
        cmocka_unit_test(kto_lacks_a_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
