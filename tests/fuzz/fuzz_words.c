// Fuzz entry: small texts that people and files give. The first byte says what the rest is:
//   a command line (words end with a newline), the value of an option, a number,
//   a model's preset, or the metrics.jsonl that a run continues.
#include "cli/cli.h"
#include "config/run_config.h"
#include "memory_host.h"
#include "model/preset.h"
#include "observe/observe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(status st)
{
    ASSERT(st == ST_OK);
}

static void check_usage(status st)
{
    const int code = status_exit_code(st);
    ASSERT(code == 2 || code == 3);
    ASSERT(error_last()->text[0] != '\0');
}

// Every command must take these words, or refuse them as a mistake of the user.
static void command_line(arena *a, char *words)
{
    enum { MOST = 64 };
    const char *arguments[MOST];
    int64_t count = 0;
    for (char *at = words; *at != '\0' && count < MOST;) {
        arguments[count++] = at;
        at += strcspn(at, "\n");
        if (*at == '\n') *at++ = '\0';
    }
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        cli_call call;
        bool wants_help = false;
        const cli_command *c = cli_commands[i];
        const status st = cli_parse(a, c, arguments, count, &call, &wants_help);
        if (st != ST_OK) {
            check_usage(st);
        } else if (!wants_help) {
            ASSERT(call.operand_count >= c->operand_min);
            ASSERT(c->operand_max < 0 || call.operand_count <= c->operand_max);
            ASSERT(call.operand_count + call.key_count <= count);
        }
    }
    if (count > 0) (void)cli_command_nearest(arguments[0]);
}

// Of each option; what is taken can be printed (fuzz_config reads it back).
static void option_values(arena *a, const char *value)
{
    run_config *one = NULL;
    must(arena_new(a, 1, &one));
    must(option_set_defaults(&run_config_table, a, one));
    for (int64_t i = 0; i < run_config_table.count; i++) {
        const option *o = &run_config_table.rows[i];
        const status st = option_set(o, a, one, value, "here", "/folder");
        if (st != ST_OK) {
            check_usage(st);
            continue;
        }
        text printed = {.a = a};
        must(option_print(o, one, &printed));
    }
}

static void numbers(const char *value)
{
    int64_t whole = 0;
    double real = 0.0;
    char shown[32];
    if (text_parse_i64(value, &whole)) (void)text_count_human((double)whole, shown);
    if (text_parse_f64(value, &real)) {
        ASSERT(real == real && real - real == 0.0);
        (void)text_duration_human(real, shown);
    }
    static const char *const near[] = {"train.steps", "train.seq", "data.train", ""};
    (void)text_nearest(value, near, COUNT_OF(near));
}

static void preset(arena *a, const char *yaml, int64_t count)
{
    decoder_spec spec;
    model_preset_facts facts;
    const status st = model_preset_parse(a, yaml, count, "fuzz.yaml", &spec, &facts);
    if (st != ST_OK) check_usage(st);
}

// What is kept are whole lines of the steps that count, from the beginning of what was there.
static void metrics(arena *a, const char *bytes, int64_t count, int64_t finished)
{
    memory_files files = {0};
    files.files[0] = (struct file){"metrics.jsonl", bytes, count, NULL};
    const host h = {.api = &memory_api, .state = &files};
    obs_metrics *m = NULL;
    const obs_metrics_config c = {
        .path = "metrics.jsonl", .finished_steps = finished, .limit_bytes = 0};
    must(obs_metrics_open(&h, a, &c, &m));
    const struct file *f = &files.files[0];
    ASSERT(f->count <= count && (f->count == 0 || memcmp(f->bytes, bytes, (size_t)f->count) == 0));
    ASSERT(f->count == 0 || ((const char *)f->bytes)[f->count - 1] == '\n');
    const obs_record r = {.step = finished + 1, .steps = 9};
    must(obs_metrics_add(m, &r));
    must(obs_metrics_close(m));
    memory_free(&files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    char *words = NULL;
    if (size < 1 || arena_create("fuzz", 64 << 20, &a) != ST_OK) return 0;
    const int64_t count = (int64_t)size - 1;
    must(arena_alloc(a, count + 1, (void **)&words));
    memcpy(words, data + 1, (size_t)count);
    switch (data[0]) {
    case 'a':
        command_line(a, words);
        break;
    case 'o':
        option_values(a, words);
        break;
    case 'n':
        numbers(words);
        break;
    case 'p':
        preset(a, words, count);
        break;
    case 'm':
        if (count > 0) metrics(a, words + 1, count - 1, (uint8_t)words[0]);
        break;
    default:
        break;
    }
    arena_destroy(a);
    return 0;
}
