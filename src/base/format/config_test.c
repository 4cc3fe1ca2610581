// Configurations: valid YAML and command lines, and that every error is reported at once with its
// place and without side effects.
#include "base/format/config.h"

#include "base/host.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct target {
    int64_t steps, seq;
    double lr;
    const char *name, *folder;
    int32_t mode;
    int64_t shards;
    option_list files, ramp;
    bool fast;
    double threshold;
    int32_t nan_mode;
} target;

#define AT(field) (int64_t) offsetof(target, field)
static const option rows[] = {
    {.key = "train.steps",
     .kind = OPTION_INT,
     .offset = AT(steps),
     .default_text = "100",
     .min = 1,
     .max = OPTION_NO_MAX,
     .help = "s"},
    {.key = "train.seq", .kind = OPTION_INT, .offset = AT(seq), .default_text = "64", .help = "s"},
    {.key = "train.fast",
     .kind = OPTION_BOOL,
     .offset = AT(fast),
     .default_text = "no",
     .help = "f"},
    {.key = "optimizer.lr",
     .kind = OPTION_REAL,
     .offset = AT(lr),
     .default_text = "3e-4",
     .help = "l",
     .also = "learning_rate"},
    {.key = "optimizer.name", .kind = OPTION_TEXT, .offset = AT(name), .default_text = "adamw"},
    {.key = "run.dir",
     .kind = OPTION_PATH,
     .offset = AT(folder),
     .default_text = "run",
     .help = "d"},
    {.key = "determinism.mode",
     .kind = OPTION_CHOICE,
     .offset = AT(mode),
     .default_text = "fast",
     .choices = "fast, strict",
     .help = "m"},
    {.key = "determinism.shards",
     .kind = OPTION_INT,
     .offset = AT(shards),
     .default_text = "8",
     .help = "s"},
    {.key = "data.train", .kind = OPTION_PATHS, .offset = AT(files), .help = "d"},
    {.key = "train.ramp", .kind = OPTION_RAMP, .offset = AT(ramp), .help = "r"},
    {.key = "policy.nan.mode",
     .kind = OPTION_CHOICE,
     .offset = AT(nan_mode),
     .default_text = "skip",
     .choices = "skip, stop",
     .help = "p"},
    {.key = "policy.nan.threshold",
     .kind = OPTION_REAL,
     .offset = AT(threshold),
     .default_text = "1",
     .help = "t"},
};
static const option_table table = {.title = "Test", .rows = rows, .count = COUNT_OF(rows)};

typedef struct fixture {
    arena *a;
    target t;
    config *c;
} fixture;

static status parse_bytes(fixture *f, const char *yaml, int64_t bytes, const char *const *words,
                          int64_t count)
{
    memset(f, 0, sizeof(*f));
    assert_int_equal(arena_create("test", 0, &f->a), ST_OK);
    error_clear();
    return config_parse(f->a, &table,
                        &(const config_input){.yaml = yaml,
                                              .bytes = bytes,
                                              .name = "run.yaml",
                                              .folder = "/here",
                                              .overrides = words,
                                              .override_count = count},
                        &f->t, &f->c);
}

static status parse(fixture *f, const char *yaml)
{
    return parse_bytes(f, yaml, (int64_t)strlen(yaml), NULL, 0);
}

static void must_parse(fixture *f, const char *yaml)
{
    if (parse(f, yaml) != ST_OK) fail_msg("%s", error_last()->text);
}

static void defaults_and_values(void **state)
{
    (void)state;
    fixture f;
    must_parse(&f, "# nothing\n");
    assert_int_equal(f.t.steps, 100);
    assert_string_equal(f.t.folder, "/here/run");
    assert_string_equal(config_origin(f.c, "train.steps"), "default");
    assert_string_equal(config_place(f.c, "train.steps"), "default of train.steps");
    arena_destroy(f.a);

    must_parse(&f, "train:\n  steps: 4e6\n  seq: 1_024\n  fast: yes\n  ramp: {0: 8, 10: 16}\n"
                   "optimizer: {lr: 3e-4, name: no}\n"
                   "data:\n  train:\n    - a.txt\n    - b,c.txt: 0.7\n"
                   "determinism: strict\npolicy:\n  nan: stop\n");
    assert_int_equal(f.t.steps, 4000000);
    assert_int_equal(f.t.seq, 1024);
    assert_true(f.t.fast);
    assert_true(f.t.lr == 3e-4);
    assert_string_equal(f.t.name, "no");
    assert_int_equal(f.t.mode, 1);
    assert_int_equal(f.t.nan_mode, 1);
    assert_int_equal(f.t.files.count, 2);
    assert_string_equal(f.t.files.items[0], "/here/a.txt");
    assert_string_equal(f.t.files.items[1], "/here/b,c.txt=0.7");
    assert_int_equal(f.t.ramp.count, 2);
    assert_string_equal(f.t.ramp.items[1], "10=16");
    assert_string_equal(config_origin(f.c, "train.steps"), "run.yaml:2:10");
    assert_string_equal(config_origin(f.c, "determinism.mode"), "run.yaml:11:14");
    assert_true(config_is_given(f.c, "train.seq"));
    assert_false(config_is_given(f.c, "run.dir"));
    arena_destroy(f.a);
}

static void nulls_mean_not_given(void **state)
{
    (void)state;
    fixture f;
    must_parse(&f, "train:\n  steps: ~\n  seq:\noptimizer: null\ndata: {train: NULL}\n");
    assert_int_equal(f.t.steps, 100);
    assert_false(config_is_given(f.c, "train.seq"));
    assert_int_equal(f.t.files.count, 0);
    arena_destroy(f.a);
    must_parse(&f, "optimizer: {name: \"null\"}\n");
    assert_string_equal(f.t.name, "null");
    arena_destroy(f.a);
    must_parse(&f, "null\n");
    arena_destroy(f.a);
    must_parse(&f, "\xEF\xBB\xBFtrain:\r\n  steps: 5\r\n");
    assert_int_equal(f.t.steps, 5);
    assert_string_equal(config_origin(f.c, "train.steps"), "run.yaml:2:10");
    arena_destroy(f.a);
    must_parse(&f, "");
    arena_destroy(f.a);
}

static void dots_and_headings_mix(void **state)
{
    (void)state;
    fixture f;
    must_parse(&f, "determinism: strict\ndeterminism.shards: 4\ntrain.steps: 3\ntrain: {seq: 2}\n"
                   "policy.nan: stop\n");
    assert_int_equal(f.t.mode, 1);
    assert_int_equal(f.t.shards, 4);
    assert_int_equal(f.t.steps, 3);
    assert_int_equal(f.t.seq, 2);
    assert_int_equal(f.t.nan_mode, 1);
    arena_destroy(f.a);
}

static void the_command_line_wins(void **state)
{
    (void)state;
    fixture f;
    static const char yaml[] = "train: {steps: 3, seq: 4}\ndeterminism: fast\n";
    static const char *const words[] = {
        "train.steps=1e3",        "determinism=strict",     "determinism.shards=4",
        "data.train=a.txt,/b=.5", "train.seq=null",         "train.ramp=0=4,9=8",
        "policy.nan=stop",        "optimizer.name=a=b c#d", "train.steps=2e3"};
    const status st = parse_bytes(&f, yaml, COUNT_OF(yaml) - 1, words, COUNT_OF(words));
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    assert_int_equal(f.t.steps, 2000);
    assert_int_equal(f.t.mode, 1);
    assert_int_equal(f.t.shards, 4);
    assert_int_equal(f.t.seq, 64); // removed
    assert_false(config_is_given(f.c, "train.seq"));
    assert_string_equal(f.t.files.items[0], "a.txt"); // relative to the current folder
    assert_string_equal(f.t.files.items[1], "/b=.5");
    assert_string_equal(f.t.ramp.items[1], "9=8");
    assert_string_equal(f.t.name, "a=b c#d");
    assert_string_equal(config_origin(f.c, "train.steps"), "command line");
    arena_destroy(f.a);
}

static void words_that_are_not_overrides_are_usage(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "train.steps", "--train.steps=3", "=3", "-x=1", "", "tr ain=3", ".a=1", "a\xFF=1"};
    fixture f;
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        // Usage errors come before all errors of the file.
        assert_int_equal(parse_bytes(&f, "bad: [", 6, &bad[i], 1), ST_USAGE);
        assert_non_null(strstr(error_last()->text, "is not key.path=value"));
        arena_destroy(f.a);
    }
    static const struct {
        const char *word;
        status st;
        const char *says;
    } wrong[] = {
        {"train.stps=3", ST_CONFIG_KEY, "did you mean \"train.steps\"?"},
        {"train=3", ST_CONFIG_TYPE, "heads keys such as train.steps"},
        {"train.steps=x", ST_CONFIG_TYPE, "a whole number"},
        {"train.steps=0", ST_CONFIG_RANGE, "at least 1"},
        {"optimizer.name=\xFF", ST_CONFIG_TYPE, "UTF-8"},
        {"determinism=stict", ST_CONFIG_RANGE, "did you mean \"strict\"?"},
    };
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_int_equal(parse_bytes(&f, "", 0, &wrong[i].word, 1), wrong[i].st);
        assert_int_equal(status_exit_code(wrong[i].st), 3);
        if (strstr(error_last()->text, wrong[i].says) == NULL) fail_msg("%s", error_last()->text);
        assert_ptr_equal(strstr(error_last()->text, "command line  error[C01"), error_last()->text);
        arena_destroy(f.a);
    }
}

typedef struct wrong_text {
    const char *yaml;
    status st;
    const char *says; // with its place
} wrong_text;

static const wrong_text wrong_texts[] = {
    {"trian:\n  steps: 3\n", ST_CONFIG_KEY,
     "run.yaml:2:3  error[C012] unknown key \"trian.steps\"; did you mean \"train.steps\"?"},
    {"optimiser:\n  learnig_rate: 3e-4\n", ST_CONFIG_KEY, "did you mean \"optimizer.lr\"?"},
    {"lr: 1\n", ST_CONFIG_KEY, "run.yaml:1:1  error[C012] unknown key \"lr\"; did you mean \"opt"},
    {"zzzzzzzz: 1\n", ST_CONFIG_KEY, "unknown key \"zzzzzzzz\"\n"},
    {"nothing: {}\n", ST_CONFIG_KEY, "unknown key \"nothing\""},
    {"train.steps.more: 1\n", ST_CONFIG_KEY, "train.steps.more"},
    {"train: {steps: {more: 1}}\n", ST_CONFIG_TYPE, "expected one value, found a map"},
    {"train:\n  steps: [1, 2]\n", ST_CONFIG_TYPE, "run.yaml:2:10  error[C011] train.steps"},
    {"train:\n  steps: 1.5\n", ST_CONFIG_TYPE, "run.yaml:2:10  error[C011] train.steps = \"1.5\""},
    {"train:\n  steps: 0\n", ST_CONFIG_RANGE, "expected at least 1"},
    {"train: 5\n", ST_CONFIG_TYPE, "run.yaml:1:8  error[C011] train has no value of its own"},
    {"train: [1]\n", ST_CONFIG_TYPE, "heads keys"},
    {"determinism: stritc\n", ST_CONFIG_RANGE, "did you mean \"strict\"?"},
    {"determinism: [strict]\n", ST_CONFIG_TYPE, "heads keys"},
    {"train:\n  steps: 1\n  steps: 2\n", ST_CONFIG_SYNTAX,
     "run.yaml:3:3  error[C010] key \"steps\""},
    {"train:\n  steps: 1\ntrain.steps: 2\n", ST_CONFIG_SYNTAX, "first at run.yaml:2:10"},
    {"determinism: strict\ndeterminism.mode: fast\n", ST_CONFIG_SYNTAX, "given twice"},
    {"train: &a\n  steps: 1\n", ST_CONFIG_SYNTAX, "run.yaml:1:8  error[C010] anchors"},
    {"train: {steps: &x 1, seq: *x}\n", ST_CONFIG_SYNTAX, "aliases (*name)"},
    {"train:\n  <<: {steps: 1}\n", ST_CONFIG_SYNTAX, "run.yaml:2:3  error[C010] merge keys"},
    {"train:\n  steps: !!int 3\n", ST_CONFIG_SYNTAX, "tags (!name)"},
    {"train: !mine {steps: 3}\n", ST_CONFIG_SYNTAX, "tags (!name)"},
    {"? [a, b]\n: 3\n", ST_CONFIG_SYNTAX, "a key must be a word"},
    {"---\ntrain: {steps: 3}\n---\ntrain: {steps: 4}\n", ST_CONFIG_SYNTAX,
     "run.yaml:3:1  error[C010] a second document"},
    {"train:\n\tsteps: 3\n", ST_CONFIG_SYNTAX, "tab"},
    {"train: {steps: 3\n", ST_CONFIG_SYNTAX, "run.yaml:2:1"},
    {"train:\n  steps: 3\n seq: 4\n", ST_CONFIG_SYNTAX, "run.yaml:3:2"},
    {"train: steps: 3\n", ST_CONFIG_SYNTAX, "mapping values are not allowed"},
    {"optimizer: {name: \"open}\n", ST_CONFIG_SYNTAX, "error[C010]"},
    {"optimizer: {name: \"a\\0b\"}\n", ST_CONFIG_SYNTAX, "NUL"},
    {"optimizer: {name: \"\\q\"}\n", ST_CONFIG_SYNTAX, "unknown escape"},
    {"- a\n- b\n", ST_CONFIG_SYNTAX, "run.yaml:1:1  error[C010] expected keys with values"},
    {"just words\n", ST_CONFIG_SYNTAX, "expected keys with values"},
    {"[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]\n", ST_CONFIG_SYNTAX, "nested too deeply"},
    {"optimizer: {name: \xFF}\n", ST_CONFIG_SYNTAX,
     "run.yaml:1:19  error[C010] the text here is not"},
    {"a: \xC3\xA9\nb: \xC3\n", ST_CONFIG_SYNTAX, "run.yaml:2:4  error[C010] the text here is not"},
    {"optimizer: {name: \x01}\n", ST_CONFIG_SYNTAX, "control characters are not allowed"},
    {"%FOO\n", ST_CONFIG_SYNTAX, "error[C010]"},
    {"data: {train: [[a]]}\n", ST_CONFIG_TYPE, "data.train"},
    {"data: {train: [a, ~]}\n", ST_CONFIG_TYPE, "data.train"},
    {"data: {train: {a: [1]}}\n", ST_CONFIG_TYPE, "data.train"},
    {"data: {train: {a: -1}}\n", ST_CONFIG_RANGE, "weight above 0"},
    {"train: {ramp: {5: 8, 5: 9}}\n", ST_CONFIG_SYNTAX, "given twice"},
    {"train: {ramp: {5: 8, 3: 9}}\n", ST_CONFIG_TYPE, "ascending"},
    {"train: {fast: 1}\n", ST_CONFIG_TYPE, "true or false"},
    {"optimizer: {lr: .inf}\n", ST_CONFIG_TYPE, "a number"},
    {"optimizer: {lr: 1e999}\n", ST_CONFIG_TYPE, "a number"},
    {"optimizer: {lr: \"\"}\n", ST_CONFIG_TYPE, "a number"},
    {"\"\": 3\n", ST_CONFIG_KEY, "unknown key \"\""},
    {"train..steps: 3\n", ST_CONFIG_KEY, "train..steps"},
    {"\"train\\nsteps\": 3\n", ST_CONFIG_KEY, "unknown key \"train?steps\""},
    {"\xFE\xFF\x00t", ST_CONFIG_SYNTAX, "error[C010]"},
};

static void wrong_texts_are_told_with_their_place(void **state)
{
    (void)state;
    fixture f;
    for (int64_t i = 0; i < COUNT_OF(wrong_texts); i++) {
        const wrong_text *w = &wrong_texts[i];
        const status st = parse(&f, w->yaml);
        if (st != w->st || strstr(error_last()->text, w->says) == NULL) {
            fail_msg("%s gave %d and\n%s\nexpected %d and %s", w->yaml, (int)st, error_last()->text,
                     (int)w->st, w->says);
        }
        assert_int_equal(strncmp(error_last()->text, "run.yaml:", 9), 0);
        arena_destroy(f.a);
    }
}

// "key0: 0", "key1: 1", ... up to `most` of them or nearly `bytes`. Returns the length.
static int64_t write_keys(char *yaml, int64_t bytes, int most)
{
    int64_t at = 0;
    for (int i = 0; i < most && at < bytes - 32; i++) {
        at += snprintf(yaml + at, 32, "key%d: %d\n", i, i);
    }
    return at;
}

static void nul_and_size_are_refused(void **state)
{
    (void)state;
    fixture f;
    assert_int_equal(parse_bytes(&f, "train:\n  st\0eps: 3\n", 18, NULL, 0), ST_CONFIG_SYNTAX);
    assert_non_null(strstr(error_last()->text, "run.yaml:2:5  error[C010] a NUL byte"));
    arena_destroy(f.a);
    const int64_t bytes = (1 << 20) + 1;
    char *large = malloc((size_t)bytes);
    assert_non_null(large);
    memset(large, '#', (size_t)bytes);
    assert_int_equal(parse_bytes(&f, large, bytes, NULL, 0), ST_CONFIG_SYNTAX);
    arena_destroy(f.a);
    assert_int_equal(parse_bytes(&f, large, bytes - 1, NULL, 0), ST_OK);
    arena_destroy(f.a);
    // Very many wrong keys: reported up to a limit, counted, and quickly.
    int64_t at = write_keys(large, bytes, INT32_MAX);
    assert_int_equal(parse_bytes(&f, large, at, NULL, 0), ST_CONFIG_SYNTAX); // too many in one map
    arena_destroy(f.a);
    at = write_keys(large, bytes, 4000);
    assert_int_equal(parse_bytes(&f, large, at, NULL, 0), ST_CONFIG_KEY);
    assert_non_null(strstr(error_last()->text, "4000 errors, nothing was started"));
    assert_non_null(strstr(error_last()->text, " more\n"));
    arena_destroy(f.a);
    free(large);
}

static void all_errors_come_at_once(void **state)
{
    (void)state;
    fixture f;
    static const char *const words[] = {"optimizer.lr=fast"};
    static const char yaml[] = "train:\n  stps: 3\n  seq: many\noptimizer: {name: &a x}\n";
    assert_int_equal(parse_bytes(&f, yaml, COUNT_OF(yaml) - 1, words, 1), ST_CONFIG_SYNTAX);
    assert_string_equal(
        error_last()->text,
        "run.yaml:4:19  error[C010] anchors (&name) are not used here; write the value where it is "
        "read\n"
        "    4 | optimizer: {name: &a x}\n"
        "      |                   ^^^^\n"
        "run.yaml:2:3  error[C012] unknown key \"train.stps\"; did you mean \"train.steps\"?\n"
        "    2 |   stps: 3\n"
        "      |   ^^^^\n"
        "run.yaml:3:8  error[C011] train.seq = \"many\": expected a whole number such as 500, 2k, "
        "1.5M, 1B or 1e9\n"
        "    3 |   seq: many\n"
        "      |        ^^^^\n"
        "command line  error[C011] optimizer.lr = \"fast\": expected a number\n"
        "4 errors, nothing was started");
    arena_destroy(f.a);
}

static void what_is_resolved_loads_again(void **state)
{
    (void)state;
    fixture f, again;
    static const char *const words[] = {"determinism=strict", "run.dir=/x/y z"};
    static const char yaml[] = "data: {train: [\"a, b\": 2, c]}\ntrain: {ramp: {0: 3}, fast: on}\n"
                               "optimizer: {name: \"# no\\n\", lr: 0.1}\n";
    if (parse_bytes(&f, yaml, COUNT_OF(yaml) - 1, words, 2) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    text out = {.a = f.a};
    assert_int_equal(config_print_resolved(f.c, &f.t, &out), ST_OK);
    assert_non_null(strstr(out.bytes, "  mode: strict  # command line\n"));
    assert_non_null(strstr(out.bytes, "  steps: 100  # default\n"));
    assert_non_null(strstr(out.bytes, "  fast: true  # run.yaml:2:29\n"));
    if (parse_bytes(&again, out.bytes, out.length, NULL, 0) != ST_OK) {
        fail_msg("%s\n%s", error_last()->text, out.bytes);
    }
    for (int64_t i = 0; i < table.count; i++) {
        if (!option_equal(&rows[i], &f.t, &again.t)) fail_msg("%s\n%s", rows[i].key, out.bytes);
    }
    arena_destroy(again.a);
    arena_destroy(f.a);
}

static void required_keys_are_asked_for(void **state)
{
    (void)state;
    static const option needs[] = {
        {.key = "a.n", .kind = OPTION_INT, .offset = 0, .help = "how many"},
        {.key = "a.m", .kind = OPTION_INT, .offset = 8, .default_text = "1", .help = "h"}};
    static const option_table two = {.rows = needs, .count = 2};
    arena *a;
    int64_t values[2];
    config *c;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(
        config_parse(a, &two,
                     &(const config_input){.yaml = "a: {m: 2}\n", .bytes = 10, .name = "f"}, values,
                     &c),
        ST_CONFIG_KEY);
    assert_non_null(strstr(error_last()->text, "key \"a.n\" must be given: how many"));
    arena_destroy(a);
}

static void later_complaints_have_places_too(void **state)
{
    (void)state;
    fixture f;
    config_complaints *l;
    must_parse(&f, "train:\n  steps: 3\n");
    assert_int_equal(config_complaints_begin(f.c, f.a, &l), ST_OK);
    assert_int_equal(config_complaints_end(l), ST_OK);
    config_complain(l, "train.steps", ST_CONFIG_CONFLICT, "train.steps = %d is odd", 3);
    config_complain(l, "train.seq", ST_UNSUPPORTED, "too");
    assert_int_equal(config_complaints_end(l), ST_CONFIG_CONFLICT);
    assert_string_equal(error_last()->text, "run.yaml:2:10  error[C031] train.steps = 3 is odd\n"
                                            "    2 |   steps: 3\n"
                                            "      |          ^\n"
                                            "default of train.seq  error[C050] too\n"
                                            "2 errors, nothing was started");
    arena_destroy(f.a);
}

static void files_are_read_with_absolute_folders(void **state)
{
    (void)state;
    char folder[64];
    char path[128], expected[128];
    fixture f = {0};
    assert_non_null(test_scratch(folder));
    (void)snprintf(path, sizeof(path), "%s/run.yaml", folder);
    assert_int_equal(host_write_all(host_real(), path, "data: {train: t.txt}\n", 21), ST_OK);
    assert_int_equal(arena_create("test", 0, &f.a), ST_OK);
    const char *word = "run.dir=sub";
    if (config_load(host_real(), f.a, &table, path, &word, 1, &f.t, &f.c) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    (void)snprintf(expected, sizeof(expected), "%s/t.txt", folder);
    assert_string_equal(f.t.files.items[0], expected);
    assert_true(f.t.folder[0] == '/'); // relative to the current folder
    assert_string_equal(path_base_name(f.t.folder), "sub");
    assert_int_equal(config_load(host_real(), f.a, &table, path, NULL, 0, &f.t, &f.c), ST_OK);
    (void)snprintf(expected, sizeof(expected), "%s/run", folder);
    assert_string_equal(f.t.folder, expected);
    assert_int_equal(config_load(host_real(), f.a, &table, "/nowhere/x.yaml", NULL, 0, &f.t, &f.c),
                     ST_NOT_FOUND);
    assert_int_equal(config_load(host_real(), f.a, &table, NULL, &word, 1, &f.t, &f.c), ST_OK);
    test_scratch_remove(folder);
    arena_destroy(f.a);
}

// On the command line, lists and maps may be written as in YAML; an empty value is an error.
static void the_command_line_takes_lists_of_yaml(void **state)
{
    (void)state;
    static const struct {
        const char *word, *first, *second;
    } good[] = {
        {"data.train=[a.txt, b.txt]", "a.txt", "b.txt"},
        {"data.train={a.txt: 0.7, 'b c': 0.3}", "a.txt=0.7", "b c=0.3"},
        {"data.train=[{a: 2}, b]", "a=2", "b"},
        {"data.train=[ab].[tx],b", "[ab].[tx]", "b"},
        {"data.train=a=b/c.txt,b", "a=b/c.txt", "b"},
    };
    fixture f;
    for (int64_t i = 0; i < COUNT_OF(good); i++) {
        if (parse_bytes(&f, "", 0, &good[i].word, 1) != ST_OK) fail_msg("%s", error_last()->text);
        assert_int_equal(f.t.files.count, 2);
        assert_string_equal(f.t.files.items[0], good[i].first);
        assert_string_equal(f.t.files.items[1], good[i].second);
        arena_destroy(f.a);
    }
    static const char *const empty[] = {"train.seq="};
    assert_int_equal(parse_bytes(&f, "", 0, empty, 1), ST_CONFIG_TYPE);
    assert_non_null(strstr(error_last()->text, "train.seq: the value is empty"));
    arena_destroy(f.a);
}

// "~" begins the home folder in a path of a file or of the command line, and nowhere else.
static void home_is_expanded(void **state)
{
    (void)state;
    host h = *host_real();
    h.home = "/users/an a";
    static const char *const words[] = {"data.train=~/a,b~/c, ~", "optimizer.name=~/x"};
    static const char *const wrong[] = {"data.train=~bob/a"};
    static const char *const variable[] = {"data.train=a,/x/$USER/b"};
    arena *a;
    target t;
    config *c;
    assert_int_equal(arena_create("home", 0, &a), ST_OK);
    assert_int_equal(config_load(&h, a, &table, NULL, words, COUNT_OF(words), &t, &c), ST_OK);
    assert_string_equal(t.files.items[0], "/users/an a/a");
    assert_non_null(strstr(t.files.items[1], "/b~/c"));
    assert_string_equal(t.files.items[2], "/users/an a");
    assert_string_equal(t.name, "~/x");
    assert_int_equal(config_load(&h, a, &table, NULL, wrong, 1, &t, &c), ST_CONFIG_TYPE);
    assert_non_null(strstr(error_last()->text, "only ~ and ~/"));
    assert_int_equal(config_load(&h, a, &table, NULL, variable, 1, &t, &c), ST_CONFIG_TYPE);
    assert_non_null(strstr(error_last()->text, "($USER/b)"));
    h.home = NULL;
    assert_int_equal(config_load(&h, a, &table, NULL, words, 1, &t, &c), ST_CONFIG_TYPE);
    assert_non_null(strstr(error_last()->text, "HOME is not set"));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_command_line_takes_lists_of_yaml),
        cmocka_unit_test(home_is_expanded),
        cmocka_unit_test(defaults_and_values),
        cmocka_unit_test(nulls_mean_not_given),
        cmocka_unit_test(dots_and_headings_mix),
        cmocka_unit_test(the_command_line_wins),
        cmocka_unit_test(words_that_are_not_overrides_are_usage),
        cmocka_unit_test(wrong_texts_are_told_with_their_place),
        cmocka_unit_test(nul_and_size_are_refused),
        cmocka_unit_test(all_errors_come_at_once),
        cmocka_unit_test(what_is_resolved_loads_again),
        cmocka_unit_test(required_keys_are_asked_for),
        cmocka_unit_test(later_complaints_have_places_too),
        cmocka_unit_test(files_are_read_with_absolute_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
