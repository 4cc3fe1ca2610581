// Packs batches of documents into frames, and reads them back.
#include "data/corpus/spill.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { PACK_LEVEL = 1, MARK_BIT = 56 };

typedef struct docs_head {
    uint32_t documents, zero;
    uint64_t raw, packed, hash;
} docs_head;
typedef struct docs_record {
    uint64_t number;
    uint32_t text, id;
} docs_record;
typedef struct index_head {
    uint32_t documents;
    uint16_t bands, signature_bytes;
    uint64_t docs_at; // filled in by the writer
    uint64_t hash;
} index_head;
_Static_assert(sizeof(docs_head) == 32 && sizeof(docs_record) == 16, "as drawn");
_Static_assert(sizeof(index_head) == 24, "as drawn");

// ---- batches ------------------------------------------------------------------------------------

void spill_batch_clear(spill_batch *b)
{
    b->count = 0;
    b->bytes.count = 0;
}

void spill_batch_deinit(spill_batch *b)
{
    free(b->documents);
    free(b->bands);
    free(b->signatures);
    data_bytes_deinit(&b->bytes);
    data_bytes_deinit(&b->packed);
    data_bytes_deinit(&b->index);
    data_bytes_deinit(&b->raw);
    *b = (spill_batch){0};
}

status spill_batch_add(spill_batch *b, int64_t number, const char *body, int64_t text_bytes,
                       const char *id, int64_t id_bytes)
{
    if (b->count == b->capacity) {
        const int64_t grown = max_i64(256, 2 * b->capacity);
        spill_document *moved = realloc(b->documents, (size_t)grown * sizeof(*moved));
        if (moved == NULL)
            return fail(ST_NO_MEMORY, "no memory for %lld documents", (long long)grown);
        b->documents = moved;
        b->capacity = grown;
    }
    const int64_t at = b->bytes.count;
    TRY(data_bytes_add(&b->bytes, body, text_bytes));
    if (id_bytes > 0) TRY(data_bytes_add(&b->bytes, id, id_bytes));
    b->documents[b->count++] = (spill_document){.number = number,
                                                .text_at = at,
                                                .text_bytes = text_bytes,
                                                .id_at = at + text_bytes,
                                                .id_bytes = id_bytes};
    return ST_OK;
}

status spill_batch_reserve_bands(spill_batch *b)
{
    const int64_t wanted = b->count * b->band_count;
    if (b->bands_capacity >= wanted) return ST_OK;
    const int64_t grown = max_i64(wanted, 2 * b->bands_capacity);
    uint64_t *moved = realloc(b->bands, (size_t)grown * sizeof(*moved));
    if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for %lld hashes", (long long)grown);
    b->bands = moved;
    b->bands_capacity = grown;
    return ST_OK;
}

status spill_batch_reserve_signatures(spill_batch *b)
{
    const int64_t wanted = b->count * b->signature_bytes;
    if (b->signatures_capacity >= wanted) return ST_OK;
    const int64_t grown = max_i64(wanted, 2 * b->signatures_capacity);
    uint8_t *moved = realloc(b->signatures, (size_t)grown);
    if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for signatures");
    b->signatures = moved;
    b->signatures_capacity = grown;
    return ST_OK;
}

// ---- packing ------------------------------------------------------------------------------------

static int64_t sizes_bytes(int64_t documents)
{
    return align_up(4 * documents, 8);
}

static int64_t columns_bytes(int64_t documents, int64_t bands, int64_t signature_bytes)
{
    return 16 * documents + sizes_bytes(documents) + 8 * documents * bands +
           align_up(documents * signature_bytes, 8);
}

static status pack_index(spill_batch *b)
{
    index_head head = {.documents = (uint32_t)b->count,
                       .bands = (uint16_t)b->band_count,
                       .signature_bytes = (uint16_t)b->signature_bytes};
    b->index.count = 0;
    TRY(data_bytes_add(&b->index, &head, sizeof(head)));
    for (int64_t i = 0; i < b->count; i++) {
        TRY(data_bytes_add(&b->index, &b->documents[i].hash, sizeof(hash128)));
    }
    for (int64_t i = 0; i < b->count; i++) {
        const uint32_t bytes = (uint32_t)b->documents[i].text_bytes;
        TRY(data_bytes_add(&b->index, &bytes, sizeof(bytes)));
    }
    const uint32_t zero = 0;
    if (b->count % 2 != 0) TRY(data_bytes_add(&b->index, &zero, sizeof(zero)));
    for (int64_t band = 0; band < b->band_count; band++) {
        for (int64_t i = 0; i < b->count; i++) {
            TRY(data_bytes_add(&b->index, &b->bands[i * b->band_count + band], sizeof(uint64_t)));
        }
    }
    const int64_t signatures = b->count * b->signature_bytes;
    if (signatures > 0) TRY(data_bytes_add(&b->index, b->signatures, signatures));
    const uint64_t zeros = 0;
    TRY(data_bytes_add(&b->index, &zeros, align_up(signatures, 8) - signatures));
    char *bytes = b->index.items;
    ASSERT(b->index.count ==
           (int64_t)sizeof(head) + columns_bytes(b->count, b->band_count, b->signature_bytes));
    head.hash = hash64(bytes + sizeof(head), b->index.count - (int64_t)sizeof(head), 0);
    memcpy(bytes, &head, sizeof(head));
    return ST_OK;
}

static status reserve(data_bytes *b, int64_t bytes)
{
    if (b->capacity >= bytes) return ST_OK;
    char *moved = realloc(b->items, (size_t)bytes);
    if (moved == NULL)
        return fail(ST_NO_MEMORY, "no memory for a piece of %lld bytes", (long long)bytes);
    b->items = moved;
    b->capacity = bytes;
    return ST_OK;
}

status spill_batch_pack(spill_batch *b)
{
    b->raw.count = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const spill_document *d = &b->documents[i];
        const docs_record record = {(uint64_t)d->mark << MARK_BIT | (uint64_t)d->number,
                                    (uint32_t)d->text_bytes, (uint32_t)d->id_bytes};
        TRY(data_bytes_add(&b->raw, &record, sizeof(record)));
    }
    for (int64_t i = 0; i < b->count; i++) {
        const spill_document *d = &b->documents[i];
        if (d->text_bytes > 0)
            TRY(data_bytes_add(&b->raw, b->bytes.items + d->text_at, d->text_bytes));
        if (d->id_bytes > 0) TRY(data_bytes_add(&b->raw, b->bytes.items + d->id_at, d->id_bytes));
    }
    const size_t bound = ZSTD_compressBound((size_t)b->raw.count);
    docs_head head = {.documents = (uint32_t)b->count, .raw = (uint64_t)b->raw.count};
    TRY(reserve(&b->packed, (int64_t)bound + (int64_t)sizeof(head)));
    const size_t packed = ZSTD_compress(b->packed.items + sizeof(head), bound, b->raw.items,
                                        (size_t)b->raw.count, PACK_LEVEL);
    if (ZSTD_isError(packed)) {
        return fail(ST_NO_MEMORY, "documents cannot be packed: %s", ZSTD_getErrorName(packed));
    }
    head.packed = packed;
    head.hash = hash64(b->packed.items + sizeof(head), (int64_t)packed, 0);
    memcpy(b->packed.items, &head, sizeof(head));
    b->packed.count = (int64_t)(packed + sizeof(head));
    return pack_index(b);
}

void spill_batch_set_place(spill_batch *b, int64_t docs_at)
{
    const uint64_t at = (uint64_t)docs_at;
    memcpy(b->index.items + offsetof(index_head, docs_at), &at, sizeof(at));
}

// ---- reading ------------------------------------------------------------------------------------

static status damaged(const char *path, int64_t at)
{
    return fail(ST_DAMAGED,
                "%s: the frame at byte %lld is damaged; remove the work folder of the build, and "
                "the next start begins again",
                path, (long long)at);
}

static status add_frame(arena *a, spill_file *f, const index_head *head, int64_t at)
{
    void *items = f->frames;
    TRY(arena_grow(a, &items, &f->frame_capacity, f->frame_count + 1, sizeof(spill_frame)));
    f->frames = items;
    f->frames[f->frame_count++] = (spill_frame){.first = f->first + f->documents,
                                                .documents = head->documents,
                                                .docs_at = (int64_t)head->docs_at,
                                                .index_at = at};
    f->documents += head->documents;
    return ST_OK;
}

static status find_frames(arena *a, const host *h, file *index, spill_file *f)
{
    int64_t bytes = 0;
    TRY(h->api->file_size(index, &bytes));
    for (int64_t at = 0; at < bytes;) {
        index_head head;
        if (bytes - at < (int64_t)sizeof(head)) return damaged(f->index_path, at);
        TRY(h->api->file_read(index, at, &head, sizeof(head)));
        if (head.documents == 0 || head.documents > SPILL_BATCH_DOCUMENTS ||
            head.bands > SPILL_BANDS_MAX ||
            (f->frame_count > 0 && (head.bands != (uint64_t)f->bands ||
                                    head.signature_bytes != (uint64_t)f->signature_bytes)) ||
            head.docs_at > (uint64_t)INT64_MAX) {
            return damaged(f->index_path, at);
        }
        f->bands = head.bands;
        f->signature_bytes = head.signature_bytes;
        TRY(add_frame(a, f, &head, at));
        at +=
            (int64_t)sizeof(head) + columns_bytes(head.documents, head.bands, head.signature_bytes);
        if (at > bytes) return damaged(f->index_path, at);
    }
    return ST_OK;
}

status spill_file_open(const host *h, arena *a, spill_file *f)
{
    file *index = NULL;
    TRY(h->api->file_open(h, f->index_path, FILE_READ_OWN, &index));
    const status st = find_frames(a, h, index, f);
    (void)h->api->file_close(index); // the file was only read
    return st;
}

status spill_column_read(file *index, const host *h, const spill_file *f, int64_t frame,
                         spill_column column, int64_t band, void *out)
{
    const spill_frame *s = &f->frames[frame];
    const int64_t n = s->documents;
    int64_t at = s->index_at + (int64_t)sizeof(index_head), bytes = 16 * n;
    if (column != SPILL_HASHES) {
        at += bytes;
        bytes = 4 * n;
    }
    if (column == SPILL_BAND) {
        at += sizes_bytes(n) + 8 * n * band;
        bytes = 8 * n;
    }
    return h->api->file_read(index, at, out, bytes);
}

status spill_signature_read(file *index, const host *h, const spill_file *f, int64_t frame,
                            int64_t number, uint8_t *out)
{
    const spill_frame *s = &f->frames[frame];
    const int64_t at = s->index_at + (int64_t)sizeof(index_head) +
                       columns_bytes(s->documents, f->bands, 0) + number * f->signature_bytes;
    return h->api->file_read(index, at, out, f->signature_bytes);
}

// Lays the documents of the unpacked bytes out in the batch.
static bool lay_out(spill_batch *b, int64_t documents)
{
    const int64_t records = documents * (int64_t)sizeof(docs_record);
    if (records > b->bytes.count) return false;
    int64_t at = records;
    for (int64_t i = 0; i < documents; i++) {
        docs_record record;
        memcpy(&record, b->bytes.items + i * (int64_t)sizeof(record), sizeof(record));
        if (at + record.text + record.id > b->bytes.count) return false;
        const uint64_t number = record.number & ((UINT64_C(1) << MARK_BIT) - 1);
        b->documents[i] = (spill_document){.number = (int64_t)number,
                                           .mark = (int)(record.number >> MARK_BIT),
                                           .text_at = at,
                                           .text_bytes = record.text,
                                           .id_at = at + record.text,
                                           .id_bytes = record.id};
        at += record.text + record.id;
    }
    b->count = documents;
    return at == b->bytes.count;
}

static status reserve_documents(spill_batch *b, int64_t count)
{
    if (b->capacity >= count) return ST_OK;
    spill_document *moved = realloc(b->documents, (size_t)count * sizeof(*moved));
    if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for %lld documents", (long long)count);
    b->documents = moved;
    b->capacity = count;
    return ST_OK;
}

status spill_frame_read(file *docs, const host *h, const spill_file *f, int64_t frame,
                        spill_batch *b)
{
    const spill_frame *s = &f->frames[frame];
    docs_head head;
    TRY(fault_point("corpus.spill.read"));
    TRY(h->api->file_read(docs, s->docs_at, &head, sizeof(head)));
    int64_t file_bytes = 0;
    TRY(h->api->file_size(docs, &file_bytes));
    if (head.documents != (uint64_t)s->documents || head.packed > (uint64_t)file_bytes ||
        head.raw > (uint64_t)4 << 30) {
        return damaged(f->docs_path, s->docs_at);
    }
    TRY(reserve(&b->packed, (int64_t)head.packed));
    TRY(reserve(&b->bytes, (int64_t)head.raw + 1));
    TRY(reserve_documents(b, s->documents));
    TRY(h->api->file_read(docs, s->docs_at + (int64_t)sizeof(head), b->packed.items,
                          (int64_t)head.packed));
    if (hash64(b->packed.items, (int64_t)head.packed, 0) != head.hash) {
        return damaged(f->docs_path, s->docs_at);
    }
    const size_t got = ZSTD_decompress(b->bytes.items, head.raw, b->packed.items, head.packed);
    if (ZSTD_isError(got) || got != head.raw) return damaged(f->docs_path, s->docs_at);
    b->bytes.count = (int64_t)got;
    if (!lay_out(b, s->documents)) return damaged(f->docs_path, s->docs_at);
    return ST_OK;
}
