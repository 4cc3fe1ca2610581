// Verifies all that a checkpoint's bytes allow: every header, every tensor, every extra file, and
// the digest over the logical tensors in their order.
#include "checkpoint/reader.h"
#include "checkpoint/state.h"

#include <string.h>

typedef struct verifying {
    ckpt_reader *r;
    hash_stream *digest;
    text *report;                // NULL: the first damage ends the check
    bool (*stop)(void *context); // NULL: never
    void *context;
    bool damaged;
    char last[ERROR_TEXT_BYTES]; // last line of the report: a truncated file is reported once
} verifying;

static status digest_take(void *context, int64_t at, const void *bytes, int64_t count)
{
    const verifying *v = context;
    (void)at;
    if (v->stop != NULL && v->stop(v->context)) return fail(ST_STOPPED, "asked to stop");
    hash_add(v->digest, bytes, count);
    return ST_OK;
}

// Damage goes into the report and verification continues; any other failure ends it.
static status count_damage(verifying *v, status st)
{
    if (st == ST_OK || v->report == NULL || (st != ST_DAMAGED && st != ST_SECURITY)) return st;
    v->damaged = true;
    if (strcmp(v->last, error_last()->text) != 0) {
        memcpy(v->last, error_last()->text, sizeof(v->last));
        TRY(text_add(v->report, "%s\n", v->last));
    }
    error_clear();
    return ST_OK;
}

static status all_read(verifying *v)
{
    const ckpt_manifest *m = ckpt_reader_manifest(v->r);
    int64_t tensors = 0;
    TRY(count_damage(v, ckpt_reader_cover_check(v->r)));
    for (int64_t i = 0; i < m->state_count; i++) {
        TRY(count_damage(v, ckpt_reader_head_check(v->r, &m->state[i], &tensors)));
    }
    for (int64_t i = 0; i < m->tensor_count; i++) {
        const ckpt_tensor *t = &m->tensors[i];
        digest_head(v->digest, t->name, t->type, t->ndim, t->dims);
        TRY(count_damage(v, ckpt_reader_stream(v->r, t, digest_take, v)));
    }
    for (int64_t i = 0; i < m->extra_count; i++) {
        TRY(count_damage(v, ckpt_reader_extra_check(v->r, &m->extras[i])));
    }
    return count_damage(v, ckpt_reader_name_check(v->r));
}

static status root_check(const ckpt_reader *r, const char *path, hash128 have)
{
    char hex[33], want[33];
    const hash128 root = ckpt_reader_digest(r);
    if (have.high == root.high && have.low == root.low) return ST_OK;
    return fail(ST_DAMAGED, "%s: the digest of its tensors is %s, the manifest says %s", path,
                hash128_text(have, hex), hash128_text(root, want));
}

static status all_verify(verifying *v, const char *path)
{
    text *report = v->report;
    v->digest = hash_begin();
    if (v->digest == NULL) return fail(ST_NO_MEMORY, "no memory for a digest");
    const status st = all_read(v);
    const hash128 have = hash_end(v->digest);
    TRY(st);
    if (!v->damaged) TRY(count_damage(v, root_check(v->r, path, have)));
    if (!v->damaged) return ST_OK;
    ASSERT(report != NULL); // without a report the first damage has ended the check
    return fail(ST_DAMAGED, "%s is damaged:\n%.3000s", path, report->bytes);
}

status ckpt_reader_verify(ckpt_reader *r, const char *path, text *report)
{
    verifying v = {.r = r, .report = report};
    return all_verify(&v, path);
}

static status verify(const host *h, const char *path, verifying *v)
{
    const status opened = ckpt_reader_open_manifest(h, path, &v->r);
    if (opened == ST_DAMAGED || opened == ST_SECURITY) {
        error_record kept;
        error_take(&kept);
        TRY(text_add(v->report, "%s\n", kept.text));
        return error_put(&kept);
    }
    TRY(opened);
    if (v->stop != NULL) ckpt_reader_bypass_cache(v->r);
    const status st = all_verify(v, path);
    ckpt_reader_close(v->r);
    return st;
}

status ckpt_verify(const host *h, arena *a, const char *path, text *report)
{
    verifying v = {.report = report};
    (void)a;
    return verify(h, path, &v);
}

status ckpt_scrub(const host *h, const char *path, bool (*stop)(void *context), void *context,
                  text *report)
{
    verifying v = {.report = report, .stop = stop, .context = context};
    return verify(h, path, &v);
}

status ckpt_digest(const host *h, arena *a, const char *path, hash128 *out)
{
    (void)a;
    ckpt_reader *r = NULL;
    TRY(ckpt_reader_open(h, path, &r));
    const status st = ckpt_reader_verify(r, path, NULL);
    if (st == ST_OK) *out = ckpt_reader_digest(r);
    ckpt_reader_close(r);
    return st;
}
