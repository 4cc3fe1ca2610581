// Prompts to continue: one of the command line, or a file of them.
#ifndef CLI_INFER_PROMPT_LIST_H
#define CLI_INFER_PROMPT_LIST_H

#include "cli/cli.h"

enum { PROMPT_BYTES_MAX = 1 << 28 }; // of a whole file

typedef struct prompt_text {
    const char *bytes;
    int64_t count, line; // line of the file, from 1; 0: of the command line
} prompt_text;

typedef struct prompt_list {
    prompt_text *items;
    int64_t count, capacity;
    const char *path; // of the file; NULL: of the command line
} prompt_list;

// One prompt of the command line; "-" is all of standard input.
NODISCARD status prompt_list_one(cli_context *cli, const char *given, prompt_list *out);
// A file ("-": standard input): a prompt a line, or JSON lines with a text "prompt" each, which the
// name's ending (.jsonl, .ndjson) or the first line tells. Empty lines are left out.
NODISCARD status prompt_list_file(cli_context *cli, const char *path, prompt_list *out);

#endif
