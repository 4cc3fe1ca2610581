// Windows of documents, their layouts, and the layouts that stay in memory.
#include "data/dataset/pack.h"
#include "base/fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_TOKENS = 1 << 22,
    WINDOW_ROWS = 512, // at least
    WINDOW_PIECES_MAX = 1 << 17,
    CACHE_BYTES = 64 << 20
};

// Documents whose tokens begin in [first, last) of the stream; they end before `last`, too.
typedef struct pack_window {
    int64_t first, last; // tokens
    int64_t first_row;
    int64_t used; // number of the last use of its layout; 0: it is not in memory
} pack_window;

// Pieces in the order of their rows.
typedef struct pack_layout {
    pack_piece *pieces;
    int64_t *row_begin; // [rows + 1]
    int64_t count, rows, window;
} pack_layout;

struct pack {
    const source *s;
    int64_t seq, rows, tokens;
    pack_window *windows;
    int64_t window_count, window_capacity;
    pthread_mutex_t lock; // of all below
    pack_layout **layouts;
    int64_t layout_count, layout_capacity, layout_bytes, uses;
};

static status no_memory(void)
{
    return fail(ST_NO_MEMORY, "no memory to pack the documents of data.train");
}

// ---- documents ----------------------------------------------------------------------------------

// Collects the pieces of the documents of a stretch of the stream.
typedef struct piece_list {
    int64_t seq;
    pack_piece *items;
    int64_t count, capacity;
    int64_t begin; // of the document under way
    int64_t file_begin;
    bool failed;
} piece_list;

static void add_piece(piece_list *l, const pack_piece *piece)
{
    if (l->count == l->capacity) {
        const int64_t grown = max_i64(1024, 2 * l->capacity);
        pack_piece *moved = realloc(l->items, (size_t)grown * sizeof(*moved));
        l->failed = l->failed || moved == NULL;
        if (moved == NULL) return;
        l->items = moved;
        l->capacity = grown;
    }
    l->items[l->count++] = *piece;
}

static void add_document(piece_list *l, int64_t end)
{
    for (int64_t at = l->begin; at < end; at += l->seq) {
        const int64_t n = min_i64(l->seq, end - at);
        add_piece(l, &(const pack_piece){.first = at, .count = n, .ends_document = at + n == end});
    }
    l->begin = end;
}

static void take_boundary(void *context, int64_t token)
{
    piece_list *l = context;
    add_document(l, l->file_begin + token);
}

// Adds the documents of [first, last), which both are boundaries.
static status read_pieces(const source *s, int64_t first, int64_t last, piece_list *l)
{
    l->count = 0;
    l->begin = first;
    for (int64_t i = source_file_of(s, first); i < s->file_count && s->files[i].begin < last; i++) {
        const source_file *f = &s->files[i];
        const int64_t count = data_tokens_count(f->tokens);
        const int64_t from = max_i64(first, f->begin), to = min_i64(last, f->begin + count);
        if (to <= from) continue;
        l->file_begin = f->begin;
        TRY(data_tokens_boundaries(f->tokens, from - f->begin, to - from - 1, take_boundary, l));
        add_document(l, to);
        if (l->failed) return no_memory();
    }
    return ST_OK;
}

// ---- layouts ------------------------------------------------------------------------------------

static void layout_free(pack_layout *y)
{
    if (y == NULL) return;
    free(y->pieces);
    free(y->row_begin);
    free(y);
}

// Sorts the pieces by their rows, in the order of the stream within a row.
static void lay_out(const piece_list *l, const int64_t *rows, pack_layout *y)
{
    for (int64_t i = 0; i < l->count; i++) y->row_begin[rows[i] + 1]++;
    for (int64_t r = 0; r < y->rows; r++) y->row_begin[r + 1] += y->row_begin[r];
    for (int64_t i = l->count; i-- > 0;) { // from the last on, which leaves the ends in row_begin
        y->pieces[--y->row_begin[rows[i] + 1]] = l->items[i];
    }
    // Each entry now holds its row's begin, one place too late.
    memmove(y->row_begin, y->row_begin + 1, (size_t)y->rows * sizeof(*y->row_begin));
    y->row_begin[y->rows] = l->count;
}

static status make_layout(const piece_list *l, int64_t seq, pack_layout **out)
{
    pack_layout *y = calloc(1, sizeof(*y));
    int64_t *lengths = malloc((size_t)l->count * sizeof(*lengths));
    int64_t *rows = malloc((size_t)l->count * sizeof(*rows));
    status st = y == NULL || lengths == NULL || rows == NULL ? no_memory() : ST_OK;
    for (int64_t i = 0; i < l->count && st == ST_OK; i++) lengths[i] = l->items[i].count;
    if (st == ST_OK) st = pack_best_fit(lengths, l->count, seq, rows, &y->rows);
    if (st == ST_OK) {
        y->count = l->count;
        y->pieces = malloc((size_t)l->count * sizeof(*y->pieces));
        y->row_begin = calloc((size_t)y->rows + 2, sizeof(*y->row_begin));
        if (y->pieces == NULL || y->row_begin == NULL) st = no_memory();
    }
    if (st == ST_OK) lay_out(l, rows, y);
    free(lengths);
    free(rows);
    if (st != ST_OK) layout_free(y);
    if (st == ST_OK) *out = y;
    return st;
}

static int64_t layout_bytes(const pack_layout *y)
{
    return y->count * (int64_t)sizeof(pack_piece) + (y->rows + 2) * (int64_t)sizeof(int64_t);
}

// Frees the layout that was not used for the longest time.
static void forget_oldest(pack *p)
{
    int64_t oldest = 0;
    for (int64_t i = 1; i < p->layout_count; i++) {
        if (p->windows[p->layouts[i]->window].used < p->windows[p->layouts[oldest]->window].used) {
            oldest = i;
        }
    }
    pack_layout *y = p->layouts[oldest];
    p->layout_bytes -= layout_bytes(y);
    p->windows[y->window].used = 0;
    p->layouts[oldest] = p->layouts[--p->layout_count];
    layout_free(y);
}

static status keep_layout(pack *p, pack_layout *y)
{
    if (p->layout_count == p->layout_capacity) {
        const int64_t grown = max_i64(64, 2 * p->layout_capacity);
        pack_layout **moved = realloc(p->layouts, (size_t)grown * sizeof(void *));
        if (moved == NULL) return no_memory();
        p->layouts = moved;
        p->layout_capacity = grown;
    }
    while (p->layout_count > 0 && p->layout_bytes + layout_bytes(y) > CACHE_BYTES) forget_oldest(p);
    p->layouts[p->layout_count++] = y;
    p->layout_bytes += layout_bytes(y);
    return ST_OK;
}

static status find_layout(pack *p, int64_t window, const pack_layout **out)
{
    pack_window *w = &p->windows[window];
    pack_layout *y = NULL;
    if (w->used > 0) {
        for (int64_t i = 0; i < p->layout_count; i++) {
            if (p->layouts[i]->window == window) y = p->layouts[i];
        }
    } else {
        piece_list l = {.seq = p->seq};
        status st = read_pieces(p->s, w->first, w->last, &l);
        if (st == ST_OK) st = make_layout(&l, p->seq, &y);
        free(l.items);
        TRY(st);
        y->window = window;
        st = keep_layout(p, y);
        if (st != ST_OK) {
            layout_free(y);
            return st;
        }
    }
    w->used = ++p->uses;
    *out = y;
    return ST_OK;
}

// ---- windows ------------------------------------------------------------------------------------

static status add_window(pack *p, int64_t first, int64_t last, const piece_list *l)
{
    pack_layout *y = NULL;
    if (p->window_count == p->window_capacity) {
        const int64_t grown = max_i64(64, 2 * p->window_capacity);
        pack_window *moved = realloc(p->windows, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return no_memory();
        p->windows = moved;
        p->window_capacity = grown;
    }
    TRY(make_layout(l, p->seq, &y));
    p->windows[p->window_count++] =
        (pack_window){.first = first, .last = last, .first_row = p->rows};
    p->rows += y->rows;
    p->tokens += last - first;
    layout_free(y);
    return ST_OK;
}

// Cuts the source into windows, the pieces of a file at a time.
static status cut_windows(pack *p)
{
    const int64_t wanted = max_i64(WINDOW_TOKENS, WINDOW_ROWS * p->seq);
    piece_list file_pieces = {.seq = p->seq}, l = {.seq = p->seq};
    int64_t first = 0;
    status st = ST_OK;
    for (int64_t i = 0; i < p->s->file_count && st == ST_OK; i++) {
        const source_file *f = &p->s->files[i];
        const int64_t count = data_tokens_count(f->tokens);
        if (count == 0) continue;
        st = read_pieces(p->s, f->begin, f->begin + count, &file_pieces);
        for (int64_t k = 0; k < file_pieces.count && st == ST_OK; k++) {
            const pack_piece *piece = &file_pieces.items[k];
            const int64_t end = piece->first + piece->count;
            add_piece(&l, piece);
            if (l.failed) st = no_memory();
            if (!piece->ends_document || st != ST_OK) continue;
            if (end - first < wanted && l.count < WINDOW_PIECES_MAX) continue;
            st = add_window(p, first, end, &l);
            first = end;
            l.count = 0;
        }
    }
    if (st == ST_OK && l.count > 0) st = add_window(p, first, p->s->tokens, &l);
    free(l.items);
    free(file_pieces.items);
    return st;
}

static status check_files(const source *s)
{
    for (int64_t i = 0; i < s->file_count; i++) {
        const data_tokens *t = s->files[i].tokens;
        if (data_tokens_count(t) == 0 || data_tokens_documents(t) > 0) continue;
        return fail(ST_UNSUPPORTED,
                    "data.packing = best-fit needs token files that list their documents; %s is a "
                    "%s file and lists none, data pack and data build write some that do",
                    data_tokens_path(t), data_tokens_format(t));
    }
    return ST_OK;
}

status pack_open(const source *s, int64_t seq, pack **out)
{
    TRY(fault_point("data.pack.open"));
    TRY(check_files(s));
    pack *p = calloc(1, sizeof(*p));
    if (p == NULL) return no_memory();
    p->s = s;
    p->seq = seq;
    pthread_mutex_init(&p->lock, NULL); // cannot fail for default attributes
    const status st = cut_windows(p);
    if (st != ST_OK) pack_close(p);
    if (st == ST_OK) *out = p;
    return st;
}

void pack_close(pack *p)
{
    if (p == NULL) return;
    for (int64_t i = 0; i < p->layout_count; i++) layout_free(p->layouts[i]);
    pthread_mutex_destroy(&p->lock);
    free(p->layouts);
    free(p->windows);
    free(p);
}

int64_t pack_rows(const pack *p)
{
    return p->rows;
}

int64_t pack_tokens(const pack *p)
{
    return p->tokens;
}

static int64_t window_of(const pack *p, int64_t row)
{
    int64_t low = 0, high = p->window_count - 1;
    while (low < high) { // the last window that begins at or before the row
        const int64_t middle = low + (high - low + 1) / 2;
        if (p->windows[middle].first_row <= row) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

status pack_row(pack *p, int64_t row, void (*take)(void *context, const pack_piece *piece),
                void *context)
{
    ASSERT(row >= 0 && row < p->rows);
    const pack_layout *y = NULL;
    const int64_t window = window_of(p, row), at = row - p->windows[window].first_row;
    pthread_mutex_lock(&p->lock);
    const status st = find_layout(p, window, &y);
    if (st == ST_OK) {
        ASSERT(at < y->rows);
        for (int64_t i = y->row_begin[at]; i < y->row_begin[at + 1]; i++)
            take(context, &y->pieces[i]);
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}
