// Prompts to draw completions of: JSON lines with a prompt each.
//
//   {"prompt": "2+3=", "answer": "5"}
//   {"prompt": [{"role": "user", "content": "..."}], "answer": 5}
//
// A list of messages goes through the chat template, with the header of an answer behind it; a text
// goes through it if the template was named (data/chat.h). `answer` is a text or a number, and may
// be missing; rewards read it. Other members are not looked at.
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
} data_prompt;

typedef struct data_prompts {
    const data_prompt *items;
    int64_t count, tokens;                // tokens: of all prompts
    hash128 id;                           // of all ids and answers
    int32_t ends[DATA_CHAT_ENDS_MAX + 1]; // tokens that end a completion
    int64_t end_count;
} data_prompts;

// Reads a file, plain or packed. A prompt has at least one token and at most `longest`. In `a`.
NODISCARD status data_prompts_read(const host *h, arena *a, const data_chat_spec *chat,
                                   const char *path, int64_t longest, data_prompts *out);

#ifdef __cplusplus
}
#endif
#endif
