// Reads the whole input and splits it at line ends; a line is a plain prompt or JSON.
#include "cli/infer/prompt_list.h"

#include "base/format/json.h"
#include "base/text.h"
#include "data/reader.h"

#include <string.h>
#include <strings.h>

static status standard_input(cli_context *cli, char **bytes, int64_t *count)
{
    text all = {.a = cli->a};
    char buffer[4096];
    size_t got = 0;
    while ((got = fread(buffer, 1, sizeof(buffer), stdin)) > 0) {
        if (all.length > PROMPT_BYTES_MAX) {
            return fail(ST_DATA, "standard input has more than %d bytes", (int)PROMPT_BYTES_MAX);
        }
        TRY(text_add_bytes(&all, buffer, (int64_t)got));
    }
    if (ferror(stdin)) return fail(ST_IO, "standard input cannot be read");
    *bytes = all.bytes;
    *count = all.length;
    return ST_OK;
}

static status add(cli_context *cli, prompt_list *list, const char *bytes, int64_t count,
                  int64_t line)
{
    TRY(arena_grow(cli->a, (void **)&list->items, &list->capacity, list->count + 1,
                   (int64_t)sizeof(prompt_text)));
    list->items[list->count++] = (prompt_text){.bytes = bytes, .count = count, .line = line};
    return ST_OK;
}

status prompt_list_one(cli_context *cli, const char *given, prompt_list *out)
{
    char *bytes = NULL;
    int64_t count = (int64_t)strlen(given);
    const bool is_input = strcmp(given, "-") == 0;
    if (is_input) TRY(standard_input(cli, &bytes, &count));
    if (count == 0) {
        return fail(ST_USAGE, is_input ? "standard input is empty; give a text to continue"
                                       : "--prompt is empty; give a text to continue");
    }
    if (!is_input) return add(cli, out, given, count, 0);
    TRY(data_text_check("standard input", bytes, count));
    const int64_t mark = text_mark_bytes(bytes, count);
    return add(cli, out, bytes + mark, count - mark, 0);
}

static bool has_ending(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

static const char *const prompt_keys[] = {"prompt"};

// True if the first line is a JSON object with a text "prompt".
static bool is_json_line(const char *bytes, int64_t count)
{
    json *prompt = NULL;
    if (count == 0 || bytes[0] != '{' ||
        json_parse_members(bytes, count, "line", 1, prompt_keys, 1, &prompt) != ST_OK) {
        error_clear();
        return false;
    }
    const bool is = json_kind_of(prompt) == JSON_TEXT;
    json_free(prompt);
    return is;
}

static status add_json(cli_context *cli, prompt_list *list, const char *bytes, int64_t count,
                       int64_t line)
{
    json *prompt = NULL;
    TRY(json_parse_members(bytes, count, list->path, line, prompt_keys, 1, &prompt));
    const int64_t length = json_text_bytes(prompt);
    if (json_kind_of(prompt) != JSON_TEXT || length == 0) {
        json_free(prompt);
        return fail(ST_DATA,
                    "%s: line %lld: expected {\"prompt\": \"...\"} with a text that is not empty",
                    list->path, (long long)line);
    }
    char *copy = NULL;
    const status st = arena_alloc(cli->a, length, (void **)&copy);
    if (st == ST_OK) memcpy(copy, json_text(prompt, ""), (size_t)length);
    json_free(prompt);
    TRY(st);
    return add(cli, list, copy, length, line);
}

status prompt_list_file(cli_context *cli, const char *path, prompt_list *out)
{
    char *bytes = NULL;
    int64_t count = 0, line = 0;
    bool is_json =
        has_ending(path, ".jsonl") || has_ending(path, ".jsonlines") || has_ending(path, ".ndjson");
    bool is_first = true;
    const bool is_input = strcmp(path, "-") == 0;
    out->path = is_input ? "standard input" : path;
    if (is_input) {
        TRY(standard_input(cli, &bytes, &count));
    } else {
        TRY(host_read_all(cli->h, cli->a, path, PROMPT_BYTES_MAX, &bytes, &count));
    }
    TRY(data_text_check(out->path, bytes, count));
    for (int64_t at = text_mark_bytes(bytes, count); at < count;) {
        const char *end = memchr(bytes + at, '\n', (size_t)(count - at));
        int64_t length = (end != NULL ? end - bytes : count) - at;
        const char *begin = bytes + at;
        at += length + 1;
        line++;
        if (length > 0 && begin[length - 1] == '\r') length--;
        if (length == 0) continue;
        if (is_first && !is_json) is_json = is_json_line(begin, length);
        is_first = false;
        TRY(is_json ? add_json(cli, out, begin, length, line) : add(cli, out, begin, length, line));
    }
    if (out->count > 0) return ST_OK;
    return fail(ST_DATA, "%s holds no prompt; expected one a line, or JSON lines with \"prompt\"",
                out->path);
}
