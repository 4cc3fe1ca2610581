// The trace ring: the only way in which all floors report their actions.
//
// Each process has one ring. Any thread writes it without a lock, and `observe` reads it (log
// lines, Chrome traces, metrics). A full ring drops the oldest records and counts them; a writer
// never waits for the reader. Recording one span costs two clock reads and one 64-byte store.
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum trace_kind {
    TRACE_SPAN,    // an interval on a stream
    TRACE_COUNTER, // a value at one time
    TRACE_NOTE     // a sentence for the user or the log
} trace_kind;

typedef enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR } log_level;

enum { TRACE_TEXT_BYTES = 168 };

typedef struct trace_record {
    trace_kind kind;
    int32_t stream;              // spans only: 0 compute, 1.. communication, then copy, host
    int32_t step;                // 0 if none
    int32_t microbatch;          // -1 if none
    int32_t layer;               // -1 if none
    log_level level;             // notes only
    int64_t begin_ns, end_ns;    // monotonic
    double value;                // counters only
    const char *name;            // a string that lives for ever (an operation's name)
    char text[TRACE_TEXT_BYTES]; // notes only
} trace_record;

typedef struct trace_ring trace_ring;
NODISCARD status trace_create(const host *h, int64_t capacity, trace_ring **out);
void trace_destroy(trace_ring *t);
// A NULL ring is legal and records nothing.
void trace_put(trace_ring *t, const trace_record *record);
void trace_note(trace_ring *t, log_level level, const char *format, ...) PRINTF_LIKE(3, 4);
// Takes up to `capacity` oldest unread records. Returns how many. One reader.
int64_t trace_take(trace_ring *t, trace_record *records, int64_t capacity);
int64_t trace_dropped(const trace_ring *t);

#ifdef __cplusplus
}
#endif
#endif
