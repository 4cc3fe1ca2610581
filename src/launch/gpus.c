// Which GPUs Slurm gave to this process.
//
//   SLURM_STEP_GPUS   of the step on this node, or with --gpus-per-task and --gpu-bind of this task
//   SLURM_JOB_GPUS    of the job on the node of its script. Every process that the script starts
//                     inherits it, also on other nodes, where the numbers mean other GPUs
//
// Source: srun(1), sbatch(1); src/plugins/gres/gpu/gres_gpu.c of Slurm.
#include "launch/launch.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static const char *get(launch_lookup lookup, void *context, const char *name)
{
    const char *value = lookup(context, name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

// Reads a number below 1000 from *at on; -1: there is none.
static int number_read(const char **at)
{
    char *end = NULL;
    if (**at < '0' || **at > '9') return -1;
    const long value = strtol(*at, &end, 10);
    *at = end;
    return value < 1000 ? (int)value : -1;
}

// Reads "0,2" or "0-3"; false: it is no such list.
static bool numbers_read(const char *list, launch_gpus *out)
{
    const char *at = list;
    out->count = 0;
    for (;;) {
        const int first = number_read(&at);
        int last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = number_read(&at);
        }
        if (first < 0 || last < first || out->count + last - first >= LAUNCH_GPUS_MAX) return false;
        for (int i = first; i <= last; i++) out->numbers[out->count++] = i;
        if (*at == '\0') return true;
        if (*at++ != ',') return false;
    }
}

// Whether all processes that inherit the variables of the job's script run on its node.
static bool is_on_one_node(launch_lookup lookup, void *context)
{
    const char *nodes = get(lookup, context, "SLURM_JOB_NUM_NODES");
    if (nodes == NULL) nodes = get(lookup, context, "SLURM_NNODES");
    return nodes != NULL && strcmp(nodes, "1") == 0;
}

void launch_gpus_of_slurm(launch_lookup lookup, void *context, launch_gpus *out)
{
    const char *local = get(lookup, context, "SLURM_LOCALID");
    int64_t rank = 0;
    *out = (launch_gpus){.variable = "SLURM_STEP_GPUS"};
    if (get(lookup, context, "SLURM_JOB_ID") == NULL) return;
    out->list = get(lookup, context, out->variable);
    if (out->list == NULL && is_on_one_node(lookup, context)) {
        out->variable = "SLURM_JOB_GPUS";
        out->list = get(lookup, context, out->variable);
    }
    if (out->list == NULL || !numbers_read(out->list, out)) out->count = 0;
    if (local != NULL && text_parse_i64(local, &rank) && rank >= 0 && rank < LAUNCH_GPUS_MAX * 8) {
        out->local_rank = (int)rank;
    }
}
