// Sets of terms as sorted ranges.
#include "plan/verify/verify_terms.h"

#include <string.h>

static bool is_less(const verify_term *x, const verify_term *y)
{
    if (x->source != y->source) return x->source < y->source;
    if (x->cell != y->cell) return x->cell < y->cell;
    return x->begin < y->begin;
}

status verify_terms_add(arena *a, const verify_terms *x, const verify_terms *y, verify_terms *out,
                        verify_term *twice)
{
    verify_term *rows = NULL;
    int32_t n = 0, i = 0, j = 0;
    twice->source = -1;
    if (x->count == 0 || y->count == 0) {
        *out = x->count == 0 ? *y : *x;
        return ST_OK;
    }
    TRY(arena_new(a, x->count + y->count, &rows));
    while (i < x->count || j < y->count) {
        const bool from_x = j == y->count || (i < x->count && is_less(&x->rows[i], &y->rows[j]));
        const verify_term next = from_x ? x->rows[i++] : y->rows[j++];
        verify_term *last = n > 0 ? &rows[n - 1] : NULL;
        if (last == NULL || last->source != next.source || last->cell != next.cell ||
            last->end < next.begin) {
            rows[n++] = next;
            continue;
        }
        if (last->end > next.begin && twice->source < 0) {
            *twice = next;
            twice->end = min_i64(last->end, next.end);
        }
        last->end = max_i64(last->end, next.end);
    }
    *out = (verify_terms){rows, n};
    return ST_OK;
}

bool verify_terms_lack(const verify_terms *t, int32_t source, int32_t cell, int64_t begin,
                       int64_t end, verify_term *lack)
{
    int64_t reached = begin;
    *lack = (verify_term){source, cell, begin, end};
    for (int32_t i = 0; i < t->count && reached < end; i++) {
        const verify_term *row = &t->rows[i];
        if (row->source != source || row->cell != cell || row->end <= reached) continue;
        if (row->begin > reached) {
            *lack = (verify_term){source, cell, reached, min_i64(row->begin, end)};
            return true;
        }
        reached = row->end;
    }
    lack->begin = reached;
    return reached < end;
}

// Splits the value that contains this byte in two.
static status cut_at(arena *a, verify_values *v, int64_t byte)
{
    for (int64_t i = 0; i < v->count; i++) {
        if (v->rows[i].begin >= byte || v->rows[i].end <= byte) continue;
        TRY(arena_grow(a, (void **)&v->rows, &v->capacity, v->count + 1,
                       (int64_t)sizeof(verify_value)));
        memmove(&v->rows[i + 1], &v->rows[i], (size_t)(v->count - i) * sizeof(verify_value));
        v->rows[i].end = v->rows[i + 1].begin = byte;
        v->count++;
        return ST_OK;
    }
    return ST_OK;
}

status verify_values_cut(arena *a, verify_values *v, int64_t begin, int64_t end, int64_t *first,
                         int64_t *last)
{
    TRY(cut_at(a, v, begin));
    TRY(cut_at(a, v, end));
    *first = 0;
    while (*first < v->count && v->rows[*first].begin < begin) (*first)++;
    *last = *first;
    while (*last < v->count && v->rows[*last].end <= end) (*last)++;
    return ST_OK;
}

status verify_values_clear(arena *a, verify_values *v, int64_t begin, int64_t end)
{
    int64_t first = 0, last = 0;
    TRY(verify_values_cut(a, v, begin, end, &first, &last));
    if (first == last) return ST_OK;
    memmove(&v->rows[first], &v->rows[last], (size_t)(v->count - last) * sizeof(verify_value));
    v->count -= last - first;
    return ST_OK;
}

status verify_values_set(arena *a, verify_values *v, const verify_value *value)
{
    int64_t first = 0, last = 0;
    TRY(verify_values_cut(a, v, value->begin, value->end, &first, &last));
    TRY(arena_grow(a, (void **)&v->rows, &v->capacity, v->count + 1,
                   (int64_t)sizeof(verify_value)));
    memmove(&v->rows[first + 1], &v->rows[last], (size_t)(v->count - last) * sizeof(verify_value));
    v->count += 1 - (last - first);
    v->rows[first] = *value;
    return ST_OK;
}
