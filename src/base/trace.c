// The trace ring: a bounded queue in which writers overwrite the oldest record and never wait.
//
// A writer takes a position by one fetch_add; position t goes to slot t mod capacity. Each slot has
// a sequence number, which is odd while a writer fills the slot:
//
//   2t + 1   record t is being written        2t + 2   record t is complete
//
// The reader reads the number, copies the slot, reads the number again, and keeps the copy only if
// both numbers show record t complete (a seqlock). The words are atomics, so a copy that raced with
// an overwrite is discarded garbage and not undefined behaviour. A writer that finds its slot still
// in use by a writer one ring behind gives up its record. The reader takes every record or counts
// it as dropped. Source: Boehm 2012, "Can seqlocks get along with programming language memory
// models?", doi:10.1145/2247684.2247688.
#include "base/trace.h"

#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_WORDS = sizeof(trace_record) / sizeof(uint64_t) };
_Static_assert(sizeof(trace_record) % sizeof(uint64_t) == 0, "records are copied by words");

// The words before the text: all that a span or a counter needs.
enum { HEAD_WORDS = offsetof(trace_record, text) / sizeof(uint64_t) };
_Static_assert(offsetof(trace_record, text) % sizeof(uint64_t) == 0, "the head is whole words");

typedef struct trace_slot {
    _Alignas(64) _Atomic uint64_t sequence; // number and head share a cache line
    _Atomic uint64_t words[RECORD_WORDS];
} trace_slot;
_Static_assert(HEAD_WORDS == 7, "number and head are one line of 64 bytes");

struct trace_ring {
    const host *h;
    int64_t capacity;                   // a power of two
    _Alignas(64) _Atomic uint64_t next; // position of the next writer
    _Alignas(64) _Atomic uint64_t read; // position of the next record for the reader
    _Atomic uint64_t dropped;           // positions that the reader passed without a record
    trace_slot slots[];
};

status trace_create(const host *h, int64_t capacity, trace_ring **out)
{
    int64_t slots = 2;
    while (slots < capacity && slots < INT64_C(1) << 24) slots *= 2;
    const size_t bytes = sizeof(trace_ring) + (size_t)slots * sizeof(trace_slot);
    trace_ring *t = aligned_alloc(64, bytes);
    if (t == NULL) {
        return fail(ST_NO_MEMORY, "trace ring: no memory for %lld records", (long long)slots);
    }
    memset(t, 0, bytes);
    t->h = h;
    t->capacity = slots;
    *out = t;
    return ST_OK;
}

void trace_destroy(trace_ring *t)
{
    free(t);
}

static uint64_t complete(uint64_t position)
{
    return 2 * position + 2;
}

// Acquires the slot for writing; false if another writer is in it or has overtaken this one.
static bool slot_acquire(trace_slot *slot, uint64_t position)
{
    uint64_t seen = atomic_load_explicit(&slot->sequence, memory_order_relaxed);
    do {
        if ((seen & 1) != 0 || seen > complete(position)) return false;
    } while (!atomic_compare_exchange_weak_explicit(&slot->sequence, &seen, 2 * position + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void trace_put(trace_ring *t, const trace_record *record)
{
    if (t == NULL) return;
    const uint64_t position = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
    trace_slot *slot = &t->slots[position & (uint64_t)(t->capacity - 1)];
    if (!slot_acquire(slot, position)) return;
    uint64_t words[RECORD_WORDS];
    memcpy(words, record, sizeof(words));
    // Only notes have a text; a span copies only its head. The reader never shows an old text
    // behind it.
    const int count = record->kind == TRACE_NOTE ? RECORD_WORDS : HEAD_WORDS;
    for (int i = 0; i < count; i++) {
        // Release: a reader that sees this word sees the odd number too.
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    }
    atomic_store_explicit(&slot->sequence, complete(position), memory_order_release);
}

void trace_note(trace_ring *t, log_level level, const char *format, ...)
{
    if (t == NULL) return;
    trace_record r = {.kind = TRACE_NOTE, .microbatch = -1, .layer = -1, .level = level};
    r.begin_ns = r.end_ns = t->h->api->monotonic_ns(t->h);
    r.name = "note";
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(r.text, sizeof(r.text), format, args);
    va_end(args);
    if (length >= TRACE_TEXT_BYTES) memcpy(r.text + TRACE_TEXT_BYTES - 4, "...", 4);
    trace_put(t, &r);
}

typedef enum slot_look { SLOT_TAKEN, SLOT_GONE, SLOT_NOT_YET } slot_look;

static slot_look slot_copy(const trace_slot *slot, uint64_t position, trace_record *out)
{
    uint64_t words[RECORD_WORDS];
    const uint64_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
    if (before < complete(position)) return SLOT_NOT_YET;
    if (before > complete(position)) return SLOT_GONE;
    for (int i = 0; i < RECORD_WORDS; i++) {
        // Acquire: the second read of the number comes after.
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
    }
    if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) != before) return SLOT_GONE;
    memcpy(out, words, sizeof(*out));
    if (out->kind != TRACE_NOTE) memset(out->text, 0, sizeof(out->text));
    return SLOT_TAKEN;
}

// A writer with a position needs some nanoseconds to write; a writer that gave up never will. The
// reader is in no hurry and tells them apart by waiting about a millisecond.
static slot_look slot_wait(const trace_slot *slot, uint64_t position, trace_record *out)
{
    slot_look look = slot_copy(slot, position, out);
    for (int i = 0; i < 1000 && look == SLOT_NOT_YET; i++) {
        sched_yield();
        look = slot_copy(slot, position, out);
    }
    return look;
}

int64_t trace_take(trace_ring *t, trace_record *records, int64_t capacity)
{
    if (t == NULL) return 0;
    const uint64_t size = (uint64_t)t->capacity;
    uint64_t read = atomic_load_explicit(&t->read, memory_order_relaxed), dropped = 0;
    int64_t taken = 0;
    while (taken < capacity) {
        const uint64_t next = atomic_load_explicit(&t->next, memory_order_acquire);
        if (read == next) break;
        if (next - read > size) { // the oldest are overwritten
            dropped += next - size - read;
            read = next - size;
        }
        const slot_look look = slot_wait(&t->slots[read & (size - 1)], read, &records[taken]);
        if (look == SLOT_TAKEN) {
            taken++;
        } else {
            dropped++;
        }
        read++;
    }
    atomic_store_explicit(&t->read, read, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->dropped, dropped, memory_order_relaxed);
    return taken;
}

// Includes overwritten records that the reader has not reached yet.
int64_t trace_dropped(const trace_ring *t)
{
    if (t == NULL) return 0;
    const uint64_t read = atomic_load_explicit(&t->read, memory_order_relaxed);
    const uint64_t next = atomic_load_explicit(&t->next, memory_order_relaxed);
    const uint64_t unread = next > read ? next - read : 0, size = (uint64_t)t->capacity;
    const uint64_t dropped = atomic_load_explicit(&t->dropped, memory_order_relaxed);
    return (int64_t)(dropped + (unread > size ? unread - size : 0));
}
