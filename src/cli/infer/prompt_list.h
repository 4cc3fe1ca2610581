// Prompts to continue: one from the command line, or a file of them.
#ifndef CLI_INFER_PROMPT_LIST_H
#define CLI_INFER_PROMPT_LIST_H

#include "cli/cli.h"

enum { PROMPT_BYTES_MAX = 1 << 28 }; // limit of a whole file

typedef struct prompt_text {
    const char *bytes;
    int64_t count, line; // line: line of the file, from 1; 0: from the command line
} prompt_text;

typedef struct prompt_list {
    prompt_text *items;
    int64_t count, capacity;
    const char *path; // path of the file; NULL: command line
} prompt_list;

// One prompt from the command line; "-" reads all of standard input.
NODISCARD status prompt_list_one(cli_context *cli, const char *given, prompt_list *out);
// A file ("-": standard input) with a prompt per line, or JSON lines with a text "prompt" each,
// recognized by the name's ending (.jsonl, .ndjson) or the first line. Empty lines are skipped.
NODISCARD status prompt_list_file(cli_context *cli, const char *path, prompt_list *out);

#endif
