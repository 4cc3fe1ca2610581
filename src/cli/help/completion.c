// Completion scripts and the man page, from the command table and the option tables. Printing them
// needs no configuration and no run.
#include "cli/help/completion.h"

#include "config/run_config.h"

#include <string.h>

// ---- shells -------------------------------------------------------------------------------------

// The words that may follow a command, on one line.
static status command_words(arena *a, const cli_command *c, text *out)
{
    text lines = {.a = a};
    if (c->words != NULL) TRY(text_add(&lines, "%s\n", c->words));
    if (c->flags != NULL) TRY(option_print_words(c->flags, &lines));
    if (c->takes_keys) TRY(option_print_words(&run_config_table, &lines));
    for (int64_t i = 0; i < lines.length; i++) {
        if (lines.bytes[i] == '\n') lines.bytes[i] = ' ';
        if (lines.bytes[i] == ',') lines.bytes[i] = ' ';
    }
    return text_add(out, "%s", lines.length == 0 ? "" : lines.bytes);
}

static status bash(arena *a, text *out)
{
    TRY(text_add(out, "# bash completion of trireme\n_trireme() {\n"
                      "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
                      "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\""));
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        TRY(text_add(out, "%s ", cli_commands[i]->name));
    }
    // A shell splits words at "=", so the part before it has been typed already.
    TRY(text_add(out, "--version --help\"\n    else\n        case ${COMP_WORDS[1]} in\n"));
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        TRY(text_add(out, "        %s) words=\"", cli_commands[i]->name));
        TRY(command_words(a, cli_commands[i], out));
        TRY(text_add(out, "\" ;;\n"));
    }
    return text_add(
        out,
        "        esac\n    fi\n"
        "    if [ \"$word\" = \"=\" ] || [ \"${COMP_WORDS[COMP_CWORD-1]}\" = \"=\" ]; then\n"
        "        local key=${COMP_WORDS[COMP_CWORD-1]}\n"
        "        if [ \"$word\" = \"=\" ]; then word=; else key=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
        "        words=$(printf '%%s\\n' $words | sed -n \"s/^$key=\\(..*\\)/\\1/p\")\n"
        "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\"))\n"
        "        return\n    fi\n"
        "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
        "    [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- \"$word\"))\n"
        "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n}\n"
        "complete -o filenames -F _trireme trireme\n");
}

static status zsh(arena *a, text *out)
{
    TRY(text_add(out, "#compdef trireme\n_trireme() {\n    if (( CURRENT == 2 )); then\n"
                      "        local -a commands=(\n"));
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        TRY(text_add(out, "            \"%s:%s\"\n", cli_commands[i]->name,
                     cli_commands[i]->summary));
    }
    TRY(text_add(out, "        )\n        _describe command commands\n        return\n    fi\n"
                      "    case ${words[2]} in\n"));
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        TRY(text_add(out, "    %s) compadd -S '' -- ", cli_commands[i]->name));
        TRY(command_words(a, cli_commands[i], out));
        TRY(text_add(out, " ;;\n"));
    }
    return text_add(out, "    esac\n    _files\n}\n_trireme \"$@\"\n");
}

status cli_completion_print(cli_context *cli, const char *shell)
{
    text t = {.a = cli->a};
    if (strcmp(shell, "bash") == 0) {
        TRY(bash(cli->a, &t));
    } else if (strcmp(shell, "zsh") == 0) {
        TRY(zsh(cli->a, &t));
    } else {
        return fail(ST_USAGE, "there is no completion for \"%s\"; choose bash or zsh", shell);
    }
    cli_print_text(cli, &t);
    return ST_OK;
}

// ---- man ----------------------------------------------------------------------------------------

// Escapes roff commands: hyphens must copy as typed, and dots must not begin a line.
static status add_roff(text *out, const char *s)
{
    bool line_begins = true;
    for (; *s != '\0'; s++) {
        if (line_begins && (*s == '.' || *s == '\'')) TRY(text_add(out, "\\&"));
        if (*s == '\\') {
            TRY(text_add(out, "\\e"));
        } else if (*s == '-') {
            TRY(text_add(out, "\\-"));
        } else {
            TRY(text_add_bytes(out, s, 1));
        }
        line_begins = *s == '\n';
    }
    return ST_OK;
}

// A table's rows without the heading that option_print_man() prints first.
static status add_rows(const option_table *table, text *out)
{
    text rows = {.a = out->a};
    TRY(option_print_man(table, &rows));
    const char *behind = strchr(rows.bytes, '\n');
    ASSERT(behind != NULL);
    return text_add(out, "%s", behind + 1);
}

static status man_command(const cli_command *c, text *out)
{
    TRY(text_add(out, ".SS "));
    TRY(add_roff(out, c->name));
    TRY(text_add(out, "\n.B trireme %s\n", c->name));
    TRY(add_roff(out, c->synopsis));
    TRY(text_add(out, "\n.PP\n"));
    TRY(add_roff(out, c->summary));
    TRY(text_add(out, ".\n"));
    if (c->about != NULL) {
        TRY(add_roff(out, c->about));
        TRY(text_add(out, "\n"));
    }
    if (c->examples != NULL) {
        TRY(text_add(out, ".PP\n.nf\n"));
        TRY(add_roff(out, c->examples));
        TRY(text_add(out, ".fi\n"));
    }
    return c->flags != NULL ? add_rows(c->flags, out) : ST_OK;
}

static status man_codes(text *out)
{
    TRY(text_add(out, ".SH EXIT STATUS\n"));
    for (int code = 0; code < 256; code++) {
        const char *gap = "";
        for (int i = 0; i < STATUS_COUNT; i++) {
            if (status_exit_code((status)i) != code) continue;
            if (gap[0] == '\0') TRY(text_add(out, ".TP\n.B %d\n", code));
            TRY(text_add(out, "%s%s", gap, status_code((status)i)));
            TRY(text_add(out, i == ST_OK ? "" : " "));
            TRY(add_roff(out, status_sentence((status)i)));
            gap = "; ";
        }
        if (gap[0] != '\0') TRY(text_add(out, "\n"));
    }
    return ST_OK;
}

status cli_man_print(cli_context *cli)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, ".TH TRIREME 1 \"\" \"trireme %s\" \"User Commands\"\n", TRIREME_VERSION));
    TRY(text_add(&t, ".SH NAME\ntrireme \\- train large language models\n.SH SYNOPSIS\n.B trireme\n"
                     ".I COMMAND\n[\\fIargument\\fR ...] [\\fIkey.path\\fR=\\fIvalue\\fR ...]\n"
                     ".SH COMMANDS\n"));
    for (int64_t i = 0; cli_commands[i] != NULL; i++) TRY(man_command(cli_commands[i], &t));
    TRY(text_add(&t,
                 ".SH CONFIGURATION\nA YAML file; on the command line key.path=value. A key that "
                 "heads others may be written as a scalar, which sets its mode.\n"));
    TRY(add_rows(&run_config_table, &t));
    TRY(man_codes(&t));
    TRY(text_add(&t, ".SH ENVIRONMENT\n.TP\n.B NO_COLOR, TERM=dumb\nno colour\n.TP\n.B COLUMNS\n"
                     "width of lines\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}
