// Tests the published activation formulas against their table. (train/estimate_layouts_test.c tests
// the memory of our own plans, with whole models.)
#include "predict/estimate.h"

#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct row {
    double layers, dim, heads, seq, micro_batch, tp, pp, vpp;
    char technique[64];
    double bytes, gib, first_stage;
} row;

// Splits a line into fields, some of which are quoted.
static int fields_of(char *line, char *out[20])
{
    int n = 0;
    for (char *at = line; n < 20;) {
        const bool is_quoted = *at == '"';
        out[n++] = at + is_quoted;
        char *end = strchr(at + is_quoted, is_quoted ? '"' : ',');
        if (end == NULL) break;
        *end = '\0';
        at = end + 1;
        if (is_quoted && *at == ',') at++;
    }
    return n;
}

static bool row_read(char *line, row *r)
{
    char *f[20];
    if (fields_of(line, f) < 14) return false;
    double *numbers[] = {&r->layers,      &r->dim, &r->heads, &r->seq,
                         &r->micro_batch, &r->tp,  &r->pp,    &r->vpp};
    for (int i = 0; i < (int)COUNT_OF(numbers); i++) *numbers[i] = strtod(f[1 + i], NULL);
    (void)snprintf(r->technique, sizeof(r->technique), "%s", f[9]);
    r->bytes = strtod(f[11], NULL);
    r->gib = strtod(f[12], NULL);
    r->first_stage = strtod(f[13], NULL);
    return r->bytes > 0.0;
}

static estimate_technique technique_of(const char *name)
{
    static const struct {
        const char *name;
        estimate_technique how;
    } known[] = {
        {"no parallelism", TECHNIQUE_NONE},
        {"tensor parallel (baseline)", TECHNIQUE_TENSOR},
        {"tensor + sequence parallel", TECHNIQUE_TENSOR_SEQUENCE},
        {"tensor + selective recompute", TECHNIQUE_TENSOR_SELECTIVE},
        {"tensor + sequence + selective", TECHNIQUE_SEQUENCE_SELECTIVE},
        {"full recompute", TECHNIQUE_FULL},
    };
    for (int64_t i = 0; i < COUNT_OF(known); i++) {
        if (strncmp(name, known[i].name, strlen(known[i].name)) == 0) return known[i].how;
    }
    return TECHNIQUE_COUNT;
}

static void published_activations(void **state)
{
    (void)state;
    char path[1024], line[1024];
    test_shared("validation/activation_memory_checks.csv", path);
    FILE *table = fopen(path, "r");
    if (table == NULL) {
        print_message("skipped: there is no %s\n", path);
        skip();
    }
    int rows = 0;
    const double gib = 1024.0 * 1024.0 * 1024.0;
    while (fgets(line, sizeof(line), table) != NULL) {
        row r;
        if (!row_read(line, &r)) continue;
        const estimate_technique how = technique_of(r.technique);
        assert_int_not_equal(how, TECHNIQUE_COUNT);
        const double bytes =
            estimate_korthikanti_layer(how, r.seq, r.micro_batch, r.dim, r.heads, r.tp);
        const double first = estimate_korthikanti_first_stage(bytes, r.layers, r.pp, r.vpp);
        assert_true(fabs(bytes - r.bytes) < 0.51); // whole bytes
        assert_true(fabs(bytes / gib - r.gib) <= 0.5001e-4);
        assert_true(fabs(first / gib - r.first_stage) <= 0.5001e-2);
        rows++;
    }
    (void)fclose(table);
    assert_int_equal(rows, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_activations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
