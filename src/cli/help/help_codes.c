// The meaning of each error code and its remedy. One row for every row of STATUS_TABLE; the
// assertion below fails to compile if one is missing.
#include "cli/help/help_codes.h"

#include <strings.h>

static const char *const texts[] = {
    [ST_OK] = "Nothing went wrong.",
    [ST_INTERNAL] =
        "A check inside the program failed: this is a bug, not something you did. The run's last "
        "checkpoint is untouched. Please report the message with the run's config.resolved.yaml.",
    [ST_USAGE] =
        "The command line has a flag, an argument or a command that does not exist, or one is "
        "missing. `trireme help COMMAND` shows what a command takes. Keys of a configuration are "
        "written key.path=value, without dashes.",
    [ST_CONFIG] = "The configuration was read but cannot be used; the message names key and value.",
    [ST_CONFIG_SYNTAX] =
        "The file is not YAML, or uses a part of YAML that configurations may not: anchors, "
        "aliases, tags, merge keys, several documents. The message gives line and column.",
    [ST_CONFIG_TYPE] =
        "A value is of another kind than its key wants, such as a word where a number belongs. "
        "Numbers may be written 3e-4, 4_096 or 4k, sizes 4GiB, times 12h.",
    [ST_CONFIG_KEY] =
        "A key does not exist (it is never ignored silently) or a needed one is not given. "
        "`trireme config reference` lists all keys, `trireme help KEY` explains one.",
    [ST_CONFIG_RANGE] = "A value lies outside its limits; the message gives them.",
    [ST_CONFIG_CONFLICT] =
        "Two values cannot hold together, or a key would have no effect beside another one. An "
        "accepted option always changes the run, so such a key is refused.",
    [ST_CONFIG_FIXED] =
        "A run's model, tokenizer, data order and determinism cannot change while it is continued: "
        "the result would be of neither configuration. Take the old value back, or give another "
        "run.dir to start a new run.",
    [ST_DOES_NOT_FIT] =
        "The plan needs more memory than there is or than memory.limit allows; nothing was "
        "started. The message shows where the bytes go and settings that are predicted to fit. A "
        "smaller train.micro_batch and train.recompute do not change the result.",
    [ST_UNSUPPORTED] =
        "This combination is not built yet, or not by this program. It is refused rather than "
        "ignored.",
    [ST_MODEL] =
        "A config.json or a preset describes no model that this program knows exactly, or weights "
        "do not fit the description. The message names the key or tensor.",
    [ST_IO] =
        "The operating system refused to read or write; the message gives path and reason. A run "
        "can be continued with the same command when the cause is gone.",
    [ST_NOT_FOUND] = "A file or folder is not where it was looked for. Relative paths in a "
                     "configuration start at its folder, on the command line at the current one.",
    [ST_DISK_FULL] =
        "No space is left. Checkpoints are written beside the old ones and renamed when whole, so "
        "the last one is intact. Free space (checkpoint.keep says how many stay) and run the same "
        "command again.",
    [ST_LOCKED] =
        "Another process writes to this run's folder; its host and number are in the message. The "
        "lock ends with that process, however it ends: nothing has to be removed.",
    [ST_NO_MEMORY] =
        "The system gave no memory although the plan fits. Other processes may have taken it, or a "
        "limit of the container is lower than it says. Set memory.limit to what is really free.",
    [ST_DEVICE] = "The device failed, or has not what kernels.level asks for.",
    [ST_DAMAGED] =
        "A checksum or a format does not agree: the file was changed, cut, or is not what its name "
        "says. If it is a checkpoint, an older one may be whole: continue from it with "
        "`trireme train RUN --resume RUN/checkpoints/step-N`.",
    [ST_DATA] =
        "The training text or tokens cannot be used: too few for one sequence, ids beyond the "
        "vocabulary, or a file that changed while it was read. The message names the file.",
    [ST_NUMERICS] =
        "A loss or gradient was not finite, or steps were skipped more often in a row than "
        "policy.nan.limit or policy.spike.limit allow. No weight was changed by the last of them. "
        "Try a lower optimizer.lr, more schedule.warmup, bf16 instead of fp16, or look at the "
        "data; the run continues from its last checkpoint.",
    [ST_PEER_LOST] = "Another process of the job ended or cannot be reached.",
    [ST_TIMEOUT] =
        "A deadline passed: a process did not come to an operation that others wait in. The "
        "message names who is missing and what it did last. Likely causes are dead or slow "
        "storage, a frozen host, a cut network.",
    [ST_DIVERGED] =
        "Ranks of one job came to the same place with different intentions: another operation, "
        "size, type, tensor or order. The message names two of them, what each wanted and where. "
        "The same program and configuration on all ranks cannot do that: it is a bug, here or in "
        "what differs between the hosts.",
    [ST_REFUSED] =
        "A rank was not let into the job, because its build, configuration, data or way of "
        "computing differs from the others'. The message names what differs, there and here. "
        "Start all ranks with the same program and the same files.",
    [ST_BROKEN_PLAN] =
        "The plans of the ranks do not fit together, and nothing was started: the message "
        "names two "
        "actions and what is wrong between them. Of a schedule read from a file it is that file to "
        "mend; otherwise this is a bug: please report the message with config.resolved.yaml.",
    [ST_ANSWER_NO] =
        "The command did its work, and the answer is no: a check found a difference beyond its "
        "limit, or a comparison failed. What was printed says which.",
    [ST_STOPPED] =
        "Not an error: a signal or train.max_time stopped the run after a step, and a "
        "checkpoint of "
        "it is on the disk. The same command continues. Schedulers may requeue on exit code 75.",
    [ST_SECURITY] =
        "An input tried to reach what it may not, such as a file outside its folder. Nothing was "
        "opened. Do not retry; look at where the input came from.",
};
_Static_assert(sizeof(texts) / sizeof(texts[0]) == STATUS_COUNT, "a text for every status");

status cli_code_parse(const char *code)
{
    for (int i = ST_OK + 1; i < STATUS_COUNT; i++) {
        if (strcasecmp(status_code((status)i), code) == 0) return (status)i;
    }
    return STATUS_COUNT;
}

const char *cli_code_text(status code)
{
    return texts[code];
}
