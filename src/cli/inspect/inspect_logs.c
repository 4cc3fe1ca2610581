// Records of a run: metrics, TensorBoard events, traces; and JSON, recognized by its keys.
#include "base/format/json.h"
#include "base/hash.h"
#include "cli/inspect/inspect.h"
#include "data/reader.h"
#include "observe/observe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_LIMIT_BYTES = 1 << 28 };

// ---- metrics ------------------------------------------------------------------------------------

typedef struct metrics {
    int64_t lines, first_step, last_step, at; // at: first byte of the line
    double loss, best_val_loss;
} metrics;

static status metrics_line(inspect_report *r, metrics *m, const char *line, int64_t length)
{
    json *record = NULL;
    m->lines++;
    char what[512];
    (void)snprintf(what, sizeof(what), "%.400s: line %lld, at byte %lld", r->path,
                   (long long)m->lines, (long long)m->at);
    const status st = json_parse(line, length, what, &record);
    if (st != ST_OK) return inspect_take(r, st);
    const int64_t step = json_int(json_get(record, "step"), -1);
    const double loss = json_real(json_get(record, "loss"), (double)NAN);
    const double val = json_real(json_get(record, "val_loss"), (double)NAN);
    json_free(record);
    if (step < 0 || step < m->last_step) {
        TRY(inspect_damage(r, "%s: line %lld, at byte %lld: step %lld after step %lld", r->path,
                           (long long)m->lines, (long long)m->at, (long long)step,
                           (long long)m->last_step));
    }
    if (m->lines == 1) m->first_step = step;
    m->last_step = max_i64(m->last_step, step);
    if (!isnan(loss)) m->loss = loss;
    if (!isnan(val) && !(val >= m->best_val_loss)) m->best_val_loss = val;
    return ST_OK;
}

static status metrics_lines(inspect_report *r, const char *bytes, int64_t count, metrics *m)
{
    while (m->at < count) {
        const char *line = bytes + m->at;
        const char *end = memchr(line, '\n', (size_t)(count - m->at));
        if (end == NULL) {
            return inspect_damage(r, "%s: its last line, at byte %lld, has no end", r->path,
                                  (long long)m->at);
        }
        TRY(metrics_line(r, m, line, end - line));
        m->at = end + 1 - bytes;
    }
    return ST_OK;
}

status inspect_metrics(inspect_report *r, const inspect_probe *p)
{
    metrics m = {.last_step = -1, .loss = (double)NAN, .best_val_loss = (double)NAN};
    file *f = NULL;
    const void *bytes = NULL;
    int64_t count = 0;
    TRY(r->cli->h->api->file_open(r->cli->h, p->path, FILE_READ, &f));
    status st = r->cli->h->api->file_map(f, &bytes, &count);
    if (st == ST_OK) st = metrics_lines(r, bytes, count, &m);
    (void)r->cli->h->api->file_close(f); // the file was only read
    TRY(st);
    TRY(inspect_add_int(r, "records", m.lines));
    TRY(inspect_add(r, "steps", "%lld to %lld", (long long)m.first_step, (long long)m.last_step));
    TRY(inspect_add(r, "last loss", "%.6g", m.loss));
    if (!isnan(m.best_val_loss)) TRY(inspect_add(r, "best val", "%.6g", m.best_val_loss));
    return inspect_checked(r, "every line of %lld; steps ascend", (long long)m.lines);
}

// ---- TensorBoard --------------------------------------------------------------------------------

// u64 length, u32 masked CRC-32C of it, the event, u32 masked CRC of the event.
enum { RECORD_HEAD = 12, RECORD_TAIL = 4 };

static uint32_t masked(const uint8_t *bytes, int64_t count)
{
    const uint32_t crc = crc32c(0, bytes, count);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static uint32_t u32_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static status events_walk(inspect_report *r, const uint8_t *bytes, int64_t count, int64_t *events)
{
    for (int64_t at = 0; at < count;) {
        const int64_t left = count - at;
        if (left < RECORD_HEAD) {
            return inspect_damage(r, "%s: cut inside a record at byte %lld", r->path,
                                  (long long)at);
        }
        const uint64_t length = u32_at(bytes + at) | (uint64_t)u32_at(bytes + at + 4) << 32;
        if (masked(bytes + at, 8) != u32_at(bytes + at + 8)) {
            return inspect_damage(r, "%s: byte %lld: the checksum of a record's length is wrong",
                                  r->path, (long long)at);
        }
        if (length > (uint64_t)left || (int64_t)length > left - RECORD_HEAD - RECORD_TAIL) {
            return inspect_damage(r, "%s: cut inside a record at byte %lld", r->path,
                                  (long long)at);
        }
        const uint8_t *event = bytes + at + RECORD_HEAD;
        if (r->verifies && masked(event, (int64_t)length) != u32_at(event + length)) {
            TRY(inspect_damage(r, "%s: byte %lld: the checksum of a record of %llu bytes is wrong",
                               r->path, (long long)at, (unsigned long long)length));
        }
        (*events)++;
        at += RECORD_HEAD + (int64_t)length + RECORD_TAIL;
    }
    return ST_OK;
}

status inspect_tfevents(inspect_report *r, const inspect_probe *p)
{
    file *f = NULL;
    const void *bytes = NULL;
    int64_t count = 0, events = 0;
    TRY(r->cli->h->api->file_open(r->cli->h, p->path, FILE_READ, &f));
    status st = r->cli->h->api->file_map(f, &bytes, &count);
    if (st == ST_OK) st = events_walk(r, bytes, count, &events);
    (void)r->cli->h->api->file_close(f); // the file was only read
    TRY(st);
    TRY(inspect_add_int(r, "bytes", count));
    TRY(inspect_add_int(r, "events", events));
    return inspect_checked(r, "both checksums of %lld records", (long long)events);
}

// ---- JSON ---------------------------------------------------------------------------------------

// The fields that every viewer needs: a name, a kind, and a time that is a number.
static status trace_tell(inspect_report *r, const json *list)
{
    int64_t spans = 0;
    double end = 0.0;
    for (int64_t i = 0; i < json_count(list); i++) {
        const json *e = json_at(list, i);
        const char *phase = json_text(json_get(e, "ph"), NULL);
        if (phase == NULL) {
            TRY(inspect_damage(r, "%s: event %lld has no \"ph\"", r->path, (long long)i));
            continue;
        }
        if (strcmp(phase, "X") != 0) continue;
        const double begin = json_real(json_get(e, "ts"), (double)NAN);
        const double length = json_real(json_get(e, "dur"), (double)NAN);
        if (!(length >= 0.0) || isnan(begin) || json_text(json_get(e, "name"), NULL) == NULL) {
            TRY(inspect_damage(r, "%s: span %lld lacks a name, a ts or a dur of 0 or more", r->path,
                               (long long)i));
            continue;
        }
        spans++;
        if (begin + length > end) end = begin + length;
    }
    TRY(inspect_add_int(r, "events", json_count(list)));
    TRY(inspect_add_int(r, "spans", spans));
    TRY(inspect_add(r, "ends at", "%.3f ms", end / 1e3));
    return inspect_checked(r, "every event of %lld", (long long)json_count(list));
}

static status json_tell(inspect_report *r, const json *root)
{
    static const char *const kinds[] = {"nothing",  "null",   "a boolean", "a number",
                                        "a number", "a text", "a list",    "a map"};
    const char *format = json_text(json_get(root, "format"), NULL);
    TRY(inspect_add(r, "holds", "%s of %lld", kinds[json_kind_of(root)],
                    (long long)json_count(root)));
    if (format != NULL) TRY(inspect_add(r, "format", "%s", format));
    return inspect_checked(r, "its form");
}

status inspect_json(inspect_report *r, const inspect_probe *p)
{
    json *root = NULL;
    TRY(json_read(r->cli->h, p->path, JSON_LIMIT_BYTES, &root));
    const json *events = json_get(root, "traceEvents");
    const bool is_config = json_get(root, "model_type") != NULL;
    status st = ST_OK;
    if (json_kind_of(events) == JSON_LIST) {
        r->kind = "Chrome trace";
        st = trace_tell(r, events);
    } else if (!is_config) {
        st = json_tell(r, root);
    }
    json_free(root);
    return st == ST_OK && is_config ? inspect_hf_config(r, p) : st;
}
