// Dictionaries of coded columns. A message holds the values as a batch with a single column; it
// replaces the values before, or continues them. The values are copied, because the message's bytes
// leave the window before the batches that refer to them.
#include "data/corpus/arrow/arrow.h"

#include <stdlib.h>

enum { PLACES_MAX = 1 << 26 };

void arrow_dictionary_deinit(arrow_dictionary *d)
{
    data_bytes_deinit(&d->values);
    free(d->places);
    *d = (arrow_dictionary){.is_known = false};
}

static status add(arrow_dictionary *d, const char *path, const char *bytes, int64_t count,
                  int64_t limit_bytes)
{
    if (d->count == PLACES_MAX || count > limit_bytes - d->values.count) {
        return fail(ST_UNSUPPORTED,
                    "%s: a dictionary of more than %d values or %lld bytes; write the column "
                    "without one",
                    path, PLACES_MAX, (long long)limit_bytes);
    }
    if (d->count == d->capacity) {
        const int64_t capacity = d->capacity == 0 ? 64 : 2 * d->capacity;
        struct arrow_place *moved = realloc(d->places, (size_t)capacity * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "%s: no memory for a dictionary", path);
        d->places = moved;
        d->capacity = capacity;
    }
    d->places[d->count++] =
        (struct arrow_place){.at = d->values.count, .count = bytes == NULL ? -1 : count};
    return bytes == NULL ? ST_OK : data_bytes_add(&d->values, bytes, count);
}

status arrow_dictionary_read(const flat *f, int64_t message, const char *path, const flat *body,
                             const arrow_column *column, int64_t limit_bytes, arrow_dictionary *d)
{
    const int64_t dictionary = flat_table(f, message, 2);
    const bool is_own = column->is_found && column->is_coded && dictionary >= 0 &&
                        flat_int(f, dictionary, 0, 8, 0) == column->dictionary;
    if (!is_own) return ST_OK;
    const arrow_column values = {.type = column->type, .width = column->width};
    arrow_values v = {.valid = NULL};
    int64_t rows = 0;
    if (flat_int(f, dictionary, 2, 1, 0) == 0) d->count = d->values.count = 0; // it replaces them
    status st = ST_OK;
    TRY_TO(free_values, arrow_batch_open(f, flat_table(f, dictionary, 1), path, body, &values,
                                         limit_bytes, &v, &rows));
    for (int64_t i = 0; i < rows; i++) {
        const char *bytes = NULL;
        int64_t count = 0;
        TRY_TO(free_values, arrow_value(&v, &values, path, i, &bytes, &count));
        TRY_TO(free_values, add(d, path, bytes, count, limit_bytes));
    }
    d->is_known = true;
free_values:
    arrow_values_deinit(&v);
    return st;
}

status arrow_dictionary_value(const arrow_dictionary *d, const arrow_values *v,
                              const arrow_column *column, const char *path, int64_t i,
                              const char **bytes, int64_t *count)
{
    const arrow_column places = {.type = ARROW_TYPE_INT, .width = column->index_width};
    if (!d->is_known) return fail(ST_DAMAGED, "%s: rows come before their dictionary", path);
    TRY(arrow_value(v, &places, path, i, bytes, count));
    if (*bytes == NULL) return ST_OK;
    const flat f = {(const uint8_t *)*bytes, *count};
    int64_t at = flat_read(&f, 0, column->index_width);
    if (!column->index_is_signed && column->index_width < 8) {
        at &= ((int64_t)1 << 8 * column->index_width) - 1;
    }
    if (at < 0 || at >= d->count) {
        return fail(ST_DAMAGED, "%s: place %lld of a dictionary of %lld values", path,
                    (long long)at, (long long)d->count);
    }
    const struct arrow_place place = d->places[at];
    *count = place.count < 0 ? 0 : place.count;
    *bytes = place.count < 0 ? NULL : place.count == 0 ? "" : d->values.items + place.at;
    return ST_OK;
}
