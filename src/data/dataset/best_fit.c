// Best fit, longest first. Rows with the same free tokens form a list, and a tree of bits over the
// numbers of free tokens finds the smallest that is large enough in a few steps.
#include "data/dataset/pack.h"

#include <stdlib.h>
#include <string.h>

enum { LEVELS = 5 }; // 64^5 free tokens

typedef struct free_rows {
    uint64_t *bits[LEVELS]; // bits[0][i / 64]: a row has i free tokens
    int64_t *heads;         // [free]: the last row with so many; -1
    int64_t *next;          // [row]
    int64_t levels;
} free_rows;

static void free_rows_deinit(free_rows *f)
{
    for (int i = 0; i < LEVELS; i++) free(f->bits[i]);
    free(f->heads);
    free(f->next);
}

static bool free_rows_init(free_rows *f, int64_t seq, int64_t count)
{
    *f = (free_rows){.levels = 0};
    f->heads = malloc((size_t)(seq + 1) * sizeof(*f->heads));
    f->next = malloc((size_t)count * sizeof(*f->next));
    bool is_whole = f->heads != NULL && f->next != NULL;
    for (int64_t n = seq + 1; f->levels == 0 || n > 1;) {
        n = (n + 63) / 64;
        f->bits[f->levels] = calloc((size_t)n, sizeof(uint64_t));
        is_whole = is_whole && f->bits[f->levels] != NULL;
        f->levels++;
    }
    if (is_whole) memset(f->heads, 0xff, (size_t)(seq + 1) * sizeof(*f->heads));
    return is_whole;
}

static void put_row(free_rows *f, int64_t row, int64_t left)
{
    f->next[row] = f->heads[left];
    f->heads[left] = row;
    for (int64_t k = 0; k < f->levels; k++, left /= 64) {
        f->bits[k][left / 64] |= UINT64_C(1) << left % 64;
    }
}

static int64_t take_row(free_rows *f, int64_t left)
{
    const int64_t row = f->heads[left];
    f->heads[left] = f->next[row];
    if (f->heads[left] >= 0) return row;
    for (int64_t k = 0; k < f->levels; k++, left /= 64) {
        f->bits[k][left / 64] &= ~(UINT64_C(1) << left % 64);
        if (f->bits[k][left / 64] != 0) break;
    }
    return row;
}

// The smallest number of free tokens, at least `wanted`, that a row has; -1: none.
static int64_t find_free(const free_rows *f, int64_t wanted, int64_t seq)
{
    int64_t at = wanted;
    for (int64_t k = 0; k < f->levels; k++) {
        // Bits of this word from `at` on; then one level up, behind the word.
        const uint64_t here = f->bits[k][at / 64] & (~UINT64_C(0) << at % 64);
        if (here != 0) {
            at = at / 64 * 64 + __builtin_ctzll(here);
            for (; k > 0; k--) at = at * 64 + __builtin_ctzll(f->bits[k - 1][at]);
            return at;
        }
        at = at / 64 + 1;
        int64_t size = seq + 1;
        for (int64_t i = 0; i <= k; i++) size = (size + 63) / 64;
        if (at >= size) return -1;
    }
    return -1;
}

typedef struct sorted_piece {
    int64_t length, index;
} sorted_piece;

static int compare_pieces(const void *left, const void *right)
{
    const sorted_piece *a = left, *b = right;
    if (a->length != b->length) return a->length > b->length ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index ? 1 : 0;
}

status pack_best_fit(const int64_t *lengths, int64_t count, int64_t seq, int64_t *rows,
                     int64_t *row_count)
{
    free_rows f = {.levels = 0};
    *row_count = 0;
    if (count == 0) return ST_OK;
    sorted_piece *sorted = malloc((size_t)count * sizeof(*sorted));
    if (sorted == NULL || !free_rows_init(&f, seq, count)) {
        free(sorted);
        free_rows_deinit(&f);
        return fail(ST_NO_MEMORY, "no memory to pack %lld documents", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        ASSERT(lengths[i] > 0 && lengths[i] <= seq);
        sorted[i] = (sorted_piece){lengths[i], i};
    }
    qsort(sorted, (size_t)count, sizeof(*sorted), compare_pieces);
    for (int64_t i = 0; i < count; i++) {
        const int64_t left = find_free(&f, sorted[i].length, seq);
        const int64_t row = left >= 0 ? take_row(&f, left) : (*row_count)++;
        put_row(&f, row, (left >= 0 ? left : seq) - sorted[i].length);
        rows[sorted[i].index] = row;
    }
    free(sorted);
    free_rows_deinit(&f);
    return ST_OK;
}
