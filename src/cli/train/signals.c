// Signals that stop a run. A handler can reach only global data, so this file has the program's one
// global.
//
// First signal: the handler notes it and, on a terminal, reports it at once, because a step may
// take long. Second INT: the default action, raised again. All functions that the handler calls are
// async-signal-safe.
#include "cli/train/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked_by; // number of the first signal; 0: none yet
static volatile sig_atomic_t is_quiet;

static void say(const char *words)
{
    const ssize_t written = write(STDERR_FILENO, words, strlen(words));
    (void)written; // a failed write cannot be reported
}

static void on_signal(int number)
{
    const int kept = errno;
    if (number == SIGINT && asked_by != 0) {
        say("\n");
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

static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
enum { NUMBER_COUNT = sizeof(numbers) / sizeof(numbers[0]) };

void cli_signals_begin(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    (void)sigemptyset(&action.sa_mask);
    for (int i = 0; i < NUMBER_COUNT; i++) (void)sigaction(numbers[i], &action, NULL);
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
    // A write beyond the file size limit returns an error instead.
    (void)sigaction(SIGXFSZ, &action, NULL);
    asked_by = is_quiet = 0;
}

void cli_signals_begin_quiet(void)
{
    cli_signals_begin();
    is_quiet = 1;
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
    for (int i = 0; i < NUMBER_COUNT; i++) (void)signal(numbers[i], SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
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
    default:
        return "";
    }
}
