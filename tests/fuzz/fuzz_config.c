// Fuzz entry: the configuration of a run from any bytes. What is accepted is checked, completed,
// printed, and must read back to equal values; what is refused must be the user's fault (exit 3),
// told in valid UTF-8. A line that begins with '=' at the start of the input is a command-line word.
#include "config/run_config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(status st)
{
    ASSERT(status_exit_code(st) == 3 || st == ST_USAGE);
    const char *message = error_last()->text;
    ASSERT(message[0] != '\0');
    ASSERT(text_is_utf8(message, (int64_t)strlen(message)));
}

static status must(status st)
{
    ASSERT(st == ST_OK);
    return st;
}

static status read_back(arena *a, const run_config *r, const config *c)
{
    text out = {.a = a};
    run_config again = {0};
    config *other;
    must(config_print_resolved(c, r, &out));
    // Paths are made with the folder; printed ones must not get it twice.
    must(config_parse(
        a, &run_config_table,
        &(const config_input){.yaml = out.bytes, .bytes = out.length, .name = "resolved"}, &again,
        &other));
    for (int64_t i = 0; i < run_config_table.count; i++) {
        ASSERT(option_equal(&run_config_table.rows[i], r, &again));
    }
    return ST_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a;
    if (arena_create("fuzz", INT64_C(1) << 28, &a) != ST_OK) return 0;
    const char *yaml = (const char *)data;
    char *word = NULL;
    int64_t word_count = 0;
    if (size > 0 && yaml[0] == '=') {
        const char *end = memchr(yaml, '\n', size);
        const size_t length = end == NULL ? size : (size_t)(end - yaml) + 1;
        must(arena_alloc(a, (int64_t)length + 1, (void **)&word));
        memcpy(word, yaml + 1, length - 1);
        word[strcspn(word, "\n")] = '\0';
        word_count = 1;
        yaml += length;
        size -= length;
    }
    run_config r = {0};
    config *c;
    const char *const words[] = {word};
    status st = config_parse(a, &run_config_table,
                             &(const config_input){.yaml = yaml,
                                                   .bytes = (int64_t)size,
                                                   .name = "fuzz.yaml",
                                                   .folder = "/folder",
                                                   .overrides = words,
                                                   .override_count = word_count},
                             &r, &c);
    if (st == ST_OK) {
        must(read_back(a, &r, c));
        st = run_config_check(&r, c, a);
        if (st == ST_OK) {
            run_config_complete(&r);
            must(read_back(a, &r, c));
        }
    }
    if (st != ST_OK) check_refusal(st);
    arena_destroy(a);
    return 0;
}
