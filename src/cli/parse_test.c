// Arguments of commands: all valid forms, and an error for each mistake.
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct sample_flags {
    int64_t count;
    double share;
    const char *name;
    int32_t mode;
    bool loud;
} sample_flags;

#define AT(field) (int64_t) offsetof(sample_flags, field)
static const option rows[] = {
    {.key = "count",
     .kind = OPTION_INT,
     .offset = AT(count),
     .default_text = "7",
     .min = 1,
     .max = 100},
    {.key = "share", .kind = OPTION_REAL, .offset = AT(share), .default_text = "0.5"},
    {.key = "name", .kind = OPTION_TEXT, .offset = AT(name), .also = "title"},
    {.key = "mode",
     .kind = OPTION_CHOICE,
     .offset = AT(mode),
     .default_text = "slow",
     .choices = "slow, fast"},
    {.key = "loud", .kind = OPTION_BOOL, .offset = AT(loud), .default_text = "false"},
};
static const option_table flags = {.rows = rows, .count = COUNT_OF(rows)};
static const cli_command sample = {.name = "sample",
                                   .synopsis = "THING [OTHER]",
                                   .flags = &flags,
                                   .flags_bytes = sizeof(sample_flags),
                                   .operand_min = 1,
                                   .operand_max = 2,
                                   .takes_keys = true,
                                   .shorts = "n=name c=count"};

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("test", 0, &a) == ST_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

enum { MAX_WORDS = 16 };

// Blanks separate the words.
static status parse(const cli_command *command, const char *line, cli_call *call, bool *help)
{
    char *copy = NULL;
    const char *words[MAX_WORDS];
    int64_t count = 0;
    assert_int_equal(arena_strdup(a, line, &copy), ST_OK);
    char *rest = NULL;
    for (char *w = strtok_r(copy, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        words[count++] = w;
    }
    return cli_parse(a, command, words, count, call, help);
}

static const sample_flags *parsed(const char *line, cli_call *call)
{
    bool help = true;
    const status st = parse(&sample, line, call, &help);
    if (st != ST_OK) printf("%s: %s\n", line, error_last()->text);
    assert_int_equal(st, ST_OK);
    assert_false(help);
    return call->flags;
}

static void refused(const char *line, const char *part)
{
    cli_call call;
    bool help;
    assert_int_equal(parse(&sample, line, &call, &help), ST_USAGE);
    if (strstr(error_last()->text, part) == NULL) {
        printf("%s: \"%s\" says nothing of \"%s\"\n", line, error_last()->text, part);
        fail();
    }
}

static void test_defaults_stand(void **state)
{
    (void)state;
    cli_call call;
    const sample_flags *f = parsed("thing", &call);
    assert_int_equal(f->count, 7);
    assert_true(f->share == 0.5);
    assert_null(f->name);
    assert_int_equal(f->mode, 0);
    assert_false(f->loud);
    assert_int_equal(call.operand_count, 1);
    assert_string_equal(call.operands[0], "thing");
}

static void test_every_form_of_a_flag(void **state)
{
    (void)state;
    cli_call call;
    const sample_flags *f = parsed("--count 3 a --share=0.25 -n me --mode fast --loud b", &call);
    assert_int_equal(f->count, 3);
    assert_true(f->share == 0.25);
    assert_string_equal(f->name, "me");
    assert_int_equal(f->mode, 1);
    assert_true(f->loud);
    assert_int_equal(call.operand_count, 2);
    f = parsed("a -c 9 --loud=false", &call);
    assert_int_equal(f->count, 9);
    assert_false(f->loud);
    // A value may begin with a dash, and a later flag wins.
    f = parsed("a --name -x --name --loud", &call);
    assert_string_equal(f->name, "--loud");
    assert_false(f->loud);
}

static void test_keys_and_operands_are_told_apart(void **state)
{
    (void)state;
    cli_call call;
    (void)parsed("run train.steps=3 determinism=strict run.dir=/a=b", &call);
    assert_int_equal(call.operand_count, 1);
    assert_int_equal(call.key_count, 3);
    assert_string_equal(call.keys[2], "run.dir=/a=b");
    (void)parsed("-- --count a=b", &call);
    assert_int_equal(call.operand_count, 2);
    assert_string_equal(call.operands[0], "--count");
    assert_int_equal(call.key_count, 0);
    (void)parsed("./a=b -", &call); // a path, and the name of standard input
    assert_int_equal(call.operand_count, 2);
    cli_command keyless = sample;
    keyless.takes_keys = false;
    bool help;
    assert_int_equal(parse(&keyless, "a=b", &call, &help), ST_OK);
    assert_int_equal(call.operand_count, 1);
}

static void test_help_ends_parsing(void **state)
{
    (void)state;
    static const char *const lines[] = {"--help", "-h", "a b --help --nonsense", "a -h"};
    for (int64_t i = 0; i < COUNT_OF(lines); i++) {
        cli_call call;
        bool help = false;
        assert_int_equal(parse(&sample, lines[i], &call, &help), ST_OK);
        assert_true(help);
    }
}

static void test_mistakes_are_told_with_the_next_right_word(void **state)
{
    (void)state;
    refused("", "usage: trireme sample THING");
    refused("a b c", "\"c\"");
    refused("a --cuont 3", "did you mean --count?");
    refused("a --title x", "did you mean --name?");
    refused("a --steps 3", "did you mean train.steps=VALUE?");
    refused("a --train.steps=3", "train.steps=3");
    refused("a --train.steps 3", "train.steps=VALUE");
    refused("a --set train.steps=3", "key.path=value");
    refused("a --zzzzzzzz", "trireme help sample");
    refused("a -x", "no flag -x");
    refused("a --count", "needs a value");
    refused("a --count 0", "--count = \"0\"");
    refused("a --count many", "--count");
    refused("a --mode quick", "slow");
    refused("a --loud=maybe", "--loud");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults_stand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_form_of_a_flag, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_and_operands_are_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_help_ends_parsing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mistakes_are_told_with_the_next_right_word, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
