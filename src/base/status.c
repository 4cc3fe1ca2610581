// Status codes and the thread's error record.
//
// All facts about a code come from the one table in status.h. The record is the only per-thread
// state of the program: the first function that knows a cause writes it, and the code that prints
// or recovers reads it. A text that does not fit is cut at a whole UTF-8 character and never
// refused, because reporting an error must not fail.
#include "base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct status_row {
    const char *name, *code, *sentence;
    status_radius radius;
    int exit_code;
} status_row;

static const status_row rows[STATUS_COUNT] = {
#define STATUS_ROW(name, code, radius, exit_code, sentence) \
    [ST_##name] = {#name, code, sentence, RADIUS_##radius, exit_code},
    STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};

static _Thread_local error_record record;

// A status from the network may be any number; an unknown one counts as a bug.
static const status_row *row_of(status code)
{
    const unsigned i = (unsigned)code;
    return i < STATUS_COUNT ? &rows[i] : &rows[ST_INTERNAL];
}

const char *status_name(status code)
{
    return row_of(code)->name;
}

const char *status_code(status code)
{
    return row_of(code)->code;
}

const char *status_sentence(status code)
{
    return row_of(code)->sentence;
}

status_radius status_blast_radius(status code)
{
    return row_of(code)->radius;
}

int status_exit_code(status code)
{
    return row_of(code)->exit_code;
}

// The part after the last slash: a record never shows the build folder.
static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash == NULL ? file : slash + 1;
}

// The longest length up to `length` that cuts no UTF-8 character.
static size_t whole_characters(const char *text, size_t length)
{
    size_t at = length;
    for (int back = 0; back < 4 && at > 0; back++) {
        const unsigned char c = (unsigned char)text[at - 1];
        at--;
        if (c < 0x80) return length; // an ASCII character is whole
        if (c >= 0xC0) {             // a lead byte: complete only if all its bytes are there
            const size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
            return at + need <= length ? length : at;
        }
    }
    return length;
}

// Formats into a buffer of `size` bytes and returns the length kept.
static size_t format_into(char *buffer, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
static size_t format_into(char *buffer, size_t size, const char *format, va_list args)
{
    const int length = vsnprintf(buffer, size, format, args);
    if (length < 0) { // an encoding error inside the format
        buffer[0] = '\0';
        return 0;
    }
    if ((size_t)length < size) return (size_t)length;
    const size_t kept = whole_characters(buffer, size - 1);
    buffer[kept] = '\0';
    return kept;
}

status fail_at(const char *file, int line, status code, const char *format, ...)
{
    // Formats into a separate buffer: an argument may be the old record's own text.
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    const size_t length = format_into(text, sizeof(text), format, args);
    va_end(args);
    memcpy(record.text, text, length + 1);
    record.code = code == ST_OK ? ST_INTERNAL : code;
    record.file = base_name(file);
    record.line = line;
    return record.code;
}

void note(const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)format_into(text, sizeof(text), format, args);
    va_end(args);
    const size_t used = strlen(record.text), left = sizeof(record.text) - used;
    const char *word = strncmp(text, "while ", 6) == 0 ? "" : "while ";
    const int length = snprintf(record.text + used, left, "\n%s%s", word, text);
    if (length >= 0 && (size_t)length >= left) {
        record.text[whole_characters(record.text, sizeof(record.text) - 1)] = '\0';
    }
}

const error_record *error_last(void)
{
    return &record;
}

void error_clear(void)
{
    record = (error_record){.code = ST_OK};
}

void error_take(error_record *out)
{
    *out = record;
    error_clear();
}

status error_put(const error_record *from)
{
    record = *from;
    return record.code;
}

// The hook is the only thing here that threads share: a process panics once.
static _Atomic(panic_hook) hook_function;
static _Atomic(void *) hook_context;
static atomic_flag panicking = ATOMIC_FLAG_INIT;

void panic_hook_set(panic_hook hook, void *context)
{
    atomic_store(&hook_context, context);
    atomic_store(&hook_function, hook);
}

void panic_at(const char *file, int line, const char *text)
{
    char message[512];
    const int length =
        snprintf(message, sizeof(message), "panic: %s:%d: %s\n", base_name(file), line, text);
    if (length > 0) {
        const size_t bytes =
            (size_t)length < sizeof(message) ? (size_t)length : sizeof(message) - 1;
        // write() and not stdio: the code that tripped the assertion may hold stdio's locks.
        const ssize_t written = write(STDERR_FILENO, message, bytes);
        (void)written;
    }
    if (!atomic_flag_test_and_set(&panicking)) {
        const panic_hook hook = atomic_load(&hook_function);
        if (hook != NULL) hook(atomic_load(&hook_context));
    }
    abort();
}
