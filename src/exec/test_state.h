// For tests of whole steps: weights and moments as they begin, as one rank has them at the end, and whether
// another has the same.
#ifndef EXEC_TEST_STATE_H
#define EXEC_TEST_STATE_H

#include "exec/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The state at the end of one rank's run, by name.
typedef struct kept {
    char name[PLAN_NAME_BYTES];
    int64_t bytes;
    float *values;
} kept;

static inline float weight_value(const char *name, int64_t k, int ndim)
{
    uint32_t seed = 17;
    for (const char *c = name; *c != '\0'; c++) seed = seed * 31 + (uint32_t)(unsigned char)*c;
    const uint32_t word = (uint32_t)(k * 2654435761u) ^ seed * 40503u;
    return ndim == 1 ? 1.0f : ((float)(word % 2001) - 1000.0f) * 3e-4f;
}

// Elements that come before this rank's rows of a tensor.
static inline int64_t elements_before(const plan_tensor *t, const plan_mesh *mesh)
{
    return t->piece_rows * plan_zero_place(mesh) * t->dims[1];
}

static inline status state_init(exec *e, const plan_table *run, const plan_mesh *mesh)
{
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        const int64_t count = t->bytes / 4;
        float *values = calloc((size_t)count, sizeof(float));
        if (values == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "test");
        for (int64_t k = 0; k < count && t->role == ROLE_WEIGHT; k++) {
            values[k] = weight_value(t->name, k + elements_before(t, mesh), t->ndim);
        }
        const status st = exec_write(e, i, 0, values, t->bytes);
        free(values);
        TRY(st);
    }
    return exec_step_reset(e, 1.0);
}

static inline double difference(const float *a, const float *b, int64_t count)
{
    double most = 0.0, scale = 1e-3;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / scale;
}

static inline status values_read(exec *e, const plan_table *run, int64_t row, float **out,
                                 int64_t *count)
{
    const plan_tensor *t = &run->tensors[row];
    *count = t->dims[0] * (t->ndim == 2 ? t->dims[1] : 1);
    *out = calloc((size_t)*count, sizeof(float));
    if (*out == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "test");
    return exec_read(e, row, 0, *out, *count * 4);
}

static inline status state_keep(exec *e, const plan_table *run, kept *out, int64_t *count)
{
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        kept *k = &out[(*count)++];
        (void)snprintf(k->name, sizeof(k->name), "%s", t->name);
        TRY(values_read(e, run, i, &k->values, &k->bytes));
        k->bytes *= 4;
    }
    return ST_OK;
}

// What a rank has is what one rank has of it: to the bit, or how far apart, relative to the largest.
static inline status state_compare(exec *e, const plan_table *run, const plan_mesh *mesh,
                                   const kept *want, int64_t want_count, bool strict, double *worst)
{
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        const kept *k = NULL;
        float *values = NULL;
        int64_t count = 0;
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        for (int64_t w = 0; w < want_count; w++) {
            if (strcmp(want[w].name, t->name) == 0) k = &want[w];
        }
        TRY(values_read(e, run, i, &values, &count));
        const int64_t before = elements_before(t, mesh), end = (before + count) * 4;
        if (k == NULL || end > k->bytes || (t->piece_rows == 0 && end != k->bytes)) {
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s?", t->name);
        }
        if (strict && memcmp(k->values + before, values, (size_t)count * 4) != 0) {
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s has other bits", t->name);
        }
        *worst = fmax(*worst, difference(values, k->values + before, count));
        free(values);
    }
    return ST_OK;
}

#endif
