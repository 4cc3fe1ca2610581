// Megatron's pair: NAME.bin holds the tokens, NAME.idx the places of sequences and documents.
//
//   "MMIDIDX\0\0"  u64 version 1  u8 type  u64 S sequences  u64 D document marks
//   i32 lengths[S] (tokens)  i64 pointers[S] (bytes into .bin)  i64 documents[D] (sequence numbers)
//
// The marks begin with 0 and end with S. The sequences must be contiguous, as Megatron writes them:
// the tokens are then one run, and memory keeps only the documents of the index.
#include "data/tokens/format.h"

#include <string.h>

enum { IDX_HEADER_BYTES = 34, IDX_AT_TYPE = 17, IDX_AT_SEQUENCES = 18, IDX_AT_MARKS = 26 };
static const char magic[9] = "MMIDIDX\0";

typedef struct megatron {
    const host *h;
    const char *path; // path of the .idx
    file *f;
    int64_t sequences, marks;
    int64_t lengths_at, pointers_at, marks_at; // bytes in the .idx
    uint64_t *documents;                       // marks - 1 of them
} megatron;

static bool fits(const token_probe *p)
{
    return p->has_idx;
}

static status read_header(megatron *m, token_type *type)
{
    // Code 1 is uint8; 6 and 7 are float64 and float32, which are no tokens.
    static const int8_t types[] = {-1,        TOKEN_U8, TOKEN_I8, TOKEN_I16, TOKEN_I32,
                                   TOKEN_I64, -1,       -1,       TOKEN_U16};
    int64_t file_bytes = 0;
    TRY(m->h->api->file_size(m->f, &file_bytes));
    if (file_bytes < IDX_HEADER_BYTES) {
        return fail(ST_DAMAGED, "%s: %lld bytes, a header of %d expected", m->path,
                    (long long)file_bytes, IDX_HEADER_BYTES);
    }
    uint8_t header[IDX_HEADER_BYTES];
    TRY(m->h->api->file_read(m->f, 0, header, sizeof(header)));
    uint64_t version, sequences, marks;
    memcpy(&version, header + sizeof(magic), 8);
    memcpy(&sequences, header + IDX_AT_SEQUENCES, 8);
    memcpy(&marks, header + IDX_AT_MARKS, 8);
    if (memcmp(header, magic, sizeof(magic)) != 0) {
        return fail(ST_DAMAGED, "%s: no Megatron index: \"MMIDIDX\" expected at byte 0", m->path);
    }
    if (version != 1) {
        return fail(ST_DAMAGED, "%s: version %llu at byte %d, 1 expected", m->path,
                    (unsigned long long)version, (int)sizeof(magic));
    }
    const uint8_t code = header[IDX_AT_TYPE];
    if (code >= COUNT_OF(types) || types[code] < 0) {
        return fail(ST_DAMAGED, "%s: type code %d at byte %d is not an integer type", m->path, code,
                    IDX_AT_TYPE);
    }
    // The file's size bounds the counts before the code uses them.
    const uint64_t rest = (uint64_t)(file_bytes - IDX_HEADER_BYTES);
    if (sequences > rest / 12 || marks > rest / 8 || sequences * 12 + marks * 8 != rest) {
        return fail(ST_DAMAGED,
                    "%s: %llu sequences at byte %d and %llu document marks at byte %d do not fit "
                    "its %lld bytes",
                    m->path, (unsigned long long)sequences, IDX_AT_SEQUENCES,
                    (unsigned long long)marks, IDX_AT_MARKS, (long long)file_bytes);
    }
    *type = (token_type)types[code];
    m->sequences = (int64_t)sequences;
    m->marks = (int64_t)marks;
    m->lengths_at = IDX_HEADER_BYTES;
    m->pointers_at = m->lengths_at + 4 * m->sequences;
    m->marks_at = m->pointers_at + 8 * m->sequences;
    return ST_OK;
}

// Converts the marks to the tokens at which documents begin, in one walk over all sequences. *mark
// is the next mark.
static void place_documents(megatron *m, int64_t sequence, int64_t token, int64_t *mark)
{
    while (*mark < m->marks - 1 && m->documents[*mark] == (uint64_t)sequence) {
        m->documents[(*mark)++] = (uint64_t)token;
    }
}

static status walk(megatron *m, int64_t width, int64_t *tokens)
{
    enum { STRIDE = 512 };
    int32_t lengths[STRIDE];
    int64_t pointers[STRIDE];
    int64_t token = 0, mark = 0;
    for (int64_t first = 0; first < m->sequences; first += STRIDE) {
        const int64_t n = min_i64(STRIDE, m->sequences - first);
        TRY(m->h->api->file_read(m->f, m->lengths_at + 4 * first, lengths, 4 * n));
        TRY(m->h->api->file_read(m->f, m->pointers_at + 8 * first, pointers, 8 * n));
        for (int64_t i = 0; i < n; i++) {
            place_documents(m, first + i, token, &mark);
            if (lengths[i] < 0) {
                return fail(ST_DAMAGED, "%s: sequence %lld has length %d at byte %lld", m->path,
                            (long long)(first + i), lengths[i],
                            (long long)(m->lengths_at + 4 * (first + i)));
            }
            if (pointers[i] != token * width) {
                return fail(ST_DAMAGED,
                            "%s: sequence %lld lies at %lld (byte %lld of the index), but the one "
                            "before ends at %lld",
                            m->path, (long long)(first + i), (long long)pointers[i],
                            (long long)(m->pointers_at + 8 * (first + i)),
                            (long long)(token * width));
            }
            token += lengths[i];
        }
    }
    place_documents(m, m->sequences, token, &mark); // empty documents at the end
    if (mark != m->marks - 1) {
        return fail(ST_DAMAGED, "%s: document %lld begins at sequence %llu (byte %lld), %s",
                    m->path, (long long)mark, (unsigned long long)m->documents[mark],
                    (long long)(m->marks_at + 8 * mark), "which is out of order or range");
    }
    *tokens = token;
    return ST_OK;
}

static status read_marks(megatron *m, arena *a)
{
    if (m->marks < 1) {
        return fail(ST_DAMAGED, "%s: no document marks at byte %d; 0 and the end expected", m->path,
                    IDX_AT_MARKS);
    }
    TRY(arena_new(a, m->marks, &m->documents));
    TRY(m->h->api->file_read(m->f, m->marks_at, m->documents, 8 * m->marks));
    const uint64_t last = m->documents[m->marks - 1];
    if (m->documents[0] != 0 || last != (uint64_t)m->sequences) {
        return fail(ST_DAMAGED,
                    "%s: document marks run from %llu to %llu (byte %lld), 0 to %lld expected",
                    m->path, (unsigned long long)m->documents[0], (unsigned long long)last,
                    (long long)m->marks_at, (long long)m->sequences);
    }
    return ST_OK;
}

static status read_index(megatron *m, arena *a, data_tokens *t)
{
    TRY(read_header(m, &t->type));
    TRY(read_marks(m, a));
    TRY(walk(m, token_type_bytes(t->type), &t->count));
    t->documents = m->documents;
    t->documents_count = m->marks - 1;
    return ST_OK;
}

static status open_megatron(data_tokens *t, arena *a, const token_probe *p)
{
    const int stem = (int)strlen(p->path) - 4;
    char *idx = NULL;
    TRY(arena_format(a, &idx, "%.*s.idx", stem, p->path));
    TRY(arena_format(a, &t->path, "%.*s.bin", stem, p->path));
    megatron m = {.h = t->h, .path = idx};
    TRY(t->h->api->file_open(t->h, idx, FILE_READ, &m.f));
    const status st = read_index(&m, a, t);
    (void)t->h->api->file_close(m.f); // the file was only read
    TRY(st);
    TRY(token_file_open(t, t->path));
    int64_t file_bytes = 0;
    TRY(t->h->api->file_size(t->f, &file_bytes));
    return token_file_check_size(t, file_bytes);
}

const data_token_format data_token_format_megatron = {
    .name = "megatron", .fits = fits, .open = open_megatron};
