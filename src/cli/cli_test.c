// The program from argv to exit code: help of all commands, one error message, write errors
// detected.
#include "cli/cli.h"

#include "cli/embedded.h"
#include "cli/help/help_codes.h"
#include "config/run_config.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { OUTPUT_BYTES = 1 << 20, MAX_WORDS = 16 };
static char output[OUTPUT_BYTES], errors[OUTPUT_BYTES];

static void taken(FILE *f, char buffer[OUTPUT_BYTES])
{
    rewind(f);
    buffer[fread(buffer, 1, OUTPUT_BYTES - 1, f)] = '\0';
    (void)fclose(f);
}

// Runs the line; `output` and `errors` receive what the program writes.
static int run(const char *line)
{
    char copy[1024], *words[MAX_WORDS + 1] = {NULL}, *rest = NULL;
    int count = 0;
    snprintf(copy, sizeof(copy), "trireme %s", line);
    for (char *w = strtok_r(copy, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        words[count++] = w;
    }
    FILE *out = tmpfile(), *err = tmpfile();
    cli_context cli;
    assert_non_null(out);
    assert_non_null(err);
    assert_int_equal(cli_context_init(&cli, out, err), ST_OK);
    assert_false(cli.live); // a file is no terminal
    assert_false(cli.colour);
    const int code = cli_main(&cli, count, words);
    cli_context_deinit(&cli);
    taken(out, output);
    taken(err, errors);
    return code;
}

static void test_overview_names_every_command(void **state)
{
    (void)state;
    static const char *const lines[] = {"", "--help", "-h", "help"};
    for (int64_t i = 0; i < COUNT_OF(lines); i++) {
        assert_int_equal(run(lines[i]), 0);
        assert_string_equal(errors, "");
        for (int64_t c = 0; cli_commands[c] != NULL; c++) {
            assert_non_null(strstr(output, cli_commands[c]->name));
            assert_non_null(strstr(output, cli_commands[c]->summary));
        }
    }
    assert_int_equal(run("--version"), 0);
    assert_non_null(strstr(output, TRIREME_VERSION));
}

static void test_every_command_has_help(void **state)
{
    (void)state;
    for (int64_t c = 0; cli_commands[c] != NULL; c++) {
        const cli_command *command = cli_commands[c];
        char line[64];
        assert_ptr_equal(cli_command_find(command->name), command);
        snprintf(line, sizeof(line), "%s --help", command->name);
        assert_int_equal(run(line), 0);
        assert_non_null(strstr(output, command->synopsis));
        for (int64_t i = 0; command->flags != NULL && i < command->flags->count; i++) {
            assert_non_null(strstr(output, command->flags->rows[i].key));
        }
        snprintf(line, sizeof(line), "help %s", command->name);
        assert_int_equal(run(line), 0);
        assert_non_null(strstr(output, command->synopsis));
    }
}

static void test_every_code_is_explained(void **state)
{
    (void)state;
    for (int i = ST_OK + 1; i < STATUS_COUNT; i++) {
        char line[64];
        assert_true(strlen(cli_code_text((status)i)) > 20);
        snprintf(line, sizeof(line), "help %s", status_code((status)i));
        assert_int_equal(run(line), 0);
        assert_non_null(strstr(output, status_sentence((status)i)));
    }
    assert_int_equal(run("help c012"), 0);
    assert_int_equal(run("help C999"), 2);
}

static void test_every_key_is_explained(void **state)
{
    (void)state;
    for (int64_t i = 0; i < run_config_table.count; i += 7) {
        char line[96];
        snprintf(line, sizeof(line), "help %s", run_config_table.rows[i].key);
        assert_int_equal(run(line), 0);
        assert_non_null(strstr(output, run_config_table.rows[i].key));
    }
    assert_int_equal(run("help train.stpes"), 2);
    assert_non_null(strstr(errors, "train.steps"));
}

static void test_documents_name_all(void **state)
{
    (void)state;
    static const char *const lines[] = {"help --man", "help --completion bash",
                                        "help --completion zsh"};
    for (int64_t i = 0; i < COUNT_OF(lines); i++) {
        assert_int_equal(run(lines[i]), 0);
        for (int64_t c = 0; cli_commands[c] != NULL; c++) {
            assert_non_null(strstr(output, cli_commands[c]->name));
        }
        assert_non_null(strstr(output, i == 0 ? "train.micro_batch" : "train.micro_batch="));
        assert_non_null(strstr(output, i == 0 ? "max\\-tokens" : "--max-tokens"));
    }
    assert_int_equal(run("help --completion fish"), 2);
}

static void test_errors_are_told_once(void **state)
{
    (void)state;
    assert_int_equal(run("trian x"), 2);
    assert_string_equal(output, "");
    assert_string_equal(errors,
                        "error[U001] there is no command \"trian\"; did you mean \"train\"?\n");
    assert_int_equal(run("train"), 2);
    assert_int_equal(run("train /nowhere/config.yaml"), 4);
    assert_int_equal(run("digest /nowhere"), 4);
    assert_int_equal(run("generate /nowhere --prompt a"), 4);
    assert_int_equal(run("eval /nowhere --data a"), 4);
    assert_int_equal(run("check /nowhere"), 4);
    assert_int_equal(run("bench stpe"), 2);
}

static void test_lost_output_is_an_error(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w"), *err = tmpfile();
    if (full == NULL) skip();
    cli_context cli;
    char *words[] = {(char[]){"trireme"}, (char[]){"help"}, NULL};
    assert_int_equal(cli_context_init(&cli, full, err), ST_OK);
    assert_int_equal(cli_main(&cli, 2, words), 4);
    cli_context_deinit(&cli);
    (void)fclose(full); // fails again: the stream still has its buffer
    taken(err, errors);
    assert_non_null(strstr(errors, "E003"));
}

// Keys that people often add on the command line must not conflict with the file.
static const char *const additions[] = {
    "train.steps=1",          "train.seq=64",
    "train.global_batch=3",   "train.micro_batch=1",
    "train.precision=bf16",   "train.precision=fp16",
    "train.recompute=full",   "eval.every=0",
    "data.valid=0",           "data.packing=plain",
    "checkpoint.every=0",     "checkpoint.keep_every=1000",
    "optimizer.name=muon",    "schedule.name=constant",
    "schedule.name=linear",   "schedule.name=inverse_sqrt",
    "model.preset=gpt2-124m", "model.layers=1",
    "model.dropout=0.1",      "determinism=strict",
    "policy.nan=stop",
};

static void test_configurations_of_init_load(void **state)
{
    (void)state;
    static const char *const files[] = {"tiny.yaml", "124m.yaml"};
    for (int64_t i = 0; i < COUNT_OF(files) * (COUNT_OF(additions) + 1); i++) {
        arena *a = NULL;
        run_config r = {0};
        config *c = NULL;
        char *yaml = NULL;
        int64_t bytes = 0;
        const int64_t with = i / COUNT_OF(files), count = with < COUNT_OF(additions) ? 1 : 0;
        const char *const *key = count == 1 ? &additions[with] : NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(cli_embedded_read(a, files[i % COUNT_OF(files)], &yaml, &bytes), ST_OK);
        status st = config_parse(a, &run_config_table,
                                 &(const config_input){.yaml = yaml,
                                                       .bytes = bytes,
                                                       .name = "config.yaml",
                                                       .folder = "/folder",
                                                       .overrides = key,
                                                       .override_count = count},
                                 &r, &c);
        if (st == ST_OK) st = run_config_check(&r, c, a);
        if (st != ST_OK) printf("%s: %s\n", count == 1 ? *key : "", error_last()->text);
        assert_int_equal(st, ST_OK);
        assert_string_equal(r.run.dir, "/folder/run");
        assert_string_equal(r.data.train.items[0], "/folder/text.txt");
        arena_destroy(a);
    }
}

static void test_init_makes_a_folder_once(void **state)
{
    (void)state;
    char scratch[64], line[200], path[200];
    file_info info;
    assert_non_null(test_scratch(scratch));
    snprintf(line, sizeof(line), "init %s/demo", scratch);
    assert_int_equal(run(line), 0);
    assert_non_null(strstr(output, "trireme train"));
    snprintf(path, sizeof(path), "%s/demo/text.txt", scratch);
    assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
    assert_true(info.bytes > 100000);
    assert_int_equal(run(line), 2); // init never overwrites an existing file
    snprintf(line, sizeof(line), "init %s/big --preset 124m", scratch);
    assert_int_equal(run(line), 0);
    snprintf(line, sizeof(line), "init %s/other --preset 125m", scratch);
    assert_int_equal(run(line), 2);
    test_scratch_remove(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overview_names_every_command),
        cmocka_unit_test(test_every_command_has_help),
        cmocka_unit_test(test_every_code_is_explained),
        cmocka_unit_test(test_every_key_is_explained),
        cmocka_unit_test(test_documents_name_all),
        cmocka_unit_test(test_errors_are_told_once),
        cmocka_unit_test(test_lost_output_is_an_error),
        cmocka_unit_test(test_configurations_of_init_load),
        cmocka_unit_test(test_init_makes_a_folder_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
