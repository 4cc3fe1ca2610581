// Prompts to draw completions of: JSON lines with a prompt each.
//
//   {"prompt": "2+3=", "answer": "5"}
//   {"prompt": [{"role": "user", "content": "..."}], "answer": 5}
//
// A list of messages goes through the chat template, with the header of an answer behind it; a text
// goes through it if the template was named (data/chat.h). `answer` is a text or a number, and may
// be missing; rewards read it. "id" names the prompt. Other members are not looked at.
#ifndef DATA_PROMPTS_H
#define DATA_PROMPTS_H

#include "data/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_prompt {
    const int32_t *ids;
    int64_t count;
    const char *answer; // NULL: it has none
    const char *id;     // NULL: it has none
    int64_t line;
    bool is_hidden; // another prompt takes its place
} data_prompt;

typedef struct data_prompts {
    data_prompt *items;
    int64_t count, tokens; // tokens: of all prompts
    const char *path;
    hash128 id;                           // of all ids and answers
    int32_t ends[DATA_CHAT_ENDS_MAX + 1]; // tokens that end a completion
    int64_t end_count;
} data_prompts;

// Reads a file, plain or packed. A prompt has at least one token and at most `longest`. In `a`.
NODISCARD status data_prompts_read(const host *h, arena *a, const data_chat_spec *chat,
                                   const char *path, int64_t longest, data_prompts *out);
// The prompt at place `at` of a run with this seed: in a new order each epoch. The place of one
// that is left out goes to the next one of the file.
int64_t data_prompts_at(const data_prompts *p, uint64_t seed, int64_t at);
// Sets flags[i] to 1 for each prompt i of this name, FILE:LINE, with or without the folders, or its
// "id", else to 0.
NODISCARD status data_prompts_named(const data_prompts *p, const char *name, char *flags,
                                    int64_t *found);
// Leaves prompts out, in place of those before. *found: prompts. ST_NOT_FOUND: no entry names one.
NODISCARD status data_prompts_exclude(data_prompts *p, const char *const *entries, int64_t count,
                                      int64_t *found);

#ifdef __cplusplus
}
#endif
#endif
