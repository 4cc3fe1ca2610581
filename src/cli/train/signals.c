// Signals that stop a run. A handler can reach only global data, so this file has the program's
// globals.
//
// First signal: the handler notes it and, on a terminal, reports it at once, because a step may
// take long. Second INT: the run's STATUS is written, and the default action is raised again. All
// functions that the handler calls are async-signal-safe.
#include "cli/train/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked_by; // number of the first signal; 0: none yet
static volatile sig_atomic_t is_quiet;

// File that the second INT writes, and its text; "": none. The handler cannot format.
static char quit_path[4096], quit_temporary[4096 + 8], quit_text[256];

static void say(const char *words)
{
    const ssize_t written = write(STDERR_FILENO, words, strlen(words));
    (void)written; // a failed write cannot be reported
}

static void write_last(void)
{
    if (quit_path[0] == '\0') return;
    const int fd = open(quit_temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return;
    const size_t bytes = strlen(quit_text);
    const bool is_whole = write(fd, quit_text, bytes) == (ssize_t)bytes;
    if (close(fd) == 0 && is_whole) (void)rename(quit_temporary, quit_path);
}

static void on_signal(int number)
{
    const int kept = errno;
    if (number == SIGINT && asked_by != 0) {
        say("\n");
        write_last();
        (void)signal(SIGINT, SIG_DFL);
        (void)raise(SIGINT); // delivered when this handler returns
    } else if (asked_by == 0) {
        asked_by = number;
        if (is_quiet == 0 && isatty(STDERR_FILENO) == 1) {
            say("\n^C     stopping after this step (again to quit now)\n");
        }
    }
    errno = kept;
}

// Batch systems announce the end of a job with one of these: Slurm and Kubernetes TERM, Grid Engine
// and LSF USR1 or USR2, and XCPU before the limit of processor time.
static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP, SIGQUIT};
enum { NUMBER_COUNT = sizeof(numbers) / sizeof(numbers[0]) };

void cli_signals_begin(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    (void)sigemptyset(&action.sa_mask);
    asked_by = is_quiet = 0;
    quit_path[0] = '\0';
    for (int i = 0; i < NUMBER_COUNT; i++) {
        struct sigaction before;
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 &&
            before.sa_handler == SIG_IGN) {
            continue; // nohup
        }
        (void)sigaction(numbers[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
}

void cli_signals_begin_quiet(void)
{
    cli_signals_begin();
    is_quiet = 1;
}

void cli_signals_on_quit(const char *path, const char *words)
{
    const size_t length = strlen(path);
    if (length >= sizeof(quit_path)) return;
    (void)snprintf(quit_temporary, sizeof(quit_temporary), "%s.tmp", path);
    (void)snprintf(quit_text, sizeof(quit_text), "%s", words);
    memcpy(quit_path + 1, path + 1,
           length); // the first byte comes last: a handler sees all or none
    quit_path[0] = path[0];
}

void cli_signals_raise(void)
{
    const int number = asked_by;
    if (number == 0) return;
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

void cli_signals_end(void)
{
    for (int i = 0; i < NUMBER_COUNT; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == on_signal) {
            (void)signal(numbers[i], SIG_DFL);
        }
    }
    quit_path[0] = '\0';
    (void)signal(SIGPIPE, SIG_DFL);
}

bool cli_signals_asked(void)
{
    return asked_by != 0;
}

const char *cli_signals_name(void)
{
    switch (asked_by) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1";
    case SIGUSR2:
        return "SIGUSR2";
    case SIGXCPU:
        return "SIGXCPU";
    case SIGHUP:
        return "SIGHUP";
    case SIGQUIT:
        return "SIGQUIT";
    default:
        return "";
    }
}
