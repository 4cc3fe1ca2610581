// Writes ledgers: lines are collected, packed with zstd and written under a temporary name.
#include "data/corpus/ledger.h"
#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { LINES_BYTES = 1 << 18, LEVEL = 3 };

struct ledger {
    const host *h;
    char *path, *temporary;
    file *f;
    ZSTD_CCtx *zstd;
    arena *a; // of the lines that were not packed yet
    text lines;
    char *packed;
    size_t packed_bytes;
};

void ledger_abandon(ledger *l)
{
    if (l == NULL) return;
    if (l->f != NULL) (void)l->h->api->file_close(l->f); // an abandoned file
    (void)ZSTD_freeCCtx(l->zstd);                        // NULL is legal
    arena_destroy(l->a);
    free(l->packed);
    free(l->temporary);
    free(l->path);
    free(l);
}

status ledger_create(const host *h, const char *path, ledger **out)
{
    status st = ST_OK;
    ledger *l = calloc(1, sizeof(*l));
    if (l == NULL) return fail(ST_NO_MEMORY, "%s: no memory to write it", path);
    l->h = h;
    l->packed_bytes = ZSTD_CStreamOutSize();
    const size_t name_bytes = strlen(path) + 8;
    l->path = strdup(path);
    l->temporary = malloc(name_bytes);
    l->packed = malloc(l->packed_bytes);
    l->zstd = ZSTD_createCCtx();
    if (l->path == NULL || l->temporary == NULL || l->packed == NULL || l->zstd == NULL ||
        ZSTD_isError(ZSTD_CCtx_setParameter(l->zstd, ZSTD_c_compressionLevel, LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(l->zstd, ZSTD_c_checksumFlag, 1))) {
        st = fail(ST_NO_MEMORY, "%s: no memory to write it", path);
        goto abandon;
    }
    TRY_TO(abandon, arena_create("ledger", 0, &l->a));
    l->lines.a = l->a;
    (void)snprintf(l->temporary, name_bytes, "%s.tmp", path);
    TRY_TO(abandon, h->api->file_open(h, l->temporary, FILE_WRITE, &l->f));
    *out = l;
    return ST_OK;
abandon:
    ledger_abandon(l);
    return st;
}

static status pack(ledger *l, ZSTD_EndDirective end)
{
    ZSTD_inBuffer in = {.src = l->lines.bytes, .size = (size_t)l->lines.length, .pos = 0};
    size_t left = 1;
    while (in.pos < in.size || (end == ZSTD_e_end && left > 0)) {
        ZSTD_outBuffer out = {.dst = l->packed, .size = l->packed_bytes, .pos = 0};
        left = ZSTD_compressStream2(l->zstd, &out, &in, end);
        if (ZSTD_isError(left)) {
            return fail(ST_INTERNAL, "%s: zstd failed: %s", l->path, ZSTD_getErrorName(left));
        }
        if (out.pos > 0) TRY(l->h->api->file_write(l->f, l->packed, (int64_t)out.pos));
    }
    arena_reset(l->a);
    l->lines = (text){.a = l->a};
    return ST_OK;
}

status ledger_add(ledger *l, const char *origin, const char *generator, const spill_document *d,
                  const char *id, int64_t tokens)
{
    char digits[33];
    TRY(text_add(&l->lines, "{\"n\": %lld, \"file\": ", (long long)d->number));
    TRY(build_add_text(&l->lines, origin, (int64_t)strlen(origin)));
    if (id != NULL) {
        TRY(text_add(&l->lines, ", \"id\": "));
        TRY(build_add_text(&l->lines, id, d->id_bytes));
    }
    if (generator != NULL) {
        TRY(text_add(&l->lines, ", \"generator\": "));
        TRY(build_add_text(&l->lines, generator, (int64_t)strlen(generator)));
    }
    if (d->mark != SPILL_MARK_NONE) {
        TRY(text_add(&l->lines, ", \"review\": \"%s\"",
                     d->mark == SPILL_MARK_EDIT ? "edit" : "accept"));
    }
    TRY(text_add(&l->lines, ", \"hash\": \"%s\", \"bytes\": %lld, \"tokens\": %lld}\n",
                 hash128_text(d->hash, digits), (long long)d->text_bytes, (long long)tokens));
    return l->lines.length >= LINES_BYTES ? pack(l, ZSTD_e_continue) : ST_OK;
}

static status publish(ledger *l)
{
    TRY(pack(l, ZSTD_e_end));
    TRY(fault_point("corpus.ledger.sync"));
    TRY(l->h->api->file_sync(l->f));
    file *f = l->f;
    l->f = NULL;
    TRY(l->h->api->file_close(f));
    return l->h->api->path_rename(l->h, l->temporary, l->path);
}

status ledger_finish(ledger *l)
{
    const status st = publish(l);
    ledger_abandon(l);
    return st;
}
