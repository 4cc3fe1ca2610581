// Windows over a stream of tokens. One half reads files into a buffer of tokens with a flag at the
// beginning of each document; the other half cuts windows from the buffer's front.
#include "infer/windows.h"

#include "data/dataset.h"
#include "data/reader.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1 << 14 }; // tokens per read of a token file

struct infer_windows {
    const host *h;
    arena *a;
    infer_windows_spec spec;
    int32_t eot;         // -1: none
    int32_t *id_bytes;   // [id] bytes of its text; NULL without a tokenizer
    int64_t id_count;    // number of ids in id_bytes
    int64_t *file_bytes; // [path]
    int64_t all_bytes, done_bytes;
    // The current file.
    int64_t next_path;
    data_documents *texts;
    data_tokens *tokens;
    int64_t token; // the token file's next token
    bool in_document;
    // The stream's tokens [base, base + ids.count).
    data_ids ids;
    data_bytes begins; // [token of ids] 1: a document begins
    int64_t base;
    // Begin_next: the next token begins a document; at_end: all files are read.
    bool begin_next, at_end;
    // Windows.
    // Beginning of the next window; predictions of tokens before `scored` are done.
    int64_t window, scored;
    infer_windows_count count;
};

// ---- reading ------------------------------------------------------------------------------------

static status push(infer_windows *w, const int32_t *ids, int64_t count)
{
    static const char plain[BLOCK] = {0};
    for (int64_t i = 0; i < count; i += BLOCK) {
        TRY(data_bytes_add(&w->begins, plain, min_i64(BLOCK, count - i)));
    }
    TRY(data_ids_add(&w->ids, ids, count));
    if (count > 0 && w->begin_next) {
        w->begins.items[w->begins.count - count] = 1;
        w->begin_next = false;
    }
    return ST_OK;
}

static status text_more(infer_windows *w)
{
    data_piece piece;
    data_ids ids = {0};
    TRY(data_documents_next(w->texts, &piece));
    if (piece.bytes == NULL) {
        const char *first = NULL;
        w->count.skipped += data_documents_skipped(w->texts, &first);
        data_documents_close(w->texts);
        w->texts = NULL;
        return ST_OK;
    }
    status st = data_tokenizer_encode(
        w->spec.tokenizer, piece.bytes, piece.count,
        data_tokenizer_flags(w->spec.tokenizer) | data_piece_flags(&piece), &ids);
    if (st == ST_OK) st = push(w, ids.items, ids.count);
    w->in_document = w->in_document || ids.count > 0;
    data_ids_deinit(&ids);
    TRY(st);
    if (!piece.ends_document || !w->in_document) return ST_OK;
    if (w->eot >= 0) TRY(push(w, &w->eot, 1));
    w->begin_next = true;
    w->in_document = false;
    return ST_OK;
}

typedef struct marking {
    infer_windows *w;
    int64_t first; // token of the file at the block's beginning
    int64_t at;    // position of the block in the buffer
    int64_t count;
} marking;

static void mark(void *context, int64_t token)
{
    const marking *m = context;
    const int64_t i = token - m->first;
    if (i < m->count) {
        m->w->begins.items[m->at + i] = 1;
    } else {
        m->w->begin_next = true;
    }
}

static status tokens_more(infer_windows *w)
{
    int32_t block[BLOCK];
    const int64_t count = min_i64(BLOCK, data_tokens_count(w->tokens) - w->token);
    if (count == 0) {
        data_tokens_close(w->tokens);
        w->tokens = NULL;
        w->begin_next = true;
        return ST_OK;
    }
    marking m = {.w = w, .first = w->token, .at = w->ids.count, .count = count};
    TRY(data_tokens_read(w->tokens, w->token, count, block));
    TRY(push(w, block, count));
    w->token += count;
    if (data_tokens_documents(w->tokens) > 0) {
        return data_tokens_boundaries(w->tokens, m.first, count, mark, &m);
    }
    for (int64_t i = 0; i < count && w->eot >= 0; i++) {
        if (block[i] == w->eot) mark(&m, m.first + i + 1);
    }
    return ST_OK;
}

static status path_open(infer_windows *w, const char *path)
{
    bool is_tokens = false;
    TRY(data_path_check(path));
    TRY(data_tokens_probe(w->h, path, &is_tokens));
    w->token = 0;
    w->begin_next = true;
    w->in_document = false;
    if (!is_tokens && w->spec.tokenizer == NULL) {
        return fail(ST_USAGE, "%s is a text and the model has no tokenizer; give --tokenizer",
                    path);
    }
    if (!is_tokens) {
        const int skips = w->spec.skips_bad_lines ? DATA_SKIP_BAD_LINES : 0;
        return data_documents_open(w->h, path, data_tokenizer_cuts(w->spec.tokenizer) | skips,
                                   &w->texts);
    }
    data_tokens *t = NULL;
    TRY(data_tokens_open(w->h, w->a, path, w->spec.vocab, &t));
    w->tokens = t;
    const hash128 made_by = data_tokens_tokenizer(t), none = {0};
    if (w->spec.tokenizer == NULL || memcmp(&made_by, &none, sizeof(none)) == 0) return ST_OK;
    const hash128 ours = data_tokenizer_id(w->spec.tokenizer);
    if (memcmp(&made_by, &ours, sizeof(ours)) == 0) return ST_OK;
    return fail(ST_DATA, "%s was made with another tokenizer than the model's", path);
}

// Reads until the buffer has the tokens before `end` of the stream, or all files have ended.
static status fill(infer_windows *w, int64_t end)
{
    while (w->base + w->ids.count < end && !w->at_end) {
        if (w->texts != NULL) {
            TRY(text_more(w));
        } else if (w->tokens != NULL) {
            TRY(tokens_more(w));
        } else if (w->next_path < w->spec.path_count) {
            if (w->next_path > 0) w->done_bytes += w->file_bytes[w->next_path - 1];
            TRY(path_open(w, w->spec.paths[w->next_path++]));
        } else {
            w->at_end = true;
        }
    }
    return ST_OK;
}

// Drops the tokens before the next window, in large steps.
static void forget(infer_windows *w)
{
    const int64_t gone = min_i64(w->window - w->base, w->ids.count);
    if (gone < 4 * BLOCK) return;
    w->ids.count -= gone;
    w->begins.count -= gone;
    memmove(w->ids.items, w->ids.items + gone, (size_t)w->ids.count * sizeof(int32_t));
    memmove(w->begins.items, w->begins.items + gone, (size_t)w->begins.count);
    w->base += gone;
}

// ---- windows ------------------------------------------------------------------------------------

static bool begins_at(const infer_windows *w, int64_t token)
{
    return w->begins.items[token - w->base] != 0;
}

static bool limit_met(const infer_windows *w)
{
    return w->spec.limit > 0 && w->count.tokens >= w->spec.limit;
}

// The label of stream token `at`, counted; -1 if there is none to predict.
static int32_t label_take(infer_windows *w, int64_t at)
{
    if (at < w->scored || at + 1 >= w->base + w->ids.count || limit_met(w)) return -1;
    if (!w->spec.crosses_texts && begins_at(w, at + 1)) return -1;
    const int32_t id = w->ids.items[at + 1 - w->base];
    w->count.tokens++;
    if (w->id_bytes != NULL && id >= 0 && id < w->id_count) w->count.bytes += w->id_bytes[id];
    return id;
}

static void row_fill(infer_windows *w, const infer_rows *rows, int64_t row)
{
    const int64_t seq = w->spec.seq, end = w->base + w->ids.count;
    int32_t position = 0, document = 0;
    for (int64_t t = 0; t < seq; t++) {
        const int64_t at = w->window + t, cell = row * seq + t;
        const bool is_there = at < end;
        const bool begins = is_there && begins_at(w, at);
        if (begins && t > 0 && !w->spec.crosses_texts) {
            position = 0;
            document++;
        }
        if (begins && at >= w->scored && !limit_met(w)) w->count.documents++;
        rows->ids[cell] = is_there ? w->ids.items[at - w->base] : 0;
        rows->labels[cell] = label_take(w, at);
        rows->positions[cell] = position++;
        rows->documents[cell] = document;
    }
    w->scored = w->window + seq;
    w->window += w->spec.stride;
}

status infer_windows_next(infer_windows *w, const infer_rows *rows, int64_t *filled)
{
    ASSERT(rows->seq == w->spec.seq);
    *filled = 0;
    while (*filled < rows->rows) {
        TRY(fill(w, w->window + w->spec.seq + 1));
        // Needs one token more than was scored: otherwise no token is left to predict.
        if (w->scored + 1 >= w->base + w->ids.count || limit_met(w)) return ST_OK;
        row_fill(w, rows, (*filled)++);
        forget(w);
    }
    return ST_OK;
}

// ---- opening ------------------------------------------------------------------------------------

static status id_bytes_make(infer_windows *w)
{
    const int how = DATA_DECODE_SKIP_SPECIAL | DATA_DECODE_CONTINUES;
    data_bytes word = {0};
    status st = ST_OK;
    w->id_count = data_tokenizer_vocab_size(w->spec.tokenizer);
    TRY(arena_new(w->a, w->id_count, &w->id_bytes));
    for (int64_t i = 0; i < w->id_count && st == ST_OK; i++) {
        const int32_t id = (int32_t)i;
        word.count = 0;
        st = data_tokenizer_decode(w->spec.tokenizer, &id, 1, how, &word);
        w->id_bytes[i] = (int32_t)word.count;
    }
    data_bytes_deinit(&word);
    return st;
}

static status paths_check(infer_windows *w)
{
    TRY(arena_new(w->a, max_i64(1, w->spec.path_count), &w->file_bytes));
    for (int64_t i = 0; i < w->spec.path_count; i++) {
        file_info info;
        TRY(w->h->api->path_info(w->h, w->spec.paths[i], &info));
        if (info.kind != FILE_KIND_REGULAR) {
            return fail(ST_NOT_FOUND, "%s: %s", w->spec.paths[i],
                        info.kind == FILE_KIND_NONE ? "no such file" : "a file expected");
        }
        w->file_bytes[i] = info.bytes;
        w->all_bytes += info.bytes;
    }
    return ST_OK;
}

status infer_windows_open(const host *h, arena *a, const infer_windows_spec *spec,
                          infer_windows **out)
{
    ASSERT(spec->seq >= 1 && spec->stride >= 1 && spec->stride <= spec->seq);
    infer_windows *w = NULL;
    TRY(arena_new(a, 1, &w));
    w->h = h;
    w->a = a;
    w->spec = *spec;
    w->eot = spec->tokenizer != NULL ? data_tokenizer_eot(spec->tokenizer) : -1;
    TRY(paths_check(w));
    if (spec->tokenizer != NULL) TRY(id_bytes_make(w));
    *out = w;
    return ST_OK;
}

infer_windows_count infer_windows_counted(const infer_windows *w)
{
    infer_windows_count count = w->count;
    const char *first = NULL;
    if (w->texts != NULL) count.skipped += data_documents_skipped(w->texts, &first);
    return count;
}

double infer_windows_share(const infer_windows *w)
{
    double bytes = (double)w->done_bytes;
    if (w->next_path > 0) {
        const double whole = (double)w->file_bytes[w->next_path - 1];
        if (w->texts != NULL) {
            bytes += (double)data_reader_position(data_documents_reader(w->texts));
        } else if (w->tokens != NULL && data_tokens_count(w->tokens) > 0) {
            bytes += whole * (double)w->token / (double)data_tokens_count(w->tokens);
        } else {
            bytes += whole;
        }
    }
    // A large piece is read at once; its windows follow one by one.
    const double tokens = (double)(w->base + w->ids.count);
    const double cut = tokens > 0.0 ? fmin(1.0, (double)w->scored / tokens) : 0.0;
    const double read = w->all_bytes > 0 ? bytes / (double)w->all_bytes : 1.0;
    const double limit = (double)w->spec.limit;
    return limit > 0.0 ? fmax(cut * read, (double)w->count.tokens / limit) : cut * read;
}

void infer_windows_close(infer_windows *w)
{
    if (w == NULL) return;
    data_documents_close(w->texts);
    data_tokens_close(w->tokens);
    data_ids_deinit(&w->ids);
    data_bytes_deinit(&w->begins);
}
