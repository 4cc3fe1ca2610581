// Standard streams, and the path from argv to a command and back to an exit code.
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_DEFAULT = 80, COLUMNS_MIN = 20, COLUMNS_MAX = 1000 };

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

static int columns_of(FILE *out)
{
    const char *given = getenv("COLUMNS");
    int64_t columns = 0;
    struct winsize size = {0};
    if (given != NULL && text_parse_i64(given, &columns) && columns >= COLUMNS_MIN) {
        return (int)min_i64(columns, COLUMNS_MAX);
    }
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= COLUMNS_MIN) {
        return (int)min_i64(size.ws_col, COLUMNS_MAX);
    }
    return COLUMNS_DEFAULT;
}

const char *cli_environment(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

status cli_context_init(cli_context *cli, FILE *out, FILE *err)
{
    const char *term = getenv("TERM");
    const bool smart = term != NULL && strcmp(term, "dumb") != 0;
    *cli = (cli_context){.outside = *host_real(), .out = out, .err = err};
    cli->outside.home = getenv("HOME");
    cli->h = &cli->outside;
    TRY(arena_create("command", 0, &cli->a));
    cli->columns = columns_of(out);
    cli->live = smart && isatty(fileno(out)) == 1;
    cli->live_err = smart && isatty(fileno(err)) == 1;
    cli->colour = cli->live_err && !is_set("NO_COLOR");
    return ST_OK;
}

void cli_context_deinit(cli_context *cli)
{
    arena_destroy(cli->a);
    cli->a = NULL;
}

// ---- printing -----------------------------------------------------------------------------------

static void keep_write_error(cli_context *cli, bool failed)
{
    if (failed && cli->write_error == 0) cli->write_error = errno != 0 ? errno : EIO;
}

void cli_print(cli_context *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep_write_error(cli, vfprintf(cli->out, format, args) < 0);
    va_end(args);
}

void cli_print_text(cli_context *cli, const text *t)
{
    if (t->length == 0) return;
    const size_t bytes = (size_t)t->length;
    keep_write_error(cli, fwrite(t->bytes, 1, bytes, cli->out) != bytes);
}

void cli_push(cli_context *cli)
{
    keep_write_error(cli, fflush(cli->out) != 0);
}

status cli_flush(cli_context *cli)
{
    keep_write_error(cli, fflush(cli->out) != 0);
    if (cli->write_error == 0) return ST_OK;
    const int code = cli->write_error;
    cli->write_error = 0;
    return fail(code == ENOSPC ? ST_DISK_FULL : ST_IO, "standard output: %s", strerror(code));
}

// Names and values in the text may come from a hostile file: no byte of them may move a terminal's
// cursor or change its title. C1 controls are c2 80 to c2 9f.
static void text_shown(const char *from, char out[ERROR_TEXT_BYTES])
{
    size_t i = 0;
    for (; from[i] != '\0' && i < ERROR_TEXT_BYTES - 1; i++) {
        const unsigned char c = (unsigned char)from[i],
                            before = i > 0 ? (unsigned char)from[i - 1] : 0;
        const bool is_control =
            (c < 0x20 && c != '\n') || c == 0x7f || (before == 0xc2 && c < 0xa0);
        out[i] = is_control ? '?' : from[i];
    }
    out[i] = '\0';
}

void cli_warn(cli_context *cli, const char *format, ...)
{
    char said[ERROR_TEXT_BYTES], shown[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(said, sizeof(said), format, args);
    va_end(args);
    text_shown(said, shown);
    (void)fflush(cli->out);
    if (fprintf(cli->err, "warning  %s\n", shown) < 0 || fflush(cli->err) != 0) {
        clearerr(cli->err);
    }
}

void cli_print_error(cli_context *cli, status st)
{
    const char *red = cli->colour ? "\033[1;31m" : "", *plain = cli->colour ? "\033[0m" : "";
    char said[ERROR_TEXT_BYTES];
    int written = 0;
    text_shown(error_last()->text, said);
    if (said[0] == '\0') return; // a child process has already printed the error
    (void)fflush(cli->out);      // so that the error comes last
    if (strstr(said, "error[") != NULL) {
        written = fprintf(cli->err, "%s\n", said);
    } else if (st == ST_STOPPED) {
        written = fprintf(cli->err, "stopped  %s; the same command continues\n", said);
    } else {
        written = fprintf(cli->err, "%serror[%s]%s %s\n", red, status_code(st), plain, said);
    }
    // If standard error is closed too, only the exit code can report the failure.
    if (written < 0 || fflush(cli->err) != 0) clearerr(cli->err);
}

// ---- from argv to a command ---------------------------------------------------------------------

static status command_unknown(const char *name)
{
    const cli_command *near = cli_command_nearest(name);
    if (near != NULL) {
        return fail(ST_USAGE, "there is no command \"%s\"; did you mean \"%s\"?", name, near->name);
    }
    return fail(ST_USAGE, "there is no command \"%s\"; trireme help lists them", name);
}

static status dispatch(cli_context *cli, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return cli_help_overview(cli);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) return cli_help_version(cli);
    const cli_command *command = cli_command_find(name);
    if (command == NULL) return command_unknown(name);
    const int64_t count = argc - 2;
    const char **arguments = NULL;
    TRY(arena_new(cli->a, count + 1, &arguments));
    for (int64_t i = 0; i < count; i++) arguments[i] = argv[i + 2];
    cli_call call;
    bool wants_help = false;
    TRY(cli_parse(cli->a, command, arguments, count, &call, &wants_help));
    return wants_help ? cli_help_command(cli, command) : command->run(cli, &call);
}

int cli_main(cli_context *cli, int argc, char **argv)
{
    cli->argv = argv;
    status st = dispatch(cli, argc, argv);
    if (st != ST_OK) {
        cli_print_error(cli, st);
        cli->write_error = 0; // reports only the first error
        (void)fflush(cli->out);
        return status_exit_code(st);
    }
    st = cli_flush(cli);
    if (st != ST_OK) cli_print_error(cli, st);
    return status_exit_code(st);
}
