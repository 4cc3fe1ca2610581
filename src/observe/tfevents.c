// Writes TensorBoard event files: the records of steps as scalars.
//
// A file is a sequence of records: u64 length, u32 masked CRC-32C of the length, the bytes, u32
// masked CRC of the bytes. Each record is an Event in protobuf's wire format, with few enough
// fields to write by hand. Source: the public record and proto definitions of TensorFlow. A resumed
// run begins a new file, which the viewer joins to the earlier ones. A session log at its start
// makes the viewer discard the steps that are now repeated.
#include "base/hash.h"
#include "observe/append.h"
#include "observe/observe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EVENT_BYTES = 512 };

struct obs_events {
    obs_append file;
};

typedef struct wire {
    uint8_t bytes[EVENT_BYTES];
    int64_t count;
} wire;

static uint32_t masked(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put(wire *w, const void *data, int64_t bytes)
{
    ASSERT(w->count + bytes <= EVENT_BYTES);
    memcpy(w->bytes + w->count, data, (size_t)bytes);
    w->count += bytes;
}

static void put_byte(wire *w, uint8_t byte)
{
    put(w, &byte, 1);
}

static void put_varint(wire *w, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) put_byte(w, (uint8_t)(value | 0x80));
    put_byte(w, (uint8_t)value);
}

// Writes a length-delimited field: a string or a message.
static void put_field(wire *w, uint8_t key, const void *data, int64_t bytes)
{
    put_byte(w, key);
    put_varint(w, (uint64_t)bytes);
    put(w, data, bytes);
}

static void event_begin(wire *w, double time, int64_t step)
{
    w->count = 0;
    put_byte(w, 0x09); // 1: wall_time, double
    put(w, &time, (int64_t)sizeof(time));
    put_byte(w, 0x10); // 2: step, varint
    put_varint(w, (uint64_t)step);
}

static status event_write(obs_events *e, const wire *event)
{
    wire out = {.count = 0};
    const uint64_t length = (uint64_t)event->count;
    const uint32_t length_sum = masked(crc32c(0, &length, (int64_t)sizeof(length)));
    const uint32_t sum = masked(crc32c(0, event->bytes, event->count));
    put(&out, &length, (int64_t)sizeof(length));
    put(&out, &length_sum, (int64_t)sizeof(length_sum));
    put(&out, event->bytes, event->count);
    put(&out, &sum, (int64_t)sizeof(sum));
    return obs_append_write(&e->file, out.bytes, out.count);
}

static status scalar_write(obs_events *e, const obs_record *r, const char *tag, double value)
{
    if (!isfinite(value)) return ST_OK;
    const float narrow = (float)value;
    wire item = {.count = 0}, summary = {.count = 0}, event;
    put_field(&item, 0x0a, tag, (int64_t)strlen(tag)); // 1: tag
    put_byte(&item, 0x15);                             // 2: simple_value, float
    put(&item, &narrow, (int64_t)sizeof(narrow));
    put_field(&summary, 0x0a, item.bytes, item.count); // 1: value
    event_begin(&event, r->time, r->step);
    put_field(&event, 0x2a, summary.bytes, summary.count); // 5: summary
    return event_write(e, &event);
}

status obs_events_open(const host *h, arena *a, const char *path, int64_t finished_steps,
                       obs_events **out)
{
    static const char version[] = "brain.Event:2";
    obs_events *e = NULL;
    wire event, log = {.count = 0};
    TRY(arena_new(a, 1, &e));
    TRY(obs_append_open(h, path, &e->file));
    event_begin(&event, (double)h->api->unix_ns(h) / 1e9, 0);
    put_field(&event, 0x1a, version, (int64_t)sizeof(version) - 1); // 3: file_version
    *out = e; // set even on failure: the caller closes it
    TRY(event_write(e, &event));
    // Discards what an earlier session wrote for this step and later ones.
    put_byte(&log, 0x08); // 1: status
    put_varint(&log, 1);  // START
    event_begin(&event, (double)h->api->unix_ns(h) / 1e9, finished_steps + 1);
    put_field(&event, 0x3a, log.bytes, log.count); // 7: session_log
    return event_write(e, &event);
}

status obs_events_add(obs_events *e, const obs_record *r)
{
    TRY(scalar_write(e, r, "train/loss", r->loss));
    TRY(scalar_write(e, r, "train/grad_norm", r->grad_norm));
    TRY(scalar_write(e, r, "train/lr", r->lr));
    if (r->comm > 0) TRY(scalar_write(e, r, "comm/exposed", r->comm_exposed));
    if (r->codec_errors != NULL) TRY(scalar_write(e, r, "comm/codec_error", r->codec_error));
    TRY(scalar_write(e, r, "speed/tokens_per_s", r->tokens_per_s));
    TRY(scalar_write(e, r, "speed/mfu", r->mfu));
    for (int i = 0; i < r->measure_count; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "objective/%s", r->measures[i].name);
        TRY(scalar_write(e, r, name, r->measures[i].value));
    }
    return scalar_write(e, r, "valid/loss", r->val_loss);
}

status obs_events_close(obs_events *e)
{
    return e == NULL ? ST_OK : obs_append_close(&e->file);
}
