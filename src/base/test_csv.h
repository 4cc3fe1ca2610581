// For tests only: a table of the shared reference data, read a line at a time, cells by the header's names.
#ifndef BASE_TEST_CSV_H
#define BASE_TEST_CSV_H

#include "base/test_paths.h"

#include <ctype.h>
#include <string.h>

enum { TEST_CSV_COLUMNS = 40, TEST_CSV_CELL = 1024, TEST_CSV_BYTES = 1 << 20 };

typedef struct test_csv {
    char *bytes; // test_csv_close() frees
    const char *at;
    int columns;
    char name[TEST_CSV_COLUMNS][64];
    char cell[TEST_CSV_COLUMNS][TEST_CSV_CELL];
} test_csv;

// Reads a line into the cells; quoted ones may hold commas, and what is too long is cut. 0 at the end.
static inline int test_csv_line(test_csv *c)
{
    int count = 1, n = 0, quoted = 0;
    if (*c->at == '\0') return 0;
    memset(c->cell, 0, sizeof(c->cell));
    for (; *c->at != '\0' && (quoted || *c->at != '\n'); c->at++) {
        if (*c->at == '"') {
            quoted = !quoted;
        } else if (*c->at == ',' && !quoted) {
            if (count++ >= TEST_CSV_COLUMNS - 1) abort();
            n = 0;
        } else if (*c->at != '\r' && n < TEST_CSV_CELL - 1) {
            c->cell[count - 1][n++] = *c->at;
        }
    }
    if (*c->at == '\n') c->at++;
    return count;
}

// 0, and a line that says so, where the table is not there. It stands before the first row.
static inline int test_csv_open(test_csv *c, const char *name)
{
    char path[1024];
    FILE *f = fopen(test_shared(name, path), "rb");
    if (f == NULL) {
        printf("skipped: %s is not there\n", path);
        return 0;
    }
    c->bytes = (char *)calloc(1, TEST_CSV_BYTES);
    if (c->bytes == NULL || fread(c->bytes, 1, TEST_CSV_BYTES - 1, f) == 0) abort();
    (void)fclose(f);
    c->at = c->bytes;
    c->columns = test_csv_line(c);
    for (int i = 0; i < c->columns; i++) {
        memcpy(c->name[i], c->cell[i], sizeof(c->name[i]) - 1); // cells are longer
        c->name[i][sizeof(c->name[i]) - 1] = '\0';
    }
    return 1;
}

static inline void test_csv_close(test_csv *c)
{
    free(c->bytes);
}

// The cell of a column that must be there.
static inline const char *test_csv_cell(const test_csv *c, const char *name)
{
    for (int i = 0; i < c->columns; i++) {
        if (strcmp(c->name[i], name) == 0) return c->cell[i];
    }
    printf("no column '%s'\n", name);
    abort();
}

// Its leading number; 0 where it has none ("ns", "").
static inline double test_csv_number(const test_csv *c, const char *name)
{
    return strtod(test_csv_cell(c, name), NULL);
}

// Half a unit of the last printed digit: how far the true value may lie from the printed one.
static inline double test_csv_rounding(const test_csv *c, const char *name)
{
    const char *point = strchr(test_csv_cell(c, name), '.');
    double half = 0.5;
    if (point == NULL) return half;
    for (point++; isdigit((unsigned char)*point); point++) half /= 10.0;
    return half;
}

#endif
