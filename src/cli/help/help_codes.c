// The meaning of each error code and its remedy. One row for every row of STATUS_TABLE; the
// assertion below fails to compile if one is missing.
#include "cli/help/help_codes.h"

#include <strings.h>

static const char *const texts[] = {
    [ST_OK] = "The command succeeded.",
    [ST_INTERNAL] =
        "A check inside the program failed, which is a bug in the program. The run's last "
        "checkpoint is untouched. Please report the message with the run's config.resolved.yaml.",
    [ST_USAGE] =
        "The command line has a flag, an argument or a command that does not exist, or one is "
        "missing. `trireme help COMMAND` shows what a command takes. Keys of a configuration are "
        "written key.path=value, without dashes.",
    [ST_CONFIG] = "The configuration was read but cannot be used; the message names key and value.",
    [ST_CONFIG_SYNTAX] =
        "The file is not YAML, or uses parts of YAML that configurations must not use: "
        "anchors, aliases, tags, merge keys, several documents. The message gives line and "
        "column.",
    [ST_CONFIG_TYPE] =
        "A value has another type than its key needs, such as a word instead of a number. "
        "Numbers may be written 3e-4, 4_096 or 4k, sizes 4GiB, times 12h.",
    [ST_CONFIG_KEY] =
        "A key does not exist (the program never ignores one silently) or a required key is "
        "missing. "
        "`trireme config reference` lists all keys, `trireme help KEY` explains one.",
    [ST_CONFIG_RANGE] = "A value lies outside its limits; the message gives them.",
    [ST_CONFIG_CONFLICT] =
        "Two values conflict, or another key makes this one ineffective. An accepted option "
        "always changes the run, so the program refuses a key without effect.",
    [ST_CONFIG_FIXED] =
        "A run's model, tokenizer, data order and determinism cannot change while it is continued: "
        "the result would belong to neither configuration. Restore the old value, or give "
        "another run.dir to start a new run.",
    [ST_DOES_NOT_FIT] =
        "The plan needs more memory than the machine has or memory.limit allows, so the run "
        "did not start. The message shows the use of memory and settings that are predicted to "
        "fit. A "
        "smaller train.micro_batch and train.recompute do not change the result.",
    [ST_UNSUPPORTED] =
        "This program does not support the combination yet, and refuses it rather than ignore it.",
    [ST_MODEL] =
        "A config.json or a preset describes a model that this program does not know exactly, "
        "or the weights do not match it. The message names the key or tensor.",
    [ST_IO] =
        "The operating system refused to read or write; the message gives path and reason. A run "
        "can be continued with the same command when the cause is gone.",
    [ST_NOT_FOUND] =
        "A file or folder does not exist at its path. Relative paths in a configuration start "
        "at its folder, those on the command line at the current folder.",
    [ST_DISK_FULL] =
        "The disk is full. A run writes a checkpoint under a temporary name and renames it "
        "when it is complete, so the last one is intact. Free space (checkpoint.keep is the "
        "number of checkpoints that are kept) and run the same command again.",
    [ST_LOCKED] =
        "Another process writes to this run's folder; its host and number are in the message. "
        "The lock ends with that process in any case, so no file has to be removed.",
    [ST_NO_MEMORY] =
        "The system gave no memory although the plan fits. Other processes may have taken it, "
        "or the container's real limit is lower than the reported one. Set memory.limit to the "
        "memory that is really free.",
    [ST_DEVICE] = "The device failed, or lacks the instructions of kernels.level.",
    [ST_DAMAGED] =
        "A checksum or a format is wrong: the file was changed or cut, or has another format "
        "than its name says. If it is a checkpoint, an older one may be intact: continue from "
        "it with "
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
        "A deadline passed: a process did not reach an operation in which others wait. The "
        "message names the missing process and its last action. Likely causes are dead or slow "
        "storage, a frozen host, a cut network.",
    [ST_DIVERGED] =
        "Ranks of one job reached the same point with different operations, sizes, types, "
        "tensors or orders. The message names two of them, with the operation and place of "
        "each. With the same program and configuration on all ranks this is a bug, here or in "
        "a difference between the hosts.",
    [ST_CORRUPT] =
        "Ranks that hold the same weights or optimizer state have different values. A processor or "
        "memory has returned a wrong value. The message names the tensor and the ranks. No "
        "checkpoint of that step was written. With resilience.mode=restart the run goes back to the "
        "state before it; otherwise continue from the last checkpoint, and examine the host of a "
        "rank that is named twice.",
    [ST_REFUSED] =
        "A rank may not join the job, because its build, configuration, data or numerics "
        "differ from the others'. The message names the difference. "
        "Start all ranks with the same program and the same files.",
    [ST_BROKEN_PLAN] =
        "The plans of the ranks are inconsistent, so the run did not start: the message names "
        "two actions and the conflict between them. If layout.schedule is a file, correct that "
        "file; otherwise this is a bug: please report the message with config.resolved.yaml.",
    [ST_ANSWER_NO] =
        "The command did its work, and the answer is no: a check found a difference beyond its "
        "limit, or a comparison failed. The output says which.",
    [ST_STOPPED] =
        "Not an error: a signal or train.max_time stopped the run after a step, and a "
        "checkpoint of "
        "it is on the disk. The same command continues. Schedulers may requeue on exit code 75.",
    [ST_SECURITY] =
        "An input tried to reach a forbidden place, such as a file outside its folder, which "
        "was not opened. Do not retry; check the source of the input.",
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
