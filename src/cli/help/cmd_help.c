// `help`: commands, flags, keys and error codes, for people, man and shells. All texts come from
// the tables that the program itself uses.
#include "catalog/catalog.h"
#include "catalog/profile.h"
#include "cli/commands.h"
#include "cli/help/completion.h"
#include "cli/help/help_codes.h"
#include "cli/wrap.h"
#include "config/run_config.h"
#include "kernels/kernels.h"

#include <string.h>

typedef struct help_flags {
    bool man;
    const char *completion;
} help_flags;

#define AT(field) (int64_t) offsetof(help_flags, field)
static const option rows[] = {
    {.key = "man",
     .kind = OPTION_BOOL,
     .offset = AT(man),
     .default_text = "false",
     .help = "prints the man page"},
    {.key = "completion",
     .kind = OPTION_TEXT,
     .offset = AT(completion),
     .help = "shell whose completion script is printed: bash or zsh"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// ---- commands -----------------------------------------------------------------------------------

status cli_help_overview(cli_context *cli)
{
    cli_print(cli,
              "trireme trains large language models.\n\n"
              "  trireme init demo                              a small text and a configuration\n"
              "  trireme train demo/config.yaml                 a minute or two on two cores\n"
              "  trireme generate demo/run --prompt 'The '      text from the model\n\n"
              "Commands\n");
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        cli_print(cli, "  %-9s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
    cli_print(cli, "\ntrireme help COMMAND    its arguments, with examples\n"
                   "trireme help KEY        one key of a configuration, such as train.micro_batch\n"
                   "trireme help CODE       an error code, such as C012\n"
                   "trireme config reference    all keys\n");
    return ST_OK;
}

status cli_help_command(cli_context *cli, const cli_command *command)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "trireme %s: %s\n\n", command->name, command->summary));
    TRY(text_add(&t, "usage: trireme %s %s\n", command->name, command->synopsis));
    if (command->examples != NULL) TRY(text_add(&t, "\n%s", command->examples));
    if (command->about != NULL) {
        TRY(text_add(&t, "\n"));
        TRY(wrap_sentences(&t, command->about, 0, cli->columns));
        TRY(text_add(&t, "\n"));
    }
    if (command->flags != NULL && command->flags->count > 0) {
        TRY(text_add(&t, "\n"));
        TRY(option_print_help(command->flags, cli->columns, &t));
    }
    cli_print_text(cli, &t);
    return ST_OK;
}

status cli_help_version(cli_context *cli)
{
    cli_print(cli, "trireme %s\n", TRIREME_VERSION);
#if defined(__clang__)
    cli_print(cli, "compiler  clang %s\n", __clang_version__);
#else
    cli_print(cli, "compiler  gcc %s\n", __VERSION__);
#endif
    cli_print(cli, "devices   cpu, shadow, cuda\nbackends  cpu, ref, cuda\noneDNN    %s\n",
              TRIREME_HAVE_DNNL ? "yes" : "no");
#ifdef TRIREME_DEBUG
    cli_print(cli, "build     debug: assertions, poisoned memory\n");
#endif
    cli_print(cli, "this CPU  %s\n", kern_level_default());
    return ST_OK;
}

// ---- codes and keys -----------------------------------------------------------------------------

static const char *radius_text(status_radius radius)
{
    switch (radius) {
    case RADIUS_NONE:
        return "none";
    case RADIUS_CALL:
        return "retry the call";
    case RADIUS_GROUP:
        return "rebuild the group of processes";
    case RADIUS_RANK:
        return "restart the process";
    case RADIUS_JOB:
        return "stop the job";
    case RADIUS_USER:
        return "correct the input";
    }
    return "";
}

static status help_code(cli_context *cli, status code)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "%s  %s\n\n", status_code(code), status_sentence(code)));
    TRY(wrap_sentences(&t, cli_code_text(code), 0, cli->columns));
    TRY(text_add(&t, "\n\naction: %s    exit code: %d\n", radius_text(status_blast_radius(code)),
                 status_exit_code(code)));
    cli_print_text(cli, &t);
    return ST_OK;
}

// The keys of a run, and those of clusters and profiles that `simulate` and `plan` take.
typedef struct help_table {
    const char *prefix; // before each key of the table
    const option_table *table;
} help_table;
enum { HELP_TABLES = 3 };

static status help_tables(cli_context *cli, help_table out[HELP_TABLES])
{
    out[0] = (help_table){"", &run_config_table};
    out[1].prefix = "cluster.";
    out[2].prefix = "profile.";
    TRY(catalog_cluster_keys(cli->a, &out[1].table));
    return catalog_profile_keys(cli->a, &out[2].table);
}

// A file's own keys: a command line has no use for them.
static bool is_of_file(const help_table *t, const option *o)
{
    static const char *const names[] = {"base", "about", "sources", "assumed", "fitted_on"};
    for (int64_t i = 0; i < COUNT_OF(names) && *t->prefix != '\0'; i++) {
        if (strcmp(o->key, names[i]) == 0) return true;
    }
    return false;
}

// Prints all keys below a heading, or one key.
static status help_keys(cli_context *cli, const help_table *t, const char *topic, bool *found)
{
    text out = {.a = cli->a};
    const size_t length = strlen(topic);
    for (int64_t i = 0; i < t->table->count; i++) {
        char *key = NULL;
        option o = t->table->rows[i];
        TRY(arena_format(cli->a, &key, "%s%s", t->prefix, o.key));
        if (strncmp(key, topic, length) != 0 || is_of_file(t, &o)) continue;
        if (key[length] != '\0' && key[length] != '.') continue;
        o.key = key;
        const option_table one = {.rows = &o, .count = 1};
        TRY(option_print_help(&one, cli->columns, &out));
        *found = true;
    }
    cli_print_text(cli, &out);
    return ST_OK;
}

// The nearest key of any table, with its prefix.
static status help_nearest(cli_context *cli, const help_table *tables, const char *topic,
                           const char **out)
{
    for (int64_t i = HELP_TABLES - 1; i >= 0; i--) {
        const size_t length = strlen(tables[i].prefix);
        const char *near = NULL;
        char *key = NULL;
        if (strncmp(topic, tables[i].prefix, length) != 0) continue;
        TRY(option_nearest(tables[i].table, cli->a, topic + length, &near));
        if (near == NULL) continue;
        TRY(arena_format(cli->a, &key, "%s%s", tables[i].prefix, near));
        *out = key;
        return ST_OK;
    }
    return ST_OK;
}

static status help_topic(cli_context *cli, const char *topic)
{
    const cli_command *command = cli_command_find(topic);
    if (command != NULL && strcmp(topic, "config") != 0 && strcmp(topic, "data") != 0) {
        return cli_help_command(cli, command);
    }
    const status code = cli_code_parse(topic);
    if (code != STATUS_COUNT) return help_code(cli, code);
    if (command != NULL) return cli_help_command(cli, command);
    bool found = false;
    const char *near = NULL;
    help_table tables[HELP_TABLES];
    TRY(help_tables(cli, tables));
    for (int64_t i = 0; i < HELP_TABLES; i++) TRY(help_keys(cli, &tables[i], topic, &found));
    if (found) return ST_OK;
    TRY(help_nearest(cli, tables, topic, &near));
    command = cli_command_nearest(topic);
    if (command != NULL) near = command->name;
    if (near != NULL) {
        return fail(ST_USAGE, "there is no help on \"%s\"; did you mean \"%s\"?", topic, near);
    }
    return fail(ST_USAGE, "there is no command, key or error code \"%s\"", topic);
}

static status run(cli_context *cli, const cli_call *call)
{
    const help_flags *f = call->flags;
    if (call->operand_count > 0 && (f->man || f->completion != NULL)) {
        return fail(ST_USAGE, "--man and --completion print whole documents; leave out \"%.64s\"",
                    call->operands[0]);
    }
    if (f->completion != NULL) return cli_completion_print(cli, f->completion);
    if (f->man) return cli_man_print(cli);
    if (call->operand_count == 0) return cli_help_overview(cli);
    return help_topic(cli, call->operands[0]);
}

const cli_command cli_command_help = {
    .name = "help",
    .summary = "explain a command, a key of a configuration or an error code",
    .synopsis = "[COMMAND|KEY|CODE] [--man] [--completion bash|zsh]",
    .examples =
        "  trireme help train\n"
        "  trireme help optimizer.lr\n"
        "  trireme help C012\n"
        "  trireme help cluster.device    the keys of a cluster's device\n"
        "  trireme help --completion bash > ~/.local/share/bash-completion/completions/trireme\n",
    .flags = &flags,
    .flags_bytes = sizeof(help_flags),
    .operand_max = 1,
    .run = run,
};
