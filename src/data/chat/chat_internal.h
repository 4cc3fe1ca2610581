// A sample on its way from a line to ids. Private to this folder.
#ifndef DATA_CHAT_INTERNAL_H
#define DATA_CHAT_INTERNAL_H

#include "data/chat.h"
#include "data/jinja.h"

#ifdef __cplusplus
extern "C" {
#endif

struct data_chat {
    const host *h;
    data_chat_spec spec;
    arena *scratch;        // of one sample
    jinja_template *jinja; // NULL: none
    const char *name, *bos, *eos;
    bool is_given;     // the template was named, so texts of prompts go through it too
    data_format found; // of the first line, where the format is automatic
    json *previous;    // completion of the labelled line before
};

// The parts of a line. Either messages, or two texts.
typedef struct chat_record {
    const char *what;
    int64_t line;
    json *messages, *tools;
    int64_t first;               // message from which on the assistant is trained
    const char *prompt, *answer; // texts
    int64_t prompt_bytes, answer_bytes;
    json *owned[JSON_MEMBERS_MAX]; // values that hold the texts
    int64_t owned_count;
} chat_record;

status record_fails(const chat_record *r, const char *format, ...) PRINTF_LIKE(2, 3);
// Reads a line in the chat's format; the caller frees the record whatever the result.
NODISCARD status record_read(data_chat *c, const char *bytes, int64_t count, chat_record *out);
void record_free(chat_record *r);
// Makes the record a prompt and an answer, both texts or both lists of messages. Without a prompt
// the first `skip` messages of the answer are it.
NODISCARD status record_answer(data_chat *c, chat_record *r, const json *prompt, const json *answer,
                               int64_t skip);
// Parses the members with these keys, which belong to the record.
NODISCARD status record_members(chat_record *r, const char *bytes, int64_t count,
                                const char *const *keys, int64_t key_count, json **values);
// Encodes a record (chat.c).
NODISCARD status record_encode(data_chat *c, const chat_record *r, data_sample *out);
// Reads and encodes a line of a format with two documents (pairs.c).
NODISCARD status pair_encode(data_chat *c, const char *bytes, int64_t count, chat_record *r,
                             data_sample *out);

// Finds and parses the template.
NODISCARD status template_open(arena *a, data_chat *c);

// A rendered conversation in the scratch arena and its trained parts, in order.
typedef struct chat_text {
    text all;
    jinja_span *spans;
    int64_t span_count, span_capacity;
} chat_text;
NODISCARD status conversation_render(data_chat *c, const chat_record *r, chat_text *out);
NODISCARD status texts_render(data_chat *c, const chat_record *r, chat_text *out);

#ifdef __cplusplus
}
#endif
#endif
